/* foreign_io.c: imports files and exports them; see foreign.h.
 *
 * An import tries every naming with every prefix and keeps the one with the largest share of names
 * found. It then compares names, shapes and dtypes in both directions and writes a line for each
 * difference. Values are read only if the differences are allowed. They are collected in a host
 * copy of the flat buffer, which is uploaded at the end, so an error changes nothing. */
#include "trainer/checkpoint/foreign.h"

#include "proto/base/log.h"
#include "proto/base/plural.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 320, LINE_BYTES = 768, SHAPE_BYTES = 192 };

/* Prefixes that a file may have before every name, in the order of the attempts: of several sets
 * the first is taken. Our checkpoints have two sets: "ema." and "model.". The files that Protenix
 * saves have a dictionary "model", with "module." after training on several GPUs. A checkpoint of
 * OpenFold's training has the average, which OpenFold itself takes, and the raw parameters. */
#define OPENFOLD_PREFIXES                                                                          \
    {                                                                                              \
        "ema.params.", "", "model.", "module.", "module.model.", "state_dict.",                    \
            "state_dict.model.", "state_dict.module.model."                                        \
    }
static const char *const prefixes[FM_N_NAMING][9] = {
    [FM_NAMING_FOLDMILL] = {"", "ema.", "model.", "module.", "model.module."},
    [FM_NAMING_OPENFOLD] = OPENFOLD_PREFIXES,
    [FM_NAMING_OPENFOLD_1] = OPENFOLD_PREFIXES,
    [FM_NAMING_DEEPMIND] = {""},
};

static const fm_weights_array *find(const fm_weights_file *file, const char *prefix,
                                    const char *name) {
    char text[NAME_BYTES];
    snprintf(text, sizeof text, "%s%s", prefix, name);
    return fm_weights_file_find(file, text);
}

/* -- choice of a naming */

typedef struct guess {
    fm_weight_names naming;
    const char *prefix;
    fm_foreign_list list;
    size_t n_found;
} guess;

static fm_status find_naming(const fm_weights_file *file, const fm_params *params, fm_arena *arena,
                             guess *ret_best, fm_error *reterr) {
    guess best = {.n_found = 0};
    for (int naming = 0; naming < FM_N_NAMING; naming++) {
        guess g = {.naming = (fm_weight_names)naming};
        if (!fm_foreign_has_names(params, g.naming)) continue;
        fm_status status = fm_foreign_list_arrays(params, g.naming, arena, &g.list, reterr);
        if (status) return status;
        for (int p = 0; prefixes[naming][p]; p++) {
            g.prefix = prefixes[naming][p];
            g.n_found = 0;
            for (size_t i = 0; i < g.list.n_array; i++)
                g.n_found += find(file, g.prefix, g.list.array[i].name) != NULL;
            /* Compare shares, not numbers: a complete naming wins over one that matches more
             * arrays. */
            double share = (double)g.n_found / (double)g.list.n_array;
            double most = best.n_found ? (double)best.n_found / (double)best.list.n_array : 0;
            if (share > most) best = g;
        }
    }
    *ret_best = best;
    return FM_OK;
}

/* -- the report */

/* Lines of text in the arena, under construction; the allocation is trimmed at the end. */
typedef struct report_text {
    char *text;
    size_t size, capacity;
} report_text;

FM_PRINTF(2, 3) static void add_line(report_text *r, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    size_t room = r->capacity - r->size;
    int n = vsnprintf(r->text + r->size, room, format, arguments);
    va_end(arguments);
    assert(n >= 0 && (size_t)n < room);
    r->size += (size_t)n;
}

/* "[48, 256, 8, 32]" */
static const char *format_shape(char out[SHAPE_BYTES], int rank, const uint64_t *shape) {
    size_t at = 0;
    at += (size_t)snprintf(out, SHAPE_BYTES, "[");
    for (int axis = 0; axis < rank; axis++) {
        at += (size_t)snprintf(out + at, SHAPE_BYTES - at, "%s%" PRIu64, axis ? ", " : "",
                               shape[axis]);
    }
    snprintf(out + at, SHAPE_BYTES - at, "]");
    return out;
}

static bool same_shape(const fm_foreign_array *want, const fm_weights_array *got) {
    return want->rank == got->rank &&
           memcmp(want->shape, got->shape, (size_t)want->rank * sizeof want->shape[0]) == 0;
}

/* Compares the arrays that the file should have: each is found, missing, or of another shape or
 * dtype. */
static void compare_wanted(const fm_weights_file *file, const guess *g, report_text *text,
                           fm_import_report *report) {
    char want_shape[SHAPE_BYTES], got_shape[SHAPE_BYTES], dtype[32];
    for (size_t i = 0; i < g->list.n_array; i++) {
        const fm_foreign_array *want = &g->list.array[i];
        const fm_weights_array *got = find(file, g->prefix, want->name);
        format_shape(want_shape, want->rank, want->shape);
        if (!got) {
            report->n_missing++;
            add_line(text, "missing  %s%s %s\n", g->prefix, want->name, want_shape);
        } else if (!same_shape(want, got)) {
            report->n_wrong++;
            add_line(text, "shape    %s%s is %s, expected %s\n", g->prefix, want->name,
                     format_shape(got_shape, got->rank, got->shape), want_shape);
        } else if (!got->is_float) {
            report->n_wrong++;
            add_line(text, "dtype    %s%s is %s, expected floats\n", g->prefix, want->name,
                     fm_log_quote(dtype, sizeof dtype, got->dtype));
        } else {
            report->n_array++;
        }
    }
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const fm_foreign_array *)a)->name, ((const fm_foreign_array *)b)->name);
}

/* Protenix keeps two fixed tables among the parameters of AlphaFold 3's confidence head: the edges
 * of its classes of distances (Å). The model has them as constants. */
enum { N_EDGE = 39 };
#define FIRST_EDGE 3.25F
#define EDGE_STEP 1.25F
#define LAST_EDGE 1e6F /* of the last class, which is open */

static bool is_edge_table(const fm_weights_array *array, const char *name) {
    bool is_named = strcmp(name, "confidence_head.lower_bins") == 0 ||
                    strcmp(name, "confidence_head.upper_bins") == 0;
    return is_named && array->is_float && array->count == N_EDGE;
}

/* Compares such a table with the constants; *ret_differs: the first place that has another value,
 * or N_EDGE. */
static fm_status compare_edges(const fm_weights_file *file, const fm_weights_array *array,
                               int *ret_differs, fm_error *reterr) {
    float found[N_EDGE];
    const bool is_upper = strstr(array->name, "confidence_head.upper_bins") != NULL;
    fm_status status = fm_weights_file_read(file, array, found, reterr);
    if (status) return status;
    int at = 0;
    for (; at < N_EDGE; at++) {
        float edge = FIRST_EDGE + EDGE_STEP * (float)(at + is_upper);
        if (is_upper && at == N_EDGE - 1) edge = LAST_EDGE;
        /* bf16 has three digits. */
        if (!(fabsf(found[at] - edge) <= edge * 0x1p-8F)) break;
    }
    *ret_differs = at;
    return FM_OK;
}

/* Lists the arrays that the model does not have. If there is a prefix, names without it belong to
 * something else and are counted only. */
static fm_status compare_extra(const fm_weights_file *file, const guess *g, report_text *text,
                               fm_import_report *report, fm_error *reterr) {
    size_t prefix_bytes = strlen(g->prefix);
    for (size_t i = 0; i < fm_weights_file_count(file); i++) {
        const fm_weights_array *got = fm_weights_file_at(file, i);
        char quoted[256], shape[SHAPE_BYTES];
        if (strncmp(got->name, g->prefix, prefix_bytes) != 0) {
            if (report->n_outside++ == 0) report->outside = got->name;
            continue;
        }
        const fm_foreign_array key = {.name = got->name + prefix_bytes};
        if (bsearch(&key, g->list.array, g->list.n_array, sizeof key, by_name)) continue;
        fm_log_quote(quoted, sizeof quoted, got->name);
        if (g->naming == FM_NAMING_FOLDMILL && is_edge_table(got, key.name)) {
            int differs;
            fm_status status = compare_edges(file, got, &differs, reterr);
            if (status) return status;
            if (differs == N_EDGE) continue;
            report->n_wrong++;
            add_line(text, "values   %s[%d] is not the edge of AlphaFold 3's classes\n", quoted,
                     differs);
            continue;
        }
        report->n_extra++;
        add_line(text, "extra    %s %s\n", quoted, format_shape(shape, got->rank, got->shape));
    }
    return FM_OK;
}

static fm_status write_report(const fm_weights_file *file, const guess *g, fm_arena *arena,
                              fm_import_report *ret_report, fm_error *reterr) {
    size_t n_line = g->list.n_array + fm_weights_file_count(file);
    report_text text = {.capacity = n_line * LINE_BYTES + 1};
    text.text = fm_arena_alloc(arena, text.capacity);
    if (!text.text) return fm_arena_full(arena, reterr);
    text.text[0] = '\0';
    *ret_report = (fm_import_report){.naming = g->naming, .prefix = g->prefix, .text = text.text};
    compare_wanted(file, g, &text, ret_report);
    fm_status status = compare_extra(file, g, &text, ret_report, reterr);
    fm_arena_trim(arena, text.text, text.size + 1);
    if (status || !ret_report->outside) return status;
    /* The report outlives the file. */
    size_t bytes = strlen(ret_report->outside) + 1;
    char *outside = fm_arena_alloc(arena, bytes);
    if (!outside) return fm_arena_full(arena, reterr);
    memcpy(outside, ret_report->outside, bytes);
    ret_report->outside = outside;
    return FM_OK;
}

/* -- values */

/* Converts one slice between the two layouts; used for matrices whose layout differs. */
static void transpose(const float *from, int64_t rows, int64_t columns, float *out) {
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < columns; c++)
            out[c * rows + r] = from[r * columns + c];
    }
}

static void take_slices(const fm_params *params, const fm_foreign_array *array, const float *from,
                        float *host) {
    for (uint32_t s = 0; s < array->n_slice; s++) {
        const fm_param *param = &params->param[array->row[s]];
        int64_t count = fm_param_count(param);
        const float *slice = from + (int64_t)s * count;
        if (array->transposed) {
            transpose(slice, param->shape[1], param->shape[0], host + param->offset);
        } else {
            memcpy(host + param->offset, slice, (size_t)count * sizeof *host);
        }
    }
}

static void give_slices(const fm_params *params, const fm_foreign_array *array, const float *host,
                        float *out) {
    for (uint32_t s = 0; s < array->n_slice; s++) {
        const fm_param *param = &params->param[array->row[s]];
        int64_t count = fm_param_count(param);
        float *slice = out + (int64_t)s * count;
        if (array->transposed) {
            transpose(host + param->offset, param->shape[0], param->shape[1], slice);
        } else {
            memcpy(slice, host + param->offset, (size_t)count * sizeof *host);
        }
    }
}

/* Copies a flat buffer of the device's acc type to f32 on the host. */
static fm_status download(const fm_params *params, const void *flat, float *host,
                          fm_error *reterr) {
    bool wide = params->element == FM_ELEMENT_F64;
    size_t n = (size_t)params->n_element;
    double *numbers = wide ? malloc(n * sizeof *numbers) : NULL;
    if (wide && !numbers) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for parameters");
    params->kernels->download(NULL, wide ? (void *)numbers : (void *)host, flat,
                              n * fm_element_bytes(params->element));
    params->kernels->synchronize(NULL);
    for (size_t i = 0; wide && i < n; i++)
        host[i] = (float)numbers[i];
    free(numbers);
    return FM_OK;
}

static fm_status upload(fm_params *params, const float *host, fm_error *reterr) {
    bool wide = params->element == FM_ELEMENT_F64;
    size_t n = (size_t)params->n_element, bytes = n * fm_element_bytes(params->element);
    double *numbers = wide ? malloc(n * sizeof *numbers) : NULL;
    if (wide && !numbers) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for parameters");
    for (size_t i = 0; wide && i < n; i++)
        numbers[i] = (double)host[i];
    const void *from = wide ? (const void *)numbers : (const void *)host;
    params->kernels->upload(NULL, params->master, from, bytes);
    if (params->ema) params->kernels->upload(NULL, params->ema, from, bytes);
    params->kernels->synchronize(NULL);
    fm_params_refresh_copy(params);
    free(numbers);
    return FM_OK;
}

static fm_status check_finite(const float *value, uint64_t n, const char *name, fm_error *reterr) {
    for (uint64_t i = 0; i < n; i++) {
        if (!isfinite(value[i])) {
            return fm_fail(reterr, FM_ERR_DATA, "%.200s: element %" PRIu64 " is not finite", name,
                           i);
        }
    }
    return FM_OK;
}

/* Reads the arrays that the file has into `host`, one after the other through `values`, which has
 * room for the largest. */
static fm_status read_values(const fm_weights_file *file, const fm_params *params, const guess *g,
                             float *values, float *host, fm_error *reterr) {
    fm_status status = FM_OK;
    for (size_t i = 0; !status && i < g->list.n_array; i++) {
        const fm_foreign_array *want = &g->list.array[i];
        const fm_weights_array *got = find(file, g->prefix, want->name);
        if (!got) continue;
        status = fm_weights_file_read(file, got, values, reterr);
        if (!status) status = check_finite(values, got->count, want->name, reterr);
        if (!status) take_slices(params, want, values, host);
    }
    return status;
}

static uint64_t largest_count(const fm_weights_file *file) {
    uint64_t most = 0;
    for (size_t i = 0; i < fm_weights_file_count(file); i++) {
        const fm_weights_array *array = fm_weights_file_at(file, i);
        if (array->is_float && array->count > most) most = array->count;
    }
    return most;
}

/* Arrays that the file lacks keep their values, which only then are read back from the device. The
 * gaps between parameters are 0. */
static fm_status take_over(const fm_weights_file *file, fm_params *params, const guess *g,
                           bool is_whole, fm_error *reterr) {
    float *host = calloc((size_t)params->n_element, sizeof *host);
    float *values = malloc(largest_count(file) * sizeof *values + 1);
    fm_status status = fm_weights_file_check(file, reterr);
    if (!status && (!host || !values)) {
        status = fm_fail(reterr, FM_ERR_NOMEM, "no memory for parameters");
    }
    if (!status && !is_whole) status = download(params, params->master, host, reterr);
    if (!status) status = read_values(file, params, g, values, host, reterr);
    if (!status) status = upload(params, host, reterr);
    free(values);
    free(host);
    return status;
}

/* Finds the naming and compares the file with the table under it. */
static fm_status compare(const fm_weights_file *file, const fm_params *params, fm_arena *arena,
                         guess *ret_guess, fm_import_report *ret_report, fm_error *reterr) {
    fm_status status = find_naming(file, params, arena, ret_guess, reterr);
    if (status) return status;
    if (ret_guess->n_found == 0) {
        return fm_fail(reterr, FM_ERR_FORMAT,
                       "none of its %zu array%s has a name that foldmill, OpenFold or DeepMind use",
                       fm_weights_file_count(file), fm_plural(fm_weights_file_count(file)));
    }
    return write_report(file, ret_guess, arena, ret_report, reterr);
}

const char *fm_foreign_name_network(const fm_weights_file *file) {
    /* DeepMind's names of the two modules that only Multimer has, and OpenFold's of its points. */
    static const char *const of_multimer[] = {
        "/~_relative_encoding/", "/fold_iteration/quat_rigid/", ".ipa.linear_q_points.linear."};
    for (size_t i = 0; i < fm_weights_file_count(file); i++) {
        const char *name = fm_weights_file_at(file, i)->name;
        for (size_t k = 0; k < sizeof of_multimer / sizeof of_multimer[0]; k++) {
            if (!strstr(name, of_multimer[k])) continue;
            return ". They are AlphaFold-Multimer's, whose network foldmill does not have; weights "
                   "of single chains or of AlphaFold 3 are expected";
        }
    }
    return "";
}

fm_status fm_foreign_compare(const fm_weights_file *file, const fm_params *params, fm_arena *arena,
                             fm_import_report *ret_report, fm_error *reterr) {
    guess g;
    return compare(file, params, arena, &g, ret_report, reterr);
}

fm_status fm_foreign_import_file(const fm_weights_file *file, fm_params *params,
                                 const fm_import_options *options, fm_arena *arena,
                                 fm_import_report *ret_report, fm_error *reterr) {
    guess g;
    fm_import_report report;
    *ret_report = (fm_import_report){.prefix = "", .text = ""};
    fm_status status = compare(file, params, arena, &g, &report, reterr);
    if (status) return status;
    *ret_report = report;
    if (report.n_wrong || (report.n_missing && !options->allow_missing) ||
        (report.n_extra && !options->allow_extra)) {
        return fm_fail(reterr, FM_ERR_DATA,
                       "as %s weights: %zu array%s missing, %zu extra, %zu of another shape or "
                       "dtype; nothing was imported%s",
                       fm_weight_names_word(g.naming), report.n_missing,
                       report.n_missing == 1 ? " is" : "s are", report.n_extra, report.n_wrong,
                       fm_foreign_name_network(file));
    }
    return take_over(file, params, &g, report.n_missing == 0, reterr);
}

fm_status fm_foreign_import(const char *path, fm_params *params, const fm_import_options *options,
                            fm_arena *arena, fm_import_report *ret_report, fm_error *reterr) {
    fm_weights_file *file;
    *ret_report = (fm_import_report){.prefix = "", .text = ""};
    fm_status status = fm_weights_file_open(path, &file, reterr);
    if (status) return status;
    status = fm_foreign_import_file(file, params, options, arena, ret_report, reterr);
    if (status && reterr) fm_error_in(reterr, path);
    fm_weights_file_close(file);
    return status;
}

/* -- export */

/* Stores the arrays' values one after the other in `out` and fills in the table for the writer. */
static void lay_out(const fm_params *params, const fm_foreign_list *list, const float *host,
                    float *out, fm_weights_out *table) {
    for (size_t i = 0; i < list->n_array; i++) {
        const fm_foreign_array *array = &list->array[i];
        uint64_t count = 1;
        table[i] = (fm_weights_out){.name = array->name, .rank = array->rank, .data = out};
        for (int axis = 0; axis < array->rank; axis++) {
            table[i].shape[axis] = array->shape[axis];
            count *= array->shape[axis];
        }
        give_slices(params, array, host, out);
        out += count;
    }
}

fm_status fm_foreign_export(const char *path, fm_weights_format format, fm_weight_names naming,
                            const fm_params *params, const void *flat, const char *settings,
                            fm_arena *arena, fm_error *reterr) {
    fm_foreign_list list;
    fm_status status = fm_foreign_list_arrays(params, naming, arena, &list, reterr);
    if (status) return status;
    fm_weights_out *table = fm_arena_calloc(arena, list.n_array, sizeof *table);
    if (!table) return fm_arena_full(arena, reterr);
    float *host = malloc((size_t)params->n_element * sizeof *host);
    float *out = malloc((size_t)params->n_element * sizeof *out); /* more than all arrays have */
    if (!host || !out) {
        status =
            fm_fail(reterr, FM_ERR_NOMEM, "no memory for %" PRId64 " parameters", params->n_value);
    }
    if (!status) status = download(params, flat, host, reterr);
    if (!status) {
        lay_out(params, &list, host, out, table);
        status = fm_weights_file_write(path, format, table, list.n_array, settings, reterr);
    }
    free(host);
    free(out);
    return status;
}
