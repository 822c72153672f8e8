/* pdb_id.c: see pdb_id.h. */
#include "proto/chem/pdb_id.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static const char ZEROS[] = "pdb_0000";

size_t fm_pdb_id_zeros(const char *text, size_t length) {
    const size_t n = sizeof ZEROS - 1;
    return length >= n && strncasecmp(text, ZEROS, n) == 0 ? n : 0;
}

bool fm_pdb_id_is_short(const char *text, size_t length) {
    if (length != FM_PDB_ID_BYTES || text[0] < '0' || text[0] > '9') return false;
    for (size_t i = 1; i < length; i++) {
        char c = text[i];
        bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!is_letter && (c < '0' || c > '9')) return false;
    }
    return true;
}

bool fm_pdb_id_key(const char *text, size_t length, char out[FM_PDB_ID_BYTES]) {
    size_t zeros = fm_pdb_id_zeros(text, length);
    if (!fm_pdb_id_is_short(text + zeros, length - zeros)) return false;
    for (size_t i = 0; i < FM_PDB_ID_BYTES; i++) {
        char c = text[zeros + i];
        out[i] = (char)(c >= 'A' && c <= 'Z' ? c + 32 : c);
    }
    return true;
}

bool fm_pdb_id_respell(const char *name, fm_pdb_id_spelling spelling, char *out, size_t out_bytes) {
    const char *split = strchr(name + fm_pdb_id_zeros(name, strlen(name)), '_');
    char id[FM_PDB_ID_BYTES + 1] = "";
    if (!split || !fm_pdb_id_key(name, (size_t)(split - name), id)) return false;
    for (char *c = id; *c && spelling == FM_PDB_ID_UPPER; c++) {
        if (*c >= 'a' && *c <= 'z') *c = (char)(*c - 32);
    }
    const char *zeros = spelling == FM_PDB_ID_EXTENDED ? ZEROS : "";
    int n = snprintf(out, out_bytes, "%s%s%s", zeros, id, split);
    return n > 0 && (size_t)n < out_bytes;
}
