# Which lane is next: the lanes of a queue as a heap by head, the queue of lowest dominant share over weight before others.
#
# Promises: exact integers; a lane with tasks is either in its queue's heap or parked (blocked), one without is in neither.

# ---------------------------------------------------------------- the lanes of one (qos, queue)

cdef inline bint lane_before(Tables* t, uint32_t one, uint32_t other) noexcept nogil:
    return goes_before(t, lane_head(t, &t.lanes[one]), lane_head(t, &t.lanes[other]))


cdef void bucket_sift(Tables* t, Slots* bucket, uint32_t at) noexcept nogil:
    """The lane at `at` has a new head: put it where it belongs."""
    cdef uint32_t lane = bucket.at[at]
    cdef uint32_t above, first, best, child
    while at > 0:
        above = (at - 1) >> 2
        if not lane_before(t, lane, bucket.at[above]):
            break
        bucket.at[at] = bucket.at[above]
        t.lanes[bucket.at[at]].heap_at = at
        at = above
    while True:
        first = at * 4 + 1
        if first >= bucket.size:
            break
        best = first
        for child in range(first + 1, min(first + 4, bucket.size)):
            if lane_before(t, bucket.at[child], bucket.at[best]):
                best = child
        if not lane_before(t, bucket.at[best], lane):
            break
        bucket.at[at] = bucket.at[best]
        t.lanes[bucket.at[at]].heap_at = at
        at = best
    bucket.at[at] = lane
    t.lanes[lane].heap_at = at


cdef int bucket_add(Tables* t, uint32_t slot) except -1 nogil:
    cdef LaneRecord* lane = &t.lanes[slot]
    cdef QueueRecord* queue = &t.queues[lane.queue]
    cdef Slots* bucket = &queue.bucket[lane.qos]
    push(bucket, slot)
    bucket_sift(t, bucket, bucket.size - 1)
    if bucket.size == 1:
        push(&t.active[lane.qos], lane.queue)
        queue.active_at[lane.qos] = t.active[lane.qos].size - 1
    return 0


cdef void bucket_remove(Tables* t, uint32_t slot) noexcept nogil:
    """The lane may be empty by now: it is not compared."""
    cdef LaneRecord* lane = &t.lanes[slot]
    cdef QueueRecord* queue = &t.queues[lane.queue]
    cdef Slots* bucket = &queue.bucket[lane.qos]
    cdef Slots* active = &t.active[lane.qos]
    cdef uint32_t at = lane.heap_at
    cdef uint32_t last
    lane.heap_at = NONE_
    bucket.size -= 1
    if at < bucket.size:
        bucket.at[at] = bucket.at[bucket.size]
        bucket_sift(t, bucket, at)
    if bucket.size == 0:
        at = queue.active_at[lane.qos]
        queue.active_at[lane.qos] = NONE_
        active.size -= 1
        if at < active.size:
            last = active.at[active.size]
            active.at[at] = last
            t.queues[last].active_at[lane.qos] = at


cdef int park_lane(Tables* t, uint32_t slot) except -1 nogil:
    bucket_remove(t, slot)
    t.parks += 1
    push(&t.parked_lanes, slot)
    t.lanes[slot].parked_at = t.parked_lanes.size - 1
    return 0


cdef void unpark_lane(Tables* t, uint32_t slot) noexcept nogil:
    cdef uint32_t at = t.lanes[slot].parked_at
    t.lanes[slot].parked_at = NONE_
    t.parked_lanes.size -= 1
    if at < t.parked_lanes.size:
        t.parked_lanes.at[at] = t.parked_lanes.at[t.parked_lanes.size]
        t.lanes[t.parked_lanes.at[at]].parked_at = at


# ---------------------------------------------------------------- which queue

cdef uint64_t queue_key(Tables* t, QueueRecord* queue) noexcept nogil:
    """Dominant share over weight: the largest used/capacity of its resources, in 2^-30, over the weight, in 2^-20. Memory counts in MiB."""
    cdef uint64_t share = 0
    cdef uint64_t used, capacity, one
    cdef int resource
    if not queue.key_stale:
        return queue.key
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


cdef inline bint fairer(Tables* t, uint32_t one, uint32_t other) noexcept nogil:
    """Of two lanes: by their heads."""
    return fairer_task(t, lane_head(t, &t.lanes[one]), lane_head(t, &t.lanes[other]))


cdef bint fairer_task(Tables* t, uint32_t one, uint32_t other) noexcept nogil:
    """Of two tasks of one level. Who stays within a guarantee before who borrows; queues that are siblings by key; others by their ancestors that are; equal keys by who goes first."""
    cdef uint32_t a = t.tasks[one].queue
    cdef uint32_t b = t.tasks[other].queue
    cdef uint64_t key_a, key_b
    cdef bint owed_a, owed_b
    if t.order == 1:
        return weighs_more(t, one, other)
    if t.order == ORDER_FIFO_:
        return goes_before(t, one, other)
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
            return owed_a
    key_a = queue_key(t, &t.queues[a])
    key_b = queue_key(t, &t.queues[b])
    if key_a != key_b:
        return key_a < key_b
    return goes_before(t, one, other)


cdef uint32_t owed_lane(Tables* t, int qos, uint32_t before) noexcept nogil:
    """Of the lanes to be tried whose heads borrow nothing, that of another queue than `before`'s which goes first: else its head would start
    in front of them, and be stopped for them in the same breath. `before` if there is none."""
    cdef Slots* bucket
    cdef uint32_t at, other, lane, best = before
    for at in range(t.active[qos].size):
        if t.active[qos].at[at] == t.lanes[before].queue or promise_of(t, t.active[qos].at[at]) == NONE_:
            continue
        bucket = &t.queues[t.active[qos].at[at]].bucket[qos]
        for other in range(bucket.size):
            lane = bucket.at[other]
            if is_owed(t, lane_head(t, &t.lanes[lane])) and (best == before or fairer(t, lane, best)):
                best = lane
    return best


cdef uint32_t best_lane(Tables* t, int qos) noexcept nogil:
    """The lane to try next at this level, or NONE."""
    cdef Slots* active = &t.active[qos]
    cdef uint32_t at, lane, best
    if active.size == 0:
        return NONE_
    best = t.queues[active.at[0]].bucket[qos].at[0]
    for at in range(1, active.size):
        lane = t.queues[active.at[at]].bucket[qos].at[0]
        if fairer(t, lane, best):
            best = lane
    if t.has_guarantees and t.order != ORDER_FIFO_ and not is_owed(t, lane_head(t, &t.lanes[best])):
        return owed_lane(t, qos, best)
    return best
