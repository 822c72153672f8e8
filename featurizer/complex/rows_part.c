/* rows_part.c: the rows of an entity as msa parts, and back; see complex.h. */
#include "featurizer/complex/complex.h"
#include "proto/base/compress.h"
#include "proto/chem/residue.h"

#include <string.h>

fm_entity_rows fm_entity_rows_of_name(const char *name) {
    static const char *const paired[] = {"uniprot_hits.sto", "uniprot_hits.a3m", "pairing.a3m",
                                         "uniref100_hits.a3m"};
    size_t n;
    (void)fm_compression_of_name(name, &n);
    for (size_t i = 0; i < sizeof paired / sizeof paired[0]; i++)
        if (n == strlen(paired[i]) && memcmp(name, paired[i], n) == 0) return FM_ENTITY_ROWS_PAIRED;
    return fm_msa_format_of_name(name) ? FM_ENTITY_ROWS_ALL : FM_ENTITY_ROWS_NONE;
}

bool fm_entity_has_rows(const fm_assembly_entity *entity) {
    return (entity->polymer == FM_POLYMER_PEPTIDE_L || entity->polymer == FM_POLYMER_RNA) &&
           entity->sequence && entity->n_residue >= FM_SHORTEST_SEARCHED;
}

fm_status fm_entity_letters(fm_bytes sequence, fm_arena *arena, fm_part_sequence *ret_sequence,
                            fm_error *reterr) {
    char *letters = fm_arena_alloc(arena, sequence.size);
    if (!letters) return fm_arena_full(arena, reterr);
    for (size_t i = 0; i < sequence.size; i++) {
        char letter = (char)sequence.data[i];
        bool is_known = letter && strchr("ACDEFGHIKLMNPQRSTVWY", letter) != NULL;
        letters[i] = (char)(is_known ? letter : 'X');
    }
    *ret_sequence = (fm_part_sequence){(uint32_t)sequence.size, letters};
    return FM_OK;
}

fm_status fm_entity_sequence_hash(fm_bytes sequence, fm_polymer polymer, fm_arena *arena,
                                  fm_sha256 *ret_hash, fm_error *reterr) {
    fm_part_sequence part;
    fm_status status = FM_OK;
    if (polymer == FM_POLYMER_PEPTIDE_L) {
        status = fm_entity_letters(sequence, arena, &part, reterr);
        if (!status) status = fm_part_sequence_encode(&part, arena, &sequence, reterr);
    }
    if (!status) *ret_hash = fm_sha256_of(sequence.data, sequence.size);
    return status;
}

/* RNA in the letters of proteins. What is no letter is left for the alphabet to refuse. */
static void fill_rna_letters(uint8_t letters[256]) {
    for (int c = 0; c < 256; c++)
        letters[c] = (uint8_t)(c >= 'A' && c <= 'Z' ? 'X' : c);
    letters['A'] = 'A';
    letters['C'] = 'C';
    letters['G'] = 'G';
    letters['T'] = letters['U'] = 'T';
}

fm_status fm_entity_msa_build(const fm_msa_input *inputs, size_t n_input,
                              const fm_assembly_entity *entity, fm_entity_rows rows,
                              fm_arena *arena, fm_part_msa *ret_part, fm_error *reterr) {
    uint8_t letters[256];
    fm_msa_options options = {0};
    if (entity->polymer == FM_POLYMER_RNA) {
        fill_rna_letters(letters);
        options.letters = letters;
        options.max_file_rows = FM_LIMIT_RNA_ROWS;
    }
    if (rows == FM_ENTITY_ROWS_PAIRED) options.species = fm_sequence_species;
    const fm_bytes query = {(const uint8_t *)entity->sequence, entity->n_residue};
    return fm_msa_build(inputs, n_input, query, &options, arena, ret_part, NULL, reterr);
}

/* -- and back */

static void fill_classes(fm_polymer polymer, uint8_t class_of[FM_N_HHBLITS]) {
    for (int id = 0; id < FM_N_HHBLITS; id++) {
        char letter = fm_restype_letters[fm_restype_from_hhblits[id]];
        bool is_uracil = polymer == FM_POLYMER_RNA && letter == 'T';
        class_of[id] = fm_class_of_letter(is_uracil ? 'U' : letter, polymer);
    }
}

static void fill_columns(const fm_part_msa *msa, const uint8_t class_of[FM_N_HHBLITS],
                         uint64_t *deleted, float *profile, double *deletion_mean) {
    for (uint32_t k = 0; k < msa->n_res; k++) {
        uint32_t count[FM_N_RESTYPE32] = {0};
        for (int id = 0; id < FM_N_HHBLITS; id++)
            count[class_of[id]] += msa->profile[(size_t)k * FM_N_HHBLITS + (size_t)id];
        for (int c = 0; c < FM_N_RESTYPE32; c++)
            profile[(size_t)k * FM_N_RESTYPE32 + (size_t)c] =
                (float)((double)count[c] / msa->n_seq);
        deletion_mean[k] = (double)deleted[k] / msa->n_seq;
    }
}

fm_status fm_sequence_rows_of_msa(const fm_part_msa *msa, fm_polymer polymer, fm_arena *arena,
                                  fm_sequence_rows *ret_rows, fm_error *reterr) {
    size_t n_row = msa->n_seq, n_col = msa->n_res;
    uint8_t class_of[FM_N_HHBLITS];
    uint8_t *ids = fm_arena_alloc_array(arena, n_row, n_col);
    uint8_t *deletion = fm_arena_alloc_array(arena, n_row, n_col);
    uint64_t *hash = fm_arena_alloc_array(arena, n_row, sizeof *hash);
    fm_bytes *species = fm_arena_alloc_array(arena, n_row, sizeof *species);
    float *profile = fm_arena_alloc_array(arena, n_col, FM_N_RESTYPE32 * sizeof *profile);
    double *mean = fm_arena_alloc_array(arena, n_col, sizeof *mean);
    size_t mark = fm_arena_mark(arena);
    uint64_t *deleted = fm_arena_calloc(arena, n_col, sizeof *deleted);
    if (!ids || !deletion || !hash || !species || !profile || !mean || !deleted) {
        return fm_arena_full(arena, reterr);
    }
    fill_classes(polymer, class_of);
    for (size_t i = 0; i < n_row; i++) {
        const uint8_t *from = msa->msa + i * n_col;
        const uint16_t *gone = msa->deletion_matrix + i * n_col;
        for (size_t k = 0; k < n_col; k++) {
            ids[i * n_col + k] = class_of[from[k]];
            deletion[i * n_col + k] =
                (uint8_t)(gone[k] < FM_DELETION_LIMIT ? gone[k] : FM_DELETION_LIMIT);
            deleted[k] += gone[k];
        }
        hash[i] = fm_xxh3(ids + i * n_col, n_col);
        uint32_t start = i ? msa->species_end[i - 1] : 0;
        species[i] = (fm_bytes){(const uint8_t *)msa->species + start, msa->species_end[i] - start};
    }
    fill_columns(msa, class_of, deleted, profile, mean);
    fm_arena_rewind(arena, mark);
    *ret_rows =
        (fm_sequence_rows){msa->n_seq, msa->n_res, ids, deletion, hash, species, profile, mean};
    return FM_OK;
}
