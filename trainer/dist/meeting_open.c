/* meeting_open.c: see meeting_open.h.
 *
 * Rank 0 sends everything that connects a challenge, random bytes. A rank answers with one HELLO:
 * its rank, the size, the run and random bytes of its own, and the proof that it has the secret.
 * Rank 0 reads the hellos of all connections at the same time, in a table of bounded size. So a
 * stranger that connects and says nothing holds up nobody. When all ranks are there, rank 0 sends
 * each a WELCOME with its own proof.
 *
 *     key     the secret that the launcher has handed to the ranks, then that of the file
 *     proof   HMAC-SHA256(key, 'H' or 'W', challenge, HELLO without its proof)
 *
 * Both sides give random bytes, so no proof of an earlier meeting is of use. The letters are those
 * of HELLO and WELCOME, so none can be sent back. Without a secret the key is empty.
 *
 * With file:PATH, rank 0 listens on any port of its host. It writes a word for this run, a secret
 * and the addresses of its host to the file. The others try these in turn, and read the file again
 * for every try. The word keeps a rank from meeting a stranger at an address of an earlier run. */
#include "trainer/dist/meeting_open.h"

#include "proto/address.h"
#include "proto/base/bytes.h"
#include "proto/base/file.h"
#include "proto/base/hash.h"
#include "proto/base/histogram.h"
#include "proto/base/log.h"
#include "trainer/dist/host.h"
#include "trainer/dist/meeting.h"
#include "trainer/dist/meeting_link.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    HOST_BYTES = FM_HOST_NAME_BYTES,
    RANDOM_BYTES = FM_SHA256_BYTES,
    HELLO_BYTES = 4 + 4 + 4 + 8 + HOST_BYTES + RANDOM_BYTES, /* without its proof */
    SAID_BYTES = HELLO_BYTES + FM_SHA256_BYTES,              /* with it */
    MOST_WAITING = 64,   /* connections that have not said hello, at most */
    MOST_ADDRESSES = 16, /* in the file */
    FILE_BYTES = 8192,   /* at most */
    TRY_MS = 2000,       /* to connect to one address */
    CHALLENGE_MS = 5000, /* for rank 0 to answer there; what waits for us to begin is another */
    AGAIN_MS = 50,       /* between tries */
    SAY_MS = 10000,      /* until the log names the ranks that are awaited */
    NAME_MS = 2000,      /* until the log says that the host of rank 0 has no address */
    MISSING_BYTES = 200, /* of their list */
};

static const char file_begin[] = "run ", file_secret[] = "secret "; /* of the file, of a line */

/* -- the secret */

typedef struct key {
    uint8_t bytes[FM_MEETING_SECRET_BYTES + FM_SHA256_BYTES];
    size_t n;
} key;

static void extend_key(key *k, const void *bytes, size_t n) {
    assert(n <= sizeof k->bytes - k->n);
    memcpy(k->bytes + k->n, bytes, n);
    k->n += n;
}

static key make_key(const char *secret) {
    key k = {.n = 0};
    extend_key(&k, secret, strlen(secret));
    return k;
}

/* The proof of HELLO ('H') or WELCOME ('W'). */
static fm_sha256 prove(const key *k, char letter, const uint8_t challenge[RANDOM_BYTES],
                       const uint8_t hello[HELLO_BYTES]) {
    uint8_t text[1 + RANDOM_BYTES + HELLO_BYTES];
    text[0] = (uint8_t)letter;
    memcpy(text + 1, challenge, RANDOM_BYTES);
    memcpy(text + 1 + RANDOM_BYTES, hello, HELLO_BYTES);
    return fm_hmac_sha256(k->bytes, k->n, text, sizeof text);
}

static bool is_proof(const uint8_t found[FM_SHA256_BYTES], const fm_sha256 *expected) {
    fm_sha256 given;
    memcpy(given.bytes, found, sizeof given.bytes);
    return fm_sha256_is_equal_secret(&given, expected);
}

static fm_status draw_random(void *out, size_t bytes, fm_error *reterr) {
    if (getrandom(out, bytes, 0) == (ssize_t)bytes) return FM_OK;
    return fm_fail(reterr, FM_ERR_IO, "the system gives no random bytes");
}

/* -- addresses */

/* Where a meeting is. */
typedef struct place {
    bool is_file;
    char path[FM_MEETING_ADDRESS_BYTES]; /* of the file */
    fm_address address;
    uint64_t run; /* the hash of what follows '#' */
} place;

static fm_status parse_address(const char *text, fm_address *ret_address, fm_error *reterr) {
    if (strncmp(text, "tcp://", 6) != 0 && strncmp(text, "unix:", 5) != 0) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "found '%.200s' as the place where ranks meet, expected tcp://HOST:PORT, "
                       "unix:PATH or file:PATH",
                       text);
    }
    fm_status status = fm_address_parse(text, ret_address, reterr);
    if (status || ret_address->kind != FM_ADDRESS_TCP || ret_address->port) return status;
    return fm_fail(reterr, FM_ERR_USAGE,
                   "found '%.200s' as the place where ranks meet, expected a port above 0, which "
                   "all ranks know",
                   text);
}

static fm_status parse_place(const char *text, place *ret_place, fm_error *reterr) {
    char address[FM_MEETING_ADDRESS_BYTES];
    size_t bytes = strnlen(text, sizeof address);
    if (bytes == sizeof address) {
        return fm_fail(reterr, FM_ERR_USAGE, "the address of the meeting has more than %zu bytes",
                       sizeof address - 1);
    }
    memcpy(address, text, bytes + 1);
    char *run = strchr(address, '#');
    if (run) *run++ = '\0';
    *ret_place = (place){.run = run ? fm_xxh3(run, strlen(run)) : 0};
    ret_place->is_file = strncmp(address, "file:", 5) == 0 && address[5];
    if (!ret_place->is_file) return parse_address(address, &ret_place->address, reterr);
    memcpy(ret_place->path, address + 5, strlen(address + 5) + 1);
    return FM_OK;
}

fm_status fm_meeting_check_address(const char *address, fm_error *reterr) {
    place ignored;
    return parse_place(address, &ignored, reterr);
}

static void add_address(const char *host, uint16_t port, int *n, char *text, size_t *at) {
    if (*n >= MOST_ADDRESSES || *at >= FILE_BYTES / 2) return;
    fm_address address = {.kind = FM_ADDRESS_TCP, .port = port};
    char line[FM_ADDRESS_TEXT_BYTES];
    snprintf(address.host, sizeof address.host, "%s", host);
    *at +=
        (size_t)snprintf(text + *at, FILE_BYTES - *at, "%s\n", fm_address_format(&address, line));
    ++*n;
}

/* Adds the numeric addresses of this host that are, or are not, its loopback. */
static void add_own(const struct ifaddrs *all, bool is_loopback, uint16_t port, int *n, char *text,
                    size_t *at) {
    char host[NI_MAXHOST];
    for (const struct ifaddrs *one = all; one; one = one->ifa_next) {
        if (!one->ifa_addr || one->ifa_addr->sa_family != AF_INET) continue;
        if (!(one->ifa_flags & IFF_LOOPBACK) == is_loopback) continue;
        if (getnameinfo(one->ifa_addr, sizeof(struct sockaddr_in), host, sizeof host, NULL, 0,
                        NI_NUMERICHOST) == 0) {
            add_address(host, port, n, text, at);
        }
    }
}

/* Refuses a file that would be lost: it is replaced, and removed at the end. What cannot be read
 * may be such a file, too; a pipe would lose what is in it, so only a regular file is read. */
static fm_status check_replaceable(const char *path, fm_error *reterr) {
    enum { DIGITS = 16, BEGIN = sizeof file_begin - 1 };
    char begin[BEGIN + DIGITS + 1] = "";
    int fd;
    uint64_t ignored;
    fm_status status = fm_file_open(path, &fd, &ignored, reterr);
    if (status) return status == FM_ERR_NOT_FOUND ? FM_OK : status;
    ssize_t n = read(fd, begin, sizeof begin - 1);
    if (n < 0) {
        status = fm_fail_in(reterr, FM_ERR_IO, path,
                            "cannot see whether this file is of a meeting of ranks: %s",
                            strerror(errno));
    }
    close(fd);
    bool is_meeting = strncmp(begin, file_begin, BEGIN) == 0 &&
                      strspn(begin + BEGIN, "0123456789abcdef") == DIGITS;
    if (n <= 0 || is_meeting) return status;
    return fm_fail_in(reterr, FM_ERR_EXISTS, path,
                      "found a file that is not of a meeting of ranks, expected none; it would be "
                      "replaced, so choose another name");
}

/* Writes the text where only the user can read it. */
static fm_status write_secret(const char *path, const char *text, size_t bytes, fm_error *reterr) {
    fm_file_writer *writer;
    fm_status status = fm_file_writer_open_secret(path, &writer, reterr);
    if (status) return status;
    status = fm_file_writer_append(writer, text, bytes, reterr);
    if (!status) return fm_file_writer_commit(writer, reterr);
    fm_file_writer_discard(writer);
    return status;
}

/* Writes the file: the word of this run, its secret, the addresses of the host, and its name. */
static fm_status write_file(const char *path, uint64_t run, const fm_sha256 *secret, uint16_t port,
                            fm_error *reterr) {
    char text[FILE_BYTES], host[HOST_BYTES] = "", hex[FM_SHA256_HEX];
    int n = 0;
    fm_sha256_format(secret, hex);
    size_t at = (size_t)snprintf(text, sizeof text, "%s%016" PRIx64 "\n%s%s\n", file_begin, run,
                                 file_secret, hex);
    struct ifaddrs *all = NULL;
    if (getifaddrs(&all) < 0) all = NULL; /* the host's name is left */
    add_own(all, false, port, &n, text, &at);
    if (gethostname(host, sizeof host - 1) == 0) add_address(host, port, &n, text, &at);
    add_own(all, true, port, &n, text, &at);
    if (all) freeifaddrs(all);
    return write_secret(path, text, at, reterr);
}

/* Reads the file; returns the number of addresses, 0 when there is no file yet or another one. */
static int read_file(const char *path, uint64_t *ret_run, fm_sha256 *ret_secret,
                     fm_address address[MOST_ADDRESSES]) {
    fm_arena arena;
    fm_bytes bytes;
    char text[FILE_BYTES + 1];
    fm_status status = fm_arena_init(&arena, 4 * FILE_BYTES, NULL);
    if (status) return 0;
    status = fm_file_read(&arena, path, FILE_BYTES, &bytes, NULL);
    size_t n_text = status ? 0 : bytes.size;
    if (n_text) memcpy(text, bytes.data, n_text);
    text[n_text] = '\0';
    fm_arena_fini(&arena);
    int n = 0;
    char *line = strchr(text, '\n'), *end;
    if (!line || strncmp(text, file_begin, sizeof file_begin - 1) != 0) return 0;
    *ret_run = strtoull(text + sizeof file_begin - 1, &end, 16);
    if (end != line) return 0;
    const size_t begin = sizeof file_secret - 1;
    end = strchr(++line, '\n');
    if (!end || strncmp(line, file_secret, begin) != 0) return 0;
    if (fm_sha256_parse(line + begin, (size_t)(end - line) - begin, ret_secret)) return 0;
    line = end;
    while (n < MOST_ADDRESSES && (end = strchr(line + 1, '\n'))) {
        *end = '\0';
        status = fm_address_parse(line + 1, &address[n], NULL);
        n += !status;
        line = end;
    }
    return n;
}

/* -- the hello */

typedef struct hello {
    int32_t rank, size;
    uint32_t process;
    uint64_t run;
    char host[HOST_BYTES]; /* terminated */
    uint8_t random[RANDOM_BYTES];
} hello;

static void encode_hello(const hello *h, uint8_t out[HELLO_BYTES]) {
    fm_writer w = fm_writer_of(out, HELLO_BYTES);
    fm_write_u32(&w, (uint32_t)h->rank);
    fm_write_u32(&w, (uint32_t)h->size);
    fm_write_u32(&w, h->process);
    fm_write_u64(&w, h->run);
    fm_write_bytes(&w, h->host, sizeof h->host);
    fm_write_bytes(&w, h->random, sizeof h->random);
}

static hello decode_hello(const uint8_t in[HELLO_BYTES]) {
    hello h;
    fm_reader r = fm_reader_of(in, HELLO_BYTES);
    h.rank = (int32_t)fm_read_u32(&r);
    h.size = (int32_t)fm_read_u32(&r);
    h.process = fm_read_u32(&r);
    h.run = fm_read_u64(&r);
    memcpy(h.host, fm_read_borrow(&r, HOST_BYTES), HOST_BYTES);
    memcpy(h.random, fm_read_borrow(&r, RANDOM_BYTES), RANDOM_BYTES);
    h.host[HOST_BYTES - 1] = '\0';
    for (char *c = h.host; *c; c++)
        *c = *c <= ' ' || *c > '~' ? '?' : *c;
    return h;
}

static hello make_hello(int32_t rank, int32_t size, uint64_t run) {
    hello h = {.rank = rank, .size = size, .process = (uint32_t)getpid(), .run = run};
    fm_host host;
    fm_host_find(&host);
    memcpy(h.host, host.name, sizeof h.host);
    return h;
}

static void name_peer(const hello *h, fm_attendee *peer) {
    snprintf(peer->name, sizeof peer->name, "rank %d (process %u on %s)", (int)h->rank, h->process,
             h->host);
}

fm_status fm_attendee_fail(const fm_attendee *peer, fm_status status, fm_error *error) {
    char what[FM_ERROR_MESSAGE_BYTES];
    snprintf(what, sizeof what, "%s", error->message);
    return fm_fail(error, status, "%s %.380s", peer->name, what);
}

/* -- rank 0 */

/* A connection that has not said hello yet. */
typedef struct caller {
    int fd;
    size_t done;
    uint8_t challenge[RANDOM_BYTES];
    uint8_t message[FM_FRAME_BYTES + SAID_BYTES];
} caller;

typedef struct hall {
    place place;
    uint64_t run;
    key key;
    int32_t size, n_here;
    int listener;
    fm_attendee *peer;
    fm_sha256 *answer; /* [size] the proofs of their WELCOMEs */
    uint32_t n_waiting;
    caller waiting[MOST_WAITING];
} hall;

static void forget(hall *h, uint32_t i) {
    close(h->waiting[i].fd);
    memmove(&h->waiting[i], &h->waiting[i + 1], (h->n_waiting - i - 1) * sizeof h->waiting[0]);
    h->n_waiting--;
}

/* Sends a new connection its challenge; false when that cannot be. */
static bool give_challenge(caller *c) {
    const fm_frame frame = {.kind = FM_FRAME_CHALLENGE, .bytes = RANDOM_BYTES};
    uint8_t message[FM_FRAME_BYTES + RANDOM_BYTES];
    if (draw_random(c->challenge, sizeof c->challenge, NULL)) return false;
    fm_frame_encode(&frame, message);
    memcpy(message + FM_FRAME_BYTES, c->challenge, sizeof c->challenge);
    return fm_link_send_some(c->fd, message, sizeof message) == (long)sizeof message;
}

/* Accepts one connection. A full table loses its oldest one, which comes again if it is a rank. */
static void accept_one(hall *h) {
    int fd = accept4(h->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return;
    int yes = 1; /* a frame's head must not wait for its payload; a Unix socket does not know it */
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    if (h->n_waiting == MOST_WAITING) forget(h, 0);
    h->waiting[h->n_waiting++] = (caller){.fd = fd};
    if (!give_challenge(&h->waiting[h->n_waiting - 1])) forget(h, h->n_waiting - 1);
}

/* Judges a whole hello. A rank of this run takes its place; others are sent the reason. */
static void judge(hall *h, caller *c) {
    fm_frame frame;
    bool is_hello = fm_frame_decode(c->message, &frame) && frame.kind == FM_FRAME_HELLO &&
                    frame.number == 0 && frame.bytes == SAID_BYTES;
    if (!is_hello) return;
    const uint8_t *text = c->message + FM_FRAME_BYTES;
    const fm_sha256 proof = prove(&h->key, 'H', c->challenge, text);
    hello said = decode_hello(text);
    fm_error why = {.message = ""};
    if (said.run != h->run) {
        fm_fail(&why, FM_ERR_NOT_FOUND, "rank 0 belongs to another run");
    } else if (!is_proof(text + HELLO_BYTES, &proof)) {
        fm_fail(&why, FM_ERR_PROTOCOL, "rank 0 has another secret of the meeting");
    } else if (said.size != h->size) {
        fm_fail(&why, FM_ERR_PROTOCOL, "rank 0 expects %d ranks, not %d", (int)h->size,
                (int)said.size);
    } else if (said.rank < 1 || said.rank >= h->size) {
        fm_fail(&why, FM_ERR_PROTOCOL, "found rank %d, expected 1 to %d", (int)said.rank,
                (int)h->size - 1);
    } else if (h->peer[said.rank].fd >= 0) {
        fm_fail(&why, FM_ERR_PROTOCOL, "%s is there already", h->peer[said.rank].name);
    }
    if (why.message[0]) {
        fm_link_send_reason(c->fd, &why);
        return;
    }
    h->peer[said.rank].fd = c->fd;
    h->answer[said.rank] = prove(&h->key, 'W', c->challenge, text);
    name_peer(&said, &h->peer[said.rank]);
    h->n_here++;
    c->fd = -1;
}

/* Reads from a connection of the table, and removes it when it is done with. */
static void hear(hall *h, uint32_t i) {
    caller *c = &h->waiting[i];
    long n = fm_link_receive_some(c->fd, c->message + c->done, sizeof c->message - c->done);
    if (n > 0) c->done += (size_t)n;
    bool is_whole = c->done == sizeof c->message;
    if (is_whole) judge(h, c);
    if (is_whole || n < 0) forget(h, i);
}

/* Lists the ranks that are not there: "1, 3". */
static void name_missing(const hall *h, char names[MISSING_BYTES]) {
    names[0] = '\0';
    for (int32_t r = 1; r < h->size; r++) {
        size_t at = strlen(names);
        if (h->peer[r].fd >= 0) continue;
        if (at > MISSING_BYTES - 24) {
            snprintf(names + at, MISSING_BYTES - at, " ...");
            break;
        }
        snprintf(names + at, MISSING_BYTES - at, "%s%d", at ? ", " : "", (int)r);
    }
}

static fm_status fail_missing(const hall *h, fm_status status, fm_error *reterr) {
    const char *what = status == FM_ERR_CANCELLED ? "had not come when the wait was stopped"
                                                  : "did not come to the meeting";
    char names[MISSING_BYTES];
    name_missing(h, names);
    return fm_fail(reterr, status, "%d of %d ranks %s: rank %s", (int)(h->size - 1 - h->n_here),
                   (int)h->size, what, names);
}

/* The time for one wait, which must not be long for one who may be asked to stop. */
static int next_wait_ms(const fm_patience *patience) {
    const int left_ms = fm_link_left_ms(patience->deadline_ns);
    return (int)fm_cancel_slice_ms(patience->cancel, (uint64_t)left_ms);
}

/* Says once who is awaited: ranks that were not started are not noticed otherwise. */
static void say_missing(const hall *h, uint64_t begin_ns, bool *is_said) {
    char names[MISSING_BYTES], quoted[2 * MISSING_BYTES];
    if (*is_said || fm_clock_ns() - begin_ns < SAY_MS * (uint64_t)1000000) return;
    *is_said = true;
    name_missing(h, names);
    fm_log(FM_LOG_WARN, "ranks_awaited", "ranks=%s of=%d",
           fm_log_quote(quoted, sizeof quoted, names), (int)h->size);
}

static fm_status receive_hellos(hall *h, const fm_patience *patience, fm_error *reterr) {
    const uint64_t begin_ns = fm_clock_ns();
    bool is_said = false;
    while (h->n_here < h->size - 1) {
        if (patience->cancel) say_missing(h, begin_ns, &is_said);
        if (fm_cancel_is_asked(patience->cancel)) return fail_missing(h, FM_ERR_CANCELLED, reterr);
        struct pollfd polls[MOST_WAITING + 1] = {{.fd = h->listener, .events = POLLIN}};
        uint32_t n = h->n_waiting;
        for (uint32_t i = 0; i < n; i++)
            polls[i + 1] = (struct pollfd){.fd = h->waiting[i].fd, .events = POLLIN};
        int ready = poll(polls, n + 1, next_wait_ms(patience));
        if (ready == 0 && fm_link_left_ms(patience->deadline_ns) == 0) {
            return fail_missing(h, FM_ERR_CLOSED, reterr);
        }
        if (ready < 0 && errno != EINTR) {
            return fm_fail(reterr, FM_ERR_IO, "cannot wait for the ranks: %s", strerror(errno));
        }
        /* From the last, because an entry that is done with is removed. */
        for (uint32_t i = n; i-- > 0 && ready > 0;)
            if (polls[i + 1].revents) hear(h, i);
        if (ready > 0 && polls[0].revents) accept_one(h);
    }
    return FM_OK;
}

/* Lets this process have a connection for every rank. */
static void allow_files(int32_t size) {
    struct rlimit limit;
    rlim_t wanted = (rlim_t)size + 256;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur >= wanted) return;
    limit.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
    setrlimit(RLIMIT_NOFILE, &limit);
}

/* Writes the file of the meeting, with a word for the run and a secret. */
static fm_status publish(hall *h, uint16_t port, fm_error *reterr) {
    uint64_t word;
    fm_sha256 secret;
    fm_status status = draw_random(&word, sizeof word, reterr);
    if (!status) status = draw_random(secret.bytes, sizeof secret.bytes, reterr);
    if (!status) status = check_replaceable(h->place.path, reterr);
    if (status) return status;
    h->run ^= word;
    extend_key(&h->key, secret.bytes, sizeof secret.bytes);
    return write_file(h->place.path, word, &secret, port, reterr);
}

/* A name may mean another address on this host than on the others. So rank 0 listens on all of its
 * addresses, unless a numeric one is given. */
static fm_status listen_at(hall *h, fm_error *reterr) {
    fm_address at = h->place.address, bound;
    uint8_t numeric[sizeof(struct in6_addr)];
    if (h->place.is_file) at = (fm_address){.kind = FM_ADDRESS_TCP};
    bool is_number = inet_pton(AF_INET, at.host, numeric) || inet_pton(AF_INET6, at.host, numeric);
    at.is_insecure = true; /* networks of ranks are trusted (meeting.h) */
    if (at.kind == FM_ADDRESS_TCP && !is_number) snprintf(at.host, sizeof at.host, "0.0.0.0");
    fm_status status = fm_address_listen(&at, &h->listener, &bound, reterr);
    if (status) return status;
    if (h->place.is_file) return publish(h, bound.port, reterr);
    if (at.kind == FM_ADDRESS_TCP && h->key.n == 0 && !fm_address_is_loopback(h->listener)) {
        fm_log(FM_LOG_WARN, "meeting_open_to_all",
               "port=%u why=\"without a secret, whoever reaches this port can take a rank's seat\"",
               bound.port);
    }
    return FM_OK;
}

/* Tells all ranks that they are there, or why they are not. */
static fm_status tell_all(const hall *h, fm_status status, const fm_patience *patience,
                          fm_error *reterr) {
    const fm_frame welcome = {.kind = FM_FRAME_WELCOME, .bytes = FM_SHA256_BYTES};
    for (int32_t r = 1; r < h->size && !status; r++) {
        status = fm_link_send(h->peer[r].fd, &welcome, h->answer[r].bytes, patience->deadline_ns,
                              reterr);
        if (status) status = fm_attendee_fail(&h->peer[r], status, reterr);
    }
    for (int32_t r = 1; r < h->size && status; r++)
        if (h->peer[r].fd >= 0) fm_link_send_reason(h->peer[r].fd, reterr);
    return status;
}

fm_status fm_meeting_host(const char *address, int32_t size, const char *secret,
                          const fm_patience *patience, fm_attendee *peer, fm_error *reterr) {
    hall *h = calloc(1, sizeof *h);
    fm_sha256 *answer = calloc((size_t)size, sizeof *answer);
    if (!h || !answer) {
        free(h);
        free(answer);
        return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a meeting of ranks");
    }
    h->size = size;
    h->answer = answer;
    h->key = make_key(secret);
    h->peer = peer;
    h->listener = -1;
    fm_status status = parse_place(address, &h->place, reterr);
    h->run = h->place.run;
    allow_files(size);
    if (!status) status = listen_at(h, reterr);
    bool is_listening = !status;
    if (!status) status = receive_hellos(h, patience, reterr);
    while (h->n_waiting)
        forget(h, 0);
    if (h->listener >= 0) close(h->listener);
    const bool is_unix = h->place.address.kind == FM_ADDRESS_UNIX;
    if (is_listening && h->place.is_file) unlink(h->place.path);
    if (is_listening && is_unix) unlink(h->place.address.path);
    status = tell_all(h, status, patience, reterr);
    free(answer);
    free(h);
    return status;
}

/* -- the others */

/* Waits until rank 0 answers, or has ended. */
static fm_status wait_for_answer(int fd, const fm_patience *patience, fm_error *reterr) {
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    while (poll(&wait, 1, next_wait_ms(patience)) <= 0) {
        if (fm_cancel_is_asked(patience->cancel)) {
            return fm_fail(reterr, FM_ERR_CANCELLED, "stopped before all ranks were there");
        }
        if (fm_link_left_ms(patience->deadline_ns) == 0) break;
    }
    return FM_OK; /* the receiver says what is wrong */
}

/* Receives what rank 0 sends next. */
static fm_status wait_for(int fd, fm_frame_kind kind, uint8_t payload[FM_SHA256_BYTES],
                          const fm_patience *patience, bool *ret_is_reason, fm_error *reterr) {
    const fm_frame frame = {.kind = kind, .bytes = FM_SHA256_BYTES};
    *ret_is_reason = false;
    fm_status status = wait_for_answer(fd, patience, reterr);
    if (status) return status;
    return fm_link_receive_frame(fd, &frame, payload, patience->deadline_ns, ret_is_reason, reterr);
}

/* Answers the challenge by a hello, and waits for the welcome. */
static fm_status greet(int fd, const hello *said, const key *k, const fm_patience *patience,
                       bool *ret_is_reason, fm_error *reterr) {
    const uint64_t soon_ns = fm_link_deadline(CHALLENGE_MS * 1e-3);
    const fm_patience soon = {soon_ns < patience->deadline_ns ? soon_ns : patience->deadline_ns,
                              patience->cancel};
    const fm_frame give = {.kind = FM_FRAME_HELLO, .bytes = SAID_BYTES};
    uint8_t challenge[RANDOM_BYTES], message[SAID_BYTES], answer[FM_SHA256_BYTES];
    fm_status status = wait_for(fd, FM_FRAME_CHALLENGE, challenge, &soon, ret_is_reason, reterr);
    if (status) return status;
    encode_hello(said, message);
    fm_sha256 proof = prove(k, 'H', challenge, message);
    memcpy(message + HELLO_BYTES, proof.bytes, sizeof proof.bytes);
    status = fm_link_send(fd, &give, message, patience->deadline_ns, reterr);
    if (!status) status = wait_for(fd, FM_FRAME_WELCOME, answer, patience, ret_is_reason, reterr);
    if (status) return status;
    proof = prove(k, 'W', challenge, message);
    if (is_proof(answer, &proof)) return FM_OK;
    *ret_is_reason = true; /* it has welcomed this rank, so it would do so again */
    return fm_fail(reterr, FM_ERR_PROTOCOL, "what answers there has another secret of the meeting");
}

/* Connects to one address and waits there for the welcome. *ret_is_reason: rank 0 has given the
 * reason for the failure. */
static fm_status try_address(const fm_address *address, const hello *said, const key *k,
                             const fm_patience *patience, int *ret_fd, bool *ret_is_reason,
                             fm_error *reterr) {
    const uint64_t deadline_ns = patience->deadline_ns;
    int left_ms = fm_link_left_ms(deadline_ns), fd;
    const uint32_t try_ms = (uint32_t)(left_ms < TRY_MS ? left_ms : TRY_MS);
    *ret_is_reason = false;
    fm_address at = *address;
    at.is_insecure = true; /* networks of ranks are trusted (meeting.h) */
    fm_status status = fm_address_connect_unless(&at, try_ms, patience->cancel, &fd, reterr);
    if (status) return status;
    status = greet(fd, said, k, patience, ret_is_reason, reterr);
    if (status) {
        close(fd);
    } else {
        *ret_fd = fd;
    }
    return status;
}

static void wait_a_moment(void) {
    const struct timespec moment = {.tv_nsec = AGAIN_MS * 1000000L};
    nanosleep(&moment, NULL);
}

/* Tries all addresses of the meeting once. *ret_is_final: trying again is of no use. An earlier run
 * may still hold an address of this one, so that is no such reason. */
static fm_status try_all(const place *at, int32_t rank, int32_t size, const char *secret,
                         const fm_patience *patience, int *ret_fd, bool *ret_is_final,
                         fm_error *why) {
    fm_address addresses[MOST_ADDRESSES] = {at->address};
    uint64_t word = 0;
    fm_sha256 of_file;
    int n = at->is_file ? read_file(at->path, &word, &of_file, addresses) : 1;
    hello said = make_hello(rank, size, at->run ^ word);
    key k = make_key(secret);
    if (at->is_file && n) extend_key(&k, of_file.bytes, sizeof of_file.bytes);
    *ret_is_final = false;
    fm_status status = draw_random(said.random, sizeof said.random, why);
    if (status) return status;
    status = FM_ERR_CLOSED;
    for (int i = 0; i < n && status && !*ret_is_final && !fm_cancel_is_asked(patience->cancel);
         i++) {
        bool is_reason;
        fm_error error;
        status = try_address(&addresses[i], &said, &k, patience, ret_fd, &is_reason, &error);
        *ret_is_final = is_reason && status != FM_ERR_NOT_FOUND;
        /* A reason says more than a later failure to connect. */
        if (status && (is_reason || why->status != FM_ERR_NOT_FOUND)) *why = error;
    }
    return status;
}

/* Says once that the name of the host has no address, which is a mistake or a name server that
 * learns it late. Only the first rank's log has warnings, and another host may know the name. */
static void say_unknown(int32_t rank, const fm_error *why, uint64_t begin_ns, bool *is_said) {
    char quoted[2 * FM_ERROR_MESSAGE_BYTES];
    const uint64_t wait_ns = NAME_MS * (uint64_t)1000000;
    if (*is_said || why->status != FM_ERR_NOT_FOUND || fm_clock_ns() - begin_ns < wait_ns) return;
    *is_said = true;
    fm_log(FM_LOG_ERROR, "meeting_not_found", "rank=%d why=%s", (int)rank,
           fm_log_quote(quoted, sizeof quoted, why->message));
}

fm_status fm_meeting_join(const char *address, int32_t rank, int32_t size, const char *secret,
                          const fm_patience *patience, fm_attendee *ret_peer, fm_error *reterr) {
    place at;
    fm_error why = {.message = "the file is not there, or not that of a meeting"};
    const uint64_t begin_ns = fm_clock_ns();
    bool is_said = false;
    fm_status status = parse_place(address, &at, reterr);
    if (status) return status;
    snprintf(ret_peer->name, sizeof ret_peer->name, "rank 0 (at %.90s)", address);
    while (fm_link_left_ms(patience->deadline_ns) > 0) {
        bool is_final;
        status = try_all(&at, rank, size, secret, patience, &ret_peer->fd, &is_final, &why);
        if (!status) return FM_OK;
        if (fm_cancel_is_asked(patience->cancel)) {
            return fm_fail(reterr, FM_ERR_CANCELLED,
                           "rank %d was stopped before all ranks met at %.200s", (int)rank,
                           address);
        }
        if (is_final) {
            return fm_fail(reterr, status, "rank %d was refused by the meeting at %.200s: %.250s",
                           (int)rank, address, why.message);
        }
        say_unknown(rank, &why, begin_ns, &is_said);
        wait_a_moment();
    }
    return fm_fail(reterr, FM_ERR_CLOSED, "rank %d found no meeting at %.200s in %.0f s: %.250s",
                   (int)rank, address, (double)(fm_clock_ns() - begin_ns) * 1e-9, why.message);
}
