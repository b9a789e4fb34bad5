/* An attempt's directory below TASKS, and what is in it:
 *
 *     life             who watches the attempt, its first process, how it ended: a line each, see ../life.py
 *     stop             the wish to end it, by the agent
 *     stdout stderr    what the task said
 *     work/            where it runs if it names no directory
 *
 * A directory that appears under an attempt's name is the claim on it: that takes place once, so an attempt has one shim in all its life.
 * A task that left nothing leaves its directory as it found it, and the shim takes it along to its next one by a rename: making
 * four new inodes costs more than all else that a shim does (ext4 looks for them among those lately removed). Only for the same user,
 * and only once the agent has the end in its ledger. */

#define _GNU_SOURCE
#include "shim.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LIFE_BYTES = 2048, LEEWAY_BYTES = 1 << 20 };

static bool make_files(Place *place, const Order *order) {
    const int flags = O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    place->life = openat(place->directory, "life", flags | O_RDWR, 0600);
    place->out = openat(place->directory, "stdout", flags | O_WRONLY | O_APPEND, 0600);
    place->error = openat(place->directory, "stderr", flags | O_WRONLY | O_APPEND, 0600);
    if (mkdirat(place->directory, "work", 0700) < 0) return false;
    place->work = openat(place->directory, "work", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (place->life < 0 || place->out < 0 || place->error < 0 || place->work < 0) return false;
    if (order->uid < 0) return true;
    /* The streams too, for `> /dev/stderr`, which opens it again. */
    uid_t uid = (uid_t)order->uid;
    gid_t gid = (gid_t)order->gid;
    return fchown(place->out, uid, gid) == 0 && fchown(place->error, uid, gid) == 0 && fchown(place->work, uid, gid) == 0;
}

static bool make(Place *place, const Order *order, mode_t mode) {
    *place = (Place){.directory = -1, .life = -1, .out = -1, .error = -1, .work = -1, .uid = order->uid};
    snprintf(place->name, sizeof place->name, ".new-%d", (int)getpid());
    if (mkdirat(TASKS, place->name, mode) < 0) {
        place->name[0] = 0;
        return false;
    }
    place->directory = openat(TASKS, place->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (place->directory >= 0 && fchmod(place->directory, mode) == 0 && make_files(place, order)) return true;
    int error = errno;
    place_remove(place);
    errno = error;
    return false;
}

static bool begin_life(Place *place, const Order *order, uint64_t start_time) {
    char life[LIFE_BYTES] = {0}; /* all of it: what an earlier attempt's is longer goes */
    place->life_used = (size_t)snprintf(life, sizeof life, "%s %d %llu\n", order->name, (int)getpid(), (unsigned long long)start_time);
    return pwrite(place->life, life, sizeof life, 0) == sizeof life;
}

int place_claim(Place *place, const Order *order, mode_t mode, uint64_t start_time) {
    for (int tries = 0; tries < 2; tries++) {
        if (place->name[0] && place->uid != order->uid) place_remove(place);
        if (!place->name[0] && !make(place, order, mode)) return NO_PLACE;
        /* The life first: a directory under the attempt's name tells of no other one. */
        if (begin_life(place, order, start_time) && renameat2(TASKS, place->name, TASKS, order->name, RENAME_NOREPLACE) == 0) {
            snprintf(place->name, sizeof place->name, "%s", order->name);
            return CLAIMED;
        }
        if (errno == EEXIST) return TAKEN_BEFORE;
        int error = errno;
        place_remove(place); /* somebody has tidied it away, most likely */
        errno = error;
    }
    return NO_PLACE;
}

void place_write(Place *place, const char *line) {
    size_t length = strlen(line);
    while (pwrite(place->life, line, length, (off_t)place->life_used) != (ssize_t)length)
        nanosleep(&(struct timespec){.tv_sec = 1}, NULL); /* a full disk must not lose the exit of a task that ran for a week */
    place->life_used += length;
}

void place_sync(Place *place) {
    fsync(place->life);
    fsync(place->directory);
    fsync(TASKS);
}

static bool is_empty_file(int handle, const Place *place, const char *name) {
    struct stat open, named;
    return fstat(handle, &open) == 0 && fstatat(place->directory, name, &named, AT_SYMLINK_NOFOLLOW) == 0 && open.st_ino == named.st_ino &&
           open.st_size == 0 && open.st_nlink == 1 && (open.st_mode & 07777) == 0600;
}

/* How many names; -1 where that cannot be known. */
static int count_entries(int directory) {
    int handle = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (handle < 0) return -1;
    _Alignas(8) char entries[1024];
    ssize_t got, count = 0;
    while ((got = getdents64(handle, entries, sizeof entries)) > 0)
        for (ssize_t at = 0; at < got; at += ((struct dirent64 *)(entries + at))->d_reclen) count++;
    close(handle);
    return got < 0 ? -1 : (int)count;
}

bool place_is_untouched(const Place *place) {
    struct stat work;
    return is_empty_file(place->out, place, "stdout") && is_empty_file(place->error, place, "stderr") && fstat(place->work, &work) == 0 &&
           (work.st_mode & 07777) == 0700 && count_entries(place->work) == 2 && count_entries(place->directory) == 6;
}

static void close_all(Place *place) {
    const int handles[] = {place->life, place->out, place->error, place->work, place->directory};
    for (size_t index = 0; index < sizeof handles / sizeof *handles; index++)
        if (handles[index] >= 0) close(handles[index]);
    place->name[0] = 0;
}

void place_leave(Place *place) {
    if (place->name[0]) close_all(place);
}

void place_remove(Place *place) {
    if (!place->name[0]) return;
    if (place->directory >= 0) {
        unlinkat(place->directory, "life", 0);
        unlinkat(place->directory, "stdout", 0);
        unlinkat(place->directory, "stderr", 0);
        unlinkat(place->directory, "work", AT_REMOVEDIR);
    }
    unlinkat(TASKS, place->name, AT_REMOVEDIR);
    close_all(place);
}

/* Of a stream only the last `log_bytes` stay; the older part becomes a hole in the file, so that offsets keep their meaning, the task
 * writes on undisturbed, and a reader can tell "no longer kept" from "not there". A file system that cannot punch holes keeps everything. */
static void trim(int handle, int64_t log_bytes) {
    struct stat status;
    if (fstat(handle, &status) < 0 || status.st_size <= log_bytes || status.st_blocks * 512 <= log_bytes + LEEWAY_BYTES) return;
    (void)!fallocate(handle, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, status.st_size - log_bytes);
}

void place_trim(const Place *place, int64_t log_bytes) {
    trim(place->out, log_bytes);
    trim(place->error, log_bytes);
}

bool place_stop(const Place *place, int64_t *grace_ns, char *reason) {
    int handle = openat(place->directory, "stop", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (handle < 0) return false;
    char text[REASON_BYTES + 32];
    ssize_t got = read(handle, text, sizeof text - 1);
    close(handle);
    if (got <= 0) return false;
    text[got] = 0;
    char *space;
    *grace_ns = strtoll(text, &space, 10) * MILLISECOND_NS;
    if (*space != ' ') return false;
    snprintf(reason, REASON_BYTES, "%s", space + 1);
    for (char *at = reason; *at; at++)
        if (*at == '\n') *at = ' '; /* it becomes part of a line */
    return true;
}
