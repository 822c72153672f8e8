/* event_file.h: metrics as TensorBoard reads them: DIR/events.out.tfevents.foldmill.
 *
 * A file of records (TFRecord), each
 *
 *     | u64 length | u32 crc of length | data | u32 crc of data |      little-endian
 *
 * where a crc is CRC-32C, turned right by 15 bits and with 0xa282ead8 added. The data is a protocol
 * buffer, Event (tensorflow/core/util/event.proto): 1 wall_time (double, seconds), 2 step (varint),
 * 3 file_version (string, in the first record: "brain.Event:2") or 5 summary, a message of repeated
 * 1 value, a message of 1 tag (string) and 2 simple_value (float). docs/formats/events.md.
 *
 * A record is written with one write(2). The metrics.jsonl beside it is the complete one: values
 * are floats here, and those that are not finite are left out. */
#ifndef FM_TRAINER_EVENT_FILE_H
#define FM_TRAINER_EVENT_FILE_H

#include "trainer/metrics/metrics.h"

typedef struct fm_event_file fm_event_file;

/* CRC-32C (Castagnoli): "123456789" has 0xe3069283. */
uint32_t fm_crc32c(const void *data, size_t size);

/* Opens the folder's file, made when missing. One that is there is cut behind step `last` when
 * `resume`, so that a resumed run writes each step once, and refused with FM_ERR_EXISTS when not.
 * wall_s: the time now, seconds since 1970. FM_ERR_IO; FM_ERR_CORRUPT when the file is none of
 * ours. */
FM_MUST_USE fm_status fm_event_file_open(const char *folder, bool resume, uint64_t last,
                                         double wall_s, fm_event_file **ret_file, fm_error *reterr);
void fm_event_file_close(fm_event_file *file);

/* Tags: loss/total, loss/<term>, structure/<score>, optimizer/grad_norm, optimizer/learning_rate,
 * time/step_s, time/data_wait_s. FM_ERR_IO. */
FM_MUST_USE fm_status fm_event_file_write(fm_event_file *file, const fm_metrics_step *step,
                                          double wall_s, fm_error *reterr);

#endif
