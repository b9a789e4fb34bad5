# Runs: placements, starts and ends in success of plain tasks, many at a time, for those who act on them and those who look at them later.
#
# A template is plain if nothing follows from its tasks' facts but what a Run tells: no timer, no gang, nobody who counts them one by one.
# Promises: a Run holds all it tells, ids included; the tables may go on. What it says in columns is in the order of the facts, by node or
# by template in the order in which each comes first.

cdef struct RunRecord:
    int64_t submitted_ns
    uint32_t task              # slot, when it was written
    uint32_t template_         # slot
    uint32_t node              # PLACED: slot
    uint32_t text              # where in `text` its key begins; PLACED: its pieces follow, packed as in the fact
    uint16_t attempt
    uint8_t key_length         # bytes
    uint8_t count              # PLACED: devices
    uint8_t code               # FACT_*
    uint8_t qos


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
    cdef Buffer text
    cdef readonly int placed
    cdef readonly int started
    cdef readonly int succeeded

    def __dealloc__(self):
        free(self.records.data)
        free(self.text.data)

    cdef inline RunRecord* at(self, Py_ssize_t index) noexcept nogil:
        return <RunRecord*> self.records.data + index

    cdef int add(self, Tables* t, const uint8_t* fact) except -1 nogil:
        """The fact has been applied."""
        cdef uint32_t slot = get32(fact + 1)
        cdef TaskRecord* task = &t.tasks[slot]
        cdef RunRecord* record
        cdef int packed_bytes = 0
        fact_room(&self.records, sizeof(RunRecord))
        record = <RunRecord*> (self.records.data + self.records.size)
        self.records.size += sizeof(RunRecord)
        record.submitted_ns = task.submitted_ns
        record.task, record.template_ = slot, task.template_
        record.code, record.attempt, record.qos = fact[0], get16(fact + 5), <uint8_t> qos_of(task)
        record.count, record.node = 0, NONE_
        if fact[0] == FACT_PLACED:
            self.placed += 1
            record.node, record.count = get32(fact + 7), fact[12]
            packed_bytes = 3 * fact[12]
        elif fact[0] == FACT_STARTED:
            self.started += 1
        else:
            self.succeeded += 1
            learn_from(t, task)
        record.key_length = <uint8_t> key_length(t, task.key)
        record.text = <uint32_t> self.text.size
        fact_room(&self.text, record.key_length + packed_bytes)
        memcpy(self.text.data + self.text.size, key_bytes(t, task.key), record.key_length)
        memcpy(self.text.data + self.text.size + record.key_length, fact + 13, packed_bytes)
        self.text.size += record.key_length + packed_bytes
        return 0

    def __len__(self):
        return self.records.size // sizeof(RunRecord)

    def fact(self, Py_ssize_t index):
        cdef RunRecord* record
        if not 0 <= index < len(self):
            raise IndexError(f"there is no fact {index} in a run of {len(self)}")
        record = self.at(index)
        key = (<const char*> self.text.data + record.text)[:record.key_length]
        return (record.code, key, record.attempt, record.qos, record.node,
                pieces_tuple(self.text.data + record.text + record.key_length, record.count))

    def keys(self):
        cdef Py_ssize_t index
        return [(<const char*> self.text.data + self.at(index).text)[:self.at(index).key_length] for index in range(len(self))]

    def ended(self):
        cdef bytearray slots = bytearray(4 * self.succeeded)
        cdef uint8_t* out = slots
        cdef Py_ssize_t index
        for index in range(len(self)):
            if self.at(index).code == FACT_ENDED:
                memcpy(out, &self.at(index).task, 4)
                out += 4
        return bytes(slots)

    def placed_by_level(self):
        cdef Py_ssize_t index
        cdef list counts = [0] * LEVELS
        for index in range(len(self)):
            if self.at(index).code == FACT_PLACED:
                counts[self.at(index).qos] += 1
        return counts

    def templates(self):
        cdef Py_ssize_t index
        cdef uint32_t last = NONE_
        found = {}
        for index in range(len(self)):
            if self.at(index).template_ != last:
                last = self.at(index).template_
                found[last] = None
        return list(found)

    def starts(self):
        """Counted by node first, so that every column is written once, in place."""
        cdef dict columns = {}
        cdef Py_ssize_t index
        cdef RunRecord* record
        cdef Start start
        cdef uint32_t last = NONE_
        for index in range(len(self)):
            record = self.at(index)
            if record.code == FACT_PLACED:
                if record.node != last:
                    last = record.node
                    start = columns.get(last)
                    if start is None:
                        start = columns[last] = Start()
                start.add(record, self.text.data + record.text)
        return [(node, *(<Start> start).columns()) for node, start in columns.items()]

    def waits(self, int code, int64_t now_ns, tuple bounds_s, bint first=True):
        cdef dict by_template = {}
        cdef Py_ssize_t index, most = len(bounds_s), at
        cdef RunRecord* record
        cdef double waited_s
        cdef list counts
        cdef list limits = list(bounds_s)
        for index in range(len(self)):
            record = self.at(index)
            if record.code != code or (first and record.attempt != 1):
                continue
            waited_s = max(0.0, (now_ns - record.submitted_ns) / 1e9)
            found = by_template.get(record.template_)
            if found is None:
                found = by_template[record.template_] = [[0] * (most + 1), 0.0]
            counts = found[0]
            at = 0
            while at < most and waited_s > <double> limits[at]:
                at += 1
            counts[at] += 1
            found[1] += waited_s
        return by_template


cdef class Start:
    # The columns of wire.Starts for one node, while they are filled.
    cdef list templates
    cdef bytearray which, keys, attempts, devices

    def __cinit__(self):
        self.templates, self.which, self.keys, self.attempts, self.devices = [], bytearray(), bytearray(), bytearray(), bytearray()

    cdef int add(self, RunRecord* record, const uint8_t* text) except -1:
        cdef uint16_t like
        if record.template_ not in self.templates:
            self.templates.append(record.template_)
        like = self.templates.index(record.template_)
        self.which += (<const char*> &like)[:2]
        if self.keys:
            self.keys.append(10)
        self.keys += (<const char*> text)[:record.key_length]
        self.attempts += (<const char*> &record.attempt)[:2]
        self.devices.append(record.count)
        self.devices += (<const char*> text + record.key_length)[:3 * record.count]
        return 0

    cdef tuple columns(self):
        return tuple(self.templates), bytes(self.which), bytes(self.keys), bytes(self.attempts), bytes(self.devices)


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
                if run is None:
                    run = Run()
                    found.append(run)
                run.add(&self.t, facts.data + offset)
            else:
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
            if not joins_run(&self.t, data + offset):
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
        cdef size_t at, count = self.t.learned.size // sizeof(LearnedRecord)
        cdef dict groups = {}
        for at in range(count):
            group = groups.get((learned[at].template_, learned[at].model))
            if group is None:
                group = groups[learned[at].template_, learned[at].model] = []
            group.append(learned[at].run_ms)
        self.t.learned.size = 0
        return [(template, model, times) for (template, model), times in groups.items()]
