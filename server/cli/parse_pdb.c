/* parse_pdb.c: the kind pdb of `foldmill parse`. */
#include "featurizer/structure.h"
#include "server/cli/parse.h"

#include <stdio.h>

static void print_chain(const fm_pdb *pdb, const fm_pdb_chain *chain) {
    uint32_t n_atom = 0, n_sure = 0;
    double sum = 0;
    for (size_t i = chain->first; i < chain->first + chain->n_res; i++) {
        sum += pdb->confidence[i];
        n_sure += pdb->confidence[i] > FM_CONFIDENCE_FLOOR;
        for (size_t atom = 0; atom < FM_N_ATOM37; atom++)
            n_atom += pdb->all_atom_mask[i * FM_N_ATOM37 + atom];
    }
    char id = chain->id[0] > ' ' && chain->id[0] < 0x7f ? chain->id[0] : '?';
    printf("  chain %c %5u residues, %6u atoms, mean confidence %.1f, %u residues above %g\n", id,
           chain->n_res, n_atom, sum / chain->n_res, n_sure, (double)FM_CONFIDENCE_FLOOR);
    printf("  %.*s\n", (int)chain->n_res, pdb->sequence + chain->first);
}

/* With -o one chain: that of --chain, or the only one. */
fm_status fm_parse_kind_pdb(const fm_parse_request *request, fm_error *reterr) {
    const fm_pdb_options options = {.compat_openfold = request->compat_openfold};
    fm_pdb pdb;
    fm_part_sequence sequence;
    fm_part_structure structure;
    fm_status status = fm_pdb_parse(request->text, &options, request->arena, &pdb, reterr);
    if (status) return status;
    if (request->out || request->chain) {
        status =
            fm_structure_from_pdb(&pdb, &options, request->chain, &sequence, &structure, reterr);
        if (status) return status;
    }
    if (request->out) return fm_parse_write_structure(request, &sequence, &structure, reterr);
    printf("%s: PDB, %u chains, %llu atom records\n", request->path, pdb.n_chain,
           (unsigned long long)pdb.n_atom);
    for (uint32_t i = 0; i < pdb.n_chain; i++) {
        bool wanted = !request->chain || pdb.chains[i].id[0] == request->chain[0];
        if (wanted) print_chain(&pdb, &pdb.chains[i]);
    }
    return FM_OK;
}
