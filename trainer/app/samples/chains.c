/* chains.c: see chains.h. Chains are copied out of the loader's slabs as they arrive. A list of
 * single chains is received by opening the stream at each one that does not follow its
 * predecessor.
 *
 * A stream reserves memory for its largest possible sample, here and in the server. So it begins
 * with a bound that most chains do not reach. A chain that is longer is received again on a stream
 * with a larger bound. The bits of a whole chain do not depend on the bound. */
#include "trainer/app/samples/chains.h"

#include "trainer/app/samples/feed.h"

#include <stdio.h>
#include <stdlib.h>

enum { SAMPLE_ALIGN = 64, N_SLAB = 3 };

static const size_t first_bytes = (size_t)256 << 20; /* of the largest sample, at first */

static const uint64_t full_ms = 300000; /* how long to retry a server that has no room */

struct fm_chains {
    fm_chains_options options;
    fm_feed feed;
    bool is_open; /* the feed is */
    fm_token token;
    fm_sha256 snapshot_hash;
    char snapshot[FM_LIMIT_NAME_BYTES + 1];
    uint32_t n_chain;         /* of the snapshot, or those asked for */
    uint32_t n_snapshot;      /* of the snapshot */
    uint32_t max_length;      /* of a chain on the open stream */
    uint32_t most_length;     /* of any chain: the caller's limit, or that of a frame */
    uint32_t before_length;   /* max_length of the stream before, if it was raised; else 0 */
    char why_not_longer[128]; /* "; " and why a larger bound was refused, or "" */
    uint32_t n_received;      /* of this pass over the chains */
    uint32_t n_held;          /* chain[0 .. n_held-1] are in memory */
    fm_held_chain *chain;     /* [n_chain] */
    size_t held_bytes;
    bool has_all;
};

/* -- opening */

/* The longest chain whose sample fits into these bytes, but at most `most`. */
static uint32_t longest_sample(const fm_chains_options *o, size_t most_bytes, uint32_t most) {
    enum { TEMPLATES = 4 }; /* of both plans */
    uint32_t low = 1, high = most;
    while (low < high) {
        uint32_t middle = low + (high - low + 1) / 2;
        size_t bytes = fm_sample_max_bytes(middle, o->max_msa_clusters, o->max_extra_msa, TEMPLATES,
                                           o->n_cycle);
        if (bytes <= most_bytes) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

/* The number of the next chain to receive. */
static uint64_t next_index(const fm_chains *c) {
    return c->options.only ? c->options.only[c->n_received] : c->n_received;
}

/* Opens the stream at the next chain to receive. */
static fm_status open_feed(fm_chains *c, fm_error *reterr) {
    const fm_chains_options *set = &c->options;
    fm_loader_options options = {
        .supply = {.client = {.url = set->url,
                              .credentials = set->credentials,
                              .agent = set->agent,
                              .snapshot_name = set->snapshot,
                              .snapshot = c->snapshot_hash}},
        .stream = {.crop_size = c->max_length,
                   .max_msa_clusters = set->max_msa_clusters,
                   .max_extra_msa = set->max_extra_msa,
                   .max_cycle = set->n_cycle,
                   .max_template_date = set->max_template_date,
                   .seed = set->seed,
                   .n_group = 1,
                   .order = FM_WIRE_STRICT,
                   .policy = FM_WIRE_SKIP},
        .n_slab = N_SLAB,
    };
    fm_wire_text(options.stream.plan, sizeof options.stream.plan, set->plan);
    c->token = (fm_token){.watermark = next_index(c)};
    c->feed = (fm_feed){.options = options,
                        .wait_ms = (uint32_t)set->wait_ms,
                        .full_ms = full_ms,
                        .timeout_ms = set->data_timeout_s * 1000};
    fm_status status = fm_feed_open(&c->feed, &c->token, reterr);
    if (status) {
        fm_feed_close(&c->feed);
        return status;
    }
    const fm_wire_welcome *server = fm_loader_get_server(c->feed.loader);
    c->is_open = true;
    c->n_snapshot = server->n_chain;
    c->snapshot_hash = server->snapshot;
    snprintf(c->snapshot, sizeof c->snapshot, "%s", server->snapshot_name);
    return FM_OK;
}

static void close_feed(fm_chains *c) {
    if (c->is_open) fm_feed_close(&c->feed);
    c->is_open = false;
}

static fm_status count_chains(fm_chains *c, fm_error *reterr) {
    const fm_chains_options *set = &c->options;
    c->n_chain = set->only ? set->n_only : c->n_snapshot;
    if (set->only && set->only[set->n_only - 1] >= c->n_snapshot) {
        return fm_fail(reterr, FM_ERR_NOT_FOUND, "no chain %llu; the snapshot %s has %u",
                       (unsigned long long)set->only[set->n_only - 1], c->snapshot, c->n_snapshot);
    }
    c->chain = calloc(c->n_chain, sizeof *c->chain);
    return c->chain ? FM_OK : fm_fail(reterr, FM_ERR_NOMEM, "no memory for %u chains", c->n_chain);
}

fm_status fm_chains_open(const fm_chains_options *options, fm_chains **ret_chains,
                         fm_error *reterr) {
    fm_chains *c = calloc(1, sizeof *c);
    if (!c) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a stream of chains");
    c->options = *options;
    const uint32_t most = options->max_length ? options->max_length : FM_LIMIT_N_RES;
    c->most_length = longest_sample(options, FM_LIMIT_FRAME_BYTES, most);
    c->max_length = longest_sample(options, first_bytes, c->most_length);
    fm_status status = open_feed(c, reterr);
    if (!status) status = count_chains(c, reterr);
    if (status) {
        fm_chains_close(c);
        return status;
    }
    *ret_chains = c;
    return FM_OK;
}

static void drop_chains(fm_chains *c) {
    for (uint32_t i = 0; i < c->n_held; i++)
        free(c->chain[i].memory);
    c->n_held = 0;
    c->held_bytes = 0;
}

void fm_chains_close(fm_chains *c) {
    if (!c) return;
    drop_chains(c);
    free(c->chain);
    close_feed(c);
    free(c);
}

/* -- receiving */

static void refuse(fm_held_chain *chain, fm_status status, const char *why) {
    chain->status = status;
    snprintf(chain->why, sizeof chain->why, "%s", why);
}

/* Copies a chain out of the loader's slab. */
static fm_status hold(fm_chains *c, const fm_loaded *loaded, fm_error *reterr) {
    fm_held_chain *chain = &c->chain[c->n_held++];
    const fm_sample *sample = loaded->sample;
    *chain = (fm_held_chain){.index = loaded->index};
    if (!sample) {
        refuse(chain, loaded->why->status, loaded->why->message);
        return FM_OK;
    }
    chain->n_res = sample->n_res_chain;
    /* The sample is kept even if it is too long, because its head has the chain's name. */
    chain->bytes = fm_sample_encoded_bytes(sample);
    size_t rounded = (chain->bytes + SAMPLE_ALIGN - 1) / SAMPLE_ALIGN * SAMPLE_ALIGN;
    chain->memory = aligned_alloc(SAMPLE_ALIGN, rounded);
    if (!chain->memory) {
        return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a chain of %.1f MiB",
                       (double)chain->bytes / (1 << 20));
    }
    fm_sample_encode(sample, chain->memory);
    c->held_bytes += chain->bytes;
    if (sample->n_res < sample->n_res_chain) {
        snprintf(chain->why, sizeof chain->why, "it has %u residues, and at most %u are taken%s",
                 sample->n_res_chain, c->most_length, c->why_not_longer);
        chain->status = FM_ERR_LIMIT;
    }
    return FM_OK;
}

static fm_status next_loaded(fm_chains *c, fm_loaded *ret_loaded, fm_error *reterr) {
    fm_status status = fm_feed_next(&c->feed, FM_FEED_ANY, ret_loaded, reterr);
    while (fm_feed_may_reconnect(&c->feed, status)) {
        status = fm_feed_reconnect(&c->feed, &c->token, reterr);
        if (!status) status = fm_feed_next(&c->feed, FM_FEED_ANY, ret_loaded, reterr);
    }
    return status;
}

/* Opens the stream, with the earlier bound if the server or this host has no memory for the new
 * one; longer chains are then refused. */
static fm_status open_for_next(fm_chains *c, fm_error *reterr) {
    fm_error why = {.status = FM_OK};
    fm_status status = open_feed(c, &why);
    const bool is_too_large =
        status == FM_ERR_UNSUPPORTED || status == FM_ERR_USAGE || status == FM_ERR_NOMEM;
    if (is_too_large && c->before_length) {
        c->max_length = c->most_length = c->before_length;
        snprintf(c->why_not_longer, sizeof c->why_not_longer, "; %s", why.message);
        status = open_feed(c, &why);
    }
    if (status && reterr) *reterr = why;
    c->before_length = 0;
    return status;
}

/* Whether the stream has cut a chain that a larger bound lets through. A server that cuts one which
 * is within the bound would cut it again. */
static bool wants_larger_bound(const fm_chains *c, const fm_loaded *loaded) {
    const fm_sample *s = loaded->sample;
    return s && s->n_res < s->n_res_chain && s->n_res_chain > c->max_length &&
           s->n_res_chain <= c->most_length;
}

/* Closes the stream. The next one takes chains of n_res residues, and at least twice as long ones
 * as before, so that few streams are opened. */
static void raise_bound(fm_chains *c, uint32_t n_res) {
    const uint32_t twice = c->max_length < c->most_length / 2 ? 2 * c->max_length : c->most_length;
    close_feed(c);
    c->before_length = c->max_length;
    c->max_length = n_res > twice ? n_res : twice;
}

/* Receives the next chain, or raises the bound of the stream for it. */
static fm_status receive_one(fm_chains *c, fm_error *reterr) {
    fm_loaded loaded;
    if (c->is_open && c->token.watermark != next_index(c)) close_feed(c);
    fm_status status = c->is_open ? FM_OK : open_for_next(c, reterr);
    if (!status) status = next_loaded(c, &loaded, reterr);
    if (status) return status;
    if (wants_larger_bound(c, &loaded)) {
        const uint32_t n_res = loaded.sample->n_res_chain;
        fm_loader_release(c->feed.loader, &loaded);
        raise_bound(c, n_res);
        return FM_OK;
    }
    status = loaded.index < c->n_snapshot
                 ? hold(c, &loaded, reterr)
                 : fm_fail(reterr, FM_ERR_PROTOCOL, "the server sent chain %llu of %u",
                           (unsigned long long)loaded.index, c->n_snapshot);
    if (!status) status = fm_token_deliver(&c->token, loaded.index, reterr);
    fm_loader_release(c->feed.loader, &loaded);
    c->n_received++;
    return status;
}

static int compare_lengths(const void *a, const void *b) {
    const fm_held_chain *x = a, *y = b;
    if (x->n_res != y->n_res) return x->n_res < y->n_res ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

fm_status fm_chains_receive(fm_chains *c, fm_error *reterr) {
    if (c->has_all) return FM_OK;
    fm_status status = FM_OK;
    drop_chains(c);
    if (c->n_received == c->n_chain) c->n_received = 0;
    while (!status && c->n_received < c->n_chain &&
           (c->n_held == 0 || c->held_bytes < c->options.memory_bytes))
        status = receive_one(c, reterr);
    if (status) return status;
    if (c->n_received == c->n_chain) {
        close_feed(c);
        c->has_all = c->n_held == c->n_chain;
    }
    qsort(c->chain, c->n_held, sizeof *c->chain, compare_lengths);
    return FM_OK;
}

void fm_chains_rewind(fm_chains *c) {
    if (c->has_all) return;
    close_feed(c);
    drop_chains(c);
    c->n_received = 0;
}

fm_status fm_chains_decode(const fm_held_chain *chain, fm_arena *arena, fm_sample *ret_sample,
                           fm_error *reterr) {
    const fm_bytes bytes = {chain->memory, chain->bytes};
    return fm_sample_decode(bytes, false, arena, ret_sample, reterr);
}

/* -- facts */

uint32_t fm_chains_n_held(const fm_chains *c) {
    return c->n_held;
}

const fm_held_chain *fm_chains_held(const fm_chains *c, uint32_t i) {
    return &c->chain[i];
}

uint32_t fm_chains_n(const fm_chains *c) {
    return c->n_chain;
}

const char *fm_chains_get_snapshot(const fm_chains *c) {
    return c->snapshot;
}

const fm_sha256 *fm_chains_get_snapshot_hash(const fm_chains *c) {
    return &c->snapshot_hash;
}
