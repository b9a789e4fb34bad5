# Doors' half of a change: write the fact, then do what it says; and what follows from it, live only.
#
# Promises: nothing here is called while replaying.

cdef int do_placed(Tables* t, uint32_t task, uint32_t node, uint8_t lane, uint32_t* pieces, int count) except -1 nogil:
    fact(t, FACT_PLACED, 12 + 3 * <size_t> count)
    put32(&t.facts, task)
    put16(&t.facts, t.tasks[task].attempt + 1)
    put32(&t.facts, node)
    put8(&t.facts, lane)
    put_pieces(&t.facts, pieces, count)
    return apply_placed(t, task, node, lane, pieces, count)


cdef int do_started(Tables* t, uint32_t task) except -1 nogil:
    fact_attempt(t, FACT_STARTED, task)
    return apply_started(t, task)


cdef int do_stopping(Tables* t, uint32_t task, uint8_t reason, uint32_t by) except -1 nogil:
    fact_attempt(t, FACT_STOPPING, task)
    put8(&t.facts, reason)
    put32(&t.facts, by)
    return apply_stopping(t, task)


cdef int do_ended(Tables* t, uint32_t task, uint8_t state, uint8_t reason) except -1 nogil:
    cdef uint32_t claim
    give_up(t, task)
    fact_attempt(t, FACT_ENDED, task)
    put8(&t.facts, state)
    put8(&t.facts, reason)
    apply_ended(t, task, state, &claim)
    return redeem(t, claim)


cdef bint do_succeeded(Tables* t, uint32_t task) except -1 nogil:
    """Started, if nobody had said so, and ended. False: it was told to stop, or does not run, and nothing is changed."""
    if t.tasks[task].state == PLACED_:
        do_started(t, task)
    if t.tasks[task].state != RUNNING_:
        return False
    do_ended(t, task, SUCCEEDED_, 0)
    return True


cdef int do_requeued(Tables* t, uint32_t task, uint8_t reason, uint8_t hold) except -1 nogil:
    cdef uint32_t claim
    fact_attempt(t, FACT_REQUEUED, task)
    put8(&t.facts, reason)
    put8(&t.facts, hold)
    apply_requeued(t, task, hold, &claim)
    return redeem(t, claim)


cdef int do_backed_off(Tables* t, uint32_t task, uint8_t reason) except -1 nogil:
    cdef uint32_t claim
    fact_attempt(t, FACT_BACKED_OFF, task)
    put8(&t.facts, reason)
    apply_backed_off(t, task, &claim)
    return redeem(t, claim)


cdef int do_ready(Tables* t, uint32_t task) except -1 nogil:
    fact_task(t, FACT_READY, task)
    return apply_ready(t, task)


cdef int do_held(Tables* t, uint32_t task, uint8_t flags) except -1 nogil:
    give_up(t, task)
    fact(t, FACT_HELD, 5)
    put32(&t.facts, task)
    put8(&t.facts, flags)
    return apply_held(t, task, flags)


cdef int do_claimed(Tables* t, uint32_t task, uint32_t node, uint8_t lane, int64_t cost, uint32_t* pieces, int count,
                    uint32_t* victims, int victim_count) except -1 nogil:
    """The claim, then the order to stop for each victim."""
    cdef int at
    do_claimed_only(t, task, node, lane, cost, pieces, count, victims, victim_count)
    for at in range(victim_count):
        do_stopping(t, victims[at], stop_reason(t, victims[at]), task)
    return 0


cdef int do_claimed_only(Tables* t, uint32_t task, uint32_t node, uint8_t lane, int64_t cost, uint32_t* pieces, int count,
                         uint32_t* victims, int victim_count) except -1 nogil:
    cdef int at
    fact(t, FACT_CLAIMED, 20 + 3 * <size_t> count + 4 * <size_t> victim_count)
    put32(&t.facts, task)
    put32(&t.facts, node)
    put8(&t.facts, lane)
    put64(&t.facts, cost)
    put_pieces(&t.facts, pieces, count)
    put16(&t.facts, <uint16_t> victim_count)
    for at in range(victim_count):
        put32(&t.facts, victims[at])
    return apply_claimed(t, task, node, lane, cost, pieces, count, <uint8_t*> victims, victim_count)


cdef int do_gang_claimed(Tables* t, uint8_t lane) except -1 nogil:
    """A claim for each seat of the plan, then the orders to stop. Each victim belongs to the first seat on its node, or to the first of all."""
    cdef Plan* plan = &t.plan
    cdef TrialRecord* seat
    cdef uint32_t at, other, victim, end, begin = 0
    cdef int64_t cost
    for at in range(plan.seats_size):
        seat = &plan.seats[at]
        end = begin
        cost = 0
        for other in range(begin, plan.victims.size):
            victim = plan.victims.at[other]
            if belongs_to_seat(t, plan, at, victim):
                plan.victims.at[other] = plan.victims.at[end]
                plan.victims.at[end] = victim
                cost += work_at_stake(t, &t.tasks[victim])
                end += 1
        do_claimed_only(t, seat.task, seat.node, lane, cost, seat.pieces, <int> seat.count, plan.victims.at + begin, <int> (end - begin))
        begin = end
    assert begin == plan.victims.size, "every victim belongs to a seat"
    for at in range(plan.victims.size):
        victim = plan.victims.at[at]
        do_stopping(t, victim, stop_reason(t, victim), t.allocations[t.allocations[t.tasks[victim].place].claim].task)
    return 0


cdef inline uint8_t stop_reason(Tables* t, uint32_t victim) noexcept nogil:
    """Of the plan that is claimed now."""
    if t.plan.is_reclaim and is_soft(t, victim):
        return STOP_RECLAIM
    return STOP_CONSOLIDATE if t.plan.is_move else STOP_PREEMPTED


cdef bint belongs_to_seat(Tables* t, Plan* plan, uint32_t seat, uint32_t victim) noexcept nogil:
    cdef uint32_t node = t.allocations[t.tasks[victim].place].node
    cdef uint32_t at
    if plan.seats[seat].node == node:
        return True
    for at in range(plan.seats_size):
        if plan.seats[at].node == node:
            return False
    return True


cdef int do_unclaimed(Tables* t, uint32_t task) except -1 nogil:
    """With one seat of a gang all are given up: the rest would wait for what does not come."""
    cdef uint32_t at, member
    cdef GangRecord* gang
    fact_task(t, FACT_UNCLAIMED, task)
    apply_unclaimed(t, task)
    if t.tasks[task].gang == NONE_:
        return 0
    gang = &t.gangs[t.tasks[task].gang]
    for at in range(gang.members.size):
        member = gang.members.at[at]
        if t.tasks[member].flags & CLAIMING_:
            fact_task(t, FACT_UNCLAIMED, member)
            apply_unclaimed(t, member)
    return 0


cdef int do_prioritised(Tables* t, uint32_t task, int16_t priority) except -1 nogil:
    fact(t, FACT_PRIORITISED, 6)
    put32(&t.facts, task)
    put16(&t.facts, <uint16_t> priority)
    return apply_prioritised(t, task, priority)


cdef int do_forgotten(Tables* t, uint32_t task) except -1 nogil:
    fact_task(t, FACT_FORGOTTEN, task)
    return apply_forgotten(t, task)


# ---------------------------------------------------------------- what follows

cdef int give_up(Tables* t, uint32_t task) except -1 nogil:
    """The task's claim, if it has one."""
    if t.tasks[task].flags & CLAIMING_:
        do_unclaimed(t, task)
    return 0


cdef int redeem(Tables* t, uint32_t claim) except -1 nogil:
    """A claim that waits for nobody any more becomes the placement it was made for; those of a gang all in one instant. Who goes after another
    that claims the same is settled later."""
    if claim == NONE_ or not is_ripe(t, t.allocations[claim].task):
        return 0
    if is_behind_claim(t, t.allocations[claim].task):
        t.ripe = True
        return 0
    return start_claimed(t, t.allocations[claim].task)


cdef int start_claimed(Tables* t, uint32_t task) except -1 nogil:
    """It, or all of its gang that claim."""
    cdef uint32_t at, member
    cdef GangRecord* gang
    if t.tasks[task].gang == NONE_:
        return redeem_one(t, t.tasks[task].place)
    gang = &t.gangs[t.tasks[task].gang]
    for at in range(gang.members.size):
        member = gang.members.at[at]
        if t.tasks[member].flags & CLAIMING_:
            redeem_one(t, t.tasks[member].place)
    return 0


cdef int redeem_one(Tables* t, uint32_t claim) except -1 nogil:
    cdef AllocationRecord* record = &t.allocations[claim]
    cdef uint32_t pieces[MAX_PIECES]
    if record.count > 0:
        memcpy(pieces, pieces_of(t, record), <size_t> record.count * 4)
    note_claimed_start(t, record.task)
    return do_placed(t, record.task, record.node, record.lane, pieces, record.count)


cdef int give_up_claims(Tables* t, uint32_t node, int device) except -1 nogil:
    """Claims on a node that closed, or on one of its devices (-1: all). In replay they are facts of their own."""
    cdef uint32_t slot, at
    cdef bint touches
    if t.replaying or t.nodes[node].claims == 0:
        return 0
    slot = t.nodes[node].allocation_first
    while slot != NONE_:
        touches = device < 0
        for at in range(t.allocations[slot].count):
            touches |= <int> (pieces_of(t, &t.allocations[slot])[at] & 0xFF) == device
        if t.allocations[slot].is_claim and touches:
            do_unclaimed(t, t.allocations[slot].task)
            slot = t.nodes[node].allocation_first
        else:
            slot = t.allocations[slot].next_on_node
    return 0


cdef int give_up_claims_of(Tables* t, uint32_t node, uint32_t shape) except -1 nogil:
    """Claims of one shape on a node that words ruled out for it."""
    cdef uint32_t slot
    if t.replaying:
        return 0
    slot = t.nodes[node].allocation_first
    while slot != NONE_:
        if t.allocations[slot].is_claim and t.tasks[t.allocations[slot].task].shape == shape:
            do_unclaimed(t, t.allocations[slot].task)
            slot = t.nodes[node].allocation_first
        else:
            slot = t.allocations[slot].next_on_node
    return 0
