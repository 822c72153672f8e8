/* upload_check.c: checks a sample before it is packed; see upload.h. */
#include "trainer/step/upload.h"

#include "trainer/ops/template.h"

enum { UNKNOWN_RESIDUE = 20 };

/* Far above the index of any chain, and low enough that differences cannot overflow. */
enum { MOST_RESIDUE_INDEX = 1 << 24 };

/* Returns the position of the first of `count` bytes that is above `most`, or count. */
static size_t first_above(const uint8_t *bytes, size_t count, uint8_t most) {
    size_t i = 0;
    while (i < count && bytes[i] <= most)
        i++;
    return i;
}

static fm_status check_ids(const char *name, const uint8_t *ids, size_t count, uint8_t most,
                           fm_error *reterr) {
    size_t bad = first_above(ids, count, most);
    if (bad == count) return FM_OK;
    return fm_fail(reterr, FM_ERR_DATA, "element %zu of %s is %u, expected 0 to %u", bad, name,
                   ids[bad], most);
}

static fm_status check_residues(const fm_features *f, fm_error *reterr) {
    for (uint32_t i = 0; i < f->n_res; i++) {
        if (f->residue_index[i] < 0 || f->residue_index[i] > MOST_RESIDUE_INDEX) {
            return fm_fail(reterr, FM_ERR_DATA,
                           "element %u of residue_index is %d, expected 0 to %d", i,
                           (int)f->residue_index[i], MOST_RESIDUE_INDEX);
        }
    }
    fm_status status = check_ids("aatype", f->aatype, f->n_res, UNKNOWN_RESIDUE, reterr);
    return status ? status
                  : check_ids("template_aatype", f->template_aatype, (size_t)f->n_templ * f->n_res,
                              FM_TEMPLATE_CLASSES - 1, reterr);
}

static fm_status check_cycle(const fm_features *f, const fm_cycle_features *c, bool predicts,
                             fm_error *reterr) {
    size_t count = (size_t)c->n_clust * f->n_res;
    for (uint32_t s = 0; s < c->n_clust; s++) {
        if (c->cluster_size[s] == 0) {
            return fm_fail(reterr, FM_ERR_DATA,
                           "element %u of cluster_size is 0, expected 1 or more", s);
        }
    }
    fm_status status = check_ids("msa", c->msa, count, FM_MSA_CLASSES - 1, reterr);
    if (!status && !predicts) {
        status = check_ids("true_msa", c->true_msa, count, FM_MSA_CLASSES - 1, reterr);
    }
    return status ? status
                  : check_ids("extra_msa", c->extra_msa, (size_t)c->n_extra * f->n_res,
                              FM_MSA_CLASSES - 1, reterr);
}

static fm_status check_rows(const fm_model_config *config, const fm_cycle_features *c,
                            uint32_t cycle, fm_error *reterr) {
    if (c->n_clust < 1 || c->n_clust > config->n_seq) {
        return fm_fail(reterr, FM_ERR_LIMIT, "cycle %u has %u clusters, the model takes 1 to %lld",
                       cycle, c->n_clust, (long long)config->n_seq);
    }
    if (config->n_extra_block > 0 && c->n_extra > config->n_extra) {
        return fm_fail(reterr, FM_ERR_LIMIT,
                       "cycle %u has %u extra MSA rows, the model takes 0 to %lld", cycle,
                       c->n_extra, (long long)config->n_extra);
    }
    return FM_OK;
}

fm_status fm_upload_check(const fm_cycles *cycles, const fm_features *features, fm_error *reterr) {
    const fm_model_config *config = cycles->model;
    if (features->n_res < 1 || features->n_res > config->n_res) {
        return fm_fail(reterr, FM_ERR_LIMIT,
                       "the sample has %u residues, the model takes 1 to %lld", features->n_res,
                       (long long)config->n_res);
    }
    if (features->n_cycle < 1 || features->n_cycle > FM_MAX_CYCLE) {
        return fm_fail(reterr, FM_ERR_LIMIT, "the sample has %u cycles, a step takes 1 to %d",
                       features->n_cycle, FM_MAX_CYCLE);
    }
    fm_status status = check_residues(features, reterr);
    for (uint32_t c = 0; c < features->n_cycle && !status; c++) {
        status = check_rows(config, &features->cycle[c], c, reterr);
        if (!status) status = check_cycle(features, &features->cycle[c], !cycles->weight, reterr);
    }
    return status;
}
