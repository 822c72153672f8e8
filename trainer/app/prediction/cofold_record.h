/* cofold_record.h: the record of a predicted structure, ..._run.json beside its files: what it was
 * made from, its scores, the sizes of its files, and its part of the page. It is written last, and
 * vouches for the files. --resume keeps a structure whose record has the same inputs, weights and
 * settings, and whose files are all there. */
#ifndef FM_TRAINER_COFOLD_RECORD_H
#define FM_TRAINER_COFOLD_RECORD_H

#include "trainer/app/prediction/cofold_input.h"

#include <limits.h>

enum { FM_COFOLD_PATH_BYTES = PATH_MAX };

/* One structure. */
typedef struct fm_cofold_result {
    uint32_t seed, sample;
    double ptm, iptm; /* iptm: NAN for one chain */
    double mean_plddt, ranking_score, fraction_disordered;
    bool has_clash;
} fm_cofold_result;

/* A part of a page, about one structure. The owner frees the text; NULL for none. */
typedef struct fm_cofold_part {
    char *text;
    size_t bytes;
} fm_cofold_part;

/* Where results go, and what they are made with. */
typedef struct fm_cofold_target {
    const char *folder;
    const char *model, *software; /* of the weights; version of this program */
    const fm_sha256 *weights;     /* of the file */
    const char *set, *device, *dtype;
    int32_t n_cycle, n_step;
    int64_t n_row; /* most rows of the MSA that a cycle reads */
    int32_t dap;   /* ranks that share each complex, by which results differ in rounding */
} fm_cofold_target;

/* The endings of a structure's files, [*ret_n]: those of files.h with names, else one archive. */
const char *const *fm_cofold_ends(const fm_cofold_input *input, int *ret_n);
/* Writes the path of a structure's file: with names as fm_complex_stem, else
 * FOLDER/seed-S_sample-K, and the ending. */
void fm_cofold_path(const fm_cofold_target *target, const fm_cofold_input *input,
                    const fm_cofold_result *r, const char *end, char out[FM_COFOLD_PATH_BYTES]);

/* Writes the record of a structure whose files are written. FM_ERR_IO, FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_cofold_record_write(const fm_cofold_target *target,
                                             const fm_cofold_input *input,
                                             const fm_cofold_result *r, const fm_cofold_part *part,
                                             fm_error *reterr);
/* Removes the record, if there is one, before its files change. FM_ERR_IO. */
FM_MUST_USE fm_status fm_cofold_record_remove(const fm_cofold_target *target,
                                              const fm_cofold_input *input,
                                              const fm_cofold_result *r, fm_error *reterr);
/* Fills the scores of *r, whose seed and sample are set, from a record of the same inputs, weights
 * and settings. *ret_found is false, and *r as it was, without such a record, or when a file of the
 * structure is missing or has another size. The caller frees the part. FM_ERR_IO, FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_cofold_record_take(const fm_cofold_target *target,
                                            const fm_cofold_input *input, fm_cofold_result *r,
                                            bool *ret_found, fm_cofold_part *ret_part,
                                            fm_error *reterr);

#endif
