/* pickle.c: see pickle.h. Values are small structs on a stack, the contents of tuples and
 * dictionaries are in the arena. An instruction of n bytes adds O(n) bytes to it, so that its
 * maximum bounds what a hostile pickle can take. */
#include "proto/pickle.h"

#include "proto/base/utf8.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    MOST_STACK = 1 << 16, /* a batch of 1,000 pairs is what Python writes at once */
    MOST_MEMO = 1 << 22,
    MOST_VISITS = 1 << 22, /* entries of dictionaries, each time that one is met */
    MOST_WORD = 256,       /* bytes of a module or a name */
    DECIMAL_BYTES = 24,    /* of an integer as text */
};

/* Instructions, with the names of pickletools. */
enum {
    PROTO = 0x80,
    STOP = '.',
    MARK = '(',
    EMPTY_DICT = '}',
    EMPTY_LIST = ']',
    EMPTY_TUPLE = ')',
    TUPLE = 't',
    TUPLE1 = 0x85,
    TUPLE2 = 0x86,
    TUPLE3 = 0x87,
    BINPUT = 'q',
    LONG_BINPUT = 'r',
    BINGET = 'h',
    LONG_BINGET = 'j',
    BINUNICODE = 'X',
    GLOBAL = 'c',
    REDUCE = 'R',
    BUILD = 'b',
    BINPERSID = 'Q',
    BININT = 'J',
    BININT1 = 'K',
    BININT2 = 'M',
    LONG1 = 0x8a,
    BINFLOAT = 'G',
    NONE = 'N',
    NEWTRUE = 0x88,
    NEWFALSE = 0x89,
    SETITEM = 's',
    SETITEMS = 'u',
    APPEND = 'a',
    APPENDS = 'e',
};

typedef enum kind {
    A_MARK,
    AN_INTEGER,
    A_TEXT,
    A_TUPLE,
    A_DICT,
    A_LIST, /* without its contents */
    A_NAME, /* a row of the table of names */
    A_STORAGE,
    A_TENSOR,
    ANOTHER, /* None, a truth value, a float */
} kind;

typedef struct value {
    kind kind;
    uint32_t n; /* bytes of a text, items of a tuple, a row of the table of names */
    union {
        int64_t integer;
        const char *text;
        const struct value *items;
        struct dict *dict;
        const struct storage *storage;
        const fm_pickled_tensor *tensor;
    } of;
} value;

typedef struct dict {
    value *pair; /* [2 n] key and value */
    uint32_t n, room;
} dict;

typedef struct storage {
    const char *key;
    uint32_t type; /* a row of the table of names */
    uint64_t count;
} storage;

typedef enum role { AN_ORDERED_DICT, REBUILD_TENSOR, REBUILD_PARAMETER, A_STORAGE_TYPE } role;

static const struct {
    const char *module, *name;
    role role;
    const char *dtype;
    uint32_t item_bytes;
} names[] = {
    {"collections", "OrderedDict", AN_ORDERED_DICT, NULL, 0},
    {"torch._utils", "_rebuild_tensor_v2", REBUILD_TENSOR, NULL, 0},
    {"torch._utils", "_rebuild_parameter", REBUILD_PARAMETER, NULL, 0},
    {"torch", "FloatStorage", A_STORAGE_TYPE, "F32", 4},
    {"torch", "DoubleStorage", A_STORAGE_TYPE, "F64", 8},
    {"torch", "HalfStorage", A_STORAGE_TYPE, "F16", 2},
    {"torch", "BFloat16Storage", A_STORAGE_TYPE, "BF16", 2},
    {"torch", "LongStorage", A_STORAGE_TYPE, "I64", 8},
    {"torch", "IntStorage", A_STORAGE_TYPE, "I32", 4},
    {"torch", "ShortStorage", A_STORAGE_TYPE, "I16", 2},
    {"torch", "CharStorage", A_STORAGE_TYPE, "I8", 1},
    {"torch", "ByteStorage", A_STORAGE_TYPE, "U8", 1},
    {"torch", "BoolStorage", A_STORAGE_TYPE, "BOOL", 1},
};
enum { N_NAME = sizeof names / sizeof names[0] };

typedef struct machine {
    fm_reader in;
    fm_arena *arena;
    size_t at; /* offset of the instruction */
    value *stack;
    uint32_t n_stack;
    value *memo;
    uint32_t n_memo;
    fm_pickled_tensor *tensor; /* the result, while dictionaries are walked */
    size_t n_tensor;
    uint32_t n_visit;
    fm_error *error;
} machine;

static fm_status expected(const machine *m, const char *what) {
    return fm_fail_at(m->error, FM_ERR_FORMAT, 0, 0, m->at, "the pickle is malformed, expected %s",
                      what);
}

static fm_status beyond(const machine *m, const char *what, uint64_t most) {
    return fm_fail_at(m->error, FM_ERR_LIMIT, 0, 0, m->at,
                      "the pickle has more than %" PRIu64 " %s", most, what);
}

/* -- the stack */

static fm_status push(machine *m, value v) {
    if (m->n_stack == MOST_STACK) return beyond(m, "values on its stack", MOST_STACK);
    m->stack[m->n_stack++] = v;
    return FM_OK;
}

/* Takes the values above the last mark, and the mark; borrowed from the stack until the next
 * push. */
static fm_status pop_to_mark(machine *m, const value **ret_values, uint32_t *ret_n) {
    uint32_t at = m->n_stack;
    while (at > 0 && m->stack[at - 1].kind != A_MARK)
        at--;
    if (at == 0) return expected(m, "a mark on the stack");
    *ret_values = m->stack + at;
    *ret_n = m->n_stack - at;
    m->n_stack = at - 1;
    return FM_OK;
}

/* Takes n values, none of which is a mark; borrowed as above. */
static fm_status pop(machine *m, uint32_t n, const value **ret_values) {
    bool are_there = m->n_stack >= n;
    for (uint32_t i = 0; are_there && i < n; i++)
        are_there = m->stack[m->n_stack - 1 - i].kind != A_MARK;
    if (!are_there) return expected(m, "more values on the stack");
    m->n_stack -= n;
    *ret_values = m->stack + m->n_stack;
    return FM_OK;
}

static fm_status push_tuple(machine *m, const value *items, uint32_t n) {
    value *copy = fm_arena_alloc_array(m->arena, n, sizeof *copy);
    if (!copy) return fm_arena_full(m->arena, m->error);
    if (n) memcpy(copy, items, n * sizeof *copy);
    return push(m, (value){.kind = A_TUPLE, .n = n, .of.items = copy});
}

/* Copies a text and ends it. */
static fm_status copy_text(machine *m, const void *text, size_t bytes, const char **ret_text) {
    char *copy = fm_arena_alloc(m->arena, bytes + 1);
    if (!copy) return fm_arena_full(m->arena, m->error);
    memcpy(copy, text, bytes);
    copy[bytes] = '\0';
    *ret_text = copy;
    return FM_OK;
}

/* -- dictionaries */

static fm_status push_dict(machine *m) {
    dict *d = fm_arena_calloc(m->arena, 1, sizeof *d);
    if (!d) return fm_arena_full(m->arena, m->error);
    return push(m, (value){.kind = A_DICT, .of.dict = d});
}

static fm_status add_pairs(machine *m, dict *d, const value *pairs, uint32_t n) {
    if (n > d->room - d->n) {
        uint32_t room = d->n + n > 2 * d->room ? d->n + n : 2 * d->room;
        value *more = fm_arena_alloc_array(m->arena, (size_t)room * 2, sizeof *more);
        if (!more) return fm_arena_full(m->arena, m->error);
        if (d->n) memcpy(more, d->pair, (size_t)d->n * 2 * sizeof *more);
        d->pair = more;
        d->room = room;
    }
    memcpy(d->pair + (size_t)d->n * 2, pairs, (size_t)n * 2 * sizeof *pairs);
    d->n += n;
    return FM_OK;
}

/* The pairs follow the dictionary on the stack. Those of a marked batch are there already. */
static fm_status set_items(machine *m, const value *pairs, uint32_t n_value) {
    if (n_value % 2 != 0) return expected(m, "a value for every key");
    if (m->n_stack == 0 || m->stack[m->n_stack - 1].kind != A_DICT) {
        return expected(m, "a dictionary below the keys");
    }
    return n_value ? add_pairs(m, m->stack[m->n_stack - 1].of.dict, pairs, n_value / 2) : FM_OK;
}

/* Lists lose their contents. */
static fm_status append(const machine *m) {
    bool is_list = m->n_stack > 0 && m->stack[m->n_stack - 1].kind == A_LIST;
    return is_list ? FM_OK : expected(m, "a list below the values");
}

/* -- what names make */

static fm_status read_name(machine *m) {
    char words[2][MOST_WORD];
    for (int w = 0; w < 2; w++) {
        size_t n = 0;
        while (n < MOST_WORD) {
            char letter = (char)fm_read_u8(&m->in);
            if (m->in.failed) return expected(m, "a name");
            if (letter == '\n') break;
            words[w][n++] = letter;
        }
        if (n == MOST_WORD) return expected(m, "a name of at most 255 bytes");
        words[w][n] = '\0';
    }
    for (uint32_t i = 0; i < N_NAME; i++) {
        if (strcmp(words[0], names[i].module) == 0 && strcmp(words[1], names[i].name) == 0) {
            return push(m, (value){.kind = A_NAME, .n = i});
        }
    }
    fm_utf8_make_plain(words[0]);
    fm_utf8_make_plain(words[1]);
    return fm_fail_at(m->error, FM_ERR_UNSUPPORTED, 0, 0, m->at,
                      "the pickle asks for %.200s %.200s, which is no part of a table of tensors",
                      words[0], words[1]);
}

static bool is_type(const value *v) {
    return v->kind == A_NAME && names[v->n].role == A_STORAGE_TYPE;
}

/* ("storage", TYPE, KEY, LOCATION, COUNT) */
static fm_status read_storage(machine *m) {
    const value *id;
    fm_status status = pop(m, 1, &id);
    if (status) return status;
    const value *item = id->kind == A_TUPLE && id->n >= 5 ? id->of.items : NULL;
    if (!item || item[0].kind != A_TEXT || item[0].n != 7 ||
        memcmp(item[0].of.text, "storage", 7) != 0 || !is_type(&item[1]) ||
        item[2].kind != A_TEXT || item[2].n == 0 || item[2].n > FM_PICKLE_NAME_BYTES ||
        memchr(item[2].of.text, '\0', item[2].n) || item[4].kind != AN_INTEGER ||
        item[4].of.integer < 0) {
        return expected(m, "a storage: its type, its key and its number of elements");
    }
    storage *s = fm_arena_calloc(m->arena, 1, sizeof *s);
    if (!s) return fm_arena_full(m->arena, m->error);
    s->type = item[1].n;
    s->count = (uint64_t)item[4].of.integer;
    status = copy_text(m, item[2].of.text, item[2].n, &s->key);
    return status ? status : push(m, (value){.kind = A_STORAGE, .of.storage = s});
}

/* Reads the shape and the strides of a tensor. */
static fm_status read_shape(const machine *m, const value *size, const value *stride,
                            fm_pickled_tensor *t) {
    bool is_empty = false;
    if (size->kind != A_TUPLE || stride->kind != A_TUPLE || size->n != stride->n ||
        size->n > FM_PICKLE_RANK) {
        return expected(m, "a shape and strides of at most 8 dimensions");
    }
    t->rank = (int)size->n;
    t->count = 1;
    for (uint32_t i = 0; i < size->n; i++) {
        const value *extent = &size->of.items[i];
        if (extent->kind != AN_INTEGER || extent->of.integer < 0 ||
            stride->of.items[i].kind != AN_INTEGER) {
            return expected(m, "numbers in the shape of a tensor");
        }
        t->shape[i] = (uint64_t)extent->of.integer;
        is_empty = is_empty || t->shape[i] == 0;
        if (__builtin_mul_overflow(t->count, t->shape[i], &t->count)) {
            return expected(m, "a tensor of fewer than 2^64 elements");
        }
    }
    t->is_contiguous = true;
    uint64_t step = 1;
    for (uint32_t i = size->n; !is_empty && i-- > 0;) {
        /* The stride of an axis of one element says nothing. */
        int64_t found = stride->of.items[i].of.integer;
        if (t->shape[i] != 1 && (found < 0 || (uint64_t)found != step)) t->is_contiguous = false;
        step *= t->shape[i];
    }
    return FM_OK;
}

/* (STORAGE, OFFSET, SIZE, STRIDE, REQUIRES_GRAD, HOOKS) */
static fm_status rebuild_tensor(machine *m, const value *arguments) {
    const value *item = arguments->of.items;
    if (arguments->n < 6 || item[0].kind != A_STORAGE || item[1].kind != AN_INTEGER ||
        item[1].of.integer < 0) {
        return expected(m, "a tensor: its storage, its offset, its shape and its strides");
    }
    const storage *s = item[0].of.storage;
    fm_pickled_tensor *t = fm_arena_calloc(m->arena, 1, sizeof *t);
    if (!t) return fm_arena_full(m->arena, m->error);
    t->storage = s->key;
    t->dtype = names[s->type].dtype;
    t->item_bytes = names[s->type].item_bytes;
    t->storage_count = s->count;
    t->offset = (uint64_t)item[1].of.integer;
    fm_status status = read_shape(m, &item[2], &item[3], t);
    if (status) return status;
    if (t->is_contiguous && (t->offset > s->count || t->count > s->count - t->offset)) {
        return expected(m, "a tensor inside of its storage");
    }
    return push(m, (value){.kind = A_TENSOR, .of.tensor = t});
}

static fm_status reduce(machine *m) {
    const value *v;
    fm_status status = pop(m, 2, &v);
    if (status) return status;
    const value callee = v[0], arguments = v[1];
    if (callee.kind != A_NAME || arguments.kind != A_TUPLE) {
        return expected(m, "a name and its arguments");
    }
    switch (names[callee.n].role) {
    case AN_ORDERED_DICT:
        return arguments.n == 0 ? push_dict(m) : expected(m, "an empty OrderedDict");
    case REBUILD_TENSOR: return rebuild_tensor(m, &arguments);
    case REBUILD_PARAMETER:
        if (arguments.n < 1 || arguments.of.items[0].kind != A_TENSOR) {
            return expected(m, "a parameter's tensor");
        }
        return push(m, arguments.of.items[0]);
    default: return expected(m, "a name that makes a dictionary or a tensor");
    }
}

/* The state of an ordered dictionary is what a module notes about its version. */
static fm_status build(machine *m) {
    const value *state;
    fm_status status = pop(m, 1, &state);
    if (status) return status;
    bool is_dict = m->n_stack > 0 && m->stack[m->n_stack - 1].kind == A_DICT;
    return is_dict ? FM_OK : expected(m, "a dictionary below its state");
}

/* -- instructions */

static fm_status read_text(machine *m) {
    uint32_t bytes = fm_read_u32(&m->in);
    const uint8_t *text = fm_read_borrow(&m->in, bytes);
    if (!text) return expected(m, "a text inside of the pickle");
    return push(m, (value){.kind = A_TEXT, .n = bytes, .of.text = (const char *)text});
}

static fm_status push_integer(machine *m, int64_t integer) {
    return push(m, (value){.kind = AN_INTEGER, .of.integer = integer});
}

/* Two's complement of at most 8 bytes, the lowest first. */
static fm_status read_long(machine *m) {
    uint8_t bytes = fm_read_u8(&m->in);
    uint64_t number = 0;
    if (bytes > 8) return expected(m, "an integer of at most 8 bytes");
    for (uint8_t i = 0; i < bytes; i++)
        number |= (uint64_t)fm_read_u8(&m->in) << (8 * i);
    if (bytes > 0 && bytes < 8 && number >> (8 * bytes - 1) != 0) {
        number |= ~UINT64_C(0) << (8 * bytes);
    }
    return push_integer(m, (int64_t)number);
}

/* Python numbers what it remembers from 0 on. */
static fm_status put_memo(machine *m, uint32_t index) {
    if (m->n_stack == 0 || m->stack[m->n_stack - 1].kind == A_MARK) {
        return expected(m, "a value on the stack");
    }
    if (index > m->n_memo) return expected(m, "the next number of the memo");
    if (index == MOST_MEMO) return beyond(m, "remembered values", MOST_MEMO);
    m->memo[index] = m->stack[m->n_stack - 1];
    if (index == m->n_memo) m->n_memo++;
    return FM_OK;
}

static fm_status get_memo(machine *m, uint32_t index) {
    if (index >= m->n_memo) return expected(m, "a number that the memo has");
    return push(m, m->memo[index]);
}

static fm_status run_marked(machine *m, uint8_t code) {
    const value *values;
    uint32_t n;
    fm_status status = pop_to_mark(m, &values, &n);
    if (status) return status;
    return code == TUPLE      ? push_tuple(m, values, n)
           : code == SETITEMS ? set_items(m, values, n)
                              : append(m);
}

static fm_status run_fixed(machine *m, uint8_t code) {
    const uint32_t n = code == SETITEM || code == TUPLE2 ? 2 : code == TUPLE3 ? 3 : 1;
    const value *values;
    fm_status status = pop(m, n, &values);
    if (status) return status;
    return code == SETITEM  ? set_items(m, values, n)
           : code == APPEND ? append(m)
                            : push_tuple(m, values, n);
}

static fm_status run_one(machine *m, uint8_t code) {
    switch (code) {
    case PROTO:
        return fm_read_u8(&m->in) == 2 ? FM_OK : expected(m, "protocol 2, which torch.save writes");
    case MARK: return push(m, (value){.kind = A_MARK});
    case EMPTY_DICT: return push_dict(m);
    case EMPTY_LIST: return push(m, (value){.kind = A_LIST});
    case EMPTY_TUPLE: return push_tuple(m, NULL, 0);
    case TUPLE:
    case SETITEMS:
    case APPENDS: return run_marked(m, code);
    case TUPLE1:
    case TUPLE2:
    case TUPLE3:
    case SETITEM:
    case APPEND: return run_fixed(m, code);
    case BINPUT: return put_memo(m, fm_read_u8(&m->in));
    case LONG_BINPUT: return put_memo(m, fm_read_u32(&m->in));
    case BINGET: return get_memo(m, fm_read_u8(&m->in));
    case LONG_BINGET: return get_memo(m, fm_read_u32(&m->in));
    case BINUNICODE: return read_text(m);
    case GLOBAL: return read_name(m);
    case REDUCE: return reduce(m);
    case BUILD: return build(m);
    case BINPERSID: return read_storage(m);
    case BININT: return push_integer(m, (int32_t)fm_read_u32(&m->in));
    case BININT1: return push_integer(m, fm_read_u8(&m->in));
    case BININT2: return push_integer(m, fm_read_u16(&m->in));
    case LONG1: return read_long(m);
    case BINFLOAT: (void)fm_read_u64(&m->in); return push(m, (value){.kind = ANOTHER});
    case NONE:
    case NEWTRUE:
    case NEWFALSE: return push(m, (value){.kind = ANOTHER});
    default:
        return fm_fail_at(m->error, FM_ERR_UNSUPPORTED, 0, 0, m->at,
                          "the pickle has the instruction 0x%02x, which no table of tensors needs",
                          code);
    }
}

/* Runs all instructions; the pickle's object is then alone on the stack. */
static fm_status run(machine *m) {
    for (;;) {
        m->at = m->in.at;
        uint8_t code = fm_read_u8(&m->in);
        if (m->in.failed) return expected(m, "an instruction; the pickle is cut off");
        if (code == STOP) break;
        fm_status status = run_one(m, code);
        if (status) return status;
        if (m->in.failed) return expected(m, "a whole instruction; the pickle is cut off");
    }
    if (m->n_stack != 1 || m->stack[0].kind != A_DICT) {
        return expected(m, "a dictionary, and nothing else, at the end");
    }
    return FM_OK;
}

/* -- from dictionaries to names */

typedef struct path {
    char text[FM_PICKLE_NAME_BYTES + 1];
    size_t bytes;
} path;

/* Adds a key to a path; false where it is no part of a name: not a text or a number, with control
 * bytes, or too long. */
static bool extend(path *p, const value *key) {
    char number[DECIMAL_BYTES];
    const char *text = key->of.text;
    size_t bytes = key->n;
    if (key->kind == AN_INTEGER) {
        bytes = (size_t)snprintf(number, sizeof number, "%" PRId64, key->of.integer);
        text = number;
    } else if (key->kind != A_TEXT) {
        return false;
    }
    const size_t dot = p->bytes > 0;
    bool is_plain = bytes > 0 && bytes + dot <= FM_PICKLE_NAME_BYTES - p->bytes &&
                    fm_utf8_is_whole(text, bytes);
    for (size_t i = 0; is_plain && i < bytes; i++)
        is_plain = (unsigned char)text[i] >= ' ' && text[i] != 0x7f;
    if (!is_plain) return false;
    if (dot) p->text[p->bytes] = '.';
    memcpy(p->text + p->bytes + dot, text, bytes);
    p->bytes += bytes + dot;
    p->text[p->bytes] = '\0';
    return true;
}

static fm_status add_tensor(machine *m, const fm_pickled_tensor *tensor, const path *p) {
    if (m->n_tensor == FM_PICKLE_TENSORS) return beyond(m, "tensors", FM_PICKLE_TENSORS);
    fm_pickled_tensor *to = &m->tensor[m->n_tensor];
    *to = *tensor;
    fm_status status = copy_text(m, p->text, p->bytes, &to->name);
    if (!status) m->n_tensor++;
    return status;
}

/* A place on the way through dictionaries: the entry that is next. */
typedef struct step {
    const dict *dict;
    uint32_t next;
    size_t bytes; /* of the path to the dictionary */
} step;

/* Lists the tensors that a dictionary leads to. A dictionary can be met on several ways, and can
 * even contain itself, so that the number of entries is bounded. */
static fm_status walk(machine *m, const dict *root) {
    step way[FM_PICKLE_DEPTH] = {{.dict = root}};
    path p = {.bytes = 0};
    for (int depth = 0; depth >= 0;) {
        step *s = &way[depth];
        if (s->next == s->dict->n) {
            depth--;
            continue;
        }
        const value *key = s->dict->pair + (size_t)s->next * 2, *content = key + 1;
        s->next++;
        if (++m->n_visit > MOST_VISITS) return beyond(m, "entries of dictionaries", MOST_VISITS);
        p.bytes = s->bytes;
        if (content->kind != A_TENSOR && content->kind != A_DICT) continue;
        bool is_name = extend(&p, key);
        fm_status status = FM_OK;
        if (content->kind == A_TENSOR) {
            if (!is_name) return expected(m, "names of at most 255 bytes for its tensors");
            status = add_tensor(m, content->of.tensor, &p);
        } else if (is_name) {
            if (++depth == FM_PICKLE_DEPTH) return beyond(m, "nested dictionaries", depth - 1);
            way[depth] = (step){.dict = content->of.dict, .bytes = p.bytes};
        }
        if (status) return status;
    }
    return FM_OK;
}

fm_status fm_pickle_read(fm_bytes pickle, fm_arena *arena, const fm_pickled_tensor **ret_tensor,
                         size_t *ret_n, fm_error *reterr) {
    if (pickle.size > FM_PICKLE_BYTES) {
        return fm_fail(reterr, FM_ERR_LIMIT, "the pickle has %zu bytes, expected at most %zu",
                       pickle.size, FM_PICKLE_BYTES);
    }
    /* No instruction adds more than one value, or remembers more than one. */
    const size_t most = pickle.size + 1;
    machine m = {
        .in = fm_reader_of(pickle.data, pickle.size),
        .arena = arena,
        .stack = fm_arena_alloc_array(arena, most < MOST_STACK ? most : MOST_STACK, sizeof(value)),
        .memo = fm_arena_alloc_array(arena, most < MOST_MEMO ? most : MOST_MEMO, sizeof(value)),
        .error = reterr,
    };
    if (!m.stack || !m.memo) return fm_arena_full(arena, reterr);
    fm_status status = run(&m);
    if (status) return status;
    m.tensor = fm_arena_alloc_array(arena, FM_PICKLE_TENSORS, sizeof *m.tensor);
    if (!m.tensor) return fm_arena_full(arena, reterr);
    status = walk(&m, m.stack[0].of.dict);
    if (status) return status;
    *ret_tensor = m.tensor;
    *ret_n = m.n_tensor;
    return FM_OK;
}
