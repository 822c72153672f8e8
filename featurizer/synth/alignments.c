/* alignments.c: writes the rows of a family, as aligned with one chain, as A3M or Stockholm. */
#include "featurizer/synth/alignments.h"

#include "featurizer/synth/text.h"

#include <assert.h>
#include <string.h>

/* The rows of one chain, query first, as A3M text: capitals and '-' are columns, small letters are
 * insertions between them. */
typedef struct aligned_rows {
    uint32_t n;
    fm_bytes *texts;     /* [n]; size 0 when too little of the row covers the chain */
    uint32_t *n_letters; /* [n] residues of the fragment */
    size_t text_bytes;   /* of all rows */
} aligned_rows;

static char small(uint8_t aatype) {
    return (char)(fm_synth_letter(aatype) - 'A' + 'a');
}

static bool covers(const fm_synth_row *row, uint32_t site) {
    return site >= row->first && site < row->last && row->states[site] != FM_SYNTH_GAP;
}

/* Writes the row's insertions before `site` in small letters. */
static void put_inserts(fm_synth_text *text, uint64_t seed, uint32_t family,
                        const fm_synth_row *row, uint32_t site) {
    if (site <= row->first || site >= row->last) return;
    for (uint32_t i = 0; i < row->n_insert; i++) {
        if (row->inserts[i].before != site) continue;
        fm_synth_draws draws =
            fm_synth_draws_of(seed, FM_SYNTH_DRAW_INSERT, family, row->inserts[i].number);
        for (uint32_t k = 0; k < row->inserts[i].length; k++)
            fm_synth_text_char(text, small(fm_synth_draw_insertion(&draws)));
    }
}

/* Writes one row against the chain's columns. A residue on a site that the chain lost becomes an
 * insertion, and the chain's own insertions become gaps. Returns the number of filled columns. */
static uint32_t put_row(fm_synth_text *text, uint64_t seed, const fm_synth_chain *chain,
                        const fm_synth_row *row) {
    uint32_t filled = 0, at = 0;
    for (uint32_t i = 0; i < chain->n_res; i++) {
        if (chain->residues[i].site == FM_SYNTH_NO_SITE) {
            fm_synth_text_char(text, '-');
            continue;
        }
        uint32_t site = (uint32_t)chain->residues[i].site;
        if (filled == 0) at = site; /* a local alignment begins at its first column */
        for (; at < site; at++) {
            put_inserts(text, seed, chain->family->number, row, at);
            if (covers(row, at)) fm_synth_text_char(text, small(row->states[at]));
        }
        if (filled > 0) put_inserts(text, seed, chain->family->number, row, site);
        bool here = covers(row, site);
        fm_synth_text_char(text, here ? fm_synth_letter(row->states[site]) : '-');
        filled += here;
        at = site + 1;
    }
    return filled;
}

static uint32_t count_letters(fm_bytes text) {
    uint32_t n = 0;
    for (size_t i = 0; i < text.size; i++)
        n += text.data[i] != '-';
    return n;
}

static fm_status align_rows(fm_arena *arena, uint64_t seed, const fm_synth_chain *chain,
                            const fm_synth_row *rows, aligned_rows *ret_aligned, fm_error *reterr) {
    enum { FEWEST_COLUMNS = 8, LONGEST_INSERTS = 60 * FM_SYNTH_MAX_INSERTS };
    aligned_rows aligned = {.n = chain->family->n_row};
    aligned.texts = fm_arena_calloc(arena, aligned.n, sizeof *aligned.texts);
    aligned.n_letters = fm_arena_calloc(arena, aligned.n, sizeof *aligned.n_letters);
    if (!aligned.texts || !aligned.n_letters) return fm_arena_full(arena, reterr);
    for (uint32_t r = 0; r < aligned.n; r++) {
        size_t most = chain->n_res + chain->family->n_site + LONGEST_INSERTS;
        fm_synth_text text;
        fm_status status = fm_synth_text_begin(&text, arena, most, reterr);
        if (status) return status;
        uint32_t filled = put_row(&text, seed, chain, &rows[r]);
        aligned.texts[r] = fm_synth_text_end(&text);
        if (filled < FEWEST_COLUMNS) aligned.texts[r].size = 0;
        aligned.n_letters[r] = count_letters(aligned.texts[r]);
        aligned.text_bytes += aligned.texts[r].size;
    }
    *ret_aligned = aligned;
    return FM_OK;
}

static void put_query(fm_synth_text *text, const fm_synth_chain *chain) {
    for (uint32_t i = 0; i < chain->n_res; i++)
        fm_synth_text_char(text, fm_synth_letter(chain->residues[i].aatype));
}

enum { HEADER_BYTES = FM_SYNTH_NAME_BYTES + FM_SYNTH_DESCRIPTION_BYTES + 16 };

static fm_status write_a3m(fm_arena *arena, uint64_t seed, const fm_synth_chain *chain,
                           const fm_synth_row *rows, const aligned_rows *aligned, unsigned database,
                           fm_bytes *ret_content, fm_error *reterr) {
    size_t most = aligned->text_bytes + chain->n_res + (size_t)(aligned->n + 1) * HEADER_BYTES;
    fm_synth_text text;
    fm_status status = fm_synth_text_begin(&text, arena, most, reterr);
    if (status) return status;
    fm_synth_text_string(&text, ">query\n");
    put_query(&text, chain);
    fm_synth_text_char(&text, '\n');
    for (uint32_t r = 0; r < aligned->n; r++) {
        if (!(rows[r].found & database) || aligned->texts[r].size == 0) continue;
        fm_synth_row_name name;
        fm_synth_name_row(seed, chain->family->number, r, database, aligned->n_letters[r], &name);
        fm_synth_text_format(&text, ">%s%s%s\n", name.name, name.description[0] ? " " : "",
                             name.description);
        fm_synth_text_bytes(&text, aligned->texts[r].data, aligned->texts[r].size);
        fm_synth_text_char(&text, '\n');
    }
    *ret_content = fm_synth_text_end(&text);
    return FM_OK;
}

static bool is_small(uint8_t letter) {
    return letter >= 'a' && letter <= 'z';
}

/* Sets widths[i] to the largest number of residues that any row of the database inserts before
 * column i; widths[n_res] is for the end. */
static void measure_inserts(const aligned_rows *aligned, const fm_synth_row *rows,
                            unsigned database, uint32_t *widths) {
    for (uint32_t r = 0; r < aligned->n; r++) {
        if (!(rows[r].found & database)) continue;
        uint32_t column = 0, run = 0;
        for (size_t i = 0; i < aligned->texts[r].size; i++) {
            if (is_small(aligned->texts[r].data[i])) {
                run++;
                if (run > widths[column]) widths[column] = run;
            } else {
                column++;
                run = 0;
            }
        }
    }
}

/* Writes A3M text spread over the columns of the whole alignment: insertions in capitals, padded
 * with '-'. */
static void put_spread(fm_synth_text *text, fm_bytes a3m, const uint32_t *widths, uint32_t n_res) {
    size_t at = 0;
    for (uint32_t column = 0; column <= n_res; column++) {
        uint32_t run = 0;
        for (; at < a3m.size && is_small(a3m.data[at]); at++, run++)
            fm_synth_text_char(text, (char)(a3m.data[at] - 'a' + 'A'));
        fm_synth_text_fill(text, '-', widths[column] - run);
        if (column < n_res) fm_synth_text_char(text, (char)a3m.data[at++]);
    }
    fm_synth_text_char(text, '\n');
}

static void put_stockholm_rows(fm_synth_text *text, uint64_t seed, const fm_synth_chain *chain,
                               const fm_synth_row *rows, const aligned_rows *aligned,
                               unsigned database, const uint32_t *widths, bool descriptions) {
    for (uint32_t r = 0; r < aligned->n; r++) {
        if (!(rows[r].found & database) || aligned->texts[r].size == 0) continue;
        fm_synth_row_name name;
        fm_synth_name_row(seed, chain->family->number, r, database, aligned->n_letters[r], &name);
        if (descriptions) {
            fm_synth_text_format(text, "#=GS %-36s DE %s\n", name.name, name.description);
            continue;
        }
        fm_synth_text_format(text, "%-41s ", name.name);
        put_spread(text, aligned->texts[r], widths, chain->n_res);
    }
}

static fm_status write_stockholm(fm_arena *arena, uint64_t seed, const fm_synth_chain *chain,
                                 const fm_synth_row *rows, const aligned_rows *aligned,
                                 unsigned database, fm_bytes *ret_content, fm_error *reterr) {
    uint32_t *widths = fm_arena_calloc(arena, (size_t)chain->n_res + 1, sizeof *widths);
    uint8_t *letters = fm_arena_alloc(arena, chain->n_res);
    if (!widths || !letters) return fm_arena_full(arena, reterr);
    measure_inserts(aligned, rows, database, widths);
    size_t columns = chain->n_res;
    for (uint32_t i = 0; i <= chain->n_res; i++)
        columns += widths[i];
    for (uint32_t i = 0; i < chain->n_res; i++)
        letters[i] = (uint8_t)fm_synth_letter(chain->residues[i].aatype);
    fm_synth_text text;
    fm_status status = fm_synth_text_begin(
        &text, arena, (size_t)(aligned->n + 2) * (columns + 2 * HEADER_BYTES), reterr);
    if (status) return status;
    fm_synth_text_string(&text, "# STOCKHOLM 1.0\n\n");
    put_stockholm_rows(&text, seed, chain, rows, aligned, database, widths, true);
    fm_synth_text_format(&text, "\n%-41s ", "query");
    put_spread(&text, (fm_bytes){letters, chain->n_res}, widths, chain->n_res);
    put_stockholm_rows(&text, seed, chain, rows, aligned, database, widths, false);
    fm_synth_text_string(&text, "//\n");
    *ret_content = fm_synth_text_end(&text);
    return FM_OK;
}

fm_status fm_synth_alignments(fm_arena *arena, const fm_synth_options *options,
                              const fm_synth_entry *entry, uint32_t slot,
                              fm_synth_file ret_files[FM_SYNTH_MAX_FILES], uint32_t *ret_n_file,
                              fm_error *reterr) {
    static const struct {
        const char *a3m, *stockholm;
        unsigned database;
    } kinds[] = {
        {"bfd_uniclust_hits.a3m", NULL, FM_SYNTH_BFD},
        {"mgnify_hits.a3m", "mgnify_hits.sto", FM_SYNTH_MGNIFY},
        {NULL, NULL, 0},
        {NULL, "uniprot_hits.sto", FM_SYNTH_UNIPROT},
        {"uniref90_hits.a3m", "uniref90_hits.sto", FM_SYNTH_UNIREF},
    };
    assert(slot < entry->n_chain);
    fm_synth_family family;
    fm_synth_chain chain;
    fm_synth_row *rows;
    aligned_rows aligned;
    fm_status status = fm_synth_family_make(arena, options, entry->family[slot], &family, reterr);
    if (!status) status = fm_synth_chain_make(arena, options, entry, slot, &family, &chain, reterr);
    if (!status) status = fm_synth_rows_make(arena, options, &family, &rows, reterr);
    if (!status) status = align_rows(arena, options->seed, &chain, rows, &aligned, reterr);
    uint32_t n_file = 0;
    for (uint32_t i = 0; !status && i < FM_SYNTH_MAX_FILES; i++) {
        bool is_paired = kinds[i].database == FM_SYNTH_UNIPROT;
        bool stockholm = is_paired || (options->stockholm && kinds[i].stockholm);
        if (is_paired && !options->complexes) continue;
        fm_synth_file *file = &ret_files[n_file++];
        file->name = stockholm ? kinds[i].stockholm : kinds[i].a3m;
        if (kinds[i].database == 0) {
            file->name = "pdb70_hits.hhr";
            status = fm_synth_hhr(arena, options, entry, slot, &chain, &file->content, reterr);
        } else {
            status = (stockholm ? write_stockholm : write_a3m)(arena, options->seed, &chain, rows,
                                                               &aligned, kinds[i].database,
                                                               &file->content, reterr);
        }
    }
    if (!status) *ret_n_file = n_file;
    return status;
}
