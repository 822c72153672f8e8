/* alignments.c: see alignments.h. */
#include "tests/testing/alignments.h"

#include <assert.h>
#include <string.h>

static bool wide_agrees(const fm_test_array *array, const uint16_t *deletion, size_t n_seq,
                        size_t n_col, fm_arena *arena) {
    int32_t *wide = fm_arena_alloc_array(arena, n_seq * n_col, sizeof *wide);
    assert(wide);
    for (size_t i = 0; i < n_seq * n_col; i++)
        wide[i] = deletion[i];
    return fm_test_array_agrees(array, (size_t[]){n_seq, n_col}, 2, wide,
                                n_seq * n_col * sizeof *wide);
}

static bool text_agrees(const fm_test_array *array, const char *text, size_t size) {
    return fm_test_array_agrees(array, (size_t[]){size}, 1, text, size);
}

bool fm_test_alignment_agrees(const fm_test_array *array, fm_bytes text,
                              const fm_alignment *alignment, fm_arena *arena) {
    size_t n_seq = alignment->n_seq, n_col = alignment->n_col, size = 0;
    if (strcmp(array->key, "seqs") == 0) {
        return fm_test_array_agrees(array, (size_t[]){n_seq, n_col}, 2, alignment->letters,
                                    n_seq * n_col);
    }
    if (strcmp(array->key, "deletion") == 0) {
        return wide_agrees(array, alignment->deletion, n_seq, n_col, arena);
    }
    if (strcmp(array->key, "desc") != 0) return false;
    for (size_t i = 0; i < n_seq; i++)
        size += alignment->row[i].description_bytes + 1;
    char *joined = fm_arena_alloc(arena, size);
    assert(joined);
    size = 0;
    for (size_t i = 0; i < n_seq; i++) {
        const fm_alignment_row *row = &alignment->row[i];
        if (i) joined[size++] = '\n';
        memcpy(joined + size, text.data + row->description, row->description_bytes);
        size += row->description_bytes;
    }
    return text_agrees(array, joined, size);
}

static bool species_agree(const fm_test_array *array, const fm_part_msa *part, fm_arena *arena) {
    char *joined = fm_arena_alloc(arena, part->species_end[part->n_seq - 1] + part->n_seq);
    assert(joined);
    size_t size = 0, at = 0;
    for (uint32_t i = 0; i < part->n_seq; i++) {
        if (i) joined[size++] = '\n';
        for (; at < part->species_end[i]; at++)
            joined[size++] = part->species[at];
    }
    return text_agrees(array, joined, size);
}

bool fm_test_msa_agrees(const fm_test_array *array, const fm_part_msa *part, fm_arena *arena) {
    size_t n_seq = part->n_seq, n_res = part->n_res;
    if (strcmp(array->key, "msa_species_identifiers") == 0) {
        return species_agree(array, part, arena);
    }
    if (strcmp(array->key, "deletion_matrix_int") == 0) {
        return wide_agrees(array, part->deletion_matrix, n_seq, n_res, arena);
    }
    int32_t *wide = fm_arena_alloc_array(arena, n_seq * n_res, sizeof *wide);
    assert(wide);
    if (strcmp(array->key, "num_alignments") == 0) {
        for (size_t i = 0; i < n_res; i++)
            wide[i] = (int32_t)n_seq;
        return fm_test_array_agrees(array, (size_t[]){n_res}, 1, wide, n_res * sizeof *wide);
    }
    if (strcmp(array->key, "msa") != 0) return false;
    for (size_t i = 0; i < n_seq * n_res; i++)
        wide[i] = part->msa[i];
    return fm_test_array_agrees(array, (size_t[]){n_seq, n_res}, 2, wide,
                                n_seq * n_res * sizeof *wide);
}
