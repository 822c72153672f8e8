/* log.c: see log.h.
 *
 * How a line is written without waiting. O_NONBLOCK belongs to the open file, which standard error
 * shares with the shell and other programs, so it must not be set there. A pipe or a terminal is
 * opened a second time through /proc, which gives an open file of our own. A socket is sent to with
 * MSG_DONTWAIT. Where /proc refuses, poll asks before each write whether it would wait. */
#include "proto/base/log.h"

#include "proto/base/utf8.h"

#include <assert.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    LINE_BYTES = 2048, /* below PIPE_BUF, so that a pipe takes a line whole or not at all */
    N_EVENT = 64,      /* events with a rate of their own; more share the last one */
};

typedef enum output { OUTPUT_BLOCKING, OUTPUT_OPENED, OUTPUT_SOCKET, OUTPUT_POLLED } output;

/* What an event may still log in this second. */
typedef struct event_rate {
    const char *event; /* NULL: the row is free */
    uint64_t filled_ms;
    uint32_t left;
    uint64_t n_suppressed; /* since the last line that was written */
} event_rate;

static _Atomic int max_level = FM_LOG_INFO;
static _Atomic uint64_t n_dropped, n_suppressed;
static _Atomic bool is_dropping;

/* The rest is used only while is_dropping, and is guarded by `lock`. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static output out_kind;
static int out_fd = STDERR_FILENO;
static fm_log_rate rate;
static event_rate events[N_EVENT];
static uint64_t n_dropped_reported;

void fm_log_set_level(fm_log_level level) {
    atomic_store(&max_level, (int)level);
}

fm_log_losses fm_log_get_losses(void) {
    return (fm_log_losses){atomic_load(&n_dropped), atomic_load(&n_suppressed)};
}

/* -- lines */

static size_t put_time(char *out, size_t out_bytes) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    struct tm utc;
    gmtime_r(&now.tv_sec, &utc);
    size_t n = strftime(out, out_bytes, "%Y-%m-%dT%H:%M:%S", &utc);
    return n + (size_t)snprintf(out + n, out_bytes - n, ".%03ldZ", now.tv_nsec / 1000000);
}

/* Formats a line with its newline into line[LINE_BYTES]; returns its size. */
static size_t put_line(char *line, fm_log_level level, const char *event, const char *format,
                       va_list arguments) {
    static const char *const names[] = {"error", "warn", "info", "debug"};
    size_t room = LINE_BYTES - 1; /* for the newline */
    size_t at = put_time(line, room);
    at += (size_t)snprintf(line + at, room - at, " %s %s%s", names[level], event,
                           format[0] ? " " : "");
    if (at > room) at = room;
    int wanted = at < room ? vsnprintf(line + at, room - at, format, arguments) : 0;
    at += wanted < 0 ? 0 : (size_t)wanted;
    if (at > room - 1) at = room - 1;
    line[at++] = '\n';
    return at;
}

static size_t make_line(char *line, fm_log_level level, const char *event, const char *format, ...)
    FM_PRINTF(4, 5);

static size_t make_line(char *line, fm_log_level level, const char *event, const char *format,
                        ...) {
    va_list arguments;
    va_start(arguments, format);
    size_t bytes = put_line(line, level, event, format, arguments);
    va_end(arguments);
    return bytes;
}

/* -- dropping; the caller holds the lock */

static uint64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static event_rate *find_rate(const char *event) {
    size_t i = 0;
    while (i + 1 < N_EVENT && events[i].event && strcmp(events[i].event, event) != 0)
        i++;
    if (!events[i].event) {
        events[i] = (event_rate){.event = event, .filled_ms = now_ms(), .left = rate.burst};
    }
    return &events[i];
}

/* Takes one line from the event's rate; false when none is left. */
static bool may_log(event_rate *of) {
    if (rate.per_s == 0) return true;
    uint64_t now = now_ms(), earned = (now - of->filled_ms) * rate.per_s / 1000;
    if (earned) {
        of->filled_ms = now;
        of->left = earned < rate.burst - of->left ? of->left + (uint32_t)earned : rate.burst;
    }
    if (of->left == 0) return false;
    of->left--;
    return true;
}

static bool write_now(const char *line, size_t bytes) {
    if (out_kind == OUTPUT_SOCKET) {
        return send(out_fd, line, bytes, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)bytes;
    }
    struct pollfd writable = {.fd = out_fd, .events = POLLOUT};
    if (out_kind == OUTPUT_POLLED && poll(&writable, 1, 0) != 1) return false;
    return write(out_fd, line, bytes) == (ssize_t)bytes;
}

/* Reports the lines that were dropped before; false when that line does not fit either. */
static bool report_dropped(void) {
    char line[LINE_BYTES];
    uint64_t dropped = atomic_load(&n_dropped);
    if (dropped == n_dropped_reported) return true;
    size_t bytes = make_line(line, FM_LOG_WARN, "log_dropped", "lines=%llu",
                             (unsigned long long)(dropped - n_dropped_reported));
    if (!write_now(line, bytes)) return false;
    n_dropped_reported = dropped;
    return true;
}

static void log_or_drop(const char *event, char *line, size_t bytes) {
    pthread_mutex_lock(&lock);
    event_rate *of = find_rate(event);
    if (!may_log(of)) {
        of->n_suppressed++;
        atomic_fetch_add(&n_suppressed, 1);
    } else {
        if (of->n_suppressed && bytes + 40 < LINE_BYTES) {
            bytes--; /* the newline */
            bytes += (size_t)snprintf(line + bytes, LINE_BYTES - bytes, " suppressed=%llu\n",
                                      (unsigned long long)of->n_suppressed);
        }
        if (report_dropped() && write_now(line, bytes)) {
            of->n_suppressed = 0;
        } else {
            atomic_fetch_add(&n_dropped, 1);
        }
    }
    pthread_mutex_unlock(&lock);
}

static void choose_output(void) {
    struct stat about;
    out_fd = STDERR_FILENO;
    out_kind = OUTPUT_BLOCKING;
    if (fstat(STDERR_FILENO, &about) || S_ISREG(about.st_mode)) return;
    if (S_ISSOCK(about.st_mode)) {
        out_kind = OUTPUT_SOCKET;
        return;
    }
    int opened = open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    out_kind = opened >= 0 ? OUTPUT_OPENED : OUTPUT_POLLED;
    if (opened >= 0) out_fd = opened;
}

void fm_log_start_dropping(fm_log_rate new_rate) {
    pthread_mutex_lock(&lock);
    if (!atomic_load(&is_dropping)) choose_output();
    rate = new_rate;
    memset(events, 0, sizeof events);
    atomic_store(&is_dropping, true);
    pthread_mutex_unlock(&lock);
}

void fm_log(fm_log_level level, const char *event, const char *format, ...) {
    if ((int)level > atomic_load(&max_level)) return;
    char line[LINE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    size_t bytes = put_line(line, level, event, format, arguments);
    va_end(arguments);
    if (atomic_load(&is_dropping)) {
        log_or_drop(event, line, bytes);
        return;
    }
    ssize_t written = write(STDERR_FILENO, line, bytes);
    (void)written; /* a failure of the log cannot be logged */
}

/* -- values */

static bool is_plain(unsigned char c) {
    return c > 0x20 && c < 0x7f && c != '"' && c != '\\' && c != '=';
}

/* May a character of n bytes stand in a quoted value? Refused are controls (C0, DEL and C1), line
 * and paragraph separators, and the marks that change the direction of text: U+2028 to U+202E and
 * U+2066 to U+2069. */
static bool is_harmless(const unsigned char *at, size_t n) {
    if (n == 1) return at[0] >= 0x20 && at[0] != 0x7f;
    if (n == 2) return at[0] != 0xc2 || at[1] >= 0xa0;
    if (n != 3 || at[0] != 0xe2) return true;
    bool is_separator_or_mark = at[1] == 0x80 && at[2] >= 0xa8 && at[2] <= 0xae;
    bool is_isolate = at[1] == 0x81 && at[2] >= 0xa6 && at[2] <= 0xa9;
    return !is_separator_or_mark && !is_isolate;
}

/* Writes the character at `at` as it stands in a quoted value into out[17]; returns its bytes. */
static size_t quote_one(const unsigned char *at, size_t n, char *out) {
    if (at[0] == '"' || at[0] == '\\') {
        out[0] = '\\';
        out[1] = (char)at[0];
        return 2;
    }
    if (fm_utf8_size(at, n) == n && is_harmless(at, n)) {
        memcpy(out, at, n);
        return n;
    }
    size_t used = 0;
    for (size_t i = 0; i < n; i++)
        used += (size_t)snprintf(out + used, 5, "\\x%02x", at[i]);
    return used;
}

const char *fm_log_quote(char *out, size_t out_bytes, const char *text) {
    assert(out_bytes >= 8);
    bool plain = text[0] != '\0';
    for (const char *p = text; *p; p++)
        plain = plain && is_plain((unsigned char)*p);
    if (plain && strlen(text) < out_bytes) return memcpy(out, text, strlen(text) + 1);

    size_t at = 0;
    out[at++] = '"';
    const unsigned char *p = (const unsigned char *)text;
    for (size_t left = strlen(text), n; left; left -= n, p += n) {
        char piece[17];
        n = fm_utf8_size(p, left);
        if (n == 0) n = 1; /* a byte that is not text */
        size_t bytes = quote_one(p, n, piece);
        if (at + bytes + 5 > out_bytes) { /* room for ..." and the terminator */
            at += (size_t)snprintf(out + at, out_bytes - at, "...");
            break;
        }
        memcpy(out + at, piece, bytes);
        at += bytes;
    }
    out[at++] = '"';
    out[at] = '\0';
    return out;
}
