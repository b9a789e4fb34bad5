# Guaranteed capacity: who is owed, who borrows, and what may be taken back.
#
# Promises: an owed task may stop preemptible tasks of its own level too (never critical ones), if they run in queues above their own
# guarantee, and only up to its queue's. A guarantee counts for device kinds; of a line of queues the innermost that has one speaks for
# all below it. What is taken back lowers the sum of what queues lack of their guarantees, strictly, so two queues can never evict each
# other in turns: the one is within its guarantee afterwards, and nothing is taken from within a guarantee.

cdef uint32_t promise_of(Tables* t, uint32_t queue) noexcept nogil:
    """The innermost queue of the line that is guaranteed devices, or NONE."""
    cdef int resource
    while queue != NONE_:
        for resource in range(2, RESOURCES):
            if t.queues[queue].guaranteed[resource] > 0:
                return queue
        queue = t.queues[queue].parent
    return NONE_


cdef bint is_owed(Tables* t, uint32_t task) noexcept nogil:
    """With this task, too, its queue stays within what it is guaranteed of every kind that the task asks for."""
    cdef ShapeRecord* shape = &t.shapes[t.tasks[task].shape]
    cdef uint32_t mine
    cdef int ask, resource
    if not t.has_guarantees or shape.ask_count == 0:
        return False
    mine = promise_of(t, t.tasks[task].queue)
    if mine == NONE_:
        return False
    for ask in range(shape.ask_count):
        resource = 2 + shape.asks[ask].kind
        if t.queues[mine].used[resource] + ask_milli(&shape.asks[ask]) > t.queues[mine].guaranteed[resource]:
            return False
    return True


cdef bint is_in_line(Tables* t, uint32_t queue, uint32_t above) noexcept nogil:
    while queue != NONE_ and queue != above:
        queue = t.queues[queue].parent
    return queue == above


cdef int64_t held_milli(Tables* t, uint32_t queue, int resource) noexcept nogil:
    """Held by attempts that stay: what a queue claims for later it does not have yet, what is stopping it gives back already."""
    cdef uint32_t at
    cdef AskRecord* ask
    cdef AllocationRecord* claim
    cdef int64_t held = t.queues[queue].used[resource]
    for at in range(t.passing.size):
        claim = &t.allocations[t.passing.at[at]]
        ask = ask_of(&t.shapes[t.tasks[claim.task].shape], <uint8_t> (resource - 2))
        if ask != NULL and is_in_line(t, t.tasks[claim.task].queue, queue):
            held -= ask_milli(ask)
    return held


cdef bint is_borrowed(Tables* t, uint32_t victim, uint32_t owner) noexcept nogil:
    """The victim's queue is above its guarantee in a kind that both ask for, and it is not the owner's own."""
    cdef uint32_t theirs = promise_of(t, t.tasks[victim].queue)
    cdef ShapeRecord* shape = &t.shapes[t.tasks[victim].shape]
    cdef int ask, resource
    if is_in_line(t, t.tasks[victim].queue, promise_of(t, t.tasks[owner].queue)):
        return False
    if theirs == NONE_:
        theirs = t.tasks[victim].queue
    for ask in range(shape.ask_count):
        resource = 2 + shape.asks[ask].kind
        if held_milli(t, theirs, resource) > t.queues[theirs].guaranteed[resource] and ask_of(
                &t.shapes[t.tasks[owner].shape], shape.asks[ask].kind) != NULL:
            return True
    return False


cdef int64_t total_lack(Tables* t) noexcept nogil:
    """What all queues lack of their guarantees, milli of devices."""
    cdef uint32_t queue
    cdef int resource
    cdef int64_t lack = 0
    for queue in range(t.queues_used):
        for resource in range(2, RESOURCES):
            lack += max(<int64_t> 0, t.queues[queue].guaranteed[resource] - t.queues[queue].used[resource])
    return lack


cdef int begin_reclaim(Tables* t, uint32_t task) except -1 nogil:
    """A blocked head looks for victims: may it take back?"""
    cdef uint32_t slot
    t.owner = task if is_owed(t, task) else NONE_
    if t.owner == NONE_:
        return 0
    t.lack_before = total_lack(t)
    t.passing.size = 0
    for slot in range(t.allocations_used):
        if t.allocations[slot].is_live and (t.allocations[slot].is_claim or t.tasks[t.allocations[slot].task].state == STOPPING_):
            push(&t.passing, slot)
    return 0


cdef bint levels_out(Tables* t) noexcept nogil:
    """With the victims lifted now and the owner in, queues lack less in all than before; or they are all ordinary ones."""
    cdef uint32_t at
    cdef bint takes_back = False
    if t.owner == NONE_:
        return True
    for at in range(t.units_size):
        if t.units[at].is_in and t.units[at].qos <= qos_of(&t.tasks[t.owner]):
            takes_back = True
    if not takes_back:
        return True
    return total_lack(t) - t.shapes[t.tasks[t.owner].shape].device_milli < t.lack_before


cdef inline bint may_take_back(Tables* t, uint32_t victim, int preemptor_qos) noexcept nogil:
    """Beside the ordinary victims, who are strictly less urgent."""
    return t.owner != NONE_ and qos_of(&t.tasks[victim]) == preemptor_qos and is_borrowed(t, victim, t.owner)


cdef inline bint is_still_borrowed(Tables* t, uint32_t at) noexcept nogil:
    """An ordinary unit always; one of the owner's own level while its queue is above its guarantee."""
    cdef uint32_t task = t.units[at].task
    return t.owner == NONE_ or t.units[at].qos > qos_of(&t.tasks[t.owner]) or is_borrowed(t, task, t.owner)
