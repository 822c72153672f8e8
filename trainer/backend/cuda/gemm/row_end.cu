/* row_end.cu: chooses how linear_update, transition, norm_linear and few_grad run. In bf16, for
 * some widths and on the devices of ../hopper, each is one kernel of its folder (linear_update.cu,
 * transition.cu, norm_linear.cu, few_grad.cu), else composed of other entries (../../row_end.h,
 * ../../norm_linear.h, ../../few_grad.h). */
#include "trainer/backend/cuda/core/families.cuh"
#include "trainer/backend/cuda/core/table_of.cuh"
#include "trainer/backend/cuda/gemm/gemm.cuh"
#include "trainer/backend/cuda/hopper/hopper.cuh"
#include "trainer/backend/few_grad.h"
#include "trainer/backend/norm_linear.h"
#include "trainer/backend/row_end.h"

namespace fm_cuda {

template <typename T> size_t linear_update_workspace(const fm_linear_update *a) {
    if (sizeof(T) == 2 && uses_hopper() && linear_update_takes(a)) return 0;
    return fm_linear_update_composed_workspace(table_of<T>(), a);
}

template <typename T>
void linear_update(fm_stream *stream, const fm_linear_update *a, void *workspace) {
    if (sizeof(T) == 2 && uses_hopper() && linear_update_takes(a)) {
        if (a->x) {
            linear_update_wgmma(stream, a);
        } else {
            row_norms(stream, &a->end, a->y, a->n, {});
        }
    } else {
        fm_linear_update_composed(table_of<T>(), stream, a, workspace);
    }
}

/* The path of a gradient in bf16 whose hidden layer is not kept. */
static transition_path grad_path_of_shape(const fm_transition *a) {
    if (!uses_hopper() || !transition_takes(a)) return TRANSITION_COMPOSED;
    if (transition_weights_takes(a)) {
        return transition_back_takes(a) ? TRANSITION_BACK : TRANSITION_SPLIT;
    }
    return transition_again_takes(a) ? TRANSITION_AGAIN : TRANSITION_COMPOSED;
}

/* The path of a call, its files, their lines, and by how much the mean step of af2-initial with one
 * and two cycles (170.4 ms) is longer if COMPOSED takes its calls, or SPLIT those of BACK. One
 * H200, 2026-11-28.
 *
 *     path     files                                      lines    gains
 *     -----    ---------------------------------------    -----    ------------------------------
 *     ONE      transition.cu                                270    3.0 %
 *     SPLIT    transition_grad.cu, transition_weights.cu    550    0.5 %
 *     BACK     transition_back.cu                           330    0.5 %
 *     AGAIN    transition_again.cu                          380    0.1 %; af2-finetuning 1.1 %
 *
 * linear_update.cu gains 1.4 % in the same way, norm_linear.cu and few_grad.cu 1.3 % each. */
template <typename T>
transition_path transition_path_of(const fm_transition *a, const fm_transition_grad *grad) {
    if (sizeof(T) != 2 || a->kept) return TRANSITION_COMPOSED;
    if (!grad) return uses_hopper() && transition_takes(a) ? TRANSITION_ONE : TRANSITION_COMPOSED;
    transition_path path = grad_path_of_shape(a);
    bool has_outputs =
        grad->dx.data && grad->dx.beta == FM_WRITE && grad->dw1.data && grad->dw2.data;
    return has_outputs || path == TRANSITION_AGAIN ? path : TRANSITION_COMPOSED;
}

template <typename T> size_t transition_workspace(const fm_transition *a) {
    if (transition_path_of<T>(a, NULL) == TRANSITION_ONE) return 0;
    return fm_transition_composed_workspace(table_of<T>(), a);
}

template <typename T> void transition(fm_stream *stream, const fm_transition *a, void *workspace) {
    if (transition_path_of<T>(a, NULL) == TRANSITION_ONE) {
        if (a->x) {
            transition_wgmma(stream, a);
        } else {
            row_norms(stream, &a->end, a->y, a->n, a->later);
        }
    } else {
        fm_transition_composed(table_of<T>(), stream, a, workspace);
    }
}

template <typename T> bool transition_keeps(const fm_transition *a) {
    return sizeof(T) != 2 || grad_path_of_shape(a) == TRANSITION_COMPOSED;
}

template <typename T>
size_t transition_grad_workspace(const fm_transition *a, const fm_transition_grad *g) {
    switch (transition_path_of<T>(a, g)) {
    case TRANSITION_SPLIT: return transition_grad_wgmma_workspace(a, g);
    case TRANSITION_BACK: return transition_back_workspace(a, g);
    case TRANSITION_AGAIN: return transition_again_workspace(a, g);
    default: return fm_transition_grad_composed_workspace(table_of<T>(), a, g);
    }
}

template <typename T>
void transition_grad(fm_stream *stream, const fm_transition *a, const fm_transition_grad *g,
                     void *workspace) {
    switch (transition_path_of<T>(a, g)) {
    case TRANSITION_SPLIT: transition_grad_wgmma(stream, a, g, workspace); break;
    case TRANSITION_BACK: transition_back(stream, a, g, workspace); break;
    case TRANSITION_AGAIN: transition_again(stream, a, g, workspace); break;
    default: fm_transition_grad_composed(table_of<T>(), stream, a, g, workspace);
    }
}

template <typename T> size_t norm_linear_workspace(const fm_norm_linear *a) {
    if (sizeof(T) == 2 && uses_hopper() && norm_linear_takes(a)) return 0;
    return fm_norm_linear_composed_workspace(table_of<T>(), a);
}

template <typename T>
void norm_linear(fm_stream *stream, const fm_norm_linear *a, void *workspace) {
    if (sizeof(T) == 2 && uses_hopper() && norm_linear_takes(a)) {
        norm_linear_wgmma(stream, a);
    } else {
        fm_norm_linear_composed(table_of<T>(), stream, a, workspace);
    }
}

template <typename T> size_t few_grad_workspace(const fm_few_grad *a) {
    if (sizeof(T) == 2 && uses_hopper() && few_grad_takes(a)) return few_grad_mma_workspace(a);
    return fm_few_grad_composed_workspace(table_of<T>(), a);
}

template <typename T> void few_grad(fm_stream *stream, const fm_few_grad *a, void *workspace) {
    if (sizeof(T) == 2 && uses_hopper() && few_grad_takes(a)) {
        few_grad_mma(stream, a, workspace);
    } else {
        fm_few_grad_composed(table_of<T>(), stream, a, workspace);
    }
}

#define INSTANTIATE(T)                                                                             \
    template size_t linear_update_workspace<T>(const fm_linear_update *);                          \
    template void linear_update<T>(fm_stream *, const fm_linear_update *, void *);                 \
    template size_t transition_workspace<T>(const fm_transition *);                                \
    template void transition<T>(fm_stream *, const fm_transition *, void *);                       \
    template transition_path transition_path_of<T>(const fm_transition *,                          \
                                                   const fm_transition_grad *);                    \
    template bool transition_keeps<T>(const fm_transition *);                                      \
    template size_t transition_grad_workspace<T>(const fm_transition *,                            \
                                                 const fm_transition_grad *);                      \
    template void transition_grad<T>(fm_stream *, const fm_transition *,                           \
                                     const fm_transition_grad *, void *);                          \
    template size_t norm_linear_workspace<T>(const fm_norm_linear *);                              \
    template void norm_linear<T>(fm_stream *, const fm_norm_linear *, void *);                     \
    template size_t few_grad_workspace<T>(const fm_few_grad *);                                    \
    template void few_grad<T>(fm_stream *, const fm_few_grad *, void *);
INSTANTIATE(float)
INSTANTIATE(tf32)
INSTANTIATE(bf16)

} // namespace fm_cuda
