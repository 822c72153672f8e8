/* access_tokens.h: the access tokens that a server accepts, and what each may use.
 *
 *     # name      token                             limits
 *     lab-a       u6Fh3jsQ0pXw9ZkT2mVb              plans=tiny,af2-initial streams=16 bytes=8G
 *     nightly     rS81kQv0aBcD4eFgH7iJ              snapshots=train
 *
 * One token is one line. Fields are separated by blanks; `#` begins a line of comment. Limits that
 * are not given do not apply. The secrets are kept as SHA-256 only, and are compared in a time that
 * depends neither on the secret nor on which token matches. */
#ifndef FM_SERVER_ACCESS_TOKENS_H
#define FM_SERVER_ACCESS_TOKENS_H

#include "proto/base/bytes.h"
#include "proto/base/hash.h"

enum {
    FM_ACCESS_NAME_BYTES = 63, /* a token's name */
    FM_ACCESS_N_TOKEN = 4096,  /* tokens of a file, at most */
    FM_ACCESS_FILE_BYTES = 1 << 20,
};

typedef struct fm_access_token {
    char name[FM_ACCESS_NAME_BYTES + 1]; /* for the log */
    fm_sha256 secret;
    const char *snapshots, *plans; /* names between commas; NULL allows all */
    uint32_t max_stream;           /* open at a time on all connections; 0 = no limit */
    uint64_t max_bytes;            /* of samples sent to its holders (limits.h); 0 = no limit */
} fm_access_token;

/* The tokens of one file. A connection retains them, so that a file that is read again leaves its
 * token in place. One thread at a time. */
typedef struct fm_access_tokens fm_access_tokens;

/* Reads the text of a token file. FM_ERR_FORMAT, FM_ERR_LIMIT and FM_ERR_EXISTS (a name or secret
 * comes twice) have line and column; no message quotes a secret. FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_access_tokens_parse(fm_bytes text, fm_access_tokens **ret_tokens,
                                             fm_error *reterr);
fm_access_tokens *fm_access_tokens_retain(fm_access_tokens *tokens);
/* NULL is fine. */
void fm_access_tokens_release(fm_access_tokens *tokens);

/* The number of tokens; tests count what was read. */
uint32_t fm_access_tokens_count(const fm_access_tokens *tokens);
/* The token with this secret; NULL when there is none. Valid while the tokens are retained. */
const fm_access_token *fm_access_tokens_find(const fm_access_tokens *tokens, const char *secret);

/* True when a list of names (NULL: all names) has this one. */
bool fm_access_allows(const char *list, const char *name);

#endif
