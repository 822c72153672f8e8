/* draw_templates.c: see draw_templates.h. */
#include "featurizer/complex/draw_templates.h"

#include "proto/base/date.h"
#include "proto/template_date.h"

#include <string.h>

/* Finds the newest release date that templates of a complex may have; *ret_date = NULL allows any.
 * Returns false when it may have none: its own date decides and is not known. */
static bool find_max_date(const fm_plan *plan, const fm_assembly *assembly,
                          char room[FM_DATE_TEXT_BYTES], const char **ret_date) {
    *ret_date = NULL;
    if (plan->max_template_date == FM_TEMPLATE_DATE_ANY) return true;
    /* 9999-12-31 is a complex without a date. */
    uint32_t own = fm_date_parse(assembly->release_date);
    bool is_dated = own != 0 && own != 99991231;
    uint32_t most = is_dated ? fm_date_before(own, plan->template_days) : 99991231;
    if (plan->max_template_date != FM_TEMPLATE_DATE_QUERY) {
        if (most > plan->max_template_date) most = plan->max_template_date;
    } else if (!is_dated && !plan->compat_protenix) {
        return false;
    }
    fm_date_format(most, room);
    *ret_date = room;
    return most != 0;
}

fm_status fm_draw_hits(const fm_plan *plan, const fm_draws *draws, const fm_assembly *assembly,
                       uint32_t entity, const fm_part_hits *hits, fm_arena *arena,
                       uint32_t **ret_chosen, uint32_t *ret_n, fm_error *reterr) {
    char room[FM_DATE_TEXT_BYTES];
    fm_template_options options = {.max_templates = plan->template_pool};
    uint32_t *order, n_order, n_usable;
    *ret_chosen = NULL;
    *ret_n = 0;
    if (!find_max_date(plan, assembly, room, &options.max_date)) return FM_OK;
    fm_status status = fm_templates_rank(hits, &options, arena, &order, &n_order, reterr);
    if (!status) {
        status = fm_templates_choose(hits, order, n_order, &options, arena, ret_chosen, &n_usable,
                                     reterr);
    }
    if (status || n_usable == 0) return status;
    uint32_t n = n_usable;
    if (!plan->best_templates) {
        n = draws->below(draws->context, FM_SAMPLE_DRAW_COMPLEX_TEMPLATE_COUNT, 0, entity,
                         n_usable + 1);
    }
    *ret_n = n < plan->max_templates ? n : plan->max_templates;
    if (!plan->best_templates) {
        draws->pick(draws->context, FM_SAMPLE_DRAW_COMPLEX_TEMPLATES, 0,
                    FM_COMPLEX_TEMPLATE_POOL * entity, *ret_chosen, n_usable, *ret_n);
    }
    return FM_OK;
}

static fm_status map_hits(const fm_complex_request *request, const fm_part_hits *hits,
                          const uint32_t *chosen, uint32_t n, fm_arena *arena,
                          fm_mapped_hits *ret_hits, fm_error *reterr) {
    fm_template_features features;
    fm_mapped_hit *mapped = fm_arena_alloc_array(arena, n, sizeof *mapped);
    if (!mapped) return fm_arena_full(arena, reterr);
    fm_status status =
        fm_templates_featurize(hits, chosen, n, false, request->templates->structure,
                               request->templates->context, arena, &features, reterr);
    if (status) return status;
    for (size_t k = 0; k < n; k++) {
        size_t first = k * features.n_res, cell = first * FM_N_ATOM37;
        mapped[k] = (fm_mapped_hit){(const uint8_t *)features.template_sequence + first,
                                    features.template_all_atom_positions + cell * 3,
                                    features.template_all_atom_mask + cell};
    }
    *ret_hits = (fm_mapped_hits){n, mapped};
    return FM_OK;
}

static fm_status draw_templates(const fm_complex_request *request, const fm_draws *draws,
                                uint32_t entity, fm_arena *arena, fm_mapped_hits *ret_hits,
                                fm_error *reterr) {
    const fm_assembly *assembly = &request->complex->assembly;
    const fm_part_hits *hits = request->complex->entities[entity].hits;
    const fm_assembly_entity *of = &assembly->entities[entity];
    uint32_t *chosen, n;
    if (!hits || !request->templates || request->plan->max_templates == 0 ||
        of->polymer != FM_POLYMER_PEPTIDE_L || of->n_residue < FM_SHORTEST_SEARCHED) {
        return FM_OK;
    }
    if (hits->n_res != of->n_residue) {
        return fm_fail(reterr, FM_ERR_DATA,
                       "entity %s: the template hits are for %u residues, but it has %u", of->id,
                       hits->n_res, of->n_residue);
    }
    fm_status status =
        fm_draw_hits(request->plan, draws, assembly, entity, hits, arena, &chosen, &n, reterr);
    if (status || n == 0) return status;
    return map_hits(request, hits, chosen, n, arena, ret_hits, reterr);
}

static fm_status check_rows(const fm_assembly_entity *of, const fm_sequence_rows *rows,
                            fm_error *reterr) {
    if (!rows || (rows->n_row > 0 && rows->n_col == of->n_residue)) return FM_OK;
    return fm_fail(reterr, FM_ERR_DATA,
                   "entity %s: an alignment has %u rows of %u columns, but it has %u residues",
                   of->id, rows->n_row, rows->n_col, of->n_residue);
}

fm_status fm_draw_entity_inputs(const fm_complex_request *request, const fm_draws *draws,
                                const fm_complex_crop *crop, fm_arena *arena,
                                const fm_complex_entity_inputs **ret_inputs, fm_error *reterr) {
    const fm_assembly *a = &request->complex->assembly;
    fm_complex_entity_inputs *inputs = fm_arena_calloc(arena, a->n_entity, sizeof *inputs);
    bool *is_done = fm_arena_calloc(arena, a->n_entity, sizeof *is_done);
    if (!inputs || !is_done) return fm_arena_full(arena, reterr);
    for (uint32_t i = 0; i < crop->n_token; i++) {
        const fm_assembly_residue *residue = &a->residues[a->tokens[crop->tokens[i]].residue];
        uint32_t e = a->chains[residue->chain].entity;
        if (is_done[e]) continue;
        is_done[e] = true;
        inputs[e].paired = request->complex->entities[e].paired;
        inputs[e].unpaired = request->complex->entities[e].unpaired;
        fm_status status = check_rows(&a->entities[e], inputs[e].paired, reterr);
        if (!status) status = check_rows(&a->entities[e], inputs[e].unpaired, reterr);
        if (!status) {
            status = draw_templates(request, draws, e, arena, &inputs[e].templates, reterr);
        }
        if (status) return status;
    }
    *ret_inputs = inputs;
    return FM_OK;
}
