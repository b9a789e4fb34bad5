/* What bench_processes.py measures against: posix_spawn and waitpid of /bin/true in a loop, in so many processes at once.
 *
 *     bare_spawn COUNT PROCESSES      prints spawns a second and microseconds of processor time a spawn */

#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static void loop(int count) {
    char *argv[] = {"/bin/true", NULL};
    for (int done = 0; done < count; done++) {
        pid_t pid;
        if (posix_spawn(&pid, argv[0], NULL, NULL, argv, environ) != 0) _exit(1);
        waitpid(pid, NULL, 0);
    }
    _exit(0);
}

static double seconds(struct timeval time) {
    return (double)time.tv_sec + (double)time.tv_usec / 1e6;
}

int main(int count, char **arguments) {
    if (count != 3) return 64;
    int spawns = atoi(arguments[1]), processes = atoi(arguments[2]);
    struct timespec began, ended;
    clock_gettime(CLOCK_MONOTONIC, &began);
    for (int number = 0; number < processes; number++)
        if (fork() == 0) loop(spawns);
    while (wait(NULL) > 0) {}
    clock_gettime(CLOCK_MONOTONIC, &ended);
    struct rusage used;
    getrusage(RUSAGE_CHILDREN, &used);
    double all = (double)spawns * processes, wall = (double)(ended.tv_sec - began.tv_sec) + (double)(ended.tv_nsec - began.tv_nsec) / 1e9;
    printf("%.1f %.1f\n", all / wall, (seconds(used.ru_utime) + seconds(used.ru_stime)) * 1e6 / all);
    return 0;
}
