/* outer.cuh: the declarations that the files of the outer product mean share: the paths, and the
 * functions that outer_wgmma.cu provides to outer.cu. */
#ifndef FM_BACKEND_CUDA_OUTER_CUH
#define FM_BACKEND_CUDA_OUTER_CUH

#include "trainer/backend/cuda/core/families.cuh"

namespace fm_cuda {

/* Which kernels run a call. outer_path_of in outer.cu chooses, with a table of shapes. */
enum outer_path {
    OUTER_PIECES, /* outer.cu: any shape, a piece of P at a time, by plain matrix products */
    OUTER_PANELS, /* P, or its gradient, in memory, made and read by tensor-core kernels */
    OUTER_CHAIN   /* outer_wgmma.cu: two products in a chain, P is never stored */
};

enum {
    OUTER_C = 32, /* the widths that warp-group products take */
    OUTER_Z = 128,
    OUTER_MAX_SEQ = 512,        /* P from panels: what shared memory holds */
    OUTER_MAX_CHAIN_SEQ = 3072, /* CHAIN forward; PANELS takes less time with more */
    OUTER_MAX_GRAD_SEQ = 128    /* CHAIN backward */
};

/* Operands of dW in the kernels of hopper/. */
struct outer_packed {
    const bf16 *a, *b; /* in PANELS order (outer_pack.cuh) */
    const bf16 *dz;    /* dz / norm: as it is for outer_weight, by_i for outer_weight_long */
    float *sums;       /* workspace of outer_weight_bytes, or of outer_weight_long_bytes */
};

/* outer.cu: bf16's outer_grad with P for dW in memory at every shape (the comparison in kbench). */
size_t outer_grad_storing_workspace(const fm_outer *);
void outer_grad_storing(fm_stream *, const fm_outer *, const fm_outer_grad *, void *workspace);

/* Operands of the path PANELS, packed into panels and tiles (hopper/pair/outer_pack.cuh); a and b
 * are NULL with more than OUTER_MAX_SEQ sequences. */
struct outer_panels {
    bf16 *a, *b, *w, *dz; /* dz: by_i */
    float *norm, *sums;
};

} // namespace fm_cuda

#endif
