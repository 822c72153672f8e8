/* test_complex_parts.c: an assembly as a part and back is the same assembly, in every field; so are
 * the rows of entities. Parts of the reference's structures are also measured. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "featurizer/complex/complex.h"
#include "featurizer/complex/read.h"
#include "proto/base/compress.h"
#include "proto/chem/element.h"
#include "tests/featurizer/complex_case.h"
#include "tests/featurizer/complex_text.h"

#define ENTRY                                                                                      \
    COMPLEX_HEAD COMPLEX_POLY COMPLEX_CONN COMPLEX_ASSEMBLY COMPLEX_SITE COMPLEX_CHAIN_A           \
        COMPLEX_LIGANDS

static void must(fm_status status, const fm_error *error) {
    if (status) fail_msg("%s", error->message);
}

/* -- comparing */

static bool same_text(const char *a, const char *b) {
    return a && b ? strcmp(a, b) == 0 : a == b;
}

static void assert_same_entities(const fm_assembly *a, const fm_assembly *b) {
    assert_int_equal(a->n_entity, b->n_entity);
    for (uint32_t i = 0; i < a->n_entity; i++) {
        const fm_assembly_entity *x = &a->entities[i], *y = &b->entities[i];
        assert_true(same_text(x->id, y->id) && same_text(x->sequence, y->sequence));
        assert_true(x->n_residue == y->n_residue && x->polymer == y->polymer);
    }
}

static void assert_same_chains(const fm_assembly *a, const fm_assembly *b) {
    assert_int_equal(a->n_chain, b->n_chain);
    for (uint32_t i = 0; i < a->n_chain; i++) {
        const fm_assembly_chain *x = &a->chains[i], *y = &b->chains[i];
        assert_string_equal(x->id, y->id);
        assert_string_equal(x->label_asym_id, y->label_asym_id);
        assert_string_equal(x->auth_asym_id, y->auth_asym_id);
        assert_true(x->entity == y->entity && x->first_residue == y->first_residue &&
                    x->first_token == y->first_token && x->first_atom == y->first_atom &&
                    x->asym_id == y->asym_id && x->entity_id == y->entity_id &&
                    x->sym_id == y->sym_id && x->mol_id == y->mol_id &&
                    x->entity_mol_id == y->entity_mol_id && x->molecule == y->molecule &&
                    x->is_expanded == y->is_expanded);
    }
}

static void assert_same_residues(const fm_assembly *a, const fm_assembly *b) {
    assert_int_equal(a->n_residue, b->n_residue);
    for (uint32_t i = 0; i < a->n_residue; i++) {
        const fm_assembly_residue *x = &a->residues[i], *y = &b->residues[i];
        assert_memory_equal(x->name, y->name, sizeof x->name);
        assert_true(x->component == y->component && x->chain == y->chain &&
                    x->first_token == y->first_token && x->first_atom == y->first_atom &&
                    x->number == y->number && x->ref_space_uid == y->ref_space_uid &&
                    x->molecule == y->molecule && x->restype == y->restype &&
                    x->is_standard == y->is_standard && x->is_modified == y->is_modified);
    }
}

static void assert_same_atoms(const fm_assembly *a, const fm_assembly *b) {
    assert_int_equal(a->n_atom, b->n_atom);
    for (uint32_t i = 0; i < a->n_atom; i++) {
        const fm_assembly_atom *x = &a->atoms[i], *y = &b->atoms[i];
        assert_memory_equal(x->position, y->position, sizeof x->position);
        assert_memory_equal(&x->occupancy, &y->occupancy, sizeof x->occupancy);
        assert_memory_equal(&x->b_factor, &y->b_factor, sizeof x->b_factor);
        assert_memory_equal(x->name, y->name, sizeof x->name);
        assert_true(x->residue == y->residue && x->in_component == y->in_component &&
                    x->mol_atom_index == y->mol_atom_index && x->element == y->element &&
                    x->slot == y->slot && x->is_resolved == y->is_resolved &&
                    x->is_centre == y->is_centre && x->is_distogram_rep == y->is_distogram_rep &&
                    x->is_plddt_rep == y->is_plddt_rep);
    }
}

static void assert_same(const fm_assembly *a, const fm_assembly *b) {
    assert_same_entities(a, b);
    assert_same_chains(a, b);
    assert_same_residues(a, b);
    assert_same_atoms(a, b);
    assert_int_equal(a->n_token, b->n_token);
    assert_memory_equal(a->tokens, b->tokens, a->n_token * sizeof *a->tokens);
    assert_int_equal(a->n_bond, b->n_bond);
    for (uint32_t i = 0; i < a->n_bond; i++)
        assert_true(a->bonds[i].a == b->bonds[i].a && a->bonds[i].b == b->bonds[i].b &&
                    a->bonds[i].order == b->bonds[i].order);
    assert_int_equal(a->n_pair, b->n_pair);
    for (uint32_t i = 0; i < a->n_pair; i++)
        assert_true(a->pairs[i].a == b->pairs[i].a && a->pairs[i].b == b->pairs[i].b);
    assert_string_equal(a->release_date, b->release_date);
    assert_memory_equal(&a->resolution, &b->resolution, sizeof a->resolution);
    assert_string_equal(a->method, b->method);
    assert_null(b->origin);
}

/* Encodes an assembly, decodes it and compares; returns the encoded part. */
static fm_bytes assert_round_trip(const fm_assembly *assembly, const fm_components *components,
                                  fm_arena *arena) {
    fm_part_assembly part, again;
    fm_assembly loaded;
    fm_bytes bytes = {0}, same = {0};
    fm_error error = {0};
    must(fm_assembly_pack(assembly, &components->hash, arena, &part, &error), &error);
    must(fm_part_assembly_encode(&part, arena, &bytes, &error), &error);
    must(fm_part_assembly_decode(bytes, arena, &again, &error), &error);
    must(fm_part_assembly_encode(&again, arena, &same, &error), &error);
    assert_int_equal(bytes.size, same.size);
    assert_memory_equal(bytes.data, same.data, bytes.size);
    must(fm_assembly_unpack(&again, components, arena, &loaded, &error), &error);
    assert_same(assembly, &loaded);
    return bytes;
}

/* -- a small entry */

typedef struct small_case {
    fm_arena arena;
    fm_components components;
    fm_assembly assembly;
} small_case;

static void read_small(small_case *test) {
    static const char known[] = COMPLEX_COMPONENTS, text[] = ENTRY;
    const fm_assembly_options options = {0};
    fm_error error = {0};
    must(fm_arena_init(&test->arena, (size_t)256 << 20, &error), &error);
    must(fm_components_parse((fm_bytes){(const uint8_t *)known, sizeof known - 1}, &test->arena,
                             &test->components, &error),
         &error);
    must(fm_assembly_read((fm_bytes){(const uint8_t *)text, sizeof text - 1}, &test->components,
                          &options, &test->arena, &test->assembly, &error),
         &error);
}

static void a_small_assembly_comes_back(void **state) {
    (void)state;
    small_case test;
    read_small(&test);
    assert_true(test.assembly.n_chain > 3 && test.assembly.chains[1].is_expanded);
    assert_round_trip(&test.assembly, &test.components, &test.arena);
    fm_arena_fini(&test.arena);
}

/* Another set of components may have other atoms under the same names. */
static void another_set_of_components_is_refused(void **state) {
    (void)state;
    static const char known[] = COMPLEX_COMPONENTS "data_X\n_chem_comp.id X\n";
    small_case test;
    fm_components others;
    fm_part_assembly part;
    fm_assembly loaded;
    fm_error error = {0};
    read_small(&test);
    must(fm_components_parse((fm_bytes){(const uint8_t *)known, sizeof known - 1}, &test.arena,
                             &others, &error),
         &error);
    must(fm_assembly_pack(&test.assembly, &test.components.hash, &test.arena, &part, &error),
         &error);
    assert_int_equal(fm_assembly_unpack(&part, &others, &test.arena, &loaded, &error),
                     FM_ERR_CORRUPT);
    fm_arena_fini(&test.arena);
}

/* Every byte of a part counts: a changed one is refused, or gives a part that encodes to it. */
static void changed_bytes_are_refused_or_canonical(void **state) {
    (void)state;
    small_case test;
    fm_error error = {0};
    read_small(&test);
    fm_bytes bytes = assert_round_trip(&test.assembly, &test.components, &test.arena);
    uint8_t *changed = fm_arena_alloc(&test.arena, bytes.size);
    memcpy(changed, bytes.data, bytes.size);
    size_t mark = fm_arena_mark(&test.arena), n_refused = 0;
    for (size_t i = 0; i < bytes.size; i++) {
        fm_part_assembly part;
        fm_assembly loaded;
        fm_bytes again;
        fm_arena_rewind(&test.arena, mark);
        changed[i] ^= 1;
        if (fm_part_assembly_decode((fm_bytes){changed, bytes.size}, &test.arena, &part, &error)) {
            assert_true(error.message[0]);
            n_refused++;
        } else {
            must(fm_part_assembly_encode(&part, &test.arena, &again, &error), &error);
            assert_int_equal(again.size, bytes.size);
            assert_memory_equal(again.data, changed, bytes.size);
            (void)!fm_assembly_unpack(&part, &test.components, &test.arena, &loaded, &error);
        }
        changed[i] ^= 1;
    }
    assert_true(n_refused > bytes.size / 2);
    for (size_t size = 0; size < bytes.size; size++) {
        fm_part_assembly part;
        fm_arena_rewind(&test.arena, mark);
        assert_int_not_equal(
            fm_part_assembly_decode((fm_bytes){changed, size}, &test.arena, &part, &error), FM_OK);
    }
    fm_arena_fini(&test.arena);
}

/* Names and elements that are not the components' are checked. */
static void an_unknown_element_is_refused(void **state) {
    (void)state;
    small_case test;
    fm_part_assembly part, again;
    fm_part_other_atom other = {.atom = 0, .name = "X1", .element = FM_N_ELEMENT - 1};
    fm_error error = {0};
    fm_bytes bytes = {0};
    read_small(&test);
    must(fm_assembly_pack(&test.assembly, &test.components.hash, &test.arena, &part, &error),
         &error);
    part.n_other = 1;
    part.others = &other;
    must(fm_part_assembly_encode(&part, &test.arena, &bytes, &error), &error);
    must(fm_part_assembly_decode(bytes, &test.arena, &again, &error), &error);
    other.element++;
    must(fm_part_assembly_encode(&part, &test.arena, &bytes, &error), &error);
    assert_int_equal(fm_part_assembly_decode(bytes, &test.arena, &again, &error), FM_ERR_CORRUPT);
    assert_string_equal(error.message,
                        "the assembly part is broken: a name or an element is of no atom");
    fm_arena_fini(&test.arena);
}

static void entities_come_back(void **state) {
    (void)state;
    fm_arena arena;
    fm_error error = {0};
    fm_bytes bytes = {0};
    fm_part_entities again;
    fm_part_entity_inputs inputs[2] = {0};
    must(fm_arena_init(&arena, 1 << 20, &error), &error);
    inputs[1].hits.bytes[31] = 7;
    const fm_part_entities part = {2, inputs};
    must(fm_part_entities_encode(&part, &arena, &bytes, &error), &error);
    must(fm_part_entities_decode(bytes, &arena, &again, &error), &error);
    assert_int_equal(again.n_entity, 2);
    assert_memory_equal(again.inputs, inputs, sizeof inputs);
    assert_int_equal(
        fm_part_entities_decode((fm_bytes){bytes.data, bytes.size - 1}, &arena, &again, &error),
        FM_ERR_CORRUPT);
    fm_arena_fini(&arena);
}

/* -- rows */

static void assert_same_rows(const fm_sequence_rows *a, const fm_sequence_rows *b) {
    assert_int_equal(a->n_row, b->n_row);
    assert_int_equal(a->n_col, b->n_col);
    assert_memory_equal(a->ids, b->ids, (size_t)a->n_row * a->n_col);
    assert_memory_equal(a->deletion, b->deletion, (size_t)a->n_row * a->n_col);
    assert_memory_equal(a->hash, b->hash, a->n_row * sizeof *a->hash);
    assert_memory_equal(a->profile, b->profile, a->n_col * FM_N_RESTYPE32 * sizeof *a->profile);
    assert_memory_equal(a->deletion_mean, b->deletion_mean, a->n_col * sizeof *a->deletion_mean);
}

static void check_rows(const char *text, const char *sequence, fm_polymer polymer,
                       fm_entity_rows kind) {
    const fm_assembly_entity entity = {.id = "1",
                                       .sequence = sequence,
                                       .n_residue = (uint32_t)strlen(sequence),
                                       .polymer = (uint8_t)polymer};
    const fm_msa_input input = {
        .name = "rows.a3m", .content = {(const uint8_t *)text, strlen(text)}, .format = FM_MSA_A3M};
    fm_arena arena;
    fm_error error = {0};
    fm_part_msa msa, again;
    fm_bytes bytes = {0};
    fm_sequence_rows direct, loaded;
    must(fm_arena_init(&arena, (size_t)64 << 20, &error), &error);
    must(fm_sequence_rows_read(&input, 1, (fm_bytes){(const uint8_t *)sequence, strlen(sequence)},
                               polymer, NULL, &arena, &direct, &error),
         &error);
    must(fm_entity_msa_build(&input, 1, &entity, kind, &arena, &msa, &error), &error);
    must(fm_part_msa_encode(&msa, &arena, &bytes, &error), &error);
    must(fm_part_msa_decode(bytes, &arena, &again, &error), &error);
    must(fm_sequence_rows_of_msa(&again, polymer, &arena, &loaded, &error), &error);
    assert_same_rows(&direct, &loaded);
    for (uint32_t i = 0; i < direct.n_row && kind == FM_ENTITY_ROWS_PAIRED; i++) {
        assert_int_equal(direct.species[i].size, loaded.species[i].size);
        if (!direct.species[i].size) continue;
        assert_memory_equal(direct.species[i].data, loaded.species[i].data, direct.species[i].size);
    }
    fm_arena_fini(&arena);
}

static void rows_come_back(void **state) {
    (void)state;
    static const char proteins[] = ">q\nACDEFGB\n>tr|A0A123|X_HUMAN/1-7 x\nACDEFaaGU\n"
                                   ">UniRef100_Q1_9606123/1-7\nZ-OJXWY\n>x\nACDEFGB\n";
    static const char bases[] = ">q\nACGUN\n>a\nACGTR\n>b\nAC-uuGY\n>c\nACGTN\n";
    check_rows(proteins, "ACDEFGB", FM_POLYMER_PEPTIDE_L, FM_ENTITY_ROWS_ALL);
    check_rows(proteins, "ACDEFGB", FM_POLYMER_PEPTIDE_L, FM_ENTITY_ROWS_PAIRED);
    check_rows(bases, "ACGUN", FM_POLYMER_RNA, FM_ENTITY_ROWS_ALL);
}

/* More deletions than features tell apart count whole in their mean. */
static void long_deletions_come_back(void **state) {
    (void)state;
    char text[512] = ">q\nACDEF\n>r\nAC";
    size_t n = strlen(text);
    memset(text + n, 'a', 300);
    strcpy(text + n + 300, "DEF\n");
    check_rows(text, "ACDEF", FM_POLYMER_PEPTIDE_L, FM_ENTITY_ROWS_ALL);
}

static void names_tell_the_rows(void **state) {
    (void)state;
    assert_int_equal(fm_entity_rows_of_name("uniprot_hits.sto.gz"), FM_ENTITY_ROWS_PAIRED);
    assert_int_equal(fm_entity_rows_of_name("uniprot_hits.a3m"), FM_ENTITY_ROWS_PAIRED);
    assert_int_equal(fm_entity_rows_of_name("bfd_uniref_hits.a3m"), FM_ENTITY_ROWS_ALL);
    assert_int_equal(fm_entity_rows_of_name("hmm_output.sto"), FM_ENTITY_ROWS_NONE);
}

/* -- the reference's structures */

static void structures_come_back(void **state) {
    (void)state;
    static complex_case test;
    size_t stored = 0, n = 0;
    if (!fm_test_reference()) skip();
    complex_case_init(&test);
    for (size_t i = 0; i < 2 * N_COMPLEX; i++) {
        const fm_assembly_options options = {.compat_protenix = i % 2 == 1};
        const char *id = complex_ids[i / 2];
        char relative[64], path[4096];
        fm_assembly assembly = {0};
        fm_bytes text = {0};
        fm_error error = {0};
        fm_arena_rewind(&test.arena, test.mark);
        snprintf(relative, sizeof relative, "dev/mmcif/%s.cif", id);
        fm_test_reference_path(path, sizeof path, relative);
        must(fm_file_read_text(&test.arena, path, FM_LIMIT_INPUT_BYTES, &text, &error), &error);
        must(fm_assembly_read(text, &test.components, &options, &test.arena, &assembly, &error),
             &error);
        fm_bytes bytes = assert_round_trip(&assembly, &test.components, &test.arena);
        size_t room = fm_zstd_bound(bytes.size), packed = 0;
        void *frame = fm_arena_alloc(&test.arena, room);
        must(fm_zstd_compress(frame, room, bytes.data, bytes.size, 3, &packed, &error), &error);
        if (options.compat_protenix) continue;
        fprintf(stderr, "%s: %u chains, %u atoms, %zu bytes, %zu packed\n", id, assembly.n_chain,
                assembly.n_atom, bytes.size, packed);
        stored += packed;
        n++;
    }
    fprintf(stderr, "%zu bytes in the mean\n", stored / n);
    assert_in_range(stored / n, 1, 60000);
    fm_arena_fini(&test.arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_small_assembly_comes_back),
        cmocka_unit_test(another_set_of_components_is_refused),
        cmocka_unit_test(changed_bytes_are_refused_or_canonical),
        cmocka_unit_test(an_unknown_element_is_refused),
        cmocka_unit_test(entities_come_back),
        cmocka_unit_test(rows_come_back),
        cmocka_unit_test(long_deletions_come_back),
        cmocka_unit_test(names_tell_the_rows),
        cmocka_unit_test(structures_come_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
