/* watchdog.h: a list of items of work of which any may crash or hang, in a child process under a
 * limit of time. What an item says arrives line by line; after an item that is lost the next ones
 * go on in a fresh child. */
#ifndef FM_TESTS_WATCHDOG_H
#define FM_TESTS_WATCHDOG_H

#include <stdbool.h>

enum { FM_WATCHDOG_LINE = 2048 };

typedef struct fm_watchdog {
    int n_item;
    double item_seconds;  /* an item that takes longer hangs */
    double total_seconds; /* no item is begun later than this; 0: no limit */
    void *context;
    /* In the child, before its first item; NULL: nothing to do. Not 0: the child ends with it. */
    int (*prepare)(void *context, int fd);
    /* In the child: one item. What it finds it sends with fm_watchdog_say. Returns when done. */
    void (*run)(void *context, int item, int fd);
    /* In the parent: a line that the child said in this item, or in prepare (item -1). */
    void (*hear)(void *context, int item, const char *line);
    /* In the parent, once for each item that did not get through: "no end after 5 s", "killed by
     * signal 6", "exit status 1", "no time left". */
    void (*lost)(void *context, int item, const char *why);
} fm_watchdog;

/* One line, without its end, as printf makes it, to the parent; cut at FM_WATCHDOG_LINE - 1. */
void fm_watchdog_say(int fd, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Runs all items in order. Returns 0, or the exit status of a first child that ended in prepare:
 * nothing was run then. Later children that end there lose the items that are left. No threads and
 * nothing that does not outlive a fork (CUDA) may exist in the caller. */
int fm_watchdog_run(const fm_watchdog *dog);

#endif
