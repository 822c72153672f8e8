/* chain_features.h: a stored chain's template features, for programs that export whole chains. */
#ifndef FM_CACHE_CHAIN_FEATURES_H
#define FM_CACHE_CHAIN_FEATURES_H

#include "cache/store/store.h"
#include "featurizer/templates.h"

/* Chooses the best templates, without the shuffle of training, and reads their structures from the
 * store. A chain without hits gets no templates. The features are in the arena. Errors are those of
 * fm_templates_rank, fm_templates_choose, fm_templates_featurize and fm_store_load_structure. */
FM_MUST_USE fm_status fm_chain_templates(const fm_store *store, const fm_record *record,
                                         const fm_template_options *options, fm_arena *arena,
                                         fm_template_features *ret_features, fm_error *reterr);

#endif
