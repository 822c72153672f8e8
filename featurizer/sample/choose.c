/* choose.c: see choose.h. */
#include "featurizer/sample/choose.h"

#include "proto/template_date.h"

#include <assert.h>
#include <string.h>

uint32_t fm_choose_crop_start(const fm_plan *plan, const fm_draws *draws, bool is_clamped,
                              uint32_t n_res_chain, uint32_t n_res) {
    assert(n_res >= 1 && n_res <= n_res_chain);
    uint32_t end = n_res_chain - n_res, number = 0;
    if (!is_clamped || plan->compat_openfold) {
        end -= draws->below(draws->context, FM_SAMPLE_DRAW_CROP, 0, number++, end + 1);
    }
    return draws->below(draws->context, FM_SAMPLE_DRAW_CROP, 0, number, end + 1);
}

static uint32_t min_u32(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

uint32_t fm_choose_templates(const fm_plan *plan, const fm_draws *draws, uint32_t n_template,
                             uint32_t *ret_index) {
    for (uint32_t t = 0; t < n_template; t++)
        ret_index[t] = t;
    if (n_template == 0) return 0;
    if (plan->best_templates) return min_u32(n_template, plan->max_templates);
    if (plan->compat_openfold) {
        uint32_t start =
            draws->below(draws->context, FM_SAMPLE_DRAW_TEMPLATE_COUNT, 0, 0, n_template + 1);
        draws->pick(draws->context, FM_SAMPLE_DRAW_TEMPLATE_ORDER, 0, 0, ret_index, n_template,
                    n_template);
        uint32_t kept = min_u32(n_template - start, plan->max_templates);
        memmove(ret_index, ret_index + start, kept * sizeof *ret_index);
        return kept;
    }
    uint32_t pool = min_u32(n_template, plan->template_pool);
    uint32_t drawn = draws->below(draws->context, FM_SAMPLE_DRAW_TEMPLATE_COUNT, 0, 0, pool + 1);
    uint32_t kept = min_u32(drawn, plan->max_templates);
    draws->pick(draws->context, FM_SAMPLE_DRAW_TEMPLATES, 0, 0, ret_index, pool, kept);
    return kept;
}

/* Finds the newest release date that a template of this chain may have; *ret_date = NULL allows
 * any. Returns false when the chain may use no template: its own date decides and is not known. */
static bool find_max_date(const fm_plan *plan, const fm_part_structure *query,
                          char room[FM_DATE_TEXT_BYTES], const char **ret_date) {
    *ret_date = NULL;
    if (plan->max_template_date == FM_TEMPLATE_DATE_ANY) return true;
    if (plan->max_template_date != FM_TEMPLATE_DATE_QUERY) {
        fm_date_format(plan->max_template_date, room);
        *ret_date = room;
        return true;
    }
    if (!query) return false;
    if (query->is_distillation) return true;
    *ret_date = query->release_date;
    return query->release_date[0] != '\0';
}

fm_status fm_choose_hits(const fm_plan *plan, const fm_draws *draws, const fm_part_hits *hits,
                         const fm_part_structure *query, fm_arena *arena, uint32_t **ret_chosen,
                         uint32_t *ret_n_templ, fm_error *reterr) {
    bool compat = plan->compat_openfold;
    char room[FM_DATE_TEXT_BYTES];
    const char *max_date;
    *ret_chosen = NULL;
    *ret_n_templ = 0;
    if (!find_max_date(plan, query, room, &max_date)) return FM_OK;
    const fm_template_options ranking = {.compat_openfold = compat, .max_date = max_date};
    const fm_template_options reading = {.max_templates =
                                             compat ? plan->max_templates : plan->template_pool,
                                         .max_date = ranking.max_date};
    uint32_t *order, *usable, n_order, n_usable;
    fm_status status = fm_templates_rank(hits, &ranking, arena, &order, &n_order, reterr);
    if (status) return status;
    if (compat) {
        uint32_t pool = min_u32(n_order, plan->template_pool);
        draws->pick(draws->context, FM_SAMPLE_DRAW_TEMPLATES, 0, 0, order, pool, pool);
    }
    status = fm_templates_choose(hits, order, n_order, &reading, arena, &usable, &n_usable, reterr);
    if (status) return status;
    uint32_t *chosen = fm_arena_alloc_array(arena, n_usable, sizeof *chosen);
    if (!chosen) return fm_arena_full(arena, reterr);
    uint32_t n_templ = fm_choose_templates(plan, draws, n_usable, chosen);
    for (uint32_t t = 0; t < n_templ; t++)
        chosen[t] = usable[chosen[t]];
    *ret_chosen = chosen;
    *ret_n_templ = n_templ;
    return FM_OK;
}
