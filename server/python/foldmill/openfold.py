"""OpenFold's data modules, fed by a feature server.

One changed line makes OpenFold's training script take its samples from foldmill:

    -from openfold.data.data_modules import OpenFoldDataModule, OpenFoldMultimerDataModule
    +from foldmill.openfold import OpenFoldDataModule, OpenFoldMultimerDataModule

The arguments of train_openfold.py for folders then have these meanings:

    train_data_dir        the server's address, or several separated by commas
    train_alignment_dir   the sampling plan, for example openfold-initial
    template_mmcif_dir    the snapshot, or - for the server's own
    max_template_date     the last release date of templates: YYYY-MM-DD, query or any
    --val_data_dir        the address of a server with chains to validate on
    --val_alignment_dir   their snapshot, or - for the server's own
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytorch_lightning as pl

from .arrays import to_torch
from .stream import Stream


class _Batches:
    """At most `n` batches, made by `make` when they are iterated."""

    def __init__(self, make: Callable[[], Iterator[dict[str, Any]]], n: int) -> None:
        self._make = make
        self._n = n

    def __len__(self) -> int:
        return self._n

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return itertools.islice(self._make(), self._n)


def _snapshot(name: str | None) -> str | None:
    return None if name in (None, "-") else name


class OpenFoldDataModule(pl.LightningDataModule):
    """Stands in for the class of the same name in openfold.data.data_modules.

    A batch has OpenFold's 50 features; the first axis is the samples of this rank and the last
    one the recycling cycles. The crop's length, the number of cycles and the batch size are those
    of OpenFold's configuration; the plan decides the numbers of rows and templates. Arguments
    about folders that foldmill does not need are ignored. Checkpoints of Lightning hold the
    stream's position, so a resumed run continues after the last batch.
    """

    def __init__(self, config: Any, template_mmcif_dir: str, max_template_date: str,
                 train_data_dir: str | None = None, train_alignment_dir: str | None = None,
                 val_data_dir: str | None = None, val_alignment_dir: str | None = None,
                 batch_seed: int | None = None, train_epoch_len: int = 50000,
                 **ignored: Any) -> None:
        """Takes the arguments of OpenFold's class; the module's text says what they mean.

        Raises ValueError without a server's address and a plan.
        """
        super().__init__()
        if train_data_dir is None or train_alignment_dir is None:
            raise ValueError("train_data_dir must be a server's address and train_alignment_dir a "
                             "sampling plan")
        self._config = config
        self._train: dict[str, Any] = {
            "url": train_data_dir, "plan": train_alignment_dir,
            "snapshot": _snapshot(template_mmcif_dir), "seed": batch_seed or 0}
        self._val: dict[str, Any] = {
            "url": val_data_dir, "plan": "eval", "snapshot": _snapshot(val_alignment_dir)}
        self._max_template_date = max_template_date
        self._epoch_samples = train_epoch_len
        self._stream: Stream | None = None
        self._steps: Iterator[dict[str, Any]] | None = None
        self._state: dict[str, Any] | None = None

    def setup(self, stage: str | None = None) -> None:
        """Does nothing: streams are opened when their first batch is asked for."""

    # -- training

    def train_dataloader(self) -> _Batches:
        """Returns the batches of the next epoch: train_epoch_len samples of all ranks.

        A batch has the keys of ``Sample.expand`` as tensors [batch_size, ..., n_cycle]. Raises
        ValueError when an epoch is shorter than one batch of all ranks.
        """
        world: int = self.trainer.world_size
        samples: int = self._config.data_module.data_loaders.batch_size * world
        if self._epoch_samples < samples:
            raise ValueError(f"train_epoch_len: found {self._epoch_samples}, expected at least the "
                             f"{samples} samples of one batch of all ranks")
        if self._stream is None or self._steps is None:
            self._stream = Stream(
                **self._train, batch=samples, rank=self.trainer.global_rank, world=world,
                crop=self._config.train.crop_size,
                cycles=self._config.common.max_recycling_iters + 1,
                max_template_date=self._max_template_date, stack=True, tensors="torch")
            if self._state is not None:
                self._stream.load_state_dict(self._own_state(self._state))
            self._steps = self._openfold_steps(self._stream)
        steps = self._steps
        return _Batches(lambda: steps, self._epoch_samples // samples)

    @staticmethod
    def _openfold_steps(stream: Stream) -> Iterator[dict[str, Any]]:
        for step in stream:
            del step["index"]  # OpenFold takes the last axis of every feature for the cycles
            yield step

    def state_dict(self) -> dict[str, Any]:
        """Returns what Lightning keeps in its checkpoints; {} before the first batch."""
        state = self._stream.state_dict() if self._stream is not None else {}
        return state if state.get("facts") else {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes what a checkpoint kept: the first rank's state, after a whole step."""
        self._state = state_dict or None

    def _own_state(self, state: dict[str, Any]) -> dict[str, Any]:
        """Returns this rank's state after the last step of the first rank's."""
        batch = state["facts"]["global_batch"]
        return {**state, "group": [self.trainer.global_rank, state["group"][1]],
                "watermark": -(-state["watermark"] // batch) * batch, "delivered": []}

    # -- validation

    def val_dataloader(self) -> Any:
        """Returns this rank's part of the chains, each once and whole, one in a batch.

        A batch has the keys of ``Sample.expand`` as tensors [1, ..., n_cycle] of the chain's size.
        """
        if self._val["url"] is None:
            return []
        n_chain: int = self._val_stream().facts()["n_chain"]
        rank, world = self.trainer.global_rank, self.trainer.world_size
        return _Batches(self._whole_chains, len(range(rank, n_chain, world)))

    def _val_stream(self) -> Stream:
        world = self.trainer.world_size
        return Stream(**self._val, batch=world, rank=self.trainer.global_rank, world=world,
                      cycles=self._config.common.max_recycling_iters + 1,
                      max_template_date=self._max_template_date, raw=True)

    def _whole_chains(self) -> Iterator[dict[str, Any]]:
        for sample in self._val_stream():
            features = sample.expand(n_res=sample.n_res)
            yield to_torch({key: value[numpy.newaxis] for key, value in features.items()}, False)


class OpenFoldMultimerDataModule:
    """Stands in for OpenFold's class; foldmill's complexes are samples of AlphaFold 3."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        """Raises ValueError."""
        raise ValueError("foldmill serves single chains: train multimers with OpenFold's own "
                         "OpenFoldMultimerDataModule")
