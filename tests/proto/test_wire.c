/* Frames: each kind survives encoding and decoding, every truncation and every flipped bit is
 * refused, and ranges are checked. */
#include "proto/address.h"
#include "proto/base/histogram.h"
#include "proto/step_cycles.h"
#include "proto/wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static fm_wire_open lawful_open(void) {
    fm_wire_open params = {.plan = "af2-initial",
                           .crop_size = 64,
                           .seed = UINT64_MAX,
                           .first_step = 10,
                           .n_step = 100,
                           .group = 1,
                           .n_group = 4,
                           .order = FM_WIRE_BOUNDED,
                           .window = 32,
                           .reach = 40,
                           .policy = FM_WIRE_SKIP,
                           .max_template_date = 20180430,
                           .credit_items = 8,
                           .credit_bytes = 1 << 20,
                           .token = {.epoch = 3, .bitmap_bytes = 2, .watermark = 123}};
    params.token.bitmap[0] = 6;
    params.token.bitmap[1] = 1;
    return params;
}

/* One message of every kind. Returns their number. */
static size_t make_messages(fm_wire_message out[16]) {
    size_t n = 0;
    out[n++] = (fm_wire_message){.kind = FM_WIRE_HELLO,
                                 .hello = {.version_min = 1,
                                           .version_max = 3,
                                           .schema_hash = 7,
                                           .snapshot = {{1, 2, 3}},
                                           .snapshot_name = "all",
                                           .agent = "test"}};
    out[n++] = (fm_wire_message){.kind = FM_WIRE_WELCOME,
                                 .welcome = {.version = 1,
                                             .schema_hash = 7,
                                             .n_chain = 22,
                                             .heartbeat_ms = 5000,
                                             .max_stream = 16,
                                             .snapshot_name = "all",
                                             .agent = "server"}};
    out[n++] = (fm_wire_message){.kind = FM_WIRE_OPEN, .stream = 9, .open = lawful_open()};
    out[n++] = (fm_wire_message){.kind = FM_WIRE_OPENED,
                                 .stream = 9,
                                 .opened = {.n_sample = 25,
                                            .max_sample_bytes = 1 << 20,
                                            .global_batch = 4,
                                            .crop_size = 64,
                                            .max_cycle = 4,
                                            .samples_per_step = 1}};
    out[n++] = (fm_wire_message){.kind = FM_WIRE_CREDIT, .stream = 9, .credit = {2, 1 << 22}};
    out[n++] = (fm_wire_message){.kind = FM_WIRE_PING, .ping = 77};
    out[n++] = (fm_wire_message){.kind = FM_WIRE_PONG, .ping = 77};
    out[n++] = (fm_wire_message){.kind = FM_WIRE_END, .stream = 9, .end = {FM_WIRE_SHUTDOWN, 17}};
    out[n++] = (fm_wire_message){
        .kind = FM_WIRE_ERROR,
        .stream = 9,
        .error = {.status = FM_ERR_CORRUPT, .scope = 1, .index = 5, .text = "a.sto:4:1: bad"}};
    out[n++] = (fm_wire_message){.kind = FM_WIRE_CLOSE, .stream = 9};
    out[n++] = (fm_wire_message){.kind = FM_WIRE_AUTH, .auth = {.secret = "u6Fh3jsQ0pXw9ZkT"}};
    return n;
}

static fm_status decode_frame(const uint8_t *frame, size_t bytes, fm_wire_message *ret_message,
                              fm_error *reterr) {
    fm_wire_header header;
    if (bytes < FM_WIRE_HEADER_BYTES) return FM_ERR_PROTOCOL;
    fm_status status = fm_wire_header_decode(frame, &header, reterr);
    if (status) return status;
    if (header.body_bytes != bytes - FM_WIRE_HEADER_BYTES) return FM_ERR_PROTOCOL;
    fm_bytes body = {frame + FM_WIRE_HEADER_BYTES, header.body_bytes};
    return fm_wire_decode(&header, body, ret_message, reterr);
}

static void every_kind_survives_a_round_trip(void **state) {
    (void)state;
    fm_wire_message messages[16];
    size_t n = make_messages(messages);
    assert_int_equal(n, FM_WIRE_N_KIND - 2); /* all but SAMPLE; there is no kind 0 */
    for (size_t i = 0; i < n; i++) {
        uint8_t frame[FM_WIRE_CONTROL_BYTES], again[FM_WIRE_CONTROL_BYTES];
        size_t bytes = fm_wire_encode(&messages[i], 5 + i, frame, sizeof frame);
        fm_wire_message got;
        assert_int_equal(decode_frame(frame, bytes, &got, NULL), FM_OK);
        assert_int_equal(fm_wire_encode(&got, 5 + i, again, sizeof again), bytes);
        assert_memory_equal(frame, again, bytes);
        assert_int_equal(got.kind, messages[i].kind);
        assert_int_equal(got.stream, messages[i].stream);
    }
}

static void fields_arrive(void **state) {
    (void)state;
    fm_wire_message sent = {.kind = FM_WIRE_OPEN, .stream = 3, .open = lawful_open()}, got;
    uint8_t frame[FM_WIRE_CONTROL_BYTES];
    size_t bytes = fm_wire_encode(&sent, 0, frame, sizeof frame);
    assert_int_equal(decode_frame(frame, bytes, &got, NULL), FM_OK);
    assert_string_equal(got.open.plan, "af2-initial");
    assert_int_equal(got.open.seed, UINT64_MAX);
    assert_int_equal(got.open.window, 32);
    assert_int_equal(got.open.reach, 40);
    assert_int_equal(got.open.max_template_date, 20180430);
    assert_int_equal(got.open.token.watermark, 123);
    assert_true(fm_token_has(&got.open.token, 122));
    assert_false(fm_token_has(&got.open.token, 123));
    assert_true(fm_token_has(&got.open.token, 124));
    assert_true(fm_token_has(&got.open.token, 131));
    assert_false(fm_token_has(&got.open.token, 132));
}

/* The bytes of one frame, written down: the format is what docs/reference/wire.md says. */
static void a_frame_byte_for_byte(void **state) {
    (void)state;
    static const uint8_t expected[] = {
        'F', 'O', 'M', '1', 1, 5, 0, 0, 9, 0, 0, 0, 16, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0,
    };
    static const uint8_t body[] = {3, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0};
    fm_wire_message credit = {.kind = FM_WIRE_CREDIT, .stream = 9, .credit = {3, 256}};
    uint8_t frame[FM_WIRE_SMALL_BYTES];
    assert_int_equal(fm_wire_encode(&credit, 2, frame, sizeof frame), 48);
    assert_memory_equal(frame, expected, sizeof expected);
    assert_memory_equal(frame + 32, body, sizeof body);
    uint32_t body_check, header_check;
    memcpy(&body_check, frame + 24, 4);
    memcpy(&header_check, frame + 28, 4);
    assert_int_equal(body_check, (uint32_t)fm_xxh3(body, sizeof body));
    assert_int_equal(header_check, (uint32_t)fm_xxh3(frame, 28));
}

static void every_cut_and_flip_is_refused(void **state) {
    (void)state;
    fm_wire_message messages[16];
    size_t n = make_messages(messages);
    for (size_t i = 0; i < n; i++) {
        uint8_t frame[FM_WIRE_CONTROL_BYTES];
        size_t bytes = fm_wire_encode(&messages[i], i, frame, sizeof frame);
        fm_wire_message got;
        for (size_t cut = 0; cut < bytes; cut++)
            assert_int_not_equal(decode_frame(frame, cut, &got, NULL), FM_OK);
        for (size_t bit = 0; bit < bytes * 8; bit++) {
            frame[bit / 8] ^= (uint8_t)(1u << bit % 8);
            assert_int_not_equal(decode_frame(frame, bytes, &got, NULL), FM_OK);
            frame[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
    }
}

/* Bodies cut or lengthened with checksums that are right. */
static void every_sealed_cut_is_refused(void **state) {
    (void)state;
    fm_wire_message messages[16];
    size_t n = make_messages(messages);
    for (size_t i = 0; i < n; i++) {
        uint8_t frame[FM_WIRE_CONTROL_BYTES + 1] = {0};
        size_t bytes = fm_wire_encode(&messages[i], i, frame, sizeof frame) - FM_WIRE_HEADER_BYTES;
        for (size_t size = 0; size <= bytes + 1; size++) {
            fm_wire_header header = {.kind = messages[i].kind,
                                     .stream = messages[i].stream,
                                     .body_bytes = (uint32_t)size};
            header.body_check = (uint32_t)fm_xxh3(frame + FM_WIRE_HEADER_BYTES, size);
            fm_wire_message got;
            fm_bytes body = {frame + FM_WIRE_HEADER_BYTES, size};
            fm_status status = fm_wire_decode(&header, body, &got, NULL);
            assert_int_equal(!status, size == bytes);
        }
    }
}

static void headers_are_refused_with_a_reason(void **state) {
    (void)state;
    static const struct {
        fm_wire_header header;
        const char *words;
    } cases[] = {
        {{.kind = UINT8_MAX}, "frame layout 1, kind 255, flags 0 are not known"},
        {{.kind = FM_WIRE_HELLO, .stream = 1}, "HELLO on stream 1"},
        {{.kind = FM_WIRE_OPEN}, "OPEN on stream 0"},
        {{.kind = FM_WIRE_CREDIT, .stream = 1, .body_bytes = 17}, "CREDIT of 17 bytes, at most 16"},
        {{.kind = FM_WIRE_SAMPLE, .stream = 1, .body_bytes = (1792u << 20) + 1},
         "SAMPLE of 1879048193 bytes, at most 1879048192"},
        {{.kind = FM_WIRE_SAMPLE, .stream = 1, .body_check = 1},
         "SAMPLE with a body check in its header, which must be 0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint8_t bytes[FM_WIRE_HEADER_BYTES];
        fm_wire_header got;
        fm_error error = {0};
        fm_wire_header_encode(&cases[i].header, bytes);
        assert_int_not_equal(fm_wire_header_decode(bytes, &got, &error), FM_OK);
        assert_string_equal(error.message, cases[i].words);
    }
}

static void streams_out_of_range_are_refused(void **state) {
    (void)state;
    fm_wire_open good = lawful_open(), bad[14];
    size_t n = 0;
    assert_int_equal(fm_wire_open_check(&good, NULL), FM_OK);
    for (good.max_template_date = 0; good.max_template_date <= 2; good.max_template_date++)
        assert_int_equal(fm_wire_open_check(&good, NULL), FM_OK);
    good = lawful_open();
    for (size_t i = 0; i < 14; i++)
        bad[i] = good;
    bad[n++].n_group = 0;
    bad[n++].group = 4;
    bad[n++].order = FM_WIRE_FREE; /* with a window */
    bad[n++].window = 0;
    bad[n++].window = FM_LIMIT_WINDOW + 1;
    bad[n++].reach = FM_LIMIT_FREE_WINDOW + 1;
    bad[n++].policy = 0;
    bad[n++].first_step = FM_LIMIT_STEP + 1;
    bad[n++].global_batch = FM_LIMIT_GLOBAL_BATCH + 1;
    bad[n++].credit_bytes = FM_LIMIT_CREDIT_BYTES + 1;
    bad[n++].token.bitmap[0] = 7;
    bad[n++].token.bitmap[1] = 0;
    bad[n++].plan[0] = '\0';
    bad[n++].max_template_date = 3;
    assert_int_equal(n, 14);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(fm_wire_open_check(&bad[i], NULL), FM_ERR_USAGE);
}

/* Every sample has as many cycles as each step in which it can be used, and no more than the most
 * of them. */
static void samples_carry_the_cycles_within_reach(void **state) {
    (void)state;
    enum { BATCH = 6, MAX_CYCLE = 4, N_STEP = 40 };
    fm_wire_open params = lawful_open();
    for (uint32_t reach = 0; reach <= 9; reach++) {
        params.reach = reach;
        for (uint64_t index = 0; index < (uint64_t)N_STEP * BATCH; index++) {
            uint32_t slot = (uint32_t)(index % BATCH), most = 0;
            if (slot % params.n_group != params.group) continue;
            int64_t per_step = fm_wire_open_per_step(&params, BATCH);
            int64_t place = (int64_t)(index / BATCH) * per_step + slot / params.n_group;
            assert_int_equal(fm_wire_open_place(&params, BATCH, index), place);
            for (int64_t used = place - reach; used <= place + reach; used++) {
                if (used < 0) continue;
                uint64_t step = (uint64_t)(used / per_step);
                uint32_t n = fm_step_cycles(params.seed, step, MAX_CYCLE);
                most = n > most ? n : most;
            }
            assert_int_equal(fm_wire_open_cycles(&params, BATCH, MAX_CYCLE, index), most);
        }
    }
}

static void orders_parse(void **state) {
    (void)state;
    uint32_t order, window;
    assert_int_equal(fm_wire_order_parse("strict", &order, &window, NULL), FM_OK);
    assert_int_equal(order, FM_WIRE_STRICT);
    assert_int_equal(fm_wire_order_parse("bounded:32", &order, &window, NULL), FM_OK);
    assert_int_equal(order, FM_WIRE_BOUNDED);
    assert_int_equal(window, 32);
    assert_int_equal(fm_wire_order_parse("free", &order, &window, NULL), FM_OK);
    assert_int_equal(order, FM_WIRE_FREE);
    assert_int_equal(window, 0);
    const fm_wire_open one = {.order = order, .n_group = 1},
                       many = {.order = order, .n_group = 128};
    assert_int_equal(fm_wire_open_window(&one, 8), FM_LIMIT_FREE_WINDOW);
    assert_int_equal(fm_wire_open_window(&many, 128), (65536 - 128) / 128 / 2);
    static const char *const bad[] = {
        "", "fre", "bounded", "bounded:", "bounded:0", "bounded:-1", "bounded:32x", "bounded:1025"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(fm_wire_order_parse(bad[i], &order, &window, NULL), FM_ERR_USAGE);
}

static uint64_t index_at(const fm_wire_open *params, uint32_t batch, uint64_t place) {
    uint64_t per_step = fm_wire_open_per_step(params, batch);
    return place / per_step * batch + params->group + place % per_step * params->n_group;
}

/* When all samples of a window came but the first, the token names them. */
static void tokens_name_a_whole_window(void **state) {
    (void)state;
    static const struct {
        uint32_t batch, n_group, asked, window;
    } cases[] = {{1, 1, 32, 32},        {256, 1, 1024, 1024}, {128, 128, 1024, 511},
                 {2048, 2048, 32, 31},  {2048, 2048, 16, 16}, {4096, 2048, 32, 30},
                 {31, 16, 1024, 1024},  {4095, 1000, 64, 60}, {32768, 32768, 32, 1},
                 {65536, 65536, 32, 0}, {65536, 1, 1024, 0}};
    static fm_token token;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint32_t batch = cases[i].batch, n_group = cases[i].n_group;
        fm_wire_open params = {
            .order = FM_WIRE_BOUNDED, .window = cases[i].asked, .n_group = n_group};
        assert_int_equal(fm_wire_open_window(&params, batch), cases[i].window);
        for (params.group = 0; params.group < n_group; params.group += n_group / 3 + 1) {
            for (uint64_t missing = 0; missing < 7; missing++) {
                token = (fm_token){.watermark = index_at(&params, batch, missing)};
                uint64_t last = index_at(&params, batch, missing + cases[i].window);
                if (cases[i].window == 0) continue;
                assert_int_equal(fm_wire_open_place(&params, batch, last),
                                 missing + cases[i].window);
                assert_int_equal(fm_token_deliver(&token, last, NULL), FM_OK);
            }
        }
    }
}

/* Compares the next sample and the count with a walk over all indices. */
static void check_next(const fm_wire_open *params, uint32_t batch) {
    uint64_t end = (params->first_step + params->n_step) * batch, next = UINT64_MAX, n = 0;
    for (uint64_t index = end; index > 0;) {
        index--;
        bool is_wanted = fm_wire_open_wants(params, batch, index);
        if (is_wanted) next = index;
        n += is_wanted;
        uint64_t found = fm_wire_open_next(params, batch, index);
        if (next < end) assert_int_equal(found, next);
        if (next >= end) assert_true(found >= end);
    }
    assert_int_equal(fm_wire_open_count(params, batch), n);
}

static void the_next_sample_is_found(void **state) {
    (void)state;
    static fm_wire_open params;
    static const uint32_t shapes[][2] = {{1, 1}, {8, 1}, {8, 3}, {8, 8}, {7, 2}, {100, 64}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        uint32_t batch = shapes[i][0], n_group = shapes[i][1];
        for (uint32_t group = 0; group < n_group; group++) {
            params =
                (fm_wire_open){.first_step = 2, .n_step = 9, .group = group, .n_group = n_group};
            check_next(&params, batch);
            params.token.watermark = 3 * batch + batch / 2;
            for (uint64_t k = 1; k < 5 * (uint64_t)batch; k += 1 + k % 3) {
                uint64_t index = params.token.watermark + k;
                assert_int_equal(fm_token_deliver(&params.token, index, NULL), FM_OK);
            }
            check_next(&params, batch);
        }
    }
}

/* A walk over the other groups' samples would take minutes here. */
static void groups_cost_nothing(void **state) {
    (void)state;
    static fm_wire_open params = {.n_step = 1 << 20, .group = 65535, .n_group = 65536};
    uint64_t index = 0;
    for (uint64_t i = 0; i < 1 << 20; i++) {
        index = fm_wire_open_next(&params, 65536, index);
        assert_int_equal(index, i * 65536 + 65535);
        index++;
    }
}

static void texts_are_made_plain(void **state) {
    (void)state;
    char out[6];
    fm_wire_text(out, sizeof out, "a\x1b[31m");
    assert_string_equal(out, "a?[31");
    fm_wire_text(out, sizeof out,
                 "a\xc2\x9b"
                 "2J"); /* U+009B is as good as ESC [ */
    assert_string_equal(out, "a??2J");
    fm_wire_text(out, sizeof out, "\x9b-\xc3\x85\xc3\x85"); /* cut in the middle of a character */
    assert_string_equal(out, "?-\xc3\x85?");
}

/* A peer's text with a control character, or that is not UTF-8, is refused. */
static void texts_of_peers_are_plain(void **state) {
    (void)state;
    static const struct {
        const char *text;
        bool is_plain;
    } cases[] = {{"abcd", true},     {"\xc3\x85xx", true}, {"\xc2\x9b[x", false},
                 {"\x9bxxx", false}, {"xxx\xc3", false},   {"a\x1b[m", false},
                 {"\x7fxxx", false}, {"\xc2\xa0xx", true}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        static fm_wire_message message, back;
        uint8_t frame[FM_WIRE_SMALL_BYTES];
        fm_wire_header header;
        message = (fm_wire_message){.kind = FM_WIRE_ERROR,
                                    .error = {.status = 1, .scope = 3, .text = "abcd"}};
        size_t bytes = fm_wire_encode(&message, 0, frame, sizeof frame);
        memcpy(frame + bytes - 4, cases[i].text, 4);
        assert_int_equal(fm_wire_header_decode(frame, &header, NULL), FM_OK);
        fm_bytes body = {frame + FM_WIRE_HEADER_BYTES, header.body_bytes};
        header.body_check = (uint32_t)fm_xxh3(body.data, body.size);
        fm_status status = fm_wire_decode(&header, body, &back, NULL);
        assert_int_equal(status, cases[i].is_plain ? FM_OK : FM_ERR_PROTOCOL);
    }
}

static void tokens_follow_any_order(void **state) {
    (void)state;
    static fm_token token; /* 8 KiB */
    memset(&token, 0, sizeof token);
    for (uint64_t base = 0; base < 2000; base += 20) { /* each 20 backwards */
        for (uint64_t i = 20; i-- > 0;) {
            assert_false(fm_token_has(&token, base + i));
            assert_int_equal(fm_token_deliver(&token, base + i, NULL), FM_OK);
            assert_true(fm_token_has(&token, base + i));
            assert_true(fm_token_is_canonical(&token));
        }
        assert_int_equal(token.watermark, base + 20);
        assert_int_equal(token.bitmap_bytes, 0);
    }
    assert_int_equal(fm_token_deliver(&token, 7, NULL), FM_ERR_EXISTS);
    assert_int_equal(fm_token_deliver(&token, 2000 + 65536, NULL), FM_ERR_LIMIT);
    assert_int_equal(fm_token_deliver(&token, 2000 + 65535, NULL), FM_OK);
    assert_int_equal(token.bitmap_bytes, FM_LIMIT_TOKEN_BYTES);
    assert_int_equal(fm_token_deliver(&token, 2000, NULL), FM_OK);
    assert_true(fm_token_has(&token, 2000 + 65535));
    assert_false(fm_token_has(&token, 2000 + 65534));
}

static void addresses_parse_and_print(void **state) {
    (void)state;
    static const char *const good[] = {"unix:/tmp/x.sock", "tcp://localhost:7420",
                                       "tcp://[::1]:0",    "tcp://10.0.0.1:65535",
                                       "tls://h:7420",     "tls://[::1]:1"};
    static const char *const bad[] = {"",           "/tmp/x",      "unix:",      "tcp://",
                                      "tcp://h",    "tcp://:1",    "tcp://h:",   "tcp://h:65536",
                                      "tcp://h:1x", "tcp://::1:5", "tcp://[]:1", "http://h:1"};
    char text[FM_ADDRESS_TEXT_BYTES];
    fm_address address;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_int_equal(fm_address_parse(good[i], &address, NULL), FM_OK);
        assert_string_equal(fm_address_format(&address, text), good[i]);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(fm_address_parse(bad[i], &address, NULL), FM_ERR_USAGE);
    memset(text, 'x', 150);
    memcpy(text, "unix:", 5);
    text[150] = '\0';
    assert_int_equal(fm_address_parse(text, &address, NULL), FM_ERR_USAGE);
}

static void percentiles_are_close_and_never_low(void **state) {
    (void)state;
    static fm_histogram histogram;
    memset(&histogram, 0, sizeof histogram);
    assert_int_equal(fm_histogram_percentile(&histogram, 500), 0);
    for (uint64_t i = 1; i <= 100000; i++)
        fm_histogram_add(&histogram, i * 1000);
    for (uint32_t p = 1; p <= 1000; p++) {
        uint64_t truth = (uint64_t)p * 100 * 1000, got = fm_histogram_percentile(&histogram, p);
        assert_true(got >= truth && got <= truth + truth / 16);
    }
    assert_int_equal(fm_histogram_percentile(&histogram, 1000), 100000000);
    fm_histogram_add(&histogram, UINT64_MAX);
    fm_histogram_add(&histogram, 0);
    assert_int_equal(fm_histogram_percentile(&histogram, 1000), UINT64_MAX);
    assert_int_equal(fm_histogram_percentile(&histogram, 0), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_survives_a_round_trip),
        cmocka_unit_test(fields_arrive),
        cmocka_unit_test(a_frame_byte_for_byte),
        cmocka_unit_test(every_cut_and_flip_is_refused),
        cmocka_unit_test(every_sealed_cut_is_refused),
        cmocka_unit_test(headers_are_refused_with_a_reason),
        cmocka_unit_test(streams_out_of_range_are_refused),
        cmocka_unit_test(samples_carry_the_cycles_within_reach),
        cmocka_unit_test(orders_parse),
        cmocka_unit_test(tokens_name_a_whole_window),
        cmocka_unit_test(the_next_sample_is_found),
        cmocka_unit_test(groups_cost_nothing),
        cmocka_unit_test(texts_are_made_plain),
        cmocka_unit_test(texts_of_peers_are_plain),
        cmocka_unit_test(tokens_follow_any_order),
        cmocka_unit_test(addresses_parse_and_print),
        cmocka_unit_test(percentiles_are_close_and_never_low),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
