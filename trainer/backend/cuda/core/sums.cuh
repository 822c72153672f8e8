/* sums.cuh: sums over rows that memory.cu makes for other families, and the last step of sums whose
 * parts many blocks have made (sums.cu). */
#ifndef FM_BACKEND_CUDA_SUMS_CUH
#define FM_BACKEND_CUDA_SUMS_CUH

#include "trainer/backend/cuda/core/common.cuh"

namespace fm_cuda {

/* Sets x [n_r, n_c], rows ld apart, to 0 where relu, of the same shape, is not above 0. y [n_c]
 * (f32, or NULL when no sums are needed) becomes the sums of the columns of that result. The
 * workspace has sum_workspace(1, n_r, n_c) bytes. */
template <typename T>
void sum_after_relu(fm_stream *stream, int64_t n_r, int64_t n_c, int64_t ld, const void *relu,
                    void *x, fm_out y, void *workspace);

/* Values of f32 that partial sums become, or of bf16 where is_half. */
struct sum_target {
    void *data;      /* NULL: the values are dropped */
    int64_t n, skip; /* values of a vector, of which the first `skip` are dropped */
    fm_beta beta;
    bool is_half;
};

/* The order of the values of a matrix in its partial sums: tiles of rows by columns, tiles of one
 * column of tiles first. A tile is stored as the accumulators of its warps, of 16 rows each; every
 * 8 columns of a warp take 4 values of each lane.
 *
 * Vectors after the first `count` have only the values of target[1] and of those tiles of the first
 * column whose rows target[1] keeps. */
struct sum_tiles {
    int row_tiles, rows, columns; /* rows 0: the values are in order */
    int more;                     /* vectors after the first `count` */
    int64_t ld;                   /* of the matrix */
    bool is_exchanged;            /* tiles of the matrix with its rows and columns exchanged */
};

/* `count` partial vectors, `stride` values apart. A vector has the values of target[0], then those
 * of target[1]. They are added in `slices` slices: slice s takes the vectors s, s + slices, ... in
 * order, and the slices are then added in order. Values in order are added in double. Values of
 * tiles, and what follows them, are added in f32. */
struct partial_sums {
    const float *partial;
    int64_t stride;
    int count, slices;
    sum_target target[2];
    sum_tiles tiles; /* of target[0] */
};

/* Where a call leaves its partial sums, `bytes` of them: in its workspace, or in the memory that
 * put_off_sums has given, if all targets may be ended later. Earlier sums of the same targets are
 * ended first. A call asks for its next place only when end_sums has taken the last sums, because a
 * request may end all earlier sums and give their memory again. */
float *sums_place(fm_stream *stream, const partial_sums &s, size_t bytes, void *workspace);

/* Ends the sums, or puts that off. It is put off if sums_place has found them a place that outlives
 * the call, and the table of sums that wait has an entry left. */
void end_sums(fm_stream *stream, const partial_sums &s);

/* Ends sums that were put off if one of them has its target in the `bytes` at data. Kernels that
 * write gradients of parameters without end_sums call this first. */
void end_sums_of(fm_stream *stream, const void *data, size_t bytes);

/* dst[i] (+)= the sum over `count` partial vectors of n values, `stride` elements apart. */
template <typename T>
partial_sums sums_of(const float *partial, int64_t count, int64_t stride, int64_t n, T *dst,
                     fm_beta beta);

} // namespace fm_cuda

#endif
