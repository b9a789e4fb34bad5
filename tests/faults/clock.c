/* A wall clock that somebody sets: preloaded into the daemon and its journal server. By how many nanoseconds it is wrong stands in a file of eight
   bytes, $HETSCHED_CLOCK/server for the server and $HETSCHED_CLOCK/daemon for everybody else; clocks that are never set are left alone. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int (*real_clock)(clockid_t, struct timespec *);
static volatile int64_t none = 0, *offset = &none;

__attribute__((constructor)) static void look(void) {
    char path[4096];
    const char *directory = getenv("HETSCHED_CLOCK"), *name = program_invocation_short_name;
    real_clock = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    if (directory == NULL) return;
    int is_server = strstr(name, "valkey") != NULL || strstr(name, "redis") != NULL;
    snprintf(path, sizeof path, "%s/%s", directory, is_server ? "server" : "daemon");
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    void *there = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (there != MAP_FAILED) offset = there;
}

int clock_gettime(clockid_t id, struct timespec *at) {
    if (real_clock == NULL) look();
    int done = real_clock(id, at);
    if (done == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {
        int64_t ns = at->tv_sec * 1000000000LL + at->tv_nsec + *offset;
        at->tv_sec = ns / 1000000000LL;
        at->tv_nsec = ns % 1000000000LL;
    }
    return done;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at != NULL) *at = now.tv_sec;
    return now.tv_sec;
}
