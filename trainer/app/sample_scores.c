/* sample_scores.c: see sample_scores.h. */
#include "trainer/app/sample_scores.h"

#include "proto/base/csv.h"
#include "proto/base/file.h"
#include "trainer/metrics/eval_table.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
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
        const fm_af3_result *file = &scores->file[i];
        m.loss += file->loss;
        for (int k = 0; k < FM_COMPLEX_TERMS; k++)
            m.term[k] += file->term[k];
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
    m.rmsd /= m.n_rollout;
    m.lddt /= m.n_rollout;
    m.mirrored /= m.n_rollout;
    return m;
}

size_t fm_sample_means_line(const fm_sample_means *means, uint32_t n_file, uint64_t step,
                            double wall_s, char *line, size_t line_bytes) {
    int at = snprintf(line, line_bytes, "{\"step\":%" PRIu64 ",\"samples\":%u,\"loss\":%.9g", step,
                      n_file, means->loss);
    for (int i = 0; i < FM_COMPLEX_TERMS; i++)
        at += snprintf(line + at, line_bytes - (size_t)at, ",\"%s\":%.9g", fm_complex_term_name(i),
                       means->term[i]);
    at += snprintf(line + at, line_bytes - (size_t)at, ",\"lddt\":%.9g",
                   1 - means->term[FM_COMPLEX_SMOOTH_LDDT]);
    if (means->n_rollout > 0) {
        at += snprintf(line + at, line_bytes - (size_t)at,
                       ",\"rollout_rmsd\":%.9g,\"rollout_rmsd_max\":%.9g,\"rollout_mirrored\":%.9g,"
                       "\"rollout_lddt\":%.9g",
                       means->rmsd, means->rmsd_max, means->mirrored, means->lddt);
    }
    at += snprintf(line + at, line_bytes - (size_t)at, ",\"wall_s\":%.3f}\n", wall_s);
    assert(at > 0 && (size_t)at < line_bytes);
    return (size_t)at;
}

/* -- the table */

static void put_row(FILE *out, uint64_t step, const char *name, const fm_af3_result *r) {
    const double scores[] = {r->rollout.rmsd, r->rollout.mirror_rmsd, r->rollout.lddt};
    fprintf(out, "%" PRIu64 ",", step);
    fm_csv_put(out, name);
    fm_eval_put_cell(out, r->loss);
    for (int i = 0; i < FM_COMPLEX_TERMS; i++)
        fm_eval_put_cell(out, r->term[i]);
    fm_eval_put_cell(out, 1 - r->term[FM_COMPLEX_SMOOTH_LDDT]);
    for (size_t i = 0; i < sizeof scores / sizeof scores[0]; i++)
        fm_eval_put_cell(out, r->rollout.is_known ? scores[i] : NAN);
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
        fprintf(out, ",%s", fm_complex_term_name(i));
    fputs(",lddt,rollout_rmsd,rollout_mirror_rmsd,rollout_lddt\n", out);
    for (uint32_t i = 0; i < scores->n_file; i++)
        put_row(out, step, scores->name[i], &scores->file[i]);
    fm_status status = fclose(out) ? fm_fail(reterr, FM_ERR_NOMEM, "no memory for a table")
                                   : fm_file_write_atomic(path, text, bytes, reterr);
    free(text);
    return status;
}
