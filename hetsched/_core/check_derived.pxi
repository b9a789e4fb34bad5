# What must hold of everything that load could build again: lanes, gangs' standing, score trees.

cdef int check_lane(Tables* t, uint32_t slot) except -1:
    cdef LaneRecord* lane = &t.lanes[slot]
    cdef uint32_t at, task, live = 0, last = NONE_
    for at in range(lane.run.size):
        task = lane.run.at[at]
        if task == NONE_:
            continue
        hold_that(at >= lane.run_head, "nobody stands before the head", slot)
        live += 1
        hold_that(t.tasks[task].place == (AT_RUN | at) and is_waiting(&t.tasks[task]), "who stands in a run waits and knows where", slot)
        hold_that(last == NONE_ or goes_before(t, last, task), "a run is in order", slot)
        last = task
    hold_that(live == lane.run_live, "a run counts who stands in it", slot)
    for at in range(lane.heap.size):
        task = lane.heap.at[at]
        hold_that(t.tasks[task].place == (AT_HEAP | at) and is_waiting(&t.tasks[task]), "who stands in a heap waits and knows where", slot)
        hold_that(at == 0 or goes_before(t, lane.heap.at[(at - 1) >> 2], task), "a heap's parents go before their children", slot)
    last = lane.run.at[lane.run_head] if lane.run.size > 0 else NONE_
    task = lane.heap.at[0] if lane.heap.size > 0 else NONE_
    if last == NONE_ or (task != NONE_ and goes_before(t, task, last)):
        last = task
    hold_that(lane.head == last, "a lane's head is the first of its tasks", slot)
    if last != NONE_:
        hold_that(lane.head_sequence == t.tasks[last].sequence and lane.head_rank == rank_of_task(t, &t.tasks[last]),
                  "a lane knows what its head is compared by", slot)
    hold_that(lane.run.size == 0 or lane.last_sequence == t.tasks[lane.run.at[lane.run.size - 1]].sequence, "a run knows its last", slot)
    hold_that((lane.tried_at != NONE_) + (lane.parked_at != NONE_) == (lane.head != NONE_),
              "a lane with tasks is tried or parked, one without is neither", slot)
    hold_that(lane.parked_at == NONE_ or (t.parked[lane.qos].at[lane.parked_at].lane == slot and t.parked[lane.qos].at[lane.parked_at].shape == lane.shape),
              "a parked lane knows where", slot)
    hold_that(lane.stalled_at == NONE_ or lane.parked_at != NONE_, "who is stalled is parked", slot)
    hold_that(lane.parked_at == NONE_ or lane.stalled_at != NONE_ or lane.no_start_ns >= t.aside_ns, "a parked lane without a start is looked at in time", slot)
    if lane.tried_at != NONE_:
        check_entry(t, &line_of(t, lane.queue, lane.qos).tried, lane.tried_at, slot)
    if lane.stalled_at != NONE_:
        check_entry(t, &line_of(t, lane.queue, lane.qos).stalled, lane.stalled_at, slot)
    return 0


cdef int check_entry(Tables* t, LaneHeap* heap, uint32_t at, uint32_t slot) except -1:
    """The lane's place in a heap of lanes."""
    hold_that(at < heap.size and heap.at[at].lane == slot, "a lane knows where it is tried or stalled", slot)
    hold_that(heap.at[at].sequence == t.lanes[slot].head_sequence and heap.at[at].rank == t.lanes[slot].head_rank, "an entry is of the head", slot)
    hold_that(at == 0 or not entry_before(t, &heap.at[at], &heap.at[(at - 1) >> 2]), "the lanes of a line are a heap by head", slot)
    return 0


cdef int check_lanes(Tables* t) except -1:
    cdef uint32_t slot, lane, queue
    cdef int qos
    cdef TaskRecord* task
    cdef uint64_t claiming = 0
    pending = {}
    for slot in range(t.claimers.size):
        hold_that(t.tasks[t.claimers.at[slot]].flags & CLAIMING_ != 0, "who is listed as claiming claims", t.claimers.at[slot])
    for slot in range(t.tasks_used):
        claiming += t.tasks[slot].state != FREE_ and t.tasks[slot].flags & CLAIMING_ != 0
    hold_that(claiming == t.claimers.size, "who claims is listed, once", claiming)
    for lane in range(t.lanes_used):
        check_lane(t, lane)
    for slot in range(t.tasks_used):
        task = &t.tasks[slot]
        if not is_waiting(task):
            continue
        pending[task.shape] = pending.get(task.shape, 0) + 1
        if task.place == NONE_:
            hold_that(task.gang != NONE_, "only members of gangs wait outside the lanes", slot)
        elif (task.place & AT_MASK) == AT_PARKED:
            hold_that(task.gang != NONE_ and t.parked_tasks.at[task.place & INDEX_MASK] == slot, "a parked task knows where", slot)
        else:
            lane_of(t, task, &lane)
            hold_that((t.lanes[lane].run.at if (task.place & AT_MASK) == AT_RUN else t.lanes[lane].heap.at)[task.place & INDEX_MASK] == slot,
                      "a waiting task stands in its lane", slot)
    for slot in range(t.shapes_used):
        hold_that(t.shapes[slot].pending == pending.get(slot, 0), "a shape counts who waits for it", slot)
    for queue in range(t.queues_used):
        for qos in range(LEVELS):
            slot = line_of(t, queue, qos).tried.listed_at
            hold_that((slot != NONE_) == (line_of(t, queue, qos).tried.size > 0), "a queue is active if it has lanes to try", queue)
            hold_that(slot == NONE_ or t.active[qos].at[slot] == queue, "an active queue knows where", queue)
            slot = line_of(t, queue, qos).stalled.listed_at
            hold_that((slot != NONE_) == (line_of(t, queue, qos).stalled.size > 0), "a queue is listed if it has stalled lanes", queue)
            hold_that(slot == NONE_ or t.stalled[qos].at[slot] == queue, "a queue with stalled lanes knows where", queue)
    return 0


cdef int check_gangs(Tables* t) except -1:
    cdef uint32_t slot, at, standing, victims
    cdef Census census
    cdef TaskRecord* member
    cdef GangRecord* gang
    for slot in range(t.gangs_used):
        gang = &t.gangs[slot]
        if not gang.is_present:
            continue
        standing = 0
        victims = 0
        for at in range(gang.members.size):
            member = &t.tasks[gang.members.at[at]]
            victims += t.allocations[member.place].victims if member.flags & CLAIMING_ else 0
            hold_that(t.tasks[gang.members.at[at]].gang == slot, "a gang's members are its own", slot)
            hold_that(at == 0 or t.tasks[gang.members.at[at - 1]].sequence < t.tasks[gang.members.at[at]].sequence,
                      "members stand in submission order", slot)
            standing += is_waiting(&t.tasks[gang.members.at[at]]) and t.tasks[gang.members.at[at]].place != NONE_
        census = count_members(t, gang)
        hold_that(census.claiming == 0 or victims > 0 or t.ripe, "a gang that claims waits for a victim at least, or is to be settled", slot)
        hold_that(census.claiming == 0 or census.claiming + gang.succeeded >= gang.min_size, "a gang claims all the seats that it needs", slot)
        if gang.is_stale:
            continue
        if census.live + gang.succeeded >= gang.min_size:
            hold_that(standing == census.waiting, "all waiting members of a gang that has begun stand in a lane", slot)
        else:
            hold_that(standing <= 1, "one member stands for a gang that gathers", slot)
    return 0


cdef int check_trees(Tables* t) except -1:
    """Clean leaves are what they would be if computed now; parents are the maximum of their children."""
    cdef uint32_t tree, column, at, child, slot
    cdef int level
    cdef uint8_t best
    cdef NodeView view
    if t.all_dirty:
        return 0
    for tree in range(t.trees_used):
        for column in range(COLUMNS):
            slot = t.trees[tree].shape[column]
            if slot == NONE_:
                continue
            hold_that(t.shapes[slot].column == tree * COLUMNS + column, "a column and its shape know each other", slot)
            for at in range(t.nodes_used):
                if not t.nodes[at].marked:
                    view_node(t, at, &view)
                    best = score_byte(t, at, &t.shapes[slot], &view) if t.nodes[at].is_present else 0
                    hold_that(cell_of(&t.trees[tree], 0, at)[column] == best, "an unmarked leaf is up to date", (slot, at))
            for level in range(1, <int> t.tree_depth):
                for at in range(level_width(t, level)):
                    best = 0
                    for child in range(at * FAN_OUT, min((at + 1) * FAN_OUT, level_width(t, level - 1))):
                        best = max(best, cell_of(&t.trees[tree], level - 1, child)[column])
                    hold_that(cell_of(&t.trees[tree], level, at)[column] == best, "a cell is the maximum of its children", (slot, level, at))
    return 0
