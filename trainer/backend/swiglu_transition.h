/* swiglu_transition.h: AlphaFold 3's transition and its gradient, composed of other entries of a
 * table.
 *
 * A backend without kernels for it, or for some shape, implements the entries with these functions.
 * They are also the reference that such kernels are tested against. The arguments are those of the
 * entries, and k is the table whose entries are called. `kept` is the projection a | b. */
#ifndef FM_BACKEND_SWIGLU_TRANSITION_H
#define FM_BACKEND_SWIGLU_TRANSITION_H

#include "trainer/backend/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

size_t fm_swiglu_transition_composed_kept(const fm_swiglu_transition *args);
size_t fm_swiglu_transition_composed_workspace(const fm_kernels *k,
                                               const fm_swiglu_transition *args);
void fm_swiglu_transition_composed(const fm_kernels *k, fm_stream *stream,
                                   const fm_swiglu_transition *args, void *workspace);
size_t fm_swiglu_transition_grad_composed_workspace(const fm_kernels *k,
                                                    const fm_swiglu_transition *args,
                                                    const fm_swiglu_transition_grad *grad);
void fm_swiglu_transition_grad_composed(const fm_kernels *k, fm_stream *stream,
                                        const fm_swiglu_transition *args,
                                        const fm_swiglu_transition_grad *grad, void *workspace);

#ifdef __cplusplus
}
#endif

#endif
