"""Chemical components from SMILES, for ligands of jobs (docs/reference/jobs.md).

    python3 -m foldmill.component --id LIG1 'CC(=O)Oc1ccccc1C(=O)O' >lig1.cif

makes a component in mmCIF that AlphaFold 3's JSON takes as userCCDPath. RDKit must be installed. It
places the atoms (ETKDGv3), from a seed that is a hash of the SMILES; so one version of RDKit gives
the same bytes for the same SMILES. Atoms have the names of their element and their number: C1, C2.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
from typing import Any

_NAME_LETTERS = 4  # of an atom, as jobs take them
_MOST_ATOMS = 1000
_ATOM_COLUMNS = ("comp_id", "atom_id", "type_symbol", "charge", "pdbx_aromatic_flag",
                 "pdbx_leaving_atom_flag", "pdbx_stereo_config", "pdbx_model_Cartn_x_ideal",
                 "pdbx_model_Cartn_y_ideal", "pdbx_model_Cartn_z_ideal")
_BOND_COLUMNS = ("comp_id", "atom_id_1", "atom_id_2", "value_order", "pdbx_aromatic_flag",
                 "pdbx_stereo_config")


def _molecule(smiles: str) -> Any:
    """One molecule with hydrogens and coordinates."""
    try:
        from rdkit import Chem
        from rdkit.Chem import AllChem
    except ImportError as error:
        raise ImportError("found no RDKit, expected it to be installed: pip install rdkit"
                          ) from error
    if re.search(r"\s", smiles):
        raise ValueError("found a blank, expected SMILES alone")
    molecule = Chem.MolFromSmiles(smiles)
    if molecule is None:
        raise ValueError(f"found {smiles!r}, expected SMILES of a molecule")
    if molecule.GetNumAtoms() == 0 or len(Chem.GetMolFrags(molecule)) != 1:
        raise ValueError(f"found {len(Chem.GetMolFrags(molecule))} molecules, expected one")
    if any(atom.GetAtomicNum() == 0 for atom in molecule.GetAtoms()):
        raise ValueError("found an atom of any element (*), expected elements")
    molecule = Chem.AddHs(molecule)
    if molecule.GetNumAtoms() > _MOST_ATOMS:
        raise ValueError(f"found {molecule.GetNumAtoms()} atoms, expected at most {_MOST_ATOMS}")
    parameters = AllChem.ETKDGv3()
    parameters.randomSeed = int(hashlib.sha256(smiles.encode()).hexdigest()[:8], 16) >> 1
    if AllChem.EmbedMolecule(molecule, parameters) != 0:
        parameters.useRandomCoords = True
        if AllChem.EmbedMolecule(molecule, parameters) != 0:
            raise ValueError("found no coordinates for the molecule, expected some; write it as "
                             "SDF in three dimensions with another program")
    Chem.AssignStereochemistry(molecule, cleanIt=True, force=True)
    return molecule


def _names(molecule: Any) -> list[str]:
    count: dict[str, int] = {}
    names = []
    for atom in molecule.GetAtoms():
        element = atom.GetSymbol().upper()
        count[element] = count.get(element, 0) + 1
        names.append(f"{element}{count[element]}")
        if len(names[-1]) > _NAME_LETTERS:
            raise ValueError(f"found {count[element]} atoms of {element}, expected names of at "
                             f"most {_NAME_LETTERS} letters")
    return names


def _atom_rows(molecule: Any, names: list[str], identifier: str) -> list[tuple[str, ...]]:
    positions = molecule.GetConformer().GetPositions()
    return [(identifier, name, atom.GetSymbol().upper(), str(atom.GetFormalCharge()),
             "Y" if atom.GetIsAromatic() else "N", "N",
             atom.GetProp("_CIPCode") if atom.HasProp("_CIPCode") else "N",
             *(f"{value:.3f}" for value in positions[atom.GetIdx()]))
            for atom, name in zip(molecule.GetAtoms(), names)]


def _bond_rows(molecule: Any, names: list[str], identifier: str) -> list[tuple[str, ...]]:
    from rdkit import Chem

    aromatic = [bond.GetIsAromatic() for bond in molecule.GetBonds()]
    kekule = Chem.Mol(molecule)
    Chem.Kekulize(kekule, clearAromaticFlags=True)
    orders = {Chem.BondType.SINGLE: "SING", Chem.BondType.DOUBLE: "DOUB",
              Chem.BondType.TRIPLE: "TRIP", Chem.BondType.QUADRUPLE: "QUAD"}
    stereo = {Chem.BondStereo.STEREOE: "E", Chem.BondStereo.STEREOZ: "Z"}
    rows: list[tuple[str, ...]] = []
    for bond, is_aromatic in zip(kekule.GetBonds(), aromatic):
        if bond.GetBondType() not in orders:
            raise ValueError(f"found a bond of the order {bond.GetBondType()}, expected single to "
                             "quadruple")
        rows.append((identifier, names[bond.GetBeginAtomIdx()], names[bond.GetEndAtomIdx()],
                     orders[bond.GetBondType()], "Y" if is_aromatic else "N",
                     stereo.get(bond.GetStereo(), "N")))
    return rows


def _loop(category: str, columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    head = "".join(f"_{category}.{column}\n" for column in columns)
    return f"loop_\n{head}" + "".join(" ".join(row) + "\n" for row in rows) + "#\n"


def component_from_smiles(smiles: str, identifier: str = "LIG1") -> str:
    """Returns a component as mmCIF text. Raises ImportError without RDKit, and ValueError for
    SMILES or an identifier that no job takes."""
    if not re.fullmatch(r"[A-Za-z0-9-]{1,5}", identifier):
        raise ValueError(f"found the id {identifier!r}, expected 1 to 5 letters, digits and '-'")
    molecule = _molecule(smiles)
    from rdkit.Chem import Descriptors, rdMolDescriptors

    names = _names(molecule)
    formula = rdMolDescriptors.CalcMolFormula(molecule, separateIsotopes=False)
    formula = re.sub(r"[+-]\d*$", "", formula)
    head = [f"data_{identifier}", f"_chem_comp.id {identifier}",
            f"_chem_comp.name\n;{smiles}\n;", "_chem_comp.type NON-POLYMER",
            f"_chem_comp.formula '{' '.join(re.findall(r'[A-Z][a-z]?[0-9]*', formula))}'",
            "_chem_comp.mon_nstd_parent_comp_id ?", "_chem_comp.pdbx_synonyms ?",
            f"_chem_comp.formula_weight {Descriptors.MolWt(molecule):.3f}", "#\n"]
    text = "\n".join(head) + _loop("chem_comp_atom", _ATOM_COLUMNS,
                                   _atom_rows(molecule, names, identifier))
    bonds = _bond_rows(molecule, names, identifier)
    return text + (_loop("chem_comp_bond", _BOND_COLUMNS, bonds) if bonds else "")


def main(arguments: list[str] | None = None) -> int:
    """The command: prints a component."""
    parser = argparse.ArgumentParser(
        prog="python3 -m foldmill.component",
        description="Makes a component in mmCIF of SMILES, for userCCDPath of a job.")
    parser.add_argument("--id", default="LIG1", help="of the component (LIG1)")
    parser.add_argument("smiles", help="of one molecule")
    given = parser.parse_args(arguments)
    try:
        sys.stdout.write(component_from_smiles(given.smiles, given.id))
    except (ImportError, ValueError) as error:
        print(f"foldmill.component: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
