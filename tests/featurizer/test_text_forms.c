/* test_text_forms.c: every format of text gives the same value in all forms that editors and
 * servers give it: line ends of Unix, Windows and old Macs, a byte order mark, no last line end, a
 * NUL byte at the end. What lies under the name of another file is refused by each of them. */
#include "featurizer/parse/a3m.h"
#include "featurizer/parse/hhr.h"
#include "featurizer/parse/hmmsearch.h"
#include "featurizer/parse/mmcif.h"
#include "featurizer/parse/pdb.h"
#include "featurizer/parse/stockholm.h"
#include "featurizer/query.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static fm_arena arena;
static fm_error error;

static int set_up(void **state) {
    (void)state;
    return fm_arena_init(&arena, (size_t)64 << 20, NULL) ? -1 : 0;
}

static int tear_down(void **state) {
    (void)state;
    fm_arena_fini(&arena);
    return 0;
}

/* -- a digest in words of what each format reads */

enum { WORDS = 400 };

static fm_status read_a3m(fm_bytes text, char *words) {
    fm_alignment rows;
    fm_status status = fm_a3m_parse(text, NULL, &arena, &rows, &error);
    if (!status) {
        snprintf(words, WORDS, "%u %u %.*s", rows.n_seq, rows.n_col, (int)(rows.n_seq * rows.n_col),
                 (const char *)rows.letters);
    }
    return status;
}

static fm_status read_stockholm(fm_bytes text, char *words) {
    fm_alignment rows;
    fm_status status = fm_stockholm_parse(text, NULL, &arena, &rows, &error);
    if (!status) {
        snprintf(words, WORDS, "%u %u %.*s", rows.n_seq, rows.n_col, (int)(rows.n_seq * rows.n_col),
                 (const char *)rows.letters);
    }
    return status;
}

static void describe_hits(const fm_hits *hits, char *words) {
    int at = snprintf(words, WORDS, "%u", hits->n_hit);
    for (uint32_t i = 0; i < hits->n_hit; i++) {
        const fm_hit *hit = &hits->hit[i];
        at += snprintf(words + at, (size_t)(WORDS - at), " '%.*s' %d %.*s", (int)hit->name.size,
                       (const char *)hit->name.data, hit->aligned_cols, (int)hit->n_hit, hit->hit);
    }
}

static fm_status read_hhr(fm_bytes text, char *words) {
    fm_hits hits;
    fm_status status = fm_hhr_parse(text, false, &arena, &hits, &error);
    if (!status) describe_hits(&hits, words);
    return status;
}

static fm_status read_hmmsearch(fm_bytes text, char *words) {
    fm_hits hits;
    const fm_bytes query = {(const uint8_t *)"ACDE", 4};
    fm_status status = fm_hmmsearch_parse(text, query, false, &arena, &hits, &error);
    if (!status) describe_hits(&hits, words);
    return status;
}

static fm_status read_pdb(fm_bytes text, char *words) {
    fm_pdb pdb;
    const fm_pdb_options options = {.compat_openfold = false};
    fm_status status = fm_pdb_parse(text, &options, &arena, &pdb, &error);
    if (!status) snprintf(words, WORDS, "%u %s", pdb.n_chain, pdb.sequence);
    return status;
}

static fm_status read_mmcif(fm_bytes text, char *words) {
    fm_mmcif mmcif;
    const fm_mmcif_options options = {.compat_openfold = false};
    fm_status status = fm_mmcif_parse(text, &options, &arena, &mmcif, &error);
    if (!status) {
        snprintf(words, WORDS, "%u %u %s", mmcif.n_chain, mmcif.chains[0].n_res,
                 mmcif.chains[0].sequence);
    }
    return status;
}

static fm_status read_fasta(fm_bytes text, char *words) {
    fm_part_sequence sequence;
    fm_status status = fm_query_parse(text, FM_QUERY_FASTA, &arena, &sequence, &error);
    if (!status) snprintf(words, WORDS, "%.*s", (int)sequence.n_res, sequence.sequence);
    return status;
}

/* -- texts */

#define PDB_LINE(residue, number)                                                                  \
    "ATOM      2  CA  " residue " A   " number                                                     \
    "       4.000   5.000   6.000  1.00 90.00           C\n"

static const struct {
    const char *format;
    fm_status (*read)(fm_bytes text, char *words);
    const char *text, *words;
} formats[] = {
    {"A3M", read_a3m, "#4\t1\n>q\nACDE\n>r some words\nA-aC\nE\n", "2 4 ACDEA-CE"},
    {"Stockholm", read_stockholm, "# STOCKHOLM 1.0\nq ACDE\nr A-CE\n\n//\n", "2 4 ACDEA-CE"},
    {"HHR", read_hhr,
     "Query q\nCommand hhsearch\n\n No Hit\n  1 1ABC_A\n\nNo 1\n>1ABC_A a thing\n"
     "Aligned_cols=2 Sum_probs=1.5\n\nQ q                   1 AC    2 (4)\n"
     "T 1ABC_A              1 AC    2 (9)\n\n",
     "1 '1ABC_A a thing' 2 AC"},
    {"hmmsearch", read_hmmsearch,
     "# STOCKHOLM 1.0\n#=GS 1abc_A/1-3 DE mol:protein length:3\n1abc_A/1-3 AC-E\n//\n",
     "1 '1abc_A' 3 AC-E"},
    {"PDB", read_pdb, PDB_LINE("ALA", "1") "END\n" PDB_LINE("GLY", "2") "END\n", "1 A"},
    {"mmCIF", read_mmcif,
     "data_x\n_entity_poly_seq.entity_id 1\n_entity_poly_seq.num 1\n_entity_poly_seq.mon_id ALA\n"
     "_struct_asym.id A\n_struct_asym.entity_id 1\n"
     "loop_\n_atom_site.label_atom_id\n_atom_site.label_comp_id\n_atom_site.label_asym_id\n"
     "_atom_site.label_seq_id\n_atom_site.Cartn_x\n_atom_site.Cartn_y\n_atom_site.Cartn_z\n"
     "CA ALA A 1 1.0 2.0 3.0\n",
     "1 1 A"},
    {"FASTA", read_fasta, ">q\nAC\nDE\n", "ACDE"},
};

enum { N_FORMAT = sizeof formats / sizeof formats[0] };

typedef enum form { LF, CR_LF, CR, MARK, NO_END, NUL_END, N_FORM } form;

/* Writes the text in a form; returns its bytes. */
static size_t write_form(const char *text, form wanted, char *out) {
    size_t n = 0;
    if (wanted == MARK) n = strlen(strcpy(out, "\xef\xbb\xbf"));
    for (; *text; text++) {
        if (*text == '\n' && wanted == CR_LF) out[n++] = '\r';
        out[n++] = *text == '\n' && wanted == CR ? '\r' : *text;
    }
    while (wanted == NO_END && out[n - 1] == '\n')
        n--;
    if (wanted == NUL_END) out[n++] = '\0';
    return n;
}

static void all_forms_read_alike(void **state) {
    (void)state;
    static const char *const names[N_FORM] = {"LF",   "CR LF",        "CR",
                                              "mark", "no final end", "NUL at the end"};
    char out[4096], words[WORDS];
    for (size_t f = 0; f < N_FORMAT; f++) {
        for (form wanted = LF; wanted < N_FORM; wanted++) {
            fm_bytes text = {(const uint8_t *)out, write_form(formats[f].text, wanted, out)};
            fm_arena_reset(&arena);
            if (formats[f].read(text, words)) {
                fail_msg("%s, %s: %s", formats[f].format, names[wanted], error.message);
            }
            if (strcmp(words, formats[f].words) != 0) {
                fail_msg("%s, %s: %s", formats[f].format, names[wanted], words);
            }
        }
    }
}

static void another_text_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *text, *message;
    } others[] = {
        {"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12345\n",
         "found a pointer of Git LFS"},
        {"\n<!DOCTYPE html>\n<html>\n</html>\n", "found a web page"},
        {"<?xml version=\"1.0\"?>\n<Error></Error>\n", "found a web page or an XML message"},
        {"\xff\xfe>\1q\1\n\1", "found text in UTF-16"},
        {"{\"chain\": \"q\"}\n", ""},
        {"some words\nother words\n", ""},
    };
    char words[WORDS];
    for (size_t f = 0; f < N_FORMAT; f++) {
        for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
            fm_bytes text = {(const uint8_t *)others[i].text, strlen(others[i].text)};
            fm_arena_reset(&arena);
            memset(&error, 0, sizeof error);
            bool is_refused = formats[f].read(text, words) && error.message[0] &&
                              strstr(error.message, others[i].message);
            /* Lines of two words are rows of Stockholm; their letters are checked behind it. */
            bool is_rows = formats[f].read == read_stockholm && i >= 4;
            if (!is_refused && !is_rows) {
                fail_msg("%s, text %zu: %s", formats[f].format, i, error.message);
            }
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(all_forms_read_alike, set_up, tear_down),
        cmocka_unit_test_setup_teardown(another_text_is_refused, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
