/* ledger.h: the file that says which sample a run used at which step and slot, so that a run whose
 * samples came out of order can be replayed bit for bit.
 *
 * The ledger is text, in lines that each end with a check (docs/reference/ledger.md). Lines are
 * only appended, each with one write(2), and wait in memory while the disk is full (appender.h). A
 * checkpoint is always at the end of a line, so a resumed run cuts the file there and continues. */
#ifndef FM_TRAINER_LEDGER_H
#define FM_TRAINER_LEDGER_H

#include "proto/base/hash.h"

#include <stdbool.h>

enum {
    FM_LEDGER_ROW = 64,          /* most samples of a line */
    FM_LEDGER_LINE_BYTES = 2048, /* longer than any line */
};
#define FM_LEDGER_FREE UINT32_MAX /* the window of order free */

/* What the numbers of samples refer to. */
typedef struct fm_ledger_facts {
    uint64_t seed;
    fm_sha256 snapshot;
    uint32_t n_group; /* the groups of ranks that shared a step */
    uint32_t window;  /* W of bounded:W, 0: strict, FM_LEDGER_FREE: free */
} fm_ledger_facts;

/* The place of a sample: slot `slot` of step `step`, which counts from 1 as in the metrics. */
typedef struct fm_ledger_use {
    uint64_t step;
    uint32_t slot;
    bool
        is_skipped; /* the sample was bad, or skipped by --skip-sample, and only occupies its place */
    uint64_t index;
} fm_ledger_use;

/* A line: facts about the lines after it, or consecutive places of one step. */
typedef struct fm_ledger_line {
    bool is_facts;
    fm_ledger_facts facts;
    uint32_t n; /* places; 1 .. FM_LEDGER_ROW */
    fm_ledger_use use[FM_LEDGER_ROW];
} fm_ledger_line;

/* Writes the line with its line feed and returns its bytes. */
size_t fm_ledger_format(const fm_ledger_line *line, char out[FM_LEDGER_LINE_BYTES]);

/* Reads a line of `bytes` bytes, line feed included. FM_ERR_FORMAT unless fm_ledger_format writes
 * the same bytes. */
FM_MUST_USE fm_status fm_ledger_parse(const char *text, size_t bytes, fm_ledger_line *ret_line,
                                      fm_error *reterr);

/* -- writing */

typedef struct fm_ledger fm_ledger;

/* Opens the ledger of a run that continues after `step` steps and `n_sample` samples of the next
 * one. Removes lines that are damaged or later. *ret_is_whole says whether every earlier place is
 * there. A missing file is created. FM_ERR_IO, FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_ledger_open(const char *path, const fm_ledger_facts *facts, uint64_t step,
                                     uint32_t n_sample, bool *ret_is_whole, fm_ledger **ret_ledger,
                                     fm_error *reterr);

/* Notes a use in memory. The slots of a step may be added in any order. FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_ledger_add(fm_ledger *ledger, const fm_ledger_use *use, fm_error *reterr);

/* Appends the places noted so far to the file. FM_ERR_IO: they wait in memory, and the next call
 * tries again. */
FM_MUST_USE fm_status fm_ledger_write(fm_ledger *ledger, fm_error *reterr);

/* As fm_ledger_write, and syncs the file. */
FM_MUST_USE fm_status fm_ledger_sync(fm_ledger *ledger, fm_error *reterr);

/* Closes the file; places that were not written are lost. NULL is allowed. */
void fm_ledger_close(fm_ledger *ledger);

/* -- reading */

/* A whole ledger: the n-th sample that a run used is use[n]. */
typedef struct fm_ledger_record {
    fm_ledger_facts facts; /* with the widest window of all */
    uint64_t n;
    fm_ledger_use *use; /* [n] */
} fm_ledger_record;

/* Reads a ledger. FM_ERR_NOT_FOUND, FM_ERR_IO; FM_ERR_FORMAT, with the line, where one is damaged,
 * where places are missing, or where facts other than the window change. */
FM_MUST_USE fm_status fm_ledger_read(const char *path, fm_ledger_record *ret_record,
                                     fm_error *reterr);
void fm_ledger_release(fm_ledger_record *record);

#endif
