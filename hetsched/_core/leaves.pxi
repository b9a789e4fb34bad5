# Bytes for 64 shapes at once: what score_byte says, computed side by side (leaves.h) where shape, node and preset are plain.
#
# A column is plain if nothing but free amounts decides: at most one ask, for whole devices or for one part, of any model, wherever on the
# board, without levels, weights or a list of models; by price, which looks at devices class by class anyway, any one ask. The rest are odd: score_byte, one by one, as are all columns of a node where something
# is lent or short (claims whose victims have not ended), and of presets that are not among those of `plain_preset`.
#
# Promises: the same byte as score_byte, always (check_trees compares); what is copied from shapes and mix is copied again when they change.

cdef enum:
    MOST_CPU = 1 << 30         # millicores, and
    MOST_MEBIBYTES = 1 << 30   # of memory: a node that has as much goes one by one, so whoever asks for more finds it on no other


cdef inline int plain_preset(Tables* t) noexcept nogil:
    """LEAF_*; -1: this preset goes one by one."""
    if t.policy == POLICY_PACK_:
        return LEAF_PACK
    if t.policy == POLICY_SPREAD_:
        return LEAF_SPREAD
    if t.policy == POLICY_BEST_FIT_:
        return LEAF_BEST_FIT
    if t.policy == POLICY_FIRST_FIT_ or t.policy == POLICY_RANDOM_ or t.policy == POLICY_FRAGMENT_ or t.policy == POLICY_PRICE_:
        return LEAF_NOTHING
    return -1


cdef bint is_plain_shape(Tables* t, ShapeRecord* shape) noexcept nogil:
    cdef AskRecord* ask = &shape.asks[0]
    if shape.ask_count > 1 or shape.same != 0 or shape.model_top > 1 or shape.level_top > shape.level_low or blend_of(t, shape) != NULL:
        return False
    return shape.ask_count == 0 or t.policy == POLICY_PRICE_ or (ask.models == 0 and ask.memory_bytes == 0 and (ask.parts == 0 or (ask.parts == 1 and ask.whole == 0)))


cdef void describe_column(Tables* t, TreeRecord* tree, int at) noexcept nogil:
    """What its shape asks for; of one that is odd or nobody's, more than any node has."""
    cdef LeafColumns* columns = &tree.columns
    cdef uint32_t slot = tree.shape[at]
    cdef ShapeRecord* shape
    cdef AskRecord* ask
    cdef int terms
    columns.cpu[at] = MOST_CPU
    columns.kind[at] = -1
    columns.outcome[at] = 0
    tree.odd &= ~(<uint64_t> 1 << at)
    tree.told &= ~(<uint64_t> 1 << at)
    if slot == NONE_:
        return
    columns.used = max(columns.used, at + 1)
    shape = &t.shapes[slot]
    if not is_plain_shape(t, shape):
        tree.odd |= <uint64_t> 1 << at
        return
    ask = &shape.asks[0]
    terms = (shape.ask_count > 0) + (shape.cpu_milli > 0) + (shape.memory_bytes > 0)
    columns.cpu[at] = <int32_t> min(shape.cpu_milli, <int64_t> MOST_CPU)
    columns.mebibytes[at] = <int32_t> min(shape.memory_bytes >> 20, <int64_t> MOST_MEBIBYTES)
    columns.rest[at] = <int32_t> (shape.memory_bytes & 0xFFFFF)
    columns.memory[at] = <double> shape.memory_bytes
    columns.milli_all[at] = <double> shape.device_milli
    columns.whole[at] = columns.part[at] = columns.milli[at] = 0
    columns.top[at] = 0
    if shape.ask_count > 0:
        columns.kind[at] = ask.kind
        columns.whole[at], columns.part[at], columns.milli[at] = ask.whole, ask.part_milli, <float> ask_milli(ask)
        columns.top[at] = <int32_t> price_top(t, shape, PRICE_STEP)
        tree.kinds |= 1 << ask.kind
    columns.has_devices[at], columns.has_cpu[at], columns.has_memory[at] = shape.ask_count > 0, shape.cpu_milli > 0, shape.memory_bytes > 0
    columns.per_term[at] = 1.0 / terms if terms > 0 else 0
    columns.middle[at] = 0 if terms > 0 else 500
    columns.outcome[at] = shape.ask_class
    if shape.levels != NULL:
        tree.told |= <uint64_t> 1 << at


cdef void describe_columns(Tables* t) noexcept nogil:
    """After shapes have changed in what is not theirs alone: levels, weights, the first node that nothing was told of, preset and prices."""
    cdef uint32_t tree
    cdef int at
    for tree in range(t.trees_used):
        t.trees[tree].kinds = 0
        t.trees[tree].columns.used = 0
        for at in range(COLUMNS):
            describe_column(t, &t.trees[tree], at)
    t.columns_moved = False


cdef void copy_mix(Tables* t) noexcept nogil:
    """The mix as leaves.h reads it, least cores first. After index_mix."""
    cdef LeafMix* mix = &t.leaf_mix
    cdef AskRecord* ask
    cdef uint32_t at, place, moved
    cdef uint32_t sorted_[MIX_SHAPES]
    memset(mix, 0, sizeof(LeafMix))
    mix.kind = -1
    mix.total = t.mix_total
    mix.is_plain = t.mix_total < 1 << 30
    for at in range(t.mix_size):
        place = at
        while place > 0 and t.mix_cpu[sorted_[place - 1]] > t.mix_cpu[at]:
            sorted_[place] = sorted_[place - 1]
            place -= 1
        sorted_[place] = at
    for place in range(t.mix_size):
        at = sorted_[place]
        ask = &t.shapes[t.mix[at]].asks[0]
        if mix.kind < 0:
            mix.kind = ask.kind
        mix.is_plain &= t.shapes[t.mix[at]].ask_count == 1 and ask.models == 0 and ask.memory_bytes == 0 and ask.kind == mix.kind and t.mix_cpu[at] < MOST_CPU
        mix.whole[place], mix.parts[place], mix.part[place] = ask.whole, ask.parts, ask.part_milli if ask.parts > 0 else 1001
        mix.weight[place], mix.memory[place] = <int32_t> t.mix_weight[at], <double> t.mix_memory[at]
        if place == 0 or mix.cpu[mix.steps - 1] != <int32_t> t.mix_cpu[at]:
            mix.cpu[mix.steps] = <int32_t> t.mix_cpu[at]
            mix.steps += 1
        mix.count[mix.steps - 1] += 1


# ---------------------------------------------------------------- one node

cdef bint is_plain_node(Tables* t, NodeRecord* node, NodeView* view) noexcept nogil:
    """Nothing on it is lent or short, and the mix can make something of it side by side."""
    if lends(t) or view.is_short or plain_preset(t) < 0:
        return False
    if not -MOST_CPU < node.cpu_free < MOST_CPU or not -MOST_MEBIBYTES < node.memory_free >> 20 < MOST_MEBIBYTES:
        return False
    if t.policy == POLICY_PRICE_:
        return t.scarce == 0
    return t.policy != POLICY_FRAGMENT_ or (t.leaf_mix.is_plain and t.sharers_most == 0 and (view.kinds == 0 or (view.kinds == 1 and view.kind[0] == t.leaf_mix.kind)))


cdef void view_leaf(Tables* t, NodeRecord* node, NodeView* view, LeafNode* leaf) noexcept nogil:
    cdef bint tells_bare = 0 < t.nodes_bare < t.nodes_count
    cdef int at, score = 0
    leaf.cpu_free, leaf.memory_free = <int32_t> node.cpu_free, <double> node.memory_free
    leaf.mebibytes_free, leaf.rest_free = <int32_t> (node.memory_free >> 20), <int32_t> (node.memory_free & 0xFFFFF)
    leaf.per_cpu = <double> view.per_cpu / 4294967296.0
    leaf.per_mebibyte = <double> view.per_mebibyte / 4294967296.0
    leaf.most_cpu, leaf.most_milli = <double> t.most_cpu, <double> t.most_milli
    leaf.milli_all = 0
    for at in range(view.kinds):
        leaf.milli_all += view.free_milli[view.kind[at]]
    leaf.steps, leaf.steps_bare = 253, 126 if tells_bare else 253
    if t.policy == POLICY_FRAGMENT_ and (t.mix_total == 0 or node.device_count == 0):
        score = 63
    leaf.base = 1 + (score * 254 >> 7)
    leaf.base_bare = 1 + (score * 127 >> 7) + 127 * (node.device_count == 0) if tells_bare else leaf.base


cdef void plain_bytes(Tables* t, TreeRecord* tree, NodeView* view, LeafNode* node, LeafState* state, uint8_t* leaf) noexcept nogil:
    """Of the plain columns of one tree. `state`: NULL unless the fragment decides."""
    cdef LeafKind kind
    cdef uint32_t left = tree.kinds
    cdef int preset = plain_preset(t)
    cdef bint is_first = True
    while left != 0 or is_first:
        kind.kind = lowest(left) if left != 0 else 0
        left &= left - 1 if left != 0 else 0
        kind.whole, kind.top = view.whole[kind.kind], view.top_share[kind.kind]
        kind.milli, kind.per_device = view.free_milli[kind.kind], 1.0 / max(1, view.devices[kind.kind])
        leaf_bytes(&tree.columns, node, &kind, preset, is_first, leaf)
        is_first = False
    if state != NULL:
        leaf_fragments(&tree.columns, node, &t.leaf_mix, state, t.outcomes, t.views, leaf)


cdef void view_state(Tables* t, NodeRecord* node, LeafNode* leaf, LeafState* state) noexcept nogil:
    cdef uint32_t at
    state.count = 0
    for at in range(node.device_first, node.device_first + node.device_count):
        if t.devices[at].usable:
            state.shares[state.count] = t.devices[at].share_free
            state.count += 1
    leaf_state(&t.leaf_mix, leaf, state)


# ---------------------------------------------------------------- by price

cdef void view_prices(Tables* t, NodeRecord* node, NodeView* view, LeafNode* leaf, LeafPrices* prices) noexcept nogil:
    cdef int at, kind
    view.stranded = stranded(t, view, NULL, node.cpu_free, node.memory_free)
    view.has_stranded = True
    prices.count = view.kinds
    for at in range(view.kinds):
        kind = view.kind[at]
        prices.kind[at], prices.milli[at] = kind, <double> view.free_milli[kind]
        prices.cpu_rate[at] = <double> t.prices[kind].cpu_rate / (1 << RATE_BITS)
        prices.memory_rate[at] = <double> t.prices[kind].memory_rate / (1 << RATE_BITS)
    prices.stranded = <double> view.stranded
    prices.strand_most = <double> t.strand_limit
    prices.step = PRICE_STEP
    prices.step_bare = <double> step_of_price(1 + <int> leaf.steps_bare)


cdef void price_bytes(Tables* t, TreeRecord* tree, uint32_t slot, NodeView* view, LeafNode* node, LeafPrices* prices, uint8_t* leaf) noexcept nogil:
    """Of the plain columns of one tree whose amounts suffice, once plain_bytes has found which."""
    cdef int32_t loss[COLUMNS]
    cdef ClassView* shared
    cdef int at
    for at in range(COLUMNS):
        loss[at] = 0
        if leaf[at] != 0 and tree.columns.kind[at] >= 0:
            shared = &t.class_views[tree.columns.outcome[at]]
            if shared.stamp != t.views:
                view_class(t, slot, &t.shapes[tree.shape[at]], view, shared)
            loss[at] = shared.loss
            if shared.count < 0:
                leaf[at] = 0
    leaf_prices(&tree.columns, node, prices, loss, leaf)
