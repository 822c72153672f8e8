/* kalign.h: runs the program kalign (Lassmann 2020, Debian's package `kalign`) as its own process,
 * for realigned templates that must equal the reference's. Only compat_openfold uses it; foldmill's
 * own alignment (featurizer/template_align.h) needs no program. */
#ifndef FM_CACHE_KALIGN_H
#define FM_CACHE_KALIGN_H

#include "proto/base/arena.h"
#include "proto/base/bytes.h"
#include "proto/base/status.h"

#include <stdbool.h>

/* Aligns two sequences, as `align` of fm_template_source requires. program: its path or name, NULL
 * = "kalign" on the PATH. The rows are in the arena, have equal length, and '-' at gaps. It works
 * in a new folder below $TMPDIR (or /tmp), and removes it. FM_ERR_NOT_FOUND without such a program,
 * FM_ERR_IO, FM_ERR_DATA for output that is not two rows. */
FM_MUST_USE fm_status fm_kalign_align(const char *program, fm_bytes hit, fm_bytes chain,
                                      fm_arena *arena, const char **ret_hit_row,
                                      const char **ret_chain_row, size_t *ret_n_column,
                                      fm_error *reterr);

#endif
