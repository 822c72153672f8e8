/* block.h: records a block from its list of sublayers (sublayer.h).
 *
 * The list has the order of the algorithm, and the random draws are numbered in that order. On
 * whole arrays the sublayers are also recorded in that order. On arrays that are split over ranks
 * (split.h) a representation changes its split axis between sublayers, by an exchange. Two rules
 * decide which work is recorded while an exchange is under way:
 *
 *     1. An exchange begins right after the last sublayer that needs the old axis, and ends right
 *        before the first sublayer that needs the new one, which may be in the next block. An
 *        attention with a bias from the pairs computes the bias before the pairs change their
 *        axis, and the bias is exchanged at the same time.
 *     2. Sublayers of both representations with no outer product mean between them are independent,
 *        so they are recorded alternately, and each exchange of one representation runs under a
 *        sublayer of the other:
 *
 *            list       row  column  transition  outgoing  incoming  starting  ending  transition
 *            recorded   (bias of row)  outgoing  row  incoming  column  starting  transition  ...
 *
 *        Row attention reads the pairs before `outgoing` updates them, so its bias is made first.
 *        In a list where the pairs come first, their updates are read, so it is recorded in order.
 *
 * Between blocks z is split along axis 0, and m along the axis of the first sublayer that touches
 * it, or on the way there. After the last block m is split along axis 1, unless the list has it
 * whole on every rank. Under BP (split.h) each rank records the sublayers of its branch only; after
 * the outer product mean both have the sum. */
#ifndef FM_TRAINER_MODEL_BLOCK_H
#define FM_TRAINER_MODEL_BLOCK_H

#include "trainer/model/recorder.h"

typedef struct fm_block_list {
    const fm_sublayer *const *sublayer;
    int n_sublayer;
    /* Names of the nodes that change the split axis of a representation to 0 and to 1. */
    const char *change_name[FM_N_REPRESENTATION][2];
} fm_block_list;

/* Both representations between two blocks. x is FM_TENSOR_NONE for one that this rank does not
 * have. The other fields are zero if no exchange is under way. */
typedef struct fm_block_values {
    fm_normed value[FM_N_REPRESENTATION];
    bool under_way[FM_N_REPRESENTATION]; /* `change` makes the value */
    fm_axis_change change[FM_N_REPRESENTATION];
    const fm_sublayer *bias_of; /* its bias was made before the pairs changed their axis; or NULL */
    fm_begun bias;
} fm_block_values;

/* Records a block. next_weights: those of the next block, where this block may apply its
 * LayerNorms and leave exchanges under way; else NULL. is_last: the block is the last of its stack.
 * Returns the updated representations. */
fm_block_values fm_block_record(const fm_recorder *recorder, const fm_block_list *list,
                                const void *weights, const void *next_weights, bool is_last,
                                fm_block_values in);

/* Returns the axis along which a block expects the representation to be split. */
int fm_block_entry_axis(const fm_block_list *list, fm_representation of);

/* Returns how many numbers of random draws a block takes; the same on every rank. */
uint32_t fm_block_draws(const fm_block_list *list);

#endif
