/* families.cuh: the functions behind the table, one family a file; kernels.h says what each does.
 * T is the act type. */
#ifndef FM_BACKEND_CUDA_FAMILIES_CUH
#define FM_BACKEND_CUDA_FAMILIES_CUH

#include "trainer/backend/cuda/core/common.cuh"

namespace fm_cuda {

/* memory.cu */
void *alloc(size_t bytes);
void release(void *memory);
void upload(fm_stream *stream, void *device, const void *host, size_t bytes);
void download(fm_stream *stream, void *host, const void *device, size_t bytes);
void synchronize(fm_stream *stream);
template <typename T> void fill(fm_stream *, int64_t n, double value, void *y);
template <typename T> void copy(fm_stream *, int64_t n, const void *x, void *y);
template <typename T> void cast(fm_stream *, int64_t n, fm_element from, const void *x, void *y);
template <typename T> void copy_strided(fm_stream *, const fm_strided *);
void widen(fm_stream *, int64_t n, const uint8_t *x, int32_t *y);
template <typename T> void unpack_bits(fm_stream *, int64_t n, const uint8_t *bits, void *y);
template <typename T> void axpy(fm_stream *, int64_t n, double alpha, const void *x, fm_out y);
void axpy_device(fm_stream *, int64_t n, const double *alpha, const void *x, fm_out y);
size_t sum_workspace(int64_t n_a, int64_t n_r, int64_t n_c);
template <typename T>
void sum(fm_stream *, int64_t n_a, int64_t n_r, int64_t n_c, const int64_t stride[2], const void *x,
         fm_out y, bool y_is_acc, void *workspace);
/* x [n_r, n_c], rows ld apart, = 0 where relu is not above 0; y [n_c] (f32; NULL: not wanted) = the
 * sums of its columns then. Workspace: sum_workspace(1, n_r, n_c). */
template <typename T>
void sum_after_relu(fm_stream *, int64_t n_r, int64_t n_c, int64_t ld, const void *relu, void *x,
                    fm_out y, void *workspace);

/* gemm.cu. gemm_prepare makes the cuBLASLt handle; false when it cannot. */
bool gemm_prepare(void);
size_t gemm_workspace(const fm_gemm *);
template <typename T> void gemm(fm_stream *, const fm_gemm *, void *workspace);

/* linear.cu: RELU_GRAD over many rows of few channels. linear_fits: whether it has this one; then
 * gemm's workspace is at least linear_workspace. */
template <typename T> bool linear_fits(const fm_gemm *);
size_t linear_workspace(const fm_gemm *);
void linear(fm_stream *, const fm_gemm *, void *workspace);
/* skinny.cu: products to and from four numbers a row. */
template <typename T> bool skinny_fits(const fm_gemm *);
void skinny(fm_stream *, const fm_gemm *);

/* norm.cu */
template <typename T> void layernorm(fm_stream *, const fm_layernorm *);
size_t layernorm_grad_workspace(int64_t rows, int64_t c);
template <typename T> void layernorm_grad(fm_stream *, const fm_layernorm_grad *, void *workspace);
template <typename T>
void update_norm(fm_stream *, const fm_update_norm *, const void *residual, const void *update,
                 void *y, void *n);
size_t update_norm_grad_workspace(int64_t rows, int64_t c);
template <typename T>
void update_norm_grad(fm_stream *, const fm_update_norm *, const fm_update_norm_grad *,
                      void *workspace);

/* rows.cu */
template <typename T>
void bias_add(fm_stream *, int64_t rows, int64_t c, const void *x, const void *bias, void *y);
template <typename T> void relu(fm_stream *, int64_t n, const void *x, void *y);
template <typename T>
void relu_grad(fm_stream *, int64_t n, const void *y, const void *dy, fm_out dx);
template <typename T> void gate(fm_stream *, const fm_gate *);
template <typename T> void gate_grad(fm_stream *, const fm_gate *, const fm_gate_grad *);
template <typename T> void swiglu(fm_stream *, const fm_swiglu *);
template <typename T> void swiglu_grad(fm_stream *, const fm_swiglu *, const void *dy, fm_out dx);
template <typename T>
void scale_rows(fm_stream *, int64_t rows, int64_t c, int64_t ldx, int64_t ldy, const void *scale,
                const void *x, fm_out y);
template <typename T> void masked_mean(fm_stream *, const fm_masked_mean *, void *y);
template <typename T>
void masked_mean_grad(fm_stream *, const fm_masked_mean *, const void *dy, fm_out dx);

/* attention.cu (any shape) and attention_mma.cu (tensor cores) */
template <typename T> size_t attention_workspace(const fm_attention *);
template <typename T> void attention(fm_stream *, const fm_attention *, void *workspace);
template <typename T> size_t attention_grad_workspace(const fm_attention *);
template <typename T>
void attention_grad(fm_stream *, const fm_attention *, const fm_attention_grad *, void *workspace);

/* outer.cu, triangle.cu */
template <typename T> size_t outer_workspace(const fm_outer *);
template <typename T> void outer(fm_stream *, const fm_outer *, void *workspace);
template <typename T> size_t outer_grad_workspace(const fm_outer *);
template <typename T>
void outer_grad(fm_stream *, const fm_outer *, const fm_outer_grad *, void *workspace);
template <typename T> size_t triangle_workspace(const fm_triangle *);
template <typename T> void triangle(fm_stream *, const fm_triangle *, void *workspace);
template <typename T> size_t triangle_grad_workspace(const fm_triangle *);
template <typename T>
void triangle_grad(fm_stream *, const fm_triangle *, const fm_triangle_grad *, void *workspace);

/* c products of [m, k] [k, n], every matrix contiguous in its channel; `space` is the GEMM's. */
template <typename T>
void triangle_multiply(fm_stream *, void *space, int64_t c, int64_t m, int64_t n, int64_t k,
                       bool trans_a, bool trans_b, const void *a, const void *b, void *out);

/* triangle_block.cu, triangle_block_grad.cu */
template <typename T> size_t triangle_block_kept(const fm_triangle_block *);
template <typename T> size_t triangle_block_workspace(const fm_triangle_block *);
template <typename T> void triangle_block(fm_stream *, const fm_triangle_block *, void *workspace);
template <typename T> size_t triangle_block_grad_workspace(const fm_triangle_block *);
template <typename T>
void triangle_block_grad(fm_stream *, const fm_triangle_block *, const fm_triangle_block_grad *,
                         void *workspace);

/* dropout.cu */
template <typename T>
void dropout(fm_stream *, const fm_dropout *, const void *residual, const void *x, void *y);
template <typename T> void dropout_grad(fm_stream *, const fm_dropout *, const void *dy, fm_out dx);

/* embed.cu */
template <typename T>
void lookup(fm_stream *, const fm_lookup *, int64_t rows, const uint8_t *ids, fm_out y);
size_t lookup_grad_workspace(const fm_lookup *, int64_t rows);
template <typename T>
void lookup_grad(fm_stream *, const fm_lookup *, int64_t rows, const uint8_t *ids, const void *dy,
                 fm_out dw, void *workspace);
template <typename T>
void relpos(fm_stream *, const fm_lookup *, int64_t n_i, int64_t n_j, const int32_t *index_i,
            const int32_t *index_j, fm_out z);
size_t relpos_grad_workspace(const fm_lookup *, int64_t n_i, int64_t n_j);
template <typename T>
void relpos_grad(fm_stream *, const fm_lookup *, int64_t n_i, int64_t n_j, const int32_t *index_i,
                 const int32_t *index_j, const void *dz, fm_out dw, void *workspace);
void distance_ids(fm_stream *, int64_t n_i, int64_t n_j, const float *x_i, const float *x_j,
                  int32_t n_bin, float first, float last, float most_square, uint8_t *ids);
template <typename T>
void outer_sum(fm_stream *, int64_t n_i, int64_t n_j, int64_t c, int64_t lda, int64_t ldb,
               const void *a, const void *b, fm_out z);
template <typename T>
void outer_sum_grad(fm_stream *, int64_t n_i, int64_t n_j, int64_t c, int64_t lda, int64_t ldb,
                    const void *dz, fm_out da, fm_out db);
template <typename T> void msa_features(fm_stream *, const fm_msa_features *);

/* loss.cu */
template <typename T>
void distance_bins(fm_stream *, int64_t n_i, int64_t n_j, const float *x_i, const float *x_j,
                   const float *mask_i, const float *mask_j, int32_t n_bin, float first, float last,
                   int32_t *target, void *w);
size_t cross_entropy_workspace(int64_t rows);
template <typename T> void cross_entropy(fm_stream *, const fm_cross_entropy *, void *workspace);
template <typename T>
void cross_entropy_grad(fm_stream *, const fm_cross_entropy *, const void *dloss, fm_out dx);

/* ipa.cu, ipa_grad.cu */
size_t ipa_workspace(const fm_ipa *);
template <typename T> void ipa(fm_stream *, const fm_ipa *, void *workspace);
size_t ipa_grad_workspace(const fm_ipa *);
template <typename T>
void ipa_grad(fm_stream *, const fm_ipa *, const fm_ipa_grad *, void *workspace);

/* frames.cu */
template <typename T>
void frame_update(fm_stream *, int64_t n, const void *frames, const void *update, void *y);
template <typename T>
void frame_update_grad(fm_stream *, int64_t n, const void *frames, const void *update,
                       const void *dy, fm_out dframes, fm_out dupdate);
template <typename T>
void matrix_frames(fm_stream *, int64_t n, double scale, const void *frames, void *y);
template <typename T>
void matrix_frames_grad(fm_stream *, int64_t n, double scale, const void *frames, const void *dy,
                        fm_out dx);
template <typename T> void unit_pairs(fm_stream *, int64_t n, double eps, const void *x, void *y);
template <typename T>
void unit_pairs_grad(fm_stream *, int64_t n, double eps, const void *x, const void *dy, fm_out dx);
template <typename T> void residue_atoms(fm_stream *, const fm_residue_atoms *);
template <typename T>
void residue_atoms_grad(fm_stream *, const fm_residue_atoms *, const void *dgroups,
                        const void *datoms, fm_out dframes, fm_out dangles);
template <typename T>
void pseudo_beta(fm_stream *, int64_t n, const void *atoms, const uint8_t *aatype, float *y);

/* fape.cu */
size_t fape_workspace(const fm_fape *);
template <typename T> void fape(fm_stream *, const fm_fape *, void *workspace);
template <typename T>
void fape_grad(fm_stream *, const fm_fape *, const void *dloss, fm_out dframes, fm_out dpoints);
template <typename T> void choose_naming(fm_stream *, const fm_naming *);

/* structure_loss.cu */
template <typename T> void torsion_loss(fm_stream *, const fm_torsion_loss *);
template <typename T>
void torsion_loss_grad(fm_stream *, const fm_torsion_loss *, const void *dloss, fm_out dangles,
                       fm_out dunnormalised);
template <typename T> void lddt_bins(fm_stream *, const fm_lddt_bins *);
template <typename T> void aligned_error_bins(fm_stream *, const fm_aligned_error_bins *);
template <typename T> void binary_entropy(fm_stream *, const fm_binary_entropy *);
template <typename T>
void binary_entropy_grad(fm_stream *, const fm_binary_entropy *, const void *dloss, fm_out dx);

/* violation.cu */
size_t violation_workspace(const fm_violation *);
template <typename T> void violation(fm_stream *, const fm_violation *, void *workspace);
template <typename T>
void violation_grad(fm_stream *, const fm_violation *, const void *dloss, fm_out datoms);

/* optim.cu */
size_t grad_norm_workspace(int64_t n);
void grad_norm(fm_stream *, int64_t n, const void *grad, double max_norm, bool is_sum,
               fm_step_state *state, void *workspace);
template <typename T> void find_nonfinite(fm_stream *, int64_t n, const void *x, uint32_t *flag);
void accumulate(fm_stream *, int64_t n, const fm_step_state *, bool always, const void *grad,
                void *sum);
template <typename T> void adam(fm_stream *, const fm_adam *);
void init(fm_stream *, fm_init_kind kind, int64_t n, uint64_t first, double scale,
          const fm_draw *draw, void *y);

/* packet.cu, device.cu */
void take_packet(fm_stream *, const fm_take *);
void report(fm_stream *, const fm_report *);
const fm_device *device_table(void);

} // namespace fm_cuda

#endif
