/* The trainer's loader against a real server: order, waits, ends, losses of the server, and closing
 * at any moment. It is among the tests of the server because it needs their fixture. */
#include "tests/server/server_fixture.h"

#include "proto/schema.h"
#include "trainer/data/loader.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static fm_loader *open_loader(server_fixture *f, uint64_t n_step, uint32_t n_slab) {
    fm_loader_options options = {.supply = {.client = {.url = f->unix_url, .agent = "loader"}},
                                 .stream = stream_of(n_step),
                                 .n_slab = n_slab};
    fm_loader *loader = NULL;
    fm_error error = {0};
    if (fm_loader_open(&options, &loader, &error)) fail_msg("%s", error.message);
    return loader;
}

/* Waits for the next sample. */
static fm_status next_of(fm_loader *loader, fm_loaded *ret_loaded, fm_error *reterr) {
    bool is_ready;
    return fm_loader_next(loader, UINT32_MAX, &is_ready, ret_loaded, reterr);
}

static void every_sample_arrives_once_and_in_order(void **state) {
    (void)state;
    /* 1,024 of the largest frames are more than the credit in bytes that a stream can have. */
    static const uint32_t n_slab[] = {2, 3, 8, 1024};
    for (size_t k = 0; k < sizeof n_slab / sizeof n_slab[0]; k++) {
        server_fixture f;
        server_prepare(&f);
        server_start(&f);
        fm_loader *loader = open_loader(&f, 5, n_slab[k]);
        fm_loaded loaded;
        fm_error error = {0};
        for (uint64_t i = 0; i < 5 * f.test.global_batch; i++) {
            assert_int_equal(next_of(loader, &loaded, &error), FM_OK);
            assert_int_equal(loaded.sample->index, i);
            const fm_tensor_view *aatype = fm_sample_find(loaded.sample, FM_T_AATYPE, FM_SHARED);
            assert_int_equal(aatype->shape[0], f.test.shape.n_res);
            fm_loader_release(loader, &loaded);
        }
        assert_int_equal(next_of(loader, &loaded, &error), FM_ERR_CLOSED);
        assert_string_equal(error.message, "stream ended");
        fm_loader_stats stats = fm_loader_get_stats(loader);
        assert_int_equal(stats.n_sample, 40);
        assert_int_equal(stats.ready_wait_ns.n, 40);
        assert_int_equal(stats.bytes, 40 * fm_test_source_sample_bytes(&f.test));
        fm_loader_close(loader);
        server_finish(&f);
    }
}

/* Samples that are held keep their bytes while others arrive. */
static void held_samples_stay_unchanged(void **state) {
    (void)state;
    server_fixture f;
    server_prepare(&f);
    server_start(&f);
    fm_loader *loader = open_loader(&f, 0, 4);
    fm_loaded held[3], loaded;
    uint64_t hash[3];
    for (int i = 0; i < 3; i++) {
        assert_int_equal(next_of(loader, &held[i], NULL), FM_OK);
        const fm_tensor_view *msa = fm_sample_find(held[i].sample, FM_T_MSA, 0);
        hash[i] = fm_xxh3(msa->data, msa->bytes);
    }
    for (uint64_t i = 3; i < 40; i++) {
        assert_int_equal(next_of(loader, &loaded, NULL), FM_OK);
        assert_int_equal(loaded.sample->index, i);
        fm_loader_release(loader, &loaded);
    }
    for (int i = 0; i < 3; i++) {
        const fm_tensor_view *msa = fm_sample_find(held[i].sample, FM_T_MSA, 0);
        assert_int_equal(held[i].sample->index, i);
        assert_true(fm_xxh3(msa->data, msa->bytes) == hash[i]);
        fm_loader_release(loader, &held[i]);
    }
    fm_loader_close(loader);
    server_finish(&f);
}

static void a_failing_sample_is_reported_by_the_servers_words(void **state) {
    (void)state;
    server_fixture f;
    server_prepare(&f);
    f.test.fail_every = 7;
    server_start(&f);
    fm_loader_options options = {
        .supply = {.client = {.url = f.unix_url}}, .stream = stream_of(2), .n_slab = 2};
    options.stream.first_step = 1; /* index 8; 14 is the first that cannot be made */
    fm_loader *loader = NULL;
    fm_error error = {0};
    assert_int_equal(fm_loader_open(&options, &loader, &error), FM_OK);
    fm_loaded loaded;
    fm_status status = FM_OK;
    uint64_t n = 0;
    while (!(status = next_of(loader, &loaded, &error))) {
        n++;
        fm_loader_release(loader, &loaded);
    }
    assert_int_equal(n, 6);
    assert_int_not_equal(status, FM_ERR_CLOSED);
    assert_true(strlen(error.message) > 0);
    fm_loader_close(loader);
    server_finish(&f);
}

/* A server of one connection that sends WELCOME and OPENED in answer to anything. */
typedef struct liar {
    int listening;
    fm_wire_opened opened;
} liar;

static void *lie(void *argument) {
    const liar *l = argument;
    int fd = accept(l->listening, NULL, NULL);
    uint8_t bytes[2 * FM_WIRE_SMALL_BYTES];
    const fm_wire_message welcome = {
        .kind = FM_WIRE_WELCOME,
        .welcome = {.version = FM_WIRE_VERSION_MAX, .schema_hash = fm_schema_hash()}};
    const fm_wire_message opened = {.kind = FM_WIRE_OPENED, .stream = 1, .opened = l->opened};
    size_t n = fm_wire_encode(&welcome, 0, bytes, FM_WIRE_SMALL_BYTES);
    n += fm_wire_encode(&opened, 1, bytes + n, FM_WIRE_SMALL_BYTES);
    (void)!send(fd, bytes, n, MSG_NOSIGNAL);
    while (recv(fd, bytes, sizeof bytes, 0) > 0) { /* until the client is gone */
    }
    close(fd);
    return NULL;
}

static void meet_liar(const fm_wire_opened *opened, fm_error *error) {
    char folder[200], url[256];
    fm_test_make_folder(folder, sizeof folder);
    snprintf(url, sizeof url, "unix:%s/s", folder);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%.100s", url + strlen("unix:"));
    liar l = {.listening = socket(AF_UNIX, SOCK_STREAM, 0), .opened = *opened};
    assert_int_equal(bind(l.listening, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(l.listening, 1), 0);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, lie, &l), 0);
    fm_loader_options options = {
        .supply = {.client = {.url = url}}, .stream = stream_of(2), .n_slab = 2};
    fm_loader *loader = NULL;
    assert_int_equal(fm_loader_open(&options, &loader, error), FM_ERR_PROTOCOL);
    pthread_join(thread, NULL);
    close(l.listening);
    fm_test_remove_tree(folder);
}

/* A step divides by both numbers and waits for the first. */
static void a_server_that_announces_nothing_is_refused(void **state) {
    (void)state;
    fm_error error;
    fm_wire_opened opened = {
        .n_sample = 4, .max_sample_bytes = 4096, .global_batch = 2, .epoch_samples = 9};
    meet_liar(&opened, &error);
    assert_string_equal(error.message,
                        "the server opened a stream with samples per step 0, expected 2");
    opened.samples_per_step = 2;
    opened.epoch_samples = 0;
    meet_liar(&opened, &error);
}

static void closing_never_waits_for_the_server(void **state) {
    (void)state;
    server_fixture f;
    server_prepare(&f);
    f.test.slow_every = 1;
    f.test.slow_ms = 300;
    server_start(&f);
    for (int i = 0; i < 3; i++)
        fm_loader_close(open_loader(&f, 0, 2)); /* nothing taken at all */
    fm_loader *loader = open_loader(&f, 0, 2);
    fm_loaded loaded;
    assert_int_equal(next_of(loader, &loaded, NULL), FM_OK);
    fm_loader_close(loader); /* one held, more on their way */
    server_finish(&f);
}

static void a_vanished_server_ends_the_stream(void **state) {
    (void)state;
    server_fixture f;
    server_prepare(&f);
    server_start(&f);
    fm_loader *loader = open_loader(&f, 0, 2);
    fm_loaded loaded;
    assert_int_equal(next_of(loader, &loaded, NULL), FM_OK);
    fm_loader_release(loader, &loaded);
    server_finish(&f);
    fm_status status;
    for (int i = 0; !(status = next_of(loader, &loaded, NULL)) && i < 100; i++)
        fm_loader_release(loader, &loaded);
    assert_int_equal(status, FM_ERR_CLOSED);
    fm_loader_close(loader);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_sample_arrives_once_and_in_order),
        cmocka_unit_test(held_samples_stay_unchanged),
        cmocka_unit_test(a_failing_sample_is_reported_by_the_servers_words),
        cmocka_unit_test(a_server_that_announces_nothing_is_refused),
        cmocka_unit_test(closing_never_waits_for_the_server),
        cmocka_unit_test(a_vanished_server_ends_the_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
