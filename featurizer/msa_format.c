/* msa_format.c: see msa_format.h. */
#include "featurizer/msa_format.h"

#include "featurizer/parse/stockholm.h"
#include "proto/base/compress.h"

#include <assert.h>
#include <string.h>

/* -- readers */

static fm_status append_a3m(fm_bytes text, const fm_a3m_options *options, fm_arena *arena,
                            fm_alignment *alignment, fm_error *reterr) {
    (void)arena;
    return fm_a3m_append(text, options, alignment, reterr);
}

static fm_stockholm_options stockholm_options(const fm_a3m_options *options) {
    static const fm_a3m_options defaults;
    if (!options) options = &defaults;
    return (fm_stockholm_options){.compat_openfold = options->compat_openfold,
                                  .kernel = options->kernel};
}

static fm_status measure_stockholm(fm_bytes text, const fm_a3m_options *options, size_t *ret_n_col,
                                   fm_error *reterr) {
    const fm_stockholm_options own = stockholm_options(options);
    return fm_stockholm_measure(text, &own, ret_n_col, reterr);
}

static fm_status append_stockholm(fm_bytes text, const fm_a3m_options *options, fm_arena *arena,
                                  fm_alignment *alignment, fm_error *reterr) {
    const fm_stockholm_options own = stockholm_options(options);
    return fm_stockholm_append(text, &own, arena, alignment, reterr);
}

static fm_text_place locate_stockholm(fm_bytes text, const fm_a3m_options *options,
                                      const fm_alignment_row *row, size_t column) {
    const fm_stockholm_options own = stockholm_options(options);
    return fm_stockholm_locate(text, &own, row, column);
}

static const fm_msa_reader readers[FM_MSA_N_FORMAT] = {
    [FM_MSA_A3M] = {".a3m", "A3M", fm_a3m_measure, append_a3m, fm_a3m_locate},
    [FM_MSA_STOCKHOLM] = {".sto", "Stockholm", measure_stockholm, append_stockholm,
                          locate_stockholm},
};

const fm_msa_reader *fm_msa_reader_of(fm_msa_format format) {
    assert(format > FM_MSA_NONE && format < FM_MSA_N_FORMAT);
    return &readers[format];
}

/* -- names */

static size_t name_bytes_of(const char *name) {
    size_t bare;
    (void)fm_compression_of_name(name, &bare);
    return bare;
}

fm_msa_format fm_msa_format_of_ending(const char *name) {
    size_t n = name_bytes_of(name);
    for (fm_msa_format format = FM_MSA_NONE + 1; format < FM_MSA_N_FORMAT; format++) {
        size_t bytes = strlen(readers[format].ending);
        if (n >= bytes && memcmp(name + n - bytes, readers[format].ending, bytes) == 0) {
            return format;
        }
    }
    return FM_MSA_NONE;
}

fm_msa_format fm_msa_format_of_name(const char *name) {
    static const char *const others[] = {"uniprot_hits.sto", "hmm_output.sto", "pdb_hits.sto",
                                         "hmmsearch.a3m"};
    size_t n = name_bytes_of(name);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        if (n == strlen(others[i]) && memcmp(name, others[i], n) == 0) return FM_MSA_NONE;
    }
    return fm_msa_format_of_ending(name);
}
