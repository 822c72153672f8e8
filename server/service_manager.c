/* service_manager.c: see service_manager.h. */
#include "server/service_manager.h"

#include <assert.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum {
    FIRST_SOCKET = 3, /* descriptors before it are standard input, output and error */
    STATUS_MS = 10000,
    REPORT_BYTES = 256,
    OWED_BYTES = 2 * REPORT_BYTES,
};

struct fm_service_manager {
    int fd;
    struct sockaddr_un name;
    socklen_t name_bytes;
    uint64_t watchdog_ms; /* between two signs of life; 0 = no watchdog */
    bool has_ticked;
    uint64_t fed_ms, told_ms; /* the last WATCHDOG=1; the last STATUS= */
    fm_service_state told;    /* what that STATUS= told */
    char owed[OWED_BYTES];    /* states that could not be sent yet */
};

/* -- the environment */

/* Reads a number. False for a variable that is not set; *ret_value is UINT64_MAX for anything but
 * digits. */
static bool read_number(const char *variable, uint64_t *ret_value) {
    const char *text = getenv(variable);
    if (!text) return false;
    bool is_number = *text && strlen(text) < 19 && strspn(text, "0123456789") == strlen(text);
    *ret_value = is_number ? strtoull(text, NULL, 10) : UINT64_MAX;
    return true;
}

/* Is what `variable` announces meant for this process? A parent's variables may be inherited. */
static bool is_ours(const char *variable) {
    uint64_t pid;
    return read_number(variable, &pid) && pid == (uint64_t)getpid();
}

static fm_status fail_variable(const char *variable, const char *expected, fm_error *reterr) {
    return fm_fail(reterr, FM_ERR_USAGE, "%s is '%.100s', expected %s", variable, getenv(variable),
                   expected);
}

/* -- sockets that were handed over */

/* Copies the name at *at and moves *at behind it; an empty one where there are no more. */
static void next_name(const char **at, char out[32]) {
    size_t bytes = strcspn(*at, ":");
    snprintf(out, 32, "%.*s", (int)bytes, *at);
    *at += bytes + ((*at)[bytes] == ':');
}

static fm_status take_socket(int fd, const char *name, bool is_tls, bool is_insecure,
                             fm_service_sockets *sockets, fm_error *reterr) {
    bool is_http = strcmp(name, "http") == 0, is_data = strcmp(name, "data") == 0;
    fm_service_socket *one = is_http ? &sockets->http : &sockets->data[sockets->n_data];
    if (!(is_data || is_http) || one->fd) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "a socket that was handed over is called '%s', expected 'data', or once "
                       "'http' (FileDescriptorName= of a socket unit)",
                       name);
    }
    fm_status status = fm_address_adopt(fd, is_tls && is_data, is_insecure, &one->address, reterr);
    if (status) return status;
    if (is_http && one->address.kind == FM_ADDRESS_UNIX) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "the socket called 'http' is a Unix socket, expected "
                       "a TCP socket");
    }
    one->fd = fd;
    sockets->n_data += is_data;
    return FM_OK;
}

fm_status fm_service_take_sockets(bool is_tls, bool is_insecure, fm_service_sockets *ret_sockets,
                                  fm_error *reterr) {
    *ret_sockets = (fm_service_sockets){0};
    uint64_t n = 0;
    if (!is_ours("LISTEN_PID") || !read_number("LISTEN_FDS", &n)) return FM_OK;
    if (n > FM_SERVICE_N_SOCKET) {
        return fail_variable("LISTEN_FDS", "a number of sockets up to 8", reterr);
    }
    const char *names = getenv("LISTEN_FDNAMES");
    if (!names) names = "";
    fm_status status = FM_OK;
    for (int i = 0; !status && i < (int)n; i++) {
        char name[32];
        next_name(&names, name);
        status = take_socket(FIRST_SOCKET + i, name, is_tls, is_insecure, ret_sockets, reterr);
    }
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDS");
    unsetenv("LISTEN_FDNAMES");
    return status;
}

/* -- reporting */

/* A path, or "@NAME" for a socket without a file. */
static fm_status set_name(fm_service_manager *manager, const char *text, fm_error *reterr) {
    size_t bytes = strlen(text);
    bool is_fine = (text[0] == '/' || text[0] == '@') && text[1] != '\0';
    if (!is_fine || bytes >= sizeof manager->name.sun_path) {
        return fail_variable("NOTIFY_SOCKET", "the path of a socket, or @NAME", reterr);
    }
    manager->name.sun_family = AF_UNIX;
    memcpy(manager->name.sun_path, text, bytes);
    if (text[0] == '@') manager->name.sun_path[0] = '\0';
    manager->name_bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + bytes);
    return FM_OK;
}

static fm_status set_watchdog(fm_service_manager *manager, fm_error *reterr) {
    uint64_t us = 0;
    bool is_for_us = !getenv("WATCHDOG_PID") || is_ours("WATCHDOG_PID");
    if (!is_for_us || !read_number("WATCHDOG_USEC", &us)) return FM_OK;
    if (us == 0 || us == UINT64_MAX) {
        return fail_variable("WATCHDOG_USEC", "a number of microseconds", reterr);
    }
    manager->watchdog_ms = us / 2000 ? us / 2000 : 1; /* twice as often as is due */
    return FM_OK;
}

fm_status fm_service_manager_create(fm_service_manager **ret_manager, fm_error *reterr) {
    const char *name = getenv("NOTIFY_SOCKET");
    *ret_manager = NULL;
    if (!name) return FM_OK;
    fm_service_manager *manager = calloc(1, sizeof *manager);
    if (!manager) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for reports to systemd");
    manager->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    fm_status status = manager->fd >= 0
                           ? set_name(manager, name, reterr)
                           : fm_fail(reterr, FM_ERR_IO, "cannot make a socket for NOTIFY_SOCKET");
    if (!status) status = set_watchdog(manager, reterr);
    if (status) {
        fm_service_manager_destroy(manager);
        return status;
    }
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_PID");
    unsetenv("WATCHDOG_USEC");
    *ret_manager = manager;
    return FM_OK;
}

void fm_service_manager_destroy(fm_service_manager *manager) {
    if (!manager) return;
    if (manager->fd >= 0) close(manager->fd);
    free(manager);
}

static bool send_report(fm_service_manager *manager, const char *text) {
    size_t bytes = strlen(text);
    return sendto(manager->fd, text, bytes, MSG_NOSIGNAL | MSG_DONTWAIT,
                  (const struct sockaddr *)&manager->name, manager->name_bytes) == (ssize_t)bytes;
}

/* Sends the states that are owed, in their order; false when they still do not fit. */
static bool pay(fm_service_manager *manager) {
    if (manager->owed[0] && !send_report(manager, manager->owed)) return false;
    manager->owed[0] = '\0';
    return true;
}

/* Reports a change of state. A report may hold several states, of which the last one counts. So all
 * unsent states are one report, of which the newest part is kept. */
static void report_state(fm_service_manager *manager, const char *text) {
    if (!manager) return;
    size_t owed = strlen(manager->owed), more = strlen(text) + 1;
    assert(more < REPORT_BYTES);
    if (owed + more + 1 > sizeof manager->owed) owed = 0;
    snprintf(manager->owed + owed, sizeof manager->owed - owed, "%s\n", text);
    (void)pay(manager);
}

void fm_service_ready(fm_service_manager *manager) {
    report_state(manager, "READY=1");
}

void fm_service_reloading(fm_service_manager *manager) {
    struct timespec now;
    char text[REPORT_BYTES];
    clock_gettime(CLOCK_MONOTONIC, &now);
    snprintf(text, sizeof text, "RELOADING=1\nMONOTONIC_USEC=%llu",
             (unsigned long long)now.tv_sec * 1000000 + (unsigned long long)now.tv_nsec / 1000);
    report_state(manager, text);
}

void fm_service_stopping(fm_service_manager *manager) {
    report_state(manager, "STOPPING=1\nSTATUS=streams are told and end");
}

static void report_status(fm_service_manager *manager, const fm_service_state *state,
                          uint64_t now_ms) {
    double seconds = (double)(now_ms - manager->told_ms) * 1e-3;
    char text[REPORT_BYTES];
    snprintf(
        text, sizeof text,
        "STATUS=%llu connections, %llu streams, %.1f samples/s, %.1f MB/s, %llu samples in all",
        (unsigned long long)state->n_connection, (unsigned long long)state->n_stream,
        (double)(state->n_sample - manager->told.n_sample) / seconds,
        (double)(state->n_byte - manager->told.n_byte) / seconds * 1e-6,
        (unsigned long long)state->n_sample);
    (void)send_report(manager, text); /* the next one comes soon */
    manager->told = *state;
    manager->told_ms = now_ms;
}

void fm_service_tick(fm_service_manager *manager, const fm_service_state *state, uint64_t now_ms) {
    if (!manager) return;
    if (!manager->has_ticked) {
        manager->has_ticked = true;
        manager->fed_ms = manager->told_ms = now_ms;
        manager->told = *state;
    }
    (void)pay(manager);
    if (manager->watchdog_ms && now_ms - manager->fed_ms >= manager->watchdog_ms) {
        if (send_report(manager, "WATCHDOG=1")) manager->fed_ms = now_ms;
    }
    if (now_ms - manager->told_ms >= STATUS_MS) report_status(manager, state, now_ms);
}
