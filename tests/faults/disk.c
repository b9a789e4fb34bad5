/* A disk that can be told to misbehave: preloaded into the daemon and its journal server, it looks only at regular files below $HETSCHED_DISK_ROOT.
   What it does stands in the file $HETSCHED_DISK: "full" (writes get ENOSPC), "broken" (syncs get EIO), "slow N" (syncs take N ms); else nothing.
   How much of a file has been synced is noted in $HETSCHED_DISK_SYNCED/INODE: what a power cut would certainly leave of it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static int is_ours(int fd) {
    struct stat about;
    char link[64], path[4096];
    const char *root = getenv("HETSCHED_DISK_ROOT");
    if (root == NULL || fstat(fd, &about) != 0 || !S_ISREG(about.st_mode)) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return strncmp(path, root, strlen(root)) == 0;
}

/* The first letter of what the disk is told, and its number. */
static char mood(long *number) {
    char text[32] = {0};
    const char *name = getenv("HETSCHED_DISK");
    int fd = name == NULL ? -1 : open(name, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    ssize_t length = read(fd, text, sizeof text - 1);
    close(fd);
    if (length > 5) *number = atol(text + 5);
    return text[0];
}

#define REAL(type, name, ...) static type (*real)(__VA_ARGS__); if (real == NULL) real = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

static int is_full(int fd) {
    long unused;
    return mood(&unused) == 'f' && is_ours(fd);
}

ssize_t write(int fd, const void *data, size_t size) {
    REAL(ssize_t, "write", int, const void *, size_t);
    if (is_full(fd)) { errno = ENOSPC; return -1; }
    return real(fd, data, size);
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    REAL(ssize_t, "writev", int, const struct iovec *, int);
    if (is_full(fd)) { errno = ENOSPC; return -1; }
    return real(fd, parts, count);
}

/* `about`: as it was when the sync began. */
static void note(struct stat *about) {
    char path[4096], text[32];
    const char *directory = getenv("HETSCHED_DISK_SYNCED");
    if (directory == NULL) return;
    snprintf(path, sizeof path, "%s/%llu", directory, (unsigned long long)about->st_ino);
    int note_fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (note_fd < 0) return;
    int length = snprintf(text, sizeof text, "%020lld", (long long)about->st_size);
    if (pwrite(note_fd, text, length, 0) != length) abort();
    close(note_fd);
}

static int synced(int fd, int (*real)(int)) {
    long ms = 0;
    struct stat about;
    if (!is_ours(fd) || fstat(fd, &about) != 0) return real(fd);
    char what = mood(&ms);
    if (what == 'b') { errno = EIO; return -1; }
    if (what == 's') {
        struct timespec pause = {ms / 1000, ms % 1000 * 1000000};
        nanosleep(&pause, NULL);
    }
    int done = real(fd);
    if (done == 0) note(&about);
    return done;
}

int fsync(int fd) { REAL(int, "fsync", int); return synced(fd, real); }
int fdatasync(int fd) { REAL(int, "fdatasync", int); return synced(fd, real); }
