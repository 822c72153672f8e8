/* build_plan.c: see build_plan.h. */
#include "server/cli/build_plan.h"

#include "featurizer/msa.h"
#include "server/cli/commands.h"

#include <sys/stat.h>

typedef struct plan_totals {
    uint32_t n_chain, n_refused, n_empty, n_without_hits;
    uint64_t n_file, bytes;
} plan_totals;

static uint64_t bytes_of(const fm_source_file *file) {
    struct stat info;
    if (file->bytes != UINT64_MAX) return file->bytes;
    return stat(file->path, &info) == 0 ? (uint64_t)info.st_size : 0;
}

static void print_files(const fm_source_file *file, uint32_t n, plan_totals *totals) {
    bool has_hits = false, has_alignment = false;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t bytes = bytes_of(&file[i]);
        printf("%s%s %llu", i ? ", " : "", file[i].name, (unsigned long long)bytes);
        has_hits |= fm_source_is_search(file[i].name);
        has_alignment |= fm_msa_format_of_name(file[i].name) != FM_MSA_NONE;
        totals->bytes += bytes;
    }
    if (!has_alignment) printf("%sno alignment: a single sequence", n ? "; " : "");
    totals->n_file += n;
    totals->n_without_hits += !has_hits;
    totals->n_empty += !has_alignment;
}

static void print_chain(const fm_source_structure *structure, const fm_source_chain *chain,
                        fm_arena *arena, plan_totals *totals) {
    size_t mark = fm_arena_mark(arena);
    const fm_source_file *file;
    uint32_t n;
    fm_error error;
    totals->n_chain++;
    printf("chain %s\t%s\t", chain->name, structure->path);
    if (chain->refusal) {
        printf("refused: %s", chain->refusal);
        totals->n_refused++;
    } else if (fm_source_files(chain, arena, &n, &file, &error)) {
        char text[FM_ERROR_SOURCE_BYTES + FM_ERROR_MESSAGE_BYTES + 64];
        fm_error_format(&error, text, sizeof text);
        printf("refused: %s", text);
        totals->n_refused++;
    } else {
        print_files(file, n, totals);
    }
    printf("\n");
    fm_arena_rewind(arena, mark);
}

void fm_build_print_room(FILE *out, const fm_space *space, const char *cache) {
    fprintf(out, "room about %.3f GB for %u of %u chains, of about %.3f GB of files",
            (double)space->need_bytes / 1e9, space->n_new, space->n_chain,
            (double)space->input_bytes / 1e9);
    if (cache) fprintf(out, "; %.3f GB are free in %s", (double)space->free_bytes / 1e9, cache);
    fprintf(out, "\n");
}

void fm_build_print_lists(FILE *out, const fm_source_dataset *dataset) {
    const fm_listing *chains = &dataset->chain_data, *dates = &dataset->dates;
    const fm_obsolete_list *obsolete = &dataset->obsolete;
    if (chains->path) fprintf(out, "chain data %s: %u chains\n", chains->path, chains->n);
    if (dates->path) fprintf(out, "dates %s: %u ids\n", dates->path, dates->n);
    if (obsolete->path) fprintf(out, "obsolete %s: %u ids\n", obsolete->path, obsolete->n);
}

int fm_build_dry_run(const fm_source *source, fm_arena *arena) {
    plan_totals totals = {0};
    for (uint32_t i = 0; i < source->n_dataset; i++) {
        const fm_source_dataset *dataset = &source->dataset[i];
        if (dataset->name[0]) {
            printf("dataset %s: %s\n", dataset->name,
                   dataset->is_predicted ? "predictions" : "experimental structures");
        }
        printf("structures %s: %u\n", dataset->structures_found, dataset->n_structure);
        printf("alignments %s: %u chains\n", dataset->alignments_found, dataset->n_chain);
        fm_build_print_lists(stdout, dataset);
    }
    for (uint32_t i = 0; i < source->n_structure; i++) {
        const fm_source_structure *structure = &source->structure[i];
        for (uint32_t k = 0; k < structure->n_chain; k++)
            print_chain(structure, &structure->chain[k], arena, &totals);
    }
    for (uint32_t i = 0; i < source->n_refusal; i++) {
        printf("problem %s\t%s\n", source->refusal[i].name,
               fm_source_reason_text(source->refusal[i].reason));
    }
    printf("total %u chains, %u of them with the alignments of another; %llu files, %.1f MB\n",
           totals.n_chain, source->n_duplicate, (unsigned long long)totals.n_file,
           (double)totals.bytes / 1e6);
    printf("total %u refused, %u without alignments, %u without a file of template hits; "
           "%u problems\n",
           totals.n_refused, totals.n_empty, totals.n_without_hits, source->n_refusal);
    return totals.n_chain > totals.n_refused ? FM_EXIT_OK : FM_EXIT_FAILED;
}
