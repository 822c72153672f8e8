/* rigid.cuh: rotations, quaternions and frames in f32, shared by the kernels of the structure
 * module.
 *
 * A frame has seven numbers: a quaternion (w, x, y, z) and a translation. A matrix frame has
 * twelve: a rotation, row by row, and a translation. */
#ifndef FM_BACKEND_CUDA_RIGID_CUH
#define FM_BACKEND_CUDA_RIGID_CUH

#include "trainer/backend/cuda/core/common.cuh"

namespace fm_cuda {

enum { FRAME = FM_FRAME, MATRIX = FM_MATRIX_FRAME, GROUPS = 8, ATOMS = 14 };

/* N elements, of any alignment. */
template <int N, typename T> __device__ inline void read_row(const T *p, float *x) {
#pragma unroll
    for (int i = 0; i < N; i++)
        x[i] = get(p[i]);
}
template <int N, typename T> __device__ inline void put_row(T *p, fm_beta beta, const float *x) {
#pragma unroll
    for (int i = 0; i < N; i++)
        put(p + i, beta, x[i]);
}

/* The rotation of a quaternion of length 1. For other lengths it is the same quadratic form, so
 * that the gradient below holds for every length. */
__device__ inline void matrix_of_quaternion(const float *quaternion, float *r) {
    float w = quaternion[0], x = quaternion[1], y = quaternion[2], z = quaternion[3];
    r[0] = w * w + x * x - y * y - z * z;
    r[1] = 2 * (x * y - w * z);
    r[2] = 2 * (x * z + w * y);
    r[3] = 2 * (x * y + w * z);
    r[4] = w * w - x * x + y * y - z * z;
    r[5] = 2 * (y * z - w * x);
    r[6] = 2 * (x * z - w * y);
    r[7] = 2 * (y * z + w * x);
    r[8] = w * w - x * x - y * y + z * z;
}

/* dquaternion = the gradient through the function above. */
__device__ inline void quaternion_grad(const float *quaternion, const float *d,
                                       float *dquaternion) {
    float w = quaternion[0], x = quaternion[1], y = quaternion[2], z = quaternion[3];
    float x_axis = d[7] - d[5], y_axis = d[2] - d[6], z_axis = d[3] - d[1];
    float xy = d[1] + d[3], xz = d[2] + d[6], yz = d[5] + d[7];
    dquaternion[0] = 2 * (w * (d[0] + d[4] + d[8]) + x * x_axis + y * y_axis + z * z_axis);
    dquaternion[1] = 2 * (x * (d[0] - d[4] - d[8]) + w * x_axis + y * xy + z * xz);
    dquaternion[2] = 2 * (y * (d[4] - d[0] - d[8]) + w * y_axis + x * xy + z * yz);
    dquaternion[3] = 2 * (z * (d[8] - d[0] - d[4]) + w * z_axis + x * xz + y * yz);
}

/* y = R x. */
__device__ inline void rotate(const float *r, const float *x, float *y) {
#pragma unroll
    for (int a = 0; a < 3; a++)
        y[a] = r[3 * a] * x[0] + r[3 * a + 1] * x[1] + r[3 * a + 2] * x[2];
}

/* y = R^T x. */
__device__ inline void rotate_back(const float *r, const float *x, float *y) {
#pragma unroll
    for (int a = 0; a < 3; a++)
        y[a] = r[a] * x[0] + r[3 + a] * x[1] + r[6 + a] * x[2];
}

/* d[a, b] += left[a] right[b]. */
__device__ inline void add_outer(float *d, const float *left, const float *right) {
#pragma unroll
    for (int a = 0; a < 3; a++)
#pragma unroll
        for (int b = 0; b < 3; b++)
            d[3 * a + b] += left[a] * right[b];
}

/* y += x, vectors. */
__device__ inline void add3(float *y, const float *x) {
#pragma unroll
    for (int a = 0; a < 3; a++)
        y[a] += x[a];
}

/* N sums over a warp; every lane gets all of them. */
template <int N> __device__ inline void warp_sums(float *x) {
#pragma unroll
    for (int i = 0; i < N; i++)
        x[i] = warp_sum(x[i]);
}

/* The sum of a mask [n] over a block, in every thread; `space` is shared memory of 33 values. */
__device__ inline double mask_sum(const float *mask, int64_t n, double *space) {
    double total = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
        total += (double)mask[i];
    total = block_sum(total, space);
    if (threadIdx.x == 0) space[32] = total;
    __syncthreads();
    total = space[32];
    __syncthreads();
    return total;
}

} // namespace fm_cuda

#endif
