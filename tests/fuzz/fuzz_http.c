/* fuzz_http.c: arbitrary bytes as HTTP requests to the pages of a server, through libmicrohttpd and
 * all of server/web. The first byte of an input says how many of the next ones are a text from
 * outside: the names, agents and reasons of the report. The rest is what a client sends.
 *
 * The library's start function is replaced. Its daemon then has no listener and no thread, takes
 * one end of a pair of sockets for each input, and runs step by step. Whatever comes, an answer of
 * ours has the headers that bind a browser, a report is well-formed JSON, and metrics are lines
 * that a scraper takes. */
#include "proto/base/json_tree.h"
#include "proto/base/utf8.h"
#include "server/web/web.h"

#include <arpa/inet.h>
#include <assert.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ANSWER_BYTES = 1 << 20, STEPS_MAX = 10000 };

static struct MHD_Daemon *daemon_of_all;
static char outside[257]; /* the text from outside */

/* -- the library without a listener */

typedef struct MHD_Daemon *start_function(unsigned flags, uint16_t port,
                                          MHD_AcceptPolicyCallback accept, void *accept_context,
                                          MHD_AccessHandlerCallback handler, void *context, ...);

struct MHD_Daemon *MHD_start_daemon(unsigned flags, uint16_t port, MHD_AcceptPolicyCallback accept,
                                    void *accept_context, MHD_AccessHandlerCallback handler,
                                    void *context, ...) {
    start_function *start;
    void *found = dlsym(RTLD_NEXT, "MHD_start_daemon");
    assert(found);
    memcpy(&start, &found, sizeof start);
    (void)flags;
    daemon_of_all = start(MHD_USE_NO_LISTEN_SOCKET, port, accept, accept_context, handler, context,
                          MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)(16 << 10),
                          MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_END);
    return daemon_of_all;
}

/* -- the server behind the pages */

static fm_web_report *make_report(void *context) {
    (void)context;
    fm_web_report *report = calloc(1, sizeof *report);
    assert(report);
    report->value = calloc(1, sizeof report->value[0]);
    report->stream = calloc(1, sizeof report->stream[0]);
    report->consumer = calloc(1, sizeof report->consumer[0]);
    report->snapshot = calloc(1, sizeof report->snapshot[0]);
    assert(report->value && report->stream && report->consumer && report->snapshot);
    report->n_value = report->n_stream = report->n_consumer = report->n_snapshot = 1;
    report->value[0] = (fm_report_value){"connections", "Connections that are open.", true, 2};
    snprintf(report->stream[0].peer, sizeof report->stream[0].peer, "%s", outside);
    snprintf(report->stream[0].agent, sizeof report->stream[0].agent, "%s", outside);
    snprintf(report->stream[0].plan, sizeof report->stream[0].plan, "%s", outside);
    snprintf(report->consumer[0].peer, sizeof report->consumer[0].peer, "%s", outside);
    snprintf(report->consumer[0].agent, sizeof report->consumer[0].agent, "%s", outside);
    snprintf(report->snapshot[0].name, sizeof report->snapshot[0].name, "%s", outside);
    report->n_slow = report->n_refused = 1;
    snprintf(report->slow[0].chain, sizeof report->slow[0].chain, "%s", outside);
    snprintf(report->refused[0].chain, sizeof report->refused[0].chain, "%s", outside);
    snprintf(report->refused[0].reason, sizeof report->refused[0].reason, "%s", outside);
    return report;
}

static void start_once(void) {
    const fm_web_site site = {.report = make_report};
    fm_web *web;
    fm_error error;
    if (!daemon_of_all && fm_web_start("127.0.0.1:0", false, &site, &web, &error)) abort();
}

/* -- answers */

static void check_metrics(const char *body) {
    while (*body) {
        size_t line = strcspn(body, "\n");
        assert(body[line] == '\n');
        assert(strncmp(body, "# ", 2) == 0 || strncmp(body, "foldmill_", 9) == 0);
        for (size_t at = 0, n; at < line; at += n) {
            n = fm_utf8_size((const uint8_t *)body + at, line - at);
            assert(n);
        }
        body += line + 1;
    }
}

/* Checks the first answer; others follow it where a client has sent several requests. */
static void check(char *answer) {
    if (!*answer) return;
    assert(strncmp(answer, "HTTP/1.", 7) == 0);
    char *end = strstr(answer, "\r\n\r\n");
    if (!end || strncmp(answer + 8, " 200", 4) != 0) return;
    *end = '\0';
    assert(strstr(answer, "Content-Security-Policy: default-src 'none'"));
    assert(strstr(answer, "X-Content-Type-Options: nosniff"));
    const char *length = strstr(answer, "Content-Length: ");
    char *body = end + 4;
    size_t bytes = length ? strtoul(length + 16, NULL, 10) : 0;
    if (!length || strlen(body) < bytes) return; /* HEAD, or the client has left */
    body[bytes] = '\0';
    if (strstr(answer, "application/json")) {
        fm_json *tree = fm_json_parse(body, bytes);
        assert(fm_json_is_object(tree));
        fm_json_free(tree);
    } else if (strstr(answer, "version=0.0.4")) {
        check_metrics(body);
    }
}

/* Runs the daemon until the connection is over, or nothing happens any more. */
static void run(int client) {
    static char answer[ANSWER_BYTES];
    size_t got = 0;
    for (int i = 0, idle = 0; i < STEPS_MAX && idle < 3; i++) {
        MHD_run(daemon_of_all);
        ssize_t n = recv(client, answer + got, sizeof answer - 1 - got, MSG_DONTWAIT);
        if (n == 0) break;
        idle = n < 0 ? idle + 1 : 0;
        got += n > 0 ? (size_t)n : 0;
    }
    answer[got] = '\0';
    check(answer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    start_once();
    size_t n = size ? data[0] : 0;
    if (n >= size) return 0;
    memcpy(outside, data + 1, n);
    outside[n] = '\0';
    int pair[2];
    const struct sockaddr_in peer = {.sin_family = AF_INET,
                                     .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair)) abort();
    ssize_t sent = send(pair[0], data + 1 + n, size - 1 - n, MSG_NOSIGNAL);
    (void)sent; /* an input that does not fit the socket is cut */
    shutdown(pair[0], SHUT_WR);
    if (MHD_add_connection(daemon_of_all, pair[1], (const struct sockaddr *)&peer, sizeof peer) ==
        MHD_YES) {
        run(pair[0]);
    }
    close(pair[0]);
    MHD_run(daemon_of_all);
    MHD_run(daemon_of_all);
    return 0;
}
