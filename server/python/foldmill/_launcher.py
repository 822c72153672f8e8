"""Which of a launcher's processes this one is, from the variables that launchers set."""

from __future__ import annotations

import os

from ._checks import integer

_MOST_WORLD = 65536  # as FM_LIMIT_N_GROUP of proto/limits.h
# The launchers that `foldmill train` knows, in its order (trainer/app/ranks/world.c).
_LAUNCHERS = (("foldmill", "FOLDMILL_RANK", "FOLDMILL_RANKS"), ("torchrun", "RANK", "WORLD_SIZE"),
              ("Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
              ("MPI", "PMI_RANK", "PMI_SIZE"), ("Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"))


def _number(name: str, least: int, most: int) -> int:
    text = os.environ[name]
    if not (text.isascii() and text.isdigit() and least <= int(text) <= most):
        raise ValueError(f"the variable {name} is {text!r}, expected {least} to {most}")
    return int(text)


def _find() -> tuple[str, int, int] | None:
    for name, rank, size in _LAUNCHERS:
        if rank in os.environ and size in os.environ:
            world = _number(size, 1, _MOST_WORLD)
            return name, _number(rank, 0, world - 1), world
    return None


def place(rank: int | None, world: int | None) -> tuple[int, int]:
    """Returns (rank, world): what is given, and otherwise what a launcher says; (0, 1) without one.

    Raises ValueError for a number out of range, for half of the two without a launcher, and for
    numbers that contradict the launcher's: another rank among as many, or a world that does not
    divide its number of processes. A world that divides it is one of groups that share samples.
    """
    found = _find()
    if rank is None and world is None:
        return found[1:] if found else (0, 1)
    if world is None:
        world = found[2] if found else 1
    world = integer("world", world, 1, _MOST_WORLD)
    if rank is None:
        if found and found[2] == world:
            rank = found[1]
        elif world == 1:
            rank = 0
        else:
            raise ValueError(f"rank: not given, expected 0 to {world - 1} with world={world}")
    rank = integer("rank", rank, 0, world - 1)
    if found and found[2] > 1:
        name, its, size = found
        if size % world:
            raise ValueError(f"world: found {world}, but {name} has started {size} processes, "
                             f"which {world} does not divide")
        if size == world and its != rank:
            raise ValueError(f"rank: found {rank}, but {name} has started this process as rank "
                             f"{its} of {size}")
    return rank, world
