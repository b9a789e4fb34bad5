# Memory under the tables: growing arrays, lists of slots, the arena of small blocks, the fact buffer, the index of ids.
#
# Promises: a slot never moves; a pointer into a table is good until the next call that may grow that table; a block of the arena
# is found again by its ref and the number of its bytes. A growth that fails raises MemoryError and leaves everything as it was.

cdef int no_memory() except -1 nogil:
    with gil:
        raise MemoryError("the core's tables cannot grow")


cdef int wider(uint32_t capacity, uint64_t needed, uint64_t* wanted) except -1 nogil:
    """Room for `needed` records: a quarter more each time, so that what is reserved stays near what is used."""
    wanted[0] = capacity + (capacity >> 2)
    if wanted[0] < needed + 8:
        wanted[0] = needed + 8
    if wanted[0] >= NONE_:
        no_memory()
    return 0


cdef int grow(void** base, uint32_t* capacity, size_t stride, uint64_t needed) except -1 nogil:
    """Room for `needed` records; new room is zero."""
    cdef uint64_t wanted
    cdef void* bigger
    if needed <= capacity[0]:
        return 0
    wider(capacity[0], needed, &wanted)
    bigger = realloc(base[0], wanted * stride)
    if bigger == NULL:
        no_memory()
    memset(<uint8_t*> bigger + capacity[0] * stride, 0, (wanted - capacity[0]) * stride)
    base[0] = bigger
    capacity[0] = <uint32_t> wanted
    return 0


# ---------------------------------------------------------------- tables on cache lines
# Records of whole lines that begin on one: else each would lie on one line more, and waiting for lines is half of what a task costs.
# The byte before the first record says how far it is from what realloc gave.

cdef enum:
    LINE = 64


cdef inline uint8_t* given(void* base) noexcept nogil:
    return NULL if base == NULL else <uint8_t*> base - (<uint8_t*> base - 1)[0]


cdef int grow_lined(void** base, uint32_t* capacity, size_t stride, uint64_t needed) except -1 nogil:
    """As grow, for tables that begin on a line; free them with free_lined."""
    cdef uint8_t* bigger = given(base[0])
    cdef size_t was = <uint8_t*> base[0] - bigger, now
    cdef uint64_t wanted
    if needed <= capacity[0]:
        return 0
    wider(capacity[0], needed, &wanted)
    bigger = <uint8_t*> realloc(bigger, wanted * stride + LINE)
    if bigger == NULL:
        no_memory()
    now = LINE - <size_t> bigger % LINE
    if now != was:
        memmove(bigger + now, bigger + was, capacity[0] * stride)
    memset(bigger + now + capacity[0] * stride, 0, (wanted - capacity[0]) * stride)
    bigger[now - 1] = <uint8_t> now
    base[0] = bigger + now
    capacity[0] = <uint32_t> wanted
    return 0


cdef inline void free_lined(void* base) noexcept nogil:
    free(given(base))


# ---------------------------------------------------------------- lists of slots

cdef int push(Slots* list, uint32_t slot) except -1 nogil:
    if list.size == list.capacity:
        grow(<void**> &list.at, &list.capacity, sizeof(uint32_t), <uint64_t> list.size + 1)
    list.at[list.size] = slot
    list.size += 1
    return 0


cdef inline void drop_slots(Slots* list) noexcept nogil:
    free(list.at)
    list.at = NULL
    list.size = 0
    list.capacity = 0


# ---------------------------------------------------------------- arena

cdef inline uint32_t units_of(uint32_t bytes) noexcept nogil:
    return (bytes + 7) >> 3


cdef void arena_init(Arena* arena) noexcept nogil:
    cdef int size
    for size in range(ARENA_CLASSES):
        arena.free_first[size] = NONE_


cdef int arena_take(Arena* arena, uint32_t bytes, uint32_t* ref) except -1 nogil:
    cdef uint32_t units = units_of(bytes)
    ref[0] = arena.free_first[units]
    if ref[0] != NONE_:
        arena.free_first[units] = (<uint32_t*> (arena.base + <size_t> ref[0] * 8))[0]
        return 0
    grow(<void**> &arena.base, &arena.capacity, 8, <uint64_t> arena.used + units)
    ref[0] = arena.used
    arena.used += units
    return 0


cdef inline void arena_give(Arena* arena, uint32_t ref, uint32_t bytes) noexcept nogil:
    cdef uint32_t units = units_of(bytes)
    (<uint32_t*> (arena.base + <size_t> ref * 8))[0] = arena.free_first[units]
    arena.free_first[units] = ref


cdef inline uint8_t* arena_at(Arena* arena, uint32_t ref) noexcept nogil:
    return arena.base + <size_t> ref * 8


# ---------------------------------------------------------------- facts

cdef int fact_room(Buffer* buffer, size_t bytes) except -1 nogil:
    cdef size_t wanted = buffer.capacity
    cdef void* bigger
    if buffer.size + bytes <= wanted:
        return 0
    wanted = (wanted + bytes) * 2
    bigger = realloc(buffer.data, wanted)
    if bigger == NULL:
        no_memory()
    buffer.data = <uint8_t*> bigger
    buffer.capacity = wanted
    return 0


cdef inline void put8(Buffer* buffer, uint8_t value) noexcept nogil:
    buffer.data[buffer.size] = value
    buffer.size += 1


cdef inline void put16(Buffer* buffer, uint16_t value) noexcept nogil:
    memcpy(buffer.data + buffer.size, &value, 2)
    buffer.size += 2


cdef inline void put32(Buffer* buffer, uint32_t value) noexcept nogil:
    memcpy(buffer.data + buffer.size, &value, 4)
    buffer.size += 4


cdef inline void put64(Buffer* buffer, int64_t value) noexcept nogil:
    memcpy(buffer.data + buffer.size, &value, 8)
    buffer.size += 8


cdef inline uint16_t get16(const uint8_t* data) noexcept nogil:
    cdef uint16_t value
    memcpy(&value, data, 2)
    return value


cdef inline uint32_t get32(const uint8_t* data) noexcept nogil:
    cdef uint32_t value
    memcpy(&value, data, 4)
    return value


cdef inline int64_t get64(const uint8_t* data) noexcept nogil:
    cdef int64_t value
    memcpy(&value, data, 8)
    return value


# ---------------------------------------------------------------- index of ids
# Entries of 8 bytes in SEGMENTS parts by the first bits of the hash, each at most half full. Home = hash x size >> 32, so the size is any number
# and growing keeps the order of homes. A segment grows by itself, a third more each time: as one table, a million ids were moved within 25 ms of
# one turn. They begin with different sizes, or all would grow in the same turns.

cdef inline uint32_t hash_bytes(const uint8_t* data, uint32_t length) noexcept nogil:
    cdef uint64_t mixed = 0x9E3779B97F4A7C15ULL ^ length
    cdef uint64_t word
    while length >= 8:
        memcpy(&word, data, 8)
        mixed = (mixed ^ word) * 0xFF51AFD7ED558CCDULL
        mixed ^= mixed >> 32
        data += 8
        length -= 8
    word = 0
    memcpy(&word, data, length)
    mixed = (mixed ^ word) * 0xFF51AFD7ED558CCDULL
    mixed ^= mixed >> 29
    mixed *= 0xC4CEB9FE1A85EC53ULL
    return <uint32_t> (mixed >> 32)


cdef inline uint32_t home_of(uint64_t entry, uint32_t size) noexcept nogil:
    return <uint32_t> (((entry >> 32) * size) >> 32)


cdef inline uint32_t key_length(Tables* t, uint32_t key) noexcept nogil:
    return arena_at(&t.keys, key)[0]


cdef inline const uint8_t* key_bytes(Tables* t, uint32_t key) noexcept nogil:
    return arena_at(&t.keys, key) + 1


cdef inline Segment* segment_of(Tables* t, uint32_t hashed) noexcept nogil:
    return &t.index[hashed >> (32 - SEGMENT_BITS)]


cdef inline uint32_t home_in(const Segment* segment, uint32_t hashed) noexcept nogil:
    return <uint32_t> ((<uint64_t> <uint32_t> (hashed << SEGMENT_BITS) * segment.size) >> 32)


cdef inline void send_for_id(Tables* t, uint32_t hashed) noexcept nogil:
    """Where a key of that hash is looked for first."""
    cdef Segment* segment = segment_of(t, hashed)
    if segment.size:
        prefetch(&segment.at[home_in(segment, hashed)])


cdef uint32_t index_find(Tables* t, const uint8_t* data, uint32_t length, uint32_t hashed) noexcept nogil:
    """Slot of the task with this key or NONE."""
    cdef Segment* segment = segment_of(t, hashed)
    cdef uint32_t at, slot
    cdef uint64_t entry
    if segment.size == 0:
        return NONE_
    at = home_in(segment, hashed)
    while True:
        entry = segment.at[at]
        if entry == 0:
            return NONE_
        if (entry >> 32) == hashed:
            slot = <uint32_t> entry - 1
            if key_length(t, t.tasks[slot].key) == length and memcmp(key_bytes(t, t.tasks[slot].key), data, length) == 0:
                return slot
        at += 1
        if at == segment.size:
            at = 0


cdef inline void segment_put(Segment* segment, uint64_t entry) noexcept nogil:
    cdef uint32_t at = home_in(segment, <uint32_t> (entry >> 32))
    while segment.at[at] != 0:
        at += 1
        if at == segment.size:
            at = 0
    segment.at[at] = entry
    segment.used += 1


cdef int index_room(Tables* t, uint32_t hashed) except -1 nogil:
    """Room for one more key of that hash."""
    cdef Segment* segment = segment_of(t, hashed)
    cdef Segment bigger
    cdef uint64_t wanted
    cdef uint32_t at
    if 2 * (segment.used + 1) <= segment.size:
        return 0
    wanted = segment.size + <uint64_t> segment.size // 3 + 2
    if segment.size == 0:
        wanted = 8 + (hashed >> (32 - SEGMENT_BITS)) % 8
    if wanted >= NONE_:
        no_memory()
    bigger.at = <uint64_t*> calloc(wanted, sizeof(uint64_t))
    if bigger.at == NULL:
        no_memory()
    bigger.size, bigger.used = <uint32_t> wanted, 0
    for at in range(segment.size):
        if segment.at[at] != 0:
            segment_put(&bigger, segment.at[at])
    free(segment.at)
    t.index_size += bigger.size - segment.size
    segment[0] = bigger
    return 0


cdef inline void index_add(Tables* t, uint32_t hashed, uint32_t slot) noexcept nogil:
    """There is room."""
    segment_put(segment_of(t, hashed), <uint64_t> hashed << 32 | (slot + 1))


cdef inline void index_put(uint64_t* index, uint32_t size, uint64_t entry) noexcept nogil:
    cdef uint32_t at = home_of(entry, size)
    while index[at] != 0:
        at += 1
        if at == size:
            at = 0
    index[at] = entry


cdef void index_drop(Tables* t, uint32_t slot) noexcept nogil:
    """Takes the task out; entries behind it that are away from home move back, so there are no tombstones."""
    cdef uint32_t key = t.tasks[slot].key
    cdef uint32_t hashed = hash_bytes(key_bytes(t, key), key_length(t, key))
    cdef Segment* segment = segment_of(t, hashed)
    cdef uint64_t* index = segment.at
    cdef uint32_t size = segment.size
    cdef uint64_t wanted = <uint64_t> hashed << 32 | (slot + 1)
    cdef uint32_t hole = home_in(segment, hashed)
    cdef uint32_t at, home
    while index[hole] != wanted:
        hole = hole + 1 if hole + 1 < size else 0
    at = hole
    while True:
        at = at + 1 if at + 1 < size else 0
        if index[at] == 0:
            break
        home = home_in(segment, <uint32_t> (index[at] >> 32))
        if (hole <= at and (home <= hole or home > at)) or (hole > at and home <= hole and home > at):
            index[hole] = index[at]
            hole = at
    index[hole] = 0
    segment.used -= 1
