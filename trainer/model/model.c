/* model.c: see model.h. The parts of a cycle are recorded in the order of Algorithm 2: embedders,
 * template stack, extra MSA stack, Evoformer, structure module. Under Branch Parallelism the rank
 * of the MSA branch omits the nodes that make z, and the rank of the pair branch those that make m
 * (split.h). */
#include "trainer/model/model.h"

#include "trainer/dist/groups.h"
#include "trainer/ops/cast.h"
#include "trainer/ops/store.h"

static void declare_extra_msa(fm_state *state, const fm_model_config *c, fm_element act,
                              fm_model_inputs *in) {
    const int64_t extra[] = {c->n_extra, c->n_res};
    in->extra_msa = in->extra_deletion = in->extra_msa_mask = -1;
    if (c->n_extra_block > 0) {
        in->extra_msa = fm_state_add(state, "extra_msa", FM_ELEMENT_U8, 2, extra);
        in->extra_deletion = fm_state_add(state, "extra_deletion_matrix", FM_ELEMENT_U16, 2, extra);
        in->extra_msa_mask = fm_state_add(state, "extra_msa_mask", act, 2, extra);
    }
}

static void declare_templates(fm_state *state, const fm_model_config *c, fm_element act,
                              fm_model_inputs *in) {
    const int64_t rows[] = {c->n_template, c->n_res}, points[] = {c->n_template, c->n_res, 3};
    const int64_t torsions[] = {c->n_template, c->n_res, FM_TEMPLATE_ROW_FEATURES};
    const int64_t templates[] = {c->n_template}, one[] = {1};
    in->template_aatype = in->template_pseudo_beta = in->template_pseudo_beta_mask = -1;
    in->template_backbone_mask = in->template_rows = in->template_mask = in->template_any = -1;
    if (c->n_template > 0) {
        in->template_aatype = fm_state_add(state, "template_aatype", FM_ELEMENT_U8, 2, rows);
        in->template_pseudo_beta =
            fm_state_add(state, "template_pseudo_beta", FM_ELEMENT_F32, 3, points);
        in->template_pseudo_beta_mask =
            fm_state_add(state, "template_pseudo_beta_mask", act, 2, rows);
        in->template_backbone_mask = fm_state_add(state, "template_backbone_mask", act, 2, rows);
        in->template_rows = fm_state_add(state, "template torsion features", act, 3, torsions);
        in->template_mask = fm_state_add(state, "template_mask", act, 1, templates);
        in->template_any = fm_state_add(state, "template_any", act, 1, one);
    }
}

void fm_model_declare_inputs(fm_state *state, const fm_model_config *c, const fm_kernels *kernels,
                             fm_model_inputs *ret_inputs) {
    const int64_t residues[] = {c->n_res}, rows[] = {c->n_seq}, msa[] = {c->n_seq, c->n_res};
    const int64_t profile[] = {c->n_seq, c->n_res, FM_MSA_CLASSES}, pair[] = {c->n_res, c->n_res};
    const int64_t all_rows[] = {fm_model_config_rows(c), c->n_res}, points[] = {c->n_res, 3};
    fm_element act = kernels->act;
    fm_part part = fm_groups_part(c->groups);
    fm_tensor m, z = fm_tensor_rows_of(act, c->n_res, c->c_z, part);
    z.name = "previous z";
    fm_tensor_init(&m, "previous m", act, 2, (int64_t[]){c->n_res, c->c_m});
    if (part.count > 1) fm_tensor_shard(&m, 0, part.rank, part.count);
    *ret_inputs = (fm_model_inputs){
        .aatype = fm_state_add(state, "aatype", FM_ELEMENT_U8, 1, residues),
        .residue_index = fm_state_add(state, "residue_index", FM_ELEMENT_I32, 1, residues),
        .msa = fm_state_add(state, "msa", FM_ELEMENT_U8, 2, msa),
        .deletion = fm_state_add(state, "deletion_matrix", FM_ELEMENT_U16, 2, msa),
        .profile = fm_state_add(state, "cluster_profile", FM_ELEMENT_U32, 3, profile),
        .deletion_sum = fm_state_add(state, "cluster_deletion_sum", FM_ELEMENT_U32, 2, msa),
        .cluster_size = fm_state_add(state, "cluster_size", FM_ELEMENT_U32, 1, rows),
        .msa_mask = fm_state_add(state, "msa_mask", act, 2, all_rows),
        .pair_mask = fm_state_add(state, "pair_mask", act, 2, pair),
        .previous_m = fm_state_add_like(state, &m),
        .previous_z = fm_state_add_like(state, &z),
        .msa_feat = -1,
        .extra_feat = -1,
        .n_draw = 1,
        .sum_m = -1,
        .sum_z = -1,
        .previous_pseudo_beta =
            fm_state_add(state, "previous pseudo_beta", FM_ELEMENT_F32, 2, points)};
    declare_extra_msa(state, c, act, ret_inputs);
    declare_templates(state, c, act, ret_inputs);
    ret_inputs->seq_mask = -1;
    if (c->structure.n_iteration > 0) {
        ret_inputs->seq_mask = fm_state_add(state, "seq_mask", act, 1, residues);
        fm_structure_declare_tables(state, &ret_inputs->tables);
    }
}

void fm_model_declare_draws(fm_state *state, int32_t n_draw, fm_model_inputs *inputs) {
    fm_tensor m = state->tensor[inputs->previous_m], z = state->tensor[inputs->previous_z];
    m.name = "sum of m";
    z.name = "sum of z";
    inputs->n_draw = n_draw;
    inputs->sum_m = fm_state_add_like(state, &m);
    inputs->sum_z = fm_state_add_like(state, &z);
}

/* A2:5-8: makes m, split along the residues. */
static fm_tensor_ref embed_msa(fm_tape *tape, const fm_model_config *config,
                               const fm_model_weights *weights, const fm_model_inputs *inputs) {
    fm_feature_inputs features = {.msa = fm_tape_state(tape, inputs->msa, false),
                                  .deletion = fm_tape_state(tape, inputs->deletion, false),
                                  .profile = fm_tape_state(tape, inputs->profile, false),
                                  .deletion_sum = fm_tape_state(tape, inputs->deletion_sum, false),
                                  .cluster_size = fm_tape_state(tape, inputs->cluster_size, false)};
    fm_tensor_ref msa_feat = inputs->msa_feat < 0 ? fm_op_msa_features(tape, &features)
                                                  : fm_tape_state(tape, inputs->msa_feat, false);
    msa_feat = fm_split_slice(tape, config, "msa features", msa_feat, 1);
    fm_tensor_ref aatype = fm_tape_state(tape, inputs->aatype, false);
    fm_tensor_ref m = fm_op_input_msa(tape, msa_feat, aatype, &weights->input_msa); /* A2:5 */
    m = fm_op_recycle_msa(tape, m, fm_tape_state(tape, inputs->previous_m, false),
                          &weights->recycle); /* A2:6 */
    if (config->n_template == 0) return m;
    fm_tensor_ref torsions = fm_split_slice(tape, config, "template torsions",
                                            fm_tape_state(tape, inputs->template_rows, false), 1);
    return fm_op_template_rows(tape, m, torsions, &weights->template_rows); /* A2:7-8 */
}

/* A2:5-6: makes z, split along its rows. */
static fm_tensor_ref embed_pair(fm_tape *tape, const fm_model_config *config,
                                const fm_model_weights *weights, const fm_model_inputs *inputs) {
    fm_part part = fm_groups_part(config->groups);
    fm_tensor_ref z = fm_op_input_pair(tape, fm_tape_state(tape, inputs->aatype, false),
                                       fm_tape_state(tape, inputs->residue_index, false),
                                       &weights->input_pair, part);
    fm_tensor_ref bins =
        fm_op_recycle_bins(tape, fm_tape_state(tape, inputs->previous_pseudo_beta, false),
                           config->n_recycle_bin, part);
    return fm_op_recycle_pair(tape, z, fm_tape_state(tape, inputs->previous_z, false), bins,
                              &weights->recycle);
}

/* Numbers of random draws of one template. */
static uint32_t template_draws(const fm_model_config *config) {
    return (uint32_t)config->n_template_block * fm_template_block_draws();
}

/* The pair representations of all templates, split along their rows. A rank makes whole templates,
 * its share of them, with one node for all of these; then one exchange hands each rank its rows of
 * all templates. The draws are those of templates that are recorded one after the other. */
static fm_tensor_ref templates_together(const fm_recorder *recorder,
                                        const fm_model_weights *weights,
                                        const fm_template_pair_inputs *in) {
    fm_tape *tape = recorder->tape;
    const fm_model_config *config = recorder->config;
    fm_tensor_ref mask = recorder->mask[FM_PAIR].whole;
    fm_model_config of_rank = *config;
    of_rank.groups = NULL;
    const fm_recorder alone =
        fm_recorder_of(tape, &of_rank, NULL, &(fm_split_mask){mask, mask, mask});
    uint32_t step = template_draws(config), first_draw = tape->n_draw;
    fm_tensor_ref t = fm_op_template_pairs(tape, in, &weights->template_pair,
                                           fm_groups_part(config->groups)); /* A2:9-10 */
    uint32_t first = (uint32_t)fm_tensor_first(fm_tape_tensor(tape, t), 0);
    fm_tape_seek_draw(tape, first_draw + first * step);
    fm_tape_group_draws(tape, step);
    t = fm_template_stack(&alone, weights->template_block, config->n_extra_block + config->n_block,
                          config->n_template_block, t); /* A2:11 */
    fm_tape_group_draws(tape, 0);
    fm_tape_seek_draw(tape, first_draw + (uint32_t)config->n_template * step);
    return fm_split_change(tape, config, "templates to rows", t, 1);
}

/* The same with nodes for each template; t [n_template]. */
static void templates_alone(const fm_recorder *recorder, const fm_model_weights *weights,
                            const fm_template_pair_inputs *in, fm_tensor_ref *t) {
    const fm_model_config *config = recorder->config;
    int32_t first = config->n_extra_block + config->n_block;
    for (int64_t i = 0; i < config->n_template; i++, first += config->n_template_block) {
        t[i] = fm_op_template_pair(recorder->tape, in, i, &weights->template_pair,
                                   fm_groups_part(config->groups)); /* A2:9-10 */
        t[i] = fm_template_stack(recorder, weights->template_block, first, config->n_template_block,
                                 t[i]); /* A2:11 */
    }
}

fm_tensor_ref fm_model_template_pairs(fm_tape *tape, const fm_model_config *config,
                                      const fm_model_weights *weights,
                                      const fm_model_inputs *inputs, fm_tensor_ref z,
                                      const fm_split_mask *pair_mask, bool together) {
    fm_template_pair_inputs in = {
        .aatype = fm_tape_state(tape, inputs->template_aatype, false),
        .pseudo_beta = fm_tape_state(tape, inputs->template_pseudo_beta, false),
        .pseudo_beta_mask = fm_tape_state(tape, inputs->template_pseudo_beta_mask, false),
        .backbone_mask = fm_tape_state(tape, inputs->template_backbone_mask, false)};
    fm_tensor_ref t[FM_MAX_TEMPLATE];
    fm_recorder recorder = fm_recorder_of(tape, config, NULL, pair_mask);
    int n_part = together ? 1 : (int)config->n_template;
    if (together) {
        t[0] = templates_together(&recorder, weights, &in);
    } else {
        templates_alone(&recorder, weights, &in, t);
    }
    return fm_op_template_attention(tape, z, t, n_part,
                                    fm_tape_state(tape, inputs->template_mask, false),
                                    fm_tape_state(tape, inputs->template_any, false),
                                    &weights->template_attention, true); /* A2:12-13 */
}

/* A2:9-13. On the rank of the MSA branch z is FM_TENSOR_NONE, and only the draws are counted. */
static fm_tensor_ref template_pairs(fm_tape *tape, const fm_model_config *config,
                                    const fm_model_weights *weights, const fm_model_inputs *inputs,
                                    fm_tensor_ref z, const fm_split_mask *pair_mask) {
    if (config->n_template == 0) return z;
    if (!fm_split_has_pair(config)) {
        fm_tape_skip_draws(tape, (uint32_t)config->n_template * template_draws(config));
        return FM_TENSOR_NONE;
    }
    return fm_model_template_pairs(tape, config, weights, inputs, z, pair_mask,
                                   fm_split_has_whole_templates(config) && tape->chunk_bytes == 0);
}

/* Records a stack of blocks, the first of which has the number `first` among those of all stacks. m
 * enters and leaves split along the residues; msa_mask is whole. */
static fm_representations stack(fm_tape *tape, const fm_model_config *config,
                                const fm_evoformer_weights *weights, int32_t first, int32_t n_block,
                                fm_representations x, fm_tensor_ref msa_mask,
                                const fm_split_mask *pair_mask) {
    fm_split_mask mask = {0};
    if (fm_split_has_msa(config)) mask = fm_split_mask_of(tape, config, msa_mask);
    fm_recorder recorder = fm_recorder_of(tape, config, &mask, pair_mask);
    return fm_evoformer_stack(&recorder, weights, first, n_block, x);
}

fm_tensor_ref fm_model_extra_msa(fm_tape *tape, const fm_model_config *config,
                                 const fm_model_weights *weights, fm_tensor_ref features,
                                 fm_tensor_ref mask, fm_tensor_ref z,
                                 const fm_split_mask *pair_mask) {
    fm_model_config extra = fm_model_config_extra(config);
    fm_representations x = {.m = FM_TENSOR_NONE, .z = z};
    if (fm_split_has_msa(config)) {
        features = fm_split_slice(tape, config, "extra msa features", features, 1);
        x.m =
            fm_op_linear_all(tape, "extra msa embedder", features, &weights->extra_msa); /* A2:15 */
    }
    return stack(tape, &extra, weights->extra_block, 0, config->n_extra_block, x, mask, pair_mask)
        .z; /* A18:1 */
}

/* A2:14-16, from the ids of the batch. */
static fm_tensor_ref extra_msa(fm_tape *tape, const fm_model_config *config,
                               const fm_model_weights *weights, const fm_model_inputs *inputs,
                               fm_tensor_ref z, const fm_split_mask *pair_mask) {
    if (config->n_extra_block == 0) return z;
    fm_feature_inputs ids = {.msa = fm_tape_state(tape, inputs->extra_msa, false),
                             .deletion = fm_tape_state(tape, inputs->extra_deletion, false),
                             .profile = FM_TENSOR_NONE,
                             .deletion_sum = FM_TENSOR_NONE,
                             .cluster_size = FM_TENSOR_NONE};
    fm_tensor_ref features = FM_TENSOR_NONE;
    if (inputs->extra_feat >= 0) {
        features = fm_tape_state(tape, inputs->extra_feat, false);
    } else if (fm_split_has_msa(config)) {
        features = fm_op_msa_features(tape, &ids); /* A2:14 */
    }
    fm_tensor_ref mask = fm_tape_state(tape, inputs->extra_msa_mask, false);
    return fm_model_extra_msa(tape, config, weights, features, mask, z, pair_mask);
}

/* Describes m, split along the residues, and z, split along its rows: each rank has these parts. */
static void describe_representations(const fm_model_config *config, fm_element act,
                                     fm_tensor *ret_m, fm_tensor *ret_z) {
    fm_part part = fm_groups_part(config->groups);
    fm_tensor_init(ret_m, "m", act, 3,
                   (int64_t[]){fm_model_config_rows(config), config->n_res, config->c_m});
    if (part.count > 1) fm_tensor_shard(ret_m, 1, part.rank, part.count);
    *ret_z = fm_tensor_rows_of(act, config->n_res, config->c_z, part);
}

/* A2:5-17: all that precedes the single representation. */
static fm_representations record_trunk(fm_tape *tape, const fm_model_config *config,
                                       const fm_model_weights *weights,
                                       const fm_model_inputs *inputs) {
    fm_representations x = {FM_TENSOR_NONE, FM_TENSOR_NONE};
    fm_tensor m, z;
    describe_representations(config, tape->kernels->act, &m, &z);
    fm_split_mask pair_mask = {0};
    if (fm_split_has_msa(config)) x.m = embed_msa(tape, config, weights, inputs);
    if (fm_split_has_pair(config)) {
        x.z = embed_pair(tape, config, weights, inputs);
        pair_mask = fm_split_mask_of(tape, config, fm_tape_state(tape, inputs->pair_mask, false));
    }
    x.z = template_pairs(tape, config, weights, inputs, x.z, &pair_mask);
    if (config->order == FM_ORDER_PARALLEL) { /* both branches of the first block read z */
        x.z = fm_split_share(tape, config, "pair", 1, x.z, &z);
    }
    x.z = extra_msa(tape, config, weights, inputs, x.z, &pair_mask);
    x = stack(tape, config, weights->block, config->n_extra_block, config->n_block, x,
              fm_tape_state(tape, inputs->msa_mask, false), &pair_mask); /* A6:1 */
    x.m = fm_split_share(tape, config, "msa", 0, x.m, &m);
    if (config->order == FM_ORDER_OUTER_FIRST) {
        x.z = fm_split_share(tape, config, "pair", 1, x.z, &z);
    }
    return x;
}

/* A2:18. A cycle that stores hands on the pseudo-beta positions of the predicted atoms; without
 * outputs and gradient nothing else of it is read. */
static void record_structure(fm_tape *tape, const fm_model_config *config,
                             const fm_model_weights *weights, const fm_model_inputs *inputs,
                             fm_cycle_end end, fm_model_outputs *out) {
    fm_structure_config structure = fm_model_config_structure(config);
    const bool is_part = fm_tape_tensor(tape, out->z)->shard_axis >= 0;
    fm_comm *others = is_part ? config->groups->dap : NULL;
    fm_tensor_ref aatype = fm_tape_state(tape, inputs->aatype, false);
    fm_tensor_ref mask = fm_tape_state(tape, inputs->seq_mask, false);
    mask = fm_op_cast(tape, "seq_mask", mask);
    const fm_structure_inputs in = {.tables = &inputs->tables,
                                    .single = out->single,
                                    .pair = out->z,
                                    .others = others,
                                    .aatype = aatype,
                                    .mask = mask};
    out->structure = fm_structure_record(tape, &structure, &weights->structure, &in,
                                         !(end & FM_CYCLE_OUTPUTS) && !tape->with_gradient);
    if (end & FM_CYCLE_STORES) {
        fm_op_store_pseudo_beta(tape, out->structure.atoms.atoms, aatype,
                                fm_tape_state(tape, inputs->previous_pseudo_beta, false));
    }
}

void fm_model_record_draw(fm_tape *tape, const fm_model_config *config,
                          const fm_model_weights *weights, const fm_model_inputs *inputs) {
    fm_representations x = record_trunk(tape, config, weights, inputs);
    fm_op_store_sum(tape, "sum of m", x.m, fm_tape_state(tape, inputs->sum_m, false));
    fm_op_store_sum(tape, "sum of z", x.z, fm_tape_state(tape, inputs->sum_z, false));
}

fm_model_outputs fm_model_record_cycle(fm_tape *tape, const fm_model_config *config,
                                       const fm_model_weights *weights,
                                       const fm_model_inputs *inputs, fm_cycle_end end) {
    bool structure = config->structure.n_iteration > 0, outputs = end & FM_CYCLE_OUTPUTS;
    fm_representations x = record_trunk(tape, config, weights, inputs);
    if (inputs->n_draw > 1) {
        x.m = fm_op_average(tape, "mean of m", x.m, fm_tape_state(tape, inputs->sum_m, false),
                            inputs->n_draw);
        x.z = fm_op_average(tape, "mean of z", x.z, fm_tape_state(tape, inputs->sum_z, false),
                            inputs->n_draw);
    }
    if (end & FM_CYCLE_STORES) { /* A30:3, A31:4: the inputs of the next cycle */
        fm_op_store(tape, "hand on m", x.m, fm_tape_state(tape, inputs->previous_m, false));
        fm_op_store(tape, "hand on z", x.z, fm_tape_state(tape, inputs->previous_z, false));
    }
    int64_t n_res = fm_tape_tensor(tape, x.m)->local[1];
    fm_tensor_ref single = fm_op_linear(tape, "single", x.m, n_res, &weights->single); /* A6:12 */
    fm_model_outputs out = {.single = fm_split_gather(tape, config, "single", single),
                            .m = FM_TENSOR_NONE,
                            .z = FM_TENSOR_NONE};
    if (outputs || !fm_split_is_split(config)) out.m = fm_split_gather(tape, config, "msa", x.m);
    if (end == FM_CYCLE_PREDICTS) {
        out.z = x.z; /* where it is split, the structure module and the heads take parts */
    } else if (outputs || structure || !fm_split_is_split(config)) {
        out.z = fm_split_gather(tape, config, "pair", x.z);
    }
    fm_tape_enter_island(tape);
    if (structure) out.single = fm_op_cast(tape, "single", out.single);
    const bool casts_slabs = end == FM_CYCLE_PREDICTS && tape->chunk_bytes > 0;
    if ((structure || outputs) && !casts_slabs) out.z = fm_op_cast(tape, "pair", out.z);
    if (end == FM_CYCLE_OUTPUTS) out.m = fm_op_cast(tape, "msa", out.m);
    if (structure) record_structure(tape, config, weights, inputs, end, &out);
    fm_tape_leave_island(tape);
    return out;
}
