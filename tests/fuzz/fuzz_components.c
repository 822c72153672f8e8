/* fuzz_components.c: chemical components from arbitrary bytes.
 *
 * Properties: refused text has a message and, unless a limit or the arena is why, a place. What is
 * accepted is sorted by id and found by it, its bonds join atoms of the component, and its
 * canonical form is read as the same set, also from a file. The bytes as a canonical form and as a
 * file are refused or read, and then written as the same bytes. */
#include "featurizer/complex/components_code.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_set(const fm_components *set) {
    for (uint32_t i = 0; i < set->n; i++) {
        const fm_component *component = &set->items[i];
        assert(fm_components_find(set, component->id) == component);
        for (uint32_t k = 0; k < component->n_bond; k++) {
            assert(component->bonds[k].a < component->bonds[k].b);
            assert(component->bonds[k].b < component->n_atom);
        }
        for (uint32_t k = 0; k < component->n_atom; k++)
            assert(fm_component_find_atom(component, component->atoms[k].name) >= 0);
    }
}

static void check_text(fm_bytes bytes, fm_arena *arena) {
    fm_components set, again;
    fm_error error = {0};
    fm_bytes file = {0};
    fm_status status = fm_components_parse(bytes, arena, &set, &error);
    if (status) {
        assert(error.status == status && error.message[0]);
        assert(error.line >= 1 || status == FM_ERR_LIMIT);
        return;
    }
    check_set(&set);
    status = fm_components_pack(&set, arena, &file, &error);
    assert(!status);
    status = fm_components_read(file, arena, &again, &error);
    assert(!status && memcmp(&set.hash, &again.hash, sizeof set.hash) == 0);
}

static void check_form(fm_bytes bytes, fm_arena *arena) {
    fm_components set;
    fm_error error = {0};
    fm_bytes form = {0};
    fm_status status = fm_components_decode(bytes, arena, &set, &error);
    if (status) {
        assert(error.status == status && error.message[0]);
        return;
    }
    check_set(&set);
    status = fm_components_encode(&set, arena, &form, &error);
    assert(!status && form.size == bytes.size && memcmp(form.data, bytes.data, form.size) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fm_bytes bytes = {data, size};
    fm_arena arena;
    fm_components set;
    fm_status status = fm_arena_init(&arena, (size_t)64 << 20, NULL);
    assert(!status);
    (void)status;
    if (size) {
        check_text(bytes, &arena);
        check_form(bytes, &arena);
        status = fm_components_unpack(bytes, &arena, &set, NULL);
        if (!status) check_set(&set);
    }
    fm_arena_fini(&arena);
    return 0;
}
