"""How a model is called: keyword arguments, nested inputs and constants become a flat row of tensors. Imports torch.

A program on a device takes tensors, one after another. Everything else that an example call has (numbers, ``None``,
texts) is a constant of the program.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from core.errors import ExportError
from models.loading import reference


@dataclass(frozen=True)
class Call:
    """The form of a model's call."""

    spec: Any
    """Of ``(args, kwargs)``, as pytree has it."""
    leaves: tuple[Any, ...]
    """All of them; the places of tensors hold ``None``."""
    tensors: tuple[int, ...]
    """Places of the tensors among the leaves."""

    @property
    def plain(self) -> bool:
        """Whether it is a tuple of tensors already."""
        args, kwargs = self.arguments([0] * len(self.tensors))
        return not kwargs and len(args) == len(self.tensors) == len(self.leaves) and all(one == 0 for one in args)

    def arguments(self, tensors: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of the model's own call, with these tensors."""
        leaves = list(self.leaves)
        for place, one in zip(self.tensors, tensors, strict=True):
            leaves[place] = one
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        return args, kwargs


def _parts(value: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments: of a tuple the former, of a dictionary the latter."""
    return ((), dict(value)) if isinstance(value, Mapping) else (tuple(value), {})


def understood(value: Any) -> tuple[Call, tuple[Any, ...]]:
    """The form of a call and its tensors, with plain strides.

    Args:
        value: a tuple or list of arguments, or a dictionary of keyword arguments.
    """
    leaves, spec = pytree.tree_flatten(_parts(value))
    places = tuple(place for place, one in enumerate(leaves) if isinstance(one, torch.Tensor))
    constants = tuple(None if isinstance(one, torch.Tensor) else one for one in leaves)
    return Call(spec, constants, places), tuple(reference.laid_out(leaves[place]) for place in places)


def like(call: Call, value: Any, what: str) -> tuple[Any, ...]:
    """The tensors of another call of the same form.

    Raises:
        ExportError: it has another form, or other constants.
    """
    other, tensors = understood(value)
    if other.spec != call.spec or other.tensors != call.tensors:
        raise ExportError(
            f"{what} do not have the form of the example inputs.",
            f"they have {len(tensors)} tensors, the example inputs {len(call.tensors)}, or other names",
            "give the same arguments as in the example inputs",
        )
    if other.leaves != call.leaves:
        raise ExportError(
            f"{what} have other constants than the example inputs.",
            f"{other.leaves} and {call.leaves}: what is not a tensor is fixed in the program",
            "export a program for each of them, or pass torch.tensor(value)",
        )
    return tensors


def flattened(module: Any, call: Call) -> Any:
    """The module, called with tensors alone; names of its layers stay."""
    if call.plain:
        return module
    kind = type(module)
    if "forward" in vars(module):  # replaced in this object: its class's would not be called
        return flattened(_Around(module), call)

    def forward(self: Any, *tensors: Any) -> Any:
        args, kwargs = call.arguments(tensors)
        return kind.forward(self, *args, **kwargs)

    _name(forward, len(call.tensors))
    module.__class__ = type(kind.__name__, (kind,), {"forward": forward, "__module__": kind.__module__})
    return module


def _name(forward: Any, count: int) -> None:
    """Give ``forward`` a parameter for each tensor: torch.export would take ``*tensors`` for a single nested one."""
    names = ["self", *(f"input{index}" for index in range(count))]
    parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    forward.__signature__ = inspect.Signature(parameters)


class _Around(torch.nn.Module):  # type: ignore[misc]  # torch carries no types here
    """A module whose forward is not its class's."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.module = module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)


def shapes(module: Any, value: Any, dynamic_shapes: Any) -> Any:
    """``dynamic_shapes`` of the model's own call for the flat one.

    Args:
        module: before `flattened`.
        dynamic_shapes: as torch.export takes them: by the names of arguments, or in their order.

    Raises:
        ExportError: they do not fit the arguments.
    """
    if dynamic_shapes is None:
        return None
    args, kwargs = _parts(value)
    bound = inspect.signature(module.forward).bind(*args, **kwargs).arguments
    rest = next(
        (name for name, one in inspect.signature(module.forward).parameters.items() if one.kind == one.VAR_KEYWORD), ""
    )
    named = {**{name: one for name, one in bound.items() if name != rest}, **bound.get(rest, {})}
    given = dynamic_shapes if isinstance(dynamic_shapes, Mapping) else dict(zip(named, dynamic_shapes, strict=False))
    unknown = [name for name in given if name not in named]
    if unknown:
        raise ExportError(
            f"dynamic_shapes names {', '.join(map(str, unknown))}, and the model is not called with that.",
            f"the example inputs are {', '.join(named)}",
            "name the arguments as in the example inputs",
        )
    # In the order of the flat call: positional arguments, then keywords as they were given.
    order = [name for name in named if name not in kwargs] + list(kwargs)
    return tuple(spec for name in order for spec in _specs(named[name], given.get(name), name))


def _specs(value: Any, spec: Any, name: str) -> list[Any]:
    """One for each tensor in ``value``."""
    if isinstance(value, torch.Tensor):
        return [spec]
    leaves = pytree.tree_leaves(value)
    if spec is None or not leaves or not any(isinstance(one, torch.Tensor) for one in leaves):
        return [None for one in leaves if isinstance(one, torch.Tensor)]
    children: list[tuple[Any, Any]]
    if isinstance(value, Mapping) and isinstance(spec, Mapping):
        children = [(one, spec.get(key)) for key, one in value.items()]
    elif isinstance(value, (tuple, list)) and isinstance(spec, (tuple, list)) and len(spec) == len(value):
        children = list(zip(value, spec, strict=True))
    else:
        raise ExportError(
            f"dynamic_shapes of {name} do not have its form.",
            f"it is a {type(value).__name__}, they are a {type(spec).__name__}",
            "nest them as the example inputs are nested",
        )
    return [each for one, inner in children for each in _specs(one, inner, name)]
