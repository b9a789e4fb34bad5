/* The bytes of one node for 32 shapes at once, for shapes and nodes that are plain (see leaves.pxi, which fills these records).
 *
 * Promises: the same numbers as score_byte, shape by shape, to the last bit. Everything is a whole number: up to 2^53 in doubles, up to 2^18 in
 * floats; where something is divided, half a unit is added first, so that no rounding reaches the next whole number. Loops of a fixed 32 over
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

enum { LEAF_COLUMNS = 32, LEAF_MIX = 32 };

/* What the columns of one tree ask for, side by side. */
typedef struct {
    double cpu[LEAF_COLUMNS];        /* millicores */
    double memory[LEAF_COLUMNS];     /* bytes */
    double milli_all[LEAF_COLUMNS];  /* milli of devices in all, of every kind */
    float whole[LEAF_COLUMNS];       /* devices of the kind asked for first */
    float part[LEAF_COLUMNS];        /* milli of a part of it, 0 if none is asked */
    float milli[LEAF_COLUMNS];       /* milli of that kind in all */
    float has_devices[LEAF_COLUMNS]; /* 1: it asks for devices, and these count in the mean of what is free */
    float has_cpu[LEAF_COLUMNS];     /* 1: likewise cores */
    float has_memory[LEAF_COLUMNS];  /* 1: likewise memory */
    float per_term[LEAF_COLUMNS];    /* 1 / how many of these count; 0: none does */
    float middle[LEAF_COLUMNS];      /* 500 if none does: neither full nor free */
    int32_t kind[LEAF_COLUMNS];      /* asked for first, -1 none */
    uint32_t outcome[LEAF_COLUMNS];  /* columns of one number ask for the same devices */
} LeafColumns;

/* What is free on one node. */
typedef struct {
    double cpu_free;                 /* millicores */
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

enum { LEAF_PACK, LEAF_SPREAD, LEAF_NOTHING, LEAF_BEST_FIT };

static inline float whole_part(float value)
{
    return (float) (int32_t) value;
}

/* 0 where the shape does not fit, else base + score. Only columns of this kind, and with `first` 1 those that ask for none, are written. */
WIDE static void leaf_bytes(const LeafColumns *columns, const LeafNode *node, const LeafKind *kind, int preset, int first, uint8_t *leaf)
{
    const double whole_numbers = 4503599627370496.0; /* 2^52: added and taken off it leaves a whole number */
    float least[LEAF_COLUMNS], cpu[LEAF_COLUMNS], memory[LEAF_COLUMNS];
    int32_t score[LEAF_COLUMNS], byte[LEAF_COLUMNS];
    for (int at = 0; at < LEAF_COLUMNS; at++) {
        double cpu_left = node->cpu_free - columns->cpu[at];
        double memory_left = node->memory_free - columns->memory[at];
        least[at] = (float) (cpu_left < memory_left ? cpu_left : memory_left);
    }
    if (preset == LEAF_PACK || preset == LEAF_SPREAD) {
        for (int at = 0; at < LEAF_COLUMNS; at++) {
            double cpu_left = node->cpu_free - columns->cpu[at];
            double memory_left = node->memory_free - columns->memory[at];
            double mebibytes = (memory_left > 0 ? memory_left : 0) * (1.0 / 1048576), rounded = (mebibytes + whole_numbers) - whole_numbers;
            rounded -= rounded > mebibytes ? 1.0 : 0.0;
            cpu[at] = (float) (int32_t) ((cpu_left > 0 ? cpu_left : 0) * node->per_cpu);
            memory[at] = (float) (int32_t) (rounded * node->per_mebibyte);
        }
        float sign = preset == LEAF_PACK ? -1 : 1, full = preset == LEAF_PACK ? 1000 : 0;
        for (int at = 0; at < LEAF_COLUMNS; at++) {
            float devices = whole_part((kind->milli - columns->milli[at] + 0.5f) * kind->per_device);
            float total = devices * columns->has_devices[at] + cpu[at] * columns->has_cpu[at] + memory[at] * columns->has_memory[at];
            float mean = whole_part((total + 0.5f) * columns->per_term[at]) + columns->middle[at];
            mean = mean > 1000 ? 1000 : mean;
            mean = mean < 0 ? 0 : mean;
            float steps = columns->kind[at] < 0 ? node->steps_bare : node->steps;
            score[at] = (int32_t) (((full + sign * mean) * steps + 0.5f) * 0.001f);
        }
    } else if (preset == LEAF_BEST_FIT) {
        for (int at = 0; at < LEAF_COLUMNS; at++) {
            double left = (node->cpu_free - columns->cpu[at]) / node->most_cpu * 0.5;
            left += (node->milli_all - columns->milli_all[at]) / node->most_milli * 0.5;
            double hundred = (1 - left) * 100;
            hundred = hundred > 100 ? 100 : hundred;
            score[at] = (int32_t) (hundred < 0 ? 0 : hundred);
        }
    } else
        memset(score, 0, sizeof(score));
    for (int at = 0; at < LEAF_COLUMNS; at++) {
        int32_t fits = (least[at] >= 0) & (kind->whole >= columns->whole[at]) & (kind->top >= columns->part[at]);
        byte[at] = -fits & ((columns->kind[at] < 0 ? node->base_bare : node->base) + score[at]);
    }
    for (int at = 0; at < LEAF_COLUMNS; at++) {
        int32_t mine = (columns->kind[at] == kind->kind) | (first & (columns->kind[at] < 0));
        leaf[at] = mine ? (uint8_t) byte[at] : leaf[at];
    }
}

static inline int leaf_is(const uint8_t *cell, const uint8_t *other)
{
    uint8_t differs = 0;
    for (int at = 0; at < LEAF_COLUMNS; at++)
        differs |= cell[at] ^ other[at];
    return differs == 0;
}

/* The leaf of a node in a tree whose cells have 8 children, leaves first, and its ancestors, until one stays as it is: a parent is the byte-wise
 * maximum of its children. The other children are looked at only where this one was the maximum and is less than before. */
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
        uint8_t fell = 0;
        cell = cells[level] + (size_t) node * LEAF_COLUMNS;
        for (int at = 0; at < LEAF_COLUMNS; at++) {
            fell |= (before[at] == cell[at]) & (now[at] < before[at]);
            now[at] = cell[at] > now[at] ? cell[at] : now[at];
        }
        if (!fell)
            continue;
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
    int32_t cpu[LEAF_MIX];           /* millicores */
    double memory[LEAF_MIX];         /* bytes */
    int64_t total;                   /* sum of the weights */
    int32_t size;                    /* shapes */
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
WIDE static void leaf_outcome(const LeafMix *mix, const LeafState *state, int32_t whole, int32_t part, int32_t from, LeafOutcome *outcome)
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
    leaf_outcome(mix, state, 0, 0, 0, &as_it_is);
    int32_t fits = 0;
    double most = 0;
    for (int at = 0; at < LEAF_MIX; at++) { /* who finds no devices now finds none once some are taken */
        state->memory_most[at] = most;
        most = as_it_is.gain[at + 1] > as_it_is.gain[at] && mix->memory[at] > most ? mix->memory[at] : most;
    }
    state->memory_most[LEAF_MIX] = most;
    for (int at = 0; at < mix->size; at++)
        fits += mix->cpu[at] <= node->cpu_free;
    state->lost = leaf_lost(mix, &as_it_is, fits, node->memory_free);
}

/* Bytes that are not 0 get the score of fragment_score. `outcomes`: by class of columns, those of another stamp are computed. */
WIDE static void leaf_fragments(const LeafColumns *columns, const LeafNode *node, const LeafMix *mix, const LeafState *state,
                                LeafOutcome *outcomes, uint64_t stamp, uint8_t *leaf)
{
    const double total = (double) mix->total;
    int32_t byte[LEAF_COLUMNS], left[LEAF_COLUMNS], fits[LEAF_COLUMNS] = {0};
    double lost[LEAF_COLUMNS];
    for (int at = 0; at < LEAF_COLUMNS; at++) {
        double cpu_left = node->cpu_free - columns->cpu[at];
        left[at] = (int32_t) (cpu_left > -1 ? cpu_left : -1);
    }
    for (int shape = 0; shape < mix->size; shape++)
        for (int at = 0; at < LEAF_COLUMNS; at++)
            fits[at] += left[at] >= mix->cpu[shape];
    for (int at = 0; at < LEAF_COLUMNS; at++) {
        LeafOutcome *outcome = &outcomes[columns->outcome[at]];
        if ((leaf[at] != 0) & (outcome->stamp != stamp)) {
            int32_t from = 1000, part = (int32_t) columns->part[at];
            for (int device = 0; device < state->count; device++)
                from = state->shares[device] >= part && state->shares[device] < from ? state->shares[device] : from;
            outcome->stamp = stamp;
            leaf_outcome(mix, state, (int32_t) columns->whole[at], part, from, outcome);
        }
    }
    for (int at = 0; at < LEAF_COLUMNS; at++) { /* of those that do not fit it is of no use, and of some other node */
        const LeafOutcome *outcome = &outcomes[columns->outcome[at]];
        double memory_left = node->memory_free - columns->memory[at];
        int64_t after = outcome->all - outcome->gain[fits[at]];
        if ((leaf[at] != 0) & (memory_left < state->memory_most[fits[at]]))
            after = leaf_lost(mix, outcome, fits[at], memory_left);
        lost[at] = (double) (after - state->lost);
    }
    for (int at = 0; at < LEAF_COLUMNS; at++) {
        double added_milli = lost[at] / total;
        added_milli = added_milli < -2560 ? -2560 : added_milli;
        added_milli = added_milli > 2559 ? 2559 : added_milli;
        int32_t added = (int32_t) added_milli + 2560;
        int32_t span = 1 + (int32_t) (columns->kind[at] < 0 ? node->steps_bare : node->steps);
        int32_t score = (127 - (added * 52429 >> 21)) * span >> 7; /* added / 40, for added below 43,690 */
        byte[at] = score < span - 1 ? score : span - 1;
    }
    for (int at = 0; at < LEAF_COLUMNS; at++)
        leaf[at] += leaf[at] != 0 ? (uint8_t) byte[at] : 0;
}

#endif
