/* split.c: see split.h. */
#include "trainer/model/af3/split.h"

static int64_t round_up(int64_t n, int64_t to) {
    return (n + to - 1) / to * to;
}

fm_af3_config fm_af3_split_pad(const fm_af3_config *config) {
    fm_af3_config padded = *config;
    int64_t ranks = fm_groups_part(config->groups).count;
    padded.n_token = round_up(config->n_token, ranks);
    padded.n_msa = round_up(config->n_msa, ranks);
    return padded;
}

int64_t fm_af3_split_samples(const fm_af3_config *config) {
    return round_up(config->n_sample, fm_groups_part(config->groups).count);
}

fm_model_config fm_af3_split_config(const fm_af3_config *config) {
    return (fm_model_config){.dropout_msa = config->dropout_msa,
                             .dropout_pair = config->dropout_pair,
                             .groups = config->groups};
}

fm_tensor_ref fm_af3_split_rows(fm_tape *tape, const fm_groups *groups, const char *name,
                                fm_tensor_ref x) {
    return fm_af3_split_dap(groups) ? fm_dap_slice(tape, name, fm_groups_part(groups), x, 0) : x;
}

fm_tensor_ref fm_af3_split_gather(fm_tape *tape, const fm_groups *groups, const char *name,
                                  fm_tensor_ref x) {
    if (fm_tape_tensor(tape, x)->shard_axis < 0) return x;
    fm_gather gather = fm_dap_gather_begin(tape, name, groups->dap, x);
    return fm_dap_gather_finish(tape, &gather);
}
