/* sample.c: assembles one sample; see sample.h.
 *
 * The tensors that all cycles share are made first: sequence, structure and templates of the crop.
 * Then for each cycle transform() chooses, masks, clusters and sums over the whole chain's rows,
 * and the results are cropped to [crop_start, crop_start + n_res) while they are copied into
 * tensors. The table of tensors ends up in the canonical order of proto/schema.h, so equal samples
 * encode to equal bytes. */
#include "featurizer/sample/sample.h"

#include "proto/base/hash.h"

#include "featurizer/structure.h"
#include "featurizer/sample/choose.h"
#include "featurizer/sample/msa.h"
#include "featurizer/sample/rows.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum { AHEAD = 4 }; /* rows to prefetch ahead */

/* A sample under construction. */
typedef struct builder {
    const fm_plan *plan;
    const fm_record *record;
    const fm_sample_templates *templates;
    const fm_part_msa *msa;
    const fm_draws *draws;
    const fm_row_kernels *kernels;
    fm_arena *arena;
    fm_error *reterr;
    bool is_clamped; /* FAPE; drawn before the crop, which depends on it */
    uint32_t crop_start, n_res;
    fm_tensor_view *tensor;
    uint32_t n_tensor, max_tensor;
} builder;

/* Enters a tensor whose data exists into the sample's table. */
static void enter_tensor(builder *b, fm_tensor_id id, uint32_t cycle, fm_dtype dtype, uint8_t rank,
                         const uint32_t shape[4], const void *data) {
    assert(b->n_tensor < b->max_tensor);
    size_t elements = shape[0];
    for (uint8_t k = 1; k < rank; k++)
        elements *= shape[k];
    b->tensor[b->n_tensor++] = (fm_tensor_view){
        .id = (uint16_t)id,
        .cycle = (uint8_t)cycle,
        .dtype = (uint8_t)dtype,
        .rank = rank,
        .shape = {shape[0], rank > 1 ? shape[1] : 0, rank > 2 ? shape[2] : 0,
                  rank > 3 ? shape[3] : 0},
        .data = data,
        .bytes = elements * fm_dtype_bytes(dtype),
    };
}

/* Allocates a tensor of up to three dimensions and enters it into the sample's table. Returns NULL
 * when the arena is full. */
static void *add_tensor(builder *b, fm_tensor_id id, uint32_t cycle, fm_dtype dtype, uint8_t rank,
                        uint32_t n0, uint32_t n1, uint32_t n2) {
    size_t elements = (size_t)n0 * (rank > 1 ? n1 : 1) * (rank > 2 ? n2 : 1);
    void *data = fm_arena_alloc(b->arena, elements * fm_dtype_bytes(dtype));
    if (data) enter_tensor(b, id, cycle, dtype, rank, (const uint32_t[4]){n0, n1, n2}, data);
    return data;
}

/* -- shared by all cycles */

static fm_status add_sequence(builder *b) {
    uint8_t *aatype = add_tensor(b, FM_T_AATYPE, FM_SHARED, FM_U8, 1, b->n_res, 0, 0);
    int32_t *residue_index =
        add_tensor(b, FM_T_RESIDUE_INDEX, FM_SHARED, FM_I32, 1, b->n_res, 0, 0);
    if (!aatype || !residue_index) return fm_arena_full(b->arena, b->reterr);
    for (uint32_t i = 0; i < b->n_res; i++) {
        aatype[i] = fm_restype_from_letter(b->record->sequence->sequence[b->crop_start + i]);
        residue_index[i] = (int32_t)(b->crop_start + i);
    }
    return FM_OK;
}

static uint64_t pack_atoms(const uint8_t mask[FM_N_ATOM37]) {
    uint64_t bits = 0;
    for (uint32_t a = 0; a < FM_N_ATOM37; a++)
        bits |= (uint64_t)(mask[a] & 1) << a;
    return bits;
}

static fm_status add_structure(builder *b) {
    const fm_part_structure *structure = b->record->structure;
    float *positions =
        add_tensor(b, FM_T_ALL_ATOM_POSITIONS, FM_SHARED, FM_F32, 3, b->n_res, FM_N_ATOM37, 3);
    uint64_t *mask = add_tensor(b, FM_T_ALL_ATOM_MASK, FM_SHARED, FM_U64, 1, b->n_res, 0, 0);
    if (!positions || !mask) return fm_arena_full(b->arena, b->reterr);
    if (!structure) {
        memset(positions, 0, (size_t)b->n_res * FM_N_ATOM37 * 3 * sizeof *positions);
        memset(mask, 0, b->n_res * sizeof *mask);
        return FM_OK;
    }
    size_t first = (size_t)b->crop_start * FM_N_ATOM37;
    memcpy(positions, structure->all_atom_positions + first * 3,
           (size_t)b->n_res * FM_N_ATOM37 * 3 * sizeof *positions);
    for (uint32_t i = 0; i < b->n_res; i++) {
        uint64_t bits = pack_atoms(structure->all_atom_mask + first + (size_t)i * FM_N_ATOM37);
        mask[i] = fm_structure_is_sure(structure, b->crop_start + i) ? bits : 0;
    }
    if (!structure->confidence) return FM_OK;
    float *confidence = add_tensor(b, FM_T_CONFIDENCE, FM_SHARED, FM_F32, 1, b->n_res, 0, 0);
    if (!confidence) return fm_arena_full(b->arena, b->reterr);
    memcpy(confidence, structure->confidence + b->crop_start, b->n_res * sizeof *confidence);
    return FM_OK;
}

/* The tensors of the crop's part of the templates. */
typedef struct template_tensors {
    uint8_t *aatype;
    float *positions;
    uint64_t *mask;
    float *sum_probs;
} template_tensors;

static bool add_template_tensors(builder *b, uint32_t n_templ, template_tensors *ret_tensors) {
    const uint32_t shape[4] = {n_templ, b->n_res, FM_N_ATOM37, 3};
    template_tensors made = {
        .aatype = add_tensor(b, FM_T_TEMPLATE_AATYPE, FM_SHARED, FM_U8, 2, n_templ, b->n_res, 0),
        .positions = fm_arena_alloc_array(b->arena, (size_t)n_templ * b->n_res,
                                          (size_t)FM_N_ATOM37 * 3 * sizeof *made.positions)};
    if (!made.aatype || !made.positions) return false;
    enter_tensor(b, FM_T_TEMPLATE_ALL_ATOM_POSITIONS, FM_SHARED, FM_F32, 4, shape, made.positions);
    made.mask =
        add_tensor(b, FM_T_TEMPLATE_ALL_ATOM_MASK, FM_SHARED, FM_U64, 2, n_templ, b->n_res, 0);
    made.sum_probs = add_tensor(b, FM_T_TEMPLATE_SUM_PROBS, FM_SHARED, FM_F32, 1, n_templ, 0, 0);
    *ret_tensors = made;
    return made.mask && made.sum_probs;
}

static void crop_templates(const builder *b, const fm_template_features *features,
                           const template_tensors *out) {
    enum { N_COORDINATE = FM_N_ATOM37 * 3 };
    for (size_t t = 0; t < features->n_templ; t++) {
        size_t source = t * features->n_res + b->crop_start, target = t * b->n_res;
        b->kernels->restypes(features->template_aatype + source, b->n_res, out->aatype + target);
        memcpy(out->positions + target * N_COORDINATE,
               features->template_all_atom_positions + source * N_COORDINATE,
               (size_t)b->n_res * N_COORDINATE * sizeof *out->positions);
        for (size_t i = 0; i < b->n_res; i++) {
            out->mask[target + i] =
                pack_atoms(features->template_all_atom_mask + (source + i) * FM_N_ATOM37);
        }
        out->sum_probs[t] = features->template_sum_probs[t];
    }
}

/* Only the cropped tensors stay in the arena; the features of the whole chain are released. */
static fm_status add_templates(builder *b) {
    const fm_part_hits *hits = b->record->hits;
    uint32_t *chosen, n_templ;
    if (!b->templates || !hits) return FM_OK;
    fm_status status = fm_choose_hits(b->plan, b->draws, hits, b->record->structure, b->arena,
                                      &chosen, &n_templ, b->reterr);
    if (status || n_templ == 0) return status;
    template_tensors tensors;
    if (!add_template_tensors(b, n_templ, &tensors)) return fm_arena_full(b->arena, b->reterr);
    size_t mark = fm_arena_mark(b->arena);
    fm_template_features features;
    status = fm_templates_featurize(hits, chosen, n_templ, false, b->templates->structure,
                                    b->templates->context, b->arena, &features, b->reterr);
    if (status) return status;
    crop_templates(b, &features, &tensors);
    fm_arena_rewind(b->arena, mark);
    return FM_OK;
}

/* -- one cycle */

static fm_status add_rows(builder *b, uint32_t cycle, fm_tensor_id msa_id, fm_tensor_id deletion_id,
                          const uint32_t *row, uint32_t n_row) {
    uint8_t *ids = add_tensor(b, msa_id, cycle, FM_U8, 2, n_row, b->n_res, 0);
    uint16_t *deletions = add_tensor(b, deletion_id, cycle, FM_U16, 2, n_row, b->n_res, 0);
    if (!ids || !deletions) return fm_arena_full(b->arena, b->reterr);
    for (uint32_t r = 0; r < n_row; r++) {
        if (r + AHEAD < n_row) {
            size_t soon = (size_t)row[r + AHEAD] * b->msa->n_res + b->crop_start;
            fm_row_prefetch(b->msa->msa + soon, b->n_res);
            fm_row_prefetch(b->msa->deletion_matrix + soon, b->n_res * sizeof *deletions);
        }
        size_t source = (size_t)row[r] * b->msa->n_res, target = (size_t)r * b->n_res;
        b->kernels->restypes(b->msa->msa + source + b->crop_start, b->n_res, ids + target);
        memcpy(deletions + target, b->msa->deletion_matrix + source + b->crop_start,
               b->n_res * sizeof *deletions);
    }
    return FM_OK;
}

/* Appends flags (bytes 0 or 1) to a string of n_bit bits. The last byte's unused bits are 0. */
static void append_bits(uint8_t *bits, size_t n_bit, const uint8_t *flags, uint32_t n) {
    uint32_t i = 0;
    for (; i < n && (n_bit + i) % 8; i++)
        bits[(n_bit + i) / 8] |= (uint8_t)(flags[i] << (n_bit + i) % 8);
    for (; i + 8 <= n; i += 8) {
        uint64_t flags_8;
        memcpy(&flags_8, flags + i, 8); /* the product moves flag k to bit 56 + k */
        bits[(n_bit + i) / 8] = (uint8_t)(flags_8 * 0x0102040810204080u >> 56);
    }
    if (i < n) bits[(n_bit + i) / 8] = 0;
    for (; i < n; i++)
        bits[(n_bit + i) / 8] |= (uint8_t)(flags[i] << (n_bit + i) % 8);
}

static fm_status add_masked(builder *b, uint32_t cycle, const fm_msa_choice *choice,
                            const fm_msa_masked *masked) {
    size_t n_position = (size_t)choice->n_centre * b->n_res;
    uint8_t *msa = add_tensor(b, FM_T_MSA, cycle, FM_U8, 2, choice->n_centre, b->n_res, 0);
    uint8_t *bits =
        add_tensor(b, FM_T_BERT_MASK, cycle, FM_U8, 1, (uint32_t)((n_position + 7) / 8), 0, 0);
    if (!msa || !bits) return fm_arena_full(b->arena, b->reterr);
    for (uint32_t c = 0; c < choice->n_centre; c++) {
        size_t source = (size_t)c * b->msa->n_res + b->crop_start, target = (size_t)c * b->n_res;
        b->kernels->restypes(masked->msa + source, b->n_res, msa + target);
        append_bits(bits, target, masked->chosen + source, b->n_res);
    }
    return FM_OK;
}

/* Enters the arrays of sums as tensors without a copy. */
static void enter_profile(builder *b, uint32_t cycle, uint32_t n_centre,
                          const fm_msa_profile *profile) {
    const uint32_t shape[4] = {n_centre, b->n_res, FM_N_MSA_CLASS};
    enter_tensor(b, FM_T_CLUSTER_PROFILE, cycle, profile->dtype, 3, shape, profile->count);
    enter_tensor(b, FM_T_CLUSTER_DELETION_SUM, cycle, FM_U32, 2, shape, profile->deletion_sum);
    enter_tensor(b, FM_T_CLUSTER_SIZE, cycle, FM_U32, 1, shape, profile->size);
}

/* The results of a cycle's transforms, before they are cropped into tensors. */
typedef struct cycle_msa {
    fm_msa_choice choice;
    fm_msa_masked masked;
    fm_msa_profile profile;
} cycle_msa;

static fm_status transform(builder *b, uint32_t cycle, cycle_msa *ret_msa) {
    bool distillation = b->record->structure && b->record->structure->is_distillation;
    uint32_t *cluster = NULL;
    fm_status status = fm_msa_choose(b->plan, b->draws, cycle, b->msa->n_seq, distillation,
                                     b->arena, &ret_msa->choice, b->reterr);
    if (!status) {
        status = fm_msa_mask(b->plan, b->draws, cycle, b->msa, &ret_msa->choice, b->arena,
                             &ret_msa->masked, b->reterr);
    }
    if (!status) {
        status = fm_msa_cluster(b->msa, &ret_msa->choice, &ret_msa->masked, b->arena, &cluster,
                                b->reterr);
    }
    if (!status) {
        status = fm_msa_summarize(b->msa, &ret_msa->choice, &ret_msa->masked, cluster,
                                  b->crop_start, b->n_res, b->arena, &ret_msa->profile, b->reterr);
    }
    return status;
}

/* Sorts a cycle's nine tensors, made in any order, into the canonical order by insertion. */
static void sort_by_id(fm_tensor_view *tensor, uint32_t n) {
    for (uint32_t i = 1; i < n; i++) {
        fm_tensor_view moving = tensor[i];
        uint32_t at = i;
        for (; at > 0 && tensor[at - 1].id > moving.id; at--)
            tensor[at] = tensor[at - 1];
        tensor[at] = moving;
    }
}

static fm_status add_cycle(builder *b, uint32_t cycle) {
    cycle_msa made;
    uint32_t first = b->n_tensor;
    fm_status status = transform(b, cycle, &made);
    if (status) return status;
    const fm_msa_choice *choice = &made.choice;
    status = add_masked(b, cycle, choice, &made.masked);
    if (!status) {
        status =
            add_rows(b, cycle, FM_T_TRUE_MSA, FM_T_DELETION_MATRIX, choice->row, choice->n_centre);
    }
    if (!status) {
        enter_profile(b, cycle, choice->n_centre, &made.profile);
        status = add_rows(b, cycle, FM_T_EXTRA_MSA, FM_T_EXTRA_DELETION_MATRIX,
                          choice->row + choice->n_centre, choice->n_extra);
    }
    if (!status) sort_by_id(b->tensor + first, b->n_tensor - first);
    return status;
}

/* -- whole sample */

/* Without alignments, the MSA is the chain's own sequence. */
static fm_status single_sequence(const fm_part_sequence *sequence, fm_arena *arena,
                                 fm_part_msa *ret_msa, fm_error *reterr) {
    uint32_t n_res = sequence->n_res;
    uint8_t *msa = fm_arena_alloc(arena, n_res);
    uint16_t *deletions = fm_arena_calloc(arena, n_res, sizeof *deletions);
    uint32_t *profile = fm_arena_calloc(arena, n_res, FM_N_HHBLITS * sizeof *profile);
    if (!msa || !deletions || !profile) return fm_arena_full(arena, reterr);
    for (uint32_t i = 0; i < n_res; i++) {
        msa[i] = fm_hhblits_from_restype[fm_restype_from_letter(sequence->sequence[i])];
        profile[(size_t)i * FM_N_HHBLITS + msa[i]] = 1;
    }
    *ret_msa = (fm_part_msa){
        .n_seq = 1, .n_res = n_res, .msa = msa, .deletion_matrix = deletions, .profile = profile};
    return FM_OK;
}

static fm_status check_record(const fm_record *record, fm_error *reterr) {
    uint32_t n_res = record->sequence->n_res;
    if (record->msa && record->msa->n_res != n_res) {
        return fm_fail(reterr, FM_ERR_DATA,
                       "chain %s: the MSA has %u columns, but the sequence has %u residues",
                       record->name, record->msa->n_res, n_res);
    }
    if (record->structure && record->structure->n_res != n_res) {
        return fm_fail(reterr, FM_ERR_DATA,
                       "chain %s: the structure has %u residues, but the sequence has %u",
                       record->name, record->structure->n_res, n_res);
    }
    if (record->hits && record->hits->n_res != n_res) {
        return fm_fail(reterr, FM_ERR_DATA,
                       "chain %s: the template hits are for %u residues, but the sequence has %u",
                       record->name, record->hits->n_res, n_res);
    }
    return FM_OK;
}

static void fill_header(const builder *b, const fm_sample_request *request, fm_sample *sample) {
    const uint64_t index = request->index;
    const fm_part_structure *structure = b->record->structure;
    *sample = (fm_sample){
        .seed = request->seed,
        .index = index,
        .step = index / b->plan->global_batch,
        .slot = (uint32_t)(index % b->plan->global_batch),
        .epoch = (uint32_t)(index / b->plan->epoch_samples),
        .chain = request->chain,
        .n_cycle = request->n_cycle,
        .n_res_chain = b->record->sequence->n_res,
        .crop_start = b->crop_start,
        .n_res = b->n_res,
        .n_seq_chain = b->msa->n_seq,
        .resolution = structure ? structure->resolution : 0.0f,
        .is_distillation = structure ? structure->is_distillation : 0,
        .use_clamped_fape = b->is_clamped,
        .n_tensor = b->n_tensor,
        .tensor = b->tensor,
    };
    snprintf(sample->name, sizeof sample->name, "%s", b->record->name);
}

enum { N_SHARED_TENSOR = 9, N_CYCLE_TENSOR = 9 };

static fm_status make(const fm_sample_request *request, const fm_draws *draws, fm_arena *arena,
                      fm_sample *ret_sample, fm_error *reterr) {
    const fm_plan *plan = request->plan;
    const fm_record *record = request->record;
    const uint32_t n_cycle = request->n_cycle;
    assert(n_cycle >= 1 && n_cycle <= FM_LIMIT_N_CYCLE);
    fm_status status = check_record(record, reterr);
    if (status) return status;
    builder b = {.plan = plan,
                 .record = record,
                 .templates = request->templates,
                 .msa = record->msa,
                 .draws = draws,
                 .kernels = fm_row_kernels_best(),
                 .arena = arena,
                 .reterr = reterr};
    fm_part_msa own_sequence;
    if (!record->msa) {
        status = single_sequence(record->sequence, arena, &own_sequence, reterr);
        if (status) return status;
        b.msa = &own_sequence;
    }
    uint32_t n_res_chain = record->sequence->n_res;
    b.n_res = n_res_chain < plan->crop_size ? n_res_chain : plan->crop_size;
    b.is_clamped =
        draws->chance(draws->context, FM_SAMPLE_DRAW_CLAMPED_FAPE, plan->clamped_fape_q32);
    b.crop_start = fm_choose_crop_start(plan, draws, b.is_clamped, n_res_chain, b.n_res);
    b.max_tensor = N_SHARED_TENSOR + n_cycle * N_CYCLE_TENSOR;
    b.tensor = fm_arena_alloc_array(arena, b.max_tensor, sizeof *b.tensor);
    if (!b.tensor) return fm_arena_full(arena, reterr);

    status = add_sequence(&b);
    if (!status) status = add_structure(&b);
    if (!status) status = add_templates(&b);
    for (uint32_t cycle = 0; !status && cycle < n_cycle; cycle++)
        status = add_cycle(&b, cycle);
    if (!status) fill_header(&b, request, ret_sample);
    return status;
}

fm_status fm_sample_make(const fm_sample_request *request, fm_arena *arena, fm_sample *ret_sample,
                         fm_error *reterr) {
    if (request->draws) return make(request, request->draws, arena, ret_sample, reterr);
    const char *name = request->record->name;
    const uint64_t own =
        request->plan->draws_by_name ? fm_xxh3(name, strlen(name)) : request->index;
    fm_sample_draw key = {.seed = request->seed, .index = own};
    const fm_draws draws = fm_draws_philox(&key);
    return make(request, &draws, arena, ret_sample, reterr);
}
