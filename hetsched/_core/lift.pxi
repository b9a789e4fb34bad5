# Who may be stopped for whom, and the world without them: units, lifted off a node and put back.
#
# Promises: lifting is the arithmetic of a real end on the real tables, and putting back undoes it exactly; between the two no leaf is
# computed and nothing else runs. A unit is one task, or a gang that would else fall below its least, with all its members that run.

cdef int64_t work_at_stake(Tables* t, TaskRecord* task) noexcept nogil:
    """Lost if it is stopped now."""
    cdef AllocationRecord* record = &t.allocations[task.place]
    cdef ShapeRecord* shape = &t.shapes[task.shape]
    cdef int64_t milli = shape.device_milli if shape.device_milli > 0 else min(shape.cpu_milli, <int64_t> 1000000000)
    cdef int64_t checkpoint_ns = t.checkpoints[task.checkpoint]
    cdef int64_t ran_ns = t.now_ns - record.started_ns if record.started_ns > 0 else 0
    if checkpoint_ns > 0:
        ran_ns = ran_ns % checkpoint_ns
    return milli * (ran_ns // 1000000) // 1000


cdef int64_t work_of(Tables* t, Slots* victims) noexcept nogil:
    """What all of these lose."""
    cdef uint32_t at
    cdef int64_t lost = 0
    for at in range(victims.size):
        lost += work_at_stake(t, &t.tasks[victims.at[at]])
    return lost


cdef int64_t devices_of(Tables* t, Slots* tasks) noexcept nogil:
    """What they hold together, in thousandths of a device."""
    cdef uint32_t at
    cdef int64_t milli = 0
    for at in range(tasks.size):
        milli += t.shapes[t.tasks[tasks.at[at]].shape].device_milli
    return milli


cdef uint8_t most_urgent(Tables* t, Slots* tasks) noexcept nogil:
    """The level of that one; LEVELS: there is nobody."""
    cdef uint32_t at
    cdef uint8_t qos = LEVELS
    for at in range(tasks.size):
        qos = min(qos, <uint8_t> qos_of(&t.tasks[tasks.at[at]]))
    return qos


cdef inline bint may_stop(Tables* t, uint32_t slot, int preemptor_qos) noexcept nogil:
    cdef TaskRecord* task = &t.tasks[slot]
    if t.taking == TAKING_ONLY_SOFT:
        return is_reclaimable(t, task)
    return ((is_evictable(task) and (qos_of(task) > preemptor_qos or may_take_back(t, slot, preemptor_qos) or may_move(t, slot, preemptor_qos))
             or t.taking and is_reclaimable(t, task) and qos_of(task) >= preemptor_qos)
            and t.allocations[task.place].claim == NONE_ and not is_damped(t, task) and not has_just_begun(t, slot))


# ---------------------------------------------------------------- units

cdef enum:
    DOOMED = 0xFFFF            # AllocationRecord.lifted_by: in the set of a gang for good, until it is rewound. Owner: gang_victims


cdef int add_unit(Tables* t, uint32_t task, uint32_t gang) except -1 nogil:
    cdef UnitRecord* unit
    cdef uint32_t at, member
    grow(<void**> &t.units, &t.units_capacity, sizeof(UnitRecord), <uint64_t> t.units_size + 1)
    unit = &t.units[t.units_size]
    t.units_size += 1
    unit.task = task
    unit.gang = gang
    unit.sequence = t.tasks[task].sequence
    unit.qos = qos_of(&t.tasks[task])
    unit.lost = work_at_stake(t, &t.tasks[task])
    unit.is_in = unit.is_own = False
    if gang != NONE_:
        unit.lost = 0
        for at in range(t.gangs[gang].members.size):
            member = t.gangs[gang].members.at[at]
            if t.tasks[member].state == PLACED_ or t.tasks[member].state == RUNNING_:
                unit.lost += work_at_stake(t, &t.tasks[member])
                unit.qos = min(unit.qos, <uint8_t> qos_of(&t.tasks[member]))
    return 0


cdef bint whole_gang_may_stop(Tables* t, uint32_t gang, int preemptor_qos) noexcept nogil:
    cdef uint32_t at, member
    for at in range(t.gangs[gang].members.size):
        member = t.gangs[gang].members.at[at]
        if (t.tasks[member].state == PLACED_ or t.tasks[member].state == RUNNING_) and not may_stop(t, member, preemptor_qos):
            return False
    return True


cdef int gather_units(Tables* t, uint32_t node, int preemptor_qos) except -1 nogil:
    """Of a gang as many single members as it can spare, then the whole gang."""
    cdef uint32_t slot = t.nodes[node].allocation_first
    cdef uint32_t task, gang, at
    cdef int64_t spare
    cdef Census census
    t.units_size = 0
    while slot != NONE_:
        task = t.allocations[slot].task
        gang = t.tasks[task].gang
        if t.allocations[slot].is_claim or not may_stop(t, task, preemptor_qos):
            slot = t.allocations[slot].next_on_node
            continue
        if gang == NONE_:
            add_unit(t, task, NONE_)
        else:
            census = count_members(t, &t.gangs[gang])
            spare = <int64_t> census.live + t.gangs[gang].succeeded - t.gangs[gang].min_size - doomed_members(t, gang)
            for at in range(t.units_size):
                if t.tasks[t.units[at].task].gang == gang:
                    spare = -1 if t.units[at].gang == gang else spare - 1
            if spare > 0:
                add_unit(t, task, NONE_)
            elif not has_whole(t, gang, False) and whole_gang_may_stop(t, gang, preemptor_qos):
                add_unit(t, task, gang)
            elif t.taking == TAKING_ONLY_SOFT and not has_whole(t, gang, False):
                add_unit(t, task, NONE_)     # it stands on what others need: its gang falls short
        slot = t.allocations[slot].next_on_node
    sort_units(t)
    if t.has_guarantees:
        mark_own(t)
        sort_units(t)
    return 0


cdef int64_t doomed_members(Tables* t, uint32_t gang) noexcept nogil:
    """Who is in the set already, by another node."""
    cdef uint32_t at, member
    cdef int64_t count = 0
    for at in range(t.gangs[gang].members.size):
        member = t.gangs[gang].members.at[at]
        count += is_live(&t.tasks[member]) and t.allocations[t.tasks[member].place].lifted_by == DOOMED
    return count


cdef bint has_whole(Tables* t, uint32_t gang, bint only_in) noexcept nogil:
    """The gang as a whole is among the units; `only_in`: and in the set."""
    cdef uint32_t at
    for at in range(t.units_size):
        if t.units[at].gang == gang and (t.units[at].is_in or not only_in):
            return True
    return False


cdef inline bint unit_before(UnitRecord* a, UnitRecord* b) noexcept nogil:
    """Least urgent, then who borrows, then cheapest, then youngest."""
    if a.qos != b.qos:
        return a.qos > b.qos
    if a.is_own != b.is_own:
        return b.is_own
    if a.lost != b.lost:
        return a.lost < b.lost
    return a.sequence > b.sequence


cdef void sort_units(Tables* t) noexcept nogil:
    """Insertion: dozens on a node, nearly in order already."""
    cdef int64_t at, place
    cdef UnitRecord unit
    for at in range(1, t.units_size):
        unit = t.units[at]
        place = at
        while place > 0 and unit_before(&unit, &t.units[place - 1]):
            t.units[place] = t.units[place - 1]
            place -= 1
        t.units[place] = unit


cdef void mark_own(Tables* t) noexcept nogil:
    """Who would be owed the same again, when those before it have gone. They are in their queues."""
    cdef uint32_t at
    for at in range(t.units_size):
        t.units[at].is_own = is_own(t, t.units[at].task)
        hold_unit(t, at, -1)
    for at in range(t.units_size):
        hold_unit(t, at, 1)


cdef void hold_unit(Tables* t, uint32_t at, int sign) noexcept nogil:
    """All of it, in its queues."""
    cdef uint32_t other, member
    if t.units[at].gang == NONE_:
        hold_in_queue(t, t.units[at].task, sign)
        return
    for other in range(t.gangs[t.units[at].gang].members.size):
        member = t.gangs[t.units[at].gang].members.at[other]
        if t.tasks[member].state == PLACED_ or t.tasks[member].state == RUNNING_:
            hold_in_queue(t, member, sign)


# ---------------------------------------------------------------- lifting

cdef inline void lift_task(Tables* t, uint32_t task, int sign) noexcept nogil:
    """1: off the node; -1: back."""
    cdef AllocationRecord* record = &t.allocations[t.tasks[task].place]
    cdef ShapeRecord* shape = &t.shapes[t.tasks[task].shape]
    hold_room(t, record.node, shape, pieces_of(t, record), record.count, -sign)
    hold_idle(t, t.tasks[task].place, -sign)
    hold_queue(t, t.tasks[task].queue, shape, -sign)


cdef void lift(Tables* t, uint32_t at) noexcept nogil:
    """All of the unit that is not lifted yet."""
    cdef UnitRecord* unit = &t.units[at]
    cdef uint32_t member, other
    unit.is_in = True
    if unit.gang == NONE_:
        if t.allocations[t.tasks[unit.task].place].lifted_by != 0:
            unit.is_in = False          # its gang has gone as a whole already
        lift_one(t, unit.task, at)
        return
    for other in range(t.gangs[unit.gang].members.size):
        member = t.gangs[unit.gang].members.at[other]
        if t.tasks[member].state == PLACED_ or t.tasks[member].state == RUNNING_:
            lift_one(t, member, at)


cdef inline void lift_one(Tables* t, uint32_t task, uint32_t at) noexcept nogil:
    cdef AllocationRecord* record = &t.allocations[t.tasks[task].place]
    if record.lifted_by == 0:
        record.lifted_by = <uint16_t> (at + 1)
        lift_task(t, task, 1)


cdef void put_back(Tables* t, uint32_t at) noexcept nogil:
    """What this unit lifted."""
    cdef UnitRecord* unit = &t.units[at]
    cdef uint32_t other
    unit.is_in = False
    if unit.gang == NONE_:
        put_back_one(t, unit.task, at)
        return
    for other in range(t.gangs[unit.gang].members.size):
        put_back_one(t, t.gangs[unit.gang].members.at[other], at)


cdef inline void put_back_one(Tables* t, uint32_t task, uint32_t at) noexcept nogil:
    if is_live(&t.tasks[task]) and t.allocations[t.tasks[task].place].lifted_by == at + 1:
        t.allocations[t.tasks[task].place].lifted_by = 0
        lift_task(t, task, -1)


cdef void put_all_back(Tables* t) noexcept nogil:
    cdef uint32_t at
    for at in range(t.units_size):
        put_back(t, at)


cdef inline int gets_in(Tables* t, uint32_t task, uint32_t node, uint32_t* pieces) noexcept nogil:
    """Devices for the preemptor beside who is left, within its queue's limits, or -1."""
    cdef int worst
    cdef ShapeRecord* shape = &t.shapes[t.tasks[task].shape]
    if not within_limits(t, t.tasks[task].queue, shape):
        return -1
    return fit(t, node, shape, pieces, &worst)


# ---------------------------------------------------------------- who is leaving already

cdef int gather_leaving(Tables* t, Slots* leaving) except -1 nogil:
    """Tasks that were told to stop and have not ended yet: for claims, or lately."""
    cdef uint32_t node, slot, task
    if t.counts[STOPPING_] == 0:
        return 0
    for node in range(t.nodes_used):
        slot = t.nodes[node].allocation_first
        while slot != NONE_:
            task = t.allocations[slot].task
            if t.tasks[task].state == STOPPING_ and (t.allocations[slot].claim != NONE_ or leaves_soon(t, task)):
                push(leaving, task)
            slot = t.allocations[slot].next_on_node
    return 0


cdef enum:
    LEAVING_NS = 60000000000   # who was told to stop and has no claim on its place is counted on for so long


cdef inline bint leaves_soon(Tables* t, uint32_t task) noexcept nogil:
    """Told to stop not so long ago that nobody may count on it any more."""
    cdef int64_t until_ns = t.tasks[task].changed_ns + LEAVING_NS
    if t.now_ns >= until_ns:
        return False
    look_again(t, until_ns)
    return True


cdef void lift_leaving(Tables* t, Slots* leaving, int sign) noexcept nogil:
    """Think them away (1) or put them back (-1). What their claims took stays taken, so what is free then is what will be left over."""
    cdef uint32_t at
    for at in range(leaving.size):
        lift_task(t, leaving.at[at], sign)


cdef bint is_to_wait(Tables* t, uint32_t task, Slots* leaving) noexcept nogil:
    """There will be room for it when those have left who leave anyhow: then nobody else is stopped for it. Where it is a queue's limit
    that blocks, one claim at a time: what leaves under a limit is counted before anybody else is stopped for it."""
    cdef uint32_t pieces[MAX_PIECES]
    cdef uint32_t at, node
    cdef bint found = False
    cdef ShapeRecord* shape = &t.shapes[t.tasks[task].shape]
    if not within_limits(t, t.tasks[task].queue, shape):
        return True
    lift_leaving(t, leaving, 1)
    for at in range(leaving.size):
        node = t.allocations[t.tasks[leaving.at[at]].place].node
        if t.nodes[node].is_open and level_of(shape, node) > 0 and gets_in(t, task, node, pieces) >= 0:
            found = True
            break
    lift_leaving(t, leaving, -1)
    return found


cdef void lift_claims(Tables* t, uint32_t node, int sign) noexcept nogil:
    """The room that claims on the node hold for later: 1 not held, -1 held again."""
    cdef uint32_t slot = t.nodes[node].allocation_first
    while slot != NONE_:
        if t.allocations[slot].is_claim:
            lift_task(t, t.allocations[slot].task, sign)
        slot = t.allocations[slot].next_on_node


cdef bint is_minimal_beside_holes(Tables* t, uint32_t task, uint32_t node) noexcept nogil:
    """Nobody is stopped beside a hole that is kept for another and would do for the task as well: it waits until the hole is filled."""
    cdef Slots nobody
    cdef bint needed
    memset(&nobody, 0, sizeof(Slots))
    lift_claims(t, node, 1)
    needed = is_minimal_later(t, task, node, &nobody)
    lift_claims(t, node, -1)
    return needed


cdef bint is_minimal_later(Tables* t, uint32_t task, uint32_t node, Slots* leaving) noexcept nogil:
    """The set that is lifted now is still minimal when those have left who leave anyhow."""
    cdef uint32_t pieces[MAX_PIECES]
    cdef uint32_t at
    cdef bint needed = True
    lift_leaving(t, leaving, 1)
    for at in range(t.units_size):
        if not t.units[at].is_in:
            continue
        if t.units[at].gang == NONE_ and t.tasks[t.units[at].task].gang != NONE_ and has_whole(t, t.tasks[t.units[at].task].gang, True):
            continue
        put_back(t, at)
        needed = gets_in(t, task, node, pieces) < 0
        lift(t, at)
        if not needed:
            break
    lift_leaving(t, leaving, -1)
    return needed
