# Doors about what there is to place on and by which rules: nodes, devices, queues, shapes, gangs. They write no facts (the scheduler's
# words do), except that claims on what went away are given up.

cdef inline void count_capacity(Tables* t, NodeRecord* node, int sign) noexcept nogil:
    """An open node's amounts enter (1) or leave (-1) the capacity; unusable devices are not counted."""
    cdef uint32_t at
    if not node.is_open:
        return
    t.capacity[0] += sign * node.cpu_milli
    t.capacity[1] += sign * node.memory_bytes
    for at in range(node.device_first, node.device_first + node.device_count):
        if t.devices[at].usable:
            t.capacity[2 + t.devices[at].kind] += sign * 1000
    for at in range(t.queues_used):
        t.queues[at].key_stale = True


cdef int take_devices(Tables* t, uint8_t count, uint32_t* first) except -1 nogil:
    """A run of device records: one given back of this length, or new ones."""
    cdef Slots* runs = &t.device_runs[count]
    if runs.size > 0:
        runs.size -= 1
        first[0] = runs.at[runs.size]
        return 0
    grow(<void**> &t.devices, &t.devices_capacity, sizeof(DeviceRecord), <uint64_t> t.devices_used + count)
    first[0] = t.devices_used
    t.devices_used += count
    return 0


cdef int take_node(Tables* t, uint32_t* slot) except -1 nogil:
    if t.nodes_free != NONE_:
        slot[0] = t.nodes_free
        t.nodes_free = t.nodes[t.nodes_free].device_first
        return 0
    if t.nodes_used == t.nodes_capacity:
        grow(<void**> &t.nodes, &t.nodes_capacity, sizeof(NodeRecord), <uint64_t> t.nodes_used + 8)
        t.nodes_capacity = t.nodes_capacity & ~<uint32_t> 7
        widen_trees(t)
    slot[0] = t.nodes_used
    t.nodes_used += 1
    return 0


cdef int moved(Tables* t, uint32_t node, bint grew) except -1 nogil:
    """The node changed for everybody; `grew`: somebody may fit who did not."""
    mark(t, node)
    if grew:
        t.frees += 1
    return 0


cdef int64_t amount(object value, str name) except -1:
    if value < 0 or value > 1 << 53:
        raise ValueError(f"{name} {value} is not between 0 and 2^53")
    return value


cdef class ClusterDoors(Tabled):

    def add_node(self, cpu_milli, memory_bytes, devices):
        cdef Tables* t = &self.t
        cdef uint32_t slot, first
        cdef int at
        cdef NodeRecord* node
        cdef DeviceRecord* device
        rows = [tuple(row) for row in devices]
        if len(rows) > 64:
            raise ValueError(f"{len(rows)} devices, a node has at most 64")
        for kind, model, bytes_, numa, nvlink in rows:
            if not 0 <= kind < 16 or not -1 <= model < 64 or bytes_ < -1 or not -1 <= numa < 32768 or not -1 <= nvlink < 32768:
                raise ValueError(f"device {(kind, model, bytes_, numa, nvlink)}: kind 0..15, model -1..63, memory >= -1, groups -1..32767")
        amount(cpu_milli, "cpu_milli")
        amount(memory_bytes, "memory_bytes")
        take_devices(t, <uint8_t> len(rows), &first)
        take_node(t, &slot)
        node = &t.nodes[slot]
        cdef uint8_t marked = node.marked
        memset(node, 0, sizeof(NodeRecord))
        node.marked = marked
        node.cpu_milli = node.cpu_free = cpu_milli
        node.memory_bytes = node.memory_free = memory_bytes
        node.device_first = first
        node.allocation_first = NONE_
        node.device_count = <uint8_t> len(rows)
        node.is_present = True
        node.is_open = True
        for at in range(DOMAINS):
            node.domain[at] = -1
        for at, (kind, model, bytes_, numa, nvlink) in enumerate(rows):
            device = &t.devices[first + at]
            memset(device, 0, sizeof(DeviceRecord))
            device.kind, device.model, device.numa, device.nvlink = kind, model, numa, nvlink
            device.memory_bytes = bytes_
            device.memory_free = max(bytes_, 0)
            device.share_free = 1000
            device.usable = True
            node.is_grouped |= numa >= 0 or nvlink >= 0
        t.nodes_count += 1
        if not rows:
            t.nodes_bare += 1
        t.all_dirty = True
        count_capacity(t, node, 1)
        moved(t, slot, True)
        self._checked()
        return slot

    def remove_node(self, uint32_t node):
        cdef Tables* t = &self.t
        cdef uint32_t shape
        self._node(node)
        cdef NodeRecord* record = &t.nodes[node]
        if record.allocations or record.claims:
            raise ValueError(f"node {node} has {record.allocations} live allocations and {record.claims} claims")
        count_capacity(t, record, -1)
        t.nodes_count -= 1
        if record.device_count == 0:
            t.nodes_bare -= 1
        t.all_dirty = True
        push(&t.device_runs[record.device_count], record.device_first)
        for shape in range(t.shapes_used):
            if node < t.shapes[shape].levels_size:
                t.shapes[shape].levels[node] = 1
        moved(t, node, False)
        cdef uint8_t marked = record.marked
        memset(record, 0, sizeof(NodeRecord))
        record.marked = marked
        record.device_first = t.nodes_free
        t.nodes_free = node
        self._checked()

    def open_node(self, uint32_t node, bint is_open):
        cdef Tables* t = &self.t
        self._node(node)
        if t.nodes[node].is_open == is_open:
            return
        count_capacity(t, &t.nodes[node], -1)
        t.nodes[node].is_open = is_open
        count_capacity(t, &t.nodes[node], 1)
        moved(t, node, is_open)
        if not is_open:
            give_up_claims(t, node, -1)
        self._checked()

    def set_device_usable(self, uint32_t node, uint32_t device, bint usable):
        cdef Tables* t = &self.t
        self._device(node, device)
        cdef DeviceRecord* record = &t.devices[t.nodes[node].device_first + device]
        if record.usable == usable:
            return
        count_capacity(t, &t.nodes[node], -1)
        record.usable = usable
        count_capacity(t, &t.nodes[node], 1)
        moved(t, node, usable)
        if not usable:
            give_up_claims(t, node, <int> device)
        self._checked()

    def set_node_domain(self, uint32_t node, int column, int32_t value):
        self._node(node)
        if not 0 <= column < DOMAINS:
            raise ValueError(f"column {column} is not 0..{DOMAINS - 1}")
        self.t.nodes[node].domain[column] = max(value, -1)
        moved(&self.t, node, True)

    def set_policy(self, int policy):
        if not 0 <= policy <= POLICY_FIRST_FIT_:
            raise ValueError(f"policy {policy} is none of POLICY_*")
        self.t.policy = <uint8_t> policy
        self.t.all_dirty = True

    # ------------------------------------------------------------------ queues

    def add_queue(self, parent, int64_t weight):
        cdef Tables* t = &self.t
        cdef QueueRecord* queue
        cdef int at
        if parent != NONE and parent >= 0:
            self._queue(parent)
        if not 0 < weight <= 1000000:
            raise ValueError(f"weight {weight} is not 1..1000000")
        if t.queues_used == 65535:
            raise ValueError("there are 65535 queues already")
        grow(<void**> &t.queues, &t.queues_capacity, sizeof(QueueRecord), <uint64_t> t.queues_used + 1)
        queue = &t.queues[t.queues_used]
        memset(queue, 0, sizeof(QueueRecord))
        queue.weight = weight
        queue.parent = NONE_
        queue.key_stale = True
        if parent != NONE and parent >= 0:
            queue.parent = parent
            queue.depth = t.queues[queue.parent].depth + 1
            queue.has_limit = t.queues[queue.parent].has_limit
        for at in range(RESOURCES):
            queue.limit[at] = -1
        for at in range(LEVELS):
            queue.active_at[at] = NONE_
        t.queues_used += 1
        return t.queues_used - 1

    def set_queue(self, uint32_t queue, int64_t weight, guaranteed, limit):
        cdef Tables* t = &self.t
        cdef QueueRecord* record
        cdef uint32_t at
        cdef int resource
        self._queue(queue)
        if not 0 < weight <= 1000000:
            raise ValueError(f"weight {weight} is not 1..1000000")
        for pairs in (guaranteed, limit):
            for which, value in pairs:
                if not 0 <= which < RESOURCES:
                    raise ValueError(f"resource {which} is not 0..{RESOURCES - 1}")
                amount(value, "amount")
        record = &t.queues[queue]
        record.weight = weight
        for resource in range(RESOURCES):
            record.guaranteed[resource] = 0
            record.limit[resource] = -1
        for which, value in guaranteed:
            resource = which
            record.guaranteed[resource] = value
        for which, value in limit:
            resource = which
            record.limit[resource] = value
        note_limits(t)
        t.frees += 1
        t.changes += 1

    # ------------------------------------------------------------------ shapes

    def add_shape(self, cpu_milli, memory_bytes, asks, int same):
        cdef Tables* t = &self.t
        cdef ShapeRecord* shape
        rows = [tuple(row) for row in asks]
        amount(cpu_milli, "cpu_milli")
        amount(memory_bytes, "memory_bytes")
        if len(rows) > MAX_ASKS or len({row[0] for row in rows}) < len(rows):
            raise ValueError(f"{len(rows)} asks; at most {MAX_ASKS}, one a kind")
        if not 0 <= same <= 2:
            raise ValueError(f"same {same} is not 0, 1 (NUMA) or 2 (NVLink)")
        for row in rows:
            check_ask(row)
        grow(<void**> &t.shapes, &t.shapes_capacity, sizeof(ShapeRecord), <uint64_t> t.shapes_used + 1)
        shape = &t.shapes[t.shapes_used]
        memset(shape, 0, sizeof(ShapeRecord))
        shape.cpu_milli = cpu_milli
        shape.memory_bytes = memory_bytes
        shape.same = <uint8_t> same
        shape.level_top = 1
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

    def add_gang(self, uint32_t size, uint32_t min_size, int column):
        cdef Tables* t = &self.t
        cdef uint32_t slot
        if not 1 <= min_size <= size:
            raise ValueError(f"min_size {min_size} is not 1..size {size}")
        if not -1 <= column <= DOMAINS:
            raise ValueError(f"column {column} is not -1..{DOMAINS}")
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
        t.gangs[slot].column = column
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
    kind, whole, parts, part_milli, memory_bytes, models = row
    ask.kind, ask.whole, ask.parts = kind, whole, parts
    ask.part_milli = part_milli if parts else 0
    ask.memory_bytes = memory_bytes
    ask.model_count = <uint8_t> len(models)
    for position, model in enumerate(models):
        ask.models |= <uint64_t> 1 << model
        ask.rank[model] = <uint8_t> position
    shape.ask_count += 1
    shape.model_top = max(shape.model_top, min(<int> len(models), MODEL_STEPS))
    shape.device_milli += ask_milli(ask)
    shape.device_count = <uint16_t> min(60000, <int> shape.device_count + ask.whole + ask.parts)


cdef uint32_t class_of(Tables* t, ShapeRecord* shape) except? 0xFFFFFFFF:
    """That of an older shape with the same asks, or a new one."""
    cdef uint32_t at
    for at in range(t.shapes_used):
        if t.shapes[at].same == shape.same and memcmp(t.shapes[at].asks, shape.asks, sizeof(shape.asks)) == 0:
            return t.shapes[at].ask_class
    grow(<void**> &t.class_views, &t.class_views_capacity, sizeof(ClassView), <uint64_t> t.classes + 1)
    t.classes += 1
    return t.classes - 1


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
    for node in range(shape.levels_size):
        shape.level_top = max(shape.level_top, shape.levels[node])
    t.frees += 1
    t.changes += 1
    if shape.column != NONE_:
        fill_column(t, slot)
    for node in range(shape.levels_size):
        if shape.levels[node] == 0 and node < t.nodes_used and t.nodes[node].is_present and t.nodes[node].claims > 0:
            give_up_claims_of(t, node, slot)
    return 0


cdef void note_limits(Tables* t) noexcept nogil:
    """Parents come before their children in the table."""
    cdef uint32_t at
    cdef int resource
    cdef QueueRecord* queue
    for at in range(t.queues_used):
        queue = &t.queues[at]
        queue.key_stale = True
        queue.has_limit = queue.parent != NONE_ and t.queues[queue.parent].has_limit
        for resource in range(RESOURCES):
            queue.has_limit |= queue.limit[resource] >= 0
