/* train_skip.c: see train_skip.h. */
#include "trainer/app/train/train_skip.h"

#include "proto/base/log.h"
#include "proto/base/plural.h"
#include "trainer/app/train/train_order.h"
#include "trainer/app/train/train_step.h"

#include <stdio.h>

/* The last sample of a step was skipped: makes the update with the samples that counted, if any,
 * and finishes the step. */
static fm_status close_step(fm_train_run *run, fm_error *reterr) {
    fm_status status = FM_OK;
    if (run->optimizer->pending > 0) {
        status = run->work->update(run, run->optimizer->pending, reterr);
    }
    run->is_torn = run->is_torn || status;
    if (status) return status;
    run->queued_step++;
    run->slot = 0;
    return fm_train_finish_step(run, fm_train_rate(run), reterr);
}

void fm_train_name_sample(uint64_t index, const char *name, fm_error *reterr) {
    char source[FM_ERROR_SOURCE_BYTES + 32];
    if (reterr->source[0] != '\0') return;
    snprintf(source, sizeof source, "sample %llu%s%s%s", (unsigned long long)index,
             name[0] ? " (" : "", name, name[0] ? ")" : "");
    (void)fm_error_in(reterr, source);
}

/* Prepares the command line that continues without the sample. */
static void advise_to_skip(fm_train_run *run, uint64_t index) {
    char more[64], command[FM_TRAIN_ADVICE_BYTES - 64];
    snprintf(more, sizeof more, "--skip-sample %llu", (unsigned long long)index);
    fm_train_options_advise(run->set, more, command, sizeof command);
    snprintf(run->advice, sizeof run->advice, "to go on without it: %s", command);
}

fm_status fm_train_note_skipped(fm_train_run *run, const fm_train_sample *sample,
                                const fm_error *why, fm_error *reterr) {
    const uint64_t index = sample->index;
    const char *name = sample->name;
    fm_status status = fm_skipped_add(&run->state.skipped, index, !why, reterr);
    if (!status) status = fm_train_order_deliver(run, sample, true, reterr);
    if (status) return status;
    char quoted[FM_ERROR_MESSAGE_BYTES];
    fm_log(FM_LOG_WARN, "sample_skipped", "sample=%llu%s%s why=%s", (unsigned long long)index,
           name[0] ? " chain=" : "", name,
           fm_log_quote(quoted, sizeof quoted, why ? why->message : "named on the command line"));
    if (run->state.sums.n_counted == 0) run->state.sums.index = index;
    return FM_OK;
}

fm_status fm_train_skip(fm_train_run *run, const fm_train_sample *sample, const fm_error *why,
                        fm_error *reterr) {
    fm_status status = fm_train_note_skipped(run, sample, why, reterr);
    if (status) return status;
    run->slot++;
    run->state.place.n_sample = run->slot;
    return run->slot == fm_train_batch(run) ? close_step(run, reterr) : FM_OK;
}

fm_status fm_train_judge(fm_train_run *run, const fm_train_sample *sample, fm_status status,
                         fm_error *reterr) {
    uint32_t n_bad = fm_skipped_bad(&run->state.skipped);
    if (fm_train_order_leaves_out(run, sample->step, sample->slot)) return FM_OK;
    if (run->set->skips_bad && n_bad < run->set->bad_sample_budget) return FM_OK;
    fm_train_name_sample(sample->index, sample->name, reterr);
    advise_to_skip(run, sample->index);
    if (run->set->skips_bad) {
        char why[FM_ERROR_MESSAGE_BYTES];
        snprintf(why, sizeof why, "%s", reterr->message);
        snprintf(reterr->message, sizeof reterr->message,
                 "%.250s; %u bad samples were skipped already, the budget", why, n_bad);
    }
    return status;
}

void fm_train_print_skipped(const fm_train_run *run) {
    const fm_skipped *skipped = &run->state.skipped;
    if (!skipped->n) return;
    printf("skipped   %u sample%s, %u of them bad\n", skipped->n, fm_plural(skipped->n),
           fm_skipped_bad(skipped));
}
