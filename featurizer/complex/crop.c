/* crop.c: what all ways to crop share, and recorded draws; see crop.h. */
#include "featurizer/complex/crop.h"

#include "featurizer/complex/crop_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { MIN_RESOLVED = 5 };

/* -- tokens */

static int compare_tokens(const void *left, const void *right) {
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return a < b ? -1 : a > b;
}

/* Leaves out residues that are not wholly among the sorted tokens. */
static void drop_parts(crop_work *work) {
    const fm_assembly *assembly = work->assembly;
    uint32_t n = 0;
    for (uint32_t i = 0, end; i < work->n_token; i = end) {
        uint32_t residue = assembly->tokens[work->tokens[i]].residue;
        uint32_t whole =
            fm_crop_residue_end(assembly, residue) - assembly->residues[residue].first_token;
        end = i + 1;
        while (end < work->n_token && assembly->tokens[work->tokens[end]].residue == residue)
            end++;
        if (end - i < whole) continue;
        for (uint32_t k = i; k < end; k++)
            work->tokens[n++] = work->tokens[k];
    }
    work->n_token = n;
}

static fm_status check_resolved(const crop_work *work) {
    const fm_assembly *assembly = work->assembly;
    uint32_t n = 0;
    for (uint32_t i = 0; i < work->n_token && n < MIN_RESOLVED; i++) {
        const fm_assembly_token *token = &assembly->tokens[work->tokens[i]];
        for (uint32_t a = token->first_atom; a < token->first_atom + token->n_atom; a++)
            n += assembly->atoms[a].is_resolved;
    }
    if (n >= MIN_RESOLVED) return FM_OK;
    return fm_fail(work->reterr, FM_ERR_DATA,
                   "the crop fails: it has %u resolved atoms, at least %d", n, MIN_RESOLVED);
}

/* -- atoms that can change places with the crop's */

/* For a kind of molecule (entity_mol_id): which places in it are in the crop. */
typedef struct molecule_places {
    uint8_t *has; /* [n] */
    uint32_t n;
} molecule_places;

typedef struct full_work {
    const crop_work *crop;
    molecule_places *kinds; /* [n_kind] by entity_mol_id */
    bool *is_in_crop;       /* [n_molecule] by mol_id */
    uint32_t n_kind, n_molecule;
} full_work;

static fm_status make_kinds(full_work *work) {
    const fm_assembly *assembly = work->crop->assembly;
    fm_arena *arena = work->crop->arena;
    for (uint32_t c = 0; c < assembly->n_chain; c++) {
        const fm_assembly_chain *chain = &assembly->chains[c];
        assert(chain->entity_mol_id >= 0 && chain->mol_id >= 0);
        if ((uint32_t)chain->entity_mol_id >= work->n_kind) {
            work->n_kind = (uint32_t)chain->entity_mol_id + 1;
        }
        if ((uint32_t)chain->mol_id >= work->n_molecule) {
            work->n_molecule = (uint32_t)chain->mol_id + 1;
        }
    }
    work->kinds = fm_arena_calloc(arena, work->n_kind, sizeof *work->kinds);
    work->is_in_crop = fm_arena_calloc(arena, work->n_molecule, sizeof *work->is_in_crop);
    if (!work->kinds || !work->is_in_crop) return fm_arena_full(arena, work->crop->reterr);
    return FM_OK;
}

static const fm_assembly_chain *chain_of_token(const fm_assembly *assembly, uint32_t token) {
    return &assembly->chains[assembly->residues[assembly->tokens[token].residue].chain];
}

/* Marks the places of the crop's atoms in their molecules: first their number, then each. */
static fm_status mark_places(full_work *work) {
    const fm_assembly *assembly = work->crop->assembly;
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < work->crop->n_token; i++) {
            uint32_t t = work->crop->tokens[i];
            const fm_assembly_token *token = &assembly->tokens[t];
            const fm_assembly_chain *chain = chain_of_token(assembly, t);
            molecule_places *places = &work->kinds[chain->entity_mol_id];
            work->is_in_crop[chain->mol_id] = true;
            for (uint32_t a = token->first_atom; a < token->first_atom + token->n_atom; a++) {
                uint32_t place = (uint32_t)assembly->atoms[a].mol_atom_index;
                if (pass) {
                    places->has[place] = 1;
                } else if (place >= places->n) {
                    places->n = place + 1;
                }
            }
        }
        for (uint32_t k = 0; k < work->n_kind && pass == 0; k++) {
            work->kinds[k].has = fm_arena_calloc(work->crop->arena, work->kinds[k].n, 1);
            if (!work->kinds[k].has) return fm_arena_full(work->crop->arena, work->crop->reterr);
        }
    }
    return FM_OK;
}

static fm_status list_full(const full_work *work, fm_complex_crop *ret_crop) {
    const fm_assembly *assembly = work->crop->assembly;
    bool is_spatial = work->crop->request->method != FM_CROP_CONTIGUOUS;
    uint32_t *full = fm_arena_alloc_array(work->crop->arena, assembly->n_atom, sizeof *full), n = 0;
    if (!full) return fm_arena_full(work->crop->arena, work->crop->reterr);
    for (uint32_t c = 0; c < assembly->n_chain; c++) {
        const fm_assembly_chain *chain = &assembly->chains[c];
        const molecule_places *places = &work->kinds[chain->entity_mol_id];
        if (places->n == 0 || (is_spatial && !work->is_in_crop[chain->mol_id])) continue;
        uint32_t end = fm_assembly_chain_end_atom(assembly, c);
        for (uint32_t a = chain->first_atom; a < end; a++) {
            uint32_t place = (uint32_t)assembly->atoms[a].mol_atom_index;
            if (place < places->n && places->has[place]) full[n++] = a;
        }
    }
    fm_arena_trim(work->crop->arena, full, n * sizeof *full);
    ret_crop->n_full = n;
    ret_crop->full = full;
    return FM_OK;
}

static fm_status find_full(const crop_work *crop, fm_complex_crop *ret_crop) {
    full_work work = {.crop = crop};
    fm_status status = make_kinds(&work);
    if (!status) status = mark_places(&work);
    return status ? status : list_full(&work, ret_crop);
}

fm_status fm_complex_crop_make(const fm_assembly *assembly, const fm_crop_request *request,
                               const fm_draws *draws, fm_arena *arena, fm_complex_crop *ret_crop,
                               fm_error *reterr) {
    crop_work work = {.assembly = assembly,
                      .request = request,
                      .draws = draws,
                      .arena = arena,
                      .reterr = reterr,
                      .reference = -1};
    assert(request->size > 0 && request->n_reference <= 2);
    uint32_t room = request->size < assembly->n_token ? request->size : assembly->n_token;
    work.tokens = fm_arena_alloc_array(arena, room, sizeof *work.tokens);
    if (!work.tokens) return fm_arena_full(arena, reterr);
    bool is_contiguous = request->method == FM_CROP_CONTIGUOUS;
    fm_status status = is_contiguous ? fm_crop_contiguous(&work) : fm_crop_spatial(&work);
    if (status) return status;
    qsort(work.tokens, work.n_token, sizeof *work.tokens, compare_tokens);
    if (is_contiguous) {
        status = check_resolved(&work);
    } else {
        if (request->is_complete) drop_parts(&work);
        if (work.n_token == 0) {
            status = fm_fail(reterr, FM_ERR_DATA, "the crop fails: no residue fits into it");
        }
    }
    fm_complex_crop crop = {
        .n_token = work.n_token, .tokens = work.tokens, .reference = work.reference};
    if (!status) status = find_full(&work, &crop);
    if (!status) *ret_crop = crop;
    return status;
}

/* -- recorded draws */

enum { DRAW_NUMBER = 0, DRAW_ELEMENT = 1 };

/* Returns the next recorded number of [0, below), counted from its low end. */
static uint32_t next_draw(fm_crop_replay *replay, int32_t kind, uint32_t below) {
    const fm_crop_draw *draw = &replay->draws[replay->at];
    if (replay->has_failed || replay->at == replay->n || draw->kind != kind ||
        (int64_t)draw->high - draw->low != (int64_t)below || draw->value < draw->low ||
        draw->value >= draw->high || (kind == DRAW_ELEMENT && draw->low != 0)) {
        replay->has_failed = true;
        return 0;
    }
    replay->at++;
    return (uint32_t)((int64_t)draw->value - draw->low);
}

static uint32_t replay_below(void *context, fm_sample_purpose purpose, uint32_t cycle,
                             uint32_t number, uint32_t below) {
    (void)purpose, (void)cycle, (void)number;
    return next_draw(context, DRAW_NUMBER, below);
}

/* The recorded elements are places in the list as it was. */
static void replay_pick(void *context, fm_sample_purpose purpose, uint32_t cycle, uint32_t number,
                        uint32_t *list, uint32_t n, uint32_t n_pick) {
    fm_crop_replay *replay = context;
    (void)purpose, (void)cycle, (void)number;
    uint32_t first = replay->at;
    for (uint32_t i = 0; i < n && i < n_pick; i++) {
        uint32_t place = next_draw(replay, DRAW_ELEMENT, n);
        for (uint32_t k = first; k + 1 < replay->at; k++)
            replay->has_failed = replay->has_failed || (uint32_t)replay->draws[k].value == place;
    }
    if (replay->has_failed) return;
    /* Each place is recorded once, so the list can be walked along its cycles. */
    for (uint32_t i = 0; i < n && i < n_pick; i++) {
        uint32_t place = (uint32_t)replay->draws[first + i].value;
        while (place < i)
            place = (uint32_t)replay->draws[first + place].value;
        uint32_t kept = list[i];
        list[i] = list[place];
        list[place] = kept;
    }
}

fm_draws fm_crop_replay_draws(fm_crop_replay *replay) {
    return (fm_draws){.context = replay, .below = replay_below, .pick = replay_pick};
}

bool fm_crop_replay_is_whole(const fm_crop_replay *replay) {
    return !replay->has_failed && replay->at == replay->n;
}
