/* test_faults.c: builds on a disk that fails. The n-th call to the system or to LMDB returns an
 * error, writes half, or is the last that the process makes, for each n until a build succeeds.
 *
 * The functions below replace those of the C library and LMDB, for the program and for LMDB itself,
 * because the linker prefers a program's symbols. The tested code is thus the unchanged product.
 * They count the calls that touch the cache's folder: opening, reading, writing, syncing, making
 * folders, renaming; and LMDB's puts, commits and syncs. A build has one writer, so with one worker
 * the n-th call is always the same. */
#include "proto/base/held_folder.h"
#include "tests/cache/cache_case.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

typedef enum fault_kind {
    FAULT_NONE,
    FAULT_ERROR, /* the call fails with `code` */
    FAULT_SHORT, /* half of the bytes are written, then ENOSPC */
    FAULT_KILL,  /* SIGKILL before the call; a write is half done */
} fault_kind;

/* Several threads of a build make calls, one after the other. */
static struct {
    fault_kind kind;
    int code;
    char folder[160]; /* of the cache */
    atomic_uint at, n_call;
    atomic_bool fired, must_fail; /* must_fail: the build cannot recover from this failure */
} fault;

/* Watches one file: bytes read of it before LMDB opens it, and whether LMDB does. */
static struct {
    char path[512]; /* "" = none */
    atomic_size_t n_read;
    bool opened;
} watched;

static bool armed(bool must_fail) {
    if (fault.kind == FAULT_NONE) return false;
    if (atomic_fetch_add(&fault.n_call, 1) + 1 != atomic_load(&fault.at)) return false;
    atomic_store(&fault.fired, true);
    atomic_store(&fault.must_fail, must_fail);
    return true;
}

/* True when the call must fail; sets errno. */
static bool fails(bool must_fail) {
    if (!armed(must_fail)) return false;
    if (fault.kind == FAULT_KILL) raise(SIGKILL);
    errno = fault.kind == FAULT_SHORT ? ENOSPC : fault.code;
    return true;
}

static bool is_within(const char *path) {
    return fault.kind != FAULT_NONE && !strncmp(path, fault.folder, strlen(fault.folder));
}

/* What a power cut could lose: files written and folders changed since their last sync. */
enum { N_UNSYNCED_MAX = 64 };
static struct {
    bool on;
    char root[160]; /* other paths are ignored */
    char path[N_UNSYNCED_MAX][256];
    int n;
    char breach[600]; /* "" = none */
    unsigned n_renamed;
} power;

static void path_of(int fd, char path[512]) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, 511);
    path[n > 0 ? n : 0] = '\0';
}

static bool is_file_within(int fd) {
    char path[512];
    if (fault.kind == FAULT_NONE) return false;
    path_of(fd, path);
    return is_within(path);
}

static bool is_watched(int fd) {
    char path[512];
    path_of(fd, path);
    return strcmp(path, watched.path) == 0;
}

static int find_unsynced(const char *path) {
    for (int i = 0; i < power.n; i++) {
        if (strcmp(power.path[i], path) == 0) return i;
    }
    return -1;
}

static void mark_unsynced(const char *path) {
    if (!power.on || strncmp(path, power.root, strlen(power.root)) != 0) return;
    if (find_unsynced(path) >= 0) return;
    assert_true(power.n < N_UNSYNCED_MAX);
    snprintf(power.path[power.n++], sizeof power.path[0], "%.255s", path);
}

static void mark_file_unsynced(int fd) {
    char path[512];
    if (!power.on) return;
    path_of(fd, path);
    mark_unsynced(path);
}

static void mark_synced(int fd) {
    char path[512];
    if (!power.on) return;
    path_of(fd, path);
    int at = find_unsynced(path);
    if (at >= 0) memcpy(power.path[at], power.path[--power.n], sizeof power.path[0]);
}

static void mark_parent_unsynced(const char *path) {
    char folder[512];
    snprintf(folder, sizeof folder, "%.500s", path);
    char *slash = strrchr(folder, '/');
    if (slash) *slash = '\0';
    mark_unsynced(folder);
}

/* A file must be on the disk before it gets its name. Everything that CURRENT refers to, names
 * included, must be on the disk before CURRENT changes. */
static void check_rename(const char *from, const char *to) {
    if (!power.on || strncmp(to, power.root, strlen(power.root)) != 0) return;
    if (find_unsynced(from) >= 0) {
        snprintf(power.breach, sizeof power.breach, "%.250s is renamed before it is synced", from);
    }
    if (strstr(to, "/CURRENT") && power.n) {
        snprintf(power.breach, sizeof power.breach, "CURRENT is changed before %.250s is synced",
                 power.path[0]);
    }
    mark_parent_unsynced(to);
    power.n_renamed++;
}

/* The name of a path, which the product may reach by the descriptor of its cache. */
static const char *name_of(const char *path, char named[512]) {
    fm_held_folder_show(path, named, 512);
    return named;
}

/* dlsym returns a function as a data pointer. */
#define REAL(name)                                                                                 \
    static __typeof__(name) *real;                                                                 \
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, #name)

/* -- the system's calls */

int open(const char *path, int flags, ...) {
    REAL(open);
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    char named[512];
    if (is_within(name_of(path, named)) && fails(flags & (O_WRONLY | O_RDWR))) return -1;
    return real(path, flags, mode);
}

ssize_t read(int fd, void *out, size_t size) {
    REAL(read);
    if (is_file_within(fd) && fails(false)) return -1;
    ssize_t got = real(fd, out, size);
    if (watched.path[0] && got > 0 && is_watched(fd)) {
        atomic_fetch_add(&watched.n_read, (size_t)got);
    }
    return got;
}

ssize_t pread(int fd, void *out, size_t size, off_t at) {
    REAL(pread);
    return is_file_within(fd) && fails(false) ? -1 : real(fd, out, size, at);
}

ssize_t write(int fd, const void *data, size_t size) {
    REAL(write);
    mark_file_unsynced(fd);
    if (!is_file_within(fd) || !armed(true)) return real(fd, data, size);
    if (fault.kind == FAULT_SHORT || fault.kind == FAULT_KILL) {
        if (real(fd, data, size / 2) < 0) return -1;
    }
    if (fault.kind == FAULT_KILL) raise(SIGKILL);
    errno = fault.kind == FAULT_SHORT ? ENOSPC : fault.code;
    return -1;
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
    REAL(pwrite);
    mark_file_unsynced(fd);
    if (!is_file_within(fd) || !armed(true)) return real(fd, data, size, at);
    if (fault.kind == FAULT_SHORT) return real(fd, data, size / 2, at);
    if (fault.kind == FAULT_KILL && real(fd, data, size / 2, at) >= 0) raise(SIGKILL);
    errno = fault.code;
    return -1;
}

ssize_t writev(int fd, const struct iovec *part, int n) {
    REAL(writev);
    mark_file_unsynced(fd);
    if (!is_file_within(fd) || !armed(true)) return real(fd, part, n);
    const struct iovec half = {part[0].iov_base, part[0].iov_len / 2};
    if (fault.kind == FAULT_SHORT) return real(fd, &half, 1);
    if (fault.kind == FAULT_KILL && real(fd, &half, 1) >= 0) raise(SIGKILL);
    errno = fault.code;
    return -1;
}

/* No real sync: hundreds of builds would wait for the disk, and no test looks behind the page
 * cache. */
int fsync(int fd) {
    mark_synced(fd);
    return is_file_within(fd) && fails(true) ? -1 : 0;
}

int fdatasync(int fd) {
    mark_synced(fd);
    return is_file_within(fd) && fails(true) ? -1 : 0;
}

int ftruncate(int fd, off_t size) {
    REAL(ftruncate);
    return is_file_within(fd) && fails(true) ? -1 : real(fd, size);
}

int rename(const char *from, const char *to) {
    REAL(rename);
    char old[512], new[512];
    check_rename(name_of(from, old), name_of(to, new));
    return is_within(new) && fails(true) ? -1 : real(from, to);
}

int mkdir(const char *path, mode_t mode) {
    REAL(mkdir);
    char named[512];
    if (is_within(name_of(path, named)) && fails(true)) return -1;
    int code = real(path, mode);
    if (code == 0) mark_parent_unsynced(named);
    return code;
}

/* -- LMDB's functions, with as much of their types as a failure needs */

int mdb_put(void *txn, unsigned database, void *key, void *value, unsigned flags);
int mdb_txn_commit(void *txn);
int mdb_env_sync(void *env, int force);
int mdb_env_open(void *env, const char *path, unsigned flags, mode_t mode);
int mdb_txn_begin(void *env, void *parent, unsigned flags, void **ret_txn);

int mdb_put(void *txn, unsigned database, void *key, void *value, unsigned flags) {
    REAL(mdb_put);
    return fails(true) ? errno : real(txn, database, key, value, flags);
}

int mdb_txn_commit(void *txn) {
    REAL(mdb_txn_commit);
    if (!fails(true)) return real(txn);
    void (*abort_txn)(void *);
    *(void **)&abort_txn = dlsym(RTLD_NEXT, "mdb_txn_abort");
    abort_txn(txn); /* a failed commit frees its transaction */
    return fault.kind == FAULT_SHORT ? ENOSPC : fault.code;
}

int mdb_env_sync(void *env, int force) {
    REAL(mdb_env_sync);
    return fails(true) ? errno : real(env, force);
}

int mdb_env_open(void *env, const char *path, unsigned flags, mode_t mode) {
    REAL(mdb_env_open);
    char named[512];
    if (strcmp(name_of(path, named), watched.path) == 0) watched.opened = true;
    return fails(false) ? errno : real(env, path, flags, mode);
}

int mdb_txn_begin(void *env, void *parent, unsigned flags, void **ret_txn) {
    REAL(mdb_txn_begin);
    return fails(false) ? errno : real(env, parent, flags, ret_txn);
}

/* -- invariants */

typedef struct fault_case {
    cache_case test;
    char base[180]; /* a cache with generation 1 of one of the chains */
    fm_sha256 few, whole;
    uint32_t n_failed, n_harmless, n_late;
} fault_case;

static const fm_build_options small_shards = {.n_job = 1, .shard_bytes = 9000};

static void setup_fault(fault_case *fc) {
    cache_case *test = &fc->test;
    fm_build_report report;
    char data[180], clean[180];
    memset(fc, 0, sizeof *fc);
    setup_case(test, 4);
    snprintf(fc->base, sizeof fc->base, "%s/base", test->folder);
    snprintf(data, sizeof data, "%s/few", test->folder);
    snprintf(clean, sizeof clean, "%s/clean", test->folder);
    assert_int_equal(run_shell("mkdir -p %s/alignments && cp -r %s/mmcifs %s && "
                               "cd %s/alignments && cp -r $(ls | head -1) %s/alignments",
                               data, test->data, data, test->data, data),
                     0);
    assert_int_equal(build_with(test, data, fc->base, small_shards, &report), FM_OK);
    fc->few = report.content;
    assert_int_equal(build_with(test, test->data, clean, small_shards, &report), FM_OK);
    fc->whole = report.content;
    fm_test_remove_tree(clean);
    snprintf(fault.folder, sizeof fault.folder, "%s", test->cache);
}

/* Each n, or each $FM_TEST_SHARE-th: the sanitizers' presets ask for fewer. */
static unsigned step_of(void) {
    const char *share = getenv("FM_TEST_SHARE");
    return share ? (unsigned)strtoul(share, NULL, 10) : 1;
}

static void start_over(const fault_case *fc, bool with_base) {
    const char *cache = fc->test.cache;
    if (access(cache, F_OK) == 0) fm_test_remove_tree(cache);
    if (with_base) assert_int_equal(run_shell("cp -r %s %s", fc->base, cache), 0);
}

/* Only complete files have names that readers use. */
static void check_names(const char *cache, const char *folder, const char *letters) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", cache, folder);
    DIR *dir = opendir(path);
    for (struct dirent *entry = dir ? readdir(dir) : NULL; entry; entry = readdir(dir)) {
        if (entry->d_name[0] == '.' || strcmp(entry->d_name, "lock") == 0) continue;
        size_t stem = strspn(entry->d_name, letters);
        if (stem < 8 || strstr(entry->d_name, ".tmp")) {
            fail_msg("%s/%s is half written", folder, entry->d_name);
        }
    }
    if (dir) closedir(dir);
}

static bool is_content(fault_case *fc, const fm_sha256 *content) {
    fm_store *store;
    fm_status status = fm_store_open(fc->test.cache, &store, &fc->test.error);
    if (status) print_error("%s: %s\n", fc->test.error.source, fc->test.error.message);
    assert_int_equal(status, FM_OK);
    bool same = !memcmp(&fm_store_get_info(store)->content, content, sizeof *content);
    fm_store_close(store);
    return same;
}

/* After a failure the previous generation is complete, or the new one when the failure came after
 * its publishing. */
static void check_cache(fault_case *fc, bool with_base) {
    fm_store *store;
    fm_status status = fm_store_open(fc->test.cache, &store, &fc->test.error);
    if (status == FM_ERR_NOT_FOUND && !with_base) return;
    if (!status) fm_store_close(store);
    assert_int_equal(verify(&fc->test, fc->test.cache), FM_OK);
    if (with_base && is_content(fc, &fc->few)) return;
    assert_true(is_content(fc, &fc->whole));
    fc->n_late++;
}

static void check_rerun(fault_case *fc) {
    cache_case *test = &fc->test;
    fm_build_report report;
    size_t mark = fm_arena_mark(&test->arena);
    assert_int_equal(build_with(test, test->data, test->cache, small_shards, &report), FM_OK);
    fm_arena_rewind(&test->arena, mark);
    assert_true(is_content(fc, &fc->whole));
    assert_int_equal(verify(test, test->cache), FM_OK);
    check_names(test->cache, "generations", "0123456789");
    check_names(test->cache, "shards", "0123456789abcdef");
    check_names(test->cache, "build", "");
}

/* Runs a build whose n-th call fails; false when it has fewer calls. */
static bool fail_at(fault_case *fc, fault_kind kind, int code, unsigned n, bool with_base) {
    cache_case *test = &fc->test;
    fm_build_report report;
    start_over(fc, with_base);
    fault.code = code;
    atomic_store(&fault.at, n);
    atomic_store(&fault.n_call, 0);
    atomic_store(&fault.fired, false);
    size_t mark = fm_arena_mark(&test->arena);
    fault.kind = kind;
    fm_status status = build_with(test, test->data, test->cache, small_shards, &report);
    fault.kind = FAULT_NONE;
    fm_arena_rewind(&test->arena, mark);
    if (!atomic_load(&fault.fired)) {
        assert_int_equal(status, FM_OK);
        return false;
    }
    if (!status) {
        if (atomic_load(&fault.must_fail)) fail_msg("call %u failed and was not seen", n);
        assert_true(is_content(fc, &fc->whole));
        fc->n_harmless++;
    } else {
        if (!strstr(test->error.message, "run the same command again")) {
            fail_msg("call %u: '%s: %s' does not say what to do", n, test->error.source,
                     test->error.message);
        }
        check_names(test->cache, "generations", "0123456789");
        check_names(test->cache, "shards", "0123456789abcdef");
        check_cache(fc, with_base);
        fc->n_failed++;
    }
    check_rerun(fc);
    return true;
}

static void fail_everywhere(fault_kind kind, int code, bool with_base) {
    fault_case fc;
    setup_fault(&fc);
    unsigned n = 1, step = step_of();
    while (fail_at(&fc, kind, code, n, with_base))
        n += step;
    print_message("%u calls of a build fail, one each time: %u errors, %u harmless, %u after the "
                  "new generation was named\n",
                  (n - 1) / step, fc.n_failed, fc.n_harmless, fc.n_late);
    assert_true(n > 40);
    assert_true(fc.n_failed > 40 / step);
    assert_true(fc.n_late <= 2); /* syncing the folder of CURRENT: opening it, and the sync */
    teardown_case(&fc.test);
}

static void test_no_space(void **state) {
    (void)state;
    fail_everywhere(FAULT_ERROR, ENOSPC, true);
}

static void test_broken_disk(void **state) {
    (void)state;
    fail_everywhere(FAULT_ERROR, EIO, false);
}

static void test_short_writes(void **state) {
    (void)state;
    fail_everywhere(FAULT_SHORT, ENOSPC, true);
}

/* Kills the process at the n-th call; false when the build ended before. */
static bool kill_at(fault_case *fc, unsigned n) {
    cache_case *test = &fc->test;
    start_over(fc, true);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        fm_build_report report;
        fm_source source;
        fm_build_options options = small_shards;
        options.cache = test->cache;
        atomic_store(&fault.at, n);
        atomic_store(&fault.n_call, 0);
        fault.kind = FAULT_KILL;
        fm_status status = fm_source_scan(&(fm_source_options){.dataset = test->data}, 1,
                                          &test->arena, &source, &test->error);
        if (!status) status = fm_build_run(&source, &options, &test->arena, &report, &test->error);
        _exit(status ? 9 : 0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status)) {
        assert_int_equal(WEXITSTATUS(status), 0);
        return false;
    }
    assert_int_equal(WTERMSIG(status), SIGKILL);
    check_cache(fc, true);
    check_rerun(fc);
    return true;
}

static void test_killed_at_every_call(void **state) {
    (void)state;
    fault_case fc;
    setup_fault(&fc);
    unsigned n = 1, step = step_of();
    while (kill_at(&fc, n))
        n += step;
    print_message("killed at each of %u calls; %u after the new generation was named\n", n - 1,
                  fc.n_late);
    assert_true(n > 40);
    teardown_case(&fc.test);
}

/* -- power cuts */

/* The order of writing, syncing and naming: a power cut never loses what CURRENT refers to, and
 * after the build there is nothing left to lose. */
static void check_order(bool with_base) {
    fault_case fc;
    fm_build_report report;
    setup_fault(&fc);
    start_over(&fc, with_base);
    memset(&power, 0, sizeof power);
    snprintf(power.root, sizeof power.root, "%s", fc.test.folder);
    power.on = true;
    assert_int_equal(build_with(&fc.test, fc.test.data, fc.test.cache, small_shards, &report),
                     FM_OK);
    power.on = false;
    if (power.breach[0]) fail_msg("%s", power.breach);
    for (int i = 0; i < power.n; i++)
        print_error("%s is never synced\n", power.path[i]);
    assert_int_equal(power.n, 0);
    assert_true(power.n_renamed >= 8); /* two shards, the generation's files, CURRENT */
    teardown_case(&fc.test);
}

static void test_order_of_syncs(void **state) {
    (void)state;
    check_order(true);
    check_order(false);
}

/* -- shards from elsewhere */

static void flip_byte(const char *path, long at) {
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    int byte = fgetc(file);
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    assert_int_equal(fputc(byte ^ 0x10, file), byte ^ 0x10);
    assert_int_equal(fclose(file), 0);
}

/* Puts a shard of another cache into the case's cache, with one byte changed unless at < 0, and
 * builds; the file is watched meanwhile. */
static void build_with_foreign_shard(fault_case *fc, long at, fm_build_report *report) {
    cache_case *test = &fc->test;
    char from[300], name[300];
    start_over(fc, true);
    snprintf(from, sizeof from, "%s/foreign/shards", test->folder);
    DIR *dir = opendir(from);
    assert_non_null(dir);
    struct dirent *entry = readdir(dir);
    while (entry && !strstr(entry->d_name, ".lmdb"))
        entry = readdir(dir);
    assert_non_null(entry);
    snprintf(name, sizeof name, "%.100s", entry->d_name);
    closedir(dir);
    assert_int_equal(run_shell("cp %s/%s %s/shards", from, name, test->cache), 0);
    memset(&watched, 0, sizeof watched);
    snprintf(watched.path, sizeof watched.path, "%s/shards/%.100s", test->cache, name);
    if (at >= 0) flip_byte(watched.path, at);
    size_t mark = fm_arena_mark(&test->arena);
    assert_int_equal(build_with(test, test->data, test->cache, small_shards, report), FM_OK);
    fm_arena_rewind(&test->arena, mark);
    watched.path[0] = '\0';
    assert_memory_equal(&report->content, &fc->whole, sizeof fc->whole);
}

/* A foreign shard is hashed whole, and never reaches LMDB, which trusts its pages. A damaged one is
 * not used, wherever the damage is: meta page, tree, value. */
static void test_foreign_shards_are_hashed_first(void **state) {
    (void)state;
    fault_case fc;
    fm_build_report report;
    char foreign[200];
    static const long places[] = {0, 16, 4096 + 24, 2 * 4096 + 8, 3 * 4096 + 100};
    setup_fault(&fc);
    snprintf(foreign, sizeof foreign, "%s/foreign", fc.test.folder);
    const fm_build_options one_shard = {.n_job = 1};
    assert_int_equal(build_with(&fc.test, fc.test.data, foreign, one_shard, &report), FM_OK);
    build_with_foreign_shard(&fc, -1, &report);
    assert_false(watched.opened);
    assert_true(atomic_load(&watched.n_read) >= 5 * 4096);
    assert_int_equal(report.n_reused, report.n_chain);
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        build_with_foreign_shard(&fc, places[i], &report);
        assert_false(watched.opened);
        assert_true(atomic_load(&watched.n_read) >= 5 * 4096);
        assert_true(report.n_built > 0);
    }
    teardown_case(&fc.test);
}

int main(void) {
    /* In memory if possible: hundreds of builds would wait for the disk. */
    if (access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_of_syncs),
        cmocka_unit_test(test_foreign_shards_are_hashed_first),
        cmocka_unit_test(test_no_space),
        cmocka_unit_test(test_broken_disk),
        cmocka_unit_test(test_short_writes),
        cmocka_unit_test(test_killed_at_every_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
