"""Samples from a feature server."""

from __future__ import annotations

import functools
import importlib.util
import logging
import math
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from multiprocessing.context import get_spawning_popen
from multiprocessing.sharedctypes import RawArray
from typing import Any

import numpy
from numpy.typing import ArrayLike

from . import _core
from ._checks import MOST_U32, MOST_U64, date, integer, milliseconds
from ._launcher import place
from .arrays import Features, to_torch
from .errors import Error
from .sample import Sample, Skipped

_STATE_VERSION = 1
_MOST_STEPS, _MOST_BATCH = 2**40, 65536  # as proto/limits.h has them
_MOST_CLUSTERS, _MOST_EXTRA = 65536, 1048576  # likewise
_SINCE = {"msa_clusters": 0, "extra_msa": 0}  # values for states of older versions, which lack them
_PLAN_BYTES = 31
_TOKEN_SAMPLES = 65536  # beyond the first missing sample, which a server takes as given out
_WHOLE_CHAINS = ("eval", "predict")  # plans that go through the chains of the snapshot in order
_PAUSE_S = 0.2  # between two attempts to connect again
_log = logging.getLogger("foldmill")

# Every own sample with an index below the first number was given out, and those beyond it that are
# in the set. It changes as a whole, because an interrupt may come between any two calls.
_Place = tuple[int, frozenset[int]]


class Stream:
    """The samples of a run, in the run's order, as an iterable.

    Each item is a dict of OpenFold's 50 features (``Sample.expand``) and `index`, the number of the
    sample in the run; ``raw=True`` gives Sample objects instead. With ``stack=True`` an item is a
    whole step: every array has a leading axis with the rank's samples of the step, as OpenFold's
    collator makes it. Samples that were skipped are missing in their step.

    Nothing is connected before the first item or ``facts()`` is asked for. Iterating raises Error
    when the server refuses the stream or cannot make a sample, and when no server answers for
    `retry_s`. `url` may name several servers of one snapshot: when one is lost, the stream
    continues from another one with the same bytes, and it moves to a quicker one.

    A Stream can be iterated once at a time. Leaving a loop keeps the place: the next loop begins
    after the last item that was given out. An error or an interrupt while an item is made leaves it
    to the next loop, a step as a whole. ``state_dict()`` says what was given out, and
    ``load_state_dict()`` before iterating continues behind it, in another process too. A Stream may
    be pickled or forked; the copy opens a separate connection and keeps the place.

    Under ``torch.utils.data.DataLoader(stream, batch_size=None, num_workers=N)`` the workers divide
    the samples of a step among them, so N should divide the rank's samples per step; workers that
    find no part deliver nothing. A worker keeps its own state, so a run that must resume, or begins
    a second loop, counts what it used: ``stream.deliver(features["index"])`` in the main process.
    A second loop that would give the same samples again raises RuntimeError.
    """

    skipped: list[Skipped]  #: samples that the server could not make, with on_error="skip"
    _client: _core.Stream | None = None  # also of an object that __init__ refused

    def __init__(self, url: str, *, plan: str, snapshot: str | None = None, seed: int = 0,
                 steps: int = 0, first_step: int = 0, rank: int | None = None,
                 world: int | None = None, batch: int = 0, crop: int = 0, cycles: int = 0,
                 msa_clusters: int = 0, extra_msa: int = 0, max_template_date: str | None = None,
                 order: str = "strict", on_error: str = "stop", ahead: int = 8, raw: bool = False,
                 stack: bool = False, tensors: str = "numpy", pin: bool = False,
                 tls_cert: str | None = None, tls_key: str | None = None,
                 tls_ca: str | None = None, token_file: str | None = None,
                 insecure: bool = False, retry_s: float = 60, timeout_s: float = 600,
                 n_templ: int = 4) -> None:
        """Checks and remembers the parameters. TypeError, ValueError.

        url                unix:PATH, tls://HOST:PORT or tcp://HOST:PORT, or several with commas
        plan               the sampling plan, for example "af2-initial"
        snapshot           the snapshot's name; None takes the server's first
        seed               of the run, 0 to 2**64 - 1
        steps, first_step  steps of the run, counted from first_step; steps=0 is endless, and with
                           the plans "eval" and "predict" it is one pass over the chains
        rank, world        this consumer and the number of consumers of the run; None takes what
                           torchrun, MPI or Slurm says, and 0 of 1 without them
        batch              samples of a step of all consumers; 0 keeps the plan's
        crop, cycles       residues of a crop and the most recycling cycles; 0 keeps the plan's
        msa_clusters,
        extra_msa          clustered and extra MSA rows of a cycle; 0 keeps the plan's
        max_template_date  "YYYY-MM-DD", "query" (the chain's own date) or "any"; None keeps the
                           plan's
        order              "strict", "bounded:W": at most W later samples overtake a slow one,
                           or "free"
        on_error           "stop", or "skip" (then `skipped` lists the samples left out)
        ahead              samples that are received ahead or in use, 2 to 1024
        raw, stack         items are Samples; items are whole steps
        tensors, pin       "numpy" or "torch"; pin copies torch tensors into pinned memory
        tls_*, token_file  credentials, as of `foldmill fetch`; the token may be in FOLDMILL_TOKEN
        insecure           allows tcp:// to other machines
        retry_s, timeout_s seconds to look for a server; seconds to wait for a sample
        n_templ            templates of expanded features
        """
        self._process = 0  # that opened the connection
        self._worker = 0  # process of a DataLoader that took its part of the samples
        self._loop = _new_loop()
        if not isinstance(url, str) or not url:
            raise ValueError(f"url: found {url!r}, expected unix:PATH, tls://HOST:PORT or "
                             "tcp://HOST:PORT")
        if on_error not in ("stop", "skip"):
            raise ValueError(f"on_error: found {on_error!r}, expected 'stop' or 'skip'")
        if not isinstance(plan, str) or not 1 <= len(plan.encode()) <= _PLAN_BYTES:
            raise ValueError(f"plan: found {plan!r}, expected a name of 1 to {_PLAN_BYTES} bytes")
        if not re.fullmatch(r"strict|free|bounded:[1-9][0-9]*", str(order)):
            raise ValueError(f"order: found {order!r}, expected 'strict', 'bounded:W' or 'free'")
        if snapshot is not None and not isinstance(snapshot, str):
            raise TypeError(f"snapshot: found {snapshot!r}, expected a name or None")
        group = place(rank, world)
        _check_items(order, raw, stack, tensors, pin)
        self._run: dict[str, Any] = {
            "plan": plan, "snapshot": snapshot, "seed": integer("seed", seed, 0, MOST_U64),
            "steps": integer("steps", steps, 0, _MOST_STEPS),
            "first_step": integer("first_step", first_step, 0, _MOST_STEPS),
            "batch": integer("batch", batch, 0, _MOST_BATCH),
            "crop": integer("crop", crop, 0, MOST_U32),
            "cycles": integer("cycles", cycles, 0, MOST_U32),
            "msa_clusters": integer("msa_clusters", msa_clusters, 0, _MOST_CLUSTERS),
            "extra_msa": integer("extra_msa", extra_msa, 0, _MOST_EXTRA),
            "max_template_date": _template_date(max_template_date), "order": order,
        }
        self._group = group
        self._connect: dict[str, Any] = {
            "url": url, "skip": on_error == "skip", "ahead": integer("ahead", ahead, 2, 1024),
            "agent": "foldmill python", "resume_ms": milliseconds("retry_s", retry_s),
            "event_ms": milliseconds("timeout_s", timeout_s), "tls_cert": tls_cert,
            "tls_key": tls_key, "tls_ca": tls_ca, "token_file": token_file, "insecure": insecure,
        }
        self._retry_s = retry_s
        self._raw, self._stack, self._tensors, self._pin = raw, stack, tensors, pin
        self._n_templ = integer("n_templ", n_templ, 0, MOST_U32)
        self._place: _Place = (0, frozenset())  # what was given out
        self._facts: dict[str, Any] | None = None
        self._stats: dict[str, Any] = {}  # of the connection before
        self.skipped = []
        self._join_datasets()

    def __repr__(self) -> str:
        rank, world = self._group
        return (f"<foldmill.Stream of plan {self._run['plan']} from {self._connect['url']}: "
                f"rank {rank} of {world}>")

    def __getstate__(self) -> dict[str, Any]:
        state = {**self.__dict__, "_client": None}
        if get_spawning_popen() is None:  # memory is shared with child processes only
            state["_loop"] = None
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self._loop is None:
            self._loop = _new_loop()
        self._join_datasets()

    def _join_datasets(self) -> None:
        """Makes the Stream an IterableDataset where PyTorch is imported, without importing it."""
        torch = sys.modules.get("torch")
        if torch is None or isinstance(self, dataset := torch.utils.data.IterableDataset):
            return
        if hasattr(dataset, "register"):
            dataset.register(Stream)
        else:  # PyTorch 1.13, whose class is no abstract one
            plain: type = type(self)
            self.__class__ = _dataset_class(plain, dataset)

    # -- state

    def state_dict(self) -> dict[str, Any]:
        """Returns plain values (JSON can hold them) that record the samples given out so far.

        They hold the run's parameters, so that no other run continues from them.
        """
        watermark, beyond = self._place
        return {"version": _STATE_VERSION, "run": dict(self._run), "group": list(self._group),
                "facts": self._facts, "watermark": watermark, "delivered": sorted(beyond)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues after the samples of a state of ``state_dict()``.

        Raises ValueError that names the first parameter of the run that differs and the
        `first_step` with which another run would go on, and TypeError for what is no state.
        """
        if not isinstance(state, Mapping):
            raise TypeError(f"state: found {state!r:.80}, expected what state_dict() returned")
        if state.get("version") != _STATE_VERSION:
            raise ValueError(f"the state has version {state.get('version')!r}, "
                             f"expected {_STATE_VERSION}")
        ours: dict[str, Any] = {**self._run, "group": list(self._group)}
        run: dict[str, Any] = {**_SINCE, **state.get("run", {})}
        missing = {"run", "group", "facts", "watermark", "delivered"} - set(state)
        missing |= set(self._run) - set(run)
        if missing:
            raise ValueError(f"this is not a state of a Stream: it lacks {sorted(missing)[0]!r}")
        theirs: dict[str, Any] = {**run, "group": list(state["group"])}
        for key, value in ours.items():
            if theirs[key] != value:
                raise ValueError(f"the state is of a run with {_parameter(key, theirs[key])}, "
                                 f"this one has {_parameter(key, value)}{_remedy(state)}")
        self.close()
        self._facts = state["facts"]
        self._place = (state["watermark"], frozenset(state["delivered"]))
        self._loop = _new_loop()

    def deliver(self, *indices: ArrayLike) -> None:
        """Records that samples were used, by their indices: numbers, arrays or tensors of them.

        Only DataLoaders with workers need it; see the class. It may connect, as ``facts()`` does.

        Raises TypeError for what is no index, and ValueError for a sample that is not this rank's.
        Then none is recorded.
        """
        self.facts()
        own = [integer("deliver", value, 0, MOST_U64)
               for index in indices for value in numpy.asarray(index).reshape(-1).tolist()]
        for value in own:
            if self._own_index(value) != value:
                raise ValueError(f"deliver: sample {value} is not one of rank {self._group[0]} of "
                                 f"{self._group[1]}")
        self._place = self._place_behind(own)

    def _place_behind(self, indices: list[int]) -> _Place:
        """Returns the place where these samples were given out, too."""
        watermark, before = self._place
        beyond = before.union(index for index in indices if index >= watermark)
        while self._facts and (own := self._own_index(watermark)) in beyond:
            watermark = own + 1
        return watermark, frozenset(index for index in beyond if index >= watermark)

    def _own_index(self, least: int) -> int:
        """Returns the smallest index of this rank that is at least `least`."""
        assert self._facts
        batch: int = self._facts["global_batch"]
        return _index_of_rank(max(least, self._run["first_step"] * batch), batch, self._group)

    def _token(self) -> str | None:
        """Returns the resume token in the text form of foldmill's checkpoints.

        The token may leave out what other ranks delivered: a server looks at the group's own
        samples only.
        """
        watermark, beyond = self._place
        if not self._facts or (watermark == 0 and not beyond):
            return None
        first = self._own_index(watermark)
        bits = bytearray()
        places = sorted(index - first for index in beyond)
        if places and places[-1] >= _TOKEN_SAMPLES:
            raise ValueError(f"sample {first + places[-1]} was given out and sample {first} was "
                             f"not; a stream can continue if less than {_TOKEN_SAMPLES} samples "
                             "are between them")
        for place in places:
            bits.extend(bytes(place // 8 + 1 - len(bits)))
            bits[place // 8] |= 1 << place % 8
        epoch = first // self._facts["epoch_samples"]
        return f"{epoch} {first} {bits.hex() or '-'}"

    # -- connections

    def _open(self) -> _core.Stream:
        """Connects to the first server that answers; the C client handles later losses."""
        self.close()
        end = time.monotonic() + self._retry_s
        is_first = True
        while self._client is None:
            try:
                self._client = _core.open_stream(
                    group=self._group[0], groups=self._group[1], delivered=self._token(),
                    **self._run, **self._connect)
            except Error as error:
                may_pass = error.kind in ("closed", "io", "limit")
                if not may_pass or time.monotonic() >= end:
                    raise
                if is_first:
                    _log.warning("no server yet, trying for %g s: %s", self._retry_s, error)
                is_first = False
                time.sleep(_PAUSE_S)
        self._process = os.getpid()
        self._facts = self._client.facts()
        return self._client

    def facts(self) -> dict[str, Any]:
        """Returns what the server announced about the stream; connects if needed.

        ================================  ========================================================
        snapshot, snapshot_hash           name and SHA-256 of the snapshot
        n_chain                           its chains, or its complexes where it has no chain
        n_sample                          samples of this rank that were left (endless: 2**64 - 1)
        global_batch, samples_per_step    samples of a step: of all ranks, of this rank
        epoch_samples                     samples of an epoch of the plan
        crop_size                         residues of expanded features
        max_msa_clusters, max_extra_msa   rows of expanded features; of complexes, the most rows of
                                          a cycle and atoms of a crop
        max_cycle                         the most recycling cycles
        max_sample_bytes                  of a compact sample
        ================================  ========================================================

        Raises Error as iterating does.
        """
        if self._facts is None:
            self._open()
            self.close()
            assert self._facts is not None
        return dict(self._facts)

    def close(self) -> None:
        """Ends the connection; iterating again opens a new one behind what was given out."""
        client, self._client = self._client, None  # first, because the rest may be interrupted
        if client is not None and self._process == os.getpid():  # else it is the parent's
            self._stats = client.stats()
            client.close()

    def stats(self) -> dict[str, Any]:
        """Returns counters of the present connection, or of the last one.

        `samples`, `skipped` and `bytes` were received; `wait_p50_s`, `wait_p99_s` and `wait_max_s`
        are how many seconds the program waited for a sample. It is empty before the first
        connection.
        """
        return self._client.stats() if self._client is not None else dict(self._stats)

    # -- iteration

    def __iter__(self) -> Iterator[Any]:
        # A generator, because a DataLoader's worker passes on only errors of `next`.
        if self._take_workers_part():
            yield from self._items()

    def __del__(self) -> None:
        self.close()

    def _take_workers_part(self) -> bool:
        """In a DataLoader's worker: keeps only its part of the rank's samples, False for none.

        The worker has a copy of the Stream, which it may change.
        """
        torch = sys.modules.get("torch")
        worker = torch.utils.data.get_worker_info() if torch else None
        self._check_loop(worker)
        if worker is None:
            return True
        if self._raw:
            raise ValueError("raw=True gives Samples, which a DataLoader's workers cannot send to "
                             "the main process; use num_workers=0 or expanded features")
        if self._worker == os.getpid():
            raise RuntimeError("persistent_workers keeps samples that the last loop did not take, "
                               "so they would be lost; use persistent_workers=False")
        self._worker = os.getpid()
        facts = self.facts()
        rank, world = self._group
        parts = 1 if self._stack else math.gcd(facts["samples_per_step"], worker.num_workers)
        if worker.id >= parts:
            return False
        self.close()
        # The loader asks worker 0 first, so worker 0 takes the part with the next sample.
        batch = facts["global_batch"]
        watermark, beyond = self._place
        next_part = (self._own_index(watermark) % batch - rank) // world
        self._group = (rank + world * ((next_part + worker.id) % parts), world * parts)
        self._place = (watermark, frozenset(index for index in beyond if
                                            index % batch % (world * parts) == self._group[0]))
        return True

    def _check_loop(self, worker: Any) -> None:
        """Refuses a second loop of workers if no sample of the first was reported with deliver().

        The main process and all workers share the record. The workers of one loop recognise it by
        the seed that they have in common.
        """
        if self._loop is None:
            return
        watermark, beyond = self._place
        place = [watermark, len(beyond)]
        loop = worker.seed - worker.id if worker else 0
        # Workers of one loop begin at the same time. Each reads the numbers from the last one
        # backwards and writes them forwards, so one that reads a new place reads its loop as well.
        has_begun, *last_place, last = self._loop[::-1]
        if has_begun and last != loop and last_place[::-1] == place:
            raise RuntimeError("a loop over a DataLoader with workers has begun at this place, so "
                               "another one would give the same samples again; call "
                               "stream.deliver(features['index']) for those that were used, or "
                               "stream.load_state_dict(stream.state_dict()) to repeat them")
        if worker:
            self._loop[:] = [loop, *place, 1]

    def _items(self) -> Iterator[Any]:
        """Yields samples or steps.

        What an item is made of counts as given out only when the item is whole, so that a loop that
        ends before, by an error or an interrupt, leaves nothing behind.
        """
        for arrivals in self._arrivals():
            made = [value for _, value in arrivals if not isinstance(value, Skipped)]
            item = self._item(made) if made else None
            del made
            place = self._place_behind([index for index, _ in arrivals])
            self._note_skipped([value for _, value in arrivals if isinstance(value, Skipped)])
            del arrivals
            self._place = place  # no call, so no interrupt, comes between this line and the next
            if item is not None:
                yield item
            del item

    def _note_skipped(self, skipped: list[Skipped]) -> None:
        """Appends what was skipped, once where an interrupt makes it arrive again."""
        last = self.skipped[len(self.skipped) - len(skipped):]
        if [one.index for one in last] != [one.index for one in skipped]:
            self.skipped += skipped

    def _item(self, made: list[Any]) -> Any:
        """Returns the sample, or the step of the samples, in the form that was asked for."""
        if self._raw:
            return made[0]
        features = ({key: numpy.stack([one[key] for one in made]) for key in made[0]}
                    if self._stack else made[0])
        return to_torch(features, self._pin) if self._tensors == "torch" else features

    def _expand(self, sample: Sample) -> Features:
        features = sample.expand()
        features["index"] = numpy.array(sample.index, dtype=numpy.int64)
        return features

    def _arrivals(self) -> Iterator[list[tuple[int, Any]]]:
        """Yields what arrives for an item: indices with a sample each, or with a Skipped.

        A step is what has its number, however many samples of it were skipped or given out before.
        The receiver delivers the indices before it goes on. After close() this opens a new
        connection, which sends again what was not delivered.
        """
        while not self._is_complete():
            facts = self._open().facts()
            sizes = (facts["crop_size"], facts["max_msa_clusters"], facts["max_extra_msa"],
                     self._n_templ)
            batch = facts["global_batch"]
            size = facts["samples_per_step"] if self._stack else 1
            arrivals: list[tuple[int, Any]] = []
            while (item := self._next()) is not None:
                arrival = self._arrival(item, sizes)
                del item
                if arrivals and arrivals[0][0] // batch != arrival[0] // batch:
                    yield arrivals
                    arrivals = []
                arrivals.append(arrival)
                is_last = self._stack and self._is_complete(arrival[0] + 1)
                del arrival
                if len(arrivals) == size or is_last:
                    yield arrivals
                    arrivals = []
        self.close()

    def _arrival(self, item: Any, sizes: tuple[int, int, int, int]) -> tuple[int, Any]:
        if isinstance(item, tuple):
            return item[0], Skipped(*item)
        sample = Sample(item, sizes)
        return sample.index, sample if self._raw else self._expand(sample)

    def _next(self) -> _core.Sample | tuple[int, str, str] | None:
        """Returns the next sample or report, or None after the last one and after close()."""
        if self._client is None or self._is_complete():
            return None
        return self._client.next()

    def _is_complete(self, least: int = 0) -> bool:
        """Whether no sample of this rank is left that has at least the index `least`."""
        if self._facts is None:
            return False
        steps: int = self._run["steps"]
        is_pass = steps == 0 and self._run["plan"] in _WHOLE_CHAINS
        if steps == 0 and not is_pass:
            return False
        end = (self._facts["n_chain"] if is_pass else
               (self._run["first_step"] + steps) * self._facts["global_batch"])
        return bool(self._own_index(max(self._place[0], least)) >= end)


def _new_loop() -> Any:
    """Returns the record of the last loop of workers; None where PyTorch is not used.

    Its numbers: the seed of the loop, what was given out before it (the watermark and the number of
    samples beyond it), and 1 after the first loop.
    """
    return RawArray("Q", 4) if "torch" in sys.modules else None


def _check_items(order: str, raw: bool, stack: bool, tensors: str, pin: bool) -> None:
    """Raises ValueError or ImportError for items that no stream can give."""
    if tensors not in ("numpy", "torch"):
        raise ValueError(f"tensors: found {tensors!r}, expected 'numpy' or 'torch'")
    if stack and raw:
        raise ValueError("stack needs expanded features, so it excludes raw")
    if stack and order != "strict":
        raise ValueError("stack needs the order 'strict'")
    if raw and tensors == "torch":
        raise ValueError("raw gives Samples, whose arrays are NumPy's, so it excludes "
                         "tensors='torch'")
    if pin and tensors != "torch":
        raise ValueError("pin needs tensors='torch'")
    if tensors == "torch" and importlib.util.find_spec("torch") is None:
        raise ImportError("tensors='torch' needs PyTorch, which is not installed; "
                          "pip install torch", name="torch")


def _parameter(key: str, value: Any) -> str:
    return f"rank {value[0]} of {value[1]}" if key == "group" else f"{key} {value!r}"


def _index_of_rank(least: int, batch: int, group: tuple[int, int]) -> int:
    """Returns the smallest index that is at least `least` and of the rank group[0] of group[1]."""
    rank, world = group
    step, slot = divmod(least, batch)
    slot += (rank - slot) % world
    return step * batch + slot if slot < batch else (step + 1) * batch + rank


def _remedy(state: Mapping[str, Any]) -> str:
    """Says with which first step another run goes on behind a state; "" if it gave out nothing."""
    facts = state["facts"]
    if not facts or not (state["watermark"] or state["delivered"]):
        return ""
    rank, world = state["group"]
    batch: int = facts["global_batch"]
    step = _index_of_rank(state["watermark"], batch, (rank, world)) // batch
    return f"; without load_state_dict(), first_step={step} goes on with the first step that " \
           "was not given out as a whole"


def _template_date(text: str | None) -> int:
    """Returns the wire's number: 0 keeps the plan's rule, 1 is the query's date, 2 any date."""
    numbers = {None: 0, "query": 1, "any": 2}
    if text in numbers:
        return numbers[text]
    return int(date("max_template_date", text or "", ("query", "any")).replace("-", ""))


@functools.cache
def _dataset_class(cls: type, dataset: type) -> type:
    """Returns `cls` with `dataset` as another base; its objects are pickled as those of `cls`."""
    def __reduce__(self: Stream) -> tuple[Any, ...]:
        return object.__new__, (cls,), self.__getstate__()
    return type(cls.__name__, (cls, dataset), {"__reduce__": __reduce__})
