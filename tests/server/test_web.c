/* The HTTP listener with a made-up server behind it: documents, headers, methods, names, limits and
 * hostile requests; the page in a real browser. */
#include "proto/address.h"
#include "server/web/web.h"
#include "tests/testing/testing.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

typedef struct fake_server {
    _Atomic bool is_hung, is_ending;
    _Atomic uint32_t n_asked;
} fake_server;

static fake_server server;
static fm_web *web;
static char folder[200];

static void fill(fm_web_report *report) {
    strcpy(report->version, "0.1.0");
    static const fm_report_snapshot snapshots[] = {
        {.name = "train", .generation = 3, .n_chain = 22},
        {.name = "pdb/all", .generation = 1, .n_chain = 7},
        {.name = "train", .generation = 2, .is_old = true}};
    memcpy(report->snapshot, snapshots, sizeof snapshots);
    report->n_snapshot = 3;
    report->uptime_s = 3725;
    report->memory_limit_bytes = (uint64_t)2 << 30;
    for (uint32_t i = 0; i < 300; i++) {
        report->second[i] = (fm_report_second){40 + i * 7 % 13, 40000000, 50000000 + i * 1000};
        fm_histogram_add(&report->times.prepare, 9000000 + i * 100000);
        fm_histogram_add(&report->times.wait, 200000 + i * 1000);
    }
    report->n_second = 300;
    for (uint32_t i = 0; i < 2; i++) {
        fm_report_stream *stream = &report->stream[i];
        *stream = (fm_report_stream){.connection = 7 + i,
                                     .stream = 1,
                                     .group = i,
                                     .n_group = 2,
                                     .window = i * 8,
                                     .n_sample = 1000 + i,
                                     .n_total = UINT64_MAX,
                                     .n_byte = 3000000000,
                                     .credit_items = i * 4,
                                     .n_pending = 2,
                                     .wait_p50_ns = 150000,
                                     .wait_p99_ns = 900000,
                                     .age_s = 600};
        strcpy(stream->peer, "192.0.2.7");
        strcpy(stream->agent, "<img src=x onerror=alert(1)>");
        strcpy(stream->plan, "af2-initial");
        strcpy(stream->snapshot, "pdb/all");
    }
    for (uint32_t i = 0; i < 2; i++) {
        fm_report_consumer *one = &report->consumer[i];
        *one = (fm_report_consumer){
            .n_stream = i, .n_sample = 300 + i, .n_byte = 5000000, .n_failed = i};
        strcpy(one->peer, i ? "token:lab\"\\" : "192.0.2.7");
        strcpy(one->agent, i ? "a\nb" : "<img src=x onerror=alert(1)>");
        one->times = report->times;
        fm_histogram_add(&one->times.send, 7000000);
    }
    report->n_slow = 1;
    report->slow[0] = (fm_report_slow){"1abc_A", 12, 81000000};
    report->n_refused = 3;
    report->refused[0] = (fm_report_refusal){"2xyz_B", "the hash is wrong", 99, 5};
    report->refused[1] = (fm_report_refusal){"3abc_C", "the hash is wrong", 98, 6};
    report->refused[2] = (fm_report_refusal){"2xyz_B", "the hash is wrong", 99, 7};
}

static fm_web_report *make_report(void *context) {
    static const fm_report_value values[] = {
        {"connections", "Connections that are open.", true, 2},
        {"samples_sent_total", "Samples that were sent.", false, 2001},
        {"samples_failed_total", "Samples that could not be made.", false, 1},
        {"sample_memory_bytes", "Memory of samples.", true, 50000000}};
    fake_server *asked = context;
    atomic_fetch_add(&asked->n_asked, 1);
    if (atomic_load(&asked->is_hung)) return NULL;
    fm_web_report *report = calloc(1, sizeof *report);
    assert_non_null(report);
    report->n_value = sizeof values / sizeof values[0];
    report->value = malloc(sizeof values);
    report->n_consumer = 2;
    report->consumer = calloc(2, sizeof report->consumer[0]);
    assert_non_null(report->consumer);
    report->snapshot = calloc(3, sizeof report->snapshot[0]);
    assert_non_null(report->snapshot);
    report->n_stream = 2;
    report->stream = calloc(2, sizeof report->stream[0]);
    assert_non_null(report->value);
    assert_non_null(report->stream);
    memcpy(report->value, values, sizeof values);
    report->is_ending = atomic_load(&asked->is_ending);
    fill(report);
    return report;
}

/* -- requests */

static int connect_to(const fm_web *listener) {
    fm_address address;
    fm_error error;
    char text[300];
    snprintf(text, sizeof text, "tcp%s", strstr(fm_web_get_url(listener), "://"));
    assert_int_equal(fm_address_parse(text, &address, &error), FM_OK);
    int socket;
    assert_int_equal(fm_address_connect(&address, 5000, &socket, &error), FM_OK);
    return socket;
}

static int connect_to_it(void) {
    return connect_to(web);
}

/* Sends `request` and returns everything that comes back until the connection ends. */
static const char *ask(const char *request) {
    static char answer[1 << 18];
    int socket = connect_to_it();
    size_t size = strlen(request), got = 0;
    assert_int_equal(send(socket, request, size, MSG_NOSIGNAL), size);
    for (;;) {
        struct pollfd at = {.fd = socket, .events = POLLIN};
        assert_int_equal(poll(&at, 1, 20000), 1);
        ssize_t n = recv(socket, answer + got, sizeof answer - 1 - got, 0);
        if (n <= 0) break;
        got += (size_t)n;
    }
    answer[got] = 0;
    close(socket);
    return answer;
}

static const char *get(const char *path) {
    char request[300];
    snprintf(request, sizeof request,
             "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", path);
    return ask(request);
}

static void assert_status(const char *answer, const char *status) {
    if (strncmp(answer, "HTTP/1.1 ", 9) != 0 || strncmp(answer + 9, status, 3) != 0) {
        fail_msg("expected %s, got '%.200s'", status, answer);
    }
}

static void assert_has(const char *answer, const char *text) {
    if (!strstr(answer, text)) fail_msg("no '%s' in '%.2000s'", text, answer);
}

static void documents_are_served(void **state) {
    (void)state;
    static const struct {
        const char *path, *type, *text;
    } documents[] = {{"/", "text/html", "<title>foldmill serve</title>"},
                     {"/style.css", "text/css", "prefers-color-scheme"},
                     {"/script.js", "text/javascript", "/report.json"},
                     {"/icon.svg", "image/svg+xml", "<svg"},
                     {"/report.json", "application/json", "\"name\": \"pdb/all\""},
                     {"/metrics", "version=0.0.4", "foldmill_samples_sent_total 2001"},
                     {"/healthz", "text/plain", "ok\n"},
                     {"/readyz", "text/plain", "ready\n"}};
    for (size_t i = 0; i < sizeof documents / sizeof documents[0]; i++) {
        const char *answer = get(documents[i].path);
        assert_status(answer, "200");
        assert_has(answer, documents[i].type);
        assert_has(answer, documents[i].text);
        assert_has(answer, "Content-Security-Policy: default-src 'none'; script-src 'self'");
        assert_has(answer, "X-Content-Type-Options: nosniff");
        assert_has(answer, "Cache-Control: no-store");
    }
    assert_status(get("/nothing"), "404");
    assert_status(get("/../etc/passwd"), "404");
    assert_status(get("/%2e%2e/"), "404");
}

static void only_get_is_served(void **state) {
    (void)state;
    static const char *const methods[] = {"POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"};
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
        char request[300];
        snprintf(request, sizeof request,
                 "%s / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nConnection: close\r\n"
                 "\r\nhello",
                 methods[i]);
        const char *answer = ask(request);
        assert_status(answer, "405");
        assert_has(answer, "Allow: GET, HEAD");
    }
    const char *head =
        ask("HEAD /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert_status(head, "200");
    assert_null(strstr(head, "foldmill_samples"));
}

/* A page of another site whose name was pointed at 127.0.0.1 must not read anything. */
static void foreign_names_are_refused(void **state) {
    (void)state;
    static const char *const foreign[] = {"evil.example", "localhost.evil.example",
                                          "127.0.0.1.nip.io", "192.0.2.1"};
    static const char *const local[] = {"localhost:7421", "LOCALHOST", "127.0.0.1:9", "[::1]:80"};
    char request[300];
    for (size_t i = 0; i < 4; i++) {
        snprintf(request, sizeof request,
                 "GET /report.json HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", foreign[i]);
        assert_status(ask(request), "421");
        snprintf(request, sizeof request,
                 "GET /report.json HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", local[i]);
        assert_status(ask(request), "200");
    }
}

/* The Host header is checked on every address of this machine alone, however it is written. */
static void every_loopback_address_is_one(void **state) {
    (void)state;
    const fm_web_site site = {.context = &server, .report = make_report};
    static const char *const addresses[] = {"127.0.0.2:0", "[::ffff:127.0.0.1]:0"};
    for (size_t i = 0; i < sizeof addresses / sizeof addresses[0]; i++) {
        fm_web *other;
        char text[64] = "";
        assert_int_equal(fm_web_start(addresses[i], false, &site, &other, NULL), FM_OK);
        static const char request[] = "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n";
        int socket = connect_to(other);
        assert_int_equal(send(socket, request, sizeof request - 1, MSG_NOSIGNAL),
                         sizeof request - 1);
        struct pollfd at = {.fd = socket, .events = POLLIN};
        assert_int_equal(poll(&at, 1, 20000), 1);
        assert_int_equal(recv(socket, text, 12, 0), 12);
        assert_status(text, "421");
        close(socket);
        fm_web_stop(other);
    }
}

/* A request that a proxy in front may read differently is refused, and nothing behind it is read.
 */
static void unclear_requests_end_the_connection(void **state) {
    (void)state;
    static const char *const unclear[] = {
        "Host: localhost\r\nHost: localhost\r\n", "Host: localhost evil.example\r\n",
        "Host: localhost:x\r\n", "Host: localhost\r\nContent-Length: 0\r\nContent-Length: 0\r\n",
        "Host: localhost\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n"};
    static const char *const status[] = {"400", "400", "421", "400", "400"};
    char request[400];
    for (size_t i = 0; i < sizeof unclear / sizeof unclear[0]; i++) {
        snprintf(request, sizeof request,
                 "GET /healthz HTTP/1.1\r\n%s\r\nGET /healthz HTTP/1.1\r\nHost: localhost\r\n"
                 "Connection: close\r\n\r\n",
                 unclear[i]);
        const char *answer = ask(request);
        assert_status(answer, status[i]);
        if (strcmp(status[i], "400") == 0) assert_null(strstr(answer, "200"));
    }
}

static void a_server_that_does_not_answer_is_not_healthy(void **state) {
    (void)state;
    atomic_store(&server.is_hung, true);
    assert_status(get("/healthz"), "503");
    assert_status(get("/readyz"), "503");
    assert_status(get("/metrics"), "503");
    assert_status(get("/"), "200");
    atomic_store(&server.is_hung, false);
    atomic_store(&server.is_ending, true);
    assert_status(get("/healthz"), "200");
    assert_status(get("/readyz"), "503");
    atomic_store(&server.is_ending, false);
    assert_status(get("/readyz"), "200");
}

static void hostile_requests_harm_nobody(void **state) {
    (void)state;
    static const char *const garbage[] = {"\r\n\r\n\r\n",
                                          "GET\r\n\r\n",
                                          "\x16\x03\x01\x02\x00\x01\x00",
                                          "GET / HTTP/9.9\r\n\r\n",
                                          "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
                                          "GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n"};
    for (size_t i = 0; i < sizeof garbage / sizeof garbage[0]; i++) {
        int socket = connect_to_it();
        assert_true(send(socket, garbage[i], strlen(garbage[i]), MSG_NOSIGNAL) > 0);
        close(socket);
    }
    char *large = malloc(100000); /* one header of 100 kB */
    assert_non_null(large);
    int n = snprintf(large, 100000, "GET / HTTP/1.1\r\nHost: localhost\r\nX: ");
    memset(large + n, 'a', 99000);
    strcpy(large + 99000, "\r\nConnection: close\r\n\r\n");
    int socket = connect_to_it();
    ssize_t sent = send(socket, large, strlen(large), MSG_NOSIGNAL);
    assert_true(sent > 0);
    close(socket);
    free(large);
    assert_status(get("/healthz"), "200");
}

/* Silent connections fill the limit for one address; they are closed when their time is up, and
 * then others are served again. */
static void silent_connections_are_bounded(void **state) {
    (void)state;
    int silent[40];
    for (size_t i = 0; i < 40; i++)
        silent[i] = connect_to_it();
    const char *answer = "";
    for (int i = 0; i < 200 && strncmp(answer, "HTTP/1.1 200", 12) != 0; i++) {
        answer = get("/healthz");
        usleep(100000);
    }
    assert_status(answer, "200");
    for (size_t i = 0; i < 40; i++)
        close(silent[i]);
}

/* A client that is never silent, but does not come to the end of its request, is cut off, too. */
static void slow_requests_are_cut_off(void **state) {
    (void)state;
    static const char begin[] = "GET /healthz HTTP/1.1\r\nX: ";
    const fm_web_site site = {.context = &server, .report = make_report, .request_ms = 300};
    fm_web *other;
    assert_int_equal(fm_web_start("127.0.0.1:0", false, &site, &other, NULL), FM_OK);
    int socket = connect_to(other);
    assert_true(send(socket, begin, sizeof begin - 1, MSG_NOSIGNAL) > 0);
    bool has_ended = false;
    for (int i = 0; i < 600 && !has_ended; i++) {
        struct pollfd at = {.fd = socket, .events = POLLIN};
        char byte;
        has_ended = send(socket, "a", 1, MSG_NOSIGNAL) < 0 ||
                    (poll(&at, 1, 50) > 0 && recv(socket, &byte, 1, 0) <= 0);
    }
    assert_true(has_ended);
    close(socket);
    fm_web_stop(other);
}

static void bad_addresses_are_refused(void **state) {
    (void)state;
    static const char *const bad[] = {
        "", "7421", "http://127.0.0.1:1", "127.0.0.1:99999", "nowhere.invalid:1", "0.0.0.0:0"};
    const fm_web_site site = {.context = &server, .report = make_report};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        fm_web *other;
        fm_error error;
        assert_int_not_equal(fm_web_start(bad[i], false, &site, &other, &error), FM_OK);
        assert_true(error.message[0]);
        /* The first four have another form than the option's. */
        assert_true(i > 3 || strstr(error.message, "expected HOST:PORT, such as"));
    }
}

/* -- other people's programs */

static void prometheus_reads_the_metrics(void **state) {
    (void)state;
    if (fm_test_shell(folder, "/usr/bin/python3 -c 'import prometheus_client' 2>/dev/null") != 0) {
        print_message("skipped: there is no python3-prometheus-client\n");
        skip();
    }
    const char *answer = get("/metrics");
    char path[300];
    snprintf(path, sizeof path, "%s/metrics", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(strstr(answer, "\r\n\r\n") + 4, file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(
        fm_test_shell(
            folder, "/usr/bin/python3 -c '\n"
                    "from prometheus_client.parser import text_string_to_metric_families\n"
                    "seen = {f.name: f for f in "
                    "text_string_to_metric_families(open(\"metrics\").read())}\n"
                    "assert seen[\"foldmill_samples_sent\"].samples[0].value == 2001\n"
                    "assert seen[\"foldmill_connections\"].type == \"gauge\"\n"
                    "w = seen[\"foldmill_streams_waiting_for_credit\"].samples\n"
                    "assert [x.value for x in w] == [1]\n"
                    "c = seen[\"foldmill_chain_failed_recently\"].samples\n"
                    "assert [(x.labels[\"chain\"], x.value) for x in c] == "
                    "[(\"2xyz_B\", 2), (\"3abc_C\", 1)]\n"
                    "h = seen[\"foldmill_prepare_seconds\"]\n"
                    "assert h.type == \"histogram\"\n"
                    "b = [s.value for s in h.samples if s.name.endswith(\"_bucket\")]\n"
                    "assert b == sorted(b) and b[-1] == 300, b\n"
                    "s = seen[\"foldmill_consumer_samples\"].samples\n"
                    "assert [x.value for x in s] == [300, 301]\n"
                    "assert [x.labels[\"consumer\"] for x in s][1] == \"a\" + chr(10) + \"b\"\n"
                    "assert s[1].labels[\"peer\"] == \"token:lab\" + chr(34) + chr(92)\n"
                    "for name, n in ((\"prepare\", 300), (\"wait\", 300), (\"send\", 1)):\n"
                    "    h = seen[\"foldmill_consumer_\" + name + \"_seconds\"]\n"
                    "    assert h.type == \"histogram\"\n"
                    "    for peer in set(x.labels[\"peer\"] for x in h.samples):\n"
                    "        one = [x for x in h.samples if x.labels[\"peer\"] == peer]\n"
                    "        b = [x.value for x in one if x.name.endswith(\"_bucket\")]\n"
                    "        assert len(b) == 17 and b == sorted(b) and b[-1] == n, (name, b)\n"
                    "        assert [x.value for x in one if x.name.endswith(\"_count\")] == [n]\n"
                    "    assert len(h.samples) == 2 * 19\n"
                    "'"),
        0);
}

/* The page as a browser draws it: numbers, tables and charts are there, and a client that calls
 * itself <img onerror> is text. */
static void a_browser_draws_the_page(void **state) {
    (void)state;
    if (fm_test_shell(folder, "command -v chromium >/dev/null") != 0) {
        print_message("skipped: there is no chromium\n");
        skip();
    }
    assert_int_equal(
        fm_test_shell_format(folder,
                             "timeout 120 chromium --headless --no-sandbox --disable-gpu "
                             "--user-data-dir=profile --virtual-time-budget=4000 "
                             "--enable-logging=stderr --dump-dom %s/ >page.html 2>log",
                             fm_web_get_url(web)),
        0);
    static const char *const parts[] = {
        "snapshot train, 22 chains, generation 3 and 1 more",
        "<td>until its streams end",
        "role=\"status\" class=\"good\">serving",
        "192.0.2.7 &lt;img src=x",
        "bounded:8",
        "1 of 2",
        "<td class=\"long\">the hash is wrong",
        "<td class=\"long\">token:lab",
        "<td>1abc_A</td>",
        "Samples per second: mean 46",
        "<dd>62 min</dd>",
        "samples failed total",
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (fm_test_shell_format(folder, "grep -qF -e '%s' page.html", parts[i]) != 0) {
            fm_test_shell(folder, "cat page.html; grep CONSOLE log");
            fail_msg("the page has no '%s'", parts[i]);
        }
    }
    assert_int_not_equal(fm_test_shell(folder, "grep -q '<img' page.html"), 0);
    assert_int_not_equal(fm_test_shell(folder, "grep -q ':CONSOLE' log"), 0);
}

static int setup(void **state) {
    (void)state;
    const fm_web_site site = {.context = &server, .report = make_report};
    fm_error error;
    fm_test_make_folder(folder, sizeof folder);
    if (fm_web_start("127.0.0.1:0", false, &site, &web, &error)) {
        if (error.status == FM_ERR_UNSUPPORTED) exit(FM_TEST_SKIPPED);
        fail_msg("%s", error.message);
    }
    return 0;
}

static int teardown(void **state) {
    (void)state;
    fm_web_stop(web);
    fm_test_remove_tree(folder);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(documents_are_served),
        cmocka_unit_test(only_get_is_served),
        cmocka_unit_test(foreign_names_are_refused),
        cmocka_unit_test(every_loopback_address_is_one),
        cmocka_unit_test(unclear_requests_end_the_connection),
        cmocka_unit_test(a_server_that_does_not_answer_is_not_healthy),
        cmocka_unit_test(hostile_requests_harm_nobody),
        cmocka_unit_test(silent_connections_are_bounded),
        cmocka_unit_test(slow_requests_are_cut_off),
        cmocka_unit_test(bad_addresses_are_refused),
        cmocka_unit_test(prometheus_reads_the_metrics),
        cmocka_unit_test(a_browser_draws_the_page),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
