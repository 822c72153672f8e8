/* test_meeting.c: ranks that are processes meet and exchange bytes; strangers, lost and late ranks
 * are refused or named. */
#include "tests/testing/testing.h"

#include "proto/address.h"
#include "proto/base/file.h"
#include "trainer/dist/meeting.h"
#include "trainer/dist/meeting_link.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { MOST = 5, ROUNDS = 50, LONG_BYTES = 300000, SAID_BYTES = 84 + 2 * 32 };

static const double generous_s = 60;

/* What one rank does, in a process; it returns its exit status. */
typedef int (*rank_work)(const char *address, int32_t rank, int32_t size);

static pid_t start(rank_work work, const char *address, int32_t rank, int32_t size) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child > 0) return child;
    fm_test_die_with_parent();
    _exit(work(address, rank, size));
}

/* Runs all ranks and expects the exit status `expected[r]`; NULL: 0 of every rank. -1: killed. */
static void run_ranks(rank_work work, const char *address, int32_t size, const int *expected) {
    pid_t child[MOST];
    for (int32_t r = size; r-- > 0;) /* rank 0 last: the others wait for it */
        child[r] = start(work, address, r, size);
    int code[MOST];
    for (int32_t r = 0; r < size; r++) { /* all, so that none is left to a later test */
        int state;
        assert_int_equal(waitpid(child[r], &state, 0), child[r]);
        code[r] = WIFEXITED(state) ? WEXITSTATUS(state) : -1;
    }
    for (int32_t r = 0; r < size; r++)
        assert_int_equal(code[r], expected ? expected[r] : 0);
}

static void fill(uint8_t *out, size_t bytes, int32_t rank, int round) {
    for (size_t i = 0; i < bytes; i++)
        out[i] = (uint8_t)(i * 7 + (size_t)rank * 31 + (size_t)round);
}

/* -- gathers */

static const char *secret; /* of the ranks */

static int gather_much(const char *address, int32_t rank, int32_t size) {
    fm_meeting *meeting;
    fm_error error;
    const fm_meeting_terms terms = {.seconds = generous_s, .secret = secret};
    if (fm_meeting_open_on(&meeting, address, rank, size, &terms, &error)) {
        fprintf(stderr, "rank %d: %s\n", (int)rank, error.message);
        return 1;
    }
    uint8_t *all = malloc((size_t)size * LONG_BYTES), *mine = malloc(LONG_BYTES);
    bool ok = all && mine && fm_meeting_rank(meeting) == rank && fm_meeting_size(meeting) == size;
    for (int round = 0; ok && round < ROUNDS; round++) {
        size_t bytes = round == 17 ? LONG_BYTES : (size_t)round % 3 * 40;
        fill(mine, bytes, rank, round);
        ok = !fm_meeting_gather(meeting, mine, bytes, all, generous_s, &error);
        for (int32_t r = 0; ok && r < size; r++) {
            fill(mine, bytes, r, round);
            ok = memcmp(mine, all + (size_t)r * bytes, bytes) == 0;
        }
    }
    free(all);
    free(mine);
    fm_meeting_close(meeting);
    return ok ? 0 : 2;
}

/* Finds a port that is free now on all addresses of the host, as rank 0 will bind it. The system
 * does not give ports below 32,768 to connections, so none takes it before rank 0 does. */
static void free_port(char out[FM_MEETING_ADDRESS_BYTES]) {
    static uint16_t next;
    int fd = -1;
    fm_address all = {.kind = FM_ADDRESS_TCP, .host = "0.0.0.0", .is_insecure = true}, bound;
    if (!next) next = (uint16_t)(20000 + getpid() % 10000);
    do {
        all.port = next++;
        assert_true(all.port < 32768);
    } while (fm_address_listen(&all, &fd, &bound, NULL));
    close(fd);
    snprintf(out, FM_MEETING_ADDRESS_BYTES, "tcp://localhost:%u#run-7", bound.port);
}

static void ranks_meet_and_gather(void **state) {
    (void)state;
    char folder[256], address[FM_MEETING_ADDRESS_BYTES], path[300];
    fm_test_make_folder(folder, sizeof folder);
    for (int32_t size = 1; size <= MOST; size++) {
        snprintf(address, sizeof address, "unix:%s/socket", folder);
        run_ranks(gather_much, address, size, NULL);
        snprintf(address, sizeof address, "file:%s/meeting#a", folder);
        run_ranks(gather_much, address, size, NULL);
        free_port(address);
        run_ranks(gather_much, address, size, NULL);
    }
    /* What a meeting made on disk is gone. */
    assert_true(snprintf(path, sizeof path, "%s", folder) > 0 && rmdir(path) == 0);
}

static void an_old_file_is_not_used(void **state) {
    (void)state;
    char folder[256], path[300], address[FM_MEETING_ADDRESS_BYTES];
    fm_test_make_folder(folder, sizeof folder);
    snprintf(path, sizeof path, "%s/meeting", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("run 0123456789abcdef\ntcp://localhost:1\ntcp://127.0.0.1:1\n", file);
    fclose(file);
    snprintf(address, sizeof address, "file:%s", path);
    run_ranks(gather_much, address, 3, NULL);
    fm_test_remove_tree(folder);
}

/* What a rank that waits is expected to log. */
typedef struct awaited {
    int log;
    const char *text;
} awaited;

static const char *find_said(const awaited *e, char said[1024]) {
    ssize_t n = pread(e->log, said, 1023, 0);
    said[n > 0 ? n : 0] = '\0';
    return strstr(said, e->text);
}

static bool is_said(void *context) {
    char said[1024];
    return find_said(context, said) != NULL;
}

/* Comes as rank 1 of `size` to a meeting that it does not find, and waits only until its log has
 * said why. Returns whether that is said once. */
static bool says_why(const char *address, int32_t size, const char *why) {
    char said[1024];
    fm_meeting *meeting;
    fm_error error;
    FILE *file = tmpfile();
    int before = dup(STDERR_FILENO);
    assert_true(file && before >= 0);
    awaited e = {fileno(file), why};
    assert_true(dup2(e.log, STDERR_FILENO) >= 0);
    const fm_cancel cancel = {is_said, &e};
    const fm_meeting_terms terms = {.seconds = generous_s, .cancel = &cancel};
    fm_status status = fm_meeting_open_on(&meeting, address, 1, size, &terms, &error);
    dup2(before, STDERR_FILENO);
    close(before);
    const char *found = find_said(&e, said);
    bool ok = status == FM_ERR_CANCELLED && found && !strstr(found + 1, why);
    if (!ok) fprintf(stderr, "%d and '%s', expected '%s'\n", (int)status, said, why);
    fclose(file);
    return ok;
}

/* A name without an address is said long before the wait for rank 0 ends. No name server is asked
 * for a name with an empty part. */
static void a_host_without_address_is_said(void **state) {
    (void)state;
    assert_true(says_why("tcp://no..host:1", 2,
                         "meeting_not_found rank=1 why=\"host no..host has no address"));
}

/* -- ranks that are lost */

/* Gathers until it fails; 0: the error names `name` and is `expected`. */
static int gather_until(const char *address, int32_t rank, int32_t size, double seconds,
                        const char *name, fm_status expected) {
    fm_meeting *meeting;
    fm_error error;
    if (fm_meeting_open(&meeting, address, rank, size, generous_s, &error)) return 1;
    fm_status status = FM_OK;
    int32_t all[MOST];
    while (!status)
        status = fm_meeting_gather(meeting, &rank, sizeof rank, all, seconds, &error);
    bool is_named = strncmp(error.message, name, strlen(name)) == 0;
    if (!is_named || status != expected) {
        fprintf(stderr, "rank %d: %d %s\n", (int)rank, (int)status, error.message);
    }
    status = fm_meeting_gather(meeting, &rank, sizeof rank, all, seconds, &error);
    fm_meeting_close(meeting);
    return is_named && status == FM_ERR_CLOSED ? 0 : 2;
}

static int lose_rank_two(const char *address, int32_t rank, int32_t size) {
    if (rank != 2) {
        return gather_until(address, rank, size, generous_s, "rank 2 (process", FM_ERR_CLOSED);
    }
    fm_meeting *meeting;
    int32_t all[MOST];
    if (fm_meeting_open(&meeting, address, rank, size, generous_s, NULL)) return 1;
    fm_status status = fm_meeting_gather(meeting, &rank, sizeof rank, all, generous_s, NULL);
    return status ? 1 : raise(SIGKILL);
}

static int lose_rank_zero(const char *address, int32_t rank, int32_t size) {
    if (rank != 0) {
        return gather_until(address, rank, size, generous_s, "rank 0 (at unix:", FM_ERR_CLOSED);
    }
    fm_meeting *meeting;
    if (fm_meeting_open(&meeting, address, rank, size, generous_s, NULL)) return 1;
    return raise(SIGKILL);
}

/* Rank 1 comes to no gather, but its connection stays. */
static int stop_rank_one(const char *address, int32_t rank, int32_t size) {
    if (rank != 1) return gather_until(address, rank, size, 0.2, "rank 1 (process", FM_ERR_CLOSED);
    fm_meeting *meeting;
    if (fm_meeting_open(&meeting, address, rank, size, generous_s, NULL)) return 1;
    uint8_t nothing;
    /* Waits for the end: rank 0 closes the connection after its failure. */
    fm_status status = FM_OK;
    usleep(600000);
    status = fm_meeting_gather(meeting, "", 0, &nothing, generous_s, NULL);
    fm_meeting_close(meeting);
    return status ? 0 : 1;
}

static int give_other_lengths(const char *address, int32_t rank, int32_t size) {
    fm_meeting *meeting;
    fm_error error;
    uint8_t all[MOST * 8];
    if (fm_meeting_open(&meeting, address, rank, size, generous_s, &error)) return 1;
    fm_status status = fm_meeting_gather(meeting, all, rank == 1 ? 8 : 4, all, generous_s, &error);
    fm_meeting_close(meeting);
    return status == FM_ERR_PROTOCOL && strstr(error.message, "gives 8 bytes to gather 0") ? 0 : 1;
}

static void lost_ranks_are_named(void **state) {
    (void)state;
    char folder[256], address[FM_MEETING_ADDRESS_BYTES];
    fm_test_make_folder(folder, sizeof folder);
    snprintf(address, sizeof address, "unix:%s/socket", folder);
    run_ranks(lose_rank_two, address, 4, (int[]){0, 0, -1, 0});
    run_ranks(lose_rank_zero, address, 3, (int[]){-1, 0, 0});
    run_ranks(stop_rank_one, address, 3, NULL);
    run_ranks(give_other_lengths, address, 3, NULL);
    fm_test_remove_tree(folder);
}

static int miss_ranks(const char *address, int32_t rank, int32_t size) {
    fm_meeting *meeting;
    fm_error error;
    if (rank == 1 || rank == 3) return 0;
    fm_status status =
        fm_meeting_open(&meeting, address, rank, size, rank ? generous_s : 0.5, &error);
    const char expected[] = "2 of 5 ranks did not come to the meeting: rank 1, 3";
    return status == FM_ERR_CLOSED && strstr(error.message, expected) ? 0 : 1;
}

static void missing_ranks_are_named(void **state) {
    (void)state;
    char folder[256], address[FM_MEETING_ADDRESS_BYTES];
    fm_test_make_folder(folder, sizeof folder);
    snprintf(address, sizeof address, "unix:%s/socket", folder);
    run_ranks(miss_ranks, address, 5, NULL);
    fm_test_remove_tree(folder);
}

/* Every rank is told to stop after a moment; rank 2 never comes. Rank 1 may hear first that rank 0
 * has stopped. */
static bool is_told_to_stop(void *n_asked) {
    return ++*(int *)n_asked > 3;
}

static int stop_waiting(const char *address, int32_t rank, int32_t size) {
    fm_meeting *meeting;
    fm_error error;
    int n_asked = 0;
    const fm_cancel cancel = {is_told_to_stop, &n_asked};
    if (rank == 2) return 0;
    const fm_meeting_terms terms = {.seconds = generous_s, .cancel = &cancel};
    fm_status status = fm_meeting_open_on(&meeting, address, rank, size, &terms, &error);
    bool has_heard = rank == 1 && status && strstr(error.message, "when the wait was stopped");
    if (status == FM_ERR_CANCELLED || has_heard) return 0;
    fprintf(stderr, "rank %d: status %d, %s\n", (int)rank, (int)status,
            status ? error.message : "all have met");
    return 1;
}

static void a_wait_can_be_stopped(void **state) {
    (void)state;
    char folder[256], address[FM_MEETING_ADDRESS_BYTES], path[300];
    fm_test_make_folder(folder, sizeof folder);
    snprintf(address, sizeof address, "file:%s/meeting", folder);
    const time_t begin = time(NULL);
    run_ranks(stop_waiting, address, 3, NULL);
    assert_true(time(NULL) - begin < 30);
    assert_true(snprintf(path, sizeof path, "%s", folder) > 0 && rmdir(path) == 0);
}

/* A name that is mistyped may be that of a checkpoint. */
static void a_file_of_others_stays(void **state) {
    (void)state;
    static const char text[] = "[model]\n";
    char folder[256], address[FM_MEETING_ADDRESS_BYTES], path[300], found[64] = "";
    fm_test_make_folder(folder, sizeof folder);
    snprintf(path, sizeof path, "%s/mine.ini", folder);
    snprintf(address, sizeof address, "file:%s", path);
    assert_int_equal(fm_file_write_atomic(path, text, strlen(text), NULL), FM_OK);
    fm_meeting *meeting;
    fm_error error;
    assert_int_equal(fm_meeting_open(&meeting, address, 0, 2, 1, &error), FM_ERR_EXISTS);
    assert_non_null(strstr(error.message, "choose another name"));
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fread(found, 1, sizeof found, file), strlen(text));
    assert_string_equal(found, text);
    fclose(file);
    struct stat info;
    assert_true(unlink(path) == 0 && mknod(path, S_IFSOCK | 0600, 0) == 0);
    assert_int_equal(fm_meeting_open(&meeting, address, 0, 2, 1, &error), FM_ERR_IO);
    assert_non_null(strstr(error.message, "not a regular file"));
    assert_true(stat(path, &info) == 0 && S_ISSOCK(info.st_mode));
    /* What is in a pipe is for its reader. */
    assert_true(unlink(path) == 0 && mkfifo(path, 0600) == 0);
    int fd = open(path, O_RDWR | O_NONBLOCK);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    assert_int_equal(fm_meeting_open(&meeting, address, 0, 2, 1, &error), FM_ERR_IO);
    assert_non_null(strstr(error.message, "not a regular file"));
    assert_int_equal(read(fd, found, sizeof found), strlen(text));
    close(fd);
    fm_test_remove_tree(folder);
}

/* -- strangers */

static int refused(const char *address, int32_t rank, int32_t size, const char *why) {
    fm_meeting *meeting;
    fm_error error;
    fm_status status = fm_meeting_open(&meeting, address, rank, size, 0.5, &error);
    bool ok = status && strstr(error.message, why);
    if (!ok) fprintf(stderr, "found '%s', expected '%s'\n", status ? error.message : "", why);
    return ok ? 0 : 1;
}

/* Connects; -1 when nothing listens there. */
static int find_meeting(const char *address) {
    fm_address at;
    int fd = -1;
    char text[FM_ADDRESS_TEXT_BYTES];
    snprintf(text, sizeof text, "%.*s", (int)strcspn(address, "#"), address);
    fm_status status = fm_address_parse(text, &at, NULL);
    for (int tries = 0; !status && fd < 0 && tries < 600; tries++) {
        status = fm_address_connect(&at, 1000, &fd, NULL) ? FM_OK : status;
        if (fd < 0) usleep(100000);
    }
    return fd;
}

/* Connects and says something that is no hello. */
static int babble(const char *address, const uint8_t *bytes, size_t n_bytes) {
    int fd = find_meeting(address);
    if (fd < 0) return 1;
    return fm_link_send_some(fd, bytes, n_bytes) == (long)n_bytes ? 0 : 1;
}

/* Rank 1 is the last to come; before that, strangers try everything. Their connections stay open
 * until this process ends. */
static int meet_among_strangers(const char *address, int32_t rank, int32_t size) {
    static const uint8_t http[] =
        "GET / HTTP/1.1\r\nHost: example\r\n\r\n............................"
        "..........................................................";
    uint8_t wrong[FM_FRAME_BYTES + SAID_BYTES] = {0};
    char other[FM_MEETING_ADDRESS_BYTES];
    if (rank != 1) return gather_much(address, rank, size);
    int failed = babble(address, http, sizeof http) + babble(address, http, 5);
    fm_frame_encode(&(fm_frame){FM_FRAME_HELLO, 0, 0xffffffffu, 0}, wrong);
    failed += babble(address, wrong, sizeof wrong);
    fm_frame_encode(&(fm_frame){FM_FRAME_GIVE, 0, SAID_BYTES, 0}, wrong);
    failed += babble(address, wrong, sizeof wrong);
    for (int i = 0; i < 100; i++)
        failed += babble(address, http, 1);
    snprintf(other, sizeof other, "%.*s#other", (int)strcspn(address, "#"), address);
    failed += !says_why(other, size, "meeting_not_found rank=1 why=\"rank 0 belongs to another");
    failed += refused(address, rank, size + 1, "rank 0 expects 3 ranks, not 4");
    return failed ? 100 : gather_much(address, rank, size);
}

static void strangers_are_refused(void **state) {
    (void)state;
    char folder[256], address[FM_MEETING_ADDRESS_BYTES];
    fm_test_make_folder(folder, sizeof folder);
    snprintf(address, sizeof address, "unix:%s/socket#mine", folder);
    run_ranks(meet_among_strangers, address, 3, NULL);
    fm_test_remove_tree(folder);
}

/* -- the secret */

static const char right[] = "0123456789abcdef", wrong[] = "0123456789abcdeF";

/* Asks for a seat as rank 0 wants it, by whole frames; the proof is what the caller says. Returns
 * whether rank 0 refuses it in words. */
static bool is_refused(const char *address, const uint8_t said[SAID_BYTES]) {
    uint8_t challenge[32], message[FM_FRAME_BYTES + SAID_BYTES], none;
    const fm_frame first = {.kind = FM_FRAME_CHALLENGE, .bytes = sizeof challenge};
    const fm_frame welcome = {.kind = FM_FRAME_WELCOME, .bytes = 0};
    bool is_reason = false;
    fm_error error;
    const uint64_t deadline_ns = fm_link_deadline(generous_s);
    int fd = find_meeting(address);
    fm_frame_encode(&(fm_frame){.kind = FM_FRAME_HELLO, .bytes = SAID_BYTES}, message);
    memcpy(message + FM_FRAME_BYTES, said, SAID_BYTES);
    bool ok = fd >= 0 &&
              !fm_link_receive_frame(fd, &first, challenge, deadline_ns, &is_reason, &error) &&
              fm_link_send_some(fd, message, sizeof message) == (long)sizeof message &&
              fm_link_receive_frame(fd, &welcome, &none, deadline_ns, &is_reason, &error);
    if (fd >= 0) close(fd);
    ok = ok && is_reason && strstr(error.message, "rank 0 has another secret of the meeting");
    if (!ok) fprintf(stderr, "found '%s', expected to be refused\n", error.message);
    return ok;
}

/* A hello of rank 1 of 3, with some bytes as its proof. */
static bool is_seat_refused(const char *address, uint8_t filling) {
    uint8_t said[SAID_BYTES] = {1, 0, 0, 0, 3, 0, 0, 0};
    memset(said + 84, filling, SAID_BYTES - 84);
    return is_refused(address, said);
}

/* Before rank 1 comes, others try to take its seat. */
static int defend_a_seat(const char *address, int32_t rank, int32_t size) {
    static const char *const others[] = {NULL, "", wrong, "0123456789abcde"};
    secret = right;
    if (rank != 1) return gather_much(address, rank, size);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        fm_meeting *meeting;
        fm_error error;
        const fm_meeting_terms terms = {.seconds = generous_s, .secret = others[i]};
        fm_status status = fm_meeting_open_on(&meeting, address, rank, size, &terms, &error);
        if (status != FM_ERR_PROTOCOL || !strstr(error.message, "has another secret")) return 100;
    }
    for (int i = 0; i < 256; i += 51)
        if (!is_seat_refused(address, (uint8_t)i)) return 101;
    return gather_much(address, rank, size);
}

/* Rank 0 with another secret is not the others' rank 0: neither takes the other for its own. */
static int meet_a_false_host(const char *address, int32_t rank, int32_t size) {
    fm_meeting *meeting;
    fm_error error;
    const fm_meeting_terms terms = {.seconds = rank ? generous_s : 2,
                                    .secret = rank ? right : wrong};
    fm_status status = fm_meeting_open_on(&meeting, address, rank, size, &terms, &error);
    const char *why = rank ? "has another secret" : "1 of 2 ranks did not come to the meeting";
    return status && strstr(error.message, why) ? 0 : 1;
}

static void a_seat_takes_the_secret(void **state) {
    (void)state;
    char folder[256], address[FM_MEETING_ADDRESS_BYTES];
    fm_test_make_folder(folder, sizeof folder);
    snprintf(address, sizeof address, "unix:%s/socket", folder);
    run_ranks(defend_a_seat, address, 3, NULL);
    free_port(address);
    address[strcspn(address, "#")] = '\0'; /* a stranger knows the address alone */
    run_ranks(defend_a_seat, address, 3, NULL);
    snprintf(address, sizeof address, "unix:%s/socket", folder);
    run_ranks(meet_a_false_host, address, 2, NULL);
    fm_test_remove_tree(folder);
}

/* Answers one rank as a rank 0 that has no secret would if nothing were asked of it. */
static int be_a_false_host(const char *address, int32_t rank, int32_t size) {
    fm_address at, bound;
    int listener, fd = -1;
    uint8_t said[FM_FRAME_BYTES + SAID_BYTES], message[FM_FRAME_BYTES + 32] = {0};
    bool is_reason;
    fm_error error;
    if (rank == 1) {
        fm_meeting *meeting;
        const fm_meeting_terms terms = {.seconds = generous_s, .secret = right};
        fm_status status = fm_meeting_open_on(&meeting, address, rank, size, &terms, &error);
        return status && strstr(error.message, "what answers there has another secret") ? 0 : 1;
    }
    if (fm_address_parse(address, &at, NULL) || fm_address_listen(&at, &listener, &bound, NULL)) {
        return 2;
    }
    for (int i = 0; i < 600 && fd < 0; i++) {
        fd = accept(listener, NULL, NULL);
        if (fd < 0) usleep(100000);
    }
    const fm_frame hello = {.kind = FM_FRAME_HELLO, .bytes = SAID_BYTES};
    fm_frame_encode(&(fm_frame){.kind = FM_FRAME_CHALLENGE, .bytes = 32}, message);
    bool ok = fm_link_send_some(fd, message, sizeof message) == (long)sizeof message;
    ok = ok &&
         !fm_link_receive_frame(fd, &hello, said, fm_link_deadline(generous_s), &is_reason, &error);
    fm_frame_encode(&(fm_frame){.kind = FM_FRAME_WELCOME, .bytes = 32}, message);
    memcpy(message + FM_FRAME_BYTES, said + SAID_BYTES - 32, 32); /* the rank's own proof */
    ok = ok && fm_link_send_some(fd, message, sizeof message) == (long)sizeof message;
    close(listener);
    return ok ? 0 : 3;
}

static void rank_zero_proves_itself(void **state) {
    (void)state;
    char folder[256], address[FM_MEETING_ADDRESS_BYTES];
    fm_test_make_folder(folder, sizeof folder);
    snprintf(address, sizeof address, "unix:%s/socket", folder);
    run_ranks(be_a_false_host, address, 2, NULL);
    fm_test_remove_tree(folder);
}

/* The file of a meeting has its secret, so others must not read it. */
static void the_file_is_secret(void **state) {
    (void)state;
    char folder[256], path[300], address[FM_MEETING_ADDRESS_BYTES];
    struct stat info = {.st_mode = 0};
    fm_test_make_folder(folder, sizeof folder);
    snprintf(path, sizeof path, "%s/meeting", folder);
    snprintf(address, sizeof address, "file:%s", path);
    pid_t child = start(gather_much, address, 0, 2);
    for (int i = 0; i < 600 && stat(path, &info) != 0; i++)
        usleep(100000);
    assert_int_equal(info.st_mode & 0777, 0600);
    assert_int_equal(gather_much(address, 1, 2), 0);
    int end;
    assert_int_equal(waitpid(child, &end, 0), child);
    assert_int_equal(end, 0);
    fm_test_remove_tree(folder);
}

/* The process of rank 2 says that it is rank 1, too. */
static int claim_rank_one(const char *address, int32_t rank, int32_t size) {
    fm_meeting *meeting;
    fm_error error;
    fm_status status =
        fm_meeting_open(&meeting, address, rank ? 1 : 0, size, rank ? generous_s : 1, &error);
    bool is_there = status == FM_ERR_PROTOCOL && strstr(error.message, "is there already");
    bool is_missing = status == FM_ERR_CLOSED && strstr(error.message, "did not come");
    return is_there ? 10 : is_missing ? 20 : 1;
}

static void one_of_two_equal_ranks_is_refused(void **state) {
    (void)state;
    char folder[256], address[FM_MEETING_ADDRESS_BYTES];
    fm_test_make_folder(folder, sizeof folder);
    snprintf(address, sizeof address, "unix:%s/socket", folder);
    int sum = 0, one;
    for (int32_t r = 0; r < 3; r++)
        start(claim_rank_one, address, r, 3);
    for (int32_t r = 0; r < 3; r++) {
        assert_true(wait(&one) > 0 && WIFEXITED(one));
        sum += WEXITSTATUS(one);
    }
    assert_int_equal(sum, 20 + 20 + 10);
    fm_test_remove_tree(folder);
}

static void bad_addresses_are_refused(void **state) {
    (void)state;
    static const char *const bad[] = {"",          "file:", "host:7",    "tcp://host",
                                      "tls://a:1", "#run",  "tcp://a:0", "unix:"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        for (int32_t rank = 0; rank < 2; rank++) {
            fm_meeting *meeting;
            assert_int_equal(fm_meeting_open(&meeting, bad[i], rank, 2, 1, NULL), FM_ERR_USAGE);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_meet_and_gather),
        cmocka_unit_test(an_old_file_is_not_used),
        cmocka_unit_test(a_host_without_address_is_said),
        cmocka_unit_test(lost_ranks_are_named),
        cmocka_unit_test(missing_ranks_are_named),
        cmocka_unit_test(a_wait_can_be_stopped),
        cmocka_unit_test(a_file_of_others_stays),
        cmocka_unit_test(strangers_are_refused),
        cmocka_unit_test(a_seat_takes_the_secret),
        cmocka_unit_test(rank_zero_proves_itself),
        cmocka_unit_test(the_file_is_secret),
        cmocka_unit_test(one_of_two_equal_ranks_is_refused),
        cmocka_unit_test(bad_addresses_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
