/* read.c: the stages by which an mmCIF file becomes an assembly; see read.h. */
#include "featurizer/complex/assemble.h"
#include "featurizer/parse/decimal.h"
#include "featurizer/parse/mmcif_util.h"

#include <math.h>

enum { ASSEMBLY_ID, ASSEMBLY_COUNT, MAX_POLYMERS = 1000 };

/* The reference needs the number of polymers that the file states for assembly 1. */
static fm_status check_assembly(fm_asym *asym) {
    const fm_cif_table *table = &asym->tables[ASYM_TABLE_ASSEMBLY];
    if (!asym->compat) return FM_OK;
    if (table->n_row == 0 || !fm_cif_table_has(table, ASSEMBLY_COUNT)) {
        return fm_asym_fail(asym, FM_ERR_NOT_FOUND, 0,
                            "the file has no _pdbx_struct_assembly.oligomeric_count");
    }
    for (uint32_t row = 0; row < table->n_row; row++) {
        if (!fm_cif_equals(&asym->cif, fm_cif_table_at(table, row, ASSEMBLY_ID), "1")) continue;
        fm_cif_view value = fm_cif_table_at(table, row, ASSEMBLY_COUNT);
        int32_t count = 0;
        bool is_count =
            fm_integer_parse(fm_cif_text(&asym->cif, value), fm_cif_size(value), &count);
        if (is_count && count > 0 && count <= MAX_POLYMERS) return FM_OK;
        return fm_asym_fail(asym, FM_ERR_DATA, value.start,
                            "oligomeric_count of assembly 1 is '%.*s', expected 1 to %d",
                            FM_ASYM_SHOW(asym, value), MAX_POLYMERS);
    }
    return fm_asym_fail(asym, FM_ERR_NOT_FOUND, fm_cif_table_at(table, 0, ASSEMBLY_ID).start,
                        "the file has no assembly 1");
}

/* -- bonds, names and alternatives */

/* The reference links polymers by the author's numbers, and again when it has chosen alternatives
 * and taken the dictionary's numbers. */
static fm_status read_like_reference(fm_asym *asym) {
    fm_status status = fm_asym_bond_residues(asym);
    if (!status) status = fm_asym_bond_struct_conn(asym);
    if (!status) status = fm_asym_bond_polymers(asym, true);
    if (!status) status = fm_asym_relabel(asym);
    if (!status) status = fm_asym_choose_alternatives(asym);
    return status ? status : fm_asym_bond_polymers(asym, false);
}

static fm_status read_by_label(fm_asym *asym) {
    fm_status status = fm_asym_relabel(asym);
    if (!status) status = fm_asym_bond_residues(asym);
    if (!status) status = fm_asym_bond_struct_conn(asym);
    if (!status) status = fm_asym_choose_alternatives(asym);
    return status ? status : fm_asym_bond_polymers(asym, true);
}

/* -- header */

static fm_status read_date(fm_asym *asym, char date[11]) {
    const fm_cif_table *table = &asym->tables[ASYM_TABLE_REVISION];
    memcpy(date, "9999-12-31", 11);
    if (table->n_row == 0) return FM_OK;
    fm_cif_view value = fm_cif_table_at(table, 0, 0);
    if (fm_cif_is_unset(&asym->cif, value)) return FM_OK;
    const uint8_t *text = fm_cif_text(&asym->cif, value);
    bool is_date = fm_cif_size(value) == 10;
    for (size_t i = 0; i < 10 && is_date; i++) {
        bool dash = i == 4 || i == 7;
        is_date = dash ? text[i] == '-' : text[i] >= '0' && text[i] <= '9';
    }
    if (!is_date) {
        return fm_asym_fail(asym, FM_ERR_FORMAT, value.start,
                            "the revision date is '%.*s', expected YYYY-MM-DD",
                            FM_ASYM_SHOW(asym, value));
    }
    memcpy(date, text, 10);
    return FM_OK;
}

static float read_resolution(const fm_asym *asym) {
    static const fm_asym_table tables[] = {ASYM_TABLE_REFINE, ASYM_TABLE_EM, ASYM_TABLE_REFLNS};
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        const fm_cif_table *table = &asym->tables[tables[i]];
        double value;
        if (table->n_row == 0) continue;
        fm_cif_view view = fm_cif_table_at(table, 0, 0);
        const uint8_t *text = fm_cif_text(&asym->cif, view);
        bool is_number = asym->compat ? fm_decimal_parse(text, fm_cif_size(view), false, &value)
                                      : fm_mmcif_number(&asym->cif, view, &value);
        if (is_number && value > 0 && isfinite((float)value)) return (float)value;
    }
    return -1;
}

static fm_status read_header(fm_asym *asym, fm_assembly *assembly) {
    const fm_cif_table *exptl = &asym->tables[ASYM_TABLE_EXPTL];
    size_t size = 1, at = 0;
    for (uint32_t row = 0; row < exptl->n_row; row++)
        size += fm_cif_size(fm_cif_table_at(exptl, row, 0)) + 1;
    char *method = fm_arena_alloc(asym->arena, size);
    if (!method) return fm_asym_full(asym);
    for (uint32_t row = 0; row < exptl->n_row; row++) {
        fm_cif_view value = fm_cif_table_at(exptl, row, 0);
        if (row > 0) method[at++] = ',';
        memcpy(method + at, fm_cif_text(&asym->cif, value), fm_cif_size(value));
        at += fm_cif_size(value);
    }
    method[at] = '\0';
    assembly->method = method;
    assembly->resolution = read_resolution(asym);
    return read_date(asym, assembly->release_date);
}

/* -- the whole file */

fm_status fm_assembly_read(fm_bytes text, const fm_components *components,
                           const fm_assembly_options *options, fm_arena *arena,
                           fm_assembly *ret_assembly, fm_error *reterr) {
    fm_asym *asym = fm_arena_calloc(arena, 1, sizeof *asym);
    if (!asym) return fm_arena_full(arena, reterr);
    asym->arena = arena;
    asym->reterr = reterr;
    asym->components = components;
    asym->compat = options->compat_protenix;
    asym->is_prediction = options->is_prediction;
    asym->has_numbered_ligands = options->has_numbered_ligands;
    fm_assembly assembly = {0};
    fm_copies copies;
    fm_status status = fm_asym_scan(asym, text);
    if (!status) status = check_assembly(asym);
    if (!status) status = read_header(asym, &assembly);
    if (!status) status = fm_asym_find_chains(asym);
    if (!status) status = asym->compat ? read_like_reference(asym) : read_by_label(asym);
    if (!status) status = fm_asym_filter_file(asym);
    if (!status) status = fm_asym_read_sequences(asym);
    if (!status) status = fm_asym_complete(asym);
    if (!status) status = fm_asym_filter_completed(asym);
    if (!status) status = fm_asym_drop_asymmetric(asym);
    if (!status) status = fm_copies_expand(asym, &copies);
    if (!status && !asym->is_prediction) status = fm_copies_drop_clashing(&copies);
    if (!status) status = fm_copies_sort(&copies);
    if (!status && !asym->is_prediction) status = fm_copies_limit(&copies);
    if (!status) status = fm_copies_fill(&copies, &assembly);
    if (!status) *ret_assembly = assembly;
    return status;
}
