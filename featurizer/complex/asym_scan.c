/* asym_scan.c: reads the tables of an mmCIF file and the atoms of its first model; see asym.h. */
#include "featurizer/complex/asym.h"

#include "featurizer/parse/decimal.h"
#include "featurizer/parse/mmcif_util.h"
#include "proto/chem/element.h"

#include <math.h>
#include <string.h>

static const fm_cif_table table_shapes[ASYM_N_TABLE] = {
    [ASYM_TABLE_ATOM] = {.prefix = "_atom_site.",
                         .columns = {"label_asym_id", "label_comp_id", "label_seq_id",
                                     "auth_asym_id", "auth_comp_id", "auth_seq_id",
                                     "pdbx_PDB_ins_code", "label_entity_id", "label_atom_id",
                                     "auth_atom_id", "label_alt_id", "type_symbol", "Cartn_x",
                                     "Cartn_y", "Cartn_z", "occupancy", "B_iso_or_equiv",
                                     "pdbx_PDB_model_num"}},
    [ASYM_TABLE_STRUCT_CONN] =
        {.prefix = "_struct_conn.",
         .columns =
             {"ptnr1_label_asym_id",     "ptnr1_label_comp_id",     "ptnr1_label_seq_id",
              "ptnr1_auth_asym_id",      "ptnr1_auth_comp_id",      "ptnr1_auth_seq_id",
              "pdbx_ptnr1_PDB_ins_code", "ptnr1_label_atom_id",     "pdbx_ptnr1_label_alt_id",
              "ptnr1_symmetry",          "ptnr2_label_asym_id",     "ptnr2_label_comp_id",
              "ptnr2_label_seq_id",      "ptnr2_auth_asym_id",      "ptnr2_auth_comp_id",
              "ptnr2_auth_seq_id",       "pdbx_ptnr2_PDB_ins_code", "ptnr2_label_atom_id",
              "pdbx_ptnr2_label_alt_id", "ptnr2_symmetry",          "conn_type_id"}},
    [ASYM_TABLE_ENTITY_POLY] = {.prefix = "_entity_poly.", .columns = {"entity_id", "type"}},
    [ASYM_TABLE_ENTITY_POLY_SEQ] = {.prefix = "_entity_poly_seq.",
                                    .columns = {"entity_id", "num", "mon_id"}},
    [ASYM_TABLE_STRUCT_ASYM] = {.prefix = "_struct_asym.", .columns = {"id", "entity_id"}},
    [ASYM_TABLE_ASSEMBLY] = {.prefix = "_pdbx_struct_assembly.",
                             .columns = {"id", "oligomeric_count"}},
    [ASYM_TABLE_ASSEMBLY_GEN] = {.prefix = "_pdbx_struct_assembly_gen.",
                                 .columns = {"assembly_id", "oper_expression", "asym_id_list"}},
    [ASYM_TABLE_OPERATION] = {.prefix = "_pdbx_struct_oper_list.",
                              .columns = {"id", "matrix[1][1]", "matrix[1][2]", "matrix[1][3]",
                                          "vector[1]", "matrix[2][1]", "matrix[2][2]",
                                          "matrix[2][3]", "vector[2]", "matrix[3][1]",
                                          "matrix[3][2]", "matrix[3][3]", "vector[3]"}},
    [ASYM_TABLE_REVISION] = {.prefix = "_pdbx_audit_revision_history.",
                             .columns = {"revision_date"}},
    [ASYM_TABLE_REFINE] = {.prefix = "_refine.", .columns = {"ls_d_res_high"}},
    [ASYM_TABLE_EM] = {.prefix = "_em_3d_reconstruction.", .columns = {"resolution"}},
    [ASYM_TABLE_REFLNS] = {.prefix = "_reflns.", .columns = {"d_resolution_high"}},
    [ASYM_TABLE_EXPTL] = {.prefix = "_exptl.", .columns = {"method"}},
};

/* -- values of a row */

static fm_cif_view at_of(const fm_cif_row *row, const uint32_t *at, uint32_t column) {
    return fm_cif_row_at(row, at[column]);
}

static bool is_given(const fm_asym *asym, fm_cif_view view) {
    return fm_cif_size(view) > 0 && !fm_cif_is_unset(&asym->cif, view);
}

bool fm_asym_pack(const fm_asym *asym, fm_cif_view view, uint32_t *ret_packed) {
    *ret_packed = 0;
    if (!is_given(asym, view)) return true;
    if (fm_cif_size(view) > 4) return false;
    const uint8_t *text = fm_cif_text(&asym->cif, view);
    for (uint32_t i = 0; i < fm_cif_size(view); i++)
        *ret_packed |= (uint32_t)text[i] << (24 - 8 * i);
    return true;
}

static fm_status read_name(fm_asym *asym, fm_cif_view view, const char *what, char name[8]) {
    size_t size = fm_cif_size(view);
    if (size == 0 || size > 7) {
        return fm_asym_fail(asym, size ? FM_ERR_LIMIT : FM_ERR_DATA, view.start,
                            "found '%.*s', expected %s of 1 to 7 letters", FM_ASYM_SHOW(asym, view),
                            what);
    }
    memset(name, 0, 8);
    memcpy(name, fm_cif_text(&asym->cif, view), size);
    return FM_OK;
}

static fm_status read_number(fm_asym *asym, fm_cif_view value, uint32_t column, double *ret_value) {
    if (fm_mmcif_number(&asym->cif, value, ret_value)) return FM_OK;
    return fm_asym_fail(asym, FM_ERR_FORMAT, value.start,
                        "_atom_site.%s is '%.*s', expected a number",
                        table_shapes[ASYM_TABLE_ATOM].columns[column], FM_ASYM_SHOW(asym, value));
}

/* Numbers that many programs leave out; `absent` stands for them. */
static fm_status read_optional(fm_asym *asym, fm_cif_view value, uint32_t column, float absent,
                               float *ret_value) {
    double number = absent;
    fm_status status = FM_OK;
    if (is_given(asym, value)) status = read_number(asym, value, column, &number);
    if (!status && !isfinite((float)number)) {
        status = fm_asym_fail(
            asym, FM_ERR_FORMAT, value.start, "_atom_site.%s is '%.*s', expected a finite number",
            table_shapes[ASYM_TABLE_ATOM].columns[column], FM_ASYM_SHOW(asym, value));
    }
    if (!status) *ret_value = (float)number;
    return status;
}

static fm_status read_position(fm_asym *asym, const fm_cif_row *row, const uint32_t *at,
                               fm_asym_atom *atom) {
    for (uint32_t axis = 0; axis < 3; axis++) {
        fm_cif_view value = at_of(row, at, ASYM_ATOM_X + axis);
        double number;
        fm_status status = read_number(asym, value, ASYM_ATOM_X + axis, &number);
        if (status) return status;
        if (!(fabs(number) < 1e6)) {
            return fm_asym_fail(asym, FM_ERR_LIMIT, value.start,
                                "_atom_site.%s is %g, expected less than 10^6 Å from the origin",
                                table_shapes[ASYM_TABLE_ATOM].columns[ASYM_ATOM_X + axis], number);
        }
        atom->position[axis] = (float)number;
    }
    return FM_OK;
}

/* -- rows of _atom_site */

static fm_status grow(fm_asym *asym, void **items, uint32_t n, uint32_t *max, size_t size) {
    if (n < *max) return FM_OK;
    uint32_t more = *max ? *max * 2 : 4096;
    void *copy = fm_arena_alloc_array(asym->arena, more, size);
    if (!copy) return fm_asym_full(asym);
    if (n) memcpy(copy, *items, n * size);
    *items = copy;
    *max = more;
    return FM_OK;
}

static bool is_same_residue(const fm_asym *asym, const fm_cif_row *row, const uint32_t *at,
                            const fm_asym_residue *residue) {
    for (uint32_t i = 0; i < ASYM_N_KEY; i++) {
        fm_cif_view view = at_of(row, at, i);
        uint32_t size = view.end - view.start;
        if (size != residue->key[i].end - residue->key[i].start) return false;
        const uint8_t *a = asym->cif.data + view.start, *b = asym->cif.data + residue->key[i].start;
        for (uint32_t k = 0; k < size; k++) {
            if (a[k] != b[k]) return false;
        }
    }
    return true;
}

/* Author names win in the reference's reading. */
static fm_cif_view pick(const fm_asym *asym, fm_cif_view label, fm_cif_view author) {
    return asym->compat && fm_cif_size(author) ? author : label;
}

static fm_status open_residue(fm_asym *asym, const fm_cif_row *row, const uint32_t *at) {
    fm_status status = grow(asym, (void **)&asym->residues, asym->n_residue, &asym->max_residue,
                            sizeof *asym->residues);
    if (status) return status;
    fm_asym_residue *residue = &asym->residues[asym->n_residue];
    *residue = (fm_asym_residue){.first_atom = asym->n_atom};
    for (uint32_t i = 0; i < ASYM_N_KEY; i++)
        residue->key[i] = at_of(row, at, i);
    fm_cif_view name =
        pick(asym, residue->key[ASYM_KEY_LABEL_COMP], residue->key[ASYM_KEY_AUTH_COMP]);
    status = read_name(asym, name, "a component", residue->name);
    if (status) return status;
    if (!fm_asym_pack(asym, residue->key[ASYM_KEY_INSERTION], &residue->insertion)) {
        return fm_asym_fail(asym, FM_ERR_LIMIT, residue->key[ASYM_KEY_INSERTION].start,
                            "an insertion code has more than 4 letters");
    }
    residue->component = fm_components_find(asym->components, residue->name);
    asym->n_residue++;
    return FM_OK;
}

static bool is_water(const fm_asym *asym, fm_cif_view name) {
    if (fm_cif_size(name) != 3) return false;
    const uint8_t *text = fm_cif_text(&asym->cif, name);
    return memcmp(text, "HOH", 3) == 0 || memcmp(text, "DOD", 3) == 0;
}

static fm_status read_atom(fm_asym *asym, const fm_cif_row *row, const uint32_t *at) {
    fm_status status =
        grow(asym, (void **)&asym->atoms, asym->n_atom, &asym->max_atom, sizeof *asym->atoms);
    if (status) return status;
    fm_asym_atom *atom = &asym->atoms[asym->n_atom];
    fm_cif_view label = at_of(row, at, ASYM_ATOM_LABEL_NAME),
                symbol = at_of(row, at, ASYM_ATOM_ELEMENT);
    /* Bonds and frames take the square of a residue's atoms. */
    if (asym->n_atom - asym->residues[asym->n_residue - 1].first_atom >= FM_LIMIT_COMPONENT_ATOM) {
        return fm_asym_fail(asym, FM_ERR_LIMIT, label.start, "the residue has more than %u atoms",
                            FM_LIMIT_COMPONENT_ATOM);
    }
    *atom = (fm_asym_atom){.residue = asym->n_residue - 1, .at = label.start, .is_resolved = true};
    status = read_name(asym, label, "an atom's name", atom->label_name);
    if (!status) {
        status = read_name(asym, pick(asym, label, at_of(row, at, ASYM_ATOM_AUTH_NAME)),
                           "an atom's name", atom->name);
    }
    if (!status && !fm_asym_pack(asym, at_of(row, at, ASYM_ATOM_ALT), &atom->alt)) {
        status = fm_asym_fail(asym, FM_ERR_LIMIT, at_of(row, at, ASYM_ATOM_ALT).start,
                              "label_alt_id has more than 4 letters");
    }
    atom->element = fm_element_from_symbol(fm_cif_text(&asym->cif, symbol), fm_cif_size(symbol));
    if (!status && atom->element == FM_ELEMENT_NONE) {
        status = fm_asym_fail(asym, FM_ERR_DATA, symbol.start,
                              "found '%.*s', expected the symbol of an element",
                              FM_ASYM_SHOW(asym, symbol));
    }
    if (!status) status = read_position(asym, row, at, atom);
    if (!status) {
        status = read_optional(asym, at_of(row, at, ASYM_ATOM_OCCUPANCY), ASYM_ATOM_OCCUPANCY, 1,
                               &atom->occupancy);
    }
    fm_cif_view b_factor = at_of(row, at, ASYM_ATOM_B);
    if (!status) status = read_optional(asym, b_factor, ASYM_ATOM_B, 0, &atom->b_factor);
    if (!status) asym->n_atom++;
    return status;
}

/* Columns without which there is no reading. */
static fm_status check_columns(fm_asym *asym, const fm_cif_row *row, const uint32_t *at) {
    static const uint8_t needed[] = {ASYM_KEY_LABEL_ASYM,  ASYM_KEY_LABEL_COMP, ASYM_KEY_LABEL_SEQ,
                                     ASYM_ATOM_LABEL_NAME, ASYM_ATOM_ELEMENT,   ASYM_ATOM_X,
                                     ASYM_ATOM_Y,          ASYM_ATOM_Z};
    for (size_t i = 0; i < sizeof needed; i++) {
        if (at[needed[i]] != FM_CIF_ABSENT) continue;
        return fm_asym_fail(asym, FM_ERR_DATA, row->start[0], "the file has no _atom_site.%s",
                            table_shapes[ASYM_TABLE_ATOM].columns[needed[i]]);
    }
    return FM_OK;
}

static fm_status take_atom_row(void *context, const fm_cif_row *row, const uint32_t *at,
                               fm_error *reterr) {
    fm_asym *asym = context;
    (void)reterr; /* the model's is the same */
    if (asym->n_row == 0) {
        fm_status status = check_columns(asym, row, at);
        if (status) return status;
        asym->first_model = at_of(row, at, ASYM_ATOM_MODEL);
        asym->n_atom = asym->n_residue = 0;
    }
    if (asym->n_row++ >= FM_LIMIT_N_COMPLEX_ROW) {
        return fm_asym_fail(asym, FM_ERR_LIMIT, row->start[0],
                            "the file has more than %u rows of _atom_site", FM_LIMIT_N_COMPLEX_ROW);
    }
    fm_cif_view number = at_of(row, at, ASYM_ATOM_MODEL);
    if (!fm_mmcif_same(&asym->cif, asym->first_model, number)) return FM_OK;
    if (is_water(asym, pick(asym, at_of(row, at, ASYM_KEY_LABEL_COMP),
                            at_of(row, at, ASYM_KEY_AUTH_COMP)))) {
        return FM_OK;
    }
    if (asym->n_residue == 0 ||
        !is_same_residue(asym, row, at, &asym->residues[asym->n_residue - 1])) {
        fm_status status = open_residue(asym, row, at);
        if (status) return status;
    }
    return read_atom(asym, row, at);
}

fm_status fm_asym_scan(fm_asym *asym, fm_bytes text) {
    memcpy(asym->tables, table_shapes, sizeof table_shapes);
    asym->tables[ASYM_TABLE_ATOM].take_row = take_atom_row;
    asym->tables[ASYM_TABLE_ATOM].context = asym;
    fm_status status = fm_cif_init(&asym->cif, text, false, asym->reterr);
    if (!status) {
        status =
            fm_cif_tables_read(&asym->cif, asym->tables, ASYM_N_TABLE, asym->arena, asym->reterr);
    }
    if (!status && asym->n_atom == 0) {
        status = fm_fail(asym->reterr, FM_ERR_NOT_FOUND,
                         "the file has no atoms but those of water, expected a structure");
    }
    return status;
}
