"""A matrix's reports, where hostile names are only shown; and regressions: what counts, planted ones, doubt, noise."""

from __future__ import annotations

import html
import json
import re
import statistics
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import markdown_it
import pytest
from junitparser import JUnitXml

from core.errors import ConfigError, MatrixError, RegressionError, UncertainError
from core.paths import ROOT
from deploy.matrix import matrix as room
from deploy.matrix import report as matrix_report
from deploy.matrix.baseline import compare
from deploy.matrix.model import CellResult, Change, Matrix, Round, load_matrix
from tests.support.matrices import EMULATED, OUTPUT, TIMES, cell, impossible, matrix, passed, problem

HOSTILE = "</script><script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{ 7*7 }}&amp;]]>"
VOID = {"meta", "input", "br", "link", "img", "hr"}
LOADING = {"src", "href", "action", "formaction", "data", "poster", "srcset", "background", "xlink:href", "style"}


class Page(HTMLParser):
    """The page's elements, checked for balance."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] == "script":
            self.scripts.append(data)
        elif self._open and self._open[-1] != "style":
            self.text += data

    def tags(self, *names: str) -> list[str]:
        return [tag for tag, _attributes in self.elements if tag in names]


def everything(hostile: str = "odd") -> Matrix:
    """A matrix in which each kind of thing occurs, with ``hostile`` in every text."""
    first = passed(
        title=hostile, tags=(hostile,), cpu=hostile, board=hostile, kernel=hostile, governor=hostile,
        rounds=(Round(p50=10.0, min=9.0),) * 5,
    )  # fmt: skip
    times = TIMES.model_copy(update={"p50": 20.0, "min": 19.0})
    slow = first.model_copy(update={"latency": times, "rounds": (Round(p50=20.0, min=19.0),) * 5})
    bad = problem(what=hostile, cause=hostile, **{"try": hostile})
    names = {"key": f"{hostile}/x", "device": hostile, "program": hostile, "engine": hostile, "target": hostile}
    cells = (
        slow,
        passed(cell(EMULATED), throttled=(hostile,), reused=True),
        passed().model_copy(update={**names, "outcome": "differs", "problem": bad}),
        passed().model_copy(update={"key": "a/b", "outcome": "failed", "problem": bad, "latency": None, "outputs": ()}),
        passed(key=f"n/{hostile}", outcome="not run", latency=None, outputs=()),
        passed(key="i/n/f", outputs=(OUTPUT.model_copy(update={"name": hostile, "max_abs": float("inf")}),)),
    )
    return matrix(
        *cells, only=hostile, settings={"devices": [hostile], "retries": 2}, impossible=(impossible(hostile, hostile),),
        baseline=hostile, threshold=0.1, changes=compare((first,), cells, 0.1),
    )  # fmt: skip


def test_the_page_loads_nothing_and_runs_only_its_own_script() -> None:
    plain = Page(matrix_report.html(matrix()))
    page = Page(matrix_report.html(everything(HOSTILE)))
    assert page.scripts == plain.scripts
    assert len(page.scripts) == 1
    assert page.tags("script") == ["script"]
    assert page.tags("img", "link", "iframe", "object", "embed", "base", "image", "use", "foreignobject") == []
    for tag, attributes in page.elements:
        assert not set(attributes) & LOADING, (tag, attributes)
        assert not [name for name in attributes if name.startswith("on")], (tag, attributes)
    (policy,) = [a["content"] for tag, a in page.elements if tag == "meta" and a.get("http-equiv")]
    assert policy is not None
    assert policy.startswith("default-src 'none';")
    raw = matrix_report.html(everything())
    assert re.findall(r"https?:|//[a-z]|url\(|@import|javascript:|\bfetch\(|XMLHttp", raw) == []


@pytest.mark.parametrize(
    "evil", ["\x1b[2J\x9b1m", "\u202egpj.exe", "a\rb", "\ud800", "\n::error file=x::y", "##[error]z"]
)
def test_what_would_be_obeyed_is_an_escape_in_every_report(
    evil: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Page, JUnit, table and JSON: no control, no turned text, no half character, no command to a CI."""
    found = everything(evil)
    page = Page(matrix_report.html(found))
    attributes = "".join(str(value) for _tag, pairs in page.elements for value in pairs.values())
    cases = "".join(
        f"{case.name}{case.classname}{case.system_out}{[(result.message, result.text) for result in case.result]}"
        for suite in JUnitXml.fromstring(matrix_report.junit(found))
        for case in suite
    )
    matrix_report.report(found, tmp_path)
    if evil != "\ud800":  # no model of ours holds it: answers with half a character are refused
        matrix_report.report(found, tmp_path, as_json=True)
    for text in (page.text, attributes, cases, capsys.readouterr().out):
        text.encode()
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]|##\[", text)
        assert [line for line in text.splitlines() if line.lstrip().startswith("::")] == []


def test_emulated_times_are_never_shown_as_latency() -> None:
    only = matrix(passed(cell(EMULATED)))
    page = Page(matrix_report.html(only))
    assert "emulated time" in page.text
    assert "Emulated times say nothing about speed." in page.text
    assert "latency" not in page.text
    real = Page(matrix_report.html(matrix())).text
    assert "latency p50" in real
    assert "mulated time" not in real


def test_the_page_begins_with_devices_and_programs_where_there_are_several() -> None:
    page = matrix_report.html(everything())
    rows = re.findall(r"<tr>(.*?)</tr>", page.partition("Devices × programs")[2].partition("</table>")[0], re.DOTALL)
    (odd,) = [row for row in rows if row.lstrip().startswith("<td>odd odd odd")]
    assert re.findall(r'<span class="badge ([\w-]+)">(.)</span>', odd) == [("DIFFERS", "≠")]
    assert "Devices × programs" not in matrix_report.html(matrix())


def test_json_is_the_matrix(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    found = everything(HOSTILE)
    room.write(found, tmp_path)
    assert load_matrix(tmp_path / "matrix.json") == found
    matrix_report.report(found, tmp_path, as_json=True)
    value = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert value["schema_version"] == 1
    assert value["cells"][1]["latency"] is None
    assert value["cells"][1]["emulated_time"]["p50"] == 10.0


@pytest.mark.parametrize("hostile", ["odd", HOSTILE, "a\x00b\x1b[31m\ud800\ufffe"])
def test_junit_is_xml_and_tells_each_outcome(hostile: str) -> None:
    found = everything(hostile)
    data = matrix_report.junit(found)
    ET.fromstring(data)  # noqa: S314 - our own
    suites = list(JUnitXml.fromstring(data))
    cases = [case for suite in suites for case in suite]
    total = len(found.cells) + len(found.impossible)
    assert len(cases) == total
    assert sum(suite.tests for suite in suites) == total
    counts = [sum(getattr(suite, kind) for suite in suites) for kind in ("errors", "failures", "skipped")]
    assert counts == [2, 2, len(found.impossible)]
    kinds = [type(case.result[0]).__name__ if case.result else "" for case in cases]
    assert sorted(kinds) == sorted(["Failure", "", "Failure", "Error", "Error", "Skipped", ""])
    emulated = next(case for case in cases if case.classname == "emu.linux-arm64")
    assert "emulated_p50_ms=10.0000" in emulated.system_out
    assert "latency" not in emulated.system_out
    real = next(case for case in cases if case.classname == "shelf.linux-arm64" and not case.result)
    assert "latency_p50_ms=10.0000" in real.system_out


WORDS = "<img src=x> [a](http://b) ![c](d) | `e` **f** &lt; \\ ~~g~~\n# h"


def _rendered(text: str) -> str:
    return str(markdown_it.MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(text))


def _read(text: str) -> str:
    return html.unescape(re.sub(r"<[^>]+>", "", _rendered(text)))


def test_hostile_words_are_shown_and_do_nothing() -> None:
    bad = problem(what=WORDS, cause=WORDS, **{"try": WORDS})
    found = matrix(
        passed(cell(), outcome="failed", problem=bad, latency=None, device=WORDS, program=WORDS, key=WORDS),
        command=WORDS, host=WORDS, commit=WORDS,
    )  # fmt: skip
    text = matrix_report.summary(found)
    page = _rendered(text)
    assert re.findall(r"<(?:img|a|h1|s|em)[ >]", page) == []
    assert page.count("<tr>") == 4
    assert page.count("</td>") == 4 + 7
    assert _read(text).count(" ".join(WORDS.split())) == 10


EMU = cell(EMULATED)


def verdicts(old: CellResult, new: CellResult, threshold: float = 0.1) -> dict[str, str]:
    return {change.what: change.verdict for change in compare((old,), [new], threshold)}


def times(factor: float, fastest: float | None = None) -> Any:
    return TIMES.model_copy(update={"p50": TIMES.p50 * factor, "min": TIMES.min * (fastest or factor)})


@pytest.mark.parametrize(
    ("latency", "verdict"),
    [
        (times(1.09), "same"),
        (times(1.11), "cannot tell"),  # one round of each
        (times(0.8), "same"),
        (times(2.0, fastest=1.0), "same"),  # noise: the fastest execution is what it was
    ],
)
def test_latency(latency: Any, verdict: str) -> None:
    assert verdicts(passed(), passed(latency=latency))["latency p50"] == verdict


@pytest.mark.parametrize(
    "new",
    [
        passed(EMU, emulated_time=times(9)),
        passed(EMU, latency=None),
        passed(latency=times(9), throttled=("clock capped",)),
        passed(latency=times(9), cpu="another"),
        passed(latency=times(9), threads=1),
    ],
)
def test_times_that_count_for_nothing(new: CellResult) -> None:
    old = passed(EMU) if new.emulated else passed()
    assert verdicts(old, new)["latency p50"] == "not compared"
    assert verdicts(passed(throttled=("x",)), passed(latency=times(9)))["latency p50"] == "not compared"


@pytest.mark.parametrize("which", [cell(), EMU])
@pytest.mark.parametrize(
    ("what", "changed"),
    [
        ("program size", {"program_bytes": 120_000}),
        ("bundle size", {"bundle_bytes": 5_000_000}),
        ("error of output0", {"outputs": (OUTPUT.model_copy(update={"max_abs": 4e-6}),)}),
        ("digest of output0", {"outputs": (OUTPUT.model_copy(update={"sha256": "00" * 32}),)}),
    ],
)
def test_sizes_errors_and_digests_count_on_every_device(which: Any, what: str, changed: dict[str, Any]) -> None:
    found = verdicts(passed(which), passed(which, **changed))
    assert found.pop(what) == "worse"
    assert set(found.values()) <= {"same", "not compared"}
    assert verdicts(passed(which, **changed), passed(which))[what] in {"better", "worse"}


def test_a_baseline_survives_its_file(tmp_path: Path) -> None:
    infinite = OUTPUT.model_copy(update={"max_abs": float("inf")})
    found = matrix(passed(outputs=(infinite,)))
    room.check(found, tmp_path, str(tmp_path / "b.json"))
    assert load_matrix(tmp_path / "b.json") == found
    failed = passed(outcome="failed", problem=problem())
    assert [each.verdict for each in compare((failed,), [passed()], 0.1)] == ["not compared"]


@pytest.mark.parametrize("text", ["", "[]", '{"kind": "baseline"}', '{"schema_version": 2}'])
def test_what_is_no_baseline_is_told(tmp_path: Path, text: str) -> None:
    file = tmp_path / "b.json"
    with pytest.raises(ConfigError, match=r"There is no .*b\.json"):
        load_matrix(file)
    file.write_text(text)
    with pytest.raises(ConfigError, match="is not a matrix"):
        load_matrix(file)


def test_how_a_matrix_ends(tmp_path: Path) -> None:
    file = tmp_path / "base.json"
    room.check(matrix(), tmp_path, str(file))
    assert load_matrix(file).cells == (passed(),)
    worse = (Change(key=passed().key, what="latency p50", before="10 ms", now="20 ms", ratio=2.0, verdict="worse"),)
    bad = matrix(passed(latency=times(2)), baseline="base.json", threshold=0.1, changes=worse)
    with pytest.raises(RegressionError, match=r"1 figure is worse than base.json by more than 10%") as caught:
        room.check(bad, tmp_path, str(tmp_path / "never.json"))
    assert caught.value.exit_code == 34
    assert "latency p50 was 10 ms, is 20 ms" in caught.value.cause
    failed = passed(outcome="failed", problem=problem())
    with pytest.raises(MatrixError, match="1 of 1 cells failed") as wrong:
        room.check(matrix(failed, baseline="base.json", threshold=0.1, changes=worse), tmp_path)
    assert wrong.value.exit_code == 33
    assert not (tmp_path / "never.json").exists()
    # Without a threshold a baseline only informs.
    room.check(matrix(passed(), baseline="base.json", changes=worse), tmp_path)


def of_rounds(*made: Round) -> CellResult:
    return passed(rounds=made, latency=TIMES.model_copy(update={"p50": made[0].p50, "min": made[0].min}))


def rounds(*p50s: float, load: float = 0.5, hottest: float | None = None) -> CellResult:
    return of_rounds(*(Round(p50=each, min=0.9 * each, load=load, hottest_c=hottest) for each in p50s))


def even(result: CellResult) -> CellResult:
    """The same, in which the fastest execution of a round is as slow as all others."""
    slow = tuple(each.model_copy(update={"min": each.p50}) for each in result.rounds)
    return result.model_copy(update={"rounds": slow})


def latency(old: CellResult, new: CellResult, threshold: float = 0.1) -> Change:
    return next(each for each in compare((old,), [new], threshold) if each.what == "latency p50")


STEADY = rounds(10.0, 10.1, 10.2, 9.9, 10.05)
SLOWER = (12.0, 12.1, 12.2, 11.9, 12.05)


def test_a_planted_regression_is_found() -> None:
    found = latency(STEADY, rounds(*SLOWER))
    assert (found.verdict, found.before, found.now, found.why) == ("worse", "10.1 ms", "12.1 ms", "")
    assert latency(rounds(*SLOWER), STEADY).verdict == "better"
    assert latency(STEADY, rounds(*SLOWER), threshold=0.3).verdict == "same"


@pytest.mark.parametrize(
    ("new", "why"),
    [
        (rounds(*SLOWER, load=9.5), "the device was busy now: its load was 9.5"),
        (rounds(12.0), "5 and 1 rounds"),
        (rounds(9.9, 12.1, 10.0, 12.3, 12.2), "by chance"),
        (rounds(*SLOWER, hottest=80.0), "the device was 40 °C hotter"),
    ],
)
def test_what_nobody_can_tell(new: CellResult, why: str) -> None:
    old = rounds(*(each.p50 for each in STEADY.rounds), hottest=40.0)
    found = latency(old, even(new))
    assert found.verdict == "cannot tell"
    assert why in found.why
    gain = latency(rounds(*SLOWER, load=9.5), STEADY)
    assert (gain.verdict, "busy then" in gain.why) == ("same", True), "doubt about a gain is no gain"


NOISE = json.loads((ROOT / "tests" / "fixtures" / "noise.json").read_text(encoding="utf-8"))
PROGRAMS = ("conv-fp32", "linear-fp32", "matmul-fp32")


def recorded(program: str, pair: int, factor: float = 1.0) -> tuple[CellResult, CellResult]:
    """Two cells of five rounds, in turns, of recorded times around 10 ms; the second is ``factor`` times as slow."""
    middle = statistics.median(p50 for p50, _least in NOISE[program])
    times = [(10 * p50 / middle, 10 * least / middle) for p50, least in NOISE[program][10 * pair : 10 * pair + 10]]
    first = of_rounds(*(Round(p50=p50, min=least) for p50, least in times[0::2]))
    return first, of_rounds(*(Round(p50=factor * p50, min=factor * least) for p50, least in times[1::2]))


@pytest.mark.parametrize("program", PROGRAMS)
def test_of_twenty_recorded_identical_pairs_none_is_worse(program: str) -> None:
    """The rounds scatter by up to four times: a processor that changes its clock, and others' work."""
    assert [latency(*recorded(program, pair)).verdict for pair in range(20)] == ["same"] * 20


def test_most_of_what_is_a_third_slower_is_found_in_noise() -> None:
    """What the noise hides is called the same or doubtful, never better."""
    verdicts = [latency(*recorded(program, pair, 1.3)).verdict for program in PROGRAMS for pair in range(20)]
    assert verdicts.count("worse") >= 45
    assert "better" not in verdicts


def test_doubt_has_an_exit_code_of_its_own(tmp_path: Path) -> None:
    new = even(rounds(12.0, 12.5))
    changes = compare((STEADY,), [new], 0.1)
    found = matrix(new, baseline="base.json", threshold=0.1, changes=changes)
    with pytest.raises(UncertainError, match=r"1 figure may be worse than base\.json allows") as caught:
        room.check(found, tmp_path, str(tmp_path / "never.json"))
    assert caught.value.exit_code == 36
    assert not (tmp_path / "never.json").exists()
    assert b'type="uncertain"' in matrix_report.junit(found)
    room.check(matrix(new, baseline="base.json", changes=changes), tmp_path)  # without a threshold it only informs
