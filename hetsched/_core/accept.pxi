# Taking tasks in: what a run must satisfy, and the record of each.
#
# Promises: everything is checked before anything is changed, for an accept that fails is not replayed.

cdef int check_run(keys, deadlines_ns, priorities, int priority) except -1:
    if not -32768 <= priority < 32768:
        raise ValueError(f"priority {priority} does not fit 16 bits")
    for column in (deadlines_ns, priorities):
        if column is not None and len(column) != len(keys):
            raise ValueError(f"{len(keys)} keys, but {len(column)} values in a column")
    if priorities is not None and len(priorities) and not -32768 <= min(priorities) <= max(priorities) < 32768:
        raise ValueError("a priority does not fit 16 bits")
    return 0


cdef int check_keys(Tables* t, keys) except -1:
    """Before anything is changed: an accept that fails must leave no trace, for it is not replayed."""
    cdef const uint8_t* data
    cdef uint32_t length
    for key in keys:
        data = <bytes> key
        length = <uint32_t> len(<bytes> key)
        if not 1 <= length <= 255:
            raise ValueError(f"a key of {length} bytes is not 1..255 bytes")
        if index_find(t, data, length, hash_bytes(data, length)) != NONE_:
            raise KeyError(f"there is a task {key.decode(errors='replace')} already")
    if len(set(keys)) != len(keys):
        raise KeyError("a key is there twice")
    return 0


cdef uint16_t checkpoint_index(Tables* t, int64_t checkpoint_ns) except? 0xFFFF:
    """Equal values share an index."""
    cdef uint32_t at
    if checkpoint_ns < 0:
        raise ValueError(f"checkpoint_ns {checkpoint_ns} is negative")
    for at in range(t.checkpoints_used):
        if t.checkpoints[at] == checkpoint_ns:
            return <uint16_t> at
    if t.checkpoints_used == 65534:
        raise ValueError("there are 65534 different values of checkpoint_ns already")
    grow(<void**> &t.checkpoints, &t.checkpoints_capacity, sizeof(int64_t), <uint64_t> t.checkpoints_used + 1)
    t.checkpoints[t.checkpoints_used] = checkpoint_ns
    t.checkpoints_used += 1
    return <uint16_t> (t.checkpoints_used - 1)


# ---------------------------------------------------------------- many keys at once

cdef struct KeyRecord:
    const uint8_t* data
    uint32_t length            # bytes, 1..255
    uint32_t hashed


cdef inline void read_key(KeyRecord* key, const uint8_t* data, uint32_t length) noexcept nogil:
    key.data = data
    key.length = length
    key.hashed = hash_bytes(data, length)


cdef const char* split_keys(const uint8_t* data, size_t size, KeyRecord* keys, uint32_t count) noexcept nogil:
    """`count` keys out of bytes that newlines part; what is wrong with them, or NULL."""
    cdef const uint8_t* end = data + size
    cdef const uint8_t* stop
    cdef uint32_t at
    for at in range(count):
        stop = <const uint8_t*> memchr(data, 10, end - data)
        if stop == NULL:
            stop = end
        if not 0 < stop - data <= 255:
            return "a key is not 1..255 bytes"
        read_key(&keys[at], data, <uint32_t> (stop - data))
        if (stop == end) != (at + 1 == count):
            return "there are more or fewer keys than were said"
        data = stop + 1
    return NULL


cdef uint32_t first_known(Tables* t, KeyRecord* keys, uint32_t count, uint32_t* seen, uint32_t room) noexcept nogil:
    """Index of a key that is in the table or came before in the list, or NONE. `seen`: `room` zeros, more than twice as many as keys."""
    cdef uint32_t at, place
    for at in range(count):
        send_for_id(t, keys[at].hashed)
    for at in range(count):
        if index_find(t, keys[at].data, keys[at].length, keys[at].hashed) != NONE_:
            return at
        place = home_of(<uint64_t> keys[at].hashed << 32, room)
        while seen[place] != 0:
            if keys[seen[place] - 1].length == keys[at].length and memcmp(keys[seen[place] - 1].data, keys[at].data, keys[at].length) == 0:
                return at
            place = place + 1 if place + 1 < room else 0
        seen[place] = at + 1
    return NONE_


def array_keys(bytes prefix, uint32_t first, uint32_t count):
    """See `_core.pyi`."""
    cdef bytearray keys = bytearray((len(prefix) + 11) * count)
    cdef uint8_t* begin = keys
    cdef uint8_t* at = begin
    cdef const uint8_t* data = prefix
    cdef size_t size = len(prefix)
    cdef uint8_t digits[10]
    cdef uint32_t number, left
    cdef int length
    for number in range(first, first + count):
        memcpy(at, data, size)
        at += size
        length = 0
        left = number
        while left > 0 or length == 0:
            digits[length] = 48 + left % 10
            length += 1
            left //= 10
        while length > 0:
            length -= 1
            at[0] = digits[length]
            at += 1
        at[0] = 10
        at += 1
    return bytes(keys[:at - begin - 1]) if count else b""


# ---------------------------------------------------------------- one task

cdef int reserve_tasks(Tables* t, uint64_t count) except -1 nogil:
    return grow_lined(<void**> &t.tasks, &t.tasks_capacity, sizeof(TaskRecord), t.tasks_used + count)


cdef int add_task(Tables* t, TaskRecord* blank, KeyRecord* key, uint32_t* slot) except -1 nogil:
    """A record like `blank` with this key and the next sequence number. Keys are checked and room is reserved."""
    cdef uint32_t ref, new
    cdef TaskRecord* task
    index_room(t, key.hashed)
    arena_take(&t.keys, key.length + 1, &ref)
    arena_at(&t.keys, ref)[0] = <uint8_t> key.length
    memcpy(arena_at(&t.keys, ref) + 1, key.data, key.length)
    new = t.tasks_free
    if new != NONE_:
        t.tasks_free = t.tasks[new].place
        if t.tasks_free != NONE_:
            prefetch(&t.tasks[t.tasks_free])
    else:
        new = t.tasks_used
        t.tasks_used += 1
    task = &t.tasks[new]
    memcpy(task, blank, sizeof(TaskRecord))
    task.key = ref
    task.sequence = t.next_sequence
    note_age(t, task.sequence, task.submitted_ns)
    t.next_sequence += 1
    index_add(t, key.hashed, new)
    t.tasks_count += 1
    t.counts[task.state] += 1
    if task.gang != NONE_:
        push(&t.gangs[task.gang].members, new)
        touch_gang(t, task.gang)
    if task.state == QUEUED_:
        start_waiting(t, new)
    slot[0] = new
    return 0
