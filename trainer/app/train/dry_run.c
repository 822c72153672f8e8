/* dry_run.c: see dry_run.h. A step is recorded for groups of ranks that exist on paper only: their
 * communicators have a rank and a size, and recording calls nothing of them. */
#include "trainer/app/train/dry_run.h"

#include "proto/base/plural.h"
#include "trainer/app/common/beside.h"
#include "trainer/app/common/stop.h"
#include "trainer/app/device/choose_device.h"
#include "trainer/app/settings/setup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBER_BYTES = 24 };

/* The groups of one rank. */
typedef struct paper {
    fm_groups groups;
    fm_comm dap, bp, sample, dp;
} paper;

static fm_comm *make_comm(fm_comm *comm, int32_t rank, int32_t size, const fm_kernels *kernels) {
    *comm = (fm_comm){.rank = rank, .size = size, .kernels = kernels};
    return size > 1 ? comm : NULL;
}

static void make_paper(const fm_layout *layout, int32_t rank, const fm_kernels *kernels,
                       paper *ret_paper) {
    const fm_rank_place place = fm_layout_place(layout, rank);
    paper *p = ret_paper;
    p->groups = (fm_groups){.layout = *layout, .place = place};
    p->groups.dap = make_comm(&p->dap, place.dap, layout->dap, kernels);
    p->groups.bp = make_comm(&p->bp, place.bp, layout->bp, kernels);
    p->groups.sample = make_comm(&p->sample, place.sample, layout->dap * layout->bp, kernels);
    p->groups.dp = make_comm(&p->dp, place.dp, layout->dp, kernels);
}

/* Prints the memory of the first rank of each branch. */
static fm_status print_memory(const fm_train_run *run, const fm_kernels *kernels,
                              fm_error *reterr) {
    const fm_layout *layout = &run->layout;
    for (int32_t branch = 0; branch < layout->bp; branch++) {
        paper p;
        fm_trainer_plan plan;
        fm_trainer_options options = fm_trainer_options_of(&run->config, kernels, run->set->seed);
        make_paper(layout, branch * layout->dap, kernels, &p);
        if (fm_layout_ranks(layout) > 1) options.groups = &p.groups;
        fm_status status = fm_trainer_make_plan(&options, &plan, reterr);
        if (status) return status;
        printf("memory    %.3f GiB of each rank%s, of which %.1f MiB are gradients\n",
               (double)plan.bytes / (1 << 30),
               layout->bp == 1 ? ""
               : branch        ? " of the pairs"
                               : " of the MSA",
               (double)plan.gradient_bytes / (1 << 20));
    }
    return FM_OK;
}

static void show_memory(const fm_train_run *run) {
    const fm_train_options *set = run->set;
    const fm_kernels *kernels;
    fm_error error;
    char why[FM_ERROR_TEXT_BYTES];
    if (run->config.network == FM_NETWORK_AF3) {
        printf("memory    not planned: only AlphaFold2's network is\n");
        return;
    }
    fm_status status = fm_device_find(set->device, set->dtype, &kernels, &error);
    if (!status) status = print_memory(run, kernels, &error);
    if (!status) return;
    fm_error_format(&error, why, sizeof why);
    printf("memory    not planned: %s\n", why);
}

/* Prints what `foldmill forecast` says. It knows the presets whose steps were measured. */
static fm_status show_forecast(const fm_train_run *run, fm_error *reterr) {
    static char command[] = "forecast", preset_name[] = "--preset", gpus_name[] = "--gpus",
                batch_name[] = "--batch", dap_name[] = "--dap", bp_name[] = "--bp";
    char preset[64], gpus[NUMBER_BYTES], batch[NUMBER_BYTES], dap[NUMBER_BYTES], bp[NUMBER_BYTES];
    char program[16], *text;
    size_t bytes;
    int code;
    snprintf(program, sizeof program, "%s", fm_beside_name);
    snprintf(preset, sizeof preset, "%s", run->set->preset);
    snprintf(gpus, sizeof gpus, "%d", (int)fm_layout_ranks(&run->layout));
    snprintf(batch, sizeof batch, "%lld", (long long)run->config.data.global_batch);
    snprintf(dap, sizeof dap, "%d", (int)run->layout.dap);
    snprintf(bp, sizeof bp, "%d", (int)run->layout.bp);
    char *const argv[] = {program, command,  preset_name, preset,  gpus_name, gpus, batch_name,
                          batch,   dap_name, dap,         bp_name, bp,        NULL};
    printf("forecast  foldmill forecast --preset %s --gpus %s --batch %s --dap %s --bp %s\n",
           preset, gpus, batch, dap, bp);
    if (run->set->config) printf("          for the preset, without what --config changes\n");
    fflush(stdout);
    fm_status status = fm_beside_run(argv, &fm_stop_cancel, &text, &bytes, &code, reterr);
    if (status) return status;
    if (code == 0) {
        printf("\n%s", text);
    } else {
        printf("          there is none\n");
    }
    free(text);
    return FM_OK;
}

fm_status fm_dry_run(const fm_train_run *run, fm_error *reterr) {
    const fm_layout *layout = &run->layout;
    const int64_t batch = run->config.data.global_batch;
    const int64_t most = (batch + layout->dp - 1) / layout->dp;
    printf("settings  preset %s, device %s, %s\n", run->set->preset, run->set->device,
           run->set->dtype);
    printf("ranks     %d: dap %d, bp %d, dp %d\n", (int)fm_layout_ranks(layout), (int)layout->dap,
           (int)layout->bp, (int)layout->dp);
    printf("batch     %lld sample%s, at most %lld of each group\n", (long long)batch,
           fm_plural((uint64_t)batch), (long long)most);
    show_memory(run);
    return show_forecast(run, reterr);
}
