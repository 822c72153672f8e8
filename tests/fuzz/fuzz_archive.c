/* fuzz_archive.c: arbitrary bytes as a zip archive of structures. An entry gives exactly the bytes
 * that it declares, or is refused with a message; no name leads out of the archive unnoticed.
 * Without libzip no archive opens, and there is nothing to check. */
#include "cache/source/archive.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_ENTRY_BYTES = 1 << 20, MAX_ENTRIES = 64 };

static void check_entry(fm_archive *archive, uint64_t entry) {
    fm_arena arena;
    fm_error error;
    fm_bytes content;
    uint64_t stored, declared;
    const char *name = fm_archive_name(archive, entry);
    if (!name || fm_arena_init(&arena, (size_t)4 << 20, NULL)) return;
    if (fm_archive_is_good_name(name)) assert(name[0] != '/' && strncmp(name, "../", 3) != 0);
    fm_archive_sizes(archive, entry, &stored, &declared);
    if (!fm_archive_read(archive, entry, MAX_ENTRY_BYTES, &arena, &content, &error)) {
        assert(content.size == declared && content.size <= MAX_ENTRY_BYTES);
    } else {
        assert(error.message[0]);
    }
    fm_arena_fini(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[64];
    fm_archive *archive;
    fm_error error;
    int fd = memfd_create("archive", MFD_CLOEXEC);
    assert(fd >= 0);
    assert(write(fd, data, size) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (!fm_archive_open(path, &archive, &error)) {
        uint64_t n = fm_archive_n_entry(archive);
        for (uint64_t i = 0; i < n && i < MAX_ENTRIES; i++)
            check_entry(archive, i);
        fm_archive_close(archive);
    } else {
        assert(error.message[0]);
    }
    close(fd);
    return 0;
}
