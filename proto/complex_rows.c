/* complex_rows.c: encodes and decodes the table of what training draws of complexes; see
 * complex_rows.h and docs/reference/store.md. */
#include "proto/complex_rows.h"

#include "proto/base/hash.h"

#include <assert.h>
#include <string.h>

enum { MAGIC = 'F' | 'M' << 8 | 'C' << 16 | 'R' << 24, FORMAT = 1, HEADER_BYTES = 16 };

uint64_t fm_complex_row_join(uint64_t a, uint64_t b) {
    uint8_t bytes[2 * sizeof a];
    fm_writer writer = fm_writer_of(bytes, sizeof bytes);
    fm_write_u64(&writer, a < b ? a : b);
    fm_write_u64(&writer, a < b ? b : a);
    return fm_xxh3(bytes, sizeof bytes);
}

static void write_row(const fm_complex_row *row, uint8_t bytes[FM_COMPLEX_ROW_BYTES]) {
    fm_writer writer = fm_writer_of(bytes, FM_COMPLEX_ROW_BYTES);
    fm_write_u32(&writer, row->item);
    fm_write_u8(&writer, row->is_interface);
    fm_write_u8(&writer, row->kind[0]);
    fm_write_u8(&writer, row->kind[1]);
    fm_write_u8(&writer, 0);
    for (int i = 0; i < 2; i++) {
        fm_write_u32(&writer, row->chain[i]);
        fm_write_u32(&writer, (uint32_t)row->asym_id[i]);
        fm_write_u32(&writer, row->entity[i]);
    }
    fm_write_u64(&writer, row->cluster);
    assert(!writer.failed && writer.at == FM_COMPLEX_ROW_BYTES);
}

static bool read_row(fm_reader *reader, uint32_t n_item, fm_complex_row *row) {
    memset(row, 0, sizeof *row);
    row->item = fm_read_u32(reader);
    uint8_t is_interface = fm_read_u8(reader);
    row->is_interface = is_interface == 1;
    row->kind[0] = fm_read_u8(reader);
    row->kind[1] = fm_read_u8(reader);
    bool good = fm_read_u8(reader) == 0 && is_interface <= 1;
    for (int i = 0; i < 2; i++) {
        row->chain[i] = fm_read_u32(reader);
        row->asym_id[i] = (int32_t)fm_read_u32(reader);
        row->entity[i] = fm_read_u32(reader);
    }
    row->cluster = fm_read_u64(reader);
    good = good && row->item < n_item && row->kind[0] < FM_COMPLEX_ROW_KINDS &&
           row->kind[1] < FM_COMPLEX_ROW_KINDS && row->asym_id[0] >= 0 &&
           row->entity[0] != UINT32_MAX;
    if (row->is_interface) {
        return good && row->asym_id[1] >= 0 && row->entity[0] <= row->entity[1] &&
               row->entity[1] != UINT32_MAX;
    }
    return good && row->kind[1] == 0 && row->chain[1] == 0 && row->asym_id[1] == -1 &&
           row->entity[1] == UINT32_MAX;
}

fm_status fm_complex_rows_encode(const fm_complex_row *rows, uint32_t n, fm_arena *arena,
                                 fm_bytes *ret_bytes, fm_error *reterr) {
    size_t total = HEADER_BYTES + (size_t)n * FM_COMPLEX_ROW_BYTES;
    uint8_t *data = fm_arena_alloc(arena, total);
    if (!data) return fm_arena_full(arena, reterr);
    fm_writer writer = fm_writer_of(data, HEADER_BYTES);
    fm_write_u32(&writer, MAGIC);
    fm_write_u32(&writer, FORMAT);
    fm_write_u64(&writer, n);
    for (uint32_t i = 0; i < n; i++)
        write_row(&rows[i], data + HEADER_BYTES + (size_t)i * FM_COMPLEX_ROW_BYTES);
    *ret_bytes = (fm_bytes){data, total};
    return FM_OK;
}

fm_status fm_complex_rows_decode(fm_bytes bytes, uint32_t n_item, fm_arena *arena,
                                 const fm_complex_row **ret_rows, uint32_t *ret_n,
                                 fm_error *reterr) {
    fm_reader reader = fm_reader_of(bytes.data, bytes.size);
    uint32_t magic = fm_read_u32(&reader), format = fm_read_u32(&reader);
    uint64_t n = fm_read_u64(&reader);
    if (reader.failed || magic != MAGIC || format != FORMAT ||
        n > bytes.size / FM_COMPLEX_ROW_BYTES || n > UINT32_MAX ||
        fm_reader_left(&reader) != n * FM_COMPLEX_ROW_BYTES) {
        return fm_fail(reterr, FM_ERR_CORRUPT, "the header of the complexes' records is broken");
    }
    fm_complex_row *rows = fm_arena_alloc_array(arena, (size_t)n, sizeof *rows);
    if (!rows) return fm_arena_full(arena, reterr);
    for (uint32_t i = 0; i < n; i++) {
        if (!read_row(&reader, n_item, &rows[i]) || (i > 0 && rows[i].item < rows[i - 1].item)) {
            return fm_fail(reterr, FM_ERR_CORRUPT, "record %u of the complexes is broken", i);
        }
    }
    *ret_rows = rows;
    *ret_n = (uint32_t)n;
    return FM_OK;
}
