"""What synchronous ranks wait for slow samples of a loader: the part that all loaders share.

Every rank is a process. In each step it takes a sample, waits for the other ranks, and works for
the time of a step. The exposed wait of a step is that of the slowest rank. The samples take the
times of tests/bench/bench_stream.c (delay_ms), which measures foldmill's streams in the same way.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Callable, Iterable
from typing import Any

WHAT = "exposed wait of a step for data"
MASK = (1 << 64) - 1
Loader = Callable[[int], Iterable[Any]]  # makes the loader of a rank; it gives indices of samples


def delay_ms(index: int) -> int:
    """Returns the time of a sample; the same numbers as delay_ms of bench_stream.c."""
    word = (index + 0x9E3779B97F4A7C15) & MASK
    word = ((word ^ word >> 30) * 0xBF58476D1CE4E5B9) & MASK
    word = ((word ^ word >> 27) * 0x94D049BB133111EB) & MASK
    part = (word ^ word >> 31) % 1000
    return 2000 if part < 10 else 200 if part < 110 else 20


def prepare(index: int) -> int:
    """Takes the time of a sample's preparation, and gives the sample."""
    time.sleep(delay_ms(index) / 1e3)
    return index


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of a run; the defaults are those of bench_stream."""
    for name, value, text in (("ranks", 8, "consumers"), ("workers", 2, "workers of each rank"),
                              ("step-ms", 100, "time that a step works"),
                              ("warm", 300, "steps before those that are measured"),
                              ("steps", 400, "measured steps")):
        parser.add_argument(f"--{name}", type=int, default=value, metavar="N",
                            help=f"{text} ({value})")


def settings_of(options: argparse.Namespace) -> dict[str, Any]:
    """Returns the settings of a run for its result."""
    return {"ranks": options.ranks, "workers of each rank": options.workers,
            "step ms": options.step_ms, "warm steps": options.warm, "steps": options.steps,
            "preparation": "20 ms; 10 % of samples 200 ms, 1 % 2,000 ms; workers sleep"}


def _use_samples(rank: int, loader: Loader, options: argparse.Namespace, barrier: Any, waits: Any,
                 taken: Any) -> None:
    samples = iter(loader(rank))
    barrier.wait()
    for step in range(options.warm + options.steps):
        begin = time.monotonic()
        index = int(next(samples))
        waits[step * options.ranks + rank] = (time.monotonic() - begin) * 1e3
        taken[index] += 1
        barrier.wait()
        time.sleep(options.step_ms / 1e3)


class Run:
    """The ranks of one loader, running."""

    def __init__(self, loader: Loader, options: argparse.Namespace) -> None:
        self.options = options
        count = options.ranks * (options.warm + options.steps)
        self.waits: Any = multiprocessing.Array("d", count, lock=False)
        self.taken: Any = multiprocessing.Array("i", count, lock=False)  # by index of a sample
        # Kept here: once it is freed in this process, another run would get its shared memory.
        self.barrier = multiprocessing.Barrier(options.ranks)
        self.ranks = [multiprocessing.Process(
            target=_use_samples, args=(rank, loader, options, self.barrier, self.waits,
                                        self.taken))
            for rank in range(options.ranks)]
        for rank in self.ranks:
            rank.start()

    def finish(self) -> dict[str, float]:
        """Waits for the ranks; returns the exposed waits in ms. Every sample came exactly once."""
        while any(rank.is_alive() for rank in self.ranks):
            if any(rank.exitcode for rank in self.ranks):  # the others would wait for ever
                for rank in self.ranks:
                    rank.terminate()
            time.sleep(0.1)
        if any(rank.exitcode for rank in self.ranks):
            raise SystemExit("a rank ended with an error")
        if any(count != 1 for count in self.taken):
            raise SystemExit("a sample was not delivered exactly once")
        ranks, steps = self.options.ranks, self.options.steps
        exposed = sorted(max(self.waits[step * ranks:(step + 1) * ranks])
                         for step in range(self.options.warm, self.options.warm + steps))
        return {"p50_ms": exposed[steps // 2], "p99_ms": exposed[steps * 99 // 100],
                "max_ms": exposed[-1], "mean_ms": sum(exposed) / steps}
