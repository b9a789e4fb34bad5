# Connections that bring one single task after the other, read and answered here: two system calls a request and nothing of asyncio's.
#
# Promises: only bytes that a lane takes are kept from the connection's transport. Whatever else comes (another request, half of one, the end, an
# error), or does not leave at once, gives the connection back: the transport reads and writes on, with what the lane had no use for before it.
# So all that is unusual about connections stays where it was, in `api/protocol.py`.
#
# Why: of 14 µs a request, 3 were the transport's: an object for what was read, a call of Python, queues for what is written at once.

cdef extern from "<sys/epoll.h>" nogil:
    ctypedef union epoll_data_t:
        int fd
    cdef struct epoll_event:
        uint32_t events
        epoll_data_t data
    enum:
        EPOLL_CLOEXEC
        EPOLL_CTL_ADD
        EPOLL_CTL_DEL
        EPOLLIN
    int epoll_create1(int flags)
    int epoll_ctl(int epoll, int operation, int socket, epoll_event* event)
    int epoll_wait(int epoll, epoll_event* events, int most, int timeout_ms)

cdef extern from "<sys/socket.h>" nogil:
    enum:
        MSG_DONTWAIT
        MSG_NOSIGNAL
    ssize_t recv(int socket, void* to, size_t room, int flags)
    ssize_t send(int socket, const void* what, size_t size, int flags)

cdef enum:
    MOST_READY = 256            # connections read in one round of the loop
    READ_ROOM = 65536           # as much as a transport reads at once


cdef class Sockets:
    """Those of the lanes that read alone. `ready` is to be called whenever its own descriptor is readable."""

    cdef int epoll
    cdef list lanes             # by the number of their socket; None: not ours
    cdef char* data

    def __cinit__(self):
        self.epoll = epoll_create1(EPOLL_CLOEXEC)
        if self.epoll < 0:
            raise OSError(errno, "a set of sockets could not be made")
        self.data = <char*> malloc(READ_ROOM)
        if self.data == NULL:
            raise MemoryError
        self.lanes = []

    def __dealloc__(self):
        free(self.data)
        if self.epoll >= 0:
            close(self.epoll)

    def __len__(self):
        """How many there are."""
        return len(self.lanes) - self.lanes.count(None)

    def fileno(self):
        """Readable when one of them is."""
        return self.epoll

    def ready(self):
        """Take in what has come."""
        cdef epoll_event events[MOST_READY]
        cdef int at, count = epoll_wait(self.epoll, events, MOST_READY, 0)
        for at in range(count):
            lane = self.lanes[events[at].data.fd]
            if lane is not None:
                self._read(<Lane> lane)

    cdef int _read(self, Lane lane) except -1:
        cdef Py_ssize_t taken = 0, size = recv(lane.socket, self.data, READ_ROOM, MSG_DONTWAIT)
        if size < 0 and (errno == EAGAIN or errno == EINTR):
            return 0
        try:
            if size > 0:
                taken = lane._take(self.data, size)
            if taken <= 0 or taken < size:
                self._give_back(lane, piece(<const uint8_t*> self.data, taken, max(size, taken)))
        except Exception as error:  # of one connection; the others go on
            self.leave(lane)
            lane.wire.broken(error)
        return 0

    cdef int say(self, Lane lane, bytes data) except -1:
        """Write it, or let the transport do so."""
        cdef Py_ssize_t size = PyBytes_GET_SIZE(data), sent
        sent = send(lane.socket, PyBytes_AS_STRING(data), size, MSG_DONTWAIT | MSG_NOSIGNAL)
        if sent < size:
            self._give_back(lane, b"")
            lane.write(data[max(sent, 0):])
        return 0

    cdef int _give_back(self, Lane lane, bytes rest) except -1:
        self.leave(lane)
        lane.wire.given_back(rest)
        return 0

    cdef int join(self, Lane lane, int socket) except -1:
        cdef epoll_event event
        event.events = EPOLLIN
        event.data.fd = socket
        if epoll_ctl(self.epoll, EPOLL_CTL_ADD, socket, &event) < 0:
            raise OSError(errno, "a socket could not be joined to the others")
        while len(self.lanes) <= socket:
            self.lanes.append(None)
        self.lanes[socket] = lane
        lane.alone, lane.socket = self, socket
        return 0

    cdef int leave(self, Lane lane) except -1:
        if lane.alone is not None:
            epoll_ctl(self.epoll, EPOLL_CTL_DEL, lane.socket, NULL)
            self.lanes[lane.socket] = lane.alone = None
        return 0
