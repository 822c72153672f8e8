/* mmcif_text.h: a small mmCIF entry in pieces, for tests to assemble and to break.
 *
 * A text may contain one '^' in front of the byte where an error is expected. It is removed before
 * parsing, and the error must report its line and column. */
#ifndef FM_TESTS_MMCIF_TEXT_H
#define FM_TESTS_MMCIF_TEXT_H

#include "featurizer/parse/mmcif.h"

#include <stdlib.h>
#include <string.h>

#define HEAD "data_T\n_entry.id T\n_exptl.method 'X-RAY Diffraction'\n"
#define DATES                                                                                      \
    "loop_\n_pdbx_audit_revision_history.ordinal\n_pdbx_audit_revision_history.revision_date\n"    \
    "1 2011-07-13\n2 1999-12-31\n"
#define COMPS                                                                                      \
    "loop_\n_chem_comp.id\n_chem_comp.type\nALA 'L-peptide linking'\nMSE 'L-peptide linking'\n"    \
    "ARG 'L-peptide linking'\nSER 'L-peptide linking'\nDA 'DNA linking'\nHOH non-polymer\n"
#define ASYMS "loop_\n_struct_asym.id\n_struct_asym.entity_id\nA 1\nW 2\n"
#define POLY "loop_\n_entity_poly_seq.entity_id\n_entity_poly_seq.num\n_entity_poly_seq.mon_id\n"
#define THREE POLY "1 1 ALA\n1 2 MSE\n1 3 ARG\n"
#define SITE                                                                                       \
    "loop_\n_atom_site.group_PDB\n_atom_site.id\n_atom_site.label_atom_id\n"                       \
    "_atom_site.label_alt_id\n_atom_site.label_comp_id\n_atom_site.label_asym_id\n"                \
    "_atom_site.label_seq_id\n_atom_site.pdbx_PDB_ins_code\n_atom_site.Cartn_x\n"                  \
    "_atom_site.Cartn_y\n_atom_site.Cartn_z\n_atom_site.occupancy\n_atom_site.B_iso_or_equiv\n"    \
    "_atom_site.auth_seq_id\n_atom_site.auth_asym_id\n_atom_site.pdbx_PDB_model_num\n"
#define ENTRY HEAD DATES COMPS ASYMS THREE SITE

/* A row of SITE in chain A, author chain X and model 1, with the label's numbers as author
 * numbers. */
#define ROW(group, name, alt, comp, seq, x, occupancy)                                             \
    group " 1 " name " " alt " " comp " A " seq " ? " x " 2.5 -3.5 " occupancy " 9.0 " seq " X "   \
          "1\n"
#define ATOM(name, comp, seq, x) ROW("ATOM", name, ".", comp, seq, x, "1.00")

/* Parses a text without its '^', whose place goes to *ret_line and *ret_column (0 when there is
 * none). The text is copied to memory of its exact size, so that a sanitizer sees reads past it. */
static inline fm_status mmcif_text_parse(fm_arena *arena, const char *text, bool compat,
                                         fm_mmcif *ret_mmcif, fm_error *reterr, uint64_t *ret_line,
                                         uint64_t *ret_column) {
    const fm_mmcif_options options = {.compat_openfold = compat};
    size_t size = strlen(text), mark = strcspn(text, "^");
    *ret_line = *ret_column = 0;
    uint8_t *copy = malloc(size ? size : 1);
    if (!copy) abort();
    memcpy(copy, text, mark);
    if (mark < size) {
        *ret_line = *ret_column = 1;
        for (size_t i = 0; i < mark; i++) {
            *ret_column = text[i] == '\n' ? 1 : *ret_column + 1;
            *ret_line += text[i] == '\n';
        }
        memcpy(copy + mark, text + mark + 1, size - mark - 1);
        size--;
    }
    fm_status status = fm_mmcif_parse((fm_bytes){copy, size}, &options, arena, ret_mmcif, reterr);
    free(copy);
    return status;
}

#endif
