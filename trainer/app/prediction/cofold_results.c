/* cofold_results.c: see cofold_results.h. Logits come in slabs of rows, because those of all pairs
 * would take several times the memory of everything that is kept. */
#include "trainer/app/prediction/cofold_results.h"

#include "proto/npz.h"
#include "trainer/predict/text_file.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>

static const size_t SLAB_BYTES = (size_t)64 << 20; /* of logits */
static const size_t ARENA_BYTES = (size_t)1 << 34; /* address space */

/* The work on one seed. */
typedef struct judge {
    fm_cofold *cofold;
    const fm_cofold_input *input;
    const char *folder;
    fm_arena arena;
    fm_complex_contacts contacts;
    fm_complex_pairs pairs;
    double *plddt;   /* [n_atom] 0 to 1 */
    float *position; /* [n_atom, 3] Å */
} judge;

/* Takes the logits of a head of pairs, slab by slab. */
static fm_status take_pairs(judge *j, fm_cofold_head head, fm_error *reterr) {
    const fm_complex_layout *layout = &j->input->layout;
    const size_t row = layout->n_token * (size_t)FM_COMPLEX_ERROR_BINS * sizeof(float);
    const uint32_t slab = (uint32_t)(SLAB_BYTES / row) + 1;
    for (uint32_t first = 0; first < layout->n_token; first += slab) {
        const uint32_t left = layout->n_token - first, n = left < slab ? left : slab;
        float *logits;
        size_t mark = fm_arena_mark(&j->arena);
        fm_status status = fm_cofold_logits(j->cofold, head, first, n, &j->arena, &logits, reterr);
        if (status) return status;
        if (head == FM_COFOLD_DISTANCE) {
            fm_complex_reduce_contacts(layout, logits, first, n, &j->contacts);
        } else if (head == FM_COFOLD_ALIGNED_ERROR) {
            fm_complex_reduce_pae(layout, logits, first, n, &j->pairs);
        } else {
            fm_complex_reduce_pde(layout, logits, &j->contacts, first, n, &j->pairs);
        }
        fm_arena_rewind(&j->arena, mark);
    }
    return FM_OK;
}

static fm_status take_plddt(judge *j, fm_error *reterr) {
    const uint32_t n = j->input->layout.n_atom;
    float *logits;
    size_t mark = fm_arena_mark(&j->arena);
    fm_status status =
        fm_cofold_logits(j->cofold, FM_COFOLD_PLDDT, 0, n, &j->arena, &logits, reterr);
    if (!status) {
        fm_complex_reduce_plddt(logits, n, (uint32_t)fm_cofold_bins(j->cofold, FM_COFOLD_PLDDT),
                                j->plddt);
    }
    fm_arena_rewind(&j->arena, mark);
    return status;
}

/* -- the archive of a structure */

typedef struct archive_row {
    const char *name;
    uint32_t rank;
    uint64_t shape[3];
    const float *data;
} archive_row;

static fm_status write_archive(judge *j, const fm_cofold_result *result, const float *plddt,
                               const float *contacts, fm_error *reterr) {
    const fm_complex_layout *layout = &j->input->layout;
    const uint64_t n = layout->n_token, n_atom = layout->n_atom;
    const archive_row row[] = {{"position", 2, {n_atom, 3}, j->position},
                               {"plddt", 1, {n_atom}, plddt},
                               {"pae", 2, {n, n}, j->pairs.pae},
                               {"pde", 2, {n, n}, j->pairs.pde},
                               {"contact_probability", 2, {n, n}, contacts}};
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/seed-%u_sample-%u.npz", j->folder, result->seed,
             result->sample);
    fm_npz_writer *writer;
    fm_status status = fm_npz_writer_create(path, &writer, reterr);
    if (status) return status;
    for (size_t i = 0; i < sizeof row / sizeof row[0] && !status; i++)
        status = fm_npz_writer_append(writer, row[i].name, "<f4", row[i].rank, row[i].shape,
                                      row[i].data, reterr);
    if (!status) return fm_npz_writer_finish(writer, reterr);
    fm_npz_writer_destroy(writer);
    return status;
}

static fm_status write_structure(judge *j, const fm_cofold_result *result, fm_error *reterr) {
    const fm_complex_layout *layout = &j->input->layout;
    const size_t n = layout->n_token, n_atom = layout->n_atom;
    size_t mark = fm_arena_mark(&j->arena);
    float *plddt = fm_arena_alloc_array(&j->arena, n_atom, sizeof *plddt);
    float *contacts = fm_arena_alloc_array(&j->arena, n * n, sizeof *contacts);
    fm_status status = FM_OK;
    if (!plddt || !contacts) status = fm_arena_full(&j->arena, reterr);
    for (size_t l = 0; l < n_atom && !status; l++)
        plddt[l] = (float)(100 * j->plddt[l]);
    for (size_t i = 0; i < n * n && !status; i++)
        contacts[i] = (float)j->contacts.probability[i];
    if (!status) status = write_archive(j, result, plddt, contacts, reterr);
    fm_arena_rewind(&j->arena, mark);
    return status;
}

/* -- all structures of a seed */

static fm_status judge_one(judge *j, fm_cofold_result *result, fm_error *reterr) {
    const fm_complex_layout *layout = &j->input->layout;
    const double *x = fm_cofold_structure(j->cofold, result->sample);
    for (size_t i = 0; i < (size_t)3 * layout->n_atom; i++)
        j->position[i] = (float)x[i];
    fm_cofold_judge(j->cofold, result->sample);
    fm_status status = take_plddt(j, reterr);
    if (!status) status = take_pairs(j, FM_COFOLD_ALIGNED_ERROR, reterr);
    if (!status) status = take_pairs(j, FM_COFOLD_DISTANCE_ERROR, reterr);
    if (status) return status;
    size_t mark = fm_arena_mark(&j->arena);
    fm_complex_scores scores;
    status =
        fm_complex_score(layout, &j->pairs, j->plddt, j->position, 0, &j->arena, &scores, reterr);
    if (!status) {
        result->ptm = scores.ptm;
        result->iptm = scores.iptm;
        result->mean_plddt = scores.mean_plddt;
        result->ranking_score = scores.ranking_score;
        result->has_clash = scores.has_clash;
        status = write_structure(j, result, reterr);
    }
    fm_arena_rewind(&j->arena, mark);
    return status;
}

static fm_status prepare(judge *j, fm_error *reterr) {
    const fm_complex_layout *layout = &j->input->layout;
    fm_status status = fm_arena_init(&j->arena, ARENA_BYTES, reterr);
    if (!status) status = fm_complex_contacts_make(layout, &j->contacts, reterr);
    if (!status) status = fm_complex_pairs_make(layout, &j->pairs, reterr);
    if (status) return status;
    j->plddt = fm_arena_alloc_array(&j->arena, layout->n_atom, sizeof *j->plddt);
    j->position = fm_arena_alloc_array(&j->arena, layout->n_atom, 3 * sizeof *j->position);
    if (!j->plddt || !j->position) return fm_arena_full(&j->arena, reterr);
    fm_cofold_distogram(j->cofold);
    return take_pairs(j, FM_COFOLD_DISTANCE, reterr);
}

fm_status fm_cofold_judge_all(fm_cofold *cofold, const fm_cofold_input *input, uint32_t seed,
                              uint32_t n, const char *folder, fm_cofold_result *results,
                              fm_error *reterr) {
    judge j = {.cofold = cofold, .input = input, .folder = folder};
    fm_status status = prepare(&j, reterr);
    for (uint32_t k = 0; k < n && !status; k++) {
        results[k] = (fm_cofold_result){.seed = seed, .sample = k};
        status = judge_one(&j, &results[k], reterr);
    }
    fm_complex_pairs_release(&j.pairs);
    fm_complex_contacts_release(&j.contacts);
    fm_arena_fini(&j.arena);
    return status;
}

fm_status fm_cofold_write_ranking(const char *folder, const fm_cofold_result *results, uint32_t n,
                                  fm_error *reterr) {
    char path[PATH_MAX];
    fm_text_file file;
    snprintf(path, sizeof path, "%s/ranking_scores.csv", folder);
    fm_status status = fm_text_file_open(&file, reterr);
    if (status) return status;
    fputs("seed,sample,ranking_score\n", file.out);
    for (uint32_t i = 0; i < n; i++)
        fprintf(file.out, "%u,%u,%.9g\n", results[i].seed, results[i].sample,
                results[i].ranking_score);
    return fm_text_file_commit(&file, path, reterr);
}
