# What must hold of the tables after every door, in sentences. Recomputes everything derived; slow on purpose, never part of a decision.

cdef struct Sums:
    # What allocations add up to on one device.
    int64_t share_all
    int64_t share_claimed      # of it, by claims
    int64_t memory_all
    int64_t memory_claimed
    int64_t sharers


cdef int hold_that(bint holds, str sentence, object where) except -1:
    if not holds:
        raise AssertionError(f"{sentence} ({where})")
    return 0


cdef int check_all(Tables* t) except -1:
    check_tasks(t)
    check_allocations(t)
    check_nodes(t)
    check_queues(t)
    check_lanes(t)
    check_gangs(t)
    check_trees(t)
    return 0


cdef int check_tasks(Tables* t) except -1:
    cdef uint64_t counts[16]
    cdef uint64_t waiting[LEVELS]
    cdef uint32_t slot, taken = 0, chained = 0
    cdef TaskRecord* task
    memset(counts, 0, sizeof(counts))
    memset(waiting, 0, sizeof(waiting))
    for slot in range(t.tasks_used):
        task = &t.tasks[slot]
        if task.state == FREE_:
            continue
        taken += 1
        counts[task.state] += 1
        hold_that(task.state <= SKIPPED_, "a task is in a known state", slot)
        hold_that(task.sequence < t.next_sequence, "a task's sequence was given out", slot)
        hold_that(index_find(t, key_bytes(t, task.key), key_length(t, task.key),
                             hash_bytes(key_bytes(t, task.key), key_length(t, task.key))) == slot, "a task is found by its key", slot)
        hold_that((task.state == HELD_) == (task.flags & HELD_FLAGS != 0), "a task is held if and only if a hold flag is set", slot)
        hold_that(not task.flags & CLAIMING_ or task.state == QUEUED_, "only a queued task claims", slot)
        if is_waiting(task):
            waiting[qos_of(task)] += 1
        if is_live(task) or task.flags & CLAIMING_:
            hold_that(task.place < t.allocations_used and t.allocations[task.place].is_live and t.allocations[task.place].task == slot,
                      "a live or claiming task has its allocation", slot)
            hold_that(t.allocations[task.place].is_claim == (task.flags & CLAIMING_ != 0), "a claim belongs to a claiming task", slot)
        elif task.state == SUCCEEDED_ and task.place != NONE_:
            hold_that(task.place < t.stories.used and story_at(t, task.place).attempt == task.attempt,
                      "the story of a task that succeeded is that of its last attempt", slot)
        elif not is_waiting(task):
            hold_that(task.place == NONE_, "who neither waits nor lives stands nowhere", slot)
    hold_that(taken == t.tasks_count, "tasks are counted", taken)
    for slot in range(12):
        hold_that(counts[slot] == t.counts[slot], "tasks are counted by state", STATE_NAMES[slot])
    hold_that(t.timed == count_timed(t), "templates and expectations of a run time are counted", t.timed)
    for slot in range(LEVELS):
        hold_that(waiting[slot] == t.waiting[slot], "waiting tasks are counted by level", slot)
    slot = t.tasks_free
    while slot != NONE_:
        chained += 1
        hold_that(t.tasks[slot].state == FREE_, "the free list holds free records", slot)
        slot = t.tasks[slot].place
    hold_that(chained + taken == t.tasks_used, "every record is taken or free", chained)
    chained = 0
    for slot in range(SEGMENTS):
        chained += t.index[slot].used
        hold_that(2 * t.index[slot].used <= t.index[slot].size, "a segment of the index is at most half full", slot)
    hold_that(chained == t.tasks_count, "the index holds every task once", chained)
    return 0


cdef int check_allocations(Tables* t) except -1:
    cdef uint32_t slot, victim, count, taken = 0
    cdef AllocationRecord* record
    for slot in range(t.allocations_used):
        record = &t.allocations[slot]
        if not record.is_live:
            continue
        taken += 1
        hold_that(record.lifted_by == 0, "nobody stays lifted", slot)
        hold_that(t.tasks[record.task].place == slot, "an allocation and its task know each other", slot)
        if not record.is_claim:
            hold_that(record.first_victim == NONE_ and record.victims == 0, "only a claim has victims", slot)
            hold_that(record.claim == NONE_ or (t.allocations[record.claim].is_claim and t.tasks[record.task].state == STOPPING_),
                      "a victim is stopping and its claim exists", slot)
            continue
        count = 0
        victim = record.first_victim
        while victim != NONE_:
            count += 1
            hold_that(t.allocations[victim].claim == slot, "a claim's victims know it", slot)
            hold_that(qos_of(&t.tasks[t.allocations[victim].task]) >= qos_of(&t.tasks[record.task]), "a victim is not more urgent", slot)
            victim = t.allocations[victim].next_victim
        hold_that(count == record.victims and (count > 0 or t.tasks[record.task].gang != NONE_ or t.ripe),
                  "a claim counts its victims and waits for one at least, or for those of its gang, or is to be settled", slot)
    hold_that(taken == t.allocations_count, "allocations are counted", taken)
    return 0


cdef int sum_device(Tables* t, uint32_t node, uint32_t device, Sums* sums) except -1:
    cdef uint32_t slot = t.nodes[node].allocation_first
    cdef uint32_t* pieces
    cdef int at
    cdef int64_t memory
    memset(sums, 0, sizeof(Sums))
    while slot != NONE_:
        pieces = pieces_of(t, &t.allocations[slot])
        for at in range(t.allocations[slot].count):
            if (pieces[at] & 0xFF) == device:
                memory = piece_memory(&t.devices[t.nodes[node].device_first + device], &t.shapes[t.tasks[t.allocations[slot].task].shape],
                                      pieces[at])
                sums.share_all += pieces[at] >> 8
                sums.sharers += (pieces[at] >> 8) < 1000
                sums.memory_all += memory
                if t.allocations[slot].is_claim:
                    sums.share_claimed += pieces[at] >> 8
                    sums.memory_claimed += memory
        slot = t.allocations[slot].next_on_node
    return 0


cdef int check_nodes(Tables* t) except -1:
    cdef uint32_t node, device, slot
    cdef int64_t cpu, memory, cpu_live, memory_live, cpu_soft, memory_soft, cpu_idle, memory_idle
    cdef uint32_t live, claims
    cdef uint32_t evictable[LEVELS]
    cdef int64_t capacity[RESOURCES]
    cdef Sums sums
    cdef NodeRecord* record
    cdef DeviceRecord* part
    cdef ShapeRecord* shape
    memset(capacity, 0, sizeof(capacity))
    for node in range(t.nodes_used):
        record = &t.nodes[node]
        if not record.is_present:
            continue
        cpu = memory = cpu_live = memory_live = cpu_soft = memory_soft = cpu_idle = memory_idle = 0
        live = claims = 0
        memset(evictable, 0, sizeof(evictable))
        slot = record.allocation_first
        while slot != NONE_:
            hold_that(t.allocations[slot].is_live and t.allocations[slot].node == node, "a node's list holds its allocations", node)
            shape = &t.shapes[t.tasks[t.allocations[slot].task].shape]
            cpu += shape.cpu_milli
            memory += shape.memory_bytes
            cpu_soft += shape.cpu_milli if shape.is_soft else 0
            memory_soft += shape.memory_bytes if shape.is_soft else 0
            cpu_idle += t.uses[slot].cpu_idle if slot < t.uses_used else 0
            memory_idle += t.uses[slot].memory_idle if slot < t.uses_used else 0
            if t.allocations[slot].is_claim:
                claims += 1
            else:
                live += 1
                cpu_live += 0 if shape.is_soft else shape.cpu_milli
                memory_live += 0 if shape.is_soft else shape.memory_bytes
                evictable[qos_of(&t.tasks[t.allocations[slot].task])] += is_evictable(&t.tasks[t.allocations[slot].task])
            slot = t.allocations[slot].next_on_node
        hold_that(record.cpu_free == record.cpu_milli - cpu and record.memory_free == record.memory_bytes - memory,
                  "a node's free amounts are its amounts less all allocations and claims", node)
        hold_that(cpu_live <= record.cpu_milli and memory_live <= record.memory_bytes, "firm live attempts fit on their node", node)
        hold_that(record.cpu_soft == cpu_soft and record.memory_soft == memory_soft, "a node counts what soft tasks hold", node)
        hold_that(record.cpu_idle == cpu_idle and record.memory_idle == memory_idle, "a node counts what is held and not used", node)
        hold_that(0 <= record.cpu_extra <= cpu_idle <= cpu - cpu_soft and 0 <= record.memory_extra <= memory_idle <= memory - memory_soft,
                  "what is lent is held by firm tasks", node)
        hold_that(live == record.allocations and claims == record.claims, "a node counts its allocations and claims", node)
        hold_that(memcmp(evictable, record.evictable, sizeof(evictable)) == 0, "a node counts who could be stopped", node)
        for device in range(record.device_count):
            part = &t.devices[record.device_first + device]
            sum_device(t, node, device, &sums)
            hold_that(part.share_free == 1000 - sums.share_all, "a device's shares add up to its allocations", (node, device))
            hold_that(part.sharers == sums.sharers, "a device counts who shares it", (node, device))
            hold_that(part.memory_free == max(part.memory_bytes, <int64_t> 0) - sums.memory_all, "a device's memory adds up to its allocations",
                      (node, device))
            hold_that(sums.share_all - sums.share_claimed <= 1000 and (
                part.memory_bytes < 0 or sums.memory_all - sums.memory_claimed <= part.memory_bytes),
                      "live shares never exceed a device", (node, device))
            if record.is_open and part.usable:
                capacity[2 + part.kind] += 1000
        if record.is_open:
            capacity[0] += record.cpu_milli
            capacity[1] += record.memory_bytes
    hold_that(memcmp(capacity, t.capacity, sizeof(capacity)) == 0, "the capacity is that of open nodes and usable devices", "cluster")
    return 0


cdef int check_queues(Tables* t) except -1:
    cdef uint32_t slot, queue
    cdef int resource
    cdef AllocationRecord* record
    cdef int64_t live[RESOURCES]
    cdef int64_t gang_milli = 0, gang_cpu = 0
    memset(live, 0, sizeof(live))
    sums = {}
    for slot in range(t.allocations_used):
        record = &t.allocations[slot]
        if not record.is_live:
            continue
        amounts = shape_amounts(&t.shapes[t.tasks[record.task].shape])
        if t.tasks[record.task].gang != NONE_:
            gang_milli += t.shapes[t.tasks[record.task].shape].device_milli
            gang_cpu += t.shapes[t.tasks[record.task].shape].cpu_milli
        queue = t.tasks[record.task].queue
        while queue != NONE_:
            for resource, value in amounts.items():
                sums[queue, resource] = sums.get((queue, resource), 0) + value
            queue = t.queues[queue].parent
        if not record.is_claim:
            for resource, value in amounts.items():
                live[resource] += value
    hold_that(gang_milli == t.gang_milli and gang_cpu == t.gang_cpu, "what gangs hold is counted", "cluster")
    for queue in range(t.queues_used):
        for resource in range(RESOURCES):
            hold_that(t.queues[queue].used[resource] == sums.get((queue, resource), 0),
                      "a queue's use is that of its tasks and of its children", (queue, resource))
    hold_that(memcmp(live, t.live, sizeof(live)) == 0, "the live totals add up to the allocations", "cluster")
    return 0


cdef dict shape_amounts(ShapeRecord* shape):
    cdef int ask
    amounts = {0: shape.cpu_milli, 1: shape.memory_bytes}
    for ask in range(shape.ask_count):
        amounts[2 + shape.asks[ask].kind] = ask_milli(&shape.asks[ask])
    return amounts
