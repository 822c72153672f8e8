/* Tests a stream from one of several servers: every sample arrives exactly once, with the right
 * bytes and in order, for any number of servers, while servers leave and return. */
#include "tests/server/server_fixture.h"

#include "proto/schema.h"
#include "proto/supply.h"
#include "tests/testing/certificates.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MOST_SERVERS = 3, N_STEP = 15 };

static slab into;
static fm_test_certificates made;
static char made_in[200];

/* -- several servers of the same samples */

typedef struct servers {
    server_fixture f[MOST_SERVERS];
    bool is_up[MOST_SERVERS];
    size_t n;
    char urls[1024];
} servers;

static void servers_prepare(servers *s, size_t n, int n_job, bool is_tls) {
    s->n = n;
    for (size_t i = 0; i < n; i++) {
        server_prepare(&s->f[i]);
        s->f[i].options.goodbye_ms = 50;
        s->f[i].options.n_job = (uint32_t)n_job;
        if (!is_tls) continue;
        s->f[i].options.listen[1] = "tls://127.0.0.1:0";
        s->f[i].options.credentials = fm_test_server(&made.server, NULL);
        s->f[i].options.is_open_to_all = true;
    }
}

/* Starts them and writes their addresses: of the second listener, or the unix sockets. */
static void servers_start(servers *s, bool on_network) {
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++) {
        server_start(&s->f[i]);
        s->is_up[i] = true;
        n += (size_t)snprintf(s->urls + n, sizeof s->urls - n, "%s%s", i ? "," : "",
                              on_network ? s->f[i].tcp_url : s->f[i].unix_url);
    }
}

static void stop_one(servers *s, size_t i) {
    server_fixture *f = &s->f[i];
    fm_server_stop(f->server);
    assert_int_equal(pthread_join(f->thread, NULL), 0);
    fm_server_destroy(f->server);
    fm_test_source_fini(&f->test);
    s->is_up[i] = false;
}

static void servers_finish(servers *s) {
    for (size_t i = 0; i < s->n; i++) {
        if (s->is_up[i]) {
            server_finish(&s->f[i]);
        } else {
            fm_test_remove_tree(s->f[i].folder);
        }
    }
}

/* -- a consumer that checks */

typedef struct consumer {
    fm_supply *supply;
    fm_wire_open params;
    fm_wire_opened opened;
    const fm_test_source *test;
    uint8_t *has_come; /* [all indices of the steps] */
    uint64_t n, n_all; /* of its group */
    uint32_t n_lost, n_moved;
} consumer;

static void count_change(void *context, const fm_supply_change *change) {
    consumer *c = context;
    *(change->why ? &c->n_lost : &c->n_moved) += 1;
}

static fm_supply_options options_of(const char *urls, uint32_t resume_ms, consumer *c) {
    return (fm_supply_options){.client = {.url = urls, .agent = "supply"},
                               .resume_ms = resume_ms,
                               .on_change = count_change,
                               .context = c};
}

static void begin(consumer *c, const fm_supply_options *options, const servers *s) {
    fm_error error = {0};
    c->test = &s->f[0].test;
    if (fm_supply_open(options, &c->params, &c->supply, &c->opened, &error)) {
        fail_msg("%s", error.message);
    }
    uint64_t n_index = c->params.n_step * c->opened.global_batch;
    c->has_come = calloc(n_index, 1);
    assert_non_null(c->has_come);
    c->n_all = c->opened.n_sample;
}

static bool is_own(const consumer *c, uint64_t index) {
    return index % c->opened.global_batch % c->params.n_group == c->params.group;
}

/* No sample comes more than W places of its group before one that is missing. */
static void check_order(const consumer *c, uint64_t index) {
    uint32_t batch = c->opened.global_batch, window = fm_wire_open_window(&c->params, batch);
    uint64_t missing = 0;
    while (missing < c->params.n_step * batch && (!is_own(c, missing) || c->has_come[missing]))
        missing++;
    assert_true(fm_wire_open_place(&c->params, batch, index) <=
                fm_wire_open_place(&c->params, batch, missing) + window);
}

/* Takes samples until `upto` have come in all. */
static void take(consumer *c, uint64_t upto) {
    while (c->n < upto) {
        fm_client_event event = {0};
        fm_error error = {0};
        if (fm_supply_next(c->supply, into.bytes, sizeof into.bytes, &event, &error)) {
            fail_msg("%s", error.message);
        }
        uint64_t index = index_of(&event);
        assert_true(is_own(c, index));
        assert_false(c->has_come[index]);
        check_order(c, index);
        c->has_come[index] = 1;
        assert_sample(c->test, &event, c->params.seed, index, c->opened.global_batch);
        fm_supply_release(c->supply, 1, event.sample.size);
        c->n++;
    }
}

static void end(consumer *c) {
    fm_client_event event = {0};
    fm_error error = {0};
    take(c, c->n_all);
    if (fm_supply_next(c->supply, into.bytes, sizeof into.bytes, &event, &error)) {
        fail_msg("%s", error.message);
    }
    assert_int_equal(event.kind, FM_CLIENT_END);
    assert_int_equal(event.reason, FM_WIRE_DELIVERED);
    fm_supply_close(c->supply);
    free(c->has_come);
}

static size_t current_of(const fm_supply *supply) {
    for (uint32_t i = 0; i < fm_supply_n_server(supply); i++) {
        if (fm_supply_get_server(supply, i).is_current) return i;
    }
    fail_msg("no server is the current one");
    return 0;
}

/* -- tests */

static const struct {
    fm_wire_order order;
    uint32_t window;
} orders[] = {{FM_WIRE_STRICT, 0}, {FM_WIRE_BOUNDED, 4}, {FM_WIRE_FREE, 0}};

enum { N_ORDER = sizeof orders / sizeof orders[0] };

static void every_way_brings_the_same_bytes(void **state) {
    (void)state;
    for (int way = 0; way < 2 * 2 * 2 * N_ORDER; way++) {
        bool is_tls = way & 1, is_many = way & 2;
        static servers s;
        servers_prepare(&s, is_many ? 3 : 1, way & 4 ? 8 : 1, is_tls);
        for (size_t i = 0; i < s.n; i++) {
            s.f[i].test.slow_every = 10;
            s.f[i].test.slow_ms = 3;
        }
        servers_start(&s, is_tls);
        consumer c = {.params = stream_of(N_STEP)};
        c.params.order = orders[way / 8].order;
        c.params.window = orders[way / 8].window;
        fm_supply_options options = options_of(s.urls, 0, &c);
        options.client.credentials = fm_test_client(&made.ca, NULL);
        if (!is_tls) options.client.credentials = (fm_credentials){0};
        begin(&c, &options, &s);
        end(&c);
        assert_int_equal(c.n_lost, 0);
        servers_finish(&s);
    }
}

/* A group's own samples alone count, and the groups begin at different servers. */
static void groups_begin_at_different_servers(void **state) {
    (void)state;
    static servers s;
    servers_prepare(&s, 3, 2, false);
    servers_start(&s, false);
    for (uint32_t g = 0; g < 5; g++) {
        consumer c = {.params = stream_of(6)};
        c.params.group = g;
        c.params.n_group = 5;
        const fm_supply_options options = options_of(s.urls, 0, &c);
        begin(&c, &options, &s);
        assert_int_equal(current_of(c.supply), g % 3);
        end(&c);
    }
    servers_finish(&s);
}

/* Two of three servers leave in the middle, in every order of delivery and with groups. */
static void a_server_that_leaves_is_replaced(void **state) {
    (void)state;
    for (int way = 0; way < 2 * N_ORDER; way++) {
        static servers s;
        servers_prepare(&s, 3, 3, false);
        servers_start(&s, false);
        consumer c = {.params = stream_of(N_STEP)};
        c.params.order = orders[way / 2].order;
        c.params.window = orders[way / 2].window;
        c.params.n_group = way % 2 ? 3 : 1;
        c.params.group = way % 2 ? 1 : 0;
        const fm_supply_options options = options_of(s.urls, 0, &c);
        begin(&c, &options, &s);
        take(&c, 7);
        stop_one(&s, current_of(c.supply));
        take(&c, 20);
        stop_one(&s, current_of(c.supply));
        end(&c);
        assert_int_equal(c.n_lost, 2);
        servers_finish(&s);
    }
}

static void *restart_later(void *argument) {
    servers *s = argument;
    sleep_ms(300);
    for (size_t i = 0; i < s->n; i++)
        server_start(&s->f[i]);
    return NULL;
}

/* All servers stop, and return at the same addresses while the consumer looks for them. */
static void servers_that_all_restart_are_waited_for(void **state) {
    (void)state;
    for (size_t n = 1; n <= 3; n += 2) {
        static servers s;
        servers_prepare(&s, n, 2, false);
        servers_start(&s, false);
        consumer c = {.params = stream_of(N_STEP)};
        c.params.order = FM_WIRE_BOUNDED;
        c.params.window = 4;
        const fm_supply_options options = options_of(s.urls, 60000, &c);
        begin(&c, &options, &s);
        take(&c, 11);
        for (size_t i = 0; i < n; i++)
            stop_one(&s, i);
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, restart_later, &s), 0);
        end(&c);
        assert_int_equal(pthread_join(thread, NULL), 0);
        for (size_t i = 0; i < n; i++)
            s.is_up[i] = true;
        servers_finish(&s);
    }
}

/* Without time to look for servers, the end of the last one is the end of the stream, as with one
 * server. */
static void without_servers_the_stream_ends(void **state) {
    (void)state;
    for (size_t n = 1; n <= 2; n++) {
        static servers s;
        servers_prepare(&s, n, 2, false);
        servers_start(&s, false);
        consumer c = {.params = stream_of(0)};
        const fm_supply_options options = options_of(s.urls, 0, &c);
        fm_error error = {0};
        fm_client_event event = {0};
        assert_int_equal(fm_supply_open(&options, &c.params, &c.supply, &c.opened, &error), FM_OK);
        for (size_t i = 0; i < n; i++)
            stop_one(&s, i);
        fm_status status = FM_OK;
        while (!status && event.kind != FM_CLIENT_END)
            status = fm_supply_next(c.supply, into.bytes, sizeof into.bytes, &event, &error);
        assert_true(status == FM_ERR_CLOSED || (!status && event.reason == FM_WIRE_SHUTDOWN));
        fm_supply_close(c.supply);
        assert_int_equal(fm_supply_ask(&options, &error), FM_ERR_IO);
        servers_finish(&s);
    }
}

/* The first server takes 20 ms for each sample with one worker, the second nearly nothing. */
static void a_slow_server_is_left_for_a_quick_one(void **state) {
    (void)state;
    static servers s;
    servers_prepare(&s, 2, 1, false);
    s.f[0].test.slow_every = 1;
    s.f[0].test.slow_ms = 20;
    servers_start(&s, false);
    consumer c = {.params = stream_of(60)};
    const fm_supply_options options = options_of(s.urls, 0, &c);
    begin(&c, &options, &s);
    assert_int_equal(current_of(c.supply), 0);
    take(&c, c.n_all);
    assert_true(c.n_moved >= 1);
    assert_int_equal(c.n_lost, 0);
    uint64_t slow = fm_supply_get_server(c.supply, 0).n_sample;
    uint64_t quick = fm_supply_get_server(c.supply, 1).n_sample;
    assert_int_equal(slow + quick, c.n_all);
    if (quick < 4 * slow) fail_msg("%d of the slow server, %d of the quick", (int)slow, (int)quick);
    end(&c);
    servers_finish(&s);
}

/* A server of other data never takes over. */
static void another_snapshot_is_refused(void **state) {
    (void)state;
    static servers s;
    servers_prepare(&s, 2, 2, false);
    servers_start(&s, false);
    stop_one(&s, 1);
    s.f[1].source.snapshot.bytes[0] ^= 1;
    const fm_sample_source other = s.f[1].source;
    fm_error error = {0};
    fm_test_source_init(&s.f[1].test, &s.f[1].source);
    s.f[1].source.snapshot = other.snapshot;
    assert_int_equal(fm_server_create(&s.f[1].options, &s.f[1].source, &s.f[1].server, &error),
                     FM_OK);
    assert_int_equal(pthread_create(&s.f[1].thread, NULL, server_thread, s.f[1].server), 0);
    s.is_up[1] = true;
    consumer c = {.params = stream_of(N_STEP)};
    const fm_supply_options options = options_of(s.urls, 0, &c);
    begin(&c, &options, &s);
    take(&c, 3);
    stop_one(&s, 0);
    fm_client_event event = {0};
    fm_status status = FM_OK;
    while (!status && event.kind != FM_CLIENT_END)
        status = fm_supply_next(c.supply, into.bytes, sizeof into.bytes, &event, &error);
    assert_true(status || event.reason == FM_WIRE_SHUTDOWN);
    assert_int_equal(fm_supply_get_server(c.supply, 1).n_sample, 0);
    fm_supply_close(c.supply);
    free(c.has_come);
    servers_finish(&s);
}

static void *interrupt_later(void *supply) {
    sleep_ms(200);
    fm_supply_interrupt(supply);
    return NULL;
}

static void looking_for_servers_can_be_interrupted(void **state) {
    (void)state;
    static servers s;
    servers_prepare(&s, 2, 2, false);
    servers_start(&s, false);
    consumer c = {.params = stream_of(0)};
    const fm_supply_options options = options_of(s.urls, 3600000, &c);
    fm_error error = {0};
    fm_client_event event = {0};
    assert_int_equal(fm_supply_open(&options, &c.params, &c.supply, &c.opened, &error), FM_OK);
    for (size_t i = 0; i < s.n; i++)
        stop_one(&s, i);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, interrupt_later, c.supply), 0);
    fm_status status = FM_OK;
    while (!status)
        status = fm_supply_next(c.supply, into.bytes, sizeof into.bytes, &event, &error);
    assert_int_equal(status, FM_ERR_CANCELLED);
    assert_int_equal(pthread_join(thread, NULL), 0);
    fm_supply_close(c.supply);
    servers_finish(&s);
}

/* A server that accepts every stream and leaves before it sends a sample. */
typedef struct leaver {
    int listening;
    uint32_t n_left;
} leaver;

static void *leave_each(void *argument) {
    leaver *l = argument;
    const fm_wire_message welcome = {
        .kind = FM_WIRE_WELCOME,
        .welcome = {.version = FM_WIRE_VERSION_MAX, .schema_hash = fm_schema_hash()}};
    const fm_wire_message opened = {.kind = FM_WIRE_OPENED,
                                    .stream = 1,
                                    .opened = {.n_sample = 16,
                                               .max_sample_bytes = 4096,
                                               .global_batch = 8,
                                               .epoch_samples = 9,
                                               .samples_per_step = 8}};
    int fd;
    while ((fd = accept(l->listening, NULL, NULL)) >= 0) {
        uint8_t bytes[2 * FM_WIRE_SMALL_BYTES], asked[FM_WIRE_CONTROL_BYTES];
        size_t n = fm_wire_encode(&welcome, 0, bytes, FM_WIRE_SMALL_BYTES);
        (void)!recv(fd, asked, sizeof asked, 0); /* HELLO */
        (void)!send(fd, bytes, n, MSG_NOSIGNAL);
        (void)!recv(fd, asked, sizeof asked, 0); /* OPEN */
        n = fm_wire_encode(&opened, 1, bytes, FM_WIRE_SMALL_BYTES);
        (void)!send(fd, bytes, n, MSG_NOSIGNAL);
        close(fd);
        l->n_left++;
    }
    return NULL;
}

/* Servers that bring nothing are not asked for ever, however long a consumer may look for one. */
static void a_server_that_leaves_again_and_again_is_an_error(void **state) {
    (void)state;
    char folder[200], url[256];
    fm_test_make_folder(folder, sizeof folder);
    snprintf(url, sizeof url, "unix:%s/s", folder);
    fm_address address, bound;
    leaver l = {0};
    pthread_t thread;
    assert_int_equal(fm_address_parse(url, &address, NULL), FM_OK);
    assert_int_equal(fm_address_listen(&address, &l.listening, &bound, NULL), FM_OK);
    fcntl(l.listening, F_SETFL, 0);
    assert_int_equal(pthread_create(&thread, NULL, leave_each, &l), 0);
    consumer c = {.params = stream_of(2)};
    const fm_supply_options options = options_of(url, 3600000, &c);
    fm_error error;
    fm_client_event event;
    assert_int_equal(fm_supply_open(&options, &c.params, &c.supply, &c.opened, &error), FM_OK);
    assert_int_equal(fm_supply_next(c.supply, into.bytes, sizeof into.bytes, &event, &error),
                     FM_ERR_CLOSED);
    fm_supply_close(c.supply);
    shutdown(l.listening, SHUT_RDWR);
    assert_int_equal(pthread_join(thread, NULL), 0);
    close(l.listening);
    assert_in_range(l.n_left, 2, 10);
    fm_test_remove_tree(folder);
}

static int make_certificates(void **state) {
    (void)state;
    fm_test_make_folder(made_in, sizeof made_in);
    fm_test_make_certificates(made_in, &made);
    return 0;
}

static int drop_certificates(void **state) {
    (void)state;
    fm_test_remove_tree(made_in);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_way_brings_the_same_bytes),
        cmocka_unit_test(groups_begin_at_different_servers),
        cmocka_unit_test(a_server_that_leaves_is_replaced),
        cmocka_unit_test(servers_that_all_restart_are_waited_for),
        cmocka_unit_test(without_servers_the_stream_ends),
        cmocka_unit_test(a_slow_server_is_left_for_a_quick_one),
        cmocka_unit_test(another_snapshot_is_refused),
        cmocka_unit_test(a_server_that_leaves_again_and_again_is_an_error),
        cmocka_unit_test(looking_for_servers_can_be_interrupted),
    };
    return cmocka_run_group_tests(tests, make_certificates, drop_certificates);
}
