/* network.h: describes the networks that a configuration can choose by their tables of parameters.
 * There is one fm_network for each, and a command chooses it once. What a training run does with a
 * network is its fm_train_work (trainer/app/train/train_run.h). */
#ifndef FM_TRAINER_NETWORK_H
#define FM_TRAINER_NETWORK_H

#include "trainer/app/settings/train_config.h"
#include "trainer/tensor/params.h"

typedef struct fm_network {
    const char *word; /* as the configuration has it */
    /* Lists the parameters, without device memory; texts are in the arena. FM_ERR_LIMIT,
     * FM_ERR_NOMEM. */
    fm_status (*list_parameters)(const fm_train_config *config, fm_arena *arena,
                                 fm_params *ret_params, fm_error *reterr);
    /* Fills the values with initial ones. FM_ERR_NOMEM. */
    fm_status (*draw)(fm_params *params, uint64_t seed, fm_error *reterr);
} fm_network;

const fm_network *fm_network_of(const fm_train_config *config);

/* Refuses a network that a command cannot use: FM_ERR_USAGE unless the configuration's is
 * AlphaFold2's. `command` is named in the message. */
FM_MUST_USE fm_status fm_network_check_is_af2(const fm_train_config *config, const char *command,
                                              fm_error *reterr);

#endif
