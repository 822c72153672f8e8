/* mmcif.c: writes an entry's model as an mmCIF file, with those categories and columns of the PDB's
 * own files that readers use. */
#include "featurizer/synth/mmcif_writer.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { N_SULFATE = 5, GLY = 7 };

static const struct {
    const char *id, *name, *formula;
} monomers[] = {
    {"ALA", "ALANINE", "C3 H7 N O2"},
    {"ARG", "ARGININE", "C6 H15 N4 O2 1"},
    {"ASN", "ASPARAGINE", "C4 H8 N2 O3"},
    {"ASP", "'ASPARTIC ACID'", "C4 H7 N O4"},
    {"CYS", "CYSTEINE", "C3 H7 N O2 S"},
    {"GLN", "GLUTAMINE", "C5 H10 N2 O3"},
    {"GLU", "'GLUTAMIC ACID'", "C5 H9 N O4"},
    {"GLY", "GLYCINE", "C2 H5 N O2"},
    {"HIS", "HISTIDINE", "C6 H10 N3 O2 1"},
    {"HOH", "WATER", "H2 O"},
    {"ILE", "ISOLEUCINE", "C6 H13 N O2"},
    {"LEU", "LEUCINE", "C6 H13 N O2"},
    {"LYS", "LYSINE", "C6 H15 N2 O2 1"},
    {"MET", "METHIONINE", "C5 H11 N O2 S"},
    {"MSE", "SELENOMETHIONINE", "C5 H11 N O2 Se"},
    {"PHE", "PHENYLALANINE", "C9 H11 N O2"},
    {"PRO", "PROLINE", "C5 H9 N O2"},
    {"SER", "SERINE", "C3 H7 N O3"},
    {"SO4", "'SULFATE ION'", "O4 S -2"},
    {"THR", "THREONINE", "C4 H9 N O3"},
    {"TRP", "TRYPTOPHAN", "C11 H12 N2 O2"},
    {"TYR", "TYROSINE", "C9 H11 N O3"},
    {"VAL", "VALINE", "C5 H11 N O2"},
};

static const char *const methods[] = {"'X-RAY DIFFRACTION'", "'SOLUTION NMR'",
                                      "'ELECTRON MICROSCOPY'"};

static const fm_ideal_residue *type_of(const fm_synth_cif *cif, uint32_t slot, uint32_t i) {
    return fm_ideal_residue_of(cif->model->residues[slot][i].type);
}

static uint32_t entity_of(const fm_synth_cif *cif, uint32_t slot) {
    return cif->entry->same ? 1 : slot + 1;
}

char fm_synth_cif_label(uint32_t number) {
    return (char)('A' + number);
}

int32_t fm_synth_cif_number_behind(const fm_synth_cif *cif) {
    uint32_t n = cif->model->chains[0].n_res;
    return (cif->model->residues[0][n - 1].auth_number / 100 + 1) * 100 + 1;
}

static void put_header(const fm_synth_cif *cif) {
    const fm_synth_model *model = cif->model;
    fm_synth_text *text = cif->text;
    fm_synth_text_format(text, "data_%s\n# \n_entry.id   %s \n# \n", cif->id, cif->id);
    fm_synth_text_format(text,
                         "_struct.entry_id                  %s \n"
                         "_struct.title                     'Synthetic %s of family %u' \n# \n",
                         cif->id, cif->entry->recipe ? "complex" : "protein",
                         cif->entry->family[0]);
    fm_synth_text_format(text, "_exptl.entry_id          %s \n_exptl.method            %s \n# \n",
                         cif->id, methods[model->method]);
    fm_synth_text_string(text, "loop_\n_pdbx_audit_revision_history.ordinal \n"
                               "_pdbx_audit_revision_history.data_content_type \n"
                               "_pdbx_audit_revision_history.major_revision \n"
                               "_pdbx_audit_revision_history.minor_revision \n"
                               "_pdbx_audit_revision_history.revision_date \n");
    fm_synth_text_format(text, "1 'Structure model' 1 0 %04u-%02u-%02u \n", model->year,
                         model->month, model->day);
    if (model->revised) {
        fm_synth_text_format(text, "2 'Structure model' 1 1 %04u-%02u-%02u \n", model->year + 1,
                             model->month, model->day);
    }
    fm_synth_text_string(text, "# \n");
    const char *key = model->method == FM_SYNTH_XRAY ? "_refine.ls_d_res_high"
                                                     : "_em_3d_reconstruction.resolution";
    if (model->method != FM_SYNTH_NMR) {
        fm_synth_text_format(text, "%-34s %u.%02u \n# \n", key, model->resolution / 100,
                             model->resolution % 100);
    }
}

static void put_entities(const fm_synth_cif *cif) {
    fm_synth_text *text = cif->text;
    uint32_t number = cif->n_entity + cif->partners->n_entity;
    fm_synth_text_string(text, "loop_\n_entity.id \n_entity.type \n_entity.src_method \n"
                               "_entity.pdbx_description \n"
                               "_entity.pdbx_number_of_molecules \n");
    for (uint32_t i = 0; i < cif->n_entity; i++) {
        fm_synth_text_format(text, "%u polymer     man 'Synthetic protein, family %u' %u \n", i + 1,
                             cif->entry->family[i], cif->entry->same ? 2u : 1u);
    }
    fm_synth_cif_put_partner_entities(cif);
    if (cif->model->sulfate) {
        fm_synth_text_format(text, "%u non-polymer syn 'SULFATE ION' 1 \n", ++number);
    }
    if (cif->model->n_water) {
        fm_synth_text_format(text, "%u water       nat water %u \n", ++number, cif->model->n_water);
    }
    fm_synth_text_string(text, "# \n");
}

/* Writes the one-letter sequence as a text block with lines of 80, modified residues in
 * brackets. */
static void put_letters(const fm_synth_cif *cif, uint32_t slot, bool canonical) {
    uint32_t n = cif->model->chains[slot].n_res, column = 0;
    fm_synth_text_char(cif->text, ';');
    for (uint32_t i = 0; i < n; i++) {
        const fm_ideal_residue *type = type_of(cif, slot, i);
        bool modified = cif->model->residues[slot][i].type == FM_IDEAL_MSE && !canonical;
        if (column >= 80) {
            fm_synth_text_char(cif->text, '\n');
            column = 0;
        }
        if (modified) {
            fm_synth_text_format(cif->text, "(%s)", type->name);
        } else {
            fm_synth_text_char(cif->text, type->letter);
        }
        column += modified ? 5 : 1;
    }
    fm_synth_text_string(cif->text, "\n;\n");
}

static void put_polymers(const fm_synth_cif *cif) {
    fm_synth_text *text = cif->text;
    fm_synth_text_string(text, "loop_\n_entity_poly.entity_id \n_entity_poly.type \n"
                               "_entity_poly.nstd_linkage \n_entity_poly.nstd_monomer \n"
                               "_entity_poly.pdbx_seq_one_letter_code \n"
                               "_entity_poly.pdbx_seq_one_letter_code_can \n"
                               "_entity_poly.pdbx_strand_id \n");
    for (uint32_t slot = 0; slot < cif->n_entity; slot++) {
        fm_synth_text_format(text, "%u 'polypeptide(L)' no %s \n", slot + 1,
                             cif->model->selenium ? "yes" : "no");
        put_letters(cif, slot, false);
        put_letters(cif, slot, true);
        if (cif->entry->same) {
            fm_synth_text_format(text, "%c,%c \n", cif->entry->auth_chain[0],
                                 cif->entry->auth_chain[1]);
        } else {
            fm_synth_text_format(text, "%c \n", cif->entry->auth_chain[slot]);
        }
    }
    fm_synth_cif_put_strands(cif);
    fm_synth_text_string(text, "# \nloop_\n_entity_poly_seq.entity_id \n_entity_poly_seq.num \n"
                               "_entity_poly_seq.mon_id \n_entity_poly_seq.hetero \n");
    for (uint32_t slot = 0; slot < cif->n_entity; slot++) {
        for (uint32_t i = 0; i < cif->model->chains[slot].n_res; i++) {
            fm_synth_text_format(text, "%u %-4u %s n \n", slot + 1, i + 1,
                                 type_of(cif, slot, i)->name);
        }
    }
    fm_synth_cif_put_strand_residues(cif);
    fm_synth_text_string(text, "# \n");
}

static bool has_monomer(const fm_synth_cif *cif, const char *id) {
    if (strcmp(id, "HOH") == 0) return cif->model->n_water > 0;
    if (strcmp(id, "SO4") == 0) return cif->model->sulfate;
    for (uint32_t slot = 0; slot < cif->n_entity; slot++) {
        for (uint32_t i = 0; i < cif->model->chains[slot].n_res; i++) {
            if (strcmp(type_of(cif, slot, i)->name, id) == 0) return true;
        }
    }
    return false;
}

static void put_components(const fm_synth_cif *cif) {
    fm_synth_text *text = cif->text;
    fm_synth_text_string(text, "loop_\n_chem_comp.id \n_chem_comp.type \n"
                               "_chem_comp.mon_nstd_flag \n_chem_comp.name \n"
                               "_chem_comp.formula \n");
    for (size_t i = 0; i < sizeof monomers / sizeof monomers[0]; i++) {
        const char *id = monomers[i].id;
        if (!has_monomer(cif, id)) continue;
        bool solvent = strcmp(id, "HOH") == 0 || strcmp(id, "SO4") == 0;
        const char *type = solvent                  ? "non-polymer"
                           : strcmp(id, "GLY") == 0 ? "'peptide linking'"
                                                    : "'L-peptide linking'";
        const char *standard = solvent ? "." : strcmp(id, "MSE") == 0 ? "n" : "y";
        fm_synth_text_format(text, "%s %-19s %s %-17s '%s' \n", id, type, standard,
                             monomers[i].name, monomers[i].formula);
    }
    fm_synth_cif_put_partner_components(cif);
    fm_synth_text_string(text, "# \n");
}

static void put_label_chains(const fm_synth_cif *cif) {
    fm_synth_text *text = cif->text;
    uint32_t chain = cif->entry->n_chain + cif->partners->n;
    uint32_t entity = cif->n_entity + cif->partners->n_entity;
    fm_synth_text_string(text, "loop_\n_struct_asym.id \n"
                               "_struct_asym.pdbx_blank_PDB_chainid_flag \n"
                               "_struct_asym.pdbx_modified \n_struct_asym.entity_id \n"
                               "_struct_asym.details \n");
    for (uint32_t slot = 0; slot < cif->entry->n_chain; slot++)
        fm_synth_text_format(text, "%c N N %u ? \n", fm_synth_cif_label(slot),
                             entity_of(cif, slot));
    fm_synth_cif_put_partner_chains(cif);
    if (cif->model->sulfate) {
        fm_synth_text_format(text, "%c N N %u ? \n", fm_synth_cif_label(chain++), ++entity);
    }
    if (cif->model->n_water) {
        fm_synth_text_format(text, "%c N N %u ? \n", fm_synth_cif_label(chain), ++entity);
    }
    fm_synth_text_string(text, "# \n");
}

static const char atom_columns[] =
    "loop_\n_atom_site.group_PDB \n_atom_site.id \n_atom_site.type_symbol \n"
    "_atom_site.label_atom_id \n_atom_site.label_alt_id \n_atom_site.label_comp_id \n"
    "_atom_site.label_asym_id \n_atom_site.label_entity_id \n_atom_site.label_seq_id \n"
    "_atom_site.pdbx_PDB_ins_code \n_atom_site.Cartn_x \n_atom_site.Cartn_y \n"
    "_atom_site.Cartn_z \n_atom_site.occupancy \n_atom_site.B_iso_or_equiv \n"
    "_atom_site.pdbx_formal_charge \n_atom_site.auth_seq_id \n_atom_site.auth_comp_id \n"
    "_atom_site.auth_asym_id \n_atom_site.auth_atom_id \n_atom_site.pdbx_PDB_model_num \n";

/* Rounds to the nearest thousandth. Two machines compute the same double, so they round the same
 * way. */
static int64_t thousandths(double x) {
    return (int64_t)floor(x * 1000.0 + 0.5);
}

void fm_synth_cif_put_atom(fm_synth_cif *cif, const fm_synth_cif_row *row) {
    char number[12] = ".";
    if (row->label_number) snprintf(number, sizeof number, "%u", row->label_number);
    bool quoted = strchr(row->name, '\'') != NULL;
    fm_synth_text_format(cif->text, "%-6s %-5u %-2s %s%-3s%s %c %-3s %c %u %-4s %c ", row->group,
                         ++cif->serial, row->element, quoted ? "\"" : "", row->name,
                         quoted ? "\"" : "", row->alternate, row->component, row->label_chain,
                         row->entity, number, row->insert_code);
    fm_synth_text_fixed3(cif->text, thousandths(row->at.x), 8);
    fm_synth_text_char(cif->text, ' ');
    fm_synth_text_fixed3(cif->text, thousandths(row->at.y), 8);
    fm_synth_text_char(cif->text, ' ');
    fm_synth_text_fixed3(cif->text, thousandths(row->at.z), 8);
    fm_synth_text_format(cif->text, " %u.%02u %u.%02u ? %-4d %-3s %c %s%-3s%s %u \n",
                         row->occupancy / 100, row->occupancy % 100, row->temperature / 100,
                         row->temperature % 100, row->auth_number, row->component, row->auth_chain,
                         quoted ? "\"" : "", row->name, quoted ? "\"" : "", row->model);
}

/* The B factor grows along the side chain and with a coarser resolution. */
static uint32_t temperature_of(const fm_synth_cif *cif, uint32_t residue, uint32_t atom) {
    uint32_t base = 1200 + 8 * cif->model->resolution;
    return base + residue * 37 % 900 + atom * 60;
}

static void put_residue(fm_synth_cif *cif, uint32_t slot, uint32_t i, uint32_t model,
                        fm_synth_draws *spread) {
    const fm_synth_placed *placed = &cif->model->residues[slot][i];
    const fm_ideal_residue *ideal = type_of(cif, slot, i);
    static const char *const backbone[] = {"N", "CA", "C", "O"};
    static const char *const elements[] = {"N", "C", "C", "O"};
    uint32_t n_atom = fm_synth_placed_atoms(placed);
    for (uint32_t k = 0; k < n_atom; k++) {
        bool oxt = k >= FM_IDEAL_N_BACKBONE + (uint32_t)ideal->n_side;
        bool side = k >= FM_IDEAL_N_BACKBONE && !oxt;
        const fm_ideal_atom *atom = side ? &ideal->side[k - FM_IDEAL_N_BACKBONE] : NULL;
        bool has_alternate = placed->alternate && side && k > FM_IDEAL_N_BACKBONE;
        fm_synth_cif_row row = {.group = placed->type == FM_IDEAL_MSE ? "HETATM" : "ATOM",
                                .element = side  ? atom->element
                                           : oxt ? "O"
                                                 : elements[k],
                                .name = side  ? atom->name
                                        : oxt ? "OXT"
                                              : backbone[k],
                                .component = ideal->name,
                                .alternate = has_alternate ? 'A' : '.',
                                .label_chain = fm_synth_cif_label(slot),
                                .auth_chain = cif->entry->auth_chain[slot],
                                .insert_code = placed->insert_code,
                                .entity = entity_of(cif, slot),
                                .label_number = i + 1,
                                .auth_number = placed->auth_number,
                                .at = placed->atoms[k],
                                .occupancy = has_alternate ? 60 : 100,
                                .temperature = temperature_of(cif, i, k),
                                .model = model};
        if (spread) {
            row.at.x += fm_synth_draw_spread(spread, 0.04);
            row.at.y += fm_synth_draw_spread(spread, 0.04);
            row.at.z += fm_synth_draw_spread(spread, 0.04);
        }
        fm_synth_cif_put_atom(cif, &row);
        if (!has_alternate) continue;
        row.alternate = 'B';
        row.at = placed->alternates[k];
        row.occupancy = 40;
        fm_synth_cif_put_atom(cif, &row);
    }
}

static void put_solvent(fm_synth_cif *cif) {
    static const char *const names[N_SULFATE] = {"S", "O1", "O2", "O3", "O4"};
    static const fm_vec3 arms[N_SULFATE] = {{0, 0, 0},
                                            {0.86, 0.86, 0.86},
                                            {0.86, -0.86, -0.86},
                                            {-0.86, 0.86, -0.86},
                                            {-0.86, -0.86, 0.86}};
    const fm_synth_model *model = cif->model;
    uint32_t chain = cif->entry->n_chain + cif->partners->n;
    uint32_t entity = cif->n_entity + cif->partners->n_entity;
    int32_t number = fm_synth_cif_number_behind(cif);
    fm_synth_cif_row row = {.group = "HETATM",
                            .alternate = '.',
                            .auth_chain = cif->entry->auth_chain[0],
                            .insert_code = '?',
                            .occupancy = 100,
                            .temperature = 4200,
                            .model = 1};
    if (model->sulfate) {
        row.component = "SO4";
        row.label_chain = fm_synth_cif_label(chain++);
        row.entity = ++entity;
        row.auth_number = number++;
        for (uint32_t k = 0; k < N_SULFATE; k++) {
            row.name = names[k];
            row.element = k == 0 ? "S" : "O";
            row.at = fm_vec3_add(model->solvent[0], arms[k]);
            fm_synth_cif_put_atom(cif, &row);
        }
    }
    for (uint32_t i = 0; i < model->n_water; i++) {
        row.component = "HOH";
        row.name = row.element = "O";
        row.label_chain = fm_synth_cif_label(chain);
        row.entity = entity + 1;
        row.auth_number = number++;
        row.at = model->solvent[1 + i];
        fm_synth_cif_put_atom(cif, &row);
    }
}

static void put_atoms(fm_synth_cif *cif, uint64_t seed) {
    fm_synth_text_string(cif->text, atom_columns);
    for (uint32_t model = 1; model <= cif->model->n_model; model++) {
        fm_synth_draws spread =
            fm_synth_draws_of(seed, FM_SYNTH_DRAW_MODEL, cif->entry->index, model);
        bool is_ensemble = cif->model->n_model > 1;
        for (uint32_t slot = 0; slot < cif->entry->n_chain; slot++) {
            for (uint32_t i = 0; i < cif->model->chains[slot].n_res; i++) {
                if (cif->model->residues[slot][i].missing) continue;
                put_residue(cif, slot, i, model, is_ensemble ? &spread : NULL);
            }
        }
        fm_synth_cif_put_partner_atoms(cif, model);
    }
    put_solvent(cif);
    fm_synth_text_string(cif->text, "# \n");
}

fm_status fm_synth_mmcif(fm_arena *arena, const fm_synth_options *options,
                         const fm_synth_entry *entry, fm_bytes *ret_content, fm_error *reterr) {
    enum { LINE = 128, FIXED = 16384 };
    fm_synth_model model;
    fm_synth_partners partners = {0};
    fm_status status = fm_synth_model_make(arena, options, entry, &model, reterr);
    if (!status && entry->recipe) {
        status = fm_synth_partners_make(arena, options, entry, &model, &partners, reterr);
    }
    if (status) return status;
    size_t n_res = model.chains[0].n_res + model.chains[1].n_res;
    /* every atom of every model, twice for alternates, and per residue a line of entity_poly_seq
     * and its letters */
    size_t most = n_res * (2 * (FM_IDEAL_MAX_ATOMS + 1) * model.n_model * LINE + 48) +
                  (partners.n_atom * model.n_model + model.n_water + N_SULFATE) * LINE + FIXED;
    fm_synth_text text;
    status = fm_synth_text_begin(&text, arena, most, reterr);
    if (status) return status;
    fm_synth_cif cif = {.entry = entry, .model = &model, .partners = &partners, .text = &text};
    for (unsigned i = 0; i < sizeof cif.id; i++)
        cif.id[i] = (char)toupper((unsigned char)entry->id[i]);
    cif.n_entity = entry->same ? 1 : entry->n_chain;
    put_header(&cif);
    put_entities(&cif);
    put_polymers(&cif);
    put_components(&cif);
    put_label_chains(&cif);
    if (entry->recipe) fm_synth_cif_put_complex(&cif);
    put_atoms(&cif, options->seed);
    *ret_content = fm_synth_text_end(&text);
    return FM_OK;
}
