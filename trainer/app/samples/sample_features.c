/* sample_features.c: see sample_features.h. */
#include "trainer/app/samples/sample_features.h"

#include "proto/base/plural.h"

static fm_element element_of(uint8_t dtype) {
    return dtype == FM_U8 ? FM_ELEMENT_U8 : dtype == FM_U16 ? FM_ELEMENT_U16 : FM_ELEMENT_U32;
}

/* The tensor's data. If the sample lacks the tensor: NULL, and *missing is its name. */
static const void *tensor_data(const fm_sample *sample, fm_tensor_id id, uint32_t cycle,
                               const char **missing) {
    const fm_tensor_view *tensor = fm_sample_find(sample, id, cycle);
    if (!tensor) *missing = fm_schema_find(id)->name;
    return tensor ? tensor->data : NULL;
}

static void fill_cycle(const fm_sample *sample, uint32_t c, fm_cycle_features *cycle,
                       const char **missing) {
    const fm_tensor_view *msa = fm_sample_find(sample, FM_T_MSA, c);
    const fm_tensor_view *profile = fm_sample_find(sample, FM_T_CLUSTER_PROFILE, c);
    const fm_tensor_view *extra = fm_sample_find(sample, FM_T_EXTRA_MSA, c);
    *cycle = (fm_cycle_features){
        .n_clust = msa ? msa->shape[0] : 0,
        .msa = tensor_data(sample, FM_T_MSA, c, missing),
        .true_msa = tensor_data(sample, FM_T_TRUE_MSA, c, missing),
        .bert_mask = tensor_data(sample, FM_T_BERT_MASK, c, missing),
        .deletion_matrix = tensor_data(sample, FM_T_DELETION_MATRIX, c, missing),
        .cluster_profile = tensor_data(sample, FM_T_CLUSTER_PROFILE, c, missing),
        .profile_element = profile ? element_of(profile->dtype) : FM_ELEMENT_U8,
        .cluster_deletion_sum = tensor_data(sample, FM_T_CLUSTER_DELETION_SUM, c, missing),
        .cluster_size = tensor_data(sample, FM_T_CLUSTER_SIZE, c, missing),
        .n_extra = extra ? extra->shape[0] : 0,
        .extra_msa = tensor_data(sample, FM_T_EXTRA_MSA, c, missing),
        .extra_deletion_matrix = tensor_data(sample, FM_T_EXTRA_DELETION_MATRIX, c, missing),
    };
}

/* The three template tensors come together or not at all. */
static void fill_templates(const fm_sample *sample, fm_features *features, const char **missing) {
    const fm_tensor_view *aatype = fm_sample_find(sample, FM_T_TEMPLATE_AATYPE, FM_SHARED);
    if (!aatype) return;
    features->n_templ = aatype->shape[0];
    features->template_aatype = aatype->data;
    features->template_all_atom_positions =
        tensor_data(sample, FM_T_TEMPLATE_ALL_ATOM_POSITIONS, FM_SHARED, missing);
    features->template_all_atom_mask =
        tensor_data(sample, FM_T_TEMPLATE_ALL_ATOM_MASK, FM_SHARED, missing);
}

fm_status fm_features_use(fm_features *features, uint32_t slot, uint32_t n_cycle,
                          fm_error *reterr) {
    if (n_cycle > features->n_cycle) {
        return fm_fail(reterr, FM_ERR_PROTOCOL,
                       "the server sent a sample with %u recycling cycle%s, and its step has %u",
                       features->n_cycle, fm_plural(features->n_cycle), n_cycle);
    }
    features->slot = slot;
    features->n_cycle = n_cycle;
    return FM_OK;
}

fm_status fm_features_of(const fm_sample *sample, fm_features *ret_features, fm_error *reterr) {
    const char *missing = NULL;
    if (sample->n_cycle > FM_MAX_CYCLE) {
        return fm_fail(reterr, FM_ERR_LIMIT,
                       "sample %llu has %u recycling cycles; at most %d are supported",
                       (unsigned long long)sample->index, sample->n_cycle, FM_MAX_CYCLE);
    }
    *ret_features = (fm_features){
        .n_res = sample->n_res,
        .slot = sample->slot,
        .aatype = tensor_data(sample, FM_T_AATYPE, FM_SHARED, &missing),
        .residue_index = tensor_data(sample, FM_T_RESIDUE_INDEX, FM_SHARED, &missing),
        .all_atom_positions = tensor_data(sample, FM_T_ALL_ATOM_POSITIONS, FM_SHARED, &missing),
        .all_atom_mask = tensor_data(sample, FM_T_ALL_ATOM_MASK, FM_SHARED, &missing),
        .resolution = sample->resolution,
        .unclamped_fape = !sample->use_clamped_fape,
        .n_cycle = sample->n_cycle,
    };
    fill_templates(sample, ret_features, &missing);
    for (uint32_t c = 0; c < sample->n_cycle; c++)
        fill_cycle(sample, c, &ret_features->cycle[c], &missing);
    if (!missing) return FM_OK;
    return fm_fail(reterr, FM_ERR_DATA, "sample %llu (%s) has no tensor '%s'",
                   (unsigned long long)sample->index, sample->name, missing);
}
