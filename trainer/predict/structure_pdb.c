/* structure_pdb.c: a prediction as a PDB file; see prediction.h. */
#include "trainer/predict/prediction.h"

#include "proto/chem/atom14.h"
#include "trainer/predict/text_file.h"

#include <math.h>
#include <string.h>

/* Columns 13 to 16: a name of up to three letters begins in column 14. */
static void put_atom(FILE *out, uint32_t serial, const char *name, const char *residue,
                     uint32_t number, const float *at, double plddt) {
    fprintf(out, "ATOM  %5u  %-3.3s %s A%4u    %8.3f%8.3f%8.3f  1.00%6.2f          %2.1s  \n",
            serial, name, residue, number, (double)at[0], (double)at[1], (double)at[2], plddt,
            name);
}

static fm_status check(const fm_prediction *p, fm_error *reterr) {
    enum { MOST_RESIDUES = 9999 };
    if (p->n_res > MOST_RESIDUES) {
        return fm_fail(reterr, FM_ERR_LIMIT,
                       "%s has %u residues, and the PDB format numbers at most %d; use the mmCIF "
                       "file",
                       p->chain, p->n_res, MOST_RESIDUES);
    }
    for (size_t i = 0; i < (size_t)p->n_res * FM_N_ATOM14 * 3; i++) {
        if (p->atoms[i] > -999.9995f && p->atoms[i] < 9999.9995f) continue;
        return fm_fail(reterr, FM_ERR_LIMIT,
                       "%s has the coordinate %.3f, for which the PDB format has no room; use the "
                       "mmCIF file",
                       p->chain, (double)p->atoms[i]);
    }
    return FM_OK;
}

fm_status fm_prediction_write_pdb(const char *path, const fm_prediction *p, fm_error *reterr) {
    enum { SERIALS = 100000 };
    fm_text_file file;
    fm_status status = check(p, reterr);
    if (!status) status = fm_text_file_open(&file, reterr);
    if (status) return status;
    uint32_t serial = 0;
    const char *residue = "UNK";
    fprintf(file.out, "REMARK   1 PREDICTED BY FOLDMILL %s WITH %.40s; B FACTORS ARE PLDDT\n",
            p->software, p->model);
    fputs("MODEL        1\n", file.out);
    for (uint32_t i = 0; i < p->n_res; i++) {
        const uint8_t *atom37 = fm_atom14_to_atom37[p->aatype[i]];
        residue = fm_restype_names[p->aatype[i]];
        for (int a = 0; a < FM_N_ATOM14; a++) {
            if (atom37[a] == FM_ATOM37_NONE) continue;
            char name[5] = {0};
            memcpy(name, fm_atom37_names[atom37[a]], sizeof fm_atom37_names[0]);
            serial = (serial + 1) % SERIALS;
            put_atom(file.out, serial, name, residue, i + 1,
                     p->atoms + ((size_t)i * FM_N_ATOM14 + (size_t)a) * 3, (double)p->plddt[i]);
        }
    }
    fprintf(file.out, "TER   %5u      %s A%4u\nENDMDL\nEND\n", (serial + 1) % SERIALS, residue,
            p->n_res);
    return fm_text_file_commit(&file, path, reterr);
}
