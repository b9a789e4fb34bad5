# The tables as a whole: dump, load, digest, check.
#
# Promises: load(dump()) and a replay of all facts reach the same digest as the live tables, and the same slots from then on: free lists
# are part of the state. Derived structures (index, lanes, trees, counters by state) are left out and built again.
#
# Format: magic, then sections of (length 8, bytes) in the order of SECTIONS below, crc32 of all that at the end. The first section says
# the size of every record, so that a build with another layout refuses instead of misreading.

MAGIC = b"hetcore1"


cdef bytes raw(const void* data, size_t size):
    return (<const char*> data)[:size] if size else b""


cdef bytes sizes_section():
    sizes = (sizeof(TaskRecord), sizeof(AllocationRecord), sizeof(NodeRecord), sizeof(DeviceRecord), sizeof(ShapeRecord),
             sizeof(QueueRecord), sizeof(GangRecord), sizeof(Scalars))
    return b"".join([size.to_bytes(4, "little") for size in sizes])


cdef struct Scalars:
    # What the tables are besides records.
    int64_t now_ns, blast_radius, mix_total, mix_since, mix_every
    int64_t mix_weight[MIX_SHAPES]
    uint64_t next_sequence
    uint32_t tasks_free, allocations_free, nodes_free, gangs_free, mix_size, policy
    uint32_t mix[MIX_SHAPES]
    uint32_t key_free[ARENA_CLASSES]
    uint32_t piece_free[ARENA_CLASSES]


cdef void read_scalars(Tables* t, Scalars* scalars) noexcept nogil:
    memset(scalars, 0, sizeof(Scalars))
    scalars.now_ns, scalars.blast_radius = t.now_ns, t.blast_radius
    scalars.mix_total, scalars.mix_since, scalars.mix_every, scalars.mix_size = t.mix_total, t.mix_since, t.mix_every, t.mix_size
    memcpy(scalars.mix, t.mix, sizeof(scalars.mix))
    memcpy(scalars.mix_weight, t.mix_weight, sizeof(scalars.mix_weight))
    scalars.next_sequence, scalars.policy = t.next_sequence, t.policy
    scalars.tasks_free, scalars.allocations_free = t.tasks_free, t.allocations_free
    scalars.nodes_free, scalars.gangs_free = t.nodes_free, t.gangs_free
    memcpy(scalars.key_free, t.keys.free_first, sizeof(scalars.key_free))
    memcpy(scalars.piece_free, t.pieces.free_first, sizeof(scalars.piece_free))


cdef void write_scalars(Tables* t, const Scalars* scalars) noexcept:
    t.now_ns, t.blast_radius = scalars.now_ns, scalars.blast_radius
    t.mix_total, t.mix_since, t.mix_every, t.mix_size = scalars.mix_total, scalars.mix_since, scalars.mix_every, scalars.mix_size
    memcpy(t.mix, scalars.mix, sizeof(scalars.mix))
    memcpy(t.mix_weight, scalars.mix_weight, sizeof(scalars.mix_weight))
    t.next_sequence, t.policy = scalars.next_sequence, <uint8_t> scalars.policy
    t.tasks_free, t.allocations_free = scalars.tasks_free, scalars.allocations_free
    t.nodes_free, t.gangs_free = scalars.nodes_free, scalars.gangs_free
    memcpy(t.keys.free_first, scalars.key_free, sizeof(scalars.key_free))
    memcpy(t.pieces.free_first, scalars.piece_free, sizeof(scalars.piece_free))


cdef class Whole(Questions):

    def check(self):
        check_all(&self.t)

    def digest(self):
        return digest_tables(&self.t)

    def dump(self):
        cdef Tables* t = &self.t
        cdef Scalars scalars
        cdef uint32_t at
        read_scalars(t, &scalars)
        sections = [
            sizes_section(), raw(&scalars, sizeof(Scalars)),
            plain_tasks(t), raw(t.keys.base, <size_t> t.keys.used * 8),
            raw(t.checkpoints, t.checkpoints_used * sizeof(int64_t)),
            raw(t.allocations, t.allocations_used * sizeof(AllocationRecord)), raw(t.pieces.base, <size_t> t.pieces.used * 8),
            plain_nodes(t), raw(t.devices, t.devices_used * sizeof(DeviceRecord)),
            plain_shapes(t), plain_queues(t), plain_gangs(t),
            *[raw(t.shapes[at].levels, t.shapes[at].levels_size) for at in range(t.shapes_used)],
            *[raw(t.device_runs[at].at, <size_t> t.device_runs[at].size * 4) for at in range(65)],
        ]
        body = MAGIC + b"".join([len(section).to_bytes(8, "little") + section for section in sections])
        return body + zlib.crc32(body).to_bytes(4, "little")

    @staticmethod
    def load(bytes data, *, bint checked=False):
        cdef Core core = Core.__new__(Core)
        sections = read_sections(data)
        core.is_checked = checked or HETSCHED_CHECKED
        load_tables(&core.t, sections)
        rebuild(&core.t)
        core._checked()
        return core


# Equal states dump to equal bytes: what is derived, and every pointer, is blanked in the copy.

cdef bytes plain_tasks(Tables* t):
    cdef bytes section = raw(t.tasks, t.tasks_used * sizeof(TaskRecord))
    cdef TaskRecord* records = <TaskRecord*> <char*> section
    cdef uint32_t at
    for at in range(t.tasks_used):
        if is_waiting(&records[at]):
            records[at].place = NONE_
    return section


cdef bytes plain_nodes(Tables* t):
    cdef bytes section = raw(t.nodes, t.nodes_used * sizeof(NodeRecord))
    cdef NodeRecord* records = <NodeRecord*> <char*> section
    cdef uint32_t at
    for at in range(t.nodes_used):
        records[at].marked = False
        memset(records[at].evictable, 0, sizeof(records[at].evictable))
    return section


cdef bytes plain_shapes(Tables* t):
    cdef bytes section = raw(t.shapes, t.shapes_used * sizeof(ShapeRecord))
    cdef ShapeRecord* records = <ShapeRecord*> <char*> section
    cdef uint32_t at
    for at in range(t.shapes_used):
        records[at].levels = NULL
        records[at].pending = 0
        records[at].column = NONE_
        records[at].lane_first = NONE_
        records[at].idle_since = 0
    return section


cdef bytes plain_queues(Tables* t):
    cdef bytes section = raw(t.queues, t.queues_used * sizeof(QueueRecord))
    cdef QueueRecord* records = <QueueRecord*> <char*> section
    cdef uint32_t at
    for at in range(t.queues_used):
        records[at].key = 0
        records[at].key_stale = True
        memset(records[at].bucket, 0, sizeof(records[at].bucket))
        memset(records[at].active_at, 0, sizeof(records[at].active_at))
    return section


cdef bytes plain_gangs(Tables* t):
    cdef bytes section = raw(t.gangs, t.gangs_used * sizeof(GangRecord))
    cdef GangRecord* records = <GangRecord*> <char*> section
    cdef uint32_t at
    for at in range(t.gangs_used):
        memset(&records[at].members, 0, sizeof(Slots))
        records[at].is_stale = False
    return section


cdef list read_sections(bytes data):
    if data[:8] != MAGIC:
        raise ValueError("this is no dump of the core, or of another version")
    if len(data) < 12 or zlib.crc32(data[:len(data) - 4]) != int.from_bytes(data[len(data) - 4:], "little"):
        raise ValueError("the dump is damaged: its checksum does not match")
    sections = []
    at = 8
    while at < len(data) - 4:
        length = int.from_bytes(data[at:at + 8], "little")
        sections.append(data[at + 8:at + 8 + length])
        at += 8 + length
    if sections[0] != sizes_section():
        raise ValueError("the dump was written by a build with other records")
    return sections


cdef uint32_t fill(void** base, uint32_t* capacity, size_t stride, bytes section) except? 0xFFFFFFFF:
    """A table from its section; returns the number of records."""
    cdef const char* data = section
    cdef uint32_t count = <uint32_t> (len(section) // stride)
    grow(base, capacity, stride, count + 1)
    memcpy(base[0], data, len(section))
    return count


cdef int load_tables(Tables* t, list sections) except -1:
    cdef const char* data
    cdef uint32_t at, reserved
    cdef bytes section = sections[1]
    data = section
    write_scalars(t, <const Scalars*> data)
    t.tasks_used = fill(<void**> &t.tasks, &t.tasks_capacity, sizeof(TaskRecord), sections[2])
    t.keys.used = fill(<void**> &t.keys.base, &t.keys.capacity, 8, sections[3])
    t.checkpoints_used = fill(<void**> &t.checkpoints, &t.checkpoints_capacity, sizeof(int64_t), sections[4])
    t.allocations_used = fill(<void**> &t.allocations, &t.allocations_capacity, sizeof(AllocationRecord), sections[5])
    t.pieces.used = fill(<void**> &t.pieces.base, &t.pieces.capacity, 8, sections[6])
    t.nodes_used = fill(<void**> &t.nodes, &t.nodes_capacity, sizeof(NodeRecord), sections[7])
    t.nodes_capacity = (t.nodes_capacity & ~<uint32_t> 7)
    if t.nodes_capacity < t.nodes_used:
        grow(<void**> &t.nodes, &t.nodes_capacity, sizeof(NodeRecord), <uint64_t> t.nodes_used + 16)
        t.nodes_capacity = (t.nodes_capacity & ~<uint32_t> 7)
    t.devices_used = fill(<void**> &t.devices, &t.devices_capacity, sizeof(DeviceRecord), sections[8])
    t.shapes_used = fill(<void**> &t.shapes, &t.shapes_capacity, sizeof(ShapeRecord), sections[9])
    t.queues_used = fill(<void**> &t.queues, &t.queues_capacity, sizeof(QueueRecord), sections[10])
    t.gangs_used = fill(<void**> &t.gangs, &t.gangs_capacity, sizeof(GangRecord), sections[11])
    for at in range(t.shapes_used):
        t.shapes[at].levels = NULL
        t.shapes[at].levels_size = 0
        reserved = 0
        t.shapes[at].levels_size = fill(<void**> &t.shapes[at].levels, &reserved, 1, sections[12 + at])
    for at in range(65):
        t.device_runs[at].size = fill(<void**> &t.device_runs[at].at, &t.device_runs[at].capacity, 4, sections[12 + t.shapes_used + at])
    return 0


cdef int rebuild(Tables* t) except -1:
    """Everything derived, from the records."""
    cdef uint32_t at
    cdef int part
    for at in range(t.shapes_used):
        t.shapes[at].pending = 0
        t.shapes[at].column = NONE_
        t.shapes[at].lane_first = NONE_
        t.shapes[at].idle_since = 0
        t.classes = max(t.classes, t.shapes[at].ask_class + 1)
    grow(<void**> &t.class_views, &t.class_views_capacity, sizeof(ClassView), <uint64_t> t.classes + 1)
    index_mix(t)
    for at in range(t.queues_used):
        t.queues[at].key_stale = True
        memset(t.queues[at].bucket, 0, sizeof(t.queues[at].bucket))
        for part in range(LEVELS):
            t.queues[at].active_at[part] = NONE_
    for at in range(t.nodes_used):
        t.nodes[at].marked = False
        memset(t.nodes[at].evictable, 0, sizeof(t.nodes[at].evictable))
        if t.nodes[at].is_present:
            t.nodes_count += 1
            t.nodes_bare += t.nodes[at].device_count == 0
            count_capacity(t, &t.nodes[at], 1)
    widen_trees(t)
    for at in range(t.gangs_used):
        memset(&t.gangs[at].members, 0, sizeof(Slots))
        t.gangs[at].is_stale = False
    rebuild_tasks(t)
    return 0


cdef struct Arrival:
    uint64_t sequence
    uint32_t slot


cdef int by_sequence(const void* one, const void* other) noexcept nogil:
    cdef uint64_t a = (<const Arrival*> one).sequence
    cdef uint64_t b = (<const Arrival*> other).sequence
    return (a > b) - (a < b)


cdef int rebuild_tasks(Tables* t) except -1:
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
        index_room(t, count)
        for at in range(count):
            rebuild_task(t, order[at].slot)
    finally:
        free(order)
    return 0


cdef int rebuild_task(Tables* t, uint32_t slot) except -1:
    cdef TaskRecord* task = &t.tasks[slot]
    cdef ShapeRecord* shape = &t.shapes[task.shape]
    cdef AllocationRecord* record
    cdef int ask
    t.tasks_count += 1
    t.counts[task.state] += 1
    index_put(t.index, t.index_size, <uint64_t> hash_bytes(key_bytes(t, task.key), key_length(t, task.key)) << 32 | (slot + 1))
    if task.gang != NONE_:
        push(&t.gangs[task.gang].members, slot)
        touch_gang(t, task.gang)
    if is_waiting(task):
        return start_waiting(t, slot)
    if not is_live(task) and not task.flags & CLAIMING_:
        return 0
    t.allocations_count += 1
    record = &t.allocations[task.place]
    if record.is_claim:
        return 0
    t.live[0] += shape.cpu_milli
    t.live[1] += shape.memory_bytes
    for ask in range(shape.ask_count):
        t.live[2 + shape.asks[ask].kind] += ask_milli(&shape.asks[ask])
    if is_evictable(task):
        t.nodes[record.node].evictable[qos_of(task)] += 1
    return 0


# ---------------------------------------------------------------- digest

cdef inline void mix_in(uint64_t* digest, uint64_t value) noexcept nogil:
    digest[0] = (digest[0] ^ value) * 0x9FB21C651E98DF25ULL
    digest[0] ^= digest[0] >> 28


cdef void mix_bytes(uint64_t* digest, const void* data, size_t size) noexcept nogil:
    cdef uint64_t word
    cdef const uint8_t* at = <const uint8_t*> data
    mix_in(digest, size)
    while size > 0:
        word = 0
        memcpy(&word, at, min(size, <size_t> 8))
        mix_in(digest, word)
        at += 8
        size -= min(size, <size_t> 8)


cdef void digest_tasks(Tables* t, uint64_t* digest) noexcept nogil:
    """Where a waiting task stands is derived, where its key lies too."""
    cdef uint32_t slot
    cdef TaskRecord task
    for slot in range(t.tasks_used):
        task = t.tasks[slot]
        if is_waiting(&task):
            task.place = NONE_
        if task.state != FREE_:
            mix_bytes(digest, key_bytes(t, task.key), key_length(t, task.key))
        task.key = 0
        mix_bytes(digest, &task, sizeof(TaskRecord))


cdef void digest_allocations(Tables* t, uint64_t* digest) noexcept nogil:
    """In which order a node lists them is derived."""
    cdef uint32_t slot
    cdef AllocationRecord record
    for slot in range(t.allocations_used):
        memcpy(&record, &t.allocations[slot], sizeof(AllocationRecord))
        if record.is_live:
            mix_bytes(digest, pieces_of(t, &record), <size_t> record.count * 4)
            record.next_on_node = 0
            record.previous_on_node = 0
            record.pieces = 0
        mix_bytes(digest, &record, sizeof(AllocationRecord))


cdef void digest_cluster(Tables* t, uint64_t* digest) noexcept nogil:
    cdef uint32_t slot
    cdef NodeRecord node
    for slot in range(t.nodes_used):
        memcpy(&node, &t.nodes[slot], sizeof(NodeRecord))
        node.allocation_first = 0
        node.marked = 0
        memset(node.evictable, 0, sizeof(node.evictable))
        mix_bytes(digest, &node, sizeof(NodeRecord))
    mix_bytes(digest, t.devices, t.devices_used * sizeof(DeviceRecord))


cdef void digest_rules(Tables* t, uint64_t* digest) noexcept nogil:
    cdef uint32_t slot, at
    cdef ShapeRecord* shape
    cdef QueueRecord* queue
    cdef GangRecord* gang
    for slot in range(t.shapes_used):
        shape = &t.shapes[slot]
        mix_in(digest, <uint64_t> shape.cpu_milli)
        mix_in(digest, <uint64_t> shape.memory_bytes)
        mix_in(digest, <uint64_t> shape.popularity)
        mix_in(digest, shape.same)
        mix_bytes(digest, shape.asks, sizeof(shape.asks))
        for at in range(t.nodes_used):
            mix_in(digest, level_of(shape, at))
    for slot in range(t.queues_used):
        queue = &t.queues[slot]
        mix_in(digest, <uint64_t> queue.weight)
        mix_in(digest, queue.parent)
        mix_bytes(digest, queue.used, sizeof(queue.used))
        mix_bytes(digest, queue.guaranteed, sizeof(queue.guaranteed))
        mix_bytes(digest, queue.limit, sizeof(queue.limit))
    for slot in range(t.gangs_used):
        gang = &t.gangs[slot]
        mix_in(digest, <uint64_t> gang.size << 32 | gang.min_size)
        mix_in(digest, <uint64_t> gang.succeeded << 32 | gang.members.size)
        mix_in(digest, <uint64_t> <uint32_t> gang.column << 32 | gang.is_present)


cdef uint64_t digest_tables(Tables* t) noexcept nogil:
    """Time is left out, it moves in turns that write nothing; and where blocks of the arenas lie, which nobody can see."""
    cdef uint64_t digest = 0xCBF29CE484222325ULL
    cdef Scalars scalars
    read_scalars(t, &scalars)
    scalars.now_ns = 0
    memset(scalars.key_free, 0, sizeof(scalars.key_free))
    memset(scalars.piece_free, 0, sizeof(scalars.piece_free))
    mix_bytes(&digest, &scalars, sizeof(Scalars))
    mix_bytes(&digest, t.checkpoints, <size_t> t.checkpoints_used * sizeof(int64_t))
    digest_tasks(t, &digest)
    digest_allocations(t, &digest)
    digest_cluster(t, &digest)
    digest_rules(t, &digest)
    return digest
