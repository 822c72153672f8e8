/* upload.c: see upload.h. The host makes small tensors in its copy of the state, which has the
 * device's layout, and sends them as they are. The other tensors are copied from the sample into
 * the packet, and the device pads them. */
#include "trainer/step/upload.h"

#include "trainer/step/template_inputs.h"

#include <assert.h>
#include <string.h>

enum { ATOM_CA = 1, ATOM_CB = 3, N_ATOM37 = 37, GLYCINE = 7, UNKNOWN_RESIDUE = 20, GAP = 21 };

/* -- items */

typedef struct packer {
    fm_cycles *cycles;
    fm_packet *packet;
} packer;

static fm_item *add_item(const packer *p, fm_item_kind kind, int32_t tensor) {
    assert(p->packet->n_item < FM_PACKET_ITEMS);
    fm_item *item = &p->packet->item[p->packet->n_item++];
    *item = (fm_item){.kind = (uint8_t)kind,
                      .y = p->cycles->recording->state.offset[tensor],
                      .y_element = (uint8_t)p->cycles->recording->state.tensor[tensor].element};
    return item;
}

static void *host_of(const fm_cycles *cycles, int32_t tensor) {
    return cycles->host + cycles->recording->state.offset[tensor];
}

/* Sends a tensor as it is in the host's copy. */
static void send_bytes(const packer *p, int32_t tensor) {
    fm_item *item = add_item(p, FM_ITEM_BYTES, tensor);
    item->n = fm_tensor_local_bytes(&p->cycles->recording->state.tensor[tensor]);
    memcpy(fm_ring_data(&p->cycles->ring, item->n, &item->x), host_of(p->cycles, tensor),
           (size_t)item->n);
}

static void send_zeros(const packer *p, int32_t tensor) {
    add_item(p, FM_ITEM_ZERO, tensor)->n =
        fm_tensor_local_bytes(&p->cycles->recording->state.tensor[tensor]);
}

/* The extents of a tensor [.., rows, c], and of the sample's values in it. */
typedef struct extent {
    int64_t lines, rows, c; /* of the tensor */
    int64_t n0, n1;         /* of the sample's [n0, n1, c] */
} extent;

static fm_item *add_expanded(const packer *p, fm_item_kind kind, int32_t tensor, extent e,
                             uint8_t padding) {
    fm_item *item = add_item(p, kind, tensor);
    item->n = e.lines * e.rows * e.c;
    item->rows = e.rows;
    item->c = e.c;
    item->n0 = e.n0;
    item->n1 = e.n1;
    item->padding = padding;
    return item;
}

/* Reserves space for the sample's values, for the caller to fill. */
static void *add_values(const packer *p, int32_t tensor, extent e, fm_element element,
                        uint8_t padding) {
    fm_item *item = add_expanded(p, FM_ITEM_VALUES, tensor, e, padding);
    item->x_element = (uint8_t)element;
    int64_t bytes = e.n0 * e.n1 * e.c * (int64_t)fm_element_bytes(element);
    return fm_ring_data(&p->cycles->ring, bytes, &item->x);
}

static void send_values(const packer *p, int32_t tensor, extent e, fm_element element,
                        const void *values, uint8_t padding) {
    int64_t bytes = e.n0 * e.n1 * e.c * (int64_t)fm_element_bytes(element);
    if (bytes > 0) {
        memcpy(add_values(p, tensor, e, element, padding), values, (size_t)bytes);
    } else {
        add_values(p, tensor, e, element, padding);
    }
}

/* -- tensors that all cycles share */

/* The position of C-beta, or of C-alpha in glycine; zeros where it is not resolved. */
static void put_pseudo_beta(fm_cycles *cycles, const fm_features *f) {
    float *x = host_of(cycles, cycles->pseudo_beta);
    float *mask = host_of(cycles, cycles->pseudo_beta_mask);
    memset(x, 0, (size_t)cycles->model->n_res * 3 * sizeof *x);
    memset(mask, 0, (size_t)cycles->model->n_res * sizeof *mask);
    for (uint32_t i = 0; i < f->n_res; i++) {
        int atom = f->aatype[i] == GLYCINE ? ATOM_CA : ATOM_CB;
        if (f->all_atom_mask[i] >> atom & 1) {
            mask[i] = 1;
            memcpy(x + 3 * i, f->all_atom_positions + ((size_t)i * N_ATOM37 + (size_t)atom) * 3,
                   3 * sizeof *x);
        }
    }
}

/* The objective of each rank of a sample is its share of the loss (dist/groups.h). */
static void put_seed(fm_cycles *cycles) {
    void *seed = host_of(cycles, cycles->seed_gradient);
    double share = 1.0 / fm_groups_sample_ranks(cycles->recording->options.groups);
    if (cycles->recording->options.kernels->acc == FM_ELEMENT_F64) {
        *(double *)seed = share;
    } else {
        *(float *)seed = (float)share;
    }
}

/* Sends the structure module's mask and ground truth. */
static void send_structure(const packer *p, const fm_features *f) {
    fm_cycles *cycles = p->cycles;
    int64_t n = cycles->model->n_res;
    int32_t tensors[FM_STRUCTURE_TRUTHS];
    add_expanded(p, FM_ITEM_INSIDE, cycles->inputs.seq_mask, (extent){1, n, 1, 1, f->n_res}, 0);
    if (!cycles->weight) return;
    bool fits = fm_structure_put_truth(&cycles->recording->state, &cycles->truth, f, n,
                                       !f->unclamped_fape, cycles->host, &cycles->recording->arena);
    assert(fits); /* the arena has room for any sample of the recorded shape */
    (void)fits;
    for (int i = 0; i < fm_structure_list_truth(&cycles->truth, tensors); i++)
        send_bytes(p, tensors[i]);
}

/* Where the f32 inputs of one template go in the packet. */
typedef struct template_places {
    float *pseudo_beta, *pseudo_beta_mask, *backbone_mask, *rows, *psi_mask;
} template_places;

static template_places add_templates(const packer *p, extent e) {
    const fm_model_config *config = p->cycles->model;
    const fm_model_inputs *in = &p->cycles->inputs;
    extent points = e, rows = e;
    points.c = 3;
    rows.c = FM_TEMPLATE_ROW_FEATURES;
    template_places to = {
        .pseudo_beta = add_values(p, in->template_pseudo_beta, points, FM_ELEMENT_F32, 0),
        .pseudo_beta_mask = add_values(p, in->template_pseudo_beta_mask, e, FM_ELEMENT_F32, 0),
        .backbone_mask = add_values(p, in->template_backbone_mask, e, FM_ELEMENT_F32, 0),
        .rows = add_values(p, in->template_rows, rows, FM_ELEMENT_F32, 0),
        .psi_mask = add_values(p, in->msa_mask, e, FM_ELEMENT_F32, 0)};
    fm_element act = p->cycles->recording->state.tensor[in->msa_mask].element;
    p->packet->item[p->packet->n_item - 1].y += /* the rows of m below the clusters */
        config->n_seq * config->n_res * (int64_t)fm_element_bytes(act);
    return to;
}

/* Sends the first n_template templates of the sample. Their order is random, so these are the ones
 * that a plan with that many templates would have drawn. */
static void send_templates(const packer *p, const fm_features *f) {
    fm_cycles *cycles = p->cycles;
    const fm_model_config *config = cycles->model;
    const fm_model_inputs *in = &cycles->inputs;
    size_t n = f->n_res;
    int64_t there = f->n_templ < config->n_template ? f->n_templ : config->n_template;
    extent e = {config->n_template, config->n_res, 1, there, f->n_res};
    template_places to = add_templates(p, e);
    for (size_t t = 0; t < (size_t)there; t++) {
        fm_template_inputs made = {0};
        size_t mark = fm_arena_mark(&cycles->recording->arena);
        bool fits =
            fm_template_make(f, (uint32_t)t, config->compat, &cycles->recording->arena, &made);
        assert(fits); /* the arena has room for any sample of the recorded shape */
        (void)fits;
        memcpy(to.pseudo_beta + t * n * 3, made.pseudo_beta, n * 3 * sizeof(float));
        memcpy(to.pseudo_beta_mask + t * n, made.pseudo_beta_mask, n * sizeof(float));
        memcpy(to.backbone_mask + t * n, made.backbone_mask, n * sizeof(float));
        memcpy(to.rows + t * n * FM_TEMPLATE_ROW_FEATURES, made.rows,
               n * FM_TEMPLATE_ROW_FEATURES * sizeof(float));
        memcpy(to.psi_mask + t * n, made.psi_mask, n * sizeof(float));
        fm_arena_rewind(&cycles->recording->arena, mark);
    }
    send_values(p, in->template_aatype, e, FM_ELEMENT_U8, f->template_aatype, GAP);
    add_expanded(p, FM_ITEM_INSIDE, in->template_mask, (extent){1, config->n_template, 1, 1, there},
                 0);
    add_expanded(p, FM_ITEM_INSIDE, in->template_any, (extent){1, 1, 1, 1, there > 0}, 0);
}

static void send_sample(const packer *p, const fm_features *f) {
    fm_cycles *cycles = p->cycles;
    const fm_model_config *config = cycles->model;
    const fm_model_inputs *in = &cycles->inputs;
    extent residues = {1, config->n_res, 1, 1, f->n_res};
    extent pairs = {config->n_res, config->n_res, 1, f->n_res, f->n_res};
    const int32_t cleared[] = {in->previous_m, in->previous_z, in->previous_pseudo_beta};
    for (size_t i = 0; i < sizeof cleared / sizeof cleared[0]; i++)
        send_zeros(p, cleared[i]);
    send_values(p, in->aatype, residues, FM_ELEMENT_U8, f->aatype, UNKNOWN_RESIDUE);
    send_values(p, in->residue_index, residues, FM_ELEMENT_I32, f->residue_index, 0);
    add_expanded(p, FM_ITEM_INSIDE, in->pair_mask, pairs, 0);
    put_seed(cycles);
    send_bytes(p, cycles->seed_gradient);
    if (cycles->weight) {
        put_pseudo_beta(cycles, f);
        send_bytes(p, cycles->pseudo_beta);
        send_bytes(p, cycles->pseudo_beta_mask);
        fm_cycles_put_factors(cycles, f, host_of(cycles, cycles->factors));
    }
    send_bytes(p, cycles->factors);
    if (config->structure.n_iteration > 0) send_structure(p, f);
    if (config->n_template > 0) send_templates(p, f);
}

/* -- a cycle */

static void send_clusters(const packer *p, const fm_features *f, const fm_cycle_features *c) {
    fm_cycles *cycles = p->cycles;
    const fm_model_config *config = cycles->model;
    const fm_model_inputs *in = &cycles->inputs;
    extent msa = {config->n_seq, config->n_res, 1, c->n_clust, f->n_res}, profile = msa;
    profile.c = FM_MSA_CLASSES;
    send_values(p, in->msa, msa, FM_ELEMENT_U8, c->msa, GAP);
    send_values(p, in->deletion, msa, FM_ELEMENT_U16, c->deletion_matrix, 0);
    send_values(p, in->deletion_sum, msa, FM_ELEMENT_U32, c->cluster_deletion_sum, 0);
    send_values(p, in->profile, profile, c->profile_element, c->cluster_profile, 0);
    send_values(p, in->cluster_size, (extent){1, config->n_seq, 1, 1, c->n_clust}, FM_ELEMENT_U32,
                c->cluster_size, 1);
    add_expanded(p, FM_ITEM_INSIDE, in->msa_mask, msa, 0);
    if (!cycles->weight) return;
    send_values(p, cycles->true_msa, msa, FM_ELEMENT_U8, c->true_msa, GAP);
    fm_item *bits = add_expanded(p, FM_ITEM_BITS, cycles->bert_mask, msa, 0);
    int64_t bytes = (msa.n0 * msa.n1 + 7) / 8;
    memcpy(fm_ring_data(&cycles->ring, bytes, &bits->x), c->bert_mask, (size_t)bytes);
}

static void send_extra_msa(const packer *p, const fm_features *f, const fm_cycle_features *c) {
    const fm_model_config *config = p->cycles->model;
    const fm_model_inputs *in = &p->cycles->inputs;
    extent e = {config->n_extra, config->n_res, 1, c->n_extra, f->n_res};
    send_values(p, in->extra_msa, e, FM_ELEMENT_U8, c->extra_msa, GAP);
    send_values(p, in->extra_deletion, e, FM_ELEMENT_U16, c->extra_deletion_matrix, 0);
    add_expanded(p, FM_ITEM_INSIDE, in->extra_msa_mask, e, 0);
}

void fm_upload_pack(fm_cycles *cycles, const fm_features *f, uint32_t cycle, uint64_t step,
                    fm_packet *packet) {
    const packer p = {cycles, packet};
    const fm_model_inputs *in = &cycles->inputs;
    if (cycle == 0) send_sample(&p, f);
    if (in->n_draw > 1 && cycle % (uint32_t)in->n_draw == 0) {
        send_zeros(&p, in->sum_m);
        send_zeros(&p, in->sum_z);
    }
    send_clusters(&p, f, &f->cycle[cycle]);
    if (cycles->model->n_extra_block > 0) send_extra_msa(&p, f, &f->cycle[cycle]);
    packet->clock[FM_CLOCK_STEP] = (uint32_t)step;
    packet->clock[FM_CLOCK_SLOT] = f->slot;
    packet->clock[FM_CLOCK_CYCLE] = cycle;
}

int64_t fm_upload_most_bytes(const fm_cycles *cycles) {
    const fm_model_config *c = cycles->model;
    enum { ITEM_SLACK = 16 };
    enum { PER_CLUSTER = 1 + 1 + 1 + 2 + 4 + 4 * FM_MSA_CLASSES, PER_EXTRA = 1 + 2 };
    enum { PER_TEMPLATE = 1 + 4 * (3 + 1 + 1 + FM_TEMPLATE_ROW_FEATURES + 1) };
    int64_t bytes = FM_PACKET_ITEMS * ITEM_SLACK + c->n_seq * (4 + c->n_res * PER_CLUSTER) +
                    c->n_res * (1 + 4 + 3 * 4 + 4);
    bytes += fm_tensor_local_bytes(&cycles->recording->state.tensor[cycles->factors]);
    bytes += c->n_extra_block > 0 ? c->n_extra * c->n_res * PER_EXTRA : 0;
    bytes += c->n_template * c->n_res * PER_TEMPLATE;
    if (c->structure.n_iteration > 0 && cycles->weight) {
        int32_t tensors[FM_STRUCTURE_TRUTHS];
        for (int i = 0; i < fm_structure_list_truth(&cycles->truth, tensors); i++)
            bytes += fm_tensor_local_bytes(&cycles->recording->state.tensor[tensors[i]]);
    }
    return bytes;
}
