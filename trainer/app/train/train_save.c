/* train_save.c: see train_save.h. */
#include "trainer/app/train/train_save.h"

#include "proto/base/log.h"
#include "proto/base/plural.h"
#include "trainer/app/common/stop.h"
#include "trainer/app/train/train_queue.h"
#include "trainer/app/train/train_scores.h"
#include "trainer/app/train/train_step.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

static const double save_again_s = 60; /* after a checkpoint that could not be written */

struct fm_train_saves {
    fm_checkpoint_place saved; /* the newest checkpoint, where is_saved */
    bool is_saved;
    uint64_t saved_ns, failed_ns; /* when one was made, or could not be; 0 = the last was */
    fm_train_state *last_step;    /* after the last whole step; NULL without several groups */
};

fm_status fm_train_saves_create(fm_train_run *run, fm_error *reterr) {
    run->saves = calloc(1, sizeof *run->saves);
    return run->saves ? FM_OK : fm_fail(reterr, FM_ERR_NOMEM, "no memory for a run");
}

void fm_train_saves_destroy(fm_train_run *run) {
    if (!run->saves) return;
    free(run->saves->last_step);
    free(run->saves);
    run->saves = NULL;
}

void fm_train_saves_begin(fm_train_run *run) {
    run->saves->saved_ns = run->start_ns;
}

fm_status fm_train_saves_keep_steps(fm_train_run *run, fm_error *reterr) {
    if (run->layout.dp == 1) return FM_OK;
    run->saves->last_step = malloc(sizeof *run->saves->last_step);
    if (!run->saves->last_step) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a step");
    fm_train_saves_note_step(run);
    return FM_OK;
}

void fm_train_saves_note_step(fm_train_run *run) {
    if (run->saves->last_step) *run->saves->last_step = run->state;
}

bool fm_train_has_saved(const fm_train_run *run, fm_checkpoint_place *ret_place) {
    *ret_place = run->saves->is_saved ? run->saves->saved : run->first;
    return run->saves->is_saved;
}

fm_resume_options fm_train_resume_options(const fm_train_run *run) {
    return (fm_resume_options){.folder = fm_train_folder(run),
                               .keep_last =
                                   fm_train_is_diverging(run) ? 0 : (uint32_t)run->set->keep_last,
                               .keep_every = run->set->keep_every,
                               .seed = run->set->seed,
                               .config = &run->config,
                               .identity = run->identity,
                               .change = run->set->change.value,
                               .n_change = run->set->change.n};
}

static bool is_same_place(fm_checkpoint_place a, fm_checkpoint_place b) {
    return a.step == b.step && a.n_sample == b.n_sample;
}

/* What a checkpoint of now would hold. */
static const fm_train_state *whole_state(const fm_train_run *run) {
    return run->saves->last_step ? run->saves->last_step : &run->state;
}

/* Nothing may be in flight. */
static fm_status save(fm_train_run *run, fm_error *reterr) {
    fm_train_saves *saves = run->saves;
    assert(run->queue.n_queued == run->queue.n_collected);
    fm_status rows = fm_train_sync_metrics(run, NULL);
    (void)rows; /* a checkpoint is worth more than its rows, whose trouble is in the log */
    fm_resume_options options = fm_train_resume_options(run);
    const fm_train_state *state = whole_state(run);
    fm_status status = fm_resume_save(&options, run->optimizer, state, reterr);
    saves->saved_ns = fm_clock_ns();
    saves->failed_ns = status ? saves->saved_ns : 0;
    if (!status) {
        saves->saved = state->place;
        saves->is_saved = true;
        fm_train_scores_offer(run, saves->saved);
    }
    return status;
}

static bool is_checkpoint_due(const fm_train_run *run) {
    const fm_train_options *set = run->set;
    const fm_train_saves *saves = run->saves;
    fm_checkpoint_place place = {run->queued_step, run->slot};
    if (saves->last_step) place = saves->last_step->place;
    if (!set->checkpoint_every) return false;
    if (saves->is_saved && is_same_place(place, saves->saved)) return false;
    if (saves->failed_ns) return fm_train_seconds_since(saves->failed_ns) >= save_again_s;
    bool by_step = run->slot == 0 && run->queued_step > run->first.step &&
                   (run->queued_step % set->checkpoint_every == 0 ||
                    fm_train_is_evaluated(run, run->queued_step));
    bool by_time = set->checkpoint_minutes > 0 &&
                   fm_train_seconds_since(saves->saved_ns) >= set->checkpoint_minutes * 60;
    return by_step || by_time;
}

unsigned fm_train_wants_checkpoint(fm_train_run *run) {
    bool is_due = fm_train_is_first(run) && is_checkpoint_due(run);
    return (is_due ? FM_TRAIN_SAVE_IS_DUE : 0) |
           (fm_stop_take_checkpoint() ? FM_TRAIN_SAVE_IS_ASKED : 0);
}

fm_status fm_train_save(fm_train_run *run, unsigned wants, fm_error *reterr) {
    bool asked = wants & FM_TRAIN_SAVE_IS_ASKED;
    if (!wants) return FM_OK;
    fm_status status = fm_train_drain(run, 0, reterr);
    if (status || !fm_train_is_first(run)) return status;
    fm_error error;
    status = save(run, &error);
    char path[FM_CHECKPOINT_PATH_BYTES], text[FM_ERROR_TEXT_BYTES], quoted[sizeof text];
    if (status) {
        fm_error_format(&error, text, sizeof text);
        fm_log(FM_LOG_WARN, "checkpoint_failed", "tried_again_after_s=%.0f why=%s", save_again_s,
               fm_log_quote(quoted, sizeof quoted, text));
    } else if (asked && !fm_checkpoint_path(run->set->out, run->saves->saved, path, NULL)) {
        fm_log(FM_LOG_INFO, "checkpoint", "asked_by=SIGUSR1 path=%s", path);
    }
    return FM_OK;
}

void fm_train_describe_place(const fm_train_run *run, char *out, size_t out_bytes) {
    fm_checkpoint_place place = run->state.place;
    int n = snprintf(out, out_bytes, "after step %llu of %llu", (unsigned long long)place.step,
                     (unsigned long long)run->set->steps);
    if (place.n_sample && n > 0 && (size_t)n < out_bytes) {
        snprintf(out + n, out_bytes - (size_t)n, " and %u sample%s", place.n_sample,
                 fm_plural(place.n_sample));
    }
}

/* Says where the run goes on, since its last checkpoint could not be written. */
static void advise_unsaved(fm_train_run *run) {
    fm_checkpoint_place at;
    (void)fm_train_has_saved(run, &at);
    if (at.step || at.n_sample) {
        snprintf(run->advice, sizeof run->advice,
                 "what came after step %llu is not saved; make room or mend it, and --resume "
                 "continues there",
                 (unsigned long long)at.step);
    } else {
        snprintf(run->advice, sizeof run->advice,
                 "no step is saved; make room or mend it, then run the command again");
    }
}

/* Whether there is a checkpoint of that place: this process has begun there or has written it. */
static bool is_stored(const fm_train_run *run, fm_checkpoint_place place) {
    const fm_train_saves *saves = run->saves;
    return is_same_place(place, run->first) ||
           (saves->is_saved && is_same_place(place, saves->saved));
}

fm_status fm_train_save_last(fm_train_run *run, fm_status status, fm_error *reterr) {
    fm_error error;
    fm_status saved = FM_OK;
    const fm_checkpoint_place whole = whole_state(run)->place;
    bool is_new = !is_stored(run, whole);
    if (run->set->checkpoint_every && is_new && !run->is_torn) saved = save(run, &error);
    if (!status) {
        if (saved) *reterr = error;
        if (saved) advise_unsaved(run);
        return saved;
    }
    char why[FM_ERROR_MESSAGE_BYTES], source[FM_ERROR_SOURCE_BYTES];
    char what[FM_ERROR_MESSAGE_BYTES] = "", place[128];
    snprintf(why, sizeof why, "%s", reterr->message);
    snprintf(source, sizeof source, "%s", reterr->source);
    fm_train_describe_place(run, place, sizeof place);
    bool is_whole = is_stored(run, whole);
    bool has_begun = run->state.place.step || run->state.place.n_sample;
    if (saved) {
        snprintf(what, sizeof what, "; the checkpoint cannot be written: %.150s", error.message);
    } else if (has_begun && is_whole) {
        snprintf(what, sizeof what, "; --resume continues from its checkpoint");
    }
    fm_fail(reterr, status, "%.250s, %s%.200s", why, place, what);
    return source[0] ? fm_error_in(reterr, source) : status;
}
