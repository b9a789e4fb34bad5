# A cheaper set for all the seats of a gang together: one unit may make room for several of them, where each seat alone costs less elsewhere.
#
# Promises: cheaper than the set found seat by seat, allowed as far as it can be told from the set, and within LOOKS. What it gives is proved again
# like any other set. The best there is where all who may be stopped are POOL units at most; else of the set's own units and of those that
# lose least for what they give back.
#
# How: branch and bound over this pool, in the order of what is lost for a device (for a core, where no devices are asked for), with the first-fit
# of the members as they are given as the proof (no other order is tried here). The bound buys what is lacking in all, the last unit in part.

cdef enum:
    POOL = 24


cdef inline int64_t amount_of(UnitRecord* unit, bint by_devices) noexcept nogil:
    return unit.device_milli if by_devices else unit.cpu_milli


cdef inline bint is_dearer(UnitRecord* one, UnitRecord* other, bint by_devices) noexcept nogil:
    """For what it gives back; who gives back none of it is dearest."""
    return is_less(other.lost, amount_of(one, by_devices), one.lost, amount_of(other, by_devices)) or (
        amount_of(one, by_devices) == 0 and amount_of(other, by_devices) > 0)


# ---------------------------------------------------------------- the pool

cdef bint is_pooled(Tables* t, UnitRecord* pool, uint32_t size, UnitRecord* unit) noexcept nogil:
    """It is there, or members of its gang of another node are: how many of them can be spared is known on one node only."""
    cdef uint32_t at, gang = t.tasks[unit.task].gang
    cdef uint32_t node = t.allocations[t.tasks[unit.task].place].node
    for at in range(size):
        if pool[at].gang == unit.gang and (pool[at].task == unit.task or unit.gang != NONE_):
            return True
        if gang != NONE_ and pool[at].gang == NONE_ and t.tasks[pool[at].task].gang == gang and (
                t.allocations[t.tasks[pool[at].task].place].node != node):
            return True
    return False


cdef uint32_t pool_unit(UnitRecord* pool, uint32_t kept, uint32_t size, UnitRecord* unit, bint by_devices) noexcept nogil:
    """Behind the first `kept`, cheapest first; the dearest drops out. Returns how many there are."""
    cdef uint32_t place = size
    if size == POOL:
        if kept == size or not is_dearer(&pool[size - 1], unit, by_devices):
            return size
        place -= 1
        size -= 1
    while place > kept and is_dearer(&pool[place - 1], unit, by_devices):
        pool[place] = pool[place - 1]
        place -= 1
    pool[place] = unit[0]
    return size + 1


cdef uint32_t gather_pool(Tables* t, Head* head, int64_t value, int qos, SetSearch* s, UnitRecord* pool, uint32_t kept,
                          bint by_devices) except? 0xFFFFFFFF nogil:
    """Beside the `kept` ones, who are put back: those of the domain, of their level and below, who lose no more than is to be beaten."""
    cdef uint32_t node, at, size = kept
    cdef ShapeRecord* shape = &t.shapes[t.tasks[s.task].shape]
    for node in range(t.nodes_used):
        if not t.nodes[node].is_open or not in_domain(t, node, head.column, value):
            continue
        begin_taking(t, node, shape)
        gather_units(t, node, qos)
        for at in range(t.units_size):
            if t.units[at].qos < s.qos:
                break
            if t.units[at].lost <= s.lost and not is_pooled(t, pool, size, &t.units[at]):
                count_unit(t, &t.units[at], NONE_)
                t.units[at].is_best = False
                t.units[at].taking = t.taking
                size = pool_unit(pool, kept, size, &t.units[at], by_devices)
        t.looks_left -= t.units_size >> 3
    t.taking = TAKING_NONE
    return size


cdef int take_pool(Tables* t, UnitRecord* pool, uint32_t size, bint by_devices) except -1 nogil:
    """As the units, cheapest first, all open."""
    cdef uint32_t at, place
    grow(<void**> &t.units, &t.units_capacity, sizeof(UnitRecord), size)
    t.units_size = size
    for at in range(size):
        place = at
        while place > 0 and is_dearer(&t.units[place - 1], &pool[at], by_devices):
            t.units[place] = t.units[place - 1]
            place -= 1
        t.units[place] = pool[at]
        t.units[place].is_in = t.units[place].is_noted = False
        t.units[place].choice = CHOICE_OPEN
    return 0


# ---------------------------------------------------------------- the bound

cdef int64_t lacking_in_all(Tables* t, Head* head, int64_t value, bint* by_devices) noexcept nogil:
    """What the least asking of those needed ask for together, without what is free in the domain: thousandths of devices, or else millicores."""
    cdef uint32_t at, node
    cdef int64_t devices = 0, cpu = 0
    for at in range(head.members.size - head.needed, head.members.size):
        devices += t.shapes[t.tasks[head.members.at[at]].shape].device_milli
        cpu += t.shapes[t.tasks[head.members.at[at]].shape].cpu_milli
    by_devices[0] = devices > 0
    for node in range(t.nodes_used):
        if t.nodes[node].is_open and in_domain(t, node, head.column, value):
            devices -= free_in_all(t.devices + t.nodes[node].device_first, t.nodes[node].device_count)
            cpu -= max(<int64_t> 0, t.nodes[node].cpu_free + t.nodes[node].cpu_extra)
    return devices if by_devices[0] else cpu


cdef int64_t price_of_lack(Tables* t, uint32_t first, int64_t lacking, bint by_devices) noexcept nogil:
    """What those from `first` on lose at least; -1: they do not give back so much."""
    cdef uint32_t at
    cdef int64_t amount, lost = 0
    for at in range(first, t.units_size):
        if lacking <= 0:
            break
        amount = amount_of(&t.units[at], by_devices)
        if amount >= lacking:
            return lost + share_of_lost(t.units[at].lost, lacking, amount)
        lost += t.units[at].lost
        lacking -= amount
    return lost if lacking <= 0 else -1


# ---------------------------------------------------------------- the search

cdef int search_gang_sets(Tables* t, Head* head, int64_t value, SetSearch* s, uint32_t first, int64_t lost, uint32_t victims, int64_t lacking,
                      bint is_new) except -1 nogil:
    """All that may come of the choices so far, which end before `first`; `is_new`: the last one was to take a unit in."""
    cdef int64_t more
    cdef UnitRecord* unit
    cdef bint by_devices = s.by_devices
    if t.looks_left <= 0:
        return 0
    t.looks_left -= t.units_size
    more = price_of_lack(t, first, lacking, by_devices)
    if more < 0 or cannot_beat(s, own_so_far(t, victims), lost + more, victims + (lacking > 0)):
        return 0
    if lacking <= 0 and is_new:
        t.looks_left -= <int64_t> t.nodes_used + 8 * head.needed
        if seat_in_order(t, head, value) >= head.needed:
            return weigh_seats(t, head, value, s)
    if first == t.units_size:
        return 0
    unit = &t.units[first]
    if not adds_nobody(t, unit):
        unit.choice = CHOICE_IN
        lift(t, first)
        search_gang_sets(t, head, value, s, first + 1, lost + unit.lost, victims + unit.tasks, lacking - amount_of(unit, by_devices), True)
        put_back(t, first)
    unit.choice = CHOICE_OUT
    search_gang_sets(t, head, value, s, first + 1, lost, victims, lacking, False)
    unit.choice = CHOICE_OPEN
    return 0


cdef int weigh_seats(Tables* t, Head* head, int64_t value, SetSearch* s) except -1 nogil:
    """The set suffices. Of it what is needed, against the best so far."""
    cdef int64_t at, lost
    cdef uint32_t own
    cdef uint8_t victim_qos
    for at in range(<int64_t> t.units_size - 1, -1, -1):
        if t.units[at].choice == CHOICE_IN:
            put_back(t, <uint32_t> at)
            t.looks_left -= <int64_t> t.nodes_used + 8 * head.needed
            if seat_in_order(t, head, value) < head.needed:
                lift(t, <uint32_t> at)
    t.lifted.size = 0
    lifted_tasks(t, &t.lifted)
    lost = work_of(t, &t.lifted)
    victim_qos = most_urgent(t, &t.lifted)
    own = count_own(t, &t.lifted)
    if (victim_qos > s.qos or not cannot_beat(s, own, lost, t.lifted.size)) and are_allowed(t, head, value):
        s.qos = victim_qos
        s.own = own
        s.lost = lost
        s.victims = t.lifted.size
        s.is_found = True
        for at in range(t.units_size):
            t.units[at].is_best = t.units[at].is_in
    for at in range(t.units_size):
        if t.units[at].choice == CHOICE_IN and not t.units[at].is_in:
            lift(t, <uint32_t> at)
    return 0


cdef int are_allowed(Tables* t, Head* head, int64_t value) except -1 nogil:
    """1: the set that is lifted, and listed in `lifted`, makes all the seats and may be stopped."""
    if not is_taken_in_order(t) or not spares_enough(t) or seat_in_order(t, head, value) < head.needed:
        return 0
    if not is_within_gangs_reach(t, &t.lifted) or not levels_out(t, &t.lifted, t.trial, t.trial_size):
        return 0
    return not t.moving or is_move(t, &t.lifted, t.trial, t.trial_size)


cdef bint spares_enough(Tables* t) noexcept nogil:
    """No gang falls below its least by single members."""
    cdef uint32_t at, gang, other
    cdef int64_t spare
    cdef Census census
    for at in range(t.units_size):
        gang = t.tasks[t.units[at].task].gang
        if not t.units[at].is_in or t.units[at].gang != NONE_ or gang == NONE_ or has_whole(t, gang, True):
            continue
        census = count_members(t, &t.gangs[gang])
        spare = <int64_t> census.live + t.gangs[gang].succeeded - t.gangs[gang].min_size
        for other in range(t.units_size):
            if t.units[other].is_in and t.tasks[t.units[other].task].gang == gang:
                spare -= 1
        if spare < 0:
            return False
    return True


cdef bint is_within_gangs_reach(Tables* t, Slots* victims) noexcept nogil:
    """They hold no more devices than may be stopped for those who are seated on trial."""
    cdef uint32_t at
    cdef int64_t asked = 0
    for at in range(t.trial_size):
        asked += t.shapes[t.tasks[t.trial[at].task].shape].device_milli
    return t.blast_radius == 0 or devices_of(t, victims) <= t.blast_radius * max(<int64_t> 1000, asked)


cdef int set_to_beat(Tables* t, SetSearch* s, bint is_allowed) except -1 nogil:
    """What is doomed, if it may be stopped, or the plan so far. 0: nothing of this level can."""
    s.is_found = False
    s.qos = most_urgent(t, &t.doomed)
    s.lost = work_of(t, &t.doomed)
    s.own = count_own(t, &t.doomed)
    s.victims = t.doomed.size
    if not is_allowed:
        s.own = s.victims = NONE_
        s.lost = INT64_MAX
    if t.plan.seats_size > 0 and t.plan.victim_qos >= s.qos:
        if t.plan.victim_qos > s.qos:
            return 0
        if not cannot_beat(s, t.plan.own, t.plan.lost, t.plan.victims.size):
            s.own = t.plan.own
            s.lost = t.plan.lost
            s.victims = t.plan.victims.size
    return 1


cdef int exchange_doomed(Tables* t, Head* head, int64_t value, int qos, bint is_allowed) except -1 nogil:
    """A cheaper set takes the place of `doomed`, which is lifted before and after. Returns 1 if there is one."""
    cdef UnitRecord pool[POOL]
    cdef SetSearch s
    cdef uint32_t at, kept
    cdef int64_t lacking
    if t.looks_left <= 0 or not set_to_beat(t, &s, is_allowed):
        return 0
    sort_doomed(t)
    kept = t.units_size
    if kept > POOL // 2 or kept == 0:
        return 0
    for at in range(kept):
        pool[at] = t.units[at]
        count_unit(t, &pool[at], NONE_)
        pool[at].is_best = True
        pool[at].taking = TAKING_NONE
    lift_doomed(t, 0, t.doomed.size, -1)
    s.task = head.members.at[0]
    lacking = lacking_in_all(t, head, value, &s.by_devices)
    while True:
        take_pool(t, pool, gather_pool(t, head, value, qos, &s, pool, kept, s.by_devices), s.by_devices)
        search_gang_sets(t, head, value, &s, 0, 0, 0, lacking, False)
        if is_allowed or s.is_found or s.qos == 0:
            break
        s.qos -= 1
    lift_best(t)
    t.doomed.size = 0
    lifted_tasks(t, &t.doomed)
    for at in range(t.doomed.size):
        t.allocations[t.tasks[t.doomed.at[at]].place].lifted_by = DOOMED
    for at in range(t.units_size):
        if s.is_found and t.units[at].is_best and t.units[at].taking != TAKING_NONE:
            t.took = True
    return s.is_found


# ---------------------------------------------------------------- one seat

cdef int cheapen_seat(Tables* t, uint32_t member, uint32_t node) except -1 nogil:
    """The greedy set of a seat, which is lifted: or a better one, if there is."""
    cdef SetSearch s
    cdef uint32_t at, units = 0
    cdef uint8_t level = LEVELS
    for at in range(t.units_size):
        t.units[at].is_best = t.units[at].is_in
        units += t.units[at].is_in
        if t.units[at].is_in:
            level = min(level, t.units[at].qos)
    if units < 2 or t.looks_left <= 0:
        return 0
    s.task = member
    s.node = node
    s.leaving = NULL
    s.is_kept = False
    t.lifted.size = 0
    lifted_tasks(t, &t.lifted)
    s.lost = work_of(t, &t.lifted)
    s.own = count_own(t, &t.lifted)
    s.victims = t.lifted.size
    put_all_back(t)
    open_units(t, &s, level)
    search_sets(t, &s, 0, 0)
    lift_best(t)
    return 0
