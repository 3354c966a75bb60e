"""``./inv self.bench --what operators``: single operators at the sizes of nets, the engine lean beside upstream's.

Each use of an operator is a program of its own without a delegate, so portable kernels run. Processes of the two
engines alternate; a process repeats the operator for about the same time whatever it costs.
"""

from __future__ import annotations

import math
import os
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core import console
from core.errors import NotSupportedError, SlipwayError
from core.formats.bundle import Bundle
from verify.bench.cases import Case, machine, quiet
from verify.tables import Table, table_of

OPERATORS = Table("docs/lean.md", "operators")
AIM = 1.1
"""Ratio to stay under."""
BUSY = 2.0
"""Load average above which figures are not worth keeping: one thread, and the fastest round counts."""
HEADINGS = ["operator", "sizes", "lean", "upstream", "ratio"]
_TRIAL = 5
_LEAST, _MOST = 10, 2000
_AIMED_MS = 40.0
"""What a process computes for, about; between ``_LEAST`` and ``_MOST`` executions."""


@dataclass
class Use:
    """One program, and what each engine took: the median of each process, in milliseconds."""

    name: str
    kernel: str
    sizes: str
    program: Path
    inputs: tuple[Path, ...]
    times: dict[str, list[float]] = field(default_factory=dict)

    def run(self, bundle: Bundle, executions: int) -> float:
        """One process on one thread: the median in milliseconds."""
        return statistics.median(Case(self.name, bundle, self.program, self.inputs).run(1, executions))

    def row(self) -> dict[str, Any]:
        """Microseconds: the fastest process of each engine, as others only disturb; and lean's to upstream's."""
        ours, theirs = (min(self.times[engine]) * 1000 for engine in ("lean", "executorch"))
        return {
            "name": self.name,
            "kernel": self.kernel,
            "sizes": self.sizes,
            "lean_us": round(ours, 1),
            "upstream_us": round(theirs, 1),
            "ratio": round(ours / theirs, 3),
        }


def export(folder: Path, words: Sequence[str] = ()) -> list[Use]:
    """Programs of all uses in ``folder``, or of those whose name contains one of ``words``."""
    import numpy as np

    from verify.operators import layers

    found = []
    for name in layers.USES:
        if words and not any(word in name for word in words):
            continue
        layer = layers.export(name)
        program = folder / f"{name.replace(' ', '-')}.pte"
        program.write_bytes(layer.program)
        inputs = []
        for i, value in enumerate(layer.inputs):
            inputs.append(program.with_suffix(f".{i}.npy"))
            np.save(inputs[-1], value.contiguous().numpy())
        found.append(Use(name, layer.kernel, layer.sizes, program, tuple(inputs)))
    return found


def measure(uses: Sequence[Use], bundles: Sequence[Bundle], rounds: int) -> dict[str, Any]:
    """Run all ``rounds`` times, the engines in turns."""
    before = os.getloadavg()[0]
    for use in uses:
        trial = min(use.run(bundle, _TRIAL) for bundle in bundles)
        executions = max(_LEAST, min(_MOST, math.ceil(_AIMED_MS / max(trial, 1e-4))))
        for _ in range(rounds):
            for bundle in bundles:
                use.times.setdefault(bundle.manifest.engine, []).append(use.run(bundle, executions))
    rows = [use.row() for use in uses]
    return {
        "rounds": rounds,
        "machine": machine(),
        "load_average_before": round(before, 2),
        "geometric_mean": round(math.exp(statistics.fmean(math.log(row["ratio"]) for row in rows)), 3),
        "rows": rows,
    }


def run(runs: int, words: Sequence[str], as_json: bool, update: bool) -> None:
    """Measure and print; with ``update`` keep the figures for the docs."""
    from core.environment import ensure_export
    from toolchains.bundle.builder import build
    from toolchains.targets import host_target

    ensure_export()
    if update and words:
        raise NotSupportedError(
            "Figures of some operators only are not kept.", "--only was given with --update", "leave one of them out"
        )
    bundles = [build(host_target().name, engine) for engine in ("executorch", "lean")]
    with tempfile.TemporaryDirectory() as folder:
        uses = export(Path(folder), words)
        if not uses:
            raise SlipwayError(
                f"No use of an operator is named like {', '.join(words)}.", "the word is misspelt",
                "./inv self.bench --what operators  (without --only it shows all names)",
            )  # fmt: skip
        result = measure(uses, bundles, runs)
    if update and quiet(result["load_average_before"], BUSY):
        OPERATORS.write(f"{table_of(HEADINGS, [cells(row) for row in result['rows']])}\n{_about(result)}\n")
    if as_json:
        console.print_json(result)
        return
    console.table("lean beside executorch", HEADINGS, [cells(row) for row in result["rows"]], caption=_about(result))


def cells(row: dict[str, Any]) -> list[str]:
    """A row of the table, with a mark where the aim is missed."""
    times = [f"{row[key]:,.1f} µs" for key in ("lean_us", "upstream_us")]
    return [row["name"], row["sizes"], *times, f"{row['ratio']:.2f}" + ("" if row["ratio"] <= AIM else " (!)")]


def _about(result: dict[str, Any]) -> str:
    return (
        f"One thread, {result['rounds']} rounds in turns, the fastest round's median; geometric mean of the ratios "
        f"{result['geometric_mean']:.2f}; {result['machine']}; load average before {result['load_average_before']}; "
        f"(!) above {AIM}"
    )
