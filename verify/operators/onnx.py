"""``./inv self.operators``: run every form of the XNNPACK provider's operators with a bundle, on both providers.

``docs/onnx.md`` has a table of what was seen.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import BaseModel, ConfigDict

from commands.own import Operators
from core import console
from core.errors import HostError, UsageError
from core.files import sha256_bytes, sha256_file
from core.formats.bundle import Bundle
from core.processes.commands import run as run_command
from core.processes.sweep import Cell, Journal, sweep
from toolchains.targets import get_target, load_targets
from verify.tables import Row, Table, table_of_rows

if TYPE_CHECKING:
    from models.onnx.operators import Case

OPERATORS = Table("docs/onnx.md", "operators")
ENGINE = "onnxruntime"
ALONE = "linux-x86_64"
"""The target where every form is run by itself."""
DANGER = ": the XNNPACK provider "
"""In a reason, before what would go wrong."""
UNKNOWN = 5
"""Size of a dimension that a model leaves open."""
_SECONDS = 300.0


@dataclass(frozen=True)
class Run:
    """One run of a model with one provider."""

    outputs: tuple[np.ndarray[Any, Any], ...]
    placed: tuple[tuple[str, str], ...]
    """Operator and provider of every node that ran."""
    version: str
    failure: str = ""
    """Why there are no outputs."""


class Seen(BaseModel):
    """What became of one case."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    provider: str
    """``xnnpack`` or ``cpu``: who ran the operator."""
    max_abs: float
    """Largest difference from the CPU provider's output."""
    agrees: bool
    why: str
    """Why the bundle leaves it to the CPU provider; empty if it does not."""
    trusted: str = ""
    """What the provider does when it is given an operator which the bundle keeps from it."""
    version: str = ""
    """The engine's."""


def runner(bundle: Bundle) -> list[str]:
    """Words that start the bundle's runner on this machine."""
    from deploy.run.needs import runner_here

    return runner_here(bundle)


def inputs_of(model: Any) -> list[np.ndarray[Any, Any]]:
    """Seeded standard normal inputs; a dimension that is open gets `UNKNOWN`."""
    random = np.random.default_rng(1)
    given = []
    for one in model.graph.input:
        shape = [size.dim_value or UNKNOWN for size in one.type.tensor_type.shape.dim]
        given.append(random.standard_normal(shape).astype(np.float32))
    return given


def execute(bundle: Bundle, model: Any, folder: Path, *flags: str) -> Run:
    """Run ``model`` once; files go to ``folder``."""
    import onnx

    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(model, folder / "model.onnx")
    names = []
    for index, array in enumerate(inputs_of(model)):
        names.append(str(folder / f"input{index}.npy"))
        np.save(names[-1], array)
    done = run_command(
        [*runner(bundle), f"--model_path={folder / 'model.onnx'}", f"--inputs={','.join(names)}",
         f"--output_file={folder / 'output'}", f"--json={folder / 'result.json'}", *flags],
        # What ONNX Runtime leaves behind when it crashes goes with the folder.
        env={**os.environ, "TMPDIR": str(folder)},
        timeout=_SECONDS, error=None, what=f"Running {model.graph.name}",
    )  # fmt: skip
    if done.returncode:
        return Run((), (), "", " ".join(done.stderr.strip().splitlines()[-3:]) or f"exit {done.returncode}")
    answer = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    return Run(
        tuple(np.load(folder / Path(one["file"]).name) for one in answer["outputs"]),
        tuple((node["operator"].rpartition(":")[2], node["provider"]) for node in answer["placement"]["nodes"]),
        answer["engine"]["version"],
    )


def difference(got: np.ndarray[Any, Any], want: np.ndarray[Any, Any]) -> float:
    """Largest absolute difference; infinite for another shape."""
    if got.shape != want.shape:
        return float("inf")
    return float(np.abs(got.astype(np.float64) - want.astype(np.float64)).max())


def allowed(case: Case, want: np.ndarray[Any, Any]) -> float:
    """How far apart two providers may be: one quantization step, or the rounding of the sums."""
    from models.onnx.operators import quantization_step

    step = quantization_step(case)
    reach = float(np.abs(want).max()) if want.size else 0.0
    if "half" in case.name:
        return reach * 2**-8
    return step * 1.0001 if step else max(1e-5, 4e-6 * reach)


def is_own(case: Case, operator: str) -> bool:
    """Whether an operator of the case's model is the one that it is about."""
    plain = case.operator.removeprefix("QLinear")
    return operator in (case.operator, plain, f"QLinear{plain}")


def by_xnnpack(case: Case, placed: Sequence[tuple[str, str]]) -> bool:
    """Whether the case's operator ran on the XNNPACK provider."""
    return any(is_own(case, operator) and "Xnnpack" in provider for operator, provider in placed)


def look(bundle: Bundle, case: Case) -> Seen:
    """Run one case on both providers, and unguarded where the bundle guards it."""
    with tempfile.TemporaryDirectory(prefix="slipway-operators-") as folder:
        return _look(bundle, case, Path(folder))


def expected(bundle: Bundle, model: Any, folder: Path) -> list[tuple[str, str, str]]:
    """What ``pte_runner --describe`` expects of ``model``: operator, provider and reason of each node."""
    import onnx

    from deploy.run.needs import describe

    onnx.save(model, folder / "model.onnx")
    (method,) = describe(bundle, folder / "model.onnx", sha256_file(folder / "model.onnx")).methods
    return [(node.operator.rpartition(":")[2], node.provider, node.why) for node in method.nodes]


def _look(bundle: Bundle, case: Case, folder: Path) -> Seen:
    model = case.model()
    cpu = execute(bundle, model, folder, "--provider=cpu")
    ours = execute(bundle, model, folder, "--provider=xnnpack")
    for name, one in (("cpu", cpu), ("xnnpack", ours)):
        if one.failure:
            raise HostError(f"{case.name} does not run with --provider {name}.", one.failure, "run it by hand")
    want = cpu.outputs[0]
    trusted = ""
    nodes = expected(bundle, model, folder)
    if any(DANGER in why for _, _, why in nodes):
        bare = execute(bundle, model, folder, "--provider=xnnpack", "--trust_provider")
        if bare.failure:
            trusted = "refuses the model" if "crash" not in bare.failure.lower() else "crashes"
        elif difference(bare.outputs[0], want) > allowed(case, want):
            trusted = "computes wrong numbers"
    found = difference(ours.outputs[0], want)
    return Seen(
        provider="xnnpack" if by_xnnpack(case, ours.placed) else "cpu", max_abs=found,
        agrees=found <= allowed(case, want), trusted=trusted, version=ours.version,
        why=next((why.partition(DANGER)[0] for name, _, why in nodes if is_own(case, name) and why), ""),
    )  # fmt: skip


def look_together(bundle: Bundle, folder: Path) -> dict[str, Seen]:
    """Run the forms of each operator set side by side in one model, for an emulated runner starts slowly.

    Who ran which form then shows only in how many of each operator every provider ran: it must be what it was where
    each form ran by itself, and is taken from there.

    Raises:
        HostError: a model does not run, or the providers ran other numbers of operators.
    """
    from models.onnx.operators import batches

    alone = providers(ALONE)
    found: dict[str, Seen] = {}
    for batch in batches():
        cpu, ours = (execute(bundle, batch.model(), folder, f"--provider={name}") for name in ("cpu", "xnnpack"))
        if cpu.failure or ours.failure:
            raise HostError(f"Operator set {batch.opset} does not run.", cpu.failure or ours.failure, "run it by hand")
        taken = taken_counts(ours)
        expected = Counter(plain(case.operator) for case in batch.cases if alone[case.name] == "xnnpack")
        if taken != expected:
            raise HostError(
                f"Of operator set {batch.opset} XNNPACK's provider ran {dict(taken)}, on {ALONE} {dict(expected)}.",
                "the providers differ between the targets",
                "./inv self.operators --update",
            )
        for case, got, want in zip(batch.cases, ours.outputs, cpu.outputs, strict=True):
            apart = difference(got, want)
            found[case.name] = Seen(
                provider=alone[case.name],
                max_abs=apart,
                agrees=apart <= allowed(case, want),
                version=ours.version,
                why="",
            )
        console.note(f"operator set {batch.opset}: {len(batch.cases)} forms")
    return found


def plain(operator: str) -> str:
    """An operator's name without what marks it as quantized."""
    return operator.removeprefix("QLinear")


def taken_counts(run_: Run) -> Counter[str]:
    """How many of each operator the XNNPACK provider ran."""
    return Counter(plain(operator) for operator, provider in run_.placed if "Xnnpack" in provider)


def providers(target: str) -> dict[str, str]:
    """Who ran each case on a target, ``xnnpack`` or ``cpu``, as docs/onnx.md has it."""
    from models.onnx.operators import CASES

    rows = {(row["operator"], row["form"]): row for row in OPERATORS.rows()}
    cells = {case.name: rows.get((case.operator, case.title), {}).get(target, "") for case in CASES}
    return {name: cell.partition(",")[0].lower() for name, cell in cells.items() if cell}


def rows(target: str, found: Mapping[str, Seen], *, together: bool) -> list[Row]:
    """The table of ``docs/onnx.md``: a row a case, a column a target, what differs from the documentation marked.

    Args:
        found: what was seen on ``target``; other cells stay as they are.
        together: ``found`` says nothing of what a trusted provider does.
    """
    from models.onnx.operators import CASES

    known = {(row["operator"], row["form"]): row for row in OPERATORS.rows()}
    first = next(iter(known.values()), {})
    targets = [*(head for head in first if head not in (*_FIRST, _LAST) and head != target), target]
    targets.sort(key=list(load_targets()).index)
    made = []
    for case in CASES:
        old = known.get((case.operator, case.title), {})
        seen = found.get(case.name)
        documented = "xnnpack" if case.documented else "cpu"
        row = {"operator": case.operator, "form": case.title, "documentation": _NAMES[documented]}
        row |= {one: old.get(one, "") for one in targets}
        if seen:
            row[target] = f"{_NAMES[seen.provider]}, {seen.max_abs:.2g}"
        row[_LAST] = old.get(_LAST, "") if seen is None or together else _remark(case, seen, documented)
        made.append(row)
    return made


def _cell(bundle: Bundle, runner: str, case: Case) -> Cell[Seen]:
    key = sha256_bytes(json.dumps([runner, sha256_bytes(case.model().SerializeToString())]).encode())[:16]
    return Cell(f"{bundle.manifest.target}: {case.name}", key, partial(look, bundle, case), label=case.name)


def run(request: Operators) -> None:
    """Look at every case on a target: by itself on `ALONE`, in a sweep; elsewhere as `look_together` does.

    Raises:
        UsageError: ``--only`` for another target.
    """
    from core.environment import ensure
    from deploy.run.needs import bundle_digest
    from toolchains.bundle.builder import build

    target, only = request.target, request.only
    together = target != ALONE
    if together and only:
        raise UsageError("--only goes with linux-x86_64.", "elsewhere many forms run in one model", "leave it out")
    get_target(target)
    ensure("onnx")  # first of all: the table of cases imports onnx
    from models.onnx.operators import CASES

    bundle = build(target, ENGINE)
    cases = [case for case in CASES if only in case.name]
    if together:
        with tempfile.TemporaryDirectory(prefix="slipway-operators-") as folder:
            seen = look_together(bundle, Path(folder))
        cases = [case for case in CASES if case.name in seen]
    else:
        digest = bundle_digest(bundle)
        cells = [_cell(bundle, digest, case) for case in cases]
        kept_ones = sweep("running", cells, Journal.of("operators", Seen))
        seen = dict(zip((case.name for case in cases), kept_ones.values(), strict=True))
    version = next((one.version for one in reversed(seen.values())), "")
    how = bundle.manifest.offers.verified + (", forms of an operator set together" if together else "")
    if request.update:
        OPERATORS.write(table_of_rows(rows(target, seen, together=together)))
    found = {name: _rounded(one) for name, one in seen.items()}
    console.table(
        f"Operators of the XNNPACK provider on {target} ({ENGINE} {version}, {how})",
        ["operator", "form", "documented", "ran on", "max difference", "agrees"],
        [
            [case.operator, case.title, "XNNPACK" if case.documented else "CPU", found[case.name]["provider"],
             f"{found[case.name]['max_abs']:.2g}", "yes" if found[case.name]["agrees"] else "NO"]
            for case in cases
        ],
    )  # fmt: skip


def _rounded(seen: Seen) -> dict[str, Any]:
    return {**seen.model_dump(exclude={"version", "why"}), "max_abs": float(f"{seen.max_abs:.2g}")}


_NAMES = {"xnnpack": "XNNPACK", "cpu": "CPU"}


_FIRST, _LAST = ("operator", "form", "documentation"), "what differs"


def _remark(case: Case, seen: Seen, documented: str) -> str:
    if seen.trusted:
        return f"the provider **{seen.trusted}** ({seen.why}); the bundle leaves it to the CPU provider"
    if seen.provider == documented:
        return ""
    return f"left to the CPU provider: {seen.why}" if case.documented else "taken, other than documented"
