"""Check inputs against the method's declaration, before connecting to a device."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from core.errors import AnswerError, ProgramError, UsageError
from core.formats.program import Dimension, Program, load_program
from deploy.run import npy
from deploy.run.job import Job
from deploy.run.needs import Port, ProgramNeeds
from deploy.store.store import Blob

_MOST_DIMENSION = 2**31 - 1
"""As the runner reads ``--input_shapes``."""


@dataclass(frozen=True)
class Given:
    """A given input: from a file's header, or a shape among ``--inputs`` (then of any element type)."""

    source: str
    shape: tuple[int, ...]
    dtype: str = ""


def check_inputs(job: Job, needs: ProgramNeeds) -> None:
    """Compare the job's inputs with its method's declaration: count, rank, element type and every size.

    For a program with a description, ranges of sizes and sizes that must be equal are compared as well.

    If the program could not be described here, the runner checks its inputs. Every input and expected output must be a
    ``.npy`` file of numbers in any case.

    Raises:
        UsageError: an input does not fit, or its file is not a ``.npy`` file; it names the input, the declaration and
            the given values.
    """
    shapes = shapes_of(job.shapes) if job.shapes else []
    given = [header_of(blob.source) for blob in job.inputs.values()] or shapes
    if shapes and [one.shape for one in shapes] != [one.shape for one in given]:
        raise UsageError(
            f"The files of --inputs have the shapes {','.join(_joined(one.shape) for one in given)}, not {job.shapes}.",
            "to shapes among --inputs, sizes that the model leaves open are fixed",
            "give the files' own shapes, or only files, or only shapes",
        )
    for file in job.references:
        header_of(file)
    if not given:
        return
    method = needs.method(job.method)
    if method is not None and len(given) != len(method.inputs):
        declared = ", ".join(f"{port.dtype} {_text(port)}" for port in method.inputs) or "none"
        raise UsageError(
            f"Method {method.name} takes {len(method.inputs)} inputs, {len(given)} were given.",
            f"it declares {declared}",
            "give one for each input, in this order, separated by commas",
        )
    for index, (port, one) in enumerate(zip(method.inputs if method else (), given, strict=False)):
        _check(index, port, one)
    program = job.program or _description_beside(job.model)
    if program is not None and job.method == program.method and len(given) == len(program.sizes):
        _check_sizes(program.sizes, given)


def _description_beside(model: Blob) -> Program | None:
    """The description of a program of which the user named only the file."""
    with contextlib.suppress(ProgramError):
        beside = load_program(model.source.parent, verify=False)
        return beside if beside.sha256 == model.sha256 else None
    return None


def shapes_of(text: str) -> list[Given]:
    """The shapes in ``1x3x224x224,1x8,scalar``.

    Raises:
        UsageError: it does not have this form.
    """
    found = []
    for word in text.split(","):
        sizes = [] if word == "scalar" else word.split("x")
        if not all(size.isascii() and size.isdigit() and int(size[:11]) <= _MOST_DIMENSION for size in sizes):
            raise UsageError(f"--inputs has the unreadable shape {word!r}.", "", "give 1x3x224x224,1x8")
        found.append(Given("--inputs", tuple(int(size) for size in sizes)))
    return found


def header_of(file: Path) -> Given:
    """Shape and element type in a ``.npy`` file's header; nothing else of it is read.

    Raises:
        UsageError: it is not a ``.npy`` file of numbers, or not as long as its header says.
    """
    try:
        dtype, shape = npy.header(file)
    except AnswerError as error:
        raise UsageError(
            f"{file} is not a .npy file of an element type that programs have.",
            error.cause or error.what,
            "save it with numpy.save(path, array)",
            [str(file)],
        ) from error
    return Given(str(file), shape, dtype)


def _check(index: int, port: Port, given: Given) -> None:
    if port.dtype in ("", "unknown"):
        raise UsageError(
            f"Input {index} has a type that a file cannot hold ({port.kind}).",
            "a runner passes tensors, ints, floats and bools",
            "export the method with such inputs",
        )
    good = len(given.shape) == len(port.shape) and all(
        low <= size and (high is None or size <= high)
        for size, (low, high) in zip(given.shape, port.sizes, strict=True)
    )
    same = given.dtype in ("", port.dtype)
    if good and same:
        return
    advice = f"give a shape of {_text(port)}, or export the program for this one"
    if port.dtype == npy.NONE:
        advice = "give None: numpy.save(path, numpy.ndarray((), 'V0'))"
    elif not same:
        as_bits = "save its bits as two-byte void: array.view('V2')"
        advice = as_bits if port.dtype == npy.BFLOAT16 else f"convert it: array.astype({port.dtype!r})"
    raise UsageError(
        f"Input {index} does not fit: the method declares {port.dtype} {_text(port)}, "
        f"{given.source} has {given.dtype}{' ' if given.dtype else ''}{_joined(given.shape)}.",
        "nothing was uploaded",
        advice,
        [given.source],
    )


def _check_sizes(sizes: Sequence[Sequence[Dimension]], given: Sequence[Given]) -> None:
    """Compare with the export's description: a ``.pte`` holds neither minimal sizes nor which sizes must be equal."""
    known: dict[str, tuple[Fraction, str]] = {}
    for index, (dimensions, one) in enumerate(zip(sizes, given, strict=True)):
        text = _joined([dimension.text for dimension in dimensions])
        if len(dimensions) != len(one.shape):
            raise _misfit(index, one, f"the program was exported for {text}", f"give a shape of {text}")
        for axis, (dimension, size) in enumerate(zip(dimensions, one.shape, strict=True)):
            if size < dimension.least or (dimension.most is not None and size > dimension.most):
                what = f"dimension {axis} must be {dimension.text}"
                raise _misfit(index, one, what, f"give a shape of {text}")
            if not dimension.symbol:
                continue
            value = Fraction(size - dimension.plus, dimension.times)
            first, source = known.setdefault(dimension.symbol, (value, f"dimension {axis} of input {index} is {size}"))
            if value != first or value.denominator != 1:
                need = first * dimension.times + dimension.plus
                what = (
                    f"dimension {axis} must be {need}, since {source}"
                    if need.denominator == 1 and value != first
                    else f"dimension {axis} must be {dimension.plus} more than a multiple of {dimension.times}"
                )
                raise _misfit(index, one, what, "give inputs whose sizes fit together")


def _misfit(index: int, given: Given, what: str, advice: str) -> UsageError:
    return UsageError(
        f"Input {index} does not fit: {what}, {given.source} has {_joined(given.shape)}.",
        "the model was exported so, and nothing was uploaded",
        f"{advice}, or export the model with other dynamic_shapes",
        [given.source],
    )


def _joined(sizes: Sequence[object]) -> str:
    return "x".join(map(str, sizes)) or "scalar"


def _text(port: Port) -> str:
    """``2x16``; ``1..8x24`` where a size may change, ``0..x3`` if it is unbounded."""
    return _joined([str(low) if low == high else f"{low}..{'' if high is None else high}" for low, high in port.sizes])
