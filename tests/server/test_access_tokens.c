/* Token files: what is read, and where each mistake is. */
#include "server/access_tokens.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static fm_status parse(const char *text, fm_access_tokens **ret_tokens, fm_error *reterr) {
    return fm_access_tokens_parse((fm_bytes){(const uint8_t *)text, strlen(text)}, ret_tokens,
                                  reterr);
}

static void a_file_is_read(void **state) {
    (void)state;
    static const char text[] = "\xef\xbb\xbf# tokens of the laboratory\r\n"
                               "\n"
                               "lab-a\tu6Fh3jsQ0pXw9ZkT2mVb  plans=tiny,af2-initial streams=16 "
                               "bytes=8G\r\n"
                               "  night.ly_2 rS81kQv0aBcD4eFg snapshots=train   ";
    fm_access_tokens *tokens = NULL;
    fm_error error;
    if (parse(text, &tokens, &error)) fail_msg("%s", error.message);
    assert_int_equal(fm_access_tokens_count(tokens), 2);
    const fm_access_token *lab = fm_access_tokens_find(tokens, "u6Fh3jsQ0pXw9ZkT2mVb");
    assert_non_null(lab);
    assert_string_equal(lab->name, "lab-a");
    assert_int_equal(lab->max_stream, 16);
    assert_int_equal(lab->max_bytes, (uint64_t)8 << 30);
    assert_true(fm_access_allows(lab->plans, "tiny"));
    assert_true(fm_access_allows(lab->plans, "af2-initial"));
    assert_false(fm_access_allows(lab->plans, "af2"));
    assert_false(fm_access_allows(lab->plans, "af2-initial-2"));
    assert_false(fm_access_allows(lab->plans, ""));
    assert_true(fm_access_allows(lab->snapshots, "anything"));
    const fm_access_token *nightly = fm_access_tokens_find(tokens, "rS81kQv0aBcD4eFg");
    assert_string_equal(nightly->name, "night.ly_2");
    assert_int_equal(nightly->max_stream, 0);
    assert_false(fm_access_allows(nightly->snapshots, "all"));
    static const char *const guesses[] = {"", "u6Fh3jsQ0pXw9ZkT2mV", "u6Fh3jsQ0pXw9ZkT2mVbb",
                                          "rS81kQv0aBcD4eFG"};
    for (size_t i = 0; i < sizeof guesses / sizeof guesses[0]; i++)
        assert_null(fm_access_tokens_find(tokens, guesses[i]));
    fm_access_tokens *again = fm_access_tokens_retain(tokens);
    fm_access_tokens_release(tokens);
    assert_string_equal(nightly->name, "night.ly_2");
    fm_access_tokens_release(again);
}

static void mistakes_have_a_place(void **state) {
    (void)state;
    static const struct {
        const char *text;
        fm_status status;
        uint64_t line, column;
        const char *words;
    } cases[] = {
        {"", FM_ERR_FORMAT, 0, 0, "the file has no token, so nobody could connect"},
        {"# none\n", FM_ERR_FORMAT, 0, 0, "the file has no token"},
        {"a/b 0123456789abcdef", FM_ERR_FORMAT, 1, 1, "expected the name of a token"},
        {"\n a\n", FM_ERR_FORMAT, 2, 3, "expected the token after its name"},
        {"a 0123456789abcde", FM_ERR_FORMAT, 1, 3, "expected the token after its name"},
        {"a 0123456789abcd\xc3\xa4", FM_ERR_FORMAT, 1, 3, "expected the token after its name"},
        {"a 0123456789abcdef x=1", FM_ERR_FORMAT, 1, 20, "expected snapshots=, plans="},
        {"a 0123456789abcdef plans=", FM_ERR_FORMAT, 1, 26, "expected names between commas"},
        {"a 0123456789abcdef plans=x,", FM_ERR_FORMAT, 1, 26, "expected names between commas"},
        {"a 0123456789abcdef plans=x,,y", FM_ERR_FORMAT, 1, 26, "expected names between commas"},
        {"a 0123456789abcdef streams=0", FM_ERR_FORMAT, 1, 28, "expected a number from 1"},
        {"a 0123456789abcdef streams=1K", FM_ERR_FORMAT, 1, 28, "expected a number from 1"},
        {"a 0123456789abcdef streams=4294967296", FM_ERR_FORMAT, 1, 28, "from 1 to 4294967295"},
        {"a 0123456789abcdef bytes=1X", FM_ERR_FORMAT, 1, 26, "with K, M, G or T"},
        {"a 0123456789abcdef bytes=99999999T", FM_ERR_FORMAT, 1, 26, "expected a number"},
        {"a 0123456789abcdef bytes=99999999999999999999", FM_ERR_FORMAT, 1, 26, "a number"},
        {"a 0123456789abcdef bytes=1 bytes=2", FM_ERR_EXISTS, 1, 28, "this limit comes twice"},
        {"a 0123456789abcdef\na 0123456789abcdeg", FM_ERR_EXISTS, 2, 1, "has the name a"},
        {"a 0123456789abcdef\nb 0123456789abcdef", FM_ERR_EXISTS, 2, 3, "a and b have the same"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fm_access_tokens *tokens = NULL;
        fm_error error = {0};
        assert_int_equal(parse(cases[i].text, &tokens, &error), cases[i].status);
        assert_int_equal(error.line, cases[i].line);
        assert_int_equal(error.column, cases[i].column);
        if (!strstr(error.message, cases[i].words)) fail_msg("%zu: %s", i, error.message);
        assert_null(strstr(error.message, "0123456789abcde")); /* secrets are not repeated */
        assert_null(tokens);
    }
}

static void files_are_bounded(void **state) {
    (void)state;
    size_t line = 32, n = FM_ACCESS_N_TOKEN + 1;
    char *text = malloc(line * n + 1);
    assert_non_null(text);
    for (size_t i = 0; i < n; i++)
        snprintf(text + i * line, line + 1, "n%06zu 0123456789abcdef%06zu \n", i, i);
    fm_access_tokens *tokens = NULL;
    fm_error error;
    assert_int_equal(parse(text, &tokens, &error), FM_ERR_LIMIT);
    assert_int_equal(error.line, n);
    text[line * (n - 1)] = '\0';
    assert_int_equal(parse(text, &tokens, &error), FM_OK);
    assert_int_equal(fm_access_tokens_count(tokens), FM_ACCESS_N_TOKEN);
    fm_access_tokens_release(tokens);
    free(text);
    text = calloc(1, FM_ACCESS_FILE_BYTES + 2);
    assert_non_null(text);
    memset(text, '#', FM_ACCESS_FILE_BYTES + 1);
    assert_int_equal(parse(text, &tokens, &error), FM_ERR_LIMIT);
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_is_read),
        cmocka_unit_test(mistakes_have_a_place),
        cmocka_unit_test(files_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
