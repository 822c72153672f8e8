/* scores.c: the confidences of a prediction as JSON; see prediction.h. */
#include "trainer/predict/prediction.h"

#include "trainer/predict/text_file.h"

#include <math.h>

/* Numbers with two decimals, as ColabFold rounds them. */
static void put_row(FILE *out, const float *value, uint32_t n) {
    fputc('[', out);
    for (uint32_t i = 0; i < n; i++)
        fprintf(out, "%s%.2f", i ? ", " : "", (double)value[i]);
    fputc(']', out);
}

static void put_matrix(FILE *out, const fm_prediction *p) {
    fputc('[', out);
    for (uint32_t i = 0; i < p->n_res; i++) {
        if (i) fputs(", ", out);
        put_row(out, p->pae + (size_t)i * p->n_res, p->n_res);
    }
    fputc(']', out);
}

fm_status fm_prediction_write_scores(const char *path, const fm_prediction *p, fm_error *reterr) {
    fm_text_file file;
    fm_status status = fm_text_file_open(&file, reterr);
    if (status) return status;
    fputs("{\"plddt\": ", file.out);
    put_row(file.out, p->plddt, p->n_res);
    if (p->pae) {
        fprintf(file.out, ", \"max_pae\": %.2f, \"pae\": ", p->max_pae);
        put_matrix(file.out, p);
        fprintf(file.out, ", \"ptm\": %.4f", p->ptm);
    }
    fputs("}\n", file.out);
    return fm_text_file_commit(&file, path, reterr);
}

fm_status fm_prediction_write_pae(const char *path, const fm_prediction *p, fm_error *reterr) {
    fm_text_file file;
    fm_status status = fm_text_file_open(&file, reterr);
    if (status) return status;
    fputs("[{\"predicted_aligned_error\": ", file.out);
    put_matrix(file.out, p);
    fprintf(file.out, ", \"max_predicted_aligned_error\": %.2f}]\n", p->max_pae);
    return fm_text_file_commit(&file, path, reterr);
}
