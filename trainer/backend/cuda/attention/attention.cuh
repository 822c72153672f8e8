/* attention.cuh: the declarations that the attention files share: the paths, index maps, and the
 * workspace's parts. */
#ifndef FM_BACKEND_CUDA_ATTENTION_CUH
#define FM_BACKEND_CUDA_ATTENTION_CUH

#include "trainer/backend/cuda/core/families.cuh"

namespace fm_cuda {

/* Which kernels run a call. attention_path_of chooses, and nothing chooses again; attention.cu has
 * a table of files, shapes and reasons. */
enum attention_path {
    ATTENTION_PLAIN,      /* one thread per row, any shape */
    ATTENTION_ONE_QUERY,  /* one query over keys shared by the heads */
    ATTENTION_FEW_KEYS,   /* one query over few keys for each head */
    ATTENTION_MMA,        /* mma.sync of single warps */
    ATTENTION_TF32,       /* the same with tf32 products */
    ATTENTION_WGMMA,      /* warp-group products */
    ATTENTION_WARP,       /* forward: mma.sync over many batches with one bias */
    ATTENTION_WGMMA_LONG, /* backward: warp-group products, keys in passes */
    ATTENTION_ALL,        /* backward: one walk by warp-group products makes all gradients */
    ATTENTION_SMALL,      /* backward: one walk by mma.sync does, heads of 8 channels */
    ATTENTION_PATHS
};

/* The path of a call; grad NULL: forward. PLAIN handles operands whose address is not a multiple of
 * 16 bytes. T is float, bf16 or tf32. Needs no device. */
template <typename T>
attention_path attention_path_of(const fm_attention *a, const fm_attention_grad *grad);

enum {
    GROUP_LEAST_ROWS = 64, /* WGMMA forward: of 64 rows or fewer half of a group's were idle */
    /* WGMMA forward: the bits of valid keys are kept in shared memory, which a bias fills where
     * c_head is above 16 */
    MAX_FORWARD_KEYS = 16384,
    MAX_PACKED_KEYS = 4608,
    MAX_BLOCK_ROWS = 256, /* WGMMA backward: queries and keys that one block takes at once */
    MAX_LONG_ROWS = 1024, /* WGMMA_LONG: queries at once, keys in passes */
    MAX_SMALL_QUERIES = 384,
    LEAST_WARP_BATCHES = 16, /* fewer do not fill the teams of a block */
    MAX_WARP_KEYS = 1024,    /* each lane keeps the bits of 32 keys */
    MAX_WGMMA_CHANNELS = 32, /* of a head: all but MMA, which has tiles of up to 64 */
    MAX_MMA_CHANNELS = 64,
    MAX_ONE_QUERY_HEADS = 16,
    MAX_FEW_KEYS = 8
};

__host__ __device__ inline int64_t offset_of(const fm_attention_stride &s, int64_t group,
                                             int64_t batch, int64_t row, int64_t head) {
    return group * s.group + batch * s.batch + row * s.row + head * s.head;
}

/* The row of lse, delta and the workspace's dout at which (group, batch, head) begins. */
__host__ __device__ inline int64_t row_of(const fm_attention &a, int64_t group, int64_t batch,
                                          int64_t head) {
    return ((group * a.n_batch + batch) * a.n_head + head) * a.n_query;
}

/* Parts of the workspace, each at a multiple of 64 bytes. A path that does not need one has
 * NULL. */
struct attention_space {
    uint8_t *valid;      /* [n_group, n_batch]: whether the batch has a valid key */
    float *delta;        /* [rows]: <P, dP> of each row */
    void *dout;          /* gradient of the ungated output; [rows, c_head], WGMMA: in the order of
                          * o; act, PLAIN: f32, TF32: rounded to tf32 */
    void *bias, *bias_t; /* act [group, head, query, ld_bias] and [group, head, key, ld_bias_t] */
    float *dbias;        /* partial sums [chunks, group, head, query, key] */
    float *columns;      /* WGMMA: [group, batch, head][2][ld_bias_t, 2]: what a column of logits
                          * (-lse / scale) and of dP (-delta) starts from;
                          * SMALL: [group, batch, head][ld_bias_t], a term_row each */
    float *sums;         /* WGMMA_LONG: dq of the passes so far, [blocks, ...];
                          * SMALL: the blocks' shares of dq, [key tile][rows][8] */
    float *errors;       /* MMA: sums of the rows of dS over the rounds so far, like delta */
    float *terms;        /* [group, batch, ld_bias]: mask terms in units of log2;
                          * SMALL: a term_row each */
    attention_path path; /* whose parts these are */
    int64_t ld_bias, ld_bias_t, chunks; /* chunks: of the batches, for dbias */
    float
        bias_factor; /* what all paths multiply the bias with, before it is added to q k: 1 / scale
                        * as the forward of this call has it */
};

/* Each runs one path on a workspace that attention.cu has laid out. */
template <typename T>
void attention_plain(fm_stream *, const fm_attention *, const attention_space &);
template <typename T>
void attention_plain_grad(fm_stream *, const fm_attention *, const fm_attention_grad *,
                          const attention_space &);
/* grad NULL: forward. */
template <typename T>
void attention_one(fm_stream *, const fm_attention *, const fm_attention_grad *grad);
template <typename T>
void attention_few(fm_stream *, const fm_attention *, const fm_attention_grad *grad);
void attention_mma(fm_stream *, const fm_attention *, const attention_space &);
void attention_mma_grad(fm_stream *, const fm_attention *, const fm_attention_grad *,
                        const attention_space &);
/* Warps of a block of attention_mma_grad's walk over pairs, and the bytes of shared memory that it
 * asks for: at most shared_of_block. */
struct pair_block {
    int warps;
    int64_t bytes;
};
pair_block attention_pair_block(int64_t c_head, int64_t n_key);
void attention_tf32(fm_stream *, const fm_attention *, const attention_space &);
void attention_tf32_grad(fm_stream *, const fm_attention *, const fm_attention_grad *,
                         const attention_space &);

} // namespace fm_cuda

#endif
