/* bench_table.h: what benchmarks of steps print: the time of each module of a pass, from the time
 * stamps around its steps, the digest of what was trained, and the slow paths that were taken. */
#ifndef FM_TESTS_BENCH_TABLE_H
#define FM_TESTS_BENCH_TABLE_H

#include "proto/base/hash.h"
#include "trainer/autograd/tape.h"
#include "trainer/backend/fallback.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ROWS = 512, NAME_BYTES = 80 };

/* The columns of a table. What is derived counts as computed again. */
enum { TABLE_FORWARD, TABLE_AGAIN, TABLE_BACKWARD, TABLE_COLUMNS };
static const char *const table_columns[TABLE_COLUMNS] = {"forward", "again", "backward"};

static inline int column_of(fm_phase phase) {
    switch (phase) {
    case FM_PHASE_FORWARD: return TABLE_FORWARD;
    case FM_PHASE_BACKWARD: return TABLE_BACKWARD;
    case FM_PHASE_RECOMPUTE:
    case FM_PHASE_DERIVE: break;
    }
    return TABLE_AGAIN;
}

typedef struct row {
    char name[NAME_BYTES];
    double ms[TABLE_COLUMNS];
    double flops;
    int32_t n_node;
} row;

typedef struct table {
    row rows[MOST_ROWS];
    int n;
} table;

static inline row *row_of(table *t, const char *name) {
    for (int i = 0; i < t->n; i++) {
        if (strcmp(t->rows[i].name, name) == 0) return &t->rows[i];
    }
    if (t->n == MOST_ROWS) return &t->rows[MOST_ROWS - 1];
    row *r = &t->rows[t->n++];
    *r = (row){0};
    snprintf(r->name, sizeof r->name, "%s", name);
    return r;
}

/* Names a module of a stack by its name and the shape of its output. */
static inline void name_of(const fm_tape *tape, const fm_node *node, char *out) {
    int used = snprintf(out, NAME_BYTES, "%s", node->name);
    if (node->n_output == 0) return;
    const fm_tensor *y = &tape->tensor[node->output[0]];
    for (int i = 0; i < y->rank && used < NAME_BYTES; i++)
        used += snprintf(out + used, (size_t)(NAME_BYTES - used), "%s%lld%s", i ? "x" : " [",
                         (long long)y->local[i], i + 1 == y->rank ? "]" : "");
}

/* Adds the steps first .. end - 1 of a tape, whose stamps are ns. */
static inline void add_steps(table *rows, const fm_tape *tape, const uint64_t *ns, int32_t first,
                             int32_t end) {
    for (int32_t i = first; i < end; i++) {
        const fm_step *step = &tape->step[i];
        char name[NAME_BYTES];
        name_of(tape, &tape->node[step->node], name);
        row *r = row_of(rows, name);
        r->ms[column_of(step->phase)] += 1e-6 * (double)(ns[i + 1] - ns[i]);
        r->flops += step->flops;
        r->n_node += step->phase == FM_PHASE_FORWARD;
    }
}

static inline void add_tape(table *rows, const fm_tape *tape, const uint64_t *ns) {
    add_steps(rows, tape, ns, 0, tape->n_step);
}

static inline int by_time(const void *a, const void *b) {
    const row *x = a, *y = b;
    double dx = x->ms[0] + x->ms[1] + x->ms[2], dy = y->ms[0] + y->ms[1] + y->ms[2];
    return (dx < dy) - (dx > dy);
}

static inline void print_table(const char *title, table *t) {
    double total = 0;
    for (int i = 0; i < t->n; i++)
        total += t->rows[i].ms[0] + t->rows[i].ms[1] + t->rows[i].ms[2];
    qsort(t->rows, (size_t)t->n, sizeof *t->rows, by_time);
    printf("\n%s: %.3f ms\n%9s %6s %9s %9s %9s %8s %6s  %s\n", title, total, "ms", "%",
           table_columns[TABLE_FORWARD], table_columns[TABLE_AGAIN], table_columns[TABLE_BACKWARD],
           "TFLOP/s", "nodes", "module");
    for (int i = 0; i < t->n; i++) {
        const row *r = &t->rows[i];
        double ms = r->ms[0] + r->ms[1] + r->ms[2];
        printf("%9.3f %6.2f %9.3f %9.3f %9.3f %8.1f %6d  %s\n", ms,
               total > 0 ? 100 * ms / total : 0, r->ms[0], r->ms[1], r->ms[2],
               ms > 0 ? r->flops / ms * 1e-9 : 0, (int)r->n_node, r->name);
    }
}

static inline void print_slow_paths(void) {
    fm_fallback fallbacks[FM_FALLBACK_KINDS];
    fm_backend_fallbacks(fallbacks);
    for (int i = 0; i < FM_FALLBACK_KINDS; i++) {
        if (fallbacks[i].count > 0) {
            printf("slow path %s, %llu calls: %s\n", fallbacks[i].name,
                   (unsigned long long)fallbacks[i].count, fallbacks[i].text);
        }
    }
}

/* Prints a hash of parameters, moments and average after n_step steps. FM_ERR_NOMEM. */
static inline fm_status print_digest_of(const fm_params *p, fm_stream *stream, uint64_t n_step,
                                        uint64_t *ret_digest, fm_error *reterr) {
    size_t bytes = (size_t)p->n_element * fm_element_bytes(p->element);
    const void *from[] = {p->master, p->moment1, p->moment2, p->ema};
    void *host = malloc(bytes);
    if (!host) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a copy of the parameters");
    fm_xxh3_state *hash = fm_xxh3_create();
    for (int i = 0; i < 4; i++) {
        p->kernels->download(stream, host, from[i], bytes);
        p->kernels->synchronize(stream);
        fm_xxh3_update(hash, host, bytes);
    }
    *ret_digest = fm_xxh3_digest(hash);
    fm_xxh3_destroy(hash);
    free(host);
    printf("digest    %016llx of parameters, moments and average after %llu steps\n",
           (unsigned long long)*ret_digest, (unsigned long long)n_step);
    return FM_OK;
}

#endif
