/* prepare.h: the parts of fm_job_prepare.
 *
 *     components -> assembly -> alignments and templates -> sample -> tables */
#ifndef FM_JOB_PREPARE_H
#define FM_JOB_PREPARE_H

#include "featurizer/complex/sample.h"
#include "featurizer/job/job.h"
#include "featurizer/msa.h"
#include "proto/record.h"

/* A template with the pairs of residues that were used. Everything is in the arena. */
typedef struct fm_job_template_used {
    fm_part_sequence sequence;
    fm_part_structure structure;
    uint32_t n;
    const uint32_t *query, *template; /* [n] from 0 */
} fm_job_template_used;

/* The texts and templates of an entity as they were used; contents of size 0: none. */
typedef struct fm_job_inputs_used {
    fm_msa_input paired, unpaired;
    uint32_t n_template;
    const fm_job_template_used *templates;
} fm_job_inputs_used;

typedef struct fm_job_work {
    const fm_complex_job *job;
    const fm_components *dictionary;
    const fm_job_files *files;
    const fm_job_options *options;
    fm_arena *arena;
    fm_job_warnings *warnings;
    fm_error *reterr;
    size_t n_byte;            /* of the files read so far */
    fm_components components; /* those of the job, with the user's */
    fm_job_inputs_used *used; /* [n_entity] */
} fm_job_work;

/* Fails at a place of the description, whose path stands before the message. */
fm_status fm_job_fail(const fm_job_work *work, const fm_job_place *place, fm_status status,
                      const char *format, ...) FM_PRINTF(4, 5);
#define fm_job_fail(work, place, status, ...)                                                      \
    fm_failed(fm_job_fail(work, place, status, __VA_ARGS__), status)

/* Gives a text of the description, or the content of its file. */
FM_MUST_USE fm_status fm_job_text_read(fm_job_work *work, const fm_job_text *text,
                                       fm_bytes *ret_bytes);
/* Completes an error within such a text: its file, or the place of the text in the description.
 * Returns the status. */
fm_status fm_job_text_failed(const fm_job_work *work, const fm_job_text *text, fm_status status);

/* Fills work->components: those that the job needs, of the user or else of the dictionary
 * (job_components.c). */
FM_MUST_USE fm_status fm_job_find_components(fm_job_work *work);

/* Makes the assembly of the job's chains (job_assembly.c). */
FM_MUST_USE fm_status fm_job_assemble(fm_job_work *work, fm_assembly *ret_assembly);

/* Reads alignments and templates: [n_entity], and keeps them in work->used (job_inputs.c). */
FM_MUST_USE fm_status fm_job_read_inputs(fm_job_work *work, fm_complex_entity_inputs **ret_inputs);

/* Lists names in the arena (job_names.c). */
FM_MUST_USE fm_status fm_job_list_names(fm_job_work *work, const fm_assembly *assembly,
                                        fm_complex_atoms *ret_atoms);

/* Adds what a sample does not have: ideal positions, names, seeds, tables (job_tables.c). */
FM_MUST_USE fm_status fm_job_list_tables(fm_job_work *work, fm_prepared_job *prepared);

#endif
