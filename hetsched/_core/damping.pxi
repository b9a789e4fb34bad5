# Eviction damped: who was evicted twice within DAMPING_NS is not evicted again until DAMPING_NS after its next start.
#
# Promises: exact, and the same in a replay: an eviction is dated by the order to stop, a start by the agent's word. The list of evictions
# holds at most twice what was evicted in twenty minutes, and while somebody takes longer than that to stop all since DAMPING_NS before he was
# told. Each second eviction is counted: it is what people see as tasks thrown to and fro.

cdef int64_t oldest_order(Tables* t) noexcept nogil:
    """When the first was told to go of those who have not gone yet; else now."""
    cdef uint32_t at
    cdef int64_t oldest_ns = t.now_ns
    for at in range(t.allocations_used):
        if t.allocations[at].is_live and t.tasks[t.allocations[at].task].state == STOPPING_:
            oldest_ns = min(oldest_ns, t.tasks[t.allocations[at].task].changed_ns)
    return oldest_ns


cdef int note_eviction(Tables* t, uint64_t sequence, int64_t at_ns, bint* is_second) except -1 nogil:
    """An attempt ended that was told to go at `at_ns`. `is_second`: it had to go before, not long ago."""
    cdef uint32_t at, old = 0
    is_second[0] = False
    for at in range(t.evictions_used):
        is_second[0] |= t.evictions[at].sequence == sequence and at_ns - t.evictions[at].at_ns <= DAMPING_NS
        old += t.evictions[at].at_ns < t.now_ns - 2 * DAMPING_NS
    if old * 2 > t.evictions_used:
        forget_evictions(t, oldest_order(t) - DAMPING_NS)
    grow(<void**> &t.evictions, &t.evictions_capacity, sizeof(EvictionRecord), <uint64_t> t.evictions_used + 1)
    t.evictions[t.evictions_used].sequence = sequence
    t.evictions[t.evictions_used].at_ns = at_ns
    t.evictions_used += 1
    t.oscillations += is_second[0]
    return 0


cdef void forget_evictions(Tables* t, int64_t before_ns) noexcept nogil:
    cdef uint32_t at, kept = 0
    for at in range(t.evictions_used):
        if t.evictions[at].at_ns >= before_ns:
            t.evictions[kept] = t.evictions[at]
            kept += 1
    t.evictions_used = kept


cdef inline bint is_damped(Tables* t, TaskRecord* task) noexcept nogil:
    """It is live, and must be let be."""
    cdef int64_t started_ns = t.allocations[task.place].started_ns
    return task.flags & SHAKEN_ and (started_ns == 0 or t.now_ns - started_ns < DAMPING_NS)


cdef void let_time_tell(Tables* t) noexcept nogil:
    """A task became evictable because time passed: blocked heads may look for victims again."""
    cdef uint32_t at
    cdef int64_t ends_ns
    if t.now_ns < t.damped_until_ns or t.damped_until_ns == 0:
        return
    t.changes += 1
    t.damped_until_ns = 0
    for at in range(t.allocations_used):
        if t.allocations[at].is_live and not t.allocations[at].is_claim and t.tasks[t.allocations[at].task].flags & SHAKEN_:
            ends_ns = t.allocations[at].started_ns + DAMPING_NS
            if ends_ns > t.now_ns and t.allocations[at].started_ns > 0:
                t.damped_until_ns = ends_ns if t.damped_until_ns == 0 else min(t.damped_until_ns, ends_ns)


cdef inline void note_damped_start(Tables* t, TaskRecord* task) noexcept nogil:
    """Starts come in order of time, so the first that is noted ends first."""
    if task.flags & SHAKEN_ and t.damped_until_ns == 0:
        t.damped_until_ns = t.now_ns + DAMPING_NS
