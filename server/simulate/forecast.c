/* forecast.c: see forecast.h. */
#include "server/simulate/forecast.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* -- the tables */

/* Steps of one sample on the GPUs of one host: H200, bf16, mean of 1 to 4 cycles. */
typedef struct step {
    const char *preset;
    int32_t dap, bp;
    fm_forecast_number ms, gib;
} step;

#define M(value)                                                                                   \
    { value, FM_FORECAST_MEASURED }
#define E(value)                                                                                   \
    { value, FM_FORECAST_EXTRAPOLATED }
#define NONE                                                                                       \
    { 0, FM_FORECAST_UNKNOWN }

static const step steps[] = {
    {"af2-initial", 1, 1, M(206.2), M(41)},    {"af2-initial", 2, 1, M(156.2), NONE},
    {"af2-initial", 1, 2, M(131.3), NONE},     {"af2-initial", 4, 1, M(126.0), NONE},
    {"af2-initial", 8, 1, E(125.0), NONE},     {"af2-finetuning", 1, 1, M(970), M(137.6)},
    {"af2-finetuning", 2, 1, E(566), NONE},    {"af2-finetuning", 4, 1, M(365), M(42.4)},
    {"af2-finetuning", 2, 2, M(417), M(47.3)}, {"af2-finetuning", 8, 1, E(290), NONE},
    {"af3-initial", 1, 1, M(678.1), M(101.5)}, {"af3-initial", 2, 1, M(567.8), NONE},
    {"af3-initial", 4, 1, M(455.2), NONE},     {"af3-initial", 8, 1, E(399), NONE},
};
enum { N_STEP = sizeof steps / sizeof steps[0] };

const char *const fm_forecast_presets[] = {"af2-initial", "af2-finetuning", "af3-initial", NULL};
static const double gradient_mb[] = {373, 373, 1470}; /* of each preset, f32 */
static const double sample_mb[] = {3.2, 0, 0};        /* on the wire; 0: not measured */

static const fm_forecast_network networks[] = {{"infiniband", 45}, {"ethernet", 1.4}};

const fm_forecast_schedule fm_forecast_schedules[] = {
    {"scalefold",
     "ScaleFold, initial training",
     10.0 / 24,
     {{"af2-initial", 128, 5000, 1056, "H100", 0.65},
      {"af2-initial", 256, 50000, 2080, "H100", 0.65}},
     2},
    {"fastfold",
     "FastFold, initial training and fine-tuning",
     67.0 / 24,
     {{"af2-initial", 128, 78125, 256, "A100", 2.487},
      {"af2-finetuning", 128, 11719, 512, "A100", 4.153}},
     2},
    {"helixfold",
     "HelixFold, initial training and fine-tuning",
     7.5,
     {{"af2-initial", 128, 78125, 128, "A100", 5.849},
      {"af2-finetuning", 128, 11719, 128, "A100", 16.654}},
     2},
    {NULL, NULL, 0, {{NULL, 0, 0, 0, NULL, 0}}, 0},
};

const fm_forecast_check fm_forecast_checks[] = {
    {"af2-initial", "2026-11-27", 1, 1, 2, 2, 213.1},
    {"af2-initial", "2026-11-27", 1, 1, 4, 4, 213.9},
    {"af2-initial", "2026-11-27", 2, 1, 4, 2, 159.9},
    {NULL, NULL, 0, 0, 0, 0, 0},
};

/* -- constants of the model */

static const double host_gb_s = 330, /* of a sum inside a host, measured on two GPUs */
    message_us = 1.5,                /* of each message to another host, assumed */
    step_words_ms = 3,               /* of each step with several groups, measured on two GPUs */
    tree_gb_s = 6;                   /* of a rank that passes words on, measured on one core */
enum { REPORT_BYTES = 568, TREE_WIDTH = 16 };

/* The slowest of so many GPUs; single ones differ by 2 %. */
static double straggler_of(int32_t gpus) {
    return gpus == 1 ? 1 : gpus <= 8 ? 1.01 : gpus <= 64 ? 1.02 : 1.03;
}

/* -- computing */

const char *fm_forecast_letter(fm_forecast_mark mark) {
    static const char *const letters[] = {"", "m", "p", "e"};
    return letters[mark];
}

bool fm_forecast_find_network(const char *text, fm_forecast_network *ret_network) {
    for (size_t i = 0; i < sizeof networks / sizeof networks[0]; i++) {
        if (strcmp(networks[i].name, text) != 0) continue;
        *ret_network = networks[i];
        return true;
    }
    char *end;
    const double gb_s = strtod(text, &end);
    if (end == text || *end || !(gb_s > 0) || gb_s > 1e6) return false;
    *ret_network = (fm_forecast_network){text, gb_s};
    return true;
}

static int number_of(const char *preset) {
    for (int i = 0; fm_forecast_presets[i]; i++)
        if (strcmp(fm_forecast_presets[i], preset) == 0) return i;
    return -1;
}

static const step *find_step(const char *preset, int32_t dap, int32_t bp) {
    for (int i = 0; i < N_STEP; i++) {
        const step *s = &steps[i];
        if (strcmp(s->preset, preset) == 0 && s->dap == dap && s->bp == bp) return s;
    }
    return NULL;
}

bool fm_forecast_layout(const char *preset, int i, int32_t *ret_dap, int32_t *ret_bp) {
    for (int k = 0; k < N_STEP; k++) {
        if (strcmp(steps[k].preset, preset) != 0 || i-- > 0) continue;
        *ret_dap = steps[k].dap;
        *ret_bp = steps[k].bp;
        return true;
    }
    return false;
}

/* One gather of the reports of all ranks along the tree of their hosts (trainer/dist/tree.h): each
 * level passes the bytes of all on to one child after another. */
static double gather_ms(const fm_forecast_plan *plan) {
    const int32_t hosts = (plan->gpus + plan->host_gpus - 1) / plan->host_gpus;
    double passes = plan->host_gpus - 1; /* to the other ranks of a host */
    for (int32_t left = hosts - 1; left > 0; left = (left - 1) / TREE_WIDTH)
        passes += left < TREE_WIDTH ? left : TREE_WIDTH;
    return passes * plan->gpus * REPORT_BYTES / (tree_gb_s * 1e6);
}

static double sum_ms(const fm_forecast_plan *plan, double gradients_mb, int32_t groups) {
    const bool is_one_host = plan->gpus <= plan->host_gpus;
    const double rate = is_one_host ? host_gb_s : plan->network_gb_s;
    const double ms = 2 * gradients_mb * (groups - 1) / groups / rate;
    if (is_one_host) return ms;
    /* Each rank of a sample sums a slice over the hosts, and gives it to the others of its host. */
    const int32_t of_sample = plan->dap * plan->bp;
    const double gathered_mb = gradients_mb * (of_sample - 1) / of_sample;
    return ms / of_sample + gathered_mb / host_gb_s + 2 * (groups - 1) * message_us * 1e-3;
}

static fm_status check(const fm_forecast_plan *plan, fm_error *reterr) {
    const int32_t of_sample = plan->dap * plan->bp;
    if (plan->gpus % of_sample != 0) {
        return fm_fail(reterr, FM_ERR_USAGE, "%d GPUs cannot be divided into groups of %d",
                       (int)plan->gpus, (int)of_sample);
    }
    if (plan->batch % (plan->gpus / of_sample) != 0) {
        return fm_fail(reterr, FM_ERR_USAGE, "%d groups do not divide a batch of %lld",
                       (int)(plan->gpus / of_sample), (long long)plan->batch);
    }
    return FM_OK;
}

/* Names what takes most of the time beside computing, if that is more than a twentieth. */
static const char *find_bound(const fm_forecast *f) {
    const double most = fmax(f->sum_ms, f->words_ms);
    if (most < 0.05 * f->step_ms.value) return "computing";
    return f->sum_ms >= f->words_ms ? "sum of gradients" : "words";
}

fm_status fm_forecast_compute(const fm_forecast_plan *plan, fm_forecast *ret_forecast,
                              fm_error *reterr) {
    const int preset = number_of(plan->preset);
    const step *s = find_step(plan->preset, plan->dap, plan->bp);
    if (preset < 0 || !s) {
        return fm_fail(reterr, FM_ERR_USAGE, "%s has no step with dap %d and bp %d in the table",
                       plan->preset, (int)plan->dap, (int)plan->bp);
    }
    fm_status status = check(plan, reterr);
    if (status) return status;
    const int32_t of_sample = plan->dap * plan->bp, groups = plan->gpus / of_sample;
    const bool is_alone = groups == 1;
    fm_forecast f = {.samples = plan->batch / groups, .gib = s->gib};
    f.compute_ms = (double)f.samples * s->ms.value * (is_alone ? 1 : straggler_of(plan->gpus));
    if (!is_alone) {
        f.sum_ms = sum_ms(plan, gradient_mb[preset], groups);
        f.words_ms = step_words_ms;
        if (plan->gpus > plan->host_gpus) f.words_ms += 2 * (double)f.samples * gather_ms(plan);
    }
    const bool is_measured = is_alone && plan->batch == 1;
    f.step_ms = (fm_forecast_number){f.compute_ms + f.sum_ms + f.words_ms,
                                     is_measured ? s->ms.mark : FM_FORECAST_EXTRAPOLATED};
    f.samples_s = 1e3 * (double)plan->batch / f.step_ms.value;
    const step *alone = find_step(plan->preset, 1, 1);
    assert(alone);
    f.efficiency = (double)plan->batch * alone->ms.value / plan->gpus / f.step_ms.value;
    f.stream_gbit = f.samples_s * of_sample * sample_mb[preset] * 8e-3;
    f.bound = find_bound(&f);
    *ret_forecast = f;
    return FM_OK;
}

bool fm_forecast_fit(fm_forecast_plan *plan) {
    const int32_t of_sample = plan->dap * plan->bp;
    int64_t groups = plan->gpus / of_sample;
    while (groups > 0 && plan->batch % groups != 0)
        groups--;
    plan->gpus = (int32_t)groups * of_sample;
    return groups > 0;
}

fm_status fm_forecast_choose(fm_forecast_plan *plan, fm_forecast *ret_forecast, fm_error *reterr) {
    fm_forecast_plan best = *plan;
    int32_t dap, bp;
    bool is_found = false;
    for (int i = 0; fm_forecast_layout(plan->preset, i, &dap, &bp); i++) {
        fm_forecast_plan tried = *plan;
        fm_forecast f;
        if (bp > 1) continue; /* for other orders of a block than AlphaFold2's */
        tried.dap = dap;
        tried.bp = bp;
        if (!fm_forecast_fit(&tried) || fm_forecast_compute(&tried, &f, NULL)) continue;
        if (is_found && f.step_ms.value >= ret_forecast->step_ms.value) continue;
        *ret_forecast = f;
        best = tried;
        is_found = true;
    }
    *plan = best;
    if (is_found) return FM_OK;
    return fm_fail(reterr, FM_ERR_USAGE,
                   "found the preset '%.40s', expected af2-initial, af2-finetuning or af3-initial",
                   plan->preset);
}
