"""A job: a program with its inputs, and the reference if it exists; and the packed weights that are kept for it.

The engine lean keeps them in a device's store, so that later loads need not pack them. The runner makes, checks and
replaces the file by itself (docs/lean.md); this side only chooses its name and whether there is room. Nothing records
this file's digest: `./inv devices.verify` removes the file, and garbage collection removes it with its program or when
space is short.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from core.console.units import counted
from core.errors import ProgramError, UsageError
from core.files import sha256_bytes
from core.formats import program as stored
from core.formats.bundle import Bundle
from core.formats.program import Case, Format, Method, Program, TensorFile, Tolerance
from deploy.devices.facts import DeviceFacts
from deploy.devices.inventory import Device
from deploy.run.needs import ProgramNeeds
from deploy.run.runner import MODEL, RunnerResult
from deploy.run.settings import DEFAULT, LEAN, Settings
from deploy.store.store import Blob


@dataclass(frozen=True)
class Sized:
    """Inputs of a method, with their reference."""

    name: str
    inputs: dict[str, Blob]
    """By their names in the run's folder."""
    references: tuple[Path, ...]
    """Expected outputs, in order; may be empty."""
    tolerances: tuple[Tolerance, ...]
    """One for each reference; empty: each dtype's default."""
    method: str = ""
    """Which one; empty: the job's own."""
    first: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Methods that run once before, each with the names of its inputs in the run's folder."""


@dataclass(frozen=True, kw_only=True)
class Job(Sized):
    """A program, ready to be deployed; itself the case that is measured."""

    model: Blob
    shapes: str
    program: Program | None = None
    reference_engine: str = ""
    """What computed the references, if known."""
    execution: int = 0
    """Which execution's outputs the references are; 0: any, as the program keeps no state."""
    cases: tuple[Sized, ...] = ()
    """Other sizes and other methods to be checked after the run."""
    data: dict[str, Blob] = field(default_factory=dict)
    """Files beside the program with its weights, by the names that it uses."""

    @property
    def format(self) -> Format:
        """The program's format."""
        return self.program.format if self.program else stored.format_of(self.model.source)

    @property
    def model_name(self) -> str:
        """The program's name in the run's folder; engines that read several formats go by the suffix."""
        suffix = self.model.source.suffix.lower()
        return MODEL + (suffix if suffix in stored.FORMATS else ".pte")

    @property
    def files(self) -> dict[str, Blob]:
        """What the run's folder holds: name to file."""
        others = {name: blob for case in self.cases for name, blob in case.inputs.items()}
        return {self.model_name: self.model, **self.data, **self.inputs, **others}

    @property
    def digest(self) -> str:
        """The folder's name on the device: other files, or the same under other names, get another one."""
        lines = "".join(f"{blob.sha256} {name}\n" for name, blob in sorted(self.files.items()))
        return sha256_bytes(lines.encode())[:32]

    @property
    def output_bytes(self) -> int:
        """Size of the outputs' files, as the references show it; 0 without any."""
        return sum(file.stat().st_size for file in self.references if file.is_file())

    @property
    def data_name(self) -> str:
        """The name in the run's folder of the ``.ptd`` file of its weights; empty without one."""
        name = MODEL + _WEIGHTS
        return name if name in self.data else ""

    def with_weights(self, needs: ProgramNeeds, named: Path | None) -> Job:
        """The job with the files that hold the program's weights: those that it names, or its ``.ptd`` file.

        That is the one that the user named, else the one beside the program, if there is one.

        Raises:
            ProgramError: one is missing. UsageError: a ``.ptd`` file for another format.
        """
        if self.format != "pte":
            if named:
                raise UsageError(
                    f"--data {named} goes with a .pte file.",
                    f"{self.model.source} is none",
                    "leave it out",
                    [str(named)],
                )
            return self.with_data(needs.program.data_files)
        if named and not named.is_file():
            raise ProgramError(f"There is no file of weights {named}.", "", "--data FILE.ptd", [str(named)])
        used = {self.method, *(name for name, _ in self.first), *(case.method for case in self.cases)}
        wanted = {name for method in needs.methods if method.name in used for name in method.external_weights}
        file = named or _weights_beside(self.model.source, sorted(wanted))
        return replace(self, data={MODEL + _WEIGHTS: Blob.of(file)}) if file else self

    def with_data(self, names: Sequence[str]) -> Job:
        """The job with the files that the program names as its weights.

        Raises:
            ProgramError: one is missing, or is not in the program's folder.
        """
        folder = self.model.source.parent
        elsewhere = [name for name in names if not name or Path(name).name != name or name in self.files]
        if elsewhere:
            raise ProgramError(
                f"{self.model.source} has weights in {', '.join(elsewhere)}.",
                "a program's own files must lie in its folder, under plain names that Slipway does not use itself",
                "save it with all weights in one file beside it: onnx.save(..., save_as_external_data=True)",
                elsewhere,
            )
        missing = [name for name in names if not (folder / name).is_file()]
        if missing:
            raise ProgramError(
                f"{self.model.source} has weights in {', '.join(missing)}, which is not beside it.",
                "the program was copied without its weights",
                f"put {', '.join(missing)} into {folder}",
                missing,
            )
        return replace(self, data={name: Blob.of(folder / name) for name in names})


_WEIGHTS = ".ptd"


def _weights_beside(program: Path, wanted: Sequence[str]) -> Path | None:
    """The file with the weights of ``program``: of its name, or the only one beside it; its runner reads and checks it.

    A program's delegates may need weights that nothing names before it is loaded: a file of the program's own name is
    taken even if nothing is wanted.

    Raises:
        ProgramError: there is none, or several.
    """
    own = program.with_suffix(_WEIGHTS)
    if own.is_file() or not wanted:
        return own if own.is_file() else None
    beside = sorted(program.parent.glob(f"*{_WEIGHTS}"))
    if len(beside) == 1:
        return beside[0]
    raise ProgramError(
        f"{program} has {counted(len(wanted), 'weight')} stored apart from it: {', '.join(wanted[:6])}.",
        f"there is no {own.name} beside it" + (", but several others" if beside else ""),
        "name the file that was exported with it: --data FILE.ptd",
        list(wanted),
    )


def check_engine(path: Path, engine: str, program: Program | None = None) -> None:
    """Refuse a program that ``engine`` does not read.

    Raises:
        UsageError: an ``.onnx`` for ExecuTorch, a ``.pte`` for ONNX Runtime.
    """
    reads = stored.ENGINES.get(engine)
    kind = program.format if program else stored.format_of(path)
    if reads is None or reads == kind:
        return
    right = next(name for name, format_ in stored.ENGINES.items() if format_ == kind)
    raise UsageError(
        f"The engine {engine} reads .{reads} files, and {path} is {'an' if kind == 'onnx' else 'a'} .{kind}.",
        "the program's format decides which engine can run it",
        f"leave out --engine, or --engine {right}",
        [engine],
    )


def require_files(files: Sequence[Path]) -> None:
    """Refuse inputs or expected outputs that are not there.

    Raises:
        UsageError: names them.
    """
    missing = [str(file) for file in files if not file.is_file()]
    if missing:
        raise UsageError(f"There is no file {', '.join(missing)}.", "", "give .npy files, comma-separated", missing)


def require_program(path: Path) -> None:
    """Refuse a path where nothing is.

    Raises:
        ProgramError: there is neither a file nor a folder.
    """
    if not (path.is_file() or path.is_dir()):
        raise ProgramError(
            f"There is no program {path}.",
            "it is neither a .pte or .onnx file nor a folder of ./inv export",
            "./inv models, then ./inv export --model NAME",
        )


def load_job(path: Path, settings: Settings = DEFAULT) -> Job:
    """The job for ``path``: an export's folder, or any ``.pte``, ``.onnx`` or ``.ort`` file.

    If the settings have inputs, the reference's own are not used, and there is no reference but their ``expected``.

    Raises:
        ProgramError: missing, truncated or changed. UsageError: an input or expected file is missing.
    """
    inputs, shapes, expected, method = settings.inputs, settings.input_shapes, settings.expected, settings.method
    if settings.text:
        inputs = (settings.text.tokens,)
    require_files((*inputs, *expected))
    if path.is_dir():
        program = _with_method(stored.load_program(path), method)
        own = not inputs and not shapes
        outputs, execution = _outputs(program, settings) if own and not expected else (program.outputs, 0)
        return Job(
            name=program.name,
            model=Blob.of(path / program.file, program.sha256),
            inputs=_inputs(inputs or [_reference(path, item.file) for item in program.inputs if not shapes]),
            references=tuple(expected) or (tuple(_reference(path, item.file) for item in outputs) if own else ()),
            tolerances=tuple(_tolerance(program, index, bool(expected)) for index in range(len(program.outputs))),
            shapes=shapes,
            method=method or program.method,
            program=program,
            reference_engine=program.reference_engine if own or expected else "",
            execution=execution,
            cases=_cases(path, program)
            if own and not expected and (method or program.method) == program.method
            else (),
            first=_first(program.before) if own else (),
        )
    require_program(path)
    if path.name == stored.DESCRIPTION:
        return load_job(path.parent, settings)
    return Job(
        # The usual name of a file says nothing; its folder's does, and keeps two models' results apart.
        name=path.resolve().parent.name if path.stem == "model" else path.stem,
        model=Blob.of(path),
        inputs=_inputs(inputs),
        references=tuple(expected),
        tolerances=(),
        shapes=shapes,
        method=method or "forward",
    )


def _inputs(files: Sequence[Path]) -> dict[str, Blob]:
    return {f"input{index}.npy": Blob.of(file) for index, file in enumerate(files)}


def _outputs(program: Program, settings: Settings) -> tuple[tuple[TensorFile, ...], int]:
    """The reference's outputs for a run, and of which execution they are (0: they are all the same).

    Raises:
        UsageError: a program with state is executed more often than its reference was, or the reference left that out.
    """
    if not program.executions:
        return program.outputs, 0
    executions, warmup = settings.executions()
    found = program.executions.get(executions + warmup)
    if found is None:
        known = sorted(program.executions)
        below = max((number for number in known if number <= executions + warmup), default=known[0])
        raise UsageError(
            f"{program.name} keeps a state, and its reference has no execution {executions + warmup}.",
            f"it has {', '.join(map(str, known))}; a run's outputs are those of its last execution, warm-up included",
            f"--num-executions {max(1, below - warmup)} --warmup {min(warmup, below - 1)}",
        )
    return found, executions + warmup


def _tolerance(program: Program, output: int, others: bool) -> Tolerance:
    """Of an output; patterns of layers belong to the program's own reference, not to ``others`` that a user has."""
    allowed = program.tolerance_of(output)
    return allowed.model_copy(update={"layers": None}) if others else allowed


def _with_method(program: Program, name: str) -> Program:
    """The program as if one of the methods before its own were the last; a method without a reference is not here."""
    place = next((place for place, one in enumerate(program.before) if one.name == name), None)
    if place is None:
        return program
    one = program.before[place]
    changes = {
        "method": name, "inputs": one.inputs, "outputs": one.outputs, "tolerances": one.tolerances, "sizes": (),
        "before": program.before[:place], "executions": {1: one.outputs} if program.state else {}, "cases": (),
    }  # fmt: skip
    return program.model_copy(update=changes)


def _first(methods: Sequence[Method]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Methods with the names of their inputs, for a run that follows them."""
    return tuple((one.name, tuple(item.file for item in one.inputs)) for one in methods)


def _cases(folder: Path, program: Program) -> tuple[Sized, ...]:
    """The other sizes and the other methods of a program's reference."""

    def case(one: Case | Method, method: str, first: Sequence[Method]) -> Sized:
        return Sized(
            one.name,
            {item.file: Blob.of(_reference(folder, item.file)) for item in one.inputs},
            tuple(_reference(folder, item.file) for item in one.outputs),
            one.tolerances,
            method,
            _first(first),
        )

    before = program.before
    return (
        *(case(one, "", ()) for one in program.cases),
        *(case(one, one.name, before[:place]) for place, one in enumerate(before)),
    )


def _reference(folder: Path, name: str) -> Path:
    file = folder / name
    if not file.is_file():
        raise ProgramError(f"{file} is missing.", "a reference file was removed", "export it again with --force")
    return file


_ROOM = 4
"""Times the program's size that must be free: packed weights take up to two, and are written beside an older file."""


def cache_name(settings: Settings, device: Device, bundle: Bundle, facts: DeviceFacts, model: Blob) -> str:
    """The file's path below the device's root; empty: no cache for this run, as where space is short."""
    manifest = bundle.manifest
    wanted = manifest.engine == LEAN and settings.weights_cache and device.weights_cache
    room = facts.free is None or facts.free >= _ROOM * model.size
    # Other kernels read other packed weights: runs with and without them in turns would each pack theirs again.
    limits = f"-{sha256_bytes(' '.join(settings.limits).encode())[:8]}" if settings.limits else ""
    return f"weights/{model.sha256}.{manifest.target}-{manifest.engine}{limits}" if wanted and room else ""


def load_text(runner: RunnerResult) -> str:
    """The load time with what the cache did to it: ``0.91 ms, 7.37 ms without the weights cache``."""
    text = f"{runner.load_ms:.2f} ms"
    cache = runner.weights.cache if runner.weights else None
    if cache is None:
        return text
    if cache.found and cache.packing_load_ms:
        return f"{text} with the weights cache kept on the device, {cache.packing_load_ms:.2f} ms without"
    if cache.state in {"made", "extended"}:
        return f"{text}; the weights cache for the next load was written ({cache.why})"
    return f"{text}; no weights cache: {cache.why}" if cache.state == "none" else text
