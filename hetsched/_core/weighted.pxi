# The other order within a level: 0.4 urgency + 0.3 match + 0.3 historical efficiency, instead of fair share and priority.
#
# Promises: integers, in 2^-30. Urgency is 1 / (1 + seconds to the deadline), 0 without one, 1 from the deadline on. Match is how well the best
# node suits now, as its score says. Efficiency is what was told of the template, 0.8 where nobody knows. Equal scores: priority and age,
# deadline, submission. Tasks of one shape stand by deadline, for the rest of the score is the shape's.

cdef inline int64_t match_of(Tables* t, ShapeRecord* shape) noexcept nogil:
    """How well the best node suits, in 2^-30; half where nobody has looked yet. Trees are up to date."""
    if shape.column == NONE_:
        return <int64_t> 1 << 29
    return (<int64_t> 1 << 30) * max(0, <int> best_byte(t, shape) - 1) // 254


cdef int64_t weighted_score(Tables* t, uint32_t slot) noexcept nogil:
    cdef TaskRecord* task = &t.tasks[slot]
    cdef ShapeRecord* shape = &t.shapes[task.shape]
    cdef ExpectationRecord* expectation = expectation_of(t, task)
    cdef int64_t one = <int64_t> 1 << 30
    cdef int64_t urgency = 0, match = match_of(t, shape), efficiency = 800
    cdef int64_t left_ms
    if task.deadline_ns != INT64_MAX:
        left_ms = max(<int64_t> 0, task.deadline_ns - t.now_ns) // 1000000
        urgency = one * 1000 // (1000 + left_ms)
    if expectation != NULL and expectation.efficiency_milli >= 0:
        efficiency = expectation.efficiency_milli
    return 4 * urgency // 10 + 3 * match // 10 + 3 * (one * efficiency // 1000) // 10


cdef bint weighs_more(Tables* t, uint32_t one, uint32_t other) noexcept nogil:
    cdef int64_t a = weighted_score(t, one)
    cdef int64_t b = weighted_score(t, other)
    return a > b if a != b else goes_before(t, one, other)


cdef int heaviest_lane(Tables* t, int qos, uint32_t* found) except -1 nogil:
    """The lane to try next at this level, whatever its queue. Every shape gets its column first: match needs it."""
    cdef Slots* active = &t.active[qos]
    cdef LaneHeap* tried
    cdef uint32_t at, which, shape
    found[0] = NONE_
    for at in range(active.size):
        tried = &line_of(t, active.at[at], qos).tried
        for which in range(tried.size):
            shape = t.tasks[lane_head(t, &t.lanes[tried.at[which].lane])].shape
            if t.nodes_used > 0:
                want_column(t, shape)
    refresh(t)
    for at in range(active.size):
        tried = &line_of(t, active.at[at], qos).tried
        for which in range(tried.size):
            if found[0] == NONE_ or weighs_more(t, lane_head(t, &t.lanes[tried.at[which].lane]), lane_head(t, &t.lanes[found[0]])):
                found[0] = tried.at[which].lane
    return 0
