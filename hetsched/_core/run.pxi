# Runs: placements, starts and ends in success of plain tasks, many at a time, for those who act on them and those who look at them later.
#
# A template is plain if nothing follows from its tasks' facts but what a Run tells: no timer, no gang, nobody who counts them one by one.
# Promises: a Run holds all it tells, ids included; the tables may go on. What it says in columns is in the order of the facts, by node or
# by template in the order in which each comes first.

cdef enum:
    MOST_BOUNDS = 32
    KEPT_TIMES = 64            # policy/profiles.py keeps no more of a kind
    TOLD = -2                  # instead of a model


cdef struct RunRecord:
    int64_t submitted_ns
    uint32_t task              # slot, when it was written
    uint32_t template_         # slot
    uint32_t node              # PLACED: slot
    uint32_t pieces            # PLACED: where in `pieces` its own are, packed as in the fact
    uint32_t number            # of its key
    uint16_t head
    uint16_t attempt
    uint8_t count              # PLACED: devices
    uint8_t code               # FACT_*
    uint8_t qos


cdef struct WaitRecord:
    # Of the tasks of one template.
    uint32_t template_
    double sum_s
    int64_t counts[MOST_BOUNDS + 1]


cdef struct LearnedRecord:
    int64_t run_ms
    uint32_t template_
    int32_t model              # of the first device, -1: none, or not known


cdef inline bint is_plain(Tables* t, uint32_t task) noexcept nogil:
    return (task < t.tasks_used and t.tasks[task].state != FREE_ and t.tasks[task].gang == NONE_ and not t.tasks[task].flags & SHAKEN_
            and t.tasks[task].template_ < t.plain_used and t.plain[t.tasks[task].template_])


cdef bint joins_run(Tables* t, const uint8_t* fact) noexcept nogil:
    """The fact is one that a Run tells."""
    if fact[0] != FACT_PLACED and fact[0] != FACT_STARTED and (fact[0] != FACT_ENDED or fact[7] != SUCCEEDED_ or fact[8] != 0):
        return False
    return is_plain(t, get32(fact + 1))


cdef int learn_from(Tables* t, TaskRecord* task) except -1 nogil:
    """How long the attempt that has just succeeded ran."""
    cdef LearnedRecord learned
    cdef StoryRecord* story = story_at(t, task.place)
    if task.place == NONE_ or story.started_ns == 0:
        return 0
    learned.run_ms = (t.now_ns - story.started_ns) // 1000000
    learned.template_ = task.template_
    learned.model = -1
    if story.count > 0:
        learned.model = t.devices[t.nodes[story.node].device_first + (story_pieces(story)[0] & 0xFF)].model
    fact_room(&t.learned, sizeof(LearnedRecord))
    memcpy(t.learned.data + t.learned.size, &learned, sizeof(LearnedRecord))
    t.learned.size += sizeof(LearnedRecord)
    return 0


cdef class Run:
    """See `_core.pyi`."""

    cdef Buffer records        # of RunRecords
    cdef Buffer pieces
    cdef Heads heads
    cdef readonly int placed
    cdef readonly int started
    cdef readonly int succeeded

    def __dealloc__(self):
        free(self.records.data)
        free(self.pieces.data)
        drop_heads(&self.heads)

    cdef inline RunRecord* at(self, Py_ssize_t index) noexcept nogil:
        return <RunRecord*> self.records.data + index

    cdef inline Py_ssize_t count(self) noexcept nogil:
        return <Py_ssize_t> (self.records.size // sizeof(RunRecord))

    cdef inline bint is_full(self) noexcept nogil:
        return self.heads.size == MOST_HEADS

    cdef int add(self, Tables* t, const uint8_t* fact) except -1 nogil:
        """The fact has been applied."""
        cdef uint32_t slot = get32(fact + 1), length, number, head
        cdef TaskRecord* task = &t.tasks[slot]
        cdef RunRecord* record
        cdef const uint8_t* key = key_bytes(t, task.key)
        length = head_length(key, key_length(t, task.key), &number)
        head_of(&self.heads, key, length, &head)
        fact_room(&self.records, sizeof(RunRecord))
        record = <RunRecord*> (self.records.data + self.records.size)
        record.submitted_ns = task.submitted_ns
        record.task, record.template_ = slot, task.template_
        record.number, record.head = number, <uint16_t> head
        record.code, record.attempt, record.qos = fact[0], get16(fact + 5), <uint8_t> qos_of(task)
        record.count, record.node, record.pieces = 0, NONE_, <uint32_t> self.pieces.size
        if fact[0] == FACT_PLACED:
            record.node, record.count = get32(fact + 7), fact[12]
            fact_room(&self.pieces, 3 * <size_t> fact[12])
            memcpy(self.pieces.data + self.pieces.size, fact + 13, 3 * <size_t> fact[12])
            self.pieces.size += 3 * <size_t> fact[12]
            self.placed += 1
        elif fact[0] == FACT_STARTED:
            self.started += 1
        else:
            self.succeeded += 1
            learn_from(t, task)
        self.records.size += sizeof(RunRecord)
        return 0

    cdef bytes key(self, RunRecord* record):
        cdef uint8_t key[LONGEST_KEY + 11]
        cdef HeadRecord* head = &self.heads.at[record.head]
        cdef uint32_t length = write_key(key, self.heads.text.data + head.text, head.length, record.number)
        return (<const char*> key)[:length]

    def __len__(self):
        return self.count()

    def fact(self, Py_ssize_t index):
        cdef RunRecord* record
        if not 0 <= index < self.count():
            raise IndexError(f"there is no fact {index} in a run of {len(self)}")
        record = self.at(index)
        return (record.code, self.key(record), record.attempt, record.qos, record.node,
                pieces_tuple(self.pieces.data + record.pieces, record.count))

    def keys(self):
        cdef Py_ssize_t index
        return [self.key(self.at(index)) for index in range(self.count())]

    def columns(self, Py_ssize_t begin=0):
        cdef Py_ssize_t count = self.count() - begin, at
        cdef RunRecord* record
        if not 0 <= begin < self.count():
            raise IndexError(f"there is no fact {begin} in a run of {len(self)}")
        codes, levels, attempts = PyBytes_FromStringAndSize(NULL, count), PyBytes_FromStringAndSize(NULL, count), PyBytes_FromStringAndSize(NULL, 2 * count)
        which, numbers, nodes = PyBytes_FromStringAndSize(NULL, 2 * count), PyBytes_FromStringAndSize(NULL, 4 * count), PyBytes_FromStringAndSize(NULL, 4 * count)
        cdef uint8_t* code = <uint8_t*> <const uint8_t*> <bytes> codes
        cdef uint8_t* level = <uint8_t*> <const uint8_t*> <bytes> levels
        cdef uint16_t* attempt = <uint16_t*> <const uint8_t*> <bytes> attempts
        cdef uint16_t* head = <uint16_t*> <const uint8_t*> <bytes> which
        cdef uint32_t* number = <uint32_t*> <const uint8_t*> <bytes> numbers
        cdef uint32_t* node = <uint32_t*> <const uint8_t*> <bytes> nodes
        cdef Buffer devices
        memset(&devices, 0, sizeof(Buffer))
        try:
            with nogil:
                for at in range(count):
                    record = self.at(begin + at)
                    code[at], level[at], attempt[at] = record.code, record.qos, record.attempt
                    head[at], number[at], node[at] = record.head, record.number, record.node
                    if record.code == FACT_PLACED:
                        put_packed(&devices, record.count, self.pieces.data + record.pieces)
            packed = (<const char*> devices.data)[:devices.size] if devices.size else b""
        finally:
            free(devices.data)
        return codes, levels, attempts, self.joined(), which if self.heads.size > 1 else b"", numbers, nodes, packed

    cdef bytes joined(self):
        return (<const char*> self.heads.text.data)[:self.heads.text.size] if self.heads.text.size else b""

    def ended(self):
        cdef bytearray slots = bytearray(4 * self.succeeded)
        cdef uint8_t* out = slots
        cdef Py_ssize_t index
        for index in range(self.count()):
            if self.at(index).code == FACT_ENDED:
                memcpy(out, &self.at(index).task, 4)
                out += 4
        return bytes(slots)

    def placed_by_level(self):
        cdef Py_ssize_t index
        cdef int64_t[LEVELS] counts
        for index in range(LEVELS):
            counts[index] = 0
        for index in range(self.count()):
            if self.at(index).code == FACT_PLACED:
                counts[self.at(index).qos] += 1
        return [counts[index] for index in range(LEVELS)]

    def templates(self):
        cdef Py_ssize_t index
        cdef uint32_t last = NONE_
        found = {}
        for index in range(self.count()):
            if self.at(index).template_ != last:
                last = self.at(index).template_
                found[last] = None
        return list(found)

    def starts(self):
        """Placements of a node are chained first, so that every column is written once, in place."""
        cdef Starting starting
        cdef uint32_t at
        memset(&starting, 0, sizeof(Starting))
        try:
            starting_room(&starting, self.records.data, <uint32_t> self.count(), self.heads.size)
            return [self.start(&starting, at) for at in range(starting.nodes)]
        finally:
            free(starting.scratch)

    cdef tuple start(self, Starting* starting, uint32_t at):
        cdef uint32_t count = starting.counts[at], index = starting.first[at], size = 0, place = 0, head, like
        cdef RunRecord* record
        cdef const uint8_t* piece
        cdef list templates = [], heads = []
        while index != NONE_:
            size += 1 + 3 * self.at(index).count
            index = starting.next[index]
        likes, attempts = PyBytes_FromStringAndSize(NULL, 2 * count), PyBytes_FromStringAndSize(NULL, 2 * count)
        which, numbers, devices = PyBytes_FromStringAndSize(NULL, 2 * count), PyBytes_FromStringAndSize(NULL, 4 * count), PyBytes_FromStringAndSize(NULL, size)
        cdef uint16_t* like_out = <uint16_t*> <const uint8_t*> <bytes> likes
        cdef uint16_t* attempt_out = <uint16_t*> <const uint8_t*> <bytes> attempts
        cdef uint16_t* head_out = <uint16_t*> <const uint8_t*> <bytes> which
        cdef uint32_t* number_out = <uint32_t*> <const uint8_t*> <bytes> numbers
        cdef uint8_t* device_out = <uint8_t*> <const uint8_t*> <bytes> devices
        cdef uint32_t last = NONE_
        like = 0
        index = starting.first[at]
        while index != NONE_:
            record = self.at(index)
            if record.template_ != last:
                last = record.template_
                if last not in templates:
                    templates.append(last)
                like = <uint32_t> templates.index(last)
            head = record.head
            if starting.met[head] != at + 1:
                starting.met[head] = at + 1
                starting.local[head] = <uint32_t> len(heads)
                heads.append((<const char*> self.heads.text.data + self.heads.at[head].text)[:self.heads.at[head].length])
            like_out[place], attempt_out[place] = <uint16_t> like, record.attempt
            head_out[place], number_out[place] = <uint16_t> starting.local[head], record.number
            device_out[0] = record.count
            piece = self.pieces.data + record.pieces
            memcpy(device_out + 1, piece, 3 * <size_t> record.count)
            device_out += 1 + 3 * record.count
            place += 1
            index = starting.next[index]
        return (starting.node[at], tuple(templates), likes, b"\n".join(heads), which if len(heads) > 1 else b"", numbers, attempts, devices)

    def waits(self, int code, int64_t now_ns, tuple bounds_s, bint first=True):
        cdef Buffer found
        cdef double limits[MOST_BOUNDS]
        cdef int most = <int> len(bounds_s), at
        cdef WaitRecord* wait
        if most > MOST_BOUNDS:
            raise ValueError(f"{most} bounds are more than {MOST_BOUNDS}")
        for at in range(most):
            limits[at] = bounds_s[at]
        memset(&found, 0, sizeof(Buffer))
        try:
            with nogil:
                count_waits(&found, <RunRecord*> self.records.data, self.count(), code, now_ns, limits, most, first)
            by_template = {}
            for wait in (<WaitRecord*> found.data)[:found.size // sizeof(WaitRecord)]:
                by_template[wait.template_] = [[wait.counts[at] for at in range(most + 1)], wait.sum_s]
            return by_template
        finally:
            free(found.data)


cdef int put_packed(Buffer* out, uint8_t count, const uint8_t* pieces) except -1 nogil:
    fact_room(out, 1 + 3 * <size_t> count)
    put8(out, count)
    memcpy(out.data + out.size, pieces, 3 * <size_t> count)
    out.size += 3 * <size_t> count
    return 0


cdef int count_waits(Buffer* found, RunRecord* records, Py_ssize_t count, int code, int64_t now_ns, const double* limits, int most,
                     bint first) except -1 nogil:
    cdef Py_ssize_t index
    cdef size_t groups = 0, group = 0
    cdef RunRecord* record
    cdef WaitRecord* wait = NULL
    cdef double waited_s
    cdef int at
    for index in range(count):
        record = &records[index]
        if record.code != code or (first and record.attempt != 1):
            continue
        if wait == NULL or wait.template_ != record.template_:
            group = 0
            while group < groups and (<WaitRecord*> found.data)[group].template_ != record.template_:
                group += 1
            if group == groups:
                fact_room(found, sizeof(WaitRecord))
                memset(found.data + found.size, 0, sizeof(WaitRecord))
                found.size += sizeof(WaitRecord)
                (<WaitRecord*> found.data)[group].template_ = record.template_
                groups += 1
            wait = &(<WaitRecord*> found.data)[group]
        waited_s = max(0.0, (now_ns - record.submitted_ns) / 1e9)
        at = 0
        while at < most and waited_s > limits[at]:
            at += 1
        wait.counts[at] += 1
        wait.sum_s += waited_s
    return 0


cdef struct Starting:
    # Placements chained by node, while their orders are made. All in one piece of memory, `scratch`.
    uint32_t* scratch
    uint32_t* next             # by fact: the next one of its node, or NONE
    uint32_t* node             # by number, in the order in which each comes first: the node's slot
    uint32_t* first
    uint32_t* counts
    uint32_t* met              # by head: number of the node, + 1, that met it last
    uint32_t* local            # by head: what that node calls it
    uint32_t nodes


cdef int starting_room(Starting* starting, const uint8_t* data, uint32_t count, uint32_t heads) except -1 nogil:
    cdef const RunRecord* records = <const RunRecord*> data
    cdef uint32_t room = 16, index, place, number
    cdef uint32_t* places
    cdef uint32_t* last
    while room < 2 * count:
        room *= 2
    starting.scratch = <uint32_t*> calloc(5 * <size_t> count + 2 * <size_t> heads + room, sizeof(uint32_t))
    if starting.scratch == NULL:
        no_memory()
    starting.next = starting.scratch
    starting.node = starting.next + count
    starting.first = starting.node + count
    starting.counts = starting.first + count
    last = starting.counts + count
    starting.met = last + count
    starting.local = starting.met + heads
    places = starting.local + heads
    for index in range(count):
        starting.next[index] = NONE_
        if records[index].code != FACT_PLACED:
            continue
        place = (records[index].node * <uint32_t> 0x9E3779B1) & (room - 1)
        while places[place] != 0 and starting.node[places[place] - 1] != records[index].node:
            place = (place + 1) & (room - 1)
        if places[place] == 0:
            starting.node[starting.nodes] = records[index].node
            starting.first[starting.nodes] = index
            starting.nodes += 1
            places[place] = starting.nodes
        else:
            starting.next[last[places[place] - 1]] = index
        number = places[place] - 1
        last[number] = index
        starting.counts[number] += 1
    return 0


cdef size_t gather_learned(LearnedRecord* learned, size_t begin, size_t count, int64_t* times) noexcept nogil:
    """Times of those that are like the one at `begin`, in the order in which they came; they are marked as told. Returns how many."""
    cdef uint32_t template_ = learned[begin].template_
    cdef int32_t model = learned[begin].model
    cdef size_t at, same = 0
    for at in range(begin, count):
        if learned[at].template_ == template_ and learned[at].model == model:
            times[same] = max(learned[at].run_ms, <int64_t> 1)
            learned[at].model = TOLD
            same += 1
    return same


cdef int64_t lower_median(int64_t* times, size_t count) noexcept nogil:
    """Of at least one; their order is lost."""
    cdef Py_ssize_t low = 0, high = <Py_ssize_t> count - 1, wanted = high // 2, left, right
    cdef int64_t pivot, swap
    while low < high:
        pivot = times[(low + high) // 2]
        left, right = low, high
        while left <= right:
            while times[left] < pivot:
                left += 1
            while times[right] > pivot:
                right -= 1
            if left <= right:
                swap = times[left]
                times[left] = times[right]
                times[right] = swap
                left += 1
                right -= 1
        if wanted <= right:
            high = right
        elif wanted >= left:
            low = left
        else:
            break
    return times[wanted]


cdef class RunDoors(TaskDoors):

    def set_plain(self, uint32_t template, bint plain):
        cdef Tables* t = &self.t
        if template >= 1 << 28:
            raise ValueError(f"template {template} is not below 2^28")
        grow(<void**> &t.plain, &t.plain_capacity, 1, <uint64_t> template + 1)
        while t.plain_used <= template:
            t.plain[t.plain_used] = False
            t.plain_used += 1
        t.plain[template] = plain

    def peek_runs(self, size_t offset):
        cdef Buffer* facts = &self.t.facts
        cdef Run run = None
        cdef size_t size
        cdef list found = []
        if offset > facts.size:
            raise ValueError(f"offset {offset} is behind the end {facts.size}")
        while offset < facts.size:
            size = length_of(facts.data + offset, facts.size - offset)
            if joins_run(&self.t, facts.data + offset):
                if run is None or run.is_full():
                    run = Run()
                    found.append(run)
                run.add(&self.t, facts.data + offset)
            elif facts.data[offset] != FACT_FORGOTTEN:
                run = None
                found.append(fact_tuple(facts.data + offset, size))
            offset += size
        return found, offset

    def apply_run(self, bytes facts, size_t offset):
        cdef const uint8_t* data = facts
        cdef size_t end = len(facts), size
        cdef const char* why = NULL
        cdef Run run = Run()
        if not self.t.replaying:
            raise ValueError("a run is applied while replaying")
        while offset < end:
            size = length_of(data + offset, end - offset)
            if size == 0:
                raise ValueError(f"offset {offset}: the record is cut off or of no known kind")
            if run.is_full() or not joins_run(&self.t, data + offset):
                break
            replay_task(&self.t, data + offset, &why)
            if why != NULL:
                raise ValueError(f"offset {offset}: {fact_tuple(data + offset, size)}: {why.decode()}")
            run.add(&self.t, data + offset)
            offset += size
        return run, offset

    def apply_forgotten(self, bytes facts, size_t offset):
        cdef const uint8_t* data = facts
        cdef size_t end = len(facts), begin = offset
        cdef const char* why
        cdef uint32_t task
        cdef dict templates = {}
        cdef bytearray slots = bytearray()
        if not self.t.replaying:
            raise ValueError("forgotten tasks are applied while replaying")
        while offset + 5 <= end and data[offset] == FACT_FORGOTTEN:
            task = get32(data + offset + 1)
            why = "there is no such task"
            if task < self.t.tasks_used:
                why = refuse_forgotten(&self.t, task)
            if why != NULL:
                raise ValueError(f"offset {offset}: {fact_tuple(data + offset, 5)}: {why.decode()}")
            if self.t.tasks[task].gang != NONE_:
                break
            template = self.t.tasks[task].template_
            templates[template] = templates.get(template, 0) + 1
            slots += (<const char*> data + offset + 1)[:4]
            apply_forgotten(&self.t, task)
            offset += 5
        return bytes(slots), templates, offset

    def learn(self, uint32_t task):
        self._task(task)
        if self.t.tasks[task].state != SUCCEEDED_ or self.t.tasks[task].template_ >= self.t.plain_used \
                or not self.t.plain[self.t.tasks[task].template_]:
            return False
        learn_from(&self.t, &self.t.tasks[task])
        return True

    def take_learned(self):
        cdef LearnedRecord* learned = <LearnedRecord*> self.t.learned.data
        cdef size_t count = self.t.learned.size // sizeof(LearnedRecord), begin, same, at
        cdef int64_t* times = <int64_t*> calloc(count + 1, sizeof(int64_t))
        cdef int32_t model
        cdef list found = []
        if times == NULL:
            raise MemoryError
        try:
            for begin in range(count):
                model = learned[begin].model
                if model == TOLD:
                    continue
                same = gather_learned(learned, begin, count, times)
                tail = [times[at] for at in range(same - min(same, <size_t> KEPT_TIMES), same)]
                found.append((learned[begin].template_, model, same, lower_median(times, same), tail))
            self.t.learned.size = 0
            return found
        finally:
            free(times)
