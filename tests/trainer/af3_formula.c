/* af3_formula.c: see af3_formula.h. */
#include "tests/trainer/af3_formula.h"

#include <math.h>
#include <string.h>

uint64_t af3_name_hash(const char *text) {
    uint64_t h = 14695981039346656037u;
    for (; *text; text++)
        h = (h ^ (uint8_t)*text) * 1099511628211u;
    return h;
}

uint64_t af3_mix(uint64_t x) {
    uint64_t z = x + 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

float af3_drawn(uint64_t hash, int64_t i) {
    return (float)(af3_mix(hash + (uint64_t)i) >> 40) * 0x1p-23f - 1.0f;
}

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

float af3_drawn_parameter(const fm_param *row, uint64_t hash, int64_t i) {
    float u = af3_drawn(hash, i);
    if (row->rank == 2) return u * (float)(1.0 / sqrt((double)row->shape[1]));
    float part = u * 0.1f;
    return ends_with(row->name, "weight") ? 1.0f + part : part;
}

int64_t af3_sample_place(uint64_t hash, int64_t j, int64_t count, int64_t n_sample) {
    return count <= n_sample ? j : (int64_t)(af3_mix(hash + (uint64_t)j) % (uint64_t)count);
}
