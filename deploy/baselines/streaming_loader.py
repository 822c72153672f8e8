#!/usr/bin/env python3
"""What synchronous ranks wait for slow samples from MosaicML's streaming dataset.

The dataset is a local folder of small samples. Its order is not shuffled. A worker that takes a
sample waits for the time of its preparation, as in dataloader.py. StreamingDataLoader passes
in_order and prefetch_factor on to PyTorch's DataLoader. Both settings run one after the other,
because two such datasets on one machine share names in its memory.

Needs mosaicml-streaming and PyTorch of PyPI, no GPU. Run with 0.13.0 and 2.15.0 on 2 cores.
"""

from __future__ import annotations

import argparse
import functools
import os
import socket
import tempfile
from collections.abc import Iterable
from typing import Any

import streaming

import result
import waits


def write_samples(folder: str, count: int) -> None:
    """Writes a dataset whose samples are their own numbers."""
    with streaming.MDSWriter(out=folder, columns={"index": "int"}) as writer:
        for index in range(count):
            writer.write({"index": index})


class Samples(streaming.StreamingDataset):
    """The dataset, whose samples take time to prepare."""

    def __getitem__(self, at: Any) -> Any:
        return waits.prepare(int(super().__getitem__(at)["index"]))


def make_loader(rank: int, options: argparse.Namespace, folder: str, port: int,
                in_order: bool, prefetch: int) -> Iterable[Any]:
    """Returns the loader of a rank, which finds the others by torchrun's variables."""
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(options.ranks),
                      LOCAL_WORLD_SIZE=str(options.ranks), MASTER_ADDR="127.0.0.1",
                      MASTER_PORT=str(port))
    samples = Samples(local=folder, shuffle=False, batch_size=1)
    loader: Iterable[Any] = streaming.StreamingDataLoader(
        samples, batch_size=1, num_workers=options.workers, in_order=in_order,
        prefetch_factor=prefetch)
    return loader


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    parser = result.parser_of(__doc__)
    waits.add_options(parser)
    options = parser.parse_args()
    measured = result.begin(
        "MosaicML streaming", waits.WHAT, "wall",
        {**waits.settings_of(options), "torch": result.version_of("torch"), "shuffle": False},
        version=result.version_of("mosaicml-streaming"))
    with tempfile.TemporaryDirectory() as folder:
        write_samples(folder, options.ranks * (options.warm + options.steps))
        for in_order, prefetch in ((True, 2), (False, 4)):
            run = waits.Run(functools.partial(make_loader, options=options, folder=folder,
                                              port=free_port(), in_order=in_order,
                                              prefetch=prefetch), options)
            result.add(measured, f"in_order={in_order}, prefetch {prefetch}", **run.finish())
            streaming.base.util.clean_stale_shared_memory()
    result.write(measured, options.out)


if __name__ == "__main__":
    main()
