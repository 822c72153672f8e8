/* triangle_part.h: a triangle multiplication (ops/triangle_multiplication.h) as one node on a pair
 * array that is split over ranks along axis 0.
 *
 * The node makes both operands of its part. For outgoing edges it gathers b from the other ranks.
 * For incoming edges, whose sum runs over the rows, it multiplies and sums x over the ranks.
 * Backward has the opposite exchanges. They are inside the node, where arrays are channel-major as
 * the products read them; nothing overlaps with them. The draws are those of the whole node, and
 * so are the numbers, except that shares of x are rounded before they are summed.
 * Where the device has no kernels for this, the sublayer is recorded as ops/triangle_split.h, and a
 * device that has them for other shapes counts that as a slow path. */
#ifndef FM_TRAINER_MODEL_TRIANGLE_PART_H
#define FM_TRAINER_MODEL_TRIANGLE_PART_H

#include "trainer/dist/exchange.h"
#include "trainer/ops/triangle_multiplication.h"

/* Whether the device has kernels for parts of z. Either bias may be absent. */
bool fm_triangle_part_exists(const fm_tape *tape, fm_comm *comm, bool incoming, fm_tensor_ref z,
                             const fm_triangle_weights *weights, double dropout);

/* Adds the node; returns the new z. z and mask are split as above. */
fm_tensor_ref fm_triangle_part_add(fm_tape *tape, const char *name, fm_comm *comm, bool incoming,
                                   fm_tensor_ref z, fm_tensor_ref mask,
                                   const fm_triangle_weights *weights, double dropout);

#endif
