/* outer.cuh: what the two files of the outer product mean share: outer.cu (any shape) and
 * outer_wgmma.cu (bf16, c 32, c_z 128). */
#ifndef FM_BACKEND_CUDA_OUTER_CUH
#define FM_BACKEND_CUDA_OUTER_CUH

#include "trainer/backend/cuda/core/families.cuh"

namespace fm_cuda {

/* outer_wgmma.cu: c = 32 and c_z = 128 in bf16. Which shapes: forward, and backward without the
 * gradient of P in memory, have a most n_seq; backward in pieces has none. Addresses are asked for
 * apart, because workspaces are sized before there are any. */
bool outer_fits(const fm_outer *);
bool outer_grad_fits(const fm_outer *);
bool outer_tiles_fit(const fm_outer *);
bool outer_is_aligned(const fm_outer *, const fm_outer_grad *);

size_t outer_fast_workspace(const fm_outer *);
size_t outer_grad_fast_workspace(const fm_outer *);
void outer_fast(fm_stream *, const fm_outer *, void *workspace);
void outer_grad_fast(fm_stream *, const fm_outer *, const fm_outer_grad *, void *workspace);

/* For backward in pieces of residues first .. first + rows - 1, `first` even. outer_tiles_make adds
 * to dbias and makes what the others read; with too many sequences for panels of a and b (a NULL),
 * dz / norm [n_i, n_j, c_z] besides. outer_tiles_product: P / norm, [(i, j), (a, b)], where a is
 * not NULL; outer_tiles_gradient: the gradient of P, [(i, a), (j, b)]. */
struct outer_tiles {
    bf16 *a, *b, *w, *dz;
    float *norm, *sums;
};
size_t outer_tiles_layout(const fm_outer *, void *base, outer_tiles *ret);
void outer_tiles_make(fm_stream *, const fm_outer *, const fm_outer_grad *, const outer_tiles *,
                      bf16 *dz);
void outer_tiles_product(fm_stream *, const fm_outer *, const outer_tiles *, int64_t first,
                         int64_t rows, bf16 *piece);
void outer_tiles_gradient(fm_stream *, const fm_outer *, const outer_tiles *, int64_t first,
                          int64_t rows, bf16 *piece);

} // namespace fm_cuda

#endif
