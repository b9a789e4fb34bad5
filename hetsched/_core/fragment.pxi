# What is free and of no use: the fragment of a node under the mix of what is asked (Weng et al., Beware of Fragmentation, USENIX ATC
# 2023, section 4).
#
# M(node) = sum over the mix of weight x (free share of the asked kinds that the shape cannot use there) / total weight, in milli. A shape
# can use a device that is right for it and has room for its part, or is wholly free; none at all where it does not fit as a whole.
# Score of a placement = what it adds to M, in steps of 40 milli from -2560 to 2560, least best: coarse on purpose (CORE-NOTES: exact
# scores lose a point of allocation). The mix: the 32 device shapes asked most often, placed or not.
#
# Promises: integers; the same whenever it is computed between two takings of the mix. Shapes with equal asks share a class: per class
# the sums over devices are kept, a placement is a difference to them, and per shape only cpu and memory are compared.

cdef int64_t unusable(DeviceRecord* devices, int count, bint base, ShapeRecord* shape) noexcept nogil:
    """Free share of the kinds the shape asks for that it cannot use on this node, in milli. `base`: cpu and memory suffice."""
    cdef int64_t lost = 0
    cdef int ask
    cdef MixView view
    for ask in range(shape.ask_count):
        view_mix(devices, count, &shape.asks[ask], &view)
        lost += lost_of(&view, &shape.asks[ask], base)
    return lost


cdef struct MixView:
    # What one shape of the mix (with one ask) makes of one node: sums over its devices, so that a change of one device is a difference.
    uint64_t right             # devices that are right for it, a bit each
    int64_t free_all           # milli, of its kind
    int64_t usable             # milli, of right devices that can hold a part or a whole
    int whole                  # right devices that are wholly free
    int room                   # right devices, partly used, with room for a part


cdef inline bint holds_part(AskRecord* ask, DeviceRecord* device, int64_t free_milli, int64_t free_bytes) noexcept nogil:
    return ask.parts and free_milli >= ask.part_milli and (device.memory_bytes < 0 or free_bytes >= ask.memory_bytes)


cdef void view_mix(DeviceRecord* devices, int count, AskRecord* ask, MixView* view) noexcept nogil:
    cdef int at
    memset(view, 0, sizeof(MixView))
    for at in range(count):
        if devices[at].kind != ask.kind or not devices[at].usable or devices[at].share_free <= 0:
            continue
        view.free_all += devices[at].share_free
        if not is_right(&devices[at], ask):
            continue
        view.right |= <uint64_t> 1 << at
        if devices[at].share_free == 1000:
            view.whole += 1
            view.usable += 1000
        elif holds_part(ask, &devices[at], devices[at].share_free, devices[at].memory_free):
            view.room += 1
            view.usable += devices[at].share_free


cdef inline int64_t lost_of(MixView* view, AskRecord* ask, bint base) noexcept nogil:
    """Free share that the ask cannot use. `base`: cpu and memory suffice."""
    if base and view.whole >= ask.whole and view.room + view.whole - ask.whole >= ask.parts:
        return view.free_all - view.usable
    return view.free_all


cdef void fragment_before(Tables* t, NodeRecord* node, NodeView* view) noexcept nogil:
    cdef DeviceRecord* devices = t.devices + node.device_first
    cdef ShapeRecord* shape
    cdef uint32_t at
    cdef bint base
    for at in range(t.mix_classes):
        view_mix(devices, node.device_count, &t.shapes[t.mix_first[at]].asks[0], &view.mix[at])
    view.fragment = 0
    view.has_fragment = True
    for at in range(t.mix_size):
        shape = &t.shapes[t.mix[at]]
        base = has_base(node, shape)
        if shape.ask_count == 1:
            view.fragment += t.mix_weight[at] * lost_of(&view.mix[t.mix_class[at]], &shape.asks[0], base)
        else:
            view.fragment += t.mix_weight[at] * unusable(devices, node.device_count, base, shape)


cdef MixView mix_after(DeviceRecord* devices, MixView after, AskRecord* ask, ShapeRecord* placed, uint32_t* pieces, int count) noexcept nogil:
    """A class of the mix once these pieces are taken: its view with those devices changed."""
    cdef DeviceRecord* device
    cdef int piece, share
    cdef int64_t left
    for piece in range(count):
        device = &devices[pieces[piece] & 0xFF]
        if device.kind != ask.kind:
            continue
        share = pieces[piece] >> 8
        left = device.share_free - share
        after.free_all -= share
        if not (after.right >> (pieces[piece] & 0xFF)) & 1:
            continue
        if device.share_free == 1000:
            after.whole -= 1
            after.usable -= 1000
        elif holds_part(ask, device, device.share_free, device.memory_free):
            after.room -= 1
            after.usable -= device.share_free
        if left > 0 and holds_part(ask, device, left, device.memory_free - piece_memory(device, placed, pieces[piece])):
            after.room += 1
            after.usable += left
    return after


cdef void take_pieces(DeviceRecord* copy, DeviceRecord* devices, int size, ShapeRecord* placed, uint32_t* pieces, int count) noexcept nogil:
    """The node's devices with these pieces taken."""
    cdef int piece
    cdef DeviceRecord* device
    memcpy(copy, devices, size * sizeof(DeviceRecord))
    for piece in range(count):
        device = &copy[pieces[piece] & 0xFF]
        device.memory_free -= piece_memory(device, placed, pieces[piece])
        device.share_free -= <int16_t> (pieces[piece] >> 8)


cdef void view_losses(Tables* t, NodeRecord* node, ShapeRecord* placed, NodeView* view, ClassView* shared) noexcept nogil:
    """What every class of the mix loses once the pieces of this class are taken: the same for all shapes that ask for them."""
    cdef DeviceRecord copy[64]
    cdef DeviceRecord* devices = t.devices + node.device_first
    cdef ShapeRecord* wanted
    cdef MixView after
    cdef bint is_copied = False
    cdef uint32_t at
    for at in range(t.mix_classes):
        wanted = &t.shapes[t.mix_first[at]]
        if wanted.ask_count == 1:
            after = mix_after(devices, view.mix[at], &wanted.asks[0], placed, shared.pieces, shared.count)
            shared.lost[at] = <int32_t> lost_of(&after, &wanted.asks[0], True)
            shared.lost_all[at] = <int32_t> after.free_all
            continue
        if not is_copied:
            take_pieces(copy, devices, node.device_count, placed, shared.pieces, shared.count)
            is_copied = True
        shared.lost[at] = <int32_t> unusable(copy, node.device_count, True, wanted)
        shared.lost_all[at] = <int32_t> unusable(copy, node.device_count, False, wanted)
    shared.has_lost = True


cdef int fragment_score(Tables* t, uint32_t slot, ShapeRecord* shape, NodeView* view, ClassView* shared) noexcept nogil:
    """0..127, best 127."""
    cdef NodeRecord* node = &t.nodes[slot]
    cdef int64_t cpu_left = node.cpu_free - shape.cpu_milli
    cdef int64_t memory_left = node.memory_free - shape.memory_bytes
    cdef int64_t after = 0, added
    cdef uint32_t at
    cdef bint base
    if t.mix_total == 0 or node.device_count == 0:
        return 63
    if not view.has_fragment:
        fragment_before(t, node, view)
    if not shared.has_lost:
        view_losses(t, node, shape, view, shared)
    for at in range(t.mix_size):
        base = cpu_left >= t.mix_cpu[at] and memory_left >= t.mix_memory[at]
        after += t.mix_weight[at] * (shared.lost[t.mix_class[at]] if base else shared.lost_all[t.mix_class[at]])
    added = (after - view.fragment) // t.mix_total + 2560
    return 127 - <int> (max(<int64_t> 0, min(<int64_t> 5119, added)) // 40)


# ---------------------------------------------------------------- the mix

cdef int count_arrivals(Tables* t, uint32_t slot, uint32_t count) except -1 nogil:
    """So many more were asked; the mix is taken again after 64 device tasks, then each time the count grew by half, at most 8,192."""
    t.shapes[slot].popularity += count
    if t.shapes[slot].ask_count == 0:
        return 0
    t.asked += count
    t.mix_since += count
    if t.mix_since >= t.mix_every:
        take_mix(t)
        t.mix_every = min(8192, max(64, t.mix_total // 2))
    return 0


cdef int take_mix(Tables* t) except -1 nogil:
    """The most asked device shapes, most first, lowest slot first among equals; counts are halved once they pass a million in all."""
    cdef int64_t total = 0
    cdef uint32_t slot, at
    t.mix_size = 0
    t.mix_since = 0
    for slot in range(t.shapes_used):
        if t.shapes[slot].popularity == 0 or t.shapes[slot].ask_count == 0:
            continue
        total += t.shapes[slot].popularity
        at = t.mix_size
        if at == MIX_SHAPES:
            if t.mix_weight[at - 1] >= t.shapes[slot].popularity:
                continue
            at -= 1
        else:
            t.mix_size += 1
        while at > 0 and t.mix_weight[at - 1] < t.shapes[slot].popularity:
            t.mix[at] = t.mix[at - 1]
            t.mix_weight[at] = t.mix_weight[at - 1]
            at -= 1
        t.mix[at] = slot
        t.mix_weight[at] = t.shapes[slot].popularity
    t.mix_total = 0
    for at in range(t.mix_size):
        t.mix_total += t.mix_weight[at]
    index_mix(t)
    if total > 1000000:
        for slot in range(t.shapes_used):
            t.shapes[slot].popularity = (t.shapes[slot].popularity + 1) // 2
    if t.policy == POLICY_FGD_:
        take_typical(t)
    if t.policy == POLICY_FRAGMENT_ or t.policy == POLICY_FGD_ or t.blends_fragment:
        t.all_dirty = True
        t.changes += 1
    return 0


cdef void index_mix(Tables* t) noexcept nogil:
    """What the inner loop of the score reads, side by side; shapes of one class share their device sums."""
    cdef uint32_t at, known
    t.mix_classes = 0
    for at in range(t.mix_size):
        t.mix_cpu[at] = t.shapes[t.mix[at]].cpu_milli
        t.mix_memory[at] = t.shapes[t.mix[at]].memory_bytes
        known = 0
        while known < t.mix_classes and t.shapes[t.mix_first[known]].ask_class != t.shapes[t.mix[at]].ask_class:
            known += 1
        if known == t.mix_classes:
            t.mix_first[known] = t.mix[at]
            t.mix_classes += 1
        t.mix_class[at] = <uint8_t> known
    copy_mix(t)
