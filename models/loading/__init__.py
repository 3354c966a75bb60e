"""From a checked request to a module with its inputs: runs the zoo's or the user's own code. Imports torch."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from core.errors import ExportError
from models import methods
from models.loading import calling
from models.request import Request
from models.users import packages
from models.users.depends import file as noted
from models.users.users_code import Side, import_file, last_lines, users_code
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
    """What the user's function depends on (`models.users.depends`)."""
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


def _call_users(request: Request) -> Any:
    """The user's function's result."""
    with users_code(request.source, "Importing"):
        module = import_file(request.source)
    function: Callable[[], Any] | None = getattr(module, request.function, None)
    if not callable(function):
        raise ExportError(f"{request.source} has no function {request.function!r}.", "", f"--model {request.model}")
    with users_code(request.source, f"Calling {request.function}() of"):
        torch.manual_seed(0)
        return function()


def _depends(request: Request, side: Side) -> dict[str, dict[str, Any]]:
    """What the user's file depends on.

    Raises:
        ExportError: a file that the user has named does not exist.
    """
    files, variables = [], []
    for word in request.options.depends:
        kind, colon, name = word.partition(":")
        if colon and kind == "env":
            variables.append(name)
        elif Path(word).expanduser().is_file():
            files.append(Path(word).expanduser())
        else:
            raise ExportError(
                f"There is no file {word}.", "named by the option depends", "depends=FILE,env:NAME", [word]
            )
    return side.watch.found(files, variables)


def _call_zoo(request: Request) -> Any:
    """What the zoo's function returns."""
    assert request.zoo is not None  # noqa: S101  # the caller has looked
    function = getattr(importlib.import_module(request.zoo.maker.partition(":")[0]), request.function)
    if not request.options.weights:
        return function()
    own = request.options.weights == trained.TRAINED
    path = trained.weights(request.model) if own else Path(request.options.weights).expanduser()
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        return function(state_dict=state)
    except Exception as error:  # torch.load raises whatever the file's bytes lead it to
        raise ExportError(
            f"{path} does not hold weights for {request.model}.",
            last_lines(error, 3),
            f"a {request.zoo.state_dict} state_dict saved by torch.save",
        ) from error


def _call(value: Any, what: str, maker: str) -> tuple[calling.Call, tuple[Any, ...]]:
    """The form of a call and its tensors."""
    if isinstance(value, (tuple, list, Mapping)):
        form, tensors = calling.understood(value)
        if tensors:
            return form, tensors
    kind = type(value).__name__
    if isinstance(value, (tuple, list)):
        kind = f"{kind} of {', '.join(sorted({type(item).__name__ for item in value})) or 'nothing'}"
    raise ExportError(f"{maker} gives {what} without a tensor.", f"they are a {kind}", FORM)


Parts = tuple[Any, tuple[Any, ...], Any, tuple[tuple[Any, ...], ...]]


def _each(value: Any, maker: str) -> dict[str, Parts]:
    """The parts of each method, by its name; of a model with one method ``forward``.

    Raises:
        ExportError: the function's result has another form.
    """
    given = value[1] if isinstance(value, tuple) and len(value) > 1 else None
    if not isinstance(given, methods.Methods):
        return {"forward": _unpack(value, maker)}
    module, _, shapes, calibration = (*value, None, None)[:4]
    methods.check(given, module, maker)
    module.eval()
    found = {}
    for name, inputs in given.items():
        own = [(one or {}).get(name) if isinstance(one, Mapping) else None for one in (shapes, calibration)]
        found[name] = _unpack((methods.view(module, name), inputs, *own), f"{maker}, method {name},")
    return found


def _unpack(value: Any, maker: str) -> Parts:
    """The four parts of the model function's result, checked; called with tensors alone."""
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
        samples.append(calling.like(form, sample, f"Calibration samples of {maker}"))
    if not form.plain:
        shapes = calling.shapes(module, inputs, shapes)
        module = calling.flattened(module, form)
    return module, tensors, shapes, tuple(samples)


def load(request: Request) -> Prepared:
    """Make the model.

    Raises:
        ExportError: the user's code fails or returns something else, or weights do not fit.
    """
    maker = f"{request.function}() of {request.source.name}"
    if request.maker is not None:
        return _prepared(_each(request.maker(), maker))
    if request.zoo is not None:
        return _prepared(_each(_call_zoo(request), maker))
    packages.enter(request.packages)
    side = Side(request.source)
    with side.entered(), watching(side.watch):
        parts = _each(_call_users(request), maker)
        return replace(_prepared(parts), side=side, found=_depends(request, side))


def _evaluate(module: Any) -> None:
    """Put the model in eval mode, also an exported graph that refuses that: after training, its dropout is random.

    Raises:
        ExportError: a graph stays as it was trained.
    """
    with contextlib.suppress(NotImplementedError):
        module.eval()  # what it returns is not always the module
        return
    if _trains(module):
        from torchao.quantization.pt2e import move_exported_model_to_eval

        move_exported_model_to_eval(module)
        if left := _trains(module):
            raise ExportError(
                f"The graph computes as in training: {left}.",
                "move_exported_model_to_eval does not change it",
                "call move_exported_model_to_eval before convert_pt2e, or export the model in eval mode",
            )


def _trains(graph: Any) -> str:
    """The first operator of a graph that computes as in training; empty if there is none."""
    where = {"aten::dropout": 2, "aten::dropout_": 2, "aten::batch_norm": 5}
    for node in graph.graph.nodes:
        place = where.get(getattr(getattr(node.target, "_schema", None), "name", ""))
        if place is not None and len(node.args) > place and node.args[place] is True:
            return str(node.name)
    return ""


def _prepared(parts: Mapping[str, Parts]) -> Prepared:
    *before, last = [
        Prepared(module, inputs, shapes, calibration, method=name)
        for name, (module, inputs, shapes, calibration) in parts.items()
    ]
    _evaluate(last.module)
    return replace(last, before=tuple(before))
