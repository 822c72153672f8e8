"""Turns the extension module's arrays into NumPy arrays or PyTorch tensors, without a copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterable

import numpy
from numpy.typing import NDArray

if TYPE_CHECKING:
    from ._core import CoreArray

#: Arrays by OpenFold's names of features.
Features = dict[str, NDArray[Any]]


def to_numpy(array: CoreArray) -> NDArray[Any]:
    """Returns a view of (key, dtype, shape, block); it keeps the block's memory alive."""
    _, dtype, shape, block = array
    view: NDArray[Any] = numpy.frombuffer(block, dtype=dtype)  # type: ignore[call-overload]
    return view.reshape(shape)


def to_dict(arrays: Iterable[CoreArray]) -> Features:
    """Returns views of the arrays by their keys."""
    return {array[0]: to_numpy(array) for array in arrays}


def to_torch(features: Features, pin: bool) -> dict[str, Any]:
    """Returns tensors that share the arrays' memory, or pinned copies of them."""
    import torch

    tensors = {key: torch.from_numpy(array) for key, array in features.items()}
    return {key: tensor.pin_memory() for key, tensor in tensors.items()} if pin else tensors
