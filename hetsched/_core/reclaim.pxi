# Guaranteed capacity: who is owed, who borrows, and what may be taken back.
#
# Promises: an owed task may stop preemptible tasks of its own level too (never critical ones), if they run in queues above their own
# guarantee, and only up to its queue's. A guarantee may name cpu, memory and kinds of devices; of a line of queues the innermost that has
# one speaks for all below it. What is taken back lowers the sum of what queues lack of their guarantees, strictly, so queues can never
# evict each other in turns, nor in a ring: each eviction among equals takes one step down a ladder that ends. (The sum is of parts of the
# cluster's capacity, for a core and a device have no unit in common.) A gang is owed what its members that must start together ask for, or
# nothing.
#
# Of victims of one level those go first whose queues borrow: who is stopped and owed the same again takes it from a borrower in his turn.

cdef double LEAST_GAIN = 1e-9   # of the cluster: sums of unlike resources are exact to far less


cdef uint32_t promise_of(Tables* t, uint32_t queue) noexcept nogil:
    """The innermost queue of the line that is guaranteed something, or NONE."""
    cdef int resource
    while queue != NONE_:
        for resource in range(RESOURCES):
            if t.queues[queue].guaranteed[resource] > 0:
                return queue
        queue = t.queues[queue].parent
    return NONE_


cdef int64_t asked_of(ShapeRecord* shape, int resource) noexcept nogil:
    """What a task of the shape takes of a resource: millicores, bytes or thousandths of devices."""
    cdef AskRecord* ask
    if resource == 0:
        return shape.cpu_milli
    if resource == 1:
        return shape.memory_bytes
    ask = ask_of(shape, <uint8_t> (resource - 2))
    return ask_milli(ask) if ask != NULL else 0


cdef bint sum_wanted(Tables* t, uint32_t task, int64_t* wanted) noexcept nogil:
    """What comes in with the task: itself, or as many members as its gang needs, at most (of unlike ones the largest asks count for all).
    0: they have no guarantee in common."""
    cdef GangRecord* gang
    cdef Census census
    cdef TaskRecord* member
    cdef int64_t all_waiting[RESOURCES]
    cdef uint32_t at, needed
    cdef int resource
    cdef bint is_unlike = False
    for resource in range(RESOURCES):
        wanted[resource] = asked_of(&t.shapes[t.tasks[task].shape], resource)
    if t.tasks[task].gang == NONE_:
        return True
    gang = &t.gangs[t.tasks[task].gang]
    census = count_members(t, gang)
    if census.live + gang.succeeded >= gang.min_size:
        return True
    needed = gang.min_size - census.live - gang.succeeded
    for at in range(gang.members.size):
        member = &t.tasks[gang.members.at[at]]
        if is_waiting(member) and member.queue != t.tasks[task].queue and promise_of(t, member.queue) != promise_of(t, t.tasks[task].queue):
            return False
        is_unlike |= is_waiting(member) and member.shape != t.tasks[task].shape
    if is_unlike:
        sum_waiting(t, gang, wanted, all_waiting)
    for resource in range(RESOURCES):
        wanted[resource] = min(wanted[resource] * needed, all_waiting[resource]) if is_unlike else wanted[resource] * needed
    return True


cdef void sum_waiting(Tables* t, GangRecord* gang, int64_t* most, int64_t* total) noexcept nogil:
    """Of each resource the largest ask of a waiting member, and the sum of all of them."""
    cdef uint32_t at
    cdef int resource
    cdef int64_t asked
    for resource in range(RESOURCES):
        most[resource] = total[resource] = 0
        for at in range(gang.members.size):
            if is_waiting(&t.tasks[gang.members.at[at]]):
                asked = asked_of(&t.shapes[t.tasks[gang.members.at[at]].shape], resource)
                most[resource] = max(most[resource], asked)
                total[resource] += asked


cdef bint is_owed(Tables* t, uint32_t task) noexcept nogil:
    """It asks for something that its queue is guaranteed, and with it, too, the queue stays within what it is guaranteed: of all that the
    guarantee names, and of every kind of device that the task asks for. A gang that has not begun: with all whom it needs."""
    cdef int64_t wanted[RESOURCES]
    cdef QueueRecord* mine
    cdef uint32_t promise
    cdef int resource
    cdef bint is_named = False
    if not t.has_guarantees:
        return False
    promise = promise_of(t, t.tasks[task].queue)
    if promise == NONE_:
        return False
    if not sum_wanted(t, task, wanted):
        return False
    mine = &t.queues[promise]
    for resource in range(RESOURCES):
        if wanted[resource] == 0 or (resource < 2 and mine.guaranteed[resource] == 0):
            continue
        if mine.used[resource] + wanted[resource] > mine.guaranteed[resource]:
            return False
        is_named = True
    return is_named


cdef bint is_in_line(Tables* t, uint32_t queue, uint32_t above) noexcept nogil:
    while queue != NONE_ and queue != above:
        queue = t.queues[queue].parent
    return queue == above


cdef int64_t held_of(Tables* t, uint32_t queue, int resource) noexcept nogil:
    """Held by attempts that stay: what a queue claims for later, or tries, it does not have yet; what is stopping it gives back already."""
    cdef uint32_t at
    cdef int64_t held = t.queues[queue].used[resource]
    for at in range(t.passing.size):
        held -= asked_in_line(t, t.allocations[t.passing.at[at]].task, queue, resource)
    for at in range(t.seated):
        held -= asked_in_line(t, t.trial[at].task, queue, resource)
    return held


cdef inline int64_t asked_in_line(Tables* t, uint32_t task, uint32_t queue, int resource) noexcept nogil:
    """0 if the task is in another line than this queue's."""
    cdef int64_t asked = asked_of(&t.shapes[t.tasks[task].shape], resource)
    return asked if asked > 0 and is_in_line(t, t.tasks[task].queue, queue) else 0


cdef bint is_own(Tables* t, uint32_t task) noexcept nogil:
    """Its queue is guaranteed what it holds, so that it would be owed the same once it was stopped: is_owed, of one that is counted in."""
    cdef uint32_t promise = promise_of(t, t.tasks[task].queue)
    cdef ShapeRecord* shape = &t.shapes[t.tasks[task].shape]
    cdef int resource
    cdef bint is_named = False
    if promise == NONE_:
        return False
    for resource in range(RESOURCES):
        if asked_of(shape, resource) == 0 or (resource < 2 and t.queues[promise].guaranteed[resource] == 0):
            continue
        if held_of(t, promise, resource) > t.queues[promise].guaranteed[resource]:
            return False
        is_named = True
    return is_named


cdef inline void hold_in_queue(Tables* t, uint32_t task, int sign) noexcept nogil:
    hold_queue(t, t.tasks[task].queue, &t.shapes[t.tasks[task].shape], sign)


cdef uint32_t count_own(Tables* t, Slots* victims) noexcept nogil:
    """How many of these, who are lifted, their queues are guaranteed."""
    cdef uint32_t at, own = 0
    if not t.has_guarantees:
        return 0
    for at in range(victims.size):
        hold_in_queue(t, victims.at[at], 1)
        own += is_own(t, victims.at[at])
    for at in range(victims.size):
        hold_in_queue(t, victims.at[at], -1)
    return own


cdef inline bint is_lacking(Tables* t, uint32_t victim, uint32_t owner, int resource) noexcept nogil:
    """The owner wants it, and of cores and memory the victim's node has less. (Members of a gang may have many nodes.)"""
    cdef NodeRecord* node = &t.nodes[t.allocations[t.tasks[victim].place].node]
    cdef ShapeRecord* shape = &t.shapes[t.tasks[owner].shape]
    if t.wanted[resource] == 0:
        return False
    if resource >= 2 or t.tasks[owner].gang != NONE_:
        return True
    return cpu_room(node, shape) < shape.cpu_milli if resource == 0 else memory_room(node, shape) < shape.memory_bytes


cdef bint is_borrowed(Tables* t, uint32_t victim, uint32_t owner) noexcept nogil:
    """The victim's queue is above its guarantee in something that it asks for, that is lacking and that the owner's queue is guaranteed; it is
    not the owner's own, and its queue is not guaranteed what it holds."""
    cdef uint32_t theirs = promise_of(t, t.tasks[victim].queue)
    cdef uint32_t mine = promise_of(t, t.tasks[owner].queue)
    cdef ShapeRecord* shape = &t.shapes[t.tasks[victim].shape]
    cdef int resource
    if is_in_line(t, t.tasks[victim].queue, mine) or is_own(t, victim):
        return False
    if theirs == NONE_:
        theirs = t.tasks[victim].queue
    for resource in range(RESOURCES):
        if t.queues[mine].guaranteed[resource] == 0 or asked_of(shape, resource) == 0 or not is_lacking(t, victim, owner, resource):
            continue
        if held_of(t, theirs, resource) > t.queues[theirs].guaranteed[resource]:
            return True
    return False


cdef void total_lack(Tables* t, TrialRecord* seats, uint32_t count, int64_t* sums) noexcept nogil:
    """What all queues lack of their guarantees, by resource, with those in who have these seats."""
    cdef uint32_t queue, at
    cdef int resource
    cdef int64_t lack
    for resource in range(RESOURCES):
        sums[resource] = 0
    for queue in range(t.queues_used):
        for resource in range(RESOURCES):
            lack = t.queues[queue].guaranteed[resource] - t.queues[queue].used[resource]
            if t.queues[queue].guaranteed[resource] == 0 or lack <= 0:
                continue
            for at in range(count):
                lack -= asked_in_line(t, seats[at].task, queue, resource)
            sums[resource] += max(<int64_t> 0, lack)


cdef double gained(Tables* t, int64_t* before, int64_t* after) noexcept nogil:
    """What of the cluster's capacity is lacking less. Of one resource the sign is exact."""
    cdef int resource
    cdef double parts = 0
    for resource in range(RESOURCES):
        if before[resource] != after[resource] and t.capacity[resource] > 0:
            parts += <double> (before[resource] - after[resource]) / <double> t.capacity[resource]
    return parts


cdef int begin_reclaim(Tables* t, uint32_t task) except -1 nogil:
    """A blocked head looks for victims: may it take back?"""
    t.owner = task if is_owed(t, task) else NONE_
    gather_passing(t)
    if t.owner != NONE_:
        sum_wanted(t, task, t.wanted)
        total_lack(t, NULL, 0, t.lack_before)
    return 0


cdef int gather_passing(Tables* t) except -1 nogil:
    """Before victims are searched."""
    cdef uint32_t slot
    t.passing.size = 0
    for slot in range(t.allocations_used if t.has_guarantees else 0):
        if t.allocations[slot].is_live and (t.allocations[slot].is_claim or t.tasks[t.allocations[slot].task].state == STOPPING_):
            push(&t.passing, slot)
    return 0


cdef bint levels_out(Tables* t, Slots* victims, TrialRecord* seats, uint32_t count) noexcept nogil:
    """With these victims lifted and these seats taken, queues lack less in all than before; or they are all ordinary ones."""
    cdef uint32_t at
    cdef int64_t after[RESOURCES]
    cdef bint takes_back = False
    if t.owner == NONE_:
        return True
    for at in range(victims.size):
        takes_back |= qos_of(&t.tasks[victims.at[at]]) <= qos_of(&t.tasks[t.owner])
    if not takes_back:
        return True
    total_lack(t, seats, count, after)
    return gained(t, t.lack_before, after) > LEAST_GAIN


cdef inline bint may_take_back(Tables* t, uint32_t victim, int preemptor_qos) noexcept nogil:
    """Beside the ordinary victims, who are strictly less urgent."""
    return t.owner != NONE_ and qos_of(&t.tasks[victim]) == preemptor_qos and is_borrowed(t, victim, t.owner)


cdef inline bint is_still_borrowed(Tables* t, uint32_t at) noexcept nogil:
    """An ordinary unit always; one of the owner's own level while its queue is above its guarantee."""
    cdef uint32_t task = t.units[at].task
    return t.owner == NONE_ or t.units[at].qos > qos_of(&t.tasks[t.owner]) or is_borrowed(t, task, t.owner)
