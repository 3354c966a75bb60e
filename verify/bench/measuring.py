"""Measure a net on several runtimes: a process of each in turns, in random order, with one thread and with two.

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
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy
from pydantic import BaseModel, ConfigDict

from core import console
from core.errors import BuildError, NotSupportedError, SlipwayError
from core.files import sha256_bytes, sha256_file
from core.formats.bundle import Bundle
from core.paths import dist_part
from core.processes import sweep as sweeping
from core.processes.commands import run as run_command
from core.processes.sweep import Journal

LEAN = "lean"
THREADS = (1, 2)
QUIET = 0.25
"""Processors that others may use while a program is measured; beyond that it is measured again."""
_WARMUP = 3
_SETTLING_MS = 250.0
"""Of executions before those that count: so long the kernel, and a virtual machine's host, may take to part threads."""
_EXECUTIONS = (5, 2000)
"""Of one process: at least, and at most."""
_BACKED = 256 << 20
"""Bytes, more than most of these programs take."""
_SECONDS = 600.0
"""Of one process."""


@dataclass(frozen=True)
class Case:
    """A program on a runtime."""

    runner: Sequence[str | Path]
    """Words that start `pte_runner`, or what takes its flags and answers as it does."""
    program: Path
    inputs: tuple[Path, ...]
    flags: tuple[str, ...] = ()
    """``{place}`` in them is a folder of the measurement."""

    def run(self, threads: int, executions: int, warmup: int = _WARMUP, *flags: str) -> dict[str, Any]:
        """What one process answers; the times of its executions are in milliseconds."""
        words = [
            *self.runner, f"--model_path={self.program}", f"--inputs={','.join(map(str, self.inputs))}",
            f"--num_executions={executions}", f"--warmup={warmup}", f"--cpu_threads={threads}", "--json", *flags,
        ]  # fmt: skip
        done = run_command(words, timeout=_SECONDS, error=BuildError, what=f"Running {self.program}")
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def figure(self, answers: Mapping[int, Sequence[Mapping[str, Any]]], far: float) -> Figure:
        """Of the answers of its processes, by the number of threads."""
        times = {
            threads: min(statistics.median(one["latency_ms"]["all"]) for one in some)
            for threads, some in sorted(answers.items())
        }
        most = answers[max(answers)]
        return Figure(
            p50_ms={threads: round(ms, 4) for threads, ms in times.items()},
            load_ms=round(statistics.median(one["load_ms"] for one in most), 3),
            peak_rss_bytes=int(statistics.median(one["peak_rss_bytes"] for one in most)),
            model_bytes=sum(file.stat().st_size for file in self.program.parent.glob("model*")),
            library_bytes=most[0].get("library_bytes") or Path(self.runner[-1]).stat().st_size, apart=far,
        )  # fmt: skip


@dataclass(frozen=True)
class Subject:
    """A net to measure."""

    name: str
    cases: Mapping[str, Case]
    """By the runtimes' names."""
    floats: tuple[Path, ...]
    """torch's outputs in fp32."""
    aim_ms: float
    """How long the executions of one process shall take, all together."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """Why there is nothing to measure of a runtime."""

    def key(self, tools: Sequence[str], rounds: int) -> str:
        """Digest of what is measured; ``tools``: of what measures."""
        programs = {name: sha256_file(case.program) for name, case in self.cases.items()}
        return sha256_bytes(json.dumps([programs, dict(self.missing), *tools, rounds]).encode())


class Figure(BaseModel):
    """Of one runtime: the p50 of its fastest process, or medians over all; with the most threads but for the p50.

    A virtual machine's host slows a process down for as long as it runs, so a median over processes says little of it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    p50_ms: dict[int, float] = {}
    """By the number of threads."""
    load_ms: float = 0.0
    peak_rss_bytes: int = 0
    model_bytes: int = 0
    library_bytes: int = 0
    """Of the libraries in its process, or the size of the runner that has them inside."""
    apart: float = 0.0
    """From torch's outputs in fp32, in parts of their root mean square; the largest of all outputs."""
    error: str = ""
    """Why it was not measured."""


class Measured(BaseModel):
    """What a subject came to."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    figures: dict[str, Figure]
    """By runtime."""
    others: float = 0.0
    """Processors that other processes used meanwhile, or that a virtual machine was short of."""


def apart(prefix: str, floats: Sequence[Path]) -> float:
    """How far outputs at ``prefix`` are from torch's; their shapes need not have a batch."""
    worst = 0.0
    for index, want in enumerate(floats):
        got = Path(f"{prefix}{index}.npy")
        if not got.is_file():
            return math.inf
        right, values = (numpy.load(file).ravel().astype(numpy.float64) for file in (want, got))
        if right.shape != values.shape:
            return math.inf
        with numpy.errstate(all="ignore"):
            far = float(numpy.linalg.norm(values - right) / (numpy.linalg.norm(right) or 1.0))
        worst = max(worst, far if math.isfinite(far) else math.inf)
    return worst


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


def _withheld(runner: Sequence[str | Path]) -> float:
    """Processors that the threads are short of: a virtual machine's host may have two of them share one."""
    done = run_command([*runner, "--roofline", f"--cpu_threads={THREADS[-1]}", "--json"], error=BuildError)
    alone, all_ = (one["gflops"] for one in json.loads(done.stdout)["roofline"])
    return round(min(THREADS[-1], os.cpu_count() or 1) - float(all_ / alone), 2)


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


def measure(subject: Subject, rounds: int) -> Measured:
    """One subject, ``rounds`` processes for each runtime and number of threads."""
    found = {name: Figure(error=why) for name, why in subject.missing.items()}
    executions, far = {}, {}
    answers: dict[str, dict[int, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    busy, lean = Busy(), subject.cases[LEAN].runner
    withheld = _withheld(lean)
    # Beside the programs: a cache of weights is as large as they, and /tmp may be memory.
    with tempfile.TemporaryDirectory(prefix=".measuring-", dir=dist_part("nets")) as place:
        flags = {name: [flag.format(place=place) for flag in case.flags] for name, case in subject.cases.items()}
        for name, case in subject.cases.items():
            prefix = f"{place}/{name}"
            try:
                tried = case.run(THREADS[-1], 2, 1, *flags[name], f"--output_file={prefix}")
                executions[name] = fitting(subject.aim_ms, min(tried["latency_ms"]["all"]))
                far[name] = apart(prefix, subject.floats)
            except SlipwayError as error:
                found[name] = Figure(error=f"{error.what} {error.cause}".splitlines()[-1])
        turns = [(name, threads) for name in executions for threads in THREADS]
        for name, threads in (turn for _ in range(rounds) for turn in random.sample(turns, len(turns))):
            back_memory()
            warmup = max(_WARMUP, int(executions[name] * _SETTLING_MS / subject.aim_ms))
            answers[name][threads].append(subject.cases[name].run(threads, executions[name], warmup, *flags[name]))
    found |= {name: subject.cases[name].figure(some, far[name]) for name, some in answers.items()}
    names = [*subject.cases, *subject.missing]
    others = max(busy.others(), withheld, _withheld(lean))
    return Measured(figures={name: found[name] for name in names}, others=others)


def fitting(aim_ms: float, one_ms: float) -> int:
    """How many executions of ``one_ms`` take ``aim_ms``, within bounds."""
    least, most = _EXECUTIONS
    return max(least, min(most, int(aim_ms / max(one_ms, 1e-3))))


def sweep(what: str, subjects: Sequence[Subject], tools: Sequence[str], rounds: int) -> dict[str, Measured]:
    """Measure all subjects, in random order; results by their names, in the given order.

    What was measured while others used the machine is measured again.

    Args:
        what: the journal's name.
        tools: digests of what measures.
    """
    cells = [sweeping.Cell(one.name, one.key(tools, rounds), partial(measure, one, rounds)) for one in subjects]
    random.shuffle(cells)
    found = sweeping.sweep(
        "measuring", cells, Journal.of(what, Measured), holds=lambda seen: seen.others <= QUIET,
        remark=lambda seen: f"others used {seen.others} processors" if seen.others > QUIET else "",
    )  # fmt: skip
    return {one.name: found[one.name] for one in subjects}


def engine(name: str) -> Bundle:
    """This machine's bundle of an engine, built if need be.

    Raises:
        NotSupportedError: not on Linux.
    """
    if not Path("/proc/stat").exists():
        raise NotSupportedError(
            "Engines are measured on Linux only.", "/proc/stat says who else computes", "./inv self.bench --help"
        )
    from toolchains.bundle.builder import build
    from toolchains.targets import host_target

    return build(host_target().name, name)


def undisturbed(seen: Mapping[str, Measured]) -> dict[str, Measured]:
    """What is worth keeping: measured while nobody else computed. Says how many are not."""
    found = {name: one for name, one in seen.items() if one.others <= QUIET}
    if left := len(seen) - len(found):
        console.note(
            f"Warning: others used the machine while {left} programs were measured: they are left out; "
            "the same command measures them again"
        )
    return found


def machine() -> str:
    """This machine's processor, what decides about kernels of x86, and how many there are."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    words = [line for line in lines if line.startswith(("model name", "flags"))]
    name = next((line.partition(":")[2].strip() for line in words if line.startswith("model")), platform.machine())
    flags = next((line for line in words if line.startswith("flags")), "")
    level = next((word for flag, word in (("avx512f", "AVX512"), ("avx2", "AVX2")) if flag in flags.split()), "")
    return ", ".join(filter(None, [name, level, f"{os.cpu_count()} processors"]))


FAR = {32: 1e-2, 8: 0.5}
"""Distance from torch's outputs, in parts of their size, beyond which a runtime computes something else."""
AIM = 1.1
"""Lean's latency in parts of the fastest one's, to stay under."""
Cells = Mapping[str, Measured]
"""By the programs' names: ``resnet18 fp32``."""


def bits_of(name: str) -> int:
    """32, or 8 for everything that rounds more than fp32."""
    return 32 if name.endswith("fp32") else 8


def fastest(name: str, seen: Measured, threads: int) -> tuple[str, float]:
    """Who is the fastest, and lean's latency in parts of the fastest other's; only whose outputs are the net's."""
    counted = {
        one: found.p50_ms[threads]
        for one, found in seen.figures.items()
        if found.p50_ms and found.apart <= FAR[bits_of(name)]
    }
    if not counted:
        return "-", 0.0
    others = [value for one, value in counted.items() if not one.startswith(LEAN)]
    ratio = counted[LEAN] / min(others) if LEAN in counted and others else 0.0
    return min(counted, key=lambda one: counted[one]), ratio


def _latency(name: str, found: Figure) -> str:
    times = " / ".join(f"{found.p50_ms[threads]:.3g}" for threads in THREADS)
    return times + (" (≠)" if found.apart > FAR[bits_of(name)] else "")


def _rest(_: str, found: Figure) -> str:
    size = (found.model_bytes + found.library_bytes) / 1e6
    return f"{found.load_ms:.3g} ms, {found.peak_rss_bytes / 1e6:.0f} MB, {size:.3g} MB"


def _table(cells: Cells, show: Callable[[str, Figure], str]) -> list[list[str]]:
    names = list(dict.fromkeys(name for one in cells.values() for name in one.figures))
    lines = []
    for name, seen in cells.items():
        figures = [seen.figures.get(one, Figure()) for one in names]
        lines.append([name, *(show(name, found) if found.p50_ms else "-" for found in figures)])
    return [["net", *names], *lines]


def latencies(cells: Cells) -> list[list[str]]:
    """Headings and lines: medians, who is the fastest, and lean's ratio."""
    (heads, *lines) = _table(cells, _latency)
    for line, (name, seen) in zip(lines, cells.items(), strict=True):
        best = [fastest(name, seen, threads) for threads in THREADS]
        first = [who for who, _ in best]
        line.append(first[0] if len(set(first)) == 1 else " / ".join(first))
        line.append(" / ".join(f"{ratio:.2f}{' (!)' if ratio > AIM else ''}" if ratio else "-" for _, ratio in best))
    return [[*heads, "fastest", "lean : best other"], *lines]


def goal(cells: Cells) -> str:
    """In how many nets lean is the fastest, and where it is behind by more than the aim."""
    found = []
    for bits, label in ((32, "fp32"), (8, "8 bits")):
        for threads in THREADS:
            ratios = {name: fastest(name, seen, threads)[1] for name, seen in cells.items() if bits_of(name) == bits}
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


def reasons(cells: Cells) -> list[list[str]]:
    """Headings and lines: what could not be measured."""
    why: dict[tuple[str, str], list[str]] = {}
    for name, seen in cells.items():
        for one, found in seen.figures.items():
            if found.error:
                why.setdefault((one, found.error), []).append(name)
    every = {bits: [name for name in cells if bits_of(name) == bits] for bits in FAR}
    short = {tuple(every[8]): "all in 8 bits", tuple(every[32]): "all in fp32"}
    lines = [[one, short.get(tuple(names), ", ".join(names)), error] for (one, error), names in why.items()]
    return [["runtime", "net", "why there is no figure"], *lines]


def views(cells: Cells) -> list[list[list[str]]]:
    """Tables, the headings first: latencies; load, memory and size; distances from torch's outputs; what is missing."""
    apart = _table(cells, lambda _, found: f"{found.apart:.1g}")
    return [latencies(cells), _table(cells, _rest), apart, reasons(cells)]


def show(tables: Sequence[list[list[str]]]) -> None:
    """Print those that have a line."""
    for heads, *lines in tables:
        if lines:
            console.table("", heads, lines)
