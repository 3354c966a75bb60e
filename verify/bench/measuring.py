"""Measure programs on two engines, lean beside upstream's: in turns, in random order, with one thread or more.

What is measured is a `Subject`; a sweep (`core.processes.sweep`) keeps what it came to.
"""

from __future__ import annotations

import json
import math
import os
import platform
import random
import resource
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy
from pydantic import BaseModel, ConfigDict

from core import console
from core.errors import BuildError, NotSupportedError, SlipwayError
from core.files import sha256_bytes, sha256_file
from core.formats.bundle import Bundle
from core.formats.program import Program
from core.processes import sweep as sweeping
from core.processes.commands import run as run_command
from core.processes.sweep import Journal
from deploy.run.compare import compare
from deploy.run.needs import bundle_digest, runner_here

WARMUP = 3
QUIET = 0.25
"""Processors that others may use while a program is measured; beyond that it is measured again."""
LOADS = 7
"""Further processes that load with the most threads and execute once: a process loads but once, for milliseconds."""
_LEAST = 5
"""Executions of one process."""
_BACKED = 256 << 20
"""Bytes, more than most of these programs take."""
_SECONDS = 600.0
"""Of one process."""


@dataclass
class Case:
    """A program on an engine of this machine, and what was measured of it."""

    name: str
    engine: str
    runner: Sequence[str | Path]
    """Words that start `pte_runner`, or what takes its flags and answers as it does."""
    program: Path
    inputs: tuple[Path, ...]
    flags: tuple[str, ...] = ()
    load: list[float] = field(default_factory=list)
    """Milliseconds, as ``latency``."""
    latency: list[float] = field(default_factory=list)
    """Of all executions of all processes."""
    rss: list[int] = field(default_factory=list)
    library_bytes: int = 0
    """Of the libraries in its process; not of the runner's own."""

    def run(self, threads: int, executions: int, warmup: int = WARMUP) -> list[float]:
        """One process; its figures are added. Returns the times of its executions in milliseconds."""
        done = run_command(
            [*self.runner, f"--model_path={self.program}", f"--inputs={','.join(map(str, self.inputs))}",
             f"--num_executions={executions}", f"--warmup={warmup}", f"--cpu_threads={threads}", "--json",
             *self.flags],
            timeout=_SECONDS, error=BuildError, what=f"Running {self.name} on {self.engine}",
        )  # fmt: skip
        answer = json.loads(done.stdout)
        times: list[float] = answer["latency_ms"]["all"]
        self.load.append(answer["load_ms"])
        self.latency += times
        self.rss.append(answer["peak_rss_bytes"])
        self.library_bytes = answer.get("library_bytes", 0)
        return times


@dataclass(frozen=True)
class Subject:
    """A program to measure."""

    name: str
    file: Path
    inputs: tuple[Path, ...]
    threads: tuple[int, ...] = (1,)
    aim_ms: float = 40.0
    """How long the executions of one process shall take, all together."""
    most: int = 2000
    """Executions of one process."""
    program: Program | None = None
    """Its description: then its outputs are compared with its reference, and its loads are measured, too."""
    floats: tuple[Path, ...] = ()
    """The float model's outputs."""

    @property
    def key(self) -> str:
        """Digest of what is measured."""
        return sha256_file(self.file)


class Figure(BaseModel):
    """Of one engine: medians over processes; load, memory and libraries with the most threads."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    p50_ms: dict[int, float] = {}
    """Over all executions, by the number of threads."""
    load_ms: float = 0.0
    peak_rss_bytes: int = 0
    model_bytes: int = 0
    library_bytes: int = 0
    apart: float = 0.0
    """From torch's outputs in fp32, in parts of their root mean square; the largest of all outputs."""
    error: str = ""
    """Why it was not measured."""


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


class Watched(BaseModel):
    """A cell of a sweep that measures."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    figures: dict[str, Figure] = {}
    """By engine."""
    others: float = 0.0
    """Processors that other processes used meanwhile."""


class Measured(Watched):
    """One program on lean and upstream's engine."""

    cached_load_ms: float = 0.0
    """Lean's load with a cache of packed weights that an earlier process wrote, with the most threads."""
    apart: Apart | None = None
    executions: int = 0
    """Of each process."""
    error: str = ""
    """Why it was not measured."""

    @property
    def pair(self) -> tuple[Figure, Figure]:
        """Lean's and upstream's."""
        return self.figures["lean"], self.figures["executorch"]

    def ratio(self, threads: int = 1) -> float:
        """Lean's median latency in parts of upstream's."""
        ours, theirs = self.pair
        return ours.p50_ms[threads] / theirs.p50_ms[threads]


def distance(got: Path, want: Path) -> float:
    """Root mean square of the differences, also between types; infinite where shapes or infinities differ."""
    ours, theirs = (numpy.load(file, allow_pickle=False).astype(numpy.float64) for file in (got, want))
    if ours.shape != theirs.shape:
        return math.inf
    with numpy.errstate(all="ignore"):
        found = float(numpy.sqrt(numpy.mean(numpy.square(ours - theirs))))
    return found if math.isfinite(found) else math.inf


def apart(subject: Subject, ours: Path, theirs: Path) -> Apart | None:
    """Compare outputs, which are at the prefixes ``ours`` and ``theirs``; nothing without a description."""
    if subject.program is None:
        return None
    outside, largest = 0, 0.0
    to_float = [0.0, 0.0]
    for index, one in enumerate(subject.program.outputs):
        got = Path(f"{ours}{index}.npy")
        limit = subject.program.tolerance_of(index)
        seen = compare(one.file, got, subject.file.parent / one.file, limit)
        outside += seen.outside
        difference = float("inf") if seen.max_abs is None else seen.max_abs
        largest = max(largest, difference / limit.atol if limit.atol else difference)
        if index < len(subject.floats):
            both = (got, Path(f"{theirs}{index}.npy"))
            to_float = [
                max(far, distance(file, subject.floats[index])) for far, file in zip(to_float, both, strict=True)
            ]
    return Apart(outside=outside, largest=largest, lean_to_float=to_float[0], upstream_to_float=to_float[1])


Seen = TypeVar("Seen", bound=Watched)


class Busy:
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


def back_memory(size: int = _BACKED) -> None:
    """Use memory and give it back: a virtual machine's host takes away what nobody used for some seconds.

    The next process would wait for the host at its first touch: 64 MiB took 187 ms, and 24 ms right after.
    """
    numpy.empty(size, numpy.uint8).fill(1)


def measure(bundles: tuple[Bundle, Bundle], subject: Subject, rounds: int) -> Measured:
    """One program on both engines, ``rounds`` processes for each engine and number of threads."""
    try:
        # Beside the program: the weights' cache is as large, and /tmp may be memory.
        with tempfile.TemporaryDirectory(prefix=".measuring-", dir=subject.file.parent) as place:
            return _measure(bundles, subject, Path(place), rounds)
    except SlipwayError as error:
        return Measured(error=f"{error.what} {error.cause}")


def _measure(bundles: tuple[Bundle, Bundle], subject: Subject, place: Path, rounds: int) -> Measured:
    prefixes = (place / "lean", place / "upstream")
    most = subject.threads[-1]

    def case(bundle: Bundle, *flags: str) -> Case:
        return Case(subject.name, bundle.manifest.engine, runner_here(bundle), subject.file, subject.inputs, flags)

    tried = [case(one, f"--output_file={at}").run(most, 2, 1) for one, at in zip(bundles, prefixes, strict=True)]
    far = apart(subject, *prefixes)
    executions = fitting(subject.aim_ms, min(map(min, tried)), subject.most)
    cases = {(threads, bundle.manifest.engine): case(bundle) for threads in subject.threads for bundle in bundles}
    cached = case(bundles[0], f"--weights_cache={place / 'weights'}")
    loading = []
    if far:
        cached.run(most, 1, 0)  # writes the cache
        cached.load.clear()
        # These add their loads to those of the cases.
        loading = [replace(one, latency=[], rss=[]) for (threads, _), one in cases.items() if threads == most]
        loading.append(cached)
    figures, others = in_turns(cases, dict.fromkeys([engine for _, engine in cases], executions), rounds, loading)
    load = round(statistics.median(cached.load), 3) if far else 0.0
    return Measured(figures=figures, cached_load_ms=load, apart=far, executions=executions, others=others)


def in_turns(
    cases: Mapping[tuple[int, str], Case], executions: Mapping[str, int], rounds: int, loading: Sequence[Case] = ()
) -> tuple[dict[str, Figure], float]:
    """A process of each case a round, in random order; figures by engine, and processors that others used meanwhile.

    Args:
        cases: by the number of threads and the engine.
        executions: of a process, by engine.
        loading: run besides, to load and execute once with the most threads, `LOADS` times.
    """
    most, busy = max((threads for threads, _ in cases), default=1), Busy()
    for done in range(rounds):
        turns = [(threads, one, executions[engine]) for (threads, engine), one in cases.items()]
        turns += [(most, one, 1) for one in loading] * (LOADS * (done + 1) // rounds - LOADS * done // rounds)
        random.shuffle(turns)
        for threads, one, count in turns:
            back_memory()
            one.run(threads, count, WARMUP if count > 1 else 0)
    by_engine = {
        engine: {threads: one for (threads, other), one in cases.items() if other == engine} for engine in executions
    }
    return {engine: _figure(some) for engine, some in by_engine.items()}, busy.others()


def _figure(cases: Mapping[int, Case]) -> Figure:
    """Of one engine's cases by their numbers of threads."""
    most = cases[max(cases)]
    return Figure(
        p50_ms={threads: round(statistics.median(one.latency), 4) for threads, one in cases.items()},
        load_ms=round(statistics.median(most.load), 3), peak_rss_bytes=int(statistics.median(most.rss)),
        library_bytes=most.library_bytes,
    )  # fmt: skip


def fitting(aim_ms: float, one_ms: float, most: int) -> int:
    """How many executions of ``one_ms`` take ``aim_ms``, within bounds."""
    return max(_LEAST, min(most, int(aim_ms / max(one_ms, 1e-3))))


def sweep(what: str, bundles: tuple[Bundle, Bundle], subjects: Sequence[Subject], rounds: int) -> dict[str, Measured]:
    """Measure all programs, in random order; results by their names, in the given order.

    What was measured while others used the machine is measured again.

    Args:
        what: the journal's name.
    """
    runners = [bundle_digest(bundle) for bundle in bundles]
    cells = []
    for one in subjects:
        key = sha256_bytes(json.dumps([one.key, runners, rounds]).encode())
        cells.append(sweeping.Cell(one.name, key, partial(measure, bundles, one, rounds)))
    random.shuffle(cells)
    found = sweeping.sweep(
        "measuring", cells, Journal.of(what, Measured), holds=lambda seen: seen.others <= QUIET,
        remark=_remark,
    )  # fmt: skip
    return {one.name: found[one.name] for one in subjects}


def engine(name: str) -> Bundle:
    """This machine's bundle of an engine, built if need be.

    Raises:
        NotSupportedError: not on Linux.
    """
    if not Path("/proc/stat").exists():
        raise NotSupportedError(
            "Engines are measured on Linux only.", "/proc/stat says who else computes", "./inv bench --help"
        )
    from toolchains.bundle.builder import build
    from toolchains.targets import host_target

    return build(host_target().name, name)


def engines() -> tuple[Bundle, Bundle]:
    """Lean's and upstream's."""
    return engine("lean"), engine("executorch")


def undisturbed(seen: Mapping[str, Seen]) -> dict[str, Seen]:
    """What is worth keeping: measured while nobody else computed. Says how many are not."""
    found = {name: one for name, one in seen.items() if one.others <= QUIET}
    if left := len(seen) - len(found):
        console.note(
            f"Warning: others used the machine while {left} programs were measured: they are left out; "
            "the same command measures them again"
        )
    return found


def _remark(seen: Measured) -> str:
    if seen.error:
        return seen.error.replace("\n", " ")
    found = [f"threads {threads}: {seen.ratio(threads):.2f}" for threads in seen.pair[0].p50_ms]
    return ", ".join(found) + (f"; others used {seen.others} processors" if seen.others > QUIET else "")


def machine() -> str:
    """This machine's processor, what decides about kernels of x86, and how many there are."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    words = [line for line in lines if line.startswith(("model name", "flags"))]
    name = next((line.partition(":")[2].strip() for line in words if line.startswith("model")), platform.machine())
    flags = next((line for line in words if line.startswith("flags")), "")
    level = next((word for flag, word in (("avx512f", "AVX512"), ("avx2", "AVX2")) if flag in flags.split()), "")
    return ", ".join(filter(None, [name, level, f"{os.cpu_count()} processors"]))
