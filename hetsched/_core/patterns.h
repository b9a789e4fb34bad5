/* "Fewest whole devices that hold all that is asked": the duals that hetsched/policy/patterns.py explains, as long as the numbers stay small.
 *
 * Promises: the same duals as there, pivot by pivot; 0 where a number outgrows what is exact here. Bounds: entries of the inverse below 2^39, the
 * demand in all below 2^41, so what a row covers (held) below 2^80, and what enters, a pattern of at most 100 pieces, below 2^46: each product
 * below 2^126.
 */
#ifndef HETSCHED_PATTERNS_H
#define HETSCHED_PATTERNS_H

#include <stdint.h>
#include <string.h>

enum { PATTERN_SIZES = 40, PATTERN_CELLS = 100 };

#define PATTERN_MOST_ENTRY ((int64_t) 1 << 39)
#define PATTERN_MOST_DEMAND ((int64_t) 1 << 41)

#ifdef __SIZEOF_INT128__

/* The basis of the linear program: `inverse` / `denominator`, row by row what a basic column covers. */
typedef struct {
    int count;
    int64_t denominator;
    int64_t inverse[PATTERN_SIZES][PATTERN_SIZES];
    __int128 held[PATTERN_SIZES];    /* inverse x demand */
    int64_t weights[PATTERN_SIZES];  /* the duals */
    int costs[PATTERN_SIZES];        /* 1: a pattern; 0: covers too much of a size */
} PatternBasis;

static void pattern_weigh(PatternBasis *basis)
{
    memset(basis->weights, 0, sizeof(basis->weights));
    for (int row = 0; row < basis->count; row++)
        for (int at = 0; at < basis->count; at++)
            basis->weights[at] += basis->costs[row] ? basis->inverse[row][at] : 0;
}

/* Most weight on a whole device, and how many of each size make it. Sizes ascend; one that weighs no more than a smaller one adds nothing. */
static int64_t pattern_most(const PatternBasis *basis, const int32_t *sizes, int64_t *pattern)
{
    int64_t best[PATTERN_CELLS + 1] = {0}, most = 0;
    int choice[PATTERN_CELLS + 1];
    memset(choice, -1, sizeof(choice));
    for (int at = 0; at < basis->count; at++) {
        int64_t weight = basis->weights[at];
        if (weight <= most)
            continue;
        most = weight;
        for (int cells = sizes[at]; cells <= PATTERN_CELLS; cells++)
            if (best[cells - sizes[at]] + weight > best[cells]) {
                best[cells] = best[cells - sizes[at]] + weight;
                choice[cells] = at;
            }
    }
    for (int cells = 1; cells <= PATTERN_CELLS; cells++)
        if (best[cells] <= best[cells - 1]) {
            best[cells] = best[cells - 1];
            choice[cells] = -1;
        }
    memset(pattern, 0, PATTERN_SIZES * sizeof(*pattern));
    for (int cells = PATTERN_CELLS; cells > 0;)
        if (choice[cells] < 0)
            cells--;
        else {
            pattern[choice[cells]]++;
            cells -= sizes[choice[cells]];
        }
    return best[PATTERN_CELLS];
}

/* A column that makes the cover cheaper; 0: there is none, the basis is best. */
static int pattern_entering(PatternBasis *basis, const int32_t *sizes, int64_t *column, int *cost)
{
    int lowest = 0;
    pattern_weigh(basis);
    for (int at = 1; at < basis->count; at++)
        lowest = basis->weights[at] < basis->weights[lowest] ? at : lowest;
    *cost = basis->weights[lowest] >= 0;
    if (*cost)
        return pattern_most(basis, sizes, column) > basis->denominator;
    memset(column, 0, PATTERN_SIZES * sizeof(*column));
    column[lowest] = -1;
    return 1;
}

static inline int64_t pattern_quotient(__int128 number, int64_t denominator)
{
    return (int64_t) number == number ? (int64_t) number / denominator : (int64_t) (number / denominator);
}

/* The column enters, the basic one that runs out first leaves (the first of equals). 0: none runs out; -1: a number is too large. */
static int pattern_pivot(PatternBasis *basis, const int64_t *demand, const int64_t *column, int cost)
{
    int count = basis->count, leaving = -1, fits = 1;
    int64_t entering[PATTERN_SIZES], gone[PATTERN_SIZES];
    for (int row = 0; row < count; row++) {
        entering[row] = 0;
        basis->held[row] = 0;
        for (int at = 0; at < count; at++) {
            entering[row] += basis->inverse[row][at] * column[at];
            basis->held[row] += (__int128) basis->inverse[row][at] * demand[at];
        }
        if (entering[row] > 0 && (leaving < 0 || basis->held[row] * entering[leaving] < basis->held[leaving] * entering[row]))
            leaving = row;
    }
    if (leaving < 0)
        return 0;
    int64_t rate = entering[leaving];
    if (rate >= PATTERN_MOST_ENTRY)
        return -1;
    memcpy(gone, basis->inverse[leaving], sizeof(gone));
    for (int row = 0; row < count; row++)
        for (int at = 0; at < count && row != leaving; at++) {
            __int128 left = (__int128) rate * basis->inverse[row][at] - (__int128) entering[row] * gone[at];
            int64_t entry = pattern_quotient(left, basis->denominator); /* without a rest (Edmonds) */
            basis->inverse[row][at] = entry;
            fits &= -PATTERN_MOST_ENTRY < entry && entry < PATTERN_MOST_ENTRY;
        }
    basis->costs[leaving] = cost;
    basis->denominator = rate;
    return fits ? 1 : -1;
}

/* Weights of the ascending `sizes` over `denominator`; 0: numbers are too large, nothing is written. */
static int pattern_duals(int count, const int32_t *sizes, const int64_t *demand, int most_pivots, int64_t *weights, int64_t *denominator)
{
    PatternBasis basis;
    int64_t column[PATTERN_SIZES], all = 0;
    int cost, moved = 1;
    memset(&basis, 0, sizeof(basis));
    basis.count = count;
    basis.denominator = 1;
    for (int at = 0; at < count; at++) {
        if (demand[at] >= PATTERN_MOST_DEMAND || (all += demand[at]) >= PATTERN_MOST_DEMAND)
            return 0;
        basis.inverse[at][at] = basis.costs[at] = 1;
    }
    while (most_pivots-- > 0 && moved > 0 && pattern_entering(&basis, sizes, column, &cost))
        moved = pattern_pivot(&basis, demand, column, cost);
    if (moved < 0)
        return 0;
    pattern_weigh(&basis);
    memcpy(weights, basis.weights, count * sizeof(*weights));
    *denominator = basis.denominator;
    return 1;
}

#else

static int pattern_duals(int count, const int32_t *sizes, const int64_t *demand, int most_pivots, int64_t *weights, int64_t *denominator)
{
    (void) count, (void) sizes, (void) demand, (void) most_pivots, (void) weights, (void) denominator;
    return 0;
}

#endif
#endif
