/* attention_wgmma.cu: gated attention of the bf16 table, forward, by warp groups and the copy
 * engine.
 *
 * A block of two warp groups takes 128 queries of one head, 16 a warp, for `per` batches one after
 * another, and walks their keys in tiles of 128: k and v in two stages of shared memory, filled by
 * the copy engine while the other one is used. The gathered bias of up to 256 keys is read once and
 * stays for all batches; of more keys it comes with each tile. Logits are one product of the group,
 * softmax is online in f32, the weights are packed in registers and are the left side of the
 * product with v. That product is 8 columns wider than v: the columns are ones and give the sums of
 * the weights. Two blocks share a multiprocessor, so that exponentials of one group, which bound
 * this kernel (16 a clock), run beside products and copies of the others.
 *
 * A warp's 16 queries, their gate, and its output, which takes the gate's place, come and go
 * without regard to the other warps. A masked key's logit is MASKED: exp gives 0 as the finite
 * mask_value does, because a batch without any valid key counts as having no mask. */
#include "trainer/backend/cuda/attention_mma.cuh"
#include "trainer/backend/cuda/bulk.cuh"
#include "trainer/backend/cuda/wgmma.cuh"

namespace fm_cuda {

enum {
    GROUPS = 2,
    WARPS = GROUPS * 4,
    QUERIES = WARPS * 16, /* of a block */
    KEYS = 128,           /* of a tile */
    STAGES = 2,
    FORWARD_THREADS = WARPS * 32,
    PLACES = 512 /* of 16 bytes, for barriers and bits of valid keys */
};

static const float MASKED = -1e9f;

/* What a launch needs. */
struct forward_call {
    box_map q, k, v, g, o;
    const uint4 *bias; /* gathered (attention_mma.cuh), or NULL */
    const bf16 *mask;
    float *lse;
    int64_t mask_stride[3];
    int n_query, n_key, n_head, n_batch;
    int tiles;           /* of keys */
    int blocks;          /* of queries */
    int per, shares;     /* batches of a block, blocks that share a (group, head, queries) */
    int columns, strips; /* of the gathered bias */
    float scale, slope;  /* logit_units */
    bool is_gated;
};

/* Shared memory of a block; all tiles from multiples of their exchange's period.
 *
 * The ones are a tile of 16 rows, of which only the first chunk of each row is read. Where the bias
 * fills shared memory, the other chunks hold barriers and bits: `place`. */
template <int C, bool BIASED> struct forward_space {
    static constexpr bool PACKED = BIASED && C == 32;
    static constexpr int PLACES_THERE = PACKED ? 48 : PLACES;
    static constexpr int BARRIERS = 4 * STAGES + 2 * WARPS, BITS = (BARRIERS + 1) / 2;

    uint4 bias[BIASED ? STAGES : 1][BIASED ? WARPS * 256 : 64];
    bf16 k[STAGES][KEYS * C], v[STAGES][KEYS * C];
    bf16 q[WARPS][16 * C], g[WARPS][16 * C]; /* g: then the output */
    bf16 ones[16 * C];
    uint4 places[PACKED ? 0 : PLACES];

    __device__ uint4 *place(int i) {
        if constexpr (PACKED) return (uint4 *)(ones + tile_at<C>(i % 16, 1 + i / 16));
        return places + i;
    }
    __device__ uint32_t barrier(int i) {
        return shared_address(place(i / 2)) + i % 2 * 8;
    }
    __device__ uint32_t has_k(int stage) {
        return barrier(stage);
    }
    __device__ uint32_t has_v(int stage) {
        return barrier(STAGES + stage);
    }
    __device__ uint32_t free_k(int stage) {
        return barrier(2 * STAGES + stage);
    }
    __device__ uint32_t free_v(int stage) {
        return barrier(3 * STAGES + stage);
    }
    __device__ uint32_t has_q(int warp) {
        return barrier(4 * STAGES + warp);
    }
    __device__ uint32_t has_g(int warp) {
        return barrier(4 * STAGES + WARPS + warp);
    }
    /* Bit i: key i of the step's tile counts. */
    __device__ uint4 *bits(int step) {
        return place(BITS + step);
    }
};

/* Where a block is. */
struct forward_place {
    int group, head, first_query, first, end; /* batches [first, end) */
    int plane;
};

__device__ inline forward_place forward_place_of(const forward_call &a) {
    int i = (int)blockIdx.x;
    forward_place p;
    p.first_query = i % a.blocks * QUERIES;
    i /= a.blocks;
    p.head = i % a.n_head;
    i /= a.n_head;
    p.first = i % a.shares * a.per;
    p.end = min(p.first + a.per, a.n_batch);
    p.group = i / a.shares;
    p.plane = p.group * a.n_head + p.head;
    return p;
}

/* The bits of the block's batches: a warp takes every WARPS-th batch, eight words at a time. */
template <int C, bool BIASED>
__device__ inline void find_bits(const forward_call &a, const forward_place &p,
                                 forward_space<C, BIASED> &space) {
    int lane = threadIdx.x % 32, words = a.tiles * (KEYS / 32);
    for (int batch = p.first + (int)threadIdx.x / 32; batch < p.end; batch += WARPS) {
        const bf16 *mask = a.mask + p.group * a.mask_stride[0] + batch * a.mask_stride[1];
        int step = (batch - p.first) * a.tiles;
        uint32_t any = 0;
        for (int is_again = a.mask == NULL; is_again < 2 && !any; is_again++) { /* without mask */
            for (int first = 0; first < words; first += 8) {
                bool is_valid[8];
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    int key = (first + i) * 32 + lane;
                    is_valid[i] = key < a.n_key;
                    if (is_valid[i] && !is_again)
                        is_valid[i] = get(mask[key * a.mask_stride[2]]) != 0;
                }
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    uint32_t word = __ballot_sync(0xffffffffu, is_valid[i]);
                    any |= word;
                    if (lane == 0 && first + i < words)
                        ((uint32_t *)space.bits(step + (first + i) / 4))[i % 4] = word;
                }
            }
        }
    }
}

/* A tile of a batch, the step-th of the block. */
struct forward_step {
    int step, batch, tile;

    __device__ int stage() const {
        return step % STAGES;
    }
    /* How often its stage was filled before, modulo 2: what to wait for. */
    __device__ uint32_t turn() const {
        return (uint32_t)step / STAGES & 1;
    }
    __device__ forward_step next(int tiles) const {
        bool is_last = tile == tiles - 1;
        return {step + 1, batch + is_last, is_last ? 0 : tile + 1};
    }
};

/* Starts the copy of a step's keys. One thread, as the next; they wait until the step that had the
 * stage before is done with it. */
template <int C, bool BIASED>
__device__ inline void fetch_keys(const forward_call &a, const forward_place &p,
                                  forward_space<C, BIASED> &space, const forward_step &at) {
    uint32_t barrier = space.has_k(at.stage());
    if (at.batch >= p.end) return;
    if (at.step >= STAGES) barrier_wait(space.free_k(at.stage()), at.turn() ^ 1);
    barrier_expect(barrier, KEYS * C * sizeof(bf16));
    box_load(shared_address(space.k[at.stage()]), a.k, {at.tile * KEYS, p.head, at.batch, p.group},
             barrier);
}

/* The same of its values, and of its bias where that is not there yet. */
template <int C, bool BIASED>
__device__ inline void fetch_values(const forward_call &a, const forward_place &p,
                                    forward_space<C, BIASED> &space, const forward_step &at) {
    constexpr uint32_t TILE_BYTES = KEYS * C * sizeof(bf16);
    uint32_t barrier = space.has_v(at.stage());
    if (at.batch >= p.end) return;
    if (at.step >= STAGES) barrier_wait(space.free_v(at.stage()), at.turn() ^ 1);
    bool with_bias = BIASED && (a.tiles > STAGES || at.step < a.tiles);
    int first_strip = p.first_query / 16, strips = min((int)WARPS, a.strips - first_strip);
    uint32_t part = (uint32_t)min(2, a.columns - 2 * at.tile) * 2048;
    barrier_expect(barrier, TILE_BYTES + (with_bias ? part * (uint32_t)strips : 0));
    box_load(shared_address(space.v[at.stage()]), a.v, {at.tile * KEYS, p.head, at.batch, p.group},
             barrier);
    if (!with_bias) return;
    int64_t strip = (int64_t)p.plane * a.strips + first_strip;
    const uint4 *from = a.bias + (strip * a.columns + 2 * at.tile) * 128;
#pragma unroll 1
    for (int i = 0; i < strips; i++)
        bulk_load(shared_address(&space.bias[a.tiles == 1 ? 0 : at.stage()][i * 256]),
                  from + i * a.columns * 128, part, barrier);
}

/* A warp's queries; its gate. One lane. */
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
    stores_wait(); /* of the last output, where the gate comes */
    if (!a.is_gated) return;
    barrier_expect(space.has_g(warp), 16 * C * sizeof(bf16));
    box_load(shared_address(space.g[warp]), a.g,
             {p.first_query + warp * 16, p.head, batch, p.group}, space.has_g(warp));
}

/* The A operand of a warp's 16 queries. */
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

/* s = s * scale + the bias of 16 rows and 128 keys. */
__device__ inline void add_bias(float (&s)[KEYS / 8][4], float scale, const uint4 *bias) {
#pragma unroll
    for (int j = 0; j < KEYS / 16; j++) {
        uint4 part = bias[j * 32 + threadIdx.x % 32];
        const uint32_t words[4] = {part.x, part.y, part.z, part.w};
#pragma unroll
        for (int w = 0; w < 4; w++) {
            float *pair = &s[2 * j + w / 2][w % 2 * 2];
            pair[0] = pair[0] * scale + low_half(words[w]);
            pair[1] = pair[1] * scale + high_half(words[w]);
        }
    }
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

/* The running maximum of a row, in units of logits times slope; o shrinks to it. */
template <int N>
__device__ inline void raise_maximum(const float (&s)[KEYS / 8][4], float slope, bool is_first,
                                     float (&o)[N][4], float (&shift)[2]) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float top = fmaxf(s[0][2 * half], s[0][2 * half + 1]);
#pragma unroll
        for (int n = 1; n < KEYS / 8; n++)
            top = fmaxf(top, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
        top = row_max(top) * slope;
        if (!is_first) {
            top = fmaxf(top, shift[half]);
            float shrink = power(shift[half] - top);
#pragma unroll
            for (int n = 0; n < N; n++) {
                o[n][2 * half] *= shrink;
                o[n][2 * half + 1] *= shrink;
            }
        }
        shift[half] = top;
    }
}

/* o (+)= weights of half `part` of the tile times its values; ones stand in columns C to C + 7. */
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
                s[n][i] = power(s[n][i] * slope - shift[i / 2]);
        accumulator_rows(p[k], s, part * STEPS + k);
        asm volatile("" : "+r"(p[k][0]), "+r"(p[k][1]), "+r"(p[k][2]), "+r"(p[k][3]));
    }
    products_begin();
#pragma unroll
    for (int k = 0; k < STEPS; k++) {
        /* 16 rows on in v, and as much nearer to the one tile of ones */
        constexpr int64_t ROWS = 2 * C, NEARER = ROWS << (C == 8 ? 32 : 16);
        wgmma<MN_MAJOR>(o, p[k], values + (uint64_t)((part * STEPS + k) * (ROWS - NEARER)),
                        !is_first || part + k > 0);
    }
    products_commit();
}

__device__ inline float reciprocal(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ inline float logarithm(float x) {
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* `factor` times the sigmoids of two, by one division; below -40 as at -40, 4e-18. */
__device__ inline float2 open_gate(uint32_t two, float factor) {
    __nv_bfloat162 least = __float2bfloat162_rn(-40.0f);
    __nv_bfloat162 bounded = __hmax2_nan(*(__nv_bfloat162 *)&two, least);
    float2 x = __bfloat1622float2(bounded);
    float a = 1.0f + power(x.x * -LOG2E), b = 1.0f + power(x.y * -LOG2E);
    float both = reciprocal(a * b) * factor;
    return {both * b, both * a};
}

/* Two neighbours of a tile in shared memory. */
__device__ inline uint32_t shared_load(uint32_t address) {
    uint32_t two;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(two) : "r"(address) : "memory");
    return two;
}
__device__ inline void shared_store(uint32_t address, uint32_t two) {
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(two) : "memory");
}

/* A warp's rows: divided by their sums, gated, to the place of the gate, and away; and lse. */
template <int C, bool BIASED>
__device__ inline void finish_batch(const forward_call &a, const forward_place &p,
                                    forward_space<C, BIASED> &space, int batch,
                                    float (&o)[C / 8 + 1][4], const float (&shift)[2]) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    int row = p.first_query + warp * 16;
    int64_t plane = ((int64_t)p.group * a.n_batch + batch) * a.n_head + p.head;
    const float inverse[2] = {reciprocal(o[C / 8][0]), reciprocal(o[C / 8][2])};
    /* of chunk n: this, chunks exchanged; 8 rows further on: the same */
    uint32_t first = shared_address(space.g[warp] + tile_at<C>(g, 0) + 2 * t);
    if (a.is_gated) {
        barrier_wait(space.has_g(warp), (uint32_t)(batch - p.first) & 1);
#pragma unroll
        for (int i = 0; i < C / 4; i++) {
            float *pair = &o[i / 2][i % 2 * 2];
            uint32_t gate = shared_load((first ^ i / 2 * 16) + i % 2 * 16 * C);
            float2 open = open_gate(gate, inverse[i % 2]);
            pair[0] *= open.x, pair[1] *= open.y;
        }
    } else {
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
        if (t == 0 && line < a.n_query)
            a.lse[plane * a.n_query + line] = (shift[half] + logarithm(o[C / 8][2 * half])) * LN2;
    }
}

/* Barriers, ones, bits, the first copies. */
template <int C, bool BIASED>
__device__ inline void forward_begin(const forward_call &a, const forward_place &p,
                                     forward_space<C, BIASED> &space) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (threadIdx.x == 0) {
        forward_step first = {0, p.first, 0};
        for (int i = 0; i < STAGES; i++) {
            barrier_init(space.has_k(i), 1);
            barrier_init(space.has_v(i), 1);
            barrier_init(space.free_k(i), WARPS);
            barrier_init(space.free_v(i), WARPS);
        }
        barriers_publish();
        fetch_keys(a, p, space, first);
        fetch_keys(a, p, space, first.next(a.tiles));
    }
    if (lane == 0) {
        barrier_init(space.has_q(warp), 1);
        barrier_init(space.has_g(warp), 1);
        barriers_publish();
        fetch_queries(a, p, space, p.first);
    }
    if (threadIdx.x == 0) {
        if (BIASED) wait_for_previous();
        fetch_values(a, p, space, {0, p.first, 0});
    }
    __syncwarp();
    if (threadIdx.x < 16 * 8)
        space.ones[tile_at<C>(threadIdx.x / 8, 0) + threadIdx.x % 8] = to<bf16>(1.0f);
    find_bits(a, p, space);
    tiles_publish();
    __syncthreads();
}

template <int C, bool BIASED>
__global__ void __launch_bounds__(FORWARD_THREADS, 2)
    wgmma_forward(const __grid_constant__ forward_call a) {
    extern __shared__ __align__(TILE_ALIGN) char memory[];
    forward_space<C, BIASED> &space = *(forward_space<C, BIASED> *)memory;
    forward_place p = forward_place_of(a);
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    forward_begin(a, p, space);
    float o[C / 8 + 1][4], shift[2];
    forward_step at = {0, p.first, 0};
    while (at.batch < p.end) {
        uint32_t q[(C + 15) / 16][4];
        float s[KEYS / 8][4];
        int stage = at.stage();
        bool is_first = at.tile == 0, is_last = at.tile == a.tiles - 1;
        forward_step next = at.next(a.tiles);
        if (is_first) barrier_wait(space.has_q(warp), (uint32_t)(at.batch - p.first) & 1);
        read_queries<C>(q, space.q[warp]);
        barrier_wait(space.has_k(stage), at.turn());
        uint64_t keys = tile_operand<C, K_MAJOR>(space.k[stage]);
        uint64_t values =
            tile_operand<C, MN_MAJOR>(space.v[stage], (int)(space.ones - space.v[stage]));
        products_begin();
#pragma unroll
        for (int k = 0; k < (C + 15) / 16; k++)
            wgmma<K_MAJOR>(s, q[k], operand_after(keys, 16 * k), k > 0);
        products_commit();
        if (lane == 0) {
            if (is_last) fetch_queries(a, p, space, at.batch + 1);
            if (is_first) fetch_gate(a, p, space, at.batch);
            if (warp == 0) fetch_values(a, p, space, next);
        }
        __syncwarp();
        products_wait<0>(s);
        if (lane == 0) barrier_arrive(space.free_k(stage));
        barrier_wait(space.has_v(stage), at.turn());
        if (BIASED) add_bias(s, a.scale, &space.bias[a.tiles == 1 ? 0 : stage][warp * 256]);
        uint4 bits = *space.bits(at.step);
        if (!are_full(bits)) mask_keys(s, bits);
        raise_maximum(s, a.slope, is_first, o, shift);
        products_pin(o);
        add_values<C, 2>(o, s, 0, a.slope, shift, is_first, values);
        add_values<C, 2>(o, s, 1, a.slope, shift, is_first, values);
        if (threadIdx.x == 0) fetch_keys(a, p, space, next.next(a.tiles));
        __syncwarp();
        products_wait<0>(o);
        if (lane == 0) barrier_arrive(space.free_v(stage));
        if (is_last) finish_batch(a, p, space, at.batch, o, shift);
        at = next;
    }
    if (lane == 0) stores_wait();
}

bool attention_wgmma_takes(const fm_attention *a) {
    int64_t tiles = divide_up(a->n_key, KEYS);
    return a->n_query > GROUP_ROWS && a->n_key > GROUP_ROWS && tiles <= 16 && a->mask_value >= 1e4;
}

/* How many blocks share the batches of a (group, head, queries): the fewest rounds of blocks, each
 * as long as its batches and about one more. */
static int choose_shares(int64_t combinations, int64_t n_batch, int64_t most) {
    const int64_t SLOTS = 2 * 132;
    int64_t best = n_batch, least = INT64_MAX;
    for (int64_t shares = divide_up(n_batch, most); shares <= n_batch; shares++) {
        int64_t cost = divide_up(combinations * shares, SLOTS) * (divide_up(n_batch, shares) + 1);
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
static void forward_run(fm_stream *stream, const fm_attention *a, const attention_space *places) {
    typedef forward_space<C, BIASED> space;
    static_assert(sizeof(space) <= 113 << 10, "two blocks share a multiprocessor");
    forward_call call = {};
    call.q = attention_boxes(a, a->q, a->q_stride, a->n_query, C, 16);
    call.k = attention_boxes(a, a->k, a->k_stride, a->n_key, C, KEYS);
    call.v = attention_boxes(a, a->v, a->v_stride, a->n_key, C, KEYS);
    if (a->g) call.g = attention_boxes(a, a->g, a->g_stride, a->n_query, C, 16);
    call.o = attention_boxes(a, a->o, a->o_stride, a->n_query, C, 16);
    call.is_gated = a->g != NULL;
    call.bias = (const uint4 *)places->bias, call.mask = (const bf16 *)a->mask;
    call.lse = (float *)a->lse;
    for (int i = 0; i < 3; i++)
        call.mask_stride[i] = a->mask_stride[i];
    call.n_query = (int)a->n_query, call.n_key = (int)a->n_key;
    call.n_head = (int)a->n_head, call.n_batch = (int)a->n_batch;
    call.tiles = (int)divide_up(a->n_key, KEYS), call.blocks = (int)divide_up(a->n_query, QUERIES);
    call.columns = (int)(places->ld_bias / TILE), call.strips = (int)(places->ld_bias_t / 16);
    call.scale = BIASED ? (float)a->scale : 1.0f;
    call.slope = BIASED ? LOG2E : (float)a->scale * LOG2E;
    int64_t combinations = a->n_group * a->n_head * call.blocks;
    int64_t most = (space::PLACES_THERE - space::BITS) / call.tiles;
    call.shares = choose_shares(combinations, a->n_batch, most);
    call.per = (int)divide_up(a->n_batch, call.shares);
    auto kernel = wgmma_forward<C, BIASED>;
    cudaError_t failed = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                              (int)sizeof(space));
    assert(failed == cudaSuccess);
    (void)failed;
    launch_after(stream, kernel, (unsigned)(combinations * call.shares), FORWARD_THREADS,
                 sizeof(space), BIASED, call);
}

void attention_wgmma(fm_stream *stream, const fm_attention *a, const attention_space *space) {
    if (a->c_head <= 8) {
        (a->bias ? forward_run<8, true> : forward_run<8, false>)(stream, a, space);
    } else if (a->c_head <= 16) {
        (a->bias ? forward_run<16, true> : forward_run<16, false>)(stream, a, space);
    } else {
        (a->bias ? forward_run<32, true> : forward_run<32, false>)(stream, a, space);
    }
}

} // namespace fm_cuda
