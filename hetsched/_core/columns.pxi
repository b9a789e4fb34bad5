# Many keys in columns: what they begin with once (heads), the number at the end of each. Keys of an array differ in nothing else.
#
# A key is its head, followed by its number unless that is NONE. The number is what the key ends with: at most nine digits, no zero in front.
# Promises: a key has one way of being parted, so equal keys have equal columns; heads are in the order in which they were met first.

cdef enum:
    MOST_HEADS = 0xFFFF        # an uint16 names one
    LONGEST_KEY = 255
    MOST_DIGITS = 9


cdef struct HeadRecord:
    uint32_t text              # where in `text` it begins
    uint32_t hashed
    uint32_t length            # bytes


cdef struct Heads:
    Buffer text                # parted by newlines
    HeadRecord* at
    uint32_t* places           # hash → number of the head + 1
    uint32_t size
    uint32_t capacity
    uint32_t room              # of `places`, a power of two at least twice as large as `size`
    uint32_t last              # the one found last


cdef void drop_heads(Heads* heads) noexcept nogil:
    free(heads.text.data)
    free(heads.at)
    free(heads.places)


cdef inline uint32_t head_length(const uint8_t* key, uint32_t length, uint32_t* number) noexcept nogil:
    """How many of its bytes are the head's."""
    cdef uint32_t begin = length, at
    while begin > 0 and length - begin < MOST_DIGITS and 48 <= key[begin - 1] <= 57:
        begin -= 1
    while begin + 1 < length and key[begin] == 48:
        begin += 1
    if begin == length:
        number[0] = NONE_
        return length
    number[0] = 0
    for at in range(begin, length):
        number[0] = number[0] * 10 + key[at] - 48
    return begin


cdef inline bint is_head(Heads* heads, uint32_t index, const uint8_t* data, uint32_t length) noexcept nogil:
    return heads.at[index].length == length and memcmp(heads.text.data + heads.at[index].text, data, length) == 0


cdef int head_of(Heads* heads, const uint8_t* data, uint32_t length, uint32_t* index) except -1 nogil:
    """Its number; a new one if it was never met. Below MOST_HEADS as long as `heads_full` is heeded."""
    cdef uint32_t hashed, place
    if heads.size and is_head(heads, heads.last, data, length):
        index[0] = heads.last
        return 0
    hashed = hash_bytes(data, length)
    if 2 * (heads.size + 1) > heads.room:
        widen_heads(heads)
    place = hashed & (heads.room - 1)
    while heads.places[place] != 0:
        index[0] = heads.places[place] - 1
        if heads.at[index[0]].hashed == hashed and is_head(heads, index[0], data, length):
            heads.last = index[0]
            return 0
        place = (place + 1) & (heads.room - 1)
    index[0] = heads.last = heads.size
    grow(<void**> &heads.at, &heads.capacity, sizeof(HeadRecord), <uint64_t> heads.size + 1)
    fact_room(&heads.text, length + 1)
    if heads.size:
        put8(&heads.text, 10)
    heads.at[heads.size] = HeadRecord(<uint32_t> heads.text.size, hashed, length)
    memcpy(heads.text.data + heads.text.size, data, length)
    heads.text.size += length
    heads.places[place] = heads.size + 1
    heads.size += 1
    return 0


cdef int widen_heads(Heads* heads) except -1 nogil:
    cdef uint32_t room = heads.room * 2 if heads.room else 16
    cdef uint32_t* places = <uint32_t*> calloc(room, sizeof(uint32_t))
    cdef uint32_t index, place
    if places == NULL:
        no_memory()
    for index in range(heads.size):
        place = heads.at[index].hashed & (room - 1)
        while places[place] != 0:
            place = (place + 1) & (room - 1)
        places[place] = index + 1
    free(heads.places)
    heads.places = places
    heads.room = room
    return 0


cdef inline uint32_t write_key(uint8_t* out, const uint8_t* head, uint32_t length, uint32_t number) noexcept nogil:
    """Room for LONGEST_KEY bytes and what the number has. Returns how many there are."""
    cdef uint8_t digits[10]
    cdef uint32_t count = 0
    memcpy(out, head, length)
    if number == NONE_:
        return length
    while number > 0 or count == 0:
        digits[count] = <uint8_t> (48 + number % 10)
        number //= 10
        count += 1
    while count > 0:
        count -= 1
        out[length] = digits[count]
        length += 1
    return length


cdef struct Columns:
    # Keys as they were told from outside. The bytes belong to whoever told them.
    const uint8_t* text
    const uint16_t* which      # NULL: all have the first head
    const uint32_t* numbers
    HeadRecord* heads
    uint32_t count             # keys


cdef int read_columns(bytes heads, bytes which, bytes numbers, bytes attempts, Columns* columns) except -1:
    """Raises ValueError for what no columns can be. `columns.heads` is to be freed by whoever called."""
    cdef uint32_t count = <uint32_t> heads.count(NEWLINE) + 1, at, tasks = <uint32_t> (len(attempts) // 2)
    cdef size_t begin = 0, end, size = len(heads)
    columns.heads = NULL
    columns.text = heads
    columns.which = <const uint16_t*> <const uint8_t*> which if which else NULL
    columns.numbers = <const uint32_t*> <const uint8_t*> numbers
    columns.count = tasks
    if tasks == 0 or len(attempts) != 2 * tasks or len(numbers) != 4 * <size_t> tasks:
        raise ValueError(f"{len(numbers)} bytes of numbers and {len(attempts)} of attempts, where each task has 4 and 2")
    if count > MOST_HEADS or size >= NONE_ or len(which) not in (2 * tasks, 0 if count == 1 else 2 * tasks):
        raise ValueError(f"{count} heads and {len(which)} bytes that name them for {tasks} tasks")
    if columns.which != NULL:
        for at in range(tasks):
            if columns.which[at] >= count:
                raise ValueError(f"task {at} has head {columns.which[at]} of {count}")
    columns.heads = <HeadRecord*> calloc(count, sizeof(HeadRecord))
    if columns.heads == NULL:
        raise MemoryError
    for at in range(count):
        end = begin
        while end < size and columns.text[end] != 10:
            end += 1
        if end - begin > LONGEST_KEY - MOST_DIGITS - 1:
            raise ValueError(f"head {at} has {end - begin} bytes")
        columns.heads[at] = HeadRecord(<uint32_t> begin, 0, <uint32_t> (end - begin))
        begin = end + 1
    return 0


cdef inline uint32_t column_key(Columns* columns, uint32_t at, uint8_t* out) noexcept nogil:
    """Room for LONGEST_KEY bytes and one. Returns how many it has."""
    cdef HeadRecord* head = &columns.heads[0 if columns.which == NULL else columns.which[at]]
    return write_key(out, columns.text + head.text, head.length, columns.numbers[at])


def check_columns(bytes heads, bytes which, bytes numbers, bytes attempts):
    """See `_core.pyi`."""
    cdef Columns columns
    try:
        read_columns(heads, which, numbers, attempts, &columns)
    finally:
        free(columns.heads)


def part_keys(bytes keys):
    """See `_core.pyi`."""
    cdef uint32_t count = <uint32_t> keys.count(NEWLINE) + 1, at, head, length
    cdef const uint8_t* data = keys
    cdef const uint8_t* end = data + len(keys)
    cdef const uint8_t* stop
    cdef bytearray which = bytearray(2 * count), numbers = bytearray(4 * count)
    cdef uint16_t* head_out = <uint16_t*> <uint8_t*> which
    cdef uint32_t* number_out = <uint32_t*> <uint8_t*> numbers
    cdef Heads heads
    memset(&heads, 0, sizeof(Heads))
    try:
        for at in range(count):
            stop = <const uint8_t*> memchr(data, 10, end - data)
            if stop == NULL:
                stop = end
            if heads.size == MOST_HEADS:
                raise ValueError(f"the keys have more than {MOST_HEADS} heads")
            length = head_length(data, <uint32_t> (stop - data), &number_out[at])
            head_of(&heads, data, length, &head)
            head_out[at] = <uint16_t> head
            data = stop + 1
        text = (<const char*> heads.text.data)[:heads.text.size] if heads.text.size else b""
        return text, bytes(which) if heads.size > 1 else b"", bytes(numbers)
    finally:
        drop_heads(&heads)
