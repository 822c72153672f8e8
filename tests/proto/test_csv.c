/* test_csv.c: fields are quoted where a reader of tables needs it. */
#include "proto/base/csv.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

static void fields_are_quoted(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"", ""},
        {"plain text", "plain text"},
        {"a,b", "\"a,b\""},
        {"a\nb", "\"a\nb\""},
        {"a\rb", "\"a\rb\""},
        {"say \"x\"", "\"say \"\"x\"\"\""},
        {"\xce\xb1\xff,\xe9", "\"\xce\xb1\xef\xbf\xbd,\xef\xbf\xbd\""}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *text;
        size_t bytes;
        FILE *out = open_memstream(&text, &bytes);
        assert_non_null(out);
        fm_csv_put(out, cases[i][0]);
        fclose(out);
        assert_string_equal(text, cases[i][1]);
        free(text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(fields_are_quoted)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
