#!/usr/bin/env python3
"""Runs OpenFold's own training script on samples of foldmill, for a step or more on the CPU.

    openfold_step.py FOLDMILL OPENFOLD_DIR [STEPS]

FOLDMILL is the program, OPENFOLD_DIR a checkout of github.com/aqlaboratory/openfold. The example
makes a synthetic cache, serves it, changes the one line of train_openfold.py that imports the data
module, and trains a small model. Nothing else of OpenFold is changed. Needs PyTorch,
pytorch_lightning, ml_collections, SciPy and the package foldmill; where one is missing, the example
says which and exits with 77.
"""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import runpy
import subprocess
import sys
import tempfile
import time

OLD = "from openfold.data.data_modules import OpenFoldDataModule, OpenFoldMultimerDataModule\n"
NEW = "from foldmill.openfold import OpenFoldDataModule, OpenFoldMultimerDataModule\n"
NEEDS = ("torch", "pytorch_lightning", "ml_collections", "scipy", "numpy", "foldmill")

# Fewer residues and cycles than OpenFold's, and a model that one core can train. OpenFold's default
# attention over extra rows is a CUDA kernel; use_lma selects the one of plain PyTorch.
SMALL = {
    "data.train.crop_size": 32, "data.common.max_recycling_iters": 1,
    "model.template.template_pair_stack.no_blocks": 1,
    "model.extra_msa.extra_msa_stack.no_blocks": 1,
    "model.evoformer_stack.no_blocks": 1, "model.structure_module.no_blocks": 2,
    "globals.c_m": 32, "globals.c_z": 16, "globals.c_s": 32, "globals.use_lma": True,
}


def run_training(openfold: str, folder: str, url: str, steps: int) -> None:
    """Runs the changed train_openfold.py in this process."""
    script = pathlib.Path(openfold, "train_openfold.py").read_text(encoding="utf-8")
    if script.count(OLD) != 1:
        sys.exit(f"openfold_step: {openfold}/train_openfold.py does not have the line\n{OLD}")
    changed = pathlib.Path(folder, "train_openfold.py")
    changed.write_text(script.replace(OLD, NEW), encoding="utf-8")
    pathlib.Path(folder, "small.json").write_text(json.dumps(SMALL), encoding="utf-8")
    sys.path.insert(0, openfold)
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    # With --gpus 1 the script passes the strategy None, which Lightning refuses since version 2.
    sys.argv = [str(changed), url, "tiny", "-", f"{folder}/out", "any", "--seed", "7", "--gpus",
                "2", "--train_epoch_len", str(steps), "--precision", "32",
                "--checkpoint_every_epoch", "--experiment_config_json", f"{folder}/small.json"]
    runpy.run_path(str(changed), run_name="__main__")


def report(folder: str) -> None:
    """Prints what Lightning's checkpoint says of the run."""
    import torch

    file = next(pathlib.Path(folder, "out").rglob("*.ckpt"))
    checkpoint = torch.load(file, map_location="cpu", weights_only=False)
    place = checkpoint["OpenFoldDataModule"]["watermark"]
    moved = sum(bool(state["exp_avg"].any())
                for state in checkpoint["optimizer_states"][0]["state"].values())
    print(f"openfold_step: {checkpoint['global_step']} steps, the stream is at sample {place}, "
          f"{moved} parameters have gradients")


def main() -> int:
    missing = [name for name in NEEDS if importlib.util.find_spec(name) is None]
    if missing:
        print(f"skipped: {', '.join(missing)} not installed")
        return 77
    foldmill, openfold = (os.path.abspath(path) for path in sys.argv[1:3])
    steps = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    import stand_ins

    with tempfile.TemporaryDirectory() as folder:
        for command in (["synth", "--out", f"{folder}/data", "--chains", "6", "--depth", "300"],
                        ["build", f"{folder}/data", "--cache", f"{folder}/cache"]):
            subprocess.run([foldmill, *command, "-q"], check=True, stdout=subprocess.DEVNULL)
        url = f"unix:{folder}/socket"
        server = subprocess.Popen([foldmill, "serve", "--cache", f"{folder}/cache", "--listen",
                                   url, "-q"])
        try:
            while not os.path.exists(f"{folder}/socket"):
                if server.poll() is not None:
                    sys.exit("openfold_step: the server ended")
                time.sleep(0.05)
            absent = stand_ins.install_for_script()
            if absent:
                print(f"openfold_step: not installed, and not used here: {', '.join(absent)}")
            stand_ins.accept_verbose()
            sys.path.insert(0, openfold)
            if not pathlib.Path(openfold, "openfold/resources/stereo_chemical_props.txt").exists():
                stand_ins.leave_out_violations()
            run_training(openfold, folder, url, steps)
        finally:
            server.terminate()
            server.wait()
        report(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
