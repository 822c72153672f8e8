/* outer_wgmma.cu: outer product mean by warp-group products: bf16, c = 32, c_z = 128.
 *
 * Nothing of size [n_i, n_j, c, c] is stored forward, nor for the gradients of a and b. All three
 * are one chain of two products, where the first's result stays in registers as the left operand of
 * the second. For 64 rows r and four values of m per block,
 *
 *     O_m[r, :] = sum over l of (X_l[r, :] Y_m^T) V_l    X_l [64, k], Y_m [32, k], V_l [32, 128]
 *
 *     forward   r = i   m = j   l = channel of a   X = a_l[i, s]    Y = b_j[channel, s]   V = W_l
 *     da        r = i   m = a   l = j              X = dz_j[i, z]   Y = W_a[b, z]         V = b_j
 *     db        r = j   m = b   l = i              X = dz_i[j, z]   Y = W_b[a, z]         V = a_i
 *
 * The first product sums over k (s or z), the second over the other channel. With more columns of Y
 * than shared memory holds, all of this is done for one run of columns after the other, and each
 * adds to the same O. dz is divided by the norm before. Y and V are the same tiles, read along
 * their rows or along their columns. Each of two warp groups has two values of m; the producer
 * keeps a ring of X and V full (outer_ring.cuh). The price of storing nothing is that the gradient
 * of P is computed twice, for da and for db.
 *
 * Forward, the last round of blocks may leave most multiprocessors idle. Then each of its places
 * goes to several blocks, which share l, and chain_end adds up their parts.
 *
 * dW = sum over pairs of dz^T P / norm needs P itself. outer_weight.cu makes it in shared memory.
 * For numbers of residues that it does not take, the kernel mma_panels (outer_panels.cuh) writes a
 * piece of it, ordered [(i, j), (a, b)] and divided by the norm. The piece stays in the L2 cache
 * for one plain product with dz.
 *
 * With more sequences than fit, backward works in pieces (outer.cu), and this file only provides P
 * and its gradient from packed panels. */
#include "trainer/backend/cuda/core/sums.cuh"
#include "trainer/backend/cuda/hopper/pair/outer_chain.cuh"
#include "trainer/backend/cuda/hopper/pair/outer_panels.cuh"

#include <limits.h>

namespace fm_cuda {

/* The most of P that is written at once for dW. */
enum { PIECE_ELEMENTS = 1 << 26 };

/* -- launches of the chain */

static int blocks_of(int64_t rows) {
    return (int)divide_up(rows, PANEL);
}

static int chain_blocks(const chain_problem *p) {
    int all = p->row_tiles * p->m_groups * p->v_parts * p->splits;
    return all <= p->whole ? all : p->whole + (all - p->whole) * p->parts;
}

/* Into how many parts each place of the last round of blocks goes, when most of the
 * multiprocessors would have none. Ending the parts takes about as long as PART_COST columns. */
enum { MOST_PARTS = 4, PART_COST = 100 };
static int chain_parts(int places, int64_t columns) {
    int left = places % n_multiprocessor(), best = 1;
    int64_t best_cost = columns + OUTER_Z;
    for (int parts = 2; left > 0 && places > left && parts <= MOST_PARTS; parts++) {
        int64_t rounds = divide_up(left * parts, n_multiprocessor());
        int64_t cost = rounds * (columns + OUTER_Z) / parts + PART_COST;
        if (cost < best_cost) best = parts, best_cost = cost;
    }
    return best;
}

/* Forward: sets how the last places are shared, and returns the number of all. */
static int chain_share(const fm_outer *o, chain_problem *p) {
    int places = blocks_of(o->n_i) * (int)divide_up(o->n_j, 4);
    p->parts = chain_parts(places, o->n_seq);
    p->whole = p->parts > 1 ? places / n_multiprocessor() * n_multiprocessor() : places;
    return places;
}

template <bool FORWARD> static void chain_launch(fm_stream *stream, const chain_args *args) {
    int size = SLOTS * SLOT + 2 * args->run_steps * SLOT_X;
    if (args->keeps_z) size += (int)PANEL * Z_ROW;
    size_t bytes = (size_t)size * sizeof(bf16);
    int blocks = args->blocks;
    if (args->keeps_z) blocks = (int)min_size(blocks, n_multiprocessor());
    FM_CUDA(cudaFuncSetAttribute(mma_chain<FORWARD>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 (int)bytes));
    launch_after(stream, mma_chain<FORWARD>, (unsigned)blocks, CHAIN_THREADS, bytes, true, *args);
    FM_LAUNCHED();
}

/* -- workspaces */

struct chain_space {
    bf16 *a, *b;            /* forward: a by channels, b in panels; backward: both in panels */
    bf16 *w, *w_transposed; /* panels [(a, b), z] and [(b, a), z] */
    float *norm;            /* [n_i, n_j], without eps */
    float *parts;           /* forward: sums of the last places' parts */
    bf16 *dz;               /* dz / norm */
    float *da, *db, *sums;  /* partial sums */
    float *shares;          /* outer_weight's, or NULL: the piece and its product's workspace */
    bf16 *piece;            /* [rows, n_j, c, c] */
    void *gemm;
};

static int tiles_of(int64_t columns) {
    return (int)(round_up(columns, 128) / PANEL);
}
/* Elements of a packed operand: in panels of whole groups of four residues, or in tiles by
 * channel. */
static size_t panels_size(int64_t residues, int64_t columns) {
    return (size_t)(round_up(residues, 4) / 2 * tiles_of(columns)) * PANEL_TILE;
}
static size_t channels_size(int64_t residues, int64_t columns) {
    return (size_t)(OUTER_C * blocks_of(residues) * tiles_of(columns)) * PANEL_TILE;
}

/* Into how many splits the sums over l go, so that the blocks fill nearly whole rounds. */
static int splits_of(const fm_outer *o) {
    int blocks = (blocks_of(o->n_i) + blocks_of(o->n_j)) * (OUTER_C / 4) * (tiles_of(o->n_seq) / 2);
    int best = 1, best_cost = 0;
    for (int splits = 1; splits <= 8; splits++) {
        int rounds = (int)divide_up(blocks * splits, n_multiprocessor());
        int cost = rounds * 1000 / splits + 20 * splits;
        if (splits > 1 && (cost >= best_cost || o->n_i / splits < 16 || o->n_j / splits < 16)) {
            continue;
        }
        best = splits, best_cost = cost;
    }
    return best;
}

/* Residues i of a piece of P for dW. */
static int64_t piece_rows(const fm_outer *o) {
    int64_t rows = PIECE_ELEMENTS / (o->n_j * OUTER_C * OUTER_C) / 2 * 2;
    return min_size(round_up(o->n_i, 2), max_size(2, rows));
}

static size_t chain_layout(const fm_outer *o, bool backward, bool stores_p, void *base,
                           chain_space *ret) {
    carver carve = {(char *)base, 0};
    auto act = [&](size_t elements) {
        carve.used = (carve.used + TILE_ALIGN - 1) / TILE_ALIGN * TILE_ALIGN;
        return (bf16 *)carve.take(elements * sizeof(bf16));
    };
    auto acc = [&](int64_t elements) {
        return (float *)carve.take((size_t)elements * sizeof(float));
    };
    *ret = {};
    ret->norm = acc(o->n_i * o->n_j);
    ret->w = act(panels_size(OUTER_C, OUTER_Z));
    ret->b = act(panels_size(o->n_j, o->n_seq));
    if (!backward) {
        ret->a = act(channels_size(o->n_i, o->n_seq));
        chain_problem share = {};
        int places = chain_share(o, &share);
        ret->parts = acc((int64_t)(places - share.whole) * share.parts * PART_SIZE * 4);
        return carve.used;
    }
    int64_t splits = splits_of(o), columns = (int64_t)tiles_of(o->n_seq) * PANEL;
    ret->a = act(panels_size(o->n_i, o->n_seq));
    ret->w_transposed = act(panels_size(OUTER_C, OUTER_Z));
    ret->dz = act((size_t)(o->n_i * o->n_j) * OUTER_Z);
    ret->da = acc(splits * OUTER_C * blocks_of(o->n_i) * PANEL * columns);
    ret->db = acc(splits * OUTER_C * blocks_of(o->n_j) * PANEL * columns);
    ret->sums = acc((int64_t)dz_pack_blocks(o->n_i, o->n_j) * DZ_C);
    if (!stores_p && outer_weight_takes(o)) {
        ret->shares = acc((int64_t)(outer_weight_bytes(o) / sizeof(float)));
        return carve.used;
    }
    ret->piece = act((size_t)(piece_rows(o) * o->n_j * OUTER_C * OUTER_C));
    ret->gemm = carve.take((size_t)32 << 20);
    return carve.used;
}

size_t outer_chain_workspace(const fm_outer *o, bool backward, bool stores_p) {
    chain_space space;
    return chain_layout(o, backward, stores_p, NULL, &space) + TILE_ALIGN;
}

/* Packed operands are at multiples of TILE_ALIGN. */
static void *aligned(void *workspace) {
    return (void *)(((uintptr_t)workspace + TILE_ALIGN - 1) / TILE_ALIGN * TILE_ALIGN);
}

/* -- the work */

/* Packs a or b times its mask. */
static pack_job pack_of(const fm_outer *o, bool is_a, bool by_channel, bf16 *to) {
    const int64_t *stride = is_a ? o->a_stride : o->b_stride;
    return {(const bf16 *)(is_a ? o->a : o->b),
            (const bf16 *)(is_a ? o->mask_a : o->mask_b),
            {stride[0], stride[1], 1},
            (int)(is_a ? o->n_i : o->n_j),
            (int)o->n_seq,
            tiles_of(o->n_seq),
            by_channel,
            to,
            NULL};
}

/* Packs W [z, (a, b)] into panels of (a, b), or of (b, a). */
static pack_job pack_of_w(const fm_outer *o, bool is_transposed, bf16 *to) {
    int64_t square = OUTER_C * OUTER_C, first = is_transposed ? 1 : OUTER_C,
            second = is_transposed ? OUTER_C : 1;
    return {
        (const bf16 *)o->w, NULL, {square, first, second}, OUTER_C, OUTER_Z, 2, false, to, NULL};
}

static norm_job norm_of(const fm_outer *o, float *norm) {
    return {(const bf16 *)o->mask_a,
            (const bf16 *)o->mask_b,
            (int)o->n_i,
            (int)o->n_j,
            (int)o->n_seq,
            norm};
}

void outer_chain(fm_stream *stream, const fm_outer *o, void *workspace) {
    chain_space space;
    chain_layout(o, false, false, aligned(workspace), &space);
    pack_jobs jobs = {};
    jobs.at[0] = pack_of(o, true, true, space.a);
    jobs.at[1] = pack_of(o, false, false, space.b);
    jobs.at[2] = pack_of_w(o, false, space.w);
    jobs.norm = norm_of(o, space.norm);
    outer_pack_run(stream, &jobs);
    chain_args args = {};
    args.at[0] = {space.a,
                  space.b,
                  space.w,
                  {},
                  OUTER_C,
                  blocks_of(o->n_i),
                  (int)o->n_j,
                  (int)divide_up(o->n_j, 4),
                  1,
                  1,
                  tiles_of(OUTER_Z),
                  space.parts,
                  0,
                  1};
    int places = chain_share(o, &args.at[0]);
    args.first_blocks = args.blocks = chain_blocks(&args.at[0]);
    args.steps = tiles_of(o->n_seq) / X_TILES;
    args.run_steps = (int)min_size(args.steps, CHAIN_RUN);
    args.keeps_z = args.steps <= Z_STEPS;
    args.end = z_end_of(o, space.norm);
    args.n_i = (int)o->n_i, args.n_j = (int)o->n_j;
    chain_launch<true>(stream, &args);
    int ends = (places - args.at[0].whole) * END_WARPS;
    if (ends == 0) return;
    launch_after(stream, chain_end, (unsigned)ends, 64, 0, true, args);
    FM_LAUNCHED();
}

/* Boxes of dz / norm with 64 rows i of one j, or 64 rows j of one i. */
static box_map dz_boxes(const fm_outer *o, bool rows_are_i, const bf16 *dz) {
    int64_t i = o->n_j * OUTER_Z, j = OUTER_Z, all = o->n_i * i;
    const int64_t extent[5] = {OUTER_Z, rows_are_i ? o->n_i : o->n_j, rows_are_i ? o->n_j : o->n_i,
                               1, 1};
    const int64_t stride[4] = {rows_are_i ? i : j, rows_are_i ? j : i, all, all};
    const int box[5] = {PANEL, PANEL, 1, 1, 1};
    return make_long_boxes(dz, extent, stride, box);
}

/* da and db: the chain in splits, then the splits' sums. */
static void gradients_of_operands(fm_stream *stream, const fm_outer *o, const fm_outer_grad *grad,
                                  const chain_space *space) {
    int splits = splits_of(o), tiles = tiles_of(o->n_seq), parts = tiles / X_TILES;
    chain_args args = {};
    args.at[0] = {NULL,        space->w,
                  space->b,    dz_boxes(o, true, space->dz),
                  (int)o->n_j, blocks_of(o->n_i),
                  OUTER_C,     OUTER_C / 4,
                  parts,       splits,
                  tiles,       space->da,
                  INT_MAX,     1};
    args.at[1] = {NULL,        space->w_transposed,
                  space->a,    dz_boxes(o, false, space->dz),
                  (int)o->n_i, blocks_of(o->n_j),
                  OUTER_C,     OUTER_C / 4,
                  parts,       splits,
                  tiles,       space->db,
                  INT_MAX,     1};
    args.first_blocks = chain_blocks(&args.at[0]);
    args.blocks = args.first_blocks + chain_blocks(&args.at[1]);
    args.steps = args.run_steps = OUTER_Z / 128;
    chain_launch<false>(stream, &args);
    int columns = tiles * PANEL;
    unpack_job da = {space->da,      (const bf16 *)o->mask_a,
                     splits,         blocks_of(o->n_i) * PANEL,
                     columns,        (int)o->n_i,
                     (int)o->n_seq,  o->a_stride[0],
                     o->a_stride[1], grad->da};
    unpack_job db = {space->db,      (const bf16 *)o->mask_b,
                     splits,         blocks_of(o->n_j) * PANEL,
                     columns,        (int)o->n_j,
                     (int)o->n_seq,  o->b_stride[0],
                     o->b_stride[1], grad->db};
    int across = (int)divide_up(o->n_seq, PANEL_C);
    int first = grad->da.data ? across * (int)o->n_i : 0;
    int blocks = first + (grad->db.data ? across * (int)o->n_j : 0);
    launch_after(stream, outer_unpack_all, (unsigned)blocks, PACK_THREADS, 0, true, da, db, first);
    FM_LAUNCHED();
}

/* P / norm of residues [first, first + rows), `first` even, from panels of a and b. */
static void product_piece(fm_stream *stream, const fm_outer *o, const bf16 *a, const bf16 *b,
                          const float *norm, int64_t first, int64_t rows, bf16 *piece) {
    panels_args p = {};
    p.a = a, p.b = b, p.norm = norm, p.eps = (float)o->eps;
    p.n_i = (int)o->n_i, p.n_j = (int)o->n_j, p.first_i = (int)first;
    p.first_tile = (int)(first / 2), p.tiles = (int)divide_up(rows, 2);
    p.panels = (int)divide_up(o->n_j, 2), p.steps = tiles_of(o->n_seq) / X_TILES;
    p.to = piece;
    if (p.steps <= 2) {
        panels_run<false, 8>(stream, &p);
    } else {
        panels_run<false, 4>(stream, &p);
    }
}

/* dW; with P in memory, piece by piece. */
static void gradient_of_weight(fm_stream *stream, const fm_outer *o, const fm_outer_grad *grad,
                               const chain_space *space) {
    if (space->shares) {
        outer_weight(stream, o, grad, {space->a, space->b, space->dz, space->shares});
        return;
    }
    int64_t step = piece_rows(o);
    for (int64_t first = 0; first < o->n_i; first += step) {
        int64_t rows = min_size(step, o->n_i - first), square = OUTER_C * OUTER_C;
        product_piece(stream, o, space->a, space->b, space->norm, first, rows, space->piece);
        fm_gemm g = {};
        g.m = OUTER_Z, g.n = square, g.k = rows * o->n_j, g.batch = 1;
        g.trans_a = true;
        g.alpha = 1, g.beta = first > 0 || grad->dw.beta == FM_ADD ? 1 : 0;
        g.a = (const bf16 *)grad->dz + first * o->n_j * OUTER_Z, g.lda = OUTER_Z;
        g.b = space->piece, g.ldb = square;
        g.c = grad->dw.data, g.ldc = square, g.c_is_acc = true;
        gemm<bf16>(stream, &g, space->gemm);
    }
}

/* dz / norm in tiles, and dbias. */
static void pack_dz(fm_stream *stream, const fm_outer *o, const fm_outer_grad *grad,
                    const dz_pack &dz) {
    int blocks = dz_pack_blocks(o->n_i, o->n_j);
    partial_sums sums =
        sums_of(NULL, blocks, DZ_C, DZ_C, (float *)grad->dbias.data, grad->dbias.beta);
    dz_pack call = dz;
    if (grad->dbias.data) {
        call.sums = sums_place(stream, sums, (size_t)blocks * DZ_C * sizeof(float), dz.sums);
    }
    launch_after(stream, outer_pack_dz, (unsigned)blocks, PACK_THREADS, 0, true, call);
    FM_LAUNCHED();
    sums.partial = call.sums;
    if (grad->dbias.data) end_sums(stream, sums);
}

void outer_chain_grad(fm_stream *stream, const fm_outer *o, const fm_outer_grad *grad,
                      void *workspace, bool stores_p) {
    chain_space space;
    chain_layout(o, true, stores_p, aligned(workspace), &space);
    pack_jobs jobs = {};
    jobs.at[0] = pack_of(o, true, false, space.a);
    jobs.at[1] = pack_of(o, false, false, space.b);
    jobs.at[2] = pack_of_w(o, false, space.w);
    jobs.at[3] = pack_of_w(o, true, space.w_transposed);
    jobs.norm = norm_of(o, space.norm);
    outer_pack_run(stream, &jobs);
    pack_dz(stream, o, grad,
            {(const bf16 *)grad->dz, space.norm, (float)o->eps, (int)o->n_i, (int)o->n_j, NULL,
             space.dz, space.sums});
    if (grad->dw.data) gradient_of_weight(stream, o, grad, &space);
    if (grad->da.data || grad->db.data) gradients_of_operands(stream, o, grad, &space);
}

/* -- kernels for backward in pieces */

size_t outer_w_bytes(void) {
    return panels_size(OUTER_C, OUTER_Z) * sizeof(bf16);
}

void outer_pack_w(fm_stream *stream, const fm_outer *o, bf16 *to) {
    pack_jobs jobs = {};
    jobs.at[0] = pack_of_w(o, false, to);
    outer_pack_run(stream, &jobs);
}

size_t outer_panels_layout(const fm_outer *o, void *base, outer_panels *ret) {
    carver carve = {(char *)base, 0};
    auto act = [&](size_t elements) { return (bf16 *)carve.take(elements * sizeof(bf16)); };
    bool is_short = o->n_seq <= OUTER_MAX_SEQ;
    ret->a = is_short ? act(panels_size(o->n_i, o->n_seq)) : NULL;
    ret->b = is_short ? act(panels_size(o->n_j, o->n_seq)) : NULL;
    ret->w = act(panels_size(OUTER_C, OUTER_Z));
    ret->dz = act((size_t)(o->n_i * blocks_of(o->n_j)) * SLOT_X);
    ret->norm = (float *)carve.take((size_t)(o->n_i * o->n_j) * sizeof(float));
    ret->sums = (float *)carve.take((size_t)dz_pack_blocks(o->n_i, o->n_j) * DZ_C * sizeof(float));
    return carve.used;
}

void outer_panels_make(fm_stream *stream, const fm_outer *o, const fm_outer_grad *grad,
                       const outer_panels *tiles, bf16 *a, bf16 *b, bf16 *dz) {
    pack_jobs jobs = {};
    jobs.at[0] = pack_of_w(o, false, tiles->w);
    jobs.at[1] = pack_of(o, true, false, tiles->a), jobs.at[1].plain = a;
    jobs.at[2] = pack_of(o, false, false, tiles->b), jobs.at[2].plain = b;
    if (tiles->a) jobs.norm = norm_of(o, tiles->norm);
    outer_pack_run(stream, &jobs);
    pack_dz(stream, o, grad,
            {(const bf16 *)grad->dz, tiles->norm, (float)o->eps, (int)o->n_i, (int)o->n_j,
             tiles->dz, tiles->a ? NULL : dz, tiles->sums});
}

void outer_panels_product(fm_stream *stream, const fm_outer *o, const outer_panels *tiles,
                          int64_t first, int64_t rows, bf16 *piece) {
    product_piece(stream, o, tiles->a, tiles->b, tiles->norm, first, rows, piece);
}

void outer_panels_gradient(fm_stream *stream, const fm_outer *o, const outer_panels *tiles,
                           int64_t first, int64_t rows, bf16 *piece) {
    panels_args p = {};
    p.a = tiles->dz, p.b = tiles->w;
    p.n_i = (int)o->n_i, p.n_j = (int)o->n_j, p.first_i = (int)first;
    p.first_tile = (int)first * blocks_of(o->n_j), p.tiles = (int)rows * blocks_of(o->n_j);
    p.panels = OUTER_C / 2, p.steps = OUTER_Z / 128;
    p.to = piece;
    panels_run<true, 8>(stream, &p);
}

} // namespace fm_cuda
