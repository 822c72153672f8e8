/* fuzz_http.c: arbitrary bytes as what a client says to the pages of a server. Whatever comes, an
 * answer is HTTP, and one with a document forbids foreign scripts and frames; the pages answer a
 * good request afterwards. */
#include "server/web/web.h"

#include <assert.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ANSWER_BYTES = 1 << 20, WAIT_MS = 10000 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static fm_web_report *make_report(void *context) {
    (void)context;
    return calloc(1, sizeof(fm_web_report));
}

/* The pages, started once; NULL where the program has none. */
static fm_web *find_web(fm_address *ret_address) {
    static fm_web *web;
    static fm_address address;
    if (!web) {
        static const fm_web_site site = {.report = make_report};
        char text[300];
        if (fm_web_start("127.0.0.1:0", false, &site, &web, NULL)) return NULL;
        snprintf(text, sizeof text, "tcp%s", strstr(fm_web_get_url(web), "://"));
        fm_status status = fm_address_parse(text, &address, NULL);
        assert(!status);
        (void)status;
    }
    *ret_address = address;
    return web;
}

static int say(const fm_address *address, const void *data, size_t size) {
    int fd;
    if (fm_address_connect(address, WAIT_MS, &fd, NULL)) abort();
    if (fcntl(fd, F_SETFL, 0)) abort();
    for (size_t at = 0; at < size;) {
        ssize_t sent = send(fd, (const char *)data + at, size - at, MSG_NOSIGNAL);
        if (sent <= 0) break; /* it was refused already */
        at += (size_t)sent;
    }
    return fd;
}

/* Reads what has come, or with `waits` all until the listener closes; returns how much. */
static size_t hear(int fd, bool waits, char answer[ANSWER_BYTES]) {
    size_t used = 0;
    for (ssize_t got = 1; got > 0; used += got > 0 ? (size_t)got : 0) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        if (waits && poll(&wait, 1, WAIT_MS) <= 0) abort(); /* neither an answer nor an end */
        got = recv(fd, answer + used, ANSWER_BYTES - 1 - used, MSG_DONTWAIT);
        assert(used < ANSWER_BYTES - 1);
    }
    answer[used] = '\0';
    close(fd);
    return used;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static char answer[ANSWER_BYTES];
    static const char good[] =
        "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    fm_address address;
    if (!find_web(&address)) return 0;
    int fd = say(&address, data, size);
    size_t used = hear(say(&address, good, sizeof good - 1), true, answer);
    assert(used && strncmp(answer + 8, " 200 ", 5) == 0);
    used = hear(fd, false, answer); /* the listener has seen both by now */
    assert(used == 0 || memcmp(answer, "HTTP/1.", 7) == 0);
    bool is_ours = used && strncmp(answer + 8, " 200 ", 5) == 0;
    assert(!is_ours || strstr(answer, "\r\nContent-Security-Policy: "));
    return 0;
}
