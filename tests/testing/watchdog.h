/* watchdog.h: runs a list of work items, any of which may crash or hang, in a child process under a
 * time limit. An item's results arrive line by line. After an item that is lost, the next ones
 * continue in a fresh child. */
#ifndef FM_TESTS_WATCHDOG_H
#define FM_TESTS_WATCHDOG_H

#include <stdbool.h>

enum { FM_WATCHDOG_LINE = 2048 };

typedef struct fm_watchdog {
    int n_item;
    double item_seconds;  /* an item that takes longer counts as hanging */
    double total_seconds; /* no item begins later than this; 0: no limit */
    void *context;
    /* Runs in the child before its first item; NULL: nothing to do. A result other than 0 ends the
     * child with it. */
    int (*prepare)(void *context, int fd);
    /* Runs one item in the child. It reports with fm_watchdog_say and returns when done. */
    void (*run)(void *context, int item, int fd);
    /* Runs in the parent: a line that the child reported in this item, or in prepare (item -1). */
    void (*hear)(void *context, int item, const char *line);
    /* Runs in the parent, once for each item that did not finish: "no end after 5 s", "killed by
     * signal 6", "exit status 1", "no time left". */
    void (*lost)(void *context, int item, const char *why);
} fm_watchdog;

/* Sends one line, formatted as printf does and without a line end, to the parent. It is cut at
 * FM_WATCHDOG_LINE - 1. */
void fm_watchdog_say(int fd, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Runs all items in order. Returns 0, or the exit status of a first child that ended in prepare, in
 * which case nothing was run. Later children that end at that place lose the remaining items. The
 * caller must have no threads and nothing that does not survive a fork (CUDA). */
int fm_watchdog_run(const fm_watchdog *dog);

#endif
