/* complexes_case.h: shared by the tests of complexes in a cache: a dataset of two entries with
 * alignments, and the components that they need. */
#ifndef FM_TESTS_COMPLEXES_CASE_H
#define FM_TESTS_COMPLEXES_CASE_H

#include "tests/cache/cache_case.h"

#define ATOMS                                                                                      \
    "loop_\n_chem_comp_atom.atom_id\n_chem_comp_atom.type_symbol\n_chem_comp_atom.charge\n"        \
    "_chem_comp_atom.pdbx_leaving_atom_flag\n"
#define BONDS                                                                                      \
    "loop_\n_chem_comp_bond.atom_id_1\n_chem_comp_bond.atom_id_2\n_chem_comp_bond.value_order\n"
#define BASE(name)                                                                                 \
    "data_" name "\n_chem_comp.id " name "\n_chem_comp.type 'RNA LINKING'\n"                       \
    "_chem_comp.one_letter_code " name "\n" ATOMS "P P 0 N\nC1' C 0 N\nO3' O 0 N\n" BONDS          \
    "P C1' SING\nC1' O3' SING\n"
static const char components_text[] =
    "data_GLY\n_chem_comp.id GLY\n_chem_comp.type 'PEPTIDE LINKING'\n"
    "_chem_comp.one_letter_code G\n" ATOMS "N N 0 N\nCA C 0 N\nC C 0 N\nO O 0 N\nOXT O 0 Y\n" BONDS
    "N CA SING\nCA C SING\nC O DOUB\nC OXT SING\n" BASE("A") BASE("C")
        BASE("U") "data_ZN\n_chem_comp.id ZN\n_chem_comp.type NON-POLYMER\n" ATOMS "ZN ZN 2 N\n";

/* An entry of glycines X, five nucleotides R and a zinc ion, in two copies. */
static inline void write_protein(const char *path, const char *date, float shift, int n_glycine) {
    static const char *const bases[] = {"A", "C", "U", "U", "A"};
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file,
            "data_T\n_exptl.method 'X-RAY DIFFRACTION'\n_refine.ls_d_res_high 1.50\n"
            "_pdbx_audit_revision_history.revision_date %s\n"
            "loop_\n_entity_poly.entity_id\n_entity_poly.type\n"
            "1 'polypeptide(L)'\n2 polyribonucleotide\n"
            "loop_\n_entity_poly_seq.entity_id\n_entity_poly_seq.num\n_entity_poly_seq.mon_id\n",
            date);
    for (int i = 1; i <= n_glycine; i++)
        fprintf(file, "1 %d GLY\n", i);
    for (int i = 1; i <= 5; i++)
        fprintf(file, "2 %d %s\n", i, bases[i - 1]);
    fprintf(file,
            "_pdbx_struct_assembly_gen.assembly_id 1\n_pdbx_struct_assembly_gen.oper_expression "
            "1,2\n_pdbx_struct_assembly_gen.asym_id_list A,B,C\nloop_\n_pdbx_struct_oper_list.id\n"
            "_pdbx_struct_oper_list.matrix[1][1]\n_pdbx_struct_oper_list.matrix[1][2]\n"
            "_pdbx_struct_oper_list.matrix[1][3]\n_pdbx_struct_oper_list.vector[1]\n"
            "_pdbx_struct_oper_list.matrix[2][1]\n_pdbx_struct_oper_list.matrix[2][2]\n"
            "_pdbx_struct_oper_list.matrix[2][3]\n_pdbx_struct_oper_list.vector[2]\n"
            "_pdbx_struct_oper_list.matrix[3][1]\n_pdbx_struct_oper_list.matrix[3][2]\n"
            "_pdbx_struct_oper_list.matrix[3][3]\n_pdbx_struct_oper_list.vector[3]\n"
            "1 1 0 0 0 0 1 0 0 0 0 1 0\n2 1 0 0 0 0 -1 0 6 0 0 -1 0\n"
            "loop_\n_atom_site.group_PDB\n_atom_site.id\n_atom_site.type_symbol\n"
            "_atom_site.label_atom_id\n_atom_site.label_alt_id\n_atom_site.label_comp_id\n"
            "_atom_site.label_asym_id\n_atom_site.label_entity_id\n_atom_site.label_seq_id\n"
            "_atom_site.pdbx_PDB_ins_code\n_atom_site.auth_asym_id\n_atom_site.auth_seq_id\n"
            "_atom_site.Cartn_x\n_atom_site.Cartn_y\n_atom_site.Cartn_z\n_atom_site.occupancy\n"
            "_atom_site.B_iso_or_equiv\n_atom_site.pdbx_PDB_model_num\n");
    int id = 0;
    static const char *const protein[] = {"N", "CA", "C", "O"}, *const rna[] = {"P", "C1'", "O3'"};
    for (int i = 1; i <= n_glycine; i++)
        for (int k = 0; k < 4; k++)
            fprintf(file, "ATOM %d %c %s . GLY A 1 %d ? X %d %.3f %.3f 0 1 %.2f 1\n", ++id,
                    protein[k][0], protein[k], i, i, (double)i * 3.8 + k * 1.3 + (double)shift,
                    k == 3 ? 1.2 : 0.0, 10.0 + i);
    for (int i = 1; i <= 5; i++)
        for (int k = 0; k < 3; k++)
            fprintf(file, "ATOM %d %c \"%s\" . %s B 2 %d ? R %d %.3f 4 %.3f 1 20 1\n", ++id,
                    rna[k][0], rna[k], bases[i - 1], i, i, (double)i * 5.0 + k * 1.5, k * 0.5);
    fprintf(file, "HETATM %d ZN ZN . ZN C 3 . ? X 101 8 2 2 1 30 1\n", ++id);
    fclose(file);
}

static inline void write_entry(const char *path, const char *date, float shift) {
    write_protein(path, date, shift, 6);
}

static inline void write_text(const char *folder, const char *name, const char *text) {
    char path[400];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

typedef struct complexes_case {
    cache_case base;
    fm_components components;
} complexes_case;

static inline fm_components parse_components(fm_arena *arena, const char *text) {
    fm_components components;
    fm_error error = {0};
    fm_status status = fm_components_parse((fm_bytes){(const uint8_t *)text, strlen(text)}, arena,
                                           &components, &error);
    if (status) fail_msg("%s", error.message);
    return components;
}

static inline void set_up(complexes_case *test) {
    cache_case *base = &test->base;
    char path[300];
    memset(test, 0, sizeof *test);
    fm_test_make_folder(base->folder, sizeof base->folder);
    snprintf(base->data, sizeof base->data, "%s/data", base->folder);
    snprintf(base->cache, sizeof base->cache, "%s/cache", base->folder);
    assert_int_equal(fm_arena_init(&base->arena, (size_t)4 << 30, &base->error), FM_OK);
    assert_int_equal(run_shell("mkdir -p %s/mmcifs %s/alignments/1abc_X %s/alignments/1abc_R",
                               base->data, base->data, base->data),
                     0);
    snprintf(path, sizeof path, "%s/mmcifs/1abc.cif", base->data);
    write_entry(path, "2011-07-13", 0);
    snprintf(path, sizeof path, "%s/mmcifs/pdb_00002xyz.cif", base->data);
    write_entry(path, "2020-01-02", 0.125f);
    write_text(base->data, "alignments/1abc_X/uniref90_hits.a3m", ">q\nGGGGGG\n>a\nGGaAG-G\n");
    write_text(base->data, "alignments/1abc_X/uniprot_hits.sto",
               "# STOCKHOLM 1.0\nq GGGGGG\ntr|A0A123|X_HUMAN/1-6 GGGGAG\n//\n");
    write_text(base->data, "alignments/1abc_R/rfam_hits.a3m", ">q\nACUUA\n>a\nACGU-\n");
    test->components = parse_components(&base->arena, components_text);
}

/* Writes 24 more entries of so many glycines, which differ in their coordinates. */
static inline void write_entries(const complexes_case *test, int n_glycine) {
    for (int i = 0; i < 24; i++) {
        char path[300];
        snprintf(path, sizeof path, "%s/mmcifs/%dk%c%c.cif", test->base.data, 5 + i % 2,
                 'a' + i % 5, 'a' + i / 5);
        write_protein(path, "2012-02-02", (float)i / 8, n_glycine);
    }
}

static inline void tear_down(complexes_case *test) {
    teardown_case(&test->base);
}

#endif
