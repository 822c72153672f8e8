/* cmd_score.c: foldmill score: compares a predicted complex with the true structure. */
#include "featurizer/complex/read.h"
#include "server/cli/commands.h"
#include "server/cli/read_input.h"
#include "server/cli/score_report.h"

/* Address space, not memory: room for the dictionary of components and two large assemblies. */
#define ARENA_BYTES ((size_t)32 << 30)

static const char description[] =
    "Compares a predicted complex with the true structure, both mmCIF. Of the truth it takes the\n"
    "first biological assembly, as training does. Labels of equivalent chains and of symmetric\n"
    "atoms are exchanged first, so that names do not matter. Input that is compressed with gzip,\n"
    "xz or zstd is unpacked first; '-' reads standard input.\n\n"
    "Scores: lDDT of all atoms of each polymer and of each interface (15 Å, and 30 Å with RNA or\n"
    "DNA), DockQ of interfaces of two proteins with fnat, iRMSD and LRMSD, and the RMSD of each\n"
    "ligand after superposition of its pocket.\n\n"
    "Chains correspond if they have the same components with the same numbers. Other predicted\n"
    "polymers are aligned with the true ones, and residues that are not the same are left out. A\n"
    "polymer is refused if no true one shares half of the residues of the shorter of both, and so\n"
    "are more chains of a kind than the truth has. What is left out is counted: residues that are\n"
    "not aligned, atoms without a known true position, true atoms that the prediction lacks, and\n"
    "chains without counterpart.\n\n"
    "--json prints one object: predicted, truth, lddt, chains [{chain, kind, true_chain, atoms,\n"
    "scored, lddt, pocket_rmsd, pocket_chain, and of aligned ones residues, same_residues,\n"
    "true_residues}], interfaces [{a, b, lddt, and of proteins dockq,\n"
    "fnat, irmsd, lrmsd, contacts}], means, left_out {atoms_without_truth, atoms_not_predicted,\n"
    "predicted_chains, true_chains}.\n\n"
    "Exit codes: 0 compared, 1 refused, 2 bad usage.\n\n"
    "Example:\n"
    "  foldmill score out/6s6v/6s6v_model.cif 6s6v.cif --components components.foldcomp";

static fm_status read_structure(const char *path, const fm_components *components,
                                bool is_prediction, fm_arena *arena, fm_assembly *assembly,
                                fm_error *reterr) {
    const fm_assembly_options options = {.is_prediction = is_prediction,
                                         .has_numbered_ligands = true};
    fm_bytes text = {0};
    fm_status status = fm_cli_read_input(path, arena, &text, reterr);
    if (status) return status;
    status = fm_assembly_read(text, components, &options, arena, assembly, reterr);
    return status ? fm_error_in(reterr, fm_cli_input_name(path)) : FM_OK;
}

static fm_status run(const char *predicted_path, const char *truth_path,
                     const char *components_path, bool json, fm_arena *arena, fm_error *reterr) {
    fm_components components = {0};
    fm_assembly predicted = {0}, truth = {0};
    fm_score_match match;
    fm_complex_comparison comparison;
    fm_status status = fm_cli_read_components(components_path, arena, &components, reterr);
    if (!status) {
        status = read_structure(predicted_path, &components, true, arena, &predicted, reterr);
    }
    if (!status) status = read_structure(truth_path, &components, false, arena, &truth, reterr);
    if (status) return status;
    status = fm_score_match_make(&predicted, &truth, arena, &match, reterr);
    if (status) return fm_error_in(reterr, fm_cli_input_name(predicted_path));
    status = fm_compare_complex(&match.pair, arena, &comparison, reterr);
    if (status) return status;
    const fm_score_report report = {.predicted_path = fm_cli_input_name(predicted_path),
                                    .truth_path = fm_cli_input_name(truth_path),
                                    .predicted = &predicted,
                                    .truth = &truth,
                                    .match = &match,
                                    .comparison = &comparison};
    return fm_score_report_print(&report, json, arena, reterr);
}

int fm_cmd_score(int argc, char **argv) {
    const char *components = NULL;
    bool json = false;
    const fm_option options[] = {
        {.name = "components",
         .kind = FM_OPTION_STRING,
         .target = &components,
         .value_name = "FILE",
         .help = "the chemical components: the dictionary (CCD) as mmCIF or packed; needed"},
        {.name = "json", .kind = FM_OPTION_FLAG, .target = &json, .help = "print one JSON object"},
        {0},
    };
    const fm_command command = {"foldmill score",
                                "PREDICTED TRUE --components FILE [options]",
                                "compare a predicted complex with the true structure",
                                description,
                                options,
                                2,
                                2};
    int n_positional;
    int code = fm_cli_parse(&command, argc, argv, &n_positional);
    if (code >= 0) return code;
    fm_arena arena;
    fm_error error = {0};
    fm_status status = FM_OK;
    if (!components) {
        status = fm_fail(&error, FM_ERR_USAGE, "--components FILE is needed: the dictionary (CCD)");
    }
    if (!status && fm_cli_is_stdin(argv[0]) && fm_cli_is_stdin(argv[1])) {
        status = fm_fail(&error, FM_ERR_USAGE, "only one of the structures can be standard input");
    }
    if (!status) status = fm_arena_init(&arena, ARENA_BYTES, &error);
    if (status) return fm_program_report(command.program, &error);
    status = run(argv[0], argv[1], components, json, &arena, &error);
    fm_arena_fini(&arena);
    return status ? fm_program_report(command.program, &error) : FM_EXIT_OK;
}
