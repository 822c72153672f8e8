/* ipa_logits.cu: the first launch of invariant point attention, forward and backward, by tiles of
 * 32 queries and 64 keys of a head.
 *
 * Forward makes logits, and for each tile the two numbers of the softmax of its keys (ipa_join), so
 * that the next launch need not read a row twice. Backward knows the softmax and makes the weights.
 * Beside them it makes <dvalue i, value j>, their gradient from the averaged values: it has the
 * tiles of both sides in shared memory as the logits have theirs. The averages themselves are not
 * made again, because the output has the averaged points. */
#include "trainer/backend/cuda/structure/ipa.cuh"

namespace fm_cuda {

/* The place of one head's queries, keys or values in a row of projections: its channels, and the
 * first of its points, whose coordinates are `count` apart. */
struct ipa_part {
    int channels, points, count, n_point;
};

/* Writes rows from `first` on, channels and then points in global coordinates, to tile [rows,
 * pitch] and to out [n, channels + 3 n_point], each unless NULL. Sixteen lanes share a row. */
template <typename T>
__device__ inline void make_rows(const fm_ipa &a, const ipa_part &part, int first, int rows,
                                 float *tile, int pitch, float *out) {
    int c = (int)a.c, width = c + 3 * part.n_point, lane = threadIdx.x % 16;
    for (int r = threadIdx.x / 16; r < rows; r += 16) {
        int i = first + r;
        bool exists = i < a.n;
        const T *row = (const T *)a.projections + (exists ? a.ld * i : 0);
        float frame[FRAME], rotation[9];
        read_row<FRAME>((const T *)a.frames + (exists ? FRAME * i : 0), frame);
        matrix_of_quaternion(frame, rotation);
        for (int f = lane; f < c; f += 16) {
            float x = get(row[part.channels + f]);
            if (tile) tile[r * pitch + f] = x;
            if (out && exists) out[i * width + f] = x;
        }
        for (int p = lane; p < part.n_point; p += 16) {
            const T *from = row + part.points + p;
            float local[3] = {get(from[0]), get(from[part.count]), get(from[2 * part.count])};
            float point[3];
            rotate(rotation, local, point);
            add3(point, frame + 4);
#pragma unroll
            for (int axis = 0; axis < 3; axis++) {
                int f = c + 3 * p + axis;
                if (tile) tile[r * pitch + f] = point[axis];
                if (out && exists) out[i * width + f] = point[axis];
            }
        }
    }
}

/* A thread's queries and keys of one feature. */
__device__ inline void read_feature(const float *mine, const float *other, int pitch, float *x,
                                    float *y) {
#pragma unroll
    for (int r = 0; r < LOGIT_ROWS; r++)
        x[r] = mine[16 * r * pitch];
#pragma unroll
    for (int c = 0; c < LOGIT_COLUMNS; c++)
        y[c] = other[16 * c * pitch];
}

/* sum = scale * products of channels + factor * squared distances of points, for a thread's queries
 * and keys. */
__device__ inline void add_products(const float *query, const float *key, int channels, int width,
                                    int pitch, float scale, float factor,
                                    float (*sum)[LOGIT_COLUMNS]) {
    const float *mine = query + threadIdx.x / 16 * pitch, *other = key + threadIdx.x % 16 * pitch;
    float square[LOGIT_ROWS][LOGIT_COLUMNS] = {{0}}, x[LOGIT_ROWS], y[LOGIT_COLUMNS];
    for (int f = 0; f < channels; f++) {
        read_feature(mine + f, other + f, pitch, x, y);
#pragma unroll
        for (int r = 0; r < LOGIT_ROWS; r++)
#pragma unroll
            for (int c = 0; c < LOGIT_COLUMNS; c++)
                sum[r][c] += x[r] * y[c];
    }
    for (int f = channels; f < width; f++) {
        read_feature(mine + f, other + f, pitch, x, y);
#pragma unroll
        for (int r = 0; r < LOGIT_ROWS; r++)
#pragma unroll
            for (int c = 0; c < LOGIT_COLUMNS; c++)
                square[r][c] += (x[r] - y[c]) * (x[r] - y[c]);
    }
#pragma unroll
    for (int r = 0; r < LOGIT_ROWS; r++)
#pragma unroll
        for (int c = 0; c < LOGIT_COLUMNS; c++)
            sum[r][c] = scale * sum[r][c] + factor * square[r][c];
}

/* Gradients of the averaged values of a tile's queries, [G] each, to `tile`: of the channels, and
 * of the points back through the query's frame. With `keep` they go to dvalue, too, and the
 * frame's gradient to dframe. Sixteen lanes share a query.
 *
 * The output has R^T x for an offset x. The offset is R (R^T x) over |quaternion|^4, since R is a
 * quadratic form of the quaternion. */
template <typename T>
__device__ inline void make_value_grads(const fm_ipa &a, const ipa_layout &l, const ipa_space &s,
                                        const T *dout, int query, int h, bool keep, float *tile,
                                        int pitch) {
    int column = threadIdx.x % 16, c = (int)a.c;
    for (int r = threadIdx.x / 16; r < LOGIT_QUERIES; r += 16) {
        bool exists = query + r < a.n;
        int64_t i = exists ? query + r : 0;
        const T *dy = dout + l.ld * i, *y = (const T *)a.y + l.ld * i;
        float *out = keep && exists ? s.dvalue + (h * a.n + i) * l.g : NULL;
        float frame[FRAME], rotation[9], d[MATRIX] = {0};
        read_row<FRAME>((const T *)a.frames + FRAME * i, frame);
        matrix_of_quaternion(frame, rotation);
        float square =
            frame[0] * frame[0] + frame[1] * frame[1] + frame[2] * frame[2] + frame[3] * frame[3];
        for (int f = column; f < c; f += 16) {
            float x = get(dy[h * c + f]);
            tile[r * pitch + f] = x;
            if (out) out[f] = x;
        }
        for (int p = column; p < a.n_v; p += 16) {
            float local[3], offset[3], dlocal[3], doffset[3];
            int64_t at = h * a.n_v + p;
#pragma unroll
            for (int axis = 0; axis < 3; axis++) {
                local[axis] = get(y[l.o_points + axis * l.n_o_points + at]);
                dlocal[axis] = get(dy[l.o_points + axis * l.n_o_points + at]);
            }
            float length =
                sqrtf(local[0] * local[0] + local[1] * local[1] + local[2] * local[2] + l.eps);
            float factor = get(dy[l.o_norms + at]) / length;
            rotate(rotation, local, offset);
#pragma unroll
            for (int axis = 0; axis < 3; axis++) {
                dlocal[axis] += factor * local[axis];
                offset[axis] /= square * square;
            }
            add_outer(d, offset, dlocal);
            rotate(rotation, dlocal, doffset);
#pragma unroll
            for (int axis = 0; axis < 3; axis++) {
                d[9 + axis] -= doffset[axis];
                tile[r * pitch + c + 3 * p + axis] = doffset[axis];
                if (out) out[c + 3 * p + axis] = doffset[axis];
            }
        }
        if (!keep) continue;
#pragma unroll
        for (int k = 0; k < MATRIX; k++) {
#pragma unroll
            for (int step = 8; step > 0; step /= 2)
                d[k] += __shfl_xor_sync(0xffffffffu, d[k], step);
            if (column == 0 && exists) s.dframe[(h * a.n + i) * MATRIX + k] = d[k];
        }
    }
}

/* The largest of a row's logits in a tile of keys, and the sum of exponentials. Sixteen lanes share
 * the row, of which a thread has LOGIT_COLUMNS logits, -INFINITY beyond the last key. */
__device__ inline void store_part(const float *logit, float *part) {
    float largest = -INFINITY, total = 0;
#pragma unroll
    for (int m = 0; m < LOGIT_COLUMNS; m++)
        largest = fmaxf(largest, logit[m]);
#pragma unroll
    for (int step = 8; step > 0; step /= 2)
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, step));
#pragma unroll
    for (int m = 0; m < LOGIT_COLUMNS; m++)
        total += expf(logit[m] - largest);
#pragma unroll
    for (int step = 8; step > 0; step /= 2)
        total += __shfl_xor_sync(0xffffffffu, total, step);
    if (part && threadIdx.x % 16 == 0) part[0] = largest, part[1] = total;
}

/* A22:7. All logits of a masked query would have the same mask_value, which changes no weight and
 * costs digits, so it is not added to them. */
template <typename T, bool GRAD>
__global__ void __launch_bounds__(IPA_THREADS)
    ipa_logit_kernel(fm_ipa a, ipa_layout l, ipa_space s, const T *dy) {
    extern __shared__ __align__(16) float shared[];
    int key = (int)blockIdx.x * LOGIT_KEYS, query = (int)blockIdx.y * LOGIT_QUERIES;
    int h = (int)blockIdx.z, c = (int)a.c, qk = (int)a.n_qk, v = (int)a.n_v;
    int n = (int)a.n, n_head = (int)a.n_head, width = (int)l.f, g = (int)l.g;
    int pitch = width | 1, /* odd, so that a column of the tile is spread over all banks */
        value_pitch = g | 1;
    int points = (int)l.kv_points + h * (qk + v), count = (int)l.n_kv_points;
    int i[LOGIT_ROWS], j[LOGIT_COLUMNS];
    float *queries = shared, *keys = queries + LOGIT_QUERIES * pitch;
    ipa_part of_query = {h * c, (int)l.q_points + h * qk, (int)l.n_q_points, qk};
    ipa_part of_key = {(int)l.kv + 2 * h * c, points, count, qk};
    ipa_part of_value = {(int)l.kv + (2 * h + 1) * c, points + qk, count, v};
    bool first_keys = blockIdx.x == 0, first_queries = blockIdx.y == 0;
    wait_for_previous();
    let_next_begin();
    float pair[LOGIT_ROWS][LOGIT_COLUMNS]; /* asked for early: a pair's heads are neighbours */
#pragma unroll
    for (int r = 0; r < LOGIT_ROWS; r++) {
        i[r] = query + threadIdx.x / 16 + 16 * r;
#pragma unroll
        for (int m = 0; m < LOGIT_COLUMNS; m++) {
            j[m] = key + threadIdx.x % 16 + 16 * m;
            bool exists = i[r] < n && j[m] < n;
            const T *bias = (const T *)a.bias + ((int64_t)i[r] * n + j[m]) * n_head + h;
            pair[r][m] = exists ? get(*bias) : 0;
        }
    }
    make_rows<T>(a, of_query, query, LOGIT_QUERIES, queries, pitch,
                 GRAD && first_keys ? s.q + h * a.n * l.f : NULL);
    make_rows<T>(a, of_key, key, LOGIT_KEYS, keys, pitch,
                 GRAD && first_queries ? s.k + h * a.n * l.f : NULL);
    float *dvalues = keys + LOGIT_KEYS * pitch, *values = dvalues + LOGIT_QUERIES * value_pitch;
    if (GRAD) {
        make_rows<T>(a, of_value, key, LOGIT_KEYS, values, value_pitch, NULL);
        make_value_grads(a, l, s, dy, query, h, first_keys, dvalues, value_pitch);
    } else if (first_keys) { /* the values of the residues that are the tile's queries */
        make_rows<T>(a, of_value, query, LOGIT_QUERIES, NULL, 0, s.v + h * a.n * l.g);
    }
    __syncthreads();
    float sum[LOGIT_ROWS][LOGIT_COLUMNS] = {{0}};
    float factor = l.point_factor * ipa_softplus(get(((const T *)a.head_weights)[h]));
    add_products(queries, keys, c, width, pitch, l.scale, factor, sum);
    const T *mask = (const T *)a.mask;
#pragma unroll
    for (int r = 0; r < LOGIT_ROWS; r++) {
        float mine = i[r] < n ? get(mask[i[r]]) : 0;
#pragma unroll
        for (int m = 0; m < LOGIT_COLUMNS; m++) {
            float logit = sum[r][m] + l.third * pair[r][m];
            if (mine != 0 && j[m] < n) logit += l.mask_value * (mine * get(mask[j[m]]) - 1);
            sum[r][m] = j[m] < n ? logit : -INFINITY;
        }
    }
    float d[LOGIT_ROWS][LOGIT_COLUMNS] = {{0}};
    if (GRAD) add_products(dvalues, values, g, g, value_pitch, 1, 0, d);
#pragma unroll
    for (int r = 0; r < LOGIT_ROWS; r++) {
        int64_t row = (int64_t)h * n + i[r];
        if (!GRAD) {
            float *part = s.part + 2 * (row * gridDim.x + blockIdx.x);
            store_part(sum[r], i[r] < n ? part : NULL);
        }
        if (i[r] >= n) continue;
        const float *lse = (const float *)a.lse + 2 * ((int64_t)i[r] * n_head + h);
#pragma unroll
        for (int m = 0; m < LOGIT_COLUMNS; m++) {
            if (j[m] >= n) continue;
            s.weight[row * n + j[m]] = GRAD ? ipa_weight(sum[r][m], lse) : sum[r][m];
            if (GRAD) s.d[row * n + j[m]] = d[r][m];
        }
    }
}

template <typename T>
void ipa_logits(fm_stream *stream, const fm_ipa *a, const ipa_space *s, const void *dy) {
    dim3 tiles((unsigned)divide_up(a->n, LOGIT_KEYS), (unsigned)divide_up(a->n, LOGIT_QUERIES),
               (unsigned)a->n_head);
    ipa_layout l = ipa_layout_of(a);
    int64_t width = (l.f | 1) + (dy ? l.g | 1 : 0);
    size_t bytes = (size_t)((LOGIT_QUERIES + LOGIT_KEYS) * width) * sizeof(float);
    ipa_launch(stream, dy ? ipa_logit_kernel<T, true> : ipa_logit_kernel<T, false>, tiles,
               IPA_THREADS, bytes, *a, l, *s, (const T *)dy);
}

#define INSTANTIATE(T)                                                                             \
    template void ipa_logits<T>(fm_stream *, const fm_ipa *, const ipa_space *, const void *);
INSTANTIATE(float)
INSTANTIATE(bf16)

} // namespace fm_cuda
