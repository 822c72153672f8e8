/* train_config.c: see train_config.h. The keys are in a table (train_keys.h). Only this file
 * includes inih. */
#include "trainer/app/settings/train_config.h"

#include "proto/base/file.h"
#include "proto/template_date.h"
#include "trainer/app/settings/presets.h"
#include "trainer/app/settings/train_keys.h"

#include <assert.h>
#include <ini.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_TEXT_BYTES = 65536,
    MAX_LINE_BYTES = INI_MAX_LINE - 2, /* inih takes the rest of a longer line for another line */
    NAME_BYTES = 64,                   /* more than any key has */
    MAX_DISTANCE = 3,                  /* letters by which a key may be mistaken for another */
    MAX_DEPTH = 4,                     /* presets in a chain of bases */
    MOST_KEYS = 256,
};

/* -- one value */

static bool set_word(const fm_train_key *k, const char *value, char *field) {
    for (const fm_key_word *w = k->words; w->word; w++) {
        if (strcmp(value, w->word) != 0) continue;
        memcpy(field, &w->value, sizeof w->value);
        return true;
    }
    return false;
}

static const char *word_of(const fm_train_key *k, const char *field) {
    int value;
    memcpy(&value, field, sizeof value);
    const fm_key_word *w = k->words;
    while (w->word && w->value != value)
        w++;
    assert(w->word);
    return w->word;
}

/* Parses `value` into its field. Returns NULL on success, else the description of what was
 * expected; `room` is the space for building that description. */
static const char *set_value(const fm_train_key *k, const char *value, fm_train_config *config,
                             char room[128]) {
    char *field = (char *)config + k->offset;
    if (k->kind == FM_KEY_PLAN) {
        if (strlen(value) == 0 || strlen(value) >= FM_PLAN_NAME_BYTES) {
            return "the name of a sampling plan";
        }
        snprintf(field, FM_PLAN_NAME_BYTES, "%s", value);
        return NULL;
    }
    if (k->kind == FM_KEY_DATE) {
        uint32_t date = fm_template_date_parse(value);
        if (!date) return "a day as YYYY-MM-DD, query or any";
        memcpy(field, &date, sizeof date);
        return NULL;
    }
    if (k->kind == FM_KEY_WORD) return set_word(k, value, field) ? NULL : k->expected;
    char *end;
    double number = strtod(value, &end);
    bool whole = k->kind != FM_KEY_NUMBER;
    snprintf(room, 128, "a %s from %g to %g", whole ? "whole number" : "number", k->min, k->max);
    if (end == value || *end || !(number >= k->min && number <= k->max)) return room;
    if (whole && number != floor(number)) return room;
    if (k->kind == FM_KEY_NUMBER) *(double *)(void *)field = number;
    if (k->kind == FM_KEY_INTEGER) *(int64_t *)(void *)field = (int64_t)number;
    if (k->kind == FM_KEY_INT32) *(int32_t *)(void *)field = (int32_t)number;
    return NULL;
}

/* -- a text */

typedef struct reading {
    fm_train_config config;
    bool given[MOST_KEYS];                /* by this text or a base */
    bool seen[MOST_KEYS];                 /* in this text */
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
static void say_unknown(const reading *r, const char *section, const char *name, char *out,
                        size_t out_bytes) {
    char sections[128] = "";
    const fm_train_key *meant = NULL;
    size_t nearest = strlen(name) < NAME_BYTES ? MAX_DISTANCE + 1 : 0;
    bool known = false;
    const fm_train_key *before = NULL;
    for (size_t i = 0; i < fm_train_n_key; i++) {
        const fm_train_key *k = &fm_train_keys[i];
        if (!fm_train_key_is_of(k, r->config.network)) continue;
        bool first = !before || strcmp(k->section, before->section) != 0;
        before = k;
        size_t at = strlen(sections);
        if (first) {
            snprintf(sections + at, sizeof sections - at, "%s%s", at ? ", " : "", k->section);
        }
        bool here = strcmp(k->section, section) == 0;
        known |= here;
        size_t d =
            nearest && (here || strcmp(k->name, name) == 0) ? distance(name, k->name) : nearest;
        if (d >= nearest) continue;
        nearest = d;
        meant = k;
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

static const char *network_word(fm_network_kind network) {
    return network == FM_NETWORK_AF3 ? "af3" : "af2";
}

/* [preset] base = NAME: starts from that preset. Returns inih's 1 on success. */
static int on_base(reading *r, const char *name, const char *value) {
    if (!r->is_preset || strcmp(name, "base") != 0) {
        snprintf(r->message, sizeof r->message,
                 "found '%.64s' in section [preset], which only the program's own presets have; "
                 "--preset chooses what a file changes",
                 name);
        return 0;
    }
    for (size_t i = 0; i < fm_train_n_key; i++) {
        if (!r->given[i]) continue;
        snprintf(r->message, sizeof r->message, "base: found after '%s', expected before all keys",
                 fm_train_keys[i].name);
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

/* inih's callback: 0 is an error. inih notes the line of the first one and goes on. */
static int on_value(void *context, const char *section, const char *name, const char *value) {
    reading *r = context;
    if (r->message[0]) return 0;
    if (strcmp(section, "preset") == 0) return on_base(r, name, value);
    for (size_t i = 0; i < fm_train_n_key; i++) {
        const fm_train_key *k = &fm_train_keys[i];
        if (strcmp(k->section, section) != 0 || strcmp(k->name, name) != 0) continue;
        char room[128];
        if (!fm_train_key_is_of(k, r->config.network)) {
            snprintf(r->message, sizeof r->message,
                     "%s: found in section [%s], but model = %s has no such key", name, section,
                     network_word(r->config.network));
            return 0;
        }
        if (r->seen[i]) {
            snprintf(r->message, sizeof r->message, "%s: found a second time, expected once", name);
            return 0;
        }
        const char *expected = set_value(k, value, &r->config, room);
        if (!expected) {
            r->seen[i] = r->given[i] = true;
            return 1;
        }
        snprintf(r->message, sizeof r->message, "%s: found '%.64s', expected %s", name, value,
                 expected);
        return 0;
    }
    say_unknown(r, section, name, r->message, sizeof r->message);
    return 0;
}

/* The model's recorded shapes are those of the samples. */
static void derive(fm_train_config *config) {
    config->model.n_res = config->data.crop_size;
    config->model.n_seq = config->data.max_msa_clusters;
    config->model.n_extra = config->data.max_extra_msa;
    config->af3.n_token = config->data.crop_size;
    config->af3.n_atom = config->data.max_atoms;
    config->af3.n_msa = config->data.max_msa;
    config->af3.n_template = config->data.n_template;
    config->af3.n_cycle = (int32_t)config->data.max_cycle;
    config->af3.recompute = config->model.recompute;
    if (config->network == FM_NETWORK_AF3) config->parallel.bp = 1; /* its blocks have one branch */
}

/* The value that checkpoints leave out; NULL if they name every one. Those of af3 had no date at
 * first. */
static const char *implied_value(const fm_train_key *k, fm_network_kind network) {
    if (k->kind == FM_KEY_DATE && network == FM_NETWORK_AF3) return "query";
    return k->is_implied ? k->words[0].word : NULL;
}

/* Whether the text chooses another network than it began with, and lacks a setting of it that
 * results depend on. A run of stored samples has no plan. */
static const fm_train_key *missing_key(const reading *r, fm_network_kind began) {
    if (r->config.network == began) return NULL;
    for (size_t i = 0; i < fm_train_n_key; i++) {
        const fm_train_key *k = &fm_train_keys[i];
        bool counts = !k->no_result && !implied_value(k, r->config.network) &&
                      k->kind != FM_KEY_PLAN && fm_train_key_is_of(k, r->config.network);
        if (counts && !r->seen[i]) return k;
    }
    return NULL;
}

static int accept(void *context, const char *section, const char *name, const char *value) {
    (void)context, (void)section, (void)name, (void)value;
    return 1;
}

/* inih goes on behind a line that it cannot read, whose number must not get a later message. */
static fm_status parse(const char *text, reading *r, fm_error *reterr) {
    int line = ini_parse_string(text, accept, NULL);
    if (line > 0) {
        return fm_fail_at(reterr, FM_ERR_USAGE, (uint64_t)line, 1, 0,
                          "expected [section], key = value or a comment");
    }
    line = ini_parse_string(text, on_value, r);
    if (line > 0) return fm_fail_at(reterr, FM_ERR_USAGE, (uint64_t)line, 1, 0, "%s", r->message);
    derive(&r->config);
    return FM_OK;
}

/* Refuses what inih would read as something else: a longer line, and bytes behind a NUL. */
static fm_status check_lines(fm_bytes text, fm_error *reterr) {
    uint64_t number = 1, column = 0;
    for (size_t i = 0; i < text.size; i++) {
        bool is_end = text.data[i] == '\n';
        column = is_end ? 0 : column + 1;
        number += is_end;
        if (!text.data[i]) {
            return fm_fail_at(reterr, FM_ERR_USAGE, number, column, 0,
                              "found a NUL byte, expected text");
        }
        if (column > MAX_LINE_BYTES) {
            return fm_fail_at(
                reterr, FM_ERR_USAGE, number, column, 0,
                "found a line of more than %d bytes; a comment can have several lines",
                (int)MAX_LINE_BYTES);
        }
    }
    return FM_OK;
}

/* The heads of these layers share the channels of their representation. */
static fm_status check_heads(const fm_train_config *config, fm_error *reterr) {
    const fm_af3_config *c = &config->af3;
    const struct {
        const char *channels, *heads;
        int64_t c, n;
    } layer[] = {{"c_s", "n_head_single", c->c_s, c->n_head_single},
                 {"c_token", "n_head_token", c->c_token, c->n_head_token},
                 {"c_atom", "n_head_atom", c->c_atom, c->n_head_atom}};
    if (config->network != FM_NETWORK_AF3) return FM_OK;
    for (size_t i = 0; i < sizeof layer / sizeof layer[0]; i++) {
        if (layer[i].c >= layer[i].n) continue;
        return fm_fail(reterr, FM_ERR_USAGE,
                       "found %s = %lld with %s = %lld, expected at least one channel for each "
                       "head",
                       layer[i].channels, (long long)layer[i].c, layer[i].heads,
                       (long long)layer[i].n);
    }
    return FM_OK;
}

fm_status fm_train_config_parse(fm_bytes text, fm_train_config *config, fm_error *reterr) {
    if (text.size > MAX_TEXT_BYTES) {
        return fm_fail(reterr, FM_ERR_LIMIT, "configuration has %zu bytes, at most %d are allowed",
                       text.size, MAX_TEXT_BYTES);
    }
    fm_status status = check_lines(text, reterr);
    if (status) return status;
    char *terminated = malloc(text.size + 1);
    if (!terminated) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the configuration");
    if (text.size) memcpy(terminated, text.data, text.size);
    terminated[text.size] = '\0';
    reading r = {.config = *config};
    status = parse(terminated, &r, reterr);
    const fm_train_key *missing = status ? NULL : missing_key(&r, config->network);
    if (missing) {
        status =
            fm_fail(reterr, FM_ERR_USAGE,
                    "model = %s without a value for %s in [%s]; begin with a preset of that model",
                    network_word(r.config.network), missing->name, missing->section);
    }
    free(terminated);
    if (!status) status = check_heads(&r.config, reterr);
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
    char names[512] = "";
    for (size_t i = 0; fm_presets[i].name; i++) {
        if (strcmp(fm_presets[i].name, name) != 0) {
            size_t at = strlen(names);
            snprintf(names + at, sizeof names - at, "%s%s", at ? ", " : "", fm_presets[i].name);
            continue;
        }
        fm_status status = parse(fm_presets[i].text, r, reterr);
        for (size_t k = 0; !status && k < fm_train_n_key; k++) {
            const bool counts = fm_train_key_is_of(&fm_train_keys[k], r->config.network);
            if (counts && !r->given[k]) {
                status = fm_fail(reterr, FM_ERR_USAGE, "preset %s has no '%s'", name,
                                 fm_train_keys[k].name);
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

static void format_value(const fm_train_key *k, const fm_train_config *config, char *out,
                         size_t out_bytes) {
    const char *field = (const char *)config + k->offset;
    switch (k->kind) {
    case FM_KEY_INTEGER:
        snprintf(out, out_bytes, "%lld", (long long)*(const int64_t *)(const void *)field);
        break;
    case FM_KEY_INT32: snprintf(out, out_bytes, "%d", *(const int32_t *)(const void *)field); break;
    case FM_KEY_NUMBER:
        snprintf(out, out_bytes, "%.17g", *(const double *)(const void *)field);
        break;
    case FM_KEY_PLAN: snprintf(out, out_bytes, "%s", field); break;
    case FM_KEY_DATE: {
        uint32_t date;
        memcpy(&date, field, sizeof date);
        fm_template_date_format(date, out);
        break;
    }
    case FM_KEY_WORD: snprintf(out, out_bytes, "%s", word_of(k, field)); break;
    }
}

fm_status fm_train_config_read_stored(const char *text, const char *path,
                                      fm_train_config *ret_config, fm_error *reterr) {
    fm_train_config config; /* of any preset: the stored text names every key that matters */
    fm_status status = fm_train_config_preset("af2-initial", &config, reterr);
    if (status) return status;
    config.data.plan[0] = '\0'; /* a run of stored samples has none */
    const fm_bytes bytes = {(const uint8_t *)text, strlen(text)};
    status = fm_train_config_parse(bytes, &config, reterr);
    if (status && reterr) fm_error_in(reterr, path);
    if (!status) *ret_config = config;
    return status;
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

/* Whether the text has the key: every key of the network, or those that results depend on. */
static bool is_written(const fm_train_key *k, const fm_train_config *config, bool all) {
    if (!fm_train_key_is_of(k, config->network)) return false;
    if (all) return true;
    if (k->kind == FM_KEY_PLAN && !config->data.plan[0]) return false;
    char value[64];
    const char *implied = implied_value(k, config->network);
    if (implied) format_value(k, config, value, sizeof value);
    return !k->no_result && !(implied && strcmp(value, implied) == 0);
}

static void format(const fm_train_config *config, bool all, char out[FM_TRAIN_CONFIG_TEXT_BYTES]) {
    size_t at = 0;
    const fm_train_key *before = NULL;
    for (size_t i = 0; i < fm_train_n_key; i++) {
        const fm_train_key *k = &fm_train_keys[i];
        if (!is_written(k, config, all)) continue;
        bool section = !before || strcmp(k->section, before->section) != 0;
        before = k;
        char value[64];
        format_value(&fm_train_keys[i], config, value, sizeof value);
        if (all && fm_train_keys[i].kind == FM_KEY_NUMBER) shorten(value);
        int n = snprintf(out + at, FM_TRAIN_CONFIG_TEXT_BYTES - at, "%s%s%s%s = %s\n",
                         section ? all && at ? "\n[" : "[" : "",
                         section ? fm_train_keys[i].section : "", section ? "]\n" : "",
                         fm_train_keys[i].name, value);
        assert(n > 0 && at + (size_t)n < FM_TRAIN_CONFIG_TEXT_BYTES);
        at += (size_t)n;
    }
}

void fm_train_config_format(const fm_train_config *config, char out[FM_TRAIN_CONFIG_TEXT_BYTES]) {
    format(config, false, out);
}

void fm_train_config_format_implied(const fm_train_config *config,
                                    char out[FM_TRAIN_CONFIG_TEXT_BYTES]) {
    size_t at = 0;
    out[0] = '\0';
    for (size_t i = 0; i < fm_train_n_key; i++) {
        const fm_train_key *k = &fm_train_keys[i];
        const char *value = implied_value(k, config->network);
        if (!value || !fm_train_key_is_of(k, config->network)) continue;
        int n = snprintf(out + at, FM_TRAIN_CONFIG_TEXT_BYTES - at, "[%s]\n%s = %s\n", k->section,
                         k->name, value);
        assert(n > 0 && at + (size_t)n < FM_TRAIN_CONFIG_TEXT_BYTES);
        at += (size_t)n;
    }
}

void fm_train_config_format_all(const fm_train_config *config,
                                char out[FM_TRAIN_CONFIG_TEXT_BYTES]) {
    format(config, true, out);
}

/* -- documentation */

/* The values that a key takes, as a table cell. */
static void format_range(const fm_train_key *k, char *out, size_t out_bytes) {
    switch (k->kind) {
    case FM_KEY_INTEGER:
    case FM_KEY_INT32:
        snprintf(out, out_bytes, "whole number, %.0f to %.0f", k->min, k->max);
        break;
    case FM_KEY_NUMBER: snprintf(out, out_bytes, "number, %.10g to %.10g", k->min, k->max); break;
    case FM_KEY_PLAN: snprintf(out, out_bytes, "name"); break;
    case FM_KEY_DATE: snprintf(out, out_bytes, "YYYY-MM-DD, query or any"); break;
    case FM_KEY_WORD: snprintf(out, out_bytes, "%s", k->expected); break;
    }
}

void fm_train_config_document(const fm_train_config *af2, const fm_train_config *af3,
                              char out[FM_TRAIN_CONFIG_DOCUMENT_BYTES]) {
    size_t at = (size_t)snprintf(out, FM_TRAIN_CONFIG_DOCUMENT_BYTES, "%s",
                                 "| section | key | value | unit | default | meaning |\n"
                                 "|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < fm_train_n_key; i++) {
        char value[64], range[64];
        const fm_train_config *defaults = fm_train_keys[i].of == FM_KEY_AF3 ? af3 : af2;
        format_value(&fm_train_keys[i], defaults, value, sizeof value);
        if (fm_train_keys[i].kind == FM_KEY_NUMBER) shorten(value);
        format_range(&fm_train_keys[i], range, sizeof range);
        int n = snprintf(out + at, FM_TRAIN_CONFIG_DOCUMENT_BYTES - at,
                         "| `[%s]` | `%s` | %s | %s | `%s` | %s |\n", fm_train_keys[i].section,
                         fm_train_keys[i].name, range, fm_train_keys[i].unit, value,
                         fm_train_keys[i].help);
        assert(n > 0 && at + (size_t)n < FM_TRAIN_CONFIG_DOCUMENT_BYTES);
        at += (size_t)n;
    }
}
