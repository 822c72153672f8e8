/* event_file.h: writes metrics in TensorBoard's format to DIR/events.out.tfevents.foldmill.
 *
 * The file is a sequence of records (TFRecord), each
 *
 *     | u64 length | u32 crc of length | data | u32 crc of data |      little-endian
 *
 * where a crc is CRC-32C, rotated right by 15 bits, plus 0xa282ead8. The data is a protocol buffer,
 * Event (tensorflow/core/util/event.proto):
 *
 *     Event      1 wall_time     double, seconds
 *                2 step          varint
 *                3 file_version  string "brain.Event:2", in the first record only
 *                5 summary       message of repeated 1 value
 *     value      1 tag           string
 *                2 simple_value  float
 *
 * docs/reference/events.md has the details. Each record is written with one write(2). The
 * metrics.jsonl beside this file is the complete record: here values are floats, and values that
 * are not finite are omitted. */
#ifndef FM_TRAINER_EVENT_FILE_H
#define FM_TRAINER_EVENT_FILE_H

#include "trainer/metrics/metrics.h"

typedef struct fm_event_file fm_event_file;

/* Returns the CRC-32C (Castagnoli) of the data; that of "123456789" is 0xe3069283. */
uint32_t fm_crc32c(const void *data, size_t size);

/* Opens the file in `folder`; creates both if missing. If the file exists and `resume` is set,
 * records after step `last` are removed, so a resumed run writes each step once. If it exists and
 * `resume` is not set: FM_ERR_EXISTS. wall_s: the current time in seconds since 1970. FM_ERR_IO;
 * FM_ERR_CORRUPT if the file is not a file of events. */
FM_MUST_USE fm_status fm_event_file_open(const char *folder, bool resume, uint64_t last,
                                         double wall_s, fm_event_file **ret_file, fm_error *reterr);
void fm_event_file_close(fm_event_file *file);
/* Closes the file and removes it, and the folders that fm_event_file_open made: for a run that has
 * failed before its first step. */
void fm_event_file_discard(fm_event_file *file);

/* Appends one record with the tags loss/total, loss/<term>, structure/<score>,
 * optimizer/grad_norm, optimizer/learning_rate, time/step_s and time/data_wait_s. FM_ERR_IO:
 * the disk did not take it; the record waits in memory and is written with a later one.
 * FM_ERR_NOMEM: it is lost. */
FM_MUST_USE fm_status fm_event_file_write(fm_event_file *file, const fm_metrics_step *step,
                                          double wall_s, fm_error *reterr);

/* Writes the records that wait in memory, and syncs the file. FM_ERR_IO. */
FM_MUST_USE fm_status fm_event_file_sync(fm_event_file *file, fm_error *reterr);

#endif
