# Does a shape fit on a node, on which devices, and what holding them means in free amounts.
#
# Promises: exact. `pick` finds devices whenever some choice exists: whole devices need W wholly free ones, parts go to P different
# other devices, partly used ones first; a free device can do whatever a partly used one can, so taking the W first never hurts.
# Order of choice: a wished island before all else; best model; then for whole devices together (see island); for parts one that is not
# crowded (see steering), the preset's choice (part_key; by default the partly used device with the smallest sufficient rest), and a device
# that nobody uses yet from the island that
# has the fewest of them; then lowest index.
# A piece is device index | share_milli << 8; share 1000 means a whole device, and only that.

cdef inline uint32_t piece_of(uint32_t device, uint32_t share_milli) noexcept nogil:
    return device | (share_milli << 8)


cdef inline AskRecord* ask_of(ShapeRecord* shape, uint8_t kind) noexcept nogil:
    cdef int ask
    for ask in range(shape.ask_count):
        if shape.asks[ask].kind == kind:
            return &shape.asks[ask]
    return NULL


cdef inline bint is_right(DeviceRecord* device, AskRecord* ask) noexcept nogil:
    """Kind, health, model and size of memory: what does not depend on who is on it."""
    return (device.kind == ask.kind and device.usable
            and (ask.models == 0 or (device.model >= 0 and (ask.models >> device.model) & 1))
            and (device.memory_bytes < 0 or device.memory_bytes >= ask.memory_bytes))


cdef inline bint has_room(DeviceRecord* device, AskRecord* ask) noexcept nogil:
    """A part fits beside the others on a right device."""
    return device.share_free >= ask.part_milli and (device.memory_bytes < 0 or device.memory_free >= ask.memory_bytes)


cdef inline int rank_of(Tables* t, DeviceRecord* device, AskRecord* ask) noexcept nogil:
    """Position in the model list; where a task has none, among the models that its shape likes."""
    if ask.model_count > 1:
        return ask.rank[device.model]
    return t.liked[device.model] if t.liked != NULL and device.model >= 0 else 0


cdef int pick_ask(Tables* t, DeviceRecord* devices, int count, AskRecord* ask, int by, int island, int wished, bint is_trial,
                  uint64_t* taken, uint32_t* pieces, int* worst) noexcept nogil:
    """Devices for one ask, of one island if `by` is set. Returns how many, or -1; `worst` = worst position in the model list.
    `is_trial`: of devices that differ only in where they are, any."""
    cdef int at, chosen, found = 0, right_count = 0
    cdef int64_t key, best_key
    cdef int groups = -1       # -1: no right device is in any
    cdef uint64_t right = 0, partly = 0, best, alike
    cdef Islands view
    cdef DeviceRecord* device
    for at in range(count):
        device = &devices[at]
        if (taken[0] >> at) & 1 or not is_right(device, ask) or (by and island_of(device, by) != island):
            continue
        if device.share_free == 1000:
            right |= <uint64_t> 1 << at
            right_count += 1
            groups &= device.numa & device.nvlink & device.pcie
        elif ask.parts and has_room(device, ask):
            partly |= <uint64_t> 1 << at
    if right_count < ask.whole:
        return -1
    if groups != -1 and is_trial and are_alike(devices, right):
        groups = -1
    view.levels = 0
    if ask.whole > 0:
        if groups != -1 and right_count > ask.whole:
            view_islands(devices, free_devices(devices, count, ask.kind, taken[0]), wished, &view)
        best = take_best(t, devices, ask, &view, right, worst)
        right &= ~best
        taken[0] |= best
        while best != 0:
            pieces[found] = piece_of(lowest(best), 1000)
            best &= best - 1
            found += 1
    for _ in range(ask.parts):
        alike = 0
        best_key = 0
        best = right | partly
        while best != 0:
            at = lowest(best)
            key = (<int64_t> rank_of(t, &devices[at], ask) * 2 + is_crowded(t, &devices[at])) * PART_KEYS + part_key(t, &devices[at], ask)
            if alike == 0 or key < best_key:
                alike = best & (~best + 1)
                best_key = key
            elif key == best_key:
                alike |= best & (~best + 1)
            best &= best - 1
        if alike == 0:
            return -1
        chosen = lowest(alike)
        if groups != -1 and alike & (alike - 1) and alike & ~right == 0 and t.policy != POLICY_FIRST_FIT_ and t.policy != POLICY_RANDOM_:
            view_islands(devices, free_devices(devices, count, ask.kind, taken[0]), wished, &view)
            chosen = lowest(take_together(&view, alike, 1))
        right &= ~(<uint64_t> 1 << chosen)
        partly &= ~(<uint64_t> 1 << chosen)
        taken[0] |= <uint64_t> 1 << chosen
        pieces[found] = piece_of(chosen, ask.part_milli)
        found += 1
        worst[0] = max(worst[0], rank_of(t, &devices[chosen], ask))
    return found


cdef uint64_t free_devices(DeviceRecord* devices, int count, int kind, uint64_t taken) noexcept nogil:
    """All of the kind that nobody uses, right or not: what their islands have left."""
    cdef uint64_t free = 0
    cdef int at
    for at in range(count):
        if devices[at].kind == kind and devices[at].share_free == 1000 and devices[at].usable and not (taken >> at) & 1:
            free |= <uint64_t> 1 << at
    return free


cdef inline bint are_alike(DeviceRecord* devices, uint64_t free) noexcept nogil:
    """They differ in nothing but where they are."""
    cdef DeviceRecord* first = &devices[lowest(free)]
    while free != 0:
        if devices[lowest(free)].model != first.model or devices[lowest(free)].memory_bytes != first.memory_bytes:
            return False
        free &= free - 1
    return True


cdef uint64_t take_best(Tables* t, DeviceRecord* devices, AskRecord* ask, Islands* view, uint64_t right, int* worst) noexcept nogil:
    """The whole devices: as many of the best model as there are, then of the next; the last ones together."""
    cdef uint64_t taken = 0, alike, left
    cdef int needed = ask.whole, rank, next_rank = 0
    if ask.model_count <= 1 and t.liked == NULL:
        return take_together(view, right, needed)
    while needed > 0:
        rank = next_rank
        next_rank = 64
        alike = 0
        left = right
        while left != 0:
            if rank_of(t, &devices[lowest(left)], ask) == rank:
                alike |= left & (~left + 1)
            elif rank_of(t, &devices[lowest(left)], ask) > rank:
                next_rank = min(next_rank, rank_of(t, &devices[lowest(left)], ask))
            left &= left - 1
        if popcount(alike) > needed:
            alike = take_together(view, alike, needed)
        if alike != 0:
            worst[0] = max(worst[0], rank)
        needed -= popcount(alike)
        taken |= alike
    return taken


cdef int pick_all(Tables* t, DeviceRecord* devices, int count, ShapeRecord* shape, int by, int island, bint is_trial, uint32_t* pieces,
                  int* worst) noexcept nogil:
    cdef uint64_t taken = 0
    cdef int found = 0
    cdef int ask, more
    worst[0] = 0
    for ask in range(shape.ask_count):
        more = pick_ask(t, devices, count, &shape.asks[ask], by, island, shape.same, is_trial, &taken, pieces + found, worst)
        if more < 0:
            return -1
        found += more
    return found


cdef inline int pick(Tables* t, DeviceRecord* devices, int count, ShapeRecord* shape, uint32_t* pieces, int* worst) noexcept nogil:
    """Devices for the whole shape: how many (0 if it asks for none), or -1 if it does not fit. `pieces` has room for MAX_PIECES."""
    return pick_pieces(t, devices, count, shape, False, pieces, worst)


cdef int pick_pieces(Tables* t, DeviceRecord* devices, int count, ShapeRecord* shape, bint is_trial, uint32_t* pieces, int* worst) noexcept nogil:
    """`is_trial`: to know what a placement is worth, which is the same for devices that differ only in where they are on the board."""
    cdef int found
    worst[0] = 0
    if shape.ask_count == 0:
        return 0
    if shape.device_count > count:
        return -1
    if t.kept_by != 0:
        return pick_all(t, devices, count, shape, t.kept_by, t.kept_island, False, pieces, worst)
    if shape.same != 0 and (not shape.is_wish or shape.device_count > 1):
        found = pick_island(t, devices, count, shape, pieces, worst)
        if found >= 0 or not shape.is_wish:
            return found
    t.liked = NULL if is_trial else liked_models(t, shape)
    found = pick_all(t, devices, count, shape, 0, -1, is_trial and not shape.is_wish, pieces, worst)
    t.liked = NULL
    return found


cdef inline uint8_t* liked_models(Tables* t, ShapeRecord* shape) noexcept nogil:
    """NULL: none is liked better, or the shape is not one of the table's."""
    if shape < t.shapes or shape >= t.shapes + t.blends_used or not t.blends[shape - t.shapes].has_likes:
        return NULL
    return t.blends[shape - t.shapes].liked


cdef int pick_island(Tables* t, DeviceRecord* devices, int count, ShapeRecord* shape, uint32_t* pieces, int* worst) noexcept nogil:
    """All on one island of the level that the shape names, or -1: the best models, then the fewest other levels split, then the island
    with the fewest free devices."""
    cdef uint32_t trial[MAX_PIECES]
    cdef int at, other, found, rank, free_count, split, island
    cdef int best = -1, best_rank = 0, best_free = 0, best_split = 0
    for at in range(count):
        island = island_of(&devices[at], shape.same)
        if island < 0:
            continue
        free_count = 0
        for other in range(count):
            if island_of(&devices[other], shape.same) == island:
                if other < at:
                    break
                if devices[other].usable:
                    free_count += devices[other].share_free == 1000
        else:
            found = pick_all(t, devices, count, shape, shape.same, island, False, trial, &rank)
            if found < 0:
                continue
            split = split_of(devices, trial, found)
            if best < 0 or rank < best_rank or (rank == best_rank and (
                    split < best_split or (split == best_split and free_count < best_free))):
                best = found
                best_rank = rank
                best_split = split
                best_free = free_count
                memcpy(pieces, trial, found * sizeof(uint32_t))
    worst[0] = best_rank
    return best


cdef bint suffices(DeviceRecord* devices, int count, ShapeRecord* shape) noexcept nogil:
    """pick() would find devices; for shapes that need not be on one island."""
    cdef AskRecord* ask
    cdef int which, at, free_count, room
    for which in range(shape.ask_count):
        ask = &shape.asks[which]
        free_count = 0
        room = 0
        for at in range(count):
            if is_right(&devices[at], ask):
                if devices[at].share_free == 1000:
                    free_count += 1
                elif ask.parts and has_room(&devices[at], ask):
                    room += 1
        if free_count < ask.whole or free_count - ask.whole + room < ask.parts:
            return False
    return True


cdef inline uint8_t level_of(ShapeRecord* shape, uint32_t node) noexcept nogil:
    return shape.levels[node] if node < shape.levels_size else 1


cdef inline bint has_base(NodeRecord* node, ShapeRecord* shape) noexcept nogil:
    return cpu_room(node, shape) >= shape.cpu_milli and memory_room(node, shape) >= shape.memory_bytes


cdef int fit(Tables* t, uint32_t slot, ShapeRecord* shape, uint32_t* pieces, int* worst) noexcept nogil:
    """Devices for the shape on this node now, or -1."""
    cdef NodeRecord* node = &t.nodes[slot]
    if not node.is_open or not has_base(node, shape) or level_of(shape, slot) == 0:
        return -1
    if is_over_limit(t, slot, shape):
        return -1
    if t.policy == POLICY_FGD_ and shape.ask_count == 1 and shape.device_count == 1 and shape.asks[0].parts == 1:
        return fgd_pick(t, slot, shape, pieces, worst)
    return pick(t, t.devices + node.device_first, node.device_count, shape, pieces, worst)


# ---------------------------------------------------------------- holding

cdef void hold_room(Tables* t, uint32_t slot, ShapeRecord* shape, uint32_t* pieces, int count, int sign) noexcept nogil:
    """sign 1: the amounts leave what is free on the node and its devices; -1: they come back."""
    cdef NodeRecord* node = &t.nodes[slot]
    cdef DeviceRecord* device
    cdef int at
    node.cpu_free -= sign * shape.cpu_milli
    node.memory_free -= sign * shape.memory_bytes
    if shape.is_soft:
        node.cpu_soft += sign * shape.cpu_milli
        node.memory_soft += sign * shape.memory_bytes
    for at in range(count):
        device = t.devices + node.device_first + (pieces[at] & 0xFF)
        device.share_free -= <int16_t> (sign * <int> (pieces[at] >> 8))
        device.sharers += <uint16_t> (sign * <int> ((pieces[at] >> 8) < 1000))
        device.memory_free -= sign * piece_memory(device, shape, pieces[at])


cdef inline int64_t piece_memory(DeviceRecord* device, ShapeRecord* shape, uint32_t piece) noexcept nogil:
    """A whole device takes all of its memory; where the size is unknown nothing is counted."""
    if device.memory_bytes < 0:
        return 0
    return device.memory_bytes if (piece >> 8) == 1000 else ask_of(shape, device.kind).memory_bytes


cdef inline void hold_live(Tables* t, ShapeRecord* shape, int sign) noexcept nogil:
    """In the totals of what live attempts have."""
    cdef int ask
    t.live[0] += sign * shape.cpu_milli
    t.live[1] += sign * shape.memory_bytes
    for ask in range(shape.ask_count):
        t.live[2 + shape.asks[ask].kind] += sign * ask_milli(&shape.asks[ask])


cdef void hold_queue(Tables* t, uint32_t queue, ShapeRecord* shape, int sign) noexcept nogil:
    cdef int ask
    while queue != NONE_:
        t.queues[queue].used[0] += sign * shape.cpu_milli
        t.queues[queue].used[1] += sign * shape.memory_bytes
        for ask in range(shape.ask_count):
            t.queues[queue].used[2 + shape.asks[ask].kind] += sign * ask_milli(&shape.asks[ask])
        t.queues[queue].key_stale = True
        queue = t.queues[queue].parent


cdef inline int64_t ask_milli(AskRecord* ask) noexcept nogil:
    return <int64_t> ask.whole * 1000 + <int64_t> ask.parts * ask.part_milli


cdef bint within_limits(Tables* t, uint32_t queue, ShapeRecord* shape) noexcept nogil:
    """One more of this shape leaves the queue and all above it within their limits."""
    cdef QueueRecord* record
    cdef int ask, resource
    if not t.queues[queue].has_limit:
        return True
    while queue != NONE_:
        record = &t.queues[queue]
        if record.limit[0] >= 0 and record.used[0] + shape.cpu_milli > record.limit[0]:
            return False
        if record.limit[1] >= 0 and record.used[1] + shape.memory_bytes > record.limit[1]:
            return False
        for ask in range(shape.ask_count):
            resource = 2 + shape.asks[ask].kind
            if record.limit[resource] >= 0 and record.used[resource] + ask_milli(&shape.asks[ask]) > record.limit[resource]:
                return False
        queue = record.parent
    return True
