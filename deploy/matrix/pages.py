"""A matrix as files: a page of HTML, JUnit XML for CI systems, and a page of Markdown.

The HTML has tables, one of them to filter and sort, without external resources, light or dark. In JUnit's there is a
suite for each device and a case for each cell.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite
from junitparser.junitparser import Element

from core.console.units import counted, duration, elapsed, size
from core.plain import plain
from deploy.matrix.model import CellResult, Change, Impossible, Matrix, disturbed, engines, exact, failures

_SIGNS = {"passed": "✓", "differs": "≠", "failed": "✗", "not run": "○", "impossible": "–"}


def html(found: Matrix) -> str:
    """The page."""
    cells = found.cells
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: plain(value) if isinstance(value, str) else value,  # jinja escapes it afterwards
    )
    environment.filters |= {
        "size": size, "figure": _figure, "duration": duration, "elapsed": elapsed, "exact": exact, "counted": counted,
    }  # fmt: skip
    return environment.get_template("matrix.html.j2").render(
        found=found,
        grid=_grid(found),
        marks=_SIGNS,
        emulated=counted(sum(cell.emulated for cell in cells), "cell") if any(cell.emulated for cell in cells) else "",
        headline=headline(found),
        failures=failures(cells),
        disturbed={cell.key: notes for cell in cells if (notes := disturbed(cell))},
        impossible=_reasons(found.impossible),
    )


def _figure(value: float | None, digits: int = 3) -> str:
    return "" if value is None else f"{value:.{digits}g}"


def headline(found: Matrix) -> str:
    """What was run and how it ended, in a sentence or two."""
    cells = found.cells
    devices, engines, programs = (
        len({getattr(cell, key) for cell in cells}) for key in ("device", "engine", "program")
    )
    what = f"{counted(programs, 'program')} on {counted(devices, 'device')} with {counted(engines, 'engine')}"
    groups = failures(cells)
    if not groups:
        left = sum(cell.outcome == "not run" for cell in cells)
        end = f"{counted(left, 'cell')} did not run" if left else f"all {len(cells)} cells passed"
        return f"{what}: {end if len(cells) > 1 or left else 'the cell passed'}."
    first = groups[0]
    causes = "" if len(groups) == 1 else f", for {len(groups)} causes"
    most = "" if len(groups) == 1 else f"Most frequent ({counted(len(first.keys), 'cell')}): "
    return f"{what}: {len(found.failures)} of {counted(len(cells), 'cell')} failed{causes}. {most}{first.what}"


def _grid(found: Matrix) -> dict[str, Any]:
    """A row for each device, target and engine, a column for each program."""
    columns = list(dict.fromkeys([c.program for c in found.cells] + [i.program for i in found.impossible]))
    rows: dict[tuple[str, str, str], dict[str, tuple[str, str]]] = {}
    emulated: dict[str, bool] = {}
    for cell in found.cells:
        emulated[cell.device] = cell.emulated
        title = f"{cell.key}: {cell.problem.what if cell.problem else cell.outcome}"
        rows.setdefault((cell.device, cell.target, cell.engine), {})[cell.program] = (cell.outcome, title)
    for each in found.impossible:
        row = rows.setdefault((each.device, each.target, each.engine), {})
        row.setdefault(each.program, ("impossible", f"{each.key}: {each.why}"))
    return {
        "columns": sorted(columns),
        "rows": [(key, emulated.get(key[0], False), cells) for key, cells in sorted(rows.items())],
    }


def _reasons(impossible: Sequence[Impossible]) -> list[tuple[str, list[str]]]:
    """Each reason with the cells that it makes impossible."""
    found: dict[str, list[str]] = {}
    for each in impossible:
        found.setdefault(each.why, []).append(each.key)
    return list(found.items())


_FORBIDDEN = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot hold, escaped or not."""


def junit(found: Matrix) -> bytes:
    """The JUnit file. Emulated runs have their time as a property named ``emulated_ms``, never ``latency_ms``."""
    document = JUnitXml(f"slipway matrix {clean(found.name)}")
    judged = found.threshold is not None
    worse = _by_cell(found.regressions if judged else [])
    doubtful = _by_cell(found.uncertain if judged else [])
    known = [(cell.device, cell.target) for cell in found.cells] + [
        (one.device, one.target) for one in found.impossible
    ]
    for device in dict.fromkeys(device for device, _ in known):
        cells = [cell for cell in found.cells if cell.device == device]
        never = [cell for cell in found.impossible if cell.device == device]
        suite = TestSuite(clean(device))
        suite.timestamp = found.created.removesuffix("Z")
        suite.add_property("target", " ".join(dict.fromkeys(clean(target) for name, target in known if name == device)))
        if cells:
            suite.add_property("emulated", str(cells[0].emulated).lower())
        for cell in cells:
            suite.add_testcase(_case(cell, worse.get(cell.key, []), doubtful.get(cell.key, [])))
        for each in never:
            case = TestCase(name=_name(each), classname=_class(each), time=0)
            case.result = [Skipped(clean(f"impossible: {each.why}"))]
            suite.add_testcase(case)
        suite.update_statistics()
        document.add_testsuite(suite)
    document.update_statistics()
    file = io.BytesIO()
    document.write(file, pretty=True)
    return file.getvalue()


def _by_cell(changes: Iterable[Change]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for change in changes:
        line = f"{change.what}: {change.before} → {change.now} {change.why}".strip()
        found.setdefault(change.key, []).append(line)
    return found


def _name(cell: CellResult | Impossible) -> str:
    return clean(f"{cell.program} on {cell.engine}")


def _class(cell: CellResult | Impossible) -> str:
    return clean(f"{cell.device}.{cell.target}")


def _case(cell: CellResult, worse: list[str], doubtful: list[str]) -> TestCase:
    case = TestCase(name=_name(cell), classname=_class(cell), time=round(cell.seconds, 3))
    problem = cell.problem
    what = clean(problem.what) if problem else ""
    whole = clean("\n".join(part for part in (problem.what, problem.cause, problem.hint) if part)) if problem else ""
    if cell.outcome == "differs":
        case.result = [_with_text(Failure(what, problem.error if problem else "mismatch"), whole)]
    elif cell.outcome == "failed":
        case.result = [_with_text(Error(what, problem.error if problem else "error"), whole)]
    elif cell.outcome == "not run":
        case.result = [_with_text(Error("not run", "interrupted"), "the matrix ended before it")]
    elif worse:
        case.result = [_with_text(Failure(clean(f"{len(worse)} regressions"), "regression"), clean("\n".join(worse)))]
    elif doubtful:
        case.result = [_with_text(Failure(clean(f"{len(doubtful)} in doubt"), "uncertain"), clean("\n".join(doubtful)))]
    if cell.times:
        kind = "latency" if cell.latency else "emulated"
        lines = [f"{kind}_p50_ms={cell.times.p50:.4f}", f"{kind}_p90_ms={cell.times.p90:.4f}"]
        lines += [f"max_abs_error_{output.name}={output.max_abs}" for output in cell.outputs]
        lines += [f"program_bytes={cell.program_bytes}", f"bundle_bytes={cell.bundle_bytes}"]
        case.system_out = clean("\n".join(lines))
    return case


def _with_text(element: Element, words: str) -> Element:
    element.text = words
    return element


def clean(value: str) -> str:
    """``value`` as `plain` text, with characters that XML cannot hold even so replaced."""
    return _FORBIDDEN.sub("�", plain(value))


MOST = 900_000
"""Characters at most; GitHub takes 1 MiB for a step. What is beyond is left out by rows."""
_MARKS = {"passed": "✅ passed", "differs": "❌ differs", "failed": "❌ failed", "not run": "⚪ not run"}
_SPECIAL = re.compile(r"([\\`*_\[\]<>!|~&])")


def summary(found: Matrix) -> str:
    """The page that a CI system shows about its run: a headline, the failures by cause, regressions, all cells.

    Device names, errors and commands are quoted: nothing in them becomes HTML, a picture or a link with another text.
    """
    lines = [f"## {quoted(headline(found))}", "", _about(found), ""]
    for group in failures(found.cells):
        problem = group.problem
        lines.append(f"- ❌ **{quoted(group.what)}** ({counted(len(group.keys), 'cell')})")
        if problem and problem.cause:
            # Not a new line: what begins one might become a heading or a list.
            cause = "<br>".join(quoted(line) for line in problem.cause.splitlines() if line.strip())
            lines.append(f"    - Cause: {cause}")
        if problem and problem.hint:
            lines.append(f"    - Try: {code(problem.hint)}")
        keys = ", ".join(code(key) for key in group.keys[:5])
        lines.append(f"    - {keys}" + (f" and {len(group.keys) - 5} more" if len(group.keys) > 5 else ""))
    judged = [*found.regressions, *found.uncertain] if found.baseline else []
    if judged:
        lines += ["", f"Against {code(found.baseline)}:", ""]
        rows = [
            [code(each.key, cell=True), quoted(each.what), quoted(exact(each.before)), quoted(exact(each.now)),
             f"{each.ratio:.2f}" if each.ratio else "", each.verdict]
            for each in judged
        ]  # fmt: skip
        lines += table(["cell", "figure", "before", "now", "ratio", "verdict"], rows)
    heads = ["device", "engine", "program", "outcome", "latency p50", "largest error", "program size"]
    name = engines(found.cells)
    lines += [
        "",
        *_limited(table(heads, [_row(cell, name(cell)) for cell in found.cells]), MOST - sum(map(len, lines))),
    ]
    if found.impossible:
        lines += ["", f"{counted(len(found.impossible), 'combination')} cannot be run; the report says why."]
    return "\n".join(lines).rstrip() + "\n"


def _about(found: Matrix) -> str:
    parts = [f"in {found.took}", quoted(f"on {found.host}") if found.host else ""]
    parts += [f"at {code(found.commit)}" if found.commit else "", f"by {code(found.command)}" if found.command else ""]
    return "Run " + " ".join(part for part in parts if part) + "." + (" It was interrupted." * found.interrupted)


def _row(cell: CellResult, engine: str) -> list[str]:
    notes = ", ".join((*(["throttled"] if cell.throttled else []), *disturbed(cell)))
    time = duration(cell.latency.p50) + (f" ({quoted(notes)})" if notes else "") if cell.latency else ""
    device = quoted(cell.device) + (" (emulated)" if cell.emulated else "")
    error = "" if cell.max_abs is None else f"{cell.max_abs:.2g}"
    program = code(cell.program, cell=True)
    return [device, quoted(engine), program, _MARKS[cell.outcome], time, error, size(cell.program_bytes)]


def _limited(lines: Sequence[str], room: int) -> list[str]:
    """As many lines as fit, and how many were left out."""
    kept: list[str] = []
    for index, line in enumerate(lines):
        room -= len(line) + 1
        if room < 0:
            return [*kept, "", f"{len(lines) - index} more rows are in the report."]
        kept.append(line)
    return kept


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table, of cells that are `quoted` or `code`."""
    return [f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *rows)]


def quoted(words: str) -> str:
    """Any text as Markdown that shows it, on one line."""
    return _SPECIAL.sub(r"\\\1", " ".join(plain(words).split()))


def code(words: str, *, cell: bool = False) -> str:
    """Any text as code in a line; in a table's ``cell`` a bar would end it."""
    shown = " ".join(plain(words).split())
    shown = shown.replace("|", "\\|") if cell else shown
    ticks = "`" * (1 + max((len(run) for run in re.findall(r"`+", shown)), default=0))
    pad = " " if "`" in shown else ""
    return f"{ticks}{pad}{shown}{pad}{ticks}" if shown else ""
