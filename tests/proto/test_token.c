/* The text of a resume token: round trips, and the refusal of anything else. */
#include "proto/token.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void texts_come_back(void **state) {
    (void)state;
    static char text[FM_TOKEN_TEXT_BYTES], again[FM_TOKEN_TEXT_BYTES];
    static fm_token token, back;
    fm_token_format(&token, text);
    assert_string_equal(text, "0 0 -");
    for (uint64_t i = 0; i < 3000; i++) {
        uint64_t index = i % 7 == 3 ? i + 40 : i; /* delivered out of order */
        if (!fm_token_has(&token, index)) {
            assert_int_equal(fm_token_deliver(&token, index, NULL), FM_OK);
        }
        if (i % 100) continue;
        token.epoch = (uint32_t)(i / 1000);
        fm_token_format(&token, text);
        assert_int_equal(fm_token_parse(text, &back, NULL), FM_OK);
        fm_token_format(&back, again);
        assert_string_equal(text, again);
        assert_int_equal(back.watermark, token.watermark);
        assert_memory_equal(back.bitmap, token.bitmap, token.bitmap_bytes);
    }
}

static void other_texts_are_refused(void **state) {
    (void)state;
    static const char *const texts[] = {"",       "0",        "0 1",    "x 1 -",
                                        "0 x -",  "0 1 ",     "0 1 0",  "0 1 0g",
                                        "0 1 01", "0 1 0200", "0 1 --", "0 1 FF"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        fm_token token;
        fm_error error;
        assert_int_equal(fm_token_parse(texts[i], &token, &error), FM_ERR_FORMAT);
        assert_non_null(strstr(error.message, "is not the text of a resume token"));
    }
}

/* Advancing keeps what was delivered beyond the new watermark, wherever that is. */
static void advancing_keeps_what_is_beyond(void **state) {
    (void)state;
    static const uint64_t delivered[] = {3, 9, 17, 40, 41, 65535};
    enum { N = sizeof delivered / sizeof delivered[0] };
    static const uint64_t steps[] = {0, 1, 2, 10, 16, 18, 39, 42, 65534, 65536, 70000, 200000};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        static fm_token token;
        memset(&token, 0, sizeof token);
        for (size_t k = 0; k < N; k++)
            assert_int_equal(fm_token_deliver(&token, delivered[k], NULL), FM_OK);
        fm_token_advance(&token, steps[i]);
        assert_int_equal(token.watermark, steps[i]);
        assert_true(fm_token_is_canonical(&token));
        for (size_t k = 0; k < N; k++)
            assert_true(fm_token_has(&token, delivered[k]));
        uint64_t n_beyond = 0, n_expected = 0;
        for (uint64_t index = steps[i]; index < steps[i] + 65536; index++)
            n_beyond += fm_token_has(&token, index);
        for (size_t k = 0; k < N; k++)
            n_expected += delivered[k] >= steps[i];
        assert_int_equal(n_beyond, n_expected);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_come_back),
        cmocka_unit_test(other_texts_are_refused),
        cmocka_unit_test(advancing_keeps_what_is_beyond),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
