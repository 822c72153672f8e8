/* entries.h: the functions of this room that the files outside it call, one row for each.
 *
 *     FM_HOPPER(result, name, parameters...)
 *
 * The includer defines FM_HOPPER and includes this file; the file undefines the macro at its end.
 * The list makes the declarations (hopper.cuh) and, for programs without the room, functions that
 * nothing calls (none.cu). All take bf16 unless a comment says otherwise. A function that ends in
 * `takes` says whether the kernel behind it takes a call of this shape; it does not look at the
 * device, so callers ask uses_hopper (core/kernel_set.cuh) first. */
#ifndef FM_HOPPER /* so that the file also compiles alone */
#define FM_HOPPER(result, name, ...)
#endif

/* -- attention, forward */

/* attention_space's bias is used to store the bias by heads. attention_warp_fits: whether shared
 * memory holds the bias of a block's queries and enough batches, for c_head 8 and 17 to 32. */
FM_HOPPER(void, attention_wgmma, fm_stream *stream, const fm_attention *a,
          const attention_space &space)
FM_HOPPER(bool, attention_warp_fits, const fm_attention *a)
FM_HOPPER(void, attention_warp, fm_stream *stream, const fm_attention *a,
          const attention_space &space)

/* -- attention, backward */

FM_HOPPER(void, attention_wgmma_grad, fm_stream *stream, const fm_attention *a,
          const fm_attention_grad *grad, const attention_space &space)
/* Whether it makes dout itself from dy [.., c_y]. */
FM_HOPPER(bool, attention_opens_products, const fm_attention *a, int64_t c_y)
/* Into how many chunks of the batches WGMMA and WGMMA_LONG sum dbias. Those of SMALL and ALL are
 * also the chunks of the walk, without dbias, too. */
FM_HOPPER(int64_t, attention_wgmma_dbias_chunks, const fm_attention *a)
FM_HOPPER(int64_t, attention_small_chunks, const fm_attention *a)
FM_HOPPER(int64_t, attention_all_chunks, const fm_attention *a)
/* Bytes of attention_space's sums. */
FM_HOPPER(size_t, attention_wgmma_long_sums, const fm_attention *a)
FM_HOPPER(size_t, attention_small_sums, const fm_attention *a)

/* -- products */

/* small.cu: a product of few rows in f32, with the sums of a weight gradient. Epilogues NONE, BIAS
 * and BIAS_RELU. No workspace. */
FM_HOPPER(bool, small_takes, const fm_gemm *g)
FM_HOPPER(void, small_gemm, fm_stream *stream, const fm_gemm *g)

/* linear.cu: RELU_GRAD over tiles of LINE_ROWS x LINE_COLUMNS of C (hopper.cuh). The workspace
 * holds the partial sums; it is needed when the product has a sum. */
FM_HOPPER(size_t, linear_workspace, const fm_gemm *g)
FM_HOPPER(void, linear, fm_stream *stream, const fm_gemm *g, void *workspace)

/* cluster_linear.cu: BIAS over many rows, of 256 channels to 1,024 outputs. It takes rows without
 * gaps. Since a layer with a bias has parameters for b, the kernel before may still run when they
 * are read. No workspace. */
FM_HOPPER(bool, cluster_linear_takes, const fm_gemm *g)
FM_HOPPER(void, cluster_linear, fm_stream *stream, const fm_gemm *g)

/* weights.cu: the gradients of a linear layer's weight and bias over many rows. The workspace is
 * always needed. */
FM_HOPPER(bool, weights_takes, const fm_gemm *g)
FM_HOPPER(size_t, weights_workspace, const fm_gemm *g)
FM_HOPPER(void, weights, fm_stream *stream, const fm_gemm *g, void *workspace)

/* -- entries of more than one product */

/* linear_update.cu and transition.cu: the entries of these names in one kernel; a transition keeps
 * no hidden layer. No workspace. */
FM_HOPPER(bool, linear_update_takes, const fm_linear_update *a)
FM_HOPPER(void, linear_update_wgmma, fm_stream *stream, const fm_linear_update *a)
FM_HOPPER(bool, transition_takes, const fm_transition *a)
FM_HOPPER(void, transition_wgmma, fm_stream *stream, const fm_transition *a)

/* row_norms.cu: what both entries make without x, for the same shapes. */
FM_HOPPER(void, row_norms, fm_stream *stream, const fm_update_norm *a, void *y, void *n,
          const fm_later_norm &later)

/* transition_grad.cu: the entry of this name, for rows of 64 and 128 channels whose hidden layer is
 * not kept, if dx is written and both weights have gradients, and transition_weights_takes the
 * shape. */
FM_HOPPER(bool, transition_weights_takes, const fm_transition *a)
FM_HOPPER(size_t, transition_grad_wgmma_workspace, const fm_transition *a,
          const fm_transition_grad *g)
FM_HOPPER(void, transition_grad_wgmma, fm_stream *stream, const fm_transition *a,
          const fm_transition_grad *g, void *workspace)

/* transition_back.cu: the same for rows of 128 channels with 512 hidden ones. */
FM_HOPPER(bool, transition_back_takes, const fm_transition *a)
FM_HOPPER(size_t, transition_back_workspace, const fm_transition *a, const fm_transition_grad *g)
FM_HOPPER(void, transition_back, fm_stream *stream, const fm_transition *a,
          const fm_transition_grad *g, void *workspace)

/* transition_again.cu: the same for rows of 256 channels. */
FM_HOPPER(bool, transition_again_takes, const fm_transition *a)
FM_HOPPER(size_t, transition_again_workspace, const fm_transition *a, const fm_transition_grad *g)
FM_HOPPER(void, transition_again, fm_stream *stream, const fm_transition *a,
          const fm_transition_grad *g, void *workspace)

/* few_grad.cu: the entry of this name in one kernel. */
FM_HOPPER(bool, few_grad_takes, const fm_few_grad *a)
FM_HOPPER(size_t, few_grad_mma_workspace, const fm_few_grad *a)
FM_HOPPER(void, few_grad_mma, fm_stream *stream, const fm_few_grad *a, void *workspace)

/* norm_linear.cu: the entry of this name in one kernel, without a workspace. */
FM_HOPPER(bool, norm_linear_takes, const fm_norm_linear *a)
FM_HOPPER(void, norm_linear_wgmma, fm_stream *stream, const fm_norm_linear *a)

/* swiglu_transition.cu and swiglu_transition_grad.cu: the entry of this name in both directions.
 * Forward needs no workspace. */
FM_HOPPER(bool, swiglu_transition_takes, const fm_swiglu_transition *a)
FM_HOPPER(void, swiglu_transition_wgmma, fm_stream *stream, const fm_swiglu_transition *a)
FM_HOPPER(size_t, swiglu_transition_grad_wgmma_workspace, const fm_swiglu_transition *a,
          const fm_swiglu_transition_grad *g)
FM_HOPPER(void, swiglu_transition_grad_wgmma, fm_stream *stream, const fm_swiglu_transition *a,
          const fm_swiglu_transition_grad *g, void *workspace)

/* -- triangle multiplication */

/* triangle_block.cu and triangle_block_grad.cu: the whole sublayer, or the stages of a part.
 * triangle_fused_kept are the bytes of what forward keeps, in `t->kept`. */
FM_HOPPER(bool, triangle_fused_takes, const fm_triangle_block *t)
FM_HOPPER(size_t, triangle_fused_kept, const fm_triangle_block *t)
FM_HOPPER(size_t, triangle_fused_workspace, const fm_triangle_block *t)
FM_HOPPER(void, triangle_fused, fm_stream *stream, const fm_triangle_block *t, void *workspace)
FM_HOPPER(size_t, block_grad_workspace, const fm_triangle_block *t)
FM_HOPPER(void, block_grad, fm_stream *stream, const fm_triangle_block *t,
          const fm_triangle_block_grad *grad, void *workspace)
FM_HOPPER(size_t, triangle_fused_part_workspace, const fm_triangle_block *t, bool of_gradient)
FM_HOPPER(void, triangle_fused_part, fm_stream *stream, fm_triangle_stage stage,
          const fm_triangle_part *p, void *workspace)

/* -- outer product mean, c = OUTER_C, c_z = OUTER_Z */

/* outer_wgmma.cu: the path CHAIN. With `stores_p`, P for dW is written for every shape; otherwise
 * only where outer_weight does not take the shape. */
FM_HOPPER(size_t, outer_chain_workspace, const fm_outer *o, bool backward, bool stores_p)
FM_HOPPER(void, outer_chain, fm_stream *stream, const fm_outer *o, void *workspace)
FM_HOPPER(void, outer_chain_grad, fm_stream *stream, const fm_outer *o, const fm_outer_grad *grad,
          void *workspace, bool stores_p)

/* dW without P in memory: outer_weight.cu up to 128 sequences, outer_weight_long.cu up to 512. */
FM_HOPPER(bool, outer_weight_takes, const fm_outer *o)
FM_HOPPER(size_t, outer_weight_bytes, const fm_outer *o)
FM_HOPPER(void, outer_weight, fm_stream *stream, const fm_outer *o, const fm_outer_grad *grad,
          const outer_packed &packed)
FM_HOPPER(bool, outer_weight_long_takes, const fm_outer *o)
FM_HOPPER(size_t, outer_weight_long_bytes, const fm_outer *o)
FM_HOPPER(void, outer_weight_long, fm_stream *stream, const fm_outer *o, const fm_outer_grad *grad,
          const outer_packed &packed)

/* outer_weight_read.cu, more than 512 sequences: dW of `rows` residues from their P and dz / norm,
 * [(i, a), (j, b)] and [i, j, z]. `space`: outer_weight_read_bytes. */
FM_HOPPER(size_t, outer_weight_read_bytes, const fm_outer *o, int64_t rows)
FM_HOPPER(void, outer_weight_read, fm_stream *stream, const fm_outer *o, const fm_outer_grad *grad,
          int64_t rows, const bf16 *p, const bf16 *dz, float *space)

/* outer_end.cu, forward: z of residues [first, first + rows) from their P, [(i, a), (j, b)]. */
FM_HOPPER(void, outer_end, fm_stream *stream, const fm_outer *o, const bf16 *w, const float *norm,
          int64_t first, int64_t rows, const bf16 *p)

/* outer_wgmma.cu: the steps of the path PANELS. Operands are packed into panels and tiles
 * (outer_pack.cuh); a and b are NULL with more than OUTER_MAX_SEQ sequences. outer_panels_layout
 * fills *ret and returns the bytes; base NULL only counts. */
FM_HOPPER(size_t, outer_panels_layout, const fm_outer *o, void *base, outer_panels *ret)
/* Packs the operands, finds the norm and adds to dbias. a and b [n_seq, n, c], times their masks,
 * are made of the same reads; if panels->a is NULL they are not, and `dz` [n_i, n_j, c_z] becomes
 * dz / norm. */
FM_HOPPER(void, outer_panels_make, fm_stream *stream, const fm_outer *o, const fm_outer_grad *grad,
          const outer_panels *panels, bf16 *a, bf16 *b, bf16 *dz)
/* Packs W into panels of (a, b), of outer_w_bytes. */
FM_HOPPER(size_t, outer_w_bytes)
FM_HOPPER(void, outer_pack_w, fm_stream *stream, const fm_outer *o, bf16 *w)
/* For residues [first, first + rows), `first` even: piece = P / norm, [(i, j), (a, b)]; needs
 * panels->a. */
FM_HOPPER(void, outer_panels_product, fm_stream *stream, const fm_outer *o,
          const outer_panels *panels, int64_t first, int64_t rows, bf16 *piece)
/* For the same residues: piece = the gradient of P, [(i, a), (j, b)]. */
FM_HOPPER(void, outer_panels_gradient, fm_stream *stream, const fm_outer *o,
          const outer_panels *panels, int64_t first, int64_t rows, bf16 *piece)

#undef FM_HOPPER
