/* island.h: which parts of AlphaFold 3's network run on which table of a tape (autograd/tape.h).
 *
 * Coordinates, noise levels, layers that read or make coordinates, the heads of the confidence
 * module, and all losses are always islands: they run on the wide table. The rest of the diffusion
 * module runs on the table of its products: the wide one for f32, that of tf32, or the main one for
 * bf16. With a table that has no wide one, nothing is cast. */
#ifndef FM_TRAINER_AF3_ISLAND_H
#define FM_TRAINER_AF3_ISLAND_H

#include "trainer/autograd/tape.h"
#include "trainer/model/af3/config.h"

/* The table of the diffusion module, given the main one. fm_af3_check_products says whether the
 * backend has it. */
static inline const fm_kernels *fm_af3_diffusion_table(const fm_af3_config *config,
                                                       const fm_kernels *kernels) {
    fm_af3_products products = config->products;
    if (products == FM_AF3_PRODUCTS_AUTO) {
        products = kernels->wide && kernels->tf32 ? FM_AF3_PRODUCTS_TF32 : FM_AF3_PRODUCTS_F32;
    }
    if (products == FM_AF3_PRODUCTS_BF16) return kernels;
    if (products == FM_AF3_PRODUCTS_TF32) return kernels->tf32;
    return kernels->wide ? kernels->wide : kernels;
}

#endif
