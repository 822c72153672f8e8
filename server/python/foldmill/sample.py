"""One received sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ._checks import MOST_U32, integer
from .arrays import Features, to_dict, to_numpy

if TYPE_CHECKING:
    from . import _core


@dataclass(frozen=True)
class Skipped:
    """A sample that the server could not make; only streams with ``on_error="skip"`` have them."""

    index: int  #: number of the sample in the run
    kind: str  #: as Error.kind
    reason: str  #: a sentence


class Sample:
    """A received sample: a crop of a chain, in the compact form in which it was sent.

    Its arrays are views of the memory that it was received into. A stream has memory for `ahead`
    samples, so drop a Sample, and the arrays of ``tensors()``, when they are used up. Arrays of
    ``expand()`` have memory of their own. A Sample cannot be pickled.
    """

    name: str  #: the chain, for example "1abc_A"
    chain: int  #: its number in the snapshot, from 0
    index: int  #: number of the sample in the run: step * global batch + slot
    step: int  #: from 0
    slot: int  #: place in the step, from 0
    epoch: int  #: from 0, by the plan's samples per epoch
    seed: int  #: of the run
    n_cycle: int  #: recycling cycles that it has
    n_res_chain: int  #: residues of the whole chain
    crop_start: int  #: first residue of the crop, from 0
    n_res: int  #: residues of the crop
    n_seq_chain: int  #: rows of the chain's de-duplicated alignment
    resolution: float  #: in Å; 0 if it is unknown
    is_distillation: bool  #: the structure is a prediction
    use_clamped_fape: bool  #: drawn for the sample: its backbone loss is clamped

    def __init__(self, core: _core.Sample, sizes: tuple[int, int, int, int]) -> None:
        """Streams make samples; `sizes` are those of the plan, for ``expand()``."""
        self._core = core
        self._sizes = sizes
        self.__dict__.update(core.head())

    def __repr__(self) -> str:
        return f"<foldmill.Sample {self.index} of {self.name}: {self.n_res} residues>"

    def __reduce__(self) -> Any:
        raise TypeError("a foldmill.Sample cannot be pickled or sent to another process, because "
                        "its memory belongs to its stream; send the arrays of sample.expand()")

    def tensors(self) -> dict[str, Any]:
        """Returns the compact tensors as sent, without a copy.

        Arrays that all cycles share are arrays: aatype [n_res] uint8, residue_index [n_res] int32,
        all_atom_positions [n_res, 37, 3] float32 in Å, all_atom_mask [n_res] uint64 (bit a is
        atom a), and those of templates. Arrays that differ by cycle, such as msa and extra_msa
        [rows, n_res], are lists with one array per cycle. docs/reference/sampling.md has them all.
        """
        found: dict[str, Any] = {}
        for cycle, array in self._core.tensors():
            if cycle is None:
                found[array[0]] = to_numpy(array)
            else:
                found.setdefault(array[0], []).append(to_numpy(array))
        return found

    def hash(self) -> int:
        """Returns XXH3 of the encoded sample, a 64-bit number.

        `foldmill fetch --digest` combines these hashes.
        """
        return self._core.hash()

    def expand(self, n_res: int | None = None, n_clust: int | None = None,
               n_extra: int | None = None, n_templ: int | None = None) -> Features:
        """Returns the 50 arrays of OpenFold's data loader, or those of a complex for Protenix.

        All are float32 or int64.

        The sizes of the arrays are numbers of residues, MSA clusters, extra rows and templates;
        None takes the plan's. Shorter samples are padded with zeros and longer ones are refused.
        The last axis of every array is the recycling cycle, for example:

        ==========================  ==================================  =======
        aatype                      [n_res, n_cycle]                    int64
        msa_feat                    [n_clust, n_res, 49, n_cycle]       float32
        extra_msa                   [n_extra, n_res, n_cycle]           int64
        all_atom_positions          [n_res, 37, 3, n_cycle] in Å        float32
        backbone_rigid_tensor       [n_res, 4, 4, n_cycle]              float32
        template_all_atom_mask      [n_templ, n_res, 37, n_cycle]       float32
        ==========================  ==================================  =======

        A sample of a complex gives Protenix's features and labels instead: the arrays of the whole
        form of docs/reference/complex-samples.md. Their sizes are its own, and n_res to n_templ
        have no effect. `msa`, `has_deletion` and `deletion_value` have the rows of all cycles;
        those of cycle c are msa_first_row[c] to msa_first_row[c + 1] - 1. `atom_order_left_out`
        counts groups of equivalent atoms that are too large to exchange labels.

        Raises Error when the sample does not fit the sizes, ValueError for sizes above foldmill's
        limits.
        """
        given = {"n_res": n_res, "n_clust": n_clust, "n_extra": n_extra, "n_templ": n_templ}
        sizes = [own if size is None else integer(name, size, 0, MOST_U32)
                 for (name, size), own in zip(given.items(), self._sizes)]
        return to_dict(self._core.expand(*sizes))
