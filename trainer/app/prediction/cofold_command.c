/* cofold_command.c: see cofold_command.h. */
#include "trainer/app/prediction/cofold_command.h"

#include "proto/base/file.h"
#include "proto/base/histogram.h"
#include "proto/base/plural.h"
#include "proto/base/program.h"
#include "trainer/app/common/stop.h"
#include "trainer/app/device/choose_device.h"
#include "trainer/app/prediction/cofold_jobs.h"
#include "trainer/app/prediction/cofold_results.h"
#include "trainer/app/prediction/cofold_summary.h"
#include "trainer/app/prediction/predict_print.h"
#include "trainer/predict/text_file.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CYCLES = 10, STEPS = 200, STRUCTURES = 5 }; /* what a prediction has if nothing is said */

static const double GIB = 1 << 30;

typedef struct work {
    const fm_predict_settings *set;
    uint32_t n_seed, seed[FM_PREDICT_MOST_SEEDS]; /* of the command line */
    uint32_t n_name;
    char (*name)[FM_COFOLD_NAME_BYTES]; /* of the jobs that have been begun */
    fm_cofold *cofold;
    fm_cofold_options options;
    fm_sha256 weights;
    fm_cofold_counts *counts;
    fm_text_file summary;
    fm_predict_pace pace; /* of jobs */
    uint32_t n_made;      /* of them, that were not finished before */
    double made_s;
} work;

/* -- the command line */

/* An option, and whether it was given. */
typedef struct given {
    const char *name;
    bool is_given;
} given;

static fm_status refuse_given(const given *row, size_t n, const char *network, fm_error *reterr) {
    for (size_t i = 0; i < n; i++) {
        if (!row[i].is_given) continue;
        return fm_fail(reterr, FM_ERR_USAGE, "--%s cannot be used with weights of %s", row[i].name,
                       network);
    }
    return FM_OK;
}

fm_status fm_cofold_check_settings(const fm_predict_settings *set, fm_error *reterr) {
    const fm_predict_settings usual = fm_predict_settings_default(set->command);
    const given row[] = {{"cache", set->cache != NULL},
                         {"data", set->data != NULL},
                         {"alignments", set->alignments != NULL},
                         {"templates", set->templates != NULL},
                         {"max-template-date", strcmp(set->date, "any") != 0},
                         {"dropout", set->dropout},
                         {"ensemble", set->ensemble > 1},
                         {"msa-clusters", set->n_cluster > 0},
                         {"extra-msa", set->n_extra > 0},
                         {"max-length", set->max_length > 0},
                         {"recycle-tol", set->recycle_tol != usual.recycle_tol},
                         {"pdb", set->pdb},
                         {"ranks", set->n_rank > 0},
                         {"gpus", set->gpus > 0},
                         {"dap", set->dap > 1}};
    fm_status status = refuse_given(row, sizeof row / sizeof row[0], "AlphaFold 3", reterr);
    if (!status && set->weights.n > 1) {
        status = fm_fail(reterr, FM_ERR_USAGE, "complexes are predicted with one --weights");
    }
    if (!status && set->recycles == 0) {
        status = fm_fail(reterr, FM_ERR_USAGE, "--recycles: found 0, expected 1 to 20 cycles");
    }
    for (uint32_t i = 0; i < set->n_seed && !status; i++) {
        if (set->seed[i] <= UINT32_MAX) continue;
        status = fm_fail(reterr, FM_ERR_USAGE, "--seeds: found %llu, expected 0 to %u",
                         (unsigned long long)set->seed[i], UINT32_MAX);
    }
    return status;
}

fm_status fm_cofold_refuse_settings(const fm_predict_settings *set, fm_error *reterr) {
    const given row[] = {{"components", set->components != NULL},
                         {"steps", set->steps > 0},
                         {"samples", set->samples > 0},
                         {"msa-rows", set->msa_rows > 0}};
    return refuse_given(row, sizeof row / sizeof row[0], "AlphaFold2", reterr);
}

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

static fm_status load(work *w, const fm_predict_model_options *options, fm_predict_model *model,
                      fm_error *reterr) {
    const fm_predict_settings *set = w->set;
    const bool has_cycles = set->recycles != FM_PREDICT_NOT_GIVEN;
    w->options =
        (fm_cofold_options){.model = model->config.af3,
                            .n_cycle = has_cycles ? (int32_t)set->recycles : CYCLES,
                            .n_step = set->steps ? (int32_t)set->steps : STEPS,
                            .n_structure = set->samples ? (int64_t)set->samples : STRUCTURES,
                            .n_row = set->msa_rows ? (int64_t)set->msa_rows : FM_COFOLD_ROWS,
                            .memory_budget_bytes = (int64_t)(set->device_gib * GIB)};
    w->options.model.n_template = model->config.data.n_template;
    fm_status status = check_bins(&w->options.model, reterr);
    if (!status) {
        status = fm_device_find(options->device, options->dtype, &w->options.kernels, reterr);
    }
    if (!status) status = fm_cofold_create(&w->options, &w->cofold, reterr);
    if (status) return status;
    fm_params *params = fm_cofold_get_params(w->cofold);
    status = fm_predict_model_fill(options, model, params, reterr);
    w->weights = model->hash;
    if (status || set->quiet) return status;
    fprintf(stderr, "model     %s: %s; %.2f M parameters; %d cycles, %d steps, %lld structures\n",
            set->name[0], model->about, (double)params->n_value / 1e6, (int)w->options.n_cycle,
            (int)w->options.n_step, (long long)w->options.n_structure);
    return FM_OK;
}

/* -- one input */

static fm_status show_need(const work *w, const char *name, const fm_af3_sample *s,
                           fm_error *reterr) {
    const fm_cofold_sizes sizes = {s->n_token, s->n_atom, s->n_msa, s->n_template};
    fm_cofold_need need;
    fm_status status = fm_cofold_find_need(w->cofold, &sizes, &need, reterr);
    if (status || w->set->quiet) return status;
    fprintf(stderr, "%s: %lld tokens, %lld atoms, %lld MSA rows; needs %.2f GiB", name,
            (long long)s->n_token, (long long)s->n_atom, (long long)s->n_msa,
            (double)need.bytes / GIB);
    if (need.available_bytes) fprintf(stderr, " of %.2f", (double)need.available_bytes / GIB);
    if (need.slabs.chunk_bytes) fprintf(stderr, ", in slabs");
    fputc('\n', stderr);
    return FM_OK;
}

static void show_structure(const work *w, const char *name, const fm_cofold_result *r,
                           bool is_resumed) {
    if (w->set->quiet) return;
    fprintf(stderr, "%s  seed %u  sample %u  pLDDT %.1f", name, r->seed, r->sample, r->mean_plddt);
    if (isfinite(r->ptm)) fprintf(stderr, "  pTM %.3f", r->ptm);
    if (isfinite(r->iptm)) fprintf(stderr, "  ipTM %.3f", r->iptm);
    fprintf(stderr, "%s%s\n", r->has_clash ? "  clash" : "", is_resumed ? "  done earlier" : "");
}

static void show_times(const work *w, const char *name, uint32_t seed,
                       const fm_cofold_times *times) {
    if (w->set->quiet) return;
    fprintf(stderr, "%s  seed %u  trunk %.2f s, structures %.2f s\n", name, seed, times->trunk_s,
            times->structures_s);
}

/* The seeds of the command line, else those of the job. */
static const uint32_t *seeds_of(const work *w, const fm_cofold_input *input, uint32_t *ret_n) {
    const bool is_given = w->set->has_seeds || input->n_seed == 0;
    *ret_n = is_given ? w->n_seed : input->n_seed;
    return is_given ? w->seed : input->seeds;
}

/* The structures of one seed. */
typedef struct seed_work {
    const fm_cofold_input *input;
    const fm_cofold_target *target;
    uint32_t seed, first_number; /* first_number: that of sample 0 among all structures */
    fm_cofold_result *results;   /* [n_structure] */
    bool *is_done;               /* [n_structure] */
    fm_cofold_best *best;
} seed_work;

/* Takes the structures that an earlier command has finished. */
static fm_status take_earlier(work *w, seed_work *r, uint32_t *ret_n, fm_error *reterr) {
    fm_status status = FM_OK;
    *ret_n = 0;
    for (uint32_t k = 0; k < w->options.n_structure && !status; k++) {
        fm_cofold_part part;
        r->results[k] = (fm_cofold_result){.seed = r->seed, .sample = k};
        r->is_done[k] = false;
        if (!w->set->resume) continue;
        status = fm_cofold_record_take(r->target, r->input, &r->results[k], &r->is_done[k], &part,
                                       reterr);
        if (status || !r->is_done[k]) continue;
        fm_cofold_best_offer(r->best, &r->results[k], r->first_number + k, &part);
        show_structure(w, r->input->name, &r->results[k], true);
        ++*ret_n;
    }
    w->counts->n_structure += *ret_n;
    w->counts->n_resumed += *ret_n;
    return status;
}

/* Samples the structures from `first` on that are denoised side by side, and writes those that are
 * not there. A signal ends the work before or after them. */
static fm_status make_some(work *w, seed_work *r, fm_cofold_writer *writer, uint32_t first,
                           fm_cofold_times *times, fm_error *reterr) {
    const uint32_t n = (uint32_t)w->options.n_structure, side = (uint32_t)fm_cofold_side(w->cofold);
    const uint32_t end = n - first < side ? n : first + side;
    bool is_whole = true;
    for (uint32_t k = first; k < end; k++)
        is_whole = is_whole && r->is_done[k];
    if (is_whole) return FM_OK;
    if (fm_stop_is_asked()) return FM_ERR_CANCELLED;
    fm_status status = fm_cofold_sample(w->cofold, first, times, reterr);
    for (uint32_t k = first; k < end && !status; k++) {
        if (r->is_done[k]) continue;
        status =
            fm_cofold_writer_write(writer, k, r->first_number + k, &r->results[k], r->best, reterr);
        if (status) break;
        w->counts->n_structure++;
        show_structure(w, r->input->name, &r->results[k], false);
    }
    return status;
}

static fm_status make_seed(work *w, seed_work *r, fm_error *reterr) {
    fm_cofold_writer *writer = NULL;
    fm_cofold_times times;
    if (fm_stop_is_asked()) return FM_ERR_CANCELLED;
    fm_status status =
        fm_cofold_run_trunk(w->cofold, &r->input->features.sample, r->seed, NULL, &times, reterr);
    if (!status) {
        status = fm_cofold_writer_open(w->cofold, r->input, r->target, r->seed, &writer, reterr);
    }
    const uint32_t side = (uint32_t)fm_cofold_side(w->cofold);
    for (uint32_t k = 0; k < w->options.n_structure && !status; k += side)
        status = make_some(w, r, writer, k, &times, reterr);
    fm_cofold_writer_close(writer);
    if (!status) show_times(w, r->input->name, r->seed, &times);
    return status;
}

static fm_status predict_seeds(work *w, const fm_cofold_input *input,
                               const fm_cofold_target *target, fm_error *reterr) {
    const uint32_t n = (uint32_t)w->options.n_structure;
    uint32_t n_seed;
    const uint32_t *seed = seeds_of(w, input, &n_seed);
    fm_cofold_best best = {.part = {NULL}};
    fm_cofold_result *results = calloc((size_t)n * n_seed, sizeof *results);
    bool *is_done = calloc(n, sizeof *is_done);
    uint32_t *order = calloc((size_t)n * n_seed, sizeof *order);
    fm_status status = FM_OK;
    if (!results || !is_done || !order) {
        status = fm_fail(reterr, FM_ERR_NOMEM, "no memory for the scores");
    }
    for (uint32_t i = 0; i < n_seed && !status; i++) {
        seed_work r = {input, target, seed[i], i * n, results + (size_t)i * n, is_done, &best};
        uint32_t n_earlier;
        status = take_earlier(w, &r, &n_earlier, reterr);
        if (!status && n_earlier < n) status = make_seed(w, &r, reterr);
    }
    if (!status) {
        status = fm_cofold_finish(input, target, results, n * n_seed, &best, order, reterr);
    }
    if (!status) fm_cofold_summary_put(w->summary.out, input, results, order, n * n_seed);
    free(best.part.text);
    free(order);
    free(is_done);
    free(results);
    return status;
}

/* Results are in folders with the inputs' names, beside the prepared samples and the lock. */
static fm_status take_name(work *w, const char *name, fm_error *reterr) {
    const size_t n = strlen(name);
    if (!strcmp(name, "inputs") || !strcmp(name, "lock") || !strcmp(name, "summary.csv") ||
        n > FM_COFOLD_NAME_MOST) {
        return fm_fail(reterr, FM_ERR_DATA,
                       "found a name of %zu bytes, '%.60s', expected at most %d, and none of "
                       "inputs, lock and summary.csv, which the results have already",
                       n, name, FM_COFOLD_NAME_MOST);
    }
    for (uint32_t i = 0; i < w->n_name; i++) {
        if (strcmp(w->name[i], name) != 0) continue;
        return fm_fail(reterr, FM_ERR_DATA, "an input before this one has the name %s, too", name);
    }
    snprintf(w->name[w->n_name++], FM_COFOLD_NAME_BYTES, "%s", name);
    return FM_OK;
}

static fm_status predict_prepared(work *w, const char *path, fm_error *reterr) {
    char folder[PATH_MAX];
    fm_cofold_input input;
    fm_status status = fm_cofold_input_read(path, &input, reterr);
    if (!status) {
        const fm_af3_sample *sample = &input.features.sample;
        status = take_name(w, input.name, reterr);
        if (!status) status = fm_cofold_check(w->cofold, sample, reterr);
        if (!status) status = show_need(w, input.name, sample, reterr);
        if (status) fm_error_in(reterr, path);
    }
    snprintf(folder, sizeof folder, "%s/%s", w->set->out, input.name);
    if (!status) status = fm_dir_make(folder, reterr);
    const fm_cofold_target target = {.folder = folder,
                                     .model = w->set->name[0],
                                     .software = FM_VERSION,
                                     .weights = &w->weights,
                                     .set = w->set->set,
                                     .device = w->set->device,
                                     .dtype = w->set->dtype,
                                     .n_cycle = w->options.n_cycle,
                                     .n_step = w->options.n_step,
                                     .n_row = w->options.n_row};
    if (!status) status = predict_seeds(w, &input, &target, reterr);
    fm_cofold_input_release(&input);
    return status;
}

/* Whether an error is about one input alone. */
static bool is_of_input(fm_status status) {
    return status != FM_ERR_CANCELLED && status != FM_ERR_IO && status != FM_ERR_NOMEM;
}

/* Says what a command has done that a signal or an error has ended. */
static void say_ended(const work *w, fm_status status) {
    const uint64_t n = w->counts->n_structure;
    const char *program = w->set->command->program;
    if (status == FM_ERR_CANCELLED && fm_stop_is_asked()) {
        fprintf(stderr, "%s: stopped by %s after %llu structure%s%s\n", program,
                fm_stop_name(fm_stop_signal()), (unsigned long long)n, fm_plural(n),
                n ? "; --resume continues" : "");
    } else if (n) {
        fprintf(stderr, "%s: ended after %llu structure%s; --resume continues\n", program,
                (unsigned long long)n, fm_plural(n));
    }
}

/* Counts a job that took `seconds`. Jobs that are left count as average ones. */
static void count_job(work *w, const fm_cofold_job *job, double seconds, bool is_made) {
    fm_predict_pace *pace = &w->pace;
    char rate[64];
    pace->n_done++;
    pace->elapsed_s += seconds;
    if (is_made) {
        w->made_s += seconds;
        w->n_made++;
    } else {
        pace->n_resumed++;
    }
    pace->left_s =
        w->n_made ? w->made_s / w->n_made * (double)(pace->n_all - pace->n_done) : (double)NAN;
    if (w->set->quiet || pace->n_all == 1) return;
    fprintf(stderr, "%llu/%llu  %s  %.2f s%s\n", (unsigned long long)pace->n_done,
            (unsigned long long)pace->n_all, job->path, seconds,
            fm_predict_format_pace(pace, rate));
}

/* Predicts a job. An error of the job is reported, and has a row. */
static fm_status predict_job(work *w, const fm_cofold_job *job, fm_error *reterr) {
    fm_error error = {0};
    char text[FM_ERROR_TEXT_BYTES], name[FM_COFOLD_NAME_BYTES];
    const uint64_t n_new = w->counts->n_structure - w->counts->n_resumed;
    const uint64_t begin_ns = fm_clock_ns();
    fm_status status = predict_prepared(w, job->path, &error);
    if (status && !is_of_input(status)) {
        if (status != FM_ERR_CANCELLED) *reterr = error;
        return status;
    }
    if (status) {
        (void)fm_program_report(w->set->command->program, &error);
        fm_error_format(&error, text, sizeof text);
        fm_cofold_input_name(job->path, name);
        fm_cofold_summary_put_failed(w->summary.out, name, text);
        w->counts->n_failed++;
    } else {
        w->counts->n_done++;
    }
    const bool is_made = !status && w->counts->n_structure - w->counts->n_resumed > n_new;
    count_job(w, job, (double)(fm_clock_ns() - begin_ns) * 1e-9, is_made);
    return FM_OK;
}

static fm_status predict_all(work *w, const fm_cofold_jobs *jobs, fm_error *reterr) {
    fm_status status = FM_OK;
    for (uint32_t i = 0; i < jobs->n; i++)
        w->pace.n_all += jobs->job[i].path != NULL;
    for (uint32_t i = 0; i < jobs->n && !status; i++) {
        const fm_cofold_job *job = &jobs->job[i];
        if (job->path) {
            status = predict_job(w, job, reterr);
        } else {
            fm_cofold_summary_put_failed(w->summary.out, job->name, job->why);
            w->counts->n_refused++;
        }
    }
    return status;
}

static void print_outputs(const work *w, double all_s) {
    const fm_cofold_counts *c = w->counts;
    printf("outputs   %s/summary.csv, %u complex%s", w->set->out, c->n_done,
           c->n_done == 1 ? "" : "es");
    if (c->n_resumed) {
        printf(" (%llu structure%s done earlier)", (unsigned long long)c->n_resumed,
               fm_plural(c->n_resumed));
    }
    if (c->n_failed) printf(", %u failed", c->n_failed);
    if (c->n_refused) printf(", %u refused", c->n_refused);
    printf(", %.1f s\n", all_s);
}

/* Loads the weights, and predicts what is not refused. */
static fm_status run(work *w, const fm_predict_model_options *options, fm_predict_model *model,
                     const fm_cofold_jobs *jobs, fm_error *reterr) {
    w->name = calloc(jobs->n + 1, sizeof *w->name);
    if (!w->name) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the names of jobs");
    fm_status status = fm_text_file_open(&w->summary, reterr);
    if (status) return status;
    char path[PATH_MAX];
    fm_cofold_summary_begin(w->summary.out);
    status = load(w, options, model, reterr);
    if (!status) status = predict_all(w, jobs, reterr);
    snprintf(path, sizeof path, "%s/summary.csv", w->set->out);
    if (!status) return fm_text_file_commit(&w->summary, path, reterr);
    fm_text_file_discard(&w->summary);
    return status;
}

fm_status fm_cofold_predict(const fm_predict_settings *set, const fm_predict_model_options *options,
                            fm_predict_model *model, fm_cofold_counts *ret_counts,
                            fm_error *reterr) {
    work w = {.set = set, .n_seed = set->n_seed, .counts = ret_counts};
    fm_cofold_jobs jobs;
    const uint64_t begin_ns = fm_clock_ns();
    for (uint32_t i = 0; i < set->n_seed; i++)
        w.seed[i] = (uint32_t)set->seed[i];
    fm_status status = fm_cofold_jobs_list(set, &jobs, reterr);
    if (!status) status = run(&w, options, model, &jobs, reterr);
    fm_cofold_destroy(w.cofold);
    fm_cofold_jobs_release(&jobs);
    free(w.name);
    if (status) {
        say_ended(&w, status);
    } else {
        print_outputs(&w, (double)(fm_clock_ns() - begin_ns) * 1e-9);
    }
    return status;
}
