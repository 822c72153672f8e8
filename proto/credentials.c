/* credentials.c: see credentials.h. */
#include "proto/credentials.h"

#include "proto/base/file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TOKEN_MIN_BYTES = 16 };

bool fm_credentials_is_token(const char *text, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] <= ' ' || text[i] > '~') return false;
    }
    return bytes >= TOKEN_MIN_BYTES && bytes <= FM_WIRE_SECRET_BYTES;
}

static fm_status fail_token(const char *source, fm_error *reterr) {
    return fm_fail_in(reterr, FM_ERR_FORMAT, source,
                      "expected a token of %d to %d printable characters without blanks, alone on "
                      "one line",
                      TOKEN_MIN_BYTES, FM_WIRE_SECRET_BYTES);
}

static fm_status read_file(const char *path, char out[FM_WIRE_SECRET_BYTES + 1], fm_error *reterr) {
    fm_arena arena = {0};
    fm_bytes text;
    fm_status status = fm_arena_init(&arena, 1 << 16, reterr);
    if (!status) status = fm_file_read(&arena, path, 4096, &text, reterr);
    if (!status) {
        size_t bytes = text.size;
        if (bytes && text.data[bytes - 1] == '\n') bytes--;
        if (bytes && text.data[bytes - 1] == '\r') bytes--;
        if (fm_credentials_is_token((const char *)text.data, bytes)) {
            memcpy(out, text.data, bytes);
            out[bytes] = '\0';
        } else {
            status = fail_token(path, reterr);
        }
    }
    fm_arena_fini(&arena);
    return status;
}

fm_status fm_credentials_read_token(const fm_credentials *credentials,
                                    char out[FM_WIRE_SECRET_BYTES + 1], fm_error *reterr) {
    if (credentials->token_file) return read_file(credentials->token_file, out, reterr);
    const char *text = getenv(FM_CREDENTIALS_VARIABLE);
    size_t bytes = text ? strlen(text) : 0;
    if (bytes && !fm_credentials_is_token(text, bytes)) {
        return fail_token(FM_CREDENTIALS_VARIABLE, reterr);
    }
    if (bytes) memcpy(out, text, bytes);
    out[bytes] = '\0';
    return FM_OK;
}

/* A file that cannot be looked at is not exposed; reading it says why. */
static bool is_exposed(const char *path) {
    int fd = open(path, O_PATH | O_CLOEXEC);
    struct stat info;
    bool is = fd >= 0 && fstat(fd, &info) == 0 && (info.st_mode & S_IRWXO) != 0;
    if (fd >= 0) close(fd);
    return is;
}

const char *fm_credentials_exposed(const fm_credentials *credentials) {
    if (credentials->tls_key && is_exposed(credentials->tls_key)) return credentials->tls_key;
    if (credentials->token_file && is_exposed(credentials->token_file)) {
        return credentials->token_file;
    }
    return NULL;
}
