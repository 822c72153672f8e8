/* relative_position.h: the encoding of relative positions (AF3-3): a linear layer on 139 one-hot
 * features of a pair of tokens, computed by look-ups of the layer's columns.
 *
 *     columns    0 .. 65     residue index of i minus that of j, clipped to +-32; 65: other chain
 *               66 .. 131    the same of token indices within a residue; 131: other residue
 *              132           same entity
 *              133 .. 138    copy of the entity, clipped to +-2; 138: other entity */
#ifndef FM_TRAINER_RELATIVE_POSITION_H
#define FM_TRAINER_RELATIVE_POSITION_H

#include "trainer/autograd/tape.h"

enum { FM_RELATIVE_FEATURES = 139, FM_RELATIVE_KINDS = 4 };

/* Computes on the host the classes of all pairs from the tokens' ids, all [n]. ids is [4, n, n],
 * with one class of each kind. The class of the same entity is 255 where two entities differ. */
void fm_relative_position_classes(int64_t n, const int64_t *asym_id, const int64_t *residue_index,
                                  const int64_t *entity_id, const int64_t *sym_id,
                                  const int64_t *token_index, uint8_t *ids);

/* The encodings of pairs first .. first + pairs - 1 of `all` pairs. */
typedef struct fm_relative_rows {
    int64_t all, first, pairs, c;
    const void *ids, *w;
} fm_relative_rows;

/* Writes y [pairs, c], for ops that encode some pairs at a time. */
void fm_call_relative_position(fm_run *run, const fm_relative_rows *rows, void *y);

/* ids u8 [4, n, n], w [c, 139]. Returns [n, n, c], the rows of `part`; n is a multiple of
 * part.count. */
fm_tensor_ref fm_op_relative_position(fm_tape *tape, const char *name, fm_tensor_ref ids,
                                      fm_param_ref w, int64_t c, fm_part part);

#endif
