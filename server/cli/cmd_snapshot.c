/* cmd_snapshot.c: foldmill snapshot: makes and shows named sets of chains for training and
 * evaluation. */
#include "cache/snapshot/pins.h"
#include "cache/snapshot/snapshot.h"
#include "cache/snapshot/snapshot_select.h"
#include "proto/base/plural.h"
#include "server/cli/commands.h"
#include "server/cli/open_cache.h"
#include "server/cli/snapshot_verbs.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define ARENA_BYTES ((size_t)24 << 30)

enum { N_SHOWN = 20 };

/* -- list */

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
    if (row->snapshot.shares.n) printf(", %u shares", row->snapshot.shares.n);
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
static void list_one(fm_snapshot_job *job, const char *name, uint64_t pinned,
                     fm_json_writer *json) {
    size_t mark = fm_arena_mark(&job->arena);
    fm_store *store;
    fm_error error;
    char reason[FM_ERROR_TEXT_BYTES];
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

static fm_status list(fm_snapshot_job *job, char **names, fm_error *reterr) {
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

/* -- diff */

typedef struct difference {
    uint32_t n_gone, n_new, n_changed, n_same;
    uint32_t n_share; /* datasets whose shares differ */
} difference;

/* Counts the datasets whose shares differ, and prints them unless `quiet`; no share is 0. */
static uint32_t compare_shares(const fm_shares *a, const fm_shares *b, bool quiet) {
    uint32_t i = 0, k = 0, n = 0;
    while (i < a->n || k < b->n) {
        int order = i == a->n   ? 1
                    : k == b->n ? -1
                                : strcmp(a->share[i].dataset, b->share[k].dataset);
        const char *dataset = order <= 0 ? a->share[i].dataset : b->share[k].dataset;
        uint32_t before = order <= 0 ? a->share[i++].billionths : 0;
        uint32_t now = order >= 0 ? b->share[k++].billionths : 0;
        if (before == now) continue;
        n++;
        if (quiet) continue;
        char words[2][FM_SHARE_TEXT_BYTES];
        fm_share_format(before, words[0]);
        fm_share_format(now, words[1]);
        printf("~ share of %s  %s, now %s\n", dataset[0] ? dataset : "the dataset without a name",
               words[0], words[1]);
    }
    return n;
}

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
    difference found = {.n_share = compare_shares(&a->shares, &b->shares, quiet)};
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
    fm_json_put_u64(&json, "shares_changed", found->n_share);
    if (n_shared) fm_json_put_u64(&json, "in_shared_clusters", *n_shared);
    fm_json_end(&json);
}

static fm_status diff(fm_snapshot_job *job, char **names, fm_error *reterr) {
    fm_snapshot_text a, b;
    fm_clusters storage;
    const fm_clusters *clusters;
    const char *first;
    uint32_t n = 0;
    bool json = job->arguments->json;
    fm_status status = fm_snapshot_job_read(job, names[0], &a, reterr);
    if (!status) status = fm_snapshot_job_read(job, names[1], &b, reterr);
    if (!status) status = fm_snapshot_job_clusters(job, &storage, &clusters, reterr);
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
    if (found.n_share) printf("%u datasets have another share\n", found.n_share);
    if (clusters) printf("%u chains of the first share a cluster with the second\n", n);
    return FM_OK;
}

/* -- pin */

static void report_pin(fm_snapshot_job *job, const char *name, uint64_t generation) {
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

static fm_status pin(fm_snapshot_job *job, char **names, fm_error *reterr) {
    fm_status status = fm_pin_write(job->store, names[0], reterr);
    if (status) return status;
    report_pin(job, names[0], fm_store_get_info(job->store)->generation);
    return FM_OK;
}

static fm_status unpin(fm_snapshot_job *job, char **names, fm_error *reterr) {
    fm_status status = fm_pin_remove(job->store, names[0], reterr);
    if (status) return status;
    report_pin(job, names[0], 0);
    return FM_OK;
}

static fm_status delete (fm_snapshot_job *job, char **names, fm_error *reterr) {
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
    fm_status (*run)(fm_snapshot_job *job, char **names, fm_error *reterr);
} snapshot_verb;

static const snapshot_verb verbs[] = {{"create", "NAME", 1, fm_snapshot_create},
                                      {"list", "", 0, list},
                                      {"show", "NAME", 1, fm_snapshot_show},
                                      {"diff", "A B", 2, diff},
                                      {"pin", "NAME", 1, pin},
                                      {"unpin", "NAME", 1, unpin},
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

static fm_status run(const fm_snapshot_arguments *arguments, char **positional, int n,
                     fm_error *reterr) {
    const snapshot_verb *verb;
    fm_status status = find_verb(positional[0], &verb, reterr);
    if (!status && n - 1 != verb->n_name) {
        status = fm_fail(reterr, FM_ERR_USAGE, "found %d name%s, expected: snapshot %s %s", n - 1,
                         fm_plural((uint64_t)(n - 1)), verb->name, verb->arguments);
    }
    if (status) return status;
    fm_snapshot_job job = {.arguments = arguments};
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
    "  show NAME     show a snapshot's chains with their weights, and how it was selected\n"
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
    "--share NAME=P, once for each dataset, makes P the chance that a sample comes from it,\n"
    "whatever the numbers of chains; weights then count within the dataset. P is a decimal, and\n"
    "all of them add up to 1. An empty NAME is the dataset without a name.\n\n"
    "--recipe af2-train is AlphaFold2's choice of training chains (supplement 1.2.5). It allows\n"
    "a resolution of at most 9 Å where there is one, and no kind of residue (unknown ones\n"
    "included) above 80 %. Its weights af2 are the paper's chances by length and cluster. Other\n"
    "options add to a recipe or change it.\n\n"
    "A file of clusters has one cluster per line. A file of chains has words, or a JSON list, or\n"
    "a JSON object by chain. '-' reads one of these from standard input. Ids of chains are found\n"
    "in upper and lower case. OpenFold's training filter is --max-resolution 9 --max-unknown 0\n"
    "--max-single 80.\n\n"
    "--json prints one object. create: snapshot, hash, chains, weights (their sum), shares\n"
    "[{dataset, share, chains, weights}] where there are some, excluded\n"
    "{REASON: n}, refusals [{chain, reason}] and unknown (chains of --chains that the cache\n"
    "lacks). list: snapshots [{snapshot, hash, chains, weights, pinned or trouble}]. show:\n"
    "snapshot, hash, chains, weights, shares, selection {recipe, generation, chains, weights,\n"
    "rules [{rule, excluded}]} where it is known, lines [{chain, weight}]. diff: only_in_first,\n"
    "only_in_second, changed, same, shares_changed, in_shared_clusters. pin and unpin: snapshot,\n"
    "pinned. delete: snapshot, deleted.\n\n"
    "Exit codes: 0 done, 1 failed (also when no chain is left, or sets are not disjoint), 2 bad\n"
    "usage.\n\n"
    "Examples:\n"
    "  foldmill snapshot create train --cache C --max-resolution 9 \\\n"
    "      --clusters clusters-by-entity-40.txt --apart-from cameo\n"
    "  foldmill snapshot create mixed --cache C --recipe af2-train \\\n"
    "      --until 2018-04-30 --clusters clusters-by-entity-40.txt \\\n"
    "      --share pdb=0.25 --share distillation=0.75";

int fm_cmd_snapshot(int argc, char **argv) {
    fm_snapshot_arguments arguments = {.max_unknown = UINT32_MAX, .max_resolution = NAN};
    const fm_option options[] = {
        {"cache", FM_OPTION_STRING, &arguments.cache, "DIR", "the cache", .is_required = true},
        {"chains", FM_OPTION_STRING, &arguments.only, "FILE",
         .help = "only these chains (OpenFold's filter_path)"},
        {"exclude", FM_OPTION_STRING, &arguments.exclude, "FILE", .help = "no chain of this list"},
        {"dataset", FM_OPTION_LIST, &arguments.datasets, "NAME",
         .help = "only chains of this dataset (NAME:...); may be repeated"},
        {"share", FM_OPTION_LIST, &arguments.shares, "NAME=P",
         .help = "the chance of dataset NAME in each draw; once for each dataset"},
        {"recipe", FM_OPTION_STRING, &arguments.recipe, "NAME",
         .help = "rules and weights by name: af2-train"},
        {"no-predicted", FM_OPTION_FLAG, &arguments.no_predicted, NULL,
         .help = "no predicted structures"},
        {"min-length", FM_OPTION_U64, &arguments.min_length, "N", "at least N residues",
         .max = UINT32_MAX},
        {"max-length", FM_OPTION_U64, &arguments.max_length, "N", "at most N residues", .min = 1,
         .max = UINT32_MAX},
        {"max-unknown", FM_OPTION_U64, &arguments.max_unknown, "N", "at most N residues X",
         .max = UINT32_MAX},
        {"max-single", FM_OPTION_U64, &arguments.max_single, "PERCENT",
         "the most frequent residue has at most this share", .min = 1, .max = 100},
        {"max-resolution", FM_OPTION_F64, &arguments.max_resolution, "A",
         .help = "at most A Å; chains without a resolution (NMR, predicted) pass"},
        {"need-resolution", FM_OPTION_FLAG, &arguments.need_resolution, NULL,
         .help = "only chains with a resolution"},
        {"from", FM_OPTION_STRING, &arguments.from, "DATE",
         .help = "released on YYYY-MM-DD or later; predicted structures pass"},
        {"until", FM_OPTION_STRING, &arguments.until, "DATE",
         .help = "released on YYYY-MM-DD or before; predicted structures pass"},
        {"clusters", FM_OPTION_STRING, &arguments.clusters, "FILE",
         .help = "the clusters, one per line"},
        {"only-clustered", FM_OPTION_FLAG, &arguments.only_clustered, NULL,
         .help = "only chains that are in a cluster"},
        {"weights", FM_OPTION_STRING, &arguments.weights, "FORMULA",
         .help = "uniform, length or af2 (length; af2 with --clusters or a recipe)"},
        {"apart-from", FM_OPTION_STRING, &arguments.apart, "NAME",
         .help = "no chain that shares a cluster with this snapshot"},
        {"disjoint-from", FM_OPTION_STRING, &arguments.disjoint, "NAME",
         .help = "fail if a chain shares a cluster with this snapshot"},
        {"json", FM_OPTION_FLAG, &arguments.json, NULL, .help = "print one JSON object"},
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
    /* A misspelt action is reported before missing options. */
    if (argc > 1 && argv[1][0] != '-' && find_verb(argv[1], &ignored, &error)) {
        return fm_program_report(command.program, &error);
    }
    int n_positional;
    int code = fm_cli_parse(&command, argc, argv, &n_positional);
    if (code >= 0) return code;
    fm_status status = run(&arguments, argv, n_positional, &error);
    return status ? fm_program_report(command.program, &error) : FM_EXIT_OK;
}
