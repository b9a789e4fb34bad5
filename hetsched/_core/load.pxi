# The tables from a dump, and everything derived from the tables.
#
# Promises: a damaged or foreign dump is refused before anything is built from it. Building lets other threads run: what is loaded to
# try things on (scheduler/rehearse) must not stop the daemon's loop meanwhile.

cdef list unpacked(bytes data):
    sections = []
    at = 0
    while at < len(data):
        length = int.from_bytes(data[at:at + 8], "little")
        sections.append(data[at + 8:at + 8 + length])
        at += 8 + length
    return sections


cdef dict read_sections(bytes data):
    """By name, with records as this build has them."""
    if data[:8] != MAGIC:
        raise ValueError("this is no dump of the core, or of a version before dumps told their layout")
    if len(data) < 12 or zlib.crc32(data[:len(data) - 4]) != int.from_bytes(data[len(data) - 4:], "little"):
        raise ValueError("the dump is damaged: its checksum does not match")
    header, *rest = unpacked(data[8:len(data) - 4])
    told = json.loads(header)
    sections = dict(zip(told["sections"], rest, strict=True))
    for name in [name for name in sections if name not in SECTIONS]:
        if sections.pop(name):
            raise ValueError(f"{name} of hetsched {told['written_by']} mean nothing to this version; {told['written_by']} reads them")
    if told["layout"] != LAYOUT:
        for name in [name for name in sections if name in LAYOUT]:
            sections[name] = into_our_records(name, sections[name], told["layout"], told["written_by"])
    return {name: sections.get(name, b"") for name in SECTIONS}


cdef uint32_t fill(void** base, uint32_t* capacity, size_t stride, bytes section, bint is_lined=False) except? 0xFFFFFFFF:
    """A table from its section; returns the number of records."""
    cdef const char* data = section
    cdef uint32_t count = <uint32_t> (len(section) // stride)
    if is_lined:
        grow_lined(base, capacity, stride, count + 1)
    else:
        grow(base, capacity, stride, count + 1)
    memcpy(base[0], data, len(section))
    return count


cdef int load_tables(Tables* t, dict sections) except -1:
    cdef const char* data
    cdef uint32_t at, reserved
    cdef bytes section = sections["scalars"]
    data = section
    write_scalars(t, <const Scalars*> data)
    t.tasks_used = fill(<void**> &t.tasks, &t.tasks_capacity, sizeof(TaskRecord), sections["tasks"], True)
    t.keys.used = fill(<void**> &t.keys.base, &t.keys.capacity, 8, sections["keys"])
    t.checkpoints_used = fill(<void**> &t.checkpoints, &t.checkpoints_capacity, sizeof(int64_t), sections["checkpoints"])
    t.allocations_used = fill(<void**> &t.allocations, &t.allocations_capacity, sizeof(AllocationRecord), sections["allocations"], True)
    t.pieces.used = fill(<void**> &t.pieces.base, &t.pieces.capacity, 8, sections["pieces"])
    t.stories.used = fill(<void**> &t.stories.base, &t.stories.capacity, 8, sections["stories"])
    t.nodes_used = fill(<void**> &t.nodes, &t.nodes_capacity, sizeof(NodeRecord), sections["nodes"], True)
    t.nodes_capacity = (t.nodes_capacity & ~<uint32_t> 7)
    if t.nodes_capacity < t.nodes_used:
        grow_lined(<void**> &t.nodes, &t.nodes_capacity, sizeof(NodeRecord), <uint64_t> t.nodes_used + 16)
        t.nodes_capacity = (t.nodes_capacity & ~<uint32_t> 7)
    t.devices_used = fill(<void**> &t.devices, &t.devices_capacity, sizeof(DeviceRecord), sections["devices"], True)
    t.shapes_used = fill(<void**> &t.shapes, &t.shapes_capacity, sizeof(ShapeRecord), sections["shapes"])
    t.queues_used = fill(<void**> &t.queues, &t.queues_capacity, sizeof(QueueRecord), sections["queues"])
    t.gangs_used = fill(<void**> &t.gangs, &t.gangs_capacity, sizeof(GangRecord), sections["gangs"])
    t.evictions_used = fill(<void**> &t.evictions, &t.evictions_capacity, sizeof(EvictionRecord), sections["evictions"])
    t.templates_used = fill(<void**> &t.templates, &t.templates_capacity, sizeof(TemplateRecord), sections["templates"])
    t.expectations_used = fill(<void**> &t.expectations, &t.expectations_capacity, sizeof(ExpectationRecord), sections["expectations"])
    t.uses_used = fill(<void**> &t.uses, &t.uses_capacity, sizeof(UseRecord), sections["uses"])
    levels = unpacked(sections["levels"])
    for at in range(t.shapes_used):
        t.shapes[at].levels = NULL
        t.shapes[at].levels_size = 0
        reserved = 0
        t.shapes[at].levels_size = fill(<void**> &t.shapes[at].levels, &reserved, 1, levels[at])
    for at, section in enumerate(unpacked(sections["device_runs"])):
        t.device_runs[at].size = fill(<void**> &t.device_runs[at].at, &t.device_runs[at].capacity, 4, section)
    return 0


cdef int rebuild(Tables* t) except -1 nogil:
    """Everything derived, from the records."""
    cdef uint32_t at
    cdef int part
    t.age_clock_ns = t.now_ns
    t.damped_until_ns = 1
    note_limits(t)
    t.timed = count_timed(t)
    for at in range(t.shapes_used):
        t.shapes[at].pending = 0
        t.shapes[at].column = NONE_
        t.shapes[at].lane_first = NONE_
        t.shapes[at].idle_since = 0
        t.classes = max(t.classes, t.shapes[at].ask_class + 1)
        t.asked += t.shapes[at].popularity if t.shapes[at].ask_count > 0 else 0
    t.left = t.asked
    reserve_classes(t, t.classes + 1)
    index_mix(t)
    if t.policy == POLICY_FGD_:
        take_typical(t)
    for at in range(t.queues_used):
        t.queues[at].key_stale = True
        t.queues[at].delay_ns = -1
        add_lines(t, at)
    for at in range(t.nodes_used):
        t.nodes[at].marked = False
        lend(t, &t.nodes[at])
        memset(t.nodes[at].evictable, 0, sizeof(t.nodes[at].evictable))
        if t.nodes[at].is_present:
            t.nodes_count += 1
            t.nodes_bare += t.nodes[at].device_count == 0
            count_capacity(t, &t.nodes[at], 1)
            largest(t, &t.nodes[at])
    for at in range(t.devices_used):
        t.devices[at].sharers = 0
    widen_trees(t)
    for at in range(t.gangs_used):
        memset(&t.gangs[at].members, 0, sizeof(Slots))
        t.gangs[at].is_stale = False
        t.gangs[at].is_wounded = False
        if t.gangs[at].is_present and t.gangs[at].broken_ns > 0:
            wound(t, at)
    rebuild_tasks(t)
    return 0


cdef struct Arrival:
    uint64_t sequence
    uint32_t slot


cdef int by_sequence(const void* one, const void* other) noexcept nogil:
    cdef uint64_t a = (<const Arrival*> one).sequence
    cdef uint64_t b = (<const Arrival*> other).sequence
    return (a > b) - (a < b)


cdef int rebuild_tasks(Tables* t) except -1 nogil:
    """In submission order, so that lanes are runs and members of gangs stand as they were submitted."""
    cdef Arrival* order = <Arrival*> calloc(t.tasks_used + 1, sizeof(Arrival))
    cdef uint32_t at, count = 0
    if order == NULL:
        no_memory()
    try:
        for at in range(t.tasks_used):
            if t.tasks[at].state != FREE_:
                order[count].sequence = t.tasks[at].sequence
                order[count].slot = at
                count += 1
        qsort(order, count, sizeof(Arrival), by_sequence)
        for at in range(count):
            rebuild_task(t, order[at].slot)
    finally:
        free(order)
    return 0


cdef int rebuild_task(Tables* t, uint32_t slot) except -1 nogil:
    cdef TaskRecord* task = &t.tasks[slot]
    cdef uint32_t hashed = hash_bytes(key_bytes(t, task.key), key_length(t, task.key))
    cdef ShapeRecord* shape = &t.shapes[task.shape]
    cdef AllocationRecord* record
    cdef int ask
    t.tasks_count += 1
    t.counts[task.state] += 1
    if shape.ask_count > 0 and not is_terminal(task) and t.left > 0:
        t.left -= 1
    index_room(t, hashed)
    index_add(t, hashed, slot)
    if task.gang != NONE_:
        push(&t.gangs[task.gang].members, slot)
        touch_gang(t, task.gang)
    if is_waiting(task):
        return start_waiting(t, slot)
    if not is_live(task) and not task.flags & CLAIMING_:
        return 0
    t.allocations_count += 1
    record = &t.allocations[task.place]
    count_gang(t, slot, 1)
    count_sharers(t, record)
    if record.is_claim:
        t.ripe |= record.victims == 0
        return note_claimer(t, slot)
    t.live[0] += shape.cpu_milli
    t.live[1] += shape.memory_bytes
    for ask in range(shape.ask_count):
        t.live[2 + shape.asks[ask].kind] += ask_milli(&shape.asks[ask])
    if is_evictable(task):
        t.nodes[record.node].evictable[qos_of(task)] += 1
    return 0
