# Where capacity is worth least: the `price` preset.
#
# A node's potential is what its free devices are worth less what its missing CPU and memory strand of them:
#
#   P = sum over devices of v(free) + free x premium(model) / 2000
#       - free of each kind x apart(wholly free devices of the kind) / 1000
#       + free of each kind x wide(devices of the kind, free or not) / 1000
#       - 1/2 x sum over kinds of max(0, free of the kind - free cpu x cpu_rate)
#       - 1/5 x sum over kinds of max(0, free of the kind - free memory x memory_rate)
#
# all in milli of a device. A placement costs what P loses; the best one gains most (loses least), in steps of 20 milli: finer steps lose
# allocation, for then noise decides and not the order of the nodes. v, premiums, apart, wide and rates come from what is asked (set_prices; computed
# in hetsched/policy/price.py, which names the sources). Inside a node the device is chosen by the exact loss.
#
# With a strand limit, a task without devices does not fit where its CPU and memory would strand more than that.
#
# Promises: integers, in tenths of a milli; depends on the node, the shape and the prices only. Before the first prices free capacity is
# worth its size, and a whole device goes with 11 cores and 40 GiB.

cdef enum:
    PART_KEYS = 1 << 24        # part_key is below
    RATE_BITS = 20             # rates are fixed-point with so many bits behind the point
    PRICE_STEP = 200           # tenths of a milli
    MOST_APART = 4000          # thousandths
    RANDOM_STREAM = 1          # random: which of many streams; two differ by about 0.1 points on openb, ten seeds each
    MOST_AMOUNT = 1 << 30      # free millicores, free MiB and rates are cut off here, so that products fit

cdef int64_t START_CPU_RATE = (1000 << RATE_BITS) // 11000
cdef int64_t START_MEMORY_RATE = (1000 << RATE_BITS) // (40 << 10)


cdef int start_prices(Tables* t) except -1:
    cdef int kind, share
    t.prices = <PriceRecord*> calloc(16, sizeof(PriceRecord))
    if t.prices == NULL:
        no_memory()
    for kind in range(16):
        t.prices[kind].cpu_rate = START_CPU_RATE
        t.prices[kind].memory_rate = START_MEMORY_RATE
        for share in range(1001):
            t.prices[kind].value[share] = <int16_t> share
    return 0


# ---------------------------------------------------------------- devices

cdef inline int premium_loss(PriceRecord* price, DeviceRecord* device, int share) noexcept nogil:
    """Likewise because others want its model by name."""
    return share * 5 * price.premium[device.model] // 1000 if device.model >= 0 else 0


cdef inline int piece_loss(PriceRecord* price, DeviceRecord* device, int share) noexcept nogil:
    """Tenths of a milli that the device is worth less once this share of it is taken."""
    return 10 * (price.value[device.share_free] - price.value[device.share_free - share]) + premium_loss(price, device, share)


cdef inline int part_key(Tables* t, DeviceRecord* device, AskRecord* ask) noexcept nogil:
    """How little the preset likes this device for a part, below PART_KEYS; equal ones go by index."""
    if t.policy == POLICY_PRICE_:
        return piece_loss(&t.prices[ask.kind], device, ask.part_milli) * 1024 + device.share_free
    if t.policy == POLICY_FIRST_FIT_:
        return 0
    if t.policy == POLICY_RANDOM_:
        return <int> (scatter((t.changes + RANDOM_STREAM) * 64 + (device - t.devices)) >> 41)
    return device.share_free


cdef int64_t apart_loss(Tables* t, DeviceRecord* devices, uint32_t* pieces, int count, NodeView* view) noexcept nogil:
    """Tenths of a milli that what stays free is worth less because fewer whole devices stay together; below 0: it is less that stays."""
    cdef int32_t free_milli[16]
    cdef int16_t whole[16]
    cdef int64_t loss = 0
    cdef int at, kind
    cdef DeviceRecord* device
    memcpy(free_milli, view.free_milli, sizeof(free_milli))
    memcpy(whole, view.whole, sizeof(whole))
    for at in range(count):
        device = &devices[pieces[at] & 0xFF]
        free_milli[device.kind] -= <int32_t> (pieces[at] >> 8)
        whole[device.kind] -= device.share_free == 1000
    for at in range(view.kinds):
        kind = view.kind[at]
        loss += <int64_t> free_milli[kind] * t.prices[kind].apart[max(<int> whole[kind], 0)]
        loss -= <int64_t> view.free_milli[kind] * t.prices[kind].apart[view.whole[kind]]
    return loss // 100


cdef inline int64_t wide_loss(Tables* t, DeviceRecord* devices, uint32_t* pieces, int count, NodeView* view) noexcept nogil:
    """Tenths of a milli that it costs to take them of a node with so many devices."""
    cdef int64_t loss = 0
    cdef int at, kind
    for at in range(count):
        kind = devices[pieces[at] & 0xFF].kind
        loss += <int64_t> (pieces[at] >> 8) * t.prices[kind].wide[min(view.devices[kind], 64)]
    return loss // 100


cdef int pieces_loss(Tables* t, DeviceRecord* devices, uint32_t* pieces, int count, NodeView* view) noexcept nogil:
    cdef int at, loss = 0
    cdef DeviceRecord* device
    for at in range(count):
        device = &devices[pieces[at] & 0xFF]
        loss += piece_loss(&t.prices[device.kind], device, pieces[at] >> 8)
    if t.has_apart:
        loss += <int> (apart_loss(t, devices, pieces, count, view) + wide_loss(t, devices, pieces, count, view))
    return loss


# ---------------------------------------------------------------- node

cdef inline void stranded_by(Tables* t, NodeView* view, ShapeRecord* shape, int64_t cpu_free, int64_t memory_free, int64_t* cost) noexcept nogil:
    """Tenths of a milli that missing CPU and missing memory cost; `shape`: as if its devices were taken (NULL: none)."""
    cdef int64_t free_milli
    cdef int64_t cpu = max(<int64_t> 0, min(cpu_free, <int64_t> MOST_AMOUNT))
    cdef int64_t mebibytes = max(<int64_t> 0, min(memory_free >> 20, <int64_t> MOST_AMOUNT))
    cdef int at, kind, ask
    cost[0] = cost[1] = 0
    for at in range(view.kinds):
        kind = view.kind[at]
        free_milli = view.free_milli[kind]
        if shape != NULL:
            for ask in range(shape.ask_count):
                if shape.asks[ask].kind == kind:
                    free_milli -= ask_milli(&shape.asks[ask])
        cost[0] += 5 * max(<int64_t> 0, free_milli - (cpu * t.prices[kind].cpu_rate >> RATE_BITS))
        cost[1] += 2 * max(<int64_t> 0, free_milli - (mebibytes * t.prices[kind].memory_rate >> RATE_BITS))


cdef int64_t stranded(Tables* t, NodeView* view, ShapeRecord* shape, int64_t cpu_free, int64_t memory_free) noexcept nogil:
    """Both."""
    cdef int64_t cost[2]
    stranded_by(t, view, shape, cpu_free, memory_free, cost)
    return cost[0] + cost[1]


cdef int64_t strands(Tables* t, NodeRecord* node, ShapeRecord* shape, NodeView* view) noexcept nogil:
    """How much more is stranded once the shape is there, tenths of a milli; below 0: what was stranded is used."""
    if not view.has_stranded:
        view.stranded = stranded(t, view, NULL, node.cpu_free, node.memory_free)
        view.has_stranded = True
    return stranded(t, view, shape, node.cpu_free - shape.cpu_milli, node.memory_free - shape.memory_bytes) - view.stranded


cdef inline bint over_limit(Tables* t, NodeRecord* node, ShapeRecord* shape, NodeView* view) noexcept nogil:
    """A task without devices would strand more of them than its cores may."""
    return (t.strand_limit > 0 and shape.ask_count == 0 and t.policy == POLICY_PRICE_
            and strands(t, node, shape, view) * 100 > t.strand_limit * shape.cpu_milli)


cdef bint is_over_limit(Tables* t, uint32_t slot, ShapeRecord* shape) noexcept nogil:
    cdef NodeView view
    if t.strand_limit == 0 or shape.ask_count > 0:
        return False
    view_node(t, slot, &view)
    return over_limit(t, &t.nodes[slot], shape, &view)


cdef inline int64_t step_of_price(int span) noexcept nogil:
    """Tenths of a milli, where a score is one of so many."""
    return PRICE_STEP * ((254 + span - 1) // span)


cdef int64_t price_top(Tables* t, ShapeRecord* shape, int64_t step) noexcept nogil:
    """Steps that a placement gains at best: its whole devices are worth what they are, its parts may lie in room that nobody else could use,
    what was stranded may be used, what stands apart may be filled, and no node is wider than they need."""
    cdef int64_t top = 0
    cdef PriceRecord* price
    cdef int ask, whole
    for ask in range(shape.ask_count):
        price = &t.prices[shape.asks[ask].kind]
        whole = min(<int> shape.asks[ask].whole, 64)
        top -= 10000 * <int64_t> shape.asks[ask].whole
        top += ask_milli(&shape.asks[ask]) * (price.apart[whole] - price.wide[max(whole, 1)]) // 100
    return steps_down(top + min(7 * shape.device_milli, <int64_t> 20000), step)


cdef inline int64_t steps_down(int64_t amount, int64_t step) noexcept nogil:
    """Division cuts towards 0; this cuts downwards."""
    return (amount + (step << 40)) // step - (<int64_t> 1 << 40)


cdef int price_score(Tables* t, uint32_t slot, ShapeRecord* shape, NodeView* view, ClassView* shared, int span) noexcept nogil:
    """0..span - 1, least lost best. Big tasks run off the lower end of the scale."""
    cdef int64_t step = step_of_price(span)
    cdef int64_t below = price_top(t, shape, step) - steps_down(-shared.loss - strands(t, &t.nodes[slot], shape, view), step)
    return <int> (span - 1 - max(<int64_t> 0, min(below, <int64_t> span - 1)))
