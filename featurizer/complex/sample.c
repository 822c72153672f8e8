/* sample.c: see sample.h. */
#include "featurizer/complex/sample.h"

#include <stdlib.h>
#include <string.h>

typedef struct maker {
    const fm_assembly *assembly;
    const fm_complex_entity_inputs *inputs; /* NULL: none */
    const uint32_t *tokens;
    uint32_t n_token;
    const fm_complex_sample_options *options;
    fm_arena *arena;
    fm_array *arrays;
    size_t n;
    fm_error *error;
    uint32_t n_chain;
    uint32_t *order; /* [n_chain] the crop's chains, by entity and copy */
    fm_paired_chain *chains;
    fm_mapped_hits *templates;
    fm_paired_column *columns; /* [n_token] */
} maker;

static const fm_assembly_chain *chain_of_token(const maker *m, uint32_t t) {
    const fm_assembly_token *token = &m->assembly->tokens[m->tokens[t]];
    return &m->assembly->chains[m->assembly->residues[token->residue].chain];
}

static void *allocate(const maker *m, size_t n, size_t size) {
    return fm_arena_calloc(m->arena, n, size);
}

static fm_status add(maker *m, const char *name, const char *dtype, size_t rank,
                     const uint64_t *shape, const void *data) {
    size_t head = strlen(m->options->prefix), tail = strlen(name);
    char *key = fm_arena_alloc(m->arena, head + tail + 1);
    if (!key) return fm_arena_full(m->arena, m->error);
    memcpy(key, m->options->prefix, head);
    memcpy(key + head, name, tail + 1);
    fm_array *array = &m->arrays[m->n++];
    *array = (fm_array){.key = key, .dtype = dtype, .rank = rank, .data = data};
    memcpy(array->shape, shape, rank * sizeof *shape);
    return FM_OK;
}

/* Orders the crop's chains by entity_id, then by asym_id. */
static void order_chains(maker *m) {
    for (uint32_t t = 0; t < m->n_token; t++) {
        const fm_assembly_chain *chain = chain_of_token(m, t);
        uint32_t c = (uint32_t)(chain - m->assembly->chains), at = m->n_chain;
        if (t > 0 && chain == chain_of_token(m, t - 1)) continue;
        for (; at > 0; at--) {
            const fm_assembly_chain *before = &m->assembly->chains[m->order[at - 1]];
            bool is_behind =
                before->entity_id > chain->entity_id ||
                (before->entity_id == chain->entity_id && before->asym_id > chain->asym_id);
            if (!is_behind) break;
            m->order[at] = m->order[at - 1];
        }
        m->order[at] = c;
        m->n_chain++;
    }
}

/* The only row of an entity without alignments; of a ligand, one unknown residue for all. */
static fm_status take_sequence(const maker *m, const fm_assembly_entity *entity,
                               const fm_sequence_rows **ret_rows, fm_bytes *ret_sequence) {
    fm_sequence_rows *rows = allocate(m, 1, sizeof *rows);
    if (!rows) return fm_arena_full(m->arena, m->error);
    *ret_rows = rows;
    *ret_sequence = entity->sequence
                        ? (fm_bytes){(const uint8_t *)entity->sequence, entity->n_residue}
                        : (fm_bytes){(const uint8_t *)"X", 1};
    return fm_sequence_rows_read(NULL, 0, *ret_sequence, (fm_polymer)entity->polymer, NULL,
                                 m->arena, rows, m->error);
}

static fm_status take_chain(maker *m, uint32_t place) {
    const fm_assembly_chain *chain = &m->assembly->chains[m->order[place]];
    const fm_assembly_entity *entity = &m->assembly->entities[chain->entity];
    const fm_complex_entity_inputs *inputs = m->inputs ? &m->inputs[chain->entity] : NULL;
    fm_paired_chain *to = &m->chains[place];
    if (place > 0 && m->assembly->chains[m->order[place - 1]].entity == chain->entity) {
        m->chains[place] = m->chains[place - 1];
        m->templates[place] = m->templates[place - 1];
        return FM_OK;
    }
    to->polymer = (fm_polymer)entity->polymer;
    fm_status status = take_sequence(m, entity, &to->unpaired, &to->sequence);
    if (status) return status;
    to->paired = inputs && inputs->paired ? inputs->paired : to->unpaired;
    if (inputs && inputs->unpaired) to->unpaired = inputs->unpaired;
    if (inputs) m->templates[place] = inputs->templates;
    return FM_OK;
}

/* The column of a token is its residue's number; numbers beyond the sequence take the first. */
static void list_columns(maker *m) {
    for (uint32_t t = 0; t < m->n_token; t++) {
        const fm_assembly_token *token = &m->assembly->tokens[m->tokens[t]];
        const fm_assembly_residue *residue = &m->assembly->residues[token->residue];
        uint32_t place = 0;
        while (m->order[place] != residue->chain)
            place++;
        uint32_t n_col = m->chains[place].unpaired->n_col, number = (uint32_t)residue->number;
        bool is_inside = residue->number >= 1 && number <= n_col;
        m->columns[t] = (fm_paired_column){place, is_inside ? number - 1 : 0};
    }
}

static fm_status take_chains(maker *m) {
    const fm_assembly *a = m->assembly;
    m->order = allocate(m, a->n_chain, sizeof *m->order);
    m->chains = allocate(m, a->n_chain, sizeof *m->chains);
    m->templates = allocate(m, a->n_chain, sizeof *m->templates);
    m->columns = allocate(m, m->n_token, sizeof *m->columns);
    if (!m->order || !m->chains || !m->templates || !m->columns) {
        return fm_arena_full(m->arena, m->error);
    }
    order_chains(m);
    for (uint32_t c = 0; c < m->n_chain; c++) {
        fm_status status = take_chain(m, c);
        if (status) return status;
    }
    list_columns(m);
    return FM_OK;
}

/* -- arrays */

static fm_status add_features(maker *m) {
    fm_complex_features *features = allocate(m, 1, sizeof *features);
    const fm_complex_feature_options options = {.use_model_positions =
                                                    m->options->use_model_positions,
                                                .has_far_bonds = m->options->is_prediction,
                                                .placement = m->options->placement};
    if (!features) return fm_arena_full(m->arena, m->error);
    fm_status status = fm_complex_features_make(m->assembly, m->tokens, m->n_token, &options,
                                                m->arena, features, m->error);
    if (status) return status;
    return fm_complex_features_list(features, m->options->prefix, m->arena, m->arrays, &m->n,
                                    m->error);
}

/* The number of each token in its chain before the crop. */
static fm_status add_numbers(maker *m) {
    int32_t *number = allocate(m, m->n_token, sizeof *number);
    if (!number) return fm_arena_full(m->arena, m->error);
    for (uint32_t t = 0; t < m->n_token; t++)
        number[t] = (int32_t)(m->tokens[t] - chain_of_token(m, t)->first_token);
    return add(m, "token_number", "<i4", 1, (uint64_t[]){m->n_token}, number);
}

static fm_status add_profile(maker *m) {
    float *profile = allocate(m, m->n_token, FM_N_RESTYPE32 * sizeof *profile);
    float *mean = allocate(m, m->n_token, sizeof *mean);
    if (!profile || !mean) return fm_arena_full(m->arena, m->error);
    for (uint32_t t = 0; t < m->n_token; t++) {
        const fm_sequence_rows *rows = m->chains[m->columns[t].chain].unpaired;
        size_t column = m->columns[t].column;
        memcpy(profile + (size_t)t * FM_N_RESTYPE32, rows->profile + column * FM_N_RESTYPE32,
               FM_N_RESTYPE32 * sizeof *profile);
        mean[t] = (float)rows->deletion_mean[column];
    }
    fm_status status =
        add(m, "profile", "<f4", 2, (uint64_t[]){m->n_token, FM_N_RESTYPE32}, profile);
    return status ? status : add(m, "deletion_mean", "<f4", 1, (uint64_t[]){m->n_token}, mean);
}

static fm_status plan_rows(const maker *m, fm_complex_rows *ret_rows) {
    const fm_paired_options options = {m->options->max_row,
                                       m->options->compat_protenix || m->options->is_prediction};
    *ret_rows =
        (fm_complex_rows){.chains = m->chains, .columns = m->columns, .n_column = m->n_token};
    return fm_paired_rows_plan(m->chains, m->n_chain, &options, m->arena, &ret_rows->rows,
                               m->error);
}

void fm_complex_rows_gather(const fm_complex_rows *rows, const uint32_t *row, uint32_t n,
                            uint8_t *ret_ids, uint8_t *ret_deletion) {
    for (size_t i = 0; i < n; i++) {
        fm_paired_rows_gather(&rows->rows, rows->chains, row ? row[i] : (uint32_t)i, rows->columns,
                              rows->n_column, ret_ids + i * rows->n_column,
                              ret_deletion + i * rows->n_column);
    }
}

static fm_status add_msa(maker *m) {
    fm_complex_rows rows;
    fm_status status = plan_rows(m, &rows);
    if (status) return status;
    const uint64_t shape[] = {rows.rows.n_row, m->n_token};
    uint8_t *ids = fm_arena_alloc_array(m->arena, shape[0], shape[1]);
    uint8_t *deletion = fm_arena_alloc_array(m->arena, shape[0], shape[1]);
    if (!ids || !deletion) return fm_arena_full(m->arena, m->error);
    fm_complex_rows_gather(&rows, NULL, rows.rows.n_row, ids, deletion);
    status = add(m, "msa", "|u1", 2, shape, ids);
    return status ? status : add(m, "deletion", "|u1", 2, shape, deletion);
}

static fm_status add_templates(maker *m) {
    const uint64_t n_template = m->options->n_template, n = m->n_token;
    const fm_template_tokens_options options = {m->options->n_template,
                                                m->options->compat_protenix};
    if (n_template == 0) return FM_OK;
    uint8_t *class = allocate(m, n_template * n, 1), *mask = allocate(m, n_template * n, 1);
    float *atoms = allocate(m, n_template * n, FM_N_TEMPLATE_ATOM * 3 * sizeof *atoms);
    if (!class || !mask || !atoms) return fm_arena_full(m->arena, m->error);
    fm_template_tokens_list(m->templates, m->columns, m->n_token, &options, class, atoms, mask);
    const uint64_t shape[] = {n_template, n, FM_N_TEMPLATE_ATOM, 3};
    fm_status status = add(m, "template_aatype", "|u1", 2, shape, class);
    if (!status) status = add(m, "template_atoms", "<f4", 4, shape, atoms);
    return status ? status : add(m, "template_atom_mask", "|u1", 2, shape, mask);
}

static fm_status take_all_tokens(maker *m) {
    uint32_t *all = allocate(m, m->assembly->n_token, sizeof *all);
    if (!all) return fm_arena_full(m->arena, m->error);
    for (uint32_t t = 0; t < m->assembly->n_token; t++)
        all[t] = t;
    m->tokens = all;
    m->n_token = m->assembly->n_token;
    return FM_OK;
}

static fm_status start(maker *m) {
    fm_status status = m->tokens ? FM_OK : take_all_tokens(m);
    if (!status) status = take_chains(m);
    if (!status) status = add_features(m);
    if (!status) status = add_numbers(m);
    return status ? status : add_profile(m);
}

fm_status fm_complex_sample_make(const fm_assembly *assembly,
                                 const fm_complex_entity_inputs *inputs, const uint32_t *tokens,
                                 uint32_t n_token, const fm_complex_sample_options *options,
                                 fm_arena *arena, fm_array ret_arrays[FM_COMPLEX_SAMPLE_ARRAYS],
                                 size_t *ret_n, fm_error *reterr) {
    maker m = {.assembly = assembly,
               .inputs = inputs,
               .tokens = tokens,
               .n_token = n_token,
               .options = options,
               .arena = arena,
               .arrays = ret_arrays,
               .error = reterr};
    fm_status status = start(&m);
    if (!status) status = add_msa(&m);
    if (!status) status = add_templates(&m);
    if (!status) *ret_n = m.n;
    return status;
}

fm_status fm_complex_sample_plan(const fm_assembly *assembly,
                                 const fm_complex_entity_inputs *inputs, const uint32_t *tokens,
                                 uint32_t n_token, const fm_complex_sample_options *options,
                                 fm_arena *arena, fm_array ret_arrays[FM_COMPLEX_SAMPLE_ARRAYS],
                                 size_t *ret_n, fm_complex_rows *ret_rows, fm_error *reterr) {
    maker m = {.assembly = assembly,
               .inputs = inputs,
               .tokens = tokens,
               .n_token = n_token,
               .options = options,
               .arena = arena,
               .arrays = ret_arrays,
               .error = reterr};
    fm_status status = start(&m);
    if (!status) status = add_templates(&m);
    if (!status) status = plan_rows(&m, ret_rows);
    if (!status) *ret_n = m.n;
    return status;
}
