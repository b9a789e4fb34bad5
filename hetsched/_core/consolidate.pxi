# Moves: who is stopped for a blocked task or gang and has room elsewhere at this moment loses work, but no time.
#
# Promises: a set of victims is a move if, with all of them gone and the newcomer seated, each finds room again, beside the others, within
# its queue's limits; a gang that must share a domain never counts as movable. Of two proofs that cost the same the move is taken.
# MOVE_EQUAL also lets a task move others of its own level, best_effort or below, but only if no proof without them exists, if the set is a
# move, if each of them is smaller than the newcomer (so no two can move each other in turns) and was not evicted within DAMPING_NS, and
# singly: no member of a gang.

cdef enum:
    MOVE_NEVER_ = 0            # nobody looks for room elsewhere
    MOVE_LOWER_ = 1
    MOVE_EQUAL_ = 2


cdef bint may_move(Tables* t, uint32_t slot, int newcomer_qos) noexcept nogil:
    """One of the newcomer's own level."""
    cdef TaskRecord* task = &t.tasks[slot]
    cdef ShapeRecord* shape = &t.shapes[task.shape]
    cdef uint32_t at
    if not t.moving or qos_of(task) != newcomer_qos or qos_of(task) < 2 or task.gang != NONE_:
        return False
    if shape.device_milli > t.newcomer_milli or (shape.device_milli == t.newcomer_milli and shape.cpu_milli >= t.newcomer_cpu):
        return False
    for at in range(t.evictions_used):
        if t.evictions[at].sequence == task.sequence and t.now_ns - t.evictions[at].at_ns < DAMPING_NS:
            return False
    return True


cdef uint32_t first_room(Tables* t, uint32_t task, TrialRecord* entry) noexcept nogil:
    """The first node that takes it, or NONE; `entry` then says how."""
    cdef ShapeRecord* shape = &t.shapes[t.tasks[task].shape]
    cdef uint32_t node
    cdef int worst, count
    if not within_limits(t, t.tasks[task].queue, shape):
        return NONE_
    for node in range(t.nodes_used):
        count = fit(t, node, shape, entry.pieces, &worst)
        if count >= 0:
            entry.task = task
            entry.node = node
            entry.count = <uint32_t> count
            return node
    return NONE_


cdef int find_room(Tables* t, Slots* victims) except -1 nogil:
    """1: all of these, who are lifted, find room beside the newcomer, who is seated. Holds nothing afterwards."""
    cdef uint32_t at, gang
    t.moves_size = 0
    grow(<void**> &t.moves, &t.moves_capacity, sizeof(TrialRecord), victims.size)
    for at in range(victims.size):
        gang = t.tasks[victims.at[at]].gang
        if (gang != NONE_ and t.gangs[gang].column >= 0) or first_room(t, victims.at[at], &t.moves[t.moves_size]) == NONE_:
            break
        hold_trial(t, &t.moves[t.moves_size], 1)
        t.moves_size += 1
    for at in range(t.moves_size):
        hold_trial(t, &t.moves[at], -1)
    return t.moves_size == victims.size


cdef int is_move(Tables* t, Slots* victims, TrialRecord* seats, uint32_t count) except -1 nogil:
    """1: the victims, who are lifted, can be moved if these seats are taken."""
    cdef uint32_t at
    cdef int found
    if t.consolidate == MOVE_NEVER_:
        return 0
    for at in range(count):
        hold_trial(t, &seats[at], 1)
    found = find_room(t, victims)
    for at in range(count):
        hold_trial(t, &seats[at], -1)
    return found


cdef inline bint is_better_plan(Plan* plan, bint is_first, uint8_t victim_qos, uint32_t own, int64_t lost, uint32_t victims, bint moves) noexcept nogil:
    """Least urgent victims, then fewest who would be owed the same again, then least lost work, then a move, then fewest victims."""
    if is_first or victim_qos != plan.victim_qos:
        return is_first or victim_qos > plan.victim_qos
    if own != plan.own:
        return own < plan.own
    if lost != plan.lost or moves != plan.is_move:
        return lost < plan.lost or (lost == plan.lost and moves)
    return victims < plan.victims.size
