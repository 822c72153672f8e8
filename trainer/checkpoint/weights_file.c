/* weights_file.c: see weights_file.h. */
#include "trainer/checkpoint/weights_file.h"

#include "proto/base/file.h"
#include "proto/base/hash.h"
#include "proto/npz.h"
#include "proto/safetensors.h"
#include "proto/torch_file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A checkpoint is known by its key, so an export has another one. */
static const char settings_key[] = "foldmill_settings", checkpoint_key[] = "config";
static const char hash_key[] = "foldmill_xxh3"; /* the content's hash, 16 hex digits */
enum { HASH_TEXT_BYTES = 17 };

struct fm_weights_file {
    /* Both are NULL if the file is an .npz. */
    fm_safetensors *safetensors;
    fm_torch_file *torch;
    fm_npz npz;
    fm_arena arena;          /* memory of the npz */
    fm_weights_array *array; /* [n_array] sorted by name */
    size_t n_array;
};

/* -- numbers */

typedef enum number_kind { NOT_A_NUMBER, F64, F32, F16, BF16 } number_kind;

static number_kind kind_of(const char *dtype) {
    static const struct {
        const char *name;
        number_kind kind;
    } known[] = {{"<f8", F64}, {"<f4", F32}, {"<f2", F16},  {"F64", F64},
                 {"F32", F32}, {"F16", F16}, {"BF16", BF16}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(known[i].name, dtype) == 0) return known[i].kind;
    }
    return NOT_A_NUMBER;
}

static size_t bytes_of(number_kind kind) {
    return kind == F64 ? 8 : kind == F32 ? 4 : 2;
}

static float float_of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* IEEE 754 binary16. A subnormal number is mantissa * 2^-24. */
static float half(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, mantissa = h & 1023u;
    if (exponent == 31) return float_of_bits(sign | 0x7f800000u | mantissa << 13);
    if (exponent) return float_of_bits(sign | (exponent + 112) << 23 | mantissa << 13);
    float value = (float)mantissa * 0x1p-24f;
    return sign ? -value : value;
}

static void convert(number_kind kind, const void *from, uint64_t n, float *out) {
    const uint8_t *at = from;
    if (kind == F32) memcpy(out, from, n * sizeof *out);
    for (uint64_t i = 0; kind != F32 && i < n; i++, at += bytes_of(kind)) {
        double wide;
        uint16_t narrow;
        switch (kind) {
        case F64:
            memcpy(&wide, at, sizeof wide);
            out[i] = (float)wide;
            break;
        case F16:
            memcpy(&narrow, at, sizeof narrow);
            out[i] = half(narrow);
            break;
        default:
            memcpy(&narrow, at, sizeof narrow);
            out[i] = float_of_bits((uint32_t)narrow << 16);
            break;
        }
    }
}

/* -- reading */

static int by_name(const void *a, const void *b) {
    return strcmp(((const fm_weights_array *)a)->name, ((const fm_weights_array *)b)->name);
}

typedef enum file_kind { SAFETENSORS, NPZ, PYTORCH, PICKLE, UNKNOWN } file_kind;

/* torch.save writes a zip whose first member is NAME/data.pkl. Older versions and pickle.dump write
 * a pickle: the byte 0x80 and a protocol, 2 to 5. A safetensors file may begin with the same bytes,
 * since its first 8 are a length, but it has the JSON's brace behind them. */
static file_kind kind_of_head(const uint8_t *head, size_t n) {
    static const char member[] = "data.pkl";
    if (n >= 4 && memcmp(head, "PK\3\4", 4) == 0) {
        for (size_t i = 4; i + sizeof member - 1 <= n; i++) {
            if (memcmp(head + i, member, sizeof member - 1) == 0) return PYTORCH;
        }
        return NPZ;
    }
    if (n > 8 && head[8] == '{') return SAFETENSORS;
    bool pickle = n > 8 && head[0] == 0x80 && head[1] >= 2 && head[1] <= 5;
    return pickle ? PICKLE : UNKNOWN;
}

static fm_status detect_kind(const char *path, file_kind *ret_kind, fm_error *reterr) {
    uint8_t head[256];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return fm_fail_in(reterr, errno == ENOENT ? FM_ERR_NOT_FOUND : FM_ERR_IO, path,
                          "cannot open: %s", strerror(errno));
    }
    ssize_t n = read(fd, head, sizeof head);
    int code = errno;
    close(fd);
    if (n < 0) return fm_fail_in(reterr, FM_ERR_IO, path, "cannot read: %s", strerror(code));
    *ret_kind = kind_of_head(head, (size_t)n);
    if (*ret_kind == UNKNOWN) {
        return fm_fail_in(
            reterr, FM_ERR_CORRUPT, path,
            n == 0 ? "the file is empty"
                   : "this is not an .npz archive, a safetensors file or a PyTorch file, "
                     "or its beginning is damaged");
    }
    if (*ret_kind != PICKLE) return FM_OK;
    return fm_fail_in(
        reterr, FM_ERR_UNSUPPORTED, path,
        "this is a bare Python pickle, as PyTorch wrote before version 1.6, which foldmill does "
        "not read; save it in today's form: python3 -c \"import torch; "
        "torch.save(torch.load('FILE', 'cpu', weights_only=True), 'weights.pt')\"");
}

static fm_status list_npz(fm_weights_file *file, const char *path, fm_error *reterr) {
    fm_bytes content;
    fm_status status = fm_arena_init(&file->arena, 3 * FM_WEIGHTS_NPZ_BYTES, reterr);
    if (!status) status = fm_file_read(&file->arena, path, FM_WEIGHTS_NPZ_BYTES, &content, reterr);
    if (!status) {
        status = fm_npz_parse(&file->arena, content, &file->npz, reterr);
        if (status && reterr) fm_error_in(reterr, path);
    }
    if (status) return status;
    file->array = calloc(file->npz.n_array + 1, sizeof *file->array);
    if (!file->array) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a table of arrays");
    for (size_t i = 0; i < file->npz.n_array; i++) {
        const fm_npy *from = &file->npz.arrays[i];
        fm_weights_array *to = &file->array[file->n_array++];
        *to = (fm_weights_array){.name = from->name,
                                 .dtype = from->dtype,
                                 .is_float = kind_of(from->dtype) != NOT_A_NUMBER,
                                 .rank = (int)from->rank,
                                 .count = from->count,
                                 .from = from};
        memcpy(to->shape, from->shape, from->rank * sizeof to->shape[0]);
    }
    return FM_OK;
}

static fm_status list_safetensors(fm_weights_file *file, const char *path, fm_error *reterr) {
    fm_status status = fm_safetensors_open(path, &file->safetensors, reterr);
    if (status) return status;
    size_t n = fm_safetensors_count(file->safetensors);
    file->array = calloc(n + 1, sizeof *file->array);
    if (!file->array) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a table of arrays");
    for (size_t i = 0; i < n; i++) {
        const fm_safetensor *from = fm_safetensors_at(file->safetensors, i);
        fm_weights_array *to = &file->array[file->n_array++];
        *to = (fm_weights_array){.name = from->name,
                                 .dtype = from->dtype,
                                 .is_float = kind_of(from->dtype) != NOT_A_NUMBER,
                                 .rank = from->rank,
                                 .count = 1,
                                 .from = from};
        for (int axis = 0; axis < from->rank; axis++) {
            to->shape[axis] = (uint64_t)from->shape[axis];
            to->count *= to->shape[axis];
        }
    }
    return FM_OK;
}

/* Tensors that are no rows of their storage can be named, not read. */
static fm_status list_torch(fm_weights_file *file, const char *path, fm_error *reterr) {
    fm_status status = fm_torch_file_open(path, &file->torch, reterr);
    if (status) return status;
    size_t n = fm_torch_file_count(file->torch);
    file->array = calloc(n + 1, sizeof *file->array);
    if (!file->array) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a table of arrays");
    for (size_t i = 0; i < n; i++) {
        const fm_pickled_tensor *from = fm_torch_file_at(file->torch, i);
        fm_weights_array *to = &file->array[file->n_array++];
        *to = (fm_weights_array){
            .name = from->name,
            .dtype = from->is_contiguous ? from->dtype : "a view with gaps or another order",
            .is_float = from->is_contiguous && kind_of(from->dtype) != NOT_A_NUMBER,
            .rank = from->rank,
            .count = from->count,
            .from = from};
        memcpy(to->shape, from->shape, (size_t)from->rank * sizeof to->shape[0]);
    }
    return FM_OK;
}

/* Nested dictionaries of a PyTorch file can spell one name in two ways. */
static fm_status check_names(const fm_weights_file *file, const char *path, fm_error *reterr) {
    for (size_t i = 1; i < file->n_array; i++) {
        if (strcmp(file->array[i - 1].name, file->array[i].name) != 0) continue;
        return fm_fail_in(reterr, FM_ERR_FORMAT, path,
                          "found the array %.200s twice, expected it once", file->array[i].name);
    }
    return FM_OK;
}

fm_status fm_weights_file_open(const char *path, fm_weights_file **ret_file, fm_error *reterr) {
    file_kind kind = SAFETENSORS;
    fm_status status = detect_kind(path, &kind, reterr);
    if (status) return status;
    fm_weights_file *file = calloc(1, sizeof *file);
    if (!file) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a file of weights");
    status = kind == NPZ       ? list_npz(file, path, reterr)
             : kind == PYTORCH ? list_torch(file, path, reterr)
                               : list_safetensors(file, path, reterr);
    if (!status) {
        qsort(file->array, file->n_array, sizeof *file->array, by_name);
        status = check_names(file, path, reterr);
    }
    if (status) {
        fm_weights_file_close(file);
        return status;
    }
    *ret_file = file;
    return FM_OK;
}

fm_status fm_weights_file_open_named(const char *path, fm_weights_file **ret_file,
                                     fm_error *reterr) {
    fm_error why;
    fm_status status = fm_weights_file_open(path, ret_file, &why);
    if (status && status != FM_ERR_UNSUPPORTED) {
        return fm_fail_in(reterr, status, path,
                          "%.300s; weights are a checkpoint of foldmill, an .npz of AlphaFold, or "
                          "safetensors or PyTorch's files with OpenFold's or Protenix's names",
                          why.message);
    }
    if (status && reterr) *reterr = why;
    return status;
}

void fm_weights_file_close(fm_weights_file *file) {
    if (!file) return;
    fm_safetensors_close(file->safetensors);
    fm_torch_file_close(file->torch);
    fm_arena_fini(&file->arena);
    free(file->array);
    free(file);
}

size_t fm_weights_file_count(const fm_weights_file *file) {
    return file->n_array;
}

const fm_weights_array *fm_weights_file_at(const fm_weights_file *file, size_t index) {
    assert(index < file->n_array);
    return &file->array[index];
}

const fm_weights_array *fm_weights_file_find(const fm_weights_file *file, const char *name) {
    const fm_weights_array key = {.name = name};
    return bsearch(&key, file->array, file->n_array, sizeof key, by_name);
}

const char *fm_weights_file_settings(const fm_weights_file *file) {
    if (!file->safetensors) return NULL;
    const char *own = fm_safetensors_note_of(file->safetensors, settings_key);
    return own ? own : fm_safetensors_note_of(file->safetensors, checkpoint_key);
}

/* -- the hash of safetensors */

/* The hash of an array with its name and shape. */
static uint64_t hash_of_array(const char *name, const uint64_t *shape, int rank, const void *data,
                              uint64_t bytes) {
    fm_xxh3_state *hash = fm_xxh3_create();
    fm_xxh3_update(hash, name, strlen(name) + 1);
    fm_xxh3_update(hash, shape, (size_t)rank * sizeof *shape);
    fm_xxh3_update(hash, data, bytes);
    const uint64_t result = fm_xxh3_digest(hash);
    fm_xxh3_destroy(hash);
    return result;
}

/* The hash of the settings, to which those of the arrays are added, in any order. */
static uint64_t hash_of_settings(const char *settings) {
    return settings ? fm_xxh3(settings, strlen(settings)) : 0;
}

static void format_hash(uint64_t hash, char out[HASH_TEXT_BYTES]) {
    snprintf(out, HASH_TEXT_BYTES, "%016" PRIx64, hash);
}

fm_status fm_weights_file_check(const fm_weights_file *file, fm_error *reterr) {
    const char *wanted =
        file->safetensors ? fm_safetensors_note_of(file->safetensors, hash_key) : NULL;
    if (!wanted) return FM_OK;
    uint64_t sum = hash_of_settings(fm_safetensors_note_of(file->safetensors, settings_key));
    fm_status status = FM_OK;
    for (size_t i = 0; i < file->n_array && !status; i++) {
        const fm_weights_array *array = &file->array[i];
        const fm_safetensor *from = array->from;
        void *data = malloc(from->bytes + 1);
        status = data ? fm_safetensors_read(file->safetensors, from, data, reterr)
                      : fm_fail(reterr, FM_ERR_NOMEM, "no memory for array %s", array->name);
        if (!status) {
            sum += hash_of_array(array->name, array->shape, array->rank, data, from->bytes);
        }
        free(data);
    }
    char found[HASH_TEXT_BYTES];
    format_hash(sum, found);
    if (status || strcmp(found, wanted) == 0) return status;
    return fm_fail(reterr, FM_ERR_CORRUPT,
                   "the content has the hash %s, expected %.32s: the file is damaged, or a program "
                   "has changed it and kept its note %s",
                   found, wanted, hash_key);
}

/* -- values */

/* Reads the bytes of an array of a file that is not held in memory. */
static fm_status read_raw(const fm_weights_file *file, const fm_weights_array *array, void *out,
                          fm_error *reterr) {
    return file->torch ? fm_torch_file_read(file->torch, array->from, out, reterr)
                       : fm_safetensors_read(file->safetensors, array->from, out, reterr);
}

fm_status fm_weights_file_read(const fm_weights_file *file, const fm_weights_array *array,
                               float *out, fm_error *reterr) {
    number_kind kind = kind_of(array->dtype);
    assert(kind != NOT_A_NUMBER);
    if (!file->safetensors && !file->torch) {
        convert(kind, ((const fm_npy *)array->from)->data, array->count, out);
        return FM_OK;
    }
    if (kind == F32) return read_raw(file, array, out, reterr);
    void *raw = malloc(array->count * bytes_of(kind) + 1);
    if (!raw) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for array %s", array->name);
    fm_status status = read_raw(file, array, raw, reterr);
    if (!status) convert(kind, raw, array->count, out);
    free(raw);
    return status;
}

/* -- writing */

static fm_status write_npz(const char *path, const fm_weights_out *array, size_t n_array,
                           fm_error *reterr) {
    fm_npz_writer *writer;
    fm_status status = fm_npz_writer_create(path, &writer, reterr);
    if (status) return status;
    for (size_t i = 0; !status && i < n_array; i++) {
        status = fm_npz_writer_append(writer, array[i].name, "<f4", (size_t)array[i].rank,
                                      array[i].shape, array[i].data, reterr);
    }
    if (!status) return fm_npz_writer_finish(writer, reterr);
    fm_npz_writer_destroy(writer);
    return status;
}

static fm_status write_safetensors(const char *path, const fm_weights_out *array, size_t n_array,
                                   const char *settings, fm_error *reterr) {
    fm_safetensor *tensor = calloc(n_array + 1, sizeof *tensor);
    if (!tensor) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a table of arrays");
    uint64_t sum = hash_of_settings(settings);
    for (size_t i = 0; i < n_array; i++) {
        uint64_t count = 1;
        for (int axis = 0; axis < array[i].rank; axis++) {
            tensor[i].shape[axis] = (int64_t)array[i].shape[axis];
            count *= array[i].shape[axis];
        }
        tensor[i].name = array[i].name;
        tensor[i].dtype = "F32";
        tensor[i].rank = array[i].rank;
        tensor[i].data = array[i].data;
        tensor[i].bytes = count * sizeof(float);
        sum += hash_of_array(array[i].name, array[i].shape, array[i].rank, array[i].data,
                             tensor[i].bytes);
    }
    char hash[HASH_TEXT_BYTES];
    format_hash(sum, hash);
    /* Libraries such as transformers ask for the first note before they load a file. */
    const fm_safetensors_note note[] = {
        {"format", "np"}, {hash_key, hash}, {settings_key, settings}};
    fm_status status = fm_safetensors_write(path, tensor, n_array, note, settings ? 3 : 2, reterr);
    free(tensor);
    return status;
}

fm_status fm_weights_file_write(const char *path, fm_weights_format format,
                                const fm_weights_out *array, size_t n_array, const char *settings,
                                fm_error *reterr) {
    return format == FM_WEIGHTS_NPZ ? write_npz(path, array, n_array, reterr)
                                    : write_safetensors(path, array, n_array, settings, reterr);
}
