/* cmd_parse.c: foldmill parse: reads one file as the featurizer does, and shows or exports it. */
#include "proto/base/file.h"
#include "server/cli/commands.h"
#include "server/cli/parse.h"
#include "server/cli/read_input.h"

#include <stdio.h>
#include <string.h>

static const char description[] =
    "Reads one file as the featurizer does. Prints a summary, or writes the arrays as .npz with\n"
    "the reference's keys, dtypes and shapes. '-' reads standard input. Input that is compressed\n"
    "with gzip, xz or zstd is unpacked first.\n\n"
    "Kinds:\n"
    "  a3m        an A3M or FASTA alignment: seqs u8 [N_seq, N_col], deletion i32 "
    "[N_seq, N_col], desc (lines)\n"
    "  sto        a Stockholm alignment: the same arrays\n"
    "  msa        the features of one alignment, A3M or Stockholm: msa, "
    "deletion_matrix_int i32 [N_seq, N_res], num_alignments i32 [N_res], "
    "msa_species_identifiers\n"
    "  mmcif      a structure. With --chain ID: all_atom_positions f32 [N_res, 37, 3], "
    "all_atom_mask, aatype, residue_index, sequence, resolution, ... Without: chains, "
    "structure_method, resolution, release_date, missing_<chain> i32\n"
    "  pdb        a predicted structure: as mmcif with --chain. B factors are confidence "
    "(pLDDT), and residues of 50 or less have mask 0\n"
    "  complex    a structure's first biological assembly, as AlphaFold 3 needs it. Needs "
    "--components FILE, the dictionary of components (CCD) as mmCIF or packed. Arrays: "
    "assembly/chain/id, assembly/atom/coord, assembly/bond/atoms_type, features/restype, "
    "features/ref_pos, ... With --crops FILE.tsv, crops that were recorded (rows of id, crop, "
    "method, size, complete, ref_asym_id, n_tokens, draws): crop0/tokens, crop0/full_atoms, "
    "crop0/features/restype, ...\n"
    "  job        a description of a complex to predict: AlphaFold 3, AlphaFold Server or Protenix "
    "JSON, Boltz YAML, FASTA (docs/reference/jobs.md). Needs --components FILE. Arrays: a sample "
    "(features/restype, features/ref_pos, ...), names/atom_name, ..., job/atoms and job/bonds as "
    "tables\n"
    "  hhr        template hits of HHsearch: index, name, aligned_cols, sum_probs, col_off, "
    "query, hit, indices_query, indices_hit, ...\n"
    "  hmmsearch  template hits of hmmsearch: the same arrays; -o needs --query LETTERS\n\n"
    "--compat openfold reads as OpenFold's data pipeline does, bit for bit, and refuses what\n"
    "makes that pipeline fail. --compat protenix does the same for complex and job. The default\n"
    "accepts everything that the format allows.\n\n"
    "--json prints the summary as one object with file and format. a3m, sto: rows, columns,\n"
    "alignments, gaps, deletions {letters, columns, max}. msa: rows, distinct_rows, residues,\n"
    "alignments_left_out, gaps, deletions, rows_with_species. mmcif: atoms, method,\n"
    "release_date, resolution, chains\n"
    "[{chain, label, residues, missing, atoms, confidence, refused, sequence}]. pdb: atoms,\n"
    "chains [{chain, residues, atoms, confidence, confident, sequence}]. hhr, hmmsearch: hits\n"
    "[{index, name, columns, sum_probs}].\n\n"
    "Exit codes: 0 read, 1 refused (with FILE:LINE:COLUMN: reason), or not written, 2 bad "
    "usage.\n\n"
    "Examples:\n"
    "  foldmill parse msa uniref90_hits.sto\n"
    "  foldmill parse mmcif 1crn.cif --chain A -o 1crn_A.npz\n"
    "  foldmill parse complex 6s6v.cif --components components.cif -o 6s6v.npz\n"
    "  zcat bfd.a3m.gz | foldmill parse a3m - --compat openfold -o bfd.npz";

typedef struct parse_kind {
    const char *name;
    fm_parse_kind_fn *run;
    bool takes_chain, takes_query, takes_predicted, takes_components, takes_crops, takes_job;
} parse_kind;

static const parse_kind kinds[] = {
    {.name = "a3m", .run = fm_parse_kind_a3m},
    {.name = "sto", .run = fm_parse_kind_sto},
    {.name = "msa", .run = fm_parse_kind_msa},
    {.name = "mmcif", .run = fm_parse_kind_mmcif, .takes_chain = true, .takes_predicted = true},
    {.name = "pdb", .run = fm_parse_kind_pdb, .takes_chain = true},
    {.name = "complex",
     .run = fm_parse_kind_complex,
     .takes_components = true,
     .takes_crops = true},
    {.name = "job", .run = fm_parse_kind_job, .takes_components = true, .takes_job = true},
    {.name = "hhr", .run = fm_parse_kind_hhr},
    {.name = "hmmsearch", .run = fm_parse_kind_hmmsearch, .takes_query = true},
};

/* Address space, not memory: room for the largest input, its arrays, and the reference's wider
 * ones. */
#define PARSE_ARENA_BYTES ((size_t)32 << 30)

enum { N_KIND = sizeof kinds / sizeof kinds[0] };

/* `file`: the second argument, which is a kind where both were exchanged. */
static fm_status fail_unknown(const char *name, const char *file, fm_error *reterr) {
    const char *names[N_KIND];
    for (size_t i = 0; i < N_KIND; i++) {
        names[i] = kinds[i].name;
        if (strcmp(file, names[i]) != 0) continue;
        return fm_fail(reterr, FM_ERR_USAGE, "the kind comes first: foldmill parse %s %.200s", file,
                       name);
    }
    const char *nearest = fm_options_nearest(name, names, N_KIND);
    if (nearest) {
        return fm_fail(reterr, FM_ERR_USAGE, "unknown kind '%.64s'; did you mean '%s'?", name,
                       nearest);
    }
    return fm_fail(reterr, FM_ERR_USAGE,
                   "unknown kind '%.64s'; expected a3m, sto, msa, mmcif, pdb, complex, job, hhr or "
                   "hmmsearch",
                   name);
}

static fm_status check_job_options(const parse_kind *kind, const fm_parse_request *request,
                                   fm_error *reterr) {
    const char *option = request->job                  ? "job"
                         : request->format             ? "format"
                         : request->draws              ? "draws"
                         : request->is_single_sequence ? "single-sequence"
                                                       : NULL;
    if (!option || kind->takes_job) return FM_OK;
    return fm_fail(reterr, FM_ERR_USAGE, "kind '%s' takes no --%s", kind->name, option);
}

static fm_status find_kind(const char *name, const char *file, const fm_parse_request *request,
                           const parse_kind **ret_kind, fm_error *reterr) {
    for (size_t i = 0; i < N_KIND; i++) {
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
        if ((request->components != NULL) != kinds[i].takes_components) {
            return fm_fail(reterr, FM_ERR_USAGE, "kind '%s' %s --components", name,
                           kinds[i].takes_components ? "needs" : "takes no");
        }
        if (request->crops && !kinds[i].takes_crops) {
            return fm_fail(reterr, FM_ERR_USAGE, "kind '%s' takes no --crops", name);
        }
        if (kinds[i].takes_components ? request->compat_openfold : request->compat_protenix) {
            return fm_fail(reterr, FM_ERR_USAGE, "kind '%s' takes --compat %s", name,
                           kinds[i].takes_components ? "protenix" : "openfold");
        }
        *ret_kind = &kinds[i];
        return check_job_options(&kinds[i], request, reterr);
    }
    return fail_unknown(name, file, reterr);
}

static fm_status run_kind(const parse_kind *kind, fm_parse_request *request, fm_error *reterr) {
    fm_status status = fm_cli_read_input(request->path, request->arena, &request->text, reterr);
    if (fm_cli_is_stdin(request->path)) request->path = "stdin";
    if (!status) status = kind->run(request, reterr);
    return status ? fm_error_in(reterr, request->path) : FM_OK;
}

fm_status fm_parse_write_strings(fm_array_writer *writer, const char *key, fm_arena *arena,
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
    return fm_array_writer_append(writer, key, "|u1", 1, (uint64_t[]){size}, joined, reterr);
}

void fm_parse_begin_json(const fm_parse_request *request, const char *format,
                         fm_json_writer *json) {
    fm_json_begin(json, stdout);
    fm_json_put_string(json, "file", request->path);
    fm_json_put_string(json, "format", format);
}

static fm_status check_options(fm_parse_request *request, bool replace, fm_error *reterr) {
    const char *compat = request->compat;
    request->compat_openfold = compat && strcmp(compat, "openfold") == 0;
    request->compat_protenix = compat && strcmp(compat, "protenix") == 0;
    if (compat && !request->compat_openfold && !request->compat_protenix) {
        return fm_fail(reterr, FM_ERR_USAGE, "--compat: found '%s', expected openfold or protenix",
                       compat);
    }
    if (request->json && request->out) {
        return fm_fail(reterr, FM_ERR_USAGE, "--json prints the summary, which -o replaces");
    }
    if (request->crops && !request->out) {
        return fm_fail(reterr, FM_ERR_USAGE, "--crops adds arrays to the file of -o");
    }
    if (replace && !request->out) {
        return fm_fail(reterr, FM_ERR_USAGE, "--replace is for the file of -o");
    }
    return FM_OK;
}

static fm_status run(const char *kind_name, fm_parse_request *request, bool replace,
                     fm_error *reterr) {
    const parse_kind *kind = NULL;
    fm_status status = check_options(request, replace, reterr);
    if (!status) status = find_kind(kind_name, request->path, request, &kind, reterr);
    if (!status && request->out && !fm_cli_is_stdin(request->path)) {
        status = fm_file_refuse_input(request->out, request->path, reterr);
    }
    if (!status) status = fm_arena_init(request->arena, PARSE_ARENA_BYTES, reterr);
    if (status) return status;
    if (request->out) status = fm_array_output_check(request->out, replace, request->arena, reterr);
    if (!status) status = run_kind(kind, request, reterr);
    fm_arena_fini(request->arena);
    return status;
}

int fm_cmd_parse(int argc, char **argv) {
    bool replace = false;
    fm_arena arena;
    fm_parse_request request = {.arena = &arena};
    const fm_option options[] = {
        {"chain", FM_OPTION_STRING, &request.chain, "ID",
         .help = "a chain of the structure (mmcif, pdb)"},
        {"query", FM_OPTION_STRING, &request.query, "LETTERS",
         .help = "the chain's sequence (hmmsearch only)"},
        {"predicted", FM_OPTION_FLAG, &request.is_predicted, NULL,
         .help = "B factors are confidence, as in the AlphaFold database (mmcif only)"},
        {"components", FM_OPTION_STRING, &request.components, "FILE",
         .help = "the chemical components (complex, job)"},
        {"crops", FM_OPTION_STRING, &request.crops, "FILE.tsv",
         .help = "with -o: draw these recorded crops again (complex only)"},
        {"job", FM_OPTION_STRING, &request.job, "NAME",
         .help = "the job, where a file has several (job only)"},
        {"format", FM_OPTION_STRING, &request.format, "NAME",
         .help = "alphafold3, server, protenix, boltz or fasta; else it is found (job only)"},
        {"single-sequence", FM_OPTION_FLAG, &request.is_single_sequence, NULL,
         .help = "chains without an alignment are accepted (job only)"},
        {"draws", FM_OPTION_STRING, &request.draws, "FILE.npz",
         .help = "place conformers as recorded there, for comparisons (job only)"},
        {"compat", FM_OPTION_STRING, &request.compat, "NAME",
         .help = "read exactly as openfold does; complex, job: as protenix does"},
        {"out", FM_OPTION_STRING, &request.out, "OUT.npz",
         .help = "write the arrays to this file instead of a summary", .letter = 'o'},
        {"replace", FM_OPTION_FLAG, &replace, NULL,
         .help = "with -o: replace an earlier file of arrays"},
        {"json", FM_OPTION_FLAG, &request.json, NULL,
         .help = "print the summary as one JSON object"},
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
    fm_error error = {0};
    request.path = argv[1];
    fm_status status = run(argv[0], &request, replace, &error);
    return status ? fm_program_report("foldmill parse", &error) : FM_EXIT_OK;
}
