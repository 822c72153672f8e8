/* pulse.c: see pulse.h. A gather of the meeting already names the ranks that are late, and rank 0
 * tells the reason to all others; so the pulse is nothing but gathers. Where the ranks of a host
 * end the run for another reason, the gather under way ends with it on all hosts. */
#include "trainer/app/ranks/pulse.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BEAT_MS = 1000,
    LOOK_MS = 100,
    TELL_MS = 2000, /* for the other hosts to hear why this one ends the run */
};

struct fm_pulse {
    fm_board *board;
    fm_meeting *meeting;
    fm_pulse_options options;
    pthread_t thread;
    _Atomic bool is_quiet, ends, has_ended;
};

/* Why the run is over on this host; the other hosts must hear it. */
static const char *find_reason(void *context) {
    const fm_pulse *pulse = context;
    return atomic_load(&pulse->is_quiet) ? NULL : fm_board_reason(pulse->board);
}

static void *beat(void *argument) {
    fm_pulse *pulse = argument;
    uint8_t all[FM_MEETING_RANKS];
    while (!atomic_load(&pulse->ends)) {
        fm_error error;
        fm_status status =
            fm_meeting_gather(pulse->meeting, "", 1, all, pulse->options.still_s, &error);
        if (status && !atomic_load(&pulse->is_quiet)) {
            char reason[FM_BOARD_REASON_BYTES];
            const char *what = status == FM_ERR_CANCELLED ? "" : "no pulse between the hosts: ";
            snprintf(reason, sizeof reason, "%s%.360s", what, error.message);
            pulse->options.end(pulse->board, reason);
        }
        if (status) break;
        for (int ms = 0; ms < BEAT_MS && !atomic_load(&pulse->ends); ms += LOOK_MS) {
            if (find_reason(pulse)) break;
            poll(NULL, 0, LOOK_MS);
        }
    }
    atomic_store(&pulse->has_ended, true);
    return NULL;
}

/* Makes the address of the pulse's meeting, so that no rank of one meeting comes to the other. */
static void name_meeting(const char *address, char *out, size_t out_bytes) {
    snprintf(out, out_bytes, "%s%s", address, strchr(address, '#') ? ".pulse" : "#pulse");
}

fm_status fm_pulse_start(fm_board *board, int32_t rank, int32_t size,
                         const fm_pulse_options *options, fm_pulse **ret_pulse, fm_error *reterr) {
    char own[FM_MEETING_ADDRESS_BYTES + 8];
    fm_pulse *pulse = calloc(1, sizeof *pulse);
    if (!pulse) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the pulse between hosts");
    pulse->board = board;
    pulse->options = *options;
    name_meeting(options->address, own, sizeof own);
    const fm_meeting_terms terms = {.seconds = options->open_s, .secret = options->secret};
    fm_status status = fm_meeting_open_on(&pulse->meeting, own, rank, size, &terms, reterr);
    if (!status && options->topology) {
        status = fm_meeting_form_tree(pulse->meeting, options->topology, options->open_s, reterr);
        fm_meeting_heed(pulse->meeting, find_reason, pulse);
    }
    if (!status && pthread_create(&pulse->thread, NULL, beat, pulse) != 0) {
        status = fm_fail(reterr, FM_ERR_NOMEM, "no thread for the pulse between hosts");
    }
    if (status) {
        fm_meeting_close(pulse->meeting);
        free(pulse);
        return status;
    }
    *ret_pulse = pulse;
    return FM_OK;
}

void fm_pulse_quieten(fm_pulse *pulse) {
    if (pulse) atomic_store(&pulse->is_quiet, true);
}

void fm_pulse_stop(fm_pulse *pulse) {
    if (!pulse) return;
    for (int ms = 0; ms < TELL_MS && find_reason(pulse) && !atomic_load(&pulse->has_ended);
         ms += LOOK_MS)
        poll(NULL, 0, LOOK_MS);
    atomic_store(&pulse->is_quiet, true);
    atomic_store(&pulse->ends, true);
    fm_meeting_cancel(pulse->meeting);
    pthread_join(pulse->thread, NULL);
    fm_meeting_close(pulse->meeting);
    free(pulse);
}
