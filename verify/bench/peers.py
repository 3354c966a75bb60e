"""``./inv self.bench --what peers``: nets in fp32 and in 8 bits, on all runtimes in turns."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from commands.own import Bench
from core import console, environment
from core.environment import bootstrap
from core.environment.lock import requirements
from core.errors import BuildError
from core.files import sha256_bytes, sha256_file
from core.formats.bundle import Bundle
from core.paths import dist_part
from deploy.run.needs import bundle_digest
from models.request import versions
from verify.bench import nets
from verify.bench.measuring import LEAN, THREADS, Case, Figure, Measured, Subject, engine, machine, undisturbed
from verify.bench.measuring import sweep as measure
from verify.bench.nets import CODE, Exported, export, load
from verify.programs import Wanted, make_all, pick
from verify.tables import Table, table_of

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
    "torch": Runtime("torch", "model.pt", "PyTorch's wheel has no quantizer"),
    "compiled": Runtime("torch", "model.pt2", "PyTorch's wheel has no quantizer"),
}
"""By name."""


def programs() -> dict[str, Exported]:
    """Lean's, each net in both schemes, by their names: ``resnet18 qs8``."""
    nets = load()
    every = [Exported(nets[net], scheme) for net, other in NETS.items() for scheme in ("fp32", other)]
    return {one.name: one for one in every}


def _bits(name: str) -> int:
    return 32 if name.endswith("fp32") else 8


def _folder(net: str, bits: int, runtime: str) -> Path:
    """Of a conversion."""
    return dist_part("nets") / f"{net}-{bits}-{runtime}"


def convert(chosen: Sequence[Exported], runtimes: Sequence[str]) -> dict[tuple[str, str], str]:
    """Convert what is not there yet; by runtime and program why there is nothing, empty if there is."""
    environment.ensure_export()
    keys = [*map(sha256_file, [_CONVERTING, bootstrap.lock_file("peers"), *CODE]), *versions()]
    # A conversion to 8 bits begins with what the one in fp32 left.
    every = dict.fromkeys(
        replace(one, scheme=scheme) for one in chosen for scheme in dict.fromkeys(("fp32", one.scheme))
    )
    wanted = {}
    for one, runtime in ((one, runtime) for one in every for runtime in runtimes):
        net, bits = one.net.name, _bits(one.name)
        if bits == 32 or not RUNTIMES[runtime].floats_only:
            out, floats = (str(_folder(net, width, runtime)) for width in (bits, 32))
            request = {"net": net, "runtime": runtime, "bits": bits, "dynamic": NETS[net] != "qs8"}
            key = sha256_bytes(json.dumps([keys, one.net.digest]).encode())
            request |= {"out": out, "floats": floats}
            wanted[runtime, one.name] = Wanted(f"{runtime} {one.name}", Path(out), key, request)
    found = make_all("converting", "verify.bench.converting", ("nets", "peers"), list(wanted.values()))
    why = {(runtime, one.name): RUNTIMES[runtime].floats_only for one in chosen for runtime in runtimes}
    return why | {pair: found[one.name].error for pair, one in wanted.items()}


def subject(program: Exported, why: Mapping[str, str], lean: Bundle) -> Subject:
    """A program as something to measure; ``why`` there is nothing of a runtime, empty if there is."""
    ours = nets.case(program, lean)
    cases = {LEAN: ours}
    for name in (name for name in why if not why[name]):
        runner = (sys.executable, _RUNNING, name, environment.apart("peers"))
        model = _folder(program.net.name, _bits(program.name), name) / RUNTIMES[name].file
        cases[name] = Case(runner, model, ours.inputs)
    missing = {name: reason for name, reason in why.items() if reason}
    return Subject(program.name, cases, nets.floats(program), AIM_MS, missing)


def sweep(chosen: Sequence[Exported], runtimes: Sequence[str], lean: Bundle, rounds: int) -> dict[str, Measured]:
    """Export, convert and measure what is not there yet; results by the programs' names, in their order."""
    exported = export(chosen)
    for one in chosen:
        if broken := exported[one.name].error:
            raise BuildError(f"{one.name} cannot be exported.", broken, f"rm dist/sweeps/nets-exporting*; {EXAMPLE}")
    made = convert(chosen, runtimes)
    subjects = [subject(one, {name: made[name, one.name] for name in runtimes}, lean) for one in chosen]
    return measure("peers", subjects, [sha256_file(_RUNNING), bundle_digest(lean)], rounds)


TABLE = Table("docs/speed.md", "peers")
AIM = 1.1
"""Lean's latency in parts of the fastest one's, to stay under."""
EXAMPLE = "./inv self.bench --what peers --only 'resnet18,lstm fp32' --runtimes onnxruntime,ncnn"

Cells = Mapping[str, Measured]


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
    """Headings and lines: medians, who is the fastest, and lean's ratio."""
    (heads, *lines) = _table(cells, _latency)
    for line, (name, seen) in zip(lines, cells.items(), strict=True):
        best = [fastest(name, seen, threads) for threads in THREADS]
        line.append(_of_threads([who for who, _ in best]))
        line.append(" / ".join(f"{ratio:.2f}{' (!)' if ratio > AIM else ''}" if ratio else "-" for _, ratio in best))
    return [[*heads, "fastest", "lean : best other"], *lines]


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


def about(rounds: int) -> str:
    """Versions, processor, and how it was measured."""
    pins = dict(pin.partition(" ;")[0].split("==") for name in ("export", "peers") for pin in requirements(name))
    named = ", ".join(f"{name} {pins[one.package]}" for name, one in RUNTIMES.items())
    return f"{rounds} processes of each runtime and number of threads in turns and random order; {named}; {machine()}\n"


def run(request: Bench) -> None:
    """Export, convert, measure, print; with ``--update`` keep the figures for the docs.

    Raises:
        ConfigError: ``--only`` or ``--runtimes`` names nothing. NotSupportedError: not on this machine.
    """
    every = programs()
    chosen = [every[name] for name in pick(every, request.only, EXAMPLE)]
    runtimes = pick(RUNTIMES, request.runtimes, EXAMPLE)
    cells = sweep(chosen, runtimes, engine(LEAN), request.runs)
    tables = {
        "latency": latencies(cells), "rest": _table(cells, _rest), "outputs": _table(cells, _apart),
        "reasons": [["runtime", "net", "why there is no figure"], *map(list, reasons(cells))],
    }  # fmt: skip
    said = about(request.runs)
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
