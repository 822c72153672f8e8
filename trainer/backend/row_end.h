/* row_end.h: linear_update, transition and its gradient, composed of other entries of a table.
 *
 * A backend without kernels for them, or for some shape, implements the entries with these
 * functions. They are also the reference that such kernels are tested against. The arguments are
 * those of the entries, and k is the table whose entries are called. */
#ifndef FM_BACKEND_ROW_END_H
#define FM_BACKEND_ROW_END_H

#include "trainer/backend/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

size_t fm_linear_update_composed_workspace(const fm_kernels *k, const fm_linear_update *args);
void fm_linear_update_composed(const fm_kernels *k, fm_stream *stream, const fm_linear_update *args,
                               void *workspace);
size_t fm_transition_composed_workspace(const fm_kernels *k, const fm_transition *args);
void fm_transition_composed(const fm_kernels *k, fm_stream *stream, const fm_transition *args,
                            void *workspace);
size_t fm_transition_grad_composed_workspace(const fm_kernels *k, const fm_transition *args,
                                             const fm_transition_grad *grad);
void fm_transition_grad_composed(const fm_kernels *k, fm_stream *stream, const fm_transition *args,
                                 const fm_transition_grad *grad, void *workspace);

#ifdef __cplusplus
}
#endif

#endif
