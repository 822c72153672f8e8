"""Samples from a feature server."""

from __future__ import annotations

import logging
import math
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy

from . import _core
from .arrays import to_dict, to_numpy, to_torch

_STATE_VERSION = 1
_PAUSE_S = 0.2  # between two attempts to connect again
_log = logging.getLogger("foldmill")


@dataclass(frozen=True)
class Skipped:
    """A sample that the server could not make (only with ``on_error="skip"``)."""

    index: int
    kind: str
    reason: str


class Sample:
    """A received sample. Its arrays are views of the memory that it was received into.

    A stream has memory for `ahead` samples, so drop a Sample, and the arrays of ``tensors()``, when
    they are used up. Arrays of ``expand()`` have memory of their own.
    """

    def __init__(self, core: Any, sizes: tuple[int, int, int, int]) -> None:
        self._core = core
        self._sizes = sizes
        self._head = core.head()

    def __getattr__(self, name: str) -> Any:
        """Gives name, index, step, slot, epoch, chain, n_cycle, n_res, crop_start, ... ."""
        if name.startswith("_") or name not in self._head:
            raise AttributeError(name)
        return self._head[name]

    def __repr__(self) -> str:
        return f"<foldmill.Sample {self.index} of {self.name}: {self.n_res} residues>"

    def tensors(self) -> dict[str, Any]:
        """Returns the compact tensors as sent: an array, or a list with one array per cycle."""
        found: dict[str, Any] = {}
        for cycle, array in self._core.tensors():
            if cycle is None:
                found[array[0]] = to_numpy(array)
            else:
                found.setdefault(array[0], []).append(to_numpy(array))
        return found

    def hash(self) -> int:
        """Returns XXH3 of the encoded sample, of which `foldmill fetch --digest` is made."""
        return self._core.hash()

    def expand(self, n_res: int | None = None, n_clust: int | None = None,
               n_extra: int | None = None, n_templ: int | None = None) -> dict[str, numpy.ndarray]:
        """Returns the 50 arrays of OpenFold's data loader, padded with zeros to the sizes.

        The default sizes are the plan's. The last axis of every array is the recycling cycle.
        """
        given = (n_res, n_clust, n_extra, n_templ)
        sizes = [own if size is None else size for size, own in zip(given, self._sizes)]
        return to_dict(self._core.expand(*sizes))


class Stream:
    """The samples of a run, in the run's order, as an iterable.

    Each item is a dict of OpenFold's features (``Sample.expand``); ``raw=True`` gives Sample
    objects instead. With ``stack=True`` an item is a whole step: every array has a leading axis
    with the rank's samples of the step, as OpenFold's collator makes it.

    url may name several servers of one snapshot, separated by commas. When a server is lost, the
    stream continues from another one with the same bytes. It fails when no server answers for
    `retry_s`. It also moves to a quicker server.

    A Stream can be iterated once at a time. ``state_dict()`` says what was given out;
    ``load_state_dict()`` before iterating continues behind it, in another process too.

    Under ``torch.utils.data.DataLoader(stream, batch_size=None, num_workers=N)`` the workers divide
    the samples of a step among them, so N should divide the rank's samples per step; workers that
    find no part deliver nothing. A worker keeps its own state, so a run that must resume counts
    what it used: ``stream.deliver(features["index"])`` in the main process.
    """

    def __init__(self, url: str, *, plan: str, snapshot: str | None = None, seed: int = 0,
                 steps: int = 0, first_step: int = 0, rank: int = 0, world: int = 1,
                 batch: int = 0, crop: int = 0, cycles: int = 0,
                 max_template_date: str | None = None, order: str = "strict",
                 on_error: str = "stop", ahead: int = 8, raw: bool = False, stack: bool = False,
                 tensors: str = "numpy", pin: bool = False, tls_cert: str | None = None,
                 tls_key: str | None = None, tls_ca: str | None = None,
                 token_file: str | None = None, insecure: bool = False, retry_s: float = 60,
                 timeout_s: float = 600, n_templ: int = 4) -> None:
        """Remembers the parameters; nothing is connected before the first item is asked for.

        url                unix:PATH, tls://HOST:PORT or tcp://HOST:PORT, or several
        plan               the sampling plan, for example "af2-initial"
        snapshot           the snapshot's name; None takes the server's
        seed, steps        of the run; steps=0 is endless
        rank, world        this consumer and the number of consumers of the run
        batch, crop, cycles, max_template_date   changes to the plan; 0 or None keeps it
        order              "strict", "bounded:W": at most W later samples overtake a slow one,
                           or "free"
        on_error           "stop", or "skip" (then `skipped` lists the samples left out)
        ahead              samples that are received ahead, 2 to 1024
        tensors, pin       "numpy" or "torch"; pin copies torch tensors into pinned memory
        tls_*, token_file  credentials, as of `foldmill fetch`; the token may be in FOLDMILL_TOKEN
        retry_s            how long to look for a server; timeout_s: for a sample
        """
        self._core: Any = None
        if on_error not in ("stop", "skip"):
            raise ValueError(f"on_error: found {on_error!r}, expected 'stop' or 'skip'")
        if not re.fullmatch(r"strict|free|bounded:[1-9][0-9]*", order):
            raise ValueError(f"order: found {order!r}, expected 'strict', 'bounded:W' or 'free'")
        if tensors not in ("numpy", "torch"):
            raise ValueError(f"tensors: found {tensors!r}, expected 'numpy' or 'torch'")
        if not 0 <= rank < world:
            raise ValueError(f"rank: found {rank}, expected 0 to {world - 1}")
        if stack and raw:
            raise ValueError("stack needs expanded features, so it excludes raw")
        if stack and order != "strict":
            raise ValueError("stack needs the order 'strict'")
        self._run = {
            "plan": plan, "snapshot": snapshot, "seed": seed, "steps": steps,
            "first_step": first_step, "batch": batch, "crop": crop, "cycles": cycles,
            "max_template_date": _template_date(max_template_date), "order": order,
        }
        self._group = (rank, world)
        self._connect = {
            "url": url, "skip": on_error == "skip", "ahead": ahead, "agent": "foldmill python",
            "resume_ms": int(retry_s * 1000), "event_ms": int(timeout_s * 1000), "tls_cert": tls_cert,
            "tls_key": tls_key, "tls_ca": tls_ca, "token_file": token_file, "insecure": insecure,
        }
        self._retry_s = retry_s
        self._raw, self._stack, self._tensors, self._pin = raw, stack, tensors, pin
        self._n_templ = n_templ
        self._delivered: set[int] = set()  # beyond the watermark
        self._watermark = 0  # every own sample with a smaller index was delivered
        self._facts: dict[str, Any] | None = None
        self.skipped: list[Skipped] = []
        _register_with_torch()

    # -- state

    def state_dict(self) -> dict[str, Any]:
        """Returns plain values that say what was given out so far."""
        return {"version": _STATE_VERSION, "run": dict(self._run), "group": list(self._group),
                "facts": self._facts, "watermark": self._watermark,
                "delivered": sorted(self._delivered)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues behind the samples of a state. The run's parameters must be the same."""
        if state.get("version") != _STATE_VERSION:
            raise ValueError(f"the state has version {state.get('version')!r}, "
                             f"expected {_STATE_VERSION}")
        theirs, ours = {**state["run"], "group": state["group"]}, {**self._run,
                                                                   "group": list(self._group)}
        for key, value in ours.items():
            if theirs[key] != value:
                raise ValueError(f"the state is of a run with {key} {theirs[key]!r}, "
                                 f"this one has {value!r}")
        self._facts = state["facts"]
        self._watermark = state["watermark"]
        self._delivered = set(state["delivered"])

    def deliver(self, *indices: Any) -> None:
        """Records that samples were used, by their indices (numbers or arrays of numbers)."""
        if self._facts is None:  # the connections were those of a DataLoader's workers
            self._open()
            self.close()
        for index in indices:
            for value in numpy.asarray(index).reshape(-1).tolist():
                self._deliver(int(value))

    def _deliver(self, index: int) -> None:
        if index >= self._watermark:
            self._delivered.add(index)
        facts = self._facts
        while facts and (own := self._own_index(self._watermark)) in self._delivered:
            self._delivered.discard(own)
            self._watermark = own + 1

    def _own_index(self, least: int) -> int:
        """Returns the smallest index of this rank that is at least `least`."""
        assert self._facts
        rank, world = self._group
        batch = self._facts["global_batch"]
        least = max(least, self._run["first_step"] * batch)
        step, slot = divmod(least, batch)
        slot += (rank - slot) % world
        return step * batch + slot if slot < batch else (step + 1) * batch + rank

    def _token(self) -> str | None:
        """Returns the resume token in the text form of foldmill's checkpoints.

        The token may leave out what other ranks delivered: a server looks at the group's own
        samples only.
        """
        if not self._facts or (self._watermark == 0 and not self._delivered):
            return None
        first = self._own_index(self._watermark)
        bits = bytearray()
        for place in sorted(index - first for index in self._delivered):
            bits.extend(bytes(place // 8 + 1 - len(bits)))
            bits[place // 8] |= 1 << place % 8
        epoch = first // self._facts["epoch_samples"]
        return f"{epoch} {first} {bits.hex() or '-'}"

    # -- connections

    def _open(self) -> None:
        """Connects to the first server that answers; the C client handles later losses."""
        self.close()
        end = time.monotonic() + self._retry_s
        is_first = True
        while True:
            try:
                self._core = _core.open_stream(
                    group=self._group[0], groups=self._group[1], delivered=self._token(),
                    **self._run, **self._connect)
                break
            except _core.Error as error:
                may_pass = error.args[0] in ("closed", "io", "limit")
                if not may_pass or time.monotonic() >= end:
                    raise
                if is_first:
                    _log.warning("no server yet, trying for %g s: %s", self._retry_s, error.args[1])
                is_first = False
                time.sleep(_PAUSE_S)
        self._facts = self._core.facts()

    def close(self) -> None:
        """Ends the connection; iterating again opens a new one behind what was given out."""
        if self._core is not None:
            self._core.close()
            self._core = None

    def stats(self) -> dict[str, Any]:
        """Returns counts and waiting times of the present connection."""
        return self._core.stats() if self._core is not None else {}

    # -- iteration

    def __iter__(self) -> Iterator[Any]:
        if not self._take_workers_part():
            return iter(())
        return self._steps() if self._stack else self._items()

    def __del__(self) -> None:
        self.close()

    def _take_workers_part(self) -> bool:
        """In a DataLoader's worker: keeps only its part of the rank's samples, False for none.

        The worker has a copy of the Stream, which it may change.
        """
        torch = sys.modules.get("torch")
        worker = torch.utils.data.get_worker_info() if torch else None
        if worker is None:
            return True
        if self._facts is None:
            self._open()
        assert self._facts
        rank, world = self._group
        parts = 1 if self._stack else math.gcd(self._facts["samples_per_step"], worker.num_workers)
        if worker.id >= parts:
            return False
        self.close()
        # The loader asks worker 0 first, so worker 0 takes the part with the next sample.
        batch = self._facts["global_batch"]
        next_part = (self._own_index(self._watermark) % batch - rank) // world
        self._group = (rank + world * ((next_part + worker.id) % parts), world * parts)
        self._delivered = {index for index in self._delivered
                           if index % batch % (world * parts) == self._group[0]}
        return True

    def _items(self) -> Iterator[Any]:
        for sample in self._samples():
            yield sample if self._raw else self._features(sample)

    def _steps(self) -> Iterator[dict[str, Any]]:
        members: list[dict[str, numpy.ndarray]] = []
        for sample in self._samples():
            members.append(self._expand(sample))
            if len(members) == self._facts["samples_per_step"]:
                step = {key: numpy.stack([one[key] for one in members]) for key in members[0]}
                members = []
                yield to_torch(step, self._pin) if self._tensors == "torch" else step

    def _expand(self, sample: Sample) -> dict[str, numpy.ndarray]:
        features = sample.expand()
        features["index"] = numpy.array(sample.index, dtype=numpy.int64)
        return features

    def _features(self, sample: Sample) -> dict[str, Any]:
        features = self._expand(sample)
        return to_torch(features, self._pin) if self._tensors == "torch" else features

    def _samples(self) -> Iterator[Sample]:
        """Yields the samples. After close() it opens a new connection."""
        while not self._is_complete():
            self._open()
            facts = self._facts
            sizes = (facts["crop_size"], facts["max_msa_clusters"], facts["max_extra_msa"],
                     self._n_templ)
            while (item := self._next()) is not None:
                if isinstance(item, tuple):
                    self.skipped.append(Skipped(*item))
                    self._deliver(item[0])
                    continue
                sample = Sample(item, sizes)
                del item
                self._deliver(sample.index)
                yield sample
                del sample
        self.close()

    def _next(self) -> Any:
        """Returns the next sample or report, or None after the last one and after close()."""
        if self._core is None or self._is_complete():
            return None
        return self._core.next()

    def _is_complete(self) -> bool:
        steps = self._run["steps"]
        if steps == 0 or self._facts is None:
            return False
        end = (self._run["first_step"] + steps) * self._facts["global_batch"]
        return self._own_index(self._watermark) >= end


def _template_date(text: str | None) -> int:
    """Returns the wire's number: 0 keeps the plan's rule, 1 is the query's date, 2 any date."""
    if text is None:
        return 0
    if text in ("query", "any"):
        return 1 if text == "query" else 2
    year, month, day = text.split("-")
    return int(year) * 10000 + int(month) * 100 + int(day)


def _register_with_torch() -> None:
    """Makes a Stream an IterableDataset where PyTorch is imported, without importing it."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.utils.data.IterableDataset.register(Stream)
