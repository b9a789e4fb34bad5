# One number for the whole state: equal for equal states, however they were reached.
#
# Promises: what is derived is left out (where a waiting task stands, where blocks of the arenas lie, how a node lists its allocations);
# free lists are part of it, because the next slots are.

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
    """Where a waiting task stands is derived, where its key and its story lie too."""
    cdef uint32_t slot
    cdef TaskRecord task
    cdef StoryRecord* story
    for slot in range(t.tasks_used):
        task = t.tasks[slot]
        if is_waiting(&task):
            task.place = NONE_
        if task.state == SUCCEEDED_ and task.place != NONE_:
            story = story_at(t, task.place)
            mix_bytes(digest, story, story_bytes(story.count))
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
        node.cpu_extra = node.memory_extra = 0
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
        mix_in(digest, shape.same | <uint64_t> shape.is_soft << 8 | <uint64_t> shape.is_wish << 9)
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
        mix_in(digest, <uint64_t> <uint32_t> gang.column << 32 | <uint64_t> (gang.wish + 1) << 8 | gang.is_present)
        mix_in(digest, <uint64_t> gang.broken_ns)


cdef uint64_t digest_tables(Tables* t) noexcept nogil:
    """Time is left out, it moves in turns that write nothing; and where blocks of the arenas lie, which nobody can see."""
    cdef uint64_t digest = 0xCBF29CE484222325ULL
    cdef Scalars scalars
    read_scalars(t, &scalars)
    scalars.now_ns = 0
    memset(scalars.key_free, 0, sizeof(scalars.key_free))
    memset(scalars.piece_free, 0, sizeof(scalars.piece_free))
    memset(scalars.story_free, 0, sizeof(scalars.story_free))
    mix_bytes(&digest, &scalars, sizeof(Scalars))
    mix_bytes(&digest, t.checkpoints, <size_t> t.checkpoints_used * sizeof(int64_t))
    mix_bytes(&digest, t.uses, t.uses_used * sizeof(UseRecord))
    mix_bytes(&digest, t.templates, t.templates_used * sizeof(TemplateRecord))
    mix_bytes(&digest, t.expectations, t.expectations_used * sizeof(ExpectationRecord))
    mix_bytes(&digest, t.evictions, t.evictions_used * sizeof(EvictionRecord))
    digest_tasks(t, &digest)
    digest_allocations(t, &digest)
    digest_cluster(t, &digest)
    digest_rules(t, &digest)
    return digest
