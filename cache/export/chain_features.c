/* chain_features.c: see chain_features.h. */
#include "cache/export/chain_features.h"

fm_status fm_template_reader_load(void *reader, const fm_sha256 *identity,
                                  const fm_part_structure **ret_structure, fm_error *reterr) {
    fm_template_reader *self = reader;
    *ret_structure = &self->structure;
    return fm_store_load_structure(self->store, identity, self->arena, &self->structure, reterr);
}

fm_status fm_chain_templates(const fm_store *store, const fm_record *record,
                             const fm_template_options *options, fm_arena *arena,
                             fm_template_features *ret_features, fm_error *reterr) {
    const fm_part_hits none = {.n_res = record->sequence->n_res};
    const fm_part_hits *hits = record->hits ? record->hits : &none;
    fm_template_reader reader = {.store = store, .arena = arena};
    uint32_t *order, *chosen, n_order, n_templ;
    fm_status status = fm_templates_rank(hits, options, arena, &order, &n_order, reterr);
    if (!status) {
        status =
            fm_templates_choose(hits, order, n_order, options, arena, &chosen, &n_templ, reterr);
    }
    if (status) return status;
    return fm_templates_featurize(hits, chosen, n_templ, options->keep_position,
                                  fm_template_reader_load, &reader, arena, ret_features, reterr);
}
