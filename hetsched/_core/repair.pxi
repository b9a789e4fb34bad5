# A gang that lost members has a claim on room for them, so that strangers do not take the place that they left.
#
# Promises: until `repair_ns` after the last loss, as long as others of the gang are there, its lost members are placed before anybody else of
# their level; room that they cannot use yet (they pause before the next attempt, or too few of them fit for the least of the gang) is kept
# from this level, from those below it and from their claims. Who is more urgent comes before. Any room that fits is as good as the lost
# one. Nothing of it is kept between two decisions, in which nobody places: what is kept is found anew in each, from the state alone.

cdef inline bint is_lost(TaskRecord* task) noexcept nogil:
    """It had an attempt, and is to have another one."""
    return task.attempt > 0 and (task.state == BACKOFF_ or is_waiting(task))


cdef int note_loss(Tables* t, uint32_t gang) except -1 nogil:
    """A member's attempt is over before its time, and it was not evicted."""
    if gang != NONE_:
        t.gangs[gang].broken_ns = t.now_ns
        wound(t, gang)
    return 0


cdef int wound(Tables* t, uint32_t gang) except -1 nogil:
    """Into `wounded`, which is in order of slots, live and after a load alike."""
    cdef uint32_t place
    if t.gangs[gang].is_wounded:
        return 0
    t.gangs[gang].is_wounded = True
    push(&t.wounded, gang)
    place = t.wounded.size - 1
    while place > 0 and t.wounded.at[place - 1] > gang:
        t.wounded.at[place] = t.wounded.at[place - 1]
        place -= 1
    t.wounded.at[place] = gang
    return 0


cdef void heal(Tables* t) noexcept nogil:
    """Those whose time is over, or who have nobody left to wait for, are as others."""
    cdef uint32_t at, member, kept = 0
    cdef GangRecord* gang
    cdef bint is_hurt
    for at in range(t.wounded.size):
        gang = &t.gangs[t.wounded.at[at]]
        is_hurt = False
        if gang.is_present and t.now_ns - gang.broken_ns < t.repair_ns:
            for member in range(gang.members.size):
                is_hurt |= is_lost(&t.tasks[gang.members.at[member]])
        gang.is_wounded = is_hurt
        if is_hurt:
            t.wounded.at[kept] = t.wounded.at[at]
            kept += 1
            look_again(t, gang.broken_ns + t.repair_ns)
    t.wounded.size = kept


cdef inline void look_again(Tables* t, int64_t when_ns) noexcept nogil:
    """By then time alone changes what is decided."""
    t.look_again_ns = min(t.look_again_ns, when_ns)


# ---------------------------------------------------------------- one gang

cdef int level_of_gang(Tables* t, GangRecord* gang) noexcept nogil:
    """Of its most urgent lost member."""
    cdef uint32_t at
    cdef int level = LEVELS
    for at in range(gang.members.size):
        if is_lost(&t.tasks[gang.members.at[at]]):
            level = min(level, qos_of(&t.tasks[gang.members.at[at]]))
    return level


cdef int64_t place_lost(Tables* t, GangRecord* gang, uint8_t code) except -1 nogil:
    """As many of the waiting ones as the rules of gangs let start now."""
    cdef Head head
    cdef int64_t placed = 0
    cdef uint32_t at, member, fitting
    for member in range(gang.members.size):
        at = gang.members.at[member]
        if not is_lost(&t.tasks[at]) or not is_waiting(&t.tasks[at]):
            continue
        gather_head(t, at, &head)
        fitting = 0
        if head.members.size >= head.needed:
            fitting = fitting_members(t, &head.members, head.column, head.value)
        drop_slots(&head.members)
        if fitting < head.needed:
            return placed
        for at in range(t.trial_size):
            do_placed(t, t.trial[at].task, t.trial[at].node, code, t.trial[at].pieces, <int> t.trial[at].count)
        placed += t.trial_size
    return placed


cdef int keep_room(Tables* t, GangRecord* gang) except -1 nogil:
    """For all that are still lost, until the end of the decision."""
    cdef Slots lost
    cdef uint32_t at
    cdef int64_t value = -1
    cdef Census census = count_members(t, gang)
    memset(&lost, 0, sizeof(Slots))
    for at in range(gang.members.size):
        if is_lost(&t.tasks[gang.members.at[at]]):
            push(&lost, gang.members.at[at])
    if gang.column >= 0:
        value = census.node if gang.column == DOMAINS else t.nodes[census.node].domain[gang.column]
    t.trial_size = 0
    try_members(t, &lost, gang.column, value)
    drop_slots(&lost)
    grow(<void**> &t.kept, &t.kept_capacity, sizeof(TrialRecord), <uint64_t> t.kept_size + t.trial_size)
    memcpy(t.kept + t.kept_size, t.trial, t.trial_size * sizeof(TrialRecord))
    t.kept_size += t.trial_size
    return 0


# ---------------------------------------------------------------- all of them

cdef int64_t mend_level(Tables* t, int qos, uint8_t code) except -1 nogil:
    """Lost members of the level go first. Returns placements."""
    cdef uint32_t at
    cdef int64_t placed = 0
    cdef GangRecord* gang
    if t.nodes_used == 0:
        return 0
    for at in range(t.wounded.size):
        gang = &t.gangs[t.wounded.at[at]]
        if level_of_gang(t, gang) != qos or count_members(t, gang).live == 0:
            continue
        placed += place_lost(t, gang, code)
        settle_gangs(t)
        keep_room(t, gang)
    return placed


cdef int keep_rooms_above(Tables* t, int levels) except -1 nogil:
    """What gangs of more urgent levels, which are not decided now, wait for."""
    cdef uint32_t at
    cdef int level
    for at in range(t.wounded.size):
        level = level_of_gang(t, &t.gangs[t.wounded.at[at]])
        if t.nodes_used and not (levels >> level) & 1 and (levels >> level) > 0 and count_members(t, &t.gangs[t.wounded.at[at]]).live > 0:
            keep_room(t, &t.gangs[t.wounded.at[at]])
    return 0


cdef int let_rooms_go(Tables* t) except -1 nogil:
    """At the end of a decision. Who was parked for them is tried again in the next one, for they may be kept from nobody then."""
    cdef uint32_t at
    for at in range(t.kept_size):
        hold_trial(t, &t.kept[at], -1)
        mark_only(t, t.kept[at].node)
    if t.kept_size > 0:
        t.frees += 1
        t.changes += 1
    t.kept_size = 0
    return 0


cdef bint is_kept_room(Tables* t, uint32_t node) noexcept nogil:
    cdef uint32_t at
    for at in range(t.kept_size):
        if t.kept[at].node == node:
            return True
    return False


cdef void close_kept(Tables* t, bint closed) noexcept nogil:
    """Nobody is stopped on a node where room is kept, or (0) as before: with the room he need not have gone."""
    cdef uint32_t at
    for at in range(t.kept_size):
        if closed:
            t.kept[at].was_open = t.nodes[t.kept[at].node].is_open
            t.nodes[t.kept[at].node].is_open = False
    for at in range(t.kept_size):
        if not closed:
            t.nodes[t.kept[at].node].is_open |= t.kept[at].was_open
