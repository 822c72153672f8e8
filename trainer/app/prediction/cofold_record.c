/* cofold_record.c: see cofold_record.h. */
#include "trainer/app/prediction/cofold_record.h"

#include "proto/base/directory.h"
#include "proto/base/file.h"
#include "proto/base/json_text.h"
#include "proto/base/json_tree.h"
#include "trainer/predict/complex/files.h"
#include "trainer/predict/text_file.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RECORD_FORMAT = 1 };

static const size_t RECORD_BYTES = (size_t)64 << 20; /* most of a record */
static const char record_end[] = "_run.json";

const char *const *fm_cofold_ends(const fm_cofold_input *input, int *ret_n) {
    static const char *const bare[] = {".npz"};
    *ret_n = input->has_names ? FM_COMPLEX_ENDS : 1;
    return input->has_names ? fm_complex_ends : bare;
}

void fm_cofold_path(const fm_cofold_target *target, const fm_cofold_input *input,
                    const fm_cofold_result *r, const char *end, char out[FM_COFOLD_PATH_BYTES]) {
    char stem[FM_COMPLEX_STEM_BYTES];
    if (input->has_names) {
        fm_complex_stem(input->name, r->seed, r->sample, stem);
    } else {
        snprintf(stem, sizeof stem, "seed-%u_sample-%u", r->seed, r->sample);
    }
    snprintf(out, FM_COFOLD_PATH_BYTES, "%s/%s%s", target->folder, stem, end);
}

/* Formats a digest of what decides the files of a structure. */
static void format_key(const fm_cofold_target *t, const fm_cofold_input *input,
                       const fm_cofold_result *r, char out[FM_SHA256_HEX]) {
    static const char title[] = "foldmill structure of a complex 1\n";
    char settings[256], ranks[32] = "";
    if (t->dap > 1) snprintf(ranks, sizeof ranks, " dap %d", t->dap);
    const int n = snprintf(settings, sizeof settings, "%d %d %lld %s %s %s %s %u %u%s", t->n_cycle,
                           t->n_step, (long long)t->n_row, t->set, t->device, t->dtype, t->software,
                           r->seed, r->sample, ranks);
    fm_sha256_state *state = fm_sha256_create();
    fm_sha256_update(state, title, sizeof title);
    fm_sha256_update(state, settings, (size_t)n + 1);
    fm_sha256_update(state, t->model, strlen(t->model) + 1);
    fm_sha256_update(state, input->name, strlen(input->name) + 1);
    fm_sha256_update(state, t->weights->bytes, sizeof t->weights->bytes);
    fm_sha256_update(state, input->hash.bytes, sizeof input->hash.bytes);
    const fm_sha256 hash = fm_sha256_digest(state);
    fm_sha256_destroy(state);
    fm_sha256_format(&hash, out);
}

/* -- writing */

/* Writes the sizes of the files, so that a file that was cut off is found. */
static fm_status put_sizes(fm_json_writer *json, const fm_cofold_target *target,
                           const fm_cofold_input *input, const fm_cofold_result *r,
                           fm_error *reterr) {
    int n;
    const char *const *end = fm_cofold_ends(input, &n);
    fm_status status = FM_OK;
    fm_json_open_object(json, "files");
    for (int i = 0; i < n && !status; i++) {
        char path[FM_COFOLD_PATH_BYTES];
        fm_path_kind kind;
        uint64_t bytes;
        fm_cofold_path(target, input, r, end[i], path);
        status = fm_path_size(path, &kind, &bytes, reterr);
        if (!status) fm_json_put_u64(json, end[i], bytes);
    }
    fm_json_close(json);
    return status;
}

static fm_status put_record(FILE *out, const fm_cofold_target *target, const fm_cofold_input *input,
                            const fm_cofold_result *r, const fm_cofold_part *part,
                            fm_error *reterr) {
    char key[FM_SHA256_HEX];
    fm_json_writer json;
    format_key(target, input, r, key);
    fm_json_begin(&json, out);
    fm_json_put_u64(&json, "format", RECORD_FORMAT);
    fm_json_put_string(&json, "key", key);
    fm_json_put_string(&json, "software", target->software);
    fm_json_put_string(&json, "weights", target->model);
    fm_json_put_hash(&json, "weights_sha256", target->weights);
    fm_json_put_u64(&json, "seed", r->seed);
    fm_json_put_u64(&json, "sample", r->sample);
    fm_json_put_i64(&json, "cycles", target->n_cycle);
    fm_json_put_i64(&json, "steps", target->n_step);
    fm_json_put_i64(&json, "msa_rows", target->n_row);
    fm_json_put_i64(&json, "dap", target->dap);
    fm_json_put_exact(&json, "ptm", r->ptm);
    fm_json_put_exact(&json, "iptm", r->iptm);
    fm_json_put_exact(&json, "mean_plddt", r->mean_plddt);
    fm_json_put_exact(&json, "ranking_score", r->ranking_score);
    fm_json_put_exact(&json, "fraction_disordered", r->fraction_disordered);
    fm_json_put_u64(&json, "has_clash", r->has_clash);
    fm_status status = put_sizes(&json, target, input, r, reterr);
    if (part->text) fm_json_put_text(&json, "page", part->text, part->bytes);
    fm_json_end(&json);
    return status;
}

fm_status fm_cofold_record_write(const fm_cofold_target *target, const fm_cofold_input *input,
                                 const fm_cofold_result *r, const fm_cofold_part *part,
                                 fm_error *reterr) {
    char path[FM_COFOLD_PATH_BYTES];
    fm_text_file file;
    fm_status status = fm_text_file_open(&file, reterr);
    if (status) return status;
    status = put_record(file.out, target, input, r, part, reterr);
    fm_cofold_path(target, input, r, record_end, path);
    if (!status) return fm_text_file_commit(&file, path, reterr);
    fm_text_file_discard(&file);
    return status;
}

fm_status fm_cofold_record_remove(const fm_cofold_target *target, const fm_cofold_input *input,
                                  const fm_cofold_result *r, fm_error *reterr) {
    char path[FM_COFOLD_PATH_BYTES];
    fm_cofold_path(target, input, r, record_end, path);
    if (unlink(path) == 0 || errno == ENOENT || errno == ENOTDIR) return FM_OK;
    return fm_fail_in(reterr, FM_ERR_IO, path, "cannot remove: %s", strerror(errno));
}

/* -- reading */

static fm_status has_files(const fm_cofold_target *target, const fm_cofold_input *input,
                           const fm_cofold_result *r, const fm_json *tree, bool *ret_has,
                           fm_error *reterr) {
    int n;
    const char *const *end = fm_cofold_ends(input, &n);
    const fm_json *sizes = fm_json_get_member(tree, "files");
    fm_status status = FM_OK;
    *ret_has = true;
    for (int i = 0; i < n && !status && *ret_has; i++) {
        char path[FM_COFOLD_PATH_BYTES];
        fm_path_kind kind;
        uint64_t bytes;
        int64_t had = 0;
        fm_cofold_path(target, input, r, end[i], path);
        status = fm_path_size(path, &kind, &bytes, reterr);
        *ret_has = !status && kind == FM_PATH_FILE &&
                   fm_json_get_integer(fm_json_get_member(sizes, end[i]), &had) && had > 0 &&
                   (uint64_t)had == bytes;
    }
    return status;
}

/* Takes scores and the part of the page from a record whose key and files are right. */
static fm_status take_values(const fm_json *tree, fm_cofold_result *r, fm_cofold_part *ret_part,
                             fm_error *reterr) {
    const char *page = fm_json_get_text(fm_json_get_member(tree, "page"));
    r->ptm = fm_json_get_number(fm_json_get_member(tree, "ptm"), NAN);
    r->iptm = fm_json_get_number(fm_json_get_member(tree, "iptm"), NAN);
    r->mean_plddt = fm_json_get_number(fm_json_get_member(tree, "mean_plddt"), NAN);
    r->ranking_score = fm_json_get_number(fm_json_get_member(tree, "ranking_score"), NAN);
    r->fraction_disordered =
        fm_json_get_number(fm_json_get_member(tree, "fraction_disordered"), NAN);
    r->has_clash = fm_json_get_number(fm_json_get_member(tree, "has_clash"), 0) != 0;
    if (!page) return FM_OK;
    ret_part->text = strdup(page);
    ret_part->bytes = strlen(page);
    return ret_part->text ? FM_OK : fm_fail(reterr, FM_ERR_NOMEM, "no memory for the page");
}

fm_status fm_cofold_record_take(const fm_cofold_target *target, const fm_cofold_input *input,
                                fm_cofold_result *r, bool *ret_found, fm_cofold_part *ret_part,
                                fm_error *reterr) {
    char path[FM_COFOLD_PATH_BYTES], key[FM_SHA256_HEX];
    fm_arena arena;
    fm_bytes text;
    fm_json *tree = NULL;
    *ret_found = false;
    *ret_part = (fm_cofold_part){.text = NULL};
    fm_cofold_path(target, input, r, record_end, path);
    fm_status status = fm_arena_init(&arena, 2 * RECORD_BYTES, reterr);
    if (status) return status;
    status = fm_file_read(&arena, path, RECORD_BYTES, &text, reterr);
    if (!status) tree = fm_json_parse(text.data, text.size);
    fm_arena_fini(&arena);
    if (status) return status == FM_ERR_NOT_FOUND || status == FM_ERR_LIMIT ? FM_OK : status;
    format_key(target, input, r, key);
    const char *had = fm_json_get_text(fm_json_get_member(tree, "key"));
    if (had && strcmp(had, key) == 0) status = has_files(target, input, r, tree, ret_found, reterr);
    if (!status && *ret_found) status = take_values(tree, r, ret_part, reterr);
    fm_json_free(tree);
    return status;
}
