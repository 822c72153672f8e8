/* build_report.c: see build_report.h. */
#include "server/cli/build_report.h"

#include "proto/base/file.h"
#include "server/cli/json_text.h"

#include <stdlib.h>
#include <string.h>

enum { BAR_CELLS = 24, LINE_SECONDS = 5, N_SHOWN = 10 };

/* -- progress */

/* "1:02:03", or "?" when nothing can be said yet. */
static const char *format_eta(const fm_build_progress *progress, char out[32]) {
    if (progress->done <= 0.0) return "?";
    double seconds = progress->seconds * (1.0 - progress->done) / progress->done;
    unsigned long whole = (unsigned long)(seconds + 0.5);
    snprintf(out, 32, "%lu:%02lu:%02lu", whole / 3600, whole / 60 % 60, whole % 60);
    return out;
}

static void draw_bar(const fm_build_progress *progress, double chains_per_s, double mb_per_s) {
    char bar[BAR_CELLS + 1], eta[32];
    for (int i = 0; i < BAR_CELLS; i++)
        bar[i] = i < progress->done * BAR_CELLS ? '#' : '.';
    bar[BAR_CELLS] = '\0';
    fprintf(stderr, "\r\033[K[%s] %3.0f %%  %u/%u chains  %.1f chains/s  %.1f MB/s  ETA %s", bar,
            100.0 * progress->done, progress->chains_done, progress->n_chain, chains_per_s,
            mb_per_s, format_eta(progress, eta));
    if (progress->n_refused) fprintf(stderr, "  refused %u", progress->n_refused);
    fflush(stderr);
}

/* One object a line, for job systems. */
static void write_progress(const fm_build_progress *progress, double chains_per_s,
                           double mb_per_s) {
    fprintf(stderr,
            "{\"chains_done\": %u, \"chains\": %u, \"refused\": %u, \"structures_done\": %u, "
            "\"structures\": %u, \"input_bytes\": %llu, \"stored_bytes\": %llu, \"seconds\": %.3f, "
            "\"done\": %.6f, \"chains_per_s\": %.3f, \"mb_per_s\": %.3f}\n",
            progress->chains_done, progress->n_chain, progress->n_refused,
            progress->structures_done, progress->n_structure,
            (unsigned long long)progress->input_bytes, (unsigned long long)progress->stored_bytes,
            progress->seconds, progress->done, chains_per_s, mb_per_s);
}

void fm_build_display_show(void *context, const fm_build_progress *progress) {
    fm_build_display *display = context;
    if (display->quiet) return;
    double seconds = progress->seconds > 0 ? progress->seconds : 1e-9;
    double chains_per_s = progress->chains_done / seconds;
    double mb_per_s = (double)progress->input_bytes / 1e6 / seconds;
    if (display->json) {
        bool is_due = progress->seconds - display->last_shown >= 1.0 || progress->done >= 1.0;
        if (is_due) display->last_shown = progress->seconds;
        if (is_due) write_progress(progress, chains_per_s, mb_per_s);
        return;
    }
    if (display->terminal) {
        draw_bar(progress, chains_per_s, mb_per_s);
        display->drawn = true;
    } else if (progress->seconds - display->last_shown >= LINE_SECONDS) {
        char eta[32];
        display->last_shown = progress->seconds;
        fprintf(stderr, "%u of %u chains, %.1f chains/s, %.1f MB/s, ETA %s, %u refused\n",
                progress->chains_done, progress->n_chain, chains_per_s, mb_per_s,
                format_eta(progress, eta), progress->n_refused);
    }
}

void fm_build_display_end(fm_build_display *display) {
    if (display->drawn) fputs("\r\033[K", stderr);
    display->drawn = false;
}

/* -- report for people */

static void print_refusals(FILE *out, const fm_build_report *report) {
    fprintf(out, "refused   %u", report->n_refused);
    const char *between = " (";
    for (int i = 0; i < FM_N_STATUS; i++) {
        if (!report->refused[i]) continue;
        fprintf(out, "%s%s %u", between, fm_status_name((fm_status)i), report->refused[i]);
        between = ", ";
    }
    fprintf(out, "%s\n", report->n_refused ? ")" : "");
    for (uint32_t i = 0; i < report->n_refusal && i < N_SHOWN; i++) {
        const char *tab = strchr(report->refusal[i], '\t');
        fprintf(out, "  %.*s  %s\n", (int)(tab - report->refusal[i]), report->refusal[i], tab + 1);
    }
    if (report->n_refusal > N_SHOWN) fprintf(out, "  and %u more\n", report->n_refusal - N_SHOWN);
}

static uint32_t count_problems(const fm_build_report *report, fm_source_reason trouble) {
    uint32_t n = 0;
    if (report->single_sequence && trouble == FM_SOURCE_NO_ALIGNMENTS) return 0;
    for (uint32_t i = 0; i < report->n_source_refusal; i++)
        n += report->source_refusal[i].reason == trouble;
    return n;
}

static void print_problems(FILE *out, const fm_build_report *report) {
    for (int t = 0; t < FM_N_SOURCE_REASON; t++) {
        fm_source_reason trouble = (fm_source_reason)t;
        uint32_t n = count_problems(report, trouble), shown = 0;
        if (!n) continue;
        fprintf(out, "left out  %u %s:", n, fm_source_reason_text(trouble));
        for (uint32_t i = 0; i < report->n_source_refusal && shown < 5; i++) {
            if (report->source_refusal[i].reason != trouble) continue;
            fprintf(out, " %s", report->source_refusal[i].name);
            shown++;
        }
        fprintf(out, "%s%s\n", n > shown ? " ..." : "",
                trouble == FM_SOURCE_NO_ALIGNMENTS ? "; --single-sequence takes them" : "");
    }
    if (report->n_no_protein) {
        fprintf(out, "left out  %u structures without a protein chain\n", report->n_no_protein);
    }
    if (report->n_without_hits && !report->single_sequence) {
        fprintf(out, "noted     %u chains without a file of template hits\n",
                report->n_without_hits);
    }
}

static void print_place(FILE *out, const char *cache, const fm_build_report *report) {
    char hex[FM_SHA256_HEX];
    if (report->n_chain && report->stored_bytes) {
        fprintf(out, "stored    %.1f MB for %.1f MB decoded, %.0f bytes per chain",
                (double)report->stored_bytes / 1e6, (double)report->decoded_bytes / 1e6,
                (double)report->stored_bytes / report->n_chain);
        const char *between = " (";
        for (int k = 0; k < FM_N_PART; k++) {
            if (!report->part_decoded[k]) continue;
            fprintf(out, "%s%s %.0f", between, fm_part_name((fm_part_kind)(k + 1)),
                    (double)report->part_stored[k] / report->n_chain);
            between = ", ";
        }
        fprintf(out, ")\n");
        fm_sha256_format(&report->content, hex);
        fprintf(out, "content   %s\n", hex);
    }
    fprintf(out, "cache     %s, generation %llu with %u chains%s\n", cache,
            (unsigned long long)report->generation, report->n_chain,
            report->published ? "" : ", as before");
}

void fm_build_print_report(FILE *out, const char *cache, const fm_build_report *report) {
    uint32_t n_done = report->n_built + report->n_reused;
    double seconds = report->seconds > 0 ? report->seconds : 1e-9;
    fprintf(out, "chains    %u built, %u reused\n", report->n_built, report->n_reused);
    print_refusals(out, report);
    print_problems(out, report);
    fprintf(out, "input     %.1f MB in %.2f s: %.1f MB/s, %.1f chains/s\n",
            (double)report->input_bytes / 1e6, seconds, (double)report->input_bytes / 1e6 / seconds,
            n_done / seconds);
    fprintf(out, "memory    at most %.0f MiB resident\n",
            (double)report->peak_bytes / (double)(1 << 20));
    if (report->generation) print_place(out, cache, report);
}

void fm_build_print_generation(FILE *out, const char *cache, const fm_build_report *report) {
    print_refusals(out, report);
    print_place(out, cache, report);
}

/* -- report for programs */

static void print_json_lists(FILE *out, const fm_build_report *report) {
    fprintf(out, "  \"refused_by_reason\": {");
    const char *between = "";
    for (int i = 0; i < FM_N_STATUS; i++) {
        if (!report->refused[i]) continue;
        fprintf(out, "%s\"%s\": %u", between, fm_status_name((fm_status)i), report->refused[i]);
        between = ", ";
    }
    fprintf(out, "},\n  \"refusals\": [");
    for (uint32_t i = 0; i < report->n_refusal; i++) {
        const char *line = report->refusal[i], *tab = strchr(line, '\t');
        char *chain = strndup(line, (size_t)(tab - line));
        fprintf(out, "%s\n    {\"chain\": ", i ? "," : "");
        fm_json_print_string(out, chain ? chain : "");
        fprintf(out, ", \"reason\": ");
        fm_json_print_string(out, tab + 1);
        fprintf(out, "}");
        free(chain);
    }
    fprintf(out, "],\n  \"left_out\": {");
    for (int t = 0; t < FM_N_SOURCE_REASON; t++) {
        fm_source_reason trouble = (fm_source_reason)t;
        fprintf(out, "%s\"%s\": %u", t ? ", " : "", fm_source_reason_text(trouble),
                count_problems(report, trouble));
    }
    fprintf(out, ", \"structures without a protein chain\": %u},\n", report->n_no_protein);
    fprintf(out, "  \"without_template_hits\": %u,\n", report->n_without_hits);
}

static void print_json(FILE *out, const char *dataset, const char *cache, const char *outcome,
                       const fm_build_report *report) {
    char hex[FM_SHA256_HEX];
    double seconds = report->seconds > 0 ? report->seconds : 1e-9;
    fm_sha256_format(&report->content, hex);
    fprintf(out, "{\n  \"outcome\": \"%s\",\n  \"dataset\": ", outcome);
    fm_json_print_string(out, dataset);
    fprintf(out, ",\n  \"cache\": ");
    fm_json_print_string(out, cache);
    fprintf(out, ",\n  \"generation\": %llu,\n  \"published\": %s,\n  \"content\": \"%s\",\n",
            (unsigned long long)report->generation, report->published ? "true" : "false", hex);
    fprintf(out, "  \"chains\": %u,\n  \"built\": %u,\n  \"reused\": %u,\n  \"refused\": %u,\n",
            report->n_chain, report->n_built, report->n_reused, report->n_refused);
    print_json_lists(out, report);
    fprintf(out, "  \"input_bytes\": %llu,\n  \"mb_per_s\": %.3f,\n",
            (unsigned long long)report->input_bytes, (double)report->input_bytes / 1e6 / seconds);
    fprintf(out, "  \"stored_bytes\": %llu,\n  \"decoded_bytes\": %llu,\n",
            (unsigned long long)report->stored_bytes, (unsigned long long)report->decoded_bytes);
    fprintf(out, "  \"bytes_per_chain\": %.1f,\n  \"written_bytes\": %llu,\n",
            report->n_chain ? (double)report->stored_bytes / report->n_chain : 0.0,
            (unsigned long long)report->written_bytes);
    fprintf(out, "  \"peak_resident_bytes\": %llu,\n", (unsigned long long)report->peak_bytes);
    fprintf(out, "  \"seconds\": %.6f\n}\n", report->seconds);
}

fm_status fm_build_write_json(const char *path, const char *dataset, const char *cache,
                              const char *outcome, const fm_build_report *report,
                              fm_error *reterr) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the report");
    print_json(out, dataset, cache, outcome, report);
    fm_status status = fclose(out) == 0 ? fm_file_write_atomic(path, text, size, reterr)
                                        : fm_fail(reterr, FM_ERR_NOMEM, "no memory for the report");
    free(text);
    return status;
}
