"""What shall run: a program with its inputs, and the reference if there is one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from core.errors import ProgramError, UsageError
from core.files import sha256_file
from core.program import DESCRIPTION, Program, Tolerance, load_program
from deploy.runner import MODEL
from deploy.store import Blob


@dataclass(frozen=True)
class Job:
    """A program, ready to be deployed."""

    name: str
    model: Blob
    inputs: tuple[Blob, ...]
    references: tuple[Path, ...]
    """Expected outputs, in order; empty when there are none."""
    tolerances: tuple[Tolerance, ...]
    """One for each reference, or none: then each dtype's default."""
    shapes: str
    method: str
    program: Program | None

    @property
    def input_names(self) -> list[str]:
        """Names of the inputs in the run's folder."""
        return [f"input{index}.npy" for index in range(len(self.inputs))]

    @property
    def files(self) -> dict[str, Blob]:
        """What the run's folder holds: name to file."""
        return {MODEL: self.model, **dict(zip(self.input_names, self.inputs, strict=True))}


def load_job(
    where: Path,
    program: Program | None = None,
    *,
    inputs: Sequence[Path] = (),
    shapes: str = "",
    expected: Sequence[Path] = (),
    method: str = "",
) -> Job:
    """The job for ``where``: a folder that an export left, or any ``.pte`` file.

    Args:
        program: the folder's description, when it has been read already.
        inputs: ``.npy`` files instead of the reference's own (then there is no reference but ``expected``).
        shapes: shapes of inputs to be filled with ones, ``1x3x224x224,1x8``.
        expected: ``.npy`` files with the outputs to be compared with.
        method: instead of the program's own (``forward``).

    Raises:
        ProgramError: missing, truncated or changed. UsageError: an input or expected file is missing.
    """
    missing = [str(file) for file in (*inputs, *expected) if not file.is_file()]
    if missing:
        raise UsageError(f"There is no file {', '.join(missing)}.", "", "give .npy files, comma-separated", missing)
    if where.is_dir() or program is not None:
        program = program or load_program(where)
        own = not inputs and not shapes
        return Job(
            name=program.name,
            model=_blob(where / program.file, program.sha256),
            inputs=tuple(_blob(file) for file in (inputs or (_reference(where, item.file) for item in program.inputs)))
            if not shapes
            else (),
            references=tuple(expected)
            or (tuple(_reference(where, item.file) for item in program.outputs) if own else ()),
            tolerances=tuple(program.tolerance_of(index) for index in range(len(program.outputs))),
            shapes=shapes,
            method=method or program.method,
            program=program,
        )
    if not where.is_file():
        raise ProgramError(
            f"There is no program {where}.",
            "neither a .pte file nor a folder that an export left",
            "./inv models, then ./inv export --model NAME",
        )
    if where.name == DESCRIPTION:
        return load_job(where.parent, inputs=inputs, shapes=shapes, expected=expected, method=method)
    return Job(
        name=where.stem,
        model=_blob(where),
        inputs=tuple(_blob(file) for file in inputs),
        references=tuple(expected),
        tolerances=(),
        shapes=shapes,
        method=method or "forward",
        program=None,
    )


def _reference(folder: Path, name: str) -> Path:
    file = folder / name
    if not file.is_file():
        raise ProgramError(f"{file} is missing.", "a reference file was removed", "export it again with --force")
    return file


def _blob(file: Path, sha256: str = "") -> Blob:
    return Blob(file.resolve(), sha256 or sha256_file(file), file.stat().st_size)
