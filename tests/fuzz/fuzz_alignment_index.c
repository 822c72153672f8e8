/* fuzz_alignment_index.c: arbitrary bytes as the index of an alignment database. Accepted entries
 * are inside their file, have plain names, and overlap only identical ones. The result must not
 * depend on how the bytes arrive. */
#include "cache/source/alignment_index.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { DB_BYTES = 1000 };

static void check_entry(const fm_alignment_index *index, const fm_index_entry *entry) {
    assert(entry->name);
    if (entry->refusal) return;
    assert(entry->db < index->n_db && !strchr(index->db[entry->db], '/'));
    for (uint32_t i = 0; i < entry->n_file; i++) {
        assert(entry->file[i].name[0] && !strchr(entry->file[i].name, '/'));
        assert(entry->file[i].offset <= DB_BYTES);
        assert(entry->file[i].bytes <= DB_BYTES - entry->file[i].offset);
    }
}

/* Returns one byte at a time. */
static fm_status read_slowly(void *context, uint8_t *out, size_t max, size_t *ret_bytes,
                             fm_error *reterr) {
    fm_json_input whole = fm_json_of_bytes(context);
    return whole.read(context, out, max ? 1 : 0, ret_bytes, reterr);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fm_arena arena;
    fm_error error = {0}, other_error = {0};
    fm_alignment_index index, other;
    uint64_t db_bytes[4096];
    if (fm_arena_init(&arena, (size_t)1 << 30, NULL)) return 0;
    for (size_t i = 0; i < 4096; i++)
        db_bytes[i] = DB_BYTES;
    fm_json_bytes bytes = {data, size, 0}, again = {data, size, 0};
    fm_status status =
        fm_alignment_index_parse(fm_json_of_bytes(&bytes), size, "own.db", &arena, &index, &error);
    fm_status slow = fm_alignment_index_parse((fm_json_input){&again, read_slowly}, size, "own.db",
                                              &arena, &other, &other_error);
    assert(status == slow && error.offset == other_error.offset);
    if (!status) {
        assert(index.n_entry == other.n_entry && index.n_file == other.n_file);
        status = fm_alignment_index_check(&index, db_bytes, &arena, &error);
        for (uint32_t i = 0; i < index.n_entry && !status; i++)
            check_entry(&index, &index.entry[i]);
    }
    fm_arena_fini(&arena);
    return 0;
}
