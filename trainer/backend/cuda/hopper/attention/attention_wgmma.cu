/* attention_wgmma.cu: gated attention of the bf16 table, forward, by warp-group products and the
 * copy engine.
 *
 * A block of two warp groups takes 128 queries of one head, 16 per warp, for several batches one
 * after another, and walks their keys in tiles of 128. The steps for a tile are those of
 * attention_mma.cu: logits, shift, weights, product with v. Logits are one product of the
 * group; the weights are packed in registers and are the left operand of the product with v. The
 * online softmax is in f32.
 *
 * Two blocks share a multiprocessor, so exponentials of one group run beside products and copies of
 * the others. The instructions between the products bound the kernel, about seven per element, so
 * the products do what they can:
 *
 *     bias    is a term of the logits: each warp multiplies the bias of its 16 queries in shared
 *             memory with a diagonal of 1 / scale, and the product q k^T is added to that. In bf16,
 *             1 / scale is exact for c_head 16 and off by 1.07e-4 for 8 and 32; the backward uses
 *             the same number, and scales off by more than 2^-12 take another path (attention.cu).
 *             The bias of up to 256 keys is read once and stays for all batches; that of more keys
 *             comes with each tile.
 *     sums    of the weights: the product with v is 8 columns wider than v, and those columns are
 *             ones.
 *
 * The shift of a row, which is subtracted from its logits, only has to keep the weights finite:
 * they are as exact at 2^60 as at 1. So it is the maximum of the batch's first FIRST keys, and
 * later keys do not change it. If a sum of weights reaches MOST_SUM, the block walks all its
 * batches again, and the shift then rises with each tile. In a tile with masked keys it always
 * does.
 *
 * A batch of two tiles (129 to 256 keys) has a kernel of its own, in which stages, operands and the
 * first tile's special cases are known when it is compiled.
 *
 * The ring. k and v each have STAGES stages of shared memory. A stage has two barriers: `has`, on
 * which the copy engine reports the bytes, and `free`, at which every warp arrives when it has read
 * the stage. Step i uses stage i % STAGES. A barrier alternates between two phases, and a wait
 * names the parity of the phase. The n-th filling of a stage (from 0) completes the phase of parity
 * n % 2 of `has`. It may start when the phase of parity (n - 1) % 2 of `free` is complete.
 *
 * Each warp's 16 queries, gate and output (which takes the gate's place) come and go independently
 * of the other warps. A masked key's logit is MASKED: its exponential is 0 as with the finite
 * mask_value, because a batch without any valid key counts as having no mask. */
#include "trainer/backend/cuda/hopper/attention/attention_forward.cuh"

namespace fm_cuda {

enum {
    GROUPS = 2,
    WARPS = GROUPS * 4,
    QUERIES = WARPS * 16, /* of a block */
    KEYS = 128,           /* of a tile */
    FIRST = 32,           /* the keys of a batch whose maximum is the shift */
    STAGES = 2,
    BIAS_PARTS = GROUPS * KEYS / 64, /* boxes of a tile's bias: one for each warp of a group */
    FETCHERS = 4, /* the first warp of the second group, whose warps share the fetching */
    FORWARD_THREADS = WARPS * 32,
    CELLS = 512 /* of 16 bytes, for barriers and bits of valid keys */
};

/* Shared memory of a block. Every tile begins at a multiple of its swizzle's period.
 *
 * Barriers and bits of valid keys are in cells of 16 bytes. `ones` is a tile of 16 rows, of which
 * products read only the first chunk of each row; where the bias fills shared memory (PACKED), its
 * other chunks are the cells. */
template <int C, bool BIASED> struct forward_space {
    static constexpr bool PACKED = BIASED && C == 32;
    static constexpr int CELLS_USABLE = PACKED ? 48 : CELLS;
    static constexpr int BARRIERS = 4 * STAGES + 2 * WARPS, BITS = (BARRIERS + 1) / 2;

    bf16 bias[BIASED ? STAGES : 0][GROUPS][KEYS / 64][GROUP_ROWS * 64];
    bf16 k[STAGES][KEYS * C], v[STAGES][KEYS * C];
    bf16 q[WARPS][16 * C], g[WARPS][16 * C]; /* g: the gate, then the output */
    bf16 ones[16 * C];
    uint4 cells[PACKED ? 0 : CELLS];

    __device__ uint4 *cell(unsigned i) {
        if constexpr (PACKED) return (uint4 *)(ones + tile_at<C>(i % 16, 1 + i / 16));
        return cells + i;
    }
    __device__ uint32_t barrier(unsigned i) {
        return shared_address(cell(i / 2)) + i % 2 * 8;
    }
    __device__ uint32_t has_k(unsigned stage) {
        return barrier(stage);
    }
    __device__ uint32_t has_v(unsigned stage) {
        return barrier(STAGES + stage);
    }
    __device__ uint32_t free_k(unsigned stage) {
        return barrier(2 * STAGES + stage);
    }
    __device__ uint32_t free_v(unsigned stage) {
        return barrier(3 * STAGES + stage);
    }
    __device__ uint32_t has_q(unsigned warp) {
        return barrier(4 * STAGES + warp);
    }
    __device__ uint32_t has_g(unsigned warp) {
        return barrier(4 * STAGES + WARPS + warp);
    }
    /* Bit i: key i of the step's tile is valid. */
    __device__ uint4 *bits(unsigned step) {
        return cell(BITS + step);
    }
};

/* The block's part of the work. */
struct forward_place {
    int group, head, first_query, first, end; /* batches [first, end) */
};

__device__ inline forward_place forward_place_of(const forward_call &a) {
    int i = (int)blockIdx.x;
    forward_place p;
    p.first_query = i % a.blocks * QUERIES;
    i /= a.blocks;
    p.head = i % a.n_head;
    i /= a.n_head;
    p.first = i % a.shares * a.batches_per_block;
    p.end = min(p.first + a.batches_per_block, a.n_batch);
    p.group = i / a.shares;
    return p;
}

/* One step of the block's walk: a tile of keys of a batch. TILES is the number of tiles of a batch
 * if the kernel is compiled for one number, otherwise 0. With as many tiles as stages, tile i uses
 * stage i. */
template <int TILES> struct forward_step {
    static_assert(TILES == 0 || TILES == (int)STAGES);
    unsigned step;
    int round, batch, tile; /* round: batches of the block before this one */

    __device__ unsigned stage() const {
        return TILES > 0 ? (unsigned)tile : step % STAGES;
    }
    /* How often the stage was filled before, modulo 2: the parity to wait for. */
    __device__ uint32_t parity() const {
        return TILES > 0 ? round & 1 : step / STAGES & 1;
    }
    __device__ bool is_refill() const {
        return TILES > 0 ? round > 0 : step >= STAGES;
    }
    /* Whether the step's bias is not in shared memory yet. */
    __device__ bool needs_bias(const forward_call &a) const {
        return TILES > 0 ? round == 0 : a.tiles > STAGES || step < (unsigned)a.tiles;
    }
    __device__ forward_step next(const forward_call &a) const {
        bool is_last = tile == (TILES > 0 ? TILES : a.tiles) - 1;
        return {step + 1, round + is_last, batch + is_last, is_last ? 0 : tile + 1};
    }
};

/* Starts the copies of a step's keys and announces its bias, if that is needed. Called by one
 * thread, as are fetch_bias and fetch_values; all wait until all warps have read the stage's last
 * use. */
template <int C, bool BIASED, int TILES>
__device__ inline void fetch_keys(const forward_call &a, const forward_place &p,
                                  forward_space<C, BIASED> &space, const forward_step<TILES> &at) {
    constexpr uint32_t BYTES = KEYS * C * sizeof(bf16), BIAS_BYTES = KEYS * QUERIES * sizeof(bf16);
    unsigned stage = at.stage();
    uint32_t barrier = space.has_k(stage);
    if (at.batch >= p.end) return;
    if (at.is_refill()) barrier_wait(space.free_k(stage), at.parity() ^ 1);
    barrier_expect(barrier, BYTES + (BIASED && at.needs_bias(a) ? BIAS_BYTES : 0));
    box_load(shared_address(space.k[stage]), a.k, {at.tile * KEYS, p.head, at.batch, p.group},
             barrier);
}

/* Starts the copy of part `part` of BIAS_PARTS of a step's bias, if that is needed. */
template <int C, bool BIASED, int TILES>
__device__ inline void fetch_bias(const forward_call &a, const forward_place &p,
                                  forward_space<C, BIASED> &space, const forward_step<TILES> &at,
                                  int part) {
    unsigned stage = at.stage();
    int group = part / (KEYS / 64), half = part % (KEYS / 64);
    if (!BIASED || at.batch >= p.end || !at.needs_bias(a)) return;
    if (at.is_refill()) barrier_wait(space.free_k(stage), at.parity() ^ 1);
    box_load(shared_address(space.bias[stage][group][half]), a.bias,
             {p.first_query + group * GROUP_ROWS, p.head, p.group, 0, at.tile * KEYS + half * 64},
             space.has_k(stage));
}

template <int C, bool BIASED, int TILES>
__device__ inline void fetch_values(const forward_call &a, const forward_place &p,
                                    forward_space<C, BIASED> &space,
                                    const forward_step<TILES> &at) {
    uint32_t barrier = space.has_v(at.stage());
    if (at.batch >= p.end) return;
    if (at.is_refill()) barrier_wait(space.free_v(at.stage()), at.parity() ^ 1);
    barrier_expect(barrier, KEYS * C * sizeof(bf16));
    box_load(shared_address(space.v[at.stage()]), a.v, {at.tile * KEYS, p.head, at.batch, p.group},
             barrier);
}

/* Starts the copy of the warp's queries. Called by one lane, as is fetch_gate. */
template <int C, bool BIASED>
__device__ inline void fetch_queries(const forward_call &a, const forward_place &p,
                                     forward_space<C, BIASED> &space, int batch) {
    int warp = threadIdx.x / 32;
    if (batch >= p.end) return;
    barrier_expect(space.has_q(warp), 16 * C * sizeof(bf16));
    box_load(shared_address(space.q[warp]), a.q,
             {p.first_query + warp * 16, p.head, batch, p.group}, space.has_q(warp));
}

template <int C, bool BIASED>
__device__ inline void fetch_gate(const forward_call &a, const forward_place &p,
                                  forward_space<C, BIASED> &space, int batch) {
    int warp = threadIdx.x / 32;
    stores_wait(); /* the last output is still being read from the gate's place */
    if (!a.is_gated) return;
    barrier_expect(space.has_g(warp), 16 * C * sizeof(bf16));
    box_load(shared_address(space.g[warp]), a.g,
             {p.first_query + warp * 16, p.head, batch, p.group}, space.has_g(warp));
}

/* Makes the compiler have the operand in registers before what follows. */
__device__ inline void pin_rows(uint32_t (&a)[4]) {
    asm volatile("" : "+r"(a[0]), "+r"(a[1]), "+r"(a[2]), "+r"(a[3]));
}

/* Reads the warp's 16 queries as the left operand. */
template <int C>
__device__ inline void read_queries(uint32_t (&a)[(C + 15) / 16][4], const bf16 *rows) {
    if constexpr (C >= 16) {
        tile_rows<C>(a, rows, 0);
    } else {
        int lane = threadIdx.x % 32;
        a[0][0] = *(const uint32_t *)(rows + lane * 2);
        a[0][1] = *(const uint32_t *)(rows + 64 + lane * 2);
        a[0][2] = a[0][3] = 0;
    }
}

/* What a lane keeps of the bias's product through the walk. Both are opaque to the compiler, which
 * would otherwise compute them again for each tile. */
struct bias_lane {
    uint32_t offset;   /* of its row and first chunk from the stage's bias, in bytes */
    uint32_t diagonal; /* the right operand: 1 / scale on the diagonal */
};

__device__ inline bias_lane place_of_bias(uint16_t factor) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    bias_lane at;
    at.offset = (uint32_t)(warp / 4 * KEYS * GROUP_ROWS + warp % 4 * 16 * 64 +
                           tile_at<64>(lane % 16, lane / 16)) *
                (uint32_t)sizeof(bf16);
    at.diagonal = diagonal_of(factor);
    asm volatile("" : "+r"(at.offset), "+r"(at.diagonal));
    return at;
}

/* s = 1 / scale times the bias of the warp's 16 queries. `bias`: the stage's, for both groups. */
__device__ inline void start_with_bias(float (&s)[KEYS / 8][4], const bias_lane &at,
                                       const bf16 *bias) {
    uint32_t from = shared_address(bias) + at.offset;
#pragma unroll
    for (int n = 0; n < KEYS / 16; n++) {
        uint32_t b[4];
        /* The swizzle exchanges chunks by xor, here two at a time. */
        ldmatrix(b, (from ^ n % 4 * 32) + n / 4 * GROUP_ROWS * 64 * (int)sizeof(bf16));
        mma_eight_first(s[2 * n], b[0], b[1], at.diagonal);
        mma_eight_first(s[2 * n + 1], b[2], b[3], at.diagonal);
    }
}

/* Starts s = the group's logits / scale. q: the warp's queries. */
template <int C, bool BIASED>
__device__ inline void start_logits(const forward_call &a, forward_space<C, BIASED> &space,
                                    unsigned stage, const bias_lane &bias,
                                    const uint32_t (&q)[(C + 15) / 16][4],
                                    float (&s)[KEYS / 8][4]) {
    uint64_t keys = tile_operand<C, K_MAJOR>(space.k[stage]);
    if constexpr (BIASED) start_with_bias(s, bias, space.bias[a.tiles == 1 ? 0 : stage][0][0]);
    products_pin(s);
    products_begin();
#pragma unroll
    for (int k = 0; k < (C + 15) / 16; k++)
        wgmma<K_MAJOR>(s, q[k], operand_after(keys, 16 * k), BIASED || k > 0);
    products_commit();
}

__device__ inline bool are_full(const uint4 &bits) {
    return (bits.x & bits.y & bits.z & bits.w) == 0xffffffffu;
}

__device__ inline void mask_keys(float (&s)[KEYS / 8][4], const uint4 &bits) {
    const uint32_t words[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++) {
        uint32_t pair = words[n / 4] >> (n % 4 * 8 + 2 * (threadIdx.x % 4));
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (!(pair >> i % 2 & 1)) s[n][i] = MASKED;
    }
}

/* The maximum of the first N logits of row g, or with `lower` of row g + 8, in units of log2. */
template <int N>
__device__ inline float row_maximum(const float (&s)[KEYS / 8][4], int lower, float slope) {
    float top = fmaxf(s[0][2 * lower], s[0][2 * lower + 1]);
#pragma unroll
    for (int n = 1; n < N / 8; n++)
        top = fmaxf(top, fmaxf(s[n][2 * lower], s[n][2 * lower + 1]));
    return row_max(top * slope);
}

/* Raises `shift` of each row, which is subtracted from its logits in units of log2, to the maximum
 * of this tile, and scales o down accordingly. */
template <int N>
__device__ inline void raise_shift(const float (&s)[KEYS / 8][4], float slope, bool is_first,
                                   float (&o)[N][4], float (&shift)[2]) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float top = row_maximum<KEYS>(s, half, slope);
        if (!is_first) {
            top = fmaxf(top, shift[half]);
            float shrink = exp2_fast(shift[half] - top);
#pragma unroll
            for (int n = 0; n < N; n++) {
                o[n][2 * half] *= shrink;
                o[n][2 * half + 1] *= shrink;
            }
        }
        shift[half] = top;
    }
}

/* The operand of v `rows` rows further on. The columns of ones stay where they are: the descriptor
 * stores the distance from v's columns to them, so the distance shrinks as the address grows. */
template <int C> __device__ inline uint64_t values_after(uint64_t values, int rows) {
    uint32_t low = (uint32_t)values, high = (uint32_t)(values >> 32), on = (uint32_t)(rows * C / 8);
    if (C == 8) high -= on;
    low += C == 8 ? on : on - (on << 16);
    return (uint64_t)high << 32 | low;
}

/* Turns part `part` of PARTS of the tile's logits into weights and starts o (+)= weights times v.
 * Columns C to C + 7 of v are ones, so o's last 8 columns are the sums of the weights. */
template <int C, int PARTS>
__device__ inline void add_values(float (&o)[C / 8 + 1][4], float (&s)[KEYS / 8][4], int part,
                                  float slope, const float (&shift)[2], bool is_first,
                                  uint64_t values) {
    constexpr int STEPS = KEYS / 16 / PARTS;
    uint32_t p[STEPS][4];
#pragma unroll
    for (int k = 0; k < STEPS; k++) {
#pragma unroll
        for (int n = 2 * (part * STEPS + k); n < 2 * (part * STEPS + k) + 2; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                s[n][i] = exp2_fast(s[n][i] * slope - shift[i / 2]);
        accumulator_rows(p[k], s, part * STEPS + k);
        pin_rows(p[k]);
    }
    products_begin();
#pragma unroll
    for (int k = 0; k < STEPS; k++) {
        int rows = 16 * (part * STEPS + k);
        wgmma<MN_MAJOR>(o, p[k], values_after<C>(values, rows), !is_first || part + k > 0);
    }
    products_commit();
}

/* Two neighbouring elements of a tile in shared memory. */
__device__ inline uint32_t shared_load(uint32_t address) {
    uint32_t two;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(two) : "r"(address) : "memory");
    return two;
}
__device__ inline void shared_store(uint32_t address, uint32_t two) {
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(two) : "memory");
}

/* Ends a batch: divides the warp's rows by their sums, applies the gate, stores them over the gate
 * in shared memory and from there to memory; and stores the log-sum-exp. Returns whether the shifts
 * of this lane's rows were near enough to their maxima. */
template <int C, bool BIASED>
__device__ inline bool finish_batch(const forward_call &a, const forward_place &p,
                                    forward_space<C, BIASED> &space, int batch,
                                    float (&o)[C / 8 + 1][4], const float (&shift)[2]) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    int row = p.first_query + warp * 16;
    int64_t plane = ((int64_t)p.group * a.n_batch + batch) * a.n_head + p.head;
    const float sum[2] = {o[C / 8][0], o[C / 8][2]};
    /* The swizzle exchanges chunks by xor: chunk n is at first ^ n * 16 bytes, also 8 rows on. */
    uint32_t first = shared_address(space.g[warp] + tile_at<C>(g, 0) + 2 * t);
    asm volatile("" : "+r"(first)); /* computed here rather than kept through the walk */
    if (a.is_gated) {
        barrier_wait(space.has_g(warp), (uint32_t)(batch - p.first) & 1);
#pragma unroll
        for (int i = 0; i < C / 4; i++) {
            float *pair = &o[i / 2][i % 2 * 2];
            uint32_t gate = shared_load((first ^ i / 2 * 16) + i % 2 * 16 * C);
            divide_and_gate(pair, gate, sum[i % 2]);
        }
    } else {
        const float inverse[2] = {reciprocal(sum[0]), reciprocal(sum[1])};
#pragma unroll
        for (int n = 0; n < C / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                o[n][i] *= inverse[i / 2];
    }
#pragma unroll
    for (int n = 0; n < C / 8; n++) {
        shared_store(first ^ n * 16, pack_two(o[n][0], o[n][1]));
        shared_store((first ^ n * 16) + 16 * C, pack_two(o[n][2], o[n][3]));
    }
    tiles_publish();
    __syncwarp();
    if (lane == 0) box_store(a.o, {row, p.head, batch, p.group}, shared_address(space.g[warp]));
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int line = row + g + 8 * half;
        if (t == 0 && line < a.n_query) {
            a.lse[plane * a.n_query + line] = (shift[half] + logarithm(sum[half])) * LN2;
        }
    }
    return sum[0] < MOST_SUM && sum[1] < MOST_SUM;
}

/* Sets up barriers, ones and bits, and starts the first copies. */
template <int C, bool BIASED, int TILES>
__device__ inline void forward_begin(const forward_call &a, const forward_place &p,
                                     forward_space<C, BIASED> &space) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (threadIdx.x == 0) {
        forward_step<TILES> first = {0, 0, p.first, 0};
        for (int i = 0; i < STAGES; i++) {
            barrier_init(space.has_k(i), 1);
            barrier_init(space.has_v(i), 1);
            barrier_init(space.free_k(i), WARPS);
            barrier_init(space.free_v(i), WARPS);
        }
        barriers_publish();
        fetch_values(a, p, space, first);
        if (BIASED) wait_for_previous(); /* split_heads may be the kernel before */
        for (int i = 0; i < 2; i++, first = first.next(a)) {
            fetch_keys(a, p, space, first);
            for (int part = 0; part < BIAS_PARTS; part++)
                fetch_bias(a, p, space, first, part);
        }
    }
    if (lane == 0) {
        barrier_init(space.has_q(warp), 1);
        barrier_init(space.has_g(warp), 1);
        barriers_publish();
        fetch_queries(a, p, space, p.first);
    }
    __syncwarp();
    if (threadIdx.x < 16 * 8) {
        space.ones[tile_at<C>(threadIdx.x / 8, 0) + threadIdx.x % 8] = to<bf16>(1.0f);
    }
    find_bits(a, p.group, p.first, p.end, a.tiles * (KEYS / 32), WARPS,
              [&](int batch, int i, uint32_t word) {
                  unsigned step = (unsigned)((batch - p.first) * a.tiles + i / 4);
                  ((uint32_t *)space.bits(step))[i % 4] = word;
              });
    tiles_publish();
    __syncthreads();
}

/* Prepares another walk: waits for this one's stores, which the next one's overwrite, and ends the
 * barriers. Comes after a barrier of the block. */
template <int C, bool BIASED> __device__ inline void forward_end(forward_space<C, BIASED> &space) {
    int warp = threadIdx.x / 32;
    if (threadIdx.x % 32 != 0) return;
    stores_finish();
    barrier_end(space.has_q(warp));
    barrier_end(space.has_g(warp));
    if (warp != 0) return;
    for (int i = 0; i < STAGES; i++) {
        barrier_end(space.has_k(i));
        barrier_end(space.has_v(i));
        barrier_end(space.free_k(i));
        barrier_end(space.free_v(i));
    }
}

/* The two groups take turns at the exponentials, so that one computes them while the other's
 * products run. Otherwise both would reach the exponentials together, and then the products. */
__device__ inline void take_turn(int group) {
    asm volatile("bar.sync %0, %1;" ::"r"(1 + group), "n"((int)FORWARD_THREADS) : "memory");
}
__device__ inline void give_turn(int group) {
    asm volatile("bar.arrive %0, %1;" ::"r"(2 - group), "n"((int)FORWARD_THREADS) : "memory");
}

/* One step: the tile's logits, their weights, and o += weights times values. `is_safe`: the shift
 * rises to the maximum of each tile. Otherwise a full tile after the first one leaves it, unless no
 * key was valid so far. */
template <int C, bool BIASED, int TILES>
__device__ inline void
forward_tile(const forward_call &a, const forward_place &p, forward_space<C, BIASED> &space,
             const forward_step<TILES> &at, const bias_lane &bias, bool is_last, bool is_safe,
             const uint32_t (&q)[(C + 15) / 16][4], float (&o)[C / 8 + 1][4], float (&shift)[2]) {
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float s[KEYS / 8][4];
    unsigned stage = at.stage();
    bool is_first = at.tile == 0;
    barrier_wait(space.has_k(stage), at.parity());
    start_logits<C, BIASED>(a, space, stage, bias, q, s);
    if (lane == 0) {
        if (is_first) fetch_gate(a, p, space, at.batch);
        if (is_first) fetch_queries(a, p, space, at.batch + 1);
        if (warp == FETCHERS) fetch_values(a, p, space, at.next(a));
    }
    bool is_full = are_full(*space.bits(at.step));
    __syncwarp();
    products_wait<0>(s);
    if (lane == 0) barrier_arrive(space.free_k(stage));
    if (!is_full) mask_keys(s, *space.bits(at.step));
    bool is_unset = !is_first && shift[0] < 0.5f * MASKED * a.slope;
    if (!is_full || is_safe || is_unset) {
        raise_shift(s, a.slope, is_first, o, shift);
    } else if (is_first) {
        shift[0] = row_maximum<FIRST>(s, 0, a.slope);
        shift[1] = row_maximum<FIRST>(s, 1, a.slope);
    }
    uint64_t values = tile_operand<C, MN_MAJOR>(space.v[stage], (int)(space.ones - space.v[stage]));
    barrier_wait(space.has_v(stage), at.parity());
    take_turn(warp / 4);
    products_pin(s);
    products_pin(o);
    add_values<C, 2>(o, s, 0, a.slope, shift, is_first, values);
    add_values<C, 2>(o, s, 1, a.slope, shift, is_first, values);
    if (warp < 4 || !is_last) give_turn(warp / 4);
    if (warp >= FETCHERS && lane == 0) {
        forward_step<TILES> ahead = at.next(a).next(a);
        if (warp == FETCHERS + 1) fetch_keys(a, p, space, ahead);
        fetch_bias(a, p, space, ahead, warp - FETCHERS);
    }
    __syncwarp();
    products_wait<0>(o);
    if (lane == 0) barrier_arrive(space.free_v(stage));
}

/* Walks the block's batches. Returns whether this lane's outputs are exact: false only without
 * is_safe, where a logit far exceeds those of the first tile. */
template <int C, bool BIASED, int TILES>
__device__ inline bool forward_walk(const forward_call &a, const forward_place &p,
                                    forward_space<C, BIASED> &space, bool is_safe) {
    int warp = threadIdx.x / 32;
    bias_lane bias = {};
    bool is_exact = true;
    if (BIASED) bias = place_of_bias(a.bias_factor);
    forward_step<TILES> at = {0, 0, p.first, 0};
    if (warp >= 4) give_turn(1);
    for (; at.batch < p.end; at.round++, at.batch++) {
        float o[C / 8 + 1][4], shift[2];
        uint32_t q[(C + 15) / 16][4];
        barrier_wait(space.has_q(warp), (uint32_t)at.round & 1);
        read_queries<C>(q, space.q[warp]);
        __syncwarp();
        if constexpr (TILES > 0) {
#pragma unroll
            for (at.tile = 0; at.tile < TILES; at.tile++, at.step++) {
                bool is_last = at.tile == TILES - 1 && at.batch == p.end - 1;
                forward_tile<C, BIASED, TILES>(a, p, space, at, bias, is_last, is_safe, q, o,
                                               shift);
            }
        } else {
            for (at.tile = 0; at.tile < a.tiles; at.tile++, at.step++) {
                bool is_last = at.tile == a.tiles - 1 && at.batch == p.end - 1;
                forward_tile<C, BIASED, TILES>(a, p, space, at, bias, is_last, is_safe, q, o,
                                               shift);
            }
        }
        is_exact &= finish_batch(a, p, space, at.batch, o, shift);
    }
    return is_exact;
}

template <int C, bool BIASED, int TILES>
__global__ void __launch_bounds__(FORWARD_THREADS, 2)
    wgmma_forward(const __grid_constant__ forward_call a) {
    extern __shared__ __align__(TILE_ALIGN) char memory[];
    forward_space<C, BIASED> &space = *(forward_space<C, BIASED> *)memory;
    forward_place p = forward_place_of(a);
#pragma unroll 1
    for (bool is_safe = false;; is_safe = true) {
        forward_begin<C, BIASED, TILES>(a, p, space);
        bool is_exact = forward_walk<C, BIASED, TILES>(a, p, space, is_safe);
        if (is_safe || !__syncthreads_or(!is_exact)) break;
        forward_end(space);
    }
    if (threadIdx.x % 32 == 0) stores_wait();
}

/* How many blocks share the batches of a (group, head, queries), `max_batches` per block at most:
 * the number for which all rounds of blocks take least time. A block takes as long as its batches
 * and about one more; two blocks run on each multiprocessor. */
static int choose_shares(int64_t combinations, int64_t n_batch, int64_t max_batches) {
    const int64_t slots = 2 * n_multiprocessor();
    int64_t best = n_batch, least = INT64_MAX;
    for (int64_t shares = divide_up(n_batch, max_batches); shares <= n_batch; shares++) {
        int64_t cost = divide_up(combinations * shares, slots) * (divide_up(n_batch, shares) + 1);
        if (cost < least) best = shares, least = cost;
    }
    return (int)divide_up(n_batch, divide_up(n_batch, best));
}

box_map attention_boxes(const fm_attention *a, const void *base, const fm_attention_stride &s,
                        int64_t rows, int c, int box_rows) {
    const int64_t extent[5] = {a->c_head, rows, a->n_head, a->n_batch, a->n_group};
    const int64_t stride[4] = {s.row, s.head, s.batch, s.group};
    return make_boxes(base, extent, stride, c, box_rows);
}

template <int C, bool BIASED>
static void forward_run(fm_stream *stream, const fm_attention *a, void *planes, float bias_factor) {
    typedef forward_space<C, BIASED> space;
    static_assert(sizeof(space) <= 113 << 10, "two blocks share a multiprocessor");
    static_assert(space::CELLS_USABLE - space::BITS >=
                  (int)(space::PACKED ? MAX_PACKED_KEYS : MAX_FORWARD_KEYS) / KEYS);
    forward_call call = forward_call_of(a, C, {16, KEYS, QUERIES}, bias_factor);
    int64_t combinations = a->n_group * a->n_head * call.blocks;
    int64_t max_batches = (space::CELLS_USABLE - space::BITS) / call.tiles;
    call.shares = choose_shares(combinations, a->n_batch, max_batches);
    call.batches_per_block = (int)divide_up(a->n_batch, call.shares);
    auto kernel =
        call.tiles == (int)STAGES ? wgmma_forward<C, BIASED, STAGES> : wgmma_forward<C, BIASED, 0>;
    FM_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 (int)sizeof(space)));
    bool early = BIASED && attention_bias_boxes(stream, a, planes, &call.bias);
    launch_after(stream, kernel, (unsigned)(combinations * call.shares), FORWARD_THREADS,
                 sizeof(space), early, call);
}

void attention_wgmma(fm_stream *stream, const fm_attention *a, const attention_space &space) {
    auto run = a->c_head <= 8    ? (a->bias ? forward_run<8, true> : forward_run<8, false>)
               : a->c_head <= 16 ? (a->bias ? forward_run<16, true> : forward_run<16, false>)
                                 : (a->bias ? forward_run<32, true> : forward_run<32, false>);
    run(stream, a, space.bias, space.bias_factor);
}

} // namespace fm_cuda
