#!/bin/bash
# `foldmill score` as a user runs it: perfect, exchanged and moved chains of real entries, what is
# left out, and refusals.
. "$(dirname "$0")/expect.sh"

entries=${FM_REFERENCE_DATA:-}/dev/mmcif
components=${FM_REFERENCE_DATA:-}/complex/components/components.cif

# Scores a structure against an entry; the JSON is in `out`.
score() { # PREDICTED ENTRY
    foldmill score "$1" "$entries/$2.cif" --components "$components" --json >out 2>err
}

# Checks the JSON in `out` with a condition in Python: s is the object, i the interfaces by their
# chains, c the chains by name.
holds() { # CONDITION
    /usr/bin/python3 - "$1" <<'END'
import json, sys
s = json.load(open("out"))
c = {x["chain"]: x for x in s["chains"]}
i = {x["a"] + x["b"]: x for x in s["interfaces"]}
def near(found, expected, tolerance=0.0006):
    return abs(found - expected) <= tolerance
assert eval(sys.argv[1]), (sys.argv[1], s)
END
}

set_up() {
    if [ -z "${FM_REFERENCE_DATA:-}" ] || [ ! -d "$entries" ]; then skip "FM_REFERENCE_DATA is not set"; fi
}

# Prints an entry with changed atoms. CODE is of awk: x, y, z and chain may be set, and out = 1
# leaves the atom out.
change() { # ENTRY CODE
    awk '/^_atom_site\./ { sub(/^_atom_site\./, ""); at[$1] = ++n; print "_atom_site." $1; next }
        /^(ATOM|HETATM)/ && n {
            x = $at["Cartn_x"]; y = $at["Cartn_y"]; z = $at["Cartn_z"]
            chain = $at["label_asym_id"]; number = $at["label_seq_id"]; name = $at["label_atom_id"]; out = 0
            '"$2"'
            if (out) next
            $at["Cartn_x"] = sprintf("%.3f", x); $at["Cartn_y"] = sprintf("%.3f", y)
            $at["Cartn_z"] = sprintf("%.3f", z); $at["label_asym_id"] = chain; print; next
        }
        { print }' "$entries/$1.cif"
}

# The numbers of DockQ 2.1.3 for the same files: one heavy chain of an antibody turns about z, and
# the light chains move.
dockq_is_that_of_the_program() {
    change 1igt 'if (chain == "D") { u = x; x = 0.995 * x - 0.0998749 * y; y = 0.0998749 * u + 0.995 * y }
        if (chain == "A") { x += 1.5; z -= 0.5 } if (chain == "C") { y += 2 }' >moved.cif
    score moved.cif 1igt
    holds 'near(i["AB"]["dockq"], 0.8951) and near(i["AB"]["fnat"], 0.9318) and i["AB"]["contacts"] == 132'
    holds 'near(i["AB"]["irmsd"], 0.781) and near(i["AB"]["lrmsd"], 1.581)'
    holds 'near(i["BD"]["dockq"], 0.4371) and near(i["BD"]["fnat"], 0.1868) and near(i["BD"]["lrmsd"], 4.893)'
    holds 'near(i["CD"]["dockq"], 0.5089) and near(i["CD"]["irmsd"], 2.547) and i["CD"]["contacts"] == 129'
    holds 'near(s["means"]["dockq"], (0.8951 + 0.4371 + 0.5089) / 3)'
    holds 'all(c[k]["lddt"] == 1 for k in "ABCD") and s["lddt"] < 1 and "dockq" not in i["BE"]'
}

# The copies of both chains, and two atoms of a symmetric side chain, have each other's names.
exchanged_names_are_perfect() {
    # shellcheck disable=SC2016 # the code is of awk
    change 1igt 'if (chain == "A") chain = "C"; else if (chain == "C") chain = "A"
        else if (chain == "B") chain = "D"; else if (chain == "D") chain = "B"
        if (name == "OD1" || name == "OD2") if ($at["label_comp_id"] == "ASP")
            $at["label_atom_id"] = name == "OD1" ? "OD2" : "OD1"' >named.cif
    score named.cif 1igt
    holds 's["lddt"] == 1 and c["A"]["true_chain"] == "C" and c["D"]["true_chain"] == "B"'
    holds 'all(x["lddt"] == 1 and x.get("dockq", 1) == 1 for x in s["interfaces"])'
    holds 'all(c[k]["pocket_rmsd"] == 0 for k in "EFGH")'
    holds 's["left_out"] == {"atoms_without_truth": 0, "atoms_not_predicted": 0, "predicted_chains": [], "true_chains": []}'
}

# lDDT of DNA, which counts distances below 30 Å, against a plain computation over all pairs. The
# symmetric atoms of phosphates keep their places, so that no labels are exchanged.
lddt_is_that_of_all_pairs() {
    change 1bna 'if (name !~ /^OP[12]$/) x += sin(x * 7) + 0.8 * sin(y * 5)' >noisy.cif
    score noisy.cif 1bna
    cat >pairs.py <<'END'
import math, sys
def atoms(path):
    at, rows = [], []
    for line in open(path):
        if line.startswith("_atom_site."):
            at.append(line.split(".")[1].strip())
        elif line.startswith(("ATOM", "HETATM")):
            f = dict(zip(at, line.split()))
            if f["label_comp_id"] != "HOH" and f["type_symbol"] != "H":
                rows.append((f["label_asym_id"], f["label_seq_id"], [float(f["Cartn_" + a]) for a in "xyz"]))
    return rows
made, true = atoms(sys.argv[1]), atoms(sys.argv[2])
kept, pairs = {}, {}
for n in range(len(true)):
    for k in range(n):
        if true[n][:2] == true[k][:2]:
            continue
        d = math.dist(true[n][2], true[k][2])
        if d < 30:
            key = "".join(sorted({true[n][0], true[k][0]}))
            change = abs(math.dist(made[n][2], made[k][2]) - d)
            kept[key] = kept.get(key, 0) + sum(change < t for t in (0.5, 1, 2, 4)) / 4
            pairs[key] = pairs.get(key, 0) + 1
print(*(f"{kept[key] / pairs[key]:.4f}" for key in ("A", "B", "AB")))
END
    read -r a b ab < <(/usr/bin/python3 pairs.py noisy.cif "$entries/1bna.cif")
    holds "near(c['A']['lddt'], $a, 1e-4) and near(c['B']['lddt'], $b, 1e-4) and 0.4 < $a < 0.95"
    holds "near(i['AB']['lddt'], $ab, 1e-4) and c['A']['kind'] == 'DNA'"
}

# A chain far away, one whose CA atoms are far apart, and ligands with numbers, as Protenix writes
# them: a file of training would lose them or be refused.
a_prediction_keeps_its_chains() {
    # shellcheck disable=SC2016 # the code is of awk
    change 1igt 'if (chain == "C") x += 500; if (chain == "D" && number > 200) y += 60
        if (number == ".") $at["label_seq_id"] = 1' >apart.cif
    score apart.cif 1igt
    holds 'c["C"]["lddt"] == 1 and i["CD"]["dockq"] < 0.1 and 0.5 < c["D"]["lddt"] < 1'
    holds 's["left_out"]["predicted_chains"] == [] and c["E"]["pocket_rmsd"] == 0'
}

what_is_left_out_is_counted() {
    change 1igt 'if (chain == "A" && number == "10") out = 1; if (chain == "E") out = 1' >part.cif
    score part.cif 1igt
    # The residue of the other copy does not count either, as copies are compared alike.
    holds 's["left_out"]["true_chains"] == ["E"] or s["left_out"]["true_chains"] == ["N"]'
    holds 's["left_out"]["atoms_not_predicted"] == 2 * (1647 - c["A"]["scored"]) > 0'
    foldmill score part.cif "$entries/1igt.cif" --components "$components" >out
    says 'left out: .* true atoms that the prediction lacks' out
    says 'left out: 1 true chain without counterpart: . (NAG)' out
}

# A file as truth whose ligands have numbers, as Protenix writes them.
numbered_ligands_are_ligands_of_the_truth() {
    # shellcheck disable=SC2016 # the code is of awk
    change 1hho 'if (number == ".") $at["label_seq_id"] = 1' >numbered.cif
    foldmill score "$entries/1hho.cif" numbered.cif --components "$components" --json >out
    holds 's["lddt"] == 1 and c["D"]["pocket_rmsd"] == 0 and c["D"]["true_chain"] == "D"'
    holds 's["left_out"]["true_chains"] == [] == s["left_out"]["predicted_chains"]'
}

# Light chains without their first five residues, and with alanine in place of the tenth.
other_residues_are_aligned() {
    cat >other.py <<'END'
import sys
at, table, kept = [], None, []
for line in open(sys.argv[1]):
    if line.startswith(("loop_", "#")):
        table, at = None, []
    elif line.startswith("_"):
        table = line.split(".")[0]
        at.append(line.split(".")[1].split()[0])
    if table == "_struct_conn":
        if kept[-1].startswith("loop_"):
            kept.pop()
        continue
    f = line.split()
    row = dict(zip(at, f)) if table in ("_atom_site", "_entity_poly_seq") and line[0] != "_" else {}
    entity = row.get("label_entity_id", row.get("entity_id"))
    if len(f) == len(at) and entity == "1":
        key, comp = ("num", "mon_id") if table == "_entity_poly_seq" else ("label_seq_id", "label_comp_id")
        n = int(row[key])
        if n <= 5:
            continue
        if n == 10:
            if row.get("label_atom_id", "CA") not in ("N", "CA", "C", "O", "CB"):
                continue
            f[at.index(comp)] = "ALA"
        f[at.index(key)] = str(n - 5)
        line = " ".join(f) + "\n"
    kept.append(line)
sys.stdout.writelines(kept)
END
    /usr/bin/python3 other.py "$entries/1igt.cif" >other.cif
    score other.cif 1igt
    holds 'c["A"]["residues"] == c["A"]["true_residues"] - 5 == c["A"]["same_residues"] + 1'
    holds 's["lddt"] == 1 and c["A"]["lddt"] == 1 and i["AB"]["dockq"] == 1 and "residues" not in c["B"]'
    holds 's["left_out"]["atoms_without_truth"] == 10 and s["left_out"]["atoms_not_predicted"] > 60'
    foldmill score other.cif "$entries/1igt.cif" --components "$components" >out
    says 'aligned: 208 residues of chain A, which has 209, with those of true chain A, which has 214' out
}

what_does_not_correspond_is_refused() {
    expect 1 'foldmill score: '"$entries/1hho.cif: chain A has no true chain with the same residues" \
        foldmill score "$entries/1hho.cif" "$entries/1igt.cif" --components "$components"
    expect 2 'foldmill score: --components FILE is needed' foldmill score a.cif b.cif
    expect 2 'only one of the structures can be standard input' \
        foldmill score - - --components "$components"
    expect 1 'foldmill score: none.cif: cannot open' \
        foldmill score none.cif "$entries/1igt.cif" --components "$components"
    printf 'data_x\n_cell.length_a 1\n' >empty.cif
    expect 1 'foldmill score: empty.cif:' \
        foldmill score "$entries/1igt.cif" empty.cif --components "$components"
}

run_tests dockq_is_that_of_the_program exchanged_names_are_perfect lddt_is_that_of_all_pairs \
    a_prediction_keeps_its_chains what_is_left_out_is_counted \
    numbered_ligands_are_ligands_of_the_truth other_residues_are_aligned what_does_not_correspond_is_refused
