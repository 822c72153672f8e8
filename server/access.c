/* access.c: see access.h. */
#include "server/access.h"

#include "proto/base/file.h"
#include "proto/base/log.h"
#include "server/limits.h"

#include <assert.h>
#include <grp.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    DAY_S = 86400,
    EXPIRY_NOTICE_S = 14 * DAY_S, /* a certificate that expires sooner is worth a warning */
};

struct fm_access {
    fm_credentials credentials;
    bool has_tls, has_group;
    gid_t gid;
    fm_tls_context *tls;      /* NULL without tls:// address */
    fm_access_tokens *tokens; /* NULL without token file */
    uint32_t n_handshake;
    struct in6_addr handshakes[FM_ACCESS_N_HANDSHAKE]; /* the peers' networks */
};

/* -- files */

static fm_status read_tokens(const char *path, fm_access_tokens **ret_tokens, fm_error *reterr) {
    fm_arena arena = {0};
    fm_bytes text;
    fm_status status = fm_arena_init(&arena, FM_ACCESS_FILE_BYTES + 8192, reterr);
    if (!status) status = fm_file_read(&arena, path, FM_ACCESS_FILE_BYTES, &text, reterr);
    if (!status) status = fm_access_tokens_parse(text, ret_tokens, reterr);
    if (status && reterr) (void)fm_error_in(reterr, path);
    fm_arena_fini(&arena);
    return status;
}

static void warn_of_files(const fm_access *access) {
    char quoted[300];
    const char *exposed = fm_credentials_exposed(&access->credentials);
    if (exposed) {
        fm_log(FM_LOG_WARN, "secret_exposed", "file=%s why=\"every user can read it; chmod 600\"",
               fm_log_quote(quoted, sizeof quoted, exposed));
    }
    int64_t left_s = access->tls ? fm_tls_context_get_expiry(access->tls) - (int64_t)time(NULL) : 0;
    if (access->tls && left_s < EXPIRY_NOTICE_S) {
        fm_log(FM_LOG_WARN, "certificate_expires", "file=%s days=%lld",
               fm_log_quote(quoted, sizeof quoted, access->credentials.tls_cert),
               (long long)(left_s / DAY_S));
    }
    if (access->tls && !access->tokens && !access->credentials.tls_ca) {
        fm_log(FM_LOG_WARN, "open_to_all",
               "why=\"tls:// without --tls-ca or --token-file: whoever reaches the port may use "
               "the server\"");
    }
}

fm_status fm_access_reload(fm_access *access, fm_error *reterr) {
    const fm_tls_options options = {.side = FM_TLS_SERVER,
                                    .cert = access->credentials.tls_cert,
                                    .key = access->credentials.tls_key,
                                    .ca = access->credentials.tls_ca};
    fm_tls_context *tls = NULL;
    fm_access_tokens *tokens = NULL;
    fm_status status = access->has_tls ? fm_tls_context_create(&options, &tls, reterr) : FM_OK;
    if (!status && access->credentials.token_file) {
        status = read_tokens(access->credentials.token_file, &tokens, reterr);
    }
    if (status) {
        fm_tls_context_destroy(tls);
        return status;
    }
    fm_tls_context_destroy(access->tls);
    fm_access_tokens_release(access->tokens);
    access->tls = tls;
    access->tokens = tokens;
    warn_of_files(access);
    return FM_OK;
}

static fm_status find_group(const char *name, gid_t *ret_gid, fm_error *reterr) {
    char *end;
    unsigned long number = strtoul(name, &end, 10);
    bool is_number = name[0] >= '0' && name[0] <= '9' && *end == '\0' && number < UINT32_MAX;
    const struct group *found = is_number ? NULL : getgrnam(name);
    if (!is_number && !found) {
        return fm_fail(reterr, FM_ERR_NOT_FOUND, "this system has no group '%.100s' (--unix-group)",
                       name);
    }
    *ret_gid = found ? found->gr_gid : (gid_t)number;
    return FM_OK;
}

fm_status fm_access_create(const fm_credentials *credentials, bool has_tls, const char *unix_group,
                           fm_access **ret_access, fm_error *reterr) {
    fm_access *access = calloc(1, sizeof *access);
    if (!access) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a server");
    access->credentials = *credentials;
    access->has_tls = has_tls;
    access->has_group = unix_group != NULL;
    fm_status status = unix_group ? find_group(unix_group, &access->gid, reterr) : FM_OK;
    if (!status) status = fm_access_reload(access, reterr);
    if (status) {
        fm_access_destroy(access);
        return status;
    }
    *ret_access = access;
    return FM_OK;
}

void fm_access_destroy(fm_access *access) {
    if (!access) return;
    fm_tls_context_destroy(access->tls);
    fm_access_tokens_release(access->tokens);
    free(access);
}

fm_tls_context *fm_access_get_tls(const fm_access *access) {
    return access->tls;
}

bool fm_access_get_group(const fm_access *access, uint32_t *ret_gid) {
    if (access->has_group) *ret_gid = access->gid;
    return access->has_group;
}

/* -- peers */

bool fm_access_admits(const fm_access *access, const fm_socket *socket) {
    const fm_peer *peer = fm_socket_get_peer(socket);
    if (peer->kind != FM_ADDRESS_UNIX || peer->uid == 0 || peer->uid == geteuid()) return true;
    return access->has_group && fm_socket_is_in_group(socket, access->gid);
}

bool fm_access_wants_token(const fm_access *access, fm_address_kind kind) {
    return access->tokens && kind != FM_ADDRESS_UNIX;
}

fm_status fm_access_check_token(const fm_access *access, const char *secret,
                                fm_access_tokens **ret_tokens, const fm_access_token **ret_token,
                                fm_error *reterr) {
    *ret_tokens = NULL;
    *ret_token = NULL;
    if (!access->tokens) return FM_OK;
    if (!secret[0]) {
        return fm_fail(reterr, FM_ERR_DENIED,
                       "the access token is empty; give one by --token-file "
                       "or " FM_CREDENTIALS_VARIABLE);
    }
    const fm_access_token *token = fm_access_tokens_find(access->tokens, secret);
    if (!token) return fm_fail(reterr, FM_ERR_DENIED, "the server does not know this access token");
    *ret_tokens = fm_access_tokens_retain(access->tokens);
    *ret_token = token;
    return FM_OK;
}

/* -- turns for handshakes */

bool fm_access_enter_handshake(fm_access *access, const fm_peer *peer) {
    const struct in6_addr network = fm_peer_network(peer);
    uint32_t n_same = 0;
    for (uint32_t i = 0; i < access->n_handshake; i++)
        n_same += memcmp(&access->handshakes[i], &network, sizeof network) == 0;
    if (access->n_handshake == FM_ACCESS_N_HANDSHAKE ||
        n_same == FM_ACCESS_N_HANDSHAKE_PER_ADDRESS) {
        return false;
    }
    access->handshakes[access->n_handshake++] = network;
    return true;
}

void fm_access_leave_handshake(fm_access *access, const fm_peer *peer) {
    const struct in6_addr network = fm_peer_network(peer);
    uint32_t i = 0;
    while (i < access->n_handshake && memcmp(&access->handshakes[i], &network, sizeof network) != 0)
        i++;
    assert(i < access->n_handshake);
    access->handshakes[i] = access->handshakes[--access->n_handshake];
}
