/* pages.c: see pages.h. The names of fields in comments are those of LMDB's mdb.c. */
#include "cache/store/pages.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    PAGE_BYTES = 4096,
    PAGE_HEAD_BYTES = 16,
    NODE_HEAD_BYTES = 8,
    DATABASE_BYTES = 48, /* an MDB_db */
    PAGE_NUMBER_BYTES = 8,
    KEY_MAX = 511,
    DEPTH_MAX = 32, /* of LMDB's cursors */
    HEADS = 2,
    N_DATABASE = 2,
    /* Pages behind the end of the file that may have numbers: LMDB gives numbers out before it
     * writes, and a page that is free again by the end of its transaction is never written. */
    UNWRITTEN_MAX = 1 << 20,
};

/* Flags of pages. */
enum { IS_BRANCH = 1, IS_LEAF = 2, IS_OVERFLOW = 4, IS_META = 8 };
/* Flags of nodes in leaf pages. */
enum { HAS_OWN_PAGES = 1, IS_DATABASE = 2 };
/* Flags of trees. What the second bit and the others stand for is not written by us. */
enum { HAS_NUMBERS = 8, TREE_FLAGS = 0x7f };

#define MAGIC 0xbeefc0deu
#define NO_ROOT UINT64_MAX

typedef struct tree {
    uint64_t root, entries;
    uint32_t depth, flags;
} tree;

/* What a head page says. */
typedef struct head {
    tree free, main;
    uint64_t last_page, transaction;
} head;

/* One page of the path from the root to where a walk is. */
typedef struct level {
    uint8_t page[PAGE_BYTES];
    uint32_t n, next; /* nodes; the one to look at next */
    bool is_leaf;
} level;

struct fm_pages {
    int fd;
    bool has_databases;
    uint64_t file_bytes, n_page; /* n_page: numbers below it are in use */
    head head;
    struct {
        bool found;
        tree tree;
    } database[N_DATABASE];
    uint8_t *taken; /* [n_page] bits: pages that the walk has met */
    uint8_t *value; /* heap; of fm_pages_read */
    size_t value_max;
    level level[DEPTH_MAX];
};

static const char *const database_names[N_DATABASE] = {"blobs", "notes"};

/* -- reading */

static fm_status read_at(int fd, uint64_t at, void *out, size_t size, fm_error *reterr) {
    for (size_t done = 0; done < size;) {
        ssize_t got = pread(fd, (uint8_t *)out + done, size - done, (off_t)(at + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return fm_fail(reterr, FM_ERR_IO, "cannot read: %s", strerror(errno));
        if (got == 0) {
            return fm_fail(reterr, FM_ERR_CORRUPT, "page %llu lies behind the end of the file",
                           (unsigned long long)((at + done) / PAGE_BYTES));
        }
        done += (size_t)got;
    }
    return FM_OK;
}

static uint32_t u16_at(const uint8_t *bytes) {
    fm_reader reader = fm_reader_of(bytes, 2);
    return fm_read_u16(&reader);
}

static tree read_tree(fm_reader *reader) {
    tree read = {0};
    (void)fm_read_u32(reader);
    read.flags = fm_read_u16(reader);
    read.depth = fm_read_u16(reader);
    for (int i = 0; i < 3; i++)
        (void)fm_read_u64(reader); /* numbers of pages by kind, which nothing depends on */
    read.entries = fm_read_u64(reader);
    read.root = fm_read_u64(reader);
    return read;
}

/* -- the head pages */

static fm_status parse_head(const uint8_t page[PAGE_BYTES], uint64_t number, head *ret_head,
                            fm_error *reterr) {
    fm_reader reader = fm_reader_of(page, PAGE_BYTES);
    uint64_t own = fm_read_u64(&reader);
    (void)fm_read_u16(&reader);
    uint32_t flags = fm_read_u16(&reader);
    (void)fm_read_u32(&reader);
    uint32_t magic = fm_read_u32(&reader), version = fm_read_u32(&reader);
    (void)fm_read_borrow(&reader, 16); /* an address and the size of the writer's map */
    fm_reader size = reader;
    uint32_t page_bytes = fm_read_u32(&size);
    head read = {.free = read_tree(&reader), .main = read_tree(&reader)};
    read.last_page = fm_read_u64(&reader);
    read.transaction = fm_read_u64(&reader);
    if (own != number || flags != IS_META || magic != MAGIC || version != 1 ||
        page_bytes != PAGE_BYTES) {
        return fm_fail(reterr, FM_ERR_CORRUPT,
                       "head page %llu: found magic 0x%08x, version %u and pages of %u bytes, "
                       "expected 0x%08x, 1 and %d",
                       (unsigned long long)number, magic, version, page_bytes, MAGIC, PAGE_BYTES);
    }
    *ret_head = read;
    return FM_OK;
}

/* LMDB writes the head pages in turn. So their transactions are neighbours, the even one is in the
 * first page; a new file has 0 twice. Another pair is damage: the older state would look newer. One
 * read takes both, since other processes may write them meanwhile. */
static fm_status read_newest(int fd, head *ret_head, uint64_t *ret_file_bytes, fm_error *reterr) {
    struct stat info;
    uint8_t pages[HEADS * PAGE_BYTES];
    head found[HEADS];
    if (fstat(fd, &info) != 0) {
        return fm_fail(reterr, FM_ERR_IO, "cannot look at: %s", strerror(errno));
    }
    fm_status status = read_at(fd, 0, pages, sizeof pages, reterr);
    for (uint64_t i = 0; i < HEADS && !status; i++)
        status = parse_head(pages + i * PAGE_BYTES, i, &found[i], reterr);
    if (status) return status;
    uint64_t even = found[0].transaction, odd = found[1].transaction;
    bool is_pair = (even == 0 && odd == 0) ||
                   (even % 2 == 0 && (odd == even + 1 || (even && odd == even - 1)));
    if (!is_pair) {
        return fm_fail(reterr, FM_ERR_CORRUPT,
                       "the head pages are of transactions %llu and %llu, expected neighbours",
                       (unsigned long long)even, (unsigned long long)odd);
    }
    *ret_head = found[odd > even];
    *ret_file_bytes = (uint64_t)info.st_size;
    uint64_t last = ret_head->last_page;
    if (last >= 1 && last < *ret_file_bytes / PAGE_BYTES + UNWRITTEN_MAX) return FM_OK;
    return fm_fail(reterr, FM_ERR_CORRUPT, "page %llu is said to be the last one of %llu bytes",
                   (unsigned long long)last, (unsigned long long)*ret_file_bytes);
}

fm_status fm_pages_check_heads(int fd, fm_error *reterr) {
    head newest;
    uint64_t file_bytes;
    return read_newest(fd, &newest, &file_bytes, reterr);
}

/* -- one page */

static fm_status fail_page(uint64_t page, const char *what, fm_error *reterr) {
    return fm_fail(reterr, FM_ERR_CORRUPT, "page %llu %s", (unsigned long long)page, what);
}

/* Marks pages as met; FM_ERR_CORRUPT when one was met before, or is none of the file's. */
static fm_status take(fm_pages *pages, uint64_t first, uint64_t n, fm_error *reterr) {
    if (first < HEADS || first >= pages->n_page || n > pages->n_page - first) {
        return fail_page(first, "is named, and the file has no such page", reterr);
    }
    for (uint64_t page = first; page < first + n; page++) {
        uint8_t bit = (uint8_t)(1u << page % 8);
        if (pages->taken[page / 8] & bit) return fail_page(page, "is used twice", reterr);
        pages->taken[page / 8] |= bit;
    }
    return FM_OK;
}

typedef struct node {
    uint64_t child; /* in a branch page */
    uint32_t value_bytes, flags;
    fm_bytes key;
    const uint8_t *value;
    size_t bytes; /* of the node */
} node;

/* Reads a node, and checks that it lies within the page behind the pointers. */
static bool read_node(const level *at, uint32_t index, node *ret_node) {
    const uint8_t *page = at->page;
    uint32_t first = u16_at(page + 14); /* mp_upper: where the nodes begin */
    uint32_t start = u16_at(page + PAGE_HEAD_BYTES + 2 * (size_t)index);
    if (start < first || start % 2 || start > PAGE_BYTES - NODE_HEAD_BYTES) return false;
    fm_reader reader = fm_reader_of(page + start, PAGE_BYTES - start);
    uint64_t low = fm_read_u16(&reader), high = fm_read_u16(&reader);
    node read = {.flags = fm_read_u16(&reader)};
    read.key.size = fm_read_u16(&reader);
    read.key.data = fm_read_borrow(&reader, read.key.size);
    size_t stored = 0;
    if (at->is_leaf) {
        read.value_bytes = (uint32_t)(low | high << 16);
        stored = read.flags & HAS_OWN_PAGES ? PAGE_NUMBER_BYTES : read.value_bytes;
    } else {
        read.child = low | high << 16 | (uint64_t)read.flags << 32;
    }
    read.value = fm_read_borrow(&reader, stored);
    read.bytes = (reader.at + 1) & ~(size_t)1;
    *ret_node = read;
    return !reader.failed && read.key.size <= KEY_MAX && start + read.bytes <= PAGE_BYTES &&
           (!at->is_leaf || (read.key.size > 0 && !(read.flags & ~3u)));
}

/* The nodes of a page fill it from their first to its end, and none overlaps another: LMDB moves
 * them by their sizes when it writes. */
static bool has_packed_nodes(const level *at) {
    uint8_t covered[PAGE_BYTES / 2] = {0};
    size_t sum = 0;
    for (uint32_t i = 0; i < at->n; i++) {
        node found;
        if (!read_node(at, i, &found)) return false;
        size_t start = u16_at(at->page + PAGE_HEAD_BYTES + 2 * (size_t)i);
        for (size_t word = start / 2; word < (start + found.bytes) / 2; word++) {
            if (covered[word]) return false;
            covered[word] = 1;
        }
        sum += found.bytes;
    }
    return sum == PAGE_BYTES - u16_at(at->page + 14);
}

static fm_status load_page(fm_pages *pages, uint64_t number, uint32_t depth, bool is_leaf,
                           fm_error *reterr) {
    level *at = &pages->level[depth];
    fm_status status = take(pages, number, 1, reterr);
    if (!status) status = read_at(pages->fd, number * PAGE_BYTES, at->page, PAGE_BYTES, reterr);
    if (status) return status;
    fm_reader reader = fm_reader_of(at->page, PAGE_HEAD_BYTES);
    uint64_t own = fm_read_u64(&reader);
    (void)fm_read_u16(&reader);
    uint32_t flags = fm_read_u16(&reader), lower = fm_read_u16(&reader);
    uint32_t upper = fm_read_u16(&reader);
    if (own != number) return fail_page(number, "has the number of another", reterr);
    if (flags != (is_leaf ? IS_LEAF : IS_BRANCH)) {
        return fail_page(number, is_leaf ? "is no leaf of its tree" : "is no branch of its tree",
                         reterr);
    }
    at->is_leaf = is_leaf;
    at->next = 0;
    at->n = lower >= PAGE_HEAD_BYTES ? (lower - PAGE_HEAD_BYTES) / 2 : 0;
    bool is_good = lower % 2 == 0 && lower <= upper && upper <= PAGE_BYTES &&
                   at->n >= (is_leaf ? 1 : 2) && has_packed_nodes(at);
    return is_good ? FM_OK : fail_page(number, "has nodes where none can lie", reterr);
}

/* -- a walk */

typedef struct walk {
    fm_pages *pages;
    const tree *tree;
    bool may_have_databases;
    fm_pages_see see; /* NULL: only the checks */
    void *context;
    uint64_t count;
    uint8_t last[KEY_MAX];
    size_t last_bytes;
    bool has_last, is_floor; /* is_floor: `last` is a branch's key, which the next one may equal */
} walk;

static int compare(const walk *self, fm_bytes key) {
    if (self->tree->flags & HAS_NUMBERS) {
        fm_reader a = fm_reader_of(self->last, self->last_bytes);
        fm_reader b = fm_reader_of(key.data, key.size);
        uint64_t last = fm_read_u64(&a), next = fm_read_u64(&b);
        return last < next ? -1 : last > next;
    }
    size_t common = self->last_bytes < key.size ? self->last_bytes : key.size;
    int order = memcmp(self->last, key.data, common);
    if (order) return order;
    return self->last_bytes < key.size ? -1 : self->last_bytes > key.size;
}

/* Whether the key follows those before it; it is then the last one. */
static bool follows(walk *self, fm_bytes key, bool is_floor) {
    if (self->tree->flags & HAS_NUMBERS && key.size != 8) return false;
    int order = self->has_last ? compare(self, key) : -1;
    if (order > 0 || (order == 0 && !(self->is_floor && !is_floor))) return false;
    memcpy(self->last, key.data, key.size);
    self->last_bytes = key.size;
    self->has_last = true;
    self->is_floor = is_floor;
    return true;
}

/* Checks the pages that a value has for itself, and finds where it begins. */
static fm_status find_value(walk *self, const node *found, fm_pages_entry *entry,
                            fm_error *reterr) {
    fm_pages *pages = self->pages;
    uint8_t page[PAGE_HEAD_BYTES];
    fm_reader reader = fm_reader_of(found->value, PAGE_NUMBER_BYTES);
    uint64_t first = fm_read_u64(&reader);
    uint64_t needed =
        ((uint64_t)PAGE_HEAD_BYTES + found->value_bytes + PAGE_BYTES - 1) / PAGE_BYTES;
    fm_status status = take(pages, first, needed, reterr);
    if (!status) status = read_at(pages->fd, first * PAGE_BYTES, page, sizeof page, reterr);
    if (status) return status;
    reader = fm_reader_of(page, sizeof page);
    uint64_t own = fm_read_u64(&reader);
    (void)fm_read_u16(&reader);
    uint32_t flags = fm_read_u16(&reader), n = fm_read_u32(&reader);
    if (own != first || flags != IS_OVERFLOW || n < needed) {
        return fail_page(first, "does not begin the value that is said to be there", reterr);
    }
    /* When a shorter value replaces a longer one, LMDB keeps all of its pages. */
    status = n > needed ? take(pages, first + needed, n - needed, reterr) : FM_OK;
    if (status) return status;
    entry->offset = first * PAGE_BYTES + PAGE_HEAD_BYTES;
    if (entry->offset + entry->value_bytes > pages->file_bytes) {
        return fail_page(first, "begins a value that ends behind the end of the file", reterr);
    }
    return FM_OK;
}

static fm_status see_node(walk *self, const level *at, const node *found, fm_error *reterr) {
    fm_reader number = fm_reader_of(at->page, 8);
    uint64_t page = fm_read_u64(&number);
    if (!follows(self, found->key, false)) return fail_page(page, "has keys out of order", reterr);
    bool is_database = found->flags & IS_DATABASE;
    if (is_database && !self->pages->has_databases) {
        return fm_fail(reterr, FM_ERR_UNSUPPORTED, "page %llu names a database, which no table has",
                       (unsigned long long)page);
    }
    if (is_database != self->may_have_databases ||
        (is_database && found->value_bytes != DATABASE_BYTES)) {
        return fail_page(page, is_database ? "names a database" : "names no database", reterr);
    }
    fm_pages_entry entry = {.key = found->key,
                            .value_bytes = found->value_bytes,
                            .is_apart = found->flags & HAS_OWN_PAGES,
                            .near = found->value};
    fm_status status = FM_OK;
    if (entry.is_apart) {
        status = is_database ? fail_page(page, "has a database apart", reterr)
                             : find_value(self, found, &entry, reterr);
    } else {
        entry.offset = page * PAGE_BYTES + (uint64_t)(found->value - at->page);
    }
    self->count++;
    if (!status && self->see) status = self->see(self->context, &entry, reterr);
    return status;
}

/* Goes through a tree, from leaf to leaf. Every step takes a page that was not met before, or ends
 * a node, so the walk ends. */
static fm_status walk_tree(walk *self, fm_error *reterr) {
    fm_pages *pages = self->pages;
    const tree *all = self->tree;
    if (all->depth > DEPTH_MAX || (all->depth == 0) != (all->root == NO_ROOT)) {
        return fm_fail(reterr, FM_ERR_CORRUPT, "a tree of depth %u has its root in page %llu",
                       all->depth, (unsigned long long)all->root);
    }
    uint32_t depth = 0;
    bool is_done = all->depth == 0;
    fm_status status = FM_OK;
    if (!is_done) status = load_page(pages, all->root, 0, all->depth == 1, reterr);
    while (!status && !is_done) {
        level *at = &pages->level[depth];
        node found;
        if (at->next == at->n) {
            is_done = depth == 0;
            depth -= !is_done;
            continue;
        }
        uint32_t index = at->next++;
        if (!read_node(at, index, &found)) {
            status = fail_page(all->root, "or one below it changed while it was read", reterr);
        } else if (at->is_leaf) {
            status = see_node(self, at, &found, reterr);
        } else if (index && !follows(self, found.key, true)) {
            status = fail_page(found.child, "is named by a key out of order", reterr);
        } else {
            depth++;
            status = load_page(pages, found.child, depth, depth + 1 == all->depth, reterr);
        }
    }
    if (status || self->count == all->entries) return status;
    return fm_fail(reterr, FM_ERR_CORRUPT, "a tree has %llu entries, its record says %llu",
                   (unsigned long long)self->count, (unsigned long long)all->entries);
}

/* -- all trees */

/* A record of free pages: their number, then the pages, descending. */
static fm_status see_free(void *context, const fm_pages_entry *entry, fm_error *reterr) {
    fm_pages *pages = context;
    fm_bytes list;
    fm_status status = fm_pages_read(pages, entry, SIZE_MAX, &list, reterr);
    if (status) return status;
    fm_reader reader = fm_reader_of(list.data, list.size);
    uint64_t n = fm_read_u64(&reader), before = UINT64_MAX;
    if (reader.failed || n > fm_reader_left(&reader) / 8) {
        return fm_fail(reterr, FM_ERR_CORRUPT, "a list of free pages is longer than its record");
    }
    for (uint64_t i = 0; i < n && !status; i++) {
        uint64_t page = fm_read_u64(&reader);
        status = page < before ? take(pages, page, 1, reterr)
                               : fail_page(page, "is out of order in a list of free pages", reterr);
        before = page;
    }
    return status;
}

static fm_status see_database(void *context, const fm_pages_entry *entry, fm_error *reterr) {
    fm_pages *pages = context;
    for (size_t i = 0; i < N_DATABASE; i++) {
        const char *name = database_names[i];
        size_t bytes = strlen(name);
        if (entry->key.size != bytes || memcmp(entry->key.data, name, bytes) != 0) continue;
        fm_reader reader = fm_reader_of(entry->near, DATABASE_BYTES);
        pages->database[i].tree = read_tree(&reader);
        pages->database[i].found = true;
        return FM_OK;
    }
    return fm_fail(reterr, FM_ERR_CORRUPT, "the file has a database that no shard has");
}

static fm_status check_tree(fm_pages *pages, const tree *all, uint32_t flags, fm_pages_see see,
                            fm_error *reterr) {
    if ((all->flags & TREE_FLAGS) != flags) {
        return fm_fail(reterr, FM_ERR_CORRUPT, "a tree has the flags 0x%x, expected 0x%x",
                       all->flags & TREE_FLAGS, flags);
    }
    walk self = {.pages = pages, .tree = all, .see = see, .context = pages};
    self.may_have_databases = see == see_database;
    return walk_tree(&self, reterr);
}

static fm_status check_trees(fm_pages *pages, fm_error *reterr) {
    fm_status status = check_tree(pages, &pages->head.free, HAS_NUMBERS, see_free, reterr);
    if (!status) {
        status = check_tree(pages, &pages->head.main, 0, pages->has_databases ? see_database : NULL,
                            reterr);
    }
    for (size_t i = 0; i < N_DATABASE && pages->has_databases && !status; i++) {
        if (!pages->database[i].found) {
            status =
                fm_fail(reterr, FM_ERR_CORRUPT, "the file has no database %s", database_names[i]);
        } else {
            status = check_tree(pages, &pages->database[i].tree, 0, NULL, reterr);
        }
    }
    return status;
}

fm_status fm_pages_open(int fd, bool has_databases, fm_pages **ret_pages, fm_error *reterr) {
    fm_pages *pages = calloc(1, sizeof *pages);
    if (!pages) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for pages");
    pages->fd = fd;
    pages->has_databases = has_databases;
    fm_status status = read_newest(fd, &pages->head, &pages->file_bytes, reterr);
    if (!status) {
        pages->n_page = pages->head.last_page + 1;
        pages->taken = calloc(pages->n_page / 8 + 1, 1);
        if (!pages->taken) status = fm_fail(reterr, FM_ERR_NOMEM, "no memory for pages");
    }
    if (!status) status = check_trees(pages, reterr);
    if (status) {
        fm_pages_close(pages);
        return status;
    }
    *ret_pages = pages;
    return FM_OK;
}

void fm_pages_close(fm_pages *pages) {
    if (!pages) return;
    free(pages->taken);
    free(pages->value);
    free(pages);
}

uint64_t fm_pages_transaction(const fm_pages *pages) {
    return pages->head.transaction;
}

fm_status fm_pages_walk(fm_pages *pages, const char *database, fm_pages_see see, void *context,
                        uint32_t *ret_count, fm_error *reterr) {
    walk self = {.pages = pages, .tree = &pages->head.main, .see = see, .context = context};
    for (size_t i = 0; i < N_DATABASE && database; i++) {
        if (strcmp(database, database_names[i]) == 0) self.tree = &pages->database[i].tree;
    }
    memset(pages->taken, 0, pages->n_page / 8 + 1);
    fm_status status = walk_tree(&self, reterr);
    if (!status && self.count > UINT32_MAX) {
        status = fm_fail(reterr, FM_ERR_LIMIT, "a database has more than 2^32 entries");
    }
    if (!status) *ret_count = (uint32_t)self.count;
    return status;
}

fm_status fm_pages_read(fm_pages *pages, const fm_pages_entry *entry, size_t most,
                        fm_bytes *ret_value, fm_error *reterr) {
    size_t size = entry->value_bytes < most ? (size_t)entry->value_bytes : most;
    if (!entry->is_apart) {
        *ret_value = (fm_bytes){entry->near, size};
        return FM_OK;
    }
    if (size > pages->value_max) {
        uint8_t *grown = realloc(pages->value, size);
        if (!grown) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a value");
        pages->value = grown;
        pages->value_max = size;
    }
    *ret_value = (fm_bytes){pages->value, size};
    return read_at(pages->fd, entry->offset, pages->value, size, reterr);
}
