/* doctor.c: see doctor.h. */
#include "trainer/app/doctor/doctor.h"

#include "proto/base/json_text.h"
#include "proto/base/options.h"
#include "proto/base/plural.h"
#include "proto/base/program.h"

#include <stdarg.h>
#include <stdio.h>

static const char *const state_names[] = {"ok", "slow", "bad"};

void fm_findings_add(fm_findings *findings, fm_finding_state state, const char *what,
                     const char *advice, const char *found, ...) {
    if (findings->n == FM_FINDINGS_MAX) {
        findings->n_left_out++;
        return;
    }
    fm_finding *item = &findings->item[findings->n++];
    item->state = state;
    snprintf(item->what, sizeof item->what, "%s", what);
    snprintf(item->advice, sizeof item->advice, "%s", state == FM_FINDING_OK ? "" : advice);
    va_list list;
    va_start(list, found);
    vsnprintf(item->found, sizeof item->found, found, list);
    va_end(list);
}

static uint32_t count(const fm_findings *findings, fm_finding_state state) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < findings->n; i++)
        n += findings->item[i].state == state;
    return n;
}

static void print_text(const fm_findings *findings) {
    for (uint32_t i = 0; i < findings->n; i++) {
        const fm_finding *item = &findings->item[i];
        printf("%-5s %-10s %s\n", state_names[item->state], item->what, item->found);
        if (*item->advice) printf("%16s -> %s\n", "", item->advice);
    }
    uint32_t bad = count(findings, FM_FINDING_BAD), slow = count(findings, FM_FINDING_SLOW);
    if (findings->n_left_out) printf("%u more findings\n", findings->n_left_out);
    if (!bad && !slow) {
        printf("nothing is wrong\n");
    } else {
        printf("%u thing%s will not work, %u work%s worse than it could\n", bad, fm_plural(bad),
               slow, slow == 1 ? "s" : "");
    }
}

static void print_json(const fm_findings *findings) {
    fm_json_writer json;
    fm_json_begin(&json, stdout);
    fm_json_put_bool(&json, "works", count(findings, FM_FINDING_BAD) == 0);
    fm_json_open_array(&json, "findings");
    for (uint32_t i = 0; i < findings->n; i++) {
        const fm_finding *item = &findings->item[i];
        fm_json_open_object(&json, NULL);
        fm_json_put_string(&json, "state", state_names[item->state]);
        fm_json_put_string(&json, "what", item->what);
        fm_json_put_string(&json, "found", item->found);
        fm_json_put_string(&json, "advice", *item->advice ? item->advice : NULL);
        fm_json_close(&json);
    }
    fm_json_close(&json);
    fm_json_end(&json);
}

int fm_doctor_main(int argc, char **argv) {
    bool is_json = false, needs_gpu = false;
    fm_option_list folders = {.n = 0}, hosts = {.n = 0};
    const fm_option options[] = {
        {"gpu", FM_OPTION_FLAG, &needs_gpu, NULL,
         .help = "a machine without a usable GPU is a fault"},
        {"folder", FM_OPTION_LIST, &folders, "DIR",
         .help =
             "a cache, or the place for one or for a run: its free space and reading speed; may be "
             "repeated"},
        {"against", FM_OPTION_LIST, &hosts, "ADDRESS",
         .help =
             "a server, or the meeting point of a run on another host: the time to connect; may be "
             "repeated"},
        {"json", FM_OPTION_FLAG, &is_json, NULL,
         .help = "print one object: works, findings [{state, what, found, advice}]"},
        {0}};
    const fm_command command = {
        .program = "foldmill doctor",
        .arguments = "[--gpu] [--folder DIR] [--against ADDRESS] [options]",
        .summary = "look at this machine: what will not work, and what to do",
        .description =
            "Looks at the processor, the memory, the limits of this process, the clock, the GPUs,\n"
            "their driver, the links between them and NCCL. With --folder it looks at a disk, and\n"
            "with --against at the way to another host. It only reads, and changes nothing.\n"
            "\n"
            "Each line begins with a state:\n"
            "  ok    as it should be\n"
            "  slow  works, but worse than it could\n"
            "  bad   something will not work\n"
            "\n"
            "exit codes: 0 nothing is bad, 1 something is bad, 2 bad usage\n",
        .options = options};
    fm_error error;
    int n_positional;
    fm_status status = fm_options_parse(&command, argc, argv, &n_positional, &error);
    if (status == FM_ERR_CANCELLED) return FM_EXIT_OK;
    if (status) return fm_program_report(command.program, &error);
    static fm_findings findings;
    fm_doctor_check_machine(&findings);
    fm_doctor_check_gpus(&findings, needs_gpu);
    for (uint32_t i = 0; i < folders.n; i++)
        fm_doctor_check_folder(&findings, folders.value[i]);
    for (uint32_t i = 0; i < hosts.n; i++)
        fm_doctor_check_host(&findings, hosts.value[i]);
    if (is_json) {
        print_json(&findings);
    } else {
        print_text(&findings);
    }
    return count(&findings, FM_FINDING_BAD) ? FM_EXIT_FAILED : FM_EXIT_OK;
}
