/* fuzz_complex_structure.c: assemblies of arbitrary mmCIF text, with a small set of components.
 *
 * Properties: refused text has a message, and a place unless a limit is why. What is accepted has
 * tables whose levels fit in one another, ordered bonds between its atoms, and finite positions. */
#include "featurizer/complex/components.h"
#include "featurizer/complex/read.h"
#include "tests/featurizer/complex_text.h"

#include <assert.h>
#include <math.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_levels(const fm_assembly *assembly) {
    for (uint32_t i = 0; i < assembly->n_chain; i++) {
        const fm_assembly_chain *chain = &assembly->chains[i];
        assert(chain->entity < assembly->n_entity && chain->first_atom < assembly->n_atom);
        assert(fm_assembly_chain_end_atom(assembly, i) > chain->first_atom);
    }
    for (uint32_t i = 0; i < assembly->n_residue; i++) {
        assert(assembly->residues[i].chain < assembly->n_chain);
        assert(fm_assembly_residue_end_atom(assembly, i) >= assembly->residues[i].first_atom);
    }
    for (uint32_t i = 0; i < assembly->n_token; i++)
        assert(assembly->tokens[i].centre - assembly->tokens[i].first_atom <
               assembly->tokens[i].n_atom);
}

static void check_atoms(const fm_assembly *assembly) {
    for (uint32_t i = 0; i < assembly->n_atom; i++) {
        const fm_assembly_atom *atom = &assembly->atoms[i];
        assert(atom->residue < assembly->n_residue && atom->name[0]);
        for (int axis = 0; axis < 3; axis++)
            assert(isfinite(atom->position[axis]));
    }
    for (uint32_t i = 0; i < assembly->n_bond; i++) {
        const fm_assembly_bond *bond = &assembly->bonds[i];
        assert(bond->a < bond->b && bond->b < assembly->n_atom);
        assert(i == 0 || bond[-1].a < bond->a || (bond[-1].a == bond->a && bond[-1].b < bond->b));
    }
    for (uint32_t i = 0; i < assembly->n_pair; i++) {
        assert(assembly->pairs[i].a < assembly->n_chain);
        assert(assembly->pairs[i].b < assembly->n_chain);
    }
}

static void check(fm_bytes text, bool compat) {
    static const char known[] = COMPLEX_COMPONENTS;
    const fm_assembly_options options = {.compat_protenix = compat};
    fm_components components;
    fm_assembly assembly;
    fm_arena arena;
    fm_error error = {0};
    fm_status status = fm_arena_init(&arena, (size_t)256 << 20, &error);
    assert(!status);
    status = fm_components_parse((fm_bytes){(const uint8_t *)known, sizeof known - 1}, &arena,
                                 &components, &error);
    assert(!status);
    status = fm_assembly_read(text, &components, &options, &arena, &assembly, &error);
    if (status) {
        assert(error.status == status && error.message[0]);
        assert(error.line > 0 || status == FM_ERR_LIMIT || status == FM_ERR_DATA ||
               status == FM_ERR_NOT_FOUND);
    } else {
        assert(assembly.n_chain > 0 && assembly.n_atom > 0);
        check_levels(&assembly);
        check_atoms(&assembly);
    }
    fm_arena_fini(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    check((fm_bytes){data, size}, false);
    check((fm_bytes){data, size}, true);
    return 0;
}
