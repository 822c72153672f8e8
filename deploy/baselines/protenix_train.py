#!/usr/bin/env python3
"""Times Protenix's training step: its own trainer, unmodified, on its own data.

    protenix_train.py --checkout DIR [--steps N] [--warm-up N] -- SETTINGS OF runner/train.py

The settings are those of its train_demo.sh, and are given in the same words: the crop, the number
of structures (--diffusion_batch_size 48), the rollout (--sample_diffusion.N_step 20), the kernels
(--triangle_attention torch, triattention, cuequivariance). PROTENIX_ROOT_DIR names its data. The
time of a step is that of train_step (forward, losses, backward, clip, Adam) and of its moving
average. Waiting for data is left out. Protenix draws the number of cycles of each step; the rows
are medians by that number, and a mean that counts all numbers alike. Compare with `bench_step
--device cuda --dtype bf16 --preset af3-initial`. Numbers of atoms and rows differ from step to step
here, which that made-up sample does not show.

Needs a checkout of Protenix with its requirements and data, and a GPU. This script has not been run
on a GPU; its changes of the trainer were tried on a CPU with a model that computes nothing.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from typing import Any

import numpy
import torch

import result


class Enough(Exception):
    """Ends the trainer's loop once all steps were timed; it would go on to evaluate."""


class Clock:
    """Takes the times of a trainer's steps by wrapping its methods."""

    def __init__(self, steps: int, warm_up: int) -> None:
        self.steps, self.warm_up, self.taken = steps, warm_up, 0
        self.ms: dict[int, list[float]] = {}
        self.cycles = 0
        self.parameters = 0

    def synchronise(self) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    def add(self, ms: float, is_new: bool) -> None:
        """Counts a new step, or adds to the last one."""
        if is_new:
            self.taken += 1
        if self.taken <= self.warm_up:
            return
        times = self.ms.setdefault(self.cycles, [])
        if is_new:
            times.append(ms)
        elif times:
            times[-1] += ms

    def install(self, trainer: Any, average: Any) -> None:
        """Wraps train_step of the trainer's class and update of the average's."""
        step, update = trainer.train_step, average.update

        def timed_step(this: Any, batch: Any) -> None:
            if self.taken >= self.warm_up + self.steps:
                raise Enough
            # The same draw as in Protenix.forward.
            draw = numpy.random.RandomState(this.step)
            self.cycles = int(draw.randint(1, this.configs.model.N_cycle + 1))
            self.parameters = sum(p.numel() for p in this.model.parameters())
            self.synchronise()
            begin = time.monotonic()
            step(this, batch)
            self.synchronise()
            self.add((time.monotonic() - begin) * 1e3, is_new=True)

        def timed_update(this: Any) -> None:
            self.synchronise()
            begin = time.monotonic()
            update(this)
            self.synchronise()
            self.add((time.monotonic() - begin) * 1e3, is_new=False)

        trainer.train_step, average.update = timed_step, timed_update


def run(words: list[str]) -> None:
    """Runs Protenix's training with these words, until the clock has enough."""
    import runner.train

    sys.argv = ["runner/train.py", *words]
    try:
        runner.train.main()
    except Enough:
        pass


def main() -> None:
    parser = result.parser_of(__doc__)
    parser.add_argument("--checkout", required=True, metavar="DIR", help="Protenix's source")
    parser.add_argument("--steps", type=int, default=24, metavar="N", help="timed steps (24)")
    parser.add_argument("--warm-up", type=int, default=4, metavar="N", help="steps before (4)")
    own, words = sys.argv[1:], []
    if "--" in own:
        own, words = own[:own.index("--")], own[own.index("--") + 1:]
    options = parser.parse_args(own)
    if "PROTENIX_ROOT_DIR" not in os.environ:
        sys.exit("protenix_train.py: PROTENIX_ROOT_DIR must name the folder of Protenix's data")
    sys.path.insert(0, options.checkout)
    import runner.ema
    import runner.train

    content = result.begin(
        "Protenix", "a training step, by cycles", "wall",
        {"settings": " ".join(words), "warm-up": options.warm_up, "torch": torch.__version__,
         "CUDA": torch.version.cuda or "none",
         "layer norm": os.environ.get("LAYERNORM_TYPE", "fast_layernorm")},
        commit=result.commit_of(options.checkout), gpu=torch.cuda.get_device_name())
    clock = Clock(options.steps, options.warm_up)
    clock.install(runner.train.AF3Trainer, runner.ema.EMAWrapper)
    run(words)
    if not clock.ms:
        sys.exit("protenix_train.py: the trainer ended before a step was timed")
    content["settings"]["parameters"] = clock.parameters
    for cycles, times in sorted(clock.ms.items()):
        result.add(content, str(cycles), ms=statistics.median(times), least=min(times),
                   most=max(times), steps=len(times))
    result.add(content, "mean",
               ms=statistics.fmean(statistics.median(times) for times in clock.ms.values()),
               GiB=torch.cuda.max_memory_allocated() / 2**30)
    result.write(content, options.out)


if __name__ == "__main__":
    main()
