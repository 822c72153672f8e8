/* stop.c: see stop.h. */
#include "trainer/app/common/stop.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Some senders (timeout, process groups) deliver one request twice within moments. */
static const int64_t same_request_ns = 200000000;

static const int signals[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1};
enum { N_SIGNAL = sizeof signals / sizeof signals[0] };

/* The signal is set before the reason, so that whoever sees the reason sees its signal. */
static volatile sig_atomic_t stop_reason, stop_signal, checkpoint_asked, has_voice;
static int64_t asked_ns; /* used by the handler alone, which blocks the other signals */

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static const char *answer = "\nfoldmill train: stopping after the sample in hand, with a "
                            "checkpoint; a second signal ends the process at once\n";

static void on_stop(int signal_number) {
    int64_t now = now_ns();
    if (!stop_reason) {
        stop_signal = signal_number;
        stop_reason = FM_STOP_SIGNAL;
        asked_ns = now;
        ssize_t ignored = has_voice ? write(STDERR_FILENO, answer, strlen(answer)) : 0;
        (void)ignored;
    } else if (has_voice && now - asked_ns > same_request_ns) {
        _exit(128 + signal_number);
    }
}

static void on_checkpoint(int signal_number) {
    (void)signal_number;
    checkpoint_asked = 1;
}

static sigset_t set_of_signals(void) {
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < N_SIGNAL; i++)
        sigaddset(&set, signals[i]);
    return set;
}

void fm_stop_catch(bool answers) {
    struct sigaction action = {.sa_flags = SA_RESTART, .sa_mask = set_of_signals()};
    has_voice = answers;
    /* Ctrl-C also ends the reader of `... 2>&1 | tee log`; a line that nobody reads must not end
     * the process before its checkpoint is written. */
    signal(SIGPIPE, SIG_IGN);
    for (size_t i = 0; i < N_SIGNAL; i++) {
        struct sigaction before;
        bool is_nohup = signals[i] == SIGHUP && sigaction(SIGHUP, NULL, &before) == 0 &&
                        before.sa_handler == SIG_IGN;
        if (is_nohup) continue; /* nohup(1) promises that the run goes on */
        action.sa_handler = signals[i] == SIGUSR1 ? on_checkpoint : on_stop;
        sigaction(signals[i], &action, NULL);
    }
    pthread_sigmask(SIG_UNBLOCK, &action.sa_mask, NULL);
}

void fm_stop_block(sigset_t *ret_before) {
    const sigset_t set = set_of_signals();
    pthread_sigmask(SIG_BLOCK, &set, ret_before);
}

void fm_stop_catch_saying(const char *text) {
    answer = text;
    fm_stop_catch(true);
}

void fm_stop_request(fm_stop_reason reason, int signal_number) {
    if (stop_reason) return;
    stop_signal = signal_number;
    stop_reason = (sig_atomic_t)reason;
}

fm_stop_reason fm_stop_get_reason(void) {
    return (fm_stop_reason)stop_reason;
}

int fm_stop_signal(void) {
    return stop_signal;
}

static bool is_asked(void *context) {
    (void)context;
    return fm_stop_is_asked();
}

const fm_cancel fm_stop_cancel = {.is_asked = is_asked};

bool fm_stop_take_checkpoint(void) {
    bool asked = checkpoint_asked;
    if (asked) checkpoint_asked = 0;
    return asked;
}

const char *fm_stop_name(int signal_number) {
    return signal_number == SIGINT ? "SIGINT" : signal_number == SIGHUP ? "SIGHUP" : "SIGTERM";
}
