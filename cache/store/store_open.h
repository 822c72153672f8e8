/* store_open.h: the inside of an open store, for the parts of cache/ that read blobs themselves. */
#ifndef FM_CACHE_STORE_OPEN_H
#define FM_CACHE_STORE_OPEN_H

#include "cache/store/blob.h"
#include "cache/store/generation.h"
#include "cache/store/store.h"

#include <limits.h>
#include <stdatomic.h>

struct fm_store {
    char path[PATH_MAX];
    fm_arena arena; /* the generation's arrays */
    fm_generation generation;
    fm_store_info info;
    int *fd; /* [n_shard], owned */
    /* [n_blob] the XXH3 of each frame whose content had the right SHA-256; 0: none was loaded yet.
     * Loads of several threads set it; calloc's pages become memory as parts are loaded. */
    _Atomic uint64_t *checked;
};

/* Reads the stored bytes of one blob into packed[stored_bytes], which *ret_blob borrows, and checks
 * the blob's header and checksum against the index. bench_store measures it without what follows.
 * FM_ERR_CORRUPT, FM_ERR_IO. */
FM_MUST_USE fm_status fm_store_read_packed(const fm_store *store, uint32_t blob, uint8_t *packed,
                                           fm_blob *ret_blob, fm_error *reterr);

/* Reads, decompresses and checks one blob; the decoded bytes are in the arena. The SHA-256 of the
 * content is computed for the first load of a frame by this store (decision 0019). */
FM_MUST_USE fm_status fm_store_read_blob(const fm_store *store, uint32_t blob, fm_arena *arena,
                                         fm_bytes *ret_bytes, fm_error *reterr);

/* Finds the blob with that content hash in the index; false when there is none. */
bool fm_store_find_blob(const fm_store *store, const fm_sha256 *identity, uint32_t *ret_blob);

#endif
