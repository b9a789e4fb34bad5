# Duals of "fewest whole devices that hold all that is asked", for policy/patterns.py, which says what they are: hundreds of times as fast where
# numbers stay small (patterns.h), as they do wherever few sizes are asked for.

def pattern_weights(sizes, demand, int most_pivots):
    """See `_core.pyi`."""
    cdef int32_t cells[PATTERN_SIZES]
    cdef int64_t asked[PATTERN_SIZES]
    cdef int64_t weights[PATTERN_SIZES]
    cdef int64_t denominator = 1
    cdef int at, count = len(sizes), found
    if not 0 < count <= PATTERN_SIZES or len(demand) != count:
        raise ValueError(f"{count} sizes and {len(demand)} demands are not the same number 1..{PATTERN_SIZES}")
    for at in range(count):
        if not 0 < sizes[at] <= 100 or (at > 0 and sizes[at] <= sizes[at - 1]) or demand[at] < 0:
            raise ValueError("sizes are 1..100 and ascend; a demand is not negative")
        if demand[at] > INT64_MAX:
            return None
        cells[at], asked[at] = sizes[at], demand[at]
    with nogil:
        found = pattern_duals(count, cells, asked, most_pivots, weights, &denominator)
    return ([weights[at] for at in range(count)], denominator) if found else None
