/* build_plan.c: see build_plan.h. */
#include "server/cli/build_plan.h"

#include "featurizer/msa.h"
#include "proto/base/directory.h"
#include "proto/base/plural.h"
#include "proto/base/program.h"
#include "proto/base/json_text.h"

typedef struct dry_run {
    const fm_build_plan *plan;
    fm_json_writer *json; /* NULL: lines for people */
    uint32_t n_single;    /* structures whose chains become single sequences */
    uint32_t n_chain, n_refused, n_empty, n_without_hits;
    uint32_t n_complex; /* 0: none are built */
    uint64_t n_file, bytes;
} dry_run;

/* -- chains */

/* Size of a file in a folder, or in a database. */
static uint64_t bytes_of(const fm_source_file *file) {
    fm_path_kind kind;
    uint64_t bytes;
    if (file->bytes != UINT64_MAX) return file->bytes;
    return fm_path_size(file->path, &kind, &bytes, NULL) ? 0 : bytes;
}

/* Looks, without opening it, whether a file can be read: the build refuses what cannot. */
static fm_status check_file(const char *path, fm_error *reterr) {
    fm_path_kind kind;
    fm_status status = fm_path_look(path, &kind, reterr);
    if (status || kind == FM_PATH_FILE) return status;
    return fm_fail_in(reterr, FM_ERR_IO, path, "%s", fm_path_refusal(kind, 0));
}

/* Gives the files of a chain; fails when its structure or one that it needs cannot be read. */
static fm_status find_files(const fm_source_structure *structure, const fm_source_chain *chain,
                            fm_arena *arena, uint32_t *ret_n, const fm_source_file **ret_file,
                            fm_error *reterr) {
    fm_status status = structure->archive ? FM_OK : check_file(structure->path, reterr);
    if (!status) status = fm_source_files(chain, arena, ret_n, ret_file, reterr);
    for (uint32_t i = 0; !status && i < *ret_n; i++) {
        const fm_source_file *file = &(*ret_file)[i];
        if (fm_source_is_wanted(file->name)) status = check_file(file->path, reterr);
    }
    return status;
}

static void show_file(dry_run *run, const char *name, uint64_t bytes, bool is_first) {
    if (!run->json) {
        printf("%s%s %llu", is_first ? "" : ", ", name, (unsigned long long)bytes);
        return;
    }
    fm_json_open_object(run->json, NULL);
    fm_json_put_string(run->json, "name", name);
    fm_json_put_u64(run->json, "bytes", bytes);
    fm_json_close(run->json);
}

static bool has_alignment(const fm_source_file *file, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        if (fm_msa_format_of_name(file[i].name) != FM_MSA_NONE) return true;
    return false;
}

static void show_files(dry_run *run, const fm_source_file *file, uint32_t n) {
    bool has_hits = false;
    const bool is_empty = !has_alignment(file, n);
    if (run->json) fm_json_open_array(run->json, "files");
    for (uint32_t i = 0; i < n; i++) {
        uint64_t bytes = bytes_of(&file[i]);
        show_file(run, file[i].name, bytes, i == 0);
        has_hits |= fm_source_is_search(file[i].name);
        run->bytes += bytes;
    }
    if (run->json) {
        fm_json_close(run->json);
    } else if (is_empty) {
        printf("%sno alignment: a single sequence", n ? "; " : "");
    }
    run->n_file += n;
    run->n_without_hits += !has_hits;
    run->n_empty += is_empty;
}

static void show_refused(dry_run *run, const char *reason) {
    run->n_refused++;
    if (run->json) {
        fm_json_put_string(run->json, "refused", reason);
    } else {
        printf("refused: %s", reason);
    }
}

static void begin_chain(dry_run *run, const char *name, const char *structure) {
    run->n_chain++;
    if (!run->json) {
        printf("chain %s\t%s\t", name, structure);
        return;
    }
    fm_json_open_object(run->json, NULL);
    fm_json_put_string(run->json, "chain", name);
    fm_json_put_string(run->json, "structure", structure);
}

static void show_chain(dry_run *run, const fm_source_structure *structure,
                       const fm_source_chain *chain, fm_arena *arena) {
    size_t mark = fm_arena_mark(arena);
    const fm_source_file *file;
    uint32_t n;
    fm_error error;
    begin_chain(run, chain->name, structure->path);
    if (chain->refusal) {
        show_refused(run, chain->refusal);
    } else if (find_files(structure, chain, arena, &n, &file, &error)) {
        char text[FM_ERROR_TEXT_BYTES];
        fm_error_format(&error, text, sizeof text);
        show_refused(run, text);
    } else if (!run->plan->takes_empty && !has_alignment(file, n)) {
        show_refused(run, "found no alignment (.a3m or .sto); --single-sequence builds the chain "
                          "without");
    } else {
        show_files(run, file, n);
    }
    if (run->json) {
        fm_json_close(run->json);
    } else {
        printf("\n");
    }
    fm_arena_rewind(arena, mark);
}

static void show_chains(dry_run *run, const fm_source *source, fm_arena *arena) {
    for (uint32_t i = 0; i < source->n_structure; i++) {
        const fm_source_structure *structure = &source->structure[i];
        for (uint32_t k = 0; k < structure->n_chain; k++)
            show_chain(run, structure, &structure->chain[k], arena);
    }
}

/* Whether the build takes a structure without alignments: for its complex, or for single sequences.
 * It finds the chains of the latter when it reads it. */
static bool is_taken(dry_run *run, const fm_source_refusal *refusal) {
    bool is = (run->plan->single_sequence || run->plan->complexes) &&
              refusal->reason == FM_SOURCE_NO_ALIGNMENTS;
    run->n_single += is && run->plan->single_sequence;
    return is;
}

/* -- lines for people */

static const char *format_bytes(uint64_t bytes, char out[32]) {
    bool is_small = bytes < 1000000000;
    snprintf(out, 32, "%.1f %s", (double)bytes / (is_small ? 1e6 : 1e9), is_small ? "MB" : "GB");
    return out;
}

void fm_build_print_room(FILE *out, const fm_space *space, const char *cache) {
    char need[32], input[32], free_space[32];
    fprintf(out, "space about %s for %u of %u chain%s", format_bytes(space->need_bytes, need),
            space->n_new, space->n_chain, fm_plural(space->n_chain));
    if (space->n_complex) {
        fprintf(out, " and %u of %u complex%s", space->n_new_complex, space->n_complex,
                space->n_complex == 1 ? "" : "es");
    }
    fprintf(out, ", from about %s of files", format_bytes(space->input_bytes, input));
    if (cache) {
        fprintf(out, "; %s are free in %s", format_bytes(space->free_bytes, free_space), cache);
    }
    fprintf(out, "\n");
}

/* Says what a sample of the complexes took, or why there is none. */
static void print_sample(const fm_build_plan *plan) {
    const fm_build_sample *sample = plan->sample;
    if (plan->not_sampled) printf("sample none: %s\n", plan->not_sampled);
    if (!sample || !sample->n_structure) return;
    printf("sample %u structure%s with %u complex%s of %llu tokens, %u refused",
           sample->n_structure, fm_plural(sample->n_structure), sample->n_complex,
           sample->n_complex == 1 ? "" : "es", (unsigned long long)sample->n_token,
           sample->n_refused);
    if (sample->n_token) {
        printf(": %.1f bytes and %.1f us a token", (double)sample->stored_bytes / sample->n_token,
               sample->seconds * 1e6 / (double)sample->n_token);
    }
    printf("\n");
    double seconds = plan->space ? fm_build_sample_seconds(sample, plan->space, plan->n_job) : 0;
    if (seconds > 0) {
        printf("time about %.1f %s with %u worker%s, for structures with complexes\n",
               seconds < 120 ? seconds : seconds / 60, seconds < 120 ? "s" : "min", plan->n_job,
               fm_plural(plan->n_job));
    }
}

void fm_build_print_lists(FILE *out, const fm_source_dataset *dataset) {
    const fm_listing *chains = &dataset->chain_data, *dates = &dataset->dates;
    const fm_obsolete_list *obsolete = &dataset->obsolete;
    if (chains->path) {
        fprintf(out, "chain data %s: %u chain%s\n", chains->path, chains->n, fm_plural(chains->n));
    }
    if (dates->path) {
        fprintf(out, "dates %s: %u id%s\n", dates->path, dates->n, fm_plural(dates->n));
    }
    if (obsolete->path) {
        fprintf(out, "obsolete %s: %u id%s\n", obsolete->path, obsolete->n, fm_plural(obsolete->n));
    }
    const fm_entity_clusters *clusters = &dataset->entity_clusters;
    if (clusters->path) {
        fprintf(out, "clusters %s: %u protein%s\n", clusters->path, clusters->n,
                fm_plural(clusters->n));
    }
    const fm_sequence_list *sequences[] = {&dataset->proteins, &dataset->rna};
    for (int i = 0; i < 2; i++) {
        if (!sequences[i]->path) continue;
        fprintf(out, "alignments by sequence %s: %u sequence%s in %s\n", sequences[i]->path,
                sequences[i]->n, fm_plural(sequences[i]->n), sequences[i]->folder);
    }
}

static void print_datasets(const fm_source *source) {
    for (uint32_t i = 0; i < source->n_dataset; i++) {
        const fm_source_dataset *dataset = &source->dataset[i];
        if (dataset->name[0]) {
            printf("dataset %s: %s\n", dataset->name,
                   dataset->is_predicted ? "predictions" : "experimental structures");
        }
        printf("structures %s: %u\n", dataset->structures_found, dataset->n_structure);
        printf("alignments %s: %u chain%s\n", dataset->alignments_found, dataset->n_chain,
               fm_plural(dataset->n_chain));
        fm_build_print_lists(stdout, dataset);
    }
}

static void print_plan(dry_run *run, const fm_source *source, fm_arena *arena) {
    const fm_build_plan *plan = run->plan;
    uint32_t n_refusal = 0;
    print_datasets(source);
    show_chains(run, source, arena);
    for (uint32_t i = 0; i < source->n_refusal; i++) {
        const fm_source_refusal *refusal = &source->refusal[i];
        bool taken = is_taken(run, refusal);
        n_refusal += !taken;
        if (!taken) {
            printf("refused %s\t%s\n", refusal->name, fm_source_reason_text(refusal->reason));
        } else if (plan->single_sequence) {
            printf("structure %s\teach protein chain, a single sequence\n", refusal->name);
        }
    }
    printf("total %u chain%s, %u of them with the alignments of another; %llu file%s, %.1f MB\n",
           run->n_chain, fm_plural(run->n_chain), source->n_duplicate,
           (unsigned long long)run->n_file, fm_plural(run->n_file), (double)run->bytes / 1e6);
    printf("total %u chain%s and %u input%s refused, %u chain%s without alignments, %u without a "
           "file of template hits\n",
           run->n_refused, fm_plural(run->n_refused), n_refusal, fm_plural(n_refusal), run->n_empty,
           fm_plural(run->n_empty), run->n_without_hits);
    if (run->n_complex) {
        printf("total %u complex%s, of experimental mmCIF files\n", run->n_complex,
               run->n_complex == 1 ? "" : "es");
    }
    print_sample(plan);
    if (plan->space) fm_build_print_room(stdout, plan->space, plan->cache);
}

/* -- one object for programs */

static void json_datasets(fm_json_writer *json, const fm_source *source) {
    fm_json_open_array(json, "datasets");
    for (uint32_t i = 0; i < source->n_dataset; i++) {
        const fm_source_dataset *dataset = &source->dataset[i];
        fm_json_open_object(json, NULL);
        fm_json_put_string(json, "name", dataset->name);
        fm_json_put_bool(json, "predicted", dataset->is_predicted);
        fm_json_put_string(json, "structures_found", dataset->structures_found);
        fm_json_put_u64(json, "structures", dataset->n_structure);
        fm_json_put_string(json, "alignments_found", dataset->alignments_found);
        fm_json_put_u64(json, "chains", dataset->n_chain);
        fm_json_close(json);
    }
    fm_json_close(json);
}

static void json_sample(fm_json_writer *json, const fm_build_plan *plan) {
    const fm_build_sample *sample = plan->sample;
    if (plan->not_sampled) fm_json_put_string(json, "not_sampled", plan->not_sampled);
    if (!sample) return;
    fm_json_open_object(json, "sample");
    fm_json_put_u64(json, "structures", sample->n_structure);
    fm_json_put_u64(json, "complexes", sample->n_complex);
    fm_json_put_u64(json, "refused", sample->n_refused);
    fm_json_put_u64(json, "tokens", sample->n_token);
    fm_json_put_u64(json, "input_bytes", sample->input_bytes);
    fm_json_put_u64(json, "stored_bytes", sample->stored_bytes);
    fm_json_put_f64(json, "seconds", sample->seconds, 3);
    fm_json_close(json);
    if (!plan->space) return;
    fm_json_put_f64(json, "need_seconds", fm_build_sample_seconds(sample, plan->space, plan->n_job),
                    1);
}

static void json_plan(dry_run *run, const fm_source *source, fm_arena *arena) {
    fm_json_writer *json = run->json;
    const fm_space *space = run->plan->space;
    fm_json_begin(json, stdout);
    json_datasets(json, source);
    fm_json_open_array(json, "chains");
    show_chains(run, source, arena);
    fm_json_close(json);
    fm_json_open_array(json, "refused_inputs");
    for (uint32_t i = 0; i < source->n_refusal; i++) {
        if (is_taken(run, &source->refusal[i])) continue;
        fm_json_open_object(json, NULL);
        fm_json_put_string(json, "name", source->refusal[i].name);
        fm_json_put_string(json, "reason", fm_source_reason_text(source->refusal[i].reason));
        fm_json_close(json);
    }
    fm_json_close(json);
    fm_json_put_u64(json, "refused", run->n_refused);
    fm_json_put_u64(json, "single_sequence_structures", run->n_single);
    fm_json_put_u64(json, "complexes", run->n_complex);
    fm_json_put_u64(json, "duplicates", source->n_duplicate);
    fm_json_put_u64(json, "without_alignments", run->n_empty);
    fm_json_put_u64(json, "without_template_hits", run->n_without_hits);
    fm_json_put_u64(json, "files", run->n_file);
    fm_json_put_u64(json, "file_bytes", run->bytes);
    json_sample(json, run->plan);
    if (space) fm_json_put_u64(json, "need_bytes", space->need_bytes);
    if (space && space->free_bytes != UINT64_MAX) {
        fm_json_put_u64(json, "free_bytes", space->free_bytes);
    }
    fm_json_end(json);
}

static uint32_t count_complexes(const fm_source *source) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < source->n_structure; i++)
        n += fm_source_has_complex(source, &source->structure[i]);
    return n;
}

int fm_build_dry_run(const fm_source *source, const fm_build_plan *plan, fm_arena *arena) {
    fm_json_writer writer;
    dry_run run = {.plan = plan,
                   .json = plan->json ? &writer : NULL,
                   .n_complex = plan->complexes ? count_complexes(source) : 0};
    if (plan->json) {
        json_plan(&run, source, arena);
    } else {
        print_plan(&run, source, arena);
    }
    return run.n_chain + run.n_single + run.n_complex > run.n_refused ? FM_EXIT_OK : FM_EXIT_FAILED;
}
