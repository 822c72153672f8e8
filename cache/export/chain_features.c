/* chain_features.c: see chain_features.h. */
#include "cache/export/chain_features.h"

/* Reads the structures of templates from the cache, one at a time. */
typedef struct template_reader {
    const fm_store *store;
    fm_arena *arena;
    fm_part_structure structure;
} template_reader;

static fm_status load_template(void *context, const fm_sha256 *identity,
                               const fm_part_structure **ret_structure, fm_error *reterr) {
    template_reader *reader = context;
    *ret_structure = &reader->structure;
    return fm_store_load_structure(reader->store, identity, reader->arena, &reader->structure,
                                   reterr);
}

fm_status fm_chain_templates(const fm_store *store, const fm_record *record,
                             const fm_template_options *options, fm_arena *arena,
                             fm_template_features *ret_features, fm_error *reterr) {
    const fm_part_hits none = {.n_res = record->sequence->n_res};
    const fm_part_hits *hits = record->hits ? record->hits : &none;
    template_reader reader = {.store = store, .arena = arena};
    uint32_t *order, *chosen, n_order, n_templ;
    fm_status status = fm_templates_rank(hits, options, arena, &order, &n_order, reterr);
    if (!status) {
        status =
            fm_templates_choose(hits, order, n_order, options, arena, &chosen, &n_templ, reterr);
    }
    if (status) return status;
    return fm_templates_featurize(hits, chosen, n_templ, options->keep_position, load_template,
                                  &reader, arena, ret_features, reterr);
}
