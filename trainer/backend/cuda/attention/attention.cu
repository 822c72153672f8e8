/* attention.cu: which kernels run a call of gated attention, and the workspace they need.
 *
 * This file decides once per call; the files named in attention_path (attention.cuh) only compute.
 * The workspace queries and the launches use the same functions, so they cannot disagree. */
#include "trainer/backend/cuda/attention/attention_tf32.cuh"
#include "trainer/backend/cuda/hopper/hopper.cuh"
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

static bool is_group_forward(const fm_attention *a) {
    int64_t most_keys = a->bias && a->c_head > 16 ? MAX_PACKED_KEYS : MAX_FORWARD_KEYS;
    return a->c_head <= MAX_WGMMA_CHANNELS && a->n_query > GROUP_LEAST_ROWS &&
           a->n_key > GROUP_LEAST_ROWS && a->n_key <= most_keys && a->mask_value >= 1e4 &&
           (!a->bias || is_round_scale(a->scale));
}

/* Only shapes at which the products of single warps are faster: with 32 channels, the end of a
 * batch weighs too much up to 256 keys. */
static bool is_warp_forward(const fm_attention *a) {
    bool is_width = a->c_head == 8 || (a->c_head > 16 && a->n_key > MAX_BLOCK_ROWS);
    return a->bias && is_width && a->n_batch >= LEAST_WARP_BATCHES && a->n_key <= MAX_WARP_KEYS &&
           attention_warp_fits(a);
}

/* Of a call that tensor cores can run. */
static attention_path forward_path(const fm_attention *a) {
    if (!uses_hopper() || !is_group_forward(a)) return ATTENTION_MMA;
    return is_warp_forward(a) ? ATTENTION_WARP : ATTENTION_WGMMA;
}

/* 1 / scale as the forward has it. WGMMA and WARP round it to bf16, where it is the operand of a
 * product. The backward must use the same, or its weights do not sum to 1. */
static float bias_factor_of(const fm_attention *a) {
    float exact = (float)(1 / a->scale);
    return forward_path(a) == ATTENTION_MMA ? exact : __bfloat162float(__float2bfloat16_rn(exact));
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
static bool is_group_backward(const fm_attention *a) {
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
    return a->bias && a->c_head == 8 && a->n_query <= MAX_SMALL_QUERIES &&
           forward_path(a) != ATTENTION_MMA;
}

/* Whether one walk by warp-group products does (attention_wgmma_all.cu). A cluster's two blocks
 * have 128 keys each, and the second one of fewer would be idle. */
static bool is_all_backward(const fm_attention *a) {
    return a->bias && a->c_head > 16 && a->n_query > MAX_BLOCK_ROWS / 2 &&
           a->n_query <= MAX_BLOCK_ROWS && a->n_key > MAX_BLOCK_ROWS / 2 &&
           a->n_key <= MAX_BLOCK_ROWS;
}

static attention_path backward_path(const fm_attention *a) {
    if (!uses_hopper() || !is_group_backward(a)) return ATTENTION_MMA;
    if (is_small_backward(a)) return ATTENTION_SMALL;
    if (is_all_backward(a)) return ATTENTION_ALL;
    bool is_long = a->n_query > MAX_BLOCK_ROWS || a->n_key > MAX_BLOCK_ROWS;
    return is_long ? ATTENTION_WGMMA_LONG : ATTENTION_WGMMA;
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

/* The path of a call whose addresses are multiples of 16 bytes. Rows are tried from above.
 *
 *     path          shapes                                         why
 *     ----------    -------------------------------------------    ------------------------------
 *     WARP          forward of WGMMA's shapes with a bias and 16   products a step ahead of the
 *                   batches or more: c_head 8 to 704 keys, c_head  exponentials; the bias stays in
 *                   32 of 257 to 384                               shared memory
 *     WGMMA         bf16, c_head 8, 16, 24, 32, a key per head;    warp-group products and the
 *                   forward: 65 queries or more, 65 to 16,384      copy engine; below 65 rows half
 *                   keys, with a bias at c_head 32 4,608;          of a group's 64 rows is idle
 *                   with a bias 1 / scale is one that bf16 holds,
 *                   which that of 24 channels is not
 *     SMALL         backward: c_head 8 with a bias, to 384         the logits once, dbias in
 *                   queries and 1,024 keys, where WARP or WGMMA    registers
 *                   runs the forward
 *     ALL           backward: c_head 24 and 32 with a bias, 129    the same by warp groups
 *                   to 256 queries and keys
 *     WGMMA         backward: other shapes to 256 queries, keys    all of dS^T in shared memory
 *     WGMMA_LONG    backward: 257 to 1,024 queries or keys         keys in passes, dS^T in slots
 *     MMA           the same c_head and 40, 48, 56, 64, other      mma.sync has 16-row tiles and
 *                   sizes, 8 queries or more, queries * keys at    no limit on the length
 *                   least 256
 *     TF32          the tf32 table, the shapes of MMA              the same tiles, in f32
 *     ONE_QUERY     one query, keys shared by all heads, no bias   global column attention: bound
 *                   and no gate, c_head 8, 16, 32, f32 and bf16    by reading keys and values
 *     FEW_KEYS      one query, up to 8 keys for each head, no      template pointwise attention:
 *                   bias and no gate, c_head 8, 16, 32, f32 and    bound by reading keys and values
 *                   bf16
 *     PLAIN         everything else up to c_head 64, and f32       one thread per row
 *
 * dbias is made by the files of the same path; ONE_QUERY and FEW_KEYS have none. WARP, WGMMA,
 * SMALL, ALL and WGMMA_LONG are in ../hopper/attention. On devices without it MMA takes their
 * shapes.
 *
 * Each path's files (attention_*), their lines, and by how much the mean step is longer if the path
 * below takes its calls. One H200, 2026-11-28: af2-initial of one and two cycles (170.4 ms),
 * af2-finetuning (693.8 ms) and af3-initial (586.4 ms, within 1.6) of one. docs/reference/cuda.md
 * has the rule by which a path stays.
 *
 *     path          files                           lines   gains
 *     ----------    ----------------------------    -----   ------------------------------------
 *     WARP          warp.cu, .cuh                     820   af2-finetuning 1.0 %, initial 0.3 %
 *     WGMMA         wgmma.cu, forward.cuh, bias.cu    830   af2-initial 11 %, with WARP and SMALL
 *     SMALL         small_grad.cu                     640   af2-finetuning 1.9 %, initial 0.6 %
 *     ALL           wgmma_all.cu                      590   af2-initial 3.7 %
 *     WGMMA         backward: wgmma_grad.cu, .cuh,   1,770  af2-initial 2.3 %; WGMMA_LONG and ALL
 *                   wgmma_dbias.cu, open.cu,                use most of these files, too
 *                   gate_grad.cuh
 *     WGMMA_LONG    wgmma_long.cu                     510   af2-finetuning 19 %, af3-initial 11 %
 *     MMA           mma.cu, .cuh, mma_grad.cu         960   the only one for its shapes
 *     TF32          tf32.cu, .cuh, tf32_grad.cu       850   the only one for its shapes
 *     ONE_QUERY     one.cu                            310   af2-initial 3.3 %
 *     FEW_KEYS      one.cu                                  af2-initial 0.5 %
 *     PLAIN         plain.cu                          300   the only one for its shapes */
template <typename T> static attention_path path_of_shape(const fm_attention *a, bool backward) {
    if (is_same_v<T, tf32> && is_tf32_shape(a)) return ATTENTION_TF32;
    if (sizeof(T) == 2 && is_tensor_core_shape(a)) {
        return backward ? backward_path(a) : forward_path(a);
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

static int64_t dbias_chunks(const fm_attention *a, attention_path path) {
    int64_t planes = a->n_group * a->n_head;
    switch (path) {
    case ATTENTION_MMA:
        return mma_dbias_chunks(a, planes * divide_up(a->n_query, TILE) * divide_up(a->n_key, TILE),
                                8);
    case ATTENTION_SMALL: return attention_small_chunks(a);
    case ATTENTION_ALL: return attention_all_chunks(a);
    default: return attention_wgmma_dbias_chunks(a);
    }
}

static size_t tensor_core_layout(const fm_attention *a, attention_path path, bool backward,
                                 void *base, attention_space *ret) {
    carver carve = {(char *)base, 0};
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
    ret->chunks = dbias_chunks(a, path);
    if (path == ATTENTION_SMALL) ret->sums = (float *)carve.take(attention_small_sums(a));
    if (path == ATTENTION_WGMMA_LONG) ret->sums = (float *)carve.take(attention_wgmma_long_sums(a));
    if (!a->bias) return carve.used;
    ret->bias_t = carve.take(plane * sizeof(bf16));
    ret->dbias =
        (float *)carve.take((size_t)(ret->chunks * planes * a->n_query * a->n_key) * sizeof(float));
    if (path == ATTENTION_MMA) {
        ret->errors = (float *)carve.take((size_t)rows * sizeof(float));
        return carve.used;
    }
    /* wgmma_dbias reads both by 128 rows, of which the last may be beyond the end. */
    int64_t columns = a->n_group * a->n_batch * a->n_head * ret->ld_bias_t * 4 + 2 * TILE;
    int64_t terms =
        a->n_group * a->n_batch * ret->ld_bias * (path == ATTENTION_SMALL ? 4 : 1) + TILE;
    ret->columns = (float *)carve.take((size_t)columns * sizeof(float));
    ret->terms = (float *)carve.take((size_t)terms * sizeof(float));
    return carve.used;
}

/* Fills *ret with the parts that the path needs and returns the bytes; base NULL only counts. */
static size_t layout(const fm_attention *a, attention_path path, bool backward, void *base,
                     attention_space *ret) {
    *ret = {};
    ret->path = path;
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
    switch (path_of_shape<T>(a, true)) {
    case ATTENTION_WGMMA:
    case ATTENTION_WGMMA_LONG:
    case ATTENTION_ALL:
    case ATTENTION_SMALL: return attention_opens_products(a, c_y);
    default: return false;
    }
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
    case ATTENTION_WARP: attention_warp(stream, a, space); break;
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
    case ATTENTION_WGMMA:
    case ATTENTION_WGMMA_LONG:
    case ATTENTION_ALL:
    case ATTENTION_SMALL: attention_wgmma_grad(stream, a, grad, space); break;
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
