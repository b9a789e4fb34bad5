# Whom a blocked gang may stop to get in: a proof for all the seats that it needs, or nobody.
#
# Promises: what victims promises for one task, over the seats of as many members as must start together: strictly lower qos (or the same,
# where all of it is owed to their queue: reclaim), minimal (with any one unit put back they do not all find a seat), at most blast_radius x
# what they ask for together, least urgent victims first, then who borrows, then least lost work, then a move (consolidate), then fewest; within one domain if
# they must share it. Each seat is a claim of its own, some without victims; none becomes a
# placement before all can (redeem), and with one of them all are given up (do_unclaimed). A gang that is partly there asks nobody to go.
# Nobody is stopped for the limit of its queue: there it waits. Where a seat lacks cores or memory that soft tasks hold, these give way as they
# do for one task (overcommit).
#
# How: seat by seat on the cheapest node, with the victims so far lifted and the seats so far held; equal members share one price list, so a
# node is searched once, and again when it changed. Where unlike members find no seats that way, all who may go are lifted: if they do then, who has
# least choice is seated first, and where that fails too all go of the nodes that were found. Then the units are put back one by one, dearest first, wherever the first-fit of
# seat_members still seats all without; and a cheaper set is searched for, for all seats together (gang_cheapest). The first-fit is the proof: the
# members whom nobody is stopped for fit by it, too.

# ---------------------------------------------------------------- what a seat costs

cdef int price_seat(Tables* t, uint32_t member, uint32_t node, int qos) except -1 nogil:
    """Into `seat_prices`: whom the cheapest seat for this member here costs, beside all who are doomed and seated already."""
    cdef uint32_t pieces[MAX_PIECES]
    cdef Slots nobody
    cdef uint32_t at
    cdef SeatPrice* price = &t.seat_prices[node]
    memset(&nobody, 0, sizeof(Slots))
    price.is_possible = gets_in(t, member, node, pieces) >= 0
    price.victim_qos = LEVELS
    price.own = 0
    price.lost = 0
    if price.is_possible or is_hopeless(t, node, &t.shapes[t.tasks[member].shape], qos):
        return 0
    begin_taking(t, node, &t.shapes[t.tasks[member].shape])
    gather_units(t, node, qos)
    if find_minimal(t, member, node, &nobody):
        price.is_possible = True
        if t.has_guarantees:
            t.lifted.size = 0
            lifted_tasks(t, &t.lifted)
            price.own = count_own(t, &t.lifted)
        for at in range(t.units_size):
            if t.units[at].is_in:
                price.victim_qos = min(price.victim_qos, t.units[at].qos)
                price.lost += t.units[at].lost
        put_all_back(t)
    t.taking = TAKING_NONE
    return 0


cdef inline bint is_cheaper(SeatPrice* one, SeatPrice* other) noexcept nogil:
    if one.victim_qos != other.victim_qos:
        return one.victim_qos > other.victim_qos
    return one.own < other.own or (one.own == other.own and one.lost < other.lost)


cdef uint32_t cheapest_seat(Tables* t, int column, int64_t value) noexcept nogil:
    """Lowest node of the lowest price in the domain, or NONE."""
    cdef uint32_t node, best = NONE_
    for node in range(t.nodes_used):
        if t.seat_prices[node].is_possible and in_domain(t, node, column, value):
            if best == NONE_ or is_cheaper(&t.seat_prices[node], &t.seat_prices[best]):
                best = node
    return best


cdef int take_seat(Tables* t, uint32_t member, uint32_t node, int qos) except -1 nogil:
    """Dooms whom the seat costs and holds it; every node that changed has a new price."""
    cdef Slots nobody
    cdef TrialRecord* entry
    cdef uint32_t at, before = t.doomed.size
    memset(&nobody, 0, sizeof(Slots))
    if t.seat_prices[node].victim_qos < LEVELS:
        begin_taking(t, node, &t.shapes[t.tasks[member].shape])
        t.took |= t.taking != TAKING_NONE
        gather_units(t, node, qos)
        find_minimal(t, member, node, &nobody)
        cheapen_seat(t, member, node)
        t.taking = TAKING_NONE
        lifted_tasks(t, &t.doomed)
        for at in range(before, t.doomed.size):
            t.allocations[t.tasks[t.doomed.at[at]].place].lifted_by = DOOMED
    grow(<void**> &t.trial, &t.trial_capacity, sizeof(TrialRecord), <uint64_t> t.trial_size + 1)
    entry = &t.trial[t.trial_size]
    t.trial_size += 1
    entry.task = member
    entry.node = node
    entry.count = <uint32_t> gets_in(t, member, node, entry.pieces)
    hold_trial(t, entry, 1)
    t.seated = t.trial_size
    price_seat(t, member, node, qos)
    for at in range(before, t.doomed.size):
        if t.allocations[t.tasks[t.doomed.at[at]].place].node != node:
            price_seat(t, member, t.allocations[t.tasks[t.doomed.at[at]].place].node, qos)
    return 0


cdef int seat_by_price(Tables* t, Head* head, int64_t value, int qos) except -1 nogil:
    """Victims into `doomed`, lifted; nobody is seated afterwards. Returns 1 if every member needed found a seat, in the order given."""
    cdef uint32_t at, node, member, priced = NONE_, failed = NONE_
    grow(<void**> &t.seat_prices, &t.seat_prices_capacity, sizeof(SeatPrice), t.nodes_used)
    t.trial_size = 0
    t.doomed.size = 0
    t.took = False
    for at in range(head.members.size):
        member = head.members.at[at]
        if t.tasks[member].shape == failed or t.trial_size == head.needed:
            continue
        if t.tasks[member].shape != priced:
            priced = t.tasks[member].shape
            for node in range(t.nodes_used):
                price_seat(t, member, node, qos)
        node = cheapest_seat(t, head.column, value)
        if node == NONE_:
            failed = priced
        else:
            take_seat(t, member, node, qos)
    for at in range(t.trial_size):
        hold_trial(t, &t.trial[at], -1)
    t.seated = 0
    return t.trial_size >= head.needed


# ---------------------------------------------------------------- unlike members

cdef int doom_node(Tables* t, uint32_t node, int qos) except -1 nogil:
    """All who may go of it."""
    cdef uint32_t at, before = t.doomed.size
    if not t.nodes[node].is_open:
        return 0
    gather_units(t, node, qos)
    for at in range(t.units_size):
        if is_still_borrowed(t, at):
            lift(t, at)
    lifted_tasks(t, &t.doomed)
    for at in range(before, t.doomed.size):
        t.allocations[t.tasks[t.doomed.at[at]].place].lifted_by = DOOMED
    return 0


cdef int spare_all(Tables* t) except -1 nogil:
    """Nobody is lifted any more."""
    lift_doomed(t, 0, t.doomed.size, -1)
    t.units_size = 0
    t.doomed.size = 0
    return 0


cdef int doom_for_unlike(Tables* t, Head* head, int64_t value, int qos) except -1 nogil:
    """As seat_by_price, where the order of the members counts: least choice first, else all who may go of the nodes that would do."""
    cdef Head tried = head[0]
    cdef Slots nodes
    cdef Search search
    cdef uint32_t at, node
    cdef int found = 0
    spare_all(t)
    for node in range(t.nodes_used):
        if in_domain(t, node, head.column, value):
            doom_node(t, node, qos)
    if seat_members(t, head, value) < head.needed:
        return 0
    memset(&nodes, 0, sizeof(Slots))
    for at in range(t.trial_size):
        if not was_seen(&nodes, t.trial[at].node):
            push(&nodes, t.trial[at].node)
    memset(&tried.members, 0, sizeof(Slots))
    if gather_kinds(t, head, &search) and look_around(t, head, value, &search):
        by_choice(t, head, &search, &tried.members)
        spare_all(t)
        found = seat_by_price(t, &tried, value, qos) and seat_members(t, head, value) >= head.needed
    drop_slots(&tried.members)
    if not found:
        spare_all(t)
        t.took = False
        for at in range(nodes.size):
            doom_node(t, nodes.at[at], qos)
        found = seat_members(t, head, value) >= head.needed
    drop_slots(&nodes)
    return found


# ---------------------------------------------------------------- the whole set

cdef void lift_doomed(Tables* t, uint32_t begin, uint32_t end, int sign) noexcept nogil:
    """Tasks of `doomed` from begin to end: off their nodes (1) or back (-1)."""
    cdef uint32_t at
    for at in range(begin, end):
        t.allocations[t.tasks[t.doomed.at[at]].place].lifted_by = DOOMED if sign > 0 else 0
        lift_task(t, t.doomed.at[at], sign)


cdef bint is_whole(Tables* t, uint32_t gang) noexcept nogil:
    """The gang falls below its least by what is doomed, so that it goes as a whole."""
    cdef Census census = count_members(t, &t.gangs[gang])
    cdef uint32_t at
    cdef int64_t left = <int64_t> census.live + t.gangs[gang].succeeded
    for at in range(t.doomed.size):
        left -= t.tasks[t.doomed.at[at]].gang == gang
    return left < t.gangs[gang].min_size


cdef int sort_doomed(Tables* t) except -1 nogil:
    """`units` anew, one a task or whole gang, dearest first; `doomed` in their order. A unit's first task says where its run begins."""
    cdef uint32_t at, other, task, gang
    cdef uint32_t count = t.doomed.size
    t.units_size = 0
    for at in range(count):
        hold_in_queue(t, t.doomed.at[at], 1)
    for at in range(count):
        task = t.doomed.at[at]
        gang = t.tasks[task].gang
        if gang == NONE_ or not is_whole(t, gang):
            add_unit(t, task, NONE_)
        elif not has_whole(t, gang, False):
            add_unit(t, task, gang)
    sort_units(t)
    if t.has_guarantees:
        mark_own(t)
        sort_units(t)
    for at in range(count):
        hold_in_queue(t, t.doomed.at[at], -1)
    for at in range(t.units_size):
        if t.units[at].gang == NONE_:
            push(&t.doomed, t.units[at].task)
            continue
        for other in range(count):
            if t.tasks[t.doomed.at[other]].gang == t.units[at].gang:
                push(&t.doomed, t.doomed.at[other])
    memmove(t.doomed.at, t.doomed.at + count, count * sizeof(uint32_t))
    t.doomed.size = count
    return 0


cdef inline uint32_t run_begin(Tables* t, uint32_t end) noexcept nogil:
    """Where the last unit of `doomed` up to `end` begins."""
    cdef uint32_t gang = t.tasks[t.doomed.at[end - 1]].gang
    cdef uint32_t begin = end - 1
    if gang != NONE_ and has_whole(t, gang, False):
        while begin > 0 and t.tasks[t.doomed.at[begin - 1]].gang == gang:
            begin -= 1
    return begin


cdef int spare_whom_nobody_needs(Tables* t, Head* head, int64_t value) except -1 nogil:
    """Dearest first, back to where they were. `doomed` is lifted before and after."""
    cdef uint32_t begin, end, count
    sort_doomed(t)
    end = t.doomed.size
    while end > 0:
        begin = run_begin(t, end)
        count = end - begin
        lift_doomed(t, begin, end, -1)
        if seat_members(t, head, value) >= head.needed:
            memmove(t.doomed.at + begin, t.doomed.at + end, (t.doomed.size - end) * sizeof(uint32_t))
            t.doomed.size -= count
        else:
            lift_doomed(t, begin, end, 1)
        end = begin
    return 0


cdef int is_needed_later(Tables* t, Head* head, int64_t value, Slots* leaving) except -1 nogil:
    """1: each unit is still needed with those gone who leave anyhow, too, and if nothing was kept for others who claim."""
    cdef uint32_t node
    cdef int needed
    if leaving.size == 0:
        return 1
    lift_leaving(t, leaving, 1)
    needed = is_needed(t, head, value)
    lift_leaving(t, leaving, -1)
    if needed:
        for node in range(t.nodes_used):
            lift_claims(t, node, 1)
        needed = is_needed(t, head, value)
        for node in range(t.nodes_used):
            lift_claims(t, node, -1)
    return needed


cdef int is_needed(Tables* t, Head* head, int64_t value) except -1 nogil:
    """1: with any one unit back the members do not all find a seat."""
    cdef uint32_t begin, end = t.doomed.size
    cdef int needed = 1
    while end > 0 and needed:
        begin = run_begin(t, end)
        lift_doomed(t, begin, end, -1)
        needed = seat_members(t, head, value) < head.needed
        lift_doomed(t, begin, end, 1)
        end = begin
    return needed


cdef int keep_gang_if_cheaper(Tables* t, Head* head, int64_t value) except -1 nogil:
    """The set that is doomed now, with the seats that it makes, against the plan so far. Returns 0 if it may not be stopped, else 1."""
    cdef uint32_t at
    cdef int64_t lost = work_of(t, &t.doomed)
    cdef uint8_t victim_qos = most_urgent(t, &t.doomed)
    cdef uint32_t own = count_own(t, &t.doomed)
    cdef bint moves
    cdef Plan* plan = &t.plan
    if seat_members(t, head, value) < head.needed:
        return 0
    if not is_within_gangs_reach(t, &t.doomed):
        return 0
    if not levels_out(t, &t.doomed, t.trial, t.trial_size):
        return 0
    moves = is_move(t, &t.doomed, t.trial, t.trial_size)
    if t.moving and not moves:
        return 0
    if not is_better_plan(plan, plan.seats_size == 0, victim_qos, own, lost, t.doomed.size, moves):
        return 1
    plan.is_move = moves
    plan.is_reclaim = t.took
    plan.own = own
    plan.lost = lost
    plan.victim_qos = victim_qos
    plan.victims.size = 0
    for at in range(t.doomed.size):
        push(&plan.victims, t.doomed.at[at])
    grow(<void**> &plan.seats, &plan.seats_capacity, sizeof(TrialRecord), t.trial_size)
    memcpy(plan.seats, t.trial, t.trial_size * sizeof(TrialRecord))
    plan.seats_size = t.trial_size
    return 1


cdef int plan_domain(Tables* t, Head* head, int64_t value, int qos, Slots* leaving) except -1 nogil:
    """The cheapest proof in this domain, if it is cheaper than the plan so far. Nobody stays lifted."""
    cdef bint is_allowed
    if (seat_by_price(t, head, value, qos) and seat_members(t, head, value) >= head.needed) or (
            are_unlike(t, &head.members) and doom_for_unlike(t, head, value, qos)):
        spare_whom_nobody_needs(t, head, value)
        if t.doomed.size > 0 and is_needed_later(t, head, value, leaving):
            is_allowed = keep_gang_if_cheaper(t, head, value)
            if exchange_doomed(t, head, value, qos, is_allowed):
                spare_whom_nobody_needs(t, head, value)
                if is_needed_later(t, head, value, leaving):
                    keep_gang_if_cheaper(t, head, value)
    lift_doomed(t, 0, t.doomed.size, -1)
    t.units_size = 0
    return 0


cdef int plan_gang(Tables* t, Head* head, int qos, Slots* leaving) except -1 nogil:
    """The cheapest proof over all domains; none where nobody could be stopped at all."""
    cdef Slots seen
    cdef uint32_t node, evictable = 0
    cdef int level
    cdef int64_t value
    t.plan.seats_size = 0
    begin_looking(t)
    for node in range(t.nodes_used):
        for level in range(qos + (t.owner == NONE_ and not t.moving), LEVELS):
            evictable += t.nodes[node].evictable[level] if t.nodes[node].is_open else 0
        if lends(t) and t.nodes[node].is_open and (t.nodes[node].cpu_soft > 0 or t.nodes[node].memory_soft > 0):
            evictable += 1
    if evictable == 0:
        return 0
    if head.column < 0:
        return plan_domain(t, head, -1, qos, leaving)
    memset(&seen, 0, sizeof(Slots))
    for node in range(t.nodes_used):
        value = node if head.column == DOMAINS else t.nodes[node].domain[head.column]
        if t.nodes[node].is_open and value >= 0 and not was_seen(&seen, <uint32_t> value):
            push(&seen, <uint32_t> value)
            plan_domain(t, head, value, qos, leaving)
    drop_slots(&seen)
    return 0


cdef int can_sit_later(Tables* t, Head* head, Slots* leaving) except -1 nogil:
    """1: there will be seats when those have left who leave anyhow, so nobody else is stopped."""
    cdef int found
    if leaving.size == 0:
        return 0
    lift_leaving(t, leaving, 1)
    found = can_sit(t, head)
    lift_leaving(t, leaving, -1)
    return found


cdef bint is_admitted(Tables* t, Head* head) noexcept nogil:
    """All members that it needs are within the limits of their queues as things are: nobody is stopped for a limit."""
    cdef uint32_t at, held = 0
    while held < head.needed and held < head.members.size and within_limits(
            t, t.tasks[head.members.at[held]].queue, &t.shapes[t.tasks[head.members.at[held]].shape]):
        hold_queue(t, t.tasks[head.members.at[held]].queue, &t.shapes[t.tasks[head.members.at[held]].shape], 1)
        held += 1
    for at in range(held):
        hold_queue(t, t.tasks[head.members.at[at]].queue, &t.shapes[t.tasks[head.members.at[at]].shape], -1)
    return held == head.needed


cdef int claim_gang(Tables* t, uint32_t task, uint8_t code) except -1 nogil:
    """The gang that this parked task stands for claims the cheapest proof. Returns 0 if there is none, or if some of it is there, else 1."""
    cdef GangRecord* gang = &t.gangs[t.tasks[task].gang]
    cdef Census census = count_members(t, gang)
    cdef int qos = 0
    cdef uint32_t at, last = task
    cdef Head head
    cdef Slots leaving
    if census.live > 0 or census.stopping > 0 or census.claiming > 0 or gang.succeeded >= gang.min_size:
        return 0
    memset(&leaving, 0, sizeof(Slots))
    gather_leaving(t, &leaving)
    gather_head(t, task, &head)
    t.newcomer_milli = 0
    t.newcomer_cpu = 0
    for at in range(head.members.size):
        if qos_of(&t.tasks[head.members.at[at]]) > qos:
            last = head.members.at[at]
            qos = qos_of(&t.tasks[last])
        if at < head.needed:
            t.newcomer_milli += t.shapes[t.tasks[head.members.at[at]].shape].device_milli
            t.newcomer_cpu += t.shapes[t.tasks[head.members.at[at]].shape].cpu_milli
    begin_reclaim(t, last)
    t.taking = TAKING_NONE
    t.plan.seats_size = 0
    if is_admitted(t, &head) and not can_sit_later(t, &head, &leaving):
        plan_gang(t, &head, qos, &leaving)
    drop_slots(&leaving)
    drop_slots(&head.members)
    if t.plan.seats_size == 0:
        return 0
    do_gang_claimed(t, code)
    return 1
