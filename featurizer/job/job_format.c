/* job_format.c: which format a description has; see job.h. */
#include "featurizer/job/job_read.h"
#include "featurizer/parse/lines.h"
#include "proto/base/compress.h"
#include "proto/base/utf8.h"
#include "proto/limits.h"

#include <string.h>
#include <strings.h>

static const struct {
    const char *name, *title;
} formats[FM_N_JOB_FORMAT] = {
    [FM_JOB_ANY] = {"any", "a description of jobs"},
    [FM_JOB_ALPHAFOLD3] = {"alphafold3", "AlphaFold 3 JSON"},
    [FM_JOB_SERVER] = {"server", "AlphaFold Server JSON"},
    [FM_JOB_PROTENIX] = {"protenix", "Protenix JSON"},
    [FM_JOB_BOLTZ] = {"boltz", "Boltz YAML"},
    [FM_JOB_FASTA] = {"fasta", "FASTA"},
};

fm_job_format fm_job_format_of_name(const char *name) {
    uint32_t i = 0;
    while (i < FM_N_JOB_FORMAT && strcmp(formats[i].name, name) != 0)
        i++;
    return (fm_job_format)i;
}

const char *fm_job_format_title(fm_job_format format) {
    return formats[format].title;
}

static bool ends_with(const char *name, size_t size, const char *ending) {
    size_t n = strlen(ending);
    return size > n && strncasecmp(name + size - n, ending, n) == 0;
}

/* The bytes of a file's name before its ending and without its folder. */
static fm_bytes stem_of(const char *name) {
    const char *slash = strrchr(name, '/');
    size_t size = 0;
    if (slash) name = slash + 1;
    (void)fm_compression_of_name(name, &size);
    const char *point = memrchr(name, '.', size);
    if (point && point > name) size = (size_t)(point - name);
    return (fm_bytes){(const uint8_t *)name, size};
}

static uint8_t first_byte(fm_bytes text) {
    for (size_t i = fm_utf8_mark(text.data, text.size); i < text.size; i++)
        if (!strchr(" \t\r\n", text.data[i])) return text.data[i];
    return '\0';
}

static fm_job_format guess(fm_bytes text, const char *name) {
    size_t size = 0;
    (void)fm_compression_of_name(name, &size);
    if (ends_with(name, size, ".yaml") || ends_with(name, size, ".yml")) return FM_JOB_BOLTZ;
    switch (first_byte(text)) {
    case '{': return FM_JOB_ALPHAFOLD3;
    case '[': return FM_JOB_PROTENIX; /* or the server's: its values tell */
    case '>': return FM_JOB_FASTA;
    default: return FM_JOB_BOLTZ;
    }
}

/* A job in a format without names has the file's. */
static fm_status copy_stem(fm_job_reader *reader, const char *name, const char **ret_stem) {
    fm_bytes stem = stem_of(name);
    char *copy = fm_arena_alloc(reader->arena, stem.size + 1);
    if (!copy) return fm_arena_full(reader->arena, reader->reterr);
    memcpy(copy, stem.data, stem.size);
    copy[stem.size] = '\0';
    *ret_stem = copy;
    return FM_OK;
}

static fm_status read_document(fm_job_reader *reader, fm_bytes text, bool is_guess,
                               const char *stem, fm_job_list *jobs) {
    const fm_value *root;
    fm_status status = reader->format == FM_JOB_BOLTZ
                           ? fm_document_parse_yaml(text, reader->arena, &root, reader->reterr)
                           : fm_document_parse_json(text, reader->arena, &root, reader->reterr);
    if (status) return status;
    uint32_t most = root->kind == FM_DOCUMENT_LIST ? root->n : 1;
    if (most > FM_LIMIT_N_JOB) {
        return fm_value_fail(root, reader->reterr, FM_ERR_LIMIT, "found %u jobs, expected 1 to %u",
                             most, FM_LIMIT_N_JOB);
    }
    jobs->jobs = fm_arena_alloc_array(reader->arena, most, sizeof *jobs->jobs);
    if (!jobs->jobs) return fm_arena_full(reader->arena, reader->reterr);
    if (reader->format == FM_JOB_BOLTZ) return fm_job_read_boltz(reader, root, stem, jobs);
    if (reader->format == FM_JOB_ALPHAFOLD3) return fm_job_read_alphafold3(reader, root, jobs);
    if (is_guess && fm_job_list_is_server(root)) reader->format = FM_JOB_SERVER;
    return fm_job_read_list(reader, root, jobs);
}

fm_status fm_jobs_read(fm_bytes text, const char *name, fm_job_format format, fm_arena *arena,
                       fm_job_warnings *warnings, fm_jobs *ret_jobs, fm_error *reterr) {
    bool is_guess = format == FM_JOB_ANY;
    fm_job_reader reader = {.arena = arena,
                            .reterr = reterr,
                            .warnings = warnings,
                            .format = is_guess ? guess(text, name) : format};
    fm_job_list jobs = {0};
    const char *stem = NULL;
    if (text.size > FM_LIMIT_JOB_BYTES) {
        return fm_fail(reterr, FM_ERR_LIMIT, "found %zu bytes, expected at most %zu", text.size,
                       FM_LIMIT_JOB_BYTES);
    }
    fm_status status = fm_text_check_kind(text, reterr);
    if (!status) status = copy_stem(&reader, name, &stem);
    if (status) return status;
    status = reader.format == FM_JOB_FASTA ? fm_job_read_fasta(&reader, text, stem, &jobs)
                                           : read_document(&reader, text, is_guess, stem, &jobs);
    if (!status) *ret_jobs = (fm_jobs){jobs.n, jobs.jobs};
    return status;
}
