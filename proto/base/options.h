/* options.h: command lines as tables: one table parses, checks and prints the help of a command.
 *
 *     static const char *cache; static uint64_t jobs = 1;
 *     const fm_option options[] = {
 *         {"cache", FM_OPTION_STRING, &cache, "DIR", "the cache to read (required)"},
 *         {"jobs", FM_OPTION_U64, &jobs, "N", "worker threads", .min = 1, .max = 256},
 *         {0}};
 *
 * Accepted forms: --name VALUE, --name=VALUE, --flag, -o VALUE and -oVALUE (short letters where the
 * table gives one), and `--` after which everything is positional. -h and --help are always there.
 */
#ifndef FM_BASE_OPTIONS_H
#define FM_BASE_OPTIONS_H

#include "proto/base/status.h"

#include <stdbool.h>
#include <stdio.h>

typedef enum fm_option_kind {
    FM_OPTION_FLAG = 1, /* bool *: set to true */
    FM_OPTION_STRING,   /* const char **: borrowed from argv */
    FM_OPTION_U64,      /* uint64_t *: decimal, within [min, max]; max 0 = no upper bound */
    FM_OPTION_F64,      /* double * */
    FM_OPTION_LIST,     /* fm_option_list *: may be given again; values are borrowed from argv */
} fm_option_kind;

enum { FM_OPTION_LIST_MAX = 64 };

/* The values of an option that may be given again, in their order. */
typedef struct fm_option_list {
    const char *value[FM_OPTION_LIST_MAX];
    uint32_t n;
} fm_option_list;

typedef struct fm_option {
    const char *name; /* without dashes; NULL ends a table */
    fm_option_kind kind;
    void *target;           /* holds the default before parsing */
    const char *value_name; /* "DIR", "N"; NULL for flags */
    const char *help;       /* one sentence or a few words; says the default where there is one */
    char letter;            /* short form, 0 = none */
    uint64_t min, max;      /* FM_OPTION_U64 only */
} fm_option;

typedef struct fm_command {
    const char *program;     /* "foldmill build" */
    const char *arguments;   /* "DATASET --cache DIR [options]" */
    const char *summary;     /* one line, shown in lists of commands */
    const char *description; /* paragraphs: what it does, what it needs, examples, exit codes;
                                printed as it is */
    const fm_option *options;
    int min_positional, max_positional;
} fm_command;

/* Reads argv[1..argc-1]. Positional arguments are moved to the front of argv
 * (argv[0..*ret_positional-1]). FM_ERR_USAGE with a sentence on a mistake; FM_ERR_CANCELLED when
 * help was asked for and printed to stdout: exit with 0. */
FM_MUST_USE fm_status fm_options_parse(const fm_command *command, int argc, char **argv,
                                       int *ret_positional, fm_error *reterr);

/* Usage, description and option table. */
void fm_options_print_help(const fm_command *command, FILE *out);

#endif
