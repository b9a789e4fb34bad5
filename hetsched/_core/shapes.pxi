# Doors about what is asked for: shapes and gangs. They write no facts, except that claims on nodes that words rule out are given up.

cdef enum:
    MODEL_STEPS = 16           # positions of a model list that are told apart


cdef class ShapeDoors(ClusterDoors):

    def add_shape(self, cpu_milli, memory_bytes, asks, int same, bint is_wish=False, *, bint soft=False):
        cdef Tables* t = &self.t
        cdef ShapeRecord* shape
        rows = [tuple(row) for row in asks]
        amount(cpu_milli, "cpu_milli")
        amount(memory_bytes, "memory_bytes")
        if len(rows) > MAX_ASKS or len({row[0] for row in rows}) < len(rows):
            raise ValueError(f"{len(rows)} asks; at most {MAX_ASKS}, one a kind")
        if not 0 <= same <= DEVICE_LEVELS:
            raise ValueError(f"same {same} is not 0, 1 (NUMA), 2 (NVLink) or 3 (PCIe switch)")
        for row in rows:
            check_ask(row)
        grow(<void**> &t.shapes, &t.shapes_capacity, sizeof(ShapeRecord), <uint64_t> t.shapes_used + 1)
        shape = &t.shapes[t.shapes_used]
        memset(shape, 0, sizeof(ShapeRecord))
        shape.cpu_milli = cpu_milli
        shape.memory_bytes = memory_bytes
        shape.same = <uint8_t> same
        shape.is_soft = soft
        shape.is_wish = is_wish and same != 0
        shape.level_top = 1
        shape.level_low = 1
        shape.column = NONE_
        shape.lane_first = NONE_
        for row in rows:
            write_ask(shape, row)
        if shape.device_count > MAX_PIECES:
            shape.device_count = MAX_PIECES + 1
        shape.ask_class = class_of(t, shape)
        t.shapes_used += 1
        return t.shapes_used - 1

    def set_shape_node(self, uint32_t shape, uint32_t node, int level):
        cdef Tables* t = &self.t
        self._shape(shape)
        self._node(node)
        if not 0 <= level <= 7:
            raise ValueError(f"level {level} is not 0..7")
        reserve_levels(t, &t.shapes[shape], node + 1)
        if t.shapes[shape].levels[node] == level:
            return
        t.shapes[shape].levels[node] = <uint8_t> level
        levels_moved(t, shape)

    def set_shape_nodes(self, uint32_t shape, bytes levels):
        cdef Tables* t = &self.t
        cdef const uint8_t* data = levels
        cdef uint32_t at
        cdef uint32_t count = min(<uint32_t> len(levels), t.nodes_used)
        self._shape(shape)
        if len(levels) and max(levels) > 7:
            raise ValueError(f"level {max(levels)} is not 0..7")
        reserve_levels(t, &t.shapes[shape], count)
        if memcmp(t.shapes[shape].levels, data, count) == 0:
            return
        memcpy(t.shapes[shape].levels, data, count)
        levels_moved(t, shape)

    # ------------------------------------------------------------------ gangs

    def add_gang(self, uint32_t size, uint32_t min_size, int column, int wish=-1):
        cdef Tables* t = &self.t
        cdef uint32_t slot
        if not 1 <= min_size <= size:
            raise ValueError(f"min_size {min_size} is not 1..size {size}")
        if not -1 <= column <= DOMAINS:
            raise ValueError(f"column {column} is not -1..{DOMAINS}")
        if not -1 <= wish <= DOMAINS or (wish >= 0 and column >= 0):
            raise ValueError(f"wish {wish} is not -1..{DOMAINS}, or column {column} is required already")
        slot = t.gangs_free
        if slot != NONE_:
            t.gangs_free = t.gangs[slot].next_free
        else:
            grow(<void**> &t.gangs, &t.gangs_capacity, sizeof(GangRecord), <uint64_t> t.gangs_used + 1)
            slot = t.gangs_used
            t.gangs_used += 1
        t.gangs[slot].size = size
        t.gangs[slot].min_size = min_size
        t.gangs[slot].succeeded = 0
        t.gangs[slot].no_start_ns = 0
        t.gangs[slot].no_proof = 0
        t.gangs[slot].broken_ns = 0
        t.gangs[slot].column = column
        t.gangs[slot].wish = wish
        t.gangs[slot].is_present = True
        return slot

    def remove_gang(self, uint32_t gang):
        cdef uint32_t at
        cdef Slots* members
        self._gang(gang)
        members = &self.t.gangs[gang].members
        for at in range(members.size):
            if not is_terminal(&self.t.tasks[members.at[at]]):
                raise ValueError(f"gang {gang} has a member that has not ended, task {members.at[at]}")
        for at in range(members.size):
            self.t.tasks[members.at[at]].gang = NONE_
        drop_slots(&self.t.gangs[gang].members)
        self.t.gangs[gang].is_present = False
        self.t.gangs[gang].next_free = self.t.gangs_free
        self.t.gangs_free = gang


cdef int check_ask(row) except -1:
    kind, whole, parts, part_milli, memory_bytes, models = row
    if not 0 <= kind < 16:
        raise ValueError(f"kind {kind} is not 0..15")
    if whole < 0 or parts < 0 or whole + parts == 0 or whole > 60000 or parts > 60000:
        raise ValueError(f"kind {kind}: {whole} whole devices and {parts} parts")
    if parts and not 0 < part_milli < 1000:
        raise ValueError(f"kind {kind}: a part of {part_milli} is not 1..999 thousandths")
    amount(memory_bytes, "memory_bytes")
    if any(not 0 <= model < 64 for model in models) or len(set(models)) < len(models):
        raise ValueError(f"kind {kind}: models {list(models)} are not different numbers 0..63")
    return 0


cdef void write_ask(ShapeRecord* shape, row):
    cdef AskRecord* ask = &shape.asks[shape.ask_count]
    cdef int position, model
    is_ordered = not isinstance(row[5], (set, frozenset))
    kind, whole, parts, part_milli, memory_bytes, models = row
    ask.kind, ask.whole, ask.parts = kind, whole, parts
    ask.part_milli = part_milli if parts else 0
    ask.memory_bytes = memory_bytes
    ask.model_count = <uint8_t> len(models)
    for position, model in enumerate(models):
        ask.models |= <uint64_t> 1 << model
        ask.rank[model] = <uint8_t> position if is_ordered else 0
    shape.ask_count += 1
    if is_ordered:
        shape.model_top = max(shape.model_top, min(<int> len(models), MODEL_STEPS))
    shape.device_milli += ask_milli(ask)
    shape.device_count = <uint16_t> min(60000, <int> shape.device_count + ask.whole + ask.parts)


cdef uint32_t class_of(Tables* t, ShapeRecord* shape) except? 0xFFFFFFFF:
    """That of an older shape with the same asks, or a new one."""
    cdef uint32_t at
    for at in range(t.shapes_used):
        if t.shapes[at].same == shape.same and t.shapes[at].is_wish == shape.is_wish and memcmp(t.shapes[at].asks, shape.asks, sizeof(shape.asks)) == 0:
            return t.shapes[at].ask_class
    reserve_classes(t, t.classes + 1)
    t.classes += 1
    return t.classes - 1


cdef int reserve_classes(Tables* t, uint32_t size) except -1 nogil:
    grow(<void**> &t.class_views, &t.class_views_capacity, sizeof(ClassView), size)
    return grow(<void**> &t.outcomes, &t.outcomes_capacity, sizeof(LeafOutcome), size)


cdef int reserve_levels(Tables* t, ShapeRecord* shape, uint32_t size) except -1:
    """A byte for every node slot up to `size`; new ones are 1."""
    cdef uint8_t* bigger
    if size <= shape.levels_size:
        return 0
    size = max(size, t.nodes_used)
    bigger = <uint8_t*> realloc(shape.levels, size)
    if bigger == NULL:
        no_memory()
    memset(bigger + shape.levels_size, 1, size - shape.levels_size)
    shape.levels = bigger
    shape.levels_size = size
    return 0


cdef int levels_moved(Tables* t, uint32_t slot) except -1:
    """The shape's column anew; its claims on nodes that are ruled out now are given up."""
    cdef ShapeRecord* shape = &t.shapes[slot]
    cdef uint32_t node
    shape.level_top = 1
    shape.level_low = 7
    for node in range(t.nodes_used):
        if t.nodes[node].is_present and level_of(shape, node) > 0:
            shape.level_top = max(shape.level_top, level_of(shape, node))
            shape.level_low = min(shape.level_low, level_of(shape, node))
    t.frees += 1
    t.changes += 1
    t.columns_moved = True
    if shape.column != NONE_:
        fill_column(t, slot)
    for node in range(shape.levels_size):
        if shape.levels[node] == 0 and node < t.nodes_used and t.nodes[node].is_present and t.nodes[node].claims > 0:
            give_up_claims_of(t, node, slot)
    return 0
