# A gang that would like to be together: on one node, in one rack or zone, by any label.
#
# Promises: if some domain of the wished column takes all of its waiting members, all go into one of these (the first, and the one where
# members are already before all others), however good other nodes are; of a gang that names islands of a board, all go on one island if
# there is one among the first LOOK_NODES nodes that may hold them. Else the domain that takes most, then that of the rest that takes
# most, and so on, so that they lie in few; nodes without the label come last. A wish never makes a gang wait: where so few fit that way
# that it could not begin, it is placed as if it had none.

cdef enum:
    LOOK_NODES = 64            # tried for as many as possible, where none takes all


cdef struct Need:
    # What some members ask for in all.
    int64_t cpu_milli
    int64_t memory_bytes
    int64_t device_milli


cdef Need need_of(Tables* t, Slots* members) noexcept nogil:
    cdef Need need
    cdef ShapeRecord* shape
    cdef uint32_t at
    memset(&need, 0, sizeof(Need))
    for at in range(members.size):
        shape = &t.shapes[t.tasks[members.at[at]].shape]
        need.cpu_milli += shape.cpu_milli
        need.memory_bytes += shape.memory_bytes
        need.device_milli += shape.device_milli
    return need


cdef bint may_hold(Tables* t, uint32_t node, Need* need) noexcept nogil:
    """By amounts alone the node could take them all."""
    cdef NodeRecord* record = &t.nodes[node]
    return (record.cpu_free >= need.cpu_milli and record.memory_free >= need.memory_bytes
            and free_in_all(t.devices + record.device_first, record.device_count) >= need.device_milli)


cdef uint32_t fitting_beside(Tables* t, Slots* members, int column, int64_t value) except? 0xFFFFFFFF nogil:
    """How many fit in this domain beside what the trial holds already, which stays held."""
    cdef uint32_t held = t.trial_size
    cdef uint32_t found
    try_members(t, members, column, value)
    found = t.trial_size - held
    let_go(t, held)
    t.trial_size = held
    return found


cdef int let_go(Tables* t, uint32_t first) except -1 nogil:
    """What the trial holds from its `first` entry on."""
    cdef uint32_t at
    cdef TrialRecord* entry
    for at in range(first, t.trial_size):
        entry = &t.trial[at]
        hold_room(t, entry.node, &t.shapes[t.tasks[entry.task].shape], entry.pieces, <int> entry.count, -1)
        hold_queue(t, t.tasks[entry.task].queue, &t.shapes[t.tasks[entry.task].shape], -1)
        mark_only(t, entry.node)
    return 0


cdef int largest_domain(Tables* t, Slots* members, int column, int64_t* chosen) except -1 nogil:
    """The first domain that takes all, else the first that takes most. Returns 0 if none takes anybody. Of nodes, where there are
    thousands, LOOK_NODES and those that may take all."""
    cdef Slots seen
    cdef Need need = need_of(t, members)
    cdef uint32_t node, fitting, most = 0, tried = 0
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
        elif tried >= LOOK_NODES and not may_hold(t, node, &need):
            continue
        fitting = fitting_beside(t, members, column, value)
        tried += fitting > 0
        if fitting > most:
            most = fitting
            chosen[0] = value
        if fitting == members.size:
            break
    drop_slots(&seen)
    return most > 0


cdef void keep_unplaced(Tables* t, Slots* members, uint32_t first) noexcept nogil:
    """Those that the trial has from its `first` entry on leave the list; the others keep their order."""
    cdef uint32_t at, entry = first, kept = 0
    for at in range(members.size):
        if entry < t.trial_size and t.trial[entry].task == members.at[at]:
            entry += 1
        else:
            members.at[kept] = members.at[at]
            kept += 1
    members.size = kept


cdef int sit_on_island(Tables* t, Slots* members, uint32_t node, int by, int island) except -1 nogil:
    """1: all of them are on this island, held by the trial; else it holds nothing more than before."""
    cdef uint32_t at, member, held = t.trial_size
    cdef TrialRecord* entry
    cdef ShapeRecord* shape
    cdef int worst, count = 0
    for at in range(members.size):
        member = members.at[at]
        shape = &t.shapes[t.tasks[member].shape]
        grow(<void**> &t.trial, &t.trial_capacity, sizeof(TrialRecord), <uint64_t> t.trial_size + 1)
        entry = &t.trial[t.trial_size]
        t.kept_by, t.kept_island = <uint8_t> by, island
        count = fit(t, node, shape, entry.pieces, &worst) if within_limits(t, t.tasks[member].queue, shape) else -1
        t.kept_by = 0
        if count < 0:
            let_go(t, held)
            t.trial_size = held
            return 0
        t.trial_size += 1
        entry.task, entry.node, entry.count = member, node, <uint32_t> count
        hold_room(t, node, shape, entry.pieces, count, 1)
        hold_queue(t, t.tasks[member].queue, shape, 1)
        mark_only(t, node)
    return 1


cdef int share_island(Tables* t, Slots* members, int by) except -1 nogil:
    """1: all of them are on one island of this level, held by the trial."""
    cdef Need need = need_of(t, members)
    cdef DeviceRecord* devices
    cdef uint32_t node, tried = 0
    cdef uint64_t seen
    cdef int at, other, island
    for node in range(t.nodes_used):
        if tried >= LOOK_NODES:
            break
        if not t.nodes[node].is_present or not t.nodes[node].is_open or not may_hold(t, node, &need):
            continue
        tried += 1
        devices = t.devices + t.nodes[node].device_first
        seen = 0
        for at in range(t.nodes[node].device_count):
            island = island_of(&devices[at], by)
            if island < 0 or (seen >> at) & 1:
                continue
            for other in range(at, t.nodes[node].device_count):
                seen |= <uint64_t> (island_of(&devices[other], by) == island) << other
            if sit_on_island(t, members, node, by, island):
                return 1
    return 0


cdef uint32_t gathered_members(Tables* t, Slots* members, int column, uint32_t beside) except? 0xFFFFFFFF nogil:
    """How many fit, together as far as possible; first of all where the node `beside` is (NONE: anywhere). Holds nothing afterwards; the
    trial says where."""
    cdef Slots rest
    cdef uint32_t at, held
    cdef int64_t home = -1
    cdef int by = t.shapes[t.tasks[members.at[0]].shape].same
    t.trial_size = 0
    if by != 0 and column == DOMAINS and beside == NONE_ and share_island(t, members, by):
        rewind(t)
        return t.trial_size
    memset(&rest, 0, sizeof(Slots))
    for at in range(members.size):
        push(&rest, members.at[at])
    if beside != NONE_:
        home = beside if column == DOMAINS else t.nodes[beside].domain[column]
    if home >= 0:
        try_members(t, &rest, column, home)
        keep_unplaced(t, &rest, 0)
    while rest.size > 0 and largest_domain(t, &rest, column, &home):
        held = t.trial_size
        try_members(t, &rest, column, home)
        keep_unplaced(t, &rest, held)
    try_members(t, &rest, -1, -1)
    drop_slots(&rest)
    rewind(t)
    return t.trial_size
