/* test_parse_job.c: `foldmill parse job` as a user runs it: what is printed, exit codes, and what
 * is in the .npz, which the trainer reads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "proto/complex_atoms.h"
#include "tests/e2e/parse_case.h"
#include "tests/featurizer/job_case.h"

static const char two_jobs[] =
    "[{\"name\":\"one\",\"sequences\":[{\"proteinChain\":{\"sequence\":\"GMGMG\",\"count\":2,"
    "\"unpairedMsaPath\":\"m.a3m\"}},{\"ligand\":{\"ligand\":\"CCD_SUG_GOL\"}}]},\n"
    "{\"name\":\"two\",\"sequences\":[{\"ion\":{\"ion\":\"ZN\",\"count\":3}}]}]";

static void write_inputs(void) {
    write_file("known.cif", JOB_COMPONENTS);
    write_file("two.json", two_jobs);
    write_file("m.a3m", ">q\nGMGMG\n>a\nGM-MG\n");
    write_file("bad.yaml", "sequences:\n  - protein: {id: A, sequence: G, msb: empty}\n");
    write_file("alone.fasta", ">A|protein\nGMGMG\n");
}

static void summaries_and_refusals(void **state) {
    (void)state;
    write_inputs();
    expect("job two.json --components known.cif --job two", 0,
           "foldmill parse: warning: two.json: the component ZN has no reference coordinates; its "
           "frames and confidences mean little\n"
           "two.json: Protenix JSON, job 'two', 3 chains, 3 residues, 3 tokens, 3 atoms, 0 bonds, "
           "1 seed\n  entity 1   ligand       1 residues, 0 templates, chains A B C\n");
    expect("job two.json --components known.cif", 2,
           "foldmill parse: two.json: found 2 jobs, expected one: foldmill parse job --job NAME "
           "prepares one of them, "
           "and foldmill prepare all; the first is 'one'\n");
    expect("job two.json --components known.cif --job three", 1,
           "foldmill parse: two.json: found no job 'three' among 2, the first is 'one'\n");
    expect("job bad.yaml --components known.cif", 1,
           "foldmill parse: bad.yaml:2:40: sequences[0].protein.msb: found an unknown key, did you "
           "mean msa\n");
    expect("job two.json --components known.cif --format x", 2,
           "foldmill parse: two.json: --format: found 'x', expected alphafold3, server, protenix, "
           "boltz or fasta\n");
    expect("job two.json", 2, "foldmill parse: kind 'job' needs --components\n");
    expect("job two.json --components known.cif --crops x.tsv -o y.npz", 2,
           "foldmill parse: kind 'job' takes no --crops\n");
    expect("complex two.json --components known.cif --job x", 2,
           "foldmill parse: kind 'complex' takes no --job\n");
    char out[8192];
    assert_int_equal(run_parse("job alone.fasta --components known.cif", out, sizeof out), 1);
    assert_non_null(strstr(out, "alone.fasta:1:1: chain A has no alignment; foldmill does not "
                                "search databases"));
    assert_int_equal(run_parse("job alone.fasta --components known.cif --single-sequence --json",
                               out, sizeof out),
                     0);
    assert_non_null(strstr(out, "\"format\": \"FASTA\""));
}

static void prepared_jobs_are_samples(void **state) {
    (void)state;
    fm_arena arena;
    char out[4096];
    fm_complex_atoms atoms;
    assert_int_equal(fm_arena_init(&arena, (size_t)16 << 20, NULL), FM_OK);
    write_inputs();
    assert_int_equal(
        run_parse("job two.json --components known.cif --job one -o one.npz", out, sizeof out), 0);
    assert_int_equal(
        run_parse("job two.json --components known.cif --job one -o one.npz", out, sizeof out), 1);
    assert_int_equal(run_parse("job two.json --components known.cif --job one -o one.npz --replace",
                               out, sizeof out),
                     0);
    fm_npz npz = read_npz(&arena, "one.npz");
    const fm_npy *msa = fm_npz_find(&npz, "features/msa");
    assert_int_equal(msa->shape[0], 3);
    assert_int_equal(msa->shape[1], 15);
    assert_int_equal(fm_complex_atoms_read(&npz, &arena, &atoms, NULL), FM_OK);
    assert_int_equal(atoms.n_chain, 3);
    assert_int_equal(atoms.n_entity, 2);
    assert_string_equal(atoms.chain_id[2], "C");
    assert_int_equal(atoms.n_component, 4);
    assert_int_equal(atoms.residue_letter[1], 'M');
    assert_int_equal(atoms.residue_letter[10], '?');
    const fm_npy *name = fm_npz_find(&npz, "job/name");
    assert_int_equal(name->count, 3);
    assert_memory_equal(name->data, "one", 3);
    int code = fm_test_shell(folder, "mkdir s && cp one.npz s/ && $FOLDMILL train "
                                     "--check-samples --samples s --preset af3-initial");
    assert_int_equal(code, 0);
    fm_arena_fini(&arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(summaries_and_refusals, make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(prepared_jobs_are_samples, make_folder, drop_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
