/* cmd_components.c: foldmill components: reads a dictionary of chemical components. */
#include "cache/build/build.h"
#include "featurizer/complex/components_code.h"
#include "proto/base/file.h"
#include "proto/base/json_text.h"
#include "proto/base/plural.h"
#include "server/cli/commands.h"
#include "server/cli/read_input.h"

#include <stdio.h>

/* Address space, not memory: room for the dictionary's text of 400 MB, and what is kept of it. */
#define ARENA_BYTES ((size_t)16 << 30)

static const char description[] =
    "Reads chemical components: the PDB's dictionary (CCD), or a part of it, as mmCIF text with\n"
    "one data block for each component, or a file that this command wrote. Prints how many\n"
    "there are, and the hash of their content, which does not depend on their order. '-' reads\n"
    "standard input. Input that is compressed with gzip, xz or zstd is unpacked first.\n\n"
    "-o writes a file of what features need of the components. Reading it takes a small part of\n"
    "the text's time. It can be given wherever components are read. --cache puts the same into a\n"
    "cache, where foldmill build --complexes finds it.\n\n"
    "--json prints one object: file, components, atoms, bonds, without_ideal, hash.\n\n"
    "Exit codes: 0 read, 1 refused (with FILE:LINE:COLUMN: reason), or not written, 2 bad "
    "usage.\n\n"
    "Example:\n"
    "  foldmill components components.cif.gz -o components.foldcomp";

typedef struct totals {
    uint64_t n_atom, n_bond;
    uint32_t n_without_ideal; /* components with an atom without ideal coordinates */
} totals;

static totals count(const fm_components *components) {
    totals all = {0};
    for (uint32_t i = 0; i < components->n; i++) {
        const fm_component *component = &components->items[i];
        bool has_ideal = true;
        for (uint32_t k = 0; k < component->n_atom; k++)
            has_ideal = has_ideal && component->atoms[k].has_ideal;
        all.n_atom += component->n_atom;
        all.n_bond += component->n_bond;
        all.n_without_ideal += !has_ideal;
    }
    return all;
}

static void print_summary(const char *path, const fm_components *components, bool json) {
    totals all = count(components);
    char hex[FM_SHA256_HEX];
    fm_sha256_format(&components->hash, hex);
    if (json) {
        fm_json_writer writer;
        fm_json_begin(&writer, stdout);
        fm_json_put_string(&writer, "file", path);
        fm_json_put_u64(&writer, "components", components->n);
        fm_json_put_u64(&writer, "atoms", all.n_atom);
        fm_json_put_u64(&writer, "bonds", all.n_bond);
        fm_json_put_u64(&writer, "without_ideal", all.n_without_ideal);
        fm_json_put_hash(&writer, "hash", &components->hash);
        fm_json_end(&writer);
        return;
    }
    printf("%s: %u component%s\n", path, components->n, fm_plural(components->n));
    printf("  heavy atoms  %llu, with %llu bonds\n", (unsigned long long)all.n_atom,
           (unsigned long long)all.n_bond);
    printf("  without all ideal coordinates  %u\n", all.n_without_ideal);
    printf("  hash         %s\n", hex);
}

/* Refuses an output that is there, or with --replace one that is no file of components: a mistyped
 * name may be that of anything. */
static fm_status check_output(const char *path, bool replace, fm_arena *arena, fm_error *reterr) {
    bool is_old = false;
    fm_bytes old = {0};
    size_t mark = fm_arena_mark(arena);
    fm_status status = fm_file_find_old(path, replace, &is_old, reterr);
    if (status || !is_old) return status;
    status = fm_file_read(arena, path, ARENA_BYTES, &old, reterr);
    bool has_components = !status && fm_components_is_packed(old);
    fm_arena_rewind(arena, mark);
    if (status || has_components) return status;
    return fm_fail_in(reterr, FM_ERR_USAGE, path,
                      "--out: found a file that is not of components, expected one or none; choose "
                      "another name");
}

static fm_status write_file(const char *path, const fm_components *components, fm_arena *arena,
                            fm_error *reterr) {
    fm_bytes file = {0};
    fm_status status = fm_components_pack(components, arena, &file, reterr);
    return status ? status : fm_file_write_atomic(path, file.data, file.size, reterr);
}

static fm_status put_into_cache(const char *cache, const fm_components *components, bool json,
                                fm_arena *arena, fm_error *reterr) {
    bool was_there = false;
    fm_status status = fm_build_put_components(cache, components, arena, &was_there, reterr);
    if (status || json) return status;
    printf("  cache        %s%s\n", cache, was_there ? ", which had them" : "");
    return FM_OK;
}

static fm_status run(const char *path, const char *out, const char *cache, bool replace, bool json,
                     fm_arena *arena, fm_error *reterr) {
    fm_bytes input = {0};
    fm_components components = {0};
    fm_status status = out ? check_output(out, replace, arena, reterr) : FM_OK;
    if (!status && out && !fm_cli_is_stdin(path)) status = fm_file_refuse_input(out, path, reterr);
    if (!status) status = fm_cli_read_input(path, arena, &input, reterr);
    if (status) return status;
    const char *name = fm_cli_is_stdin(path) ? "stdin" : path;
    status = fm_components_read(input, arena, &components, reterr);
    if (status) return fm_error_in(reterr, name);
    if (out) status = write_file(out, &components, arena, reterr);
    if (!status) print_summary(name, &components, json);
    return status || !cache ? status : put_into_cache(cache, &components, json, arena, reterr);
}

int fm_cmd_components(int argc, char **argv) {
    const char *out = NULL, *cache = NULL;
    bool replace = false, json = false;
    const fm_option options[] = {
        {.name = "out",
         .letter = 'o',
         .kind = FM_OPTION_STRING,
         .target = &out,
         .value_name = "FILE",
         .help = "write what features need of the components to this file"},
        {.name = "cache",
         .kind = FM_OPTION_STRING,
         .target = &cache,
         .value_name = "DIR",
         .help = "put the components into this cache, for foldmill build --complexes"},
        {.name = "replace",
         .kind = FM_OPTION_FLAG,
         .target = &replace,
         .help = "with -o: replace an earlier file of components"},
        {.name = "json", .kind = FM_OPTION_FLAG, .target = &json, .help = "print one JSON object"},
        {0},
    };
    const fm_command command = {"foldmill components",
                                "FILE [options]",
                                "read a dictionary of chemical components",
                                description,
                                options,
                                1,
                                1};
    int n_positional;
    int code = fm_cli_parse(&command, argc, argv, &n_positional);
    if (code >= 0) return code;
    fm_arena arena;
    fm_error error = {0};
    fm_status status = FM_OK;
    if (replace && !out) status = fm_fail(&error, FM_ERR_USAGE, "--replace is for the file of -o");
    if (!status) status = fm_arena_init(&arena, ARENA_BYTES, &error);
    if (status) return fm_program_report(command.program, &error);
    status = run(argv[0], out, cache, replace, json, &arena, &error);
    fm_arena_fini(&arena);
    return status ? fm_program_report(command.program, &error) : FM_EXIT_OK;
}
