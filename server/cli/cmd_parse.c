/* cmd_parse.c: `foldmill parse`: reads one file as the featurizer does. */
#include "proto/base/file.h"
#include "proto/limits.h"
#include "server/cli/commands.h"
#include "server/cli/parse.h"

#include <stdio.h>
#include <string.h>

static const char description[] =
    "Reads one file as the featurizer does, and prints a summary or writes the arrays as .npz\n"
    "with the reference's keys, dtypes and shapes. A .gz file is inflated first.\n\n"
    "kinds:\n"
    "  a3m    A3M or FASTA alignment     seqs u8 [N_seq, N_col], deletion i32 [N_seq, N_col],\n"
    "                                    desc (lines)\n"
    "  sto    Stockholm alignment        the same\n"
    "  msa    one alignment's features   msa, deletion_matrix_int i32 [N_seq, N_res],\n"
    "                                    num_alignments i32 [N_res], msa_species_identifiers\n"
    "  mmcif  structure of --chain ID    all_atom_positions f32 [N_res, 37, 3], all_atom_mask,\n"
    "                                    aatype, residue_index, sequence, resolution, ...\n"
    "         without --chain            chains, structure_method, resolution, release_date,\n"
    "                                    missing_<chain> i32\n"
    "  pdb    predicted structure        the same as mmcif with --chain; B factors are confidence\n"
    "                                    (pLDDT), and residues of 50 or less have mask 0\n"
    "  hhr        template hits of HHsearch     index, name, aligned_cols, sum_probs, col_off,\n"
    "                                    query, hit, indices_query, indices_hit, ...\n"
    "  hmmsearch  of hmmsearch's alignment      the same; needs --query LETTERS for -o\n\n"
    "--compat openfold reads as OpenFold's data pipeline does, bit for bit, and refuses what that\n"
    "fails on; the default reads what is lawful.\n\n"
    "examples:\n"
    "  foldmill parse msa uniref90_hits.sto\n"
    "  foldmill parse mmcif 1crn.cif --chain A -o 1crn_A.npz\n"
    "  foldmill parse a3m bfd_uniclust_hits.a3m.gz --compat openfold -o bfd.npz\n\n"
    "exit codes: 0 read, 1 refused (with FILE:LINE:COLUMN: reason), 2 bad usage";

typedef struct parse_kind {
    const char *name;
    fm_parse_kind_fn *run;
    bool takes_chain, takes_query, takes_predicted;
} parse_kind;

static const parse_kind kinds[] = {
    {"a3m", fm_parse_kind_a3m, false, false, false},
    {"sto", fm_parse_kind_sto, false, false, false},
    {"msa", fm_parse_kind_msa, false, false, false},
    {"mmcif", fm_parse_kind_mmcif, true, false, true},
    {"pdb", fm_parse_kind_pdb, true, false, false},
    {"hhr", fm_parse_kind_hhr, false, false, false},
    {"hmmsearch", fm_parse_kind_hmmsearch, false, true, false},
};

/* Address space, not memory: the largest input, its arrays, and the reference's wider ones. */
#define PARSE_ARENA_BYTES ((size_t)32 << 30)

static fm_status find_kind(const char *name, const fm_parse_request *request,
                           const parse_kind **ret_kind, fm_error *reterr) {
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strcmp(kinds[i].name, name) != 0) continue;
        if (request->chain && !kinds[i].takes_chain) {
            return fm_fail(reterr, FM_ERR_USAGE, "kind '%s' takes no --chain", name);
        }
        if (request->query && !kinds[i].takes_query) {
            return fm_fail(reterr, FM_ERR_USAGE, "kind '%s' takes no --query", name);
        }
        if (request->is_predicted && !kinds[i].takes_predicted) {
            return fm_fail(reterr, FM_ERR_USAGE, "kind '%s' takes no --predicted", name);
        }
        *ret_kind = &kinds[i];
        return FM_OK;
    }
    return fm_fail(reterr, FM_ERR_USAGE,
                   "unknown kind '%s'; expected a3m, sto, msa, mmcif, pdb, hhr or hmmsearch", name);
}

static fm_status run_kind(const parse_kind *kind, fm_parse_request *request, fm_error *reterr) {
    fm_status status = fm_file_read_text(request->arena, request->path, FM_LIMIT_INPUT_BYTES,
                                         &request->text, reterr);
    if (!status) status = kind->run(request, reterr);
    return status ? fm_error_in(reterr, request->path) : FM_OK;
}

fm_status fm_parse_write_strings(fm_npz_writer *writer, const char *key, fm_arena *arena,
                                 size_t count, fm_bytes (*string)(const void *context, size_t i),
                                 const void *context, fm_error *reterr) {
    size_t size = 0, at = 0;
    for (size_t i = 0; i < count; i++)
        size += string(context, i).size + (i > 0);
    uint8_t *joined = fm_arena_alloc(arena, size);
    if (!joined) return fm_arena_full(arena, reterr);
    for (size_t i = 0; i < count; i++) {
        fm_bytes next = string(context, i);
        if (i > 0) joined[at++] = '\n';
        if (next.size) memcpy(joined + at, next.data, next.size);
        at += next.size;
    }
    return fm_npz_writer_append(writer, key, "|u1", 1, (uint64_t[]){size}, joined, reterr);
}

int fm_cmd_parse(int argc, char **argv) {
    const char *compat = NULL;
    fm_parse_request request = {0};
    const fm_option options[] = {
        {.name = "chain",
         .kind = FM_OPTION_STRING,
         .target = &request.chain,
         .value_name = "ID",
         .help = "the chain of a structure (mmcif, pdb)"},
        {.name = "query",
         .kind = FM_OPTION_STRING,
         .target = &request.query,
         .value_name = "LETTERS",
         .help = "the chain's sequence (hmmsearch only)"},
        {.name = "predicted",
         .kind = FM_OPTION_FLAG,
         .target = &request.is_predicted,
         .help = "B factors are confidence, as in the AlphaFold database (mmcif only)"},
        {.name = "compat",
         .kind = FM_OPTION_STRING,
         .target = &compat,
         .value_name = "openfold",
         .help = "read exactly as OpenFold does"},
        {.name = "out",
         .letter = 'o',
         .kind = FM_OPTION_STRING,
         .target = &request.out,
         .value_name = "OUT.npz",
         .help = "write the arrays there instead of a summary"},
        {0},
    };
    const fm_command command = {"foldmill parse",
                                "KIND FILE [options]",
                                "read one input file and show or export what is in it",
                                description,
                                options,
                                2,
                                2};
    int n_positional;
    int code = fm_cli_parse(&command, argc, argv, &n_positional);
    if (code >= 0) return code;
    fm_arena arena;
    fm_error error = {0};
    const parse_kind *kind = NULL;
    request.path = argv[1];
    request.arena = &arena;
    request.compat_openfold = compat != NULL;
    fm_status status = FM_OK;
    if (compat && strcmp(compat, "openfold") != 0) {
        status = fm_fail(&error, FM_ERR_USAGE, "unknown --compat '%s'; expected openfold", compat);
    }
    if (!status) status = find_kind(argv[0], &request, &kind, &error);
    if (!status) status = fm_arena_init(&arena, PARSE_ARENA_BYTES, &error);
    if (status) return fm_cli_report("foldmill parse", &error);
    status = run_kind(kind, &request, &error);
    fm_arena_fini(&arena);
    return status ? fm_cli_report("foldmill parse", &error) : FM_EXIT_OK;
}
