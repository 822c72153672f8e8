/* norm_linear.h: norm_linear composed of other entries of a table.
 *
 * A backend without a kernel for it, or for some shape, implements the entry with these functions.
 * They are also the reference that such a kernel is tested against. The arguments are those of the
 * entry, and k is the table whose entries are called. */
#ifndef FM_BACKEND_NORM_LINEAR_H
#define FM_BACKEND_NORM_LINEAR_H

#include "trainer/backend/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

size_t fm_norm_linear_composed_workspace(const fm_kernels *k, const fm_norm_linear *args);
void fm_norm_linear_composed(const fm_kernels *k, fm_stream *stream, const fm_norm_linear *args,
                             void *workspace);

#ifdef __cplusplus
}
#endif

#endif
