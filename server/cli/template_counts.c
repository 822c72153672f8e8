/* template_counts.c: see template_counts.h. */
#include "server/cli/template_counts.h"

#include "featurizer/templates.h"
#include "proto/base/plural.h"

static fm_status count_chain(const fm_part_hits *hits, fm_arena *arena, fm_template_counts *counts,
                             fm_error *reterr) {
    const fm_template_options options = {.max_templates = 1};
    uint32_t *order, n = 0;
    if (!hits) {
        counts->n_no_list++;
        return FM_OK;
    }
    for (uint32_t i = 0; i < hits->n_hit; i++)
        counts->fault[hits->hit[i].fault]++;
    counts->n_hit += hits->n_hit;
    fm_status status = fm_templates_rank(hits, &options, arena, &order, &n, reterr);
    if (hits->n_hit) {
        counts->n_no_template += n == 0;
    } else {
        counts->n_no_hit++;
    }
    return status;
}

fm_status fm_template_count(const fm_store *store, fm_arena *arena, fm_template_counts *ret_counts,
                            fm_error *reterr) {
    const fm_store_info *info = fm_store_get_info(store);
    fm_template_counts counts = {.n_chain = info->n_chain - info->n_complex};
    fm_status status = FM_OK;
    size_t mark = fm_arena_mark(arena);
    for (uint32_t i = 0; i < info->n_chain && !status; i++) {
        const fm_part_hits *hits;
        if (fm_store_item_kind(store, i) == FM_STORED_COMPLEX) continue;
        status = fm_store_load_hits(store, i, arena, &hits, reterr);
        if (!status) status = count_chain(hits, arena, &counts, reterr);
        fm_arena_rewind(arena, mark);
    }
    if (!status) *ret_counts = counts;
    return status;
}

void fm_template_print(FILE *out, const fm_template_counts *counts) {
    fprintf(out, "templates %llu hits, %llu of them mapped\n", (unsigned long long)counts->n_hit,
            (unsigned long long)counts->fault[FM_HIT_MAPPED]);
    for (int f = FM_HIT_MAPPED + 1; f <= FM_HIT_FAULT_MAX; f++) {
        if (!counts->fault[f]) continue;
        fprintf(out, "          %llu hits not mapped: %s\n", (unsigned long long)counts->fault[f],
                fm_template_fault_text((fm_hit_fault)f));
    }
    if (counts->n_no_template) {
        fprintf(out, "          %u chain%s with hits, none of which can be a template\n",
                counts->n_no_template, fm_plural(counts->n_no_template));
    }
    if (counts->n_no_hit) {
        fprintf(out, "          %u chain%s whose files list no hit\n", counts->n_no_hit,
                fm_plural(counts->n_no_hit));
    }
    if (counts->n_no_list) {
        fprintf(out, "          %u chain%s without a file of template hits\n", counts->n_no_list,
                fm_plural(counts->n_no_list));
    }
}

void fm_template_json(fm_json_writer *json, const fm_template_counts *counts) {
    fm_json_open_object(json, "templates");
    fm_json_put_u64(json, "chains_without_list", counts->n_no_list);
    fm_json_put_u64(json, "chains_without_hits", counts->n_no_hit);
    fm_json_put_u64(json, "chains_without_template", counts->n_no_template);
    fm_json_put_u64(json, "hits", counts->n_hit);
    fm_json_put_u64(json, "mapped", counts->fault[FM_HIT_MAPPED]);
    fm_json_open_object(json, "unmapped");
    for (int f = FM_HIT_MAPPED + 1; f <= FM_HIT_FAULT_MAX; f++) {
        if (counts->fault[f]) {
            fm_json_put_u64(json, fm_template_fault_text((fm_hit_fault)f), counts->fault[f]);
        }
    }
    fm_json_close(json);
    fm_json_close(json);
}
