/* Lists of addresses: what parses, what a missing scheme means, and what is refused. */
#include "proto/address_list.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void good_lists(void **state) {
    (void)state;
    static const struct {
        const char *text;
        uint32_t n;
        const char *last;
    } cases[] = {
        {"unix:/run/s", 1, "unix:/run/s"},
        {"tls://a:7420,b:7421", 2, "tls://b:7421"},
        {"tls://a:1, [::1]:2 ,tls://c:3", 3, "tls://c:3"},
        {"tcp://a:1,unix:/s,/t", 3, "unix:/t"},
        {"unix:/s,tls://b:1,b:2", 3, "tls://b:2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fm_address_list list;
        fm_error error;
        char text[FM_ADDRESS_TEXT_BYTES];
        if (fm_address_list_parse(cases[i].text, &list, &error)) fail_msg("%s", error.message);
        assert_int_equal(list.n, cases[i].n);
        fm_address_format(&list.address[list.n - 1], text);
        assert_string_equal(text, cases[i].last);
    }
}

static void bad_lists(void **state) {
    (void)state;
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"", "address ''"},
        {"tls://a:1,", "address ''"},
        {",tls://a:1", "address ''"},
        {"tls://a:1,,b:2", "address ''"},
        {"tls://a:1,b", "did you mean tls://b:7420?"},
        {"a:1,b:2", "did you mean tls://a:1?"},
        {"tls://a:1,b:2,a:1", "tls://a:1 is listed twice"},
        {"tls://a:1,http://b:2", "expected unix:PATH"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fm_address_list list;
        fm_error error;
        assert_int_equal(fm_address_list_parse(cases[i].text, &list, &error), FM_ERR_USAGE);
        if (!strstr(error.message, cases[i].words)) {
            fail_msg("'%s': %s", cases[i].text, error.message);
        }
    }
}

/* The most addresses parse, one more is refused, and a long text ends with the address's own
 * refusal. */
static void limits(void **state) {
    (void)state;
    char text[4096] = "tcp://h:1";
    size_t n = strlen(text);
    fm_address_list list;
    for (int i = 2; i <= FM_ADDRESS_LIST_MOST; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, ",h:%d", i);
    assert_int_equal(fm_address_list_parse(text, &list, NULL), FM_OK);
    assert_int_equal(list.n, FM_ADDRESS_LIST_MOST);
    snprintf(text + n, sizeof text - n, ",h:999");
    assert_int_equal(fm_address_list_parse(text, &list, NULL), FM_ERR_USAGE);
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    memcpy(text, "tcp://", 6);
    assert_int_equal(fm_address_list_parse(text, &list, NULL), FM_ERR_USAGE);
    memcpy(text, "unix:/", 6);
    assert_int_equal(fm_address_list_parse(text, &list, NULL), FM_ERR_USAGE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_lists),
        cmocka_unit_test(bad_lists),
        cmocka_unit_test(limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
