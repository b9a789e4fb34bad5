# Overcommit: what tasks hold of cpu and memory and, as measured, do not use is lent to others that give it back.
#
# A shape is soft if its tasks have the guarantee best_effort (and are not critical), else firm. With F held by firm tasks and S by soft ones
# on a node, `idle` what the firm ones do not use of F, and `extra` the part of it that may be lent (at most over_cpu, over_memory of the node):
#
#   a soft task fits where   F + S + its own <= capacity + extra
#   a firm one where that holds, and F + its own <= capacity: it never stands on what is lent, but soft ones may come to
#
# Promises: firm tasks never hold more than a node has; as extra <= idle <= F, nor do soft ones. Devices are never lent. Without a ratio
# (over_* 0) everybody fits as if there were neither soft nor firm. `idle` belongs to an allocation and goes with it.

cdef enum:
    TAKING_NONE = 0
    TAKING_SOFT_TOO = 1        # a firm newcomer lacks cpu or memory: soft tasks of its level too
    TAKING_ONLY_SOFT = 2       # the node lent more than is idle: nobody else


cdef inline bint is_soft(Tables* t, uint32_t task) noexcept nogil:
    return t.shapes[t.tasks[task].shape].is_soft


cdef inline bint lends(Tables* t) noexcept nogil:
    return t.over_cpu > 0 or t.over_memory > 0


cdef inline int64_t cpu_room(NodeRecord* node, ShapeRecord* shape) noexcept nogil:
    """What the shape may still take: of what is lent a firm one takes what soft ones hold, who then stand on it."""
    return node.cpu_free + (node.cpu_extra if shape.is_soft else min(node.cpu_extra, node.cpu_soft))


cdef inline int64_t memory_room(NodeRecord* node, ShapeRecord* shape) noexcept nogil:
    return node.memory_free + (node.memory_extra if shape.is_soft else min(node.memory_extra, node.memory_soft))


cdef inline int64_t part_of(int64_t amount, int64_t milli) noexcept nogil:
    """amount x milli / 1000, of amounts up to 2^53."""
    return amount // 1000 * milli + amount % 1000 * milli // 1000


cdef inline void lend(Tables* t, NodeRecord* node) noexcept nogil:
    node.cpu_extra = min(node.cpu_idle, part_of(node.cpu_milli, t.over_cpu))
    node.memory_extra = min(node.memory_idle, part_of(node.memory_bytes, t.over_memory))


cdef inline void hold_idle(Tables* t, uint32_t allocation, int sign) noexcept nogil:
    """1: what this allocation does not use is idle on its node; -1: not any more."""
    cdef NodeRecord* node
    if allocation >= t.uses_used or t.uses[allocation].cpu_idle == 0 and t.uses[allocation].memory_idle == 0:
        return
    node = &t.nodes[t.allocations[allocation].node]
    node.cpu_idle += sign * t.uses[allocation].cpu_idle
    node.memory_idle += sign * t.uses[allocation].memory_idle
    lend(t, node)


cdef inline void use_all(Tables* t, uint32_t allocation) noexcept nogil:
    """As if it used all that it holds; so does whoever gets this slot next."""
    hold_idle(t, allocation, -1)
    if allocation < t.uses_used:
        t.uses[allocation].cpu_idle = t.uses[allocation].memory_idle = 0


cdef int note_use(Tables* t, uint32_t task, int64_t cpu_used, int64_t memory_used) except -1 nogil:
    """Measured of a live attempt; below 0 = not measured, so all of it. What soft tasks do not use is nobody's."""
    cdef ShapeRecord* shape = &t.shapes[t.tasks[task].shape]
    cdef uint32_t allocation = t.tasks[task].place
    cdef uint32_t node = t.allocations[allocation].node
    if shape.is_soft:
        return 0
    if allocation >= t.uses_used:
        grow(<void**> &t.uses, &t.uses_capacity, sizeof(UseRecord), <uint64_t> allocation + 1)
        t.uses_used = allocation + 1
    hold_idle(t, allocation, -1)
    t.uses[allocation].cpu_idle = max(<int64_t> 0, shape.cpu_milli - cpu_used) if cpu_used >= 0 else 0
    t.uses[allocation].memory_idle = max(<int64_t> 0, shape.memory_bytes - memory_used) if memory_used >= 0 else 0
    hold_idle(t, allocation, 1)
    t.frees += 1
    return mark(t, node)


cdef int set_ratios(Tables* t, int64_t over_cpu, int64_t over_memory) except -1 nogil:
    cdef uint32_t node
    if t.over_cpu == over_cpu and t.over_memory == over_memory:
        return 0
    t.over_cpu = over_cpu
    t.over_memory = over_memory
    for node in range(t.nodes_used):
        if t.nodes[node].is_present:
            lend(t, &t.nodes[node])
            mark(t, node)
    t.frees += 1
    return 0


# ---------------------------------------------------------------- a firm newcomer

cdef inline bint is_reclaimable(Tables* t, TaskRecord* task) noexcept nogil:
    return (task.state == PLACED_ or task.state == RUNNING_) and t.shapes[task.shape].is_soft and qos_of(task) > 0


cdef inline bint may_reclaim_here(Tables* t, NodeRecord* node, ShapeRecord* shape) noexcept nogil:
    return lends(t) and not shape.is_soft and (node.cpu_soft > 0 or node.memory_soft > 0)


cdef void begin_taking(Tables* t, uint32_t slot, ShapeRecord* shape) noexcept nogil:
    """Soft tasks give way if it is cpu or memory that the newcomer lacks here; for devices they are tasks like any other."""
    cdef uint32_t pieces[MAX_PIECES]
    cdef int worst
    cdef NodeRecord* node = &t.nodes[slot]
    t.taking = TAKING_NONE
    if may_reclaim_here(t, node, shape) and not has_base(node, shape) and pick(
            t, t.devices + node.device_first, node.device_count, shape, pieces, &worst) >= 0:
        t.taking = TAKING_SOFT_TOO
