"""A matrix as JUnit XML: a suite for each device, a case for each cell; CI systems can show it."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite
from junitparser.junitparser import Element

from core.plain import plain
from deploy.matrix.model import CellResult, Change, Impossible, Matrix

_FORBIDDEN = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot hold, escaped or not."""


def text(found: Matrix) -> bytes:
    """The file's bytes. Emulated runs have their time as a property named ``emulated_ms``, never ``latency_ms``."""
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
