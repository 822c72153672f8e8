/* windows.h: arranges arrays of atoms as windows of 32 queries and 128 keys
 * (backend/atom_operands.h).
 *
 * The queries of all windows are the atoms, padded with rows of zeros to a multiple of 32 rows. The
 * keys are the atoms with 48 rows of zeros before them and at least 48 after them. So the keys of
 * window b are the 128 rows from row 32b on, and neighbouring windows share rows. */
#ifndef FM_TRAINER_WINDOWS_H
#define FM_TRAINER_WINDOWS_H

#include "trainer/ops/call.h"

static inline int64_t fm_windows_count(int64_t n_atom) {
    return (n_atom + FM_WINDOW_QUERIES - 1) / FM_WINDOW_QUERIES;
}
static inline int64_t fm_windows_query_rows(int64_t n_atom) {
    return fm_windows_count(n_atom) * FM_WINDOW_QUERIES;
}
static inline int64_t fm_windows_key_rows(int64_t n_atom) {
    return fm_windows_query_rows(n_atom) + FM_WINDOW_KEYS - FM_WINDOW_QUERIES;
}

/* Copies x [n_batch, n_atom, c] between rows of zeros. Returns [n_batch, n_row, c] in the
 * workspace, where the atoms begin at row `first`, or x itself where nothing is added. */
const void *fm_windows_pad(fm_run *run, int64_t n_batch, int64_t n_atom, int64_t first,
                           int64_t n_row, int64_t c, const void *x);

/* Does the reverse: y [n_batch, n_atom, c] (+)= the rows of x [n_batch, n_row, c] from row `first`
 * on. */
void fm_windows_unpad(fm_run *run, int64_t n_batch, int64_t n_atom, int64_t first, int64_t n_row,
                      int64_t c, const void *x, fm_out y);

/* Copies keys [n_batch, key rows, c] to windows [n_batch, n_window, 128, c]. */
void fm_windows_gather(fm_run *run, int64_t n_batch, int64_t n_atom, int64_t c, const void *keys,
                       void *windows);
/* The backward of fm_windows_gather: writes to each row of keys the sum over the windows that
 * contain it, in order. */
void fm_windows_fold(fm_run *run, int64_t n_batch, int64_t n_atom, int64_t c, const void *windows,
                     void *keys);

#endif
