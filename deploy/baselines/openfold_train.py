#!/usr/bin/env python3
"""Times OpenFold's training step: zero_grad, forward, loss, backward, clip, Adam, moving average.

Model, losses, average and features are OpenFold's own, from a checkout that is used as it is. One
made-up chain is cropped to the preset's shape; data is not loaded while time is taken. With bf16
the step runs under autocast over fp32 weights. Compare with `bench_step --device cuda --dtype bf16
--preset af2-initial` (`af2-finetuning`), and say on which side what is recomputed.

    --compile evoformer|all  torch.compile of the Evoformer's blocks, or of those of the extra and
                             the template stack, too
    --no-checkpoints         activation checkpoints off, except those of the extra stack
    --fused                  PyTorch's fused Adam, and one kernel for the average of all tensors

Needs a checkout of OpenFold whose attention kernel is built, a GPU, and PyTorch, NumPy, SciPy,
ml_collections and dm-tree of PyPI. This script has been run on a CPU with --tiny only.
"""

from __future__ import annotations

import argparse
from contextlib import nullcontext
from typing import Any

import torch

import openfold_common as common
import result

PRECISIONS = {"bf16": torch.bfloat16, "fp32": torch.float32}


def drop_checkpoints(config: Any) -> None:
    config.globals.blocks_per_ckpt = None
    config.model.evoformer_stack.blocks_per_ckpt = None
    config.model.template.template_pair_stack.blocks_per_ckpt = None


def configure(options: argparse.Namespace) -> Any:
    """Returns OpenFold's configuration of the preset with the options."""
    from openfold.config import model_config

    config = model_config(options.preset, train=True)
    if options.no_checkpoints:
        drop_checkpoints(config)
    if options.tiny:
        common.shrink(config)
        config.data.train.crop_size = 32
    return config


def compile_blocks(model: torch.nn.Module, which: str) -> None:
    """Compiles blocks in place; all blocks of a stack share one compiled graph."""
    stacks: list[Any] = [model.evoformer]
    if which == "all":
        stacks += [model.extra_msa_stack, model.template_embedder.template_pair_stack]
    for stack in stacks:
        for block in stack.blocks:
            block.compile()


class Step:
    """A step over one batch that stays in place."""

    def __init__(self, config: Any, options: argparse.Namespace) -> None:
        from openfold.model.model import AlphaFold
        from openfold.utils.exponential_moving_average import ExponentialMovingAverage
        from openfold.utils.loss import AlphaFoldLoss

        self.options = options
        self.model = AlphaFold(config).to(options.device).train()
        if options.compile != "none":
            compile_blocks(self.model, options.compile)
        self.loss = AlphaFoldLoss(config.loss)
        self.average = ExponentialMovingAverage(self.model, config.ema.decay)
        self.average.to(options.device)
        self.adam = torch.optim.Adam(self.model.parameters(), lr=1e-3, eps=1e-5,
                                     fused=options.fused)
        self.batch: dict[str, Any] = {}

    def update_average(self) -> None:
        if not self.options.fused:
            self.average.update(self.model)
            return
        state = self.model.state_dict()
        kept = [(mean, state[name]) for name, mean in self.average.params.items()
                if mean.is_floating_point()]
        torch._foreach_lerp_([mean for mean, _ in kept], [value for _, value in kept],
                             1.0 - self.average.decay)

    def run(self) -> None:
        from openfold.utils.tensor_utils import tensor_tree_map

        self.adam.zero_grad()
        autocast: Any = nullcontext()
        if self.options.dtype != "fp32":
            autocast = torch.autocast(self.options.device, PRECISIONS[self.options.dtype])
        with autocast:
            outputs = self.model(dict(self.batch))
            last = tensor_tree_map(lambda t: t[..., -1], dict(self.batch))
            loss = self.loss(outputs, last)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 0.1)
        self.adam.step()
        with torch.no_grad():
            self.update_average()


def parse() -> argparse.Namespace:
    parser = result.parser_of(__doc__)
    parser.add_argument("--checkout", required=True, metavar="DIR", help="OpenFold's source")
    parser.add_argument("--preset", default="initial_training",
                        choices=("initial_training", "finetuning_ptm"))
    parser.add_argument("--compile", default="none", choices=("none", "evoformer", "all"))
    parser.add_argument("--no-checkpoints", action="store_true")
    parser.add_argument("--fused", action="store_true")
    parser.add_argument("--dtype", default="bf16", choices=list(PRECISIONS))
    parser.add_argument("--cycles", type=int, nargs="+", default=[1, 4], metavar="N")
    parser.add_argument("--warm-up", type=int, default=3, metavar="N")
    parser.add_argument("--rounds", type=int, default=10, metavar="N")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--tiny", action="store_true",
                        help="one block of each stack and a small shape, to try the script")
    return parser.parse_args()


def main() -> None:
    options = parse()
    absent = common.import_openfold(options.checkout, options.device)
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(1)
    config = configure(options)
    train = config.data.train
    n_row = 2 * (train.max_msa_clusters + train.max_extra_msa)  # some blocks of rows are dropped
    chain = common.make_chain(train.crop_size + 8, n_row, train.max_templates)
    names = ("preset", "compile", "no_checkpoints", "fused", "dtype", "warm_up", "rounds", "tiny")
    step = Step(config, options)
    content = result.begin(
        "OpenFold", "a training step, by cycles", "wall",
        {**{name: getattr(options, name) for name in names}, "TF32": True,
         "crop": train.crop_size, "clusters": train.max_msa_clusters,
         "extra rows": train.max_extra_msa, "templates": train.max_templates,
         "parameters": sum(p.numel() for p in step.model.parameters()), **common.versions(absent)},
        commit=result.commit_of(options.checkout), gpu=common.gpu_name(options.device))
    medians = []
    for cycles in options.cycles:
        config.data.common.max_recycling_iters = cycles - 1
        step.batch = common.make_batch(config, chain, "train", options.device)
        (ms, least, most), peak = common.time_rounds(step.run, options.warm_up, options.rounds,
                                                     options.device, 1e3)
        medians.append(ms)
        result.add(content, str(cycles), ms=ms, least=least, most=most, GiB=peak)
    if options.cycles == [1, 4]:  # cycles are uniform from 1 to 4, and time is linear in them
        result.add(content, "mean", ms=sum(medians) / 2)
    result.write(content, options.out)


if __name__ == "__main__":
    main()
