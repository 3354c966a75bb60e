"""``./inv inspect --values``: how far each operator of a run is from PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commands import inspect
from commands.inspect import Source
from commands.requests import Inspect
from core import console
from core.console import shown
from core.errors import MismatchError, NotSupportedError, UsageError
from core.formats.program import DESCRIPTION, load_program
from core.paths import programs_dir

if TYPE_CHECKING:
    from models.inspection.values import Gap


def run(request: Inspect) -> None:
    """Print how far each operator is from PyTorch; then raise `MismatchError` if one is beyond its tolerance."""
    patterns = request.only.replace(",", " ").split()
    source = inspect.find(request.run, Path(request.etrecord) if request.etrecord else None)
    gaps = gaps_of(source)
    wrong = [gap for gap in gaps if not gap.ok]
    shown_gaps = [gap for gap in gaps if inspect.contains((gap.name, gap.origin.module, gap.origin.source), patterns)]
    facts = {"run": source.result.key, "first": wrong[0].name if wrong else None}
    _show(request.json, shown_gaps, source.result.key, len(gaps), facts)
    if wrong:
        first = wrong[0]
        raise MismatchError(
            f"{first.name} is the first operator beyond its tolerance: {first.origin.module or 'no module'}, "
            f"{first.origin.source or 'no line'}.",
            f"its relative error is {first.error:.3g}, and {first.limit:.3g} is allowed; "
            f"{len(wrong)} of {len(gaps)} operators are beyond theirs, also those that only compute with wrong inputs",
            "look at its weights, and at its scheme with ./inv export",
            [gap.name for gap in wrong],
        )


def gaps_of(source: Source) -> tuple[Gap, ...]:
    """How far each operator of a run is from PyTorch.

    Raises:
        UsageError: the run has no values, or there is no ETRecord. ProgramError, AnswerError: as `read`.
    """
    from core.environment import ensure_export

    again = inspect.deploy_again(source.result)
    if source.values is None:
        raise UsageError(
            f"{source.result.key} has no intermediate values.",
            "it was deployed without --values",
            again.replace("--etdump", "--values"),
        )
    if source.record is None:
        folder = programs_dir() / source.result.program.name
        never = (folder / DESCRIPTION).is_file() and not load_program(folder, verify=False).etrecord
        raise UsageError(
            f"The ETRecord of {source.result.key} is not known.",
            f"PyTorch's values come from it{', and upstream could not write it for this program' if never else ''}",
            f"./inv inspect {source.result.key}, for operators and their times" if never else "--etrecord FILE",
        )
    if source.result.program.method != "forward":
        raise NotSupportedError(
            "Only values of the method forward are compared.",
            "ETRecords have the inputs of that one only",
            again.replace("--etdump", "--values --method forward"),
        )
    from models.inspection import dump
    from models.lowering.progress import Stages, log_path, quiet

    dump.check(source.dump.read_bytes(), shown(source.dump))
    ensure_export()
    with quiet(log_path("inspect")) as terminal, closing(Stages(source.result.key, terminal)) as stages:
        stages.show("reading the values")
        given = dump.values(source.dump, source.values)
        executions = dump.read(source.dump)
        from models.inspection.origins import check, load
        from models.inspection.values import compare

        check(executions, load(source.record), source.record)
        stages.show("computing with PyTorch")
        gaps = compare(given, dump.names(executions), source.record, source.program)
    if not gaps:
        raise NotSupportedError(
            f"{source.result.key} has no value of an operator to compare.",
            "upstream's ETDump keeps no float16, and the engine executorch no values inside of delegates",
            again.replace("--etdump", "--values").replace("--engine executorch", "--engine lean"),
        )
    return gaps


def _show(as_json: bool, found: Sequence[Gap], name: str, count: int, facts: dict[str, Any]) -> None:
    """Print how far operators are from PyTorch."""
    if as_json:
        console.print_json({**facts, "operators": [gap.to_json() for gap in found]})
        return

    def cells(gap: Gap) -> list[str]:
        figures = [f"{figure:.3g}" for figure in (gap.error, gap.max_abs, gap.limit)]
        shape, line = "×".join(map(str, gap.shape)) or "scalar", gap.origin.source.rpartition("/")[2]
        return [gap.name, gap.origin.module, line, gap.dtype, shape, *figures, "agrees" if gap.ok else "DIFFERS"]

    console.table(
        f"{name}: operators against PyTorch",
        ["operator", "module", "line", "type", "shape", "error", "largest difference", "allowed", "verdict"],
        [cells(gap) for gap in found],
        f"{len(found)} of {count} operators; error: root mean square of the differences, by that of PyTorch's values",
        optional=("shape", "type", "largest difference", "module"),
    )
