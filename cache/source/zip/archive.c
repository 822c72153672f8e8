/* archive.c: see archive.h. */
#include "cache/source/archive.h"

#include "proto/base/compress.h"
#include "proto/base/directory.h"
#include "proto/limits.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zip.h>

/* Deflate expands one byte to at most 1,032, so an entry that declares more is wrong. */
enum { DEFLATE_RATIO_MAX = 1032 };

struct fm_archive {
    pthread_mutex_t lock; /* guards `zip`: libzip's handles are not thread-safe */
    zip_t *zip;
    uint64_t n_entry;
    char path[];
};

/* -- opening */

static fm_status fail_open(fm_error *reterr, const char *path, int code) {
    zip_error_t error;
    zip_error_init_with_code(&error, code);
    bool is_missing = code == ZIP_ER_NOENT || (code == ZIP_ER_OPEN && errno == ENOENT);
    bool is_ours = code == ZIP_ER_OPEN || code == ZIP_ER_READ || code == ZIP_ER_SEEK;
    fm_status status = fm_fail(reterr,
                               is_missing              ? FM_ERR_NOT_FOUND
                               : code == ZIP_ER_MEMORY ? FM_ERR_NOMEM
                               : is_ours               ? FM_ERR_IO
                                                       : FM_ERR_FORMAT,
                               "cannot open as a zip archive: %s", zip_error_strerror(&error));
    zip_error_fini(&error);
    if (reterr) fm_error_in(reterr, path);
    return status;
}

fm_status fm_archive_open(const char *path, fm_archive **ret_archive, fm_error *reterr) {
    int code = 0;
    fm_path_kind kind;
    fm_status status = fm_path_look(path, &kind, reterr);
    if (status) return status;
    if (kind == FM_PATH_OTHER) {
        return fm_fail_in(reterr, FM_ERR_IO, path, "%s", fm_path_refusal(kind, 0));
    }
    zip_t *zip = zip_open(path, ZIP_RDONLY, &code);
    if (!zip) return fail_open(reterr, path, code);
    zip_int64_t n = zip_get_num_entries(zip, 0);
    fm_archive *archive = calloc(1, sizeof *archive + strlen(path) + 1);
    status = FM_OK;
    if (!archive) {
        status = fm_fail(reterr, FM_ERR_NOMEM, "no memory for an archive");
    } else if (n < 0 || (uint64_t)n > FM_LIMIT_N_CHAIN) {
        status =
            fm_fail(reterr, FM_ERR_LIMIT, "the archive has more than %u entries", FM_LIMIT_N_CHAIN);
    }
    if (status) {
        zip_discard(zip);
        free(archive);
        if (reterr) fm_error_in(reterr, path);
        return status;
    }
    archive->zip = zip;
    archive->n_entry = (uint64_t)n;
    memcpy(archive->path, path, strlen(path) + 1);
    pthread_mutex_init(&archive->lock, NULL);
    *ret_archive = archive;
    return FM_OK;
}

void fm_archive_close(fm_archive *archive) {
    if (!archive) return;
    zip_discard(archive->zip);
    pthread_mutex_destroy(&archive->lock);
    free(archive);
}

/* -- the directory */

uint64_t fm_archive_n_entry(const fm_archive *archive) {
    return archive->n_entry;
}

const char *fm_archive_name(fm_archive *archive, uint64_t entry) {
    pthread_mutex_lock(&archive->lock);
    const char *name = zip_get_name(archive->zip, entry, ZIP_FL_ENC_RAW);
    pthread_mutex_unlock(&archive->lock);
    size_t length = name ? strlen(name) : 0;
    return length && name[length - 1] != '/' ? name : NULL;
}

bool fm_archive_is_good_name(const char *name) {
    if (name[0] == '/' || strchr(name, '\\')) return false;
    for (const char *c = name; *c; c++) {
        if ((uint8_t)*c < 0x20 || *c == 0x7f) return false;
    }
    for (const char *part = name; part; part = strchr(part, '/')) {
        part += *part == '/';
        if (strncmp(part, "..", 2) == 0 && (part[2] == '/' || !part[2])) return false;
    }
    return true;
}

void fm_archive_sizes(fm_archive *archive, uint64_t entry, uint64_t *ret_stored_bytes,
                      uint64_t *ret_bytes) {
    zip_stat_t info;
    pthread_mutex_lock(&archive->lock);
    bool good = zip_stat_index(archive->zip, entry, 0, &info) == 0;
    pthread_mutex_unlock(&archive->lock);
    *ret_stored_bytes = good && (info.valid & ZIP_STAT_COMP_SIZE) ? info.comp_size : 0;
    *ret_bytes = good && (info.valid & ZIP_STAT_SIZE) ? info.size : 0;
}

/* -- reading */

static fm_status check_entry(const zip_stat_t *info, size_t max_bytes, fm_error *reterr) {
    const zip_uint64_t needed = ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_CRC |
                                ZIP_STAT_COMP_METHOD | ZIP_STAT_ENCRYPTION_METHOD;
    if ((info->valid & needed) != needed) {
        return fm_fail(reterr, FM_ERR_FORMAT, "the archive does not say how the entry is stored");
    }
    if (info->encryption_method != ZIP_EM_NONE) {
        return fm_fail(reterr, FM_ERR_UNSUPPORTED, "the entry is encrypted");
    }
    if (info->comp_method != ZIP_CM_STORE && info->comp_method != ZIP_CM_DEFLATE) {
        return fm_fail(reterr, FM_ERR_UNSUPPORTED,
                       "the entry is compressed by method %u; stored (0) and deflate (8) are read",
                       info->comp_method);
    }
    if (info->size > max_bytes || info->comp_size > max_bytes) {
        return fm_fail(reterr, FM_ERR_LIMIT, "the entry declares %llu bytes, at most %zu are read",
                       (unsigned long long)(info->size > max_bytes ? info->size : info->comp_size),
                       max_bytes);
    }
    bool is_stored = info->comp_method == ZIP_CM_STORE;
    if (is_stored ? info->size != info->comp_size
                  : info->size / DEFLATE_RATIO_MAX > info->comp_size) {
        return fm_fail(reterr, FM_ERR_CORRUPT,
                       "the entry declares %llu bytes, which its %llu bytes cannot give",
                       (unsigned long long)info->size, (unsigned long long)info->comp_size);
    }
    return FM_OK;
}

/* Reads the bytes as they are stored. Lock held. */
static fm_status fetch(fm_archive *archive, uint64_t entry, uint8_t *out, uint64_t size,
                       fm_error *reterr) {
    zip_file_t *file = zip_fopen_index(archive->zip, entry, ZIP_FL_COMPRESSED);
    if (!file) {
        return fm_fail(reterr, FM_ERR_CORRUPT, "cannot read the entry: %s",
                       zip_strerror(archive->zip));
    }
    fm_status status = FM_OK;
    for (uint64_t at = 0; at < size && !status;) {
        zip_int64_t got = zip_fread(file, out + at, size - at);
        if (got <= 0) {
            status = fm_fail(reterr, FM_ERR_CORRUPT, "the entry ends after %llu of %llu bytes",
                             (unsigned long long)at, (unsigned long long)size);
        } else {
            at += (uint64_t)got;
        }
    }
    zip_fclose(file);
    return status;
}

static fm_status stat_and_fetch(fm_archive *archive, uint64_t entry, size_t max_bytes,
                                fm_arena *arena, zip_stat_t *info, uint8_t **ret_content,
                                uint8_t **ret_stored, fm_error *reterr) {
    if (zip_stat_index(archive->zip, entry, 0, info) != 0) {
        return fm_fail(reterr, FM_ERR_CORRUPT, "cannot stat the entry: %s",
                       zip_strerror(archive->zip));
    }
    fm_status status = check_entry(info, max_bytes, reterr);
    if (status) return status;
    /* The content first, so that the packed bytes can be freed from the arena. */
    *ret_content = fm_arena_alloc(arena, (size_t)info->size);
    *ret_stored = info->comp_method == ZIP_CM_STORE
                      ? *ret_content
                      : fm_arena_alloc(arena, (size_t)info->comp_size);
    if (!*ret_content || !*ret_stored) return fm_arena_full(arena, reterr);
    return fetch(archive, entry, *ret_stored, info->comp_size, reterr);
}

static fm_status name_entry(fm_archive *archive, uint64_t entry, fm_error *reterr) {
    char where[FM_ERROR_SOURCE_BYTES];
    const char *name = fm_archive_name(archive, entry);
    if (!reterr) return FM_OK;
    snprintf(where, sizeof where, "%s/%s", archive->path, name ? name : "?");
    return fm_error_in(reterr, where);
}

fm_status fm_archive_read(fm_archive *archive, uint64_t entry, size_t max_bytes, fm_arena *arena,
                          fm_bytes *ret_content, fm_error *reterr) {
    zip_stat_t info;
    uint8_t *content = NULL, *stored = NULL;
    zip_stat_init(&info);
    pthread_mutex_lock(&archive->lock);
    fm_status status =
        stat_and_fetch(archive, entry, max_bytes, arena, &info, &content, &stored, reterr);
    pthread_mutex_unlock(&archive->lock);
    if (!status && stored != content) {
        status = fm_deflate_decompress(content, (size_t)info.size, stored, (size_t)info.comp_size,
                                       reterr);
        fm_arena_trim(arena, stored, 0);
    }
    if (!status && fm_crc32(0, content, (size_t)info.size) != info.crc) {
        status = fm_fail(reterr, FM_ERR_CORRUPT, "the entry's content has not the CRC it declares");
    }
    if (status) {
        (void)name_entry(archive, entry, reterr);
        return status;
    }
    *ret_content = (fm_bytes){content, (size_t)info.size};
    return FM_OK;
}
