/* cofold_command.c: see cofold_command.h. */
#include "trainer/app/prediction/cofold_command.h"

#include "proto/base/histogram.h"
#include "proto/base/plural.h"
#include "proto/base/program.h"
#include "trainer/app/common/stop.h"
#include "trainer/app/prediction/cofold_ranks.h"
#include "trainer/app/prediction/cofold_summary.h"
#include "trainer/app/prediction/predict_print.h"
#include "trainer/predict/complex/index_page.h"
#include "trainer/predict/text_file.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A job of the command. */
typedef struct job_state {
    char *rows; /* of the summary; NULL: it has not ended. On the heap */
    size_t rows_bytes;
    char name[FM_COFOLD_NAME_BYTES]; /* empty: not known yet */
    char *called, *why;              /* of a job without structures; on the heap */
    fm_complex_index_row shown;      /* of a job with structures */
    /* With ranks. */
    uint32_t n_left;                 /* seeds that have not ended */
    uint32_t n_structure, n_resumed; /* of those that have */
    double seconds;
    uint32_t failed; /* the first seed that failed, with the error; UINT32_MAX: none */
    fm_error error;
} job_state;

typedef struct command {
    const fm_predict_settings *set;
    fm_cofold_work work;
    fm_cofold_jobs jobs;
    job_state *state; /* [jobs.n] */
    uint32_t *n_seed; /* [jobs.n] for ranks; 0: not predicted */
    fm_cofold_counts *counts;
    fm_predict_pace pace; /* of jobs */
    uint32_t n_made;      /* of them, that were not finished before */
    double made_s;
    uint64_t begin_ns; /* of the predictions */
} command;

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
                         {"pdb", set->pdb}};
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

/* -- names and rows */

/* Results are in folders with the inputs' names, beside the prepared samples and the lock. */
static fm_status take_name(command *c, uint32_t job, const char *name, fm_error *reterr) {
    const size_t n = strlen(name);
    if (!strcmp(name, "inputs") || !strcmp(name, "lock") || !strcmp(name, "summary.csv") ||
        !strcmp(name, "index.html") || n > FM_COFOLD_NAME_MOST) {
        return fm_fail(reterr, FM_ERR_DATA,
                       "found a name of %zu bytes, '%.60s', expected at most %d, and none of "
                       "index.html, inputs, lock and summary.csv, which the results have already",
                       n, name, FM_COFOLD_NAME_MOST);
    }
    for (uint32_t i = 0; i < job; i++) {
        if (strcmp(c->state[i].name, name) != 0) continue;
        return fm_fail(reterr, FM_ERR_DATA, "an input before this one has the name %s, too", name);
    }
    snprintf(c->state[job].name, sizeof c->state[job].name, "%s", name);
    return FM_OK;
}

static fm_status put_failed(job_state *state, const char *name, const char *why, fm_error *reterr) {
    FILE *rows = open_memstream(&state->rows, &state->rows_bytes);
    if (rows) fm_cofold_summary_put_failed(rows, name, why);
    state->called = strdup(name);
    state->why = strdup(why);
    if (rows && fclose(rows) == 0 && state->called && state->why) return FM_OK;
    return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the summary");
}

/* Takes what the page of all jobs shows of one. */
static void show(job_state *state, const fm_cofold_work *w, const fm_cofold_complex *complex) {
    const fm_complex_layout *layout = &complex->input.layout;
    const fm_cofold_result *best = &complex->results[complex->first];
    state->shown =
        (fm_complex_index_row){.has_page = complex->input.has_names,
                               .n_token = layout->n_token,
                               .n_atom = layout->n_atom,
                               .n_chain = layout->n_chain,
                               .n_structure = complex->n_seed * (uint32_t)w->options.n_structure,
                               .best = fm_cofold_page_row(best)};
}

/* Ends a job with its structures. */
static fm_status finish(command *c, uint32_t job, fm_cofold_complex *complex, fm_error *reterr) {
    job_state *state = &c->state[job];
    FILE *rows = open_memstream(&state->rows, &state->rows_bytes);
    if (!rows) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the summary");
    fm_status status = fm_cofold_complex_finish(&c->work, complex, rows, reterr);
    if (fclose(rows) != 0 && !status) {
        status = fm_fail(reterr, FM_ERR_NOMEM, "no memory for the summary");
    }
    if (!status) show(state, &c->work, complex);
    return status;
}

/* Reports why a job failed, and writes its row. */
static fm_status note_failed(command *c, uint32_t job, const fm_error *error, fm_error *reterr) {
    char text[FM_ERROR_TEXT_BYTES], name[FM_COFOLD_NAME_BYTES];
    (void)fm_program_report(c->set->command->program, error);
    fm_error_format(error, text, sizeof text);
    fm_cofold_input_name(c->jobs.job[job].path, name);
    c->counts->n_failed++;
    return put_failed(&c->state[job], name, text, reterr);
}

/* Says what a command has done that a signal or an error has ended. */
static void say_ended(const command *c, fm_status status) {
    const uint64_t n = c->counts->n_structure;
    const char *program = c->set->command->program;
    if (status == FM_ERR_CANCELLED && fm_stop_is_asked()) {
        fprintf(stderr, "%s: stopped by %s after %llu structure%s%s\n", program,
                fm_stop_name(fm_stop_signal()), (unsigned long long)n, fm_plural(n),
                n ? "; --resume continues" : "");
    } else if (n) {
        fprintf(stderr, "%s: ended after %llu structure%s; --resume continues\n", program,
                (unsigned long long)n, fm_plural(n));
    }
}

/* Counts a job that took `seconds`. Jobs that are left count as average ones; ranks make several at
 * a time. */
static void count_job(command *c, const fm_cofold_job *job, double seconds, bool is_made) {
    fm_predict_pace *pace = &c->pace;
    char rate[64];
    pace->n_done++;
    pace->elapsed_s = (double)(fm_clock_ns() - c->begin_ns) * 1e-9;
    if (is_made) {
        c->made_s += seconds;
        c->n_made++;
    } else {
        pace->n_resumed++;
    }
    const double each = c->set->ranks.n_rank > 1 ? pace->elapsed_s : c->made_s;
    pace->left_s =
        c->n_made ? each / c->n_made * (double)(pace->n_all - pace->n_done) : (double)NAN;
    if (c->set->quiet || pace->n_all == 1) return;
    fprintf(stderr, "%llu/%llu  %s  %.2f s%s\n", (unsigned long long)pace->n_done,
            (unsigned long long)pace->n_all, job->path, seconds,
            fm_predict_format_pace(pace, rate));
}

/* -- alone */

static fm_status make_seeds(command *c, uint32_t job, fm_cofold_complex *complex,
                            fm_error *reterr) {
    const char *path = c->jobs.job[job].path;
    fm_status status = fm_cofold_input_read(path, &complex->input, reterr);
    fm_error why = {0};
    fm_status named = take_name(c, job, complex->input.name, &why);
    if (!status && named) {
        status = named;
        *reterr = why;
        fm_error_in(reterr, path);
    }
    if (!status) status = fm_cofold_complex_begin(&c->work, path, true, complex, reterr);
    for (uint32_t i = 0; i < complex->n_seed && !status; i++)
        status = fm_cofold_complex_make(&c->work, complex, i, reterr);
    return status ? status : finish(c, job, complex, reterr);
}

/* Predicts a job. An error of the job is reported, and has a row. */
static fm_status predict_job(command *c, uint32_t job, fm_error *reterr) {
    fm_cofold_work *w = &c->work;
    fm_error error = {0};
    fm_cofold_complex complex = {.results = NULL};
    const uint64_t n_new = w->n_structure - w->n_resumed, begin_ns = fm_clock_ns();
    fm_status status = make_seeds(c, job, &complex, &error);
    fm_cofold_complex_release(&complex);
    c->counts->n_structure = w->n_structure;
    c->counts->n_resumed = w->n_resumed;
    if (status && !fm_cofold_is_of_input(status)) {
        if (status != FM_ERR_CANCELLED) *reterr = error;
        return status;
    }
    const bool is_made = !status && w->n_structure - w->n_resumed > n_new;
    if (!status) c->counts->n_done++;
    fm_status noted = status ? note_failed(c, job, &error, reterr) : FM_OK;
    count_job(c, &c->jobs.job[job], (double)(fm_clock_ns() - begin_ns) * 1e-9, is_made);
    return noted;
}

static fm_status predict_alone(command *c, const fm_predict_model_options *options,
                               fm_predict_model *model, fm_error *reterr) {
    fm_status status = fm_cofold_work_load(&c->work, options, model, reterr);
    c->begin_ns = fm_clock_ns();
    for (uint32_t i = 0; i < c->jobs.n && !status; i++)
        if (c->jobs.job[i].path) status = predict_job(c, i, reterr);
    return status;
}

/* -- with ranks */

/* Counts the seeds of a job, and takes its name. A job without either has failed. */
static fm_status look_at_job(command *c, uint32_t job, fm_error *reterr) {
    const char *path = c->jobs.job[job].path;
    fm_cofold_input input;
    fm_error why = {0};
    fm_status status = fm_cofold_input_peek(path, &input, reterr);
    fm_status named = take_name(c, job, input.name, &why);
    if (!status && named) {
        status = named;
        *reterr = why;
        fm_error_in(reterr, path);
    }
    if (!status) (void)fm_cofold_seeds(&c->work, &input, &c->n_seed[job]);
    c->state[job].n_left = c->n_seed[job];
    fm_cofold_input_release(&input);
    return status;
}

static fm_status look_at_jobs(command *c, fm_error *reterr) {
    fm_status status = FM_OK;
    for (uint32_t i = 0; i < c->jobs.n && !status; i++) {
        fm_error error = {0};
        if (!c->jobs.job[i].path) continue;
        fm_status found = look_at_job(c, i, &error);
        if (found && !fm_cofold_is_of_input(found)) {
            *reterr = error;
            return found;
        }
        if (!found) continue;
        status = note_failed(c, i, &error, reterr);
        count_job(c, &c->jobs.job[i], 0, false);
    }
    return status;
}

/* Compares the structures that ranks have made of a job. */
static fm_status gather(command *c, uint32_t job, fm_error *reterr) {
    const char *path = c->jobs.job[job].path;
    fm_cofold_complex complex = {.results = NULL};
    fm_status status = fm_cofold_input_read(path, &complex.input, reterr);
    if (!status) status = fm_cofold_complex_begin(&c->work, path, false, &complex, reterr);
    if (!status) status = fm_cofold_complex_gather(&c->work, &complex, reterr);
    if (!status) status = finish(c, job, &complex, reterr);
    fm_cofold_complex_release(&complex);
    return status;
}

static fm_status end_job(command *c, uint32_t job, fm_error *reterr) {
    job_state *state = &c->state[job];
    const bool has_failed = state->failed != UINT32_MAX;
    fm_status status = has_failed ? note_failed(c, job, &state->error, reterr) : FM_OK;
    if (!has_failed) {
        status = gather(c, job, reterr);
        c->counts->n_done++;
    }
    count_job(c, &c->jobs.job[job], state->seconds,
              !has_failed && state->n_structure > state->n_resumed);
    return status;
}

static fm_status take_report(void *context, const fm_cofold_report *r, fm_error *reterr) {
    command *c = context;
    if (r->job >= c->jobs.n || c->state[r->job].n_left == 0) {
        return fm_fail(reterr, FM_ERR_PROTOCOL, "a rank reported a seed of job %u of %u", r->job,
                       c->jobs.n);
    }
    job_state *state = &c->state[r->job];
    c->work.weights = r->weights;
    c->counts->n_structure += r->n_structure;
    c->counts->n_resumed += r->n_resumed;
    state->n_structure += r->n_structure;
    state->n_resumed += r->n_resumed;
    state->seconds += r->seconds;
    if (r->status && r->seed < state->failed) {
        state->failed = r->seed;
        state->error = r->error;
    }
    return --state->n_left ? FM_OK : end_job(c, r->job, reterr);
}

static fm_status predict_with_ranks(command *c, fm_error *reterr) {
    c->begin_ns = fm_clock_ns();
    fm_status status = look_at_jobs(c, reterr);
    if (status || c->pace.n_done == c->pace.n_all) return status;
    return fm_cofold_ranks_run(&c->set->ranks, &c->jobs, c->n_seed, take_report, c, reterr);
}

/* -- the command */

static void print_outputs(const command *c, double all_s) {
    const fm_cofold_counts *n = c->counts;
    printf("outputs   %s/summary.csv, %u complex%s", c->set->out, n->n_done,
           n->n_done == 1 ? "" : "es");
    if (n->n_resumed) {
        printf(" (%llu structure%s done earlier)", (unsigned long long)n->n_resumed,
               fm_plural(n->n_resumed));
    }
    if (n->n_failed) printf(", %u failed", n->n_failed);
    if (n->n_refused) printf(", %u refused", n->n_refused);
    printf(", %.1f s\n", all_s);
}

/* The table has the jobs in their order, whichever ended first. */
static fm_status write_summary(const command *c, fm_error *reterr) {
    char path[PATH_MAX];
    fm_text_file file;
    fm_status status = fm_text_file_open(&file, reterr);
    if (status) return status;
    fm_cofold_summary_begin(file.out);
    for (uint32_t i = 0; i < c->jobs.n; i++)
        fwrite(c->state[i].rows, 1, c->state[i].rows_bytes, file.out);
    snprintf(path, sizeof path, "%s/summary.csv", c->set->out);
    return fm_text_file_commit(&file, path, reterr);
}

static fm_status write_index(const command *c, fm_error *reterr) {
    char path[PATH_MAX];
    fm_complex_index_row *row = calloc((size_t)c->jobs.n + 1, sizeof *row);
    if (!row) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the page of all jobs");
    for (uint32_t i = 0; i < c->jobs.n; i++) {
        row[i] = c->state[i].shown;
        row[i].job = c->state[i].why ? c->state[i].called : c->state[i].name;
        row[i].why = c->state[i].why;
    }
    snprintf(path, sizeof path, "%s/index.html", c->set->out);
    fm_status status = fm_complex_index_write(path, row, c->jobs.n, FM_VERSION, reterr);
    free(row);
    return status;
}

static fm_status make_states(command *c, fm_error *reterr) {
    c->state = calloc(c->jobs.n + 1, sizeof *c->state);
    c->n_seed = calloc(c->jobs.n + 1, sizeof *c->n_seed);
    if (!c->state || !c->n_seed) {
        return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the list of jobs");
    }
    fm_status status = FM_OK;
    for (uint32_t i = 0; i < c->jobs.n && !status; i++) {
        const fm_cofold_job *job = &c->jobs.job[i];
        c->state[i].failed = UINT32_MAX;
        c->pace.n_all += job->path != NULL;
        if (job->path) continue;
        status = put_failed(&c->state[i], job->name, job->why, reterr);
        c->counts->n_refused++;
    }
    return status;
}

static void release(command *c) {
    for (uint32_t i = 0; i < c->jobs.n && c->state; i++) {
        free(c->state[i].rows);
        free(c->state[i].called);
        free(c->state[i].why);
    }
    free(c->state);
    free(c->n_seed);
    fm_cofold_work_end(&c->work);
    fm_cofold_jobs_release(&c->jobs);
}

fm_status fm_cofold_predict(const fm_predict_settings *set, const fm_predict_model_options *options,
                            fm_predict_model *model, fm_cofold_counts *ret_counts,
                            fm_error *reterr) {
    command c = {.set = set, .counts = ret_counts};
    const uint64_t begin_ns = fm_clock_ns();
    fm_status status = fm_cofold_work_make(set, model, NULL, &c.work, reterr);
    if (!status) status = fm_cofold_jobs_list(set, &c.jobs, reterr);
    if (!status) status = make_states(&c, reterr);
    if (!status) {
        status = set->ranks.n_rank > 1 ? predict_with_ranks(&c, reterr)
                                       : predict_alone(&c, options, model, reterr);
    }
    if (!status) status = write_summary(&c, reterr);
    if (!status) status = write_index(&c, reterr);
    if (status) {
        say_ended(&c, status);
    } else {
        print_outputs(&c, (double)(fm_clock_ns() - begin_ns) * 1e-9);
    }
    release(&c);
    return status;
}
