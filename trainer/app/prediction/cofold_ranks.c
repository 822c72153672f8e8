/* cofold_ranks.c: see cofold_ranks.h. */
#include "trainer/app/prediction/cofold_ranks.h"

#include "proto/base/histogram.h"
#include "trainer/app/common/stop.h"
#include "trainer/app/prediction/cofold_share.h"

#include <string.h>

/* -- in the command */

typedef struct reader {
    fm_status (*take)(void *context, const fm_cofold_report *report, fm_error *reterr);
    void *context;
} reader;

static fm_status take_record(void *context, const void *record, fm_error *reterr) {
    const reader *r = context;
    fm_cofold_report report;
    memcpy(&report, record, sizeof report);
    if (!report.signal) return r->take(r->context, &report, reterr);
    fm_stop_request(FM_STOP_SIGNAL, report.signal);
    return FM_OK;
}

fm_status fm_cofold_ranks_run(const fm_predict_ranks_options *options, const fm_cofold_jobs *jobs,
                              const uint32_t *n_seed,
                              fm_status (*take)(void *context, const fm_cofold_report *report,
                                                fm_error *reterr),
                              void *context, fm_error *reterr) {
    reader r = {take, context};
    const fm_predict_reports reports = {sizeof(fm_cofold_report), take_record, &r};
    fm_cofold_share *share;
    int code = 0;
    fm_status status = fm_cofold_share_make(jobs, n_seed, &share, reterr);
    if (status) return status;
    status = fm_predict_group_launch(options, &reports, &code, reterr);
    fm_cofold_share_close(share);
    if (!status && code) status = fm_fail(reterr, FM_ERR_CLOSED, "a rank has failed");
    if (!status && fm_stop_is_asked()) {
        status = fm_fail(reterr, FM_ERR_CANCELLED, "stopped on request");
    }
    return status;
}

/* -- in a rank */

typedef struct rank {
    fm_predict_group *group;
    fm_cofold_work work;
    fm_cofold_share *share;
    bool has_complex; /* `complex` is that of job `job` */
    uint32_t job;
    fm_cofold_complex complex;
} rank;

static void put_down(rank *r) {
    if (r->has_complex) fm_cofold_complex_release(&r->complex);
    r->has_complex = false;
}

/* Takes up the job of a unit, unless it is in hand. */
static fm_status take_up(rank *r, const fm_cofold_unit *unit, fm_error *reterr) {
    const char *path = fm_cofold_share_path(r->share, unit);
    if (r->has_complex && r->job == unit->job) return FM_OK;
    put_down(r);
    r->complex = (fm_cofold_complex){.results = NULL};
    fm_status status = fm_cofold_input_read(path, &r->complex.input, reterr);
    r->has_complex = true;
    r->job = unit->job;
    if (status) return status;
    return fm_cofold_complex_begin(&r->work, path, unit->seed == 0, &r->complex, reterr);
}

/* Predicts a unit. An error of the input is reported. */
static fm_status run_unit(rank *r, const fm_cofold_unit *unit, fm_error *reterr) {
    fm_cofold_work *w = &r->work;
    const uint64_t begin_ns = fm_clock_ns(), had = w->n_structure, had_resumed = w->n_resumed;
    fm_cofold_report report = {.job = unit->job, .seed = unit->seed, .weights = w->weights};
    fm_status status = take_up(r, unit, &report.error);
    if (!status) status = fm_cofold_complex_make(w, &r->complex, unit->seed, &report.error);
    if (status) {
        put_down(r);
        const bool is_shared = !w->has_failed_alone || !r->group->ranks;
        if (!fm_cofold_is_of_input(status) || !is_shared) {
            *reterr = report.error;
            return status;
        }
    }
    report.status = status;
    report.n_structure = (uint32_t)(w->n_structure - had);
    report.n_resumed = (uint32_t)(w->n_resumed - had_resumed);
    report.seconds = (double)(fm_clock_ns() - begin_ns) * 1e-9;
    if (r->group->place == 0) fm_predict_group_report(r->group, &report, sizeof report);
    return FM_OK;
}

static fm_status run_units(rank *r, fm_error *reterr) {
    for (;;) {
        uint32_t number = r->group->place == 0 ? fm_cofold_share_take(r->share) : 0;
        fm_status status = fm_predict_group_agree(r->group, &number, reterr);
        if (status || number == FM_COFOLD_NO_UNIT) return status;
        status = run_unit(r, fm_cofold_share_unit(r->share, number), reterr);
        if (status) return status;
    }
}

fm_status fm_cofold_rank_run(fm_predict_group *group, const fm_predict_settings *set,
                             const fm_predict_model_options *options, fm_predict_model *model,
                             fm_error *reterr) {
    rank r = {.group = group};
    fm_cofold_report stopped = {0};
    fm_status status = fm_cofold_work_make(set, model, group, &r.work, reterr);
    if (!status) status = fm_cofold_share_open(&r.share, reterr);
    if (!status) status = fm_cofold_work_load(&r.work, options, model, reterr);
    if (!status) status = run_units(&r, reterr);
    put_down(&r);
    status = fm_predict_group_end(group, status, &stopped.signal, reterr);
    if (stopped.signal && group->place == 0) {
        fm_predict_group_report(group, &stopped, sizeof stopped);
    }
    fm_cofold_work_end(&r.work);
    fm_cofold_share_close(r.share);
    return status;
}
