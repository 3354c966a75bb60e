"""What ``./inv self.bench --lean`` does: our own engine beside upstream's, the same programs, in turns, as ratios."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Sequence
from typing import Any

from core import console
from core.formats.program import load_program
from verify.bench.engines import BUSY, Case, percentile
from verify.bench.kept import quiet
from verify.tables import Table, table_of

LEAN = Table("docs/lean.md", "bench")
PROGRAMS = (("mobilenet_v2", "fp32"), ("mobilenet_v2", "qs8"), ("linear", "fp32"), ("mixed", "fp32"))
"""Model and scheme; ``mixed`` is an embedding and attention."""
AIMS = {"load": 0.5, "p50": 1.0, "rss": 0.8, "size": 1.0}
"""Ratios to stay under."""
HEADINGS = ["program", "load", "ratio", "p50", "ratio", "peak RSS", "ratio"]

Pair = tuple[Case, Case]


def pairs() -> list[Pair]:
    """Upstream's engine and ours with each program."""
    from core.environment import ensure_export
    from models.export import export
    from toolchains.bundle.builder import build
    from toolchains.targets import host_target

    ensure_export()
    theirs, ours = (build(host_target().name, engine) for engine in ("executorch", "lean"))
    found = []
    for model, scheme in PROGRAMS:
        folder = export(model, scheme)
        program = load_program(folder)
        name = f"{model} {scheme}"
        found.append(
            (
                Case("executorch", "", name, theirs, folder, program),
                Case("lean", "", name, ours, folder, program),
            )
        )
    return found


def _ratio(ours: float, theirs: float) -> float:
    return round(ours / theirs, 3) if theirs else 0.0


def compare(pair: Pair) -> dict[str, Any]:
    """One program's figures: medians over the rounds (load, memory), over all executions (latency); ours to theirs."""
    theirs, ours = pair
    load = [statistics.median(case.load) for case in (ours, theirs)]
    p50 = [percentile(sorted(case.latency), 50) for case in (ours, theirs)]
    rss = [statistics.median(case.rss) for case in (ours, theirs)]
    return {
        "program": ours.scheme,
        "load_ms": [round(one, 3) for one in load],
        "p50_ms": [round(one, 4) for one in p50],
        "peak_rss_bytes": [int(one) for one in rss],
        "ratios": {"load": _ratio(*load), "p50": _ratio(*p50), "rss": _ratio(*rss)},
    }


def _bundle_bytes(case: Case) -> int:
    files = case.bundle.manifest.files
    return sum(entry.size for entry in files if entry.path.startswith(("bin/", "lib/")))


def measure(found: Sequence[Pair], threads: int, rounds: int, executions: int) -> dict[str, Any]:
    """Run all ``rounds`` times, the two engines in turns."""
    before = os.getloadavg()[0]
    for _ in range(rounds):
        for pair in found:
            for case in pair:
                case.run(threads, executions, warmup=3)
    size = [_bundle_bytes(case) for case in reversed(found[0])]
    return {
        "threads": threads,
        "rounds": rounds,
        "executions": executions,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "load_average_before": round(before, 2),
        "bundle_bytes": size,
        "size_ratio": _ratio(*size),
        "rows": [compare(pair) for pair in found],
    }


def run(runs: int, threads: int, as_json: bool, update: bool) -> None:
    """Measure and print; with ``update`` keep the figures for the docs."""
    result = measure(pairs(), threads, runs, executions=50)
    if update and quiet(result["load_average_before"], BUSY):
        LEAN.write(f"{table_of(HEADINGS, [cells(row) for row in result['rows']])}\n{_about(result)}\n")
    if as_json:
        console.print_json(result)
        return
    console.table("lean beside executorch", HEADINGS, [cells(row) for row in result["rows"]], caption=_about(result))


def cells(row: dict[str, Any]) -> list[str]:
    """A row of the table: ours, and the ratio to upstream's with a mark where the aim is missed."""
    found = [row["program"]]
    for name, key, unit, scale in (("load", "load_ms", "ms", 1.0), ("p50", "p50_ms", "ms", 1.0),
                                   ("rss", "peak_rss_bytes", "MB", 1e-6)):  # fmt: skip
        ours, theirs = (value * scale for value in row[key])
        ratio = row["ratios"][name]
        found += [f"{ours:.3g} : {theirs:.3g} {unit}", f"{ratio:.2f}" + ("" if ratio <= AIMS[name] else " (!)")]
    return found


def _about(result: dict[str, Any]) -> str:
    ours, theirs = (size / 1e6 for size in result["bundle_bytes"])
    aims = ", ".join(f"{name} {ratio}" for name, ratio in AIMS.items())
    return (
        f"lean : executorch; {result['threads']} threads, {result['rounds']} rounds of {result['executions']} "
        f"executions in turns; programs and libraries {ours:.1f} : {theirs:.1f} MB; {result['machine']}; "
        f"load average before {result['load_average_before']}; (!) above the aim ({aims})"
    )
