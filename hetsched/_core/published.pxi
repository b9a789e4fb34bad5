# Published policies, to compare with: as defined in the artifact of Weng et al., Beware of Fragmentation, USENIX ATC 2023
# (hkust-adsl/kubernetes-scheduler-simulator), coarse scores included, for they are part of the published quality.
#
#   best-fit     what is free after placing, CPU and devices weighted alike, as parts of the largest node; least best
#   dot-product  free x asked, CPU and devices weighted alike (Tetris, Grandl et al., SIGCOMM 2014, as the artifact has it); least best
#   packing      used devices before free devices of used nodes before free nodes
#   clustering   nodes that run tasks of the same number of devices, then the fuller one
#   fgd          least growth of the fragment, through a sigmoid, in steps of one hundredth
#   random       any node, any device
#
# first-fit: no score, the first device too. Promises: scores 0..100; the devices of a node are all kinds together where the artifact
# knows GPUs only. The formulas are floating point there, so they are here: plain IEEE doubles, the same everywhere.

cdef enum:
    MOST_TYPICAL = 256         # entries of the typical mix
    TYPICAL_CLASSES = 64       # different device asks among them
    CANDIDATES = 16            # different devices tried for one part


cdef int published_score(Tables* t, uint32_t slot, ShapeRecord* shape, NodeView* view) noexcept nogil:
    cdef NodeRecord* node = &t.nodes[slot]
    cdef int64_t free_milli = 0
    cdef int at
    for at in range(view.kinds):
        free_milli += view.free_milli[view.kind[at]]
    if t.policy == POLICY_BEST_FIT_:
        return best_fit_score(t, node, shape, free_milli)
    if t.policy == POLICY_DOT_PRODUCT_:
        return dot_product_score(t, node, shape, free_milli)
    if t.policy == POLICY_PACKING_:
        return packing_score(t, node, shape)
    if t.policy == POLICY_CLUSTERING_:
        return clustering_score(t, node, shape, free_milli)
    if t.policy == POLICY_FGD_:
        return fgd_score(t, slot, shape, view)
    return 0


cdef inline int hundred(double score) noexcept nogil:
    return <int> max(0.0, min(100.0, floor(score)))


cdef int best_fit_score(Tables* t, NodeRecord* node, ShapeRecord* shape, int64_t free_milli) noexcept nogil:
    cdef double left = <double> (node.cpu_free - shape.cpu_milli) / t.most_cpu * 0.5
    left += <double> (free_milli - shape.device_milli) / t.most_milli * 0.5
    return hundred((1 - left) * 100)


cdef int dot_product_score(Tables* t, NodeRecord* node, ShapeRecord* shape, int64_t free_milli) noexcept nogil:
    cdef double cpu = <double> node.cpu_free / t.most_cpu * (<double> shape.cpu_milli / t.most_cpu)
    cdef double devices = <double> free_milli / t.most_milli * (<double> shape.device_milli / t.most_milli)
    return hundred(100 * (1 - (cpu + devices) / 2))


cdef int packing_score(Tables* t, NodeRecord* node, ShapeRecord* shape) noexcept nogil:
    """Devices by what is free, fullest first; on used devices the fuller the better, else the fewer stay free the better."""
    cdef int shares[64]
    cdef int at, count = 0, place, free_count = 0, needed, wanted, opened = 0, taken = 0
    cdef AskRecord* ask = &shape.asks[0]
    cdef DeviceRecord* device
    if shape.ask_count == 0:
        return 0
    for at in range(node.device_count):
        device = &t.devices[node.device_first + at]
        if device.kind != ask.kind or not device.usable:
            continue
        free_count += device.share_free == 1000
        place = count
        while place > 0 and shares[place - 1] > device.share_free:
            shares[place] = shares[place - 1]
            place -= 1
        shares[place] = device.share_free
        count += 1
    if free_count == count:
        return max(33 - free_count, free_count)
    needed = <int> ask.whole + ask.parts
    wanted = ask.part_milli if ask.whole == 0 else 1000
    for at in range(count):
        if needed > 0 and shares[at] >= wanted:
            needed -= 1
            opened += shares[at] == 1000
            taken += shares[at] // 10
    return max(50 - opened, 33) if opened > 0 else max(100 - taken // 10, 50)


cdef inline int size_class(ShapeRecord* shape) noexcept nogil:
    """Number of devices; 0: one part of one."""
    return 0 if shape.device_count == 1 and shape.device_milli < 1000 else min(<int> shape.device_count, 63)


cdef int clustering_score(Tables* t, NodeRecord* node, ShapeRecord* shape, int64_t free_milli) noexcept nogil:
    cdef uint64_t running = 0
    cdef uint32_t slot = node.allocation_first
    cdef ShapeRecord* other
    cdef int fuller
    if shape.ask_count == 0:
        return 0
    while slot != NONE_:
        other = &t.shapes[t.tasks[t.allocations[slot].task].shape]
        if other.ask_count > 0:
            running |= <uint64_t> 1 << size_class(other)
        slot = t.allocations[slot].next_on_node
    fuller = <int> (25 * (t.most_milli - free_milli) // t.most_milli)
    if (running >> size_class(shape)) & 1:
        return fuller + (75 if running & (running - 1) == 0 else 50)
    return fuller + (25 if running == 0 else 0)


# ---------------------------------------------------------------- random

cdef inline uint64_t scatter(uint64_t value) noexcept nogil:
    """Bits that look like chance (splitmix64, Steele et al., OOPSLA 2014): the same for the same value."""
    value += 0x9E3779B97F4A7C15ULL
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ULL
    value = (value ^ (value >> 27)) * 0x94D049BB133111EBULL
    return value ^ (value >> 31)


cdef uint32_t random_node(Tables* t, ShapeRecord* shape, uint64_t chance) noexcept nogil:
    """Any node that the shape fits on, each as likely. It is not blocked."""
    cdef TreeRecord* tree = &t.trees[shape.column // COLUMNS]
    cdef uint32_t column = shape.column % COLUMNS
    cdef uint32_t at, fitting = 0
    for at in range(t.nodes_used):
        fitting += cell_of(tree, 0, at)[column] != 0
    fitting = <uint32_t> (scatter(chance) % fitting)
    for at in range(t.nodes_used):
        if cell_of(tree, 0, at)[column] != 0:
            if fitting == 0:
                break
            fitting -= 1
    return at


# ---------------------------------------------------------------- fgd

cdef struct TypicalRecord:
    int64_t cpu_milli
    int64_t weight             # times asked
    int32_t which              # index into `first`, -1: asks for no devices


cdef struct FgdTables:
    # The typical mix: the most asked (cpu, device asks) that make up 95 % of all that is asked; memory is left out, as published.
    TypicalRecord typical[256]
    uint32_t first[64]         # a shape with the asks of this class
    uint32_t typical_size
    uint32_t classes
    int64_t total              # sum of the weights
    uint64_t stamp             # `views` when the following was computed
    MixView before[64]
    int64_t fragment           # of the node as it is, x total


cdef int64_t SIGMOID_MICRO[100]
for _step in range(100):
    SIGMOID_MICRO[_step] = round(1e6 * math.log(_step / (100 - _step))) if _step else -(1 << 62)


cdef int take_typical(Tables* t) except -1 nogil:
    cdef FgdTables* fgd
    cdef uint32_t slot
    cdef int64_t asked = 0, covered = 0
    if t.fgd == NULL:
        t.fgd = <FgdTables*> calloc(1, sizeof(FgdTables))
        if t.fgd == NULL:
            no_memory()
    fgd = t.fgd
    fgd.typical_size = 0
    fgd.classes = 0
    fgd.total = 0
    fgd.stamp = 0
    for slot in range(t.shapes_used):
        if t.shapes[slot].popularity > 0 and t.shapes[slot].ask_count <= 1:
            add_typical(t, fgd, slot)
            asked += t.shapes[slot].popularity
    sort_typical(fgd)
    for slot in range(fgd.typical_size):
        covered += fgd.typical[slot].weight
        if covered * 20 >= asked * 19:
            fgd.typical_size = slot + 1
            break
    fgd.total = covered
    return 0


cdef void add_typical(Tables* t, FgdTables* fgd, uint32_t slot) noexcept nogil:
    cdef ShapeRecord* shape = &t.shapes[slot]
    cdef TypicalRecord* entry
    cdef int32_t which = -1
    cdef uint32_t at
    if shape.ask_count > 0:
        which = 0
        while which < <int32_t> fgd.classes and t.shapes[fgd.first[which]].ask_class != shape.ask_class:
            which += 1
        if which == TYPICAL_CLASSES:
            return
        if which == <int32_t> fgd.classes:
            fgd.first[which] = slot
            fgd.classes += 1
    for at in range(fgd.typical_size):
        entry = &fgd.typical[at]
        if entry.cpu_milli == shape.cpu_milli and entry.which == which:
            entry.weight += shape.popularity
            return
    if fgd.typical_size == MOST_TYPICAL:
        return
    entry = &fgd.typical[fgd.typical_size]
    entry.cpu_milli, entry.weight, entry.which = shape.cpu_milli, shape.popularity, which
    fgd.typical_size += 1


cdef void sort_typical(FgdTables* fgd) noexcept nogil:
    """Most asked first."""
    cdef TypicalRecord moved
    cdef uint32_t at, place
    for at in range(1, fgd.typical_size):
        moved = fgd.typical[at]
        place = at
        while place > 0 and fgd.typical[place - 1].weight < moved.weight:
            fgd.typical[place] = fgd.typical[place - 1]
            place -= 1
        fgd.typical[place] = moved


cdef int64_t typical_loss(Tables* t, FgdTables* fgd, MixView* views, int64_t cpu_left, int64_t free_milli) noexcept nogil:
    """The fragment x total of a node with these class views, so much CPU and so much free in all."""
    cdef int64_t lost = 0
    cdef uint32_t at
    cdef TypicalRecord* entry
    for at in range(fgd.typical_size):
        entry = &fgd.typical[at]
        if entry.which < 0:
            lost += entry.weight * free_milli
        else:
            lost += entry.weight * lost_of(&views[entry.which], &t.shapes[fgd.first[entry.which]].asks[0], cpu_left >= entry.cpu_milli)
    return lost


cdef int64_t free_in_all(DeviceRecord* devices, int count) noexcept nogil:
    cdef int64_t total = 0
    cdef int at
    for at in range(count):
        if devices[at].usable and devices[at].share_free > 0:
            total += devices[at].share_free
    return total


cdef int fgd_rate(Tables* t, NodeRecord* node, ShapeRecord* shape, uint32_t* pieces, int count, int64_t free_milli) noexcept nogil:
    """0..99: the growth of the fragment through the sigmoid. `before` is of this node."""
    cdef DeviceRecord* devices = t.devices + node.device_first
    cdef FgdTables* fgd = t.fgd
    cdef MixView after[64]
    cdef int64_t gained
    cdef uint32_t at
    cdef int low = 0, high = 99, middle
    for at in range(fgd.classes):
        after[at] = mix_after(devices, fgd.before[at], &t.shapes[fgd.first[at]].asks[0], shape, pieces, count)
    gained = fgd.fragment - typical_loss(t, fgd, after, node.cpu_free - shape.cpu_milli, free_milli - shape.device_milli)
    while low < high:
        middle = (low + high + 1) // 2
        if gained * 1000 >= SIGMOID_MICRO[middle] * fgd.total:
            low = middle
        else:
            high = middle - 1
    return low


cdef int fgd_best(Tables* t, NodeRecord* node, ShapeRecord* shape, uint32_t* pieces, int* worst, int* score) noexcept nogil:
    """Devices and score: for one part the best of the different devices, by the preset after the model list. Returns how many, or -1."""
    cdef DeviceRecord* devices = t.devices + node.device_first
    cdef FgdTables* fgd = t.fgd
    cdef AskRecord* ask = &shape.asks[0]
    cdef int64_t free_milli = free_in_all(devices, node.device_count)
    cdef uint32_t trial, seen[CANDIDATES]
    cdef int at, other, found, tried = 0, rank
    for at in range(fgd.classes):
        view_mix(devices, node.device_count, &t.shapes[fgd.first[at]].asks[0], &fgd.before[at])
    fgd.fragment = typical_loss(t, fgd, fgd.before, node.cpu_free, free_milli)
    if not (shape.ask_count == 1 and shape.device_count == 1 and ask.parts == 1) or shape.same != 0:
        found = pick(t, devices, node.device_count, shape, pieces, worst)
        score[0] = fgd_rate(t, node, shape, pieces, found, free_milli) if found >= 0 else 0
        return found
    found = -1
    for at in range(node.device_count):
        if not is_right(&devices[at], ask) or not has_room(&devices[at], ask) or tried == CANDIDATES:
            continue
        for other in range(tried):
            if same_room(&devices[seen[other]], &devices[at]):
                break
        else:
            seen[tried] = at
            tried += 1
            trial = piece_of(at, ask.part_milli)
            rank = rank_of(t, &devices[at], ask)
            other = fgd_rate(t, node, shape, &trial, 1, free_milli)
            if found < 0 or rank < worst[0] or (rank == worst[0] and other > score[0]):
                found = 1
                pieces[0] = trial
                worst[0] = rank
                score[0] = other
    return found


cdef inline bint same_room(DeviceRecord* one, DeviceRecord* other) noexcept nogil:
    return one.share_free == other.share_free and one.model == other.model and one.memory_free == other.memory_free


cdef int fgd_score(Tables* t, uint32_t slot, ShapeRecord* shape, NodeView* view) noexcept nogil:
    cdef uint32_t pieces[MAX_PIECES]
    cdef int worst = 0, score = 0
    fgd_best(t, &t.nodes[slot], shape, pieces, &worst, &score)
    return score


cdef int fgd_pick(Tables* t, uint32_t slot, ShapeRecord* shape, uint32_t* pieces, int* worst) noexcept nogil:
    cdef int score = 0
    worst[0] = 0
    return fgd_best(t, &t.nodes[slot], shape, pieces, worst, &score)
