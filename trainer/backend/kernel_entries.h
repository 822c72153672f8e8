/* kernel_entries.h: the list of all entries of a backend's table, one row for each entry.
 *
 *     FM_KERNEL(kind, result, name, parameters...)
 *
 * The includer defines FM_KERNEL and includes this file; the file undefines the macro at its end.
 * The list makes the function pointers of struct fm_kernels (kernels.h) and the initialisers of the
 * CPU's tables (cpu/body/table.h). It also makes the declarations and tables of the CUDA backend
 * (cuda/core/families.cuh, table.cu). To add an entry, add a row here and one function of that name
 * to each backend. A backend that lacks the function does not compile or does not link.
 *
 * The kind says how many functions implement an entry:
 *     HOST  one for the whole backend: memory and copies, which are not called inside a step
 *     ACT   one for each act type, since an operand is of class act (a template in CUDA)
 *     ANY   one for all act types: no operand is of class act, or the entry is a query that gives
 *           the same answer for each of them
 * On the CPU, which compiles its kernels once for each element type, ACT and ANY are the same.
 *
 * kernels.h has the rules that hold for all entries and the operand structs. The comments below are
 * the contract of each entry; a struct's own comment covers the entry that takes it. */
#ifndef FM_KERNEL /* so that the file also compiles alone */
#define FM_KERNEL(kind, result, name, ...)
#endif

/* -- device memory and copies */

/* alloc returns memory that is aligned to 64 bytes (256 on a GPU), or NULL when there is not
 * enough. release accepts NULL. */
FM_KERNEL(HOST, void *, alloc, size_t bytes)
FM_KERNEL(HOST, void, release, void *memory)
/* Both are ordered with the other work of the stream. The host memory may be reused after
 * synchronize, which waits until the stream is empty. */
FM_KERNEL(HOST, void, upload, fm_stream *stream, void *device, const void *host, size_t bytes)
FM_KERNEL(HOST, void, download, fm_stream *stream, void *host, const void *device, size_t bytes)
FM_KERNEL(HOST, void, synchronize, fm_stream *stream)

/* -- memory: n elements of class act */

FM_KERNEL(ACT, void, fill, fm_stream *stream, int64_t n, double value, void *y)
FM_KERNEL(ACT, void, copy, fm_stream *stream, int64_t n, const void *x, void *y)
/* y[i] = x[i] converted to act from the real type `from` (bf16, f32 or f64). */
FM_KERNEL(ACT, void, cast, fm_stream *stream, int64_t n, fm_element from, const void *x, void *y)
FM_KERNEL(ACT, void, copy_strided, fm_stream *stream, const fm_strided *args)
/* These two expand the small types of the wire: y[i] (i32) = x[i] (u8), and y[i] (act) = bit i%8 of
 * byte i/8. */
FM_KERNEL(ANY, void, widen, fm_stream *stream, int64_t n, const uint8_t *x, int32_t *y)
FM_KERNEL(ACT, void, unpack_bits, fm_stream *stream, int64_t n, const uint8_t *bits, void *y)
/* y = alpha x (+ y). y may be x. */
FM_KERNEL(ACT, void, axpy, fm_stream *stream, int64_t n, double alpha, const void *x, fm_out y)
/* The same over acc elements, with the double *alpha in device memory as the factor. It adds a
 * sample's clipped gradient to the gradient of the batch. */
FM_KERNEL(ANY, void, axpy_device, fm_stream *stream, int64_t n, const double *alpha, const void *x,
          fm_out y)
/* y[a, c] = sum_r x[a, r, c]. x is [n_a, n_r, n_c] with strides {a, r} and contiguous c; y is
 * [n_a, n_c], of class acc when y_is_acc, else act. n_a = 1 gives a bias gradient, n_c = 1 gives
 * row sums. */
FM_KERNEL(ANY, size_t, sum_workspace, int64_t n_a, int64_t n_r, int64_t n_c)
FM_KERNEL(ACT, void, sum, fm_stream *stream, int64_t n_a, int64_t n_r, int64_t n_c,
          const int64_t stride[2], const void *x, fm_out y, bool y_is_acc, void *workspace)

/* Sums that end together. Between the two calls, entries may leave sums whose target is in [first,
 * end) as partial sums in `memory`, sums_room bytes; finish_sums ends them at the latest. The
 * gradients of parameters are such targets, because nothing reads them during backward. The values
 * are the same either way. finish_sums without put_off_sums does nothing. If sums_room is 0,
 * nothing is put off and put_off_sums is not called. */
FM_KERNEL(ANY, size_t, sums_room, void)
FM_KERNEL(ANY, void, put_off_sums, fm_stream *stream, void *memory, const void *first,
          const void *end)
FM_KERNEL(ANY, void, finish_sums, fm_stream *stream)

/* -- matrix products */

FM_KERNEL(ANY, size_t, gemm_workspace, const fm_gemm *args)
FM_KERNEL(ACT, void, gemm, fm_stream *stream, const fm_gemm *args, void *workspace)

/* -- rows and elements. Backward entries take the gradient of y. */

FM_KERNEL(ACT, void, layernorm, fm_stream *stream, const fm_layernorm *args)
FM_KERNEL(ANY, size_t, layernorm_grad_workspace, int64_t rows, int64_t c)
FM_KERNEL(ACT, void, layernorm_grad, fm_stream *stream, const fm_layernorm_grad *args,
          void *workspace)
/* y[r, :] = x[r, :] + bias. y may be x. */
FM_KERNEL(ACT, void, bias_add, fm_stream *stream, int64_t rows, int64_t c, const void *x,
          const void *bias, void *y)
/* y = max(x, 0). y may be x. The gradient needs only y: dx = dy where y > 0. dx may be dy. */
FM_KERNEL(ACT, void, relu, fm_stream *stream, int64_t n, const void *x, void *y)
FM_KERNEL(ACT, void, relu_grad, fm_stream *stream, int64_t n, const void *y, const void *dy,
          fm_out dx)
FM_KERNEL(ACT, void, gate, fm_stream *stream, const fm_gate *args)
FM_KERNEL(ACT, void, gate_grad, fm_stream *stream, const fm_gate *args, const fm_gate_grad *grad)
FM_KERNEL(ACT, void, swiglu, fm_stream *stream, const fm_swiglu *args)
/* Makes dx [rows, 2c], rows ldx apart, from dy [rows, c], rows ldy apart. Unless args->y is NULL it
 * also computes y again, because the weight gradient of the layer that follows reads it. y may be
 * dy. */
FM_KERNEL(ACT, void, swiglu_grad, fm_stream *stream, const fm_swiglu *args, const void *dy,
          fm_out dx)
FM_KERNEL(ACT, size_t, swiglu_transition_kept, const fm_swiglu_transition *args)
FM_KERNEL(ACT, size_t, swiglu_transition_workspace, const fm_swiglu_transition *args)
FM_KERNEL(ACT, void, swiglu_transition, fm_stream *stream, const fm_swiglu_transition *args,
          void *workspace)
FM_KERNEL(ACT, size_t, swiglu_transition_grad_workspace, const fm_swiglu_transition *args,
          const fm_swiglu_transition_grad *grad)
FM_KERNEL(ACT, void, swiglu_transition_grad, fm_stream *stream, const fm_swiglu_transition *args,
          const fm_swiglu_transition_grad *grad, void *workspace)
/* y[r, :] = scale[r] * x[r, :] (+ y): masks over rows. The entry is its own backward. y may be
 * x. */
FM_KERNEL(ACT, void, scale_rows, fm_stream *stream, int64_t rows, int64_t c, int64_t ldx,
          int64_t ldy, const void *scale, const void *x, fm_out y)
/* y is [n_r, c]. Backward makes dx [n_s, n_r, c] from dy [n_r, c]. */
FM_KERNEL(ACT, void, masked_mean, fm_stream *stream, const fm_masked_mean *args, void *y)
FM_KERNEL(ACT, void, masked_mean_grad, fm_stream *stream, const fm_masked_mean *args,
          const void *dy, fm_out dx)

/* -- attention, outer product mean, triangle multiplication */

FM_KERNEL(ACT, size_t, attention_workspace, const fm_attention *args)
FM_KERNEL(ACT, void, attention, fm_stream *stream, const fm_attention *args, void *workspace)
/* Whether the backward of an attention with a bias also takes dout as dy w of c_y channels
 * (fm_attention_grad). Reads shapes and strides, no addresses. */
FM_KERNEL(ACT, bool, attention_opens, const fm_attention *args, int64_t c_y)
FM_KERNEL(ACT, size_t, attention_grad_workspace, const fm_attention *args)
FM_KERNEL(ACT, void, attention_grad, fm_stream *stream, const fm_attention *args,
          const fm_attention_grad *grad, void *workspace)
FM_KERNEL(ACT, size_t, outer_workspace, const fm_outer *args)
FM_KERNEL(ACT, void, outer, fm_stream *stream, const fm_outer *args, void *workspace)
FM_KERNEL(ACT, size_t, outer_grad_workspace, const fm_outer *args)
FM_KERNEL(ACT, void, outer_grad, fm_stream *stream, const fm_outer *args, const fm_outer_grad *grad,
          void *workspace)
FM_KERNEL(ACT, size_t, triangle_workspace, const fm_triangle *args)
FM_KERNEL(ACT, void, triangle, fm_stream *stream, const fm_triangle *args, void *workspace)
FM_KERNEL(ACT, size_t, triangle_grad_workspace, const fm_triangle *args)
FM_KERNEL(ACT, void, triangle_grad, fm_stream *stream, const fm_triangle *args,
          const fm_triangle_grad *grad, void *workspace)

/* The whole sublayer. triangle_block_kept returns the number of act elements of `kept`. */
FM_KERNEL(ACT, size_t, triangle_block_kept, const fm_triangle_block *args)
FM_KERNEL(ACT, size_t, triangle_block_workspace, const fm_triangle_block *args)
FM_KERNEL(ACT, void, triangle_block, fm_stream *stream, const fm_triangle_block *args,
          void *workspace)
FM_KERNEL(ACT, size_t, triangle_block_grad_workspace, const fm_triangle_block *args)
FM_KERNEL(ACT, void, triangle_block_grad, fm_stream *stream, const fm_triangle_block *args,
          const fm_triangle_block_grad *grad, void *workspace)

/* The stages of the sublayer on a part of the pairs. triangle_part_kept returns the number of
 * act elements of `kept`, 0 where the backend has no kernels for parts of this shape; no stage
 * is called then. The workspace is that of the gradient's stages, or of the other two. */
FM_KERNEL(ACT, size_t, triangle_part_kept, const fm_triangle_block *args)
FM_KERNEL(ACT, size_t, triangle_part_workspace, const fm_triangle_block *args, bool of_gradient)
FM_KERNEL(ACT, void, triangle_part, fm_stream *stream, fm_triangle_stage stage,
          const fm_triangle_part *args, void *workspace)

/* -- the end of a sublayer */

/* y = residual + keep * x, or y = keep * x when residual is NULL. All are [n0, n1, c]. y may be
 * residual. */
FM_KERNEL(ACT, void, dropout, fm_stream *stream, const fm_dropout *args, const void *residual,
          const void *x, void *y)
/* dx = keep * dy (+ dx). The gradient of the residual is dy. */
FM_KERNEL(ACT, void, dropout_grad, fm_stream *stream, const fm_dropout *args, const void *dy,
          fm_out dx)
/* y may be residual. */
FM_KERNEL(ACT, void, update_norm, fm_stream *stream, const fm_update_norm *args,
          const void *residual, const void *update, void *y, void *n)
FM_KERNEL(ANY, size_t, update_norm_grad_workspace, int64_t rows, int64_t c)
FM_KERNEL(ACT, void, update_norm_grad, fm_stream *stream, const fm_update_norm *args,
          const fm_update_norm_grad *grad, void *workspace)

FM_KERNEL(ACT, size_t, linear_update_workspace, const fm_linear_update *args)
FM_KERNEL(ACT, void, linear_update, fm_stream *stream, const fm_linear_update *args,
          void *workspace)
/* The workspace depends on whether `kept` is NULL. */
FM_KERNEL(ACT, size_t, transition_workspace, const fm_transition *args)
FM_KERNEL(ACT, void, transition, fm_stream *stream, const fm_transition *args, void *workspace)
/* Whether a transition of this shape should keep its hidden layer for backward. Where not, backward
 * without it is faster. Reads shapes, no addresses. */
FM_KERNEL(ACT, bool, transition_keeps, const fm_transition *args)
/* The workspace depends on whether `kept` is NULL. */
FM_KERNEL(ACT, size_t, transition_grad_workspace, const fm_transition *args,
          const fm_transition_grad *grad)
FM_KERNEL(ACT, void, transition_grad, fm_stream *stream, const fm_transition *args,
          const fm_transition_grad *grad, void *workspace)

/* -- the beginning of a sublayer */

FM_KERNEL(ACT, size_t, norm_linear_workspace, const fm_norm_linear *args)
FM_KERNEL(ACT, void, norm_linear, fm_stream *stream, const fm_norm_linear *args, void *workspace)
FM_KERNEL(ACT, size_t, few_grad_workspace, const fm_few_grad *args)
FM_KERNEL(ACT, void, few_grad, fm_stream *stream, const fm_few_grad *args, void *workspace)

/* -- embeddings. An id that is not below n_class gives a row of zeros and no gradient. */

/* y[r, :] = w[ids[r]] (+ y). */
FM_KERNEL(ACT, void, lookup, fm_stream *stream, const fm_lookup *args, int64_t rows,
          const uint8_t *ids, fm_out y)
/* dw[class] = the sum of dy[r, :] over the rows r that have this id, in the order of the rows. dw
 * is acc and has the strides of w. */
FM_KERNEL(ANY, size_t, lookup_grad_workspace, const fm_lookup *args, int64_t rows)
FM_KERNEL(ACT, void, lookup_grad, fm_stream *stream, const fm_lookup *args, int64_t rows,
          const uint8_t *ids, const void *dy, fm_out dw, void *workspace)
/* A4: z[i, j, :] = w[clip(index_i[i] - index_j[j], -k, k) + k] (+ z), where n_class = 2k + 1
 * (65). */
FM_KERNEL(ACT, void, relpos, fm_stream *stream, const fm_lookup *args, int64_t n_i, int64_t n_j,
          const int32_t *index_i, const int32_t *index_j, fm_out z)
FM_KERNEL(ANY, size_t, relpos_grad_workspace, const fm_lookup *args, int64_t n_i, int64_t n_j)
FM_KERNEL(ACT, void, relpos_grad, fm_stream *stream, const fm_lookup *args, int64_t n_i,
          int64_t n_j, const int32_t *index_i, const int32_t *index_j, const void *dz, fm_out dw,
          void *workspace)
/* A32:1: the class of the distance |x_i - x_j|, x f32 [n, 3]. There are n_bin lower bounds, evenly
 * spaced from first to last (Å); ids[i, j] is the index of the last one below the distance.
 * It is 255, which lookup turns into a row of zeros, when no bound is below, when the distance
 * equals a bound, and when its square is not below most_square. Squares are compared, in f32.
 *     recycling   15 bins, 3.25 to 20.75, most_square 1e8
 *     templates   39 bins, 3.25 to 50.75, most_square 1e5 */
FM_KERNEL(ANY, void, distance_ids, fm_stream *stream, int64_t n_i, int64_t n_j, const float *x_i,
          const float *x_j, int32_t n_bin, float first, float last, float most_square, uint8_t *ids)
/* A3: z[i, j, :] = a[i, :] + b[j, :] (+ z). The rows of a and b are lda and ldb apart. */
FM_KERNEL(ACT, void, outer_sum, fm_stream *stream, int64_t n_i, int64_t n_j, int64_t c, int64_t lda,
          int64_t ldb, const void *a, const void *b, fm_out z)
/* da[i] = sum_j dz[i, j], db[j] = sum_i dz[i, j]. Both are act with rows lda and ldb apart. */
FM_KERNEL(ACT, void, outer_sum_grad, fm_stream *stream, int64_t n_i, int64_t n_j, int64_t c,
          int64_t lda, int64_t ldb, const void *dz, fm_out da, fm_out db)
FM_KERNEL(ACT, void, msa_features, fm_stream *stream, const fm_msa_features *args)

/* -- the structure module */

FM_KERNEL(ANY, size_t, ipa_workspace, const fm_ipa *args)
FM_KERNEL(ACT, void, ipa, fm_stream *stream, const fm_ipa *args, void *workspace)
FM_KERNEL(ANY, size_t, ipa_grad_workspace, const fm_ipa *args)
FM_KERNEL(ACT, void, ipa_grad, fm_stream *stream, const fm_ipa *args, const fm_ipa_grad *grad,
          void *workspace)
/* A23: y = frames composed with the rotation and translation update [n, 6] (b, c, d, x, y, z).
 * frames and y are [n, 7]. */
FM_KERNEL(ACT, void, frame_update, fm_stream *stream, int64_t n, const void *frames,
          const void *update, void *y)
FM_KERNEL(ACT, void, frame_update_grad, fm_stream *stream, int64_t n, const void *frames,
          const void *update, const void *dy, fm_out dframes, fm_out dupdate)
/* Converts frames [n, 7] to matrix frames [n, 12] and multiplies the translations by scale. */
FM_KERNEL(ACT, void, matrix_frames, fm_stream *stream, int64_t n, double scale, const void *frames,
          void *y)
FM_KERNEL(ACT, void, matrix_frames_grad, fm_stream *stream, int64_t n, double scale,
          const void *frames, const void *dy, fm_out dx)
/* y = x / sqrt(max(|x|^2, eps)) for each of the n pairs of numbers, [n, 2]. */
FM_KERNEL(ACT, void, unit_pairs, fm_stream *stream, int64_t n, double eps, const void *x, void *y)
FM_KERNEL(ACT, void, unit_pairs_grad, fm_stream *stream, int64_t n, double eps, const void *x,
          const void *dy, fm_out dx)
FM_KERNEL(ACT, void, residue_atoms, fm_stream *stream, const fm_residue_atoms *args)
/* dgroups and datoms may each be NULL: no gradient comes from there. */
FM_KERNEL(ACT, void, residue_atoms_grad, fm_stream *stream, const fm_residue_atoms *args,
          const void *dgroups, const void *datoms, fm_out dframes, fm_out dangles)
/* y f32 [n, 3] = the CB of atoms [n, 14, 3], or the CA where aatype is glycine (7). */
FM_KERNEL(ACT, void, pseudo_beta, fm_stream *stream, int64_t n, const void *atoms,
          const uint8_t *aatype, float *y)

/* -- losses on structures. A dloss is acc [1] in device memory. */

FM_KERNEL(ANY, size_t, fape_workspace, const fm_fape *args)
FM_KERNEL(ACT, void, fape, fm_stream *stream, const fm_fape *args, void *workspace)
FM_KERNEL(ACT, void, fape_grad, fm_stream *stream, const fm_fape *args, const void *dloss,
          fm_out dframes, fm_out dpoints)
FM_KERNEL(ACT, void, choose_naming, fm_stream *stream, const fm_naming *args)
FM_KERNEL(ACT, void, torsion_loss, fm_stream *stream, const fm_torsion_loss *args)
FM_KERNEL(ACT, void, torsion_loss_grad, fm_stream *stream, const fm_torsion_loss *args,
          const void *dloss, fm_out dangles, fm_out dunnormalised)
FM_KERNEL(ACT, void, lddt_bins, fm_stream *stream, const fm_lddt_bins *args)
FM_KERNEL(ACT, void, aligned_error_bins, fm_stream *stream, const fm_aligned_error_bins *args)
FM_KERNEL(ACT, void, binary_entropy, fm_stream *stream, const fm_binary_entropy *args)
FM_KERNEL(ACT, void, binary_entropy_grad, fm_stream *stream, const fm_binary_entropy *args,
          const void *dloss, fm_out dx)
FM_KERNEL(ANY, size_t, violation_workspace, const fm_violation *args)
FM_KERNEL(ACT, void, violation, fm_stream *stream, const fm_violation *args, void *workspace)
FM_KERNEL(ACT, void, violation_grad, fm_stream *stream, const fm_violation *args, const void *dloss,
          fm_out datoms)

/* -- losses */

/* The class of each distance and its weight. There are n_bin - 1 boundaries, evenly spaced from
 * first to last (Å); target[i, j] is the number of boundaries below |x_i - x_j|, and
 * w[i, j] = mask_i * mask_j. The distogram has 64 bins from 2.3125 to 21.6875. Positions are f32
 * [n, 3] in Å, masks f32 [n] of 0 and 1, w is act. Squares are compared, in f32, as the reference
 * does. */
FM_KERNEL(ACT, void, distance_bins, fm_stream *stream, int64_t n_i, int64_t n_j, const float *x_i,
          const float *x_j, const float *mask_i, const float *mask_j, int32_t n_bin, float first,
          float last, int32_t *target, void *w)
FM_KERNEL(ANY, size_t, cross_entropy_workspace, int64_t rows)
FM_KERNEL(ACT, void, cross_entropy, fm_stream *stream, const fm_cross_entropy *args,
          void *workspace)
/* dx[r, :] = *dloss * w[r] * (softmax(x[r, :]) - onehot) / (eps + weight_sum) (+ dx). dx has the
 * row distance of x; dloss is acc [1] in device memory. */
FM_KERNEL(ACT, void, cross_entropy_grad, fm_stream *stream, const fm_cross_entropy *args,
          const void *dloss, fm_out dx)

/* -- optimiser: n elements of class acc */

/* Writes state->norm_squared, the sum of squares (f64, one fixed order), and state->clip_scale,
 * which follows from it and from max_norm. With is_sum, grad is the sum over a batch and the limit
 * applies to the mean: it is then max_norm * (state->pending + 1). Sets a bit of
 * state->nonfinite when the norm is not finite, and never clears one. */
FM_KERNEL(ANY, size_t, grad_norm_workspace, int64_t n)
FM_KERNEL(ANY, void, grad_norm, fm_stream *stream, int64_t n, const void *grad, double max_norm,
          bool is_sum, fm_step_state *state, void *workspace)
/* Sets *flag to 1 when an element of x (act) is not finite. Never clears it. */
FM_KERNEL(ACT, void, find_nonfinite, fm_stream *stream, int64_t n, const void *x, uint32_t *flag)
/* sum = clip_scale * grad when state->pending is 0, else sum += clip_scale * grad. It does nothing
 * when state->nonfinite is set. Unless `always`, it also does nothing for the only sample of a
 * batch (pending and holds are both 0), whose gradient adam takes directly. */
FM_KERNEL(ANY, void, accumulate, fm_stream *stream, int64_t n, const fm_step_state *state,
          bool always, const void *grad, void *sum)
FM_KERNEL(ACT, void, adam, fm_stream *stream, const fm_adam *args)

/* -- packets from the host and records for it */

FM_KERNEL(ANY, void, take_packet, fm_stream *stream, const fm_take *args)
FM_KERNEL(ANY, void, report, fm_stream *stream, const fm_report *args)

/* -- initial parameters */

/* Writes the n acc elements y[i], whose draws are those of element first + i of the parameter. */
FM_KERNEL(ANY, void, init, fm_stream *stream, fm_init_kind kind, int64_t n, uint64_t first,
          double scale, const fm_draw *draw, void *y)

/* -- atoms and tokens */

FM_KERNEL(ACT, void, modulate, fm_stream *stream, const fm_modulate *args)
FM_KERNEL(ACT, void, modulate_grad, fm_stream *stream, const fm_modulate *args,
          const fm_modulate_grad *grad)
FM_KERNEL(ACT, void, adaln, fm_stream *stream, const fm_adaln *args)
FM_KERNEL(ACT, void, adaln_grad, fm_stream *stream, const fm_adaln *args, const fm_adaln_grad *grad)
FM_KERNEL(ACT, void, gather_rows, fm_stream *stream, const fm_rows *args, const void *x, fm_out y)
FM_KERNEL(ACT, void, sum_rows, fm_stream *stream, const fm_rows *args, const void *x, fm_out y)
/* y[window, query, key, :] = z[token of the query, token of the key, :] (+ y), 0 for pairs with a
 * position outside the atoms. y is [n_window, 32, 128, c], z [n_token, n_token, c]. Backward sums
 * over the pairs of atoms of two tokens that are in a window, in order. */
FM_KERNEL(ACT, void, window_pairs, fm_stream *stream, const fm_window_pairs *args, const void *z,
          fm_out y)
FM_KERNEL(ACT, void, window_pairs_grad, fm_stream *stream, const fm_window_pairs *args,
          const void *dy, fm_out dz)
FM_KERNEL(ACT, void, window_geometry, fm_stream *stream, const fm_window_geometry *args)
/* AF3-22: y[r, i] = cos(2 pi (x[r] w[i] + b[i])), y [rows, c]. */
FM_KERNEL(ACT, void, fourier, fm_stream *stream, int64_t rows, int64_t c, const void *x,
          const void *w, const void *b, void *y)

/* -- structures with noise. A dloss is acc [1] in device memory. */

FM_KERNEL(ACT, void, rigid_align, fm_stream *stream, const fm_rigid_align *args)
FM_KERNEL(ACT, void, augment, fm_stream *stream, const fm_augment *args)
/* y[i] = standard normal numbers, in pairs from two words each (Box and Muller). */
FM_KERNEL(ACT, void, draw_normal, fm_stream *stream, int64_t n, const fm_draw *draw, void *y)
/* y [n, 9] = rotations by rows, uniform over all rotations. */
FM_KERNEL(ACT, void, draw_rotations, fm_stream *stream, int64_t n, const fm_draw *draw, void *y)
FM_KERNEL(ACT, void, square_loss, fm_stream *stream, const fm_square_loss *args)
FM_KERNEL(ACT, void, square_loss_grad, fm_stream *stream, const fm_square_loss *args,
          const void *dloss, fm_out dx)
FM_KERNEL(ACT, void, bond_loss, fm_stream *stream, const fm_bond_loss *args)
FM_KERNEL(ACT, void, bond_loss_grad, fm_stream *stream, const fm_bond_loss *args, const void *dloss,
          fm_out dx)
FM_KERNEL(ANY, size_t, smooth_lddt_workspace, const fm_smooth_lddt *args)
FM_KERNEL(ACT, void, smooth_lddt, fm_stream *stream, const fm_smooth_lddt *args, void *workspace)
FM_KERNEL(ACT, void, smooth_lddt_grad, fm_stream *stream, const fm_smooth_lddt *args,
          const void *dloss, fm_out dx)
FM_KERNEL(ACT, void, distance_errors, fm_stream *stream, const fm_distance_errors *args)
FM_KERNEL(ACT, void, frame_errors, fm_stream *stream, const fm_frame_errors *args)
FM_KERNEL(ACT, void, atom_lddt, fm_stream *stream, const fm_atom_lddt *args)

#undef FM_KERNEL
