# Who owns the tables: made empty, freed once; and the questions that every door asks of its arguments.

cdef class Tabled:
    cdef Tables t
    cdef bint is_checked       # check() after every door
    cdef dict verdicts         # shape -> (changes, verdict)

    def __cinit__(self, *args, **kwargs):
        cdef Tables* t = &self.t
        memset(t, 0, sizeof(Tables))
        arena_init(&t.keys)
        arena_init(&t.pieces)
        arena_init(&t.stories)
        t.tasks_free = NONE_
        t.allocations_free = NONE_
        t.nodes_free = NONE_
        t.gangs_free = NONE_
        t.gang_lane_first = NONE_
        t.aside_ns = INT64_MAX
        t.reserved_task = NONE_
        t.owner = NONE_
        t.gone_next = NONE_
        t.look_again_ns = INT64_MAX
        t.next_sequence = 1
        t.mix_every = 64
        t.changes = 1
        t.blast_radius = 8
        grow(<void**> &t.checkpoints, &t.checkpoints_capacity, sizeof(int64_t), 1)
        t.checkpoints_used = 1
        grow_lined(<void**> &t.nodes, &t.nodes_capacity, sizeof(NodeRecord), 1)
        t.nodes_capacity = t.nodes_capacity & ~<uint32_t> 7
        widen_trees(t)
        start_prices(t)
        self.verdicts = {}

    def __dealloc__(self):
        free_tables(&self.t)

    cdef int _checked(self) except -1:
        # Between the records of a frame a claim may stand before its victims are told to stop; what holds, holds for whole frames.
        if self.is_checked and not self.t.replaying:
            check_all(&self.t)
        return 0

    cdef int _task(self, uint32_t task) except -1:
        if task >= self.t.tasks_used or self.t.tasks[task].state == FREE_:
            raise IndexError(f"there is no task in slot {task}")
        return 0

    cdef int _node(self, uint32_t node) except -1:
        if node >= self.t.nodes_used or not self.t.nodes[node].is_present:
            raise IndexError(f"there is no node in slot {node}")
        return 0

    cdef int _device(self, uint32_t node, uint32_t device) except -1:
        self._node(node)
        if device >= self.t.nodes[node].device_count:
            raise IndexError(f"node {node} has {self.t.nodes[node].device_count} devices, there is no {device}")
        return 0

    cdef int _shape(self, uint32_t shape) except -1:
        if shape >= self.t.shapes_used:
            raise IndexError(f"there is no shape {shape}")
        return 0

    cdef int _queue(self, uint32_t queue) except -1:
        if queue >= self.t.queues_used:
            raise IndexError(f"there is no queue {queue}")
        return 0

    cdef int _gang(self, uint32_t gang) except -1:
        if gang >= self.t.gangs_used or not self.t.gangs[gang].is_present:
            raise IndexError(f"there is no gang {gang}")
        return 0

    cdef int _refused(self, uint32_t task, const char* why) except -1:
        """Raises if there is a reason."""
        if why != NULL:
            raise ValueError(f"task {task} is {STATE_NAMES[self.t.tasks[task].state]}: {why.decode()}")
        return 0


cdef void free_tables(Tables* t) noexcept:
    cdef uint32_t at
    cdef int part
    free_blends(t)
    for at in range(t.shapes_used):
        free(t.shapes[at].levels)
    for at in range(t.gangs_used):
        drop_slots(&t.gangs[at].members)
    for at in range(t.lanes_used):
        drop_slots(&t.lanes[at].run)
        drop_slots(&t.lanes[at].heap)
    for at in range(t.queues_used * LEVELS):
        free(t.lines[at].tried.at)
        free(t.lines[at].stalled.at)
    for at in range(t.trees_used):
        for part in range(MAX_DEPTH):
            free_lined(t.trees[at].cells[part])
    for part in range(65):
        drop_slots(&t.device_runs[part])
    for part in range(LEVELS):
        drop_slots(&t.active[part])
        drop_slots(&t.stalled[part])
        free(t.parked[part].at)
    free(t.shut)
    drop_slots(&t.parked_tasks)
    drop_slots(&t.claimers)
    drop_slots(&t.begun)
    drop_slots(&t.stale_gangs)
    drop_slots(&t.wounded)
    drop_slots(&t.wishes)
    drop_slots(&t.dirty)
    drop_slots(&t.plan.victims)
    drop_slots(&t.lifted)
    drop_slots(&t.doomed)
    drop_slots(&t.passing)
    drop_slots(&t.gone)
    for pointer in (<size_t> t.facts.data, <size_t> t.keys.base, <size_t> t.checkpoints,
                    <size_t> t.pieces.base, <size_t> t.shapes,
                    <size_t> t.queues, <size_t> t.lines, <size_t> t.gangs, <size_t> t.lanes, <size_t> t.trial, <size_t> t.plan.seats, <size_t> t.seat_prices, <size_t> t.kept, <size_t> t.moves,
                    <size_t> t.units, <size_t> t.evictions, <size_t> t.uses, <size_t> t.templates, <size_t> t.expectations,
                    <size_t> t.ends, <size_t> t.stories.base, <size_t> t.lane_index, <size_t> t.plain, <size_t> t.learned.data, <size_t> t.seats, <size_t> t.class_views, <size_t> t.outcomes, <size_t> t.prices, <size_t> t.fgd):
        free(<void*> <size_t> pointer)
    for at in range(SEGMENTS):
        free(t.index[at].at)
    free_lined(t.tasks)
    free_lined(t.allocations)
    free_lined(t.nodes)
    free_lined(t.trees)
    free_lined(t.devices)
    memset(t, 0, sizeof(Tables))
