/* atoms.cu: kernels that gather and sum rows by token, handle pairs of atoms in windows, and
 * modulate by a conditioning signal. One thread computes one element or one pack of them, so every
 * sum has a fixed order. */
#include "trainer/backend/cuda/core/families.cuh"

namespace fm_cuda {

/* -- conditioning, by packs of V elements: all of 16 bytes, or one element */

template <typename T> static bool modulate_is_even(const fm_modulate *a) {
    return is_whole<T>(a->c) && is_aligned(a->g) && is_aligned(a->x) && is_aligned(a->shift) &&
           is_aligned(a->residual) && is_aligned(a->y);
}

template <typename T, int V> static void modulate_as(fm_stream *stream, const fm_modulate *args) {
    fm_modulate a = *args;
    uint32_t shared = (uint32_t)(a.g_rows * a.c / V);
    each(stream, a.rows * a.c / V, [=] __device__(int64_t i) {
        int64_t at = i * V, from = (int64_t)((uint32_t)i % shared) * V;
        float y[V], x[V], more[V];
        load<T, V>((const T *)a.g + from, y);
        load<T, V>((const T *)a.x + at, x);
#pragma unroll
        for (int k = 0; k < V; k++)
            y[k] = sigmoid(y[k]) * x[k];
        if (a.shift) {
            load<T, V>((const T *)a.shift + from, more);
#pragma unroll
            for (int k = 0; k < V; k++)
                y[k] += more[k];
        }
        if (a.residual) {
            load<T, V>((const T *)a.residual + at, more);
#pragma unroll
            for (int k = 0; k < V; k++)
                y[k] += more[k];
        }
        store<T, V>((T *)a.y + at, y);
    });
}

template <typename T> void modulate(fm_stream *stream, const fm_modulate *a) {
    assert(a->rows * a->c < (int64_t)1 << 32);
    if (modulate_is_even<T>(a)) {
        modulate_as<T, vector_of<T>()>(stream, a);
    } else {
        modulate_as<T, 1>(stream, a);
    }
}

template <typename T, int V>
static void modulate_grad_as(fm_stream *stream, const fm_modulate *args,
                             const fm_modulate_grad *grad) {
    fm_modulate a = *args;
    fm_modulate_grad out = *grad;
    int64_t shared = a.g_rows * a.c, groups = a.rows / a.g_rows;
    each(stream, shared / V, [=] __device__(int64_t i) {
        float open[V], dg[V] = {}, dshift[V] = {};
        load<T, V>((const T *)a.g + i * V, open);
#pragma unroll
        for (int k = 0; k < V; k++)
            open[k] = sigmoid(open[k]);
#pragma unroll 4
        for (int64_t b = 0; b < groups; b++) {
            int64_t at = b * shared + i * V;
            float x[V], dy[V];
            load<T, V>((const T *)a.x + at, x);
            load<T, V>((const T *)out.dy + at, dy);
#pragma unroll
            for (int k = 0; k < V; k++) {
                dg[k] += dy[k] * x[k];
                dshift[k] += dy[k];
                dy[k] *= open[k];
            }
            if (out.dx.data) put_pack<T, V>((T *)out.dx.data + at, out.dx.beta, dy);
        }
#pragma unroll
        for (int k = 0; k < V; k++)
            dg[k] *= open[k] * (1 - open[k]);
        if (out.dg.data) put_pack<T, V>((T *)out.dg.data + i * V, out.dg.beta, dg);
        if (out.dshift.data) put_pack<T, V>((T *)out.dshift.data + i * V, out.dshift.beta, dshift);
    });
}

template <typename T>
void modulate_grad(fm_stream *stream, const fm_modulate *a, const fm_modulate_grad *grad) {
    if (is_whole<T>(a->c) && is_aligned(a->g) && is_aligned(a->x) && is_aligned(grad->dy) &&
        is_aligned(grad->dx.data) && is_aligned(grad->dg.data) && is_aligned(grad->dshift.data)) {
        modulate_grad_as<T, vector_of<T>()>(stream, a, grad);
    } else {
        modulate_grad_as<T, 1>(stream, a, grad);
    }
}

/* -- rows by index */

__device__ inline float share_of_group(const fm_rows &a, int64_t group) {
    if (!a.mean) return 1;
    int32_t count = a.first[group + 1] - a.first[group];
    return count > 0 ? 1.0f / (float)count : 0;
}

template <typename T>
void gather_rows(fm_stream *stream, const fm_rows *args, const void *x, fm_out y) {
    fm_rows a = *args;
    each(stream, a.n_batch * a.n_y * a.c, [=] __device__(int64_t i) {
        int64_t r = i / a.c, from = a.index[r % a.n_y];
        float value = 0;
        if (from >= 0) {
            const T *row = (const T *)x + (r / a.n_y * a.n_x + from) * a.c;
            value = share_of_group(a, from) * get(row[i % a.c]);
        }
        put((T *)y.data + i, y.beta, value);
    });
}

template <typename T>
void sum_rows(fm_stream *stream, const fm_rows *args, const void *x, fm_out y) {
    fm_rows a = *args;
    each(stream, a.n_batch * a.n_y * a.c, [=] __device__(int64_t i) {
        int64_t r = i / a.c, group = r % a.n_y;
        const T *batch = (const T *)x + r / a.n_y * a.n_x * a.c + i % a.c;
        float total = 0;
        for (int64_t k = a.first[group]; k < a.first[group + 1]; k++)
            total += get(batch[k * a.c]);
        put((T *)y.data + i, y.beta, total * share_of_group(a, group));
    });
}

/* -- pairs in windows */

/* Finds the atoms of pair `at` of [n_window, 32, 128]. Returns false if one of them is outside 0 ..
 * n - 1. */
__device__ inline bool window_atoms(int64_t n, int64_t at, int64_t *query, int64_t *key) {
    int64_t first = at / (FM_WINDOW_QUERIES * FM_WINDOW_KEYS) * FM_WINDOW_QUERIES;
    *query = first + at / FM_WINDOW_KEYS % FM_WINDOW_QUERIES;
    *key = first - FM_WINDOW_BEFORE + at % FM_WINDOW_KEYS;
    return *query < n && *key >= 0 && *key < n;
}

template <typename T>
void window_pairs(fm_stream *stream, const fm_window_pairs *args, const void *z, fm_out y) {
    fm_window_pairs a = *args;
    int64_t pairs = a.n_window * FM_WINDOW_QUERIES * FM_WINDOW_KEYS;
    each(stream, pairs * a.c, [=] __device__(int64_t at) {
        int64_t query, key;
        float value = 0;
        if (window_atoms(a.n_atom, at / a.c, &query, &key)) {
            int64_t i = a.token[query], j = a.token[key];
            if (i >= 0 && j >= 0) value = get(((const T *)z)[(i * a.n_token + j) * a.c + at % a.c]);
        }
        put((T *)y.data + at, y.beta, value);
    });
}

template <typename T>
void window_pairs_grad(fm_stream *stream, const fm_window_pairs *args, const void *dy, fm_out dz) {
    fm_window_pairs a = *args;
    each(stream, a.n_token * a.n_token * a.c, [=] __device__(int64_t at) {
        int64_t c = at % a.c, j = at / a.c % a.n_token, i = at / a.c / a.n_token;
        float total = 0;
        for (int64_t query = a.first[i]; query < a.first[i + 1]; query++) {
            int64_t begin = query / FM_WINDOW_QUERIES * FM_WINDOW_QUERIES - FM_WINDOW_BEFORE;
            int64_t end = min_size(begin + FM_WINDOW_KEYS, a.first[j + 1]);
            for (int64_t key = max_size(begin, a.first[j]); key < end; key++)
                total += get(((const T *)dy)[(query * FM_WINDOW_KEYS + key - begin) * a.c + c]);
        }
        put((T *)dz.data + at, dz.beta, total);
    });
}

template <typename T> void window_geometry(fm_stream *stream, const fm_window_geometry *args) {
    fm_window_geometry a = *args;
    int64_t pairs = a.n_window * FM_WINDOW_QUERIES * FM_WINDOW_KEYS;
    each(stream, pairs, [=] __device__(int64_t at) {
        T *y = (T *)a.y + at * FM_WINDOW_GEOMETRY;
        int64_t query, key;
        float square = 0;
        bool same = window_atoms(a.n_atom, at, &query, &key) && a.id[query] >= 0 &&
                    a.id[query] == a.id[key];
        for (int axis = 0; axis < 3; axis++) {
            float d = same ? a.x[3 * query + axis] - a.x[3 * key + axis] : 0;
            square += d * d;
            y[axis] = to<T>(d);
        }
        y[3] = to<T>(same ? 1 / (1 + square) : 0);
        y[4] = to<T>(same);
    });
}

template <typename T>
void fourier(fm_stream *stream, int64_t rows, int64_t c, const void *x, const void *w,
             const void *b, void *y) {
    each(stream, rows * c, [=] __device__(int64_t at) {
        float phase = get(((const T *)x)[at / c]) * get(((const T *)w)[at % c]);
        ((T *)y)[at] = to<T>(cospif(2 * (phase + get(((const T *)b)[at % c]))));
    });
}

#define INSTANTIATE(T)                                                                             \
    template void modulate<T>(fm_stream *, const fm_modulate *);                                   \
    template void modulate_grad<T>(fm_stream *, const fm_modulate *, const fm_modulate_grad *);    \
    template void gather_rows<T>(fm_stream *, const fm_rows *, const void *, fm_out);              \
    template void sum_rows<T>(fm_stream *, const fm_rows *, const void *, fm_out);                 \
    template void window_pairs<T>(fm_stream *, const fm_window_pairs *, const void *, fm_out);     \
    template void window_pairs_grad<T>(fm_stream *, const fm_window_pairs *, const void *,         \
                                       fm_out);                                                    \
    template void window_geometry<T>(fm_stream *, const fm_window_geometry *);                     \
    template void fourier<T>(fm_stream *, int64_t, int64_t, const void *, const void *,            \
                             const void *, void *);
INSTANTIATE(float)
INSTANTIATE(bf16)

} // namespace fm_cuda
