/* The bytes of one node for 64 shapes at once, for shapes and nodes that are plain (see leaves.pxi, which fills these records).
 *
 * Promises: the same numbers as score_byte, shape by shape, to the last bit. Everything is a whole number: up to 2^53 in doubles, up to 2^18 in
 * floats; where something is divided, half a unit is added first, so that no rounding reaches the next whole number. Loops of a fixed 16 over
 * fields that lie side by side, without branches, so that the compiler makes vectors of them on any machine. Nothing is fused
 * (-ffp-contract=off).
 */

#ifndef HETSCHED_LEAVES_H
#define HETSCHED_LEAVES_H

#include <stdint.h>
#include <string.h>

/* The wider vectors of newer machines, chosen when the module is loaded; older compilers cannot choose between these. */
#if defined(__x86_64__) && defined(__linux__) && defined(__GLIBC__) && defined(__GNUC__) && __GNUC__ >= 12 && !defined(__clang__)
#define WIDE __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define WIDE
#endif

/* A loop that is to become vectors: the compiler unrolls short ones before it sees that, and then no longer does. Its indices are size_t, for where
 * ints may wrap (-fwrapv, which extensions of Python are built with) the sum of two of them is no place beside the last. */
#if defined(__GNUC__) && !defined(__clang__)
#define AS_VECTORS _Pragma("GCC unroll 1")
#else
#define AS_VECTORS
#endif

enum { LEAF_COLUMNS = 64, LEAF_BLOCK = 16, LEAF_MIX = 32 };

/* What the columns of one tree ask for, side by side. */
typedef struct {
    int32_t cpu[LEAF_COLUMNS];       /* millicores */
    int32_t mebibytes[LEAF_COLUMNS]; /* of memory, whole ones */
    int32_t rest[LEAF_COLUMNS];      /* bytes beyond them */
    float whole[LEAF_COLUMNS];       /* devices of the kind asked for first */
    float part[LEAF_COLUMNS];        /* milli of a part of it, 0 if none is asked */
    float milli[LEAF_COLUMNS];       /* milli of that kind in all */
    float has_devices[LEAF_COLUMNS]; /* 1: it asks for devices, and these count in the mean of what is free */
    float has_cpu[LEAF_COLUMNS];     /* 1: likewise cores */
    float has_memory[LEAF_COLUMNS];  /* 1: likewise memory */
    float per_term[LEAF_COLUMNS];    /* 1 / how many of these count; 0: none does */
    float middle[LEAF_COLUMNS];      /* 500 if none does: neither full nor free */
    int32_t kind[LEAF_COLUMNS];      /* asked for first, -1 none */
    int32_t top[LEAF_COLUMNS];       /* price: steps that a placement gains at best */
    uint32_t outcome[LEAF_COLUMNS];  /* columns of one number ask for the same devices */
    double memory[LEAF_COLUMNS];     /* bytes */
    double milli_all[LEAF_COLUMNS];  /* milli of devices in all, of every kind */
    int32_t used;                    /* columns behind these are nobody's */
    int32_t unused[15];              /* up to whole lines of the cache */
} LeafColumns;

/* What is free on one node. */
typedef struct {
    int32_t cpu_free;                /* millicores */
    int32_t mebibytes_free;          /* of memory, whole ones, rounded down */
    int32_t rest_free;               /* bytes beyond them */
    double memory_free;              /* bytes */
    double per_cpu;                  /* 1000 / millicores of the node, in 2^-32 rounded down */
    double per_mebibyte;             /* likewise 1000 / MiB of the node */
    double milli_all;                /* milli of devices, of every kind */
    double most_cpu;                 /* millicores of the largest node */
    double most_milli;               /* milli of devices of the largest */
    float steps, steps_bare;         /* the preset's highest score; for who asks for no device */
    int32_t base, base_bare;         /* byte of score 0; likewise */
} LeafNode;

/* What is free of one kind on it. */
typedef struct {
    int32_t kind;
    float whole;                     /* devices that nobody uses */
    float top;                       /* milli free on the one with most */
    float milli;                     /* milli free in all */
    float per_device;                /* 1 / devices */
} LeafKind;

enum { LEAF_PACK, LEAF_SPREAD, LEAF_NOTHING, LEAF_BEST_FIT, LEAF_KINDS = 16 };

#define ALWAYS_INLINE inline __attribute__((always_inline))

static ALWAYS_INLINE float whole_part(float value)
{
    return (float) (int32_t) value;
}

/* One block of columns: 0 where the shape does not fit, else base + score. */
static ALWAYS_INLINE void block_bytes(const LeafColumns *columns, size_t from, const LeafNode *node, const LeafKind *kind, int preset, int first,
                                      uint8_t *leaf)
{
    int32_t cpu_left[LEAF_BLOCK], memory_left[LEAF_BLOCK], score[LEAF_BLOCK], byte[LEAF_BLOCK];
    AS_VECTORS for (size_t at = 0; at < LEAF_BLOCK; at++) {
        cpu_left[at] = node->cpu_free - columns->cpu[from + at];
        memory_left[at] = node->mebibytes_free - columns->mebibytes[from + at] - (node->rest_free < columns->rest[from + at]);
    }
    if (preset == LEAF_PACK || preset == LEAF_SPREAD) {
        int32_t cpu[LEAF_BLOCK], memory[LEAF_BLOCK];
        AS_VECTORS for (size_t at = 0; at < LEAF_BLOCK; at++) {
            cpu[at] = (int32_t) ((double) (cpu_left[at] > 0 ? cpu_left[at] : 0) * node->per_cpu);
            memory[at] = (int32_t) ((double) (memory_left[at] > 0 ? memory_left[at] : 0) * node->per_mebibyte);
        }
        float sign = preset == LEAF_PACK ? -1 : 1, full = preset == LEAF_PACK ? 1000 : 0;
        AS_VECTORS for (size_t at = 0; at < LEAF_BLOCK; at++) {
            size_t column = from + at;
            float devices = whole_part((kind->milli - columns->milli[column] + 0.5f) * kind->per_device);
            float total = devices * columns->has_devices[column] + (float) cpu[at] * columns->has_cpu[column] + (float) memory[at] * columns->has_memory[column];
            float mean = whole_part((total + 0.5f) * columns->per_term[column]) + columns->middle[column];
            mean = mean > 1000 ? 1000 : mean;
            mean = mean < 0 ? 0 : mean;
            float steps = columns->kind[column] < 0 ? node->steps_bare : node->steps;
            score[at] = (int32_t) (((full + sign * mean) * steps + 0.5f) * 0.001f);
        }
    } else if (preset == LEAF_BEST_FIT) {
        AS_VECTORS for (size_t at = 0; at < LEAF_BLOCK; at++) {
            double left = (double) cpu_left[at] / node->most_cpu * 0.5;
            left += (node->milli_all - columns->milli_all[from + at]) / node->most_milli * 0.5;
            double hundred = (1 - left) * 100;
            hundred = hundred > 100 ? 100 : hundred;
            score[at] = (int32_t) (hundred < 0 ? 0 : hundred);
        }
    } else
        memset(score, 0, sizeof(score));
    AS_VECTORS for (size_t at = 0; at < LEAF_BLOCK; at++) {
        size_t column = from + at;
        int32_t fits = (cpu_left[at] >= 0) & (memory_left[at] >= 0) & (kind->whole >= columns->whole[column]) & (kind->top >= columns->part[column]);
        byte[at] = -fits & ((columns->kind[column] < 0 ? node->base_bare : node->base) + score[at]);
    }
    AS_VECTORS for (size_t at = 0; at < LEAF_BLOCK; at++) {
        int32_t mine = (columns->kind[from + at] == kind->kind) | (first & (columns->kind[from + at] < 0));
        leaf[from + at] = mine ? (uint8_t) byte[at] : leaf[from + at];
    }
}

/* Only columns of this kind, and with `first` 1 those that ask for none, are written. */
WIDE static void leaf_bytes(const LeafColumns *columns, const LeafNode *node, const LeafKind *kind, int preset, int first, uint8_t *leaf)
{
    size_t used = (size_t) columns->used;
    if (preset == LEAF_PACK)
        for (size_t from = 0; from < used; from += LEAF_BLOCK)
            block_bytes(columns, from, node, kind, LEAF_PACK, first, leaf);
    else if (preset == LEAF_SPREAD)
        for (size_t from = 0; from < used; from += LEAF_BLOCK)
            block_bytes(columns, from, node, kind, LEAF_SPREAD, first, leaf);
    else if (preset == LEAF_BEST_FIT)
        for (size_t from = 0; from < used; from += LEAF_BLOCK)
            block_bytes(columns, from, node, kind, LEAF_BEST_FIT, first, leaf);
    else
        for (size_t from = 0; from < used; from += LEAF_BLOCK)
            block_bytes(columns, from, node, kind, LEAF_NOTHING, first, leaf);
}

enum { LEAF_WORDS = LEAF_COLUMNS / 8 };

static ALWAYS_INLINE int leaf_is(const uint8_t *cell, const uint8_t *other)
{
    uint64_t mine[LEAF_WORDS], theirs[LEAF_WORDS], differs = 0;
    memcpy(mine, cell, LEAF_COLUMNS);
    memcpy(theirs, other, LEAF_COLUMNS);
    AS_VECTORS for (int at = 0; at < LEAF_WORDS; at++)
        differs |= mine[at] ^ theirs[at];
    return differs == 0;
}

/* The leaf of a node in a tree whose cells have 8 children, leaves first, and its ancestors, until one stays as it is: a parent is the byte-wise
 * maximum of its children. Above the leaves, where a node seldom is the best of a family for anybody, the other children are looked at only
 * where this one was the maximum and is less than before. */
WIDE static void leaf_write(uint8_t **cells, int depth, uint32_t node, const uint8_t *leaf)
{
    uint8_t now[LEAF_COLUMNS], before[LEAF_COLUMNS], *cell = cells[0] + (size_t) node * LEAF_COLUMNS;
    memcpy(now, leaf, LEAF_COLUMNS);
    for (int level = 1; !leaf_is(cell, now); level++) {
        memcpy(before, cell, LEAF_COLUMNS);
        memcpy(cell, now, LEAF_COLUMNS);
        if (level == depth)
            return;
        node /= 8;
        const uint8_t *family = cells[level - 1] + (size_t) node * 8 * LEAF_COLUMNS;
        cell = cells[level] + (size_t) node * LEAF_COLUMNS;
        if (level > 1) {
            uint8_t fell[LEAF_COLUMNS], nobody[LEAF_COLUMNS] = {0};
            for (int at = 0; at < LEAF_COLUMNS; at++) {
                fell[at] = (before[at] == cell[at]) & (now[at] < before[at]);
                now[at] = cell[at] > now[at] ? cell[at] : now[at];
            }
            if (leaf_is(fell, nobody))
                continue;
        }
        memcpy(now, family, LEAF_COLUMNS);
        for (int child = 1; child < 8; child++)
            for (int at = 0; at < LEAF_COLUMNS; at++)
                now[at] = family[child * LEAF_COLUMNS + at] > now[at] ? family[child * LEAF_COLUMNS + at] : now[at];
    }
}

/* ---------------------------------------------------------------- fragment: what is free and of no use to the mix (see fragment.pxi) */

/* The mix, if its shapes are plain and ask for one kind: by shape, least cores first; what lies behind the last is 0. */
typedef struct {
    int32_t whole[LEAF_MIX];         /* devices wanted wholly free */
    int32_t parts[LEAF_MIX];         /* parts of others */
    int32_t part[LEAF_MIX];          /* milli of each; more than a device has if there are none */
    int32_t weight[LEAF_MIX];        /* times asked */
    double memory[LEAF_MIX];         /* bytes */
    int64_t total;                   /* sum of the weights */
    int32_t cpu[LEAF_MIX];           /* millicores that any of them asks for, each amount once */
    int32_t count[LEAF_MIX];         /* shapes that ask for so much */
    int32_t steps;                   /* different amounts */
    int32_t kind;                    /* -1: nobody asks for any */
    uint8_t is_plain;                /* 0: nothing of this holds */
} LeafMix;

/* What the mix makes of one node as it is. */
typedef struct {
    int32_t usable[LEAF_MIX];        /* by shape: milli of devices that can hold a part or a whole */
    int32_t room[LEAF_MIX];          /* by shape: devices, partly used, with room for a part */
    int32_t whole;                   /* devices that nobody uses */
    int32_t milli;                   /* free in all */
    int32_t count;                   /* of `shares` */
    int32_t shares[64];              /* milli free of each device */
    double memory_most[LEAF_MIX + 1]; /* bytes, the most that one of the first so many asks for, of those that find their devices */
    int64_t lost;                    /* the fragment x total */
} LeafState;

/* What the mix makes of it once the devices of one class of columns are taken. */
typedef struct {
    uint64_t stamp;                  /* the node that this is of */
    int64_t all;                     /* milli that stay free x total */
    int64_t gain[LEAF_MIX + 1];      /* milli x weight that the first so many of the mix can use */
} LeafOutcome;

/* `whole` devices and one part of a device that has `from` free are taken (0: no part). */
static ALWAYS_INLINE void outcome_of(const LeafMix *mix, const LeafState *state, int32_t whole, int32_t part, int32_t from, LeafOutcome *outcome)
{
    int32_t taken = whole + (part > 0 && from == 1000), left = part > 0 ? from - part : 0, beside = part > 0 && from < 1000 ? from : 0;
    int32_t still = state->whole - taken;
    int64_t gain[LEAF_MIX], sum = 0;
    for (int at = 0; at < LEAF_MIX; at++) {
        int32_t before = beside >= mix->part[at], after = left >= mix->part[at];
        int32_t usable = state->usable[at] - 1000 * taken - (-before & beside) + (-after & left);
        int32_t room = state->room[at] - before + after;
        int32_t holds = (still >= mix->whole[at]) & (room + still - mix->whole[at] >= mix->parts[at]);
        gain[at] = (int64_t) (-holds & usable) * mix->weight[at];
    }
    outcome->all = mix->total * (state->milli - 1000 * whole - part);
    for (int at = 0; at < LEAF_MIX; at++) {
        outcome->gain[at] = sum;
        sum += gain[at];
    }
    outcome->gain[LEAF_MIX] = sum;
}

/* The fragment x total where the cores that are left suffice for the first `fits` of the mix. */
static int64_t leaf_lost(const LeafMix *mix, const LeafOutcome *outcome, int32_t fits, double memory_left)
{
    int64_t gain = 0;
    for (int at = 0; at < fits; at++)
        gain += -(int64_t) (mix->memory[at] <= memory_left) & (outcome->gain[at + 1] - outcome->gain[at]);
    return outcome->all - gain;
}

WIDE static void leaf_state(const LeafMix *mix, const LeafNode *node, LeafState *state)
{
    LeafOutcome as_it_is;
    memset(state->usable, 0, sizeof(state->usable));
    memset(state->room, 0, sizeof(state->room));
    state->whole = state->milli = 0;
    for (int device = 0; device < state->count; device++) {
        int32_t share = state->shares[device];
        state->milli += share;
        state->whole += share == 1000;
        if (share > 0 && share < 1000)
            for (int at = 0; at < LEAF_MIX; at++) {
                int32_t holds = share >= mix->part[at];
                state->usable[at] += -holds & share;
                state->room[at] += holds;
            }
    }
    for (int at = 0; at < LEAF_MIX; at++)
        state->usable[at] += 1000 * state->whole;
    outcome_of(mix, state, 0, 0, 0, &as_it_is);
    int32_t fits = 0;
    double most = 0;
    for (int at = 0; at < LEAF_MIX; at++) { /* who finds no devices now finds none once some are taken */
        state->memory_most[at] = most;
        most = as_it_is.gain[at + 1] > as_it_is.gain[at] && mix->memory[at] > most ? mix->memory[at] : most;
    }
    state->memory_most[LEAF_MIX] = most;
    for (int step = 0; step < mix->steps; step++)
        fits += mix->cpu[step] <= node->cpu_free ? mix->count[step] : 0;
    state->lost = leaf_lost(mix, &as_it_is, fits, node->memory_free);
}

/* Bytes that are not 0 get the score of fragment_score. `outcomes`: by class of columns, those of another stamp are computed. */
WIDE static void leaf_fragments(const LeafColumns *columns, const LeafNode *node, const LeafMix *mix, const LeafState *state,
                                LeafOutcome *outcomes, uint64_t stamp, uint8_t *leaf)
{
    const double per_total = 1 / (double) mix->total;
    for (size_t from = 0; from < (size_t) columns->used; from += LEAF_BLOCK) {
        int32_t left[LEAF_BLOCK], fits[LEAF_BLOCK], byte[LEAF_BLOCK];
        double lost[LEAF_BLOCK] = {0};
        uint32_t fitting = 0;
        AS_VECTORS for (size_t at = 0; at < LEAF_BLOCK; at++)
            fitting |= (uint32_t) (leaf[from + at] != 0) << at;
        if (fitting == 0)
            continue;
        AS_VECTORS for (size_t at = 0; at < LEAF_BLOCK; at++) {
            left[at] = node->cpu_free - columns->cpu[from + at];
            fits[at] = 0;
        }
        for (int step = 0; step < mix->steps; step++) {
            const int32_t cpu = mix->cpu[step], count = mix->count[step];
            AS_VECTORS for (size_t at = 0; at < LEAF_BLOCK; at++)
                fits[at] += -(left[at] >= cpu) & count;
        }
        for (; fitting != 0; fitting &= fitting - 1) {
            size_t at = (size_t) __builtin_ctz(fitting), column = from + at;
            LeafOutcome *outcome = &outcomes[columns->outcome[column]];
            if (outcome->stamp != stamp) {
                int32_t open = 1000, part = (int32_t) columns->part[column];
                for (int device = 0; part > 0 && device < state->count; device++)
                    open = state->shares[device] >= part && state->shares[device] < open ? state->shares[device] : open;
                outcome->stamp = stamp;
                outcome_of(mix, state, (int32_t) columns->whole[column], part, open, outcome);
            }
            double memory_left = node->memory_free - columns->memory[column];
            int64_t after = outcome->all - outcome->gain[fits[at]];
            if (memory_left < state->memory_most[fits[at]])
                after = leaf_lost(mix, outcome, fits[at], memory_left);
            lost[at] = (double) (after - state->lost);
        }
        AS_VECTORS for (size_t at = 0; at < LEAF_BLOCK; at++) {
            double added_milli = ((lost[at] < 0 ? -lost[at] : lost[at]) + 0.5) * per_total;
            int32_t whole = (int32_t) (added_milli > 2560 ? 2560 : added_milli);
            int32_t added = lost[at] < 0 ? 2560 - whole : 2560 + whole;
            added = added > 5119 ? 5119 : added;
            int32_t span = 1 + (int32_t) (columns->kind[from + at] < 0 ? node->steps_bare : node->steps);
            int32_t score = (127 - (added * 52429 >> 21)) * span >> 7; /* added / 40, for added below 43,690 */
            byte[at] = score < span - 1 ? score : span - 1;
        }
        AS_VECTORS for (size_t at = 0; at < LEAF_BLOCK; at++)
            leaf[from + at] += leaf[from + at] != 0 ? (uint8_t) byte[at] : 0;
    }
}

/* ---------------------------------------------------------------- price: what free capacity is worth less (see price.pxi) */

/* What of the prices concerns one node. */
typedef struct {
    int32_t count;                   /* kinds on the node */
    int32_t kind[LEAF_KINDS];        /* which */
    double milli[LEAF_KINDS];        /* free of each */
    double cpu_rate[LEAF_KINDS];     /* milli of a device that go with a millicore */
    double memory_rate[LEAF_KINDS];  /* and with a MiB */
    double stranded;                 /* tenths of a milli that missing CPU and memory cost as it is */
    double strand_most;              /* tenths of a milli that a millicore of a task without devices may strand; 0: any */
    double step, step_bare;          /* tenths of a milli; of those without devices */
} LeafPrices;

/* Bytes that are not 0 get the score of price_score, and 0 is what strands too much. `loss`: tenths of a milli that each column's devices take.
 * Doubles are exact here: a product of an amount and a rate that has more than 53 bits is far more than any node's devices, and then nothing strands. */
WIDE static void leaf_prices(const LeafColumns *columns, const LeafNode *node, const LeafPrices *prices, const int32_t *loss, uint8_t *leaf)
{
    const double offset = 1 << 20; /* steps: so that a cut is downwards */
    const double reciprocal = 1 / prices->step, reciprocal_bare = 1 / prices->step_bare;
    for (size_t from = 0; from < (size_t) columns->used; from += LEAF_BLOCK) {
        double cpu_left[LEAF_BLOCK], mebibytes_left[LEAF_BLOCK], strands[LEAF_BLOCK];
        int32_t byte[LEAF_BLOCK];
        AS_VECTORS for (size_t at = 0; at < LEAF_BLOCK; at++) {
            size_t column = from + at;
            int32_t cpu = node->cpu_free - columns->cpu[column];
            int32_t mebibytes = node->mebibytes_free - columns->mebibytes[column] - (node->rest_free < columns->rest[column]);
            cpu_left[at] = (double) (cpu > 0 ? cpu : 0);
            mebibytes_left[at] = (double) (mebibytes > 0 ? mebibytes : 0);
            strands[at] = -prices->stranded;
        }
        for (int kind = 0; kind < prices->count; kind++)
            AS_VECTORS for (size_t at = 0; at < LEAF_BLOCK; at++) {
                double free_milli = prices->milli[kind] - (columns->kind[from + at] == prices->kind[kind] ? (double) columns->milli[from + at] : 0);
                double by_cpu = cpu_left[at] * prices->cpu_rate[kind], by_memory = mebibytes_left[at] * prices->memory_rate[kind];
                by_cpu = free_milli - (double) (int32_t) (by_cpu < 1e9 ? by_cpu : 1e9);
                by_memory = free_milli - (double) (int32_t) (by_memory < 1e9 ? by_memory : 1e9);
                strands[at] += 5 * (by_cpu > 0 ? by_cpu : 0) + 2 * (by_memory > 0 ? by_memory : 0);
            }
        AS_VECTORS for (size_t at = 0; at < LEAF_BLOCK; at++) {
            size_t column = from + at;
            int32_t is_bare = columns->kind[column] < 0;
            int32_t most = (int32_t) (is_bare ? node->steps_bare : node->steps);
            double gained = 0.5 - loss[column] - strands[at];
            int32_t below = columns->top[column] - ((int32_t) (gained * (is_bare ? reciprocal_bare : reciprocal) + offset) - (int32_t) offset);
            int32_t within = 1 - (is_bare & (prices->strand_most > 0) & (strands[at] * 100 > prices->strand_most * columns->cpu[column]));
            below = below > 0 ? below : 0;
            below = below < most ? below : most;
            byte[at] = -within & ((is_bare ? node->base_bare : node->base) + most - below);
        }
        AS_VECTORS for (size_t at = 0; at < LEAF_BLOCK; at++)
            leaf[from + at] = leaf[from + at] != 0 ? (uint8_t) byte[at] : 0;
    }
}

#endif
