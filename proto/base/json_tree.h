/* json_tree.h: reads JSON into a tree of values; the only door to jansson.
 *
 * A tree belongs to whoever parsed it; every value and text inside belongs to the tree. All
 * functions that ask also take NULL, which stands for a missing value, and then answer that it is
 * missing. So a path of members needs no check at each step:
 *
 *     fm_json_get_number(fm_json_get_member(fm_json_get_member(tree, "times"), "p50_ms"), 0)
 *
 * The text must be UTF-8, nested at most 2,048 deep, without repeated names in one object. */
#ifndef FM_BASE_JSON_TREE_H
#define FM_BASE_JSON_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct json_t fm_json;

/* Parses the whole text; NULL when it is not JSON or memory runs out. */
fm_json *fm_json_parse(const void *text, size_t bytes);
/* NULL is fine. */
void fm_json_free(fm_json *tree);

bool fm_json_is_object(const fm_json *value);
bool fm_json_is_array(const fm_json *value);
/* Members of an object or elements of an array; 0 for any other value. */
size_t fm_json_count(const fm_json *value);
const fm_json *fm_json_get_member(const fm_json *object, const char *name);
const fm_json *fm_json_get_element(const fm_json *array, size_t i);
/* NULL when it is no string. */
const char *fm_json_get_text(const fm_json *value);
/* False when it is not an integer that fits. */
bool fm_json_get_integer(const fm_json *value, int64_t *ret_value);
/* An integer or a real; `missing` for anything else. */
double fm_json_get_number(const fm_json *value, double missing);

/* The members of an object in the order of the text:
 *
 *     fm_json_member member;
 *     bool any = fm_json_first_member(object, &member);
 *     for (; any; any = fm_json_next_member(object, &member))
 */
typedef struct fm_json_member {
    const char *name;
    const fm_json *value;
    void *place; /* private */
} fm_json_member;

bool fm_json_first_member(const fm_json *object, fm_json_member *ret_member);
bool fm_json_next_member(const fm_json *object, fm_json_member *member);

#endif
