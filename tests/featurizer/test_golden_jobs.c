/* test_golden_jobs.c: descriptions of complexes in three formats against the reference's features,
 * tables of atoms and tables of bonds.
 *
 * The YAML files name no alignments and no templates, and only AlphaFold 3's JSON has templates.
 * One is read again with the alignments as tables of keys. What each writes of itself is read back
 * and gives the same arrays. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "featurizer/complex/components_code.h"
#include "featurizer/complex/sequence_rows.h"
#include "featurizer/job/job.h"
#include "proto/base/file.h"
#include "proto/complex_sample.h"
#include "proto/limits.h"
#include "tests/testing/manifest.h"
#include "tests/testing/testing.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {"ligand", "pair", "nucleic", "glyco"};
static const char *const endings[] = {"af3.json", "protenix.json", "boltz.yaml", "keyed.yaml"};
enum { N_NAME = 4, N_ENDING = 4, BOLTZ = 2, KEYED = 3, PAIR = 1 };

static fm_arena arena;
static size_t n_array, n_same;

static void must(fm_status status, const fm_error *error) {
    char text[FM_ERROR_TEXT_BYTES];
    if (!status) return;
    fm_error_format(error, text, sizeof text);
    fprintf(stderr, "%s\n", text);
    abort();
}

static fm_bytes read_reference(const char *relative) {
    char path[4096];
    fm_error error = {0};
    fm_bytes bytes = {0};
    fm_test_reference_path(path, sizeof path, relative);
    must(fm_file_read_text(&arena, path, FM_LIMIT_INPUT_BYTES, &bytes, &error), &error);
    return bytes;
}

/* Adds the rows of an A3M file to a table, with their species as keys or without keys. A row
 * without species has a key of its own, which pairs it with nothing. The first row is left out. */
static size_t add_rows(const char *relative, bool has_keys, char *out, size_t room) {
    fm_bytes text = read_reference(relative), species = {0};
    size_t n = 0, n_row = 0;
    for (size_t at = 0; at < text.size;) {
        const uint8_t *line = text.data + at, *end = memchr(line, '\n', text.size - at);
        const size_t size = end ? (size_t)(end - line) : text.size - at;
        at += size + 1;
        if (line[0] == '>') {
            species = fm_sequence_species((fm_bytes){line + 1, size - 1});
            n_row++;
        } else if (n_row > 1) {
            const bool has_none = has_keys && species.size == 0;
            n += has_none ? (size_t)snprintf(out + n, room - n, "row%zu", n_row) : 0;
            n +=
                (size_t)snprintf(out + n, room - n, "%.*s,%.*s\n", has_keys ? (int)species.size : 0,
                                 (const char *)species.data, (int)size, (const char *)line);
        }
    }
    assert(n < room);
    return n;
}

/* The alignments pair_N_paired.a3m and pair_N_unpaired.a3m as a table. */
static fm_bytes make_table(int number) {
    static const char *const queries[] = {"PEFRLIDIDGLLNNRATTDVRDLG", "RRPGAWSSEEYFFFAEPDS"};
    const size_t room = 1 << 16;
    char *table = fm_arena_alloc(&arena, room), path[64];
    assert(table);
    size_t n = (size_t)snprintf(table, room, "key,sequence\n0,%s\n", queries[number - 1]);
    snprintf(path, sizeof path, "af3p/inputs/pair_%d_paired.a3m", number);
    n += add_rows(path, true, table + n, room - n);
    snprintf(path, sizeof path, "af3p/inputs/pair_%d_unpaired.a3m", number);
    n += add_rows(path, false, table + n, room - n);
    return (fm_bytes){(const uint8_t *)table, n};
}

static fm_status read_input(void *context, const char *file, fm_arena *to, fm_bytes *ret_bytes,
                            fm_error *reterr) {
    char relative[256];
    (void)context;
    (void)to;
    (void)reterr;
    if (strncmp(file, "table", 5) == 0) {
        *ret_bytes = make_table(file[5] - '0');
        return FM_OK;
    }
    snprintf(relative, sizeof relative, "af3p/inputs/%s", file);
    *ret_bytes = read_reference(relative);
    return FM_OK;
}

/* The dictionary of the reference data, for other formats with the user's component. */
static void read_components(bool with_user, fm_components *components) {
    fm_bytes text = read_reference("complex/components/components.cif");
    fm_error error = {0};
    if (with_user) {
        fm_bytes user = read_reference("af3p/user.cif");
        uint8_t *both = fm_arena_alloc(&arena, text.size + user.size);
        assert(both);
        memcpy(both, text.data, text.size);
        memcpy(both + text.size, user.data, user.size);
        text = (fm_bytes){both, text.size + user.size};
    }
    must(fm_components_parse(text, &arena, components, &error), &error);
}

/* -- comparing */

static bool is_near(const char *name, const fm_npy *golden, const fm_npy *own) {
    double most = strcmp(name, "ref_pos") == 0                ? 2e-6
                  : strcmp(name, "template_unit_vector") == 0 ? 2e-7
                                                              : 0;
    if (most == 0) {
        return memcmp(golden->data, own->data, (size_t)golden->count * golden->item_bytes) == 0;
    }
    const float *a = golden->data, *b = own->data;
    for (uint64_t i = 0; i < golden->count; i++) {
        double difference = fabs((double)a[i] - (double)b[i]);
        if (!(difference <= most)) return false;
    }
    return true;
}

static void compare(const char *what, const char *name, const fm_npy *golden, const fm_npy *own) {
    bool same = own && strcmp(golden->dtype, own->dtype) == 0 && golden->rank == own->rank &&
                memcmp(golden->shape, own->shape, golden->rank * sizeof golden->shape[0]) == 0 &&
                is_near(name, golden, own);
    if (!same) fprintf(stderr, "%s: %s differs\n", what, name);
    n_array++;
    n_same += same;
}

static void compare_text(const char *what, const char *golden_file, const fm_prepared_job *job,
                         const char *key) {
    fm_bytes golden = read_reference(golden_file);
    const fm_array *own = NULL;
    for (size_t i = 0; i < job->n_array; i++)
        if (strcmp(job->arrays[i].key, key) == 0) own = &job->arrays[i];
    bool same =
        own && own->shape[0] == golden.size && memcmp(own->data, golden.data, golden.size) == 0;
    if (!same) fprintf(stderr, "%s: %s differs\n", what, key);
    n_array++;
    n_same += same;
}

/* The arrays as an archive that was read. */
static fm_npz as_archive(const fm_prepared_job *job) {
    fm_npy *arrays = fm_arena_calloc(&arena, job->n_array, sizeof *arrays);
    assert(arrays);
    for (size_t i = 0; i < job->n_array; i++) {
        const fm_array *from = &job->arrays[i];
        fm_npy *to = &arrays[i];
        *to = (fm_npy){.name = from->key,
                       .item_bytes = fm_npz_item_bytes(from->dtype),
                       .rank = from->rank,
                       .count = 1,
                       .data = from->data};
        snprintf(to->dtype, sizeof to->dtype, "%s", from->dtype);
        for (size_t k = 0; k < from->rank; k++) {
            to->shape[k] = from->shape[k];
            to->count *= from->shape[k];
        }
    }
    return (fm_npz){job->n_array, arrays};
}

static bool is_left_out(const char *name, size_t ending) {
    static const char *const alignment[] = {"msa", "has_deletion", "deletion_value", "profile",
                                            "deletion_mean"};
    if (ending > 0 && strncmp(name, "template_", 9) == 0) return true;
    for (size_t i = 0; i < 5 && ending == BOLTZ; i++)
        if (strcmp(name, alignment[i]) == 0) return true;
    return false;
}

static void compare_features(const char *what, size_t ending, const fm_npz *golden,
                             const fm_prepared_job *job) {
    static const char *const others[] = {"is_protein", "ref_pos_ideal"};
    fm_npz own = as_archive(job), whole;
    fm_error error = {0};
    must(fm_complex_sample_expand(&own, &arena, &whole, NULL, &error), &error);
    for (size_t i = 0; i < whole.n_array; i++) {
        char name[64];
        snprintf(name, sizeof name, "in/%s", whole.arrays[i].name);
        const fm_npy *found = fm_npz_find(golden, name);
        if (found && !is_left_out(name + 3, ending)) {
            compare(what, name + 3, found, &whole.arrays[i]);
        }
    }
    const fm_npy *molecule = fm_npz_find(&own, "features/is_protein");
    const fm_npy *wide = fm_npz_find(golden, "in/is_protein");
    for (uint64_t i = 0; i < wide->count; i++)
        assert_int_equal(((const int64_t *)wide->data)[i], ((const uint8_t *)molecule->data)[i]);
    compare(what, others[1], fm_npz_find(golden, "in/ref_pos_ideal"),
            fm_npz_find(&own, "features/ref_pos_ideal"));
}

/* -- the job as AlphaFold 3's JSON */

static const fm_array *find_array(const fm_prepared_job *job, const char *key) {
    for (size_t i = 0; i < job->n_array; i++)
        if (strcmp(job->arrays[i].key, key) == 0) return &job->arrays[i];
    fprintf(stderr, "no array %s\n", key);
    abort();
}

/* The job that a prepared one wrote gives the same arrays, and writes itself again. */
static void compare_data(const char *what, const fm_prepared_job *job,
                         const fm_components *components, const fm_job_options *options) {
    static const char *const others[] = {"job/format", "job/warnings", "job/user_components"};
    const fm_array *data = find_array(job, "job/data");
    fm_error error = {0};
    fm_job_warnings warnings = {0};
    fm_jobs jobs;
    fm_prepared_job *again = fm_arena_alloc(&arena, sizeof *again);
    assert(again);
    must(fm_jobs_read((fm_bytes){data->data, data->shape[0]}, "data.json", FM_JOB_ALPHAFOLD3,
                      &arena, &warnings, &jobs, &error),
         &error);
    /* It names no files and needs no option for chains without alignments. */
    fm_job_options alone = *options;
    alone.is_single_sequence = false;
    must(fm_job_prepare(jobs.jobs, components, NULL, &alone, &arena, &warnings, again, &error),
         &error);
    assert_int_equal(again->n_array, job->n_array);
    const fm_npz was = as_archive(job), is = as_archive(again);
    for (size_t i = 0; i < was.n_array; i++) {
        const char *name = was.arrays[i].name;
        if (strcmp(name, others[0]) && strcmp(name, others[1]) && strcmp(name, others[2])) {
            compare(what, name, &was.arrays[i], &is.arrays[i]);
        }
    }
}

/* -- the tests */

/* The description of a job; the YAML with tables has a line more for each sequence. */
static fm_bytes read_description(size_t name, size_t ending) {
    char path[128];
    snprintf(path, sizeof path, "af3p/inputs/%s.%s", names[name],
             endings[ending == KEYED ? BOLTZ : ending]);
    fm_bytes text = read_reference(path);
    if (ending != KEYED) return text;
    const size_t room = text.size + 256;
    char *out = fm_arena_alloc(&arena, room), number = '0';
    size_t n = 0;
    assert(out);
    for (size_t at = 0; at < text.size;) {
        const uint8_t *line = text.data + at, *end = memchr(line, '\n', text.size - at);
        const size_t size = end ? (size_t)(end - line) + 1 : text.size - at;
        at += size;
        memcpy(out + n, line, size);
        n += size;
        if (memmem(line, size, "sequence:", 9)) {
            n += (size_t)snprintf(out + n, room - n, "      msa: table%c.csv\n", ++number);
        }
    }
    return (fm_bytes){(const uint8_t *)out, n};
}

static void compare_job(size_t name, size_t ending) {
    char what[64], path[128];
    fm_error error = {0};
    fm_components components;
    fm_job_warnings warnings = {0};
    fm_jobs jobs;
    fm_npz golden;
    fm_arena_reset(&arena);
    fm_prepared_job *prepared = fm_arena_alloc(&arena, sizeof *prepared);
    assert(prepared);
    snprintf(what, sizeof what, "%s.%s", names[name], endings[ending]);
    snprintf(path, sizeof path, "af3p/%s.npz", names[name]);
    must(fm_npz_parse(&arena, read_reference(path), &golden, &error), &error);
    const fm_npy *rotation = fm_npz_find(&golden, "in/rnd_ref_rot");
    const fm_npy *translation = fm_npz_find(&golden, "in/rnd_ref_trans");
    const fm_job_options options = {
        .compat_protenix = true,
        .is_single_sequence = true,
        .max_row = 16384,
        .n_template = 4,
        .n_placement = (uint32_t)rotation->shape[0],
        .translations = (const double(*)[3])translation->data,
        .rotations = (const double(*)[3][3])rotation->data,
    };
    read_components(ending > 0, &components);
    must(fm_jobs_read(read_description(name, ending), what, FM_JOB_ANY, &arena, &warnings, &jobs,
                      &error),
         &error);
    assert_int_equal(jobs.n, 1);
    const fm_job_files files = {.read = read_input};
    must(fm_job_prepare(jobs.jobs, &components, &files, &options, &arena, &warnings, prepared,
                        &error),
         &error);
    compare_features(what, ending, &golden, prepared);
    snprintf(path, sizeof path, "af3p/inputs/%s_atoms.tsv", names[name]);
    compare_text(what, path, prepared, "job/atoms");
    snprintf(path, sizeof path, "af3p/inputs/%s_bonds.tsv", names[name]);
    compare_text(what, path, prepared, "job/bonds");
    compare_data(what, prepared, &components, &options);
}

static void the_jobs_agree(void **state) {
    (void)state;
    char path[4096];
    if (fm_test_reference()) fm_test_reference_path(path, sizeof path, "af3p/ligand.npz");
    FILE *file = fm_test_reference() ? fopen(path, "rb") : NULL;
    if (!file) {
        fprintf(stderr, "skipped: FM_REFERENCE_DATA is not set or has no af3p\n");
        skip();
    }
    fclose(file);
    assert_int_equal(fm_arena_init(&arena, (size_t)2 << 30, NULL), 0);
    for (size_t name = 0; name < N_NAME; name++)
        for (size_t ending = 0; ending < N_ENDING; ending++)
            if (ending != KEYED || name == PAIR) compare_job(name, ending);
    fm_arena_fini(&arena);
    fm_test_golden_line("jobs", n_array, n_same);
    assert_int_equal(n_same, n_array);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_jobs_agree)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
