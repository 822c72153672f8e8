/* confidences.c: the JSON and CSV files of files.h. The matrices of a long complex have tens of
 * millions of numbers, so their text is made by hand and written in pieces. */
#include "trainer/predict/complex/files.h"

#include "proto/base/exact.h"
#include "proto/base/file.h"
#include "proto/base/json_text.h"
#include "trainer/predict/text_file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* -- names */

const char *const fm_complex_ends[FM_COMPLEX_ENDS] = {"_model.cif", "_summary_confidences.json",
                                                      "_confidences.json"};

void fm_complex_stem(const char *name, uint64_t seed, uint32_t sample,
                     char out[FM_COMPLEX_STEM_BYTES]) {
    const unsigned long long s = seed;
    snprintf(out, FM_COMPLEX_STEM_BYTES, "seed-%llu_sample-%u/%.255s_seed-%llu_sample-%u", s,
             sample, name, s, sample);
}

/* -- a file in pieces */

enum { PIECE = 1 << 16, MOST_WORD = 32 };

typedef struct pieces {
    fm_file_writer *writer;
    char *text; /* [PIECE] */
    size_t used;
    fm_status status;
    fm_error *error;
} pieces;

static void flush(pieces *p) {
    if (!p->status) p->status = fm_file_writer_append(p->writer, p->text, p->used, p->error);
    p->used = 0;
}

static void put(pieces *p, const char *text, size_t bytes) {
    while (bytes > 0) {
        if (p->used == PIECE) flush(p);
        size_t room = PIECE - p->used, n = bytes < room ? bytes : room;
        memcpy(p->text + p->used, text, n);
        p->used += n;
        text += n;
        bytes -= n;
    }
}

static void put_text(pieces *p, const char *text) {
    put(p, text, strlen(text));
}

/* A number from 0 to `most` with one or two decimals; a second one that is 0 is left out. Halves
 * are rounded away from 0 in single precision, as AlphaFold 3 does. */
static void put_decimal(pieces *p, float value, float most, int decimals) {
    if (isnan(value)) {
        put_text(p, "null");
        return;
    }
    const float bounded = value < 0 ? 0 : value > most ? most : value;
    uint32_t number = (uint32_t)lroundf(bounded * (decimals == 2 ? 100.0F : 10.0F));
    char text[MOST_WORD];
    size_t at = sizeof text;
    if (decimals == 2 && number % 10 == 0) {
        number /= 10;
        decimals = 1;
    }
    for (; decimals > 0; decimals--, number /= 10)
        text[--at] = (char)('0' + number % 10);
    text[--at] = '.';
    do {
        text[--at] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    put(p, text + at, sizeof text - at);
}

/* -- confidences.json */

/* The ids of the chains of n atoms or tokens, as JSON texts in quoted [K]. */
static void put_ids(pieces *p, const fm_complex_layout *l, char *const *quoted, uint32_t n,
                    bool is_atom) {
    for (uint32_t i = 0; i < n; i++) {
        int32_t token = is_atom ? l->atom_token[i] : (int32_t)i;
        if (i) put_text(p, ",");
        put_text(p, quoted[l->token_chain[token]]);
    }
}

/* The numbers of the residues of the tokens: those of their first atoms. */
static void put_residues(pieces *p, const fm_complex_layout *l) {
    int32_t last = -1;
    for (uint32_t a = 0; a < l->n_atom; a++) {
        if (l->atom_token[a] == last) continue;
        char text[MOST_WORD];
        snprintf(text, sizeof text, "%s%d", last < 0 ? "" : ",", l->atom_residue[a]);
        put_text(p, text);
        last = l->atom_token[a];
    }
}

static void put_matrix_begin(pieces *p, uint32_t row) {
    put_text(p, row ? ",[" : "[");
}

static void put_confidences(pieces *p, const fm_complex_prediction *c, char *const *quoted) {
    const fm_complex_layout *l = c->layout;
    const uint32_t n = l->n_token;
    put_text(p, "{\"atom_chain_ids\":[");
    put_ids(p, l, quoted, l->n_atom, true);
    put_text(p, "],\"atom_plddts\":[");
    for (uint32_t a = 0; a < l->n_atom; a++) {
        if (a) put_text(p, ",");
        put_decimal(p, (float)(100 * c->plddt[a]), 99.99F, 2);
    }
    put_text(p, "],\"contact_probs\":[");
    for (uint32_t i = 0; i < n; i++) {
        put_matrix_begin(p, i);
        for (uint32_t j = 0; j < n; j++) {
            if (j) put_text(p, ",");
            put_decimal(p, (float)c->contact[(size_t)i * n + j], 1, 2);
        }
        put_text(p, "]");
    }
    put_text(p, "],\"pae\":[");
    for (uint32_t i = 0; i < n; i++) {
        put_matrix_begin(p, i);
        for (uint32_t j = 0; j < n; j++) {
            if (j) put_text(p, ",");
            put_decimal(p, c->pae[(size_t)i * n + j], 99.9F, 1);
        }
        put_text(p, "]");
    }
    put_text(p, "],\"token_chain_ids\":[");
    put_ids(p, l, quoted, n, false);
    put_text(p, "],\"token_res_ids\":[");
    put_residues(p, l);
    put_text(p, "]}\n");
}

static char *quote(const char *text) {
    char *quoted = NULL;
    size_t bytes;
    FILE *out = open_memstream(&quoted, &bytes);
    if (!out) return NULL;
    fm_json_put_quoted(out, text);
    if (fclose(out) == 0) return quoted;
    free(quoted);
    return NULL;
}

fm_status fm_complex_write_confidences(const char *path, const fm_complex_prediction *c,
                                       fm_error *reterr) {
    const uint32_t n_chain = c->layout->n_chain;
    char **quoted = calloc((size_t)n_chain + 1, sizeof *quoted);
    pieces p = {.text = malloc(PIECE), .error = reterr};
    bool is_whole = quoted && p.text;
    for (uint32_t k = 0; is_whole && k < n_chain; k++) {
        quoted[k] = quote(c->atoms->chain_id[k]);
        is_whole = quoted[k] != NULL;
    }
    p.status = is_whole ? fm_file_writer_open(path, &p.writer, reterr)
                        : fm_fail_in(reterr, FM_ERR_NOMEM, path, "no memory for the file");
    if (!p.status) {
        put_confidences(&p, c, quoted);
        flush(&p);
        if (p.status) {
            fm_file_writer_discard(p.writer);
        } else {
            p.status = fm_file_writer_commit(p.writer, reterr);
        }
    }
    for (uint32_t k = 0; quoted && k < n_chain; k++)
        free(quoted[k]);
    free(quoted);
    free(p.text);
    return p.status;
}

/* -- summaries */

/* A number as Python prints round(number, 2): "0.5", "-99.43", "1.0"; NAN is null. */
static void put_rounded(FILE *out, double value) {
    if (!isfinite(value)) {
        fputs("null", out);
        return;
    }
    char text[64];
    int bytes = snprintf(text, sizeof text, "%.2f", value);
    if (bytes < (int)sizeof text && text[bytes - 1] == '0') text[bytes - 1] = '\0';
    fputs(text, out);
}

/* Numbers as they are, with the digits that read back to the same bits. */
static void put_exact(FILE *out, double value) {
    char text[FM_EXACT_BYTES];
    if (isfinite(value)) fm_exact_f64(value, 1, text);
    fputs(isfinite(value) ? text : "null", out);
}

/* How a summary prints its numbers. */
typedef void put_number(FILE *out, double value);

static void put_key(FILE *out, const char *key, bool is_first) {
    fprintf(out, "%s\n \"%s\": ", is_first ? "" : ",", key);
}

static void put_scalar(FILE *out, const char *key, bool is_first, double value,
                       put_number *number) {
    put_key(out, key, is_first);
    number(out, value);
}

static void put_numbers(FILE *out, uint32_t n, const double *value, const char *indent,
                        put_number *number) {
    fputc('[', out);
    for (uint32_t i = 0; i < n; i++) {
        fprintf(out, "%s\n%s", i ? "," : "", indent);
        number(out, value[i]);
    }
    fprintf(out, "\n%.*s]", (int)strlen(indent) - 1, indent);
}

static void put_list(FILE *out, const char *key, bool is_first, uint32_t n, const double *value,
                     put_number *number) {
    put_key(out, key, is_first);
    put_numbers(out, n, value, "  ", number);
}

static void put_square(FILE *out, const char *key, uint32_t n, const double *value,
                       put_number *number) {
    put_key(out, key, false);
    fputc('[', out);
    for (uint32_t i = 0; i < n; i++) {
        fprintf(out, "%s\n  ", i ? "," : "");
        put_numbers(out, n, value + (size_t)i * n, "   ", number);
    }
    fputs("\n ]", out);
}

fm_status fm_complex_write_summary(const char *path, const fm_complex_prediction *p,
                                   fm_error *reterr) {
    const fm_complex_scores *s = p->scores;
    const uint32_t n = p->layout->n_chain;
    fm_text_file file;
    fm_status status = fm_text_file_open(&file, reterr);
    if (status) return status;
    FILE *out = file.out;
    fputs("{\n \"chain_ids\": [", out);
    for (uint32_t k = 0; k < n; k++) {
        fputs(k ? ",\n  " : "\n  ", out);
        fm_json_put_quoted(out, p->atoms->chain_id[k]);
    }
    fputs("\n ]", out);
    put_list(out, "chain_iptm", false, n, s->chain_iptm, put_rounded);
    put_square(out, "chain_pair_iptm", n, s->chain_pair_iptm, put_rounded);
    put_square(out, "chain_pair_pae_min", n, s->chain_pair_pae_min, put_rounded);
    put_list(out, "chain_ptm", false, n, s->chain_ptm, put_rounded);
    put_scalar(out, "fraction_disordered", false, s->fraction_disordered, put_rounded);
    put_scalar(out, "has_clash", false, s->has_clash, put_rounded);
    put_scalar(out, "iptm", false, s->iptm, put_rounded);
    put_scalar(out, "ptm", false, s->ptm, put_rounded);
    put_scalar(out, "ranking_score", false, s->ranking_score, put_rounded);
    fputs("\n}\n", out);
    return fm_text_file_commit(&file, path, reterr);
}

fm_status fm_complex_write_protenix(const char *path, uint32_t n_chain, const fm_protenix_scores *s,
                                    uint32_t n_recycle, fm_error *reterr) {
    fm_text_file file;
    fm_status status = fm_text_file_open(&file, reterr);
    if (status) return status;
    FILE *out = file.out;
    fputc('{', out);
    put_scalar(out, "plddt", true, s->plddt, put_exact);
    put_scalar(out, "gpde", false, s->gpde, put_exact);
    put_scalar(out, "ptm", false, s->ptm, put_exact);
    put_scalar(out, "iptm", false, s->iptm, put_exact);
    put_list(out, "chain_ptm", false, n_chain, s->chain_ptm, put_exact);
    put_list(out, "chain_iptm", false, n_chain, s->chain_iptm, put_exact);
    put_square(out, "chain_pair_iptm", n_chain, s->chain_pair_iptm, put_exact);
    put_square(out, "chain_pair_iptm_global", n_chain, s->chain_pair_iptm_global, put_exact);
    put_list(out, "chain_gpde", false, n_chain, s->chain_gpde, put_exact);
    put_square(out, "chain_pair_gpde", n_chain, s->chain_pair_gpde, put_exact);
    put_list(out, "chain_plddt", false, n_chain, s->chain_plddt, put_exact);
    put_square(out, "chain_pair_plddt", n_chain, s->chain_pair_plddt, put_exact);
    put_key(out, "has_clash", false);
    fputs(s->has_clash ? "true" : "false", out);
    put_scalar(out, "disorder", false, 0, put_exact); /* always 0 there */
    put_scalar(out, "ranking_score", false, s->ranking_score, put_exact);
    put_key(out, "num_recycles", false);
    fprintf(out, "%u\n}\n", n_recycle);
    return fm_text_file_commit(&file, path, reterr);
}

/* -- ranking_scores.csv */

fm_status fm_complex_write_ranking(const char *path, const fm_complex_ranked *row, uint32_t n,
                                   fm_error *reterr) {
    fm_text_file file;
    fm_status status = fm_text_file_open(&file, reterr);
    if (status) return status;
    fputs("seed,sample,ranking_score\n", file.out);
    for (uint32_t i = 0; i < n; i++) {
        char text[FM_EXACT_BYTES] = "";
        if (isfinite(row[i].ranking_score)) fm_exact_f64(row[i].ranking_score, 1, text);
        fprintf(file.out, "%llu,%u,%s\n", (unsigned long long)row[i].seed, row[i].sample, text);
    }
    return fm_text_file_commit(&file, path, reterr);
}
