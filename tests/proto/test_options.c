/* Command lines: every form that is accepted, every mistake with its sentence, and the help. */
#include "proto/base/options.h"
#include "proto/base/options_manual.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ARGUMENTS_MAX = 16 };

/* What a command line of the test command gave. */
typedef struct parsed {
    fm_status status;
    fm_error error;
    int positional;
    char *argv[ARGUMENTS_MAX];
    const char *cache, *single;
    uint64_t jobs;
    double rate;
    bool quiet;
    fm_option_list also;
} parsed;

/* Splits `line` at spaces; `room` holds the words for as long as the result is used. */
static parsed parse(const char *line, char *room, size_t room_bytes) {
    parsed p = {.jobs = 4, .rate = 0.5};
    const fm_option options[] = {
        {"cache", FM_OPTION_STRING, &p.cache, "DIR", "the cache", .letter = 'c'},
        {"jobs", FM_OPTION_U64, &p.jobs, "N", "threads (4)", .min = 1, .max = 256},
        {"rate", FM_OPTION_F64, &p.rate, "X", .help = "a rate (0.5)"},
        {"quiet", FM_OPTION_FLAG, &p.quiet, NULL, "say less", .letter = 'q'},
        {"also", FM_OPTION_LIST, &p.also, "X", "one more", .letter = 'a'},
        {"single", FM_OPTION_STRING, &p.single, "X", "one", .letter = 's', .again = "use --also"},
        {0}};
    const fm_command command = {"foldmill test", "DATASET [OTHER]", "tests", NULL, options, 1, 2};
    int argc = 1;
    char *rest = room;
    p.argv[0] = room;
    assert_true(strlen(line) < room_bytes);
    memcpy(room, line, strlen(line) + 1);
    for (char *word; (word = strsep(&rest, " "));)
        p.argv[argc++] = word;
    p.status = fm_options_parse(&command, argc, p.argv, &p.positional, &p.error);
    return p;
}

static void accepted_forms(void **state) {
    (void)state;
    char room[128];
    parsed p = parse("data", room, sizeof room);
    assert_int_equal(p.status, FM_OK);
    assert_int_equal(p.positional, 1);
    assert_string_equal(p.argv[0], "data");
    assert_true(p.jobs == 4 && p.rate == 0.5 && !p.quiet && !p.cache);

    p = parse("--cache dir --jobs=7 data --rate -2.5e1 --quiet other", room, sizeof room);
    assert_int_equal(p.status, FM_OK);
    assert_int_equal(p.positional, 2);
    assert_string_equal(p.argv[0], "data");
    assert_string_equal(p.argv[1], "other");
    assert_string_equal(p.cache, "dir");
    assert_true(p.jobs == 7 && p.rate == -25.0 && p.quiet);

    p = parse("-cdir data -q", room, sizeof room);
    assert_int_equal(p.status, FM_OK);
    assert_string_equal(p.cache, "dir");
    assert_int_equal(p.positional, 1);

    p = parse("-c dir -q data", room, sizeof room);
    assert_int_equal(p.status, FM_OK);
    assert_string_equal(p.cache, "dir");
    assert_true(p.quiet);

    p = parse("--cache== --jobs 256 -- --jobs -x", room, sizeof room);
    assert_int_equal(p.status, FM_OK);
    assert_string_equal(p.cache, "=");
    assert_true(p.jobs == 256);
    assert_string_equal(p.argv[0], "--jobs");
    assert_string_equal(p.argv[1], "-x");

    p = parse("-a one data --also=two --also three", room, sizeof room);
    assert_int_equal(p.status, FM_OK);
    assert_int_equal(p.also.n, 3);
    assert_string_equal(p.also.value[0], "one");
    assert_string_equal(p.also.value[2], "three");

    p = parse("--jobs 3 --cache a data -c b --jobs 5 --single s", room, sizeof room);
    assert_int_equal(p.status, FM_OK);
    assert_string_equal(p.cache, "b"); /* the last counts */
    assert_true(p.jobs == 5);
    assert_string_equal(p.single, "s");

    p = parse("- --cache --quiet", room, sizeof room); /* a value may look like an option */
    assert_int_equal(p.status, FM_OK);
    assert_string_equal(p.argv[0], "-");
    assert_string_equal(p.cache, "--quiet");
}

static void mistakes(void **state) {
    (void)state;
    static const struct {
        const char *line, *words;
    } cases[] = {
        {"data --jbos 3", "unknown option '--jbos'; did you mean '--jobs'? foldmill test --help"},
        {"data --job 3", "unknown option '--job'"}, /* no abbreviations */
        {"data --=3", "unknown option '--=3'"},
        {"data --rat 3", "did you mean '--rate'?"},
        {"data --Jobs=3", "unknown option '--Jobs=3'; did you mean '--jobs'?"},
        {"data -jobs 3", "unknown option '-jobs'; did you mean '--jobs'?"},
        {"data --hlep", "did you mean '--help'?"},
        {"data --xyzzy", "unknown option '--xyzzy'; foldmill test --help lists"},
        {"data -x", "unknown option '-x'; foldmill test --help lists"},
        {"data -qc", "unknown option '-qc'"}, /* letters are not joined */
        {"data --cache", "--cache needs a value: DIR"},
        {"data -c", "--cache needs a value: DIR"},
        {"data --cache=", "--cache: found an empty value, expected DIR"},
        {"data --quiet=yes", "--quiet takes no value"},
        {"data --jobs 0", "--jobs: found '0', expected a whole number from 1 to 256"},
        {"data --jobs 257", "from 1 to 256"},
        {"data --jobs 3x", "found '3x'"},
        {"data --jobs -1", "found '-1'"},
        {"data --jobs +1", "found '+1'"},
        {"data --jobs=", "found ''"},
        {"data --jobs 18446744073709551617", "from 1 to 256"},
        {"data --rate fast", "--rate: found 'fast', expected a number"},
        {"data --rate nan", "expected a number"},
        {"data --rate 1e999", "expected a number"},
        {"data --single a --single=b", "--single is given twice: use --also"},
        {"data -sa --single a", "--single is given twice: use --also"},
        {"--quiet", "found 0 arguments, expected 1; usage: foldmill test DATASET [OTHER]"},
        {"a b c", "unexpected argument 'c'; usage: foldmill test DATASET [OTHER]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char room[128];
        parsed p = parse(cases[i].line, room, sizeof room);
        assert_int_equal(p.status, FM_ERR_USAGE);
        if (!strstr(p.error.message, cases[i].words)) {
            fail_msg("'%s' gave '%s'", cases[i].line, p.error.message);
        }
    }
}

static void help_shows_every_option(void **state) {
    (void)state;
    static const fm_option options[] = {
        {"cache", FM_OPTION_STRING, NULL, "DIR", "the cache", .letter = 'c'},
        {"an-option-with-a-rather-long-name", FM_OPTION_FLAG, NULL, NULL, .help = "long"},
        {0}};
    const fm_command command = {"foldmill x", "DATA", "does x", "Paragraph.", options, 0, 0};
    char *text;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    fm_options_print_help(&command, out);
    fclose(out);
    assert_string_equal(text, "foldmill x - does x\n\nusage: foldmill x DATA\n\nParagraph.\n\n"
                              "options:\n"
                              "  --cache DIR, -c             the cache\n"
                              "  --an-option-with-a-rather-long-name\n"
                              "                              long\n"
                              "  --help, -h                  show this text\n");
    free(text);
}

static char *print_in(void (*print)(const fm_command *command, FILE *out),
                      const fm_command *command) {
    char *text;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    print(command, out);
    fclose(out);
    return text;
}

/* What roff would read as its own is escaped; tables keep their columns. */
static void help_as_a_manual_page(void **state) {
    (void)state;
    static const fm_option options[] = {
        {"cache", FM_OPTION_STRING, NULL, "DIR", "the cache", .letter = 'c', .is_required = true},
        {"fast", FM_OPTION_FLAG, NULL, NULL, .help = ".so is no request"},
        {0}};
    const fm_command command = {"foldmill x", "DATA -c DIR",
                                "does x",     "One.\nTwo \\ n.\n\n  a  b\n\n  c  d\n\n.End.",
                                options,      .min_positional = 0};
    char *text = print_in(fm_options_print_manual, &command);
    const char *body = strstr(text, ".SH NAME");
    assert_non_null(body);
    assert_int_equal(strncmp(text, ".TH \"FOLDMILL-X\" 1 \"20", 22), 0);
    assert_string_equal(
        body,
        ".SH NAME\nfoldmill\\-x \\- does x\n"
        ".SH SYNOPSIS\n\\fBfoldmill x\\fR DATA \\-c DIR\n"
        ".SH DESCRIPTION\nOne.\nTwo \\e n.\n.PP\n.nf\n.ft CW\n  a  b\n\n  c  d\n"
        ".ft R\n.fi\n.PP\n\\&.End.\n"
        ".SH OPTIONS\n.TP\n\\fB\\-\\-cache\\fR \\fIDIR\\fR, \\fB\\-c\\fR\nthe cache (required)\n"
        ".TP\n\\fB\\-\\-fast\\fR\n\\&.so is no request\n"
        ".TP\n\\fB\\-\\-help\\fR, \\fB\\-h\\fR\nshow this text\n"
        ".SH SEE ALSO\n.BR foldmill (1)\n");
    free(text);
}

static void help_as_words(void **state) {
    (void)state;
    static const fm_option options[] = {
        {"cache", FM_OPTION_STRING, NULL, "DIR", "the cache", .letter = 'c'},
        {"fast", FM_OPTION_FLAG, NULL, NULL, .help = "is fast"},
        {0}};
    const fm_command command = {"foldmill x", "", "does x", NULL, options, 0, 0};
    char *text = print_in(fm_options_print_words, &command);
    assert_string_equal(text, "--cache\tDIR\tthe cache\n--fast\t\tis fast\n"
                              "--help\t\tshow the help of the command\n");
    free(text);
    char name[] = "x", wrong[] = "--help=html", *argv[] = {name, wrong};
    fm_error error;
    int n;
    assert_int_equal(fm_options_parse(&command, 2, argv, &n, &error), FM_ERR_USAGE);
    assert_string_equal(error.message, "--help: found 'html', expected text, man or words");
}

static void required_options(void **state) {
    (void)state;
    const char *cache = NULL;
    bool quiet = false;
    const fm_option options[] = {
        {"quiet", FM_OPTION_FLAG, &quiet, NULL, "say less", .letter = 'q'},
        {"cache", FM_OPTION_STRING, &cache, "DIR", "the cache", .is_required = true},
        {0}};
    const fm_command command = {"foldmill x", "--cache DIR", "does x", NULL, options, 0, 0};
    char name[] = "x", flag[] = "-q", dir[] = "c", given[] = "--cache=c";
    fm_error error;
    int n;
    char *without[] = {name, flag}, *bare[] = {name, dir}, *with[] = {name, given};
    assert_int_equal(fm_options_parse(&command, 2, without, &n, &error), FM_ERR_USAGE);
    assert_string_equal(error.message, "--cache DIR is required; usage: foldmill x --cache DIR");
    assert_int_equal(fm_options_parse(&command, 2, bare, &n, &error), FM_ERR_USAGE);
    assert_string_equal(error.message, "unexpected argument 'c'; did you mean '--cache c'? usage: "
                                       "foldmill x --cache DIR");
    assert_int_equal(fm_options_parse(&command, 2, with, &n, &error), FM_OK);
    assert_string_equal(cache, "c");
}

static void nearest_words(void **state) {
    (void)state;
    static const char *const words[] = {"build", "merge", "verify", "export-weights", "gc"};
    static const struct {
        const char *typed, *nearest;
    } cases[] = {{"biuld", "build"}, {"bild", "build"}, {"MERGE", "merge"},
                 {"veri", "verify"}, {"--gc", "gc"},    {"weights", "export-weights"},
                 {"g", NULL},        {"serve", NULL},   {"", NULL},
                 {"=", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *found = fm_options_nearest(cases[i].typed, words, 5);
        if (!cases[i].nearest) {
            assert_null(found);
        } else {
            assert_string_equal(found, cases[i].nearest);
        }
    }
}

/* The help of a command whose texts are longer than a line, in 40 columns. */
static void help_is_filled(void **state) {
    (void)state;
    static const fm_option options[] = {{"cache", FM_OPTION_STRING, NULL, "DIR",
                                         "the folder of the cache, in Å or not",
                                         .is_required = true},
                                        {0}};
    const fm_command command = {"foldmill x",
                                "DATA --cache DIR [options]",
                                "does x to the data that a user has",
                                "A paragraph whose lines\nare joined and filled anew.\n\n"
                                "List:\n"
                                "  a  the first\n"
                                "  b  text\n"
                                "  c  a row that is too wide for the terminal,\n"
                                "     and its second line\n"
                                "    a line without a gap that is much too wide",
                                options,
                                0,
                                0};
    char *text;
    size_t bytes;
    setenv("COLUMNS", "40", 1);
    FILE *out = open_memstream(&text, &bytes);
    fm_options_print_help(&command, out);
    fclose(out);
    unsetenv("COLUMNS");
    assert_string_equal(text, "foldmill x - does x to the data that a\n"
                              "    user has\n\n"
                              "usage: foldmill x DATA --cache DIR\n"
                              "           [options]\n\n"
                              "A paragraph whose lines are joined and\n"
                              "filled anew.\n\n"
                              "List:\n"
                              "  a  the first\n"
                              "  b  text\n"
                              "  c  a row that is too wide for the\n"
                              "     terminal, and its second line\n"
                              "    a line without a gap that is much\n"
                              "        too wide\n\n"
                              "options:\n"
                              "  --cache DIR\n"
                              "          the folder of the cache, in Å\n"
                              "          or not (required)\n"
                              "  --help, -h\n"
                              "          show this text\n");
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accepted_forms),          cmocka_unit_test(mistakes),
        cmocka_unit_test(help_shows_every_option), cmocka_unit_test(help_as_a_manual_page),
        cmocka_unit_test(help_as_words),           cmocka_unit_test(required_options),
        cmocka_unit_test(nearest_words),           cmocka_unit_test(help_is_filled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
