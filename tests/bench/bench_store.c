/* bench_store.c: measures reading stored parts at random, cold and warm, beside plain pread, raw
 * LMDB and memcpy of the same bytes.
 *
 *     bench_store [--mib N] [--reads N] [--folder DIR]
 *
 * For each size it makes a cache with one sealed shard of N MiB (192) of blobs of that size. The
 * cache is on the disk of DIR ($TMPDIR, else /tmp; on a memory-backed disk nothing is cold). All
 * rows read the same file:
 *
 *     pread            the blob's bytes, at the offset that the index has: the bound
 *     store, checked   the store's read of a blob: index, read, header and XXH3 checked
 *     store, decoded   and unpacked, and its SHA-256 checked: what a load does with each part
 *     LMDB             mdb_get and a copy out of the map, MDB_NORDAHEAD as recommended for random
 *                      reads; "+ advice": the value's pages are requested (MADV_WILLNEED) before
 *
 * Cold: before each read the map is dropped (LMDB's file is opened again) and the file's pages are
 * evicted by posix_fadvise(POSIX_FADV_DONTNEED); only the read is timed. The rows alternate, and
 * each read uses a random blob.
 *
 * Warm: the same without evicting, from 16 blobs that were just read, beside memcpy of the same
 * number of bytes. Times are processor time, because nothing waits and other jobs may share the
 * machine.
 *
 * Figures are medians; ratios are to pread. What the host of a virtual disk keeps in its memory
 * counts as cold here and may still be fast. */
#include "cache/store/blob.h"
#include "cache/store/store_open.h"
#include "proto/base/rng.h"
#include "tests/bench/bench_set.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <lmdb.h>
#include <sys/mman.h>
#include <unistd.h>

enum { N_ROW = 6, READS_MAX = 2001, N_WARM = 16, N_BLOB_MAX = 1 << 20, PAGE = 4096 };

typedef enum row { PREAD, CHECKED, DECODED, LMDB, LMDB_ADVICE, MEMCPY } row;

static const char *const row_names[N_ROW] = {"pread", "store, checked", "store, decoded",
                                             "LMDB",  "LMDB + advice",  "memcpy"};

typedef struct bench_state {
    char folder[256], shard[512];
    uint64_t mib, reads;
    uint32_t n_draw, n_blob;
    fm_arena arena;
    fm_blob_entry *blob; /* while the cache is made */
    fm_store *store;
    uint8_t *buffer, *copy; /* of one blob */
} bench_state;

static uint32_t draw(bench_state *bench, uint32_t below) {
    fm_philox_counter counter = fm_philox(3, (fm_philox_counter){{bench->n_draw++, 0, 0, 0}});
    return fm_uniform_below((uint64_t)counter.word[0] << 32 | counter.word[1], below);
}

/* -- a cache with blobs of one size */

/* Four letters at random, which pack to about a quarter, as alignments do. */
static void fill_letters(uint8_t *out, size_t size, uint32_t seed) {
    for (size_t i = 0; i < size;) {
        fm_philox_counter counter = fm_philox(9, (fm_philox_counter){{seed, (uint32_t)i, 0, 0}});
        for (int w = 0; w < 4; w++) {
            for (int b = 0; b < 32 && i < size; b += 2)
                out[i++] = counter.word[w] >> b & 3;
        }
    }
}

static fm_status take_blob(void *context, const fm_sha256 *hash, const fm_shard_blob *blob,
                           fm_error *reterr) {
    (void)reterr;
    bench_state *bench = context;
    bench->blob[bench->n_blob++] = (fm_blob_entry){.hash = *hash,
                                                   .offset = blob->offset,
                                                   .stored_bytes = blob->stored_bytes,
                                                   .decoded_bytes = blob->decoded_bytes,
                                                   .kind = blob->kind};
    return FM_OK;
}

static void put_blob(bench_state *bench, fm_shard_writer *writer, size_t decoded_bytes,
                     fm_part_kind kind, uint32_t seed) {
    fm_error error;
    fm_bytes packed;
    size_t mark = fm_arena_mark(&bench->arena);
    uint8_t *data = fm_arena_alloc(&bench->arena, decoded_bytes);
    assert(data);
    fill_letters(data, decoded_bytes, seed);
    fm_bytes part = {data, decoded_bytes};
    fm_sha256 hash = fm_sha256_of(part.data, part.size);
    check(fm_blob_pack(part, kind, &bench->arena, &packed, &error), &error);
    check(fm_shard_writer_put(writer, &hash, packed, &error), &error);
    fm_arena_rewind(&bench->arena, mark);
}

/* Publishes a generation of one chain, whose index names all blobs. */
static void publish(bench_state *bench, const char *cache, const fm_shard_info *shard) {
    fm_error error;
    fm_chain_entry chain = {.part = {FM_NO_PART, FM_NO_PART, FM_NO_PART, FM_NO_PART}};
    for (uint32_t i = 0; i < bench->n_blob; i++) {
        if (bench->blob[i].kind == FM_PART_SEQUENCE) chain.part[0] = i;
    }
    fm_generation generation = {.number = 1,
                                .n_shard = 1,
                                .n_chain = 1,
                                .n_blob = bench->n_blob,
                                .shard = shard,
                                .chain = &chain,
                                .names = "x",
                                .name_bytes = 2,
                                .blob = bench->blob};
    check(fm_generation_publish(cache, &generation, (fm_bytes){(const uint8_t *)"", 0},
                                &bench->arena, &error),
          &error);
}

static void make_cache(bench_state *bench, size_t stored_bytes) {
    char cache[300];
    fm_error error;
    fm_shard_writer *writer;
    fm_shard_info shard;
    snprintf(cache, sizeof cache, "%s/cache", bench->folder);
    check(fm_dir_make(cache, &error), &error);
    check(fm_shard_writer_create(cache, 0, &writer, &error), &error);
    uint32_t n = (uint32_t)((bench->mib << 20) / stored_bytes);
    for (uint32_t i = 0; i < n; i++)
        put_blob(bench, writer, 4 * stored_bytes, FM_PART_MSA, i);
    put_blob(bench, writer, 64, FM_PART_SEQUENCE, n);
    bench->n_blob = 0;
    const fm_shard_visitor visitor = {bench, take_blob, NULL};
    check(fm_shard_writer_seal(writer, &visitor, &shard, &error), &error);
    shard.n_note = 0;
    publish(bench, cache, &shard);
    check(fm_store_open(cache, &bench->store, &error), &error);
    bool fits = fm_shard_path(cache, &shard.hash, bench->shard, sizeof bench->shard);
    assert(fits);
    (void)fits;
}

/* -- one read of each kind */

static void fail(const char *what, int code) {
    fprintf(stderr, "bench_store: %s: %s\n", what, code > 0 ? strerror(code) : mdb_strerror(code));
    exit(1);
}

static void read_plain(bench_state *bench, const fm_blob_entry *blob, int fd) {
    ssize_t got = pread(fd, bench->buffer, blob->stored_bytes, (off_t)blob->offset);
    if (got != (ssize_t)blob->stored_bytes) fail("pread", errno);
}

typedef struct lmdb_file {
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi blobs;
} lmdb_file;

static lmdb_file open_lmdb(const char *path) {
    lmdb_file file = {0};
    const unsigned flags = MDB_NOSUBDIR | MDB_RDONLY | MDB_NOLOCK | MDB_NOTLS | MDB_NORDAHEAD;
    int code = mdb_env_create(&file.env);
    if (!code) code = mdb_env_set_maxdbs(file.env, 2);
    if (!code) code = mdb_env_open(file.env, path, flags, 0);
    if (!code) code = mdb_txn_begin(file.env, NULL, MDB_RDONLY, &file.txn);
    if (!code) code = mdb_dbi_open(file.txn, "blobs", 0, &file.blobs);
    if (code) fail("LMDB", code);
    return file;
}

static void close_lmdb(lmdb_file *file) {
    mdb_txn_abort(file->txn);
    mdb_env_close(file->env);
}

static void read_lmdb(bench_state *bench, const fm_blob_entry *blob, lmdb_file *file, bool advice) {
    MDB_val key = {sizeof blob->hash.bytes, (void *)(uintptr_t)blob->hash.bytes}, value;
    int code = mdb_get(file->txn, file->blobs, &key, &value);
    if (code) fail("mdb_get", code);
    if (advice) {
        uintptr_t from = (uintptr_t)value.mv_data / PAGE * PAGE;
        madvise((void *)from, (uintptr_t)value.mv_data + value.mv_size - from, MADV_WILLNEED);
    }
    memcpy(bench->buffer, value.mv_data, value.mv_size);
}

static void read_store(bench_state *bench, uint32_t at, bool decode) {
    fm_error error;
    fm_bytes bytes;
    fm_blob blob;
    size_t mark = fm_arena_mark(&bench->arena);
    if (decode) {
        check(fm_store_read_blob(bench->store, at, &bench->arena, &bytes, &error), &error);
    } else {
        check(fm_store_read_packed(bench->store, at, bench->buffer, &blob, &error), &error);
    }
    fm_arena_rewind(&bench->arena, mark);
}

/* Draws a blob of the measured size. */
static uint32_t draw_blob(bench_state *bench) {
    for (;;) {
        uint32_t at = draw(bench, bench->n_blob);
        if (bench->store->generation.blob[at].kind == FM_PART_MSA) return at;
    }
}

static void evict(int fd) {
    int code = posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    if (code) fail("posix_fadvise", code);
}

/* Seconds of one read. The store's own descriptor is the one of bench->store. */
static double time_read(bench_state *bench, row how, uint32_t at, int fd, bool cold) {
    const fm_blob_entry *blob = &bench->store->generation.blob[at];
    lmdb_file lmdb = {0};
    bool is_lmdb = how == LMDB || how == LMDB_ADVICE;
    if (cold) evict(fd);
    if (is_lmdb) lmdb = open_lmdb(bench->shard);
    if (is_lmdb && !cold) read_lmdb(bench, blob, &lmdb, false); /* its pages in the map */
    double begun = cold ? now_s() : cpu_s();
    switch (how) {
    case PREAD: read_plain(bench, blob, fd); break;
    case CHECKED: read_store(bench, at, false); break;
    case DECODED: read_store(bench, at, true); break;
    case LMDB: read_lmdb(bench, blob, &lmdb, false); break;
    case LMDB_ADVICE: read_lmdb(bench, blob, &lmdb, true); break;
    case MEMCPY: memcpy(bench->copy, bench->buffer, blob->stored_bytes); break;
    }
    double seconds = (cold ? now_s() : cpu_s()) - begun;
    if (is_lmdb) close_lmdb(&lmdb);
    return seconds;
}

/* -- the table */

static void measure(bench_state *bench, bool cold, double out[N_ROW]) {
    static double seconds[N_ROW][READS_MAX];
    uint32_t warm[N_WARM];
    int n = (int)bench->reads, fd = open(bench->shard, O_RDONLY | O_CLOEXEC);
    if (fd < 0) fail(bench->shard, errno);
    for (int i = 0; i < N_WARM; i++) {
        warm[i] = draw_blob(bench);
        (void)time_read(bench, PREAD, warm[i], fd, false);
    }
    for (int i = 0; i < n; i++) {
        for (int r = 0; r < N_ROW; r++) {
            if (cold && r == MEMCPY) continue;
            uint32_t at = cold ? draw_blob(bench) : warm[draw(bench, N_WARM)];
            seconds[r][i] = time_read(bench, (row)r, at, fd, cold);
        }
    }
    for (int r = 0; r < N_ROW; r++)
        out[r] = cold && r == MEMCPY ? 0 : median(seconds[r], n);
    close(fd);
}

static void print_table(const char *title, size_t stored_bytes, const double median_s[N_ROW]) {
    for (int r = 0; r < N_ROW; r++) {
        if (median_s[r] <= 0) continue;
        printf("%-5s %8zu  %-15s %10.1f µs %9.0f MB/s %6.2f\n", title, stored_bytes >> 10,
               row_names[r], median_s[r] * 1e6, (double)stored_bytes / 1e6 / median_s[r],
               median_s[r] / median_s[PREAD]);
    }
}

static void measure_size(bench_state *bench, size_t stored_bytes) {
    double medians[N_ROW];
    char cache[300];
    make_cache(bench, stored_bytes);
    /* Touches the pages now, so that no row pays for them. */
    memset(bench->buffer, 1, 2 * stored_bytes + PAGE);
    memset(bench->copy, 1, 2 * stored_bytes + PAGE);
    measure(bench, true, medians);
    print_table("cold", stored_bytes, medians);
    measure(bench, false, medians);
    print_table("warm", stored_bytes, medians);
    printf("\n");
    fm_store_close(bench->store);
    fm_arena_reset(&bench->arena);
    snprintf(cache, sizeof cache, "%s/cache", bench->folder);
    fm_test_remove_tree(cache);
}

static void parse_arguments(bench_state *bench, int argc, char **argv) {
    bench->mib = 192;
    bench->reads = 101;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--mib") == 0) bench->mib = strtoull(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--reads") == 0) bench->reads = strtoull(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--folder") == 0) setenv("TMPDIR", argv[i + 1], 1);
    }
    if (bench->mib < 16 || bench->mib > 4096) bench->mib = 192;
    if (bench->reads < 1 || bench->reads > READS_MAX) bench->reads = 101;
}

int main(int argc, char **argv) {
    static const size_t sizes[] = {16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20};
    bench_state bench = {0};
    fm_error error;
    parse_arguments(&bench, argc, argv);
    fm_test_make_folder(bench.folder, sizeof bench.folder);
    bench.blob = calloc(N_BLOB_MAX, sizeof *bench.blob);
    bench.buffer = malloc(16 << 20);
    bench.copy = malloc(16 << 20);
    assert(bench.blob && bench.buffer && bench.copy);
    check(fm_arena_init(&bench.arena, (size_t)4 << 30, &error), &error);
    printf("%llu MiB a size in %s; medians of %llu reads; ratios to pread\n",
           (unsigned long long)bench.mib, bench.folder, (unsigned long long)bench.reads);
    print_load();
    printf("      KiB each\n");
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        measure_size(&bench, sizes[i]);
    fm_arena_fini(&bench.arena);
    free(bench.blob);
    free(bench.buffer);
    free(bench.copy);
    fm_test_remove_tree(bench.folder);
    return 0;
}
