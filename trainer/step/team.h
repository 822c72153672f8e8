/* team.h: the ranks of one sample as threads of this process, for tests, which look into all of
 * them. Each rank has a trainer; all are given every sample together and end every step with the
 * same bits. */
#ifndef FM_TRAINER_STEP_TEAM_H
#define FM_TRAINER_STEP_TEAM_H

#include "trainer/step/step.h"

typedef struct fm_team fm_team;

/* layout->dp must be 1; options->groups is ignored. FM_ERR_USAGE naming the setting that the layout
 * or the model does not allow, else the errors of fm_trainer_create. */
FM_MUST_USE fm_status fm_team_create(const fm_trainer_options *options, const fm_layout *layout,
                                     fm_team **ret_team, fm_error *reterr);
void fm_team_destroy(fm_team *team);

fm_trainer *fm_team_get_first(const fm_team *team);

/* fm_trainer_queue and fm_trainer_collect, on all ranks at the same time. */
FM_MUST_USE fm_status fm_team_queue(fm_team *team, const fm_features *features, bool is_last,
                                    fm_error *reterr);
FM_MUST_USE fm_status fm_team_collect(fm_team *team, fm_sample_result *ret_result,
                                      fm_error *reterr);

/* fm_trainer_update on all ranks: for a step whose last sample was skipped. At least one sample
 * must have been added. */
void fm_team_update(fm_team *team);

/* Copies the first rank's parameters, moments, average, sum of gradients and counts to the other
 * ranks; call it after loading a checkpoint. */
void fm_team_copy_first(fm_team *team);

#endif
