/* records.h: what training draws: the chains and interfaces of assemblies, and their weights. */
#ifndef FM_COMPLEX_RECORDS_H
#define FM_COMPLEX_RECORDS_H

#include "featurizer/complex/assembly.h"

/* What a chain counts as when it is drawn. */
typedef enum fm_record_kind {
    FM_RECORD_PROTEIN, /* of any handedness */
    FM_RECORD_NUCLEIC,
    FM_RECORD_LIGAND,
    FM_RECORD_IONS, /* never drawn */
    FM_N_RECORD_KIND,
} fm_record_kind;

/* Returns "prot", "nuc", "ligand" or "ions". */
const char *fm_record_kind_name(fm_record_kind kind);

typedef struct fm_record_options {
    /* Ions are the chains of glycans, and proteins of lists of clusters share one, as in the
     * reference without a list. By default ions are chains of one atom, and such a protein's
     * cluster is its sequence. */
    bool compat_protenix;
} fm_record_options;

/* A chain, or a pair of chains that touch. */
typedef struct fm_complex_record {
    bool is_interface;
    uint32_t chain[2];     /* of the assembly; the second is 0 where there is none */
    const char *entity[2]; /* ids; the second is "" where there is none */
    uint8_t kind[2];       /* fm_record_kind */
    const char *side[2];   /* cluster of each chain; the second is "" where there is none */
    const char *cluster;   /* of an interface: both, sorted and joined by ":" */
} fm_complex_record;

/* Returns whether lists of clusters have such an entity: a polypeptide(L) of 10 residues or more.
 * Where a list has it, that cluster takes the place of its sequence. */
bool fm_complex_record_is_clustered(const fm_assembly_entity *entity);

/* Returns 2 beta (3 proteins + 3 nucleic acids + ligands) of a record's chains: twice the weight of
 * a record that is alone in its cluster. kind: fm_record_kind; the second counts for interfaces. */
uint32_t fm_complex_record_share(bool is_interface, const uint8_t kind[2]);

/* Lists the records of a tokenized assembly: its chains that are no copies and have a resolved
 * centre, and the first interface of every pair of entities. They are in the arena and keep texts
 * of the assembly. Returns FM_ERR_LIMIT when the arena is full. */
FM_MUST_USE fm_status fm_complex_records_list(const fm_assembly *assembly,
                                              const fm_record_options *options, fm_arena *arena,
                                              const fm_complex_record **ret_records,
                                              uint32_t *ret_n, fm_error *reterr);

/* Returns whether training draws the record: none of its chains is an ion. */
bool fm_complex_record_is_drawn(const fm_complex_record *record);

/* A record among those of all entries. */
typedef struct fm_weighted_record {
    const char *entry; /* id of the PDB */
    const fm_complex_record *record;
    uint32_t cluster_size; /* different (entry, entities) in the record's cluster */
    uint32_t n_member;     /* records of the same (entry, entities) */
    double weight;
} fm_weighted_record;

/* Fills cluster_size, n_member and weight of n records, which must be the drawn ones of all
 * entries. The arena is used for work only. Returns FM_ERR_LIMIT when it is full. */
FM_MUST_USE fm_status fm_complex_records_weigh(fm_weighted_record *rows, uint32_t n,
                                               fm_arena *arena, fm_error *reterr);

#endif
