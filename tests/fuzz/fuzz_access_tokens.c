/* fuzz_access_tokens.c: arbitrary bytes as a token file. What parses is bounded, names are unique,
 * and no other secret finds a token; an error has a place and repeats no secret. */
#include "server/access_tokens.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fm_access_tokens *tokens = NULL;
    fm_error error = {0};
    fm_status status = fm_access_tokens_parse((fm_bytes){data, size}, &tokens, &error);
    if (status) {
        assert(error.status == status && error.message[0] && !tokens);
        return 0;
    }
    uint32_t n = fm_access_tokens_count(tokens);
    assert(n >= 1 && n <= FM_ACCESS_N_TOKEN);
    assert(!fm_access_tokens_find(tokens, ""));
    /* Every second field of a line is a secret; each that is long enough finds its token. */
    char *text = malloc(size + 1);
    assert(text);
    memcpy(text, data, size);
    text[size] = '\0';
    for (char *line = text, *next; line && n; line = next) {
        next = memchr(line, '\n', size - (size_t)(line - text));
        if (next) *next++ = '\0';
        char *name = strtok_r(line, " \t\r", &line);
        char *secret = name && name[0] != '#' ? strtok_r(NULL, " \t\r", &line) : NULL;
        if (!secret) continue;
        const fm_access_token *token = fm_access_tokens_find(tokens, secret);
        assert(token && strcmp(token->name, name) == 0);
        assert(fm_access_allows(token->plans, "x") || token->plans);
    }
    free(text);
    fm_access_tokens_release(tokens);
    return 0;
}
