/* build_work.h: a worker of a build, for the files that make the parts of chains and complexes. */
#ifndef FM_CACHE_BUILD_WORK_H
#define FM_CACHE_BUILD_WORK_H

#include "cache/build/build_hits.h"

/* Limit of the alignment files of one chain, and of its files of template hits. */
enum { FM_BUILD_N_ALIGNMENT = 256 };

typedef struct fm_build_complex fm_build_complex;

typedef struct fm_build_work {
    fm_build_state *state;
    fm_arena structure_arena; /* text and parsed structure, for all chains of a structure */
    fm_arena chain_arena;     /* all memory of one chain, or of one entity of a complex */
    fm_build_reader reader;   /* of template structures */
    const fm_source_structure *source;
    fm_build_task task;
    fm_bytes text; /* of the structure file */
    fm_sha256 text_hash;
    fm_features_options features; /* options of the build, for structures of this dataset */
    bool parsed;                  /* either `file` or parse_error is valid */
    fm_status parse_status;
    fm_error parse_error;
    fm_structure_file file;
    fm_build_complex *complex; /* of the structure, in structure_arena; NULL = none is made */
} fm_build_work;

/* One chain while it is built, or one entity of a complex with the alignments of a chain. */
typedef struct fm_build_chain {
    const char *name, *author_id;
    const fm_source_chain *chain; /* its alignments */
    fm_build_complex *complex;    /* NULL, or whose entity it is */
    uint32_t entity;
    fm_build_result result;
    bool have_parts; /* `sequence` and, of a chain, `structure` are valid */
    fm_part_sequence sequence;
    fm_part_structure structure;
} fm_build_chain;

/* Begins the key of a stage; `flags` are the options that change its parts. */
fm_sha256_state *fm_build_begin_key(const fm_build_work *work, const char *stage, uint32_t version,
                                    uint8_t flags);
fm_sha256 fm_build_end_key(fm_sha256_state *key);
/* The key of the note that lists the protein chains of the structure. */
fm_sha256 fm_build_chains_key(const fm_build_work *work);
/* The key of rows of alignments: of a sequence, and of the names and contents of files. */
fm_sha256 fm_build_rows_key(const fm_build_work *work, const char *stage, const fm_sha256 *sequence,
                            const fm_msa_input *inputs, size_t n_input);

/* The item of the structure's complex, and of its chains without alignments; FM_BUILD_NO_ITEM
 * outside of shared builds. */
uint32_t fm_build_item_of_rest(const fm_build_work *work);

/* Gives an encoded part to the writer unless it is known, and enters it at `slot` of the result. */
FM_MUST_USE fm_status fm_build_keep_part(fm_build_work *work, fm_build_result *result, int slot,
                                         fm_part_kind kind, fm_bytes bytes, fm_error *reterr);

/* Make the msa and the hits of a chain; its sequence part is in the result. Errors name files. */
FM_MUST_USE fm_status fm_build_do_msa(fm_build_work *work, fm_build_chain *job, fm_error *reterr);
FM_MUST_USE fm_status fm_build_do_hits(fm_build_work *work, fm_build_chain *job, fm_error *reterr);

/* Reads one file of a chain into the chain's arena, and counts its bytes. */
FM_MUST_USE fm_status fm_build_read_file(fm_build_work *work, const fm_source_file *file,
                                         fm_bytes *ret_content, fm_error *reterr);
/* Adds the folder of a chain's alignments to an error that names a file or none. */
void fm_build_name_folder(const fm_build_chain *job, fm_error *error);

/* Whether the id is among the first `size` bytes of a list of ids, each with a zero byte. */
bool fm_build_is_listed(const char *ids, size_t size, const char *id);

/* -- complexes (build_complex.c) */

/* Whether the build makes a complex of the structure. */
bool fm_build_has_complex(const fm_build_state *state, const fm_source_structure *structure);

/* Makes the complex of the work's structure, whose text is read, and records its result. */
void fm_build_do_complex(fm_build_work *work);
/* Records that the complex is refused because its file cannot be read. */
void fm_build_refuse_complex(fm_build_work *work, const fm_error *error);

/* Whether alignments of that chain are of no protein, so that only the complex uses them. */
bool fm_build_is_no_protein(const fm_build_work *work, const char *author_id);

/* Parses the sequence of the entity that a job stands for. */
FM_MUST_USE fm_status fm_build_entity_sequence(fm_build_work *work, fm_build_chain *job,
                                               fm_error *reterr);

/* What the note of a complex says, and a list of clusters of its proteins. */
typedef struct fm_build_complex_note {
    fm_chain_facts facts;
    const fm_complex_row *rows; /* [n_row] in the arena */
    uint32_t n_row;
    /* Proteins that a list may have, and those among them that the dataset's list lacks. */
    uint32_t n_protein, n_unclustered;
} fm_build_complex_note;

/* Reads the note of the complex that the source calls `name`. FM_ERR_CORRUPT. */
FM_MUST_USE fm_status fm_build_read_complex_note(fm_bytes value, const fm_source *source,
                                                 const char *name, fm_arena *arena,
                                                 fm_build_complex_note *ret_note, fm_error *reterr);

/* -- components (build_components.c) */

/* Finds the set of components of the build: that of the options, or the cache's. Call it while no
 * thread runs. FM_ERR_USAGE when there is none, or several. */
FM_MUST_USE fm_status fm_build_take_components(fm_build_state *state, const fm_generation *base,
                                               fm_arena *arena, fm_error *reterr);

#endif
