/* components_code.c: the canonical form of a set of components; see components_code.h. */
#include "featurizer/complex/components_code.h"

#include "proto/base/compress.h"
#include "proto/base/utf8.h"
#include "proto/chem/element.h"
#include "proto/limits.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum {
    VERSION_WITHOUT_WORDS = 1,
    VERSION = 2,
    DATE_BYTES = 10,
    FLAG_LEAVING = 1,
    FLAG_AROMATIC = 2,
    FLAG_IDEAL = 4,
    FLAG_MODEL = 8,
    FLAGS = 15,
    LEVEL = 9,
    /* The smallest forms. */
    ATOM_BYTES_MIN = FM_COMPONENT_NAME + 5,
    BOND_BYTES = 6,
    COMPONENT_BYTES = FM_COMPONENT_ID + 2 + DATE_BYTES + 4,
    MAGIC_BYTES = 8,
    HEADER_BYTES = MAGIC_BYTES + 8 + FM_SHA256_BYTES,
};
static const char magic[MAGIC_BYTES + 1] = "foldcomp";

/* -- writing */

static void write_position(fm_writer *writer, const float position[3], bool is_given) {
    for (int axis = 0; axis < 3 && is_given; axis++)
        fm_write_f32(writer, position[axis]);
}

static void write_atom(fm_writer *writer, const fm_component_atom *atom) {
    uint8_t flags =
        (uint8_t)((atom->is_leaving ? FLAG_LEAVING : 0) | (atom->is_aromatic ? FLAG_AROMATIC : 0) |
                  (atom->has_ideal ? FLAG_IDEAL : 0) | (atom->has_model ? FLAG_MODEL : 0));
    fm_write_bytes(writer, atom->name, FM_COMPONENT_NAME);
    fm_write_u8(writer, flags);
    fm_write_u8(writer, atom->element);
    fm_write_u8(writer, (uint8_t)atom->charge);
    fm_write_u8(writer, atom->n_hydrogen);
    fm_write_u8(writer, (uint8_t)atom->stereo);
    write_position(writer, atom->ideal, atom->has_ideal);
    write_position(writer, atom->model, atom->has_model);
}

static void write_text(fm_writer *writer, const char *text) {
    const size_t size = strlen(text);
    fm_write_u16(writer, (uint16_t)size);
    fm_write_bytes(writer, text, size);
}

static void write_component(fm_writer *writer, const fm_component *component, bool has_words) {
    fm_write_bytes(writer, component->id, FM_COMPONENT_ID);
    fm_write_u8(writer, component->molecule);
    fm_write_u8(writer, (uint8_t)component->one_letter);
    fm_write_bytes(writer, component->date, DATE_BYTES);
    fm_write_u16(writer, (uint16_t)component->n_atom);
    fm_write_u16(writer, (uint16_t)component->n_bond);
    if (has_words) {
        write_text(writer, component->type);
        write_text(writer, component->name);
        write_text(writer, component->formula);
        fm_write_f32(writer, component->weight);
    }
    for (uint32_t i = 0; i < component->n_atom; i++)
        write_atom(writer, &component->atoms[i]);
    for (uint32_t i = 0; i < component->n_bond; i++) {
        const fm_component_bond *bond = &component->bonds[i];
        fm_write_u16(writer, bond->a);
        fm_write_u16(writer, bond->b);
        fm_write_u8(writer, bond->order);
        fm_write_u8(writer, (uint8_t)bond->stereo);
    }
}

static void write_set(fm_writer *writer, const fm_components *components) {
    fm_write_u32(writer, components->has_words ? VERSION : VERSION_WITHOUT_WORDS);
    fm_write_u32(writer, components->n);
    for (uint32_t i = 0; i < components->n; i++)
        write_component(writer, &components->items[i], components->has_words);
}

fm_status fm_components_encode(const fm_components *components, fm_arena *arena, fm_bytes *ret_form,
                               fm_error *reterr) {
    fm_writer writer = fm_writer_of(NULL, 0);
    write_set(&writer, components);
    size_t size = writer.at;
    uint8_t *form = fm_arena_alloc(arena, size);
    if (!form) return fm_arena_full(arena, reterr);
    writer = fm_writer_of(form, size);
    write_set(&writer, components);
    *ret_form = (fm_bytes){form, size};
    return FM_OK;
}

fm_status fm_components_pack(const fm_components *components, fm_arena *arena, fm_bytes *ret_file,
                             fm_error *reterr) {
    fm_bytes form = {0};
    fm_status status = fm_components_encode(components, arena, &form, reterr);
    if (status) return status;
    size_t room = HEADER_BYTES + fm_zstd_bound(form.size), n = 0;
    uint8_t *file = fm_arena_alloc(arena, room);
    if (!file) return fm_arena_full(arena, reterr);
    fm_writer writer = fm_writer_of(file, HEADER_BYTES);
    fm_sha256 hash = fm_sha256_of(form.data, form.size);
    fm_write_bytes(&writer, magic, MAGIC_BYTES);
    fm_write_u64(&writer, form.size);
    fm_write_bytes(&writer, hash.bytes, FM_SHA256_BYTES);
    status = fm_zstd_compress(file + HEADER_BYTES, room - HEADER_BYTES, form.data, form.size, LEVEL,
                              &n, reterr);
    if (!status) *ret_file = (fm_bytes){file, HEADER_BYTES + n};
    return status;
}

/* -- reading */

static fm_status fail_corrupt(const fm_reader *reader, fm_error *reterr, const char *what) {
    return fm_fail_at(reterr, FM_ERR_CORRUPT, 0, 0, reader->at, "the components' %s is not valid",
                      what);
}

/* A word is padded with zeros, and has at least one letter and one zero. */
static bool read_word(fm_reader *reader, char *out, size_t bytes, size_t least) {
    const uint8_t *word = fm_read_borrow(reader, bytes);
    if (!word) return false;
    memcpy(out, word, bytes);
    size_t n = strnlen(out, bytes);
    for (size_t i = n; i < bytes; i++) {
        if (out[i]) return false;
    }
    return n >= least;
}

static bool read_position(fm_reader *reader, float out[3], bool is_given) {
    bool is_finite = true;
    for (int axis = 0; axis < 3; axis++) {
        out[axis] = is_given ? fm_read_f32(reader) : 0.0f;
        is_finite = is_finite && isfinite(out[axis]);
    }
    return is_finite;
}

static bool is_one_of(char letter, const char *letters) {
    return letter && strchr(letters, letter);
}

static bool read_atom(fm_reader *reader, fm_component_atom *atom) {
    bool is_valid = read_word(reader, atom->name, FM_COMPONENT_NAME, 1) &&
                    atom->name[FM_COMPONENT_NAME - 1] == '\0';
    uint8_t flags = fm_read_u8(reader);
    atom->element = fm_read_u8(reader);
    atom->charge = (int8_t)fm_read_u8(reader);
    atom->n_hydrogen = fm_read_u8(reader);
    atom->stereo = (char)fm_read_u8(reader);
    atom->is_leaving = flags & FLAG_LEAVING;
    atom->is_aromatic = flags & FLAG_AROMATIC;
    atom->has_ideal = flags & FLAG_IDEAL;
    atom->has_model = flags & FLAG_MODEL;
    is_valid = read_position(reader, atom->ideal, atom->has_ideal) && is_valid;
    is_valid = read_position(reader, atom->model, atom->has_model) && is_valid;
    return is_valid && !(flags & ~FLAGS) && atom->element < FM_N_ELEMENT && atom->element != 1 &&
           is_one_of(atom->stereo, "RSN");
}

static bool read_bond(fm_reader *reader, const fm_component *component,
                      const fm_component_bond *previous, fm_component_bond *bond) {
    bond->a = fm_read_u16(reader);
    bond->b = fm_read_u16(reader);
    bond->order = fm_read_u8(reader);
    bond->stereo = (char)fm_read_u8(reader);
    return bond->a < bond->b && bond->b < component->n_atom && bond->order <= FM_BOND_AROMATIC &&
           bond->order != 8 && is_one_of(bond->stereo, "EZN") &&
           (!previous || previous->a < bond->a ||
            (previous->a == bond->a && previous->b < bond->b));
}

static bool read_text(fm_reader *reader, fm_arena *arena, const char **ret_text) {
    const size_t size = fm_read_u16(reader);
    const uint8_t *text = fm_read_borrow(reader, size);
    char *copy = text && size <= FM_LIMIT_COMPONENT_TEXT ? fm_arena_alloc(arena, size + 1) : NULL;
    if (!copy) return false;
    memcpy(copy, text, size);
    copy[size] = '\0';
    for (size_t i = 0; i < size; i++) {
        if ((uint8_t)copy[i] < ' ' || copy[i] == 0x7f) return false;
    }
    *ret_text = copy;
    return fm_utf8_is_whole(copy, size);
}

static bool read_words(fm_reader *reader, fm_arena *arena, fm_component *component) {
    const bool is_valid = read_text(reader, arena, &component->type) &&
                          read_text(reader, arena, &component->name) &&
                          read_text(reader, arena, &component->formula);
    component->weight = fm_read_f32(reader);
    return is_valid && isfinite(component->weight) && !signbit(component->weight);
}

static fm_status read_items(fm_reader *reader, fm_arena *arena, fm_component *component,
                            fm_error *reterr) {
    if (component->n_atom * (size_t)ATOM_BYTES_MIN + component->n_bond * (size_t)BOND_BYTES >
        fm_reader_left(reader)) {
        return fail_corrupt(reader, reterr, "number of atoms or bonds");
    }
    fm_component_atom *atoms = fm_arena_alloc_array(arena, component->n_atom, sizeof *atoms);
    fm_component_bond *bonds = fm_arena_alloc_array(arena, component->n_bond, sizeof *bonds);
    if (!atoms || !bonds) return fm_arena_full(arena, reterr);
    for (uint32_t i = 0; i < component->n_atom; i++) {
        if (!read_atom(reader, &atoms[i])) return fail_corrupt(reader, reterr, "atom");
    }
    for (uint32_t i = 0; i < component->n_bond; i++) {
        if (!read_bond(reader, component, i ? &bonds[i - 1] : NULL, &bonds[i])) {
            return fail_corrupt(reader, reterr, "bond");
        }
    }
    component->atoms = atoms;
    component->bonds = bonds;
    return FM_OK;
}

static fm_status read_component(fm_reader *reader, fm_arena *arena, bool has_words,
                                const fm_component *previous, fm_component *component,
                                fm_error *reterr) {
    *component = (fm_component){0};
    fm_component_clear_words(component);
    bool is_valid = read_word(reader, component->id, FM_COMPONENT_ID, 1) &&
                    component->id[FM_COMPONENT_ID - 1] == '\0';
    component->molecule = fm_read_u8(reader);
    component->one_letter = (char)fm_read_u8(reader);
    is_valid = read_word(reader, component->date, DATE_BYTES, 0) && is_valid;
    component->n_atom = fm_read_u16(reader);
    component->n_bond = fm_read_u16(reader);
    if (has_words) is_valid = read_words(reader, arena, component) && is_valid;
    if (!is_valid || reader->failed || component->molecule >= FM_N_MOLECULE ||
        component->n_atom > FM_LIMIT_COMPONENT_ATOM ||
        component->n_bond > FM_LIMIT_COMPONENT_BOND ||
        (previous && memcmp(previous->id, component->id, FM_COMPONENT_ID) >= 0)) {
        return fail_corrupt(reader, reterr, "head of a component");
    }
    return read_items(reader, arena, component, reterr);
}

fm_status fm_components_decode(fm_bytes form, fm_arena *arena, fm_components *ret_components,
                               fm_error *reterr) {
    fm_reader reader = fm_reader_of(form.data, form.size);
    uint32_t version = fm_read_u32(&reader), n = fm_read_u32(&reader);
    const bool has_words = version == VERSION;
    if ((!has_words && version != VERSION_WITHOUT_WORDS) || n == 0 || n > FM_LIMIT_N_COMPONENT ||
        n > form.size / COMPONENT_BYTES) {
        return fail_corrupt(&reader, reterr, "version or number");
    }
    fm_component *items = fm_arena_alloc_array(arena, n, sizeof *items);
    if (!items) return fm_arena_full(arena, reterr);
    for (uint32_t i = 0; i < n; i++) {
        fm_status status =
            read_component(&reader, arena, has_words, i ? &items[i - 1] : NULL, &items[i], reterr);
        if (status) return status;
    }
    if (reader.failed || fm_reader_left(&reader)) return fail_corrupt(&reader, reterr, "end");
    *ret_components = (fm_components){
        .n = n, .items = items, .has_words = has_words, .hash = fm_sha256_of(form.data, form.size)};
    return FM_OK;
}

fm_status fm_components_unpack(fm_bytes file, fm_arena *arena, fm_components *ret_components,
                               fm_error *reterr) {
    fm_reader reader = fm_reader_of(file.data, file.size);
    const uint8_t *start = fm_read_borrow(&reader, MAGIC_BYTES);
    uint64_t size = fm_read_u64(&reader);
    const uint8_t *hash = fm_read_borrow(&reader, FM_SHA256_BYTES);
    if (!start || !hash || memcmp(start, magic, MAGIC_BYTES) != 0) {
        return fail_corrupt(&reader, reterr, "start");
    }
    if (size > FM_LIMIT_PART_BYTES) return fail_corrupt(&reader, reterr, "size");
    uint8_t *form = fm_arena_alloc(arena, (size_t)size);
    if (!form) return fm_arena_full(arena, reterr);
    fm_status status = fm_zstd_decompress(form, (size_t)size, file.data + reader.at,
                                          file.size - reader.at, reterr);
    fm_components components = {0};
    if (!status) {
        status = fm_components_decode((fm_bytes){form, (size_t)size}, arena, &components, reterr);
    }
    if (status) return status;
    if (memcmp(components.hash.bytes, hash, FM_SHA256_BYTES) != 0) {
        return fail_corrupt(&reader, reterr, "hash");
    }
    *ret_components = components;
    return FM_OK;
}

bool fm_components_is_packed(fm_bytes file) {
    return file.size >= MAGIC_BYTES && memcmp(file.data, magic, MAGIC_BYTES) == 0;
}

fm_status fm_components_read(fm_bytes file, fm_arena *arena, fm_components *ret_components,
                             fm_error *reterr) {
    return fm_components_is_packed(file) ? fm_components_unpack(file, arena, ret_components, reterr)
                                         : fm_components_parse(file, arena, ret_components, reterr);
}

void fm_component_clear_words(fm_component *component) {
    component->type = component->name = component->formula = "";
    component->weight = 0;
}

/* -- looking up */

/* Returns a padded copy of a name, or false if it is too long for one. */
static bool pad(const char *name, char out[FM_COMPONENT_ID]) {
    size_t n = strlen(name);
    if (n >= FM_COMPONENT_ID) return false;
    memset(out, 0, FM_COMPONENT_ID);
    memcpy(out, name, n);
    return true;
}
static_assert(FM_COMPONENT_ID == FM_COMPONENT_NAME, "pad serves both");

const fm_component *fm_components_find(const fm_components *components, const char *id) {
    char padded[FM_COMPONENT_ID];
    if (!pad(id, padded)) return NULL;
    uint32_t low = 0, high = components->n;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int order = memcmp(components->items[middle].id, padded, FM_COMPONENT_ID);
        if (order == 0) return &components->items[middle];
        if (order < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return NULL;
}

int32_t fm_component_find_atom(const fm_component *component, const char *name) {
    char padded[FM_COMPONENT_NAME];
    if (!pad(name, padded)) return -1;
    for (uint32_t i = 0; i < component->n_atom; i++) {
        if (memcmp(component->atoms[i].name, padded, FM_COMPONENT_NAME) == 0) return (int32_t)i;
    }
    return -1;
}
