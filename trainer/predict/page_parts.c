/* page_parts.c: see page_parts.h. */
#include "trainer/predict/page_parts.h"

#include "proto/base/hash.h"
#include "proto/base/markup.h"

#include <string.h>

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

/* Writes a file's path as a URL reference, and escapes everything with a meaning in one. */
static void put_reference(FILE *out, const char *name) {
    fputs("./", out);
    for (const unsigned char *c = (const unsigned char *)name; *c; c++) {
        bool is_plain = (*c >= '0' && *c <= '9') || (*c >= 'A' && *c <= 'Z') ||
                        (*c >= 'a' && *c <= 'z') || *c == '-' || *c == '_' || *c == '.' ||
                        *c == '/';
        fprintf(out, is_plain ? "%c" : "%%%02X", *c);
    }
}

void fm_page_put_link(FILE *out, const char *file, const char *text) {
    fputs("<td class=\"t\"><a href=\"", out);
    put_reference(out, file);
    fputs("\">", out);
    fm_markup_put(out, text);
    fputs("</a></td>", out);
}

/* XML needs the marks of CDATA, which are comments of the script. */
static const char script_begin[] = "//<![CDATA[\n", script_end[] = "//]]>\n";

/* The SHA-256 of a script as base64, by which the page's policy allows it. */
static void put_script_hash(FILE *out, const char *script) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    fm_sha256_state *state = fm_sha256_create();
    fm_sha256_update(state, script_begin, strlen(script_begin));
    fm_sha256_update(state, script, strlen(script));
    fm_sha256_update(state, script_end, strlen(script_end));
    const fm_sha256 hash = fm_sha256_digest(state);
    fm_sha256_destroy(state);
    for (int i = 0; i < FM_SHA256_BYTES; i += 3) {
        const bool is_last = i + 3 > FM_SHA256_BYTES; /* of two bytes */
        const uint32_t three = (uint32_t)hash.bytes[i] << 16 | (uint32_t)hash.bytes[i + 1] << 8 |
                               (is_last ? 0U : hash.bytes[i + 2]);
        fprintf(out, "%c%c%c%c", digits[three >> 18], digits[three >> 12 & 63],
                digits[three >> 6 & 63], is_last ? '=' : digits[three & 63]);
    }
}

void fm_page_put_script(FILE *out, const char *script) {
    fprintf(out, "<script>%s%s%s</script>\n", script_begin, script, script_end);
}

void fm_page_begin(FILE *out, const char *name, const char *kind, const char *more_style,
                   const char *script) {
    fputs("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
          "'unsafe-inline'",
          out);
    if (script) {
        fputs("; script-src 'sha256-", out);
        put_script_hash(out, script);
        fputc('\'', out);
    }
    fputs("\">\n<meta name=\"viewport\" content=\"width=device-width\">\n<title>", out);
    fm_markup_put(out, name);
    fprintf(out, " - %s</title>\n<style>%s%s</style>\n</head>\n<body>\n<h1>", kind, style,
            more_style);
    fm_markup_put(out, name);
    fputs("</h1>\n", out);
}
