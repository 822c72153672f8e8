/* json_tree.c: see json_tree.h. jansson asks for values that are not const although it does not
 * change them, hence the casts. */
#include "proto/base/json_tree.h"

#include <jansson.h>

static json_t *mutable_of(const fm_json *value) {
    return (json_t *)(uintptr_t)value;
}

fm_json *fm_json_parse(const void *text, size_t bytes) {
    return json_loadb(text, bytes, JSON_REJECT_DUPLICATES, NULL);
}

void fm_json_free(fm_json *tree) {
    json_decref(tree);
}

bool fm_json_is_object(const fm_json *value) {
    return json_is_object(value);
}

bool fm_json_is_array(const fm_json *value) {
    return json_is_array(value);
}

size_t fm_json_count(const fm_json *value) {
    return json_is_object(value) ? json_object_size(value) : json_array_size(value);
}

const fm_json *fm_json_get_member(const fm_json *object, const char *name) {
    return json_object_get(object, name);
}

const fm_json *fm_json_get_element(const fm_json *array, size_t i) {
    return json_array_get(array, i);
}

const char *fm_json_get_text(const fm_json *value) {
    return json_string_value(value);
}

bool fm_json_get_integer(const fm_json *value, int64_t *ret_value) {
    if (!json_is_integer(value)) return false;
    *ret_value = json_integer_value(value);
    return true;
}

double fm_json_get_number(const fm_json *value, double missing) {
    return json_is_number(value) ? json_number_value(value) : missing;
}

static bool fill_member(fm_json_member *member) {
    if (!member->place) return false;
    member->name = json_object_iter_key(member->place);
    member->value = json_object_iter_value(member->place);
    return true;
}

bool fm_json_first_member(const fm_json *object, fm_json_member *ret_member) {
    ret_member->place = json_object_iter(mutable_of(object));
    return fill_member(ret_member);
}

bool fm_json_next_member(const fm_json *object, fm_json_member *member) {
    member->place = json_object_iter_next(mutable_of(object), member->place);
    return fill_member(member);
}
