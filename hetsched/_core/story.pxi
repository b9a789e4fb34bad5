# What is kept of an attempt that is over: where it was and when, until the task is forgotten.
#
# Promises: of a task that succeeded `place` names the story of its last attempt; it goes with the task. The stories of attempts that ended
# otherwise are in `gone` until the next turn begins, for whoever wants to write them down.

cdef struct StoryRecord:
    # Followed by `count` pieces.
    int64_t placed_ns
    int64_t started_ns         # 0: it never ran
    uint32_t node              # slot
    uint16_t attempt
    uint8_t count              # devices
    uint8_t lane


cdef inline StoryRecord* story_at(Tables* t, uint32_t ref) noexcept nogil:
    return <StoryRecord*> arena_at(&t.stories, ref)


cdef inline uint32_t* story_pieces(StoryRecord* story) noexcept nogil:
    return <uint32_t*> (story + 1)


cdef inline uint32_t story_bytes(int count) noexcept nogil:
    return <uint32_t> (sizeof(StoryRecord) + 4 * count)


cdef int keep_story(Tables* t, uint32_t task, AllocationRecord* record, uint32_t* ref) except -1 nogil:
    cdef StoryRecord* story
    arena_take(&t.stories, story_bytes(record.count), ref)
    story = story_at(t, ref[0])
    story.placed_ns, story.started_ns = record.placed_ns, record.started_ns
    story.node, story.attempt = record.node, t.tasks[task].attempt
    story.count, story.lane = record.count, record.lane
    if record.count > 0:
        memcpy(story_pieces(story), pieces_of(t, record), <size_t> record.count * 4)
    return 0


cdef inline void drop_story(Tables* t, uint32_t ref) noexcept nogil:
    arena_give(&t.stories, ref, story_bytes(story_at(t, ref).count))


cdef int story_gone(Tables* t, uint32_t task, uint32_t ref) except -1 nogil:
    push(&t.gone, task)
    return push(&t.gone, ref)


cdef void let_stories_go(Tables* t) noexcept nogil:
    """A new turn begins."""
    cdef uint32_t at
    for at in range(0, t.gone.size, 2):
        drop_story(t, t.gone.at[at + 1])
    t.gone.size = 0
    t.gone_next = NONE_


cdef uint32_t story_of(Tables* t, uint32_t task) noexcept nogil:
    """Of its attempt that was over last, or NONE: a task that failed before this turn has none. Those that went this turn are asked for in
    the order in which they did, so the search goes on where it ended."""
    cdef uint32_t count = t.gone.size // 2, tried
    if t.tasks[task].state == SUCCEEDED_:
        return t.tasks[task].place
    for tried in range(count):
        t.gone_next = t.gone_next + 1 if t.gone_next != NONE_ and t.gone_next + 1 < count else 0
        if t.gone.at[2 * t.gone_next] == task:
            return t.gone.at[2 * t.gone_next + 1]
    return NONE_
