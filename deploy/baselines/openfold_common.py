"""What the scripts that run OpenFold's model share: a made-up chain, and clocks of a GPU.

The chain is a random walk of CA atoms with ideal backbone atoms around them, with random rows and
templates. OpenFold's own feature pipeline makes the batch of it, so shapes and keys are its own.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import torch

sys.path.append(str(Path(__file__).resolve().parents[2] / "server/python/examples"))
import stand_ins  # noqa: E402

Array = Any  # numpy.ndarray; NumPy may be missing where types are checked


def import_openfold(checkout: str, device: str) -> list[str]:
    """Makes OpenFold importable. Its attention kernel must be built where a GPU is used."""
    sys.path.insert(0, checkout)
    absent = stand_ins.install()
    if device == "cuda" and "attn_core_inplace_cuda" in absent:
        sys.exit("OpenFold's kernel attn_core_inplace_cuda is not built: run `python setup.py "
                 "build_ext --inplace` in the checkout")
    if not Path(checkout, "openfold/resources/stereo_chemical_props.txt").exists():
        stand_ins.leave_out_violations()
        absent.append("violation loss (the checkout lacks its table)")
    return absent


def make_chain(n_res: int, n_row: int, n_template: int, seed: int = 1) -> dict[str, Array]:
    """Returns features as OpenFold's data pipeline makes them, of a made-up chain."""
    from openfold.np import residue_constants

    random = numpy.random.default_rng(seed)
    types = random.integers(0, 20, n_res)
    msa = random.integers(0, 21, (n_row, n_res))
    msa[0] = residue_types_to_hhblits(types)
    positions, mask = make_atoms(types, random)
    templates = random.integers(0, 20, (n_template, n_res))
    return {
        "aatype": numpy.eye(21, dtype=numpy.float32)[types],
        "between_segment_residues": numpy.zeros(n_res, numpy.int32),
        "domain_name": numpy.array([b"made up"], dtype=object),
        "residue_index": numpy.arange(n_res, dtype=numpy.int32),
        "seq_length": numpy.full(n_res, n_res, numpy.int32),
        "sequence": numpy.array(["".join(residue_constants.restypes[t] for t in types).encode()],
                                dtype=object),
        "msa": msa.astype(numpy.int32),
        "deletion_matrix_int": numpy.zeros((n_row, n_res), numpy.int32),
        "num_alignments": numpy.full(n_res, n_row, numpy.int32),
        "template_aatype": numpy.eye(22, dtype=numpy.float32)[templates],
        "template_all_atom_positions": numpy.repeat(positions[None], n_template, 0),
        "template_all_atom_mask": numpy.repeat(mask[None], n_template, 0),
        "template_sum_probs": numpy.ones((n_template, 1), numpy.float32),
        "all_atom_positions": positions, "all_atom_mask": mask,
        "resolution": numpy.array([2.0], numpy.float32),
        "is_distillation": numpy.array(0.0, numpy.float32),
    }


def residue_types_to_hhblits(types: Array) -> Array:
    """Maps residue types to the letters of alignments as OpenFold numbers them."""
    from openfold.np import residue_constants

    to_type = numpy.array(residue_constants.MAP_HHBLITS_AATYPE_TO_OUR_AATYPE)
    return numpy.array([int(numpy.flatnonzero(to_type == t)[0]) for t in types])


def make_atoms(types: Array, random: Any) -> tuple[Array, Array]:
    """Returns positions [N_res, 37, 3] in Å and a mask of the backbone atoms of a random walk."""
    from openfold.np import residue_constants
    from scipy.spatial.transform import Rotation

    turns = Rotation.random(len(types), random_state=7).as_matrix()
    steps = random.normal(size=(len(types), 3))
    centres = numpy.cumsum(3.8 * steps / numpy.linalg.norm(steps, axis=1, keepdims=True), axis=0)
    positions = numpy.zeros((len(types), 37, 3), numpy.float32)
    mask = numpy.zeros((len(types), 37), numpy.float32)
    for at, kind in enumerate(types):
        name = residue_constants.restype_1to3[residue_constants.restypes[kind]]
        for atom, group, place in residue_constants.rigid_group_atom_positions[name]:
            if group == 0:  # of the backbone's frame
                slot = residue_constants.atom_order[atom]
                positions[at, slot] = centres[at] + turns[at] @ numpy.array(place)
                mask[at, slot] = 1
    return positions, mask


def make_batch(config: Any, chain: dict[str, Array], mode: str, device: str) -> dict[str, Any]:
    """Runs OpenFold's feature pipeline; the batch has a leading axis of 1."""
    from openfold.data.feature_pipeline import FeaturePipeline

    made = FeaturePipeline(config.data).process_features(chain, mode=mode)
    return {name: value[None].to(device) for name, value in made.items()
            if isinstance(value, torch.Tensor)}


def shrink(config: Any) -> None:
    """Makes a model and a shape that a CPU can run, to try a script without a GPU."""
    model = config.model
    model.template.template_pair_stack.no_blocks = 1
    model.extra_msa.extra_msa_stack.no_blocks = 1
    model.evoformer_stack.no_blocks = 1
    model.structure_module.no_blocks = 2
    for part in (config.data.train, config.data.predict):
        part.max_msa_clusters, part.max_extra_msa = 16, 32
    config.globals.use_lma = True  # its default for extra rows is a CUDA kernel


def synchronise(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def time_rounds(step: Callable[[], Any], warm_up: int, rounds: int,
                device: str, scale: float) -> tuple[list[float], float]:
    """Returns median, least and most wall time of synchronised rounds, in seconds times `scale`,
    and the most memory in use in GiB."""
    for _ in range(warm_up):
        step()
    synchronise(device)
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(rounds):
        begin = time.monotonic()
        step()
        synchronise(device)
        times.append((time.monotonic() - begin) * scale)
    peak = torch.cuda.max_memory_allocated() / 2**30 if device == "cuda" else 0.0
    return [statistics.median(times), min(times), max(times)], peak


def gpu_name(device: str) -> str:
    return str(torch.cuda.get_device_name()) if device == "cuda" else ""


def versions(absent: list[str]) -> dict[str, Any]:
    """Returns what the settings of every result have."""
    return {"torch": torch.__version__, "CUDA": torch.version.cuda or "none",
            "never called and absent": ", ".join(absent) or "nothing"}
