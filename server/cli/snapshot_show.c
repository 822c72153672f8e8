/* snapshot_show.c: foldmill snapshot show: a snapshot's chains, and how they were selected. */
#include "cache/snapshot/selection.h"
#include "cache/snapshot/snapshot.h"
#include "server/cli/snapshot_verbs.h"

#include <stdio.h>

static uint64_t sum_weights(const fm_snapshot_text *text) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < text->n_line; i++)
        sum += text->line[i].weight;
    return sum;
}

/* Counts the chains of the dataset with share k, and sums their weights. */
static uint32_t count_chains(const fm_snapshot_text *text, uint32_t k, uint64_t *ret_weights) {
    uint32_t n = 0;
    *ret_weights = 0;
    for (uint32_t i = 0; i < text->n_line; i++) {
        if (fm_shares_find(&text->shares, text->line[i].name) != k) continue;
        *ret_weights += text->line[i].weight;
        n++;
    }
    return n;
}

void fm_snapshot_print_head(const char *name, const fm_snapshot_text *text, const fm_sha256 *hash) {
    char hex[FM_SHA256_HEX], share[FM_SHARE_TEXT_BYTES];
    fm_sha256_format(hash, hex);
    printf("snapshot  %s\nhash      %s\nchains    %u, sum of weights %llu\n", name, hex,
           text->n_line, (unsigned long long)sum_weights(text));
    for (uint32_t k = 0; k < text->shares.n; k++) {
        uint64_t weights;
        uint32_t n = count_chains(text, k, &weights);
        const char *dataset = text->shares.share[k].dataset;
        fm_share_format(text->shares.share[k].billionths, share);
        printf("share     %s of %s: chains %u, sum of weights %llu\n", share,
               dataset[0] ? dataset : "the dataset without a name", n, (unsigned long long)weights);
    }
}

void fm_snapshot_write_head(fm_json_writer *json, const char *name, const fm_snapshot_text *text,
                            const fm_sha256 *hash) {
    fm_json_put_string(json, "snapshot", name);
    fm_json_put_hash(json, "hash", hash);
    fm_json_put_u64(json, "chains", text->n_line);
    fm_json_put_u64(json, "weights", sum_weights(text));
    if (!text->shares.n) return;
    fm_json_open_array(json, "shares");
    for (uint32_t k = 0; k < text->shares.n; k++) {
        const fm_share *share = &text->shares.share[k];
        uint64_t weights;
        uint32_t n = count_chains(text, k, &weights);
        fm_json_open_object(json, NULL);
        fm_json_put_string(json, "dataset", share->dataset);
        fm_json_put_f64(json, "share", (double)share->billionths / FM_SHARE_ONE, 9);
        fm_json_put_u64(json, "chains", n);
        fm_json_put_u64(json, "weights", weights);
        fm_json_close(json);
    }
    fm_json_close(json);
}

static void print_record(const fm_selection *record) {
    printf("recipe    %s\nselected  from the %u chains of generation %llu\nweights   %s\n",
           record->recipe, record->n_chain, (unsigned long long)record->generation,
           record->weights);
    for (uint32_t i = 0; i < record->n_rule; i++)
        printf("rule      %s: excluded %u\n", record->rule[i].words, record->rule[i].n_excluded);
}

static void write_record(fm_json_writer *json, const fm_selection *record) {
    fm_json_open_object(json, "selection");
    fm_json_put_string(json, "recipe", record->recipe);
    fm_json_put_u64(json, "generation", record->generation);
    fm_json_put_u64(json, "chains", record->n_chain);
    fm_json_put_string(json, "weights", record->weights);
    fm_json_open_array(json, "rules");
    for (uint32_t i = 0; i < record->n_rule; i++) {
        fm_json_open_object(json, NULL);
        fm_json_put_string(json, "rule", record->rule[i].words);
        fm_json_put_u64(json, "excluded", record->rule[i].n_excluded);
        fm_json_close(json);
    }
    fm_json_close(json);
    fm_json_close(json);
}

static void write_snapshot(const char *name, const fm_snapshot_text *text, const fm_sha256 *hash,
                           const fm_selection *record) {
    fm_json_writer json;
    fm_json_begin(&json, stdout);
    fm_snapshot_write_head(&json, name, text, hash);
    if (record) write_record(&json, record);
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

static void print_snapshot(const char *name, const fm_snapshot_text *text, const fm_sha256 *hash,
                           const fm_selection *record) {
    fm_snapshot_print_head(name, text, hash);
    if (record) print_record(record);
    for (uint32_t i = 0; i < text->n_line; i++)
        printf("%10u  %s\n", text->line[i].weight, text->line[i].name);
}

fm_status fm_snapshot_show(fm_snapshot_job *job, char **names, fm_error *reterr) {
    fm_bytes bytes;
    fm_snapshot_text text;
    fm_selection record;
    fm_status status = fm_snapshot_read(job->store, names[0], &job->arena, &bytes, reterr);
    if (status) return status;
    status = fm_snapshot_decode(bytes, &job->arena, &text, reterr);
    if (status) return reterr ? fm_error_in(reterr, names[0]) : status;
    fm_sha256 hash = fm_sha256_of(bytes.data, bytes.size);
    status = fm_selection_read(job->store, names[0], &hash, &job->arena, &record, reterr);
    if (status && status != FM_ERR_NOT_FOUND) return status;
    (job->arguments->json ? write_snapshot : print_snapshot)(names[0], &text, &hash,
                                                             status ? NULL : &record);
    return FM_OK;
}
