/* network.c: see network.h. */
#include "trainer/app/settings/network.h"

#include "trainer/model/af3/model.h"
#include "trainer/model/parameters.h"

#include <stdlib.h>

/* -- AlphaFold2 */

static fm_status list_af2(const fm_train_config *config, fm_arena *arena, fm_params *ret_params,
                          fm_error *reterr) {
    fm_status status = fm_params_init(ret_params, FM_MAX_PARAM, arena, reterr);
    if (status) return status;
    fm_model_weights *weights = calloc(1, sizeof *weights);
    if (!weights) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the parameter table");
    fm_model_add_parameters(ret_params, arena, &config->model, weights);
    free(weights);
    return FM_OK;
}

static fm_status draw_af2(fm_params *params, uint64_t seed, fm_error *reterr) {
    (void)reterr;
    fm_params_draw(params, seed);
    return FM_OK;
}

/* -- AlphaFold 3 */

static fm_status list_af3(const fm_train_config *config, fm_arena *arena, fm_params *ret_params,
                          fm_error *reterr) {
    fm_status status = fm_params_init(ret_params, FM_AF3_MAX_PARAM, arena, reterr);
    if (status) return status;
    fm_af3_weights *weights = calloc(1, sizeof *weights);
    if (!weights) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the parameter table");
    fm_af3_add_parameters(ret_params, arena, &config->af3, weights);
    free(weights);
    return FM_OK;
}

/* -- the choice */

const fm_network *fm_network_of(const fm_train_config *config) {
    static const fm_network networks[] = {
        [FM_NETWORK_AF2] = {"af2", list_af2, draw_af2},
        [FM_NETWORK_AF3] = {"af3", list_af3, fm_af3_draw_parameters}};
    return &networks[config->network];
}

fm_status fm_network_check_is_af2(const fm_train_config *config, const char *command,
                                  fm_error *reterr) {
    if (config->network == FM_NETWORK_AF2) return FM_OK;
    return fm_fail(reterr, FM_ERR_USAGE, "%s runs models of af2; found a model of %s", command,
                   fm_network_of(config)->word);
}
