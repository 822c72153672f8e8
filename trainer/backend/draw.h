/* draw.h: the trainer's random numbers: which Philox counter belongs to which element.
 *
 * A word is a pure function of (seed; step, slot, cycle, layer, purpose, element index). So a rank
 * that holds a slice of a tensor can make its slice of the common mask, and no mask is stored. The
 * words of the counter are
 *
 *     0  element index / 4          (four words come from one block: lane = index % 4)
 *     1  step
 *     2  layer + (cycle / 256) << 24
 *     3  purpose << 24 | (cycle % 256) << 16 | slot
 *
 * and the key is the seed. The values step, slot and cycle change between replays of a captured
 * graph, so they are read from device memory ("the clock"); layer and purpose are constants of the
 * call. All arithmetic is on integers, so every device makes the same words.
 * docs/reference/numerics.md describes the scheme for other implementations. */
#ifndef FM_BACKEND_DRAW_H
#define FM_BACKEND_DRAW_H

#include "proto/base/rng.h"

#include <stdint.h>

/* The purpose of a draw. The values are part of "same seed, same bits" and never change. */
typedef enum fm_draw_purpose {
    FM_PURPOSE_INIT = 1,    /* initial parameters; layer = the number of the parameter */
    FM_PURPOSE_DROPOUT = 2, /* dropout masks; layer = the number of the op */
    /* Noisy structures: layer = fm_draw_structures. In a rollout and in sampling, the clock's cycle
     * is the number of the denoising step. In sampling each structure has a clock of its own, whose
     * slot is the structure's number. */
    FM_PURPOSE_ROTATION = 3,
    FM_PURPOSE_OFFSET = 4,
    FM_PURPOSE_NOISE = 5,
    FM_PURPOSE_LEVEL = 6,
    FM_PURPOSE_CONSTANT = 7, /* values that are never trained; layer = which of them */
    FM_PURPOSE_START = 8,    /* structures at the first noise level; layer as above */
    FM_PURPOSE_MSA_ROWS = 9, /* rows that a cycle of AlphaFold 3 reads */
    /* Where reference conformers are placed: layer = fm_draw_placement; words 4 u to 4 u + 3 are of
     * the conformer with ref_space_uid u. */
    FM_PURPOSE_CONFORMER = 10,
} fm_draw_purpose;

/* Whose structures draw. */
typedef enum fm_draw_structures {
    FM_DRAW_TRAINING = 0,
    FM_DRAW_ROLLOUT = 1,
    FM_DRAW_SAMPLING = 2,
} fm_draw_structures;

/* What of a conformer is drawn. */
typedef enum fm_draw_placement {
    FM_DRAW_TRANSLATION = 0,
    FM_DRAW_ROTATION = 1,
} fm_draw_placement;

/* The words of the clock. */
enum { FM_CLOCK_STEP = 0, FM_CLOCK_SLOT = 1, FM_CLOCK_CYCLE = 2, FM_CLOCK_WORDS = 4 };

typedef struct fm_draw {
    uint64_t seed;
    const uint32_t *clock; /* [FM_CLOCK_WORDS] in device memory: optimiser step, slot of the sample
                              in the global batch (< 65536), recycling cycle (< 65536), 0. NULL
                              reads as zeros */
    uint32_t layer;        /* which op or parameter of the model; < 2^24 where there is a clock */
    uint32_t purpose;      /* fm_draw_purpose, < 256 */
} fm_draw;

/* The counter of element 0. Kernels that draw again and again make it once, because it reads the
 * clock. */
FM_HOST_DEVICE static inline fm_philox_counter fm_draw_counter(const fm_draw *draw) {
    uint32_t step = draw->clock ? draw->clock[FM_CLOCK_STEP] : 0;
    uint32_t slot = draw->clock ? draw->clock[FM_CLOCK_SLOT] : 0;
    uint32_t cycle = draw->clock ? draw->clock[FM_CLOCK_CYCLE] : 0;
    return (fm_philox_counter){{0, step, draw->layer + (cycle >> 8 << 24),
                                draw->purpose << 24 | (cycle & 0xff) << 16 | (slot & 0xffff)}};
}

/* The block of four words that element `index` (< 2^34) takes its word from, of a draw whose
 * element 0 has the counter `first`. It is shared by elements index - index % 4 to index - index %
 * 4 + 3. */
FM_HOST_DEVICE static inline fm_philox_counter
fm_draw_block_after(const fm_draw *draw, fm_philox_counter first, uint64_t index) {
    first.word[0] = (uint32_t)(index >> 2);
    return fm_philox(draw->seed, first);
}
FM_HOST_DEVICE static inline fm_philox_counter fm_draw_block(const fm_draw *draw, uint64_t index) {
    return fm_draw_block_after(draw, fm_draw_counter(draw), index);
}

/* The uniform 32-bit word of element `index` (index < 2^34). */
FM_HOST_DEVICE static inline uint32_t fm_draw_word(const fm_draw *draw, uint64_t index) {
    return fm_draw_block(draw, index).word[index & 3];
}

/* An element is dropped when its word is below this. rate is in [0, 1). */
FM_HOST_DEVICE static inline uint32_t fm_drop_threshold(double rate) {
    return (uint32_t)(rate * 4294967296.0);
}

/* Which axis of an update [n0, n1, c] shares its dropout mask. */
typedef enum fm_shared_axis {
    FM_SHARED_NONE = 0,  /* one draw per element (structure module) */
    FM_SHARED_AXIS0 = 1, /* mask [1, N1, c]: MSA row attention, triangle updates */
    FM_SHARED_AXIS1 = 2, /* mask [N0, 1, c]: attention around the ending node */
} fm_shared_axis;

/* Index of the draw of global element (i, j, k) of [N0, N1, c]. */
FM_HOST_DEVICE static inline uint64_t fm_dropout_index(fm_shared_axis shared, uint64_t i,
                                                       uint64_t j, uint64_t k, uint64_t n1,
                                                       uint64_t c) {
    uint64_t row = shared == FM_SHARED_AXIS0 ? j : shared == FM_SHARED_AXIS1 ? i : i * n1 + j;
    return row * c + k;
}

#endif
