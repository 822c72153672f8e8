/* block.h: records a block from its list of sublayers (sublayer.h).
 *
 * The list is in the order of the algorithm, and draws are numbered in that order. Where the arrays
 * are whole, sublayers are recorded in that order, too. Where they are split over ranks (split.h) a
 * representation changes its split axis between sublayers, by an exchange; block.c records other work
 * under it:
 *
 *     the change begins right after the last sublayer that has the old axis, and ends right before
 *     the first that wants the new one
 *
 *     sublayers of both representations with no outer product mean between them do not wait for each
 *     other, so they are recorded alternately:
 *
 *         list       row  column  transition  outgoing  incoming  starting  ending  transition
 *         recorded   (row's bias) outgoing  row  incoming  column  starting  transition  ending ..
 *
 *     row attention reads the pairs as they are before `outgoing`, hence its bias comes first.
 *
 * Between blocks z is split along axis 0, and m along the axis of the first sublayer that touches it;
 * behind the last block m is split along axis 1. Under BP (split.h) the rank of one branch records
 * that branch's sublayers alone; after the outer product mean both branches have the sum. */
#ifndef FM_TRAINER_MODEL_BLOCK_H
#define FM_TRAINER_MODEL_BLOCK_H

#include "trainer/model/recorder.h"

typedef struct fm_block_list {
    const fm_sublayer *const *sublayer;
    int n_sublayer;
    /* Of the nodes that change the split axis of a representation to 0 and to 1. */
    const char *change_name[FM_N_REPRESENTATION][2];
} fm_block_list;

/* Both representations between two blocks; x FM_TENSOR_NONE: not on this rank. */
typedef struct fm_block_values {
    fm_normed value[FM_N_REPRESENTATION];
} fm_block_values;

/* Records a block. next_weights: of the block behind it where its norms may be applied in this one,
 * else NULL. is_last: of its stack. */
fm_block_values fm_block_record(const fm_recorder *recorder, const fm_block_list *list,
                                const void *weights, const void *next_weights, bool is_last,
                                fm_block_values in);

/* The axis along which a block expects the representation to be split. */
int fm_block_entry_axis(const fm_block_list *list, fm_representation of);

/* Numbers of random draws that a block takes on every rank. */
uint32_t fm_block_draws(const fm_block_list *list);

#endif
