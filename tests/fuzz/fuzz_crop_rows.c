/* fuzz_crop_rows.c: tables of recorded crops from arbitrary bytes.
 *
 * Properties: a refused table has a message and, unless a limit is why, a place. Rows that are
 * accepted have ids that end, known methods, at least one token to choose and at most two chains.
 */
#include "featurizer/complex/crop_rows.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fm_arena arena;
    fm_error error = {0};
    const fm_crop_row *rows = NULL;
    uint32_t n = 0;
    fm_status status = fm_arena_init(&arena, (size_t)64 << 20, NULL);
    assert(!status);
    status = fm_crop_rows_parse((fm_bytes){data, size}, &arena, &rows, &n, &error);
    if (status) {
        assert(error.status == status && error.message[0]);
        assert(status == FM_ERR_LIMIT || (error.line >= 1 && error.column >= 1));
    }
    for (uint32_t i = 0; i < n; i++) {
        const fm_crop_request *request = &rows[i].request;
        assert(rows[i].id[0] && memchr(rows[i].id, 0, sizeof rows[i].id));
        assert(request->method < FM_N_CROP_METHOD && request->size >= 1);
        assert(request->n_reference <= 2);
    }
    fm_arena_fini(&arena);
    return 0;
}
