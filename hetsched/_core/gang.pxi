# Gangs: all that belong together or none, tried under mark and rewind.
#
# Promises: `present` = live members that are not stopping + members that succeeded. With present < min_size the gang is gathering: one
# of its waiting members stands for it in the gang lane, once enough of them wait and none is still stopping; a trial places the
# hardest first, as many as fit, or in another order where unlike members find room so (gang_seats), and holds nothing unless present
# reaches min_size. With present >= min_size it has begun: the rest
# join one by one in the same domain. What did not fit is parked, alone, until room grows or the gang changes; it blocks nobody. What did not
# fit beside a reservation is tried again in each decision, for the reservation may go without any room growing.
# While it claims (gang_victims) nobody stands for it.

cdef struct Census:
    uint32_t waiting
    uint32_t live              # placed or running
    uint32_t stopping
    uint32_t claiming
    uint32_t node              # of some live member, NONE


cdef int touch_gang(Tables* t, uint32_t slot) except -1 nogil:
    if not t.gangs[slot].is_stale:
        t.gangs[slot].is_stale = True
        push(&t.stale_gangs, slot)
    return 0


cdef Census count_members(Tables* t, GangRecord* gang) noexcept nogil:
    cdef Census census
    cdef uint32_t at
    cdef TaskRecord* task
    memset(&census, 0, sizeof(Census))
    census.node = NONE_
    for at in range(gang.members.size):
        task = &t.tasks[gang.members.at[at]]
        census.waiting += is_waiting(task)
        census.claiming += task.flags & CLAIMING_ != 0
        if task.state == STOPPING_:
            census.stopping += 1
        elif is_live(task):
            census.live += 1
            census.node = t.allocations[task.place].node
    return census


cdef int settle_gang(Tables* t, uint32_t slot) except -1 nogil:
    """Puts its waiting members where they belong: all, one for all, or none in the gang lane."""
    cdef GangRecord* gang = &t.gangs[slot]
    cdef Census census
    cdef uint32_t at, member, lane, first = NONE_
    cdef bint has_begun
    gang.is_stale = False
    if not gang.is_present:
        return 0
    census = count_members(t, gang)
    has_begun = census.live + gang.succeeded >= gang.min_size
    for at in range(gang.members.size):
        member = gang.members.at[at]
        if not is_waiting(&t.tasks[member]):
            continue
        leave_lane(t, member)
        if has_begun:
            lane_of(t, &t.tasks[member], &lane)
            enter_lane(t, member, lane)
        elif first == NONE_ or sooner(t, member, first):
            first = member
    if not has_begun and census.stopping + census.claiming == 0 and census.waiting + census.live + gang.succeeded >= gang.min_size and first != NONE_:
        lane_of(t, &t.tasks[first], &lane)
        enter_lane(t, first, lane)
    return 0


cdef inline bint sooner(Tables* t, uint32_t one, uint32_t other) noexcept nogil:
    """Order over levels."""
    cdef int a = qos_of(&t.tasks[one])
    cdef int b = qos_of(&t.tasks[other])
    return a < b if a != b else goes_before(t, one, other)


cdef int settle_gangs(Tables* t) except -1 nogil:
    while t.stale_gangs.size > 0:
        t.stale_gangs.size -= 1
        settle_gang(t, t.stale_gangs.at[t.stale_gangs.size])
    return 0


cdef void leave_gang(Tables* t, uint32_t slot, uint32_t task) noexcept nogil:
    """A forgotten member; the others keep their order."""
    cdef Slots* members = &t.gangs[slot].members
    cdef uint32_t at = 0
    while members.at[at] != task:
        at += 1
    members.size -= 1
    memmove(members.at + at, members.at + at + 1, (members.size - at) * sizeof(uint32_t))


# ---------------------------------------------------------------- a trial

cdef inline bint in_domain(Tables* t, uint32_t node, int column, int64_t value) noexcept nogil:
    return column < 0 or (node == value if column == DOMAINS else t.nodes[node].domain[column] == value)


cdef uint32_t best_node_within(Tables* t, ShapeRecord* shape, int column, int64_t value) noexcept nogil:
    """Best score, lowest slot, among the nodes of one domain; NONE if it fits on none."""
    cdef uint32_t node, best = NONE_
    cdef uint8_t byte, best_so_far = 0
    cdef TreeRecord* tree
    if best_byte(t, shape) == 0:
        return NONE_
    if column < 0:
        return best_node(t, shape)
    tree = &t.trees[shape.column // COLUMNS]
    if column == DOMAINS:
        return <uint32_t> value if cell_of(tree, 0, <uint32_t> value)[shape.column % COLUMNS] != 0 else NONE_
    for node in range(t.nodes_used):
        byte = cell_of(tree, 0, node)[shape.column % COLUMNS]
        if byte > best_so_far and in_domain(t, node, column, value):
            best_so_far = byte
            best = node
    return best


cdef int try_members(Tables* t, Slots* members, int column, int64_t value) except -1 nogil:
    """Holds room for as many as fit, in the order given; the trial says where. Equal shapes fail together."""
    cdef uint32_t at, member, node, failed = NONE_
    cdef TrialRecord* entry
    cdef ShapeRecord* shape
    cdef int worst, count
    for at in range(members.size):
        member = members.at[at]
        if t.tasks[member].shape == failed:
            continue
        want_column(t, t.tasks[member].shape)
        refresh(t)
        shape = &t.shapes[t.tasks[member].shape]
        node = best_node_within(t, shape, column, value)
        if node == NONE_ or not within_limits(t, t.tasks[member].queue, shape):
            failed = t.tasks[member].shape
            continue
        grow(<void**> &t.trial, &t.trial_capacity, sizeof(TrialRecord), <uint64_t> t.trial_size + 1)
        entry = &t.trial[t.trial_size]
        count = fit(t, node, shape, entry.pieces, &worst)
        assert count >= 0, "a leaf that is not 0 means that the shape fits"
        t.trial_size += 1
        entry.task = member
        entry.node = node
        entry.count = count
        hold_trial(t, entry, 1)
        mark_only(t, node)
    return 0


cdef inline void hold_trial(Tables* t, TrialRecord* entry, int sign) noexcept nogil:
    cdef ShapeRecord* shape = &t.shapes[t.tasks[entry.task].shape]
    hold_room(t, entry.node, shape, entry.pieces, <int> entry.count, sign)
    hold_queue(t, t.tasks[entry.task].queue, shape, sign)


cdef int rewind(Tables* t) except -1 nogil:
    """Everything held on trial comes back; the entries stay readable until the next trial."""
    cdef uint32_t at
    for at in range(t.trial_size):
        hold_trial(t, &t.trial[at], -1)
        mark_only(t, t.trial[at].node)
    return 0


cdef uint32_t fitting_members(Tables* t, Slots* members, int column, int64_t value) except? 0xFFFFFFFF nogil:
    """How many fit in this domain. Holds nothing afterwards."""
    t.trial_size = 0
    try_members(t, members, column, value)
    rewind(t)
    return t.trial_size


cdef int choose_domain(Tables* t, Slots* members, int column, uint32_t needed, int64_t* chosen) except -1 nogil:
    """The first domain that takes all, else the first of those that take most. Returns 0 if none takes enough, else 1."""
    cdef Slots seen
    cdef uint32_t node, fitting, most = needed - 1
    cdef int64_t value
    memset(&seen, 0, sizeof(Slots))
    for node in range(t.nodes_used):
        if not t.nodes[node].is_present or not t.nodes[node].is_open:
            continue
        value = node if column == DOMAINS else t.nodes[node].domain[column]
        if value < 0 or (column < DOMAINS and was_seen(&seen, <uint32_t> value)):
            continue
        if column < DOMAINS:
            push(&seen, <uint32_t> value)
        fitting = fitting_members(t, members, column, value)
        if fitting > most:
            most = fitting
            chosen[0] = value
        if fitting == members.size:
            break
    drop_slots(&seen)
    return most >= needed


cdef bint was_seen(Slots* seen, uint32_t value) noexcept nogil:
    cdef uint32_t at
    for at in range(seen.size):
        if seen.at[at] == value:
            return True
    return False


cdef inline bint is_harder(Tables* t, uint32_t one, uint32_t other) noexcept nogil:
    return is_larger(&t.shapes[t.tasks[one].shape], &t.shapes[t.tasks[other].shape])


cdef bint is_larger(ShapeRecord* a, ShapeRecord* b) noexcept nogil:
    if a.device_milli != b.device_milli:
        return a.device_milli > b.device_milli
    if a.cpu_milli != b.cpu_milli:
        return a.cpu_milli > b.cpu_milli
    return a.memory_bytes > b.memory_bytes


cdef int gather(Tables* t, GangRecord* gang, Slots* members) except -1 nogil:
    """Its waiting members, hardest first; equally hard ones in submission order."""
    cdef uint32_t at, member
    cdef int64_t place
    for at in range(gang.members.size):
        member = gang.members.at[at]
        if not is_waiting(&t.tasks[member]):
            continue
        push(members, member)
        place = <int64_t> members.size - 1
        while place > 0 and is_harder(t, member, members.at[place - 1]):
            members.at[place] = members.at[place - 1]
            place -= 1
        members.at[place] = member
    return 0


cdef struct Head:
    # Who is blocked: a task, or so many of a gang's members.
    Slots members              # hardest first
    uint32_t needed
    int column
    int64_t value              # of the domain that a gang has begun in, -1 none


cdef int gather_head(Tables* t, uint32_t task, Head* head) except -1 nogil:
    cdef GangRecord* gang
    cdef Census census
    memset(head, 0, sizeof(Head))
    head.needed = 1
    head.column = -1
    head.value = -1
    if t.tasks[task].gang == NONE_:
        return push(&head.members, task)
    gang = &t.gangs[t.tasks[task].gang]
    census = count_members(t, gang)
    head.column = gang.column
    if gang.column >= 0 and census.node != NONE_:
        head.value = census.node if gang.column == DOMAINS else t.nodes[census.node].domain[gang.column]
    if census.live + gang.succeeded >= gang.min_size:
        return push(&head.members, task)
    head.needed = gang.min_size - census.live - gang.succeeded
    return gather(t, gang, &head.members)


cdef bint is_picky(Tables* t, Slots* members) noexcept nogil:
    """Where one of them goes, or on which devices, may leave no room for another: unlike members, or parts of devices."""
    cdef uint32_t at, shape
    for at in range(members.size):
        shape = t.tasks[members.at[at]].shape
        if shape != t.tasks[members.at[0]].shape or t.shapes[shape].device_milli % 1000 != 0:
            return True
    return False


cdef int seat_more(Tables* t, Head* head) except -1 nogil:
    """All, where another order of unlike members seats them; else as many as before. Returns 0 if they are not found again."""
    cdef uint32_t needed = head.needed
    head.needed = head.members.size
    if can_sit(t, head):
        return 1
    head.needed = needed
    if head.column >= 0 and head.value < 0:   # no domain was chosen: the search found one
        return can_sit(t, head)
    return fitting_members(t, &head.members, head.column, head.value) >= needed or can_sit(t, head)


cdef int64_t try_gang(Tables* t, uint32_t task, uint8_t lane) except -1 nogil:
    """The gang that this task stands for, or the task alone if the gang has begun. Returns placements; 0: parked. Where the best place of
    one member leaves none for another, the first and tightest fit may do, or another order (gang_seats)."""
    cdef GangRecord* gang = &t.gangs[t.tasks[task].gang]
    cdef Head head
    cdef uint32_t at
    cdef bint fits = True
    gather_head(t, task, &head)
    if head.column >= 0 and head.value < 0:
        fits = choose_domain(t, &head.members, head.column, head.needed, &head.value) != 0
    fits = fits and fitting_members(t, &head.members, head.column, head.value) >= head.needed
    if not fits and is_picky(t, &head.members):
        fits = can_sit(t, &head)
    if fits and gang.wish < 0 and t.trial_size < head.members.size and are_unlike(t, &head.members):
        fits = seat_more(t, &head)
    if fits and gang.wish >= 0 and gathered_members(t, &head.members, gang.wish, count_members(t, gang).node) < head.needed:
        if fitting_members(t, &head.members, head.column, head.value) < head.needed:
            fits = can_sit(t, &head)
    drop_slots(&head.members)
    if not fits:
        park_task(t, task)
        return 0
    for at in range(t.trial_size):
        do_placed(t, t.trial[at].task, t.trial[at].node, lane, t.trial[at].pieces, <int> t.trial[at].count)
    return t.trial_size
