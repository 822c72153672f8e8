/* cofold_work.c: see cofold_work.h. */
#include "trainer/app/prediction/cofold_work.h"

#include "proto/base/file.h"
#include "proto/base/program.h"
#include "trainer/app/common/stop.h"
#include "trainer/app/device/choose_device.h"
#include "trainer/app/prediction/cofold_summary.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CYCLES = 10, STEPS = 200, STRUCTURES = 5 }; /* what a prediction has if nothing is said */

static const double GIB = 1 << 30;

/* -- the model */

/* The scores' bins are those of the published network. */
static fm_status check_bins(const fm_af3_config *model, fm_error *reterr) {
    const struct {
        const char *name;
        int64_t n;
    } row[] = {{"n_pae_bin", model->n_pae_bin},
               {"n_pde_bin", model->n_pde_bin},
               {"n_distogram_bin", model->n_distogram_bin}};
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        if (row[i].n == FM_COMPLEX_ERROR_BINS) continue;
        return fm_fail(reterr, FM_ERR_UNSUPPORTED,
                       "the weights have %s = %lld, expected %d, which the scores need",
                       row[i].name, (long long)row[i].n, FM_COMPLEX_ERROR_BINS);
    }
    return FM_OK;
}

fm_status fm_cofold_work_make(const fm_predict_settings *set, const fm_predict_model *model,
                              fm_predict_group *group, fm_cofold_work *ret_work, fm_error *reterr) {
    fm_cofold_work *w = ret_work;
    const bool has_cycles = set->recycles != FM_PREDICT_NOT_GIVEN;
    *w = (fm_cofold_work){.set = set, .n_seed = set->n_seed, .group = group};
    for (uint32_t i = 0; i < set->n_seed; i++)
        w->seed[i] = (uint32_t)set->seed[i];
    w->is_silent = set->quiet || (group && group->place > 0);
    w->options =
        (fm_cofold_options){.model = model->config.af3,
                            .n_cycle = has_cycles ? (int32_t)set->recycles : CYCLES,
                            .n_step = set->steps ? (int32_t)set->steps : STEPS,
                            .n_structure = set->samples ? (int64_t)set->samples : STRUCTURES,
                            .n_row = set->msa_rows ? (int64_t)set->msa_rows : FM_COFOLD_ROWS,
                            .memory_budget_bytes = (int64_t)(set->device_gib * GIB)};
    w->options.model.n_template = model->config.data.n_template;
    w->options.model.groups = group ? group->groups : NULL;
    return check_bins(&w->options.model, reterr);
}

fm_status fm_cofold_work_load(fm_cofold_work *w, const fm_predict_model_options *options,
                              fm_predict_model *model, fm_error *reterr) {
    fm_status status = fm_device_find(options->device, options->dtype, &w->options.kernels, reterr);
    if (!status) status = fm_cofold_create(&w->options, &w->cofold, reterr);
    if (status) return status;
    fm_params *params = fm_cofold_get_params(w->cofold);
    status = fm_predict_model_fill(options, model, params, reterr);
    w->weights = model->hash;
    const bool is_first = !w->group || w->group->number == 0;
    if (status || w->is_silent || !is_first) return status;
    fprintf(stderr, "model     %s: %s; %.2f M parameters; %d cycles, %d steps, %lld structures\n",
            w->set->name[0], model->about, (double)params->n_value / 1e6, (int)w->options.n_cycle,
            (int)w->options.n_step, (long long)w->options.n_structure);
    return FM_OK;
}

void fm_cofold_work_end(fm_cofold_work *w) {
    fm_cofold_destroy(w->cofold);
    w->cofold = NULL;
}

bool fm_cofold_is_of_input(fm_status status) {
    return status != FM_ERR_CANCELLED && status != FM_ERR_IO && status != FM_ERR_NOMEM;
}

/* -- lines for people. Each is written at once, since ranks share the terminal. */

static void show_need(const fm_cofold_work *w, const char *name, const fm_af3_sample *s,
                      const fm_cofold_need *need) {
    char text[512], of[64] = "";
    if (need->available_bytes) {
        snprintf(of, sizeof of, " of %.2f", (double)need->available_bytes / GIB);
    }
    snprintf(text, sizeof text, "%s: %lld tokens, %lld atoms, %lld MSA rows; needs %.2f GiB%s%s\n",
             name, (long long)s->n_token, (long long)s->n_atom, (long long)s->n_msa,
             (double)need->bytes / GIB, of, need->slabs.chunk_bytes ? ", in slabs" : "");
    if (!w->is_silent) fputs(text, stderr);
}

static void show_structure(const fm_cofold_work *w, const char *name, const fm_cofold_result *r,
                           bool is_resumed) {
    char text[512], ptm[32] = "", iptm[32] = "";
    if (w->is_silent) return;
    if (isfinite(r->ptm)) snprintf(ptm, sizeof ptm, "  pTM %.3f", r->ptm);
    if (isfinite(r->iptm)) snprintf(iptm, sizeof iptm, "  ipTM %.3f", r->iptm);
    snprintf(text, sizeof text, "%s  seed %u  sample %u  pLDDT %.1f%s%s%s%s\n", name, r->seed,
             r->sample, r->mean_plddt, ptm, iptm, r->has_clash ? "  clash" : "",
             is_resumed ? "  done earlier" : "");
    fputs(text, stderr);
}

static void show_times(const fm_cofold_work *w, const char *name, uint32_t seed,
                       const fm_cofold_times *times) {
    if (w->is_silent) return;
    fprintf(stderr, "%s  seed %u  trunk %.2f s, structures %.2f s\n", name, seed, times->trunk_s,
            times->structures_s);
}

/* -- beginning */

const uint32_t *fm_cofold_seeds(const fm_cofold_work *w, const fm_cofold_input *input,
                                uint32_t *ret_n) {
    const bool is_given = w->set->has_seeds || input->n_seed == 0;
    *ret_n = is_given ? w->n_seed : input->n_seed;
    return is_given ? w->seed : input->seeds;
}

static fm_status check_fits(const fm_cofold_work *w, const fm_cofold_complex *c, bool says_need,
                            fm_error *reterr) {
    const fm_af3_sample *s = &c->input.features.sample;
    const fm_cofold_sizes sizes = {s->n_token, s->n_atom, s->n_msa, s->n_template};
    fm_cofold_need need;
    fm_status status = fm_cofold_check(w->cofold, s, reterr);
    if (!status) status = fm_cofold_find_need(w->cofold, &sizes, &need, reterr);
    if (!status && says_need) show_need(w, c->input.name, s, &need);
    return status;
}

fm_status fm_cofold_complex_begin(fm_cofold_work *w, const char *path, bool says_need,
                                  fm_cofold_complex *c, fm_error *reterr) {
    const uint32_t n = (uint32_t)w->options.n_structure;
    fm_status status = w->cofold ? check_fits(w, c, says_need, reterr) : FM_OK;
    if (status) {
        fm_error_in(reterr, path);
        return status;
    }
    c->seed = fm_cofold_seeds(w, &c->input, &c->n_seed);
    snprintf(c->folder, sizeof c->folder, "%s/%s", w->set->out, c->input.name);
    c->target = (fm_cofold_target){.folder = c->folder,
                                   .model = w->set->name[0],
                                   .software = FM_VERSION,
                                   .weights = &w->weights,
                                   .set = w->set->set,
                                   .device = w->set->device,
                                   .dtype = w->set->dtype,
                                   .n_cycle = w->options.n_cycle,
                                   .n_step = w->options.n_step,
                                   .n_row = w->options.n_row,
                                   .dap = w->set->ranks.dap};
    c->results = calloc((size_t)n * c->n_seed, sizeof *c->results);
    c->is_done = calloc(n, sizeof *c->is_done);
    if (!c->results || !c->is_done) {
        return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the scores");
    }
    return fm_dir_make(c->folder, reterr);
}

void fm_cofold_complex_release(fm_cofold_complex *c) {
    fm_cofold_input_release(&c->input);
    free(c->best.part.text);
    free(c->is_done);
    free(c->results);
    *c = (fm_cofold_complex){.results = NULL};
}

/* -- the structures of a seed */

/* The structures of one seed. */
typedef struct seed_work {
    fm_cofold_work *work;
    fm_cofold_complex *complex;
    fm_cofold_writer *writer; /* of the first rank */
    uint32_t seed, first;     /* first: number of sample 0 among all structures */
    fm_cofold_result *results;
    fm_cofold_times times;
} seed_work;

static seed_work begin_seed(fm_cofold_work *w, fm_cofold_complex *c, uint32_t i) {
    const uint32_t first = i * (uint32_t)w->options.n_structure;
    return (seed_work){
        .work = w, .complex = c, .seed = c->seed[i], .first = first, .results = c->results + first};
}

/* Takes the structures whose records say that they are finished. */
static fm_status take_finished(seed_work *r, uint32_t *ret_n, fm_error *reterr) {
    fm_cofold_complex *c = r->complex;
    fm_status status = FM_OK;
    *ret_n = 0;
    for (uint32_t k = 0; k < r->work->options.n_structure && !status; k++) {
        fm_cofold_part part;
        status = fm_cofold_record_take(&c->target, &c->input, &r->results[k], &c->is_done[k], &part,
                                       reterr);
        if (status || !c->is_done[k]) continue;
        fm_cofold_best_offer(&c->best, &r->results[k], r->first + k, &part);
        ++*ret_n;
    }
    return status;
}

/* Sets the structures to make, without those that an earlier command has finished. The ranks of a
 * group find the same ones: records change only when all ranks compute. */
static fm_status list_structures(seed_work *r, uint32_t *ret_n, fm_error *reterr) {
    fm_cofold_work *w = r->work;
    *ret_n = 0;
    for (uint32_t k = 0; k < w->options.n_structure; k++) {
        r->results[k] = (fm_cofold_result){.seed = r->seed, .sample = k};
        r->complex->is_done[k] = false;
    }
    if (!w->set->resume) return FM_OK;
    fm_status status = take_finished(r, ret_n, reterr);
    for (uint32_t k = 0; k < w->options.n_structure && !status; k++) {
        if (!r->complex->is_done[k]) continue;
        show_structure(w, r->complex->input.name, &r->results[k], true);
    }
    w->n_structure += *ret_n;
    w->n_resumed += *ret_n;
    return status;
}

static fm_status may_go_on(fm_cofold_work *w, fm_error *reterr) {
    if (w->group) return fm_predict_group_agree(w->group, NULL, reterr);
    return fm_stop_is_asked() ? FM_ERR_CANCELLED : FM_OK;
}

/* Judges and writes a structure. Ranks after the first compute their part of the logits. */
static fm_status judge(seed_work *r, uint32_t k, fm_error *reterr) {
    fm_cofold_work *w = r->work;
    fm_cofold_complex *c = r->complex;
    if (!r->writer) {
        fm_cofold_judge(w->cofold, k);
        fm_cofold_wait(w->cofold);
        return FM_OK;
    }
    fm_status status =
        fm_cofold_writer_write(r->writer, k, r->first + k, &r->results[k], &c->best, reterr);
    if (status) {
        w->has_failed_alone = true;
        return status;
    }
    w->n_structure++;
    show_structure(w, c->input.name, &r->results[k], false);
    return FM_OK;
}

/* Samples the structures from `first` on that are denoised side by side, and writes those that are
 * not there. A signal ends the work before or after them. */
static fm_status make_some(seed_work *r, uint32_t first, fm_error *reterr) {
    fm_cofold_work *w = r->work;
    const uint32_t n = (uint32_t)w->options.n_structure, side = (uint32_t)fm_cofold_side(w->cofold);
    const uint32_t end = n - first < side ? n : first + side;
    bool is_whole = true;
    for (uint32_t k = first; k < end; k++)
        is_whole = is_whole && r->complex->is_done[k];
    if (is_whole) return FM_OK;
    fm_status status = may_go_on(w, reterr);
    if (!status) status = fm_cofold_sample(w->cofold, first, &r->times, reterr);
    for (uint32_t k = first; k < end && !status; k++) {
        if (!r->complex->is_done[k]) status = judge(r, k, reterr);
    }
    return status;
}

static fm_status open_writer(seed_work *r, fm_error *reterr) {
    fm_cofold_work *w = r->work;
    if (w->group && w->group->place > 0) {
        fm_cofold_distogram(w->cofold);
        fm_cofold_wait(w->cofold);
        return FM_OK;
    }
    fm_status status = fm_cofold_writer_open(w->cofold, &r->complex->input, &r->complex->target,
                                             r->seed, &r->writer, reterr);
    if (status) w->has_failed_alone = true;
    return status;
}

static fm_status make_seed(seed_work *r, fm_error *reterr) {
    fm_cofold_work *w = r->work;
    const uint32_t side = (uint32_t)fm_cofold_side(w->cofold);
    fm_status status = may_go_on(w, reterr);
    if (!status) {
        status = fm_cofold_run_trunk(w->cofold, &r->complex->input.features.sample, r->seed, NULL,
                                     &r->times, reterr);
    }
    if (!status) status = open_writer(r, reterr);
    for (uint32_t k = 0; k < w->options.n_structure && !status; k += side)
        status = make_some(r, k, reterr);
    fm_cofold_writer_close(r->writer);
    if (!status) show_times(w, r->complex->input.name, r->seed, &r->times);
    return status;
}

fm_status fm_cofold_complex_make(fm_cofold_work *w, fm_cofold_complex *c, uint32_t i,
                                 fm_error *reterr) {
    seed_work r = begin_seed(w, c, i);
    uint32_t n_earlier;
    fm_status status = list_structures(&r, &n_earlier, reterr);
    if (status || n_earlier == w->options.n_structure) return status;
    return make_seed(&r, reterr);
}

/* -- after the last seed */

fm_status fm_cofold_complex_gather(fm_cofold_work *w, fm_cofold_complex *c, fm_error *reterr) {
    fm_status status = FM_OK;
    for (uint32_t i = 0; i < c->n_seed && !status; i++) {
        seed_work r = begin_seed(w, c, i);
        uint32_t n;
        for (uint32_t k = 0; k < w->options.n_structure; k++)
            r.results[k] = (fm_cofold_result){.seed = r.seed, .sample = k};
        status = take_finished(&r, &n, reterr);
        if (!status && n < w->options.n_structure) {
            status = fm_fail_in(reterr, FM_ERR_NOT_FOUND, c->folder,
                                "found %u structures of seed %u with their records, expected %lld",
                                n, r.seed, (long long)w->options.n_structure);
        }
    }
    return status;
}

fm_status fm_cofold_complex_finish(fm_cofold_work *w, fm_cofold_complex *c, FILE *summary,
                                   fm_error *reterr) {
    const uint32_t n = c->n_seed * (uint32_t)w->options.n_structure;
    uint32_t *order = calloc(n, sizeof *order);
    if (!order) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the scores");
    fm_status status =
        fm_cofold_finish(&c->input, &c->target, c->results, n, &c->best, order, reterr);
    if (!status) fm_cofold_summary_put(summary, &c->input, c->results, order, n);
    c->first = order[0];
    free(order);
    return status;
}
