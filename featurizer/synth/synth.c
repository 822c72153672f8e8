/* synth.c: the plan of the dataset: its entries, their ids, chains and families. */
#include "featurizer/synth/synth.h"

#include "featurizer/synth/family.h"

#include <assert.h>

fm_synth_options fm_synth_default_options(void) {
    return (fm_synth_options){.seed = 0, .min_length = 30, .max_length = 220, .max_depth = 2000};
}

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
    entry.n_chain = kind < 3 ? 2 : 1;
    entry.same = kind < 2;
    /* Author chain ids usually start at A, but not always, as in real files. */
    char first =
        fm_synth_draw_chance(&draws, 1, 6) ? (char)('C' + fm_synth_draw_below(&draws, 6)) : 'A';
    for (uint32_t slot = 0; slot < entry.n_chain; slot++) {
        entry.auth_chain[slot] = (char)(first + (char)slot);
        entry.family[slot] = family_of(options->seed, index, entry.same ? 0 : slot);
    }
    return entry;
}
