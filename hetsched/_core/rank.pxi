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

cdef int64_t unusable(DeviceRecord* devices, int16_t* free_milli, int64_t* free_bytes, int count, bint base, ShapeRecord* shape) noexcept nogil:
    """Free share of the kinds the shape asks for that it cannot use on this node, in milli. `base`: cpu and memory suffice."""
    cdef int64_t lost = 0, free_all, usable_milli
    cdef int ask, at, whole, room
    cdef AskRecord* asked
    for ask in range(shape.ask_count):
        asked = &shape.asks[ask]
        free_all = 0
        usable_milli = 0
        whole = 0
        room = 0
        for at in range(count):
            if devices[at].kind != asked.kind or not devices[at].usable or free_milli[at] <= 0:
                continue
            free_all += free_milli[at]
            if not is_right(&devices[at], asked):
                continue
            if free_milli[at] == 1000:
                whole += 1
                usable_milli += 1000
            elif asked.parts and free_milli[at] >= asked.part_milli and (
                    devices[at].memory_bytes < 0 or free_bytes[at] >= asked.memory_bytes):
                room += 1
                usable_milli += free_milli[at]
        if not base or whole < asked.whole or room + whole - asked.whole < asked.parts:
            usable_milli = 0
        lost += free_all - usable_milli
    return lost


cdef int64_t mixed_fragment(Tables* t, DeviceRecord* devices, int16_t* free_milli, int64_t* free_bytes, int count,
                            int64_t cpu_free, int64_t memory_free) noexcept nogil:
    """M(node) x total weight of the mix."""
    cdef int64_t total = 0
    cdef uint32_t at
    cdef ShapeRecord* shape
    for at in range(t.mix_size):
        shape = &t.shapes[t.mix[at]]
        total += t.mix_weight[at] * unusable(devices, free_milli, free_bytes, count,
                                             cpu_free >= shape.cpu_milli and memory_free >= shape.memory_bytes, shape)
    return total


cdef struct NodeView:
    # One node while its leaves are computed: free amounts side by side, and the fragment before anything is placed.
    int16_t free_milli[64]
    int64_t free_bytes[64]
    int64_t fragment
    uint8_t has_fragment


cdef void view_node(Tables* t, uint32_t slot, NodeView* view) noexcept nogil:
    cdef NodeRecord* node = &t.nodes[slot]
    cdef DeviceRecord* devices = t.devices + node.device_first
    cdef int at
    for at in range(node.device_count):
        view.free_milli[at] = devices[at].share_free
        view.free_bytes[at] = devices[at].memory_free
    view.has_fragment = False


cdef int fragment_score(Tables* t, uint32_t slot, ShapeRecord* shape, NodeView* view, uint32_t* pieces, int count) noexcept nogil:
    """0..127, best 127."""
    cdef NodeRecord* node = &t.nodes[slot]
    cdef DeviceRecord* devices = t.devices + node.device_first
    cdef int at, device
    cdef int64_t after, added
    cdef int64_t held_bytes[MAX_PIECES]
    if t.mix_total == 0 or node.device_count == 0:
        return 63
    if not view.has_fragment:
        view.fragment = mixed_fragment(t, devices, view.free_milli, view.free_bytes, node.device_count, node.cpu_free, node.memory_free)
        view.has_fragment = True
    for at in range(count):
        device = pieces[at] & 0xFF
        held_bytes[at] = piece_memory(&devices[device], shape, pieces[at])
        view.free_milli[device] -= <int16_t> (pieces[at] >> 8)
        view.free_bytes[device] -= held_bytes[at]
    after = mixed_fragment(t, devices, view.free_milli, view.free_bytes, node.device_count,
                           node.cpu_free - shape.cpu_milli, node.memory_free - shape.memory_bytes)
    for at in range(count):
        device = pieces[at] & 0xFF
        view.free_milli[device] += <int16_t> (pieces[at] >> 8)
        view.free_bytes[device] += held_bytes[at]
    added = (after - view.fragment) // t.mix_total + 2560
    if added < 0:
        added = 0
    if added > 5119:
        added = 5119
    return 127 - <int> (added // 40)


# ---------------------------------------------------------------- pack, spread

cdef int free_after(Tables* t, uint32_t slot, ShapeRecord* shape) noexcept nogil:
    """Mean fraction free after placing, over what the shape asks for: 0..1000."""
    cdef NodeRecord* node = &t.nodes[slot]
    cdef DeviceRecord* devices = t.devices + node.device_first
    cdef int64_t total = 0, free_milli
    cdef int terms = 0, ask, at, count
    if shape.cpu_milli > 0:
        total += (node.cpu_free - shape.cpu_milli) * 1000 // node.cpu_milli
        terms += 1
    if shape.memory_bytes > 0:
        total += ((node.memory_free - shape.memory_bytes) >> 10) * 1000 // max(1, node.memory_bytes >> 10)
        terms += 1
    for ask in range(shape.ask_count):
        free_milli = -ask_milli(&shape.asks[ask])
        count = 0
        for at in range(node.device_count):
            if devices[at].kind == shape.asks[ask].kind:
                count += 1
                free_milli += devices[at].share_free
        total += free_milli // max(1, count)
        terms += 1
    if terms == 0:
        return 500
    total = total // terms
    return <int> max(0, min(1000, total))


# ---------------------------------------------------------------- the byte

cdef uint8_t score_byte(Tables* t, uint32_t slot, ShapeRecord* shape, NodeView* view) noexcept nogil:
    cdef uint32_t pieces[MAX_PIECES]
    cdef int worst = 0
    cdef int count = fit(t, slot, shape, pieces, &worst)
    cdef int steps = 1, step = 0, span, score
    if count < 0:
        return 0
    if shape.model_top > 1:
        steps = shape.model_top
        step = steps - 1 - min(worst, steps - 1)
    if shape.level_top > 1:
        steps *= shape.level_top
        step = step * shape.level_top + level_of(shape, slot) - 1
    if shape.ask_count == 0 and 0 < t.nodes_bare < t.nodes_count:
        steps *= 2
        step = step * 2 + (t.nodes[slot].device_count == 0)
    span = 254 // steps
    if t.policy == POLICY_FRAGMENT_:
        score = min(fragment_score(t, slot, shape, view, pieces, count) * span >> 7, span - 1)
    elif t.policy == POLICY_PACK_:
        score = (1000 - free_after(t, slot, shape)) * (span - 1) // 1000
    elif t.policy == POLICY_SPREAD_:
        score = free_after(t, slot, shape) * (span - 1) // 1000
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
    if total > 1000000:
        for slot in range(t.shapes_used):
            t.shapes[slot].popularity = (t.shapes[slot].popularity + 1) // 2
    if t.policy == POLICY_FRAGMENT_:
        t.all_dirty = True
        t.changes += 1
