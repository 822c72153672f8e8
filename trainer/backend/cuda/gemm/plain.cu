/* plain.cu: any matrix product, for the shapes for which cuBLASLt has no algorithm.
 *
 * A block of 256 threads makes a tile of 32 x 32 of C. It walks over k in steps of 32. In each it
 * stores a tile of A and one of B in shared memory as f32, with one column of padding against bank
 * conflicts. Each thread then adds 32 products to each of its four elements. The matrix of a batch
 * is blockIdx.z; batches beyond the largest grid take several launches. */
#include "trainer/backend/cuda/gemm/gemm.cuh"

namespace fm_cuda {

template <typename T, typename C> __global__ void __launch_bounds__(256) plain_kernel(fm_gemm g) {
    __shared__ float as[32][33], bs[32][33];
    const T *a = (const T *)g.a + blockIdx.z * g.stride_a;
    const T *b = (const T *)g.b + blockIdx.z * g.stride_b;
    C *c = (C *)g.c + blockIdx.z * g.stride_c;
    const C *addend = (const C *)(g.addend ? g.addend : g.c) + blockIdx.z * g.stride_c;
    int64_t row0 = blockIdx.x * (int64_t)32, col0 = blockIdx.y * (int64_t)32;
    int tx = threadIdx.x % 32, ty = threadIdx.x / 32;
    float total[4] = {0, 0, 0, 0};
    for (int64_t k0 = 0; k0 < g.k; k0 += 32) {
        for (int r = ty; r < 32; r += 8) {
            int64_t row = g.trans_a ? row0 + tx : row0 + r, ka = g.trans_a ? k0 + r : k0 + tx;
            int64_t col = g.trans_b ? col0 + r : col0 + tx, kb = g.trans_b ? k0 + tx : k0 + r;
            float x =
                row < g.m && ka < g.k ? get(a[g.trans_a ? ka * g.lda + row : row * g.lda + ka]) : 0;
            float y =
                col < g.n && kb < g.k ? get(b[g.trans_b ? col * g.ldb + kb : kb * g.ldb + col]) : 0;
            as[g.trans_a ? tx : r][g.trans_a ? r : tx] = x;
            bs[g.trans_b ? tx : r][g.trans_b ? r : tx] = y;
        }
        __syncthreads();
        for (int k = 0; k < 32; k++)
            for (int i = 0; i < 4; i++)
                total[i] += as[ty + 8 * i][k] * bs[k][tx];
        __syncthreads();
    }
    int64_t col = col0 + tx;
    for (int i = 0; i < 4; i++) {
        int64_t row = row0 + ty + 8 * i;
        if (row >= g.m || col >= g.n) continue;
        C *to_c = c + row * g.ldc + col;
        float value = (float)g.alpha * total[i];
        if (g.beta != 0) value += (float)g.beta * get(addend[row * g.ldc + col]);
        if (g.epilogue != FM_EPILOGUE_NONE) value += get(((const T *)g.bias)[col]);
        if (g.epilogue == FM_EPILOGUE_BIAS_RELU) value = value < 0 ? 0 : value;
        *to_c = to<C>(value);
    }
}

template <typename T> void plain_gemm(fm_stream *stream, const fm_gemm *g) {
    dim3 grid((unsigned)divide_up(g->m, 32), (unsigned)divide_up(g->n, 32), 1);
    for (int64_t first = 0; first < g->batch; first += 65535) {
        fm_gemm part = *g;
        size_t c_bytes = g->c_is_acc ? sizeof(float) : sizeof(T);
        part.a = (const T *)g->a + first * g->stride_a;
        part.b = (const T *)g->b + first * g->stride_b;
        part.c = (char *)g->c + (size_t)(first * g->stride_c) * c_bytes;
        if (g->addend) {
            part.addend = (const char *)g->addend + (size_t)(first * g->stride_c) * c_bytes;
        }
        grid.z = (unsigned)min_size(65535, g->batch - first);
        if (g->c_is_acc) {
            plain_kernel<T, float><<<grid, 256, 0, queue(stream)>>>(part);
        } else {
            plain_kernel<T, T><<<grid, 256, 0, queue(stream)>>>(part);
        }
        FM_LAUNCHED();
    }
}

template void plain_gemm<float>(fm_stream *, const fm_gemm *);
template void plain_gemm<bf16>(fm_stream *, const fm_gemm *);

} // namespace fm_cuda
