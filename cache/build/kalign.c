/* kalign.c: see kalign.h. Input and output of the program are FASTA files. */
#include "cache/build/kalign.h"

#include "proto/base/file.h"
#include "proto/base/temporary.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

typedef struct folder {
    fm_temporary_folder temporary;
    char input[PATH_MAX + 16], output[PATH_MAX + 16];
} folder;

static fm_status make_folder(folder *f, fm_error *reterr) {
    fm_status status = fm_temporary_folder_make(PATH_MAX - 1, &f->temporary, reterr);
    if (status) return status;
    snprintf(f->input, sizeof f->input, "%s/input.fasta", f->temporary.path);
    snprintf(f->output, sizeof f->output, "%s/output.fasta", f->temporary.path);
    return FM_OK;
}

static void drop_folder(folder *f) {
    unlink(f->input);
    unlink(f->output);
    fm_temporary_folder_end(&f->temporary);
}

static fm_status write_input(const folder *f, fm_bytes hit, fm_bytes chain, fm_arena *arena,
                             fm_error *reterr) {
    size_t room = hit.size + chain.size + 64;
    char *text = fm_arena_alloc(arena, room);
    if (!text) return fm_arena_full(arena, reterr);
    int n = snprintf(text, room, ">sequence 1\n%.*s\n>sequence 2\n%.*s\n", (int)hit.size,
                     (const char *)hit.data, (int)chain.size, (const char *)chain.data);
    assert(n > 0 && (size_t)n < room);
    return fm_file_write_atomic(f->input, text, (size_t)n, reterr);
}

static fm_status run_program(const char *program, folder *f, fm_error *reterr) {
    char i[] = "-i", o[] = "-o", format[] = "-format", fasta[] = "fasta";
    char *name = strdup(program);
    char *const arguments[] = {name, i, f->input, o, f->output, format, fasta, NULL};
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int code, status;
    if (!name) return fm_fail(reterr, FM_ERR_NOMEM, "no memory to run %s", program);
    posix_spawn_file_actions_init(&actions);
    for (int fd = 0; fd < 3; fd++)
        posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", fd ? O_WRONLY : O_RDONLY, 0);
    code = posix_spawnp(&pid, program, &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    free(name);
    if (code) {
        return fm_fail(reterr, code == ENOENT ? FM_ERR_NOT_FOUND : FM_ERR_IO, "cannot run %s: %s",
                       program, strerror(code));
    }
    while ((code = waitpid(pid, &status, 0)) < 0 && errno == EINTR) {
    }
    if (code < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        return fm_fail(reterr, FM_ERR_IO, "%s failed", program);
    }
    return FM_OK;
}

/* Reads the letters of the next FASTA record and joins its lines in place; false at the end. */
static bool next_row(char **at, char *end, const char **ret_row, size_t *ret_size) {
    if (*at == end || **at != '>') return false;
    char *newline = memchr(*at, '\n', (size_t)(end - *at));
    char *from = newline ? newline + 1 : end, *row = from, *to = from;
    for (; from < end && *from != '>'; from++) {
        if (*from != '\n' && *from != '\r') *to++ = *from;
    }
    *at = from;
    *ret_row = row;
    *ret_size = (size_t)(to - row);
    return true;
}

static fm_status read_output(const folder *f, fm_arena *arena, const char **ret_hit_row,
                             const char **ret_chain_row, size_t *ret_n_column, fm_error *reterr) {
    fm_bytes text;
    const char *rows[2];
    size_t sizes[2];
    fm_status status = fm_file_read(arena, f->output, (size_t)1 << 24, &text, reterr);
    if (status) return status;
    char *at = fm_arena_alloc(arena, text.size), *end = at + text.size;
    if (!at) return fm_arena_full(arena, reterr);
    memcpy(at, text.data, text.size);
    bool both = next_row(&at, end, &rows[0], &sizes[0]) && next_row(&at, end, &rows[1], &sizes[1]);
    if (!both || at != end || sizes[0] != sizes[1]) {
        return fm_fail(reterr, FM_ERR_DATA, "kalign did not write an alignment of two rows");
    }
    *ret_hit_row = rows[0];
    *ret_chain_row = rows[1];
    *ret_n_column = sizes[0];
    return FM_OK;
}

fm_status fm_kalign_align(const char *program, fm_bytes hit, fm_bytes chain, fm_arena *arena,
                          const char **ret_hit_row, const char **ret_chain_row,
                          size_t *ret_n_column, fm_error *reterr) {
    folder f;
    if (!program) program = "kalign";
    fm_status status = make_folder(&f, reterr);
    if (status) return status;
    status = write_input(&f, hit, chain, arena, reterr);
    if (!status) status = run_program(program, &f, reterr);
    if (!status) status = read_output(&f, arena, ret_hit_row, ret_chain_row, ret_n_column, reterr);
    drop_folder(&f);
    return status;
}
