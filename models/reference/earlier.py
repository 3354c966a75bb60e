"""Methods that run before the one that a deploy measures: their outputs in PyTorch and here. Imports torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from core.errors import ExportError
from core.formats.program import Method
from models.loading import Prepared, reference
from models.lowering import delegation, state
from models.lowering.lowering import Lowered
from models.lowering.quantize import Quantized
from models.reference import tolerances
from models.reference.host import Host
from models.request import Request
from models.zoo.schemes import Scheme


def eager(model: Prepared) -> tuple[dict[int, list[Any]], list[list[Any]]]:
    """Outputs of the last method by the number of its execution (`models.lowering.state.eager`), and of the others.

    Raises:
        ExportError: one does not run on its example inputs.
    """
    with state.unchanged(model.module):
        earlier = [reference.eager(one.module, one.inputs) for one in model.before]
        return state.eager(model.module, model.inputs), earlier


def run(
    request: Request,
    scheme: Scheme,
    folder: Path,
    host: Host,
    quantized: Mapping[str, Quantized],
    lowered: Mapping[str, Lowered],
    want: Sequence[Sequence[Any]],
    tokens: bool = False,
) -> tuple[tuple[Method, ...], list[str]]:
    """Execute the methods before the last one, each after those before it; their descriptions, and warnings.

    Args:
        want: outputs of the model in PyTorch, of each of them.
        tokens: the first output is what was generated.

    Raises:
        ExportError: this machine's runtime lacks something for them, or refuses them.
    """
    done: list[Method] = []
    warnings = []
    for name, right in zip(quantized, want, strict=False):
        placement = delegation.describe(lowered[name], name)
        missing = host.missing([*placement.backends, *(one.name for one in placement.outside)])
        if missing:
            raise ExportError(
                f"This machine's runtime cannot compute the reference of method {name}.",
                f"it lacks {', '.join(missing)}, and several methods need it: PyTorch's would not share their state",
                "a partitioner whose backend this machine has, as --partitioners xnnpack",
                missing,
            )
        inputs = [reference.save(folder, f"input{at}-{name}", one) for at, one in enumerate(quantized[name].inputs)]
        first = [(one.name, one.inputs) for one in done]
        outputs = host.run_often(folder, request.file, inputs, (1,), name, f"-{name}", first)[1]
        computed = [reference.load(folder, file) for file in outputs]
        types = tolerances.output_types(quantized[name].program)
        if tokens:
            agreement = tolerances.same_tokens(scheme, right[0], computed[0])
        else:
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
                delegates=placement.calls, undelegated=placement.outside,
            )
        )  # fmt: skip
    return tuple(done), warnings
