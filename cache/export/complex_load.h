/* complex_load.h: loads complexes from a cache.
 *
 * A complex is an item of a store beside the chains, with a name, facts and a hash as they have
 * (store.h). A reader decodes the store's sets of components once; any number of threads may then
 * load complexes. */
#ifndef FM_CACHE_COMPLEX_LOAD_H
#define FM_CACHE_COMPLEX_LOAD_H

#include "cache/store/store.h"
#include "featurizer/complex/complex.h"

typedef struct fm_complex_reader fm_complex_reader;

/* Decodes the sets of components of an open store, which must outlive the reader. A store without
 * complexes has none, and that is no error. FM_ERR_CORRUPT, FM_ERR_IO, FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_complex_reader_create(const fm_store *store,
                                               fm_complex_reader **ret_reader, fm_error *reterr);
void fm_complex_reader_destroy(fm_complex_reader *reader); /* NULL is fine */

/* The set with that hash; NULL when the store has none. Borrowed from the reader. */
const fm_components *fm_complex_reader_components(const fm_complex_reader *reader,
                                                  const fm_sha256 *hash);

/* Loads the assembly alone, without alignments. Errors as below. */
FM_MUST_USE fm_status fm_complex_load_assembly(const fm_complex_reader *reader, uint32_t item,
                                               fm_arena *arena, fm_assembly *ret_assembly,
                                               fm_error *reterr);

/* Loads everything of a complex into the arena: its assembly, and the rows and hits of its
 * entities. `item` is a complex (fm_store_item_kind). The components are the reader's. Structures
 * of hits are loaded by fm_store_load_structure, when they are chosen. FM_ERR_CORRUPT names the
 * shard; FM_ERR_IO; FM_ERR_LIMIT when the arena is full. */
FM_MUST_USE fm_status fm_complex_load(const fm_complex_reader *reader, uint32_t item,
                                      fm_arena *arena, fm_complex *ret_complex, fm_error *reterr);

#endif
