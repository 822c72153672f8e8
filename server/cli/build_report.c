/* build_report.c: see build_report.h. */
#include "server/cli/build_report.h"

#include "proto/base/file.h"
#include "proto/base/options.h"
#include "proto/base/plural.h"
#include "server/cli/progress.h"

#include <stdlib.h>
#include <string.h>

enum { BAR_CELLS = 24, BAR_CELLS_MIN = 6, LINE_SECONDS = 5, N_SHOWN = 10 };

/* -- progress */

/* The bar takes what the numbers leave of the terminal's width. */
static void draw_bar(const fm_build_progress *progress, double chains_per_s, double mb_per_s) {
    char bar[BAR_CELLS + 4] = "", eta[32], numbers[256], refused[32] = "";
    if (progress->n_refused) snprintf(refused, sizeof refused, "  %u refused", progress->n_refused);
    int length =
        snprintf(numbers, sizeof numbers, "%3.0f %%  %u/%u chain%s  %.1f/s  %.1f MB/s  ETA %s%s",
                 100.0 * progress->done, progress->chains_done, progress->n_chain,
                 fm_plural(progress->n_chain), chains_per_s, mb_per_s,
                 fm_progress_format_eta(progress->seconds, progress->done, eta), refused);
    int cells = fm_options_columns(stderr) - 1 - length - (int)strlen("[] ");
    if (cells > BAR_CELLS) cells = BAR_CELLS;
    if (cells >= BAR_CELLS_MIN) {
        bar[0] = '[';
        for (int i = 0; i < cells; i++)
            bar[i + 1] = i < progress->done * cells ? '#' : '.';
        memcpy(bar + cells + 1, "] ", sizeof "] ");
    }
    fm_progress_draw("%s%s", bar, numbers);
}

/* One JSON object on a line, for job systems. */
static void write_progress(const fm_build_progress *progress, double chains_per_s,
                           double mb_per_s) {
    fm_json_writer json;
    fm_json_begin_line(&json, stderr);
    fm_json_put_u64(&json, "chains_done", progress->chains_done);
    fm_json_put_u64(&json, "chains", progress->n_chain);
    fm_json_put_u64(&json, "refused", progress->n_refused);
    fm_json_put_u64(&json, "structures_done", progress->structures_done);
    fm_json_put_u64(&json, "structures", progress->n_structure);
    fm_json_put_u64(&json, "input_bytes", progress->input_bytes);
    fm_json_put_u64(&json, "stored_bytes", progress->stored_bytes);
    fm_json_put_f64(&json, "seconds", progress->seconds, 3);
    fm_json_put_f64(&json, "done", progress->done, 6);
    fm_json_put_f64(&json, "chains_per_s", chains_per_s, 3);
    fm_json_put_f64(&json, "mb_per_s", mb_per_s, 3);
    fm_json_end(&json);
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
        fprintf(stderr, "%u of %u chain%s, %.1f chains/s, %.1f MB/s, ETA %s, %u refused\n",
                progress->chains_done, progress->n_chain, fm_plural(progress->n_chain),
                chains_per_s, mb_per_s,
                fm_progress_format_eta(progress->seconds, progress->done, eta),
                progress->n_refused);
    }
}

void fm_build_display_end(fm_build_display *display) {
    if (display->drawn) fm_progress_clear();
    display->drawn = false;
}

/* -- report for people */

static void print_refusals(FILE *out, const fm_build_report *report) {
    fprintf(out, "refused   %u chain%s", report->n_refused, fm_plural(report->n_refused));
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
        fprintf(out, "refused   %u %s:", n, fm_source_reason_text(trouble));
        for (uint32_t i = 0; i < report->n_source_refusal && shown < 5; i++) {
            if (report->source_refusal[i].reason != trouble) continue;
            fprintf(out, " %s", report->source_refusal[i].name);
            shown++;
        }
        fprintf(out, "%s%s\n", n > shown ? " ..." : "",
                trouble == FM_SOURCE_NO_ALIGNMENTS ? "; --single-sequence builds them" : "");
    }
    if (report->n_no_protein) {
        fprintf(out, "refused   %u structure%s without a protein chain\n", report->n_no_protein,
                fm_plural(report->n_no_protein));
    }
    if (report->n_without_alignments) {
        fprintf(out, "noted     %u chain%s without alignments, made of the sequence alone\n",
                report->n_without_alignments, fm_plural(report->n_without_alignments));
    }
    if (report->n_bare_entity) {
        fprintf(out, "noted     %u entit%s of complexes without alignments, the sequence alone\n",
                report->n_bare_entity, report->n_bare_entity == 1 ? "y" : "ies");
    }
    if (report->n_left_out) {
        fprintf(out, "noted     %u alignment%s of other queries left out of texts of several\n",
                report->n_left_out, fm_plural(report->n_left_out));
    }
    if (report->n_without_hits && !report->single_sequence) {
        fprintf(out, "noted     %u chain%s without a file of template hits\n",
                report->n_without_hits, fm_plural(report->n_without_hits));
    }
}

static void print_place(FILE *out, const char *cache, const fm_build_report *report) {
    char hex[FM_SHA256_HEX];
    if (report->n_unclustered) {
        fprintf(out,
                "noted     %u of %u protein%s of complexes in no list of clusters; each is "
                "clustered by its sequence\n",
                report->n_unclustered, report->n_protein, fm_plural(report->n_protein));
    }
    if (report->n_chain && report->stored_bytes) {
        fprintf(out, "stored    %.1f MB for %.1f MB decoded, %.0f bytes per chain",
                (double)report->stored_bytes / 1e6, (double)report->decoded_bytes / 1e6,
                (double)report->stored_bytes / report->n_chain);
        const char *between = " (";
        for (int k = 0; k < FM_PART_KIND_MAX; k++) {
            if (!report->part_decoded[k]) continue;
            fprintf(out, "%s%s %.0f", between, fm_part_name((fm_part_kind)(k + 1)),
                    (double)report->part_stored[k] / report->n_chain);
            between = ", ";
        }
        fprintf(out, ")\n");
        fm_sha256_format(&report->content, hex);
        fprintf(out, "content   %s\n", hex);
    }
    uint32_t n_chain = report->n_chain - report->n_complex;
    fprintf(out, "cache     %s, generation %llu with %u chain%s", cache,
            (unsigned long long)report->generation, n_chain, fm_plural(n_chain));
    if (report->n_complex) {
        fprintf(out, " and %u complex%s", report->n_complex, report->n_complex == 1 ? "" : "es");
    }
    fprintf(out, "%s\n", report->published ? "" : ", as before");
}

void fm_build_print_change(FILE *out, const fm_build_report *report, const char *what) {
    if (report->n_kept + report->n_left == 0) return;
    fprintf(out,
            "changed   %u chain%s added, %u of other datasets kept, %u left that the %s does not "
            "have\n",
            report->n_added, fm_plural(report->n_added), report->n_kept, report->n_left, what);
}

void fm_build_print_report(FILE *out, const char *cache, const fm_build_report *report) {
    uint32_t n_done = report->n_built + report->n_reused;
    double seconds = report->seconds > 0 ? report->seconds : 1e-9;
    fprintf(out, "chains    %u built, %u reused\n", report->n_built, report->n_reused);
    if (report->generation) fm_build_print_change(out, report, "dataset");
    if (report->is_inferred) {
        fprintf(out, "noted     the cache does not record the dataset that it was built from; its "
                     "chains say that it is this one\n");
    }
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

static void print_refused(fm_json_writer *json, const fm_build_report *report) {
    fm_json_put_u64(json, "refused", report->n_refused);
    fm_json_open_object(json, "refused_by_reason");
    for (int i = 0; i < FM_N_STATUS; i++) {
        if (report->refused[i]) {
            fm_json_put_u64(json, fm_status_name((fm_status)i), report->refused[i]);
        }
    }
    fm_json_close(json);
    fm_json_open_array(json, "refusals");
    for (uint32_t i = 0; i < report->n_refusal; i++) {
        const char *line = report->refusal[i], *tab = strchr(line, '\t');
        fm_json_open_object(json, NULL);
        fm_json_put_text(json, "chain", line, (size_t)(tab - line));
        fm_json_put_string(json, "reason", tab + 1);
        fm_json_close(json);
    }
    fm_json_close(json);
}

static void print_inputs(fm_json_writer *json, const fm_build_report *report) {
    fm_json_open_object(json, "refused_inputs");
    for (int t = 0; t < FM_N_SOURCE_REASON; t++) {
        fm_source_reason trouble = (fm_source_reason)t;
        fm_json_put_u64(json, fm_source_reason_text(trouble), count_problems(report, trouble));
    }
    fm_json_put_u64(json, "structures without a protein chain", report->n_no_protein);
    fm_json_close(json);
    fm_json_put_u64(json, "without_alignments", report->n_without_alignments);
    fm_json_put_u64(json, "entities_without_alignments", report->n_bare_entity);
    fm_json_put_u64(json, "alignments_left_out", report->n_left_out);
    fm_json_put_u64(json, "without_template_hits", report->n_without_hits);
}

void fm_build_json_generation(fm_json_writer *json, const char *cache,
                              const fm_build_report *report) {
    fm_json_put_string(json, "cache", cache);
    fm_json_put_u64(json, "generation", report->generation);
    fm_json_put_bool(json, "published", report->published);
    fm_json_put_hash(json, "content", &report->content);
    fm_json_put_u64(json, "chains", report->n_chain - report->n_complex);
    fm_json_put_u64(json, "complexes", report->n_complex);
    print_refused(json, report);
    fm_json_put_u64(json, "proteins_of_complexes", report->n_protein);
    fm_json_put_u64(json, "proteins_without_cluster", report->n_unclustered);
    fm_json_put_u64(json, "stored_bytes", report->stored_bytes);
    fm_json_put_u64(json, "decoded_bytes", report->decoded_bytes);
    fm_json_put_u64(json, "added", report->n_added);
    fm_json_put_u64(json, "kept", report->n_kept);
    fm_json_put_u64(json, "left", report->n_left);
}

void fm_build_print_json(FILE *out, const fm_build_summary *summary) {
    const fm_build_report *report = summary->report;
    double seconds = report->seconds > 0 ? report->seconds : 1e-9;
    fm_json_writer json;
    fm_json_begin(&json, out);
    fm_json_put_string(&json, "outcome", summary->outcome);
    fm_json_put_string(&json, "dataset", summary->dataset);
    fm_build_json_generation(&json, summary->cache, report);
    fm_json_put_bool(&json, "dataset_inferred", report->is_inferred);
    fm_json_put_u64(&json, "built", report->n_built);
    fm_json_put_u64(&json, "reused", report->n_reused);
    print_inputs(&json, report);
    if (summary->templates) fm_template_json(&json, summary->templates);
    fm_json_put_u64(&json, "input_bytes", report->input_bytes);
    fm_json_put_f64(&json, "mb_per_s", (double)report->input_bytes / 1e6 / seconds, 3);
    fm_json_put_f64(&json, "bytes_per_chain",
                    report->n_chain ? (double)report->stored_bytes / report->n_chain : 0.0, 1);
    fm_json_put_u64(&json, "written_bytes", report->written_bytes);
    fm_json_put_u64(&json, "peak_resident_bytes", report->peak_bytes);
    fm_json_put_f64(&json, "seconds", report->seconds, 6);
    if (summary->share) fm_build_share_json(&json, summary->share, summary->shared);
    fm_json_end(&json);
}

fm_status fm_build_write_json(const char *path, const fm_build_summary *summary, fm_error *reterr) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the report");
    fm_build_print_json(out, summary);
    fm_status status = fclose(out) == 0 ? fm_file_write_atomic(path, text, size, reterr)
                                        : fm_fail(reterr, FM_ERR_NOMEM, "no memory for the report");
    free(text);
    return status;
}
