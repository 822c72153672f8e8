/* test_synth_complexes.c: tests synthetic complexes: the same bytes every time, molecules of every
 * kind in contact and bonded as they should be, and files that our readers take as they are. */
#include "featurizer/complex/read.h"
#include "featurizer/complex/sequence_rows.h"
#include "featurizer/synth/components.h"
#include "featurizer/synth/nucleic.h"
#include "featurizer/synth/partners.h"
#include "proto/base/hash.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { N_ENTRY = 16 };

static fm_synth_options small_options(uint64_t seed) {
    fm_synth_options options = fm_synth_default_options();
    options.seed = seed;
    options.max_length = 70;
    options.max_depth = 60;
    options.complexes = true;
    return options;
}

static int make_arena(void **state) {
    static fm_arena arena;
    *state = &arena;
    return fm_arena_init(&arena, (size_t)1 << 30, NULL);
}

static int drop_arena(void **state) {
    fm_arena_fini(*state);
    return 0;
}

static void add_file(fm_sha256_state *hash, const fm_synth_file *file) {
    fm_sha256_update(hash, file->name, strlen(file->name));
    fm_sha256_update(hash, file->content.data, file->content.size);
}

/* Computes the SHA-256 over every file of the first entries, and over the components. */
static void digest_dataset(fm_arena *arena, const fm_synth_options *options, uint32_t n_entry,
                           char hex[FM_SHA256_HEX]) {
    fm_sha256_state *hash = fm_sha256_create();
    fm_synth_file file = {.name = "components.cif"};
    fm_arena_reset(arena);
    assert_int_equal(fm_synth_components_text(arena, &file.content, NULL), FM_OK);
    add_file(hash, &file);
    for (uint32_t e = 0; e < n_entry; e++) {
        fm_synth_entry entry = fm_synth_entry_of(options, e);
        fm_arena_reset(arena);
        file.name = entry.id;
        assert_int_equal(fm_synth_mmcif(arena, options, &entry, &file.content, NULL), FM_OK);
        add_file(hash, &file);
        for (uint32_t slot = 0; slot < entry.n_chain; slot++) {
            fm_synth_file files[FM_SYNTH_MAX_FILES];
            uint32_t n_file;
            assert_int_equal(
                fm_synth_alignments(arena, options, &entry, slot, files, &n_file, NULL), FM_OK);
            assert_int_equal(n_file, FM_SYNTH_MAX_FILES);
            for (uint32_t i = 0; i < n_file; i++)
                add_file(hash, &files[i]);
        }
        if (!entry.recipe->is_rna) continue;
        assert_int_equal(fm_synth_rna_alignment(arena, options, &entry, &file, NULL), FM_OK);
        add_file(hash, &file);
    }
    fm_sha256 digest = fm_sha256_digest(hash);
    fm_sha256_destroy(hash);
    fm_sha256_format(&digest, hex);
}

/* The digest changes only when the generator is changed on purpose; the demo's figures change with
 * it. */
static void the_same_seed_gives_the_bytes_that_we_know(void **state) {
    char first[FM_SHA256_HEX], again[FM_SHA256_HEX], other[FM_SHA256_HEX];
    fm_synth_options options = small_options(7);
    digest_dataset(*state, &options, 8, first);
    digest_dataset(*state, &options, 8, again);
    assert_string_equal(first, again);
    assert_string_equal(first, "8f5f5fece6c08d211c72540ff4813814d310164fe48e87490b536a59efb0b58b");
    options.seed = 8;
    digest_dataset(*state, &options, 8, other);
    assert_string_not_equal(first, other);
}

/* Reads the components and the entry's assembly as a build does. */
static void read_entry(fm_arena *arena, const fm_synth_options *options,
                       const fm_synth_entry *entry, fm_assembly *ret_assembly) {
    const fm_assembly_options reading = {.compat_protenix = false};
    fm_components *components = fm_arena_alloc(arena, sizeof *components);
    fm_bytes text, cif;
    fm_error error = {0};
    assert_non_null(components);
    assert_int_equal(fm_synth_components_text(arena, &text, NULL), FM_OK);
    assert_int_equal(fm_components_parse(text, arena, components, &error), FM_OK);
    assert_int_equal(fm_synth_mmcif(arena, options, entry, &cif, NULL), FM_OK);
    if (fm_assembly_read(cif, components, &reading, arena, ret_assembly, &error)) {
        fail_msg("%s:%llu: %s", entry->id, (unsigned long long)error.line, error.message);
    }
}

static double distance(const fm_assembly *a, uint32_t i, uint32_t k) {
    double square = 0;
    for (int x = 0; x < 3; x++) {
        double d = (double)a->atoms[i].position[x] - (double)a->atoms[k].position[x];
        square += d * d;
    }
    return sqrt(square);
}

/* What a set has. */
typedef struct category_counts {
    uint32_t proteins, rna, dna, ligands, ions, sugars, sugar_bonds, pairs, copies, equal_chains;
} category_counts;

static void count_chains(const fm_assembly *a, category_counts *counts) {
    for (uint32_t c = 0; c < a->n_chain; c++) {
        const fm_assembly_chain *chain = &a->chains[c];
        const char *name = a->residues[chain->first_residue].name;
        uint32_t n_atom = fm_assembly_chain_end_atom(a, c) - chain->first_atom;
        uint8_t polymer = a->entities[chain->entity].polymer;
        counts->proteins += polymer == FM_POLYMER_PEPTIDE_L;
        counts->rna += polymer == FM_POLYMER_RNA;
        counts->dna += polymer == FM_POLYMER_DNA;
        counts->sugars += strcmp(name, "NAG") == 0;
        counts->ions += n_atom == 1;
        counts->ligands += polymer == FM_POLYMER_NONE && n_atom > 1 && strcmp(name, "NAG") != 0;
        counts->copies += chain->is_expanded;
        counts->equal_chains += chain->sym_id > 0 && !chain->is_expanded;
    }
    counts->pairs += a->n_pair;
}

/* No atom of a chain is in another one's way, and all bonds have lengths of bonds. */
static void check_distances(const fm_assembly *a, category_counts *counts) {
    for (uint32_t i = 0; i < a->n_bond; i++) {
        const fm_assembly_bond *bond = &a->bonds[i];
        const fm_assembly_residue *x = &a->residues[a->atoms[bond->a].residue];
        const fm_assembly_residue *y = &a->residues[a->atoms[bond->b].residue];
        if (!a->atoms[bond->a].is_resolved || !a->atoms[bond->b].is_resolved) continue;
        double length = distance(a, bond->a, bond->b);
        if (length < 1.15 || length > 2.0) {
            fail_msg("%s %s - %s %s: a bond of %.3f", x->name, a->atoms[bond->a].name, y->name,
                     a->atoms[bond->b].name, length);
        }
        counts->sugar_bonds += x != y && strcmp(y->name, "NAG") == 0;
    }
    for (uint32_t i = 0; i < a->n_atom; i++) {
        for (uint32_t k = i + 1; k < a->n_atom; k++) {
            uint32_t x = a->residues[a->atoms[i].residue].chain;
            uint32_t y = a->residues[a->atoms[k].residue].chain;
            if (x == y || !a->atoms[i].is_resolved || !a->atoms[k].is_resolved) continue;
            if (a->chains[x].mol_id == a->chains[y].mol_id) continue;
            if (distance(a, i, k) > 2.1) continue;
            fail_msg("%s of chain %s is %.3f from %s of chain %s", a->atoms[i].name,
                     a->chains[x].id, distance(a, i, k), a->atoms[k].name, a->chains[y].id);
        }
    }
}

static uint32_t count_expected(const fm_synth_recipe *recipe) {
    uint32_t n = recipe->n_chain + recipe->n_strand + (recipe->n_sugar > 0) + recipe->n_ligand +
                 recipe->n_ion;
    return n * recipe->n_copy;
}

/* No chain is left out: every molecule is in contact with another, and none clashes. Sulfate and
 * water go, as they do in crystals of the PDB. */
static void eight_entries_have_molecules_of_every_kind(void **state) {
    for (uint64_t seed = 1; seed <= 2; seed++) {
        category_counts counts = {0};
        fm_synth_options options = small_options(seed);
        for (uint32_t e = 0; e < 8; e++) {
            fm_arena_reset(*state);
            fm_synth_entry entry = fm_synth_entry_of(&options, e);
            fm_assembly assembly;
            read_entry(*state, &options, &entry, &assembly);
            assert_int_equal(assembly.n_chain, count_expected(entry.recipe));
            count_chains(&assembly, &counts);
            check_distances(&assembly, &counts);
        }
        assert_int_equal(counts.proteins, 14);
        assert_int_equal(counts.rna, 3);
        assert_int_equal(counts.dna, 6);
        assert_int_equal(counts.ligands, 7);
        assert_int_equal(counts.ions, 6);
        assert_int_equal(counts.sugars, 2);
        assert_int_equal(counts.sugar_bonds, 3);
        assert_true(counts.copies > 4 && counts.equal_chains > 4 && counts.pairs > 20);
    }
}

/* C1' atoms of paired nucleotides are as far apart as in helices of the PDB. */
static void strands_are_paired(void **state) {
    (void)state;
    fm_component c1 = {.n_atom = 1};
    fm_component_atom atom = {.name = "C1'"};
    c1.atoms = &atom;
    for (int is_rna = 0; is_rna < 2; is_rna++) {
        for (uint32_t i = 0; i < 12; i++) {
            fm_vec3 one, two;
            bool has;
            fm_synth_nucleotide_place(&c1, 'A', is_rna, 0, i, 12, &one, &has);
            assert_true(has);
            fm_synth_nucleotide_place(&c1, 'C', is_rna, 1, 11 - i, 12, &two, &has);
            fm_vec3 d = fm_vec3_sub(one, two);
            double apart = sqrt(fm_vec3_dot(d, d));
            assert_true(apart > 10.2 && apart < 11.2);
        }
    }
    fm_synth_options options = small_options(3);
    for (uint32_t e = 0; e < N_ENTRY; e++) {
        fm_synth_entry entry = fm_synth_entry_of(&options, e);
        fm_synth_strand one, two;
        if (entry.recipe->n_strand < 2) continue;
        fm_synth_strand_draw(options.seed, &entry, 0, &one);
        fm_synth_strand_draw(options.seed, &entry, 1, &two);
        assert_int_equal(one.n, two.n);
        bool same = memcmp(one.letters, two.letters, one.n) == 0;
        assert_int_equal(same, entry.recipe->same_strand);
        for (uint32_t i = 0; i < one.n; i++) {
            const char pair[] = {one.letters[i], two.letters[one.n - 1 - i], '\0'};
            assert_non_null(strstr(entry.recipe->is_rna ? "AUA CGC" : "ATA CGC", pair));
        }
    }
}

/* Rows of proteins can be paired by their species, and RNA has rows. */
static void alignments_can_be_paired(void **state) {
    const fm_sequence_rows_options reading = {.compat_protenix = false};
    fm_synth_options options = small_options(5);
    uint32_t named = 0, rows_of_rna = 0;
    for (uint32_t e = 0; e < 8; e++) {
        fm_arena_reset(*state);
        fm_synth_entry entry = fm_synth_entry_of(&options, e);
        fm_synth_file files[FM_SYNTH_MAX_FILES], rna;
        fm_sequence_rows rows;
        fm_assembly assembly;
        fm_error error = {0};
        uint32_t n_file;
        read_entry(*state, &options, &entry, &assembly);
        const fm_assembly_entity *protein = &assembly.entities[0];
        assert_int_equal(fm_synth_alignments(*state, &options, &entry, 0, files, &n_file, NULL),
                         FM_OK);
        assert_string_equal(files[3].name, "uniprot_hits.sto");
        fm_msa_input input = {files[3].name, files[3].content, FM_MSA_STOCKHOLM};
        fm_bytes sequence = {(const uint8_t *)protein->sequence, protein->n_residue};
        if (fm_sequence_rows_read(&input, 1, sequence, FM_POLYMER_PEPTIDE_L, &reading, *state,
                                  &rows, &error)) {
            fail_msg("%s:%llu: %s", error.source, (unsigned long long)error.line, error.message);
        }
        for (uint32_t r = 1; r < rows.n_row; r++) {
            assert_true(rows.species[r].size > 0);
            named++;
        }
        if (!entry.recipe->is_rna) continue;
        fm_synth_strand strand;
        fm_synth_strand_draw(options.seed, &entry, 0, &strand);
        assert_int_equal(fm_synth_rna_alignment(*state, &options, &entry, &rna, NULL), FM_OK);
        input = (fm_msa_input){.name = rna.name, .content = rna.content};
        sequence = (fm_bytes){(const uint8_t *)strand.letters, strand.n};
        assert_int_equal(fm_sequence_rows_read(&input, 1, sequence, FM_POLYMER_RNA, &reading,
                                               *state, &rows, &error),
                         FM_OK);
        rows_of_rna += rows.n_row;
    }
    assert_true(named > 50 && rows_of_rna > 10);
}

static void a_full_arena_is_an_error_not_a_crash(void **state) {
    (void)state;
    fm_synth_options options = small_options(4);
    fm_synth_entry entry = fm_synth_entry_of(&options, 5);
    for (size_t bytes = 64; bytes < 600000; bytes *= 2) {
        fm_arena arena;
        fm_bytes content;
        fm_synth_file file;
        fm_error error = {0};
        assert_int_equal(fm_arena_init(&arena, bytes, NULL), FM_OK);
        (void)!fm_synth_rna_alignment(&arena, &options, &entry, &file, &error);
        fm_arena_reset(&arena);
        (void)!fm_synth_components_text(&arena, &content, &error);
        fm_arena_reset(&arena);
        fm_status status = fm_synth_mmcif(&arena, &options, &entry, &content, &error);
        assert_true(status == FM_ERR_LIMIT);
        fm_arena_fini(&arena);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_seed_gives_the_bytes_that_we_know),
        cmocka_unit_test(eight_entries_have_molecules_of_every_kind),
        cmocka_unit_test(strands_are_paired),
        cmocka_unit_test(alignments_can_be_paired),
        cmocka_unit_test(a_full_arena_is_an_error_not_a_crash),
    };
    return cmocka_run_group_tests(tests, make_arena, drop_arena);
}
