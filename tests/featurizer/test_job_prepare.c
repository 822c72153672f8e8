/* test_job_prepare.c: what a job becomes: atoms that leave, bonds, tokens, alignments, components
 * of the user and what cannot be prepared. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "featurizer/complex/sequence_rows.h"
#include "featurizer/job/molfile.h"
#include "tests/featurizer/job_case.h"

static job_case test;
static char names[256];

static int set_up(void **state) {
    (void)state;
    job_case_init(&test);
    return 0;
}
static int tear_down(void **state) {
    (void)state;
    fm_arena_fini(&test.arena);
    return 0;
}

static void must_prepare(const char *text, bool compat, const char *const *files) {
    fm_status status = job_case_prepare(&test, "x.yaml", text, compat, files);
    if (status) fprintf(stderr, "%s\n", test.message);
    assert_int_equal(status, FM_OK);
}

#define ATOMS(residue) job_case_atoms(&test, residue, names)

static void atoms_leave_with_bonds(void **state) {
    (void)state;
    must_prepare("sequences:\n  - protein: {id: A, sequence: GMG}\n  - ligand: {id: B, ccd: SUG}\n"
                 "  - ligand: {id: C, ccd: SUG}\n  - dna: {id: D, sequence: AA}\n"
                 "constraints:\n  - bond: {atom1: [A, 2, CB], atom2: [B, 1, C1]}\n",
                 false, NULL);
    assert_string_equal(ATOMS(0), "N CA C O");
    assert_string_equal(ATOMS(2), "N CA C O OXT");
    assert_string_equal(ATOMS(3), "C1 C2");    /* bonded */
    assert_string_equal(ATOMS(4), "C1 C2 O1"); /* free */
    assert_string_equal(ATOMS(5), "OP3 P OP1 C1' O3' C4");
    assert_string_equal(ATOMS(6), "P OP1 C1' O3' C4");
    assert_true(job_case_bonded(&test, 0, "C", 1, "N"));
    assert_true(job_case_bonded(&test, 1, "CB", 3, "C1"));
    assert_true(job_case_bonded(&test, 5, "O3'", 6, "P"));
    const fm_assembly *a = &test.prepared->assembly;
    assert_int_equal(a->n_token, 3 + 2 + 3 + 2);
    assert_int_equal(a->chains[3].molecule, FM_MOLECULE_DNA);
    assert_int_equal(a->chains[2].sym_id, 0);
    assert_int_equal(a->chains[2].entity_id, 2);
}

static void caps_are_bonded(void **state) {
    (void)state;
    static const char text[] =
        "sequences:\n  - protein:\n      id: A\n      sequence: XGX\n      modifications:\n"
        "        - {position: 1, ccd: ACE}\n        - {position: 3, ccd: NME}\n";
    must_prepare(text, false, NULL);
    assert_string_equal(ATOMS(1), "N CA C O");
    assert_true(job_case_bonded(&test, 0, "C", 1, "N"));
    assert_true(job_case_bonded(&test, 1, "C", 2, "N"));
    assert_int_equal(test.prepared->assembly.n_token, 3 + 1 + 2);
    const fm_complex_atoms *words = &test.prepared->names;
    assert_string_equal(words->component_type[words->residue_component[0]], "NON-POLYMER");
    must_prepare(text, true, NULL);
    assert_string_equal(ATOMS(1), "N CA C O OXT");
}

static void selenomethionine_is_methionine(void **state) {
    (void)state;
    must_prepare("sequences:\n  - protein: {id: A, sequence: GMG, modifications: [{position: 2, "
                 "ccd: MSE}]}\n",
                 false, NULL);
    const fm_assembly *a = &test.prepared->assembly;
    assert_string_equal(a->residues[1].name, "MET");
    assert_string_equal(a->residues[1].component->id, "MSE");
    assert_string_equal(ATOMS(1), "N CA C O CB SD");
    assert_int_equal(a->atoms[9].element, 16);
    assert_int_equal(a->n_token, 3);
    assert_int_equal(test.prepared->names.residue_letter[1], 'M');
    assert_string_equal(
        test.prepared->names.component_id[test.prepared->names.residue_component[1]], "MET");
}

static void entities_rank_as_text(void **state) {
    (void)state;
    char text[1024] = "sequences:\n";
    for (int i = 0; i < 11; i++) {
        char row[64];
        snprintf(row, sizeof row, "  - ligand: {id: C%d, ccd: ZN}\n", i);
        strcat(text, row);
    }
    must_prepare(text, false, NULL);
    const fm_assembly *a = &test.prepared->assembly;
    assert_int_equal(a->chains[9].entity_id, 1); /* entity 10 comes before entity 2 */
    assert_int_equal(a->chains[1].entity_id, 3);
}

static void alignments_are_read(void **state) {
    (void)state;
    static const char *const files[] = {"m.a3m", ">q\nGMGMG\n>a\nGMGM-\n>b\nGMGM-\n", NULL};
    must_prepare("sequences:\n  - protein: {id: A, sequence: GMGMG, msa: m.a3m}\n", false, files);
    const fm_array *msa = job_case_array(&test, "features/msa");
    assert_int_equal(msa->shape[0], 3); /* the query twice, and one of two equal rows */
    assert_int_equal(msa->shape[1], 5);
    assert_int_equal(((const uint8_t *)msa->data)[14], 31);
}

/* The arrays of MSA and templates of two prepared jobs are equal. */
static void expect_same_arrays(const fm_prepared_job *a, const fm_prepared_job *b,
                               const char *prefix) {
    size_t n = 0;
    assert_int_equal(a->n_array, b->n_array);
    for (size_t i = 0; i < a->n_array; i++) {
        const fm_array *x = &a->arrays[i], *y = &b->arrays[i];
        if (strncmp(x->key, prefix, strlen(prefix)) != 0) continue;
        size_t bytes = fm_npz_item_bytes(x->dtype);
        for (size_t k = 0; k < x->rank; k++) {
            assert_int_equal(x->shape[k], y->shape[k]);
            bytes *= x->shape[k];
        }
        assert_string_equal(x->key, y->key);
        if (bytes && memcmp(x->data, y->data, bytes) != 0) fail_msg("%s differs", x->key);
        n++;
    }
    assert_true(n > 0);
}

/* Prepares a job beside the one in hand, which is kept in *ret_before. */
static void prepare_another(const char *name, const char *text, const char *const *files,
                            fm_prepared_job **ret_before) {
    *ret_before = test.prepared;
    test.prepared = fm_arena_alloc(&test.arena, sizeof *test.prepared);
    assert_non_null(test.prepared);
    fm_status status = job_case_prepare(&test, name, text, false, files);
    if (status) fprintf(stderr, "%s\n", test.message);
    assert_int_equal(status, FM_OK);
}

#define PROTEIN(id, letters, rest)                                                                 \
    "{\"protein\":{\"id\":\"" id "\",\"sequence\":\"" letters "\"" rest "}}"
#define AF3_JOB(sequences)                                                                         \
    "{\"name\":\"n\",\"modelSeeds\":[1],\"dialect\":\"alphafold3\",\"version\":4,\"sequences\":"   \
    "[" sequences "]}"

/* Keys pair rows as species of names do, and rows without a key follow. */
static void tables_of_keys_are_alignments(void **state) {
    (void)state;
    static const char *const files[] = {
        "a.csv", "key,sequence\n0,GMGMG\n7,GMGMM\n-1,MMMMM\n\n9,GaMGGG\n,MMMM-\n", /* */
        "b.csv", "sequence,key\r\nMMGMM,0\r\nMMGMG,9\r\nGGGGG,-1\r\n", NULL};
    fm_prepared_job *keyed;
    must_prepare("sequences:\n  - protein: {id: A, sequence: GMGMG, msa: a.csv}\n"
                 "  - protein: {id: B, sequence: MMGMM, msa: b.csv}\n",
                 false, files);
    prepare_another(
        "x.json",
        AF3_JOB(
            PROTEIN("A", "GMGMG",
                    ",\"pairedMsa\":\">q\\nGMGMG\\n>UniRef100_x_7/\\nGMGMM\\n"
                    ">UniRef100_x_9/\\nGaMGGG\\n\",\"unpairedMsa\":\">q\\nGMGMG\\n"
                    ">a\\nMMMMM\\n>b\\nMMMM-\\n\"") "," PROTEIN("B", "MMGMM",
                                                                ",\"pairedMsa\":\">q\\nMMGMM\\n>"
                                                                "UniRef100_y_9/\\nMMGMG\\n\","
                                                                "\"unpairedMsa\":\">q\\nMMGMM\\n>"
                                                                "a\\nGGGGG\\n\"")),
        NULL, &keyed);
    expect_same_arrays(keyed, test.prepared, "features/msa");
    expect_same_arrays(keyed, test.prepared, "features/deletion");
    const fm_array *msa = job_case_array(&test, "features/msa");
    const uint8_t *ids = msa->data;
    assert_int_equal(msa->shape[1], 10);
    /* The second row has the two rows of key 9. */
    assert_int_equal(ids[10 + 2], fm_class_of_letter('G', FM_POLYMER_PEPTIDE_L));
    assert_int_equal(ids[10 + 9], fm_class_of_letter('G', FM_POLYMER_PEPTIDE_L));
}

static void bad_tables_are_refused(void **state) {
    (void)state;
    static const char *const rows[][2] = {
        {"", "a.csv:1:1: found nothing, expected the columns key and sequence"},
        {"id,sequence\n", "a.csv:1:1: found other columns, expected key and sequence"},
        {"key,sequence\n", "a.csv: found no rows, expected the chain's sequence"},
        {"key,sequence\nGMGMG\n", "a.csv:2:1: found one column, expected a key and a sequence"},
        {"key,sequence\n1,GMGMG,x\n", "a.csv:2:2: found more than two columns"},
        {"key,sequence\n1,\"GMGMG\"\n", "a.csv:2:3: found a quote"},
        {"key,sequence\n1,\n", "a.csv:2:3: found no sequence, expected letters"},
        {"key,sequence\na_b,GMGMG\n", "a.csv:2:1: found a key with other characters"},
        {"key,sequence\n1,GMGMG\n3,GMGMG\n2, GMG\n", "a.csv:4:4: "},
        {"key,sequence\n1,GMGMG\n,GMGMGG\n", "a.csv:3:"},
        {"key,sequence\n1,MMGMG\n", "a.csv:2:3: the alignment's query has M at residue 1"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *const files[] = {"a.csv", rows[i][0], NULL};
        fm_status status = job_case_prepare(
            &test, "x.yaml", "sequences:\n  - protein: {id: A, sequence: GMGMG, msa: a.csv}\n",
            false, files);
        if (!status) fail_msg("accepted: %s", rows[i][0]);
        if (!strstr(test.message, rows[i][1])) {
            fail_msg("found '%s', expected '%s'", test.message, rows[i][1]);
        }
    }
}

/* -- templates */

/* Writes a structure of one atom a residue for each chain: CA at (i % 3, i, 1) for residue i. */
static const char *write_structure(bool is_pdb, const char *const *chains, size_t n_chain) {
    static char text[8192];
    size_t n = 0, atom = 0;
#define PUT(...) n += (size_t)snprintf(text + n, sizeof text - n, __VA_ARGS__)
    if (!is_pdb) {
        PUT("data_t\nloop_\n_entity_poly.entity_id\n_entity_poly.type\n");
        for (size_t k = 0; k < n_chain; k++)
            PUT("%zu polypeptide(L)\n", k + 1);
        PUT("loop_\n_struct_asym.id\n_struct_asym.entity_id\n");
        for (size_t k = 0; k < n_chain; k++)
            PUT("%c %zu\n", (char)('A' + k), k + 1);
        PUT("loop_\n_entity_poly_seq.entity_id\n_entity_poly_seq.num\n_entity_poly_seq.mon_id\n");
        for (size_t k = 0; k < n_chain; k++)
            for (size_t i = 0; chains[k][i]; i++)
                PUT("%zu %zu %s\n", k + 1, i + 1, chains[k][i] == 'G' ? "GLY" : "MET");
        PUT("loop_\n_atom_site.group_PDB\n_atom_site.type_symbol\n_atom_site.label_atom_id\n"
            "_atom_site.label_alt_id\n_atom_site.label_comp_id\n_atom_site.label_asym_id\n"
            "_atom_site.label_entity_id\n_atom_site.label_seq_id\n_atom_site.Cartn_x\n"
            "_atom_site.Cartn_y\n_atom_site.Cartn_z\n_atom_site.occupancy\n"
            "_atom_site.auth_asym_id\n_atom_site.pdbx_PDB_model_num\n");
    }
    for (size_t k = 0; k < n_chain; k++)
        for (size_t i = 0; chains[k][i]; i++) {
            const char *name = chains[k][i] == 'G' ? "GLY" : "MET";
            const char author = (char)('X' + k);
            if (is_pdb) {
                PUT("ATOM  %5zu  CA  %s %c%4zu    %8.3f%8.3f%8.3f  1.00 90.00           C\n",
                    ++atom, name, author, i + 1, (double)(i % 3), (double)i, 1.0);
            } else {
                PUT("ATOM C CA . %s %c %zu %zu %zu %zu 1 1.00 %c 1\n", name, (char)('A' + k), k + 1,
                    i + 1, i % 3, i, author);
            }
        }
#undef PUT
    assert_true(n < sizeof text);
    return text;
}

static void expect_warning(const char *words) {
    uint32_t i = 0;
    while (i < test.warnings.n && !strstr(test.warnings.texts[i], words))
        i++;
    if (i == test.warnings.n) fail_msg("no warning: %s", words);
}

#define BOLTZ_TEMPLATE(rest)                                                                       \
    "sequences:\n  - protein: {id: [A, B], sequence: GMMGMGGM, msa: empty}\ntemplates:\n  - "      \
    "{" rest "}\n"

/* Boltz' templates have no index maps. An alignment gives the one that AlphaFold 3's JSON says. */
static void templates_are_aligned(void **state) {
    (void)state;
    static const char *const chains[] = {"MMMMMMM", "MMGMGG"};
    static const char *const forms[] = {"cif: t", "cif: t, chain_id: B, template_id: Y",
                                        "cif: t, chain_id: [A, B], template_id: [B, B]", "pdb: t",
                                        "pdb: t, chain_id: [A], template_id: [Y]"};
    const char *files[] = {"t", write_structure(false, chains + 1, 1), NULL};
    fm_prepared_job *mapped;
    assert_int_equal(
        job_case_prepare(
            &test, "x.json",
            "{\"name\":\"n\",\"modelSeeds\":[1],\"dialect\":\"alphafold3\",\"version\":4,"
            "\"sequences\":[{\"protein\":{\"id\":[\"A\",\"B\"],\"sequence\":\"GMMGMGGM\","
            "\"unpairedMsa\":\"\",\"pairedMsa\":\"\",\"templates\":[{\"mmcifPath\":\"t\","
            "\"queryIndices\":[1,2,3,4,5,6],\"templateIndices\":[0,1,2,3,4,5]}]}}]}",
            false, files),
        FM_OK);
    fm_prepared_job *wanted = test.prepared;
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        char text[512];
        snprintf(text, sizeof text, BOLTZ_TEMPLATE("%s"), forms[i]);
        files[1] = write_structure(strstr(forms[i], "pdb") != NULL, chains, 2);
        prepare_another("x.yaml", text, files, &mapped);
        assert_int_equal(test.jobs.jobs[0].entities[0].n_template, 1);
        expect_same_arrays(wanted, test.prepared, "features/template");
        expect_warning("chain Y of the template has 6 of the 8 letters of chain A");
    }
}

static void far_bonds_are_token_bonds(void **state) {
    (void)state;
    must_prepare("sequences:\n  - protein: {id: A, sequence: GMGMG}\nconstraints:\n"
                 "  - bond: {atom1: [A, 2, SD], atom2: [A, 4, SD]}\n",
                 false, NULL);
    const fm_array *pairs = job_case_array(&test, "features/token_bonds_pairs");
    assert_int_equal(pairs->shape[0], 1);
    assert_int_equal(((const int32_t *)pairs->data)[0], 1);
    assert_int_equal(((const int32_t *)pairs->data)[1], 3);
    assert_int_equal(test.warnings.n, 3); /* and two components without coordinates */
    assert_non_null(strstr(test.warnings.texts[2], "a bond between two residues of polymers"));
}

#define MOLFILE_HEAD "name\n  prog              3D\n\n"
#define MOLFILE                                                                                    \
    MOLFILE_HEAD "  4  3  0  0  0  0  0  0  0  0999 V2000\n"                                       \
                 "    0.0000    0.0000    0.0000 C   0  0  0\n"                                    \
                 "    1.5000    0.0000    0.0000 O   0  0  0\n"                                    \
                 "    0.0000    1.5000    0.0000 N   0  3  0\n"                                    \
                 "    0.0000    0.0000    1.0000 H   0  0  0\n"                                    \
                 "  1  2  2  0\n  1  3  1  0\n  1  4  1  0\n"                                      \
                 "M  CHG  1   2  -1\nM  END\n$$$$\n"

/* -- the job as AlphaFold 3's JSON */

/* Prepares what the job in hand wrote of itself, and compares all arrays but those that name the
 * format. */
static void expect_itself_again(void) {
    static const char *const others[] = {"job/format", "job/warnings", "job/user_components"};
    const fm_array *data = job_case_array(&test, "job/data");
    char *text = fm_arena_alloc(&test.arena, data->shape[0] + 1);
    assert_non_null(text);
    memcpy(text, data->data, data->shape[0]);
    text[data->shape[0]] = '\0';
    assert_true(data->shape[0] > 0);
    fm_prepared_job *before;
    prepare_another("data.json", text, NULL, &before);
    assert_int_equal(before->n_array, test.prepared->n_array);
    for (size_t i = 0; i < before->n_array; i++) {
        const char *key = before->arrays[i].key;
        if (!strcmp(key, others[0]) || !strcmp(key, others[1]) || !strcmp(key, others[2])) continue;
        expect_same_arrays(before, test.prepared, key);
    }
}

static void jobs_write_themselves(void **state) {
    (void)state;
    static const char *const chains[] = {"MMMM", "GMGGM"};
    const char *const files[] = {"a.sto", "# STOCKHOLM 1.0\nq GM.GMG\nb GMmGM-\n//\n",
                                 "a.csv", "key,sequence\n0,GMGMG\n7,GMGMM\n-1,MaMMMM\n",
                                 "b.a3m", ">q\nMMGMM\n>\"x\" \xff\\\tUniRef100_y_7/\nMGGMM\n",
                                 "t",     write_structure(true, chains, 2),
                                 "x.sdf", MOLFILE,
                                 NULL};
    must_prepare("sequences:\n  - protein: {id: A, sequence: GMGMG, msa: a.csv, modifications: "
                 "[{position: 2, ccd: MSE}]}\n"
                 "  - protein: {id: [B, C], sequence: MMGMM, msa: b.a3m}\n"
                 "  - protein: {id: D, sequence: GMGMG, msa: a.sto}\n"
                 "  - dna: {id: E, sequence: AA}\n  - ligand: {id: F, ccd: [SUG, SUG]}\n"
                 "templates:\n  - {pdb: t, chain_id: B}\n"
                 "constraints:\n  - bond: {atom1: [F, 1, O1], atom2: [F, 2, C1]}\n",
                 false, files);
    expect_itself_again();
    assert_int_equal(
        job_case_prepare(&test, "x.json",
                         "[{\"name\":\"a \\\"b\\\" \\u00e9\",\"modelSeeds\":[3,4294967295],"
                         "\"sequences\":[{\"ligand\":{\"ligand\":\"FILE_x.sdf\",\"count\":2}},"
                         "{\"proteinChain\":{\"sequence\":\"GXM\",\"unpairedMsa\":\"\"}}]}]",
                         false, files),
        FM_OK);
    expect_itself_again();
    assert_string_equal(test.jobs.jobs[0].name, "a \"b\" \xc3\xa9");
    assert_int_equal(test.jobs.jobs[0].seeds[1], 4294967295u);
    assert_int_equal(test.prepared->names.atom_charge[1], -1);
}

/* Ids that AlphaFold 3 does not have leave the text out, and a warning says it. */
static void other_ids_are_not_written(void **state) {
    (void)state;
    must_prepare("sequences:\n  - ligand: {id: L1, ccd: SUG}\n", false, NULL);
    assert_int_equal(job_case_array(&test, "job/data")->shape[0], 0);
    expect_warning("the job is not written as AlphaFold 3 JSON, where ids of chains have letters "
                   "only, not all of them small: found L1");
}

/* -- the user's components */

static void molfiles_are_components(void **state) {
    (void)state;
    const fm_bytes text = {(const uint8_t *)MOLFILE, sizeof MOLFILE - 1};
    fm_component component = {0};
    assert_int_equal(fm_molfile_parse(text, "l01", &test.arena, &component, NULL), FM_OK);
    assert_string_equal(component.id, "l01");
    assert_int_equal(component.n_atom, 3);
    assert_int_equal(component.n_bond, 2);
    assert_string_equal(component.atoms[2].name, "N1");
    assert_int_equal(component.atoms[0].n_hydrogen, 1);
    assert_int_equal(component.atoms[1].charge, -1);
    assert_int_equal(component.atoms[2].charge, 0); /* M  CHG replaces all */
    assert_int_equal(component.bonds[0].order, FM_BOND_DOUBLE);
    assert_true(component.atoms[1].has_ideal && component.atoms[1].ideal[0] > 1.4f);
    static const char *const files[] = {"x.sdf", MOLFILE, NULL};
    static const char job[] =
        "[{\"name\":\"n\",\"sequences\":[{\"ligand\":{\"ligand\":\"FILE_x.sdf\"}}]}]";
    fm_status status = job_case_prepare(&test, "x.json", job, false, files);
    assert_int_equal(status, FM_OK);
    assert_string_equal(ATOMS(0), "C1 O1 N1");
}

static void bad_molfiles_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *text, *message;
    } rows[] = {
        {"a\nb\n", "found the end, expected a molecule"},
        {"a\n  prog              2D\n\n  1  0  0 0 0 0 0 0 0 0999 V2000\n", "two dimensions"},
        {MOLFILE_HEAD "  0  0  0     0  0  0  0  0  0999 V3000\n", "found V3000, expected V2000"},
        {MOLFILE_HEAD "  x  0\n", "4:1: found 'x', expected a whole number from 1 to 999"},
        {MOLFILE_HEAD "  1  0\n", "found the end, expected an atom"},
        {MOLFILE_HEAD "  1  0\n    0.0000    0.0000    0.0000 Qq\n", "found no element"},
        {MOLFILE_HEAD "  1  0\n    0.0000    x         0.0000 C \n", "found no coordinate"},
        {MOLFILE_HEAD "  1  1\n    0.0000    0.0000    0.0000 C \n  1  2  1\n",
         "found '2', expected a whole number from 1 to 1"},
        {MOLFILE_HEAD "  1  0\n    0.0000    0.0000    0.0000 C \n", "expected 'M  END'"},
        {MOLFILE "name\n", "found a second molecule"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const fm_bytes text = {(const uint8_t *)rows[i].text, strlen(rows[i].text)};
        fm_component component;
        fm_status status = fm_molfile_parse(text, "l01", &test.arena, &component, &test.error);
        assert_true(job_case_note(&test, status));
        if (!strstr(test.message, rows[i].message)) fprintf(stderr, "%s\n", test.message);
        assert_non_null(strstr(test.message, rows[i].message));
    }
}

/* A component of the user replaces the dictionary's. */
static void user_components_come_first(void **state) {
    (void)state;
    static const char text[] =
        "{\"name\":\"n\",\"modelSeeds\":[1],\"dialect\":\"alphafold3\",\"version\":3,"
        "\"sequences\":[{\"ligand\":{\"id\":\"A\",\"ccdCodes\":[\"SUG\"]}}],\"userCCDPath\":\"u\"}";
    static const char component[] =
        "data_SUG\n_chem_comp.id SUG\n_chem_comp.type NON-POLYMER\n"
        "_chem_comp_atom.atom_id X1\n_chem_comp_atom.type_symbol N\n"
        "_chem_comp_atom.model_Cartn_x 1\n_chem_comp_atom.model_Cartn_y 2\n"
        "_chem_comp_atom.model_Cartn_z 3\n";
    const char *files[] = {"u", component, NULL};
    assert_int_equal(job_case_prepare(&test, "x.json", text, false, files), FM_OK);
    assert_string_equal(ATOMS(0), "X1");
    assert_int_equal(((const uint8_t *)job_case_array(&test, "features/ref_mask")->data)[0], 1);
    assert_int_equal(job_case_prepare(&test, "x.json", text, true, files), FM_OK);
    assert_int_equal(((const uint8_t *)job_case_array(&test, "features/ref_mask")->data)[0], 0);
    files[1] = "data_SUG\n_chem_comp.id SUG\nx\n";
    assert_true(job_case_prepare(&test, "x.json", text, false, files));
    assert_non_null(strstr(test.message, "u:3:1: found 'x'"));
}

/* -- what cannot be prepared */

static void bad_jobs_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *text, *message;
    } rows[] = {
        {"sequences:\n  - ligand: {id: A, ccd: SUX}\n",
         "2:26: sequences[0].ligand.ccd: found the component SUX at residue 1, which is not among "
         "the 10 components"},
        {"sequences:\n  - protein: {id: A, sequence: GMG}\n  - ligand: {id: B, ccd: SUG}\n"
         "constraints:\n  - bond: {atom1: [A, 1, OXT], atom2: [B, 1, C1]}\n",
         "found the atom OXT of GLY 1 in chain A, which leaves with a bond of the polymer, "
         "expected "
         "one of N CA C O"},
        {"sequences:\n  - ligand: {id: B, ccd: [SUG, SUG]}\n"
         "constraints:\n  - bond: {atom1: [B, 1, C9], atom2: [B, 2, C1]}\n",
         "4:26: constraints[0].bond.atom1[2]: found the atom C9 of SUG 1 in chain B"},
        {"sequences:\n  - ligand: {id: B, ccd: [SUG, GOL]}\n"
         "constraints:\n  - bond: {atom1: [B, 1, O1], atom2: [B, 2, C1]}\n"
         "  - bond: {atom1: [B, 1, C1], atom2: [B, 2, O1]}\n",
         "found a bond of the atom O1, which leaves with another bond"},
        {"sequences:\n  - protein: {id: A, sequence: GMGMG, msa: none.a3m}\n",
         "none.a3m: no such file"},
        {"sequences:\n  - protein: {id: A, sequence: GMGMG, msa: m.a3m}\n", "m.a3m:2:2: "},
        {BOLTZ_TEMPLATE("cif: t, template_id: Z"),
         "4:11: templates[0].cif: found no protein chain Z in the template, expected one of its 1"},
        {BOLTZ_TEMPLATE("pdb: t"), "t:"},
    };
    const char *const chain = "GMG";
    const char *const files[] = {"m.a3m", ">q\nGGGMG\n", "t", write_structure(false, &chain, 1),
                                 NULL};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_true(job_case_prepare(&test, "x.yaml", rows[i].text, false, files));
        if (!strstr(test.message, rows[i].message)) fprintf(stderr, "%s\n", test.message);
        assert_non_null(strstr(test.message, rows[i].message));
    }
}

static void alignments_are_needed(void **state) {
    (void)state;
    const fm_job_options options = {.max_row = 64, .n_template = 4};
    assert_int_equal(
        job_case_read(&test, "x.yaml", "sequences:\n  - protein: {id: A, sequence: GMGMG}\n"),
        FM_OK);
    fm_status status = fm_job_prepare(test.jobs.jobs, &test.components, NULL, &options, &test.arena,
                                      &test.warnings, test.prepared, &test.error);
    assert_int_equal(job_case_note(&test, status), FM_ERR_NOT_FOUND);
    assert_non_null(strstr(test.message, "chain A has no alignment; foldmill does not search"));
}

/* A complex is refused for its tokens before anything is made of it. */
static void large_jobs_are_refused(void **state) {
    (void)state;
    size_t before = fm_arena_mark(&test.arena);
    assert_int_equal(
        job_case_prepare(&test, "x.json",
                         "[{\"name\":\"n\",\"sequences\":[{\"ligand\":{\"ligand\":\"CCD_SUG_GOL\","
                         "\"count\":9000}}]}]",
                         false, NULL),
        FM_ERR_LIMIT);
    assert_non_null(strstr(test.message, " tokens, expected at most 16384"));
    assert_true(fm_arena_mark(&test.arena) - before < (size_t)4 << 20);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(atoms_leave_with_bonds),
        cmocka_unit_test(caps_are_bonded),
        cmocka_unit_test(selenomethionine_is_methionine),
        cmocka_unit_test(entities_rank_as_text),
        cmocka_unit_test(alignments_are_read),
        cmocka_unit_test(tables_of_keys_are_alignments),
        cmocka_unit_test(bad_tables_are_refused),
        cmocka_unit_test(templates_are_aligned),
        cmocka_unit_test(far_bonds_are_token_bonds),
        cmocka_unit_test(jobs_write_themselves),
        cmocka_unit_test(other_ids_are_not_written),
        cmocka_unit_test(molfiles_are_components),
        cmocka_unit_test(bad_molfiles_are_refused),
        cmocka_unit_test(user_components_come_first),
        cmocka_unit_test(bad_jobs_are_refused),
        cmocka_unit_test(alignments_are_needed),
        cmocka_unit_test(large_jobs_are_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
