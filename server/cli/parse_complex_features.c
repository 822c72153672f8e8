/* parse_complex_features.c: the features of a complex, and its recorded crops, as arrays of
 * foldmill parse complex. */
#include "featurizer/complex/crop_rows.h"
#include "featurizer/complex/sample.h"
#include "proto/base/file.h"
#include "proto/limits.h"
#include "server/cli/parse.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum {
    PREFIX_BYTES = 48,
    SAMPLE_ROWS = 16384, /* AlphaFold 3's, as the number of templates */
    SAMPLE_TEMPLATES = 4,
};

/* The whole assembly as a sample that the trainer reads. Without inputs each chain's sequence is
 * its MSA. */
static fm_status append_sample(fm_array_writer *writer, const fm_assembly *assembly,
                               const fm_complex_entity_inputs *inputs,
                               const fm_parse_request *request, fm_error *reterr) {
    const fm_complex_sample_options options = {.max_row = SAMPLE_ROWS,
                                               .n_template = SAMPLE_TEMPLATES,
                                               .compat_protenix = request->compat_protenix,
                                               .prefix = "features/"};
    fm_array arrays[FM_COMPLEX_SAMPLE_ARRAYS];
    size_t n = 0;
    fm_status status = fm_complex_sample_make(assembly, inputs, NULL, 0, &options, request->arena,
                                              arrays, &n, reterr);
    return status ? status : fm_array_writer_append_all(writer, arrays, n, reterr);
}

static fm_status append_features(fm_array_writer *writer, const fm_assembly *assembly,
                                 const fm_complex_crop *crop, const char *prefix, fm_arena *arena,
                                 fm_error *reterr) {
    fm_complex_features features = {0};
    fm_array arrays[FM_COMPLEX_FEATURE_ARRAYS];
    size_t n = 0;
    fm_status status = fm_complex_features_make(assembly, crop->tokens, crop->n_token, NULL, arena,
                                                &features, reterr);
    if (!status) status = fm_complex_features_list(&features, prefix, arena, arrays, &n, reterr);
    return status ? status : fm_array_writer_append_all(writer, arrays, n, reterr);
}

/* Appends the symmetries of the assembly's residues, also of those that a bond holds. */
static fm_status append_symmetries(fm_array_writer *writer, const fm_assembly *assembly,
                                   fm_arena *arena, fm_error *reterr) {
    static const fm_complex_feature_options options = {.moves_bonded_atoms = true};
    fm_complex_features features = {0};
    fm_status status =
        fm_complex_features_make(assembly, NULL, 0, &options, arena, &features, reterr);
    if (status) return status;
    const fm_array arrays[] = {{.key = "assembly/perm/count",
                                .dtype = "<i4",
                                .rank = 1,
                                .shape = {features.n_residue},
                                .data = features.permutation_count},
                               {.key = "assembly/perm/data",
                                .dtype = "<i2",
                                .rank = 1,
                                .shape = {features.n_permuted},
                                .data = features.permutations}};
    return fm_array_writer_append_all(writer, arrays, 2, reterr);
}

/* Appends one array of int32 whose name is the crop's prefix and `name`. */
static fm_status append_numbers(fm_array_writer *writer, const char *prefix, const char *name,
                                size_t rank, const uint64_t shape[2], const void *data,
                                fm_arena *arena, fm_error *reterr) {
    size_t head = strlen(prefix), tail = strlen(name);
    char *key = fm_arena_alloc(arena, head + tail + 1);
    if (!key) return fm_arena_full(arena, reterr);
    memcpy(key, prefix, head);
    memcpy(key + head, name, tail + 1);
    return fm_array_writer_append(writer, key, "<i4", rank, shape, data, reterr);
}

/* The writer borrows what it is given, so a crop's single numbers are in the arena. */
typedef struct crop_numbers {
    int32_t method, size, is_complete, reference;
} crop_numbers;

static fm_status append_crop(fm_array_writer *writer, const fm_assembly *assembly,
                             const fm_crop_row *row, fm_arena *arena, fm_error *reterr) {
    fm_complex_crop crop = {0};
    char prefix[PREFIX_BYTES];
    fm_status status = fm_crop_row_replay(row, assembly, arena, &crop, reterr);
    if (status) return status;
    crop_numbers *numbers = fm_arena_alloc(arena, sizeof *numbers);
    if (!numbers) return fm_arena_full(arena, reterr);
    *numbers = (crop_numbers){(int32_t)row->request.method, (int32_t)row->request.size,
                              row->request.is_complete, crop.reference};
    const struct {
        const char *name;
        size_t rank;
        uint64_t shape[2];
        const void *data;
    } arrays[] = {{"method", 1, {1}, &numbers->method},
                  {"size", 1, {1}, &numbers->size},
                  {"complete", 1, {1}, &numbers->is_complete},
                  {"ref_asym_id", 1, {row->request.n_reference}, row->request.reference},
                  {"draws", 2, {row->n_draw, 4}, row->draws},
                  {"tokens", 1, {crop.n_token}, crop.tokens},
                  {"ref_token", 1, {1}, &numbers->reference},
                  {"full_atoms", 1, {crop.n_full}, crop.full}};
    snprintf(prefix, sizeof prefix, "crop%u/", row->crop);
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0] && !status; i++) {
        status = append_numbers(writer, prefix, arrays[i].name, arrays[i].rank, arrays[i].shape,
                                arrays[i].data, arena, reterr);
    }
    if (status) return status;
    snprintf(prefix, sizeof prefix, "crop%u/features/", row->crop);
    return append_features(writer, assembly, &crop, prefix, arena, reterr);
}

/* Returns whether a row is for the file: its id is the file's name up to the first point, in any
 * case. Standard input takes all rows. */
static bool is_row_of(const fm_parse_request *request, const fm_crop_row *row) {
    const char *slash = strrchr(request->path, '/'), *name = slash ? slash + 1 : request->path;
    size_t n = strcspn(name, ".");
    if (strcmp(request->path, "stdin") == 0) return true;
    return strlen(row->id) == n && strncasecmp(row->id, name, n) == 0;
}

static fm_status append_crops(fm_array_writer *writer, const fm_parse_request *request,
                              const fm_assembly *assembly, fm_error *reterr) {
    const fm_crop_row *rows = NULL;
    fm_bytes text = {0};
    uint32_t n = 0, n_taken = 0;
    fm_status status =
        fm_file_read_text(request->arena, request->crops, FM_LIMIT_INPUT_BYTES, &text, reterr);
    if (!status) status = fm_crop_rows_parse(text, request->arena, &rows, &n, reterr);
    bool *is_taken = fm_arena_calloc(request->arena, FM_LIMIT_N_CROP_ROW, sizeof *is_taken);
    if (!status && !is_taken) status = fm_arena_full(request->arena, reterr);
    for (uint32_t i = 0; i < n && !status; i++) {
        if (!is_row_of(request, &rows[i])) continue;
        if (is_taken[rows[i].crop]) {
            return fm_fail_at(reterr, FM_ERR_FORMAT, rows[i].line, 0, 0, "crop %u comes twice",
                              rows[i].crop);
        }
        is_taken[rows[i].crop] = true;
        status = append_crop(writer, assembly, &rows[i], request->arena, reterr);
        n_taken++;
    }
    if (status || n_taken) return status;
    return fm_fail(reterr, FM_ERR_DATA, "no row is for %s", request->path);
}

fm_status fm_parse_append_complex_features(fm_array_writer *writer, const fm_parse_request *request,
                                           const fm_assembly *assembly,
                                           const fm_complex_entity_inputs *inputs,
                                           fm_error *reterr) {
    fm_status status = append_symmetries(writer, assembly, request->arena, reterr);
    if (!status) status = append_sample(writer, assembly, inputs, request, reterr);
    if (status || !request->crops) return status;
    status = append_crops(writer, request, assembly, reterr);
    return status ? fm_error_in(reterr, request->crops) : FM_OK;
}
