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

/* The wider vectors of newer machines, chosen when the module is loaded. */
#if defined(__x86_64__) && defined(__linux__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
#define WIDE __attribute__((target_clones("arch=x86-64-v3", "default")))
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

/* ---------------------------------------------------------------- fragment: what is free and of no use to the mix (see fragment.pxi) */

/* The mix, if its shapes are plain and ask for one kind. */
typedef struct {
    int32_t whole[LEAF_MIX];         /* by class (equal asks): devices wanted wholly free */
    int32_t parts[LEAF_MIX];         /* likewise: parts */
    int32_t part[LEAF_MIX];          /* likewise: milli of each; more than a device has if there are none */
    double cpu[LEAF_MIX];            /* by shape, least cores first: millicores; those behind the last ask for more than anybody has */
    double memory[LEAF_MIX];         /* likewise: bytes */
    double weight[LEAF_MIX];         /* likewise: times asked */
    double memory_most[LEAF_MIX + 1]; /* bytes, the most that one of the first so many asks for */
    uint8_t class_of[LEAF_MIX];      /* likewise: class */
    double total;                    /* sum of the weights */
    int32_t size;                    /* shapes */
    int32_t kind;                    /* -1: nobody asks for any */
    uint8_t is_plain;                /* 0: nothing of this holds */
} LeafMix;

/* What the mix makes of one node as it is. */
typedef struct {
    int32_t usable[LEAF_MIX];        /* by class: milli of devices that can hold a part or a whole */
    int32_t room[LEAF_MIX];          /* by class: devices, partly used, with room for a part */
    int32_t whole;                   /* devices that nobody uses */
    int32_t milli;                   /* free in all */
    int32_t count;                   /* of `shares` */
    int32_t shares[64];              /* milli free of each device */
    double lost;                     /* the fragment x total */
} LeafState;

/* What the mix makes of it once the devices of one class of columns are taken. */
typedef struct {
    uint64_t stamp;                  /* the node that this is of */
    double all;                      /* milli that stay free x total */
    double gain[LEAF_MIX + 1];       /* milli x weight that the first so many of the mix can use */
} LeafOutcome;

/* `whole` devices and one part of a device that has `from` free are taken (0: no part). */
WIDE static void leaf_outcome(const LeafMix *mix, const LeafState *state, int32_t whole, int32_t part, int32_t from, LeafOutcome *outcome)
{
    int32_t taken = whole + (part > 0 && from == 1000), left = part > 0 ? from - part : 0, beside = part > 0 && from < 1000 ? from : 0;
    int32_t still = state->whole - taken, value[LEAF_MIX];
    for (int at = 0; at < LEAF_MIX; at++) {
        int32_t before = beside >= mix->part[at], after = left >= mix->part[at];
        int32_t usable = state->usable[at] - 1000 * taken - (-before & beside) + (-after & left);
        int32_t room = state->room[at] - before + after;
        int32_t holds = (still >= mix->whole[at]) & (room + still - mix->whole[at] >= mix->parts[at]);
        value[at] = -holds & usable;
    }
    outcome->all = mix->total * (state->milli - 1000 * whole - part);
    outcome->gain[0] = 0;
    for (int at = 0; at < mix->size; at++)
        outcome->gain[at + 1] = outcome->gain[at] + mix->weight[at] * value[mix->class_of[at]];
}

/* The fragment x total with so much cpu and memory left. */
static inline double leaf_lost(const LeafMix *mix, const LeafOutcome *outcome, double cpu_left, double memory_left)
{
    int fits = 0;                    /* how many of the mix the cores suffice for */
    for (int step = 16; step > 0; step >>= 1)
        fits += mix->cpu[fits + step - 1] <= cpu_left ? step : 0;
    fits += mix->cpu[fits < LEAF_MIX ? fits : LEAF_MIX - 1] <= cpu_left && fits < LEAF_MIX;
    if (memory_left >= mix->memory_most[fits])
        return outcome->all - outcome->gain[fits];
    double gain = 0;
    for (int at = 0; at < fits; at++)
        if (mix->memory[at] <= memory_left)
            gain += outcome->gain[at + 1] - outcome->gain[at];
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
    state->lost = leaf_lost(mix, &as_it_is, node->cpu_free, node->memory_free);
}

/* Bytes that are not 0 get the score of fragment_score. `outcomes`: by class of columns, those of another stamp are computed. */
WIDE static void leaf_fragments(const LeafColumns *columns, const LeafNode *node, const LeafMix *mix, const LeafState *state,
                                LeafOutcome *outcomes, uint64_t stamp, uint8_t *leaf)
{
    double lost[LEAF_COLUMNS];
    int32_t byte[LEAF_COLUMNS];
    for (int at = 0; at < LEAF_COLUMNS; at++) {
        LeafOutcome *outcome = &outcomes[columns->outcome[at]];
        lost[at] = state->lost;
        if (leaf[at] == 0)
            continue;
        if (outcome->stamp != stamp) {
            int32_t from = 1000, part = (int32_t) columns->part[at];
            for (int device = 0; device < state->count; device++)
                if (state->shares[device] >= part && state->shares[device] < from)
                    from = state->shares[device];
            outcome->stamp = stamp;
            leaf_outcome(mix, state, (int32_t) columns->whole[at], part, from, outcome);
        }
        lost[at] = leaf_lost(mix, outcome, node->cpu_free - columns->cpu[at], node->memory_free - columns->memory[at]);
    }
    for (int at = 0; at < LEAF_COLUMNS; at++) {
        int32_t added = (int32_t) ((lost[at] - state->lost) / mix->total) + 2560;
        added = added < 0 ? 0 : added > 5119 ? 5119 : added;
        int32_t span = 1 + (int32_t) (columns->kind[at] < 0 ? node->steps_bare : node->steps);
        int32_t score = (127 - (added * 52429 >> 21)) * span >> 7; /* added / 40, for added below 43,690 */
        byte[at] = score < span - 1 ? score : span - 1;
    }
    for (int at = 0; at < LEAF_COLUMNS; at++)
        leaf[at] += leaf[at] != 0 ? (uint8_t) byte[at] : 0;
}

/* The parents of a leaf: byte-wise maximum of a family of 8 cells. */
static inline void leaf_family(const uint8_t *cells, uint8_t *best)
{
    memcpy(best, cells, LEAF_COLUMNS);
    for (int child = 1; child < 8; child++)
        for (int at = 0; at < LEAF_COLUMNS; at++)
            best[at] = cells[child * LEAF_COLUMNS + at] > best[at] ? cells[child * LEAF_COLUMNS + at] : best[at];
}

#endif
