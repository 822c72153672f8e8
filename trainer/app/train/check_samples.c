/* check_samples.c: see check_samples.h. */
#include "trainer/app/train/check_samples.h"

#include "proto/base/plural.h"
#include "trainer/app/samples/sample_folder.h"
#include "trainer/app/settings/setup.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>

/* The least and the greatest of something in the samples that could be read. */
typedef struct span {
    int64_t least, most;
} span;

typedef struct folder_sizes {
    span tokens, atoms, rows, templates;
    uint32_t n_read;
    uint64_t n_left_out; /* groups of equivalent atoms */
} folder_sizes;

static void add(span *s, int64_t value, bool is_first) {
    if (is_first || value < s->least) s->least = value;
    if (is_first || value > s->most) s->most = value;
}

static void add_sizes(folder_sizes *sizes, const fm_af3_features *features) {
    const fm_af3_sample *sample = &features->sample;
    bool is_first = sizes->n_read++ == 0;
    sizes->n_left_out += features->n_left_out;
    add(&sizes->tokens, sample->n_token, is_first);
    add(&sizes->atoms, sample->n_atom, is_first);
    add(&sizes->rows, sample->n_msa, is_first);
    add(&sizes->templates, sample->n_template, is_first);
}

static void say(const fm_sample_folder *folder, const folder_sizes *sizes, uint32_t n_bad) {
    printf("%s: %u sample%s, %u bad", folder->path, folder->n, fm_plural(folder->n), n_bad);
    const struct {
        const char *what;
        span span;
    } row[] = {{"tokens", sizes->tokens},
               {"atoms", sizes->atoms},
               {"MSA rows", sizes->rows},
               {"templates", sizes->templates}};
    for (size_t i = 0; sizes->n_read && i < sizeof row / sizeof row[0]; i++) {
        printf("%s %" PRId64 " to %" PRId64 " %s", i ? "," : ";", row[i].span.least,
               row[i].span.most, row[i].what);
    }
    if (sizes->n_left_out) {
        printf("; %" PRIu64 " group%s of equivalent atoms too large to exchange labels",
               sizes->n_left_out, fm_plural(sizes->n_left_out));
    }
    printf("\n");
}

/* The error of a file that a run could not use goes to stderr. Only a want of memory, which is not
 * the file's, ends the check. */
static fm_status check_file(fm_sample_folder *folder, uint32_t file,
                            const fm_af3_trainer_options *options, folder_sizes *sizes,
                            uint32_t *n_bad, fm_error *reterr) {
    char path[PATH_MAX], text[FM_ERROR_TEXT_BYTES];
    const fm_stored_sample *sample;
    fm_error why = {.message = ""};
    fm_status status = fm_sample_folder_read(folder, file, &sample, &why);
    if (!status) {
        add_sizes(sizes, &sample->features);
        status = fm_af3_check_features(options, &sample->features, &why);
    }
    if (status == FM_ERR_NOMEM) {
        if (reterr) *reterr = why;
        return status;
    }
    if (!status) return FM_OK;
    if (!why.source[0]) {
        snprintf(path, sizeof path, "%s/%s.npz", folder->path, folder->file[file]);
        (void)fm_error_in(&why, path);
    }
    fm_error_format(&why, text, sizeof text);
    fprintf(stderr, "%s\n", text);
    ++*n_bad;
    return FM_OK;
}

static fm_status check_folder(const char *path, const fm_af3_trainer_options *options,
                              uint32_t *n_bad, fm_error *reterr) {
    fm_sample_folder folder;
    folder_sizes sizes = {.n_read = 0};
    uint32_t n_here = 0;
    fm_status status = fm_sample_folder_open(path, &folder, reterr);
    if (status) return status;
    for (uint32_t i = 0; i < folder.n && !status; i++)
        status = check_file(&folder, i, options, &sizes, &n_here, reterr);
    if (!status) say(&folder, &sizes, n_here);
    *n_bad += n_here;
    fm_sample_folder_close(&folder);
    return status;
}

fm_status fm_check_samples(const fm_train_options *set, uint32_t *ret_n_bad, fm_error *reterr) {
    fm_train_config config;
    *ret_n_bad = 0;
    fm_status status = fm_train_config_load(set->preset, set->config, &config, reterr);
    if (status) return status;
    if (config.network != FM_NETWORK_AF3 || !set->samples) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "--check-samples needs --samples DIR and a model of af3, such as --preset "
                       "af3-initial");
    }
    const fm_af3_trainer_options options = fm_af3_trainer_options_of(&config, NULL, 0);
    status = check_folder(set->samples, &options, ret_n_bad, reterr);
    if (!status && set->eval_samples) {
        status = check_folder(set->eval_samples, &options, ret_n_bad, reterr);
    }
    return status;
}
