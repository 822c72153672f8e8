/* options.c: parsing, help and suggestions of options.h. */
#include "proto/base/options.h"

#include "proto/base/options_manual.h"
#include "proto/base/plural.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum {
    COLUMNS = 80, /* of an output that is no terminal */
    COLUMNS_MIN = 40,
    HELP_COLUMN = 30,        /* of the options' explanations ... */
    HELP_COLUMN_NARROW = 10, /* ... and on an output that is narrower than 60 */
    GAP_RIGHT = 24,          /* columns that must follow a gap for text to be aligned with it */
    N_OPTION_MAX = 64,       /* rows of a table */
    WORD_MAX = 40,           /* bytes of a word that suggestions are made for */
};

/* -- filling text */

int fm_options_columns(FILE *out) {
    const char *said = getenv("COLUMNS");
    char *end;
    long columns = said ? strtol(said, &end, 10) : 0;
    struct winsize size;
    int fd = fileno(out);
    if (said && *end) columns = 0;
    if (columns <= 0 && fd >= 0 && isatty(fd) && ioctl(fd, TIOCGWINSZ, &size) == 0) {
        columns = size.ws_col;
    }
    if (columns <= 0 || columns > INT16_MAX) columns = COLUMNS;
    return columns < COLUMNS_MIN ? COLUMNS_MIN : (int)columns;
}

/* Text that is being written word by word; lines after the first begin at column `indent`. */
typedef struct fill {
    FILE *out;
    int width, indent;
    int column;    /* where the next byte goes */
    bool has_word; /* the line has one, so that a blank comes before the next */
} fill;

/* Columns of UTF-8 text: its bytes but those that continue a character. */
static int count_columns(const char *text, size_t bytes) {
    int n = 0;
    for (size_t i = 0; i < bytes; i++)
        n += ((unsigned char)text[i] & 0xc0) != 0x80;
    return n;
}

static void end_line(fill *to) {
    fputc('\n', to->out);
    to->column = 0;
    to->has_word = false;
}

static void move_to(fill *to, int column) {
    fprintf(to->out, "%*s", column > to->column ? column - to->column : 0, "");
    if (column > to->column) to->column = column;
}

static void put_as_it_is(fill *to, const char *text, size_t bytes) {
    fwrite(text, 1, bytes, to->out);
    to->column += count_columns(text, bytes);
}

static void put_words(fill *to, const char *text, size_t bytes) {
    const char *end = text + bytes;
    while (text < end) {
        size_t n = 0;
        while (text < end && *text == ' ')
            text++;
        while (text + n < end && text[n] != ' ')
            n++;
        if (n == 0) return;
        if (to->has_word && to->column + 1 + count_columns(text, n) > to->width) end_line(to);
        if (to->has_word) {
            put_as_it_is(to, " ", 1);
        } else {
            move_to(to, to->indent);
        }
        put_as_it_is(to, text, n);
        to->has_word = true;
        text += n;
    }
}

/* Where the text after the last gap of two blanks begins, if that leaves room to its right; 0 for a
 * line without such a gap. */
static size_t find_gap(const char *line, size_t bytes, size_t lead, int width) {
    size_t at = 0;
    for (size_t i = lead + 2; i < bytes; i++) {
        bool begins = line[i] != ' ' && line[i - 1] == ' ' && line[i - 2] == ' ';
        if (begins && count_columns(line, i) + GAP_RIGHT <= width) at = i;
    }
    return at;
}

/* Lays out a line that begins with blanks. The text after its gap may continue on the next lines,
 * which begin in the same column. `line_bytes` is the length of the first line, `bytes` that of
 * all. */
static void put_row(fill *to, const char *line, size_t line_bytes, size_t bytes) {
    size_t lead = strspn(line, " "), gap = find_gap(line, line_bytes, lead, to->width);
    size_t kept = gap ? gap : lead;
    /* A line that begins too far to the right for this width moves to the left. */
    size_t margin = !gap && (int)lead + GAP_RIGHT > to->width ? 4 : kept;
    put_as_it_is(to, line, margin);
    to->indent = gap ? count_columns(line, gap) : (int)margin + 4;
    /* The first word follows what was kept, wherever the rest is aligned. */
    int indent = to->indent;
    to->indent = to->column;
    size_t at = kept + strcspn(line + kept, " \n");
    put_words(to, line + kept, at - kept);
    to->indent = indent;
    while (at < bytes) {
        size_t n = strcspn(line + at, "\n");
        put_words(to, line + at, n);
        at += n + 1;
    }
    to->indent = 0;
    end_line(to);
}

/* Writes a line that begins with blanks; returns how many bytes of the text it took. A table row
 * that is too wide is filled again together with the lines that continue its last column. */
static size_t put_preformatted(fill *to, const char *line) {
    size_t first = strcspn(line, "\n"), bytes = first, lead = strspn(line, " ");
    size_t gap = find_gap(line, first, lead, to->width);
    bool is_wide = count_columns(line, first) > to->width;
    while (gap && line[bytes] && strspn(line + bytes + 1, " ") == gap) {
        size_t n = strcspn(line + bytes + 1, "\n");
        is_wide |= count_columns(line + bytes + 1, n) > to->width;
        bytes += 1 + n;
    }
    if (is_wide) {
        put_row(to, line, first, bytes);
        return bytes;
    }
    put_as_it_is(to, line, first);
    end_line(to);
    return first;
}

static void put_description(fill *to, const char *text) {
    while (*text) {
        size_t bytes = strcspn(text, "\n");
        bool is_flat = bytes && *text != ' ';
        if (!is_flat && to->has_word) end_line(to);
        if (is_flat) {
            put_words(to, text, bytes);
        } else if (bytes) {
            bytes = put_preformatted(to, text);
        } else {
            end_line(to);
        }
        text += bytes + (text[bytes] == '\n');
    }
    if (to->has_word) end_line(to);
}

static void put_option(fill *to, int help_column, const char *left, const char *help,
                       const char *more) {
    put_as_it_is(to, left, strlen(left));
    if (to->column >= help_column) end_line(to);
    to->indent = help_column;
    put_words(to, help, strlen(help));
    put_words(to, more, strlen(more));
    end_line(to);
}

void fm_options_print_help(const fm_command *command, FILE *out) {
    fill to = {.out = out, .width = fm_options_columns(out), .indent = 4};
    int help_column = to.width < 60 ? HELP_COLUMN_NARROW : HELP_COLUMN;
    fprintf(out, "%s - ", command->program);
    to.column = (int)strlen(command->program) + 3;
    put_words(&to, command->summary, strlen(command->summary));
    end_line(&to);
    fprintf(out, "\nusage: ");
    to.column = 7;
    to.indent = 11;
    put_as_it_is(&to, command->program, strlen(command->program));
    to.has_word = true;
    put_words(&to, command->arguments, strlen(command->arguments));
    end_line(&to);
    to.indent = 0;
    if (command->description) {
        end_line(&to);
        put_description(&to, command->description);
    }
    fprintf(out, "\noptions:\n");
    for (const fm_option *option = command->options; option->name; option++) {
        char left[128];
        int n =
            snprintf(left, sizeof left, "  --%s%s%s", option->name, option->value_name ? " " : "",
                     option->value_name ? option->value_name : "");
        if (option->letter) snprintf(left + n, sizeof left - (size_t)n, ", -%c", option->letter);
        put_option(&to, help_column, left, option->help, option->is_required ? "(required)" : "");
    }
    put_option(&to, help_column, "  --help, -h", "show this text", "");
}

/* -- suggestions */

/* The number of letters to change, add, remove or exchange with their neighbour to turn `b` into
 * `a`. `a` has n bytes; both have at most WORD_MAX. */
static size_t count_edits(const char *a, size_t n, const char *b) {
    size_t row[3][WORD_MAX + 1], m = strlen(b);
    size_t *before = row[0], *last = row[1], *now = row[2];
    for (size_t k = 0; k <= m; k++)
        last[k] = before[k] = k;
    for (size_t i = 1; i <= n; i++) {
        now[0] = i;
        for (size_t k = 1; k <= m; k++) {
            size_t edits = last[k - 1] + (a[i - 1] != b[k - 1]);
            if (last[k] + 1 < edits) edits = last[k] + 1;
            if (now[k - 1] + 1 < edits) edits = now[k - 1] + 1;
            bool is_swap = i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1];
            if (is_swap && before[k - 2] + 1 < edits) edits = before[k - 2] + 1;
            now[k] = edits;
        }
        size_t *spare = before;
        before = last;
        last = now;
        now = spare;
    }
    return last[m];
}

const char *fm_options_nearest(const char *word, const char *const *words, size_t n) {
    char typed[WORD_MAX + 1] = "";
    word += strspn(word, "-");
    size_t bytes = strcspn(word, "=");
    if (bytes < 2 || bytes > WORD_MAX) return NULL;
    for (size_t i = 0; i < bytes; i++)
        typed[i] = (char)tolower((unsigned char)word[i]);
    const char *nearest = NULL;
    size_t fewest = bytes < 7 ? 2 : (bytes + 1) / 4 + 1; /* this many are too many */
    for (size_t i = 0; i < n; i++) {
        if (strlen(words[i]) > WORD_MAX) continue;
        bool is_part = bytes >= 3 && strstr(words[i], typed);
        size_t edits = is_part ? 1 : count_edits(typed, bytes, words[i]);
        if (edits >= fewest) continue;
        fewest = edits;
        nearest = words[i];
    }
    return nearest;
}

static fm_status fail_unknown(const fm_command *command, const char *word, fm_error *reterr) {
    const char *names[N_OPTION_MAX + 1];
    size_t n = 0;
    for (const fm_option *option = command->options; option->name && n < N_OPTION_MAX; option++)
        names[n++] = option->name;
    names[n++] = "help";
    const char *nearest = fm_options_nearest(word, names, n);
    if (nearest) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "unknown option '%s'; did you mean '--%s'? %s --help lists the options",
                       word, nearest, command->program);
    }
    return fm_fail(reterr, FM_ERR_USAGE, "unknown option '%s'; %s --help lists the options", word,
                   command->program);
}

/* -- parsing */

static const fm_option *find_long(const fm_option *options, const char *name, size_t name_bytes) {
    for (; options->name; options++) {
        if (strlen(options->name) == name_bytes && memcmp(options->name, name, name_bytes) == 0) {
            return options;
        }
    }
    return NULL;
}

static const fm_option *find_letter(const fm_option *options, char letter) {
    for (; options->name; options++) {
        if (options->letter && options->letter == letter) return options;
    }
    return NULL;
}

static fm_status set_u64(const fm_option *option, const char *value, fm_error *reterr) {
    char *end;
    errno = 0;
    unsigned long long number = strtoull(value, &end, 10);
    uint64_t max = option->max ? option->max : UINT64_MAX;
    bool whole = isdigit((unsigned char)value[0]) && *end == '\0' && errno == 0;
    if (!whole || number < option->min || number > max) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "--%s: found '%s', expected a whole number from %llu to %llu", option->name,
                       value, (unsigned long long)option->min, (unsigned long long)max);
    }
    *(uint64_t *)option->target = number;
    return FM_OK;
}

static fm_status set_f64(const fm_option *option, const char *value, fm_error *reterr) {
    char *end;
    double number = strtod(value, &end);
    if (end == value || *end != '\0' || !isfinite(number)) {
        return fm_fail(reterr, FM_ERR_USAGE, "--%s: found '%s', expected a number", option->name,
                       value);
    }
    *(double *)option->target = number;
    return FM_OK;
}

static fm_status add_value(const fm_option *option, const char *value, fm_error *reterr) {
    fm_option_list *list = option->target;
    if (list->n == FM_OPTION_LIST_MAX) {
        return fm_fail(reterr, FM_ERR_USAGE, "--%s was given more than %d times", option->name,
                       FM_OPTION_LIST_MAX);
    }
    list->value[list->n++] = value;
    return FM_OK;
}

static fm_status set(const fm_option *option, const char *value, fm_error *reterr) {
    switch (option->kind) {
    case FM_OPTION_FLAG: *(bool *)option->target = true; return FM_OK;
    case FM_OPTION_STRING: *(const char **)option->target = value; return FM_OK;
    case FM_OPTION_U64: return set_u64(option, value, reterr);
    case FM_OPTION_F64: return set_f64(option, value, reterr);
    case FM_OPTION_LIST: return add_value(option, value, reterr);
    }
    assert(!"an option table names its kinds");
    return FM_ERR_USAGE;
}

/* Handles argv[*at], which starts with '-', moves *at past a value it takes, and sets the bit of
 * the option's row in *given. */
static fm_status parse_one(const fm_command *command, int argc, char **argv, int *at,
                           uint64_t *given, fm_error *reterr) {
    const char *word = argv[*at];
    const char *inline_value = NULL;
    const fm_option *option;
    if (word[1] == '-') {
        const char *equals = strchr(word, '=');
        size_t name_bytes = equals ? (size_t)(equals - word - 2) : strlen(word + 2);
        option = find_long(command->options, word + 2, name_bytes);
        inline_value = equals ? equals + 1 : NULL;
    } else {
        option = find_letter(command->options, word[1]);
        if (word[2] != '\0') { /* -j8; letters are not joined */
            if (option && option->kind == FM_OPTION_FLAG) option = NULL;
            inline_value = word + 2;
        }
    }
    if (!option) return fail_unknown(command, word, reterr);
    assert(option - command->options < N_OPTION_MAX);
    const uint64_t bit = UINT64_C(1) << (option - command->options);
    if (option->again && *given & bit) {
        return fm_fail(reterr, FM_ERR_USAGE, "--%s is given twice: %s", option->name,
                       option->again);
    }
    *given |= bit;
    if (option->kind == FM_OPTION_FLAG) {
        if (inline_value) return fm_fail(reterr, FM_ERR_USAGE, "--%s takes no value", option->name);
        return set(option, NULL, reterr);
    }
    if (!inline_value) {
        if (*at + 1 >= argc) {
            return fm_fail(reterr, FM_ERR_USAGE, "--%s needs a value: %s", option->name,
                           option->value_name);
        }
        inline_value = argv[++*at];
    }
    bool is_number = option->kind == FM_OPTION_U64 || option->kind == FM_OPTION_F64;
    if (!*inline_value && !is_number) { /* such as an unset variable of a script */
        return fm_fail(reterr, FM_ERR_USAGE, "--%s: found an empty value, expected %s",
                       option->name, option->value_name);
    }
    return set(option, inline_value, reterr);
}

/* The first required option that was not given, or NULL. */
static const fm_option *find_missing(const fm_option *options, uint64_t given) {
    for (size_t i = 0; options[i].name; i++) {
        assert(i < N_OPTION_MAX);
        if (options[i].is_required && !(given >> i & 1)) return &options[i];
    }
    return NULL;
}

/* Checks the number of arguments, and that every required option is given. */
static fm_status check_given(const fm_command *command, char *const *argv, int positional,
                             uint64_t given, fm_error *reterr) {
    const fm_option *missing = find_missing(command->options, given);
    if (positional > command->max_positional) {
        const char *word = argv[command->max_positional];
        if (missing && missing->kind != FM_OPTION_FLAG) {
            return fm_fail(reterr, FM_ERR_USAGE,
                           "unexpected argument '%s'; did you mean '--%s %s'? usage: %s %s", word,
                           missing->name, word, command->program, command->arguments);
        }
        return fm_fail(reterr, FM_ERR_USAGE, "unexpected argument '%s'; usage: %s %s", word,
                       command->program, command->arguments);
    }
    if (positional < command->min_positional) {
        return fm_fail(reterr, FM_ERR_USAGE, "found %d argument%s, expected %d; usage: %s %s",
                       positional, fm_plural((uint64_t)positional), command->min_positional,
                       command->program, command->arguments);
    }
    if (missing) {
        return fm_fail(reterr, FM_ERR_USAGE, "--%s %s is required; usage: %s %s", missing->name,
                       missing->value_name ? missing->value_name : "", command->program,
                       command->arguments);
    }
    return FM_OK;
}

const char *fm_options_help_form(const char *word) {
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) return "text";
    return strncmp(word, "--help=", 7) == 0 ? word + 7 : NULL;
}

static fm_status print_help(const fm_command *command, const char *form, fm_error *reterr) {
    if (strcmp(form, "text") == 0) {
        fm_options_print_help(command, stdout);
    } else if (strcmp(form, "man") == 0) {
        fm_options_print_manual(command, stdout);
    } else if (strcmp(form, "words") == 0) {
        fm_options_print_words(command, stdout);
    } else {
        return fm_fail(reterr, FM_ERR_USAGE, "--help: found '%s', expected text, man or words",
                       form);
    }
    return FM_ERR_CANCELLED;
}

fm_status fm_options_parse(const fm_command *command, int argc, char **argv, int *ret_positional,
                           fm_error *reterr) {
    int positional = 0;
    uint64_t given = 0; /* bit i: row i of the table */
    bool only_positional = false;
    for (int at = 1; at < argc; at++) {
        char *word = argv[at];
        const char *form = only_positional ? NULL : fm_options_help_form(word);
        if (form) return print_help(command, form, reterr);
        if (!only_positional && strcmp(word, "--") == 0) {
            only_positional = true;
        } else if (!only_positional && word[0] == '-' && word[1] != '\0') {
            fm_status status = parse_one(command, argc, argv, &at, &given, reterr);
            if (status) return status;
        } else {
            argv[positional++] = word;
        }
    }
    fm_status status = check_given(command, argv, positional, given, reterr);
    if (status) return status;
    *ret_positional = positional;
    return FM_OK;
}
