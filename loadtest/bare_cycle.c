/* The life of a task in the design alone: accepted, kept in order, placed on the fullest node that takes it, ended, forgotten; 48 bytes of facts.
 * Tables, lanes and a tree of score bytes as in the core, and no rule beyond qos, dominant share and order of arrival: nobody is preempted,
 * cancelled, reserved for, guaranteed, limited, retried, explained or replayed, and no input is checked. See bare_cycle.py. */

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SHAPES = 128, QUEUES = 8, LEVELS = 4, FAMILY = 8, DEVICES = 8, HIGHEST = 6, FRAME = 1000, DRAWS = 1 << 16, FACTS = 48 };

#define NONE UINT32_MAX

enum { CPU, MEMORY, WHOLE, PART, COLUMNS, WORDS = 32 };

typedef uint16_t Words __attribute__((vector_size(2 * WORDS), may_alias));
typedef uint8_t Bytes __attribute__((vector_size(WORDS), may_alias));

/* Columns over shapes: cores by 10 milli, memory by 64 MiB, whole devices, thousandths of one; whether a node's model will do. */
typedef struct {
    uint16_t columns[COLUMNS][SHAPES] __attribute__((aligned(64)));
    uint8_t models[16][SHAPES];
} Shapes;

typedef struct {
    uint16_t cpu, memory, cpu_in_all, memory_in_all, milli_in_all, milli[DEVICES];
    uint8_t model, count;
} Node;

typedef struct {
    uint64_t id, submitted_ns;
    uint32_t next, node, running_at, order;
    uint16_t devices, milli;
    uint8_t shape, queue, level, state;
} Task;

typedef struct {
    uint32_t first, last;
} Lane;

/* The lanes of a queue and level that are to be decided, by order of their first tasks: order << 8 | shape. */
typedef struct {
    uint64_t lanes[SHAPES];
    uint32_t size;
} Ready;

typedef struct {
    Shapes shapes;
    Node *nodes;
    uint8_t (*scores[HIGHEST])[SHAPES]; /* [0]: of nodes; [n]: the most of families of [n - 1] */
    uint32_t widths[HIGHEST];
    int height;
    uint8_t *is_marked;
    Task *tasks;
    uint32_t *free_slots, *running, *marked;
    uint64_t *index; /* hash << 32 | slot + 1 */
    uint8_t *facts;
    Lane lanes[LEVELS][QUEUES][SHAPES];
    Ready ready[LEVELS][QUEUES];
    uint32_t is_ready[LEVELS]; /* bits: queues */
    uint64_t parked[LEVELS][QUEUES][2];
    double used[QUEUES][3], in_all[3], share[QUEUES];
    uint8_t drawn[DRAWS];
    uint32_t node_count, free_count, running_count, marked_count, waiting, order, index_mask;
    uint64_t id, random, milli_used, milli_in_all;
    size_t facts_used;
} World;

static uint64_t random_of(World *w)
{
    w->random ^= w->random << 13;
    w->random ^= w->random >> 7;
    w->random ^= w->random << 17;
    return w->random >> 11;
}

/* ---------------------------------------------------------------- names */

static uint32_t hash_of(uint64_t id)
{
    id *= 0x9e3779b97f4a7c15u;
    return (uint32_t) (id >> 32);
}

static void enter(World *w, uint64_t id, uint32_t slot)
{
    uint32_t hash = hash_of(id), at = hash & w->index_mask;
    while (w->index[at]) {
        if (w->index[at] >> 32 == hash && w->tasks[(uint32_t) w->index[at] - 1].id == id)
            return;
        at = (at + 1) & w->index_mask;
    }
    w->index[at] = (uint64_t) hash << 32 | (slot + 1);
}

static void leave(World *w, uint64_t id, uint32_t slot)
{
    uint32_t at = hash_of(id) & w->index_mask;
    while ((uint32_t) w->index[at] != slot + 1)
        at = (at + 1) & w->index_mask;
    for (uint32_t next = (at + 1) & w->index_mask; w->index[next]; next = (next + 1) & w->index_mask) {
        uint32_t home = (uint32_t) (w->index[next] >> 32) & w->index_mask;
        if (((next - home) & w->index_mask) >= ((next - at) & w->index_mask)) {
            w->index[at] = w->index[next];
            at = next;
        }
    }
    w->index[at] = 0;
}

/* ---------------------------------------------------------------- scores */

static void score(World *w, uint32_t index)
{
    const Shapes *shapes = &w->shapes;
    const Node *node = &w->nodes[index];
    uint16_t whole = 0, most = 0, left = 0;
    for (int device = 0; device < DEVICES; device++) {
        uint16_t milli = node->milli[device];
        whole += milli == 1000;
        most = milli > most ? milli : most;
        left += milli;
    }
    uint32_t full = node->milli_in_all ? 1000u * (node->milli_in_all - left) / node->milli_in_all
                                       : 1000u * (node->cpu_in_all - node->cpu) / node->cpu_in_all;
    uint8_t byte = (uint8_t) (1 + full * 254 / 1000), *scores = w->scores[0][index];
    Words cpu = (Words) {} + node->cpu, memory = (Words) {} + node->memory, wholes = (Words) {} + whole, parts = (Words) {} + most;
    for (int at = 0; at < SHAPES / WORDS; at++) {
        const Words *columns = (const Words *) &shapes->columns[0][at * WORDS];
        Words fits = (Words) (columns[0] <= cpu) & (Words) (columns[SHAPES / WORDS] <= memory) & (Words) (columns[2 * SHAPES / WORDS] <= wholes)
                     & (Words) (columns[3 * SHAPES / WORDS] <= parts);
        Bytes bytes = __builtin_convertvector(fits, Bytes) & byte & *(const Bytes *) &shapes->models[node->model][at * WORDS];
        memcpy(&scores[at * WORDS], &bytes, sizeof(bytes));
    }
}

/* Whether the family's most has changed. */
static int raise_family(World *w, int level, uint32_t parent)
{
    uint8_t most[SHAPES];
    const uint8_t (*children)[SHAPES] = (const uint8_t (*)[SHAPES]) w->scores[level] + (size_t) parent * FAMILY;
    memcpy(most, children[0], SHAPES);
    for (int child = 1; child < FAMILY; child++)
        for (int shape = 0; shape < SHAPES; shape++)
            most[shape] = children[child][shape] > most[shape] ? children[child][shape] : most[shape];
    if (memcmp(w->scores[level + 1][parent], most, SHAPES) == 0)
        return 0;
    memcpy(w->scores[level + 1][parent], most, SHAPES);
    return 1;
}

static void refresh(World *w, uint32_t node)
{
    score(w, node);
    for (int level = 0; level + 1 < w->height; level++) {
        node /= FAMILY;
        if (!raise_family(w, level, node))
            return;
    }
}

/* All marked nodes, each family once. `marked` is in no order. */
static void refresh_marked(World *w)
{
    for (uint32_t at = 0; at < w->marked_count; at++) {
        w->is_marked[w->marked[at]] = 0;
        score(w, w->marked[at]);
    }
    for (int level = 0; level + 1 < w->height; level++) {
        uint32_t kept = 0;
        for (uint32_t at = 0; at < w->marked_count; at++) {
            uint32_t parent = w->marked[at] / FAMILY;
            if (w->is_marked[parent])
                continue;
            w->is_marked[parent] = 1;
            w->marked[kept++] = parent;
        }
        for (uint32_t at = 0; at < kept; at++) {
            w->is_marked[w->marked[at]] = 0;
            raise_family(w, level, w->marked[at]);
        }
        w->marked_count = kept;
    }
    w->marked_count = 0;
}

/* ---------------------------------------------------------------- order */

static void push(World *w, int level, int queue, uint64_t lane)
{
    Ready *ready = &w->ready[level][queue];
    uint32_t at = ready->size++;
    w->is_ready[level] |= 1u << queue;
    while (at > 0 && lane < ready->lanes[(at - 1) / 2]) {
        ready->lanes[at] = ready->lanes[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    ready->lanes[at] = lane;
}

/* `lane` in place of the first. */
static void replace(Ready *ready, uint64_t lane)
{
    uint32_t at = 0, child;
    while ((child = 2 * at + 1) < ready->size) {
        child += child + 1 < ready->size && ready->lanes[child + 1] < ready->lanes[child];
        if (ready->lanes[child] >= lane)
            break;
        ready->lanes[at] = ready->lanes[child];
        at = child;
    }
    ready->lanes[at] = lane;
}

static void drop(World *w, int level, int queue)
{
    Ready *ready = &w->ready[level][queue];
    if (--ready->size)
        replace(ready, ready->lanes[ready->size]);
    else
        w->is_ready[level] &= ~(1u << queue);
}

static void set_share(World *w, int queue)
{
    double most = 0;
    for (int kind = 0; kind < 3; kind++) {
        double share = w->used[queue][kind] * w->in_all[kind];
        most = share > most ? share : most;
    }
    w->share[queue] = most / (1 + queue % 2);
}

static void charge(World *w, const Task *task, double sign)
{
    double *used = w->used[task->queue];
    used[0] += sign * w->shapes.columns[CPU][task->shape];
    used[1] += sign * w->shapes.columns[MEMORY][task->shape];
    used[2] += sign * task->milli;
    set_share(w, task->queue);
}

/* Parked lanes whose shape has room somewhere. */
static void unpark(World *w)
{
    uint64_t has_room[2] = {0, 0};
    for (int shape = 0; shape < SHAPES; shape++)
        has_room[shape / 64] |= (uint64_t) (w->scores[w->height - 1][0][shape] != 0) << shape % 64;
    for (int level = 0; level < LEVELS; level++)
        for (int queue = 0; queue < QUEUES; queue++)
            for (int half = 0; half < 2; half++) {
                uint64_t back = w->parked[level][queue][half] & has_room[half];
                w->parked[level][queue][half] &= ~back;
                for (; back; back &= back - 1) {
                    int shape = half * 64 + __builtin_ctzll(back);
                    push(w, level, queue, (uint64_t) w->tasks[w->lanes[level][queue][shape].first].order << 8 | (uint64_t) shape);
                }
            }
}

/* ---------------------------------------------------------------- a task's life */

static void note(World *w, uint64_t what, uint64_t whose, size_t bytes)
{
    uint64_t fact[2] = {what, whose};
    memcpy(w->facts + w->facts_used, fact, 16);
    w->facts_used += bytes;
}

static void accept(World *w, uint64_t id, uint8_t level, uint8_t queue, uint8_t shape)
{
    uint32_t slot = w->free_slots[--w->free_count];
    Task *task = &w->tasks[slot];
    Lane *lane = &w->lanes[level][queue][shape];
    *task = (Task) {.id = id, .submitted_ns = id, .next = NONE, .node = NONE, .order = w->order++, .shape = shape, .queue = queue, .level = level};
    enter(w, id, slot);
    if (lane->first == NONE) {
        lane->first = slot;
        push(w, level, queue, (uint64_t) task->order << 8 | shape);
    } else
        w->tasks[lane->last].next = slot;
    lane->last = slot;
    w->waiting++;
    note(w, id, (uint64_t) slot << 32 | (uint64_t) level << 16 | (uint64_t) queue << 8 | shape, 16);
}

static void place(World *w, uint32_t slot, uint8_t best)
{
    Task *task = &w->tasks[slot];
    uint32_t at = 0;
    for (int level = w->height - 1; level > 0; level--) {
        at *= FAMILY;
        while (w->scores[level - 1][at][task->shape] != best)
            at++;
    }
    Node *node = &w->nodes[at];
    uint16_t whole = w->shapes.columns[WHOLE][task->shape], part = w->shapes.columns[PART][task->shape], least = UINT16_MAX;
    int tightest = 0;
    node->cpu -= w->shapes.columns[CPU][task->shape];
    node->memory -= w->shapes.columns[MEMORY][task->shape];
    for (int device = 0; device < node->count && whole; device++)
        if (node->milli[device] == 1000) {
            node->milli[device] = 0;
            task->devices |= 1 << device;
            task->milli += 1000;
            whole--;
        }
    if (part) {
        for (int device = 0; device < node->count; device++)
            if (node->milli[device] >= part && node->milli[device] < least) {
                least = node->milli[device];
                tightest = device;
            }
        node->milli[tightest] -= part;
        task->devices = 1 << tightest;
        task->milli = part;
    }
    task->node = at;
    task->state = 1;
    task->running_at = w->running_count;
    w->running[w->running_count++] = slot;
    w->waiting--;
    w->milli_used += task->milli;
    charge(w, task, 1);
    note(w, (uint64_t) slot << 32 | at, task->devices, 16);
    refresh(w, at);
}

static void decide(World *w)
{
    unpark(w);
    for (int level = 0; level < LEVELS; level++)
        for (;;) {
            uint32_t others = w->is_ready[level];
            if (!others)
                break;
            int queue = __builtin_ctz(others);
            for (others &= others - 1; others; others &= others - 1)
                queue = w->share[__builtin_ctz(others)] < w->share[queue] ? __builtin_ctz(others) : queue;
            Ready *ready = &w->ready[level][queue];
            uint8_t shape = (uint8_t) ready->lanes[0], best = w->scores[w->height - 1][0][shape];
            if (!best) {
                w->parked[level][queue][shape / 64] |= (uint64_t) 1 << shape % 64;
                drop(w, level, queue);
                continue;
            }
            Lane *lane = &w->lanes[level][queue][shape];
            uint32_t slot = lane->first;
            lane->first = w->tasks[slot].next;
            if (lane->first == NONE)
                drop(w, level, queue);
            else
                replace(ready, (uint64_t) w->tasks[lane->first].order << 8 | shape);
            place(w, slot, best);
        }
}

static void end(World *w, uint32_t slot)
{
    Task *task = &w->tasks[slot];
    Node *node = &w->nodes[task->node];
    uint16_t each = w->shapes.columns[WHOLE][task->shape] ? 1000 : w->shapes.columns[PART][task->shape];
    for (uint32_t left = task->devices; left; left &= left - 1)
        node->milli[__builtin_ctz(left)] += each;
    node->cpu += w->shapes.columns[CPU][task->shape];
    node->memory += w->shapes.columns[MEMORY][task->shape];
    w->milli_used -= task->milli;
    charge(w, task, -1);
    if (!w->is_marked[task->node]) {
        w->is_marked[task->node] = 1;
        w->marked[w->marked_count++] = task->node;
    }
    note(w, (uint64_t) slot << 32, 0, 8);
    note(w, task->id, 0, 8); /* and is forgotten */
    leave(w, task->id, slot);
    task->state = 0;
    w->free_slots[w->free_count++] = slot;
}

/* ---------------------------------------------------------------- doors */

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double) now.tv_sec + (double) now.tv_nsec * 1e-9;
}

/* So many end, drawn at random, and so many come; seconds of processor time, without the draws. */
static double turn(World *w, uint32_t ending, uint32_t coming)
{
    static uint32_t ended[FRAME], came[10 * FRAME];
    for (uint32_t at = 0; at < ending; at++) {
        uint32_t chosen = (uint32_t) (random_of(w) % w->running_count), last = w->running[--w->running_count];
        ended[at] = w->running[chosen];
        w->running[chosen] = last;
    }
    for (uint32_t at = 0; at < coming; at++) {
        uint64_t random = random_of(w);
        came[at] = (uint32_t) (random % LEVELS << 16 | (random >> 8) % QUEUES << 8 | w->drawn[(random >> 16) % DRAWS]);
    }
    double began_s = now_s();
    w->facts_used = 0;
    for (uint32_t at = 0; at < ending; at++) {
        if (at + 4 < ending)
            __builtin_prefetch(&w->tasks[ended[at + 4]], 1);
        end(w, ended[at]);
    }
    refresh_marked(w);
    for (uint32_t at = 0; at < coming; at++)
        accept(w, ++w->id, (uint8_t) (came[at] >> 16), (uint8_t) (came[at] >> 8), (uint8_t) came[at]);
    decide(w);
    return now_s() - began_s;
}

static void *zeros(size_t size)
{
    return memset(aligned_alloc(64, (size + 127) / 64 * 64), 0, (size + 127) / 64 * 64);
}

/* The cluster nine tenths full, and then so many that wait. */
World *make(const Shapes *shapes, const Node *nodes, uint32_t node_count, const uint8_t *drawn, uint32_t queued)
{
    World *w = zeros(sizeof(World));
    uint32_t most = queued + node_count * 64 + 20 * FRAME, index = 1;
    w->shapes = *shapes;
    memcpy(w->drawn, drawn, DRAWS);
    w->random = 88172645463325252u;
    w->node_count = node_count;
    w->nodes = zeros(node_count * sizeof(Node));
    memcpy(w->nodes, nodes, node_count * sizeof(Node));
    for (uint32_t width = node_count;; width = (width + FAMILY - 1) / FAMILY) {
        w->widths[w->height] = width;
        w->scores[w->height++] = zeros((size_t) (width + FAMILY) * SHAPES);
        if (width == 1)
            break;
    }
    w->is_marked = zeros(node_count);
    w->marked = zeros(4 * node_count);
    w->tasks = zeros(most * sizeof(Task));
    w->free_slots = zeros(4 * most);
    w->running = zeros(4 * most);
    while (index < 2 * most)
        index *= 2;
    w->index = zeros(8 * (size_t) index);
    w->index_mask = index - 1;
    w->facts = zeros(FACTS * 20 * FRAME);
    while (w->free_count < most) {
        w->free_slots[w->free_count] = most - 1 - w->free_count;
        w->free_count++;
    }
    memset(w->lanes, 0xff, sizeof(w->lanes));
    for (uint32_t at = 0; at < node_count; at++) {
        for (int device = 0; device < nodes[at].count; device++)
            w->milli_in_all += 1000;
        w->in_all[0] += nodes[at].cpu;
        w->in_all[1] += nodes[at].memory;
        w->is_marked[at] = 1;
        w->marked[w->marked_count++] = at;
    }
    w->in_all[2] = (double) w->milli_in_all;
    for (int kind = 0; kind < 3; kind++)
        w->in_all[kind] = 1 / w->in_all[kind];
    refresh_marked(w);
    while (w->milli_used * 10 < w->milli_in_all * 9 && w->waiting < FRAME)
        turn(w, 0, 100);
    while (w->waiting < queued)
        turn(w, 0, 10 * FRAME);
    return w;
}

double run(World *w, uint32_t frames)
{
    double spent_s = 0;
    for (uint32_t frame = 0; frame < frames; frame++)
        spent_s += turn(w, w->running_count < FRAME ? w->running_count : FRAME, FRAME);
    return spent_s;
}

/* 0, or what does not hold: 1 that who waits finds no room, 2 that nodes have what tasks do not hold, 3 that each who is there has its name. */
int broken(World *w)
{
    uint32_t named = 0;
    for (int level = 0; level < LEVELS; level++)
        for (int queue = 0; queue < QUEUES; queue++)
            for (int shape = 0; shape < SHAPES; shape++)
                if (w->lanes[level][queue][shape].first != NONE)
                    for (uint32_t at = 0; at < w->node_count; at++) {
                        score(w, at);
                        if (w->scores[0][at][shape])
                            return 1;
                    }
    for (uint32_t at = 0; at < w->running_count; at++) {
        Task *task = &w->tasks[w->running[at]];
        w->nodes[task->node].cpu += w->shapes.columns[CPU][task->shape];
        for (uint32_t left = task->devices; left; left &= left - 1)
            w->nodes[task->node].milli[__builtin_ctz(left)] += w->shapes.columns[WHOLE][task->shape] ? 1000 : w->shapes.columns[PART][task->shape];
    }
    for (uint32_t at = 0; at < w->node_count; at++) {
        if (w->nodes[at].cpu != w->nodes[at].cpu_in_all)
            return 2;
        for (int device = 0; device < w->nodes[at].count; device++)
            if (w->nodes[at].milli[device] != 1000)
                return 2;
    }
    for (uint32_t at = 0; at <= w->index_mask; at++)
        named += w->index[at] != 0;
    return named == w->waiting + w->running_count ? 0 : 3;
}
