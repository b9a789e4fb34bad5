# The replay of one record.
#
# Promises: a record that is malformed or contradicts the tables is refused with a sentence and changes nothing; what came before it is
# applied. Nothing is decided here and nothing is written.

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
    if count == 0 and t.tasks[task].gang == NONE_:
        return "a claim needs victims"
    for one in range(count):
        victim = get32(at + 4 * one)
        if victim >= t.tasks_used or not (is_evictable(&t.tasks[victim]) or is_reclaimable(t, &t.tasks[victim])) or qos_of(&t.tasks[victim]) < qos_of(&t.tasks[task]):
            return "a victim may not be stopped for it"
        if t.allocations[t.tasks[victim].place].claim != NONE_:
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
    cdef uint32_t claim = NONE_
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
    t.ripe |= claim != NONE_   # settled by a fact to come, or by whoever goes on from here
    return 0
