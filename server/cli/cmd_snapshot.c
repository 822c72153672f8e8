/* cmd_snapshot.c: foldmill snapshot create|list|diff|pin|unpin: sets of chains for training and
 * evaluation. */
#include "cache/snapshot/pins.h"
#include "cache/snapshot/snapshot.h"
#include "cache/snapshot/snapshot_select.h"
#include "proto/base/date.h"
#include "proto/base/file.h"
#include "proto/limits.h"
#include "server/cli/commands.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARENA_BYTES ((size_t)24 << 30)

enum { N_SHOWN = 20 };

typedef struct snapshot_arguments {
    const char *cache, *only, *exclude, *from, *until, *clusters, *weights, *apart, *disjoint;
    uint64_t min_length, max_length, max_unknown, max_single;
    double max_resolution;
    bool need_resolution, only_clustered, no_predicted;
    fm_option_list datasets;
} snapshot_arguments;

typedef struct snapshot_job {
    const snapshot_arguments *arguments;
    fm_arena arena;
    fm_store *store;
} snapshot_job;

/* -- inputs */

static fm_status read_names(snapshot_job *job, const char *path, fm_names *names,
                            const fm_names **ret_names, fm_error *reterr) {
    fm_bytes text;
    *ret_names = NULL;
    if (!path) return FM_OK;
    fm_status status = fm_file_read_text(&job->arena, path, FM_LIMIT_INPUT_BYTES, &text, reterr);
    if (status) return status;
    status = fm_names_parse(text, &job->arena, names, reterr);
    if (status) return fm_error_in(reterr, path);
    *ret_names = names;
    return FM_OK;
}

static fm_status read_clusters(snapshot_job *job, fm_clusters *clusters,
                               const fm_clusters **ret_clusters, fm_error *reterr) {
    const char *path = job->arguments->clusters;
    fm_bytes text;
    *ret_clusters = NULL;
    if (!path) return FM_OK;
    fm_status status = fm_file_read_text(&job->arena, path, FM_LIMIT_INPUT_BYTES, &text, reterr);
    if (status) return status;
    status = fm_clusters_parse(text, &job->arena, clusters, reterr);
    if (status) return fm_error_in(reterr, path);
    *ret_clusters = clusters;
    return FM_OK;
}

static fm_status read_snapshot(snapshot_job *job, const char *name, fm_snapshot_text *text,
                               fm_error *reterr) {
    fm_bytes bytes;
    fm_status status = fm_snapshot_read(job->store, name, &job->arena, &bytes, reterr);
    if (status) return status;
    status = fm_snapshot_decode(bytes, &job->arena, text, reterr);
    return status ? fm_error_in(reterr, name) : FM_OK;
}

static fm_status choose_weights(const snapshot_arguments *arguments, fm_select_weights *weights,
                                fm_error *reterr) {
    static const char *const names[] = {"uniform", "length", "af2"};
    const char *name = arguments->weights    ? arguments->weights
                       : arguments->clusters ? "af2"
                                             : "length";
    for (int i = 0; i < 3; i++) {
        if (strcmp(name, names[i]) != 0) continue;
        *weights = (fm_select_weights)i;
        return FM_OK;
    }
    return fm_fail(reterr, FM_ERR_USAGE, "--weights is '%s'; known are uniform, length and af2",
                   name);
}

static fm_status check_arguments(const snapshot_arguments *arguments, fm_error *reterr) {
    const char *dates[] = {arguments->from, arguments->until};
    for (int i = 0; i < 2; i++) {
        if (dates[i] && !fm_date_parse(dates[i])) {
            return fm_fail(reterr, FM_ERR_USAGE, "'%s' is no date; expected YYYY-MM-DD", dates[i]);
        }
    }
    if (arguments->max_resolution < 0) {
        return fm_fail(reterr, FM_ERR_USAGE, "--max-resolution is below 0");
    }
    if (!arguments->clusters && arguments->only_clustered) {
        return fm_fail(reterr, FM_ERR_USAGE, "--only-clustered needs --clusters");
    }
    return FM_OK;
}

/* -- create */

static void print_selection(const char *name, const fm_snapshot_text *text,
                            const fm_select_report *report, const fm_sha256 *hash) {
    char hex[FM_SHA256_HEX];
    uint64_t sum = 0;
    for (uint32_t i = 0; i < text->n_line; i++)
        sum += text->line[i].weight;
    fm_sha256_format(hash, hex);
    printf("snapshot  %s\nhash      %s\nchains    %u, sum of weights %llu\n", name, hex,
           text->n_line, (unsigned long long)sum);
    for (int i = FM_SELECT_TAKEN + 1; i < FM_N_SELECT; i++) {
        if (!report->n[i]) continue;
        printf("left out  %u %s\n", report->n[i], fm_select_reason_text((fm_select_reason)i));
    }
    if (report->n_unlisted) printf("not here  %u names of the list\n", report->n_unlisted);
    if (report->n_read) {
        printf(
            "noted     parts of %u chains were read: the cache was built before there was a table "
            "of facts; foldmill build adds it\n",
            report->n_read);
    }
}

static fm_status check_disjoint(snapshot_job *job, const fm_snapshot_text *text,
                                const fm_clusters *clusters, fm_error *reterr) {
    fm_snapshot_text other;
    const char *name = job->arguments->disjoint, *first;
    uint32_t n;
    if (!name) return FM_OK;
    fm_status status = read_snapshot(job, name, &other, reterr);
    if (!status) {
        status = fm_snapshot_shared(text, &other, clusters, &job->arena, &n, &first, reterr);
    }
    if (status || n == 0) return status;
    return fm_fail(reterr, FM_ERR_DATA,
                   "%u chains share a cluster with snapshot %s, %s the first; nothing is written "
                   "(--apart-from leaves them out)",
                   n, name, first);
}

static fm_status create(snapshot_job *job, char **names, int n_name, fm_error *reterr) {
    const snapshot_arguments *arguments = job->arguments;
    (void)n_name;
    fm_names only, exclude;
    fm_clusters clusters;
    fm_snapshot_text apart, text;
    fm_select_report report;
    fm_sha256 hash;
    fm_select_rules rules = {.dataset = arguments->datasets.value,
                             .n_dataset = arguments->datasets.n,
                             .no_predicted = arguments->no_predicted,
                             .min_length = (uint32_t)arguments->min_length,
                             .max_length = (uint32_t)arguments->max_length,
                             .max_unknown = (uint32_t)arguments->max_unknown,
                             .max_single_percent = (uint32_t)arguments->max_single,
                             .max_resolution = arguments->max_resolution,
                             .need_resolution = arguments->need_resolution,
                             .from = arguments->from,
                             .until = arguments->until,
                             .only_clustered = arguments->only_clustered};
    fm_status status = check_arguments(arguments, reterr);
    if (!status) status = choose_weights(arguments, &rules.weights, reterr);
    if (!status) status = read_names(job, arguments->only, &only, &rules.only, reterr);
    if (!status) status = read_names(job, arguments->exclude, &exclude, &rules.exclude, reterr);
    if (!status) status = read_clusters(job, &clusters, &rules.clusters, reterr);
    if (!status && arguments->apart) {
        status = read_snapshot(job, arguments->apart, &apart, reterr);
        rules.apart = &apart;
    }
    if (!status)
        status = fm_snapshot_select(job->store, &rules, &job->arena, &text, &report, reterr);
    if (!status) status = check_disjoint(job, &text, rules.clusters, reterr);
    if (!status) {
        status = fm_snapshot_write(job->store, names[0], &text, &job->arena, &hash, reterr);
    }
    if (!status) print_selection(names[0], &text, &report, &hash);
    return status;
}

/* -- list, diff, pin */

static uint64_t pinned_generation(const fm_pin *pins, uint32_t n, const char *name) {
    for (uint32_t i = 0; i < n; i++) {
        if (strcmp(pins[i].name, name) == 0) return pins[i].generation;
    }
    return 0;
}

/* One line. A snapshot is served of the generation that it is pinned to (0: of the current one). */
static void list_one(snapshot_job *job, const char *name, uint64_t pinned) {
    size_t mark = fm_arena_mark(&job->arena);
    fm_store *store;
    fm_snapshot snapshot;
    fm_error error;
    char hex[FM_SHA256_HEX], reason[FM_ERROR_SOURCE_BYTES + FM_ERROR_MESSAGE_BYTES + 64];
    fm_status status = fm_store_open_generation(job->arguments->cache, pinned, &store, &error);
    if (!status) {
        status = fm_snapshot_open(store, name, &job->arena, &snapshot, &error);
        fm_store_close(store);
    }
    if (status) {
        fm_error_format(&error, reason, sizeof reason);
        printf("%-24s  cannot be served of %s generation: %s\n", name,
               pinned ? "the pinned" : "this", reason);
    } else {
        uint64_t sum = 0;
        for (uint32_t k = 0; k < snapshot.n_chain; k++)
            sum += snapshot.weight[k];
        fm_sha256_format(&snapshot.hash, hex);
        printf("%-24s  %.16s  %u chains, sum of weights %llu", name, hex, snapshot.n_chain,
               (unsigned long long)sum);
        if (pinned) printf(", pinned to generation %llu", (unsigned long long)pinned);
        printf("\n");
    }
    fm_arena_rewind(&job->arena, mark);
}

static fm_status list(snapshot_job *job, char **names, int n_name, fm_error *reterr) {
    (void)names;
    (void)n_name;
    uint32_t n, n_pin;
    const char *const *name;
    const fm_pin *pins;
    fm_status status = fm_snapshot_names(job->store, &job->arena, &n, &name, reterr);
    if (!status) {
        status = fm_pins_read(job->arguments->cache, &job->arena, &n_pin, &pins, reterr);
    }
    for (uint32_t i = 0; i < n && !status; i++)
        list_one(job, name[i], pinned_generation(pins, n_pin, name[i]));
    return status;
}

static void print_change(const fm_snapshot_line *a, const fm_snapshot_line *b, uint32_t *n,
                         uint32_t shown) {
    assert(a || b);
    const char *name = a ? a->name : b->name;
    if (shown >= N_SHOWN) {
        ++*n;
        return;
    }
    if (!a || !b)
        printf("%c %s\n", a ? '-' : '+', name);
    else if (memcmp(&a->parts, &b->parts, sizeof a->parts) != 0)
        printf("~ %s  other parts\n", name);
    else
        printf("~ %s  weight %u, now %u\n", name, a->weight, b->weight);
    ++*n;
}

static void compare(const fm_snapshot_text *a, const fm_snapshot_text *b) {
    uint32_t i = 0, k = 0, n_gone = 0, n_new = 0, n_changed = 0, n_same = 0;
    while (i < a->n_line || k < b->n_line) {
        const fm_snapshot_line *x = i < a->n_line ? &a->line[i] : NULL;
        const fm_snapshot_line *y = k < b->n_line ? &b->line[k] : NULL;
        int order = !x ? 1 : !y ? -1 : strcmp(x->name, y->name);
        if (order < 0) {
            print_change(x, NULL, &n_gone, n_gone);
        } else if (order > 0) {
            print_change(NULL, y, &n_new, n_new);
        } else if (x->weight != y->weight || memcmp(&x->parts, &y->parts, sizeof x->parts) != 0) {
            print_change(x, y, &n_changed, n_changed);
        } else {
            n_same++;
        }
        i += order <= 0;
        k += order >= 0;
    }
    printf("%u only in the first, %u only in the second, %u changed, %u the same\n", n_gone, n_new,
           n_changed, n_same);
}

static fm_status diff(snapshot_job *job, char **names, int n_name, fm_error *reterr) {
    (void)n_name;
    fm_snapshot_text a, b;
    fm_clusters storage;
    const fm_clusters *clusters;
    const char *first;
    uint32_t n;
    fm_status status = read_snapshot(job, names[0], &a, reterr);
    if (!status) status = read_snapshot(job, names[1], &b, reterr);
    if (!status) status = read_clusters(job, &storage, &clusters, reterr);
    if (status) return status;
    compare(&a, &b);
    if (!clusters) return FM_OK;
    status = fm_snapshot_shared(&a, &b, clusters, &job->arena, &n, &first, reterr);
    if (!status) printf("%u chains of the first share a cluster with the second\n", n);
    return status;
}

static fm_status pin(snapshot_job *job, char **names, int n_name, fm_error *reterr) {
    (void)n_name;
    fm_status status = fm_pin_write(job->store, names[0], reterr);
    if (!status) {
        printf("%s is pinned to generation %llu\n", names[0],
               (unsigned long long)fm_store_get_info(job->store)->generation);
    }
    return status;
}

static fm_status unpin(snapshot_job *job, char **names, int n_name, fm_error *reterr) {
    (void)n_name;
    return fm_pin_remove(job->store, names[0], reterr);
}

/* -- the command */

typedef struct snapshot_verb {
    const char *name;
    int n_name;
    fm_status (*run)(snapshot_job *job, char **names, int n_name, fm_error *reterr);
} snapshot_verb;

static fm_status run(const snapshot_arguments *arguments, char **positional, int n,
                     fm_error *reterr) {
    static const snapshot_verb verbs[] = {{"create", 1, create},
                                          {"list", 0, list},
                                          {"diff", 2, diff},
                                          {"pin", 1, pin},
                                          {"unpin", 1, unpin}};
    const snapshot_verb *verb = NULL;
    for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++) {
        if (strcmp(verbs[i].name, positional[0]) == 0) verb = &verbs[i];
    }
    if (!verb || n - 1 != verb->n_name) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "expected create NAME, list, diff A B, pin NAME or unpin NAME");
    }
    if (!arguments->cache) return fm_fail(reterr, FM_ERR_USAGE, "--cache DIR is required");
    snapshot_job job = {.arguments = arguments};
    fm_status status = fm_arena_init(&job.arena, ARENA_BYTES, reterr);
    if (!status) status = fm_store_open(arguments->cache, &job.store, reterr);
    if (!status) status = verb->run(&job, positional + 1, n - 1, reterr);
    fm_store_close(job.store);
    fm_arena_fini(&job.arena);
    return status;
}

static const char description[] =
    "  create NAME   a snapshot of the chains of the current generation that no rule leaves out\n"
    "  list          the snapshots there are, and whether this generation can serve them\n"
    "  diff A B      what two snapshots do not share; with --clusters, also what they do\n"
    "  pin NAME      have foldmill gc keep what the snapshot names; unpin NAME takes it back\n\n"
    "Weights: 'uniform' is 1; 'length' is the residues, at least 256 and at most 512, as\n"
    "AlphaFold2 draws; 'af2' is floor(that * 2^22 / members of the chain's cluster), at least 1,\n"
    "and the default with --clusters; without, the sizes are those that the dataset's\n"
    "chain_data_cache.json had when the cache was built. A file of clusters has one cluster a "
    "line, a file of\n"
    "chains words, or a JSON list, or a JSON object by chain. OpenFold's training filter is\n"
    "--max-resolution 9 --max-unknown 0 --max-single 80.\n\n"
    "Exit codes: 0 done, 1 failed (a set that must be disjoint is not, no chain is left), 2 bad\n"
    "usage.\n\n"
    "Example: foldmill snapshot create train --cache C --max-resolution 9 --until 2021-09-30\n"
    "             --clusters clusters-by-entity-40.txt --apart-from cameo";

int fm_cmd_snapshot(int argc, char **argv) {
    snapshot_arguments arguments = {.max_unknown = UINT32_MAX, .max_single = 100};
    const fm_option options[] = {
        {"cache", FM_OPTION_STRING, &arguments.cache, "DIR", "the cache (required)", .letter = 0},
        {"chains", FM_OPTION_STRING, &arguments.only, "FILE",
         "these chains alone (OpenFold's filter_path)", .letter = 0},
        {"exclude", FM_OPTION_STRING, &arguments.exclude, "FILE", "not these chains", .letter = 0},
        {"dataset", FM_OPTION_LIST, &arguments.datasets, "NAME",
         "chains of that dataset (NAME:...) alone; may be given again", .letter = 0},
        {"no-predicted", FM_OPTION_FLAG, &arguments.no_predicted, NULL,
         "leave out predicted structures", .letter = 0},
        {"min-length", FM_OPTION_U64, &arguments.min_length, "N", "residues", .max = UINT32_MAX},
        {"max-length", FM_OPTION_U64, &arguments.max_length, "N", "residues", .min = 1,
         .max = UINT32_MAX},
        {"max-unknown", FM_OPTION_U64, &arguments.max_unknown, "N", "residues X at most",
         .max = UINT32_MAX},
        {"max-single", FM_OPTION_U64, &arguments.max_single, "PERCENT",
         "share of the most frequent residue at most", .min = 1, .max = 100},
        {"max-resolution", FM_OPTION_F64, &arguments.max_resolution, "A",
         "Å at most; chains without one (NMR, predicted) pass", .letter = 0},
        {"need-resolution", FM_OPTION_FLAG, &arguments.need_resolution, NULL,
         "leave out chains without a resolution", .letter = 0},
        {"from", FM_OPTION_STRING, &arguments.from, "DATE", "released on YYYY-MM-DD or later",
         .letter = 0},
        {"until", FM_OPTION_STRING, &arguments.until, "DATE", "released on YYYY-MM-DD or before",
         .letter = 0},
        {"clusters", FM_OPTION_STRING, &arguments.clusters, "FILE", "one cluster of chains a line",
         .letter = 0},
        {"only-clustered", FM_OPTION_FLAG, &arguments.only_clustered, NULL,
         "leave out chains that are in no cluster", .letter = 0},
        {"weights", FM_OPTION_STRING, &arguments.weights, "FORMULA",
         "uniform, length or af2; length when not given, af2 with --clusters", .letter = 0},
        {"apart-from", FM_OPTION_STRING, &arguments.apart, "NAME",
         "leave out chains that share a cluster with that snapshot", .letter = 0},
        {"disjoint-from", FM_OPTION_STRING, &arguments.disjoint, "NAME",
         "fail when a chain shares a cluster with that snapshot", .letter = 0},
        {0}};
    const fm_command command = {.program = "foldmill snapshot",
                                .arguments = "create|list|diff|pin|unpin [NAME ...] --cache DIR",
                                .summary = "name sets of chains for training and evaluation",
                                .description = description,
                                .options = options,
                                .min_positional = 1,
                                .max_positional = 3};
    int n_positional;
    int code = fm_cli_parse(&command, argc, argv, &n_positional);
    if (code >= 0) return code;
    fm_error error;
    fm_status status = run(&arguments, argv, n_positional, &error);
    return status ? fm_cli_report(command.program, &error) : FM_EXIT_OK;
}
