"""The matrix as Markdown: what a reader sees is what the matrix says, whatever a device wrote into it."""

from __future__ import annotations

import html
import re

import markdown_it

from deploy.matrix import markdown
from tests.support.matrices import cell, matrix, passed, problem

HOSTILE = "<img src=x> [a](http://b) ![c](d) | `e` **f** &lt; \\ ~~g~~\n# h"


def _rendered(text: str) -> str:
    return str(markdown_it.MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(text))


def _words(text: str) -> str:
    return html.unescape(re.sub(r"<[^>]+>", "", _rendered(text)))


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
