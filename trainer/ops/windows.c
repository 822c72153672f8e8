/* windows.c: see windows.h. */
#include "trainer/ops/windows.h"

const void *fm_windows_pad(fm_run *run, int64_t n_batch, int64_t n_atom, int64_t first,
                           int64_t n_row, int64_t c, const void *x) {
    if (n_row == n_atom) return x;
    void *y = fm_run_workspace_act(run, n_batch * n_row * c);
    fm_call_fill(run, n_batch * n_row * c, 0.0, y);
    fm_call_copy_strided(
        run, &(fm_strided){.rank = 2,
                           .shape = {n_batch, n_atom * c},
                           .x_stride = {n_atom * c, 1},
                           .y_stride = {n_row * c, 1},
                           .alpha = 1,
                           .x = x,
                           .y = {fm_run_at(y, first * c, run->kernels->act), FM_WRITE}});
    return y;
}

void fm_windows_unpad(fm_run *run, int64_t n_batch, int64_t n_atom, int64_t first, int64_t n_row,
                      int64_t c, const void *x, fm_out y) {
    fm_call_copy_strided(run, &(fm_strided){.rank = 2,
                                            .shape = {n_batch, n_atom * c},
                                            .x_stride = {n_row * c, 1},
                                            .y_stride = {n_atom * c, 1},
                                            .alpha = 1,
                                            .x = fm_run_at(x, first * c, run->kernels->act),
                                            .y = y});
}

void fm_windows_gather(fm_run *run, int64_t n_batch, int64_t n_atom, int64_t c, const void *keys,
                       void *windows) {
    int64_t n_window = fm_windows_count(n_atom), width = FM_WINDOW_KEYS * c;
    fm_call_copy_strided(
        run, &(fm_strided){.rank = 3,
                           .shape = {n_batch, n_window, width},
                           .x_stride = {fm_windows_key_rows(n_atom) * c, FM_WINDOW_QUERIES * c, 1},
                           .y_stride = {n_window * width, width, 1},
                           .alpha = 1,
                           .x = keys,
                           .y = {windows, FM_WRITE}});
}

/* Adds the windows in four passes. A pass adds 32 rows of each window, and these rows do not
 * overlap. */
void fm_windows_fold(fm_run *run, int64_t n_batch, int64_t n_atom, int64_t c, const void *windows,
                     void *keys) {
    int64_t n_window = fm_windows_count(n_atom), rows = fm_windows_key_rows(n_atom);
    int64_t pass = FM_WINDOW_QUERIES * c;
    fm_element act = run->kernels->act;
    fm_call_fill(run, n_batch * rows * c, 0.0, keys);
    for (int64_t first = 0; first < FM_WINDOW_KEYS * c; first += pass) {
        fm_call_copy_strided(
            run, &(fm_strided){.rank = 3,
                               .shape = {n_batch, n_window, pass},
                               .x_stride = {n_window * FM_WINDOW_KEYS * c, FM_WINDOW_KEYS * c, 1},
                               .y_stride = {rows * c, pass, 1},
                               .alpha = 1,
                               .x = fm_run_at(windows, first, act),
                               .y = {fm_run_at(keys, first, act), FM_ADD}});
    }
}
