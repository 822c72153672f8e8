/* bench_index.c: measures a large alignment index, and the scan of a dataset that has it: time and
 * memory.
 *
 *     bench_index [--chains N] [--rounds N]
 *
 * The index is sharded. It has N (600,000) chains with four files each, three chains per id. It is
 * written for this purpose, beside databases of the right length (without content) and a folder of
 * empty structure files. Every round runs in its own process; the system reports the peak of its
 * resident memory. Times are processor time, because other jobs share the machine. The rows are
 * reading the bytes of the index (the bound), reading and checking it, scanning the whole dataset,
 * and Python's json.load of the same file for comparison. Figures are medians. */
#include "cache/source/source.h"
#include "tests/bench/bench_set.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { N_FILE = 4, N_DB = 10, CHAINS_AN_ID = 3 };
#define ARENA_BYTES ((size_t)24 << 30)

typedef struct bench_state {
    char folder[256], index[300];
    uint32_t n_chain;
    uint64_t index_bytes;
} bench_state;

/* -- the dataset */

static void name_id(uint32_t i, char out[5]) {
    static const char letters[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    for (int k = 3; k >= 0; k--, i /= 36)
        out[k] = letters[i % 36];
    out[4] = '\0';
}

static FILE *open_in(const bench_state *bench, const char *name) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", bench->folder, name);
    FILE *file = fopen(path, "w");
    if (!file) exit(1);
    return file;
}

static void make_structures(const bench_state *bench) {
    char path[400], id[5];
    snprintf(path, sizeof path, "%s/mmcifs", bench->folder);
    if (mkdir(path, 0777) != 0) exit(1);
    int folder = open(path, O_RDONLY | O_DIRECTORY);
    for (uint32_t i = 0; i * CHAINS_AN_ID < bench->n_chain; i++) {
        char name[16];
        name_id(i, id);
        snprintf(name, sizeof name, "%s.cif", id);
        int fd = openat(folder, name, O_WRONLY | O_CREAT, 0666);
        if (fd < 0) exit(1);
        close(fd);
    }
    close(folder);
}

static void make_dataset(bench_state *bench) {
    static const char *const names[N_FILE] = {"bfd_uniclust_hits.a3m", "mgnify_hits.a3m",
                                              "pdb70_hits.hhr", "uniref90_hits.a3m"};
    uint64_t at[N_DB] = {0};
    char id[5], name[64];
    snprintf(name, sizeof name, "mkdir -p %s/alignment_db", bench->folder);
    if (system(name) != 0) exit(1);
    FILE *out = open_in(bench, "alignment_db/alignment_db.index");
    for (uint32_t i = 0; i < bench->n_chain; i++) {
        name_id(i / CHAINS_AN_ID, id);
        fprintf(out, "%s\"%s_%c\": {\"db\": \"alignment_db_%u.db\", \"files\": [", i ? ", " : "{",
                id, 'A' + (int)(i % CHAINS_AN_ID), i % N_DB);
        for (int f = 0; f < N_FILE; f++) {
            uint64_t bytes = 400000 + (uint64_t)i * 2654435761u % 3000000;
            fprintf(out, "%s[\"%s\", %llu, %llu]", f ? ", " : "", names[f],
                    (unsigned long long)at[i % N_DB], (unsigned long long)bytes);
            at[i % N_DB] += bytes;
        }
        fputs("]}", out);
    }
    fputs("}\n", out);
    bench->index_bytes = (uint64_t)ftell(out);
    if (fclose(out) != 0) exit(1);
    for (uint32_t i = 0; i < N_DB; i++) {
        snprintf(name, sizeof name, "alignment_db/alignment_db_%u.db", i);
        FILE *db = open_in(bench, name);
        if (ftruncate(fileno(db), (off_t)at[i]) != 0 || fclose(db) != 0) exit(1);
    }
    make_structures(bench);
}

/* -- measurements */

static void read_bytes(const bench_state *bench) {
    static char block[1 << 16];
    int fd = open(bench->index, O_RDONLY);
    while (read(fd, block, sizeof block) > 0) {
    }
    close(fd);
}

static void read_index(const bench_state *bench) {
    fm_arena arena;
    fm_error error;
    fm_alignment_index index;
    uint64_t bytes[N_DB];
    for (int i = 0; i < N_DB; i++)
        bytes[i] = UINT64_MAX - 1;
    check(fm_arena_init(&arena, ARENA_BYTES, &error), &error);
    int fd = open(bench->index, O_RDONLY);
    check(fm_alignment_index_parse(fm_json_of_file(&fd), bench->index_bytes, "own.db", &arena,
                                   &index, &error),
          &error);
    check(fm_alignment_index_check(&index, bytes, &arena, &error), &error);
    if (index.n_entry != bench->n_chain) exit(1);
}

static void scan(const bench_state *bench) {
    fm_arena arena;
    fm_error error;
    fm_source source;
    check(fm_arena_init(&arena, ARENA_BYTES, &error), &error);
    check(
        fm_source_scan(&(fm_source_options){.dataset = bench->folder}, 1, &arena, &source, &error),
        &error);
    if (source.n_chain != bench->n_chain || source.n_refusal) exit(1);
}

static void load_with_python(const bench_state *bench) {
    execlp("python3", "python3", "-c", "import json, sys\njson.load(open(sys.argv[1]))",
           bench->index, (char *)NULL);
    _exit(1);
}

static double seconds_of(const struct timeval *time) {
    return (double)time->tv_sec + (double)time->tv_usec * 1e-6;
}

static void measure(const bench_state *bench, const char *what,
                    void (*run)(const bench_state *bench), int rounds) {
    double seconds[ROUNDS_MAX], most = 0;
    for (int i = 0; i < rounds; i++) {
        int status;
        struct rusage usage;
        pid_t child = fork();
        if (child == 0) {
            run(bench);
            _exit(0);
        }
        if (wait4(child, &status, 0, &usage) != child || status != 0) {
            printf("%-28s failed\n", what);
            return;
        }
        seconds[i] = seconds_of(&usage.ru_utime) + seconds_of(&usage.ru_stime);
        if ((double)usage.ru_maxrss > most) most = (double)usage.ru_maxrss;
    }
    double middle = median(seconds, rounds);
    printf("%-28s %8.2f s %8.1f MB/s %9.1f MiB at most\n", what, middle,
           (double)bench->index_bytes / 1e6 / middle, most / 1024);
}

int main(int argc, char **argv) {
    bench_state bench = {.n_chain = 600000};
    int rounds = 5;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--chains") == 0) bench.n_chain = (uint32_t)atoi(argv[i + 1]);
        if (strcmp(argv[i], "--rounds") == 0) rounds = atoi(argv[i + 1]);
    }
    if (bench.n_chain < 1 || rounds < 1 || rounds > ROUNDS_MAX) return 2;
    make_memory_folder(bench.folder, sizeof bench.folder);
    snprintf(bench.index, sizeof bench.index, "%s/alignment_db/alignment_db.index", bench.folder);
    make_dataset(&bench);
    print_load();
    printf("%u chains, an index of %.1f MB; %d rounds\n", bench.n_chain,
           (double)bench.index_bytes / 1e6, rounds);
    fflush(stdout);
    measure(&bench, "read its bytes", read_bytes, rounds);
    measure(&bench, "read and check the index", read_index, rounds);
    measure(&bench, "scan the dataset", scan, rounds);
    measure(&bench, "Python's json.load", load_with_python, 1);
    fm_test_remove_tree(bench.folder);
    return 0;
}
