/* follow_run.c: see follow_run.h. */
#include "trainer/app/evaluation/follow_run.h"

#include "proto/base/file.h"
#include "proto/base/histogram.h"
#include "proto/base/log.h"
#include "trainer/app/common/stop.h"
#include "trainer/metrics/appender.h"
#include "trainer/metrics/event_file.h"

#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LOOK_MS = 100, LINE_BYTES = 4096 };

typedef struct follower {
    const fm_chain_scorer_options *options;
    char folder[4096], lines_path[4096];
    fm_chain_scorer *scorer; /* NULL until the first checkpoint comes */
    fm_appender *lines;
    fm_event_file *events;
    uint64_t last_step; /* of the newest line; 0: none */
} follower;

fm_status fm_eval_find_oldest(const char *folder, fm_checkpoint_place *ret_place, uint32_t *ret_n,
                              fm_error *reterr) {
    fm_checkpoint_place before = FM_CHECKPOINT_END;
    *ret_n = 0;
    for (;;) {
        fm_checkpoint_place place;
        fm_status status = fm_checkpoint_find(folder, before, &place, reterr);
        if (status == FM_ERR_NOT_FOUND && *ret_n) return FM_OK;
        if (status) return status;
        *ret_place = before = place;
        ++*ret_n;
    }
}

/* -- opening */

static double wall_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static fm_status open_follower(follower *f, const char *run, fm_error *reterr) {
    if (snprintf(f->folder, sizeof f->folder, "%s/eval", run) >= (int)sizeof f->folder ||
        snprintf(f->lines_path, sizeof f->lines_path, "%s/eval.jsonl", run) >=
            (int)sizeof f->lines_path) {
        return fm_fail_in(reterr, FM_ERR_USAGE, run, "the path is too long");
    }
    fm_metrics_kept kept;
    fm_status status = fm_dir_make(f->folder, reterr);
    /* Drops a line that a full disk or a crash left damaged. */
    if (!status) status = fm_metrics_truncate(f->lines_path, UINT64_MAX, &kept, reterr);
    if (!status) f->last_step = kept.last;
    if (!status) status = fm_appender_open(f->lines_path, &f->lines, reterr);
    if (!status) {
        status = fm_event_file_open(f->folder, true, f->last_step, wall_s(), &f->events, reterr);
    }
    return status;
}

static void close_follower(follower *f) {
    fm_chain_scorer_close(f->scorer);
    fm_appender_close(f->lines);
    fm_event_file_close(f->events);
}

/* -- a checkpoint */

/* Writes the line and the event of an evaluation. */
static fm_status write_results(follower *f, uint64_t step, const fm_eval_table *table,
                               const fm_eval_summary *s, double seconds, fm_error *reterr) {
    char line[LINE_BYTES], values[LINE_BYTES - 512];
    fm_eval_format_values(s, values, sizeof values);
    int bytes = snprintf(line, sizeof line,
                         "{\"step\":%llu,\"n_chain\":%u,\"n_failed\":%u,\"n_residue\":%llu%s,"
                         "\"eval_s\":%.3f,\"wall_s\":%.3f}\n",
                         (unsigned long long)step, s->n_chain, s->n_failed,
                         (unsigned long long)s->n_residue, values, seconds, wall_s());
    fm_status status = fm_appender_add(f->lines, line, (size_t)bytes, reterr);
    if (!status) status = fm_appender_sync(f->lines, reterr);
    static const char *const scores[FM_METRICS_SCORES] = {
        "lddt_ca", "lddt", "rmsd_ca", "drmsd_ca", "tm_score", "gdt_ts", "gdt_ha"};
    fm_metrics_step event = {.step = step,
                             .loss = fm_eval_value(s, "loss"),
                             .n_term = table->n_term,
                             .n_score = FM_METRICS_SCORES,
                             .grad_norm = NAN, /* not of an evaluation: NAN is left out */
                             .learning_rate = NAN,
                             .step_s = seconds,
                             .data_wait_s = NAN};
    for (uint32_t t = 0; t < table->n_term; t++) {
        event.term[t].name = table->term[t];
        event.term[t].value = fm_eval_value(s, table->term[t]);
    }
    for (int i = 0; i < FM_METRICS_SCORES; i++) {
        event.score[i].name = scores[i];
        event.score[i].value = fm_eval_value(s, scores[i]);
    }
    if (!status) status = fm_event_file_write(f->events, &event, wall_s(), reterr);
    return status ? status : fm_event_file_sync(f->events, reterr);
}

static void log_results(const fm_eval_summary *s, uint64_t step, double seconds) {
    fm_log(FM_LOG_INFO, "evaluated",
           "step=%llu lddt_ca=%.4f lddt=%.4f tm_score=%.4f plddt=%.2f chains=%u failed=%u s=%.1f",
           (unsigned long long)step, fm_eval_value(s, "lddt_ca"), fm_eval_value(s, "lddt"),
           fm_eval_value(s, "tm_score"), fm_eval_value(s, "plddt"), s->n_chain, s->n_failed,
           seconds);
}

static fm_status evaluate(follower *f, const char *path, fm_error *reterr) {
    uint64_t step, begin_ns = fm_clock_ns();
    fm_eval_table table = {.n = 0};
    fm_eval_summary summary;
    fm_status status = FM_OK;
    if (!f->scorer) status = fm_chain_scorer_open(f->options, path, &f->scorer, reterr);
    if (!status) status = fm_chain_scorer_load(f->scorer, path, &step, reterr);
    if (!status) status = fm_chain_scorer_run(f->scorer, NULL, NULL, &table, reterr);
    if (!status) status = fm_eval_summarise(&table, &summary, reterr);
    if (!status) {
        double seconds = (double)(fm_clock_ns() - begin_ns) * 1e-9;
        status = write_results(f, step, &table, &summary, seconds, reterr);
        if (!status) log_results(&summary, step, seconds);
        if (!status) f->last_step = step;
    }
    fm_eval_table_release(&table);
    return status;
}

/* Evaluates the checkpoint at that place and removes it. */
static fm_status take(follower *f, fm_checkpoint_place place, fm_error *reterr) {
    char path[FM_CHECKPOINT_PATH_BYTES];
    fm_status status = fm_checkpoint_path(f->folder, place, path, reterr);
    if (status) return status;
    if (place.step > f->last_step) status = evaluate(f, path, reterr);
    if (status == FM_ERR_CORRUPT) {
        char quoted[FM_ERROR_MESSAGE_BYTES];
        fm_log(FM_LOG_WARN, "evaluation_skipped", "step=%llu why=%s",
               (unsigned long long)place.step,
               fm_log_quote(quoted, sizeof quoted, reterr->message));
        status = FM_OK;
    }
    if (!status) unlink(path);
    return status;
}

fm_status fm_follow_run(const fm_chain_scorer_options *options, const char *run, fm_error *reterr) {
    follower f = {.options = options};
    fm_status status = open_follower(&f, run, reterr);
    while (!status) {
        fm_checkpoint_place place;
        uint32_t n;
        if (fm_stop_is_asked()) {
            status = fm_fail(reterr, FM_ERR_CANCELLED, "stopped on request");
            break;
        }
        status = fm_eval_find_oldest(f.folder, &place, &n, reterr);
        if (status == FM_ERR_NOT_FOUND) {
            status = FM_OK;
            poll(NULL, 0, LOOK_MS);
        } else if (!status) {
            status = take(&f, place, reterr);
        }
    }
    close_follower(&f);
    return status;
}
