/* mmcif.c: scans an mmCIF file and reads its header; see mmcif.h and mmcif_internal.h.
 *
 * The scan sees each token once. For a loop, read_loop_names() notes which of its columns are
 * needed and at which place; then every row is cut by cif.c and only these places are read. Rows of
 * _atom_site are compared with the newest run: when the columns that identify the residue are
 * equal, the atom joins that run, else a new run begins. Nothing is interpreted yet except numbers.
 * After the scan, mmcif_polymer.c finds the protein chains, and mmcif_chains.c or mmcif_openfold.c
 * places the runs' atoms in them. */
#include "featurizer/parse/mmcif.h"

#include "featurizer/parse/decimal.h"
#include "featurizer/parse/mmcif_internal.h"
#include "proto/base/hash.h"
#include "proto/chem/residue.h"
#include "proto/limits.h"
#include "proto/record_part.h"

#include <assert.h>
#include <math.h>
#include <string.h>
#include <strings.h>

static const char *const column_names[N_COLUMN] = {
    [COLUMN_ENTRY_ID] = "_entry.id",
    [COLUMN_METHOD] = "_exptl.method",
    [COLUMN_EXPTL_ENTRY] = "_exptl.entry_id",
    [COLUMN_DATE] = "_pdbx_audit_revision_history.revision_date",
    [COLUMN_REFINE] = "_refine.ls_d_res_high",
    [COLUMN_EM] = "_em_3d_reconstruction.resolution",
    [COLUMN_REFLNS] = "_reflns.d_resolution_high",
    [COLUMN_POLY_ENTITY] = "_entity_poly_seq.entity_id",
    [COLUMN_POLY_NUM] = "_entity_poly_seq.num",
    [COLUMN_POLY_COMP] = "_entity_poly_seq.mon_id",
    [COLUMN_COMP_ID] = "_chem_comp.id",
    [COLUMN_COMP_TYPE] = "_chem_comp.type",
    [COLUMN_ASYM_ID] = "_struct_asym.id",
    [COLUMN_ASYM_ENTITY] = "_struct_asym.entity_id",
};

#define ATOM_PREFIX "_atom_site."
static const char *const atom_names[N_ATOM_COLUMN] = {
    [ATOM_COMP] = "label_comp_id",
    [ATOM_ASYM] = "label_asym_id",
    [ATOM_SEQ] = "label_seq_id",
    [ATOM_MODEL] = "pdbx_PDB_model_num",
    [ATOM_GROUP] = "group_PDB",
    [ATOM_AUTH_ASYM] = "auth_asym_id",
    [ATOM_AUTH_SEQ] = "auth_seq_id",
    [ATOM_INS] = "pdbx_PDB_ins_code",
    [ATOM_NAME] = "label_atom_id",
    [ATOM_ALT] = "label_alt_id",
    [ATOM_X] = "Cartn_x",
    [ATOM_Y] = "Cartn_y",
    [ATOM_Z] = "Cartn_z",
    [ATOM_OCCUPANCY] = "occupancy",
    [ATOM_B] = "B_iso_or_equiv",
    [ATOM_ID] = "id",
    [ATOM_ENTITY] = "label_entity_id",
};

/* -- names */

/* Data names ignore case in CIF, but not in the reference. */
static bool is_name(const fm_cif *cif, const uint8_t *text, size_t size, const char *name) {
    if (strlen(name) != size) return false;
    return cif->compat_openfold ? memcmp(text, name, size) == 0
                                : strncasecmp((const char *)text, name, size) == 0;
}

/* Returns MMCIF_NONE for a name that is not needed. */
static uint32_t find_column(const fm_cif *cif, fm_cif_view name) {
    for (uint32_t i = 0; i < N_COLUMN; i++) {
        if (is_name(cif, fm_cif_text(cif, name), fm_cif_size(name), column_names[i])) return i;
    }
    return MMCIF_NONE;
}

static uint32_t find_atom_column(const fm_cif *cif, fm_cif_view name) {
    const size_t prefix = sizeof ATOM_PREFIX - 1;
    if (fm_cif_size(name) <= prefix) return MMCIF_NONE;
    const uint8_t *text = fm_cif_text(cif, name);
    if (!is_name(cif, text, prefix, ATOM_PREFIX)) return MMCIF_NONE;
    for (uint32_t i = 0; i < N_ATOM_COLUMN; i++) {
        if (is_name(cif, text + prefix, fm_cif_size(name) - prefix, atom_names[i])) return i;
    }
    return MMCIF_NONE;
}

static fm_status fail_twice(fm_mmcif_scan *scan, fm_cif_view name) {
    return fm_cif_fail(&scan->cif, scan->reterr, FM_ERR_FORMAT, name.start,
                       "%.*s occurs a second time in its block", MMCIF_SHOW(scan, name));
}

/* Registers the occurrence of a name. A second occurrence is an error, or in the reference's
 * reading replaces the first. */
static fm_status open_column(fm_mmcif_scan *scan, uint32_t column, fm_cif_view name) {
    fm_mmcif_list *list = &scan->columns[column];
    if (list->is_given && !scan->cif.compat_openfold) return fail_twice(scan, name);
    list->is_given = true;
    list->n = 0;
    return FM_OK;
}

static fm_status open_atom_column(fm_mmcif_scan *scan, uint32_t column, fm_cif_view name) {
    if (scan->has[column] && !scan->cif.compat_openfold) return fail_twice(scan, name);
    scan->has[column] = true;
    scan->runs.n = scan->atoms.n = scan->n_row = 0;
    return FM_OK;
}

static fm_status push_value(fm_mmcif_scan *scan, uint32_t column, fm_cif_view value) {
    fm_mmcif_list *list = &scan->columns[column];
    if (list->n == list->max) {
        if (list->n >= FM_LIMIT_N_POLY_RES) {
            return fm_cif_fail(&scan->cif, scan->reterr, FM_ERR_LIMIT, value.start,
                               "%s has more than %u values", column_names[column],
                               FM_LIMIT_N_POLY_RES);
        }
        uint32_t max = list->max ? list->max * 2 : 64;
        fm_cif_view *views = fm_arena_alloc_array(scan->arena, max, sizeof *views);
        if (!views) return fm_arena_full(scan->arena, scan->reterr);
        if (list->n) memcpy(views, list->views, list->n * sizeof *views);
        list->views = views;
        list->max = max;
    }
    list->views[list->n++] = value;
    return FM_OK;
}

/* -- atoms */

static inline bool same_key(const fm_cif *cif, fm_cif_view a, fm_cif_view b) {
    uint32_t size = a.end - a.start;
    if (size != b.end - b.start) return false;
    uint32_t later = a.start > b.start ? a.start : b.start;
    if (size - 1 > 7 || cif->size - later < 8) return fm_mmcif_same(cif, a, b);
    uint64_t x, y;
    memcpy(&x, cif->data + a.start, 8);
    memcpy(&y, cif->data + b.start, 8);
    return ((x ^ y) << (64 - 8 * size)) == 0;
}

static bool same_run(const fm_mmcif_scan *scan, const fm_cif_row *row, const fm_mmcif_run *run) {
    for (uint32_t i = 0; i < scan->n_key; i++) {
        if (!same_key(&scan->cif, fm_cif_row_at(row, scan->at[i]), run->key[i])) return false;
    }
    return true;
}

static fm_status fail_full(fm_mmcif_scan *scan) {
    return fm_arena_full(scan->arena, scan->reterr);
}

/* Returns the run to which this row belongs: the newest, or a new one. */
static fm_status find_run(fm_mmcif_scan *scan, const fm_cif_row *row, fm_mmcif_run **ret_run) {
    if (scan->runs.n > 0) {
        fm_mmcif_run *last = fm_mmcif_array_at(&scan->runs, scan->runs.n - 1);
        if (same_run(scan, row, last)) {
            *ret_run = last;
            return FM_OK;
        }
    }
    fm_mmcif_run *run = fm_mmcif_array_push(&scan->runs, scan->arena);
    if (!run) return fail_full(scan);
    for (uint32_t i = 0; i < N_KEY; i++)
        run->key[i] = fm_cif_row_at(row, scan->at[i]);
    run->entity = fm_cif_row_at(row, scan->at[ATOM_ENTITY]);
    run->first_atom = scan->atoms.n;
    run->n_atom = 0;
    run->next = MMCIF_NONE;
    *ret_run = run;
    return FM_OK;
}

static fm_status fail_number(fm_mmcif_scan *scan, uint32_t column, fm_cif_view value) {
    return fm_cif_fail(&scan->cif, scan->reterr, FM_ERR_FORMAT, value.start,
                       ATOM_PREFIX "%s is '%.*s', expected a number", atom_names[column],
                       MMCIF_SHOW(scan, value));
}

static fm_status read_number(fm_mmcif_scan *scan, const fm_cif_row *row, uint32_t column,
                             double *ret_value) {
    const fm_cif *cif = &scan->cif;
    fm_cif_view value = fm_cif_row_at(row, scan->at[column]);
    bool is_read = cif->compat_openfold ? fm_decimal_parse(fm_cif_text(cif, value),
                                                           fm_cif_size(value), true, ret_value)
                                        : fm_mmcif_number(cif, value, ret_value);
    return is_read ? FM_OK : fail_number(scan, column, value);
}

static fm_status read_position(fm_mmcif_scan *scan, const fm_cif_row *row, fm_mmcif_atom *atom) {
    for (uint32_t axis = 0; axis < 3; axis++) {
        double value;
        fm_status status = read_number(scan, row, ATOM_X + axis, &value);
        if (status) return status;
        atom->position[axis] = (float)value;
        if (!scan->cif.compat_openfold && !isfinite(atom->position[axis])) {
            return fail_number(scan, ATOM_X + axis, fm_cif_row_at(row, scan->at[ATOM_X + axis]));
        }
    }
    return FM_OK;
}

static fm_status read_occupancy(fm_mmcif_scan *scan, const fm_cif_row *row, double *ret_occupancy) {
    fm_cif_view value = fm_cif_row_at(row, scan->at[ATOM_OCCUPANCY]);
    if (scan->cif.compat_openfold) {
        double ignored;
        fm_status status = read_number(scan, row, ATOM_B, &ignored);
        if (status) return status;
    } else if (fm_cif_size(value) == 0 || fm_cif_is_unset(&scan->cif, value)) {
        *ret_occupancy = 1.0;
        return FM_OK;
    }
    return read_number(scan, row, ATOM_OCCUPANCY, ret_occupancy);
}

static fm_status read_confidence(fm_mmcif_scan *scan, const fm_cif_row *row,
                                 float *ret_confidence) {
    double value = 0;
    fm_status status = scan->is_predicted ? read_number(scan, row, ATOM_B, &value) : FM_OK;
    if (!status && !(value >= 0 && value <= 100)) {
        status = fm_cif_fail(&scan->cif, scan->reterr, FM_ERR_DATA,
                             fm_cif_row_at(row, scan->at[ATOM_B]).start,
                             "B_iso_or_equiv is %g, expected a confidence of 0 to 100", value);
    }
    if (!status) *ret_confidence = (float)value;
    return status;
}

/* Packs an atom name into a number: its bytes when they fit, else a hash with the top bit set. */
static uint64_t pack_name(const uint8_t *text, size_t size) {
    uint64_t packed = 0;
    if (size > 8) return fm_xxh3(text, size) | UINT64_C(1) << 63;
    memcpy(&packed, text, size);
    return packed;
}

static uint8_t slot_of(const uint8_t *name, size_t size) {
    uint8_t slot = fm_atom37_from_name(name, size);
    if (slot != FM_ATOM37_NONE) return slot;
    bool selenium = size == 2 && (name[0] | 0x20) == 's' && (name[1] | 0x20) == 'e';
    return selenium ? SLOT_SE : SLOT_NONE;
}

/* Takes one row of _atom_site. The default reading keeps the first model's atoms that have a place
 * in atom37. The reference's checks need every atom of every model. */
static fm_status add_atom_row(fm_mmcif_scan *scan, const fm_cif_row *row) {
    const fm_cif *cif = &scan->cif;
    bool compat = cif->compat_openfold;
    fm_cif_view name = fm_cif_row_at(row, scan->at[ATOM_NAME]);
    if (scan->n_row++ >= FM_LIMIT_N_ATOM) {
        return fm_cif_fail(cif, scan->reterr, FM_ERR_LIMIT, name.start,
                           "the file has more than %u atoms", FM_LIMIT_N_ATOM);
    }
    if (!compat && scan->runs.n > 0) {
        const fm_mmcif_run *first = fm_mmcif_array_at(&scan->runs, 0);
        fm_cif_view model = fm_cif_row_at(row, scan->at[ATOM_MODEL]);
        if (!same_key(cif, model, first->key[ATOM_MODEL])) return FM_OK;
    }
    fm_mmcif_run *run;
    fm_status status = find_run(scan, row, &run);
    if (status) return status;
    uint8_t slot = slot_of(fm_cif_text(cif, name), fm_cif_size(name));
    if (slot == SLOT_NONE && !compat) return FM_OK;
    fm_mmcif_atom *atom = fm_mmcif_array_push(&scan->atoms, scan->arena);
    if (!atom) return fail_full(scan);
    run->n_atom++;
    fm_cif_view alt = fm_cif_row_at(row, scan->at[ATOM_ALT]);
    atom->slot = slot;
    atom->name = compat ? pack_name(fm_cif_text(cif, name), fm_cif_size(name)) : 0;
    atom->at = name.start;
    atom->has_alt = fm_cif_size(alt) > 0 && !fm_cif_is_unset(cif, alt);
    status = read_position(scan, row, atom);
    if (!status) status = read_confidence(scan, row, &atom->confidence);
    return status ? status : read_occupancy(scan, row, &atom->occupancy);
}

/* The columns that the default reading needs. The reference needs all of N_ATOM_OPENFOLD. */
static const fm_mmcif_atom_column needed_default[] = {ATOM_NAME, ATOM_COMP, ATOM_ASYM,
                                                      ATOM_SEQ,  ATOM_X,    ATOM_Y,
                                                      ATOM_Z,    ATOM_B /* for predictions only */};

static fm_status check_atom_columns(fm_mmcif_scan *scan, uint32_t place) {
    bool compat = scan->cif.compat_openfold;
    uint32_t n = (uint32_t)(sizeof needed_default / sizeof needed_default[0]);
    if (compat) {
        n = N_ATOM_OPENFOLD;
    } else if (!scan->is_predicted) {
        n--;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t column = compat ? i : (uint32_t)needed_default[i];
        if (scan->has[column]) continue;
        return fm_cif_fail(&scan->cif, scan->reterr, FM_ERR_DATA, place,
                           "the file has no " ATOM_PREFIX "%s", atom_names[column]);
    }
    return FM_OK;
}

/* -- loops and pairs */

typedef struct loop_shape {
    uint32_t n_column;
    uint32_t at; /* offset of its loop_ */
    uint32_t n_wanted, n_atom_wanted;
    struct {
        uint32_t place, column;
    } wanted[N_COLUMN];
} loop_shape;

static fm_status read_loop_names(fm_mmcif_scan *scan, loop_shape *loop, bool is_wanted) {
    for (uint32_t i = 0; i < N_ATOM_COLUMN; i++)
        scan->at[i] = FM_CIF_ABSENT;
    for (;;) {
        uint32_t before = scan->cif.at;
        fm_cif_kind kind;
        fm_cif_view name;
        fm_status status = fm_cif_next(&scan->cif, &kind, &name, scan->reterr);
        if (status) return status;
        if (kind != FM_CIF_NAME) {
            scan->cif.at = before;
            if (loop->n_column > 0) return FM_OK;
            return fm_cif_fail(&scan->cif, scan->reterr, FM_ERR_FORMAT, loop->at,
                               "found loop_ without data names");
        }
        if (loop->n_column == FM_LIMIT_CIF_COLUMN) {
            return fm_cif_fail(&scan->cif, scan->reterr, FM_ERR_LIMIT, name.start,
                               "the loop has more than %u columns", FM_LIMIT_CIF_COLUMN);
        }
        uint32_t column = is_wanted ? find_column(&scan->cif, name) : MMCIF_NONE;
        uint32_t atom_column = is_wanted ? find_atom_column(&scan->cif, name) : MMCIF_NONE;
        if (column != MMCIF_NONE) {
            status = open_column(scan, column, name);
            if (status) return status;
            if (loop->n_wanted < N_COLUMN) {
                loop->wanted[loop->n_wanted].place = loop->n_column;
                loop->wanted[loop->n_wanted++].column = column;
            }
        } else if (atom_column != MMCIF_NONE) {
            status = open_atom_column(scan, atom_column, name);
            if (status) return status;
            scan->at[atom_column] = loop->n_column;
            loop->n_atom_wanted++;
        }
        loop->n_column++;
    }
}

static fm_status fail_cut_row(fm_mmcif_scan *scan, const fm_cif_row *row, uint32_t n, uint32_t of) {
    return fm_cif_fail(&scan->cif, scan->reterr, FM_ERR_FORMAT, row->start[0],
                       "the row of a loop ends after %u values, but the loop has %u columns", n,
                       of);
}

/* Takes a last row that is cut short. CIF forbids such a row. The reference accepts it when the
 * missing values are in columns that it does not read. */
static fm_status take_cut_row(fm_mmcif_scan *scan, const loop_shape *loop, const fm_cif_row *row,
                              uint32_t n) {
    bool fails = !scan->cif.compat_openfold;
    for (uint32_t i = 0; i < loop->n_wanted; i++) {
        fails |= loop->wanted[i].column != COLUMN_DATE && loop->wanted[i].column != COLUMN_REFINE &&
                 loop->wanted[i].column != COLUMN_EM && loop->wanted[i].column != COLUMN_REFLNS;
    }
    for (uint32_t i = 0; i < N_ATOM_COLUMN; i++) {
        bool cut = scan->at[i] != FM_CIF_ABSENT && scan->at[i] >= n;
        fails |= loop->n_atom_wanted && scan->at[ATOM_NAME] < n && cut;
    }
    if (fails) return fail_cut_row(scan, row, n, loop->n_column);
    for (uint32_t i = 0; i < loop->n_wanted; i++) {
        if (loop->wanted[i].place >= n) continue;
        fm_cif_view value = fm_cif_row_at(row, loop->wanted[i].place);
        fm_status status = push_value(scan, loop->wanted[i].column, value);
        if (status) return status;
    }
    return FM_OK;
}

static fm_status read_loop(fm_mmcif_scan *scan, uint32_t at, bool is_wanted) {
    loop_shape loop = {.at = at};
    fm_status status = read_loop_names(scan, &loop, is_wanted);
    if (status) return status;
    if (loop.n_atom_wanted) {
        status = check_atom_columns(scan, at);
        if (status) return status;
    }
    fm_cif_row row;
    fm_cif_row_init(&row);
    for (;;) {
        uint32_t n;
        status = fm_cif_next_row(&scan->cif, loop.n_column, &row, &n, scan->reterr);
        if (status) return status;
        if (n < loop.n_column) return n == 0 ? FM_OK : take_cut_row(scan, &loop, &row, n);
        if (loop.n_atom_wanted) {
            status = add_atom_row(scan, &row);
            if (status) return status;
        }
        for (uint32_t i = 0; i < loop.n_wanted; i++) {
            fm_cif_view value = fm_cif_row_at(&row, loop.wanted[i].place);
            status = push_value(scan, loop.wanted[i].column, value);
            if (status) return status;
        }
    }
}

static fm_status take_pair(fm_mmcif_scan *scan, fm_cif_view name, fm_cif_view value) {
    uint32_t column = find_column(&scan->cif, name);
    if (column != MMCIF_NONE) {
        fm_status status = open_column(scan, column, name);
        return status ? status : push_value(scan, column, value);
    }
    column = find_atom_column(&scan->cif, name);
    if (column == MMCIF_NONE) return FM_OK;
    scan->single[column] = value;
    scan->has_single = true;
    return open_atom_column(scan, column, name);
}

/* An _atom_site with one atom may be written as pairs; this takes it as one row. */
static fm_status take_single_atom(fm_mmcif_scan *scan) {
    if (!scan->has_single || scan->n_row > 0) return FM_OK;
    fm_status status = check_atom_columns(scan, scan->single[ATOM_NAME].start);
    if (status) return status;
    fm_cif_row row;
    fm_cif_row_init(&row);
    for (uint32_t i = 0; i < N_ATOM_COLUMN; i++) {
        scan->at[i] = i;
        row.start[i] = scan->single[i].start;
        row.end[i] = scan->single[i].end;
    }
    return add_atom_row(scan, &row);
}

/* -- blocks */

static void forget_block(fm_mmcif_scan *scan) {
    for (uint32_t i = 0; i < N_COLUMN; i++) {
        scan->columns[i].n = 0;
        scan->columns[i].is_given = false;
    }
    memset(scan->has, 0, sizeof scan->has);
    memset(scan->single, 0, sizeof scan->single);
    scan->has_single = false;
}

static fm_status read_pair(fm_mmcif_scan *scan, fm_cif_view name, bool is_wanted) {
    fm_cif_kind kind;
    fm_cif_view value;
    fm_status status = fm_cif_next(&scan->cif, &kind, &value, scan->reterr);
    if (status) return status;
    if (kind != FM_CIF_VALUE) {
        return fm_cif_fail(&scan->cif, scan->reterr, FM_ERR_FORMAT, name.start, "%.*s has no value",
                           MMCIF_SHOW(scan, name));
    }
    return is_wanted ? take_pair(scan, name, value) : FM_OK;
}

/* Reads the first data block that has atoms. Save frames do not belong to the block. */
static fm_status read_block(fm_mmcif_scan *scan) {
    bool in_block = false, in_save = false;
    for (;;) {
        fm_cif_kind kind;
        fm_cif_view view;
        fm_status status = fm_cif_next(&scan->cif, &kind, &view, scan->reterr);
        if (status) return status;
        if (!in_block && kind != FM_CIF_DATA) {
            return fm_cif_fail(&scan->cif, scan->reterr, FM_ERR_FORMAT, view.start,
                               "expected data_ at the start of a CIF file");
        }
        switch (kind) {
        case FM_CIF_END: return FM_OK;
        case FM_CIF_DATA:
            if (scan->n_row > 0 || scan->has_single) return FM_OK;
            forget_block(scan);
            in_block = true;
            in_save = false;
            break;
        case FM_CIF_SAVE: in_save = fm_cif_size(view) > 5; break;
        case FM_CIF_LOOP: status = read_loop(scan, view.start, !in_save); break;
        case FM_CIF_NAME: status = read_pair(scan, view, !in_save); break;
        case FM_CIF_VALUE:
            status = fm_cif_fail(&scan->cif, scan->reterr, FM_ERR_FORMAT, view.start,
                                 "found '%.*s', expected a data name", MMCIF_SHOW(scan, view));
        }
        if (status) return status;
    }
}

/* The reference's reading: the first token of any kind opens the block. Between loops, tokens are
 * names and values in turn. */
static fm_status read_block_openfold(fm_mmcif_scan *scan) {
    fm_cif_kind kind;
    fm_cif_view view, name = {0, 0};
    bool has_name = false;
    fm_status status = fm_cif_next(&scan->cif, &kind, &view, scan->reterr);
    while (!status) {
        status = fm_cif_next(&scan->cif, &kind, &view, scan->reterr);
        if (status || kind == FM_CIF_END) break;
        if (kind == FM_CIF_LOOP) {
            status = read_loop(scan, view.start, true);
        } else if (has_name) {
            status = take_pair(scan, name, view);
            has_name = false;
        } else {
            name = view;
            has_name = true;
        }
    }
    return status;
}

/* -- header */

/* Joins all methods, in lower case, by ','. */
static fm_status read_method(fm_mmcif_scan *scan, const char **ret_method) {
    const fm_mmcif_list *methods = &scan->columns[COLUMN_METHOD];
    if (scan->cif.compat_openfold && !methods->is_given &&
        scan->columns[COLUMN_EXPTL_ENTRY].is_given) {
        return fm_cif_fail(&scan->cif, scan->reterr, FM_ERR_DATA, 0, "_exptl has no method");
    }
    size_t size = 1;
    for (uint32_t i = 0; i < methods->n; i++)
        size += fm_cif_size(methods->views[i]) + 1;
    char *out = fm_arena_alloc(scan->arena, size);
    if (!out) return fail_full(scan);
    char *at = out;
    for (uint32_t i = 0; i < methods->n; i++) {
        if (i > 0) *at++ = ',';
        const uint8_t *text = fm_cif_text(&scan->cif, methods->views[i]);
        for (size_t k = 0; k < fm_cif_size(methods->views[i]); k++)
            *at++ = (char)(text[k] >= 'A' && text[k] <= 'Z' ? text[k] | 0x20 : text[k]);
    }
    *at = '\0';
    *ret_method = out;
    return FM_OK;
}

static bool is_date(const uint8_t *text, size_t size) {
    if (size != FM_RELEASE_DATE - 1) return false;
    for (size_t i = 0; i < size; i++) {
        bool dash = i == 4 || i == 7;
        if (dash ? text[i] != '-' : (text[i] < '0' || text[i] > '9')) return false;
    }
    return true;
}

/* Returns the earliest revision. Dates sort as strings. */
static fm_status read_date(fm_mmcif_scan *scan, char *ret_date) {
    const fm_mmcif_list *dates = &scan->columns[COLUMN_DATE];
    const fm_cif *cif = &scan->cif;
    char earliest[FM_RELEASE_DATE] = "";
    for (uint32_t i = 0; i < dates->n; i++) {
        fm_cif_view view = dates->views[i];
        const uint8_t *text = fm_cif_text(cif, view);
        bool is_good = is_date(text, fm_cif_size(view)) &&
                       (cif->compat_openfold || fm_part_is_calendar_date((const char *)text));
        if (!is_good) {
            if (!cif->compat_openfold && fm_cif_is_unset(cif, view)) continue;
            return fm_cif_fail(cif, scan->reterr, FM_ERR_FORMAT, view.start,
                               "the revision date is '%.*s', expected YYYY-MM-DD",
                               MMCIF_SHOW(scan, view));
        }
        char date[FM_RELEASE_DATE] = "";
        memcpy(date, fm_cif_text(cif, view), FM_RELEASE_DATE - 1);
        if (!earliest[0] || strcmp(date, earliest) < 0) memcpy(earliest, date, sizeof date);
    }
    if (cif->compat_openfold && !dates->is_given && !scan->columns[COLUMN_ENTRY_ID].is_given) {
        return fm_cif_fail(cif, scan->reterr, FM_ERR_DATA, 0,
                           "the file has neither a revision date nor _entry.id");
    }
    memcpy(ret_date, earliest, sizeof earliest);
    return FM_OK;
}

/* Returns the first number among three items, looking at the first value of each; 0 when there is
 * none. */
static double read_resolution(const fm_mmcif_scan *scan) {
    static const fm_mmcif_column items[] = {COLUMN_REFINE, COLUMN_EM, COLUMN_REFLNS};
    for (size_t i = 0; i < sizeof items / sizeof items[0]; i++) {
        const fm_mmcif_list *list = &scan->columns[items[i]];
        double value;
        if (list->n == 0) continue;
        bool compat = scan->cif.compat_openfold;
        fm_cif_view view = list->views[0];
        const uint8_t *text = fm_cif_text(&scan->cif, view);
        bool is_number = compat ? fm_decimal_parse(text, fm_cif_size(view), true, &value)
                                : fm_mmcif_number(&scan->cif, view, &value);
        if (!is_number) continue;
        if (compat || (value >= 0 && isfinite((float)value))) return value;
    }
    return 0.0;
}

static fm_status read_header(fm_mmcif_scan *scan, fm_mmcif *mmcif) {
    fm_status status = read_method(scan, &mmcif->method);
    if (status) return status;
    status = read_date(scan, mmcif->release_date);
    if (status) return status;
    mmcif->resolution = read_resolution(scan);
    mmcif->n_atom = scan->n_row;
    return FM_OK;
}

/* Lists the chains of a file without _struct_asym from the entity that each atom names, in the
 * order of their first atoms. */
static fm_status derive_chains(fm_mmcif_scan *scan) {
    fm_mmcif_map labels;
    const fm_mmcif_run *last = NULL;
    if (scan->columns[COLUMN_ASYM_ID].is_given || !scan->has[ATOM_ENTITY]) return FM_OK;
    fm_status status =
        fm_mmcif_map_init(&labels, &scan->cif, scan->arena, scan->runs.n, scan->reterr);
    for (uint32_t i = 0; i < scan->runs.n && !status; i++) {
        const fm_mmcif_run *run = fm_mmcif_array_at(&scan->runs, i);
        if (last && fm_mmcif_same(&scan->cif, last->key[ATOM_ASYM], run->key[ATOM_ASYM])) continue;
        last = run;
        uint32_t *number = fm_mmcif_map_at(&labels, run->key[ATOM_ASYM]);
        if (*number != MMCIF_NONE) continue;
        *number = i;
        status = push_value(scan, COLUMN_ASYM_ID, run->key[ATOM_ASYM]);
        if (!status) status = push_value(scan, COLUMN_ASYM_ENTITY, run->entity);
    }
    return status;
}

/* -- whole file */

static fm_status scan_file(fm_mmcif_scan *scan, fm_bytes bytes, bool compat) {
    fm_status status = fm_cif_init(&scan->cif, bytes, compat, scan->reterr);
    if (status) return status;
    /* A row has at least a byte and a space. */
    uint64_t bound = bytes.size / 2 + 1;
    uint32_t max = bound < FM_LIMIT_N_ATOM ? (uint32_t)bound : FM_LIMIT_N_ATOM;
    status = fm_mmcif_array_init(&scan->runs, scan->arena, sizeof(fm_mmcif_run), max, scan->reterr);
    if (status) return status;
    status =
        fm_mmcif_array_init(&scan->atoms, scan->arena, sizeof(fm_mmcif_atom), max, scan->reterr);
    if (status) return status;
    scan->n_key = compat ? N_KEY : N_KEY_DEFAULT;
    status = compat ? read_block_openfold(scan) : read_block(scan);
    if (status) return status;
    status = take_single_atom(scan);
    return status ? status : check_atom_columns(scan, 0);
}

fm_status fm_mmcif_parse(fm_bytes bytes, const fm_mmcif_options *options, fm_arena *arena,
                         fm_mmcif *ret_mmcif, fm_error *reterr) {
    fm_mmcif_scan scan = {.arena = arena, .reterr = reterr, .is_predicted = options->is_predicted};
    fm_mmcif mmcif = {0};
    fm_mmcif_polymers polymers;
    if (options->compat_openfold && options->is_predicted) {
        return fm_fail(reterr, FM_ERR_UNSUPPORTED,
                       "the reference reads predicted structures as PDB files only");
    }
    fm_status status = scan_file(&scan, bytes, options->compat_openfold);
    if (status) return status;
    status = read_header(&scan, &mmcif);
    if (!status && !options->compat_openfold) status = derive_chains(&scan);
    if (status) return status;
    status = fm_mmcif_find_polymers(&scan, &polymers);
    if (status) return status;
    status = options->compat_openfold ? fm_mmcif_build_openfold(&scan, &polymers, &mmcif)
                                      : fm_mmcif_build_default(&scan, &polymers, &mmcif);
    if (status) return status;
    *ret_mmcif = mmcif;
    return FM_OK;
}

fm_status fm_mmcif_find_chain(const fm_mmcif *mmcif, const char *author_id,
                              const fm_mmcif_chain **ret_chain, fm_error *reterr) {
    for (uint32_t i = 0; i < mmcif->n_chain; i++) {
        if (strcmp(mmcif->chains[i].author_id, author_id) != 0) continue;
        *ret_chain = &mmcif->chains[i];
        return FM_OK;
    }
    char known_ids[200] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < mmcif->n_chain; i++) {
        const char *id = mmcif->chains[i].author_id;
        size_t size = strlen(id);
        if (used + size + 6 > sizeof known_ids) {
            memcpy(known_ids + used, " ...", 5);
            break;
        }
        known_ids[used] = ' ';
        memcpy(known_ids + used + 1, id, size + 1);
        used += size + 1;
    }
    return fm_fail(reterr, FM_ERR_NOT_FOUND, "no protein chain '%.40s'; the file has%s", author_id,
                   mmcif->n_chain ? known_ids : " none");
}
