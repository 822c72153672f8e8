/* train_scores.c: see train_scores.h. */
#include "trainer/app/train/train_scores.h"

#include "proto/base/log.h"
#include "proto/supply.h"
#include "trainer/app/common/stop.h"
#include "trainer/app/evaluation/eval_child.h"
#include "trainer/app/samples/private_server.h"
#include "trainer/app/train/train_order.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEVICE_BYTES = 16, NUMBER_BYTES = 24, GPU_BYTES = 64, MOST_WORDS = 32 };

static const char visible_name[] = "CUDA_VISIBLE_DEVICES";

struct fm_train_scores {
    fm_eval_child *evaluator;  /* NULL without --eval-every, and on other ranks */
    fm_private_server *server; /* of its chains; NULL: another one's */
    bool has_missed_target;
};

fm_status fm_train_scores_create(fm_train_run *run, fm_error *reterr) {
    run->scores = calloc(1, sizeof *run->scores);
    return run->scores ? FM_OK : fm_fail(reterr, FM_ERR_NOMEM, "no memory for a run");
}

void fm_train_scores_destroy(fm_train_run *run) {
    if (!run->scores) return;
    fm_eval_child_stop(run->scores->evaluator);
    fm_private_server_stop(run->scores->server);
    free(run->scores);
    run->scores = NULL;
}

bool fm_train_has_missed_target(const fm_train_run *run) {
    return run->scores->has_missed_target;
}

uint64_t fm_train_eval_every(const fm_train_run *run) {
    return run->set->eval_every ? run->set->eval_every : (uint64_t)run->config.metrics.eval_every;
}

/* -- settings */

/* Where the evaluator computes. "cuda:N" is the N-th GPU that this process sees; it becomes the
 * child's only one. */
typedef struct place {
    char device[DEVICE_BYTES], gpu[GPU_BYTES];
    const char *dtype;
} place;

/* Copies word n of a list with commas; false when it has fewer. */
static bool find_word(const char *list, unsigned long n, char *out, size_t out_bytes) {
    for (; n > 0 && list; n--) {
        list = strchr(list, ',');
        list = list ? list + 1 : NULL;
    }
    if (!list || !*list) return false;
    snprintf(out, out_bytes, "%.*s", (int)strcspn(list, ","), list);
    return true;
}

static fm_status find_place(const fm_train_options *set, place *p, fm_error *reterr) {
    bool trains_on_cpu = strcmp(set->device, "cpu") == 0;
    const char *device = set->eval_device                   ? set->eval_device
                         : set->eval_share || trains_on_cpu ? set->device
                                                            : NULL;
    *p = (place){.dtype = "fp32"};
    if (!device) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "--eval-every: say where to evaluate: --eval-device cuda:1 (another GPU) or "
                       "cpu, or --eval-share on this GPU between steps");
    }
    const char *number = strncmp(device, "cuda:", 5) == 0 ? device + 5 : NULL;
    if (number) {
        char *end;
        unsigned long n = strtoul(number, &end, 10);
        const char *list = getenv(visible_name);
        bool is_number = *number >= '0' && *number <= '9' && !*end;
        if (!is_number || (list && !find_word(list, n, p->gpu, sizeof p->gpu))) {
            return fm_fail(reterr, FM_ERR_USAGE,
                           "--eval-device: found '%.32s', expected cpu, cuda or cuda:N of the GPUs "
                           "that this process sees",
                           device);
        }
        if (!list) snprintf(p->gpu, sizeof p->gpu, "%lu", n);
        device = "cuda";
    }
    bool on_cpu = strcmp(device, "cpu") == 0;
    if (!on_cpu && strcmp(device, "cuda") != 0) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "--eval-device: found '%.32s', expected cpu, cuda or cuda:N", device);
    }
    snprintf(p->device, sizeof p->device, "%s", device);
    p->dtype = set->eval_dtype ? set->eval_dtype : on_cpu ? "fp32" : set->dtype;
    return FM_OK;
}

fm_status fm_train_check_awaited_score(const fm_train_run *run, bool rises, const char *rising,
                                       fm_error *reterr) {
    const char *score = fm_train_order_awaited_score(run);
    if (!score[0]) return FM_OK;
    if (!rises) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "--batch-schedule: found the score '%.64s', expected one that rises: %s",
                       score, rising);
    }
    if (!fm_train_eval_every(run)) {
        fm_log(
            FM_LOG_WARN, "nobody_scores",
            "why=\"the batch schedule waits for %s in eval.jsonl, and --eval-every, which writes "
            "it, is not given\"",
            score);
    }
    return FM_OK;
}

fm_status fm_train_scores_check(const fm_train_run *run, fm_error *reterr) {
    const fm_train_options *set = run->set;
    place p;
    fm_status status = fm_train_check_awaited_score(
        run, fm_eval_child_is_rising(fm_train_order_awaited_score(run)),
        "lddt_ca, lddt, tm_score, gdt_ts, gdt_ha, plddt, "
        "lddt_ca_median, plddt_correlation",
        reterr);
    if (!status && set->stop_at) status = fm_eval_child_check_target(set->stop_at, reterr);
    if (status) return status;
    if (!fm_train_eval_every(run)) {
        if (!set->stop_at) return FM_OK;
        return fm_fail(reterr, FM_ERR_USAGE,
                       "--stop-at needs scores: give --eval-every N and --eval-snapshot NAME");
    }
    if (!set->eval_snapshot) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "--eval-every needs --eval-snapshot NAME, the chains to score (foldmill "
                       "snapshot create makes one)");
    }
    if (!set->checkpoint_every) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "--eval-every scores checkpoints, and --checkpoint-every 0 writes none");
    }
    if (run->config.model.structure.n_iteration == 0) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "--eval-every scores structures, and the model has no structure module "
                       "([model] n_structure_iteration = 0)");
    }
    return find_place(set, &p, reterr);
}

/* -- starting */

/* Finds the server of the chains, starts it where the run has a cache, and checks that it serves
 * them. */
static fm_status find_chains(fm_train_run *run, const char *data, const char **ret_url,
                             fm_error *reterr) {
    const fm_train_options *set = run->set;
    fm_status status = FM_OK;
    *ret_url = set->eval_data ? set->eval_data : data;
    if (!set->eval_data && set->cache) {
        const fm_private_server_options options = {
            .cache = set->cache, .snapshot = set->eval_snapshot, .cancel = &fm_stop_cancel};
        status = fm_private_server_start(&options, &run->scores->server, reterr);
        if (!status) *ret_url = fm_private_server_address(run->scores->server);
    }
    const fm_supply_options options = {.client = {.url = *ret_url,
                                                  .credentials = set->credentials,
                                                  .agent = fm_train_program,
                                                  .snapshot_name = set->eval_snapshot,
                                                  .retry_ms = (uint32_t)set->wait_ms,
                                                  .cancel = fm_stop_cancel}};
    if (!status) status = fm_supply_ask(&options, reterr);
    if (status == FM_ERR_LIMIT) status = FM_OK; /* it is full now; the evaluator asks again */
    if (status == FM_ERR_NOT_FOUND && !set->eval_data && !set->cache) {
        char text[FM_ERROR_MESSAGE_BYTES];
        snprintf(text, sizeof text, "%.300s", reterr->message);
        status = fm_fail(reterr, FM_ERR_NOT_FOUND,
                         "%s; serve it as well (foldmill serve --snapshot NAME), or give the "
                         "server that does, --eval-data",
                         text);
    }
    return status;
}

static void add(const char **words, uint32_t *n, const char *name, const char *value) {
    if (!value) return;
    assert(*n + 2 <= MOST_WORDS);
    words[(*n)++] = name;
    words[(*n)++] = value;
}

fm_status fm_train_scores_start(fm_train_run *run, const char *data, fm_error *reterr) {
    const fm_train_options *set = run->set;
    if (!fm_train_eval_every(run)) {
        if (set->eval_snapshot) {
            fm_log(FM_LOG_WARN, "nothing_scored",
                   "snapshot=%s why=\"--eval-every is not given, and eval_every of [metrics] is "
                   "0\"",
                   set->eval_snapshot);
        }
        return FM_OK;
    }
    place p;
    const char *url, *words[MOST_WORDS];
    char wait[NUMBER_BYTES], timeout[NUMBER_BYTES];
    uint32_t n = 0;
    fm_status status = find_place(set, &p, reterr);
    if (!status) status = find_chains(run, data, &url, reterr);
    if (status) return status;
    snprintf(wait, sizeof wait, "%llu", (unsigned long long)set->wait_ms);
    snprintf(timeout, sizeof timeout, "%llu", (unsigned long long)set->data_timeout_s);
    add(words, &n, "--data", url);
    add(words, &n, "--snapshot", set->eval_snapshot);
    add(words, &n, "--device", p.device);
    add(words, &n, "--dtype", p.dtype);
    add(words, &n, "--wait", wait);
    add(words, &n, "--data-timeout", timeout);
    add(words, &n, "--tls-cert", set->credentials.tls_cert);
    add(words, &n, "--tls-key", set->credentials.tls_key);
    add(words, &n, "--tls-ca", set->credentials.tls_ca);
    add(words, &n, "--token-file", set->credentials.token_file);
    if (set->credentials.is_insecure) words[n++] = "--insecure";
    const fm_eval_child_options options = {.run = set->out,
                                           .argument = words,
                                           .n_argument = n,
                                           .visible_gpu = p.gpu[0] ? p.gpu : NULL,
                                           .is_on_cpu = strcmp(p.device, "cpu") == 0,
                                           .target = set->stop_at,
                                           .last_step = run->state.place.step};
    return fm_eval_child_start(&options, &run->scores->evaluator, reterr);
}

/* -- while the run goes on */

bool fm_train_is_evaluated(const fm_train_run *run, uint64_t step) {
    uint64_t every = fm_train_eval_every(run);
    return every && (step % every == 0 || step >= run->set->steps);
}

void fm_train_scores_offer(fm_train_run *run, fm_checkpoint_place saved) {
    char path[FM_CHECKPOINT_PATH_BYTES];
    fm_eval_child *evaluator = run->scores->evaluator;
    if (!evaluator || saved.n_sample || !fm_train_is_evaluated(run, saved.step)) return;
    if (fm_checkpoint_path(run->set->out, saved, path, NULL)) return;
    fm_eval_child_take(evaluator, path, saved);
    if (run->set->eval_share) fm_eval_child_wait(evaluator, (double)run->set->eval_wait_s);
}

void fm_train_scores_look(fm_train_run *run) {
    if (!run->scores->evaluator || !run->set->stop_at) {
        if (run->scores->evaluator) fm_eval_child_look(run->scores->evaluator);
    } else if (fm_eval_child_look(run->scores->evaluator)) {
        fm_stop_request(FM_STOP_TARGET, 0);
    }
}

void fm_train_scores_end(fm_train_run *run, fm_status status) {
    if (!run->scores->evaluator) return;
    if (!status) fm_eval_child_wait(run->scores->evaluator, (double)run->set->eval_wait_s);
    const fm_eval_child_target *t = fm_eval_child_get_target(run->scores->evaluator);
    bool is_reached = fm_eval_child_look(run->scores->evaluator);
    if (is_reached) {
        printf("target    %s %g reached at step %llu (%.6g), %.1f s after the start\n", t->name,
               t->wanted, (unsigned long long)t->step, t->value,
               (double)(t->reached_ns - run->start_ns) * 1e-9);
    } else if (run->set->stop_at) {
        printf("target    %s %g not reached", t->name, t->wanted);
        if (isnan(t->value)) {
            printf("; no checkpoint was scored\n");
        } else {
            printf("; %.6g after step %llu\n", t->value, (unsigned long long)t->step);
        }
        run->scores->has_missed_target = !status && run->state.place.step >= run->set->steps;
    }
    if (run->scores->has_missed_target) {
        fprintf(stderr, "%s: --stop-at: no score reached %s %g in %llu steps\n", fm_train_program,
                t->name, t->wanted, (unsigned long long)run->set->steps);
    }
    fm_eval_child_stop(run->scores->evaluator);
    run->scores->evaluator = NULL;
}
