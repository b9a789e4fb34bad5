"""The core: tables of nodes, devices, shapes, tasks and allocations, and the decisions over them.

Read `_core.pyi` for what every door promises and `_core.pxd` for what every field means. The rooms, in the order of a task's way:

  layout                                     memory, the arena of small blocks, the fact buffer, the index of ids
  columns, accept                            ids by the thousand; a task comes in
  lanes, ageing, order, steering, weighted   who goes first
  island, fit                                where it can go, on which devices, and what holding them means
  fragment, price, published, terms          how good a node is, each in its way
  score, leaves, rank                        where it goes best
  gang, gang_wish, gang_seats, repair,
  damping, reclaim, overcommit, lift,
  consolidate, cheapest, victims             what could be done about it
  reserve, gang_cheapest, gang_victims,
  claimers, decide                           what is done about it
  allocate, story, apply, facts, run         what it does to the tables, what is kept and what is written down
  refuse, codec, replay                      what may happen in which state; facts read back
  check, check_derived                       what must hold
  records, whole, load, digest               the tables as a whole
  tabled, cluster, shapes, terms, tasks, pricing, ranked, questions  the doors, layered by what they are about; Core is the last layer
  patterns                                   a door of its own: what sizes of parts weigh

To add a fact: its code and bytes and `apply_x` in apply, `do_x` in facts, `refuse_x`, a case in codec and in replay, a line in the .pyi, a
story in tests/core.

Three floors: doors (`def`) check arguments and hold the only `with nogil`; walkers (`cdef ... except -1 nogil`) loop and assert; leaves
(`cdef inline ... noexcept nogil`) compute. Integers only.
"""

from collections import namedtuple
import json
import math
import zlib

from libc.math cimport floor
from libc.stdint cimport INT64_MAX, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, qsort, realloc
from libc.string cimport memchr, memcmp, memcpy, memmove, memset

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize

cdef extern from *:
    """
    #ifndef HETSCHED_CHECKED
    #define HETSCHED_CHECKED 0
    #endif
    #define MINUTE_NS INT64_C(60000000000)
    #define DAMPING_NS INT64_C(600000000000)
    #define REVIEW_NS INT64_C(10000000000)
    #define AGE_NEAR_NS INT64_C(10000000000)
    #define AGE_OVER_NS INT64_C(15000000000)
    #define prefetch(address) __builtin_prefetch(address)
    static inline int64_t share_of_lost(int64_t lost, int64_t part, int64_t whole) { return (int64_t) ((__int128) lost * part / whole); }
    static inline int is_less(int64_t a, int64_t b, int64_t c, int64_t d) { return (__int128) a * b < (__int128) c * d; }
    """
    int64_t share_of_lost(int64_t lost, int64_t part, int64_t whole) noexcept nogil    # lost x part / whole, rounded down
    bint is_less(int64_t a, int64_t b, int64_t c, int64_t d) noexcept nogil            # a x b < c x d
    void prefetch(const void* address) noexcept nogil
    const int HETSCHED_CHECKED
    const int64_t MINUTE_NS
    const int64_t REVIEW_NS            # a reservation is looked at again so long after it was found
    const int64_t DAMPING_NS           # CONTRACT, section 7, Ageing
    const int64_t AGE_NEAR_NS          # a pause between submissions, at which a class that has lasted a minute ends
    const int64_t AGE_OVER_NS          # so long after its minute it ends without one

cdef enum:
    NONE_ = 0xFFFFFFFF
    FREE_ = 0
    QUEUED_ = 1
    HELD_ = 2
    BACKOFF_ = 3
    PLACED_ = 4
    RUNNING_ = 5
    STOPPING_ = 6
    SUCCEEDED_ = 7
    SKIPPED_ = 11
    PREEMPTIBLE_ = 1
    CLAIMING_ = 8
    SHAKEN_ = 32
    TRUST_NOTHING_ = 0         # what was learned counts for more than what a template says, if anything was learned
    TRUST_ESTIMATE_ = 1        # where it beats estimates
    TRUST_WORD_ = 2            # never
    LANE_BATCH_ = 0
    LANE_IMMEDIATE_ = 1
    POLICY_FRAGMENT_ = 0
    POLICY_PACK_ = 1
    POLICY_SPREAD_ = 2
    POLICY_FIRST_FIT_ = 3
    TERM_TOLD = 0
    TERM_PRESET = 1
    TERM_FRAGMENT = 2
    TERM_PACK = 3
    TERM_SPREAD = 4
    TERM_LOAD = 5
    POLICY_PRICE_ = 4
    POLICY_RANDOM_ = 5
    POLICY_BEST_FIT_ = 6
    POLICY_DOT_PRODUCT_ = 7
    POLICY_PACKING_ = 8
    POLICY_CLUSTERING_ = 9
    POLICY_FGD_ = 10
    POLICIES = 11
    STOP_PREEMPTED = 1         # the reason codes that the core gives by itself
    STOP_RECLAIM = 11
    STOP_CONSOLIDATE = 16
    AGE_MOST = 100             # points of priority
    ORDER_FIFO_ = 2
    LOOK_BEHIND = 64           # tasks of a lane that may be passed over

NONE = 0xFFFFFFFF
NEWLINE = b"\n"
NEVER_NS = INT64_MAX
FREE, QUEUED, HELD, BACKOFF, PLACED, RUNNING, STOPPING, SUCCEEDED, FAILED, CANCELLED, EXPIRED, SKIPPED = range(12)
STATE_NAMES = ("free", "queued", "held", "backoff", "placed", "running", "stopping",
               "succeeded", "failed", "cancelled", "expired", "skipped")
PREEMPTIBLE, HELD_OPERATOR, HELD_DEPENDENCY, CLAIMING, DEADLINE_RELATIVE, SHAKEN = 1, 2, 4, 8, 16, 32
DAMPED_NS = DAMPING_NS
LANE_BATCH, LANE_IMMEDIATE = 0, 1
TRUST_NOTHING, TRUST_ESTIMATE, TRUST_WORD = range(3)
ORDER_DRF, ORDER_WEIGHTED, ORDER_FIFO = 0, 1, 2
TERM_NAMES = ("told", "preset", "fragment", "pack", "spread", "load")
PRICE_PART_NAMES = ("devices", "premium", "apart", "cpu", "memory", "wide")
POLICY_FRAGMENT, POLICY_PACK, POLICY_SPREAD, POLICY_FIRST_FIT, POLICY_PRICE = range(5)
POLICY_RANDOM, POLICY_BEST_FIT, POLICY_DOT_PRODUCT, POLICY_PACKING, POLICY_CLUSTERING, POLICY_FGD = range(5, 11)
RESOURCE_CPU, RESOURCE_MEMORY, RESOURCE_KIND = 0, 1, 2
MAX_KINDS, MAX_MODELS = 16, 64
REASON_PREEMPTED, REASON_RECLAIM, REASON_CONSOLIDATE = STOP_PREEMPTED, STOP_RECLAIM, STOP_CONSOLIDATE
MOVE_NEVER, MOVE_LOWER, MOVE_EQUAL = range(3)
CHECKED_BUILD = bool(HETSCHED_CHECKED)
(F_TURN, F_WORDS, F_PLACED, F_STARTED, F_STOPPING, F_ENDED, F_REQUEUED, F_BACKED_OFF, F_READY, F_HELD, F_CLAIMED, F_UNCLAIMED,
 F_PRIORITISED, F_FORGOTTEN) = range(1, 15)

Placement = namedtuple("Placement", "node attempt lane placed_ns started_ns devices")
TaskRow = namedtuple("TaskRow", "key state flags qos queue shape template priority attempt gang sequence submitted_ns deadline_ns "
                                "changed_ns failures preemptions")

include "_core/layout.pxi"
include "_core/lanes.pxi"
include "_core/ageing.pxi"
include "_core/order.pxi"
include "_core/steering.pxi"
include "_core/overcommit.pxi"
include "_core/island.pxi"
include "_core/fit.pxi"
include "_core/fragment.pxi"
include "_core/price.pxi"
include "_core/published.pxi"
include "_core/score.pxi"
include "_core/leaves.pxi"
include "_core/rank.pxi"
include "_core/patience.pxi"
include "_core/gang.pxi"
include "_core/gang_wish.pxi"
include "_core/gang_seats.pxi"
include "_core/repair.pxi"
include "_core/damping.pxi"
include "_core/reclaim.pxi"
include "_core/lift.pxi"
include "_core/consolidate.pxi"
include "_core/cheapest.pxi"
include "_core/victims.pxi"
include "_core/give_back.pxi"
include "_core/claimers.pxi"
include "_core/weighted.pxi"
include "_core/reserve.pxi"
include "_core/gang_cheapest.pxi"
include "_core/gang_victims.pxi"
include "_core/decide.pxi"
include "_core/story.pxi"
include "_core/allocate.pxi"
include "_core/apply.pxi"
include "_core/facts.pxi"
include "_core/refuse.pxi"
include "_core/codec.pxi"
include "_core/replay.pxi"
include "_core/tabled.pxi"
include "_core/cluster.pxi"
include "_core/shapes.pxi"
include "_core/terms.pxi"
include "_core/columns.pxi"
include "_core/accept.pxi"
include "_core/tasks.pxi"
include "_core/run.pxi"
include "_core/pricing.pxi"
include "_core/patterns.pxi"
include "_core/ranked.pxi"
include "_core/verdict.pxi"
include "_core/questions.pxi"
include "_core/check.pxi"
include "_core/check_derived.pxi"
include "_core/records.pxi"
include "_core/whole.pxi"
include "_core/load.pxi"
include "_core/digest.pxi"

check_layout()


cdef class Core(Whole):
    """See `_core.pyi`."""

    def __init__(self, *, int policy=POLICY_FRAGMENT_, int64_t blast_radius=8, bint checked=False):
        if blast_radius < 0:
            raise ValueError(f"blast_radius {blast_radius} is negative")
        self.set_policy(policy)
        self.t.blast_radius = blast_radius
        self.is_checked = checked or HETSCHED_CHECKED
