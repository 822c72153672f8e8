/* A server on tls:// and a unix socket: who gets in, who does not, and that those who do not leave
 * nothing behind. */
#include "tests/server/server_fixture.h"

#include "proto/base/file.h"
#include "proto/client_link.h"
#include "proto/schema.h"
#include "server/access.h"
#include "tests/testing/certificates.h"

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static slab into;
static fm_test_certificates made;
static char made_in[200];

static const char lab_token[] = "u6Fh3jsQ0pXw9ZkT2mVb";

static void write_secret(const char *path, const void *data, size_t bytes) {
    fm_file_writer *writer;
    assert_int_equal(fm_file_writer_open_secret(path, &writer, NULL), FM_OK);
    assert_int_equal(fm_file_writer_append(writer, data, bytes, NULL), FM_OK);
    assert_int_equal(fm_file_writer_commit(writer, NULL), FM_OK);
}

static void write_tokens(server_fixture *f, const char *text, char out_path[256]) {
    snprintf(out_path, 256, "%s/tokens", f->folder);
    write_secret(out_path, text, strlen(text));
}

/* A server on tls:// (f->tcp_url) and on a unix socket. */
static void prepare_tls(server_fixture *f, const fm_test_pair *ca) {
    server_prepare(f);
    f->options.listen[1] = "tls://127.0.0.1:0";
    f->options.credentials = fm_test_server(&made.server, ca);
    f->options.is_open_to_all = !ca;
}

static fm_status try_connect(const char *url, const fm_credentials *credentials,
                             fm_client **ret_client, fm_error *reterr) {
    fm_client_options options = {
        .url = url, .agent = "test", .credentials = *credentials, .connect_ms = 20000};
    memset(reterr, 0, sizeof *reterr);
    return fm_client_connect(&options, ret_client, reterr);
}

static fm_client *connect_with(const char *url, const fm_credentials *credentials) {
    fm_client *client = NULL;
    fm_error error;
    if (try_connect(url, credentials, &client, &error)) fail_msg("%s", error.message);
    return client;
}

static void expect_failure(const char *url, const fm_credentials *credentials, fm_status status,
                           const char *words) {
    fm_client *client = NULL;
    fm_error error;
    fm_status got = try_connect(url, credentials, &client, &error);
    if (got != status || !strstr(error.message, words)) {
        fail_msg("%d '%s', expected %d '%s'", got, error.message, status, words);
    }
}

/* Receives a whole stream and compares every byte. */
static void receive_all_of(server_fixture *f, fm_client *client, uint64_t n_step) {
    fm_wire_open params = stream_of(n_step);
    fm_wire_opened opened = open_on(client, &params);
    for (uint64_t i = 0; i < opened.n_sample; i++) {
        fm_client_event event = next_on(client, &into);
        assert_sample(&f->test, &event, params.seed, i, f->test.global_batch);
        release_on(client, &event);
    }
    assert_int_equal(next_on(client, &into).kind, FM_CLIENT_END);
}

static size_t open_descriptors(void) {
    size_t n = 0;
    for (int fd = 0; fd < 4096; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

/* -- those who get in */

static void same_bytes_over_tls(void **state) {
    (void)state;
    for (int mutual = 0; mutual < 2; mutual++) {
        server_fixture f;
        prepare_tls(&f, mutual ? &made.ca : NULL);
        f.test.shape = (fm_test_shape){.n_res = 64, .n_clust = 16, .n_extra = 64, .n_cycle = 2};
        server_start(&f);
        fm_credentials credentials = fm_test_client(&made.ca, mutual ? &made.client : NULL);
        fm_client *client = connect_with(f.tcp_url, &credentials);
        receive_all_of(&f, client, 20);
        fm_client_close(client);
        client = connect_to(f.unix_url);
        receive_all_of(&f, client, 20);
        fm_client_close(client);
        server_finish(&f);
    }
}

/* Samples of many pieces, to a client that reads while the server encrypts. */
static void large_samples_come_in_pieces(void **state) {
    (void)state;
    server_fixture f;
    prepare_tls(&f, NULL);
    f.test.shape = (fm_test_shape){.n_res = 128, .n_clust = 64, .n_extra = 700, .n_cycle = 4};
    server_start(&f);
    fm_credentials credentials = fm_test_client(&made.ca, NULL);
    fm_client *client = connect_with(f.tcp_url, &credentials);
    fm_wire_open params = stream_of(2);
    params.credit_bytes = FM_LIMIT_CREDIT_BYTES;
    fm_wire_opened opened = open_on(client, &params);
    assert_true(opened.max_sample_bytes > 3 * FM_TLS_PIECE_BYTES);
    uint8_t *memory = aligned_alloc(4096, (opened.max_sample_bytes / 4096 + 1) * 4096);
    assert_non_null(memory);
    for (uint64_t i = 0; i < opened.n_sample; i++) {
        fm_client_event event = {0};
        fm_error error;
        if (fm_client_next(client, memory, opened.max_sample_bytes, &event, &error)) {
            fail_msg("%s", error.message);
        }
        assert_sample(&f.test, &event, params.seed, i, f.test.global_batch);
        release_on(client, &event);
    }
    free(memory);
    fm_client_close(client);
    server_finish(&f);
}

/* -- those who do not */

static void strangers_are_refused(void **state) {
    (void)state;
    server_fixture f;
    prepare_tls(&f, &made.ca);
    server_start(&f);
    fm_credentials nothing = fm_test_client(&made.ca, NULL);
    fm_credentials expired = fm_test_client(&made.ca, &made.expired_client);
    fm_credentials foreign = fm_test_client(&made.ca, &made.other_client);
    fm_credentials wrong_ca = fm_test_client(&made.other_ca, &made.client);
    fm_credentials good = fm_test_client(&made.ca, &made.client);
    expect_failure(f.tcp_url, &nothing, FM_ERR_DENIED, "the server wants a client certificate");
    expect_failure(f.tcp_url, &expired, FM_ERR_DENIED, "says that our certificate has expired");
    expect_failure(f.tcp_url, &foreign, FM_ERR_DENIED, "does not know the authority of our");
    expect_failure(f.tcp_url, &wrong_ca, FM_ERR_DENIED, "--tls-ca must be the ca.crt");
    char plain[FM_ADDRESS_TEXT_BYTES];
    snprintf(plain, sizeof plain, "tcp://%s", f.tcp_url + strlen("tls://"));
    expect_failure(plain, &good, FM_ERR_USAGE, "is not encrypted: use tls://");
    fm_credentials none = {0};
    expect_failure(plain, &none, FM_ERR_CLOSED, "if it speaks TLS, use a tls:// address");
    await_connections(&f, 0);
    assert_int_equal(counter(&f, FM_COUNT_HANDSHAKES_REFUSED), 5);
    fm_client *client = connect_with(f.tcp_url, &good);
    receive_all_of(&f, client, 2);
    fm_client_close(client);
    server_finish(&f);
}

static void a_plain_server_is_named(void **state) {
    (void)state;
    server_fixture f;
    server_prepare(&f);
    server_start(&f);
    char url[FM_ADDRESS_TEXT_BYTES];
    snprintf(url, sizeof url, "tls://%s", f.tcp_url + strlen("tcp://"));
    fm_credentials credentials = fm_test_client(&made.ca, NULL);
    expect_failure(url, &credentials, FM_ERR_PROTOCOL, "the server speaks no TLS at this address");
    server_finish(&f);
}

/* -- tokens */

static void tokens_open_what_they_name(void **state) {
    (void)state;
    server_fixture f;
    char tokens[256];
    prepare_tls(&f, NULL);
    write_tokens(&f,
                 "lab u6Fh3jsQ0pXw9ZkT2mVb plans=test,other\n"
                 "narrow narrow-narrow-narrow plans=other\n"
                 "elsewhere elsewhere-elsewhere snapshots=none\n",
                 tokens);
    f.options.credentials.token_file = tokens;
    server_start(&f);
    fm_credentials credentials = fm_test_client(&made.ca, NULL);
    expect_failure(f.tcp_url, &credentials, FM_ERR_DENIED, "the server wants an access token");
    assert_int_equal(setenv("FOLDMILL_TOKEN", "u6Fh3jsQ0pXw9ZkT2mVc", 1), 0);
    expect_failure(f.tcp_url, &credentials, FM_ERR_DENIED, "does not know this access token");
    assert_int_equal(setenv("FOLDMILL_TOKEN", "elsewhere-elsewhere", 1), 0);
    expect_failure(f.tcp_url, &credentials, FM_ERR_DENIED, "is not for a snapshot of this server");
    assert_int_equal(counter(&f, FM_COUNT_TOKENS_REFUSED), 3);
    assert_int_equal(setenv("FOLDMILL_TOKEN", "narrow-narrow-narrow", 1), 0);
    fm_client *client = connect_with(f.tcp_url, &credentials);
    fm_wire_open params = stream_of(1);
    fm_wire_opened opened;
    fm_error error;
    assert_int_equal(fm_client_open(client, &params, &opened, &error), FM_ERR_DENIED);
    assert_string_equal(error.message, "this access token is not for the plan test");
    fm_client_close(client);
    assert_int_equal(setenv("FOLDMILL_TOKEN", lab_token, 1), 0);
    client = connect_with(f.tcp_url, &credentials);
    receive_all_of(&f, client, 2);
    fm_client_close(client);
    /* The user of a unix socket is known; a token that is shown counts there, too. */
    assert_int_equal(setenv("FOLDMILL_TOKEN", "u6Fh3jsQ0pXw9ZkT2mVc", 1), 0);
    expect_failure(f.unix_url, &credentials, FM_ERR_DENIED, "does not know this access token");
    assert_int_equal(unsetenv("FOLDMILL_TOKEN"), 0);
    client = connect_to(f.unix_url);
    receive_all_of(&f, client, 2);
    fm_client_close(client);
    server_finish(&f);
}

/* Guessed tokens get nobody in. Each guess costs its peer a request, so that it soon gets no
 * answer, and holders elsewhere are served. */
static void guesses_get_nobody_in(void **state) {
    (void)state;
    enum { N = 60 };
    server_fixture f;
    char tokens[256], guess[64];
    uint32_t n_denied = 0;
    prepare_tls(&f, NULL);
    write_tokens(&f, "lab u6Fh3jsQ0pXw9ZkT2mVb\n", tokens);
    f.options.credentials.token_file = tokens;
    f.options.peer.requests_per_s = 2; /* and twenty at once */
    server_start(&f);
    for (uint32_t i = 0; i < N; i++) {
        fm_client *client = NULL;
        fm_error error;
        fm_client_options options = {.url = f.unix_url};
        snprintf(guess, sizeof guess, "u6Fh3jsQ0pXw9Zk%05u", i);
        assert_int_equal(setenv("FOLDMILL_TOKEN", guess, 1), 0);
        fm_status status = fm_client_connect(&options, &client, &error);
        assert_true(status);
        n_denied += status == FM_ERR_DENIED;
    }
    assert_true(n_denied >= 10 && n_denied < N);
    assert_true(counter(&f, FM_COUNT_TOKENS_REFUSED) >= n_denied);
    assert_true(counter(&f, FM_COUNT_REFUSED_FLOOD) > 0);
    fm_credentials credentials = fm_test_client(&made.ca, NULL);
    assert_int_equal(setenv("FOLDMILL_TOKEN", lab_token, 1), 0);
    fm_client *client = connect_with(f.tcp_url, &credentials);
    receive_all_of(&f, client, 2);
    fm_client_close(client);
    assert_int_equal(unsetenv("FOLDMILL_TOKEN"), 0);
    server_finish(&f);
}

/* The streams and bytes of a token are those of all its holders together. */
static void tokens_have_limits(void **state) {
    (void)state;
    server_fixture f;
    char tokens[256];
    prepare_tls(&f, NULL);
    write_tokens(&f,
                 "one one-one-one-one-one streams=1\n"
                 "few few-few-few-few-few bytes=1K\n",
                 tokens);
    f.options.credentials.token_file = tokens;
    server_start(&f);
    fm_credentials credentials = fm_test_client(&made.ca, NULL);
    fm_wire_open params = stream_of(1);
    fm_wire_opened opened;
    fm_error error;
    assert_int_equal(setenv("FOLDMILL_TOKEN", "one-one-one-one-one", 1), 0);
    fm_client *first = connect_with(f.tcp_url, &credentials);
    fm_client *second = connect_with(f.tcp_url, &credentials);
    (void)open_on(first, &params);
    assert_int_equal(fm_client_open(second, &params, &opened, &error), FM_ERR_LIMIT);
    assert_non_null(strstr(error.message, "token:one has 1 streams, as many as its access "
                                          "token allows"));
    fm_client_close(first);
    fm_client_close(second);
    assert_int_equal(setenv("FOLDMILL_TOKEN", "few-few-few-few-few", 1), 0);
    first = connect_with(f.tcp_url, &credentials);
    opened = open_on(first, &params);
    assert_true(opened.n_sample > 1 && opened.max_sample_bytes > 1024);
    fm_client_event event = next_on(first, &into);
    assert_sample(&f.test, &event, params.seed, 0, f.test.global_batch);
    fm_status status = FM_OK;
    while (!status)
        status = fm_client_next(first, into.bytes, sizeof into.bytes, &event, &error);
    assert_int_equal(status, FM_ERR_LIMIT);
    assert_non_null(strstr(error.message, "the 1024 bytes that this token allows were sent"));
    fm_client_close(first);
    assert_int_equal(unsetenv("FOLDMILL_TOKEN"), 0);
    server_finish(&f);
}

/* Sends frames over a link and returns the text of the ERROR that comes back. */
static void talk(fm_client_link *link, const fm_wire_message *messages, size_t n,
                 fm_wire_error *out) {
    uint8_t bytes[FM_WIRE_CONTROL_BYTES], frame[FM_WIRE_CONTROL_BYTES];
    size_t used = 0, sent;
    for (size_t i = 0; i < n; i++) {
        size_t size = fm_wire_encode(&messages[i], i, frame, sizeof frame);
        assert_int_equal(fm_client_link_send(link, frame, size, &sent, NULL), FM_OK);
        assert_int_equal(sent, size);
    }
    for (;;) {
        size_t got = 0;
        struct pollfd wait = {.fd = fm_client_link_get_fd(link), .events = POLLIN};
        assert_true(poll(&wait, 1, 10000) > 0);
        if (fm_client_link_receive(link, bytes + used, sizeof bytes - used, &got, NULL)) break;
        used += got;
    }
    fm_wire_header header;
    static fm_wire_message message;
    assert_true(used >= FM_WIRE_HEADER_BYTES);
    assert_int_equal(fm_wire_header_decode(bytes, &header, NULL), FM_OK);
    assert_int_equal(used, FM_WIRE_HEADER_BYTES + header.body_bytes); /* nothing else was told */
    fm_bytes body = {bytes + FM_WIRE_HEADER_BYTES, header.body_bytes};
    assert_int_equal(fm_wire_decode(&header, body, &message, NULL), FM_OK);
    assert_int_equal(message.kind, FM_WIRE_ERROR);
    *out = message.error;
}

static fm_client_link *link_to(const char *url, const fm_credentials *credentials) {
    fm_address address;
    fm_client_link *link = NULL;
    fm_error error;
    assert_int_equal(fm_address_parse(url, &address, NULL), FM_OK);
    fm_status status = fm_client_link_open(&address, credentials, 20000, NULL, &link, &error);
    if (status) fail_msg("%s", error.message);
    return link;
}

static void expect_talk(const char *url, const fm_wire_message *messages, size_t n,
                        fm_status status, const char *text) {
    fm_credentials credentials = fm_test_client(&made.ca, NULL);
    fm_client_link *link = link_to(url, &credentials);
    fm_wire_error error;
    talk(link, messages, n, &error);
    assert_string_equal(error.text, text);
    assert_int_equal(error.status, status);
    fm_client_link_close(link);
}

static void auth_has_its_place(void **state) {
    (void)state;
    server_fixture f;
    char tokens[256];
    prepare_tls(&f, NULL);
    write_tokens(&f, "lab u6Fh3jsQ0pXw9ZkT2mVb\n", tokens);
    f.options.credentials.token_file = tokens;
    server_start(&f);
    fm_wire_message auth = {.kind = FM_WIRE_AUTH, .auth = {.secret = "u6Fh3jsQ0pXw9ZkT2mVb"}};
    fm_wire_message ping = {.kind = FM_WIRE_PING, .ping = 1};
    fm_wire_message hello = {.kind = FM_WIRE_HELLO,
                             .hello = {.version_min = 7, .version_max = 9, .snapshot_name = "x"}};
    const fm_wire_message twice[] = {auth, auth}, early[] = {ping}, late[] = {auth, ping};
    expect_talk(f.tcp_url, twice, 2, FM_ERR_PROTOCOL, "AUTH came twice");
    expect_talk(f.tcp_url, early, 1, FM_ERR_PROTOCOL, "PING cannot come in state auth");
    expect_talk(f.tcp_url, late, 2, FM_ERR_PROTOCOL, "PING cannot come in state hello");
    expect_talk(f.tcp_url, &hello, 1, FM_ERR_DENIED,
                "the server wants an access token; give one by --token-file or FOLDMILL_TOKEN");
    auth.auth.secret[0] = '\0';
    expect_talk(f.tcp_url, &auth, 1, FM_ERR_DENIED,
                "the access token is empty; give one by --token-file or FOLDMILL_TOKEN");
    server_finish(&f);

    server_prepare(&f);
    server_start(&f);
    expect_talk(f.tcp_url, &auth, 1, FM_ERR_PROTOCOL,
                "AUTH cannot come over plain TCP, where others can read it");
    fm_credentials credentials = {.token_file = "/nowhere"};
    expect_failure(f.tcp_url, &credentials, FM_ERR_USAGE, "is not sent over tcp://127.0.0.1:");
    server_finish(&f);
}

static void servers_refuse_what_does_not_fit(void **state) {
    (void)state;
    server_fixture f;
    fm_error error;
    char tokens[256];
    server_prepare(&f);
    write_tokens(&f, "lab u6Fh3jsQ0pXw9ZkT2mVb\n", tokens);
    fm_test_source_init(&f.test, &f.source);
    f.options.credentials.token_file = tokens;
    assert_int_equal(fm_server_create(&f.options, &f.source, &f.server, &error), FM_ERR_USAGE);
    assert_non_null(strstr(error.message, "are not taken over tcp://127.0.0.1:0"));
    f.options.listen[1] = "tls://127.0.0.1:0";
    assert_int_equal(fm_server_create(&f.options, &f.source, &f.server, &error), FM_ERR_USAGE);
    assert_non_null(strstr(error.message, "needs both --tls-cert and --tls-key"));
    f.options.listen[1] = "tcp://0.0.0.0:0";
    f.options.credentials.token_file = NULL;
    assert_int_equal(fm_server_create(&f.options, &f.source, &f.server, &error), FM_ERR_USAGE);
    assert_non_null(strstr(error.message, "or add --insecure on a network"));
    f.options.listen[1] = NULL;
    f.options.credentials.tls_cert = made.server.cert;
    assert_int_equal(fm_server_create(&f.options, &f.source, &f.server, &error), FM_ERR_USAGE);
    assert_non_null(strstr(error.message, "--tls-cert has no use without a tls:// address"));
    f.options.credentials.tls_cert = NULL;
    f.options.credentials.tls_ca = made.ca.cert;
    assert_int_equal(fm_server_create(&f.options, &f.source, &f.server, &error), FM_ERR_USAGE);
    assert_non_null(strstr(error.message, "--tls-ca has no use without a tls:// address"));
    f.options.credentials.tls_ca = NULL;
    f.options.unix_group = "no-such-group";
    f.options.listen[0] = "tcp://127.0.0.1:0";
    assert_int_equal(fm_server_create(&f.options, &f.source, &f.server, &error), FM_ERR_USAGE);
    assert_non_null(strstr(error.message, "--unix-group has no use without a unix: address"));
    f.options.listen[0] = f.unix_url;
    assert_int_equal(fm_server_create(&f.options, &f.source, &f.server, &error), FM_ERR_NOT_FOUND);
    fm_test_source_fini(&f.test);
    fm_test_remove_tree(f.folder);
}

static int raw_connect(const char *url) {
    fm_address address;
    int fd = -1;
    assert_int_equal(fm_address_parse(url, &address, NULL), FM_OK);
    assert_int_equal(fm_address_connect(&address, 5000, &fd, NULL), FM_OK);
    return fd;
}

/* The members of a group may use the socket; the kernel's own check lets them reach it. */
static void a_group_may_connect(void **state) {
    (void)state;
    server_fixture f;
    char group[16];
    struct stat info;
    server_prepare(&f);
    snprintf(group, sizeof group, "%u", (unsigned)getgid());
    f.options.unix_group = group;
    server_start(&f);
    assert_int_equal(stat(f.unix_url + strlen("unix:"), &info), 0);
    assert_int_equal(info.st_mode & 0777, 0660);
    assert_int_equal(info.st_gid, getgid());
    fm_client *client = connect_to(f.unix_url);
    receive_all_of(&f, client, 1);
    fm_client_close(client);
    assert_int_equal(counter(&f, FM_COUNT_USERS_REFUSED), 0);
    server_finish(&f);
}

/* A user whom the file's mode lets through, and who is neither the server's user nor of its group,
 * is closed without a word. Needs the right to become another user. */
static void other_users_are_refused(void **state) {
    (void)state;
    if (geteuid() != 0) skip();
    server_fixture f;
    server_prepare(&f);
    server_start(&f);
    const char *path = f.unix_url + strlen("unix:");
    assert_int_equal(chmod(f.folder, 0755), 0);
    assert_int_equal(chmod(path, 0666), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) { /* its exit status is the verdict */
        char byte;
        if (setgroups(0, NULL) || setgid(65534) || setuid(65534)) _exit(2);
        int fd = raw_connect(f.unix_url);
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        _exit(poll(&wait, 1, 10000) == 1 && recv(fd, &byte, 1, 0) <= 0 ? 0 : 1);
    }
    int verdict = -1;
    assert_true(waitpid(child, &verdict, 0) == child);
    assert_int_equal(verdict, 0);
    assert_int_equal(counter(&f, FM_COUNT_USERS_REFUSED), 1);
    server_finish(&f);
}

/* -- reloading */

static void copy_file(const char *from, const char *to, bool is_secret) {
    fm_arena arena;
    fm_bytes text;
    assert_int_equal(fm_arena_init(&arena, 1 << 20, NULL), FM_OK);
    assert_int_equal(fm_file_read(&arena, from, 1 << 16, &text, NULL), FM_OK);
    if (is_secret) {
        write_secret(to, text.data, text.size);
    } else {
        assert_int_equal(fm_file_write_atomic(to, text.data, text.size, NULL), FM_OK);
    }
    fm_arena_fini(&arena);
}

static void files_are_read_again(void **state) {
    (void)state;
    server_fixture f;
    fm_test_pair own;
    char tokens[256];
    prepare_tls(&f, NULL);
    snprintf(own.cert, sizeof own.cert, "%s/own.crt", f.folder);
    snprintf(own.key, sizeof own.key, "%s/own.key", f.folder);
    copy_file(made.server.cert, own.cert, false);
    copy_file(made.server.key, own.key, true);
    write_tokens(&f, "lab u6Fh3jsQ0pXw9ZkT2mVb\n", tokens);
    f.options.credentials = fm_test_server(&own, NULL);
    f.options.credentials.token_file = tokens;
    server_start(&f);
    fm_credentials before = fm_test_client(&made.ca, NULL);
    fm_credentials after = fm_test_client(&made.other_ca, NULL);
    assert_int_equal(setenv("FOLDMILL_TOKEN", lab_token, 1), 0);
    fm_client *old = connect_with(f.tcp_url, &before);
    fm_wire_open params = stream_of(40);
    (void)open_on(old, &params);
    fm_client_event event = next_on(old, &into);
    assert_sample(&f.test, &event, params.seed, 0, f.test.global_batch);
    release_on(old, &event);

    /* A key that does not fit its certificate: the old ones stay. */
    copy_file(made.other_server.cert, own.cert, false);
    fm_server_reload(f.server);
    fm_client_close(connect_with(f.tcp_url, &before));
    copy_file(made.other_server.key, own.key, true);
    write_tokens(&f, "new new-token-new-token\n", tokens);
    fm_server_reload(f.server);
    fm_client *none = NULL;
    fm_error error;
    for (int i = 0; i < 100 && try_connect(f.tcp_url, &before, &none, &error) != FM_ERR_DENIED; i++)
        sleep_ms(20);
    expect_failure(f.tcp_url, &before, FM_ERR_DENIED, "--tls-ca must be the ca.crt");
    expect_failure(f.tcp_url, &after, FM_ERR_DENIED, "does not know this access token");
    assert_int_equal(setenv("FOLDMILL_TOKEN", "new-token-new-token", 1), 0);
    fm_client_close(connect_with(f.tcp_url, &after));
    for (uint64_t i = 1; i < 40u * f.test.global_batch; i++) { /* the stream did not notice */
        event = next_on(old, &into);
        assert_sample(&f.test, &event, params.seed, i, f.test.global_batch);
        release_on(old, &event);
    }
    fm_client_close(old);
    assert_int_equal(unsetenv("FOLDMILL_TOKEN"), 0);
    server_finish(&f);
}

/* -- handshakes */

/* What a client says first. */
static size_t client_hello(uint8_t *out, size_t capacity) {
    const fm_tls_options options = {.side = FM_TLS_CLIENT, .ca = made.ca.cert};
    fm_tls_context *context;
    fm_tls *tls;
    bool ready;
    assert_int_equal(fm_tls_context_create(&options, &context, NULL), FM_OK);
    assert_int_equal(fm_tls_open(context, "localhost", &tls, NULL), FM_OK);
    assert_int_equal(fm_tls_handshake(tls, &ready, NULL), FM_OK);
    fm_bytes bytes = fm_tls_out(tls);
    assert_true(bytes.size > 100 && bytes.size <= capacity);
    memcpy(out, bytes.data, bytes.size);
    size_t size = bytes.size;
    fm_tls_close(tls);
    fm_tls_context_destroy(context);
    return size;
}

/* A thousand begin and leave at different points; a good client comes in between. */
static void handshakes_are_left(void **state) {
    (void)state;
    enum { N = 1000, AT_ONCE = 100 };
    server_fixture f;
    prepare_tls(&f, NULL);
    f.options.hello_ms = 2000;
    f.options.max_connection =
        2 * N; /* the newest have their turn first, so that old ones pile up */
    f.options.n_greeting = f.options.peer.n_greeting = 2 * N;
    server_start(&f);
    uint8_t hello[4096];
    size_t hello_bytes = client_hello(hello, sizeof hello);
    fm_credentials credentials = fm_test_client(&made.ca, NULL);
    fm_client_close(connect_with(f.tcp_url, &credentials));
    await_connections(&f, 0);
    size_t before = open_descriptors();
    int fds[AT_ONCE];
    for (size_t n = 0; n < N; n += AT_ONCE) {
        for (size_t i = 0; i < AT_ONCE; i++) {
            fds[i] = raw_connect(f.tcp_url);
            size_t bytes = i % 4 == 0 ? 0 : i % 4 == 1 ? i : hello_bytes;
            if (bytes) assert_int_equal(send(fds[i], hello, bytes, MSG_NOSIGNAL), (ssize_t)bytes);
        }
        for (size_t i = 0; i < AT_ONCE; i++)
            close(fds[i]);
        fm_client_close(connect_with(f.tcp_url, &credentials));
    }
    await_connections(&f, 0);
    assert_int_equal(open_descriptors(), before);
    assert_int_equal(counter(&f, FM_COUNT_HANDSHAKES_REFUSED), N);
    server_finish(&f);
}

/* More silent peers than turns: those behind them wait, and get in once the silent have had their
 * time. */
static void silent_peers_lose_their_turn(void **state) {
    (void)state;
    enum { N = FM_ACCESS_N_HANDSHAKE_PER_ADDRESS };
    server_fixture f;
    prepare_tls(&f, NULL);
    f.options.hello_ms = 1500;
    server_start(&f);
    int fds[N];
    for (size_t i = 0; i < N; i++)
        fds[i] = raw_connect(f.tcp_url);
    await_connections(&f, N);
    sleep_ms(1000); /* so that the good client's own time is not over with theirs */
    fm_credentials credentials = fm_test_client(&made.ca, NULL);
    fm_client *client = connect_with(f.tcp_url, &credentials);
    receive_all_of(&f, client, 1);
    await_counter(&f, FM_COUNT_HANDSHAKES_REFUSED, N);
    fm_client_close(client);
    for (size_t i = 0; i < N; i++)
        close(fds[i]);
    server_finish(&f);
}

static void turns_are_counted(void **state) {
    (void)state;
    fm_access *access = NULL;
    fm_credentials none = {0};
    assert_int_equal(fm_access_create(&none, false, NULL, &access, NULL), FM_OK);
    fm_peer a = {.ip = {1}}, b = {.ip = {2}}, c = {.ip = {3}};
    for (int i = 0; i < FM_ACCESS_N_HANDSHAKE_PER_ADDRESS; i++)
        assert_true(fm_access_enter_handshake(access, &a));
    assert_false(fm_access_enter_handshake(access, &a));
    for (int i = FM_ACCESS_N_HANDSHAKE_PER_ADDRESS; i < FM_ACCESS_N_HANDSHAKE; i++)
        assert_true(fm_access_enter_handshake(access, &b));
    assert_false(fm_access_enter_handshake(access, &c));
    fm_access_leave_handshake(access, &a);
    assert_true(fm_access_enter_handshake(access, &c));
    assert_false(fm_access_enter_handshake(access, &a));
    fm_access_leave_handshake(access, &c);
    assert_true(fm_access_enter_handshake(access, &a));
    fm_access_destroy(access);
}

/* A host has a whole /64 of IPv6 to choose addresses from, and gets the turns of one. */
static void a_network_has_the_turns_of_one_address(void **state) {
    (void)state;
    fm_access *access = NULL;
    fm_credentials none = {0};
    assert_int_equal(fm_access_create(&none, false, NULL, &access, NULL), FM_OK);
    fm_peer one = {.ip = {0x20, 1, 0xd, 0xb8}}, mapped = {.ip = {[10] = 0xff, [11] = 0xff}};
    for (uint8_t i = 0; i < FM_ACCESS_N_HANDSHAKE_PER_ADDRESS; i++) {
        one.ip[15] = mapped.ip[15] = i;
        assert_true(fm_access_enter_handshake(access, &one));
        assert_true(fm_access_enter_handshake(access, &mapped)); /* each a host of its own */
    }
    for (uint8_t i = 0; i < FM_ACCESS_N_HANDSHAKE_PER_ADDRESS; i++) {
        mapped.ip[15] = i;
        fm_access_leave_handshake(access, &mapped);
    }
    one.ip[8] = 7;
    assert_false(fm_access_enter_handshake(access, &one));
    one.ip[7] = 1; /* another network */
    assert_true(fm_access_enter_handshake(access, &one));
    fm_access_destroy(access);
}

/* -- ends */

/* A server that is cut off: its TCP stream ends without close_notify. */
static void a_cut_is_told_from_an_end(void **state) {
    (void)state;
    for (int is_cut = 0; is_cut < 2; is_cut++) {
        const fm_tls_options options = {
            .side = FM_TLS_SERVER, .cert = made.server.cert, .key = made.server.key};
        fm_tls_context *context;
        fm_tls *tls;
        fm_address any, bound;
        int listening;
        assert_int_equal(fm_tls_context_create(&options, &context, NULL), FM_OK);
        assert_int_equal(fm_tls_open(context, NULL, &tls, NULL), FM_OK);
        assert_int_equal(fm_address_parse("tls://127.0.0.1:0", &any, NULL), FM_OK);
        assert_int_equal(fm_address_listen(&any, &listening, &bound, NULL), FM_OK);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) { /* the client; its exit status is the verdict */
            fm_credentials credentials = fm_test_client(&made.ca, NULL);
            fm_client_link *link;
            fm_error error = {0};
            uint8_t byte;
            size_t got = 0;
            fm_status status =
                fm_client_link_open(&bound, &credentials, 20000, NULL, &link, &error);
            while (!status) {
                struct pollfd wait = {.fd = fm_client_link_get_fd(link), .events = POLLIN};
                (void)poll(&wait, 1, 10000);
                status = fm_client_link_receive(link, &byte, 1, &got, &error);
            }
            const char *words = is_cut ? "was cut off" : "closed the connection";
            _exit(status == FM_ERR_CLOSED && strstr(error.message, words) ? 0 : 1);
        }
        struct pollfd wait = {.fd = listening, .events = POLLIN};
        assert_true(poll(&wait, 1, 10000) > 0);
        int fd = accept(listening, NULL, NULL);
        bool ready = false;
        uint8_t in[8192];
        while (!ready) {
            ssize_t n = recv(fd, in, sizeof in, 0);
            assert_true(n > 0);
            fm_tls_feed(tls, (fm_bytes){in, (size_t)n});
            assert_int_equal(fm_tls_handshake(tls, &ready, NULL), FM_OK);
            fm_bytes out = fm_tls_out(tls);
            if (out.size) assert_int_equal(send(fd, out.data, out.size, 0), (ssize_t)out.size);
            fm_tls_sent(tls, out.size);
        }
        if (!is_cut) fm_tls_finish(tls);
        fm_bytes out = fm_tls_out(tls);
        if (out.size) assert_int_equal(send(fd, out.data, out.size, 0), (ssize_t)out.size);
        close(fd);
        close(listening);
        int verdict = -1;
        assert_true(waitpid(child, &verdict, 0) == child);
        assert_int_equal(verdict, 0);
        fm_tls_close(tls);
        fm_tls_context_destroy(context);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bytes_over_tls),
        cmocka_unit_test(large_samples_come_in_pieces),
        cmocka_unit_test(strangers_are_refused),
        cmocka_unit_test(a_plain_server_is_named),
        cmocka_unit_test(tokens_open_what_they_name),
        cmocka_unit_test(guesses_get_nobody_in),
        cmocka_unit_test(tokens_have_limits),
        cmocka_unit_test(auth_has_its_place),
        cmocka_unit_test(servers_refuse_what_does_not_fit),
        cmocka_unit_test(a_group_may_connect),
        cmocka_unit_test(other_users_are_refused),
        cmocka_unit_test(files_are_read_again),
        cmocka_unit_test(handshakes_are_left),
        cmocka_unit_test(silent_peers_lose_their_turn),
        cmocka_unit_test(turns_are_counted),
        cmocka_unit_test(a_network_has_the_turns_of_one_address),
        cmocka_unit_test(a_cut_is_told_from_an_end),
    };
    fm_test_make_folder(made_in, sizeof made_in);
    fm_test_make_certificates(made_in, &made);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fm_test_remove_tree(made_in);
    return failed;
}
