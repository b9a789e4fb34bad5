# Waiting lifts: one point of priority for each whole minute, at most AGE_MOST, never across qos.
#
# Promises: two tasks submitted less than a minute apart keep the order of priority and deadline that they would have without ageing,
# except where submissions go on for more than a minute and a class has to end between them; and never two that are less than AGE_NEAR
# apart, except where a stream has no pause of AGE_NEAR: there the older one of two neighbours may have one point more.
#
# How: submissions are gathered into classes of a minute, which begin with a submission. A minute later the class ends at the next pause
# of AGE_NEAR, or 15 s later where there is none; what comes then belongs to the minute that began meanwhile. Points are those minutes of
# the clock that began since the class did: so who came together has equal points for ever, and deadlines decide between them. Priority
# and points together do not change their order with time, as all gain their points at once; only the bound does. So lanes stay sorted
# while time passes, and once a minute (`clock_ns`) those that hold tasks of different rank, some older than the bound, are sorted again.
#
# Why not each task's own minutes: two tasks a second apart would differ by a point for a second of each minute, every lane with deadlines
# would have to be sorted again whenever somebody in it has waited for another minute. Why not the time since the class began: a class that
# began 35 s before another would lift over deadlines before anybody has waited for a minute.

cdef inline int64_t begun_of(Tables* t, uint64_t sequence) noexcept nogil:
    """When the class of this submission began; long ago for those older than the table, which are all beyond the bound."""
    cdef uint32_t low = 0
    cdef uint32_t high = t.ages_used
    cdef uint32_t middle
    while low < high:
        middle = (low + high) >> 1
        if t.ages[middle].first_sequence <= sequence:
            low = middle + 1
        else:
            high = middle
    return t.ages[low - 1].begun_ns if low > 0 else -(<int64_t> 1 << 62)


cdef inline int64_t points_of(Tables* t, uint64_t sequence) noexcept nogil:
    """Minutes of the clock that began since its class did."""
    return min(AGE_MOST, t.age_clock_ns // MINUTE_NS - begun_of(t, sequence) // MINUTE_NS)


cdef inline bint is_aged_out(Tables* t, uint64_t sequence) noexcept nogil:
    """It has all the lift that it can get."""
    return points_of(t, sequence) >= AGE_MOST


cdef inline int64_t lifted_priority(Tables* t, TaskRecord* task) noexcept nogil:
    """Priority and points of age together."""
    return task.priority + points_of(t, task.sequence)


cdef void note_age(Tables* t, uint64_t sequence, int64_t submitted_ns) noexcept nogil:
    """A submission: into the last class, or the first of a new one. In a stream the classes follow each other by a minute."""
    cdef int64_t begun_ns = submitted_ns, since
    if t.ages_used > 0:
        since = submitted_ns - t.ages[t.ages_used - 1].begun_ns
        if since < MINUTE_NS or (since < MINUTE_NS + AGE_OVER_NS and submitted_ns - t.accepted_ns < AGE_NEAR_NS):
            t.accepted_ns = max(t.accepted_ns, submitted_ns)
            return
        if submitted_ns - t.accepted_ns < AGE_NEAR_NS:
            begun_ns = t.ages[t.ages_used - 1].begun_ns + MINUTE_NS
    if t.ages_used == AGE_CLASSES:
        t.ages_used -= 1
        memmove(&t.ages[0], &t.ages[1], t.ages_used * sizeof(AgeClass))
    t.ages[t.ages_used].first_sequence = sequence
    t.ages[t.ages_used].begun_ns = begun_ns
    t.ages_used += 1
    t.accepted_ns = submitted_ns


# ---------------------------------------------------------------- once a minute

cdef int sort_lane(Tables* t, LaneRecord* lane) except -1 nogil:
    """All its tasks into the heap, in the order of now."""
    cdef uint32_t at
    cdef int64_t place
    for at in range(lane.run_head, lane.run.size):
        if lane.run.at[at] != NONE_:
            push(&lane.heap, lane.run.at[at])
    lane.run.size = 0
    lane.run_head = 0
    lane.run_live = 0
    for at in range(lane.heap.size):
        t.tasks[lane.heap.at[at]].place = AT_HEAP | at
    for place in range(<int64_t> lane.heap.size - 1, -1, -1):
        heap_down(t, lane, <uint32_t> place, lane.heap.at[place])
    find_head(t, lane)
    return 0


cdef void sort_lines(Tables* t) noexcept nogil:
    cdef uint32_t at
    for at in range(t.queues_used * LEVELS):
        lanes_sort(t, &t.lines[at].tried, False)
        lanes_sort(t, &t.lines[at].stalled, True)


cdef int age_lanes(Tables* t) except -1 nogil:
    """Let a minute or more pass. Only who reached the bound moves against the others."""
    cdef uint32_t at
    cdef bint any = False
    if t.age_clock_ns > 0 and t.now_ns - t.age_clock_ns < MINUTE_NS:
        return 0
    t.age_clock_ns = t.now_ns
    for at in range(t.lanes_used):
        if lane_head(t, &t.lanes[at]) != NONE_ and is_aged_out(t, t.lanes[at].oldest_sequence):
            any = True
            if t.lanes[at].is_mixed:
                sort_lane(t, &t.lanes[at])
    if any:
        sort_lines(t)
    return 0


cdef int sort_all_lanes(Tables* t) except -1:
    """Another order holds from now on."""
    cdef uint32_t at
    for at in range(t.lanes_used):
        sort_lane(t, &t.lanes[at])
    sort_lines(t)
    return 0
