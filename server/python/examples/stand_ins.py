"""Makes OpenFold importable when some of the packages that it imports are missing.

OpenFold imports packages that its model, its losses and its training step never call: readers and
writers of structures, loggers, a compiled attention for inference. `install` provides an empty
module for each package that is not installed. Calling anything in such a module is an error.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import sys
import types
from collections.abc import Sequence
from typing import Any

_UNUSED = ("Bio", "attn_core_inplace_cuda", "dllogger", "modelcif")


class _Absent(types.ModuleType):
    """A module whose attributes are classes that cannot be instantiated."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        module = self.__name__

        def refuse(self: object, *arguments: Any, **keywords: Any) -> None:
            raise ImportError(f"{module}.{name} is called, and {module} is not installed")

        return type(name, (), {"__init__": refuse})


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the packages of a list, with all of their submodules."""

    def __init__(self, packages: set[str]) -> None:
        self._packages = packages

    def find_spec(self, fullname: str, path: Sequence[str] | None = None,
                  target: types.ModuleType | None = None) -> importlib.machinery.ModuleSpec | None:
        if fullname.split(".")[0] not in self._packages:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Absent(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def install() -> list[str]:
    """Stands in for the packages that are missing, and returns their names."""
    missing = {name for name in _UNUSED if importlib.util.find_spec(name) is None}
    sys.meta_path.append(_Finder(missing))
    if importlib.util.find_spec("tree") is None:  # dm-tree; one call while constants are made
        from torch.utils._pytree import tree_map

        tree = types.ModuleType("tree")
        tree.__spec__ = importlib.machinery.ModuleSpec("tree", None)
        setattr(tree, "map_structure", tree_map)
        sys.modules["tree"] = tree
        missing.add("tree")
    return sorted(missing)


def install_for_script() -> list[str]:
    """Does the same for train_openfold.py, which also imports wandb and DeepSpeed."""
    missing = install()
    if importlib.util.find_spec("wandb") is None:
        _put_empty("wandb")
        missing.append("wandb")
    if importlib.util.find_spec("deepspeed") is None:
        for name in ("deepspeed", "deepspeed.ops", "deepspeed.utils",
                     "deepspeed.utils.zero_to_fp32", "deepspeed.comm", "deepspeed.comm.comm"):
            _put_empty(name)
        never = types.SimpleNamespace(is_configured=lambda: False)
        setattr(sys.modules["deepspeed"], "checkpointing", never)
        setattr(sys.modules["deepspeed.comm.comm"], "is_initialized", lambda: False)
        missing.append("deepspeed")
    return missing


def accept_verbose() -> None:
    """Lets OpenFold's schedule pass `verbose`, which PyTorch's schedulers no longer take."""
    from torch.optim.lr_scheduler import LRScheduler

    original = LRScheduler.__init__
    if "verbose" not in inspect.signature(original).parameters:
        def begin(self: Any, optimizer: Any, last_epoch: int = -1, verbose: bool = False) -> None:
            original(self, optimizer, last_epoch)

        LRScheduler.__init__ = begin


def leave_out_violations() -> None:
    """Takes the violations out of OpenFold's loss; they weigh 0 in its initial training.

    OpenFold computes them for any weight, and needs a table for it that its source lacks.
    """
    import openfold.utils.loss
    import torch

    openfold.utils.loss.find_structural_violations = lambda batch, positions, **settings: {}
    openfold.utils.loss.violation_loss = lambda violations, aatype, **settings: torch.zeros(
        (), device=aatype.device)


def _put_empty(name: str) -> None:
    """Puts an empty package in place."""
    module = types.ModuleType(name)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
    module.__path__ = []
    sys.modules[name] = module
    parent, _, last = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], last, module)
