# The tables as a whole: dump, load, digest, check.
#
# Promises: load(dump()) and a replay of all facts reach the same digest as the live tables, and the same slots from then on: free lists
# are part of the state. Derived structures (index, lanes, trees, counters by state) are left out and built again.
#
# Format: magic, then sections of (length 8, bytes), crc32 of all that at the end. The first says, as JSON, which version wrote it, the names
# of the other sections, and what a record of each looks like (records); so a build with other records finds every field by name.

MAGIC = b"hetcore5"
SECTIONS = ("scalars", "tasks", "keys", "checkpoints", "allocations", "pieces", "nodes", "devices", "shapes", "queues", "gangs", "evictions",
            "templates", "expectations", "levels", "device_runs", "uses", "stories")


cdef bytes raw(const void* data, size_t size):
    return (<const char*> data)[:size] if size else b""


cdef class Room:
    """Memory for copies. It is written once when it is made, which may happen in a thread: to fault in eighty megabytes page by page takes three
    times as long as to fill them, and whoever copies has no time."""

    cdef uint8_t* data
    cdef size_t size
    cdef size_t used

    def __cinit__(self, size_t size):
        self.data = <uint8_t*> malloc(max(size, 1))
        if self.data == NULL:
            raise MemoryError(f"no room for a copy of {size} bytes")
        self.size = size
        with nogil:
            memset(self.data, 0, size)

    def __dealloc__(self):
        free(self.data)

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.data, <Py_ssize_t> self.size, 1, flags)

    cdef object copy(self, const void* data, size_t size):
        """A view of the copy; bytes of their own where there is no more room."""
        cdef size_t begin = self.used
        if size > self.size - begin:
            return raw(data, size)
        memcpy(self.data + begin, data, size)
        self.used += size
        return memoryview(self)[begin:begin + size]


cdef bytes packed(object sections):
    return b"".join([len(section).to_bytes(8, "little") + section for section in sections])


cdef bytes header_section():
    from hetsched import __version__

    return json.dumps({"written_by": __version__, "sections": SECTIONS, "layout": LAYOUT}, sort_keys=True).encode()


cdef struct Scalars:
    # What the tables are besides records.
    int64_t now_ns, blast_radius, mix_total, mix_since, mix_every
    int64_t mix_weight[MIX_SHAPES]
    uint64_t next_sequence, oscillations
    uint32_t tasks_free, allocations_free, nodes_free, gangs_free, mix_size, policy, order
    uint32_t mix[MIX_SHAPES]
    uint32_t key_free[ARENA_CLASSES]
    uint32_t piece_free[ARENA_CLASSES]
    AgeClass ages[AGE_CLASSES]
    int64_t accepted_ns
    uint32_t ages_used
    int64_t over_cpu, over_memory, gang_share, sharers_most
    uint32_t story_free[ARENA_CLASSES]


cdef void read_scalars(Tables* t, Scalars* scalars) noexcept nogil:
    memset(scalars, 0, sizeof(Scalars))
    scalars.now_ns, scalars.blast_radius = t.now_ns, t.blast_radius
    scalars.mix_total, scalars.mix_since, scalars.mix_every, scalars.mix_size = t.mix_total, t.mix_since, t.mix_every, t.mix_size
    memcpy(scalars.mix, t.mix, sizeof(scalars.mix))
    memcpy(scalars.mix_weight, t.mix_weight, sizeof(scalars.mix_weight))
    scalars.next_sequence, scalars.policy, scalars.oscillations = t.next_sequence, t.policy, t.oscillations
    scalars.tasks_free, scalars.allocations_free = t.tasks_free, t.allocations_free
    scalars.nodes_free, scalars.gangs_free = t.nodes_free, t.gangs_free
    memcpy(scalars.key_free, t.keys.free_first, sizeof(scalars.key_free))
    memcpy(scalars.piece_free, t.pieces.free_first, sizeof(scalars.piece_free))
    memcpy(scalars.ages, t.ages, t.ages_used * sizeof(AgeClass))
    scalars.ages_used, scalars.accepted_ns, scalars.order = t.ages_used, t.accepted_ns, t.order
    scalars.over_cpu, scalars.over_memory = t.over_cpu, t.over_memory
    scalars.gang_share, scalars.sharers_most = t.gang_share, t.sharers_most
    memcpy(scalars.story_free, t.stories.free_first, sizeof(scalars.story_free))


cdef void write_scalars(Tables* t, const Scalars* scalars) noexcept:
    t.now_ns, t.blast_radius = scalars.now_ns, scalars.blast_radius
    t.mix_total, t.mix_since, t.mix_every, t.mix_size = scalars.mix_total, scalars.mix_since, scalars.mix_every, scalars.mix_size
    memcpy(t.mix, scalars.mix, sizeof(scalars.mix))
    memcpy(t.mix_weight, scalars.mix_weight, sizeof(scalars.mix_weight))
    t.next_sequence, t.policy, t.oscillations = scalars.next_sequence, <uint8_t> scalars.policy, scalars.oscillations
    t.tasks_free, t.allocations_free = scalars.tasks_free, scalars.allocations_free
    t.nodes_free, t.gangs_free = scalars.nodes_free, scalars.gangs_free
    memcpy(t.keys.free_first, scalars.key_free, sizeof(scalars.key_free))
    memcpy(t.pieces.free_first, scalars.piece_free, sizeof(scalars.piece_free))
    memcpy(t.ages, scalars.ages, sizeof(scalars.ages))
    t.ages_used, t.accepted_ns, t.order = scalars.ages_used, scalars.accepted_ns, <uint8_t> scalars.order
    t.over_cpu, t.over_memory = scalars.over_cpu, scalars.over_memory
    t.gang_share, t.sharers_most = scalars.gang_share, <uint16_t> scalars.sharers_most
    memcpy(t.stories.free_first, scalars.story_free, sizeof(scalars.story_free))


cdef class Whole(Questions):

    def check(self):
        check_all(&self.t)

    def digest(self):
        return digest_tables(&self.t)

    def dump(self):
        return b"".join(sealed(self.copied()))

    def bytes_to_copy(self):
        return self.t.tasks_used * sizeof(TaskRecord) + <size_t> self.t.keys.used * 8

    def copied(self, Room room=None):
        cdef Tables* t = &self.t
        cdef Scalars scalars
        cdef uint32_t at
        let_stories_go(t)
        read_scalars(t, &scalars)
        if room is None:
            room = Room(0)
        return [
            header_section(), raw(&scalars, sizeof(Scalars)),
            plain_tasks(t, room), room.copy(t.keys.base, <size_t> t.keys.used * 8),
            raw(t.checkpoints, t.checkpoints_used * sizeof(int64_t)),
            raw(t.allocations, t.allocations_used * sizeof(AllocationRecord)), raw(t.pieces.base, <size_t> t.pieces.used * 8),
            plain_nodes(t), raw(t.devices, t.devices_used * sizeof(DeviceRecord)),
            plain_shapes(t), plain_queues(t), plain_gangs(t), raw(t.evictions, t.evictions_used * sizeof(EvictionRecord)),
            raw(t.templates, t.templates_used * sizeof(TemplateRecord)), raw(t.expectations, t.expectations_used * sizeof(ExpectationRecord)),
            packed([raw(t.shapes[at].levels, t.shapes[at].levels_size) for at in range(t.shapes_used)]),
            packed([raw(t.device_runs[at].at, <size_t> t.device_runs[at].size * 4) for at in range(65)]),
            raw(t.uses, t.uses_used * sizeof(UseRecord)), raw(t.stories.base, <size_t> t.stories.used * 8),
        ]

    @staticmethod
    def load(bytes data, *, bint checked=False):
        cdef Core core = Core.__new__(Core)
        sections = read_sections(data)
        core.is_checked = checked or HETSCHED_CHECKED
        load_tables(&core.t, sections)
        with nogil:
            rebuild(&core.t)
        core._checked()
        return core


def sealed(list copied):
    parts = [MAGIC]
    for section in copied:
        parts += (len(section).to_bytes(8, "little"), section)
    checksum = 0
    for part in parts:
        checksum = zlib.crc32(part, checksum)
    return [*parts, checksum.to_bytes(4, "little")]  # not joined: a dump is megabytes, and is copied by who needs it whole


# Equal states dump to equal bytes: what is derived, and every pointer, is blanked in the copy.

cdef object plain_tasks(Tables* t, Room room):
    cdef object section = room.copy(t.tasks, t.tasks_used * sizeof(TaskRecord))
    cdef Py_buffer view
    cdef TaskRecord* records
    cdef uint32_t at
    PyObject_GetBuffer(section, &view, PyBUF_SIMPLE)
    records = <TaskRecord*> view.buf
    for at in range(t.tasks_used):
        if is_waiting(&records[at]):
            records[at].place = NONE_
    PyBuffer_Release(&view)
    return section


cdef bytes plain_nodes(Tables* t):
    cdef bytes section = raw(t.nodes, t.nodes_used * sizeof(NodeRecord))
    cdef NodeRecord* records = <NodeRecord*> <char*> section
    cdef uint32_t at
    for at in range(t.nodes_used):
        records[at].marked = False
        records[at].cpu_extra = records[at].memory_extra = 0
        memset(records[at].evictable, 0, sizeof(records[at].evictable))
    return section


cdef bytes plain_shapes(Tables* t):
    cdef bytes section = raw(t.shapes, t.shapes_used * sizeof(ShapeRecord))
    cdef ShapeRecord* records = <ShapeRecord*> <char*> section
    cdef uint32_t at
    for at in range(t.shapes_used):
        records[at].levels = NULL
        records[at].pending = 0
        records[at].column = NONE_
        records[at].lane_first = NONE_
        records[at].idle_since = 0
    return section


cdef bytes plain_queues(Tables* t):
    cdef bytes section = raw(t.queues, t.queues_used * sizeof(QueueRecord))
    cdef QueueRecord* records = <QueueRecord*> <char*> section
    cdef uint32_t at
    for at in range(t.queues_used):
        records[at].delay_ns = 0
        records[at].key = 0
        records[at].key_stale = True
    return section


cdef bytes plain_gangs(Tables* t):
    cdef bytes section = raw(t.gangs, t.gangs_used * sizeof(GangRecord))
    cdef GangRecord* records = <GangRecord*> <char*> section
    cdef uint32_t at
    for at in range(t.gangs_used):
        memset(&records[at].members, 0, sizeof(Slots))
        records[at].is_stale = False
        records[at].no_start_ns = 0
        records[at].no_proof = 0
        records[at].is_wounded = False
    return section
