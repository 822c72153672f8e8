/* zip_directory.c: see zip_directory.h. A zip is read from its end: the end record gives the
 * directory's place, and the directory's entries give each member's place. */
#include "proto/zip_directory.h"

#include "proto/npz_format.h"

#include <inttypes.h>

static fm_reader reader_at(fm_bytes archive, uint64_t offset) {
    fm_reader reader = fm_reader_of(archive.data, archive.size);
    reader.failed = offset > archive.size;
    reader.at = reader.failed ? archive.size : (size_t)offset;
    return reader;
}

static void skip(fm_reader *reader, size_t bytes) {
    (void)fm_read_borrow(reader, bytes);
}

/* Finds the end record: the last structure of the file, followed only by a comment whose length it
 * declares. */
static fm_status find_end(fm_bytes tail, uint64_t base, size_t *ret_at, fm_error *reterr) {
    for (size_t back = ZIP_END_BYTES; back <= tail.size; back++) {
        if (back > ZIP_END_BYTES + ZIP_IN_EXTRA16) break;
        fm_reader reader = reader_at(tail, tail.size - back);
        if (fm_read_u32(&reader) != ZIP_END) continue;
        skip(&reader, 16);
        if (fm_read_u16(&reader) != back - ZIP_END_BYTES) continue;
        *ret_at = tail.size - back;
        return FM_OK;
    }
    return fm_fail_at(reterr, FM_ERR_FORMAT, 0, 0, base + tail.size,
                      "found no zip end record: the file is no zip archive, or is cut off");
}

/* Reads the zip64 end record, if a locator precedes the plain one. */
static fm_status read_end64(fm_bytes tail, uint64_t base, size_t end_at,
                            fm_zip_directory *directory, fm_error *reterr) {
    if (end_at < ZIP_END64_LOCATOR_BYTES) return FM_OK;
    fm_reader locator = reader_at(tail, end_at - ZIP_END64_LOCATOR_BYTES);
    if (fm_read_u32(&locator) != ZIP_END64_LOCATOR) return FM_OK;
    skip(&locator, 4);
    uint64_t at = fm_read_u64(&locator);
    /* An offset before the tail wraps round, and is past its end. */
    fm_reader end = reader_at(tail, at - base);
    uint32_t magic = fm_read_u32(&end);
    skip(&end, 20); /* size, versions, disks */
    skip(&end, 8);  /* entries on this disk */
    fm_zip_directory found;
    found.n_entry = fm_read_u64(&end);
    found.bytes = fm_read_u64(&end);
    found.offset = fm_read_u64(&end);
    if (end.failed || magic != ZIP_END64) {
        return fm_fail_at(
            reterr, FM_ERR_FORMAT, 0, 0, base + end_at - ZIP_END64_LOCATOR_BYTES,
            "the zip64 locator points at %" PRIu64 ", where there is no zip64 end record", at);
    }
    *directory = found;
    return FM_OK;
}

fm_status fm_zip_read_directory(fm_bytes tail, uint64_t base, fm_zip_directory *ret_directory,
                                fm_error *reterr) {
    size_t end_at;
    fm_status status = find_end(tail, base, &end_at, reterr);
    if (status) return status;
    fm_reader end = reader_at(tail, end_at + 4);
    uint16_t disk = fm_read_u16(&end), directory_disk = fm_read_u16(&end);
    skip(&end, 2);
    fm_zip_directory directory;
    directory.n_entry = fm_read_u16(&end);
    directory.bytes = fm_read_u32(&end);
    directory.offset = fm_read_u32(&end);
    if (disk != directory_disk) {
        return fm_fail_at(reterr, FM_ERR_UNSUPPORTED, 0, 0, base + end_at,
                          "the zip is spread over several disks");
    }
    status = read_end64(tail, base, end_at, &directory, reterr);
    if (status) return status;
    const uint64_t end_offset = base + end_at;
    if (directory.offset > end_offset || directory.bytes > end_offset - directory.offset ||
        directory.n_entry > directory.bytes / ZIP_CENTRAL_BYTES) {
        return fm_fail_at(reterr, FM_ERR_FORMAT, 0, 0, end_offset,
                          "the zip directory of %" PRIu64 " members in %" PRIu64
                          " bytes at %" PRIu64 " does not fit the file",
                          directory.n_entry, directory.bytes, directory.offset);
    }
    *ret_directory = directory;
    return FM_OK;
}

/* Takes from the zip64 extra field the values that the fixed fields delegate to it. */
static void read_zip64_extra(fm_reader extra, fm_zip_member *member) {
    while (fm_reader_left(&extra) >= 4) {
        uint16_t tag = fm_read_u16(&extra), bytes = fm_read_u16(&extra);
        const uint8_t *content = fm_read_borrow(&extra, bytes);
        if (!content) return; /* a length past the end; values still missing are refused later */
        if (tag != ZIP_EXTRA_ZIP64) continue;
        fm_reader fields = fm_reader_of(content, bytes);
        if (member->bytes == ZIP_IN_EXTRA32) member->bytes = fm_read_u64(&fields);
        if (member->packed_bytes == ZIP_IN_EXTRA32) member->packed_bytes = fm_read_u64(&fields);
        if (member->offset == ZIP_IN_EXTRA32) member->offset = fm_read_u64(&fields);
        return;
    }
}

fm_status fm_zip_read_member(fm_reader *directory, fm_zip_member *ret_member, fm_error *reterr) {
    fm_zip_member member = {.at = directory->at};
    uint32_t magic = fm_read_u32(directory);
    skip(directory, 4); /* versions */
    member.flags = fm_read_u16(directory);
    member.method = fm_read_u16(directory);
    skip(directory, 4); /* time and date */
    member.crc = fm_read_u32(directory);
    member.packed_bytes = fm_read_u32(directory);
    member.bytes = fm_read_u32(directory);
    member.name_bytes = fm_read_u16(directory);
    uint16_t extra_bytes = fm_read_u16(directory), comment_bytes = fm_read_u16(directory);
    skip(directory, 8); /* disk, attributes */
    member.offset = fm_read_u32(directory);
    member.name = fm_read_borrow(directory, member.name_bytes);
    const uint8_t *extra = fm_read_borrow(directory, extra_bytes);
    skip(directory, comment_bytes);
    if (directory->failed || magic != ZIP_CENTRAL) {
        return fm_fail_at(reterr, FM_ERR_FORMAT, 0, 0, member.at,
                          "found no complete zip directory entry where one is expected");
    }
    read_zip64_extra(fm_reader_of(extra, extra_bytes), &member);
    *ret_member = member;
    return FM_OK;
}

bool fm_zip_read_local(const uint8_t header[FM_ZIP_LOCAL_BYTES], uint16_t *ret_name_bytes,
                       uint16_t *ret_extra_bytes) {
    fm_reader local = fm_reader_of(header, FM_ZIP_LOCAL_BYTES);
    uint32_t magic = fm_read_u32(&local);
    skip(&local, 22);
    *ret_name_bytes = fm_read_u16(&local);
    *ret_extra_bytes = fm_read_u16(&local);
    return magic == ZIP_LOCAL;
}
