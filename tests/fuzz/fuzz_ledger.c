/* fuzz_ledger.c: reads any bytes as a line of a ledger. What can be read must be written the
 * same. */
#include "trainer/app/train/ledger.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fm_ledger_line line;
    char again[FM_LEDGER_LINE_BYTES], checked[FM_LEDGER_LINE_BYTES];
    fm_error error;
    if (fm_ledger_parse((const char *)data, size, &line, &error)) {
        assert(error.status == FM_ERR_FORMAT && error.message[0]);
    } else {
        assert(fm_ledger_format(&line, again) == size && memcmp(data, again, size) == 0);
    }
    /* The same text with the right check, so that it gets further. */
    if (size + 10 >= sizeof checked) return 0;
    char check[16];
    memcpy(checked, data, size);
    snprintf(check, sizeof check, " %08x\n", (unsigned)fm_xxh3(data, size));
    memcpy(checked + size, check, 10);
    if (fm_ledger_parse(checked, size + 10, &line, NULL)) return 0;
    assert(fm_ledger_format(&line, again) == size + 10 && memcmp(checked, again, size + 10) == 0);
    return 0;
}
