/* complex_names.h: the names of a small complex, for tests. A peptide GLY-CYS (A) has the ligand
 * XYZ-XYZ (B) on its sulfur, two components of four atoms; beside them is an ion (C). The ligand's
 * component has a double bond and lost its atom O4 where it is bonded. */
#ifndef FM_TESTING_COMPLEX_NAMES_H
#define FM_TESTING_COMPLEX_NAMES_H

#include "proto/complex_atoms.h"

enum { FM_TEST_NAMES_ATOMS = 17 };

static const uint8_t fm_test_entity_kind[] = {FM_COMPLEX_PROTEIN, FM_COMPLEX_LIGAND,
                                              FM_COMPLEX_LIGAND};
static const char *const fm_test_entity_description[] = {"a peptide", "", "ion's \"name\""};
static const char *const fm_test_chain_id[] = {"A", "B", "C"};
static const int32_t fm_test_chain_entity[] = {0, 1, 2};
static const int32_t fm_test_residue_chain[] = {0, 0, 1, 1, 2};
static const int32_t fm_test_residue_number[] = {1, 2, 1, 2, 1};
static const int32_t fm_test_residue_component[] = {0, 1, 2, 2, 3};
static const uint8_t fm_test_residue_letter[] = {'G', 'C', '?', '?', '?'};
static const int32_t fm_test_atom_residue[] = {0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 4};
static const char *const fm_test_atom_name[] = {"N",   "CA", "C",  "O",  "N",  "CA",
                                                "C",   "O",  "SG", "C1", "C2", "N3",
                                                "C5'", "C1", "C2", "N3", "MG"};
static const uint8_t fm_test_atom_element[] = {7, 6, 6, 8, 7, 6, 6, 8, 16, 6, 6, 7, 6, 6, 6, 7, 12};
static const int8_t fm_test_atom_charge[] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 2};
static const int32_t fm_test_bond[] = {2, 4, 8, 9, 12, 13};
static const char *const fm_test_component_id[] = {"GLY", "CYS", "XYZ", "MG"};
static const char *const fm_test_component_type[] = {"PEPTIDE LINKING", "L-PEPTIDE LINKING",
                                                     "NON-POLYMER", ""};
static const char *const fm_test_component_description[] = {"GLYCINE", "CYSTEINE", "3'-XYZ", ""};
static const char *const fm_test_component_formula[] = {"C2 H5 N O2", "C3 H7 N O2 S", "", "Mg"};
static const float fm_test_component_weight[] = {75.067F, 121.158F, 0, 24.305F};
static const int32_t fm_test_component_atom_component[] = {0, 0, 0, 0, 0, 1, 1, 1, 1,
                                                           1, 1, 1, 2, 2, 2, 2, 3};
static const char *const fm_test_component_atom_name[] = {"N",  "CA", "C",  "O",   "OXT", "N",
                                                          "CA", "C",  "O",  "CB",  "SG",  "OXT",
                                                          "C1", "C2", "N3", "C5'", "MG"};
static const uint8_t fm_test_component_atom_element[] = {7, 6,  6, 8, 8, 7, 6, 6, 8,
                                                         6, 16, 8, 6, 6, 7, 6, 12};
static const int8_t fm_test_component_atom_charge[] = {0, 0, 0, 0, 0, 0, 0, 0, 0,
                                                       0, 0, 0, 0, 0, 1, 0, 2};
static const uint8_t fm_test_component_atom_is_aromatic[] = {0, 0, 0, 0, 0, 0, 0, 0, 0,
                                                             0, 0, 0, 1, 1, 0, 0, 0};
static const uint8_t fm_test_component_atom_is_leaving[] = {0, 0, 0, 0, 1, 0, 0, 0, 0,
                                                            0, 0, 1, 0, 0, 0, 0, 0};
static const int32_t fm_test_component_bond[] = {0, 1, 1, 2, 2,  3, 2,  4,  5,  6,  6,  7,  7,
                                                 8, 6, 9, 9, 10, 7, 11, 12, 13, 13, 14, 14, 15};
static const uint8_t fm_test_component_bond_order[] = {
    FM_BOND_SINGLE,          FM_BOND_SINGLE, FM_BOND_DOUBLE, FM_BOND_SINGLE, FM_BOND_SINGLE,
    FM_BOND_SINGLE,          FM_BOND_DOUBLE, FM_BOND_SINGLE, FM_BOND_SINGLE, FM_BOND_SINGLE,
    FM_BOND_AROMATIC_DOUBLE, FM_BOND_SINGLE, FM_BOND_TRIPLE};

/* The table; every array is constant. */
static inline fm_complex_atoms fm_test_complex_names(void) {
    return (fm_complex_atoms){
        .n_entity = 3,
        .entity_kind = fm_test_entity_kind,
        .entity_description = fm_test_entity_description,
        .n_chain = 3,
        .chain_id = fm_test_chain_id,
        .chain_entity = fm_test_chain_entity,
        .n_residue = 5,
        .residue_chain = fm_test_residue_chain,
        .residue_number = fm_test_residue_number,
        .residue_component = fm_test_residue_component,
        .residue_letter = fm_test_residue_letter,
        .n_atom = FM_TEST_NAMES_ATOMS,
        .atom_residue = fm_test_atom_residue,
        .atom_name = fm_test_atom_name,
        .atom_element = fm_test_atom_element,
        .atom_charge = fm_test_atom_charge,
        .n_bond = 3,
        .bond = fm_test_bond,
        .n_component = 4,
        .component_id = fm_test_component_id,
        .component_type = fm_test_component_type,
        .component_description = fm_test_component_description,
        .component_formula = fm_test_component_formula,
        .component_weight = fm_test_component_weight,
        .n_component_atom = 17,
        .component_atom_component = fm_test_component_atom_component,
        .component_atom_name = fm_test_component_atom_name,
        .component_atom_element = fm_test_component_atom_element,
        .component_atom_charge = fm_test_component_atom_charge,
        .component_atom_is_aromatic = fm_test_component_atom_is_aromatic,
        .component_atom_is_leaving = fm_test_component_atom_is_leaving,
        .n_component_bond = 13,
        .component_bond = fm_test_component_bond,
        .component_bond_order = fm_test_component_bond_order,
    };
}

#endif
