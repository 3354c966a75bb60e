"""What ``./inv self.agree`` compares, and what came of it; and the zoo's programs, with further architectures.

Upstream's own runtime computed the outputs on this machine, once: an export keeps them beside the program. Exports of
the further architectures are in the cache.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from core.files import sha256_bytes, sha256_file
from core.formats.program import ENDLESS, Tolerance, load_program
from core.paths import cache_dir
from core.strict_json import Frozen
from models.zoo import PORTABLE, everything, load_compared
from verify.programs import pick

INFINITE = ENDLESS
Outcome = Literal["exact", "agrees", "differs", "refused", "failed", "too slow"]


class Cell(Frozen):
    """One program on one executor."""

    outcome: Outcome
    """``exact``: bit for bit; ``refused``: the engine does not take it there, and says why."""
    max_abs: float = 0.0
    """Largest absolute difference from upstream's outputs; `INFINITE` if it is not a number."""
    right: Literal["", "lean", "upstream", "both", "known"] = ""
    """Where the engines differ: whose outputs are PyTorch's; ``both``: both refuse it; ``known``: it is refused for
    what docs/lean.md says is missing."""
    why: str = ""
    how: str = ""
    """How it ran there; empty where it did not."""

    @property
    def good(self) -> bool:
        """Whether the outputs agree, and nothing is to be explained."""
        return self.outcome in ("exact", "agrees") and not self.right

    @property
    def wrong(self) -> bool:
        """Whether lean may be at fault."""
        return not self.good and self.right not in ("lean", "both", "known")


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
        first = [file for _, given in self.first for file in given]
        files = [sha256_file(one) for one in (self.file, *self.inputs, *self.outputs, *self.data, *first)]
        limits = [[one.atol, one.rtol] for one in self.limits]
        runs = self.runs if self.method == "forward" else [self.method, self.runs]
        return sha256_bytes(json.dumps([files, limits, runs]).encode())[:16]


def table() -> dict[str, About]:
    """All programs by name, the zoo's first."""
    found = [About(f"{model} {scheme}", model, scheme, exact=scheme == STATIC) for model, scheme in everything()]
    found += [
        About(f"{one.name} {scheme}", one.name, scheme, one.exact, further=True)
        for one in load_compared().values()
        for scheme in one.compared
    ]
    return {about.name: about for about in found}


def chosen(expression: str) -> list[About]:
    """The programs that ``expression`` names (`verify.programs.pick`)."""
    known = table()
    return [known[name] for name in pick(known, expression, "./inv self.agree --program 'mlp q*'")]


def prepare(abouts: Sequence[About]) -> Iterator[Compared]:
    """Export what is not kept yet, and let upstream's runtime compute it.

    Raises:
        ExportError: one cannot be exported.
    """
    from models.export import export

    for about in abouts:
        scheme, partitioners = ("fp32", ("none",)) if about.scheme == PORTABLE else (about.scheme, ())
        out = cache_dir("tests", "architectures") if about.further else None
        yield of_export(about, export(about.model, scheme, partitioners=partitioners, out=out))


def of_export(about: About, folder: Path) -> Compared:
    """An exported program, as something to compare."""
    program = load_program(folder)
    exact = about.exact or (about.scheme == STATIC and not program.undelegated)
    runs = max(program.executions, default=1)
    outputs = program.executions.get(runs, program.outputs)
    return Compared(
        about=about,
        file=folder / program.file,
        inputs=tuple(folder / one.file for one in program.inputs),
        outputs=tuple(folder / one.file for one in outputs),
        limits=tuple(_EXACT if exact else program.tolerance_of(index) for index in range(len(outputs))),
        runs=runs,
    )
