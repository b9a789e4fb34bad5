# Whom a blocked head may stop to get in: a proof, or nobody.
#
# Promises: a victim is preemptible, of a strictly lower qos (never critical; of the same where capacity is taken back, see reclaim), not stopping and not another claim's. For the chosen node the
# set is minimal: with any one unit put back the preemptor does not fit (units: tasks, or whole gangs that would else fall below
# their least). Nothing is stopped where it does not help; what the set holds of devices is at most blast_radius x what is asked (one
# device at least). Over nodes the cheapest: least urgent victims first, then who borrows, then least lost work, then lowest slot.
#
# Nobody is stopped where those who leave anyhow (victims of earlier claims) will leave room.
#
# How: everybody who may go is lifted off the node (the same arithmetic as a real end, on the real tables, put back afterwards). If it
# fits then, they are put back and lifted one by one, least urgent and cheapest first, until it fits; then put back one by one, dearest
# first, wherever it still fits without. Fitting is monotone in what is lifted, so the result is minimal. It need not be the cheapest: where
# less may do, by a bound from below, the node is searched afterwards (cheapest), most promising first, for so long as LOOKS last.
# Lost work in device-milliseconds: device share x time since start or since the last multiple of the checkpoint; without devices cores.

cdef bint is_hopeless(Tables* t, uint32_t node, ShapeRecord* shape, int preemptor_qos) noexcept nogil:
    """Seen without looking at anybody."""
    cdef NodeRecord* record = &t.nodes[node]
    cdef int qos
    cdef uint32_t evictable = 0
    if not record.is_open or record.cpu_milli < shape.cpu_milli or record.memory_bytes < shape.memory_bytes:
        return True
    if record.device_count < shape.device_count or level_of(shape, node) == 0:
        return True
    for qos in range(preemptor_qos + (t.owner == NONE_ and not t.moving), LEVELS):
        evictable += record.evictable[qos]
    return evictable == 0 and not may_reclaim_here(t, record, shape)


cdef bint find_minimal(Tables* t, uint32_t task, uint32_t node, Slots* leaving) noexcept nogil:
    """Lifts a minimal set of the node's units; leaves nothing lifted and returns 0 if there is none."""
    cdef uint32_t pieces[MAX_PIECES]
    cdef int64_t at
    if gets_in(t, task, node, pieces) >= 0:
        return False
    for at in range(t.units_size):
        if is_still_borrowed(t, <uint32_t> at):
            lift(t, <uint32_t> at)
    if gets_in(t, task, node, pieces) < 0:
        put_all_back(t)
        return False
    put_all_back(t)
    for at in range(t.units_size):
        if is_still_borrowed(t, <uint32_t> at):
            lift(t, <uint32_t> at)
        if gets_in(t, task, node, pieces) >= 0:
            break
    for at in range(<int64_t> t.units_size - 1, -1, -1):
        if not t.units[at].is_in:
            continue
        if t.units[at].gang == NONE_ and t.tasks[t.units[at].task].gang != NONE_ and has_whole(t, t.tasks[t.units[at].task].gang, True):
            continue
        put_back(t, <uint32_t> at)
        if gets_in(t, task, node, pieces) < 0:
            lift(t, <uint32_t> at)
    if not is_needed_in_time(t, task, node, leaving):
        put_all_back(t)
        return False
    return True


cdef inline bint is_needed_in_time(Tables* t, uint32_t task, uint32_t node, Slots* leaving) noexcept nogil:
    """All of the set that is lifted, with those gone who leave anyhow, and beside the holes of others."""
    return ((leaving.size == 0 or is_minimal_later(t, task, node, leaving))
            and (t.nodes[node].claims == 0 or is_minimal_beside_holes(t, task, node)))


cdef int lifted_tasks(Tables* t, Slots* victims) except -1 nogil:
    """Everybody who is lifted, unit by unit."""
    cdef uint32_t at, other, member
    for at in range(t.units_size):
        if not t.units[at].is_in:
            continue
        if t.units[at].gang == NONE_:
            push(victims, t.units[at].task)
            continue
        for other in range(t.gangs[t.units[at].gang].members.size):
            member = t.gangs[t.units[at].gang].members.at[other]
            if is_live(&t.tasks[member]) and t.allocations[t.tasks[member].place].lifted_by == at + 1:
                push(victims, member)
    return 0


cdef bint is_within_reach(Tables* t, uint32_t task) noexcept nogil:
    """Those in `lifted` hold no more devices than it may stop, and need no less time to go than those for whom it would wait."""
    if t.claimers.size > 0 and not outlasts_earlier_claims(t, task, &t.lifted):
        return False
    return t.blast_radius == 0 or devices_of(t, &t.lifted) <= t.blast_radius * max(<int64_t> 1000, t.shapes[t.tasks[task].shape].device_milli)


cdef int keep_if_cheaper(Tables* t, uint32_t task, uint32_t node) except -1 nogil:
    """The set that is lifted now against the plan so far. Returns 0 if it may not be stopped, else 1."""
    cdef uint32_t at
    cdef int64_t lost
    cdef uint8_t victim_qos
    cdef uint32_t own
    cdef TrialRecord seat
    cdef bint moves
    cdef Plan* plan = &t.plan
    t.lifted.size = 0
    lifted_tasks(t, &t.lifted)
    lost = work_of(t, &t.lifted)
    victim_qos = most_urgent(t, &t.lifted)
    if not is_within_reach(t, task):
        return 0
    own = count_own(t, &t.lifted)
    if plan.node != NONE_ and (victim_qos < plan.victim_qos or (victim_qos == plan.victim_qos and (
            own > plan.own or (own == plan.own and lost > plan.lost)))):
        return 1
    seat.task = task
    seat.node = node
    seat.count = <uint32_t> gets_in(t, task, node, seat.pieces)
    if not levels_out(t, &t.lifted, &seat, 1):
        return 0
    moves = is_move(t, &t.lifted, &seat, 1)
    if t.moving and not moves:
        return 0
    if not is_better_plan(plan, plan.node == NONE_, victim_qos, own, lost, t.lifted.size if node == plan.node else NONE_, moves):
        return 1
    plan.victims.size = 0
    for at in range(t.lifted.size):
        push(&plan.victims, t.lifted.at[at])
    plan.node = node
    plan.is_reclaim = t.taking != TAKING_NONE
    plan.lost = lost
    plan.victim_qos = victim_qos
    plan.own = own
    plan.is_move = moves
    plan.count = seat.count
    memcpy(plan.pieces, seat.pieces, seat.count * sizeof(uint32_t))
    return 1


# ---------------------------------------------------------------- node by node

cdef bint open_kept(Tables* t, uint32_t node) noexcept nogil:
    """It is kept for a reservation: opened for a moment, for who delays nobody."""
    cdef bint is_kept = is_closed_seat(t, node) and not is_kept_room(t, node)
    t.nodes[node].is_open |= is_kept
    return is_kept


cdef int try_node(Tables* t, uint32_t task, uint32_t node, int qos, Slots* leaving) except -1 nogil:
    """The greedy set against the plan so far; and whether the node is worth a search."""
    cdef SeatPrice* promise = &t.seat_prices[node]
    cdef bint is_kept = open_kept(t, node)
    cdef bint is_allowed
    promise.is_possible = False
    if not is_hopeless(t, node, &t.shapes[t.tasks[task].shape], qos):
        begin_taking(t, node, &t.shapes[t.tasks[task].shape])
        gather_units(t, node, qos)
        if find_minimal(t, task, node, leaving):
            is_allowed = (not is_kept or delays_nobody(t, task, node)) and keep_if_cheaper(t, task, node)
            promise_of_node(t, task, node, is_allowed)
            put_all_back(t)
    t.nodes[node].is_open &= not is_kept
    return 0


cdef void promise_of_node(Tables* t, uint32_t task, uint32_t node, bint is_allowed) noexcept nogil:
    """From the greedy set, which is lifted, at what level and for how little there may be another one. The last unit lifted, or
    one that goes after it, is in every set of that level, as those before it do not suffice: so if it does alone it is the best."""
    cdef SeatPrice* promise = &t.seat_prices[node]
    cdef SetSearch s
    cdef Lack lack
    cdef uint32_t at, units = 0
    cdef int64_t least = 0
    promise.victim_qos = LEVELS
    promise.own = 0
    for at in range(t.units_size):
        if t.units[at].is_in:
            units += 1
            promise.victim_qos = min(promise.victim_qos, t.units[at].qos)
            least = t.units[at].lost
    if is_allowed and (units == 1 or (t.plan.node != NONE_ and promise.victim_qos < t.plan.victim_qos)):
        return
    if is_allowed and not t.has_guarantees and least > t.plan.lost and promise.victim_qos == t.plan.victim_qos:
        return
    put_all_back(t)
    s.task = task
    s.node = node
    open_units(t, &s, promise.victim_qos)
    count_lack(t, &s, &lack)
    promise.is_possible = True
    promise.lost = lack.lost


cdef inline bint may_beat_plan(Tables* t, uint32_t node) noexcept nogil:
    cdef SeatPrice* promise = &t.seat_prices[node]
    cdef Plan* plan = &t.plan
    if not promise.is_possible or plan.node == NONE_ or promise.victim_qos != plan.victim_qos:
        return promise.is_possible and (plan.node == NONE_ or promise.victim_qos > plan.victim_qos)
    return plan.own > 0 or promise.lost < plan.lost or (promise.lost == plan.lost and node == plan.node and plan.victims.size > 1)


cdef int search_nodes(Tables* t, uint32_t task, int qos, Slots* leaving) except -1 nogil:
    """Those that may have something better, most promising first."""
    cdef uint32_t node, best = 0
    while t.looks_left > 0 and best != NONE_:
        best = NONE_
        for node in range(t.nodes_used):
            if may_beat_plan(t, node) and (best == NONE_ or is_cheaper(&t.seat_prices[node], &t.seat_prices[best])):
                best = node
        t.looks_left -= t.nodes_used >> 4
        if best != NONE_:
            t.seat_prices[best].is_possible = False
            search_node(t, task, best, qos, leaving)
    return 0


cdef int search_node(Tables* t, uint32_t task, uint32_t node, int qos, Slots* leaving) except -1 nogil:
    """From the level of the greedy set on, which no other set is below, to that of the plan."""
    cdef SetSearch s
    cdef int level = t.seat_prices[node].victim_qos
    s.task = task
    s.node = node
    s.leaving = leaving
    s.is_kept = open_kept(t, node)
    begin_taking(t, node, &t.shapes[t.tasks[task].shape])
    gather_units(t, node, qos)
    while level >= 0 and (t.plan.node == NONE_ or level >= t.plan.victim_qos):
        s.own = s.victims = NONE_
        s.lost = INT64_MAX
        if t.plan.node != NONE_ and level == t.plan.victim_qos:
            s.own = t.plan.own
            s.lost = t.plan.lost
            s.victims = t.plan.victims.size if node == t.plan.node else 0
        open_units(t, &s, level)
        search_sets(t, &s, 0, 0)
        if s.is_found:
            lift_best(t)
            keep_if_cheaper(t, task, node)
            put_all_back(t)
        level -= 1
    t.nodes[node].is_open &= not s.is_kept
    return 0


cdef int claim_head(Tables* t, uint32_t lane, uint8_t code) except -1 nogil:
    """The head of a blocked lane claims the cheapest proof. Returns 0 if there is none, else 1."""
    cdef uint32_t task = lane_head(t, &t.lanes[lane])
    cdef ShapeRecord* shape = &t.shapes[t.tasks[task].shape]
    cdef int qos = qos_of(&t.tasks[task])
    cdef uint32_t node
    cdef Slots leaving
    memset(&leaving, 0, sizeof(Slots))
    gather_leaving(t, &leaving)
    begin_reclaim(t, task)
    t.newcomer_milli = shape.device_milli
    t.newcomer_cpu = shape.cpu_milli
    t.plan.node = NONE_
    if leaving.size > 0 and is_to_wait(t, task, &leaving):
        drop_slots(&leaving)
        return 0
    begin_looking(t)
    grow(<void**> &t.seat_prices, &t.seat_prices_capacity, sizeof(SeatPrice), t.nodes_used)
    for node in range(t.nodes_used):
        try_node(t, task, node, qos, &leaving)
    search_nodes(t, task, qos, &leaving)
    t.taking = TAKING_NONE
    drop_slots(&leaving)
    if t.plan.node == NONE_:
        return 0
    do_claimed(t, task, t.plan.node, code, t.plan.lost, t.plan.pieces, <int> t.plan.count, t.plan.victims.at, <int> t.plan.victims.size)
    return 1
