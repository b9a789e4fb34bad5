"""Finds tasks in the bytes of JSON bodies and recognises those whose like was read before, without reading them again.

Most tasks of a client differ in their id only. So a body is remembered by its skeleton, all its bytes but those of the id, together with what
was made of it; the next one with the same skeleton is that again under another id. Nothing here judges: whether a skeleton may be
remembered is proven by whoever reads the first two of its kind (`api/known.py`), and what is not remembered is read there.

Why that is safe: an id here holds only letters, digits and . _ : / -, so neither a quote nor a backslash; whatever such an id is, the
bytes around it mean the same. Why a table of our own: it is bounded, four places a hash, so that no choice of bodies makes it slow.

Kinds of tasks mostly come in the order in which they came before. So the bytes are first compared with the skeleton that is expected: where they
are the same but for an id, looking for the end of the object and hashing it would find the same. That is 0.05 µs a task instead of 0.3.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdlib cimport calloc, free, malloc
from libc.stdio cimport snprintf
from libc.string cimport memchr, memcmp, memcpy
from posix.unistd cimport close

from cpython.bytes cimport PyBytes_FromStringAndSize

cdef enum:
    WAYS = 4
    LONGEST_ID = 128
    DEEPEST = 32
    MOST_DISTINCT = 0xFFFF
    MOST_READS = 256         # about 10 ms; a list of so many kinds is read elsewhere, in a thread

cdef uint8_t LEGAL[256]          # may stand in an id
cdef int _character
for _character in b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:/-":
    LEGAL[_character] = 1


cdef struct Span:
    # One task: the bytes from `begin` to `end`, its id from `hole` to `hole_end` (both `end` where it has none).
    Py_ssize_t begin
    Py_ssize_t end
    Py_ssize_t hole
    Py_ssize_t hole_end


cdef struct Place:
    uint64_t hashed
    uint32_t stamp       # the call that met it last
    uint32_t local       # its number in that call
    uint32_t before      # bytes before the id
    uint32_t size        # of the skeleton; 0: free
    uint32_t next        # the place of the one that followed it last
    bint is_line         # no line ends in it


# ---------------------------------------------------------------------- leaves: where things end

cdef inline Py_ssize_t spaces_end(const uint8_t* data, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    while at < end and (data[at] == 32 or data[at] == 10 or data[at] == 13 or data[at] == 9):
        at += 1
    return at


cdef inline Py_ssize_t string_end(const uint8_t* data, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    """Index of the closing quote, `end` if there is none. `at`: behind the opening one."""
    while at < end and data[at] != 34:
        at += 2 if data[at] == 92 else 1
    return at if at < end else end


cdef inline bint is_id_key(const uint8_t* data, Py_ssize_t begin, Py_ssize_t end) noexcept nogil:
    return end - begin == 2 and data[begin] == 105 and data[begin + 1] == 100


cdef void note_id(const uint8_t* data, Py_ssize_t at, Py_ssize_t end, Span* span) noexcept nogil:
    """`at`: behind the key. Its value is the hole, if it is one that could be an id as it stands."""
    cdef Py_ssize_t begin
    at = spaces_end(data, at, end)
    if at == end or data[at] != 58:
        return
    at = spaces_end(data, at + 1, end)
    if at == end or data[at] != 34:
        return
    at += 1
    begin = at
    while at < end and LEGAL[data[at]]:
        at += 1
    if at < end and data[at] == 34 and 0 < at - begin <= LONGEST_ID:
        span.hole = begin
        span.hole_end = at


cdef bint find_object(const uint8_t* data, Py_ssize_t at, Py_ssize_t end, bint in_line, Span* span) noexcept nogil:
    """The object that begins at `at`; False where none does or it has no end. What stands in it is not judged."""
    cdef Py_ssize_t begin
    cdef int depth = 0
    cdef uint8_t c
    if at >= end or data[at] != 123:
        return False
    span.begin = at
    span.hole = -1
    while at < end:
        c = data[at]
        if c == 34:
            begin = at + 1
            at = string_end(data, begin, end)
            if at == end:
                return False
            if depth == 1 and span.hole < 0 and is_id_key(data, begin, at):
                note_id(data, at + 1, end, span)
        elif c == 123 or c == 91:
            depth += 1
            if depth > DEEPEST:
                return False
        elif c == 125 or c == 93:
            depth -= 1
            if depth == 0:
                span.end = at + 1
                if span.hole < 0:
                    span.hole = span.hole_end = span.end
                return True
        elif c == 10 and in_line:
            return False
        at += 1
    return False


cdef inline uint64_t hash_part(uint64_t hashed, const uint8_t* data, Py_ssize_t size) noexcept nogil:
    cdef uint64_t word
    while size >= 8:
        memcpy(&word, data, 8)
        hashed = (hashed ^ word) * <uint64_t> 0x9E3779B97F4A7C15
        hashed ^= hashed >> 29
        data += 8
        size -= 8
    word = <uint64_t> size
    while size > 0:
        size -= 1
        word = word << 8 | data[size]
    hashed = (hashed ^ word) * <uint64_t> 0xBF58476D1CE4E5B9
    return hashed ^ hashed >> 32


cdef list counted(const uint8_t* chosen, Py_ssize_t count, Py_ssize_t kinds):
    """How often each of the numbers comes, uint16 each."""
    cdef Py_ssize_t at
    cdef uint32_t* times = <uint32_t*> calloc(max(kinds, 1), sizeof(uint32_t))
    if times == NULL:
        raise MemoryError
    try:
        for at in range(count):
            times[chosen[2 * at] | chosen[2 * at + 1] << 8] += 1
        return [times[at] for at in range(kinds)]
    finally:
        free(times)


cdef inline bytes piece(const uint8_t* data, Py_ssize_t begin, Py_ssize_t end):
    return PyBytes_FromStringAndSize(<const char*> data + begin, end - begin)


# ---------------------------------------------------------------------- the memory

cdef class Recall:
    """`places`: how many skeletons are remembered (a power of two); one of four gives way. `read(before, id, after, again)` is asked about a
    task that is not, in three pieces; `again`: one with this skeleton was read already. It returns (value, whether the skeleton is proven and
    worth remembering). A value of None: the body is not for this path."""

    cdef Place* table
    cdef list skeletons
    cdef list values
    cdef uint64_t* once
    cdef uint32_t mask
    cdef uint32_t turn
    cdef uint32_t stamp
    cdef uint32_t reads  # of this call
    cdef uint32_t last   # the place that was found last
    cdef uint64_t unknown
    cdef object read

    def __cinit__(self, uint32_t places, read):
        if places < WAYS or places & (places - 1):
            raise ValueError(f"{places} places: a power of two, at least {WAYS}")
        self.table = <Place*> calloc(places, sizeof(Place))
        self.once = <uint64_t*> calloc(places, sizeof(uint64_t))
        if self.table == NULL or self.once == NULL:
            raise MemoryError
        self.skeletons = [None] * places
        self.values = [None] * places
        self.mask = places - 1
        self.read = read

    def __dealloc__(self):
        free(self.table)
        free(self.once)

    def one(self, bytes body, Py_ssize_t begin=0, Py_ssize_t end=-1):
        """(value, id or b"") of a body that is one object; None where it is not for this path."""
        cdef Span span
        if end < 0 or end > len(body):
            end = len(body)
        value = self._one(body, begin, end, &span)
        return None if value is None else (value, body[span.hole:span.hole_end])

    cdef object _one(self, const uint8_t* data, Py_ssize_t begin, Py_ssize_t end, Span* span):
        cdef int place
        begin = spaces_end(data, begin, end)
        if self._is(self.last, data, begin, end, False, span) and span.end == end:
            return self.values[self.last]
        if not find_object(data, begin, end, False, span) or spaces_end(data, span.end, end) != end:
            return None
        place = self._find(data, span)
        if place < 0:
            return self._read(data, span)
        self.last = place
        return self.values[place]

    def many(self, bytes body, Py_ssize_t most, bint lines=False):
        """(values, counts, which, ids) of a JSON list (or of lines of JSON) of at most `most` objects: the different values, how many tasks
        have each, which of them each task has (an uint16 a task), and their ids. None where anything of it is not for this path, or where
        more than MOST_READS of it would have to be read."""
        cdef const uint8_t* data = body
        cdef Py_ssize_t end = len(body), at, count = 0
        cdef Span span
        cdef list values = [], ids = []
        cdef bytearray which = bytearray(2 * min(most, end // 2 + 1))
        cdef uint8_t* chosen = <uint8_t*> which
        cdef list counts
        cdef uint32_t local
        self.stamp += 1
        self.reads = 0
        at = spaces_end(data, 0, end)
        if not lines:
            if at == end or data[at] != 91:
                return None
            at = spaces_end(data, at + 1, end)
        while True:
            if count == most:
                return None
            local = self._local(data, at, end, lines, &span, values)
            if local >= MOST_DISTINCT:
                return None
            chosen[2 * count] = local & 255
            chosen[2 * count + 1] = local >> 8
            count += 1
            ids.append(piece(data, span.hole, span.hole_end))
            at = span.end
            if lines:
                while at < end and (data[at] == 32 or data[at] == 13 or data[at] == 9):
                    at += 1
                if at < end and data[at] != 10:
                    return None
                at = spaces_end(data, at, end)
                if at == end:
                    break
                continue
            at = spaces_end(data, at, end)
            if at < end and data[at] == 44:
                at = spaces_end(data, at + 1, end)
                continue
            if at == end or data[at] != 93 or spaces_end(data, at + 1, end) != end:
                return None
            break
        counts = counted(chosen, count, len(values))
        del which[2 * count:]
        return values, counts, bytes(which), ids

    cdef uint32_t _local(self, const uint8_t* data, Py_ssize_t at, Py_ssize_t end, bint lines, Span* span, list values) except? 0xFFFF:
        """Number of the value, in this call, of the task that begins at `at`; MOST_DISTINCT where there is none."""
        cdef int place
        cdef uint32_t expected = self.table[self.last].next
        if self._is(expected, data, at, end, lines, span):
            place = <int> expected
        elif find_object(data, at, end, lines, span):
            place = self._find(data, span)
        else:
            return MOST_DISTINCT
        if place >= 0:
            self._follow(place)
            if self.table[place].stamp == self.stamp:
                return self.table[place].local
            value = self.values[place]
        else:
            self.reads += 1
            value = self._read(data, span) if self.reads <= MOST_READS else None
        if value is None or len(values) >= MOST_DISTINCT:
            return MOST_DISTINCT
        values.append(value)
        if place < 0:
            place = self._find(data, span)
        if place >= 0:
            self._follow(place)
            self.table[place].stamp = self.stamp
            self.table[place].local = <uint32_t> len(values) - 1
        return <uint32_t> len(values) - 1

    cdef inline void _follow(self, int place) noexcept:
        """It came after the last one."""
        self.table[self.last].next = <uint32_t> place
        self.last = <uint32_t> place

    cdef inline bint _is(self, uint32_t place, const uint8_t* data, Py_ssize_t at, Py_ssize_t end, bint in_line, Span* span) noexcept:
        """Whether what begins at `at` is the object of that place under some id; the span is then the one that `find_object` would find."""
        cdef Place* known = &self.table[place]
        cdef Py_ssize_t before = known.before, after = <Py_ssize_t> known.size - before, most
        cdef const char* skeleton
        if after <= 0 or end - at <= <Py_ssize_t> known.size or (in_line and not known.is_line):
            return False        # free, or it has no id
        skeleton = PyBytes_AS_STRING(<bytes> self.skeletons[place])
        if memcmp(skeleton, data + at, before) != 0:
            return False
        span.begin = at
        span.hole = at = at + before
        most = min(end - after, at + LONGEST_ID)
        while at < most and LEGAL[data[at]]:
            at += 1
        if at == span.hole or memcmp(skeleton + before, data + at, after) != 0:
            return False
        span.hole_end = at
        span.end = at + after
        return True

    cdef int _find(self, const uint8_t* data, Span* span) noexcept:
        """Its place, or -1."""
        cdef Py_ssize_t before = span.hole - span.begin, after = span.end - span.hole_end
        cdef uint64_t hashed = hash_part(hash_part(<uint64_t> before, data + span.begin, before), data + span.hole_end, after)
        cdef uint32_t bucket = <uint32_t> (hashed & self.mask) & ~<uint32_t> (WAYS - 1)
        cdef uint32_t place
        cdef const uint8_t* skeleton
        for place in range(bucket, bucket + WAYS):
            if self.table[place].hashed == hashed and self.table[place].size == before + after and self.table[place].before == before:
                skeleton = <bytes> self.skeletons[place]
                if memcmp(skeleton, data + span.begin, before) == 0 and memcmp(skeleton + before, data + span.hole_end, after) == 0:
                    return <int> place
        self.unknown = hashed
        return -1

    cdef object _read(self, const uint8_t* data, Span* span):
        """What the reader makes of a task that is not remembered; remembered from now on where it says so."""
        cdef uint64_t hashed = self.unknown
        cdef uint32_t at = <uint32_t> (hashed & self.mask)
        cdef uint32_t place = (at & ~<uint32_t> (WAYS - 1)) + (self.turn & (WAYS - 1))
        cdef bytes before = piece(data, span.begin, span.hole), after = piece(data, span.hole_end, span.end)
        cdef bint again = self.once[at] == hashed
        value, is_proven = self.read(before, piece(data, span.hole, span.hole_end), after, again)
        self.once[at] = hashed
        if is_proven:
            self.turn += 1
            self.skeletons[place] = before + after
            self.values[place] = value
            self.table[place] = Place(
                hashed, 0, 0, <uint32_t> len(before), <uint32_t> (len(before) + len(after)), 0, b"\n" not in before and b"\n" not in after
            )
        return value


include "_scan/singles.pxi"
include "_scan/sockets.pxi"
