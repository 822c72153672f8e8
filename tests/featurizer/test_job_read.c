/* test_job_read.c: descriptions of complexes: what each format gives, and what is refused where. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "proto/limits.h"
#include "tests/featurizer/job_case.h"

#include <stdlib.h>

static job_case test;

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

static void must_read(const char *name, const char *text) {
    fm_status status = job_case_read(&test, name, text);
    if (status) fprintf(stderr, "%s\n", test.message);
    assert_int_equal(status, FM_OK);
}

#define AF3_HEAD                                                                                   \
    "{\"name\":\"a b/c\",\"modelSeeds\":[7,4294967295],\"dialect\":\"alphafold3\",\"version\":4,"
#define AF3(rest) AF3_HEAD rest "}"

static void alphafold3_is_read(void **state) {
    (void)state;
    must_read(
        "x.json",
        AF3("\"sequences\":[{\"protein\":{\"id\":[\"A\",\"B\"],\"sequence\":\"GMGX\","
            "\"modifications\":[{\"ptmType\":\"MSE\",\"ptmPosition\":2}],"
            "\"unpairedMsa\":\"\",\"pairedMsa\":\"\",\"templates\":[{\"mmcif\":\"t\","
            "\"queryIndices\":[0,3],\"templateIndices\":[5,9]}],\"description\":\"d\\u00e9\"}},"
            "{\"ligand\":{\"id\":\"Lg\",\"ccdCodes\":[\"SUG\",\"GOL\"]}}],"
            "\"bondedAtomPairs\":[[[\"B\",3,\"CA\"],[\"Lg\",2,\"C1\"]]],"
            "\"userCCDPath\":\"u.cif\""));
    const fm_complex_job *job = test.jobs.jobs;
    assert_int_equal(test.jobs.n, 1);
    assert_string_equal(job->name, "a b/c");
    assert_string_equal(job->folder, "a_bc");
    assert_int_equal(job->n_seed, 2);
    assert_int_equal(job->seeds[1], 4294967295u);
    assert_int_equal(job->n_entity, 2);
    assert_int_equal(job->n_chain, 3);
    const fm_job_entity *protein = &job->entities[0];
    assert_int_equal(protein->molecule, FM_MOLECULE_PROTEIN);
    assert_string_equal(protein->sequence, "GMGX");
    assert_string_equal(protein->components[1], "MSE");
    assert_string_equal(protein->components[3], "UNK");
    assert_string_equal(protein->ids[1], "B");
    assert_string_equal(protein->description, "d\xc3\xa9");
    assert_false(protein->needs_alignment);
    assert_int_equal(protein->templates[0].template[1], 9);
    assert_string_equal(protein->place.path, "sequences[0].protein.sequence");
    assert_int_equal(job->bonds[0].a.copy, 1);
    assert_int_equal(job->bonds[0].b.entity, 1);
    assert_int_equal(job->bonds[0].b.residue, 1);
    assert_string_equal(job->users[0].file, "u.cif");
}

static void lists_of_jobs_are_read(void **state) {
    (void)state;
    must_read("x.json",
              "[{\"name\":\"s\",\"modelSeeds\":[\"3\"],\"sequences\":[{\"proteinChain\":"
              "{\"sequence\":\"GG\",\"count\":27}},{\"ion\":{\"ion\":\"ZN\",\"count\":2}}]},"
              "{\"name\":\"t\",\"sequences\":[{\"dnaSequence\":{\"sequence\":\"AX\"}}]}]");
    assert_int_equal(test.jobs.n, 2);
    assert_int_equal(test.jobs.jobs[0].format, FM_JOB_SERVER);
    assert_string_equal(test.jobs.jobs[0].entities[0].ids[26], "AA");
    assert_string_equal(test.jobs.jobs[0].entities[1].ids[0], "BA");
    assert_int_equal(test.jobs.jobs[0].seeds[0], 3);
    assert_int_equal(test.jobs.jobs[1].seeds[0], 1);
    assert_string_equal(test.jobs.jobs[1].entities[0].components[1], "DN");
    must_read(
        "x.json",
        "[{\"name\":\"p\",\"sequences\":[{\"proteinChain\":{\"sequence\":\"GG\",\"count\":2,"
        "\"id\":[\"A\",\"C\"],\"modifications\":[{\"ptmType\":\"CCD_MSE\",\"ptmPosition\":1}]"
        "}},{\"ligand\":{\"ligand\":\"CCD_SUG_GOL\",\"count\":2}},{\"ligand\":{\"ligand\":"
        "\"FILE_a/b.sdf\"}}],\"covalent_bonds\":[{\"entity1\":\"1\",\"position1\":2,\"atom1\":"
        "\"CA\",\"entity2\":2,\"position2\":\"1\",\"atom2\":\"C1\"},{\"left_entity\":1,"
        "\"left_copy\":1,\"left_position\":1,\"left_atom\":\"N\",\"right_entity\":2,"
        "\"right_copy\":2,\"right_position\":2,\"right_atom\":\"C1\"}]}]");
    const fm_complex_job *job = test.jobs.jobs;
    assert_int_equal(job->format, FM_JOB_PROTENIX);
    assert_string_equal(job->entities[1].ids[0], "B");
    assert_string_equal(job->entities[1].ids[1], "D");
    assert_string_equal(job->entities[1].components[1], "GOL");
    assert_string_equal(job->users[0].file, "a/b.sdf");
    assert_string_equal(job->entities[2].components[0], "l01");
    assert_int_equal(job->n_bond, 3);
    assert_int_equal(job->bonds[1].a.copy, 1);
    assert_int_equal(job->bonds[1].b.copy, 1);
    assert_int_equal(job->bonds[2].b.copy, 1);
    assert_true(job->entities[0].needs_alignment);
}

/* A glycan becomes a ligand behind all entities, with a copy for each of the protein's. */
static void glycans_are_ligands(void **state) {
    (void)state;
    static const struct {
        uint32_t entity, residue;
        const char *atom;
        uint32_t other;
    } bonds[] = {{0, 2, "ND2", 0}, {2, 0, "O4", 1}, {2, 1, "O4", 2}, {2, 2, "O3", 3},
                 {2, 3, "O2", 4},  {2, 2, "O6", 5}, {2, 0, "O6", 6}};
    enum { N_BOND = sizeof bonds / sizeof bonds[0] };
    must_read(
        "x.json",
        "[{\"name\":\"s\",\"sequences\":[{\"proteinChain\":{\"sequence\":\"GGNGT\",\"count\":2,"
        "\"glycans\":[{\"residues\":\"NAG(NAG(BMA(MAN(MAN))(MAN)))(FUC)\",\"position\":3},"
        "{\"residues\":\"FUC\",\"position\":5}]}},{\"ion\":{\"ion\":\"ZN\"}}]}]");
    const fm_complex_job *job = test.jobs.jobs;
    assert_int_equal(job->format, FM_JOB_SERVER);
    assert_int_equal(job->n_entity, 4);
    assert_int_equal(job->entities[2].n_copy, 2);
    assert_int_equal(job->entities[2].n_residue, 7);
    assert_string_equal(job->entities[2].components[3], "MAN");
    assert_string_equal(job->entities[2].components[6], "FUC");
    assert_string_equal(job->entities[2].ids[0], "D");
    assert_int_equal(job->n_bond, 2 * N_BOND + 2);
    for (uint32_t i = 0; i < 2 * N_BOND; i++) {
        const fm_job_bond *bond = &job->bonds[i];
        assert_int_equal(bond->a.entity, bonds[i % N_BOND].entity);
        assert_int_equal(bond->a.copy, i / N_BOND);
        assert_int_equal(bond->b.copy, i / N_BOND);
        assert_int_equal(bond->a.residue, bonds[i % N_BOND].residue);
        assert_string_equal(bond->a.atom, bonds[i % N_BOND].atom);
        assert_int_equal(bond->b.entity, 2);
        assert_int_equal(bond->b.residue, bonds[i % N_BOND].other);
        assert_string_equal(bond->b.atom, "C1");
    }
    assert_string_equal(job->bonds[2 * N_BOND].a.atom, "OG1");
    assert_int_equal(test.warnings.n, 2);
    assert_string_equal(
        test.warnings.texts[0],
        "[0].sequences[0].proteinChain.glycans[0].residues: the glycan does not say "
        "its bonds, and gets the usual ones: ASN 3 ND2-C1 NAG, NAG 1 O4-C1 NAG, "
        "NAG 2 O4-C1 BMA, BMA 3 O3-C1 MAN, MAN 4 O2-C1 MAN, BMA 3 O6-C1 MAN, "
        "NAG 1 O6-C1 FUC");
}

static void yaml_is_read(void **state) {
    (void)state;
    must_read("my job.yaml", "version: 1\nsequences:\n  - protein:\n      id: [A, B]\n"
                             "      sequence: GGG\n      msa: empty\n      cyclic: false\n"
                             "      modifications: [{position: 2, ccd: MSE}]\n"
                             "  - ligand: {id: C, ccd: SUG}\n  - dna: {id: D, sequence: AA}\n"
                             "constraints:\n  - bond: {atom1: [A, 1, N], atom2: [C, 1, C1]}\n");
    const fm_complex_job *job = test.jobs.jobs;
    assert_string_equal(job->name, "my job");
    assert_int_equal(job->n_entity, 3);
    assert_int_equal(job->entities[0].n_copy, 2);
    assert_string_equal(job->entities[0].components[1], "MSE");
    assert_false(job->entities[0].needs_alignment);
    assert_int_equal(job->n_bond, 1);
    assert_string_equal(job->entities[1].components[0], "SUG");
}

static void fasta_is_read(void **state) {
    (void)state;
    must_read("x.fasta.gz", ">one\nGM\nGG\n>two title\ngmgg\n>r\nACGU\n>d|dna\nACG\n>L|ccd\nSUG\n"
                            ">M|protein|m.a3m\nGG*\n");
    const fm_complex_job *job = test.jobs.jobs;
    assert_string_equal(job->name, "x");
    assert_int_equal(job->n_entity, 5);
    assert_int_equal(job->entities[0].n_copy, 2);
    assert_string_equal(job->entities[0].ids[1], "B");
    assert_int_equal(job->entities[1].molecule, FM_MOLECULE_RNA);
    assert_int_equal(job->entities[2].molecule, FM_MOLECULE_DNA);
    assert_string_equal(job->entities[2].ids[0], "d");
    assert_string_equal(job->entities[3].components[0], "SUG");
    assert_string_equal(job->entities[4].unpaired.file, "m.a3m");
}

static void unknown_letters_are_said(void **state) {
    (void)state;
    must_read("x.json", AF3("\"sequences\":[{\"protein\":{\"id\":\"A\",\"sequence\":\"GU\"}}]"));
    assert_int_equal(test.warnings.n, 1);
    assert_string_equal(test.warnings.texts[0],
                        "sequences[0].protein.sequence: the letter U at residue 2 is read as "
                        "unknown (UNK)");
    assert_string_equal(test.jobs.jobs[0].entities[0].components[1], "UNK");
}

/* -- what is refused */

#define LIGAND "{\"ligand\":{\"id\":\"L\",\"ccdCodes\":[\"SUG\"]}}"
#define BONDS(pairs) AF3("\"sequences\":[" LIGAND "],\"bondedAtomPairs\":[" pairs "]")
#define CHAIN(rest) AF3("\"sequences\":[{\"protein\":{\"id\":\"A\",\"sequence\":\"GMG\"" rest "}}]")
#define SERVER(entity) "[{\"name\":\"n\",\"sequences\":[" entity "]}]"
#define GLYCAN(residues, position)                                                                 \
    SERVER("{\"proteinChain\":{\"sequence\":\"GNG\",\"glycans\":[{\"residues\":\"" residues        \
           "\",\"position\":" #position "}]}}")
#define YAML(rest) "sequences:\n  - protein: {id: A, sequence: GG}\n" rest

static const struct refusal {
    const char *name, *text, *message;
} refusals[] = {
    /* JSON */
    {"x.json", "{\"a\":1,\n \"a\":2}", "2:2: found the key 'a' a second time, first in line 1"},
    {"x.json", "[1,]", "1:4: found ']', expected a value of JSON"},
    {"x.json", "[1] x", "1:5: found 'x', expected the end of the text"},
    {"x.json", "[1", "1:3: found the end, expected ',' or ']'"},
    {"x.json", "{\"a\" 1}", "1:6: found '1', expected ':'"},
    {"x.json", "[\"a\tb\"]", "expected a text without control characters"},
    {"x.json", "[\"\\x\"]", "expected an escape of JSON"},
    {"x.json", "[\"\\ud800\"]", "expected the second half of a character"},
    {"x.json", "[\"\\u0000\"]", "expected four hexadecimal digits"},
    {"x.json", "[01]", "expected a value of JSON"},
    {"x.json", "[nul]", "expected a value of JSON"},
    {"x.json", "[\"", "found the end, expected '\"'"},
    {"x.json", "[\xff]", "1:2: "},
    /* AlphaFold 3 */
    {"x.json", "{}", "found no dialect, expected dialect \"alphafold3\" and version 1 to 4"},
    {"x.json", "{\"nam\":1}", "1:8: nam: found an unknown key, did you mean name"},
    {"x.json", AF3("\"sequences\":[]"), "found no sequences, expected at least one"},
    {"x.json", AF3("\"sequences\":{}"), "found no list of sequences"},
    {"x.json", CHAIN(",\"sequenc\":1"), "sequences[0].protein.sequenc: found an unknown key"},
    {"x.json", CHAIN(",\"modifications\":[{\"ptmType\":\"SEP\",\"ptmPosition\":4}]"),
     "sequences[0].protein.modifications[0].ptmPosition: found 4, expected a whole number from 1 "
     "to 3"},
    {"x.json", CHAIN(",\"modifications\":[{\"ptmType\":\"CCD_SEP\",\"ptmPosition\":1}]"),
     "expected the component's id without CCD_"},
    {"x.json",
     CHAIN(",\"modifications\":[{\"ptmType\":\"SEP\",\"ptmPosition\":1},{\"ptmType\":\"MSE\","
           "\"ptmPosition\":1}]"),
     "found a second modification of residue 1, expected one"},
    {"x.json", CHAIN(",\"unpairedMsa\":\"\",\"unpairedMsaPath\":\"a\""),
     "found both the text and a file of it, expected one of them"},
    {"x.json",
     CHAIN(",\"templates\":[{\"mmcif\":\"\",\"queryIndices\":[3],\"templateIndices\":[]}]"),
     "queryIndices[0]: found 3, expected a whole number from 0 to 2"},
    {"x.json",
     CHAIN(",\"templates\":[{\"mmcif\":\"\",\"queryIndices\":[1],\"templateIndices\":[]}]"),
     "found 1 queryIndices and 0 templateIndices, expected as many"},
    {"x.json",
     CHAIN(",\"templates\":[{\"mmcif\":\"\",\"queryIndices\":[1,1],\"templateIndices\":[1,2]}]"),
     "found the index 1 twice"},
    {"x.json", AF3("\"sequences\":[{\"protein\":{\"id\":\"a\",\"sequence\":\"G\"}}]"),
     "sequences[0].protein.id: found the id 'a', expected letters, not all of them small"},
    {"x.json", AF3("\"sequences\":[" LIGAND "," LIGAND "]"), "found the chain id 'L' twice"},
    {"x.json", AF3("\"sequences\":[{\"protein\":{\"id\":\"A\",\"sequence\":\"G-\"}}]"),
     "found '-' at residue 2, expected a capital letter"},
    {"x.json", AF3("\"sequences\":[{\"protein\":{\"id\":\"A\",\"sequence\":\"\"}}]"),
     "found nothing, expected letters"},
    {"x.json", AF3("\"sequences\":[{\"ligand\":{\"id\":\"L\",\"smiles\":\"CC\"}}]"),
     "sequences[0].ligand.smiles: found SMILES, expected ids of components; make one with "
     "\"python3 -m foldmill.component --id LIG1 'SMILES' >lig1.cif\""},
    {"x.json", AF3("\"sequences\":[{\"ligand\":{\"id\":\"L\",\"ccdCodes\":[\"UNL\"]}}]"),
     "found UNL, an unknown ligand"},
    {"x.json", AF3("\"sequences\":[{\"ligand\":{\"id\":\"L\",\"ccdCodes\":[\"A_B\"]}}]"),
     "found 'A_B', expected the id of a component"},
    {"x.json", BONDS("[[\"X\",1,\"C1\"],[\"L\",1,\"C1\"]]"),
     "bondedAtomPairs[0][0][0]: found 'X', expected the id of a chain of this job"},
    {"x.json", BONDS("[[\"L\",2,\"C1\"],[\"L\",1,\"C1\"]]"), "found 2, expected 1"},
    {"x.json", BONDS("[[\"L\",1,\"C1\"],[\"L\",1,\"C1\"]]"), "a bond of an atom with itself"},
    {"x.json", BONDS("[[\"L\",1,\"C1\"],[\"L\",1,\"C2\"]],[[\"L\",1,\"C2\"],[\"L\",1,\"C1\"]]"),
     "bondedAtomPairs[1]: found a bond a second time in the other direction"},
    {"x.json",
     "{\"name\":\"../x\",\"modelSeeds\":[1],\"dialect\":\"alphafold3\",\"version\":1,"
     "\"sequences\":[" LIGAND "]}",
     "name: found the name '../x', expected"},
    {"x.json",
     "{\"name\":\"n\",\"modelSeeds\":[-1],\"dialect\":\"alphafold3\",\"version\":1,"
     "\"sequences\":[" LIGAND "]}",
     "modelSeeds[0]: found -1, expected a whole number from 0 to 4294967295"},
    {"x.json",
     "{\"name\":\"n\",\"modelSeeds\":[7,1,2,7],\"dialect\":\"alphafold3\",\"version\":1,"
     "\"sequences\":[" LIGAND "]}",
     "1:33: modelSeeds[3]: found the seed 7 a second time, expected different seeds"},
    /* the server and Protenix */
    {"x.json", SERVER("{\"proteinChain\":{\"sequence\":\"GB\"}}"),
     "found 'B' at residue 2, expected one of ACDEFGHIKLMNPQRSTVWYX"},
    {"x.json", SERVER("{\"proteinChain\":{\"sequence\":\"G\",\"count\":1000000000}}"),
     "[0].sequences[0].proteinChain.count: found 1000000000, expected a whole number from 1 to "
     "10000"},
    {"x.json", SERVER("{\"proteinChain\":{\"sequence\":\"G\",\"glycans\":[1]}}"),
     "sequences[0].proteinChain.glycans[0]: found 1, expected a mapping"},
    {"x.json", GLYCAN("NAG(NA)", 2),
     "residues: found 'NA)' at letter 5, expected the three letters"},
    {"x.json", GLYCAN("NAG(NAG", 2), "residues: found 'the end' at letter 8, expected ')'"},
    {"x.json", GLYCAN("NAG)", 2), "residues: found ')' at letter 4, expected '(' or the end"},
    {"x.json", GLYCAN("NAG(NAGx", 2), "residues: found 'x' at letter 8, expected '(' or ')'"},
    {"x.json", GLYCAN("NAG(NAG)(BMA)(FUC)", 2), "expected at most two sugars on one"},
    {"x.json", GLYCAN("NAG(NAG(NAG(NAG(NAG(NAG(NAG(NAG(NAG))))))))", 2),
     "residues: found more than 8 sugars"},
    {"x.json", GLYCAN("GLC(NAG)(MAN)", 2),
     "found NAG on GLC, which has no usual bond, expected a ligand of these components"},
    {"x.json", GLYCAN("NAG", 1), "position: found NAG on GLY 1, expected BGC, BMA"},
    {"x.json", GLYCAN("FUC", 2), "position: found FUC on ASN 2, expected BGC, BMA"},
    {"x.json", GLYCAN("NAG", 4), "position: found 4, expected a whole number from 1 to 3"},
    {"x.json",
     SERVER("{\"proteinChain\":{\"sequence\":\"GNG\",\"glycans\":[{\"residues\":\"NAG\","
            "\"position\":2},{\"residues\":\"BMA\",\"position\":2}]}}"),
     "glycans[1].position: found a second glycan on ASN 2, expected one"},
    {"x.json",
     SERVER("{\"dnaSequence\":{\"sequence\":\"A\",\"glycans\":[{\"residues\":\"NAG\","
            "\"position\":1}]}}"),
     "found glycans of a nucleic acid, expected those of a protein"},
    {"x.json", SERVER("{\"ligand\":{\"ligand\":\"CCO\"}}"), "found SMILES"},
    {"x.json", SERVER("{\"ligand\":{\"ligand\":\"FILE_a.mol2\"}}"), "expected FILE_ and the name"},
    {"x.json", "[{\"name\":\"n\",\"constraint\":{\"contact\":[]},\"sequences\":[]}]",
     "found constraint, which no network of foldmill takes"},
    {"x.json", "[]", "found an empty list, expected a list of jobs"},
    /* YAML */
    {"x.yaml", "a: [", "this is not YAML"},
    {"x.yaml", "a: 1\na: 2\n", "2:1: found the key 'a' a second time"},
    {"x.yaml", "a: &x 1\n", "1:4: found an anchor or alias of YAML"},
    {"x.yaml", "a: !!int 1\n", "found a tag of YAML"},
    {"x.yaml", "? [a]\n: 1\n", "found a list or mapping as a key"},
    {"x.yaml", "a: 1\n---\nb: 1\n", "found a second document"},
    {"x.yaml", "", "found no value, expected a mapping"},
    {"x.yaml", YAML("    \n  - ligand: {id: B, smiles: CC}\n"), "4:29: sequences[1].ligand.smiles"},
    {"x.yaml", YAML("constraints:\n  - pocket: {}\n"), "found pocket, which no network"},
    {"x.yaml", YAML("templates: [{}]\n"), "templates[0]: found neither cif nor pdb, expected"},
    {"x.yaml", YAML("templates: [{cif: a, pdb: b}]\n"),
     "templates[0]: found cif and pdb, expected"},
    {"x.yaml", YAML("templates: [{cif: a, chain_id: B}]\n"),
     "templates[0].chain_id: found 'B', expected the id of a chain of this job"},
    {"x.yaml", YAML("  - dna: {id: D, sequence: A}\ntemplates: [{cif: a, chain_id: [D]}]\n"),
     "templates[0].chain_id[0]: found 'D', expected the id of a protein chain"},
    {"x.yaml", "sequences:\n  - ligand: {id: D, ccd: SUG}\ntemplates: [{cif: a}]\n",
     "templates[0]: found a template and no protein, expected one"},
    {"x.yaml", YAML("templates: [{cif: a, chain_id: A, template_id: [X, Y]}]\n"),
     "found 2 chains of the template for 1 of the job, expected one or as many"},
    {"x.yaml", YAML("templates: [{cif: a, force: true}]\n"),
     "templates[0].force: found force, which no network of foldmill takes"},
    {"x.yaml", YAML("templates: [{cif: a, threshold: 2}]\n"),
     "templates[0].threshold: found threshold, which no network of foldmill takes"},
    {"x.yaml", YAML("properties: [{affinity: {binder: A}}]\n"), "found properties"},
    {"x.yaml", "sequences:\n  - protein: {id: A, sequence: GG, cyclic: true}\n", "found cyclic"},
    /* FASTA */
    {"x.fasta", ">a\nACG\n", "1:1: found letters of RNA as well as DNA"},
    {"x.fasta", ">a\nG1\n", "2:2: found the byte 0x31 in a sequence"},
    {"x.fasta", ">a\n>b\nGM\n", "1:1: found no letters, expected a sequence"},
    {"x.fasta", ">a|smiles\nCC\n", "found SMILES"},
};

static void bad_descriptions_are_refused(void **state) {
    (void)state;
    size_t n_bad = 0, mark = fm_arena_mark(&test.arena);
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        const struct refusal *row = &refusals[i];
        fm_arena_rewind(&test.arena, mark);
        fm_status status = job_case_read(&test, row->name, row->text);
        if (status && strstr(test.message, row->message)) continue;
        fprintf(stderr, "%s\n  found    %s\n  expected %s\n", row->text, test.message,
                row->message);
        n_bad++;
    }
    assert_int_equal(n_bad, 0);
}

/* Texts that ask for much are refused before memory is taken for it. */
static void hostile_descriptions_are_refused(void **state) {
    (void)state;
    enum { DEPTH = 100000, COPIES = 100000 };
    char *text = malloc(8 * COPIES + 1000);
    assert_non_null(text);
    size_t before = fm_arena_mark(&test.arena);
    memset(text, '[', DEPTH);
    text[DEPTH] = '\0';
    assert_int_equal(job_case_read(&test, "x.json", text), FM_ERR_LIMIT);
    assert_non_null(strstr(test.message, "more than 32 deep"));
    assert_int_equal(job_case_read(&test, "x.yaml", text), FM_ERR_LIMIT);
    assert_true(fm_arena_mark(&test.arena) - before < (size_t)1 << 20);
    size_t n = (size_t)sprintf(text, AF3_HEAD "\"sequences\":[{\"ligand\":{\"id\":[");
    for (uint32_t i = 0; i < COPIES; i++)
        n += (size_t)sprintf(text + n, i ? ",\"A\"" : "\"A\"");
    sprintf(text + n, "],\"ccdCodes\":[\"SUG\"]}}]}");
    assert_int_equal(job_case_read(&test, "x.json", text), FM_ERR_LIMIT);
    assert_non_null(strstr(test.message, "found 100000 copies, expected 1 to 10000 chains"));
    n = (size_t)sprintf(text, "{");
    for (uint32_t i = 0; i < 1000; i++)
        n += (size_t)sprintf(text + n, "\"%u\":1,", i);
    assert_int_equal(job_case_read(&test, "x.json", text), FM_ERR_LIMIT);
    assert_non_null(strstr(test.message, "more than 128 keys"));
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alphafold3_is_read),
        cmocka_unit_test(lists_of_jobs_are_read),
        cmocka_unit_test(glycans_are_ligands),
        cmocka_unit_test(yaml_is_read),
        cmocka_unit_test(fasta_is_read),
        cmocka_unit_test(unknown_letters_are_said),
        cmocka_unit_test(bad_descriptions_are_refused),
        cmocka_unit_test(hostile_descriptions_are_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
