# Who claims waits for its victims; where room appears before they are gone it starts there, as if it had no claim.
#
# Promises: beside those of its level it stands where it would stand without its claim, so nobody who goes after it starts in room that would
# do for it. It gives its claim up only to start in the same breath. Its victims go all the same, for they have been told to; what they leave
# goes by order like any other room, and who is blocked counts on it (gather_leaving), so nobody else is stopped in their stead. A gang goes
# as a whole or waits on. Each of these moves is a start, so there is no end of them only where there is none of starts.
#
# Cost: without claims one comparison a level; else one byte and one node for each claim of the level, and a trial for each gang of it.

cdef enum:
    LEAVING_NS = 60000000000   # who was told to stop and has no claim on its place is counted on for so long


cdef int note_claimer(Tables* t, uint32_t task) except -1 nogil:
    return push(&t.claimers, task)


cdef void drop_claimer(Tables* t, uint32_t task) noexcept nogil:
    drop_from(&t.claimers, task)


cdef void drop_from(Slots* slots, uint32_t slot) noexcept nogil:
    """One that is in it; the last one takes its place."""
    cdef uint32_t at = 0
    while slots.at[at] != slot:
        at += 1
    slots.size -= 1
    slots.at[at] = slots.at[slots.size]


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


cdef int gather_switchers(Tables* t, int qos) except -1 nogil:
    """Who claims at the level, one for each gang, and would fit now if it did not; or might, in front of the reservation."""
    cdef uint32_t at, task
    t.switchers.size = 0
    for at in range(t.claimers.size if t.nodes_used > 0 else 0):
        task = t.claimers.at[at]
        if qos_of(&t.tasks[task]) == qos and is_old(t, task) and speaks_for_claim(t, task) and (
                fits_without_claim(t, task) or (t.seats_closed and t.tasks[task].gang == NONE_)):
            push(&t.switchers, task)
    return 0


cdef int fits_without_claim(Tables* t, uint32_t task) except -1 nogil:
    """1: it, or all of its gang that must start together, would find room now."""
    cdef ShapeRecord* shape = &t.shapes[t.tasks[task].shape]
    cdef uint32_t node
    cdef NodeView view
    cdef int fits
    if t.tasks[task].gang != NONE_:
        return gang_fits_without_claim(t, &t.gangs[t.tasks[task].gang], task)
    want_column(t, t.tasks[task].shape)
    refresh(t)
    node = t.allocations[t.tasks[task].place].node
    lift_task(t, task, 1)
    fits = within_limits(t, t.tasks[task].queue, shape)
    if fits and best_byte(t, shape) == 0:
        view_node(t, node, &view)
        fits = score_byte(t, node, shape, &view) != 0
    lift_task(t, task, -1)
    return fits


cdef int gang_fits_without_claim(Tables* t, GangRecord* gang, uint32_t task) except -1 nogil:
    """Thinks its claims away and tries it. What did not fit is not tried again before something changes."""
    cdef int fits
    if gang.no_proof == t.changes:
        return 0
    think_unclaimed(t, gang, 1)
    fits = finds_seats(t, task)
    think_unclaimed(t, gang, -1)
    if not fits:
        gang.no_proof = t.changes
    return fits


cdef int think_unclaimed(Tables* t, GangRecord* gang, int sign) except -1 nogil:
    """Members that claim wait, and their claims hold nothing (1), or as before (-1)."""
    cdef uint32_t at, member
    for at in range(gang.members.size):
        member = gang.members.at[at]
        if sign > 0 and t.tasks[member].flags & CLAIMING_:
            t.tasks[member].flags &= ~CLAIMING_
            lift_task(t, member, 1)
            mark_only(t, t.allocations[t.tasks[member].place].node)
        elif sign < 0 and is_waiting(&t.tasks[member]) and holds_claim(t, member):
            t.tasks[member].flags |= CLAIMING_
            lift_task(t, member, -1)
            mark_only(t, t.allocations[t.tasks[member].place].node)
    return 0


cdef inline bint holds_claim(Tables* t, uint32_t task) noexcept nogil:
    """By the list of those who claim."""
    cdef uint32_t at
    for at in range(t.claimers.size):
        if t.claimers.at[at] == task:
            return True
    return False


cdef uint32_t first_switcher(Tables* t, uint32_t before) noexcept nogil:
    """Of those who may switch the one that goes first, if it goes before this task (NONE: anybody does); else NONE."""
    cdef uint32_t at, best = NONE_
    cdef bint is_first
    for at in range(t.switchers.size):
        if best == NONE_ or is_before_in_room(t, t.switchers.at[at], best):
            best = t.switchers.at[at]
    if best == NONE_ or before == NONE_:
        return best
    lift_claim(t, best, 1)
    is_first = is_before_in_room(t, best, before)
    lift_claim(t, best, -1)
    return best if is_first else NONE_


cdef int64_t switch_over(Tables* t, uint32_t task, uint8_t code) except -1 nogil:
    """Gives its claim up and starts, unless it does not fit any more, or what it held by its claim is first for another. Returns placements."""
    cdef GangRecord* gang
    cdef uint32_t at
    drop_from(&t.switchers, task)
    if not fits_without_claim(t, task):
        return switch_in_front(t, task, code) if t.seats_closed and t.tasks[task].gang == NONE_ else 0
    t.switched = True
    if is_overruled(t, task):
        do_unclaimed(t, task)
        return 0
    do_unclaimed(t, task)
    if t.tasks[task].gang == NONE_:
        refresh(t)
        return place_at_best(t, task, code) if best_byte(t, &t.shapes[t.tasks[task].shape]) != 0 else 0
    settle_gangs(t)
    gang = &t.gangs[t.tasks[task].gang]
    for at in range(gang.members.size):
        if is_waiting(&t.tasks[gang.members.at[at]]) and t.tasks[gang.members.at[at]].place != NONE_:
            return try_gang(t, gang.members.at[at], code)
    return 0


cdef int64_t switch_in_front(Tables* t, uint32_t task, uint8_t code) except -1 nogil:
    """Onto a reserved node, if that delays nobody, as in `backfill`."""
    cdef uint32_t pieces[MAX_PIECES]
    cdef uint32_t at, node, found = NONE_
    cdef int64_t run_ns = run_of(t, &t.tasks[task])
    cdef ShapeRecord* shape = &t.shapes[t.tasks[task].shape]
    cdef int count = -1
    lift_task(t, task, 1)
    t.allocations[t.tasks[task].place].lifted_by = DOOMED
    for at in range(t.seats_size):
        node = t.seats[at].node
        if count < 0:
            t.nodes[node].is_open = True
            count = gets_in(t, task, node, pieces)
            t.nodes[node].is_open = False
            if count >= 0 and not 0 < run_ns <= t.reserved_ns - t.now_ns and not leaves_room(t, node, shape, pieces, count):
                count = -1
            if count >= 0:
                found = node
    t.allocations[t.tasks[task].place].lifted_by = 0
    lift_task(t, task, -1)
    if count < 0:
        return 0
    t.switched = True
    do_unclaimed(t, task)
    do_placed(t, task, found, code, pieces, count)
    return 1


# ---------------------------------------------------------------- the last victim is gone

cdef inline bint is_old(Tables* t, uint32_t task) noexcept nogil:
    """It claimed before this instant: who stops at once has stopped by now."""
    return t.allocations[t.tasks[task].place].placed_ns < t.now_ns


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


cdef bint is_contested(Tables* t, uint32_t task) noexcept nogil:
    """Somebody may go before it, so that all that happens in this instant is heard before it starts."""
    cdef uint32_t at
    cdef int level
    for at in range(t.claimers.size):
        if not are_together(t, t.claimers.at[at], task):
            return True
    for level in range(qos_of(&t.tasks[task]) + is_old(t, task)):
        if t.waiting[level] > 0:
            return True
    return False


cdef int settle_claims(Tables* t) except -1 nogil:
    """Those that wait for nobody any more, who goes first first: they start, or give up for another who goes before them."""
    cdef uint32_t at, task, best
    while t.ripe:
        best = NONE_
        for at in range(t.claimers.size):
            task = t.claimers.at[at]
            if speaks_for_claim(t, task) and is_ripe(t, task) and (best == NONE_ or is_sooner(t, task, best)):
                best = task
        if best == NONE_:
            t.ripe = False
        elif is_overruled(t, best):
            do_unclaimed(t, best)
        else:
            start_claimed(t, best)
    return 0


cdef int is_overruled(Tables* t, uint32_t task) except -1 nogil:
    """1: somebody who goes before this claimer waits, or waits for slower victims, and would fit in the room that it claims. So it does not
    start, and the room goes by order. For one that claimed just now only who would stop it as soon as it had started."""
    cdef uint32_t at, other
    cdef int level = qos_of(&t.tasks[task])
    cdef int found = 0
    refresh(t)
    lift_claim(t, task, 1)
    for at in range(t.lanes_used):
        other = t.lanes[at].head
        if not found and other != NONE_ and t.lanes[at].qos <= level and may_overrule(t, other, task):
            found = gets_room_of(t, other, task)
    for at in range(t.parked_tasks.size):
        if not found and may_overrule(t, t.parked_tasks.at[at], task):
            found = gets_room_of(t, t.parked_tasks.at[at], task)
    lift_claim(t, task, -1)
    for at in range(t.claimers.size):
        other = t.claimers.at[at]
        if not found and not are_together(t, other, task) and speaks_for_claim(t, other) and not is_ripe(t, other):
            found = claims_sooner(t, other, task)
    return found


cdef bint may_overrule(Tables* t, uint32_t other, uint32_t task) noexcept nogil:
    """Somebody in line goes before the claimer."""
    if is_old(t, task):
        return has_its_turn_before(t, other, task)
    return qos_of(&t.tasks[other]) < urgency_of_claim(t, task) and not is_patient(t, other)


cdef int urgency_of_claim(Tables* t, uint32_t task) noexcept nogil:
    """Who is more urgent than this level may stop whoever is in the claim as soon as it has started; 0: nobody may."""
    cdef GangRecord* gang
    cdef TaskRecord* member
    cdef uint32_t at
    cdef int level = LEVELS
    if t.tasks[task].gang == NONE_:
        return qos_of(&t.tasks[task]) if may_be_evicted(&t.tasks[task]) else 0
    gang = &t.gangs[t.tasks[task].gang]
    for at in range(gang.members.size):
        member = &t.tasks[gang.members.at[at]]
        if member.flags & CLAIMING_:
            level = min(level, qos_of(member)) if may_be_evicted(member) else 0
    return level


cdef inline bint may_be_evicted(TaskRecord* task) noexcept nogil:
    """Once it has started, and at once: who was evicted twice is let be."""
    return task.flags & PREEMPTIBLE_ and not task.flags & SHAKEN_


cdef bint has_its_turn_before(Tables* t, uint32_t other, uint32_t task) noexcept nogil:
    """In the order of starts. Of equals not who was evicted for such a one: it would have its place back, and be evicted again."""
    if qos_of(&t.tasks[other]) == qos_of(&t.tasks[task]) and was_evicted(t, other) and (
            t.has_guarantees or lends(t) or t.consolidate == MOVE_EQUAL_):
        return False
    return is_before_in_room(t, other, task)


cdef inline bint is_before_in_room(Tables* t, uint32_t one, uint32_t other) noexcept nogil:
    """Of two of one level who is firm goes before who is soft, for he would have it stopped at once."""
    if lends(t) and qos_of(&t.tasks[one]) == qos_of(&t.tasks[other]) and is_soft(t, one) != is_soft(t, other):
        return is_soft(t, other)
    return is_sooner(t, one, other)


cdef bint was_evicted(Tables* t, uint32_t task) noexcept nogil:
    """It, or one of its gang that waits."""
    cdef GangRecord* gang
    cdef uint32_t at
    if t.tasks[task].gang == NONE_:
        return t.tasks[task].preemptions > 0
    gang = &t.gangs[t.tasks[task].gang]
    for at in range(gang.members.size):
        if is_waiting(&t.tasks[gang.members.at[at]]) and t.tasks[gang.members.at[at]].preemptions > 0:
            return True
    return False


cdef inline bint are_together(Tables* t, uint32_t one, uint32_t other) noexcept nogil:
    return one == other or (t.tasks[one].gang != NONE_ and t.tasks[one].gang == t.tasks[other].gang)


cdef int gets_room_of(Tables* t, uint32_t task, uint32_t claimer) except -1 nogil:
    """1: it waits for room, and where the claim is that is lifted now it would have some; of a gang, all that must start together would."""
    cdef uint32_t pieces[MAX_PIECES]
    cdef uint32_t at, node = t.allocations[t.tasks[claimer].place].node, last = NONE_
    cdef Head head
    cdef bint may_fit = t.tasks[claimer].gang != NONE_
    cdef int fits
    if t.tasks[task].gang == NONE_:
        return gets_in(t, task, node, pieces) >= 0
    gather_head(t, task, &head)
    for at in range(head.members.size):      # some member needs this room; unlike a trial, that is told by one node
        if not may_fit and t.tasks[head.members.at[at]].shape != last:
            last = t.tasks[head.members.at[at]].shape
            may_fit = gets_in(t, head.members.at[at], node, pieces) >= 0
    fits = may_fit and can_sit(t, &head)
    drop_slots(&head.members)
    return fits


cdef int claims_sooner(Tables* t, uint32_t other, uint32_t task) except -1 nogil:
    """1: the other claimer goes first, both claims thought away, and would fit in the room of the one whose victims are gone."""
    cdef uint32_t pieces[MAX_PIECES]
    cdef int fits = 0
    if t.tasks[other].gang != NONE_:
        lift_claim(t, task, 1)
        mark_claim(t, task)
        if has_its_turn_before(t, other, task):
            think_unclaimed(t, &t.gangs[t.tasks[other].gang], 1)
            fits = finds_seats(t, other)
            think_unclaimed(t, &t.gangs[t.tasks[other].gang], -1)
        lift_claim(t, task, -1)
        mark_claim(t, task)
        return fits
    lift_claim(t, task, 1)
    lift_claim(t, other, 1)
    fits = has_its_turn_before(t, other, task) and gets_in(t, other, t.allocations[t.tasks[task].place].node, pieces) >= 0
    lift_claim(t, other, -1)
    lift_claim(t, task, -1)
    return fits


cdef void lift_claim(Tables* t, uint32_t task, int sign) noexcept nogil:
    """What it, or its gang, claims: not held (1), held again (-1)."""
    cdef GangRecord* gang
    cdef uint32_t at
    if t.tasks[task].gang == NONE_:
        lift_task(t, task, sign)
        return
    gang = &t.gangs[t.tasks[task].gang]
    for at in range(gang.members.size):
        if t.tasks[gang.members.at[at]].flags & CLAIMING_:
            lift_task(t, gang.members.at[at], sign)


cdef int mark_claim(Tables* t, uint32_t task) except -1 nogil:
    """The nodes of what it, or its gang, claims."""
    cdef GangRecord* gang
    cdef uint32_t at
    if t.tasks[task].gang == NONE_:
        return mark_only(t, t.allocations[t.tasks[task].place].node)
    gang = &t.gangs[t.tasks[task].gang]
    for at in range(gang.members.size):
        if t.tasks[gang.members.at[at]].flags & CLAIMING_:
            mark_only(t, t.allocations[t.tasks[gang.members.at[at]].place].node)
    return 0
