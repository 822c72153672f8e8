/* mmcif_chains.c: puts chains together in the default reading; see mmcif_internal.h.
 *
 * An atom belongs to the residue that its label_asym_id and label_seq_id name. Where
 * _entity_poly_seq lists several monomers for one position, the residue is the first of them, and
 * only its atoms are used. Of an atom's alternative locations the one with the highest occupancy is
 * used, the first among equals. Only the file's first model is read. */
#include "featurizer/parse/mmcif_internal.h"

#include "featurizer/parse/decimal.h"
#include "proto/chem/residue.h"
#include "proto/limits.h"

#include <string.h>

/* The contents of a residue's slot so far: nothing, an atom without an alternative location, or one
 * with. */
enum { SLOT_EMPTY, SLOT_BLANK, SLOT_ALTERNATIVE };

/* The positions of one chain, and the atoms chosen so far. */
typedef struct workplace {
    uint32_t n_res;
    int32_t *nums; /* [N_res] strictly increasing */
    /* [N_res + 1] index in the polymer of each position's first monomer. */
    uint32_t *monomers;
    double *occupancy;    /* [N_res, N_SLOT] */
    uint8_t *state;       /* [N_res, N_SLOT] SLOT_EMPTY, ... */
    float (*selenium)[3]; /* [N_res] */
} workplace;

static fm_status fail_full(fm_mmcif_scan *scan) {
    return fm_arena_full(scan->arena, scan->reterr);
}

/* Links the runs of protein chains into one list per chain. */
static void list_runs(fm_mmcif_scan *scan, fm_mmcif_polymers *polymers) {
    fm_cif_view last_label = {0, 0};
    uint32_t last = MMCIF_NONE;
    for (uint32_t i = 0; i < scan->runs.n; i++) {
        fm_mmcif_run *run = fm_mmcif_array_at(&scan->runs, i);
        if (i == 0 || !fm_mmcif_same(&scan->cif, run->key[ATOM_ASYM], last_label)) {
            last_label = run->key[ATOM_ASYM];
            last = fm_mmcif_map_get(&polymers->by_label, last_label);
        }
        if (last == MMCIF_NONE) continue;
        fm_mmcif_polymer *polymer = &polymers->all[last];
        if (polymer->first_run == MMCIF_NONE) {
            polymer->first_run = i;
        } else {
            ((fm_mmcif_run *)fm_mmcif_array_at(&scan->runs, polymer->last_run))->next = i;
        }
        polymer->last_run = i;
    }
}

/* Finds the positions: the distinct numbers of the entity, which must not decrease. */
static fm_status find_positions(fm_mmcif_scan *scan, const fm_mmcif_polymer *polymer,
                                workplace *work) {
    work->nums = fm_arena_alloc_array(scan->arena, polymer->n_monomer, sizeof *work->nums);
    work->monomers =
        fm_arena_alloc_array(scan->arena, (size_t)polymer->n_monomer + 1, sizeof *work->monomers);
    if (!work->nums || !work->monomers) return fail_full(scan);
    uint32_t n = 0;
    for (uint32_t i = 0; i < polymer->n_monomer; i++) {
        if (n > 0 && i - work->monomers[n - 1] >= FM_LIMIT_ALTERNATIVE) {
            return fm_cif_fail(&scan->cif, scan->reterr, FM_ERR_LIMIT, polymer->comps[i].start,
                               "found more than %u alternatives of residue %d",
                               FM_LIMIT_ALTERNATIVE, polymer->nums[i]);
        }
        if (i > 0 && polymer->nums[i] < polymer->nums[i - 1]) {
            return fm_cif_fail(&scan->cif, scan->reterr, FM_ERR_DATA, polymer->comps[i].start,
                               "_entity_poly_seq.num goes down from %d to %d", polymer->nums[i - 1],
                               polymer->nums[i]);
        }
        if (i > 0 && polymer->nums[i] == polymer->nums[i - 1]) continue;
        work->nums[n] = polymer->nums[i];
        work->monomers[n++] = i;
    }
    work->monomers[n] = polymer->n_monomer;
    work->n_res = n;
    if (n <= FM_LIMIT_N_RES) return FM_OK;
    return fm_cif_fail(&scan->cif, scan->reterr, FM_ERR_LIMIT, polymer->comps[0].start,
                       "the chain has %u residues, the limit is %u", n, FM_LIMIT_N_RES);
}

/* Returns the position of a number, or N_res. */
static uint32_t find_position(const workplace *work, int32_t num) {
    int64_t guess = (int64_t)num - work->nums[0]; /* numbers are nearly always 1, 2, 3 ... */
    if (guess >= 0 && guess < work->n_res && work->nums[guess] == num) return (uint32_t)guess;
    uint32_t low = 0, high = work->n_res;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (work->nums[middle] < num) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < work->n_res && work->nums[low] == num ? low : work->n_res;
}

/* Decides whether a run's atoms are used: *ret_is_used is true for the residue at its position and
 * false for one of its listed alternatives. Any other component is an error. */
static fm_status check_monomer(fm_mmcif_scan *scan, const fm_mmcif_polymer *polymer,
                               const workplace *work, uint32_t res, const fm_mmcif_run *run,
                               bool *ret_is_used) {
    fm_cif_view comp = run->key[ATOM_COMP];
    for (uint32_t i = work->monomers[res]; i < work->monomers[res + 1]; i++) {
        if (!fm_mmcif_same(&scan->cif, comp, polymer->comps[i])) continue;
        *ret_is_used = i == work->monomers[res];
        return FM_OK;
    }
    fm_cif_view listed = polymer->comps[work->monomers[res]];
    return fm_cif_fail(&scan->cif, scan->reterr, FM_ERR_DATA, comp.start,
                       "residue %d of chain %.*s is %.*s here and %.*s in _entity_poly_seq",
                       work->nums[res], MMCIF_SHOW(scan, polymer->label), MMCIF_SHOW(scan, comp),
                       MMCIF_SHOW(scan, listed));
}

static fm_status find_residue(fm_mmcif_scan *scan, const fm_mmcif_polymer *polymer,
                              const workplace *work, const fm_mmcif_run *run, uint32_t *ret_res) {
    fm_cif_view seq = run->key[ATOM_SEQ];
    int32_t num;
    if (!fm_integer_parse(fm_cif_text(&scan->cif, seq), fm_cif_size(seq), &num)) {
        return fm_cif_fail(&scan->cif, scan->reterr, FM_ERR_DATA, seq.start,
                           "label_seq_id of an atom of chain %.*s is '%.*s', expected an integer",
                           MMCIF_SHOW(scan, polymer->label), MMCIF_SHOW(scan, seq));
    }
    *ret_res = find_position(work, num);
    if (*ret_res < work->n_res) return FM_OK;
    return fm_cif_fail(&scan->cif, scan->reterr, FM_ERR_DATA, seq.start,
                       "chain %.*s has no residue %d in _entity_poly_seq",
                       MMCIF_SHOW(scan, polymer->label), num);
}

static fm_status place_atom(fm_mmcif_scan *scan, const fm_mmcif_atom *atom, uint32_t res,
                            workplace *work, const fm_mmcif_chain *chain) {
    size_t at = (size_t)res * N_SLOT + atom->slot;
    if (!atom->has_alt && work->state[at] == SLOT_BLANK) {
        return fm_cif_fail(&scan->cif, scan->reterr, FM_ERR_DATA, atom->at,
                           "atom %s of residue %d occurs twice without alternative locations",
                           atom->slot == SLOT_SE ? "SE" : fm_atom37_names[atom->slot],
                           work->nums[res]);
    }
    if (work->state[at] != SLOT_EMPTY && !(atom->occupancy > work->occupancy[at])) return FM_OK;
    if (chain->confidence && atom->confidence > chain->confidence[res]) {
        ((float *)chain->confidence)[res] = atom->confidence;
    }
    work->state[at] = atom->has_alt ? SLOT_ALTERNATIVE : SLOT_BLANK;
    work->occupancy[at] = atom->occupancy;
    if (atom->slot == SLOT_SE) {
        memcpy(work->selenium[res], atom->position, sizeof atom->position);
        return FM_OK;
    }
    size_t place = (size_t)res * FM_N_ATOM37 + atom->slot;
    memcpy((float *)chain->all_atom_positions + place * 3, atom->position, sizeof atom->position);
    ((uint8_t *)chain->all_atom_mask)[place] = 1;
    return FM_OK;
}

static fm_status place_runs(fm_mmcif_scan *scan, const fm_mmcif_polymer *polymer, workplace *work,
                            const fm_mmcif_chain *chain) {
    for (uint32_t i = polymer->first_run; i != MMCIF_NONE;) {
        const fm_mmcif_run *run = fm_mmcif_array_at(&scan->runs, i);
        uint32_t res = 0;
        bool is_used = false;
        fm_status status = find_residue(scan, polymer, work, run, &res);
        if (!status) status = check_monomer(scan, polymer, work, res, run, &is_used);
        if (status) return status;
        if (is_used) ((uint8_t *)chain->is_missing)[res] = 0;
        for (uint32_t k = 0; is_used && k < run->n_atom; k++) {
            const fm_mmcif_atom *atom = fm_mmcif_array_at(&scan->atoms, run->first_atom + k);
            status = place_atom(scan, atom, res, work, chain);
            if (status) return status;
        }
        i = run->next;
    }
    return FM_OK;
}

/* Writes the sequence, moves selenium to the sulphur's place and corrects arginine's atom names. */
static void finish_residues(fm_mmcif_scan *scan, const fm_mmcif_polymer *polymer,
                            const workplace *work, const fm_mmcif_chain *chain) {
    for (uint32_t res = 0; res < work->n_res; res++) {
        fm_cif_view comp = polymer->comps[work->monomers[res]];
        float(*positions)[3] =
            (float(*)[3])((float *)chain->all_atom_positions + (size_t)res * FM_N_ATOM37 * 3);
        uint8_t *mask = (uint8_t *)chain->all_atom_mask + (size_t)res * FM_N_ATOM37;
        ((char *)chain->sequence)[res] =
            fm_residue_letter(fm_cif_text(&scan->cif, comp), fm_cif_size(comp));
        if (work->state[(size_t)res * N_SLOT + SLOT_SE] && !mask[FM_ATOM37_SD] &&
            fm_cif_equals(&scan->cif, comp, "MSE")) {
            memcpy(positions[FM_ATOM37_SD], work->selenium[res], sizeof work->selenium[res]);
            mask[FM_ATOM37_SD] = 1;
        }
        if (fm_cif_equals(&scan->cif, comp, "ARG")) fm_mmcif_fix_arginine(positions, mask);
    }
}

/* Returns the author id of the chain's first atom, or the label id when the file has no author
 * ids. */
static fm_cif_view author_of(const fm_mmcif_scan *scan, const fm_mmcif_polymer *polymer) {
    const fm_mmcif_run *first = fm_mmcif_array_at(&scan->runs, polymer->first_run);
    return scan->has[ATOM_AUTH_ASYM] ? first->key[ATOM_AUTH_ASYM] : polymer->label;
}

static fm_status build_chain(fm_mmcif_scan *scan, const fm_mmcif_polymer *polymer,
                             fm_mmcif_chain *chain) {
    workplace work = {0};
    chain->author_id = fm_mmcif_copy(&scan->cif, author_of(scan, polymer), scan->arena);
    chain->label_id = fm_mmcif_copy(&scan->cif, polymer->label, scan->arena);
    if (!chain->author_id || !chain->label_id) return fail_full(scan);
    fm_status status = find_positions(scan, polymer, &work);
    if (!status) status = fm_mmcif_alloc_chain(scan, work.n_res, chain);
    if (status) return status;
    if (scan->is_predicted) {
        chain->confidence = fm_arena_calloc(scan->arena, work.n_res, sizeof *chain->confidence);
        if (!chain->confidence) return fail_full(scan);
    }
    size_t mark = fm_arena_mark(scan->arena);
    size_t n_slot = (size_t)work.n_res * N_SLOT;
    work.occupancy = fm_arena_alloc_array(scan->arena, n_slot, sizeof *work.occupancy);
    work.state = fm_arena_calloc(scan->arena, n_slot, 1);
    work.selenium = fm_arena_alloc_array(scan->arena, work.n_res, sizeof *work.selenium);
    if (!work.occupancy || !work.state || !work.selenium) return fail_full(scan);
    status = place_runs(scan, polymer, &work, chain);
    if (status) return status;
    finish_residues(scan, polymer, &work, chain);
    fm_arena_rewind(scan->arena, mark);
    return FM_OK;
}

fm_status fm_mmcif_build_default(fm_mmcif_scan *scan, fm_mmcif_polymers *polymers,
                                 fm_mmcif *ret_mmcif) {
    list_runs(scan, polymers);
    fm_mmcif_chain *chains = fm_arena_calloc(scan->arena, polymers->n, sizeof *chains);
    if (!chains) return fail_full(scan);
    fm_mmcif_map authors;
    fm_status status =
        fm_mmcif_map_init(&authors, &scan->cif, scan->arena, polymers->n, scan->reterr);
    if (status) return status;
    ret_mmcif->chains = chains;
    for (uint32_t i = 0; i < polymers->n; i++) {
        if (polymers->all[i].first_run == MMCIF_NONE) continue;
        /* An author id belongs to the first chain that has it. A later chain with the same id could
         * not be asked for and is skipped. */
        uint32_t *taken = fm_mmcif_map_at(&authors, author_of(scan, &polymers->all[i]));
        if (*taken != MMCIF_NONE) continue;
        *taken = i;
        status = build_chain(scan, &polymers->all[i], &chains[ret_mmcif->n_chain++]);
        if (status) return status;
    }
    if (ret_mmcif->n_chain > 0) return FM_OK;
    return fm_cif_fail(&scan->cif, scan->reterr, FM_ERR_NOT_FOUND, 0,
                       "no protein chain of the file has an atom");
}
