/* chain_file.c: see chain_file.h. */
#include "trainer/predict/chain_file.h"

#include "proto/base/hash.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Whether the commands have a file or folder of this name beside the folders of chains. */
static bool is_reserved(const char *name) {
    static const char *const names[] = {"lock",       "summary.csv", "timings.json",
                                        "chains.txt", "data",        "confidences"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}

static bool is_plain(unsigned char byte) {
    return byte > ' ' && byte != 0x7f && byte != '/' && byte != '%';
}

void fm_chain_file_name(const char *chain, char out[FM_CHAIN_FILE_MOST + 1]) {
    enum { ESCAPE = 3, HASH = 18 };
    bool escapes_first = chain[0] == '.' || is_reserved(chain);
    size_t at = 0, cut = 0; /* cut: the bytes that a long name keeps */
    const unsigned char *from = (const unsigned char *)chain;
    for (size_t i = 0; from[i]; i++) {
        bool plain = is_plain(from[i]) && !(i == 0 && escapes_first);
        if (at + (plain ? 1 : ESCAPE) > FM_CHAIN_FILE_MOST) {
            snprintf(out + cut, HASH + 1, "%%~%016llx",
                     (unsigned long long)fm_xxh3(chain, strlen(chain)));
            return;
        }
        at += (size_t)snprintf(out + at, ESCAPE + 1, plain ? "%c" : "%%%02X", from[i]);
        if (at + HASH <= FM_CHAIN_FILE_MOST) cut = at;
    }
    out[at] = '\0';
}

const char *fm_chain_in_dataset(const char *chain, size_t *ret_dataset_bytes) {
    size_t length =
        strspn(chain, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-");
    bool has_dataset = length && chain[length] == ':' && chain[length + 1];
    *ret_dataset_bytes = has_dataset ? length : 0;
    return has_dataset ? chain + length + 1 : chain;
}
