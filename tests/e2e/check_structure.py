#!/usr/bin/python3
"""check_structure.py CIF [OTHER]...: the coordinates of a predicted structure, read without foldmill.

Each OTHER, an mmCIF or a PDB file, must have the same atoms with the same coordinates (0.0005 Å). The geometry
inside residues must be that of proteins: lengths of bonds, and the hand of CA (L amino acids).
"""
import math
import sys


def read_cif(path):
    atoms, names = [], []
    for line in open(path):
        if line.startswith("_atom_site."):
            names.append(line.split(".")[1].strip())
        elif names and line.startswith(("#", "_", "loop_", "\n")):
            break
        elif names:
            row = dict(zip(names, line.split()))
            number = row["label_seq_id"] if row["label_seq_id"].isdigit() else row["auth_seq_id"]
            atoms.append((int(number), row["label_comp_id"], row["label_atom_id"].strip('"'),
                          *(float(row["Cartn_" + k]) for k in "xyz"), float(row["B_iso_or_equiv"])))
    return atoms


def read_pdb(path):
    return [(int(l[22:26]), l[17:20], l[12:16].strip(), float(l[30:38]), float(l[38:46]), float(l[46:54]),
             float(l[60:66])) for l in open(path) if l.startswith("ATOM")]


def sub(a, b):
    return [x - y for x, y in zip(a, b)]


def dot(a, b):
    return sum(x * y for x, y in zip(a, b))


def cross(a, b):
    return [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]


def check_geometry(atoms):
    residues = {}
    for number, _, name, x, y, z, _ in atoms:
        residues.setdefault(number, {})[name] = (x, y, z)
    for number, at in residues.items():
        for a, b, length in (("N", "CA", 1.459), ("CA", "C", 1.525), ("CA", "CB", 1.53), ("C", "O", 1.229)):
            if a not in at or b not in at:
                continue
            found = math.dist(at[a], at[b])
            assert abs(found - length) < 0.03, f"residue {number}: {a}-{b} is {found:.3f} Å"
        if "CB" in at:
            hand = dot(cross(sub(at["N"], at["CA"]), sub(at["C"], at["CA"])), sub(at["CB"], at["CA"]))
            assert hand > 0, f"residue {number} is a D amino acid: {hand:.3f}"
    return len(residues)


first = read_cif(sys.argv[1])
assert first, "no atoms"
n = check_geometry(first)
for path in sys.argv[2:]:
    other = read_pdb(path) if path.endswith(".pdb") else read_cif(path)
    assert len(other) == len(first), f"{path}: {len(other)} atoms, not {len(first)}"
    for a, b in zip(first, other):
        assert a[:3] == b[:3] and all(abs(x - y) < 5.1e-4 for x, y in zip(a[3:6], b[3:6])) and \
            abs(a[6] - b[6]) < 5.1e-3, f"{path}: {b}, expected {a}"
print(n, "residues,", len(first), "atoms")
