/* identity.h: what decides a run's bits: the program's version, the device, its library of matrix
 * products, the numbers' type, the order of samples, and the settings. A resumed run must have the
 * same, except for changes that the command line names; those are recorded in the run's history. */
#ifndef FM_TRAINER_IDENTITY_H
#define FM_TRAINER_IDENTITY_H

#include "proto/base/status.h"

enum { FM_IDENTITY_BYTES = 1280, FM_HISTORY_BYTES = 32768 };

typedef struct fm_identity {
    const char *program, *build, *device, *processor, *library, *dtype, *order;
    const char *dp;             /* groups that the samples of a batch are divided over; "": one */
    const char *batch_schedule; /* as --batch-schedule has it; "": one batch */
} fm_identity;

/* Writes one line "key = value" for each field that is not "". Asserts that it fits. */
void fm_identity_format(const fm_identity *identity, char out[FM_IDENTITY_BYTES]);

/* The texts of a run. Lines are "key = value"; in `config` a line "[section]" puts "section."
 * before the keys that follow. identity NULL = not known. `implied` is such a text of the settings
 * that a run has whose `config` does not name the key; NULL = none. */
typedef struct fm_identity_texts {
    const char *config, *identity, *implied;
} fm_identity_texts;

/* Compares a checkpoint's run with this one. Every key whose value differs must be among change[],
 * as "key=value" with the new value, or "none" for a key that this run does not have. Each such
 * change is appended to `history` as "step N: key: old -> new". What an older program did not write
 * of its identity is not compared, but a run without `dp` or `batch_schedule` has one group or one
 * batch. Another build of the same version is appended to `history`, and
 * is not refused.
 *
 * FM_ERR_USAGE names the first difference, and the options that allow all differences, as far as
 * they fit. Where the checkpoint's file does not name the setting, the error says how to restore
 * it. A change[] that is not what this run has is FM_ERR_USAGE, too. FM_ERR_LIMIT: the history is
 * full. */
FM_MUST_USE fm_status fm_identity_check(const fm_identity_texts *saved,
                                        const fm_identity_texts *now, uint64_t step,
                                        const char *const *change, uint32_t n_change,
                                        char history[FM_HISTORY_BYTES], fm_error *reterr);

#endif
