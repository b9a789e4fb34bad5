# What may happen to a task in which state: asked by doors and by replay alike.
#
# Promises: NULL, or the sentence that says why not; a fact that passes can be applied.

cdef const char* refuse_placed(Tables* t, uint32_t task, uint32_t node) noexcept nogil:
    if t.tasks[task].state != QUEUED_:
        return "only a queued task can be placed"
    if node >= t.nodes_used or not t.nodes[node].is_present:
        return "the node is not there"
    if t.tasks[task].flags & CLAIMING_:
        if t.allocations[t.tasks[task].place].node != node:
            return "its claim is on another node"
        if t.allocations[t.tasks[task].place].victims > 0:
            return "its claim waits for victims"
        return NULL
    if is_soft(t, task) or has_base(&t.nodes[node], &t.shapes[t.tasks[task].shape]):
        return NULL            # what may be lent hangs on a configuration that may have changed
    return "the node has no room"


cdef const char* refuse_started(Tables* t, uint32_t task, uint32_t attempt) noexcept nogil:
    if t.tasks[task].attempt != attempt:
        return "this is not its current attempt"
    if not is_live(&t.tasks[task]):
        return "only a placed task can start"
    return NULL


cdef const char* refuse_live(Tables* t, uint32_t task) noexcept nogil:
    if is_live(&t.tasks[task]):
        return NULL
    return "it has no live attempt"


cdef const char* refuse_stopping(Tables* t, uint32_t task) noexcept nogil:
    if t.tasks[task].state != PLACED_ and t.tasks[task].state != RUNNING_:
        return "only a placed or running task can be told to stop"
    return NULL


cdef const char* refuse_ended(Tables* t, uint32_t task, int state) noexcept nogil:
    if not SUCCEEDED_ <= state <= SKIPPED_:
        return "a task can only end in a terminal state"
    if is_terminal(&t.tasks[task]):
        return "it has ended already"
    return NULL


cdef const char* refuse_ready(Tables* t, uint32_t task) noexcept nogil:
    if t.tasks[task].state != BACKOFF_ and t.tasks[task].state != HELD_:
        return "only a task in backoff or held comes back"
    return NULL


cdef const char* refuse_held(Tables* t, uint32_t task, int flags) noexcept nogil:
    if not flags & HELD_FLAGS or flags & ~HELD_FLAGS:
        return "a task is held by HELD_* flags"
    if not QUEUED_ <= t.tasks[task].state <= BACKOFF_:
        return "only a waiting task can be held"
    return NULL


cdef const char* refuse_claimed(Tables* t, uint32_t task, uint32_t node) noexcept nogil:
    if not is_waiting(&t.tasks[task]):
        return "only a waiting task can claim"
    if node >= t.nodes_used or not t.nodes[node].is_present:
        return "the node is not there"
    return NULL


cdef const char* refuse_unclaimed(Tables* t, uint32_t task) noexcept nogil:
    if t.tasks[task].flags & CLAIMING_:
        return NULL
    return "it has no claim"


cdef const char* refuse_forgotten(Tables* t, uint32_t task) noexcept nogil:
    if is_terminal(&t.tasks[task]):
        return NULL
    return "only a terminal task can be forgotten"
