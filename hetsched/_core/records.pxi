# What the records of a dump look like, in words that travel with the dump: a build with other records reads them by name.
#
# `name:u4` is a field as `_core.pxd` declares it, unsigned (i: signed) of 4 bytes; `name:i8*18=-1` are 18 of them, -1 where a dump lacks
# them (0 if not said); `name:ask*4` are records of that kind. A leading `-` marks what is derived: it takes room and is not read.
#
# Promises: every field of a dump finds its way or the dump is refused; none is read as another. A field that only the dump has, or a number
# that does not fit any more, may be let go where it says nothing (its default); else the refusal names it and the version that wrote it.
#
# To change a record: change it here too (a test compares), with the default that means "as before". A field whose meaning is gone for good,
# whatever it says, goes into DROPPED. One that means something else from now on gets another name.

LAYOUT = {
    "scalars": "now_ns:i8 blast_radius:i8 mix_total:i8 mix_since:i8 mix_every:i8 mix_weight:i8*32 next_sequence:u8 oscillations:u8 "
               "tasks_free:u4=4294967295 allocations_free:u4=4294967295 nodes_free:u4=4294967295 gangs_free:u4=4294967295 mix_size:u4 "
               "policy:u4 order:u4 mix:u4*32 key_free:u4*40=4294967295 piece_free:u4*40=4294967295 ages:age*256 accepted_ns:i8 ages_used:u4 "
               "over_cpu:i8 over_memory:i8 gang_share:i8 sharers_most:i8 story_free:u4*40=4294967295",
    "age": "first_sequence:u8 begun_ns:i8",
    "tasks": "submitted_ns:i8 deadline_ns:i8=9223372036854775807 changed_ns:i8 sequence:u8 shape:u4 template_:u4 gang:u4=4294967295 "
             "place:u4=4294967295 key:u4 queue:u2 priority:i2 attempt:u2 checkpoint:u2 failures:u1 preemptions:u1 state:u1 flags:u1",
    "allocations": "placed_ns:i8 started_ns:i8 cost:i8 task:u4 node:u4 next_on_node:u4 previous_on_node:u4 pieces:u4 "
                   "claim:u4=4294967295 next_victim:u4=4294967295 first_victim:u4=4294967295 victims:u2 count:u1 lane:u1 is_claim:u1 "
                   "is_live:u1 -lifted_by:u2",
    "uses": "cpu_idle:i8 memory_idle:i8",
    "nodes": "cpu_milli:i8 memory_bytes:i8 cpu_free:i8 memory_free:i8 device_first:u4 allocation_first:u4 allocations:u4 claims:u4 "
             "device_count:u1 is_present:u1 is_open:u1 is_grouped:u1 -marked:u1 cpu_soft:i8 memory_soft:i8 cpu_idle:i8 memory_idle:i8 "
             "-cpu_extra:i8 -memory_extra:i8 -evictable:u4*4 domain:i4*8=-1 -unused:u8*5",
    "devices": "memory_bytes:i8=-1 memory_free:i8 numa:i2=-1 nvlink:i2=-1 kind:u1 model:i1=-1 share_free:i2 pcie:i2=-1 -sharers:u2 usable:u1",
    "ask": "memory_bytes:i8 models:u8 whole:u2 parts:u2 part_milli:u2 kind:u1 model_count:u1 rank:u1*64",
    "shapes": "cpu_milli:i8 memory_bytes:i8 popularity:i8 asks:ask*4 ask_count:u1 same:u1 level_top:u1 model_top:u1 device_count:u2 "
              "level_low:u1 is_soft:u1 is_wish:u1 device_milli:i8 -levels:u8 levels_size:u4 -pending:u4 ask_class:u4 -column:u4 -lane_first:u4 "
              "-idle_since:u8",
    "queues": "used:i8*18 guaranteed:i8*18 limit:i8*18=-1 weight:i8 parent:u4=4294967295 depth:u4 -delay_ns:i8 -key:u8 -key_stale:u1 has_limit:u1",
    "slots": "-at:u8 -size:u4 -capacity:u4",
    "gangs": "-members:slots size:u4 min_size:u4 succeeded:u4 column:i4=-1 next_free:u4 broken_ns:i8 -no_start_ns:i8 -no_proof:u8 is_present:u1 -is_wounded:u1 -is_stale:u1 wish:i4=-1",
    "evictions": "sequence:u8 at_ns:i8",
    "templates": "said_ns:i8 grace_ns:i8 expectation:u4=4294967295 trust:u1",
    "expectations": "expected_ns:i8 typical_ns:i8 efficiency_milli:i4=-1 beats_estimates:u1",
}
DROPPED = frozenset({
    "devices.memory_live", "devices.share_live",                                       # follow from what is free and from the claims
    "templates.expected_ns", "templates.typical_ns", "templates.efficiency_milli",     # are said anew, and in expectations
})

Field = namedtuple("Field", "name offset bytes signed count default repeat stride")


cdef tuple fields_of(dict layout, str record):
    """(its fields that are read, its size, what it is aligned to), by the rules of C."""
    fields, offset, widest = [], 0, 1
    for word in layout[record].split():
        name, _, kind = word.partition(":")
        kind, _, default = kind.partition("=")
        kind, _, count = kind.partition("*")
        count, inner = int(count or 1), None
        if kind in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"):
            size = aligned = int(kind[1])
        elif kind not in layout:
            raise ValueError(f"{record}.{name} is of a sort ({kind}) that this version cannot read")
        else:
            inner, size, aligned = fields_of(layout, kind)
        offset = -(-offset // aligned) * aligned
        if inner is not None and name[0] != "-":
            fields += [one._replace(name=f"{name}.{one.name}", offset=offset + one.offset, repeat=count, stride=size) for one in inner]
        elif name[0] != "-":
            fields.append(Field(name, offset, size, kind[0] == "i", count, int(default or 0), 1, 0))
        offset += size * count
        widest = max(widest, aligned)
    return fields, -(-offset // widest) * widest, widest


cdef int check_layout() except -1:
    """The words above are as long as the records are."""
    sizes = {"scalars": sizeof(Scalars), "tasks": sizeof(TaskRecord), "allocations": sizeof(AllocationRecord), "nodes": sizeof(NodeRecord),
             "devices": sizeof(DeviceRecord), "shapes": sizeof(ShapeRecord), "queues": sizeof(QueueRecord), "gangs": sizeof(GangRecord),
             "evictions": sizeof(EvictionRecord), "templates": sizeof(TemplateRecord),
             "expectations": sizeof(ExpectationRecord), "uses": sizeof(UseRecord)}
    for record, size in sizes.items():
        assert fields_of(LAYOUT, record)[1] == size, f"LAYOUT of {record} is not that of its record"
    return 0


# ---------------------------------------------------------------- from one layout into the other

cdef struct Column:
    # A Field, for the loop.
    uint64_t offset            # bytes
    uint64_t stride            # bytes
    uint32_t repeat
    uint32_t count
    uint8_t bytes
    uint8_t signed_
    int64_t default_


cdef Column column_of(object field):
    cdef Column column
    column.offset, column.stride, column.repeat, column.count = field.offset, field.stride, field.repeat, field.count
    column.bytes, column.signed_, column.default_ = field.bytes, field.signed, field.default
    return column


cdef inline int64_t read_number(const Column* column, const uint8_t* at) noexcept nogil:
    """Of u8 beyond 2^63 the same bits, which only u8 takes."""
    cdef uint64_t value = 0
    cdef int unused = 64 - 8 * column.bytes
    memcpy(&value, at, column.bytes)
    return (<int64_t> (value << unused)) >> unused if column.signed_ else <int64_t> value


cdef inline bint fits_column(const Column* column, const Column* source, int64_t value) noexcept nogil:
    cdef int unused = 64 - 8 * column.bytes
    if value < 0 and not source.signed_:
        return column.bytes == 8 and not column.signed_
    if column.signed_:
        return (<int64_t> (<uint64_t> value << unused)) >> unused == value
    return value >= 0 and (unused == 0 or value >> (8 * column.bytes) == 0)


cdef inline const uint8_t* number_at(const Column* column, const uint8_t* record, uint32_t group, uint32_t at) noexcept nogil:
    return record + column.offset + group * column.stride + <size_t> at * column.bytes


cdef bint move_column(const Column* to, uint8_t* record, const Column* source, const uint8_t* old) noexcept nogil:
    """One field of one record; False if some number has no place. Without a source: its default."""
    cdef uint32_t group, at
    cdef int64_t value
    for group in range(to.repeat):
        for at in range(to.count):
            value = to.default_
            if source != NULL and group < source.repeat and at < source.count:
                value = read_number(source, number_at(source, old, group, at))
                if not fits_column(to, source, value):
                    return False
            memcpy(<uint8_t*> number_at(to, record, group, at), &value, to.bytes)
    return source == NULL or is_silent(source, old, to.repeat, to.count)


cdef bint is_silent(const Column* source, const uint8_t* old, uint32_t groups, uint32_t numbers) noexcept nogil:
    """What lies beyond the first `numbers` of the first `groups` is all default."""
    cdef uint32_t group, at
    for group in range(source.repeat):
        for at in range(source.count):
            if (group >= groups or at >= numbers) and read_number(source, number_at(source, old, group, at)) != source.default_:
                return False
    return True


cdef bytes into_our_records(str record, bytes section, dict layout, str writer):
    """The section with its records as this build has them."""
    cdef Column to, source
    cdef bint fits = True
    cdef const uint8_t* old = section
    theirs, their_size, _ = fields_of(layout, record)
    ours, our_size, _ = fields_of(LAYOUT, record)
    cdef uint64_t from_stride = their_size, to_stride = our_size, count = len(section) // their_size, at
    cdef bytes result = bytes(count * our_size)
    cdef uint8_t* new = result
    known = {field.name: field for field in theirs}
    for field in ours:
        to = column_of(field)
        found = known.pop(field.name, None)
        if found is not None:
            source = column_of(found)
        for at in range(count):
            fits = fits and move_column(&to, new + at * to_stride, &source if found is not None else NULL, old + at * from_stride)
        if not fits:
            raise ValueError(f"{record}.{field.name} of hetsched {writer} does not fit any more; {writer} reads it")
    for field in known.values():
        source = column_of(field)
        for at in range(count):
            fits = fits and is_silent(&source, old + at * from_stride, 0, 0)
        if not fits and f"{record}.{field.name}" not in DROPPED:
            raise ValueError(f"{record}.{field.name} of hetsched {writer} means nothing to this version; {writer} reads it")
        fits = True
    return result
