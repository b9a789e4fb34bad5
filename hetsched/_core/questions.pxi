# Doors that only ask. They change nothing, not even derived structures that a decision could see.

cdef class Questions(RankedDoors):

    def find(self, bytes key):
        cdef const uint8_t* data = key
        cdef uint32_t length = <uint32_t> len(key)
        return index_find(&self.t, data, length, hash_bytes(data, length))

    def task(self, uint32_t task):
        cdef TaskRecord* record
        self._task(task)
        record = &self.t.tasks[task]
        return TaskRow(
            (<const char*> key_bytes(&self.t, record.key))[:key_length(&self.t, record.key)], record.state, record.flags & 0x3F,
            qos_of(record), record.queue, record.shape, record.template_, record.priority, record.attempt, record.gang, record.sequence,
            record.submitted_ns, record.deadline_ns, record.changed_ns, record.failures, record.preemptions)

    def placement(self, uint32_t task):
        cdef AllocationRecord* record
        self._task(task)
        if not is_live(&self.t.tasks[task]):
            return None
        record = &self.t.allocations[self.t.tasks[task].place]
        return Placement(record.node, self.t.tasks[task].attempt, record.lane, record.placed_ns, record.started_ns,
                         pairs_of(pieces_of(&self.t, record), record.count))

    def story(self, uint32_t task):
        cdef StoryRecord* story
        cdef uint32_t ref
        self._task(task)
        ref = story_of(&self.t, task)
        if ref == NONE_:
            return None
        story = story_at(&self.t, ref)
        return Placement(story.node, story.attempt, story.lane, story.placed_ns, story.started_ns,
                         pairs_of(story_pieces(story), story.count))

    def stories_on(self, uint32_t node):
        self._node(node)
        return [at for at in range(self.t.tasks_used) if self.t.tasks[at].state == SUCCEEDED_ and self.t.tasks[at].place != NONE_
                and story_at(&self.t, self.t.tasks[at].place).node == node]

    def claim(self, uint32_t task):
        cdef AllocationRecord* record
        cdef uint32_t victim
        self._task(task)
        if not self.t.tasks[task].flags & CLAIMING_:
            return None
        record = &self.t.allocations[self.t.tasks[task].place]
        victims = []
        victim = record.first_victim
        while victim != NONE_:
            victims.append(self.t.allocations[victim].task)
            victim = self.t.allocations[victim].next_victim
        return record.node, record.cost, tuple(victims)

    def tasks_on(self, uint32_t node):
        self._node(node)
        return tasks_holding(&self.t, node, False)

    def claims_on(self, uint32_t node):
        self._node(node)
        return tasks_holding(&self.t, node, True)

    def gang_members(self, uint32_t gang):
        self._gang(gang)
        return [self.t.gangs[gang].members.at[at] for at in range(self.t.gangs[gang].members.size)]

    def gang_room(self, uint32_t gang):
        self._gang(gang)
        return room_for_gang(&self.t, &self.t.gangs[gang])

    def newest(self):
        return self.t.next_sequence - 1

    def page(self, int64_t after_sequence, uint32_t limit, int states, uint32_t queue=0xFFFFFFFF, uint32_t qos=0xFFFFFFFF,
             bytes templates=b""):
        """A pass over the table with a heap of the `limit` lowest: about 2 ns a task."""
        cdef Tables* t = &self.t
        cdef const uint8_t* chosen = templates
        cdef uint32_t known = <uint32_t> len(templates), at
        cdef Slots best
        memset(&best, 0, sizeof(Slots))
        if limit == 0:
            return []
        try:
            with nogil:
                for at in range(t.tasks_used):
                    if (t.tasks[at].state != FREE_ and <int64_t> t.tasks[at].sequence > after_sequence
                            and (states >> t.tasks[at].state) & 1
                            and (queue == NONE_ or t.tasks[at].queue == queue)
                            and (known == 0 or (t.tasks[at].template_ < known and chosen[t.tasks[at].template_]))
                            and (qos == NONE_ or <uint32_t> qos_of(&t.tasks[at]) == qos)):
                        keep_lowest(t, &best, at, limit)
            return sorted([best.at[at] for at in range(best.size)], key=lambda slot: self.t.tasks[<uint32_t> slot].sequence)
        finally:
            drop_slots(&best)

    def concerned(self, int states, bytes templates, int flags):
        """A pass over the table: about two nanoseconds a task."""
        cdef Tables* t = &self.t
        cdef const uint8_t* chosen = templates
        cdef uint32_t known = <uint32_t> len(templates), at
        cdef TaskRecord* task
        cdef Slots found
        memset(&found, 0, sizeof(Slots))
        try:
            with nogil:
                for at in range(t.tasks_used):
                    task = &t.tasks[at]
                    if (task.state != FREE_ and (states >> task.state) & 1
                            and (task.flags & flags or (task.template_ < known and chosen[task.template_]))):
                        push(&found, at)
            return sorted([found.at[at] for at in range(found.size)], key=lambda slot: self.t.tasks[<uint32_t> slot].sequence)
        finally:
            drop_slots(&found)

    def by_queue(self, int states):
        """A pass over the table: about a nanosecond a task."""
        cdef Tables* t = &self.t
        cdef uint32_t at
        cdef uint32_t* counts = <uint32_t*> calloc(t.queues_used + 1, sizeof(uint32_t))
        if counts == NULL:
            raise MemoryError()
        try:
            with nogil:
                for at in range(t.tasks_used):
                    if (states >> t.tasks[at].state) & 1 and t.tasks[at].state != FREE_:
                        counts[t.tasks[at].queue] += 1
            return [counts[at] for at in range(t.queues_used)]
        finally:
            free(counts)

    def ahead(self, uint32_t task):
        """A pass over the table. What a weighted sum needs to know of a shape is known of all of them first, as when it decides."""
        cdef Tables* t = &self.t
        cdef uint64_t count
        cdef uint32_t at
        self._task(task)
        with nogil:
            if t.order == 1 and t.nodes_used > 0:
                want_column(t, t.tasks[task].shape)
                for at in range(t.shapes_used):
                    if t.shapes[at].pending > 0:
                        want_column(t, at)
            refresh(t)
            count = count_ahead(t, task)
        return count

    def counts(self):
        return [self.t.counts[state] for state in range(12)]

    def shape_pending(self, uint32_t shape):
        self._shape(shape)
        return self.t.shapes[shape].pending

    def shape_patient(self, uint32_t shape):
        self._shape(shape)
        cdef uint32_t lane = self.t.shapes[shape].lane_first
        patient = 0
        refresh(&self.t)
        while lane != NONE_:
            if (self.t.lanes[lane].run_live or self.t.lanes[lane].heap.size) and waits_until(&self.t, &self.t.lanes[lane]) > 0:
                patient += self.t.lanes[lane].run_live + self.t.lanes[lane].heap.size
            lane = self.t.lanes[lane].next_of_shape
        return patient

    def match(self, uint32_t shape):
        self._shape(shape)
        if self.t.nodes_used > 0:
            want_column(&self.t, shape)
        refresh(&self.t)
        return match_of(&self.t, &self.t.shapes[shape])

    def is_owed(self, uint32_t task):
        self._task(task)
        return is_owed(&self.t, task)

    def apart(self, int kind):
        if not 0 <= kind < 16:
            raise ValueError(f"kind {kind} is not 0..15")
        return tuple(self.t.prices[kind].apart[at] for at in range(65)) if self.t.policy == POLICY_PRICE_ else (0,)

    def node_state(self, uint32_t node):
        self._node(node)
        record = self.t.nodes[node]
        return record.cpu_free, record.memory_free, record.cpu_milli, record.memory_bytes, record.allocations

    def lent(self, uint32_t node):
        self._node(node)
        record = self.t.nodes[node]
        return ((record.cpu_soft, record.cpu_idle, record.cpu_extra, max(0, -record.cpu_free)),
                (record.memory_soft, record.memory_idle, record.memory_extra, max(0, -record.memory_free)))

    def device_state(self, uint32_t node, uint32_t device):
        cdef Sums sums
        self._device(node, device)
        record = self.t.devices[self.t.nodes[node].device_first + device]
        memset(&sums, 0, sizeof(Sums))
        if self.t.nodes[node].claims > 0:
            sum_device(&self.t, node, device, &sums)
        memory_live = max(record.memory_bytes, 0) - record.memory_free - sums.memory_claimed
        return 1000 - record.share_free - sums.share_claimed, memory_live, bool(record.usable)

    def queue_used(self, uint32_t queue):
        self._queue(queue)
        return [self.t.queues[queue].used[resource] for resource in range(RESOURCES)]

    def totals(self):
        return [(self.t.capacity[resource], self.t.live[resource]) for resource in range(RESOURCES)]

    def verdict(self, uint32_t shape):
        self._shape(shape)
        known = self.verdicts.get(shape)
        if known is None or known[0] != self.t.changes:
            known = self.verdicts[shape] = self.t.changes, judge(&self.t, &self.t.shapes[shape])
        return dict(known[1])

    def fragmentation(self, int kind):
        cdef int64_t fragment_milli = 0, free_milli = 0
        if not 0 <= kind < 16:
            raise ValueError(f"kind {kind} is not 0..15")
        with nogil:
            measure_fragment(&self.t, kind, &fragment_milli, &free_milli)
        return fragment_milli, free_milli

    def reservation(self):
        cdef Tables* t = &self.t
        cdef uint32_t at
        if t.reserved_task == NONE_ or not stands(t, t.reserved_task):
            return None
        return t.reserved_task, t.reserved_ns, tuple([(t.seats[at].task, t.seats[at].node) for at in range(t.seats_size)])

    def oscillations(self):
        return self.t.oscillations

    def memory(self):
        cdef Tables* t = &self.t
        cdef uint32_t at
        cdef uint64_t lanes = 0
        cdef int level
        for at in range(t.lanes_used):
            lanes += <uint64_t> 4 * (t.lanes[at].run.capacity + t.lanes[at].heap.capacity)
        held = {
            "tasks": t.tasks_used * sizeof(TaskRecord), "keys": t.keys.used * 8, "index": t.index_size * 8, "lanes": lanes,
            "allocations": t.allocations_used * sizeof(AllocationRecord), "pieces": t.pieces.used * 8,
            "nodes": t.nodes_capacity * sizeof(NodeRecord), "devices": t.devices_capacity * sizeof(DeviceRecord),
            "shapes": t.shapes_capacity * sizeof(ShapeRecord), "queues": t.queues_capacity * sizeof(QueueRecord),
            "trees": t.trees_used * sum([level_width(t, level) * COLUMNS for level in range(<int> t.tree_depth)]),
            "facts": t.facts.capacity,
        }
        growing = held["tasks"] + held["keys"] + held["index"] + held["lanes"]
        held["per_waiting_task"] = growing // max(1, t.tasks_count)
        return held


cdef enum:
    SIDES_KEPT = 512


cdef struct Side:
    uint32_t queue      # NONE: nothing is kept here
    uint32_t shape
    int32_t first       # of fairer_queue


cdef uint64_t count_ahead(Tables* t, uint32_t task) noexcept nogil:
    """Waiting tasks that go before it. What queues say is kept for queue and shape, as to count anew what is owed to each of a million would
    hold the turn up for half a second; gangs, of which it depends on the members, are asked each."""
    cdef Side kept[SIDES_KEPT]
    cdef Side* side
    cdef TaskRecord* other
    cdef uint64_t count = 0
    cdef uint32_t at
    cdef int qos = qos_of(&t.tasks[task])
    memset(kept, 0xff, sizeof(kept))
    for at in range(t.tasks_used):
        other = &t.tasks[at]
        if at == task or not is_waiting(other) or qos_of(other) > qos:
            continue
        if qos_of(other) < qos:
            count += 1
        elif t.order == 1:
            count += weighs_more(t, at, task)
        else:
            side = &kept[(other.queue * 31 + other.shape) % SIDES_KEPT]
            if side.queue != other.queue or side.shape != other.shape or other.gang != NONE_:
                side.queue, side.shape = other.queue if other.gang == NONE_ else NONE_, other.shape
                side.first = 0 if t.order == ORDER_FIFO_ else fairer_queue(t, at, task)
            count += side.first > 0 or (side.first == 0 and goes_before(t, at, task))
    return count


cdef list tasks_holding(Tables* t, uint32_t node, bint claims):
    """Tasks whose attempt, or whose claim, is on the node, by slot."""
    cdef uint32_t slot = t.nodes[node].allocation_first
    found = []
    while slot != NONE_:
        if t.allocations[slot].is_claim == claims:
            found.append(t.allocations[slot].task)
        slot = t.allocations[slot].next_on_node
    return sorted(found)


cdef tuple pairs_of(uint32_t* pieces, int count):
    cdef int at
    return tuple([(pieces[at] & 0xFF, pieces[at] >> 8) for at in range(count)])


cdef int keep_lowest(Tables* t, Slots* best, uint32_t slot, uint32_t limit) except -1 nogil:
    """A binary heap with the highest sequence on top, of at most `limit` slots."""
    cdef uint32_t at, child
    cdef uint64_t sequence = t.tasks[slot].sequence
    if best.size < limit:
        push(best, slot)
        at = best.size - 1
        while at > 0 and t.tasks[best.at[(at - 1) >> 1]].sequence < sequence:
            best.at[at] = best.at[(at - 1) >> 1]
            at = (at - 1) >> 1
        best.at[at] = slot
        return 0
    if t.tasks[best.at[0]].sequence < sequence:
        return 0
    at = 0
    while 2 * at + 1 < best.size:
        child = 2 * at + 1
        if child + 1 < best.size and t.tasks[best.at[child + 1]].sequence > t.tasks[best.at[child]].sequence:
            child += 1
        if t.tasks[best.at[child]].sequence <= sequence:
            break
        best.at[at] = best.at[child]
        at = child
    best.at[at] = slot
    return 0
