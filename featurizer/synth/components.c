/* components.c: the components of synthetic complexes; see components.h.
 *
 * Atoms, bonds and ideal coordinates are those of the PDB's dictionary of chemical components, in
 * the public domain (CC0). Hydrogens are left out. */
#include "featurizer/synth/components.h"

#include "featurizer/synth/text.h"

typedef struct written_component {
    const char *id, *type, *letter, *name, *formula, *weight;
    const char *atoms; /* lines: name, element, charge, aromatic, leaving, stereo, x, y, z */
    const char *bonds; /* lines: two names, order, aromatic, stereo; NULL without bonds */
} written_component;

/* clang-format off */
static const written_component components[] = {
    {"ALA", "L-PEPTIDE LINKING", "A", "ALANINE", "C3 H7 N O2", "89.093",
     "N N 0 N N N -0.966 0.493 1.500\nCA C 0 N N S 0.257 0.418 0.692\n"
     "C C 0 N N N -0.094 0.017 -0.716\nO O 0 N N N -1.056 -0.682 -0.923\n"
     "CB C 0 N N N 1.204 -0.620 1.296\nOXT O 0 N Y N 0.661 0.439 -1.742\n",
     "N CA SING N N\nCA C SING N N\nCA CB SING N N\nC O DOUB N N\nC OXT SING N N\n"},
    {"ARG", "L-PEPTIDE LINKING", "R", "ARGININE", "C6 H15 N4 O2", "175.209",
     "N N 0 N N N -0.469 1.110 -0.993\nCA C 0 N N S 0.004 2.294 -1.708\n"
     "C C 0 N N N -0.907 2.521 -2.901\nO O 0 N N N -1.827 1.789 -3.242\n"
     "CB C 0 N N N 1.475 2.150 -2.127\nCG C 0 N N N 1.745 1.017 -3.130\n"
     "CD C 0 N N N 3.210 0.954 -3.557\nNE N 0 N N N 4.071 0.726 -2.421\n"
     "CZ C 0 N N N 5.469 0.624 -2.528\nNH1 N 0 N N N 6.259 0.404 -1.405\n"
     "NH2 N 1 N N N 6.078 0.744 -3.773\nOXT O 0 N Y N -0.588 3.659 -3.574\n",
     "N CA SING N N\nCA C SING N N\nCA CB SING N N\nC O DOUB N N\nC OXT SING N N\n"
     "CB CG SING N N\nCG CD SING N N\nCD NE SING N N\nNE CZ SING N N\nCZ NH1 SING N N\n"
     "CZ NH2 DOUB N N\n"},
    {"ASN", "L-PEPTIDE LINKING", "N", "ASPARAGINE", "C4 H8 N2 O3", "132.118",
     "N N 0 N N N -0.293 1.686 0.094\nCA C 0 N N S -0.448 0.292 -0.340\n"
     "C C 0 N N N -1.846 -0.179 -0.031\nO O 0 N N N -2.510 0.402 0.794\n"
     "CB C 0 N N N 0.562 -0.588 0.401\nCG C 0 N N N 1.960 -0.197 -0.002\n"
     "OD1 O 0 N N N 2.132 0.697 -0.804\nND2 N 0 N N N 3.019 -0.841 0.527\n"
     "OXT O 0 N Y N -2.353 -1.243 -0.673\n",
     "N CA SING N N\nCA C SING N N\nCA CB SING N N\nC O DOUB N N\nC OXT SING N N\n"
     "CB CG SING N N\nCG OD1 DOUB N N\nCG ND2 SING N N\n"},
    {"ASP", "L-PEPTIDE LINKING", "D", "ASPARTIC ACID", "C4 H7 N O4", "133.103",
     "N N 0 N N N -0.317 1.688 0.066\nCA C 0 N N S -0.470 0.286 -0.344\n"
     "C C 0 N N N -1.868 -0.180 -0.029\nO O 0 N N N -2.534 0.415 0.786\n"
     "CB C 0 N N N 0.539 -0.580 0.413\nCG C 0 N N N 1.938 -0.195 0.004\n"
     "OD1 O 0 N N N 2.109 0.681 -0.810\nOD2 O 0 N N N 2.992 -0.826 0.543\n"
     "OXT O 0 N Y N -2.374 -1.256 -0.652\n",
     "N CA SING N N\nCA C SING N N\nCA CB SING N N\nC O DOUB N N\nC OXT SING N N\n"
     "CB CG SING N N\nCG OD1 DOUB N N\nCG OD2 SING N N\n"},
    {"CYS", "L-PEPTIDE LINKING", "C", "CYSTEINE", "C3 H7 N O2 S", "121.158",
     "N N 0 N N N 1.585 0.483 -0.081\nCA C 0 N N R 0.141 0.450 0.186\n"
     "C C 0 N N N -0.095 0.006 1.606\nO O 0 N N N 0.685 -0.742 2.143\n"
     "CB C 0 N N N -0.533 -0.530 -0.774\nSG S 0 N N N -0.247 0.004 -2.484\n"
     "OXT O 0 N Y N -1.174 0.443 2.275\n",
     "N CA SING N N\nCA C SING N N\nCA CB SING N N\nC O DOUB N N\nC OXT SING N N\n"
     "CB SG SING N N\n"},
    {"GLN", "L-PEPTIDE LINKING", "Q", "GLUTAMINE", "C5 H10 N2 O3", "146.144",
     "N N 0 N N N 1.858 -0.148 1.125\nCA C 0 N N S 0.517 0.451 1.112\n"
     "C C 0 N N N -0.236 0.022 2.344\nO O 0 N N N -0.005 -1.049 2.851\n"
     "CB C 0 N N N -0.236 -0.013 -0.135\nCG C 0 N N N 0.529 0.421 -1.385\n"
     "CD C 0 N N N -0.213 -0.036 -2.614\nOE1 O 0 N N N -1.252 -0.650 -2.500\n"
     "NE2 N 0 N N N 0.277 0.236 -3.839\nOXT O 0 N Y N -1.165 0.831 2.878\n",
     "N CA SING N N\nCA C SING N N\nCA CB SING N N\nC O DOUB N N\nC OXT SING N N\n"
     "CB CG SING N N\nCG CD SING N N\nCD OE1 DOUB N N\nCD NE2 SING N N\n"},
    {"GLU", "L-PEPTIDE LINKING", "E", "GLUTAMIC ACID", "C5 H9 N O4", "147.129",
     "N N 0 N N N 1.199 1.867 -0.117\nCA C 0 N N S 1.138 0.515 0.453\n"
     "C C 0 N N N 2.364 -0.260 0.041\nO O 0 N N N 3.010 0.096 -0.916\n"
     "CB C 0 N N N -0.113 -0.200 -0.062\nCG C 0 N N N -1.360 0.517 0.461\n"
     "CD C 0 N N N -2.593 -0.187 -0.046\nOE1 O 0 N N N -2.485 -1.161 -0.753\n"
     "OE2 O 0 N N N -3.811 0.269 0.287\nOXT O 0 N Y N 2.737 -1.345 0.737\n",
     "N CA SING N N\nCA C SING N N\nCA CB SING N N\nC O DOUB N N\nC OXT SING N N\n"
     "CB CG SING N N\nCG CD SING N N\nCD OE1 DOUB N N\nCD OE2 SING N N\n"},
    {"GLY", "PEPTIDE LINKING", "G", "GLYCINE", "C2 H5 N O2", "75.067",
     "N N 0 N N N 1.931 0.090 -0.034\nCA C 0 N N N 0.761 -0.799 -0.008\n"
     "C C 0 N N N -0.498 0.029 -0.005\nO O 0 N N N -0.429 1.235 -0.023\n"
     "OXT O 0 N Y N -1.697 -0.574 0.018\n",
     "N CA SING N N\nCA C SING N N\nC O DOUB N N\nC OXT SING N N\n"},
    {"HIS", "L-PEPTIDE LINKING", "H", "HISTIDINE", "C6 H10 N3 O2", "156.162",
     "N N 0 N N N -0.040 -1.210 0.053\nCA C 0 N N S 1.172 -1.709 0.652\n"
     "C C 0 N N N 1.083 -3.207 0.905\nO O 0 N N N 0.040 -3.770 1.222\n"
     "CB C 0 N N N 1.484 -0.975 1.962\nCG C 0 Y N N 2.940 -1.060 2.353\n"
     "ND1 N 1 Y N N 3.380 -2.075 3.129\nCD2 C 0 Y N N 3.960 -0.251 2.046\n"
     "CE1 C 0 Y N N 4.693 -1.908 3.317\nNE2 N 0 Y N N 5.058 -0.801 2.662\n"
     "OXT O 0 N Y N 2.247 -3.882 0.744\n",
     "N CA SING N N\nCA C SING N N\nCA CB SING N N\nC O DOUB N N\nC OXT SING N N\n"
     "CB CG SING N N\nCG ND1 SING Y N\nCG CD2 DOUB Y N\nND1 CE1 DOUB Y N\nCD2 NE2 SING Y N\n"
     "CE1 NE2 SING Y N\n"},
    {"ILE", "L-PEPTIDE LINKING", "I", "ISOLEUCINE", "C6 H13 N O2", "131.173",
     "N N 0 N N N -1.944 0.335 -0.343\nCA C 0 N N S -0.487 0.519 -0.369\n"
     "C C 0 N N N 0.066 -0.032 -1.657\nO O 0 N N N -0.484 -0.958 -2.203\n"
     "CB C 0 N N S 0.140 -0.219 0.814\nCG1 C 0 N N N -0.421 0.341 2.122\n"
     "CG2 C 0 N N N 1.658 -0.027 0.788\nCD1 C 0 N N N 0.206 -0.397 3.305\n"
     "OXT O 0 N Y N 1.171 0.504 -2.197\n",
     "N CA SING N N\nCA C SING N N\nCA CB SING N N\nC O DOUB N N\nC OXT SING N N\n"
     "CB CG1 SING N N\nCB CG2 SING N N\nCG1 CD1 SING N N\n"},
    {"LEU", "L-PEPTIDE LINKING", "L", "LEUCINE", "C6 H13 N O2", "131.173",
     "N N 0 N N N -1.661 0.627 -0.406\nCA C 0 N N S -0.205 0.441 -0.467\n"
     "C C 0 N N N 0.180 -0.055 -1.836\nO O 0 N N N -0.591 -0.731 -2.474\n"
     "CB C 0 N N N 0.221 -0.583 0.585\nCG C 0 N N N -0.170 -0.079 1.976\n"
     "CD1 C 0 N N N 0.256 -1.104 3.029\nCD2 C 0 N N N 0.526 1.254 2.250\n"
     "OXT O 0 N Y N 1.382 0.254 -2.348\n",
     "N CA SING N N\nCA C SING N N\nCA CB SING N N\nC O DOUB N N\nC OXT SING N N\n"
     "CB CG SING N N\nCG CD1 SING N N\nCG CD2 SING N N\n"},
    {"LYS", "L-PEPTIDE LINKING", "K", "LYSINE", "C6 H15 N2 O2", "147.195",
     "N N 0 N N N 1.422 1.796 0.198\nCA C 0 N N S 1.394 0.355 0.484\n"
     "C C 0 N N N 2.657 -0.284 -0.032\nO O 0 N N N 3.316 0.275 -0.876\n"
     "CB C 0 N N N 0.184 -0.278 -0.206\nCG C 0 N N N -1.102 0.282 0.407\n"
     "CD C 0 N N N -2.313 -0.351 -0.283\nCE C 0 N N N -3.598 0.208 0.329\n"
     "NZ N 1 N N N -4.761 -0.400 -0.332\nOXT O 0 N Y N 3.050 -1.476 0.446\n",
     "N CA SING N N\nCA C SING N N\nCA CB SING N N\nC O DOUB N N\nC OXT SING N N\n"
     "CB CG SING N N\nCG CD SING N N\nCD CE SING N N\nCE NZ SING N N\n"},
    {"MET", "L-PEPTIDE LINKING", "M", "METHIONINE", "C5 H11 N O2 S", "149.211",
     "N N 0 N N N -1.816 0.142 -1.166\nCA C 0 N N S -0.392 0.499 -1.214\n"
     "C C 0 N N N 0.206 0.002 -2.504\nO O 0 N N N -0.236 -0.989 -3.033\n"
     "CB C 0 N N N 0.334 -0.145 -0.032\nCG C 0 N N N -0.273 0.359 1.277\n"
     "SD S 0 N N N 0.589 -0.405 2.678\nCE C 0 N N N -0.314 0.353 4.056\n"
     "OXT O 0 N Y N 1.232 0.661 -3.066\n",
     "N CA SING N N\nCA C SING N N\nCA CB SING N N\nC O DOUB N N\nC OXT SING N N\n"
     "CB CG SING N N\nCG SD SING N N\nSD CE SING N N\n"},
    {"MSE", "L-PEPTIDE LINKING", "M", "SELENOMETHIONINE", "C5 H11 N O2 Se", "196.106",
     "N N 0 N N N 1.869 0.121 -1.981\nCA C 0 N N S 0.520 -0.459 -1.960\n"
     "C C 0 N N N -0.232 -0.028 -3.192\nO O 0 N N N 0.011 1.037 -3.706\n"
     "OXT O 0 N Y N -1.173 -0.828 -3.717\nCB C 0 N N N -0.222 0.023 -0.713\n"
     "CG C 0 N N N 0.541 -0.414 0.538\nSE SE 0 N N N -0.410 0.204 2.135\n"
     "CE C 0 N N N 0.876 -0.552 3.405\n",
     "N CA SING N N\nCA C SING N N\nCA CB SING N N\nC O DOUB N N\nC OXT SING N N\n"
     "CB CG SING N N\nCG SE SING N N\nSE CE SING N N\n"},
    {"PHE", "L-PEPTIDE LINKING", "F", "PHENYLALANINE", "C9 H11 N O2", "165.189",
     "N N 0 N N N 1.317 0.962 1.014\nCA C 0 N N S -0.020 0.426 1.300\n"
     "C C 0 N N N -0.109 0.047 2.756\nO O 0 N N N 0.879 -0.317 3.346\n"
     "CB C 0 N N N -0.270 -0.809 0.434\nCG C 0 Y N N -0.181 -0.430 -1.020\n"
     "CD1 C 0 Y N N 1.031 -0.498 -1.680\nCD2 C 0 Y N N -1.314 -0.018 -1.698\n"
     "CE1 C 0 Y N N 1.112 -0.150 -3.015\nCE2 C 0 Y N N -1.231 0.333 -3.032\n"
     "CZ C 0 Y N N -0.018 0.265 -3.691\nOXT O 0 N Y N -1.286 0.113 3.396\n",
     "N CA SING N N\nCA C SING N N\nCA CB SING N N\nC O DOUB N N\nC OXT SING N N\n"
     "CB CG SING N N\nCG CD1 DOUB Y N\nCG CD2 SING Y N\nCD1 CE1 SING Y N\nCD2 CE2 DOUB Y N\n"
     "CE1 CZ DOUB Y N\nCE2 CZ SING Y N\n"},
    {"PRO", "L-PEPTIDE LINKING", "P", "PROLINE", "C5 H9 N O2", "115.130",
     "N N 0 N N N -0.816 1.108 0.254\nCA C 0 N N S 0.001 -0.107 0.509\n"
     "C C 0 N N N 1.408 0.091 0.005\nO O 0 N N N 1.650 0.980 -0.777\n"
     "CB C 0 N N N -0.703 -1.227 -0.286\nCG C 0 N N N -2.163 -0.753 -0.439\n"
     "CD C 0 N N N -2.218 0.614 0.276\nOXT O 0 N Y N 2.391 -0.721 0.424\n",
     "N CA SING N N\nN CD SING N N\nCA C SING N N\nCA CB SING N N\nC O DOUB N N\n"
     "C OXT SING N N\nCB CG SING N N\nCG CD SING N N\n"},
    {"SER", "L-PEPTIDE LINKING", "S", "SERINE", "C3 H7 N O3", "105.093",
     "N N 0 N N N 1.525 0.493 -0.608\nCA C 0 N N S 0.100 0.469 -0.252\n"
     "C C 0 N N N -0.053 0.004 1.173\nO O 0 N N N 0.751 -0.760 1.649\n"
     "CB C 0 N N N -0.642 -0.489 -1.184\nOG O 0 N N N -0.496 -0.049 -2.535\n"
     "OXT O 0 N Y N -1.084 0.440 1.913\n",
     "N CA SING N N\nCA C SING N N\nCA CB SING N N\nC O DOUB N N\nC OXT SING N N\n"
     "CB OG SING N N\n"},
    {"THR", "L-PEPTIDE LINKING", "T", "THREONINE", "C4 H9 N O3", "119.119",
     "N N 0 N N N 1.543 -0.702 0.430\nCA C 0 N N S 0.122 -0.706 0.056\n"
     "C C 0 N N N -0.038 -0.090 -1.309\nO O 0 N N N 0.732 0.761 -1.683\n"
     "CB C 0 N N R -0.675 0.104 1.079\nOG1 O 0 N N N -0.193 1.448 1.103\n"
     "CG2 C 0 N N N -0.511 -0.521 2.466\nOXT O 0 N Y N -1.039 -0.488 -2.110\n",
     "N CA SING N N\nCA C SING N N\nCA CB SING N N\nC O DOUB N N\nC OXT SING N N\n"
     "CB OG1 SING N N\nCB CG2 SING N N\n"},
    {"TRP", "L-PEPTIDE LINKING", "W", "TRYPTOPHAN", "C11 H12 N2 O2", "204.225",
     "N N 0 N N N 1.278 1.121 2.059\nCA C 0 N N S -0.008 0.417 1.970\n"
     "C C 0 N N N -0.490 0.076 3.357\nO O 0 N N N 0.308 -0.130 4.240\n"
     "CB C 0 N N N 0.168 -0.868 1.161\nCG C 0 Y N N 0.650 -0.526 -0.225\n"
     "CD1 C 0 Y N N 1.928 -0.418 -0.622\nCD2 C 0 Y N N -0.186 -0.256 -1.396\n"
     "NE1 N 0 Y N N 1.978 -0.095 -1.951\nCE2 C 0 Y N N 0.701 0.014 -2.454\n"
     "CE3 C 0 Y N N -1.564 -0.210 -1.615\nCZ2 C 0 Y N N 0.190 0.314 -3.712\n"
     "CZ3 C 0 Y N N -2.044 0.086 -2.859\nCH2 C 0 Y N N -1.173 0.348 -3.907\n"
     "OXT O 0 N Y N -1.806 0.001 3.610\n",
     "N CA SING N N\nCA C SING N N\nCA CB SING N N\nC O DOUB N N\nC OXT SING N N\n"
     "CB CG SING N N\nCG CD1 DOUB Y N\nCG CD2 SING Y N\nCD1 NE1 SING Y N\nCD2 CE2 DOUB Y N\n"
     "CD2 CE3 SING Y N\nNE1 CE2 SING Y N\nCE2 CZ2 SING Y N\nCE3 CZ3 DOUB Y N\nCZ2 CH2 DOUB Y N\n"
     "CZ3 CH2 SING Y N\n"},
    {"TYR", "L-PEPTIDE LINKING", "Y", "TYROSINE", "C9 H11 N O3", "181.189",
     "N N 0 N N N 1.320 0.952 1.428\nCA C 0 N N S -0.018 0.429 1.734\n"
     "C C 0 N N N -0.103 0.094 3.201\nO O 0 N N N 0.886 -0.254 3.799\n"
     "CB C 0 N N N -0.274 -0.831 0.907\nCG C 0 Y N N -0.189 -0.496 -0.559\n"
     "CD1 C 0 Y N N 1.022 -0.589 -1.219\nCD2 C 0 Y N N -1.324 -0.102 -1.244\n"
     "CE1 C 0 Y N N 1.103 -0.282 -2.563\nCE2 C 0 Y N N -1.247 0.210 -2.587\n"
     "CZ C 0 Y N N -0.032 0.118 -3.252\nOH O 0 N N N 0.044 0.420 -4.574\n"
     "OXT O 0 N Y N -1.279 0.184 3.842\n",
     "N CA SING N N\nCA C SING N N\nCA CB SING N N\nC O DOUB N N\nC OXT SING N N\n"
     "CB CG SING N N\nCG CD1 DOUB Y N\nCG CD2 SING Y N\nCD1 CE1 SING Y N\nCD2 CE2 DOUB Y N\n"
     "CE1 CZ DOUB Y N\nCE2 CZ SING Y N\nCZ OH SING N N\n"},
    {"VAL", "L-PEPTIDE LINKING", "V", "VALINE", "C5 H11 N O2", "117.146",
     "N N 0 N N N 1.564 -0.642 0.454\nCA C 0 N N S 0.145 -0.698 0.079\n"
     "C C 0 N N N -0.037 -0.093 -1.288\nO O 0 N N N 0.703 0.784 -1.664\n"
     "CB C 0 N N N -0.682 0.086 1.098\nCG1 C 0 N N N -0.497 -0.528 2.487\n"
     "CG2 C 0 N N N -0.218 1.543 1.119\nOXT O 0 N Y N -1.022 -0.529 -2.089\n",
     "N CA SING N N\nCA C SING N N\nCA CB SING N N\nC O DOUB N N\nC OXT SING N N\n"
     "CB CG1 SING N N\nCB CG2 SING N N\n"},
    {"A", "RNA LINKING", "A", "ADENOSINE-5'-MONOPHOSPHATE", "C10 H14 N5 O7 P", "347.221",
     "OP3 O 0 N Y N 2.135 -1.141 -5.313\nP P 0 N N N 1.024 -0.137 -4.723\n"
     "OP1 O 0 N N N 1.633 1.190 -4.488\nOP2 O 0 N N N -0.183 0.005 -5.778\n"
     "\"O5'\" O 0 N N N 0.456 -0.720 -3.334\n\"C5'\" C 0 N N N -0.520 0.209 -2.863\n"
     "\"C4'\" C 0 N N R -1.101 -0.287 -1.538\n\"O4'\" O 0 N N N -0.064 -0.383 -0.538\n"
     "\"C3'\" C 0 N N S -2.105 0.739 -0.969\n\"O3'\" O 0 N N N -3.445 0.360 -1.287\n"
     "\"C2'\" C 0 N N R -1.874 0.684 0.558\n\"O2'\" O 0 N N N -3.065 0.271 1.231\n"
     "\"C1'\" C 0 N N R -0.755 -0.367 0.729\nN9 N 0 Y N N 0.158 0.029 1.803\n"
     "C8 C 0 Y N N 1.265 0.813 1.672\nN7 N 0 Y N N 1.843 0.963 2.828\n"
     "C5 C 0 Y N N 1.143 0.292 3.773\nC6 C 0 Y N N 1.290 0.091 5.156\n"
     "N6 N 0 N N N 2.344 0.664 5.846\nN1 N 0 Y N N 0.391 -0.656 5.787\n"
     "C2 C 0 Y N N -0.617 -1.206 5.136\nN3 N 0 Y N N -0.792 -1.051 3.841\n"
     "C4 C 0 Y N N 0.056 -0.320 3.126\n",
     "OP3 P SING N N\nP OP1 DOUB N N\nP OP2 SING N N\nP \"O5'\" SING N N\n"
     "\"O5'\" \"C5'\" SING N N\n\"C5'\" \"C4'\" SING N N\n\"C4'\" \"O4'\" SING N N\n"
     "\"C4'\" \"C3'\" SING N N\n\"O4'\" \"C1'\" SING N N\n\"C3'\" \"O3'\" SING N N\n"
     "\"C3'\" \"C2'\" SING N N\n\"C2'\" \"O2'\" SING N N\n\"C2'\" \"C1'\" SING N N\n"
     "\"C1'\" N9 SING N N\nN9 C8 SING Y N\nN9 C4 SING Y N\nC8 N7 DOUB Y N\nN7 C5 SING Y N\n"
     "C5 C6 SING Y N\nC5 C4 DOUB Y N\nC6 N6 SING N N\nC6 N1 DOUB Y N\nN1 C2 SING Y N\n"
     "C2 N3 DOUB Y N\nN3 C4 SING Y N\n"},
    {"C", "RNA LINKING", "C", "CYTIDINE-5'-MONOPHOSPHATE", "C9 H14 N3 O8 P", "323.197",
     "OP3 O 0 N Y N 2.147 -1.021 -4.678\nP P 0 N N N 1.049 -0.039 -4.028\n"
     "OP1 O 0 N N N 1.692 1.237 -3.646\nOP2 O 0 N N N -0.116 0.246 -5.102\n"
     "\"O5'\" O 0 N N N 0.415 -0.733 -2.721\n\"C5'\" C 0 N N N -0.546 0.181 -2.193\n"
     "\"C4'\" C 0 N N R -1.189 -0.419 -0.942\n\"O4'\" O 0 N N N -0.190 -0.648 0.076\n"
     "\"C3'\" C 0 N N S -2.178 0.583 -0.307\n\"O3'\" O 0 N N N -3.518 0.283 -0.703\n"
     "\"C2'\" C 0 N N R -2.001 0.373 1.215\n\"O2'\" O 0 N N N -3.228 -0.059 1.806\n"
     "\"C1'\" C 0 N N R -0.924 -0.729 1.317\nN1 N 0 N N N -0.036 -0.470 2.453\n"
     "C2 C 0 N N N 0.652 0.683 2.514\nO2 O 0 N N N 0.529 1.504 1.620\n"
     "N3 N 0 N N N 1.467 0.945 3.535\nC4 C 0 N N N 1.620 0.070 4.520\n"
     "N4 N 0 N N N 2.464 0.350 5.569\nC5 C 0 N N N 0.916 -1.151 4.483\n"
     "C6 C 0 N N N 0.087 -1.399 3.442\n",
     "OP3 P SING N N\nP OP1 DOUB N N\nP OP2 SING N N\nP \"O5'\" SING N N\n"
     "\"O5'\" \"C5'\" SING N N\n\"C5'\" \"C4'\" SING N N\n\"C4'\" \"O4'\" SING N N\n"
     "\"C4'\" \"C3'\" SING N N\n\"O4'\" \"C1'\" SING N N\n\"C3'\" \"O3'\" SING N N\n"
     "\"C3'\" \"C2'\" SING N N\n\"C2'\" \"O2'\" SING N N\n\"C2'\" \"C1'\" SING N N\n"
     "\"C1'\" N1 SING N N\nN1 C2 SING N N\nN1 C6 SING N N\nC2 O2 DOUB N N\nC2 N3 SING N N\n"
     "N3 C4 DOUB N N\nC4 N4 SING N N\nC4 C5 SING N N\nC5 C6 DOUB N N\n"},
    {"G", "RNA LINKING", "G", "GUANOSINE-5'-MONOPHOSPHATE", "C10 H14 N5 O8 P", "363.221",
     "OP3 O 0 N Y N -1.945 -1.360 5.599\nP P 0 N N N -0.911 -0.277 5.008\n"
     "OP1 O 0 N N N -1.598 1.022 4.844\nOP2 O 0 N N N 0.325 -0.105 6.025\n"
     "\"O5'\" O 0 N N N -0.365 -0.780 3.580\n\"C5'\" C 0 N N N 0.542 0.217 3.109\n"
     "\"C4'\" C 0 N N R 1.100 -0.200 1.748\n\"O4'\" O 0 N N N 0.033 -0.318 0.782\n"
     "\"C3'\" C 0 N N S 2.025 0.898 1.182\n\"O3'\" O 0 N N N 3.395 0.582 1.439\n"
     "\"C2'\" C 0 N N R 1.741 0.884 -0.338\n\"O2'\" O 0 N N N 2.927 0.560 -1.066\n"
     "\"C1'\" C 0 N N R 0.675 -0.220 -0.507\nN9 N 0 Y N N -0.297 0.162 -1.534\n"
     "C8 C 0 Y N N -1.440 0.880 -1.334\nN7 N 0 Y N N -2.066 1.037 -2.464\n"
     "C5 C 0 Y N N -1.364 0.431 -3.453\nC6 C 0 N N N -1.556 0.279 -4.846\n"
     "O6 O 0 N N N -2.534 0.755 -5.397\nN1 N 0 N N N -0.626 -0.401 -5.551\n"
     "C2 C 0 N N N 0.459 -0.934 -4.923\nN2 N 0 N N N 1.384 -1.626 -5.664\n"
     "N3 N 0 N N N 0.649 -0.800 -3.630\nC4 C 0 Y N N -0.226 -0.134 -2.868\n",
     "OP3 P SING N N\nP OP1 DOUB N N\nP OP2 SING N N\nP \"O5'\" SING N N\n"
     "\"O5'\" \"C5'\" SING N N\n\"C5'\" \"C4'\" SING N N\n\"C4'\" \"O4'\" SING N N\n"
     "\"C4'\" \"C3'\" SING N N\n\"O4'\" \"C1'\" SING N N\n\"C3'\" \"O3'\" SING N N\n"
     "\"C3'\" \"C2'\" SING N N\n\"C2'\" \"O2'\" SING N N\n\"C2'\" \"C1'\" SING N N\n"
     "\"C1'\" N9 SING N N\nN9 C8 SING Y N\nN9 C4 SING Y N\nC8 N7 DOUB Y N\nN7 C5 SING Y N\n"
     "C5 C6 SING N N\nC5 C4 DOUB Y N\nC6 O6 DOUB N N\nC6 N1 SING N N\nN1 C2 SING N N\n"
     "C2 N2 SING N N\nC2 N3 DOUB N N\nN3 C4 SING N N\n"},
    {"U", "RNA LINKING", "U", "URIDINE-5'-MONOPHOSPHATE", "C9 H13 N2 O9 P", "324.181",
     "OP3 O 0 N Y N -2.122 1.033 -4.690\nP P 0 N N N -1.030 0.047 -4.037\n"
     "OP1 O 0 N N N -1.679 -1.228 -3.660\nOP2 O 0 N N N 0.138 -0.241 -5.107\n"
     "\"O5'\" O 0 N N N -0.399 0.736 -2.726\n\"C5'\" C 0 N N N 0.557 -0.182 -2.196\n"
     "\"C4'\" C 0 N N R 1.197 0.415 -0.942\n\"O4'\" O 0 N N N 0.194 0.645 0.074\n"
     "\"C3'\" C 0 N N S 2.181 -0.588 -0.301\n\"O3'\" O 0 N N N 3.524 -0.288 -0.686\n"
     "\"C2'\" C 0 N N R 1.995 -0.383 1.218\n\"O2'\" O 0 N N N 3.219 0.046 1.819\n"
     "\"C1'\" C 0 N N R 0.922 0.723 1.319\nN1 N 0 N N N 0.028 0.464 2.451\n"
     "C2 C 0 N N N -0.690 -0.671 2.486\nO2 O 0 N N N -0.587 -1.474 1.580\n"
     "N3 N 0 N N N -1.515 -0.936 3.517\nC4 C 0 N N N -1.641 -0.055 4.530\n"
     "O4 O 0 N N N -2.391 -0.292 5.460\nC5 C 0 N N N -0.894 1.146 4.502\n"
     "C6 C 0 N N N -0.070 1.384 3.459\n",
     "OP3 P SING N N\nP OP1 DOUB N N\nP OP2 SING N N\nP \"O5'\" SING N N\n"
     "\"O5'\" \"C5'\" SING N N\n\"C5'\" \"C4'\" SING N N\n\"C4'\" \"O4'\" SING N N\n"
     "\"C4'\" \"C3'\" SING N N\n\"O4'\" \"C1'\" SING N N\n\"C3'\" \"O3'\" SING N N\n"
     "\"C3'\" \"C2'\" SING N N\n\"C2'\" \"O2'\" SING N N\n\"C2'\" \"C1'\" SING N N\n"
     "\"C1'\" N1 SING N N\nN1 C2 SING N N\nN1 C6 SING N N\nC2 O2 DOUB N N\nC2 N3 SING N N\n"
     "N3 C4 SING N N\nC4 O4 DOUB N N\nC4 C5 SING N N\nC5 C6 DOUB N N\n"},
    {"DA", "DNA LINKING", "A", "2'-DEOXYADENOSINE-5'-MONOPHOSPHATE", "C10 H14 N5 O6 P", "331.222",
     "OP3 O 0 N Y N 1.845 -1.282 -5.339\nP P 0 N N N 0.934 -0.156 -4.636\n"
     "OP1 O 0 N N N 1.781 0.996 -4.255\nOP2 O 0 N N N -0.204 0.331 -5.665\n"
     "\"O5'\" O 0 N N N 0.241 -0.771 -3.320\n\"C5'\" C 0 N N N -0.549 0.270 -2.744\n"
     "\"C4'\" C 0 N N R -1.239 -0.251 -1.482\n\"O4'\" O 0 N N N -0.267 -0.564 -0.458\n"
     "\"C3'\" C 0 N N S -2.105 0.859 -0.835\n\"O3'\" O 0 N N N -3.409 0.895 -1.418\n"
     "\"C2'\" C 0 N N N -2.173 0.398 0.640\n\"C1'\" C 0 N N R -0.965 -0.545 0.797\n"
     "N9 N 0 Y N N -0.078 -0.047 1.852\nC8 C 0 Y N N 0.962 0.817 1.689\n"
     "N7 N 0 Y N N 1.535 1.044 2.835\nC5 C 0 Y N N 0.897 0.346 3.805\n"
     "C6 C 0 Y N N 1.069 0.196 5.191\nN6 N 0 N N N 2.079 0.869 5.856\n"
     "N1 N 0 Y N N 0.236 -0.603 5.850\nC2 C 0 Y N N -0.729 -1.249 5.224\n"
     "N3 N 0 Y N N -0.925 -1.144 3.927\nC4 C 0 Y N N -0.142 -0.368 3.184\n",
     "OP3 P SING N N\nP OP1 DOUB N N\nP OP2 SING N N\nP \"O5'\" SING N N\n"
     "\"O5'\" \"C5'\" SING N N\n\"C5'\" \"C4'\" SING N N\n\"C4'\" \"O4'\" SING N N\n"
     "\"C4'\" \"C3'\" SING N N\n\"O4'\" \"C1'\" SING N N\n\"C3'\" \"O3'\" SING N N\n"
     "\"C3'\" \"C2'\" SING N N\n\"C2'\" \"C1'\" SING N N\n\"C1'\" N9 SING N N\nN9 C8 SING Y N\n"
     "N9 C4 SING Y N\nC8 N7 DOUB Y N\nN7 C5 SING Y N\nC5 C6 SING Y N\nC5 C4 DOUB Y N\n"
     "C6 N6 SING N N\nC6 N1 DOUB Y N\nN1 C2 SING Y N\nC2 N3 DOUB Y N\nN3 C4 SING Y N\n"},
    {"DC", "DNA LINKING", "C", "2'-DEOXYCYTIDINE-5'-MONOPHOSPHATE", "C9 H14 N3 O7 P", "307.197",
     "OP3 O 0 N Y N 1.941 -1.055 -4.672\nP P 0 N N N 0.987 -0.017 -3.894\n"
     "OP1 O 0 N N N 1.802 1.099 -3.365\nOP2 O 0 N N N -0.119 0.560 -4.910\n"
     "\"O5'\" O 0 N N N 0.255 -0.772 -2.674\n\"C5'\" C 0 N N N -0.571 0.196 -2.027\n"
     "\"C4'\" C 0 N N R -1.300 -0.459 -0.852\n\"O4'\" O 0 N N N -0.363 -0.863 0.171\n"
     "\"C3'\" C 0 N N S -2.206 0.569 -0.129\n\"O3'\" O 0 N N N -3.488 0.649 -0.756\n"
     "\"C2'\" C 0 N N N -2.322 -0.040 1.288\n\"C1'\" C 0 N N R -1.106 -0.981 1.395\n"
     "N1 N 0 N N N -0.267 -0.584 2.528\nC2 C 0 N N N 0.270 0.648 2.563\n"
     "O2 O 0 N N N 0.052 1.424 1.647\nN3 N 0 N N N 1.037 1.035 3.581\n"
     "C4 C 0 N N N 1.291 0.212 4.589\nN4 N 0 N N N 2.085 0.622 5.635\n"
     "C5 C 0 N N N 0.746 -1.088 4.580\nC6 C 0 N N N -0.035 -1.465 3.541\n",
     "OP3 P SING N N\nP OP1 DOUB N N\nP OP2 SING N N\nP \"O5'\" SING N N\n"
     "\"O5'\" \"C5'\" SING N N\n\"C5'\" \"C4'\" SING N N\n\"C4'\" \"O4'\" SING N N\n"
     "\"C4'\" \"C3'\" SING N N\n\"O4'\" \"C1'\" SING N N\n\"C3'\" \"O3'\" SING N N\n"
     "\"C3'\" \"C2'\" SING N N\n\"C2'\" \"C1'\" SING N N\n\"C1'\" N1 SING N N\nN1 C2 SING N N\n"
     "N1 C6 SING N N\nC2 O2 DOUB N N\nC2 N3 SING N N\nN3 C4 DOUB N N\nC4 N4 SING N N\n"
     "C4 C5 SING N N\nC5 C6 DOUB N N\n"},
    {"DG", "DNA LINKING", "G", "2'-DEOXYGUANOSINE-5'-MONOPHOSPHATE", "C10 H14 N5 O7 P", "347.221",
     "OP3 O 0 N Y N -1.603 -1.547 5.624\nP P 0 N N N -0.818 -0.321 4.935\n"
     "OP1 O 0 N N N -1.774 0.766 4.630\nOP2 O 0 N N N 0.312 0.224 5.941\n"
     "\"O5'\" O 0 N N N -0.126 -0.826 3.572\n\"C5'\" C 0 N N N 0.550 0.300 3.011\n"
     "\"C4'\" C 0 N N R 1.233 -0.113 1.706\n\"O4'\" O 0 N N N 0.253 -0.471 0.705\n"
     "\"C3'\" C 0 N N S 1.976 1.091 1.073\n\"O3'\" O 0 N N N 3.294 1.218 1.612\n"
     "\"C2'\" C 0 N N N 2.026 0.692 -0.421\n\"C1'\" C 0 N N R 0.897 -0.345 -0.573\n"
     "N9 N 0 Y N N -0.068 0.111 -1.575\nC8 C 0 Y N N -1.172 0.877 -1.341\n"
     "N7 N 0 Y N N -1.804 1.094 -2.458\nC5 C 0 Y N N -1.145 0.482 -3.472\n"
     "C6 C 0 N N N -1.361 0.377 -4.866\nO6 O 0 N N N -2.321 0.914 -5.391\n"
     "N1 N 0 N N N -0.473 -0.327 -5.601\nC2 C 0 N N N 0.593 -0.928 -5.003\n"
     "N2 N 0 N N N 1.474 -1.643 -5.774\nN3 N 0 N N N 0.804 -0.839 -3.709\n"
     "C4 C 0 Y N N -0.027 -0.152 -2.917\n",
     "OP3 P SING N N\nP OP1 DOUB N N\nP OP2 SING N N\nP \"O5'\" SING N N\n"
     "\"O5'\" \"C5'\" SING N N\n\"C5'\" \"C4'\" SING N N\n\"C4'\" \"O4'\" SING N N\n"
     "\"C4'\" \"C3'\" SING N N\n\"O4'\" \"C1'\" SING N N\n\"C3'\" \"O3'\" SING N N\n"
     "\"C3'\" \"C2'\" SING N N\n\"C2'\" \"C1'\" SING N N\n\"C1'\" N9 SING N N\nN9 C8 SING Y N\n"
     "N9 C4 SING Y N\nC8 N7 DOUB Y N\nN7 C5 SING Y N\nC5 C6 SING N N\nC5 C4 DOUB Y N\n"
     "C6 O6 DOUB N N\nC6 N1 SING N N\nN1 C2 SING N N\nC2 N2 SING N N\nC2 N3 DOUB N N\n"
     "N3 C4 SING N N\n"},
    {"DT", "DNA LINKING", "T", "THYMIDINE-5'-MONOPHOSPHATE", "C10 H15 N2 O8 P", "322.208",
     "OP3 O 0 N Y N -3.912 -2.311 1.636\nP P 0 N N N -3.968 -1.665 3.118\n"
     "OP1 O 0 N N N -4.406 -2.599 4.208\nOP2 O 0 N N N -4.901 -0.360 2.920\n"
     "\"O5'\" O 0 N N N -2.493 -1.028 3.315\n\"C5'\" C 0 N N N -2.005 -0.136 2.327\n"
     "\"C4'\" C 0 N N R -0.611 0.328 2.728\n\"O4'\" O 0 N N N 0.247 -0.829 2.764\n"
     "\"C3'\" C 0 N N S 0.008 1.286 1.720\n\"O3'\" O 0 N N N 0.965 2.121 2.368\n"
     "\"C2'\" C 0 N N N 0.710 0.360 0.754\n\"C1'\" C 0 N N R 1.157 -0.778 1.657\n"
     "N1 N 0 N N N 1.164 -2.047 0.989\nC2 C 0 N N N 2.333 -2.544 0.374\n"
     "O2 O 0 N N N 3.410 -1.945 0.363\nN3 N 0 N N N 2.194 -3.793 -0.240\n"
     "C4 C 0 N N N 1.047 -4.570 -0.300\nO4 O 0 N N N 0.995 -5.663 -0.857\n"
     "C5 C 0 N N N -0.143 -3.980 0.369\nC7 C 0 N N N -1.420 -4.757 0.347\n"
     "C6 C 0 N N N -0.013 -2.784 0.958\n",
     "OP3 P SING N N\nP OP1 DOUB N N\nP OP2 SING N N\nP \"O5'\" SING N N\n"
     "\"O5'\" \"C5'\" SING N N\n\"C5'\" \"C4'\" SING N N\n\"C4'\" \"O4'\" SING N N\n"
     "\"C4'\" \"C3'\" SING N N\n\"O4'\" \"C1'\" SING N N\n\"C3'\" \"O3'\" SING N N\n"
     "\"C3'\" \"C2'\" SING N N\n\"C2'\" \"C1'\" SING N N\n\"C1'\" N1 SING N N\nN1 C2 SING N N\n"
     "N1 C6 SING N N\nC2 O2 DOUB N N\nC2 N3 SING N N\nN3 C4 SING N N\nC4 O4 DOUB N N\n"
     "C4 C5 SING N N\nC5 C7 SING N N\nC5 C6 DOUB N N\n"},
    {"ATP", "NON-POLYMER", "?", "ADENOSINE-5'-TRIPHOSPHATE", "C10 H16 N5 O13 P3", "507.181",
     "PG P 0 N N N 1.200 -0.226 -6.850\nO1G O 0 N N N 1.740 1.140 -6.672\n"
     "O2G O 0 N N N 2.123 -1.036 -7.891\nO3G O 0 N N N -0.302 -0.139 -7.421\n"
     "PB P 0 N N R 0.255 -0.130 -4.446\nO1B O 0 N N N 0.810 1.234 -4.304\n"
     "O2B O 0 N N N -1.231 -0.044 -5.057\nO3B O 0 N N N 1.192 -0.990 -5.433\n"
     "PA P 0 N N R -0.745 0.068 -2.071\nO1A O 0 N N N -2.097 0.143 -2.669\n"
     "O2A O 0 N N N -0.125 1.549 -1.957\nO3A O 0 N N N 0.203 -0.840 -3.002\n"
     "\"O5'\" O 0 N N N -0.844 -0.587 -0.604\n\"C5'\" C 0 N N N -1.694 0.260 0.170\n"
     "\"C4'\" C 0 N N R -1.831 -0.309 1.584\n\"O4'\" O 0 N N N -0.542 -0.355 2.234\n"
     "\"C3'\" C 0 N N S -2.683 0.630 2.465\n\"O3'\" O 0 N N N -4.033 0.165 2.534\n"
     "\"C2'\" C 0 N N R -2.011 0.555 3.856\n\"O2'\" O 0 N N N -2.926 0.043 4.827\n"
     "\"C1'\" C 0 N N R -0.830 -0.418 3.647\nN9 N 0 Y N N 0.332 0.015 4.425\n"
     "C8 C 0 Y N N 1.302 0.879 4.012\nN7 N 0 Y N N 2.184 1.042 4.955\n"
     "C5 C 0 Y N N 1.833 0.300 6.033\nC6 C 0 Y N N 2.391 0.077 7.303\n"
     "N6 N 0 N N N 3.564 0.706 7.681\nN1 N 0 Y N N 1.763 -0.747 8.135\n"
     "C2 C 0 Y N N 0.644 -1.352 7.783\nN3 N 0 Y N N 0.088 -1.178 6.602\n"
     "C4 C 0 Y N N 0.644 -0.371 5.704\n",
     "PG O1G DOUB N N\nPG O2G SING N N\nPG O3G SING N N\nPG O3B SING N N\nPB O1B DOUB N N\n"
     "PB O2B SING N N\nPB O3B SING N N\nPB O3A SING N N\nPA O1A DOUB N N\nPA O2A SING N N\n"
     "PA O3A SING N N\nPA \"O5'\" SING N N\n\"O5'\" \"C5'\" SING N N\n\"C5'\" \"C4'\" SING N N\n"
     "\"C4'\" \"O4'\" SING N N\n\"C4'\" \"C3'\" SING N N\n\"O4'\" \"C1'\" SING N N\n"
     "\"C3'\" \"O3'\" SING N N\n\"C3'\" \"C2'\" SING N N\n\"C2'\" \"O2'\" SING N N\n"
     "\"C2'\" \"C1'\" SING N N\n\"C1'\" N9 SING N N\nN9 C8 SING Y N\nN9 C4 SING Y N\n"
     "C8 N7 DOUB Y N\nN7 C5 SING Y N\nC5 C6 SING Y N\nC5 C4 DOUB Y N\nC6 N6 SING N N\n"
     "C6 N1 DOUB Y N\nN1 C2 SING Y N\nC2 N3 DOUB Y N\nN3 C4 SING Y N\n"},
    {"BTN", "NON-POLYMER", "?", "BIOTIN", "C10 H16 N2 O3 S", "244.311",
     "C11 C 0 N N N 5.089 -0.280 0.173\nO11 O 0 N N N 4.956 -1.473 0.030\n"
     "O12 O 0 N Y N 6.299 0.233 0.444\nC10 C 0 N N N 3.896 0.631 0.039\n"
     "C9 C 0 N N N 2.651 -0.200 -0.276\nC8 C 0 N N N 1.440 0.725 -0.412\n"
     "C7 C 0 N N N 0.196 -0.106 -0.727\nC2 C 0 N N S -1.015 0.819 -0.863\n"
     "S1 S 0 N N N -1.419 1.604 0.751\nC6 C 0 N N N -3.205 1.827 0.371\n"
     "C5 C 0 N N R -3.530 0.581 -0.476\nN1 N 0 N N N -3.970 -0.507 0.412\n"
     "C3 C 0 N N N -3.141 -1.549 0.271\nO3 O 0 N N N -3.271 -2.589 0.888\n"
     "N2 N 0 N N N -2.154 -1.343 -0.612\nC4 C 0 N N S -2.289 0.010 -1.175\n",
     "C11 O11 DOUB N N\nC11 O12 SING N N\nC11 C10 SING N N\nC10 C9 SING N N\nC9 C8 SING N N\n"
     "C8 C7 SING N N\nC7 C2 SING N N\nC2 S1 SING N N\nC2 C4 SING N N\nS1 C6 SING N N\n"
     "C6 C5 SING N N\nC5 N1 SING N N\nC5 C4 SING N N\nN1 C3 SING N N\nC3 O3 DOUB N N\n"
     "C3 N2 SING N N\nN2 C4 SING N N\n"},
    {"CIT", "NON-POLYMER", "?", "CITRIC ACID", "C6 H8 O7", "192.124",
     "C1 C 0 N N N 0.412 -0.006 2.479\nO1 O 0 N N N -0.446 0.836 2.368\n"
     "O2 O 0 N N N 0.812 -0.400 3.698\nC2 C 0 N N N 1.032 -0.616 1.249\n"
     "C3 C 0 N N N 0.402 0.002 0.000\nO7 O 0 N N N 0.631 1.412 0.000\n"
     "C4 C 0 N N N 1.032 -0.616 -1.249\nC5 C 0 N N N 0.412 -0.006 -2.479\n"
     "O3 O 0 N N N -0.446 0.836 -2.368\nO4 O 0 N N N 0.812 -0.400 -3.698\n"
     "C6 C 0 N N N -1.080 -0.265 0.000\nO5 O 0 N N N -1.860 0.656 0.000\n"
     "O6 O 0 N N N -1.533 -1.529 0.000\n",
     "C1 O1 DOUB N N\nC1 O2 SING N N\nC1 C2 SING N N\nC2 C3 SING N N\nC3 O7 SING N N\n"
     "C3 C4 SING N N\nC3 C6 SING N N\nC4 C5 SING N N\nC5 O3 DOUB N N\nC5 O4 SING N N\n"
     "C6 O5 DOUB N N\nC6 O6 SING N N\n"},
    {"MG", "NON-POLYMER", "?", "MAGNESIUM ION", "Mg", "24.305",
     "MG MG 2 N N N 0.000 0.000 0.000\n",
     NULL},
    {"NAG", "D-saccharide, beta linking", "?", "2-acetamido-2-deoxy-beta-D-glucopyranose",
     "C8 H15 N O6", "221.208",
     "C1 C 0 N N R 0.185 1.082 -0.421\nC2 C 0 N N R 0.790 -0.220 0.112\n"
     "C3 C 0 N N R -0.124 -1.390 -0.265\nC4 C 0 N N S -1.526 -1.129 0.294\n"
     "C5 C 0 N N R -2.042 0.207 -0.246\nC6 C 0 N N N -3.417 0.504 0.355\n"
     "C7 C 0 N N N 3.197 0.157 0.076\nC8 C 0 N N N 4.559 -0.052 -0.533\n"
     "N2 N 0 N N N 2.114 -0.422 -0.480\nO1 O 0 N Y N 1.003 2.185 -0.024\n"
     "O3 O 0 N N N 0.395 -2.600 0.291\nO4 O 0 N N N -2.405 -2.180 -0.114\n"
     "O5 O 0 N N N -1.130 1.248 0.113\nO6 O 0 N N N -3.949 1.691 -0.236\n"
     "O7 O 0 N N N 3.074 0.845 1.067\n",
     "C1 C2 SING N N\nC1 O1 SING N N\nC1 O5 SING N N\nC2 C3 SING N N\nC2 N2 SING N N\n"
     "C3 C4 SING N N\nC3 O3 SING N N\nC4 C5 SING N N\nC4 O4 SING N N\nC5 C6 SING N N\n"
     "C5 O5 SING N N\nC6 O6 SING N N\nC7 C8 SING N N\nC7 N2 SING N N\nC7 O7 DOUB N N\n"},
    {"SO4", "NON-POLYMER", "?", "SULFATE ION", "O4 S", "96.063",
     "S S 0 N N N 0.000 0.000 0.000\nO1 O 0 N N N 0.000 -1.201 -0.850\n"
     "O2 O 0 N N N 0.000 1.201 -0.850\nO3 O -1 N N N -1.201 0.000 0.850\n"
     "O4 O -1 N N N 1.201 0.000 0.850\n",
     "S O1 DOUB N N\nS O2 DOUB N N\nS O3 SING N N\nS O4 SING N N\n"},
    {"ZN", "NON-POLYMER", "?", "ZINC ION", "Zn", "65.409",
     "ZN ZN 2 N N N 0.000 0.000 0.000\n",
     NULL},
};
/* clang-format on */

static const char atom_columns[] =
    "loop_\n_chem_comp_atom.atom_id\n_chem_comp_atom.type_symbol\n_chem_comp_atom.charge\n"
    "_chem_comp_atom.pdbx_aromatic_flag\n_chem_comp_atom.pdbx_leaving_atom_flag\n"
    "_chem_comp_atom.pdbx_stereo_config\n_chem_comp_atom.pdbx_model_Cartn_x_ideal\n"
    "_chem_comp_atom.pdbx_model_Cartn_y_ideal\n_chem_comp_atom.pdbx_model_Cartn_z_ideal\n";

static const char bond_columns[] =
    "loop_\n_chem_comp_bond.atom_id_1\n_chem_comp_bond.atom_id_2\n"
    "_chem_comp_bond.value_order\n_chem_comp_bond.pdbx_aromatic_flag\n"
    "_chem_comp_bond.pdbx_stereo_config\n";

fm_status fm_synth_components_text(fm_arena *arena, fm_bytes *ret_content, fm_error *reterr) {
    enum { MOST_BYTES = 1 << 16 };
    fm_synth_text text;
    fm_status status = fm_synth_text_begin(&text, arena, MOST_BYTES, reterr);
    if (status) return status;
    for (size_t i = 0; i < sizeof components / sizeof components[0]; i++) {
        const written_component *c = &components[i];
        fm_synth_text_format(&text,
                             "data_%s\n#\n_chem_comp.id %s\n_chem_comp.name \"%s\"\n"
                             "_chem_comp.type \"%s\"\n_chem_comp.one_letter_code %s\n"
                             "_chem_comp.formula '%s'\n_chem_comp.formula_weight %s\n#\n",
                             c->id, c->id, c->name, c->type, c->letter, c->formula, c->weight);
        fm_synth_text_string(&text, atom_columns);
        fm_synth_text_string(&text, c->atoms);
        if (c->bonds) {
            fm_synth_text_format(&text, "#\n%s", bond_columns);
            fm_synth_text_string(&text, c->bonds);
        }
        fm_synth_text_string(&text, "#\n");
    }
    *ret_content = fm_synth_text_end(&text);
    return FM_OK;
}
