"""Run an exported program on this machine: the outputs that devices are compared with, and how far they may be.

Imports torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from core.errors import ExportError
from core.program import Agreement, Case, Method, TensorFile, Tolerance
from models import directions, perturbing, reference, sizes, state, tolerances
from models.delegation import Delegation
from models.host import Host
from models.lowering import Lowered
from models.quantize import Quantized
from models.request import Request
from models.schemes import Scheme


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


def _cases(
    request: Request, scheme: Scheme, folder: Path, host: Host, quantized: Quantized, trusted: bool
) -> tuple[list[Case], list[str]]:
    """The reference at other sizes than the example's, and warnings."""
    found, warnings = [], []
    for name, tensors in sizes.others(sizes.of_inputs(quantized.program), quantized.inputs).items():
        shapes = ", ".join("x".join(map(str, one.shape)) for one in tensors)
        files: list[TensorFile] = []
        try:
            right = reference.eager(quantized.program.module(), tensors)
            files = [reference.save(folder, f"input{index}-{name}", one) for index, one in enumerate(tensors)]
            outputs = [reference.save(folder, f"output{index}-{name}", one) for index, one in enumerate(right)]
            computed = right
            if trusted:
                outputs = host.run_often(folder, request.file, files, (1,), end=f"-{name}")[1]
                computed = [reference.load(folder, file) for file in outputs]
        except ExportError as error:
            warnings.append(f"the {name} size ({shapes}) is not checked: {error.what} {error.cause}")
            for file in (*folder.glob(f"input*-{name}.npy"), *folder.glob(f"output*-{name}.npy")):
                file.unlink()
            continue
        agreement = tolerances.agreement(scheme, right, computed)
        if agreement.max_abs > agreement.limit:
            warnings.append(
                f"{reference.engine(host=True)} gets the {name} size ({shapes}) wrong, by {agreement.max_abs:.4g}: its "
                "reference is PyTorch's"
            )
            outputs = [reference.save(folder, f"output{index}-{name}", one) for index, one in enumerate(right)]
            computed = right
        measured = perturbing.measure(quantized.program, tensors)
        allowed = tolerances.tolerances(quantized.program, scheme, computed, tensors, measured, computed is not right)
        found.append(Case(name=name, inputs=tuple(files), outputs=tuple(outputs), tolerances=tuple(allowed)))
    return found, warnings


def make(
    request: Request,
    scheme: Scheme,
    folder: Path,
    host: Host,
    module: Any,
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
        module: the user's.
        want: outputs of the float model, by the number of the execution.
        method: its name in the program.
        first: methods that are executed once before it.

    Raises:
        ExportError: this machine's runtime refuses it or crashes.
    """
    warnings = []
    inputs = tuple(reference.save(folder, f"input{index}", one) for index, one in enumerate(quantized.inputs))
    missing = host.missing([*placement.backends, *(one.name for one in placement.outside)])
    if missing:
        warnings.append(f"the reference outputs are PyTorch's: this machine's runtime lacks {', '.join(missing)}")
        computed = reference.eager(quantized.program.module(), quantized.inputs)
        runs = {1: [reference.save(folder, f"output{index}", one) for index, one in enumerate(computed)]}
    else:
        size = sum(one.nbytes for one in want[1])
        often = state.kept(state.count(module), size) if lowered.state else (1,)
        before = [(one.name, one.inputs) for one in first]
        runs = host.run_often(folder, request.file, inputs, often, method, first=before)
    outputs = {number: [reference.load(folder, file) for file in files] for number, files in runs.items()}
    both = [number for number in want if number in outputs]
    if getattr(module, "generation", None):
        agreement = tolerances.same_tokens(scheme, want[both[-1]][0], outputs[both[-1]][0])
    else:
        compared = [tolerances.agreement(scheme, want[number], outputs[number]) for number in both]
        agreement = max(compared, key=lambda one: one.max_abs / one.limit)
    trusted = not missing
    if trusted and not lowered.state and agreement.max_abs > agreement.limit:
        computed = reference.eager(quantized.program.module(), quantized.inputs)
        right = tolerances.agreement(scheme, want[1], computed)
        if right.max_abs <= right.limit:
            # ExecuTorch 1.5.1 does this where a 1x1 and a 3x3 convolution read one dynamically quantized value.
            trusted = False
            warnings.append(
                f"{reference.engine(host=True)} gets the program wrong: its outputs are {agreement.max_abs:.4g} away "
                f"from the model, and PyTorch's of the same program {right.max_abs:.4g}. So the reference outputs are "
                "PyTorch's, and --engine executorch will differ from them"
            )
            runs = {1: [reference.save(folder, f"output{index}", one) for index, one in enumerate(computed)]}
            outputs, agreement = {1: computed}, right
    if agreement.max_abs > agreement.limit:
        warnings.append(
            f"the program is {agreement.max_abs:.4g} away from the model, more than {agreement.limit:.4g}: "
            f"{agreement.why}"
        )
    if any(bool((~torch.isfinite(one.double())).any()) for each in outputs.values() for one in each):
        warnings.append("an output holds infinities or NaN")
    alone = not lowered.state and not first
    sized, unchecked = _cases(request, scheme, folder, host, quantized, trusted) if alone else ([], [])
    # A program that generates has whole numbers as outputs: they must be the same, whatever rounding does.
    # PyTorch would run it here without the methods before it, on another state than theirs.
    counts = not first and any(one.is_floating_point() for one in outputs[max(outputs)])
    measured = perturbing.measure(quantized.program, quantized.inputs, sorted(outputs)) if counts else ()
    each_run = [
        tolerances.tolerances(quantized.program, scheme, each, quantized.inputs, measured, trusted)
        for each in outputs.values()
    ]
    allowed = tuple(map(tolerances.widest, zip(*each_run, strict=True)))
    if measured and alone and any(one.rms is not None for one in allowed):
        found = directions.find(quantized.program, quantized.inputs, measured)
        allowed = tuple(
            one.model_copy(update={"layers": seen.save(folder, f"layers{index}")}) if seen and one.rms else one
            for index, (one, seen) in enumerate(zip(allowed, found, strict=True))
        )
    return Reference(
        inputs=inputs,
        runs=runs,
        engine=reference.engine(host=trusted),
        agreement=agreement,
        tolerances=allowed,
        warnings=(*warnings, *unchecked),
        cases=tuple(sized),
    )
