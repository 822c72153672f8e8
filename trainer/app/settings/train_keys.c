/* train_keys.c: the table of all settings; see train_keys.h. */
#include "trainer/app/settings/train_keys.h"

#include "proto/limits.h"
#include "trainer/model/af3/trunk.h"

#include <assert.h>
#include <stddef.h>

static const fm_key_word order_words[] = {{"original", FM_ORDER_ORIGINAL},
                                          {"opm_first", FM_ORDER_OUTER_FIRST},
                                          {"parallel", FM_ORDER_PARALLEL},
                                          {0}};
static const fm_key_word recompute_words[] = {{"none", FM_RECOMPUTE_NONE},
                                              {"hidden", FM_RECOMPUTE_HIDDEN},
                                              {"projections", FM_RECOMPUTE_PROJECTIONS},
                                              {"operands", FM_RECOMPUTE_OPERANDS},
                                              {"block", FM_RECOMPUTE_BLOCK},
                                              {"auto", FM_RECOMPUTE_AUTO},
                                              {0}};
static const fm_key_word compat_words[] = {
    {"none", FM_COMPAT_NONE}, {"openfold", FM_COMPAT_OPENFOLD}, {0}};
static const fm_key_word clip_words[] = {{"sample", FM_CLIP_SAMPLE}, {"batch", FM_CLIP_BATCH}, {0}};

static const fm_key_word network_words[] = {{"af2", FM_NETWORK_AF2}, {"af3", FM_NETWORK_AF3}, {0}};
static const fm_key_word trains_words[] = {
    {"all", FM_AF3_TRAINS_ALL}, {"confidence", FM_AF3_TRAINS_CONFIDENCE}, {0}};
static const fm_key_word conformers_words[] = {
    {"stored", FM_AF3_CONFORMERS_STORED}, {"drawn", FM_AF3_CONFORMERS_DRAWN}, {0}};
static const fm_key_word products_words[] = {{"f32", FM_AF3_PRODUCTS_F32},
                                             {"tf32", FM_AF3_PRODUCTS_TF32},
                                             {"bf16", FM_AF3_PRODUCTS_BF16},
                                             {"auto", FM_AF3_PRODUCTS_AUTO},
                                             {0}};

/* The place of a field in fm_train_config. */
#define AT(field) offsetof(fm_train_config, field)

/* The key of a row of the loss terms' table. */
#define LOSS_KEY(term, name, needs, turn, help)                                                    \
    {"loss",     #name,           "", help, FM_KEY_NUMBER, AT(loss[FM_TERM_##term]), .min = 0,     \
     .max = 1e6, .of = FM_KEY_AF2},

/* Keys of AlphaFold 3 in the section [af3]: a number of channels, heads or classes; of blocks; a
 * number. */
#define AF3_SIZE(name, unit, most, help)                                                           \
    {                                                                                              \
        "af3", #name, unit, help, FM_KEY_INTEGER, AT(af3.name), .min = 1, .max = (most),           \
                                                                .of = FM_KEY_AF3                   \
    }
#define AF3_COUNT(name, unit, most, help)                                                          \
    {                                                                                              \
        "af3", #name, unit, help, FM_KEY_INT32, AT(af3.name), .min = 1, .max = (most),             \
                                                              .of = FM_KEY_AF3                     \
    }
#define AF3_NUMBER(name, field, unit, least, most, help)                                           \
    {                                                                                              \
        "af3", name, unit, help, FM_KEY_NUMBER, AT(field), .min = (least), .max = (most),          \
                                                           .of = FM_KEY_AF3                        \
    }
#define AF3_LOSS(name, help)                                                                       \
    {                                                                                              \
        "af3_loss", #name, "", help, FM_KEY_NUMBER, AT(af3_loss.name), .min = 0, .max = 1e6,       \
                                                                       .of = FM_KEY_AF3            \
    }
/* The keys of the rows of AlphaFold 3's terms. */
#define NO_KEY(...)
#define COMPLEX_KEY(term, name, group, help) AF3_LOSS(name, help),

const fm_train_key fm_train_keys[] = {
    {"model", "model", "",
     "The network: AlphaFold2's (af2) or AlphaFold 3's (af3). Some keys belong to one only.",
     FM_KEY_WORD, AT(network), .words = network_words, .expected = "af2 or af3",
     .is_implied = true},
    {"model", "n_block", "blocks", "Number of Evoformer blocks (Algorithm 6).", FM_KEY_INT32,
     AT(model.n_block), .min = 1, .max = 64, .of = FM_KEY_AF2},
    {"model", "c_m", "channels", "Channels of the MSA representation m.", FM_KEY_INTEGER,
     AT(model.c_m), .min = 1, .max = 4096, .of = FM_KEY_AF2},
    {"model", "c_z", "channels", "Channels of the pair representation z.", FM_KEY_INTEGER,
     AT(model.c_z), .min = 1, .max = 4096, .of = FM_KEY_AF2},
    {"model", "c_s", "channels", "Channels of the single representation s.", FM_KEY_INTEGER,
     AT(model.c_s), .min = 1, .max = 4096, .of = FM_KEY_AF2},
    {"model", "n_head_msa", "heads",
     "Attention heads of the MSA row and column attention, in the extra MSA stack as "
     "well.",
     FM_KEY_INTEGER, AT(model.n_head_msa), .min = 1, .max = 64, .of = FM_KEY_AF2},
    {"model", "c_head_msa", "channels", "Channels of one head of the MSA row and column attention.",
     FM_KEY_INTEGER, AT(model.c_head_msa), .min = 1, .max = 256, .of = FM_KEY_AF2},
    {"model", "n_head_pair", "heads", "Attention heads of the triangle attention.", FM_KEY_INTEGER,
     AT(model.n_head_pair), .min = 1, .max = 64, .of = FM_KEY_AF2},
    {"model", "c_head_pair", "channels", "Channels of one head of the triangle attention.",
     FM_KEY_INTEGER, AT(model.c_head_pair), .min = 1, .max = 256, .of = FM_KEY_AF2},
    {"model", "c_outer", "channels", "Hidden channels of the outer product mean.", FM_KEY_INTEGER,
     AT(model.c_outer), .min = 1, .max = 256, .of = FM_KEY_AF2},
    {"model", "c_triangle", "channels", "Hidden channels of the triangle multiplication.",
     FM_KEY_INTEGER, AT(model.c_triangle), .min = 1, .max = 1024, .of = FM_KEY_AF2},
    {"model", "transition_factor", "",
     "Width of the hidden layer of the MSA and pair transitions, as a multiple of their "
     "input.",
     FM_KEY_INTEGER, AT(model.transition_factor), .min = 1, .max = 16, .of = FM_KEY_AF2},
    {"model", "n_extra_block", "blocks",
     "Number of blocks of the extra MSA stack (Algorithm 18); 0 leaves the stack out.",
     FM_KEY_INT32, AT(model.n_extra_block), .min = 0, .max = 16, .of = FM_KEY_AF2},
    {"model", "c_e", "channels", "Channels of the extra MSA representation.", FM_KEY_INTEGER,
     AT(model.c_e), .min = 1, .max = 4096, .of = FM_KEY_AF2},
    {"model", "c_head_extra", "channels",
     "Channels of one head of the extra MSA stack's row and column attention.", FM_KEY_INTEGER,
     AT(model.c_head_extra), .min = 1, .max = 256, .of = FM_KEY_AF2},
    {"model", "c_outer_extra", "channels",
     "Hidden channels of the extra MSA stack's outer product mean.", FM_KEY_INTEGER,
     AT(model.c_outer_extra), .min = 1, .max = 256, .of = FM_KEY_AF2},
    {"model", "c_triangle_extra", "channels",
     "Hidden channels of the extra MSA stack's triangle multiplication.", FM_KEY_INTEGER,
     AT(model.c_triangle_extra), .min = 1, .max = 1024, .of = FM_KEY_AF2},
    {"model", "n_template", "templates",
     "Templates of a sample that the model reads; 0 leaves the template embedders out.",
     FM_KEY_INTEGER, AT(model.n_template), .min = 0, .max = 4, .of = FM_KEY_AF2},
    {"model", "n_template_block", "blocks",
     "Number of blocks of the template pair stack (Algorithm 16).", FM_KEY_INT32,
     AT(model.n_template_block), .min = 0, .max = 16, .of = FM_KEY_AF2},
    {"model", "c_t", "channels", "Channels of the template pair representation.", FM_KEY_INTEGER,
     AT(model.c_t), .min = 1, .max = 4096, .of = FM_KEY_AF2},
    {"model", "n_head_template", "heads",
     "Attention heads of the template pair stack's triangle attention.", FM_KEY_INTEGER,
     AT(model.n_head_template), .min = 1, .max = 64, .of = FM_KEY_AF2},
    {"model", "c_head_template", "channels",
     "Channels of one head of the template pair stack's triangle attention.", FM_KEY_INTEGER,
     AT(model.c_head_template), .min = 1, .max = 256, .of = FM_KEY_AF2},
    {"model", "c_triangle_template", "channels",
     "Hidden channels of the template pair stack's triangle multiplication.", FM_KEY_INTEGER,
     AT(model.c_triangle_template), .min = 1, .max = 1024, .of = FM_KEY_AF2},
    {"model", "template_transition_factor", "",
     "Width of the hidden layer of the template pair transition, as a multiple of its "
     "input.",
     FM_KEY_INTEGER, AT(model.template_transition_factor), .min = 1, .max = 16, .of = FM_KEY_AF2},
    {"model", "n_head_pointwise", "heads",
     "Attention heads of the template pointwise attention (Algorithm 17).", FM_KEY_INTEGER,
     AT(model.n_head_pointwise), .min = 1, .max = 64, .of = FM_KEY_AF2},
    {"model", "c_head_pointwise", "channels",
     "Channels of one head of the template pointwise attention.", FM_KEY_INTEGER,
     AT(model.c_head_pointwise), .min = 1, .max = 256, .of = FM_KEY_AF2},
    {"model", "dropout_msa", "probability", "Dropout rate of the MSA row attention.", FM_KEY_NUMBER,
     AT(model.dropout_msa), .min = 0, .max = 0.9, .of = FM_KEY_AF2},
    {"model", "dropout_pair", "probability",
     "Dropout rate of the pair stack's triangle updates, in the template pair stack as "
     "well.",
     FM_KEY_NUMBER, AT(model.dropout_pair), .min = 0, .max = 0.9, .of = FM_KEY_AF2},
    {"model", "relpos_k", "residues",
     "Residue distance at which the relative position encoding is clipped (Algorithm 4).",
     FM_KEY_INTEGER, AT(model.relpos_k), .min = 1, .max = 127, .of = FM_KEY_AF2},
    {"model", "n_distogram_bin", "classes", "Distance classes of the distogram head.",
     FM_KEY_INTEGER, AT(model.n_distogram_bin), .min = 3, .max = 256, .of = FM_KEY_AF2},
    {"model", "n_recycle_bin", "classes",
     "Distance classes of the recycled pseudo-beta positions (Algorithm 32).", FM_KEY_INTEGER,
     AT(model.n_recycle_bin), .min = 2, .max = 64, .of = FM_KEY_AF2},
    {"model", "n_structure_iteration", "iterations",
     "Iterations of the structure module (Algorithm 20); 0 leaves the module and its "
     "losses out.",
     FM_KEY_INT32, AT(model.structure.n_iteration), .min = 0, .max = 8, .of = FM_KEY_AF2},
    {"model", "n_head_ipa", "heads",
     "Attention heads of the invariant point attention (Algorithm 22).", FM_KEY_INTEGER,
     AT(model.structure.n_head), .min = 1, .max = 64, .of = FM_KEY_AF2},
    {"model", "c_head_ipa", "channels", "Channels of one head of the invariant point attention.",
     FM_KEY_INTEGER, AT(model.structure.c_head), .min = 1, .max = 256, .of = FM_KEY_AF2},
    {"model", "n_qk_point", "points",
     "Query and key points of one head of the invariant point attention.", FM_KEY_INTEGER,
     AT(model.structure.n_qk), .min = 1, .max = 64, .of = FM_KEY_AF2},
    {"model", "n_v_point", "points", "Value points of one head of the invariant point attention.",
     FM_KEY_INTEGER, AT(model.structure.n_v), .min = 1, .max = 64, .of = FM_KEY_AF2},
    {"model", "c_angle", "channels",
     "Hidden channels of the network that predicts the torsion angles.", FM_KEY_INTEGER,
     AT(model.structure.c_angle), .min = 1, .max = 4096, .of = FM_KEY_AF2},
    {"model", "n_angle_block", "blocks",
     "Residual blocks of the network that predicts the torsion angles.", FM_KEY_INT32,
     AT(model.structure.n_angle_block), .min = 1, .max = 16, .of = FM_KEY_AF2},
    {"model", "dropout_structure", "probability", "Dropout rate of the structure module.",
     FM_KEY_NUMBER, AT(model.structure.dropout), .min = 0, .max = 0.9, .of = FM_KEY_AF2},
    {"model", "position_scale", "Å", "Length of one unit of the structure module's translations.",
     FM_KEY_NUMBER, AT(model.structure.position_scale), .min = 1e-3, .max = 1e3, .of = FM_KEY_AF2},
    {"model", "c_plddt", "channels", "Hidden channels of the pLDDT head.", FM_KEY_INTEGER,
     AT(model.structure.c_plddt), .min = 1, .max = 4096, .of = FM_KEY_AF2},
    {"model", "n_plddt_bin", "classes", "lDDT classes of the pLDDT head.", FM_KEY_INTEGER,
     AT(model.structure.n_plddt_bin), .min = 2, .max = 256, .of = FM_KEY_AF2},
    {"model", "n_aligned_error_bin", "classes",
     "Distance classes of the aligned error (pTM) head; 0 leaves the head out.", FM_KEY_INTEGER,
     AT(model.structure.n_aligned_error_bin), .min = 0, .max = 256, .of = FM_KEY_AF2},
    {"model", "order", "",
     "Position of the outer product mean in a block. original: after the MSA transition. "
     "opm_first: first, as in AlphaFold-Multimer. parallel: last, where the MSA and pair updates "
     "have the same input.",
     FM_KEY_WORD, AT(model.order), .words = order_words,
     .expected = "original, opm_first or parallel", .of = FM_KEY_AF2},
    {"model", "compat", "",
     "Whether to keep a quirk of the reference in masked template torsion angles. openfold: they "
     "are "
     "rounding noise of length 1, as OpenFold's are. none: they are 0.",
     FM_KEY_WORD, AT(model.compat), .words = compat_words, .expected = "none or openfold",
     .of = FM_KEY_AF2},
    {"model", "recompute", "",
     "What backward computes again instead of keeping. none: nothing, except normalised rows where "
     "memory is short. hidden: the hidden layers of the transitions. projections: those, and the "
     "projections of attention. operands: those, and the operands of triangle multiplications and "
     "outer product means. block: whole blocks. auto: the least that fits the memory. Results do "
     "not depend on it.",
     FM_KEY_WORD, AT(model.recompute), .words = recompute_words,
     .expected = "none, hidden, projections, operands, block or auto", .no_result = true},
    {"model", "memory_budget", "GiB",
     "Device memory that the trainer may take. 0 sets no bound; recompute = auto and none then "
     "choose by what the device has free. Results do not depend on it.",
     FM_KEY_NUMBER, AT(memory_budget_gib), .min = 0, .max = 1e6, .no_result = true},
    {"data", "plan", "", "Name of the server's sampling plan. Runs of stored samples have none.",
     FM_KEY_PLAN, AT(data.plan), .min = 0, .max = 0},
    {"data", "crop_size", "residues", "Residues of a crop.", FM_KEY_INTEGER, AT(data.crop_size),
     .min = 1, .max = 65535},
    {"data", "max_msa_clusters", "rows",
     "MSA cluster rows of a sample; n_template rows of template torsion angles come on "
     "top.",
     FM_KEY_INTEGER, AT(data.max_msa_clusters), .min = 1, .max = FM_LIMIT_N_CLUSTER,
     .of = FM_KEY_AF2},
    {"data", "max_extra_msa", "rows", "Extra MSA rows of a sample.", FM_KEY_INTEGER,
     AT(data.max_extra_msa), .min = 1, .max = FM_LIMIT_N_EXTRA, .of = FM_KEY_AF2},
    {"data", "max_cycle", "cycles",
     "Largest number of recycling cycles; each step draws its number from 1 to this one.",
     FM_KEY_INTEGER, AT(data.max_cycle), .min = 1, .max = 21},
    {"data", "max_template_date", "date",
     "Templates released later are not used: a day as YYYY-MM-DD, query for the day of the chain's "
     "own release, or any for no bound. With af3, query means 60 days before the complex.",
     FM_KEY_DATE, AT(data.max_template_date), .min = 0, .max = 0},
    {"data", "global_batch", "samples", "Samples of one step, over all ranks.", FM_KEY_INTEGER,
     AT(data.global_batch), .min = 1, .max = 65536},
    {"data", "max_atoms", "atoms", "Atoms of a sample; larger ones are refused.", FM_KEY_INTEGER,
     AT(data.max_atoms), .min = 1, .max = 1048576, .of = FM_KEY_AF3},
    {"data", "max_msa", "rows", "MSA rows that a cycle reads at most.", FM_KEY_INTEGER,
     AT(data.max_msa), .min = 1, .max = 65536, .of = FM_KEY_AF3},
    {"data", "n_template", "templates",
     "Templates of a sample, empty ones included; 0 leaves the template embedder out.",
     FM_KEY_INTEGER, AT(data.n_template), .min = 0, .max = 20, .of = FM_KEY_AF3},
    {"parallel", "dap", "ranks",
     "Ranks that each hold a part of one sample's arrays (Dynamic Axial Parallelism).",
     FM_KEY_INT32, AT(parallel.dap), .min = 1, .max = 16},
    {"parallel", "bp", "ranks",
     "Ranks that run the MSA and the pair branch of each block side by side (Branch "
     "Parallelism); 2 needs the order opm_first or parallel.",
     FM_KEY_INT32, AT(parallel.bp), .min = 1, .max = 2, .of = FM_KEY_AF2},
    {"optimizer", "learning_rate", "", "Learning rate of Adam after the warm-up.", FM_KEY_NUMBER,
     AT(optimizer.learning_rate), .min = 0, .max = 10},
    {"optimizer", "warmup_samples", "samples",
     "Samples over which the learning rate rises linearly from 0.", FM_KEY_INTEGER,
     AT(optimizer.warmup_samples), .min = 0, .max = 1e12},
    {"optimizer", "decay_at_samples", "samples",
     "Samples after which the learning rate is multiplied by decay_factor; 0 means "
     "never.",
     FM_KEY_INTEGER, AT(optimizer.decay_at_samples), .min = 0, .max = 1e12},
    {"optimizer", "decay_factor", "", "Factor of the learning rate after decay_at_samples.",
     FM_KEY_NUMBER, AT(optimizer.decay_factor), .min = 0, .max = 1},
    {"optimizer", "beta1", "", "Decay rate of Adam's first moment.", FM_KEY_NUMBER,
     AT(optimizer.beta1), .min = 0, .max = 0.9999999},
    {"optimizer", "beta2", "", "Decay rate of Adam's second moment.", FM_KEY_NUMBER,
     AT(optimizer.beta2), .min = 0, .max = 0.9999999},
    {"optimizer", "eps", "", "Number that Adam adds to the root of the second moment.",
     FM_KEY_NUMBER, AT(optimizer.eps), .min = 1e-30, .max = 1},
    {"optimizer", "clip", "",
     "What is clipped by its norm: each sample's gradient (sample, as in AlphaFold2) or "
     "the mean over the batch (batch).",
     FM_KEY_WORD, AT(optimizer.clip), .words = clip_words, .expected = "sample or batch"},
    {"optimizer", "clip_norm", "", "Largest norm of a gradient; a longer one is scaled down to it.",
     FM_KEY_NUMBER, AT(optimizer.clip_norm), .min = 1e-12, .max = 1e12},
    {"optimizer", "ema_decay", "",
     "Decay rate of the exponential moving average of the parameters, per step.", FM_KEY_NUMBER,
     AT(optimizer.ema_decay), .min = 0, .max = 0.999999},
    {"optimizer", "l2", "", "Multiple of a parameter that is added to its clipped gradient.",
     FM_KEY_NUMBER, AT(optimizer.l2), .min = 0, .max = 1, .of = FM_KEY_AF3},
    {"optimizer", "decay_every_samples", "samples",
     "Samples after which the learning rate is multiplied by decay_factor, again and again; 0 "
     "means never.",
     FM_KEY_INTEGER, AT(optimizer.decay_every_samples), .min = 0, .max = 1e12, .of = FM_KEY_AF3},
    /* clang-format off */
    FM_LOSS_TERM_LIST(LOSS_KEY)
    /* clang-format on */
    {"metrics", "structure_every", "steps",
     "Steps between scores of the predicted structures; 0 means never. Results do not depend on "
     "it.",
     FM_KEY_INTEGER, AT(metrics.structure_every), .min = 0, .max = 1e9, .no_result = true,
     .of = FM_KEY_AF2},
    {"metrics", "eval_every", "steps",
     "Steps between evaluations; 0 means never. A process beside the run evaluates the chains of "
     "--eval-snapshot. With af3 the run itself evaluates its complexes, or the files of "
     "--eval-samples. --eval-every sets it, too.",
     FM_KEY_INTEGER, AT(metrics.eval_every), .min = 0, .max = 1e9, .no_result = true},
    {"metrics", "eval_rollout_step", "steps",
     "Denoising steps of the rollouts that evaluations score; 0 takes n_rollout_step.",
     FM_KEY_INTEGER, AT(metrics.eval_rollout_step), .min = 0, .max = 1000, .no_result = true,
     .of = FM_KEY_AF3},
    AF3_COUNT(n_pairformer_block, "blocks", 64,
              "Blocks of the Pairformer (Algorithm 17 of AlphaFold 3)."),
    AF3_COUNT(n_msa_block, "blocks", FM_AF3_MAX_MSA_BLOCK,
              "Blocks of the MSA module (Algorithm 8)."),
    AF3_COUNT(n_template_block, "blocks", FM_AF3_MAX_TEMPLATE_BLOCK,
              "Pair blocks of the template embedder (Algorithm 16)."),
    AF3_COUNT(n_diffusion_block, "blocks", 64,
              "Blocks of the diffusion transformer (Algorithm 23)."),
    AF3_COUNT(n_atom_block, "blocks", 64,
              "Blocks of the diffusion module's atom encoder, and of its decoder."),
    AF3_COUNT(n_input_atom_block, "blocks", 64, "Blocks of the input embedder's atom encoder."),
    AF3_COUNT(n_confidence_block, "blocks", 64,
              "Pairformer blocks of the confidence head (Algorithm 31)."),
    AF3_SIZE(c_s, "channels", 4096, "Channels of the single representation s."),
    AF3_SIZE(c_z, "channels", 4096, "Channels of the pair representation z."),
    AF3_SIZE(c_m, "channels", 4096, "Channels of the MSA representation m."),
    AF3_SIZE(c_token_in, "channels", 4096, "Channels of a token in the input embedder."),
    AF3_SIZE(c_token, "channels", 4096, "Channels of a token in the diffusion module."),
    AF3_SIZE(c_atom, "channels", 4096, "Channels of an atom."),
    AF3_SIZE(c_atompair, "channels", 1024, "Channels of a pair of atoms."),
    AF3_SIZE(c_template, "channels", 4096, "Channels of the template pair representation."),
    AF3_SIZE(c_noise, "channels", 4096, "Channels of the embedded noise level (Algorithm 22)."),
    AF3_SIZE(n_head_single, "heads", 64,
             "Attention heads of the Pairformer's single representation."),
    AF3_SIZE(n_head_token, "heads", 64, "Attention heads of the diffusion transformer."),
    AF3_SIZE(n_head_atom, "heads", 64, "Attention heads of the atom transformer."),
    AF3_SIZE(n_head_pair, "heads", 64, "Attention heads of the triangle attention."),
    AF3_SIZE(c_head_pair, "channels", 256, "Channels of one head of the triangle attention."),
    AF3_SIZE(n_head_msa, "heads", 64, "Heads of the pair-weighted averaging (Algorithm 10)."),
    AF3_SIZE(c_head_msa, "channels", 256, "Channels of one head of the pair-weighted averaging."),
    AF3_SIZE(c_triangle, "channels", 1024, "Hidden channels of the triangle multiplication."),
    AF3_SIZE(c_outer, "channels", 256, "Hidden channels of the outer product mean."),
    AF3_SIZE(transition_factor, "", 16,
             "Width of the hidden layer of the pair, single and MSA transitions, as a multiple of "
             "their input."),
    AF3_SIZE(narrow_factor, "", 16,
             "The same for the transitions of templates, conditioning and conditioned blocks."),
    AF3_SIZE(max_atoms_per_token, "atoms", 64,
             "Slots of a token in the confidence head's weights of atoms."),
    {"af3", "n_distogram_bin", "classes", "Distance classes of the distogram head.", FM_KEY_INTEGER,
     AT(af3.n_distogram_bin), .min = 3, .max = 256, .of = FM_KEY_AF3},
    AF3_SIZE(n_pae_bin, "classes", 256, "Classes of the predicted aligned error."),
    AF3_SIZE(n_pde_bin, "classes", 256, "Classes of the predicted distance error."),
    AF3_SIZE(n_plddt_bin, "classes", 256, "lDDT classes of the pLDDT head."),
    AF3_NUMBER("dropout_msa", af3.dropout_msa, "probability", 0, 0.9,
               "Dropout rate of the pair-weighted averaging."),
    AF3_NUMBER("dropout_pair", af3.dropout_pair, "probability", 0, 0.9,
               "Dropout rate of the triangle updates."),
    AF3_SIZE(n_sample, "structures", 256,
             "Noisy structures of a training step that share one pass of the trunk."),
    AF3_COUNT(n_rollout_step, "steps", 1000,
              "Denoising steps of the rollout that the confidence head learns from."),
    AF3_NUMBER("sigma_data", af3.noise.sigma_data, "Å", 1e-3, 1e3,
               "Standard deviation of the atoms' positions."),
    AF3_NUMBER("p_mean", af3.noise.p_mean, "", -100, 100,
               "Mean of the logarithm of training noise levels, in units of sigma_data."),
    AF3_NUMBER("p_std", af3.noise.p_std, "", 0, 100, "Standard deviation of that logarithm."),
    AF3_NUMBER("s_max", af3.noise.s_max, "", 1e-3, 1e6,
               "First noise level of a rollout, in units of sigma_data."),
    AF3_NUMBER("s_min", af3.noise.s_min, "", 1e-9, 1e3,
               "Lowest noise level that the schedule aims at."),
    AF3_NUMBER("rho", af3.noise.rho, "", 1e-3, 1e3, "Exponent of the schedule of noise levels."),
    AF3_NUMBER("gamma0", af3.noise.gamma0, "", 0, 100,
               "Fraction by which a step raises its noise level."),
    AF3_NUMBER("gamma_min", af3.noise.gamma_min, "", 0, 1e6,
               "Noise level below which a step does not raise it."),
    AF3_NUMBER("noise_scale", af3.noise.noise_scale, "", 0, 100,
               "Factor of the noise that a step adds."),
    AF3_NUMBER("step_scale", af3.noise.step_scale, "", 0, 100, "Factor of the move of a step."),
    {"af3", "diffusion_products", "",
     "Type to which the operands of the diffusion module's matrix products are rounded; their sums "
     "are f32. auto is tf32 with activations of bf16, else f32. A device that lacks the type "
     "refuses it.",
     FM_KEY_WORD, AT(af3.products), .words = products_words, .expected = "auto, f32, tf32 or bf16",
     .is_implied = true, .of = FM_KEY_AF3},
    {"af3", "trains", "",
     "Which parameters are trained. all: all of them. confidence: those of the confidence head "
     "alone, while the trunk and the rollouts stay as they are.",
     FM_KEY_WORD, AT(af3_trains), .words = trains_words, .expected = "all or confidence",
     .of = FM_KEY_AF3},
    {"af3", "conformers", "",
     "Where reference conformers are. drawn: each is placed anew in every step, as AlphaFold 3 "
     "does. stored: as the sample has them, for learning one complex by heart.",
     FM_KEY_WORD, AT(af3_conformers), .words = conformers_words, .expected = "stored or drawn",
     .is_implied = true, .of = FM_KEY_AF3},
    AF3_LOSS(diffusion, "Weight of the losses of the denoised structures."),
    /* clang-format off */
    FM_COMPLEX_STRUCTURE_TERM_LIST(NO_KEY, COMPLEX_KEY)
    /* clang-format on */
    AF3_LOSS(confidence, "Weight of the losses of the confidence head."),
    /* clang-format off */
    FM_COMPLEX_CONFIDENCE_TERM_LIST(NO_KEY, COMPLEX_KEY)
    /* clang-format on */
    {"af3_loss", "least_resolution", "Å",
     "Best resolution of a sample that trains the confidence head.", FM_KEY_NUMBER,
     AT(af3_loss.least_resolution), .min = 0, .max = 1e3, .of = FM_KEY_AF3},
    {"af3_loss", "most_resolution", "Å",
     "Worst resolution of a sample that trains the confidence head.", FM_KEY_NUMBER,
     AT(af3_loss.most_resolution), .min = 0, .max = 1e3, .of = FM_KEY_AF3},
};

const size_t fm_train_n_key = sizeof fm_train_keys / sizeof fm_train_keys[0];

/* Enumerations are read and written as ints. */
static_assert(sizeof(fm_block_order) == sizeof(int) && sizeof(fm_recompute_policy) == sizeof(int) &&
                  sizeof(fm_clip_policy) == sizeof(int) && sizeof(fm_compat) == sizeof(int) &&
                  sizeof(fm_network_kind) == sizeof(int) && sizeof(fm_af3_trains) == sizeof(int) &&
                  sizeof(fm_af3_products) == sizeof(int) &&
                  sizeof(fm_af3_conformers) == sizeof(int),
              "enumerations are ints");
