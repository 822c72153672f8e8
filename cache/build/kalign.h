/* kalign.h: the program kalign (Lassmann 2020, Debian's package `kalign`) as a process of its own,
 * for what must equal the reference's realigned templates. It is run only where compat_openfold
 * asks for it; foldmill's own alignment (featurizer/template_align.h) needs no program. */
#ifndef FM_CACHE_KALIGN_H
#define FM_CACHE_KALIGN_H

#include "proto/base/arena.h"
#include "proto/base/bytes.h"
#include "proto/base/status.h"

#include <stdbool.h>

/* Aligns two sequences, as the `align` of a fm_template_source does. program: its path or name,
 * NULL = "kalign" by PATH. The rows have equal length and '-' at gaps and lie in the arena. Works
 * in a folder of its own below $TMPDIR (or /tmp), which it removes. FM_ERR_NOT_FOUND when there is
 * no such program, FM_ERR_IO, FM_ERR_DATA for output that is no two rows. */
FM_MUST_USE fm_status fm_kalign_align(const char *program, fm_bytes hit, fm_bytes chain,
                                      fm_arena *arena, const char **ret_hit_row,
                                      const char **ret_chain_row, size_t *ret_n_column,
                                      fm_error *reterr);

#endif
