/* fuzz_pages.c: arbitrary bytes as the pages of an LMDB file: as a shard, with its blobs and notes,
 * and as a table. */
#include "cache/store/pages.h"
#include "cache/store/shard.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static fm_status see_blob(void *context, const fm_sha256 *hash, const fm_shard_blob *blob,
                          fm_error *reterr) {
    (void)hash;
    (void)reterr;
    const size_t *size = context;
    if (blob->offset + blob->stored_bytes > *size) abort();
    return FM_OK;
}

static fm_status see_note(void *context, const fm_sha256 *key, fm_bytes value, fm_error *reterr) {
    (void)key;
    (void)reterr;
    const size_t *size = context;
    if (value.size > *size) abort();
    return FM_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    int fd = memfd_create("pages", MFD_CLOEXEC);
    assert(fd >= 0);
    if (write(fd, data, size) != (ssize_t)size) abort();
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const fm_shard_visitor visitor = {&size, see_blob, see_note};
    fm_shard_info info;
    if (fm_shard_walk(path, NULL, &visitor, &info, NULL) == FM_ERR_IO) abort();
    fm_pages *pages;
    if (!fm_pages_open(fd, false, &pages, NULL)) fm_pages_close(pages);
    close(fd);
    return 0;
}
