/* attention.cuh: what the attention files share: index maps, the workspace's parts, and the
 * question which of them can take a shape. */
#ifndef FM_BACKEND_CUDA_ATTENTION_CUH
#define FM_BACKEND_CUDA_ATTENTION_CUH

#include "trainer/backend/cuda/core/families.cuh"

namespace fm_cuda {

__host__ __device__ inline int64_t offset_of(const fm_attention_stride &s, int64_t group,
                                             int64_t batch, int64_t row, int64_t head) {
    return group * s.group + batch * s.batch + row * s.row + head * s.head;
}

/* The row of lse, delta and dout's copy that (group, batch, head) begins at. */
__host__ __device__ inline int64_t row_of(const fm_attention &a, int64_t group, int64_t batch,
                                          int64_t head) {
    return ((group * a.n_batch + batch) * a.n_head + head) * a.n_query;
}

/* Parts of the workspace, each from a multiple of 64 bytes. Which are there depends on the path. */
struct attention_space {
    uint8_t *valid;      /* [n_group, n_batch]: whether any key of the batch is */
    float *delta;        /* [rows]: <P, dP> of each row */
    void *dout;          /* act [rows, c_head]: gradient of the ungated output */
    void *bias, *bias_t; /* act [group, head, query, ld_bias] and [group, head, key, ld_bias_t] */
    float *dbias;        /* partial sums [chunks, group, head, query, key] */
    float *columns;      /* [group, batch, head][2][ld_bias_t, 2]: where dbias starts a column */
    float *sums;         /* of dq in one pass over keys, kept for the next: [blocks, ...] */
    float *terms;        /* [group, batch, ld_bias]: of the mask, powers of two */
    int64_t ld_bias, ld_bias_t, chunks;
};

/* attention.cu: fills space.valid. */
template <typename T> void attention_find_valid(fm_stream *, const fm_attention &, uint8_t *valid);

/* attention_one.cu: one query over keys that all heads share; grad NULL: forward. No workspace. */
template <typename T> bool attention_one_takes(const fm_attention *, const fm_attention_grad *grad);
template <typename T>
void attention_one(fm_stream *, const fm_attention *, const fm_attention_grad *grad);

/* attention_mma.cu: bf16, c_head 8, 16, 24 or 32, a key for each head, 16-byte rows. */
bool attention_mma_takes(const fm_attention *, const fm_attention_grad *grad);
size_t attention_mma_layout(const fm_attention *, bool backward, void *base, attention_space *ret);
void attention_mma(fm_stream *, const fm_attention *, void *workspace);
/* attention_wgmma.cu: the forward of shapes that attention_mma takes, of more than 64 queries and
 * keys. `planes`: place for the bias by heads, attention_space's bias. */
bool attention_wgmma_takes(const fm_attention *);
void attention_wgmma(fm_stream *, const fm_attention *, void *planes);
void attention_mma_grad(fm_stream *, const fm_attention *, const fm_attention_grad *,
                        void *workspace);

/* attention_wgmma_grad.cu: what attention_mma_grad hands on, of up to 512 queries and keys. Bytes
 * of attention_space's sums; how many chunks of the batches dbias is summed by. */
bool attention_wgmma_grad_takes(const fm_attention *);
size_t attention_wgmma_grad_sums(const fm_attention *);
int64_t attention_wgmma_dbias_chunks(const fm_attention *);
void attention_wgmma_grad(fm_stream *, const fm_attention *, const fm_attention_grad *,
                          const attention_space *);

} // namespace fm_cuda

#endif
