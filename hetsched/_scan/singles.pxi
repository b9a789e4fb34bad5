# Single tasks from the bytes of a connection to the answer's bytes, with nothing done in Python for each (`api/fast.py` says what is promised).
#
#   Lane.take: request line, head, body → Filling, the bundle that all lanes fill until the next turn takes it
#   answer_all: the turn is durable → each lane's answers in one write
#   Sockets (`sockets.pxi`): read and write in place of asyncio's transports
#
# What is looked up or refused is asked of Python, in `Singles`: heads that are not the last one's, tasks that are not remembered, permissions of
# bound tokens, errors.

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE

cdef extern from "string.h" nogil:
    void* memmem(const void* haystack, size_t haystack_size, const void* needle, size_t needle_size)

cdef bytes _LINE = b"POST /v1/schedule HTTP/1.1\r\n"
cdef bytes _END = b"\r\n\r\n"
cdef bytes _BEGIN_ANSWER = b"HTTP/1.1 202 Accepted\r\nLocation: "
cdef bytes _TASKS = b"/v1/tasks/"
cdef bytes _TYPE = b"\r\nContent-Type: application/json\r\nContent-Length: "
cdef uint64_t _answering = 0    # number of the call of answer_all

cdef class Sockets


cdef class Recognised:
    """`known`: for the scheduler. `lane`, and `request` behind the id: for the answer. `is_critical`: its answer holds its placement. `is_urgent`:
    it is the immediate lane's."""

    cdef readonly object known
    cdef readonly bytes lane
    cdef readonly bytes request
    cdef readonly bint is_critical
    cdef readonly bint is_urgent

    def __init__(self, known, bytes lane, bytes request, bint is_critical):
        self.is_urgent = lane == b"immediate"
        self.known = known
        self.lane = lane
        self.request = request
        self.is_critical = is_critical


cdef class Head:
    """`length`: bytes of the body. `token`: who asks, by `actor`; it carries the scope `submit`. `is_free`: it may submit whatever it likes."""

    cdef readonly Py_ssize_t length
    cdef readonly object token
    cdef readonly object actor
    cdef readonly bint is_free

    def __init__(self, Py_ssize_t length, token, actor, bint is_free):
        self.length = length
        self.token = token
        self.actor = actor
        self.is_free = is_free


cdef class Filling:
    """A bundle of singles that further ones may join until it is sealed: at most `room`. `askers`: who waits for each. `ring`, if there is one, is
    called once, when there are `enough`."""

    cdef readonly object bundle
    cdef readonly list askers
    cdef readonly bint is_sealed
    cdef readonly Py_ssize_t room
    cdef public Py_ssize_t enough
    cdef public object ring
    cdef list known
    cdef list ids
    cdef list actors
    cdef dict places        # address of a known, which the bundle keeps alive, → its place in the bundle
    cdef object last        # the known that came last, and its place
    cdef uint16_t last_place
    cdef uint16_t* which

    def __cinit__(self, bundle, Py_ssize_t room):
        self.which = <uint16_t*> calloc(max(room, 1), sizeof(uint16_t))
        if self.which == NULL:
            raise MemoryError
        self.bundle = bundle
        self.known, self.ids, self.actors = bundle.known, bundle.ids, bundle.actors
        self.askers = []
        self.places = {}
        self.room = room

    def __dealloc__(self):
        free(self.which)

    def __len__(self):
        return len(self.askers)

    @property
    def may_grow(self):
        """Another one may join."""
        return not self.is_sealed and len(self.askers) < self.room

    def add(self, known, bytes ident, actor, asker):
        """One more."""
        assert self.may_grow, "it is sealed or full"
        self._put(known, ident, actor, asker)

    cdef int _put(self, known, bytes ident, actor, asker) except -1:
        if known is not self.last:
            address = <size_t> <void*> known
            place = self.places.get(address)
            if place is None:
                place = self.places[address] = len(self.known)
                self.known.append(known)
            self.last, self.last_place = known, place
        self.which[len(self.askers)] = self.last_place
        self.ids.append(ident)
        self.actors.append(actor)
        self.askers.append(asker)
        if len(self.askers) == self.enough and self.ring is not None:
            self.ring()
        return 0

    def seal(self):
        """Nobody joins any more: the bundle is whole."""
        cdef Py_ssize_t at, size = len(self.askers)
        if self.is_sealed:
            return
        self.is_sealed = True
        counts = [0] * len(self.known)
        for at in range(size):
            counts[self.which[at]] += 1
        self.bundle.counts.extend(counts)
        self.bundle.which.extend(PyBytes_FromStringAndSize(<const char*> self.which, 2 * size))


cdef class Singles:
    """What the lanes of one listener share. `recall` gives Recognised; `states`: the core's codes as words. `desk`: has `taker` (None: nothing is
    taken now) and `tokens` (another object: heads that were found mean nothing any more). The rest is asked: see `_scan.pyi`."""

    cdef readonly object desk
    cdef readonly Recall recall
    cdef readonly list states
    cdef readonly Py_ssize_t most_open
    cdef bytes last_head            # all of it but the request line
    cdef Head last
    cdef Filling usual
    cdef Filling urgent
    cdef object tokens              # with which the last head was read
    cdef uint64_t answering         # for which call the next three hold
    cdef bytes tail
    cdef bytes durability
    cdef double now_s
    cdef Sockets sockets            # None: transports do all reading and writing

    def __init__(self, desk, Recall recall, list states, Py_ssize_t most_open):
        self.desk = desk
        self.recall = recall
        self.states = states
        self.most_open = most_open

    def read_by(self, Sockets sockets):
        """From now on lanes may read and write by themselves, there; None = no longer."""
        self.sockets = sockets

    cdef bint _is_taking(self):
        if self.desk.taker is None:
            return False
        if self.desk.tokens is not self.tokens:
            self.tokens = self.desk.tokens
            self.last = self.last_head = None
        return True

    cdef Head _head(self, const char* data, Py_ssize_t begin, Py_ssize_t data_end, Py_ssize_t* end):
        """The head that begins there, and where it ends; None: it is not whole, or not for this path."""
        cdef Py_ssize_t size = data_end - begin
        cdef Py_ssize_t last_size
        cdef const char* found
        if self.last is not None:
            last_size = PyBytes_GET_SIZE(self.last_head)
            if size >= last_size and memcmp(data + begin, PyBytes_AS_STRING(self.last_head), last_size) == 0:
                end[0] = begin + last_size
                return self.last
        found = <const char*> memmem(data + begin, size, PyBytes_AS_STRING(_END), 4)
        if found == NULL:
            return None
        end[0] = found - data + 4
        head = piece(<const uint8_t*> data, begin, end[0])
        found_head = self.find(head)
        if found_head is not None:
            self.last_head, self.last = head, found_head
        return found_head

    cdef Filling _filling(self, bint is_urgent):
        """The bundle to fill; None where nothing is taken."""
        cdef Filling filling = self.urgent if is_urgent else self.usual
        if filling is None or not filling.may_grow:
            filling = self.open(is_urgent)
            if is_urgent:
                self.urgent = filling
            else:
                self.usual = filling
        return filling

    cdef int _look_up(self) except -1:
        """What is said in all answers of a turn."""
        if self.answering != _answering:
            self.answering = _answering
            self.tail, self.durability, self.now_s = self.common()
        return 0


cdef class Lane:
    """The fast path of one connection; an Asker. `wire.lane_is_empty()` is called when all its answers are out, if `is_waited_for`;
    `wire.given_back(rest)` when the lane reads by itself no longer, with what it read and is not for it."""

    cdef Singles all
    cdef object wire
    cdef object write               # of its transport; None = not connected
    # Urgent ones have a bundle of their own, whose turn comes sooner: only while nothing else of this connection is open, or answers would
    # leave their order. So they are always the oldest.
    cdef list asked                 # Recognised, oldest first, from `told_until` on
    cdef Py_ssize_t told_until
    cdef Py_ssize_t urgent_until    # of them, those before this were asked as urgent ones
    cdef list out
    cdef uint64_t answering
    cdef public bint is_waited_for
    cdef readonly double said_s
    cdef Sockets alone              # where it reads and writes by itself; None: its transport does
    cdef int socket

    def __init__(self, Singles all, wire):
        self.all = all
        self.wire = wire
        self.asked = []
        self.out = []

    def connect(self, write):
        """Where answers go; None = nowhere any more."""
        self.write = write
        if write is None and self.alone is not None:
            self.alone.leave(self)

    def read_alone(self, int socket):
        """Read, and answer, by itself until something comes that is not for it; False where that is not possible. The transport reads no more,
        and has nothing left to write."""
        if self.all.sockets is None or self.alone is not None:
            return False
        self.all.sockets.join(self, socket)
        return True

    @property
    def open(self):
        """How many wait for their turn."""
        return len(self.asked) - self.told_until

    def take(self, bytes data):
        """Take in the requests with which the data begins; the number of bytes taken."""
        return self._take(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))

    cdef Py_ssize_t _take(self, const char* said, Py_ssize_t size) except -1:
        cdef Singles all = self.all
        cdef const char* line = PyBytes_AS_STRING(_LINE)
        cdef Py_ssize_t line_size = PyBytes_GET_SIZE(_LINE), at = 0, end = 0
        cdef Head head
        cdef Recognised task
        cdef Filling filling
        cdef bint is_urgent
        cdef Span span
        if not all._is_taking():
            return 0
        while size - at > line_size and memcmp(said + at, line, line_size) == 0 and len(self.asked) - self.told_until < all.most_open:
            head = all._head(said, at + line_size, size, &end)
            if head is None or end + head.length > size:
                return at
            task = all.recall._one(<const uint8_t*> said, end, end + head.length, &span)
            if task is None or not (head.is_free or all.may(head.token, task)):
                return at
            is_urgent = task.is_urgent and self.urgent_until == len(self.asked)
            filling = all._filling(is_urgent)
            if filling is None:
                return at
            filling._put(task.known, piece(<const uint8_t*> said, span.hole, span.hole_end), head.actor, self)
            self.asked.append(task)
            self.urgent_until += is_urgent
            at = end + head.length
        return at

    # -- answering

    def answered(self, reply, Py_ssize_t index):
        """The turn of the oldest open request is durable."""
        self._answer(reply.ids, reply.states, reply.refused, reply.placements, index)

    cdef int _answer(self, list ids, bytes states, refused, placements, Py_ssize_t index) except -1:
        cdef Recognised task = self.asked[self.told_until]
        self.all._look_up()
        self._tell_one()
        error = refused.get(index) if refused else None
        self.out.append(self._accepted(task, ids[index], states, placements, index) if error is None else self.all.refusal(error))
        return 0

    def failed(self, error):
        """Nobody will know any more what became of the oldest open request."""
        self.all._look_up()
        self._tell_one()
        self.out.append(self.all.refusal(error))

    cdef void _tell_one(self) noexcept:
        self.told_until += 1
        self.urgent_until = max(self.urgent_until, self.told_until)

    def told(self):
        """All of this turn has been said."""
        cdef bytes data = self.out[0] if len(self.out) == 1 else b"".join(self.out)
        if self.told_until == len(self.asked):
            self.asked.clear()
            self.told_until = self.urgent_until = 0
        self.out.clear()
        self.said_s = self.all.now_s
        if self.alone is not None:
            self.alone.say(self, data)
        elif self.write is not None:
            self.write(data)
        if self.is_waited_for and not self.asked:
            self.wire.lane_is_empty()

    cdef bytes _accepted(self, Recognised task, bytes ident, bytes states, placements, Py_ssize_t index):
        """A 202."""
        cdef Singles all = self.all
        cdef bytes state = all.states[<uint8_t> states[index]], placed = b"", place = None, answer
        cdef bytes durability = all.durability, lane = task.lane, request = task.request, tail = all.tail
        cdef Py_ssize_t size = PyBytes_GET_SIZE(ident)
        cdef const char* name = PyBytes_AS_STRING(ident)
        cdef Py_ssize_t body_size, whole_size
        cdef char digits[24]
        cdef int digits_size
        cdef char* to
        if task.is_critical and placements:
            placed = all.placement(placements, ident)
        if memchr(name, 47, size) != NULL or name[0] == 46 or ident == b"explain" or ident == b"logs":
            place = all.location(ident)
        body_size = (
            7 + size + 11 + len(state) + 10 + len(lane) + 1 + len(placed) + 15 + len(durability) + 19 + size + len(request) + 1
        )
        digits_size = snprintf(digits, sizeof(digits), b"%zd", body_size)
        whole_size = (
            len(_BEGIN_ANSWER) + (len(_TASKS) + size if place is None else len(place)) + len(_TYPE) + digits_size + len(tail) + body_size
        )
        answer = PyBytes_FromStringAndSize(NULL, whole_size)
        to = put(PyBytes_AS_STRING(answer), _BEGIN_ANSWER)
        to = put(put(to, _TASKS), ident) if place is None else put(to, place)
        to = put_raw(put(to, _TYPE), digits, digits_size)
        to = put(to, tail)
        to = put_raw(put(put_raw(to, b'{"id":"', 7), ident), b'","state":"', 11)
        to = put_raw(put(to, state), b'","lane":"', 10)
        to = put(put_raw(put(to, lane), b'"', 1), placed)
        to = put_raw(put(put_raw(to, b',"durability":"', 15), durability), b'","request":{"id":"', 19)
        to = put_raw(put(put(to, ident), request), b"}", 1)
        assert to - PyBytes_AS_STRING(answer) == whole_size, "the answer is as long as it was said to be"
        return answer


cdef inline char* put(char* to, bytes what) noexcept:
    memcpy(to, PyBytes_AS_STRING(what), PyBytes_GET_SIZE(what))
    return to + PyBytes_GET_SIZE(what)


cdef inline char* put_raw(char* to, const char* what, Py_ssize_t size) noexcept:
    memcpy(to, what, size)
    return to + size


def answer_all(list askers, reply):
    """Each his own, in order; then each is told that it was all."""
    global _answering
    cdef Py_ssize_t index
    cdef list present = [], ids = reply.ids
    cdef bytes states = reply.states
    refused, placements = reply.refused, reply.placements
    _answering += 1
    for index in range(len(askers)):
        asker = askers[index]
        if type(asker) is Lane:
            (<Lane> asker)._answer(ids, states, refused, placements, index)
        else:
            asker.answered(reply, index)
        note_present(present, asker)
    for asker in present:
        asker.told()


def fail_all(list askers, error):
    """All the same."""
    global _answering
    cdef list present = []
    _answering += 1
    for asker in askers:
        asker.failed(error)
        note_present(present, asker)
    for asker in present:
        asker.told()


cdef int note_present(list present, asker) except -1:
    cdef Lane lane
    if type(asker) is Lane:
        lane = <Lane> asker
        if lane.answering == _answering:
            return 0
        lane.answering = _answering
    elif asker in present:
        return 0
    present.append(asker)
    return 0
