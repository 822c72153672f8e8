/* address.c: see address.h. */
#include "proto/address.h"

#include "proto/base/directory.h"
#include "proto/base/histogram.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 128 };

enum { TEMPORARY_SUFFIX_BYTES = 12 }; /* a dot, eight random digits, the end */

enum { UNIX_PATH_BYTES = sizeof((struct sockaddr_un){0}.sun_path) };

static_assert(UNIX_PATH_BYTES == FM_ADDRESS_PATH_BYTES + TEMPORARY_SUFFIX_BYTES,
              "the temporary name of a path that parses must fit");

/* -- text */

static const char *scheme_of(fm_address_kind kind) {
    switch (kind) {
    case FM_ADDRESS_UNIX: return "unix:";
    case FM_ADDRESS_TLS: return "tls://";
    default: return "tcp://";
    }
}

/* Reads HOST:PORT; false when it is not that. */
static bool parse_host(const char *rest, fm_address_kind kind, fm_address *address) {
    const char *colon = strrchr(rest, ':');
    const char *host = rest, *host_end = colon;
    if (colon && host[0] == '[' && colon > host + 1 && colon[-1] == ']') {
        host++;
        host_end--;
    } else if (colon && memchr(host, ':', (size_t)(colon - host))) {
        colon = NULL; /* an IPv6 address without brackets: which colon is the port's? */
    }
    char *end = NULL;
    unsigned long port =
        colon && colon[1] >= '0' && colon[1] <= '9' ? strtoul(colon + 1, &end, 10) : 65536;
    size_t host_bytes = colon ? (size_t)(host_end - host) : 0;
    if (!end || *end || port > 65535 || host_bytes == 0 || host_bytes >= FM_ADDRESS_HOST_BYTES) {
        return false;
    }
    address->kind = kind;
    memcpy(address->host, host, host_bytes);
    address->host[host_bytes] = '\0';
    address->port = (uint16_t)port;
    return true;
}

static bool is_loopback_name(const char *host, size_t bytes) {
    static const char *const names[] = {"localhost", "127.0.0.1", "[::1]", "::1"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strlen(names[i]) == bytes && strncmp(host, names[i], bytes) == 0) return true;
    }
    return false;
}

/* Completes what a user probably meant by "host", "host:7420", "http://host:7420/" or "/a/path".
 * A name with "sock" in it, without a port, is a path, too. Writes an address that parses, or
 * returns false. */
static bool guess_address(const char *text, char out[FM_ADDRESS_TEXT_BYTES]) {
    fm_address ignored;
    const char *scheme = strstr(text, "://");
    const char *rest = scheme ? scheme + 3 : text;
    size_t host_bytes = strcspn(rest, "/");
    bool is_number = strspn(rest, "0123456789") == host_bytes;
    if (strncmp(text, "unix:", 5) == 0 || strlen(text) > FM_ADDRESS_PATH_BYTES) return false;
    bool is_path = strchr(text, '/') || (strstr(text, "sock") && !strchr(text, ':'));
    if (!scheme && is_path) {
        snprintf(out, FM_ADDRESS_TEXT_BYTES, "unix:%s", text);
        return true;
    }
    bool has_port = memchr(rest, ':', host_bytes) != NULL;
    bool is_tls = strncmp(text, "tls://", 6) == 0 || strncmp(text, "https://", 8) == 0;
    bool is_plain =
        strncmp(text, "tcp://", 6) == 0 || (!is_tls && is_loopback_name(rest, strcspn(rest, ":/")));
    snprintf(out, FM_ADDRESS_TEXT_BYTES, "%s%.*s%s", is_plain ? "tcp://" : "tls://",
             (int)host_bytes, rest, has_port ? "" : ":7420");
    return !is_number && strcmp(out, text) != 0 && parse_host(out + 6, FM_ADDRESS_TLS, &ignored);
}

static fm_status fail_address(const char *text, fm_error *reterr) {
    char guess[FM_ADDRESS_TEXT_BYTES] = "";
    bool has_guess = guess_address(text, guess);
    bool has_scheme = strncmp(text, "tcp://", 6) == 0 || strncmp(text, "tls://", 6) == 0;
    return fm_fail(reterr, FM_ERR_USAGE, "address '%.200s', expected %.6s%s%s%s%s", text,
                   has_scheme ? text : "",
                   has_scheme ? "HOST:PORT, the port a number to 65535, an IPv6 address in brackets"
                              : "unix:PATH, tls://HOST:PORT or tcp://HOST:PORT",
                   has_guess ? "; did you mean " : "", has_guess ? guess : "",
                   has_guess ? "?" : "");
}

fm_status fm_address_parse(const char *text, fm_address *ret_address, fm_error *reterr) {
    fm_address address = {0};
    for (fm_address_kind kind = FM_ADDRESS_TCP; kind <= FM_ADDRESS_TLS; kind++) {
        if (strncmp(text, scheme_of(kind), 6) != 0) continue;
        if (!parse_host(text + 6, kind, &address)) return fail_address(text, reterr);
        *ret_address = address;
        return FM_OK;
    }
    if (strncmp(text, "unix:", 5) != 0 || text[5] == '\0') return fail_address(text, reterr);
    size_t bytes = strlen(text + 5);
    if (bytes >= FM_ADDRESS_PATH_BYTES) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "the path of a unix socket has %zu bytes, at most %d fit", bytes,
                       FM_ADDRESS_PATH_BYTES - 1);
    }
    if (strchr(text + 5, ',')) {
        return fm_fail(
            reterr, FM_ERR_USAGE,
            "found a comma in the path of a unix socket, '%.200s', expected none: commas "
            "separate addresses",
            text + 5);
    }
    address.kind = FM_ADDRESS_UNIX;
    memcpy(address.path, text + 5, bytes + 1);
    *ret_address = address;
    return FM_OK;
}

const char *fm_address_format(const fm_address *address, char out[FM_ADDRESS_TEXT_BYTES]) {
    const char *scheme = scheme_of(address->kind);
    if (address->kind == FM_ADDRESS_UNIX) {
        snprintf(out, FM_ADDRESS_TEXT_BYTES, "%s%s", scheme, address->path);
    } else {
        bool is_ipv6 = strchr(address->host, ':') != NULL;
        snprintf(out, FM_ADDRESS_TEXT_BYTES, "%s%s%s%s:%u", scheme, is_ipv6 ? "[" : "",
                 address->host, is_ipv6 ? "]" : "", address->port);
    }
    return out;
}

/* -- sockets */

static const char connecting[] = "connect to", listening[] = "listen on";

/* What a user can do about errno's value `code`; "" where nothing is known. */
static const char *advice_for(const fm_address *address, const char *what, int code) {
    bool is_tcp = address->kind != FM_ADDRESS_UNIX;
    if (what == connecting) {
        bool is_absent = code == ECONNREFUSED || (code == ENOENT && !is_tcp);
        return is_absent ? "; is foldmill serve running there?" : "";
    }
    switch (code) {
    case ENOENT: return is_tcp ? "" : "; the folder of the socket must exist";
    case EADDRINUSE:
        return is_tcp ? "; another program listens there; port 0 takes any free port" : "";
    case EADDRNOTAVAIL:
        return is_tcp ? "; this machine does not have that address (0.0.0.0 is all of them)" : "";
    case EACCES: return is_tcp ? "; ports below 1024 are reserved for the system" : "";
    default: return "";
    }
}

/* `what`: connecting, listening, or another verb. */
static fm_status fail_errno(const fm_address *address, const char *what, int code,
                            fm_error *reterr) {
    char text[FM_ADDRESS_TEXT_BYTES];
    return fm_fail(reterr, FM_ERR_IO, "cannot %s %s: %s%s", what, fm_address_format(address, text),
                   strerror(code), advice_for(address, what, code));
}

static struct sockaddr_un unix_name(const fm_address *address) {
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    memcpy(name.sun_path, address->path, strlen(address->path) + 1);
    return name;
}

/* The address as IPv6, or as IPv4 mapped into it; false for another family. */
static bool ip_of(const struct sockaddr *name, uint8_t ip[16]) {
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    if (name->sa_family == AF_INET6) {
        memcpy(ip, &((const struct sockaddr_in6 *)name)->sin6_addr, 16);
        return true;
    }
    if (name->sa_family != AF_INET) return false;
    memcpy(ip, mapped, sizeof mapped);
    memcpy(ip + sizeof mapped, &((const struct sockaddr_in *)name)->sin_addr, 4);
    return true;
}

static bool is_loopback(const struct sockaddr *name) {
    struct in6_addr ip;
    if (!ip_of(name, ip.s6_addr)) return false;
    bool is_mapped = IN6_IS_ADDR_V4MAPPED(&ip);
    return IN6_IS_ADDR_LOOPBACK(&ip) || (is_mapped && ip.s6_addr[12] == 127);
}

bool fm_address_is_loopback(int fd) {
    struct sockaddr_storage name = {0};
    socklen_t bytes = sizeof name;
    return getsockname(fd, (struct sockaddr *)&name, &bytes) == 0 &&
           is_loopback((const struct sockaddr *)&name);
}

/* Plain TCP must not leave this machine by accident. */
static fm_status check_plain(const fm_address *address, const struct sockaddr *name,
                             fm_error *reterr) {
    if (address->kind != FM_ADDRESS_TCP || address->is_insecure || is_loopback(name)) return FM_OK;
    char text[FM_ADDRESS_TEXT_BYTES];
    return fm_fail(
        reterr, FM_ERR_USAGE,
        "%s is plain TCP beyond this machine, which others can read and change: use "
        "tls:// (foldmill certs makes certificates), or add --insecure on a network that "
        "is trusted as a whole",
        fm_address_format(address, text));
}

/* A name that has no address is not found. Any other failure, such as that of a name server that
 * does not answer, tells nothing about the name and may pass. */
static fm_status fail_resolve(const fm_address *address, int failed, int code, fm_error *reterr) {
    const char *why = failed == EAI_SYSTEM ? strerror(code) : gai_strerror(failed);
    if (failed == EAI_NONAME || failed == EAI_NODATA || failed == EAI_ADDRFAMILY) {
        return fm_fail(reterr, FM_ERR_NOT_FOUND, "host %s has no address: %s", address->host, why);
    }
    return fm_fail(reterr, failed == EAI_MEMORY ? FM_ERR_NOMEM : FM_ERR_IO,
                   "host %s cannot be looked up: %s", address->host, why);
}

static fm_status resolve(const fm_address *address, int flags, struct addrinfo **ret_found,
                         fm_error *reterr) {
    struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV | flags};
    char port[8];
    snprintf(port, sizeof port, "%u", address->port);
    int failed = getaddrinfo(address->host, port, &hints, ret_found);
    return failed ? fail_resolve(address, failed, errno, reterr) : FM_OK;
}

/* Returns 0 when the non-blocking connect succeeds within the time, ECANCELED when it is cancelled
 * before, else errno's value. */
static int connect_within(int fd, const struct sockaddr *name, socklen_t name_bytes,
                          uint32_t timeout_ms, const fm_cancel *cancel) {
    if (connect(fd, name, name_bytes) == 0) return 0;
    if (errno != EINPROGRESS) return errno;
    const uint64_t begin_ns = fm_clock_ns();
    uint64_t left_ms = timeout_ms;
    struct pollfd wait = {.fd = fd, .events = POLLOUT};
    int ready;
    do {
        if (fm_cancel_is_asked(cancel)) return ECANCELED;
        uint64_t slice_ms = fm_cancel_slice_ms(cancel, left_ms);
        ready = poll(&wait, 1, slice_ms > INT32_MAX ? INT32_MAX : (int)slice_ms);
        uint64_t gone_ms = (fm_clock_ns() - begin_ns) / 1000000u;
        left_ms = gone_ms < timeout_ms ? timeout_ms - gone_ms : 0;
    } while ((ready == 0 && left_ms) || (ready < 0 && errno == EINTR));
    if (ready == 0) return ETIMEDOUT;
    int failed = errno;
    socklen_t bytes = sizeof failed;
    if (ready < 0 || getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &bytes) < 0) return errno;
    return failed;
}

static fm_status fail_connect(const fm_address *address, int code, fm_error *reterr) {
    if (code == ECANCELED) return fm_fail(reterr, FM_ERR_CANCELLED, "interrupted");
    return fail_errno(address, connecting, code, reterr);
}

static int open_socket(int family) {
    return socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

static fm_status connect_tcp(const fm_address *address, uint32_t timeout_ms,
                             const fm_cancel *cancel, int *ret_socket, fm_error *reterr) {
    struct addrinfo *found;
    fm_status status = resolve(address, 0, &found, reterr);
    if (status) return status;
    int failed = EADDRNOTAVAIL, fd = -1;
    for (struct addrinfo *one = found; one && fd < 0 && failed != ECANCELED; one = one->ai_next) {
        status = check_plain(address, one->ai_addr, reterr);
        if (status) break;
        fd = open_socket(one->ai_family);
        failed =
            fd < 0 ? errno : connect_within(fd, one->ai_addr, one->ai_addrlen, timeout_ms, cancel);
        if (fd >= 0 && failed) {
            close(fd);
            fd = -1;
        }
    }
    freeaddrinfo(found);
    if (status) return status;
    if (fd < 0) return fail_connect(address, failed, reterr);
    int yes = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    *ret_socket = fd;
    return FM_OK;
}

fm_status fm_address_connect(const fm_address *address, uint32_t timeout_ms, int *ret_socket,
                             fm_error *reterr) {
    return fm_address_connect_unless(address, timeout_ms, NULL, ret_socket, reterr);
}

fm_status fm_address_connect_unless(const fm_address *address, uint32_t timeout_ms,
                                    const fm_cancel *cancel, int *ret_socket, fm_error *reterr) {
    if (address->kind != FM_ADDRESS_UNIX) {
        return connect_tcp(address, timeout_ms, cancel, ret_socket, reterr);
    }
    int fd = open_socket(AF_UNIX);
    if (fd < 0) return fail_errno(address, connecting, errno, reterr);
    struct sockaddr_un name = unix_name(address);
    int failed = connect_within(fd, (struct sockaddr *)&name, sizeof name, timeout_ms, cancel);
    if (failed) {
        close(fd);
        return fail_connect(address, failed, reterr);
    }
    *ret_socket = fd;
    return FM_OK;
}

/* Writes the path with random digits behind it: servers of several containers may share the folder
 * and the process id. False with errno. */
static bool name_temporary(const fm_address *address, char out[UNIX_PATH_BYTES]) {
    uint32_t random;
    if (getrandom(&random, sizeof random, 0) != sizeof random) return false;
    snprintf(out, UNIX_PATH_BYTES, "%s.%08x", address->path, random);
    return true;
}

static fm_status fail_taken(const fm_address *address, fm_error *reterr) {
    return fm_fail(reterr, FM_ERR_EXISTS, "another server listens on unix:%s", address->path);
}

/* Removes the stale file. Another server may have replaced it since it was looked at, and the file
 * of a server must stay. So it is first moved aside, where nobody else touches it. */
static fm_status remove_stale(const fm_address *address, const fm_path_mark *stale,
                              fm_error *reterr) {
    char aside[UNIX_PATH_BYTES];
    fm_path_mark moved;
    if (!name_temporary(address, aside)) return fail_errno(address, "replace", errno, reterr);
    if (rename(address->path, aside) < 0) {
        return errno == ENOENT ? FM_OK : fail_errno(address, "replace", errno, reterr);
    }
    fm_status status = fm_path_mark_read(aside, &moved, reterr);
    if (!status && !fm_path_mark_is_same(&moved, stale)) status = fail_taken(address, reterr);
    if (status) (void)!link(aside, address->path);
    unlink(aside);
    return status;
}

/* Removes the file of a unix socket that no server listens on, and no other file. Only a refused
 * connection shows that nobody listens: a server with a full queue does not answer either. */
static fm_status clear_stale(const fm_address *address, fm_error *reterr) {
    struct stat info;
    if (lstat(address->path, &info) < 0) return FM_OK; /* bind reports any error */
    if (!S_ISSOCK(info.st_mode)) {
        return fm_fail(reterr, FM_ERR_EXISTS,
                       "%s exists and is not a socket; a server makes its own", address->path);
    }
    fm_path_mark mark;
    fm_status status = fm_path_mark_read(address->path, &mark, reterr);
    if (status) return status;
    struct sockaddr_un name = unix_name(address);
    int fd = open_socket(AF_UNIX);
    int failed =
        fd < 0 ? errno : connect_within(fd, (struct sockaddr *)&name, sizeof name, 1000, NULL);
    if (fd >= 0) close(fd);
    if (!failed || failed == EAGAIN) return fail_taken(address, reterr);
    if (failed == ENOENT) return FM_OK;
    if (failed != ECONNREFUSED) return fail_errno(address, "replace", failed, reterr);
    return remove_stale(address, &mark, reterr);
}

/* Binds and listens under a temporary name. The link to the final name makes the socket appear,
 * when it already takes connections; it fails if another server was faster. */
static int listen_unix_as(int fd, const fm_address *address) {
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    if (!name_temporary(address, name.sun_path)) return errno;
    if (bind(fd, (struct sockaddr *)&name, sizeof name) < 0) return errno;
    bool is_open = chmod(name.sun_path, 0600) == 0 && listen(fd, BACKLOG) == 0 &&
                   link(name.sun_path, address->path) == 0;
    int failed = is_open ? 0 : errno;
    unlink(name.sun_path);
    return failed;
}

static fm_status listen_unix(const fm_address *address, int *ret_socket, fm_error *reterr) {
    fm_status status = clear_stale(address, reterr);
    if (status) return status;
    int fd = open_socket(AF_UNIX);
    int failed = fd < 0 ? errno : listen_unix_as(fd, address);
    if (failed) {
        if (fd >= 0) close(fd);
        return fail_errno(address, listening, failed, reterr);
    }
    *ret_socket = fd;
    return FM_OK;
}

static uint16_t bound_port(int fd) {
    struct sockaddr_storage name = {0};
    socklen_t bytes = sizeof name;
    if (getsockname(fd, (struct sockaddr *)&name, &bytes) < 0) return 0;
    /* NOLINTBEGIN(clang-analyzer-core.CallAndMessage): getsockname filled what the family has */
    if (name.ss_family == AF_INET6) return ntohs(((struct sockaddr_in6 *)&name)->sin6_port);
    return ntohs(((struct sockaddr_in *)&name)->sin_port);
    /* NOLINTEND(clang-analyzer-core.CallAndMessage) */
}

static fm_status listen_tcp(const fm_address *address, int *ret_socket, fm_error *reterr) {
    struct addrinfo *found;
    fm_status status = resolve(address, AI_PASSIVE, &found, reterr);
    if (status) return status;
    status = check_plain(address, found->ai_addr, reterr);
    if (status) {
        freeaddrinfo(found);
        return status;
    }
    int failed = 0, yes = 1;
    int fd = open_socket(found->ai_family);
    if (fd >= 0) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (fd < 0 || bind(fd, found->ai_addr, found->ai_addrlen) < 0 || listen(fd, BACKLOG) < 0) {
        failed = errno;
    }
    freeaddrinfo(found);
    if (failed) {
        if (fd >= 0) close(fd);
        return fail_errno(address, listening, failed, reterr);
    }
    *ret_socket = fd;
    return FM_OK;
}

fm_status fm_address_listen(const fm_address *address, int *ret_socket, fm_address *ret_bound,
                            fm_error *reterr) {
    int fd = -1;
    fm_status status = address->kind == FM_ADDRESS_UNIX ? listen_unix(address, &fd, reterr)
                                                        : listen_tcp(address, &fd, reterr);
    if (status) return status;
    *ret_bound = *address;
    if (address->kind != FM_ADDRESS_UNIX) ret_bound->port = bound_port(fd);
    *ret_socket = fd;
    return FM_OK;
}

/* Names the address of a bound socket; false when there is no such address. */
static bool name_bound(int fd, bool is_tls, fm_address *bound, struct sockaddr_storage *name) {
    socklen_t bytes = sizeof *name;
    uint8_t ip[16];
    if (getsockname(fd, (struct sockaddr *)name, &bytes) < 0) return false;
    if (name->ss_family == AF_UNIX) {
        const struct sockaddr_un *at = (const struct sockaddr_un *)name;
        size_t length = bytes > offsetof(struct sockaddr_un, sun_path)
                            ? strnlen(at->sun_path, bytes - offsetof(struct sockaddr_un, sun_path))
                            : 0;
        bound->kind = FM_ADDRESS_UNIX;
        if (length == 0 || length >= FM_ADDRESS_PATH_BYTES) return false;
        memcpy(bound->path, at->sun_path, length);
        return true;
    }
    if (!ip_of((const struct sockaddr *)name, ip)) return false;
    bound->kind = is_tls ? FM_ADDRESS_TLS : FM_ADDRESS_TCP;
    bound->port = bound_port(fd);
    return getnameinfo((const struct sockaddr *)name, bytes, bound->host, sizeof bound->host, NULL,
                       0, NI_NUMERICHOST) == 0;
}

fm_status fm_address_adopt(int fd, bool is_tls, bool is_insecure, fm_address *ret_bound,
                           fm_error *reterr) {
    fm_address bound = {.is_insecure = is_insecure};
    struct sockaddr_storage name = {0};
    int is_listening = 0, type = 0;
    socklen_t bytes = sizeof is_listening, type_bytes = sizeof type;
    bool is_fine = getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &is_listening, &bytes) == 0 &&
                   getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_bytes) == 0 && is_listening &&
                   type == SOCK_STREAM && name_bound(fd, is_tls, &bound, &name);
    if (!is_fine) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "descriptor %d, expected a stream socket that listens on TCP or on the path "
                       "of a Unix socket of at most %d bytes",
                       fd, FM_ADDRESS_PATH_BYTES - 1);
    }
    fm_status status = check_plain(&bound, (const struct sockaddr *)&name, reterr);
    if (status) return status;
    if (fcntl(fd, F_SETFD, FD_CLOEXEC) < 0 || fcntl(fd, F_SETFL, O_NONBLOCK) < 0) {
        return fail_errno(&bound, listening, errno, reterr);
    }
    *ret_bound = bound;
    return FM_OK;
}

fm_status fm_address_open_to_group(const fm_address *bound, uint32_t gid, fm_error *reterr) {
    bool is_open = chown(bound->path, (uid_t)-1, gid) == 0 && chmod(bound->path, 0660) == 0;
    return is_open ? FM_OK : fail_errno(bound, "give to a group", errno, reterr);
}

/* -- peers */

static bool unix_peer(int fd, fm_peer *peer) {
    struct ucred user;
    socklen_t bytes = sizeof user;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &user, &bytes) < 0) return false;
    peer->uid = user.uid;
    peer->gid = user.gid;
    snprintf(peer->text, sizeof peer->text, "uid %u", peer->uid);
    return true;
}

static bool ip_peer(int fd, fm_peer *peer) {
    struct sockaddr_storage name = {0};
    socklen_t bytes = sizeof name;
    if (getpeername(fd, (struct sockaddr *)&name, &bytes) < 0) return false;
    if (!ip_of((const struct sockaddr *)&name, peer->ip)) return false;
    bool is_ipv4 = IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)(const void *)peer->ip);
    return inet_ntop(is_ipv4 ? AF_INET : AF_INET6, is_ipv4 ? peer->ip + 12 : peer->ip, peer->text,
                     sizeof peer->text) != NULL;
}

bool fm_address_peer(int fd, fm_address_kind kind, fm_peer *ret_peer) {
    fm_peer peer = {.kind = kind};
    if (!(kind == FM_ADDRESS_UNIX ? unix_peer(fd, &peer) : ip_peer(fd, &peer))) return false;
    *ret_peer = peer;
    return true;
}

bool fm_address_peer_is_in_group(int fd, const fm_peer *peer, uint32_t gid) {
    if (peer->gid == gid) return true;
    gid_t groups[4096]; /* a user with more groups than that is in none */
    socklen_t bytes = sizeof groups;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &bytes) < 0) return false;
    for (size_t i = 0; i < bytes / sizeof groups[0]; i++) {
        if (groups[i] == gid) return true;
    }
    return false;
}
