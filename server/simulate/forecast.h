/* forecast.h: how long the steps of a training run take on any number of GPUs, computed from steps
 * that were measured on up to four. Every number says how much it is worth.
 *
 *     step  = k * t * straggler + words + sum      k = samples of each group in a step
 *     sum   = 2 n (P - 1) / P / rate + messages    gradients of n bytes, summed over P groups;
 *                                                  over hosts n / D and (D - 1) / D n / 330 GB/s,
 *                                                  for D ranks of a sample
 *     words = 3 ms + k * (2 gathers along the tree of the hosts)
 *
 * docs/reference/forecast.md has the sources of all numbers. */
#ifndef FM_FORECAST_H
#define FM_FORECAST_H

#include "proto/base/status.h"

#include <stdbool.h>

/* What a number is worth. */
typedef enum fm_forecast_mark {
    FM_FORECAST_UNKNOWN,
    FM_FORECAST_MEASURED,  /* by this project, on that number of GPUs */
    FM_FORECAST_PUBLISHED, /* by others, of their own programs */
    FM_FORECAST_EXTRAPOLATED,
} fm_forecast_mark;

/* "m", "p", "e"; "" for an unknown number. */
const char *fm_forecast_letter(fm_forecast_mark mark);

typedef struct fm_forecast_number {
    double value;
    fm_forecast_mark mark;
} fm_forecast_number;

/* A network between hosts. */
typedef struct fm_forecast_network {
    const char *name;
    double gb_s; /* of each GPU, in one direction */
} fm_forecast_network;

/* Finds a network by name, or takes a number of GB/s. False for other words. */
bool fm_forecast_find_network(const char *text, fm_forecast_network *ret_network);

/* A run whose steps are asked for. */
typedef struct fm_forecast_plan {
    const char *preset; /* one of fm_forecast_presets */
    int32_t dap, bp, gpus, host_gpus;
    int64_t batch;
    double network_gb_s;
} fm_forecast_plan;

typedef struct fm_forecast {
    int64_t samples;                     /* k */
    fm_forecast_number step_ms, gib;     /* gib: memory of a GPU */
    double compute_ms, sum_ms, words_ms; /* parts of the step */
    double samples_s, efficiency;        /* of one GPU that takes all samples */
    double stream_gbit;                  /* that the servers send; 0: unknown */
    const char *bound;                   /* what takes most beside computing, or "computing" */
} fm_forecast;

/* The presets that have measured steps; ends with NULL. */
extern const char *const fm_forecast_presets[];

/* Computes a plan. FM_ERR_USAGE for a preset or a layout that is not in the table, ranks that do
 * not divide the GPUs, and groups that do not divide the batch. */
FM_MUST_USE fm_status fm_forecast_compute(const fm_forecast_plan *plan, fm_forecast *ret_forecast,
                                          fm_error *reterr);

/* Lowers plan->gpus to the most that the layout can use: whole groups, whose number divides the
 * batch. False where there are too few GPUs for one group. */
bool fm_forecast_fit(fm_forecast_plan *plan);

/* Finds the fastest layout without branches for at most plan->gpus GPUs, and sets dap, bp and gpus
 * of the plan to it. FM_ERR_USAGE for a preset that is not in the table. */
FM_MUST_USE fm_status fm_forecast_choose(fm_forecast_plan *plan, fm_forecast *ret_forecast,
                                         fm_error *reterr);

/* The layouts of the table: *ret_dap, *ret_bp of layout i; false behind the last one. */
bool fm_forecast_layout(const char *preset, int i, int32_t *ret_dap, int32_t *ret_bp);

/* A stage of a published schedule. */
typedef struct fm_forecast_stage {
    const char *preset;
    int64_t batch, steps;
    int32_t their_gpus;
    const char *their_kind; /* of GPU */
    double their_step_s;    /* 0: not published */
} fm_forecast_stage;

typedef struct fm_forecast_schedule {
    const char *name, *what;
    double their_days;
    fm_forecast_stage stage[2];
    int n_stage;
} fm_forecast_schedule;

/* Ends with a name of NULL. */
extern const fm_forecast_schedule fm_forecast_schedules[];

/* A step on several GPUs that was measured and is not what the forecast is made from. */
typedef struct fm_forecast_check {
    const char *preset, *day;
    int32_t dap, bp, gpus;
    int64_t batch;
    double measured_ms;
} fm_forecast_check;

/* Ends with a preset of NULL. */
extern const fm_forecast_check fm_forecast_checks[];

#endif
