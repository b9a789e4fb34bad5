/* An order as the agent packs it (`hetsched.agent.spawner.pack`): numbers, then strings, each ended by a NUL. */

#include "shim.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    Head head;
    uint64_t generation;
    int64_t time_limit_ns, grace_ns, log_bytes;
    int32_t uid, gid;
    uint32_t group_count, limit_count, argv_count, env_count;
    uint32_t groups[];
} Packed;

static char *take(char **next, const char *end) {
    char *text = *next;
    size_t length = strnlen(text, (size_t)(end - text));
    if (text + length >= end) abort(); /* the agent counts the NULs before it packs them */
    *next = text + length + 1;
    return text;
}

static char **take_many(char **next, const char *end, uint32_t count) {
    char **texts = calloc((size_t)count + 1, sizeof *texts);
    if (texts == NULL) abort();
    for (uint32_t index = 0; index < count; index++) texts[index] = take(next, end);
    return texts;
}

void order_read(Order *order, Head *head) {
    Packed *packed = (Packed *)head;
    char *next = (char *)(packed->groups + packed->group_count);
    const char *end = (char *)head + head->length;
    *order = (Order){
        .id = head->id,
        .generation = packed->generation,
        .time_limit_ns = packed->time_limit_ns,
        .grace_ns = packed->grace_ns,
        .log_bytes = packed->log_bytes,
        .uid = packed->uid,
        .gid = packed->gid,
        .group_count = packed->group_count,
        .groups = packed->groups,
        .limit_count = packed->limit_count,
    };
    order->name = take(&next, end);
    order->workdir = take(&next, end);
    order->executable = take(&next, end);
    order->cgroup = take(&next, end);
    order->notes = take(&next, end);
    order->limits = take_many(&next, end, 2 * packed->limit_count);
    order->argv = take_many(&next, end, packed->argv_count);
    order->env = take_many(&next, end, packed->env_count);
}

void order_free(Order *order) {
    free(order->limits);
    free(order->argv);
    free(order->env);
}
