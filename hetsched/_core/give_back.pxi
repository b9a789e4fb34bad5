# An owner needs what it had lent: soft tasks of the node are stopped, at once.
#
# Promises: afterwards, once those have ended who are told to stop, what firm tasks use and soft tasks hold is within the node. The set is
# minimal, least urgent first, then cheapest in lost work, then youngest. Damping protects nobody here: the owner was promised it.

cdef bint is_covered(Tables* t, uint32_t slot, int64_t cpu_leaving, int64_t memory_leaving) noexcept nogil:
    cdef NodeRecord* node = &t.nodes[slot]
    return node.cpu_free + node.cpu_idle + cpu_leaving >= 0 and node.memory_free + node.memory_idle + memory_leaving >= 0


cdef void sum_leaving(Tables* t, uint32_t node, int64_t* cpu, int64_t* memory) noexcept nogil:
    """What those give back who are stopping: they hold it, and what they do not use of it is counted already."""
    cdef uint32_t slot = t.nodes[node].allocation_first
    cdef ShapeRecord* shape
    cpu[0] = memory[0] = 0
    while slot != NONE_:
        if t.tasks[t.allocations[slot].task].state == STOPPING_:
            shape = &t.shapes[t.tasks[t.allocations[slot].task].shape]
            cpu[0] += shape.cpu_milli - (t.uses[slot].cpu_idle if slot < t.uses_used else 0)
            memory[0] += shape.memory_bytes - (t.uses[slot].memory_idle if slot < t.uses_used else 0)
        slot = t.allocations[slot].next_on_node


cdef int drop_soft_claims(Tables* t, uint32_t node) except -1 nogil:
    cdef uint32_t slot = t.nodes[node].allocation_first
    while slot != NONE_:
        if t.allocations[slot].is_claim and is_soft(t, t.allocations[slot].task):
            do_unclaimed(t, t.allocations[slot].task)
            slot = t.nodes[node].allocation_first
        else:
            slot = t.allocations[slot].next_on_node
    return 0


cdef int64_t give_back(Tables* t, uint32_t node, uint32_t by) except -1 nogil:
    """Returns how many were stopped."""
    cdef int64_t cpu, memory, at
    cdef uint32_t gang
    sum_leaving(t, node, &cpu, &memory)
    if is_covered(t, node, cpu, memory):
        return 0
    drop_soft_claims(t, node)
    t.taking = TAKING_ONLY_SOFT
    gather_passing(t)
    gather_units(t, node, 0)
    t.taking = TAKING_NONE
    for at in range(t.units_size):
        if is_covered(t, node, cpu, memory):
            break
        lift(t, <uint32_t> at)
    for at in range(<int64_t> t.units_size - 1, -1, -1):
        gang = t.tasks[t.units[at].task].gang
        if not t.units[at].is_in or (t.units[at].gang == NONE_ and gang != NONE_ and has_whole(t, gang, True)):
            continue
        put_back(t, <uint32_t> at)
        if not is_covered(t, node, cpu, memory):
            lift(t, <uint32_t> at)
    t.lifted.size = 0
    lifted_tasks(t, &t.lifted)
    put_all_back(t)
    for at in range(t.lifted.size):
        do_stopping(t, t.lifted.at[at], STOP_RECLAIM, by)
    return t.lifted.size
