/* The event loop when memory runs out: the test's calloc fails when told to. */
#include "server/loop.h"
#include "tests/testing/testing.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

enum { TICK_MS = 10, TICKS_MAX = 6000, N_CLIENT = 2 };

/* The linker sends the library's calls of calloc here (--wrap in tests/CMakeLists.txt). */
void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);

static int n_to_fail;

void *__wrap_calloc(size_t n, size_t size) {
    if (n_to_fail == 0) return __real_calloc(n, size);
    n_to_fail--;
    return NULL;
}

typedef struct acceptance {
    fm_loop *loop;
    fm_listener *listener;
    int n_accepted, n_tick;
} acceptance;

static void end(acceptance *a) {
    if (a->listener) fm_listener_close(a->listener);
    a->listener = NULL;
    fm_loop_stop(a->loop);
}

static void on_wake(void *owner) {
    (void)owner;
}

static void on_tick(void *owner, uint64_t now_ms) {
    acceptance *a = owner;
    (void)now_ms;
    if (++a->n_tick == TICKS_MAX) end(a);
}

static void on_signal(void *owner, int number) {
    (void)owner;
    (void)number;
}

static void on_accepted(void *owner, fm_socket *socket) {
    acceptance *a = owner;
    fm_socket_close(socket);
    if (++a->n_accepted == N_CLIENT) end(a);
}

/* Connects two clients to a fresh listener whose first `n_failing` callocs fail. */
static void accept_two(int n_failing) {
    static const fm_loop_events events = {.wake = on_wake, .tick = on_tick, .signal = on_signal};
    char folder[200], text[256];
    fm_address address, bound;
    fm_error error;
    acceptance a = {0};
    int listening = -1, client[N_CLIENT];
    fm_test_make_folder(folder, sizeof folder);
    snprintf(text, sizeof text, "unix:%s/socket", folder);
    assert_int_equal(fm_address_parse(text, &address, &error), FM_OK);
    assert_int_equal(fm_address_listen(&address, &listening, &bound, &error), FM_OK);
    assert_int_equal(fm_loop_create(&events, &a, TICK_MS, false, &a.loop, &error), FM_OK);
    assert_int_equal(
        fm_loop_listen(a.loop, listening, bound.kind, on_accepted, &a, &a.listener, &error), FM_OK);
    for (int i = 0; i < N_CLIENT; i++)
        assert_int_equal(fm_address_connect(&bound, 1000, &client[i], &error), FM_OK);
    n_to_fail = n_failing;
    fm_loop_run(a.loop);
    fm_loop_destroy(a.loop);
    for (int i = 0; i < N_CLIENT; i++)
        close(client[i]);
    fm_test_remove_tree(folder);
    assert_int_equal(n_to_fail, 0);
    assert_int_equal(a.n_accepted, N_CLIENT);
}

static void connections_are_accepted(void **state) {
    (void)state;
    accept_two(0);
}

static void a_connection_waits_for_memory(void **state) {
    (void)state;
    accept_two(1);
    accept_two(3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(connections_are_accepted),
        cmocka_unit_test(a_connection_waits_for_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
