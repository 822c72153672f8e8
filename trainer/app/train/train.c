/* train.c: `foldmill train`; see train.h.
 *
 * A run has one of three kinds of work (train_work.h): samples of a server for AlphaFold2, and
 * those of a server or a folder for AlphaFold 3. This file is what they have in common: settings,
 * layout of ranks, files, the loop over steps, and the end.
 *
 * A step is a batch of fm_train_batch samples; the last one also makes the update. When the last
 * sample of a step is collected, fm_train_finish_step reports the step. fm_train_drain() collects
 * until a given number of samples is left in flight: everything before a checkpoint and at the end.
 *
 * run->state is the state at the last collected sample. It is whole between any two samples: the
 * sum of gradients of the batch in hand is in the trainer, and a checkpoint stores both. So a
 * signal, a lost server or a bad sample never costs a sample that was collected.
 */
#include "trainer/app/train/train.h"

#include "proto/base/directory.h"
#include "proto/base/log.h"
#include "proto/base/machine.h"
#include "proto/base/plural.h"
#include "proto/base/program.h"
#include "trainer/app/common/last_words.h"
#include "trainer/app/common/results_folder.h"
#include "trainer/app/common/stop.h"
#include "trainer/app/device/choose_device.h"
#include "trainer/app/ranks/launch.h"
#include "trainer/app/train/begin_from.h"
#include "trainer/app/train/check_samples.h"
#include "trainer/app/train/dry_run.h"
#include "trainer/app/train/supervise.h"
#include "trainer/app/train/train_complexes.h"
#include "trainer/app/train/train_order.h"
#include "trainer/app/train/train_rounds.h"
#include "trainer/app/train/train_run.h"
#include "trainer/app/train/train_save.h"
#include "trainer/app/train/train_scores.h"
#include "trainer/app/train/train_step.h"
#include "trainer/app/train/train_stored.h"
#include "trainer/app/train/train_stream.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_MISSED = 3 }; /* no score reached --stop-at */

static int show_config(const fm_train_options *set) {
    fm_train_config config;
    fm_error error;
    fm_status status = fm_train_config_load(set->preset, set->config, &config, &error);
    if (status) return fm_program_report(fm_train_program, &error);
    char text[FM_TRAIN_CONFIG_TEXT_BYTES];
    fm_train_config_format_all(&config, text);
    fputs(text, stdout);
    return FM_EXIT_OK;
}

static int help_config(void) {
    fm_train_config af2, af3;
    fm_error error;
    fm_status status = fm_train_config_preset("af2-initial", &af2, &error);
    if (!status) status = fm_train_config_preset("af3-initial", &af3, &error);
    if (status) return fm_program_report(fm_train_program, &error);
    static char text[FM_TRAIN_CONFIG_DOCUMENT_BYTES];
    fm_train_config_document(&af2, &af3, text);
    fputs(text, stdout);
    return FM_EXIT_OK;
}

static int check_samples(const fm_train_options *set) {
    fm_error error;
    uint32_t n_bad;
    fm_status status = fm_check_samples(set, &n_bad, &error);
    if (status) return fm_program_report(fm_train_program, &error);
    return n_bad ? FM_EXIT_FAILED : FM_EXIT_OK;
}

/* -- opening what a run needs */

/* What a run writes into its folder, beside checkpoints. */
enum { METRICS, LEDGER, SCORES, N_LEAF };
static const char *const leaves[N_LEAF] = {"metrics.jsonl", "ledger", "eval.jsonl"};

/* Only a run that evaluates writes scores. Other programs may write them before it begins. */
static bool writes(const fm_train_run *run, int leaf) {
    const bool is_af3 = run->config.network == FM_NETWORK_AF3;
    return leaf != SCORES || run->set->eval_samples || (is_af3 && run->set->eval_snapshot) ||
           fm_train_eval_every(run);
}

static const char has_run[] = "the folder has a run already; give --resume or another --out";

/* Old checkpoints are removed as a run goes on, so these would be lost. */
static fm_status refuse_checkpoints(const char *folder, fm_error *reterr) {
    fm_checkpoint_place place;
    char found[FM_CHECKPOINT_PATH_BYTES];
    fm_status status = fm_checkpoint_find(folder, FM_CHECKPOINT_END, &place, reterr);
    if (status) return status == FM_ERR_NOT_FOUND ? FM_OK : status;
    status = fm_checkpoint_path(folder, place, found, reterr);
    return status ? status : fm_fail_in(reterr, FM_ERR_EXISTS, found, has_run);
}

/* Refuses a folder with any of these files, unless the run resumes: they would be cut. */
static fm_status refuse_other_run(const fm_train_run *run, fm_error *reterr) {
    if (run->set->resume) return FM_OK;
    for (int i = 0; i < N_LEAF; i++) {
        char found[PATH_MAX];
        fm_path_kind kind;
        if (!writes(run, i)) continue;
        if (snprintf(found, sizeof found, "%s/%s", fm_train_folder(run), leaves[i]) >= PATH_MAX) {
            return fm_fail(reterr, FM_ERR_USAGE, "--out: the path is too long");
        }
        fm_status status = fm_path_look(found, &kind, reterr);
        if (status) return status;
        if (kind == FM_PATH_ABSENT) continue;
        return fm_fail_in(reterr, FM_ERR_EXISTS, found, has_run);
    }
    return refuse_checkpoints(fm_train_folder(run), reterr);
}

/* Loads the newest checkpoint if --resume is given and there is one. Otherwise begins with the
 * checkpoint of --from or with drawn parameters. */
static fm_status resume(fm_train_run *run, fm_error *reterr) {
    const fm_device *device = run->optimizer->kernels->device;
    char build[FM_MACHINE_BUILD_BYTES];
    fm_machine_build(build);
    char dp[16] = ""; /* one group needs no line */
    if (run->layout.dp > 1) snprintf(dp, sizeof dp, "%d", (int)run->layout.dp);
    const fm_identity identity = {.program = FM_VERSION,
                                  .build = build,
                                  .device = run->set->device,
                                  .processor = device->processor(),
                                  .library = device->library(),
                                  .dtype = run->set->dtype,
                                  .order = fm_train_order_name(run),
                                  .dp = dp,
                                  .batch_schedule =
                                      run->set->batch_schedule ? run->set->batch_schedule : ""};
    fm_identity_format(&identity, run->identity);
    fm_status status = FM_ERR_NOT_FOUND;
    if (run->set->resume) {
        fm_resume_options options = fm_train_resume_options(run);
        status = fm_resume_load(&options, run->optimizer, &run->state, reterr);
    }
    if (status == FM_ERR_NOT_FOUND && run->set->from) {
        status = fm_begin_from(run->set->from, run->optimizer->params, reterr);
    } else if (status == FM_ERR_NOT_FOUND) {
        status = FM_OK;
    }
    for (uint32_t i = 0; !status && i < run->set->skip_sample.n; i++) {
        uint64_t index;
        status = fm_train_options_index(run->set->skip_sample.value[i], &index, reterr);
        if (!status) status = fm_skipped_add(&run->state.skipped, index, true, reterr);
    }
    if (!status) status = fm_train_order_find_batches(run, reterr);
    run->first = run->state.place;
    run->queued_step = run->state.place.step;
    run->slot = run->state.place.n_sample;
    return status;
}

static void announce(const fm_train_run *run) {
    char text[512];
    run->work->describe(run, text, sizeof text);
    const fm_device *device = run->optimizer->kernels->device;
    fprintf(stderr, "model     preset %s: %s\n", run->set->preset, text);
    if (device->is_asynchronous) {
        fprintf(stderr, "device    %s; %s\n", device->processor(), device->library());
    }
    if (run->ranks) {
        fprintf(stderr, "ranks     %d: dap %d, bp %d, dp %d\n", (int)fm_layout_ranks(&run->layout),
                (int)run->layout.dap, (int)run->layout.bp, (int)run->layout.dp);
    }
    run->work->announce(run);
    if (run->set->batch_schedule) fprintf(stderr, "batches   %s\n", run->set->batch_schedule);
    if (run->state.place.n_sample) {
        fprintf(stderr, "batch     %u samples of step %llu are done already\n",
                run->state.place.n_sample, (unsigned long long)run->state.place.step + 1);
    }
    if (run->set->resume && !run->state.place.step && !run->state.place.n_sample) {
        fprintf(stderr, "resume    %s has no checkpoint: a new run begins\n", run->set->out);
    }
    if (run->state.place.step >= run->set->steps) {
        fprintf(stderr, "steps     %llu are done already; --steps %llu needs no more\n",
                (unsigned long long)run->state.place.step, (unsigned long long)run->set->steps);
    }
}

/* -- a run */

/* Whether the run began the folder, and has not finished a sample yet. */
static bool has_nothing(const fm_train_run *run) {
    const fm_checkpoint_place place = run->state.place;
    fm_checkpoint_place saved;
    return fm_train_is_first(run) && run->lock.fd >= 0 && !run->set->resume &&
           !fm_train_has_saved(run, &saved) && !place.step && !place.n_sample;
}

static void summarize(const fm_train_run *run) {
    const uint64_t n_here = run->state.place.step - run->first.step;
    const double seconds = fm_train_seconds_since(run->start_ns);
    fm_checkpoint_place saved;
    printf("steps     %llu in %.2f s, %.3f s per step", (unsigned long long)n_here, seconds,
           n_here ? seconds / (double)n_here : 0.0);
    if (run->first.step) printf(", resumed at step %llu", (unsigned long long)run->first.step);
    printf("\n");
    run->work->summarize(run);
    fm_train_steps_print_losses(run);
    if (has_nothing(run)) return;
    printf("outputs   %s/metrics.jsonl", run->set->out);
    if (fm_train_has_saved(run, &saved)) {
        printf(", checkpoint of step %llu", (unsigned long long)saved.step);
        if (saved.n_sample) printf(" and %u sample%s", saved.n_sample, fm_plural(saved.n_sample));
    }
    printf("\n");
}

/* The folder is looked at once more under the lock, since another run may have come and gone. */
static fm_status open_outputs(fm_train_run *run, fm_error *reterr) {
    const fm_train_options *set = run->set;
    const uint64_t n_step = run->state.place.step;
    fm_metrics_kept kept = {.n = 0};
    char metrics_path[PATH_MAX];
    fm_status status = fm_folder_lock_take(set->out, &run->lock, reterr);
    if (!status && (status = refuse_other_run(run, reterr))) {
        fm_folder_lock_end(set->out, &run->lock); /* so that close_outputs removes nothing */
    }
    if (!status && snprintf(metrics_path, PATH_MAX, "%s/%s", fm_train_folder(run),
                            leaves[METRICS]) >= PATH_MAX) {
        status = fm_fail(reterr, FM_ERR_USAGE, "--out: the path is too long");
    }
    if (!status) status = fm_metrics_truncate(metrics_path, n_step, &kept, reterr);
    if (!status && kept.n != n_step) {
        fm_log(FM_LOG_WARN, "metrics_incomplete",
               "path=%s/%s rows=%llu steps=%llu why=\"rows are damaged or were removed\"", set->out,
               leaves[METRICS], (unsigned long long)kept.n, (unsigned long long)n_step);
    }
    if (!status) status = fm_train_order_open_ledger(run, reterr);
    return status ? status : fm_train_steps_open(run, metrics_path, reterr);
}

/* Closes the files of the run. Those of one that failed or was stopped in its first sample are
 * removed, so that the same command can be given again. */
static void close_outputs(fm_train_run *run, bool is_cut_short) {
    bool forgets = is_cut_short && has_nothing(run);
    fm_train_steps_destroy(run, forgets);
    fm_train_order_destroy(run);
    char path[PATH_MAX];
    for (int i = 0; forgets && i < N_LEAF; i++) {
        int n = snprintf(path, sizeof path, "%s/%s", fm_train_folder(run), leaves[i]);
        if (writes(run, i) && n < PATH_MAX) unlink(path);
    }
}

/* Prepares everything that can fail before the first step, in an order that leaves nothing on disk
 * of a run that never began. */
static fm_status begin(fm_train_run *run, fm_error *reterr) {
    const fm_kernels *kernels = NULL;
    bool is_first = fm_train_is_first(run);
    fm_status status = is_first ? fm_train_folder_check(run->set->out, reterr) : FM_OK;
    if (!status && is_first) status = refuse_other_run(run, reterr);
    if (!status) status = fm_train_order_find(run, reterr);
    if (!status) status = fm_device_find(run->set->device, run->set->dtype, &kernels, reterr);
    if (!status && run->ranks) fm_ranks_stay_near(kernels);
    if (run->ranks) status = fm_train_rounds_share(run, status, reterr);
    if (status) return status;
    fm_train_end_phase(run, FM_START_DEVICE);
    status = run->work->create(run, kernels, reterr);
    if (!status) status = resume(run, reterr);
    fm_train_end_phase(run, FM_START_MODEL);
    if (!status) status = run->work->open(run, reterr);
    fm_train_end_phase(run, FM_START_DATA);
    if (run->ranks) status = fm_train_rounds_compare(run, status, reterr);
    if (!status && run->ranks) status = fm_train_rounds_prepare(run, reterr);
    if (!status && is_first) status = open_outputs(run, reterr);
    if (!status && is_first) status = run->work->start(run, reterr);
    return run->ranks ? fm_train_rounds_share(run, status, reterr) : status;
}

/* Whether a signal came before all was done; of the last step the evaluation may be left. */
static bool was_stopped(const fm_train_run *run) {
    return fm_stop_signal() && (run->state.place.step < run->set->steps || run->is_cut_short);
}

/* Says that the run stopped because it was asked to. */
static void say_stopped(const fm_train_run *run) {
    char place[128];
    fm_checkpoint_place saved;
    fm_train_describe_place(run, place, sizeof place);
    fprintf(stderr, "%s: stopped by %s %s%s\n", fm_train_program, fm_stop_name(fm_stop_signal()),
            place, fm_train_has_saved(run, &saved) ? "; --resume continues" : "");
}

/* Goes forward by a sample or a round. Several ranks agree on a checkpoint before the round. */
static fm_status advance(fm_train_run *run, fm_error *reterr) {
    if (run->ranks) return fm_train_rounds_advance(run, reterr);
    fm_status status = run->work->advance(run, reterr);
    return status ? status : fm_train_save(run, fm_train_wants_checkpoint(run), reterr);
}

/* Makes the steps that are left, after what is left of the step before them. */
static fm_status make_steps(fm_train_run *run, fm_error *reterr) {
    fm_status status = run->work->make_up ? run->work->make_up(run, reterr) : FM_OK;
    status = fm_train_rounds_agree_to_fail(run, status);
    while (!status && run->queued_step < run->set->steps) {
        fm_train_scores_look(run);
        if (!run->ranks && fm_stop_is_asked()) break; /* several ranks agree on it */
        status = advance(run, reterr);
        /* A sample that is skipped now may leave the last step open. */
        if (!status && run->queued_step >= run->set->steps) status = fm_train_drain(run, 0, reterr);
    }
    run->is_cut_short = status == FM_ERR_CANCELLED;
    if (run->is_cut_short) status = FM_OK;
    if (!status) return fm_train_drain(run, 0, reterr);
    fm_error later; /* the first error is the one to report */
    fm_status ignored = fm_train_drain(run, 0, &later);
    (void)ignored;
    return status;
}

static fm_status train(fm_train_run *run, fm_error *reterr) {
    bool is_first = fm_train_is_first(run);
    run->queue.collect = run->ranks ? fm_train_rounds_collect : run->work->collect;
    fm_status status = begin(run, reterr);
    if (status) return status == FM_ERR_CANCELLED ? FM_OK : status;
    if (is_first) announce(run);
    fm_last_words_say_begun();
    fm_train_steps_begin(run, run->set->quiet || !is_first);
    fm_train_end_phase(run, FM_START_CHECKS);
    run->start_ns = fm_clock_ns();
    fm_train_saves_begin(run);
    status = make_steps(run, reterr);
    if (!is_first) return status;
    /* When ranks are lost, this one may hold a part of a sum. */
    run->is_torn = run->is_torn || (status && run->ranks && !fm_train_rounds_is_agreed(run));
    status = fm_train_save_last(run, status, reterr);
    /* The first error is the one to report; the log has the other one. */
    fm_status rows = fm_train_sync_metrics(run, status ? NULL : reterr);
    if (!status) status = rows;
    fm_train_steps_end(run);
    summarize(run);
    fm_train_scores_end(run, status);
    if (!status && was_stopped(run)) say_stopped(run);
    return status;
}

/* -- ranks */

/* Checks how the ranks are to share the work, as far as that can be said before they meet. */
static fm_status check_layout(const fm_train_run *run, int32_t n_rank, fm_error *reterr) {
    const fm_layout *layout = &run->layout;
    const int32_t of_sample = layout->dap * layout->bp;
    if (n_rank % of_sample != 0) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "%d ranks cannot be divided into groups of dap * bp = %d * %d", (int)n_rank,
                       (int)layout->dap, (int)layout->bp);
    }
    if (layout->dp > run->config.data.global_batch) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "%d groups of ranks cannot share a step of %lld sample%s; raise [data] "
                       "global_batch, or let more ranks share a sample (--dap)",
                       (int)layout->dp, (long long)run->config.data.global_batch,
                       fm_plural((uint64_t)run->config.data.global_batch));
    }
    fm_status status = fm_layout_check(layout, reterr);
    return status || n_rank == 1 ? status : fm_train_order_check_batches(run, reterr);
}

/* The kind of work that the network and the source of samples choose. */
static const fm_train_work *work_of(const fm_train_options *set, const fm_train_config *config) {
    if (config->network != FM_NETWORK_AF3) return &fm_train_stream_work;
    return set->samples ? &fm_train_stored_work : &fm_train_complexes_work;
}

/* Finds how many ranks the run has, and how they share the work. */
static fm_status find_layout(fm_train_run *run, int32_t n_world, int32_t *ret_n, fm_error *reterr) {
    const fm_train_options *set = run->set;
    fm_train_config *config = &run->config;
    if (set->ranks && set->gpus) {
        return fm_fail(reterr, FM_ERR_USAGE, "--ranks is for CPUs and --gpus for GPUs: give one");
    }
    if (set->gpus && strcmp(set->device, "cpu") == 0) {
        return fm_fail(reterr, FM_ERR_USAGE, "--gpus needs --device cuda");
    }
    fm_status status = fm_train_config_load(set->preset, set->config, config, reterr);
    if (status) return status;
    run->work = work_of(set, config);
    status = fm_train_order_set_batches(run, reterr);
    if (status) return status;
    if (set->dap) config->parallel.dap = (int32_t)set->dap;
    if (set->bp) config->parallel.bp = (int32_t)set->bp;
    const int32_t of_sample = config->parallel.dap * config->parallel.bp;
    const int32_t given = (int32_t)(set->ranks ? set->ranks : set->gpus);
    if (given && n_world > 1 && given != n_world) {
        return fm_fail(reterr, FM_ERR_USAGE, "--ranks %d, but %d processes were started",
                       (int)given, (int)n_world);
    }
    int32_t n_rank = n_world > 1 ? n_world : given ? given : of_sample;
    run->layout = (fm_layout){config->parallel.dap, config->parallel.bp, n_rank / of_sample};
    *ret_n = n_rank;
    status = check_layout(run, n_rank, reterr);
    return status ? status : run->work->check(run, reterr);
}

/* Variables that are left from another job must not be obeyed in silence. */
static void say_launcher(const fm_train_options *set, const fm_world *world) {
    const uint64_t given = set->ranks ? set->ranks : set->gpus;
    if (!given || strcmp(world->launcher, fm_world_own_launcher) == 0) return;
    fprintf(
        stderr,
        "%s: the variables of %s make this process rank %d of %d, so %s %llu starts no others\n",
        fm_train_program, world->launcher, (int)world->rank, (int)world->size,
        set->ranks ? "--ranks" : "--gpus", (unsigned long long)given);
}

/* Trains as the only process, as one of several, or starts several. */
static fm_status train_in_place(fm_train_run *run, int *ret_code, fm_error *reterr) {
    const fm_train_options *set = run->set;
    bool is_rank;
    fm_world world = {.size = 1};
    int32_t n_rank;
    fm_status status = set->meet ? fm_meeting_check_address(set->meet, reterr) : FM_OK;
    if (!status) status = fm_world_find(set->meet, &is_rank, &world, reterr);
    if (!status) status = find_layout(run, is_rank ? world.size : 1, &n_rank, reterr);
    if (status) return status;
    if (set->dry_run) return fm_dry_run(run, reterr);
    if (is_rank) say_launcher(set, &world);
    world.crosses_hosts = set->crosses_hosts;
    world.patience_s = (double)set->patience_s;
    status = run->work->find(run, is_rank, reterr);
    if (status == FM_ERR_CANCELLED) *ret_code = 128 + fm_stop_signal();
    if (status) return status == FM_ERR_CANCELLED ? FM_OK : status;
    if (n_rank > 1 && !is_rank) {
        const fm_launch_options options = {.program = fm_train_program,
                                           .argc = set->argc,
                                           .argv = set->argv,
                                           .n_rank = n_rank,
                                           .meets = n_rank,
                                           .divides = set->gpus == 0,
                                           .began_ns = run->start.began_ns};
        fm_stop_catch(true);
        return fm_launch(&options, ret_code, reterr);
    }
    fm_stop_catch(!is_rank);
    if (world.began_ns) run->start = fm_start_phases_from(world.began_ns);
    fm_train_end_phase(run, FM_START_COMMAND);
    if (is_rank) {
        fm_world_put_gpu_first(&world);
        if (world.rank > 0) fm_log_set_level(FM_LOG_ERROR); /* the first rank speaks for all */
        status = fm_train_rounds_create(run, reterr);
        if (status) return status;
        status = fm_ranks_open(fm_train_program, &world, &run->layout, &run->ranks, reterr);
        if (status == FM_ERR_CANCELLED) {
            if (world.rank == 0) fprintf(stderr, "%s: %s\n", fm_train_program, reterr->message);
            *ret_code = 128 + fm_stop_signal();
            return FM_OK;
        }
        if (status) return status;
        fm_train_end_phase(run, FM_START_MEETING);
    }
    status = train(run, reterr);
    if (!status && was_stopped(run)) {
        *ret_code = 128 + fm_stop_signal();
    } else if (!status && fm_train_has_missed_target(run)) {
        *ret_code = EXIT_MISSED;
    }
    return status;
}

/* Reports the error of a run, also to the process that supervises it. */
static int report(const fm_error *error) {
    char why[FM_ERROR_TEXT_BYTES];
    fm_error_format(error, why, sizeof why);
    fm_last_words_say_why(why);
    return fm_program_report(fm_train_program, error);
}

/* Reports the error of one of several ranks: what all know, the first one says. */
static int report_rank(fm_train_run *run, const fm_error *error) {
    const bool is_agreed = fm_train_rounds_is_agreed(run);
    if (!is_agreed) fm_ranks_fail(run->ranks, error);
    if (is_agreed && fm_train_is_first(run)) return report(error);
    return error->status == FM_ERR_USAGE ? FM_EXIT_USAGE : FM_EXIT_FAILED;
}

static fm_status create_parts(fm_train_run *run, fm_error *reterr) {
    fm_status status = fm_train_order_create(run, reterr);
    if (!status) status = fm_train_steps_create(run, reterr);
    if (!status) status = fm_train_saves_create(run, reterr);
    return status ? status : fm_train_scores_create(run, reterr);
}

int fm_train_main(int argc, char **argv) {
    const uint64_t began_ns = fm_clock_ns();
    fm_train_options set;
    fm_error error = {.status = FM_OK};
    fm_status status = fm_train_options_parse(&set, argc, argv, &error);
    if (status) {
        return status == FM_ERR_CANCELLED ? FM_EXIT_OK
                                          : fm_program_report(fm_train_program, &error);
    }
    if (set.show_config) return show_config(&set);
    if (set.help_config) return help_config();
    if (set.check_samples) return check_samples(&set);
    int code = FM_EXIT_OK;
    if (set.supervises && !set.dry_run && !fm_last_words_are_heard()) {
        status = fm_supervise(&set, &code, &error);
        return status ? fm_program_report(fm_train_program, &error) : code;
    }
    fm_train_run *run = calloc(1, sizeof *run);
    if (!run) {
        fm_fail(&error, FM_ERR_NOMEM, "no memory for a run");
        return fm_program_report(fm_train_program, &error);
    }
    run->set = &set;
    run->lock.fd = -1;
    run->start = fm_start_phases_from(began_ns);
    status = create_parts(run, &error);
    if (!status) status = train_in_place(run, &code, &error);
    if (status) code = run->ranks ? report_rank(run, &error) : report(&error);
    bool is_first = fm_train_is_first(run);
    if (status && is_first && run->advice[0]) {
        fprintf(stderr, "%s: %s\n", fm_train_program, run->advice);
    }
    if (run->ranks && (!status || fm_train_rounds_is_agreed(run))) fm_ranks_leave(run->ranks);
    fm_train_scores_destroy(run);
    if (run->work) run->work->stop(run);
    close_outputs(run, status || fm_stop_signal());
    fm_folder_lock_end(set.out, &run->lock);
    fm_train_saves_destroy(run);
    fm_train_rounds_destroy(run);
    fm_ranks_close(run->ranks);
    free(run);
    return code;
}
