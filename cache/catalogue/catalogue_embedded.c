/* catalogue_embedded.c: the catalogue as one file, shared by the processes of one machine. See
 * catalogue.h.
 *
 *     j JOB                       job: options, whether there is a list, its hash, next id
 *     i JOB 0 NAME                an item
 *     d JOB 0 id                  name of the item with that id
 *     q JOB 0 due id              name of an item that is pending or leased: when it can be claimed
 *     s JOB 0 hash                a shard
 *     w JOB 0 WORKER              a worker: its cache, when it was seen
 *
 * Everything is in one ordered table (table.h), and each call is one transaction on it; one process
 * changes it at a time. The first letter of a key names the kind of row, so a scan of a prefix
 * lists one kind. Numbers in keys are big-endian, so that keys sort by them; those in values are
 * little-endian. Times are milliseconds of the machine's clock.
 *
 * The "q" entries are the queue. Their keys sort by the time at which an item can be claimed: now
 * or later for a pending item, the end of its lease for a leased one. A claim therefore reads the
 * queue from its start and stops at the first entry that is due later. It finds items whose lease
 * ran out in the same way, and counts that as a failure. Every change of an item goes through
 * change_item, which moves its queue entry with it; items that are done or refused have none.
 * An item's state is stored as its number, so its name (catalogue.c) is no part of the format. */
#include "cache/catalogue/catalogue_open.h"

#include "cache/store/table.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    VALUE_BYTES = 5000, /* size of the longest value, an item */
    TEXT_BYTES = 4096,  /* longest reason or path */
    SUSPECT_FAILURES = 2,
};

static_assert(FM_CATALOGUE_PENDING == 0 && FM_CATALOGUE_LEASED == 1 && FM_CATALOGUE_DONE == 2 &&
                  FM_CATALOGUE_REFUSED == 3,
              "items store these numbers");

typedef struct embedded {
    fm_catalogue base;
    fm_table *table;
} embedded;

typedef struct key_text {
    uint8_t data[FM_TABLE_KEY_BYTES];
    size_t size;
} key_text;

typedef struct item {
    uint64_t id;
    fm_catalogue_state state;
    uint32_t attempt, failures, n_chain;
    int64_t due_ms;
    fm_sha256 source, shard;
    bool has_shard;
    char worker[256], reason[TEXT_BYTES];
} item;

typedef struct job {
    fm_sha256 options, listing;
    bool has_listing;
    uint64_t next_id;
} job;

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* -- keys */

static void add_bytes(key_text *key, const void *data, size_t size) {
    assert(key->size + size <= sizeof key->data);
    memcpy(key->data + key->size, data, size);
    key->size += size;
}

/* Big-endian, so that keys sort by number. */
static void add_number(key_text *key, uint64_t number) {
    for (int shift = 56; shift >= 0; shift -= 8) {
        uint8_t byte = (uint8_t)(number >> shift);
        add_bytes(key, &byte, 1);
    }
}

static uint64_t number_at(fm_bytes key, size_t at) {
    uint64_t number = 0;
    for (size_t i = 0; i < 8 && at + i < key.size; i++)
        number = number << 8 | key.data[at + i];
    return number;
}

static key_text key_of(const embedded *self, char kind) {
    key_text key = {.size = 0};
    add_bytes(&key, &kind, 1);
    add_bytes(&key, self->base.options.job, strlen(self->base.options.job) + 1);
    return key;
}

static key_text name_key(const embedded *self, char kind, const char *name) {
    key_text key = key_of(self, kind);
    add_bytes(&key, name, strlen(name));
    return key;
}

static key_text id_key(const embedded *self, uint64_t id) {
    key_text key = key_of(self, 'd');
    add_number(&key, id);
    return key;
}

static key_text queue_key(const embedded *self, const item *it) {
    key_text key = key_of(self, 'q');
    add_number(&key, (uint64_t)it->due_ms);
    add_number(&key, it->id);
    return key;
}

static fm_bytes bytes_of(const key_text *key) {
    return (fm_bytes){key->data, key->size};
}

/* Finds the first entry at or after `from` that begins with `prefix`. */
static bool seek(embedded *self, const key_text *prefix, const key_text *from, fm_bytes *ret_key,
                 fm_bytes *ret_value) {
    return fm_table_seek(self->table, bytes_of(from), ret_key, ret_value) &&
           ret_key->size >= prefix->size && memcmp(ret_key->data, prefix->data, prefix->size) == 0;
}

/* The smallest key after `key`. */
static key_text after(fm_bytes key) {
    key_text next = {.size = 0};
    add_bytes(&next, key.data, key.size);
    if (next.size < sizeof next.data) add_bytes(&next, "", 1);
    return next;
}

/* -- values */

static void write_text(fm_writer *writer, const char *text, size_t max) {
    size_t n = strnlen(text, max - 1);
    fm_write_u16(writer, (uint16_t)n);
    fm_write_bytes(writer, text, n);
}

static void read_text(fm_reader *reader, char *out, size_t max) {
    size_t n = fm_read_u16(reader);
    const uint8_t *text = fm_read_borrow(reader, n);
    if (!text || n >= max) n = 0;
    if (n) memcpy(out, text, n);
    out[n] = '\0';
}

static void read_hash(fm_reader *reader, fm_sha256 *out) {
    const uint8_t *bytes = fm_read_borrow(reader, sizeof out->bytes);
    if (bytes) memcpy(out->bytes, bytes, sizeof out->bytes);
}

static void put_item(embedded *self, const char *name, const item *it) {
    uint8_t value[VALUE_BYTES];
    fm_writer writer = fm_writer_of(value, sizeof value);
    fm_write_u64(&writer, it->id);
    fm_write_u8(&writer, (uint8_t)it->state);
    fm_write_u32(&writer, it->attempt);
    fm_write_u32(&writer, it->failures);
    fm_write_u32(&writer, it->n_chain);
    fm_write_u64(&writer, (uint64_t)it->due_ms);
    fm_write_bytes(&writer, &it->source, sizeof it->source);
    fm_write_u8(&writer, it->has_shard);
    fm_write_bytes(&writer, &it->shard, sizeof it->shard);
    write_text(&writer, it->worker, sizeof it->worker);
    write_text(&writer, it->reason, sizeof it->reason);
    assert(!writer.failed);
    key_text key = name_key(self, 'i', name);
    fm_table_put(self->table, bytes_of(&key), (fm_bytes){value, writer.at});
}

static item read_item(fm_bytes value) {
    item it = {0};
    fm_reader reader = fm_reader_of(value.data, value.size);
    it.id = fm_read_u64(&reader);
    it.state = (fm_catalogue_state)(fm_read_u8(&reader) % FM_N_CATALOGUE_STATE);
    it.attempt = fm_read_u32(&reader);
    it.failures = fm_read_u32(&reader);
    it.n_chain = fm_read_u32(&reader);
    it.due_ms = (int64_t)fm_read_u64(&reader);
    read_hash(&reader, &it.source);
    it.has_shard = fm_read_u8(&reader) != 0;
    read_hash(&reader, &it.shard);
    read_text(&reader, it.worker, sizeof it.worker);
    read_text(&reader, it.reason, sizeof it.reason);
    return it;
}

static bool get_item(embedded *self, const char *name, item *ret_item) {
    key_text key = name_key(self, 'i', name);
    fm_bytes value;
    if (!fm_table_get(self->table, bytes_of(&key), &value)) return false;
    *ret_item = read_item(value);
    return true;
}

static bool is_queued(const item *it) {
    return it->state == FM_CATALOGUE_PENDING || it->state == FM_CATALOGUE_LEASED;
}

/* Removes the item's old place in the queue and adds its new one. */
static void requeue(embedded *self, const char *name, const item *before, const item *it) {
    if (before && is_queued(before)) {
        key_text key = queue_key(self, before);
        fm_table_remove(self->table, bytes_of(&key));
    }
    if (it && is_queued(it)) {
        key_text key = queue_key(self, it);
        fm_table_put(self->table, bytes_of(&key), (fm_bytes){(const uint8_t *)name, strlen(name)});
    }
}

static void change_item(embedded *self, const char *name, const item *before, const item *it) {
    requeue(self, name, before, it);
    put_item(self, name, it);
}

static void copy_name(fm_bytes text, char out[FM_LIMIT_NAME_BYTES + 1]) {
    size_t n = text.size <= FM_LIMIT_NAME_BYTES ? text.size : FM_LIMIT_NAME_BYTES;
    memcpy(out, text.data, n);
    out[n] = '\0';
}

/* Finds the item of a lease. False when it does not exist, or a newer attempt or another worker has
 * it. The worker's name matters because attempt numbers begin again in a rebuilt catalogue. */
static bool get_leased(embedded *self, const fm_catalogue_lease *lease,
                       char name[FM_LIMIT_NAME_BYTES + 1], item *ret_item) {
    key_text key = id_key(self, lease->id);
    fm_bytes value;
    if (!fm_table_get(self->table, bytes_of(&key), &value)) return false;
    copy_name(value, name);
    return get_item(self, name, ret_item) && ret_item->attempt == lease->attempt &&
           self->base.options.worker && strcmp(ret_item->worker, self->base.options.worker) == 0;
}

static bool get_job(embedded *self, job *ret_job) {
    key_text key = key_of(self, 'j');
    fm_bytes value;
    if (!fm_table_get(self->table, bytes_of(&key), &value)) return false;
    fm_reader reader = fm_reader_of(value.data, value.size);
    read_hash(&reader, &ret_job->options);
    read_hash(&reader, &ret_job->listing);
    ret_job->has_listing = fm_read_u8(&reader) != 0;
    ret_job->next_id = fm_read_u64(&reader);
    return !reader.failed;
}

static void put_job(embedded *self, const job *it) {
    uint8_t value[128];
    fm_writer writer = fm_writer_of(value, sizeof value);
    fm_write_bytes(&writer, &it->options, sizeof it->options);
    fm_write_bytes(&writer, &it->listing, sizeof it->listing);
    fm_write_u8(&writer, it->has_listing);
    fm_write_u64(&writer, it->next_id);
    key_text key = key_of(self, 'j');
    fm_table_put(self->table, bytes_of(&key), (fm_bytes){value, writer.at});
}

static void see_worker(embedded *self) {
    const fm_catalogue_options *options = &self->base.options;
    if (!options->worker) return;
    uint8_t value[VALUE_BYTES];
    fm_writer writer = fm_writer_of(value, sizeof value);
    fm_write_u64(&writer, (uint64_t)now_ms());
    write_text(&writer, options->cache ? options->cache : "", TEXT_BYTES);
    key_text key = name_key(self, 'w', options->worker);
    fm_table_put(self->table, bytes_of(&key), (fm_bytes){value, writer.at});
}

/* Begins a transaction that changes an existing job. FM_ERR_NOT_FOUND. */
static fm_status begin_change(embedded *self, fm_error *reterr) {
    job it;
    fm_status status = fm_table_begin(self->table, true, reterr);
    if (status) return status;
    if (get_job(self, &it)) return FM_OK;
    status = fm_table_end(self->table, reterr);
    if (status) return status;
    return fm_fail_in(reterr, FM_ERR_NOT_FOUND, self->base.where, "there is no job '%s'",
                      self->base.options.job);
}

/* -- the list */

static void remove_item(embedded *self, const char *name, const item *it) {
    key_text key = name_key(self, 'i', name);
    requeue(self, name, it, NULL);
    fm_table_remove(self->table, bytes_of(&key));
    key = id_key(self, it->id);
    fm_table_remove(self->table, bytes_of(&key));
}

static void add_item(embedded *self, job *it, const char *name, item *added) {
    added->id = it->next_id++;
    key_text key = id_key(self, added->id);
    fm_table_put(self->table, bytes_of(&key), (fm_bytes){(const uint8_t *)name, strlen(name)});
    change_item(self, name, NULL, added);
}

/* Removes items that are not in the list. Both are sorted by name, so one pass suffices. */
static void remove_unlisted(embedded *self, const fm_catalogue_listing *listing) {
    key_text prefix = key_of(self, 'i'), from = prefix;
    fm_bytes key, value;
    uint32_t next = 0;
    while (seek(self, &prefix, &from, &key, &value)) {
        char name[FM_LIMIT_NAME_BYTES + 1];
        copy_name((fm_bytes){key.data + prefix.size, key.size - prefix.size}, name);
        from = after(key);
        while (next < listing->n && strcmp(listing->entry[next].name, name) < 0)
            next++;
        if (next < listing->n && strcmp(listing->entry[next].name, name) == 0) continue;
        item it = read_item(value);
        remove_item(self, name, &it);
    }
}

static void list_items(embedded *self, job *it, const fm_catalogue_listing *listing,
                       fm_catalogue_mode mode) {
    bool same_options = memcmp(&it->options, &listing->options, sizeof it->options) == 0;
    for (uint32_t i = 0; i < listing->n; i++) {
        const fm_catalogue_entry *entry = &listing->entry[i];
        item before, now = {.source = entry->source};
        if (!get_item(self, entry->name, &before)) {
            add_item(self, it, entry->name, &now);
            continue;
        }
        bool stays = mode != FM_CATALOGUE_AGAIN && same_options &&
                     memcmp(&before.source, &entry->source, sizeof before.source) == 0 &&
                     (before.state == FM_CATALOGUE_DONE || before.state == FM_CATALOGUE_LEASED);
        if (stays) continue;
        now.id = before.id;
        now.attempt = before.attempt;
        change_item(self, entry->name, &before, &now);
    }
}

/* Whether the holder of a lease was seen before now. A lease is as long as its holder's --lease,
 * from a time at which it was seen: an end far from now then says nothing about the clock. */
static bool was_seen_before(embedded *self, const char *worker, int64_t now) {
    key_text key = name_key(self, 'w', worker);
    fm_bytes value;
    if (!fm_table_get(self->table, bytes_of(&key), &value)) return false;
    fm_reader reader = fm_reader_of(value.data, value.size);
    return (int64_t)fm_read_u64(&reader) <= now;
}

/* A holder that was seen later than now was seen before the clock was set back. Its leases end with
 * one of now, lest a dead worker keep its items for the jump. Longer pauses end in the same way. */
static void clamp_queue(embedded *self, int64_t now) {
    const fm_catalogue_options *options = &self->base.options;
    key_text prefix = key_of(self, 'q'), from = prefix;
    fm_bytes key, value;
    add_number(&from, (uint64_t)now + options->lease_ms + 1);
    while (seek(self, &prefix, &from, &key, &value)) {
        char name[FM_LIMIT_NAME_BYTES + 1];
        item it, before;
        from = after(key);
        copy_name(value, name);
        if (!get_item(self, name, &before)) continue;
        bool is_leased = before.state == FM_CATALOGUE_LEASED;
        if (is_leased && was_seen_before(self, before.worker, now)) continue;
        uint64_t pause = before.failures ? fm_catalogue_backoff_ms(options, before.failures) : 0;
        int64_t last = now + (is_leased ? options->lease_ms : pause);
        if (before.due_ms <= last) continue;
        it = before;
        it.due_ms = last;
        change_item(self, name, &before, &it);
    }
}

static fm_status begin_job(fm_catalogue *catalogue, const fm_catalogue_listing *listing,
                           const fm_sha256 *hash, fm_catalogue_mode mode, fm_error *reterr) {
    embedded *self = (embedded *)catalogue;
    job it = {.options = listing->options, .next_id = 1};
    fm_status status = fm_table_begin(self->table, true, reterr);
    if (status) return status;
    bool known = get_job(self, &it);
    bool same_options = memcmp(&it.options, &listing->options, sizeof it.options) == 0;
    bool same = known && it.has_listing && memcmp(&it.listing, hash, sizeof *hash) == 0;
    if (known && !same && mode == FM_CATALOGUE_JOIN && (it.has_listing || !same_options)) {
        fm_table_abort(self->table);
        return fm_catalogue_fail_listing(catalogue, !same_options, reterr);
    }
    clamp_queue(self, now_ms()); /* before this worker is seen: an earlier one had its name */
    see_worker(self);
    if (!same || mode == FM_CATALOGUE_AGAIN) {
        remove_unlisted(self, listing);
        list_items(self, &it, listing, mode);
        it.options = listing->options;
        it.listing = *hash;
        it.has_listing = true;
        put_job(self, &it);
    }
    return fm_table_commit(self->table, reterr);
}

/* -- leases */

/* Claims one due item. False when its lease ran out once too often, and it is refused. */
static bool claim_one(embedded *self, const char *name, const item *before, int64_t now,
                      fm_catalogue_claim *ret_claim) {
    const fm_catalogue_options *options = &self->base.options;
    item it = *before;
    it.failures += before->state == FM_CATALOGUE_LEASED;
    if (it.failures >= options->max_failures) {
        it.state = FM_CATALOGUE_REFUSED;
        snprintf(it.reason, sizeof it.reason,
                 "%u attempts failed; the last worker, %s, was not heard of again", it.failures,
                 before->worker);
        change_item(self, name, before, &it);
        return false;
    }
    it.state = FM_CATALOGUE_LEASED;
    it.attempt++;
    it.due_ms = now + options->lease_ms;
    snprintf(it.worker, sizeof it.worker, "%s", options->worker);
    change_item(self, name, before, &it);
    ret_claim->lease = (fm_catalogue_lease){it.id, it.attempt};
    ret_claim->failures = it.failures;
    snprintf(ret_claim->name, sizeof ret_claim->name, "%s", name);
    return true;
}

static fm_status claim(fm_catalogue *catalogue, uint32_t max, fm_catalogue_claim *ret_claim,
                       uint32_t *ret_n, fm_error *reterr) {
    embedded *self = (embedded *)catalogue;
    fm_status status = begin_change(self, reterr);
    if (status) return status;
    int64_t now = now_ms();
    clamp_queue(self, now);
    key_text prefix = key_of(self, 'q'), from = prefix;
    fm_bytes key, value;
    uint32_t n = 0;
    bool alone = false;
    while (n < max && !alone && seek(self, &prefix, &from, &key, &value)) {
        char name[FM_LIMIT_NAME_BYTES + 1];
        item it;
        if ((int64_t)number_at(key, prefix.size) > now) break;
        from = after(key);
        copy_name(value, name);
        if (!get_item(self, name, &it)) continue;
        uint32_t failures = it.failures + (it.state == FM_CATALOGUE_LEASED);
        bool suspect = failures >= SUSPECT_FAILURES && failures < catalogue->options.max_failures;
        if (suspect && n) continue;
        if (!claim_one(self, name, &it, now, &ret_claim[n])) continue;
        alone = suspect;
        n++;
    }
    see_worker(self);
    status = fm_table_commit(self->table, reterr);
    if (!status) *ret_n = n;
    return status;
}

static fm_status heartbeat(fm_catalogue *catalogue, uint32_t n, const fm_catalogue_lease *lease,
                           bool *ret_held, fm_error *reterr) {
    embedded *self = (embedded *)catalogue;
    fm_status status = begin_change(self, reterr);
    if (status) return status;
    int64_t until = now_ms() + catalogue->options.lease_ms;
    for (uint32_t i = 0; i < n; i++) {
        char name[FM_LIMIT_NAME_BYTES + 1];
        item it, before;
        ret_held[i] =
            get_leased(self, &lease[i], name, &before) && before.state == FM_CATALOGUE_LEASED;
        if (!ret_held[i]) continue;
        it = before;
        it.due_ms = until;
        change_item(self, name, &before, &it);
    }
    see_worker(self);
    return fm_table_commit(self->table, reterr);
}

static fm_status complete(fm_catalogue *catalogue, uint32_t n,
                          const fm_catalogue_completion *completion, bool *ret_taken,
                          fm_error *reterr) {
    embedded *self = (embedded *)catalogue;
    fm_status status = begin_change(self, reterr);
    if (status) return status;
    for (uint32_t i = 0; i < n; i++) {
        char name[FM_LIMIT_NAME_BYTES + 1];
        item it, before;
        bool newest = get_leased(self, &completion[i].lease, name, &before);
        ret_taken[i] = newest && (before.state == FM_CATALOGUE_LEASED ||
                                  (before.state == FM_CATALOGUE_DONE &&
                                   !memcmp(&before.shard, &completion[i].shard, 32)));
        if (!ret_taken[i]) continue;
        it = before;
        it.state = FM_CATALOGUE_DONE;
        it.n_chain = completion[i].n_chain;
        it.has_shard = true;
        it.shard = completion[i].shard;
        it.reason[0] = '\0';
        change_item(self, name, &before, &it);
    }
    see_worker(self);
    return fm_table_commit(self->table, reterr);
}

static fm_status fail(fm_catalogue *catalogue, const fm_catalogue_lease *lease, const char *reason,
                      bool final, bool *ret_taken, fm_error *reterr) {
    embedded *self = (embedded *)catalogue;
    char name[FM_LIMIT_NAME_BYTES + 1];
    item it, before;
    fm_status status = begin_change(self, reterr);
    if (status) return status;
    bool taken = get_leased(self, lease, name, &before) && before.state == FM_CATALOGUE_LEASED;
    if (taken) {
        it = before;
        it.failures++;
        bool last = final || it.failures >= catalogue->options.max_failures;
        it.state = last ? FM_CATALOGUE_REFUSED : FM_CATALOGUE_PENDING;
        it.due_ms = now_ms() + (int64_t)fm_catalogue_backoff_ms(&catalogue->options, it.failures);
        snprintf(it.reason, sizeof it.reason, "%s", reason);
        change_item(self, name, &before, &it);
    }
    status = fm_table_commit(self->table, reterr);
    if (!status) *ret_taken = taken;
    return status;
}

static fm_status release(fm_catalogue *catalogue, uint32_t n, const fm_catalogue_lease *lease,
                         fm_error *reterr) {
    embedded *self = (embedded *)catalogue;
    fm_status status = begin_change(self, reterr);
    if (status) return status;
    for (uint32_t i = 0; i < n; i++) {
        char name[FM_LIMIT_NAME_BYTES + 1];
        item it, before;
        if (!get_leased(self, &lease[i], name, &before)) continue;
        if (before.state != FM_CATALOGUE_LEASED) continue;
        it = before;
        it.state = FM_CATALOGUE_PENDING;
        it.due_ms = now_ms();
        change_item(self, name, &before, &it);
    }
    return fm_table_commit(self->table, reterr);
}

/* -- shards and restored items */

static fm_status add_shard(fm_catalogue *catalogue, const fm_catalogue_shard *shard,
                           fm_error *reterr) {
    embedded *self = (embedded *)catalogue;
    uint8_t data[VALUE_BYTES];
    fm_bytes there;
    fm_status status = begin_change(self, reterr);
    if (status) return status;
    fm_writer writer = fm_writer_of(data, sizeof data);
    fm_write_u64(&writer, shard->info.bytes);
    fm_write_u32(&writer, shard->info.n_blob);
    fm_write_u32(&writer, shard->info.n_note);
    write_text(&writer, shard->worker, 256);
    write_text(&writer, shard->cache, TEXT_BYTES);
    key_text key = key_of(self, 's');
    add_bytes(&key, &shard->info.hash, sizeof shard->info.hash);
    if (!fm_table_get(self->table, bytes_of(&key), &there)) {
        fm_table_put(self->table, bytes_of(&key), (fm_bytes){data, writer.at});
    }
    return fm_table_commit(self->table, reterr);
}

static void restore_row(embedded *self, job *it, const fm_catalogue_row *row) {
    item before, now = {.state = row->state,
                        .attempt = row->attempt,
                        .n_chain = row->n_chain,
                        .source = row->source,
                        .has_shard = row->has_shard,
                        .shard = row->shard};
    snprintf(now.reason, sizeof now.reason, "%s", row->reason ? row->reason : "");
    snprintf(now.worker, sizeof now.worker, "%s", row->worker ? row->worker : "");
    if (!get_item(self, row->name, &before)) {
        add_item(self, it, row->name, &now);
    } else if (before.attempt < row->attempt) {
        now.id = before.id;
        change_item(self, row->name, &before, &now);
    }
}

static fm_status restore(fm_catalogue *catalogue, const fm_sha256 *options,
                         const fm_catalogue_row *row, uint32_t n, fm_error *reterr) {
    embedded *self = (embedded *)catalogue;
    job it = {.options = *options, .next_id = 1};
    fm_status status = fm_table_begin(self->table, true, reterr);
    if (status) return status;
    bool known = get_job(self, &it);
    if (known && memcmp(&it.options, options, sizeof *options) != 0) {
        fm_table_abort(self->table);
        return fm_catalogue_fail_listing(catalogue, true, reterr);
    }
    for (uint32_t i = 0; i < n; i++)
        restore_row(self, &it, &row[i]);
    put_job(self, &it);
    return fm_table_commit(self->table, reterr);
}

/* -- queries */

/* Ends the transaction of a query that has that status. */
static fm_status end_query(embedded *self, fm_status status, fm_error *reterr) {
    if (!status) return fm_table_end(self->table, reterr);
    fm_table_abort(self->table);
    return status;
}

static fm_status each_row(fm_catalogue *catalogue, unsigned states, fm_catalogue_see_row see,
                          void *context, fm_error *reterr) {
    embedded *self = (embedded *)catalogue;
    fm_status status = fm_table_begin(self->table, false, reterr);
    if (status) return status;
    int64_t now = now_ms();
    key_text prefix = key_of(self, 'i'), from = prefix;
    fm_bytes key, value;
    while (!status && seek(self, &prefix, &from, &key, &value)) {
        char name[FM_LIMIT_NAME_BYTES + 1];
        copy_name((fm_bytes){key.data + prefix.size, key.size - prefix.size}, name);
        from = after(key);
        item it = read_item(value);
        const fm_catalogue_row row = {.name = name,
                                      .source = it.source,
                                      .state = it.state,
                                      .attempt = it.attempt,
                                      .failures = it.failures,
                                      .n_chain = it.n_chain,
                                      .due_ms = it.due_ms - now,
                                      .worker = it.worker,
                                      .reason = it.reason,
                                      .has_shard = it.has_shard,
                                      .shard = it.shard};
        if (states >> it.state & 1) status = see(context, &row, reterr);
    }
    return end_query(self, status, reterr);
}

static fm_status each_shard(fm_catalogue *catalogue, fm_catalogue_see_shard see, void *context,
                            fm_error *reterr) {
    embedded *self = (embedded *)catalogue;
    fm_status status = fm_table_begin(self->table, false, reterr);
    if (status) return status;
    key_text prefix = key_of(self, 's'), from = prefix;
    fm_bytes key, value;
    while (!status && seek(self, &prefix, &from, &key, &value)) {
        char worker[256], cache[TEXT_BYTES];
        fm_catalogue_shard shard = {.worker = worker, .cache = cache};
        fm_reader place = fm_reader_of(key.data, key.size);
        (void)fm_read_borrow(&place, prefix.size);
        read_hash(&place, &shard.info.hash);
        fm_reader reader = fm_reader_of(value.data, value.size);
        shard.info.bytes = fm_read_u64(&reader);
        shard.info.n_blob = fm_read_u32(&reader);
        shard.info.n_note = fm_read_u32(&reader);
        read_text(&reader, worker, sizeof worker);
        read_text(&reader, cache, sizeof cache);
        from = after(key);
        status = see(context, &shard, reterr);
    }
    return end_query(self, status, reterr);
}

static fm_status left(fm_catalogue *catalogue, uint32_t *ret_n, int64_t *ret_next_due_ms,
                      fm_error *reterr) {
    embedded *self = (embedded *)catalogue;
    fm_status status = fm_table_begin(self->table, false, reterr);
    if (status) return status;
    key_text prefix = key_of(self, 'q'), from = prefix;
    fm_bytes key, value;
    int64_t next = INT64_MAX;
    uint32_t n = 0;
    for (; seek(self, &prefix, &from, &key, &value); n++) {
        if (n == 0) next = (int64_t)number_at(key, prefix.size) - now_ms();
        from = after(key);
    }
    status = fm_table_end(self->table, reterr);
    if (status) return status;
    *ret_n = n;
    *ret_next_due_ms = next > 0 ? next : 0;
    return FM_OK;
}

typedef struct counting {
    fm_catalogue_counts counts;
    const char *worker; /* worker whose items are counted; NULL = all */
} counting;

static fm_status count_row(void *context, const fm_catalogue_row *row, fm_error *reterr) {
    (void)reterr;
    counting *all = context;
    if (all->worker && strcmp(all->worker, row->worker) != 0) return FM_OK;
    all->counts.n[row->state]++;
    if (row->state != FM_CATALOGUE_PENDING && row->state != FM_CATALOGUE_LEASED) return FM_OK;
    all->counts.n_lapsed += row->state == FM_CATALOGUE_LEASED && row->due_ms <= 0;
    if (row->due_ms < all->counts.next_due_ms) all->counts.next_due_ms = row->due_ms;
    return FM_OK;
}

static fm_status count_shard(void *context, const fm_catalogue_shard *shard, fm_error *reterr) {
    (void)reterr;
    counting *all = context;
    all->counts.n_shard++;
    all->counts.shard_bytes += shard->info.bytes;
    return FM_OK;
}

static fm_status count(fm_catalogue *catalogue, fm_catalogue_counts *ret_counts, fm_error *reterr) {
    counting all = {.counts.next_due_ms = INT64_MAX};
    fm_status status = each_row(catalogue, ~0u, count_row, &all, reterr);
    if (!status) status = each_shard(catalogue, count_shard, &all, reterr);
    if (!status && all.counts.next_due_ms < 0) all.counts.next_due_ms = 0;
    if (!status) *ret_counts = all.counts;
    return status;
}

typedef struct worker_text {
    char name[256], cache[TEXT_BYTES];
    int64_t seen_ms;
} worker_text;

/* Reads the worker after the one named in `text` into `text`. */
static bool next_worker(embedded *self, worker_text *text, bool first) {
    key_text prefix = key_of(self, 'w'), from = name_key(self, 'w', first ? "" : text->name);
    fm_bytes key, value;
    if (!first) add_bytes(&from, "", 1);
    if (!seek(self, &prefix, &from, &key, &value)) return false;
    copy_name((fm_bytes){key.data + prefix.size, key.size - prefix.size}, text->name);
    fm_reader reader = fm_reader_of(value.data, value.size);
    text->seen_ms = now_ms() - (int64_t)fm_read_u64(&reader);
    if (text->seen_ms < 0) text->seen_ms = 0; /* the clock was set back */
    read_text(&reader, text->cache, sizeof text->cache);
    return true;
}

static fm_status each_worker(fm_catalogue *catalogue, fm_catalogue_see_worker see, void *context,
                             fm_error *reterr) {
    embedded *self = (embedded *)catalogue;
    worker_text text = {.name = ""};
    for (bool first = true;; first = false) {
        fm_status status = fm_table_begin(self->table, false, reterr);
        if (status) return status;
        bool found = next_worker(self, &text, first);
        status = fm_table_end(self->table, reterr);
        if (status || !found) return status;
        counting his = {.worker = text.name, .counts.next_due_ms = INT64_MAX};
        status = each_row(catalogue, ~0u, count_row, &his, reterr);
        const fm_catalogue_worker worker = {.name = text.name,
                                            .cache = text.cache,
                                            .seen_ms = text.seen_ms,
                                            .n_leased = his.counts.n[FM_CATALOGUE_LEASED],
                                            .n_done = his.counts.n[FM_CATALOGUE_DONE]};
        if (!status) status = see(context, &worker, reterr);
        if (status) return status;
    }
}

/* -- the file */

static void close_embedded(fm_catalogue *catalogue) {
    embedded *self = (embedded *)catalogue;
    fm_table_close(self->table);
    free((char *)(uintptr_t)catalogue->where);
    free(self);
}

fm_status fm_catalogue_open_embedded(const char *path, const fm_catalogue_options *options,
                                     fm_catalogue **ret_catalogue, fm_error *reterr) {
    embedded *self = calloc(1, sizeof *self);
    if (!self) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a catalogue");
    self->base = (fm_catalogue){.where = strdup(path),
                                .options = *options,
                                .close = close_embedded,
                                .begin = begin_job,
                                .claim = claim,
                                .heartbeat = heartbeat,
                                .add_shard = add_shard,
                                .complete = complete,
                                .fail = fail,
                                .release = release,
                                .restore = restore,
                                .left = left,
                                .count = count,
                                .each_row = each_row,
                                .each_shard = each_shard,
                                .each_worker = each_worker};
    fm_status status = fm_table_open(path, &self->table, reterr);
    if (status) {
        close_embedded(&self->base);
        return status;
    }
    *ret_catalogue = &self->base;
    return FM_OK;
}
