# Facts as tuples: how long a record is and what it says. The bytes are described in apply.

cdef size_t length_of(const uint8_t* at, size_t left) noexcept nogil:
    """Bytes of the record, its code included; 0 if it is cut off or unknown."""
    cdef size_t size = 0
    cdef uint8_t code = at[0]
    if code == FACT_TURN:
        size = 9
    elif code == FACT_WORDS:
        size = 6 + get32(at + 2) if left >= 6 else 0
    elif code == FACT_PLACED:
        size = 13 + 3 * <size_t> at[12] if left >= 13 else 0
    elif code == FACT_STARTED:
        size = 7
    elif code == FACT_STOPPING:
        size = 12
    elif code == FACT_ENDED or code == FACT_REQUEUED:
        size = 9
    elif code == FACT_BACKED_OFF:
        size = 8
    elif code == FACT_READY or code == FACT_UNCLAIMED or code == FACT_FORGOTTEN:
        size = 5
    elif code == FACT_HELD:
        size = 6
    elif code == FACT_PRIORITISED:
        size = 7
    elif code == FACT_CLAIMED and left >= 19:
        size = 21 + 3 * <size_t> at[18]
        size = size + 4 * <size_t> get16(at + size - 2) if left >= size else 0
    return size if size <= left else 0


cdef tuple pieces_tuple(const uint8_t* at, int count):
    return tuple([(at[3 * piece], get16(at + 3 * piece + 1)) for piece in range(count)])


cdef tuple fact_tuple(const uint8_t* at, size_t size):
    cdef int code = at[0]
    cdef int count, victim
    if code == FACT_TURN:
        return (code, get64(at + 1))
    if code == FACT_WORDS:
        return (code, at[1], at[6:size])
    if code == FACT_PLACED:
        return (code, get32(at + 1), get16(at + 5), get32(at + 7), at[11], pieces_tuple(at + 13, at[12]))
    if code == FACT_STARTED:
        return (code, get32(at + 1), get16(at + 5))
    if code == FACT_STOPPING:
        return (code, get32(at + 1), get16(at + 5), at[7], get32(at + 8))
    if code == FACT_ENDED:
        return (code, get32(at + 1), get16(at + 5), at[7], at[8])
    if code == FACT_REQUEUED or code == FACT_BACKED_OFF:
        return (code, get32(at + 1), get16(at + 5), at[7])
    if code == FACT_HELD:
        return (code, get32(at + 1), at[5])
    if code == FACT_PRIORITISED:
        return (code, get32(at + 1), <int16_t> get16(at + 5))
    if code == FACT_CLAIMED:
        count = at[18]
        victims = at + 21 + 3 * count
        return (code, get32(at + 1), get32(at + 5), get64(at + 10), pieces_tuple(at + 19, count),
                tuple([get32(victims + 4 * victim) for victim in range(get16(at + 19 + 3 * count))]))
    return (code, get32(at + 1))


cdef list facts_list(const uint8_t* data, size_t begin, size_t end):
    """(first byte, byte after the last, tuple) of every record."""
    cdef size_t size
    records = []
    while begin < end:
        size = length_of(data + begin, end - begin)
        if size == 0:
            raise ValueError(f"offset {begin}: the record is cut off or of no known kind")
        records.append((begin, begin + size, fact_tuple(data + begin, size)))
        begin += size
    return records


def fact_at(bytes facts, size_t offset):
    """See `_core.pyi`."""
    cdef const uint8_t* data = facts
    cdef size_t size
    if offset >= <size_t> len(facts):
        raise ValueError(f"offset {offset} is behind the end {len(facts)}")
    size = length_of(data + offset, len(facts) - offset)
    if size == 0:
        raise ValueError(f"offset {offset}: the record is cut off or of no known kind")
    return offset + size, fact_tuple(data + offset, size)


def split_facts(bytes facts):
    """See `_core.pyi`."""
    return facts_list(facts, 0, len(facts))
