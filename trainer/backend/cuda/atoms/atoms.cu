/* atoms.cu: kernels that gather and sum rows by token, handle pairs of atoms in windows, and
 * modulate by a conditioning signal. One thread computes one element, so every sum has a fixed
 * order. */
#include "trainer/backend/cuda/core/families.cuh"

namespace fm_cuda {

template <typename T> void modulate(fm_stream *stream, const fm_modulate *args) {
    fm_modulate a = *args;
    int64_t shared = a.g_rows * a.c;
    each(stream, a.rows * a.c, [=] __device__(int64_t i) {
        float y = sigmoid(get(((const T *)a.g)[i % shared])) * get(((const T *)a.x)[i]);
        if (a.shift) y += get(((const T *)a.shift)[i % shared]);
        if (a.residual) y += get(((const T *)a.residual)[i]);
        ((T *)a.y)[i] = to<T>(y);
    });
}

template <typename T>
void modulate_grad(fm_stream *stream, const fm_modulate *args, const fm_modulate_grad *grad) {
    fm_modulate a = *args;
    fm_modulate_grad out = *grad;
    int64_t shared = a.g_rows * a.c, groups = a.rows / a.g_rows;
    each(stream, shared, [=] __device__(int64_t i) {
        float s = sigmoid(get(((const T *)a.g)[i])), dg = 0, dshift = 0;
        for (int64_t b = 0; b < groups; b++) {
            int64_t at = b * shared + i;
            float dy = get(((const T *)out.dy)[at]);
            dg += dy * get(((const T *)a.x)[at]);
            dshift += dy;
            if (out.dx.data) put((T *)out.dx.data + at, out.dx.beta, s * dy);
        }
        if (out.dg.data) put((T *)out.dg.data + i, out.dg.beta, dg * s * (1 - s));
        if (out.dshift.data) put((T *)out.dshift.data + i, out.dshift.beta, dshift);
    });
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
