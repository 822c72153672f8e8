/* prepare_times.c: see prepare_times.h. */
#include "server/simulate/prepare_times.h"

#include "proto/base/utf8.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_BYTES = 400, MOST_LINES = 1 << 20 };

static const char bucket[] = "foldmill_prepare_seconds_bucket{le=\"";
static const double most_ms = 86400e3, most_count = 1e15;

typedef struct reader {
    uint64_t line; /* from 1 */
    fm_prepare_times *times;
    size_t capacity;
    bool is_export, is_list; /* of what rows were read */
} reader;

static fm_status fail_line(const reader *r, const char *found, fm_error *reterr) {
    return fm_fail_at(reterr, FM_ERR_FORMAT, r->line, 1, 0,
                      "found '%.80s', expected MS, MS COUNT or a metric of a server", found);
}

static fm_status add_row(reader *r, fm_prepare_row row, fm_error *reterr) {
    fm_prepare_times *times = r->times;
    if (times->n_row == r->capacity) {
        size_t capacity = r->capacity * 2 + 64;
        fm_prepare_row *grown = realloc(times->rows, capacity * sizeof *grown);
        if (!grown) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for preparation times");
        times->rows = grown;
        r->capacity = capacity;
    }
    times->rows[times->n_row++] = row;
    return FM_OK;
}

/* Reads a decimal number from 0 to `most`; NULL when there is none, else what follows it. strtod
 * would also read hexadecimal numbers. */
static const char *read_number(const char *text, double most, double *ret_value) {
    if (!isdigit((unsigned char)text[0]) && text[0] != '.') return NULL;
    char *end;
    *ret_value = strtod(text, &end);
    bool is_decimal = end <= text + strspn(text, "0123456789.eE+-");
    return is_decimal && isfinite(*ret_value) && *ret_value <= most ? end : NULL;
}

/* Reads a row of the histogram: the number of samples that took at most its bound. Rows are in
 * rising order. The last bound is +Inf; its times are taken as the bound before it. */
static fm_status read_bucket(reader *r, const char *line, fm_error *reterr) {
    const fm_prepare_times *times = r->times;
    const fm_prepare_row *before = times->n_row ? &times->rows[times->n_row - 1] : NULL;
    fm_prepare_row row = {.low_ms = before ? before->high_ms : 0};
    const char *bound = line + sizeof bucket - 1;
    const char *at = strncmp(bound, "+Inf", 4) == 0 ? bound + 4 : NULL;
    row.high_ms = row.low_ms;
    if (!at) {
        at = read_number(bound, most_ms / 1e3, &row.high_ms);
        row.high_ms *= 1e3;
    }
    if (!at || strncmp(at, "\"} ", 3) != 0) return fail_line(r, line, reterr);
    at = read_number(at + 3, most_count, &row.upto);
    if (!at || *at) return fail_line(r, line, reterr);
    if (row.high_ms < row.low_ms || row.upto < (before ? before->upto : 0)) {
        return fail_line(r, line, reterr);
    }
    r->is_export = true;
    return add_row(r, row, reterr);
}

static fm_status read_time(reader *r, const char *line, fm_error *reterr) {
    fm_prepare_row row = {.upto = 1};
    const char *at = read_number(line, most_ms, &row.low_ms);
    if (!at || (*at && *at != ' ' && *at != '\t')) return fail_line(r, line, reterr);
    at += strspn(at, " \t");
    if (*at) {
        at = read_number(at, most_count, &row.upto);
        if (!at || at[strspn(at, " \t")]) return fail_line(r, line, reterr);
    }
    row.high_ms = row.low_ms;
    r->is_list = true;
    return add_row(r, row, reterr);
}

static fm_status read_line(reader *r, const char *line, fm_error *reterr) {
    if (line[0] == '\0' || line[0] == '#') return FM_OK;
    fm_status status = FM_OK;
    if (strncmp(line, bucket, sizeof bucket - 1) == 0) {
        status = read_bucket(r, line, reterr);
    } else if (strncmp(line, "foldmill_", 9) != 0) {
        status = read_time(r, line, reterr);
    }
    if (!status && r->is_list && r->is_export) return fail_line(r, line, reterr);
    return status;
}

static fm_status read_lines(reader *r, fm_bytes text, fm_error *reterr) {
    const char *at = (const char *)text.data, *end = at + text.size;
    at += fm_utf8_mark(text.data, text.size);
    while (at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t bytes = (size_t)((stop ? stop : end) - at);
        char line[LINE_BYTES];
        r->line++;
        if (r->line > MOST_LINES) {
            return fm_fail(reterr, FM_ERR_LIMIT, "more than %d lines of preparation times",
                           MOST_LINES);
        }
        if (bytes && at[bytes - 1] == '\r') bytes--;
        bool is_comment = bytes && at[0] == '#'; /* of any length, as other metrics */
        bool is_other = bytes > 9 && memcmp(at, "foldmill_", 9) == 0;
        if (bytes >= sizeof line && !is_comment && !is_other) {
            return fail_line(r, "a line of more than 399 bytes", reterr);
        }
        if (memchr(at, '\0', bytes)) return fail_line(r, "a NUL byte", reterr);
        if (bytes < sizeof line) {
            memcpy(line, at, bytes);
            line[bytes] = '\0';
            fm_status status = read_line(r, line, reterr);
            if (status) return status;
        }
        at = stop ? stop + 1 : end;
    }
    return FM_OK;
}

static int by_time(const void *a, const void *b) {
    double left = ((const fm_prepare_row *)a)->low_ms, right = ((const fm_prepare_row *)b)->low_ms;
    return left < right ? -1 : left > right;
}

/* Sorts a list and adds up its counts. */
static void accumulate(fm_prepare_times *times) {
    double upto = 0;
    qsort(times->rows, times->n_row, sizeof times->rows[0], by_time);
    for (size_t i = 0; i < times->n_row; i++) {
        upto += times->rows[i].upto;
        times->rows[i].upto = upto;
    }
}

fm_status fm_prepare_times_parse(fm_bytes text, fm_prepare_times *ret_times, fm_error *reterr) {
    *ret_times = (fm_prepare_times){0};
    reader r = {.times = ret_times};
    fm_status status = read_lines(&r, text, reterr);
    if (!status && r.is_list) accumulate(ret_times);
    size_t n = ret_times->n_row;
    if (!status && (n == 0 || ret_times->rows[n - 1].upto <= 0)) {
        status = fm_fail(reterr, FM_ERR_DATA,
                         "found no preparation times; a server has them once it "
                         "has prepared samples for a trainer or foldmill fetch");
    }
    if (status) fm_prepare_times_fini(ret_times);
    return status;
}

void fm_prepare_times_fini(fm_prepare_times *times) {
    free(times->rows);
    *times = (fm_prepare_times){0};
}

double fm_prepare_times_at(const fm_prepare_times *times, double u) {
    double rank = u * times->rows[times->n_row - 1].upto;
    size_t low = 0, high = times->n_row - 1; /* the first row with upto > rank */
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (times->rows[middle].upto > rank) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    const fm_prepare_row *row = &times->rows[low];
    double before = low ? times->rows[low - 1].upto : 0, n = row->upto - before;
    double part = n > 0 ? (rank - before) / n : 0;
    return row->low_ms + (row->high_ms - row->low_ms) * part;
}

double fm_prepare_times_mean(const fm_prepare_times *times) {
    double sum = 0, before = 0;
    for (size_t i = 0; i < times->n_row; i++) {
        const fm_prepare_row *row = &times->rows[i];
        sum += (row->low_ms + row->high_ms) / 2 * (row->upto - before);
        before = row->upto;
    }
    return sum / before;
}
