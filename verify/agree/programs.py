"""The programs that ``./inv self.agree`` compares: the zoo in all schemes, further architectures, upstream's outputs.

Upstream's own runtime computed the outputs on this machine, once: an export of the zoo keeps them beside the program,
those of the architectures are in the cache.
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from core import console
from core.files import sha256_bytes, sha256_file
from core.formats.program import Tolerance, load_program
from models.architectures.table import load_architectures
from models.zoo import everything
from verify.corpus import pick

if TYPE_CHECKING:
    from models.architectures.exporting import Reference

STATIC = "qs8"
"""Static 8 bits: where nothing is left outside the delegate, XNNPACK computes with whole numbers alone."""
_EXACT = Tolerance(atol=0.0, rtol=0.0, why="the same bits")


@dataclass(frozen=True)
class About:
    """What is known of a program without exporting it."""

    name: str
    """``mlp qs8``, ``llama portable``."""
    model: str = ""
    scheme: str = ""
    exact: bool = False
    """Whether it only moves elements or computes with whole numbers."""
    further: bool = False
    """Whether it is an architecture, not of the zoo."""


@dataclass(frozen=True)
class Compared:
    """A program, and what upstream's runtime computed with it."""

    about: About
    file: Path
    inputs: tuple[Path, ...]
    outputs: tuple[Path, ...]
    """Upstream's, after the last of ``runs`` executions."""
    limits: tuple[Tolerance, ...]
    """One an output."""
    runs: int = 1
    method: str = "forward"
    data: tuple[Path, ...] = ()
    """Files of weights."""
    first: tuple[tuple[str, tuple[Path, ...]], ...] = ()
    """Methods that run once before, each with its inputs."""

    @property
    def files(self) -> tuple[Path, ...]:
        """All that the runner reads."""
        return (self.file, *self.inputs, *self.data, *(file for _, given in self.first for file in given))

    @functools.cached_property
    def digest(self) -> str:
        """Of everything that decides what a comparison says, but the engine."""
        files = [sha256_file(file) for file in (self.file, *self.inputs, *self.outputs)]
        limits = [[one.atol, one.rtol] for one in self.limits]
        return sha256_bytes(json.dumps([files, limits, self.runs]).encode())[:16]


def table() -> dict[str, About]:
    """All programs by name, the zoo's first."""
    found = [About(f"{model} {scheme}", model, scheme, exact=scheme == STATIC) for model, scheme in everything()]
    found += [
        About(f"{one.name} {scheme}", one.name, scheme, one.exact, further=True)
        for one in load_architectures().values()
        for scheme in one.schemes
    ]
    return {about.name: about for about in found}


def chosen(expression: str) -> list[About]:
    """The programs that ``expression`` names (`verify.corpus.pick`)."""
    known = table()
    return [known[name] for name in pick(known, expression, "./inv self.agree --program 'mlp q*'")]


def prepare(abouts: Sequence[About]) -> Iterator[Compared]:
    """Export what is not kept yet, and let upstream's runtime compute it.

    Raises:
        ExportError: one cannot be exported.
    """
    from models.architectures.exporting import references
    from models.export import export
    from models.lowering.quiet import log_path, quiet

    for about in abouts:
        if about.further:
            started = time.monotonic()
            with quiet(log_path("architectures")):
                reference = references([(load_architectures()[about.model], about.scheme)])[0]
            if (took := time.monotonic() - started) > 1:
                console.note(f"{about.name}: exported in {took:.0f} s")
            yield of_reference(about, reference)
            continue
        yield _of_zoo(about, export(about.model, about.scheme))


def _of_zoo(about: About, folder: Path) -> Compared:
    program = load_program(folder)
    limits = tuple(_EXACT if about.exact else program.tolerance_of(index) for index in range(len(program.outputs)))
    return Compared(
        about=about,
        file=folder / program.file,
        inputs=tuple(folder / one.file for one in program.inputs),
        outputs=tuple(folder / one.file for one in program.outputs),
        limits=limits,
    )


def of_reference(about: About, reference: Reference) -> Compared:
    """An architecture that was exported, as something to compare."""
    limits = tuple(Tolerance(atol=atol, rtol=rtol, why=about.scheme) for atol, rtol in reference.tolerances)
    exact = about.exact or (about.scheme == STATIC and not reference.operators)
    return Compared(
        about=about,
        file=reference.folder / "model.pte",
        inputs=tuple(reference.folder / f"input{index}.npy" for index in range(reference.inputs)),
        outputs=tuple(reference.folder / f"output{index}.npy" for index in range(len(limits))),
        limits=tuple(_EXACT for _ in limits) if exact else limits,
        runs=reference.runs,
    )
