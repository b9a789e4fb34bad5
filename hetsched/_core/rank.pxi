# Which node: a tree over the nodes whose cells are vectors over shapes (CORE-NOTES).
#
# Promises: after refresh(), the byte of a shape at a leaf is score_byte() (most of them computed side by side, see leaves); a parent is the byte-wise maximum of its 8 children;
# descending to the first child equal to the root finds the best score at the lowest node slot, the fixed order of ties. A shape with
# waiting tasks has a column; one without keeps it for a while (a stream of single tasks would else compute all nodes for each) and then
# gives it back.

cdef enum:
    COLUMN_REST = 256          # rounds that a column without demand is kept
    COLUMN_LONG_REST = 4096    # and one of the first KEPT_TREES trees: with 150 shapes that come now and then, filling was two thirds of deciding
    KEPT_TREES = 3


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
            free_lined(t.trees[tree].cells[level])
            t.trees[tree].cells[level] = NULL
        take_cells(t, &t.trees[tree])
    t.all_dirty = True
    return 0


cdef int take_cells(Tables* t, TreeRecord* tree) except -1 nogil:
    """All of them 0."""
    cdef uint32_t taken
    cdef int level
    for level in range(<int> t.tree_depth):
        taken = 0
        grow_lined(<void**> &tree.cells[level], &taken, COLUMNS, level_width(t, level))
    return 0


cdef int add_tree(Tables* t) except -1 nogil:
    cdef TreeRecord* tree
    cdef int column
    grow_lined(<void**> &t.trees, &t.trees_capacity, sizeof(TreeRecord), <uint64_t> t.trees_used + 1)
    tree = &t.trees[t.trees_used]
    memset(tree, 0, sizeof(TreeRecord))
    for column in range(COLUMNS):
        tree.shape[column] = NONE_
        describe_column(t, tree, column)
    t.trees_used += 1
    return take_cells(t, tree)


cdef int want_column(Tables* t, uint32_t slot) except -1 nogil:
    """The shape gets a column, of one that gave up asking if there is one, and all its bytes."""
    cdef uint32_t tree, at, holder, rest
    cdef ShapeRecord* shape = &t.shapes[slot]
    if shape.column != NONE_:
        return 0
    for tree in range(t.trees_used):
        rest = COLUMN_LONG_REST if tree < KEPT_TREES else COLUMN_REST
        for at in range(COLUMNS):
            holder = t.trees[tree].shape[at]
            if holder != NONE_ and t.shapes[holder].pending == 0 and t.rounds - t.shapes[holder].idle_since > rest:
                drop_column(t, holder)
                holder = NONE_
            if holder == NONE_ and shape.column == NONE_:
                take_column(t, slot, tree, at)
    if shape.column == NONE_:
        add_tree(t)
        take_column(t, slot, t.trees_used - 1, 0)
    fill_column(t, slot)
    return 0


cdef void take_column(Tables* t, uint32_t slot, uint32_t tree, uint32_t at) noexcept nogil:
    cdef ShapeRecord* shape = &t.shapes[slot]
    cdef Least* least = &t.trees[tree].least[at]
    shape.column = tree * COLUMNS + at
    t.trees[tree].shape[at] = slot
    least.cpu_milli, least.memory_bytes = shape.cpu_milli, shape.memory_bytes
    least.kind = least.whole = least.part_milli = 0
    if shape.ask_count > 0:
        least.kind, least.whole, least.part_milli = shape.asks[0].kind, shape.asks[0].whole, shape.asks[0].part_milli
    describe_column(t, &t.trees[tree], <int> at)


cdef void drop_column(Tables* t, uint32_t slot) noexcept nogil:
    """Only the owner is forgotten: leaves of a column without owner are zeroed when it is next filled."""
    cdef uint32_t column = t.shapes[slot].column
    t.trees[column // COLUMNS].shape[column % COLUMNS] = NONE_
    t.shapes[slot].column = NONE_
    describe_column(t, &t.trees[column // COLUMNS], <int> (column % COLUMNS))


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


cdef void odd_bytes(Tables* t, TreeRecord* tree, uint64_t odd, uint32_t node, NodeView* view, uint8_t* leaf) noexcept nogil:
    """Of these columns, one by one; most shapes lack something on most nodes."""
    cdef int64_t cpu_most = t.nodes[node].cpu_free + t.nodes[node].cpu_extra
    cdef int64_t memory_most = t.nodes[node].memory_free + t.nodes[node].memory_extra
    cdef Least* least
    cdef int column
    while odd != 0:
        column = lowest(odd)
        odd &= odd - 1
        least = &tree.least[column]
        if (tree.shape[column] != NONE_ and least.cpu_milli <= cpu_most and least.memory_bytes <= memory_most
                and least.whole <= view.whole[least.kind] and least.part_milli <= view.top_share[least.kind]):
            leaf[column] = score_byte(t, node, &t.shapes[tree.shape[column]], view)


cdef void refresh_node(Tables* t, uint32_t node) noexcept nogil:
    """Every column's byte of one node."""
    cdef uint8_t leaf[COLUMNS]
    cdef uint32_t at
    cdef uint64_t told
    cdef NodeView view
    cdef LeafNode plain
    cdef LeafState state
    cdef LeafPrices prices
    cdef TreeRecord* tree
    cdef bint takes = t.nodes[node].is_present and t.nodes[node].is_open
    cdef bint is_plain = False, by_fragment = False, by_price = t.policy == POLICY_PRICE_
    if takes:
        view_node(t, node, &view)
        is_plain = is_plain_node(t, &t.nodes[node], &view)
    if is_plain:
        view_leaf(t, &t.nodes[node], &view, &plain)
        by_fragment = t.policy == POLICY_FRAGMENT_ and t.mix_total > 0 and t.nodes[node].device_count > 0
        if by_fragment:
            view_state(t, &t.nodes[node], &plain, &state)
        if by_price:
            view_prices(t, &t.nodes[node], &view, &plain, &prices)
    for at in range(t.trees_used):
        tree = &t.trees[at]
        memset(leaf, 0, COLUMNS)
        if is_plain:
            plain_bytes(t, tree, &view, &plain, &state if by_fragment else NULL, leaf)
            if by_price:
                price_bytes(t, tree, node, &view, &plain, &prices, leaf)
            told = tree.told
            while told != 0:
                if level_of(&t.shapes[tree.shape[lowest(told)]], node) == 0:
                    leaf[lowest(told)] = 0
                told &= told - 1
            odd_bytes(t, tree, tree.odd, node, &view, leaf)
        elif takes:
            odd_bytes(t, tree, ~<uint64_t> 0, node, &view, leaf)
        leaf_write(tree.cells, <int> t.tree_depth, node, leaf)


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


cdef inline void send_for_leaf(Tables* t, uint32_t at) noexcept nogil:
    """What refreshing the marked nodes to come will read: they lie all over the tables."""
    cdef uint32_t node, tree
    if at + 4 < t.dirty.size:
        node = t.dirty.at[at + 4]
        prefetch(&t.nodes[node].cpu_free)
        prefetch(&t.nodes[node].device_first)
    if at + 2 < t.dirty.size:
        node = t.dirty.at[at + 2]
        for tree in range(t.nodes[node].device_count):
            prefetch(&t.devices[t.nodes[node].device_first + tree])
        send_for_families(t, node)


cdef inline void send_for_families(Tables* t, uint32_t node) noexcept nogil:
    """Of its leaves: a parent is computed from them all."""
    cdef uint32_t tree, at
    for tree in range(t.trees_used):
        for at in range(FAN_OUT):
            prefetch(cell_of(&t.trees[tree], 0, (node & ~<uint32_t> (FAN_OUT - 1)) + at))


cdef void refresh(Tables* t) noexcept nogil:
    """Each marked node once."""
    cdef uint32_t at
    if t.columns_moved:
        describe_columns(t)
    if t.all_dirty:
        for at in range(t.nodes_used):
            refresh_node(t, at)
        t.all_dirty = False
    for at in range(t.dirty.size):
        send_for_leaf(t, at)
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
