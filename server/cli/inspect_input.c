/* inspect_input.c: see inspect_input.h. */
#include "server/cli/inspect_input.h"

#include "featurizer/sample/choose.h"
#include "proto/chem/residue.h"

#include <math.h>
#include <stdlib.h>

enum { MOST_BANDS = 64, MOST_CELLS = 256 };

/* A row of the MSA and its identity to the query. */
typedef struct ranked_row {
    uint32_t row;
    double identity;
} ranked_row;

static int compare_rows(const void *a, const void *b) {
    const ranked_row *x = a, *y = b;
    if (x->identity != y->identity) return x->identity > y->identity ? -1 : 1;
    return (x->row > y->row) - (x->row < y->row);
}

static double identity_of(const fm_part_msa *msa, uint32_t row) {
    const uint8_t *query = msa->msa, *here = msa->msa + (size_t)row * msa->n_res;
    uint32_t n_aligned = 0, n_same = 0;
    for (uint32_t i = 0; i < msa->n_res; i++) {
        n_aligned += here[i] != FM_RESTYPE_GAP;
        n_same += here[i] != FM_RESTYPE_GAP && here[i] == query[i];
    }
    return n_aligned ? (double)n_same / n_aligned : 0;
}

static void put_columns(fm_json_writer *json, const fm_part_msa *msa) {
    fm_json_open_array(json, "columns");
    for (uint32_t i = 0; i < msa->n_res; i++) {
        const uint32_t *counts = msa->profile + (size_t)i * FM_N_HHBLITS;
        fm_json_put_u64(json, NULL, msa->n_seq - counts[FM_RESTYPE_GAP]);
    }
    fm_json_close(json);
}

/* Writes a band of rows[0..n-1]. */
static void put_band(fm_json_writer *json, const fm_part_msa *msa, const ranked_row *rows,
                     uint32_t n) {
    char cells[MOST_CELLS + 1];
    uint32_t n_cell = msa->n_res < MOST_CELLS ? msa->n_res : MOST_CELLS;
    double identity = 0;
    for (uint32_t k = 0; k < n; k++)
        identity += rows[k].identity;
    for (uint32_t c = 0; c < n_cell; c++) {
        uint32_t begin = (uint32_t)((uint64_t)c * msa->n_res / n_cell);
        uint32_t end = (uint32_t)((uint64_t)(c + 1) * msa->n_res / n_cell);
        uint64_t n_filled = 0, n_all = (uint64_t)n * (end - begin);
        for (uint32_t k = 0; k < n; k++) {
            const uint8_t *here = msa->msa + (size_t)rows[k].row * msa->n_res;
            for (uint32_t i = begin; i < end; i++)
                n_filled += here[i] != FM_RESTYPE_GAP;
        }
        uint64_t tenths = n_filled * 10 / n_all;
        cells[c] = (char)('0' + (tenths < 9 ? tenths : 9));
    }
    cells[n_cell] = '\0';
    fm_json_open_object(json, NULL);
    fm_json_put_u64(json, "rows", n);
    fm_json_put_f64(json, "identity", identity / n, 3);
    fm_json_put_string(json, "cells", cells);
    fm_json_close(json);
}

static fm_status put_coverage(fm_json_writer *json, const fm_part_msa *msa, fm_arena *arena,
                              fm_error *reterr) {
    ranked_row *rows = fm_arena_alloc_array(arena, msa->n_seq, sizeof *rows);
    if (!rows) return fm_arena_full(arena, reterr);
    for (uint32_t r = 0; r < msa->n_seq; r++)
        rows[r] = (ranked_row){r, identity_of(msa, r)};
    qsort(rows, msa->n_seq, sizeof *rows, compare_rows);
    uint32_t n_band = msa->n_seq < MOST_BANDS ? msa->n_seq : MOST_BANDS;
    fm_json_open_object(json, "coverage");
    put_columns(json, msa);
    fm_json_open_array(json, "bands");
    for (uint32_t b = 0; b < n_band; b++) {
        uint32_t begin = (uint32_t)((uint64_t)b * msa->n_seq / n_band);
        uint32_t end = (uint32_t)((uint64_t)(b + 1) * msa->n_seq / n_band);
        put_band(json, msa, rows + begin, end - begin);
    }
    fm_json_close(json);
    fm_json_close(json);
    return FM_OK;
}

static fm_status put_templates(fm_json_writer *json, const fm_record *record, uint32_t date_rule,
                               fm_arena *arena, fm_error *reterr) {
    fm_plan plan;
    uint32_t *chosen, n = 0;
    fm_sample_draw key = {.seed = 0}; /* the plan draws nothing for templates */
    fm_draws draws = fm_draws_philox(&key);
    fm_status status = fm_plan_find("predict", &plan, reterr);
    plan.max_template_date = date_rule;
    if (!status) {
        status = fm_choose_hits(&plan, &draws, record->hits, record->structure, arena, &chosen, &n,
                                reterr);
    }
    if (status) return status;
    fm_json_open_array(json, "templates");
    for (uint32_t t = 0; t < n; t++) {
        const fm_template_hit *hit = &record->hits->hit[chosen[t]];
        fm_json_open_object(json, NULL);
        fm_json_put_string(json, "name", hit->name);
        fm_json_put_f64(json, "sum_probs", hit->sum_probs, 2);
        fm_json_put_string(json, "release_date", hit->release_date);
        fm_json_close(json);
    }
    fm_json_close(json);
    return FM_OK;
}

fm_status fm_inspect_input_json(fm_json_writer *json, const fm_record *record, uint32_t date_rule,
                                fm_arena *arena, fm_error *reterr) {
    fm_status status = record->msa ? put_coverage(json, record->msa, arena, reterr) : FM_OK;
    if (!status && record->hits) status = put_templates(json, record, date_rule, arena, reterr);
    return status;
}
