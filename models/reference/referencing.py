"""Run an exported program on this machine: the outputs that devices are compared with, and how far they may be.

Imports torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from core.errors import ExportError
from core.formats.program import Agreement, Case, Method, TensorFile, Tolerance
from models.loading import Prepared, reference
from models.lowering import graphs
from models.lowering.lowering import Delegation, Lowered, describe
from models.lowering.quantize import Quantized
from models.reference import perturbing, tolerances
from models.reference.host import Host
from models.request import Request
from models.zoo.schemes import Scheme


@dataclass(frozen=True)
class Reference:
    """The outputs of a program on this machine."""

    inputs: tuple[TensorFile, ...]
    runs: dict[int, list[TensorFile]]
    """Outputs by the number of the execution; the first one only, if the program keeps no state."""
    engine: str
    """What computed them."""
    agreement: Agreement
    tolerances: tuple[Tolerance, ...]
    """One for each output."""
    warnings: tuple[str, ...]
    cases: tuple[Case, ...] = ()
    """Other sizes."""


def _saved(folder: Path, name: str, tensors: Sequence[Any], end: str = "") -> list[TensorFile]:
    """Files ``<name>N<end>.npy``."""
    return [reference.save(folder, f"{name}{index}{end}", one) for index, one in enumerate(tensors)]


def _loaded(folder: Path, files: Sequence[TensorFile]) -> list[Any]:
    return [reference.load(folder, one) for one in files]


def _cases(
    request: Request, scheme: Scheme, folder: Path, host: Host, quantized: Quantized, trusted: bool
) -> tuple[list[Case], list[str]]:
    """The reference at other sizes than the example's, and warnings."""
    found, warnings = [], []
    program = quantized.program
    types = tolerances.output_types(program)
    for name, tensors in graphs.other_sizes(graphs.input_sizes(program), quantized.inputs).items():
        shapes = ", ".join("x".join(map(str, one.shape)) for one in tensors)
        end = f"-{name}"
        try:
            right = reference.eager(program.module(), tensors)
            files, outputs = _saved(folder, "input", tensors, end), _saved(folder, "output", right, end)
            computed = right
            if trusted:
                outputs = host.run_often(folder, request.file, files, (1,), end=end)[1]
                computed = _loaded(folder, outputs)
        except ExportError as error:
            warnings.append(f"the {name} size ({shapes}) is not checked: {error.what} {error.cause}")
            for file in (*folder.glob(f"input*{end}.npy"), *folder.glob(f"output*{end}.npy")):
                file.unlink()
            continue
        measured = perturbing.measure(program, tensors)
        agreement = tolerances.agreement(scheme, right, computed, types=types, measured=measured)
        if agreement.max_abs > agreement.limit:
            warnings.append(
                f"{reference.engine(host=True)} gets the {name} size ({shapes}) wrong, by {agreement.max_abs:.4g}: its "
                "reference is PyTorch's"
            )
            outputs, computed = _saved(folder, "output", right, end), right
        allowed = tolerances.tolerances(program, scheme, computed, measured, computed is not right)
        found.append(Case(name=name, inputs=tuple(files), outputs=tuple(outputs), tolerances=allowed))
    return found, warnings


def eager_methods(model: Prepared) -> tuple[dict[int, list[Any]], list[list[Any]]]:
    """Outputs of the last method by the number of its execution (`models.lowering.graphs.eager`), and of the others.

    Raises:
        ExportError: one does not run on its example inputs.
    """
    with graphs.unchanged(model.module):
        earlier = [reference.eager(one.module, one.inputs) for one in model.before]
        return graphs.eager(model.module, model.inputs), earlier


def run_earlier(
    request: Request,
    scheme: Scheme,
    folder: Path,
    host: Host,
    quantized: Mapping[str, Quantized],
    lowered: Mapping[str, Lowered],
    want: Sequence[Sequence[Any]],
) -> tuple[tuple[Method, ...], list[str]]:
    """Execute the methods before the last one, each after those before it; their descriptions, and warnings.

    Args:
        want: outputs of the model in PyTorch, of each of them.

    Raises:
        ExportError: this machine's runtime lacks something for them, or refuses them.
    """
    done: list[Method] = []
    warnings = []
    for name, right in zip(quantized, want, strict=False):
        placement = describe(lowered[name], name)
        missing = host.missing([*placement.backends, *(one.name for one in placement.outside)])
        if missing:
            raise ExportError(
                f"This machine's runtime cannot compute the reference of method {name}.",
                f"it lacks {', '.join(missing)}, and several methods need it: PyTorch's would not share their state",
                "a partitioner whose backend this machine has, as --partitioners xnnpack",
                missing,
            )
        method = quantized[name]
        inputs = _saved(folder, "input", method.inputs, f"-{name}")
        first = [(one.name, one.inputs) for one in done]
        outputs = host.run_often(folder, request.file, inputs, (1,), name, f"-{name}", first)[1]
        computed = _loaded(folder, outputs)
        types = tolerances.output_types(method.program)
        warnings += doubts(tolerances.agreement(scheme, right, computed, types=types), (), f"method {name}")
        done.append(
            Method(
                name=name, inputs=tuple(inputs), outputs=tuple(outputs),
                tolerances=tolerances.tolerances(method.program, scheme, computed),
                delegates=placement.calls, undelegated=placement.outside,
            )
        )  # fmt: skip
    return tuple(done), warnings


def doubts(agreement: Agreement, outputs: Iterable[Any], what: str = "the program") -> list[str]:
    """Warnings of a program that is far from its model, or whose outputs are not all numbers."""
    found = []
    if agreement.max_abs > agreement.limit:
        found.append(
            f"{what} is {agreement.max_abs:.4g} away from the model, more than {agreement.limit:.4g}: {agreement.why}"
        )
    if any(bool((~torch.isfinite(reference.wide(one))).any()) for one in outputs):
        found.append("an output holds infinities or NaN")
    return found


def make(
    request: Request,
    scheme: Scheme,
    folder: Path,
    host: Host,
    quantized: Quantized,
    lowered: Lowered,
    placement: Delegation,
    *,
    want: Mapping[int, Sequence[Any]],
    method: str = "forward",
    first: Sequence[Method] = (),
) -> Reference:
    """Execute the program in ``folder``, write its inputs and outputs beside it, and compare them with the model's.

    Args:
        scheme: what the program is in: the request's, unless the user has quantized the model.
        want: outputs of the float model, by the number of the execution.
        method: its name in the program.
        first: methods that are executed once before it.

    Raises:
        ExportError: this machine's runtime refuses it or crashes.
    """
    warnings = []
    program, inputs = quantized.program, _saved(folder, "input", quantized.inputs)
    missing = host.missing([*placement.backends, *(one.name for one in placement.outside)])
    if missing:
        warnings.append(f"the reference outputs are PyTorch's: this machine's runtime lacks {', '.join(missing)}")
        runs = {1: _saved(folder, "output", reference.eager(program.module(), quantized.inputs))}
    else:
        size = sum(one.nbytes for one in reference.numbers(want[1]))
        often = graphs.kept(size) if lowered.state else (1,)
        before = [(one.name, one.inputs) for one in first]
        runs = host.run_often(folder, request.file, inputs, often, method, first=before)
    outputs = {number: _loaded(folder, files) for number, files in runs.items()}
    trusted, alone = not missing, not lowered.state and not first
    # Whole numbers must be the same, whatever rounding does.
    # PyTorch would run it here without the methods before it, on another state than theirs.
    counts = not first and not all(map(tolerances.is_whole, outputs[max(outputs)]))
    measured = perturbing.measure(program, quantized.inputs, sorted(outputs)) if counts else ()
    compare = partial(tolerances.agreement, scheme, types=tolerances.output_types(program), measured=measured)
    compared = [compare(want[number], outputs[number]) for number in want if number in outputs]
    agreement = max(compared, key=lambda one: one.max_abs / one.limit)
    if trusted and alone and agreement.max_abs > agreement.limit:
        right = reference.eager(program.module(), quantized.inputs)
        own = compare(right, outputs[1])
        if own.max_abs > own.limit:
            # ExecuTorch 1.5.1 does this where a 1x1 and a 3x3 convolution read one dynamically quantized value, and in
            # half precision, where it adds numbers near 1,000 in that.
            trusted, agreement = False, compare(want[1], right)
            warnings.append(
                f"{reference.engine(host=True)} gets the program wrong: its outputs are {own.max_abs:.4g} away from "
                "PyTorch's of the same program. So the reference outputs are PyTorch's, and --engine executorch will "
                "differ from them"
            )
            runs, outputs = {1: _saved(folder, "output", right)}, {1: right}
    warnings += doubts(agreement, (one for each in outputs.values() for one in each))
    sized, unchecked = _cases(request, scheme, folder, host, quantized, trusted) if alone else ([], [])
    each_run = [tolerances.tolerances(program, scheme, each, measured, trusted) for each in outputs.values()]
    allowed = tuple(map(tolerances.widest, zip(*each_run, strict=True)))
    if measured and alone and any(one.rms is not None for one in allowed):
        found = perturbing.find(program, quantized.inputs, measured)
        allowed = tuple(
            one.model_copy(update={"layers": seen.save(folder, f"layers{index}")}) if seen and one.rms else one
            for index, (one, seen) in enumerate(zip(allowed, found, strict=True))
        )
    return Reference(
        inputs=tuple(inputs),
        runs=runs,
        engine=reference.engine(host=trusted),
        agreement=agreement,
        tolerances=allowed,
        warnings=(*warnings, *unchecked),
        cases=tuple(sized),
    )
