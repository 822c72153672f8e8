/* selection.c: see selection.h. */
#include "cache/snapshot/selection.h"

#include "cache/snapshot/folder.h"
#include "cache/store/store_open.h"
#include "proto/base/file.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WORDS_BYTES = 4096, SELECTION_BYTES_MAX = 1 << 18 };

/* -- in words */

static void describe_datasets(const fm_select_rules *rules, char out[WORDS_BYTES]) {
    size_t at = (size_t)snprintf(out, WORDS_BYTES, "%s",
                                 rules->n_dataset ? "only dataset" : "only datasets with a share");
    for (uint32_t i = 0; i < rules->n_dataset && at < WORDS_BYTES; i++) {
        at +=
            (size_t)snprintf(out + at, WORDS_BYTES - at, "%s%s", i ? ", " : " ", rules->dataset[i]);
    }
}

static void describe_length(const fm_select_rules *rules, char out[WORDS_BYTES]) {
    if (!rules->max_length) {
        snprintf(out, WORDS_BYTES, "at least %u residues", rules->min_length);
    } else {
        snprintf(out, WORDS_BYTES, "%u to %u residues", rules->min_length, rules->max_length);
    }
}

static void describe_resolution(const fm_select_rules *rules, char out[WORDS_BYTES]) {
    if (rules->max_resolution > 0) {
        snprintf(out, WORDS_BYTES, "resolution at most %g Å%s", rules->max_resolution,
                 rules->need_resolution ? "" : ", where there is one");
    } else {
        snprintf(out, WORDS_BYTES, "has a resolution");
    }
}

static void describe_dates(const fm_select_rules *rules, char out[WORDS_BYTES]) {
    snprintf(out, WORDS_BYTES, "released%s%s%s%s; predicted structures are exempt",
             rules->from ? " from " : "", rules->from ? rules->from : "",
             rules->until ? " until " : "", rules->until ? rules->until : "");
}

/* Writes the words of the rule for a reason; returns false when the rule did not apply. */
static bool describe_rule(const fm_select_rules *rules, fm_select_reason reason,
                          char out[WORDS_BYTES]) {
    switch (reason) {
    case FM_SELECT_NOT_LISTED:
        snprintf(out, WORDS_BYTES, "only chains of a list");
        return rules->only;
    case FM_SELECT_EXCLUDED:
        snprintf(out, WORDS_BYTES, "no chain of a list");
        return rules->exclude;
    case FM_SELECT_DATASET:
        describe_datasets(rules, out);
        return rules->n_dataset || rules->shares.n;
    case FM_SELECT_LENGTH:
        describe_length(rules, out);
        return rules->min_length || rules->max_length;
    case FM_SELECT_NO_CLUSTER:
        snprintf(out, WORDS_BYTES, "only chains that are in a cluster");
        return rules->only_clustered;
    case FM_SELECT_SHARED:
        snprintf(out, WORDS_BYTES, "no chain that shares a cluster with snapshot %.255s",
                 rules->apart_name ? rules->apart_name : "");
        return rules->apart;
    case FM_SELECT_UNKNOWN:
        snprintf(out, WORDS_BYTES, "at most %u unknown residues", rules->max_unknown);
        return rules->max_unknown != UINT32_MAX;
    case FM_SELECT_SINGLE:
        snprintf(out, WORDS_BYTES, "no kind of residue (X is one) above %u %%",
                 rules->max_single_percent);
        return rules->max_single_percent < 100;
    case FM_SELECT_RESOLUTION:
        describe_resolution(rules, out);
        return rules->max_resolution > 0 || rules->need_resolution;
    case FM_SELECT_DATE: describe_dates(rules, out); return rules->from || rules->until;
    case FM_SELECT_PREDICTED:
        snprintf(out, WORDS_BYTES, "no predicted structures");
        return rules->no_predicted;
    case FM_SELECT_TAKEN:
    case FM_N_SELECT: break;
    }
    return false;
}

static const char *copy(fm_arena *arena, const char *text) {
    size_t bytes = strlen(text) + 1;
    char *made = fm_arena_alloc(arena, bytes);
    if (made) memcpy(made, text, bytes);
    return made;
}

fm_status fm_selection_describe(const fm_select_rules *rules, const fm_select_report *report,
                                fm_arena *arena, fm_selection *ret_selection, fm_error *reterr) {
    fm_selection made = {.recipe = rules->recipe ? rules->recipe : "none"};
    char words[WORDS_BYTES];
    snprintf(words, sizeof words, "%s%s", fm_select_weights_text(rules->weights),
             rules->weights != FM_WEIGHTS_AF2 ? ""
             : rules->clusters                ? ", clusters of a file"
                                              : ", clusters that the build was given");
    made.weights = copy(arena, words);
    if (!made.weights) return fm_arena_full(arena, reterr);
    for (int i = 0; i < FM_N_SELECT; i++) {
        made.n_chain += report->n[i];
        if (!describe_rule(rules, (fm_select_reason)i, words)) continue;
        const char *kept = copy(arena, words);
        if (!kept) return fm_arena_full(arena, reterr);
        made.rule[made.n_rule++] = (fm_selection_rule){report->n[i], kept};
    }
    *ret_selection = made;
    return FM_OK;
}

/* -- as bytes */

__attribute__((format(printf, 3, 4))) static void put(char *out, size_t *at, const char *form,
                                                      ...) {
    va_list arguments;
    va_start(arguments, form);
    int n = vsnprintf(out + *at, SELECTION_BYTES_MAX - *at, form, arguments);
    va_end(arguments);
    assert(n >= 0 && (size_t)n < SELECTION_BYTES_MAX - *at);
    *at += (size_t)n;
}

fm_status fm_selection_encode(const fm_selection *selection, fm_arena *arena, fm_bytes *ret_bytes,
                              fm_error *reterr) {
    char *out = fm_arena_alloc(arena, SELECTION_BYTES_MAX), hex[FM_SHA256_HEX];
    if (!out) return fm_arena_full(arena, reterr);
    size_t at = 0;
    fm_sha256_format(&selection->snapshot, hex);
    put(out, &at, "foldmill selection 1\nsnapshot %s\ngeneration %" PRIu64 "\nchains %u\n", hex,
        selection->generation, selection->n_chain);
    put(out, &at, "recipe %s\nweights %s\nrules %u\n", selection->recipe, selection->weights,
        selection->n_rule);
    for (uint32_t i = 0; i < selection->n_rule; i++)
        put(out, &at, "rule %u %s\n", selection->rule[i].n_excluded, selection->rule[i].words);
    fm_arena_trim(arena, out, at);
    *ret_bytes = (fm_bytes){(const uint8_t *)out, at};
    return FM_OK;
}

/* Lines of a copy of the text, read one after the other. */
typedef struct lines {
    char *at; /* the next line; NULL at the end, or when it is not terminated */
    uint32_t number;
} lines;

/* Takes the next line, which begins with `word` and a blank, and returns what follows, terminated;
 * NULL when it does not. */
static char *take(lines *read, const char *word) {
    char *line = read->at, *end = line ? strchr(line, '\n') : NULL;
    size_t bytes = strlen(word);
    read->number++;
    read->at = end ? end + 1 : NULL;
    if (!end || strncmp(line, word, bytes) != 0 || line[bytes] != ' ') return NULL;
    *end = '\0';
    return line[bytes + 1] ? line + bytes + 1 : NULL;
}

/* Reads a decimal without leading zeros at *text, ended by `stop`, and moves past it. */
static bool read_number(char **text, char stop, uint64_t max, uint64_t *ret_number) {
    char *at = *text;
    uint64_t number = 0;
    if (!at || (at[0] == '0' && at[1] != stop)) return false;
    for (; *at >= '0' && *at <= '9' && number <= max; at++)
        number = number * 10 + (uint64_t)(*at - '0');
    if (at == *text || *at != stop || number > max) return false;
    *text = stop ? at + 1 : at;
    *ret_number = number;
    return true;
}

static bool take_number(lines *read, const char *word, uint64_t max, uint64_t *ret_number) {
    char *text = take(read, word);
    return read_number(&text, '\0', max, ret_number);
}

static bool decode(lines *read, fm_selection *selection) {
    const char *format = take(read, "foldmill"), *hash = take(read, "snapshot");
    uint64_t chains, rules;
    if (!format || strcmp(format, "selection 1") != 0) return false;
    if (!hash || strlen(hash) != FM_SHA256_HEX - 1) return false;
    if (fm_sha256_parse(hash, FM_SHA256_HEX - 1, &selection->snapshot)) return false;
    if (!take_number(read, "generation", UINT64_MAX / 10 - 1, &selection->generation)) return false;
    if (!take_number(read, "chains", UINT32_MAX, &chains)) return false;
    selection->recipe = take(read, "recipe");
    selection->weights = take(read, "weights");
    if (!selection->recipe || !selection->weights) return false;
    if (!take_number(read, "rules", FM_N_SELECT, &rules)) return false;
    selection->n_chain = (uint32_t)chains;
    selection->n_rule = (uint32_t)rules;
    for (uint32_t i = 0; i < selection->n_rule; i++) {
        uint64_t n;
        char *words = take(read, "rule");
        if (!read_number(&words, ' ', UINT32_MAX, &n) || !*words) return false;
        selection->rule[i] = (fm_selection_rule){(uint32_t)n, words};
    }
    return read->at && !*read->at;
}

fm_status fm_selection_decode(fm_bytes bytes, fm_arena *arena, fm_selection *ret_selection,
                              fm_error *reterr) {
    char *text = fm_arena_alloc(arena, bytes.size + 1);
    if (!text) return fm_arena_full(arena, reterr);
    if (bytes.size) memcpy(text, bytes.data, bytes.size);
    text[bytes.size] = '\0';
    lines read = {.at = text};
    fm_selection selection = {.n_rule = 0};
    if (strlen(text) == bytes.size && bytes.size < SELECTION_BYTES_MAX &&
        decode(&read, &selection)) {
        *ret_selection = selection;
        return FM_OK;
    }
    return fm_fail_at(reterr, FM_ERR_CORRUPT, read.number, 0, 0,
                      "not the record of a selection of format 1");
}

/* -- in a cache */

fm_status fm_selection_write(const fm_store *store, const char *name, const fm_selection *selection,
                             fm_arena *arena, fm_error *reterr) {
    fm_bytes bytes;
    fm_status status = fm_selection_encode(selection, arena, &bytes, reterr);
    return status ? status : fm_folder_write(store->path, "selections", name, bytes, reterr);
}

fm_status fm_selection_read(const fm_store *store, const char *name, const fm_sha256 *hash,
                            fm_arena *arena, fm_selection *ret_selection, fm_error *reterr) {
    char path[PATH_MAX];
    fm_bytes bytes;
    fm_selection selection;
    fm_status status = fm_folder_path(store->path, "selections", name, path, reterr);
    if (!status) status = fm_file_read(arena, path, SELECTION_BYTES_MAX, &bytes, reterr);
    if (status) return status;
    status = fm_selection_decode(bytes, arena, &selection, reterr);
    if (status) return reterr ? fm_error_in(reterr, path) : status;
    if (memcmp(&selection.snapshot, hash, sizeof *hash) != 0) {
        return fm_fail_in(reterr, FM_ERR_NOT_FOUND, path, "the record is of another snapshot");
    }
    *ret_selection = selection;
    return FM_OK;
}

fm_status fm_selection_remove(const fm_store *store, const char *name, fm_error *reterr) {
    char path[PATH_MAX];
    fm_status status = fm_folder_path(store->path, "selections", name, path, reterr);
    if (status || unlink(path) == 0 || errno == ENOENT) return status;
    return fm_fail_in(reterr, FM_ERR_IO, path, "cannot remove: %s", strerror(errno));
}
