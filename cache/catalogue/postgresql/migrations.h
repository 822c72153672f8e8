/* migrations.h: the numbered files of deploy/postgresql/, compiled in (EmbedTexts.cmake). */
#ifndef FM_CACHE_POSTGRESQL_MIGRATIONS_H
#define FM_CACHE_POSTGRESQL_MIGRATIONS_H

#include "cache/catalogue/postgresql/pq.h"

typedef struct fm_migration {
    const char *name; /* "0001_roles"; NULL ends the list */
    const char *sql;
} fm_migration;

/* In the order of their numbers, which begin at 1. */
extern const fm_migration fm_migrations[];

/* Checks that the database's schema is the newest known one. FM_ERR_UNSUPPORTED says what to do. */
FM_MUST_USE fm_status fm_migrations_check(fm_pq *pq, fm_error *reterr);

/* Applies the missing migrations, each in its own transaction. */
FM_MUST_USE fm_status fm_migrations_apply(fm_pq *pq, uint32_t *ret_n_applied, uint32_t *ret_n_known,
                                          fm_error *reterr);

#endif
