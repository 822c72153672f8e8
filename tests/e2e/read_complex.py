"""read_complex.py FOLDER: what gemmi and Biopython read in the mmCIF file of a predicted complex, FOLDER/NAME_model.cif.

Compares it with the JSON files beside it: NAME_data.json says which entities, chains, components and bonds the job has, and
NAME_confidences.json the pLDDT of each atom. Exits with 77 if neither library is installed.
"""
import importlib.util
import json
import pathlib
import sys
import warnings

folder = pathlib.Path(sys.argv[1])
cif = str(folder / f"{folder.name}_model.cif")
job = json.loads((folder / f"{folder.name}_data.json").read_text())
confidences = json.loads((folder / f"{folder.name}_confidences.json").read_text())
LETTERS = dict(zip("ARNDCQEGHILKMFPSTWYV",
                   "ALA ARG ASN ASP CYS GLN GLU GLY HIS ILE LEU LYS MET PHE PRO SER THR TRP TYR VAL".split()))


def same(what, found, expected):
    if found != expected:
        sys.exit(f"{what}: found {found}, expected {expected}")


def components_of(kind, entity):
    """The components of an entity of the job."""
    if kind == "ligand":
        return entity["ccdCodes"]
    if kind == "protein":
        found = [LETTERS.get(letter, "UNK") for letter in entity["sequence"]]
    else:
        found = [("D" if kind == "dna" else "") + letter for letter in entity["sequence"]]
    for one in entity["modifications"]:
        position = one.get("ptmPosition") or one.get("basePosition")
        found[position - 1] = one.get("ptmType") or one["modificationType"]
    return found


entities = [next(iter(one.items())) for one in job["sequences"]]
chains = {chain: components_of(kind, entity) for kind, entity in entities for chain in entity["id"]}
plddt = confidences["atom_plddts"]


def check_atoms(atoms):
    """Atoms: their chains, and pLDDT as B factors."""
    same("number of atoms", len(atoms), len(plddt))
    same("chains of atoms", [chain for chain, _ in atoms], confidences["atom_chain_ids"])
    worst = max(abs(value - b) for (_, b), value in zip(atoms, plddt))
    if not worst < 0.011:  # both are rounded to two digits
        sys.exit(f"B factors: found one {worst} off its pLDDT, expected them to be equal")


def read_with_gemmi():
    import gemmi

    structure = gemmi.read_structure(cif)
    model = structure[0]
    same("chains", {c.name: [r.name for r in c] for c in model}, chains)
    check_atoms([(c.name, a.b_iso) for c in model for r in c for a in r])
    kinds = {"Polymer": ("protein", "rna", "dna"), "Branched": ("ligand",), "NonPolymer": ("ligand",)}
    polymers = {"protein": "PeptideL", "rna": "Rna", "dna": "Dna"}
    same("number of entities", len(structure.entities), len(entities))
    for entity, (kind, described) in zip(structure.entities, entities):
        same("chains of an entity", entity.subchains, described["id"])
        if kind not in kinds[entity.entity_type.name]:
            sys.exit(f"entity {entity.name}: found {entity.entity_type}, expected a {kind}")
        if kind in polymers:
            same("type of a polymer", entity.polymer_type.name, polymers[kind])
            same("sequence", entity.full_sequence, components_of(kind, described))
        else:
            is_chain = all(code in ("NAG", "BMA", "MAN") for code in described["ccdCodes"])
            is_branched = is_chain and len(described["ccdCodes"]) > 1
            same("a branched entity", entity.entity_type.name == "Branched", is_branched)
    bonds = {frozenset((f"{p.chain_name}/{p.res_id.seqid.num}/{p.atom_name}" for p in (c.partner1, c.partner2)))
             for c in structure.connections}
    described = {frozenset(f"{chain}/{residue}/{atom}" for chain, residue, atom in pair)
                 for pair in job.get("bondedAtomPairs", [])}
    same("bonds between residues", bonds, described)
    check_components(gemmi, model)


def check_components(gemmi, model):
    """The bonds inside components: both atoms are there, and they are as far apart as the file says."""
    block = gemmi.cif.read(cif).sole_block()
    rows = block.find("_chem_comp_bond.", ["comp_id", "atom_id_1", "atom_id_2", "value_order"])
    bonds = {}
    for row in rows:
        bonds.setdefault(row.str(0), set()).update((row.str(1), row.str(2)))
        if row.str(3) not in ("sing", "doub", "trip", "quad", "arom"):
            sys.exit(f"order of a bond of {row.str(0)}: found {row.str(3)}")
    for codes in (entity["ccdCodes"] for kind, entity in entities if kind == "ligand"):
        for code in codes:
            names = {a.name for c in model for r in c if r.name == code for a in r}
            if len(names) > 1 and not names <= bonds.get(code, set()):
                sys.exit(f"{code}: found no bonds of {sorted(names - bonds.get(code, set()))}")


def read_with_biopython():
    from Bio.PDB.MMCIFParser import MMCIFParser

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = MMCIFParser().get_structure("x", cif)[0]
    same("chains", {c.id: [r.get_resname() for r in c] for c in model}, chains)
    check_atoms([(c.id, a.get_bfactor()) for c in model for r in c for a in r])
    for kind, entity in entities:
        for chain in entity["id"]:
            flags = {residue.id[0] for residue in model[chain]}
            same("flags of residues", all(flag == " " for flag in flags), kind != "ligand")


readers = {"gemmi": read_with_gemmi, "Bio": read_with_biopython}
there = [name for name in readers if importlib.util.find_spec(name)]
for name in there:
    readers[name]()
    print(f"{name}: {len(plddt)} atoms, {len(chains)} chains, {len(entities)} entities")
if not there:
    print("neither gemmi nor Biopython is installed")
    sys.exit(77)
