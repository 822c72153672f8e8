/* template.h: the template embedders.
 *
 *     pair       t_ij = Linear(88 features of template pair ij)                     A2:9-10
 *     attention  z_ij += W_o attention(q from z_ij; k, v from LayerNorm(t_ij) of all templates)
 *                                                                              A16:7, A17
 *     rows       m = [m; Linear(relu(Linear(torsion features)))]: one row per template  A2:7-8
 *
 * A template is a slice of tensors [N_templ, ...] of the state, and has its own pair
 * representation [N_res, N_res, c_t]. Where one rank has everything, those of all templates are
 * one tensor [N_templ, N_res, N_res, c_t]. The 88 features of a pair (supplement 1.7.1) are never
 * stored:
 *
 *     39   bins of the distance of the pseudo-beta atoms (lower edges 3.25 .. 50.75 Å)
 *      1   both pseudo-beta atoms are known
 *     22   the type of j
 *     22   the type of i
 *      3   a unit vector, which the reference sets to 0
 *      1   both backbones (N, CA, C) are known; it multiplies all others */
#ifndef FM_TRAINER_TEMPLATE_H
#define FM_TRAINER_TEMPLATE_H

#include "trainer/autograd/tape.h"

enum {
    FM_TEMPLATE_BINS = 39,
    FM_TEMPLATE_CLASSES = 22, /* 20 types, unknown, gap */
    FM_TEMPLATE_PAIR_FEATURES = 88,
    /* One-hot type, 7 sines and cosines, the 7 of the alternative naming, 7 masks. */
    FM_TEMPLATE_ROW_FEATURES = 57,
    FM_MAX_TEMPLATE = 4,
};

typedef struct fm_template_pair_weights {
    fm_param_ref w, b; /* [c_t, 88], [c_t] */
    int64_t c_t;
} fm_template_pair_weights;

/* Tensors of the state. */
typedef struct fm_template_pair_inputs {
    fm_tensor_ref aatype;           /* u8 [N_templ, N_res] 0..21 */
    fm_tensor_ref pseudo_beta;      /* f32 [N_templ, N_res, 3] Å */
    fm_tensor_ref pseudo_beta_mask; /* act [N_templ, N_res] */
    fm_tensor_ref backbone_mask;    /* act [N_templ, N_res] */
} fm_template_pair_inputs;

/* Returns [N_res, N_res, c_t] of template `index`, of which this rank makes the rows of `part`. */
fm_tensor_ref fm_op_template_pair(fm_tape *tape, const fm_template_pair_inputs *inputs,
                                  int64_t index, const fm_template_pair_weights *weights,
                                  fm_part part);
/* Returns [N_templ, N_res, N_res, c_t], of which this rank makes the templates of `part`. */
fm_tensor_ref fm_op_template_pairs(fm_tape *tape, const fm_template_pair_inputs *inputs,
                                   const fm_template_pair_weights *weights, fm_part part);

typedef struct fm_template_attention_weights {
    fm_param_ref norm;          /* [2, c_t]: the end of the template pair stack, A16:7 */
    fm_param_ref q;             /* [N_head * c_head, c_z] */
    fm_param_ref kv;            /* [2 * N_head * c_head, c_t] */
    fm_param_ref out, out_bias; /* [c_z, N_head * c_head], [c_z] */
    int64_t n_head, c_head;
} fm_template_attention_weights;

/* t[0..n_part-1], n_part <= FM_MAX_TEMPLATE: either one [N_res, N_res, c_t] per template, or
 * one [N_templ, N_res, N_res, c_t] of all; mask act [N_templ]; any act [1]: 1 when there is a
 * template, else the update is 0. z [N_res, N_res, c_z]. Returns the new z, or the bare update
 * when !residual. Saved: q, k v, o, log-sum-exp. */
fm_tensor_ref fm_op_template_attention(fm_tape *tape, fm_tensor_ref z, const fm_tensor_ref *t,
                                       int n_part, fm_tensor_ref mask, fm_tensor_ref any,
                                       const fm_template_attention_weights *weights, bool residual);

typedef struct fm_template_row_weights {
    fm_param_ref w1, b1, w2, b2; /* [c_m, 57], [c_m], [c_m, c_m], [c_m] */
    int64_t c_m;
} fm_template_row_weights;

/* m [N_seq, N_res, c_m] and features act [N_templ, N_res, 57] may be split along the residues.
 * Returns [N_seq + N_templ, N_res, c_m], split as they are. */
fm_tensor_ref fm_op_template_rows(fm_tape *tape, fm_tensor_ref m, fm_tensor_ref features,
                                  const fm_template_row_weights *weights);

#endif
