/* complex.h: a complex as a sampler takes it: the assembly, and what its entities bring along.
 *
 *     mmCIF text + components      -> fm_assembly_read      -> assembly part
 *     alignments, template hits    -> fm_features_msa, ...  -> msa and hits parts of each entity
 *     parts + components           -> fm_complex            -> crops and samples
 *
 * A cache keeps the parts (proto/record_complex.h), and cache/export/complex_load.h makes an
 * fm_complex of them. */
#ifndef FM_COMPLEX_COMPLEX_H
#define FM_COMPLEX_COMPLEX_H

#include "featurizer/complex/sequence_rows.h"
#include "proto/record_complex.h"

/* What an entity has beside its sequence. Hits name their structures by content, as those of a
 * chain do: fm_templates_rank, fm_templates_choose and fm_templates_featurize take them. */
typedef struct fm_complex_entity {
    const fm_sequence_rows *paired;   /* rows that may be paired; NULL: its sequence alone */
    const fm_sequence_rows *unpaired; /* all rows; NULL: its sequence alone */
    const fm_part_hits *hits;         /* columns are those of the sequence; NULL: none */
} fm_complex_entity;

typedef struct fm_complex {
    const char *name; /* of the entry, terminated */
    fm_assembly assembly;
    const fm_complex_entity *entities; /* [assembly.n_entity] */
} fm_complex;

/* Makes the assembly part of an assembly that fm_assembly_read has read (its origin is not NULL).
 * `components`: the hash of the set that it was read with. Arrays are in the arena or borrowed from
 * the assembly. Returns FM_ERR_LIMIT when the arena is full. */
FM_MUST_USE fm_status fm_assembly_pack(const fm_assembly *assembly, const fm_sha256 *components,
                                       fm_arena *arena, fm_part_assembly *ret_part,
                                       fm_error *reterr);

/* Makes the assembly again: equal to the packed one in every field but the origin, which is NULL.
 * It borrows texts from the part and residues' components from the set, which must be the one that
 * the part names. Everything else is in the arena. Returns FM_ERR_CORRUPT for a part that
 * contradicts the components, and FM_ERR_LIMIT. */
FM_MUST_USE fm_status fm_assembly_unpack(const fm_part_assembly *part,
                                         const fm_components *components, fm_arena *arena,
                                         fm_assembly *ret_assembly, fm_error *reterr);

/* What the rows of an alignment file are for, by the name of the file. */
typedef enum fm_entity_rows {
    FM_ENTITY_ROWS_ALL,    /* what a chain's msa is made of, too */
    FM_ENTITY_ROWS_PAIRED, /* uniprot_hits.sto, .a3m; pairing.a3m, uniref100_hits.a3m */
    FM_ENTITY_ROWS_NONE,
} fm_entity_rows;
fm_entity_rows fm_entity_rows_of_name(const char *name);

/* Whether alignments of the entity count: it is a protein (of L residues) or RNA, of
 * FM_SHORTEST_SEARCHED residues and more. All others have their sequence as the only row. */
bool fm_entity_has_rows(const fm_assembly_entity *entity);

/* Writes a sequence in the letters of a chain: the 20, and X for all others. The letters are in the
 * arena. Returns FM_ERR_LIMIT when it is full. */
FM_MUST_USE fm_status fm_entity_letters(fm_bytes sequence, fm_arena *arena,
                                        fm_part_sequence *ret_sequence, fm_error *reterr);

/* Computes what stands for an entity's sequence in keys: of a protein (of L residues) the hash of
 * the sequence part of its letters, of others that of the sequence. Returns FM_ERR_LIMIT when the
 * arena is full. */
FM_MUST_USE fm_status fm_entity_sequence_hash(fm_bytes sequence, fm_polymer polymer,
                                              fm_arena *arena, fm_sha256 *ret_hash,
                                              fm_error *reterr);

/* Makes the msa part of rows of one kind of such an entity, from alignments in any order. All rows
 * of a protein are those of a chain of its sequence, byte for byte. In the ids of RNA T stands for
 * U, and X for what is no base. Returns what fm_msa_build returns. */
FM_MUST_USE fm_status fm_entity_msa_build(const fm_msa_input *inputs, size_t n_input,
                                          const fm_assembly_entity *entity, fm_entity_rows rows,
                                          fm_arena *arena, fm_part_msa *ret_part, fm_error *reterr);

/* Makes the rows of an entity from such a part: what fm_sequence_rows_read makes of the same files
 * in the same order, with the species that the part has. Everything is in the arena. Returns
 * FM_ERR_LIMIT when it is full. */
FM_MUST_USE fm_status fm_sequence_rows_of_msa(const fm_part_msa *msa, fm_polymer polymer,
                                              fm_arena *arena, fm_sequence_rows *ret_rows,
                                              fm_error *reterr);

#endif
