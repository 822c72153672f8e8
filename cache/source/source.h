/* source.h: finds the raw inputs of a dataset: structure files, alignments, and the chains they
 * make.
 *
 * A source is one or more datasets. A dataset is a list of structures, each with its chains, each
 * chain with its alignment files. Structures are sorted by key and chains by name, so the order of
 * a directory never matters. A scan does not list the folders of single chains (fm_source_files
 * does), so that a dataset of hundreds of thousands of folders is scanned quickly. Symbolic links
 * are followed. If an entry that a chain needs is no file, that chain is refused. If it is one that
 * the scan itself needs (a folder of the layout, a list), the scan ends. Memory is the caller's
 * arena, except for open archives (fm_source_close). Inputs that do not fit together are refused
 * with a reason, and the scan continues.
 *
 * fm_source_scan recognises the layout of a dataset (docs/reference/inputs.md, section 11).
 * Structures, alignments, hits and text lists may be compressed: .gz, .xz or .zst.
 *
 *     structures   DATASET/mmcifs (data, pdb_mmcif, ...)/<id>.cif, <id>.pdb, also divided:
 *                  ab/1abc.cif.gz, and in zip archives: pdb_mmcif.zip. A PDB id may be in upper or
 *                  lower case.
 *     alignments   a folder for each chain: flat (OpenFold, AlphaFold), or with a3m/ and hhr/
 *                  (RODA); or files named as chains: <name>.a3m, .sto, .hhr (ColabFold); or both
 *     alignment_db *.db with a sharded or legacy *.index
 *     uniclust30   <name>/{a3m,pdb}/: predicted structures with their alignments (RODA)
 *     duplicates   duplicate_pdb_chains.txt: chains that share the alignments of another
 *     lists        chain_data_cache.json, mmcif_cache.json, obsolete.dat,
 *                  clusters-by-entity-40.txt
 *     sequences    seq_to_pdb_index.json: folders of alignments of complexes' entities (Protenix)
 */
#ifndef FM_CACHE_SOURCE_H
#define FM_CACHE_SOURCE_H

#include "cache/source/alignment_index.h"
#include "cache/source/archive.h"
#include "featurizer/query.h"
#include "proto/base/arena.h"
#include "proto/base/bytes.h"
#include "proto/base/hash.h"
#include "proto/base/status.h"
#include "proto/limits.h"
#include "proto/record.h"

typedef struct fm_source_chain {
    /* "<dataset>:" (if named) and "<id>_<chain>", or "<id>" of a prediction. */
    const char *name;
    const char *author_id; /* chain id in the structure; NULL = its only chain */
    const char *folder;    /* folder of its alignments; NULL = in a database, or none */
    const char *db;        /* path of the database; NULL = in a folder, or none */
    /* [n_file] its ranges of the database, or its files of a folder that many chains share;
     * n_file = 0: the whole folder is the chain's. */
    const fm_index_file *file;
    uint32_t n_file;
    const char *refusal; /* NULL, or the reason why the chain is refused before it is read */
    bool is_unreadable;  /* the reason is that an entry cannot be read: FM_ERR_IO */
} fm_source_chain;

typedef struct fm_source_structure {
    const char *id;        /* as the file's name spells it */
    const char *key;       /* by which it is found: a PDB id in lower case, any other id as it is */
    const char *path;      /* path of the file, or "<archive>/<its name there>" */
    fm_archive *archive;   /* NULL, or the archive that holds it */
    uint64_t entry;        /* entry of the archive */
    bool is_pdb;           /* a PDB file, else mmCIF */
    fm_query_format query; /* the file has a sequence and no structure; 0: it has a structure */
    bool is_nested;        /* it is in the folder of its alignments */
    uint32_t dataset;      /* position in fm_source.dataset */
    uint32_t n_chain;      /* those with alignments; often 0 */
    const fm_source_chain *chain;
} fm_source_structure;

typedef enum fm_source_reason {
    FM_SOURCE_NO_STRUCTURE,  /* alignments of a chain without its structure */
    FM_SOURCE_NO_ALIGNMENTS, /* a structure without alignments for any chain */
    FM_SOURCE_BAD_NAME,      /* a name that no chain can have */
    FM_SOURCE_TWICE,         /* a second file of one structure */
    FM_SOURCE_TWO_ENTRIES,   /* alignments that two indices have, in different places */
    FM_SOURCE_TWO_SETS, /* alignments of a chain that has some, under another name or in files */
    /* An entry that is no file and no folder, or cannot be looked at, and that no chain is known
     * to need. */
    FM_SOURCE_UNREADABLE,
    FM_N_SOURCE_REASON
} fm_source_reason;

/* "alignments without a structure", ... */
const char *fm_source_reason_text(fm_source_reason reason);

typedef struct fm_source_refusal {
    fm_source_reason reason;
    const char *name; /* name of the file or folder; control bytes replaced */
} fm_source_refusal;

/* What a list of the dataset says about a chain or an id. */
typedef struct fm_listed {
    const char *name;
    char release_date[FM_RELEASE_DATE]; /* "" = unknown */
    float resolution;                   /* Å; 0 = unknown, or none */
    uint32_t cluster_size;              /* 0 = unknown */
} fm_listed;

typedef struct fm_listing {
    const char *path; /* NULL = no such list */
    uint32_t n;
    const fm_listed *listed; /* [n] sorted by name */
} fm_listing;

/* A PDB id that another one replaced. Ids are in lower case, terminated. */
typedef struct fm_obsolete {
    char id[5], successor[5];
    char last[5];   /* the last of the replacements */
    bool is_circle; /* the replacements lead back to an earlier id */
} fm_obsolete;

typedef struct fm_obsolete_list {
    const char *path; /* NULL = no such list */
    uint32_t n;
    fm_obsolete *entry; /* [n] sorted by id */
} fm_obsolete_list;

/* A protein of an entry, "1abc_1", with the PDB id in lower case. */
typedef struct fm_listed_entity {
    const char *name;
    uint64_t cluster; /* XXH3 of the name of its cluster's first member, spelt as here */
} fm_listed_entity;

typedef struct fm_entity_clusters {
    const char *path; /* NULL = no such list */
    uint32_t n;
    const fm_listed_entity *entity; /* [n] sorted by name */
} fm_entity_clusters;

/* Folders of alignments by sequence, as Protenix has them. */
typedef struct fm_listed_sequence {
    fm_sha256 sequence; /* fm_entity_sequence_hash */
    const char *name;   /* of the folder */
} fm_listed_sequence;

typedef struct fm_sequence_list {
    const char *path;   /* of the index; NULL = no such list */
    const char *folder; /* that has the folders */
    uint32_t n;
    const fm_listed_sequence *entry; /* [n] sorted by sequence */
} fm_sequence_list;

/* The name of the folder of a sequence, borrowed; NULL = none. */
const char *fm_sequence_list_find(const fm_sequence_list *list, const fm_sha256 *sequence);

/* A set of structures of one kind, with their alignments. */
typedef struct fm_source_dataset {
    const char *name;   /* "" = none; chain names then have no prefix */
    const char *prefix; /* of the chains' names: "" or "<name>:" */
    /* Of its folder, without symbolic links where it can be resolved; one line; NULL = not known
     * (fm_source_of_items). */
    const char *path;
    bool is_predicted; /* its structures are predictions */
    uint32_t first_structure, n_structure, n_chain;
    uint32_t n_duplicate;         /* chains that use the alignments of another */
    const char *structures_found; /* the layout that was recognised, in words, with the path */
    const char *alignments_found;
    fm_listing chain_data;              /* chain_data_cache.json, by chain */
    fm_listing dates;                   /* mmcif_cache.json, by id in lower case */
    fm_obsolete_list obsolete;          /* obsolete.dat */
    fm_entity_clusters entity_clusters; /* clusters-by-entity-40.txt */
    fm_sequence_list proteins, rna;     /* seq_to_pdb_index.json, rna_sequence_to_pdb_chains.json */
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
    const char *name;  /* of one dataset among several; NULL = none */
    bool is_predicted; /* structures are predictions; those in PDB files always are */
    /* NULL = look for it in the dataset: */
    const char *structures; /* folder, or a zip archive */
    const char *alignments; /* folder, or one .index file */
    const char *duplicates; /* file as duplicate_pdb_chains.txt */
    /* Files as chain_data_cache.json, mmcif_cache.json, obsolete.dat. */
    const char *chain_data, *mmcif_cache, *obsolete;
    const char *entity_clusters; /* file as clusters-by-entity-40.txt */
} fm_source_options;

/* Scans n datasets. FM_ERR_NOT_FOUND when one has no folder of structures; a dataset without
 * alignments is fine. FM_ERR_FORMAT for an index that is not JSON. When an only dataset has no
 * name, its uniclust30/ becomes a second dataset, of that name, of predictions. Each of several
 * needs a name. FM_ERR_USAGE for two equal names, or a name that is not 1 to 32 of A-Z a-z 0-9 . _
 * - */
FM_MUST_USE fm_status fm_source_scan(const fm_source_options *options, size_t n, fm_arena *arena,
                                     fm_source *ret_source, fm_error *reterr);

/* Chains without structures, to be predicted. */
typedef struct fm_source_queries {
    const char *const *path; /* [n] FASTA files or alignments; their names name the chains */
    uint32_t n;
    const char *alignments; /* folder of the FASTA files' alignments; NULL = beside each file */
    const char *templates;  /* folder or zip archive of mmCIF files; NULL = none */
    bool single_sequence;   /* ignore all alignments and hits */
} fm_source_queries;

/* Opens the source of such chains. An alignment NAME.a3m or NAME.sto is the chain NAME, and
 * NAME.hhr beside it has its template hits. The alignments of NAME.fasta are in the folder
 * alignments/NAME, NAME or in files alignments/NAME.a3m, NAME.a3m (.sto, .hhr) beside it. A chain
 * without alignments is refused, unless single_sequence. FM_ERR_USAGE for a file of another kind, a
 * name that no chain can have, or two files of one name; FM_ERR_NOT_FOUND when the templates do not
 * exist. */
FM_MUST_USE fm_status fm_source_of_queries(const fm_source_queries *queries, fm_arena *arena,
                                           fm_source *ret_source, fm_error *reterr);

/* The source of a shared job, of which only the names of its items are known: "<chain>", or "<id>/"
 * for all chains of a structure. It tells which datasets, chains and structures there are; nothing
 * of it can be read. Names are borrowed. FM_ERR_LIMIT. */
FM_MUST_USE fm_status fm_source_of_items(const char *const *item, uint32_t n_item, fm_arena *arena,
                                         fm_source *ret_source, fm_error *reterr);

/* Closes the archives; the arena's memory stays valid. */
void fm_source_close(fm_source *source);

/* The structure that a template hit with this id (in lower case) means: that of the first dataset
 * of experimental structures that has it as mmCIF. NULL = none. */
const fm_source_structure *fm_source_find_template(const fm_source *source, const char *id);

/* True when a structure has a complex: an experimental one in an mmCIF file. */
bool fm_source_has_complex(const fm_source *source, const fm_source_structure *structure);

enum { FM_SOURCE_COMPLEX_BYTES = FM_SOURCE_DATASET_BYTES + FM_LIMIT_NAME_BYTES + 2 };

/* Writes the name of a structure's complex: its key behind the prefix of its dataset. */
void fm_source_name_complex(const fm_source *source, const fm_source_structure *structure,
                            char out[FM_SOURCE_COMPLEX_BYTES]);

/* True when the dataset of a chain's name has the structure that the name begins with. */
bool fm_source_has_structure(const fm_source *source, const char *chain);

/* What the lists say about an id, in lower case; the first dataset with an answer gives it. The
 * listed date of the id, NULL = not listed; the last of the ids that replaced it, NULL = none.
 * Results are borrowed. */
const char *fm_source_listed_date(const fm_source *source, const char *id);
const char *fm_source_successor(const fm_source *source, const char *id);

/* What the list of a chain's own dataset says about it, by its name in the source; NULL = nothing.
 */
const fm_listed *fm_source_listed_chain(const fm_source *source, const char *name);

/* The cluster that the list of a complex's own dataset has for an entity of it, by the complex's
 * name in the source and its label_entity_id; NULL = none. */
const uint64_t *fm_source_entity_cluster(const fm_source *source, const char *name,
                                         const char *entity_id);

/* Reads a structure file, unpacked, into the arena; at most max_bytes. Errors have its path as
 * their source. Any number of threads at the same time. */
FM_MUST_USE fm_status fm_source_read_structure(const fm_source_structure *structure,
                                               size_t max_bytes, fm_arena *arena,
                                               fm_bytes *ret_text, fm_error *reterr);

/* One alignment file of a chain. */
typedef struct fm_source_file {
    const char *name; /* without folders and without .gz, .xz, .zst */
    const char *path; /* path of the file, or of the database that holds it */
    uint64_t offset;  /* in the database */
    uint64_t bytes;   /* UINT64_MAX = the whole file */
} fm_source_file;

/* The files of a chain, sorted by name, one for each name: of "x" and "x.gz" the former. Files that
 * are no alignments are included. FM_ERR_IO, FM_ERR_LIMIT. */
FM_MUST_USE fm_status fm_source_files(const fm_source_chain *chain, fm_arena *arena,
                                      uint32_t *ret_n, const fm_source_file **ret_files,
                                      fm_error *reterr);

/* True for the name of a list of template hits: *.hhr, and what hmmsearch writes: hmm_output.sto
 * (AlphaFold), pdb_hits.sto (AlphaFold-Multimer, AlphaPulldown). */
bool fm_source_is_search(const char *name);

/* True for the name of a file that a chain is built from, compressed or not: an alignment, or a
 * list of template hits. */
bool fm_source_is_wanted(const char *name);

/* Reads a file, unpacked, into the arena; at most max_bytes. Errors have its path as their source.
 * FM_ERR_LIMIT, FM_ERR_CORRUPT, FM_ERR_IO. */
FM_MUST_USE fm_status fm_source_read(const fm_source_file *file, size_t max_bytes, fm_arena *arena,
                                     fm_bytes *ret_content, fm_error *reterr);

#endif
