/* export_chain.h: writes the features of chains of a cache for other programs: one chain, or all
 * chains of a snapshot. */
#ifndef FM_CLI_EXPORT_CHAIN_H
#define FM_CLI_EXPORT_CHAIN_H

#include "cache/export/complex_load.h"
#include "server/cli/array_writer.h"

#include <signal.h>
#include <stdbool.h>

enum { FM_EXPORT_TEMPLATES = 4 }; /* of a chain at most */

typedef struct fm_export_options {
    const char *stage;    /* "chain" or "nonensembled" */
    const char *compat;   /* not NULL: templates are chosen as OpenFold chooses them */
    const char *max_date; /* of templates; NULL: any */
    fm_array_format format;
    const fm_complex_reader *complexes; /* of the store; NULL where it has none */
} fm_export_options;

/* Writes one chain to `path`, whole or not at all. It uses memory of the arena. Errors are those of
 * fm_store_load, of featurizing and of writing. */
FM_MUST_USE fm_status fm_export_chain(const fm_export_options *options, const fm_store *store,
                                      uint32_t chain, const char *path, fm_arena *arena,
                                      fm_error *reterr);

typedef struct fm_export_report {
    uint32_t n_chain, n_written, n_kept, n_failed;
    double seconds;
} fm_export_report;

/* The same for a complex: what foldmill parse complex writes, with the alignments and the best
 * templates of its entities. Errors are also those of fm_complex_load. */
FM_MUST_USE fm_status fm_export_complex(const fm_export_options *options, const fm_store *store,
                                        uint32_t item, const char *path, fm_arena *arena,
                                        fm_error *reterr);

/* Writes every chain of a snapshot to FOLDER/<name>.<format>. Existing files are kept, so an
 * interrupted export can continue. FOLDER/export.json records the cache, snapshot and options of
 * the files. A folder with another record is refused with FM_ERR_EXISTS. A chain that cannot be
 * read or featurized is reported on standard error and counted. The export stops with FM_ERR_IO
 * when a file cannot be written. When *stop_asked is not 0 it stops between two chains, without an
 * error. */
FM_MUST_USE fm_status fm_export_snapshot(const fm_export_options *options, const fm_store *store,
                                         const char *snapshot, const char *folder, bool is_quiet,
                                         const volatile sig_atomic_t *stop_asked, fm_arena *arena,
                                         fm_export_report *ret_report, fm_error *reterr);

#endif
