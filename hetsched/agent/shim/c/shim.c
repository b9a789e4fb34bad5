/* A shim's life: take an order, claim the attempt, begin the task, wait, end it when told or when a limit is over, say how it ended;
 * then the next one.
 *
 * Everything that may end the task is looked at in one place (`why_to_end`) on every wake: a child's death, the agent's nudge (SIGUSR1),
 * the nearest limit, and at most LOOK_NS later anyway, because after a sleep of the machine no timer is on time.
 * Promises: an end is written and said only when the tree is dead; a stop, a limit or the lease's end names the reason only if the main
 * process had not ended by itself before; signals meant for the agent's group reach neither shim nor task. */

#define _GNU_SOURCE
#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const int64_t LOOK_NS = 5LL * SECOND_NS;
/* Doubled each time, up to a second: what the kernel will not let go is not let go faster by asking. */
static const int64_t KILL_AGAIN_NS = 20LL * MILLISECOND_NS;
/* What a task leaves behind when its main process has ended: asked to go, and this long later made to. */
static const int64_t LEFT_BEHIND_NS = 2LL * SECOND_NS;
/* Who ends sooner is told of once, start and end together: that saves a wake here, in the spawner and in the agent. */
static const int64_t SHORT_NS = 20LL * MILLISECOND_NS;

typedef struct {
    const Order *order;
    Place *place;
    Group *group;
    Task task;
    int status; /* of the main process, once it has ended */
    bool main_ended, told_started, killed;
    int64_t limit_ns, kill_ns, asked_ns, kill_again_ns; /* 0: not (yet) */
    char reason[REASON_BYTES];                           /* "": it ended by itself */
    double started_at;
} Watch;

static uint64_t start_time;
static mode_t mode;
static sigset_t wakers;

/* ---------------------------------------------------------------------- telling */

typedef struct {
    bool succeeded, silent;
    int exit_code;
    char reason[REASON_BYTES + NAME_BYTES];
} Outcome;

static Outcome failed(const char *before, const char *what, const char *subject) {
    Outcome outcome = {.exit_code = -1};
    snprintf(outcome.reason, sizeof outcome.reason, "%s%s%s%s", before, what, subject[0] ? ": " : "", subject);
    return outcome;
}

static void add_started(Buffer *said, const Watch *watch) {
    Head head = {sizeof(Head) + sizeof(StartedBody), STARTED, watch->order->id};
    StartedBody body = {(uint32_t)getpid(), (uint32_t)watch->task.pid, start_time, watch->started_at};
    buffer_add(said, &head, sizeof head);
    buffer_add(said, &body, sizeof body);
}

static void add_ended(Buffer *said, uint64_t id, const Outcome *outcome) {
    size_t reason = strlen(outcome->reason), padding = -(sizeof(EndedBody) + reason) % 8;
    Head head = {(uint32_t)(sizeof(Head) + sizeof(EndedBody) + reason + padding), ENDED, id};
    EndedBody body = {outcome->exit_code, outcome->succeeded, outcome->silent, (uint16_t)reason};
    buffer_add(said, &head, sizeof head);
    buffer_add(said, &body, sizeof body);
    buffer_add(said, outcome->reason, reason);
    buffer_add(said, "\0\0\0\0\0\0\0", padding);
}

static bool tell(Buffer *said) {
    bool heard = send_all(CHANNEL, said->bytes, said->used);
    said->used = 0;
    return heard;
}

static void line_started(const Watch *watch, char line[96]) {
    snprintf(line, 96, "started %d %.3f\n", (int)watch->task.pid, watch->started_at);
}

static void write_ended(Place *place, const Outcome *outcome, const char *before) {
    char line[sizeof outcome->reason + 192];
    snprintf(line, sizeof line, "%sended %d %d %d %.3f %s\n", before, outcome->succeeded, outcome->exit_code, outcome->silent, wall_s(), outcome->reason);
    place_write(place, line);
}

/* ---------------------------------------------------------------------- what may end it */

static bool why_to_end(const Watch *watch, int64_t now, char *reason, int64_t *grace_ns) {
    if (place_stop(watch->place, grace_ns, reason)) return true; /* a stop wins over the limits */
    *grace_ns = watch->order->grace_ns;
    const char *limit = now >= lease_deadline() ? "lease" : watch->limit_ns && now >= watch->limit_ns ? "time_limit" : NULL;
    if (limit) strcpy(reason, limit);
    return limit != NULL;
}

static void ask_to_end(Watch *watch, int64_t now, int64_t grace_ns) {
    watch->asked_ns = now;
    watch->kill_ns = now + grace_ns;
    tree_signal(SIGTERM, watch->group);
    tree_signal(SIGCONT, watch->group); /* who is stopped could not hear it */
}

/* The first reason stays; a later one may only shorten the grace. */
static void obey(Watch *watch, int64_t now, const char *reason, int64_t grace_ns) {
    if (!watch->reason[0]) {
        snprintf(watch->reason, sizeof watch->reason, "%s", reason);
        ask_to_end(watch, now, grace_ns);
    } else if (watch->kill_ns && watch->asked_ns + grace_ns < watch->kill_ns) {
        watch->kill_ns = watch->asked_ns + grace_ns;
    }
}

static void consider(Watch *watch, int64_t now) {
    char reason[REASON_BYTES];
    int64_t grace_ns;
    if (watch->main_ended && !watch->kill_ns)
        ask_to_end(watch, now, watch->order->grace_ns < LEFT_BEHIND_NS ? watch->order->grace_ns : LEFT_BEHIND_NS);
    if (!watch->main_ended && why_to_end(watch, now, reason, &grace_ns)) obey(watch, now, reason, grace_ns);
    if (watch->kill_ns && now >= watch->kill_ns) {
        tree_signal(SIGKILL, watch->group);
        watch->killed = true;
        watch->kill_again_ns = 2 * watch->kill_again_ns < SECOND_NS ? 2 * watch->kill_again_ns : SECOND_NS;
    }
}

/* How long nothing can need doing, unless a signal comes. */
static int64_t patience_ns(const Watch *watch, int64_t now) {
    int64_t end = now + LOOK_NS;
    if (watch->kill_ns) {
        if (now >= watch->kill_ns) return watch->kill_again_ns;
        return watch->kill_ns < end ? watch->kill_ns - now : LOOK_NS;
    }
    int64_t lease = lease_deadline();
    if (lease < end) end = lease;
    if (watch->limit_ns && watch->limit_ns < end) end = watch->limit_ns;
    return end > now ? end - now : 0;
}

/* ---------------------------------------------------------------------- one attempt */

/* Takes in who has ended; true if nobody is left. */
static bool reap(Watch *watch) {
    while (true) {
        int status;
        pid_t pid = waitpid(-1, &status, WNOHANG);
        if (pid < 0) return true;
        if (pid == 0) return false;
        if (pid == watch->task.pid) {
            watch->status = status;
            watch->main_ended = true;
        }
    }
}

static void wait_for(int64_t ns) {
    struct timespec patience = {ns / SECOND_NS, ns % SECOND_NS};
    sigtimedwait(&wakers, NULL, &patience);
}

static bool exec_failed(Watch *watch) {
    task_look(&watch->task);
    return watch->task.exec_errno != 0;
}

/* Until the last process of the task is gone. Who runs for longer than a moment is said to. */
static void watch_until_dead(Watch *watch, Buffer *said) {
    wait_for(SHORT_NS);
    while (!reap(watch)) {
        if (!watch->told_started && !exec_failed(watch)) {
            char line[96];
            line_started(watch, line);
            place_write(watch->place, line);
            add_started(said, watch);
            tell(said);
            watch->told_started = true;
        }
        int64_t now = now_ns();
        consider(watch, now);
        place_trim(watch->place, watch->order->log_bytes);
        wait_for(patience_ns(watch, now));
    }
    place_trim(watch->place, watch->order->log_bytes);
    if (watch->killed || wall_s() - watch->started_at > 1.0) group_leave(watch->group);
}

static Outcome outcome_of(Watch *watch) {
    if (exec_failed(watch)) return failed("cannot_start: ", strerror(watch->task.exec_errno), watch->task.exec_subject);
    Outcome outcome = {.exit_code = WIFEXITED(watch->status) ? WEXITSTATUS(watch->status) : 128 + WTERMSIG(watch->status)};
    outcome.succeeded = outcome.exit_code == 0 && !watch->reason[0];
    if (watch->reason[0])
        strcpy(outcome.reason, watch->reason);
    else if (WIFSIGNALED(watch->status))
        snprintf(outcome.reason, sizeof outcome.reason, "signal %d", WTERMSIG(watch->status));
    else if (outcome.exit_code)
        snprintf(outcome.reason, sizeof outcome.reason, "exit %d", outcome.exit_code);
    return outcome;
}

/* The lease was over since the order was given, and the attempt may have been given to somebody else; or another agent has come, and may have
 * told the daemon that nothing of it began. It says so in the lease before it looks at the directories, and we look at the lease after ours
 * is there: one of us sees the other. */
static bool is_outdated(const Order *order) {
    return lease_generation() != order->generation;
}

static Outcome run(Watch *watch, Buffer *said) {
    const Order *order = watch->order;
    char reason[REASON_BYTES];
    int64_t grace_ns;
    if (why_to_end(watch, now_ns(), reason, &grace_ns)) return failed(reason, "", "");
    if (is_outdated(order)) return failed("lease", "", ""); /* it was over, and a new one began before we looked */
    if (!group_take(watch->group, order, start_time)) return failed("cannot_start: ", strerror(errno), order->cgroup);
    if (watch->group->path[0] && !watch->group->is_limited)
        dprintf(watch->place->error, "hetsched: not limited: %s: %s\n", strerror(errno), watch->group->path);
    watch->started_at = wall_s();
    if (!task_begin(&watch->task, order, watch->place, watch->group))
        return failed("cannot_start: ", strerror(watch->task.exec_errno), watch->task.exec_subject);
    if (order->time_limit_ns >= 0) watch->limit_ns = now_ns() + order->time_limit_ns;
    watch_until_dead(watch, said);
    return outcome_of(watch);
}

static void attempt(const Order *order, Place *place, Group *group) {
    Buffer said = {0};
    int claim = place_claim(place, order, mode, start_time);
    if (claim == TAKEN_BEFORE || (claim == CLAIMED && is_outdated(order))) {
        Head head = {sizeof head, TAKEN, order->id};
        if (claim == CLAIMED) place_remove(place);
        send_all(CHANNEL, &head, sizeof head);
        return;
    }
    Watch watch = {.order = order, .place = place, .group = group, .kill_again_ns = KILL_AGAIN_NS};
    Outcome outcome = claim == CLAIMED ? run(&watch, &said) : failed("cannot_start: ", strerror(errno), order->name);
    if (claim == NO_PLACE) {
        outcome.silent = true;
    } else {
        outcome.silent = place_is_untouched(place);
        char before[96] = "";
        if (watch.task.pid > 0 && !watch.told_started && !exec_failed(&watch)) {
            line_started(&watch, before);
            add_started(&said, &watch);
        }
        write_ended(place, &outcome, before);
    }
    add_ended(&said, order->id, &outcome);
    bool heard = tell(&said);
    free(said.bytes);
    if (!heard && claim == CLAIMED) place_sync(place);
    if (place->name[0] && !outcome.silent) place_leave(place);
}

/* ---------------------------------------------------------------------- all of them */

static void become_a_shim(const unsigned long descriptors[2]) {
    setsid();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    prctl(PR_SET_NAME, "hs-shim");
    umask(077);
    setrlimit(RLIMIT_NOFILE, &(struct rlimit){descriptors[0], descriptors[1]});
    sigemptyset(&wakers);
    sigaddset(&wakers, SIGCHLD);
    sigaddset(&wakers, SIGUSR1);
    start_time = own_start_time();
    struct stat tasks;
    mode = fstat(TASKS, &tasks) == 0 ? tasks.st_mode & 0777 : 0700;
}

_Noreturn void shim_live(const unsigned long descriptors[2]) {
    become_a_shim(descriptors);
    task_prepare();
    Buffer orders = {0};
    Place place = {0};
    Group group = {0};
    while (true) {
        Head *head = buffer_frame(&orders, 0);
        if (head == NULL) {
            ssize_t got = buffer_fill(&orders, CHANNEL);
            if (got > 0 || (got < 0 && errno == EINTR)) continue;
            break;
        }
        if (head->kind == KNOWN) {
            place_remove(&place);
        } else {
            Order order;
            order_read(&order, head);
            attempt(&order, &place, &group);
            order_free(&order);
        }
        buffer_drop(&orders, head->length);
    }
    group_leave(&group);
    /* Whether the agent has the end of the last one in its ledger, we do not know. */
    if (place.name[0] == '.')
        place_remove(&place);
    else if (place.name[0])
        place_sync(&place);
    _exit(0);
}
