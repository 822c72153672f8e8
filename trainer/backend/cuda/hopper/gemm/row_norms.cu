/* row_norms.cu: the LayerNorms at the end of a sublayer, where the rows y are an input. Backward
 * runs this kernel before it computes a block again, because a block begins with rows that the
 * block before it has normalised. The results have the bits of the kernel that made y: a row is in
 * the same lanes, and the code that sums and normalises is the same (row_end.cuh). */
#include "trainer/backend/cuda/hopper/gemm/row_end.cuh"
#include "trainer/backend/cuda/hopper/hopper.cuh"

namespace fm_cuda {

enum { NORMS_WARPS = 8, NORMS_ROWS = NORMS_WARPS * 16 };

/* A warp has 16 rows. */
template <int C> __global__ void __launch_bounds__(NORMS_WARPS * 32) norms_kernel(row_end e) {
    wait_for_previous();
    uint32_t warp = blockIdx.x * NORMS_WARPS + threadIdx.x / 32;
    normalise_rows<C>(e, near_rows{(int)(warp * 16 + threadIdx.x % 32 / 4), e.rows});
}

template <int C> static void norms_of(fm_stream *stream, const row_end &e) {
    launch_after(stream, norms_kernel<C>, (unsigned)divide_up(e.rows, NORMS_ROWS), NORMS_WARPS * 32,
                 0, true, e);
    FM_LAUNCHED();
}

void row_norms(fm_stream *stream, const fm_update_norm *a, void *y, void *n,
               const fm_later_norm &later) {
    row_end end = row_end_of(a, NULL, y, y, n);
    assert(is_aligned(later.gamma) && is_aligned(later.beta) && is_aligned(later.n));
    end.norms = n ? 1 : 0;
    if (later.n) {
        end.norm[end.norms++] = {(const bf16 *)later.gamma, (const bf16 *)later.beta,
                                 (bf16 *)later.n};
    }
    int64_t c = a->dropout.c;
    if (end.norms == 0) return;
    if (c == 64) {
        norms_of<64>(stream, end);
    } else if (c == 128) {
        norms_of<128>(stream, end);
    } else {
        assert(c == 256);
        norms_of<256>(stream, end);
    }
}

} // namespace fm_cuda
