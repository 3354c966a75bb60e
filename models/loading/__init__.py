"""From a checked request to a module with its inputs: runs the zoo's or the user's own code. Imports torch."""

from __future__ import annotations

import contextlib
import importlib
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.utils import _pytree as pytree

from core.errors import ExportError
from models import methods
from models.loading.reference import laid_out
from models.request import Request
from models.users import packages
from models.users.users_code import Side, opened
from models.users.watching import file as noted
from models.users.watching import watching
from models.zoo import trained

FORM = (
    "return (module, example_inputs), or (module, example_inputs, dynamic_shapes), or "
    "(module, example_inputs, dynamic_shapes, calibration); docs/models.md shows each"
)


@dataclass(frozen=True)
class Prepared:
    """A model ready to be exported."""

    module: Any
    """``torch.nn.Module`` in eval mode."""
    inputs: tuple[Any, ...]
    """Example inputs: tensors, also the reference's."""
    dynamic_shapes: Any
    """As ``torch.export.export`` takes them; ``None``: all shapes are fixed."""
    calibration: tuple[tuple[Any, ...], ...]
    """Samples for static quantization; empty if the model has none."""
    side: Side | None = None
    """What the user's file imports; ``None`` for a model of the zoo."""
    found: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What the user's function depends on (`models.users.watching`)."""
    strict: bool = False
    """For torch.export: read the code of the model instead of following one execution."""
    method: str = "forward"
    """Its name in the program."""
    before: tuple[Prepared, ...] = ()
    """Other methods of the same model, which run before it."""

    def entered(self) -> contextlib.AbstractContextManager[None]:
        """While it is open, the module's code finds what it imports: it may do so at any time."""
        return self.side.entered() if self.side else contextlib.nullcontext()

    @property
    def depends(self) -> dict[str, dict[str, Any]]:
        """The same with the modules of the user's own that were imported since."""
        if self.side is None:
            return {}
        modules = {str(path): noted(path) for path in self.side.sources()}
        return {**self.found, "files": dict(sorted({**self.found["files"], **modules}.items()))}


def _call_zoo(request: Request) -> Any:
    """What the zoo's function returns."""
    assert request.zoo is not None  # noqa: S101  # the caller has looked
    function = getattr(importlib.import_module(request.zoo.maker.partition(":")[0]), request.function)
    if not request.options.weights:
        return function()
    return function(state_dict=torch.load(trained.weights(request.model), map_location="cpu", weights_only=True))


def _call(value: Any, what: str, maker: str) -> tuple[Call, tuple[Any, ...]]:
    """The form of a call and its tensors."""
    if isinstance(value, (tuple, list, Mapping)):
        form, tensors = understood(value)
        if tensors:
            return form, tensors
    kind = type(value).__name__
    if isinstance(value, (tuple, list)):
        kind = f"{kind} of {', '.join(sorted({type(item).__name__ for item in value})) or 'nothing'}"
    raise ExportError(f"{maker} gives {what} without a tensor.", f"they are a {kind}", FORM)


def _each(value: Any, maker: str) -> list[Prepared]:
    """Each method; of a model with one ``forward``.

    Raises:
        ExportError: the function's result has another form.
    """
    given = value[1] if isinstance(value, tuple) and len(value) > 1 else None
    if not isinstance(given, methods.Methods):
        return [_unpack(value, maker)]
    module, _, shapes, calibration = (*value, None, None)[:4]
    methods.check(given, module, maker)
    module.eval()
    found = []
    for name, inputs in given.items():
        own = [(one or {}).get(name) if isinstance(one, Mapping) else None for one in (shapes, calibration)]
        found.append(_unpack((methods.view(module, name), inputs, *own), f"{maker}, method {name},", name))
    return found


def _unpack(value: Any, maker: str, method: str = "forward") -> Prepared:
    """The model function's result, checked; called with tensors alone."""
    if not isinstance(value, tuple) or not 2 <= len(value) <= 4:
        got = f"a tuple of {len(value)}" if isinstance(value, tuple) else f"a {type(value).__name__}"
        raise ExportError(f"{maker} does not return a module with its example inputs.", f"it returned {got}", FORM)
    module, inputs, shapes, calibration = (*value, None, None)[:4]
    if not isinstance(module, torch.nn.Module):
        raise ExportError(
            f"The first value that {maker} returns is not a torch.nn.Module.", f"it is a {type(module).__name__}", FORM
        )
    form, tensors = _call(inputs, "example inputs", maker)
    samples = []
    for sample in calibration or ():
        _call(sample, "calibration samples", maker)
        samples.append(like(form, sample, f"Calibration samples of {maker}"))
    if not form.plain:
        shapes = open_shapes(module, inputs, shapes)
        module = flattened(module, form)
    return Prepared(module, tensors, shapes, tuple(samples), method=method)


def load(request: Request) -> Prepared:
    """Make the model.

    Raises:
        ExportError: the user's code fails or returns something else, or weights do not fit.
    """
    maker = f"{request.function}() of {request.source.name}"
    if request.maker is not None:
        return _prepared(request.maker(), maker)
    if request.zoo is not None:
        return _prepared(_call_zoo(request), maker)
    packages.enter(request.packages)
    side = Side(request.source)
    with side.entered(), watching(side.watch):
        with opened(f"{request.source}:{request.function}") as function:
            torch.manual_seed(0)
            made = function()
        return replace(_prepared(made, maker), side=side, found=side.watch.found())


def _prepared(value: Any, maker: str) -> Prepared:
    """What the model function returned, in eval mode: the last method, with those before it."""
    *before, last = _each(value, maker)
    try:
        last.module.eval()
    except NotImplementedError:  # an exported graph refuses it: after training, its dropout would stay random
        from torchao.quantization.pt2e import move_exported_model_to_eval

        move_exported_model_to_eval(last.module)
    return replace(last, before=tuple(before))


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
    return Call(spec, constants, places), tuple(laid_out(leaves[place]) for place in places)


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


def open_shapes(module: Any, value: Any, dynamic_shapes: Any) -> Any:
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
