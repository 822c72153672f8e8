/* ledger.c: see ledger.h. The text of a line:
 *
 *     foldmill-ledger 1 seed SEED snapshot SHA256 groups G order ORDER CHECK
 *     STEP SLOT INDEX... CHECK
 *
 * The samples of the second form are those of slots SLOT, SLOT + 1, and so on. Two or more
 * consecutive samples are written as FIRST-LAST, and INDEX! is a sample that was skipped. CHECK is
 * the low half of XXH3-64 over the text before it, in hex. Each line can be written in one way
 * only; any other text is refused. */
#include "trainer/app/train/ledger.h"

#include "proto/base/directory.h"
#include "proto/base/file.h"
#include "proto/limits.h"
#include "trainer/metrics/appender.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char magic[] = "foldmill-ledger 1 ";
#define MAX_FILE_BYTES ((size_t)4 << 30)
#define MAX_INDEX (FM_LIMIT_STEP * (uint64_t)FM_LIMIT_GLOBAL_BATCH)

/* -- a line */

typedef struct writing {
    char *out;
    size_t at;
} writing;

FM_PRINTF(2, 3) static void put(writing *t, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(t->out + t->at, FM_LEDGER_LINE_BYTES - t->at, format, arguments);
    va_end(arguments);
    t->at += (size_t)n;
}

/* How many of the uses from `first` on are written as one range. */
static uint32_t range_from(const fm_ledger_line *line, uint32_t first) {
    uint32_t n = 1;
    const fm_ledger_use *use = &line->use[first];
    while (!use->is_skipped && first + n < line->n && !use[n].is_skipped &&
           use[n].index == use->index + n)
        n++;
    return n;
}

static void put_facts(writing *t, const fm_ledger_facts *facts) {
    char snapshot[FM_SHA256_HEX];
    fm_sha256_format(&facts->snapshot, snapshot);
    put(t, "%sseed %" PRIu64 " snapshot %s groups %" PRIu32 " order ", magic, facts->seed, snapshot,
        facts->n_group);
    if (facts->window == FM_LEDGER_FREE) {
        put(t, "free");
    } else if (facts->window) {
        put(t, "bounded:%" PRIu32, facts->window);
    } else {
        put(t, "strict");
    }
}

size_t fm_ledger_format(const fm_ledger_line *line, char out[FM_LEDGER_LINE_BYTES]) {
    writing t = {.out = out};
    if (line->is_facts) {
        put_facts(&t, &line->facts);
    } else {
        put(&t, "%" PRIu64 " %" PRIu32, line->use[0].step, line->use[0].slot);
    }
    for (uint32_t i = 0, n; !line->is_facts && i < line->n; i += n) {
        n = range_from(line, i);
        put(&t, " %" PRIu64, line->use[i].index);
        if (n > 1) put(&t, "-%" PRIu64, line->use[i].index + n - 1);
        if (line->use[i].is_skipped) put(&t, "!");
    }
    put(&t, " %08" PRIx32 "\n", (uint32_t)fm_xxh3(out, t.at));
    return t.at;
}

/* A text that is read; `failed` stays set after the first mistake. */
typedef struct reading {
    const char *at;
    bool failed;
} reading;

static uint64_t take_number(reading *r, uint64_t max) {
    uint64_t value = 0;
    r->failed |= *r->at < '0' || *r->at > '9';
    for (; *r->at >= '0' && *r->at <= '9' && !r->failed; r->at++) {
        uint64_t digit = (uint64_t)(*r->at - '0');
        r->failed = value > (max - digit) / 10;
        value = value * 10 + digit;
    }
    return value;
}

static void take_word(reading *r, const char *word) {
    size_t n = strlen(word);
    r->failed |= strncmp(r->at, word, n) != 0;
    if (!r->failed) r->at += n;
}

static void read_facts(reading *r, fm_ledger_line *line) {
    fm_ledger_facts *facts = &line->facts;
    line->is_facts = true;
    take_word(r, magic);
    take_word(r, "seed ");
    facts->seed = take_number(r, UINT64_MAX);
    take_word(r, " snapshot ");
    if (r->failed || fm_sha256_parse(r->at, strlen(r->at), &facts->snapshot)) {
        r->failed = true;
        return;
    }
    r->at += FM_SHA256_HEX - 1;
    take_word(r, " groups ");
    facts->n_group = (uint32_t)take_number(r, FM_LIMIT_N_GROUP);
    r->failed |= facts->n_group == 0;
    take_word(r, " order ");
    if (!r->failed && *r->at == 's') {
        take_word(r, "strict");
        return;
    }
    if (!r->failed && *r->at == 'f') {
        take_word(r, "free");
        facts->window = FM_LEDGER_FREE;
        return;
    }
    take_word(r, "bounded:");
    facts->window = (uint32_t)take_number(r, FM_LIMIT_WINDOW);
    r->failed |= facts->window == 0;
}

static void read_uses(reading *r, fm_ledger_line *line) {
    const uint64_t step = take_number(r, FM_LIMIT_STEP);
    take_word(r, " ");
    const uint32_t slot = (uint32_t)take_number(r, FM_LIMIT_GLOBAL_BATCH - 1);
    r->failed |= step == 0;
    do {
        take_word(r, " ");
        uint64_t index = take_number(r, MAX_INDEX), last = index;
        if (*r->at == '-') {
            r->at++;
            last = take_number(r, MAX_INDEX);
        }
        bool is_skipped = *r->at == '!';
        r->at += is_skipped;
        r->failed |= last < index || last - index >= FM_LEDGER_ROW - line->n;
        for (; !r->failed && index <= last; index++) {
            line->use[line->n] = (fm_ledger_use){step, slot + line->n, is_skipped, index};
            line->n++;
        }
    } while (!r->failed && *r->at && line->n < FM_LEDGER_ROW);
    r->failed |= *r->at != '\0' || slot + line->n > FM_LIMIT_GLOBAL_BATCH;
}

fm_status fm_ledger_parse(const char *source, size_t bytes, fm_ledger_line *ret_line,
                          fm_error *reterr) {
    enum { CHECK_BYTES = sizeof " 01234567\n" - 1 };
    char copy[FM_LEDGER_LINE_BYTES] = "", again[FM_LEDGER_LINE_BYTES];
    fm_ledger_line line = {.n = 0};
    bool fits = bytes > CHECK_BYTES && bytes < sizeof copy && !memchr(source, '\0', bytes);
    reading r = {.at = copy, .failed = !fits};
    if (fits) memcpy(copy, source, bytes - CHECK_BYTES);
    if (fits && copy[0] == magic[0]) {
        read_facts(&r, &line);
    } else if (fits) {
        read_uses(&r, &line);
    }
    if (r.failed || fm_ledger_format(&line, again) != bytes || memcmp(source, again, bytes) != 0) {
        return fm_fail(reterr, FM_ERR_FORMAT, "found a damaged line, expected a line of a ledger");
    }
    *ret_line = line;
    return FM_OK;
}

/* -- the lines of a file */

/* Where the lines read so far end. */
typedef struct position {
    uint64_t step; /* of the next place */
    uint32_t slot;
} position;

/* Moves over a line of places; false when places before it are missing. */
static bool follow(position *at, const fm_ledger_line *line) {
    const fm_ledger_use *use = line->use;
    bool goes_on = use->step == at->step && use->slot == at->slot;
    bool is_next = use->step == at->step + 1 && use->slot == 0 && at->slot > 0;
    *at = (position){use->step, use->slot + line->n};
    return goes_on || is_next;
}

/* Finds the line at *at and moves behind it; false at the end of the text. A line that is cut off
 * has no line feed and is returned, too. */
static bool next_line(fm_bytes content, size_t *at, const char **ret_line, size_t *ret_bytes) {
    const char *data = (const char *)content.data;
    if (*at >= content.size) return false;
    const char *end = memchr(data + *at, '\n', content.size - *at);
    *ret_line = data + *at;
    *ret_bytes = end ? (size_t)(end + 1 - *ret_line) : content.size - *at;
    *at += *ret_bytes;
    return true;
}

static fm_status read_file(const char *path, fm_arena *arena, fm_bytes *ret_content,
                           fm_error *reterr) {
    fm_status status = fm_arena_init(arena, 2 * MAX_FILE_BYTES + FM_LEDGER_LINE_BYTES, reterr);
    if (status) return status;
    status = fm_file_read(arena, path, MAX_FILE_BYTES, ret_content, reterr);
    if (status) fm_arena_fini(arena);
    return status;
}

static bool is_same_data(const fm_ledger_facts *a, const fm_ledger_facts *b) {
    return a->seed == b->seed && a->n_group == b->n_group &&
           memcmp(&a->snapshot, &b->snapshot, sizeof a->snapshot) == 0;
}

/* -- writing */

struct fm_ledger {
    fm_appender *file;
    fm_ledger_use *use; /* [n_max] noted and not written, in the order of places */
    uint32_t n, n_max;
};

/* What is kept of a file. */
typedef struct kept {
    char *out;
    size_t bytes;
    position at;
    bool is_whole, has_facts;
    fm_ledger_facts facts; /* the last */
} kept;

/* Keeps the lines before the place. */
static void keep_lines(fm_bytes content, position end, kept *k) {
    const char *text;
    size_t at = 0, bytes;
    fm_ledger_line line;
    while (next_line(content, &at, &text, &bytes)) {
        if (fm_ledger_parse(text, bytes, &line, NULL)) continue;
        bool is_before = line.is_facts || line.use[0].step < end.step ||
                         (line.use[0].step == end.step && line.use[0].slot + line.n <= end.slot);
        if (!is_before) continue;
        memcpy(k->out + k->bytes, text, bytes);
        k->bytes += bytes;
        if (line.is_facts) {
            k->has_facts = true;
            k->facts = line.facts;
        } else {
            k->is_whole &= follow(&k->at, &line);
        }
    }
    bool reaches = end.slot ? k->at.step == end.step && k->at.slot == end.slot
                            : k->at.step + 1 == end.step && k->at.slot > 0;
    bool is_empty = end.step == 1 && end.slot == 0 && k->at.slot == 0;
    k->is_whole &= reaches || is_empty;
}

/* Cuts the file after the place. */
static fm_status cut(const char *path, position end, kept *k, fm_error *reterr) {
    fm_arena arena;
    fm_bytes content;
    fm_status status = read_file(path, &arena, &content, reterr);
    if (status == FM_ERR_NOT_FOUND) {
        k->is_whole = end.step == 1 && end.slot == 0;
        return FM_OK;
    }
    if (status) return status;
    k->out = fm_arena_alloc(&arena, content.size + 1);
    status = k->out ? FM_OK : fm_arena_full(&arena, reterr);
    if (!status) {
        keep_lines(content, end, k);
        if (k->bytes != content.size) status = fm_file_write_atomic(path, k->out, k->bytes, reterr);
    }
    fm_arena_fini(&arena);
    return status;
}

fm_status fm_ledger_open(const char *path, const fm_ledger_facts *facts, uint64_t step,
                         uint32_t n_sample, bool *ret_is_whole, fm_ledger **ret_ledger,
                         fm_error *reterr) {
    kept k = {.at = {1, 0}, .is_whole = true};
    bool is_link;
    fm_status status = fm_path_is_link(path, &is_link, reterr);
    if (status) return status;
    if (is_link) { /* it could name the ledger of another run, or make a file anywhere */
        return fm_fail_in(reterr, FM_ERR_IO, path, "is a symbolic link, expected a file or none");
    }
    status = cut(path, (position){step + 1, n_sample}, &k, reterr);
    if (status) return status;
    *ret_is_whole = k.is_whole;
    fm_ledger *ledger = calloc(1, sizeof *ledger);
    if (!ledger) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the ledger");
    status = fm_appender_open(path, &ledger->file, reterr);
    bool is_known = k.has_facts && is_same_data(&k.facts, facts) && k.facts.window == facts->window;
    if (!status && !is_known) {
        char text[FM_LEDGER_LINE_BYTES];
        const fm_ledger_line line = {.is_facts = true, .facts = *facts};
        status = fm_appender_add(ledger->file, text, fm_ledger_format(&line, text), reterr);
    }
    if (status) {
        fm_ledger_close(ledger);
        return status;
    }
    *ret_ledger = ledger;
    return FM_OK;
}

void fm_ledger_close(fm_ledger *ledger) {
    if (!ledger) return;
    fm_appender_close(ledger->file);
    free(ledger->use);
    free(ledger);
}

static bool is_before(const fm_ledger_use *a, const fm_ledger_use *b) {
    return a->step < b->step || (a->step == b->step && a->slot < b->slot);
}

fm_status fm_ledger_add(fm_ledger *ledger, const fm_ledger_use *use, fm_error *reterr) {
    if (ledger->n == ledger->n_max) {
        uint32_t max = ledger->n_max ? 2 * ledger->n_max : FM_LEDGER_ROW;
        fm_ledger_use *grown = realloc(ledger->use, max * sizeof *grown);
        if (!grown) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the ledger");
        ledger->use = grown;
        ledger->n_max = max;
    }
    uint32_t at = ledger->n++;
    for (; at > 0 && is_before(use, &ledger->use[at - 1]); at--)
        ledger->use[at] = ledger->use[at - 1];
    ledger->use[at] = *use;
    return FM_OK;
}

fm_status fm_ledger_write(fm_ledger *ledger, fm_error *reterr) {
    fm_ledger_line line = {.n = 0};
    char text[FM_LEDGER_LINE_BYTES];
    fm_status status = FM_OK;
    fm_error error;
    for (uint32_t i = 0; i < ledger->n; i++) {
        line.use[line.n++] = ledger->use[i];
        bool is_end = i + 1 == ledger->n || line.n == FM_LEDGER_ROW ||
                      ledger->use[i + 1].step != ledger->use[i].step;
        if (!is_end) continue;
        size_t bytes = fm_ledger_format(&line, text);
        fm_status added = fm_appender_add(ledger->file, text, bytes, status ? &error : reterr);
        if (!status) status = added; /* the line waits in memory then */
        line.n = 0;
    }
    ledger->n = 0;
    return status;
}

fm_status fm_ledger_sync(fm_ledger *ledger, fm_error *reterr) {
    fm_status status = fm_ledger_write(ledger, reterr);
    fm_status synced = fm_appender_sync(ledger->file, status ? NULL : reterr);
    return status == FM_ERR_NOMEM ? status : synced;
}

/* -- reading */

static fm_status add_facts(fm_ledger_record *record, bool *has_facts, const fm_ledger_facts *facts,
                           fm_error *reterr) {
    if (*has_facts && !is_same_data(&record->facts, facts)) {
        return fm_fail(reterr, FM_ERR_FORMAT,
                       "the run went on with another seed, snapshot or number of groups");
    }
    uint32_t window = record->facts.window;
    record->facts = *facts;
    if (window > facts->window) record->facts.window = window;
    *has_facts = true;
    return FM_OK;
}

static fm_status add_uses(fm_ledger_record *record, uint64_t *n_max, const fm_ledger_line *line,
                          fm_error *reterr) {
    if (!line->n) return FM_OK;
    if (record->n + line->n > *n_max) {
        *n_max = *n_max ? 2 * *n_max : 4096;
        fm_ledger_use *grown = realloc(record->use, *n_max * sizeof *grown);
        if (!grown) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a ledger");
        record->use = grown;
    }
    memcpy(record->use + record->n, line->use, line->n * sizeof line->use[0]);
    record->n += line->n;
    return FM_OK;
}

static fm_status read_lines(fm_bytes content, fm_ledger_record *record, uint32_t *ret_number,
                            fm_error *reterr) {
    position place = {1, 0};
    bool has_facts = false;
    const char *text;
    size_t at = 0, bytes;
    uint64_t n_max = 0;
    fm_ledger_line line;
    fm_status status = FM_OK;
    while (!status && next_line(content, &at, &text, &bytes)) {
        const position before = place;
        ++*ret_number;
        status = fm_ledger_parse(text, bytes, &line, reterr);
        if (status) return status;
        if (line.is_facts) {
            status = add_facts(record, &has_facts, &line.facts, reterr);
        } else if (!has_facts || !follow(&place, &line)) {
            status = fm_fail(reterr, FM_ERR_FORMAT,
                             "found step %llu, slot %u after step %llu, slot %u: lines are missing",
                             (unsigned long long)line.use[0].step, line.use[0].slot,
                             (unsigned long long)before.step, before.slot);
        } else {
            status = add_uses(record, &n_max, &line, reterr);
        }
    }
    if (status || has_facts) return status;
    return fm_fail(reterr, FM_ERR_FORMAT, "found an empty file, expected the ledger of a run");
}

fm_status fm_ledger_read(const char *path, fm_ledger_record *ret_record, fm_error *reterr) {
    fm_arena arena;
    fm_bytes content;
    fm_ledger_record record = {.n = 0};
    uint32_t number = 0;
    fm_status status = read_file(path, &arena, &content, reterr);
    if (status) return status;
    status = read_lines(content, &record, &number, reterr);
    fm_arena_fini(&arena);
    if (status) {
        fm_ledger_release(&record);
        if (reterr) {
            (void)fm_error_in(reterr, path);
            reterr->line = number;
        }
        return status;
    }
    *ret_record = record;
    return FM_OK;
}

void fm_ledger_release(fm_ledger_record *record) {
    free(record->use);
    *record = (fm_ledger_record){.n = 0};
}
