# Which node: a tree over the nodes whose cells are vectors over shapes (CORE-NOTES).
#
# Promises: after refresh(), the byte of a shape at a leaf is 0 if it does not fit there now, else its score + 1; a parent is the
# byte-wise maximum of its 8 children; descending to the first child equal to the root finds the best score at the lowest node slot.
# A byte depends on nothing but the node, the shape and the mix, so it does not matter when it was computed. A shape with waiting
# tasks has a column; one without keeps it for a while (a stream of single tasks would else compute all nodes for each) and then
# gives it back.
#
# The byte: levels in lexicographic order, each coarse: position in the model list, level told by set_shape_node, nodes without devices
# for tasks without; what is left of the range goes to the preset.
# fragment: M(node) = sum over the mix of weight x (free share of the asked kind that the shape cannot use there) / total weight, in
# milli (Weng et al., ATC 2023, section 4); score = what a placement adds to it, in steps of 40 milli from -2560 to 2560, least best.
# pack / spread: mean free fraction of what the shape asks for (cpu, memory, each kind), after placing; least / most best.

cdef enum:
    COLUMN_REST = 256          # rounds that a column without demand is kept
    MODEL_STEPS = 16           # positions of the model list that are told apart


# ---------------------------------------------------------------- fragment

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


cdef struct NodeView:
    # One node while its leaves are computed.
    int64_t fragment           # M(node) x total weight, before anything is placed
    uint8_t has_fragment
    int16_t whole[16]          # by kind: usable devices wholly free, whatever their model
    int16_t top_share[16]      # by kind: the largest free share of a usable device, milli
    int32_t free_milli[16]     # by kind: free on usable devices
    int32_t devices[16]        # by kind: usable ones
    uint64_t per_cpu           # 1000 x 2^32 / cpu_milli
    uint64_t per_mebibyte      # 1000 x 2^32 / memory in MiB
    MixView mix[32]            # by class of the mix


cdef void view_node(Tables* t, uint32_t slot, NodeView* view) noexcept nogil:
    cdef NodeRecord* node = &t.nodes[slot]
    cdef DeviceRecord* device
    cdef uint32_t at
    t.views += 1
    view.has_fragment = False
    memset(view.whole, 0, sizeof(view.whole))
    memset(view.top_share, 0, sizeof(view.top_share))
    memset(view.free_milli, 0, sizeof(view.free_milli))
    memset(view.devices, 0, sizeof(view.devices))
    view.per_cpu = (<uint64_t> 1000 << 32) // <uint64_t> max(node.cpu_milli, <int64_t> 1)
    view.per_mebibyte = (<uint64_t> 1000 << 32) // <uint64_t> max(node.memory_bytes >> 20, <int64_t> 1)
    for at in range(node.device_first, node.device_first + node.device_count):
        device = &t.devices[at]
        if device.usable:
            view.whole[device.kind] += device.share_free == 1000
            view.top_share[device.kind] = max(view.top_share[device.kind], device.share_free)
            view.free_milli[device.kind] += device.share_free
            view.devices[device.kind] += 1


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
        total += <int> (<uint64_t> (node.cpu_free - shape.cpu_milli) * view.per_cpu >> 32)
        terms += 1
    if shape.memory_bytes > 0:
        total += <int> ((<uint64_t> (node.memory_free - shape.memory_bytes) >> 20) * view.per_mebibyte >> 32)
        terms += 1
    return max(0, min(1000, total // terms)) if terms > 0 else 500


# ---------------------------------------------------------------- the byte

cdef void view_class(Tables* t, uint32_t slot, ShapeRecord* shape, NodeView* view, ClassView* shared) noexcept nogil:
    """Devices for the asks of this class, whatever cpu and memory; only as much as the preset needs to know."""
    cdef NodeRecord* node = &t.nodes[slot]
    cdef DeviceRecord* devices = t.devices + node.device_first
    cdef int ask, worst = 0
    shared.stamp = t.views
    shared.has_lost = False
    shared.worst = 0
    shared.count = -1
    for ask in range(shape.ask_count):
        if view.whole[shape.asks[ask].kind] < shape.asks[ask].whole or view.top_share[shape.asks[ask].kind] < shape.asks[ask].part_milli:
            return
    if t.policy == POLICY_FRAGMENT_ or shape.model_top > 1 or shape.same != 0:
        shared.count = pick(devices, node.device_count, shape, shared.pieces, &worst)
        shared.worst = worst
    elif suffices(devices, node.device_count, shape):
        shared.count = 0
    shared.free_after = free_devices_after(view, shape)


cdef uint8_t score_byte(Tables* t, uint32_t slot, ShapeRecord* shape, NodeView* view) noexcept nogil:
    cdef NodeRecord* node = &t.nodes[slot]
    cdef ClassView* shared = &t.class_views[shape.ask_class]
    cdef int steps = 1, step = 0, span, score
    if not node.is_open or not has_base(node, shape) or level_of(shape, slot) == 0:
        return 0
    if shared.stamp != t.views:
        view_class(t, slot, shape, view, shared)
    if shared.count < 0:
        return 0
    if shape.model_top > 1:
        steps = shape.model_top
        step = steps - 1 - min(shared.worst, steps - 1)
    if shape.level_top > 1:
        steps *= shape.level_top
        step = step * shape.level_top + level_of(shape, slot) - 1
    if shape.ask_count == 0 and 0 < t.nodes_bare < t.nodes_count:
        steps *= 2
        step = step * 2 + (node.device_count == 0)
    span = 254 // steps
    if t.policy == POLICY_FRAGMENT_:
        score = min(fragment_score(t, slot, shape, view, shared) * span >> 7, span - 1)
    elif t.policy == POLICY_PACK_:
        score = (1000 - free_after(node, shape, view, shared)) * (span - 1) // 1000
    elif t.policy == POLICY_SPREAD_:
        score = free_after(node, shape, view, shared) * (span - 1) // 1000
    else:
        score = 0
    return <uint8_t> (1 + step * span + score)


# ---------------------------------------------------------------- columns

cdef inline uint8_t* cell_of(TreeRecord* tree, int level, uint32_t at) noexcept nogil:
    return tree.cells[level] + <size_t> at * COLUMNS


cdef uint32_t level_width(Tables* t, int level) noexcept nogil:
    """Cells of a level, rounded up to whole families."""
    cdef uint32_t width = t.nodes_capacity
    for _ in range(level):
        width = ((width + FAN_OUT - 1) // FAN_OUT + FAN_OUT - 1) // FAN_OUT * FAN_OUT if width > FAN_OUT else 1
    return width


cdef int widen_trees(Tables* t) except -1 nogil:
    """The node table grew: every tree anew, every leaf to be computed."""
    cdef uint32_t tree
    cdef int level
    t.tree_depth = 1
    while level_width(t, t.tree_depth - 1) > 1:
        t.tree_depth += 1
    for tree in range(t.trees_used):
        for level in range(MAX_DEPTH):
            free(t.trees[tree].cells[level])
            t.trees[tree].cells[level] = NULL
        for level in range(<int> t.tree_depth):
            t.trees[tree].cells[level] = <uint8_t*> calloc(level_width(t, level), COLUMNS)
            if t.trees[tree].cells[level] == NULL:
                no_memory()
    t.all_dirty = True
    return 0


cdef int add_tree(Tables* t) except -1 nogil:
    cdef TreeRecord* tree
    cdef int column
    grow(<void**> &t.trees, &t.trees_capacity, sizeof(TreeRecord), <uint64_t> t.trees_used + 1)
    tree = &t.trees[t.trees_used]
    memset(tree, 0, sizeof(TreeRecord))
    for column in range(COLUMNS):
        tree.shape[column] = NONE_
    t.trees_used += 1
    for level in range(<int> t.tree_depth):
        tree.cells[level] = <uint8_t*> calloc(level_width(t, level), COLUMNS)
        if tree.cells[level] == NULL:
            no_memory()
    return 0


cdef int want_column(Tables* t, uint32_t slot) except -1 nogil:
    """The shape gets a column, of one that gave up asking if there is one, and all its bytes."""
    cdef uint32_t tree, at, holder
    cdef ShapeRecord* shape = &t.shapes[slot]
    if shape.column != NONE_:
        return 0
    for tree in range(t.trees_used):
        for at in range(COLUMNS):
            holder = t.trees[tree].shape[at]
            if holder != NONE_ and t.shapes[holder].pending == 0 and t.rounds - t.shapes[holder].idle_since > COLUMN_REST:
                drop_column(t, holder)
                holder = NONE_
            if holder == NONE_ and shape.column == NONE_:
                shape.column = tree * COLUMNS + at
                t.trees[tree].shape[at] = slot
    if shape.column == NONE_:
        add_tree(t)
        shape.column = (t.trees_used - 1) * COLUMNS
        t.trees[t.trees_used - 1].shape[0] = slot
    fill_column(t, slot)
    return 0


cdef void drop_column(Tables* t, uint32_t slot) noexcept nogil:
    """Only the owner is forgotten: leaves of a column without owner are zeroed when it is next filled."""
    cdef uint32_t column = t.shapes[slot].column
    t.trees[column // COLUMNS].shape[column % COLUMNS] = NONE_
    t.shapes[slot].column = NONE_


cdef void fill_column(Tables* t, uint32_t slot) noexcept nogil:
    """All bytes of one shape, leaves first."""
    cdef ShapeRecord* shape = &t.shapes[slot]
    cdef TreeRecord* tree = &t.trees[shape.column // COLUMNS]
    cdef uint32_t column = shape.column % COLUMNS
    cdef uint32_t node, at, child
    cdef uint8_t best
    cdef int level
    cdef NodeView view
    for node in range(t.nodes_capacity):
        if node < t.nodes_used and t.nodes[node].is_present:
            view_node(t, node, &view)
            cell_of(tree, 0, node)[column] = score_byte(t, node, shape, &view)
        else:
            cell_of(tree, 0, node)[column] = 0
    for level in range(1, <int> t.tree_depth):
        for at in range(level_width(t, level)):
            best = 0
            for child in range(at * FAN_OUT, min((at + 1) * FAN_OUT, level_width(t, level - 1))):
                best = max(best, cell_of(tree, level - 1, child)[column])
            cell_of(tree, level, at)[column] = best


cdef void raise_cells(Tables* t, TreeRecord* tree, uint32_t node) noexcept nogil:
    """The leaf changed: its ancestors, until one stays as it is."""
    cdef uint8_t best[COLUMNS]
    cdef uint8_t* cell
    cdef uint32_t at = node
    cdef int level, child, column
    for level in range(1, <int> t.tree_depth):
        at = at // FAN_OUT
        cell = cell_of(tree, level - 1, at * FAN_OUT)
        memcpy(best, cell, COLUMNS)
        for child in range(1, FAN_OUT):
            cell += COLUMNS
            for column in range(COLUMNS):
                best[column] = cell[column] if cell[column] > best[column] else best[column]
        cell = cell_of(tree, level, at)
        if memcmp(cell, best, COLUMNS) == 0:
            return
        memcpy(cell, best, COLUMNS)


cdef void refresh_node(Tables* t, uint32_t node) noexcept nogil:
    """Every column's byte of one node."""
    cdef uint8_t leaf[COLUMNS]
    cdef uint32_t tree, column, slot
    cdef NodeView view
    view_node(t, node, &view)
    for tree in range(t.trees_used):
        for column in range(COLUMNS):
            slot = t.trees[tree].shape[column]
            leaf[column] = 0 if slot == NONE_ or not t.nodes[node].is_present else score_byte(t, node, &t.shapes[slot], &view)
        if memcmp(leaf, cell_of(&t.trees[tree], 0, node), COLUMNS) != 0:
            memcpy(cell_of(&t.trees[tree], 0, node), leaf, COLUMNS)
            raise_cells(t, &t.trees[tree], node)


cdef int mark(Tables* t, uint32_t node) except -1 nogil:
    """The node's free amounts changed for good."""
    t.changes += 1
    return mark_only(t, node)


cdef int mark_only(Tables* t, uint32_t node) except -1 nogil:
    """They changed on trial."""
    if not t.nodes[node].marked:
        t.nodes[node].marked = True
        push(&t.dirty, node)
    return 0


cdef void refresh(Tables* t) noexcept nogil:
    """Each marked node once."""
    cdef uint32_t at
    if t.all_dirty:
        for at in range(t.nodes_used):
            refresh_node(t, at)
        t.all_dirty = False
    for at in range(t.dirty.size):
        t.nodes[t.dirty.at[at]].marked = False
        refresh_node(t, t.dirty.at[at])
    t.dirty.size = 0


cdef inline uint8_t best_byte(Tables* t, ShapeRecord* shape) noexcept nogil:
    """0 = blocked."""
    return cell_of(&t.trees[shape.column // COLUMNS], t.tree_depth - 1, 0)[shape.column % COLUMNS]


cdef uint32_t best_node(Tables* t, ShapeRecord* shape) noexcept nogil:
    """Best score, lowest slot. The shape is not blocked."""
    cdef TreeRecord* tree = &t.trees[shape.column // COLUMNS]
    cdef uint32_t column = shape.column % COLUMNS
    cdef uint8_t wanted = best_byte(t, shape)
    cdef uint32_t at = 0
    cdef int level
    for level in range(<int> t.tree_depth - 2, -1, -1):
        at *= FAN_OUT
        while cell_of(tree, level, at)[column] != wanted:
            at += 1
    return at


# ---------------------------------------------------------------- the mix

cdef int count_arrivals(Tables* t, uint32_t slot, uint32_t count) except -1 nogil:
    """So many more were asked; the mix is taken again after 64 device tasks, then each time the count grew by half, at most 8,192."""
    if t.shapes[slot].ask_count == 0:
        return 0
    t.shapes[slot].popularity += count
    t.mix_since += count
    if t.mix_since >= t.mix_every:
        take_mix(t)
        t.mix_every = min(8192, max(64, t.mix_total // 2))
    return 0


cdef void take_mix(Tables* t) noexcept nogil:
    """The most asked device shapes, most first, lowest slot first among equals; counts are halved once they pass a million in all."""
    cdef int64_t total = 0
    cdef uint32_t slot, at
    t.mix_size = 0
    t.mix_since = 0
    for slot in range(t.shapes_used):
        if t.shapes[slot].popularity == 0:
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
    if t.policy == POLICY_FRAGMENT_:
        t.all_dirty = True
        t.changes += 1


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
