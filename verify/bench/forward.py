"""``./inv self.bench --what forward``: time one ``forward()`` through libslipway and upstream's ``Module``, in turns.

The overhead of a call is the time of ``forward()`` less the time of the method's bare execution in the same process.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from commands.own import Bench
from core import console
from core.errors import BuildError
from core.formats.program import Program, load_program
from core.paths import ROOT
from core.processes.commands import run as run_command
from verify.bench.cases import machine, quiet
from verify.tables import Table, table_of

FORWARD = Table("docs/embedding.md", "forward")
SOURCES = ROOT / "verify" / "bench" / "programs"
MODELS = ("linear", f"{SOURCES / 'smallest.py'}:smallest")
THREADS = (1, 2)
AIM = 0.5
"""The overhead's ratio to upstream's to stay under."""
BLOCKS, BLOCK = 200, 50
"""Medians of so many blocks, each of so many executions of one way: the clock is read once a block."""
WAYS = ("c", "cpp", "execute", "module", "module_execute")
HEADINGS = [
    "program", "threads", "C API", "C++", "`Module`", "C API : `Module`", "C++ : `Module`", "overhead: C API", "C++",
    "`Module`",
]  # fmt: skip
_SECONDS = 300.0


@dataclass
class Subject:
    """A program with one number of threads, and what was measured."""

    name: str
    folder: Path
    program: Program
    threads: int
    rounds: list[dict[str, float]] = field(default_factory=list)
    """One for each round: nanoseconds by way."""

    def run(self, built: Path, blocks: int, block: int) -> None:
        """One process of each side; they must agree on the output.

        Raises:
            BuildError: a program failed, or their outputs differ by more than rounding.
        """
        import numpy as np

        found: dict[str, float] = {}
        outputs = []
        with tempfile.TemporaryDirectory(prefix="slipway-bench-") as scratch:
            inputs = np.load(self.folder / self.program.inputs[0].file)
            raw = Path(scratch, "in.bin")
            raw.write_bytes(inputs.tobytes())
            for side in ("slipway", "executorch"):
                out = Path(scratch, f"{side}.bin")
                words = [self.threads, blocks, block, *inputs.shape]
                done = run_command(
                    [built / f"forward_{side}", self.folder / self.program.file, raw, out, *map(str, words)],
                    timeout=_SECONDS, error=BuildError, what=f"Running {self.name} through {side}",
                )  # fmt: skip
                found |= json.loads(done.stdout)
                outputs.append(np.frombuffer(out.read_bytes(), inputs.dtype))
        if not np.allclose(outputs[0], outputs[1], rtol=1e-5, atol=1e-5):
            raise BuildError(f"{self.name}: libslipway and Module compute different outputs.", "", "./inv self.agree")
        self.rounds.append(found)

    def row(self) -> dict[str, Any]:
        """Medians in nanoseconds; overheads of each round."""
        return {
            "program": self.name,
            "threads": self.threads,
            "ns": {way: round(statistics.median(one[way] for one in self.rounds), 1) for way in WAYS},
            "overhead_ns": {
                way: [round(one[way] - one[bare], 1) for one in self.rounds]
                for way, bare in (("c", "execute"), ("cpp", "execute"), ("module", "module_execute"))
            },
        }


def build(folder: Path) -> Path:
    """Both programs, against libslipway and upstream's library; the folder that they are in."""
    from toolchains.bundle import conan
    from toolchains.bundle.sdk import build_sdk
    from toolchains.targets import host_target

    target = host_target()
    sdk = build_sdk(target.name)
    theirs = build_sdk(target.name, engine="executorch")
    argv: list[str | Path] = [
        conan.program("cmake"), "-S", SOURCES, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
        f"-DCMAKE_MAKE_PROGRAM={conan.program('ninja')}", f"-DCMAKE_TOOLCHAIN_FILE={sdk.toolchain_file}",
        f"-DCMAKE_PREFIX_PATH={sdk.path};{theirs.path}",
    ]  # fmt: skip
    run_command(argv, error=BuildError, what="Configuring the programs that measure forward()")
    run_command([conan.program("cmake"), "--build", folder], error=BuildError, what="Building them")
    return folder


def subjects(models: Sequence[str] = MODELS, threads: Sequence[int] = THREADS) -> list[Subject]:
    """The programs, exported."""
    from core.environment import ensure_export
    from models.export import export

    ensure_export()
    found = []
    for model in models:
        folder = export(model, "fp32")
        program = load_program(folder)
        found += [Subject(model.rpartition(":")[2], folder, program, count) for count in threads]
    return found


def measure(found: Sequence[Subject], built: Path, rounds: int, blocks: int, block: int) -> dict[str, Any]:
    """Run all ``rounds`` times, everything in turns."""
    for _ in range(rounds):
        for subject in found:
            subject.run(built, blocks, block)
    rows = [subject.row() for subject in found]
    return {
        "rounds": rounds,
        "executions": blocks * block,
        "machine": machine(),
        "rows": rows,
        "geometric": {
            way: round(statistics.geometric_mean(row["ns"][way] / row["ns"]["module"] for row in rows), 3)
            for way in ("c", "cpp")
        },
    }


def run(request: Bench) -> None:
    """Measure and print; with ``--update`` keep the figures for the docs."""
    # Before the compilers run: what else keeps the machine busy.
    before = round(os.getloadavg()[0], 2)
    with tempfile.TemporaryDirectory(prefix="slipway-bench-") as scratch:
        result = {"load_average_before": before} | measure(
            subjects(), build(Path(scratch)), request.runs, BLOCKS, BLOCK
        )
    if request.update and quiet(before):
        FORWARD.write(f"{table_of(HEADINGS, [cells(row) for row in result['rows']])}\n{_about(result)}\n")
    if request.json:
        console.print_json(result)
        return
    headings = [heading.replace("`", "") for heading in HEADINGS]
    console.table("one forward()", headings, [cells(row) for row in result["rows"]], caption=_about(result))


def cells(row: dict[str, Any]) -> list[str]:
    """A row of the table."""
    times, overheads = row["ns"], row["overhead_ns"]
    return [
        row["program"],
        str(row["threads"]),
        *(_time(times[way]) for way in ("c", "cpp", "module")),
        *(f"{times[way] / times['module']:.2f}" for way in ("c", "cpp")),
        *(_overhead(overheads[way], overheads["module"]) for way in ("c", "cpp")),
        _overhead(overheads["module"], None),
    ]


def _time(nanoseconds: float) -> str:
    return f"{nanoseconds / 1000:.2f} µs"


def _overhead(rounds: Sequence[float], upstream: Sequence[float] | None) -> str:
    """The median; not where rounds disagree even about its sign. A mark where the aim is missed."""
    middle = statistics.median(rounds)
    if min(rounds) <= 0 or (upstream and min(upstream) <= 0):
        return "in the noise"
    missed = upstream is not None and middle > AIM * statistics.median(upstream)
    return f"{middle:.0f} ns" + (" (!)" if missed else "")


def _about(result: dict[str, Any]) -> str:
    means = result["geometric"]
    return (
        f"Medians of {result['rounds']} rounds of {result['executions']} executions in turns; geometric means of the "
        f"ratios to Module: C API {means['c']:.2f}, C++ {means['cpp']:.2f}; {result['machine']}; load average before "
        f"{result['load_average_before']}; (!) overhead above {AIM} of Module's."
    )
