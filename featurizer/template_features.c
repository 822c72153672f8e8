/* template_features.c: ranks and chooses mapped hits and copies their coordinates into template
 * features. See templates.h. */
#include "featurizer/templates.h"

#include "proto/chem/residue.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* -- ranking */

static const double LEAST_ALIGNED = 0.1;    /* of the query's length */
static const double DUPLICATE_RATIO = 0.95; /* of the query's length */
enum { LEAST_LETTERS = 10 };

typedef struct ranked_hit {
    double sum_probs;
    uint32_t index;
} ranked_hit;

/* Sorts the best first; equal hits keep their order. */
static int compare_ranked(const void *a, const void *b) {
    const ranked_hit *x = a, *y = b;
    if (x->sum_probs != y->sum_probs) return x->sum_probs < y->sum_probs ? 1 : -1;
    return x->index < y->index ? -1 : x->index > y->index;
}

/* Dates have ten characters, padded with zeros, so they compare as strings. */
static bool is_after(const char *date, const char *max_date) {
    return max_date && date[0] && strcmp(date, max_date) > 0;
}

static bool passes_dates(const fm_template_hit *hit, const fm_template_options *options) {
    if (options->compat_openfold) return !is_after(hit->listed_date, options->max_date);
    const char *date = hit->release_date[0] ? hit->release_date : hit->listed_date;
    return !options->max_date || (date[0] && !is_after(date, options->max_date));
}

static bool passes(const fm_template_hit *hit, uint32_t n_res, const fm_template_options *options) {
    if (!options->compat_openfold && hit->fault) return false;
    if (!passes_dates(hit, options)) return false;
    if ((double)hit->aligned_cols / n_res <= LEAST_ALIGNED) return false;
    if (hit->in_query && (double)hit->n_letter / n_res > DUPLICATE_RATIO) return false;
    return hit->n_letter >= LEAST_LETTERS;
}

fm_status fm_templates_rank(const fm_part_hits *hits, const fm_template_options *options,
                            fm_arena *arena, uint32_t **ret_order, uint32_t *ret_n,
                            fm_error *reterr) {
    uint32_t n = 0, *order = fm_arena_alloc_array(arena, hits->n_hit, sizeof *order);
    size_t mark = fm_arena_mark(arena);
    ranked_hit *ranked = fm_arena_alloc_array(arena, hits->n_hit, sizeof *ranked);
    if (!order || !ranked) return fm_arena_full(arena, reterr);
    for (uint32_t i = 0; i < hits->n_hit; i++) {
        const fm_template_hit *hit = &hits->hit[i];
        if (!passes(hit, hits->n_res, options)) continue;
        ranked[n++] = (ranked_hit){isnan(hit->sum_probs) ? 0.0 : hit->sum_probs, i};
    }
    qsort(ranked, n, sizeof *ranked, compare_ranked);
    for (uint32_t i = 0; i < n; i++)
        order[i] = ranked[i].index;
    fm_arena_rewind(arena, mark);
    *ret_order = order;
    *ret_n = n;
    return FM_OK;
}

/* -- choosing */

static void write_sequence(const fm_template_hit *hit, uint32_t n_res, char *sequence) {
    const char *letters = hit->letters;
    memset(sequence, '-', n_res);
    for (uint32_t i = 0; i < hit->n_run; i++) {
        memcpy(sequence + hit->run_query[i], letters, hit->run_size[i]);
        letters += hit->run_size[i];
    }
}

static fm_status check_fault(const fm_template_hit *hit, fm_error *reterr) {
    if (hit->fault == FM_HIT_NO_FILE) {
        return fm_fail(reterr, FM_ERR_NOT_FOUND, "template %.60s: %s", hit->name,
                       fm_template_fault_text(hit->fault));
    }
    if (hit->fault == FM_HIT_NO_DATE) {
        return fm_fail(reterr, FM_ERR_DATA, "template %.60s: %s", hit->name,
                       fm_template_fault_text(hit->fault));
    }
    return FM_OK;
}

static bool is_seen(const char *seen, uint32_t n, const char *sequence, uint32_t n_res) {
    for (uint32_t i = 0; i < n; i++) {
        if (memcmp(seen + (size_t)i * n_res, sequence, n_res) == 0) return true;
    }
    return false;
}

fm_status fm_templates_choose(const fm_part_hits *hits, const uint32_t *order, uint32_t n_order,
                              const fm_template_options *options, fm_arena *arena,
                              uint32_t **ret_chosen, uint32_t *ret_n_templ, fm_error *reterr) {
    uint32_t n = 0, max = options->max_templates < n_order ? options->max_templates : n_order;
    uint32_t *chosen = fm_arena_alloc_array(arena, max, sizeof *chosen);
    size_t mark = fm_arena_mark(arena);
    char *seen = fm_arena_alloc_array(arena, (size_t)max + 1, hits->n_res);
    if (!chosen || !seen) return fm_arena_full(arena, reterr);
    for (uint32_t i = 0; i < n_order && n < max; i++) {
        const fm_template_hit *hit = &hits->hit[order[i]];
        char *sequence = seen + (size_t)n * hits->n_res;
        fm_status status = options->compat_openfold ? check_fault(hit, reterr) : FM_OK;
        if (status) return status;
        if (hit->fault || is_after(hit->release_date, options->max_date)) continue;
        write_sequence(hit, hits->n_res, sequence);
        if (!is_seen(seen, n, sequence, hits->n_res)) chosen[n++] = order[i];
    }
    fm_arena_rewind(arena, mark);
    *ret_chosen = chosen;
    *ret_n_templ = n;
    return FM_OK;
}

/* -- coordinates */

/* Computes the mean of all atoms present: float32 sums in row-major order, then one float32
 * division, as the reference does. */
static void find_centre(const fm_part_structure *structure, float centre[3]) {
    float sum[3] = {0.0f, 0.0f, 0.0f};
    uint32_t n = 0;
    for (size_t cell = 0; cell < (size_t)structure->n_res * FM_N_ATOM37; cell++) {
        if (!structure->all_atom_mask[cell]) continue;
        for (int axis = 0; axis < 3; axis++)
            sum[axis] += structure->all_atom_positions[cell * 3 + (size_t)axis];
        n++;
    }
    for (int axis = 0; axis < 3; axis++)
        centre[axis] = n ? sum[axis] / (float)n : 0.0f;
}

static void copy_residue(const fm_part_structure *structure, size_t residue, const float *centre,
                         float *positions, uint8_t *mask) {
    const float *from = structure->all_atom_positions + residue * FM_N_ATOM37 * 3;
    memcpy(mask, structure->all_atom_mask + residue * FM_N_ATOM37, FM_N_ATOM37);
    for (size_t atom = 0; atom < FM_N_ATOM37; atom++) {
        for (size_t axis = 0; mask[atom] && axis < 3; axis++)
            positions[atom * 3 + axis] = from[atom * 3 + axis] - centre[axis];
    }
}

static fm_status copy_template(const fm_template_hit *hit, uint32_t n_res, bool keep_position,
                               const fm_part_structure *structure, float *positions, uint8_t *mask,
                               fm_error *reterr) {
    float centre[3] = {0.0f, 0.0f, 0.0f};
    if (!keep_position) find_centre(structure, centre);
    for (uint32_t i = 0; i < hit->n_run; i++) {
        size_t query = hit->run_query[i], template = hit->run_template[i], size = hit->run_size[i];
        if (template + size > structure->n_res || query + size > n_res) {
            return fm_fail(reterr, FM_ERR_CORRUPT,
                           "the hit %.60s maps residue %zu of a structure of %u", hit->name,
                           template + size, structure->n_res);
        }
        for (size_t k = 0; k < size; k++) {
            copy_residue(structure, template + k, centre, positions + (query + k) * FM_N_ATOM37 * 3,
                         mask + (query + k) * FM_N_ATOM37);
        }
    }
    return FM_OK;
}

fm_status fm_templates_featurize(const fm_part_hits *hits, const uint32_t *chosen, uint32_t n_templ,
                                 bool keep_position, fm_template_structure_fn *structure,
                                 void *context, fm_arena *arena, fm_template_features *ret_features,
                                 fm_error *reterr) {
    size_t n_cell = (size_t)n_templ * hits->n_res, n_atom = n_cell * FM_N_ATOM37;
    float *positions = fm_arena_calloc(arena, n_atom * 3, sizeof *positions);
    uint8_t *mask = fm_arena_calloc(arena, n_atom, 1), *aatype = fm_arena_alloc(arena, n_cell);
    char *sequence = fm_arena_alloc(arena, n_cell);
    float *sum_probs = fm_arena_alloc_array(arena, n_templ, sizeof *sum_probs);
    const char **names = fm_arena_alloc_array(arena, n_templ, sizeof *names);
    if (!positions || !mask || !aatype || !sequence || !sum_probs || !names) {
        return fm_arena_full(arena, reterr);
    }
    for (size_t t = 0; t < n_templ; t++) {
        const fm_template_hit *hit = &hits->hit[chosen[t]];
        const fm_part_structure *found;
        size_t base = t * hits->n_res;
        fm_status status = structure(context, &hit->structure, &found, reterr);
        if (!status) {
            status = copy_template(hit, hits->n_res, keep_position, found,
                                   positions + base * FM_N_ATOM37 * 3, mask + base * FM_N_ATOM37,
                                   reterr);
        }
        if (status) return status;
        write_sequence(hit, hits->n_res, sequence + base);
        sum_probs[t] = isnan(hit->sum_probs) ? 0.0f : (float)hit->sum_probs;
        names[t] = hit->name;
    }
    for (size_t i = 0; i < n_cell; i++)
        aatype[i] = fm_hhblits_from_letter[(uint8_t)sequence[i]];
    *ret_features = (fm_template_features){n_templ, hits->n_res, aatype,   positions,
                                           mask,    sum_probs,   sequence, names};
    return FM_OK;
}

/* -- arrays */

/* Joins strings by newlines. Each string has `size` bytes; size 0 means that the strings are
 * terminated. */
static char *join(fm_arena *arena, const char *const *strings, size_t n, size_t size,
                  uint64_t *ret_bytes) {
    size_t total = 0, at = 0;
    for (size_t i = 0; i < n; i++)
        total += (size ? size : strlen(strings[i])) + (i > 0);
    char *joined = fm_arena_alloc(arena, total);
    for (size_t i = 0; joined && i < n; i++) {
        size_t bytes = size ? size : strlen(strings[i]);
        if (i) joined[at++] = '\n';
        memcpy(joined + at, strings[i], bytes);
        at += bytes;
    }
    *ret_bytes = total;
    return joined;
}

fm_status fm_templates_list_arrays(const fm_template_features *features, fm_arena *arena,
                                   fm_array ret_arrays[FM_TEMPLATES_N_ARRAY], fm_error *reterr) {
    uint64_t n = features->n_templ, n_res = features->n_res, name_bytes, sequence_bytes;
    size_t n_cell = (size_t)n * n_res;
    int64_t *aatype = fm_arena_calloc(arena, n_cell * FM_N_HHBLITS, sizeof *aatype);
    float *mask = fm_arena_alloc_array(arena, n_cell * FM_N_ATOM37, sizeof *mask);
    const char **rows = fm_arena_alloc_array(arena, n, sizeof *rows);
    if (!aatype || !mask || !rows) return fm_arena_full(arena, reterr);
    for (size_t i = 0; i < n_cell; i++)
        aatype[i * FM_N_HHBLITS + features->template_aatype[i]] = 1;
    for (size_t i = 0; i < n_cell * FM_N_ATOM37; i++)
        mask[i] = features->template_all_atom_mask[i];
    for (size_t t = 0; t < n; t++)
        rows[t] = features->template_sequence + t * n_res;
    const char *names = join(arena, features->template_domain_names, n, 0, &name_bytes);
    const char *sequences = join(arena, rows, n, n_res, &sequence_bytes);
    if (!names || !sequences) return fm_arena_full(arena, reterr);
    const fm_array arrays[FM_TEMPLATES_N_ARRAY] = {
        {"template_aatype", n ? "<i8" : "<f4", 3, {n, n_res, FM_N_HHBLITS}, aatype},
        {"template_all_atom_mask", "<f4", 3, {n, n_res, FM_N_ATOM37}, mask},
        {"template_all_atom_positions",
         "<f4",
         4,
         {n, n_res, FM_N_ATOM37, 3},
         features->template_all_atom_positions},
        {"template_domain_names", "|u1", 1, {name_bytes}, names},
        {"template_sequence", "|u1", 1, {sequence_bytes}, sequences},
        {"template_sum_probs", "<f4", 2, {n, 1}, features->template_sum_probs},
    };
    memcpy(ret_arrays, arrays, sizeof arrays);
    return FM_OK;
}
