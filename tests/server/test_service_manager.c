/* Reports to a service manager, and the sockets that it hands over: what is sent and when, and what
 * is refused. */
#include "server/service_manager.h"
#include "tests/testing/testing.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[200], path[256];
static int inbox;

static int make_inbox(void **state) {
    (void)state;
    fm_test_make_folder(folder, sizeof folder);
    snprintf(path, sizeof path, "%s/notify", folder);
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    snprintf(name.sun_path, sizeof name.sun_path, "%s", path);
    inbox = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    return bind(inbox, (struct sockaddr *)&name, sizeof name);
}

static int drop_inbox(void **state) {
    (void)state;
    close(inbox);
    fm_test_remove_tree(folder);
    return 0;
}

/* The next report; "" when there is none. */
static const char *next_report(void) {
    static char text[600];
    ssize_t n = recv(inbox, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    return text;
}

static fm_service_manager *make_manager(const char *watchdog_us) {
    fm_service_manager *manager = NULL;
    fm_error error;
    setenv("NOTIFY_SOCKET", path, 1);
    if (watchdog_us) setenv("WATCHDOG_USEC", watchdog_us, 1);
    if (fm_service_manager_create(&manager, &error)) fail_msg("%s", error.message);
    assert_non_null(manager);
    assert_null(getenv("NOTIFY_SOCKET"));
    assert_null(getenv("WATCHDOG_USEC"));
    return manager;
}

static void states_are_reported(void **state) {
    (void)state;
    fm_service_manager *manager = make_manager(NULL);
    fm_service_ready(manager);
    assert_string_equal(next_report(), "READY=1\n");
    fm_service_reloading(manager);
    unsigned long long us;
    assert_int_equal(sscanf(next_report(), "RELOADING=1\nMONOTONIC_USEC=%llu\n", &us), 1);
    assert_true(us > 0);
    fm_service_ready(manager);
    assert_string_equal(next_report(), "READY=1\n");
    fm_service_stopping(manager);
    assert_memory_equal(next_report(), "STOPPING=1\nSTATUS=", 18);
    fm_service_manager_destroy(manager);
}

/* Half of the watchdog's time passes between two signs of life, and only ticks give them. */
static void ticks_feed_the_watchdog(void **state) {
    (void)state;
    fm_service_manager *manager = make_manager("3000000");
    const fm_service_state none = {0};
    uint32_t n = 0;
    for (uint64_t now = 5000; now <= 14000; now += 100) {
        fm_service_tick(manager, &none, now);
        const char *report = next_report();
        if (!*report) continue;
        assert_string_equal(report, "WATCHDOG=1");
        assert_int_equal((now - 5000) % 1500, 0);
        n++;
    }
    assert_int_equal(n, 6);
    fm_service_manager_destroy(manager);
}

static void the_status_tells_rates(void **state) {
    (void)state;
    fm_service_manager *manager = make_manager(NULL);
    fm_service_state now = {.n_connection = 3, .n_stream = 2, .n_sample = 1000, .n_byte = 50000000};
    fm_service_tick(manager, &now, 100);
    assert_string_equal(next_report(), "");
    now.n_sample += 455;
    now.n_byte += 123000000;
    fm_service_tick(manager, &now, 10100);
    assert_string_equal(next_report(),
                        "STATUS=3 connections, 2 streams, 45.5 samples/s, 12.3 MB/s, "
                        "1455 samples in all");
    fm_service_manager_destroy(manager);
}

/* The inbox is full: nothing waits, and what was not told comes later, in one piece. */
static void a_full_inbox_delays_reports(void **state) {
    (void)state;
    fm_service_manager *manager = make_manager(NULL);
    const fm_service_state none = {0};
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    snprintf(name.sun_path, sizeof name.sun_path, "%s", path);
    int filler = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    while (sendto(filler, "x", 1, 0, (struct sockaddr *)&name, sizeof name) == 1) {
    }
    assert_int_equal(errno, EAGAIN);
    close(filler);
    fm_service_ready(manager);
    fm_service_stopping(manager);
    while (strcmp(next_report(), "x") == 0) {
    }
    fm_service_tick(manager, &none, 1);
    const char *report = next_report();
    assert_memory_equal(report, "READY=1\nSTOPPING=1\n", 19);
    assert_string_equal(next_report(), "");
    fm_service_manager_destroy(manager);
}

static void without_a_manager_nothing_is_done(void **state) {
    (void)state;
    fm_service_manager *manager;
    fm_error error;
    const fm_service_state none = {0};
    unsetenv("NOTIFY_SOCKET");
    assert_int_equal(fm_service_manager_create(&manager, &error), FM_OK);
    assert_null(manager);
    fm_service_ready(manager);
    fm_service_reloading(manager);
    fm_service_stopping(manager);
    fm_service_tick(manager, &none, 1);
    fm_service_manager_destroy(manager);
}

static void variables_without_sense_are_refused(void **state) {
    (void)state;
    static const char *const names[] = {"", "relative", "/", "@"};
    static const char *const times[] = {"", "0", "-1", "1s", "99999999999999999999"};
    fm_service_manager *manager;
    fm_error error;
    unsetenv("WATCHDOG_USEC");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        setenv("NOTIFY_SOCKET", names[i], 1);
        assert_int_equal(fm_service_manager_create(&manager, &error), FM_ERR_USAGE);
        assert_non_null(strstr(error.message, "expected the path of a socket"));
    }
    setenv("NOTIFY_SOCKET", path, 1);
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
        setenv("WATCHDOG_USEC", times[i], 1);
        assert_int_equal(fm_service_manager_create(&manager, &error), FM_ERR_USAGE);
        assert_non_null(strstr(error.message, "expected a number of microseconds"));
    }
    setenv("WATCHDOG_PID", "1", 1); /* the variables of another process */
    assert_int_equal(fm_service_manager_create(&manager, &error), FM_OK);
    fm_service_manager_destroy(manager);
    unsetenv("WATCHDOG_USEC");
}

/* -- sockets: each case in a child, whose descriptors are its own */

typedef struct handed_case {
    const char *n, *names;
    int family; /* of descriptor 3; 0: a socket that does not listen */
    bool is_tls;
    fm_status status;
    const char *words;    /* of the error */
    fm_address_kind kind; /* on FM_OK, of the data socket, if there is one */
} handed_case;

static int make_listening(int family) {
    struct sockaddr_un path_name = {.sun_family = AF_UNIX};
    snprintf(path_name.sun_path, sizeof path_name.sun_path, "%s/handed", folder);
    unlink(path_name.sun_path);
    int fd = socket(family ? family : AF_INET, SOCK_STREAM, 0);
    if (family == AF_UNIX && bind(fd, (struct sockaddr *)&path_name, sizeof path_name)) return -1;
    if (family && listen(fd, 8)) return -1; /* on any address and port, for AF_INET */
    return fd;
}

/* 0: all was as expected; else the number of what was not. */
static int take_in_child(const handed_case *one) {
    char pid[16];
    int fd = make_listening(one->family);
    if (fd < 0 || (fd != 3 && dup2(fd, 3) != 3)) return 2;
    if (fd != 3) close(fd);
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    setenv("LISTEN_PID", pid, 1);
    setenv("LISTEN_FDS", one->n, 1);
    setenv("LISTEN_FDNAMES", one->names, 1);
    fm_service_sockets sockets;
    fm_error error = {0};
    fm_status status = fm_service_take_sockets(one->is_tls, true, &sockets, &error);
    if (status != one->status) return 3;
    if (status) return strstr(error.message, one->words) ? 0 : 4;
    if (getenv("LISTEN_FDS") && strcmp(one->n, "0") != 0) return 5;
    if (one->kind == 0) return sockets.n_data == 0 ? 0 : 6;
    if (sockets.n_data != 1 || sockets.data[0].address.kind != one->kind) return 7;
    return fcntl(3, F_GETFD) == FD_CLOEXEC && (fcntl(3, F_GETFL) & O_NONBLOCK) ? 0 : 8;
}

static void sockets_are_taken_by_name(void **state) {
    (void)state;
    static const handed_case cases[] = {
        {"1", "data", AF_UNIX, false, FM_OK, NULL, FM_ADDRESS_UNIX},
        {"1", "data", AF_INET, true, FM_OK, NULL, FM_ADDRESS_TLS},
        {"1", "data", AF_INET, false, FM_OK, NULL, FM_ADDRESS_TCP},
        {"1", "data", AF_INET6, true, FM_OK, NULL, FM_ADDRESS_TLS},
        {"1", "http", AF_INET, true, FM_OK, NULL, 0},
        {"0", "", AF_UNIX, false, FM_OK, NULL, 0},
        {"1", "http", AF_UNIX, false, FM_ERR_USAGE, "is a Unix socket", 0},
        {"1", "other", AF_UNIX, false, FM_ERR_USAGE, "is called 'other', expected 'data'", 0},
        {"1", "", AF_UNIX, false, FM_ERR_USAGE, "is called ''", 0},
        {"1", "data", 0, false, FM_ERR_USAGE, "descriptor 3, expected a stream socket", 0},
        {"2", "data:data", AF_UNIX, false, FM_ERR_USAGE, "descriptor 4, expected", 0},
        {"9", "data", AF_UNIX, false, FM_ERR_USAGE, "LISTEN_FDS is '9', expected", 0},
        {"x", "data", AF_UNIX, false, FM_ERR_USAGE, "LISTEN_FDS is 'x', expected", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int status;
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            fm_test_die_with_parent();
            close(4);
            _exit(take_in_child(&cases[i]));
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        if (!WIFEXITED(status) || WEXITSTATUS(status)) {
            fail_msg("case %zu: status %d", i, WEXITSTATUS(status));
        }
    }
}

/* Sockets that were meant for a parent are none of ours. */
static void sockets_of_another_process_are_left_alone(void **state) {
    (void)state;
    fm_service_sockets sockets;
    fm_error error;
    setenv("LISTEN_PID", "1", 1);
    setenv("LISTEN_FDS", "1", 1);
    setenv("LISTEN_FDNAMES", "data", 1);
    assert_int_equal(fm_service_take_sockets(false, false, &sockets, &error), FM_OK);
    assert_int_equal(sockets.n_data, 0);
    assert_int_equal(sockets.http.fd, 0);
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDS");
    unsetenv("LISTEN_FDNAMES");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(states_are_reported),
        cmocka_unit_test(ticks_feed_the_watchdog),
        cmocka_unit_test(the_status_tells_rates),
        cmocka_unit_test(a_full_inbox_delays_reports),
        cmocka_unit_test(without_a_manager_nothing_is_done),
        cmocka_unit_test(variables_without_sense_are_refused),
        cmocka_unit_test(sockets_are_taken_by_name),
        cmocka_unit_test(sockets_of_another_process_are_left_alone),
    };
    return cmocka_run_group_tests(tests, make_inbox, drop_inbox);
}
