# What the feedback controller turns (policy/feedback.py): how soon gangs go, and how many share a device.
#
# Promises: neither lets anything in that would not fit, nor keeps anything out that does: both only say who is tried first, and which of
# several devices of a node is taken. 0 and 0: as without.

cdef inline void count_gang(Tables* t, uint32_t task, int sign) noexcept nogil:
    if t.tasks[task].gang != NONE_:
        t.gang_milli += sign * t.shapes[t.tasks[task].shape].device_milli
        t.gang_cpu += sign * t.shapes[t.tasks[task].shape].cpu_milli


cdef bint is_below_share(Tables* t) noexcept nogil:
    """Gangs hold less than their share of the devices, and less than that of the cores."""
    cdef int64_t devices = 0
    cdef int resource
    for resource in range(2, RESOURCES):
        devices += t.capacity[resource]
    return (devices == 0 or t.gang_milli < part_of(devices, t.gang_share)) and (
        t.capacity[0] == 0 or t.gang_cpu < part_of(t.capacity[0], t.gang_share))


cdef bint gang_lane(Tables* t, int qos, uint32_t* best) noexcept nogil:
    """The fairest lane of this level with a gang that may be tried, while gangs are below their share. False: there is none, or they are not."""
    cdef uint32_t lane = t.gang_lane_first
    best[0] = NONE_
    if not is_below_share(t):
        return False
    while lane != NONE_:
        if t.lanes[lane].qos == qos and t.lanes[lane].tried_at != NONE_ and (best[0] == NONE_ or fairer(t, lane, best[0])):
            best[0] = lane
        lane = t.lanes[lane].next_of_shape
    return best[0] != NONE_


cdef inline bint is_crowded(Tables* t, DeviceRecord* device) noexcept nogil:
    return t.sharers_most > 0 and device.sharers >= t.sharers_most


cdef void count_sharers(Tables* t, AllocationRecord* record) noexcept nogil:
    """Of the devices that this allocation holds; after a load."""
    cdef uint32_t* pieces = pieces_of(t, record)
    cdef int at
    for at in range(record.count):
        t.devices[t.nodes[record.node].device_first + (pieces[at] & 0xFF)].sharers += (pieces[at] >> 8) < 1000
