/* job_read.h: what the readers of the formats share: filling the entities of one job.
 *
 * A reader opens a job with room for its entities, adds each with its copies, and closes the job.
 * Every function checks what it takes, against the limits first. */
#ifndef FM_JOB_READ_H
#define FM_JOB_READ_H

#include "featurizer/job/document.h"
#include "featurizer/job/job.h"

#include <stdio.h>

enum { FM_JOB_ID = 16 /* bytes of a chain's id with its end */ };

typedef struct fm_job_reader {
    fm_arena *arena;
    fm_error *reterr;
    fm_job_warnings *warnings;
    fm_job_format format;
    fm_complex_job job; /* the one that is open */
    fm_job_entity *entities;
    fm_job_bond *bonds;
    uint32_t max_entity, max_bond;
    uint32_t n_residue; /* of all entities */
    bool *is_modified;  /* by residue of the newest entity */
} fm_job_reader;

/* Returns where a value is; FM_ERR_LIMIT when the arena is full. */
FM_MUST_USE fm_status fm_job_place_of(const fm_job_reader *reader, const fm_value *node,
                                      fm_job_place *ret_place);

/* Opens a job of at most `max_entity` entities. */
FM_MUST_USE fm_status fm_job_open(fm_job_reader *reader, const char *name, const fm_value *at,
                                  uint32_t max_entity);
/* Checks what only the whole job shows, and returns it. */
FM_MUST_USE fm_status fm_job_close(fm_job_reader *reader, const fm_value *at,
                                   fm_complex_job *ret_job);

/* Takes a list of different integers as the seeds; with `texts` they may be in quotes. */
FM_MUST_USE fm_status fm_job_take_seeds(fm_job_reader *reader, const fm_value *list, bool texts);

/* Returns the component of a letter; of a letter that has none, the unknown one of its kind. */
const char *fm_job_component_of(fm_molecule molecule, char letter, bool *ret_is_known);
/* Whether AlphaFold 3's JSON can have an id of a chain. */
bool fm_job_is_alphafold3_id(const char *id);
/* Writes the id of the component of the i-th molfile of a job. */
static inline void fm_job_molfile_id(uint32_t i, char out[FM_COMPONENT_ID]) {
    snprintf(out, FM_COMPONENT_ID, "l%02u", i + 1);
}

/* Adds a polymer's letters as a new entity. `node` is their place. */
FM_MUST_USE fm_status fm_job_add_polymer(fm_job_reader *reader, const fm_value *node,
                                         fm_molecule molecule, const char *letters);
/* Adds a ligand of n components, whose ids follow. */
FM_MUST_USE fm_status fm_job_add_ligand(fm_job_reader *reader, const fm_value *node, uint32_t n);
FM_MUST_USE fm_status fm_job_set_component(fm_job_reader *reader, const fm_value *node, uint32_t i,
                                           const char *id);
/* Replaces the component of a residue of the newest entity; `position` counts from 1. */
FM_MUST_USE fm_status fm_job_modify(fm_job_reader *reader, const fm_value *position,
                                    const fm_value *code, const char *id);

/* Sets the copies of the newest entity: an id or a list of ids. */
FM_MUST_USE fm_status fm_job_take_ids(fm_job_reader *reader, const fm_value *node);
/* Makes n copies, whose ids fm_job_name_chains gives them. */
FM_MUST_USE fm_status fm_job_take_count(fm_job_reader *reader, const fm_value *node, uint32_t n);
/* Gives chains without an id the first free ones: A, B, ..., Z, AA, AB, ...; with `reversed` AA,
 * BA, ... */
FM_MUST_USE fm_status fm_job_name_chains(fm_job_reader *reader, bool reversed);

/* Reads a text that is in the description (`text`) or in a file that it names (`file`); either may
 * be missing or null, but not both given. */
FM_MUST_USE fm_status fm_job_take_text(fm_job_reader *reader, const fm_value *text,
                                       const fm_value *file, fm_job_text *ret_text);

/* Finds the chain of an id: its entity and copy. */
FM_MUST_USE fm_status fm_job_find_chain(const fm_job_reader *reader, const fm_value *node,
                                        fm_job_end *ret_end);
/* Takes an end of a bond from a list of a chain's id, a residue's number and an atom's name. */
FM_MUST_USE fm_status fm_job_take_end(const fm_job_reader *reader, const fm_value *node,
                                      fm_job_end *ret_end);
/* Sets residue and atom of an end whose entity is known. */
FM_MUST_USE fm_status fm_job_take_atom(const fm_job_reader *reader, const fm_value *position,
                                       const fm_value *atom, fm_job_end *end);
FM_MUST_USE fm_status fm_job_add_bond(fm_job_reader *reader, const fm_value *node,
                                      const fm_job_bond *bond);

/* Refuses a ligand that is given by SMILES, with what to do. */
FM_MUST_USE fm_status fm_job_refuse_smiles(const fm_value *node, fm_error *reterr);

/* -- the readers. Each adds all jobs of its document. */

typedef struct fm_job_list {
    fm_complex_job *jobs; /* room for all */
    uint32_t n;
} fm_job_list;

FM_MUST_USE fm_status fm_job_read_alphafold3(fm_job_reader *reader, const fm_value *root,
                                             fm_job_list *jobs);
FM_MUST_USE fm_status fm_job_read_list(fm_job_reader *reader, const fm_value *root,
                                       fm_job_list *jobs);
/* `name`: of the job, which the format does not have. */
FM_MUST_USE fm_status fm_job_read_boltz(fm_job_reader *reader, const fm_value *root,
                                        const char *name, fm_job_list *jobs);
FM_MUST_USE fm_status fm_job_read_fasta(fm_job_reader *reader, fm_bytes text, const char *name,
                                        fm_job_list *jobs);
/* Whether a list of jobs is AlphaFold Server's and not Protenix'. */
bool fm_job_list_is_server(const fm_value *root);

#endif
