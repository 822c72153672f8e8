/* test_hash.c: XXH3-64 and SHA-256 against published answers, in one call and in pieces. */
#include "proto/base/hash.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

/* FIPS 180-2, appendix B. */
static const struct {
    const char *text, *digest;
} sha256_answers[] = {
    {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
    {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
    {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
     "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
};

static void sha256_known_answers(void **state) {
    (void)state;
    char hex[FM_SHA256_HEX];
    for (size_t i = 0; i < sizeof sha256_answers / sizeof sha256_answers[0]; i++) {
        const char *text = sha256_answers[i].text;
        fm_sha256 hash = fm_sha256_of(text, strlen(text));
        fm_sha256_format(&hash, hex);
        assert_string_equal(hex, sha256_answers[i].digest);
        fm_sha256_state *pieces = fm_sha256_create();
        for (const char *p = text; *p; p++)
            fm_sha256_update(pieces, p, 1);
        fm_sha256 again = fm_sha256_digest(pieces);
        fm_sha256_destroy(pieces);
        assert_memory_equal(&again, &hash, sizeof hash);
    }
}

static void sha256_text(void **state) {
    (void)state;
    fm_sha256 hash, kept;
    char hex[FM_SHA256_HEX];
    memcpy(hex, sha256_answers[1].digest, 65);
    assert_int_equal(fm_sha256_parse(hex, 64, &hash), FM_OK);
    fm_sha256 abc = fm_sha256_of("abc", 3);
    assert_memory_equal(&hash, &abc, sizeof hash);
    assert_int_equal(fm_sha256_parse("", 0, &hash), FM_ERR_FORMAT);
    assert_int_equal(fm_sha256_parse(hex, 63, &hash), FM_ERR_FORMAT);
    kept = hash;
    hex[63] = 'g';
    assert_int_equal(fm_sha256_parse(hex, 64, &hash), FM_ERR_FORMAT);
    hex[63] = 'D';
    assert_int_equal(fm_sha256_parse(hex, 64, &hash), FM_ERR_FORMAT);
    assert_memory_equal(&hash, &kept, sizeof hash);
}

/* The library's own sanity values for XXH3-64, seed 0. */
/* RFC 4231, test cases 2 and 6, whose key is longer than a block; then an empty key and text. */
static void hmac_known_answers(void **state) {
    (void)state;
    static uint8_t long_key[131];
    memset(long_key, 0xaa, sizeof long_key);
    const struct {
        const void *key;
        size_t key_size;
        const char *text, *hex;
    } answers[] = {
        {"Jefe", 4, "what do ya want for nothing?",
         "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"},
        {long_key, sizeof long_key, "Test Using Larger Than Block-Size Key - Hash Key First",
         "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"},
        {NULL, 0, "", "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad"}};
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        char hex[FM_SHA256_HEX];
        fm_sha256 mac = fm_hmac_sha256(answers[i].key, answers[i].key_size, answers[i].text,
                                       strlen(answers[i].text));
        fm_sha256_format(&mac, hex);
        assert_string_equal(hex, answers[i].hex);
    }
}

static void xxh3_known_answers(void **state) {
    (void)state;
    assert_true(fm_xxh3("", 0) == 0x2d06800538d394c2);
    assert_true(fm_xxh3("abc", 3) == 0x78af5f94892f3950);
}

static void xxh3_in_pieces(void **state) {
    (void)state;
    uint8_t data[3000];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)(i * 31 >> 3);
    for (size_t piece = 1; piece < 1000; piece = piece * 3 + 1) {
        fm_xxh3_state *pieces = fm_xxh3_create();
        for (size_t at = 0; at < sizeof data; at += piece) {
            size_t left = sizeof data - at;
            fm_xxh3_update(pieces, data + at, left < piece ? left : piece);
        }
        assert_true(fm_xxh3_digest(pieces) == fm_xxh3(data, sizeof data));
        fm_xxh3_destroy(pieces);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sha256_known_answers), cmocka_unit_test(sha256_text),
        cmocka_unit_test(hmac_known_answers),   cmocka_unit_test(xxh3_known_answers),
        cmocka_unit_test(xxh3_in_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
