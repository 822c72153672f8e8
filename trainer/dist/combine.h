/* combine.h: what a rank receives in an exchange, computed on host memory. Communicators whose
 * ranks share the memory of one host use it, so they give the same bits; a check of other
 * communicators compares with it. */
#ifndef FM_TRAINER_COMBINE_H
#define FM_TRAINER_COMBINE_H

#include "trainer/dist/comm.h"

/* The kernel table whose act type is the message's element type: that of activations, or the wide
 * one for gradients of parameters. */
const fm_kernels *fm_comm_table(const fm_comm *comm, fm_element element);

/* A hash of the messages of one exchange, which is the same on all ranks that exchange the same. */
uint64_t fm_messages_digest(const fm_message *messages, int32_t count);

/* Fills the receive buffer of a message with NaN, which passes for no result. */
void fm_comm_spoil(const fm_comm *comm, const fm_message *message);

enum { FM_COMBINE_RANKS = 4096 }; /* of a group, at most: all ranks of a run */

/* Reads source[r], the `send` of rank r as this rank can address it, and writes message->receive.
 * The element type is f32 or f64. source[r] is not read where rank r sends nothing. */
void fm_comm_combine(const fm_message *message, int32_t rank, int32_t size,
                     const void *const *source);

#endif
