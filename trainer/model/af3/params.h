/* params.h: adds the rows of AlphaFold 3's parameter table.
 *
 * A row has the name of the reference implementation, for both its name and its OpenFold name. Each
 * module has a function that adds its rows and returns its weights. Only these functions decide
 * which matrices are stored side by side in a block (tensor/params.h). */
#ifndef FM_TRAINER_AF3_PARAMS_H
#define FM_TRAINER_AF3_PARAMS_H

#include "trainer/model/parameters.h"

/* The distribution of a parameter's initial values. */
typedef enum fm_af3_start {
    FM_AF3_ZERO,
    FM_AF3_ONE,
    FM_AF3_MINUS_TWO, /* biases of the gates that end a conditioned sublayer */
    FM_AF3_DEFAULT,   /* normal cut at two deviations, deviation sqrt(1 / fan_in) */
    FM_AF3_HE         /* the same with sqrt(2 / fan_in), before a ReLU or SiLU */
} fm_af3_start;

/* Returns the scope of a module inside another; `name` ends in '.'. */
fm_scope fm_af3_enter(const fm_scope *scope, const char *name);
/* The same for block `index` of a stack: "NAME.INDEX.". */
fm_scope fm_af3_enter_block(const fm_scope *scope, const char *name, int32_t index);

/* Opens a new block. */
fm_param_ref fm_af3_block(const fm_scope *scope);
/* Appends the parameter "SCOPE NAME" to the newest block: [c_out, c_in], or [c_out] where c_in is
 * 0. */
void fm_af3_add(const fm_scope *scope, const char *name, int64_t c_out, int64_t c_in,
                fm_af3_start start);
/* Adds a block of one parameter. */
fm_param_ref fm_af3_add_block(const fm_scope *scope, const char *name, int64_t c_out, int64_t c_in,
                              fm_af3_start start);
/* Adds a block of one stack of matrices [n, c_in, c_out], which starts as 0. */
fm_param_ref fm_af3_add_stack(const fm_scope *scope, const char *name, int64_t n, int64_t c_in,
                              int64_t c_out);
/* Adds a block of a linear layer without bias, NAME.weight. */
fm_linear_weights fm_af3_linear(const fm_scope *scope, const char *name, int64_t c_in,
                                int64_t c_out, fm_af3_start start);
/* The same with NAME.bias. */
fm_linear_weights fm_af3_linear_with_bias(const fm_scope *scope, const char *name, int64_t c_in,
                                          int64_t c_out, fm_af3_start start,
                                          fm_af3_start bias_start);
/* Adds the block [2, c] of a LayerNorm: NAME.weight, then NAME.bias. */
fm_param_ref fm_af3_norm(const fm_scope *scope, const char *name, int64_t c);

#endif
