/* build_items.h: turns the source of a shared build into the list of a catalogue, and names back
 * into positions.
 *
 * An item is a chain, by its name. With single sequences each structure is one more item, for its
 * chains without alignments, which are unknown until it is read: "<dataset>:<id>/", a name that no
 * chain has. Where a structure has a complex, that is the item of the complex and of all chains:
 * the complex tells which of its chains are proteins, and shares its parts with them. */
#ifndef FM_CACHE_BUILD_ITEMS_H
#define FM_CACHE_BUILD_ITEMS_H

#include "cache/build/build_work.h"
#include "cache/catalogue/catalogue.h"

#define FM_BUILD_STRUCTURE UINT32_MAX

/* What an entry of the list means. */
typedef struct fm_build_target {
    uint32_t structure; /* position in the source */
    uint32_t chain;     /* of that structure, or FM_BUILD_STRUCTURE */
} fm_build_target;

typedef struct fm_build_items {
    fm_catalogue_listing listing;
    const fm_build_target *target; /* [listing.n] */
} fm_build_items;

/* Makes the list of the state's source, whose components are known; in the arena. FM_ERR_LIMIT. */
FM_MUST_USE fm_status fm_build_list_items(const fm_build_state *state, fm_arena *arena,
                                          fm_build_items *ret_items, fm_error *reterr);

/* Position of the item with that name; UINT32_MAX = none. */
uint32_t fm_build_find_item(const fm_build_items *items, const char *name);

#endif
