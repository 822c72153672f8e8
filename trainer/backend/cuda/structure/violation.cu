/* violation.cu: structural violations (supplement 1.9.11): bonds and angles between residues,
 * clashes between and within them. One block per residue, one warp per atom. Forward, a pair of
 * atoms counts for its first atom; backward, for each of its two atoms. Distances are screened in
 * f32, and those near a bound are computed again in f64. */
#include "trainer/backend/cuda/core/families.cuh"
#include "trainer/backend/cuda/structure/rigid.cuh"

#include <math.h>

namespace fm_cuda {

constexpr double BOND_EPS = 1e-6, CLASH_EPS = 1e-10;
/* Distances up to this many Å above the bound are computed in f64. */
constexpr float SCREEN_MARGIN = 0.01f;

enum { ATOM_N = 0, ATOM_CA = 1, ATOM_C = 2, ATOM_SG = 5, PROLINE = 14 };
enum { KINDS = 3, SIDES = 2, BACKBONE_ATOMS = 3, TERMS = 4 };
constexpr int VIOLATION_THREADS = 32 * ATOMS;

/* -- bonds and their angles */

/* Mean and standard deviation of the peptide bond (Å; the second pair is for proline) and of the
 * cosines of its angles. The angle at C uses the deviation of the bond, as the training of the
 * published weights did. */
__device__ inline double ideal_of(int kind, bool is_proline, double *ret_deviation) {
    if (kind == 0) *ret_deviation = is_proline ? 0.016 : 0.014;
    if (kind == 1) *ret_deviation = 0.014;
    if (kind == 2) *ret_deviation = 0.0353;
    if (kind == 0) return is_proline ? 1.341 : 1.329;
    return kind == 1 ? -0.4473 : -0.5203;
}

__device__ inline bool has_atom(const fm_violation &a, int64_t i, int atom) {
    return a.exists[i * ATOMS + atom] != 0;
}

/* Whether the atoms of term `kind` (0 the bond, 1 the angle at C, 2 the angle at N) of the bond
 * after residue i exist. */
__device__ inline bool has_connection(const fm_violation &a, int kind, int64_t i) {
    if (i < 0 || i + 1 >= a.n || a.residue_index[i + 1] - a.residue_index[i] != 1) return false;
    if (!has_atom(a, i, ATOM_C) || !has_atom(a, i + 1, ATOM_N)) return false;
    if (kind == 1) return has_atom(a, i, ATOM_CA);
    return kind != 2 || has_atom(a, i + 1, ATOM_CA);
}

template <typename T>
__device__ inline double vector_between(const T *from, const T *to, double eps, double *v) {
    double square = eps;
#pragma unroll
    for (int axis = 0; axis < 3; axis++) {
        v[axis] = (double)(get(to[axis]) - get(from[axis]));
        square += v[axis] * v[axis];
    }
    return sqrt(square);
}

/* By how much |value - mean|, smoothed at 0, exceeds the tolerance; and its slope by value. */
__device__ inline double excess(const fm_violation &a, int kind, bool is_proline, double value,
                                double *ret_slope) {
    double deviation = 0, mean = ideal_of(kind, is_proline, &deviation);
    double error = sqrt(BOND_EPS + (value - mean) * (value - mean));
    double above = error - a.tolerance_factor * deviation;
    *ret_slope = above > 0 ? (value - mean) / error : 0;
    return above > 0 || above != above ? above : 0;
}

/* The value of the term. d [4, 3] = its gradients by CA and C of residue i, N and CA of i + 1. */
template <typename T>
__device__ inline double connection_term(const fm_violation &a, int kind, int64_t i,
                                         double (*d)[3]) {
    const T *first = (const T *)a.atoms + i * ATOMS * 3, *next = first + ATOMS * 3;
    const T *at[4] = {first + ATOM_CA * 3, first + ATOM_C * 3, next + ATOM_N * 3,
                      next + ATOM_CA * 3};
    bool is_proline = a.aatype[i + 1] == PROLINE;
    double u[3], v[3], by;
    int vertex = kind == 2 ? 2 : 1;
    double lv = vector_between(at[vertex], at[vertex + 1], BOND_EPS, v);
    if (kind == 0) {
        double value = excess(a, kind, is_proline, lv, &by);
#pragma unroll
        for (int axis = 0; axis < 3; axis++) {
            d[2][axis] = by * v[axis] / lv;
            d[1][axis] = -d[2][axis];
        }
        return value;
    }
    double lu = vector_between(at[vertex], at[vertex - 1], BOND_EPS, u), cosine = 0;
#pragma unroll
    for (int axis = 0; axis < 3; axis++)
        cosine += u[axis] * v[axis] / (lu * lv);
    double value = excess(a, kind, is_proline, cosine, &by);
#pragma unroll
    for (int axis = 0; axis < 3; axis++) {
        double du = by * (v[axis] / (lu * lv) - cosine * u[axis] / (lu * lu));
        double dv = by * (u[axis] / (lu * lv) - cosine * v[axis] / (lv * lv));
        d[vertex - 1][axis] = du, d[vertex + 1][axis] = dv;
        d[vertex][axis] = -du - dv;
    }
    return value;
}

/* -- clashes */

/* An atom in a warp's registers. */
struct clashing_atom {
    int64_t i;
    int k;
    int32_t index; /* of its residue */
    float radius, x[3];
};

/* For a distance outside [low, high]: returns its excess times `times`, and adds the gradient of
 * the atom at `x` to d. */
template <typename T>
__device__ inline double distance_term(const T *x, const T *other, double low, double high,
                                       double times, double *d) {
    double v[3], distance = vector_between(other, x, CLASH_EPS, v);
    if (distance >= low && distance <= high) return 0;
    bool below = distance < low;
    double factor = times * (below ? -1 : 1) / distance;
#pragma unroll
    for (int axis = 0; axis < 3; axis++)
        d[axis] += factor * v[axis];
    return times * (below ? low - distance : distance - high);
}

/* Clashes with atoms of all later residues (with `both`, of earlier ones too). A lane's share. */
template <typename T>
__device__ inline double clashes_between(const fm_violation &a, const clashing_atom &mine,
                                         bool both, double *d) {
    const T *atoms = (const T *)a.atoms;
    const T *x = atoms + (mine.i * ATOMS + mine.k) * 3;
    double sum = 0;
    for (int64_t at = threadIdx.x % 32; at < a.n * ATOMS; at += 32) {
        int64_t j = at / ATOMS;
        int l = (int)(at % ATOMS), steps = a.residue_index[j] - mine.index;
        if (steps == 0 || (steps < 0 && !both) || a.exists[at] == 0) continue;
        bool peptide = (steps == 1 && mine.k == ATOM_C && l == ATOM_N) ||
                       (steps == -1 && mine.k == ATOM_N && l == ATOM_C);
        bool bridge =
            mine.k == ATOM_SG && l == ATOM_SG; /* of residues of any type, as in the reference */
        if (peptide || bridge) continue;
        float square = 0, reach = mine.radius + a.radii[a.aatype[j] * ATOMS + l];
        double low = (double)reach - a.overlap_tolerance;
        float bound = (float)low + SCREEN_MARGIN;
#pragma unroll
        for (int axis = 0; axis < 3; axis++) {
            float step = mine.x[axis] - get(atoms[3 * at + axis]);
            square += step * step;
        }
        if (bound < 0 || square > bound * bound) continue; /* NaN is not skipped */
        sum += distance_term(x, atoms + 3 * at, low, INFINITY, 2, d);
    }
    return sum;
}

/* Clashes with the atoms before it in its residue (with `both`, all others). A lane's share. */
template <typename T>
__device__ inline double clashes_within(const fm_violation &a, const clashing_atom &mine, bool both,
                                        double *d) {
    int l = threadIdx.x % 32, k = mine.k;
    if (l >= ATOMS || l == k || (l > k && !both) || !has_atom(a, mine.i, l)) return 0;
    const T *atoms = (const T *)a.atoms + mine.i * ATOMS * 3;
    const float *bound =
        a.bounds + ((a.aatype[mine.i] * ATOMS + max(k, l)) * ATOMS + min(k, l)) * 2;
    return distance_term(atoms + 3 * k, atoms + 3 * l, (double)bound[0], (double)bound[1], 4, d);
}

template <typename T>
__device__ inline double clashes(const fm_violation &a, int64_t i, int k, bool both, double *d) {
    if (!has_atom(a, i, k)) return 0;
    clashing_atom mine = {i, k, a.residue_index[i], a.radii[a.aatype[i] * ATOMS + k], {0}};
    read_row<3>((const T *)a.atoms + (i * ATOMS + k) * 3, mine.x);
    return clashes_within<T>(a, mine, both, d) + clashes_between<T>(a, mine, both, d);
}

/* -- the loss */

/* 1 / the divisor of each term's sum, in every thread. */
__device__ inline void violation_scales(const fm_violation &a, double *space, double *scale) {
    int count[KINDS] = {0};
    for (int64_t first = 0; first < a.n; first += blockDim.x)
#pragma unroll
        for (int kind = 0; kind < KINDS; kind++)
            count[kind] += __syncthreads_count(has_connection(a, kind, first + threadIdx.x));
#pragma unroll
    for (int kind = 0; kind < KINDS; kind++)
        scale[kind] = 1 / (BOND_EPS + (double)count[kind]);
    scale[KINDS] = 1 / (a.eps + mask_sum(a.exists, a.n * ATOMS, space));
}

/* The four terms of every residue. */
size_t violation_workspace(const fm_violation *a) {
    return (size_t)a->n * TERMS * sizeof(double);
}

template <typename T>
__global__ void __launch_bounds__(VIOLATION_THREADS)
    violation_kernel(fm_violation a, double *partial) {
    __shared__ double space[32];
    int64_t i = blockIdx.x;
    double d[4][3] = {{0}};
    double sum = clashes<T>(a, i, threadIdx.x / 32, false, d[0]);
    sum = block_sum(sum, space);
    int kind = threadIdx.x;
    if (kind < KINDS) {
        partial[i * TERMS + kind] =
            has_connection(a, kind, i) ? connection_term<T>(a, kind, i, d) : 0;
    }
    if (threadIdx.x == 0) partial[i * TERMS + KINDS] = sum;
}

__global__ void __launch_bounds__(512) violation_sum_kernel(fm_violation a, const double *partial) {
    __shared__ double space[33];
    double scale[TERMS], loss = 0;
    violation_scales(a, space, scale);
    for (int term = 0; term < TERMS; term++) {
        double sum = 0;
        for (int64_t i = threadIdx.x; i < a.n; i += blockDim.x)
            sum += partial[i * TERMS + term];
        sum = block_sum(sum, space) * scale[term];
        loss += sum;
        if (threadIdx.x == 0) ((float *)a.terms)[term] = (float)sum;
    }
    if (threadIdx.x == 0) *(float *)a.loss = (float)loss;
}

template <typename T> void violation(fm_stream *stream, const fm_violation *a, void *workspace) {
    double *partial = (double *)workspace;
    violation_kernel<T><<<(unsigned)a->n, VIOLATION_THREADS, 0, queue(stream)>>>(*a, partial);
    FM_LAUNCHED();
    violation_sum_kernel<<<1, 512, 0, queue(stream)>>>(*a, partial);
    FM_LAUNCHED();
}

/* -- backward */

/* The gradients of N, CA and C of residue i from the bonds after and before it. Six threads, one
 * per term, write to share [2, 3, 3 atoms, 3]. */
template <typename T>
__device__ inline void connection_grads(const fm_violation &a, int64_t i, const double *scale,
                                        double (*share)[BACKBONE_ATOMS][3]) {
    int side = threadIdx.x / KINDS, kind = threadIdx.x % KINDS;
    double d[4][3] = {{0}}, by = scale[kind];
    if (has_connection(a, kind, i - side)) connection_term<T>(a, kind, i - side, d);
#pragma unroll
    for (int axis = 0; axis < 3; axis++) {
        share[threadIdx.x][ATOM_N][axis] = side ? by * d[2][axis] : 0;
        share[threadIdx.x][ATOM_CA][axis] = by * d[side ? 3 : 0][axis];
        share[threadIdx.x][ATOM_C][axis] = side ? 0 : by * d[1][axis];
    }
}

template <typename T>
__global__ void __launch_bounds__(VIOLATION_THREADS)
    violation_grad_kernel(fm_violation a, const float *dloss, fm_out datoms) {
    __shared__ double space[33], share[KINDS * SIDES][BACKBONE_ATOMS][3];
    int64_t i = blockIdx.x;
    int k = threadIdx.x / 32;
    double scale[TERMS], d[3] = {0};
    violation_scales(a, space, scale);
    if (threadIdx.x < KINDS * SIDES) connection_grads<T>(a, i, scale, share);
    __syncthreads();
    clashes<T>(a, i, k, true, d);
#pragma unroll
    for (int axis = 0; axis < 3; axis++)
        d[axis] = warp_sum(d[axis]) * scale[KINDS];
    if (threadIdx.x % 32 > 0) return;
#pragma unroll
    for (int axis = 0; axis < 3; axis++) {
        for (int term = 0; term < KINDS * SIDES && k < BACKBONE_ATOMS; term++)
            d[axis] += share[term][k][axis];
        put((T *)datoms.data + (i * ATOMS + k) * 3 + axis, datoms.beta,
            (float)((double)*dloss * d[axis]));
    }
}

template <typename T>
void violation_grad(fm_stream *stream, const fm_violation *a, const void *dloss, fm_out datoms) {
    violation_grad_kernel<T>
        <<<(unsigned)a->n, VIOLATION_THREADS, 0, queue(stream)>>>(*a, (const float *)dloss, datoms);
    FM_LAUNCHED();
}

#define INSTANTIATE(T)                                                                             \
    template void violation<T>(fm_stream *, const fm_violation *, void *);                         \
    template void violation_grad<T>(fm_stream *, const fm_violation *, const void *, fm_out);
INSTANTIATE(float)
INSTANTIATE(bf16)

} // namespace fm_cuda
