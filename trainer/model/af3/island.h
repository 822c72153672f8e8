/* island.h: which parts of AlphaFold 3's network run on a tape's wide table (autograd/tape.h).
 *
 * Coordinates, noise levels, layers that read or make coordinates, the heads of the confidence
 * module, and all losses are always islands. The rest of the diffusion module is one as well,
 * unless its products are those of bf16. With a table that has no wide one, nothing is cast. */
#ifndef FM_TRAINER_AF3_ISLAND_H
#define FM_TRAINER_AF3_ISLAND_H

#include "trainer/autograd/tape.h"
#include "trainer/model/af3/config.h"

/* Makes the wide table current, unless it is current already. The result is for
 * fm_af3_leave_island, so that parts of an island may be islands themselves. */
static inline bool fm_af3_enter_island(fm_tape *tape) {
    bool is_outermost = tape->kernels == tape->main_kernels;
    if (is_outermost) fm_tape_enter_island(tape);
    return is_outermost;
}
static inline void fm_af3_leave_island(fm_tape *tape, bool is_outermost) {
    if (is_outermost) fm_tape_leave_island(tape);
}

/* Whether the whole diffusion module is an island. */
static inline bool fm_af3_widens_diffusion(const fm_af3_config *config) {
    return config->products != FM_AF3_PRODUCTS_BF16;
}

/* The type of the diffusion module's activations. */
static inline fm_element fm_af3_diffusion_element(const fm_af3_config *config,
                                                  const fm_kernels *kernels) {
    return fm_af3_widens_diffusion(config) ? kernels->acc : kernels->act;
}

#endif
