/* loop_uv.c: loop.h on libuv; the only file that includes uv.h. */
#include "server/loop.h"

#include <assert.h>
#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

enum {
    BACKLOG = 128,
    N_RUN_MAX = 256,             /* runs of one write */
    KEEPALIVE_S = 30,            /* silence after which the kernel probes the peer */
    TCP_USER_TIMEOUT_MS = 60000, /* the connection breaks when bytes stay unacknowledged so long */
};

struct fm_loop {
    uv_loop_t uv;
    uv_async_t async;
    uv_timer_t timer;
    uv_signal_t signals[3];
    size_t n_signal;
    bool is_stopped;
    const fm_loop_events *events;
    void *owner;
    fm_listener *listeners; /* the open ones */
};

typedef union stream_handle {
    uv_stream_t stream;
    uv_tcp_t tcp;
    uv_pipe_t pipe;
} stream_handle;

struct fm_listener {
    stream_handle handle;
    fm_loop *loop;
    fm_listener *next; /* in the loop's list */
    bool has_waiting;  /* a connection that no memory was free for */
    fm_address_kind kind;
    void (*accepted)(void *owner, fm_socket *socket);
    void *owner;
};

struct fm_socket {
    stream_handle handle;
    uv_write_t write;
    uv_shutdown_t shutdown;
    fm_peer peer;
    const fm_socket_events *events;
    void *owner;
};

static fm_status fail_uv(const char *what, int code, fm_error *reterr) {
    return fm_fail(reterr, code == UV_ENOMEM ? FM_ERR_NOMEM : FM_ERR_IO, "%s: %s", what,
                   uv_strerror(code));
}

/* -- the loop */

static void on_async(uv_async_t *async) {
    fm_loop *loop = async->data;
    if (!loop->is_stopped) loop->events->wake(loop->owner);
}

static void accept_waiting(fm_loop *loop);

static void on_timer(uv_timer_t *timer) {
    fm_loop *loop = timer->data;
    loop->events->tick(loop->owner, uv_now(&loop->uv));
    accept_waiting(loop);
}

static void on_signal(uv_signal_t *handle, int number) {
    fm_loop *loop = handle->data;
    loop->events->signal(loop->owner, number);
}

static int watch_signal(fm_loop *loop, int number) {
    uv_signal_t *handle = &loop->signals[loop->n_signal];
    int failed = uv_signal_init(&loop->uv, handle);
    if (failed) return failed;
    loop->n_signal++;
    handle->data = loop;
    return uv_signal_start(handle, on_signal, number);
}

static int start_handles(fm_loop *loop, uint32_t tick_ms, bool watch_signals) {
    uv_timer_init(&loop->uv, &loop->timer); /* never fails */
    loop->timer.data = loop;
    loop->async.data = loop;
    int failed = uv_async_init(&loop->uv, &loop->async, on_async);
    if (!failed) failed = uv_timer_start(&loop->timer, on_timer, tick_ms, tick_ms);
    if (!failed && watch_signals) failed = watch_signal(loop, SIGINT);
    if (!failed && watch_signals) failed = watch_signal(loop, SIGTERM);
    if (!failed && watch_signals) failed = watch_signal(loop, SIGHUP);
    return failed;
}

fm_status fm_loop_create(const fm_loop_events *events, void *owner, uint32_t tick_ms,
                         bool watch_signals, fm_loop **ret_loop, fm_error *reterr) {
    fm_loop *loop = calloc(1, sizeof *loop);
    if (!loop) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the event loop");
    loop->events = events;
    loop->owner = owner;
    signal(SIGPIPE, SIG_IGN);
    int failed = uv_loop_init(&loop->uv);
    if (failed) {
        free(loop);
        return fail_uv("cannot make the event loop", failed, reterr);
    }
    failed = start_handles(loop, tick_ms, watch_signals);
    if (failed) {
        fm_loop_destroy(loop);
        return fail_uv("cannot start the event loop", failed, reterr);
    }
    *ret_loop = loop;
    return FM_OK;
}

void fm_loop_run(fm_loop *loop) {
    uv_run(&loop->uv, UV_RUN_DEFAULT);
}

static void close_handle(uv_handle_t *handle) {
    if (handle->type != UV_UNKNOWN_HANDLE && !uv_is_closing(handle)) uv_close(handle, NULL);
}

/* A closed handle gives its signal back to the default action, so a second signal would end the
 * process before its owner has cleaned up. From here on signals are blocked in this thread. */
static void block_signals(const fm_loop *loop) {
    sigset_t signals;
    sigemptyset(&signals);
    for (size_t i = 0; i < loop->n_signal; i++)
        sigaddset(&signals, loop->signals[i].signum);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
}

void fm_loop_stop(fm_loop *loop) {
    if (loop->is_stopped) return;
    loop->is_stopped = true;
    block_signals(loop);
    close_handle((uv_handle_t *)&loop->async);
    close_handle((uv_handle_t *)&loop->timer);
    for (size_t i = 0; i < loop->n_signal; i++)
        close_handle((uv_handle_t *)&loop->signals[i]);
}

void fm_loop_destroy(fm_loop *loop) {
    fm_loop_stop(loop);
    uv_run(&loop->uv, UV_RUN_DEFAULT);
    int busy = uv_loop_close(&loop->uv);
    assert(busy == 0); /* their owners closed all sockets and listeners */
    (void)busy;
    free(loop);
}

void fm_loop_wake(fm_loop *loop) {
    uv_async_send(&loop->async);
}

uint64_t fm_loop_now_ms(const fm_loop *loop) {
    return uv_now(&loop->uv);
}

/* -- listening */

static int init_handle(uv_loop_t *loop, stream_handle *handle, fm_address_kind kind) {
    return kind == FM_ADDRESS_UNIX ? uv_pipe_init(loop, &handle->pipe, 0)
                                   : uv_tcp_init(loop, &handle->tcp);
}

static void free_listener(uv_handle_t *handle) {
    free(handle->data);
}

static void free_socket(uv_handle_t *handle) {
    fm_socket *socket = handle->data;
    if (socket->events) socket->events->closed(socket->owner);
    free(socket);
}

/* Sets options that detect a dead peer. The server also works where the system refuses them. */
static void set_tcp_options(fm_socket *socket, int fd) {
    uv_tcp_nodelay(&socket->handle.tcp, 1);
    uv_tcp_keepalive(&socket->handle.tcp, 1, KEEPALIVE_S);
    unsigned timeout_ms = TCP_USER_TIMEOUT_MS;
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof timeout_ms);
}

/* Learns who the peer is; false when the system does not say. */
static bool meet_peer(fm_socket *socket, fm_address_kind kind) {
    uv_os_fd_t fd;
    if (uv_fileno((uv_handle_t *)&socket->handle, &fd)) return false;
    if (!fm_address_peer(fd, kind, &socket->peer)) return false;
    if (kind != FM_ADDRESS_UNIX) set_tcp_options(socket, fd);
    return true;
}

/* Without memory the connection stays with libuv, which reads nothing more from the listening
 * socket until it is accepted. So it must be accepted later. */
static void accept_one(fm_listener *listener) {
    fm_socket *socket = calloc(1, sizeof *socket);
    listener->has_waiting = true;
    if (!socket) return;
    if (init_handle(&listener->loop->uv, &socket->handle, listener->kind)) {
        free(socket);
        return;
    }
    listener->has_waiting = false;
    socket->handle.stream.data = socket;
    if (uv_accept(&listener->handle.stream, &socket->handle.stream) ||
        !meet_peer(socket, listener->kind)) {
        uv_close((uv_handle_t *)&socket->handle, free_socket);
        return;
    }
    listener->accepted(listener->owner, socket);
}

static void accept_waiting(fm_loop *loop) {
    for (fm_listener *at = loop->listeners, *next; at; at = next) {
        next = at->next; /* the owner may close the listener */
        if (at->has_waiting) accept_one(at);
    }
}

static void on_connection(uv_stream_t *server, int failed) {
    if (!failed) accept_one(server->data); /* a failure loses only this connection */
}

fm_status fm_loop_listen(fm_loop *loop, int listening, fm_address_kind kind,
                         void (*accepted)(void *owner, fm_socket *socket), void *owner,
                         fm_listener **ret_listener, fm_error *reterr) {
    fm_listener *listener = calloc(1, sizeof *listener);
    if (!listener || init_handle(&loop->uv, &listener->handle, kind)) {
        free(listener);
        close(listening);
        return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a listener");
    }
    listener->loop = loop;
    listener->next = loop->listeners;
    loop->listeners = listener;
    listener->kind = kind;
    listener->accepted = accepted;
    listener->owner = owner;
    listener->handle.stream.data = listener;
    int failed = kind == FM_ADDRESS_UNIX ? uv_pipe_open(&listener->handle.pipe, listening)
                                         : uv_tcp_open(&listener->handle.tcp, listening);
    if (failed) close(listening);
    if (!failed) failed = uv_listen(&listener->handle.stream, BACKLOG, on_connection);
    if (failed) {
        fm_listener_close(listener);
        return fail_uv("cannot listen", failed, reterr);
    }
    *ret_listener = listener;
    return FM_OK;
}

void fm_listener_close(fm_listener *listener) {
    fm_listener **at = &listener->loop->listeners;
    while (*at != listener)
        at = &(*at)->next;
    *at = listener->next;
    uv_close((uv_handle_t *)&listener->handle, free_listener);
}

/* -- sockets */

static void on_room(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer) {
    (void)suggested;
    fm_socket *socket = handle->data;
    uint8_t *at = NULL;
    size_t bytes = 0;
    socket->events->room(socket->owner, &at, &bytes);
    assert(at && bytes);
    *buffer = uv_buf_init((char *)at, (unsigned)bytes);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buffer) {
    (void)buffer;
    fm_socket *socket = stream->data;
    if (n > 0) {
        socket->events->received(socket->owner, (size_t)n);
    } else if (n < 0) {
        uv_read_stop(stream);
        socket->events->gone(socket->owner);
    }
}

const fm_peer *fm_socket_get_peer(const fm_socket *socket) {
    return &socket->peer;
}

bool fm_socket_is_in_group(const fm_socket *socket, uint32_t gid) {
    uv_os_fd_t fd;
    return uv_fileno((const uv_handle_t *)&socket->handle, &fd) == 0 &&
           fm_address_peer_is_in_group(fd, &socket->peer, gid);
}

void fm_socket_own(fm_socket *socket, const fm_socket_events *events, void *owner) {
    socket->events = events;
    socket->owner = owner;
}

bool fm_socket_start(fm_socket *socket) {
    return uv_read_start(&socket->handle.stream, on_room, on_read) == 0;
}

static void on_written(uv_write_t *write, int failed) {
    fm_socket *socket = write->data;
    socket->events->written(socket->owner, failed != 0);
}

bool fm_socket_write(fm_socket *socket, const fm_bytes *runs, size_t n) {
    uv_buf_t buffers[N_RUN_MAX];
    assert(n <= N_RUN_MAX);
    for (size_t i = 0; i < n; i++)
        buffers[i] = uv_buf_init((char *)(uintptr_t)runs[i].data, (unsigned)runs[i].size);
    socket->write.data = socket;
    return uv_write(&socket->write, &socket->handle.stream, buffers, (unsigned)n, on_written) == 0;
}

size_t fm_socket_unsent_bytes(const fm_socket *socket) {
    return uv_stream_get_write_queue_size(&socket->handle.stream);
}

size_t fm_socket_undelivered_bytes(const fm_socket *socket) {
    uv_os_fd_t fd;
    int bytes = 0;
    if (uv_fileno((const uv_handle_t *)&socket->handle, &fd)) return 0;
    return ioctl(fd, SIOCOUTQ, &bytes) == 0 && bytes > 0 ? (size_t)bytes : 0;
}

static void on_shutdown(uv_shutdown_t *shutdown, int failed) {
    (void)shutdown;
    (void)failed; /* the peer is gone, so nothing is left to do */
}

void fm_socket_finish(fm_socket *socket) {
    uv_shutdown(&socket->shutdown, &socket->handle.stream, on_shutdown);
}

void fm_socket_close(fm_socket *socket) {
    uv_close((uv_handle_t *)&socket->handle, free_socket);
}
