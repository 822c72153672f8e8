/* fuzz_snapshot.c: arbitrary bytes as a snapshot and the record of its selection, a list of names,
 * or a file of clusters, selected by the first byte. A snapshot or record that is read is written
 * as the same bytes; sets are sorted and members are found. */
#include "cache/snapshot/clusters.h"
#include "cache/snapshot/selection.h"
#include "cache/snapshot/snapshot_text.h"
#include "cache/source/names.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_snapshot(fm_bytes bytes, fm_arena *arena) {
    fm_snapshot_text text;
    fm_bytes again;
    fm_error error;
    if (fm_snapshot_decode(bytes, arena, &text, &error)) return;
    assert(!fm_snapshot_encode(&text, arena, &again, &error));
    assert(again.size == bytes.size && memcmp(again.data, bytes.data, bytes.size) == 0);
}

static void check_selection(fm_bytes bytes, fm_arena *arena) {
    fm_selection selection;
    fm_bytes again;
    fm_error error;
    if (fm_selection_decode(bytes, arena, &selection, &error)) return;
    assert(!fm_selection_encode(&selection, arena, &again, &error));
    assert(again.size == bytes.size && memcmp(again.data, bytes.data, bytes.size) == 0);
}

static void check_names(fm_bytes bytes, fm_arena *arena) {
    fm_names names;
    fm_error error;
    if (fm_names_parse(bytes, arena, &names, &error)) return;
    for (uint32_t i = 0; i < names.n; i++) {
        assert(i == 0 || strcmp(names.name[i - 1], names.name[i]) < 0);
        assert(fm_names_has(&names, names.name[i]));
    }
}

static void check_clusters(fm_bytes bytes, fm_arena *arena) {
    fm_clusters clusters;
    fm_error error;
    uint64_t sum = 0;
    if (fm_clusters_parse(bytes, arena, &clusters, &error)) return;
    for (uint32_t i = 0; i < clusters.n_cluster; i++)
        sum += clusters.size[i];
    assert(sum == clusters.n_member);
    for (uint32_t i = 0; i < clusters.n_member; i++) {
        uint32_t found = fm_clusters_find(&clusters, clusters.member[i].name);
        assert(found <= clusters.member[i].cluster);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fm_arena arena;
    if (size == 0 || fm_arena_init(&arena, (size_t)256 << 20, NULL)) return 0;
    fm_bytes bytes = {data + 1, size - 1};
    if (data[0] % 3 == 0) {
        check_snapshot(bytes, &arena);
        check_selection(bytes, &arena);
    } else if (data[0] % 3 == 1) {
        check_names(bytes, &arena);
    } else {
        check_clusters(bytes, &arena);
    }
    fm_arena_fini(&arena);
    return 0;
}
