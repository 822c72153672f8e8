/* credentials.h: what a program shows its peer and demands of it, as the options name it. The
 * server, every client and the library have the same options. */
#ifndef FM_CREDENTIALS_H
#define FM_CREDENTIALS_H

#include "proto/base/options.h"
#include "proto/wire.h"

/* Paths, NULL where an option is not given. Files are read when they are used. */
typedef struct fm_credentials {
    const char *tls_cert, *tls_key, *tls_ca; /* PEM files; base/tls.h */
    const char *token_file;                  /* client: its token; server: the tokens it accepts */
    bool is_insecure;                        /* tcp:// may leave this machine */
} fm_credentials;

/* The rows of a command's option table. `set` is a pointer to fm_credentials. */
#define FM_CREDENTIALS_OPTIONS(set, token_help)                                                    \
    {"tls-cert", FM_OPTION_STRING, &(set)->tls_cert, "FILE",                                       \
     .help = "own certificate for tls:// (PEM), with --tls-key"},                                  \
        {"tls-key", FM_OPTION_STRING, &(set)->tls_key, "FILE", .help = "its private key (PEM)"},   \
        {"tls-ca", FM_OPTION_STRING, &(set)->tls_ca, "FILE",                                       \
         .help = "authority that the peer's certificate must come from (PEM)"},                    \
        {"token-file", FM_OPTION_STRING, &(set)->token_file, "FILE", .help = (token_help)}, {      \
        "insecure", FM_OPTION_FLAG, &(set)->is_insecure, NULL,                                     \
            .help = "allow tcp:// beyond this machine, without encryption"                         \
    }

/* What --token-file means to a client. */
#define FM_CREDENTIALS_TOKEN_HELP                                                                  \
    "file with the access token, for tls:// and unix: ($" FM_CREDENTIALS_VARIABLE ")"

/* The environment variable that holds a client's token when there is no token file. */
#define FM_CREDENTIALS_VARIABLE "FOLDMILL_TOKEN"

/* Reads a client's token: the only line of the token file, else the variable, else "".
 * FM_ERR_FORMAT unless it is 16 to 255 printable characters without blanks; and the errors of
 * reading the file. */
FM_MUST_USE fm_status fm_credentials_read_token(const fm_credentials *credentials,
                                                char out[FM_WIRE_SECRET_BYTES + 1],
                                                fm_error *reterr);

/* True when `text` [bytes] may be a token. */
bool fm_credentials_is_token(const char *text, size_t bytes);

/* The first file with a secret that every user of this machine can read; NULL when there is none.
 * A program warns about it. */
const char *fm_credentials_exposed(const fm_credentials *credentials);

#endif
