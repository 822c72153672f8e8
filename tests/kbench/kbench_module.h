/* kbench_module.h: whole sublayers of the trunk as the model runs them: one op of trainer/ops on
 * its own tape, over any kernel table. */
#ifndef FM_TESTS_KBENCH_MODULE_H
#define FM_TESTS_KBENCH_MODULE_H

#include "trainer/backend/kernels.h"

typedef enum kbench_sublayer {
    KBENCH_ROW,
    KBENCH_COLUMN,
    KBENCH_STARTING,
    KBENCH_ENDING,
    KBENCH_GLOBAL_COLUMN,
    KBENCH_TRANSITION,
    KBENCH_OUTER,
    KBENCH_OUTGOING,
    KBENCH_INCOMING,
} kbench_sublayer;

/* x [n0, n1, c]; z [n1, n1, c_z] beside it for rows (read) and the outer product mean (updated). */
typedef struct kbench_shape {
    kbench_sublayer kind;
    int64_t n0, n1, c, c_z;
    int64_t n_head, c_inner; /* channels of a head, of the outer product, of the triangle; factor of
                                the transition */
    double dropout;
} kbench_shape;

typedef struct kbench_module kbench_module;

/* A tensor of the module: where, how many elements, and in which range it is drawn. */
typedef struct kbench_tensor {
    const char *name;
    void *data;
    int64_t count;
    double range; /* 0: a mask */
} kbench_tensor;

enum { KBENCH_TENSORS = 16 };

/* Records the tape, plans it and allocates memory from the table; ends the program when that fails.
 */
kbench_module *kbench_module_create(const fm_kernels *kernels, const kbench_shape *shape);
void kbench_module_destroy(kbench_module *module);

/* Inputs, act, to be filled before the first forward: x, its mask, z. Returns how many. */
int kbench_module_inputs(kbench_module *module, kbench_tensor out[KBENCH_TENSORS]);
/* Parameters, acc, a block each, to be filled, then taken over. */
int kbench_module_parameters(kbench_module *module, kbench_tensor out[KBENCH_TENSORS]);
void kbench_module_refresh(kbench_module *module);
/* Gradients of the parameters, acc, a block each. */
int kbench_module_gradients(kbench_module *module, kbench_tensor out[KBENCH_TENSORS]);
/* The updated tensor, act. */
kbench_tensor kbench_module_output(kbench_module *module);
/* Its gradient, act, to be filled before each backward, which leaves there the gradient of the
 * residual's input. */
kbench_tensor kbench_module_output_gradient(kbench_module *module);
/* The other input's gradient, act: of m in an outer product mean, of z in rows; count 0: none. */
kbench_tensor kbench_module_other_gradient(kbench_module *module);

void kbench_module_forward(kbench_module *module, fm_stream *stream);
void kbench_module_backward(kbench_module *module, fm_stream *stream);
/* Matrix products and attentions, of forward or backward. */
double kbench_module_flops(const kbench_module *module, bool backward);

#endif
