/* The least that the life of a task costs in memory: the lines that it cannot do without are read and written, in the order in which the core
 * does that, and nothing is decided, compared or looked for. See lines.py. */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { LINE = 64, FAMILY = 8, TREES = 2, DEVICES = 256, FACTS = 40, FRAME = 1000, AHEAD = 8 };

/* A task's record, its allocation's, its key, and its entry in the index, for each that runs; then of each node its record, its devices and its
 * leaves; all of it on lines of their own. */
typedef struct {
    uint8_t *tasks, *allocations, *keys, *index, *nodes, *devices, *leaves[TREES], *parents[TREES], *facts;
    uint32_t live, node_count;
} Lines;

static uint64_t random_of(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state >> 11;
}

static inline void touch(uint8_t *line, uint8_t with)
{
    uint64_t words[LINE / 8];
    memcpy(words, line, LINE);
    for (int at = 0; at < LINE / 8; at++)
        words[at] += with;
    memcpy(line, words, LINE);
}

/* Each parent is the maximum of its family, as far up as a tree of so many nodes goes. */
static void refresh(Lines *lines, uint32_t node)
{
    for (int tree = 0; tree < TREES; tree++) {
        uint8_t *level = lines->leaves[tree], *above = lines->parents[tree], most[LINE];
        uint32_t at = node;
        level[(size_t) at * LINE] += 1;
        for (uint32_t width = lines->node_count; width > 1; width = (width + FAMILY - 1) / FAMILY) {
            at /= FAMILY;
            memcpy(most, level + (size_t) at * FAMILY * LINE, LINE);
            for (int child = 1; child < FAMILY; child++)
                for (int byte = 0; byte < LINE; byte++) {
                    uint8_t one = level[((size_t) at * FAMILY + child) * LINE + byte];
                    most[byte] = one > most[byte] ? one : most[byte];
                }
            memcpy(above + (size_t) at * LINE, most, LINE);
            level = above;
            above += (size_t) ((width / FAMILY + 2 * FAMILY) * LINE);
        }
    }
}

/* So many frames in which a thousand tasks end and a thousand are placed. */
uint64_t live_and_end(Lines *lines, uint32_t frames)
{
    uint64_t state = 88172645463325252u, sum = 0;
    uint32_t gone[FRAME + AHEAD], home[FRAME + AHEAD];
    for (uint32_t frame = 0; frame < frames; frame++) {
        for (int at = 0; at < FRAME + AHEAD; at++) {
            gone[at] = (uint32_t) (random_of(&state) % lines->live);
            home[at] = (uint32_t) (random_of(&state) % lines->node_count);
        }
        for (int at = 0; at < FRAME; at++) { /* it ends, and is forgotten */
            __builtin_prefetch(lines->tasks + (size_t) gone[at + AHEAD] * LINE, 1);
            __builtin_prefetch(lines->allocations + (size_t) gone[at + AHEAD] * LINE, 1);
            __builtin_prefetch(lines->keys + (size_t) gone[at + AHEAD] * LINE / 2, 1);
            __builtin_prefetch(lines->index + (size_t) gone[at + AHEAD] * LINE / 4, 1);
            __builtin_prefetch(lines->nodes + (size_t) home[at + AHEAD] * LINE, 1);
            __builtin_prefetch(lines->devices + (size_t) home[at + AHEAD] * DEVICES, 1);
            touch(lines->tasks + (size_t) gone[at] * LINE, 1);
            touch(lines->allocations + (size_t) gone[at] * LINE, 1);
            lines->keys[(size_t) gone[at] * LINE / 2] += 1;
            lines->index[(size_t) gone[at] * LINE / 4] += 1;
            touch(lines->nodes + (size_t) home[at] * LINE, 1);
            touch(lines->devices + (size_t) home[at] * DEVICES, 1);
            refresh(lines, home[at]);
        }
        for (int at = 0; at < FRAME; at++) { /* one comes, and is placed */
            touch(lines->tasks + (size_t) gone[at] * LINE, 2);
            touch(lines->allocations + (size_t) gone[at] * LINE, 2);
            lines->keys[(size_t) gone[at] * LINE / 2] += 2;
            lines->index[(size_t) gone[FRAME - 1 - at] * LINE / 4] += 2;
            uint32_t node = home[(at * 7 + 3) % FRAME];
            touch(lines->nodes + (size_t) node * LINE, 2);
            touch(lines->devices + (size_t) node * DEVICES, 2);
            refresh(lines, node);
            memcpy(lines->facts + (size_t) at * FACTS, lines->tasks + (size_t) gone[at] * LINE, FACTS);
        }
        sum += lines->facts[(frame * 31) % (FRAME * FACTS)];
    }
    return sum;
}
