/* Frames on a stream: filling a buffer, finding whole ones, sending. Memory that is not there ends the process: nothing here can go on
 * without it, and every caller is made to be killed. */

#define _GNU_SOURCE
#include "shim.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { READ_BYTES = 1 << 16, MOST_KEPT = 1 << 18 };

static void room(Buffer *buffer, size_t more) {
    if (buffer->used + more <= buffer->size) return;
    buffer->size = 2 * (buffer->used + more);
    buffer->bytes = realloc(buffer->bytes, buffer->size);
    if (buffer->bytes == NULL) abort();
}

ssize_t buffer_fill(Buffer *buffer, int from) {
    room(buffer, READ_BYTES);
    ssize_t got = read(from, buffer->bytes + buffer->used, buffer->size - buffer->used);
    if (got > 0) buffer->used += (size_t)got;
    return got;
}

Head *buffer_frame(Buffer *buffer, size_t at) {
    if (buffer->used < at + sizeof(Head)) return NULL;
    Head *head = (Head *)(buffer->bytes + at);
    if (head->length < sizeof(Head) || head->length % 8) abort(); /* not our agent: better dead than guessing */
    return buffer->used < at + head->length ? NULL : head;
}

void buffer_drop(Buffer *buffer, size_t bytes) {
    buffer->used -= bytes;
    memmove(buffer->bytes, buffer->bytes + bytes, buffer->used);
    if (buffer->used == 0 && buffer->size > MOST_KEPT) {
        free(buffer->bytes);
        *buffer = (Buffer){0};
    }
}

void buffer_add(Buffer *buffer, const void *bytes, size_t count) {
    room(buffer, count);
    memcpy(buffer->bytes + buffer->used, bytes, count);
    buffer->used += count;
}

bool send_all(int to, const void *bytes, size_t count) {
    const char *next = bytes;
    while (count > 0) {
        ssize_t sent = send(to, next, count, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0) return false;
        next += sent;
        count -= (size_t)sent;
    }
    return true;
}
