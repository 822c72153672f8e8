/* row_end.cu: chooses how linear_update, transition, norm_linear and few_grad run. In bf16 and for
 * some widths each is one kernel (linear_update.cu, transition.cu, norm_linear.cu, few_grad.cu),
 * else composed of other entries (../../row_end.h, ../../norm_linear.h, ../../few_grad.h). */
#include "trainer/backend/cuda/core/families.cuh"
#include "trainer/backend/cuda/core/table_of.cuh"
#include "trainer/backend/cuda/gemm/gemm.cuh"
#include "trainer/backend/few_grad.h"
#include "trainer/backend/norm_linear.h"
#include "trainer/backend/row_end.h"

namespace fm_cuda {

template <typename T> size_t linear_update_workspace(const fm_linear_update *a) {
    if (sizeof(T) == 2 && linear_update_takes(a)) return 0;
    return fm_linear_update_composed_workspace(table_of<T>(), a);
}

template <typename T>
void linear_update(fm_stream *stream, const fm_linear_update *a, void *workspace) {
    if (sizeof(T) == 2 && linear_update_takes(a)) {
        if (a->x) {
            linear_update_wgmma(stream, a);
        } else {
            row_norms(stream, &a->end, a->y, a->n, {});
        }
    } else {
        fm_linear_update_composed(table_of<T>(), stream, a, workspace);
    }
}

/* One kernel does not store the hidden layer. */
template <typename T> static bool is_one_kernel(const fm_transition *a) {
    return sizeof(T) == 2 && !a->kept && transition_takes(a);
}

template <typename T> size_t transition_workspace(const fm_transition *a) {
    if (is_one_kernel<T>(a)) return 0;
    return fm_transition_composed_workspace(table_of<T>(), a);
}

template <typename T> void transition(fm_stream *stream, const fm_transition *a, void *workspace) {
    if (is_one_kernel<T>(a)) {
        if (a->x) {
            transition_wgmma(stream, a);
        } else {
            row_norms(stream, &a->end, a->y, a->n, a->later);
        }
    } else {
        fm_transition_composed(table_of<T>(), stream, a, workspace);
    }
}

/* A kernel that makes the hidden layer again has no use for one that is kept, and needs b1. */
template <typename T> static bool is_made_again(const fm_transition *a) {
    return sizeof(T) == 2 && !a->kept && transition_again_takes(a);
}

template <typename T> bool transition_keeps(const fm_transition *a) {
    bool is_made_again = transition_weights_takes(a) || transition_again_takes(a);
    return sizeof(T) != 2 || !transition_takes(a) || !is_made_again;
}

template <typename T>
size_t transition_grad_workspace(const fm_transition *a, const fm_transition_grad *g) {
    if (sizeof(T) == 2 && transition_grad_takes(a, g)) return transition_grad_wgmma_workspace(a, g);
    if (is_made_again<T>(a)) return transition_again_workspace(a, g);
    return fm_transition_grad_composed_workspace(table_of<T>(), a, g);
}

template <typename T>
void transition_grad(fm_stream *stream, const fm_transition *a, const fm_transition_grad *g,
                     void *workspace) {
    if (sizeof(T) == 2 && transition_grad_takes(a, g)) {
        transition_grad_wgmma(stream, a, g, workspace);
    } else if (is_made_again<T>(a)) {
        transition_again(stream, a, g, workspace);
    } else {
        fm_transition_grad_composed(table_of<T>(), stream, a, g, workspace);
    }
}

template <typename T> size_t norm_linear_workspace(const fm_norm_linear *a) {
    if (sizeof(T) == 2 && norm_linear_takes(a)) return 0;
    return fm_norm_linear_composed_workspace(table_of<T>(), a);
}

template <typename T>
void norm_linear(fm_stream *stream, const fm_norm_linear *a, void *workspace) {
    if (sizeof(T) == 2 && norm_linear_takes(a)) {
        norm_linear_wgmma(stream, a);
    } else {
        fm_norm_linear_composed(table_of<T>(), stream, a, workspace);
    }
}

template <typename T> size_t few_grad_workspace(const fm_few_grad *a) {
    if (sizeof(T) == 2 && few_grad_takes(a)) return few_grad_mma_workspace(a);
    return fm_few_grad_composed_workspace(table_of<T>(), a);
}

template <typename T> void few_grad(fm_stream *stream, const fm_few_grad *a, void *workspace) {
    if (sizeof(T) == 2 && few_grad_takes(a)) {
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
