/* watchdog.c: see watchdog.h. The child's messages are lines: '+' and a number begin an item, '-'
 * ends it, and '=' precedes a text that it reports. */
#include "tests/testing/watchdog.h"

#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void send_line(int fd, const char *line, size_t n) {
    while (n > 0) {
        ssize_t sent = write(fd, line, n);
        if (sent < 0) _exit(3); /* the parent is gone */
        line += sent, n -= (size_t)sent;
    }
}

void fm_watchdog_say(int fd, const char *format, ...) {
    char line[FM_WATCHDOG_LINE + 2] = "=";
    va_list args;
    va_start(args, format);
    vsnprintf(line + 1, FM_WATCHDOG_LINE, format, args);
    va_end(args);
    size_t n = strcspn(line, "\n");
    line[n] = '\n';
    send_line(fd, line, n + 1);
}

static void child_main(const fm_watchdog *dog, int first, int fd) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int status = dog->prepare ? dog->prepare(dog->context, fd) : 0;
    if (status) _exit(status);
    for (int item = first; item < dog->n_item; item++) {
        char line[32];
        send_line(fd, line, (size_t)snprintf(line, sizeof line, "+%d\n", item));
        dog->run(dog->context, item, fd);
        send_line(fd, "-\n", 2);
    }
    _exit(0);
}

typedef struct child {
    pid_t pid;
    int fd;
    int begun;    /* the current item, or -1 */
    int next;     /* the item after the last one begun */
    bool is_late; /* exceeded its time */
    char line[FM_WATCHDOG_LINE + 4];
    size_t n;
} child;

static void take_line(const fm_watchdog *dog, child *c) {
    if (c->line[0] == '+') c->begun = (int)strtol(c->line + 1, NULL, 10), c->next = c->begun + 1;
    if (c->line[0] == '-') c->begun = -1;
    if (c->line[0] == '=') dog->hear(dog->context, c->begun, c->line + 1);
}

/* Reads the available lines; false at the end. */
static bool read_lines(const fm_watchdog *dog, child *c, bool *ret_begins) {
    char buffer[4096];
    ssize_t n = read(c->fd, buffer, sizeof buffer);
    *ret_begins = false;
    if (n <= 0) return false;
    for (ssize_t i = 0; i < n; i++) {
        if (buffer[i] != '\n') {
            if (c->n < sizeof c->line - 1) c->line[c->n++] = buffer[i];
            continue;
        }
        c->line[c->n] = '\0', c->n = 0;
        *ret_begins |= c->line[0] == '+' || c->line[0] == '-';
        take_line(dog, c);
    }
    return true;
}

/* Listens until the child ends, an item is late, or no time is left to begin another. */
static void listen_to(const fm_watchdog *dog, child *c, double end) {
    double deadline = now() + dog->item_seconds;
    for (;;) {
        if (c->begun < 0 && end > 0 && now() > end) return;
        double left = deadline - now();
        struct pollfd poller = {c->fd, POLLIN, 0};
        if (left <= 0 || poll(&poller, 1, (int)(left * 1e3) + 1) == 0) {
            c->is_late = true;
            return;
        }
        bool begins;
        if (!read_lines(dog, c, &begins)) return;
        if (begins) deadline = now() + dog->item_seconds;
    }
}

/* Ends the child, unless it has ended already, and returns its exit status, or 128 + its signal. A
 * process that the kernel holds on to is awaited for ten seconds and then abandoned. */
static int end_child(child *c, bool kills) {
    int status = 0;
    if (kills) kill(c->pid, SIGKILL);
    close(c->fd);
    for (int i = 0; waitpid(c->pid, &status, kills ? WNOHANG : 0) == 0; i++) {
        if (i == 1000) return 128 + SIGKILL;
        nanosleep(&(struct timespec){0, 10000000}, NULL);
    }
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static bool start_child(const fm_watchdog *dog, int first, child *ret) {
    int ends[2];
    if (pipe(ends) != 0) return false;
    fflush(NULL); /* else the child's abort() writes the buffered output a second time */
    *ret = (child){.pid = fork(), .fd = ends[0], .begun = -1, .next = first};
    if (ret->pid == 0) {
        close(ends[0]);
        child_main(dog, first, ends[1]);
    }
    close(ends[1]);
    if (ret->pid < 0) close(ends[0]);
    return ret->pid > 0;
}

static void lose(const fm_watchdog *dog, int item, bool is_late, int status) {
    char why[64];
    if (is_late) {
        snprintf(why, sizeof why, "no end after %g s", dog->item_seconds);
    } else if (status > 128) {
        snprintf(why, sizeof why, "killed by signal %d", status - 128);
    } else {
        snprintf(why, sizeof why, "exit status %d", status);
    }
    dog->lost(dog->context, item, why);
}

int fm_watchdog_run(const fm_watchdog *dog) {
    double end = dog->total_seconds > 0 ? now() + dog->total_seconds : 0;
    int next = 0;
    for (int n_child = 0; next < dog->n_item; n_child++) {
        child c;
        bool is_over = end > 0 && now() > end;
        if (is_over || !start_child(dog, next, &c)) {
            dog->lost(dog->context, next++, is_over ? "no time left" : "no process");
            continue;
        }
        listen_to(dog, &c, end);
        bool ran_out = c.begun < 0 && end > 0 && now() > end;
        bool never_began = c.next == next;
        int status = end_child(&c, c.is_late || ran_out);
        if (never_began && !c.is_late && !ran_out && status != 0) {
            if (n_child == 0) return status;
            for (; next < dog->n_item; next++)
                lose(dog, next, false, status);
        }
        if (c.begun >= 0) lose(dog, c.begun, c.is_late, status);
        if (never_began && c.is_late) lose(dog, c.next++, true, status);
        next = next > c.next ? next : c.next;
    }
    return 0;
}
