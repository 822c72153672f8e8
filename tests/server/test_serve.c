/* A server and correct clients over real sockets: which samples arrive, in which order, and how
 * streams end. */
#include "tests/server/server_fixture.h"

#include "proto/schema.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static slab into;

static void strict_is_exact(const char *url, server_fixture *f) {
    fm_client *client = connect_to(url);
    assert_string_equal(fm_client_get_welcome(client)->snapshot_name, "made-up");
    assert_int_equal(fm_client_get_welcome(client)->n_chain, 1000);
    fm_wire_open params = stream_of(5);
    fm_wire_opened opened = open_on(client, &params);
    assert_int_equal(opened.n_sample, 40);
    assert_int_equal(opened.global_batch, 8);
    for (uint64_t i = 0; i < 40; i++) {
        fm_client_event event = next_on(client, &into);
        assert_true(event.sample.size <= opened.max_sample_bytes);
        assert_sample(&f->test, &event, 42, i, 8);
        release_on(client, &event);
    }
    fm_client_event event = next_on(client, &into);
    assert_int_equal(event.kind, FM_CLIENT_END);
    assert_int_equal(event.reason, FM_WIRE_DELIVERED);
    fm_client_close(client);
}

static void strict_order_is_exact_on_both_sockets_with_any_threads(void **state) {
    (void)state;
    static const uint32_t n_jobs[] = {1, 4};
    for (size_t i = 0; i < 2; i++) {
        server_fixture f;
        server_prepare(&f);
        f.options.n_job = n_jobs[i];
        server_start(&f);
        strict_is_exact(f.unix_url, &f);
        strict_is_exact(f.tcp_url, &f);
        server_finish(&f);
    }
}

/* One slow sample in seven: others overtake it, never by more than W. */
static void bounded_order_overtakes_within_its_bound(void **state) {
    (void)state;
    server_fixture f;
    server_prepare(&f);
    f.options.n_job = 4;
    f.test.slow_every = 7;
    f.test.slow_ms = 20;
    server_start(&f);
    fm_client *client = connect_to(f.unix_url);
    fm_wire_open params = stream_of(10);
    params.order = FM_WIRE_BOUNDED;
    params.window = 5;
    params.credit_items = 16;
    (void)open_on(client, &params);
    uint32_t n_overtaken = 0;
    uint8_t seen[80] = {0};
    for (uint64_t i = 0; i < 80; i++) {
        fm_client_event event = next_on(client, &into);
        uint64_t index = index_of(&event);
        assert_true(index < 80 && !seen[index]);
        seen[index] = 1;
        assert_true(i <= index + 5 && index <= i + 5);
        assert_sample(&f.test, &event, 42, index, 8);
        n_overtaken += index != i;
        release_on(client, &event);
    }
    assert_int_equal(next_on(client, &into).kind, FM_CLIENT_END);
    assert_true(n_overtaken > 0);
    fm_client_close(client);
    server_finish(&f);
}

static void groups_get_the_same_samples_as_one(void **state) {
    (void)state;
    server_fixture f;
    server_prepare(&f);
    server_start(&f);
    uint8_t seen[24] = {0};
    fm_client *clients[3];
    for (uint32_t g = 0; g < 3; g++) {
        clients[g] = connect_to(g == 1 ? f.tcp_url : f.unix_url);
        fm_wire_open params = stream_of(3);
        params.group = g;
        params.n_group = 3;
        (void)open_on(clients[g], &params);
    }
    for (uint32_t turn = 0; turn < 9; turn++) {
        for (uint32_t g = 0; g < 3; g++) {
            if (g == 2 && turn >= 6) continue; /* slots 2 and 5 of 8 */
            fm_client_event event = next_on(clients[g], &into);
            uint64_t index = index_of(&event);
            assert_int_equal(index % 8 % 3, g);
            assert_sample(&f.test, &event, 42, index, 8);
            seen[index]++;
            release_on(clients[g], &event);
        }
    }
    for (uint32_t g = 0; g < 3; g++) {
        assert_int_equal(next_on(clients[g], &into).kind, FM_CLIENT_END);
        fm_client_close(clients[g]);
    }
    for (size_t i = 0; i < 24; i++)
        assert_int_equal(seen[i], 1);
    server_finish(&f);
}

static void a_token_resumes_exactly(void **state) {
    (void)state;
    server_fixture f;
    server_prepare(&f);
    f.options.n_job = 4;
    f.test.slow_every = 5;
    f.test.slow_ms = 5;
    server_start(&f);
    fm_wire_open params = stream_of(10);
    params.order = FM_WIRE_BOUNDED;
    params.window = 8;
    params.credit_items = 16;
    fm_token token = {0};
    uint8_t seen[80] = {0};
    uint64_t total = 0;
    for (uint32_t life = 0; life < 4; life++) { /* cut off and resumed three times */
        params.token = token;
        fm_client *client = connect_to(f.unix_url);
        fm_wire_opened opened = open_on(client, &params);
        assert_int_equal(opened.n_sample, 80 - total);
        for (uint32_t i = 0; i < (life < 3 ? 19u : 80u); i++) {
            fm_client_event event = next_on(client, &into);
            if (event.kind == FM_CLIENT_END) break;
            uint64_t index = index_of(&event);
            assert_int_equal(seen[index]++, 0);
            assert_int_equal(fm_token_deliver(&token, index, NULL), FM_OK);
            total++;
            release_on(client, &event);
        }
        fm_client_close(client);
    }
    assert_int_equal(total, 80);
    assert_int_equal(token.watermark, 80);
    server_finish(&f);
}

static void plan_changes_are_in_effect(void **state) {
    (void)state;
    server_fixture f;
    server_prepare(&f);
    server_start(&f);
    fm_client *client = connect_to(f.unix_url);
    fm_wire_open params = stream_of(2);
    params.global_batch = 3;
    params.seed = 7;
    fm_wire_opened opened = open_on(client, &params);
    assert_int_equal(opened.n_sample, 6);
    assert_int_equal(opened.global_batch, 3);
    fm_client_event event = next_on(client, &into);
    assert_sample(&f.test, &event, 7, 0, 3);
    fm_client_close(client);
    server_finish(&f);
}

static void a_bad_sample_is_reported_by_policy(void **state) {
    (void)state;
    server_fixture f;
    server_prepare(&f);
    f.test.fail_every = 5;
    server_start(&f);
    fm_wire_open params = stream_of(2);
    params.policy = FM_WIRE_SKIP;
    fm_client *client = connect_to(f.unix_url);
    (void)open_on(client, &params);
    for (uint64_t i = 0; i < 16; i++) {
        fm_client_event event = next_on(client, &into);
        if (i % 5) {
            assert_sample(&f.test, &event, 42, i, 8);
        } else {
            char expected[64];
            snprintf(expected, sizeof expected, "sample %d is made to fail", (int)i);
            assert_int_equal(event.kind, FM_CLIENT_SKIPPED);
            assert_int_equal(event.index, i);
            assert_int_equal(event.status, FM_ERR_DATA);
            assert_string_equal(event.text, expected);
        }
        release_on(client, &event);
    }
    assert_int_equal(next_on(client, &into).kind, FM_CLIENT_END);
    fm_client_close(client);

    params.policy = FM_WIRE_STOP;
    params.first_step = 1; /* 8, 9, then 10 fails */
    client = connect_to(f.unix_url);
    (void)open_on(client, &params);
    for (uint64_t i = 8; i < 10; i++) {
        fm_client_event event = next_on(client, &into);
        assert_sample(&f.test, &event, 42, i, 8);
    }
    fm_client_event event;
    fm_error error = {0};
    assert_int_equal(fm_client_next(client, into.bytes, SLAB_BYTES, &event, &error), FM_ERR_DATA);
    assert_string_equal(error.message, "sample 10: sample 10 is made to fail");
    assert_string_equal(error.source, f.unix_url);
    fm_client_close(client);
    server_finish(&f);
}

static void refusals_say_why(void **state) {
    (void)state;
    server_fixture f;
    server_prepare(&f);
    server_start(&f);
    fm_client *client = NULL;
    fm_error error = {0};
    fm_client_options options = {.url = f.unix_url, .snapshot_name = "other"};
    assert_int_equal(fm_client_connect(&options, &client, &error), FM_ERR_NOT_FOUND);
    assert_string_equal(error.message, "snapshot other is not served here; there are: made-up");
    options = (fm_client_options){.url = f.unix_url, .snapshot = {{1}}};
    assert_int_equal(fm_client_connect(&options, &client, &error), FM_ERR_NOT_FOUND);
    assert_non_null(strstr(error.message, "snapshot 0100000000000000... is not served"));
    options = (fm_client_options){.url = f.unix_url, .snapshot = f.source.snapshot};
    assert_int_equal(fm_client_connect(&options, &client, &error), FM_OK);
    fm_wire_open params = stream_of(1);
    fm_wire_opened opened;
    strcpy(params.plan, "other");
    assert_int_equal(fm_client_open(client, &params, &opened, &error), FM_ERR_NOT_FOUND);
    assert_string_equal(error.message, "no plan is called 'other'; there is: test");
    fm_client_close(client);
    params = stream_of(1);
    params.n_group = 9;
    client = connect_to(f.tcp_url);
    assert_int_equal(fm_client_open(client, &params, &opened, &error), FM_ERR_USAGE);
    assert_string_equal(error.message, "9 groups cannot share a global batch of 8");
    fm_client_close(client);
    options = (fm_client_options){.url = "unix:/nonexistent/socket"};
    assert_int_equal(fm_client_connect(&options, &client, &error), FM_ERR_IO);
    server_finish(&f);
}

/* A sample that can never fit is refused when its stream is opened. */
static void items_larger_than_memory_are_not_admitted(void **state) {
    (void)state;
    server_fixture f;
    server_prepare(&f);
    f.options.max_memory_bytes = 20000; /* a peer has half, and a block is larger */
    server_start(&f);
    fm_client *client = connect_to(f.unix_url);
    fm_wire_open params = stream_of(2);
    fm_wire_opened opened;
    fm_error error = {0};
    assert_int_equal(fm_client_open(client, &params, &opened, &error), FM_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.message, "and the server has 10000 for all samples of a peer"));
    fm_client_close(client);
    server_finish(&f);
}

/* Many streams share memory for two samples; each gets all of its own. */
static void streams_share_what_memory_there_is(void **state) {
    (void)state;
    enum { N = 12 };
    server_fixture f;
    server_prepare(&f);
    f.options.max_memory_bytes = 80000; /* each peer has room for two blocks of 12 to 16 KiB */
    server_start(&f);
    fm_client *clients[N];
    fm_wire_open params = stream_of(2);
    for (size_t i = 0; i < N; i++) {
        clients[i] = connect_to(i % 2 ? f.tcp_url : f.unix_url);
        params.credit_items = i % 3 ? 2 : 0; /* some stay silent for now */
        (void)open_on(clients[i], &params);
    }
    fm_server_stats stats;
    for (size_t silent = 2; silent-- > 0;) {
        for (size_t i = 0; i < N; i++) {
            if ((i % 3 == 0) != (silent == 0)) continue;
            if (!silent) assert_int_equal(fm_client_release(clients[i], 16, 1 << 20, NULL), FM_OK);
            for (uint64_t k = 0; k < 16; k++) {
                fm_client_event event = next_on(clients[i], &into);
                assert_sample(&f.test, &event, 42, k, 8);
                if (silent) release_on(clients[i], &event);
                fm_server_get_stats(f.server, &stats);
                assert_true(stats.memory_bytes <= f.options.max_memory_bytes);
            }
        }
    }
    for (size_t i = 0; i < N; i++)
        fm_client_close(clients[i]);
    server_finish(&f);
}

static void a_sample_larger_than_the_slab_is_reported(void **state) {
    (void)state;
    server_fixture f;
    server_prepare(&f);
    server_start(&f);
    fm_client *client = connect_to(f.unix_url);
    fm_wire_open params = stream_of(1);
    (void)open_on(client, &params);
    fm_client_event event;
    assert_int_equal(fm_client_next(client, into.bytes, 64, &event, NULL), FM_ERR_LIMIT);
    fm_client_close(client);
    server_finish(&f);
}

static void *interrupt_soon(void *argument) {
    sleep_ms(100);
    fm_client_interrupt(argument);
    return NULL;
}

static void a_waiting_client_can_be_interrupted(void **state) {
    (void)state;
    server_fixture f;
    server_prepare(&f);
    server_start(&f);
    fm_client *client = connect_to(f.unix_url);
    fm_wire_open params = stream_of(1);
    params.credit_items = 0; /* nothing will come */
    (void)open_on(client, &params);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, interrupt_soon, client), 0);
    fm_client_event event;
    assert_int_equal(fm_client_next(client, into.bytes, SLAB_BYTES, &event, NULL),
                     FM_ERR_CANCELLED);
    pthread_join(thread, NULL);
    fm_client_close(client);
    server_finish(&f);
}

/* The client sends PING while it waits; a live server answers, and the wait continues. */
static void a_slow_sample_is_waited_for(void **state) {
    (void)state;
    server_fixture f;
    server_prepare(&f);
    f.test.slow_every = 1;
    f.test.slow_ms = 900;
    server_start(&f);
    fm_client *client = NULL;
    fm_client_options options = {.url = f.tcp_url, .silence_ms = 300};
    assert_int_equal(fm_client_connect(&options, &client, NULL), FM_OK);
    fm_wire_open params = stream_of(1);
    (void)open_on(client, &params);
    fm_client_event event = next_on(client, &into);
    assert_int_equal(index_of(&event), 0);
    assert_true(event.wait_ns > 500000000u);
    fm_client_close(client);
    server_finish(&f);
}

static void *accept_and_be_silent(void *argument) {
    int fd = accept(*(int *)argument, NULL, NULL);
    sleep_ms(1500);
    close(fd);
    return NULL;
}

static void calls_to_a_silent_server_end(void **state) {
    (void)state;
    char folder[200], url[256];
    fm_test_make_folder(folder, sizeof folder);
    snprintf(url, sizeof url, "unix:%s/s", folder);
    fm_address address, bound;
    int listening;
    assert_int_equal(fm_address_parse(url, &address, NULL), FM_OK);
    assert_int_equal(fm_address_listen(&address, &listening, &bound, NULL), FM_OK);
    pthread_t thread;
    int blocking = dup(listening);
    assert_int_equal(pthread_create(&thread, NULL, accept_and_be_silent, &blocking), 0);
    fm_client *client = NULL;
    fm_error error = {0};
    fm_client_options options = {.url = url, .connect_ms = 300};
    assert_int_equal(fm_client_connect(&options, &client, &error), FM_ERR_CLOSED);
    assert_non_null(strstr(error.message, "did not answer in time"));
    pthread_join(thread, NULL);
    close(blocking);
    close(listening);
    fm_test_remove_tree(folder);
}

static void stopping_ends_every_stream(void **state) {
    (void)state;
    server_fixture f;
    server_prepare(&f);
    server_start(&f);
    fm_client *client = connect_to(f.unix_url), *idle = connect_to(f.tcp_url);
    fm_wire_open params = stream_of(0);
    (void)open_on(client, &params);
    for (uint64_t i = 0; i < 10; i++) {
        fm_client_event event = next_on(client, &into);
        assert_sample(&f.test, &event, 42, i, 8);
        release_on(client, &event);
    }
    fm_server_stop(f.server);
    fm_client_event event = next_on(client, &into);
    while (event.kind == FM_CLIENT_SAMPLE)
        event = next_on(client, &into); /* what was on its way */
    assert_int_equal(event.kind, FM_CLIENT_END);
    assert_int_equal(event.reason, FM_WIRE_SHUTDOWN);
    fm_client_close(client);
    fm_client_close(idle);
    char path[256];
    snprintf(path, sizeof path, "%s/socket", f.folder);
    pthread_join(f.thread, NULL);
    assert_int_not_equal(access(path, F_OK), 0);
    assert_int_equal(pthread_create(&f.thread, NULL, server_thread, f.server), 0); /* returns */
    server_finish(&f);
}

/* A server that ends removes the file of its own socket, and not that of another server. */
static void the_socket_of_another_server_stays(void **state) {
    (void)state;
    server_fixture f;
    server_prepare(&f);
    server_start(&f);
    fm_address address, bound;
    int other, fd;
    assert_int_equal(fm_address_parse(f.unix_url, &address, NULL), FM_OK);
    assert_int_equal(unlink(address.path), 0);
    assert_int_equal(fm_address_listen(&address, &other, &bound, NULL), FM_OK);
    fm_server_stop(f.server);
    pthread_join(f.thread, NULL);
    assert_int_equal(fm_address_connect(&address, 1000, &fd, NULL), FM_OK);
    close(fd);
    close(other);
    unlink(address.path);
    assert_int_equal(pthread_create(&f.thread, NULL, server_thread, f.server), 0); /* returns */
    server_finish(&f);
}

static void a_stale_socket_is_replaced_a_live_one_refused(void **state) {
    (void)state;
    server_fixture f;
    server_prepare(&f);
    fm_address address, bound;
    int stale;
    assert_int_equal(fm_address_parse(f.unix_url, &address, NULL), FM_OK);
    assert_int_equal(fm_address_listen(&address, &stale, &bound, NULL), FM_OK);
    close(stale); /* as a killed server leaves it */
    server_start(&f);
    fm_server *second = NULL;
    fm_error error = {0};
    assert_int_equal(fm_server_create(&f.options, &f.source, &second, &error), FM_ERR_EXISTS);
    assert_non_null(strstr(error.message, "another server listens"));
    strict_is_exact(f.unix_url, &f);
    server_finish(&f);
}

/* A whole process: signalled, it ends its streams and exits with 0. */
static void a_signal_is_a_clean_exit(void **state) {
    (void)state;
    static const int signals[] = {SIGTERM, SIGINT};
    for (size_t i = 0; i < 2; i++) {
        server_fixture f;
        server_prepare(&f);
        fm_test_source_init(&f.test, &f.source);
        f.options.watch_signals = true;
        pid_t child = fork();
        if (child == 0) {
            fm_test_die_with_parent();
            if (fm_server_create(&f.options, &f.source, &f.server, NULL)) _exit(9);
            fm_server_run(f.server);
            fm_server_destroy(f.server);
            _exit(f.test.n_plan == 0 ? 0 : 8);
        }
        fm_client *client = NULL;
        fm_client_options options = {.url = f.unix_url, .retry_ms = 10000};
        assert_int_equal(fm_client_connect(&options, &client, NULL), FM_OK);
        fm_wire_open params = stream_of(0);
        (void)open_on(client, &params);
        fm_client_event event = next_on(client, &into);
        assert_int_equal(kill(child, signals[i]), 0);
        while (event.kind == FM_CLIENT_SAMPLE)
            event = next_on(client, &into);
        assert_int_equal(event.reason, FM_WIRE_SHUTDOWN);
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
        fm_client_close(client);
        fm_test_source_fini(&f.test);
        fm_test_remove_tree(f.folder);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_signal_is_a_clean_exit), /* first: it forks, and threads come later */
        cmocka_unit_test(strict_order_is_exact_on_both_sockets_with_any_threads),
        cmocka_unit_test(bounded_order_overtakes_within_its_bound),
        cmocka_unit_test(groups_get_the_same_samples_as_one),
        cmocka_unit_test(a_token_resumes_exactly),
        cmocka_unit_test(plan_changes_are_in_effect),
        cmocka_unit_test(a_bad_sample_is_reported_by_policy),
        cmocka_unit_test(refusals_say_why),
        cmocka_unit_test(items_larger_than_memory_are_not_admitted),
        cmocka_unit_test(streams_share_what_memory_there_is),
        cmocka_unit_test(a_sample_larger_than_the_slab_is_reported),
        cmocka_unit_test(a_waiting_client_can_be_interrupted),
        cmocka_unit_test(a_slow_sample_is_waited_for),
        cmocka_unit_test(calls_to_a_silent_server_end),
        cmocka_unit_test(stopping_ends_every_stream),
        cmocka_unit_test(the_socket_of_another_server_stays),
        cmocka_unit_test(a_stale_socket_is_replaced_a_live_one_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
