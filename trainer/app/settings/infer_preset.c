/* infer_preset.c: see infer_preset.h.
 *
 * Names tell which parts a model has: stacks of blocks, templates, a structure module, a head. With
 * DeepMind's naming the number of blocks is the leading axis of a stacked array; with the others it
 * is the largest block number in a name, plus 1. These sizes replace those of each preset in turn.
 * The remaining sizes (channels, heads) decide the comparison, array by array, which preset
 * fits. */
#include "trainer/app/settings/infer_preset.h"

#include "trainer/app/settings/network.h"
#include "trainer/app/settings/presets.h"
#include "trainer/checkpoint/foreign.h"
#include "trainer/model/parameters.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -- sizes from the names */

enum { MAX_ALIGNED_ERROR_BIN = 256, N_TEMPLATE = 4, N_ITERATION = 8 };

typedef struct found_sizes {
    int32_t n_block, n_extra_block, n_template_block; /* 0 = none in the file */
    int64_t n_aligned_error_bin;
    bool has_template, has_structure;
} found_sizes;

/* How the names of a stack's arrays begin, or continue after a prefix. */
typedef struct stack_names {
    const char *foldmill, *openfold; /* followed by the block's number */
    const char *deepmind;            /* one array for all blocks */
    int32_t most;                    /* blocks that the model can have */
} stack_names;

static const stack_names evoformer = {"evoformer.", "evoformer.blocks.", "/evoformer_iteration/",
                                      FM_MAX_BLOCK};
static const stack_names extra_msa = {"extra_msa_stack.", "extra_msa_stack.blocks.",
                                      "/extra_msa_stack/", FM_MAX_EXTRA_BLOCK};
static const stack_names templates = {"template.", "template_pair_stack.blocks.",
                                      "/template_pair_stack/", FM_MAX_TEMPLATE_BLOCK};

/* Blocks that a numbered name proves: its number plus 1; 0 if it has none. */
static int32_t count_numbered(const char *name, const char *before) {
    const char *at = strstr(name, before);
    if (!at || !isdigit((unsigned char)at[strlen(before)])) return 0;
    unsigned long number = strtoul(at + strlen(before), NULL, 10);
    return number < INT32_MAX ? (int32_t)number + 1 : INT32_MAX;
}

/* Raises *count to the blocks that the array proves, if the model can have as many. */
static void count_blocks(const fm_weights_array *array, const stack_names *names, int32_t *count) {
    int32_t n = count_numbered(array->name, names->foldmill);
    if (!n) n = count_numbered(array->name, names->openfold);
    if (!n && strstr(array->name, names->deepmind) && array->rank > 0 &&
        array->shape[0] <= (uint64_t)names->most) {
        n = (int32_t)array->shape[0];
    }
    if (n > *count && n <= names->most) *count = n;
}

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), n_end = strlen(end);
    return n >= n_end && strcmp(text + n - n_end, end) == 0;
}

static found_sizes find_sizes(const fm_weights_file *file) {
    static const char *const aligned_error[] = {"predicted_aligned_error_head/logits//bias",
                                                "aux_heads.tm.linear.bias", "aligned_error.bias"};
    found_sizes found = {0};
    for (size_t i = 0; i < fm_weights_file_count(file); i++) {
        const fm_weights_array *array = fm_weights_file_at(file, i);
        count_blocks(array, &evoformer, &found.n_block);
        count_blocks(array, &extra_msa, &found.n_extra_block);
        count_blocks(array, &templates, &found.n_template_block);
        found.has_template |= strstr(array->name, "template") != NULL;
        found.has_structure |= strstr(array->name, "structure") != NULL;
        for (size_t k = 0; k < sizeof aligned_error / sizeof aligned_error[0]; k++) {
            if (ends_with(array->name, aligned_error[k]) && array->rank == 1 &&
                array->shape[0] <= MAX_ALIGNED_ERROR_BIN) {
                found.n_aligned_error_bin = (int64_t)array->shape[0];
            }
        }
    }
    return found;
}

/* -- a preset with these sizes */

typedef struct candidate {
    fm_inferred_preset preset;
    fm_train_config config;
    size_t n_change;
} candidate;

static void note_change(candidate *c, const char *key, int64_t before, int64_t now) {
    if (before == now) return;
    size_t at = strlen(c->preset.changes);
    snprintf(c->preset.changes + at, sizeof c->preset.changes - at, "%s%s = %lld",
             c->n_change ? ", " : "", key, (long long)now);
    c->n_change++;
}

static void apply_sizes(const found_sizes *found, candidate *c) {
    if (c->config.network != FM_NETWORK_AF2) return; /* presets of af3 fit as they are */
    fm_model_config *model = &c->config.model;
    const fm_model_config before = *model;
    if (found->n_block) model->n_block = found->n_block;
    model->n_extra_block = found->n_extra_block;
    if (found->n_template_block) model->n_template_block = found->n_template_block;
    if (!found->has_template) model->n_template = 0;
    if (found->has_template && !model->n_template) model->n_template = N_TEMPLATE;
    if (!found->has_structure) model->structure.n_iteration = 0;
    if (found->has_structure && !model->structure.n_iteration) {
        model->structure.n_iteration = N_ITERATION;
    }
    model->structure.n_aligned_error_bin = found->n_aligned_error_bin;
    note_change(c, "n_block", before.n_block, model->n_block);
    note_change(c, "n_extra_block", before.n_extra_block, model->n_extra_block);
    note_change(c, "n_template", before.n_template, model->n_template);
    note_change(c, "n_template_block", before.n_template_block, model->n_template_block);
    note_change(c, "n_structure_iteration", before.structure.n_iteration,
                model->structure.n_iteration);
    note_change(c, "n_aligned_error_bin", before.structure.n_aligned_error_bin,
                model->structure.n_aligned_error_bin);
}

static fm_status count_differences(const fm_weights_file *file, fm_arena *arena, candidate *c,
                                   fm_error *reterr) {
    fm_params params;
    fm_import_report report;
    size_t mark = fm_arena_mark(arena);
    fm_status status =
        fm_network_of(&c->config)->list_parameters(&c->config, arena, &params, reterr);
    if (!status) status = fm_foreign_compare(file, &params, arena, &report, reterr);
    if (!status) c->preset.n_difference = report.n_missing + report.n_extra + report.n_wrong;
    fm_arena_rewind(arena, mark);
    return status;
}

static bool is_better(const candidate *a, const candidate *b) {
    if (a->preset.n_difference != b->preset.n_difference) {
        return a->preset.n_difference < b->preset.n_difference;
    }
    return a->n_change < b->n_change;
}

/* -- settings of the model as text */

void fm_preset_format_model(const fm_train_config *config, char out[FM_TRAIN_CONFIG_TEXT_BYTES]) {
    char text[FM_TRAIN_CONFIG_TEXT_BYTES];
    size_t at = 0;
    bool is_model = false;
    fm_train_config_format(config, text);
    for (const char *line = text; *line;) {
        size_t n = strcspn(line, "\n");
        if (line[0] == '[') {
            is_model = strncmp(line, "[model]", n) == 0 || strncmp(line, "[af3]", n) == 0;
        }
        n += line[n] == '\n';
        if (is_model) memcpy(out + at, line, n);
        if (is_model) at += n;
        line += n;
    }
    out[at] = '\0';
}

/* Returns the line of `text` that sets the key, up to and with its " = "; NULL: none does. */
static const char *find_line(const char *text, const char *key, size_t key_bytes) {
    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        bool is_key = strncmp(line, key, key_bytes) == 0;
        if (is_key && strncmp(line + key_bytes, " = ", 3) == 0) return line;
    }
    return NULL;
}

/* Appends ", " and the line, if they fit; *at is the length so far. */
static void append_line(char *out, size_t out_bytes, size_t *at, const char *line) {
    size_t n = strcspn(line, "\n"), n_comma = *at ? 2 : 0;
    if (*at + n_comma + n >= out_bytes) return;
    *at +=
        (size_t)snprintf(out + *at, out_bytes - *at, "%s%.*s", n_comma ? ", " : "", (int)n, line);
}

void fm_preset_list_changes(const fm_train_config *before, const fm_train_config *now, char *out,
                            size_t out_bytes) {
    char old[FM_TRAIN_CONFIG_TEXT_BYTES], text[FM_TRAIN_CONFIG_TEXT_BYTES];
    size_t at = strlen(out);
    fm_preset_format_model(before, old);
    fm_preset_format_model(now, text);
    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        size_t n = strcspn(line, "\n"), n_key = strcspn(line, " ");
        if (n_key >= n) continue; /* a section, or no setting */
        const char *other = find_line(old, line, n_key);
        bool is_same = other && strcspn(other, "\n") == n && strncmp(other, line, n) == 0;
        if (!is_same) append_line(out, out_bytes, &at, line);
    }
}

void fm_preset_list_assumed(const fm_train_config *config, char out[FM_PRESET_ASSUMED_BYTES]) {
    static const char *const keys[] = {"n_structure_iteration", "position_scale", "order",
                                       "compat"};
    char text[FM_TRAIN_CONFIG_TEXT_BYTES];
    size_t at = 0;
    out[0] = '\0';
    if (config->network != FM_NETWORK_AF2) return;
    fm_preset_format_model(config, text);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const char *line = find_line(text, keys[i], strlen(keys[i]));
        if (line) append_line(out, FM_PRESET_ASSUMED_BYTES, &at, line);
    }
}

static fm_status parse_text(const char *text, fm_train_config *config, fm_error *reterr) {
    return fm_train_config_parse((fm_bytes){(const uint8_t *)text, strlen(text)}, config, reterr);
}

/* Takes the settings that the file stores, unless its arrays are not those of such a model. */
static fm_status take_stored(const fm_weights_file *file, fm_arena *arena, candidate *best,
                             fm_error *reterr) {
    const char *text = fm_weights_file_settings(file);
    char model[FM_TRAIN_CONFIG_TEXT_BYTES];
    candidate c = *best;
    if (!text) return FM_OK;
    /* A checkpoint stores more than its model. */
    fm_train_config all = c.config;
    fm_status status = parse_text(text, &all, reterr);
    if (status) return status;
    fm_preset_format_model(&all, model);
    status = parse_text(model, &c.config, reterr);
    if (!status) status = count_differences(file, arena, &c, reterr);
    if (status || c.preset.n_difference) return status;
    c.preset.is_stored = true;
    fm_preset_list_changes(&best->config, &c.config, c.preset.changes, sizeof c.preset.changes);
    *best = c;
    return FM_OK;
}

/* -- the choice */

/* Presets that are looked at before the others, since several have the same parameters: the stages
 * of a training, or other settings of a small network. */
static const char *const PREFERRED[] = {"af2-initial", "af3-initial", "af3-tiny"};
enum { N_PREFERRED = sizeof PREFERRED / sizeof PREFERRED[0] };

/* Returns the name of preset i in this order; NULL behind the last. */
static const char *name_of(size_t i) {
    return i < N_PREFERRED ? PREFERRED[i] : fm_presets[i - N_PREFERRED].name;
}

static fm_status look_at_preset(const fm_weights_file *file, const found_sizes *found,
                                const char *name, const char *config_path, fm_arena *arena,
                                candidate *c, fm_error *reterr) {
    *c = (candidate){.preset = {.name = name}};
    fm_status status = fm_train_config_load(name, config_path, &c->config, reterr);
    if (status) return status;
    if (!config_path) apply_sizes(found, c);
    return count_differences(file, arena, c, reterr);
}

/* Returns whether the error says that a preset may be of another network than the file of weights,
 * whose names differ, or than the settings, whose keys differ. */
static bool is_of_another_network(fm_status status) {
    return status == FM_ERR_FORMAT || status == FM_ERR_USAGE;
}

fm_status fm_preset_infer(const fm_weights_file *file, const char *config_path, fm_arena *arena,
                          fm_inferred_preset *ret_preset, fm_train_config *ret_config,
                          fm_error *reterr) {
    const found_sizes found = find_sizes(file);
    candidate best = {.preset = {.name = "af2-initial"}};
    bool any = false;
    fm_status first = FM_OK; /* error of a preset that cannot be compared */
    for (size_t i = 0; name_of(i); i++) {
        candidate c;
        fm_error error;
        const char *name = name_of(i);
        fm_status status = look_at_preset(file, &found, name, config_path, arena, &c, &error);
        if (status && !first && reterr) *reterr = error;
        if (status && !first) first = status;
        if (status && !is_of_another_network(status)) {
            if (reterr) *reterr = error;
            return status;
        }
        if (status) continue;
        if (!any || is_better(&c, &best)) best = c;
        any = true;
    }
    if (!any) return first;
    fm_status stored = config_path ? FM_OK : take_stored(file, arena, &best, reterr);
    if (stored) return stored;
    *ret_preset = best.preset;
    *ret_config = best.config;
    return FM_OK;
}
