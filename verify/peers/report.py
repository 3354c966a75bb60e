"""``./inv self.peers``, and its tables."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence

from commands.own import Peers
from core import console
from core.environment.lock import requirements
from core.errors import UsageError
from verify.bench.measuring import engine, machine, undisturbed
from verify.corpus import pick
from verify.nets.report import THREADS
from verify.peers.cells import FAR, LEAN, NETS, RUNTIMES, Figure, Measured, Wanted, sweep
from verify.tables import Table, table_of

TABLE = Table("docs/speed.md", "peers")
AIM = 1.1
"""Lean's latency in parts of the fastest one's, to stay under."""
EXAMPLE = "./inv self.peers --only 'resnet18,lstm fp32' --runtimes onnxruntime,ncnn"

Cells = Mapping[str, Measured]


def _bits(name: str) -> int:
    return 32 if name.endswith("fp32") else 8


def fastest(name: str, seen: Measured, threads: int) -> tuple[str, float]:
    """Who is the fastest, and lean's latency in parts of the fastest other's; only whose outputs are the net's."""
    counted = {
        one: found.p50_ms[threads]
        for one, found in seen.figures.items()
        if found.p50_ms and found.apart <= FAR[_bits(name)]
    }
    if not counted:
        return "-", 0.0
    others = [value for one, value in counted.items() if one != LEAN]
    ratio = counted[LEAN] / min(others) if LEAN in counted and others else 0.0
    return min(counted, key=lambda one: counted[one]), ratio


def _of_threads(values: Sequence[str]) -> str:
    return values[0] if len(set(values)) == 1 else " / ".join(values)


def _latency(name: str, found: Figure) -> str:
    times = " / ".join(f"{found.p50_ms[threads]:.3g}" for threads in THREADS)
    return times + (" (≠)" if found.apart > FAR[_bits(name)] else "")


def _rest(_: str, found: Figure) -> str:
    size = (found.model_bytes + found.library_bytes) / 1e6
    return f"{found.load_ms:.3g} ms, {found.peak_rss_bytes / 1e6:.0f} MB, {size:.3g} MB"


def _apart(_: str, found: Figure) -> str:
    return f"{found.apart:.1g}"


def _table(cells: Cells, show: Callable[[str, Figure], str]) -> list[list[str]]:
    names = list(dict.fromkeys(name for one in cells.values() for name in one.figures))
    lines = []
    for name, seen in cells.items():
        figures = [seen.figures.get(one, Figure()) for one in names]
        lines.append([name, *(show(name, found) if found.p50_ms else "-" for found in figures)])
    return [["net", *names], *lines]


def latencies(cells: Cells) -> list[list[str]]:
    """Headings and lines: medians, who is the fastest, lean's ratio, and its share of what the processor can do."""
    (heads, *lines) = _table(cells, _latency)
    for line, (name, seen) in zip(lines, cells.items(), strict=True):
        best = [fastest(name, seen, threads) for threads in THREADS]
        mine = seen.figures.get(LEAN, Figure()).p50_ms
        line.append(_of_threads([who for who, _ in best]))
        line.append(" / ".join(f"{ratio:.2f}{' (!)' if ratio > AIM else ''}" if ratio else "-" for _, ratio in best))
        line.append(" / ".join(f"{seen.limit_ms[n] / mine[n]:.0%}" for n in THREADS) if mine else "-")
    return [[*heads, "fastest", "lean : best other", "lean's share of the limit"], *lines]


def goal(cells: Cells) -> str:
    """In how many nets lean is the fastest, and where it is behind by more than the aim."""
    found = []
    for bits, label in ((32, "fp32"), (8, "8 bits")):
        for threads in THREADS:
            ratios = {name: fastest(name, seen, threads)[1] for name, seen in cells.items() if _bits(name) == bits}
            ratios = {name: ratio for name, ratio in ratios.items() if ratio}
            if ratios:
                behind = [f"{name.split()[0]} {ratio:.2f}" for name, ratio in ratios.items() if ratio > AIM]
                first = sum(ratio <= 1 for ratio in ratios.values())
                mean = statistics.geometric_mean(ratios.values())
                found.append(
                    f"- {label}, {threads} thread{'s'[: threads > 1]}: lean is the fastest in {first} of {len(ratios)} "
                    f"(geometric mean of lean : best other {mean:.2f}); behind by more than {AIM}: "
                    f"{', '.join(behind) or 'none'}\n"
                )
    return "".join(found)


def reasons(cells: Cells) -> list[tuple[str, str, str]]:
    """What could not be measured: runtime, nets, why."""
    why: dict[tuple[str, str], list[str]] = {}
    for name, seen in cells.items():
        for one, found in seen.figures.items():
            if found.error:
                why.setdefault((one, found.error), []).append(name)
    every = {bits: [name for name in cells if _bits(name) == bits] for bits in FAR}
    short = {tuple(every[8]): "all in 8 bits", tuple(every[32]): "all in fp32"}
    return [(one, short.get(tuple(names), ", ".join(names)), error) for (one, error), names in why.items()]


def about(cells: Cells, rounds: int) -> str:
    """Versions, processor, what it can do at most, and how it was measured."""
    pins = dict(pin.partition(" ;")[0].split("==") for name in ("export", "peers") for pin in requirements(name))
    named = ", ".join(f"{name} {pins[one.package]}" for name, one in RUNTIMES.items())
    peaks = [max(seen.roofline[threads] for seen in cells.values()) for threads in THREADS]
    return (
        f"{rounds} processes of each runtime and number of threads in turns and random order; {named}; {machine()}, at "
        f"most {' / '.join(f'{flops:.0f}' for flops, _ in peaks)} GFLOPS and "
        f"{' / '.join(f'{read:.0f}' for _, read in peaks)} GB/s\n"
    )


def run(request: Peers) -> None:
    """Export, convert, measure, print; with ``--update`` keep the figures for the docs.

    Raises:
        ConfigError: ``--only`` or ``--runtimes`` names nothing. NotSupportedError: not on this machine.
        UsageError: some figures only are to be kept.
    """
    if request.update and (request.only or request.runtimes):
        raise UsageError("Figures of some nets or runtimes only are not kept.", "", "./inv self.peers --update")
    every = {one.name: one for net in NETS for bits in FAR for one in [Wanted(net, bits)]}
    chosen = [every[name] for name in pick(every, request.only, EXAMPLE)]
    runtimes = pick(RUNTIMES, request.runtimes, EXAMPLE)
    cells = sweep(chosen, runtimes, engine(LEAN), request.runs)
    tables = {
        "latency": latencies(cells), "rest": _table(cells, _rest), "outputs": _table(cells, _apart),
        "reasons": [["runtime", "net", "why there is no figure"], *map(list, reasons(cells))],
    }  # fmt: skip
    said = about(cells, request.runs)
    if request.update and len(undisturbed(cells)) == len(cells):
        text = "\n".join(table_of(table[0], table[1:]) for table in tables.values())
        TABLE.write(f"{goal(cells)}\n{text}\n{said}\n")
    if request.json:
        rows = {name: one.model_dump(mode="json") for name, one in cells.items()}
        console.print_json({"rounds": request.runs, "machine": machine(), "rows": rows})
        return
    for table in tables.values():
        if len(table) > 1:
            console.table("", table[0], table[1:])
    console.note(f"{goal(cells)}{said}")
