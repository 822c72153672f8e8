/* cmd_snapshot.c: foldmill snapshot: makes and shows named sets of chains for training and
 * evaluation. */
#include "cache/snapshot/pins.h"
#include "cache/snapshot/snapshot.h"
#include "cache/snapshot/snapshot_select.h"
#include "proto/base/date.h"
#include "proto/base/plural.h"
#include "server/cli/commands.h"
#include "server/cli/inspect_json.h"
#include "server/cli/open_cache.h"
#include "server/cli/read_input.h"

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
    bool need_resolution, only_clustered, no_predicted, json;
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
    fm_status status = fm_cli_read_input(path, &job->arena, &text, reterr);
    if (status) return status;
    status = fm_names_parse(text, &job->arena, names, reterr);
    if (status) return fm_error_in(reterr, fm_cli_input_name(path));
    *ret_names = names;
    return FM_OK;
}

static fm_status read_clusters(snapshot_job *job, fm_clusters *clusters,
                               const fm_clusters **ret_clusters, fm_error *reterr) {
    const char *path = job->arguments->clusters;
    fm_bytes text;
    *ret_clusters = NULL;
    if (!path) return FM_OK;
    fm_status status = fm_cli_read_input(path, &job->arena, &text, reterr);
    if (status) return status;
    status = fm_clusters_parse(text, &job->arena, clusters, reterr);
    if (status) return fm_error_in(reterr, fm_cli_input_name(path));
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
    return fm_fail(reterr, FM_ERR_USAGE, "--weights: found '%s', expected uniform, length or af2",
                   name);
}

static fm_status check_arguments(const snapshot_arguments *arguments, fm_error *reterr) {
    static const char *const names[] = {"from", "until"};
    const char *dates[] = {arguments->from, arguments->until};
    for (int i = 0; i < 2; i++) {
        if (dates[i] && !fm_date_parse(dates[i])) {
            return fm_fail(reterr, FM_ERR_USAGE, "--%s: found '%s', expected a date as YYYY-MM-DD",
                           names[i], dates[i]);
        }
    }
    if (arguments->max_resolution < 0) {
        return fm_fail(reterr, FM_ERR_USAGE, "--max-resolution: found a number below 0");
    }
    const char *files[] = {arguments->only, arguments->exclude, arguments->clusters};
    int n_stdin = 0;
    for (int i = 0; i < 3; i++)
        n_stdin += files[i] && fm_cli_is_stdin(files[i]);
    if (n_stdin > 1) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "only one of --chains, --exclude and --clusters can be '-'");
    }
    if (!arguments->clusters && arguments->only_clustered) {
        return fm_fail(reterr, FM_ERR_USAGE, "--only-clustered needs --clusters");
    }
    return FM_OK;
}

/* -- create */

/* The chains of --chains and --exclude under the store's names. Reads why the build refused those
 * of --chains that the store lacks. */
typedef struct chain_lists {
    fm_names only, exclude;
    fm_names missing;    /* of --chains: not in the store */
    fm_refusals refused; /* those of them that the build refused */
    uint32_t n_unknown;  /* the others */
} chain_lists;

static fm_status read_lists(snapshot_job *job, fm_select_rules *rules, chain_lists *lists,
                            fm_error *reterr) {
    const snapshot_arguments *arguments = job->arguments;
    fm_names only, exclude, ignored;
    const fm_names *has_only, *has_exclude;
    fm_status status = read_names(job, arguments->only, &only, &has_only, reterr);
    if (!status) status = read_names(job, arguments->exclude, &exclude, &has_exclude, reterr);
    if (!status && has_only) {
        status = fm_cli_resolve_names(job->store, &only, &job->arena, &lists->only, &lists->missing,
                                      reterr);
        rules->only = &lists->only;
    }
    if (!status && has_exclude) {
        status = fm_cli_resolve_names(job->store, &exclude, &job->arena, &lists->exclude, &ignored,
                                      reterr);
        rules->exclude = &lists->exclude;
    }
    if (status || !lists->missing.n) return status;
    return fm_cli_find_refusals(arguments->cache, &lists->missing, &job->arena, &lists->refused,
                                &lists->n_unknown, reterr);
}

static uint64_t sum_weights(const fm_snapshot_text *text) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < text->n_line; i++)
        sum += text->line[i].weight;
    return sum;
}

/* Says of the chains of --chains that the cache lacks why that is. */
static void print_missing(const chain_lists *lists) {
    const fm_refusals *refused = &lists->refused;
    if (refused->n) {
        printf("refused   %u chain%s of the list, by the build\n", refused->n,
               fm_plural(refused->n));
    }
    for (uint32_t i = 0; i < refused->n && i < N_SHOWN; i++)
        printf("  %s  %s\n", refused->refusal[i].chain, refused->refusal[i].reason);
    if (refused->n > N_SHOWN) printf("  and %u more\n", refused->n - N_SHOWN);
    if (lists->n_unknown) {
        printf("unknown   %u chain%s of the list\n", lists->n_unknown, fm_plural(lists->n_unknown));
    }
}

static void print_selection(const char *name, const fm_snapshot_text *text,
                            const fm_select_report *report, const chain_lists *lists,
                            const fm_sha256 *hash) {
    char hex[FM_SHA256_HEX];
    fm_sha256_format(hash, hex);
    printf("snapshot  %s\nhash      %s\nchains    %u, sum of weights %llu\n", name, hex,
           text->n_line, (unsigned long long)sum_weights(text));
    for (int i = FM_SELECT_TAKEN + 1; i < FM_N_SELECT; i++) {
        if (!report->n[i]) continue;
        printf("excluded  %u %s\n", report->n[i], fm_select_reason_text((fm_select_reason)i));
    }
    print_missing(lists);
    if (report->n_read) {
        printf("noted     parts of %u chain%s were read, since the cache has no table of facts; "
               "foldmill build adds it\n",
               report->n_read, fm_plural(report->n_read));
    }
}

static void write_selection(const char *name, const fm_snapshot_text *text,
                            const fm_select_report *report, const chain_lists *lists,
                            const fm_sha256 *hash) {
    fm_json_writer json;
    fm_json_begin(&json, stdout);
    fm_json_put_string(&json, "snapshot", name);
    fm_json_put_hash(&json, "hash", hash);
    fm_json_put_u64(&json, "chains", text->n_line);
    fm_json_put_u64(&json, "weights", sum_weights(text));
    fm_json_open_object(&json, "excluded");
    for (int i = FM_SELECT_TAKEN + 1; i < FM_N_SELECT; i++) {
        if (report->n[i]) {
            fm_json_put_u64(&json, fm_select_reason_text((fm_select_reason)i), report->n[i]);
        }
    }
    fm_json_close(&json);
    fm_inspect_json_refusals(&json, lists->refused.refusal, lists->refused.n);
    fm_json_put_u64(&json, "unknown", lists->n_unknown);
    fm_json_end(&json);
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
                   "%u chains share a cluster with snapshot %s, first %s; nothing was written "
                   "(--apart-from excludes them)",
                   n, name, first);
}

/* Where no chain is left because the build refused all chains of the list, says why. */
static fm_status explain_empty(const chain_lists *lists, fm_status status, fm_error *reterr) {
    if (status != FM_ERR_DATA || !lists->refused.n) return status;
    if (lists->missing.n < lists->only.n) return status;
    const fm_refusal *first = &lists->refused.refusal[0];
    return fm_fail(
        reterr, status,
        "no chain is left: the build refused %u chain%s of the list, first %.64s: %.300s",
        lists->refused.n, fm_plural(lists->refused.n), first->chain, first->reason);
}

static fm_status create(snapshot_job *job, char **names, fm_error *reterr) {
    const snapshot_arguments *arguments = job->arguments;
    chain_lists lists = {.missing = {0}};
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
    if (!status) status = read_lists(job, &rules, &lists, reterr);
    if (!status) status = read_clusters(job, &clusters, &rules.clusters, reterr);
    if (!status && arguments->apart) {
        status = read_snapshot(job, arguments->apart, &apart, reterr);
        rules.apart = &apart;
    }
    if (!status) {
        status = fm_snapshot_select(job->store, &rules, &job->arena, &text, &report, reterr);
    }
    if (!status) status = check_disjoint(job, &text, rules.clusters, reterr);
    if (!status) {
        status = fm_snapshot_write(job->store, names[0], &text, &job->arena, &hash, reterr);
    }
    if (status) return explain_empty(&lists, status, reterr);
    (arguments->json ? write_selection : print_selection)(names[0], &text, &report, &lists, &hash);
    return FM_OK;
}

/* -- list, show */

static uint64_t pinned_generation(const fm_pin *pins, uint32_t n, const char *name) {
    for (uint32_t i = 0; i < n; i++) {
        if (strcmp(pins[i].name, name) == 0) return pins[i].generation;
    }
    return 0;
}

/* One snapshot of the list. */
typedef struct list_row {
    const char *name, *trouble; /* trouble: why it cannot be served, NULL when it can */
    uint64_t pinned;            /* the generation that it is pinned to; 0 = none */
    uint64_t weights;
    fm_snapshot snapshot;
} list_row;

static void print_row(const list_row *row) {
    char hex[FM_SHA256_HEX];
    if (row->trouble) {
        printf("%-24s  cannot be served from %s generation: %s\n", row->name,
               row->pinned ? "the pinned" : "this", row->trouble);
        return;
    }
    fm_sha256_format(&row->snapshot.hash, hex);
    printf("%-24s  %.16s  %u chain%s, sum of weights %llu", row->name, hex, row->snapshot.n_chain,
           fm_plural(row->snapshot.n_chain), (unsigned long long)row->weights);
    if (row->pinned) printf(", pinned to generation %llu", (unsigned long long)row->pinned);
    printf("\n");
}

static void write_row(fm_json_writer *json, const list_row *row) {
    fm_json_open_object(json, NULL);
    fm_json_put_string(json, "snapshot", row->name);
    if (row->trouble) {
        fm_json_put_string(json, "trouble", row->trouble);
    } else {
        fm_json_put_hash(json, "hash", &row->snapshot.hash);
        fm_json_put_u64(json, "chains", row->snapshot.n_chain);
        fm_json_put_u64(json, "weights", row->weights);
    }
    if (row->pinned) fm_json_put_u64(json, "pinned", row->pinned);
    fm_json_close(json);
}

/* Opens the snapshot as a server would: from the generation that it is pinned to, else from the
 * current one. */
static void list_one(snapshot_job *job, const char *name, uint64_t pinned, fm_json_writer *json) {
    size_t mark = fm_arena_mark(&job->arena);
    fm_store *store;
    fm_error error;
    char reason[FM_ERROR_SOURCE_BYTES + FM_ERROR_MESSAGE_BYTES + 64];
    list_row row = {.name = name, .pinned = pinned};
    fm_status status = fm_store_open_generation(job->arguments->cache, pinned, &store, &error);
    if (!status) {
        status = fm_snapshot_open(store, name, &job->arena, &row.snapshot, &error);
        fm_store_close(store);
    }
    if (status) {
        fm_error_format(&error, reason, sizeof reason);
        row.trouble = reason;
    }
    for (uint32_t k = 0; k < row.snapshot.n_chain && !status; k++)
        row.weights += row.snapshot.weight[k];
    if (json) {
        write_row(json, &row);
    } else {
        print_row(&row);
    }
    fm_arena_rewind(&job->arena, mark);
}

static fm_status list(snapshot_job *job, char **names, fm_error *reterr) {
    (void)names;
    uint32_t n, n_pin;
    const char *const *name;
    const fm_pin *pins;
    fm_json_writer json;
    bool is_json = job->arguments->json;
    fm_status status = fm_snapshot_names(job->arguments->cache, &job->arena, &n, &name, reterr);
    if (!status) status = fm_pins_read(job->arguments->cache, &job->arena, &n_pin, &pins, reterr);
    if (status) return status;
    if (is_json) {
        fm_json_begin(&json, stdout);
        fm_json_open_array(&json, "snapshots");
    }
    for (uint32_t i = 0; i < n; i++)
        list_one(job, name[i], pinned_generation(pins, n_pin, name[i]), is_json ? &json : NULL);
    if (is_json) {
        fm_json_close(&json);
        fm_json_end(&json);
    }
    return FM_OK;
}

static void write_snapshot(const char *name, const fm_snapshot_text *text, const fm_sha256 *hash) {
    fm_json_writer json;
    fm_json_begin(&json, stdout);
    fm_json_put_string(&json, "snapshot", name);
    fm_json_put_hash(&json, "hash", hash);
    fm_json_put_u64(&json, "chains", text->n_line);
    fm_json_put_u64(&json, "weights", sum_weights(text));
    fm_json_open_array(&json, "lines");
    for (uint32_t i = 0; i < text->n_line; i++) {
        fm_json_open_object(&json, NULL);
        fm_json_put_string(&json, "chain", text->line[i].name);
        fm_json_put_u64(&json, "weight", text->line[i].weight);
        fm_json_close(&json);
    }
    fm_json_close(&json);
    fm_json_end(&json);
}

static void print_snapshot(const char *name, const fm_snapshot_text *text, const fm_sha256 *hash) {
    char hex[FM_SHA256_HEX];
    fm_sha256_format(hash, hex);
    printf("snapshot  %s\nhash      %s\nchains    %u, sum of weights %llu\n", name, hex,
           text->n_line, (unsigned long long)sum_weights(text));
    for (uint32_t i = 0; i < text->n_line; i++)
        printf("%10u  %s\n", text->line[i].weight, text->line[i].name);
}

static fm_status show(snapshot_job *job, char **names, fm_error *reterr) {
    fm_bytes bytes;
    fm_snapshot_text text;
    fm_status status = fm_snapshot_read(job->store, names[0], &job->arena, &bytes, reterr);
    if (status) return status;
    status = fm_snapshot_decode(bytes, &job->arena, &text, reterr);
    if (status) return reterr ? fm_error_in(reterr, names[0]) : status;
    fm_sha256 hash = fm_sha256_of(bytes.data, bytes.size);
    (job->arguments->json ? write_snapshot : print_snapshot)(names[0], &text, &hash);
    return FM_OK;
}

/* -- diff */

typedef struct difference {
    uint32_t n_gone, n_new, n_changed, n_same;
} difference;

/* Counts one difference in *n and prints it, if it is among the first. */
static void print_change(const fm_snapshot_line *a, const fm_snapshot_line *b, uint32_t *n,
                         bool quiet) {
    assert(a || b);
    const char *name = a ? a->name : b->name;
    ++*n;
    if (quiet || *n > N_SHOWN) return;
    if (!a || !b) {
        printf("%c %s\n", a ? '-' : '+', name);
    } else if (memcmp(&a->parts, &b->parts, sizeof a->parts) != 0) {
        printf("~ %s  other parts\n", name);
    } else {
        printf("~ %s  weight %u, now %u\n", name, a->weight, b->weight);
    }
}

/* Prints the differences unless `quiet`, the first N_SHOWN of each kind, and counts them. */
static difference compare(const fm_snapshot_text *a, const fm_snapshot_text *b, bool quiet) {
    uint32_t i = 0, k = 0;
    difference found = {0};
    while (i < a->n_line || k < b->n_line) {
        const fm_snapshot_line *x = i < a->n_line ? &a->line[i] : NULL;
        const fm_snapshot_line *y = k < b->n_line ? &b->line[k] : NULL;
        int order = !x ? 1 : !y ? -1 : strcmp(x->name, y->name);
        if (order < 0) {
            print_change(x, NULL, &found.n_gone, quiet);
        } else if (order > 0) {
            print_change(NULL, y, &found.n_new, quiet);
        } else if (x->weight != y->weight || memcmp(&x->parts, &y->parts, sizeof x->parts) != 0) {
            print_change(x, y, &found.n_changed, quiet);
        } else {
            found.n_same++;
        }
        i += order <= 0;
        k += order >= 0;
    }
    return found;
}

static void write_difference(const difference *found, const uint32_t *n_shared) {
    fm_json_writer json;
    fm_json_begin(&json, stdout);
    fm_json_put_u64(&json, "only_in_first", found->n_gone);
    fm_json_put_u64(&json, "only_in_second", found->n_new);
    fm_json_put_u64(&json, "changed", found->n_changed);
    fm_json_put_u64(&json, "same", found->n_same);
    if (n_shared) fm_json_put_u64(&json, "in_shared_clusters", *n_shared);
    fm_json_end(&json);
}

static fm_status diff(snapshot_job *job, char **names, fm_error *reterr) {
    fm_snapshot_text a, b;
    fm_clusters storage;
    const fm_clusters *clusters;
    const char *first;
    uint32_t n = 0;
    bool json = job->arguments->json;
    fm_status status = read_snapshot(job, names[0], &a, reterr);
    if (!status) status = read_snapshot(job, names[1], &b, reterr);
    if (!status) status = read_clusters(job, &storage, &clusters, reterr);
    if (!status && clusters) {
        status = fm_snapshot_shared(&a, &b, clusters, &job->arena, &n, &first, reterr);
    }
    if (status) return status;
    difference found = compare(&a, &b, json);
    if (json) {
        write_difference(&found, clusters ? &n : NULL);
        return FM_OK;
    }
    printf("%u only in the first, %u only in the second, %u changed, %u the same\n", found.n_gone,
           found.n_new, found.n_changed, found.n_same);
    if (clusters) printf("%u chains of the first share a cluster with the second\n", n);
    return FM_OK;
}

/* -- pin */

static void report_pin(snapshot_job *job, const char *name, uint64_t generation) {
    if (job->arguments->json) {
        fm_json_writer json;
        fm_json_begin(&json, stdout);
        fm_json_put_string(&json, "snapshot", name);
        fm_json_put_u64(&json, "pinned", generation);
        fm_json_end(&json);
    } else if (generation) {
        printf("%s is pinned to generation %llu\n", name, (unsigned long long)generation);
    }
}

static fm_status pin(snapshot_job *job, char **names, fm_error *reterr) {
    fm_status status = fm_pin_write(job->store, names[0], reterr);
    if (status) return status;
    report_pin(job, names[0], fm_store_get_info(job->store)->generation);
    return FM_OK;
}

static fm_status unpin(snapshot_job *job, char **names, fm_error *reterr) {
    fm_status status = fm_pin_remove(job->store, names[0], reterr);
    if (status) return status;
    report_pin(job, names[0], 0);
    return FM_OK;
}

static fm_status delete (snapshot_job *job, char **names, fm_error *reterr) {
    fm_status status = fm_snapshot_delete(job->store, names[0], reterr);
    if (status || !job->arguments->json) return status;
    fm_json_writer json;
    fm_json_begin(&json, stdout);
    fm_json_put_string(&json, "snapshot", names[0]);
    fm_json_put_bool(&json, "deleted", true);
    fm_json_end(&json);
    return FM_OK;
}

/* -- the command */

typedef struct snapshot_verb {
    const char *name, *arguments;
    int n_name;
    fm_status (*run)(snapshot_job *job, char **names, fm_error *reterr);
} snapshot_verb;

static const snapshot_verb verbs[] = {{"create", "NAME", 1, create}, {"list", "", 0, list},
                                      {"show", "NAME", 1, show},     {"diff", "A B", 2, diff},
                                      {"pin", "NAME", 1, pin},       {"unpin", "NAME", 1, unpin},
                                      {"delete", "NAME", 1, delete}};
enum { N_VERB = sizeof verbs / sizeof verbs[0] };

static fm_status find_verb(const char *word, const snapshot_verb **ret_verb, fm_error *reterr) {
    const char *names[N_VERB];
    for (size_t i = 0; i < N_VERB; i++) {
        names[i] = verbs[i].name;
        if (strcmp(verbs[i].name, word) != 0) continue;
        *ret_verb = &verbs[i];
        return FM_OK;
    }
    const char *nearest = fm_options_nearest(word, names, N_VERB);
    if (nearest) {
        return fm_fail(reterr, FM_ERR_USAGE, "no action '%s'; did you mean '%s'?", word, nearest);
    }
    return fm_fail(
        reterr, FM_ERR_USAGE,
        "no action '%s'; expected create NAME, list, show NAME, diff A B, pin NAME, unpin "
        "NAME or delete NAME",
        word);
}

static fm_status run(const snapshot_arguments *arguments, char **positional, int n,
                     fm_error *reterr) {
    const snapshot_verb *verb;
    fm_status status = find_verb(positional[0], &verb, reterr);
    if (!status && n - 1 != verb->n_name) {
        status = fm_fail(reterr, FM_ERR_USAGE, "found %d name%s, expected: snapshot %s %s", n - 1,
                         fm_plural((uint64_t)(n - 1)), verb->name, verb->arguments);
    }
    if (status) return status;
    snapshot_job job = {.arguments = arguments};
    status = fm_arena_init(&job.arena, ARENA_BYTES, reterr);
    if (!status) status = fm_cli_open_store(arguments->cache, &job.store, reterr);
    if (!status) status = verb->run(&job, positional + 1, reterr);
    fm_store_close(job.store);
    fm_arena_fini(&job.arena);
    return status;
}

static const char description[] =
    "  create NAME   make a snapshot of the chains of the current generation that pass all rules\n"
    "  list          show the snapshots, and whether the current generation can serve them\n"
    "  show NAME     show the chains of a snapshot with their weights\n"
    "  diff A B      show how two snapshots differ; with --clusters, also what they share\n"
    "  pin NAME      make foldmill gc keep what the snapshot refers to\n"
    "  unpin NAME    undo pin\n"
    "  delete NAME   remove the snapshot, unless it is pinned or served on this machine;\n"
    "                foldmill gc then removes what nothing else names\n\n"
    "Weights: 'uniform' is 1 for each chain. 'length' is the number of residues, at least 256\n"
    "and at most 512, as AlphaFold2 draws chains. 'af2' is floor(length * 2^22 / members of the\n"
    "chain's cluster), at least 1; it is the default with --clusters. Without --clusters, 'af2'\n"
    "takes the cluster sizes of the chain_data_cache.json that the dataset had when the cache\n"
    "was built.\n\n"
    "A file of clusters has one cluster per line. A file of chains has words, or a JSON list, or\n"
    "a JSON object by chain. '-' reads one of these from standard input. Ids of chains are found\n"
    "in upper and lower case. OpenFold's training filter is --max-resolution 9 --max-unknown 0\n"
    "--max-single 80.\n\n"
    "--json prints one object. create: snapshot, hash, chains, weights (their sum), excluded\n"
    "{REASON: n}, refusals [{chain, reason}] and unknown (chains of --chains that the cache\n"
    "lacks). list: snapshots [{snapshot, hash, chains, weights, pinned or trouble}]. show:\n"
    "snapshot, hash, chains, weights, lines [{chain, weight}]. diff: only_in_first,\n"
    "only_in_second, changed, same, in_shared_clusters. pin and unpin: snapshot, pinned.\n"
    "delete: snapshot, deleted.\n\n"
    "Exit codes: 0 done, 1 failed (also when no chain is left, or sets are not disjoint), 2 bad\n"
    "usage.\n\n"
    "Example:\n"
    "  foldmill snapshot create train --cache C --max-resolution 9 \\\n"
    "      --clusters clusters-by-entity-40.txt --apart-from cameo";

int fm_cmd_snapshot(int argc, char **argv) {
    snapshot_arguments arguments = {.max_unknown = UINT32_MAX, .max_single = 100};
    const fm_option options[] = {
        {"cache", FM_OPTION_STRING, &arguments.cache, "DIR", "the cache", .is_required = true},
        {"chains", FM_OPTION_STRING, &arguments.only, "FILE",
         "only these chains (OpenFold's filter_path)", .letter = 0},
        {"exclude", FM_OPTION_STRING, &arguments.exclude, "FILE", "no chain of this list",
         .letter = 0},
        {"dataset", FM_OPTION_LIST, &arguments.datasets, "NAME",
         "only chains of this dataset (NAME:...); may be repeated", .letter = 0},
        {"no-predicted", FM_OPTION_FLAG, &arguments.no_predicted, NULL, "no predicted structures",
         .letter = 0},
        {"min-length", FM_OPTION_U64, &arguments.min_length, "N", "at least N residues",
         .max = UINT32_MAX},
        {"max-length", FM_OPTION_U64, &arguments.max_length, "N", "at most N residues", .min = 1,
         .max = UINT32_MAX},
        {"max-unknown", FM_OPTION_U64, &arguments.max_unknown, "N", "at most N residues X",
         .max = UINT32_MAX},
        {"max-single", FM_OPTION_U64, &arguments.max_single, "PERCENT",
         "the most frequent residue has at most this share", .min = 1, .max = 100},
        {"max-resolution", FM_OPTION_F64, &arguments.max_resolution, "A",
         "at most A Å; chains without a resolution (NMR, predicted) pass", .letter = 0},
        {"need-resolution", FM_OPTION_FLAG, &arguments.need_resolution, NULL,
         "only chains with a resolution", .letter = 0},
        {"from", FM_OPTION_STRING, &arguments.from, "DATE", "released on YYYY-MM-DD or later",
         .letter = 0},
        {"until", FM_OPTION_STRING, &arguments.until, "DATE", "released on YYYY-MM-DD or before",
         .letter = 0},
        {"clusters", FM_OPTION_STRING, &arguments.clusters, "FILE", "the clusters, one per line",
         .letter = 0},
        {"only-clustered", FM_OPTION_FLAG, &arguments.only_clustered, NULL,
         "only chains that are in a cluster", .letter = 0},
        {"weights", FM_OPTION_STRING, &arguments.weights, "FORMULA",
         "uniform, length or af2 (length; with --clusters af2)", .letter = 0},
        {"apart-from", FM_OPTION_STRING, &arguments.apart, "NAME",
         "no chain that shares a cluster with this snapshot", .letter = 0},
        {"disjoint-from", FM_OPTION_STRING, &arguments.disjoint, "NAME",
         "fail if a chain shares a cluster with this snapshot", .letter = 0},
        {"json", FM_OPTION_FLAG, &arguments.json, NULL, "print one JSON object", .letter = 0},
        {0}};
    const fm_command command = {
        .program = "foldmill snapshot",
        .arguments = "create|list|show|diff|pin|unpin|delete [NAME ...] --cache DIR [options]",
        .summary = "name sets of chains for training and evaluation",
        .description = description,
        .options = options,
        .min_positional = 1,
        .max_positional = 3};
    fm_error error;
    const snapshot_verb *ignored;
    /* A misspelt action is said before missing options are. */
    if (argc > 1 && argv[1][0] != '-' && find_verb(argv[1], &ignored, &error)) {
        return fm_cli_report(command.program, &error);
    }
    int n_positional;
    int code = fm_cli_parse(&command, argc, argv, &n_positional);
    if (code >= 0) return code;
    fm_status status = run(&arguments, argv, n_positional, &error);
    return status ? fm_cli_report(command.program, &error) : FM_EXIT_OK;
}
