/* mmcif_openfold.c: puts chains together as the reference does; see mmcif_internal.h.
 *
 * The reference (Biopython's parser) first builds a structure from ALL rows: models, chains (author
 * ids), residues (hetero flag, author number, insertion code) and atoms. It refuses the whole file
 * when that fails. Then it looks up the residues of each sequence in the first model. Its rules, in
 * the order in which they act here:
 *
 *   residue   A row opens a residue when its flag, number, code or component differs from the row
 *             before. An ATOM residue that exists already is continued. Under another component it
 *             becomes one of several variants of the residue, none of whose atoms may have a blank
 *             location. The variant opened last represents the residue. Continuing a HETATM residue
 *             or a variant is an error.
 *   atom      Of an atom's locations, the first one with the highest occupancy is used. An earlier
 *             blank location loses ties against a later one with a letter; a blank location that
 *             comes second is an error.
 *   sequence  Position i is the i-th monomer of the entity, even where monomers are alternatives of
 *             one position. An atom row belongs to position label_seq_id - (smallest number), so
 *             all residues behind alternatives are shifted. The last row of a position determines
 *             its residue. */
#include "featurizer/parse/mmcif_internal.h"

#include "featurizer/parse/decimal.h"
#include "proto/base/hash.h"
#include "proto/chem/residue.h"
#include "proto/limits.h"

#include <string.h>

typedef enum het_flag { HET_ATOM, HET_WATER, HET_OTHER } het_flag;

/* The key of a residue. A blank code is an empty view; comp is compared for HET_OTHER only. */
typedef struct residue_id {
    uint32_t chain;
    het_flag het;
    int32_t number;
    fm_cif_view code, comp;
} residue_id;

typedef struct ref_residue {
    residue_id id;
    uint32_t variant; /* the selected one; older ones are linked */
    uint32_t n_variant;
    uint32_t next; /* link in its bucket */
} ref_residue;

typedef struct ref_variant {
    fm_cif_view comp;
    uint32_t first_atom, last_atom; /* MMCIF_NONE when there is none */
    uint32_t n_blank;               /* atoms with a blank location */
    uint32_t older;                 /* next older variant of the same residue */
} ref_variant;

typedef struct named_atom {
    uint64_t name;
    double occupancy;
    float position[3];
    uint32_t variant;
    uint32_t next_of_variant, next; /* next: link in its bucket */
    uint8_t slot;
    bool has_alternatives;
} named_atom;

typedef struct ref_model {
    uint32_t n_residue, n_variant, n_atom;
    ref_residue *residues;
    ref_variant *variants;
    named_atom *atoms;
    uint32_t *residue_buckets, *atom_buckets;
    uint32_t residue_mask, atom_mask;
    fm_mmcif_map chains; /* author id -> number */
    uint32_t n_chain;
    /* The position in the rows: */
    uint32_t chain, residue; /* MMCIF_NONE when there is none */
    residue_id id;           /* of the row before */
} ref_model;

static fm_status fail_full(fm_mmcif_scan *scan) {
    return fm_arena_full(scan->arena, scan->reterr);
}

/* -- a model's residues */

static uint32_t *alloc_buckets(fm_arena *arena, uint32_t n, uint32_t *ret_mask) {
    uint32_t room = 16;
    while (room < n)
        room *= 2;
    uint32_t *buckets = fm_arena_alloc_array(arena, room, sizeof *buckets);
    if (buckets) memset(buckets, 0xff, room * sizeof *buckets);
    *ret_mask = room - 1;
    return buckets;
}

static fm_status model_init(ref_model *model, fm_mmcif_scan *scan, uint32_t n_run,
                            uint32_t n_atom) {
    fm_arena *arena = scan->arena;
    memset(model, 0, sizeof *model);
    model->chain = model->residue = MMCIF_NONE;
    model->residues = fm_arena_alloc_array(arena, n_run, sizeof *model->residues);
    model->variants = fm_arena_alloc_array(arena, n_run, sizeof *model->variants);
    model->atoms = fm_arena_alloc_array(arena, n_atom, sizeof *model->atoms);
    model->residue_buckets = alloc_buckets(arena, n_run, &model->residue_mask);
    model->atom_buckets = alloc_buckets(arena, n_atom, &model->atom_mask);
    if (!model->residues || !model->variants || !model->atoms || !model->residue_buckets ||
        !model->atom_buckets) {
        return fail_full(scan);
    }
    return fm_mmcif_map_init(&model->chains, &scan->cif, arena, n_run, scan->reterr);
}

static bool same_id(const fm_cif *cif, const residue_id *a, const residue_id *b) {
    return a->chain == b->chain && a->het == b->het && a->number == b->number &&
           fm_mmcif_same(cif, a->code, b->code) &&
           (a->het != HET_OTHER || fm_mmcif_same(cif, a->comp, b->comp));
}

static uint32_t *residue_bucket(const ref_model *model, const residue_id *id) {
    const uint32_t key[3] = {id->chain, (uint32_t)id->het, (uint32_t)id->number};
    return &model->residue_buckets[fm_xxh3(key, sizeof key) & model->residue_mask];
}

static uint32_t find_residue(const ref_model *model, const fm_cif *cif, const residue_id *id) {
    uint32_t i = *residue_bucket(model, id);
    while (i != MMCIF_NONE && !same_id(cif, &model->residues[i].id, id))
        i = model->residues[i].next;
    return i;
}

static void add_variant(ref_model *model, ref_residue *residue, fm_cif_view comp) {
    model->variants[model->n_variant] = (ref_variant){
        .comp = comp, .first_atom = MMCIF_NONE, .last_atom = MMCIF_NONE, .older = residue->variant};
    residue->variant = model->n_variant++;
    residue->n_variant++;
}

static void add_residue(ref_model *model, const residue_id *id) {
    uint32_t *bucket = residue_bucket(model, id);
    ref_residue *added = &model->residues[model->n_residue];
    *added = (ref_residue){.id = *id, .variant = MMCIF_NONE, .next = *bucket};
    *bucket = model->residue = model->n_residue++;
    add_variant(model, added, id->comp);
}

static fm_status fail_residue(fm_mmcif_scan *scan, const residue_id *id, const char *what) {
    return fm_cif_fail(&scan->cif, scan->reterr, FM_ERR_DATA, id->comp.start, "residue %.*s %d %s",
                       MMCIF_SHOW(scan, id->comp), id->number, what);
}

/* Opens a variant when an existing ATOM residue occurs with another component. */
static fm_status open_variant(ref_model *model, fm_mmcif_scan *scan, ref_residue *residue,
                              const residue_id *id) {
    uint32_t i = residue->variant;
    if (residue->n_variant == 1) {
        if (fm_mmcif_same(&scan->cif, model->variants[i].comp, id->comp)) return FM_OK;
        if (model->variants[i].n_blank > 0) {
            return fail_residue(
                scan, id,
                "is an alternative to a residue that has atoms without an alternative location");
        }
    } else {
        for (; i != MMCIF_NONE; i = model->variants[i].older) {
            if (fm_mmcif_same(&scan->cif, model->variants[i].comp, id->comp)) {
                return fail_residue(scan, id, "is continued after its alternative");
            }
        }
        if (residue->n_variant == FM_LIMIT_ALTERNATIVE) {
            return fail_residue(scan, id, "has too many alternatives");
        }
    }
    add_variant(model, residue, id->comp);
    return FM_OK;
}

static fm_status open_residue(ref_model *model, fm_mmcif_scan *scan, const residue_id *id) {
    uint32_t found = find_residue(model, &scan->cif, id);
    if (found == MMCIF_NONE) {
        add_residue(model, id);
        return FM_OK;
    }
    if (id->het != HET_ATOM) {
        return fail_residue(scan, id, "is a hetero residue and occurs a second time");
    }
    model->residue = found;
    return open_variant(model, scan, &model->residues[found], id);
}

/* -- atoms */

static uint32_t *atom_bucket(const ref_model *model, uint32_t variant, uint64_t name) {
    const uint64_t key[2] = {variant, name};
    return &model->atom_buckets[fm_xxh3(key, sizeof key) & model->atom_mask];
}

static named_atom *find_atom(const ref_model *model, uint32_t variant, uint64_t name) {
    uint32_t i = *atom_bucket(model, variant, name);
    while (i != MMCIF_NONE && (model->atoms[i].variant != variant || model->atoms[i].name != name))
        i = model->atoms[i].next;
    return i == MMCIF_NONE ? NULL : &model->atoms[i];
}

static void add_atom(ref_model *model, uint32_t variant_number, const fm_mmcif_atom *atom) {
    uint32_t *bucket = atom_bucket(model, variant_number, atom->name);
    ref_variant *variant = &model->variants[variant_number];
    named_atom *added = &model->atoms[model->n_atom];
    *added = (named_atom){.name = atom->name,
                          .occupancy = atom->occupancy,
                          .variant = variant_number,
                          .next_of_variant = MMCIF_NONE,
                          .next = *bucket,
                          .slot = atom->slot,
                          .has_alternatives = atom->has_alt};
    memcpy(added->position, atom->position, sizeof added->position);
    *bucket = model->n_atom;
    if (variant->first_atom == MMCIF_NONE) {
        variant->first_atom = model->n_atom;
    } else {
        model->atoms[variant->last_atom].next_of_variant = model->n_atom;
    }
    variant->last_atom = model->n_atom++;
    variant->n_blank += !atom->has_alt;
}

static fm_status take_atom(ref_model *model, fm_mmcif_scan *scan, const fm_mmcif_atom *atom) {
    const ref_residue *residue = &model->residues[model->residue];
    named_atom *existing = find_atom(model, residue->variant, atom->name);
    if (!atom->has_alt && (residue->n_variant > 1 || existing)) {
        return fm_cif_fail(&scan->cif, scan->reterr, FM_ERR_DATA, atom->at,
                           residue->n_variant > 1
                               ? "found an atom without an alternative location in one of several "
                                 "alternatives of a residue"
                               : "an atom without an alternative location occurs a second time");
    }
    if (!existing) {
        add_atom(model, residue->variant, atom);
        return FM_OK;
    }
    /* A blank location that came first loses ties against the new one. */
    bool replaces = existing->has_alternatives ? atom->occupancy > existing->occupancy
                                               : !(existing->occupancy > atom->occupancy);
    existing->has_alternatives = true;
    if (!replaces) return FM_OK;
    existing->occupancy = atom->occupancy;
    memcpy(existing->position, atom->position, sizeof existing->position);
    return FM_OK;
}

/* -- rows */

static het_flag flag_of(const fm_cif *cif, const fm_mmcif_run *run) {
    if (!fm_cif_equals(cif, run->key[ATOM_GROUP], "HETATM")) return HET_ATOM;
    bool water = fm_cif_equals(cif, run->key[ATOM_COMP], "HOH") ||
                 fm_cif_equals(cif, run->key[ATOM_COMP], "WAT");
    return water ? HET_WATER : HET_OTHER;
}

static fm_status read_integer(fm_mmcif_scan *scan, fm_cif_view view, const char *name,
                              int32_t *ret_value) {
    if (fm_integer_parse(fm_cif_text(&scan->cif, view), fm_cif_size(view), ret_value)) return FM_OK;
    return fm_cif_fail(&scan->cif, scan->reterr, FM_ERR_FORMAT, view.start,
                       "_atom_site.%s is '%.*s', expected an integer", name,
                       MMCIF_SHOW(scan, view));
}

/* Reads everything of the id except the chain. */
static fm_status read_id(fm_mmcif_scan *scan, const fm_mmcif_run *run, residue_id *ret_id) {
    fm_cif_view code = run->key[ATOM_INS];
    if (fm_cif_is_unset(&scan->cif, code)) code = (fm_cif_view){0, 0};
    *ret_id =
        (residue_id){.het = flag_of(&scan->cif, run), .code = code, .comp = run->key[ATOM_COMP]};
    return read_integer(scan, run->key[ATOM_AUTH_SEQ], "auth_seq_id", &ret_id->number);
}

static fm_status take_run(ref_model *model, fm_mmcif_scan *scan, const fm_mmcif_run *run) {
    residue_id id;
    fm_status status = read_id(scan, run, &id);
    if (status) return status;
    uint32_t *chain = fm_mmcif_map_at(&model->chains, run->key[ATOM_AUTH_ASYM]);
    if (*chain == MMCIF_NONE) *chain = model->n_chain++;
    id.chain = *chain;
    if (model->residue == MMCIF_NONE || !same_id(&scan->cif, &id, &model->id) ||
        !fm_mmcif_same(&scan->cif, id.comp, model->id.comp)) {
        status = open_residue(model, scan, &id);
        if (status) return status;
        model->id = id;
    }
    for (uint32_t i = 0; i < run->n_atom; i++) {
        status = take_atom(model, scan, fm_mmcif_array_at(&scan->atoms, run->first_atom + i));
        if (status) return status;
    }
    return FM_OK;
}

/* Builds a model from the consecutive rows, beginning with run `first`, that carry the same model
 * number. *ret_end is the next model's first run. */
static fm_status build_model(fm_mmcif_scan *scan, uint32_t first, ref_model *model,
                             uint32_t *ret_end) {
    int32_t number = 0;
    uint32_t n_atom = 0, end = first;
    for (; end < scan->runs.n; end++) {
        const fm_mmcif_run *run = fm_mmcif_array_at(&scan->runs, end);
        int32_t here;
        fm_status status = read_integer(scan, run->key[ATOM_MODEL], "pdbx_PDB_model_num", &here);
        if (status) return status;
        if (end > first && here != number) break;
        number = here;
        n_atom += run->n_atom;
    }
    fm_status status = model_init(model, scan, end - first, n_atom);
    for (uint32_t i = first; i < end && !status; i++)
        status = take_run(model, scan, fm_mmcif_array_at(&scan->runs, i));
    *ret_end = end;
    return status;
}

/* -- chains */

/* Finds the run that determines the residue at each position of each chain: positions[p] is
 * [n_monomer] run numbers. */
static fm_status map_positions(fm_mmcif_scan *scan, fm_mmcif_polymers *polymers,
                               uint32_t **positions, const int32_t *starts) {
    for (uint32_t i = 0; i < scan->runs.n; i++) {
        const fm_mmcif_run *run = fm_mmcif_array_at(&scan->runs, i);
        if (!fm_cif_equals(&scan->cif, run->key[ATOM_MODEL], "1")) continue;
        uint32_t p = fm_mmcif_map_get(&polymers->by_label, run->key[ATOM_ASYM]);
        if (p == MMCIF_NONE) continue;
        fm_mmcif_polymer *polymer = &polymers->all[p];
        int32_t num;
        fm_status status = read_integer(scan, run->key[ATOM_SEQ], "label_seq_id", &num);
        if (status) return status;
        if (polymer->first_run == MMCIF_NONE) {
            polymer->first_run = i;
            polymer->author = run->key[ATOM_AUTH_ASYM];
        } else if (!fm_mmcif_same(&scan->cif, polymer->author, run->key[ATOM_AUTH_ASYM])) {
            return fm_cif_fail(&scan->cif, scan->reterr, FM_ERR_DATA,
                               run->key[ATOM_AUTH_ASYM].start, "chain %.*s has two author ids",
                               MMCIF_SHOW(scan, polymer->label));
        }
        int64_t at = (int64_t)num - starts[p];
        if (at >= 0 && at < polymer->n_monomer) positions[p][at] = i;
    }
    return FM_OK;
}

static fm_status alloc_positions(fm_mmcif_scan *scan, const fm_mmcif_polymers *polymers,
                                 uint32_t ***ret_positions, int32_t **ret_starts) {
    uint32_t **positions = fm_arena_alloc_array(scan->arena, polymers->n, sizeof *positions);
    int32_t *starts = fm_arena_alloc_array(scan->arena, polymers->n, sizeof *starts);
    if (!positions || !starts) return fail_full(scan);
    for (uint32_t p = 0; p < polymers->n; p++) {
        const fm_mmcif_polymer *polymer = &polymers->all[p];
        if (polymer->n_monomer > FM_LIMIT_N_RES) {
            return fm_cif_fail(&scan->cif, scan->reterr, FM_ERR_LIMIT, polymer->comps[0].start,
                               "the chain has %u residues, the limit is %u", polymer->n_monomer,
                               FM_LIMIT_N_RES);
        }
        starts[p] = polymer->nums[0];
        for (uint32_t i = 1; i < polymer->n_monomer; i++) {
            if (polymer->nums[i] < starts[p]) starts[p] = polymer->nums[i];
        }
        positions[p] = fm_arena_alloc_array(scan->arena, polymer->n_monomer, sizeof **positions);
        if (!positions[p]) return fail_full(scan);
        memset(positions[p], 0xff, polymer->n_monomer * sizeof **positions);
    }
    *ret_positions = positions;
    *ret_starts = starts;
    return FM_OK;
}

static void place_residue(const ref_model *model, const fm_cif *cif, const ref_residue *residue,
                          float (*positions)[3], uint8_t *mask) {
    const ref_variant *variant = &model->variants[residue->variant];
    bool selenium = fm_cif_equals(cif, variant->comp, "MSE");
    for (uint32_t i = variant->first_atom; i != MMCIF_NONE; i = model->atoms[i].next_of_variant) {
        const named_atom *atom = &model->atoms[i];
        uint8_t slot = atom->slot == SLOT_SE && selenium ? FM_ATOM37_SD : atom->slot;
        if (slot >= FM_N_ATOM37) continue;
        memcpy(positions[slot], atom->position, sizeof atom->position);
        mask[slot] = 1;
    }
    if (fm_cif_equals(cif, variant->comp, "ARG")) fm_mmcif_fix_arginine(positions, mask);
}

/* Builds a chain. A residue that the first model lacks makes only this chain unusable, not the
 * file. */
static fm_status build_chain(fm_mmcif_scan *scan, const ref_model *model,
                             const fm_mmcif_polymer *polymer, const uint32_t *runs,
                             fm_mmcif_chain *chain) {
    const fm_cif *cif = &scan->cif;
    chain->author_id = fm_mmcif_copy(cif, polymer->author, scan->arena);
    chain->label_id = fm_mmcif_copy(cif, polymer->label, scan->arena);
    if (!chain->author_id || !chain->label_id) return fail_full(scan);
    fm_status status = fm_mmcif_alloc_chain(scan, polymer->n_monomer, chain);
    if (status) return status;
    for (uint32_t res = 0; res < polymer->n_monomer; res++) {
        fm_cif_view comp = polymer->comps[res];
        ((char *)chain->sequence)[res] =
            fm_residue_letter(fm_cif_text(cif, comp), fm_cif_size(comp));
        if (runs[res] == MMCIF_NONE) continue;
        ((uint8_t *)chain->is_missing)[res] = 0;
        residue_id id;
        status = read_id(scan, fm_mmcif_array_at(&scan->runs, runs[res]), &id);
        if (status) return status;
        id.chain = fm_mmcif_map_get(&model->chains, polymer->author);
        uint32_t found = find_residue(model, cif, &id);
        if (found == MMCIF_NONE) {
            chain->fault = "a residue of model 1 is not in the file's first model";
            continue;
        }
        size_t at = (size_t)res * FM_N_ATOM37;
        place_residue(model, cif, &model->residues[found],
                      (float(*)[3])((float *)chain->all_atom_positions + at * 3),
                      (uint8_t *)chain->all_atom_mask + at);
    }
    return FM_OK;
}

static fm_status build_chains(fm_mmcif_scan *scan, const ref_model *model,
                              fm_mmcif_polymers *polymers, fm_mmcif *mmcif) {
    uint32_t **positions = NULL;
    int32_t *starts = NULL;
    fm_mmcif_map authors;
    fm_status status = alloc_positions(scan, polymers, &positions, &starts);
    if (!status) status = map_positions(scan, polymers, positions, starts);
    if (!status) {
        status = fm_mmcif_map_init(&authors, &scan->cif, scan->arena, polymers->n, scan->reterr);
    }
    if (status) return status;
    fm_mmcif_chain *chains = fm_arena_calloc(scan->arena, polymers->n, sizeof *chains);
    if (!chains) return fail_full(scan);
    for (uint32_t p = 0; p < polymers->n; p++) {
        const fm_mmcif_polymer *polymer = &polymers->all[p];
        if (polymer->first_run == MMCIF_NONE) {
            return fm_cif_fail(&scan->cif, scan->reterr, FM_ERR_DATA, polymer->label.start,
                               "protein chain %.*s has no atom in model 1",
                               MMCIF_SHOW(scan, polymer->label));
        }
        uint32_t *taken = fm_mmcif_map_at(&authors, polymer->author);
        if (*taken != MMCIF_NONE) {
            return fm_cif_fail(&scan->cif, scan->reterr, FM_ERR_DATA, polymer->label.start,
                               "two protein chains have the author id %.*s",
                               MMCIF_SHOW(scan, polymer->author));
        }
        *taken = p;
        status = build_chain(scan, model, polymer, positions[p], &chains[p]);
        if (status) return status;
    }
    mmcif->chains = chains;
    mmcif->n_chain = polymers->n;
    return FM_OK;
}

fm_status fm_mmcif_build_openfold(fm_mmcif_scan *scan, fm_mmcif_polymers *polymers,
                                  fm_mmcif *ret_mmcif) {
    ref_model first, other;
    uint32_t at = 0;
    if (scan->runs.n == 0) {
        return fm_cif_fail(&scan->cif, scan->reterr, FM_ERR_DATA, 0, "the file has no atom");
    }
    fm_status status = build_model(scan, 0, &first, &at);
    while (!status && at < scan->runs.n) {
        size_t mark = fm_arena_mark(scan->arena);
        status = build_model(scan, at, &other, &at);
        fm_arena_rewind(scan->arena, mark);
    }
    return status ? status : build_chains(scan, &first, polymers, ret_mmcif);
}
