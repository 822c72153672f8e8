/* access_tokens.c: see access_tokens.h. */
#include "server/access_tokens.h"

#include "proto/base/arena.h"
#include "proto/base/utf8.h"
#include "proto/credentials.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct fm_access_tokens {
    uint32_t n_user, n;
    fm_access_token *at;
    fm_arena arena; /* holds `at` and the lists */
};

/* A line, read field by field. */
typedef struct line_reader {
    const char *line;
    size_t bytes, at;
    uint64_t number;
    fm_error *reterr;
} line_reader;

typedef struct field {
    const char *text;
    size_t bytes;
    uint64_t column;
} field;

static bool is_blank(char c) {
    return c == ' ' || c == '\t';
}

/* The next field; without bytes at the end of the line. */
static field next_field(line_reader *reader) {
    while (reader->at < reader->bytes && is_blank(reader->line[reader->at]))
        reader->at++;
    field one = {reader->line + reader->at, 0, reader->at + 1};
    while (reader->at < reader->bytes && !is_blank(reader->line[reader->at])) {
        reader->at++;
        one.bytes++;
    }
    return one;
}

#define fail_field(reader, field, status, ...)                                                     \
    fm_fail_at((reader)->reterr, status, (reader)->number, (field)->column, 0, __VA_ARGS__)

/* -- fields */

static bool is_name_byte(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
}

static fm_status read_name(line_reader *reader, const field *one, fm_access_token *token) {
    bool is_fine = one->bytes >= 1 && one->bytes <= FM_ACCESS_NAME_BYTES;
    for (size_t i = 0; is_fine && i < one->bytes; i++)
        is_fine = is_name_byte(one->text[i]);
    if (!is_fine) {
        return fail_field(reader, one, FM_ERR_FORMAT,
                          "expected the name of a token: 1 to %d letters, digits, '.', '_' or '-'",
                          FM_ACCESS_NAME_BYTES);
    }
    memcpy(token->name, one->text, one->bytes);
    return FM_OK;
}

static fm_status read_secret(line_reader *reader, const field *one, fm_access_token *token) {
    if (!fm_credentials_is_token(one->text, one->bytes)) {
        return fail_field(reader, one, FM_ERR_FORMAT,
                          "expected the token after its name: 16 to 255 printable characters "
                          "without blanks");
    }
    token->secret = fm_sha256_of(one->text, one->bytes);
    return FM_OK;
}

/* Reads `names`, a value of names between commas, into the arena. */
static fm_status read_list(line_reader *reader, const field *value, fm_arena *arena,
                           const char **ret_list) {
    bool is_fine = value->bytes > 0, is_after_comma = true;
    for (size_t i = 0; is_fine && i < value->bytes; i++) {
        char c = value->text[i];
        is_fine = c > ' ' && c <= '~' && !(is_after_comma && c == ',');
        is_after_comma = c == ',';
    }
    if (!is_fine || is_after_comma) {
        return fail_field(reader, value, FM_ERR_FORMAT, "expected names between commas");
    }
    char *list = fm_arena_alloc(arena, value->bytes + 1);
    if (!list) return fm_arena_full(arena, reader->reterr);
    memcpy(list, value->text, value->bytes);
    list[value->bytes] = '\0';
    *ret_list = list;
    return FM_OK;
}

/* Reads a positive number, with a suffix K, M, G or T for powers of 1024 where that is allowed. */
static fm_status read_number(line_reader *reader, const field *value, bool has_suffix, uint64_t max,
                             uint64_t *ret_number) {
    static const char suffixes[] = "KMGT";
    uint64_t number = 0;
    size_t i = 0;
    bool is_fine = true;
    for (; is_fine && i < value->bytes && value->text[i] >= '0' && value->text[i] <= '9'; i++) {
        number = number * 10 + (uint64_t)(value->text[i] - '0');
        is_fine = number <= max;
    }
    is_fine = is_fine && i > 0 && number > 0;
    const char *suffix = has_suffix && is_fine && i + 1 == value->bytes
                             ? memchr(suffixes, value->text[i], sizeof suffixes - 1)
                             : NULL;
    if (suffix) {
        unsigned shift = 10 * (unsigned)(suffix - suffixes + 1);
        is_fine = number <= max >> shift;
        number <<= is_fine ? shift : 0;
        i++;
    }
    if (!is_fine || i != value->bytes) {
        return fail_field(reader, value, FM_ERR_FORMAT, "expected a number from 1 to %llu%s",
                          (unsigned long long)max,
                          has_suffix ? ", with K, M, G or T for powers of 1024" : "");
    }
    *ret_number = number;
    return FM_OK;
}

/* True, with the value, when the field is KEY=value. */
static bool is_key(const field *one, const char *key, field *ret_value) {
    size_t bytes = strlen(key);
    if (one->bytes <= bytes || memcmp(one->text, key, bytes) != 0 || one->text[bytes] != '=') {
        return false;
    }
    *ret_value = (field){one->text + bytes + 1, one->bytes - bytes - 1, one->column + bytes + 1};
    return true;
}

static fm_status read_limit(line_reader *reader, const field *one, fm_arena *arena,
                            fm_access_token *token) {
    static const uint64_t max_bytes = (uint64_t)1 << 60;
    field value;
    uint64_t number = token->max_stream;
    bool is_twice = false;
    fm_status status = FM_OK;
    if (is_key(one, "snapshots", &value)) {
        is_twice = token->snapshots != NULL;
        status = read_list(reader, &value, arena, &token->snapshots);
    } else if (is_key(one, "plans", &value)) {
        is_twice = token->plans != NULL;
        status = read_list(reader, &value, arena, &token->plans);
    } else if (is_key(one, "streams", &value)) {
        is_twice = token->max_stream != 0;
        status = read_number(reader, &value, false, UINT32_MAX, &number);
        token->max_stream = (uint32_t)number;
    } else if (is_key(one, "bytes", &value)) {
        is_twice = token->max_bytes != 0;
        status = read_number(reader, &value, true, max_bytes, &token->max_bytes);
    } else {
        return fail_field(reader, one, FM_ERR_FORMAT,
                          "expected snapshots=, plans=, streams= or bytes=");
    }
    if (!status && is_twice) {
        return fail_field(reader, one, FM_ERR_EXISTS, "this limit comes twice for one token");
    }
    return status;
}

/* -- lines */

static fm_status read_token(line_reader *reader, fm_access_tokens *tokens) {
    field name = next_field(reader), secret = next_field(reader);
    fm_access_token token = {0};
    fm_status status = read_name(reader, &name, &token);
    if (!status) status = read_secret(reader, &secret, &token);
    for (field one = next_field(reader); !status && one.bytes; one = next_field(reader))
        status = read_limit(reader, &one, &tokens->arena, &token);
    if (status) return status;
    for (uint32_t i = 0; i < tokens->n; i++) {
        if (strcmp(tokens->at[i].name, token.name) == 0) {
            return fail_field(reader, &name, FM_ERR_EXISTS, "a second token has the name %s",
                              token.name);
        }
        if (memcmp(&tokens->at[i].secret, &token.secret, sizeof token.secret) == 0) {
            return fail_field(reader, &secret, FM_ERR_EXISTS, "%s and %s have the same token",
                              tokens->at[i].name, token.name);
        }
    }
    if (tokens->n == FM_ACCESS_N_TOKEN) {
        return fail_field(reader, &name, FM_ERR_LIMIT, "a token file has at most %d tokens",
                          FM_ACCESS_N_TOKEN);
    }
    tokens->at[tokens->n++] = token;
    return FM_OK;
}

static fm_status read_lines(fm_bytes text, fm_access_tokens *tokens, fm_error *reterr) {
    fm_status status = FM_OK;
    size_t at = fm_utf8_mark(text.data, text.size);
    for (uint64_t number = 1; !status && at < text.size; number++) {
        const char *line = (const char *)text.data + at;
        const char *end = memchr(line, '\n', text.size - at);
        size_t bytes = end ? (size_t)(end - line) : text.size - at;
        at += bytes + 1;
        if (bytes && line[bytes - 1] == '\r') bytes--;
        line_reader reader = {.line = line, .bytes = bytes, .number = number, .reterr = reterr};
        field first = next_field(&reader);
        reader.at = 0;
        bool has_token = first.bytes && first.text[0] != '#';
        if (has_token) status = read_token(&reader, tokens);
    }
    return status;
}

fm_status fm_access_tokens_parse(fm_bytes text, fm_access_tokens **ret_tokens, fm_error *reterr) {
    if (text.size > FM_ACCESS_FILE_BYTES) {
        return fm_fail(reterr, FM_ERR_LIMIT, "a token file has at most %d bytes",
                       FM_ACCESS_FILE_BYTES);
    }
    fm_access_tokens *tokens = calloc(1, sizeof *tokens);
    if (!tokens) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for tokens");
    tokens->n_user = 1;
    /* A list is at least two bytes of the text, and an allocation is rounded up to 64. */
    size_t list_bytes = text.size * 64;
    fm_status status = fm_arena_init(
        &tokens->arena, FM_ACCESS_N_TOKEN * sizeof *tokens->at + list_bytes + 4096, reterr);
    if (!status) {
        tokens->at = fm_arena_alloc_array(&tokens->arena, FM_ACCESS_N_TOKEN, sizeof *tokens->at);
        assert(tokens->at);
        status = read_lines(text, tokens, reterr);
    }
    if (!status && tokens->n == 0) {
        status = fm_fail(reterr, FM_ERR_FORMAT, "the file has no token, so nobody could connect");
    }
    if (status) {
        fm_access_tokens_release(tokens);
        return status;
    }
    *ret_tokens = tokens;
    return FM_OK;
}

fm_access_tokens *fm_access_tokens_retain(fm_access_tokens *tokens) {
    tokens->n_user++;
    return tokens;
}

void fm_access_tokens_release(fm_access_tokens *tokens) {
    if (!tokens || --tokens->n_user) return;
    fm_arena_fini(&tokens->arena);
    free(tokens);
}

uint32_t fm_access_tokens_count(const fm_access_tokens *tokens) {
    return tokens->n;
}

const fm_access_token *fm_access_tokens_find(const fm_access_tokens *tokens, const char *secret) {
    fm_sha256 shown = fm_sha256_of(secret, strlen(secret));
    const fm_access_token *found = NULL;
    for (uint32_t i = 0; i < tokens->n; i++) {
        bool is_equal = fm_sha256_is_equal_secret(&tokens->at[i].secret, &shown);
        found = is_equal ? &tokens->at[i] : found;
    }
    return found;
}

bool fm_access_allows(const char *list, const char *name) {
    if (!list) return true;
    size_t bytes = strlen(name);
    for (const char *at = list; *at;) {
        size_t n = strcspn(at, ",");
        if (n == bytes && memcmp(at, name, n) == 0) return true;
        at += n + (at[n] == ',');
    }
    return false;
}
