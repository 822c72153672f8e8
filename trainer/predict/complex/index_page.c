/* index_page.c: see index_page.h. */
#include "trainer/predict/complex/index_page.h"

#include "proto/base/markup.h"
#include "proto/base/plural.h"
#include "proto/base/svg.h"
#include "trainer/predict/page_parts.h"
#include "trainer/predict/pictures.h"
#include "trainer/predict/text_file.h"

#include <math.h>
#include <stdlib.h>

enum { FILE_BYTES = 2048 };

static const char style[] = "td.why{white-space:normal;max-width:60em;overflow-wrap:anywhere}"
                            "td.score{min-width:8em}";

static int compare(const void *a, const void *b) {
    const fm_complex_index_row *x = *(const fm_complex_index_row *const *)a;
    const fm_complex_index_row *y = *(const fm_complex_index_row *const *)b;
    if (!x->why != !y->why) return x->why ? 1 : -1;
    if (!x->why && x->best.ranking_score != y->best.ranking_score) {
        return x->best.ranking_score > y->best.ranking_score ? -1 : 1;
    }
    return x < y ? -1 : 1;
}

static void put_number(FILE *out, double value, int digits) {
    if (isfinite(value)) {
        fprintf(out, "<td>%.*f</td>", digits, value);
    } else {
        fputs("<td>-</td>", out);
    }
}

/* A score with a bar that is full at 1. Scores of clashes are far below 0. */
static void put_score(FILE *out, double score) {
    const double part = fmin(fmax(score, 0), 1) * 100;
    fprintf(out,
            "<td class=\"score\" style=\"background:linear-gradient(to right,rgba(0,109,44,.4) "
            "%.0f%%,transparent %.0f%%)\">%.3f</td>",
            part, part, score);
}

/* The job's page, or the table of its scores. */
static void put_name(FILE *out, const fm_complex_index_row *row) {
    char file[FILE_BYTES];
    snprintf(file, sizeof file, "%s/%s%s", row->job, row->job,
             row->has_page ? ".html" : "_ranking_scores.csv");
    fm_page_put_link(out, file, row->job);
}

static void put_row(FILE *out, const fm_complex_index_row *row, uint32_t rank) {
    const fm_complex_page_row *best = &row->best;
    const long class = fm_plddt_class_of(best->mean_plddt) - fm_plddt_classes;
    fprintf(out, "<tr><td>%u</td>", rank);
    put_name(out, row);
    fprintf(out, "<td>%u</td><td>%u</td><td>%u</td><td>%u</td><td>%llu</td><td>%u</td>",
            row->n_chain, row->n_token, row->n_atom, row->n_structure,
            (unsigned long long)best->seed, best->sample);
    put_score(out, best->ranking_score);
    put_number(out, best->ptm, 3);
    put_number(out, best->iptm, 3);
    fprintf(out, "<td><span class=\"c%ld\">&#160;%.1f&#160;</span></td><td>%s</td>", class,
            best->mean_plddt, best->has_clash ? "yes" : "no");
    put_number(out, best->fraction_disordered, 3);
    fputs("</tr>\n", out);
}

static void put_predicted(FILE *out, const fm_complex_index_row *const *row, uint32_t n) {
    if (n == 0) return;
    fputs("<div class=\"scroll\">\n<table>\n<tr><th>rank</th><th class=\"t\">job</th><th>chains"
          "</th><th>tokens</th><th>atoms</th><th>structures</th><th>best seed</th><th>sample</th>"
          "<th>ranking score</th><th>pTM</th><th>ipTM</th><th>mean pLDDT</th><th>clash</th>"
          "<th>disordered</th></tr>\n",
          out);
    for (uint32_t i = 0; i < n; i++)
        put_row(out, row[i], i + 1);
    fputs("</table>\n</div>\n", out);
}

static void put_others(FILE *out, const fm_complex_index_row *const *row, uint32_t n) {
    if (n == 0) return;
    fputs("<h2>Without structures</h2>\n<div class=\"scroll\">\n<table>\n<tr><th class=\"t\">job"
          "</th><th class=\"t\">reason</th></tr>\n",
          out);
    for (uint32_t i = 0; i < n; i++) {
        fputs("<tr><td class=\"t\">", out);
        fm_markup_put(out, row[i]->job);
        fputs("</td><td class=\"t why\">", out);
        fm_markup_put(out, row[i]->why);
        fputs("</td></tr>\n", out);
    }
    fputs("</table>\n</div>\n", out);
}

static void put_page(FILE *out, const fm_complex_index_row *const *row, uint32_t n,
                     const char *software) {
    char text[FM_SVG_NUMBER_BYTES];
    uint32_t n_made = 0;
    uint64_t n_structure = 0;
    for (uint32_t i = 0; i < n; i++) {
        n_made += !row[i]->why;
        n_structure += row[i]->why ? 0 : row[i]->n_structure;
    }
    fm_page_begin(out, "Predicted complexes", "foldmill", style, NULL);
    fprintf(out, "<p class=\"facts\">%u job%s, %s structure%s, best first; ", n_made,
            fm_plural(n_made), fm_svg_count(n_structure, text), fm_plural(n_structure));
    fputs("<a href=\"./summary.csv\">summary.csv</a> has all structures</p>\n", out);
    put_predicted(out, row, n_made);
    put_others(out, row + n_made, n - n_made);
    fprintf(
        out,
        "<footer>foldmill %s. A row has the scores of the job's structure with the highest "
        "ranking score: 0.8 ipTM + 0.2 pTM, of one chain pTM, and half of the disordered share, "
        "less 100 for clashes.</footer>\n</body>\n</html>\n",
        software);
}

fm_status fm_complex_index_write(const char *path, const fm_complex_index_row *rows, uint32_t n,
                                 const char *software, fm_error *reterr) {
    const fm_complex_index_row **row = calloc((size_t)n + 1, sizeof *row);
    if (!row) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the page of all jobs");
    fm_text_file file;
    fm_status status = fm_text_file_open(&file, reterr);
    if (!status) {
        for (uint32_t i = 0; i < n; i++)
            row[i] = &rows[i];
        qsort(row, n, sizeof row[0], compare);
        put_page(file.out, row, n, software);
        status = fm_text_file_commit(&file, path, reterr);
    }
    free(row);
    return status;
}
