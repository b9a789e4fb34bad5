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


cdef inline void largest(Tables* t, NodeRecord* node) noexcept nogil:
    """The largest node so far, for scores that are parts of it."""
    t.most_cpu = max(t.most_cpu, node.cpu_milli, <int64_t> 1)
    t.most_milli = max(t.most_milli, <int64_t> node.device_count * 1000, <int64_t> 1000)


cdef int take_devices(Tables* t, uint8_t count, uint32_t* first) except -1 nogil:
    """A run of device records: one given back of this length, or new ones."""
    cdef Slots* runs = &t.device_runs[count]
    if runs.size > 0:
        runs.size -= 1
        first[0] = runs.at[runs.size]
        return 0
    grow_lined(<void**> &t.devices, &t.devices_capacity, sizeof(DeviceRecord), <uint64_t> t.devices_used + count)
    first[0] = t.devices_used
    t.devices_used += count
    return 0


cdef int take_node(Tables* t, uint32_t* slot) except -1 nogil:
    if t.nodes_free != NONE_:
        slot[0] = t.nodes_free
        t.nodes_free = t.nodes[t.nodes_free].device_first
        return 0
    if t.nodes_used == t.nodes_capacity:
        grow_lined(<void**> &t.nodes, &t.nodes_capacity, sizeof(NodeRecord), <uint64_t> t.nodes_used + 8)
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
        rows = [(*row, -1)[:6] for row in devices]  # no switch is told: in none
        if len(rows) > 64:
            raise ValueError(f"{len(rows)} devices, a node has at most 64")
        for kind, model, bytes_, numa, nvlink, pcie in rows:
            if (not 0 <= kind < 16 or not -1 <= model < 64 or bytes_ < -1
                    or any(not -1 <= group < 32768 for group in (numa, nvlink, pcie))):
                raise ValueError(f"device {(kind, model, bytes_, numa, nvlink, pcie)}: kind 0..15, model -1..63, memory >= -1, "
                                 "groups -1..32767")
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
        for at, (kind, model, bytes_, numa, nvlink, pcie) in enumerate(rows):
            device = &t.devices[first + at]
            memset(device, 0, sizeof(DeviceRecord))
            device.kind, device.model, device.numa, device.nvlink, device.pcie = kind, model, numa, nvlink, pcie
            device.memory_bytes = bytes_
            device.memory_free = max(bytes_, 0)
            device.share_free = 1000
            device.usable = True
            node.is_grouped |= named_levels(device) != 0
        t.nodes_count += 1
        if not rows:
            t.nodes_bare += 1
        for at in range(<int> t.shapes_used):  # a node that nothing was told of yet has level 1
            t.shapes[at].level_low = 1
        t.columns_moved = True
        t.all_dirty = True
        largest(t, node)
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
        drop_told(t, node)
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
        if not 0 <= policy < POLICIES:
            raise ValueError(f"policy {policy} is none of POLICY_*")
        self.t.policy = <uint8_t> policy
        if policy == POLICY_FGD_:
            take_typical(&self.t)
        self.t.all_dirty = True
        self.t.columns_moved = True

    def set_order(self, int order):
        if not 0 <= order <= ORDER_FIFO_:
            raise ValueError(f"order {order} is none of ORDER_*")
        if order != self.t.order:
            self.t.order = <uint8_t> order
            sort_all_lanes(&self.t)

    def set_overcommit(self, int64_t cpu_milli, int64_t memory_milli):
        if not 0 <= cpu_milli <= 100000 or not 0 <= memory_milli <= 100000:
            raise ValueError(f"overcommit {cpu_milli}, {memory_milli}: thousandths beyond a node's own from 0 to 100000")
        set_ratios(&self.t, cpu_milli, memory_milli)
        self._checked()

    def set_steering(self, int64_t gang_share_milli, int sharers_most):
        if not 0 <= gang_share_milli <= 1000 or not 0 <= sharers_most <= 1000:
            raise ValueError(f"gang share {gang_share_milli} and {sharers_most} sharers: both from 0 to 1000")
        self.t.gang_share = gang_share_milli
        if self.t.sharers_most != sharers_most:
            self.t.sharers_most = <uint16_t> sharers_most
            self.t.all_dirty = True

    def set_backfill(self, bint backfill):
        self.t.strict = not backfill
        self.t.frees += 1
        self.t.changes += 1

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
        queue.delay_ns = -1
        queue.parent = NONE_
        queue.key_stale = True
        if parent != NONE and parent >= 0:
            queue.parent = parent
            queue.depth = t.queues[queue.parent].depth + 1
            queue.has_limit = t.queues[queue.parent].has_limit
        for at in range(RESOURCES):
            queue.limit[at] = -1
        add_lines(t, t.queues_used)
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


cdef void note_limits(Tables* t) noexcept nogil:
    """Parents come before their children in the table."""
    cdef uint32_t at
    cdef int resource
    cdef QueueRecord* queue
    t.has_guarantees = False
    for at in range(t.queues_used):
        queue = &t.queues[at]
        queue.key_stale = True
        t.has_guarantees |= promise_of(t, at) == at
        queue.has_limit = queue.parent != NONE_ and t.queues[queue.parent].has_limit
        for resource in range(RESOURCES):
            queue.has_limit |= queue.limit[resource] >= 0
