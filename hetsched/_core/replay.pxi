# What may happen to a task in which state (asked by doors and by replay alike), facts as tuples, and the replay.
#
# Promises: `refuse_*` returns NULL or the sentence that says why not; a fact that passes it can be applied. Replay stops at the first
# record that is malformed or refused, naming its offset; what came before it is applied.

cdef const char* refuse_placed(Tables* t, uint32_t task, uint32_t node) noexcept nogil:
    if t.tasks[task].state != QUEUED_:
        return "only a queued task can be placed"
    if node >= t.nodes_used or not t.nodes[node].is_present:
        return "the node is not there"
    if t.tasks[task].flags & CLAIMING_:
        if t.allocations[t.tasks[task].place].node != node:
            return "its claim is on another node"
        if t.allocations[t.tasks[task].place].victims > 0:
            return "its claim waits for victims"
        return NULL
    if has_base(&t.nodes[node], &t.shapes[t.tasks[task].shape]):
        return NULL
    return "the node has no room"


cdef const char* refuse_started(Tables* t, uint32_t task, uint32_t attempt) noexcept nogil:
    if t.tasks[task].attempt != attempt:
        return "this is not its current attempt"
    if not is_live(&t.tasks[task]):
        return "only a placed task can start"
    return NULL


cdef const char* refuse_live(Tables* t, uint32_t task) noexcept nogil:
    if is_live(&t.tasks[task]):
        return NULL
    return "it has no live attempt"


cdef const char* refuse_stopping(Tables* t, uint32_t task) noexcept nogil:
    if t.tasks[task].state != PLACED_ and t.tasks[task].state != RUNNING_:
        return "only a placed or running task can be told to stop"
    return NULL


cdef const char* refuse_ended(Tables* t, uint32_t task, int state) noexcept nogil:
    if not SUCCEEDED_ <= state <= SKIPPED_:
        return "a task can only end in a terminal state"
    if is_terminal(&t.tasks[task]):
        return "it has ended already"
    return NULL


cdef const char* refuse_ready(Tables* t, uint32_t task) noexcept nogil:
    if t.tasks[task].state != BACKOFF_ and t.tasks[task].state != HELD_:
        return "only a task in backoff or held comes back"
    return NULL


cdef const char* refuse_held(Tables* t, uint32_t task, int flags) noexcept nogil:
    if not flags & HELD_FLAGS or flags & ~HELD_FLAGS:
        return "a task is held by HELD_* flags"
    if not QUEUED_ <= t.tasks[task].state <= BACKOFF_:
        return "only a waiting task can be held"
    return NULL


cdef const char* refuse_claimed(Tables* t, uint32_t task, uint32_t node) noexcept nogil:
    if not is_waiting(&t.tasks[task]):
        return "only a waiting task can claim"
    if node >= t.nodes_used or not t.nodes[node].is_present:
        return "the node is not there"
    return NULL


cdef const char* refuse_unclaimed(Tables* t, uint32_t task) noexcept nogil:
    if t.tasks[task].flags & CLAIMING_:
        return NULL
    return "it has no claim"


cdef const char* refuse_forgotten(Tables* t, uint32_t task) noexcept nogil:
    if is_terminal(&t.tasks[task]):
        return NULL
    return "only a terminal task can be forgotten"


# ---------------------------------------------------------------- facts as tuples

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


def split_facts(bytes facts):
    """See `_core.pyi`."""
    return facts_list(facts, 0, len(facts))


# ---------------------------------------------------------------- replay

cdef int read_pieces(const uint8_t* at, int count, uint32_t* pieces) noexcept nogil:
    cdef int piece
    for piece in range(count):
        pieces[piece] = piece_of(at[3 * piece], get16(at + 3 * piece + 1))
    return count


cdef const char* refuse_pieces(Tables* t, uint32_t task, uint32_t node, uint32_t* pieces, int count, bint with_room) noexcept nogil:
    """Different devices that the node has, as the shape asks for them; `with_room`: free now."""
    cdef ShapeRecord* shape = &t.shapes[t.tasks[task].shape]
    cdef DeviceRecord* device
    cdef AskRecord* ask
    cdef uint64_t seen = 0
    cdef int at
    if count != shape.device_count:
        return "it asked for another number of devices"
    for at in range(count):
        if (pieces[at] & 0xFF) >= t.nodes[node].device_count or (seen >> (pieces[at] & 0xFF)) & 1:
            return "the node does not have that device, or it is named twice"
        seen |= <uint64_t> 1 << (pieces[at] & 0xFF)
        device = &t.devices[t.nodes[node].device_first + (pieces[at] & 0xFF)]
        ask = ask_of(shape, device.kind)
        if ask == NULL or ((pieces[at] >> 8) != 1000 and (pieces[at] >> 8) != ask.part_milli):
            return "it did not ask for that share of that kind"
        if with_room and (device.share_free < <int> (pieces[at] >> 8) or (
                device.memory_bytes >= 0 and device.memory_free < piece_memory(device, shape, pieces[at]))):
            return "the device has no room"
    return NULL


cdef const char* refuse_victims(Tables* t, uint32_t task, const uint8_t* at, int count) noexcept nogil:
    cdef int one, other
    cdef uint32_t victim
    if count == 0:
        return "a claim needs victims"
    for one in range(count):
        victim = get32(at + 4 * one)
        if victim >= t.tasks_used or not may_stop(t, victim, qos_of(&t.tasks[task])):
            return "a victim may not be stopped for it"
        for other in range(one):
            if get32(at + 4 * other) == victim:
                return "a victim is named twice"
    return NULL


cdef int replay_task(Tables* t, const uint8_t* at, const char** why) except -1 nogil:
    """One record about a task, neither TURN nor WORDS."""
    cdef int code = at[0]
    cdef uint32_t task = get32(at + 1)
    cdef uint32_t pieces[256]
    cdef uint32_t claim
    cdef const uint8_t* victims
    why[0] = NULL
    if task >= t.tasks_used or t.tasks[task].state == FREE_:
        why[0] = "there is no such task"
        return 0
    if code == FACT_PLACED:
        read_pieces(at + 13, at[12], pieces)
        why[0] = refuse_placed(t, task, get32(at + 7))
        if why[0] == NULL and get16(at + 5) != t.tasks[task].attempt + 1:
            why[0] = "this is not its next attempt"
        if why[0] == NULL:
            why[0] = refuse_pieces(t, task, get32(at + 7), pieces, at[12], not t.tasks[task].flags & CLAIMING_)
        if why[0] == NULL:
            apply_placed(t, task, get32(at + 7), at[11], pieces, at[12])
    elif code == FACT_STARTED:
        why[0] = refuse_started(t, task, get16(at + 5))
        if why[0] == NULL:
            apply_started(t, task)
    elif code == FACT_STOPPING:
        why[0] = refuse_stopping(t, task)
        if why[0] == NULL:
            apply_stopping(t, task)
    elif code == FACT_ENDED:
        why[0] = refuse_ended(t, task, at[7])
        if why[0] == NULL:
            apply_ended(t, task, at[7], &claim)
    elif code == FACT_REQUEUED:
        why[0] = refuse_live(t, task)
        if why[0] == NULL:
            apply_requeued(t, task, at[8], &claim)
    elif code == FACT_BACKED_OFF:
        why[0] = refuse_live(t, task)
        if why[0] == NULL:
            apply_backed_off(t, task, &claim)
    elif code == FACT_READY:
        why[0] = refuse_ready(t, task)
        if why[0] == NULL:
            apply_ready(t, task)
    elif code == FACT_HELD:
        why[0] = refuse_held(t, task, at[5])
        if why[0] == NULL:
            apply_held(t, task, at[5])
    elif code == FACT_CLAIMED:
        victims = at + 21 + 3 * at[18]
        read_pieces(at + 19, at[18], pieces)
        why[0] = refuse_claimed(t, task, get32(at + 5))
        if why[0] == NULL:
            why[0] = refuse_pieces(t, task, get32(at + 5), pieces, at[18], False)
        if why[0] == NULL:
            why[0] = refuse_victims(t, task, victims, get16(victims - 2))
        if why[0] == NULL:
            apply_claimed(t, task, get32(at + 5), at[9], get64(at + 10), pieces, at[18], victims, get16(victims - 2))
    elif code == FACT_UNCLAIMED:
        why[0] = refuse_unclaimed(t, task)
        if why[0] == NULL:
            apply_unclaimed(t, task)
    elif code == FACT_PRIORITISED:
        apply_prioritised(t, task, <int16_t> get16(at + 5))
    else:
        why[0] = refuse_forgotten(t, task)
        if why[0] == NULL:
            apply_forgotten(t, task)
    return 0
