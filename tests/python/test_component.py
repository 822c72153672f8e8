"""test_component.py FOLDMILL: components from SMILES are read as the user's components of a job.

What RDKit does is tested only where it is installed.
"""
import contextlib
import importlib.util
import io
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
import zipfile

FOLDMILL = pathlib.Path(sys.argv.pop(1)).resolve()
SOURCE = pathlib.Path(__file__).parents[2] / "server/python/foldmill/component.py"
specification = importlib.util.spec_from_file_location("component", SOURCE)
component = importlib.util.module_from_spec(specification)
specification.loader.exec_module(component)
HAS_RDKIT = importlib.util.find_spec("rdkit") is not None


def run(*arguments):
    """The exit code and what the command prints."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = component.main(list(arguments))
    return code, out.getvalue(), err.getvalue()


class WithoutRdkit(unittest.TestCase):
    def test_says_what_is_missing(self):
        with unittest.mock.patch.dict(sys.modules, {"rdkit": None}):
            code, out, err = run("CCO")
        self.assertEqual((code, out), (2, ""))
        self.assertIn("found no RDKit, expected it to be installed: pip install rdkit", err)

    def test_refuses_ids(self):
        for identifier in ("", "TOOLONG", "A_B", "A B"):
            code, out, err = run("--id", identifier, "CCO")
            self.assertEqual((code, out), (2, ""))
            self.assertIn("expected 1 to 5 letters, digits and '-'", err)


@unittest.skipUnless(HAS_RDKIT, "RDKit is not installed")
class WithRdkit(unittest.TestCase):
    def test_is_the_same_every_time(self):
        self.assertEqual(run("--id", "ASP1", "CC(=O)Oc1ccccc1C(=O)O"),
                         run("--id", "ASP1", "CC(=O)Oc1ccccc1C(=O)O"))

    def test_refuses_what_is_no_molecule(self):
        for smiles, words in (("xx", "expected SMILES of a molecule"),
                              ("CC.CC", "found 2 molecules, expected one"), ("", "0 molecules"),
                              ("*C", "found an atom of any element"), ("C C", "found a blank")):
            code, out, err = run(smiles)
            self.assertEqual((code, out), (2, ""))
            self.assertIn(words, err)

    def prepare(self, smiles):
        """The tables of a job with the molecule as its only ligand."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder)
            code, text, _ = run("--id", "LIG1", smiles)
            self.assertEqual(code, 0)
            (path / "lig1.cif").write_text(text)
            (path / "job.json").write_text(json.dumps({
                "name": "n", "modelSeeds": [1], "dialect": "alphafold3", "version": 3,
                "sequences": [{"ligand": {"id": "L", "ccdCodes": ["LIG1"]}}],
                "userCCDPath": "lig1.cif"}))
            subprocess.run([FOLDMILL, "parse", "job", "job.json", "--components", "lig1.cif", "-o",
                            "job.npz"], cwd=path, check=True, stdout=subprocess.DEVNULL)
            with zipfile.ZipFile(path / "job.npz") as archive:
                return {name: archive.read(name) for name in archive.namelist()}

    def test_is_read_as_a_component(self):
        tables = self.prepare("CC(=O)[N-]c1ccccc1Cl")
        atoms = [line.split("\t") for line in
                 tables["job/atoms.npy"].decode("latin-1").split("hetero\n")[1].splitlines()]
        self.assertEqual([row[7] for row in atoms],
                         ["C1", "C2", "O1", "N1", "C3", "C4", "C5", "C6", "C7", "C8", "CL1"])
        self.assertEqual([row[9] for row in atoms], ["0"] * 3 + ["-1"] + ["0"] * 7)
        orders = list(tables["names/component_bond_order.npy"][-11:])
        self.assertEqual(sorted(orders), [1] * 4 + [2] + [5] * 3 + [6] * 3)

    def test_has_lengths_of_bonds(self):
        rows = [line.split() for line in run("CCO")[1].splitlines()]
        place = {row[1]: [float(x) for x in row[7:]] for row in rows
                 if len(row) == 10 and row[0] == "LIG1"}
        self.assertTrue(1.4 < math.dist(place["C1"], place["C2"]) < 1.65)
        self.assertTrue(1.3 < math.dist(place["C2"], place["O1"]) < 1.55)


if not HAS_RDKIT:
    print("RDKit is not installed: what it makes is not tested")
unittest.main()
