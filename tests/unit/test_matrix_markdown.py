"""The matrix as Markdown: what a reader sees is what the matrix says, whatever a device wrote into it."""

from __future__ import annotations

import html
import re

import markdown_it

from deploy.matrix import markdown, ratios
from deploy.matrix.model import Change
from tests.support.matrices import cell, impossible, matrix, passed, problem

HOSTILE = "<img src=x> [a](http://b) ![c](d) | `e` **f** &lt; \\ ~~g~~\n# h"


def _rendered(text: str) -> str:
    return str(markdown_it.MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(text))


def _words(text: str) -> str:
    return html.unescape(re.sub(r"<[^>]+>", "", _rendered(text)))


def test_what_failed_comes_first_with_its_cause_and_the_next_command() -> None:
    wrong = problem(
        what="pi5 cannot be reached.", cause="no route", error="unreachable", **{"try": "./inv devices.probe"}
    )
    found = matrix(
        passed(), passed(outcome="failed", problem=wrong, latency=None, key="pi5/linux-arm64/lean/mlp-qs8"),
        impossible=(impossible("no engine"),), command="./inv matrix", commit="abc", host="bench",
    )  # fmt: skip
    text = markdown.text(found)
    seen = _words(text)
    assert seen.index("1 of 2 cells failed") < seen.index("pi5 cannot be reached.") < seen.index("largest error")
    assert "Cause: no route" in seen
    assert "Try: ./inv devices.probe" in seen
    assert "Run in 1 min 0 s on bench at abc by ./inv matrix." in seen
    assert "1 combination cannot be run" in seen
    assert _rendered(text).count("<tr>") == 3
    assert "10 ms" in seen
    assert "100 kB" in seen


def test_targets_are_named_where_a_device_has_several() -> None:
    two = passed(target="android-arm64", key="pi5/android-arm64/lean/mlp-qs8")
    assert "lean (android-arm64)" in _words(markdown.text(matrix(passed(), two)))
    assert "(linux-arm64)" not in _words(markdown.text(matrix(passed())))
    slow = passed(target="android-arm64", scheme="qs8", program="mlp-qs8", key="pi5/android-arm64/lean/mlp-qs8")
    fast = passed(target="android-arm64", scheme="fp32", program="mlp-fp32", key="pi5/android-arm64/lean/mlp-fp32")
    (ratio,) = ratios.of_schemes([slow, fast, passed()])
    assert ratio.model == "mlp on lean (android-arm64)"


def test_hostile_words_are_shown_and_do_nothing() -> None:
    bad = problem(what=HOSTILE, cause=HOSTILE, **{"try": HOSTILE})
    found = matrix(
        passed(cell(), outcome="failed", problem=bad, latency=None, device=HOSTILE, program=HOSTILE, key=HOSTILE),
        command=HOSTILE, host=HOSTILE, commit=HOSTILE,
    )  # fmt: skip
    text = markdown.text(found)
    page = _rendered(text)
    assert re.findall(r"<(?:img|a|h1|s|em)[ >]", page) == []
    assert page.count("<tr>") == 2
    assert page.count("</td>") == 7
    shown = " ".join(HOSTILE.split())
    assert _words(text).count(shown) == 9
    assert f"Cause: {HOSTILE.replace(chr(10), '')}" in _words(text), "a cause of two lines has a <br> between them"
    assert page.count("<br>") == 1


def test_worse_figures_are_a_table() -> None:
    change = Change(key="a/b", what="latency p50", before="1.000 ms", now="2.000 ms", ratio=2.0, verdict="worse")
    seen = _words(markdown.text(matrix(baseline="baseline.json", threshold=0.1, changes=(change,))))
    assert "Against baseline.json" in seen
    assert re.search(r"latency p50\s+1 ms\s+2 ms\s+2.00\s+worse", seen)


def test_it_has_a_limit() -> None:
    cells = [passed(program=f"net{'x' * 200}{number}") for number in range(6000)]
    text = markdown.text(matrix(*cells))
    assert len(text.encode()) < 1 << 20
    assert re.search(r"\d+ more rows are in the report", text)
