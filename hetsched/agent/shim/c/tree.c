/* The whole of a task's processes. The shim is a subreaper, so whoever they leave behind (double forks, daemons, new sessions) becomes its
 * child: the tree is dead exactly when the shim has no child left. Where there is a cgroup (group.c) SIGKILL reaches all of it in one write,
 * which no fork can outrun; the proof stays the same. */

#define _GNU_SOURCE
#include "shim.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct {
    pid_t *pids;
    size_t used, size;
} Pids;

static void add(Pids *pids, pid_t pid) {
    if (pids->used == pids->size) {
        pids->size = pids->size ? 2 * pids->size : 64;
        pids->pids = realloc(pids->pids, pids->size * sizeof *pids->pids);
        if (pids->pids == NULL) abort();
    }
    pids->pids[pids->used++] = pid;
}

static void add_listed(Pids *pids, const char *path) {
    FILE *file = fopen(path, "re");
    if (file == NULL) return; /* the process or the thread ended meanwhile; who is missed now is found on the next look */
    int pid;
    while (fscanf(file, "%d", &pid) == 1) add(pids, pid);
    fclose(file);
}

static pid_t parent_of(pid_t pid) {
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int handle = open(path, O_RDONLY | O_CLOEXEC);
    if (handle < 0) return -1;
    ssize_t got = read(handle, text, sizeof text - 1);
    close(handle);
    if (got <= 0) return -1;
    text[got] = 0;
    const char *bracket = strrchr(text, ')'); /* the name before it may hold anything */
    int parent = -1;
    if (bracket) sscanf(bracket + 1, " %*c %d", &parent);
    return parent;
}

static void for_each_number(const char *directory, void (*call)(Pids *, pid_t, pid_t), Pids *pids, pid_t about) {
    DIR *listing = opendir(directory);
    if (listing == NULL) return;
    struct dirent *entry;
    while ((entry = readdir(listing)) != NULL)
        if (isdigit((unsigned char)entry->d_name[0])) call(pids, atoi(entry->d_name), about);
    closedir(listing);
}

static void add_children_of_thread(Pids *pids, pid_t thread, pid_t process) {
    char path[96];
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)process, (int)thread);
    add_listed(pids, path);
}

static void add_if_child(Pids *pids, pid_t pid, pid_t parent) {
    if (parent_of(pid) == parent) add(pids, pid);
}

/* CONFIG_PROC_CHILDREN: a handful of reads for a tree instead of one for every process of the machine. */
static void add_children(Pids *pids, pid_t parent) {
    char path[96];
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)getpid(), (int)getpid());
    if (access(path, F_OK) == 0) {
        snprintf(path, sizeof path, "/proc/%d/task", (int)parent);
        for_each_number(path, add_children_of_thread, pids, parent);
    } else {
        for_each_number("/proc", add_if_child, pids, parent);
    }
}

void tree_signal(int number, const Group *group) {
    if (number == SIGKILL && group->path[0]) {
        char path[PATH_BYTES + 16];
        snprintf(path, sizeof path, "%s/cgroup.kill", group->path);
        write_file(path, "1"); /* kernels before 5.14 lack it; the walk does the same, only slower */
    }
    Pids pids = {0};
    add_children(&pids, getpid());
    for (size_t index = 0; index < pids.used; index++) add_children(&pids, pids.pids[index]);
    for (size_t index = 0; index < pids.used; index++) kill(pids.pids[index], number);
    free(pids.pids);
}

bool tree_end_others(bool (*stays)(pid_t)) {
    Pids pids = {0};
    add_children(&pids, getpid());
    size_t others = 0;
    for (size_t index = 0; index < pids.used; index++)
        if (!stays(pids.pids[index])) pids.pids[others++] = pids.pids[index];
    pids.used = others;
    for (size_t index = 0; index < pids.used; index++) add_children(&pids, pids.pids[index]);
    for (size_t index = 0; index < pids.used; index++) kill(pids.pids[index], SIGKILL);
    for (size_t index = 0; index < others; index++) waitpid(pids.pids[index], NULL, WNOHANG);
    free(pids.pids);
    return others > 0;
}

bool write_file(const char *path, const char *text) {
    int handle = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (handle < 0) return false;
    bool written = write(handle, text, strlen(text)) >= 0;
    int error = errno;
    close(handle);
    errno = error;
    return written;
}
