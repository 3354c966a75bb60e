"""The reports of a matrix: nothing loaded from elsewhere, hostile names are only shown, JUnit that its readers read."""

from __future__ import annotations

import html
import json
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import markdown_it
import pytest
from junitparser import JUnitXml

from deploy.matrix import ci
from deploy.matrix import html as matrix_html
from deploy.matrix import matrix as room
from deploy.matrix import report as matrix_report
from deploy.matrix.baseline import Baseline, compare
from deploy.matrix.model import Matrix, Round, load_matrix
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
    slow = first.model_copy(
        update={
            "latency": TIMES.model_copy(update={"p50": 20.0, "min": 19.0}), "rounds": (Round(p50=20.0, min=19.0),) * 5,
        }
    )  # fmt: skip
    bad = problem(what=hostile, cause=hostile, **{"try": hostile})
    names = {"key": f"{hostile}/x", "device": hostile, "program": hostile, "engine": hostile, "target": hostile}
    cells = (
        slow,
        passed(cell(EMULATED), throttled=(hostile,), reused=True),
        passed().model_copy(update={**names, "outcome": "differs", "problem": bad}),
        passed().model_copy(update={"key": "a/b", "outcome": "failed", "problem": bad, "latency": None, "outputs": ()}),
        passed(outcome="not run", latency=None, outputs=()).model_copy(update={"key": f"n/{hostile}"}),
        passed(outputs=(OUTPUT.model_copy(update={"name": hostile, "max_abs": float("inf")}),)).model_copy(
            update={"key": "i/n/f"}
        ),
    )
    return matrix(
        *cells, only=hostile, settings={"devices": [hostile], "retries": 2}, impossible=(impossible(hostile, hostile),),
        baseline=hostile, threshold=0.1, changes=compare(Baseline(created="", cells=(first,)), cells, 0.1),
    )  # fmt: skip


def earlier() -> list[Matrix]:
    return [matrix(passed(), created=f"2026-11-2{day}T04:00:00.000Z") for day in (0, 1)]


def test_the_page_loads_nothing_and_runs_only_its_own_script() -> None:
    plain = Page(matrix_html.text(matrix(), []))
    page = Page(matrix_html.text(everything(HOSTILE), earlier()))
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
    raw = matrix_html.text(everything(), earlier())
    assert re.findall(r"https?:|//[a-z]|url\(|@import|javascript:|\bfetch\(|XMLHttp", raw) == []


@pytest.mark.parametrize(
    "evil", ["\x1b[2J\x9b1m", "\u202egpj.exe", "a\rb", "\ud800", "\n::error file=x::y", "##[error]z"]
)
def test_what_would_be_obeyed_is_an_escape_in_every_report(
    evil: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Page, JUnit, table and JSON: no control, no turned text, no half character, no command to a CI."""
    found = everything(evil)
    page = Page(matrix_html.text(found, earlier()))
    attributes = "".join(str(value) for _tag, pairs in page.elements for value in pairs.values())
    cases = "".join(
        f"{case.name}{case.classname}{case.system_out}{[(result.message, result.text) for result in case.result]}"
        for suite in JUnitXml.fromstring(ci.junit(found))
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
    page = Page(matrix_html.text(only, []))
    assert "emulated time" in page.text
    assert "10 ms, load 1 ms: no latency" in page.text
    assert "p99" not in page.text
    real = Page(matrix_html.text(matrix(), earlier())).text
    assert "Median latency" in real
    assert "10 ms, load" not in real
    assert "Median latency" not in Page(matrix_html.text(only, earlier())).text


def test_json_is_the_matrix(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    found = everything(HOSTILE)
    room.write(found, tmp_path)
    assert load_matrix(tmp_path / "matrix.json") == found
    matrix_report.report(found, tmp_path, as_json=True)
    value = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert value["schema_version"] == 1
    assert value["cells"][1]["latency"] is None
    assert value["cells"][1]["emulated_time"]["p50"] == 10.0


def test_history_is_bounded_and_interrupted_matrices_stay_out_of_it(tmp_path: Path) -> None:
    for second in range(25):
        room.write(matrix(created=f"2026-11-21T04:00:{second:02}.000Z"), tmp_path)
    room.write(matrix(created="2026-11-21T05:00:00.000Z", interrupted=True), tmp_path)
    kept = sorted(file.name for file in (tmp_path / "history").iterdir())
    assert len(kept) == 20
    assert kept[-1] == "20261121T040024000Z.json"
    (tmp_path / "history" / kept[0]).write_text("{")
    assert len(matrix_html.history(sorted((tmp_path / "history").iterdir()))) == 19


@pytest.mark.parametrize("hostile", ["odd", HOSTILE, "a\x00b\x1b[31m\ud800\ufffe"])
def test_junit_is_xml_and_tells_each_outcome(hostile: str) -> None:
    found = everything(hostile)
    data = ci.junit(found)
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
    text = ci.summary(found)
    page = _rendered(text)
    assert re.findall(r"<(?:img|a|h1|s|em)[ >]", page) == []
    assert page.count("<tr>") == 2
    assert page.count("</td>") == 7
    shown = " ".join(WORDS.split())
    assert _read(text).count(shown) == 9
    assert f"Cause: {WORDS.replace(chr(10), '')}" in _read(text), "a cause of two lines has a <br> between them"
    assert page.count("<br>") == 1
