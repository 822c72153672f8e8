/* where.h: which op of which training step a thread runs, for messages about failing device calls.
 *
 * The tape names an op before it runs it, and the trainer names the step before it queues it. Both
 * are kept per thread, since ranks may be threads. Work on a GPU is asynchronous, so an error of an
 * earlier kernel may surface while a later op is named. */
#ifndef FM_BACKEND_WHERE_H
#define FM_BACKEND_WHERE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fm_backend_where {
    const char *op;     /* NULL: outside an op (optimiser, packets, start-up) */
    const char *module; /* the node's name; NULL: none */
    uint64_t step;      /* 1, 2, ...; 0: before the first */
} fm_backend_where;

/* The strings are not copied: they must live until the next call. */
void fm_backend_name_op(const char *op, const char *module);
void fm_backend_name_step(uint64_t step);

/* What this thread has named. */
fm_backend_where fm_backend_get_where(void);

#ifdef __cplusplus
}
#endif

#endif
