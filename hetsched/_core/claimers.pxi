# Who claims starts in its own room when its last victim has ended. Until then nobody who goes after it with the same ask starts before it.
#
# Promises: while a single task claims, those of its queue and shape that go after it do not start in free room, and of two that claim the later
# one starts after the earlier one, though its victims may be gone sooner. They may claim meanwhile where there is no room, victims whose graces end no
# sooner, make no reservation, and hold up nobody else. Who starts by a claim is stopped by nobody in the same instant.
#
# Cost: without claims one comparison for each lane that is asked for; else one look at each claim.

cdef enum:
    MOMENT_NS = 1000000        # who has just started by a claim is let be until then


cdef int note_claimer(Tables* t, uint32_t task) except -1 nogil:
    return push(&t.claimers, task)


cdef void drop_claimer(Tables* t, uint32_t task) noexcept nogil:
    """The last one takes its place."""
    cdef uint32_t at = 0
    while t.claimers.at[at] != task:
        at += 1
    t.claimers.size -= 1
    t.claimers.at[at] = t.claimers.at[t.claimers.size]


# ---------------------------------------------------------------- who waits behind it

cdef inline bint is_behind_claim(Tables* t, uint32_t task) noexcept nogil:
    """It may not start before one that claims."""
    return t.claimers.size > 0 and task != NONE_ and claim_before(t, task) != NONE_


cdef uint32_t claim_before(Tables* t, uint32_t task) noexcept nogil:
    """The first of those for which it waits, or NONE."""
    cdef uint32_t at
    for at in range(t.claimers.size if t.tasks[task].gang == NONE_ else 0):
        if holds_up(t, t.claimers.at[at], task):
            return t.claimers.at[at]
    return NONE_


cdef bint holds_up(Tables* t, uint32_t claimer, uint32_t task) noexcept nogil:
    """Both are single and ask the same in the same queue, and this claimer goes first; and claimed first, if both claim."""
    cdef TaskRecord* one = &t.tasks[claimer]
    cdef TaskRecord* other = &t.tasks[task]
    return (one.shape == other.shape and one.queue == other.queue and one.gang == NONE_ and claimer != task
            and not (other.flags & CLAIMING_ and t.allocations[other.place].placed_ns < t.allocations[one.place].placed_ns)
            and is_sooner(t, claimer, task))


cdef bint is_held_up(Tables* t, uint32_t task) noexcept nogil:
    """There is room for it, so it stops nobody: it may not start yet."""
    cdef ShapeRecord* shape = &t.shapes[t.tasks[task].shape]
    return is_behind_claim(t, task) and shape.column != NONE_ and best_byte(t, shape) != 0 and within_limits(t, t.tasks[task].queue, shape)


cdef inline int64_t grace_of(Tables* t, uint32_t task) noexcept nogil:
    cdef uint32_t template_ = t.tasks[task].template_
    return t.templates[template_].grace_ns if template_ < t.templates_used else 0


cdef bint outlasts_earlier_claims(Tables* t, uint32_t task, Slots* victims) noexcept nogil:
    """The graces of these victims end no sooner than those of the victims of whom it would wait for: when its claim is ripe it does not wait
    longer than a claim may."""
    cdef int64_t grace_ns = 0
    cdef uint32_t at, victim
    for at in range(victims.size):
        grace_ns = max(grace_ns, grace_of(t, victims.at[at]))
    for at in range(t.claimers.size if t.tasks[task].gang == NONE_ else 0):
        if holds_up(t, t.claimers.at[at], task):
            victim = t.allocations[t.tasks[t.claimers.at[at]].place].first_victim
            while victim != NONE_:
                if t.tasks[t.allocations[victim].task].changed_ns + grace_of(t, t.allocations[victim].task) > t.now_ns + grace_ns:
                    return False
                victim = t.allocations[victim].next_victim
    return True


# ---------------------------------------------------------------- the last victim is gone

cdef bint speaks_for_claim(Tables* t, uint32_t task) noexcept nogil:
    """Of the members of a gang that claim it goes first."""
    cdef GangRecord* gang
    cdef uint32_t at, member
    if t.tasks[task].gang == NONE_:
        return True
    gang = &t.gangs[t.tasks[task].gang]
    for at in range(gang.members.size):
        member = gang.members.at[at]
        if t.tasks[member].flags & CLAIMING_ and sooner(t, member, task):
            return False
    return True


cdef bint is_ripe(Tables* t, uint32_t task) noexcept nogil:
    """Its claim, with those of its gang, waits for nobody any more."""
    cdef GangRecord* gang
    cdef uint32_t at, member
    if t.tasks[task].gang == NONE_:
        return t.allocations[t.tasks[task].place].victims == 0
    gang = &t.gangs[t.tasks[task].gang]
    for at in range(gang.members.size):
        member = gang.members.at[at]
        if t.tasks[member].flags & CLAIMING_ and t.allocations[t.tasks[member].place].victims > 0:
            return False
    return True


cdef int settle_claims(Tables* t) except -1 nogil:
    """Those that wait neither for victims nor for an earlier claim start, who goes first first."""
    cdef uint32_t at, task, best
    while t.ripe:
        best = NONE_
        t.ripe = False
        for at in range(t.claimers.size):
            task = t.claimers.at[at]
            if speaks_for_claim(t, task) and is_ripe(t, task):
                t.ripe = True
                if not is_behind_claim(t, task) and (best == NONE_ or is_sooner(t, task, best)):
                    best = task
        if best == NONE_:
            return 0
        start_claimed(t, best)
    return 0


# ---------------------------------------------------------------- in the same instant

cdef int note_claimed_start(Tables* t, uint32_t task) except -1 nogil:
    if t.begun_ns != t.now_ns:
        t.begun.size = 0
        t.begun_ns = t.now_ns
    look_again(t, t.now_ns + MOMENT_NS)
    return push(&t.begun, task)


cdef bint has_just_begun(Tables* t, uint32_t task) noexcept nogil:
    """By a claim, in this instant."""
    cdef uint32_t at
    if t.begun_ns == t.now_ns:
        for at in range(t.begun.size):
            if t.begun.at[at] == task:
                return True
    return False
