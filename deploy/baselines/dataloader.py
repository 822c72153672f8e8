#!/usr/bin/env python3
"""What synchronous ranks wait for slow samples from PyTorch's DataLoader.

All settings (in_order True and False, prefetch_factor 2 and 4) run at the same time with the same
preparation times. With 2 workers a rank has 4 or 8 samples ahead; foldmill's streams have 8, and 10
workers for 8 ranks where a DataLoader has 16. Compare with `bench_stream --only waits`.

Needs PyTorch of PyPI, no GPU. Run with 2.15.0 on 2 cores.
"""

from __future__ import annotations

import argparse
import functools

import torch.utils.data

import result
import waits


class Samples:
    """The samples of a rank: every rank-th of all."""

    def __init__(self, rank: int, options: argparse.Namespace) -> None:
        self.rank, self.ranks = rank, options.ranks
        self.count = options.warm + options.steps

    def __len__(self) -> int:
        return int(self.count)

    def __getitem__(self, step: int) -> int:
        return waits.prepare(step * self.ranks + self.rank)


def make_loader(rank: int, options: argparse.Namespace, in_order: bool,
                prefetch: int) -> torch.utils.data.DataLoader[int]:
    """Returns the DataLoader of a rank."""
    return torch.utils.data.DataLoader(Samples(rank, options), batch_size=None, in_order=in_order,
                                       num_workers=options.workers, prefetch_factor=prefetch)


def main() -> None:
    parser = result.parser_of(__doc__)
    waits.add_options(parser)
    options = parser.parse_args()
    measured = result.begin(
        "PyTorch DataLoader", waits.WHAT, "wall", waits.settings_of(options),
        version=result.version_of("torch"))
    runs = {f"in_order={in_order}, prefetch {prefetch}": waits.Run(functools.partial(
        make_loader, options=options, in_order=in_order, prefetch=prefetch), options)
        for in_order in (True, False) for prefetch in (2, 4)}
    for name, run in runs.items():
        result.add(measured, name, **run.finish())
    result.write(measured, options.out)


if __name__ == "__main__":
    main()
