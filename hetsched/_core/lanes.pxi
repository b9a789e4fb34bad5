# Who goes first: a lane for each (qos, queue, shape), a heap of lanes for each (qos, queue), the queue of lowest dominant share.
#
# Promises: a waiting task stands in exactly one lane, or in `parked_tasks`, or (member of a gang that is still gathering) nowhere.
# `TaskRecord.place` says where: the two top bits are one of AT_*, the rest an index. Entering, leaving and taking the head cost O(1)
# when tasks come in order, O(log n) otherwise. All of this is derived: load and check build it again from the task table.
#
# Why two parts a lane: tasks come in order nearly always (same priority, no deadline), and an array with a head is then all it takes;
# a heap alone costs a million-task lane dozens of cache misses for each head taken.

cdef enum:
    AT_RUN = 0x00000000
    AT_HEAP = 0x40000000
    AT_PARKED = 0x80000000
    AT_MASK = 0xC0000000
    INDEX_MASK = 0x3FFFFFFF


cdef inline int qos_of(TaskRecord* task) noexcept nogil:
    return task.flags >> 6


cdef inline bint is_waiting(TaskRecord* task) noexcept nogil:
    return task.state == QUEUED_ and not task.flags & CLAIMING_


cdef inline bint goes_before(Tables* t, uint32_t one, uint32_t other) noexcept nogil:
    """Order within one qos level: priority and age, deadline, submission; where the order is weighted the deadline first, where it is
    fifo submission alone. Of equal rank the older has the greater age."""
    cdef TaskRecord* a = &t.tasks[one]
    cdef TaskRecord* b = &t.tasks[other]
    cdef int64_t lifted_a, lifted_b
    if t.order == ORDER_FIFO_ or (a.priority == b.priority and a.deadline_ns == b.deadline_ns):
        return a.sequence < b.sequence
    if t.order == 1 and a.deadline_ns != b.deadline_ns:
        return a.deadline_ns < b.deadline_ns
    lifted_a = lifted_priority(t, a)
    lifted_b = lifted_priority(t, b)
    if lifted_a != lifted_b:
        return lifted_a > lifted_b
    if a.deadline_ns != b.deadline_ns:
        return a.deadline_ns < b.deadline_ns
    return a.sequence < b.sequence


cdef enum:
    RANK_DEADLINE = 0x10000    # no rank tells how who has a deadline stands to others


cdef inline uint32_t rank_of_task(Tables* t, TaskRecord* task) noexcept nogil:
    """Tasks of one rank, RANK_DEADLINE apart, go by sequence, whenever that is asked; of others only goes_before tells."""
    if t.order == ORDER_FIFO_:
        return 0
    return <uint32_t> <uint16_t> task.priority if task.deadline_ns == INT64_MAX else <uint32_t> RANK_DEADLINE


# ---------------------------------------------------------------- one lane

cdef void heap_up(Tables* t, LaneRecord* lane, uint32_t at, uint32_t task) noexcept nogil:
    cdef uint32_t above
    while at > 0:
        above = (at - 1) >> 2
        if not goes_before(t, task, lane.heap.at[above]):
            break
        lane.heap.at[at] = lane.heap.at[above]
        t.tasks[lane.heap.at[at]].place = AT_HEAP | at
        at = above
    lane.heap.at[at] = task
    t.tasks[task].place = AT_HEAP | at


cdef void heap_down(Tables* t, LaneRecord* lane, uint32_t at, uint32_t task) noexcept nogil:
    cdef uint32_t first, best, child
    while True:
        first = at * 4 + 1
        if first >= lane.heap.size:
            break
        best = first
        for child in range(first + 1, min(first + 4, lane.heap.size)):
            if goes_before(t, lane.heap.at[child], lane.heap.at[best]):
                best = child
        if not goes_before(t, lane.heap.at[best], task):
            break
        lane.heap.at[at] = lane.heap.at[best]
        t.tasks[lane.heap.at[at]].place = AT_HEAP | at
        at = best
    lane.heap.at[at] = task
    t.tasks[task].place = AT_HEAP | at


cdef void run_trim(Tables* t, LaneRecord* lane) noexcept nogil:
    """Head on a task that is there; the array moved down once more than half of it is gone."""
    cdef uint32_t at, kept = 0
    while lane.run_head < lane.run.size and lane.run.at[lane.run_head] == NONE_:
        lane.run_head += 1
    if lane.run.size > lane.run_head and lane.run.at[lane.run.size - 1] == NONE_:
        while lane.run.size > lane.run_head and lane.run.at[lane.run.size - 1] == NONE_:
            lane.run.size -= 1
        if lane.run.size > lane.run_head:
            lane.last_sequence = t.tasks[lane.run.at[lane.run.size - 1]].sequence
    if lane.run_head == lane.run.size:
        lane.run_head = 0
        lane.run.size = 0
    if lane.run.size >= 64 and lane.run_live * 2 < lane.run.size:
        for at in range(lane.run_head, lane.run.size):
            if lane.run.at[at] != NONE_:
                lane.run.at[kept] = lane.run.at[at]
                t.tasks[lane.run.at[kept]].place = AT_RUN | kept
                kept += 1
        lane.run_head = 0
        lane.run.size = kept


cdef inline void note_rank(LaneRecord* lane, TaskRecord* task) noexcept nogil:
    """What the lane knows of the ranks in it, so that time is spent only where they differ."""
    if lane.run.size == 0 and lane.heap.size == 0:
        lane.priority = task.priority
        lane.deadline_ns = task.deadline_ns
        lane.oldest_sequence = task.sequence
        lane.is_mixed = False
        return
    lane.is_mixed |= task.priority != lane.priority or task.deadline_ns != lane.deadline_ns
    lane.oldest_sequence = min(lane.oldest_sequence, task.sequence)


cdef inline bint goes_last(Tables* t, LaneRecord* lane, uint32_t task) noexcept nogil:
    """Behind everybody in the run. Where all are of one rank their records need not be looked at."""
    if lane.run.size == 0:
        return True
    if t.order == ORDER_FIFO_ or not lane.is_mixed:
        return lane.last_sequence < t.tasks[task].sequence
    return goes_before(t, lane.run.at[lane.run.size - 1], task)


cdef int lane_push(Tables* t, LaneRecord* lane, uint32_t task) except -1 nogil:
    note_rank(lane, &t.tasks[task])
    if goes_last(t, lane, task):
        push(&lane.run, task)
        lane.last_sequence = t.tasks[task].sequence
        t.tasks[task].place = AT_RUN | (lane.run.size - 1)
        lane.run_live += 1
    else:
        push(&lane.heap, task)
        heap_up(t, lane, lane.heap.size - 1, task)
    if lane.head == NONE_ or ((lane.run_live == 1 or t.tasks[task].place == AT_HEAP) and goes_before(t, task, lane.head)):
        note_head(t, lane, task)
    return 0


cdef void lane_take(Tables* t, LaneRecord* lane, uint32_t task) noexcept nogil:
    cdef uint32_t at = t.tasks[task].place & INDEX_MASK
    cdef uint32_t last
    if (t.tasks[task].place & AT_MASK) == AT_RUN:
        lane.run.at[at] = NONE_
        lane.run_live -= 1
        run_trim(t, lane)
    else:
        lane.heap.size -= 1
        if at < lane.heap.size:
            last = lane.heap.at[lane.heap.size]
            if at > 0 and goes_before(t, last, lane.heap.at[(at - 1) >> 2]):
                heap_up(t, lane, at, last)
            else:
                heap_down(t, lane, at, last)
    t.tasks[task].place = NONE_
    if task == lane.head:
        find_head(t, lane)


cdef inline void note_head(Tables* t, LaneRecord* lane, uint32_t task) noexcept nogil:
    lane.head = task
    if task != NONE_:
        lane.head_sequence = t.tasks[task].sequence
        lane.head_rank = rank_of_task(t, &t.tasks[task])


cdef void find_head(Tables* t, LaneRecord* lane) noexcept nogil:
    """The first of the run, or of the heap. Who comes next in the run is sent for: lanes are many, and their tasks far apart."""
    cdef uint32_t run = lane.run.at[lane.run_head] if lane.run.size > 0 else NONE_
    cdef uint32_t heap = lane.heap.at[0] if lane.heap.size > 0 else NONE_
    if lane.run_head + 1 < lane.run.size and lane.run.at[lane.run_head + 1] != NONE_:
        prefetch(&t.tasks[lane.run.at[lane.run_head + 1]])
    if run == NONE_ or heap == NONE_:
        note_head(t, lane, heap if run == NONE_ else run)
    else:
        note_head(t, lane, heap if goes_before(t, heap, run) else run)


cdef inline uint32_t lane_head(Tables* t, LaneRecord* lane) noexcept nogil:
    return lane.head


cdef inline bint is_lane_of(LaneRecord* lane, int qos, uint32_t queue, uint32_t shape) noexcept nogil:
    return lane.shape == shape and lane.queue == queue and lane.qos == qos


cdef int find_lane(Tables* t, int qos, uint32_t queue, uint32_t shape, uint32_t* found) except -1 nogil:
    """The lane of this (qos, queue, shape); made on first use."""
    cdef uint32_t* first = &t.gang_lane_first if shape == NONE_ else &t.shapes[shape].lane_first
    cdef uint64_t hashed = (((<uint64_t> shape << 18 | queue << 2 | <uint32_t> qos) * 0x9E3779B97F4A7C15ULL) >> 32) << 32
    cdef uint32_t lane, at
    if t.lane_found < t.lanes_used and is_lane_of(&t.lanes[t.lane_found], qos, queue, shape):
        found[0] = t.lane_found
        return 0
    if t.lane_index_size > 0:
        at = home_of(hashed, t.lane_index_size)
        while t.lane_index[at] != 0:
            lane = <uint32_t> t.lane_index[at] - 1
            if t.lane_index[at] >> 32 == hashed >> 32 and is_lane_of(&t.lanes[lane], qos, queue, shape):
                found[0] = t.lane_found = lane
                return 0
            at = at + 1 if at + 1 < t.lane_index_size else 0
    if (<uint64_t> t.lanes_used + 1) * 2 > t.lane_index_size:
        widen_lane_index(t)
    grow(<void**> &t.lanes, &t.lanes_capacity, sizeof(LaneRecord), <uint64_t> t.lanes_used + 1)
    lane = t.lanes_used
    t.lanes_used += 1
    memset(&t.lanes[lane], 0, sizeof(LaneRecord))
    t.lanes[lane].shape = shape
    t.lanes[lane].queue = <uint16_t> queue
    t.lanes[lane].qos = <uint8_t> qos
    t.lanes[lane].head = NONE_
    t.lanes[lane].tried_at = NONE_
    t.lanes[lane].parked_at = NONE_
    t.lanes[lane].stalled_at = NONE_
    t.lanes[lane].next_of_shape = first[0]
    first[0] = lane
    index_put(t.lane_index, t.lane_index_size, hashed | (lane + 1))
    found[0] = lane
    return 0


cdef int widen_lane_index(Tables* t) except -1 nogil:
    cdef uint32_t wanted = t.lane_index_size * 2 + 64, at
    cdef uint64_t* wider = <uint64_t*> calloc(wanted, sizeof(uint64_t))
    if wider == NULL:
        no_memory()
    for at in range(t.lane_index_size):
        if t.lane_index[at] != 0:
            index_put(wider, wanted, t.lane_index[at])
    free(t.lane_index)
    t.lane_index = wider
    t.lane_index_size = wanted
    return 0


# ---------------------------------------------------------------- one task in and out

cdef int lane_of(Tables* t, TaskRecord* task, uint32_t* lane) except -1 nogil:
    return find_lane(t, qos_of(task), task.queue, NONE_ if task.gang != NONE_ else task.shape, lane)


cdef int enter_lane(Tables* t, uint32_t task, uint32_t slot) except -1 nogil:
    cdef LaneRecord* lane = &t.lanes[slot]
    lane_push(t, lane, task)
    if lane.tried_at == NONE_ and lane.parked_at == NONE_:
        return try_lane(t, slot)
    if lane.head == task:
        head_moved(t, lane)
    return 0


cdef int leave_lane(Tables* t, uint32_t task) except -1 nogil:
    """Out of its lane or from among the parked; nothing to do for one that stands nowhere."""
    cdef uint32_t place = t.tasks[task].place
    cdef uint32_t slot
    if place == NONE_:
        return 0
    if (place & AT_MASK) == AT_PARKED:
        unpark_task(t, task)
        return 0
    lane_of(t, &t.tasks[task], &slot)
    cdef LaneRecord* lane = &t.lanes[slot]
    cdef bint was_head = lane.head == task
    lane_take(t, lane, task)
    if lane.head == NONE_:
        if lane.tried_at != NONE_:
            drop_tried(t, slot)
        if lane.parked_at != NONE_:
            unpark_lane(t, slot)
    elif was_head:
        head_moved(t, lane)
    return 0


cdef int park_task(Tables* t, uint32_t task) except -1 nogil:
    leave_lane(t, task)
    t.parks += 1
    if t.seats_closed:
        t.parked_behind = ALL_LEVELS
    push(&t.parked_tasks, task)
    t.tasks[task].place = AT_PARKED | (t.parked_tasks.size - 1)
    return 0


cdef void unpark_task(Tables* t, uint32_t task) noexcept nogil:
    cdef uint32_t at = t.tasks[task].place & INDEX_MASK
    t.tasks[task].place = NONE_
    t.parked_tasks.size -= 1
    if at < t.parked_tasks.size:
        t.parked_tasks.at[at] = t.parked_tasks.at[t.parked_tasks.size]
        t.tasks[t.parked_tasks.at[at]].place = AT_PARKED | at
