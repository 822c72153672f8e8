/* score_report.c: see score_report.h. */
#include "server/cli/score_report.h"

#include "proto/base/json_text.h"
#include "proto/base/plural.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LDDT_DIGITS = 4, RMSD_DIGITS = 3 };

/* -- what is left out */

typedef struct left_out {
    uint64_t n_unknown; /* predicted atoms of compared chains without a known true position */
    uint64_t n_lacking; /* true atoms of compared chains that the prediction lacks */
    bool *is_predicted; /* [chains of the prediction]: compared with a true chain */
    bool *is_true;      /* [chains of the truth]: a predicted chain is compared with it */
} left_out;

static uint64_t count_resolved(const fm_assembly *assembly, uint32_t chain) {
    uint64_t n = 0;
    for (uint32_t atom = assembly->chains[chain].first_atom;
         atom < fm_assembly_chain_end_atom(assembly, chain); atom++)
        n += assembly->atoms[atom].is_resolved;
    return n;
}

static fm_status find_left_out(const fm_score_report *r, fm_arena *arena, left_out *out,
                               fm_error *reterr) {
    out->is_predicted = fm_arena_calloc(arena, r->predicted->n_chain, sizeof(bool));
    out->is_true = fm_arena_calloc(arena, r->truth->n_chain, sizeof(bool));
    if (!out->is_predicted || !out->is_true) return fm_arena_full(arena, reterr);
    for (int64_t c = 0; c < r->comparison->n_chain; c++) {
        const fm_compared_chain *chain = &r->comparison->chains[c];
        if (chain->copy < 0) continue;
        out->is_predicted[r->match->chain[c]] = true;
        out->is_true[chain->copy] = true;
        out->n_unknown += (uint64_t)(chain->n_atom - chain->n_known);
        out->n_lacking +=
            count_resolved(r->truth, (uint32_t)chain->copy) - (uint64_t)chain->n_known;
    }
    return FM_OK;
}

/* -- tables */

static const char *name_of(const fm_score_report *r, int64_t chain) {
    return r->predicted->chains[r->match->chain[chain]].id;
}

static const char *kind_of(const fm_score_report *r, int64_t chain) {
    return fm_chain_kind_name((fm_chain_kind)r->comparison->chains[chain].kind);
}

static void print_score(int width, double score, int digits) {
    if (isfinite(score)) {
        printf("  %*.*f", width, digits, score);
    } else {
        printf("  %*s", width, "-");
    }
}

static void print_chains(const fm_score_report *r) {
    puts("\nchain     kind     true      atoms   scored    lDDT  pocket RMSD  pocket of");
    for (int64_t c = 0; c < r->comparison->n_chain; c++) {
        const fm_compared_chain *chain = &r->comparison->chains[c];
        printf("%-8s  %-7s  %-8s  %5lld  %7lld", name_of(r, c), kind_of(r, c),
               chain->copy < 0 ? "-" : r->truth->chains[chain->copy].id, (long long)chain->n_atom,
               (long long)chain->n_known);
        print_score(6, chain->lddt, LDDT_DIGITS);
        print_score(11, chain->pocket_rmsd, RMSD_DIGITS);
        printf("  %s\n", chain->pocket_chain < 0 ? "-" : name_of(r, chain->pocket_chain));
    }
}

static uint32_t count_residues(const fm_assembly *assembly, uint32_t chain) {
    const uint32_t end = chain + 1 < assembly->n_chain ? assembly->chains[chain + 1].first_residue
                                                       : assembly->n_residue;
    return end - assembly->chains[chain].first_residue;
}

/* Chains that were aligned, because no true one has the same residues. */
static void print_aligned(const fm_score_report *r) {
    for (int64_t c = 0; c < r->comparison->n_chain; c++) {
        const uint32_t chain = r->match->chain[c], n_same = r->match->n_same[chain];
        const int64_t copy = r->comparison->chains[c].copy;
        if (n_same == UINT32_MAX || copy < 0) continue;
        printf(
            "aligned: %u residue%s of chain %s, which has %u, with those of true chain %s, which "
            "has %u; the others are left out\n",
            n_same, fm_plural(n_same), name_of(r, c), count_residues(r->predicted, chain),
            r->truth->chains[copy].id, count_residues(r->truth, (uint32_t)copy));
    }
}

static void print_interfaces(const fm_score_report *r) {
    if (r->comparison->n_interface == 0) return;
    puts("\ninterface         kinds              lDDT   DockQ    fnat    iRMSD    LRMSD");
    for (int64_t i = 0; i < r->comparison->n_interface; i++) {
        const fm_compared_interface *interface = &r->comparison->interfaces[i];
        const fm_dockq *dockq = &interface->dockq;
        char names[64], kinds[32];
        snprintf(names, sizeof names, "%s, %s", name_of(r, interface->a), name_of(r, interface->b));
        snprintf(kinds, sizeof kinds, "%s, %s", kind_of(r, interface->a), kind_of(r, interface->b));
        printf("%-16s  %-16s", names, kinds);
        print_score(5, interface->lddt, LDDT_DIGITS);
        print_score(6, interface->has_dockq ? dockq->dockq : NAN, LDDT_DIGITS);
        print_score(6, interface->has_dockq ? dockq->fnat : NAN, LDDT_DIGITS);
        print_score(7, interface->has_dockq ? dockq->irmsd : NAN, RMSD_DIGITS);
        print_score(7, interface->has_dockq ? dockq->lrmsd : NAN, RMSD_DIGITS);
        putchar('\n');
    }
}

static void print_mean(const char *what, const fm_mean_score *score, const char *unit, int digits) {
    if (score->n == 0) return;
    printf("  %-32s  %.*f%s  of %lld\n", what, digits, score->mean, unit, (long long)score->n);
}

static void print_means(const fm_complex_means *means) {
    char what[64];
    puts("\nmeans");
    for (int a = 0; a < FM_N_CHAIN_KIND; a++) {
        snprintf(what, sizeof what, "lDDT of %s", fm_chain_kind_name((fm_chain_kind)a));
        print_mean(what, &means->lddt[a], "", LDDT_DIGITS);
    }
    for (int a = 0; a < FM_N_CHAIN_KIND; a++) {
        for (int b = a; b < FM_N_CHAIN_KIND; b++) {
            snprintf(what, sizeof what, "lDDT of %s with %s", fm_chain_kind_name((fm_chain_kind)a),
                     fm_chain_kind_name((fm_chain_kind)b));
            print_mean(what, &means->interface_lddt[a][b], "", LDDT_DIGITS);
        }
    }
    print_mean("DockQ", &means->dockq, "", LDDT_DIGITS);
    print_mean("pocket RMSD", &means->pocket_rmsd, " Å", RMSD_DIGITS);
}

static void print_alone(const char *what, const fm_assembly *assembly, const bool *is_compared) {
    uint32_t n = 0;
    for (uint32_t c = 0; c < assembly->n_chain; c++)
        n += !is_compared[c];
    if (n == 0) return;
    printf("left out: %u %s chain%s without counterpart:", n, what, fm_plural(n));
    for (uint32_t c = 0; c < assembly->n_chain; c++) {
        if (is_compared[c]) continue;
        const fm_assembly_chain *chain = &assembly->chains[c];
        bool is_ligand = chain->molecule == FM_MOLECULE_LIGAND;
        printf(" %s (%.*s)", chain->id, FM_COMPONENT_ID,
               is_ligand ? assembly->residues[chain->first_residue].name
                         : fm_chain_kind_name((fm_chain_kind)chain->molecule));
    }
    putchar('\n');
}

static void print_tables(const fm_score_report *r, const fm_complex_means *means,
                         const left_out *out) {
    printf("%s against %s\n", r->predicted_path, r->truth_path);
    if (isfinite(r->comparison->lddt)) {
        printf("  lDDT of all atoms  %.*f\n", LDDT_DIGITS, r->comparison->lddt);
    }
    print_chains(r);
    print_interfaces(r);
    print_means(means);
    putchar('\n');
    print_aligned(r);
    if (out->n_unknown) {
        printf("left out: %llu predicted atom%s without a known true position\n",
               (unsigned long long)out->n_unknown, fm_plural(out->n_unknown));
    }
    if (out->n_lacking) {
        printf("left out: %llu true atom%s that the prediction lacks\n",
               (unsigned long long)out->n_lacking, fm_plural(out->n_lacking));
    }
    print_alone("predicted", r->predicted, out->is_predicted);
    print_alone("true", r->truth, out->is_true);
}

/* -- JSON */

static void put_aligned(fm_json_writer *json, const fm_score_report *r, int64_t c) {
    const uint32_t chain = r->match->chain[c];
    const int64_t copy = r->comparison->chains[c].copy;
    if (r->match->n_same[chain] == UINT32_MAX || copy < 0) return;
    fm_json_put_u64(json, "residues", count_residues(r->predicted, chain));
    fm_json_put_u64(json, "same_residues", r->match->n_same[chain]);
    fm_json_put_u64(json, "true_residues", count_residues(r->truth, (uint32_t)copy));
}

static void put_chains(fm_json_writer *json, const fm_score_report *r) {
    fm_json_open_array(json, "chains");
    for (int64_t c = 0; c < r->comparison->n_chain; c++) {
        const fm_compared_chain *chain = &r->comparison->chains[c];
        fm_json_open_object(json, NULL);
        fm_json_put_string(json, "chain", name_of(r, c));
        fm_json_put_string(json, "kind", kind_of(r, c));
        fm_json_put_string(json, "true_chain",
                           chain->copy < 0 ? NULL : r->truth->chains[chain->copy].id);
        fm_json_put_i64(json, "atoms", chain->n_atom);
        fm_json_put_i64(json, "scored", chain->n_known);
        fm_json_put_f64(json, "lddt", chain->lddt, LDDT_DIGITS);
        fm_json_put_f64(json, "pocket_rmsd", chain->pocket_rmsd, RMSD_DIGITS);
        fm_json_put_string(json, "pocket_chain",
                           chain->pocket_chain < 0 ? NULL : name_of(r, chain->pocket_chain));
        put_aligned(json, r, c);
        fm_json_close(json);
    }
    fm_json_close(json);
}

static void put_interfaces(fm_json_writer *json, const fm_score_report *r) {
    fm_json_open_array(json, "interfaces");
    for (int64_t i = 0; i < r->comparison->n_interface; i++) {
        const fm_compared_interface *interface = &r->comparison->interfaces[i];
        fm_json_open_object(json, NULL);
        fm_json_put_string(json, "a", name_of(r, interface->a));
        fm_json_put_string(json, "b", name_of(r, interface->b));
        fm_json_put_f64(json, "lddt", interface->lddt, LDDT_DIGITS);
        if (interface->has_dockq) {
            fm_json_put_f64(json, "dockq", interface->dockq.dockq, LDDT_DIGITS);
            fm_json_put_f64(json, "fnat", interface->dockq.fnat, LDDT_DIGITS);
            fm_json_put_f64(json, "irmsd", interface->dockq.irmsd, RMSD_DIGITS);
            fm_json_put_f64(json, "lrmsd", interface->dockq.lrmsd, RMSD_DIGITS);
            fm_json_put_i64(json, "contacts", interface->dockq.n_contact);
        }
        fm_json_close(json);
    }
    fm_json_close(json);
}

static void put_mean(fm_json_writer *json, const char *key, const fm_mean_score *score,
                     int digits) {
    if (score->n) fm_json_put_f64(json, key, score->mean, digits);
}

static void put_means(fm_json_writer *json, const fm_complex_means *means) {
    char key[64];
    fm_json_open_object(json, "means");
    for (int a = 0; a < FM_N_CHAIN_KIND; a++) {
        snprintf(key, sizeof key, "lddt %s", fm_chain_kind_name((fm_chain_kind)a));
        put_mean(json, key, &means->lddt[a], LDDT_DIGITS);
    }
    for (int a = 0; a < FM_N_CHAIN_KIND; a++) {
        for (int b = a; b < FM_N_CHAIN_KIND; b++) {
            snprintf(key, sizeof key, "lddt %s-%s", fm_chain_kind_name((fm_chain_kind)a),
                     fm_chain_kind_name((fm_chain_kind)b));
            put_mean(json, key, &means->interface_lddt[a][b], LDDT_DIGITS);
        }
    }
    put_mean(json, "dockq", &means->dockq, LDDT_DIGITS);
    put_mean(json, "pocket_rmsd", &means->pocket_rmsd, RMSD_DIGITS);
    fm_json_close(json);
}

static void put_alone(fm_json_writer *json, const char *key, const fm_assembly *assembly,
                      const bool *is_compared) {
    fm_json_open_array(json, key);
    for (uint32_t c = 0; c < assembly->n_chain; c++)
        if (!is_compared[c]) fm_json_put_string(json, NULL, assembly->chains[c].id);
    fm_json_close(json);
}

static void print_json(const fm_score_report *r, const fm_complex_means *means,
                       const left_out *out) {
    fm_json_writer json;
    fm_json_begin(&json, stdout);
    fm_json_put_string(&json, "predicted", r->predicted_path);
    fm_json_put_string(&json, "truth", r->truth_path);
    fm_json_put_f64(&json, "lddt", r->comparison->lddt, LDDT_DIGITS);
    put_chains(&json, r);
    put_interfaces(&json, r);
    put_means(&json, means);
    fm_json_open_object(&json, "left_out");
    fm_json_put_u64(&json, "atoms_without_truth", out->n_unknown);
    fm_json_put_u64(&json, "atoms_not_predicted", out->n_lacking);
    put_alone(&json, "predicted_chains", r->predicted, out->is_predicted);
    put_alone(&json, "true_chains", r->truth, out->is_true);
    fm_json_close(&json);
    fm_json_end(&json);
}

fm_status fm_score_report_print(const fm_score_report *report, bool json, fm_arena *arena,
                                fm_error *reterr) {
    left_out out = {0};
    fm_complex_means means;
    fm_status status = find_left_out(report, arena, &out, reterr);
    if (status) return status;
    fm_complex_means_of(report->comparison, &means);
    if (json) {
        print_json(report, &means, &out);
    } else {
        print_tables(report, &means, &out);
    }
    return FM_OK;
}
