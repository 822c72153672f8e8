"""Chains of a cache on disk, without a server."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy

from . import _core
from .arrays import to_dict


@dataclass(frozen=True)
class Snapshot:
    """A named set of chains with sampling weights."""

    name: str
    hash: str  #: SHA-256 of the snapshot's file
    chains: list[str]  #: names, sorted
    weights: list[int]  #: one per chain


class Cache(Mapping):
    """The current generation of a cache, as a read-only mapping from a chain's name to its features.

    ``cache["1abc_A"]`` is a dict of OpenFold's features before its random transforms, for example:

    ======================  =====================  =======
    key                     shape                  dtype
    ======================  =====================  =======
    aatype                  [N_res]                int64
    msa                     [N_seq, N_res]         int64
    deletion_matrix         [N_seq, N_res]         float32
    all_atom_positions      [N_res, 37, 3] (Å)     float32
    all_atom_mask           [N_res, 37]            float32
    template_aatype         [N_templ, N_res]       int64
    ======================  =====================  =======

    Reading needs no lock: a build beside it makes a new generation, which a new Cache shows.
    Processes may share a Cache over a fork, and threads may use it together.
    """

    def __init__(self, path: str | os.PathLike, *, generation: int = 0, max_templates: int = 4,
                 max_template_date: str | None = None) -> None:
        """Opens generation `generation` of the cache (0: the current one).

        max_template_date ("YYYY-MM-DD") skips templates that were released later.
        """
        self._core = _core.open_cache(os.fspath(path), generation)
        self._max_templates = max_templates
        self._max_template_date = max_template_date

    def __len__(self) -> int:
        return self._core.length()

    def __iter__(self) -> Iterator[str]:
        return (self._core.name(i) for i in range(len(self)))

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._core.find(name) is not None

    def __getitem__(self, name: str) -> dict[str, numpy.ndarray]:
        number = self._core.find(name)
        if number is None:
            raise KeyError(name)
        return to_dict(self._core.load(number, self._max_templates, self._max_template_date))

    def snapshot(self, name: str = "all") -> Snapshot:
        """Reads a snapshot of the cache."""
        digest, rows = self._core.snapshot(name)
        return Snapshot(name, digest, [self._core.name(chain) for chain, _ in rows],
                        [weight for _, weight in rows])
