/* page.c: see page.h. */
#include "trainer/predict/complex/page.h"

#include "proto/base/markup.h"
#include "proto/base/plural.h"
#include "proto/base/svg.h"
#include "trainer/predict/complex/scene.h"
#include "trainer/predict/page_parts.h"
#include "trainer/predict/pictures.h"
#include "trainer/predict/text_file.h"
#include "trainer/predict/view.h"

#include <math.h>
#include <stdlib.h>

enum { MOST_CHAINS = 40 }; /* in the table of pairs */

/* Cells of a matrix have sharp edges, so that a border between two cells is where it is. */
static const char style[] =
    "figure.matrix path{shape-rendering:crispEdges}"
    ".pairs th,.pairs td{padding:5px 12px;text-align:center}"
    ".view{width:580px}.view canvas{display:block;width:100%;height:440px;touch-action:none}"
    ".view canvas:focus-visible{outline:2px solid #7fb4ea}.view label{margin-right:12px}"
    ".view p{margin:4px 0}.view .facts{font-size:13px}.view output{display:block;min-height:1.5em}"
    "@media print{.view canvas{height:300px}.view label,.view .facts{display:none}}";

/* -- one structure */

static double error_at(const void *values, size_t index) {
    return (double)((const float *)values)[index];
}

static double contact_at(const void *values, size_t index) {
    return ((const double *)values)[index];
}

/* Makes the pLDDT (0..100) of each token: the mean of its atoms. NULL without memory. */
static float *make_token_plddt(const fm_complex_prediction *p) {
    const fm_complex_layout *l = p->layout;
    float *plddt = calloc(l->n_token, sizeof *plddt);
    uint32_t *n = calloc(l->n_token, sizeof *n);
    for (uint32_t a = 0; plddt && n && a < l->n_atom; a++) {
        plddt[l->atom_token[a]] += (float)(100 * p->plddt[a]);
        n[l->atom_token[a]]++;
    }
    for (uint32_t i = 0; plddt && n && i < l->n_token; i++)
        plddt[i] /= (float)n[i];
    if (!n) {
        free(plddt);
        plddt = NULL;
    }
    free(n);
    return plddt;
}

static void draw_matrices(FILE *out, const fm_complex_prediction *p,
                          const fm_picture_chains *chains, const char *remark) {
    const fm_matrix_picture pae = {.title = "Predicted aligned error",
                                   .remark = remark,
                                   .unit = "Å",
                                   .left = "aligned residue",
                                   .below = "scored residue",
                                   .n = p->layout->n_token,
                                   .values = p->pae,
                                   .at = error_at,
                                   .most = 32, /* where the last class ends */
                                   .step = 10,
                                   .chains = chains};
    const fm_matrix_picture contacts = {.title = "Contact probabilities",
                                        .remark = "of all structures of the seed",
                                        .unit = "",
                                        .left = "token",
                                        .below = "token",
                                        .n = p->layout->n_token,
                                        .values = p->contact,
                                        .at = contact_at,
                                        .most = 1,
                                        .step = 0.25,
                                        .is_high_dark = true,
                                        .chains = chains};
    fputs("<figure class=\"matrix\">", out);
    fm_picture_matrix(out, &pae);
    fputs("</figure>\n<figure class=\"matrix\">", out);
    fm_picture_matrix(out, &contacts);
    fputs("</figure>\n", out);
}

/* The drawing in three dimensions. The page's script draws the object in #scene into the canvas. */
static fm_status put_view(FILE *out, const fm_complex_prediction *p, fm_error *reterr) {
    fputs("<figure class=\"view\">\n<p>colours: "
          "<label><input type=\"radio\" name=\"colouring\" value=\"plddt\" checked=\"\"/> "
          "pLDDT</label><label><input type=\"radio\" name=\"colouring\" value=\"chain\"/> "
          "chain, and elements of ligands</label></p>\n"
          "<canvas id=\"view\" tabindex=\"0\" role=\"img\" aria-label=\"The structure in three "
          "dimensions\"></canvas>\n<p class=\"key\" id=\"key\"></p>\n<output id=\"at\"></output>\n"
          "<p class=\"facts\">Drag to turn, with shift to move; the wheel or + and - change the "
          "size after a click; 0 or a double click begins anew.</p>\n"
          "<noscript>A browser with scripts draws the structure here.</noscript>\n"
          "<div id=\"scene\" hidden=\"\">",
          out);
    uint32_t n_left_out;
    fm_status status = fm_complex_scene_put(out, p, &n_left_out, reterr);
    fputs("</div>\n", out);
    if (n_left_out) {
        fprintf(out, "<p class=\"facts\">%u residues and atoms are not drawn.</p>\n", n_left_out);
    }
    fputs("</figure>\n", out);
    return status;
}

/* A cell with a score in a green that is the denser the higher the score is. */
static void put_pair(FILE *out, double score) {
    if (!isfinite(score)) {
        fputs("<td>-</td>", out);
        return;
    }
    fprintf(out, "<td style=\"background:rgba(0,109,44,%.2f)%s\">%.2f</td>", score,
            score > 0.6 ? ";color:#fff" : "", score);
}

static void put_pairs(FILE *out, const fm_complex_prediction *p) {
    const uint32_t n_chain = p->layout->n_chain;
    const uint32_t n = n_chain < MOST_CHAINS ? n_chain : MOST_CHAINS;
    fputs("<h2>ipTM of pairs of chains</h2>\n<p class=\"facts\">on the diagonal: the chain's pTM",
          out);
    if (n < n_chain) fprintf(out, "; the first %u of %u chains", n, n_chain);
    fputs("</p>\n<div class=\"scroll\">\n<table class=\"pairs\">\n<tr><th></th>", out);
    for (uint32_t a = 0; a < n; a++) {
        fputs("<th>", out);
        fm_markup_put(out, p->atoms->chain_id[a]);
        fputs("</th>", out);
    }
    fputs("</tr>\n", out);
    for (uint32_t a = 0; a < n; a++) {
        fputs("<tr><th>", out);
        fm_markup_put(out, p->atoms->chain_id[a]);
        fputs("</th>", out);
        for (uint32_t b = 0; b < n; b++)
            put_pair(out, p->scores->chain_pair_iptm[(size_t)a * n_chain + b]);
        fputs("</tr>\n", out);
    }
    fputs("</table>\n</div>\n", out);
}

fm_status fm_complex_page_draw(const fm_complex_prediction *p, char **ret_text, size_t *ret_bytes,
                               fm_error *reterr) {
    const fm_picture_chains chains = {p->layout->token_chain, p->atoms->chain_id};
    char name[64];
    float *plddt = make_token_plddt(p);
    *ret_text = NULL;
    FILE *out = plddt ? open_memstream(ret_text, ret_bytes) : NULL;
    bool is_whole = out != NULL;
    fm_status status = FM_OK;
    if (out) {
        snprintf(name, sizeof name, "seed %llu, sample %u", (unsigned long long)p->seed, p->sample);
        const fm_plddt_curve curve = {name, plddt, p->scores->mean_plddt};
        fprintf(out, "<h2>The best structure: %s</h2>\n<div class=\"pictures\">\n", name);
        status = put_view(out, p, reterr);
        draw_matrices(out, p, &chains, name);
        fputs("<figure>", out);
        fm_picture_plddt(out, p->name, p->layout->n_token, &curve, 1, &chains);
        fputs("</figure>\n</div>\n", out);
        put_pairs(out, p);
        is_whole = !ferror(out);
        if (fclose(out)) is_whole = false;
    }
    free(plddt);
    if (is_whole && !status) return FM_OK;
    free(*ret_text);
    *ret_text = NULL;
    if (status) return status;
    return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the pictures of a structure");
}

/* -- the page */

static void put_head(FILE *out, const fm_complex_page *page) {
    char tokens[FM_SVG_NUMBER_BYTES], atoms[FM_SVG_NUMBER_BYTES];
    fm_page_begin(out, page->name, "predicted structure", style, fm_view_scripts[0].text);
    fprintf(out, "<p class=\"facts\">%u chain%s, %s token%s, %s atom%s</p>\n", page->n_chain,
            fm_plural(page->n_chain), fm_svg_count(page->n_token, tokens), fm_plural(page->n_token),
            fm_svg_count(page->n_atom, atoms), fm_plural(page->n_atom));
}

static void put_score(FILE *out, double score) {
    if (isfinite(score)) {
        fprintf(out, "<td>%.3f</td>", score);
    } else {
        fputs("<td>-</td>", out);
    }
}

static void put_table(FILE *out, const fm_complex_page *page) {
    static const char *const words[FM_COMPLEX_ENDS] = {"mmCIF", "JSON", "JSON"};
    fputs("<h2>Structures</h2>\n<div class=\"scroll\">\n<table>\n<tr><th>rank</th><th>seed</th>"
          "<th>sample</th><th>ranking score</th><th>pTM</th><th>ipTM</th><th>mean pLDDT</th>"
          "<th>clash</th><th>disordered</th><th class=\"t\">structure</th>"
          "<th class=\"t\">scores</th><th class=\"t\">confidences</th></tr>\n",
          out);
    for (uint32_t k = 0; k < page->n_row; k++) {
        const fm_complex_page_row *row = &page->row[k];
        fprintf(out, "<tr%s><td>%u</td><td>%llu</td><td>%u</td>", k ? "" : " class=\"best\"", k + 1,
                (unsigned long long)row->seed, row->sample);
        put_score(out, row->ranking_score);
        put_score(out, row->ptm);
        put_score(out, row->iptm);
        fprintf(out, "<td>%.1f</td><td>%s</td>", row->mean_plddt, row->has_clash ? "yes" : "no");
        put_score(out, row->fraction_disordered);
        char stem[FM_COMPLEX_STEM_BYTES], file[FM_COMPLEX_STEM_BYTES + 64];
        fm_complex_stem(page->name, row->seed, row->sample, stem);
        for (int i = 0; i < FM_COMPLEX_ENDS; i++) {
            snprintf(file, sizeof file, "%s%s", stem, fm_complex_ends[i]);
            fm_page_put_link(out, file, words[i]);
        }
        fputs("</tr>\n", out);
    }
    fputs("</table>\n</div>\n", out);
}

fm_status fm_complex_page_write(const char *path, const fm_complex_page *page, fm_error *reterr) {
    fm_text_file file;
    fm_status status = fm_text_file_open(&file, reterr);
    if (status) return status;
    put_head(file.out, page);
    put_table(file.out, page);
    fwrite(page->best, 1, page->best_bytes, file.out);
    fprintf(
        file.out,
        "<footer>foldmill %s. pLDDT is the expected lDDT, 0 to 100; pTM the expected TM-score "
        "and ipTM that of the tokens of other chains, 0 to 1; the aligned error is the expected "
        "error of a scored residue when the structures are aligned at another one. Residues "
        "are tokens: of ligands, atoms.</footer>\n",
        page->software);
    fm_page_put_script(file.out, fm_view_scripts[0].text);
    fputs("</body>\n</html>\n", file.out);
    return fm_text_file_commit(&file, path, reterr);
}
