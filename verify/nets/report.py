"""``./inv self.bench --what nets``, and its tables: in short by scheme, and one of all programs for the docs."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from commands.own import Bench
from core import console
from core.errors import ConfigError, UsageError
from core.formats.program import load_program
from verify.bench.cases import machine
from verify.bench.measuring import Measured, Subject, engines, sweep, undisturbed
from verify.nets.exporting import Export, export, folder_of
from verify.nets.table import FLOAT, Exported, choose
from verify.tables import Table, table_of

THREADS = (1, 2)
SHORT_OF = (Table("docs/speed.md", "short"), Table("docs/speed.md", "short-avx2"))
"""With AVX-512, and without: the kernels are others."""
OUTPUTS = Table("docs/speed.md", "apart")
AIMS = {"p50": 0.80, "load": 0.35, "cached": 0.15, "rss": 0.80}
"""Geometric means to stay under."""
SLOW = 1.05
"""Ratio of p50 above which a program is listed."""
SHORT = [
    "scheme",
    "programs",
    "p50, 1 thread",
    "p50, 2 threads",
    "load",
    "load, cached",
    "peak RSS",
    f"p50 above {SLOW}",
]
FULL = [
    "net", "scheme", "p50, 1 thread", "ratio", "p50, 2 threads", "ratio", "load", "ratio", "cached", "ratio",
    "peak RSS", "ratio",
]  # fmt: skip
APART = [
    "program",
    "elements beyond the tolerance",
    "largest difference, in tolerances",
    "lean to float",
    "upstream to float",
]

CACHED = "cached_load_ms"

Row = dict[str, Any]


def row(program: Exported, made: Export, seen: Measured | None) -> Row:
    """What is kept of a program."""
    found: Row = {"net": program.net.name, "scheme": program.scheme}
    error = made.error or (seen.error if seen else "")
    if error or seen is None:
        return {**found, "error": error}
    figures = {str(threads): one.model_dump(mode="json") for threads, one in seen.figures.items()}
    apart = seen.apart.model_dump(mode="json") if seen.apart else None
    return {
        **found, "executions": seen.executions, "others": seen.others, "figures": figures,
        "cached_load_ms": seen.cached_load_ms, "apart": apart,
    }  # fmt: skip


def ratio(one: Row, key: str, threads: int = THREADS[-1]) -> float:
    """Lean's figure in parts of upstream's; `CACHED`: its load with a cache in parts of upstream's load."""
    if key == CACHED:
        return float(one[CACHED] / one["figures"][str(threads)]["load_ms"][1])
    ours, theirs = one["figures"][str(threads)][key]
    return float(ours / theirs)


def _measured(rows: Iterable[Row]) -> list[Row]:
    return [one for one in rows if one.get("figures")]


def _mean(rows: Sequence[Row], key: str, aim: float, threads: int = THREADS[-1]) -> str:
    value = statistics.geometric_mean(ratio(one, key, threads) for one in rows)
    return f"{value:.2f}" + ("" if value <= aim else " (!)")


def _slow(rows: Sequence[Row], named: bool) -> str:
    """The programs that are slower than upstream's, the slowest first, with the worse of their ratios."""
    worst = [(max(ratio(one, "p50_ms", threads) for threads in THREADS), one) for one in rows]
    slow = sorted((pair for pair in worst if pair[0] > SLOW), key=lambda pair: -pair[0])
    words = [f"{one['net']}{' ' + one['scheme'] if named else ''} {value:.2f}" for value, one in slow]
    return f"{len(words)}: {', '.join(words)}" if words else "none"


def short(rows: Sequence[Row]) -> list[list[str]]:
    """A line for each scheme, and one for all."""
    found = _measured(rows)
    schemes = dict.fromkeys(one["scheme"] for one in found)
    groups = [(scheme, [one for one in found if one["scheme"] == scheme]) for scheme in schemes]
    lines = []
    for name, group in [*groups, *([("all", found)] if len(groups) > 1 else [])]:
        lines.append(
            [
                name,
                str(len(group)),
                *(_mean(group, "p50_ms", AIMS["p50"], threads) for threads in THREADS),
                _mean(group, "load_ms", AIMS["load"]),
                _mean(group, CACHED, AIMS["cached"]),
                _mean(group, "peak_rss_bytes", AIMS["rss"]),
                _slow(group, named=False) if name != "all" else _slow(group, named=True).partition(":")[0],
            ]
        )
    return lines


def full(rows: Sequence[Row]) -> list[list[str]]:
    """A line for each program, in the table's order."""
    lines = []
    for one in _measured(rows):
        cells = [one["net"], one["scheme"]]
        columns = [("p50_ms", threads, 1.0, "ms") for threads in THREADS]
        columns += [
            ("load_ms", THREADS[-1], 1.0, "ms"),
            (CACHED, 0, 1.0, ""),
            ("peak_rss_bytes", THREADS[-1], 1e-6, "MB"),
        ]
        for key, threads, scale, unit in columns:
            if key == CACHED:
                cells += [f"{one[CACHED]:.3g} ms", f"{ratio(one, CACHED):.2f}"]
                continue
            ours, theirs = (value * scale for value in one["figures"][str(threads)][key])
            cells += [f"{ours:.3g} : {theirs:.3g} {unit}", f"{ratio(one, key, threads):.2f}"]
        lines.append(cells)
    return lines


def differing(rows: Sequence[Row]) -> list[list[str]]:
    """The programs whose outputs are beyond the tolerance on lean."""
    return [
        [
            f"{one['net']} {one['scheme']}",
            str(far["outside"]),
            f"{float(far['largest']):.3g}",
            f"{float(far['lean_to_float']):.3g}",
            f"{float(far['upstream_to_float']):.3g}",
        ]
        for one in _measured(rows)
        if (far := one["apart"]) and far["outside"]
    ]


def subject(one: Exported) -> Subject:
    """A program that was exported, as something to measure."""
    folder = folder_of(one)
    program = load_program(folder, verify=False)
    return Subject(
        one.name, folder / program.file, tuple(folder / each.file for each in program.inputs), THREADS, 700.0, 100,
        program, tuple(folder / f"{FLOAT}{index}.npy" for index in range(len(program.outputs))),
    )  # fmt: skip


def run(request: Bench) -> None:
    """Export what is missing, measure, print; with ``--update`` keep the figures for the docs.

    Raises:
        ConfigError: ``--only`` names nothing, or nothing could be exported. NotSupportedError: not on this machine.
        UsageError: some programs only are to be kept.
    """
    chosen = choose(request.only)
    if request.update and request.only:
        raise UsageError("Figures of some nets only are not kept.", "--only was given with --update", "leave one out")
    bundles = engines()
    made = export(chosen, request.again)
    ready = [one for one in chosen if not made[one.name].error]
    if not ready:
        first = made[chosen[0].name]
        raise ConfigError(
            "The export of every net failed.", first.error, "./inv self.bench --what nets --only resnet18"
        )
    seen = sweep("nets", bundles, [subject(one) for one in ready], request.runs, request.again)
    result = {
        "rounds": request.runs,
        "machine": machine(),
        "rows": [row(one, made[one.name], seen.get(one.name)) for one in chosen],
    }
    if request.update:
        quiet = undisturbed(seen)
        keep({**result, "rows": [row(one, made[one.name], quiet[one.name]) for one in ready if one.name in quiet]})
    if request.json:
        console.print_json(result)
        return
    _print(result)


def keep(result: dict[str, Any]) -> None:
    """Put what programs came to into the docs' tables of this kind of processor."""
    rows = result["rows"]
    SHORT_OF["AVX2" in result["machine"]].write(f"{table_of(SHORT, short(rows))}\n{_about(result)}\n")
    far = differing(rows)
    OUTPUTS.write(table_of(APART, far) if far else "All of these programs are within the tolerance.\n")


def _print(result: dict[str, Any]) -> None:
    rows = result["rows"]
    if len(rows) <= 30:
        console.table("lean : executorch", FULL, full(rows))
    if far := differing(rows):
        console.table("beyond the tolerance", APART, far)
    failed = [[f"{one['net']} {one['scheme']}", one["error"]] for one in rows if one.get("error")]
    if failed:
        console.table("not measured", ["program", "why"], failed)
    console.table("lean beside executorch, geometric means of ratios", SHORT, short(rows), caption=_about(result))


def _about(result: dict[str, Any]) -> str:
    aims = ", ".join(f"{name} {value}" for name, value in AIMS.items())
    return (
        f"lean : executorch; {result['rounds']} rounds of both engines in turns and random order; load and peak RSS "
        f"with {THREADS[-1]} threads; {result['machine']}; (!) above the aim ({aims})"
    )
