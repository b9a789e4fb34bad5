/* What the parts of `hs-spawner` know of each other. Begin with spawner.c, then shim.c; the why is in ../__init__.py. */

#ifndef HETSCHED_SHIM_H
#define HETSCHED_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Open in the spawner and in every shim. CHANNEL: the agent's in the spawner, the spawner's in a shim. */
enum { CHANNEL = 3, TASKS = 4, LEASE = 5, NULL_DEVICE = 6, FIRST_FREE = 7 };

enum { SECOND_NS = 1000000000, MILLISECOND_NS = 1000000 };
enum { NAME_BYTES = 256, REASON_BYTES = 512 };

/* ------------------------------------------------------------------ frames: ../../spawner.py has the other side */

enum {
    ORDER = 'o',   /* agent → shim: an Order, see order.c */
    KNOWN = 'k',   /* agent → spawner → shim: the end of that order is in the agent's ledger; its directory may be used again */
    STARTED = 's', /* shim → agent: StartedBody */
    ENDED = 'e',   /* shim → agent: EndedBody and the reason */
    TAKEN = 'c',   /* shim → agent: that attempt had a shim before, or another agent has come since */
    LOST = 'd',    /* spawner → agent: the shim died without saying how its attempt ended */
};

typedef struct { /* little endian, `length` counts it too */
    uint32_t length;
    uint32_t kind;
    uint64_t id; /* which order: the agent's number */
} Head;

typedef struct {
    uint32_t shim;
    uint32_t task; /* pid of its first process, which leads its session */
    uint64_t shim_start;
    double at;
} StartedBody;

typedef struct {
    int32_t exit_code; /* -1: it had none */
    uint8_t succeeded;
    uint8_t silent; /* it left nothing: neither output nor files */
    uint16_t reason_length;
} EndedBody;

/* Bytes that come in, until a frame is whole. */
typedef struct {
    char *bytes;
    size_t used, size;
} Buffer;

ssize_t buffer_fill(Buffer *buffer, int from); /* as read(2) */
Head *buffer_frame(Buffer *buffer, size_t at); /* the whole frame there; NULL: not yet */
void buffer_drop(Buffer *buffer, size_t bytes);
void buffer_add(Buffer *buffer, const void *bytes, size_t count);
bool send_all(int to, const void *bytes, size_t count); /* false: nobody listens any more */

/* ------------------------------------------------------------------ orders */

typedef struct {
    uint64_t id;
    uint64_t generation;   /* of the lease under which it was given */
    int64_t time_limit_ns; /* -1: none */
    int64_t grace_ns;
    int64_t log_bytes;
    int32_t uid, gid; /* -1: the agent's own */
    uint32_t group_count;
    const uint32_t *groups;
    char *name;       /* of its directory below TASKS */
    char *workdir;    /* "": its own */
    char *executable; /* "": searched for in its PATH */
    char *cgroup;     /* of all tasks, below which a shim makes its own; "": none */
    char *notes;      /* for its stderr, before its own */
    uint32_t limit_count;
    char **limits; /* file of the cgroup, value, file, value … */
    char **argv;
    char **env;
} Order;

void order_read(Order *order, Head *head); /* points into the frame */
void order_free(Order *order);

/* ------------------------------------------------------------------ places: an attempt's directory and its files */

typedef struct {
    int directory, life, out, error, work;
    int32_t uid;
    char name[NAME_BYTES]; /* what it is called now; "": there is none */
    size_t life_used;
} Place;

enum { CLAIMED, TAKEN_BEFORE, NO_PLACE }; /* NO_PLACE: errno says why */
int place_claim(Place *place, const Order *order, mode_t mode, uint64_t start_time);
void place_write(Place *place, const char *line); /* until it is written */
void place_sync(Place *place);
bool place_is_untouched(const Place *place);
void place_leave(Place *place);  /* it stays for whoever reads it */
void place_remove(Place *place); /* and its files */
void place_trim(const Place *place, int64_t log_bytes);
bool place_stop(const Place *place, int64_t *grace_ns, char *reason);

/* ------------------------------------------------------------------ groups: a shim's cgroup */

enum { PATH_BYTES = 4096 };

typedef struct {
    char path[PATH_BYTES]; /* "": none */
    int directory;
    bool is_limited;                /* as the order asked; if not, errno of group_take says why */
    char limits[2 * NAME_BYTES]; /* that are set, in words */
} Group;

bool group_take(Group *group, const Order *order, uint64_t start_time); /* errno */
void group_leave(Group *group);

/* ------------------------------------------------------------------ tasks and their trees */

typedef struct {
    pid_t pid;
    bool exec_known;
    int exec_errno; /* 0: it runs */
    char exec_subject[NAME_BYTES];
} Task;

void task_prepare(void); /* once in every shim */
/* False: could not even be forked; exec_errno and exec_subject say why. Waits up to a second for exec. */
bool task_begin(Task *task, const Order *order, const Place *place, const Group *group);
void task_look(Task *task); /* whether exec is known to have succeeded or failed by now */

void tree_signal(int number, const Group *group);
/* SIGKILL to our children and all of theirs, but for those that stay; whether there was anybody: then another look is due. */
bool tree_end_others(bool (*stays)(pid_t));
bool write_file(const char *path, const char *text); /* errno */

/* ------------------------------------------------------------------ the rest */

_Noreturn void shim_live(const unsigned long descriptors[2]);
int64_t now_ns(void); /* since boot, sleep included: the lease's clock */
double wall_s(void);
int64_t lease_deadline(void);
uint64_t lease_generation(void); /* of the lease now */
uint64_t own_start_time(void);

#endif
