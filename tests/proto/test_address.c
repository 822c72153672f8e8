/* Addresses: what parses, what is refused, and what a user probably meant. */
#include "proto/address.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void good_addresses(void **state) {
    (void)state;
    static const char *const texts[] = {"unix:/run/foldmill.sock", "unix:s", "tcp://host:7420",
                                        "tcp://127.0.0.1:0", "tcp://[::1]:65535"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        fm_address address;
        char text[FM_ADDRESS_TEXT_BYTES];
        assert_int_equal(fm_address_parse(texts[i], &address, NULL), FM_OK);
        assert_string_equal(fm_address_format(&address, text), texts[i]);
    }
}

static void bad_addresses(void **state) {
    (void)state;
    static const struct {
        const char *text, *meant; /* NULL: nothing is suggested */
    } cases[] = {
        {"localhost:7420", "tcp://localhost:7420"},
        {"localhost", "tcp://localhost:7420"},
        {"tcp://localhost", "tcp://localhost:7420"},
        {"http://host:80/x", "tcp://host:80"},
        {"tcp://host:80/", "tcp://host:80"},
        {"/run/s", "unix:/run/s"},
        {"./s", "unix:./s"},
        {"tcp://host:65536", NULL},
        {"tcp://::1:80", NULL},
        {"tcp://host:", NULL},
        {"unix:", NULL},
        {"7420", NULL},
        {":7420", NULL},
        {"", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fm_address address;
        fm_error error;
        char words[FM_ADDRESS_TEXT_BYTES];
        assert_int_equal(fm_address_parse(cases[i].text, &address, &error), FM_ERR_USAGE);
        snprintf(words, sizeof words, "did you mean %s?", cases[i].meant ? cases[i].meant : "");
        const char *found = strstr(error.message, "did you mean");
        if (!cases[i].meant) {
            assert_null(found);
        } else {
            assert_string_equal(found, words);
        }
    }
    char path[FM_ADDRESS_PATH_BYTES + 8];
    memset(path, 'x', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    memcpy(path, "unix:", 5);
    assert_int_equal(fm_address_parse(path, &(fm_address){0}, NULL), FM_ERR_USAGE);
}

/* Failures to connect and to listen say what can be done. */
static void advice(void **state) {
    (void)state;
    fm_address any, bound, missing;
    fm_error error;
    int fd, other;
    assert_int_equal(fm_address_parse("tcp://127.0.0.1:0", &any, NULL), FM_OK);
    assert_int_equal(fm_address_listen(&any, &fd, &bound, &error), FM_OK);
    assert_int_equal(fm_address_listen(&bound, &other, &missing, &error), FM_ERR_IO);
    assert_non_null(strstr(error.message, "another program listens there; port 0 takes any"));
    close(fd);
    assert_int_equal(fm_address_connect(&bound, 1000, &other, &error), FM_ERR_IO);
    assert_non_null(strstr(error.message, "is foldmill serve running there?"));
    assert_int_equal(fm_address_parse("unix:nowhere/socket", &missing, NULL), FM_OK);
    assert_int_equal(fm_address_connect(&missing, 1000, &other, &error), FM_ERR_IO);
    assert_non_null(strstr(error.message, "is foldmill serve running there?"));
    assert_int_equal(fm_address_parse("tcp://192.0.2.1:0", &any, NULL), FM_OK);
    assert_int_equal(fm_address_listen(&any, &fd, &bound, &error), FM_ERR_IO);
    assert_non_null(strstr(error.message, "this machine does not have that address"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_addresses),
        cmocka_unit_test(bad_addresses),
        cmocka_unit_test(advice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
