# Why a shape fits where, and how much of what is free nobody can use. Questions: nothing is changed.

cdef void empty_devices(DeviceRecord* devices, int count, DeviceRecord* empty, bint usable) noexcept nogil:
    """The node's devices with nobody on them; `usable`: all in order, too."""
    cdef int at
    memcpy(empty, devices, count * sizeof(DeviceRecord))
    for at in range(count):
        empty[at].share_free = 1000
        empty[at].memory_free = max(empty[at].memory_bytes, <int64_t> 0)
        if usable:
            empty[at].usable = True


cdef int reason_against(Tables* t, uint32_t slot, ShapeRecord* shape) noexcept nogil:
    """Index into VERDICTS of the first reason that rules the node out now, or 9: it fits."""
    cdef uint32_t pieces[MAX_PIECES]
    cdef int worst, ask
    cdef NodeRecord* node = &t.nodes[slot]
    cdef DeviceRecord* devices = t.devices + node.device_first
    cdef ShapeRecord loose = shape[0]
    if not node.is_open:
        return 0
    if level_of(shape, slot) == 0:
        return 1
    if pick(t, devices, node.device_count, shape, pieces, &worst) < 0:
        for ask in range(loose.ask_count):
            if not has_model(devices, node.device_count, &loose.asks[ask]):
                return 2
        loose.same = 0
        if pick(t, devices, node.device_count, &loose, pieces, &worst) >= 0:
            return 5
        for ask in range(loose.ask_count):
            loose.asks[ask].memory_bytes = 0
        return 4 if pick(t, devices, node.device_count, &loose, pieces, &worst) >= 0 else 3
    if cpu_room(node, shape) < shape.cpu_milli:
        return 6
    if memory_room(node, shape) < shape.memory_bytes:
        return 7
    return 8 if is_over_limit(t, slot, shape) else 9


cdef bint has_model(DeviceRecord* devices, int count, AskRecord* ask) noexcept nogil:
    """Whether devices of the kind are there at all and none is of a wanted model: then the model is the reason."""
    cdef int at
    cdef bint is_there = False
    for at in range(count):
        if devices[at].kind == ask.kind:
            is_there = True
            if ask.models == 0 or (devices[at].model >= 0 and (ask.models >> devices[at].model) & 1):
                return True
    return not is_there


cdef bint could_ever(Tables* t, uint32_t slot, ShapeRecord* shape) noexcept nogil:
    cdef DeviceRecord empty[64]
    cdef uint32_t pieces[MAX_PIECES]
    cdef int worst
    cdef NodeRecord* node = &t.nodes[slot]
    if level_of(shape, slot) == 0 or node.cpu_milli < shape.cpu_milli or node.memory_bytes < shape.memory_bytes:
        return False
    empty_devices(t.devices + node.device_first, node.device_count, empty, True)
    return pick(t, empty, node.device_count, shape, pieces, &worst) >= 0


VERDICTS = ("closed", "words", "model", "devices", "device_memory", "topology", "cpu", "memory", "stranding", "fits")


cdef dict judge(Tables* t, ShapeRecord* shape):
    cdef int64_t counted[10]
    cdef int64_t ever = 0
    cdef uint32_t slot
    memset(counted, 0, sizeof(counted))
    with nogil:
        for slot in range(t.nodes_used):
            if t.nodes[slot].is_present:
                counted[reason_against(t, slot, shape)] += 1
                ever += could_ever(t, slot, shape)
    verdict = {name: counted[at] for at, name in enumerate(VERDICTS)}
    verdict["ever"] = ever
    return verdict


# ---------------------------------------------------------------- gangs

cdef uint32_t most_seats(Tables* t, Slots* members, uint32_t least, int column) except? 0xFFFFFFFF nogil:
    """So many of these find a seat now, in the domain that has most for them; if not all do, `least` may by another way."""
    cdef uint32_t most = seats_for(t, members, members.size, column)
    if most < least < members.size:
        most = max(most, seats_for(t, members, least, column))
    return most


cdef uint32_t seats_for(Tables* t, Slots* members, uint32_t needed, int column) except? 0xFFFFFFFF nogil:
    cdef Head head
    cdef Slots seen
    cdef uint32_t node, most = 0
    memset(&head, 0, sizeof(Head))
    head.members = members[0]
    head.needed = needed
    head.column = column
    if column < 0:
        return seat_members(t, &head, -1)
    memset(&seen, 0, sizeof(Slots))
    for node in range(t.nodes_used):
        head.value = node if column == DOMAINS else t.nodes[node].domain[column]
        if t.nodes[node].is_open and head.value >= 0 and not was_seen(&seen, <uint32_t> head.value):
            push(&seen, <uint32_t> head.value)
            most = max(most, seat_members(t, &head, head.value))
    drop_slots(&seen)
    return most


cdef void empty_cluster(Tables* t, uint8_t* was, int sign) noexcept nogil:
    """Nobody anywhere, every node open, every device in order (1), or as before (-1): `was` has room for nodes and devices."""
    cdef uint32_t at
    for at in range(t.allocations_used):
        if t.allocations[at].is_live:
            lift_task(t, t.allocations[at].task, sign)
    for at in range(t.nodes_used):
        if sign > 0:
            was[at] = t.nodes[at].is_open
        t.nodes[at].is_open = t.nodes[at].is_present if sign > 0 else was[at]
    for at in range(t.devices_used):
        if sign > 0:
            was[t.nodes_used + at] = t.devices[at].usable
        t.devices[at].usable = 1 if sign > 0 else was[t.nodes_used + at]


cdef tuple room_for_gang(Tables* t, GangRecord* gang):
    """(waiting members that find a seat now, members that would if nobody else was anywhere)."""
    cdef Slots waiting, all_
    cdef uint32_t at, now, ever
    cdef uint32_t least = gang.min_size - min(gang.succeeded, gang.min_size)
    cdef uint8_t* was = <uint8_t*> calloc(<size_t> t.nodes_used + t.devices_used + 1, 1)
    if was == NULL:
        no_memory()
    memset(&waiting, 0, sizeof(Slots))
    memset(&all_, 0, sizeof(Slots))
    gather(t, gang, &waiting)
    for at in range(gang.members.size):
        if not is_terminal(&t.tasks[gang.members.at[at]]):
            push(&all_, gang.members.at[at])
    t.search_left = SEARCH_BUDGET
    now = most_seats(t, &waiting, least, gang.column)
    empty_cluster(t, was, 1)
    ever = most_seats(t, &all_, least, gang.column)
    empty_cluster(t, was, -1)
    free(was)
    drop_slots(&waiting)
    drop_slots(&all_)
    return now, ever


# ---------------------------------------------------------------- fragmentation

cdef void measure_fragment(Tables* t, int kind, int64_t* fragment_milli, int64_t* free_milli) noexcept nogil:
    """Sum over open nodes of the mix's weighted unusable share of this kind, by current counts of all shapes of the mix that ask for it."""
    cdef uint32_t slot, at
    cdef int device
    cdef int64_t weight = 0, lost = 0
    cdef MixView view
    cdef AskRecord* ask
    cdef ShapeRecord* shape
    cdef DeviceRecord* devices
    cdef NodeRecord* node
    for at in range(t.mix_size):
        if ask_of(&t.shapes[t.mix[at]], <uint8_t> kind) != NULL:
            weight += t.mix_weight[at]
    for slot in range(t.nodes_used):
        node = &t.nodes[slot]
        if not node.is_open:
            continue
        devices = t.devices + node.device_first
        for device in range(node.device_count):
            if devices[device].kind == kind and devices[device].usable:
                free_milli[0] += max(<int> devices[device].share_free, 0)
        for at in range(t.mix_size):
            shape = &t.shapes[t.mix[at]]
            ask = ask_of(shape, <uint8_t> kind)
            if ask != NULL:
                view_mix(devices, node.device_count, ask, &view)
                lost += t.mix_weight[at] * lost_of(&view, ask, has_base(node, shape))
    fragment_milli[0] = lost // weight if weight > 0 else 0
