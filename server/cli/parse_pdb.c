/* parse_pdb.c: the kind pdb of foldmill parse. */
#include "featurizer/structure.h"
#include "proto/base/plural.h"
#include "server/cli/parse.h"

#include <stdio.h>

typedef struct chain_counts {
    uint32_t n_atom;
    uint32_t n_sure; /* residues whose confidence is above the floor */
    double mean_confidence;
} chain_counts;

static chain_counts count_chain(const fm_pdb *pdb, const fm_pdb_chain *chain) {
    chain_counts counts = {0};
    double sum = 0;
    for (size_t i = chain->first; i < chain->first + chain->n_res; i++) {
        sum += pdb->confidence[i];
        counts.n_sure += pdb->confidence[i] > FM_CONFIDENCE_FLOOR;
        for (size_t atom = 0; atom < FM_N_ATOM37; atom++)
            counts.n_atom += pdb->all_atom_mask[i * FM_N_ATOM37 + atom];
    }
    counts.mean_confidence = sum / chain->n_res;
    return counts;
}

static char printable_id(const fm_pdb_chain *chain) {
    return (char)(chain->id[0] > ' ' && chain->id[0] < 0x7f ? chain->id[0] : '?');
}

static void print_chain(const fm_pdb *pdb, const fm_pdb_chain *chain) {
    chain_counts counts = count_chain(pdb, chain);
    printf("  chain %c %5u residues, %6u atoms, mean confidence %.1f, %u residues above %g\n",
           printable_id(chain), chain->n_res, counts.n_atom, counts.mean_confidence, counts.n_sure,
           (double)FM_CONFIDENCE_FLOOR);
    printf("  %.*s\n", (int)chain->n_res, pdb->sequence + chain->first);
}

static void write_chain(fm_json_writer *json, const fm_pdb *pdb, const fm_pdb_chain *chain) {
    chain_counts counts = count_chain(pdb, chain);
    const char id[2] = {printable_id(chain), '\0'};
    fm_json_open_object(json, NULL);
    fm_json_put_string(json, "chain", id);
    fm_json_put_u64(json, "residues", chain->n_res);
    fm_json_put_u64(json, "atoms", counts.n_atom);
    fm_json_put_f64(json, "confidence", counts.mean_confidence, 3);
    fm_json_put_u64(json, "confident", counts.n_sure);
    fm_json_put_text(json, "sequence", pdb->sequence + chain->first, chain->n_res);
    fm_json_close(json);
}

/* Shows all chains, or that of --chain. */
static void show(const fm_parse_request *request, const fm_pdb *pdb) {
    fm_json_writer json;
    if (request->json) {
        fm_parse_begin_json(request, "PDB", &json);
        fm_json_put_u64(&json, "atoms", pdb->n_atom);
        fm_json_open_array(&json, "chains");
    } else {
        printf("%s: PDB, %u chain%s, %llu atom records\n", request->path, pdb->n_chain,
               fm_plural(pdb->n_chain), (unsigned long long)pdb->n_atom);
    }
    for (uint32_t i = 0; i < pdb->n_chain; i++) {
        if (request->chain && pdb->chains[i].id[0] != request->chain[0]) continue;
        if (request->json) {
            write_chain(&json, pdb, &pdb->chains[i]);
        } else {
            print_chain(pdb, &pdb->chains[i]);
        }
    }
    if (request->json) {
        fm_json_close(&json);
        fm_json_end(&json);
    }
}

/* With -o, writes one chain: that of --chain, or the only one. */
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
    show(request, &pdb);
    return FM_OK;
}
