/* cofold_summary.c: see cofold_summary.h. */
#include "trainer/app/prediction/cofold_summary.h"

#include "proto/base/csv.h"

void fm_cofold_summary_begin(FILE *out) {
    fputs("job,n_token,n_atom,n_chain,n_seq,n_templ,seed,sample,rank,ranking_score,ptm,iptm,"
          "mean_plddt,fraction_disordered,has_clash,failed\n",
          out);
}

void fm_cofold_summary_put(FILE *out, const fm_cofold_input *input, const fm_cofold_result *results,
                           const uint32_t *order, uint32_t n) {
    const fm_af3_sample *s = &input->features.sample;
    for (uint32_t k = 0; k < n; k++) {
        const fm_cofold_result *r = &results[order[k]];
        fm_csv_put(out, input->name);
        fprintf(out, ",%lld,%lld,%u,%lld,%lld,%u,%u,%u", (long long)s->n_token,
                (long long)s->n_atom, input->layout.n_chain, (long long)s->n_msa,
                (long long)s->n_template, r->seed, r->sample, k + 1);
        fm_csv_put_number(out, r->ranking_score, 4);
        fm_csv_put_number(out, r->ptm, 4);
        fm_csv_put_number(out, r->iptm, 4);
        fm_csv_put_number(out, r->mean_plddt, 4);
        fm_csv_put_number(out, r->fraction_disordered, 4);
        fprintf(out, ",%d,\n", r->has_clash);
    }
}

void fm_cofold_summary_put_failed(FILE *out, const char *name, const char *why) {
    fm_csv_put(out, name);
    fputs(",,,,,,,,,,,,,,,", out);
    fm_csv_put(out, why);
    fputc('\n', out);
}
