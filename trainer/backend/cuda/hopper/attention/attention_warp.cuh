/* attention_warp.cuh: what a warp of attention_warp.cu does with a tile of keys: fragments, logits,
 * weights and products with values. */
#ifndef FM_BACKEND_CUDA_ATTENTION_WARP_CUH
#define FM_BACKEND_CUDA_ATTENTION_WARP_CUH

#include "trainer/backend/cuda/hopper/attention/attention_forward.cuh"

namespace fm_cuda {

enum {
    TEAM_WARPS = 4, /* the warps of a team share its keys */
    ROWS = 32,      /* queries of a warp */
    QUERIES = TEAM_WARPS * ROWS,
    KEYS = 64, /* of a tile */
    UNITS = KEYS / 16 * 2
};

/* d = a b + a row of start values that all rows of the result share, with a sum over eight. */
__device__ inline void mma_eight_from(float d[4], uint32_t a0, uint32_t a1, uint32_t b,
                                      const float (&from)[2]) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5}, {%6}, {%7,%8,%7,%8};"
                 : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
                 : "r"(a0), "r"(a1), "r"(b), "f"(from[0]), "f"(from[1]));
}
__device__ inline void ldmatrix_trans_at(uint32_t r[4], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

/* What a lane keeps through the walk, and the addresses that it reads from. */
template <int C> struct warp_lane {
    static constexpr int STEPS = (C + 15) / 16; /* of a sum over channels */
    uint32_t q[2][STEPS][4];
    uint32_t keys, values, bias; /* offsets of the lane's first fragment from a tile's begin */
    uint32_t diagonal;
};

/* The right operand of the logits' product for the 16 keys of a step: for 8 channels, a register
 * has 8 keys, and x4 reads 32. */
template <int C> struct key_rows {
    static constexpr int PARTS = (C + 15) / 16;
    uint32_t r[PARTS][4];
    __device__ void load_part(uint32_t keys, int step, int part) {
        ldmatrix(r[part], (keys ^ part * 32) + step * 32 * C);
    }
    __device__ void load(uint32_t keys, int step) {
#pragma unroll
        for (int k = 0; k < PARTS; k++)
            load_part(keys, step, k);
    }
};
template <int C> struct value_rows {
    static constexpr int PARTS = (C + 15) / 16;
    uint32_t r[PARTS][4];
    __device__ void load_part(uint32_t values, int step, int part) {
        ldmatrix_trans_at(r[part], (values ^ part * 32) + step * 32 * C);
    }
    __device__ void load(uint32_t values, int step) {
#pragma unroll
        for (int n = 0; n < PARTS; n++)
            load_part(values, step, n);
    }
    /* Zero, from the registers that were read, so that an address with it added waits for them.
     * `small` is a number below 256 that the compiler does not know. */
    __device__ uint32_t after_reads(uint32_t small) const {
        uint32_t all = 0;
#pragma unroll
        for (int n = 0; n < PARTS; n++)
            all |= r[n][3];
        return all & small >> 8;
    }
};

/* Part `part` of s = logits / scale of 16 queries and 16 keys: part 0 is the bias, and each further
 * part adds 16 channels, or all 8. `second`: with 8 channels, the second 16 of the 32 keys. */
template <int C>
__device__ inline void start_part(float (&s)[2][4], int part, const uint32_t (&q)[(C + 15) / 16][4],
                                  const key_rows<C> &keys, int second, const uint32_t (&bias)[4],
                                  uint32_t diagonal, const float (&from)[2][2]) {
    const int k = part - 1;
#pragma unroll
    for (int n = 0; n < 2; n++) {
        if (part == 0) {
            mma_eight_from(s[n], bias[2 * n], bias[2 * n + 1], diagonal, from[n]);
        } else if (C == 8) {
            mma_eight(s[n], q[0][0], q[0][1], keys.r[0][2 * second + n]);
        } else {
            mma(s[n], q[k], keys.r[k][2 * n], keys.r[k][2 * n + 1]);
        }
    }
}
template <int C>
__device__ inline void start_logits(float (&s)[2][4], const uint32_t (&q)[(C + 15) / 16][4],
                                    const key_rows<C> &keys, int second, const uint32_t (&bias)[4],
                                    uint32_t diagonal, const float (&from)[2][2]) {
#pragma unroll
    for (int part = 0; part < 1 + (C + 15) / 16; part++)
        start_part<C>(s, part, q, keys, second, bias, diagonal, from);
}

/* What the logits of step `step` of a tile start from: MASKED where a key is not valid. */
__device__ inline void start_values(float (&from)[2][2], uint64_t valid, int step) {
    uint32_t pairs = (uint32_t)(valid >> 16 * step) >> 2 * (threadIdx.x % 4);
#pragma unroll
    for (int n = 0; n < 2; n++)
#pragma unroll
        for (int i = 0; i < 2; i++)
            from[n][i] = pairs >> (8 * n + i) & 1 ? 0.0f : MASKED;
}

/* What a lane sums over the keys of a batch. */
template <int C> struct warp_sums {
    /* Whether ones beside v give the sums of the weights; otherwise they are lane by lane. */
    static constexpr bool BY_PRODUCT = C == 8;
    float o[2][C / 8][4], ones[2][BY_PRODUCT ? 4 : 2];

    __device__ float &sum(int m, int half) {
        return ones[m][BY_PRODUCT ? 2 * half : half];
    }
    __device__ void clear() {
#pragma unroll
        for (int m = 0; m < 2; m++) {
#pragma unroll
            for (int i = 0; i < (BY_PRODUCT ? 4 : 2); i++)
                ones[m][i] = 0;
#pragma unroll
            for (int n = 0; n < C / 8; n++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    o[m][n][i] = 0;
        }
    }
    __device__ void scale(int m, int half, float factor) {
        ones[m][BY_PRODUCT ? 2 * half : half] *= factor;
        if (BY_PRODUCT) ones[m][(2 * half + 1) % (BY_PRODUCT ? 4 : 2)] *= factor;
#pragma unroll
        for (int n = 0; n < C / 8; n++) {
            o[m][n][2 * half] *= factor;
            o[m][n][2 * half + 1] *= factor;
        }
    }
};

/* The addresses of a tile's fragments. */
struct tile_address {
    uint32_t keys, values, bias;
};

/* A tile with masked keys: o += weights times values, with the shift as it is. A unit is 16 queries
 * by 16 keys; the next unit's logits start before the weights of this one. */
template <int C>
__device__ inline void add_tile(warp_sums<C> &sums, const warp_lane<C> &lane,
                                const tile_address &at, uint64_t valid, float slope,
                                const float (&shift)[2][2]) {
    constexpr int STRIDE = C == 8 ? 2 : 1; /* steps that one load serves */
    constexpr uint32_t ONES = 0x3f803f80;
    key_rows<C> keys;
    value_rows<C> values;
    uint32_t bias[4] = {};
    float s[2][2][4], from[2][2];
    keys.load(at.keys, 0);
    ldmatrix(bias, at.bias);
    values.load(at.values, 0);
    start_values(from, valid, 0);
    start_logits<C>(s[0], lane.q[0], keys, 0, bias, lane.diagonal, from);
    ldmatrix(bias, at.bias + 16 * KEYS * (int)sizeof(bf16));
#pragma unroll
    for (int u = 0; u < UNITS; u++) {
        const int m = u % 2, step = u / 2, next = u + 1, after = u + 2;
        if (next < UNITS) {
            start_values(from, valid, next / 2);
            start_logits<C>(s[next % 2], lane.q[next % 2], keys, next / 2 % STRIDE, bias,
                            lane.diagonal, from);
            if (m == 0 && step + 1 < UNITS / 2 && (step + 1) % STRIDE == 0) {
                keys.load(at.keys, step + 1);
            }
        }
        if (after < UNITS) {
            ldmatrix(bias,
                     (at.bias ^ after / 2 * 32) + after % 2 * (16 * KEYS * (int)sizeof(bf16)));
        }
        float(&x)[2][4] = s[u % 2];
#pragma unroll
        for (int n = 0; n < 2; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                x[n][i] = exp2_fast(x[n][i] * slope - shift[m][i / 2]);
        uint32_t p[4];
        accumulator_rows(p, x, 0);
        if (!warp_sums<C>::BY_PRODUCT) {
#pragma unroll
            for (int half = 0; half < 2; half++) {
                sums.ones[m][half] +=
                    (x[0][2 * half] + x[0][2 * half + 1]) + (x[1][2 * half] + x[1][2 * half + 1]);
            }
        }
#pragma unroll
        for (int n = 0; n < C / 8; n++) {
            int pair = C == 8 ? step % 2 : n % 2;
            mma(sums.o[m][n], p, values.r[n / 2][2 * pair], values.r[n / 2][2 * pair + 1]);
        }
        if constexpr (warp_sums<C>::BY_PRODUCT) mma(sums.ones[m], p, ONES, ONES);
        if (m == 1 && step + 1 < UNITS / 2 && (step + 1) % STRIDE == 0) {
            values.load(at.values, step + 1);
        }
    }
}

/* A walk over keys that are all valid, in which a step makes the logits of the next 16 keys, the
 * weights of these, and the products of the last ones with their values. Nothing in a step waits
 * for something else in it. */
template <int C> struct warp_pipe {
    static constexpr int PARTS = (C + 15) / 16;
    float s[2][2][2][4];  /* [step % 2][16 queries][8 keys] */
    uint32_t p[2][2][4];  /* [step % 2][16 queries] */
    uint32_t bias[2][4];  /* of the next step's keys */
    key_rows<C> keys;     /* of the next step */
    value_rows<C> values; /* of the last step */

    __device__ void load_bias(uint32_t at, int step) {
#pragma unroll
        for (int m = 0; m < 2; m++)
            ldmatrix(bias[m], (at ^ step * 32) + m * (16 * KEYS * (int)sizeof(bf16)));
    }

    /* Makes the logits of a batch's first keys. */
    __device__ void begin(const warp_lane<C> &lane, const tile_address &at) {
        const float from[2][2] = {};
        keys.load(at.keys, 0);
        load_bias(at.bias, 0);
#pragma unroll
        for (int m = 0; m < 2; m++) {
            start_logits<C>(s[0][m], lane.q[m], keys, 0, bias[m], lane.diagonal, from);
#pragma unroll
            for (int i = 0; i < 4; i++)
                p[1][m][i] = 0;
        }
#pragma unroll
        for (int n = 0; n < PARTS; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                values.r[n][i] = 0;
        if (C > 8) keys.load(at.keys, 1);
        load_bias(at.bias, 1);
    }

    /* The maxima of the first logits. */
    __device__ void find_shift(float slope, float (&shift)[2][2]) const {
#pragma unroll
        for (int m = 0; m < 2; m++) {
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const float(&x)[2][4] = s[0][m];
                float top = fmaxf(fmaxf(x[0][2 * half], x[0][2 * half + 1]),
                                  fmaxf(x[1][2 * half], x[1][2 * half + 1]));
                shift[m][half] = row_max(top) * slope;
            }
        }
    }

    /* Products of the step before with columns 8 n on of its values. */
    template <int STEP> __device__ void add_columns(warp_sums<C> &sums, int n) {
        constexpr uint32_t ONES = 0x3f803f80;
        constexpr int LAST = (STEP + 3) % 4;
#pragma unroll
        for (int m = 0; m < 2; m++) {
            if (n < C / 8) {
                int pair = C == 8 ? LAST % 2 : n % 2;
                mma(sums.o[m][n % (C / 8)], p[LAST % 2][m], values.r[n / 2 % PARTS][2 * pair],
                    values.r[n / 2 % PARTS][2 * pair + 1]);
            } else if constexpr (warp_sums<C>::BY_PRODUCT) {
                if (n == C / 8) mma(sums.ones[m], p[LAST % 2][m], ONES, ONES);
            }
        }
    }

    /* Step STEP of the four of a tile at `at`; `next` is the tile of the step after the next. */
    template <int STEP>
    __device__ void step(warp_sums<C> &sums, const warp_lane<C> &lane, const tile_address &at,
                         const tile_address &next, float slope, const float (&shift)[2][2]) {
        constexpr int AFTER = (STEP + 2) % 4;
        constexpr bool LOADS = C > 8 || STEP % 2 == 0;
        const float from[2][2] = {};
#pragma unroll
        for (int quarter = 0; quarter < 4; quarter++) {
            const int m = quarter / 2, n = quarter % 2;
            float(&x)[2][4] = s[STEP % 2][m];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                x[n][i] = exp2_fast(x[n][i] * slope - shift[m][i / 2]);
                if (i == 1 && quarter < 1 + PARTS) {
#pragma unroll
                    for (int of = 0; of < 2; of++) {
                        start_part<C>(s[(STEP + 1) % 2][of], quarter, lane.q[of], keys,
                                      (STEP + 1) % 2, bias[of], lane.diagonal, from);
                    }
                }
                if (i == 3) add_columns<STEP>(sums, quarter);
            }
            if (!warp_sums<C>::BY_PRODUCT) {
                sums.ones[m][0] += x[n][0] + x[n][1];
                sums.ones[m][1] += x[n][2] + x[n][3];
            }
            if (n == 1) accumulator_rows(p[STEP % 2][m], x, 0);
            if (quarter == 0) load_bias(next.bias, AFTER);
            const int part = quarter - 1;
            if (part >= 0 && part < PARTS && LOADS) keys.load_part(next.keys, AFTER, part);
            if (quarter % 2 == 1 && quarter / 2 < PARTS && LOADS) {
                values.load_part(at.values, STEP, quarter / 2);
            }
        }
    }
};

/* Raises the shifts to the maxima of the tile's steps [first, end), and scales sums down
 * accordingly. */
template <int C>
__device__ inline void raise_shift(warp_sums<C> &sums, const warp_lane<C> &lane,
                                   const tile_address &at, uint64_t valid, float slope, int first,
                                   int end, bool is_first, float (&shift)[2][2]) {
    float top[2][2] = {{-INFINITY, -INFINITY}, {-INFINITY, -INFINITY}};
#pragma unroll 1
    for (int step = first; step < end; step++) {
        key_rows<C> keys;
        float from[2][2];
        keys.load(at.keys, step);
        start_values(from, valid, step);
#pragma unroll
        for (int m = 0; m < 2; m++) {
            uint32_t bias[4] = {};
            float s[2][4];
            ldmatrix(bias, (at.bias ^ step * 32) + m * (16 * KEYS * (int)sizeof(bf16)));
            start_logits<C>(s, lane.q[m], keys, 0, bias, lane.diagonal, from);
#pragma unroll
            for (int half = 0; half < 2; half++) {
                float a = fmaxf(s[0][2 * half], s[0][2 * half + 1]);
                float b = fmaxf(s[1][2 * half], s[1][2 * half + 1]);
                top[m][half] = fmaxf(top[m][half], fmaxf(a, b));
            }
        }
    }
#pragma unroll
    for (int m = 0; m < 2; m++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float now = row_max(top[m][half]) * slope;
            if (!is_first) {
                now = fmaxf(now, shift[m][half]);
                sums.scale(m, half, exp2_fast(shift[m][half] - now));
            }
            shift[m][half] = now;
        }
    }
}

} // namespace fm_cuda

#endif
