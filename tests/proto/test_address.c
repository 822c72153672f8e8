/* Addresses: what parses, what is refused, and what a user probably meant. */
#include "proto/address.h"

#include "tests/testing/testing.h"

#include <dlfcn.h>
#include <errno.h>
#include <netdb.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

/* Replaces the C library's function, for the tested code too: fails like this, unless it is 0. */
static int lookup_result, lookup_errno;

int getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                struct addrinfo **found) {
    static __typeof__(getaddrinfo) *real;
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
    if (!lookup_result) return real(host, port, hints, found);
    errno = lookup_errno;
    return lookup_result;
}

/* The same for close: the one that follows a refused connection to a stale file. Another server
 * takes the address then. */
static const fm_address *overtaken;
static int overtaking = -1;

int close(int fd) {
    static __typeof__(close) *real;
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "close");
    int result = real(fd);
    const fm_address *address = overtaken;
    fm_address bound;
    overtaken = NULL;
    if (address) assert_int_equal(fm_address_listen(address, &overtaking, &bound, NULL), FM_OK);
    return result;
}

static void good_addresses(void **state) {
    (void)state;
    static const char *const texts[] = {
        "unix:/run/foldmill.sock", "unix:s",          "tcp://host:7420", "tcp://127.0.0.1:0",
        "tcp://[::1]:65535",       "tls://host:7420", "tls://[::1]:0"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        fm_address address;
        char text[FM_ADDRESS_TEXT_BYTES];
        assert_int_equal(fm_address_parse(texts[i], &address, NULL), FM_OK);
        assert_string_equal(fm_address_format(&address, text), texts[i]);
    }
}

static void bad_addresses(void **state) {
    (void)state;
    static const struct {
        const char *text, *meant; /* NULL: nothing is suggested */
    } cases[] = {
        {"localhost:7420", "tcp://localhost:7420"},
        {"localhost", "tcp://localhost:7420"},
        {"tcp://localhost", "tcp://localhost:7420"},
        {"tls://localhost", "tls://localhost:7420"},
        {"host", "tls://host:7420"},
        {"http://host:80/x", "tls://host:80"},
        {"tcp://host:80/", "tcp://host:80"},
        {"/run/s", "unix:/run/s"},
        {"./s", "unix:./s"},
        {"sock", "unix:sock"},
        {"foldmill.sock", "unix:foldmill.sock"},
        {"sockets:80", "tls://sockets:80"},
        {"tcp://host:65536", NULL},
        {"tcp://::1:80", NULL},
        {"tcp://host:", NULL},
        {"unix:", NULL},
        {"7420", NULL},
        {":7420", NULL},
        {"", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fm_address address;
        fm_error error;
        char words[FM_ADDRESS_TEXT_BYTES];
        assert_int_equal(fm_address_parse(cases[i].text, &address, &error), FM_ERR_USAGE);
        snprintf(words, sizeof words, "did you mean %s?", cases[i].meant ? cases[i].meant : "");
        const char *found = strstr(error.message, "did you mean");
        if (!cases[i].meant) {
            assert_null(found);
        } else {
            assert_string_equal(found, words);
        }
    }
    char path[FM_ADDRESS_PATH_BYTES + 8];
    memset(path, 'x', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    memcpy(path, "unix:", 5);
    assert_int_equal(fm_address_parse(path, &(fm_address){0}, NULL), FM_ERR_USAGE);
    fm_error error;
    assert_int_equal(fm_address_parse("unix:a,b", &(fm_address){0}, &error), FM_ERR_USAGE);
    assert_non_null(strstr(error.message, "found a comma in the path of a unix socket, 'a,b'"));
}

/* Failures to connect and to listen say what can be done. */
static void advice(void **state) {
    (void)state;
    fm_address any, bound, missing;
    fm_error error;
    int fd, other;
    assert_int_equal(fm_address_parse("tcp://127.0.0.1:0", &any, NULL), FM_OK);
    assert_int_equal(fm_address_listen(&any, &fd, &bound, &error), FM_OK);
    assert_int_equal(fm_address_listen(&bound, &other, &missing, &error), FM_ERR_IO);
    assert_non_null(strstr(error.message, "another program listens there; port 0 takes any"));
    close(fd);
    assert_int_equal(fm_address_connect(&bound, 1000, &other, &error), FM_ERR_IO);
    assert_non_null(strstr(error.message, "is foldmill serve running there?"));
    assert_int_equal(fm_address_parse("unix:nowhere/socket", &missing, NULL), FM_OK);
    assert_int_equal(fm_address_connect(&missing, 1000, &other, &error), FM_ERR_IO);
    assert_non_null(strstr(error.message, "is foldmill serve running there?"));
    assert_int_equal(fm_address_parse("tls://192.0.2.1:0", &any, NULL), FM_OK);
    assert_int_equal(fm_address_listen(&any, &fd, &bound, &error), FM_ERR_IO);
    assert_non_null(strstr(error.message, "this machine does not have that address"));
}

/* A name server that does not answer is a failure that may pass; a name without address is not. */
static void failed_lookups(void **state) {
    (void)state;
    static const struct {
        int result, code;
        fm_status status;
        const char *words;
    } cases[] = {
        {EAI_NONAME, 0, FM_ERR_NOT_FOUND, "host lab has no address: "},
        {EAI_NODATA, 0, FM_ERR_NOT_FOUND, "host lab has no address: "},
        {EAI_AGAIN, 0, FM_ERR_IO, "host lab cannot be looked up: Temporary failure"},
        {EAI_FAIL, 0, FM_ERR_IO, "host lab cannot be looked up: "},
        {EAI_SYSTEM, EMFILE, FM_ERR_IO, "host lab cannot be looked up: Too many open files"},
        {EAI_MEMORY, 0, FM_ERR_NOMEM, "host lab cannot be looked up: "},
    };
    const fm_address address = {.kind = FM_ADDRESS_TLS, .host = "lab", .port = 1};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fm_error error;
        int fd;
        lookup_result = cases[i].result;
        lookup_errno = cases[i].code;
        fm_status status = fm_address_connect(&address, 1000, &fd, &error);
        lookup_result = 0;
        assert_int_equal(status, cases[i].status);
        if (!strstr(error.message, cases[i].words)) fail_msg("%s", error.message);
    }
}

/* A server of another container may have this process's id and listen beside this one. */
static void a_name_with_the_process_id_stays(void **state) {
    (void)state;
    char folder[200], text[256];
    fm_address address, beside, bound;
    int fd, other;
    fm_test_make_folder(folder, sizeof folder);
    snprintf(text, sizeof text, "unix:%s/s", folder);
    assert_int_equal(fm_address_parse(text, &address, NULL), FM_OK);
    snprintf(text, sizeof text, "unix:%s/s.%d", folder, (int)getpid());
    assert_int_equal(fm_address_parse(text, &beside, NULL), FM_OK);
    assert_int_equal(fm_address_listen(&beside, &other, &bound, NULL), FM_OK);
    assert_int_equal(fm_address_listen(&address, &fd, &bound, NULL), FM_OK);
    close(fd);
    assert_int_equal(fm_address_connect(&beside, 1000, &fd, NULL), FM_OK);
    close(fd);
    close(other);
    fm_test_remove_tree(folder);
}

/* Plain TCP stays on this machine unless it is allowed to leave it; TLS may. */
static void plain_tcp_stays_here(void **state) {
    (void)state;
    static const char *const far[] = {"tcp://0.0.0.0:0", "tcp://[::]:0", "tcp://192.0.2.1:9",
                                      "tcp://[::ffff:192.0.2.1]:9"};
    for (size_t i = 0; i < sizeof far / sizeof far[0]; i++) {
        fm_address address, bound;
        fm_error error;
        int fd;
        assert_int_equal(fm_address_parse(far[i], &address, NULL), FM_OK);
        assert_int_equal(fm_address_listen(&address, &fd, &bound, &error), FM_ERR_USAGE);
        assert_non_null(strstr(error.message, "use tls:// (foldmill certs makes certificates), or "
                                              "add --insecure"));
        assert_int_equal(fm_address_connect(&address, 1, &fd, &error), FM_ERR_USAGE);
    }
    static const char *const allowed[] = {"tcp://0.0.0.0:0", "tls://0.0.0.0:0", "tcp://127.0.0.2:0",
                                          "tcp://localhost:0"};
    for (size_t i = 0; i < sizeof allowed / sizeof allowed[0]; i++) {
        fm_address address, bound;
        fm_error error;
        int fd;
        assert_int_equal(fm_address_parse(allowed[i], &address, NULL), FM_OK);
        address.is_insecure = i == 0;
        assert_int_equal(fm_address_listen(&address, &fd, &bound, &error), FM_OK);
        close(fd);
    }
}

static void peers_have_names(void **state) {
    (void)state;
    fm_address any, bound;
    fm_peer peer;
    int listening, fd;
    assert_int_equal(fm_address_parse("tcp://127.0.0.1:0", &any, NULL), FM_OK);
    assert_int_equal(fm_address_listen(&any, &listening, &bound, NULL), FM_OK);
    assert_int_equal(fm_address_connect(&bound, 1000, &fd, NULL), FM_OK);
    assert_true(fm_address_peer(fd, FM_ADDRESS_TCP, &peer));
    assert_string_equal(peer.text, "127.0.0.1");
    assert_int_equal(peer.ip[12], 127);
    close(fd);
    close(listening);
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    assert_true(fm_address_peer(pair[0], FM_ADDRESS_UNIX, &peer));
    assert_int_equal(peer.uid, getuid());
    assert_true(fm_address_peer_is_in_group(pair[0], &peer, getgid()));
    assert_false(fm_address_peer_is_in_group(pair[0], &peer, 4000000000u));
    close(pair[0]);
    close(pair[1]);
}

static ino_t file_of(const char *path) {
    struct stat info;
    assert_int_equal(lstat(path, &info), 0);
    return info.st_ino;
}

/* A server that does not answer keeps its socket: only one that is gone is replaced. */
static void a_busy_server_keeps_its_socket(void **state) {
    (void)state;
    enum { MOST = 1000 };
    char folder[256], text[300];
    int server, other, n = 0, clients[MOST];
    fm_address address, bound;
    fm_error error;
    fm_test_make_folder(folder, sizeof folder);
    snprintf(text, sizeof text, "unix:%s/socket", folder);
    assert_int_equal(fm_address_parse(text, &address, NULL), FM_OK);
    assert_int_equal(fm_address_listen(&address, &server, &bound, NULL), FM_OK);
    const ino_t file = file_of(address.path);
    while (n < MOST && !fm_address_connect(&address, 1000, &clients[n], NULL))
        n++; /* until the queue is full */
    assert_in_range(n, 1, MOST - 1);
    assert_int_equal(fm_address_listen(&address, &other, &bound, &error), FM_ERR_EXISTS);
    assert_non_null(strstr(error.message, "another server listens on unix:"));
    assert_int_equal(file_of(address.path), file);
    close(server);
    assert_int_equal(fm_address_listen(&address, &server, &bound, NULL), FM_OK);
    while (n)
        close(clients[--n]);
    assert_int_equal(fm_address_connect(&address, 1000, &clients[0], NULL), FM_OK);
    close(clients[0]);
    close(server);
    /* A socket of another kind belongs to another program. */
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    snprintf(name.sun_path, sizeof name.sun_path, "%s", address.path);
    assert_int_equal(unlink(address.path), 0);
    other = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(other, (struct sockaddr *)&name, sizeof name), 0);
    assert_int_equal(fm_address_listen(&address, &server, &bound, &error), FM_ERR_IO);
    assert_non_null(strstr(error.message, "cannot replace unix:"));
    close(other);
    fm_test_remove_tree(folder);
}

/* Two servers find the same stale file. The one that is later leaves that of the other alone. */
static void a_stale_file_is_replaced_once(void **state) {
    (void)state;
    char folder[200];
    fm_address address = {.kind = FM_ADDRESS_UNIX}, bound;
    fm_error error;
    int fd;
    fm_test_make_folder(folder, sizeof folder);
    snprintf(address.path, sizeof address.path, "%.80s/s", folder);
    assert_int_equal(fm_address_listen(&address, &fd, &bound, NULL), FM_OK);
    close(fd);
    overtaken = &address;
    assert_int_equal(fm_address_listen(&address, &fd, &bound, &error), FM_ERR_EXISTS);
    assert_non_null(strstr(error.message, "another server listens on unix:"));
    assert_int_equal(fm_address_connect(&address, 1000, &fd, NULL), FM_OK);
    close(fd);
    close(overtaking);
    assert_int_equal(fm_test_shell(folder, "ls > names; test \"$(tr '\\n' ' ' < names)\" = "
                                           "'names s '"),
                     0);
    fm_test_remove_tree(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_addresses),
        cmocka_unit_test(bad_addresses),
        cmocka_unit_test(a_name_with_the_process_id_stays),
        cmocka_unit_test(failed_lookups),
        cmocka_unit_test(advice),
        cmocka_unit_test(plain_tcp_stays_here),
        cmocka_unit_test(peers_have_names),
        cmocka_unit_test(a_busy_server_keeps_its_socket),
        cmocka_unit_test(a_stale_file_is_replaced_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
