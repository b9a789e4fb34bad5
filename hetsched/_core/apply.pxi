# What every fact does to the tables, live and in replay alike; and the facts' bytes.
#
# Promises: `apply_*` asks nothing and decides nothing: whoever calls it has asked `refuse_*` first (a door, or the replay). All changes of a
# task's state go through set_state, so that lanes, demand and counters cannot fall behind. What a fact causes in turn (a claim whose
# last victim ended becomes a placement) is a fact of its own, written by the door and only read by the replay.
#
# Bytes, little-endian, after the code: TURN now 8 | WORDS kind 1, length 4, payload | PLACED task 4, attempt 2, node 4, lane 1, count 1,
# count x (device 1, share 2) | STARTED task 4, attempt 2 | STOPPING task 4, attempt 2, reason 1, by 4 | ENDED task 4, attempt 2, state 1,
# reason 1 | REQUEUED task 4, attempt 2, reason 1, hold 1 (bit 7: preempted) | BACKED_OFF task 4, attempt 2, reason 1 | READY task 4 |
# HELD task 4, flags 1 | CLAIMED task 4, node 4, lane 1, cost 8, count 1, pieces as above, victims 2, victims x task 4 | UNCLAIMED task 4 |
# PRIORITISED task 4, priority 2 | FORGOTTEN task 4.

cdef enum:
    FACT_TURN = 1
    FACT_WORDS = 2
    FACT_PLACED = 3
    FACT_STARTED = 4
    FACT_STOPPING = 5
    FACT_ENDED = 6
    FACT_REQUEUED = 7
    FACT_BACKED_OFF = 8
    FACT_READY = 9
    FACT_HELD = 10
    FACT_CLAIMED = 11
    FACT_UNCLAIMED = 12
    FACT_PRIORITISED = 13
    FACT_FORGOTTEN = 14
    PREEMPTED_BIT = 0x80
    HELD_FLAGS = 6             # HELD_OPERATOR | HELD_DEPENDENCY


# ---------------------------------------------------------------- bytes

cdef int fact(Tables* t, uint8_t code, size_t bytes) except -1 nogil:
    """Room for a fact and its code; before the first of a turn the turn itself."""
    fact_room(&t.facts, bytes + 10)
    if t.turn_open:
        t.turn_open = False
        put8(&t.facts, FACT_TURN)
        put64(&t.facts, t.now_ns)
    put8(&t.facts, code)
    return 0


cdef int fact_task(Tables* t, uint8_t code, uint32_t task) except -1 nogil:
    fact(t, code, 4)
    put32(&t.facts, task)
    return 0


cdef int fact_attempt(Tables* t, uint8_t code, uint32_t task) except -1 nogil:
    """Code, task, current attempt; with room for six bytes more."""
    fact(t, code, 12)
    put32(&t.facts, task)
    put16(&t.facts, t.tasks[task].attempt)
    return 0


cdef void put_pieces(Buffer* facts, uint32_t* pieces, int count) noexcept nogil:
    cdef int at
    put8(facts, <uint8_t> count)
    for at in range(count):
        put8(facts, pieces[at] & 0xFF)
        put16(facts, <uint16_t> (pieces[at] >> 8))


# ---------------------------------------------------------------- states

cdef inline bint is_live(TaskRecord* task) noexcept nogil:
    return PLACED_ <= task.state <= STOPPING_


cdef inline bint is_terminal(TaskRecord* task) noexcept nogil:
    return task.state >= SUCCEEDED_


cdef inline bint is_evictable(TaskRecord* task) noexcept nogil:
    return (task.state == PLACED_ or task.state == RUNNING_) and task.flags & PREEMPTIBLE_ and qos_of(task) > 0


cdef int start_waiting(Tables* t, uint32_t slot) except -1 nogil:
    cdef TaskRecord* task = &t.tasks[slot]
    cdef uint32_t lane
    t.waiting[qos_of(task)] += 1
    t.shapes[task.shape].pending += 1
    task.place = NONE_
    if task.gang == NONE_:
        lane_of(t, task, &lane)
        enter_lane(t, slot, lane)
    else:
        touch_gang(t, task.gang)
    return 0


cdef int stop_waiting(Tables* t, uint32_t slot) except -1 nogil:
    cdef TaskRecord* task = &t.tasks[slot]
    leave_lane(t, slot)
    t.waiting[qos_of(task)] -= 1
    t.shapes[task.shape].pending -= 1
    t.shapes[task.shape].idle_since = t.rounds
    if task.gang != NONE_:
        touch_gang(t, task.gang)
    return 0


cdef int set_state(Tables* t, uint32_t slot, uint8_t state) except -1 nogil:
    cdef TaskRecord* task = &t.tasks[slot]
    if is_waiting(task):
        stop_waiting(t, slot)
    t.counts[task.state] -= 1
    t.counts[state] += 1
    task.state = state
    task.changed_ns = t.now_ns
    if is_waiting(task):
        start_waiting(t, slot)
    elif task.gang != NONE_:
        touch_gang(t, task.gang)
    return 0


# ---------------------------------------------------------------- what each fact does

cdef int apply_placed(Tables* t, uint32_t slot, uint32_t node, uint8_t lane, uint32_t* pieces, int count) except -1 nogil:
    """From the lane, or a claim whose victims are gone: then pieces and node are the claim's."""
    cdef TaskRecord* task = &t.tasks[slot]
    cdef uint32_t allocation
    cdef AllocationRecord* record
    if task.flags & CLAIMING_:
        allocation = task.place
        task.flags &= ~CLAIMING_
        t.counts[QUEUED_] -= 1
        t.counts[PLACED_] += 1
        task.state = PLACED_
        task.changed_ns = t.now_ns
        t.allocations[allocation].is_claim = False
        t.allocations[allocation].placed_ns = t.now_ns
        t.allocations[allocation].cost = 0
        t.nodes[node].claims -= 1
        drop_claimer(t, slot)
    else:
        set_state(t, slot, PLACED_)
        take_allocation(t, slot, node, pieces, count, &allocation)
    record = &t.allocations[allocation]
    record.lane = lane
    task.place = allocation
    task.attempt += 1
    hold_live(t, &t.shapes[task.shape], 1)
    t.nodes[node].allocations += 1
    if is_evictable(task):
        t.nodes[node].evictable[qos_of(task)] += 1
        t.changes += 1
    if task.gang != NONE_:
        touch_gang(t, task.gang)
    return 0


cdef int apply_started(Tables* t, uint32_t slot) except -1 nogil:
    t.allocations[t.tasks[slot].place].started_ns = max(t.now_ns, <int64_t> 1)   # 0: not yet, and virtual clocks begin at 0
    note_damped_start(t, &t.tasks[slot])
    set_state(t, slot, RUNNING_)
    return 0


cdef int apply_stopping(Tables* t, uint32_t slot) except -1 nogil:
    cdef TaskRecord* task = &t.tasks[slot]
    if is_evictable(task):
        t.nodes[t.allocations[task.place].node].evictable[qos_of(task)] -= 1
    set_state(t, slot, STOPPING_)
    return 0


cdef int apply_ended(Tables* t, uint32_t slot, uint8_t state, uint32_t* claim) except -1 nogil:
    cdef TaskRecord* task = &t.tasks[slot]
    cdef uint32_t story = NONE_
    claim[0] = NONE_
    if is_live(task):
        release(t, slot, claim, &story)
        t.left += t.shapes[task.shape].ask_count > 0
    task.flags &= ~HELD_FLAGS
    if state == SUCCEEDED_ and task.gang != NONE_:
        t.gangs[task.gang].succeeded += 1
    set_state(t, slot, state)
    task.place = story if state == SUCCEEDED_ else NONE_
    if story != NONE_ and state != SUCCEEDED_:
        story_gone(t, slot, story)
    return 0


cdef int apply_requeued(Tables* t, uint32_t slot, uint8_t hold, uint32_t* claim) except -1 nogil:
    cdef TaskRecord* task = &t.tasks[slot]
    cdef uint32_t story
    if hold & PREEMPTED_BIT:
        apply_evicted(t, task)
    else:
        calm(t, task)
        note_loss(t, task.gang)
    release(t, slot, claim, &story)
    story_gone(t, slot, story)
    task.flags |= hold & HELD_FLAGS
    set_state(t, slot, HELD_ if hold & HELD_FLAGS else QUEUED_)
    return 0


cdef int apply_evicted(Tables* t, TaskRecord* task) except -1 nogil:
    """What the end of an attempt that had to go means for the next one."""
    cdef bint is_second
    if task.preemptions < 255:
        task.preemptions += 1
    note_eviction(t, task.sequence, task.changed_ns if task.state == STOPPING_ else t.now_ns, &is_second)
    task.flags = task.flags | SHAKEN_ if is_second else task.flags & ~SHAKEN_
    return 0


cdef inline void calm(Tables* t, TaskRecord* task) noexcept nogil:
    """An attempt ended in another way: the start that was protected is over, if there was one."""
    if t.allocations[task.place].started_ns > 0:
        task.flags &= ~SHAKEN_


cdef int apply_backed_off(Tables* t, uint32_t slot, uint32_t* claim) except -1 nogil:
    cdef TaskRecord* task = &t.tasks[slot]
    cdef uint32_t story
    calm(t, task)
    note_loss(t, task.gang)
    release(t, slot, claim, &story)
    story_gone(t, slot, story)
    if task.failures < 255:
        task.failures += 1
    set_state(t, slot, BACKOFF_)
    return 0


cdef int apply_ready(Tables* t, uint32_t slot) except -1 nogil:
    t.tasks[slot].flags &= ~HELD_FLAGS
    set_state(t, slot, QUEUED_)
    return 0


cdef int apply_held(Tables* t, uint32_t slot, uint8_t flags) except -1 nogil:
    t.tasks[slot].flags = (t.tasks[slot].flags & ~HELD_FLAGS) | (flags & HELD_FLAGS)
    if t.tasks[slot].state != HELD_:
        set_state(t, slot, HELD_)
    return 0


cdef int apply_claimed(Tables* t, uint32_t slot, uint32_t node, uint8_t lane, int64_t cost, uint32_t* pieces, int count,
                       const uint8_t* victims, int victim_count) except -1 nogil:
    """Room is taken at once, so that nobody else takes the hole; free amounts may be negative until the victims are gone."""
    cdef TaskRecord* task = &t.tasks[slot]
    cdef uint32_t claim, victim
    cdef AllocationRecord* record
    cdef int at
    stop_waiting(t, slot)
    task.flags |= CLAIMING_
    take_allocation(t, slot, node, pieces, count, &claim)
    task.place = claim
    record = &t.allocations[claim]
    record.is_claim = True
    record.cost = cost
    record.lane = lane
    record.victims = <uint16_t> victim_count
    t.nodes[node].claims += 1
    note_claimer(t, slot)
    for at in range(victim_count - 1, -1, -1):
        victim = t.tasks[get32(victims + at * 4)].place
        t.allocations[victim].claim = claim
        t.allocations[victim].next_victim = record.first_victim
        record.first_victim = victim
    return 0


cdef int apply_unclaimed(Tables* t, uint32_t slot) except -1 nogil:
    cdef TaskRecord* task = &t.tasks[slot]
    cdef AllocationRecord* record = &t.allocations[task.place]
    while record.first_victim != NONE_:
        forget_victim(t, task.place, record.first_victim)
    t.nodes[record.node].claims -= 1
    drop_claimer(t, slot)
    give_allocation(t, task.place)
    task.flags &= ~CLAIMING_
    start_waiting(t, slot)
    return 0


cdef int apply_prioritised(Tables* t, uint32_t slot, int16_t priority) except -1 nogil:
    cdef TaskRecord* task = &t.tasks[slot]
    cdef bint waits = is_waiting(task)
    if waits:
        stop_waiting(t, slot)
    task.priority = priority
    if waits:
        start_waiting(t, slot)
    return 0


cdef int apply_forgotten(Tables* t, uint32_t slot) except -1 nogil:
    cdef TaskRecord* task = &t.tasks[slot]
    if task.gang != NONE_:
        leave_gang(t, task.gang, slot)
    if task.state == SUCCEEDED_ and task.place != NONE_:
        drop_story(t, task.place)
    index_drop(t, slot)
    arena_give(&t.keys, task.key, key_length(t, task.key) + 1)
    t.counts[task.state] -= 1
    t.tasks_count -= 1
    memset(task, 0, sizeof(TaskRecord))
    task.place = t.tasks_free
    t.tasks_free = slot
    return 0
