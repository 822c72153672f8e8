/* predict_group.c: see predict_group.h. */
#include "trainer/app/prediction/predict_group.h"

#include "proto/base/histogram.h"
#include "trainer/app/common/stop.h"
#include "trainer/app/device/choose_device.h"
#include "trainer/app/ranks/launch.h"
#include "trainer/dist/board.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NUMBER_BYTES = 16 };

/* The variable by which the command tells its ranks the pipe of the reports. */
static const char pipe_name[] = "FOLDMILL_RESULTS";

/* -- in the command */

typedef struct command {
    const fm_predict_reports *reports;
    int pipe;
    fm_status status; /* of the reports, with `error` */
    fm_error error;
} command;

/* Takes all reports that have come. */
static void look(void *context) {
    command *c = context;
    _Alignas(max_align_t) char record[PIPE_BUF];
    const size_t bytes = c->reports->record_bytes;
    for (;;) {
        ssize_t n = read(c->pipe, record, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n != (ssize_t)bytes) return; /* none is left */
        if (!c->status) c->status = c->reports->take(c->reports->context, record, &c->error);
    }
}

static fm_status open_pipe(int ends[2], fm_error *reterr) {
    char number[NUMBER_BYTES];
    bool is_open = pipe2(ends, O_CLOEXEC) == 0;
    if (!is_open || fcntl(ends[0], F_SETFL, O_NONBLOCK) < 0 || fcntl(ends[1], F_SETFD, 0) < 0) {
        if (is_open) close(ends[0]);
        if (is_open) close(ends[1]);
        return fm_fail(reterr, FM_ERR_IO, "cannot open a pipe: %s", strerror(errno));
    }
    snprintf(number, sizeof number, "%d", ends[1]);
    setenv(pipe_name, number, 1);
    return FM_OK;
}

fm_status fm_predict_group_launch(const fm_predict_ranks_options *options,
                                  const fm_predict_reports *reports, int *ret_code,
                                  fm_error *reterr) {
    command c = {.reports = reports};
    const fm_launch_options launch = {.program = options->program,
                                      .argc = options->argc,
                                      .argv = options->argv,
                                      .n_rank = options->n_rank,
                                      .meets = options->dap,
                                      .divides = options->divides,
                                      .began_ns = fm_clock_ns(),
                                      .look = look,
                                      .context = &c};
    int ends[2];
    assert(reports->record_bytes <= PIPE_BUF); /* a pipe does not mix records that are this small */
    fm_status status = open_pipe(ends, reterr);
    if (status) return status;
    c.pipe = ends[0];
    status = fm_launch(&launch, ret_code, reterr);
    unsetenv(pipe_name);
    close(ends[0]);
    close(ends[1]);
    if (status || !c.status) return status;
    *reterr = c.error;
    return c.status;
}

/* -- in a rank */

bool fm_predict_group_is_rank(void) {
    return getenv(pipe_name) && getenv(fm_world_rank_name);
}

static fm_status meet(fm_predict_group *group, const fm_predict_ranks_options *options,
                      const fm_world *world, const char *device, const char *dtype,
                      fm_error *reterr) {
    const fm_layout layout = {options->dap, 1, 1};
    const fm_kernels *kernels;
    fm_world of_group = *world;
    of_group.rank = group->place;
    of_group.size = options->dap;
    fm_world_put_gpu_first(world);
    fm_status status = fm_device_find(device, dtype, &kernels, reterr);
    if (!status) fm_ranks_stay_near(kernels);
    if (status || options->dap == 1) return status;
    status = fm_ranks_open(group->program, &of_group, &layout, &group->ranks, reterr);
    if (status) return status;
    status = fm_ranks_join(group->ranks, device, kernels, &group->groups, reterr);
    if (!status && group->groups->entry) atomic_store(&group->groups->entry->predicts, 1);
    return status;
}

fm_status fm_predict_group_open(const fm_predict_ranks_options *options, const char *device,
                                const char *dtype, fm_predict_group **ret_group, fm_error *reterr) {
    fm_world world;
    bool found;
    fm_status status = fm_world_find(NULL, &found, &world, reterr);
    if (status) return status;
    if (!found || world.size != options->n_rank) {
        fprintf(stderr, "%s: this process is a rank of another command\n", options->program);
        return FM_ERR_USAGE;
    }
    fm_predict_group *group = calloc(1, sizeof *group);
    if (!group) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a rank");
    const char *number = getenv(pipe_name);
    group->pipe = number ? (int)strtol(number, NULL, 10) : -1;
    group->place = world.rank % options->dap;
    group->first = world.rank - group->place;
    group->number = (uint32_t)(world.rank / options->dap);
    group->n_group = (uint32_t)(options->n_rank / options->dap);
    if (group->n_group == 1 || options->dap == 1) {
        snprintf(group->program, sizeof group->program, "%s", options->program);
    } else {
        snprintf(group->program, sizeof group->program, "%s: group %u", options->program,
                 group->number);
    }
    fm_stop_catch(false);
    *ret_group = group;
    status = meet(group, options, &world, device, dtype, reterr);
    if (!status) return FM_OK;
    if (status != FM_ERR_CANCELLED) fm_predict_group_fail(group, reterr);
    fm_predict_group_close(group);
    *ret_group = NULL;
    return status;
}

void fm_predict_group_fail(fm_predict_group *group, const fm_error *error) {
    char text[FM_ERROR_TEXT_BYTES];
    if (group->ranks) {
        fm_ranks_fail(group->ranks, error);
        return;
    }
    fm_error_format(error, text, sizeof text);
    fprintf(stderr, "%s: rank %d: %s\n", group->program, (int)(group->first + group->place), text);
}

void fm_predict_group_close(fm_predict_group *group) {
    if (!group) return;
    fm_ranks_close(group->ranks);
    free(group);
}

/* If the command is gone, the kernel is ending this process, too. */
void fm_predict_group_report(const fm_predict_group *group, const void *record, size_t bytes) {
    ssize_t n = write(group->pipe, record, bytes);
    (void)n;
}

/* What a rank tells the others. */
typedef struct word {
    int32_t signal;
    uint32_t value;
} word;

fm_status fm_predict_group_agree(fm_predict_group *group, uint32_t *value, fm_error *reterr) {
    const word own = {fm_stop_signal(), value ? *value : 0};
    word all[FM_LAYOUT_DAP] = {own};
    fm_status status =
        group->ranks ? fm_ranks_gather(group->ranks, &own, sizeof own, all, reterr) : FM_OK;
    for (int32_t r = 0; r < FM_LAYOUT_DAP && !status; r++) {
        if (!all[r].signal) continue;
        fm_stop_request(FM_STOP_SIGNAL, all[r].signal);
        group->is_agreed = true;
        status = fm_fail(reterr, FM_ERR_CANCELLED, "stopped on request");
    }
    if (value && !status) *value = all[0].value;
    return status;
}

fm_status fm_predict_group_end(fm_predict_group *group, fm_status status, int *ret_signal,
                               fm_error *reterr) {
    *ret_signal = 0;
    /* A signal that ended a wait is not known to the others, which wait for this rank before the
     * next piece of work. */
    if (status == FM_ERR_CANCELLED && !group->is_agreed) {
        status = fm_predict_group_agree(group, NULL, reterr);
    }
    if (status == FM_ERR_CANCELLED) {
        *ret_signal = fm_stop_signal();
        status = FM_OK;
    }
    if (status) {
        fm_predict_group_fail(group, reterr);
    } else if (group->ranks) {
        fm_ranks_leave(group->ranks);
    }
    return status;
}
