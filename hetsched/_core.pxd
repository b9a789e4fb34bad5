"""The core's tables: every record that outlives a call, field by field, with unit and owner.

Promises: fixed strides in growable arrays; a slot is the index of a record and never moves while the record lives; integers only.
"Owner" says which .pxi may write a field. Derived fields (marked) are left out of dump and digest and are rebuilt by load.
"""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef extern from "_core/leaves.h" nogil:
    # Fields, units and owners: there. The names of the fields that are written from here:
    ctypedef struct LeafColumns:
        int32_t[64] cpu, mebibytes, rest
        float[64] whole, part, milli, has_devices, has_cpu, has_memory, per_term, middle
        int32_t[64] kind, top
        uint32_t[64] outcome
        double[64] memory, milli_all
        int32_t used

    ctypedef struct LeafNode:
        int32_t cpu_free, mebibytes_free, rest_free
        double memory_free, per_cpu, per_mebibyte, milli_all, most_cpu, most_milli
        float steps, steps_bare
        int32_t base, base_bare

    ctypedef struct LeafKind:
        int32_t kind
        float whole, top, milli, per_device

    ctypedef struct LeafMix:
        int32_t[32] whole, parts, part, weight
        double[32] memory
        int64_t total
        int32_t[32] cpu, count
        int32_t steps, kind
        uint8_t is_plain

    ctypedef struct LeafState:
        int32_t count
        int32_t[64] shares

    ctypedef struct LeafOutcome:
        uint64_t stamp

    ctypedef struct LeafPrices:
        int32_t count
        int32_t[16] kind
        double[16] milli, cpu_rate, memory_rate
        double stranded, strand_most, step, step_bare

    const int LEAF_PACK, LEAF_SPREAD, LEAF_NOTHING, LEAF_BEST_FIT
    void leaf_bytes(const LeafColumns* columns, const LeafNode* node, const LeafKind* kind, int preset, int first, uint8_t* leaf) noexcept
    void leaf_state(const LeafMix* mix, const LeafNode* node, LeafState* state) noexcept
    void leaf_fragments(const LeafColumns* columns, const LeafNode* node, const LeafMix* mix, const LeafState* state, LeafOutcome* outcomes,
                        uint64_t stamp, uint8_t* leaf) noexcept
    void leaf_prices(const LeafColumns* columns, const LeafNode* node, const LeafPrices* prices, const int32_t* loss, uint8_t* leaf) noexcept
    void leaf_write(uint8_t** cells, int depth, uint32_t node, const uint8_t* leaf) noexcept

cdef extern from "_core/patterns.h" nogil:
    enum: PATTERN_SIZES
    int pattern_duals(int count, const int32_t* sizes, const int64_t* demand, int most_pivots, int64_t* weights, int64_t* denominator) noexcept


cdef enum:
    MAX_ASKS = 4               # device kinds that one shape may ask for
    MAX_PIECES = 64            # devices of one node, so devices of one allocation
    RESOURCES = 18             # cpu, memory, 16 kinds
    LEVELS = 4                 # qos levels
    ALL_LEVELS = 15            # as a mask
    COLUMNS = 64               # score bytes in a cell: one cache line
    FAN_OUT = 8                # children of a cell
    MAX_DEPTH = 12             # levels of a score tree: 8^11 nodes
    MIX_SHAPES = 32            # shapes that the fragment score looks at
    DOMAINS = 8                # topology columns of a node
    TERMS = 6                  # of a blended score, see TERM_*
    ARENA_CLASSES = 40         # blocks of 1..39 units of 8 bytes
    AGE_CLASSES = 256          # classes of submission that are told apart: 255 x 45 s, longer than ageing lasts


cdef struct Arena:
    # Blocks of whole 8-byte units, one free list a size. Owner: layout.
    uint8_t* base
    uint32_t used              # units handed out at least once
    uint32_t capacity          # units
    uint32_t free_first[ARENA_CLASSES]   # first free block of this many units, NONE if none; the next one's ref lies in the block


cdef struct Buffer:
    # Facts not taken yet, packed little-endian. Owner: layout.
    uint8_t* data
    size_t size                # bytes
    size_t capacity            # bytes


cdef struct Slots:
    # A growing array of slots. Owner: who holds it.
    uint32_t* at
    uint32_t size
    uint32_t capacity


cdef struct TaskRecord:
    # 64 bytes, one cache line. Owner: apply, except `place` (lanes while waiting).
    int64_t submitted_ns
    int64_t deadline_ns        # NEVER_NS = none
    int64_t changed_ns         # time of the last change of state
    uint64_t sequence          # submission order; the last part of the order of tasks
    uint32_t shape             # slot
    uint32_t template_         # opaque to the core
    uint32_t gang              # slot or NONE
    uint32_t place             # live or claiming: allocation slot; waiting (derived): where in a lane, see lanes; succeeded: ref into
                               # `stories`, or NONE; free: next free slot
    uint32_t key               # ref into `keys`
    uint16_t queue             # slot
    int16_t priority           # higher goes first
    uint16_t attempt           # attempts begun
    uint16_t checkpoint        # index into `checkpoints`
    uint8_t failures           # attempts that failed; stays at 255
    uint8_t preemptions        # stays at 255
    uint8_t state
    uint8_t flags              # bits 0..5 the flags of the .pyi, bits 6..7 the qos level


cdef struct AllocationRecord:
    # What an attempt holds, or what a claim will hold once its victims are gone. 64 bytes. Owner: apply.
    int64_t placed_ns          # a claim: when it was made
    int64_t started_ns         # 0 until started
    int64_t cost               # a claim: lost work of its victims, device-milliseconds
    uint32_t task              # slot
    uint32_t node              # slot
    uint32_t next_on_node      # allocation slot or NONE; free: next free slot
    uint32_t previous_on_node  # allocation slot or NONE
    uint32_t pieces            # ref into `pieces`: count x (device index | share_milli << 8); NONE if count is 0
    uint32_t claim             # a victim: the allocation slot of the claim that waits for it, else NONE
    uint32_t next_victim       # a victim: the next of the same claim, else NONE
    uint32_t first_victim      # a claim: first victim that has not ended
    uint16_t victims           # a claim: victims that have not ended
    uint8_t count              # devices
    uint8_t lane               # LANE_*
    uint8_t is_claim
    uint8_t is_live            # 0: free record
    uint16_t lifted_by         # while victims are searched: 1 + the unit that has it lifted, else 0. Owner: victims


cdef struct UseRecord:
    # What an allocation holds and does not use, as last measured; by its slot. Owner: overcommit.
    int64_t cpu_idle           # milli
    int64_t memory_idle        # bytes


cdef struct DeviceRecord:
    # 32 bytes, half a cache line. What live attempts hold is what is not free, but for claims. Owner: apply; what add_node sets never changes.
    int64_t memory_bytes       # -1 unknown: never limits
    int64_t memory_free        # bytes, claims taken off; negative while victims end
    int16_t numa               # -1 none
    int16_t nvlink             # -1 none
    uint8_t kind
    int8_t model               # -1 none
    int16_t share_free         # milli, claims taken off; negative while victims end
    int16_t pcie               # switch, -1 none
    uint16_t sharers           # derived: attempts and claims that hold a part of it
    uint8_t usable


cdef struct NodeRecord:
    # 192 bytes, three cache lines: what every placement reads is on the first. Owner: apply (free amounts, list), cluster doors (the rest),
    # rank (`marked`).
    int64_t cpu_milli
    int64_t memory_bytes
    int64_t cpu_free           # milli, claims taken off; negative while victims end, and by what is lent
    int64_t memory_free        # bytes, likewise
    uint32_t device_first      # first of its run in `devices`; a free slot: next free slot
    uint32_t allocation_first  # head of the list of allocations, claims among them; NONE
    uint32_t allocations       # live ones, claims not counted
    uint32_t claims
    uint8_t device_count
    uint8_t is_present
    uint8_t is_open
    uint8_t is_grouped         # some device has a numa, nvlink or pcie group
    uint8_t marked             # derived: in `dirty`, its leaves are to be computed again
    int64_t cpu_soft           # milli that soft tasks hold or claim: part of what is not free
    int64_t memory_soft        # bytes, likewise
    int64_t cpu_idle           # milli that firm tasks hold and, as measured, do not use. Owner: overcommit
    int64_t memory_idle        # bytes, likewise
    int64_t cpu_extra          # derived: milli of it that may be lent now
    int64_t memory_extra       # derived: bytes, likewise
    uint32_t evictable[LEVELS] # derived: live, preemptible, not stopping, unclaimed allocations by qos
    int32_t domain[DOMAINS]    # interned topology labels, -1 none
    uint64_t unused[5]         # up to whole lines


cdef struct AskRecord:
    # What a shape asks of one kind. Owner: add_shape.
    int64_t memory_bytes       # per device
    uint64_t models            # mask of allowed models, 0 = any
    uint16_t whole             # devices
    uint16_t parts             # devices
    uint16_t part_milli        # of each part
    uint8_t kind
    uint8_t model_count        # length of the list, best first
    uint8_t rank[64]           # position of the model in the list


cdef struct ShapeRecord:
    int64_t cpu_milli
    int64_t memory_bytes
    int64_t popularity         # times asked, halved now and then; the weight in the mix
    AskRecord asks[MAX_ASKS]
    uint8_t ask_count
    uint8_t same               # 0, 1 numa, 2 nvlink, 3 pcie
    uint8_t level_top          # highest level told (1 if none)
    uint8_t model_top          # longest list of models, at most 16
    uint16_t device_count      # devices asked in all
    uint8_t level_low          # lowest level above 0 of any node
    uint8_t is_soft            # its tasks may stand on what others hold and do not use, and give way to them; see overcommit
    uint8_t is_wish            # `same` is preferred, not required
    int64_t device_milli       # share asked in all
    uint8_t* levels            # a byte a node slot, NULL = 1 everywhere
    uint32_t levels_size       # bytes
    uint32_t pending           # derived: waiting tasks
    uint32_t ask_class         # shapes with equal asks, `same` and `is_wish` share a number
    uint32_t column            # derived: column of the score trees or NONE
    uint32_t lane_first        # derived: its lanes, linked
    uint64_t idle_since        # derived: value of `rounds` when its last waiting task left


cdef struct BlendRecord:
    # What a shape's score is blended of; total 0 = the preset decides. One a shape slot. Derived. Owner: terms.
    uint8_t* told              # a byte a node slot, 255 best; further nodes have 0
    uint32_t told_size         # bytes
    int32_t weights[TERMS]     # by TERM_*
    int32_t total              # their sum
    uint8_t level_top          # higher levels of set_shape_node count as this one
    uint8_t has_likes          # of devices that fit, some models are liked better
    uint8_t liked[64]          # by model: 0 best


cdef struct AgeClass:
    # Tasks that were submitted close together, and age together. Owner: ageing.
    uint64_t first_sequence
    int64_t begun_ns           # submission of its first task; in a stream a minute after the class before it


cdef struct EvictionRecord:
    # An attempt that was evicted. Owner: damping.
    uint64_t sequence          # of the task, which is never given out again
    int64_t at_ns              # when it was told to stop


cdef struct TemplateRecord:
    # What is said of the tasks that name a template. Owner: set_template.
    int64_t said_ns            # run time, 0 = nothing
    int64_t grace_ns           # how long they may take to stop, 0 = unknown
    uint32_t expectation       # slot of what was learned of the like, NONE
    uint8_t trust              # TRUST_…: when that counts for more than what is said


cdef struct ExpectationRecord:
    # What was learned of tasks of one type and size: one record for all templates of them, so that telling it costs the same however many there
    # are, and all of them count with the same. Owner: set_expectation.
    int64_t expected_ns        # run time that few exceed, 0 = unknown
    int64_t typical_ns         # run time that half of them exceed, 0 = as expected_ns
    int32_t efficiency_milli   # historical, -1 = unknown
    uint8_t beats_estimates    # it was nearer than the submitters' estimates


cdef struct EndRecord:
    # When an allocation is expected to be over. Owner: reserve.
    int64_t end_ns
    uint32_t allocation        # slot


cdef struct SeatRecord:
    # Where a reserved task will go. Owner: reserve.
    uint32_t task
    uint32_t node


cdef struct LaneRecord:
    # The waiting tasks of one (qos, queue, shape), best first; shape NONE: gangs of that (qos, queue). Derived. Owner: lanes.
    uint32_t head              # task that goes first, or NONE
    uint32_t head_rank         # what it is compared by, see rank_of_task
    uint64_t head_sequence     # likewise
    uint32_t shape
    uint16_t queue
    uint8_t qos
    uint8_t is_mixed           # since it was last empty some had another priority or deadline: its order may change with time
    uint32_t tried_at          # where in `tried` of its line, or NONE. Owner: order
    uint32_t parked_at         # where in `parked` of its level, or NONE. Owner: order
    uint32_t stalled_at        # where in `stalled` of its line, or NONE. Owner: order
    uint32_t next_of_shape
    uint64_t parked_round      # `rounds` when it was parked last. Owner: order
    uint64_t last_sequence     # of the last task of the run
    Slots run                  # tasks in order; those gone from the middle are NONE
    uint32_t run_head          # first that is not gone
    uint32_t run_live
    Slots heap                 # tasks that came out of order, 4-ary heap
    uint64_t no_proof          # `changes` when a search for victims found nothing, 0 = never
    int64_t no_start_ns        # until when no start is looked for
    uint64_t oldest_sequence   # since it was last empty
    int64_t deadline_ns        # of the first since it was last empty
    int16_t priority           # likewise


cdef struct LaneEntry:
    # A lane in a heap, with what its head is compared by, so that no lane and no task is looked at.
    uint64_t sequence
    uint32_t rank
    uint32_t lane


cdef struct ParkedLane:
    uint32_t lane
    uint32_t shape             # its own, so that lanes whose shape is shut are not looked at


cdef struct ParkedList:
    # Lanes of one level whose shape or queue is blocked. Owner: order.
    ParkedLane* at
    uint32_t size
    uint32_t capacity


cdef struct LaneHeap:
    # Lanes by head, 4-ary.
    LaneEntry* at
    uint32_t size
    uint32_t capacity
    uint32_t listed_at         # where its queue is in the list of queues that have any at this level, NONE if there are none


cdef struct LineRecord:
    # The lanes of one (queue, qos) that have tasks; by queue x LEVELS + qos. Derived. Owner: order.
    LaneHeap tried             # they may be tried
    LaneHeap stalled           # parked, and nothing says yet that they have no start for now


cdef struct QueueRecord:
    int64_t used[RESOURCES]    # claims and children included. Owner: apply
    int64_t guaranteed[RESOURCES]  # 0 = none
    int64_t limit[RESOURCES]   # -1 = none
    int64_t weight
    uint32_t parent            # slot or NONE
    uint32_t depth
    int64_t delay_ns           # how long its tasks wait before they may evict, -1: as above it. Not dumped: it is told
    uint64_t key               # derived: dominant share over weight, scaled
    uint8_t key_stale          # derived
    uint8_t has_limit          # here or above


cdef struct GangRecord:
    Slots members              # tasks in submission order, terminal ones until forgotten
    uint32_t size
    uint32_t min_size
    uint32_t succeeded         # members that succeeded, forgotten ones too
    int32_t column             # -1 none, 0..7 domain, 8 one node
    uint32_t next_free
    int64_t broken_ns          # when it last lost an attempt before its time, 0 = never. Owner: apply
    int64_t no_start_ns        # derived: until when no start is looked for
    uint64_t no_proof          # derived: `changes` when a search for victims found nothing, 0 = never
    uint8_t is_present
    uint8_t is_wounded         # derived: in `wounded`
    uint8_t is_stale           # derived: in `stale_gangs`, its standing in the lanes is to be settled
    int32_t wish               # a column in which they would like to share a domain, -1 none; -1 too where `column` is not


cdef struct Least:
    # What a node must have before a shape is looked at closer: copied from it, side by side, because most shapes fail here on most nodes.
    int64_t cpu_milli
    int64_t memory_bytes
    uint16_t whole             # of the kind that it asks for first
    uint16_t part_milli
    uint8_t kind


cdef struct TreeRecord:
    # 64 score columns over all node slots. Whole cache lines, as a cell is one. Derived. Owner: rank.
    LeafColumns columns        # what the plain ones ask for, side by side. Owner: leaves
    Least least[COLUMNS]
    uint8_t* cells[MAX_DEPTH]  # level 0 = leaves; 64 bytes a cell
    uint32_t shape[COLUMNS]    # who has the column, NONE = free
    uint64_t odd               # columns that are scored one by one, a bit each. Owner: leaves
    uint64_t told              # plain ones with a level a node. Owner: leaves
    uint16_t kinds             # kinds that plain ones ask for, a bit each. Owner: leaves
    uint16_t unused[7]         # up to whole lines


cdef struct ClassView:
    # What all shapes with the same device asks have in common on the node being looked at. Derived. Owner: rank.
    uint64_t stamp             # `views` when it was computed; older ones are void
    int32_t count              # devices picked, -1 if they do not suffice
    int32_t worst              # worst position in the model list
    int32_t islands            # a wish to be together: islands over which the pieces lie, else 0
    int32_t loss               # price: tenths of a milli that the pieces take off what the devices are worth
    int32_t free_after         # pack, spread: sum over the kinds asked of the mean free milli a device once they are taken
    uint8_t has_lost
    uint32_t pieces[MAX_PIECES]
    int32_t lost[MIX_SHAPES]   # by class of the mix: milli it cannot use after these pieces are taken, if cpu and memory suffice for it
    int32_t lost_all[MIX_SHAPES]   # the same if they do not: all that is free of its kinds


cdef struct PriceRecord:
    # What free devices of one kind are worth under what is asked. Derived (policy/price.py computes it anew). Owner: set_prices.
    int16_t value[1001]        # by free share, milli of a device
    int16_t premium[64]        # by model: how much it is wanted by name, thousandths
    int16_t apart[65]          # by wholly free devices of a node: thousandths that its free capacity is worth less; never rises
    int16_t wide[65]           # by devices of a node, free or not: thousandths that its free capacity is worth more; never falls
    int64_t cpu_rate           # milli of a device that go with a millicore, x 2^20
    int64_t memory_rate        # milli of a device that go with a MiB, x 2^20


cdef struct TrialRecord:
    # One member placed on trial: what rewind gives back. Owner: gang.
    uint32_t task
    uint32_t node
    uint32_t count
    uint32_t pieces[MAX_PIECES]
    uint8_t was_open           # the node, before it was closed to claims. Owner: repair


cdef struct UnitRecord:
    # What can only be stopped together: one task, or a gang that would fall below its least. Owner: victims.
    int64_t lost               # work lost, device-milliseconds
    uint64_t sequence          # of its first task: the last part of the order
    uint32_t task
    uint32_t gang              # NONE: the task alone; else all its members that run
    uint8_t qos                # the most urgent of its tasks
    uint8_t is_in              # in the set
    uint8_t is_own             # its queue is guaranteed what it holds, as far as those before it have not given it back
    uint8_t choice             # CHOICE_*: of the set that is being tried. Owner: cheapest, as all below
    uint8_t is_best            # in the cheapest set so far
    uint8_t is_noted           # in the set that is put back for a moment
    uint8_t taking             # TAKING_* when it was gathered
    int64_t cpu_milli          # on the node being looked at; of a gang's victims on all nodes
    int64_t memory_mib
    int64_t device_milli
    int64_t split              # what it loses, by the devices that it gives back
    uint32_t tasks
    uint32_t by_cpu            # not of this unit: which one is here in the order by what is lost for a core
    uint32_t by_memory         # or a byte


cdef struct SeatPrice:
    # What the cheapest seat for a member of a gang costs on a node; of a single task, what a place there costs at least. Owner: gang_victims, victims.
    int64_t lost               # work lost, device-milliseconds
    uint8_t victim_qos         # most urgent victim, LEVELS: nobody has to go
    uint32_t own               # victims whose queues are guaranteed what they hold
    uint8_t is_possible


cdef struct Plan:
    # The cheapest proof so far. Owner: victims, gang_victims.
    uint32_t node              # NONE: none yet
    uint8_t victim_qos         # most urgent victim
    uint32_t own               # victims whose queues are guaranteed what they hold
    int64_t lost
    uint8_t is_reclaim         # it is for cpu or memory that soft victims hold
    uint32_t count             # devices of the preemptor
    uint32_t pieces[MAX_PIECES]
    Slots victims              # tasks
    uint8_t is_move            # all of them have room elsewhere
    TrialRecord* seats         # of a gang, whose node and pieces the fields above are not
    uint32_t seats_size        # 0: none yet
    uint32_t seats_capacity


cdef struct FgdTables


cdef enum:
    SEGMENT_BITS = 8
    SEGMENTS = 1 << SEGMENT_BITS


cdef struct Segment:
    # A part of the index of ids.
    uint64_t* at               # 32 hash bits << 32 | slot + 1; 0 = empty; sorted by home, linear probing
    uint32_t size              # 0: nothing was ever in it
    uint32_t used


cdef struct Tables:
    int64_t now_ns
    uint8_t turn_open          # begin() was called and F_TURN is not written yet
    uint8_t replaying          # inside apply(): no facts, nothing decided
    uint8_t policy
    uint8_t order              # ORDER_*: which of two tasks of a level goes first
    uint8_t has_guarantees     # derived: some queue is guaranteed something
    uint32_t owner             # while victims are searched: the preemptor, if it may take back; else NONE. Owner: reclaim
    Slots passing              # likewise: allocations that are claims, or are stopping
    int64_t wanted[RESOURCES]  # likewise: what it takes, with those who must start with it
    uint32_t seated            # likewise: entries of the trial that are held. Owner: gang_victims
    int64_t lack_before[RESOURCES]  # likewise: what queues lacked of their guarantees before
    int64_t blast_radius       # stopped devices per requested device, 0 = no cap
    int64_t over_cpu           # thousandths of a node's cpu that may be lent beyond it, 0 = none
    int64_t over_memory        # likewise of its memory
    int64_t gang_share         # thousandths of the cluster that gangs may hold before they queue like single tasks, 0 = they always do
    uint16_t sharers_most      # so many share a device before another one is begun, 0 = as the preset likes. Owner: steering
    int64_t gang_milli         # derived: device milli that members of gangs hold or claim
    int64_t gang_cpu           # derived: millicores likewise
    uint8_t taking             # while victims are searched: which soft tasks are among them, TAKING_*. Owner: overcommit
    uint8_t took               # likewise for a gang: some seat lacks cpu or memory that soft tasks hold. Owner: gang_victims
    int64_t delay_ns           # of queues that say none: before a task may evict. Not dumped: it is told
    uint64_t next_sequence
    uint8_t kept_by            # while a gang is tried on one island: its level, else 0. Owner: gang_wish
    int32_t kept_island        # likewise
    uint8_t* liked             # while devices are picked: of the shape, NULL = no model is liked better. Owner: fit
    uint64_t changes           # derived: grows with every change that could make a proof or a fit possible
    uint64_t frees             # derived: grows when capacity or room for somebody grew
    uint64_t rounds            # derived: calls of decide
    Buffer facts

    AgeClass ages[AGE_CLASSES]     # oldest first
    uint32_t ages_used
    int64_t accepted_ns        # latest submission
    int64_t age_clock_ns       # derived: up to when waiting is counted; moved on once a minute

    TaskRecord* tasks
    uint32_t tasks_used        # records in use at least once
    uint32_t tasks_capacity
    uint32_t tasks_free        # first free record
    uint32_t tasks_count
    uint64_t counts[16]        # derived: tasks per state
    uint64_t waiting[LEVELS]   # derived: queued, not claiming
    Arena keys
    Segment index[SEGMENTS]    # derived: ids by the first bits of their hash
    uint64_t index_size        # of all of them
    int64_t* checkpoints       # distinct values of checkpoint_ns; [0] = 0
    uint32_t checkpoints_used
    uint32_t checkpoints_capacity

    EvictionRecord* evictions  # of the last twenty minutes, oldest end first
    uint32_t evictions_used
    uint32_t evictions_capacity
    uint64_t oscillations      # evictions of tasks that had been evicted within the last ten minutes
    int64_t damped_until_ns    # derived: when the next task stops being damped, 0 = none

    TemplateRecord* templates
    uint32_t templates_used
    uint32_t templates_capacity
    ExpectationRecord* expectations
    uint32_t expectations_used
    uint32_t expectations_capacity
    uint32_t timed             # derived: templates that say a run time, and expectations of one
    EndRecord* ends            # scratch of reserve
    uint32_t ends_size
    uint32_t ends_capacity
    uint64_t ends_rounds       # `rounds` and
    uint64_t ends_changes      # `changes` when it was gathered
    uint32_t reserved_task     # derived: the blocked head that has the reservation, NONE
    uint64_t reserved_sequence # derived: its own, for slots are given out again
    int64_t reserved_ns        # derived: its start
    int64_t reserved_at_ns     # derived: when that was found or confirmed
    SeatRecord* seats          # derived
    uint32_t seats_size
    uint32_t seats_capacity
    uint8_t strict             # no backfill: who is behind a blocked head waits. Not dumped: it is told
    uint8_t halted             # inside decide: a head is blocked, and nobody passes it; or as many are placed as this call may place
    int64_t room               # inside decide: how many more this call may place; below 0: it has stopped for that
    uint8_t seats_closed       # derived: inside decide, while those behind it are decided
    uint64_t parks             # derived: grows when somebody is parked

    AllocationRecord* allocations
    uint32_t allocations_used
    uint32_t allocations_capacity
    uint32_t allocations_free
    uint32_t allocations_count
    UseRecord* uses            # by allocation slot; those beyond the end use all they hold
    uint32_t uses_used
    uint32_t uses_capacity
    Arena pieces
    Arena stories              # of attempts that are over; see story
    Slots gone                 # (task, ref into `stories`) of attempts that did not succeed, this turn's. Not dumped
    uint32_t gone_next         # which of `gone` was found last, NONE: none yet. Not dumped
    uint8_t* plain             # by template: nothing but what a Run tells follows from its tasks' facts. Not dumped: it is told
    uint32_t plain_used
    uint32_t plain_capacity
    Buffer learned             # LearnedRecords of runs that were told and not taken. Not dumped

    NodeRecord* nodes
    uint32_t nodes_used
    uint32_t nodes_capacity    # multiple of 8; the trees are that wide
    uint32_t nodes_free
    uint32_t nodes_count
    uint32_t nodes_bare        # derived: present nodes without devices
    int64_t most_cpu           # derived: millicores of the largest node known so far
    int64_t most_milli         # derived: device milli of the largest
    DeviceRecord* devices
    uint32_t devices_used
    uint32_t devices_capacity
    Slots device_runs[65]      # given back runs by length
    int64_t capacity[RESOURCES]    # derived: open nodes, usable devices
    int64_t live[RESOURCES]        # derived: used by live attempts

    ShapeRecord* shapes
    uint32_t shapes_used
    uint32_t shapes_capacity
    uint32_t classes           # derived: different ask_class
    ClassView* class_views     # one a class
    LeafOutcome* outcomes      # derived: one a class. Owner: leaves
    uint32_t outcomes_capacity
    LeafMix leaf_mix           # derived: the mix, side by side. Owner: leaves
    BlendRecord* blends        # derived: by shape slot
    uint32_t blends_used
    uint32_t blends_capacity
    uint8_t blends_fragment    # derived: some blend has (had) a weight for fragment
    uint32_t class_views_capacity
    uint64_t views             # nodes looked at so far
    uint32_t mix[MIX_SHAPES]   # most asked device shapes when the mix was last taken
    int64_t mix_weight[MIX_SHAPES]
    int64_t mix_total
    uint32_t mix_size
    int64_t mix_cpu[MIX_SHAPES]     # derived, side by side for the inner loop
    int64_t mix_memory[MIX_SHAPES]  # derived
    uint8_t mix_class[MIX_SHAPES]   # derived: index into mix_first
    uint32_t mix_first[MIX_SHAPES]  # derived: the first shape of each class in the mix
    uint32_t mix_classes            # derived
    PriceRecord* prices        # by kind; see price
    int64_t strand_limit       # price: milli of devices that a core of a task without devices may strand, 0 = any amount. Not dumped: it is told
    int64_t patience_ns        # price: how long a task may wait for a place that leaves a rest of use; see patience. Not dumped: it is told
    uint16_t scarce            # a bit a kind of which little is free. Derived, but for what lies between the two marks. Owner: patience
    uint64_t asked             # derived: device tasks accepted, those before a load by popularity
    uint64_t left              # derived: device tasks that gave back what they held, those before a load as far as it can be told
    uint8_t has_apart          # derived: some kind's `apart` or `wide` is not all 0
    FgdTables* fgd             # derived: NULL before the preset is fgd; see published
    int64_t mix_since          # device tasks accepted since
    int64_t mix_every          # after how many it is taken again

    QueueRecord* queues
    uint32_t queues_used
    uint32_t queues_capacity

    GangRecord* gangs
    uint32_t gangs_used
    uint32_t gangs_capacity
    uint32_t gangs_free

    uint64_t* lane_index       # derived: lanes by (shape, queue, qos), at most half full: (hash of these) << 32 | lane + 1; 0 = empty
    uint32_t lane_index_size
    LaneRecord* lanes
    uint32_t lanes_used
    uint32_t lanes_capacity
    uint32_t lane_found        # derived: the lane that was asked for last: who leaves it is often the next question
    uint32_t gang_lane_first   # derived: lanes with shape NONE, linked
    LineRecord* lines          # derived: LEVELS a queue
    uint32_t lines_capacity
    Slots active[LEVELS]       # derived: queues with something to try at that level
    Slots stalled[LEVELS]      # derived: queues with something in `stalled` of the line
    int64_t aside_ns           # derived: no parked lane without a start for now is due before this
    ParkedList parked[LEVELS]  # derived
    uint8_t* shut              # derived: by shape, SHUT_*: it fits nowhere. Owner: decide
    uint32_t shut_capacity
    Slots parked_tasks         # derived: gang members that did not fit, until `frees` moves
    uint64_t parked_frees      # `frees` when parked_tasks was last let go
    uint8_t parked_behind      # levels (bits) before whose next decision they are let go: one of them was parked while nodes were closed for the reservation, or aside
    Slots claimers             # derived: who claims, in no order. Owner: claimers
    uint8_t ripe               # some claims may wait for no victim any more, and are to be settled. Owner: claimers, facts
    Slots begun                # who started by a claim at `begun_ns`. Owner: claimers
    int64_t begun_ns
    Slots stale_gangs          # derived
    Slots wounded              # derived: gangs that may have lost members, by slot
    int64_t repair_ns          # how long room is kept for them, 0 = not at all. Not dumped: it is told
    TrialRecord* kept          # inside decide: that room
    uint32_t kept_size
    uint32_t kept_capacity
    int64_t look_again_ns      # derived: when time alone changes what is decided, NEVER_NS = not
    Slots wishes               # (task, node) one after the other, told before every decision; not dumped: derived

    TreeRecord* trees
    uint32_t trees_used
    uint32_t trees_capacity
    uint32_t tree_depth        # levels of a tree, root included
    uint8_t columns_moved      # what columns ask for is to be copied from their shapes again
    Slots dirty                # nodes whose leaves are to be computed again
    uint8_t all_dirty          # the mix, the policy or the width changed: compute everything again

    UnitRecord* units          # of the node being looked at
    uint32_t units_size
    uint32_t units_capacity
    Plan plan
    Slots lifted               # scratch of victims
    int64_t looks_left         # how much longer a cheaper set is searched for. Owner: cheapest
    Slots doomed               # scratch of gang_victims: tasks in the set
    uint8_t consolidate        # MOVE_*. Not dumped: it is told
    uint8_t moving             # while victims are searched: those of the newcomer's own level who can be moved, too. Owner: decide
    int64_t newcomer_milli     # likewise: what the newcomer asks for in all. Owner: victims, gang_victims
    int64_t newcomer_cpu
    TrialRecord* moves         # scratch of consolidate: where victims would find room
    uint32_t moves_size
    uint32_t moves_capacity
    SeatPrice* seat_prices     # scratch of gang_victims, one a node
    uint32_t seat_prices_capacity
    int64_t search_left        # nodes that gangs may still look at for seats in this decision. Owner: gang_seats
    TrialRecord* trial
    uint32_t trial_size
    uint32_t trial_capacity
