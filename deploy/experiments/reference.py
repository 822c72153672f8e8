#!/usr/bin/env python3
"""Trains OpenFold, the reference implementation, on the samples of runs of foldmill.

    reference.py BIN RUN --openfold DIR --data URL --seeds "1 2 3" --steps N --saves N [--device D]
                 [--eager]

It is a part of the learning experiment (deploy/experiments/learning, option --openfold). For each
seed S, RUN-S.ini has the settings and RUN-S.untrained a checkpoint with the initial parameters.
OpenFold's model gets the same sizes, the same parameters and, from the server at URL, the same
samples; its own modules, losses and moving average, and PyTorch's Adam, do the rest. Models go to
RUN-S/checkpoint-STEP.safetensors in foldmill's form, and losses to RUN-S/metrics.jsonl.

    reference.py BIN RUN-S --openfold DIR --score CHECKPOINT --data URL --out FILE

scores a checkpoint on whole chains with OpenFold's forward pass and its own lDDT-CA: a CSV file.

OpenFold launches some 20,000 small kernels for a sample, which leave a GPU idle. On a GPU a step of
all seeds is therefore one CUDA graph, in which every sample is a branch. `--eager` runs them one by
one. Needs PyTorch, NumPy, SciPy, ml_collections and foldmill's Python package.
"""

from __future__ import annotations

import argparse
import configparser
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy
import torch

import foldmill

sys.path.append(str(Path(__file__).resolve().parents[2] / "server/python/examples"))
import stand_ins  # noqa: E402

# Our names of the terms of the loss, and OpenFold's.
TERMS = {"distogram": "distogram", "masked_msa": "masked_msa", "torsion": "supervised_chi",
         "plddt": "plddt_loss", "resolved": "experimentally_resolved"}
REPORTED = ("loss", "fape", *TERMS.values())
WARM_UP = 2  # passes before a CUDA graph is recorded


# -- the same settings


def read_settings(binary: str, run: str) -> configparser.ConfigParser:
    """Returns every setting of a run."""
    text = subprocess.run([f"{binary}/foldmill", "train", "--preset", "overfit", "--config",
                           f"{run}.ini", "--show-config"], check=True, capture_output=True,
                          text=True).stdout
    settings = configparser.ConfigParser(inline_comment_prefixes=(";",))
    settings.read_string(text)
    if settings["model"]["order"] != "original" or settings["model"]["n_template"] != "0":
        sys.exit("reference.py: only models of the original order without templates are mapped")
    if settings["model"]["n_extra_block"] != "0" or settings["data"]["max_cycle"] != "1":
        sys.exit("reference.py: only models without extra MSA and with one cycle are mapped")
    return settings


def openfold_config(settings: configparser.ConfigParser):
    """Returns OpenFold's configuration of a model with these settings."""
    from openfold.config import model_config

    config = model_config("initial_training", train=True)
    model, loss = settings["model"], settings["loss"]

    def put(section, **keys) -> None:
        for key, name in keys.items():
            section[key] = model.getfloat(name) if "dropout" in name else model.getint(name)

    of = config.model
    config.globals.blocks_per_ckpt = None
    of.template.enabled = False
    of.extra_msa.enabled = False
    put(of.input_embedder, c_z="c_z", c_m="c_m", relpos_k="relpos_k")
    put(of.recycling_embedder, c_z="c_z", c_m="c_m", no_bins="n_recycle_bin")
    put(of.evoformer_stack, c_m="c_m", c_z="c_z", c_s="c_s", c_hidden_msa_att="c_head_msa",
        c_hidden_opm="c_outer", c_hidden_mul="c_triangle", c_hidden_pair_att="c_head_pair",
        no_heads_msa="n_head_msa", no_heads_pair="n_head_pair", no_blocks="n_block",
        transition_n="transition_factor", msa_dropout="dropout_msa", pair_dropout="dropout_pair")
    of.evoformer_stack.blocks_per_ckpt = None
    put(of.structure_module, c_s="c_s", c_z="c_z", c_ipa="c_head_ipa", c_resnet="c_angle",
        no_heads_ipa="n_head_ipa", no_qk_points="n_qk_point", no_v_points="n_v_point",
        no_blocks="n_structure_iteration", no_resnet_blocks="n_angle_block",
        dropout_rate="dropout_structure", trans_scale_factor="position_scale")
    put(of.heads.lddt, c_in="c_s", c_hidden="c_plddt", no_bins="n_plddt_bin")
    put(of.heads.distogram, c_z="c_z", no_bins="n_distogram_bin")
    put(of.heads.masked_msa, c_m="c_m")
    put(of.heads.experimentally_resolved, c_s="c_s")
    for ours, theirs in TERMS.items():
        config.loss[theirs].weight = loss.getfloat(ours)
    config.loss.fape.weight = 1.0
    config.loss.fape.backbone.weight = loss.getfloat("backbone_fape")
    config.loss.fape.sidechain.weight = loss.getfloat("side_chain_fape")
    config.ema.decay = settings["optimizer"].getfloat("ema_decay")
    return config


def load_model(binary: str, checkpoint: str, config, scratch: str):
    """Returns OpenFold's model with the parameters of a foldmill checkpoint."""
    from openfold.model.model import AlphaFold

    file = f"{scratch}.weights.npz"
    subprocess.run([f"{binary}/foldmill", "export-weights", checkpoint, "--out", file,
                    "--replace", "--names", "openfold"], check=True, capture_output=True)
    model = AlphaFold(config)
    with numpy.load(file) as arrays:
        model.load_state_dict({name: torch.from_numpy(arrays[name]) for name in arrays.files})
    os.unlink(file)
    return model


# -- a step as one CUDA graph


class Frozen(torch.overrides.TorchFunctionMode):
    """Replays what a pass takes from the host, so that a CUDA graph can hold the pass.

    OpenFold's code makes small tensors of constants, and looks at values of tensors to choose its
    way. Neither depends on the sample here. One pass records these results in their order, and the
    pass that is captured takes them from the record.
    """

    HOST = {torch.Tensor.__bool__, torch.Tensor.item}
    MADE = {torch.tensor, torch.as_tensor, torch.Tensor.new_tensor}

    def __init__(self) -> None:
        super().__init__()
        self.record: list = []
        self.place: int | None = None  # in the record while it is replayed

    def _once(self, make):
        if self.place is None:
            self.record.append(make())
            return self.record[-1]
        self.place += 1
        return self.record[self.place - 1]

    def _on_device(self, index, device):
        if isinstance(index, list):
            return self._once(lambda: torch.tensor(index, device=device))
        if isinstance(index, torch.Tensor) and index.device != device:
            return self._once(lambda: index.to(device))
        return index

    def __torch_function__(self, function, types, arguments=(), keywords=None):
        keywords = keywords or {}

        def make():
            return function(*arguments, **keywords)

        if function in self.HOST:
            return self._once(make)
        if function in self.MADE or (function is torch.Tensor.to and not arguments[0].is_cuda):
            return self._once(make).clone()
        if function is torch.nan_to_num and isinstance(keywords.get("nan"), torch.Tensor):
            value, = arguments
            return torch.where(torch.isnan(value), keywords["nan"], torch.nan_to_num(value))
        if function is torch.Tensor.__getitem__ and isinstance(arguments[1], (tuple, list)):
            device = arguments[0].device
            return arguments[0][tuple(self._on_device(index, device) for index in arguments[1])]
        return make()


class Trainer:
    """OpenFold's model, losses and moving average, with foldmill's clipping and schedule."""

    def __init__(self, model, config, settings: configparser.ConfigParser, device: str) -> None:
        from openfold.utils.exponential_moving_average import ExponentialMovingAverage
        from openfold.utils.loss import AlphaFoldLoss

        optimizer = settings["optimizer"]
        self.model = model.to(device).train()
        self.loss = AlphaFoldLoss(config.loss)
        self.ema = ExponentialMovingAverage(self.model, config.ema.decay)
        self.parameters = list(self.model.parameters())
        self.peak_rate = optimizer.getfloat("learning_rate")
        self.warmup_samples = optimizer.getfloat("warmup_samples")
        self.clip = optimizer.getfloat("clip_norm")
        self.rate = torch.zeros((), device=device)
        self.adam = torch.optim.Adam(
            self.parameters, lr=self.rate, eps=optimizer.getfloat("eps"),
            betas=(optimizer.getfloat("beta1"), optimizer.getfloat("beta2")),
            capturable=device == "cuda")
        self.n_sample = settings["data"].getint("global_batch")
        self.device = device
        self.batches: list[dict[str, torch.Tensor]] = [{} for _ in range(self.n_sample)]
        self.gradients: list = [None] * self.n_sample

    def load(self, slot: int, features: dict[str, torch.Tensor]) -> None:
        """Puts a sample in place; its tensors stay at the same addresses."""
        batch = self.batches[slot]
        for key, value in features.items():
            if key not in batch:
                batch[key] = value.to(self.device)
            else:
                batch[key].copy_(value, non_blocking=True)

    def set_rate(self, samples: int) -> None:
        """Sets the rate of the step that ends after `samples` samples of the run."""
        self.rate.fill_(self.peak_rate * min(1.0, samples / self.warmup_samples))

    def differentiate(self, slot: int) -> torch.Tensor:
        """Makes the clipped gradient of a sample's loss; returns REPORTED and the norm."""
        from openfold.utils.tensor_utils import tensor_tree_map

        batch = self.batches[slot]
        outputs = self.model(dict(batch))
        last = tensor_tree_map(lambda t: t[..., -1], dict(batch))
        loss, terms = self.loss(outputs, last, _return_breakdown=True)
        gradients = torch.autograd.grad(loss, self.parameters, allow_unused=True)
        used = [gradient for gradient in gradients if gradient is not None]
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(used)))
        torch._foreach_mul_(used, torch.clamp(self.clip / (norm + 1e-6), max=1.0) / self.n_sample)
        self.gradients[slot] = gradients
        return torch.stack([terms[name].reshape(()).detach() for name in REPORTED] + [norm])

    def update(self) -> None:
        """Moves the parameters by the sum of the samples' gradients, and their average."""
        for parameter, *parts in zip(self.parameters, *self.gradients):
            parameter.grad = None if parts[0] is None else sum(parts)
        self.adam.step()
        self.ema.update(self.model)


class Step:
    """One step of several trainers at once: eagerly, or as a CUDA graph."""

    def __init__(self, trainers: list[Trainer]) -> None:
        self.trainers = trainers
        self.passes = [(trainer, slot) for trainer in trainers
                       for slot in range(trainer.n_sample)]
        self.graph: torch.cuda.CUDAGraph | None = None
        self.losses = torch.empty(0)

    def run(self) -> torch.Tensor:
        """Returns the losses [trainer, sample, REPORTED and norm]."""
        if self.graph is not None:
            self.graph.replay()
            return self.losses
        rows = [trainer.differentiate(slot) for trainer, slot in self.passes]
        return self._finish(rows)

    def _finish(self, rows: list[torch.Tensor]) -> torch.Tensor:
        for trainer in self.trainers:
            trainer.update()
        return torch.stack(rows).reshape(len(self.trainers), -1, len(rows[0]))

    def record(self) -> None:
        """Makes the graph. A step has been run, and its samples are still in place."""
        frozen = [Frozen() for _ in self.passes]
        streams = [torch.cuda.Stream() for _ in self.passes]
        for _ in range(WARM_UP):
            for mode, stream, (trainer, slot) in zip(frozen, streams, self.passes):
                stream.wait_stream(torch.cuda.current_stream())
                mode.record.clear()
                with torch.cuda.stream(stream), mode:
                    trainer.differentiate(slot)
                torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        rows = []
        with torch.cuda.graph(graph):
            for stream in streams:
                stream.wait_stream(torch.cuda.current_stream())
            for mode, stream, (trainer, slot) in zip(frozen, streams, self.passes):
                mode.place = 0
                with torch.cuda.stream(stream), mode:
                    rows.append(trainer.differentiate(slot))
            for stream in streams:
                torch.cuda.current_stream().wait_stream(stream)
            self.losses = self._finish(rows)
        self.graph, self.frozen = graph, frozen  # the graph reads the recorded tensors


# -- the runs


def to_batch(sample: foldmill.Sample, **sizes: int) -> dict[str, torch.Tensor]:
    """Returns OpenFold's features of a sample as tensors with a leading batch axis of 1."""
    return {key: torch.from_numpy(value)[None]
            for key, value in sample.expand(**sizes).items()}


class Run:
    """One seed: its settings, trainer, samples and files."""

    def __init__(self, options: argparse.Namespace, seed: int) -> None:
        self.bin, self.path = options.bin, f"{options.run}-{seed}"
        settings = read_settings(self.bin, self.path)
        config = openfold_config(settings)
        model = load_model(self.bin, f"{self.path}.untrained/checkpoint-000000000001.safetensors",
                           config, self.path)
        self.trainer = Trainer(model, config, settings, options.device)
        self.samples = iter(foldmill.Stream(
            options.data, plan=settings["data"]["plan"], seed=seed, steps=options.steps,
            batch=self.trainer.n_sample, crop=settings["data"].getint("crop_size"), cycles=1,
            raw=True, ahead=64))
        Path(self.path).mkdir(exist_ok=True)
        self.metrics = open(f"{self.path}/metrics.jsonl", "w", buffering=1, encoding="utf-8")

    def next_features(self) -> list[dict[str, torch.Tensor]]:
        """Returns the samples of a step; none after the last step."""
        features = []
        for _ in range(self.trainer.n_sample):
            sample = next(self.samples, None)
            if sample is not None:
                features.append(to_batch(sample))
        return features

    def write(self, step: int, losses: list[float], seconds: float) -> None:
        """Writes the mean losses of a step's samples."""
        row = dict(zip((*REPORTED, "grad_norm"), losses))
        if not numpy.isfinite(row["loss"]):
            sys.exit(f"reference.py: the loss of step {step} is not finite")
        ours = {name: row.pop(theirs) for name, theirs in TERMS.items()}
        self.metrics.write(json.dumps({"step": step, **row, **ours, "step_s": seconds}) + "\n")

    def save(self, step: int) -> None:
        """Writes the moving average as a foldmill checkpoint."""
        file = f"{self.path}/weights-{step}.npz"
        numpy.savez(file, **{name: value.cpu().numpy()
                             for name, value in self.trainer.ema.params.items()})
        subprocess.run([f"{self.bin}/foldmill", "import", file, "--preset", "overfit", "--config",
                        f"{self.path}.ini", "--out",
                        f"{self.path}/checkpoint-{step:012d}.safetensors", "--replace"],
                       check=True, capture_output=True)
        os.unlink(file)


def train(options: argparse.Namespace) -> None:
    stand_ins.leave_out_violations()
    seeds = [int(seed) for seed in options.seeds.split()]
    torch.manual_seed(seeds[0])
    runs = [Run(options, seed) for seed in seeds]
    step_of_all = Step([run.trainer for run in runs])
    ahead = [run.next_features() for run in runs]
    begin = time.monotonic()
    for step in range(1, options.steps + 1):
        for run, features in zip(runs, ahead):
            for slot, one in enumerate(features):
                run.trainer.load(slot, one)
            run.trainer.set_rate(step * run.trainer.n_sample)
        losses = step_of_all.run()
        ahead = [run.next_features() for run in runs]
        means = losses.mean(dim=1).tolist()  # waits for the device
        seconds, begin = time.monotonic() - begin, time.monotonic()
        for run, row in zip(runs, means):
            run.write(step, row, seconds)
            if step % (options.steps // options.saves) == 0:
                run.save(step)
        if step == 1 and options.device == "cuda" and not options.eager:
            step_of_all.record()
            begin = time.monotonic()


def score(options: argparse.Namespace) -> None:
    from openfold.utils.loss import lddt_ca
    from openfold.utils.tensor_utils import tensor_tree_map

    config = openfold_config(read_settings(options.bin, options.run))
    model = load_model(options.bin, options.score, config, options.out).to(options.device).eval()
    stream = foldmill.Stream(options.data, plan="eval", steps=0, crop=512, cycles=1, raw=True)
    # Gradients stay enabled: without them OpenFold works in place, with a CUDA extension.
    with open(options.out, "w", buffering=1, encoding="utf-8") as file:
        file.write("chain,lddt_ca\n")
        for sample in stream:
            if sample.epoch > 0:
                break  # every chain was there once
            batch = {key: value.to(options.device)
                     for key, value in to_batch(sample, n_res=sample.n_res).items()}
            outputs = model(batch)
            last = tensor_tree_map(lambda t: t[..., -1], batch)
            value = lddt_ca(outputs["final_atom_positions"], last["all_atom_positions"],
                            last["all_atom_mask"], per_residue=False)
            file.write(f"{sample.name},{float(value):.6f}\n")


def main() -> None:
    parser = argparse.ArgumentParser(prog="reference.py")
    parser.add_argument("bin")
    parser.add_argument("run")
    parser.add_argument("--openfold", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--seeds", default="1")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--saves", type=int, default=4)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--eager", action="store_true")
    parser.add_argument("--score")
    parser.add_argument("--out")
    options = parser.parse_args()
    sys.path.insert(0, options.openfold)
    stand_ins.install()
    torch.backends.cuda.matmul.allow_tf32 = False
    if options.score:
        score(options)
    else:
        train(options)


if __name__ == "__main__":
    main()
