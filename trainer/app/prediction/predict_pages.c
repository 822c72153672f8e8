/* predict_pages.c: see predict_pages.h. */
#include "trainer/app/prediction/predict_pages.h"

#include "proto/base/file.h"
#include "trainer/app/common/stop.h"
#include "trainer/app/prediction/predict_outputs.h"
#include "trainer/predict/page.h"
#include "trainer/predict/pictures.h"
#include "trainer/predict/text_file.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PATH_BYTES = 4096, MOST_CURVES = 8, MOST_MATRICES = 5, MOST_PICTURES = 3 + MOST_MATRICES };

static const size_t most_picture_bytes = (size_t)64 << 20;

/* What the page of a chain is made of. */
typedef struct maker {
    const fm_predict_run_options *options;
    const fm_results *results;
    const fm_result_chain *chain;
    uint32_t *order; /* [n] of the runs, best first */
    uint32_t n;
    fm_arena arena;
    fm_bytes picture[MOST_PICTURES];
    uint32_t n_picture;
} maker;

/* Reads a picture from the chain's folder. A missing picture is skipped. */
static fm_status take_picture(maker *m, const fm_result_run *run, const char *ending,
                              fm_error *reterr) {
    char path[PATH_BYTES];
    fm_status status =
        fm_predict_path(m->options, m->chain->name, run, ending, path, sizeof path, reterr);
    if (status) return status;
    status = fm_file_read(&m->arena, path, most_picture_bytes, &m->picture[m->n_picture], reterr);
    if (!status) m->n_picture++;
    return status == FM_ERR_NOT_FOUND ? FM_OK : status;
}

/* Reads sequence and pLDDT of a prediction from its _run.json. */
static fm_status read_run(maker *m, const fm_result_run *run, const char **ret_sequence,
                          const float **ret_plddt, fm_error *reterr) {
    char path[PATH_BYTES];
    fm_bytes text;
    uint32_t n = m->chain->n_res;
    fm_status status =
        fm_predict_path(m->options, m->chain->name, run, "_run.json", path, sizeof path, reterr);
    if (!status) status = fm_file_read(&m->arena, path, FM_PREDICT_RUN_BYTES, &text, reterr);
    if (status) return status;
    char *sequence = fm_arena_calloc(&m->arena, n + 1, 1);
    float *plddt = fm_arena_alloc_array(&m->arena, n, sizeof *plddt);
    if (!sequence || !plddt) return fm_arena_full(&m->arena, reterr);
    fm_json *tree = fm_json_parse(text.data, text.size);
    const char *letters = fm_json_get_text(fm_json_get_member(tree, "sequence"));
    const fm_json *values = fm_json_get_member(tree, "plddt");
    bool is_good = letters && strlen(letters) == n && fm_json_count(values) == n;
    for (uint32_t i = 0; i < n && is_good; i++) {
        sequence[i] = letters[i];
        plddt[i] = (float)fm_json_get_number(fm_json_get_element(values, i), 0);
    }
    fm_json_free(tree);
    if (!is_good) {
        return fm_fail_in(
            reterr, FM_ERR_FORMAT, path,
            "found no sequence and pLDDT of the chain, expected the record of a prediction");
    }
    *ret_sequence = sequence;
    *ret_plddt = plddt;
    return FM_OK;
}

static fm_status draw_plddt(maker *m, const fm_plddt_curve *curve, uint32_t n, fm_error *reterr) {
    char path[PATH_BYTES];
    fm_text_file file;
    fm_status status =
        fm_predict_path(m->options, m->chain->name, NULL, "/plddt.svg", path, sizeof path, reterr);
    if (!status) status = fm_text_file_open(&file, reterr);
    if (status) return status;
    fm_picture_plddt(file.out, m->chain->name, m->chain->n_res, curve, n, NULL);
    status = fm_text_file_commit(&file, path, reterr);
    return status ? status : take_picture(m, NULL, "/plddt.svg", reterr);
}

static fm_status draw_coverage(maker *m, fm_error *reterr) {
    char path[PATH_BYTES];
    fm_text_file file;
    const fm_json *coverage = fm_json_get_member(m->chain->about, "coverage");
    if (!coverage) return FM_OK;
    fm_status status = fm_predict_path(m->options, m->chain->name, NULL, "/coverage.svg", path,
                                       sizeof path, reterr);
    if (!status) status = fm_text_file_open(&file, reterr);
    if (status) return status;
    if (!fm_picture_coverage(file.out, m->chain->name, m->chain->n_res, coverage)) {
        fm_text_file_discard(&file);
        return FM_OK;
    }
    status = fm_text_file_commit(&file, path, reterr);
    return status ? status : take_picture(m, NULL, "/coverage.svg", reterr);
}

/* Whether one of the first n templates has this name: several hits can be of one chain. */
static bool is_listed(const fm_json *list, size_t n, const char *name) {
    for (size_t t = 0; t < n; t++) {
        const char *before =
            fm_json_get_text(fm_json_get_member(fm_json_get_element(list, t), "name"));
        if (before && strcmp(before, name) == 0) return true;
    }
    return false;
}

/* "1abc_A, 2xyz_B", each name once; NULL when it is not known. */
static const char *list_templates(maker *m) {
    const fm_json *list = fm_json_get_member(m->chain->about, "templates");
    enum { BYTES = 1024 };
    char *text = fm_arena_calloc(&m->arena, BYTES, 1);
    if (!m->chain->about || !text) return m->chain->n_templ ? NULL : "";
    size_t at = 0;
    for (size_t t = 0; t < fm_json_count(list) && t < m->chain->n_templ && at < BYTES; t++) {
        const char *name =
            fm_json_get_text(fm_json_get_member(fm_json_get_element(list, t), "name"));
        if (!name || is_listed(list, t, name)) continue;
        at += (size_t)snprintf(text + at, BYTES - at, "%s%s", at ? ", " : "", name);
    }
    return text;
}

/* Names a file of a prediction as it is called in the chain's folder. */
static fm_status name_file(maker *m, const fm_result_run *run, const char *ending,
                           const char **ret_name, fm_error *reterr) {
    char path[PATH_BYTES];
    fm_status status =
        fm_predict_path(m->options, m->chain->name, run, ending, path, sizeof path, reterr);
    if (status) return status;
    const char *leaf = strrchr(path, '/') + 1;
    char *name = fm_arena_alloc(&m->arena, strlen(leaf) + 1);
    if (!name) return fm_arena_full(&m->arena, reterr);
    memcpy(name, leaf, strlen(leaf) + 1);
    *ret_name = name;
    return FM_OK;
}

static fm_status list_rows(maker *m, fm_page_row *row, fm_error *reterr) {
    for (uint32_t k = 0; k < m->n; k++) {
        const fm_result_run *run = &m->results->run[m->order[k]];
        const fm_result *result = &m->chain->result[m->order[k]];
        const char *file, *scores;
        fm_status status = name_file(m, run, ".cif", &file, reterr);
        if (!status) status = name_file(m, run, "_scores.json", &scores, reterr);
        if (status) return status;
        row[k] = (fm_page_row){.name = run->name,
                               .model = run->model,
                               .seed = run->seed,
                               .mean_plddt = result->mean_plddt,
                               .ptm = result->ptm,
                               .n_cycle = result->n_cycle,
                               .run_s = result->run_s,
                               .file = file,
                               .scores = scores};
    }
    return FM_OK;
}

static fm_status make_page(maker *m, fm_error *reterr) {
    const fm_result_run *best = &m->results->run[m->order[0]];
    fm_plddt_curve curve[MOST_CURVES];
    uint32_t n_curve = m->n < MOST_CURVES ? m->n : MOST_CURVES;
    const char *sequence = NULL, *unused;
    fm_status status = FM_OK;
    for (uint32_t k = 0; k < n_curve && !status; k++) {
        const fm_result_run *run = &m->results->run[m->order[k]];
        curve[k].name = run->name;
        curve[k].mean = m->chain->result[m->order[k]].mean_plddt;
        status = read_run(m, run, k ? &unused : &sequence, &curve[k].plddt, reterr);
    }
    if (!status) status = take_picture(m, best, "_trace.svg", reterr);
    if (!status) status = draw_plddt(m, curve, n_curve, reterr);
    if (!status) status = draw_coverage(m, reterr);
    for (uint32_t k = 0; k < m->n && k < MOST_MATRICES && !status; k++)
        status = take_picture(m, &m->results->run[m->order[k]], "_pae.svg", reterr);
    fm_page_row *row = fm_arena_alloc_array(&m->arena, m->n, sizeof *row);
    if (!status && !row) status = fm_arena_full(&m->arena, reterr);
    if (!status) status = list_rows(m, row, reterr);
    if (status) return status;
    char path[PATH_BYTES], ending[FM_LIMIT_NAME_BYTES + 16];
    /* The page is called as its folder, so that several can be sent in one mail. */
    status = fm_predict_path(m->options, m->chain->name, NULL, "", path, sizeof path, reterr);
    if (status) return status;
    snprintf(ending, sizeof ending, "/%.255s.html", strrchr(path, '/') + 1);
    status = fm_predict_path(m->options, m->chain->name, NULL, ending, path, sizeof path, reterr);
    const fm_page page = {.chain = m->chain->name,
                          .software = m->options->software,
                          .n_res = m->chain->n_res,
                          .n_seq = m->chain->n_seq,
                          .templates = list_templates(m),
                          .sequence = sequence,
                          .plddt = curve[0].plddt,
                          .n_row = m->n,
                          .row = row,
                          .n_picture = m->n_picture,
                          .picture = m->picture};
    return status ? status : fm_page_write(path, &page, reterr);
}

fm_status fm_predict_write_pages(const fm_predict_run_options *options, const fm_results *results,
                                 fm_error *reterr) {
    const size_t arena_bytes = (size_t)1 << 32; /* address space */
    maker m = {.options = options, .results = results};
    fm_status status = fm_arena_init(&m.arena, arena_bytes, reterr);
    for (uint32_t i = 0; i < results->n_chain && !status; i++) {
        fm_arena_reset(&m.arena);
        m.chain = &results->chain[i];
        m.n_picture = 0;
        m.order = fm_arena_alloc_array(&m.arena, results->n_run, sizeof *m.order);
        if (!m.order) status = fm_arena_full(&m.arena, reterr);
        m.n = !status && m.chain->name ? fm_results_rank(results, m.chain, m.order) : 0;
        if (m.n) status = make_page(&m, reterr);
        if (!status && fm_stop_is_asked()) {
            status = fm_fail(reterr, FM_ERR_CANCELLED, "stopped on request");
        }
    }
    fm_arena_fini(&m.arena);
    return status;
}
