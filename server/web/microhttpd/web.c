/* web.c: web.h on libmicrohttpd; the only file that includes it. */
#include "server/web/web.h"

#include "proto/address.h"
#include "proto/base/histogram.h"
#include "server/web/page_files.h"

#include <arpa/inet.h>
#include <assert.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    N_CONNECTION = 32,
    N_CONNECTION_OF_PEER = 16,
    TIMEOUT_S = 5,      /* a client that sends and reads nothing for so long is disconnected */
    REQUEST_MS = 20000, /* so is one that takes longer for a request and its answer */
    LOOK_MS = 200,      /* between two looks at the connections */
    REQUEST_BYTES = 16 << 10,    /* a request line and its headers */
    REPORT_BYTES_MAX = 64 << 20, /* a report of more streams than this is cut off with 500 */
};

/* A connection. The library limits its silence only. A client that sends one byte of its request
 * every few seconds would keep its connection for hours, and a few such clients would keep all. */
typedef struct visit {
    bool is_used;
    int fd;
    uint64_t begun_ns; /* the connection, or the end of the answer before */
} visit;

struct fm_web {
    fm_web_site site;
    struct MHD_Daemon *daemon;
    pthread_t watcher;
    bool is_watching;
    pthread_mutex_t lock;
    pthread_cond_t ending;
    /* Under the lock. */
    bool is_ending;
    visit visits[N_CONNECTION];
    bool is_loopback;
    char url[FM_ADDRESS_TEXT_BYTES + 16];
};

typedef enum MHD_Result (*page_handler)(fm_web *web, struct MHD_Connection *connection);

/* -- answers */

/* Headers that every answer has: nothing may run, load or embed but what this listener serves. */
static const struct {
    const char *name, *value;
} common_headers[] = {
    {"Content-Security-Policy",
     "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
     "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
    {"X-Content-Type-Options", "nosniff"},
    {"Referrer-Policy", "no-referrer"},
    {"Cross-Origin-Resource-Policy", "same-origin"},
    {"Cache-Control", "no-store"},
};

/* Sends `text`, which `mode` says who frees. */
static enum MHD_Result answer(struct MHD_Connection *connection, unsigned status, const char *type,
                              char *text, size_t bytes, enum MHD_ResponseMemoryMode mode) {
    struct MHD_Response *response = MHD_create_response_from_buffer(bytes, text, mode);
    if (!response) {
        if (mode == MHD_RESPMEM_MUST_FREE) free(text);
        return MHD_NO;
    }
    bool is_complete = MHD_add_response_header(response, "Content-Type", type) == MHD_YES;
    for (size_t i = 0; i < sizeof common_headers / sizeof common_headers[0]; i++) {
        is_complete = MHD_add_response_header(response, common_headers[i].name,
                                              common_headers[i].value) == MHD_YES &&
                      is_complete;
    }
    if (status == MHD_HTTP_METHOD_NOT_ALLOWED) {
        is_complete =
            MHD_add_response_header(response, "Allow", "GET, HEAD") == MHD_YES && is_complete;
    }
    if (status == MHD_HTTP_BAD_REQUEST) { /* what follows on this connection is not believed */
        is_complete =
            MHD_add_response_header(response, "Connection", "close") == MHD_YES && is_complete;
    }
    enum MHD_Result result =
        is_complete ? MHD_queue_response(connection, status, response) : MHD_NO;
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result answer_line(struct MHD_Connection *connection, unsigned status,
                                   const char *line) {
    return answer(connection, status, "text/plain; charset=utf-8", (char *)(uintptr_t)line,
                  strlen(line), MHD_RESPMEM_PERSISTENT);
}

static enum MHD_Result answer_busy(struct MHD_Connection *connection) {
    return answer_line(connection, MHD_HTTP_SERVICE_UNAVAILABLE,
                       "the server did not answer in time\n");
}

/* -- pages */

static enum MHD_Result answer_report(fm_web *web, struct MHD_Connection *connection,
                                     const char *type,
                                     void (*write)(const fm_web_report *report, FILE *out)) {
    fm_web_report *report = web->site.report(web->site.context);
    if (!report) return answer_busy(connection);
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    bool failed = !out;
    if (out) {
        write(report, out);
        failed = ferror(out) != 0;
        failed = fclose(out) != 0 || failed;
    }
    fm_report_free(report);
    if (failed || bytes > REPORT_BYTES_MAX) {
        free(text);
        return answer_line(connection, MHD_HTTP_INTERNAL_SERVER_ERROR,
                           "no memory for the report\n");
    }
    return answer(connection, MHD_HTTP_OK, type, text, bytes, MHD_RESPMEM_MUST_FREE);
}

static enum MHD_Result serve_json(fm_web *web, struct MHD_Connection *connection) {
    return answer_report(web, connection, "application/json", fm_report_json);
}

static enum MHD_Result serve_metrics(fm_web *web, struct MHD_Connection *connection) {
    return answer_report(web, connection, "text/plain; version=0.0.4; charset=utf-8",
                         fm_report_metrics);
}

static enum MHD_Result serve_health(fm_web *web, struct MHD_Connection *connection) {
    fm_web_report *report = web->site.report(web->site.context);
    bool answers = report;
    fm_report_free(report);
    return answers ? answer_line(connection, MHD_HTTP_OK, "ok\n") : answer_busy(connection);
}

static enum MHD_Result serve_readiness(fm_web *web, struct MHD_Connection *connection) {
    fm_web_report *report = web->site.report(web->site.context);
    if (!report) return answer_busy(connection);
    bool is_ending = report->is_ending;
    fm_report_free(report);
    return is_ending ? answer_line(connection, MHD_HTTP_SERVICE_UNAVAILABLE, "stopping\n")
                     : answer_line(connection, MHD_HTTP_OK, "ready\n");
}

/* A path of the page that is a file, and one that is made. */
static const struct {
    const char *path, *type, *file;
    page_handler handler;
} routes[] = {
    {"/", "text/html; charset=utf-8", "page", NULL},
    {"/style.css", "text/css; charset=utf-8", "style", NULL},
    {"/script.js", "text/javascript; charset=utf-8", "script", NULL},
    {"/icon.svg", "image/svg+xml", "icon", NULL},
    {"/report.json", NULL, NULL, serve_json},
    {"/metrics", NULL, NULL, serve_metrics},
    {"/healthz", NULL, NULL, serve_health},
    {"/readyz", NULL, NULL, serve_readiness},
};

static enum MHD_Result serve_file(struct MHD_Connection *connection, const char *type,
                                  const char *name) {
    const fm_page_file *file = fm_page_files;
    while (file->name && strcmp(file->name, name) != 0)
        file++;
    assert(file->name);
    return answer(connection, MHD_HTTP_OK, type, (char *)(uintptr_t)file->text, strlen(file->text),
                  MHD_RESPMEM_PERSISTENT);
}

/* -- requests */

/* True when the Host header names this host itself: a page of another site that had its name
 * pointed at 127.0.0.1 sends that name. */
static bool is_host_local(struct MHD_Connection *connection) {
    const char *host = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Host");
    if (!host) return true; /* HTTP/1.0; browsers always send one */
    static const char *const names[] = {"localhost", "127.0.0.1", "[::1]", "[::ffff:127.0.0.1]",
                                        "[::ffff:7f00:1]"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        size_t size = strlen(names[i]);
        if (strncasecmp(host, names[i], size) != 0) continue;
        const char *port = host + size + (host[size] == ':');
        if (!port[strspn(port, "0123456789")] && (port > host + size || !*port)) return true;
    }
    return false;
}

/* How often a request has the headers that say where it ends and for whom it is. */
typedef struct framing {
    uint32_t n_host, n_length, n_encoding;
    bool has_odd_host; /* with a byte that no name has */
} framing;

static enum MHD_Result count_header(void *context, enum MHD_ValueKind kind, const char *name,
                                    size_t name_bytes, const char *value, size_t value_bytes) {
    (void)kind;
    (void)name_bytes;
    framing *found = context;
    found->n_length += strcasecmp(name, "Content-Length") == 0;
    found->n_encoding += strcasecmp(name, "Transfer-Encoding") == 0;
    if (strcasecmp(name, "Host") != 0) return MHD_YES;
    found->n_host++;
    for (size_t i = 0; i < value_bytes; i++)
        found->has_odd_host |= (unsigned char)value[i] <= ' ' || value[i] == 127;
    return MHD_YES;
}

/* False for a request that two programs may read differently: where it ends, or for whom it is. A
 * proxy in front could otherwise be made to take a part of it for another request. */
static bool is_clear(struct MHD_Connection *connection) {
    framing found = {0};
    MHD_get_connection_values_n(connection, MHD_HEADER_KIND, count_header, &found);
    return found.n_host <= 1 && found.n_length + found.n_encoding <= 1 && !found.has_odd_host;
}

static enum MHD_Result on_request(void *context, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *upload,
                                  size_t *upload_bytes, void **state) {
    (void)version;
    (void)upload;
    fm_web *web = context;
    static char seen;
    if (!*state) { /* the first call comes before the body of the request, if it has one */
        *state = &seen;
        if (is_clear(connection)) return MHD_YES;
        return answer_line(connection, MHD_HTTP_BAD_REQUEST,
                           "a request has one Host and one length\n");
    }
    if (*upload_bytes) { /* a body has no use here */
        *upload_bytes = 0;
        return MHD_YES;
    }
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0) {
        return answer_line(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET is served here\n");
    }
    if (web->is_loopback && !is_host_local(connection)) {
        return answer_line(connection, MHD_HTTP_MISDIRECTED_REQUEST,
                           "this page is served under the name localhost only\n");
    }
    for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++) {
        if (strcmp(url, routes[i].path) != 0) continue;
        return routes[i].handler ? routes[i].handler(web, connection)
                                 : serve_file(connection, routes[i].type, routes[i].file);
    }
    return answer_line(connection, MHD_HTTP_NOT_FOUND,
                       "not found; there are /, /report.json, /metrics, /healthz and /readyz\n");
}

/* -- connections that take too long */

static void on_connection(void *context, struct MHD_Connection *connection, void **visited,
                          enum MHD_ConnectionNotificationCode what) {
    fm_web *web = context;
    pthread_mutex_lock(&web->lock);
    if (what == MHD_CONNECTION_NOTIFY_CLOSED && *visited) {
        ((visit *)*visited)->is_used = false; /* the descriptor is still open */
    } else if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
        visit *free = web->visits, *end = free + N_CONNECTION;
        while (free < end && free->is_used)
            free++;
        if (info && free < end) {
            *free = (visit){true, info->connect_fd, fm_clock_ns()};
            *visited = free;
        }
    }
    pthread_mutex_unlock(&web->lock);
}

static void on_answered(void *context, struct MHD_Connection *connection, void **state,
                        enum MHD_RequestTerminationCode code) {
    (void)state;
    (void)code;
    fm_web *web = context;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    if (!info || !info->socket_context) return;
    pthread_mutex_lock(&web->lock);
    ((visit *)info->socket_context)->begun_ns = fm_clock_ns();
    pthread_mutex_unlock(&web->lock);
}

/* Ends the connections that take too long; the library sees them end and closes them. Lock held. */
static void end_late(fm_web *web) {
    uint64_t most_ms = web->site.request_ms ? web->site.request_ms : REQUEST_MS;
    uint64_t now_ns = fm_clock_ns();
    for (int i = 0; i < N_CONNECTION; i++) {
        const visit *one = &web->visits[i];
        bool is_late = one->is_used && now_ns - one->begun_ns > most_ms * 1000000;
        if (is_late) shutdown(one->fd, SHUT_RDWR);
    }
}

static void *watch(void *argument) {
    fm_web *web = argument;
    pthread_mutex_lock(&web->lock);
    while (!web->is_ending) {
        struct timespec until;
        end_late(web);
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += LOOK_MS * 1000000L;
        until.tv_sec += until.tv_nsec / 1000000000L;
        until.tv_nsec %= 1000000000L;
        (void)pthread_cond_timedwait(&web->ending, &web->lock, &until);
    }
    pthread_mutex_unlock(&web->lock);
    return NULL;
}

/* The watcher has all signals blocked, since the loop handles them. */
static bool start_watcher(fm_web *web) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    web->is_watching = pthread_create(&web->watcher, NULL, watch, web) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return web->is_watching;
}

static void stop_watcher(fm_web *web) {
    if (!web->is_watching) return;
    pthread_mutex_lock(&web->lock);
    web->is_ending = true;
    pthread_cond_signal(&web->ending);
    pthread_mutex_unlock(&web->lock);
    pthread_join(web->watcher, NULL);
}

static fm_web *make_web(const fm_web_site *site) {
    fm_web *web = calloc(1, sizeof *web);
    if (!web) return NULL;
    web->site = *site;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&web->lock, NULL);
    pthread_cond_init(&web->ending, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return web;
}

static void free_web(fm_web *web) {
    pthread_cond_destroy(&web->ending);
    pthread_mutex_destroy(&web->lock);
    free(web);
}

/* -- starting and stopping */

/* The library prints its own errors otherwise. */
static void on_library_error(void *context, const char *format, va_list arguments) {
    (void)context;
    (void)format;
    (void)arguments;
}

/* Stopping alone would shut the listening socket down, also for a service manager that keeps it for
 * the next server. */
static void stop_daemon(fm_web *web) {
    MHD_socket listening = MHD_quiesce_daemon(web->daemon);
    MHD_stop_daemon(web->daemon);
    if (listening != MHD_INVALID_SOCKET) close(listening);
}

static fm_status start_daemon(fm_web *web, int listening, fm_error *reterr) {
    web->daemon = MHD_start_daemon(
        MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_EPOLL | MHD_USE_ERROR_LOG | MHD_USE_ITC, 0, NULL,
        NULL, on_request, web, MHD_OPTION_EXTERNAL_LOGGER, on_library_error, NULL,
        MHD_OPTION_LISTEN_SOCKET, listening, MHD_OPTION_CONNECTION_LIMIT, (unsigned)N_CONNECTION,
        MHD_OPTION_PER_IP_CONNECTION_LIMIT, (unsigned)N_CONNECTION_OF_PEER,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)TIMEOUT_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)REQUEST_BYTES, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_NOTIFY_CONNECTION,
        on_connection, web, MHD_OPTION_NOTIFY_COMPLETED, on_answered, web, MHD_OPTION_END);
    if (!web->daemon) close(listening);
    if (web->daemon && start_watcher(web)) return FM_OK;
    if (web->daemon) stop_daemon(web);
    return fm_fail(reterr, FM_ERR_IO, "cannot start the HTTP listener");
}

fm_status fm_web_start_on(int listening, const fm_address *bound, const fm_web_site *site,
                          fm_web **ret_web, fm_error *reterr) {
    char text[FM_ADDRESS_TEXT_BYTES];
    fm_web *web = make_web(site);
    if (!web) {
        close(listening);
        return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the HTTP listener");
    }
    web->is_loopback = fm_address_is_loopback(listening);
    fm_address_format(bound, text);
    snprintf(web->url, sizeof web->url, "http%s", strstr(text, "://"));
    fm_status status = start_daemon(web, listening, reterr);
    if (status) {
        free_web(web);
        return status;
    }
    *ret_web = web;
    return FM_OK;
}

fm_status fm_web_start(const char *address, bool is_insecure, const fm_web_site *site,
                       fm_web **ret_web, fm_error *reterr) {
    char text[FM_ADDRESS_TEXT_BYTES];
    int needed = snprintf(text, sizeof text, "tcp://%s", address);
    fm_address asked, bound;
    bool is_address = needed > 0 && (size_t)needed < sizeof text && !strstr(address, "://") &&
                      !fm_address_parse(text, &asked, NULL);
    if (!is_address) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "--http: found '%.100s', expected HOST:PORT, such as 127.0.0.1:7421",
                       address);
    }
    int listening;
    asked.is_insecure = is_insecure;
    fm_status status = fm_address_listen(&asked, &listening, &bound, reterr);
    if (status == FM_ERR_USAGE && !is_insecure) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "--http: %.100s is beyond this machine, and pages are not encrypted: listen "
                       "on 127.0.0.1 and use ssh -L, or add --insecure on a network that is "
                       "trusted as a whole",
                       address);
    }
    return status ? status : fm_web_start_on(listening, &bound, site, ret_web, reterr);
}

void fm_web_stop(fm_web *web) {
    if (!web) return;
    stop_watcher(web);
    stop_daemon(web);
    free_web(web);
}

const char *fm_web_get_url(const fm_web *web) {
    return web->url;
}
