"""Measure a program on the engine lean beside upstream's: in turns, in random order, with one and two threads."""

from __future__ import annotations

import json
import math
import os
import random
import resource
import statistics
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy
from pydantic import BaseModel, ConfigDict

from core.errors import SlipwayError
from core.files import sha256_bytes
from core.formats.bundle import Bundle
from core.formats.program import Program, load_program
from core.processes import sweep as sweeping
from core.processes.sweep import Journal
from deploy.run.compare import compare
from deploy.run.needs import bundle_digest
from verify.bench.cases import Case
from verify.nets.exporting import folder_of
from verify.nets.table import FLOAT, Exported

THREADS = (1, 2)
WARMUP = 3
QUIET = 0.25
"""Processors that others may use while a program is measured; beyond that it is measured again."""
LOADS = 7
"""Further processes that load with the most threads and execute once: a process loads but once, for milliseconds."""
_AIM_MS = 700.0
"""How long the executions of one process shall take, all together."""
_MOST, _LEAST = 100, 5
"""Executions of one process."""
_BACKED = 256 << 20
"""Bytes, more than most of these programs take."""


class Figures(BaseModel):
    """Of one number of threads, lean's and upstream's: medians over processes, of latencies over all executions."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    load_ms: tuple[float, float]
    p50_ms: tuple[float, float]
    peak_rss_bytes: tuple[int, int]


class Apart(BaseModel):
    """How far the outputs are from the reference and from the float model."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    outside: int
    """Elements of lean's outputs beyond the tolerance."""
    largest: float
    """Largest difference between lean's outputs and the reference, in tolerances."""
    lean_to_float: float
    """Root mean square of the differences between lean's outputs and the float model's."""
    upstream_to_float: float


class Measured(BaseModel):
    """A cell of the sweep: one program."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    figures: dict[int, Figures] = {}
    """By the number of threads."""
    cached_load_ms: float = 0.0
    """Lean's load with a cache of packed weights that an earlier process wrote, with the most threads."""
    apart: Apart | None = None
    executions: int = 0
    """Of each process."""
    others: float = 0.0
    """Processors that other processes used meanwhile."""
    error: str = ""
    """Why it was not measured."""


def _distance(got: Path, want: Path) -> float:
    """Root mean square of the differences, also between types; infinite where shapes or infinities differ."""
    ours, theirs = (numpy.load(file, allow_pickle=False).astype(numpy.float64) for file in (got, want))
    if ours.shape != theirs.shape:
        return math.inf
    with numpy.errstate(all="ignore"):
        found = float(numpy.sqrt(numpy.mean(numpy.square(ours - theirs))))
    return found if math.isfinite(found) else math.inf


def apart(program: Program, folder: Path, ours: Path, theirs: Path) -> Apart:
    """Compare outputs, which are at the prefixes ``ours`` and ``theirs``."""
    outside, largest = 0, 0.0
    to_float = [0.0, 0.0]
    for index, one in enumerate(program.outputs):
        got = Path(f"{ours}{index}.npy")
        limit = program.tolerance_of(index)
        seen = compare(one.file, got, folder / one.file, limit)
        outside += seen.outside
        difference = float("inf") if seen.max_abs is None else seen.max_abs
        largest = max(largest, difference / limit.atol if limit.atol else difference)
        model = folder / f"{FLOAT}{index}.npy"
        if model.is_file():
            both = (got, Path(f"{theirs}{index}.npy"))
            to_float = [max(far, _distance(file, model)) for far, file in zip(to_float, both, strict=True)]
    return Apart(outside=outside, largest=largest, lean_to_float=to_float[0], upstream_to_float=to_float[1])


class _Busy:
    """How many processors others used since this was made: of all that were busy, those that our children were not."""

    def __init__(self) -> None:
        self._begun, self._all, self._ours = time.monotonic(), _all_busy(), _our_busy()

    def others(self) -> float:
        """Mean number of processors."""
        passed = time.monotonic() - self._begun
        return round(max(0.0, (_all_busy() - self._all - (_our_busy() - self._ours)) / passed), 2)


def _all_busy() -> float:
    """Seconds that processors of this machine have computed."""
    words = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()[1:]
    user, nice, system, _, _, irq, soft = map(int, words[:7])
    return (user + nice + system + irq + soft) / os.sysconf("SC_CLK_TCK")


def _our_busy() -> float:
    return sum(
        used.ru_utime + used.ru_stime
        for used in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def _back_memory() -> None:
    """Use memory and give it back: a virtual machine's host takes away what nobody used for some seconds.

    The next process would wait for the host at its first touch: 64 MiB took 187 ms, and 24 ms right after.
    """
    numpy.empty(_BACKED, numpy.uint8).fill(1)


def measure(bundles: tuple[Bundle, Bundle], exported: Exported, rounds: int) -> Measured:
    """One program on both engines, ``rounds`` processes for each engine and number of threads."""
    folder = folder_of(exported)
    try:
        # Beside the program: the weights' cache is as large, and /tmp may be memory.
        with tempfile.TemporaryDirectory(prefix=".measuring-", dir=folder) as place:
            return _measure(bundles, exported.name, folder, Path(place), rounds)
    except SlipwayError as error:
        return Measured(error=f"{error.what} {error.cause}")


def _measure(bundles: tuple[Bundle, Bundle], name: str, folder: Path, place: Path, rounds: int) -> Measured:
    program = load_program(folder)
    prefixes = (place / "lean", place / "upstream")

    def case(bundle: Bundle, *flags: str) -> Case:
        return Case.of(name, bundle, folder, program, flags)

    tried = [case(one, f"--output_file={at}").run(THREADS[-1], 2, 1) for one, at in zip(bundles, prefixes, strict=True)]
    far = apart(program, folder, *prefixes)
    executions = max(_LEAST, min(_MOST, int(_AIM_MS / max(min(map(min, tried)), 1e-3))))
    pairs = {threads: tuple(map(case, bundles)) for threads in THREADS}
    loading = tuple(map(case, bundles))
    cached = case(bundles[0], f"--weights_cache={place / 'weights'}")
    cached.run(THREADS[-1], 1, 0)  # writes the cache
    cached.load.clear()
    busy = _Busy()
    for done in range(rounds):
        turns = [(threads, one, executions) for threads, pair in pairs.items() for one in pair]
        loads = LOADS * (done + 1) // rounds - LOADS * done // rounds
        turns += [(THREADS[-1], one, 1) for one in (*loading, cached)] * loads
        random.shuffle(turns)
        for threads, one, count in turns:
            _back_memory()
            one.run(threads, count, WARMUP if count > 1 else 0)
    for timed, loaded in zip(pairs[THREADS[-1]], loading, strict=True):
        timed.load += loaded.load
    return Measured(
        figures={threads: _figures(*pair) for threads, pair in pairs.items()},
        cached_load_ms=round(statistics.median(cached.load), 3), apart=far, executions=executions,
        others=busy.others(),
    )  # fmt: skip


def _figures(ours: Case, theirs: Case) -> Figures:
    load, p50, rss = (
        (statistics.median(getattr(ours, name)), statistics.median(getattr(theirs, name)))
        for name in ("load", "latency", "rss")
    )
    return Figures(
        load_ms=(round(load[0], 3), round(load[1], 3)), p50_ms=(round(p50[0], 4), round(p50[1], 4)),
        peak_rss_bytes=(int(rss[0]), int(rss[1])),
    )  # fmt: skip


def journal() -> Journal[Measured]:
    """What was measured on this machine."""
    return Journal.of("nets", Measured)


def sweep(
    bundles: tuple[Bundle, Bundle], programs: Sequence[Exported], rounds: int, again: bool = False
) -> dict[str, Measured]:
    """Measure all programs, in random order; results by their names, in the given order.

    What was measured while others used the machine is measured again.
    """
    runners = [bundle_digest(bundle) for bundle in bundles]
    cells = []
    for one in programs:
        digest = load_program(folder_of(one), verify=False).sha256
        key = sha256_bytes(json.dumps([digest, runners, rounds]).encode())
        cells.append(sweeping.Cell(one.name, key, partial(measure, bundles, one, rounds)))
    random.shuffle(cells)
    found = sweeping.sweep(
        "measuring", cells, journal(), again=again, holds=lambda seen: seen.others <= QUIET, remark=_remark
    )
    return {one.name: found[one.name] for one in programs}


def _remark(seen: Measured) -> str:
    if seen.error:
        return seen.error.replace("\n", " ")
    found = [f"threads {threads}: {one.p50_ms[0] / one.p50_ms[1]:.2f}" for threads, one in seen.figures.items()]
    return ", ".join(found) + (f"; others used {seen.others} processors" if seen.others > QUIET else "")
