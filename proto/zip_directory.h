/* zip_directory.h: reads the directory of a zip archive, for npz.c and torch_file.c (PKWARE APPNOTE
 * 6.3). The bytes come from outside: every offset and size is checked against those that are
 * there. */
#ifndef FM_PROTO_ZIP_DIRECTORY_H
#define FM_PROTO_ZIP_DIRECTORY_H

#include "proto/base/bytes.h"
#include "proto/base/status.h"

#include <stdbool.h>

enum {
    /* Bytes at the end of an archive in which its end records are: a comment of 65,535 bytes, and
     * the records of zip64. */
    FM_ZIP_TAIL = 65535 + 22 + 20 + 56,
    FM_ZIP_LOCAL_BYTES = 30, /* of a local header, without name and extra field */
};

/* The place of the directory. */
typedef struct fm_zip_directory {
    uint64_t n_entry, bytes, offset;
} fm_zip_directory;

/* One member as its directory entry describes it. */
typedef struct fm_zip_member {
    uint64_t at; /* offset of its directory entry, for errors */
    uint16_t flags, method;
    uint32_t crc;
    uint64_t packed_bytes, bytes, offset;
    const uint8_t *name; /* borrowed */
    uint16_t name_bytes;
} fm_zip_member;

/* Finds the directory. `tail` is the whole archive, or its last FM_ZIP_TAIL bytes, which begin at
 * offset `base`. The directory is before the end record, and has room for its entries.
 * FM_ERR_FORMAT and FM_ERR_UNSUPPORTED with the offset in the archive. */
FM_MUST_USE fm_status fm_zip_read_directory(fm_bytes tail, uint64_t base,
                                            fm_zip_directory *ret_directory, fm_error *reterr);

/* Reads the next entry of a directory; offsets of errors are those of the reader. FM_ERR_FORMAT. */
FM_MUST_USE fm_status fm_zip_read_member(fm_reader *directory, fm_zip_member *ret_member,
                                         fm_error *reterr);

/* Takes from a local header the bytes of the name and of the extra field, which follow it. False if
 * it is no local header. */
bool fm_zip_read_local(const uint8_t header[FM_ZIP_LOCAL_BYTES], uint16_t *ret_name_bytes,
                       uint16_t *ret_extra_bytes);

#endif
