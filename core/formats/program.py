"""A program's description: ``program.json`` beside the ``.pte`` or ``.onnx``.

Written by the export, read by everything that deploys. Reference inputs and outputs are ``.npy``
files; bfloat16, which NumPy lacks, is stored as 2-byte void (``|V2``), bit by bit, and ``None`` as
empty void (``|V0``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from core.errors import ProgramError
from core.files import sha256_file
from core.strict_json import Frozen, parse_json

DESCRIPTION = "program.json"

Format = Literal["pte", "onnx"]
FORMATS: dict[str, Format] = {".pte": "pte", ".onnx": "onnx", ".ort": "onnx"}
"""What a program file is, by its suffix; ``.ort`` is ``.onnx`` made ready by ONNX Runtime's own converter."""
ENGINES: dict[str, Format] = {"executorch": "pte", "lean": "pte", "onnxruntime": "onnx"}
"""The format that each engine reads."""
BY_ONNX = "export it with --format onnx, deploy it with --engine onnxruntime"
"""Another way for a model that ExecuTorch cannot do; a hint's words."""
ENDLESS = 1e308
"""Stands for an infinite difference, which JSON lacks."""


def format_of(file: Path) -> Format:
    """The format of a program file; ``.pte`` if the suffix is unknown."""
    return FORMATS.get(file.suffix.lower(), "pte")


class TensorFile(Frozen):
    """One reference input or output."""

    file: str = Field(pattern=r"^[A-Za-z0-9_.-]+$")
    """Name beside ``program.json``."""
    dtype: str
    """NumPy's name (``float32``, ``int64``, ``bool``), ``bfloat16``, or ``none``: a ``None`` in place of a tensor."""
    shape: tuple[int, ...]
    sha256: str
    """Of the tensor's bytes (row-major, little-endian), not of the .npy file: the runner prints the same."""
    order: tuple[int, ...] = ()
    """Its dimensions as they follow in the memory of the exporting machine, the outermost first: ``0, 2, 3, 1``; empty:
    row-major, as the file always is."""


class Dimension(Frozen):
    """The sizes that a dimension of an input may have."""

    least: int = Field(ge=0)
    most: int | None = Field(ge=0)
    """``None``: unbounded."""
    symbol: str = ""
    """Sizes with the same symbol depend on one number n: each is ``times`` * n + ``plus``."""
    times: int = Field(default=1, ge=1)
    plus: int = 0

    @property
    def text(self) -> str:
        """``24``, ``1..8``, ``2..``."""
        return str(self.least) if self.least == self.most else f"{self.least}..{'' if self.most is None else self.most}"


class Layers(Frozen):
    """The pattern in which each layer moves an output when it gives more: a file of arrays.

    ``names`` of the layers; ``moves`` ``[layers, elements]`` times ``scale`` ``[layers]``: by how much each element
    moves for a part of 1; ``elements``: their places in the flat output; ``limits``: what part rounding may seem to be.
    """

    file: str = Field(pattern=r"^[A-Za-z0-9_.-]+$")
    count: int
    seen: int
    """In how many of them a fault of one per cent is seen."""


class Exact(Frozen):
    """What an output is in float64: a file of numbers that the program's own types do not round."""

    file: str = Field(pattern=r"^[A-Za-z0-9_.-]+$")
    """Beside the description."""
    error: float
    """How far the reference is from it: the largest absolute difference, at most 1e308."""
    far: bool = False
    """Whether that is farther than a device may be."""


class Tolerance(Frozen):
    """How close an output must be: ``|got - want| <= atol + rtol * |want|`` in every element."""

    atol: float
    rtol: float
    why: str
    """The origin of the figures: ``fp32``, ``one quantization step of the output (0.0235)``."""
    rms: float | None = None
    """How large the root mean square of the differences may be; ``None``: only single elements are compared."""
    gain: float | None = None
    """By what part all elements together may be larger or smaller than the reference's; ``None``: by any."""
    layers: Layers | None = None
    """By what part each layer may seem to give more or less, beside the description; ``None``: not compared."""
    exact: Exact | None = None
    """It decides where a device and the reference differ; ``None``: the reference does."""


class Operator(Frozen):
    """An operator of the program, outside the delegate when ``why`` says so."""

    name: str
    count: int
    why: str = ""


class Quantization(Frozen):
    """The requested quantization, and the layers that it silently left out."""

    scheme: str
    skipped: tuple[str, ...] = ()
    """Layers that the scheme should have quantized and that stayed in floating point, with the cause."""


class Case(Frozen):
    """Inputs of other sizes than the example's, and the outputs for them."""

    name: str = Field(pattern=r"^[a-z]+$")
    """``least``, ``greatest``."""
    inputs: tuple[TensorFile, ...]
    outputs: tuple[TensorFile, ...]
    tolerances: tuple[Tolerance, ...]


class Method(Frozen):
    """A method that runs once before the described one, in the same process, and shares its state."""

    name: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    inputs: tuple[TensorFile, ...]
    outputs: tuple[TensorFile, ...]
    """Of its one execution, after those of the methods before it."""
    tolerances: tuple[Tolerance, ...]
    delegates: int = 0
    """Delegate calls in it."""
    undelegated: tuple[Operator, ...] = ()


class Agreement(Frozen):
    """How far the program is from the model in PyTorch: a check of the export itself, made on the exporting machine."""

    max_abs: float
    """Largest absolute difference over all outputs."""
    limit: float
    """What the scheme allows."""
    why: str
    """What was compared, and the origin of the limit."""


class Classes(Frozen):
    """Names for the scores of the first output, of the reference's input."""

    file: str = Field(pattern=r"^[A-Za-z0-9_.-]+$")
    """A JSON list beside the description."""
    picture: str
    """What the input is made of: ``chelsea.png, a tabby cat``."""
    scores: TensorFile
    """The float model's, which quantization changes."""


class Program(Frozen):
    """The whole description."""

    schema_version: Literal[1] = 1
    name: str = Field(pattern=r"^[A-Za-z0-9_.-]+$")
    """``<model>-<scheme>``, ``<model>-<scheme>-onnx``; also the folder's name."""
    format: Format = "pte"
    model: str
    scheme: str
    file: str = Field(pattern=r"^[A-Za-z0-9_.-]+$")
    size: int
    sha256: str
    etrecord: str = ""
    method: str = "forward"
    inputs: tuple[TensorFile, ...]
    sizes: tuple[tuple[Dimension, ...], ...] = ()
    """The dimensions that each input may have; empty in a program that an earlier version exported."""
    outputs: tuple[TensorFile, ...]
    reference_engine: str
    """What computed the outputs: ``executorch 1.5.1 (Python runtime, x86_64)``, ``onnxruntime 1.31.1 (...)``."""
    tolerance: Tolerance
    delegates: int
    """Delegate calls in the method; 0 in an ``.onnx``."""
    delegated: tuple[Operator, ...]
    """Operators in the delegates; none in an ``.onnx``, which ONNX Runtime divides when it loads it."""
    undelegated: tuple[Operator, ...]
    """The others, with the reason why."""
    quantization: Quantization
    export_key: str
    """Digest of everything the export depended on; the same key means nothing to do."""
    versions: dict[str, str]
    seconds: float
    """How long the export took."""
    tolerances: tuple[Tolerance, ...] = ()
    """One for each output, if they differ; ``tolerance`` is the widest of them."""
    backends: tuple[str, ...] = ()
    """The backends of its delegates: ``XnnpackBackend``."""
    opsets: dict[str, int] = Field(default_factory=dict)
    """Of an ``.onnx``: the version of each operator set by its domain (``ai.onnx``, ``com.microsoft``)."""
    partitioners: tuple[str, ...] = ()
    """In the order in which they were tried."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Options of the export that were not the defaults."""
    agreement: Agreement | None = None
    classes: Classes | None = None
    """Of a program whose outputs are scores of classes with names."""
    warnings: tuple[str, ...] = ()
    """Notes for users of the program."""
    files: dict[str, int] = Field(default_factory=dict)
    """Every file beside the description, with its size in bytes."""
    source: str = ""
    """The user's own file; another of the same name in another folder gets a program of its own."""
    state: tuple[str, ...] = ()
    """Buffers that an execution changes: the next one finds them changed."""
    executions: dict[int, tuple[TensorFile, ...]] = Field(default_factory=dict)
    """Of a program with state: the outputs of each execution that the reference has, the first one's, too."""
    cases: tuple[Case, ...] = ()
    """Of a program with dynamic shapes: other sizes that a deploy checks, too."""
    before: tuple[Method, ...] = ()
    """Of a program with several methods: those that run once before ``method``, in this order."""
    depends: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """What the user's function read, modules included: ``files``, ``folders``, ``variables`` and ``packages``."""

    def tolerance_of(self, output: int) -> Tolerance:
        """The tolerance of output number ``output``."""
        return self.tolerances[output] if output < len(self.tolerances) else self.tolerance


def format_at(path: Path) -> Format:
    """The format of what a user names: a program file, a folder that an export left, or its description."""
    if path.is_dir() or path.name == DESCRIPTION:
        return load_program(path if path.is_dir() else path.parent, verify=False).format
    return format_of(path)


def load_program(folder: Path, verify: bool = True) -> Program:
    """Read and check ``folder/program.json`` and, with ``verify``, the program's size and digest.

    Raises:
        ProgramError: missing, malformed, truncated or changed.
    """
    source = folder / DESCRIPTION
    try:
        program = Program.model_validate(parse_json(source.read_bytes()))
    except FileNotFoundError as error:
        raise ProgramError(f"There is no program in {folder}.", "it was not exported", "./inv models") from error
    except (ValueError, ValidationError) as error:
        raise ProgramError(f"{source} is not a program's description.", str(error), "export it again") from error
    if verify:
        file = folder / program.file
        as_format = "" if program.format == "pte" else f" --format {program.format}"
        again = f"./inv export --model {program.model} --scheme {program.scheme}{as_format} --force"
        size = file.stat().st_size if file.is_file() else -1
        if size < 0:
            raise ProgramError(f"{file} is missing.", "", again)
        if size < program.size:
            raise ProgramError(
                f"{file} is truncated: {size:,} of {program.size:,} bytes.", "an interrupted copy", again
            )
        if size != program.size or sha256_file(file) != program.sha256:
            raise ProgramError(f"{file} is not what was exported: its SHA-256 differs.", "it was changed", again)
    return program


@dataclass(frozen=True)
class Sample:
    """One execution's inputs and what belongs to them; all files are ``.npy``."""

    inputs: tuple[Path, ...]
    wanted: tuple[Path, ...]
    """Outputs of the float model in PyTorch."""
    label: Any = None
    """As the user's data has it: a class, an array with a class for each row, anything for a function of his own."""
    rows: int = 0
    """The first rows of the inputs that count, if the last batch was filled up; 0: all."""


@dataclass(frozen=True)
class Samples:
    """All of them."""

    each: Sequence[Sample]
    source: str
    """The file, folder or function that they are from; empty: the model's own example inputs."""
    of: int
    """How many the source has; ``each`` may be fewer."""

    @property
    def labelled(self) -> bool:
        """Whether every sample has a label."""
        return bool(self.each) and all(one.label is not None for one in self.each)
