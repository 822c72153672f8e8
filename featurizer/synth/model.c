/* model.c: see model.h. */
#include "featurizer/synth/model.h"

#include "featurizer/synth/motion.h"

#include <assert.h>
#include <math.h>

enum { MET = 12, STUB_ATOMS = 5 }; /* N CA C O CB */

uint32_t fm_synth_placed_atoms(const fm_synth_placed *placed) {
    if (placed->missing) return 0;
    return placed->stub && placed->n_atom > STUB_ATOMS ? STUB_ATOMS : placed->n_atom;
}

static void draw_experiment(fm_synth_draws *draws, fm_synth_model *model) {
    uint32_t kind = fm_synth_draw_below(draws, 10);
    model->method = kind < 7 ? FM_SYNTH_XRAY : kind < 8 ? FM_SYNTH_NMR : FM_SYNTH_EM;
    model->n_model = model->method == FM_SYNTH_NMR ? 3 : 1;
    model->resolution = model->method == FM_SYNTH_NMR    ? 0
                        : model->method == FM_SYNTH_XRAY ? fm_synth_draw_between(draws, 120, 320)
                                                         : fm_synth_draw_between(draws, 250, 450);
    model->year = fm_synth_draw_between(draws, 1996, 2022);
    model->month = fm_synth_draw_between(draws, 1, 12);
    model->day = fm_synth_draw_between(draws, 1, 28);
    model->revised = fm_synth_draw_chance(draws, 1, 2);
    bool crystal = model->method == FM_SYNTH_XRAY;
    model->selenium = crystal && fm_synth_draw_chance(draws, 1, 5);
    model->sulfate = crystal && fm_synth_draw_chance(draws, 1, 3);
}

/* Assigns author numbers: an offset, sometimes a jump, sometimes a residue with an insertion
 * code. */
static void number_residues(fm_synth_draws *draws, fm_synth_placed *residues, uint32_t n) {
    int32_t next = fm_synth_draw_chance(draws, 1, 6)
                       ? (int32_t)fm_synth_draw_between(draws, 100, 900)
                       : (int32_t)fm_synth_draw_between(draws, 0, 30) - 4;
    uint32_t jump = fm_synth_draw_chance(draws, 1, 8) ? fm_synth_draw_below(draws, n) : 0;
    uint32_t inserted = fm_synth_draw_chance(draws, 1, 8) ? fm_synth_draw_below(draws, n) : 0;
    for (uint32_t i = 0; i < n; i++) {
        residues[i].insert_code = '?';
        if (i > 0 && i == inserted) {
            residues[i].insert_code = 'A';
            next--;
        } else if (i > 0 && i == jump) {
            next += 10;
        }
        residues[i].auth_number = next++;
    }
}

static void draw_missing(fm_synth_draws *draws, fm_synth_placed *residues, uint32_t n) {
    uint32_t head = fm_synth_draw_below(draws, 4), tail = fm_synth_draw_below(draws, 4);
    uint32_t gap = 0, gap_length = 0;
    if (n >= 30 && fm_synth_draw_chance(draws, 1, 3)) {
        gap_length = fm_synth_draw_between(draws, 1, 5);
        gap = fm_synth_draw_between(draws, 8, n - 16);
    }
    for (uint32_t i = 0; i < n; i++)
        residues[i].missing = i < head || i + tail >= n || (i >= gap && i < gap + gap_length);
}

/* Places the residue's atoms. Chi angles are drawn by the family's site, so relatives keep their
 * rotamers. */
static void build_residue(uint64_t seed, const fm_synth_entry *entry, const fm_synth_chain *chain,
                          uint32_t i, fm_synth_placed *placed) {
    const fm_synth_residue *residue = &chain->residues[i];
    bool is_insertion = residue->site == FM_SYNTH_NO_SITE;
    fm_synth_draws draws = fm_synth_draws_of(
        seed, FM_SYNTH_DRAW_CHI, is_insertion ? UINT32_MAX - entry->index : chain->family->number,
        (is_insertion ? i : (uint32_t)residue->site) << 8 | residue->aatype);
    double chi[4] = {0, 0, 0, 0};
    bool last = i + 1 == chain->n_res;
    double psi = chain->torsions[i].psi;
    fm_synth_draw_chi(&draws, placed->type, chi);
    placed->n_atom =
        fm_synth_residue_atoms(placed->type, &chain->backbone[i], psi, chi, last, placed->atoms);
    const fm_ideal_residue *ideal = fm_ideal_residue_of(placed->type);
    placed->alternate = placed->alternate && ideal->n_chi > 0 &&
                        ideal->chi_kind[0] == FM_CHI_ROTAMER && !placed->stub;
    if (!placed->alternate) return;
    chi[0] += 120; /* the next of the three minima */
    fm_synth_residue_atoms(placed->type, &chain->backbone[i], psi, chi, last, placed->alternates);
}

static void build_chain(uint64_t seed, const fm_synth_entry *entry, uint32_t slot,
                        const fm_synth_model *model, fm_synth_placed *residues) {
    const fm_synth_chain *chain = &model->chains[slot];
    fm_synth_draws draws = fm_synth_draws_of(seed, FM_SYNTH_DRAW_CRYSTAL, entry->index, slot);
    number_residues(&draws, residues, chain->n_res);
    if (model->method != FM_SYNTH_NMR) draw_missing(&draws, residues, chain->n_res);
    for (uint32_t i = 0; i < chain->n_res; i++) {
        uint8_t aatype = chain->residues[i].aatype;
        fm_synth_placed *placed = &residues[i];
        placed->type = model->selenium && aatype == MET ? FM_IDEAL_MSE : aatype;
        bool crystal = model->method == FM_SYNTH_XRAY;
        placed->stub = crystal && fm_synth_draw_chance(&draws, 1, 50);
        placed->alternate = crystal && fm_synth_draw_chance(&draws, 1, 30);
        build_residue(seed, entry, chain, i, placed);
    }
}

static void move_chain(const fm_synth_motion *motion, fm_synth_placed *residues, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < residues[i].n_atom; k++) {
            residues[i].atoms[k] = fm_synth_move(motion, residues[i].atoms[k]);
            if (residues[i].alternate) {
                residues[i].alternates[k] = fm_synth_move(motion, residues[i].alternates[k]);
            }
        }
    }
}

static void x_range(const fm_synth_placed *residues, uint32_t n, double *ret_low,
                    double *ret_high) {
    double low = residues[0].atoms[0].x, high = low;
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < residues[i].n_atom; k++) {
            double x = residues[i].atoms[k].x;
            low = x < low ? x : low;
            high = x > high ? x : high;
        }
    }
    *ret_low = low;
    *ret_high = high;
}

/* Turns the second chain by 180 degrees about z and puts it beside the first. */
static void dock_second(const fm_synth_model *model) {
    double low, high, low2, high2;
    x_range(model->residues[0], model->chains[0].n_res, &low, &high);
    x_range(model->residues[1], model->chains[1].n_res, &low2, &high2);
    fm_synth_motion beside = {{{-1, 0, 0}, {0, -1, 0}, {0, 0, 1}}, {high + 4.0 + high2, 0, 0}};
    move_chain(&beside, model->residues[1], model->chains[1].n_res);
}

/* Places the waters and the sulfate outside: 7 to 12 Å from a CA, away from the chain's middle. */
static void draw_solvent(fm_synth_draws *draws, fm_synth_model *model) {
    const fm_synth_chain *chain = &model->chains[0];
    const fm_synth_placed *residues = model->residues[0];
    assert(residues && chain->n_res > 0);
    fm_vec3 middle = {0, 0, 0};
    for (uint32_t i = 0; i < chain->n_res; i++)
        middle = fm_vec3_add(middle, residues[i].atoms[1]);
    middle = fm_vec3_scale(middle, 1.0 / chain->n_res);
    for (uint32_t i = 0; i <= model->n_water; i++) {
        fm_vec3 ca = residues[fm_synth_draw_below(draws, chain->n_res)].atoms[1];
        fm_vec3 out = fm_vec3_sub(ca, middle);
        double length = sqrt(fm_vec3_dot(out, out)) + 0.5;
        double far = i == 0 ? 12.0 : 7.0 + 3.0 * fm_synth_draw_real(draws);
        model->solvent[i] = fm_vec3_add(ca, fm_vec3_scale(out, far / length));
    }
}

fm_status fm_synth_model_make(fm_arena *arena, const fm_synth_options *options,
                              const fm_synth_entry *entry, fm_synth_model *ret_model,
                              fm_error *reterr) {
    fm_synth_model model = {0};
    fm_synth_draws draws = fm_synth_draws_of(options->seed, FM_SYNTH_DRAW_SOLVENT, entry->index, 0);
    draw_experiment(&draws, &model);
    for (uint32_t slot = 0; slot < entry->n_chain; slot++) {
        fm_synth_family *family = fm_arena_calloc(arena, 1, sizeof *family);
        if (!family) return fm_arena_full(arena, reterr);
        fm_status status =
            fm_synth_family_make(arena, options, entry->family[slot], family, reterr);
        if (!status) {
            status = fm_synth_chain_make(arena, options, entry, slot, family, &model.chains[slot],
                                         reterr);
        }
        if (status) return status;
        model.residues[slot] =
            fm_arena_calloc(arena, model.chains[slot].n_res, sizeof *model.residues[slot]);
        if (!model.residues[slot]) return fm_arena_full(arena, reterr);
        build_chain(options->seed, entry, slot, &model, model.residues[slot]);
    }
    if (entry->n_chain == 2) dock_second(&model);
    fm_synth_motion motion = fm_synth_draw_motion(&draws);
    for (uint32_t slot = 0; slot < entry->n_chain; slot++)
        move_chain(&motion, model.residues[slot], model.chains[slot].n_res);
    model.n_water = model.method == FM_SYNTH_XRAY ? model.chains[0].n_res / 8 : 0;
    model.solvent = fm_arena_calloc(arena, (size_t)model.n_water + 1, sizeof *model.solvent);
    if (!model.solvent) return fm_arena_full(arena, reterr);
    draw_solvent(&draws, &model);
    *ret_model = model;
    return FM_OK;
}
