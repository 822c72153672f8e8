/* cmd_forecast.c: foldmill forecast: how long a training run takes on a number of GPUs. */
#include "proto/base/json_text.h"
#include "server/cli/commands.h"
#include "server/simulate/forecast.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_GPUS = 4096, MOST_BATCH = 65536 };

static const char program[] = "foldmill forecast";
static const char description[] =
    "Computes the steps of a training run on any number of GPUs from steps that were measured on\n"
    "one, two and four H200 of one host. A letter behind a number says what it is worth: m is\n"
    "measured by this project, p is published by others, e is extrapolated. No run of more than\n"
    "four GPUs, and none of several hosts, has been made.\n\n"
    "--check compares the model with steps on two and four GPUs that it is not made from.\n"
    "--schedule computes the stages of a published run, with the fastest layout for each.\n"
    "Waits for samples are another question, which foldmill simulate answers.\n\n"
    "--json prints one object: layouts [{gpus, dap, bp, groups, samples, step_ms, mark, "
    "compute_ms,\n"
    "sum_ms, words_ms, samples_per_s, efficiency, gib, stream_gbit, bound}]. gib and\n"
    "stream_gbit are 0 where they are unknown.\n\n"
    "Exit codes: 0 done, 1 failed, 2 bad usage.\n\n"
    "Examples:\n"
    "  foldmill forecast --gpus 256 --batch 128\n"
    "  foldmill forecast --gpus 512 --schedule scalefold --network ethernet";

typedef struct forecast_settings {
    const char *preset, *network, *schedule;
    uint64_t gpus, host_gpus, batch;
    uint64_t dap, bp; /* of the one layout to show; 0: all */
    bool json, checks;
} forecast_settings;

static int parse(forecast_settings *set, int argc, char **argv) {
    const fm_option options[] = {
        {"preset", FM_OPTION_STRING, &set->preset, "NAME",
         .help = "af2-initial, af2-finetuning or af3-initial (af2-initial)"},
        {"gpus", FM_OPTION_U64, &set->gpus, "N", .help = "GPUs of the run (8)", .min = 1,
         .max = MOST_GPUS},
        {"host-gpus", FM_OPTION_U64, &set->host_gpus, "N", .help = "GPUs of a host (8)", .min = 1,
         .max = 16},
        {"batch", FM_OPTION_U64, &set->batch, "N", .help = "samples of a step (128)", .min = 1,
         .max = MOST_BATCH},
        {"dap", FM_OPTION_U64, &set->dap, "D", .help = "show the layout of D ranks of DAP only",
         .min = 1, .max = 16},
        {"bp", FM_OPTION_U64, &set->bp, "B", .help = "and of B branches (1)", .min = 1, .max = 2},
        {"network", FM_OPTION_STRING, &set->network, "NAME",
         .help = "between hosts: infiniband, ethernet, or GB/s of each GPU (infiniband)"},
        {"schedule", FM_OPTION_STRING, &set->schedule, "NAME",
         .help = "a published run: scalefold, fastfold or helixfold"},
        {"check", FM_OPTION_FLAG, &set->checks, NULL, .help = "compare with measured steps"},
        {"json", FM_OPTION_FLAG, &set->json, NULL, .help = "print one JSON object"},
        {0}};
    const fm_command command = {
        .program = program,
        .arguments = "[options]",
        .summary = "plan a run: how long its steps take on a number of GPUs",
        .description = description,
        .options = options,
    };
    int n_positional;
    return fm_cli_parse(&command, argc, argv, &n_positional);
}

static fm_forecast_plan plan_of(const forecast_settings *set, const fm_forecast_network *network) {
    return (fm_forecast_plan){.preset = set->preset,
                              .dap = 1,
                              .bp = 1,
                              .gpus = (int32_t)set->gpus,
                              .host_gpus = (int32_t)set->host_gpus,
                              .batch = (int64_t)set->batch,
                              .network_gb_s = network->gb_s};
}

/* "41.0 m", or "-". */
static const char *write_number(fm_forecast_number number, int digits, char out[32]) {
    snprintf(out, 32, number.mark ? "%.*f %s" : "-", digits, number.value,
             fm_forecast_letter(number.mark));
    return out;
}

/* -- layouts */

static void print_layout(const fm_forecast_plan *plan, const fm_forecast *f) {
    char layout[40], step[32], gib[32];
    snprintf(layout, sizeof layout, "DP-%d", (int)(plan->gpus / (plan->dap * plan->bp)));
    size_t at = strlen(layout);
    if (plan->dap > 1) snprintf(layout + at, sizeof layout - at, " x DAP-%d", (int)plan->dap);
    at = strlen(layout);
    if (plan->bp > 1) snprintf(layout + at, sizeof layout - at, " x BP-2");
    printf("%-22s%6d%8lld%12s%9.1f%9.1f%11.1f%12.2f%10s  %s\n", layout, (int)plan->gpus,
           (long long)f->samples, write_number(f->step_ms, 1, step), f->sum_ms, f->words_ms,
           f->samples_s, f->efficiency, write_number(f->gib, 1, gib), f->bound);
}

static void write_layout(fm_json_writer *json, const fm_forecast_plan *plan, const fm_forecast *f) {
    fm_json_open_object(json, NULL);
    fm_json_put_u64(json, "gpus", (uint64_t)plan->gpus);
    fm_json_put_u64(json, "dap", (uint64_t)plan->dap);
    fm_json_put_u64(json, "bp", (uint64_t)plan->bp);
    fm_json_put_u64(json, "groups", (uint64_t)(plan->gpus / (plan->dap * plan->bp)));
    fm_json_put_u64(json, "samples", (uint64_t)f->samples);
    fm_json_put_f64(json, "step_ms", f->step_ms.value, 3);
    fm_json_put_string(json, "mark", fm_forecast_letter(f->step_ms.mark));
    fm_json_put_f64(json, "compute_ms", f->compute_ms, 3);
    fm_json_put_f64(json, "sum_ms", f->sum_ms, 3);
    fm_json_put_f64(json, "words_ms", f->words_ms, 3);
    fm_json_put_f64(json, "samples_per_s", f->samples_s, 3);
    fm_json_put_f64(json, "efficiency", f->efficiency, 4);
    fm_json_put_f64(json, "gib", f->gib.value, 1);
    fm_json_put_f64(json, "stream_gbit", f->stream_gbit, 3);
    fm_json_put_string(json, "bound", f->bound);
    fm_json_close(json);
}

/* Whether a layout is to be shown; one that was asked for must use all GPUs. */
static bool shows(const forecast_settings *set, fm_forecast_plan *plan) {
    plan->gpus = (int32_t)set->gpus;
    if (!set->dap && !set->bp) return fm_forecast_fit(plan);
    return (uint64_t)plan->dap == (set->dap ? set->dap : 1) &&
           (uint64_t)plan->bp == (set->bp ? set->bp : 1);
}

/* Every layout of the table, on as many of the GPUs as it can use, or the one that was asked for.
 */
static fm_status show_layouts(const forecast_settings *set, const fm_forecast_network *network,
                              fm_error *reterr) {
    fm_forecast_plan plan = plan_of(set, network);
    fm_forecast f;
    fm_json_writer json;
    fm_status status;
    if (set->dap || set->bp) {
        plan.dap = set->dap ? (int32_t)set->dap : 1;
        plan.bp = set->bp ? (int32_t)set->bp : 1;
        status = fm_forecast_compute(&plan, &f, reterr);
    } else {
        status = fm_forecast_choose(&plan, &f, reterr);
    }
    if (status) return status;
    if (set->json) {
        fm_json_begin(&json, stdout);
        fm_json_open_array(&json, "layouts");
    } else {
        printf("%s, %llu GPUs, batch %llu, %g GB/s between hosts\n", set->preset,
               (unsigned long long)set->gpus, (unsigned long long)set->batch, network->gb_s);
        printf("%-22s%6s%8s%12s%9s%9s%11s%12s%10s  %s\n", "layout", "GPUs", "samples", "step ms",
               "sum ms", "words ms", "samples/s", "efficiency", "GiB", "bound by");
    }
    for (int i = 0; fm_forecast_layout(set->preset, i, &plan.dap, &plan.bp); i++) {
        if (!shows(set, &plan) || fm_forecast_compute(&plan, &f, NULL)) continue;
        if (set->json) {
            write_layout(&json, &plan, &f);
        } else {
            print_layout(&plan, &f);
        }
    }
    if (set->json) {
        fm_json_close(&json);
        fm_json_end(&json);
    }
    return FM_OK;
}

/* -- schedules */

static fm_status show_schedule(const forecast_settings *set, const fm_forecast_network *network,
                               fm_error *reterr) {
    const fm_forecast_schedule *s = fm_forecast_schedules;
    while (s->name && strcmp(s->name, set->schedule) != 0)
        s++;
    if (!s->name) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "--schedule: found '%.40s', expected scalefold, fastfold or helixfold",
                       set->schedule);
    }
    fm_forecast_plan plan = plan_of(set, network);
    double days = 0, gpu_hours = 0;
    printf("%s: %.2f days p\n", s->what, s->their_days);
    printf("%-16s%8s%9s%14s%14s%7s%9s%12s%12s\n", "stage", "batch", "steps", "their GPUs",
           "their step s", "GPUs", "dap, bp", "step ms", "hours");
    for (int i = 0; i < s->n_stage; i++) {
        const fm_forecast_stage *stage = &s->stage[i];
        fm_forecast f;
        char theirs[32], their_step[32], layout[32], step[32];
        plan.preset = stage->preset;
        plan.gpus = (int32_t)set->gpus;
        plan.batch = stage->batch;
        fm_status status = fm_forecast_choose(&plan, &f, reterr);
        if (status) return status;
        const double hours = (double)stage->steps * f.step_ms.value / 3.6e6;
        snprintf(theirs, sizeof theirs, "%d %s", (int)stage->their_gpus, stage->their_kind);
        snprintf(their_step, sizeof their_step, "%.3f p", stage->their_step_s);
        snprintf(layout, sizeof layout, "%d, %d", (int)plan.dap, (int)plan.bp);
        printf("%-16s%8lld%9lld%14s%14s%7d%9s%12s%10.2f e\n", stage->preset,
               (long long)stage->batch, (long long)stage->steps, theirs, their_step, (int)plan.gpus,
               layout, write_number(f.step_ms, 1, step), hours);
        days += hours / 24;
        gpu_hours += hours * plan.gpus;
    }
    printf("here: %.2f days e, %.0f GPU-hours e: steps alone, without evaluation, checkpoints, "
           "restarts and waits\n",
           days, gpu_hours);
    return FM_OK;
}

/* -- the check */

static fm_status show_checks(const fm_forecast_network *network, fm_error *reterr) {
    printf("%-16s%6s%6s%6s%14s%16s%14s\n", "preset", "GPUs", "dap", "bp", "measured ms",
           "predicted ms", "error %");
    for (const fm_forecast_check *c = fm_forecast_checks; c->preset; c++) {
        const fm_forecast_plan plan = {c->preset, c->dap,   c->bp,        c->gpus,
                                       8,         c->batch, network->gb_s};
        fm_forecast f;
        fm_status status = fm_forecast_compute(&plan, &f, reterr);
        if (status) return status;
        printf("%-16s%6d%6d%6d%14.1f%16.1f%+14.1f\n", c->preset, (int)c->gpus, (int)c->dap,
               (int)c->bp, c->measured_ms, f.step_ms.value,
               100 * (f.step_ms.value / c->measured_ms - 1));
    }
    return FM_OK;
}

int fm_cmd_forecast(int argc, char **argv) {
    forecast_settings set = {
        .preset = "af2-initial", .network = "infiniband", .gpus = 8, .host_gpus = 8, .batch = 128};
    int code = parse(&set, argc, argv);
    if (code >= 0) return code;
    fm_error error;
    fm_forecast_network network;
    fm_status status = FM_OK;
    if (!fm_forecast_find_network(set.network, &network)) {
        status =
            fm_fail(&error, FM_ERR_USAGE,
                    "--network: found '%.40s', expected infiniband, ethernet or a number of GB/s",
                    set.network);
    }
    if (!status && set.json && (set.schedule || set.checks)) {
        status =
            fm_fail(&error, FM_ERR_USAGE, "--json is for layouts, without --schedule or --check");
    }
    if (!status && set.schedule && set.checks) {
        status = fm_fail(&error, FM_ERR_USAGE, "give either --schedule or --check, not both");
    }
    if (!status) {
        status = set.checks     ? show_checks(&network, &error)
                 : set.schedule ? show_schedule(&set, &network, &error)
                                : show_layouts(&set, &network, &error);
    }
    return status ? fm_program_report(program, &error) : FM_EXIT_OK;
}
