# What attempts and claims hold: records, lists of nodes, room.
#
# Promises: a record holds its room from take_allocation to give_allocation, claim or live; only live ones count as use.

cdef int take_allocation(Tables* t, uint32_t task, uint32_t node, uint32_t* pieces, int count, uint32_t* taken) except -1 nogil:
    """A record on the node's list, room held; not yet live."""
    cdef uint32_t slot = t.allocations_free
    cdef uint32_t ref = NONE_
    cdef AllocationRecord* record
    cdef NodeRecord* home = &t.nodes[node]
    if count > 0:
        arena_take(&t.pieces, count * 4, &ref)
        memcpy(arena_at(&t.pieces, ref), pieces, count * 4)
    if slot != NONE_:
        t.allocations_free = t.allocations[slot].next_on_node
    else:
        grow_lined(<void**> &t.allocations, &t.allocations_capacity, sizeof(AllocationRecord), <uint64_t> t.allocations_used + 1)
        slot = t.allocations_used
        t.allocations_used += 1
    t.allocations_count += 1
    record = &t.allocations[slot]
    memset(record, 0, sizeof(AllocationRecord))
    record.placed_ns = t.now_ns
    record.task = task
    record.node = node
    record.pieces = ref
    record.count = <uint8_t> count
    record.claim = NONE_
    record.next_victim = NONE_
    record.first_victim = NONE_
    record.is_live = True
    record.previous_on_node = NONE_
    record.next_on_node = home.allocation_first
    if home.allocation_first != NONE_:
        t.allocations[home.allocation_first].previous_on_node = slot
    home.allocation_first = slot
    hold_room(t, node, &t.shapes[t.tasks[task].shape], pieces, count, 1)
    hold_queue(t, t.tasks[task].queue, &t.shapes[t.tasks[task].shape], 1)
    count_gang(t, task, 1)
    mark(t, node)
    taken[0] = slot
    return 0


cdef inline uint32_t* pieces_of(Tables* t, AllocationRecord* record) noexcept nogil:
    return <uint32_t*> arena_at(&t.pieces, record.pieces) if record.count > 0 else NULL


cdef int give_allocation(Tables* t, uint32_t slot) except -1 nogil:
    """Off the node's list, room given back, record free."""
    cdef AllocationRecord* record = &t.allocations[slot]
    cdef NodeRecord* home = &t.nodes[record.node]
    cdef TaskRecord* task = &t.tasks[record.task]
    hold_room(t, record.node, &t.shapes[task.shape], pieces_of(t, record), record.count, -1)
    hold_queue(t, task.queue, &t.shapes[task.shape], -1)
    count_gang(t, record.task, -1)
    use_all(t, slot)
    if record.previous_on_node != NONE_:
        t.allocations[record.previous_on_node].next_on_node = record.next_on_node
    else:
        home.allocation_first = record.next_on_node
    if record.next_on_node != NONE_:
        t.allocations[record.next_on_node].previous_on_node = record.previous_on_node
    mark(t, record.node)
    t.frees += 1
    if record.count > 0:
        arena_give(&t.pieces, record.pieces, <uint32_t> record.count * 4)
    memset(record, 0, sizeof(AllocationRecord))
    record.next_on_node = t.allocations_free
    t.allocations_free = slot
    t.allocations_count -= 1
    return 0


cdef int release(Tables* t, uint32_t task, uint32_t* claim, uint32_t* story) except -1 nogil:
    """The live attempt holds nothing any more. `claim`: the claim that waited for nobody else, else NONE. `story`: what it was."""
    cdef uint32_t slot = t.tasks[task].place
    cdef AllocationRecord* record = &t.allocations[slot]
    cdef ShapeRecord* shape = &t.shapes[t.tasks[task].shape]
    claim[0] = NONE_
    if is_evictable(&t.tasks[task]):
        t.nodes[record.node].evictable[qos_of(&t.tasks[task])] -= 1
    if record.claim != NONE_:
        claim[0] = record.claim
        forget_victim(t, record.claim, slot)
        if t.allocations[claim[0]].victims > 0:
            claim[0] = NONE_
    keep_story(t, task, record, story)
    hold_live(t, shape, -1)
    t.nodes[record.node].allocations -= 1
    t.tasks[task].place = NONE_
    give_allocation(t, slot)
    return 0


cdef void forget_victim(Tables* t, uint32_t claim, uint32_t victim) noexcept nogil:
    cdef uint32_t* link = &t.allocations[claim].first_victim
    while link[0] != victim:
        link = &t.allocations[link[0]].next_victim
    link[0] = t.allocations[victim].next_victim
    t.allocations[victim].next_victim = NONE_
    t.allocations[victim].claim = NONE_
    t.allocations[claim].victims -= 1
