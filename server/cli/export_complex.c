/* export_complex.c: writes a complex of a cache for other programs; see export_chain.h. */
#include "cache/export/chain_features.h"
#include "server/cli/export_chain.h"
#include "server/cli/parse.h"

/* The best templates of an entity, as training would map them. */
static fm_status map_templates(const fm_export_options *options, const fm_store *store,
                               const fm_part_hits *hits, fm_arena *arena, fm_mapped_hits *ret_hits,
                               fm_error *reterr) {
    const fm_template_options choice = {
        .max_date = options->max_date, .max_templates = FM_EXPORT_TEMPLATES, .keep_position = true};
    const fm_part_sequence sequence = {.n_res = hits->n_res};
    const fm_record record = {.sequence = &sequence, .hits = hits};
    fm_template_features found;
    fm_status status = fm_chain_templates(store, &record, &choice, arena, &found, reterr);
    if (status) return status;
    fm_mapped_hit *mapped = fm_arena_alloc_array(arena, found.n_templ, sizeof *mapped);
    if (!mapped) return fm_arena_full(arena, reterr);
    for (uint32_t t = 0; t < found.n_templ; t++) {
        size_t first = (size_t)t * found.n_res;
        mapped[t] = (fm_mapped_hit){
            (const uint8_t *)found.template_sequence + first,
            found.template_all_atom_positions + first * FM_N_ATOM37 * 3,
            found.template_all_atom_mask + first * FM_N_ATOM37,
        };
    }
    *ret_hits = (fm_mapped_hits){found.n_templ, mapped};
    return FM_OK;
}

fm_status fm_export_complex(const fm_export_options *options, const fm_store *store, uint32_t item,
                            const char *path, fm_arena *arena, fm_error *reterr) {
    const fm_parse_request request = {
        .path = fm_store_chain_name(store, item), .out = path, .arena = arena};
    fm_complex loaded;
    fm_status status = fm_complex_load(options->complexes, item, arena, &loaded, reterr);
    if (status) return status;
    uint32_t n = loaded.assembly.n_entity;
    fm_complex_entity_inputs *inputs = fm_arena_calloc(arena, n, sizeof *inputs);
    if (!inputs) return fm_arena_full(arena, reterr);
    for (uint32_t i = 0; i < n && !status; i++) {
        const fm_complex_entity *entity = &loaded.entities[i];
        inputs[i].paired = entity->paired;
        inputs[i].unpaired = entity->unpaired;
        if (!entity->hits) continue;
        status = map_templates(options, store, entity->hits, arena, &inputs[i].templates, reterr);
    }
    return status ? status
                  : fm_parse_write_complex(&request, &loaded.assembly, inputs, options->format,
                                           reterr);
}
