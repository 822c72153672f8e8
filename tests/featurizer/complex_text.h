/* complex_text.h: a small mmCIF entry with a dipeptide, a ligand bonded to it and an ion, and the
 * components that it needs, for tests to change. */
#ifndef FM_TESTS_COMPLEX_TEXT_H
#define FM_TESTS_COMPLEX_TEXT_H

#define COMPLEX_COMPONENT_ATOMS                                                                    \
    "loop_\n_chem_comp_atom.atom_id\n_chem_comp_atom.type_symbol\n_chem_comp_atom.charge\n"        \
    "_chem_comp_atom.pdbx_leaving_atom_flag\n"
#define COMPLEX_COMPONENT_BONDS                                                                    \
    "loop_\n_chem_comp_bond.atom_id_1\n_chem_comp_bond.atom_id_2\n_chem_comp_bond.value_order\n"

/* SUG stands for a sugar: O1 leaves when C1 is bonded. */
#define COMPLEX_COMPONENTS                                                                         \
    "data_GLY\n_chem_comp.id GLY\n_chem_comp.type 'PEPTIDE LINKING'\n"                             \
    "_chem_comp.one_letter_code G\n" COMPLEX_COMPONENT_ATOMS                                       \
    "N N 0 N\nCA C 0 N\nC C 0 N\nO O 0 N\nOXT O 0 Y\nHA2 H 0 N\n" COMPLEX_COMPONENT_BONDS          \
    "N CA SING\nCA C SING\nC O DOUB\nC OXT SING\nCA HA2 SING\n"                                    \
    "data_MET\n_chem_comp.id MET\n_chem_comp.type 'L-PEPTIDE LINKING'\n"                           \
    "_chem_comp.one_letter_code M\n" COMPLEX_COMPONENT_ATOMS                                       \
    "N N 0 N\nCA C 0 N\nC C 0 N\nO O 0 N\nCB C 0 N\nSD S 0 N\nOXT O 0 Y\n" COMPLEX_COMPONENT_BONDS \
    "N CA SING\nCA C SING\nC O DOUB\nC OXT SING\nCA CB SING\nCB SD SING\n"                         \
    "data_MSE\n_chem_comp.id MSE\n_chem_comp.type 'L-PEPTIDE LINKING'\n"                           \
    "_chem_comp.one_letter_code M\n" COMPLEX_COMPONENT_ATOMS                                       \
    "N N 0 N\nCA C 0 N\nC C 0 N\nO O 0 N\nCB C 0 N\nSE SE 0 N\nOXT O 0 "                           \
    "Y\n" COMPLEX_COMPONENT_BONDS                                                                  \
    "N CA SING\nCA C SING\nC O DOUB\nC OXT SING\nCA CB SING\nCB SE SING\n"                         \
    "data_SUG\n_chem_comp.id SUG\n_chem_comp.type SACCHARIDE\n" COMPLEX_COMPONENT_ATOMS            \
    "C1 C 0 N\nC2 C 0 N\nO1 O 0 Y\n" COMPLEX_COMPONENT_BONDS "C1 C2 SING\nC1 O1 SING\n"            \
    "data_GOL\n_chem_comp.id GOL\n_chem_comp.type NON-POLYMER\n" COMPLEX_COMPONENT_ATOMS           \
    "C1 C 0 N\nO1 O 0 N\n" COMPLEX_COMPONENT_BONDS "C1 O1 SING\n"                                  \
    "data_ZN\n_chem_comp.id ZN\n_chem_comp.type NON-POLYMER\n" COMPLEX_COMPONENT_ATOMS             \
    "ZN ZN 2 N\n"

#define COMPLEX_HEAD                                                                               \
    "data_T\n_exptl.method 'X-RAY DIFFRACTION'\n_refine.ls_d_res_high 1.50\n"                      \
    "_pdbx_audit_revision_history.revision_date 2011-07-13\n"
#define COMPLEX_POLY                                                                               \
    "_entity_poly.entity_id 1\n_entity_poly.type 'polypeptide(L)'\n"                               \
    "loop_\n_entity_poly_seq.entity_id\n_entity_poly_seq.num\n_entity_poly_seq.mon_id\n"           \
    "1 1 GLY\n1 2 MSE\n1 3 GLY\n"
#define COMPLEX_CONN                                                                               \
    "loop_\n_struct_conn.conn_type_id\n_struct_conn.ptnr1_label_asym_id\n"                         \
    "_struct_conn.ptnr1_label_seq_id\n_struct_conn.ptnr1_label_atom_id\n"                          \
    "_struct_conn.ptnr2_label_asym_id\n_struct_conn.ptnr2_label_seq_id\n"                          \
    "_struct_conn.ptnr2_label_atom_id\ncovale A 2 CB B ? C1\n"
#define COMPLEX_ASSEMBLY                                                                           \
    "_pdbx_struct_assembly.id 1\n_pdbx_struct_assembly.oligomeric_count 2\n"                       \
    "_pdbx_struct_assembly_gen.assembly_id 1\n_pdbx_struct_assembly_gen.oper_expression 1,2\n"     \
    "_pdbx_struct_assembly_gen.asym_id_list A,B,C,D,E\n"                                           \
    "loop_\n_pdbx_struct_oper_list.id\n_pdbx_struct_oper_list.matrix[1][1]\n"                      \
    "_pdbx_struct_oper_list.matrix[1][2]\n_pdbx_struct_oper_list.matrix[1][3]\n"                   \
    "_pdbx_struct_oper_list.vector[1]\n_pdbx_struct_oper_list.matrix[2][1]\n"                      \
    "_pdbx_struct_oper_list.matrix[2][2]\n_pdbx_struct_oper_list.matrix[2][3]\n"                   \
    "_pdbx_struct_oper_list.vector[2]\n_pdbx_struct_oper_list.matrix[3][1]\n"                      \
    "_pdbx_struct_oper_list.matrix[3][2]\n_pdbx_struct_oper_list.matrix[3][3]\n"                   \
    "_pdbx_struct_oper_list.vector[3]\n"                                                           \
    "1 1 0 0 0 0 1 0 0 0 0 1 0\n2 1 0 0 0 0 -1 0 6 0 0 -1 0\n"
#define COMPLEX_SITE                                                                               \
    "loop_\n_atom_site.type_symbol\n_atom_site.label_atom_id\n_atom_site.label_alt_id\n"           \
    "_atom_site.label_comp_id\n_atom_site.label_asym_id\n_atom_site.label_entity_id\n"             \
    "_atom_site.label_seq_id\n_atom_site.auth_asym_id\n_atom_site.auth_seq_id\n"                   \
    "_atom_site.Cartn_x\n_atom_site.Cartn_y\n_atom_site.Cartn_z\n_atom_site.occupancy\n"
/* Residue 3 has no atoms. SE has two places, of which B is taken. */
#define COMPLEX_CHAIN_A                                                                            \
    "N N . GLY A 1 1 X 11 0.0 0 0 1\nC CA . GLY A 1 1 X 11 1.4 0 0 1\n"                            \
    "C C . GLY A 1 1 X 11 2.8 0 0 1\nO O . GLY A 1 1 X 11 2.8 1.2 0 1\n"                           \
    "H HA2 . GLY A 1 1 X 11 1.4 1 0 1\n"                                                           \
    "N N . MSE A 1 2 X 12 4.1 0 0 1\nC CA . MSE A 1 2 X 12 5.5 0 0 1\n"                            \
    "C C . MSE A 1 2 X 12 6.9 0 0 1\nO O . MSE A 1 2 X 12 6.9 1.2 0 1\n"                           \
    "C CB . MSE A 1 2 X 12 5.5 0 1.5 1\n"                                                          \
    "SE SE A MSE A 1 2 X 12 5.5 0 3.3 0.4\nSE SE B MSE A 1 2 X 12 5.5 0.5 3.3 0.6\n"
#define COMPLEX_LIGANDS                                                                            \
    "C C1 . SUG B 2 . X 21 6.6 0.8 2.1 1\nC C2 . SUG B 2 . X 21 7.5 1.5 1.2 1\n"                   \
    "ZN ZN . ZN C 3 . X 22 0.0 3 1 1\n"                                                            \
    "C C1 . GOL D 4 . X 23 0.0 -3 1 1\n"                                                           \
    "O O . HOH E 5 . X 24 9 9 9 1\n"

#endif
