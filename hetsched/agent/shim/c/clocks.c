/* Time: since boot for whatever ends a task, of the wall for people. And the lease, a deadline that the agent writes (../lease.py). */

#define _GNU_SOURCE
#include "shim.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * SECOND_NS + now.tv_nsec;
}

double wall_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / SECOND_NS;
}

/* 0 (long over) where the file holds none. The second number is the first one's complement, so that a torn read shows. */
int64_t lease_deadline(void) {
    for (int tries = 0; tries < 8; tries++) {
        uint64_t raw[2];
        if (pread(LEASE, raw, sizeof raw, 0) == sizeof raw && (raw[0] ^ raw[1]) == ~0ULL) return (int64_t)raw[0];
    }
    return 0;
}

uint64_t lease_generation(void) {
    uint64_t generation = 0;
    return pread(LEASE, &generation, sizeof generation, 2 * sizeof generation) == sizeof generation ? generation : 0;
}

/* Clock ticks from boot to this process's start: with the pid it names us for ever. */
uint64_t own_start_time(void) {
    char text[1024];
    int handle = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    ssize_t got = handle < 0 ? -1 : read(handle, text, sizeof text - 1);
    if (handle >= 0) close(handle);
    if (got <= 0) return 0;
    text[got] = 0;
    const char *bracket = strrchr(text, ')');
    unsigned long long ticks = 0;
    if (bracket) sscanf(bracket + 1, " %*c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu", &ticks);
    return ticks;
}
