/* cofold_results.c: see cofold_results.h. Logits come in slabs of rows, because those of all pairs
 * would take several times the memory of everything that is kept. */
#include "trainer/app/prediction/cofold_results.h"

#include "proto/base/file.h"
#include "proto/npz.h"
#include "trainer/predict/complex/disorder.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const size_t SLAB_BYTES = (size_t)64 << 20; /* of logits */
static const size_t ARENA_BYTES = (size_t)1 << 34; /* address space */

/* The work on one seed. */
struct fm_cofold_writer {
    fm_cofold *cofold;
    const fm_cofold_input *input;
    const fm_cofold_target *target;
    uint32_t seed;
    fm_arena arena;
    fm_complex_contacts contacts;
    fm_complex_pairs pairs;
    double *plddt;   /* [n_atom] 0 to 1 */
    float *position; /* [n_atom, 3] Å */
};

typedef fm_cofold_writer judge;

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
    int n_end;
    char path[FM_COFOLD_PATH_BYTES];
    fm_cofold_path(j->target, j->input, result, fm_cofold_ends(j->input, &n_end)[0], path);
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

static fm_status write_bare(judge *j, const fm_cofold_result *result, fm_error *reterr) {
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

/* -- the files of a structure whose atoms have names */

static fm_status write_named(judge *j, const fm_cofold_result *result,
                             const fm_complex_scores *scores, fm_cofold_part *ret_part,
                             fm_error *reterr) {
    fm_status (*const write[FM_COMPLEX_ENDS])(const char *, const fm_complex_prediction *,
                                              fm_error *) = {
        fm_complex_write_cif, fm_complex_write_summary, fm_complex_write_confidences};
    const fm_complex_prediction prediction = {.name = j->input->name,
                                              .model = j->target->model,
                                              .software = j->target->software,
                                              .seed = result->seed,
                                              .sample = result->sample,
                                              .atoms = &j->input->names,
                                              .layout = &j->input->layout,
                                              .position = j->position,
                                              .plddt = j->plddt,
                                              .pae = j->pairs.pae,
                                              .contact = j->contacts.probability,
                                              .scores = scores};
    char path[FM_COFOLD_PATH_BYTES];
    snprintf(path, sizeof path, "%s/seed-%u_sample-%u", j->target->folder, result->seed,
             result->sample);
    fm_status status = fm_dir_make(path, reterr);
    for (int i = 0; i < FM_COMPLEX_ENDS && !status; i++) {
        fm_cofold_path(j->target, j->input, result, fm_complex_ends[i], path);
        status = write[i](path, &prediction, reterr);
    }
    if (status) return status;
    return fm_complex_page_draw(&prediction, &ret_part->text, &ret_part->bytes, reterr);
}

/* The record vouches for the files. So it goes before they change, and comes after them. */
static fm_status write_files(judge *j, const fm_cofold_result *result,
                             const fm_complex_scores *scores, fm_cofold_best *best, uint32_t number,
                             fm_error *reterr) {
    fm_cofold_part part = {.text = NULL};
    fm_status status = fm_cofold_record_remove(j->target, j->input, result, reterr);
    if (!status) {
        status = j->input->has_names ? write_named(j, result, scores, &part, reterr)
                                     : write_bare(j, result, reterr);
    }
    if (!status) status = fm_cofold_record_write(j->target, j->input, result, &part, reterr);
    fm_cofold_best_offer(best, result, number, &part);
    return status;
}

/* -- one structure */

static fm_status judge_one(judge *j, fm_cofold_result *result, fm_cofold_best *best,
                           uint32_t number, fm_error *reterr) {
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
    double disordered = 0;
    if (j->input->has_names) {
        status = fm_complex_find_disorder(&j->input->names, j->position, &disordered, reterr);
    }
    if (!status) {
        status = fm_complex_score(layout, &j->pairs, j->plddt, j->position, disordered, &j->arena,
                                  &scores, reterr);
    }
    if (!status) {
        result->ptm = scores.ptm;
        result->iptm = scores.iptm;
        result->mean_plddt = scores.mean_plddt;
        result->ranking_score = scores.ranking_score;
        result->has_clash = scores.has_clash;
        result->fraction_disordered = scores.fraction_disordered;
        status = write_files(j, result, &scores, best, number, reterr);
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

fm_status fm_cofold_writer_open(fm_cofold *cofold, const fm_cofold_input *input,
                                const fm_cofold_target *target, uint32_t seed,
                                fm_cofold_writer **ret_writer, fm_error *reterr) {
    judge *j = calloc(1, sizeof *j);
    if (!j) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the scores");
    *j = (judge){.cofold = cofold, .input = input, .target = target, .seed = seed};
    fm_status status = prepare(j, reterr);
    if (status) {
        fm_cofold_writer_close(j);
        return status;
    }
    *ret_writer = j;
    return FM_OK;
}

fm_status fm_cofold_writer_write(fm_cofold_writer *j, uint32_t sample, uint32_t number,
                                 fm_cofold_result *ret_result, fm_cofold_best *best,
                                 fm_error *reterr) {
    *ret_result = (fm_cofold_result){.seed = j->seed, .sample = sample};
    return judge_one(j, ret_result, best, number, reterr);
}

void fm_cofold_writer_close(fm_cofold_writer *writer) {
    if (!writer) return;
    fm_complex_pairs_release(&writer->pairs);
    fm_complex_contacts_release(&writer->contacts);
    fm_arena_fini(&writer->arena);
    free(writer);
}

/* -- the best structure */

static bool is_better(double score, uint32_t number, const fm_cofold_best *than) {
    const double other = than->ranking_score;
    if (isnan(score) != isnan(other)) return isnan(other);
    if (isnan(score) || score == other) return number < than->number;
    return score > other;
}

void fm_cofold_best_offer(fm_cofold_best *best, const fm_cofold_result *result, uint32_t number,
                          fm_cofold_part *part) {
    if (part->text && (!best->part.text || is_better(result->ranking_score, number, best))) {
        free(best->part.text);
        *best = (fm_cofold_best){result->ranking_score, number, *part};
    } else {
        free(part->text);
    }
    *part = (fm_cofold_part){.text = NULL};
}

/* -- all seeds */

static fm_status copy_file(const char *from, const char *to, fm_error *reterr) {
    fm_bytes content;
    fm_arena arena;
    fm_status status = fm_arena_init(&arena, ARENA_BYTES, reterr);
    if (status) return status;
    status = fm_file_read(&arena, from, ARENA_BYTES / 2, &content, reterr);
    if (!status) status = fm_file_write_atomic(to, content.data, content.size, reterr);
    fm_arena_fini(&arena);
    return status;
}

static fm_status copy_best(const fm_cofold_input *input, const fm_cofold_target *target,
                           const fm_cofold_result *best, fm_error *reterr) {
    char from[FM_COFOLD_PATH_BYTES], to[FM_COFOLD_PATH_BYTES];
    fm_status status = FM_OK;
    for (int i = 0; i < FM_COMPLEX_ENDS && !status; i++) {
        fm_cofold_path(target, input, best, fm_complex_ends[i], from);
        snprintf(to, sizeof to, "%s/%s%s", target->folder, input->name, fm_complex_ends[i]);
        status = copy_file(from, to, reterr);
    }
    return status;
}

fm_complex_page_row fm_cofold_page_row(const fm_cofold_result *r) {
    return (fm_complex_page_row){.seed = r->seed,
                                 .sample = r->sample,
                                 .ranking_score = r->ranking_score,
                                 .ptm = r->ptm,
                                 .iptm = r->iptm,
                                 .mean_plddt = r->mean_plddt,
                                 .fraction_disordered = r->fraction_disordered,
                                 .has_clash = r->has_clash};
}

static fm_status write_page(const fm_cofold_input *input, const fm_cofold_target *target,
                            const fm_cofold_result *results, const uint32_t *order, uint32_t n,
                            const fm_cofold_best *best, fm_error *reterr) {
    char path[FM_COFOLD_PATH_BYTES];
    fm_complex_page_row *row = calloc(n, sizeof *row);
    if (!row) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the page");
    for (uint32_t k = 0; k < n; k++)
        row[k] = fm_cofold_page_row(&results[order[k]]);
    const fm_complex_page page = {.name = input->name,
                                  .software = target->software,
                                  .n_token = input->layout.n_token,
                                  .n_atom = input->layout.n_atom,
                                  .n_chain = input->layout.n_chain,
                                  .n_row = n,
                                  .row = row,
                                  .best = best->part.text,
                                  .best_bytes = best->part.bytes};
    snprintf(path, sizeof path, "%s/%s.html", target->folder, input->name);
    fm_status status = fm_complex_page_write(path, &page, reterr);
    free(row);
    return status;
}

/* Finds the best structure and lists all. */
static uint32_t rank(const fm_cofold_result *results, uint32_t n, fm_complex_ranked *row,
                     double *score, uint32_t *order) {
    for (uint32_t i = 0; i < n; i++) {
        score[i] = results[i].ranking_score;
        row[i] = (fm_complex_ranked){results[i].seed, results[i].sample, score[i]};
    }
    fm_complex_rank(score, n, order);
    return order[0];
}

fm_status fm_cofold_finish(const fm_cofold_input *input, const fm_cofold_target *target,
                           const fm_cofold_result *results, uint32_t n, const fm_cofold_best *best,
                           uint32_t *order, fm_error *reterr) {
    char path[FM_COFOLD_PATH_BYTES];
    fm_complex_ranked *row = calloc(n, sizeof *row);
    double *score = calloc(n, sizeof *score);
    fm_status status = FM_OK;
    if (!row || !score) {
        status = fm_fail(reterr, FM_ERR_NOMEM, "no memory for the ranking");
    } else {
        const uint32_t first = rank(results, n, row, score, order);
        snprintf(path, sizeof path, "%s/%s_data.json", target->folder, input->name);
        if (input->data.size > 0) {
            status = fm_file_write_atomic(path, input->data.data, input->data.size, reterr);
        }
        snprintf(path, sizeof path, "%s/%s_ranking_scores.csv", target->folder, input->name);
        if (!status) status = fm_complex_write_ranking(path, row, n, reterr);
        if (!status && input->has_names) status = copy_best(input, target, &results[first], reterr);
        if (!status && input->has_names) {
            status = write_page(input, target, results, order, n, best, reterr);
        }
    }
    free(row);
    free(score);
    return status;
}
