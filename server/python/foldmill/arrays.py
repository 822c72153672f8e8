"""Turns the extension module's arrays into NumPy arrays or PyTorch tensors, without a copy."""

from __future__ import annotations

from typing import Any, Iterable

import numpy

Core = tuple[str, str, tuple[int, ...], Any]


def to_numpy(array: Core) -> numpy.ndarray:
    """Returns a view of (key, dtype, shape, block); it keeps the block's memory alive."""
    _, dtype, shape, block = array
    return numpy.frombuffer(block, dtype=dtype).reshape(shape)


def to_dict(arrays: Iterable[Core]) -> dict[str, numpy.ndarray]:
    """Returns views of the arrays by their keys."""
    return {array[0]: to_numpy(array) for array in arrays}


def to_torch(features: dict[str, numpy.ndarray], pin: bool) -> dict[str, Any]:
    """Returns tensors that share the arrays' memory, or pinned copies of them."""
    import torch

    tensors = {key: torch.from_numpy(array) for key, array in features.items()}
    return {key: tensor.pin_memory() for key, tensor in tensors.items()} if pin else tensors
