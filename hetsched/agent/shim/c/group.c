/* A shim's cgroup, where the agent has one of its own (v2, delegated): its task is limited, measured and killed by it. Called by the shim's pid
 * and start time, below the agent's. The first shim that needs that makes it and the last one removes it, so that an agent that is killed
 * leaves nothing behind.
 *
 * It is kept for the shim's next task if that has the same limits and this one was short: making and removing one costs 50 µs of processor
 * and takes a lock that all of the machine's forks want. What a longer task has left in it (cached files) is not counted against another. One
 * that was killed is not kept: newer kernels count the kills of a group and take who is born into it by a parent outside, who has seen none
 * of them, for one that a kill has missed. */

#define _GNU_SOURCE
#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool make(Group *group, const Order *order, uint64_t start_time) {
    snprintf(group->path, sizeof group->path, "%s/%d-%llu", order->cgroup, (int)getpid(), (unsigned long long)start_time);
    for (int tries = 0; tries < 100; tries++) { /* the last task of another moment may be removing the parent just now */
        mkdir(order->cgroup, 0777);
        if (mkdir(group->path, 0777) == 0 || errno == EEXIST) {
            group->directory = open(group->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
            if (group->directory >= 0) return true;
        }
        if (errno != ENOENT) break;
    }
    group->path[0] = 0;
    return false;
}

static bool limit(const Group *group, const Order *order) {
    char path[PATH_BYTES + NAME_BYTES], controllers[NAME_BYTES] = "";
    size_t used = 0;
    if (order->limit_count == 0) return true;
    for (uint32_t index = 0; index < order->limit_count; index++) {
        const char *name = order->limits[2 * index];
        used += (size_t)snprintf(controllers + used, sizeof controllers - used, "%s+%.*s", used ? " " : "", (int)strcspn(name, "."), name);
    }
    snprintf(path, sizeof path, "%s/cgroup.subtree_control", order->cgroup);
    if (!write_file(path, controllers)) return false;
    for (uint32_t index = 0; index < order->limit_count; index++) {
        snprintf(path, sizeof path, "%s/%s", group->path, order->limits[2 * index]);
        if (!write_file(path, order->limits[2 * index + 1])) return false;
    }
    return true;
}

static void in_words(const Order *order, char words[2 * NAME_BYTES]) {
    size_t used = 0;
    words[0] = 0;
    for (uint32_t index = 0; index < 2 * order->limit_count && used < 2 * NAME_BYTES; index++)
        used += (size_t)snprintf(words + used, 2 * NAME_BYTES - used, "%s\n", order->limits[index]);
}

bool group_take(Group *group, const Order *order, uint64_t start_time) {
    char words[2 * NAME_BYTES];
    in_words(order, words);
    if (group->path[0] && (!group->is_limited || strcmp(words, group->limits) != 0)) group_leave(group);
    if (!order->cgroup[0] || group->path[0]) return true;
    if (!make(group, order, start_time)) return false;
    strcpy(group->limits, words);
    group->is_limited = limit(group, order);
    return true;
}

void group_leave(Group *group) {
    if (!group->path[0]) return;
    close(group->directory);
    rmdir(group->path); /* not if there are children of its own making in there: the agent sweeps when it starts */
    *strrchr(group->path, '/') = 0;
    rmdir(group->path); /* not while others are in there */
    group->path[0] = 0;
}
