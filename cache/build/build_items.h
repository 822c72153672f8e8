/* build_items.h: the source of a shared build as a catalogue's list, and back. For
 * cache/build_shared*.c only.
 *
 * An item is a chain, by its name. With single sequences there is one more for each structure, for
 * its chains without alignments, which nobody knows before it is read: "<dataset>:<id>/", which no
 * chain is called. */
#ifndef FM_CACHE_BUILD_ITEMS_H
#define FM_CACHE_BUILD_ITEMS_H

#include "cache/build/build.h"
#include "cache/catalogue/catalogue.h"

#define FM_BUILD_SINGLES UINT32_MAX

/* What an entry of the list stands for. */
typedef struct fm_build_target {
    uint32_t structure; /* position in the source */
    uint32_t chain;     /* of that structure, or FM_BUILD_SINGLES */
} fm_build_target;

typedef struct fm_build_items {
    fm_catalogue_listing listing;
    const fm_build_target *target; /* [listing.n] */
} fm_build_items;

/* The list, in the arena. FM_ERR_LIMIT. */
FM_MUST_USE fm_status fm_build_list_items(const fm_source *source, const fm_build_options *options,
                                          fm_arena *arena, fm_build_items *ret_items,
                                          fm_error *reterr);

/* Position of the item of that name; UINT32_MAX = there is none. */
uint32_t fm_build_find_item(const fm_build_items *items, const char *name);

#endif
