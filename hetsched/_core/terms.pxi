# A score blended of terms: a byte a node that the scheduler tells (cost model, delay, energy, plug-ins: what needs words or floats) and
# what only the tables know at this moment (the preset's own score, fragment, packing, spreading, load), by integer weights that a shape carries.
#
# Promises: told bytes change when they are told, never by placing; every term is 0..1000, best 1000; a shape without weights is scored
# by the preset as ever. Derived: neither dumped nor part of the digest, the scheduler tells it again after a restart.

cdef enum:
    FEW_NODES = 64             # told anew: their leaves are computed, not the whole column
    PRESET_SPAN = 128          # steps of the preset's own score as a term: as fine as the finest of them means it


cdef BlendRecord* blend_of(Tables* t, ShapeRecord* shape) noexcept nogil:
    """The shape's weights; NULL: the preset decides."""
    cdef size_t slot = shape - t.shapes
    if slot >= t.blends_used or t.blends[slot].total == 0:
        return NULL
    return &t.blends[slot]


cdef int load_free(NodeRecord* node, NodeView* view) noexcept nogil:
    """Mean free part of everything the node has (cpu, memory, each kind of device), as it stands: 0..1000. Before placing, because after it
    a small node would look more loaded than a big one by the task alone, and one with devices less than one without."""
    cdef int terms = 0, kind
    cdef int64_t total = 0
    if node.cpu_milli > 0:
        total += node.cpu_free * 1000 // node.cpu_milli
        terms += 1
    if node.memory_bytes > 0:
        total += (node.memory_free >> 20) * 1000 // max(node.memory_bytes >> 20, <int64_t> 1)
        terms += 1
    for kind in range(16):
        if view.devices[kind] > 0:
            total += view.free_milli[kind] // view.devices[kind]
            terms += 1
    return <int> max(<int64_t> 0, min(<int64_t> 1000, total // max(1, terms)))


cdef int blended(Tables* t, uint32_t slot, ShapeRecord* shape, NodeView* view, ClassView* shared, BlendRecord* blend) noexcept nogil:
    """The weighted mean of the terms, 0..1000. The shape fits."""
    cdef NodeRecord* node = &t.nodes[slot]
    cdef int64_t sum = 0
    cdef int free
    if blend.weights[TERM_TOLD] > 0 and slot < blend.told_size:
        sum += <int64_t> blend.weights[TERM_TOLD] * blend.told[slot] * 1000 // 255
    if blend.weights[TERM_PRESET] > 0:
        sum += <int64_t> blend.weights[TERM_PRESET] * preset_score(t, slot, shape, view, shared, PRESET_SPAN) * 1000 // (PRESET_SPAN - 1)
    if blend.weights[TERM_FRAGMENT] > 0:
        sum += <int64_t> blend.weights[TERM_FRAGMENT] * fragment_score(t, slot, shape, view, shared) * 1000 // 127
    if blend.weights[TERM_PACK] > 0 or blend.weights[TERM_SPREAD] > 0:
        free = free_after(node, shape, view, shared)
        sum += <int64_t> blend.weights[TERM_PACK] * (1000 - free) + <int64_t> blend.weights[TERM_SPREAD] * free
    if blend.weights[TERM_LOAD] > 0:
        sum += <int64_t> blend.weights[TERM_LOAD] * load_free(node, view)
    return <int> (sum // blend.total)


cdef int blended_step(Tables* t, uint32_t slot, ShapeRecord* shape, NodeView* view, ClassView* shared, BlendRecord* blend, int span) noexcept nogil:
    """The blend in 0..span - 1. Where no device is asked and the scores are equal, a node without any goes first: the last bit says so."""
    cdef int score = blended(t, slot, shape, view, shared, blend)
    if shape.ask_count > 0 or span < 4:
        return score * (span - 1) // 1000
    return score * (span // 2 - 1) // 1000 * 2 + (t.nodes[slot].device_count == 0)


cdef bint mark_few(Tables* t, BlendRecord* blend, const uint8_t* data, uint32_t size) except -1:
    """Marks the nodes of which something else is told than before, if they are few; else marks none, and the whole column is due."""
    cdef uint32_t at, changed = 0
    for at in range(max(size, blend.told_size)):
        changed += (data[at] if at < size else 0) != (blend.told[at] if at < blend.told_size else 0)
    if changed > FEW_NODES:
        return False
    for at in range(min(max(size, blend.told_size), t.nodes_used)):
        if (data[at] if at < size else 0) != (blend.told[at] if at < blend.told_size else 0):
            mark_only(t, at)
    return True


cdef int drop_told(Tables* t, uint32_t node) except -1:
    """The node's slot is given back: what was told of it is not told of the next node there."""
    cdef uint32_t at
    for at in range(t.blends_used):
        if node < t.blends[at].told_size:
            t.blends[at].told[node] = 0
    return 0


cdef void free_blends(Tables* t) noexcept:
    cdef uint32_t at
    for at in range(t.blends_used):
        free(t.blends[at].told)
    free(t.blends)


cdef int reserve_blends(Tables* t, uint32_t size) except -1:
    """Records for all shapes below `size`; new ones say nothing."""
    if size > t.blends_used:
        grow(<void**> &t.blends, &t.blends_capacity, sizeof(BlendRecord), size)
        memset(t.blends + t.blends_used, 0, (size - t.blends_used) * sizeof(BlendRecord))
        t.blends_used = size
    return 0


cdef class TermDoors(ShapeDoors):

    def set_shape_scores(self, uint32_t shape, bytes scores, weights, int level_top=7, models=()):
        cdef Tables* t = &self.t
        cdef BlendRecord fresh
        cdef BlendRecord* blend
        cdef const char* data = scores
        cdef bint same, few
        cdef int at
        self._shape(shape)
        if len(weights) != TERMS or any(not 0 <= weight <= 1000000 for weight in weights):
            raise ValueError(f"weights {tuple(weights)} are not {TERMS} integers 0..1000000")
        if not 1 <= level_top <= 7:
            raise ValueError(f"level_top {level_top} is not 1..7")
        memset(&fresh, 0, sizeof(BlendRecord))
        for at in range(TERMS):
            fresh.weights[at] = weights[at]
            fresh.total += weights[at]
        fresh.level_top = <uint8_t> level_top
        fresh.has_likes = len(models) > 1
        memset(fresh.liked, 63, sizeof(fresh.liked))
        for at, model in enumerate(models):
            if not 0 <= model < 64 or at == 64:
                raise ValueError(f"models {list(models)} are not at most 64 numbers 0..63")
            fresh.liked[<int> model] = <uint8_t> at
        reserve_blends(t, shape + 1)
        blend = &t.blends[shape]
        if (memcmp(fresh.weights, blend.weights, sizeof(fresh.weights)) == 0 and fresh.level_top == blend.level_top
                and blend.has_likes == fresh.has_likes and memcmp(fresh.liked, blend.liked, sizeof(fresh.liked)) == 0
                and blend.told_size == <uint32_t> len(scores) and memcmp(blend.told, data, len(scores)) == 0):
            return False
        same = memcmp(fresh.weights, blend.weights, sizeof(fresh.weights)) == 0 and fresh.level_top == blend.level_top
        few = same and mark_few(t, blend, <const uint8_t*> data, <uint32_t> len(scores))
        fresh.told = <uint8_t*> realloc(blend.told, max(1, len(scores)))
        if fresh.told == NULL:
            no_memory()
        memcpy(fresh.told, data, len(scores))
        fresh.told_size = <uint32_t> len(scores)
        blend[0] = fresh
        t.columns_moved = True
        if fresh.weights[TERM_FRAGMENT] > 0 and not t.blends_fragment:
            t.blends_fragment = True
            t.all_dirty = True
        if t.shapes[shape].column != NONE_ and not few:
            fill_column(t, shape)
        self._checked()
        return True

    def shape_terms(self, uint32_t shape, uint32_t node):
        cdef Tables* t = &self.t
        cdef NodeView view
        cdef int told = 0
        self._shape(shape)
        self._node(node)
        if shape < t.blends_used and node < t.blends[shape].told_size:
            told = t.blends[shape].told[node]
        view_node(t, node, &view)
        return told, load_free(&t.nodes[node], &view)
