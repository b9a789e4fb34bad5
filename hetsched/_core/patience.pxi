# Bounded waiting: a task that would spoil a device waits a while for one that it would not.
#
# Where little of a kind is free (below SCARCE_BELOW percent of what is open and in order), a task for a part of one device of it that finds
# only places where the rest would be of use to nobody (not less than LEAST_WASTE, and worth nothing by the prices) waits: until another
# place comes free, or until `patience_ns` after its submission. Then it takes the place of these that loses least.
#
# In the score trees such a place is the byte WASTEFUL, below every other that fits; so what waits by choice costs nothing to tell.
#
# Promises: nobody waits longer by this rule; the most urgent level does not wait, nor who has other wishes (models in order, node levels,
# weights), nor anybody in a lane whose order may change; nothing changes while enough is free. Who waits so keeps nobody back: no claim,
# no reservation. Nothing is written down: it follows from submission times, prices and what is free.

cdef enum:
    SCARCE_BELOW = 10          # percent free
    PLENTY_ABOVE = 12          # and until then it goes on, for to and fro every shape's bytes are computed anew


cdef int see_scarce(Tables* t) except -1 nogil:
    """Whether little is free, kind by kind; then all bytes anew. Before a decision."""
    cdef uint16_t scarce = 0
    cdef int kind
    cdef int64_t open_milli, free_milli
    if t.patience_ns > 0 and t.policy == POLICY_PRICE_:
        for kind in range(16):
            open_milli = t.capacity[2 + kind]
            free_milli = open_milli - t.live[2 + kind]
            if free_milli * 100 < open_milli * (PLENTY_ABOVE if (t.scarce >> kind) & 1 else SCARCE_BELOW):
                scarce |= 1 << kind
    if scarce != t.scarce:
        t.scarce = scarce
        t.all_dirty = True
        t.changes += 1
    return 0


cdef int64_t waits_until(Tables* t, LaneRecord* lane) noexcept nogil:
    """The lane's head waits by choice: until when at the latest; else 0. Trees are up to date."""
    cdef ShapeRecord* shape
    cdef int64_t until_ns
    if t.scarce == 0 or lane.shape == NONE_ or lane.qos == 0 or lane.is_mixed:
        return 0
    shape = &t.shapes[lane.shape]
    if shape.column == NONE_ or best_byte(t, shape) != WASTEFUL or not may_be_patient(t, shape):
        return 0
    until_ns = t.tasks[lane_head(t, lane)].submitted_ns + t.patience_ns
    return until_ns if t.now_ns < until_ns else 0


cdef uint32_t least_wasteful(Tables* t, ShapeRecord* shape) noexcept nogil:
    """Of the nodes with the byte WASTEFUL the one that loses least, lowest slot first."""
    cdef TreeRecord* tree = &t.trees[shape.column // COLUMNS]
    cdef ClassView* shared = &t.class_views[shape.ask_class]
    cdef uint32_t node, best = NONE_
    cdef int score, most = -1
    cdef NodeView view
    for node in range(t.nodes_used):
        if cell_of(tree, 0, node)[shape.column % COLUMNS] == WASTEFUL:
            view_node(t, node, &view)
            view_class(t, node, shape, &view, shared)
            score = price_score(t, node, shape, &view, shared, 254)
            if score > most:
                most = score
                best = node
    return best
