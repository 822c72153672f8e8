/* job.h: descriptions of complexes to predict, and the prepared jobs that they become.
 *
 *     AlphaFold 3 JSON, Server JSON, Protenix JSON, Boltz YAML, FASTA
 *         -> fm_jobs_read     -> jobs: entities, copies, bonds, seeds
 *         -> fm_job_prepare   -> an assembly without coordinates, its sample and its tables
 *
 * All formats give one model. A job has entities: a polymer's letters, or a ligand's components. An
 * entity has copies, and each copy is a chain. A prepared job is a list of named arrays and the
 * names of its atoms, complete for a prediction and its files: docs/reference/jobs.md has them
 * all.
 *
 * Pure: bytes in, values in the caller's arena out. Files that a description names come through
 * fm_job_files. */
#ifndef FM_JOB_H
#define FM_JOB_H

#include "featurizer/arrays.h"
#include "featurizer/complex/assembly.h"
#include "featurizer/job/warnings.h"
#include "proto/complex_atoms.h"

/* -- the model */

typedef enum fm_job_format {
    FM_JOB_ANY, /* found by name and content */
    FM_JOB_ALPHAFOLD3,
    FM_JOB_SERVER, /* AlphaFold Server */
    FM_JOB_PROTENIX,
    FM_JOB_BOLTZ,
    FM_JOB_FASTA,
    FM_N_JOB_FORMAT,
} fm_job_format;

/* Where a value of the description is: for messages. */
typedef struct fm_job_place {
    uint64_t line, column, offset; /* as in fm_error */
    const char *path;              /* "sequences[0].protein.id"; terminated */
} fm_job_place;

/* An alignment, a structure or components: in the description, or in a file that it names. */
typedef struct fm_job_text {
    bool is_given;    /* false: the description says nothing of it */
    const char *file; /* as written, terminated; NULL: the text is in the description */
    fm_bytes bytes;   /* size 0 without a file: there is none */
    fm_job_place place;
} fm_job_text;

/* A structure, and which of its residues stands for which of the entity's. */
typedef struct fm_job_template {
    fm_job_text structure; /* mmCIF, or PDB where is_pdb */
    bool is_pdb;
    /* Residues correspond by an alignment of the sequences. Otherwise the structure has one chain,
     * and the indices say it. */
    bool is_aligned;
    const char *chain; /* is_aligned: the chain's id; NULL: the most similar one */
    uint32_t n_index;
    const uint32_t *query;    /* [n_index] from 0, in the entity's sequence */
    const uint32_t *template; /* [n_index] from 0, in the structure's sequence */
} fm_job_template;

typedef struct fm_job_entity {
    uint8_t molecule;     /* fm_molecule */
    const char *sequence; /* [n_residue] letters as written, terminated; NULL for ligands */
    uint32_t n_residue;
    const char (*components)[FM_COMPONENT_ID]; /* [n_residue] ids, padded with zeros */
    uint32_t n_copy;
    const char *const *ids; /* [n_copy] of the chains, terminated */
    fm_job_text unpaired, paired;
    uint32_t n_template;
    const fm_job_template *templates;
    /* The formats that search databases: without an alignment the chain is refused. */
    bool needs_alignment;
    const char *description; /* terminated; NULL: none */
    fm_job_place place;
} fm_job_entity;

typedef struct fm_job_end {
    uint32_t entity, copy, residue; /* from 0 */
    char atom[FM_COMPONENT_NAME];   /* padded with zeros */
    fm_job_place place;
} fm_job_end;

typedef struct fm_job_bond {
    fm_job_end a, b;
} fm_job_bond;

typedef struct fm_complex_job {
    const char *name;   /* as written, terminated */
    const char *folder; /* the name as a file's name; terminated */
    uint8_t format;     /* fm_job_format */
    uint32_t n_seed, n_entity, n_bond, n_user, n_chain;
    const uint32_t *seeds; /* [n_seed], at least 1 */
    const fm_job_entity *entities;
    const fm_job_bond *bonds;
    const fm_job_text *users; /* [n_user] mmCIF text of components that the user gives */
    /* Why the job cannot be read, where a description has others; NULL: it was read. Of a refused
     * job only the name is valid, "" if it has none. */
    const fm_error *refused;
} fm_complex_job;

typedef struct fm_jobs {
    uint32_t n;
    const fm_complex_job *jobs;
} fm_jobs;

/* Reads all jobs of a description. `name` is the file's name: its ending tells YAML, and it names
 * jobs that have no name. The text may be freed only after the jobs. Of several jobs, one that is
 * wrong is refused, and the others are read. Returns FM_ERR_FORMAT with
 * line, column and the path of the value, FM_ERR_DATA for values that contradict each other,
 * FM_ERR_UNSUPPORTED for what foldmill cannot predict, and FM_ERR_LIMIT. */
FM_MUST_USE fm_status fm_jobs_read(fm_bytes text, const char *name, fm_job_format format,
                                   fm_arena *arena, fm_job_warnings *warnings, fm_jobs *ret_jobs,
                                   fm_error *reterr);

/* Returns the format of that name, as --format takes it; FM_N_JOB_FORMAT for other names. */
fm_job_format fm_job_format_of_name(const char *name);
/* Returns the name of a format for people: "AlphaFold 3 JSON". */
const char *fm_job_format_title(fm_job_format format);

/* -- preparing */

/* Reads a file that a description names, unpacked, into the arena. NULL: descriptions must not name
 * files. */
typedef struct fm_job_files {
    void *context;
    fm_status (*read)(void *context, const char *file, fm_arena *arena, fm_bytes *ret_bytes,
                      fm_error *reterr);
} fm_job_files;

typedef struct fm_job_options {
    bool compat_protenix;    /* the reference's result (Protenix 3248f8e), with its quirks */
    bool is_single_sequence; /* chains without an alignment are their own only row */
    uint32_t max_row;        /* rows of the MSA; AlphaFold 3: 16,384 */
    uint32_t n_template;     /* AlphaFold 3: 4 */
    uint32_t max_token;      /* 0: FM_LIMIT_N_JOB_TOKEN */
    /* Where reference conformers are placed, by ref_space_uid: R (p - mean + t). NULL: at their
     * means, as predictions want them. */
    uint32_t n_placement;
    const double (*translations)[3];
    const double (*rotations)[3][3];
} fm_job_options;

enum { FM_PREPARED_ARRAYS = 64 };

typedef struct fm_prepared_job {
    fm_assembly assembly;   /* no atom is resolved */
    fm_complex_atoms names; /* a file has them behind the arrays: fm_complex_atoms_append */
    size_t n_array;
    fm_array arrays[FM_PREPARED_ARRAYS]; /* the sample and the tables */
} fm_prepared_job;

/* Makes a job's assembly and its arrays. The dictionary and the job must live as long as the
 * result. Returns FM_ERR_NOT_FOUND for a component that the dictionary does not have, FM_ERR_DATA,
 * FM_ERR_UNSUPPORTED, FM_ERR_LIMIT, and the errors of files. */
FM_MUST_USE fm_status fm_job_prepare(const fm_complex_job *job, const fm_components *dictionary,
                                     const fm_job_files *files, const fm_job_options *options,
                                     fm_arena *arena, fm_job_warnings *warnings,
                                     fm_prepared_job *ret_prepared, fm_error *reterr);

#endif
