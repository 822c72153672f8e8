/* split.c: see split.h. */
#include "trainer/model/split.h"

#include "trainer/dist/groups.h"

#include <assert.h>

static fm_comm *dap_of(const fm_model_config *config) {
    return config->groups ? config->groups->dap : NULL;
}

static fm_comm *bp_of(const fm_model_config *config) {
    return config->groups ? config->groups->bp : NULL;
}

bool fm_split_is_split(const fm_model_config *config) {
    return dap_of(config) != NULL;
}

bool fm_split_has_whole_templates(const fm_model_config *config) {
    return config->n_template % fm_groups_part(config->groups).count == 0;
}

bool fm_split_has_msa(const fm_model_config *config) {
    return !bp_of(config) || config->groups->place.bp == 0;
}

bool fm_split_has_pair(const fm_model_config *config) {
    return !bp_of(config) || config->groups->place.bp == 1;
}

static int64_t round_up(int64_t n, int64_t to) {
    return (n + to - 1) / to * to;
}

fm_model_config fm_split_pad(const fm_model_config *config) {
    fm_model_config padded = *config;
    int64_t ranks = fm_groups_part(config->groups).count;
    int64_t to = ranks * (config->axis_multiple > 0 ? config->axis_multiple : 1);
    padded.n_res = round_up(config->n_res, to);
    padded.n_seq = round_up(fm_model_config_rows(config), to) - config->n_template;
    padded.n_extra = round_up(config->n_extra, to);
    return padded;
}

/* -- changes of the split axis */

fm_tensor_ref fm_split_slice(fm_tape *tape, const fm_model_config *config, const char *name,
                             fm_tensor_ref x, int axis) {
    return dap_of(config) ? fm_dap_slice(tape, name, fm_groups_part(config->groups), x, axis) : x;
}

fm_split_mask fm_split_mask_of(fm_tape *tape, const fm_model_config *config, fm_tensor_ref mask) {
    return (fm_split_mask){.whole = mask,
                           .rows = fm_split_slice(tape, config, "mask rows", mask, 0),
                           .columns = fm_split_slice(tape, config, "mask columns", mask, 1)};
}

fm_axis_change fm_split_change_begin(fm_tape *tape, const fm_model_config *config, const char *name,
                                     fm_tensor_ref x, int axis, bool patient) {
    if (!dap_of(config)) return (fm_axis_change){.x = x};
    return (fm_axis_change){FM_TENSOR_NONE,
                            fm_dap_switch_begin(tape, name, dap_of(config), x, axis, patient)};
}

fm_tensor_ref fm_split_change_finish(fm_tape *tape, const fm_axis_change *change) {
    return change->x != FM_TENSOR_NONE ? change->x : fm_dap_switch_finish(tape, &change->exchange);
}

fm_tensor_ref fm_split_change(fm_tape *tape, const fm_model_config *config, const char *name,
                              fm_tensor_ref x, int axis) {
    fm_axis_change change = fm_split_change_begin(tape, config, name, x, axis, false);
    return fm_split_change_finish(tape, &change);
}

fm_tensor_ref fm_split_gather(fm_tape *tape, const fm_model_config *config, const char *name,
                              fm_tensor_ref x) {
    if (!dap_of(config)) return x;
    fm_gather gather = fm_dap_gather_begin(tape, name, dap_of(config), x);
    return fm_dap_gather_finish(tape, &gather);
}

/* -- branches */

fm_tensor_ref fm_split_join(fm_tape *tape, const fm_model_config *config, const char *name,
                            fm_tensor_ref x) {
    if (!bp_of(config)) return x;
    fm_pending *sum = fm_bp_join_begin(tape, name, bp_of(config), x);
    return fm_exchange_finish(tape, sum);
}

fm_tensor_ref fm_split_share(fm_tape *tape, const fm_model_config *config, const char *name,
                             int32_t root, fm_tensor_ref x, const fm_tensor *like) {
    if (!bp_of(config)) return x;
    fm_pending *sent = fm_bp_share_begin(tape, name, bp_of(config), root, x, like);
    return fm_exchange_finish(tape, sent);
}
