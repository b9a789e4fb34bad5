/* hs-spawner: keeps shims ready and hands them the agent's orders, and ends what a shim that was killed has left behind.
 *
 *     hs-spawner TASKS LEASE SOFT HARD      the agent's stream is its stdin; SOFT and HARD: limits of open files that tasks get
 *
 * It holds nothing that would have to survive: what was ordered and what became of it is in the agent's ledger and in the attempts' own
 * directories. When it is killed the agent starts another. When the agent dies, shims that have work go on, and it leaves after the last of
 * them. What shims say goes on to the agent as it is, all that has come at once in one write; an agent that does not read holds up nobody.
 *
 * A shim is a subreaper, and waits for all of its task's processes. So who becomes a child of ours without being a shim was forked by a task
 * whose shim is dead, and nobody holds it to lease and limit any more: it is killed at once, whether the agent is there, frozen or dead. */

#define _GNU_SOURCE
#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { EVENTS = 64, RECKON_MS = 5000, TABLE = 1 << 12, ORPHANS_MS = 10, LONGEST_ORPHANS_MS = 5000 };

typedef enum { IDLE, BUSY, UNKNOWN } State; /* UNKNOWN: ended silently, and the agent's ledger may not have it yet */

typedef struct Shim {
    int channel;
    pid_t pid;
    State state;
    uint64_t order;
    Buffer said;
    struct Shim *next; /* idle: the next one that is; else: the next order of the same bucket */
} Shim;

static unsigned long descriptors[2];
static int poll_handle;
static Shim *idle;                 /* last in, first out: what is warm goes first */
static size_t idle_count, least_idle; /* since the last reckoning */
static Shim *by_order[TABLE];      /* busy and unknown ones */
static Buffer from_agent, to_agent;
static int64_t orphans_ms, orphans_due_ms; /* pause until the next look at what dead shims left, 0: nothing is left; when that is */

/* ---------------------------------------------------------------------- shims */

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void watch(int handle, void *whom, int how, uint32_t events) {
    epoll_ctl(poll_handle, how, handle, &(struct epoll_event){.events = events, .data.ptr = whom});
}

static Shim *shim_make(void) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) return NULL;
    Shim *shim = calloc(1, sizeof *shim);
    pid_t pid = shim ? fork() : -1;
    if (pid == 0) {
        dup3(pair[1], CHANNEL, O_CLOEXEC);
        syscall(SYS_close_range, (unsigned)FIRST_FREE, ~0U, 0U);
        shim_live(descriptors);
    }
    close(pair[1]);
    if (pid < 0) {
        close(pair[0]);
        free(shim);
        return NULL;
    }
    *shim = (Shim){.channel = pair[0], .pid = pid, .state = BUSY};
    watch(shim->channel, shim, EPOLL_CTL_ADD, EPOLLIN);
    return shim;
}

static Shim **bucket(uint64_t order) {
    return &by_order[order % TABLE];
}

static void forget_order(Shim *shim) {
    for (Shim **link = bucket(shim->order); *link; link = &(*link)->next)
        if (*link == shim) {
            *link = shim->next;
            return;
        }
}

static void rest(Shim *shim) {
    forget_order(shim);
    shim->state = IDLE;
    shim->next = idle;
    idle = shim;
    idle_count++;
}

static Shim *take_idle(void) {
    Shim *shim = idle;
    if (shim == NULL) return shim_make();
    idle = shim->next;
    if (--idle_count < least_idle) least_idle = idle_count;
    return shim;
}

static void say(uint32_t kind, uint64_t id) {
    Head head = {sizeof head, kind, id};
    buffer_add(&to_agent, &head, sizeof head);
}

static bool is_shim(pid_t pid) {
    for (Shim *shim = idle; shim; shim = shim->next)
        if (shim->pid == pid) return true;
    for (size_t index = 0; index < TABLE; index++)
        for (Shim *shim = by_order[index]; shim; shim = shim->next)
            if (shim->pid == pid) return true;
    return false;
}

/* Who cannot be killed (set-user-id programs, processes stuck in the kernel) is looked at more and more seldom. */
static void end_orphans(void) {
    int64_t longer_ms = orphans_ms ? 2 * orphans_ms : ORPHANS_MS;
    orphans_ms = !tree_end_others(is_shim) ? 0 : longer_ms < LONGEST_ORPHANS_MS ? longer_ms : LONGEST_ORPHANS_MS;
    orphans_due_ms = now_ms() + orphans_ms;
}

static void shim_gone(Shim *shim) {
    bool had_work = shim->state != IDLE;
    if (shim->state == IDLE) {
        Shim **link = &idle;
        while (*link != shim) link = &(*link)->next;
        *link = shim->next;
        idle_count--;
    } else {
        if (shim->state == BUSY) say(LOST, shim->order);
        forget_order(shim);
    }
    close(shim->channel);
    waitpid(shim->pid, NULL, 0); /* from here on what it leaves is ours */
    free(shim->said.bytes);
    free(shim);
    if (had_work) end_orphans();
}

/* It takes the directory along that it kept for its next task. */
static void dismiss(Shim *shim) {
    Head head = {sizeof head, KNOWN, shim->order};
    send_all(shim->channel, &head, sizeof head);
    shim_gone(shim);
}

/* Half of those that had nothing to do since the last reckoning go. */
static void reckon(void) {
    for (size_t surplus = (least_idle + 1) / 2; surplus > 0 && idle; surplus--) dismiss(idle);
    least_idle = idle_count;
}

/* ---------------------------------------------------------------------- what comes */

static void obey(Head *head) {
    if (head->kind == KNOWN) {
        for (Shim *shim = *bucket(head->id); shim; shim = shim->next)
            if (shim->order == head->id && shim->state == UNKNOWN) {
                rest(shim);
                return;
            }
        return;
    }
    Shim *shim = take_idle();
    if (shim == NULL) { /* no processes or descriptors left: as if it had died at once, and the agent looks after it */
        say(LOST, head->id);
        return;
    }
    shim->state = BUSY;
    shim->order = head->id;
    shim->next = *bucket(shim->order);
    *bucket(shim->order) = shim;
    send_all(shim->channel, head, head->length); /* if it is dead, its channel says so */
}

static bool hear_agent(void) {
    ssize_t got = buffer_fill(&from_agent, CHANNEL);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (got <= 0) return false;
    size_t at = 0;
    for (Head *head; (head = buffer_frame(&from_agent, at)) != NULL; at += head->length) obey(head);
    buffer_drop(&from_agent, at);
    return true;
}

static void hear_shim(Shim *shim) {
    if (buffer_fill(&shim->said, shim->channel) <= 0) {
        shim_gone(shim);
        return;
    }
    size_t at = 0;
    for (Head *head; (head = buffer_frame(&shim->said, at)) != NULL; at += head->length) {
        buffer_add(&to_agent, head, head->length);
        if (head->kind == STARTED) continue;
        bool keeps = head->kind == ENDED && ((EndedBody *)(head + 1))->silent;
        if (keeps)
            shim->state = UNKNOWN;
        else
            rest(shim);
    }
    buffer_drop(&shim->said, at);
}

static bool tell_agent(void) {
    static bool waiting;
    ssize_t sent = to_agent.used ? send(CHANNEL, to_agent.bytes, to_agent.used, MSG_NOSIGNAL | MSG_DONTWAIT) : 0;
    if (sent < 0 && errno != EAGAIN && errno != EINTR) return false;
    if (sent > 0) buffer_drop(&to_agent, (size_t)sent);
    if (waiting != (to_agent.used > 0)) {
        waiting = !waiting;
        watch(CHANNEL, NULL, EPOLL_CTL_MOD, waiting ? EPOLLIN | EPOLLOUT : EPOLLIN);
    }
    return true;
}

static void serve(void) {
    int64_t reckon_ms = now_ms() + RECKON_MS;
    struct epoll_event events[EVENTS];
    while (true) {
        int count = epoll_wait(poll_handle, events, EVENTS, orphans_ms ? (int)orphans_ms : idle ? RECKON_MS : -1);
        bool agent_spoke = false;
        for (int index = 0; index < count; index++) {
            if (events[index].data.ptr)
                hear_shim(events[index].data.ptr);
            else
                agent_spoke = true;
        }
        /* After the shims, of whom some are idle now. */
        if (agent_spoke && !hear_agent()) return;
        if (!tell_agent()) return;
        if (now_ms() >= reckon_ms) {
            reckon();
            reckon_ms = now_ms() + RECKON_MS;
        }
        if (orphans_ms && now_ms() >= orphans_due_ms) end_orphans();
    }
}

/* The agent is gone. Shims see their channels closed, so that they put what they say on disk and leave when they are done; we stay as long as
 * one of them does. */
static void outlive_agent(void) {
    close(CHANNEL);
    while (idle) dismiss(idle);
    for (size_t index = 0; index < TABLE; index++)
        for (Shim *shim = by_order[index]; shim; shim = shim->next) close(shim->channel);
    while (true) {
        pid_t pid = waitpid(-1, NULL, orphans_ms ? WNOHANG : 0);
        if (pid < 0 && errno != EINTR) return; /* nobody is left */
        if (pid == 0) usleep((useconds_t)orphans_ms * 1000);
        for (size_t index = 0; index < TABLE; index++)
            for (Shim *shim = by_order[index]; shim; shim = shim->next)
                if (shim->pid == pid) shim->pid = 0;
        end_orphans(); /* one look may miss who changes parents during it */
    }
}

/* ---------------------------------------------------------------------- beginning */

static void quiet_signals(void) {
    sigset_t all;
    sigfillset(&all);
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGFPE);
    sigdelset(&all, SIGILL);
    sigdelset(&all, SIGABRT);
    sigprocmask(SIG_SETMASK, &all, NULL);
    /* Whatever the agent's own parent ignores (a shell's background job: SIGINT and SIGQUIT), a task ignores nothing. */
    for (int number = 1; number <= SIGRTMAX; number++) signal(number, SIG_DFL);
}

static void place_at(int handle, int wanted) {
    if (handle < 0) {
        perror("hs-spawner");
        exit(1);
    }
    if (handle == wanted)
        fcntl(handle, F_SETFD, FD_CLOEXEC);
    else
        dup3(handle, wanted, O_CLOEXEC), close(handle);
}

int main(int count, char **arguments) {
    if (count != 5) {
        fprintf(stderr, "hs-spawner is started by hetsched agent\n");
        return 64;
    }
    quiet_signals();
    prctl(PR_SET_NAME, "hs-spawner");
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    umask(077);
    place_at(dup(0), CHANNEL);
    place_at(open(arguments[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC), TASKS);
    place_at(open(arguments[2], O_RDONLY | O_NOFOLLOW | O_CLOEXEC), LEASE);
    place_at(open("/dev/null", O_RDONLY | O_CLOEXEC), NULL_DEVICE);
    dup2(NULL_DEVICE, 0);
    poll_handle = epoll_create1(EPOLL_CLOEXEC);
    descriptors[0] = strtoul(arguments[3], NULL, 10);
    descriptors[1] = strtoul(arguments[4], NULL, 10);
    watch(CHANNEL, NULL, EPOLL_CTL_ADD, EPOLLIN);
    serve();
    outlive_agent();
    return 0;
}
