/* few_grad.h: few_grad composed of other entries of a table, for backends without a kernel for it
 * and as the reference that such a kernel is tested against. The arguments are those of the entry,
 * and k is the table whose entries are called. */
#ifndef FM_BACKEND_FEW_GRAD_H
#define FM_BACKEND_FEW_GRAD_H

#include "trainer/backend/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

size_t fm_few_grad_composed_workspace(const fm_kernels *k, const fm_few_grad *args);
void fm_few_grad_composed(const fm_kernels *k, fm_stream *stream, const fm_few_grad *args,
                          void *workspace);

#ifdef __cplusplus
}
#endif

#endif
