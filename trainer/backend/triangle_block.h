/* triangle_block.h: the whole sublayer of triangle multiplication made of a table's other entries:
 * what a backend without kernels for the whole, or for a shape, puts in its table, and what those
 * kernels are held to. `kept` is the fused projection [rows, 4c + c_z] and x [rows, c]. */
#ifndef FM_BACKEND_TRIANGLE_BLOCK_H
#define FM_BACKEND_TRIANGLE_BLOCK_H

#include "trainer/backend/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

size_t fm_triangle_block_composed_kept(const fm_triangle_block *args);
size_t fm_triangle_block_composed_workspace(const fm_kernels *k, const fm_triangle_block *args);
void fm_triangle_block_composed(const fm_kernels *k, fm_stream *stream,
                                const fm_triangle_block *args, void *workspace);
size_t fm_triangle_block_composed_grad_workspace(const fm_kernels *k,
                                                 const fm_triangle_block *args);
void fm_triangle_block_composed_grad(const fm_kernels *k, fm_stream *stream,
                                     const fm_triangle_block *args,
                                     const fm_triangle_block_grad *grad, void *workspace);

#ifdef __cplusplus
}
#endif

#endif
