/* train_config.c: see config.h. One table of keys; the only includer of inih. */
#include "trainer/app/train_config.h"

#include "proto/base/date.h"
#include "proto/base/file.h"
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
};

typedef enum key_kind {
    KEY_INTEGER,
    KEY_INT32,
    KEY_NUMBER,
    KEY_PLAN,
    KEY_DATE, /* uint32_t as in proto/base/date.h; "any" is 0 */
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
                                       {"block", FM_RECOMPUTE_BLOCK},
                                       {"auto", FM_RECOMPUTE_AUTO},
                                       {0}};
static const word clip_words[] = {{"sample", FM_CLIP_SAMPLE}, {"batch", FM_CLIP_BATCH}, {0}};

typedef struct key {
    const char *section, *name;
    key_kind kind;
    size_t offset; /* in fm_train_config */
    double min, max;
    const word *words;    /* of KEY_WORD, whose field is an enumeration */
    const char *expected; /* the words, to be said */
    bool no_result;       /* the run's numbers do not depend on it */
} key;

#define KEY(section, name, kind, field, min, max)                                                  \
    { section, name, kind, offsetof(fm_train_config, field), min, max, NULL, NULL, false }
#define WORD_KEY(section, name, field, words, expected, no_result)                                 \
    { section, name, KEY_WORD, offsetof(fm_train_config, field), 0, 0, words, expected, no_result }

static const key keys[] = {
    KEY("model", "n_block", KEY_INT32, model.n_block, 1, 64),
    KEY("model", "c_m", KEY_INTEGER, model.c_m, 1, 4096),
    KEY("model", "c_z", KEY_INTEGER, model.c_z, 1, 4096),
    KEY("model", "c_s", KEY_INTEGER, model.c_s, 1, 4096),
    KEY("model", "n_head_msa", KEY_INTEGER, model.n_head_msa, 1, 64),
    KEY("model", "c_head_msa", KEY_INTEGER, model.c_head_msa, 1, 256),
    KEY("model", "n_head_pair", KEY_INTEGER, model.n_head_pair, 1, 64),
    KEY("model", "c_head_pair", KEY_INTEGER, model.c_head_pair, 1, 256),
    KEY("model", "c_outer", KEY_INTEGER, model.c_outer, 1, 256),
    KEY("model", "c_triangle", KEY_INTEGER, model.c_triangle, 1, 1024),
    KEY("model", "transition_factor", KEY_INTEGER, model.transition_factor, 1, 16),
    KEY("model", "n_extra_block", KEY_INT32, model.n_extra_block, 0, 16),
    KEY("model", "c_e", KEY_INTEGER, model.c_e, 1, 4096),
    KEY("model", "c_head_extra", KEY_INTEGER, model.c_head_extra, 1, 256),
    KEY("model", "c_outer_extra", KEY_INTEGER, model.c_outer_extra, 1, 256),
    KEY("model", "c_triangle_extra", KEY_INTEGER, model.c_triangle_extra, 1, 1024),
    KEY("model", "n_template", KEY_INTEGER, model.n_template, 0, 4),
    KEY("model", "n_template_block", KEY_INT32, model.n_template_block, 0, 16),
    KEY("model", "c_t", KEY_INTEGER, model.c_t, 1, 4096),
    KEY("model", "n_head_template", KEY_INTEGER, model.n_head_template, 1, 64),
    KEY("model", "c_head_template", KEY_INTEGER, model.c_head_template, 1, 256),
    KEY("model", "c_triangle_template", KEY_INTEGER, model.c_triangle_template, 1, 1024),
    KEY("model", "template_transition_factor", KEY_INTEGER, model.template_transition_factor, 1,
        16),
    KEY("model", "n_head_pointwise", KEY_INTEGER, model.n_head_pointwise, 1, 64),
    KEY("model", "c_head_pointwise", KEY_INTEGER, model.c_head_pointwise, 1, 256),
    KEY("model", "dropout_msa", KEY_NUMBER, model.dropout_msa, 0, 0.9),
    KEY("model", "dropout_pair", KEY_NUMBER, model.dropout_pair, 0, 0.9),
    KEY("model", "relpos_k", KEY_INTEGER, model.relpos_k, 1, 127),
    KEY("model", "n_distogram_bin", KEY_INTEGER, model.n_distogram_bin, 2, 256),
    KEY("model", "n_recycle_bin", KEY_INTEGER, model.n_recycle_bin, 2, 64),
    KEY("model", "n_structure_iteration", KEY_INT32, model.structure.n_iteration, 0, 8),
    KEY("model", "n_head_ipa", KEY_INTEGER, model.structure.n_head, 1, 64),
    KEY("model", "c_head_ipa", KEY_INTEGER, model.structure.c_head, 1, 256),
    KEY("model", "n_qk_point", KEY_INTEGER, model.structure.n_qk, 1, 64),
    KEY("model", "n_v_point", KEY_INTEGER, model.structure.n_v, 1, 64),
    KEY("model", "c_angle", KEY_INTEGER, model.structure.c_angle, 1, 4096),
    KEY("model", "n_angle_block", KEY_INT32, model.structure.n_angle_block, 1, 16),
    KEY("model", "dropout_structure", KEY_NUMBER, model.structure.dropout, 0, 0.9),
    KEY("model", "position_scale", KEY_NUMBER, model.structure.position_scale, 1e-3, 1e3),
    KEY("model", "c_plddt", KEY_INTEGER, model.structure.c_plddt, 1, 4096),
    KEY("model", "n_plddt_bin", KEY_INTEGER, model.structure.n_plddt_bin, 2, 256),
    KEY("model", "n_aligned_error_bin", KEY_INTEGER, model.structure.n_aligned_error_bin, 0, 256),
    WORD_KEY("model", "order", model.order, order_words, "original, opm_first or parallel", false),
    WORD_KEY("model", "recompute", model.recompute, recompute_words, "none, hidden, block or auto",
             true),
    {"model", "memory_budget", KEY_NUMBER, offsetof(fm_train_config, memory_budget_gib), 0, 1e6,
     NULL, NULL, true},
    KEY("data", "plan", KEY_PLAN, data.plan, 0, 0),
    KEY("data", "crop_size", KEY_INTEGER, data.crop_size, 1, 65535),
    KEY("data", "max_msa_clusters", KEY_INTEGER, data.max_msa_clusters, 1, 65536),
    KEY("data", "max_extra_msa", KEY_INTEGER, data.max_extra_msa, 1, 1048576),
    KEY("data", "max_cycle", KEY_INTEGER, data.max_cycle, 1, 21),
    KEY("data", "max_template_date", KEY_DATE, data.max_template_date, 0, 0),
    KEY("data", "global_batch", KEY_INTEGER, data.global_batch, 1, 65536),
    KEY("parallel", "dap", KEY_INT32, parallel.dap, 1, 16),
    KEY("parallel", "bp", KEY_INT32, parallel.bp, 1, 2),
    KEY("optimizer", "learning_rate", KEY_NUMBER, optimizer.learning_rate, 0, 10),
    KEY("optimizer", "warmup_samples", KEY_INTEGER, optimizer.warmup_samples, 0, 1e12),
    KEY("optimizer", "decay_at_samples", KEY_INTEGER, optimizer.decay_at_samples, 0, 1e12),
    KEY("optimizer", "decay_factor", KEY_NUMBER, optimizer.decay_factor, 0, 1),
    KEY("optimizer", "beta1", KEY_NUMBER, optimizer.beta1, 0, 0.9999999),
    KEY("optimizer", "beta2", KEY_NUMBER, optimizer.beta2, 0, 0.9999999),
    KEY("optimizer", "eps", KEY_NUMBER, optimizer.eps, 1e-30, 1),
    WORD_KEY("optimizer", "clip", optimizer.clip, clip_words, "sample or batch", false),
    KEY("optimizer", "clip_norm", KEY_NUMBER, optimizer.clip_norm, 1e-12, 1e12),
    KEY("optimizer", "ema_decay", KEY_NUMBER, optimizer.ema_decay, 0, 1),
    KEY("loss", "distogram", KEY_NUMBER, loss.distogram, 0, 1e6),
    KEY("loss", "masked_msa", KEY_NUMBER, loss.masked_msa, 0, 1e6),
    KEY("loss", "backbone_fape", KEY_NUMBER, loss.backbone_fape, 0, 1e6),
    KEY("loss", "side_chain_fape", KEY_NUMBER, loss.side_chain_fape, 0, 1e6),
    KEY("loss", "torsion", KEY_NUMBER, loss.torsion, 0, 1e6),
    KEY("loss", "plddt", KEY_NUMBER, loss.plddt, 0, 1e6),
    KEY("loss", "resolved", KEY_NUMBER, loss.resolved, 0, 1e6),
    KEY("loss", "aligned_error", KEY_NUMBER, loss.aligned_error, 0, 1e6),
    KEY("loss", "violation", KEY_NUMBER, loss.violation, 0, 1e6),
    {"metrics", "structure_every", KEY_INTEGER, offsetof(fm_train_config, metrics.structure_every),
     0, 1e9, NULL, NULL, true},
};

enum { N_KEY = sizeof keys / sizeof keys[0] };

/* -- one value */

/* An enumeration's value lies in the config as an int does. */
static_assert(sizeof(fm_block_order) == sizeof(int) && sizeof(fm_recompute_policy) == sizeof(int) &&
                  sizeof(fm_clip_policy) == sizeof(int),
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

/* Puts `value` in its place; NULL on success, else what was expected. `room` is for building that
 * sentence. */
static const char *set_value(const key *k, const char *value, fm_train_config *config,
                             char room[128]) {
    char *field = (char *)config + k->offset;
    if (k->kind == KEY_PLAN) {
        if (strlen(value) == 0 || strlen(value) >= FM_PLAN_NAME_BYTES)
            return "the name of a sampling plan";
        snprintf(field, FM_PLAN_NAME_BYTES, "%s", value);
        return NULL;
    }
    if (k->kind == KEY_DATE) {
        uint32_t date = fm_date_parse(value);
        if (!date && strcmp(value, "any") != 0) return "a day as YYYY-MM-DD, or any";
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
    bool seen[N_KEY];
    char message[FM_ERROR_MESSAGE_BYTES]; /* of the first bad line */
} reading;

/* Letters to change, add or leave out to make one word of the other; both shorter than NAME_BYTES.
 */
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

/* What to say of a key that is none: where it belongs, or which one was meant. */
static void say_unknown(const char *section, const char *name, char *out, size_t out_bytes) {
    char sections[128] = "";
    const key *meant = NULL;
    size_t nearest = strlen(name) < NAME_BYTES ? MAX_DISTANCE + 1 : 0;
    bool known = false;
    for (size_t i = 0; i < N_KEY; i++) {
        bool first = i == 0 || strcmp(keys[i].section, keys[i - 1].section) != 0;
        size_t at = strlen(sections);
        if (first)
            snprintf(sections + at, sizeof sections - at, "%s%s", at ? ", " : "", keys[i].section);
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
        snprintf(out, out_bytes,
                 "found '%.64s' in section [%.64s], expected one of the sections %s", name, section,
                 sections);
        return;
    }
    int n = snprintf(out, out_bytes, "there is no key '%.64s' in section [%s]", name, section);
    if (meant)
        snprintf(out + n, out_bytes - (size_t)n, "; the nearest is '%s' in [%s]", meant->name,
                 meant->section);
}

/* inih's callback: 0 makes it note the line and stop. */
static int on_value(void *context, const char *section, const char *name, const char *value) {
    reading *r = context;
    if (r->message[0]) return 0;
    for (size_t i = 0; i < N_KEY; i++) {
        if (strcmp(keys[i].section, section) != 0 || strcmp(keys[i].name, name) != 0) continue;
        char room[128];
        if (r->seen[i]) {
            snprintf(r->message, sizeof r->message, "%s: found a second time, expected once", name);
            return 0;
        }
        const char *expected = set_value(&keys[i], value, &r->config, room);
        if (!expected) {
            r->seen[i] = true;
            return 1;
        }
        snprintf(r->message, sizeof r->message, "%s: found '%.64s', expected %s", name, value,
                 expected);
        return 0;
    }
    say_unknown(section, name, r->message, sizeof r->message);
    return 0;
}

/* Attention reads q, k, v, g as slices of one width, and the shapes follow from the data. */
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
    if (status == FM_OK) *config = r.config;
    return status;
}

fm_status fm_train_config_preset(const char *name, fm_train_config *ret_config, fm_error *reterr) {
    char names[256] = "";
    for (size_t i = 0; fm_presets[i].name; i++) {
        if (strcmp(fm_presets[i].name, name) != 0) {
            size_t at = strlen(names);
            snprintf(names + at, sizeof names - at, "%s%s", at ? ", " : "", fm_presets[i].name);
            continue;
        }
        reading r = {.message = ""};
        fm_status status = parse(fm_presets[i].text, &r, reterr);
        for (size_t k = 0; status == FM_OK && k < N_KEY; k++) {
            if (!r.seen[k]) {
                status = fm_fail(reterr, FM_ERR_USAGE, "preset %s has no '%s'", name, keys[k].name);
            }
        }
        if (status == FM_OK) *ret_config = r.config;
        return status;
    }
    return fm_fail(reterr, FM_ERR_USAGE, "no preset is called '%.64s'; there are: %s", name, names);
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
        fm_date_format(date, out);
        if (!date) snprintf(out, out_bytes, "any");
        break;
    }
    case KEY_WORD: snprintf(out, out_bytes, "%s", word_of(k, field)); break;
    }
}

fm_status fm_train_config_load(const char *preset, const char *path, fm_train_config *ret_config,
                               fm_error *reterr) {
    fm_train_config config;
    fm_status status = fm_train_config_preset(preset, &config, reterr);
    if (status == FM_OK && path) {
        fm_arena arena;
        fm_bytes text;
        status = fm_arena_init(&arena, (size_t)2 * MAX_TEXT_BYTES, reterr);
        if (status != FM_OK) return status;
        status = fm_file_read(&arena, path, MAX_TEXT_BYTES, &text, reterr);
        if (status == FM_OK) status = fm_train_config_parse(text, &config, reterr);
        if (status != FM_OK && reterr) fm_error_in(reterr, path);
        fm_arena_fini(&arena);
    }
    if (status == FM_OK) *ret_config = config;
    return status;
}

/* "0.10000000000000001" as "0.1", where that is the same number. */
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
