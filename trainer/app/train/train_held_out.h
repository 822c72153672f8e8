/* train_held_out.h: the held-out samples of a run of AlphaFold 3: the files of a folder, or a crop
 * of each complex of a snapshot. A server makes the crops when the run begins. They have one seed
 * for all runs, so every run on the snapshot with these sizes has the same, and they stay in memory
 * as they were sent, in at most a quarter of the machine's. */
#ifndef FM_TRAINER_TRAIN_HELD_OUT_H
#define FM_TRAINER_TRAIN_HELD_OUT_H

#include "trainer/app/samples/sample_folder.h"
#include "trainer/app/train/train_run.h"

/* The crop of a complex, as it was sent. */
typedef struct fm_held_crop {
    uint8_t *memory; /* aligned to 64 bytes; owned */
    size_t bytes;
} fm_held_crop;

typedef struct fm_held_out {
    uint32_t n;
    char *const *name; /* [n] of files or complexes */
    const char *from;  /* the folder or the snapshot; borrowed */
    fm_sample_folder folder;
    /* Of a snapshot: */
    fm_held_crop *crop;            /* [n]; NULL: it is a folder */
    char **crop_name;              /* [n] */
    size_t held_bytes, most_bytes; /* of all crops */
    fm_arena names, sample;        /* names; the crop that was read last, expanded */
    uint32_t n_left_out;           /* complexes that the server could not make */
} fm_held_out;

/* Opens the samples that the options name; there are none without --eval-samples and
 * --eval-snapshot. `data` is the address of the server. The errors of fm_sample_folder_open, and of
 * connecting and receiving. FM_ERR_DATA when no complex could be used; FM_ERR_LIMIT for more than
 * 65,536 complexes, or more memory than crops may take. */
FM_MUST_USE fm_status fm_held_out_open(const fm_train_run *run, const char *data,
                                       fm_held_out *ret_held_out, fm_error *reterr);
void fm_held_out_close(fm_held_out *held_out);

/* Reads sample i with all cycles of the run's settings. The features are valid until the next call;
 * their slot is left to the caller. The errors of fm_sample_folder_read and
 * fm_complex_features_of. */
FM_MUST_USE fm_status fm_held_out_read(fm_held_out *held_out, uint32_t i, uint32_t n_cycle,
                                       fm_af3_features *ret_features, fm_error *reterr);

#endif
