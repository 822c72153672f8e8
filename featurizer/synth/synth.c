/* synth.c: the plan of the dataset: its entries, their ids, chains and families. */
#include "featurizer/synth/synth.h"

#include "featurizer/synth/family.h"

#include <assert.h>

fm_synth_options fm_synth_default_options(void) {
    return (fm_synth_options){.seed = 0, .min_length = 30, .max_length = 220, .max_depth = 2000};
}

/* What the complexes of eight entries in turn have, so that few of them have everything. */
static const fm_synth_recipe recipes[] = {
    {.n_chain = 1, .n_ligand = 1, .n_ion = 1, .n_copy = 1},
    {.n_chain = 1, .n_strand = 1, .is_rna = true, .n_ion = 1, .n_copy = 1},
    {.n_chain = 2, .n_sugar = 2, .n_copy = 1},
    {.n_chain = 1, .n_strand = 2, .n_ligand = 1, .n_copy = 1},
    {.n_chain = 1, .n_ligand = 1, .n_copy = 3},
    {.n_chain = 2, .same = true, .n_strand = 2, .is_rna = true, .same_strand = true, .n_copy = 1},
    {.n_chain = 2, .same = true, .n_sugar = 1, .n_ligand = 2, .n_ion = 2, .n_copy = 1},
    {.n_chain = 1, .n_strand = 2, .same_strand = true, .n_ion = 1, .n_copy = 2},
};

/* Formats ids: all "9xyz" in a scrambled order, then all "8xyz", and so on. Adding STEP repeatedly
 * modulo PER_DIGIT visits every value once, because the two share no factor. */
static void format_id(uint32_t index, char out[5]) {
    static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    enum { PER_DIGIT = 36 * 36 * 36, STEP = 13127, START = 13000 }; /* ids per first digit */
    uint32_t scrambled = (uint32_t)(((uint64_t)(index % PER_DIGIT) * STEP + START) % PER_DIGIT);
    out[0] = (char)('9' - index / PER_DIGIT);
    out[1] = digits[scrambled / (36 * 36)];
    out[2] = digits[scrambled / 36 % 36];
    out[3] = digits[scrambled % 36];
    out[4] = '\0';
}

/* Half of the chains found a family, and half join the family of an earlier entry's first chain.
 * Sizes become unequal, as in nature, and entry e depends only on draws of earlier entries. */
static uint32_t family_of(uint64_t seed, uint32_t entry, uint32_t slot) {
    for (;;) {
        fm_synth_draws draws = fm_synth_draws_of(seed, FM_SYNTH_DRAW_FAMILY, entry, slot);
        if (entry == 0 || fm_synth_draw_chance(&draws, 1, 2)) return 2 * entry + slot;
        entry = fm_synth_draw_below(&draws, entry);
        slot = 0;
    }
}

fm_synth_entry fm_synth_entry_of(const fm_synth_options *options, uint32_t index) {
    assert(index < FM_SYNTH_MAX_ENTRIES);
    fm_synth_draws draws = fm_synth_draws_of(options->seed, FM_SYNTH_DRAW_ENTRY, index, 0);
    fm_synth_entry entry = {.index = index};
    format_id(index, entry.id);
    uint32_t kind = fm_synth_draw_below(&draws, 8);
    if (options->complexes) entry.recipe = &recipes[index % (sizeof recipes / sizeof recipes[0])];
    entry.n_chain = entry.recipe ? entry.recipe->n_chain : kind < 3 ? 2 : 1;
    entry.same = entry.recipe ? entry.recipe->same : kind < 2;
    /* Author chain ids usually start at A, but not always, as in real files. */
    char first =
        fm_synth_draw_chance(&draws, 1, 6) ? (char)('C' + fm_synth_draw_below(&draws, 6)) : 'A';
    for (uint32_t slot = 0; slot < entry.n_chain; slot++) {
        entry.auth_chain[slot] = (char)(first + (char)slot);
        entry.family[slot] = family_of(options->seed, index, entry.same ? 0 : slot);
    }
    for (uint32_t strand = 0; entry.recipe && strand < entry.recipe->n_strand; strand++)
        entry.auth_strand[strand] = (char)(first + (char)(entry.n_chain + strand));
    return entry;
}
