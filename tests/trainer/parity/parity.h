/* parity.h: feeds the file of a reference run to a recorded model; shared by model_parity and
 * model_parity_full. Values go into a host copy of the state unchanged, or rounded to the nearest
 * bf16. */
#ifndef FM_TESTS_TRAINER_PARITY_H
#define FM_TESTS_TRAINER_PARITY_H

#include "proto/base/file.h"
#include "proto/npz.h"
#include "tests/testing/testing.h"
#include "trainer/model/model.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_CYCLE = 4, N_ATOM37 = 37, N_TORSION = 7, GLYCINE = 7 };

/* A model's state and the file that fills it. */
typedef struct parity {
    fm_npz file;
    const char *prefix; /* of the names of inputs: "in/" */
    int n_cycle;
    fm_model_config config;
    fm_state state;
    fm_model_inputs inputs;
    uint8_t *host; /* copy of the state if that is on a device; else NULL */
} parity;

/* -- the file */

static inline const fm_npy *need(const parity *b, const char *prefix, const char *name) {
    char key[256];
    snprintf(key, sizeof key, "%s%s", prefix, name);
    const fm_npy *array = fm_npz_find(&b->file, key);
    if (!array) {
        fprintf(stderr, "model_parity: the file has no array %s\n", key);
        exit(1);
    }
    return array;
}

static inline double value(const fm_npy *array, int64_t i) {
    assert(i >= 0 && (uint64_t)i < array->count);
    if (!strcmp(array->dtype, "<i8")) return (double)((const int64_t *)array->data)[i];
    return !strcmp(array->dtype, "<f8") ? ((const double *)array->data)[i]
                                        : (double)((const float *)array->data)[i];
}

/* Element i of an input in cycle c; the last axis is the cycle. */
static inline double input(const parity *b, const fm_npy *array, int64_t i, int c) {
    return value(array, i * b->n_cycle + c);
}

/* -- values of the state */

static inline uint16_t to_bf16(float x) { /* to the nearest, ties to even; x is a number */
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline float from_bf16(uint16_t x) {
    uint32_t bits = (uint32_t)x << 16;
    float y;
    memcpy(&y, &bits, sizeof y);
    return y;
}

static inline void *data_of(const parity *b, int32_t tensor) {
    return b->host ? b->host + b->state.offset[tensor] : fm_state_data(&b->state, tensor);
}

/* Uploads the stored tensors, if the state is on a device: all except those that cycles pass on. */
static inline void send_inputs(const parity *b) {
    for (int32_t t = 0; b->host && t < b->state.n_tensor; t++) {
        bool handed_on = t == b->inputs.previous_m || t == b->inputs.previous_z ||
                         t == b->inputs.previous_pseudo_beta;
        if (!handed_on) {
            b->state.kernels->upload(NULL, fm_state_data(&b->state, t), data_of(b, t),
                                     (size_t)fm_tensor_local_bytes(&b->state.tensor[t]));
        }
    }
}

static inline void put(const parity *b, int32_t tensor, int64_t i, double x) {
    if (b->state.tensor[tensor].element == FM_ELEMENT_BF16) {
        ((uint16_t *)data_of(b, tensor))[i] = to_bf16((float)x);
    } else {
        ((float *)data_of(b, tensor))[i] = (float)x;
    }
}

/* Position of element i of an array [1, .., cycles] in a tensor with the same axes, padded. */
static inline int64_t padded(const fm_npy *array, const fm_tensor *tensor, int64_t i) {
    int64_t at = 0, stride = 1;
    for (int axis = tensor->rank - 1; axis >= 0; axis--) {
        int64_t extent = (int64_t)array->shape[axis + 1];
        at += i % extent * stride;
        i /= extent;
        stride *= tensor->shape[axis];
    }
    return at;
}

/* Copies a whole input of the cycle to a tensor of the state. */
static inline void put_input(const parity *b, int32_t tensor, const char *name, int c) {
    const fm_npy *array = need(b, b->prefix, name);
    const fm_tensor *to = &b->state.tensor[tensor];
    int64_t count = (int64_t)array->count / b->n_cycle;
    for (int64_t i = 0; i < count; i++) {
        double x = input(b, array, i, c);
        int64_t at = padded(array, to, i);
        assert(at < fm_tensor_local_count(to));
        switch (to->element) {
        case FM_ELEMENT_U8: ((uint8_t *)data_of(b, tensor))[at] = (uint8_t)x; break;
        case FM_ELEMENT_I32: ((int32_t *)data_of(b, tensor))[at] = (int32_t)x; break;
        default: put(b, tensor, at, x); break;
        }
    }
}

/* Residues of the file; the recorded shape may have more. */
static inline int64_t file_residues(const parity *b) {
    return (int64_t)need(b, b->prefix, "aatype")->shape[1];
}

/* Converts position k of [.., N_res of the file] to a position in [.., N_res as recorded]. */
static inline int64_t padded_position(const parity *b, int64_t k) {
    int64_t n = file_residues(b);
    return k / n * b->config.n_res + k % n;
}

/* -- inputs */

static inline void load_extra(const parity *b, int c) {
    const fm_npy *msa = need(b, b->prefix, "extra_msa"),
                 *has = need(b, b->prefix, "extra_has_deletion");
    const fm_npy *deletion = need(b, b->prefix, "extra_deletion_value");
    for (int64_t k = 0; k < (int64_t)msa->shape[1] * file_residues(b); k++) {
        int64_t row = padded_position(b, k) * FM_EXTRA_MSA_FEATURES;
        for (int64_t i = 0; i < FM_MSA_CLASSES; i++)
            put(b, b->inputs.extra_feat, row + i, (double)i == input(b, msa, k, c));
        put(b, b->inputs.extra_feat, row + 23, input(b, has, k, c));
        put(b, b->inputs.extra_feat, row + 24, input(b, deletion, k, c));
    }
    put_input(b, b->inputs.extra_msa_mask, "extra_msa_mask", c);
}

/* Residue type (22), sines and cosines (14), those of the other naming (14), masks (7). */
static inline void load_torsions(const parity *b, int c) {
    static const struct {
        const char *name;
        int64_t first, count;
    } parts[] = {{"template_torsion_angles_sin_cos", 22, 14},
                 {"template_alt_torsion_angles_sin_cos", 36, 14},
                 {"template_torsion_angles_mask", 50, 7}};
    const fm_npy *aatype = need(b, b->prefix, "template_aatype");
    for (int64_t k = 0; k < b->config.n_template * file_residues(b); k++) {
        int64_t row = padded_position(b, k) * FM_TEMPLATE_ROW_FEATURES;
        for (int64_t i = 0; i < FM_TEMPLATE_CLASSES; i++)
            put(b, b->inputs.template_rows, row + i, (double)i == input(b, aatype, k, c));
        for (int p = 0; p < 3; p++) {
            const fm_npy *part = need(b, b->prefix, parts[p].name);
            for (int64_t i = 0; i < parts[p].count; i++) {
                put(b, b->inputs.template_rows, row + parts[p].first + i,
                    input(b, part, k * parts[p].count + i, c));
            }
        }
    }
}

static inline void load_templates(const parity *b, int c) {
    const fm_npy *atoms = need(b, b->prefix, "template_all_atom_mask");
    const fm_npy *torsions = need(b, b->prefix, "template_torsion_angles_mask");
    const fm_npy *mask = need(b, b->prefix, "template_mask");
    enum { PSI = 2 };
    int64_t n_res = file_residues(b);
    put_input(b, b->inputs.template_aatype, "template_aatype", c);
    put_input(b, b->inputs.template_pseudo_beta, "template_pseudo_beta", c);
    put_input(b, b->inputs.template_pseudo_beta_mask, "template_pseudo_beta_mask", c);
    put_input(b, b->inputs.template_mask, "template_mask", c);
    load_torsions(b, c);
    double any = 0;
    for (int64_t k = 0; k < b->config.n_template * n_res; k++) {
        double backbone = 1;
        for (int64_t atom = 0; atom < 3; atom++) /* N, CA, C */
            backbone *= input(b, atoms, k * N_ATOM37 + atom, c);
        int64_t at = padded_position(b, k);
        put(b, b->inputs.template_backbone_mask, at, backbone);
        put(b, b->inputs.msa_mask, b->config.n_seq * b->config.n_res + at,
            input(b, torsions, k * N_TORSION + PSI, c));
        any = fmax(any, input(b, mask, k / n_res, c));
    }
    put(b, b->inputs.template_any, 0, any);
}

/* Loads all inputs of the trunk in cycle c except the recycled ones. */
static inline void load_trunk(const parity *b, int c) {
    const fm_npy *mask = need(b, b->prefix, "seq_mask");
    int64_t n = file_residues(b);
    put_input(b, b->inputs.aatype, "aatype", c);
    put_input(b, b->inputs.residue_index, "residue_index", c);
    put_input(b, b->inputs.msa_feat, "msa_feat", c);
    put_input(b, b->inputs.msa_mask, "msa_mask", c);
    for (int64_t k = 0; k < n * n; k++) {
        put(b, b->inputs.pair_mask, padded_position(b, k),
            input(b, mask, k / n, c) * input(b, mask, k % n, c));
    }
    load_extra(b, c);
    load_templates(b, c);
}

/* Declares the model's inputs, with features instead of ids. */
static inline void declare_trunk(parity *b, const fm_kernels *kernels) {
    const fm_model_config *c = &b->config;
    const int64_t feat[] = {c->n_seq, c->n_res, FM_MSA_FEATURES};
    const int64_t extra[] = {c->n_extra, c->n_res, FM_EXTRA_MSA_FEATURES};
    fm_model_declare_inputs(&b->state, c, kernels, &b->inputs);
    b->inputs.msa_feat = fm_state_add(&b->state, "msa_feat", kernels->act, 3, feat);
    b->inputs.extra_feat = fm_state_add(&b->state, "extra_msa_feat", kernels->act, 3, extra);
}

/* Copies a rank's part of a tensor to its place in the whole, [outer, axis, inner]; both are on the
 * host. */
static inline void put_part(const fm_tensor *t, const float *part, float *whole) {
    int split = t->shard_axis < 0 ? 0 : t->shard_axis;
    int64_t outer = 1, inner = 1, all = t->shape[split], local = t->local[split];
    for (int axis = 0; axis < t->rank; axis++) {
        outer *= axis < split ? t->shape[axis] : 1;
        inner *= axis > split ? t->shape[axis] : 1;
    }
    for (int64_t o = 0; o < outer; o++) {
        int64_t to = o * all + fm_tensor_first(t, split);
        memcpy(whole + to * inner, part + o * local * inner,
               (size_t)(local * inner) * sizeof *part);
    }
}

/* -- files */

/* Finds the file as given or in the reference data; false if it is in neither. */
static inline bool locate(const char *given, char *out, size_t out_bytes) {
    snprintf(out, out_bytes, "%s", given);
    if (access(out, R_OK) == 0) return true;
    if (!fm_test_reference()) {
        fprintf(stderr, "model_parity: no file %s, and FM_REFERENCE_DATA is not set\n", given);
        return false;
    }
    fm_test_reference_path(out, out_bytes, given);
    return access(out, R_OK) == 0;
}

static inline fm_status open_npz(fm_arena *arena, const char *path, fm_npz *ret_npz,
                                 fm_error *error) {
    fm_bytes content;
    fm_status status = fm_arena_init(arena, (size_t)2 << 30, error);
    if (!status) status = fm_file_read(arena, path, (size_t)256 << 20, &content, error);
    return status ? status : fm_npz_parse(arena, content, ret_npz, error);
}

#endif
