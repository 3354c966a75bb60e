"""``./inv self.bench --what nets``: the nets of ``nets.toml``, their export, and tables of what they take. No torch."""

from __future__ import annotations

import functools
import json
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from commands.own import Bench
from core import console, environment
from core.environment import bootstrap
from core.errors import ConfigError
from core.files import sha256_bytes, sha256_file
from core.formats.bundle import Bundle
from core.formats.program import load_program
from core.paths import dist_part
from deploy.run.needs import bundle_digest, runner_here
from models.request import versions
from models.zoo.schemes import get_scheme, read
from verify.bench import measuring
from verify.bench.measuring import LEAN, THREADS, Case, Figure, Measured, Subject, engine, sweep
from verify.programs import Made, Wanted, make_all, pick
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
        for name, own in section.pop("nets").items():
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
    """The programs that ``expression`` names (`verify.programs.pick`): ``resnet18``, ``mobilenet* qs8``, ``* fp16``.

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

    Not of the exporter's own code: a program of last week's is as good for a comparison of engines.
    """
    own = [sha256_file(file) for file in CODE]
    lock = sha256_file(bootstrap.lock_file("nets"))
    parts = [program.net.digest, repr(get_scheme(program.scheme)), own, lock, versions()]
    return sha256_bytes(json.dumps(parts).encode())


def export(programs: Sequence[Exported]) -> dict[str, Made]:
    """Export what is not there yet; results by the programs' names, in their order."""
    environment.ensure_export()  # before the keys, which name its versions
    out = str(dist_part("nets"))
    wanted = [
        Wanted(one.name, folder_of(one), key(one), {"net": one.net.name, "scheme": one.scheme, "out": out})
        for one in programs
    ]
    return make_all("exporting", "verify.bench.making", ("nets",), wanted)


SHORT_OF = (Table("docs/speed.md", "short"), Table("docs/speed.md", "short-avx2"))
"""With AVX-512, and without: the kernels are others."""
UPSTREAM, CACHED = "executorch", "lean, cached"
AIMS = {"p50_ms": 0.65, "load_ms": 0.35, "cached": 0.10, "peak_rss_bytes": 0.75}
"""Geometric means to stay under."""
SCHEME_AIMS = {"qs8": 0.80, "qd8_qc8w": 0.70, "qd8_qb4w": 0.70}
"""Of the p50 in schemes where upstream's kernels are as narrow as ours."""
MANY = 30
"""Programs, above which there are means alone."""
SLOW = 1.05
"""Ratio of p50 above which a program is listed."""
COLUMNS = {
    "p50, 1 thread": ("p50_ms", 1),
    "p50, 2 threads": ("p50_ms", 2),
    "load": ("load_ms", 2),
    "load, cached": ("cached", 2),
    "peak RSS": ("peak_rss_bytes", 2),
}
"""What is compared, and with how many threads; ``cached``: lean's load with a cache in parts of upstream's load."""
SHORT = ["scheme", "programs", *COLUMNS, f"p50 above {SLOW}"]

Row = tuple[Exported, Measured]
"""A program, and what was measured of it, or the error with which its export ended."""


def ratio(seen: Measured, metric: str, threads: int) -> float:
    """Lean's figure in parts of upstream's."""
    ours, theirs = seen.figures[CACHED if metric == "cached" else LEAN], seen.figures[UPSTREAM]
    if metric == "p50_ms":
        return ours.p50_ms[threads] / theirs.p50_ms[threads]
    name = "load_ms" if metric == "cached" else metric
    return float(getattr(ours, name) / getattr(theirs, name))


def _mean(rows: Sequence[Row], name: str, metric: str, threads: int) -> str:
    value = statistics.geometric_mean(ratio(seen, metric, threads) for _, seen in rows)
    aim = SCHEME_AIMS.get(name, AIMS[metric]) if metric == "p50_ms" else AIMS[metric]
    return f"{value:.2f}" + ("" if value <= aim else " (!)")


def _slow(rows: Sequence[Row], named: bool) -> str:
    """The programs that are slower than upstream's, the slowest first, with the worse of their ratios."""
    worst = [(max(ratio(seen, "p50_ms", threads) for threads in THREADS), one) for one, seen in rows]
    slow = sorted((pair for pair in worst if pair[0] > SLOW), key=lambda pair: -pair[0])
    words = [f"{one.name if named else one.net.name} {value:.2f}" for value, one in slow]
    return f"{len(words)}: {', '.join(words)}" if words else "none"


def short(rows: Sequence[Row]) -> list[list[str]]:
    """A line for each scheme, and one for all."""
    found = [one for one in rows if all(figure.p50_ms for figure in one[1].figures.values())]
    schemes = dict.fromkeys(one.scheme for one, _ in found)
    groups = [(scheme, [row for row in found if row[0].scheme == scheme]) for scheme in schemes]
    return [
        [
            name,
            str(len(group)),
            *(_mean(group, name, metric, threads) for metric, threads in COLUMNS.values()),
            _slow(group, named=False) if name != "all" else _slow(group, named=True).partition(":")[0],
        ]
        for name, group in [*groups, *([("all", found)] if len(groups) > 1 else [])]
    ]


def case(one: Exported, bundle: Bundle) -> Case:
    """A program that was exported, on an engine."""
    program = load_program(folder_of(one), verify=False)
    inputs = tuple(folder_of(one) / each.file for each in program.inputs)
    return Case(runner_here(bundle), folder_of(one) / program.file, inputs)


def floats(one: Exported) -> tuple[Path, ...]:
    """The outputs of its float model."""
    return tuple(folder_of(one) / f"{FLOAT}{at}.npy" for at in range(len(list(folder_of(one).glob(f"{FLOAT}*.npy")))))


def subject(one: Exported, lean: Bundle, upstream: Bundle) -> Subject:
    """A program that was exported, as something to measure."""
    ours = case(one, lean)
    cached = replace(ours, flags=("--weights_cache={place}/weights",))
    return Subject(one.name, {LEAN: ours, CACHED: cached, UPSTREAM: case(one, upstream)}, floats(one), 700.0)


def run(request: Bench) -> None:
    """Export what is missing, measure, print; with ``--update`` keep the figures for the docs.

    Raises:
        ConfigError: ``--only`` names nothing, or nothing could be exported. NotSupportedError: not on this machine.
    """
    chosen = choose(request.only)
    bundles = engine(LEAN), engine(UPSTREAM)
    made = export(chosen)
    ready = [one for one in chosen if not made[one.name].error]
    if not ready:
        why = made[chosen[0].name].error
        raise ConfigError("The export of every net failed.", why, "./inv self.bench --what nets --only resnet18")
    seen = sweep("nets", [subject(one, *bundles) for one in ready], [*map(bundle_digest, bundles)], request.runs)
    failed = {one.name: Measured(figures={LEAN: Figure(error=made[one.name].error)}) for one in chosen}
    rows = [(one, (failed | seen)[one.name]) for one in chosen]
    if request.update:
        quiet = measuring.undisturbed(seen)
        keep([row for row in rows if row[0].name in quiet], measuring.machine(), request.runs)
    cells = {one.name: cell for one, cell in rows}
    measuring.show(measuring.views(cells) if len(rows) <= MANY else [measuring.reasons(cells)])
    about = _about(measuring.machine(), request.runs)
    console.table("lean beside executorch, geometric means of ratios", SHORT, short(rows), caption=about)


def keep(rows: Sequence[Row], on: str, rounds: int) -> None:
    """Put what programs came to into the docs' table of this kind of processor."""
    SHORT_OF["AVX2" in on].write(f"{table_of(SHORT, short(rows))}\n{_about(on, rounds)}\n")


def _about(on: str, rounds: int) -> str:
    aims = ", ".join(f"{name.partition('_')[0]} {value}" for name, value in AIMS.items())
    return (
        f"lean : executorch; {rounds} rounds of both engines in turns and random order; load and peak RSS with "
        f"{THREADS[-1]} threads; {on}; (!) above the aim ({aims}; p50 of qs8 0.80, qd8 0.70)"
    )
