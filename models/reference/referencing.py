"""Run an exported program on this machine: the outputs that devices are compared with, and how far they may be.

Imports torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from core.errors import ExportError
from core.formats.program import Agreement, Case, Exact, Method, Tolerance
from models.loading import Prepared, reference
from models.lowering import graphs, progress
from models.lowering.graphs import base_name, is_dequantize, is_quantize, target_name
from models.lowering.lowering import Delegation, Lowered, describe
from models.lowering.quantize import Quantized
from models.reference import perturbing, tolerances
from models.reference.host import Host
from models.reference.perturbing import Measured
from models.request import Request
from models.zoo.schemes import Scheme

_WIDE = {
    **dict.fromkeys((torch.float16, torch.bfloat16, torch.float32, torch.float64), torch.float64),
    **dict.fromkeys((torch.complex32, torch.complex64, torch.complex128), torch.complex128),
}
_NAMESPACES = ("aten", "prims", "prim")
"""Of operators that compute in the type of what they are given."""
_BITS = ("aten::view.dtype", "aten::nextafter")
"""Operators whose result has another meaning in another type."""
_STEADY = (
    *("aten::scaled_dot_product_attention", "aten::dropout"),
    *("aten::lstm", "aten::gru", "aten::rnn_tanh", "aten::rnn_relu"),
)
"""Operators that draw random numbers in training alone."""


class _UnknownError(Exception):
    """The graph has no meaning in float64."""


class _Wide(perturbing.Widened):
    """Runs a graph in float64."""

    types = _WIDE

    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self._buffers: dict[str, Any] = {}
        """Each is one tensor for all nodes: some write to it."""

    def fetch_attr(self, target: str) -> Any:
        """A parameter, a buffer or a constant."""
        value = super().fetch_attr(target)
        if isinstance(value, torch.nn.Parameter):
            return self.wide(value)
        return self._buffers.setdefault(target, self.wide(value))

    def run_node(self, node: Any) -> Any:
        """The node's value."""
        value = super().run_node(node)
        given = any(_is_wide(self.env[one]) for one in node.all_input_nodes)
        if given and isinstance(value, torch.Tensor) and value.dtype in _WIDE and not _is_wide(value):
            raise _UnknownError
        return self.wide(value)


def _is_wide(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in (torch.float64, torch.complex128)


def _has_meaning(node: Any) -> bool:
    """Whether a node's result in float64 is what its result in the program's types is meant to be."""
    if node.op != "call_function":
        return True
    if isinstance(node.target, torch._ops.HigherOrderOperator) or is_quantize(node) or is_dequantize(node):
        return False
    if not isinstance(node.target, torch._ops.OpOverload):
        return True  # of sizes, or one of several results
    return (
        node.target.namespace in _NAMESPACES
        and target_name(node) not in _BITS
        and (base_name(target_name(node)) in _STEADY or torch.Tag.nondeterministic_seeded not in node.target.tags)
    )


def find(program: Any, scheme: Scheme, inputs: Sequence[Any]) -> list[Any]:
    """The outputs in float64; ``None`` for whole numbers; none at all where that is not known.

    Weights and inputs are the program's own, already rounded to its types.

    Args:
        program: exported, in its scheme, before lowering; without state.
        inputs: the reference's.
    """
    if scheme.method not in ("none", "half") or not all(map(_has_meaning, program.graph.nodes)):
        return []
    progress.at("what its outputs are in float64")
    try:
        with torch.no_grad():
            wide = _Wide(program.module())
            outputs = reference.flat(wide.run(*(wide.wide(one.clone()) for one in inputs)))
    except Exception:  # noqa: BLE001  # whatever an operator raises that has no float64
        return []
    return [None if tolerances.is_whole(one) else one for one in outputs]


def beside(
    folder: Path, end: str, allowed: Sequence[Tolerance], computed: Sequence[Any], found: Sequence[Any]
) -> tuple[Tolerance, ...]:
    """The tolerances with what the outputs are in float64, in files ``exactN<end>.npy``.

    Args:
        computed: the reference's outputs.
        found: what `find` gave.
    """
    if len(found) != len(allowed):
        return tuple(allowed)
    return tuple(
        one
        if right is None
        else one.model_copy(update={"exact": _exact(folder, f"exact{index}{end}", right, got, one)})
        for index, (one, right, got) in enumerate(zip(allowed, found, computed, strict=True))
    )


def _exact(folder: Path, name: str, right: Any, got: Any, allowed: Tolerance) -> Exact:
    parts = reference.wide(right)
    stored = parts.to(got.dtype.to_real())
    # Beyond the output's own type an infinity is the right result.
    parts = torch.where(stored.isinf(), stored.double(), parts)
    file = reference.save(folder, name, torch.view_as_complex(parts) if right.is_complex() else parts).file
    ours = reference.wide(got)
    same = (parts == ours) | (parts.isnan() & ours.isnan())
    near = same | ((parts - ours).abs() <= allowed.atol + allowed.rtol * parts.abs())
    return Exact(file=file, error=tolerances.farthest(parts, ours), far=not bool(near.all()))


def _cases(
    request: Request, scheme: Scheme, folder: Path, host: Host, quantized: Quantized, trusted: bool
) -> tuple[list[Case], list[str]]:
    """The reference at other sizes than the example's, and warnings."""
    found, warnings = [], []
    types = tolerances.output_types(quantized.program)
    for name, tensors in graphs.other_sizes(graphs.input_sizes(quantized.program), quantized.inputs).items():
        shapes = ", ".join("x".join(map(str, one.shape)) for one in tensors)
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
        measured = perturbing.measure(quantized.program, tensors)
        agreement = tolerances.agreement(scheme, right, computed, types=types, measured=measured)
        true = find(quantized.program, scheme, tensors)
        if agreement.max_abs > agreement.limit and not _in_float64(scheme, true, computed, types, measured):
            warnings.append(
                f"{reference.engine(host=True)} gets the {name} size ({shapes}) wrong, by {agreement.max_abs:.4g}: its "
                "reference is PyTorch's"
            )
            outputs = [reference.save(folder, f"output{index}-{name}", one) for index, one in enumerate(right)]
            computed = right
        allowed = tolerances.tolerances(quantized.program, scheme, computed, tensors, measured, computed is not right)
        allowed = beside(folder, f"-{name}", allowed, computed, true)
        warnings += _far(allowed, f" of the {name} size")
        found.append(Case(name=name, inputs=tuple(files), outputs=tuple(outputs), tolerances=tuple(allowed)))
    return found, warnings


def _in_float64(
    scheme: Scheme, true: Sequence[Any], outputs: Sequence[Any], types: Sequence[Any], measured: Sequence[Measured]
) -> Agreement | None:
    """The agreement with what the outputs are in float64, where that is known and near."""
    if not true:
        return None
    whole = [got if one is None else one for one, got in zip(true, outputs, strict=True)]
    found = tolerances.agreement(scheme, whole, outputs, types=types, measured=measured, what="the program in float64")
    return found if found.max_abs <= found.limit else None


def _far(allowed: Sequence[Tolerance], where: str = "") -> list[str]:
    """Warnings of reference outputs that are farther from float64 than devices may be from them."""
    return [
        f"reference output{index}{where} is {one.exact.error:.3g} away from what float64 gives, which is more than its "
        f"tolerance of {one.atol:.3g}: where a device differs from it, float64 decides"
        for index, one in enumerate(allowed)
        if one.exact is not None and one.exact.far
    ]


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
        missing = host.missing(placement.needed())
        if missing:
            raise ExportError(
                f"This machine's runtime cannot compute the reference of method {name}.",
                f"it lacks {', '.join(missing)}, and several methods need it: PyTorch's would not share their state",
                "a partitioner whose backend this machine has, as --partitioners xnnpack",
                missing,
            )
        inputs = [reference.save(folder, f"input{at}-{name}", one) for at, one in enumerate(quantized[name].inputs)]
        outputs = host.run_often(folder, request.file, inputs, (1,), name, f"-{name}", done)[1]
        computed = [reference.load(folder, file) for file in outputs]
        types = tolerances.output_types(quantized[name].program)
        agreement = tolerances.agreement(scheme, right, computed, types=types)
        if agreement.max_abs > agreement.limit:
            warnings.append(
                f"method {name} is {agreement.max_abs:.4g} away from the model, more than {agreement.limit:.4g}: "
                f"{agreement.why}"
            )
        allowed = tolerances.tolerances(quantized[name].program, scheme, computed, quantized[name].inputs)
        done.append(
            Method(
                name=name, inputs=tuple(inputs), outputs=tuple(outputs), tolerances=tuple(allowed),
                delegates=placement.delegates, undelegated=placement.undelegated,
            )
        )  # fmt: skip
    return tuple(done), warnings


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
) -> tuple[dict[str, Any], list[str]]:
    """Execute the program in ``folder``, write its inputs and outputs beside it, and compare them with the model's.

    Args:
        scheme: what the program is in: the request's, unless the user has quantized the model.
        want: outputs of the float model, by the number of the execution.
        method: its name in the program.
        first: methods that are executed once before it.

    Returns:
        What its description says of inputs, outputs and tolerances; and warnings.

    Raises:
        ExportError: this machine's runtime refuses it or crashes.
    """
    warnings = []
    inputs = tuple(reference.save(folder, f"input{index}", one) for index, one in enumerate(quantized.inputs))
    missing = host.missing(placement.needed())
    if missing:
        warnings.append(f"the reference outputs are PyTorch's: this machine's runtime lacks {', '.join(missing)}")
        computed = reference.eager(quantized.program.module(), quantized.inputs)
        runs = {1: [reference.save(folder, f"output{index}", one) for index, one in enumerate(computed)]}
    else:
        size = sum(one.nbytes for one in reference.numbers(want[1]))
        often = graphs.kept(size) if lowered.state else (1,)
        runs = host.run_often(folder, request.file, inputs, often, method, first=first)
    outputs = {number: [reference.load(folder, file) for file in files] for number, files in runs.items()}
    both = [number for number in want if number in outputs]
    alone = not lowered.state and not first
    # Whole numbers must be the same, whatever rounding does.
    # PyTorch would run it here without the methods before it, on another state than theirs.
    counts = not first and not all(map(tolerances.is_whole, outputs[max(outputs)]))
    measured = perturbing.measure(quantized.program, quantized.inputs, sorted(outputs)) if counts else ()
    types = tolerances.output_types(quantized.program)
    true = find(quantized.program, scheme, quantized.inputs) if counts and alone else []
    compared = [tolerances.agreement(scheme, want[run], outputs[run], types=types, measured=measured) for run in both]
    agreement = max(compared, key=lambda one: one.max_abs / one.limit)
    trusted = not missing
    if agreement.max_abs > agreement.limit and (near := _in_float64(scheme, true, outputs[1], types, measured)):
        warnings.append(
            f"the program is {agreement.max_abs:.4g} away from the model in PyTorch, and {near.max_abs:.4g} from what "
            "float64 gives: PyTorch's own rounding is that large here"
        )
        agreement = near
    if trusted and not lowered.state and agreement.max_abs > agreement.limit:
        computed = reference.eager(quantized.program.module(), quantized.inputs)
        right = tolerances.agreement(scheme, want[1], computed, types=types, measured=measured)
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
    warnings += tolerances.doubts(agreement, [one for each in outputs.values() for one in each])
    sized, unchecked = _cases(request, scheme, folder, host, quantized, trusted) if alone else ([], [])
    each_run = [
        tolerances.tolerances(quantized.program, scheme, each, quantized.inputs, measured, trusted)
        for each in outputs.values()
    ]
    allowed = tuple(map(tolerances.widest, zip(*each_run, strict=True)))
    if measured and alone and any(one.rms is not None for one in allowed):
        found = perturbing.find(quantized.program, quantized.inputs, measured)
        allowed = tuple(
            one.model_copy(update={"layers": seen.save(folder, f"layers{index}")}) if seen and one.rms else one
            for index, (one, seen) in enumerate(zip(allowed, found, strict=True))
        )
    allowed = beside(folder, "", allowed, outputs[1], true)
    warnings += _far(allowed)
    described = {
        "inputs": inputs,
        "outputs": tuple(runs[1]),
        "executions": {number: tuple(files) for number, files in runs.items()} if lowered.state else {},
        "cases": tuple(sized),
        "reference_engine": reference.engine(host=trusted),
        "agreement": agreement,
        "tolerance": tolerances.widest(allowed),
        "tolerances": allowed,
    }
    return described, [*warnings, *unchecked]
