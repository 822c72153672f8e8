/* cofold_input.c: see cofold_input.h. */
#include "trainer/app/prediction/cofold_input.h"

#include "proto/base/file.h"
#include "proto/limits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const size_t ARENA_BYTES = (size_t)1 << 37; /* address space: the whole form is large */

/* -- names */

void fm_cofold_input_name(const char *path, char out[FM_COFOLD_NAME_BYTES]) {
    const int most = FM_COFOLD_NAME_MOST;
    const char *slash = strrchr(path, '/'), *leaf = slash ? slash + 1 : path;
    const char *dot = strrchr(leaf, '.');
    const int length = dot && dot != leaf ? (int)(dot - leaf) : (int)strlen(leaf);
    snprintf(out, FM_COFOLD_NAME_BYTES, "%.*s", length < most ? length : most, leaf);
}

/* Takes the job's name, seeds and text, where the file has them. A name is that of a folder, so a
 * file that another program wrote must not lead out of the results. */
static fm_status take_job(const fm_npz *npz, fm_cofold_input *input, fm_error *reterr) {
    const fm_npy *folder = fm_npz_find(npz, "job/folder"), *seeds = fm_npz_find(npz, "job/seeds");
    const fm_npy *data = fm_npz_find(npz, "job/data");
    if (folder) {
        const bool is_text = !strcmp(folder->dtype, "|u1") && folder->count > 0 &&
                             folder->count < FM_COFOLD_NAME_BYTES;
        const size_t n = is_text ? (size_t)folder->count : 0;
        const char *text = folder->data;
        if (!is_text || memchr(text, '/', n) || memchr(text, '\0', n) || text[0] == '.') {
            return fm_fail(reterr, FM_ERR_DATA,
                           "job/folder: found %llu elements of type %s, expected the name of a "
                           "folder: at most %d bytes without '/', the first of them no '.'",
                           (unsigned long long)folder->count, folder->dtype,
                           FM_COFOLD_NAME_BYTES - 1);
        }
        memcpy(input->name, text, n);
        input->name[n] = '\0';
    }
    if (seeds) {
        if (strcmp(seeds->dtype, "<u4") != 0 || seeds->rank != 1 || seeds->count == 0 ||
            seeds->count > FM_LIMIT_N_JOB_SEED) {
            return fm_fail(reterr, FM_ERR_DATA,
                           "job/seeds: found %llu numbers of type %s in %zu dimensions, expected "
                           "type <u4 in one, 1 to %u numbers",
                           (unsigned long long)seeds->count, seeds->dtype, seeds->rank,
                           FM_LIMIT_N_JOB_SEED);
        }
        input->seeds = seeds->data;
        input->n_seed = (uint32_t)seeds->count;
    }
    if (data) {
        if (strcmp(data->dtype, "|u1") != 0) {
            return fm_fail(reterr, FM_ERR_DATA, "job/data: found type %s, expected |u1",
                           data->dtype);
        }
        input->data = (fm_bytes){data->data, (size_t)data->count};
    }
    return FM_OK;
}

static fm_sha256 hash_arrays(const fm_npz *npz) {
    static const char job[] = "job/";
    fm_sha256_state *state = fm_sha256_create();
    for (size_t i = 0; i < npz->n_array; i++) {
        const fm_npy *a = &npz->arrays[i];
        if (strncmp(a->name, job, sizeof job - 1) == 0) continue;
        fm_sha256_update(state, a->name, strlen(a->name) + 1);
        fm_sha256_update(state, a->dtype, strlen(a->dtype) + 1);
        fm_sha256_update(state, a->shape, a->rank * sizeof a->shape[0]);
        fm_sha256_update(state, a->data, (size_t)a->count * a->item_bytes);
    }
    const fm_sha256 hash = fm_sha256_digest(state);
    fm_sha256_destroy(state);
    return hash;
}

/* -- the layout */

/* Fills the layout up to chain_is_polymer. Tokens of a chain are neighbours, and every token has an
 * atom: the reader of samples has checked both. */
static fm_status make_bare_layout(fm_cofold_input *input, fm_error *reterr) {
    const fm_af3_sample *s = &input->features.sample;
    const fm_complex_labels *labels = &input->features.labels;
    const size_t n = (size_t)s->n_token, n_atom = (size_t)s->n_atom;
    int32_t *chain = fm_arena_alloc_array(&input->arena, n, sizeof *chain);
    uint8_t *has_frame = fm_arena_alloc(&input->arena, n);
    int32_t *token = fm_arena_alloc_array(&input->arena, n_atom, sizeof *token);
    int32_t *residue = fm_arena_alloc_array(&input->arena, n_atom, sizeof *residue);
    uint8_t *is_polymer = fm_arena_calloc(&input->arena, n, 1);
    if (!chain || !has_frame || !token || !residue || !is_polymer) {
        return fm_arena_full(&input->arena, reterr);
    }
    int32_t n_chain = 0;
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || s->asym_id[i] != s->asym_id[i - 1]) n_chain++;
        chain[i] = n_chain - 1;
        has_frame[i] = labels->has_frame[i] != 0;
    }
    for (size_t l = 0; l < n_atom; l++) {
        token[l] = (int32_t)s->atom_to_token_idx[l];
        residue[l] = (int32_t)s->residue_index[token[l]];
        is_polymer[chain[token[l]]] |= !labels->is_ligand[l];
    }
    input->layout = (fm_complex_layout){.n_token = (uint32_t)n,
                                        .n_atom = (uint32_t)n_atom,
                                        .n_chain = (uint32_t)n_chain,
                                        .token_chain = chain,
                                        .token_has_frame = has_frame,
                                        .atom_token = token,
                                        .atom_residue = residue,
                                        .chain_is_polymer = is_polymer};
    return fm_complex_layout_complete(&input->layout, &input->arena, reterr);
}

static fm_status make_layout(const fm_npz *npz, fm_cofold_input *input, fm_error *reterr) {
    fm_status status = make_bare_layout(input, reterr);
    input->has_names = fm_npz_find(npz, "names/entity_kind") != NULL;
    if (status || !input->has_names) return status;
    const fm_complex_layout bare = input->layout;
    status = fm_complex_atoms_read(npz, &input->arena, &input->names, reterr);
    if (!status && input->names.n_atom != bare.n_atom) {
        status = fm_fail(reterr, FM_ERR_DATA, "names/atom_residue: found %u atoms, expected %u",
                         input->names.n_atom, bare.n_atom);
    }
    if (status) return status;
    return fm_complex_layout_make(&input->names, bare.n_token, bare.atom_token,
                                  bare.token_has_frame, &input->arena, &input->layout, reterr);
}

/* Reads the archive, and what it says of the job. */
static fm_status read_archive(const char *path, fm_cofold_input *input, fm_npz *ret_npz,
                              fm_error *reterr) {
    fm_bytes content;
    *input = (fm_cofold_input){.layout = {0}};
    fm_cofold_input_name(path, input->name);
    fm_status status = fm_arena_init(&input->arena, ARENA_BYTES, reterr);
    if (status) return status;
    status = fm_file_read(&input->arena, path, FM_STORED_FILE_BYTES, &content, reterr);
    if (status) return status;
    status = fm_npz_parse(&input->arena, content, ret_npz, reterr);
    if (!status) status = take_job(ret_npz, input, reterr);
    if (status) fm_error_in(reterr, path);
    return status;
}

fm_status fm_cofold_input_peek(const char *path, fm_cofold_input *ret_input, fm_error *reterr) {
    fm_npz npz;
    return read_archive(path, ret_input, &npz, reterr);
}

fm_status fm_cofold_input_read(const char *path, fm_cofold_input *ret_input, fm_error *reterr) {
    fm_cofold_input *input = ret_input;
    fm_npz npz;
    fm_status status = read_archive(path, input, &npz, reterr);
    if (status) return status;
    status = fm_stored_sample_check_predicted(&npz, &input->arena, &input->features, reterr);
    if (!status) status = make_layout(&npz, input, reterr);
    if (!status) input->hash = hash_arrays(&npz);
    if (status) fm_error_in(reterr, path);
    return status;
}

void fm_cofold_input_release(fm_cofold_input *input) {
    fm_arena_fini(&input->arena);
}
