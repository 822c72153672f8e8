/* page.c: see page.h. */
#include "trainer/predict/page.h"

#include "proto/base/markup.h"
#include "proto/base/plural.h"
#include "proto/base/svg.h"
#include "trainer/predict/pictures.h"
#include "trainer/predict/text_file.h"

#include <math.h>

static const char style[] =
    ":root{color-scheme:light dark}"
    "body{margin:0 auto;max-width:1240px;padding:28px 24px 48px;background:#fff;color:#222;"
    "font:15px/1.5 Helvetica,Arial,'DejaVu Sans',sans-serif}"
    "h1{font-size:26px;margin:0}h2{font-size:17px;margin:34px 0 10px}"
    ".facts{color:#5f6368;margin:4px 0 0}"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums}"
    "th,td{padding:5px 18px 5px 0;text-align:right;border-bottom:1px solid #e3e6ea;"
    "white-space:nowrap}"
    ".scroll{overflow-x:auto}"
    "th{font-weight:600;color:#5f6368}th.t,td.t{text-align:left}"
    "tr.best td{font-weight:600}"
    ".pictures{display:flex;flex-wrap:wrap;gap:24px}"
    ".pictures>figure{margin:0;padding:10px;border:1px solid #e3e6ea;border-radius:8px;"
    "box-sizing:border-box;max-width:100%}"
    "figure>svg{display:block;max-width:100%;height:auto}"
    ".sequence{font:14px/1.9 'DejaVu Sans Mono',Menlo,monospace;display:flex;flex-wrap:wrap;"
    "gap:0 12px}"
    ".sequence div{white-space:pre}.sequence i{font-style:normal;color:#8a9099}"
    ".c0{background:#0053d6;color:#fff}.c1{background:#65cbf3;color:#10222b}"
    ".c2{background:#ffdb13;color:#2b2500}.c3{background:#ff7d45;color:#2b1000}"
    ".key{display:flex;flex-wrap:wrap;gap:6px 8px}.key span{padding:1px 8px;border-radius:3px}"
    "footer{margin-top:40px;color:#5f6368;font-size:13px}"
    "@media(prefers-color-scheme:dark){body{background:#0d1117;color:#e6edf3}"
    ".facts,th,footer{color:#9aa4af}th,td,.pictures>figure{border-color:#262c36}"
    "a{color:#7fb4ea}}"
    "@media(max-width:600px){body{padding:16px 12px 32px}.pictures{gap:12px}"
    ".pictures>figure{padding:4px}th,td{padding-right:12px}}"
    /* On paper nothing scrolls, and colours that mean something are kept. */
    "@media print{body{max-width:none;padding:0;font-size:12px;print-color-adjust:exact;"
    "-webkit-print-color-adjust:exact}.scroll{overflow:visible}h2{margin:16px 0 6px;"
    "break-after:avoid}th,td{padding:2px 8px 2px 0;white-space:normal}"
    "td.t{overflow-wrap:anywhere}.pictures{display:block}"
    ".pictures>figure{display:inline-block;vertical-align:top;width:49%;margin:0 0 6px;"
    "padding:4px;break-inside:avoid}.sequence{font-size:11px}.sequence div{break-inside:avoid}}";

/* Writes a file's name as a URL reference, and escapes everything with a meaning in one. */
static void put_reference(FILE *out, const char *name) {
    fputs("./", out);
    for (const unsigned char *c = (const unsigned char *)name; *c; c++) {
        bool is_plain = (*c >= '0' && *c <= '9') || (*c >= 'A' && *c <= 'Z') ||
                        (*c >= 'a' && *c <= 'z') || *c == '-' || *c == '_' || *c == '.';
        fprintf(out, is_plain ? "%c" : "%%%02X", *c);
    }
}

/* A cell with a link to a file in the page's folder. */
static void put_link(FILE *out, const char *file, const char *text) {
    fputs("<td class=\"t\"><a href=\"", out);
    put_reference(out, file);
    fputs("\">", out);
    fm_markup_put(out, text);
    fputs("</a></td>", out);
}

static void put_head(FILE *out, const fm_page *page) {
    fputs("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
          "'unsafe-inline'\">\n<meta name=\"viewport\" content=\"width=device-width\">\n<title>",
          out);
    fm_markup_put(out, page->chain);
    fprintf(out, " - predicted structure</title>\n<style>%s</style>\n</head>\n<body>\n<h1>", style);
    fm_markup_put(out, page->chain);
    char number[FM_SVG_NUMBER_BYTES];
    fprintf(out, "</h1>\n<p class=\"facts\">%u residues; alignment of %s row%s", page->n_res,
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
        put_link(out, row->file, row->file);
        put_link(out, row->scores, "JSON");
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
