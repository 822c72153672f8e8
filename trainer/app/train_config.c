/* train_config.c: see train_config.h. One table states every key: its place in fm_train_config, its
 * type and range, and its sentence of documentation. The parser, the formatter, the suggestions for
 * misspelt keys and the documentation all read that table. The only includer of inih. */
#include "trainer/app/train_config.h"

#include "proto/base/file.h"
#include "proto/template_date.h"
#include "trainer/app/presets.h"

#include <assert.h>
#include <ini.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_TEXT_BYTES = 65536,
    NAME_BYTES = 64,  /* more than any key has */
    MAX_DISTANCE = 3, /* letters by which a key may be mistaken for another */
    MAX_DEPTH = 4,    /* presets in a chain of bases */
};

typedef enum key_kind {
    KEY_INTEGER,
    KEY_INT32,
    KEY_NUMBER,
    KEY_PLAN,
    KEY_DATE, /* uint32_t as in proto/template_date.h */
    KEY_WORD
} key_kind;

/* A setting that is one of some words; values are those of an enumeration. */
typedef struct word {
    const char *word; /* NULL ends the list */
    int value;
} word;

static const word order_words[] = {{"original", FM_ORDER_ORIGINAL},
                                   {"opm_first", FM_ORDER_OUTER_FIRST},
                                   {"parallel", FM_ORDER_PARALLEL},
                                   {0}};
static const word recompute_words[] = {{"none", FM_RECOMPUTE_NONE},
                                       {"hidden", FM_RECOMPUTE_HIDDEN},
                                       {"projections", FM_RECOMPUTE_PROJECTIONS},
                                       {"block", FM_RECOMPUTE_BLOCK},
                                       {"auto", FM_RECOMPUTE_AUTO},
                                       {0}};
static const word compat_words[] = {
    {"none", FM_COMPAT_NONE}, {"openfold", FM_COMPAT_OPENFOLD}, {0}};
static const word clip_words[] = {{"sample", FM_CLIP_SAMPLE}, {"batch", FM_CLIP_BATCH}, {0}};

typedef struct key {
    const char *section, *name;
    const char *unit; /* "" for a plain number, a word or a name */
    const char *help; /* one sentence */
    key_kind kind;
    size_t offset; /* in fm_train_config */
    double min, max;
    const word *words;    /* of KEY_WORD, whose field is an enumeration */
    const char *expected; /* the words, for messages */
    bool no_result;       /* the run's numbers do not depend on it */
} key;

/* The place of a field in fm_train_config. */
#define AT(field) offsetof(fm_train_config, field)

/* The key of a row of the loss terms' table. */
#define LOSS_KEY(term, name, needs, turn, help)                                                    \
    {"loss", #name, "", help, KEY_NUMBER, AT(loss[FM_TERM_##term]), .min = 0, .max = 1e6},

static const key keys[] = {
    {"model", "n_block", "blocks", "Number of Evoformer blocks (Algorithm 6).", KEY_INT32,
     AT(model.n_block), .min = 1, .max = 64},
    {"model", "c_m", "channels", "Channels of the MSA representation m.", KEY_INTEGER,
     AT(model.c_m), .min = 1, .max = 4096},
    {"model", "c_z", "channels", "Channels of the pair representation z.", KEY_INTEGER,
     AT(model.c_z), .min = 1, .max = 4096},
    {"model", "c_s", "channels", "Channels of the single representation s.", KEY_INTEGER,
     AT(model.c_s), .min = 1, .max = 4096},
    {"model", "n_head_msa", "heads",
     "Attention heads of the MSA row and column attention, in the extra MSA stack as "
     "well.",
     KEY_INTEGER, AT(model.n_head_msa), .min = 1, .max = 64},
    {"model", "c_head_msa", "channels", "Channels of one head of the MSA row and column attention.",
     KEY_INTEGER, AT(model.c_head_msa), .min = 1, .max = 256},
    {"model", "n_head_pair", "heads", "Attention heads of the triangle attention.", KEY_INTEGER,
     AT(model.n_head_pair), .min = 1, .max = 64},
    {"model", "c_head_pair", "channels", "Channels of one head of the triangle attention.",
     KEY_INTEGER, AT(model.c_head_pair), .min = 1, .max = 256},
    {"model", "c_outer", "channels", "Hidden channels of the outer product mean.", KEY_INTEGER,
     AT(model.c_outer), .min = 1, .max = 256},
    {"model", "c_triangle", "channels", "Hidden channels of the triangle multiplication.",
     KEY_INTEGER, AT(model.c_triangle), .min = 1, .max = 1024},
    {"model", "transition_factor", "",
     "Width of the hidden layer of the MSA and pair transitions, as a multiple of their "
     "input.",
     KEY_INTEGER, AT(model.transition_factor), .min = 1, .max = 16},
    {"model", "n_extra_block", "blocks",
     "Number of blocks of the extra MSA stack (Algorithm 18); 0 leaves the stack out.", KEY_INT32,
     AT(model.n_extra_block), .min = 0, .max = 16},
    {"model", "c_e", "channels", "Channels of the extra MSA representation.", KEY_INTEGER,
     AT(model.c_e), .min = 1, .max = 4096},
    {"model", "c_head_extra", "channels",
     "Channels of one head of the extra MSA stack's row and column attention.", KEY_INTEGER,
     AT(model.c_head_extra), .min = 1, .max = 256},
    {"model", "c_outer_extra", "channels",
     "Hidden channels of the extra MSA stack's outer product mean.", KEY_INTEGER,
     AT(model.c_outer_extra), .min = 1, .max = 256},
    {"model", "c_triangle_extra", "channels",
     "Hidden channels of the extra MSA stack's triangle multiplication.", KEY_INTEGER,
     AT(model.c_triangle_extra), .min = 1, .max = 1024},
    {"model", "n_template", "templates",
     "Templates of a sample that the model reads; 0 leaves the template embedders out.",
     KEY_INTEGER, AT(model.n_template), .min = 0, .max = 4},
    {"model", "n_template_block", "blocks",
     "Number of blocks of the template pair stack (Algorithm 16).", KEY_INT32,
     AT(model.n_template_block), .min = 0, .max = 16},
    {"model", "c_t", "channels", "Channels of the template pair representation.", KEY_INTEGER,
     AT(model.c_t), .min = 1, .max = 4096},
    {"model", "n_head_template", "heads",
     "Attention heads of the template pair stack's triangle attention.", KEY_INTEGER,
     AT(model.n_head_template), .min = 1, .max = 64},
    {"model", "c_head_template", "channels",
     "Channels of one head of the template pair stack's triangle attention.", KEY_INTEGER,
     AT(model.c_head_template), .min = 1, .max = 256},
    {"model", "c_triangle_template", "channels",
     "Hidden channels of the template pair stack's triangle multiplication.", KEY_INTEGER,
     AT(model.c_triangle_template), .min = 1, .max = 1024},
    {"model", "template_transition_factor", "",
     "Width of the hidden layer of the template pair transition, as a multiple of its "
     "input.",
     KEY_INTEGER, AT(model.template_transition_factor), .min = 1, .max = 16},
    {"model", "n_head_pointwise", "heads",
     "Attention heads of the template pointwise attention (Algorithm 17).", KEY_INTEGER,
     AT(model.n_head_pointwise), .min = 1, .max = 64},
    {"model", "c_head_pointwise", "channels",
     "Channels of one head of the template pointwise attention.", KEY_INTEGER,
     AT(model.c_head_pointwise), .min = 1, .max = 256},
    {"model", "dropout_msa", "probability", "Dropout rate of the MSA row attention.", KEY_NUMBER,
     AT(model.dropout_msa), .min = 0, .max = 0.9},
    {"model", "dropout_pair", "probability",
     "Dropout rate of the pair stack's triangle updates, in the template pair stack as "
     "well.",
     KEY_NUMBER, AT(model.dropout_pair), .min = 0, .max = 0.9},
    {"model", "relpos_k", "residues",
     "Residue distance at which the relative position encoding is clipped (Algorithm 4).",
     KEY_INTEGER, AT(model.relpos_k), .min = 1, .max = 127},
    {"model", "n_distogram_bin", "classes", "Distance classes of the distogram head.", KEY_INTEGER,
     AT(model.n_distogram_bin), .min = 2, .max = 256},
    {"model", "n_recycle_bin", "classes",
     "Distance classes of the recycled pseudo-beta positions (Algorithm 32).", KEY_INTEGER,
     AT(model.n_recycle_bin), .min = 2, .max = 64},
    {"model", "n_structure_iteration", "iterations",
     "Iterations of the structure module (Algorithm 20); 0 leaves the module and its "
     "losses out.",
     KEY_INT32, AT(model.structure.n_iteration), .min = 0, .max = 8},
    {"model", "n_head_ipa", "heads",
     "Attention heads of the invariant point attention (Algorithm 22).", KEY_INTEGER,
     AT(model.structure.n_head), .min = 1, .max = 64},
    {"model", "c_head_ipa", "channels", "Channels of one head of the invariant point attention.",
     KEY_INTEGER, AT(model.structure.c_head), .min = 1, .max = 256},
    {"model", "n_qk_point", "points",
     "Query and key points of one head of the invariant point attention.", KEY_INTEGER,
     AT(model.structure.n_qk), .min = 1, .max = 64},
    {"model", "n_v_point", "points", "Value points of one head of the invariant point attention.",
     KEY_INTEGER, AT(model.structure.n_v), .min = 1, .max = 64},
    {"model", "c_angle", "channels",
     "Hidden channels of the network that predicts the torsion angles.", KEY_INTEGER,
     AT(model.structure.c_angle), .min = 1, .max = 4096},
    {"model", "n_angle_block", "blocks",
     "Residual blocks of the network that predicts the torsion angles.", KEY_INT32,
     AT(model.structure.n_angle_block), .min = 1, .max = 16},
    {"model", "dropout_structure", "probability", "Dropout rate of the structure module.",
     KEY_NUMBER, AT(model.structure.dropout), .min = 0, .max = 0.9},
    {"model", "position_scale", "Å", "Length of one unit of the structure module's translations.",
     KEY_NUMBER, AT(model.structure.position_scale), .min = 1e-3, .max = 1e3},
    {"model", "c_plddt", "channels", "Hidden channels of the pLDDT head.", KEY_INTEGER,
     AT(model.structure.c_plddt), .min = 1, .max = 4096},
    {"model", "n_plddt_bin", "classes", "lDDT classes of the pLDDT head.", KEY_INTEGER,
     AT(model.structure.n_plddt_bin), .min = 2, .max = 256},
    {"model", "n_aligned_error_bin", "classes",
     "Distance classes of the aligned error (pTM) head; 0 leaves the head out.", KEY_INTEGER,
     AT(model.structure.n_aligned_error_bin), .min = 0, .max = 256},
    {"model", "order", "",
     "Position of the outer product mean in a block: after the MSA transition "
     "(original), first (opm_first, as in AlphaFold-Multimer), or last, with MSA and "
     "pair updates from the same input (parallel).",
     KEY_WORD, AT(model.order), .words = order_words,
     .expected = "original, opm_first or parallel"},
    {"model", "compat", "",
     "Quirks of the reference to keep: with openfold, template torsion angles that are masked are "
     "rounding noise of length 1, as OpenFold's are; with none they are 0.",
     KEY_WORD, AT(model.compat), .words = compat_words, .expected = "none or openfold"},
    {"model", "recompute", "",
     "What backward computes again instead of keeping: nothing, the hidden layers of the "
     "transitions, those and the projections of attention, whole blocks, or the least that fits "
     "the memory (auto); results do not depend on it.",
     KEY_WORD, AT(model.recompute), .words = recompute_words,
     .expected = "none, hidden, projections, block or auto", .no_result = true},
    {"model", "memory_budget", "GiB",
     "Device memory that the trainer may take; 0 sets no bound, and with recompute = "
     "auto takes what the device has free. Results do not depend on it.",
     KEY_NUMBER, AT(memory_budget_gib), .min = 0, .max = 1e6, .no_result = true},
    {"data", "plan", "", "Name of the server's sampling plan.", KEY_PLAN, AT(data.plan), .min = 0,
     .max = 0},
    {"data", "crop_size", "residues", "Residues of a crop.", KEY_INTEGER, AT(data.crop_size),
     .min = 1, .max = 65535},
    {"data", "max_msa_clusters", "rows",
     "MSA cluster rows of a sample; n_template rows of template torsion angles come on "
     "top.",
     KEY_INTEGER, AT(data.max_msa_clusters), .min = 1, .max = 65536},
    {"data", "max_extra_msa", "rows", "Extra MSA rows of a sample.", KEY_INTEGER,
     AT(data.max_extra_msa), .min = 1, .max = 1048576},
    {"data", "max_cycle", "cycles",
     "Largest number of recycling cycles; each step draws its number from 1 to this one.",
     KEY_INTEGER, AT(data.max_cycle), .min = 1, .max = 21},
    {"data", "max_template_date", "date",
     "Templates released later are not used: a day as YYYY-MM-DD, query for the day of the chain's "
     "own release, or any for no bound.",
     KEY_DATE, AT(data.max_template_date), .min = 0, .max = 0},
    {"data", "global_batch", "samples", "Samples of one step, over all ranks.", KEY_INTEGER,
     AT(data.global_batch), .min = 1, .max = 65536},
    {"parallel", "dap", "ranks",
     "Ranks that each hold a part of one sample's arrays (Dynamic Axial Parallelism).", KEY_INT32,
     AT(parallel.dap), .min = 1, .max = 16},
    {"parallel", "bp", "ranks",
     "Ranks that run the MSA and the pair branch of each block side by side (Branch "
     "Parallelism); 2 needs the order opm_first or parallel.",
     KEY_INT32, AT(parallel.bp), .min = 1, .max = 2},
    {"optimizer", "learning_rate", "", "Learning rate of Adam after the warm-up.", KEY_NUMBER,
     AT(optimizer.learning_rate), .min = 0, .max = 10},
    {"optimizer", "warmup_samples", "samples",
     "Samples over which the learning rate rises linearly from 0.", KEY_INTEGER,
     AT(optimizer.warmup_samples), .min = 0, .max = 1e12},
    {"optimizer", "decay_at_samples", "samples",
     "Samples after which the learning rate is multiplied by decay_factor; 0 means "
     "never.",
     KEY_INTEGER, AT(optimizer.decay_at_samples), .min = 0, .max = 1e12},
    {"optimizer", "decay_factor", "", "Factor of the learning rate after decay_at_samples.",
     KEY_NUMBER, AT(optimizer.decay_factor), .min = 0, .max = 1},
    {"optimizer", "beta1", "", "Decay rate of Adam's first moment.", KEY_NUMBER,
     AT(optimizer.beta1), .min = 0, .max = 0.9999999},
    {"optimizer", "beta2", "", "Decay rate of Adam's second moment.", KEY_NUMBER,
     AT(optimizer.beta2), .min = 0, .max = 0.9999999},
    {"optimizer", "eps", "", "Number that Adam adds to the root of the second moment.", KEY_NUMBER,
     AT(optimizer.eps), .min = 1e-30, .max = 1},
    {"optimizer", "clip", "",
     "What is clipped by its norm: each sample's gradient (sample, as in AlphaFold2) or "
     "the mean over the batch (batch).",
     KEY_WORD, AT(optimizer.clip), .words = clip_words, .expected = "sample or batch"},
    {"optimizer", "clip_norm", "", "Largest norm of a gradient; a longer one is scaled down to it.",
     KEY_NUMBER, AT(optimizer.clip_norm), .min = 1e-12, .max = 1e12},
    {"optimizer", "ema_decay", "",
     "Decay rate of the exponential moving average of the parameters, per step.", KEY_NUMBER,
     AT(optimizer.ema_decay), .min = 0, .max = 1},
    /* clang-format off */
    FM_LOSS_TERM_LIST(LOSS_KEY)
    /* clang-format on */
    {"metrics", "structure_every", "steps",
     "Steps between scores of the predicted structures; 0 means never. Results do not depend on "
     "it.",
     KEY_INTEGER, AT(metrics.structure_every), .min = 0, .max = 1e9, .no_result = true},
    {"metrics", "eval_every", "steps",
     "Steps between evaluations on the chains of --eval-snapshot, in a process beside the run; 0 "
     "means never. --eval-every stands for it.",
     KEY_INTEGER, AT(metrics.eval_every), .min = 0, .max = 1e9, .no_result = true},
};

enum { N_KEY = sizeof keys / sizeof keys[0] };

/* -- one value */

/* set_word and word_of copy an enumeration's field as an int. */
static_assert(sizeof(fm_block_order) == sizeof(int) && sizeof(fm_recompute_policy) == sizeof(int) &&
                  sizeof(fm_clip_policy) == sizeof(int) && sizeof(fm_compat) == sizeof(int),
              "enumerations are ints");

static bool set_word(const key *k, const char *value, char *field) {
    for (const word *w = k->words; w->word; w++) {
        if (strcmp(value, w->word) != 0) continue;
        memcpy(field, &w->value, sizeof w->value);
        return true;
    }
    return false;
}

static const char *word_of(const key *k, const char *field) {
    int value;
    memcpy(&value, field, sizeof value);
    const word *w = k->words;
    while (w->word && w->value != value)
        w++;
    assert(w->word);
    return w->word;
}

/* Parses `value` into its field. Returns NULL on success, else the description of what was
 * expected; `room` is the space for building that description. */
static const char *set_value(const key *k, const char *value, fm_train_config *config,
                             char room[128]) {
    char *field = (char *)config + k->offset;
    if (k->kind == KEY_PLAN) {
        if (strlen(value) == 0 || strlen(value) >= FM_PLAN_NAME_BYTES) {
            return "the name of a sampling plan";
        }
        snprintf(field, FM_PLAN_NAME_BYTES, "%s", value);
        return NULL;
    }
    if (k->kind == KEY_DATE) {
        uint32_t date = fm_template_date_parse(value);
        if (!date) return "a day as YYYY-MM-DD, query or any";
        memcpy(field, &date, sizeof date);
        return NULL;
    }
    if (k->kind == KEY_WORD) return set_word(k, value, field) ? NULL : k->expected;
    char *end;
    double number = strtod(value, &end);
    bool whole = k->kind != KEY_NUMBER;
    snprintf(room, 128, "a %s from %g to %g", whole ? "whole number" : "number", k->min, k->max);
    if (end == value || *end || !(number >= k->min && number <= k->max)) return room;
    if (whole && number != floor(number)) return room;
    if (k->kind == KEY_NUMBER) *(double *)(void *)field = number;
    if (k->kind == KEY_INTEGER) *(int64_t *)(void *)field = (int64_t)number;
    if (k->kind == KEY_INT32) *(int32_t *)(void *)field = (int32_t)number;
    return NULL;
}

/* -- a text */

typedef struct reading {
    fm_train_config config;
    bool given[N_KEY];                    /* by this text or a base */
    bool seen[N_KEY];                     /* in this text */
    int depth;                            /* of a preset: how many presets have named it as base */
    bool is_preset;                       /* [preset] base is allowed */
    char message[FM_ERROR_MESSAGE_BYTES]; /* of the first bad line */
} reading;

/* The edit distance: how many letters to change, add or leave out to turn one word into the other.
 * Both must be shorter than NAME_BYTES. */
static size_t distance(const char *a, const char *b) {
    size_t row[NAME_BYTES], n = strlen(b);
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 0; a[i]; i++) {
        size_t diagonal = row[0]; /* of the row before */
        row[0] = i + 1;
        for (size_t j = 0; j < n; j++) {
            size_t best = diagonal + (a[i] != b[j]);
            diagonal = row[j + 1];
            if (diagonal + 1 < best) best = diagonal + 1;
            if (row[j] + 1 < best) best = row[j] + 1;
            row[j + 1] = best;
        }
    }
    return row[n];
}

/* The message for an unknown key: the section that it belongs to, or the nearest key. */
static void say_unknown(const char *section, const char *name, char *out, size_t out_bytes) {
    char sections[128] = "";
    const key *meant = NULL;
    size_t nearest = strlen(name) < NAME_BYTES ? MAX_DISTANCE + 1 : 0;
    bool known = false;
    for (size_t i = 0; i < N_KEY; i++) {
        bool first = i == 0 || strcmp(keys[i].section, keys[i - 1].section) != 0;
        size_t at = strlen(sections);
        if (first) {
            snprintf(sections + at, sizeof sections - at, "%s%s", at ? ", " : "", keys[i].section);
        }
        bool here = strcmp(keys[i].section, section) == 0;
        known |= here;
        size_t d = nearest && (here || strcmp(keys[i].name, name) == 0)
                       ? distance(name, keys[i].name)
                       : nearest;
        if (d >= nearest) continue;
        nearest = d;
        meant = &keys[i];
    }
    if (!known) {
        char where[80] = "before the first section";
        if (section[0]) snprintf(where, sizeof where, "in section [%.64s]", section);
        snprintf(out, out_bytes, "found '%.64s' %s, expected one of the sections %s", name, where,
                 sections);
        return;
    }
    int n = snprintf(out, out_bytes, "there is no key '%.64s' in section [%s]", name, section);
    if (meant) {
        snprintf(out + n, out_bytes - (size_t)n, "; the nearest is '%s' in [%s]", meant->name,
                 meant->section);
    }
}

static fm_status read_preset(const char *name, reading *r, fm_error *reterr);

/* [preset] base = NAME: starts from that preset. Returns inih's 1 on success. */
static int on_base(reading *r, const char *name, const char *value) {
    if (!r->is_preset || strcmp(name, "base") != 0) {
        snprintf(r->message, sizeof r->message,
                 "found '%.64s' in section [preset], which only the program's own presets have; "
                 "--preset chooses what a file changes",
                 name);
        return 0;
    }
    for (size_t i = 0; i < N_KEY; i++) {
        if (!r->given[i]) continue;
        snprintf(r->message, sizeof r->message, "base: found after '%s', expected before all keys",
                 keys[i].name);
        return 0;
    }
    fm_error error = {0};
    reading base = {.depth = r->depth + 1, .is_preset = true};
    fm_status status =
        base.depth < MAX_DEPTH
            ? read_preset(value, &base, &error)
            : fm_fail(&error, FM_ERR_USAGE, "more than %d presets in a chain", (int)MAX_DEPTH);
    if (status) {
        snprintf(r->message, sizeof r->message, "base = %.64s: %.400s", value, error.message);
        return 0;
    }
    r->config = base.config;
    memcpy(r->given, base.given, sizeof r->given);
    return 1;
}

/* inih's callback: 0 makes it note the line and stop. */
static int on_value(void *context, const char *section, const char *name, const char *value) {
    reading *r = context;
    if (r->message[0]) return 0;
    if (strcmp(section, "preset") == 0) return on_base(r, name, value);
    for (size_t i = 0; i < N_KEY; i++) {
        if (strcmp(keys[i].section, section) != 0 || strcmp(keys[i].name, name) != 0) continue;
        char room[128];
        if (r->seen[i]) {
            snprintf(r->message, sizeof r->message, "%s: found a second time, expected once", name);
            return 0;
        }
        const char *expected = set_value(&keys[i], value, &r->config, room);
        if (!expected) {
            r->seen[i] = r->given[i] = true;
            return 1;
        }
        snprintf(r->message, sizeof r->message, "%s: found '%.64s', expected %s", name, value,
                 expected);
        return 0;
    }
    say_unknown(section, name, r->message, sizeof r->message);
    return 0;
}

/* The model's recorded shapes are those of the samples. */
static void derive(fm_train_config *config) {
    config->model.n_res = config->data.crop_size;
    config->model.n_seq = config->data.max_msa_clusters;
    config->model.n_extra = config->data.max_extra_msa;
}

static fm_status parse(const char *text, reading *r, fm_error *reterr) {
    int line = ini_parse_string(text, on_value, r);
    if (line > 0) {
        return fm_fail_at(reterr, FM_ERR_USAGE, (uint64_t)line, 1, 0, "%s",
                          r->message[0] ? r->message
                                        : "expected [section], key = value or a comment");
    }
    derive(&r->config);
    return FM_OK;
}

fm_status fm_train_config_parse(fm_bytes text, fm_train_config *config, fm_error *reterr) {
    if (text.size > MAX_TEXT_BYTES) {
        return fm_fail(reterr, FM_ERR_LIMIT, "configuration has %zu bytes, at most %d are allowed",
                       text.size, MAX_TEXT_BYTES);
    }
    char *terminated = malloc(text.size + 1);
    if (!terminated) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the configuration");
    if (text.size) memcpy(terminated, text.data, text.size);
    terminated[text.size] = '\0';
    reading r = {.config = *config};
    fm_status status = parse(terminated, &r, reterr);
    free(terminated);
    if (!status) *config = r.config;
    return status;
}

/* Parses the preset of that name, its bases first. FM_ERR_USAGE when there is no such preset or
 * when it leaves a key without a value. */
void fm_train_config_list_presets(char out[FM_TRAIN_CONFIG_PRESETS_BYTES]) {
    size_t at = 0;
    for (const fm_preset *p = fm_presets; p->name; p++) {
        const char *line = p->text + strlen("; : ") + strlen(p->name);
        int n = snprintf(out + at, FM_TRAIN_CONFIG_PRESETS_BYTES - at, "  %-20s %.*s\n", p->name,
                         (int)strcspn(line, "\n"), line);
        assert(n > 0 && (size_t)n < FM_TRAIN_CONFIG_PRESETS_BYTES - at);
        at += (size_t)n;
    }
}

static fm_status read_preset(const char *name, reading *r, fm_error *reterr) {
    char names[256] = "";
    for (size_t i = 0; fm_presets[i].name; i++) {
        if (strcmp(fm_presets[i].name, name) != 0) {
            size_t at = strlen(names);
            snprintf(names + at, sizeof names - at, "%s%s", at ? ", " : "", fm_presets[i].name);
            continue;
        }
        fm_status status = parse(fm_presets[i].text, r, reterr);
        for (size_t k = 0; !status && k < N_KEY; k++) {
            if (!r->given[k]) {
                status = fm_fail(reterr, FM_ERR_USAGE, "preset %s has no '%s'", name, keys[k].name);
            }
        }
        return status;
    }
    return fm_fail(reterr, FM_ERR_USAGE, "no preset is called '%.64s'; there are: %s", name, names);
}

fm_status fm_train_config_preset(const char *name, fm_train_config *ret_config, fm_error *reterr) {
    reading r = {.is_preset = true};
    fm_status status = read_preset(name, &r, reterr);
    if (!status) *ret_config = r.config;
    return status;
}

static void format_value(const key *k, const fm_train_config *config, char *out, size_t out_bytes) {
    const char *field = (const char *)config + k->offset;
    switch (k->kind) {
    case KEY_INTEGER:
        snprintf(out, out_bytes, "%lld", (long long)*(const int64_t *)(const void *)field);
        break;
    case KEY_INT32: snprintf(out, out_bytes, "%d", *(const int32_t *)(const void *)field); break;
    case KEY_NUMBER: snprintf(out, out_bytes, "%.17g", *(const double *)(const void *)field); break;
    case KEY_PLAN: snprintf(out, out_bytes, "%s", field); break;
    case KEY_DATE: {
        uint32_t date;
        memcpy(&date, field, sizeof date);
        fm_template_date_format(date, out);
        break;
    }
    case KEY_WORD: snprintf(out, out_bytes, "%s", word_of(k, field)); break;
    }
}

fm_status fm_train_config_load(const char *preset, const char *path, fm_train_config *ret_config,
                               fm_error *reterr) {
    fm_train_config config;
    fm_status status = fm_train_config_preset(preset, &config, reterr);
    if (!status && path) {
        fm_arena arena;
        fm_bytes text;
        status = fm_arena_init(&arena, (size_t)2 * MAX_TEXT_BYTES, reterr);
        if (status) return status;
        status = fm_file_read(&arena, path, MAX_TEXT_BYTES, &text, reterr);
        if (!status) status = fm_train_config_parse(text, &config, reterr);
        if (status && reterr) fm_error_in(reterr, path);
        fm_arena_fini(&arena);
    }
    if (!status) *ret_config = config;
    return status;
}

/* Turns "0.10000000000000001" into "0.1" where both are the same number. */
static void shorten(char value[64]) {
    char text[64];
    double number = strtod(value, NULL);
    snprintf(text, sizeof text, "%.15g", number);
    if (strtod(text, NULL) == number) memcpy(value, text, sizeof text);
}

static void format(const fm_train_config *config, bool all, char out[FM_TRAIN_CONFIG_TEXT_BYTES]) {
    size_t at = 0;
    for (size_t i = 0; i < N_KEY; i++) {
        if (keys[i].no_result && !all) continue;
        bool section = i == 0 || strcmp(keys[i].section, keys[i - 1].section) != 0;
        char value[64];
        format_value(&keys[i], config, value, sizeof value);
        if (all && keys[i].kind == KEY_NUMBER) shorten(value);
        int n = snprintf(out + at, FM_TRAIN_CONFIG_TEXT_BYTES - at, "%s%s%s%s = %s\n",
                         section ? all && at ? "\n[" : "[" : "", section ? keys[i].section : "",
                         section ? "]\n" : "", keys[i].name, value);
        assert(n > 0 && at + (size_t)n < FM_TRAIN_CONFIG_TEXT_BYTES);
        at += (size_t)n;
    }
}

void fm_train_config_format(const fm_train_config *config, char out[FM_TRAIN_CONFIG_TEXT_BYTES]) {
    format(config, false, out);
}

void fm_train_config_format_all(const fm_train_config *config,
                                char out[FM_TRAIN_CONFIG_TEXT_BYTES]) {
    format(config, true, out);
}

/* -- documentation */

/* The values that a key takes, as a table cell. */
static void format_range(const key *k, char *out, size_t out_bytes) {
    switch (k->kind) {
    case KEY_INTEGER:
    case KEY_INT32: snprintf(out, out_bytes, "whole number, %.0f to %.0f", k->min, k->max); break;
    case KEY_NUMBER: snprintf(out, out_bytes, "number, %.10g to %.10g", k->min, k->max); break;
    case KEY_PLAN: snprintf(out, out_bytes, "name"); break;
    case KEY_DATE: snprintf(out, out_bytes, "YYYY-MM-DD, query or any"); break;
    case KEY_WORD: snprintf(out, out_bytes, "%s", k->expected); break;
    }
}

void fm_train_config_document(const fm_train_config *defaults,
                              char out[FM_TRAIN_CONFIG_DOCUMENT_BYTES]) {
    size_t at = (size_t)snprintf(out, FM_TRAIN_CONFIG_DOCUMENT_BYTES, "%s",
                                 "| section | key | value | unit | default | meaning |\n"
                                 "|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < N_KEY; i++) {
        char value[64], range[64];
        format_value(&keys[i], defaults, value, sizeof value);
        if (keys[i].kind == KEY_NUMBER) shorten(value);
        format_range(&keys[i], range, sizeof range);
        int n = snprintf(out + at, FM_TRAIN_CONFIG_DOCUMENT_BYTES - at,
                         "| `[%s]` | `%s` | %s | %s | `%s` | %s |\n", keys[i].section, keys[i].name,
                         range, keys[i].unit, value, keys[i].help);
        assert(n > 0 && at + (size_t)n < FM_TRAIN_CONFIG_DOCUMENT_BYTES);
        at += (size_t)n;
    }
}
