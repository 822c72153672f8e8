/* train_held_out.c: see train_held_out.h. The plan NAME-eval of the server takes the complexes in
 * the order of the snapshot, again and again, so the first one that comes a second time is the end
 * of the list. */
#include "trainer/app/train/train_held_out.h"

#include "proto/base/log.h"
#include "proto/base/machine.h"
#include "trainer/app/samples/complex_features.h"
#include "trainer/app/train/train_feed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 65536, N_SLAB = 3, ALIGN = 64 };

static const size_t NAMES_BYTES = (size_t)MOST * (FM_LIMIT_NAME_BYTES + ALIGN);
static const size_t SAMPLE_BYTES = (size_t)4 << 30; /* address space: an expanded sample */

/* -- receiving */

/* Keeps a copy of the sample, which is in the loader's memory. */
static fm_status hold(fm_held_out *h, const fm_sample *sample, fm_error *reterr) {
    fm_held_crop *crop = &h->crop[h->n];
    char *name = fm_arena_alloc(&h->names, strlen(sample->name) + 1);
    if (!name) return fm_arena_full(&h->names, reterr);
    memcpy(name, sample->name, strlen(sample->name) + 1);
    crop->bytes = fm_sample_encoded_bytes(sample);
    h->held_bytes += crop->bytes;
    if (h->held_bytes > h->most_bytes) {
        return fm_fail(reterr, FM_ERR_LIMIT,
                       "%u held-out complexes of the snapshot %s take more than %zu MiB, a quarter "
                       "of the machine's memory; choose fewer",
                       h->n + 1, h->from, h->most_bytes >> 20);
    }
    crop->memory = aligned_alloc(ALIGN, (crop->bytes + ALIGN - 1) / ALIGN * ALIGN);
    if (!crop->memory) {
        return fm_fail(reterr, FM_ERR_NOMEM, "no memory for %u held-out complexes", h->n + 1);
    }
    fm_sample_encode(sample, crop->memory);
    h->crop_name[h->n++] = name;
    return FM_OK;
}

/* Takes what came: a complex, or why there is none in its place. *ret_is_over: the list has begun
 * again; *place is that of the complex before. */
static fm_status take(fm_held_out *h, const fm_loaded *loaded, uint32_t *place, bool *ret_is_over,
                      fm_error *reterr) {
    const fm_sample *sample = loaded->sample;
    if (!sample) {
        char quoted[FM_ERROR_MESSAGE_BYTES];
        fm_log(FM_LOG_WARN, "held_out_left_out", "snapshot=%s why=%s", h->from,
               fm_log_quote(quoted, sizeof quoted, loaded->why->message));
        return FM_OK;
    }
    *ret_is_over = h->n > 0 && sample->chain <= *place;
    *place = sample->chain;
    return *ret_is_over ? FM_OK : hold(h, sample, reterr);
}

static fm_status receive(fm_held_out *h, fm_feed *feed, fm_error *reterr) {
    uint32_t place = 0, first = 0;
    bool is_over = false;
    for (uint32_t i = 0; i < MOST && !is_over; i++) {
        fm_loaded loaded;
        const bool has_none = h->n == 0;
        fm_status status = fm_feed_next(feed, FM_FEED_ANY, &loaded, reterr);
        if (status) return status;
        status = take(h, &loaded, &place, &is_over, reterr);
        fm_loader_release(feed->loader, &loaded);
        if (status) return status;
        if (has_none && h->n) first = i;
        /* Complexes before the first one that came would be counted twice by what is missing. */
        if (is_over) h->n_left_out = i - first - h->n;
    }
    if (h->n == 0) {
        return fm_fail(reterr, FM_ERR_DATA, "no complex of the snapshot %s can be used", h->from);
    }
    if (is_over) return FM_OK;
    return fm_fail(reterr, FM_ERR_LIMIT, "the snapshot %s has more than %d complexes", h->from,
                   (int)MOST);
}

static fm_status open_snapshot(const fm_train_run *run, const char *data, fm_held_out *h,
                               fm_error *reterr) {
    const fm_train_options *set = run->set;
    fm_loader_options options = {
        .supply = {.client = {.url = set->eval_data ? set->eval_data : data,
                              .credentials = set->credentials,
                              .agent = fm_train_program,
                              .snapshot_name = set->eval_snapshot}},
        .stream = {.n_step = MOST, .n_group = 1, .order = FM_WIRE_STRICT, .policy = FM_WIRE_SKIP},
        .n_slab = N_SLAB,
    };
    char plan[FM_PLAN_NAME_BYTES + 8];
    snprintf(plan, sizeof plan, "%s-eval", run->config.data.plan);
    fm_wire_text(options.stream.plan, sizeof options.stream.plan, plan);
    fm_train_feed_ask_for_sizes(&run->config, &options.stream);
    fm_feed feed = {.options = options,
                    .wait_ms = (uint32_t)set->wait_ms,
                    .full_ms = set->full_wait_s * 1000,
                    .timeout_ms = set->data_timeout_s * 1000};
    h->crop = calloc(MOST, sizeof *h->crop);
    h->crop_name = calloc(MOST, sizeof *h->crop_name);
    if (!h->crop || !h->crop_name) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a run");
    h->name = h->crop_name;
    h->from = set->eval_snapshot;
    h->most_bytes = (size_t)(fm_machine_memory() / 4);
    fm_status status = fm_arena_init(&h->names, NAMES_BYTES, reterr);
    if (!status) status = fm_arena_init(&h->sample, SAMPLE_BYTES, reterr);
    const fm_token from_the_first = {0};
    if (!status) status = fm_feed_open(&feed, &from_the_first, reterr);
    if (!status) status = receive(h, &feed, reterr);
    fm_feed_close(&feed);
    return status;
}

/* -- all samples */

fm_status fm_held_out_open(const fm_train_run *run, const char *data, fm_held_out *ret_held_out,
                           fm_error *reterr) {
    fm_held_out *h = ret_held_out;
    *h = (fm_held_out){.from = run->set->eval_samples};
    if (run->set->eval_snapshot) return open_snapshot(run, data, h, reterr);
    if (!run->set->eval_samples) return FM_OK;
    fm_status status = fm_sample_folder_open(run->set->eval_samples, &h->folder, reterr);
    h->n = h->folder.n;
    h->name = h->folder.file;
    return status;
}

void fm_held_out_close(fm_held_out *h) {
    fm_sample_folder_close(&h->folder);
    for (uint32_t i = 0; h->crop && i < MOST; i++)
        free(h->crop[i].memory);
    free(h->crop);
    free(h->crop_name);
    fm_arena_fini(&h->names);
    fm_arena_fini(&h->sample);
    *h = (fm_held_out){.n = 0};
}

static fm_status read_crop(fm_held_out *h, uint32_t i, uint32_t n_cycle,
                           fm_af3_features *ret_features, fm_error *reterr) {
    const fm_bytes bytes = {h->crop[i].memory, h->crop[i].bytes};
    fm_sample *sample;
    fm_arena_reset(&h->sample);
    sample = fm_arena_alloc(&h->sample, sizeof *sample);
    if (!sample) return fm_arena_full(&h->sample, reterr);
    fm_status status = fm_sample_decode(bytes, false, &h->sample, sample, reterr);
    if (status) return status;
    return fm_complex_features_of(sample, n_cycle, &h->sample, ret_features, reterr);
}

fm_status fm_held_out_read(fm_held_out *h, uint32_t i, uint32_t n_cycle,
                           fm_af3_features *ret_features, fm_error *reterr) {
    const fm_stored_sample *stored;
    if (h->crop) return read_crop(h, i, n_cycle, ret_features, reterr);
    fm_status status = fm_sample_folder_read(&h->folder, i, &stored, reterr);
    if (status) return status;
    *ret_features = stored->features;
    ret_features->n_cycle = n_cycle;
    return FM_OK;
}
