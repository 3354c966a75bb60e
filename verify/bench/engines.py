"""What ``./inv self.bench --engines`` does: one model through every engine of this machine's target, in turns.

Processes of all engines alternate round by round, so that what else the machine does meets all of them alike. Only
native runs are timed.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import Any

from core import console
from core.errors import BuildError, NotSupportedError
from core.formats.bundle import Bundle
from core.formats.program import ENGINES, Program, load_program
from core.processes.commands import run as run_command
from verify.bench.kept import quiet
from verify.tables import Table, table_of

DOCS = Table("docs/onnx.md", "engines")
MODEL = "mobilenet_v2"
SCHEMES = ("fp32", "qs8")
FLAGS = {"onnxruntime": (("xnnpack", ("--provider=xnnpack",)), ("cpu", ("--provider=cpu",)))}
"""The ways to run an engine, where there are several: name and flags of the runner."""
BUSY = 0.5
"""Load average above which figures are not worth keeping."""
_SECONDS = 600.0


@dataclass
class Case:
    """An engine with a program, and what was measured of it."""

    engine: str
    way: str
    scheme: str
    bundle: Bundle
    folder: Path
    program: Program
    flags: tuple[str, ...] = ()
    load: list[float] = field(default_factory=list)
    latency: list[float] = field(default_factory=list)
    rss: list[int] = field(default_factory=list)

    @property
    def name(self) -> str:
        """``onnxruntime, xnnpack``."""
        return f"{self.engine}, {self.way}" if self.way else self.engine

    def run(self, threads: int, executions: int, warmup: int) -> None:
        """One process; its figures are added."""
        from deploy.run.needs import runner_here

        inputs = ",".join(str(self.folder / one.file) for one in self.program.inputs)
        done = run_command(
            [*runner_here(self.bundle), f"--model_path={self.folder / self.program.file}", f"--inputs={inputs}",
             f"--num_executions={executions}", f"--warmup={warmup}", f"--cpu_threads={threads}", "--json",
             *self.flags],
            timeout=_SECONDS, error=BuildError, what=f"Running {self.name} {self.scheme}",
        )  # fmt: skip
        answer = json.loads(done.stdout)
        self.load.append(answer["load_ms"])
        self.latency += answer["latency_ms"]["all"]
        self.rss.append(answer["peak_rss_bytes"])

    def row(self) -> dict[str, Any]:
        """Milliseconds and bytes: medians over the rounds, percentiles over all executions."""
        ordered = sorted(self.latency)
        return {
            "engine": self.name,
            "version": self.bundle.manifest.offers.engine_version,
            "scheme": self.scheme,
            "load_ms": round(statistics.median(self.load), 2),
            "p50_ms": round(percentile(ordered, 50), 3),
            "p90_ms": round(percentile(ordered, 90), 3),
            "peak_rss_bytes": int(statistics.median(self.rss)),
            "program_bytes": self.program.size,
            "bundle_bytes": sum(
                entry.size for entry in self.bundle.manifest.files if entry.path.startswith(("bin/", "lib/"))
            ),
        }


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Of the nearest rank, as the runner's."""
    return ordered[max(0, ceil(len(ordered) * percent / 100) - 1)]


def cases() -> list[Case]:
    """Every engine that works on this machine's own target, in every way, with every scheme."""
    from core.environment import ensure_export, ensure_onnx
    from models.export import export
    from toolchains.bundle.builder import build
    from toolchains.targets import host_target

    ensure_export()
    ensure_onnx()
    found = []
    for engine, format_ in ENGINES.items():
        try:
            bundle = build(host_target().name, engine)
        except NotSupportedError as error:
            console.note(f"{engine}: {error.what}")
            continue
        for scheme in SCHEMES:
            folder = export(MODEL, scheme, format=format_)
            program = load_program(folder)
            found += [
                Case(engine, way, scheme, bundle, folder, program, flags)
                for way, flags in FLAGS.get(engine, (("", ()),))
            ]
    return found


def measure(found: Sequence[Case], threads: int, rounds: int, executions: int) -> dict[str, Any]:
    """Run all cases ``rounds`` times in turns."""
    before = os.getloadavg()[0]
    for _ in range(rounds):
        for case in found:
            case.run(threads, executions, warmup=3)
    return {
        "model": MODEL,
        "threads": threads,
        "rounds": rounds,
        "executions": executions,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "load_average_before": round(before, 2),
        "rows": [case.row() for case in found],
    }


def run(runs: int, threads: int, as_json: bool, update: bool) -> None:
    """Measure and print; with ``update`` keep the figures for the docs."""
    result = measure(cases(), threads, runs, executions=20)
    if update and quiet(result["load_average_before"], BUSY):
        DOCS.write(f"{table_of(HEADINGS, [cells(row) for row in result['rows']])}\n{_about(result)}\n")
    if as_json:
        console.print_json(result)
        return
    console.table(
        f"{MODEL}, {threads} threads, {runs} rounds of {result['executions']} executions, in turns",
        HEADINGS,
        [cells(row) for row in result["rows"]],
        caption=f"{result['machine']}; load average before: {result['load_average_before']}",
    )


HEADINGS = ["engine", "scheme", "load", "p50", "p90", "peak RSS", "program", "bundle"]


def cells(row: dict[str, Any]) -> list[str]:
    """A row of the table."""
    return [
        f"{row['engine']} ({row['version']})",
        row["scheme"],
        f"{row['load_ms']:.1f} ms",
        f"{row['p50_ms']:.2f} ms",
        f"{row['p90_ms']:.2f} ms",
        *(f"{row[name] / 1e6:.1f} MB" for name in ("peak_rss_bytes", "program_bytes", "bundle_bytes")),
    ]


def _about(result: dict[str, Any]) -> str:
    return (
        f"{result['model']}, {result['threads']} threads, {result['rounds']} rounds of {result['executions']} "
        f"executions in turns; {result['machine']}; load average before the run {result['load_average_before']}."
    )
