/* components_code.h: the canonical form of a set of components, and the file that holds it.
 *
 * The canonical form is little-endian: version, number of components, and each component with its
 * atoms and bonds, in the order of ids. Version 2 also has types, names, formulas and weights; a
 * set of version 1 is written as such. The form's SHA-256 is the set's hash. The file holds the
 * same bytes compressed, so that the dictionary's 400 MB of text are read once:
 *
 *     | magic "foldcomp" | u64 bytes of the form | SHA-256 of the form | zstd frame |
 */
#ifndef FM_COMPLEX_COMPONENTS_CODE_H
#define FM_COMPLEX_COMPONENTS_CODE_H

#include "featurizer/complex/components.h"

/* Writes the canonical form into the arena. */
FM_MUST_USE fm_status fm_components_encode(const fm_components *components, fm_arena *arena,
                                           fm_bytes *ret_form, fm_error *reterr);

/* Reads a canonical form, and computes its hash. Everything is in the arena; the form may be freed.
 * Returns FM_ERR_CORRUPT, with the offset, for bytes that fm_components_encode does not write. */
FM_MUST_USE fm_status fm_components_decode(fm_bytes form, fm_arena *arena,
                                           fm_components *ret_components, fm_error *reterr);

/* Writes the file of a set of components into the arena. */
FM_MUST_USE fm_status fm_components_pack(const fm_components *components, fm_arena *arena,
                                         fm_bytes *ret_file, fm_error *reterr);

/* Reads such a file. Everything is in the arena; the file may be freed. Returns FM_ERR_CORRUPT
 * unless the file is exactly what fm_components_pack writes. */
FM_MUST_USE fm_status fm_components_unpack(fm_bytes file, fm_arena *arena,
                                           fm_components *ret_components, fm_error *reterr);

/* Returns whether the bytes start as such a file does. */
bool fm_components_is_packed(fm_bytes file);

/* Reads a packed file or mmCIF text, whichever the bytes are. */
FM_MUST_USE fm_status fm_components_read(fm_bytes file, fm_arena *arena,
                                         fm_components *ret_components, fm_error *reterr);

#endif
