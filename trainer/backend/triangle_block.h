/* triangle_block.h: the whole sublayer of triangle multiplication, composed of other entries of a
 * table.
 *
 * A backend without kernels for the whole sublayer, or for some shape, implements the
 * triangle_block entries with these functions. They are also the reference that such kernels are
 * tested against. `kept` holds the fused projection [rows, 4c + c_z], then x [rows, c]; rows = n *
 * n.
 *
 * The arguments are those of the entries of the same name, and k is the table whose entries are
 * called. */
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
