/* partners.c: see partners.h.
 *
 * Molecules are added one after another: each is turned at random and pushed out from a drawn atom
 * until it is in contact with what is there. A sugar stands where its leaving oxygen says, in the
 * freest of several positions. Copies of the assembly turn about an axis along z. */
#include "featurizer/synth/partners.h"

#include "featurizer/synth/components.h"
#include "featurizer/synth/nucleic.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* Å between the closest atoms of two molecules. */
static const double contact = 3.3, ion_contact = 2.2;

typedef struct builder {
    fm_arena *arena;
    const fm_synth_options *options;
    const fm_synth_entry *entry;
    fm_synth_model *model;
    fm_components components;
    fm_synth_points placed; /* all atoms so far */
    fm_synth_partners *partners;
    fm_error *reterr;
} builder;

static fm_synth_draws draws_of(const builder *b, uint32_t number) {
    return fm_synth_draws_of(b->options->seed, FM_SYNTH_DRAW_PLACE, b->entry->index, number);
}

static void add_point(fm_synth_points *points, fm_vec3 at) {
    points->at[points->n++] = at;
}

/* -- proteins */

static void list_chain(const builder *b, uint32_t slot, fm_synth_points *points) {
    for (uint32_t i = 0; i < b->model->chains[slot].n_res; i++) {
        const fm_synth_placed *residue = &b->model->residues[slot][i];
        for (uint32_t k = 0; k < fm_synth_placed_atoms(residue); k++)
            add_point(points, residue->atoms[k]);
    }
}

/* Moves the second protein, and with it its second conformations. */
static void dock_second(builder *b) {
    fm_synth_draws draws = draws_of(b, 0);
    fm_synth_points second = {b->placed.at + b->placed.n, 0};
    list_chain(b, 1, &second);
    fm_vec3 shift = fm_synth_dock(&draws, &b->placed, &second, contact);
    for (uint32_t i = 0; i < b->model->chains[1].n_res; i++) {
        fm_synth_placed *residue = &b->model->residues[1][i];
        for (uint32_t k = 0; k < residue->n_atom; k++) {
            residue->atoms[k] = fm_vec3_add(residue->atoms[k], shift);
            residue->alternates[k] = fm_vec3_add(residue->alternates[k], shift);
        }
    }
    list_chain(b, 1, &b->placed);
}

/* -- molecules */

static fm_status make_residue(builder *b, const char *id, fm_synth_partner_residue *ret_residue) {
    const fm_component *component = fm_components_find(&b->components, id);
    assert(component);
    *ret_residue = (fm_synth_partner_residue){
        .component = component,
        .atoms = fm_arena_calloc(b->arena, component->n_atom, sizeof *ret_residue->atoms),
        .has = fm_arena_calloc(b->arena, component->n_atom, sizeof *ret_residue->has)};
    if (!ret_residue->atoms || !ret_residue->has) return fm_arena_full(b->arena, b->reterr);
    for (uint32_t k = 0; k < component->n_atom; k++) {
        const float *ideal = component->atoms[k].ideal;
        ret_residue->atoms[k] = (fm_vec3){(double)ideal[0], (double)ideal[1], (double)ideal[2]};
        ret_residue->has[k] = true;
    }
    b->partners->n_atom += component->n_atom;
    return FM_OK;
}

static fm_status make_partner(builder *b, fm_synth_partner_kind kind, bool is_new_entity,
                              uint32_t n_residue, fm_synth_partner **ret_partner) {
    fm_synth_partners *partners = b->partners;
    assert(partners->n < FM_SYNTH_MAX_PARTNERS);
    fm_synth_partner *partner = &partners->partner[partners->n++];
    partners->n_entity += is_new_entity;
    *partner = (fm_synth_partner){
        .kind = kind,
        .entity = partners->n_entity - 1,
        .auth_chain = b->entry->auth_chain[0],
        .n_residue = n_residue,
        .residues = fm_arena_calloc(b->arena, n_residue, sizeof *partner->residues)};
    *ret_partner = partner;
    return partner->residues ? FM_OK : fm_arena_full(b->arena, b->reterr);
}

static void list_partner(const fm_synth_partner *partner, fm_synth_points *points) {
    for (uint32_t r = 0; r < partner->n_residue; r++) {
        const fm_synth_partner_residue *residue = &partner->residues[r];
        for (uint32_t k = 0; k < residue->component->n_atom; k++) {
            if (residue->has[k]) add_point(points, residue->atoms[k]);
        }
    }
}

static void move_partner(const fm_synth_motion *motion, fm_synth_partner *partner) {
    for (uint32_t r = 0; r < partner->n_residue; r++) {
        fm_synth_partner_residue *residue = &partner->residues[r];
        for (uint32_t k = 0; k < residue->component->n_atom; k++)
            residue->atoms[k] = fm_synth_move(motion, residue->atoms[k]);
    }
}

/* Turns the partners from `first` on as one body and docks it. */
static void dock_partners(builder *b, uint32_t first, double apart) {
    fm_synth_partners *partners = b->partners;
    fm_synth_draws draws = draws_of(b, 1 + first);
    fm_synth_motion motion = fm_synth_draw_motion(&draws);
    fm_synth_points body = {b->placed.at + b->placed.n, 0};
    for (uint32_t p = first; p < partners->n; p++) {
        move_partner(&motion, &partners->partner[p]);
        list_partner(&partners->partner[p], &body);
    }
    fm_synth_motion push = {{{1, 0, 0}, {0, 1, 0}, {0, 0, 1}},
                            fm_synth_dock(&draws, &b->placed, &body, apart)};
    for (uint32_t p = first; p < partners->n; p++) {
        move_partner(&push, &partners->partner[p]);
        list_partner(&partners->partner[p], &b->placed);
    }
}

static fm_status add_strands(builder *b) {
    const fm_synth_recipe *recipe = b->entry->recipe;
    uint32_t first = b->partners->n;
    if (recipe->n_strand == 0) return FM_OK;
    for (uint32_t s = 0; s < recipe->n_strand; s++) {
        fm_synth_strand strand;
        fm_synth_partner *partner;
        fm_synth_strand_draw(b->options->seed, b->entry, s, &strand);
        fm_status status = make_partner(b, recipe->is_rna ? FM_SYNTH_RNA : FM_SYNTH_DNA,
                                        s == 0 || !recipe->same_strand, strand.n, &partner);
        if (status) return status;
        partner->auth_chain = b->entry->auth_strand[s];
        for (uint32_t i = 0; i < strand.n; i++) {
            char letter = strand.letters[i];
            const char id[] = {recipe->is_rna ? letter : 'D', recipe->is_rna ? '\0' : letter, 0};
            fm_synth_partner_residue *residue = &partner->residues[i];
            status = make_residue(b, id, residue);
            if (status) return status;
            fm_synth_nucleotide_place(residue->component, letter, recipe->is_rna, s, i, strand.n,
                                      residue->atoms, residue->has);
        }
    }
    dock_partners(b, first, contact);
    return FM_OK;
}

static fm_status add_ligands(builder *b) {
    static const char *const ligands[] = {"ATP", "BTN", "CIT"}, *const ions[] = {"MG", "ZN"};
    const fm_synth_recipe *recipe = b->entry->recipe;
    fm_synth_draws draws = draws_of(b, 0x100);
    const char *ligand = ligands[fm_synth_draw_below(&draws, 3)];
    const char *ion = ions[fm_synth_draw_below(&draws, 2)];
    for (uint32_t i = 0; i < (uint32_t)recipe->n_ligand + recipe->n_ion; i++) {
        bool is_ion = i >= recipe->n_ligand;
        uint32_t first = b->partners->n;
        fm_synth_partner *partner;
        fm_status status =
            make_partner(b, FM_SYNTH_LIGAND, i == 0 || i == recipe->n_ligand, 1, &partner);
        if (!status) status = make_residue(b, is_ion ? ion : ligand, &partner->residues[0]);
        if (status) return status;
        dock_partners(b, first, is_ion ? ion_contact : contact);
    }
    return FM_OK;
}

/* -- glycans */

/* Three atoms of which the last one is bonded to a sugar's C1. */
typedef struct sugar_anchor {
    fm_vec3 a, b, c;
    double bond, angle; /* Å; degrees */
} sugar_anchor;

static fm_vec3 unit_of(fm_vec3 v) {
    return fm_vec3_scale(v, 1 / sqrt(fm_vec3_dot(v, v)));
}

static fm_vec3 atom_of(const fm_synth_partner_residue *residue, const char *name) {
    int32_t k = fm_component_find_atom(residue->component, name);
    assert(k >= 0);
    return residue->atoms[k];
}

/* Two perpendicular unit vectors, which are perpendicular to `along`, too. */
static void cross_axes(fm_vec3 along, fm_vec3 *ret_x, fm_vec3 *ret_y) {
    fm_vec3 aside = fabs(along.x) < 0.7 ? (fm_vec3){1, 0, 0} : (fm_vec3){0, 1, 0};
    *ret_x = unit_of(fm_vec3_cross(along, aside));
    *ret_y = fm_vec3_cross(along, *ret_x);
}

/* Places the ideal sugar: its C1 in the given direction, its O1 on the anchor's atom, and turned
 * about their bond. */
static void place_sugar(const sugar_anchor *anchor, const fm_synth_partner_residue *ideal,
                        double dihedral, double turn, fm_vec3 *ret_atoms) {
    fm_vec3 c1 =
        fm_geometry_place(anchor->a, anchor->b, anchor->c, anchor->bond, anchor->angle, dihedral);
    fm_vec3 from = atom_of(ideal, "C1");
    fm_vec3 in = unit_of(fm_vec3_sub(atom_of(ideal, "O1"), from)), in_x, in_y;
    fm_vec3 to = unit_of(fm_vec3_sub(anchor->c, c1)), to_x, to_y;
    double sine, cosine;
    cross_axes(in, &in_x, &in_y);
    cross_axes(to, &to_x, &to_y);
    fm_geometry_sincos(turn, &sine, &cosine);
    for (uint32_t k = 0; k < ideal->component->n_atom; k++) {
        fm_vec3 p = fm_vec3_sub(ideal->atoms[k], from);
        double x = fm_vec3_dot(p, in_x), y = fm_vec3_dot(p, in_y), z = fm_vec3_dot(p, in);
        fm_vec3 at = fm_vec3_scale(to, z);
        at = fm_vec3_add(at, fm_vec3_scale(to_x, x * cosine - y * sine));
        at = fm_vec3_add(at, fm_vec3_scale(to_y, x * sine + y * cosine));
        ret_atoms[k] = fm_vec3_add(c1, at);
    }
}

/* Returns the smallest squared distance of the sugar's atoms but C1 and O1 to what is placed. */
static double freedom_of(const builder *b, const fm_synth_partner_residue *ideal,
                         const fm_vec3 *atoms) {
    double least = 1e9;
    for (uint32_t k = 0; k < ideal->component->n_atom; k++) {
        const char *name = ideal->component->atoms[k].name;
        if (strcmp(name, "C1") == 0 || strcmp(name, "O1") == 0) continue;
        for (uint32_t i = 0; i < b->placed.n; i++) {
            fm_vec3 d = fm_vec3_sub(b->placed.at[i], atoms[k]);
            double square = fm_vec3_dot(d, d);
            least = square < least ? square : least;
        }
    }
    return least;
}

/* Tries the sugar at an anchor. Where it is freer than *freedom, it is kept in `best`. */
static bool try_anchor(const builder *b, const sugar_anchor *anchor,
                       const fm_synth_partner_residue *ideal, fm_vec3 *work, fm_vec3 *best,
                       double *freedom) {
    bool is_better = false;
    for (int dihedral = 60; dihedral < 360; dihedral += 60) {
        for (int turn = 0; turn < 360; turn += 30) {
            place_sugar(anchor, ideal, dihedral, turn, work);
            double found = freedom_of(b, ideal, work);
            if (found <= *freedom) continue;
            *freedom = found;
            is_better = true;
            memcpy(best, work, ideal->component->n_atom * sizeof *best);
        }
    }
    return is_better;
}

/* A residue that carries glycans: numbers of its atoms, the last of which is bonded to C1. */
typedef struct carrier {
    uint8_t aatype;
    const char *atom;
    uint8_t a, b, c;
    double bond, angle; /* Å; degrees */
} carrier;

static const carrier carriers[] = {
    {2, "ND2", 4, 5, 7, 1.45, 122},
    {15, "OG", 1, 4, 5, 1.43, 114},
    {16, "OG1", 1, 4, 5, 1.43, 114},
};

/* Returns the carrier that the residue is, if its side chain is whole, or NULL. */
static const carrier *carrier_of(const fm_synth_placed *residue) {
    if (residue->missing || residue->stub || residue->alternate) return NULL;
    for (size_t i = 0; i < sizeof carriers / sizeof carriers[0]; i++) {
        if (carriers[i].aatype == residue->type) return &carriers[i];
    }
    return NULL;
}

/* Whether the first protein has an asparagine, and whether it has any carrier. */
static void find_carriers(const builder *b, bool *ret_asparagine, bool *ret_any) {
    *ret_asparagine = *ret_any = false;
    for (uint32_t i = 0; i < b->model->chains[0].n_res; i++) {
        const carrier *found = carrier_of(&b->model->residues[0][i]);
        *ret_any = *ret_any || found;
        *ret_asparagine = *ret_asparagine || found == &carriers[0];
    }
}

/* Places the first sugar on the freest of some carriers of the first protein. */
static void place_on_protein(const builder *b, const fm_synth_partner_residue *sugar, fm_vec3 *work,
                             fm_vec3 *best, fm_synth_link *link) {
    enum { MOST_TRIED = 8 };
    double freedom = -1;
    bool has_asparagine, has_any;
    find_carriers(b, &has_asparagine, &has_any);
    for (uint32_t i = 0, n = 0; i < b->model->chains[0].n_res && n < MOST_TRIED; i++) {
        const carrier *on = carrier_of(&b->model->residues[0][i]);
        const fm_vec3 *atoms = b->model->residues[0][i].atoms;
        if (!on || (has_asparagine && on != &carriers[0])) continue;
        n++;
        const sugar_anchor to = {atoms[on->a], atoms[on->b], atoms[on->c], on->bond, on->angle};
        if (!try_anchor(b, &to, sugar, work, best, &freedom)) continue;
        link->to = i;
        link->atom = on->atom;
        link->length = on->bond;
    }
}

static fm_status add_sugar(builder *b, fm_synth_partner *glycan, uint32_t number) {
    fm_synth_partner_residue *sugar = &glycan->residues[number];
    fm_synth_link link = {.partner = b->partners->n - 1, .residue = number, .to_protein = !number};
    fm_status status = make_residue(b, "NAG", sugar);
    if (status) return status;
    const uint32_t n_atom = sugar->component->n_atom;
    fm_vec3 *work = fm_arena_calloc(b->arena, n_atom, sizeof *work);
    fm_vec3 *best = fm_arena_calloc(b->arena, n_atom, sizeof *best);
    if (!work || !best) return fm_arena_full(b->arena, b->reterr);
    if (number == 0) {
        place_on_protein(b, sugar, work, best, &link);
    } else {
        const fm_synth_partner_residue *before = &glycan->residues[number - 1];
        const sugar_anchor to = {atom_of(before, "C3"), atom_of(before, "C4"),
                                 atom_of(before, "O4"), 1.433, 116};
        double freedom = -1;
        try_anchor(b, &to, sugar, work, best, &freedom);
        link.atom = "O4";
        link.length = to.bond;
    }
    memcpy(sugar->atoms, best, n_atom * sizeof *best);
    sugar->has[fm_component_find_atom(sugar->component, "O1")] = false;
    for (uint32_t k = 0; k < n_atom; k++) {
        if (sugar->has[k]) add_point(&b->placed, sugar->atoms[k]);
    }
    b->partners->links[b->partners->n_link++] = link;
    return FM_OK;
}

static fm_status add_glycan(builder *b) {
    const uint32_t n_sugar = b->entry->recipe->n_sugar;
    bool has_asparagine, has_any;
    find_carriers(b, &has_asparagine, &has_any);
    if (n_sugar == 0 || !has_any) return FM_OK;
    fm_synth_partner *glycan;
    /* A sugar alone is a ligand in files of the PDB, and two are a branched entity. */
    fm_status status =
        make_partner(b, n_sugar > 1 ? FM_SYNTH_GLYCAN : FM_SYNTH_LIGAND, true, n_sugar, &glycan);
    const uint32_t last = b->entry->n_chain + b->entry->recipe->n_strand;
    if (n_sugar > 1) glycan->auth_chain = (char)(b->entry->auth_chain[0] + (char)last);
    for (uint32_t i = 0; !status && i < n_sugar; i++)
        status = add_sugar(b, glycan, i);
    return status;
}

/* -- the assembly */

static fm_vec3 turn(double sine, double cosine, fm_vec3 p) {
    return (fm_vec3){cosine * p.x - sine * p.y, sine * p.x + cosine * p.y, p.z};
}

/* Copies turn about an axis along z, which is as near as contact allows. */
static void make_copies(builder *b) {
    fm_synth_partners *partners = b->partners;
    partners->n_copy = b->entry->recipe->n_copy;
    partners->copies[0] = (fm_synth_motion){{{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}, {0, 0, 0}};
    if (partners->n_copy == 1) return;
    fm_synth_draws draws = draws_of(b, 0x200);
    double sine, cosine, half_sine, half_cosine;
    fm_geometry_sincos(360.0 / partners->n_copy, &sine, &cosine);
    fm_geometry_sincos(180.0 / partners->n_copy, &half_sine, &half_cosine);
    fm_synth_points copy = {b->placed.at + b->placed.n, 0};
    for (uint32_t i = 0; i < b->placed.n; i++)
        add_point(&copy, turn(sine, cosine, b->placed.at[i]));
    /* An atom is put on its own copy, which has the same z, and pushed away from it. */
    uint32_t drawn = fm_synth_draw_below(&draws, b->placed.n);
    double way_sine, way_cosine;
    fm_geometry_sincos(360 * fm_synth_draw_real(&draws), &way_sine, &way_cosine);
    fm_vec3 way = {way_cosine, way_sine, 0};
    fm_vec3 shift = fm_vec3_sub(b->placed.at[drawn], copy.at[drawn]);
    double far = fm_synth_clearance(&b->placed, &copy, shift, way, contact);
    shift = fm_vec3_add(shift, fm_vec3_scale(way, far));
    /* The axis goes through the point c with shift = c - turn(c). */
    double ratio = half_cosine / half_sine;
    fm_vec3 c = {0.5 * (shift.x - ratio * shift.y), 0.5 * (ratio * shift.x + shift.y), 0};
    for (uint32_t k = 1; k < partners->n_copy; k++) {
        fm_geometry_sincos(360.0 * k / partners->n_copy, &sine, &cosine);
        partners->copies[k] = (fm_synth_motion){{{cosine, -sine, 0}, {sine, cosine, 0}, {0, 0, 1}},
                                                fm_vec3_sub(c, turn(sine, cosine, c))};
    }
}

fm_status fm_synth_partners_make(fm_arena *arena, const fm_synth_options *options,
                                 const fm_synth_entry *entry, fm_synth_model *model,
                                 fm_synth_partners *ret_partners, fm_error *reterr) {
    enum { MOST_PARTNER_ATOMS = 4096 };
    *ret_partners = (fm_synth_partners){0};
    builder b = {.arena = arena,
                 .options = options,
                 .entry = entry,
                 .model = model,
                 .partners = ret_partners,
                 .reterr = reterr};
    fm_bytes text;
    fm_status status = fm_synth_components_text(arena, &text, reterr);
    if (!status) status = fm_components_parse(text, arena, &b.components, reterr);
    if (status) return status;
    size_t n_res = model->chains[0].n_res + model->chains[1].n_res;
    size_t most = n_res * (FM_IDEAL_MAX_ATOMS + 1) + MOST_PARTNER_ATOMS;
    b.placed.at = fm_arena_calloc(arena, 2 * most, sizeof *b.placed.at); /* and one more copy */
    if (!b.placed.at) return fm_arena_full(arena, reterr);
    list_chain(&b, 0, &b.placed);
    if (entry->n_chain == 2) dock_second(&b);
    status = add_strands(&b);
    if (!status) status = add_glycan(&b);
    if (!status) status = add_ligands(&b);
    if (!status) make_copies(&b);
    return status;
}
