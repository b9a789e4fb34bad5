# Doors about tasks: accept, what agents and operators say of them, decide; and the stream of facts, out and in.

cdef void find_live(Tables* t, uint32_t node, Columns* columns, const uint8_t* attempts, uint32_t* slots) noexcept nogil:
    """Slot of each task whose live attempt is this one on this node, else NONE. Hashed first, so that the index is on its way when it is read."""
    cdef uint8_t key[LONGEST_KEY + 11]
    cdef uint32_t at, task, length
    if t.index_size == 0:
        memset(slots, 0xFF, columns.count * sizeof(uint32_t))
        return
    for at in range(columns.count):
        length = column_key(columns, at, key)
        slots[at] = hash_bytes(key, length)
        send_for_id(t, slots[at])
    for at in range(columns.count):
        length = column_key(columns, at, key)
        task = index_find(t, key, length, slots[at])
        if task != NONE_ and not (is_live(&t.tasks[task]) and t.tasks[task].attempt == get16(attempts + 2 * at)
                                  and t.allocations[t.tasks[task].place].node == node):
            task = NONE_
        slots[at] = task


cdef enum:
    AHEAD = 8                  # so many tasks before its turn a record is sent for: those that end lie all over the tables


cdef struct TemplateCount:
    uint32_t template_
    uint32_t count


cdef inline uint32_t count_template(TemplateCount* counts, uint32_t different, uint32_t* seen, uint32_t room, uint32_t template) noexcept nogil:
    """One more of this template; returns how many different ones there are. `counts`: in the order in which they came first. `seen`: where they
    are in it, + 1, by hash; `room` entries, never full."""
    cdef uint32_t at = home_of(<uint64_t> template * 0x9E3779B97F4A7C15ULL, room)
    while seen[at] != 0 and counts[seen[at] - 1].template_ != template:
        at = at + 1 if at + 1 < room else 0
    if seen[at] == 0:
        counts[different].template_, counts[different].count = template, 0
        different += 1
        seen[at] = different
    counts[seen[at] - 1].count += 1
    return different


cdef inline void send_for(Tables* t, const uint32_t* slot, uint32_t at, uint32_t count) noexcept nogil:
    """What the end of the tasks to come will read, the nearer its turn the more of it: what one record names is sent for once it is there."""
    cdef AllocationRecord* record
    cdef uint32_t task
    if at + 2 * AHEAD < count and slot[at + 2 * AHEAD] != NONE_:
        prefetch(&t.tasks[slot[at + 2 * AHEAD]])
    if at + AHEAD < count and slot[at + AHEAD] != NONE_ and is_live(&t.tasks[slot[at + AHEAD]]):
        prefetch(&t.allocations[t.tasks[slot[at + AHEAD]].place])
    if at + 2 < count and slot[at + 2] != NONE_ and is_live(&t.tasks[slot[at + 2]]):
        record = &t.allocations[t.tasks[slot[at + 2]].place]
        if record.count > 0:
            prefetch(&t.devices[t.nodes[record.node].device_first + (pieces_of(t, record)[0] & 0xFF)])
    if at + AHEAD // 2 >= count or slot[at + AHEAD // 2] == NONE_:
        return
    task = slot[at + AHEAD // 2]
    if is_live(&t.tasks[task]):
        record = &t.allocations[t.tasks[task].place]
        prefetch(&t.nodes[record.node].cpu_free)
        prefetch(&t.nodes[record.node].device_first)
        if record.next_on_node != NONE_:
            prefetch(&t.allocations[record.next_on_node])
        if record.previous_on_node != NONE_:
            prefetch(&t.allocations[record.previous_on_node])
        if record.count > 0:
            prefetch(arena_at(&t.pieces, record.pieces))


cdef inline void send_for_key(Tables* t, const uint32_t* slot, uint32_t at, uint32_t count) noexcept nogil:
    """What forgetting the tasks to come will read."""
    cdef uint32_t key
    if at + AHEAD < count and slot[at + AHEAD] < t.tasks_used:
        prefetch(arena_at(&t.keys, t.tasks[slot[at + AHEAD]].key))
    if at + AHEAD // 2 < count and slot[at + AHEAD // 2] < t.tasks_used and t.tasks[slot[at + AHEAD // 2]].state != FREE_:
        key = t.tasks[slot[at + AHEAD // 2]].key
        send_for_id(t, hash_bytes(key_bytes(t, key), key_length(t, key)))


cdef class TaskDoors(TermDoors):

    # ------------------------------------------------------------------ facts

    def begin(self, int64_t now_ns):
        if now_ns < self.t.now_ns:
            raise ValueError(f"time goes back from {self.t.now_ns} to {now_ns}")
        self.t.now_ns = now_ns
        self.t.turn_open = True
        let_stories_go(&self.t)

    def words(self, int kind, bytes payload):
        cdef const uint8_t* data = payload
        cdef size_t size = len(payload)
        if not 0 <= kind < 256:
            raise ValueError(f"kind {kind} is not 0..255")
        fact(&self.t, FACT_WORDS, 5 + size)
        put8(&self.t.facts, <uint8_t> kind)
        put32(&self.t.facts, <uint32_t> size)
        memcpy(self.t.facts.data + self.t.facts.size, data, size)
        self.t.facts.size += size

    def take_facts(self):
        cdef bytes facts = (<char*> self.t.facts.data)[:self.t.facts.size] if self.t.facts.size else b""
        self.t.facts.size = 0
        return facts

    def peek_facts(self, size_t offset):
        if offset > self.t.facts.size:
            raise ValueError(f"offset {offset} is behind the end {self.t.facts.size}")
        return [fact for _, _, fact in facts_list(self.t.facts.data, offset, self.t.facts.size)], self.t.facts.size

    @property
    def replaying(self):
        return bool(self.t.replaying)

    @replaying.setter
    def replaying(self, bint value):
        self.t.replaying = value
        self._checked()

    def apply(self, bytes facts, on_words):
        cdef const uint8_t* data = facts
        cdef size_t end = len(facts)
        cdef size_t at = 0, size
        cdef const char* why
        cdef bint was_replaying = self.t.replaying
        self.t.replaying = True
        try:
            while at < end:
                size = length_of(data + at, end - at)
                if size == 0:
                    raise ValueError(f"offset {at}: the record is cut off or of no known kind")
                if data[at] == FACT_TURN:
                    self.t.now_ns = get64(data + at + 1)
                    let_stories_go(&self.t)
                elif data[at] == FACT_WORDS:
                    on_words(data[at + 1], facts[at + 6:at + size])
                else:
                    with nogil:
                        replay_task(&self.t, data + at, &why)
                    if why != NULL:
                        raise ValueError(f"offset {at}: {fact_tuple(data + at, size)}: {why.decode()}")
                at += size
        finally:
            self.t.replaying = was_replaying
        self._checked()

    # ------------------------------------------------------------------ in

    cdef int _blank(self, TaskRecord* blank, uint32_t template, uint32_t shape, uint32_t queue, int qos, int flags, int64_t submitted_ns,
                    int64_t checkpoint_ns, uint32_t gang) except -1:
        """The record of a task to come, but for its key, deadline and priority; what cannot be is refused."""
        self._shape(shape)
        self._queue(queue)
        if gang != NONE_:
            self._gang(gang)
        if not 0 <= qos < LEVELS:
            raise ValueError(f"qos {qos} is not 0..3")
        if flags & ~(PREEMPTIBLE_ | HELD_FLAGS | 16):
            raise ValueError(f"flags {flags}: only PREEMPTIBLE, HELD_* and DEADLINE_RELATIVE can be given")
        memset(blank, 0, sizeof(TaskRecord))
        blank.submitted_ns = submitted_ns
        blank.changed_ns = submitted_ns
        blank.shape = shape
        blank.template_ = template
        blank.gang = gang
        blank.queue = <uint16_t> queue
        blank.checkpoint = checkpoint_index(&self.t, checkpoint_ns)
        blank.place = NONE_
        blank.state = HELD_ if flags & HELD_FLAGS else QUEUED_
        blank.flags = <uint8_t> (flags | qos << 6)
        return 0

    def accept(self, keys, *, template, uint32_t shape, uint32_t queue, int qos, int flags, int64_t submitted_ns, int priority=0,
               int64_t deadline_ns=INT64_MAX, int64_t checkpoint_ns=0, uint32_t gang=0xFFFFFFFF, deadlines_ns=None, priorities=None):
        cdef Tables* t = &self.t
        cdef list slots = []
        cdef TaskRecord blank
        cdef KeyRecord read
        cdef uint32_t slot
        cdef int64_t at
        check_run(keys, deadlines_ns, priorities, priority)
        check_keys(t, keys)
        self._blank(&blank, template, shape, queue, qos, flags, submitted_ns, checkpoint_ns, gang)
        blank.deadline_ns = deadline_ns
        blank.priority = <int16_t> priority
        reserve_tasks(t, len(keys))
        for at, key in enumerate(keys):
            if deadlines_ns is not None:
                blank.deadline_ns = deadlines_ns[at]
            if priorities is not None:
                blank.priority = priorities[at]
            read_key(&read, <const uint8_t*> <bytes> key, <uint32_t> len(<bytes> key))
            add_task(t, &blank, &read, &slot)
            slots.append(slot)
        count_arrivals(t, shape, <uint32_t> len(slots))
        self._checked()
        return slots

    def absent(self, bytes keys):
        cdef uint32_t count = <uint32_t> keys.count(NEWLINE) + 1, known
        cdef bytearray scratch = bytearray(count * sizeof(KeyRecord) + (2 * count + 1) * sizeof(uint32_t))
        cdef KeyRecord* read = <KeyRecord*> <uint8_t*> scratch
        cdef const uint8_t* data = keys
        cdef const char* fault = split_keys(data, len(keys), read, count)
        if fault != NULL:
            raise ValueError(f"{count} keys: {fault.decode()}")
        with nogil:
            known = first_known(&self.t, read, count, <uint32_t*> (read + count), 2 * count + 1)
        return known == NONE_

    def accept_mixed(self, bytes keys, bytes which, list heads, int64_t submitted_ns, bint are_absent=False):
        cdef Tables* t = &self.t
        cdef uint32_t count = <uint32_t> (len(which) // 2), at, head, most = <uint32_t> len(heads)
        cdef const uint8_t* chosen = which
        cdef bytearray held = bytearray(most * (sizeof(TaskRecord) + 2 * sizeof(uint32_t)) + 1)
        cdef TaskRecord* blanks = <TaskRecord*> <uint8_t*> held
        cdef uint32_t* taken = <uint32_t*> (blanks + most)
        cdef uint32_t* lanes = taken + most    # where tasks of the head went last: find_lane asks there first
        cdef bytearray slots = bytearray(4 * count)
        cdef bytearray scratch = bytearray(count * sizeof(KeyRecord) + (2 * count + 1) * sizeof(uint32_t))
        cdef KeyRecord* read = <KeyRecord*> <uint8_t*> scratch
        cdef uint32_t* out = <uint32_t*> <uint8_t*> slots
        cdef const uint8_t* data = keys
        cdef size_t size = len(keys)
        cdef const char* fault
        cdef uint32_t known
        with nogil:
            fault = split_keys(data, size, read, count)
        if fault != NULL or len(which) % 2:
            raise ValueError(f"{count} tasks: {fault.decode() if fault != NULL else 'half of an uint16'}")
        for at in range(count):
            if (chosen[2 * at] | chosen[2 * at + 1] << 8) >= most:
                raise ValueError(f"key {at} names a head that is none of the {most}")
        if are_absent:
            known = NONE_
        else:
            with nogil:
                known = first_known(t, read, count, <uint32_t*> (read + count), 2 * count + 1)
        if known != NONE_:
            raise KeyError(f"there is a task {keys.split(NEWLINE)[known].decode(errors='replace')} already")
        for at in range(count):
            taken[chosen[2 * at] | chosen[2 * at + 1] << 8] += 1
        for head in range(most):
            if taken[head] == 0:
                continue
            template, shape, queue, qos, flags, checkpoint_ns, deadline_ns, priority = heads[head]
            self._blank(&blanks[head], template, shape, queue, qos, flags, submitted_ns, checkpoint_ns, NONE_)
            blanks[head].deadline_ns = deadline_ns
            blanks[head].priority = priority
        with nogil:
            reserve_tasks(t, count)
            for at in range(count):
                head = chosen[2 * at] | chosen[2 * at + 1] << 8
                if at + AHEAD < count:
                    send_for_id(t, read[at + AHEAD].hashed)
                t.lane_found = lanes[head]
                add_task(t, &blanks[head], &read[at], &out[at])
                lanes[head] = t.lane_found
            for head in range(most):
                if taken[head]:
                    count_arrivals(t, blanks[head].shape, taken[head])
        self._checked()
        return bytes(slots)

    def states(self, bytes slots):
        cdef const uint8_t* data = slots
        cdef Py_ssize_t count = len(slots) // 4, at
        cdef bytearray states = bytearray(count)
        cdef uint32_t slot
        for at in range(count):
            memcpy(&slot, data + 4 * at, 4)
            self._task(slot)
            states[at] = self.t.tasks[slot].state
        return bytes(states)

    def set_template(self, uint32_t template, *, int64_t said_ns=0, int64_t grace_ns=0, uint32_t expectation=NONE_, int trust=TRUST_NOTHING_):
        cdef Tables* t = &self.t
        if min(said_ns, grace_ns) < 0 or template >= 1 << 28:
            raise ValueError(f"template {template} with said_ns {said_ns}: neither negative nor 2^28 templates")
        if not TRUST_NOTHING_ <= trust <= TRUST_WORD_:
            raise ValueError(f"trust {trust} is not one of TRUST_NOTHING, TRUST_ESTIMATE, TRUST_WORD")
        grow(<void**> &t.templates, &t.templates_capacity, sizeof(TemplateRecord), <uint64_t> template + 1)
        while t.templates_used <= template:
            t.templates[t.templates_used].expectation = NONE_
            t.templates_used += 1
        t.timed -= t.templates[template].said_ns > 0
        t.templates[template].said_ns = said_ns
        t.templates[template].grace_ns = grace_ns
        t.templates[template].expectation = expectation
        t.templates[template].trust = trust
        t.timed += said_ns > 0

    def expectation_slot(self, uint32_t template):
        return self.t.templates[template].expectation if template < self.t.templates_used else NONE_

    def set_expectation(self, uint32_t expectation, *, int64_t expected_ns=0, int64_t typical_ns=0, int32_t efficiency_milli=-1,
                        bint beats_estimates=False):
        cdef Tables* t = &self.t
        if min(expected_ns, typical_ns) < 0 or expectation >= 1 << 28:
            raise ValueError(f"expectation {expectation} of expected_ns {expected_ns}: neither negative nor 2^28 expectations")
        if not -1 <= efficiency_milli <= 1000:
            raise ValueError(f"efficiency_milli {efficiency_milli} is not 0..1000, or -1 for unknown")
        grow(<void**> &t.expectations, &t.expectations_capacity, sizeof(ExpectationRecord), <uint64_t> expectation + 1)
        while t.expectations_used <= expectation:
            t.expectations[t.expectations_used].efficiency_milli = -1
            t.expectations_used += 1
        t.timed -= t.expectations[expectation].expected_ns > 0
        t.expectations[expectation].expected_ns = expected_ns
        t.expectations[expectation].typical_ns = typical_ns
        t.expectations[expectation].efficiency_milli = efficiency_milli
        t.expectations[expectation].beats_estimates = beats_estimates
        t.timed += expected_ns > 0

    def expected(self, uint32_t task):
        self._task(task)
        return run_of(&self.t, &self.t.tasks[task]), typical_run_of(&self.t, &self.t.tasks[task])

    # ------------------------------------------------------------------ heard

    def started(self, uint32_t task, uint32_t attempt):
        self._task(task)
        self._refused(task, refuse_started(&self.t, task, attempt))
        if self.t.tasks[task].state == PLACED_:
            do_started(&self.t, task)
        self._checked()

    def live_on(self, uint32_t node, bytes heads, bytes which, bytes numbers, bytes attempts):
        cdef Tables* t = &self.t
        cdef Columns columns
        cdef bytearray slots = bytearray(2 * len(attempts))
        cdef uint32_t* out = <uint32_t*> <uint8_t*> slots
        cdef const uint8_t* number = attempts
        self._node(node)
        try:
            read_columns(heads, which, numbers, attempts, &columns)
            with nogil:
                find_live(t, node, &columns, number, out)
        finally:
            free(columns.heads)
        return bytes(slots)

    def started_all(self, bytes tasks):
        cdef const uint32_t* slot = <const uint32_t*> <const uint8_t*> tasks
        cdef uint32_t count = <uint32_t> (len(tasks) // 4), at
        for at in range(count):
            if slot[at] != NONE_:
                self._task(slot[at])
        with nogil:
            for at in range(count):
                if slot[at] != NONE_ and self.t.tasks[slot[at]].state == PLACED_:
                    do_started(&self.t, slot[at])
        self._checked()

    def stop(self, uint32_t task, uint8_t reason, uint32_t by=0xFFFFFFFF):
        self._task(task)
        self._refused(task, refuse_stopping(&self.t, task))
        do_stopping(&self.t, task, reason, by)
        self._checked()

    def set_use(self, uint32_t task, int64_t cpu_milli, int64_t memory_bytes):
        self._task(task)
        self._refused(task, refuse_live(&self.t, task))
        note_use(&self.t, task, cpu_milli, memory_bytes)
        self._checked()

    def give_back(self, uint32_t node, uint32_t by):
        cdef int64_t stopped
        self._node(node)
        self._task(by)
        stopped = give_back(&self.t, node, by)
        self._checked()
        return stopped

    def ended(self, uint32_t task, int state, uint8_t reason):
        self._task(task)
        self._refused(task, refuse_ended(&self.t, task, state))
        do_ended(&self.t, task, <uint8_t> state, reason)
        self._checked()

    def succeeded(self, bytes tasks):
        cdef const uint32_t* slot = <const uint32_t*> <const uint8_t*> tasks
        cdef uint32_t count = <uint32_t> (len(tasks) // 4), at, left = 0
        cdef bytearray others = bytearray(4 * count)
        cdef uint32_t* other = <uint32_t*> <uint8_t*> others
        for at in range(count):
            if slot[at] != NONE_:
                self._task(slot[at])
        with nogil:
            for at in range(count):
                send_for(&self.t, slot, at, count)
                if slot[at] != NONE_ and not do_succeeded(&self.t, slot[at]):
                    other[left] = slot[at]
                    left += 1
        self._checked()
        return bytes(others[:4 * left])

    def requeue(self, uint32_t task, uint8_t reason, *, int hold=0, bint preempted=False):
        self._task(task)
        self._refused(task, refuse_live(&self.t, task))
        if hold & ~HELD_FLAGS:
            raise ValueError(f"hold {hold}: only HELD_* flags hold a task")
        do_requeued(&self.t, task, reason, <uint8_t> (hold | (PREEMPTED_BIT if preempted else 0)))
        self._checked()

    def back_off(self, uint32_t task, uint8_t reason):
        self._task(task)
        self._refused(task, refuse_live(&self.t, task))
        do_backed_off(&self.t, task, reason)
        self._checked()

    def ready(self, uint32_t task):
        self._task(task)
        if self.t.tasks[task].state != BACKOFF_:
            self._refused(task, "only a task in backoff becomes ready")
        do_ready(&self.t, task)
        self._checked()

    def hold(self, uint32_t task, int flag):
        self._task(task)
        self._refused(task, refuse_held(&self.t, task, flag))
        do_held(&self.t, task, <uint8_t> (self.t.tasks[task].flags & HELD_FLAGS | flag))
        self._checked()

    def release(self, uint32_t task, int flag):
        cdef int left
        self._task(task)
        if self.t.tasks[task].state != HELD_:
            self._refused(task, "only a held task can be released")
        left = self.t.tasks[task].flags & HELD_FLAGS & ~flag
        if left == 0:
            do_ready(&self.t, task)
        elif left != self.t.tasks[task].flags & HELD_FLAGS:
            do_held(&self.t, task, <uint8_t> left)
        self._checked()

    def set_priority(self, uint32_t task, int priority):
        self._task(task)
        if not -32768 <= priority < 32768:
            raise ValueError(f"priority {priority} does not fit 16 bits")
        do_prioritised(&self.t, task, <int16_t> priority)
        self._checked()

    def unclaim(self, uint32_t task):
        self._task(task)
        self._refused(task, refuse_unclaimed(&self.t, task))
        do_unclaimed(&self.t, task)
        self._checked()

    def forget(self, uint32_t task):
        self._task(task)
        self._refused(task, refuse_forgotten(&self.t, task))
        do_forgotten(&self.t, task)
        self._checked()

    def forget_all(self, bytes tasks):
        cdef Tables* t = &self.t
        cdef const uint32_t* slot = <const uint32_t*> <const uint8_t*> tasks
        cdef uint32_t count = <uint32_t> (len(tasks) // 4), at = 0, room = 2 * count + 1
        cdef uint32_t different = 0
        cdef bytearray scratch = bytearray(sizeof(TemplateCount) * count + sizeof(uint32_t) * room)
        cdef TemplateCount* counts = <TemplateCount*> <uint8_t*> scratch
        cdef uint32_t* seen = <uint32_t*> (counts + count)
        with nogil:
            while at < count and slot[at] < t.tasks_used and is_terminal(&t.tasks[slot[at]]) and t.tasks[slot[at]].gang == NONE_:
                send_for_key(t, slot, at, count)
                different = count_template(counts, different, seen, room, t.tasks[slot[at]].template_)
                do_forgotten(t, slot[at])
                at += 1
        self._checked()
        if at < count:
            self._task(slot[at])
            self._refused(slot[at], refuse_forgotten(t, slot[at]))
        return {counts[at].template_: counts[at].count for at in range(different)}

    def drop_story(self, uint32_t task):
        self._task(task)
        if self.t.tasks[task].state == SUCCEEDED_ and self.t.tasks[task].place != NONE_:
            drop_story(&self.t, self.t.tasks[task].place)
            self.t.tasks[task].place = NONE_

    # ------------------------------------------------------------------ deciding

    def decide(self, int levels, bint preempt=True, *, int lane=-1, int64_t most=INT64_MAX):
        cdef int64_t placed
        if not 0 <= levels < 16:
            raise ValueError(f"levels {levels} is not a mask of 4 bits")
        if most < 1:
            raise ValueError(f"at least 1 may be placed, not {most}")
        self.t.room = most
        with nogil:
            settle_claims(&self.t)
            placed = decide_levels(&self.t, levels, preempt, lane)
        self._checked()
        return placed

    def has_more(self):
        return self.t.room < 0

    def next_ns(self):
        return None if self.t.look_again_ns == INT64_MAX else self.t.look_again_ns

    def time_told(self):
        if self.t.now_ns < self.t.look_again_ns:
            return False
        self.t.look_again_ns = INT64_MAX
        self.t.changes += 1
        self.t.frees += 1
        return True

    def set_wishes(self, wishes):
        for task, node in wishes:
            self._task(task)
            self._node(node)
        self.t.wishes.size = 0
        for task, node in wishes:
            push(&self.t.wishes, task)
            push(&self.t.wishes, node)
        self._checked()

    def claim_before(self, uint32_t task):
        self._task(task)
        cdef uint32_t found = claim_before(&self.t, task)
        return None if found == NONE_ else found

    def settle(self):
        cdef bint ripe = self.t.ripe
        with nogil:
            settle_claims(&self.t)
        self._checked()
        return bool(ripe)

    def waiting(self, int levels):
        return sum([self.t.waiting[qos] for qos in range(LEVELS) if levels >> qos & 1])
