"""``./inv self.peers``: nets in fp32 and in 8 bits, on all runtimes in turns, with outputs beside torch's."""

from __future__ import annotations

import json
import math
import random
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy

from commands.own import Peers
from core import console, environment
from core.environment import bootstrap
from core.environment.lock import requirements
from core.errors import BuildError, SlipwayError
from core.files import sha256_bytes, sha256_file
from core.formats.bundle import Bundle
from core.paths import dist_part
from core.processes import sweep as sweeping
from core.processes.commands import run as run_command
from core.processes.sweep import Journal
from deploy.run.needs import bundle_digest, runner_here
from models.request import versions
from verify.bench.measuring import QUIET, Case, Figure, Watched, engine, fitting, in_turns, machine, undisturbed
from verify.bench.nets import CODE, THREADS, Exported, export, load, subject
from verify.programs import Made, Maker, pick
from verify.tables import Table, table_of

LEAN, TORCH = "lean", "torch"
NETS = {
    "mobilenet_v2": "qs8",
    "mobilenet_v3_small": "qs8",
    "efficientnet_b0": "qs8",
    "resnet18": "qs8",
    "resnet50": "qs8",
    "vit_tiny": "qd8_qc8w",
    "bert_tiny": "qd8_qc8w",
    "whisper_encoder": "qd8_qc8w",
    "yolo9_t": "qs8",
    "unet2d": "qs8",
    "ds_cnn": "qs8",
    "lstm": "qd8_qc8w",
}
"""Lean's scheme in 8 bits; the others quantize activations at run time, too, where it does."""
AIM_MS = 400.0
"""How long the executions of one process take, all together."""
_MOST = 2000
FAR = {32: 1e-2, 8: 0.5}
"""Distance from torch's outputs, in parts of their size, beyond which a runtime computes something else."""
_RUNNING = Path(__file__).with_name("running.py")
_CONVERTING = Path(__file__).with_name("converting.py")


@dataclass(frozen=True)
class Runtime:
    """A runtime beside lean."""

    package: str
    """In the lock."""
    file: str
    """Of a model that is converted for it."""
    floats_only: str = ""
    """Why it has nothing in 8 bits."""


RUNTIMES = {
    "onnxruntime": Runtime("onnxruntime", "model.onnx"),
    "litert": Runtime("ai-edge-litert", "model.tflite"),
    "ncnn": Runtime("ncnn", "model.ncnn.param", "ncnn's wheels have no tool that quantizes"),
    "openvino": Runtime("openvino", "model.xml"),
    TORCH: Runtime("torch", "model.pt", "PyTorch's wheel has no quantizer"),
    "compiled": Runtime("torch", "model.pt2", "PyTorch's wheel has no quantizer"),
}
"""By name."""


@dataclass(frozen=True)
class Wanted:
    """A cell."""

    net: str
    bits: int

    @property
    def name(self) -> str:
        """``resnet18 fp32`` or ``resnet18 8bit``."""
        return f"{self.net} {'fp32' if self.bits == 32 else '8bit'}"

    @property
    def program(self) -> Exported:
        """Lean's."""
        return Exported(load()[self.net], "fp32" if self.bits == 32 else NETS[self.net])

    def folder(self, runtime: str) -> Path:
        """Of its conversion."""
        return dist_part("nets") / runtime / f"{self.net}-{self.bits}"


class Measured(Watched):
    """A cell's result."""

    roofline: dict[int, tuple[float, float]]
    """By the number of threads: 10^9 operations in float32 and 10^9 bytes a second, at most."""
    limit_ms: dict[int, float]
    """What multiply-adds or bytes take at that speed, whichever takes longer."""


def convert(cells: Sequence[Wanted], runtimes: Sequence[str]) -> dict[tuple[str, str], str]:
    """Convert what is not there yet; by runtime and cell why there is nothing, empty if there is."""
    environment.ensure_export()
    files = [_CONVERTING, bootstrap.lock_file("peers"), *CODE]
    keys = [*map(sha256_file, files), *versions()]
    wanted = dict.fromkeys(Wanted(one.net, bits) for one in cells for bits in sorted({32, one.bits}, reverse=True))
    todo = {
        f"{runtime} {one.name}": (runtime, one)
        for one in wanted
        for runtime in dict.fromkeys([TORCH, *runtimes])  # which computes what all are compared with
        if one.bits == 32 or not RUNTIMES[runtime].floats_only
    }
    with Maker("verify.bench.converting", ("nets", "peers")) as maker:

        def work(runtime: str, one: Wanted) -> Made:
            out, floats = one.folder(runtime), Wanted(one.net, 32).folder(runtime)
            out.parent.mkdir(parents=True, exist_ok=True)
            request = {
                "net": one.net, "runtime": runtime, "bits": one.bits, "out": str(out), "floats": str(floats),
                "dynamic": NETS[one.net] != "qs8",
            }  # fmt: skip
            return maker.ask(f"{runtime}/{out.name}", request)

        sweep = [
            sweeping.Cell(
                name, sha256_bytes(json.dumps([keys, one.program.net.digest]).encode()), partial(work, runtime, one)
            )
            for name, (runtime, one) in todo.items()
        ]
        found = sweeping.sweep(
            "converting", sweep, Journal.of("peers-convert", Made), remark=lambda made: made.remark,
            holds=lambda made: bool(made.error) or (dist_part("nets") / made.folder).is_dir(),
        )  # fmt: skip
    why = {(runtime, one.name): RUNTIMES[runtime].floats_only for one in cells for runtime in runtimes}
    return why | {(todo[name][0], todo[name][1].name): made.error for name, made in found.items()}


def apart(prefix: str, floats: Path) -> float:
    """How far outputs at ``prefix`` are from torch's in ``floats``; their shapes need not have a batch."""
    worst = 0.0
    for want in floats.glob("output*.npy"):
        got = Path(f"{prefix}{want.stem.removeprefix('output')}.npy")
        if not got.is_file():
            return math.inf
        right, values = (numpy.load(file).ravel().astype(numpy.float64) for file in (want, got))
        if right.shape != values.shape:
            return math.inf
        worst = max(worst, float(numpy.linalg.norm(values - right) / (numpy.linalg.norm(right) or 1.0)))
    return worst


def _case(cell: Wanted, runtime: str, lean: Bundle, *flags: str) -> Case:
    if runtime == LEAN:
        one = subject(cell.program)
        return Case(cell.name, LEAN, runner_here(lean), one.file, one.inputs, flags)
    inputs = tuple(sorted(Wanted(cell.net, 32).folder(TORCH).glob("input*.npy")))
    runner = (sys.executable, _RUNNING, runtime, environment.apart("peers"))
    return Case(cell.name, runtime, runner, cell.folder(runtime) / RUNTIMES[runtime].file, inputs, flags)


def measure(cell: Wanted, runtimes: Mapping[str, str], lean: Bundle, rounds: int) -> Measured:
    """One cell.

    Args:
        runtimes: by name why there is nothing to measure; empty if there is.
        rounds: processes for each runtime and number of threads.
    """
    found = {name: Figure(error=why) for name, why in runtimes.items() if why}
    limits = roofline(lean)
    executions, far = {}, {}
    floats = Wanted(cell.net, 32).folder(TORCH)
    with tempfile.TemporaryDirectory(prefix=".measuring-", dir=dist_part("nets")) as place:
        for name in (name for name in runtimes if name not in found):
            prefix = f"{place}/{name}"
            try:
                took = min(_case(cell, name, lean, f"--output_file={prefix}").run(THREADS[-1], 2, 1))
                executions[name], far[name] = fitting(AIM_MS, took, _MOST), apart(prefix, floats)
            except SlipwayError as error:
                found[name] = Figure(error=f"{error.what} {error.cause}".splitlines()[-1])
    cases = {(threads, name): _case(cell, name, lean) for threads in THREADS for name in executions}
    seen, others = in_turns(cases, executions, rounds)
    for name, figure in seen.items():
        one = cases[THREADS[-1], name]
        files = [one.program] if name == LEAN else one.program.parent.glob("model*")
        sizes = {
            "model_bytes": sum(file.stat().st_size for file in files),
            "library_bytes": figure.library_bytes or Path(one.runner[-1]).stat().st_size,
        }
        found[name] = figure.model_copy(update={"apart": far[name], **sizes})
    work = json.loads((floats / "work.json").read_text(encoding="utf-8"))
    moved = work["weights"] * cell.bits // 8 + work["moved_bytes"]
    limit = {
        threads: max(2 * work["multiply_adds"] / (flops * 1e6), moved / (read * 1e6))
        for threads, (flops, read) in limits.items()
    }
    return Measured(figures={name: found[name] for name in runtimes}, roofline=limits, limit_ms=limit, others=others)


def roofline(lean: Bundle) -> dict[int, tuple[float, float]]:
    """What this processor can do at most, by the number of threads: GFLOPS and GB/s."""
    words = [*runner_here(lean), "--roofline", f"--cpu_threads={THREADS[-1]}", "--json"]
    done = run_command(words, error=BuildError, what="Measuring the roofline")
    points = json.loads(done.stdout)["roofline"]
    return {one["threads"]: (one["gflops"], one["gbytes_per_s"]) for one in points}


def sweep(cells: Sequence[Wanted], runtimes: Sequence[str], lean: Bundle, rounds: int) -> dict[str, Measured]:
    """Export, convert and measure what is not there yet; results by the cells' names, in their order."""
    programs = export([one.program for one in cells])
    made = convert(cells, runtimes)
    work, code = [], [sha256_file(_RUNNING), bundle_digest(lean), rounds]
    for one in cells:
        if broken := made[TORCH, Wanted(one.net, 32).name]:
            raise BuildError(
                f"{one.net} has no outputs to compare with.", broken, "rm dist/sweeps/peers*; ./inv self.peers"
            )
        why = {LEAN: programs[one.program.name].error} | {name: made[name, one.name] for name in runtimes}
        files = [_case(one, name, lean).program for name in why if not why[name]]
        key = sha256_bytes(json.dumps([code, why, [sha256_file(file) for file in files]]).encode())
        work.append(sweeping.Cell(one.name, key, partial(measure, one, why, lean, rounds)))
    random.shuffle(work)
    found = sweeping.sweep(
        "measuring", work, Journal.of("peers", Measured), holds=lambda seen: seen.others <= QUIET,
        remark=lambda seen: f"others used {seen.others} processors" if seen.others > QUIET else "",
    )  # fmt: skip
    return {one.name: found[one.name] for one in cells}


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
    """
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
