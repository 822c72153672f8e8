/* metrics.c: see metrics.h. */
#include "trainer/metrics/metrics.h"

#include "proto/base/file.h"
#include "proto/base/utf8.h"
#include "trainer/metrics/appender.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_BYTES = 4096 };
#define MAX_FILE_BYTES ((size_t)4 << 30) /* ten million steps */

struct fm_metrics {
    fm_appender *file;
};

/* A line under construction. Text that does not fit is cut off, but LINE_BYTES has room for all
 * fields. */
typedef struct line {
    char text[LINE_BYTES];
    size_t size;
} line;

FM_PRINTF(2, 3) static void add(line *l, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(l->text + l->size, sizeof l->text - l->size, format, arguments);
    va_end(arguments);
    l->size += n > 0 ? (size_t)n : 0;
    if (l->size >= sizeof l->text) l->size = sizeof l->text - 1;
}

static void add_string(line *l, const char *key, const char *text) {
    add(l, "\"%s\":\"", key);
    const uint8_t *at = (const uint8_t *)text;
    for (size_t left = strlen(text), size; left; at += size, left -= size) {
        size = fm_utf8_size(at, left);
        if (size == 0) {
            add(l, "\\ufffd");
            size = 1;
        } else if (*at < 0x20 || *at == '"' || *at == '\\') {
            add(l, "\\u%04x", *at);
        } else {
            add(l, "%.*s", (int)size, (const char *)at);
        }
    }
    add(l, "\",");
}

static void add_number(line *l, const char *key, double value) {
    if (isfinite(value)) {
        add(l, "\"%s\":%.9g,", key, value);
    } else {
        add(l, "\"%s\":null,", key);
    }
}

static void add_bytes(line *l, const char *key, uint64_t bytes) {
    if (bytes) add(l, "\"%s\":%llu,", key, (unsigned long long)bytes);
}

/* Reads the step of a line of `bytes` bytes, line feed included; false when it is damaged. */
static bool read_step(const char *text, size_t bytes, uint64_t *ret_step) {
    static const char begin[] = "{\"step\":";
    size_t n = sizeof begin - 1;
    bool is_row = bytes >= n + 4 && memcmp(text, begin, n) == 0;
    if (!is_row || text[n] < '0' || text[n] > '9') return false;
    char *end;
    *ret_step = strtoull(text + n, &end, 10);
    return *end == ',' && text[bytes - 2] == '}';
}

/* Copies the whole lines of steps up to and including `last`, and returns their bytes. */
static size_t copy_lines(fm_bytes text, uint64_t last, char *out, fm_metrics_kept *ret_kept) {
    const char *data = (const char *)text.data, *end;
    size_t at = 0, kept = 0;
    while (at < text.size && (end = memchr(data + at, '\n', text.size - at)) != NULL) {
        size_t bytes = (size_t)(end + 1 - (data + at));
        uint64_t step;
        if (read_step(data + at, bytes, &step) && step <= last) {
            memcpy(out + kept, data + at, bytes);
            kept += bytes;
            ret_kept->n++;
            ret_kept->last = step;
        }
        at += bytes;
    }
    return kept;
}

fm_status fm_metrics_truncate(const char *path, uint64_t last, fm_metrics_kept *ret_kept,
                              fm_error *reterr) {
    fm_arena arena;
    fm_bytes text;
    *ret_kept = (fm_metrics_kept){.n = 0};
    fm_status status = fm_arena_init(&arena, 2 * MAX_FILE_BYTES + ((size_t)1 << 20), reterr);
    if (status) return status;
    status = fm_file_read(&arena, path, MAX_FILE_BYTES, &text, reterr);
    char *kept = !status ? fm_arena_alloc(&arena, text.size + 1) : NULL;
    if (!status && !kept) status = fm_arena_full(&arena, reterr);
    if (!status) {
        size_t bytes = copy_lines(text, last, kept, ret_kept);
        status = fm_file_write_atomic(path, kept, bytes, reterr);
    }
    fm_arena_fini(&arena);
    return status == FM_ERR_NOT_FOUND ? FM_OK : status;
}

fm_status fm_metrics_open(const char *path, fm_metrics **ret_metrics, fm_error *reterr) {
    fm_metrics *metrics = calloc(1, sizeof *metrics);
    if (!metrics) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the metrics file");
    fm_status status = fm_appender_open(path, &metrics->file, reterr);
    if (status) {
        free(metrics);
        return status;
    }
    *ret_metrics = metrics;
    return FM_OK;
}

void fm_metrics_close(fm_metrics *metrics) {
    if (!metrics) return;
    fm_appender_close(metrics->file);
    free(metrics);
}

fm_status fm_metrics_sync(fm_metrics *metrics, fm_error *reterr) {
    return fm_appender_sync(metrics->file, reterr);
}

fm_status fm_metrics_write(fm_metrics *metrics, const fm_metrics_step *step, fm_error *reterr) {
    line l = {.size = 0};
    add(&l, "{\"step\":%llu,\"index\":%llu,\"cycles\":%u,", (unsigned long long)step->step,
        (unsigned long long)step->index, step->n_cycle);
    add_string(&l, "sample", step->sample);
    add_number(&l, "loss", step->loss);
    for (uint32_t t = 0; t < step->n_term; t++)
        add_number(&l, step->term[t].name, step->term[t].value);
    for (uint32_t s = 0; s < step->n_score; s++)
        add_number(&l, step->score[s].name, step->score[s].value);
    add_number(&l, "grad_norm", step->grad_norm);
    add_number(&l, "learning_rate", step->learning_rate);
    add_number(&l, "step_s", step->step_s);
    add_number(&l, "data_wait_s", step->data_wait_s);
    if (step->left_s >= 0) add_number(&l, "left_s", step->left_s);
    add_bytes(&l, "memory_bytes", step->memory_bytes);
    add_bytes(&l, "device_used_bytes", step->device_used_bytes);
    add_bytes(&l, "device_free_bytes", step->device_free_bytes);
    l.text[l.size - 1] = '}'; /* replaces the last comma */
    add(&l, "\n");
    return fm_appender_add(metrics->file, l.text, l.size, reterr);
}

/* A progress line under construction: fields are added until one does not fit. */
typedef struct fields {
    line l;
    size_t columns; /* 0 = no limit */
    bool full;
} fields;

/* Adds a field if it fits, and `closing` more columns with it. */
FM_PRINTF(3, 4) static void add_field(fields *f, size_t closing, const char *format, ...) {
    char text[128];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (f->columns && f->l.size + strlen(text) + closing > f->columns) f->full = true;
    if (!f->full) add(&f->l, "%s", text);
}

void fm_metrics_format(const fm_metrics_step *step, uint64_t n_step, size_t columns, char *out,
                       size_t out_bytes) {
    fields f = {.columns = columns};
    if (n_step) {
        add_field(&f, 0, "step %llu/%llu", (unsigned long long)step->step,
                  (unsigned long long)n_step);
    } else {
        add_field(&f, 0, "step %llu", (unsigned long long)step->step);
    }
    add_field(&f, 0, "  loss %.3f", step->loss);
    if (step->n_score) add_field(&f, 0, "  %s %.3f", step->score[0].name, step->score[0].value);
    add_field(&f, 0, "  %.3f s/step", step->step_s);
    if (n_step && step->left_s >= 0) {
        unsigned long left = (unsigned long)(step->left_s + 0.5);
        add_field(&f, 0, "  ETA %lu:%02lu:%02lu", left / 3600, left / 60 % 60, left % 60);
    }
    add_field(&f, 0, "  data wait %.1f ms", step->data_wait_s * 1e3);
    size_t before = f.l.size;
    for (uint32_t t = 0; t < step->n_term; t++) /* with room for the parenthesis */
        add_field(&f, 1, "%s%s %.3f", t ? "  " : "  (", step->term[t].name, step->term[t].part);
    if (f.l.size > before) add(&f.l, ")");
    snprintf(out, out_bytes, "%s", f.l.text);
}
