# Seats for all members of a gang at once, where they are unlike: whoever has least choice goes first.
#
# Promises: like members, and unlike ones that the first try seats, have the seats of that try (seat_in_order). Else members that can go to
# few nodes are seated before those that can go to many, the largest first among equals, and what was seated is moved where somebody is left
# without a seat: of at most SEARCH_MEMBERS members every way is tried, up to SEARCH_STEPS looks at a node; of more, SEARCH_ROUNDS orders, each
# with the kind in front that found no seat in the one before. Who is not seated within that waits as if there was no room. All looks of one
# decision together are bounded (allowed_steps).
#
# How: members of one shape and queue are a kind. A kind that fits on as many nodes as there are members always finds one that nobody else
# took, so it is seated last and not searched. Of the others, in turn, the kind that has the fewest seats left, on each of these in order.
# Three rules leave out what is the same again: seats of one kind go upwards, of nodes that are alike the first that is untouched is taken,
# and of unused devices that are alike the first. Where what is left over, without rests that are too small for anybody, is less than what
# is still asked for, nobody looks further. One that asks for a part of one device, and nothing else of devices, has each device as a seat;
# of others the node is one, and its devices are taken tightly.

cdef enum:
    SEARCH_MEMBERS = 48
    SEARCH_PLACES = 2304       # SEARCH_MEMBERS of as many kinds
    SEARCH_TWINS = 256         # of more places none are compared
    SEARCH_STEPS = 4096        # nodes looked at
    SEARCH_LEAST = 64          # likewise, whatever was searched before in the same decision
    SEARCH_BUDGET = 65536      # likewise, of one decision
    SEARCH_ROUNDS = 6
    SEATS_A_PLACE = 65         # the node as a whole, and each device


cdef struct Kind:
    # Members of one shape and queue.
    uint32_t shape
    uint32_t queue
    uint32_t count             # members
    uint32_t left              # not seated yet, nor left out
    uint32_t choice            # nodes that it fits on, not counted further than the members in all
    uint32_t right             # devices that would do for it there
    int64_t last               # seat of its latest member: place x SEATS_A_PLACE, + 1 + device for a part of one
    uint8_t is_part
    uint16_t places[SEARCH_MEMBERS]   # ascending; the first `choice`, if these are fewer than the members
    uint32_t tasks[SEARCH_MEMBERS]    # the members, if all of the gang's are not more


cdef struct Search:
    Kind kinds[SEARCH_MEMBERS] # hardest first
    uint32_t kinds_size
    uint32_t members
    uint32_t spare             # who may be left out still
    int64_t steps              # left
    uint32_t places_size
    uint32_t nodes[SEARCH_PLACES]      # that some searched kind fits on, those alike beside each other
    uint8_t is_twin[SEARCH_PLACES]     # alike with the one before
    uint8_t touched[SEARCH_PLACES]     # members seated there


cdef bint are_unlike(Tables* t, Slots* members) noexcept nogil:
    cdef uint32_t at
    for at in range(1, members.size):
        if t.tasks[members.at[at]].shape != t.tasks[members.at[0]].shape:
            return True
    return False


cdef inline int64_t allowed_steps(Tables* t) noexcept nogil:
    """The more was searched in this decision, the less: but something always, for who comes last."""
    return max(<int64_t> SEARCH_LEAST, min(<int64_t> SEARCH_STEPS, t.search_left // 16))


cdef uint32_t seat_members(Tables* t, Head* head, int64_t value) except? 0xFFFFFFFF nogil:
    """How many of those needed fit now. Holds nothing afterwards; `trial` says where, if they are as many as needed."""
    cdef Search search
    cdef uint32_t seated = seat_in_order(t, head, value)
    if seated >= head.needed or head.members.size < head.needed or not are_unlike(t, &head.members):
        return seated
    search.steps = allowed_steps(t)
    t.search_left -= search.steps
    if not gather_kinds(t, head, &search) or not look_around(t, head, value, &search):
        return seated
    if search.members <= SEARCH_MEMBERS and search_seats(t, head, value, &search):
        seated = t.trial_size
    elif search.members > SEARCH_MEMBERS or search.steps <= 0:
        seated = max(seated, seat_in_rounds(t, head, value, &search))
    t.search_left += max(search.steps, <int64_t> 0)
    return seated


# ---------------------------------------------------------------- kinds and their choice

cdef bint gather_kinds(Tables* t, Head* head, Search* search) noexcept nogil:
    """0: too many."""
    cdef uint32_t at, which
    cdef TaskRecord* task
    cdef ShapeRecord* shape
    search.kinds_size = 0
    search.members = head.members.size
    search.spare = head.members.size - head.needed
    for at in range(head.members.size):
        task = &t.tasks[head.members.at[at]]
        which = 0
        while which < search.kinds_size and (search.kinds[which].shape != task.shape or search.kinds[which].queue != task.queue):
            which += 1
        if which == SEARCH_MEMBERS:
            return False
        if which == search.kinds_size:
            search.kinds_size += 1
            shape = &t.shapes[task.shape]
            search.kinds[which].shape = task.shape
            search.kinds[which].queue = task.queue
            search.kinds[which].count = 0
            search.kinds[which].last = 0
            search.kinds[which].is_part = shape.ask_count == 1 and shape.device_count == 1 and shape.asks[0].parts == 1
        if search.kinds[which].count < SEARCH_MEMBERS:
            search.kinds[which].tasks[search.kinds[which].count] = head.members.at[at]
        search.kinds[which].count += 1
        search.kinds[which].left = search.kinds[which].count
    return True


cdef bint look_around(Tables* t, Head* head, int64_t value, Search* search) noexcept nogil:
    """The choice of each kind, and who has least comes first. 0: too few can have a seat at all."""
    cdef uint32_t pieces[MAX_PIECES]
    cdef uint32_t which, node, lacking = 0
    cdef int64_t room
    cdef int place
    cdef Kind* kind
    cdef Kind moved
    for which in range(search.kinds_size):
        kind = &search.kinds[which]
        kind.choice = kind.right = 0
        room = 0
        for node in range(t.nodes_used):
            if kind.choice >= search.members:
                break
            if in_domain(t, node, head.column, value) and fit_tight(t, node, &t.shapes[kind.shape], pieces, &place) >= 0:
                kind.choice += 1
                kind.right += right_devices(t, node, &t.shapes[kind.shape])
                if room < kind.count:
                    room += room_alone(t, node, kind, <uint32_t> (kind.count - room))
        if kind.choice < search.members and room < kind.count:
            lacking += <uint32_t> (kind.count - room)
            if lacking > search.spare:
                return False
    for which in range(1, search.kinds_size):
        moved = search.kinds[which]
        place = <int> which
        while place > 0 and has_less_choice(t, &moved, &search.kinds[place - 1]):
            search.kinds[place] = search.kinds[place - 1]
            place -= 1
        search.kinds[place] = moved
    return True


cdef bint has_less_choice(Tables* t, Kind* one, Kind* other) noexcept nogil:
    """Fewer nodes, then fewer devices on these, then larger."""
    cdef ShapeRecord* a = &t.shapes[one.shape]
    cdef ShapeRecord* b = &t.shapes[other.shape]
    if one.choice != other.choice:
        return one.choice < other.choice
    if a.ask_count > 0 and b.ask_count > 0 and one.right != other.right:
        return one.right < other.right
    return is_larger(a, b)


cdef uint32_t right_devices(Tables* t, uint32_t node, ShapeRecord* shape) noexcept nogil:
    cdef DeviceRecord* devices = t.devices + t.nodes[node].device_first
    cdef uint32_t count = 0
    cdef int ask, at
    for ask in range(shape.ask_count):
        for at in range(t.nodes[node].device_count):
            count += is_right(&devices[at], &shape.asks[ask]) and devices[at].share_free > 0
    return count


cdef uint32_t room_alone(Tables* t, uint32_t node, Kind* kind, uint32_t wanted) noexcept nogil:
    """So many of this kind the node takes if nobody else of the gang is there, not counted further than wanted."""
    cdef uint32_t pieces[MAX_PIECES]
    cdef ShapeRecord* shape = &t.shapes[kind.shape]
    cdef NodeRecord before = t.nodes[node]
    cdef DeviceRecord devices[MAX_PIECES]
    cdef DeviceRecord* first = t.devices + t.nodes[node].device_first
    cdef uint32_t found = 0
    cdef int worst, count
    memcpy(devices, first, t.nodes[node].device_count * sizeof(DeviceRecord))
    while found < wanted:
        count = fit_tight(t, node, shape, pieces, &worst)
        if count < 0:
            break
        hold_room(t, node, shape, pieces, count, 1)
        found += 1
    t.nodes[node] = before
    memcpy(first, devices, t.nodes[node].device_count * sizeof(DeviceRecord))
    return found


# ---------------------------------------------------------------- every way

cdef int search_seats(Tables* t, Head* head, int64_t value, Search* search) except -1 nogil:
    """1: as many as needed have a seat, which the trial says, in the order of the members. Holds nothing afterwards."""
    cdef uint32_t at
    cdef int found
    t.trial_size = 0
    grow(<void**> &t.trial, &t.trial_capacity, sizeof(TrialRecord), search.members)
    gather_places(t, head, value, search)
    found = seat_next(t, head, value, search)
    for at in range(t.trial_size):
        hold_trial(t, &t.trial[at], -1)
    if found:
        put_in_order(t, head)
    else:
        t.trial_size = 0
    return found


cdef void gather_places(Tables* t, Head* head, int64_t value, Search* search) noexcept nogil:
    """The nodes of all who have few, those alike beside each other, and each kind's own among them."""
    cdef uint32_t pieces[MAX_PIECES]
    cdef uint32_t which, at, other, node
    cdef int worst
    cdef Kind* kind
    search.places_size = 0
    for which in range(search.kinds_size):
        kind = &search.kinds[which]
        if kind.choice >= search.members:
            continue
        for node in range(t.nodes_used):
            if in_domain(t, node, head.column, value) and fit_tight(t, node, &t.shapes[kind.shape], pieces, &worst) >= 0:
                at = 0
                while at < search.places_size and search.nodes[at] != node:
                    at += 1
                if at == search.places_size:
                    search.nodes[at] = node
                    search.places_size += 1
    for at in range(search.places_size):
        search.touched[at] = 0
        search.is_twin[at] = False
    if search.places_size <= SEARCH_TWINS:
        for at in range(1, search.places_size):
            for other in range(at, search.places_size):
                if are_twins(t, search, search.nodes[at - 1], search.nodes[other]):
                    search.nodes[at], search.nodes[other] = search.nodes[other], search.nodes[at]
                    search.is_twin[at] = True
                    break
    for which in range(search.kinds_size):
        kind = &search.kinds[which]
        other = 0
        for at in range(search.places_size if kind.choice < search.members else 0):
            if fit_tight(t, search.nodes[at], &t.shapes[kind.shape], pieces, &worst) >= 0:
                kind.places[other] = <uint16_t> at
                other += 1


cdef bint are_twins(Tables* t, Search* search, uint32_t one, uint32_t other) noexcept nogil:
    """For every kind the two nodes are the same."""
    cdef NodeRecord* a = &t.nodes[one]
    cdef NodeRecord* b = &t.nodes[other]
    cdef uint32_t which
    if (a.cpu_free != b.cpu_free or a.memory_free != b.memory_free or a.cpu_extra != b.cpu_extra or a.memory_extra != b.memory_extra
            or a.device_count != b.device_count):
        return False
    for which in range(search.kinds_size):
        if (level_of(&t.shapes[search.kinds[which].shape], one) > 0) != (level_of(&t.shapes[search.kinds[which].shape], other) > 0):
            return False
    return memcmp(t.devices + a.device_first, t.devices + b.device_first, a.device_count * sizeof(DeviceRecord)) == 0


cdef int64_t next_seat(Tables* t, Search* search, Kind* kind, int64_t begin, uint32_t* pieces, int* count) noexcept nogil:
    """The first seat for one of this kind, not before `begin`; -1: none."""
    cdef ShapeRecord* shape = &t.shapes[kind.shape]
    cdef uint32_t which, place, node
    cdef int at, worst
    cdef int64_t seat
    for which in range(kind.choice):
        place = kind.places[which]
        seat = <int64_t> place * SEATS_A_PLACE
        if seat + (SEATS_A_PLACE - 1 if kind.is_part else 0) < begin:
            continue
        if search.is_twin[place] and not search.touched[place] and not search.touched[place - 1]:
            continue
        node = search.nodes[place]
        search.steps -= 1
        count[0] = fit_tight(t, node, shape, pieces, &worst)
        if count[0] < 0:
            continue
        if not kind.is_part:
            return seat
        for at in range(t.nodes[node].device_count):
            if seat + 1 + at >= begin and is_seat(t, node, shape, at, kind.last - seat - 1):
                pieces[0] = piece_of(<uint32_t> at, shape.asks[0].part_milli)
                return seat + 1 + at
    return -1


cdef bint is_seat(Tables* t, uint32_t node, ShapeRecord* shape, int at, int64_t first) noexcept nogil:
    """A part on this device, unless an unused one before it, from the `first` on, is the same."""
    cdef DeviceRecord* devices = t.devices + t.nodes[node].device_first
    cdef DeviceRecord* device = &devices[at]
    cdef int other
    if not is_right(device, &shape.asks[0]) or not has_room(device, &shape.asks[0]):
        return False
    if shape.same != 0 and not shape.is_wish and island_of(device, shape.same) < 0:
        return False
    if device.share_free == 1000:
        for other in range(<int> max(first, <int64_t> 0), at):
            if memcmp(&devices[other], device, sizeof(DeviceRecord)) == 0:
                return False
    return True


cdef uint32_t fewest_seats(Tables* t, Search* search) noexcept nogil:
    """The kind that has the fewest seats for its next member, none maybe; NONE: of those with few nobody is left."""
    cdef uint32_t pieces[MAX_PIECES]
    cdef uint32_t which, seats, least = 0, best = NONE_
    cdef int64_t seat
    cdef int count
    cdef Kind* kind
    for which in range(search.kinds_size):
        kind = &search.kinds[which]
        if kind.choice >= search.members or kind.left == 0:
            continue
        seats = 0
        seat = kind.last - 1
        while best == NONE_ or seats < least:
            seat = next_seat(t, search, kind, seat + 1, pieces, &count)
            if seat < 0:
                break
            seats += 1
        if best == NONE_ or seats < least:
            best = which
            least = seats
        if least == 0:
            break
    return best


cdef Need left_over(Tables* t, Search* search) noexcept nogil:
    """What is free on the places, less what the searched kinds still ask for. A rest that is too small for any of them is not counted."""
    cdef Need slack, least
    cdef uint32_t which, at
    cdef int ask, device
    cdef Kind* kind
    cdef ShapeRecord* shape
    cdef DeviceRecord* devices
    memset(&slack, 0, sizeof(Need))
    least.cpu_milli = least.memory_bytes = least.device_milli = INT64_MAX
    for which in range(search.kinds_size):
        kind = &search.kinds[which]
        if kind.choice >= search.members or kind.left == 0:
            continue
        shape = &t.shapes[kind.shape]
        slack.cpu_milli -= kind.left * shape.cpu_milli
        slack.memory_bytes -= kind.left * shape.memory_bytes
        slack.device_milli -= kind.left * shape.device_milli
        least.cpu_milli = min(least.cpu_milli, shape.cpu_milli)
        least.memory_bytes = min(least.memory_bytes, shape.memory_bytes)
        for ask in range(shape.ask_count):
            least.device_milli = min(least.device_milli, <int64_t> shape.asks[ask].part_milli if shape.asks[ask].parts else <int64_t> 1000)
    for at in range(search.places_size):
        if cpu_most(t, search.nodes[at]) >= least.cpu_milli and memory_most(t, search.nodes[at]) >= least.memory_bytes:
            slack.cpu_milli += max(cpu_most(t, search.nodes[at]), <int64_t> 0)
            slack.memory_bytes += max(memory_most(t, search.nodes[at]), <int64_t> 0)
            devices = t.devices + t.nodes[search.nodes[at]].device_first
            for device in range(t.nodes[search.nodes[at]].device_count if least.device_milli < INT64_MAX else 0):
                if devices[device].usable and devices[device].share_free >= least.device_milli:
                    slack.device_milli += devices[device].share_free
    return slack


cdef inline int64_t cpu_most(Tables* t, uint32_t node) noexcept nogil:
    """Free, with what may be lent."""
    return t.nodes[node].cpu_free + max(t.nodes[node].cpu_extra, <int64_t> 0)


cdef inline int64_t memory_most(Tables* t, uint32_t node) noexcept nogil:
    return t.nodes[node].memory_free + max(t.nodes[node].memory_extra, <int64_t> 0)


cdef bint is_spoilt(Tables* t, Search* search) noexcept nogil:
    """By amounts alone not all who are left find a seat."""
    cdef Need slack
    if search.spare > 0:
        return False
    slack = left_over(t, search)
    return slack.cpu_milli < 0 or slack.memory_bytes < 0 or slack.device_milli < 0


cdef int seat_next(Tables* t, Head* head, int64_t value, Search* search) noexcept nogil:
    """1: from here on all find a seat, which stays held; 0: they do not, and what is held is as before."""
    cdef uint32_t which, left
    cdef int64_t before, seat
    cdef Kind* kind
    cdef TrialRecord* entry
    cdef int count, found = 0
    if t.trial_size == head.needed:
        return 1
    if is_spoilt(t, search):
        return 0
    which = fewest_seats(t, search)
    if which == NONE_:
        return seat_others(t, head, value, search)
    kind = &search.kinds[which]
    before = seat = kind.last
    while search.steps > 0 and within_limits(t, kind.queue, &t.shapes[kind.shape]):
        entry = &t.trial[t.trial_size]
        seat = next_seat(t, search, kind, seat, entry.pieces, &count)
        if seat < 0:
            break
        take_place(t, kind, entry, search.nodes[seat // SEATS_A_PLACE], count)
        search.touched[seat // SEATS_A_PLACE] += 1
        kind.last = seat
        if seat_next(t, head, value, search):
            return 1
        search.touched[seat // SEATS_A_PLACE] -= 1
        kind.last = before
        leave_place(t, kind)
        seat += 1
    if kind.left <= search.spare and search.steps > 0:
        left = kind.left
        kind.left = 0
        search.spare -= left
        found = seat_next(t, head, value, search)
        kind.left = left
        search.spare += left
    return found


cdef int seat_others(Tables* t, Head* head, int64_t value, Search* search) noexcept nogil:
    """As seat_next, of those who find a seat wherever the others are: only a limit of their queue may be in the way."""
    cdef uint32_t which, node, held = t.trial_size, spare = search.spare
    cdef Kind* kind
    cdef TrialRecord* entry
    cdef int worst, count
    for which in range(search.kinds_size):
        kind = &search.kinds[which]
        node = 0
        while kind.choice >= search.members and kind.left > 0 and node < t.nodes_used and t.trial_size < head.needed:
            entry = &t.trial[t.trial_size]
            count = -1
            if in_domain(t, node, head.column, value) and within_limits(t, kind.queue, &t.shapes[kind.shape]):
                count = fit_tight(t, node, &t.shapes[kind.shape], entry.pieces, &worst)
            if count < 0:
                node += 1
            else:
                take_place(t, kind, entry, node, count)
        if kind.choice >= search.members and kind.left > 0 and t.trial_size < head.needed:
            if kind.left > spare:
                search.steps = 0
                break
            spare -= kind.left
    else:
        return 1
    while t.trial_size > held:
        which = 0
        while t.tasks[t.trial[t.trial_size - 1].task].shape != search.kinds[which].shape or (
                t.tasks[t.trial[t.trial_size - 1].task].queue != search.kinds[which].queue):
            which += 1
        leave_place(t, &search.kinds[which])
    return 0


cdef inline void take_place(Tables* t, Kind* kind, TrialRecord* entry, uint32_t node, int count) noexcept nogil:
    entry.task = kind.tasks[kind.count - kind.left]
    entry.node = node
    entry.count = <uint32_t> count
    hold_trial(t, entry, 1)
    kind.left -= 1
    t.trial_size += 1


cdef inline void leave_place(Tables* t, Kind* kind) noexcept nogil:
    t.trial_size -= 1
    hold_trial(t, &t.trial[t.trial_size], -1)
    kind.left += 1


cdef void put_in_order(Tables* t, Head* head) noexcept nogil:
    """The trial, as the members are."""
    cdef uint32_t at, entry, place = 0
    cdef TrialRecord moved
    for at in range(head.members.size):
        for entry in range(place, t.trial_size):
            if t.trial[entry].task == head.members.at[at]:
                moved = t.trial[place]
                t.trial[place] = t.trial[entry]
                t.trial[entry] = moved
                place += 1
                break


# ---------------------------------------------------------------- some orders

cdef int by_choice(Tables* t, Head* head, Search* search, Slots* members) except -1 nogil:
    """The members, kind by kind."""
    cdef uint32_t which, at
    members.size = 0
    for which in range(search.kinds_size):
        for at in range(head.members.size):
            if t.tasks[head.members.at[at]].shape == search.kinds[which].shape and t.tasks[head.members.at[at]].queue == search.kinds[which].queue:
                push(members, head.members.at[at])
    return 0


cdef uint32_t seat_in_rounds(Tables* t, Head* head, int64_t value, Search* search) except? 0xFFFFFFFF nogil:
    """As seat_members: the kind that found no seat goes first in the next round."""
    cdef Head tried = head[0]
    cdef Kind blocked
    cdef uint32_t which, at, round, seated, most = 0
    memset(&tried.members, 0, sizeof(Slots))
    for round in range(SEARCH_ROUNDS):
        by_choice(t, head, search, &tried.members)
        seated = seat_in_order(t, &tried, value)
        most = max(most, seated)
        if seated >= head.needed:
            break
        at = 0
        while at < t.trial_size and t.trial[at].task == tried.members.at[at]:
            at += 1
        which = 0
        while search.kinds[which].shape != t.tasks[tried.members.at[at]].shape or search.kinds[which].queue != t.tasks[tried.members.at[at]].queue:
            which += 1
        if which == 0:
            break
        blocked = search.kinds[which]
        memmove(&search.kinds[1], &search.kinds[0], which * sizeof(Kind))
        search.kinds[0] = blocked
    drop_slots(&tried.members)
    return most
