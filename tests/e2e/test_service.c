/* `foldmill serve` under a service manager: this test does what systemd does. It hands over
 * sockets, reads the reports and the signs of life, reloads and stops the server; and it runs the
 * server under the restrictions of the unit file. */
#include "tests/testing/testing.h"

#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/testing/must.h"

enum { WAIT_MS = 60000 };

static char folder[200];
static char inbox_name[64]; /* an abstract name, which a sandbox can reach, too */
static int inbox, data, http;
static unsigned http_port;

static void must(const char *command) {
    fm_test_must(folder, command, "log out err");
}

static struct sockaddr_un unix_name(const char *text) {
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    snprintf(name.sun_path, sizeof name.sun_path, "%s", text);
    return name;
}

static int open_sockets(void) {
    char path[256];
    snprintf(path, sizeof path, "%s/handed", folder);
    struct sockaddr_un name = unix_name(path);
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof any;
    data = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    http = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int failed = bind(data, (struct sockaddr *)&name, sizeof name) || listen(data, 16) ||
                 bind(http, (struct sockaddr *)&any, sizeof any) || listen(http, 16) ||
                 getsockname(http, (struct sockaddr *)&any, &bytes) || chmod(path, 0666);
    http_port = ntohs(any.sin_port);
    snprintf(inbox_name, sizeof inbox_name, "@foldmill-test-%d", (int)getpid());
    name = unix_name(inbox_name);
    name.sun_path[0] = '\0';
    int yes = 1;
    inbox = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    failed = failed || setsockopt(inbox, SOL_SOCKET, SO_PASSCRED, &yes, sizeof yes);
    bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(inbox_name));
    return failed || bind(inbox, (struct sockaddr *)&name, bytes);
}

static int setup(void **state) {
    (void)state;
    fm_test_make_folder(folder, sizeof folder);
    if (chmod(folder, 0755)) return -1;
    if (fm_test_shell(folder, "$FOLDMILL synth --seed 3 --chains 6 --depth 60 --max-length 120 "
                              "--min-length 60 -o data >/dev/null 2>&1 && "
                              "$FOLDMILL build data --cache cache --quiet >/dev/null 2>err")) {
        return -1;
    }
    return open_sockets();
}

static int teardown(void **state) {
    (void)state;
    close(inbox);
    close(data);
    close(http);
    fm_test_remove_tree(folder);
    return 0;
}

/* Runs `arguments` with the sockets as descriptors 3 and 4, as systemd does. */
static pid_t start(const char *const *arguments) {
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid) return pid;
    char text[16], log[256];
    fm_test_die_with_parent();
    snprintf(text, sizeof text, "%d", (int)getpid());
    snprintf(log, sizeof log, "%s/log", folder);
    int high[2] = {dup(data), dup(http)};
    while (high[0] < 5)
        high[0] = dup(high[0]);
    while (high[1] < 5)
        high[1] = dup(high[1]);
    bool is_ready = freopen(log, "w", stderr) && dup2(high[0], 3) == 3 && dup2(high[1], 4) == 4;
    setenv("LISTEN_PID", text, 1);
    setenv("WATCHDOG_PID", text, 1);
    setenv("LISTEN_FDS", "2", 1);
    setenv("LISTEN_FDNAMES", "data:http", 1);
    setenv("NOTIFY_SOCKET", inbox_name, 1);
    setenv("WATCHDOG_USEC", "300000", 1);
    setenv("ASAN_OPTIONS", "detect_leaks=0", 0); /* it traces the process, which the unit forbids */
    if (is_ready) execv(arguments[0], (char *const *)(uintptr_t)arguments);
    _exit(98);
}

static pid_t sender; /* of the last report; a sandbox may stand between it and this test */

static const char *read_report(int timeout_ms) {
    static char text[600];
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(struct ucred))];
    struct iovec into = {text, sizeof text - 1};
    struct msghdr message = {.msg_iov = &into,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
    struct pollfd at = {.fd = inbox, .events = POLLIN};
    text[0] = '\0';
    if (poll(&at, 1, timeout_ms) != 1) return text;
    ssize_t n = recvmsg(inbox, &message, 0);
    assert_true(n > 0);
    text[n] = '\0';
    struct ucred who;
    assert_non_null(CMSG_FIRSTHDR(&message));
    memcpy(&who, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof who);
    sender = who.pid;
    return text;
}

/* Reads reports until one begins with the words. */
static const char *await(const char *words) {
    for (int n = 0; n < 2000; n++) {
        const char *report = read_report(WAIT_MS);
        if (strncmp(report, words, strlen(words)) == 0) return report;
        if (!*report) break;
    }
    fm_test_shell(folder, "cat log >&2");
    fail_msg("no %s", words);
    return NULL;
}

/* A life under the manager: the server is ready, serves what was handed over, gives signs of life,
 * reloads, stops, and leaves the sockets to whoever made them. */
static void live(const char *const *arguments) {
    pid_t pid = start(arguments);
    await("READY=1\n");
    must("$FOLDMILL fetch --data unix:handed --plan tiny --steps 20 >out 2>err");
    assert_int_equal(fm_test_shell_format(folder,
                                          "$FOLDMILL top http://127.0.0.1:%u --once >out 2>err && "
                                          "grep -q ' 20 samples in all' out",
                                          http_port),
                     0);
    await("WATCHDOG=1");
    await("WATCHDOG=1");
    assert_int_equal(kill(sender, SIGHUP), 0);
    assert_non_null(strstr(await("RELOADING=1\n"), "MONOTONIC_USEC="));
    await("READY=1\n");
    await("WATCHDOG=1");
    assert_int_equal(kill(sender, SIGTERM), 0);
    await("STOPPING=1\n");
    assert_int_equal(fm_test_stop(pid, 0), 0);
    must("test -S handed && grep -q ' stopped ' log && grep -q 'listening address=unix:' log");
}

static void foldmill_program(char out[256]) {
    snprintf(out, 256, "%s/foldmill", getenv("FM_BIN"));
}

static void a_life_under_a_manager(void **state) {
    (void)state;
    char program[256], cache[256];
    foldmill_program(program);
    snprintf(cache, sizeof cache, "%s/cache", folder);
    const char *const arguments[] = {program, "serve", "--cache", cache, NULL};
    live(arguments);
}

/* A process that does not run gives no signs of life; one that runs again does. */
static void a_server_that_hangs_gives_no_signs_of_life(void **state) {
    (void)state;
    char program[256], cache[256];
    foldmill_program(program);
    snprintf(cache, sizeof cache, "%s/cache", folder);
    const char *const arguments[] = {program, "serve", "--cache", cache, NULL};
    pid_t pid = start(arguments);
    await("WATCHDOG=1");
    int status;
    assert_int_equal(kill(pid, SIGSTOP), 0);
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    while (*read_report(0)) {
    }
    assert_string_equal(read_report(1000), "");
    assert_int_equal(kill(pid, SIGCONT), 0);
    await("WATCHDOG=1");
    assert_int_equal(fm_test_stop(pid, SIGTERM), 0);
}

static void a_server_runs_under_the_restrictions_of_its_unit(void **state) {
    (void)state;
    static const char unit[] = "deploy/systemd/foldmill-serve.service";
    if (getenv("TSAN_OPTIONS")) skip();
    const char *const arguments[] = {"tests/deploy/sandbox.py", unit,    folder,
                                     "/tmp/bin/foldmill",       "serve", "--cache",
                                     "/tmp/run/cache",          NULL};
    char command[1024], root[512];
    assert_non_null(getcwd(root, sizeof root));
    snprintf(
        command, sizeof command,
        "%s/tests/deploy/sandbox.py %s/%s . /bin/sh -c '! touch /etc/x && ! touch /tmp/run/x && "
        "touch /tmp/x && test $(id -u) = 65534 && grep -q \"CapBnd:.0*$\" /proc/self/status && "
        "! python3 -c \"import socket; socket.socket(socket.AF_NETLINK)\" && "
        "! python3 -c \"import mmap; mmap.mmap(-1, 4096, prot=7)\"' >out 2>err",
        root, root, unit);
    int code = fm_test_shell(folder, command);
    if (code == FM_TEST_SKIPPED) {
        fm_test_shell(folder, "cat err >&2");
        skip();
    }
    if (code) fail_msg("the sandbox does not hold: %d", code);
    live(arguments);
}

/* The same by systemd's own hand. */
static void systemd_starts_a_server_at_the_first_connection(void **state) {
    (void)state;
    if (fm_test_shell(folder, "command -v systemd-socket-activate >/dev/null")) {
        print_message("skipped: there is no systemd-socket-activate\n");
        skip();
    }
    pid_t pid = fm_test_start(folder, "systemd-socket-activate --listen=\"$PWD\"/activated "
                                      "--fdname=data \"$FM_BIN\"/foldmill serve --cache cache "
                                      "2>activated.log");
    must("for i in $(seq 600); do test -S activated && break; sleep 0.1; done; "
         "! grep -q 'listening address' activated.log && "
         "$FOLDMILL fetch --data unix:activated --plan tiny --steps 5 >out 2>err && "
         "grep -q 'listening address=unix:.*/activated ' activated.log");
    assert_int_equal(fm_test_stop(pid, SIGTERM), 0);
    must("test -S activated");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_life_under_a_manager),
        cmocka_unit_test(a_server_that_hangs_gives_no_signs_of_life),
        cmocka_unit_test(a_server_runs_under_the_restrictions_of_its_unit),
        cmocka_unit_test(systemd_starts_a_server_at_the_first_connection),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
