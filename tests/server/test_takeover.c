/* A server of a cache in this process, and clients that ask for older snapshots by hash: what they
 * send while the server looks, how many may ask, and what is left when they go away. */
#include "tests/server/raw_client.h"

#include <cmocka.h>

enum { N_ASKING = 80 }; /* more than the server looks for at a time */

static char folder[200];
static fm_library *library;
static server_fixture f;
static fm_sha256 first_hash;

static int make_cache(void **state) {
    (void)state;
    fm_test_make_folder(folder, sizeof folder);
    return fm_test_shell(
        folder,
        "$FOLDMILL synth --seed 3 --chains 4 --depth 20 --max-length 60 -o data >/dev/null 2>&1 && "
        "$FOLDMILL build data --cache cache --quiet >/dev/null 2>&1 && "
        "for d in data/alignments/*; do sed -n 1,2p $d/mgnify_hits.a3m | tr A-Y C | "
        "sed 's/^>.*/>new/' >>$d/mgnify_hits.a3m; done");
}

static int drop_folder(void **state) {
    (void)state;
    fm_test_remove_tree(folder);
    return 0;
}

/* Starts a server of generation 1 that looks for newer ones only when it is asked. */
static void start(void) {
    static char path[300];
    fm_error error = {0};
    snprintf(path, sizeof path, "%s/cache", folder);
    const fm_library_cache caches[] = {{.path = path}};
    const fm_library_options options = {.cache = caches, .n_cache = 1};
    server_prepare(&f);
    if (fm_library_open(&options, &library, &error)) fail_msg("%s", error.message);
    f.options.library = library;
    f.options.linger_ms = 200;
    f.options.max_connection = 8 * N_ASKING; /* half for a peer, of which half may greet */
    if (fm_server_create(&f.options, NULL, &f.server, &error)) fail_msg("%s", error.message);
    f.tcp_url = fm_server_get_address(f.server, 1);
    assert_int_equal(pthread_create(&f.thread, NULL, server_thread, f.server), 0);
}

static void stop(void) {
    fm_server_stop(f.server);
    assert_int_equal(pthread_join(f.thread, NULL), 0);
    fm_server_destroy(f.server);
    fm_library_close(library);
    fm_test_remove_tree(f.folder);
}

static fm_sha256 hash_that_is_served(void) {
    fm_client *client = connect_to(f.unix_url);
    fm_sha256 hash = fm_client_get_welcome(client)->snapshot;
    fm_client_close(client);
    return hash;
}

/* HELLO for a snapshot by its hash. */
static size_t put_hello(uint8_t *out, size_t out_bytes, const fm_sha256 *hash) {
    fm_wire_message hello = {.kind = FM_WIRE_HELLO};
    hello.hello = (fm_wire_hello){.version_min = FM_WIRE_VERSION_MIN,
                                  .version_max = FM_WIRE_VERSION_MAX,
                                  .schema_hash = fm_schema_hash(),
                                  .agent = "raw",
                                  .snapshot = *hash};
    return fm_wire_encode(&hello, 0, out, out_bytes);
}

/* Generation 2 takes over; a client that asks for the snapshot of generation 1, and sends OPEN and
 * PING before its WELCOME, gets all its answers in order. */
static void frames_wait_while_the_server_looks(void **state) {
    (void)state;
    static fm_wire_message message;
    uint8_t frames[2048];
    start();
    first_hash = hash_that_is_served();
    assert_int_equal(
        fm_test_shell(folder, "$FOLDMILL build data --cache cache --quiet >/dev/null 2>&1"), 0);
    fm_server_reload(f.server);
    await_counter(&f, FM_COUNT_SNAPSHOTS_OPENED, 1);
    await_counter(&f, FM_COUNT_SNAPSHOTS_OLD, 0); /* nobody uses generation 1 any more */
    fm_sha256 second_hash = hash_that_is_served();
    assert_memory_not_equal(&first_hash, &second_hash, sizeof first_hash);
    int fd = raw_connect(f.unix_url);
    size_t bytes = put_hello(frames, sizeof frames, &first_hash);
    message = (fm_wire_message){.kind = FM_WIRE_OPEN, .stream = 1, .open = stream_of(2)};
    fm_wire_text(message.open.plan, sizeof message.open.plan, "tiny");
    message.open.credit_bytes = FM_LIMIT_CREDIT_BYTES;
    bytes += fm_wire_encode(&message, 1, frames + bytes, sizeof frames - bytes);
    message = (fm_wire_message){.kind = FM_WIRE_PING, .ping = 17};
    bytes += fm_wire_encode(&message, 2, frames + bytes, sizeof frames - bytes);
    raw_send(fd, frames, bytes);
    assert_true(hear(fd, FM_WIRE_WELCOME, &message));
    assert_memory_equal(&message.welcome.snapshot, &first_hash, sizeof first_hash);
    assert_true(hear(fd, FM_WIRE_OPENED, &message));
    assert_true(hear(fd, FM_WIRE_PONG, &message));
    assert_int_equal(message.ping, 17);
    await_counter(&f, FM_COUNT_SNAPSHOTS_OLD, 1);
    close(fd);
    await_counter(&f, FM_COUNT_SNAPSHOTS_OLD, 0);
    stop();
}

/* Clients that ask for snapshots which nobody has are refused, however many ask at once; half of
 * them do not wait for the answer. */
static void many_may_ask_in_vain(void **state) {
    (void)state;
    static int fds[N_ASKING];
    uint8_t frame[2048];
    start();
    for (uint32_t i = 0; i < N_ASKING; i++) {
        fm_sha256 hash = fm_sha256_of(&i, sizeof i);
        fds[i] = raw_connect(f.unix_url);
        raw_send(fds[i], frame, put_hello(frame, sizeof frame, &hash));
        if (i % 2) close(fds[i]);
    }
    /* Some may be too many for now, which says nothing about what they ask for. */
    for (uint32_t i = 0; i < N_ASKING; i += 2) {
        static fm_wire_message message;
        assert_true(hear(fds[i], FM_WIRE_ERROR, &message));
        bool is_full = message.error.status == FM_ERR_LIMIT;
        const char *words = is_full ? "looks for too many older snapshots now; try again"
                                    : "is not served, nor kept by a generation on disk";
        assert_int_equal(message.error.status, is_full ? FM_ERR_LIMIT : FM_ERR_NOT_FOUND);
        assert_non_null(strstr(message.error.text, words));
        close(fds[i]);
    }
    await_connections(&f, 0);
    await_counter(&f, FM_COUNT_SNAPSHOTS_OLD, 0);
    (void)hash_that_is_served();
    stop();
}

/* A snapshot that the server cannot look for may be there: the client is not told that it is not,
 * and comes again. The link stands for a file that cannot be read now. */
static void a_failed_look_is_no_absence(void **state) {
    (void)state;
    static fm_wire_message message;
    uint8_t frame[2048];
    start();
    const size_t bytes = put_hello(frame, sizeof frame, &first_hash);
    assert_int_equal(fm_test_shell(folder,
                                   "cd cache/generations && mv 00000001.manifest ../kept && "
                                   "ln -s nowhere 00000001.manifest"),
                     0);
    int fd = raw_connect(f.unix_url);
    raw_send(fd, frame, bytes);
    assert_true(hear(fd, FM_WIRE_ERROR, &message));
    assert_int_equal(message.error.status, FM_ERR_IO);
    assert_non_null(strstr(message.error.text, "cannot look for this snapshot on its disk"));
    close(fd);
    assert_int_equal(fm_test_shell(folder, "mv cache/kept cache/generations/00000001.manifest"), 0);
    fd = raw_connect(f.unix_url);
    raw_send(fd, frame, bytes);
    assert_true(hear(fd, FM_WIRE_WELCOME, &message));
    close(fd);
    await_counter(&f, FM_COUNT_SNAPSHOTS_OLD, 0);
    stop();
}

/* Many clients that ask for one older snapshot at once share it, whether they stay or not. */
static void one_old_snapshot_serves_all_who_ask(void **state) {
    (void)state;
    static int fds[N_ASKING];
    static fm_wire_message message;
    uint8_t frame[2048];
    start();
    for (int round = 0; round < 3; round++) {
        size_t bytes = put_hello(frame, sizeof frame, &first_hash);
        for (uint32_t i = 0; i < N_ASKING; i++) {
            fds[i] = raw_connect(f.unix_url);
            raw_send(fds[i], frame, bytes);
            if (i % 4 == 3) close(fds[i]);
        }
        for (uint32_t i = 0; i < N_ASKING; i++) {
            if (i % 4 == 3) continue;
            assert_true(hear(fds[i], FM_WIRE_WELCOME, &message));
            assert_memory_equal(&message.welcome.snapshot, &first_hash, sizeof first_hash);
            assert_true(fm_counter_read(fm_server_get_counters(f.server), FM_COUNT_SNAPSHOTS_OLD) ==
                        1);
        }
        for (uint32_t i = 0; i < N_ASKING; i++) {
            if (i % 4 != 3) close(fds[i]);
        }
        await_connections(&f, 0);
        if (round == 1) continue; /* the next ones come while it lingers */
        await_counter(&f, FM_COUNT_SNAPSHOTS_OLD, 0);
    }
    stop();
}

/* What comes before WELCOME is bounded, and a server that stops does not wait for a question. */
static void too_much_before_welcome_is_refused(void **state) {
    (void)state;
    static uint8_t frames[1 << 16];
    start();
    for (int i = 0; i < 5; i++) { /* more would use up the peer's requests */
        char text[600] = "";
        int fd = raw_connect(f.unix_url);
        size_t bytes = put_hello(frames, sizeof frames, &first_hash);
        for (uint64_t n = 1; bytes + 64 < sizeof frames; n++) {
            const fm_wire_message pong = {.kind = FM_WIRE_PONG, .ping = n};
            bytes += fm_wire_encode(&pong, n, frames + bytes, sizeof frames - bytes);
        }
        (void)!send(fd, frames, bytes, MSG_NOSIGNAL);
        shutdown(fd, SHUT_WR);
        assert_true(is_closed(fd, text, sizeof text));
        close(fd);
    }
    await_connections(&f, 0);
    int fd = raw_connect(f.unix_url);
    raw_send(fd, frames, put_hello(frames, sizeof frames, &first_hash));
    stop();
    close(fd);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_wait_while_the_server_looks),
        cmocka_unit_test(many_may_ask_in_vain),
        cmocka_unit_test(a_failed_look_is_no_absence),
        cmocka_unit_test(one_old_snapshot_serves_all_who_ask),
        cmocka_unit_test(too_much_before_welcome_is_refused),
    };
    return cmocka_run_group_tests(tests, make_cache, drop_folder);
}
