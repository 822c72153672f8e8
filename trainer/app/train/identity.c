/* identity.c: see identity.h. Both texts are walked line by line; a line is looked up in the other
 * run's text by its whole key. */
#include "trainer/app/train/identity.h"

#include "proto/base/exact.h"

#include <assert.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_BYTES = 96, VALUE_BYTES = 256, ALLOW_BYTES = 224, RESTORE_BYTES = 96 };

void fm_identity_format(const fm_identity *identity, char out[FM_IDENTITY_BYTES]) {
    const struct {
        const char *key, *value;
    } all[] = {{"program", identity->program},
               {"build", identity->build},
               {"device", identity->device},
               {"processor", identity->processor},
               {"library", identity->library},
               {"dtype", identity->dtype},
               {"order", identity->order},
               {"dp", identity->dp},
               {"batch_schedule", identity->batch_schedule}};
    size_t at = 0;
    out[0] = '\0';
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (!all[i].value[0]) continue;
        int n =
            snprintf(out + at, FM_IDENTITY_BYTES - at, "%s = %.100s\n", all[i].key, all[i].value);
        at += (size_t)n;
        assert(at < FM_IDENTITY_BYTES);
    }
}

/* One setting: its whole key, its line as it is in the text, and its value. */
typedef struct setting {
    char key[KEY_BYTES], value[VALUE_BYTES];
    const char *line;
    int n_line;
    bool is_implied; /* the run has it although its text does not name it */
} setting;

/* A text that is walked. */
typedef struct walk {
    const char *at;
    char section[KEY_BYTES / 2]; /* with the dot */
} walk;

static bool next_setting(walk *w, setting *ret_setting) {
    while (*w->at) {
        const char *line = w->at;
        size_t n = strcspn(line, "\n");
        w->at = line + n + (line[n] == '\n');
        const char *equal = memchr(line, '=', n);
        if (n > 1 && line[0] == '[' && line[n - 1] == ']') {
            snprintf(w->section, sizeof w->section, "%.*s.", (int)n - 2, line + 1);
        } else if (equal && equal - line >= 2) {
            ret_setting->is_implied = false;
            ret_setting->line = line;
            ret_setting->n_line = (int)n;
            snprintf(ret_setting->key, KEY_BYTES, "%s%.*s", w->section, (int)(equal - line) - 1,
                     line);
            size_t skip = equal[1] == ' ' ? 2 : 1;
            snprintf(ret_setting->value, VALUE_BYTES, "%.*s", (int)(line + n - equal - skip),
                     equal + skip);
            return true;
        }
    }
    return false;
}

static bool find_in(const char *text, const char *key, setting *ret_setting) {
    walk w = {.at = text ? text : ""};
    while (next_setting(&w, ret_setting)) {
        if (strcmp(ret_setting->key, key) == 0) return true;
    }
    return false;
}

static bool find(const fm_identity_texts *texts, const char *key, setting *ret_setting) {
    if (find_in(texts->config, key, ret_setting) || find_in(texts->identity, key, ret_setting)) {
        return true;
    }
    bool there = find_in(texts->implied, key, ret_setting);
    if (there) ret_setting->is_implied = true;
    return there;
}

/* A comparison in progress. */
typedef struct comparison {
    const fm_identity_texts *saved, *now;
    const char *const *change;
    uint32_t n_change;
    uint64_t step;
    char *history;
    char first[FM_ERROR_MESSAGE_BYTES]; /* the first difference that no change allows; "" = none */
    char restore[RESTORE_BYTES];        /* the setting that would remove it; "": `first` has it */
    char allow[ALLOW_BYTES];            /* the options that would allow them, as far as they fit */
    uint32_t n_more;                    /* differences whose options do not fit */
    bool full;
} comparison;

/* Whether both texts mean the same value: equal words, or equal numbers. */
static bool is_same_value(const char *a, const char *b) {
    char *end_a, *end_b;
    double x = strtod(a, &end_a), y = strtod(b, &end_b);
    bool numbers = end_a != a && end_b != b && !*end_a && !*end_b;
    return strcmp(a, b) == 0 || (numbers && x == y);
}

/* Writes a number with as few digits as keep its bits; other values as they are. */
static const char *shorten(const char *value, char out[VALUE_BYTES]) {
    char *end;
    double x = strtod(value, &end);
    bool is_number = end != value && !*end;
    snprintf(out, VALUE_BYTES, "%s", value);
    if (is_number) fm_exact_f64(x, 1, out);
    return out;
}

/* Any change of the sources gives another build, and few change a bit of a run: it is recorded, and
 * the version of the program is what must be changed on purpose. */
static bool is_allowed(const comparison *c, const char *key, const char *value) {
    size_t n = strlen(key);
    if (strcmp(key, "build") == 0) return true;
    for (uint32_t i = 0; i < c->n_change; i++) {
        const char *change = c->change[i];
        if (strncmp(change, key, n) == 0 && change[n] == '=' &&
            is_same_value(change + n + 1, value)) {
            return true;
        }
    }
    return false;
}

/* The first difference, in words. A user cannot look up a setting that the checkpoint's file leaves
 * out, so the message has it as it must be set. */
static void describe_first(comparison *c, const setting *saved, const setting *now,
                           const char *key) {
    const bool is_implied = saved && saved->is_implied;
    snprintf(c->first, sizeof c->first,
             "the checkpoint's run has %s'%.*s'%s, but this run has %s'%.*s'", saved ? "" : "no ",
             saved ? saved->n_line : (int)strlen(key), saved ? saved->line : key,
             is_implied ? ", which its file leaves out" : "", now ? "" : "no ",
             now ? now->n_line : (int)strlen(key), now ? now->line : key);
    const char *dot = strchr(key, '.');
    if (is_implied && dot) {
        int n = snprintf(c->restore, RESTORE_BYTES, " ([%.*s] %s = %s in --config)",
                         (int)(dot - key), key, dot + 1, saved->value);
        if (n >= RESTORE_BYTES) c->restore[0] = '\0'; /* half a setting is none */
    }
}

/* A key has other values in the two runs; NULL: the run does not have it. */
static void on_difference(comparison *c, const setting *saved, const setting *now) {
    const char *key = now ? now->key : saved->key, *value = now ? now->value : "none";
    char from[VALUE_BYTES], to[VALUE_BYTES];
    if (is_allowed(c, key, value)) {
        size_t at = strlen(c->history), room = FM_HISTORY_BYTES - at;
        int n = snprintf(c->history + at, room, "step %" PRIu64 ": %s: %s -> %s\n", c->step, key,
                         saved ? shorten(saved->value, from) : "none", shorten(value, to));
        c->full |= (size_t)n >= room;
        return;
    }
    if (!c->first[0]) describe_first(c, saved, now, key);
    size_t at = strlen(c->allow), room = sizeof c->allow - strlen(c->restore) - at;
    const char *quote = strchr(value, ' ') ? "'" : "";
    int n =
        snprintf(c->allow + at, room, " --change %s%s=%s%s", quote, key, shorten(value, to), quote);
    if ((size_t)n < room && !c->n_more) return;
    c->allow[at] = '\0'; /* half an option is none */
    c->n_more++;
}

/* Whether a run without the key has its default: one group, or one batch. A checkpoint that lacks
 * another key of the identity is of a program that did not know it. */
static bool has_default(const char *key) {
    return strcmp(key, "dp") == 0 || strcmp(key, "batch_schedule") == 0;
}

static void compare_now(comparison *c, const char *text, bool is_identity) {
    walk w = {.at = text};
    setting now, saved;
    while (next_setting(&w, &now)) {
        bool there = find(c->saved, now.key, &saved);
        if (!there && is_identity && !has_default(now.key)) continue;
        if (!there || strcmp(saved.value, now.value) != 0) {
            on_difference(c, there ? &saved : NULL, &now);
        }
    }
}

static void compare_saved(comparison *c, const char *text) {
    walk w = {.at = text};
    setting saved, now;
    while (next_setting(&w, &saved)) {
        bool there = find(c->now, saved.key, &now);
        if (!there) on_difference(c, &saved, NULL);
        /* compare_now has compared those that the text of this run names. */
        if (there && now.is_implied && strcmp(saved.value, now.value) != 0) {
            on_difference(c, &saved, &now);
        }
    }
}

/* Every change must state what this run has; else it is a slip, or another setting was
 * forgotten. */
static fm_status check_changes(const comparison *c, fm_error *reterr) {
    for (uint32_t i = 0; i < c->n_change; i++) {
        const char *change = c->change[i], *equal = strchr(change, '=');
        char key[KEY_BYTES];
        setting now;
        if (!equal || equal - change >= KEY_BYTES) {
            return fm_fail(reterr, FM_ERR_USAGE,
                           "--change: found '%.64s', expected key=value, such as "
                           "optimizer.learning_rate=0.0005 or dtype=bf16",
                           change);
        }
        snprintf(key, sizeof key, "%.*s", (int)(equal - change), change);
        bool there = find(c->now, key, &now);
        if (there && is_same_value(now.value, equal + 1)) continue;
        if (!there && strcmp(equal + 1, "none") == 0) continue;
        if (!there) {
            return fm_fail(reterr, FM_ERR_USAGE,
                           "--change %.128s: this run has no setting of that name; expected one "
                           "such as optimizer.learning_rate or dtype",
                           change);
        }
        return fm_fail(reterr, FM_ERR_USAGE,
                       "--change %.128s: this run has %.64s; set it with --config or its option "
                       "as well",
                       change, now.value);
    }
    return FM_OK;
}

fm_status fm_identity_check(const fm_identity_texts *saved, const fm_identity_texts *now,
                            uint64_t step, const char *const *change, uint32_t n_change,
                            char history[FM_HISTORY_BYTES], fm_error *reterr) {
    comparison c = {.saved = saved,
                    .now = now,
                    .change = change,
                    .n_change = n_change,
                    .step = step,
                    .history = history};
    fm_status status = check_changes(&c, reterr);
    if (status) return status;
    compare_now(&c, now->config, false);
    compare_saved(&c, saved->config);
    if (saved->identity) {
        compare_now(&c, now->identity, true);
        compare_saved(&c, saved->identity);
    }
    if (c.full) {
        return fm_fail(reterr, FM_ERR_LIMIT, "the run's history has no room for more changes");
    }
    if (!c.first[0]) return FM_OK;
    char more[64] = "";
    if (c.n_more) snprintf(more, sizeof more, " and %u more differences", c.n_more);
    return fm_fail(reterr, FM_ERR_USAGE,
                   "%.160s; resume with the same settings%s, or change them on purpose:%s%s",
                   c.first, c.restore, c.allow, more);
}
