# Which lane is next: the lanes of a (queue, qos) as a heap by head, the queue of lowest dominant share over weight before others.
#
# Promises: exact integers; a lane with tasks is either tried or parked (blocked), one without is neither. Who is parked and may have a
# reservation is in a heap of its own, so that the first of them is found without looking at the others.

# ---------------------------------------------------------------- heaps of lanes
# A lane is told apart by the field that says where it is: `tried_at` or `stalled_at`.

cdef inline bint entry_before(Tables* t, LaneEntry* one, LaneEntry* other) noexcept nogil:
    if one.rank == other.rank and one.rank != RANK_DEADLINE:
        return one.sequence < other.sequence
    return goes_before(t, t.lanes[one.lane].head, t.lanes[other.lane].head)


cdef inline uint32_t* place_in(Tables* t, uint32_t lane, bint is_stalled) noexcept nogil:
    return &t.lanes[lane].stalled_at if is_stalled else &t.lanes[lane].tried_at


cdef inline void put_entry(Tables* t, LaneHeap* heap, uint32_t at, LaneEntry* entry, bint is_stalled) noexcept nogil:
    heap.at[at] = entry[0]
    place_in(t, entry.lane, is_stalled)[0] = at


cdef void lanes_sift(Tables* t, LaneHeap* heap, uint32_t at, uint32_t slot, bint is_stalled) noexcept nogil:
    """The hole at `at` is for this lane, or the lane that is there has a new head: put it where it belongs."""
    cdef LaneEntry entry
    cdef uint32_t above, first, best, child
    entry.sequence, entry.rank, entry.lane = t.lanes[slot].head_sequence, t.lanes[slot].head_rank, slot
    while at > 0:
        above = (at - 1) >> 2
        if not entry_before(t, &entry, &heap.at[above]):
            break
        put_entry(t, heap, at, &heap.at[above], is_stalled)
        at = above
    while True:
        first = at * 4 + 1
        if first >= heap.size:
            break
        best = first
        for child in range(first + 1, min(first + 4, heap.size)):
            if entry_before(t, &heap.at[child], &heap.at[best]):
                best = child
        if not entry_before(t, &heap.at[best], &entry):
            break
        put_entry(t, heap, at, &heap.at[best], is_stalled)
        at = best
    put_entry(t, heap, at, &entry, is_stalled)


cdef int lanes_add(Tables* t, LaneHeap* heap, Slots* listed, uint32_t slot, bint is_stalled) except -1 nogil:
    grow(<void**> &heap.at, &heap.capacity, sizeof(LaneEntry), <uint64_t> heap.size + 1)
    heap.size += 1
    lanes_sift(t, heap, heap.size - 1, slot, is_stalled)
    if heap.size == 1:
        push(listed, t.lanes[slot].queue)
        heap.listed_at = listed.size - 1
    return 0


cdef void lanes_drop(Tables* t, LaneHeap* heap, Slots* listed, uint32_t slot, bint is_stalled) noexcept nogil:
    """The lane may be empty by now: it is not compared."""
    cdef uint32_t at = place_in(t, slot, is_stalled)[0]
    cdef LaneHeap* other
    place_in(t, slot, is_stalled)[0] = NONE_
    heap.size -= 1
    if at < heap.size:
        lanes_sift(t, heap, at, heap.at[heap.size].lane, is_stalled)
    if heap.size == 0:
        at = heap.listed_at
        heap.listed_at = NONE_
        listed.size -= 1
        if at < listed.size:
            listed.at[at] = listed.at[listed.size]
            other = &line_of(t, listed.at[at], t.lanes[slot].qos).tried
            if is_stalled:
                other = &line_of(t, listed.at[at], t.lanes[slot].qos).stalled
            other.listed_at = at


cdef void lanes_sort(Tables* t, LaneHeap* heap, bint is_stalled) noexcept nogil:
    """Another order holds, or the heads are others."""
    cdef uint32_t size = heap.size
    for heap.size in range(1, size + 1):
        lanes_sift(t, heap, heap.size - 1, heap.at[heap.size - 1].lane, is_stalled)
    heap.size = size


# ---------------------------------------------------------------- the lanes of one (queue, qos)

cdef inline LineRecord* line_of(Tables* t, uint32_t queue, int qos) noexcept nogil:
    return &t.lines[queue * LEVELS + qos]


cdef int add_lines(Tables* t, uint32_t queue) except -1 nogil:
    cdef int qos
    grow(<void**> &t.lines, &t.lines_capacity, sizeof(LineRecord), (<uint64_t> queue + 1) * LEVELS)
    for qos in range(LEVELS):
        memset(line_of(t, queue, qos), 0, sizeof(LineRecord))
        line_of(t, queue, qos).tried.listed_at = NONE_
        line_of(t, queue, qos).stalled.listed_at = NONE_
    return 0


cdef int try_lane(Tables* t, uint32_t slot) except -1 nogil:
    cdef LaneRecord* lane = &t.lanes[slot]
    return lanes_add(t, &line_of(t, lane.queue, lane.qos).tried, &t.active[lane.qos], slot, False)


cdef void drop_tried(Tables* t, uint32_t slot) noexcept nogil:
    cdef LaneRecord* lane = &t.lanes[slot]
    lanes_drop(t, &line_of(t, lane.queue, lane.qos).tried, &t.active[lane.qos], slot, False)


cdef void head_moved(Tables* t, LaneRecord* lane) noexcept nogil:
    cdef uint32_t slot = <uint32_t> (lane - t.lanes)
    cdef LineRecord* line = line_of(t, lane.queue, lane.qos)
    if lane.tried_at != NONE_:
        lanes_sift(t, &line.tried, lane.tried_at, slot, False)
    elif lane.stalled_at != NONE_:
        lanes_sift(t, &line.stalled, lane.stalled_at, slot, True)


cdef int park_lane(Tables* t, uint32_t slot) except -1 nogil:
    drop_tried(t, slot)
    cdef LaneRecord* lane = &t.lanes[slot]
    cdef ParkedList* parked = &t.parked[lane.qos]
    t.parks += 1
    lane.parked_round = t.rounds
    grow(<void**> &parked.at, &parked.capacity, sizeof(ParkedLane), <uint64_t> parked.size + 1)
    parked.at[parked.size].lane, parked.at[parked.size].shape = slot, lane.shape
    lane.parked_at = parked.size
    parked.size += 1
    return stall(t, slot)


cdef void unpark_lane(Tables* t, uint32_t slot) noexcept nogil:
    cdef ParkedList* parked = &t.parked[t.lanes[slot].qos]
    cdef uint32_t at = t.lanes[slot].parked_at
    t.lanes[slot].parked_at = NONE_
    parked.size -= 1
    if at < parked.size:
        parked.at[at] = parked.at[parked.size]
        t.lanes[parked.at[at].lane].parked_at = at
    unstall(t, slot)


cdef int stall(Tables* t, uint32_t slot) except -1 nogil:
    """A parked lane: among those whose heads may have a reservation, unless no start is looked for."""
    cdef LaneRecord* lane = &t.lanes[slot]
    if lane.no_start_ns > t.now_ns:
        t.aside_ns = min(t.aside_ns, lane.no_start_ns)
        return 0
    return lanes_add(t, &line_of(t, lane.queue, lane.qos).stalled, &t.stalled[lane.qos], slot, True)


cdef void unstall(Tables* t, uint32_t slot) noexcept nogil:
    cdef LaneRecord* lane = &t.lanes[slot]
    if lane.stalled_at != NONE_:
        lanes_drop(t, &line_of(t, lane.queue, lane.qos).stalled, &t.stalled[lane.qos], slot, True)


cdef int stall_those_due(Tables* t) except -1 nogil:
    """Before a decision: parked lanes for which a start is looked for again."""
    cdef uint32_t at
    cdef int qos
    if t.now_ns < t.aside_ns:
        return 0
    t.aside_ns = INT64_MAX
    for qos in range(LEVELS):
        for at in range(t.parked[qos].size):
            if t.lanes[t.parked[qos].at[at].lane].stalled_at == NONE_:
                stall(t, t.parked[qos].at[at].lane)
    return 0


# ---------------------------------------------------------------- which queue

cdef inline uint64_t queue_key(Tables* t, QueueRecord* queue) noexcept nogil:
    """Dominant share over weight: the largest used/capacity of its resources, in 2^-30, over the weight, in 2^-20. Memory counts in MiB."""
    return renew_key(t, queue) if queue.key_stale else queue.key


cdef uint64_t renew_key(Tables* t, QueueRecord* queue) noexcept nogil:
    cdef uint64_t share = 0
    cdef uint64_t used, capacity, one
    cdef int resource
    for resource in range(RESOURCES):
        if queue.used[resource] <= 0:
            continue
        used = <uint64_t> queue.used[resource]
        capacity = <uint64_t> t.capacity[resource]
        if resource == 1:
            used >>= 20
            capacity >>= 20
        used = min(used, <uint64_t> 1 << 33)
        one = min((used << 30) // capacity, <uint64_t> 1 << 32) if capacity > 0 else <uint64_t> 1 << 32
        if one > share:
            share = one
    queue.key = (share << 20) // <uint64_t> queue.weight
    queue.key_stale = False
    return queue.key


cdef bint fairer(Tables* t, uint32_t one, uint32_t other) noexcept nogil:
    """Of two lanes: by their heads, whose records are looked at only where the queues and what the lanes know of their heads do not tell."""
    cdef LaneRecord* a = &t.lanes[one]
    cdef LaneRecord* b = &t.lanes[other]
    cdef uint64_t key_a, key_b
    if t.order == 0 and not t.has_guarantees and t.queues[a.queue].parent == t.queues[b.queue].parent:
        key_a = queue_key(t, &t.queues[a.queue])
        key_b = queue_key(t, &t.queues[b.queue])
        if key_a != key_b:
            return key_a < key_b
        if a.head_rank == b.head_rank and a.head_rank != RANK_DEADLINE:
            return a.head_sequence < b.head_sequence
    return fairer_task(t, a.head, b.head)


cdef bint fairer_task(Tables* t, uint32_t one, uint32_t other) noexcept nogil:
    """Of two tasks of one level: by their queues, and where these say nothing by who goes first."""
    cdef int side
    if t.order == 1:
        return weighs_more(t, one, other)
    side = fairer_queue(t, one, other) if t.order != ORDER_FIFO_ else 0
    return side > 0 if side != 0 else goes_before(t, one, other)


cdef int fairer_queue(Tables* t, uint32_t one, uint32_t other) noexcept nogil:
    """1: `one` goes first, -1: `other`, 0: their queues do not say. Who stays within a guarantee before who borrows; queues that are siblings by
    key; others by their ancestors that are. Of a task nothing counts but queue, shape and gang."""
    cdef uint32_t a = t.tasks[one].queue
    cdef uint32_t b = t.tasks[other].queue
    cdef uint64_t key_a, key_b
    cdef bint owed_a, owed_b
    while t.queues[a].depth > t.queues[b].depth:
        a = t.queues[a].parent
    while t.queues[b].depth > t.queues[a].depth:
        b = t.queues[b].parent
    if a == b:
        a = t.tasks[one].queue
        b = t.tasks[other].queue
    else:
        while t.queues[a].parent != t.queues[b].parent:
            a = t.queues[a].parent
            b = t.queues[b].parent
    if t.has_guarantees and a != b:
        owed_a = is_owed(t, one)
        owed_b = is_owed(t, other)
        if owed_a != owed_b:
            return 1 if owed_a else -1
    key_a = queue_key(t, &t.queues[a])
    key_b = queue_key(t, &t.queues[b])
    return 0 if key_a == key_b else 1 if key_a < key_b else -1


cdef uint32_t lane_ahead(Tables* t, int qos, uint32_t before) noexcept nogil:
    """Of the lanes to be tried the one that goes first of those whose heads could stop the head of `before`, had it started, at once: who is
    owed what it asks for by who borrows (of another queue), who is firm by who is soft. `before` if there is none."""
    cdef uint32_t head = lane_head(t, &t.lanes[before])
    cdef bint borrows = t.has_guarantees and not is_owed(t, head)
    cdef bint soft = lends(t) and is_soft(t, head)
    cdef LaneHeap* tried
    cdef uint32_t at, other, lane, one, best = before
    for at in range(t.active[qos].size if borrows or soft else 0):
        tried = &line_of(t, t.active[qos].at[at], qos).tried
        for other in range(tried.size):
            lane = tried.at[other].lane
            one = lane_head(t, &t.lanes[lane])
            if (soft and not is_soft(t, one)) or (borrows and t.lanes[lane].queue != t.lanes[before].queue and is_owed(t, one)):
                if best == before or fairer(t, lane, best):
                    best = lane
    return best


cdef uint32_t best_lane(Tables* t, int qos) noexcept nogil:
    """The lane to try next at this level, or NONE."""
    cdef Slots* active = &t.active[qos]
    cdef uint32_t at, lane, best
    if active.size == 0:
        return NONE_
    best = line_of(t, active.at[0], qos).tried.at[0].lane
    for at in range(1, active.size):
        lane = line_of(t, active.at[at], qos).tried.at[0].lane
        if fairer(t, lane, best):
            best = lane
    return best if t.order == ORDER_FIFO_ else lane_ahead(t, qos, best)
