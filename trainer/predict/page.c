/* page.c: see page.h. */
#include "trainer/predict/page.h"

#include "proto/base/markup.h"
#include "proto/base/plural.h"
#include "proto/base/svg.h"
#include "trainer/predict/page_parts.h"
#include "trainer/predict/pictures.h"
#include "trainer/predict/text_file.h"

#include <math.h>

static void put_head(FILE *out, const fm_page *page) {
    char number[FM_SVG_NUMBER_BYTES];
    fm_page_begin(out, page->chain, "predicted structure", "", NULL);
    fprintf(out, "<p class=\"facts\">%u residues; alignment of %s row%s", page->n_res,
            fm_svg_count(page->n_seq, number), fm_plural(page->n_seq));
    if (page->templates) {
        fputs(page->templates[0] ? "; templates " : "; no templates", out);
        fm_markup_put(out, page->templates);
    }
    fputs("</p>\n", out);
}

static void put_table(FILE *out, const fm_page *page) {
    fputs("<h2>Predictions</h2>\n<div class=\"scroll\">\n<table>\n<tr><th>rank</th><th "
          "class=\"t\">model</th>"
          "<th>seed</th><th>mean pLDDT</th><th>pTM</th><th>cycles</th><th>seconds</th>"
          "<th class=\"t\">structure</th><th class=\"t\">confidences</th></tr>\n",
          out);
    for (uint32_t k = 0; k < page->n_row; k++) {
        const fm_page_row *row = &page->row[k];
        fprintf(out, "<tr%s><td>%u</td><td class=\"t\">", k ? "" : " class=\"best\"", k + 1);
        fm_markup_put(out, row->model);
        fprintf(out, "</td><td>%llu</td><td>%.1f</td><td>", (unsigned long long)row->seed,
                row->mean_plddt);
        if (isfinite(row->ptm)) fprintf(out, "%.3f", row->ptm);
        fprintf(out, "</td><td>%u</td><td>%.2f</td>", row->n_cycle, row->run_s);
        fm_page_put_link(out, row->file, row->file);
        fm_page_put_link(out, row->scores, "JSON");
        fputs("</tr>\n", out);
    }
    fputs("</table>\n</div>\n", out);
}

static void put_pictures(FILE *out, const fm_page *page) {
    fputs("<h2>Pictures</h2>\n<div class=\"pictures\">\n", out);
    for (uint32_t k = 0; k < page->n_picture; k++) {
        fputs("<figure>", out);
        fwrite(page->picture[k].data, 1, page->picture[k].size, out);
        fputs("</figure>\n", out);
    }
    fputs("</div>\n", out);
}

static int class_number(double plddt) {
    return (int)(fm_plddt_class_of(plddt) - fm_plddt_classes);
}

/* Writes the sequence in blocks of ten residues, in the colours of pLDDT. */
static void put_sequence(FILE *out, const fm_page *page) {
    enum { BLOCK = 10 };
    uint32_t n_of[FM_PLDDT_CLASSES] = {0};
    for (uint32_t i = 0; i < page->n_res; i++)
        n_of[class_number((double)page->plddt[i])]++;
    fputs("<h2>Sequence by pLDDT of the best prediction</h2>\n<p class=\"key\">", out);
    for (int k = 0; k < FM_PLDDT_CLASSES; k++)
        fprintf(out, "<span class=\"c%d\">%s %.0f %%</span>", k, fm_plddt_classes[k].name,
                100.0 * n_of[k] / page->n_res);
    fputs("</p>\n<div class=\"sequence\">\n", out);
    for (uint32_t begin = 0; begin < page->n_res; begin += BLOCK) {
        uint32_t end = begin + BLOCK < page->n_res ? begin + BLOCK : page->n_res;
        fprintf(out, "<div><i>%5u </i>", begin + 1);
        for (uint32_t i = begin, next; i < end; i = next) {
            int class = class_number((double)page->plddt[i]);
            fprintf(out, "<span class=\"c%d\">", class);
            for (next = i; next < end && class_number((double)page->plddt[next]) == class; next++)
                fputc(page->sequence[next], out);
            fputs("</span>", out);
        }
        fputs("</div>\n", out);
    }
    fputs("</div>\n", out);
}

fm_status fm_page_write(const char *path, const fm_page *page, fm_error *reterr) {
    fm_text_file file;
    fm_status status = fm_text_file_open(&file, reterr);
    if (status) return status;
    put_head(file.out, page);
    put_table(file.out, page);
    put_pictures(file.out, page);
    put_sequence(file.out, page);
    fprintf(file.out,
            "<footer>foldmill %s. pLDDT is the expected lDDT-CA of a residue, 0 to 100; pTM the "
            "expected TM-score, 0 to 1; the aligned error is the expected error of a residue when "
            "the structures are aligned at another one.</footer>\n</body>\n</html>\n",
            page->software);
    return fm_text_file_commit(&file, path, reterr);
}
