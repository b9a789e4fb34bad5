/* The least that an ordered queue costs: a binary heap of (key, what), filled with random keys and drained. See heap.py. */

#include <stddef.h>
#include <stdint.h>

typedef struct {
    uint64_t key;
    uint64_t what;
} Entry;

static void rise(Entry *heap, size_t at)
{
    Entry entry = heap[at];
    while (at > 0 && entry.key < heap[(at - 1) / 2].key) {
        heap[at] = heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap[at] = entry;
}

/* The last of `size` entries into the hole at the root. */
static void sink(Entry *heap, size_t size)
{
    Entry entry = heap[--size];
    size_t at = 0, child;
    while ((child = 2 * at + 1) < size) {
        if (child + 1 < size && heap[child + 1].key < heap[child].key)
            child++;
        if (heap[child].key >= entry.key)
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = entry;
}

/* `heap`: room for `count` entries. The sum keeps the compiler from leaving the work out. */
uint64_t fill_and_drain(Entry *heap, size_t count)
{
    uint64_t random = 88172645463325252u, sum = 0;
    for (size_t at = 0; at < count; at++) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        heap[at].key = random;
        heap[at].what = at;
        rise(heap, at);
    }
    for (size_t size = count; size > 0; size--) {
        sum ^= heap[0].what * size;
        sink(heap, size);
    }
    return sum;
}
