/* inspect_input.h: describes a chain of a cache as the input of a prediction, for the prediction's
 * page. It has the coverage of the chain by the rows of its MSA, and the chain's templates. */
#ifndef FM_CLI_INSPECT_INPUT_H
#define FM_CLI_INSPECT_INPUT_H

#include "proto/base/arena.h"
#include "proto/base/json_text.h"
#include "proto/record.h"

/* Adds to the open object
 *
 *     "coverage": {"columns": [number of rows without a gap, for each residue],
 *                  "bands": [{"rows", "identity", "cells"}]}
 *     "templates": [{"name", "sum_probs", "release_date"}]
 *
 * Rows are sorted by their identity to the chain, highest first, and a band has neighbouring rows.
 * "identity" is their mean identity (0..1) over aligned columns. "cells" has one digit for each of
 * at most 256 pieces of the chain: the tenths of the piece's cells that are no gap (9: nearly all).
 * `date_rule`: of proto/template_date.h. FM_ERR_LIMIT when the arena is full. */
FM_MUST_USE fm_status fm_inspect_input_json(fm_json_writer *json, const fm_record *record,
                                            uint32_t date_rule, fm_arena *arena, fm_error *reterr);

#endif
