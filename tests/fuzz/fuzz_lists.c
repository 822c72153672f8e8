/* fuzz_lists.c: arbitrary bytes as a list beside a dataset; the first byte selects
 * chain_data_cache.json, mmcif_cache.json (ids in lower case) or obsolete.dat. The names in a list
 * are sorted and unique and are found again; chains of replacements end. */
#include "cache/source/source_parts.h"

#include "proto/record_part.h"

#include <assert.h>
#include <math.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_listing(fm_bytes text, bool is_ids, fm_arena *arena) {
    fm_json_bytes bytes = {text.data, text.size, 0};
    fm_listing listing;
    fm_error error;
    if (fm_source_parse_listing(fm_json_of_bytes(&bytes), text.size, is_ids, arena, &listing,
                                &error)) {
        assert(error.message[0]);
        return;
    }
    for (uint32_t i = 0; i < listing.n; i++) {
        const fm_listed *listed = &listing.listed[i];
        assert(fm_source_is_good_name(listed->name, strlen(listed->name)));
        assert(i == 0 || strcmp(listing.listed[i - 1].name, listed->name) < 0);
        assert(fm_listing_find(&listing, listed->name) == listed);
        assert(fm_part_is_date(listed->release_date));
        assert(isfinite(listed->resolution) && listed->resolution >= 0.0f);
        for (const char *c = listed->name; *c && is_ids; c++)
            assert(*c < 'A' || *c > 'Z');
    }
}

static void check_obsolete(fm_bytes text, fm_arena *arena) {
    fm_source_dataset dataset = {.prefix = ""};
    const fm_source source = {.n_dataset = 1, .dataset = &dataset};
    if (fm_source_parse_obsolete(text, arena, &dataset.obsolete, NULL)) return;
    for (uint32_t i = 0; i < dataset.obsolete.n; i++) {
        const fm_obsolete *entry = &dataset.obsolete.entry[i];
        assert(i == 0 || strcmp(entry[-1].id, entry->id) < 0);
        const char *last = fm_source_successor(&source, entry->id);
        assert(!last == entry->is_circle);
        /* The last one has no successor. */
        assert(!last || !fm_source_successor(&source, last));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fm_arena arena;
    if (size == 0 || fm_arena_init(&arena, (size_t)256 << 20, NULL)) return 0;
    const fm_bytes text = {data + 1, size - 1};
    if (data[0] % 3 == 2) {
        check_obsolete(text, &arena);
    } else {
        check_listing(text, data[0] % 3 == 1, &arena);
    }
    fm_arena_fini(&arena);
    return 0;
}
