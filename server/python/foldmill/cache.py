"""Chains of a cache on disk, without a server."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from . import _core
from ._checks import MOST_U32, MOST_U64, date, integer
from .arrays import Features, to_dict


@dataclass(frozen=True, eq=False)
class Snapshot(Mapping[str, Features]):
    """A named set of chains with weights, and a mapping from their names to their features.

    ``for name, features in snapshot.items()`` reads the chains one after the other; only the
    current chain is in memory. Features are those of Cache. A chain that is not in the snapshot
    raises KeyError.
    """

    name: str  #: of the snapshot
    hash: str  #: SHA-256 of the snapshot's file, 64 hex digits
    chains: list[str] = field(repr=False)  #: names, sorted
    weights: list[int] = field(repr=False)  #: one per chain; a chain is drawn in proportion to it
    cache: Cache = field(repr=False)  #: where the chains are read from

    def __len__(self) -> int:
        return len(self.chains)

    def __iter__(self) -> Iterator[str]:
        return iter(self.chains)

    def __contains__(self, name: object) -> bool:
        return name in self._members

    def __getitem__(self, name: str) -> Features:
        if name not in self._members:
            raise KeyError(name)
        return self.cache[name]

    @functools.cached_property
    def _members(self) -> frozenset[str]:
        return frozenset(self.chains)


class Cache(Mapping[str, Features]):
    """A generation of a cache, as a read-only mapping from a chain's name to its features.

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

    N_res is the number of residues, N_seq of rows of the de-duplicated alignment and N_templ of
    templates, 0 to `max_templates`. docs/reference/inputs.md lists every array.

    A chain that the cache does not have raises KeyError, and a damaged one Error. Complexes are
    listed with the chains, by names like "1abc", but have no such features: reading one raises
    Error. Streams and ``foldmill export`` give theirs.

    Reading needs no lock: a build beside it makes a new generation, which a new Cache shows.
    Processes may share a Cache over a fork, threads may use it together, and a pickled Cache opens
    the same generation again.
    """

    def __init__(self, path: str | os.PathLike[str], *, generation: int = 0, max_templates: int = 4,
                 max_template_date: str | None = None) -> None:
        """Opens generation `generation` of the cache (0: the current one).

        max_templates is the most templates that a chain has. max_template_date ("YYYY-MM-DD") skips
        templates that were released later. Raises Error when there is no such cache or generation,
        ValueError for arguments that are out of range.
        """
        integer("generation", generation, 0, MOST_U64)
        integer("max_templates", max_templates, 0, MOST_U32)
        if max_template_date is not None:
            date("max_template_date", max_template_date)
        self._path = os.path.abspath(os.fsdecode(path))
        self._core = _core.open_cache(os.fsdecode(path), generation)
        self._max_templates = max_templates
        self._max_template_date = max_template_date

    def __reduce__(self) -> Any:
        return _open_again, (self._path, self.generation, self._max_templates,
                             self._max_template_date)

    def __repr__(self) -> str:
        return f"<foldmill.Cache {self._path}: generation {self.generation}, {len(self)} chains>"

    @property
    def generation(self) -> int:
        """The number of the generation that is open."""
        return self._core.generation()

    def __len__(self) -> int:
        return self._core.length()

    def __iter__(self) -> Iterator[str]:
        return (self._core.name(i) for i in range(len(self)))

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._core.find(name) is not None

    def __getitem__(self, name: str) -> Features:
        number = self._core.find(name) if isinstance(name, str) else None
        if number is None:
            raise KeyError(name)
        return to_dict(self._core.load(number, self._max_templates, self._max_template_date))

    def snapshot(self, name: str = "all") -> Snapshot:
        """Reads a snapshot of the cache; every cache has the snapshot "all".

        Raises Error when there is none of that name, or when this generation lacks its chains.
        """
        digest, rows = self._core.snapshot(name)
        return Snapshot(name, digest, [self._core.name(chain) for chain, _ in rows],
                        [weight for _, weight in rows], self)


def _open_again(path: str, generation: int, max_templates: int,
                max_template_date: str | None) -> Cache:
    return Cache(path, generation=generation, max_templates=max_templates,
                 max_template_date=max_template_date)


def open_snapshot(path: str | os.PathLike[str], name: str = "all", *, generation: int = 0,
                  max_templates: int = 4, max_template_date: str | None = None) -> Snapshot:
    """Opens a snapshot of the cache at `path`.

    The other arguments and the errors are those of Cache and ``Cache.snapshot``.
    """
    cache = Cache(path, generation=generation, max_templates=max_templates,
                  max_template_date=max_template_date)
    return cache.snapshot(name)
