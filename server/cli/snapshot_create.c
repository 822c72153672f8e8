/* snapshot_create.c: foldmill snapshot create: selects the chains of a snapshot and writes it. */
#include "cache/snapshot/pins.h"
#include "cache/snapshot/selection.h"
#include "cache/snapshot/snapshot.h"
#include "cache/snapshot/snapshot_select.h"
#include "proto/base/date.h"
#include "proto/base/plural.h"
#include "server/cli/commands.h"
#include "server/cli/inspect_json.h"
#include "server/cli/open_cache.h"
#include "server/cli/read_input.h"
#include "server/cli/snapshot_verbs.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { N_SHOWN = 20 };

/* -- inputs */

static fm_status read_names(fm_snapshot_job *job, const char *path, fm_names *names,
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

/* A file that names no chain of the cache is that of other chains. Each chain would count as a
 * cluster by itself. */
static fm_status check_clusters(const fm_store *store, const fm_clusters *clusters,
                                const char *name, fm_error *reterr) {
    const uint32_t n = fm_store_get_info(store)->n_chain;
    for (uint32_t i = 0; i < n; i++) {
        const char *chain = fm_store_chain_name(store, i);
        if (fm_clusters_find(clusters, chain) != FM_NO_CLUSTER) return FM_OK;
    }
    if (n == 0) return FM_OK;
    return fm_fail_in(reterr, FM_ERR_DATA, name,
                      "found none of the cache's %u chains, such as %.64s; expected a cluster on "
                      "each line, its chains separated by blanks",
                      n, fm_store_chain_name(store, 0));
}

fm_status fm_snapshot_job_clusters(fm_snapshot_job *job, fm_clusters *clusters,
                                   const fm_clusters **ret_clusters, fm_error *reterr) {
    const char *path = job->arguments->clusters;
    fm_bytes text;
    *ret_clusters = NULL;
    if (!path) return FM_OK;
    fm_status status = fm_cli_read_input(path, &job->arena, &text, reterr);
    if (status) return status;
    status = fm_clusters_parse(text, &job->arena, clusters, reterr);
    if (!status && clusters->n_cluster == 0) {
        status = fm_fail(reterr, FM_ERR_FORMAT, "found no cluster, expected one on each line");
    }
    if (status) return fm_error_in(reterr, fm_cli_input_name(path));
    *ret_clusters = clusters;
    return check_clusters(job->store, clusters, fm_cli_input_name(path), reterr);
}

fm_status fm_snapshot_job_read(fm_snapshot_job *job, const char *name, fm_snapshot_text *text,
                               fm_error *reterr) {
    fm_bytes bytes;
    fm_status status = fm_snapshot_read(job->store, name, &job->arena, &bytes, reterr);
    if (status) return status;
    status = fm_snapshot_decode(bytes, &job->arena, text, reterr);
    return status ? fm_error_in(reterr, name) : FM_OK;
}

/* Leaves the weights of a recipe as they are, unless an option names others. */
static fm_status choose_weights(const fm_snapshot_arguments *arguments, fm_select_weights *weights,
                                fm_error *reterr) {
    const char *name = arguments->weights;
    if (!name && arguments->recipe) return FM_OK;
    if (!name) {
        *weights = arguments->clusters ? FM_WEIGHTS_AF2 : FM_WEIGHTS_LENGTH;
        return FM_OK;
    }
    for (int i = FM_WEIGHTS_UNIFORM; i <= FM_WEIGHTS_AF2; i++) {
        *weights = (fm_select_weights)i;
        if (strcmp(name, fm_select_weights_text(*weights)) == 0) return FM_OK;
    }
    return fm_fail(reterr, FM_ERR_USAGE, "--weights: found '%s', expected uniform, length or af2",
                   name);
}

/* The rules of the recipe, if one is named, with the changes of the other options. */
static fm_status make_rules(fm_snapshot_job *job, fm_select_rules *rules, fm_error *reterr) {
    const fm_snapshot_arguments *arguments = job->arguments;
    *rules = fm_select_everything();
    fm_status status =
        arguments->recipe ? fm_select_recipe(arguments->recipe, rules, reterr) : FM_OK;
    if (!status) status = choose_weights(arguments, &rules->weights, reterr);
    if (!status) {
        status = fm_shares_parse(arguments->shares.value, (uint32_t)arguments->shares.n,
                                 &job->arena, &rules->shares, reterr);
    }
    if (status) return status;
    rules->dataset = arguments->datasets.value;
    rules->n_dataset = arguments->datasets.n;
    rules->no_predicted = arguments->no_predicted;
    rules->min_length = (uint32_t)arguments->min_length;
    rules->max_length = (uint32_t)arguments->max_length;
    rules->need_resolution = arguments->need_resolution;
    rules->from = arguments->from;
    rules->until = arguments->until;
    rules->only_clustered = arguments->only_clustered;
    if (arguments->max_unknown != UINT32_MAX) rules->max_unknown = (uint32_t)arguments->max_unknown;
    if (arguments->max_single) rules->max_single_percent = (uint32_t)arguments->max_single;
    if (!isnan(arguments->max_resolution)) rules->max_resolution = arguments->max_resolution;
    return FM_OK;
}

static fm_status check_arguments(const fm_snapshot_arguments *arguments, fm_error *reterr) {
    static const char *const names[] = {"from", "until"};
    const char *dates[] = {arguments->from, arguments->until};
    for (int i = 0; i < 2; i++) {
        if (dates[i] && !fm_date_parse(dates[i])) {
            return fm_fail(reterr, FM_ERR_USAGE, "--%s: found '%s', expected a date as YYYY-MM-DD",
                           names[i], dates[i]);
        }
    }
    if (arguments->max_resolution < 0) {
        return fm_fail(reterr, FM_ERR_USAGE, "--max-resolution: found %g, expected at least 0",
                       arguments->max_resolution);
    }
    if (arguments->max_length && arguments->min_length > arguments->max_length) {
        return fm_fail(
            reterr, FM_ERR_USAGE, "--min-length: found %llu, expected at most --max-length %llu",
            (unsigned long long)arguments->min_length, (unsigned long long)arguments->max_length);
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

static fm_status read_lists(fm_snapshot_job *job, fm_select_rules *rules, chain_lists *lists,
                            fm_error *reterr) {
    const fm_snapshot_arguments *arguments = job->arguments;
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

/* Reports why the cache lacks some chains of --chains. */
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

static void print_excluded(FILE *out, const fm_select_report *report) {
    for (int i = FM_SELECT_TAKEN + 1; i < FM_N_SELECT; i++) {
        if (!report->n[i]) continue;
        fprintf(out, "excluded  %u %s\n", report->n[i], fm_select_reason_text((fm_select_reason)i));
    }
}

static void print_selection(const char *name, const fm_snapshot_text *text,
                            const fm_select_report *report, const chain_lists *lists,
                            const fm_sha256 *hash) {
    fm_snapshot_print_head(name, text, hash);
    print_excluded(stdout, report);
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
    fm_snapshot_write_head(&json, name, text, hash);
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

static fm_status check_disjoint(fm_snapshot_job *job, const fm_snapshot_text *text,
                                const fm_clusters *clusters, fm_error *reterr) {
    fm_snapshot_text other;
    const char *name = job->arguments->disjoint, *first;
    uint32_t n;
    if (!name) return FM_OK;
    fm_status status = fm_snapshot_job_read(job, name, &other, reterr);
    if (!status) {
        status = fm_snapshot_shared(text, &other, clusters, &job->arena, &n, &first, reterr);
    }
    if (status || n == 0) return status;
    return fm_fail(reterr, FM_ERR_DATA,
                   "%u chains share a cluster with snapshot %s, first %s; nothing was written "
                   "(--apart-from excludes them)",
                   n, name, first);
}

/* Records which rules applied and how many chains each excluded, for snapshot show. */
static fm_status write_record(fm_snapshot_job *job, const char *name, const fm_select_rules *rules,
                              const fm_select_report *report, const fm_sha256 *hash,
                              fm_error *reterr) {
    fm_selection record;
    fm_status status = fm_selection_describe(rules, report, &job->arena, &record, reterr);
    if (status) return status;
    record.snapshot = *hash;
    record.generation = fm_store_get_info(job->store)->generation;
    return fm_selection_write(job->store, name, &record, &job->arena, reterr);
}

/* Where no chain is left, says how many each rule excluded. The build may have refused all chains
 * of the list; then that is the reason. */
static fm_status explain_empty(const chain_lists *lists, const fm_select_report *report,
                               fm_status status, fm_error *reterr) {
    if (status != FM_ERR_DATA) return status;
    print_excluded(stderr, report);
    if (!lists->refused.n) return status;
    if (lists->missing.n < lists->only.n) return status;
    const fm_refusal *first = &lists->refused.refusal[0];
    return fm_fail(
        reterr, status,
        "no chain is left: the build refused %u chain%s of the list, first %.64s: %.300s",
        lists->refused.n, fm_plural(lists->refused.n), first->chain, first->reason);
}

fm_status fm_snapshot_create(fm_snapshot_job *job, char **names, fm_error *reterr) {
    const fm_snapshot_arguments *arguments = job->arguments;
    chain_lists lists = {.missing = {0}};
    fm_clusters clusters;
    fm_snapshot_text apart, text;
    fm_select_report report = {0};
    fm_sha256 hash;
    fm_select_rules rules;
    fm_status status = fm_snapshot_check_new_name(names[0], reterr);
    if (!status) status = check_arguments(arguments, reterr);
    if (!status) status = make_rules(job, &rules, reterr);
    if (!status) status = read_lists(job, &rules, &lists, reterr);
    if (!status) status = fm_snapshot_job_clusters(job, &clusters, &rules.clusters, reterr);
    if (!status && arguments->apart) {
        status = fm_snapshot_job_read(job, arguments->apart, &apart, reterr);
        rules.apart = &apart;
        rules.apart_name = arguments->apart;
    }
    if (!status) {
        status = fm_snapshot_select(job->store, &rules, &job->arena, &text, &report, reterr);
        if (status) return explain_empty(&lists, &report, status, reterr);
    }
    if (!status) status = check_disjoint(job, &text, rules.clusters, reterr);
    if (!status) {
        status = fm_snapshot_write(job->store, names[0], &text, &job->arena, &hash, reterr);
    }
    if (!status) status = write_record(job, names[0], &rules, &report, &hash, reterr);
    if (status) return status;
    (arguments->json ? write_selection : print_selection)(names[0], &text, &report, &lists, &hash);
    return FM_OK;
}
