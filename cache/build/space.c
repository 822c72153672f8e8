/* space.c: see space.h. */
#include "cache/build/space.h"

#include "cache/store/shard.h"
#include "featurizer/complex/complex.h"
#include "featurizer/msa.h"
#include "proto/base/compress.h"
#include "proto/base/directory.h"
#include "proto/base/plural.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>

enum {
    N_SAMPLE = 200,
    CHAIN_BYTES = 10 << 10, /* unused parts of pages, and rows of lists */
};

/* Percent of an input file's bytes that its parts take, measured (store.md) and rounded up. The
 * better the file is compressed, the larger the share. */
typedef struct percents {
    uint8_t of[FM_COMPRESSION_ZSTD + 1];
} percents;

static const percents ALIGNMENT = {{[FM_COMPRESSION_NONE] = 15,
                                    [FM_COMPRESSION_GZIP] = 45,
                                    [FM_COMPRESSION_XZ] = 65,
                                    [FM_COMPRESSION_ZSTD] = 65}};
static const percents STRUCTURE = {{[FM_COMPRESSION_NONE] = 10,
                                    [FM_COMPRESSION_GZIP] = 40,
                                    [FM_COMPRESSION_XZ] = 80,
                                    [FM_COMPRESSION_ZSTD] = 80}};

/* -- the file system */

/* The nearest existing folder at or above `path`. */
static void find_folder(const char *path, char out[PATH_MAX]) {
    fm_path_kind kind;
    snprintf(out, PATH_MAX, "%s", path);
    while (fm_path_look(out, &kind, NULL) || kind != FM_PATH_FOLDER) {
        char *slash = strrchr(out, '/');
        if (!slash) {
            snprintf(out, PATH_MAX, ".");
            return;
        }
        *(slash == out ? slash + 1 : slash) = '\0';
        if (strcmp(out, "/") == 0) return;
    }
}

static fm_status look_at_disk(const char *cache, uint64_t *ret_free, fm_error *reterr) {
    char folder[PATH_MAX];
    struct statvfs info;
    find_folder(cache, folder);
    fm_status status = fm_shard_check_disk(folder, reterr);
    if (status) return status;
    if (statvfs(folder, &info) != 0) {
        status = fm_fail(reterr, FM_ERR_IO, "cannot ask for free space: %s", strerror(errno));
        if (reterr) fm_error_in(reterr, folder);
        return status;
    }
    *ret_free = (uint64_t)info.f_bavail * info.f_frsize;
    return FM_OK;
}

/* -- sizes */

typedef struct sizes {
    uint64_t input, need;
} sizes;

static void add_size(sizes *sum, const char *path, uint64_t bytes, const percents *percent) {
    sum->input += bytes;
    sum->need += bytes / 100 * percent->of[fm_compression_of_name(path, NULL)] + bytes % 100;
}

/* Size of a file; 0 when it cannot be looked at, because its chain will be refused. */
static uint64_t size_of(const char *path) {
    fm_path_kind kind;
    uint64_t bytes;
    return fm_path_size(path, &kind, &bytes, NULL) ? 0 : bytes;
}

/* What the files of a chain are for. */
typedef enum use { OF_CHAIN, OF_COMPLEX_ALONE } use;

static void add_file(sizes *sum, const fm_source_file *file, use of) {
    uint64_t bytes = file->bytes;
    bool counts = of == OF_COMPLEX_ALONE
                      ? fm_entity_rows_of_name(file->name) == FM_ENTITY_ROWS_PAIRED
                      : fm_source_is_search(file->name) || fm_msa_format_of_name(file->name);
    if (!counts) return;
    if (bytes == UINT64_MAX) bytes = size_of(file->path);
    add_size(sum, file->path, bytes, &ALIGNMENT);
}

/* Adds one of n equal shares of a structure's file. */
static void add_structure(sizes *sum, const fm_source_structure *structure, uint32_t n) {
    uint64_t bytes = 0, packed;
    if (structure->archive) {
        fm_archive_sizes(structure->archive, structure->entry, &packed, &bytes);
    } else {
        bytes = size_of(structure->path);
    }
    add_size(sum, structure->path, n ? bytes / n : bytes, &STRUCTURE);
}

/* A chain whose folder cannot be listed will be refused, and needs nothing. */
static void add_files(sizes *sum, const fm_source_chain *chain, use of, fm_arena *arena) {
    size_t mark = fm_arena_mark(arena);
    const fm_source_file *file;
    uint32_t n;
    if (!chain->refusal && !fm_source_files(chain, arena, &n, &file, NULL)) {
        for (uint32_t i = 0; i < n; i++)
            add_file(sum, &file[i], of);
    }
    fm_arena_rewind(arena, mark);
}

/* -- the estimate */

/* A walk over all chains and complexes to build, some of which are measured. */
typedef struct walk {
    const fm_source *source;
    const fm_generation *known;
    const fm_space_options *options;
    fm_arena *arena;
    uint32_t every; /* measure every n-th new item; 0 = only count */
    uint32_t n_chain, n_new_chain, n_complex, n_new_complex, n_measured;
    sizes sum[2]; /* of structures whose complex is not new, and of those whose is */
} walk;

/* Counts a new chain or complex; true when it is one to measure. */
static bool count_new(walk *here, uint32_t *n) {
    bool is_sample = here->every && (here->n_new_chain + here->n_new_complex) % here->every == 0;
    (*n)++;
    here->n_measured += is_sample;
    return is_sample;
}

bool fm_space_is_new_complex(const fm_source *source, const fm_generation *known,
                             const fm_source_structure *structure) {
    char name[FM_SOURCE_COMPLEX_BYTES];
    uint32_t at;
    if (!fm_source_has_complex(source, structure)) return false;
    fm_source_name_complex(source, structure, name);
    return !fm_generation_find_chain(known, name, &at);
}

/* A complex takes what its chains do not: the whole structure, and the rows to pair. */
static void add_complex(walk *here, const fm_source_structure *structure) {
    sizes *sum = &here->sum[true];
    sum->need += CHAIN_BYTES;
    add_structure(sum, structure, 1);
    for (uint32_t i = 0; i < structure->n_chain; i++)
        add_files(sum, &structure->chain[i], OF_COMPLEX_ALONE, here->arena);
}

static void walk_structure(walk *here, const fm_source_structure *structure) {
    const fm_space_options *options = here->options;
    bool is_new =
        options->complexes && fm_space_is_new_complex(here->source, here->known, structure);
    sizes *sum = &here->sum[is_new];
    here->n_complex += options->complexes && fm_source_has_complex(here->source, structure);
    if (is_new && count_new(here, &here->n_new_complex)) add_complex(here, structure);
    for (uint32_t i = 0; i < structure->n_chain; i++) {
        const fm_source_chain *chain = &structure->chain[i];
        uint32_t known;
        here->n_chain++;
        if (fm_generation_find_chain(here->known, chain->name, &known) ||
            !count_new(here, &here->n_new_chain)) {
            continue;
        }
        sum->need += CHAIN_BYTES;
        add_files(sum, chain, OF_CHAIN, here->arena);
        add_structure(sum, structure, structure->n_chain);
    }
    if (structure->n_chain || !options->single_sequence) return;
    here->n_chain++;
    if (!count_new(here, &here->n_new_chain)) return;
    sum->need += CHAIN_BYTES;
    add_structure(sum, structure, 1);
}

static walk walk_all(const fm_source *source, const fm_generation *known,
                     const fm_space_options *options, uint32_t every, fm_arena *arena) {
    walk here = {
        .source = source, .known = known, .options = options, .arena = arena, .every = every};
    for (uint32_t i = 0; i < source->n_structure; i++)
        walk_structure(&here, &source->structure[i]);
    return here;
}

uint64_t fm_space_input_of(const fm_source *source, const fm_generation *known,
                           const fm_space_options *options, const fm_source_structure *structure,
                           fm_arena *arena) {
    walk here = {.source = source, .known = known, .options = options, .arena = arena, .every = 1};
    walk_structure(&here, structure);
    return here.sum[false].input + here.sum[true].input;
}

static uint64_t scale(uint64_t bytes, uint32_t n, uint32_t n_measured) {
    return n_measured ? (uint64_t)((double)bytes * n / n_measured) : 0;
}

fm_status fm_space_estimate(const fm_source *source, const fm_space_options *options,
                            fm_arena *arena, fm_space *ret_space, fm_error *reterr) {
    fm_space space = {0};
    fm_generation known = {0};
    const char *cache = options->cache;
    space.free_bytes = UINT64_MAX;
    fm_status status = cache ? look_at_disk(cache, &space.free_bytes, reterr) : FM_OK;
    if (status) return status;
    size_t mark = fm_arena_mark(arena);
    /* The build reports a cache that cannot be read. */
    if (cache && fm_generation_read(cache, FM_GENERATION_SERVE, arena, &known, NULL)) {
        known = (fm_generation){0};
    }
    walk counted = walk_all(source, &known, options, 0, arena);
    uint32_t n_new = counted.n_new_chain + counted.n_new_complex, every = n_new / N_SAMPLE;
    walk measured = walk_all(source, &known, options, every ? every : 1, arena);
    const sizes *other = &measured.sum[false], *of_complex = &measured.sum[true];
    space.n_chain = counted.n_chain;
    space.n_new = counted.n_new_chain;
    space.n_complex = counted.n_complex;
    space.n_new_complex = counted.n_new_complex;
    space.complex_input_bytes = scale(of_complex->input, n_new, measured.n_measured);
    space.complex_need_bytes = scale(of_complex->need, n_new, measured.n_measured);
    space.input_bytes = space.complex_input_bytes + scale(other->input, n_new, measured.n_measured);
    space.need_bytes = space.complex_need_bytes + scale(other->need, n_new, measured.n_measured);
    fm_arena_rewind(arena, mark);
    *ret_space = space;
    return FM_OK;
}

/* "12 chains", "3 chains and 2 complexes". */
static void name_new(const fm_space *space, char *out, size_t size) {
    int n = 0;
    out[0] = '\0';
    if (space->n_new || !space->n_new_complex) {
        n = snprintf(out, size, "%u chain%s%s", space->n_new, fm_plural(space->n_new),
                     space->n_new_complex ? " and " : "");
    }
    if (space->n_new_complex) {
        snprintf(out + n, size - (size_t)n, "%u complex%s", space->n_new_complex,
                 space->n_new_complex == 1 ? "" : "es");
    }
}

fm_status fm_space_check(const fm_space *space, const char *cache, fm_error *reterr) {
    if (space->need_bytes <= space->free_bytes) return FM_OK;
    bool small = space->need_bytes < 1000000000;
    double unit = small ? 1e6 : 1e9;
    const char *name = small ? "MB" : "GB";
    char what[64];
    name_new(space, what, sizeof what);
    fm_status status = fm_fail(
        reterr, FM_ERR_LIMIT,
        "building %s needs about %.1f %s here, and %.1f %s are free; make room, or "
        "give --no-space-check to try",
        what, (double)space->need_bytes / unit, name, (double)space->free_bytes / unit, name);
    return reterr ? fm_error_in(reterr, cache) : status;
}
