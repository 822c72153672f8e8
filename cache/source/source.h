/* source.h: where raw inputs lie: which structure files and which alignments make which chains.
 *
 * A source is one or more datasets, each a list of structures, each with its chains, each with its
 * alignment files: those of a folder, or ranges of a database. Structures are sorted by id, chains
 * by name, so the order of a directory never matters. Listing a chain's folder is left to whoever
 * reads it (fm_source_files), so that scanning hundreds of thousands of folders stays cheap.
 * Symbolic links are followed. Everything lies in the caller's arena, but for open archives
 * (fm_source_close). What does not fit together is reported, never fatal.
 *
 * fm_source_scan finds out by itself how a dataset lies (docs/formats/inputs.md, section 11):
 *
 *     structures   DATASET/mmcifs (data, pdb_mmcif, ...)/<id>.cif[.gz], <id>.pdb[.gz], also
 *                  divided: ab/1abc.cif.gz, and in zip archives: pdb_mmcif.zip
 *     alignments   a folder for each chain, flat (OpenFold, AlphaFold) or with a3m/ and hhr/ (RODA)
 *     alignment_db *.db with a sharded or legacy *.index
 *     uniclust30   <name>/{a3m,pdb}/: predicted structures with their alignments (RODA)
 *     duplicates   duplicate_pdb_chains.txt: chains that share the alignments of another
 *     lists        chain_data_cache.json, mmcif_cache.json, obsolete.dat */
#ifndef FM_CACHE_SOURCE_H
#define FM_CACHE_SOURCE_H

#include "cache/source/alignment_index.h"
#include "cache/source/archive.h"
#include "proto/base/arena.h"
#include "proto/base/bytes.h"
#include "proto/base/status.h"
#include "proto/record.h"

typedef struct fm_source_chain {
    const char *name;          /* "<id>_<chain>", "<id>" of a prediction; "<dataset>:" before it */
    const char *author_id;     /* in its structure; NULL = the only chain there */
    const char *folder;        /* of its alignments; NULL = in a database, or none */
    const char *db;            /* path of the database; NULL = in a folder, or none */
    const fm_index_file *file; /* [n_file] its ranges of the database, or its files of a folder that
                                  many chains share; n_file = 0: the whole folder is the chain's */
    uint32_t n_file;
    const char *refusal; /* NULL, or why the chain is refused before anything of it is read */
} fm_source_chain;

typedef struct fm_source_structure {
    const char *id;      /* as the file's name spells it */
    const char *key;     /* by which it is found: a PDB id in lower case, any other id as it is */
    const char *path;    /* of the file, or "<archive>/<its name there>" */
    fm_archive *archive; /* NULL, or where it lies */
    uint64_t entry;      /* of the archive */
    bool is_pdb;         /* a PDB file, else mmCIF */
    bool is_nested;      /* it lies in the folder of its alignments */
    uint32_t dataset;    /* position in the source's */
    uint32_t n_chain;    /* those with alignments; 0 is usual */
    const fm_source_chain *chain;
} fm_source_structure;

typedef enum fm_source_reason {
    FM_SOURCE_NO_STRUCTURE,  /* alignments of a chain whose structure is not there */
    FM_SOURCE_NO_ALIGNMENTS, /* a structure without alignments for any chain */
    FM_SOURCE_BAD_NAME,      /* a name that cannot be a chain's */
    FM_SOURCE_TWICE,         /* a structure that is there twice, as .cif and .cif.gz */
    FM_SOURCE_TWO_ENTRIES,   /* alignments that two indices have, in different places */
    FM_SOURCE_TWO_SETS, /* alignments under two names of one chain, or in a folder and in files */
    FM_N_SOURCE_REASON
} fm_source_reason;

/* "alignments without a structure", ... */
const char *fm_source_reason_text(fm_source_reason reason);

typedef struct fm_source_refusal {
    fm_source_reason reason;
    const char *name; /* file or folder name; control bytes replaced */
} fm_source_refusal;

/* What a list of the dataset says of a chain or an id. */
typedef struct fm_listed {
    const char *name;
    char release_date[FM_RELEASE_DATE]; /* "" = not said */
    float resolution;                   /* Å; 0 = not said, or none */
    uint32_t cluster_size;              /* 0 = not said */
} fm_listed;

typedef struct fm_listing {
    const char *path; /* NULL = there is no such list */
    uint32_t n;
    const fm_listed *listed; /* [n] sorted by name */
} fm_listing;

/* An id of the PDB that another one replaced. Ids are in lower case, terminated. */
typedef struct fm_obsolete {
    char id[5], successor[5];
    char last[5];   /* at the end of the chain of replacements */
    bool is_circle; /* there is no end */
} fm_obsolete;

typedef struct fm_obsolete_list {
    const char *path; /* NULL = there is no such list */
    uint32_t n;
    fm_obsolete *entry; /* [n] sorted by id */
} fm_obsolete_list;

/* A set of structures of one kind, with their alignments. */
typedef struct fm_source_dataset {
    const char *name;   /* "" = it has none: its chains are called as they are */
    const char *prefix; /* of its chains' names: "" or "<name>:" */
    bool is_predicted;  /* its structures are predictions */
    uint32_t first_structure, n_structure, n_chain;
    uint32_t n_duplicate;         /* of the chains: those with the alignments of another */
    const char *structures_found; /* what was recognised, in words, with the path */
    const char *alignments_found;
    fm_listing chain_data;     /* chain_data_cache.json, by chain */
    fm_listing dates;          /* mmcif_cache.json, by id in lower case */
    fm_obsolete_list obsolete; /* obsolete.dat */
} fm_source_dataset;

enum { FM_SOURCE_N_DATASET = 64, FM_SOURCE_DATASET_BYTES = 32 };

typedef struct fm_source {
    uint32_t n_dataset, n_structure, n_chain, n_refusal;
    uint32_t n_duplicate;
    const fm_source_dataset *dataset;     /* [n_dataset] in the order given */
    const fm_source_structure *structure; /* [n_structure] by dataset, sorted by id */
    const fm_source_refusal *refusal;     /* [n_refusal] */
    uint32_t n_archive;
    fm_archive *const *archive; /* [n_archive] open */
} fm_source;

typedef struct fm_source_options {
    const char *dataset;
    const char *name;  /* of a dataset among several; NULL = none */
    bool is_predicted; /* its structures are predictions; those in PDB files always are */
    /* Each NULL = looked for in the dataset: */
    const char *structures;                          /* folder, or a zip archive */
    const char *alignments;                          /* folder, or one .index file */
    const char *duplicates;                          /* file as duplicate_pdb_chains.txt */
    const char *chain_data, *mmcif_cache, *obsolete; /* files as chain_data_cache.json,
                                                        mmcif_cache.json, obsolete.dat */
} fm_source_options;

/* Scans a dataset. FM_ERR_NOT_FOUND when it has no folder of structures; a dataset without
 * alignments is fine. FM_ERR_FORMAT for an index that is no JSON. Of a dataset without a name its
 * uniclust30/ becomes a second one, of that name, of predictions. */
FM_MUST_USE fm_status fm_source_scan(const fm_source_options *options, fm_arena *arena,
                                     fm_source *ret_source, fm_error *reterr);

/* The same for `n` datasets, all of which need names if there are several; FM_ERR_USAGE for two of
 * one name, or a name that is none: 1 to 32 of A-Z a-z 0-9 . _ - */
FM_MUST_USE fm_status fm_source_scan_all(const fm_source_options *options, size_t n,
                                         fm_arena *arena, fm_source *ret_source, fm_error *reterr);

/* Closes the archives; the arena's memory stays. */
void fm_source_close(fm_source *source);

/* The structure of that id that may be a template: of the first dataset of experimental structures
 * that has one as mmCIF. NULL = none. */
const fm_source_structure *fm_source_find_template(const fm_source *source, const char *id);

/* What lists say; the first dataset that has an answer gives it. The date of an id, NULL = not
 * listed; the id at the end of the replacements of an obsolete one, NULL = none. Ids are in lower
 * case; results are borrowed. */
const char *fm_source_listed_date(const fm_source *source, const char *id);
const char *fm_source_successor(const fm_source *source, const char *id);

/* What the list of a chain's own dataset says of it, by its name in the source; NULL = nothing. */
const fm_listed *fm_source_listed_chain(const fm_source *source, const char *name);

/* A structure file's text, inflated, in the arena; at most max_bytes. Its path is the error's
 * source. Any number of threads at once. */
FM_MUST_USE fm_status fm_source_read_structure(const fm_source_structure *structure,
                                               size_t max_bytes, fm_arena *arena,
                                               fm_bytes *ret_text, fm_error *reterr);

/* One alignment file of a chain. */
typedef struct fm_source_file {
    const char *name; /* without folders and ".gz" */
    const char *path; /* of the file, or of the database that holds it */
    uint64_t offset;  /* in the database */
    uint64_t bytes;   /* UINT64_MAX = the whole file */
} fm_source_file;

/* The files of a chain, sorted by name, one for each name: of "x" and "x.gz" the former. Those that
 * are no alignments are among them. FM_ERR_IO, FM_ERR_LIMIT. */
FM_MUST_USE fm_status fm_source_files(const fm_source_chain *chain, fm_arena *arena,
                                      uint32_t *ret_n, const fm_source_file **ret_files,
                                      fm_error *reterr);

/* Is a file of that name, without ".gz", a search's list of template hits? *.hhr, hmm_output.sto.
 */
bool fm_source_is_search(const char *name);

/* A file's bytes, inflated when they are gzip, in the arena; at most max_bytes. The file's path is
 * the error's source. */
FM_MUST_USE fm_status fm_source_read(const fm_source_file *file, size_t max_bytes, fm_arena *arena,
                                     fm_bytes *ret_content, fm_error *reterr);

#endif
