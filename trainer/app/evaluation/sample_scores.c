/* sample_scores.c: see sample_scores.h. */
#include "trainer/app/evaluation/sample_scores.h"

#include "proto/base/csv.h"
#include "proto/base/file.h"
#include "trainer/metrics/eval_table.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

fm_status fm_sample_scores_init(char *const *name, uint32_t n_file, fm_sample_scores *ret_scores,
                                fm_error *reterr) {
    assert(n_file > 0);
    *ret_scores = (fm_sample_scores){
        .name = name, .file = calloc(n_file, sizeof *ret_scores->file), .n_file = n_file};
    return ret_scores->file ? FM_OK : fm_fail(reterr, FM_ERR_NOMEM, "no memory for scores");
}

void fm_sample_scores_fini(fm_sample_scores *scores) {
    free(scores->file);
    *scores = (fm_sample_scores){.name = NULL};
}

/* -- means */

fm_sample_means fm_sample_scores_means(const fm_sample_scores *scores) {
    fm_sample_means m = {.loss = 0};
    const double n = scores->n_file;
    for (uint32_t i = 0; i < scores->n_file; i++) {
        const fm_scored_file *file = &scores->file[i];
        m.loss += file->losses.loss;
        for (int k = 0; k < FM_COMPLEX_TERMS; k++)
            m.term[k] += file->losses.term[k];
        fm_part_scores_add(&m.parts, &file->rollout.parts);
        if (!file->rollout.is_known) continue;
        m.rmsd += file->rollout.rmsd;
        m.rmsd_max = fmax(m.rmsd_max, file->rollout.rmsd);
        m.lddt += file->rollout.lddt;
        m.mirrored += file->rollout.mirror_rmsd < file->rollout.rmsd;
        m.n_rollout++;
    }
    m.loss /= n;
    for (int k = 0; k < FM_COMPLEX_TERMS; k++)
        m.term[k] /= n;
    if (m.n_rollout == 0) return m;
    /* fmax passes over NAN, and a structure that is not finite has no hand. */
    if (!isfinite(m.rmsd)) m.rmsd_max = m.mirrored = NAN;
    m.rmsd /= m.n_rollout;
    m.lddt /= m.n_rollout;
    m.mirrored /= m.n_rollout;
    return m;
}

/* A line under construction. */
typedef struct line {
    char *text;
    size_t size, room;
} line;

FM_PRINTF(2, 3) static void add(line *l, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(l->text + l->size, l->room - l->size, format, arguments);
    va_end(arguments);
    l->size += (size_t)n;
    assert(n >= 0 && l->size < l->room);
}

/* JSON has no number for a sampled structure that is not finite: null. */
static void add_number(line *l, const char *name, double value) {
    if (isfinite(value)) {
        add(l, ",\"%s\":%.9g", name, value);
    } else {
        add(l, ",\"%s\":null", name);
    }
}

size_t fm_sample_means_line(const fm_sample_means *means, uint32_t n_file, uint64_t step,
                            double wall_s, char *out, size_t out_bytes) {
    line l = {.text = out, .room = out_bytes};
    add(&l, "{\"step\":%" PRIu64 ",\"samples\":%u", step, n_file);
    add_number(&l, "loss", means->loss);
    for (int i = 0; i < FM_COMPLEX_TERMS; i++)
        add_number(&l, fm_complex_terms[i].name, means->term[i]);
    add_number(&l, "lddt", 1 - means->term[FM_COMPLEX_SMOOTH_LDDT]);
    if (means->n_rollout > 0) {
        add_number(&l, "rollout_rmsd", means->rmsd);
        add_number(&l, "rollout_rmsd_max", means->rmsd_max);
        add_number(&l, "rollout_mirrored", means->mirrored);
        add_number(&l, "rollout_lddt", means->lddt);
    }
    for (int i = 0; i < FM_N_PART_SCORE; i++)
        if (means->parts.of[i].n > 0) {
            add_number(&l, fm_part_score_names[i], means->parts.of[i].mean);
        }
    add(&l, ",\"wall_s\":%.3f}\n", wall_s);
    return l.size;
}

/* -- the table */

static void put_row(FILE *out, uint64_t step, const char *name, const fm_scored_file *r) {
    const double scores[] = {r->rollout.rmsd, r->rollout.mirror_rmsd, r->rollout.lddt};
    fprintf(out, "%" PRIu64 ",", step);
    fm_csv_put(out, name);
    fm_eval_put_cell(out, r->losses.loss);
    for (int i = 0; i < FM_COMPLEX_TERMS; i++)
        fm_eval_put_cell(out, r->losses.term[i]);
    fm_eval_put_cell(out, 1 - r->losses.term[FM_COMPLEX_SMOOTH_LDDT]);
    for (size_t i = 0; i < sizeof scores / sizeof scores[0]; i++)
        fm_eval_put_cell(out, r->rollout.is_known ? scores[i] : NAN);
    for (int i = 0; i < FM_N_PART_SCORE; i++) {
        const fm_mean_score *part = &r->rollout.parts.of[i];
        fm_eval_put_cell(out, part->n > 0 ? part->mean : NAN);
    }
    fputc('\n', out);
}

fm_status fm_sample_scores_write(const fm_sample_scores *scores, uint64_t step, const char *path,
                                 fm_error *reterr) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (!out) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a table");
    fputs("step,sample,loss", out);
    for (int i = 0; i < FM_COMPLEX_TERMS; i++)
        fprintf(out, ",%s", fm_complex_terms[i].name);
    fputs(",lddt,rollout_rmsd,rollout_mirror_rmsd,rollout_lddt", out);
    for (int i = 0; i < FM_N_PART_SCORE; i++)
        fprintf(out, ",%s", fm_part_score_names[i]);
    fputc('\n', out);
    for (uint32_t i = 0; i < scores->n_file; i++)
        put_row(out, step, scores->name[i], &scores->file[i]);
    fm_status status = fclose(out) ? fm_fail(reterr, FM_ERR_NOMEM, "no memory for a table")
                                   : fm_file_write_atomic(path, text, bytes, reterr);
    free(text);
    return status;
}
