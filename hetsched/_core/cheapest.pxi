# The cheapest of the sets that would do: units that lose more alone may lose less together than those that go first one by one.
#
# Promises: what is found is minimal, allowed (reach, graces, guarantees, holes of others) and better than what it has to beat, and nobody stays
# lifted. It is the best of the node unless LOOKS end first, for a claim as a whole: so a decision takes at most about twice as long
# as the greedy sets alone. Counted in looks, not in time, so that it is the same wherever it is done.
#
# How: branch and bound. Of the units of a node each is open, in the set (and lifted) or out. What the open ones cost at least is counted from
# below: what a unit loses is spread over its devices, so the devices that lack least say what freeing them costs; of cores and memory
# what is lacking is bought where it is cheapest, the last unit in part. The unit that the bound would take is tried in, then out. What cannot
# get below the best so far is left. A set that suffices ends its branch, as all above it are not minimal.
# The bound alone, before anything is tried, says of most nodes that the greedy set is the best: see promise_of_node.

cdef enum:
    LOOKS = 5120               # at a unit, a device or a node; and for each node
    LOOKS_A_NODE = 12
    CHOICE_OPEN = 0
    CHOICE_IN = 1
    CHOICE_OUT = 2


cdef struct SetSearch:
    # For whom, where, and what is to be beaten.
    uint32_t task
    uint32_t node
    Slots* leaving             # NULL: a seat of a gang, whose set is judged as a whole
    bint is_kept               # the node is, for others
    bint is_tangled            # a single member and the whole of its gang are both units: their devices are not counted
    bint is_found
    bint by_devices            # of a gang: what is lacking in all is devices, else cores
    uint8_t qos                # of a gang: the most urgent of the set to beat
    uint32_t own
    uint32_t victims
    int64_t lost


cdef struct Lack:
    # What is lacking beside those in the set.
    int64_t lost               # what the open ones lose at least who make good for it
    uint32_t unit              # whom the bound would take first, NONE: nothing is lacking that can be counted


cdef inline void begin_looking(Tables* t) noexcept nogil:
    t.looks_left = LOOKS + LOOKS_A_NODE * <int64_t> t.nodes_used


cdef inline bint cannot_beat(SetSearch* s, uint32_t own, int64_t lost, uint32_t victims) noexcept nogil:
    if own != s.own:
        return own > s.own
    return lost > s.lost or (lost == s.lost and victims >= s.victims)


# ---------------------------------------------------------------- units counted

cdef uint32_t count_unit(Tables* t, UnitRecord* unit, uint32_t node) noexcept nogil:
    """What it gives back on this node, or on all (NONE). Returns the devices."""
    cdef uint32_t at, member, devices = 0
    unit.tasks = 0
    unit.cpu_milli = unit.memory_mib = unit.device_milli = 0
    if unit.gang == NONE_:
        unit.tasks = 1
        return count_task(t, unit, unit.task)
    for at in range(t.gangs[unit.gang].members.size):
        member = t.gangs[unit.gang].members.at[at]
        if t.tasks[member].state == PLACED_ or t.tasks[member].state == RUNNING_:
            unit.tasks += 1
            if node == NONE_ or t.allocations[t.tasks[member].place].node == node:
                devices += count_task(t, unit, member)
    return devices


cdef inline uint32_t count_task(Tables* t, UnitRecord* unit, uint32_t task) noexcept nogil:
    cdef ShapeRecord* shape = &t.shapes[t.tasks[task].shape]
    unit.cpu_milli += shape.cpu_milli
    unit.memory_mib += (shape.memory_bytes + (1 << 20) - 1) >> 20
    unit.device_milli += shape.device_milli
    return t.allocations[t.tasks[task].place].count


cdef void open_units(Tables* t, SetSearch* s, int qos) noexcept nogil:
    """All of this level and below are open. Who is cheapest for a core or a byte is only asked where these are lacking."""
    cdef uint32_t at
    cdef UnitRecord* unit
    cdef NodeRecord* node = &t.nodes[s.node]
    cdef ShapeRecord* shape = &t.shapes[t.tasks[s.task].shape]
    s.is_tangled = s.is_found = False
    for at in range(t.units_size):
        unit = &t.units[at]
        unit.split = unit.lost // max(<int64_t> 1, <int64_t> count_unit(t, unit, s.node))
        unit.choice = CHOICE_OPEN if unit.qos >= qos else CHOICE_OUT
        s.is_tangled |= unit.gang == NONE_ and t.tasks[unit.task].gang != NONE_ and has_whole(t, t.tasks[unit.task].gang, False)
    if cpu_room(node, shape) < shape.cpu_milli:
        put_units_in_order(t, False)
    if memory_room(node, shape) < shape.memory_bytes:
        put_units_in_order(t, True)


cdef inline int64_t gives_back(UnitRecord* unit, bint is_memory) noexcept nogil:
    return unit.memory_mib if is_memory else unit.cpu_milli


cdef inline uint32_t* in_order(Tables* t, int64_t place, bint is_memory) noexcept nogil:
    """Which unit is there in the order by what is lost for a byte, or for a core."""
    return &t.units[place].by_memory if is_memory else &t.units[place].by_cpu


cdef void put_units_in_order(Tables* t, bint is_memory) noexcept nogil:
    """Least lost for a byte, or for a core, first; who has none last."""
    cdef int64_t at, place
    cdef UnitRecord* one
    cdef UnitRecord* other
    for at in range(t.units_size):
        one = &t.units[at]
        place = at
        while place > 0:
            other = &t.units[in_order(t, place - 1, is_memory)[0]]
            if not is_less(one.lost, gives_back(other, is_memory), other.lost, gives_back(one, is_memory)):
                break
            in_order(t, place, is_memory)[0] = in_order(t, place - 1, is_memory)[0]
            place -= 1
        in_order(t, place, is_memory)[0] = <uint32_t> at


# ---------------------------------------------------------------- the bound

cdef bint buy(Tables* t, int64_t lacking, bint is_memory, Lack* lack) noexcept nogil:
    """So much of cores or memory where it is cheapest. 0: there is not so much."""
    cdef uint32_t at, which
    cdef int64_t amount, lost = 0
    cdef uint32_t first = NONE_
    for at in range(t.units_size):
        which = in_order(t, at, is_memory)[0]
        amount = gives_back(&t.units[which], is_memory)
        if t.units[which].choice != CHOICE_OPEN or amount == 0:
            continue
        if first == NONE_:
            first = which
        if amount >= lacking:
            lack.lost = max(lack.lost, lost + share_of_lost(t.units[which].lost, lacking, amount))
            if lack.unit == NONE_:
                lack.unit = first
            return True
        lost += t.units[which].lost
        lacking -= amount
    return False


cdef struct DeviceLack:
    # Of a device that is not free: what those hold and lose who are open.
    int64_t lost               # all of them
    int64_t least              # the cheapest
    int64_t ratio              # the least for 1/1000, times 1024
    int32_t share_milli
    uint32_t dearest
    uint32_t cheapest          # by ratio


cdef void note_pieces(Tables* t, uint32_t at, uint32_t task, uint32_t node, DeviceLack* lacks) noexcept nogil:
    cdef AllocationRecord* record = &t.allocations[t.tasks[task].place]
    cdef uint32_t* pieces = pieces_of(t, record)
    cdef UnitRecord* unit = &t.units[at]
    cdef DeviceLack* lack
    cdef uint32_t which
    cdef int64_t ratio
    if record.node != node or record.lifted_by != 0:
        return
    for which in range(record.count):
        lack = &lacks[pieces[which] & 0xFF]
        ratio = (unit.split << 10) // <int64_t> (pieces[which] >> 8)
        if lack.dearest == NONE_ or unit.split > t.units[lack.dearest].split:
            lack.dearest = at
        if lack.cheapest == NONE_ or ratio < lack.ratio:
            lack.cheapest = at
            lack.ratio = ratio
        lack.least = unit.split if lack.share_milli == 0 else min(lack.least, unit.split)
        lack.lost += unit.split
        lack.share_milli += <int32_t> (pieces[which] >> 8)


cdef bint free_devices_for(Tables* t, SetSearch* s, AskRecord* ask, DeviceLack* lacks, Lack* lack, int64_t* lost) noexcept nogil:
    """The devices of one ask that cost least; adds to `lost`. 0: there are not so many."""
    cdef NodeRecord* node = &t.nodes[s.node]
    cdef DeviceRecord* device
    cdef int64_t whole_lost[MAX_PIECES]
    cdef int64_t part_lost[MAX_PIECES]
    cdef uint32_t whole_unit[MAX_PIECES]
    cdef uint32_t part_unit[MAX_PIECES]
    cdef int64_t sum_whole = 0, sum_part = 0
    cdef int at, free_count = 0, room_count = 0, whole_count = 0, part_count = 0, whole_needed, part_needed
    for at in range(node.device_count):
        device = t.devices + node.device_first + at
        if not is_right(device, ask):
            continue
        if device.share_free == 1000:
            free_count += 1
            continue
        if ask.whole > 0 and device.share_free + lacks[at].share_milli == 1000:
            whole_count = keep_least(whole_lost, whole_unit, whole_count, ask.whole, lacks[at].lost, lacks[at].dearest)
        if ask.parts > 0 and has_room(device, ask):
            room_count += 1
        elif ask.parts > 0 and lacks[at].share_milli > 0 and device.share_free + lacks[at].share_milli >= ask.part_milli:
            part_count = keep_least(part_lost, part_unit, part_count, ask.parts, max(
                lacks[at].least, lacks[at].ratio * max(0, <int> ask.part_milli - device.share_free) >> 10), lacks[at].cheapest)
    whole_needed = max(0, <int> ask.whole - free_count)
    part_needed = max(0, <int> ask.parts - room_count - max(0, free_count - <int> ask.whole))
    if whole_needed > whole_count or part_needed > part_count:
        return False
    for at in range(whole_needed):
        sum_whole += whole_lost[at]
    for at in range(part_needed):
        sum_part += part_lost[at]
    lost[0] += max(sum_whole, sum_part)
    if lack.unit == NONE_ and whole_needed > 0:
        lack.unit = whole_unit[0]
    elif lack.unit == NONE_ and part_needed > 0:
        lack.unit = part_unit[0]
    return True


cdef inline int keep_least(int64_t* losts, uint32_t* units, int count, int most, int64_t lost, uint32_t unit) noexcept nogil:
    """Among the `most` that cost least. Returns how many there are now."""
    cdef int place = count
    if count == most:
        if lost >= losts[count - 1]:
            return count
        place -= 1
        count -= 1
    while place > 0 and lost < losts[place - 1]:
        losts[place] = losts[place - 1]
        units[place] = units[place - 1]
        place -= 1
    losts[place] = lost
    units[place] = unit
    return count + 1


cdef bint count_lack(Tables* t, SetSearch* s, Lack* lack) noexcept nogil:
    """0: with all who are open gone it is not enough."""
    cdef ShapeRecord* shape = &t.shapes[t.tasks[s.task].shape]
    cdef NodeRecord* node = &t.nodes[s.node]
    cdef DeviceLack lacks[MAX_PIECES]
    cdef uint32_t at, other
    cdef int64_t lost = 0
    cdef int which
    lack.lost = 0
    lack.unit = NONE_
    if s.is_tangled:
        return True
    if shape.ask_count > 0:
        for at in range(node.device_count):
            lacks[at].lost = lacks[at].least = lacks[at].ratio = 0
            lacks[at].share_milli = 0
            lacks[at].dearest = lacks[at].cheapest = NONE_
        for at in range(t.units_size):
            if t.units[at].choice != CHOICE_OPEN:
                continue
            if t.units[at].gang == NONE_:
                note_pieces(t, at, t.units[at].task, s.node, lacks)
                continue
            for other in range(t.gangs[t.units[at].gang].members.size):
                if is_live(&t.tasks[t.gangs[t.units[at].gang].members.at[other]]):
                    note_pieces(t, at, t.gangs[t.units[at].gang].members.at[other], s.node, lacks)
        for which in range(shape.ask_count):
            if not free_devices_for(t, s, &shape.asks[which], lacks, lack, &lost):
                return False
        lack.lost = lost
    if cpu_room(node, shape) < shape.cpu_milli and not buy(t, shape.cpu_milli - cpu_room(node, shape), False, lack):
        return False
    return memory_room(node, shape) >= shape.memory_bytes or buy(
        t, (shape.memory_bytes - memory_room(node, shape)) >> 20, True, lack)


# ---------------------------------------------------------------- the search

cdef uint32_t own_so_far(Tables* t, uint32_t victims) except? 0xFFFFFFFF nogil:
    """Of those who are lifted."""
    if not t.has_guarantees or victims == 0:
        return 0
    t.looks_left -= 16 * victims
    t.lifted.size = 0
    lifted_tasks(t, &t.lifted)
    return count_own(t, &t.lifted)


cdef inline bint adds_nobody(Tables* t, UnitRecord* unit) noexcept nogil:
    """It is gone with the whole of its gang; or the whole of a gang of which a member is in the set already: the same set is reached without it."""
    cdef uint32_t at
    if unit.gang == NONE_:
        return t.allocations[t.tasks[unit.task].place].lifted_by != 0
    for at in range(t.units_size):
        if t.units[at].choice == CHOICE_IN and t.units[at].gang == NONE_ and t.tasks[t.units[at].task].gang == unit.gang:
            return True
    return False


cdef uint32_t first_open(Tables* t, SetSearch* s) noexcept nogil:
    """Least urgent and cheapest of those who are open; NONE if they are not enough."""
    cdef uint32_t pieces[MAX_PIECES]
    cdef uint32_t at, first = NONE_
    cdef bint is_enough
    for at in range(t.units_size):
        if t.units[at].choice == CHOICE_OPEN:
            lift(t, at)
            if first == NONE_:
                first = at
    is_enough = gets_in(t, s.task, s.node, pieces) >= 0
    for at in range(t.units_size):
        if t.units[at].choice == CHOICE_OPEN:
            put_back(t, at)
    return first if is_enough else NONE_


cdef int search_sets(Tables* t, SetSearch* s, int64_t lost, uint32_t victims) except -1 nogil:
    """All that may come of the choices so far."""
    cdef uint32_t pieces[MAX_PIECES]
    cdef UnitRecord* unit
    cdef Lack lack
    if t.looks_left <= 0:
        return 0
    t.looks_left -= <int64_t> t.units_size + t.nodes[s.node].device_count
    if not count_lack(t, s, &lack) or cannot_beat(s, own_so_far(t, victims), lost + lack.lost, victims + (lack.unit != NONE_)):
        return 0
    if lack.unit == NONE_:
        if gets_in(t, s.task, s.node, pieces) >= 0:
            return weigh(t, s)
        lack.unit = first_open(t, s)
        if lack.unit == NONE_:
            return 0
    unit = &t.units[lack.unit]
    if not adds_nobody(t, unit):
        unit.choice = CHOICE_IN
        lift(t, lack.unit)
        search_sets(t, s, lost + unit.lost, victims + unit.tasks)
        put_back(t, lack.unit)
    unit.choice = CHOICE_OUT
    search_sets(t, s, lost, victims)
    unit.choice = CHOICE_OPEN
    return 0


cdef int weigh(Tables* t, SetSearch* s) except -1 nogil:
    """The set suffices. Of it what is needed, against the best so far."""
    cdef uint32_t pieces[MAX_PIECES]
    cdef int64_t at, lost
    cdef uint32_t own
    for at in range(<int64_t> t.units_size - 1, -1, -1):
        if t.units[at].choice == CHOICE_IN:
            put_back(t, <uint32_t> at)
            if gets_in(t, s.task, s.node, pieces) < 0:
                lift(t, <uint32_t> at)
    t.lifted.size = 0
    lifted_tasks(t, &t.lifted)
    lost = work_of(t, &t.lifted)
    t.looks_left -= 16 * <int64_t> t.lifted.size
    own = count_own(t, &t.lifted)
    if not cannot_beat(s, own, lost, t.lifted.size) and is_allowed(t, s):
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


cdef bint is_taken_in_order(Tables* t) noexcept nogil:
    """Of the owner's own level nobody goes whose queue does not borrow any more when those before it have gone."""
    cdef uint32_t at
    cdef bint is_right_so = True
    if t.owner == NONE_:
        return True
    for at in range(t.units_size):
        t.units[at].is_noted = t.units[at].is_in
    put_all_back(t)
    for at in range(t.units_size):
        if t.units[at].is_noted:
            is_right_so &= is_still_borrowed(t, at)
            lift(t, at)
    return is_right_so


cdef int is_allowed(Tables* t, SetSearch* s) except -1 nogil:
    """1: the set that is lifted, and listed in `lifted`, may be stopped."""
    cdef TrialRecord seat
    if not is_taken_in_order(t):
        return 0
    if s.leaving == NULL:
        return 1
    if not is_within_reach(t, s.task) or not is_needed_in_time(t, s.task, s.node, s.leaving):
        return 0
    if s.is_kept and not delays_nobody(t, s.task, s.node):
        return 0
    seat.task = s.task
    seat.node = s.node
    seat.count = <uint32_t> gets_in(t, s.task, s.node, seat.pieces)
    if not levels_out(t, &t.lifted, &seat, 1):
        return 0
    return not t.moving or is_move(t, &t.lifted, &seat, 1)


cdef void lift_best(Tables* t) noexcept nogil:
    """Nobody is lifted before."""
    cdef uint32_t at
    for at in range(t.units_size):
        if t.units[at].is_best:
            lift(t, at)
