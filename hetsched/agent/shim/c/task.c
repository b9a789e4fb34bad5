/* How a task is begun: what it may not inherit is taken off, what it must have is put on, then exec.
 *
 * The child shares our memory until exec (as with vfork, without copying tables), but not our time: a work directory on a dead server
 * must not keep us from obeying the lease, so we wait a second for exec and then go on. The kernel clears `starting` and wakes us when
 * the child has its own memory, or is dead. Everything here that runs in the child is a plain system call: no locks, no allocation. */

#define _GNU_SOURCE
#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { STACK_BYTES = 128 * 1024 };

static _Alignas(16) char stack[STACK_BYTES];
static pid_t starting;
static bool shielded; /* from being killed when memory runs out */

typedef struct {
    Task *task;
    const Order *order;
    const Place *place;
    const Group *group;
    bool joins; /* its group: it was not born there */
    pid_t shim;
} Birth;

static _Noreturn void fail(const Birth *birth, const char *subject) {
    birth->task->exec_errno = errno;
    snprintf(birth->task->exec_subject, NAME_BYTES, "%s", subject);
    _exit(127);
}

/* When memory runs out: the agent and its shims may be shielded from that, tasks are not. */
static void be_killed_first(void) {
    if (shielded) write_file("/proc/self/oom_score_adj", "0");
}

void task_prepare(void) {
    char text[16] = "";
    int handle = open("/proc/self/oom_score_adj", O_RDONLY | O_CLOEXEC);
    shielded = handle >= 0 && read(handle, text, sizeof text - 1) > 0 && text[0] == '-';
    if (handle >= 0) close(handle);
}

/* Groups before user: afterwards the right to change them is gone. Not by the C library, which would want our threads to follow. */
static bool change_user(const Order *order) {
    if (order->uid < 0) return true;
    return syscall(SYS_setgroups, (size_t)order->group_count, order->groups) == 0 &&
           syscall(SYS_setresgid, order->gid, order->gid, order->gid) == 0 && syscall(SYS_setresuid, order->uid, order->uid, order->uid) == 0;
}

/* SIGKILL when the shim dies, or has died already. Undone by a change of user: after that. */
static void die_with(pid_t shim) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != shim) _exit(127);
}

static void search_and_exec(const Order *order) {
    const char *program = order->argv[0], *path = "/bin:/usr/bin";
    for (char **entry = order->env; *entry; entry++)
        if (strncmp(*entry, "PATH=", 5) == 0) path = *entry + 5;
    int told = ENOENT;
    while (true) {
        const char *colon = strchrnul(path, ':');
        char full[PATH_BYTES];
        int length = snprintf(full, sizeof full, "%.*s%s%s", (int)(colon - path), path, colon > path ? "/" : "", program);
        if (length < PATH_BYTES) {
            execve(full, order->argv, order->env);
            if (errno != ENOENT && errno != ENOTDIR && told == ENOENT) told = errno;
        }
        if (*colon == 0) break;
        path = colon + 1;
    }
    errno = told;
}

static int be_the_task(void *argument) {
    const Birth *birth = argument;
    const Order *order = birth->order;
    const Place *place = birth->place;
    setsid();
    be_killed_first();
    dup2(NULL_DEVICE, 0);
    dup2(place->out, 1);
    dup2(place->error, 2);
    if (birth->joins) {
        char path[PATH_BYTES + 16];
        snprintf(path, sizeof path, "%s/cgroup.procs", birth->group->path);
        if (!write_file(path, "0")) fail(birth, path);
    }
    if (!order->workdir[0] && fchdir(place->work) < 0) fail(birth, "work");
    if (!change_user(order)) fail(birth, order->argv[0]);
    if (order->workdir[0] && chdir(order->workdir) < 0) fail(birth, order->workdir);
    die_with(birth->shim);
    umask(022);
    if (order->notes[0]) (void)!write(2, order->notes, strlen(order->notes));
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (order->executable[0])
        execve(order->executable, order->argv, order->env);
    else if (strchr(order->argv[0], '/'))
        execve(order->argv[0], order->argv, order->env);
    else
        search_and_exec(order);
    fail(birth, order->executable[0] ? order->executable : order->argv[0]);
}

void task_look(Task *task) {
    if (!task->exec_known && __atomic_load_n(&starting, __ATOMIC_ACQUIRE) == 0) task->exec_known = true;
}

enum { FLAGS = CLONE_VM | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID };

/* A child that is born in the group; moving it there would stop all forks of the machine for a moment. The C library has no call for it. -1:
 * not on this processor, by this kernel (before 5.7), or in this directory. */
static pid_t bear_in(const Group *group, Birth *birth) {
#ifdef __x86_64__
    struct clone_args wish = {
        .flags = FLAGS | CLONE_INTO_CGROUP,
        .parent_tid = (uintptr_t)&starting,
        .child_tid = (uintptr_t)&starting,
        .exit_signal = SIGCHLD,
        .stack = (uintptr_t)stack,
        .stack_size = STACK_BYTES,
        .cgroup = (uint64_t)group->directory,
    };
    register int (*call)(void *) __asm__("r12") = be_the_task;
    register void *argument __asm__("r13") = birth;
    long pid = SYS_clone3;
    __asm__ volatile(
        "syscall\n\t"
        "test %%rax, %%rax\n\t"
        "jnz 1f\n\t"
        "xor %%ebp, %%ebp\n\t" /* the child, on its own stack */
        "mov %%r13, %%rdi\n\t"
        "call *%%r12\n\t"
        "ud2\n"
        "1:"
        : "+a"(pid)
        : "D"(&wish), "S"(sizeof wish), "r"(call), "r"(argument)
        : "rcx", "r11", "memory");
    return pid > 0 ? (pid_t)pid : -1;
#else
    (void)group, (void)birth;
    return -1;
#endif
}

bool task_begin(Task *task, const Order *order, const Place *place, const Group *group) {
    static Birth birth; /* the child may still look at it when we have gone on */
    birth = (Birth){task, order, place, group, false, getpid()};
    *task = (Task){.pid = -1};
    if (group->path[0]) {
        task->pid = bear_in(group, &birth);
        birth.joins = task->pid < 0;
    }
    if (task->pid < 0) task->pid = clone(be_the_task, stack + STACK_BYTES, FLAGS | SIGCHLD, &birth, &starting, NULL, &starting);
    if (task->pid < 0) {
        task->exec_errno = errno;
        snprintf(task->exec_subject, NAME_BYTES, "%s", order->argv[0]);
        return false;
    }
    struct timespec second = {.tv_sec = 1};
    while (true) {
        pid_t seen = __atomic_load_n(&starting, __ATOMIC_ACQUIRE);
        if (seen == 0 || (syscall(SYS_futex, &starting, FUTEX_WAIT, seen, &second, NULL, 0) < 0 && errno == ETIMEDOUT)) break;
    }
    task_look(task);
    return true;
}
