/* library.c: see library.h.
 *
 * `open` has every snapshot that is open, and `list` those that are offered. An update lists the
 * snapshots to offer (cache and name). For each it takes the open snapshot if that is still of the
 * right generation and file, or else opens it. A generation that cannot be opened is tried only
 * once in an update, even if it has many snapshots. */
#include "server/library.h"

#include "cache/snapshot/pins.h"
#include "cache/store/generation_use.h"
#include "proto/base/directory.h"
#include "proto/base/log.h"
#include "server/source_cache.h"

#include <assert.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NAMES_ARENA_BYTES = 64 << 20, MANIFEST_ARENA_BYTES = 512 << 20 };

/* A generation that is open, shared by its snapshots. */
typedef struct open_store {
    uint32_t cache;
    fm_store *store;
    int held; /* descriptor of fm_generation_hold, or -1 */
    uint32_t n_user;
} open_store;

typedef struct open_snapshot {
    uint32_t cache;
    char name[FM_LIMIT_NAME_BYTES + 1]; /* in its cache */
    fm_path_mark file;                  /* of a snapshot other than "all" */
    open_store *store;
    fm_sample_source *source;
    bool is_offered;
} open_snapshot;

enum { WATCH_CURRENT, WATCH_SNAPSHOTS, WATCH_PINS, N_WATCH };

struct fm_library {
    fm_library_options options;
    fm_library_cache cache[FM_LIBRARY_N_CACHE];
    fm_path_mark watched[FM_LIBRARY_N_CACHE][N_WATCH]; /* when the last update began */
    open_snapshot **open;                              /* [n_open], each on the heap */
    size_t n_open, max_open;
    fm_sample_source **list; /* [n_list] */
    size_t n_list;
};

/* -- names */

fm_library_cache fm_library_cache_parse(const char *text) {
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    fm_library_cache cache = {.path = text};
    size_t n = strspn(text, letters);
    if (n == 0 || n >= sizeof cache.name || text[n] != '=' || text[0] == '.') return cache;
    memcpy(cache.name, text, n);
    cache.path = text + n + 1;
    return cache;
}

/* The cache that "[CACHE/]NAME" names; FM_LIBRARY_N_CACHE = none. *ret_name is the rest. */
static uint32_t cache_of(const fm_library *library, const char *snapshot, const char **ret_name) {
    const char *slash = strchr(snapshot, '/');
    size_t bytes = slash ? (size_t)(slash - snapshot) : 0;
    *ret_name = slash ? slash + 1 : snapshot;
    if (!slash && library->options.n_cache == 1) return 0;
    for (uint32_t c = 0; c < library->options.n_cache; c++) {
        const char *name = library->cache[c].name;
        if (strlen(name) == bytes && memcmp(name, snapshot, bytes) == 0) return c;
    }
    return FM_LIBRARY_N_CACHE;
}

static fm_status check_names(const fm_library *library, fm_error *reterr) {
    const fm_library_options *options = &library->options;
    for (uint32_t c = 0; c < options->n_cache; c++) {
        for (uint32_t other = 0; other < c; other++) {
            const char *name = library->cache[c].name;
            if (strcmp(name, library->cache[other].name) != 0) continue;
            return fm_fail(reterr, FM_ERR_USAGE,
                           name[0] ? "two caches are called '%s'"
                                   : "only one cache can be without a name%s; give others as "
                                     "NAME=DIR",
                           name);
        }
    }
    for (uint32_t i = 0; i < options->n_snapshot; i++) {
        const char *name, *snapshot = options->snapshot[i];
        if (cache_of(library, snapshot, &name) < FM_LIBRARY_N_CACHE) continue;
        return fm_fail(reterr, FM_ERR_USAGE,
                       "no cache is called as in the snapshot '%.200s', expected CACHE/NAME",
                       snapshot);
    }
    return FM_OK;
}

/* A snapshot that shall be offered. */
typedef struct wanted_snapshot {
    uint32_t cache;
    const char *name;
} wanted_snapshot;

typedef struct wanted_list {
    fm_arena arena;
    wanted_snapshot *at; /* [n], on the heap */
    size_t n, max;
} wanted_list;

static fm_status add_wanted(wanted_list *wanted, uint32_t cache, const char *name,
                            fm_error *reterr) {
    if (wanted->n == wanted->max) {
        size_t max = wanted->max * 2 + 16;
        wanted_snapshot *grown = realloc(wanted->at, max * sizeof *grown);
        if (!grown) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a list of snapshots");
        wanted->at = grown;
        wanted->max = max;
    }
    wanted->at[wanted->n++] = (wanted_snapshot){cache, name};
    return FM_OK;
}

/* Adds the snapshots of one cache: the chosen ones, or else all that it has, or else "all". */
static fm_status want_of(const fm_library *library, uint32_t cache, wanted_list *wanted,
                         fm_error *reterr) {
    const fm_library_options *options = &library->options;
    size_t before = wanted->n;
    fm_status status = FM_OK;
    for (uint32_t i = 0; i < options->n_snapshot && !status; i++) {
        const char *name;
        bool is_here = cache_of(library, options->snapshot[i], &name) == cache;
        if (is_here) status = add_wanted(wanted, cache, name, reterr);
    }
    if (status || wanted->n > before) return status;
    if (!options->takes_all) return add_wanted(wanted, cache, "all", reterr);
    uint32_t n = 0;
    const char *const *names = NULL;
    status = fm_snapshot_names(library->cache[cache].path, &wanted->arena, &n, &names, reterr);
    for (uint32_t i = 0; i < n && !status; i++)
        status = add_wanted(wanted, cache, names[i], reterr);
    return status;
}

/* -- files */

/* An entry whose state cannot be read gets a mark that differs from all others, so that an update
 * runs into the error and reports it. */
static fm_path_mark look_at(const char *cache, const char *name) {
    char path[PATH_MAX];
    fm_path_mark mark = {.modified_ns = -1};
    int n = snprintf(path, sizeof path, "%s/%s", cache, name);
    if (n <= 0 || n >= PATH_MAX) return mark;
    return fm_path_mark_read(path, &mark, NULL) ? (fm_path_mark){.modified_ns = -1} : mark;
}

static fm_path_mark look_at_snapshot(const char *cache, const char *name) {
    char path[FM_LIMIT_NAME_BYTES + 16];
    if (strcmp(name, "all") == 0) return (fm_path_mark){0};
    snprintf(path, sizeof path, "snapshots/%s", name);
    return look_at(cache, path);
}

static const char *const watched_names[N_WATCH] = {"CURRENT", "snapshots", "pins"};

static void watch(fm_library *library) {
    for (uint32_t c = 0; c < library->options.n_cache; c++) {
        for (size_t w = 0; w < N_WATCH; w++)
            library->watched[c][w] = look_at(library->cache[c].path, watched_names[w]);
    }
}

bool fm_library_looks_changed(const fm_library *library) {
    for (uint32_t c = 0; c < library->options.n_cache; c++) {
        for (size_t w = 0; w < N_WATCH; w++) {
            fm_path_mark now = look_at(library->cache[c].path, watched_names[w]);
            if (!fm_path_mark_is_same(&now, &library->watched[c][w])) return true;
        }
    }
    return false;
}

/* -- open generations and snapshots */

static void leave_store(open_store *of) {
    if (--of->n_user) return;
    if (of->held >= 0) close(of->held);
    fm_store_close(of->store);
    free(of);
}

/* Finds the open generation `number` of a cache, or opens it, and adds a user. */
static fm_status use_store(fm_library *library, uint32_t cache, uint64_t number,
                           open_store **ret_store, fm_error *reterr) {
    for (size_t i = 0; i < library->n_open; i++) {
        open_store *of = library->open[i]->store;
        if (of->cache != cache || fm_store_get_info(of->store)->generation != number) continue;
        of->n_user++;
        *ret_store = of;
        return FM_OK;
    }
    const char *path = library->cache[cache].path;
    open_store *of = calloc(1, sizeof *of);
    if (!of) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a generation");
    *of = (open_store){.cache = cache, .held = -1, .n_user = 1};
    fm_status status = fm_store_open_generation(path, number, &of->store, reterr);
    if (!status) status = fm_generation_hold(path, number, &of->held, reterr);
    if (status) {
        leave_store(of);
        return status;
    }
    *ret_store = of;
    return FM_OK;
}

static void close_snapshot(open_snapshot *snapshot) {
    fm_cache_source_close(snapshot->source);
    if (snapshot->store) leave_store(snapshot->store);
    free(snapshot);
}

static void shown_name(const fm_library *library, uint32_t cache, const char *name,
                       char out[FM_LIMIT_NAME_BYTES + FM_LIBRARY_CACHE_BYTES + 1]) {
    const char *of = library->cache[cache].name;
    snprintf(out, FM_LIMIT_NAME_BYTES + FM_LIBRARY_CACHE_BYTES + 1, "%s%s%s", of, of[0] ? "/" : "",
             name);
}

static bool make_room(fm_library *library) {
    if (library->n_open < library->max_open) return true;
    size_t max = library->max_open * 2 + 16;
    open_snapshot **grown = realloc(library->open, max * sizeof(open_snapshot *));
    if (!grown) return false;
    library->open = grown;
    library->max_open = max;
    return true;
}

/* Opens a snapshot of generation `number`; it is not offered yet. */
static fm_status open_one(fm_library *library, uint32_t cache, const char *name, uint64_t number,
                          open_snapshot **ret_snapshot, fm_error *reterr) {
    char shown[FM_LIMIT_NAME_BYTES + FM_LIBRARY_CACHE_BYTES + 1];
    open_snapshot *made = make_room(library) ? calloc(1, sizeof *made) : NULL;
    if (!made) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a snapshot");
    made->cache = cache;
    snprintf(made->name, sizeof made->name, "%s", name);
    made->file = look_at_snapshot(library->cache[cache].path, name);
    shown_name(library, cache, name, shown);
    fm_status status = use_store(library, cache, number, &made->store, reterr);
    if (!status) {
        status = fm_cache_source_open(made->store->store, name, shown, &made->source, reterr);
    }
    if (status) {
        close_snapshot(made);
        return status;
    }
    library->open[library->n_open++] = made;
    *ret_snapshot = made;
    return FM_OK;
}

void fm_library_let_go(fm_library *library, fm_sample_source *source) {
    size_t i = 0;
    while (library->open[i]->source != source)
        i++;
    assert(!library->open[i]->is_offered && source->n_user == 0);
    char name[300];
    fm_log(FM_LOG_INFO, "let_go", "snapshot=%s generation=%" PRIu64,
           fm_log_quote(name, sizeof name, source->snapshot_name), source->generation);
    close_snapshot(library->open[i]);
    library->open[i] = library->open[--library->n_open];
}

/* -- updates */

static open_snapshot *find_offered(const fm_library *library, const wanted_snapshot *wanted) {
    for (size_t i = 0; i < library->n_open; i++) {
        open_snapshot *one = library->open[i];
        bool is_it =
            one->is_offered && one->cache == wanted->cache && strcmp(one->name, wanted->name) == 0;
        if (is_it) return one;
    }
    return NULL;
}

/* An update while it runs. */
typedef struct updating {
    fm_library *library;
    wanted_list wanted;
    open_snapshot **next; /* [wanted.n] what is offered from now on */
    size_t n_next;
    fm_library_change change;
    bool is_start;              /* the program reports the first failure and ends */
    fm_error first;             /* the first failure, once n_failed > 0 */
    uint32_t failed_cache;      /* a generation that cannot be opened, */
    uint64_t failed_generation; /* 0 = none so far */
} updating;

static void report_failure(updating *update, const wanted_snapshot *wanted, uint64_t generation,
                           const open_snapshot *kept, const fm_error *error) {
    char shown[FM_LIMIT_NAME_BYTES + FM_LIBRARY_CACHE_BYTES + 1];
    char name[300], text[FM_ERROR_TEXT_BYTES], why[900];
    if (update->change.n_failed++ == 0) update->first = *error;
    if (update->is_start) return;
    shown_name(update->library, wanted->cache, wanted->name, shown);
    fm_error_format(error, text, sizeof text);
    fm_log(FM_LOG_ERROR, "takeover_failed",
           "snapshot=%s generation=%" PRIu64 " kept=%" PRIu64 " why=%s",
           fm_log_quote(name, sizeof name, shown), generation,
           kept ? kept->source->generation : (uint64_t)0, fm_log_quote(why, sizeof why, text));
}

static void report_opened(updating *update, const open_snapshot *opened,
                          const open_snapshot *before) {
    const fm_sample_source *source = opened->source;
    char name[300], hash[FM_SHA256_HEX];
    fm_sha256_format(&source->snapshot, hash);
    fm_log(FM_LOG_INFO, "snapshot",
           "snapshot=%s generation=%" PRIu64 " before=%" PRIu64 " chains=%u snapshot_hash=%s",
           fm_log_quote(name, sizeof name, source->snapshot_name), source->generation,
           before ? before->source->generation : (uint64_t)0, source->n_chain, hash);
    update->change.n_opened++;
}

/* Takes the open snapshot if nothing changed, else opens the one on disk. */
static void update_one(updating *update, const wanted_snapshot *wanted) {
    fm_library *library = update->library;
    const char *path = library->cache[wanted->cache].path;
    open_snapshot *before = find_offered(library, wanted), *now = before;
    uint64_t number = 0;
    fm_error error;
    fm_status status = fm_store_number_for(path, wanted->name, &number, &error);
    fm_path_mark file = look_at_snapshot(path, wanted->name);
    bool is_same = !status && before && before->source->generation == number &&
                   fm_path_mark_is_same(&before->file, &file);
    bool is_known_bad =
        !status && update->failed_generation == number && update->failed_cache == wanted->cache;
    if (is_known_bad) {
        update->change.n_failed++;
    } else if (!status && !is_same) {
        open_store *store;
        status = use_store(library, wanted->cache, number, &store, &error);
        if (status) {
            update->failed_cache = wanted->cache;
            update->failed_generation = number;
        } else {
            status = open_one(library, wanted->cache, wanted->name, number, &now, &error);
            leave_store(store);
            if (!status) report_opened(update, now, before);
        }
    }
    if (status) report_failure(update, wanted, number, before, &error);
    if (now) update->next[update->n_next++] = now;
}

/* Adds the snapshots that a cache offers now. Used when its folder cannot be read. */
static fm_status want_the_same(updating *update, uint32_t cache, fm_error *reterr) {
    const fm_library *library = update->library;
    fm_status status = FM_OK;
    for (size_t i = 0; i < library->n_list && !status; i++) {
        for (size_t k = 0; k < library->n_open; k++) {
            const open_snapshot *one = library->open[k];
            if (one->source != library->list[i] || one->cache != cache) continue;
            status = add_wanted(&update->wanted, cache, one->name, reterr);
        }
    }
    return status;
}

static fm_status want(updating *update, fm_error *reterr) {
    fm_status status = fm_arena_init(&update->wanted.arena, NAMES_ARENA_BYTES, reterr);
    for (uint32_t c = 0; c < update->library->options.n_cache && !status; c++) {
        size_t before = update->wanted.n;
        fm_error error;
        if (!want_of(update->library, c, &update->wanted, &error)) continue;
        update->wanted.n = before;
        report_failure(update, &(wanted_snapshot){c, "all"}, 0, NULL, &error);
        status = want_the_same(update, c, reterr);
    }
    return status;
}

static void offer_next(updating *update, fm_sample_source **list) {
    fm_library *library = update->library;
    for (size_t i = 0; i < library->n_open; i++)
        library->open[i]->is_offered = false;
    for (size_t i = 0; i < update->n_next; i++) {
        open_snapshot *next = update->next[i];
        assert(next);
        next->is_offered = true;
        list[i] = next->source;
    }
    free(library->list);
    library->list = list;
    library->n_list = update->n_next;
}

static void run_update(updating *update) {
    fm_error error;
    watch(update->library);
    fm_status status = want(update, &error);
    size_t n = update->wanted.n + 1;
    update->next = status ? NULL : calloc(n, sizeof(open_snapshot *));
    fm_sample_source **list = status ? NULL : calloc(n, sizeof(fm_sample_source *));
    if (status || !update->next || !list) {
        if (!status) (void)fm_fail(&error, FM_ERR_NOMEM, "no memory for a list of snapshots");
        report_failure(update, &(wanted_snapshot){0, "all"}, 0, NULL, &error);
        free(list);
    } else {
        for (size_t i = 0; i < update->wanted.n; i++)
            update_one(update, &update->wanted.at[i]);
        offer_next(update, list);
    }
    free(update->next);
    free(update->wanted.at);
    fm_arena_fini(&update->wanted.arena);
}

fm_library_change fm_library_update(fm_library *library) {
    updating update = {.library = library};
    run_update(&update);
    return update.change;
}

fm_sample_source *const *fm_library_get_list(const fm_library *library, size_t *ret_n) {
    *ret_n = library->n_list;
    return library->list;
}

/* -- older generations */

static bool is_asked_for(const fm_sample_source *source, const char *name, const fm_sha256 *hash) {
    return (!name[0] || strcmp(source->snapshot_name, name) == 0) &&
           memcmp(&source->snapshot, hash, sizeof *hash) == 0;
}

/* Opens the snapshot "all" with that hash from a generation of one cache. */
static fm_status find_all(fm_library *library, uint32_t cache, const fm_sha256 *hash,
                          open_snapshot **ret_snapshot, fm_error *reterr) {
    fm_arena arena;
    uint64_t number;
    fm_status status = fm_arena_init(&arena, MANIFEST_ARENA_BYTES, reterr);
    if (status) return status;
    status = fm_generation_find_all(library->cache[cache].path, hash, &arena, &number, reterr);
    fm_arena_fini(&arena);
    return status ? status : open_one(library, cache, "all", number, ret_snapshot, reterr);
}

fm_status fm_library_find(fm_library *library, const char *name, const fm_sha256 *hash,
                          fm_sample_source **ret_source, fm_error *reterr) {
    for (size_t i = 0; i < library->n_open; i++) {
        fm_sample_source *source = library->open[i]->source;
        if (!is_asked_for(source, name, hash)) continue;
        *ret_source = source;
        return FM_OK;
    }
    fm_status failed = fm_fail(reterr, FM_ERR_NOT_FOUND, "no generation has this snapshot");
    for (uint32_t c = 0; c < library->options.n_cache; c++) {
        char shown[FM_LIMIT_NAME_BYTES + FM_LIBRARY_CACHE_BYTES + 1];
        open_snapshot *found;
        fm_error error;
        shown_name(library, c, "all", shown);
        if (!find_offered(library, &(wanted_snapshot){c, "all"})) continue;
        if (name[0] && strcmp(name, shown) != 0) continue;
        fm_status status = find_all(library, c, hash, &found, &error);
        if (!status) {
            *ret_source = found->source;
            return FM_OK;
        }
        if (status == FM_ERR_NOT_FOUND || failed != FM_ERR_NOT_FOUND) continue;
        failed = status; /* another cache may have it all the same */
        if (reterr) *reterr = error;
    }
    return failed;
}

/* -- opening and closing */

fm_status fm_library_open(const fm_library_options *options, fm_library **ret_library,
                          fm_error *reterr) {
    if (options->n_cache < 1 || options->n_cache > FM_LIBRARY_N_CACHE) {
        return fm_fail(reterr, FM_ERR_USAGE, "found %u caches, expected 1 to %d", options->n_cache,
                       FM_LIBRARY_N_CACHE);
    }
    fm_library *library = calloc(1, sizeof *library);
    if (!library) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the caches of a server");
    library->options = *options;
    memcpy(library->cache, options->cache, options->n_cache * sizeof *options->cache);
    fm_status status = check_names(library, reterr);
    updating update = {.library = library, .is_start = true};
    if (!status) run_update(&update);
    if (update.change.n_failed) {
        if (reterr) *reterr = update.first;
        status = update.first.status;
    }
    if (status) {
        fm_library_close(library);
        return status;
    }
    *ret_library = library;
    return FM_OK;
}

void fm_library_close(fm_library *library) {
    if (!library) return;
    for (size_t i = 0; i < library->n_open; i++)
        close_snapshot(library->open[i]);
    free(library->open);
    free(library->list);
    free(library);
}
