/* crop_rows.h: recorded crops as rows of a table, so that they can be drawn again.
 *
 * The columns, separated by tabs, are id, crop, method, size, complete, ref_asym_id, n_tokens and
 * draws. Lists have commas: ref_asym_id is `0,4`, and each draw is kind,low,high,value, with
 * semicolons between draws: `0,0,28,19;0,0,9,5`. A first row that starts with `id` names the
 * columns. */
#ifndef FM_COMPLEX_CROP_ROWS_H
#define FM_COMPLEX_CROP_ROWS_H

#include "featurizer/complex/crop.h"

typedef struct fm_crop_row {
    char id[32];   /* of the entry; terminated */
    uint32_t crop; /* below FM_LIMIT_N_CROP_ROW */
    fm_crop_request request;
    uint32_t n_token; /* of the crop, or of the whole assembly */
    uint32_t n_draw;
    const fm_crop_draw *draws;
    uint64_t line; /* of the table, from 1 */
} fm_crop_row;

/* Reads a table of crops. Everything is in the arena. Returns FM_ERR_FORMAT with line and column,
 * and FM_ERR_LIMIT. */
FM_MUST_USE fm_status fm_crop_rows_parse(fm_bytes text, fm_arena *arena,
                                         const fm_crop_row **ret_rows, uint32_t *ret_n,
                                         fm_error *reterr);

/* Draws a recorded crop again. Returns FM_ERR_DATA, with the line, when the crop fails, asks for
 * other draws than the recorded ones, or has other tokens than n_token says. */
FM_MUST_USE fm_status fm_crop_row_replay(const fm_crop_row *row, const fm_assembly *assembly,
                                         fm_arena *arena, fm_complex_crop *ret_crop,
                                         fm_error *reterr);

#endif
