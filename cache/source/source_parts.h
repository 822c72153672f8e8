/* source_parts.h: the declarations that the files of a scan share.
 *
 * A dataset is scanned in three steps: list the structures (id, path), list the alignment sets
 * (name, place), and join the two by name. Datasets are scanned one after the other. Each has its
 * own lists of structures and sets; refusals and archives belong to the whole source. */
#ifndef FM_CACHE_SOURCE_PARTS_H
#define FM_CACHE_SOURCE_PARTS_H

#include "cache/source/source.h"
#include "featurizer/complex/assembly.h"
#include "proto/base/directory.h"
#include "proto/limits.h"

/* A terminated copy in the arena; NULL when it is full. */
char *fm_source_copy(fm_arena *arena, const char *text, size_t length);
/* "folder/name" in the arena; NULL when it is full. */
char *fm_source_join(fm_arena *arena, const char *folder, const char *name);
/* True for a name that can be a chain's or an id: 1..255 bytes of UTF-8, no blanks, no control
 * bytes. Reports have one name per line, and programs read tables and pages with it. */
bool fm_source_is_good_name(const char *name, size_t length);

/* True for the file in which macOS keeps the attributes of another, "._1abc.cif". Archives made
 * there are full of them. */
bool fm_source_is_apple_double(const char *name);

/* Where the alignments of a name are: in a folder, in files of a folder that other names share, or
 * in ranges of a database. */
typedef struct fm_source_set {
    const char *name;
    const char *folder, *db;   /* paths */
    const fm_index_file *file; /* [n_file] as in fm_source_chain */
    uint32_t n_file;
    uint32_t order;        /* position in which it was found; set by fm_source_add_set */
    bool duplicate;        /* it has the alignments of another chain */
    const char *refusal;   /* NULL, or the reason why it is refused */
    bool is_unreadable;    /* the reason is an entry that cannot be read */
    const char *author_id; /* chain id in the structure; NULL = the only one. Set by the join */
} fm_source_set;

typedef struct fm_source_scanning {
    fm_arena *arena;
    fm_source_structure *structure; /* heap; sorted by key once listed */
    uint32_t n_structure, max_structure;
    fm_source_set *set; /* heap; sorted by name once listed */
    uint32_t n_set, max_set;
    fm_source_refusal *refusal; /* heap */
    uint32_t n_refusal, max_refusal;
    fm_archive **archive; /* heap */
    uint32_t n_archive, max_archive;
    const char *prefix; /* of the dataset's chains, also in refusals */
    bool is_predicted;
    const char *structures_found, *alignments_found;
} fm_source_scanning;

/* Makes room for one more element; false when memory ran out, or past FM_LIMIT_N_CHAIN. */
bool fm_source_grow(void **list, uint32_t n, uint32_t *max, size_t size);

/* Each appends to a list. FM_ERR_LIMIT when memory ran out. */
FM_MUST_USE fm_status fm_source_add_structure(fm_source_scanning *scan,
                                              const fm_source_structure *structure,
                                              fm_error *reterr);
FM_MUST_USE fm_status fm_source_add_set(fm_source_scanning *scan, const fm_source_set *set,
                                        fm_error *reterr);
FM_MUST_USE fm_status fm_source_add_refusal(fm_source_scanning *scan, fm_source_reason reason,
                                            const char *name, fm_error *reterr);

/* Lists the structures of a folder: flat, divided and in archives. *ret_n = their number.
 * FM_ERR_NOT_FOUND. */
FM_MUST_USE fm_status fm_source_take_structures(fm_source_scanning *scan, const char *folder,
                                                uint32_t *ret_n, fm_error *reterr);

/* Lists the structures of a zip archive. Errors of fm_archive_open. */
FM_MUST_USE fm_status fm_source_take_archive(fm_source_scanning *scan, const char *path,
                                             uint32_t *ret_n, fm_error *reterr);

/* Lists the predicted structures of a tree <name>/pdb/x.pdb, <name>/cif/x.cif; a structure has the
 * name of its folder. *ret_n = 0 when the folder is no such tree. FM_ERR_NOT_FOUND. */
FM_MUST_USE fm_status fm_source_take_nested(fm_source_scanning *scan, const char *folder,
                                            uint32_t *ret_n, fm_error *reterr);

/* Gives each structure its key and sorts them by it. Of two with one key, the one whose id is the
 * key stays, else the first by path; the other is refused. */
FM_MUST_USE fm_status fm_source_sort_structures(fm_source_scanning *scan, fm_error *reterr);

/* The alignments in `folder`: a folder for each name, or files <name>.a3m, .sto, .hhr, or both.
 * FM_ERR_NOT_FOUND. */
FM_MUST_USE fm_status fm_source_take_tree(fm_source_scanning *scan, const char *folder,
                                          uint32_t *ret_n, fm_error *reterr);

/* Adds the entries of the given indices in `folder`, in their order. */
FM_MUST_USE fm_status fm_source_take_indices(fm_source_scanning *scan, const char *folder,
                                             const fm_name_list *indices, uint32_t *ret_n,
                                             fm_error *reterr);

/* Sorts the sets by name. Of two with one name the first stays; the other is refused unless it is a
 * duplicate or in the same place. */
FM_MUST_USE fm_status fm_source_sort_sets(fm_source_scanning *scan, fm_error *reterr);
/* The set of that name, or NULL; sets are sorted. */
const fm_source_set *fm_source_find_set(const fm_source_scanning *scan, const char *name);
/* The same, or else the set whose name differs in the case of its PDB id alone. */
const fm_source_set *fm_source_find_set_any_spelling(const fm_source_scanning *scan,
                                                     const char *name);
/* The structure of an id (not terminated), or NULL; structures are sorted. A PDB id of an
 * experimental structure is found in any case. */
fm_source_structure *fm_source_find_structure(const fm_source_scanning *scan, const char *id,
                                              size_t length);

/* Adds a set for each chain in a list of duplicates that has none, and sorts. The result depends
 * only on the text and the existing sets. */
FM_MUST_USE fm_status fm_source_take_duplicates(fm_source_scanning *scan, fm_bytes text,
                                                fm_error *reterr);

/* Reads a JSON list of input_bytes bytes: {"name": {"release_date": "YYYY-MM-DD", "resolution":
 * number, "cluster_size": number, ...}, ...}. A value of another kind counts as absent. is_ids:
 * names are ids, kept in lower case. FM_ERR_FORMAT with the place. */
FM_MUST_USE fm_status fm_source_parse_listing(fm_json_input input, uint64_t input_bytes,
                                              bool is_ids, fm_arena *arena, fm_listing *ret_listing,
                                              fm_error *reterr);
/* The same for a file. */
FM_MUST_USE fm_status fm_source_read_listing(const char *path, bool is_ids, fm_arena *arena,
                                             fm_listing *ret_listing, fm_error *reterr);
/* Finds an entry by name; NULL = not listed. */
const fm_listed *fm_listing_find(const fm_listing *listing, const char *name);

/* Reads the PDB's list of obsolete ids: lines "OBSLTE 31-JUL-94 116L 216L". Other lines, and ids
 * without a replacement, are ignored. */
FM_MUST_USE fm_status fm_source_parse_obsolete(fm_bytes text, fm_arena *arena,
                                               fm_obsolete_list *ret_list, fm_error *reterr);

/* Reads clusters of entities: a cluster per line, and in it words "1ABC_1" of an entry and its
 * entity. Of an entity in two clusters the first line counts. FM_ERR_FORMAT with the place. */
FM_MUST_USE fm_status fm_source_parse_clusters(fm_bytes text, fm_arena *arena,
                                               fm_entity_clusters *ret_clusters, fm_error *reterr);
/* Finds the cluster of an entity of a structure, by the structure's key; NULL = none. */
const uint64_t *fm_entity_clusters_find(const fm_entity_clusters *clusters, const char *id,
                                        const char *entity_id);

/* Reads an index of sequences: {"SEQUENCE": folder, ...}; a folder is a number, a string, or the
 * first of an array. FM_ERR_FORMAT with the place, FM_ERR_LIMIT. */
FM_MUST_USE fm_status fm_source_parse_sequences(fm_json_input input, uint64_t input_bytes,
                                                fm_polymer polymer, fm_arena *arena,
                                                fm_sequence_list *ret_list, fm_error *reterr);
/* The same for a file. */
FM_MUST_USE fm_status fm_source_read_sequences(const char *path, fm_polymer polymer,
                                               fm_arena *arena, fm_sequence_list *ret_list,
                                               fm_error *reterr);

/* Reads the lists of a dataset: those of the options, or those found in it. */
FM_MUST_USE fm_status fm_source_take_lists(fm_source_scanning *scan,
                                           const fm_source_options *options,
                                           fm_source_dataset *dataset, fm_error *reterr);

#endif
