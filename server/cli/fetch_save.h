/* fetch_save.h: keeps the samples of a stream as files: foldmill fetch --save DIR. */
#ifndef FM_CLI_FETCH_SAVE_H
#define FM_CLI_FETCH_SAVE_H

#include "proto/batch.h"
#include "proto/wire.h"
#include "server/cli/array_writer.h"

typedef struct fm_fetch_save {
    const char *folder;
    fm_array_format format;
    uint64_t n_written, n_kept;
} fm_fetch_save;

/* Makes the folder and records in FOLDER/fetch.json which stream its files are of. A folder of
 * another stream, or with other files, is refused with FM_ERR_EXISTS. */
FM_MUST_USE fm_status fm_fetch_save_begin(const fm_fetch_save *save, const fm_wire_welcome *welcome,
                                          const fm_wire_open *open, const fm_wire_opened *opened,
                                          fm_arena *arena, fm_error *reterr);

/* Writes one sample to FOLDER/<index, 12 digits>.<format>; an existing file is kept. A tensor that
 * all cycles share has its name of the schema, the others NAME.CYCLE. The fields of the sample are
 * scalars, and the chain's name is an array of bytes. SIGINT, SIGTERM and SIGHUP wait until the
 * file is complete. */
FM_MUST_USE fm_status fm_fetch_save_sample(fm_fetch_save *save, const fm_sample *sample,
                                           fm_arena *arena, fm_error *reterr);

#endif
