"""A matrix as tables, and what shows them: the terminal, a page of HTML and one of Markdown, JUnit XML for CI systems.

The HTML loads nothing, and its tables can be filtered and sorted. In JUnit's there is a suite for each device and a
case for each cell.
"""

from __future__ import annotations

import io
import json
import re
import statistics
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite
from junitparser.junitparser import Element

from core import console
from core.console.live import Step
from core.console.units import counted, duration, size
from core.errors import UsageError
from core.plain import json_text, plain
from deploy.matrix.model import AWAY, CellResult, Change, Impossible, Matrix
from deploy.matrix.plan import Cell, Plan, exactly, grouped, named

MOST_JOBS = 256
"""Jobs that GitHub Actions makes of one matrix at most."""
MARKS = {"passed": "passed", "differs": "DIFFERS", "failed": "FAILED", "not run": "not run"}
SIGNS = {"passed": "✓", "differs": "≠", "failed": "✗", "not run": "○"}
HOT_C = 80.0
"""Degrees Celsius from which small boards begin to slow down (a Raspberry Pi's soft limit is 60 to 80)."""


class View(NamedTuple):
    """A table about a matrix."""

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    more: Sequence[str] = ()
    """Of each row, what a page can unfold."""


def views(found: Matrix) -> list[View]:
    """The cells; what changed against a baseline; and what is impossible."""
    return [_cells(found), *_changes(found), *_impossible(found)]


def _cells(found: Matrix) -> View:
    cells = found.cells
    targets = grouped((cell.device, cell.target) for cell in cells)
    columns = {
        "device": [cell.device + " (emulated)" * cell.emulated for cell in cells],
        # Some devices have cells of several targets.
        "engine": [cell.engine + f" ({cell.target})" * (len(set(targets[cell.device])) > 1) for cell in cells],
        "program": [cell.program for cell in cells],
        "outcome": [_outcome(cell) for cell in cells],
        "latency p50": [duration(cell.latency.p50) if cell.latency else "" for cell in cells],
        "p90": [duration(cell.latency.p90) if cell.latency else "" for cell in cells],
        "emulated time": [duration(cell.emulated_time.p50) if cell.emulated_time else "" for cell in cells],
        "tokens/s": [", ".join(f"{name} {each:.1f}" for name, each in cell.pace.items()) for cell in cells],
        "max error": ["" if cell.max_abs is None else f"{cell.max_abs:.3g}" for cell in cells],
        "size": [size(cell.program_bytes) for cell in cells],
        "peak RSS": [size(cell.peak_rss_bytes) for cell in cells],
    }
    columns = {head: values for head, values in columns.items() if any(values)}
    words = ", ".join(f"{count} {outcome}" for outcome, count in Counter(cell.outcome for cell in cells).items())
    if kept := sum(cell.reused for cell in cells):
        words += f" ({kept} kept from before)"
    emulated = " Emulated times say nothing about speed." * any(cell.emulated_time for cell in cells)
    more = [json_text(cell.model_dump(mode="json", exclude_defaults=True)) for cell in cells]
    rows = list(zip(*columns.values(), strict=True))
    return View("Cells", list(columns), rows, f"{words} in {found.took}.{emulated}", more)


def _grid(found: Matrix) -> list[View]:
    """A row for each engine on a device, a column for each program; nothing if there is one of either."""
    signs = {(f"{each.device} {each.engine} {each.target}", each.program): "–" for each in found.impossible}
    signs |= {(f"{each.device} {each.engine} {each.target}", each.program): SIGNS[each.outcome] for each in found.cells}
    places, programs = (sorted({key[part] for key in signs}) for part in (0, 1))
    rows = [[place, *(signs.get((place, program), "") for program in programs)] for place in places]
    words = "✓ passed, ≠ differs from the reference, ✗ failed, ○ not run, – impossible"
    return [View("Devices × programs", ["device", *programs], rows, words)] * (min(len(places), len(programs)) > 1)


def _outcome(cell: CellResult) -> str:
    """``passed (kept, busy: load 9.5)``: what disturbed a run makes its latency worse than the device's best.

    A run keeps its threads busy, and what deploys it one more: the load is the median before the rounds.
    """
    loads = [each.load for each in cell.rounds if each.load is not None]
    heat = [each.hottest_c for each in cell.rounds if each.hottest_c is not None]
    notes = [word for word, so in (("kept", cell.reused), ("throttled", cell.throttled)) if so]
    if loads and (load := statistics.median(loads)) > max(cell.threads, 1) + 1:
        notes.append(f"busy: load {load:.1f}")
    if heat and max(heat) >= HOT_C:
        notes.append(f"hot: {max(heat):.0f} °C")
    return MARKS[cell.outcome] + (f" ({', '.join(notes)})" if notes else "")


def _changes(found: Matrix) -> list[View]:
    if not found.baseline:
        return []
    rows = [
        [each.key, each.what, each.before, each.now, f"{each.ratio:.2f}" if each.ratio else "–",
         f"{each.verdict}: {each.why}" if each.why else each.verdict]
        for each in found.changes
        if each.verdict in {"worse", "better", "cannot tell"}
    ]  # fmt: skip
    same = counted(sum(change.verdict == "same" for change in found.changes), "figure") + " the same"
    out = Counter(change.why for change in found.changes if change.verdict == "not compared")
    left = [f"{count} not compared: {why}" for why, count in out.items()]
    heads = ("cell", "figure", "before", "now", "ratio", "verdict")
    return [View(f"Against {found.baseline}", heads, rows, "; ".join([same, *left]))]


def _impossible(found: Matrix) -> list[View]:
    rows = [[named(keys), why] for why, keys in grouped((each.why, each.key) for each in found.impossible).items()]
    return [View("Impossible", ("cells", "why"), rows)] if rows else []


def causes(found: Matrix) -> list[list[CellResult]]:
    """Failed cells by cause, the most frequent first: a device that cannot be reached is one failure.

    Two errors have one cause if they are of one kind and their sentences differ only in the cell's own names and in
    numbers.
    """
    return sorted(grouped((_cause(cell), cell) for cell in found.failures).values(), key=lambda group: -len(group))


def _cause(cell: CellResult) -> tuple[str, ...]:
    if cell.problem is None:
        return (cell.outcome,)
    if cell.problem.error in AWAY:
        return (cell.problem.error, cell.device)
    what = cell.problem.what
    for name in sorted({cell.program, cell.device, cell.target, cell.model}, key=len, reverse=True):
        what = what.replace(name, "*") if name else what
    return (cell.outcome, cell.problem.error, re.sub(r"\d+(\.\d+)?(e[-+]?\d+)?", "#", what))


def _what(cell: CellResult) -> str:
    return cell.problem.what if cell.problem else "The outputs differ from the reference."


def _failures(found: Matrix) -> list[View]:
    rows = [
        [_what(cells[0]), *((problem.cause, problem.hint) if (problem := cells[0].problem) else ("", "")),
         named([cell.key for cell in cells])]
        for cells in causes(found)
    ]  # fmt: skip
    return [View("What failed", ("what", "cause", "try", "cells"), rows)] if rows else []


def headline(found: Matrix) -> str:
    """What was run and how it ended, in a sentence or two."""
    cells = found.cells
    devices, engines, programs = (len({getattr(one, key) for one in cells}) for key in ("device", "engine", "program"))
    what = f"{counted(programs, 'program')} on {counted(devices, 'device')} with {counted(engines, 'engine')}"
    groups = causes(found)
    if not groups:
        left = sum(cell.outcome == "not run" for cell in cells)
        end = f"{counted(left, 'cell')} did not run" if left else f"all {len(cells)} cells passed"
        return f"{what}: {end if len(cells) > 1 or left else 'the cell passed'}."
    several, most = "", ""
    if len(groups) > 1:
        several, most = f", for {len(groups)} causes", f"Most frequent ({counted(len(groups[0]), 'cell')}): "
    failed = f"{len(found.failures)} of {counted(len(cells), 'cell')} failed{several}"
    return f"{what}: {failed}. {most}{_what(groups[0][0])}"


def _facts(found: Matrix) -> dict[str, str]:
    """How it was run."""
    facts = {
        "when": f"{found.created[:19].replace('T', ' ')} UTC" + ", interrupted" * found.interrupted, "took": found.took,
        "commit": found.commit, "host": found.host, "selected by": found.only,
        **{name: ", ".join(map(str, one)) if isinstance(one, (list, tuple)) else str(one)
           for name, one in found.settings.items()},
        "command": found.command,
    }  # fmt: skip
    return {name: text for name, text in facts.items() if text}


class Live(AbstractContextManager["Live"]):
    """Progress on stderr: a bar over all cells and a line for each busy device; without a terminal, a line per cell."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._all = console.begin("matrix", announce=False)
        self._all.count(0, total)
        self._devices: dict[str, Step] = {}

    def __exit__(self, *_: object) -> None:
        for step in (*self._devices.values(), self._all):
            step.end()

    def preparing(self, what: str) -> None:
        """Show that a build or an export begins; it has a display of its own."""
        console.note(f"matrix: {what}")

    def working(self, device: str, what: str) -> None:
        """Show what a device is doing."""
        if device not in self._devices:
            self._devices[device] = console.begin(device, announce=False)
        self._devices[device].now(what)

    def finished(self, cell: CellResult) -> None:
        """Show that a cell is filled, or will not be."""
        self._all.one()
        if (step := self._devices.pop(cell.device, None)) is not None:
            step.end()
        again = ", kept from before" if cell.reused else ""
        time = f"p50 {duration(cell.latency.p50)}" if cell.latency else "emulated"
        problem = f": {cell.problem.what}" if cell.problem else f" ({time}{again})"
        console.note(f"[{self._all.done}/{self._total}] {cell.key} {MARKS[cell.outcome]}{problem}")


def report(found: Matrix, folder: Path, as_json: bool = False) -> None:
    """Print a matrix."""
    if as_json:
        console.print_json({**json.loads(found.model_dump_json()), "folder": str(folder)})
        return
    cells, *others = views(found)
    title = f"Matrix {found.name}" + (f": {found.only}" if found.only else "")
    page = console.shown(folder / "report.html")
    console.table(title, cells.heads, cells.rows, f"{cells.caption} {page}", optional=("peak RSS", "size", "p90"))
    for view in others:
        if view.rows:
            console.table(view.title, view.heads, view.rows, view.caption)
        else:
            console.say(f"{view.title}: {view.caption}.")


def planned(plan: Plan, as_json: bool) -> None:
    """Print the cells that would run, and the impossible ones."""
    if as_json:
        facts = [Impossible.of(cell).model_dump(exclude={"why"}) for cell in plan.cells]
        cells = [{**each, "emulated": cell.device.emulated} for each, cell in zip(facts, plan.cells, strict=True)]
        console.print_json({"cells": cells, "impossible": [Impossible.of(one).model_dump() for one in plan.impossible]})
        return
    counts = (("cell", plan.cells), ("bundle", plan.bundles), ("program", plan.programs))
    console.table(
        "To be run",
        ["device", "target", "engine", "program"],
        [[cell.device.name, cell.target, cell.engine, cell.program.name] for cell in plan.cells],
        ", ".join(counted(len(those), word) for word, those in counts),
    )
    if plan.impossible:
        console.table("Impossible", ["cells", "why"], [[named(keys), why] for why, keys in plan.reasons().items()])


def print_matrix(plan: Plan) -> None:
    """Print ``{"include": [...]}`` for GitHub Actions' ``fromJson``: a job for each device, target and engine.

    Raises:
        UsageError: more jobs than GitHub allows.
    """
    groups = grouped(((cell.device.name, cell.target, cell.engine), cell) for cell in plan.cells)
    if len(groups) > MOST_JOBS:
        raise UsageError(
            f"The matrix would have {len(groups)} jobs; GitHub allows {MOST_JOBS}.", "", "narrow it with --only"
        )
    include = [_job(*names, cells) for names, cells in groups.items()]
    sys.stdout.write(json.dumps({"include": include}, separators=(",", ":")) + "\n")


def _job(device: str, target: str, engine: str, cells: Sequence[Cell]) -> dict[str, Any]:
    names = {"device": device, "target": target, "engine": engine}
    programs = " | ".join(exactly("program", cell.program.name) for cell in cells)
    return {
        "name": f"{device}-{target}-{engine}",
        **names,
        "emulated": cells[0].device.emulated,
        "only": " & ".join([*(exactly(field, name) for field, name in names.items()), f"({programs})"]),
        "cells": len(cells),
    }


def html(found: Matrix) -> str:
    """The page."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: plain(value) if isinstance(value, str) else value,  # jinja escapes it afterwards
    )
    return environment.get_template("matrix.html.j2").render(
        name=found.name, headline=headline(found), facts=_facts(found),
        views=[*_grid(found), *_failures(found), *views(found)],
        signs={sign: MARKS[outcome] for outcome, sign in SIGNS.items()},
    )  # fmt: skip


MOST = 900_000
"""Characters at most; GitHub takes 1 MiB for a step. What is beyond is left out by rows."""
_SPECIAL = re.compile(r"([\\`*_\[\]<>!|~&])")


def summary(found: Matrix) -> str:
    """The page that a CI system shows about its run: a headline, the failures by cause, changes, all cells.

    Device names, errors and commands are quoted: nothing in them becomes HTML, a picture or a link with another text.
    """
    lines = [f"## {quoted(headline(found))}", ""]
    lines += [f"- {quoted(name)}: {quoted(text)}" for name, text in _facts(found).items()]
    room = MOST - sum(map(len, lines))
    for view in (*_failures(found), *views(found)):
        lines += ["", f"### {quoted(view.title)}", ""]
        for number, row in enumerate((view.heads, ["---"] * len(view.heads), *view.rows)):
            line = f"| {' | '.join(map(quoted, row))} |"
            room -= len(line) + 1
            if room < 0:
                lines += ["", f"{len(view.rows) + 2 - number} more rows are in the report."]
                break
            lines.append(line)
        lines += ["", quoted(view.caption)] * bool(view.caption)
    return "\n".join(lines) + "\n"


def quoted(words: str) -> str:
    """Any text as Markdown that shows it, on one line."""
    return _SPECIAL.sub(r"\\\1", " ".join(plain(words).split()))


_FORBIDDEN = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot hold, escaped or not."""


def clean(value: str) -> str:
    """``value`` as `plain` text, with characters that XML cannot hold even so replaced."""
    return _FORBIDDEN.sub("�", plain(value))


def junit(found: Matrix) -> bytes:
    """The JUnit file. Emulated runs have their time as a property named ``emulated_ms``, never ``latency_ms``."""
    document = JUnitXml(f"slipway matrix {clean(found.name)}")
    judged = found.threshold is not None
    worse = _by_cell(found.regressions if judged else [])
    doubtful = _by_cell(found.uncertain if judged else [])
    everything: list[CellResult | Impossible] = [*found.cells, *found.impossible]
    for device, cells in grouped((one.device, one) for one in everything).items():
        suite = TestSuite(clean(device))
        suite.timestamp = found.created.removesuffix("Z")
        suite.add_property("target", " ".join(dict.fromkeys(clean(cell.target) for cell in cells)))
        if isinstance(cells[0], CellResult):
            suite.add_property("emulated", str(cells[0].emulated).lower())
        for cell in cells:
            suite.add_testcase(_case(cell, worse.get(cell.key, []), doubtful.get(cell.key, [])))
        suite.update_statistics()
        document.add_testsuite(suite)
    document.update_statistics()
    file = io.BytesIO()
    document.write(file, pretty=True)
    return file.getvalue()


def _by_cell(changes: Iterable[Change]) -> dict[str, list[str]]:
    return grouped((each.key, f"{each.what}: {each.before} → {each.now} {each.why}".strip()) for each in changes)


def _case(cell: CellResult | Impossible, worse: list[str], doubtful: list[str]) -> TestCase:
    seconds = round(cell.seconds, 3) if isinstance(cell, CellResult) else 0
    case = TestCase(clean(f"{cell.program} on {cell.engine}"), clean(f"{cell.device}.{cell.target}"), seconds)
    if isinstance(cell, Impossible):
        case.result = [Skipped(clean(f"impossible: {cell.why}"))]
        return case
    kind: type[Failure | Error] | None = None
    words: tuple[str, str, str] = ("", "", "")
    if cell.outcome in {"differs", "failed"}:
        kind = Failure if cell.outcome == "differs" else Error
        whole = (problem.what, problem.cause, problem.hint) if (problem := cell.problem) else ()
        words = _what(cell), problem.error if problem else "mismatch", "\n".join(filter(None, whole))
    elif cell.outcome == "not run":
        kind, words = Error, ("not run", "interrupted", "the matrix ended before it")
    elif worse:
        kind, words = Failure, (f"{len(worse)} regressions", "regression", "\n".join(worse))
    elif doubtful:
        kind, words = Failure, (f"{len(doubtful)} in doubt", "uncertain", "\n".join(doubtful))
    if kind:
        result: Element = kind(clean(words[0]), words[1])
        result.text = clean(words[2])
        case.result = [result]
    if times := cell.latency or cell.emulated_time:
        name = "latency" if cell.latency else "emulated"
        lines = [f"{name}_p50_ms={times.p50:.4f}", f"{name}_p90_ms={times.p90:.4f}"]
        lines += [f"max_abs_error_{output.name}={output.max_abs}" for output in cell.outputs]
        lines += [f"program_bytes={cell.program_bytes}", f"bundle_bytes={cell.bundle_bytes}"]
        case.system_out = clean("\n".join(lines))
    return case
