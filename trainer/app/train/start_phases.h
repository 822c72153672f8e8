/* start_phases.h: how long a run takes from the start of its command to the end of its first step,
 * by phases that follow each other. */
#ifndef FM_TRAINER_START_PHASES_H
#define FM_TRAINER_START_PHASES_H

#include <stddef.h>
#include <stdint.h>

typedef enum fm_start_phase {
    FM_START_COMMAND, /* reads settings, starts a server and the ranks */
    FM_START_MEETING, /* waits for all ranks */
    FM_START_DEVICE,  /* opens the device */
    FM_START_LINKS,   /* opens the other ranks' memory */
    FM_START_MODEL,   /* records the network, takes its memory, loads the checkpoint */
    FM_START_DATA,    /* connects to the source of samples */
    FM_START_CHECKS,  /* compares the ranks, opens the outputs, starts the evaluator */
    FM_START_STEP,    /* waits for samples and makes the step */
    FM_START_PHASES
} fm_start_phase;

typedef struct fm_start_phases {
    uint64_t began_ns, marked_ns; /* monotonic clock of the host: the start, the newest mark */
    uint64_t spent_ns[FM_START_PHASES];
} fm_start_phases;

enum { FM_START_TEXT_BYTES = 256 };

static inline fm_start_phases fm_start_phases_from(uint64_t began_ns) {
    return (fm_start_phases){.began_ns = began_ns, .marked_ns = began_ns};
}

/* Adds the time since the newest mark, or since the start, to the phase. */
void fm_start_phases_mark(fm_start_phases *phases, fm_start_phase phase, uint64_t now_ns);

/* Writes the time up to the newest mark and that of each phase as pairs for the log: "after_s=1.93
 * command_s=0.02 ...". */
void fm_start_phases_format(const fm_start_phases *phases, char out[FM_START_TEXT_BYTES]);

#endif
