/* options.c: see options.h. */
#include "proto/base/options.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { HELP_COLUMN = 30 };

void fm_options_print_help(const fm_command *command, FILE *out) {
    fprintf(out, "%s - %s\n\nusage: %s %s\n", command->program, command->summary, command->program,
            command->arguments);
    if (command->description) fprintf(out, "\n%s\n", command->description);
    fprintf(out, "\noptions:\n");
    for (const fm_option *option = command->options; option->name; option++) {
        char left[128];
        int n =
            snprintf(left, sizeof left, "  --%s%s%s", option->name, option->value_name ? " " : "",
                     option->value_name ? option->value_name : "");
        if (option->letter)
            n += snprintf(left + n, sizeof left - (size_t)n, ", -%c", option->letter);
        if (n >= HELP_COLUMN) {
            fprintf(out, "%s\n%*s%s\n", left, HELP_COLUMN, "", option->help);
        } else {
            fprintf(out, "%-*s%s\n", HELP_COLUMN, left, option->help);
        }
    }
    fprintf(out, "%-*s%s\n", HELP_COLUMN, "  --help, -h", "show this text");
}

static const fm_option *find_long(const fm_option *options, const char *name, size_t name_bytes) {
    for (; options->name; options++) {
        if (strlen(options->name) == name_bytes && memcmp(options->name, name, name_bytes) == 0)
            return options;
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

/* Handles argv[*at], which starts with '-'; moves *at past a value it takes. */
static fm_status parse_one(const fm_command *command, int argc, char **argv, int *at,
                           fm_error *reterr) {
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
    if (!option) {
        return fm_fail(reterr, FM_ERR_USAGE, "unknown option '%s'; %s --help lists the options",
                       word, command->program);
    }
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
    return set(option, inline_value, reterr);
}

fm_status fm_options_parse(const fm_command *command, int argc, char **argv, int *ret_positional,
                           fm_error *reterr) {
    int positional = 0;
    bool only_positional = false;
    for (int at = 1; at < argc; at++) {
        char *word = argv[at];
        if (!only_positional && (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)) {
            fm_options_print_help(command, stdout);
            return FM_ERR_CANCELLED;
        }
        if (!only_positional && strcmp(word, "--") == 0) {
            only_positional = true;
        } else if (!only_positional && word[0] == '-' && word[1] != '\0') {
            fm_status status = parse_one(command, argc, argv, &at, reterr);
            if (status != FM_OK) return status;
        } else {
            argv[positional++] = word;
        }
    }
    if (positional > command->max_positional) {
        return fm_fail(reterr, FM_ERR_USAGE, "unexpected argument '%s'; usage: %s %s",
                       argv[command->max_positional], command->program, command->arguments);
    }
    if (positional < command->min_positional) {
        return fm_fail(reterr, FM_ERR_USAGE, "found %d argument%s, expected %d; usage: %s %s",
                       positional, positional == 1 ? "" : "s", command->min_positional,
                       command->program, command->arguments);
    }
    *ret_positional = positional;
    return FM_OK;
}
