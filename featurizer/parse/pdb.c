/* pdb.c: see pdb.h.
 *
 * The file is read line by line. A residue is open while its records follow each other. Its atoms
 * go directly into row table.n of the residue table, and closing it advances table.n if it has any
 * atom. After the last line, check_places() sorts the residues by key to find residues that occur
 * twice, and gather() copies the residues so that each chain is contiguous. */
#include "featurizer/parse/pdb.h"

#include "featurizer/parse/decimal.h"
#include "featurizer/parse/lines.h"
#include "proto/chem/residue.h"
#include "proto/limits.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The key of a residue: consecutive records with equal keys belong together. */
typedef struct residue_key {
    uint8_t chain, hetero, insertion; /* hetero: ' ', 'H', or 'W' for water */
    char name[3];                     /* padded with blanks */
    int32_t number;
} residue_key;

typedef struct residue_place {
    residue_key key;
    uint32_t index; /* of the residue, in file order */
    uint64_t line;  /* of its first atom */
    size_t offset;
} residue_place;

/* Residues in file order. */
typedef struct residue_table {
    uint32_t n, capacity;
    char *sequence;        /* [capacity + 1] */
    float *positions;      /* [capacity, 37, 3] */
    uint8_t *mask;         /* [capacity, 37] */
    float *confidence;     /* [capacity] */
    residue_place *places; /* [capacity] */
} residue_table;

/* The atoms of the residue being read; row table.n of the residue table holds their coordinates. */
typedef struct current_residue {
    bool is_open, has_atoms, is_kept;
    residue_key key;
    struct {
        char raw[4]; /* columns 13-16 */
        bool has_alternatives;
        double occupancy;
        double b_factor;
    } atom[FM_N_ATOM37];
} current_residue;

typedef struct reader {
    fm_bytes text;
    fm_line line;
    bool compat;
    bool in_model; /* a model has begun and not ended */
    uint32_t n_model;
    uint64_t n_atom;
    residue_table table;
    current_residue current;
    fm_error *reterr;
} reader;

/* Returns columns first..last of the line, from 1, without surrounding blanks; fewer where the line
 * is shorter. */
static fm_bytes field(const reader *r, size_t first, size_t last) {
    size_t begin = r->line.start + first - 1, end = r->line.start + last;
    if (end > r->line.stop) end = r->line.stop;
    if (begin > end) begin = end;
    while (begin < end && r->text.data[begin] == ' ')
        begin++;
    while (begin < end && r->text.data[end - 1] == ' ')
        end--;
    return (fm_bytes){r->text.data + begin, end - begin};
}

/* Returns one column, or a blank where the line is shorter. */
static uint8_t column(const reader *r, size_t number) {
    size_t at = r->line.start + number - 1;
    return at < r->line.stop ? r->text.data[at] : ' ';
}

static bool field_is(fm_bytes value, const char *text) {
    return value.size == strlen(text) && memcmp(value.data, text, value.size) == 0;
}

#define fail_at_column(r, status, at_column, ...)                                                  \
    fm_fail_at((r)->reterr, status, (r)->line.number, at_column, (r)->line.start + (at_column)-1,  \
               __VA_ARGS__)

/* Returns a byte for a message: itself, or '?' when it is not printable. */
static char shown(uint8_t byte) {
    return byte >= ' ' && byte < 0x7f ? (char)byte : '?';
}

static bool is_record(const reader *r, const char *name) {
    size_t n = strlen(name);
    return r->line.stop - r->line.start >= n && memcmp(r->text.data + r->line.start, name, n) == 0;
}

static bool is_atom(const reader *r) {
    return is_record(r, "ATOM  ") || is_record(r, "HETATM");
}

/* -- residues */

/* Counts how often the residue changes from one atom to the next, which is at least the number of
 * residues. */
static uint64_t count_residues(fm_bytes text) {
    reader r = {.text = text};
    fm_lines lines = fm_lines_of(text, false, 0, 1);
    uint8_t last[11] = {0};
    uint64_t n = 0;
    while (fm_lines_next(&lines, &r.line)) {
        uint8_t now[11] = {column(&r, 1)};
        if (!is_atom(&r)) continue;
        for (size_t i = 1; i < sizeof now; i++)
            now[i] = column(&r, 17 + i);
        n += memcmp(now, last, sizeof now) != 0;
        memcpy(last, now, sizeof last);
    }
    return n;
}

static fm_status init_table(residue_table *table, uint64_t capacity, fm_arena *arena,
                            fm_error *reterr) {
    *table = (residue_table){.capacity = (uint32_t)capacity};
    table->sequence = fm_arena_alloc(arena, capacity + 1);
    table->positions = fm_arena_alloc_array(arena, capacity * FM_N_ATOM37 * 3, sizeof(float));
    table->mask = fm_arena_alloc_array(arena, capacity, FM_N_ATOM37);
    table->confidence = fm_arena_alloc_array(arena, capacity, sizeof *table->confidence);
    table->places = fm_arena_alloc_array(arena, capacity, sizeof *table->places);
    bool full = !table->sequence || !table->positions || !table->mask || !table->confidence ||
                !table->places;
    return full ? fm_arena_full(arena, reterr) : FM_OK;
}

/* Returns the letter as the reference does: only the 20 names count, not modified residues. */
static char plain_letter(const char name[3]) {
    for (size_t i = 0; i < FM_N_RESTYPE; i++) {
        if (memcmp(fm_restype_names[i], name, 3) == 0) return fm_restype_letters[i];
    }
    return 'X';
}

static fm_status open_residue(reader *r, const residue_key *key) {
    residue_table *table = &r->table;
    r->current = (current_residue){.is_open = true, .key = *key};
    if (r->compat && key->insertion != ' ') {
        return fail_at_column(r, FM_ERR_DATA, 27,
                              "residue %d has the insertion code %c, which the reference refuses",
                              key->number, shown(key->insertion));
    }
    char letter = r->compat ? plain_letter(key->name) : fm_residue_letter(key->name, 3);
    r->current.is_kept = r->compat || key->hetero == ' ' || letter != 'X';
    if (!r->current.is_kept) return FM_OK;
    if (table->n == table->capacity || table->n == FM_LIMIT_N_RES) {
        return fail_at_column(r, FM_ERR_LIMIT, 1, "the file has more than %u residues",
                              FM_LIMIT_N_RES);
    }
    table->sequence[table->n] = letter;
    table->places[table->n] = (residue_place){*key, table->n, r->line.number, r->line.start};
    memset(table->positions + (size_t)table->n * FM_N_ATOM37 * 3, 0,
           FM_N_ATOM37 * 3 * sizeof *table->positions);
    memset(table->mask + (size_t)table->n * FM_N_ATOM37, 0, FM_N_ATOM37);
    return FM_OK;
}

/* Closes the open residue. A residue without atoms of known names does not count, and its row is
 * reused. */
static void close_residue(reader *r) {
    residue_table *table = &r->table;
    double highest = 0;
    if (!r->current.is_open || !r->current.has_atoms) return;
    for (size_t atom = 0; atom < FM_N_ATOM37; atom++) {
        bool present = table->mask[(size_t)table->n * FM_N_ATOM37 + atom];
        if (present && r->current.atom[atom].b_factor > highest) {
            highest = r->current.atom[atom].b_factor;
        }
    }
    table->confidence[table->n] = (float)(highest < 100.0 ? highest : 100.0);
    table->n++;
    r->current.is_open = false;
}

/* -- atoms */

/* Refuses what stands at a column; `what` names it ("x coordinate"). */
static fm_status refuse_field(const reader *r, size_t first, fm_bytes value, const char *what,
                              const char *expected) {
    char text[9] = {0};
    for (size_t i = 0; i < value.size && i < sizeof text - 1; i++)
        text[i] = shown(value.data[i]);
    return fail_at_column(r, FM_ERR_FORMAT, first, "the %s is '%s', expected %s", what, text,
                          expected);
}

/* Reads a number in columns first..last. */
static fm_status read_number(const reader *r, size_t first, size_t last, const char *what,
                             double *ret_value) {
    fm_bytes value = field(r, first, last);
    if (fm_decimal_parse(value.data, value.size, r->compat, ret_value)) return FM_OK;
    return refuse_field(r, first, value, what, "a number");
}

static fm_status read_key(const reader *r, residue_key *ret_key) {
    fm_bytes number = field(r, 23, 26), name = field(r, 18, 20);
    residue_key key = {.chain = column(r, 22), .insertion = column(r, 27), .hetero = ' '};
    if (is_record(r, "HETATM")) {
        key.hetero = field_is(name, "HOH") || field_is(name, "WAT") ? 'W' : 'H';
    }
    memset(key.name, ' ', sizeof key.name);
    memcpy(key.name, name.data, name.size);
    if (!fm_integer_parse(number.data, number.size, &key.number)) {
        return refuse_field(r, 23, number, "residue number", "a whole number");
    }
    *ret_key = key;
    return FM_OK;
}

/* Reads the B factor, which is the confidence. The reference takes an unreadable value as 0. */
static fm_status read_b_factor(const reader *r, double *ret_value) {
    double value = 0;
    fm_status status = read_number(r, 61, 66, "B factor", &value);
    if (r->compat) {
        if (status) value = 0;
        *ret_value = value;
        return FM_OK;
    }
    if (!status && !(value >= 0 && value <= 100)) {
        status = fail_at_column(r, FM_ERR_DATA, 61,
                                "the B factor is %g, expected a confidence of 0 to 100", value);
    }
    if (!status) *ret_value = value;
    return status;
}

/* Reads the occupancy; callers ask for it only where it matters. */
static fm_status read_occupancy(const reader *r, double *ret_value) {
    if (!r->compat && field(r, 55, 60).size == 0) {
        *ret_value = 1;
        return FM_OK;
    }
    return read_number(r, 55, 60, "occupancy", ret_value);
}

static uint8_t atom37_of(const reader *r) {
    fm_bytes name = field(r, 13, 16);
    bool is_selenium = field_is(name, "SE") && memcmp(r->current.key.name, "MSE", 3) == 0;
    if (is_selenium && !r->compat) return FM_ATOM37_SD;
    return fm_atom37_from_name(name.data, name.size);
}

/* Decides whether this row replaces the atom's earlier one. Compat follows Biopython: a row without
 * an alternative location, or with its name in other columns, never replaces one. The first row
 * with an alternative location replaces a row without one, unless its occupancy is lower. Later
 * rows must have a higher occupancy. */
static fm_status is_better(const reader *r, uint8_t atom, double occupancy, bool *ret_better) {
    bool is_alternative = column(r, 17) != ' ';
    const char *raw = r->current.atom[atom].raw;
    const char *name = fm_atom37_names[atom];
    bool same_columns = memcmp(raw, r->text.data + r->line.start + 12, 4) == 0;
    if (!r->compat && !is_alternative) {
        return fail_at_column(r, FM_ERR_DATA, 13, "atom %s of residue %d occurs twice", name,
                              r->current.key.number);
    }
    double earlier = r->current.atom[atom].occupancy;
    if (r->compat && (!is_alternative || !same_columns)) {
        *ret_better = false;
    } else if (r->compat && !r->current.atom[atom].has_alternatives) {
        *ret_better = !(earlier > occupancy);
    } else {
        *ret_better = occupancy > earlier;
    }
    return FM_OK;
}

static fm_status place_atom(reader *r, uint8_t atom, const double xyz[3]) {
    size_t cell = (size_t)r->table.n * FM_N_ATOM37 + atom;
    bool is_alternative = column(r, 17) != ' ', better = true;
    double occupancy = DBL_MAX, b_factor = 0;
    fm_status status = read_b_factor(r, &b_factor);
    if (!status && (is_alternative || !r->compat)) status = read_occupancy(r, &occupancy);
    if (!status && r->compat && !is_alternative && read_occupancy(r, &occupancy)) occupancy = 0;
    if (!status && r->table.mask[cell]) status = is_better(r, atom, occupancy, &better);
    if (status) return status;
    if (r->table.mask[cell]) r->current.atom[atom].has_alternatives |= is_alternative;
    if (!better) return FM_OK;
    if (!r->table.mask[cell]) {
        memcpy(r->current.atom[atom].raw, r->text.data + r->line.start + 12, 4);
        r->current.atom[atom].has_alternatives = is_alternative;
    }
    r->current.atom[atom].occupancy = occupancy;
    r->current.atom[atom].b_factor = b_factor;
    r->current.has_atoms = true;
    r->table.mask[cell] = 1;
    for (size_t axis = 0; axis < 3; axis++)
        r->table.positions[cell * 3 + axis] = (float)xyz[axis];
    return FM_OK;
}

static bool is_same_residue(const residue_key *a, const residue_key *b) {
    return a->chain == b->chain && a->hetero == b->hetero && a->insertion == b->insertion &&
           a->number == b->number && memcmp(a->name, b->name, sizeof a->name) == 0;
}

static fm_status read_atom(reader *r) {
    static const char *const axes[] = {"x coordinate", "y coordinate", "z coordinate"};
    residue_key key = {0};
    double xyz[3] = {0};
    fm_status status = read_key(r, &key);
    for (size_t axis = 0; axis < 3 && !status; axis++) {
        size_t first = 31 + 8 * axis;
        status = read_number(r, first, first + 7, axes[axis], &xyz[axis]);
        if (!status && !r->compat && !(fabs(xyz[axis]) <= (double)FLT_MAX)) {
            status = fail_at_column(r, FM_ERR_FORMAT, first, "the %s %g does not fit a float",
                                    axes[axis], xyz[axis]);
        }
    }
    if (status) return status;
    r->n_atom++;
    bool same = r->current.is_open && is_same_residue(&key, &r->current.key);
    if (!same) {
        close_residue(r);
        status = open_residue(r, &key);
        if (status || !r->current.is_kept) return status;
    }
    if (!r->current.is_kept) return FM_OK;
    uint8_t atom = atom37_of(r);
    return atom == FM_ATOM37_NONE ? FM_OK : place_atom(r, atom, xyz);
}

/* -- whole file */

/* Begins a model, at its record or at an atom without one. *ret_done is set when the rest is not
 * read. */
static fm_status begin_model(reader *r, bool *ret_done) {
    r->in_model = true;
    r->n_model++;
    if (r->n_model < 2) return FM_OK;
    *ret_done = true;
    if (!r->compat) return FM_OK;
    return fail_at_column(r, FM_ERR_DATA, 1,
                          "a second model begins; the reference reads only files with one model");
}

static fm_status read_line(reader *r, bool *ret_done) {
    if (is_record(r, "MODEL ")) return begin_model(r, ret_done);
    if (is_record(r, "ENDMDL")) {
        r->in_model = false;
        return FM_OK;
    }
    /* The reference recognises END only with its full six columns. */
    bool is_end = is_record(r, "END   ") || is_record(r, "CONECT") ||
                  (!r->compat && field_is(field(r, 1, 80), "END"));
    if (is_end) {
        *ret_done = r->n_model > 0;
        return FM_OK;
    }
    if (!is_atom(r)) return FM_OK;
    if (!r->in_model) {
        fm_status status = begin_model(r, ret_done);
        if (status || *ret_done) return status;
    }
    return read_atom(r);
}

static fm_status read_all(reader *r) {
    fm_lines lines = fm_lines_of(r->text, false, 0, 1);
    bool done = false;
    while (!done && fm_lines_next(&lines, &r->line)) {
        fm_status status = read_line(r, &done);
        if (status) return status;
    }
    close_residue(r);
    if (r->table.n > 0) return FM_OK;
    return fail_at_column(r, FM_ERR_DATA, 1, "the file has no residue with coordinates (%s)",
                          r->n_atom ? "no atom of a known name" : "no ATOM record");
}

/* Checks that the B factors can be pLDDT, which is below 1 nowhere in a whole file but on another
 * scale. */
static fm_status check_scale(const reader *r) {
    float highest = 0;
    for (uint32_t i = 0; i < r->table.n; i++) {
        if (r->table.confidence[i] > highest) highest = r->table.confidence[i];
    }
    if (r->compat || highest > 1) return FM_OK;
    const residue_place *first = &r->table.places[0];
    return fm_fail_at(r->reterr, FM_ERR_DATA, first->line, 61, first->offset + 60,
                      "the highest B factor of the prediction is %g, expected pLDDT on 0 to 100",
                      (double)highest);
}

/* -- chains */

static int compare_places(const void *left, const void *right) {
    const residue_place *a = left, *b = right;
    int order = memcmp(a->key.name, b->key.name, sizeof a->key.name);
    if (a->key.chain != b->key.chain) return a->key.chain < b->key.chain ? -1 : 1;
    if (a->key.number != b->key.number) return a->key.number < b->key.number ? -1 : 1;
    if (a->key.insertion != b->key.insertion) return a->key.insertion < b->key.insertion ? -1 : 1;
    if (a->key.hetero != b->key.hetero) return a->key.hetero < b->key.hetero ? -1 : 1;
    if (order && a->key.hetero == 'H') return order;
    return a->index < b->index ? -1 : a->index > b->index;
}

/* Compares places. The reference also distinguishes residues with equal numbers by the kind of
 * their records. */
static bool is_same_place(const reader *r, const residue_key *a, const residue_key *b) {
    if (a->chain != b->chain || a->number != b->number || a->insertion != b->insertion) {
        return false;
    }
    if (!r->compat) return true;
    return a->hetero == b->hetero &&
           (a->hetero != 'H' || memcmp(a->name, b->name, sizeof a->name) == 0);
}

static fm_status check_places(const reader *r, fm_arena *arena) {
    size_t n = r->table.n, mark = fm_arena_mark(arena);
    residue_place *sorted = fm_arena_alloc_array(arena, n, sizeof *sorted);
    fm_status status = FM_OK;
    if (!sorted) return fm_arena_full(arena, r->reterr);
    memcpy(sorted, r->table.places, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, compare_places);
    for (size_t i = 1; i < n && !status; i++) {
        const residue_place *a = &sorted[i - 1], *b = &sorted[i];
        if (!is_same_place(r, &a->key, &b->key)) continue;
        const residue_place *first = a->index < b->index ? a : b, *second = a == first ? b : a;
        status =
            fm_fail_at(r->reterr, FM_ERR_DATA, second->line, 23, second->offset + 22,
                       "residue %d of chain %c occurs already in line %llu", second->key.number,
                       shown(second->key.chain), (unsigned long long)first->line);
    }
    fm_arena_rewind(arena, mark);
    return status;
}

/* Lists the chains in the order of their first residues and assigns each a range of residues. */
static fm_status list_chains(const reader *r, fm_arena *arena, fm_pdb *pdb) {
    const residue_table *table = &r->table;
    fm_pdb_chain *chains = fm_arena_alloc_array(arena, 256, sizeof *chains);
    uint16_t number[256] = {0}; /* number of a chain id, from 1; 0 = not seen */
    if (!chains) return fm_arena_full(arena, r->reterr);
    for (uint32_t i = 0; i < table->n; i++) {
        const residue_place *place = &table->places[i];
        uint8_t id = place->key.chain;
        if (number[id]) {
            chains[number[id] - 1].n_res++;
            continue;
        }
        if (r->compat && !(id >= 'A' && id <= 'Z')) {
            return fm_fail_at(r->reterr, FM_ERR_DATA, place->line, 22, place->offset + 21,
                              "the chain's id is '%c'; the reference reads only A-Z", shown(id));
        }
        chains[pdb->n_chain] = (fm_pdb_chain){.id = {(char)id}, .n_res = 1};
        number[id] = (uint16_t)++pdb->n_chain;
    }
    for (uint32_t i = 1; i < pdb->n_chain; i++)
        chains[i].first = chains[i - 1].first + chains[i - 1].n_res;
    pdb->chains = chains;
    return FM_OK;
}

/* Copies the residues chain by chain. */
static fm_status gather(const reader *r, fm_arena *arena, fm_pdb *pdb) {
    const residue_table *from = &r->table;
    residue_table to;
    uint32_t next[256] = {0};
    fm_status status = init_table(&to, from->n, arena, r->reterr);
    if (status) return status;
    for (uint32_t i = 0; i < pdb->n_chain; i++)
        next[(uint8_t)pdb->chains[i].id[0]] = pdb->chains[i].first;
    for (size_t i = 0; i < from->n; i++) {
        size_t at = next[from->places[i].key.chain]++;
        to.sequence[at] = from->sequence[i];
        to.confidence[at] = from->confidence[i];
        memcpy(to.positions + at * FM_N_ATOM37 * 3, from->positions + i * FM_N_ATOM37 * 3,
               FM_N_ATOM37 * 3 * sizeof *to.positions);
        memcpy(to.mask + at * FM_N_ATOM37, from->mask + i * FM_N_ATOM37, FM_N_ATOM37);
    }
    to.sequence[from->n] = '\0';
    pdb->sequence = to.sequence;
    pdb->all_atom_positions = to.positions;
    pdb->all_atom_mask = to.mask;
    pdb->confidence = to.confidence;
    return FM_OK;
}

fm_status fm_pdb_parse(fm_bytes bytes, const fm_pdb_options *options, fm_arena *arena,
                       fm_pdb *ret_pdb, fm_error *reterr) {
    reader r = {.text = bytes, .compat = options->compat_openfold, .reterr = reterr};
    r.line = (fm_line){.number = 1};
    uint64_t capacity = count_residues(bytes);
    fm_status status =
        r.compat ? fm_text_check_utf8(bytes, reterr) : fm_text_check_kind(bytes, reterr);
    if (capacity > FM_LIMIT_N_RES) capacity = FM_LIMIT_N_RES;
    if (!status) status = init_table(&r.table, capacity, arena, reterr);
    if (!status) status = read_all(&r);
    if (!status) status = check_places(&r, arena);
    if (!status) status = check_scale(&r);
    if (status) return status;
    fm_pdb pdb = {.n_res = r.table.n, .n_atom = r.n_atom};
    status = list_chains(&r, arena, &pdb);
    if (!status) status = gather(&r, arena, &pdb);
    if (!status) *ret_pdb = pdb;
    return status;
}
