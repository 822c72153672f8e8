/* attention.cu: which kernels run a call of gated attention, and the workspace they need.
 *
 * This file decides once per call; the files named in attention_path (attention.cuh) only compute.
 * The workspace queries and the launches use the same functions, so they cannot disagree. */
#include "trainer/backend/cuda/attention/attention_tf32.cuh"
#include "trainer/backend/cuda/core/wgmma.cuh"
#include "trainer/backend/fallback.h"

#include <math.h>
#include <stdlib.h>
#include <type_traits>

namespace fm_cuda {

using std::is_same_v;

/* -- choice of a path */

static bool is_stride_of_chunks(const fm_attention_stride &s) {
    return s.group % 8 == 0 && s.batch % 8 == 0 && s.row % 8 == 0 && s.head % 8 == 0;
}

/* bf16, whole chunks of 8 channels, 16-byte rows, and enough queries to fill a tile's rows. */
static bool is_tensor_core_shape(const fm_attention *a) {
    return a->c_head % 8 == 0 && a->c_head <= MAX_MMA_CHANNELS && a->n_kv_head == a->n_head &&
           a->n_query >= 8 && a->n_query * a->n_key >= 256 && is_stride_of_chunks(a->q_stride) &&
           is_stride_of_chunks(a->k_stride) && is_stride_of_chunks(a->v_stride) &&
           is_stride_of_chunks(a->o_stride) && (!a->g || is_stride_of_chunks(a->g_stride));
}

static bool is_stride_of_packs(const fm_attention_stride &s) {
    return is_whole<float>(s.group) && is_whole<float>(s.batch) && is_whole<float>(s.row) &&
           is_whole<float>(s.head);
}

/* The same for tf32, whose 16 bytes have 4 channels. 32 bits count the elements of the bias. */
static bool is_tf32_shape(const fm_attention *a) {
    return (!a->bias || a->n_group * a->n_head * a->n_query * a->n_key < (int64_t)1 << 30) &&
           a->c_head % 8 == 0 && a->c_head <= MAX_MMA_CHANNELS && a->n_kv_head == a->n_head &&
           a->n_query >= 8 && a->n_query * a->n_key >= 256 && is_stride_of_packs(a->q_stride) &&
           is_stride_of_packs(a->k_stride) && is_stride_of_packs(a->v_stride) &&
           is_stride_of_packs(a->o_stride) && (!a->g || is_stride_of_packs(a->g_stride));
}

/* Whether 1 / scale survives rounding to bf16 well enough: attention_wgmma.cu adds the bias by a
 * product with a diagonal of 1 / scale. */
static bool is_round_scale(double scale) {
    double rounded = (double)__bfloat162float(__float2bfloat16_rn((float)(1 / scale)));
    return fabs(rounded * scale - 1) < 1.0 / 4096;
}

static bool is_wgmma_forward(const fm_attention *a) {
    int64_t most_keys = a->bias && a->c_head > 16 ? MAX_PACKED_KEYS : MAX_FORWARD_KEYS;
    return a->c_head <= MAX_WGMMA_CHANNELS && a->n_query > GROUP_ROWS && a->n_key > GROUP_ROWS &&
           a->n_key <= most_keys && a->mask_value >= 1e4 && (!a->bias || is_round_scale(a->scale));
}

/* 1 / scale as the forward by tensor cores has it: attention_wgmma.cu rounds it to bf16, where it
 * is the operand of a product. The backward must use the same, or its weights do not sum to 1. */
static float bias_factor_of(const fm_attention *a) {
    float exact = (float)(1 / a->scale);
    return is_wgmma_forward(a) ? __bfloat162float(__float2bfloat16_rn(exact)) : exact;
}

/* Whether 32-bit offsets reach every element. */
static bool is_short(int64_t group, int64_t batch, int64_t row, int64_t head) {
    return llabs(group) + llabs(batch) + llabs(row) + llabs(head) < 0x7fffffff;
}
static bool is_short_tensor(const fm_attention *a, const fm_attention_stride &s) {
    return is_short(a->n_group * s.group, a->n_batch * s.batch, MAX_LONG_ROWS * s.row,
                    a->n_head * s.head);
}

/* As in the forward, masked keys get no weight at all, which a large mask value stands for. */
static bool is_wgmma_backward(const fm_attention *a) {
    return a->c_head <= MAX_WGMMA_CHANNELS && a->n_query <= MAX_LONG_ROWS &&
           a->n_key <= MAX_LONG_ROWS && a->mask_value >= 1e4 &&
           is_short(a->n_group * a->n_batch * a->n_head * MAX_LONG_ROWS * 32, 0, 0, 0) &&
           (!a->mask || is_short(a->n_group * a->mask_stride[0], a->n_batch * a->mask_stride[1],
                                 MAX_LONG_ROWS * a->mask_stride[2], 0)) &&
           is_short_tensor(a, a->q_stride) && is_short_tensor(a, a->k_stride) &&
           is_short_tensor(a, a->v_stride) && is_short_tensor(a, a->o_stride) &&
           (!a->g || is_short_tensor(a, a->g_stride));
}

/* Whether one walk makes all gradients (attention_small_grad.cu). It brings the bias by a product
 * with a diagonal of 1 / scale, as the forward does. */
static bool is_small_backward(const fm_attention *a) {
    return a->bias && a->c_head == 8 && a->n_query <= MAX_SMALL_QUERIES && is_wgmma_forward(a);
}

/* Whether one walk by warp-group products does (attention_wgmma_all.cu). A cluster's two blocks
 * have 128 keys each, and the second one of fewer would be idle. */
static bool is_all_backward(const fm_attention *a) {
    return a->bias && a->c_head > 16 && a->n_query > MAX_BLOCK_ROWS / 2 &&
           a->n_query <= MAX_BLOCK_ROWS && a->n_key > MAX_BLOCK_ROWS / 2 &&
           a->n_key <= MAX_BLOCK_ROWS;
}

/* One query, without bias and gate, rows of whole 16-byte packs. */
template <typename T> static bool is_one_query_shape(const fm_attention *a) {
    auto is_wide = [](const fm_attention_stride &s) {
        return is_whole<T>(s.group) && is_whole<T>(s.batch) && is_whole<T>(s.row) &&
               is_whole<T>(s.head);
    };
    return a->n_query == 1 && !a->bias && !a->g &&
           (a->c_head == 8 || a->c_head == 16 || a->c_head == 32) && is_wide(a->q_stride) &&
           is_wide(a->k_stride) && is_wide(a->v_stride) && is_wide(a->o_stride) &&
           a->n_group * a->n_batch * a->n_head < (int64_t)1 << 31;
}
static bool has_shared_keys(const fm_attention *a) {
    return a->n_kv_head == 1 && a->n_head <= MAX_ONE_QUERY_HEADS;
}
static bool has_few_keys(const fm_attention *a) {
    return a->n_kv_head == a->n_head && a->n_key <= MAX_FEW_KEYS;
}

/* The path of a call whose addresses are multiples of 16 bytes. The first row that fits is taken.
 *
 *     path          shapes                                         why
 *     ----------    -------------------------------------------    ------------------------------
 *     WGMMA         bf16, c_head 8, 16, 24, 32, a key per head;    warp-group products and the
 *                   forward: 65 queries or more, 65 to 16,384      copy engine; below 65 rows half
 *                   keys, with a bias at c_head 24 and 32 4,608;   of a group's 64 rows is idle
 *                   with a bias 1 / scale is one that bf16 holds
 *                   backward: up to 256 queries and keys           all of dS^T in shared memory
 *                   with a bias, c_head 24 and 32, 129 or more     one walk, dS^T in slots
 *     WGMMA_LONG    backward: 257 to 1,024 queries or keys         keys in passes, dS^T in slots
 *     MMA           the same c_head and 40, 48, 56, 64, other      mma.sync has 16-row tiles and
 *                   sizes, 8 queries or more, queries * keys at    no limit on the length
 *                   least 256
 *     TF32          the tf32 table, the shapes of MMA                the same tiles, in f32
 *     ONE_QUERY     one query, keys shared by all heads, no bias   global column attention: bound
 *                   and no gate, c_head 8, 16, 32, f32 and bf16    by reading keys and values
 *     FEW_KEYS      one query, up to 8 keys for each head, no      template pointwise attention:
 *                   bias and no gate, c_head 8, 16, 32, f32 and    bound by reading keys and values
 *                   bf16
 *     PLAIN         everything else up to c_head 64, and f32       one thread per row
 *
 * dbias is made by the files of the same path; ONE_QUERY and FEW_KEYS have none. */
template <typename T> static attention_path path_of_shape(const fm_attention *a, bool backward) {
    if (is_same_v<T, tf32> && is_tf32_shape(a)) return ATTENTION_TF32;
    if (sizeof(T) == 2 && is_tensor_core_shape(a)) {
        if (!backward) return is_wgmma_forward(a) ? ATTENTION_WGMMA : ATTENTION_MMA;
        if (!is_wgmma_backward(a)) return ATTENTION_MMA;
        bool is_long = a->n_query > MAX_BLOCK_ROWS || a->n_key > MAX_BLOCK_ROWS;
        return is_long ? ATTENTION_WGMMA_LONG : ATTENTION_WGMMA;
    }
    if (!is_one_query_shape<T>(a)) return ATTENTION_PLAIN;
    return has_shared_keys(a) ? ATTENTION_ONE_QUERY
           : has_few_keys(a)  ? ATTENTION_FEW_KEYS
                              : ATTENTION_PLAIN;
}

template <typename T>
attention_path attention_path_of(const fm_attention *a, const fm_attention_grad *grad) {
    attention_path path = path_of_shape<T>(a, grad != NULL);
    bool is_wide = is_aligned(a->q) && is_aligned(a->k) && is_aligned(a->v);
    if (grad) {
        is_wide = is_wide && is_aligned(grad->dout) && is_aligned(grad->dy) &&
                  is_aligned(grad->dk.data) && is_aligned(grad->dv.data);
    }
    if (path != ATTENTION_ONE_QUERY) { /* the gate's backward reads o by 16 bytes, too */
        is_wide = is_wide && is_aligned(a->g) && is_aligned(a->o);
        if (grad) is_wide = is_wide && is_aligned(grad->dq.data) && is_aligned(grad->dg.data);
    }
    return is_wide ? path : ATTENTION_PLAIN;
}

/* -- workspace */

static size_t plain_layout(const fm_attention *a, bool backward, void *base, attention_space *ret) {
    carver carve = {(char *)base, 0};
    if (a->mask) ret->valid = (uint8_t *)carve.take((size_t)(a->n_group * a->n_batch));
    if (backward) {
        size_t rows = (size_t)(a->n_group * a->n_batch * a->n_head * a->n_query);
        ret->delta = (float *)carve.take(rows * sizeof(float));
        ret->dout = carve.take(rows * (size_t)a->c_head * sizeof(float));
    }
    return carve.used;
}

/* Chunks of the batches by which dbias is summed: so many that each multiprocessor gets about
 * `share` blocks, if one chunk has `blocks`. attention_wgmma_dbias.cu has its own rule. */
static int64_t mma_dbias_chunks(const fm_attention *a, int64_t blocks, int64_t share) {
    return max_size(1, min_size(a->n_batch, min_size(64, share * n_multiprocessor() / blocks)));
}

static size_t tf32_layout(const fm_attention *a, bool backward, void *base, attention_space *ret) {
    carver carve = {(char *)base, 0};
    int64_t rows = a->n_group * a->n_batch * a->n_head * a->n_query;
    int64_t planes = a->n_group * a->n_head;
    ret->bias_factor = (float)(1 / a->scale);
    ret->ld_bias = round_up(a->n_key, TILE);
    ret->ld_bias_t = round_up(a->n_query, STEP);
    size_t plane = (size_t)(ret->ld_bias * ret->ld_bias_t * planes) * sizeof(float);
    if (a->bias) ret->bias = carve.take(plane);
    if (!backward) return carve.used;
    if (a->mask) ret->valid = (uint8_t *)carve.take((size_t)(a->n_group * a->n_batch));
    ret->delta = (float *)carve.take((size_t)rows * sizeof(float));
    ret->dout = carve.take((size_t)(rows * a->c_head) * sizeof(float));
    if (!a->bias) return carve.used;
    int64_t tiles = divide_up(a->n_query, 16 * attention_tf32_warps(a));
    ret->chunks = mma_dbias_chunks(a, planes * tiles * ret->ld_bias / TILE, 16);
    ret->bias_t = carve.take(plane);
    ret->dbias =
        (float *)carve.take((size_t)(ret->chunks * planes * a->n_query * a->n_key) * sizeof(float));
    return carve.used;
}

static size_t tensor_core_layout(const fm_attention *a, attention_path path, bool backward,
                                 void *base, attention_space *ret) {
    carver carve = {(char *)base, 0};
    bool is_mma = path == ATTENTION_MMA;
    int64_t rows = a->n_group * a->n_batch * a->n_head * a->n_query;
    int64_t planes = a->n_group * a->n_head;
    int64_t q_tiles = divide_up(a->n_query, TILE);
    int64_t k_tiles = divide_up(a->n_key, TILE);
    ret->bias_factor = bias_factor_of(a);
    ret->ld_bias = k_tiles * TILE;
    ret->ld_bias_t = q_tiles * TILE;
    size_t plane = (size_t)(ret->ld_bias * ret->ld_bias_t) * (size_t)planes;
    if (a->bias) ret->bias = carve.take(plane * sizeof(bf16));
    if (!backward) return carve.used;
    if (a->mask) ret->valid = (uint8_t *)carve.take((size_t)(a->n_group * a->n_batch));
    ret->delta = (float *)carve.take((size_t)rows * sizeof(float));
    ret->dout = carve.take((size_t)(rows * a->c_head) * sizeof(bf16));
    ret->is_small = !is_mma && is_small_backward(a);
    ret->is_all = path == ATTENTION_WGMMA && is_all_backward(a);
    ret->chunks = is_mma          ? mma_dbias_chunks(a, planes * q_tiles * k_tiles, 8)
                  : ret->is_small ? attention_small_chunks(a)
                  : ret->is_all   ? attention_all_chunks(a)
                                  : attention_wgmma_dbias_chunks(a);
    if (ret->is_small) {
        ret->sums = (float *)carve.take(attention_small_sums(a));
    } else if (path == ATTENTION_WGMMA_LONG) {
        ret->sums = (float *)carve.take(attention_wgmma_long_sums(a));
    }
    if (!a->bias) return carve.used;
    ret->bias_t = carve.take(plane * sizeof(bf16));
    ret->dbias =
        (float *)carve.take((size_t)(ret->chunks * planes * a->n_query * a->n_key) * sizeof(float));
    if (is_mma) {
        ret->errors = (float *)carve.take((size_t)rows * sizeof(float));
        return carve.used;
    }
    /* wgmma_dbias reads both by 128 rows, of which the last may be beyond the end. */
    int64_t columns = a->n_group * a->n_batch * a->n_head * ret->ld_bias_t * 4 + 2 * TILE;
    int64_t terms = a->n_group * a->n_batch * ret->ld_bias * (ret->is_small ? 4 : 1) + TILE;
    ret->columns = (float *)carve.take((size_t)columns * sizeof(float));
    ret->terms = (float *)carve.take((size_t)terms * sizeof(float));
    return carve.used;
}

/* Fills *ret with the parts that the path needs and returns the bytes; base NULL only counts. */
static size_t layout(const fm_attention *a, attention_path path, bool backward, void *base,
                     attention_space *ret) {
    *ret = {};
    if (path == ATTENTION_ONE_QUERY || path == ATTENTION_FEW_KEYS) return 0;
    if (path == ATTENTION_PLAIN) return plain_layout(a, backward, base, ret);
    if (path == ATTENTION_TF32) return tf32_layout(a, backward, base, ret);
    return tensor_core_layout(a, path, backward, base, ret);
}

/* A query does not know addresses yet, so the call may still fall back to PLAIN: enough for
 * both. */
template <typename T> static size_t enough_workspace(const fm_attention *a, bool backward) {
    attention_space space;
    size_t plain = layout(a, ATTENTION_PLAIN, backward, NULL, &space);
    size_t chosen = layout(a, path_of_shape<T>(a, backward), backward, NULL, &space);
    return plain > chosen ? plain : chosen;
}

template <typename T> size_t attention_workspace(const fm_attention *a) {
    return enough_workspace<T>(a, false);
}

template <typename T> size_t attention_grad_workspace(const fm_attention *a) {
    return enough_workspace<T>(a, true);
}

template <typename T> bool attention_opens(const fm_attention *a, int64_t c_y) {
    attention_path path = path_of_shape<T>(a, true);
    return (path == ATTENTION_WGMMA || path == ATTENTION_WGMMA_LONG) &&
           attention_opens_products(a, c_y);
}

/* -- launches */

/* Counts a call that PLAIN runs although it is large enough for tensor cores, which f32 never
 * takes. */
template <typename T> static void count_plain(const fm_attention *a) {
    if (is_same_v<T, float> || a->n_query < 8 || a->n_query * a->n_key < 256) return;
    fm_backend_fall_back(FM_FALLBACK_ATTENTION,
                         "attention of %lld queries, %lld keys and %lld channels per head runs "
                         "without tensor cores, several times slower",
                         (long long)a->n_query, (long long)a->n_key, (long long)a->c_head);
}

template <typename T> void attention(fm_stream *stream, const fm_attention *a, void *workspace) {
    assert(a->n_kv_head == 1 || a->n_kv_head == a->n_head);
    assert(a->c_head <= 64);
    typedef typename stored<T>::type number;
    attention_space space;
    attention_path path = attention_path_of<T>(a, NULL);
    layout(a, path, false, workspace, &space);
    switch (path) {
    case ATTENTION_WGMMA: attention_wgmma(stream, a, space); break;
    case ATTENTION_MMA: attention_mma(stream, a, space); break;
    case ATTENTION_TF32: attention_tf32(stream, a, space); break;
    case ATTENTION_ONE_QUERY: attention_one<number>(stream, a, NULL); break;
    case ATTENTION_FEW_KEYS: attention_few<number>(stream, a, NULL); break;
    default: count_plain<T>(a), attention_plain<number>(stream, a, space);
    }
}

template <typename T>
void attention_grad(fm_stream *stream, const fm_attention *a, const fm_attention_grad *grad,
                    void *workspace) {
    assert(a->n_kv_head == 1 || a->n_kv_head == a->n_head);
    assert(a->c_head <= 64);
    typedef typename stored<T>::type number;
    attention_space space;
    attention_path path = attention_path_of<T>(a, grad);
    assert(grad->dout || (a->bias && attention_opens<T>(a, a->n_head * a->c_head)));
    layout(a, path, true, workspace, &space);
    switch (path) {
    case ATTENTION_WGMMA: attention_wgmma_grad(stream, a, grad, space, false); break;
    case ATTENTION_WGMMA_LONG: attention_wgmma_grad(stream, a, grad, space, true); break;
    case ATTENTION_MMA: attention_mma_grad(stream, a, grad, space); break;
    case ATTENTION_TF32: attention_tf32_grad(stream, a, grad, space); break;
    case ATTENTION_ONE_QUERY: attention_one<number>(stream, a, grad); break;
    case ATTENTION_FEW_KEYS: attention_few<number>(stream, a, grad); break;
    default: count_plain<T>(a), attention_plain_grad<number>(stream, a, grad, space);
    }
}

#define INSTANTIATE(T)                                                                             \
    template attention_path attention_path_of<T>(const fm_attention *, const fm_attention_grad *); \
    template size_t attention_workspace<T>(const fm_attention *);                                  \
    template void attention<T>(fm_stream *, const fm_attention *, void *);                         \
    template bool attention_opens<T>(const fm_attention *, int64_t);                               \
    template size_t attention_grad_workspace<T>(const fm_attention *);                             \
    template void attention_grad<T>(fm_stream *, const fm_attention *, const fm_attention_grad *,  \
                                    void *);
INSTANTIATE(float)
INSTANTIATE(bf16)
INSTANTIATE(tf32)

} // namespace fm_cuda
