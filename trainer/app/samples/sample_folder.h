/* sample_folder.h: a folder of stored samples of complexes, read one after the other in a random
 * order (docs/reference/complex-samples.md). */
#ifndef FM_TRAINER_SAMPLE_FOLDER_H
#define FM_TRAINER_SAMPLE_FOLDER_H

#include "proto/base/hash.h"
#include "trainer/step/af3/stored.h"

typedef struct fm_sample_folder {
    const char *path;
    fm_arena arena; /* of the names */
    char **file;    /* [n] names of the files, sorted by bytes, without their ending */
    uint32_t n;
    fm_sha256 hash; /* of names and sizes: what the folder is */
    bool keeps;     /* the files are small, and samples stay in memory once they were read */
    fm_stored_sample *sample; /* [n] */
    bool *is_read;            /* [n] */
    uint32_t recent[2];       /* the files of the last two calls of fm_sample_folder_read */
    uint64_t n_read;          /* files read so far */
    uint32_t *order;          /* [n] of one pass over the files */
    uint64_t order_seed, order_pass;
    bool has_order;
} fm_sample_folder;

/* Lists the folder's files NAME.npz. FM_ERR_NOT_FOUND and FM_ERR_IO; FM_ERR_DATA where there are
 * none, or a name has other bytes than letters, digits and ._+-; FM_ERR_LIMIT, FM_ERR_NOMEM. The
 * path is borrowed. */
FM_MUST_USE fm_status fm_sample_folder_open(const char *path, fm_sample_folder *ret_folder,
                                            fm_error *reterr);
void fm_sample_folder_close(fm_sample_folder *folder);

/* The file that sample `index` of a run takes: file index % n of the order of pass index / n, which
 * follows from the seed. */
uint32_t fm_sample_folder_file(fm_sample_folder *folder, uint64_t seed, uint64_t index);

/* Reads a file, or finds it in memory. The sample is valid until the call after the next one, so a
 * run can read one sample ahead. The errors of fm_stored_sample_read. */
FM_MUST_USE fm_status fm_sample_folder_read(fm_sample_folder *folder, uint32_t file,
                                            const fm_stored_sample **ret_sample, fm_error *reterr);

/* Whether the error is that of a sample, which a run may skip; other errors end it. */
bool fm_is_bad_sample(fm_status status);

#endif
