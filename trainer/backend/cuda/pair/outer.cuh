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

/* outer_wgmma.cu, bf16, c = OUTER_C, c_z = OUTER_Z: the path CHAIN. With `stores_p`, P for dW is
 * written for every shape; otherwise only where outer_weight does not take the shape. */
size_t outer_chain_workspace(const fm_outer *, bool backward, bool stores_p);
void outer_chain(fm_stream *, const fm_outer *, void *workspace);
void outer_chain_grad(fm_stream *, const fm_outer *, const fm_outer_grad *, void *workspace,
                      bool stores_p);

/* dW without P in memory: outer_weight.cu up to 128 sequences, outer_weight_long.cu up to 512. */
struct outer_packed {
    const bf16 *a, *b; /* in PANELS order (outer_pack.cuh) */
    const bf16 *dz;    /* dz / norm: as it is for outer_weight, by_i for outer_weight_long */
    float *sums;       /* workspace of outer_weight_bytes, or of outer_weight_long_bytes */
};
bool outer_weight_takes(const fm_outer *);
size_t outer_weight_bytes(const fm_outer *);
void outer_weight(fm_stream *, const fm_outer *, const fm_outer_grad *, const outer_packed &);
bool outer_weight_long_takes(const fm_outer *);
size_t outer_weight_long_bytes(const fm_outer *);
void outer_weight_long(fm_stream *, const fm_outer *, const fm_outer_grad *, const outer_packed &);

/* outer_weight_read.cu, more than 512 sequences: dW of `rows` residues from their P and dz / norm,
 * [(i, a), (j, b)] and [i, j, z]. `space`: outer_weight_read_bytes. */
size_t outer_weight_read_bytes(const fm_outer *, int64_t rows);
void outer_weight_read(fm_stream *, const fm_outer *, const fm_outer_grad *, int64_t rows,
                       const bf16 *p, const bf16 *dz, float *space);

/* outer_end.cu, forward: z of residues [first, first + rows) from their P, [(i, a), (j, b)]. */
void outer_end(fm_stream *, const fm_outer *, const bf16 *w, const float *norm, int64_t first,
               int64_t rows, const bf16 *p);

/* outer.cu: bf16's outer_grad with P for dW in memory at every shape (the comparison in kbench). */
size_t outer_grad_storing_workspace(const fm_outer *);
void outer_grad_storing(fm_stream *, const fm_outer *, const fm_outer_grad *, void *workspace);

/* outer_wgmma.cu: the steps of the path PANELS. Operands are packed into panels and tiles
 * (outer_pack.cuh); a and b are NULL with more than OUTER_MAX_SEQ sequences. */
struct outer_panels {
    bf16 *a, *b, *w, *dz; /* dz: by_i */
    float *norm, *sums;
};
/* Fills *ret and returns the bytes; base NULL only counts. */
size_t outer_panels_layout(const fm_outer *, void *base, outer_panels *ret);
/* Packs the operands, finds the norm and adds to dbias. a and b [n_seq, n, c], times their masks,
 * are made of the same reads; if panels->a is NULL they are not, and `dz` [n_i, n_j, c_z] becomes
 * dz / norm. */
void outer_panels_make(fm_stream *, const fm_outer *, const fm_outer_grad *, const outer_panels *,
                       bf16 *a, bf16 *b, bf16 *dz);
/* Packs W into panels of (a, b), of outer_w_bytes. */
size_t outer_w_bytes(void);
void outer_pack_w(fm_stream *, const fm_outer *, bf16 *w);
/* For residues [first, first + rows), `first` even: piece = P / norm, [(i, j), (a, b)]; needs
 * panels->a. */
void outer_panels_product(fm_stream *, const fm_outer *, const outer_panels *, int64_t first,
                          int64_t rows, bf16 *piece);
/* For the same residues: piece = the gradient of P, [(i, a), (j, b)]. */
void outer_panels_gradient(fm_stream *, const fm_outer *, const outer_panels *, int64_t first,
                           int64_t rows, bf16 *piece);

} // namespace fm_cuda

#endif
