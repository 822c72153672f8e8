/* read_input.c: see read_input.h. */
#include "server/cli/read_input.h"

#include "featurizer/complex/components_code.h"
#include "proto/base/compress.h"
#include "proto/base/directory.h"
#include "proto/base/file.h"
#include "proto/limits.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FIRST_BYTES = 1 << 16 };

bool fm_cli_is_stdin(const char *path) {
    return strcmp(path, "-") == 0;
}

const char *fm_cli_input_name(const char *path) {
    return fm_cli_is_stdin(path) ? "standard input" : path;
}

/* Reads to the end into *text, which the caller frees. */
static fm_status read_stdin(uint8_t **text, size_t *ret_bytes, fm_error *reterr) {
    size_t bytes = 0, capacity = 0;
    for (;;) {
        if (bytes == capacity) {
            capacity = capacity ? capacity * 2 : FIRST_BYTES;
            uint8_t *grown = realloc(*text, capacity);
            if (!grown) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for %zu bytes", capacity);
            *text = grown;
        }
        size_t n = fread(*text + bytes, 1, capacity - bytes, stdin);
        bytes += n;
        if (bytes > FM_LIMIT_INPUT_BYTES) {
            return fm_fail(reterr, FM_ERR_LIMIT, "more than %zu bytes", FM_LIMIT_INPUT_BYTES);
        }
        if (n == 0) break;
    }
    if (ferror(stdin)) return fm_fail(reterr, FM_ERR_IO, "cannot read: %s", strerror(errno));
    *ret_bytes = bytes;
    return FM_OK;
}

static fm_status keep(const uint8_t *text, size_t bytes, fm_arena *arena, fm_bytes *ret_text,
                      fm_error *reterr) {
    if (fm_compression_of_content(text, bytes) != FM_COMPRESSION_NONE) {
        return fm_unpack(arena, (fm_bytes){text, bytes}, FM_LIMIT_INPUT_BYTES, ret_text, reterr);
    }
    uint8_t *kept = fm_arena_alloc(arena, bytes + 1);
    if (!kept) return fm_arena_full(arena, reterr);
    memcpy(kept, text, bytes);
    *ret_text = (fm_bytes){kept, bytes};
    return FM_OK;
}

fm_status fm_cli_read_input(const char *path, fm_arena *arena, fm_bytes *ret_text,
                            fm_error *reterr) {
    if (!fm_cli_is_stdin(path)) {
        fm_path_kind kind;
        fm_status read = fm_file_read_text(arena, path, FM_LIMIT_INPUT_BYTES, ret_text, reterr);
        if (!read || fm_path_look(path, &kind, NULL) || kind != FM_PATH_OTHER) return read;
        return fm_fail_in(reterr, read, path, "%s; a pipe is read with '-', as standard input",
                          fm_path_refusal(kind, 0));
    }
    uint8_t *text = NULL;
    size_t bytes = 0;
    fm_status status = read_stdin(&text, &bytes, reterr);
    if (!status) status = keep(text, bytes, arena, ret_text, reterr);
    free(text);
    return status && reterr ? fm_error_in(reterr, fm_cli_input_name(path)) : status;
}

fm_status fm_cli_read_components(const char *path, fm_arena *arena, fm_components *ret_components,
                                 fm_error *reterr) {
    fm_bytes input = {0};
    fm_status status = fm_cli_read_input(path, arena, &input, reterr);
    if (status) return status;
    status = fm_components_read(input, arena, ret_components, reterr);
    return status ? fm_error_in(reterr, fm_cli_input_name(path)) : FM_OK;
}

bool fm_cli_reads_components_fast(const char *path) {
    enum { SMALL_BYTES = 16 << 20, MAGIC_BYTES = 8 };
    uint8_t magic[MAGIC_BYTES] = {0};
    uint64_t bytes = 0;
    int fd;
    if (fm_cli_is_stdin(path)) return false;
    if (fm_file_open(path, &fd, &bytes, NULL)) return true;
    ssize_t n = pread(fd, magic, sizeof magic, 0);
    close(fd);
    return bytes <= SMALL_BYTES || n < (ssize_t)sizeof magic ||
           fm_components_is_packed((fm_bytes){magic, sizeof magic});
}
