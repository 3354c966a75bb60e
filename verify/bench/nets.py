"""``./inv self.bench --what nets``: the nets of ``nets.toml``, their export, and tables of what they take. No torch."""

from __future__ import annotations

import functools
import json
import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from commands.own import Bench
from core import console, environment
from core.environment import bootstrap
from core.errors import ConfigError
from core.files import sha256_bytes, sha256_file
from core.formats.program import DESCRIPTION, load_program
from core.paths import dist_part
from core.processes import sweep as sweeping
from core.processes.sweep import Journal
from models.request import versions
from models.zoo.schemes import get_scheme, read
from verify.bench.measuring import Measured, Subject, engines, machine, sweep, undisturbed
from verify.programs import Made, Maker, pick
from verify.tables import Table, table_of

TABLE = Path(__file__).with_name("nets.toml")
FLOAT = "float"
"""``floatN.npy`` beside a program: the float model's outputs."""
_INPUT = re.compile(r"(\d+(?:x\d+)*)(?: <(\d+))?")


@dataclass(frozen=True)
class Input:
    """What a net is called with: noise, or whole numbers."""

    shape: tuple[int, ...]
    below: int = 0
    """Whole numbers from 0 up to this; 0: float32 noise."""

    @classmethod
    def of(cls, text: str) -> Input:
        """``1x3x224x224`` or ``1x64 <1000``.

        Raises:
            ConfigError: it is neither.
        """
        found = _INPUT.fullmatch(text)
        if not found:
            raise ConfigError(
                f"{text!r} does not describe an input.", "", 'give "1x3x224x224", or "1x64 <1000" for whole numbers'
            )
        return cls(tuple(int(size) for size in found[1].split("x")), int(found[2] or 0))


@dataclass(frozen=True)
class Net:
    """A row of the table."""

    name: str
    make: str
    """``module:name``."""
    inputs: dict[str, str]
    """The forward's arguments, each as `Input.of` reads it."""
    schemes: tuple[str, ...]
    config: str = ""
    settings: dict[str, Any] | None = None
    take: tuple[str, ...] = ()
    """Names of the results that are outputs; all tensors when empty."""

    @property
    def digest(self) -> str:
        """Of everything in the row that decides its program, the scheme apart."""
        row = [self.make, self.config, self.settings or {}, list(self.inputs.items()), self.take]
        return sha256_bytes(json.dumps(row, sort_keys=True).encode())


@dataclass(frozen=True)
class Exported:
    """A net in a scheme."""

    net: Net
    scheme: str

    @property
    def name(self) -> str:
        """``resnet18 fp32``."""
        return f"{self.net.name} {self.scheme}"

    @property
    def folder(self) -> str:
        """``resnet18-fp32``."""
        return f"{self.net.name}-{self.scheme}"


@functools.cache
def load() -> dict[str, Net]:
    """All nets by name, in the table's order.

    Raises:
        ConfigError: an unknown scheme or a malformed input.
    """
    found = {}
    for section in read(TABLE).values():
        nets = section.pop("nets")
        for name, own in nets.items():
            row = {**section, **own}
            row["make"] += name if row["make"].endswith(":") else ""
            net = Net(name=name, **{**row, "schemes": tuple(row["schemes"]), "take": tuple(row.get("take", ()))})
            for scheme in net.schemes:
                get_scheme(scheme)
            for text in net.inputs.values():
                Input.of(text)
            found[name] = net
    return found


def programs() -> list[Exported]:
    """Every net in every scheme that makes sense for it."""
    return [Exported(net, scheme) for net in load().values() for scheme in net.schemes]


def choose(expression: str) -> list[Exported]:
    """The programs that ``expression`` names.

    Args:
        expression: as `verify.programs.pick` reads it: ``resnet18``, ``mobilenet* qs8``, ``* fp16``.

    Raises:
        ConfigError: one of them names nothing.
    """
    known = {one.name: one for one in programs()}
    return [known[name] for name in pick(known, expression, "./inv self.bench --what nets --only 'resnet18,* qs8'")]


CODE = (Path(__file__).with_name("making.py"),)
"""What makes nets."""


def folder_of(program: Exported) -> Path:
    """Where its program is: ``dist/nets/resnet18-fp32``."""
    return dist_part("nets") / program.folder


def key(program: Exported) -> str:
    """Digest of the net, the packages and the code that makes it.

    Not of the exporter's own code: a program of last week's is as good for a comparison of engines. ``--again`` exports
    anew.
    """
    own = [sha256_file(file) for file in CODE]
    lock = sha256_file(bootstrap.lock_file("nets"))
    return sha256_bytes(
        json.dumps([program.net.digest, repr(get_scheme(program.scheme)), own, lock, versions()]).encode()
    )


def export(programs: Sequence[Exported]) -> dict[str, Made]:
    """Export what is not there yet; results by the programs' names, in their order."""
    environment.ensure_export()  # before the keys, which name its versions
    with Maker("verify.bench.making", ("nets",)) as maker:

        def work(one: Exported) -> Made:
            return maker.ask(one.folder, {"net": one.net.name, "scheme": one.scheme, "out": str(dist_part("nets"))})

        cells = [sweeping.Cell(one.name, key(one), partial(work, one)) for one in programs]
        return sweeping.sweep(
            "exporting", cells, Journal.of("nets-export", Made), remark=lambda made: made.remark,
            holds=lambda made: bool(made.error) or (dist_part("nets") / made.folder / DESCRIPTION).is_file(),
        )  # fmt: skip


THREADS = (1, 2)
SHORT_OF = (Table("docs/speed.md", "short"), Table("docs/speed.md", "short-avx2"))
"""With AVX-512, and without: the kernels are others."""
OUTPUTS = Table("docs/speed.md", "apart")
AIMS = {"p50_ms": 0.80, "load_ms": 0.35, "cached": 0.15, "peak_rss_bytes": 0.80}
"""Geometric means to stay under."""
MANY = 30
"""Programs, above which the table has means alone."""
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

Row = tuple[Exported, Measured]
"""A program, and what was measured of it, or the error with which its export or its measurement ended."""
METRICS = ("load_ms", "cached", "peak_rss_bytes")
"""With the most threads; ``cached``: lean's load with a cache in parts of upstream's load."""


def _pair(seen: Measured, metric: str, threads: int = THREADS[-1]) -> tuple[float, float]:
    """Lean's figure and upstream's."""
    ours, theirs = seen.pair
    if metric == "cached":
        return seen.cached_load_ms, theirs.load_ms
    if metric == "p50_ms":
        return ours.p50_ms[threads], theirs.p50_ms[threads]
    return getattr(ours, metric), getattr(theirs, metric)


def ratio(seen: Measured, metric: str, threads: int = THREADS[-1]) -> float:
    """Lean's figure in parts of upstream's."""
    ours, theirs = _pair(seen, metric, threads)
    return ours / theirs


def _measured(rows: Iterable[Row]) -> list[Row]:
    return [one for one in rows if one[1].figures]


def _mean(rows: Sequence[Row], metric: str, threads: int = THREADS[-1]) -> str:
    value = statistics.geometric_mean(ratio(seen, metric, threads) for _, seen in rows)
    return f"{value:.2f}" + ("" if value <= AIMS[metric] else " (!)")


def _slow(rows: Sequence[Row], named: bool) -> str:
    """The programs that are slower than upstream's, the slowest first, with the worse of their ratios."""
    worst = [(max(ratio(seen, "p50_ms", threads) for threads in THREADS), one) for one, seen in rows]
    slow = sorted((pair for pair in worst if pair[0] > SLOW), key=lambda pair: -pair[0])
    words = [f"{one.name if named else one.net.name} {value:.2f}" for value, one in slow]
    return f"{len(words)}: {', '.join(words)}" if words else "none"


def short(rows: Sequence[Row]) -> list[list[str]]:
    """A line for each scheme, and one for all."""
    found = _measured(rows)
    schemes = dict.fromkeys(one.scheme for one, _ in found)
    groups = [(scheme, [row for row in found if row[0].scheme == scheme]) for scheme in schemes]
    return [
        [
            name,
            str(len(group)),
            *(_mean(group, "p50_ms", threads) for threads in THREADS),
            *(_mean(group, metric) for metric in METRICS),
            _slow(group, named=False) if name != "all" else _slow(group, named=True).partition(":")[0],
        ]
        for name, group in [*groups, *([("all", found)] if len(groups) > 1 else [])]
    ]


def full(rows: Sequence[Row]) -> list[list[str]]:
    """A line for each program, in the table's order."""
    columns = [*(("p50_ms", threads) for threads in THREADS), *((metric, THREADS[-1]) for metric in METRICS)]
    lines = []
    for one, seen in _measured(rows):
        cells = [one.net.name, one.scheme]
        for metric, threads in columns:
            scale, unit = (1e-6, "MB") if metric == "peak_rss_bytes" else (1.0, "ms")
            ours, theirs = (value * scale for value in _pair(seen, metric, threads))
            text = f"{ours:.3g}" if metric == "cached" else f"{ours:.3g} : {theirs:.3g}"
            cells += [f"{text} {unit}", f"{ours / theirs:.2f}"]
        lines.append(cells)
    return lines


def differing(rows: Sequence[Row]) -> list[list[str]]:
    """The programs whose outputs are beyond the tolerance on lean."""
    return [
        [
            one.name,
            str(far.outside),
            *(f"{value:.3g}" for value in (far.largest, far.lean_to_float, far.upstream_to_float)),
        ]
        for one, seen in rows
        if (far := seen.apart) and far.outside
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
    """
    chosen = choose(request.only)
    bundles = engines()
    made = export(chosen)
    ready = [one for one in chosen if not made[one.name].error]
    if not ready:
        first = made[chosen[0].name]
        raise ConfigError(
            "The export of every net failed.", first.error, "./inv self.bench --what nets --only resnet18"
        )
    seen = sweep("nets", bundles, [subject(one) for one in ready], request.runs)
    rows = [(one, seen.get(one.name) or Measured(error=made[one.name].error)) for one in chosen]
    if request.update:
        quiet = undisturbed(seen)
        keep([row for row in rows if row[0].name in quiet], machine(), request.runs)
    if len(rows) <= MANY:
        console.table("lean : executorch", FULL, full(rows))
    if far := differing(rows):
        console.table("beyond the tolerance", APART, far)
    failed = [[one.name, found.error] for one, found in rows if found.error]
    if failed:
        console.table("not measured", ["program", "why"], failed)
    about = _about(machine(), request.runs)
    console.table("lean beside executorch, geometric means of ratios", SHORT, short(rows), caption=about)


def keep(rows: Sequence[Row], on: str, rounds: int) -> None:
    """Put what programs came to into the docs' tables of this kind of processor."""
    SHORT_OF["AVX2" in on].write(f"{table_of(SHORT, short(rows))}\n{_about(on, rounds)}\n")
    far = differing(rows)
    OUTPUTS.write(table_of(APART, far) if far else "All of these programs are within the tolerance.\n")


def _about(on: str, rounds: int) -> str:
    aims = ", ".join(f"{name.partition('_')[0]} {value}" for name, value in AIMS.items())
    return (
        f"lean : executorch; {rounds} rounds of both engines in turns and random order; load and peak RSS with "
        f"{THREADS[-1]} threads; {on}; (!) above the aim ({aims})"
    )
