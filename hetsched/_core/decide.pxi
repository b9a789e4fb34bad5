# One call of decide: level by level, place what fits in order; then let the blocked heads of the level claim; then the next level.
#
# Promises: a blocked lane leaves its heap when it surfaces and costs one byte a call until its shape fits again; a blocked level claims
# before the next level may take what is free, so nothing is placed below and evicted in the same call. A call that may place only so many stops
# there, and the next one goes on from the same place in the order.

cdef int64_t decide_levels(Tables* t, int levels, bint preempt, int lane) except -1 nogil:
    """Where some wait by choice again until nothing is placed: who takes the last device of a node lets those in who would have stranded it,
    and who takes a part of a device those who fill it."""
    cdef int64_t placed = decide_once(t, levels, preempt, lane)
    cdef int64_t more = placed
    while (t.strand_limit > 0 or t.scarce != 0) and more > 0 and t.room >= 0:
        more = decide_once(t, levels, preempt, lane)
        placed += more
    return placed


cdef int64_t decide_once(Tables* t, int levels, bint preempt, int lane) except -1 nogil:
    cdef int64_t placed = 0
    cdef int qos
    cdef uint8_t code
    t.rounds += 1
    t.search_left = SEARCH_BUDGET
    age_lanes(t)
    let_time_tell(t)
    see_scarce(t)
    heal(t)
    unpark(t, levels)
    stall_those_due(t)
    keep_rooms_above(t, levels)
    t.halted = False
    for qos in range(LEVELS):
        if (levels >> qos) & 1 and not t.halted:
            code = <uint8_t> lane if lane >= 0 else LANE_IMMEDIATE_ if qos == 0 else LANE_BATCH_
            placed += mend_level(t, qos, code)
            placed += place_level(t, qos, code, preempt and may_claim(t, qos))
            if preempt and may_claim(t, qos) and not t.halted:
                claim_level(t, qos, code, False)
    close_seats(t, False)
    let_rooms_go(t)
    return placed


cdef enum:
    SHUT_NOW = 1
    SHUT_BEFORE = 2            # when the decision began


cdef int unpark(Tables* t, int levels) except -1 nogil:
    """Whoever may fit now comes back: those of the levels that are decided when it is their turn, for by then most are blocked again."""
    cdef uint32_t at
    cdef int qos
    if t.frees != t.parked_frees or t.parked_behind & levels:
        t.parked_frees = t.frees
        t.parked_behind = 0
        for at in range(t.parked_tasks.size):
            touch_gang(t, t.tasks[t.parked_tasks.at[at]].gang)
    settle_gangs(t)
    refresh(t)
    grow(<void**> &t.shut, &t.shut_capacity, 1, t.shapes_used)
    note_shut(t, SHUT_NOW | SHUT_BEFORE)
    for qos in range(LEVELS):
        if not (levels >> qos) & 1 and levels >> qos:
            set_aside(t, qos)
        elif not (levels >> qos) & 1 or not comes_late(t):
            unpark_level(t, qos, SHUT_NOW)
    return 0


cdef int set_aside(Tables* t, int qos) except -1 nogil:
    """Who waits at a more urgent level that is not decided now was decided before, and is blocked: by what it lacks, or by the reservation of
    one that goes before it. For all below it is blocked even where there is room, or they would take in this decision what was kept for it."""
    cdef uint32_t lane
    while t.active[qos].size > 0:
        lane = line_of(t, t.active[qos].at[0], qos).tried.at[0].lane
        if t.lanes[lane].shape == NONE_:
            park_task(t, lane_head(t, &t.lanes[lane]))
            t.parked_behind |= 1 << qos
        else:
            park_lane(t, lane)
    return 0


cdef inline bint comes_late(Tables* t) noexcept nogil:
    """Nothing depends on whether a lane that is blocked has been tried: not who may stop whom, nor what waits by choice or by its queue."""
    return t.order != 1 and t.scarce == 0 and not t.has_guarantees and not lends(t)


cdef void note_shut(Tables* t, uint8_t bits) noexcept nogil:
    """Which shapes fit nowhere. One without a column may fit, and gets one when it is tried."""
    cdef uint32_t tree, at, slot
    cdef uint8_t* root
    for at in range(t.shapes_used):
        t.shut[at] &= ~bits
    for tree in range(t.trees_used):
        root = cell_of(&t.trees[tree], t.tree_depth - 1, 0)
        for at in range(COLUMNS):
            slot = t.trees[tree].shape[at]
            if slot != NONE_ and root[at] == 0:
                t.shut[slot] |= bits


cdef int unpark_level(Tables* t, int qos, uint8_t bit) except -1 nogil:
    """Lanes of the level whose shape was not shut then."""
    cdef ParkedList* parked = &t.parked[qos]
    cdef int64_t at
    cdef uint32_t slot
    for at in range(<int64_t> parked.size - 1, -1, -1):
        if t.shut[parked.at[at].shape] & bit:
            continue
        slot = parked.at[at].lane
        if within_limits(t, t.lanes[slot].queue, &t.shapes[t.lanes[slot].shape]) if bit == SHUT_BEFORE else may_try(t, &t.lanes[slot]):
            unpark_lane(t, slot)
            try_lane(t, slot)
    return 0


cdef int begin_level(Tables* t, int qos) except -1 nogil:
    """Who comes back now. Beside a reservation those, too, who would have fitted before its nodes were closed: they may be let onto these."""
    if not comes_late(t) or t.nodes_used == 0:
        return 0
    if t.seats_closed:
        return unpark_level(t, qos, SHUT_BEFORE)
    refresh(t)
    if t.parked[qos].size == 0:
        return 0
    note_shut(t, SHUT_NOW)
    return unpark_level(t, qos, SHUT_NOW)


cdef bint has_untried_behind(Tables* t, uint32_t head, int qos) noexcept nogil:
    """Some lane of the level is behind this head that might have been tried when the decision began, and was not, because it was blocked by then."""
    cdef ParkedLane* entry
    cdef uint32_t at
    for at in range(t.parked[qos].size):
        entry = &t.parked[qos].at[at]
        if (not t.shut[entry.shape] & SHUT_BEFORE and t.lanes[entry.lane].parked_round != t.rounds
                and is_sooner(t, head, t.lanes[entry.lane].head)):
            return True
    return False


cdef bint may_try(Tables* t, LaneRecord* lane) noexcept nogil:
    """Without nodes nobody; a shape parked before it got a column may, and gets one when its head is tried."""
    cdef ShapeRecord* shape = &t.shapes[lane.shape]
    if t.nodes_used == 0 or is_behind_claim(t, lane_head(t, lane)):
        return False
    cdef int64_t until_ns = waits_until(t, lane)
    if until_ns > 0:
        look_again(t, until_ns)
        return False
    return (shape.column == NONE_ or best_byte(t, shape) != 0) and within_limits(t, lane.queue, shape)


cdef int64_t place_level(Tables* t, int qos, uint8_t code, bint preempt) except -1 nogil:
    """Until nothing at this level may be tried any more. From the turn of the first blocked head on, what it needs is kept for it."""
    cdef int64_t placed = 0, more
    cdef uint64_t parks = 0, claimed_parks = 0
    cdef uint32_t lane, head = NONE_
    begin_level(t, qos)
    while True:
        next_lane(t, qos, &lane)
        if not t.seats_closed and parks != t.parks:
            parks = t.parks
            head = blocked_head(t, qos)
        if not t.seats_closed and head != NONE_ and is_behind(t, lane, head, qos):
            if preempt and claims_first(t, head, qos, code):
                parks = 0
            elif t.strict:
                t.halted = has_a_place(t, head)
                if t.halted:
                    return placed
                no_start(t, head)
                head = blocked_head(t, qos)
            elif reserve(t, head):
                close_seats(t, True)
            else:
                head = blocked_head(t, qos)
            continue
        if lane == NONE_:
            return placed
        if t.room <= 0:
            t.room, t.halted = -1, True
            return placed
        if preempt and claimed_parks != t.parks and may_be_stopped_at_once(t, lane_head(t, &t.lanes[lane])):
            claimed_parks = t.parks
            if claim_level(t, qos, code, True):
                parks = 0      # the head may be one of those who claim now
                continue
        if t.lanes[lane].shape == NONE_:
            more = try_gang_in_turn(t, lane_head(t, &t.lanes[lane]), code)
            settle_gangs(t)
        else:
            more = place_head(t, lane, code)
        placed += more
        t.room -= more
        if more > 0 and comes_late(t):
            parks = 0          # by other shares another of those who are blocked may go first


cdef inline bint stops_equals(Tables* t, uint32_t task) noexcept nogil:
    """Once it is blocked it may stop others of its own level."""
    return (t.has_guarantees and is_owed(t, task)) or (lends(t) and not is_soft(t, task))


cdef inline bint may_be_stopped_at_once(Tables* t, uint32_t task) noexcept nogil:
    """By such a one: they claim what they can before it starts, so that nobody is started and stopped in one breath."""
    return (t.has_guarantees and not is_owed(t, task)) or (lends(t) and is_soft(t, task))


cdef int64_t try_gang_in_turn(Tables* t, uint32_t task, uint8_t code) except -1 nogil:
    """Reserved nodes are open to a gang that will be gone by then."""
    cdef bint closed = t.seats_closed
    cdef int64_t placed
    if closed and is_gone_in_time(t, task):
        close_seats(t, False)
    placed = try_gang(t, task, code)
    close_seats(t, closed)
    return placed


cdef int next_lane(Tables* t, int qos, uint32_t* lane) except -1 nogil:
    if t.gang_share > 0 and gang_lane(t, qos, lane):
        return 0
    if t.order == 1:
        return heaviest_lane(t, qos, lane)
    lane[0] = best_lane(t, qos)
    return 0


cdef inline bint may_claim(Tables* t, int qos) noexcept nogil:
    """The lowest level has nobody below it, but a queue may take back from its equals, whoever is firm from who is not, and equals may be moved."""
    return qos < LEVELS - 1 or t.has_guarantees or lends(t) or t.consolidate == MOVE_EQUAL_


cdef int claims_first(Tables* t, uint32_t head, int qos, uint8_t code) except -1 nogil:
    """1: the blocked head has a claim now, so nothing need be kept for it."""
    cdef uint32_t who
    if qos_of(&t.tasks[head]) != qos:
        return 0
    if t.tasks[head].gang == NONE_:
        lane_of(t, &t.tasks[head], &who)
    else:
        who = head | GANG_BIT
    if no_proof_of(t, who)[0] == t.changes:
        return 0
    if claims(t, who, code):
        return 1
    no_proof_of(t, who)[0] = t.changes
    return 0


cdef bint is_behind(Tables* t, uint32_t lane, uint32_t head, int qos) noexcept nogil:
    """The blocked head goes before this lane; or, where nothing is left to try at the level, before those who wait below it."""
    cdef int below
    if lane != NONE_:
        return is_sooner(t, head, lane_head(t, &t.lanes[lane]))
    for below in range(qos + 1, LEVELS):
        if t.waiting[below] > 0:
            return True
    return has_untried_behind(t, head, qos)


cdef int64_t place_head(Tables* t, uint32_t lane, uint8_t code) except -1 nogil:
    """The head of this lane, or the lane is parked."""
    cdef uint32_t pieces[MAX_PIECES]
    cdef uint32_t node
    cdef int worst, count
    cdef ShapeRecord* shape = &t.shapes[t.lanes[lane].shape]
    if t.nodes_used == 0:
        return park_lane(t, lane)
    want_column(t, t.lanes[lane].shape)
    refresh(t)
    if not may_try(t, &t.lanes[lane]):
        if t.seats_closed and backfill(t, lane, code):
            return 1
        return park_lane(t, lane)
    if t.policy == POLICY_RANDOM_:
        node = random_node(t, shape, t.tasks[lane_head(t, &t.lanes[lane])].sequence ^ (t.changes + RANDOM_STREAM) << 32)
    else:
        node = wished_node(t, lane_head(t, &t.lanes[lane]), shape)
    send_for_families(t, node)
    if t.nodes[node].allocation_first != NONE_:
        prefetch(&t.allocations[t.nodes[node].allocation_first])
    count = fit(t, node, shape, pieces, &worst)
    assert count >= 0, "a leaf that is not 0 means that the shape fits"
    t.lane_found = lane
    do_placed(t, lane_head(t, &t.lanes[lane]), node, code, pieces, count)
    return 1


cdef uint32_t wished_node(Tables* t, uint32_t task, ShapeRecord* shape) noexcept nogil:
    """The node that the task is wished to, if it fits there; else the best. The shape is not blocked."""
    cdef uint32_t at, node
    for at in range(0, t.wishes.size, 2):
        node = t.wishes.at[at + 1]
        if t.wishes.at[at] == task and cell_of(&t.trees[shape.column // COLUMNS], 0, node)[shape.column % COLUMNS] != 0:
            return node
    if t.scarce != 0 and best_byte(t, shape) == WASTEFUL and may_be_patient(t, shape):
        return least_wasteful(t, shape)
    return best_node(t, shape)


# ---------------------------------------------------------------- claims of a level
# Who may claim is a lane, whose head claims, or a gang: then the task that stands for it, with GANG_BIT.

cdef enum:
    GANG_BIT = 0x80000000


cdef inline uint32_t claimer(Tables* t, uint32_t who) noexcept nogil:
    """The task, or NONE for a lane that has nobody any more."""
    return who & ~<uint32_t> GANG_BIT if who & GANG_BIT else lane_head(t, &t.lanes[who])


cdef inline uint64_t* no_proof_of(Tables* t, uint32_t who) noexcept nogil:
    return &t.gangs[t.tasks[who & ~<uint32_t> GANG_BIT].gang].no_proof if who & GANG_BIT else &t.lanes[who].no_proof


cdef int claims(Tables* t, uint32_t who, uint8_t code) except -1 nogil:
    cdef int found
    if is_patient(t, claimer(t, who)) or is_held_up(t, claimer(t, who)):
        return 0
    close_kept(t, True)
    found = claim_gang(t, claimer(t, who), code) if who & GANG_BIT else claim_head(t, who, code)
    if not found and t.consolidate == MOVE_EQUAL_ and qos_of(&t.tasks[claimer(t, who)]) >= 2:
        t.moving = True
        found = claim_gang(t, claimer(t, who), code) if who & GANG_BIT else claim_head(t, who, code)
        t.moving = False
    close_kept(t, False)
    return found


cdef int64_t delay_of(Tables* t, uint32_t queue) noexcept nogil:
    """Of the innermost queue of the line that says one."""
    while queue != NONE_ and t.queues[queue].delay_ns < 0:
        queue = t.queues[queue].parent
    return t.delay_ns if queue == NONE_ else t.queues[queue].delay_ns


cdef bint is_patient(Tables* t, uint32_t task) noexcept nogil:
    """It, or the last of its gang, has not waited long enough to stop anybody."""
    cdef int64_t since_ns = t.tasks[task].changed_ns
    cdef int64_t delay_ns = delay_of(t, t.tasks[task].queue)
    cdef GangRecord* gang
    cdef uint32_t at
    if delay_ns == 0:
        return False
    if t.tasks[task].gang != NONE_:
        gang = &t.gangs[t.tasks[task].gang]
        for at in range(gang.members.size):
            if is_waiting(&t.tasks[gang.members.at[at]]):
                since_ns = max(since_ns, t.tasks[gang.members.at[at]].changed_ns)
    if t.now_ns >= since_ns + delay_ns:
        return False
    look_again(t, since_ns + delay_ns)
    return True


cdef int claim_in_turn(Tables* t, uint32_t who, uint8_t code) except -1 nogil:
    """Reserved nodes are open to the claims of the task they are reserved for, and of a gang that will be gone by then."""
    cdef bint closed = t.seats_closed
    cdef int found
    if closed and (is_reserved_for(t, claimer(t, who)) or who & GANG_BIT and is_gone_in_time(t, claimer(t, who))):
        close_seats(t, False)
    found = claims(t, who, code)
    close_seats(t, closed)
    return found


cdef int gather_hungry(Tables* t, int qos, bint of_equals, Slots* hungry) except -1 nogil:
    """Who is blocked at the level, without those who found no proof since anything changed; `of_equals`: only who may stop those of the level."""
    cdef uint32_t at, lane, task
    for at in range(t.parked[qos].size):
        lane = t.parked[qos].at[at].lane
        if t.lanes[lane].no_proof != t.changes and waits_until(t, &t.lanes[lane]) == 0 and (
                not of_equals or stops_equals(t, lane_head(t, &t.lanes[lane]))):
            push(hungry, lane)
    for at in range(t.parked_tasks.size):
        task = t.parked_tasks.at[at]
        if qos_of(&t.tasks[task]) == qos and t.gangs[t.tasks[task].gang].no_proof != t.changes and (not of_equals or stops_equals(t, task)):
            push(hungry, task | GANG_BIT)
    return 0


cdef int claim_level(Tables* t, int qos, uint8_t code, bint of_equals) except -1 nogil:
    """Blocked lanes and gangs of the level, fairest first, each until its head finds no proof; returns how many claims there were. A claim
    only takes away, so what failed before it would fail after it: those that failed are not searched again before something else changes."""
    cdef Slots hungry
    cdef uint32_t at, best, who, tried = 0
    cdef int claimed = 0
    memset(&hungry, 0, sizeof(Slots))
    gather_hungry(t, qos, of_equals, &hungry)
    while tried < hungry.size:
        best = tried
        for at in range(tried + 1, hungry.size):
            if fairer_task(t, claimer(t, hungry.at[at]), claimer(t, hungry.at[best])):
                best = at
        who = hungry.at[best]
        if claim_in_turn(t, who, code) == 0:
            hungry.at[best] = hungry.at[tried]
            hungry.at[tried] = who
            tried += 1
            continue
        claimed += 1
        if who & GANG_BIT or claimer(t, who) == NONE_:
            hungry.size -= 1
            hungry.at[best] = hungry.at[hungry.size]
    for at in range(hungry.size):
        no_proof_of(t, hungry.at[at])[0] = t.changes
    drop_slots(&hungry)
    return claimed
