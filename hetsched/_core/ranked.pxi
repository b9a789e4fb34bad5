# How the node of a task that is placed ranked: every term of the core as if the task were placed there now, and the parts of the price.
#
# Promises: the task is lifted off its node, the same leaves that decide are asked for the devices that it has, and it is put back: no
# leaf of a tree is computed, nothing that a decision could see changes.

cdef enum:
    PRICE_PARTS = 6            # devices, premium, apart, cpu, memory, wide


cdef void price_parts(Tables* t, uint32_t slot, ShapeRecord* shape, uint32_t* pieces, int count, NodeView* view, int64_t* parts) noexcept nogil:
    """What the pieces take off the node's worth, tenths of a milli, by what of it; their sum is what price_score ranks by."""
    cdef NodeRecord* node = &t.nodes[slot]
    cdef DeviceRecord* devices = t.devices + node.device_first
    cdef DeviceRecord* device
    cdef int64_t before[2]
    cdef int64_t after[2]
    cdef int at, share, of_model
    memset(parts, 0, PRICE_PARTS * sizeof(int64_t))
    for at in range(count):
        device = &devices[pieces[at] & 0xFF]
        share = pieces[at] >> 8
        of_model = premium_loss(&t.prices[device.kind], device, share)
        parts[0] += piece_loss(&t.prices[device.kind], device, share) - of_model
        parts[1] += of_model
    if t.has_apart:
        parts[2] = apart_loss(t, devices, pieces, count, view)
        parts[5] = wide_loss(t, devices, pieces, count, view)
    stranded_by(t, view, NULL, node.cpu_free, node.memory_free, before)
    stranded_by(t, view, shape, node.cpu_free - shape.cpu_milli, node.memory_free - shape.memory_bytes, after)
    parts[3], parts[4] = after[0] - before[0], after[1] - before[1]


cdef int score_top(Tables* t) noexcept nogil:
    """The best preset_score of a span of 254; 0: the preset has no score."""
    if t.policy == POLICY_FIRST_FIT_ or t.policy == POLICY_RANDOM_:
        return 0
    return 253 if t.policy <= POLICY_PRICE_ else 100


cdef void ranked_terms(Tables* t, uint32_t slot, ShapeRecord* shape, uint32_t* pieces, int count, int* terms, int64_t* parts) noexcept nogil:
    """Thousandths by term of the core (told: -1, and where the preset has no score), and the parts of the price. The task is lifted."""
    cdef NodeRecord* node = &t.nodes[slot]
    cdef ClassView* shared = &t.class_views[shape.ask_class]
    cdef NodeView view
    cdef int free
    view_node(t, slot, &view)
    view_class(t, slot, shape, &view, shared)
    shared.count = count
    memcpy(shared.pieces, pieces, count * sizeof(uint32_t))
    shared.has_lost = False
    shared.free_after = free_devices_after(&view, shape)
    shared.loss = pieces_loss(t, t.devices + node.device_first, pieces, count, &view)
    free = free_after(node, shape, &view, shared)
    terms[TERM_TOLD] = -1
    terms[TERM_PRESET] = preset_score(t, slot, shape, &view, shared, 254) * 1000 // score_top(t) if score_top(t) > 0 else -1
    terms[TERM_FRAGMENT] = fragment_score(t, slot, shape, &view, shared) * 1000 // 127
    terms[TERM_PACK], terms[TERM_SPREAD] = 1000 - free, free
    terms[TERM_LOAD] = load_free(node, &view)
    price_parts(t, slot, shape, pieces, count, &view, parts)
    shared.stamp = 0


cdef bint has_its_devices(Tables* t, uint32_t slot, uint32_t* pieces, int count) noexcept nogil:
    """They are not promised to a claim already. The task is lifted."""
    cdef int at
    for at in range(count):
        if t.devices[t.nodes[slot].device_first + (pieces[at] & 0xFF)].share_free < <int> (pieces[at] >> 8):
            return False
    return True


cdef class RankedDoors(PricingDoors):

    def ranked(self, uint32_t task):
        cdef Tables* t = &self.t
        cdef AllocationRecord* record
        cdef int terms[TERMS]
        cdef int64_t parts[PRICE_PARTS]
        cdef int at
        cdef bint stays
        self._task(task)
        if not is_live(&t.tasks[task]):
            raise ValueError(f"task {task} is not on a node")
        record = &t.allocations[t.tasks[task].place]
        with nogil:
            lift_task(t, task, 1)
            stays = has_its_devices(t, record.node, pieces_of(t, record), record.count)
            if stays:
                ranked_terms(t, record.node, &t.shapes[t.tasks[task].shape], pieces_of(t, record), record.count, terms, parts)
            lift_task(t, task, -1)
        self._checked()
        if not stays:
            return {}, {}
        found = {name: terms[at] for at, name in enumerate(TERM_NAMES) if terms[at] >= 0}
        lost = {name: parts[at] for at, name in enumerate(PRICE_PART_NAMES)} if t.policy == POLICY_PRICE_ else {}
        return found, lost
