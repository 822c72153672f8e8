/* log.c: see log.h. */
#include "proto/base/log.h"

#include <assert.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LINE_BYTES = 2048 };

static _Atomic int max_level = FM_LOG_INFO;

void fm_log_set_level(fm_log_level level) {
    atomic_store(&max_level, (int)level);
}

static size_t put_time(char *out, size_t out_bytes) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    struct tm utc;
    gmtime_r(&now.tv_sec, &utc);
    size_t n = strftime(out, out_bytes, "%Y-%m-%dT%H:%M:%S", &utc);
    return n + (size_t)snprintf(out + n, out_bytes - n, ".%03ldZ", now.tv_nsec / 1000000);
}

void fm_log(fm_log_level level, const char *event, const char *format, ...) {
    static const char *const names[] = {"error", "warn", "info", "debug"};
    if ((int)level > atomic_load(&max_level)) return;
    char line[LINE_BYTES];
    size_t room = sizeof line - 1; /* for the newline */
    size_t at = put_time(line, room);
    at += (size_t)snprintf(line + at, room - at, " %s %s%s", names[level], event,
                           format[0] ? " " : "");
    if (at > room) at = room;
    va_list arguments;
    va_start(arguments, format);
    int wanted = at < room ? vsnprintf(line + at, room - at, format, arguments) : 0;
    va_end(arguments);
    at += wanted < 0 ? 0 : (size_t)wanted;
    if (at > room - 1) at = room - 1;
    line[at++] = '\n';
    ssize_t written = write(STDERR_FILENO, line, at);
    (void)written; /* a failure of the log cannot be logged */
}

static bool is_plain(unsigned char c) {
    return c > 0x20 && c < 0x7f && c != '"' && c != '\\' && c != '=';
}

const char *fm_log_quote(char *out, size_t out_bytes, const char *text) {
    assert(out_bytes >= 8);
    bool plain = text[0] != '\0';
    for (const char *p = text; *p; p++)
        plain = plain && is_plain((unsigned char)*p);
    if (plain && strlen(text) < out_bytes) return memcpy(out, text, strlen(text) + 1);

    size_t at = 0;
    out[at++] = '"';
    for (const char *p = text; *p; p++) {
        unsigned char c = (unsigned char)*p;
        if (at + 4 + 5 > out_bytes) { /* room for an escape, ..." and the terminator */
            at += (size_t)snprintf(out + at, out_bytes - at, "...");
            break;
        }
        if (c == '"' || c == '\\') {
            out[at++] = '\\';
            out[at++] = (char)c;
        } else if (c < 0x20 || c == 0x7f) {
            at += (size_t)snprintf(out + at, out_bytes - at, "\\x%02x", c);
        } else {
            out[at++] = (char)c;
        }
    }
    out[at++] = '"';
    out[at] = '\0';
    return out;
}
