/* job_case.h: small descriptions of complexes, and the components that they need. */
#ifndef FM_TESTS_JOB_CASE_H
#define FM_TESTS_JOB_CASE_H

#include "featurizer/job/job.h"
#include "tests/featurizer/complex_text.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define JOB_COMPONENTS                                                                             \
    COMPLEX_COMPONENTS                                                                             \
    "data_ACE\n_chem_comp.id ACE\n_chem_comp.type NON-POLYMER\n" COMPLEX_COMPONENT_ATOMS           \
    "C C 0 N\nO O 0 N\nCH3 C 0 N\n" COMPLEX_COMPONENT_BONDS "C O DOUB\nC CH3 SING\n"               \
    "data_NME\n_chem_comp.id NME\n_chem_comp.type NON-POLYMER\n" COMPLEX_COMPONENT_ATOMS           \
    "N N 0 N\nC C 0 N\n" COMPLEX_COMPONENT_BONDS "N C SING\n"                                      \
    "data_DA\n_chem_comp.id DA\n_chem_comp.type 'DNA LINKING'\n_chem_comp.one_letter_code "        \
    "A\n" COMPLEX_COMPONENT_ATOMS                                                                  \
    "OP3 O 0 Y\nP P 0 N\nOP1 O 0 N\nC1' C 0 N\nO3' O 0 N\nC4 C 0 N\n" COMPLEX_COMPONENT_BONDS      \
    "OP3 P SING\nP OP1 DOUB\nC1' O3' SING\nC1' C4 SING\n"                                          \
    "data_UNK\n_chem_comp.id UNK\n_chem_comp.type 'PEPTIDE LINKING'\n" COMPLEX_COMPONENT_ATOMS     \
    "N N 0 N\nCA C 0 N\nC C 0 N\nO O 0 N\nOXT O 0 Y\n" COMPLEX_COMPONENT_BONDS                     \
    "N CA SING\nCA C SING\nC O DOUB\nC OXT SING\n"

typedef struct job_case {
    fm_arena arena;
    fm_components components;
    fm_job_warnings warnings;
    fm_jobs jobs;
    fm_prepared_job *prepared;
    fm_error error;
    char message[FM_ERROR_TEXT_BYTES]; /* of the last error */
} job_case;

static inline void job_case_init(job_case *test) {
    static const char components[] = JOB_COMPONENTS;
    const fm_bytes text = {(const uint8_t *)components, sizeof components - 1};
    memset(test, 0, sizeof *test);
    fm_status status = fm_arena_init(&test->arena, (size_t)256 << 20, NULL);
    if (!status) status = fm_components_parse(text, &test->arena, &test->components, NULL);
    assert(!status);
    test->prepared = fm_arena_alloc(&test->arena, sizeof *test->prepared);
    assert(test->prepared);
}

static inline fm_status job_case_note(job_case *test, fm_status status) {
    test->message[0] = '\0';
    if (status) fm_error_format(&test->error, test->message, sizeof test->message);
    return status;
}

static inline fm_status job_case_read(job_case *test, const char *name, const char *text) {
    memset(&test->error, 0, sizeof test->error);
    memset(&test->warnings, 0, sizeof test->warnings);
    fm_bytes bytes = {(const uint8_t *)text, strlen(text)};
    fm_status status = fm_jobs_read(bytes, name, FM_JOB_ANY, &test->arena, &test->warnings,
                                    &test->jobs, &test->error);
    return job_case_note(test, status);
}

/* Gives the text of the file whose name is in the context's pairs. */
static inline fm_status job_case_file(void *context, const char *file, fm_arena *arena,
                                      fm_bytes *ret_bytes, fm_error *reterr) {
    const char *const *pairs = context;
    (void)arena;
    for (; pairs && pairs[0]; pairs += 2) {
        if (strcmp(pairs[0], file) != 0) continue;
        *ret_bytes = (fm_bytes){(const uint8_t *)pairs[1], strlen(pairs[1])};
        return FM_OK;
    }
    return fm_fail_in(reterr, FM_ERR_NOT_FOUND, file, "no such file");
}

/* Reads and prepares the first job. `files`: names and texts in turn, ended by NULL. */
static inline fm_status job_case_prepare(job_case *test, const char *name, const char *text,
                                         bool compat, const char *const *files) {
    const fm_job_options options = {
        .compat_protenix = compat, .is_single_sequence = true, .max_row = 64, .n_template = 4};
    const fm_job_files source = {(void *)(uintptr_t)files, job_case_file};
    fm_status status = job_case_read(test, name, text);
    if (status) return status;
    status = fm_job_prepare(test->jobs.jobs, &test->components, &source, &options, &test->arena,
                            &test->warnings, test->prepared, &test->error);
    return job_case_note(test, status);
}

/* Returns the array of the prepared job. */
static inline const fm_array *job_case_array(const job_case *test, const char *key) {
    for (size_t i = 0; i < test->prepared->n_array; i++)
        if (strcmp(test->prepared->arrays[i].key, key) == 0) return &test->prepared->arrays[i];
    fprintf(stderr, "no array %s\n", key);
    assert(false);
    return NULL;
}

/* Writes the names of a residue's atoms, with blanks between. */
static inline const char *job_case_atoms(const job_case *test, uint32_t residue, char out[256]) {
    const fm_assembly *a = &test->prepared->assembly;
    uint32_t end = fm_assembly_residue_end_atom(a, residue);
    size_t n = 0;
    out[0] = '\0';
    for (uint32_t i = a->residues[residue].first_atom; i < end; i++)
        n += (size_t)snprintf(out + n, 256 - n, n ? " %.8s" : "%.8s", a->atoms[i].name);
    return out;
}

/* Returns whether two named atoms of two residues are bonded. */
static inline bool job_case_bonded(const job_case *test, uint32_t r, const char *one, uint32_t s,
                                   const char *two) {
    const fm_assembly *a = &test->prepared->assembly;
    for (uint32_t i = 0; i < a->n_bond; i++) {
        const fm_assembly_atom *x = &a->atoms[a->bonds[i].a], *y = &a->atoms[a->bonds[i].b];
        bool is_here = x->residue == r && y->residue == s;
        if (is_here && strcmp(x->name, one) == 0 && strcmp(y->name, two) == 0) return true;
    }
    return false;
}

#endif
