/* packed_rows.c: see packed_rows.h. Values are taken in groups of eight: a little-endian word of 64
 * bits, zeros behind the last value. */
#include "proto/packed_rows.h"

#include <assert.h>
#include <string.h>

enum { GROUP = 8, GROUP_BYTES = 5 /* of eight classes */ };

/* Copies of a constant size are instructions, others are calls. */
static uint64_t load(const uint8_t *from, size_t bytes) {
    uint64_t word = 0;
    if (bytes >= sizeof word) {
        memcpy(&word, from, sizeof word);
    } else {
        memcpy(&word, from, bytes);
    }
    return word;
}

static size_t count_groups(size_t n) {
    return n / GROUP + (n % GROUP > 0);
}

/* -- classes: eight in five bytes */

static size_t class_bytes(size_t n) {
    return n / GROUP * GROUP_BYTES + (n % GROUP * GROUP_BYTES + 7) / 8;
}

/* Joins the low five bits of eight bytes: two, four, then eight values side by side. */
static uint64_t join(uint64_t word) {
    word = (word & 0x001f001f001f001f) | (word >> 3 & 0x03e003e003e003e0);
    word = (word & 0x000003ff000003ff) | (word >> 6 & 0x000ffc00000ffc00);
    return (word & 0x00000000000fffff) | (word >> 12 & 0x000000fffff00000);
}

static uint64_t split(uint64_t word) {
    word = (word & 0x00000000000fffff) | (word << 12 & 0x000fffff00000000);
    word = (word & 0x000003ff000003ff) | (word << 6 & 0x03ff000003ff0000);
    return (word & 0x001f001f001f001f) | (word << 3 & 0x1f001f001f001f00);
}

static void encode_classes(const uint8_t *values, size_t n, uint8_t *out) {
    size_t i = 0;
    for (; n - i >= GROUP; i += GROUP, out += GROUP_BYTES) {
        uint64_t word = load(values + i, GROUP);
        assert((word & 0xe0e0e0e0e0e0e0e0) == 0);
        word = join(word);
        memcpy(out, &word, GROUP_BYTES);
    }
    uint64_t word = join(load(values + i, n - i));
    memcpy(out, &word, class_bytes(n - i));
}

static bool decode_classes(fm_bytes packed, size_t n, uint8_t *out) {
    if (packed.size != class_bytes(n)) return false;
    const uint8_t *from = packed.data;
    size_t i = 0;
    for (; n - i >= GROUP; i += GROUP, from += GROUP_BYTES) {
        uint64_t word = split(load(from, GROUP_BYTES));
        memcpy(out + i, &word, GROUP);
    }
    uint64_t last = load(from, class_bytes(n - i));
    if (last >> 5 * (n - i)) return false;
    last = split(last);
    memcpy(out + i, &last, n - i);
    return true;
}

/* -- counts: which groups have any, which values of these, and the values */

/* Bit k: value k of the group is not 0. */
static uint8_t find_values(uint64_t group) {
    const uint64_t low = 0x7f7f7f7f7f7f7f7f;
    uint64_t found = (((group & low) + low) | group) & ~low; /* the highest bit of each byte */
    return (uint8_t)((found >> 7) * 0x0102040810204080 >> 56);
}

/* Bytes of the bits of the groups, how many groups have a value, and how many values there are. */
typedef struct sparse_sizes {
    size_t head, n_group, n_value;
} sparse_sizes;

static sparse_sizes measure(const uint8_t *values, size_t n) {
    sparse_sizes sizes = {.head = count_groups(count_groups(n))};
    for (size_t i = 0; i < n; i += GROUP) {
        uint64_t group = load(values + i, n - i);
        sizes.n_group += group > 0;
        if (group) sizes.n_value += (size_t)__builtin_popcount(find_values(group));
    }
    return sizes;
}

static void encode_counts(const uint8_t *values, size_t n, uint8_t *out) {
    const sparse_sizes sizes = measure(values, n);
    uint8_t *bits = out + sizes.head, *value = bits + sizes.n_group;
    memset(out, 0, sizes.head);
    for (size_t g = 0; g < count_groups(n); g++) {
        uint64_t group = load(values + g * GROUP, n - g * GROUP);
        if (!group) continue;
        out[g / 8] |= (uint8_t)(1 << g % 8);
        *bits++ = find_values(group);
        for (; group; group >>= 8)
            if (group & 0xff) *value++ = (uint8_t)group;
    }
}

/* Reads the values of a group from `value`, which moves on. Bits are those of the group's values;
 * `room` of them exist. */
static bool decode_group(unsigned bits, size_t room, const uint8_t **value, const uint8_t *end,
                         uint8_t *out) {
    if (bits == 0 || (room < GROUP && bits >> room)) return false;
    for (; bits; bits &= bits - 1) {
        if (*value == end || **value == 0) return false;
        out[__builtin_ctz(bits)] = *(*value)++;
    }
    return true;
}

static bool decode_counts(fm_bytes packed, size_t n, uint8_t *out) {
    const size_t n_group = count_groups(n), head = count_groups(n_group);
    if (packed.size < head) return false;
    size_t n_used = 0;
    for (size_t i = 0; i < head; i++)
        n_used += (size_t)__builtin_popcount(packed.data[i]);
    if (packed.size - head < n_used) return false;
    const uint8_t *bits = packed.data + head, *value = bits + n_used;
    const uint8_t *end = packed.data + packed.size;
    memset(out, 0, n);
    for (size_t i = 0; i < head; i++) {
        for (unsigned groups = packed.data[i]; groups; groups &= groups - 1) {
            size_t g = i * 8 + (size_t)__builtin_ctz(groups), at = g * GROUP;
            if (g >= n_group || !decode_group(*bits++, n - at, &value, end, out + at)) return false;
        }
    }
    return value == end;
}

/* -- both */

size_t fm_packed_bytes(fm_packing packing, const uint8_t *values, size_t n) {
    if (packing == FM_PACKED_CLASSES) return class_bytes(n);
    const sparse_sizes sizes = measure(values, n);
    return sizes.head + sizes.n_group + sizes.n_value;
}

size_t fm_packed_most_bytes(fm_packing packing, size_t n) {
    if (packing == FM_PACKED_CLASSES) return class_bytes(n);
    return count_groups(count_groups(n)) + count_groups(n) + n;
}

void fm_packed_encode(fm_packing packing, const uint8_t *values, size_t n, uint8_t *out) {
    assert(packing != FM_PLAIN);
    (packing == FM_PACKED_CLASSES ? encode_classes : encode_counts)(values, n, out);
}

bool fm_packed_decode(fm_packing packing, fm_bytes packed, size_t n, uint8_t *out) {
    assert(packing != FM_PLAIN);
    return (packing == FM_PACKED_CLASSES ? decode_classes : decode_counts)(packed, n, out);
}
