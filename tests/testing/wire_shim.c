/* wire_shim.c: a library to preload into the ranks of a run: the network between them fails.
 *
 * $FM_WIRE_FAULT says how, for all TCP connections of the rank whose number is $FM_WIRE_RANK, from
 * when the file $FM_WIRE_WHEN exists:
 *
 *     delay:MS      every send takes MS milliseconds longer
 *     cut           the connections end
 *     flip:LEAST    the first send of at least LEAST bytes has another bit in its middle, once
 *     half          what is sent is lost and nothing comes, but the connections stay open
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* dlsym returns a function as a data pointer. */
#define REAL(name)                                                                                 \
    static __typeof__(name) *real;                                                                 \
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, #name)

static enum { NOTHING, DELAY, CUT, FLIP, HALF } fault;
static long number; /* behind the colon */
static const char *when;
static atomic_bool has_flipped;

__attribute__((constructor)) static void read_environment(void) {
    static const struct {
        const char *name;
        int fault;
    } known[] = {{"delay:", DELAY}, {"cut", CUT}, {"flip:", FLIP}, {"half", HALF}};
    const char *text = getenv("FM_WIRE_FAULT"), *rank = getenv("FOLDMILL_RANK");
    const char *chosen = getenv("FM_WIRE_RANK");
    when = getenv("FM_WIRE_WHEN");
    if (!text || !rank || !chosen || !when || strcmp(rank, chosen) != 0) return;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const size_t n = strlen(known[i].name);
        if (strncmp(text, known[i].name, n) != 0) continue;
        fault = known[i].fault;
        number = strtol(text + n, NULL, 10);
    }
}

/* Whether the fault holds for this connection now. */
static bool is_due(int fd) {
    struct sockaddr_storage at;
    socklen_t bytes = sizeof at;
    if (fault == NOTHING || access(when, F_OK) != 0) return false;
    return getsockname(fd, (struct sockaddr *)&at, &bytes) == 0 &&
           (at.ss_family == AF_INET || at.ss_family == AF_INET6);
}

static void pause_ms(long ms) {
    const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

ssize_t send(int fd, const void *data, size_t bytes, int flags) {
    REAL(send);
    if (!is_due(fd)) return real(fd, data, bytes, flags);
    if (fault == HALF) return (ssize_t)bytes;
    if (fault == DELAY) pause_ms(number);
    if (fault == CUT) shutdown(fd, SHUT_RDWR);
    if (fault != FLIP || (long)bytes < number || atomic_exchange(&has_flipped, true)) {
        return real(fd, data, bytes, flags);
    }
    unsigned char *copy = malloc(bytes);
    if (!copy) abort();
    memcpy(copy, data, bytes);
    copy[bytes / 2] ^= 16;
    const ssize_t sent = real(fd, copy, bytes, flags);
    /* What the network has not taken is sent again, with the right bit. */
    if (sent <= (ssize_t)(bytes / 2)) atomic_store(&has_flipped, false);
    free(copy);
    return sent;
}

ssize_t recv(int fd, void *data, size_t bytes, int flags) {
    REAL(recv);
    if (fault != HALF || !is_due(fd)) return real(fd, data, bytes, flags);
    pause_ms(10); /* poll says at once that something has come */
    errno = EAGAIN;
    return -1;
}
