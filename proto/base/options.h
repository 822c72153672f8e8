/* options.h: a command line as a table: one table parses, checks and explains a command's options.
 *
 *     const char *cache = NULL; uint64_t jobs = 1;
 *     const fm_option options[] = {
 *         {"cache", FM_OPTION_STRING, &cache, "DIR", "the cache to read", .is_required = true},
 *         {"jobs", FM_OPTION_U64, &jobs, "N", "worker threads (1)", .min = 1, .max = 256},
 *         {0}};
 *
 * Accepted forms: --name VALUE, --name=VALUE, --flag, -o VALUE and -oVALUE (where the table has a
 * letter), and `--`, after which every argument is positional. Every command has --help and -h;
 * --help=man prints a manual page and --help=words a table for completion in shells.
 *
 * Of an option that is given twice, the last value counts, so that a script may add to a command
 * line whose settings it overrides. An option whose user may expect both values has `again`.
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
    FM_OPTION_LIST,     /* fm_option_list *: may be repeated; values are borrowed from argv */
} fm_option_kind;

enum { FM_OPTION_LIST_MAX = 64 };

/* The values of an option that may be repeated, in the order of the command line. */
typedef struct fm_option_list {
    const char *value[FM_OPTION_LIST_MAX];
    uint32_t n;
} fm_option_list;

typedef struct fm_option {
    const char *name; /* without dashes; NULL ends a table */
    fm_option_kind kind;
    void *target;           /* holds the default before parsing */
    const char *value_name; /* "DIR", "N"; NULL for flags */
    const char *help;       /* a few words, with the default where there is one */
    char letter;            /* short form, 0 = none */
    uint64_t min, max;      /* FM_OPTION_U64 only */
    bool is_required;       /* parsing fails without it, and the help says so */
    const char *again;      /* why two values are refused, or what to use; NULL: the last counts */
} fm_option;

/* The description consists of paragraphs and preformatted lines. Lines that begin with a letter are
 * joined and filled to the width of the output; an empty line ends a paragraph. Lines that begin
 * with a blank (lists, examples, tables) keep their layout; one that is too wide is broken, and its
 * rest is indented below its last column. */
typedef struct fm_command {
    const char *program;     /* "foldmill build" */
    const char *arguments;   /* "DATASET --cache DIR [options]" */
    const char *summary;     /* one line, shown in lists of commands */
    const char *description; /* what it does, what it needs, examples, exit codes; may be NULL */
    const fm_option *options;
    int min_positional, max_positional;
} fm_command;

/* Reads argv[1..argc-1]. Positional arguments are moved to the front of argv
 * (argv[0..*ret_positional-1]). Returns FM_ERR_USAGE with a sentence for a mistake. Returns
 * FM_ERR_CANCELLED when help was asked for: it is printed to stdout, and the program should exit
 * with 0. */
FM_MUST_USE fm_status fm_options_parse(const fm_command *command, int argc, char **argv,
                                       int *ret_positional, fm_error *reterr);

/* The form of help that an argument asks for: "text" for --help and -h, what follows the sign for
 * --help=FORM, and NULL for any other argument. */
const char *fm_options_help_form(const char *word);

/* Prints usage, description and option table, no line wider than fm_options_columns(out) unless a
 * single word is. */
void fm_options_print_help(const fm_command *command, FILE *out);

/* The columns that text written to `out` may take: $COLUMNS, else the width of the terminal that
 * `out` is, else 80; at least 40. */
int fm_options_columns(FILE *out);

/* The word of words[0..n-1] that `word` is probably a slip for, or NULL when none is near. Case and
 * leading dashes of `word` do not count; `word` ends at a '='. */
const char *fm_options_nearest(const char *word, const char *const *words, size_t n);

#endif
