# Which of a node's free devices go together: NVLink islands, NUMA nodes and PCIe switches of one board.
#
# A level is NUMA (1), NVLink (2) or PCIe switch (3), as in a shape's `same`. Levels are looked at in the order wished one, NVLink, NUMA,
# PCIe. A device without a group at a level that others have is alone there; a level at which all free devices share one island, or none
# has any, says nothing and is left out.
#
# Promises, of `take_together`: devices are on one island at every level at which that is possible, an earlier level before a later one;
# then the island with the fewest free devices that suffices is taken, so that the largest rest stays whole. Where one island does not
# suffice, the fewest islands are taken, the largest left over among equals (that greedy is exact: what a taken island keeps is less than
# any other taken one). Ties go to the lowest index.

cdef enum:
    DEVICE_LEVELS = 3


cdef struct Islands:
    # The free devices of one kind on a board, and who is beside whom.
    int levels                 # that say something
    uint64_t beside[3][64]     # by level and device: the free devices on its island, itself among them
    uint8_t size[3][64]        # how many these are


cdef extern from *:
    int lowest "__builtin_ctzll" (uint64_t) nogil


cdef inline int popcount(uint64_t mask) noexcept nogil:
    """Spelled out: without -mpopcnt the builtin is a call."""
    mask = mask - ((mask >> 1) & 0x5555555555555555ULL)
    mask = (mask & 0x3333333333333333ULL) + ((mask >> 2) & 0x3333333333333333ULL)
    mask = (mask + (mask >> 4)) & 0x0F0F0F0F0F0F0F0FULL
    return <int> (mask * 0x0101010101010101ULL >> 56)


cdef inline int island_of(DeviceRecord* device, int by) noexcept nogil:
    return device.numa if by == 1 else device.nvlink if by == 2 else device.pcie


cdef inline int named_levels(DeviceRecord* device) noexcept nogil:
    """Levels at which the device has a group, a bit each: 1 << level."""
    return (device.numa >= 0) * 2 + (device.nvlink >= 0) * 4 + (device.pcie >= 0) * 8


cdef inline int level_at(int place, int wished) noexcept nogil:
    """The wished level first (0: none), then NVLink, NUMA, PCIe; places up to 3, of which one says a level again if one is wished."""
    if wished != 0:
        if place == 0:
            return wished
        place -= 1
    return 2 if place == 0 else 1 if place == 1 else 3


cdef void view_islands(DeviceRecord* devices, uint64_t free, int wished, Islands* view) noexcept nogil:
    cdef int place, by, island, at, size, named = 0
    cdef uint64_t left = free, rest, group
    while left != 0:
        named |= named_levels(&devices[lowest(left)])
        left &= left - 1
    view.levels = 0
    for place in range(DEVICE_LEVELS + (wished != 0)):
        by = level_at(place, wished)
        if not (named >> by) & 1 or (place > 0 and by == wished):
            continue
        left = free
        while left != 0:
            at = lowest(left)
            island = island_of(&devices[at], by)
            group = left & (~left + 1)
            left &= left - 1
            size = 1
            if island >= 0:
                rest = left
                while rest != 0:
                    if island_of(&devices[lowest(rest)], by) == island:
                        group |= rest & (~rest + 1)
                        size += 1
                    rest &= rest - 1
            left &= ~group
            rest = group
            while rest != 0:
                at = lowest(rest)
                view.beside[view.levels][at] = group
                view.size[view.levels][at] = <uint8_t> size
                rest &= rest - 1
        view.levels += group != free


cdef inline uint64_t lowest_bits(uint64_t mask, int count) noexcept nogil:
    """The `count` lowest bits that are set."""
    cdef uint64_t taken = 0
    for _ in range(count):
        taken |= mask & (~mask + 1)
        mask &= mask - 1
    return taken


cdef uint64_t take_together(Islands* view, uint64_t right, int count) noexcept nogil:
    """`count` of the free devices in `right`, which has as many."""
    cdef int kept, level, at, key, best_key
    cdef uint64_t group, left, best = right
    if view.levels == 0 or count == 0 or popcount(right) == count:
        return lowest_bits(right, count)
    for kept in range((1 << view.levels) - 1, 0, -1):  # levels kept whole, the first one is the highest bit
        best_key = -1
        left = right
        while left != 0:
            at = lowest(left)
            left &= left - 1
            group = right
            key = 0
            for level in range(view.levels):
                if (kept >> (view.levels - 1 - level)) & 1:
                    group &= view.beside[level][at]
                    key = key * 128 + view.size[level][at]
            if (best_key < 0 or key < best_key) and (count == 1 or popcount(group) >= count):
                best_key = key
                best = group
        if best_key >= 0:
            return take_fewest(view, best, count, kept)
    return take_fewest(view, right, count, 0)


cdef uint64_t take_fewest(Islands* view, uint64_t group, int count, int kept) noexcept nogil:
    """`count` of the group, over as few islands as may be of every level that is not kept whole."""
    cdef uint64_t taken = 0, island, opened
    cdef uint64_t islands[64]
    cdef int level, size, at, needed
    for level in range(view.levels):
        if (kept >> (view.levels - 1 - level)) & 1 or count == 1:
            continue
        size = sort_islands(view, group, level, islands)
        needed = 0
        at = 0
        while at < count:
            at += popcount(islands[needed])
            needed += 1
        opened = 0
        for at in range(size):
            if needed == 0:
                break
            if sum_of(islands, at + 1, min(needed, size - at - 1)) >= count:
                continue                # the others suffice: this one stays whole
            island = islands[at]
            needed -= 1
            if opened == 0:
                opened = island         # what is left over is left here
                count -= popcount(island)
            else:
                taken |= island
                count -= popcount(island)
        count += popcount(opened)
        group = opened
    return taken | lowest_bits(group, count)


cdef inline int sum_of(uint64_t* islands, int first, int count) noexcept nogil:
    cdef int at, total = 0
    for at in range(first, first + count):
        total += popcount(islands[at])
    return total


cdef int sort_islands(Islands* view, uint64_t group, int level, uint64_t* islands) noexcept nogil:
    """The group's islands, largest first, then lowest index. Returns how many."""
    cdef uint64_t island
    cdef int size = 0, place
    while group != 0:
        island = view.beside[level][lowest(group)] & group
        group &= ~island
        place = size
        while place > 0 and popcount(islands[place - 1]) < popcount(island):
            islands[place] = islands[place - 1]
            place -= 1
        islands[place] = island
        size += 1
    return size


# ---------------------------------------------------------------- how far pieces lie apart

cdef int islands_of(DeviceRecord* devices, uint32_t* pieces, int count, int by) noexcept nogil:
    """Islands of a level over which the pieces lie; devices without one count alone."""
    cdef int at, other, island, found = 0
    for at in range(count):
        island = island_of(&devices[pieces[at] & 0xFF], by)
        found += 1
        if island >= 0:
            for other in range(at):
                if island_of(&devices[pieces[other] & 0xFF], by) == island:
                    found -= 1
                    break
    return found


cdef int split_of(DeviceRecord* devices, uint32_t* pieces, int count) noexcept nogil:
    """Levels at which the pieces lie apart, a bit each, the earliest level highest."""
    cdef int split = 0, place
    for place in range(DEVICE_LEVELS):
        split = split * 2 + (islands_of(devices, pieces, count, level_at(place, 0)) > 1)
    return split
