/* fuzz_job.c: arbitrary bytes as a description of jobs; the first byte chooses the format; 6 is a
 * molecule's file, and 7 a table of keys and sequences.
 *
 * Refused text has a message. Every job that is accepted has chains with ids, residues with
 * components, and bonds of its own residues; and it is prepared, or refused with a message. */
#include "featurizer/job/keyed_rows.h"
#include "featurizer/job/molfile.h"
#include "tests/featurizer/job_case.h"

#include "proto/limits.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_job(const fm_complex_job *job) {
    if (job->refused) {
        assert(job->refused->status && job->refused->message[0] && job->name);
        return;
    }
    uint32_t n_chain = 0;
    assert(job->n_seed > 0 && job->n_entity > 0 && job->folder[0]);
    for (uint32_t e = 0; e < job->n_entity; e++) {
        const fm_job_entity *entity = &job->entities[e];
        assert(entity->n_residue > 0 && entity->n_copy > 0);
        assert(!entity->sequence || strlen(entity->sequence) == entity->n_residue);
        for (uint32_t r = 0; r < entity->n_residue; r++)
            assert(entity->components[r][0] && !entity->components[r][FM_COMPONENT_ID - 1]);
        for (uint32_t k = 0; k < entity->n_copy; k++)
            assert(entity->ids[k] && entity->ids[k][0]);
        n_chain += entity->n_copy;
    }
    assert(n_chain == job->n_chain && n_chain <= FM_LIMIT_N_JOB_CHAIN);
    for (uint32_t i = 0; i < job->n_bond; i++) {
        const fm_job_end *end = &job->bonds[i].b;
        assert(end->entity < job->n_entity && end->copy < job->entities[end->entity].n_copy);
        assert(end->residue < job->entities[end->entity].n_residue && end->atom[0]);
    }
}

static void check_prepared(job_case *test) {
    const fm_job_options options = {
        .is_single_sequence = true, .max_row = 8, .n_template = 2, .max_token = 500};
    const fm_job_files files = {NULL, job_case_file};
    memset(&test->error, 0, sizeof test->error);
    fm_status status = fm_job_prepare(test->jobs.jobs, &test->components, &files, &options,
                                      &test->arena, &test->warnings, test->prepared, &test->error);
    if (status) {
        assert(test->error.status == status && test->error.message[0]);
        return;
    }
    const fm_assembly *a = &test->prepared->assembly;
    assert(a->n_token > 0 && a->n_token <= 500 && a->n_atom >= a->n_token);
    assert(test->prepared->names.n_atom == a->n_atom);
    for (uint32_t i = 0; i < a->n_bond; i++)
        assert(a->bonds[i].a < a->bonds[i].b && a->bonds[i].b < a->n_atom);
}

static void check_molfile(job_case *test, fm_bytes text) {
    fm_component component;
    fm_error error = {0};
    fm_status status = fm_molfile_parse(text, "l01", &test->arena, &component, &error);
    if (status) {
        assert(error.status == status && error.message[0]);
        return;
    }
    assert(component.n_atom > 0);
    for (uint32_t i = 0; i < component.n_bond; i++) {
        assert(component.bonds[i].a < component.bonds[i].b);
        assert(component.bonds[i].b < component.n_atom);
    }
}

static void check_text(const fm_keyed_text *rows, fm_bytes table) {
    size_t n_line = 0;
    for (size_t i = 0; i < rows->a3m.size; i++)
        n_line += rows->a3m.data[i] == '\n';
    assert(rows->n_row > 0 && n_line == 2 * rows->n_row);
    for (uint64_t i = 0; i < rows->n_row; i++)
        assert(rows->places[i].offset < table.size);
}

static void check_table(job_case *test, fm_bytes table) {
    fm_keyed_rows rows;
    fm_error error = {0};
    fm_status status = fm_keyed_rows_split(table, &test->arena, &rows, &error);
    if (status) {
        assert(error.status == status && error.message[0]);
        return;
    }
    check_text(&rows.paired, table);
    check_text(&rows.unpaired, table);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static job_case test;
    static size_t mark;
    if (!test.prepared) {
        job_case_init(&test);
        mark = fm_arena_mark(&test.arena);
    }
    if (size == 0) return 0;
    fm_arena_rewind(&test.arena, mark);
    const fm_bytes text = {data + 1, size - 1};
    uint8_t format = data[0] % (FM_N_JOB_FORMAT + 2);
    if (format >= FM_N_JOB_FORMAT) {
        (format == FM_N_JOB_FORMAT ? check_molfile : check_table)(&test, text);
        return 0;
    }
    memset(&test.error, 0, sizeof test.error);
    memset(&test.warnings, 0, sizeof test.warnings);
    fm_status status = fm_jobs_read(text, "fuzz", (fm_job_format)format, &test.arena,
                                    &test.warnings, &test.jobs, &test.error);
    if (status) {
        assert(test.error.status == status && test.error.message[0]);
        return 0;
    }
    assert(test.jobs.n > 0);
    for (uint32_t i = 0; i < test.jobs.n; i++)
        check_job(&test.jobs.jobs[i]);
    if (!test.jobs.jobs[0].refused) check_prepared(&test);
    return 0;
}
