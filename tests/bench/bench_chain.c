/* bench_chain.c: measures one chain from its files to its feature arrays on one core, with nothing
 * kept before or between.
 *
 *     bench_chain [--compat] [--rounds N]
 *
 * The chains are eight of the reference data, from $FM_REFERENCE_DATA. The structure file, the
 * alignments, the template search and the structures of all its hits are read, parsed and mapped;
 * the four best templates become features. OpenFold stops reading hits after the fourth template,
 * and reads a structure file twice if a chain needs it twice; here it is read once. Figures are
 * medians, with files in the page cache. --compat gives the reference's features, bit for bit;
 * `./run bench baselines --only openfold_features` measures OpenFold's pipeline beside that. */
#include "featurizer/features.h"
#include "featurizer/parse/hhr.h"
#include "featurizer/structure.h"
#include "featurizer/templates.h"
#include "proto/base/file.h"
#include "proto/base/options.h"
#include "proto/base/program.h"
#include "proto/limits.h"
#include "tests/bench/bench_time.h"
#include "tests/testing/testing.h"

#include <stdio.h>
#include <string.h>

enum { N_FILE = 16 };

static const char *const alignments[] = {"bfd_uniclust_hits.a3m", "mgnify_hits.sto",
                                         "uniref90_hits.sto"};

typedef struct parsed_file {
    char id[8];
    fm_status status;
    fm_mmcif mmcif;
    fm_template_entry entry;
} parsed_file;

typedef struct bench_state {
    fm_arena arena, work;
    parsed_file file[N_FILE];
    size_t n_file;
    uint64_t bytes; /* read */
    bool compat;
} bench_state;

static fm_status read_reference(bench_state *bench, const char *relative, fm_bytes *ret_text) {
    char path[1024];
    fm_test_reference_path(path, sizeof path, relative);
    fm_status status = fm_file_read_text(&bench->arena, path, FM_LIMIT_INPUT_BYTES, ret_text, NULL);
    if (!status) bench->bytes += ret_text->size;
    return status;
}

static parsed_file *find_file(bench_state *bench, const char *id) {
    const fm_mmcif_options options = {.compat_openfold = bench->compat};
    char relative[128];
    fm_bytes text;
    for (size_t i = 0; i < bench->n_file; i++) {
        if (strcmp(bench->file[i].id, id) == 0) return &bench->file[i];
    }
    if (bench->n_file == N_FILE) return NULL;
    parsed_file *file = &bench->file[bench->n_file++];
    snprintf(file->id, sizeof file->id, "%s", id);
    snprintf(relative, sizeof relative, "golden/inputs/mmcifs/%s.cif", id);
    file->status = read_reference(bench, relative, &text);
    if (!file->status) {
        file->status = fm_mmcif_parse(text, &options, &bench->arena, &file->mmcif, NULL);
    }
    if (!file->status) {
        file->status = fm_template_entry_of(&file->mmcif, &bench->arena, &file->entry, NULL);
    }
    return file;
}

/* -- templates */

static fm_status give_entry(void *context, const char *id, const fm_template_entry **ret_entry,
                            fm_error *reterr) {
    parsed_file *file = find_file(context, id);
    if (!file) return fm_fail(reterr, FM_ERR_LIMIT, "more structures than expected");
    *ret_entry = &file->entry;
    return file->status;
}

/* Takes the place of the structure part's hash: the file and the chain. */
static fm_status give_structure(void *context, const char *id, uint32_t chain,
                                fm_sha256 *ret_identity, fm_error *reterr) {
    bench_state *bench = context;
    uint32_t number[2] = {(uint32_t)(find_file(bench, id) - bench->file) + 1, chain};
    (void)reterr;
    *ret_identity = (fm_sha256){{0}};
    memcpy(ret_identity->bytes, number, sizeof number);
    return FM_OK;
}

static fm_status load_structure(void *context, const fm_sha256 *identity,
                                const fm_part_structure **ret_structure, fm_error *reterr) {
    static fm_part_structure structure;
    bench_state *bench = context;
    uint32_t number[2];
    fm_part_sequence sequence;
    const fm_mmcif_options options = {.compat_openfold = bench->compat};
    memcpy(number, identity->bytes, sizeof number);
    const fm_mmcif *mmcif = &bench->file[number[0] - 1].mmcif;
    *ret_structure = &structure;
    return fm_structure_from_mmcif(mmcif, &options, mmcif->chains[number[1]].author_id, &sequence,
                                   &structure, reterr);
}

static fm_status make_templates(bench_state *bench, const char *folder,
                                const fm_part_sequence *sequence, uint32_t *ret_n_templ) {
    char relative[256];
    fm_bytes text;
    fm_hits hits;
    fm_part_hits part;
    fm_template_features features;
    fm_array arrays[FM_TEMPLATES_N_ARRAY];
    uint32_t *order, *chosen, n_order;
    fm_arena *arena = &bench->work;
    const fm_template_options options = {.compat_openfold = bench->compat, .max_templates = 4};
    const fm_template_source source = {
        .context = bench, .entry = give_entry, .structure = give_structure};
    snprintf(relative, sizeof relative, "%s/pdb70_hits.hhr", folder);
    fm_status status = read_reference(bench, relative, &text);
    if (!status) status = fm_hhr_parse(text, bench->compat, arena, &hits, NULL);
    if (!status) {
        status = fm_templates_map(sequence, &hits, 1, bench->compat, &source, arena, &part, NULL);
    }
    if (!status) status = fm_templates_rank(&part, &options, arena, &order, &n_order, NULL);
    if (!status) {
        status =
            fm_templates_choose(&part, order, n_order, &options, arena, &chosen, ret_n_templ, NULL);
    }
    if (!status) {
        status = fm_templates_featurize(&part, chosen, *ret_n_templ, false, load_structure, bench,
                                        arena, &features, NULL);
    }
    return status ? status : fm_templates_list_arrays(&features, arena, arrays, NULL);
}

/* -- a chain */

static fm_status make_chain(bench_state *bench, const char *chain, bool with_templates,
                            uint32_t *ret_n_seq, uint32_t *ret_n_templ) {
    const fm_features_options options = {.compat_openfold = bench->compat};
    char id[8] = {0}, folder[128], relative[256];
    fm_part_sequence sequence;
    fm_part_structure structure;
    fm_structure_array arrays[FM_STRUCTURE_N_ARRAY];
    fm_msa_input inputs[3];
    fm_part_msa msa;
    size_t n_array;
    fm_arena_reset(&bench->arena);
    fm_arena_reset(&bench->work);
    bench->n_file = 0;
    bench->bytes = 0;
    memcpy(id, chain, 4);
    snprintf(folder, sizeof folder, "golden/inputs/align/%s", chain);
    parsed_file *file = find_file(bench, id);
    fm_status status = file->status;
    if (!status) {
        status = fm_features_structure(&file->mmcif, chain + 5, &options, &bench->work, &sequence,
                                       &structure, NULL);
    }
    if (!status) {
        status = fm_structure_list_arrays(&sequence, &structure, chain, &bench->work, arrays,
                                          &n_array, NULL);
    }
    for (size_t i = 0; i < 3 && !status; i++) {
        snprintf(relative, sizeof relative, "%s/%s", folder, alignments[i]);
        inputs[i] = (fm_msa_input){.name = alignments[i]};
        status = read_reference(bench, relative, &inputs[i].content);
    }
    if (!status) {
        status = fm_features_msa(&sequence, inputs, 3, &options, &bench->work, &msa, NULL, NULL);
    }
    if (!status && with_templates) status = make_templates(bench, folder, &sequence, ret_n_templ);
    if (!status) *ret_n_seq = msa.n_seq;
    return status;
}

/* Medians of a chain's times in ms. */
typedef struct chain_times {
    double cpu_ms, wall_ms;
} chain_times;

static bool measure(bench_state *bench, const char *chain, bool with_templates, size_t rounds,
                    uint32_t *ret_n_seq, uint32_t *ret_n_templ, chain_times *ret_times) {
    static double cpu_ms[ROUNDS_MAX], wall_ms[ROUNDS_MAX];
    for (size_t i = 0; i < rounds + 2; i++) { /* the first two warm up */
        double cpu = cpu_s(), wall = now_s();
        if (make_chain(bench, chain, with_templates, ret_n_seq, ret_n_templ)) {
            printf("%s: failed\n", chain);
            return false;
        }
        size_t at = i < 2 ? 0 : i - 2;
        cpu_ms[at] = 1e3 * (cpu_s() - cpu);
        wall_ms[at] = 1e3 * (now_s() - wall);
    }
    *ret_times = (chain_times){median(cpu_ms, rounds), median(wall_ms, rounds)};
    return true;
}

static bool bench_chains(bench_state *bench, size_t rounds) {
    static const char *const chains[] = {"1psm_A", "2crb_A", "2q2k_A", "3u8v_A",
                                         "3zee_A", "4i6p_A", "4zey_A", "5kc1_A"};
    enum { N_CHAIN = sizeof chains / sizeof chains[0] };
    chain_times mean[2] = {{0}};
    double sum[3] = {0};
    printf("files to arrays, one core, %s; the last two columns are without templates\n",
           bench->compat ? "--compat" : "default mode");
    printf("%-8s %6s  %9s  %7s  %12s  %8s  %18s  %14s\n", "chain", "rows", "templates", "MB read",
           "processor ms", "wall ms", "processor ms, none", "wall ms, none");
    for (size_t c = 0; c < N_CHAIN; c++) {
        chain_times with, without;
        uint32_t n_seq = 0, n_templ = 0;
        if (!measure(bench, chains[c], true, rounds, &n_seq, &n_templ, &with)) return false;
        double mb = (double)bench->bytes * 1e-6;
        if (!measure(bench, chains[c], false, rounds, &n_seq, &n_templ, &without)) return false;
        printf("%-8s %6u  %9u  %7.2f  %12.3f  %8.3f  %18.3f  %14.3f\n", chains[c], n_seq, n_templ,
               mb, with.cpu_ms, with.wall_ms, without.cpu_ms, without.wall_ms);
        mean[0].cpu_ms += with.cpu_ms / N_CHAIN;
        mean[0].wall_ms += with.wall_ms / N_CHAIN;
        mean[1].cpu_ms += without.cpu_ms / N_CHAIN;
        mean[1].wall_ms += without.wall_ms / N_CHAIN;
        sum[0] += n_seq / (double)N_CHAIN;
        sum[1] += n_templ / (double)N_CHAIN;
        sum[2] += mb / N_CHAIN;
    }
    printf("%-8s %6.0f  %9.2f  %7.2f  %12.3f  %8.3f  %18.3f  %14.3f\n", "mean", sum[0], sum[1],
           sum[2], mean[0].cpu_ms, mean[0].wall_ms, mean[1].cpu_ms, mean[1].wall_ms);
    return true;
}

int main(int argc, char **argv) {
    static bench_state bench;
    uint64_t rounds = 21;
    const fm_option options[] = {
        {"compat", FM_OPTION_FLAG, &bench.compat, NULL, .help = "OpenFold's features, bit for bit"},
        {"rounds", FM_OPTION_U64, &rounds, "N", .help = "rounds of each figure (21)", .min = 1,
         .max = ROUNDS_MAX},
        {0}};
    const fm_command command = {.program = "bench_chain",
                                .arguments = "[options]",
                                .summary = "measure the features of a chain",
                                .options = options};
    int n_positional;
    fm_error error;
    fm_status status = fm_options_parse(&command, argc, argv, &n_positional, &error);
    if (status) return status == FM_ERR_CANCELLED ? 0 : fm_program_report("bench_chain", &error);
    if (!fm_test_reference()) {
        printf("left out: FM_REFERENCE_DATA is not set\n");
        return 0;
    }
    if (fm_arena_init(&bench.arena, (size_t)4 << 30, NULL) ||
        fm_arena_init(&bench.work, (size_t)4 << 30, NULL)) {
        return 1;
    }
    bool is_done = bench_chains(&bench, (size_t)rounds);
    fm_arena_fini(&bench.arena);
    fm_arena_fini(&bench.work);
    return is_done ? 0 : 1;
}
