/* pdb_id.h: ids of the PDB's entries. An id is a digit and three letters or digits, "1abc", in
 * upper or lower case; its extended form is "pdb_00001abc". All of these name one entry. Ids that
 * only the extended form can write do not exist yet. */
#ifndef FM_PDB_ID_H
#define FM_PDB_ID_H

#include <stdbool.h>
#include <stddef.h>

enum { FM_PDB_ID_BYTES = 4 };

/* How often the same id is written in different ways: "1abc", "1ABC", "pdb_00001abc". */
typedef enum fm_pdb_id_spelling {
    FM_PDB_ID_LOWER,
    FM_PDB_ID_UPPER,
    FM_PDB_ID_EXTENDED,
    FM_PDB_ID_N_SPELLING,
} fm_pdb_id_spelling;

/* Bytes of "pdb_0000" in any case at the beginning of `text`: 8, or 0 for a text without it. */
size_t fm_pdb_id_zeros(const char *text, size_t length);

/* Whether the text is an id of four characters. */
bool fm_pdb_id_is_short(const char *text, size_t length);

/* Writes the id of four characters in lower case that the text is in any spelling. False for other
 * texts. */
bool fm_pdb_id_key(const char *text, size_t length, char out[FM_PDB_ID_BYTES]);

/* Writes "ID_REST", a name that begins with an id in any spelling, with the id in another. False
 * for names of other forms, and where the result does not fit into `out`. */
bool fm_pdb_id_respell(const char *name, fm_pdb_id_spelling spelling, char *out, size_t out_bytes);

#endif
