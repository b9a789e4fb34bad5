# EASY backfill (Lifka 1995): the first blocked head has a reservation, and who goes after it may not delay it.
#
# Promises: one reservation at a time, of the best blocked task or gang that expected ends of what runs give a start at all; who has no
# expected run time is taken to run for ever. While somebody behind it is decided its nodes are closed, to claims too, to all but those who
# are gone before the start or leave it the room it needs (gangs: only if gone before the start). It is derived: found anew after a load, never in the journal.
#
# How: expected ends sorted; the fewest that have to come true are searched by halves (lifted off and put back, as victims are). The seats
# found then are kept until the start is over, the head is gone, or REVIEW_NS later an earlier start is found: a reservation that moved
# with every change would protect nothing. A task that runs longer than expected is expected to take twice as long, then
# four times; one that is told to stop is expected to need a second.

cdef uint32_t count_timed(Tables* t) noexcept nogil:
    cdef uint32_t at, timed = 0
    for at in range(t.templates_used):
        timed += t.templates[at].said_ns > 0
    for at in range(t.expectations_used):
        timed += t.expectations[at].expected_ns > 0
    return timed


cdef inline ExpectationRecord* expectation_of(Tables* t, TaskRecord* task) noexcept nogil:
    """What was learned of its like, NULL = nobody looked yet."""
    if task.template_ >= t.templates_used or t.templates[task.template_].expectation >= t.expectations_used:
        return NULL
    return &t.expectations[t.templates[task.template_].expectation]


cdef inline int64_t run_by(Tables* t, TaskRecord* task, bint is_typical) noexcept nogil:
    """What was learned where it counts for more than what is said, else that; 0 = unknown."""
    cdef ExpectationRecord* expectation = expectation_of(t, task)
    cdef TemplateRecord* template
    if task.template_ >= t.templates_used:
        return 0
    template = &t.templates[task.template_]
    if expectation == NULL or expectation.expected_ns == 0 or template.trust == TRUST_WORD_:
        return template.said_ns
    if template.trust == TRUST_ESTIMATE_ and not expectation.beats_estimates:
        return template.said_ns
    return expectation.typical_ns if is_typical and expectation.typical_ns > 0 else expectation.expected_ns


cdef inline int64_t run_of(Tables* t, TaskRecord* task) noexcept nogil:
    """Run time that it is not expected to exceed, 0 = unknown: for who wants to go in front."""
    return run_by(t, task, False)


cdef inline int64_t typical_run_of(Tables* t, TaskRecord* task) noexcept nogil:
    """Run time of half of the like, 0 = unknown: for who runs. Both guesses err to the head's good: its nodes are found soon, and kept free."""
    return run_by(t, task, True)


cdef int64_t end_of(Tables* t, AllocationRecord* record) noexcept nogil:
    """When it is expected to be over; NEVER if nobody knows."""
    cdef TaskRecord* task = &t.tasks[record.task]
    cdef int64_t run_ns = typical_run_of(t, task)
    cdef int64_t begun_ns = record.started_ns if record.started_ns > 0 else record.placed_ns
    if task.state == STOPPING_:
        begun_ns = task.changed_ns
        run_ns = 1000000000
    if run_ns <= 0:
        return INT64_MAX
    if record.is_claim:
        begun_ns = t.now_ns
    while begun_ns + run_ns <= t.now_ns and run_ns < <int64_t> 1 << 60:
        run_ns *= 2
    return begun_ns + run_ns


cdef int by_end(const void* one, const void* other) noexcept nogil:
    cdef const EndRecord* a = <const EndRecord*> one
    cdef const EndRecord* b = <const EndRecord*> other
    if a.end_ns != b.end_ns:
        return -1 if a.end_ns < b.end_ns else 1
    return (a.allocation > b.allocation) - (a.allocation < b.allocation)


cdef int gather_ends(Tables* t) except -1 nogil:
    """Once for all heads that are asked for while nothing changes."""
    cdef uint32_t at
    cdef int64_t end_ns
    if t.ends_rounds == t.rounds and t.ends_changes == t.changes:
        return 0
    t.ends_rounds, t.ends_changes = t.rounds, t.changes
    t.ends_size = 0
    if t.timed == 0 and t.counts[STOPPING_] == 0:  # nobody's end is known
        return 0
    for at in range(t.allocations_used):
        if not t.allocations[at].is_live:
            continue
        end_ns = end_of(t, &t.allocations[at])
        if end_ns < INT64_MAX:
            grow(<void**> &t.ends, &t.ends_capacity, sizeof(EndRecord), <uint64_t> t.ends_size + 1)
            t.ends[t.ends_size].end_ns = end_ns
            t.ends[t.ends_size].allocation = at
            t.ends_size += 1
    qsort(t.ends, t.ends_size, sizeof(EndRecord), by_end)
    return 0


cdef void lift_ends(Tables* t, uint32_t* lifted, uint32_t wanted) noexcept nogil:
    """Exactly the first `wanted` are thought away."""
    while lifted[0] < wanted:
        lift_task(t, t.allocations[t.ends[lifted[0]].allocation].task, 1)
        lifted[0] += 1
    while lifted[0] > wanted:
        lifted[0] -= 1
        lift_task(t, t.allocations[t.ends[lifted[0]].allocation].task, -1)


# ---------------------------------------------------------------- seats

cdef inline int fit_tight(Tables* t, uint32_t node, ShapeRecord* shape, uint32_t* pieces, int* worst) noexcept nogil:
    """Parts go where least is left, whatever the preset likes: so that as many find room as can."""
    cdef uint8_t policy = t.policy
    cdef int count
    if shape.ask_count > 0:
        t.policy = POLICY_PACK_
    count = fit(t, node, shape, pieces, worst)
    t.policy = policy
    return count


cdef uint32_t seat_in_order(Tables* t, Head* head, int64_t value) except? 0xFFFFFFFF nogil:
    """How many of those needed fit now in the order given, each on the first node that takes it (all ways: seat_members). Holds nothing afterwards; `trial` says where."""
    cdef uint32_t at, member, node = 0, last = NONE_, failed = NONE_
    cdef TrialRecord* entry
    cdef ShapeRecord* shape
    cdef int worst, count
    t.trial_size = 0
    for at in range(head.members.size):
        member = head.members.at[at]
        shape = &t.shapes[t.tasks[member].shape]
        if t.tasks[member].shape == failed or t.trial_size == head.needed:
            continue
        grow(<void**> &t.trial, &t.trial_capacity, sizeof(TrialRecord), <uint64_t> t.trial_size + 1)
        entry = &t.trial[t.trial_size]
        count = -1
        if t.tasks[member].shape != last:  # what has no room for one has none for the next that is equal
            last = t.tasks[member].shape
            node = 0
        if within_limits(t, t.tasks[member].queue, shape):
            while node < t.nodes_used:
                if in_domain(t, node, head.column, value):
                    count = fit_tight(t, node, shape, entry.pieces, &worst)
                    if count >= 0:
                        break
                node += 1
        if count < 0:
            failed = t.tasks[member].shape
            continue
        entry.task = member
        entry.node = node
        entry.count = count
        t.trial_size += 1
        hold_trial(t, entry, 1)
    for at in range(t.trial_size):
        hold_trial(t, &t.trial[at], -1)
    return t.trial_size


cdef int can_sit(Tables* t, Head* head) except -1 nogil:
    """1 if as many as needed fit now, in one domain if they must share it."""
    cdef Slots seen
    cdef uint32_t node
    cdef int64_t value
    cdef int found = 0
    if head.column < 0 or head.value >= 0:
        return seat_members(t, head, head.value) >= head.needed
    memset(&seen, 0, sizeof(Slots))
    for node in range(t.nodes_used):
        value = node if head.column == DOMAINS else t.nodes[node].domain[head.column]
        if not t.nodes[node].is_open or value < 0 or was_seen(&seen, <uint32_t> value):
            continue
        push(&seen, <uint32_t> value)
        if seat_members(t, head, value) >= head.needed:
            found = 1
            break
    drop_slots(&seen)
    return found


cdef int find_start(Tables* t, Head* head, int64_t* start_ns) except -1 nogil:
    """The earliest time at which expected ends make room; NEVER if they do not. `trial` then says on which nodes."""
    cdef uint32_t low = 0, high, middle, lifted = 0
    start_ns[0] = INT64_MAX
    gather_ends(t)
    if t.ends_size == 0:
        return 0
    high = t.ends_size
    lift_ends(t, &lifted, high)
    if can_sit(t, head):
        while low < high:
            middle = (low + high) >> 1
            lift_ends(t, &lifted, middle)
            if can_sit(t, head):
                high = middle
            else:
                low = middle + 1
        lift_ends(t, &lifted, low)
        if can_sit(t, head):
            start_ns[0] = t.ends[low - 1].end_ns if low > 0 else t.now_ns
    lift_ends(t, &lifted, 0)
    return 0


cdef bint has_a_place(Tables* t, uint32_t task) except -1 nogil:
    """It would fit if nothing ran. Who never can is waited for by nobody."""
    cdef Head head
    cdef uint32_t at, lifted = 0
    cdef bint fits
    t.ends_rounds = 0
    t.ends_size = 0
    for at in range(t.allocations_used):
        if t.allocations[at].is_live:
            grow(<void**> &t.ends, &t.ends_capacity, sizeof(EndRecord), <uint64_t> t.ends_size + 1)
            t.ends[t.ends_size].allocation = at
            t.ends_size += 1
    gather_head(t, task, &head)
    lift_ends(t, &lifted, t.ends_size)
    fits = can_sit(t, &head)
    lift_ends(t, &lifted, 0)
    drop_slots(&head.members)
    return fits


# ---------------------------------------------------------------- whose turn it would be

cdef inline bint is_reserved_for(Tables* t, uint32_t task) noexcept nogil:
    """The reservation is this task's, or its gang's."""
    return t.reserved_task != NONE_ and (t.reserved_task == task or (
        t.tasks[task].gang != NONE_ and t.tasks[task].gang == t.tasks[t.reserved_task].gang))


cdef inline bint may_reserve(Tables* t, LaneRecord* lane) noexcept nogil:
    """What it waits for is room."""
    return waits_until(t, lane) == 0 and within_limits(t, lane.queue, &t.shapes[lane.shape]) and not is_behind_claim(t, lane.head)


cdef inline bint goes_by_heap(Tables* t, uint32_t queue) noexcept nogil:
    """The first of the queue's stalled lanes goes before the others, and what it waits for is room."""
    return t.order != 1 and not t.has_guarantees and t.scarce == 0 and not t.queues[queue].has_limit


cdef uint32_t blocked_head(Tables* t, int qos) noexcept nogil:
    """Of all who are parked at this level or above, the one who goes first; without those who have no start for now."""
    cdef uint32_t at, which, task, best = NONE_
    cdef int level
    cdef LaneHeap* heap
    cdef LaneRecord* lane
    cdef bint first_only
    for level in range(qos + 1):
        for at in range(t.stalled[level].size):
            heap = &line_of(t, t.stalled[level].at[at], level).stalled
            first_only = goes_by_heap(t, t.stalled[level].at[at]) and not is_behind_claim(t, t.lanes[heap.at[0].lane].head)
            for which in range(1 if first_only else heap.size):
                lane = &t.lanes[heap.at[which].lane]
                if (first_only or may_reserve(t, lane)) and (best == NONE_ or fairer_task(t, lane.head, best)):
                    best = lane.head
        if best != NONE_:
            break
    for at in range(t.parked_tasks.size):
        task = t.parked_tasks.at[at]
        if qos_of(&t.tasks[task]) > qos or t.gangs[t.tasks[task].gang].no_start_ns > t.now_ns:
            continue
        if best == NONE_ or is_sooner(t, task, best):
            best = task
    return best


cdef inline bint is_sooner(Tables* t, uint32_t one, uint32_t other) noexcept nogil:
    if qos_of(&t.tasks[one]) != qos_of(&t.tasks[other]):
        return qos_of(&t.tasks[one]) < qos_of(&t.tasks[other])
    return fairer_task(t, one, other)


cdef int no_start(Tables* t, uint32_t task) except -1 nogil:
    """Nobody knows when it could start: not looked at again for a while."""
    cdef uint32_t lane
    if t.tasks[task].gang != NONE_:
        t.gangs[t.tasks[task].gang].no_start_ns = t.now_ns + REVIEW_NS
        return 0
    lane_of(t, &t.tasks[task], &lane)
    t.lanes[lane].no_start_ns = t.now_ns + REVIEW_NS
    unstall(t, lane)
    t.aside_ns = min(t.aside_ns, t.lanes[lane].no_start_ns)
    return 0


cdef bint leaves_room(Tables* t, uint32_t node, ShapeRecord* shape, uint32_t* pieces, int count) noexcept nogil:
    """With this shape staying (NULL: as things are), those who have a seat on the node still get in at the start of the reservation."""
    cdef uint32_t kept[MAX_PIECES]
    cdef uint32_t at, slot
    cdef int worst, found
    cdef bint fits = True
    cdef NodeRecord before = t.nodes[node]
    cdef DeviceRecord devices[MAX_PIECES]
    cdef DeviceRecord* first = t.devices + t.nodes[node].device_first
    memcpy(devices, first, t.nodes[node].device_count * sizeof(DeviceRecord))
    slot = t.nodes[node].allocation_first
    while slot != NONE_:
        if t.allocations[slot].lifted_by == 0 and end_of(t, &t.allocations[slot]) <= t.reserved_ns:
            hold_room(t, node, &t.shapes[t.tasks[t.allocations[slot].task].shape], pieces_of(t, &t.allocations[slot]),
                      t.allocations[slot].count, -1)
            hold_idle(t, slot, -1)
        slot = t.allocations[slot].next_on_node
    if shape != NULL:
        hold_room(t, node, shape, pieces, count, 1)
    t.nodes[node].is_open = True
    for at in range(t.seats_size):
        if t.seats[at].node == node and fits:
            found = fit(t, node, &t.shapes[t.tasks[t.seats[at].task].shape], kept, &worst)
            fits = found >= 0
            if fits:
                hold_room(t, node, &t.shapes[t.tasks[t.seats[at].task].shape], kept, found, 1)
    t.nodes[node] = before
    memcpy(first, devices, t.nodes[node].device_count * sizeof(DeviceRecord))
    return fits


cdef bint stands(Tables* t, uint32_t task) noexcept nogil:
    """The reservation is this task's and still good."""
    cdef uint32_t at, node
    if t.reserved_task != task or t.reserved_sequence != t.tasks[task].sequence or t.now_ns >= t.reserved_ns:
        return False
    for at in range(t.seats_size):
        node = t.seats[at].node
        if node >= t.nodes_used or not t.nodes[node].is_open or not is_waiting(&t.tasks[t.seats[at].task]):
            return False
        if level_of(&t.shapes[t.tasks[t.seats[at].task].shape], node) == 0:
            return False
    for at in range(t.seats_size):
        if not leaves_room(t, t.seats[at].node, NULL, NULL, 0):
            return False
    return True


cdef int reserve(Tables* t, uint32_t task) except -1 nogil:
    """1: the reservation is this task's. An old one that is good gives way to an earlier start only."""
    cdef Head head
    cdef int64_t start_ns
    cdef uint32_t at
    cdef bint is_good = stands(t, task)
    if is_good and t.now_ns - t.reserved_at_ns < max(REVIEW_NS, (t.reserved_ns - t.reserved_at_ns) // 16):
        return 1
    gather_head(t, task, &head)
    find_start(t, &head, &start_ns)
    drop_slots(&head.members)
    t.reserved_at_ns = t.now_ns
    if is_good and start_ns >= t.reserved_ns:
        return 1
    t.changes += t.reserved_task != NONE_ or start_ns < INT64_MAX   # other nodes are closed to claims than before
    t.reserved_task = NONE_
    if start_ns == INT64_MAX:
        no_start(t, task)
        return 0
    grow(<void**> &t.seats, &t.seats_capacity, sizeof(SeatRecord), t.trial_size)
    for at in range(t.trial_size):
        t.seats[at].task = t.trial[at].task
        t.seats[at].node = t.trial[at].node
    t.seats_size = t.trial_size
    t.reserved_task = task
    t.reserved_sequence = t.tasks[task].sequence
    t.reserved_ns = start_ns
    return 1


# ---------------------------------------------------------------- closed to others

cdef int close_seats(Tables* t, bint closed) except -1 nogil:
    """Nobody is placed on the reserved nodes by the ordinary way, or (0) as before."""
    cdef uint32_t at
    if t.seats_closed == closed:
        return 0
    t.seats_closed = closed
    for at in range(t.seats_size):
        t.nodes[t.seats[at].node].is_open = not closed
        mark_only(t, t.seats[at].node)
    return 0


cdef uint32_t gone_in_time(Tables* t, LaneRecord* lane) noexcept nogil:
    """The first of the lane's next LOOK_BEHIND tasks that will have ended when the reservation starts, or NONE."""
    cdef uint32_t at, task, best = NONE_
    cdef int64_t run_ns
    for at in range(min(lane.run.size - lane.run_head, <uint32_t> LOOK_BEHIND) + min(lane.heap.size, <uint32_t> LOOK_BEHIND)):
        if at < min(lane.run.size - lane.run_head, <uint32_t> LOOK_BEHIND):
            task = lane.run.at[lane.run_head + at]
        else:
            task = lane.heap.at[at - min(lane.run.size - lane.run_head, <uint32_t> LOOK_BEHIND)]
        if task == NONE_:
            continue
        run_ns = run_of(t, &t.tasks[task])
        if 0 < run_ns <= t.reserved_ns - t.now_ns and (best == NONE_ or goes_before(t, task, best)):
            best = task
    return best


cdef int64_t backfill(Tables* t, uint32_t slot, uint8_t code) except -1 nogil:
    """One task of the lane onto a reserved node, if that delays nobody. Returns placements."""
    cdef uint32_t pieces[MAX_PIECES]
    cdef uint32_t at, node, task
    cdef int worst, count
    cdef LaneRecord* lane = &t.lanes[slot]
    cdef ShapeRecord* shape = &t.shapes[lane.shape]
    if not within_limits(t, lane.queue, shape):
        return 0
    for at in range(t.seats_size):
        node = t.seats[at].node
        t.nodes[node].is_open = True
        count = fit(t, node, shape, pieces, &worst)
        t.nodes[node].is_open = False
        if count < 0:
            continue
        task = lane_head(t, lane) if leaves_room(t, node, shape, pieces, count) else gone_in_time(t, lane)
        if task != NONE_ and not is_behind_claim(t, task):
            do_placed(t, task, node, code, pieces, count)
            return 1
    return 0


# ---------------------------------------------------------------- claims on reserved nodes

cdef bint is_closed_seat(Tables* t, uint32_t node) noexcept nogil:
    cdef uint32_t at
    if t.seats_closed:
        for at in range(t.seats_size):
            if t.seats[at].node == node:
                return True
    return False


cdef bint is_gone_in_time(Tables* t, uint32_t task) noexcept nogil:
    """All waiting members of the gang that it stands for are expected to have ended when the reservation starts."""
    cdef GangRecord* gang = &t.gangs[t.tasks[task].gang]
    cdef TaskRecord* member
    cdef uint32_t at
    for at in range(gang.members.size):
        member = &t.tasks[gang.members.at[at]]
        if is_waiting(member) and not 0 < run_of(t, member) <= t.reserved_ns - t.now_ns:
            return False
    return True


cdef bint delays_nobody(Tables* t, uint32_t task, uint32_t node) noexcept nogil:
    """While its victims are lifted: may this preemptor have their place, as far as the reservation goes?"""
    cdef uint32_t pieces[MAX_PIECES]
    cdef int64_t run_ns = run_of(t, &t.tasks[task])
    cdef int count
    if 0 < run_ns <= t.reserved_ns - t.now_ns:
        return True
    count = gets_in(t, task, node, pieces)
    return count >= 0 and leaves_room(t, node, &t.shapes[t.tasks[task].shape], pieces, count)
