"""``./inv self.bench --what peers``: nets in fp32 and in 8 bits, on all runtimes in turns."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
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
from core.processes.commands import run as run_command
from deploy.run.needs import bundle_digest, runner_here
from models.request import versions
from verify.bench import measuring, nets
from verify.bench.measuring import LEAN, THREADS, Case, Cells, Measured, Subject, bits_of
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
WORK = "work.json"
"""Beside torch's conversion in fp32: what there is to do."""
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


def _folder(net: str, bits: int, runtime: str) -> Path:
    """Of a conversion."""
    return dist_part("nets") / f"{net}-{bits}-{runtime}"


def convert(chosen: Sequence[Exported], runtimes: Sequence[str]) -> dict[tuple[str, str], str]:
    """Convert what is not there yet; by runtime and program why there is nothing, empty if there is."""
    environment.ensure_export()
    keys = [*map(sha256_file, [_CONVERTING, bootstrap.lock_file("peers"), *CODE]), *versions()]
    # A conversion to 8 bits begins with what the one in fp32 left.
    floats = {one.net.name: replace(one, scheme="fp32") for one in chosen}
    every = {one.name: one for one in (*floats.values(), *chosen)}.values()
    wanted = {}
    for one, runtime in ((one, runtime) for one in every for runtime in runtimes):
        net, bits = one.net.name, bits_of(one.name)
        if bits == 32 or not RUNTIMES[runtime].floats_only:
            out = _folder(net, bits, runtime)
            request = {
                "net": net, "runtime": runtime, "bits": bits, "dynamic": NETS[net] != "qs8", "out": str(out),
                "floats": str(_folder(net, 32, runtime)),
            }  # fmt: skip
            key = sha256_bytes(json.dumps([keys, one.net.digest]).encode())
            wanted[runtime, one.name] = Wanted(f"{runtime} {one.name}", out, key, request)
    found = make_all("converting", "verify.bench.converting", ("nets", "peers"), list(wanted.values()))
    why = {(runtime, one.name): RUNTIMES[runtime].floats_only for one in chosen for runtime in runtimes}
    return why | {pair: found[one.name].error for pair, one in wanted.items()}


def subject(program: Exported, why: Mapping[str, str], lean: Bundle) -> Subject:
    """A program as something to measure; ``why`` there is nothing of a runtime, empty if there is."""
    ours = nets.case(program, lean)
    cases = {LEAN: ours}
    for name in (name for name in why if not why[name]):
        runner = (sys.executable, _RUNNING, name, environment.apart("peers"))
        model = _folder(program.net.name, bits_of(program.name), name) / RUNTIMES[name].file
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
    return measuring.sweep("peers", subjects, [sha256_file(_RUNNING), bundle_digest(lean)], rounds)


Peaks = Mapping[int, tuple[float, float]]
"""By the number of threads: 10^9 operations in float32 and 10^9 bytes a second, at most."""


def peaks(lean: Bundle) -> Peaks:
    """What this processor can do, by the runner's loops of fused multiply-adds and of reading."""
    words = [*runner_here(lean), "--roofline", f"--cpu_threads={THREADS[-1]}", "--json"]
    done = run_command(words, error=BuildError, what="Measuring what the processor can do")
    return {one["threads"]: (one["gflops"], one["gbytes_per_s"]) for one in json.loads(done.stdout)["roofline"]}


def shares(cells: Cells, most: Peaks) -> list[list[str]]:
    """Headings and lines: what there is to do, and how much of the processor's speed lean reaches with it."""
    lines = []
    for name, seen in cells.items():
        file = _folder(name.split()[0], 32, "torch") / WORK
        mine = seen.figures[LEAN].p50_ms
        if file.is_file() and mine:
            work = json.loads(file.read_text(encoding="utf-8"))
            operations, moved = 2 * work["multiply_adds"], work["weights"] * bits_of(name) // 8 + work["moved_bytes"]
            # Whichever takes longer, in ms.
            least = {n: max(operations / flops, moved / read) / 1e6 for n, (flops, read) in most.items()}
            reached = " / ".join(f"{least[n] / mine[n]:.0%}" for n in THREADS)
            lines.append([name, f"{operations / 2e6:.3g} million", f"{moved / 1e6:.3g} MB", reached])
    return [["net", "multiply-adds", "weights, inputs and outputs", "lean's share of the limit"], *lines]


TABLE = Table("docs/speed.md", "peers")
EXAMPLE = "./inv self.bench --what peers --only 'resnet18,lstm fp32' --runtimes onnxruntime,ncnn"


def about(rounds: int, most: Peaks) -> str:
    """Versions, processor, what it can do at most, and how it was measured."""
    pins = dict(pin.partition(" ;")[0].split("==") for name in ("export", "peers") for pin in requirements(name))
    named = ", ".join(f"{name} {pins[one.package]}" for name, one in RUNTIMES.items())
    how = f"{rounds} processes of each runtime and number of threads in turns and random order"
    peak = [" / ".join(f"{most[threads][at]:.0f}" for threads in THREADS) for at in (0, 1)]
    return f"{how}; {named}; {measuring.machine()}, at most {peak[0]} GFLOPS and {peak[1]} GB/s\n"


def run(request: Bench) -> None:
    """Export, convert, measure, print; with ``--update`` keep the figures for the docs.

    Raises:
        ConfigError: ``--only`` or ``--runtimes`` names nothing. NotSupportedError: not on this machine.
    """
    every = programs()
    chosen = [every[name] for name in pick(every, request.only, EXAMPLE)]
    runtimes = pick(RUNTIMES, request.runtimes, EXAMPLE)
    lean = measuring.engine(LEAN)
    most = peaks(lean)
    cells = sweep(chosen, runtimes, lean, request.runs)
    tables = [*measuring.views(cells), shares(cells, most)]
    said = about(request.runs, most)
    if request.update and len(measuring.undisturbed(cells)) == len(cells):
        text = "\n".join(table_of(heads, lines) for heads, *lines in tables)
        TABLE.write(f"{measuring.goal(cells)}\n{text}\n{said}\n")
    if request.json:
        rows = {name: one.model_dump(mode="json") for name, one in cells.items()}
        console.print_json({"rounds": request.runs, "machine": measuring.machine(), "rows": rows})
        return
    measuring.show(tables)
    console.note(f"{measuring.goal(cells)}{said}")
