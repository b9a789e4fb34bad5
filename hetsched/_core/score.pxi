# How good a node is for a shape, as a byte: 0 = does not fit, else the score + 1.
#
# Levels in lexicographic order, each coarse: the islands that a shape with a wish is spread over, position in the model list, level told
# by set_shape_node, room that need not be lent (where any is, see overcommit), nodes without devices for tasks without; what is left of the
# range goes to the preset, all of it if the shape has no such preferences.
# fragment: see fragment. pack / spread: mean free fraction of what the shape asks for (cpu, memory, each kind), after placing; least /
# most best. price: see price. first-fit, random: nothing. The other presets: see published. A shape with weights of its own is scored by
# them instead: see terms.
#
# Promises: depends on the node, the shape, the preset and the mix only, so it does not matter when it is computed.

cdef enum:
    LEAST_WASTE = 100          # thousandths of a device
    WASTEFUL = 1               # the byte of a node where a shape that may wait would leave a rest of no use
    SPREAD_STEPS = 4           # one island, two, three, more; only whether it is one where more models are told apart
    WISH_MODELS = 8            # positions of a model list that are told apart beside a wish: a byte is short


cdef struct NodeView:
    # One node while its leaves are computed.
    int64_t fragment           # M(node) x total weight, before anything is placed
    uint8_t has_fragment
    int16_t whole[16]          # by kind: usable devices wholly free, whatever their model
    int16_t top_share[16]      # by kind: the largest free share of a usable device, milli
    int32_t free_milli[16]     # by kind: free on usable devices
    int32_t devices[16]        # by kind: usable ones
    int kinds                  # kinds of usable devices
    uint8_t kind[16]           # which
    int64_t stranded           # price: tenths of a milli that missing CPU and memory cost as it is
    uint8_t has_stranded
    uint8_t is_short           # some device has less than nothing free, until victims have ended
    uint64_t per_cpu           # 1000 x 2^32 / cpu_milli
    uint64_t per_mebibyte      # 1000 x 2^32 / memory in MiB
    MixView mix[32]            # by class of the mix


cdef void view_node(Tables* t, uint32_t slot, NodeView* view) noexcept nogil:
    cdef NodeRecord* node = &t.nodes[slot]
    cdef DeviceRecord* device
    cdef uint32_t at
    t.views += 1
    view.has_fragment = False
    view.has_stranded = False
    view.is_short = False
    view.kinds = 0
    memset(view.whole, 0, sizeof(view.whole))
    memset(view.top_share, 0, sizeof(view.top_share))
    memset(view.free_milli, 0, sizeof(view.free_milli))
    memset(view.devices, 0, sizeof(view.devices))
    view.per_cpu = (<uint64_t> 1000 << 32) // <uint64_t> max(node.cpu_milli, <int64_t> 1)
    view.per_mebibyte = (<uint64_t> 1000 << 32) // <uint64_t> max(node.memory_bytes >> 20, <int64_t> 1)
    for at in range(node.device_first, node.device_first + node.device_count):
        device = &t.devices[at]
        if device.usable:
            if view.devices[device.kind] == 0:
                view.kind[view.kinds] = device.kind
                view.kinds += 1
            view.whole[device.kind] += device.share_free == 1000
            view.top_share[device.kind] = max(view.top_share[device.kind], device.share_free)
            view.free_milli[device.kind] += device.share_free
            view.devices[device.kind] += 1
            view.is_short |= device.share_free < 0 or device.memory_free < 0


# ---------------------------------------------------------------- pack, spread

cdef int free_devices_after(NodeView* view, ShapeRecord* shape) noexcept nogil:
    """Sum over the kinds asked of the mean free milli a device."""
    cdef int ask, total = 0
    for ask in range(shape.ask_count):
        total += <int> (view.free_milli[shape.asks[ask].kind] - ask_milli(&shape.asks[ask])) // max(1, view.devices[shape.asks[ask].kind])
    return total


cdef int free_after(NodeRecord* node, ShapeRecord* shape, NodeView* view, ClassView* shared) noexcept nogil:
    """Mean fraction free after placing, over what the shape asks for: 0..1000. What is left never exceeds the whole, so the products of
    the reciprocals stay below 1000 x 2^32."""
    cdef int total = shared.free_after
    cdef int terms = shape.ask_count
    if shape.cpu_milli > 0:
        total += <int> (<uint64_t> max(<int64_t> 0, node.cpu_free - shape.cpu_milli) * view.per_cpu >> 32)
        terms += 1
    if shape.memory_bytes > 0:
        total += <int> ((<uint64_t> max(<int64_t> 0, node.memory_free - shape.memory_bytes) >> 20) * view.per_mebibyte >> 32)
        terms += 1
    return max(0, min(1000, total // terms)) if terms > 0 else 500


# ---------------------------------------------------------------- the byte

cdef inline int pick_to_score(Tables* t, NodeRecord* node, ShapeRecord* shape, ClassView* shared, int* worst) noexcept nogil:
    """As it will be placed; where chance chooses the device, the first one stands for all, so that a score is the same whenever it is computed."""
    cdef uint8_t policy = t.policy
    cdef int count
    if policy == POLICY_RANDOM_:
        t.policy = POLICY_FIRST_FIT_
    count = pick_pieces(t, t.devices + node.device_first, node.device_count, shape, True, shared.pieces, worst)
    t.policy = policy
    return count


cdef void view_class(Tables* t, uint32_t slot, ShapeRecord* shape, NodeView* view, ClassView* shared) noexcept nogil:
    """Devices for the asks of this class, whatever cpu and memory; only as much as the preset needs to know."""
    cdef NodeRecord* node = &t.nodes[slot]
    cdef DeviceRecord* devices = t.devices + node.device_first
    cdef int ask, worst = 0
    shared.stamp = t.views
    shared.has_lost = False
    shared.worst = 0
    shared.islands = 0
    shared.count = -1
    for ask in range(shape.ask_count):
        if view.whole[shape.asks[ask].kind] < shape.asks[ask].whole or view.top_share[shape.asks[ask].kind] < shape.asks[ask].part_milli:
            return
    if t.policy == POLICY_FRAGMENT_ or t.policy == POLICY_PRICE_ or t.blends_fragment or shape.model_top > 1 or shape.same != 0:
        shared.count = pick_to_score(t, node, shape, shared, &worst)
        shared.worst = worst
        if shape.is_wish and shared.count > 0:
            shared.islands = islands_of(devices, shared.pieces, shared.count, shape.same)
        if t.policy == POLICY_PRICE_ and shared.count >= 0:
            shared.loss = pieces_loss(t, devices, shared.pieces, shared.count, view)
    elif suffices(devices, node.device_count, shape):
        shared.count = 0
    shared.free_after = free_devices_after(view, shape)


cdef int preset_score(Tables* t, uint32_t slot, ShapeRecord* shape, NodeView* view, ClassView* shared, int span) noexcept nogil:
    """0..span - 1, best span - 1."""
    cdef NodeRecord* node = &t.nodes[slot]
    cdef int score
    if t.policy == POLICY_FRAGMENT_:
        return min(fragment_score(t, slot, shape, view, shared) * span >> 7, span - 1)
    if t.policy == POLICY_PACK_:
        return (1000 - free_after(node, shape, view, shared)) * (span - 1) // 1000
    if t.policy == POLICY_SPREAD_:
        return free_after(node, shape, view, shared) * (span - 1) // 1000
    if t.policy == POLICY_PRICE_:
        return price_score(t, slot, shape, view, shared, span)
    if t.policy == POLICY_FIRST_FIT_ or t.policy == POLICY_RANDOM_:
        return 0
    score = published_score(t, slot, shape, view)
    return score if span > 100 else score * (span - 1) // 100


cdef bint may_be_patient(Tables* t, ShapeRecord* shape) noexcept nogil:
    """It asks for a part of one device of a kind that is scarce, and has no other wishes: these go before the price."""
    return (t.scarce != 0 and t.policy == POLICY_PRICE_ and shape.ask_count == 1 and shape.asks[0].whole == 0 and shape.asks[0].parts == 1
            and (t.scarce >> shape.asks[0].kind) & 1 and shape.model_top <= 1 and shape.level_top <= shape.level_low
            and blend_of(t, shape) == NULL and not lends(t))


cdef bint is_wasteful(Tables* t, NodeRecord* node, ShapeRecord* shape, ClassView* shared) noexcept nogil:
    """What it would leave of the device is not little, and nothing that is asked for fits in there."""
    cdef int rest = t.devices[node.device_first + (shared.pieces[0] & 0xFF)].share_free - shape.asks[0].part_milli
    return rest >= LEAST_WASTE and t.prices[shape.asks[0].kind].value[rest] == 0


cdef uint8_t score_byte(Tables* t, uint32_t slot, ShapeRecord* shape, NodeView* view) noexcept nogil:
    cdef NodeRecord* node = &t.nodes[slot]
    cdef ClassView* shared = &t.class_views[shape.ask_class]
    cdef BlendRecord* blend = blend_of(t, shape)
    cdef int level_top = shape.level_top if blend == NULL else min(shape.level_top, blend.level_top)
    cdef int steps = 1, step = 0, span, score, levels, models = shape.model_top
    if not node.is_open or not has_base(node, shape) or level_of(shape, slot) == 0:
        return 0
    if shared.stamp != t.views:
        view_class(t, slot, shape, view, shared)
    if shared.count < 0 or over_limit(t, node, shape, view):
        return 0
    if shape.is_wish and shape.device_count > 1:
        models = min(models, WISH_MODELS)
        steps = SPREAD_STEPS if models <= SPREAD_STEPS else 2
        step = steps - max(1, min(shared.islands, steps))
    if models > 1:
        steps *= models
        step = step * models + models - 1 - min(shared.worst, models - 1)
    if level_top > shape.level_low:
        levels = level_top - shape.level_low + 1
        steps *= levels
        step = step * levels + max(0, min(<int> level_of(shape, slot), level_top) - shape.level_low)
    if lends(t):
        steps *= 2
        step = step * 2 + (node.cpu_free >= shape.cpu_milli and node.memory_free >= shape.memory_bytes)
    if blend == NULL and shape.ask_count == 0 and 0 < t.nodes_bare < t.nodes_count:
        steps *= 2
        step = step * 2 + (node.device_count == 0)
    span = 254 // steps
    if blend != NULL:
        score = blended_step(t, slot, shape, view, shared, blend, span)
    else:
        score = preset_score(t, slot, shape, view, shared, span)
    if may_be_patient(t, shape):
        return WASTEFUL if is_wasteful(t, node, shape, shared) else <uint8_t> max(1 + score, WASTEFUL + 1)
    return <uint8_t> (1 + step * span + score)
