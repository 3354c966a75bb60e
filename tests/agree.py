"""What ``./inv agree`` does: run further architectures on the lean engine, and compare with upstream's runtime.

What was seen is kept in ``docs/architectures.json``, from which ``docs/lean.md`` has its table.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from core import console
from core.bundle import Bundle
from core.commands import run as run_command
from core.errors import MismatchError
from core.files import write_json
from core.paths import ROOT
from models.architectures.table import PORTABLE, load_architectures

if TYPE_CHECKING:
    from models.architectures.exporting import Reference

KEPT = ROOT / "docs" / "architectures.json"
ENGINE = "lean"
_SECONDS = 600.0


@dataclass(frozen=True)
class Seen:
    """What became of one program."""

    identical: bool
    """All outputs the same, bit for bit."""
    max_abs: float
    """Largest difference from upstream's outputs."""
    agrees: bool
    """Within the tolerances; whole numbers equal."""
    operators: int
    """Operators that ran on portable kernels, by kinds."""
    delegates: int


def execute(bundle: Bundle, program: Path, inputs: Sequence[Path], folder: Path, *flags: str) -> list[Any]:
    """The outputs of a program on a bundle's runner, which is emulated where it is not native.

    Args:
        flags: further words for the runner; by default it executes once.

    Raises:
        MismatchError: the runner failed; with what it said.
    """
    from deploy.needs import runner_here

    argv = [*runner_here(bundle), f"--model_path={program}", f"--output_file={folder / 'out'}", "--warmup=0"]
    argv += [f"--json={folder / 'result.json'}", *(flags or ("--num_executions=1",))]
    if inputs:
        argv.append(f"--inputs={','.join(map(str, inputs))}")
    done = run_command(argv, timeout=_SECONDS, error=None, what=f"Running {program.name}")
    if done.returncode:
        raise MismatchError(f"{program} does not run on {bundle.path}.", done.stderr.strip(), "run it by hand")
    said = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    return [np.load(folder / Path(one["file"]).name) for one in said["outputs"]]


def compare(reference: Reference, outputs: Sequence[Any]) -> Seen:
    """Hold outputs against upstream's."""
    identical, worst, agrees = True, 0.0, len(outputs) == len(reference.tolerances)
    for index, (got, (atol, rtol)) in enumerate(zip(outputs, reference.tolerances, strict=False)):
        want = np.load(reference.folder / f"output{index}.npy")
        if (got.dtype, got.shape) != (want.dtype, want.shape):
            return Seen(False, float("inf"), False, len(reference.operators), reference.delegates)
        identical = identical and got.tobytes() == want.tobytes()
        apart = np.abs(got.astype(np.float64) - want.astype(np.float64))
        worst = max(worst, float(apart.max(initial=0.0)))
        agrees = agrees and bool((apart <= atol + rtol * np.abs(want.astype(np.float64))).all())
    return Seen(identical, worst, agrees, len(reference.operators), reference.delegates)


def look(bundle: Bundle, reference: Reference) -> Seen:
    """Run one program, as often in a row as its reference was, and compare the last outputs."""
    inputs = [reference.folder / f"input{index}.npy" for index in range(reference.inputs)]
    with tempfile.TemporaryDirectory(prefix="slipway-agree-") as folder:
        flag = f"--num_executions={reference.runs}"
        return compare(reference, execute(bundle, reference.folder / "model.pte", inputs, Path(folder), flag))


def run(target: str, as_json: bool, update: bool, only: str = "") -> None:
    """Compare every architecture in every scheme on ``target``, or those whose names hold ``only``.

    Raises:
        MismatchError: some do not agree.
    """
    from core.environment import ensure_export
    from models.architectures.exporting import references
    from toolchains.builder import build

    ensure_export()
    bundle = build(target, ENGINE)
    rows = [(one, scheme) for one in load_architectures().values() if only in one.name for scheme in one.schemes]
    found: dict[str, dict[str, Any]] = {}
    for architecture, scheme in rows:
        console.note(f"{architecture.name} {scheme}")
        seen = look(bundle, references([(architecture, scheme)])[0])
        name = f"{architecture.name} {scheme}"
        found[name] = {**asdict(seen), "max_abs": float(f"{seen.max_abs:.2g}")}
        if update:  # row by row: whoever interrupts it keeps what was seen
            keep(target, bundle.manifest.offers.verified, {name: found[name]})
    if as_json:
        console.print_json({"target": target, "rows": found})
    else:
        console.table(
            f"Architectures on {target}, engine {ENGINE}, against upstream's runtime",
            ["program", "delegates", "operators outside", "max difference", "verdict"],
            [
                [name, str(one["delegates"]), str(one["operators"]), f"{one['max_abs']:.2g}", _verdict(one)]
                for name, one in found.items()
            ],
        )
    wrong = [name for name, one in found.items() if not one["agrees"]]
    if wrong:
        raise MismatchError(
            f"{len(wrong)} of {len(found)} programs do not agree with upstream's runtime.",
            ", ".join(wrong),
            "./inv agree --only NAME",
            wrong,
        )


def _verdict(row: dict[str, Any]) -> str:
    return "identical" if row["identical"] else "agrees" if row["agrees"] else "DIFFERS"


def keep(target: str, how: str, rows: dict[str, dict[str, Any]]) -> None:
    """Put what was seen on a target into ``docs/architectures.json``."""
    before = kept()
    known = before.get(target, {"rows": {}})["rows"]
    write_json(KEPT, {**before, target: {"how": how, "rows": {**known, **rows}}})


def kept() -> dict[str, Any]:
    """What was seen before, by target."""
    value: dict[str, Any] = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.is_file() else {}
    return value


def markdown() -> str:
    """The table of ``docs/lean.md``: a row a program, a column a target."""
    seen = kept()
    if not seen:
        return "Nothing is kept yet.\n"
    targets = list(seen)
    lines = [f"| architecture | program | {' | '.join(targets)} |", "|---|---|" + "---|" * len(targets)]
    for architecture in load_architectures().values():
        for scheme in architecture.schemes:
            rows = [seen[target]["rows"].get(f"{architecture.name} {scheme}") for target in targets]
            cells = ["not compared yet" if row is None else _cell(row) for row in rows]
            kind = "float32, no delegate" if scheme == PORTABLE else f"{scheme}, XNNPACK"
            lines.append(f"| {architecture.title} | {kind} | {' | '.join(cells)} |")
    how = [f"{target}: {row['how']}" for target, row in seen.items()]
    return "\n".join(lines) + "\n\n" + "; ".join(how) + ".\n"


def _cell(row: dict[str, Any]) -> str:
    outside = f"; {row['operators']} kernels" if row["operators"] else ""
    return ("identical" if row["identical"] else f"{row['max_abs']:.1g}") + outside
