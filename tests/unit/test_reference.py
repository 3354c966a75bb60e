"""The reference pages say what the code says: every task and option, function of the C header, error message."""

from __future__ import annotations

import re

import pytest

import tasks
from core.errors import SlipwayError
from core.paths import ROOT
from verify.site import api_page, messages
from verify.site.text import cell


def _page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def test_every_task_and_option_is_there() -> None:
    text = _page("commands.md")
    for name in tasks.ns.task_names:
        section = text.split(f"\n## {name}\n")[1].split("\n## ")[0]
        for argument in tasks.ns[name].get_arguments():
            shown = argument.name.upper() if argument.positional else f"--{argument.name.replace('_', '-')}"
            assert re.search(rf"`{re.escape(shown)}[` ]", section), f"{name} {shown}"


def test_every_name_of_the_c_header_is_there() -> None:
    header = api_page.HEADER.read_text(encoding="utf-8")
    text = _page("api.md")
    functions = set(re.findall(r"\b(slipway_\w+)\(", header))
    assert len(functions) > 30
    sections = api_page.c_sections()
    declared = [re.search(r"\b(slipway_\w+)\(", one.code) for section in sections[1:] for one in section.entries]
    assert {found[1] for found in declared if found} == functions
    assert [section.title for section in sections[1:]] == [
        "The library", "Errors", "Threads", "Options", "Programs", "Methods",
    ]  # fmt: skip
    for name in set(re.findall(r"\b(?:slipway|SLIPWAY)_\w+", text)):
        assert name in header or name == "slipway_runtime", name
    for macro in re.findall(r"#define (SLIPWAY_\w+) \d", header):
        assert f"#define {macro}" in text


def test_every_name_of_the_python_package_is_there() -> None:
    text = _page("api.md")
    for name in ("Error", "InputError", "Method", "Pool", "Program", "Spec", "load"):
        assert f"\n### slipway_runtime.{name}\n" in text


def test_messages_are_those_of_the_code() -> None:
    found = messages.messages()
    assert len(found) > 300
    kinds = {each.kind for each in found}
    assert {"usage", "config", "host", "build", "export", "unreachable", "host-key", "mismatch", "matrix"} <= kinds
    (dry,) = [each for each in found if each.what.startswith("--dry is refused")]
    assert (dry.kind, dry.code) == ("usage", 2)
    assert dry.hint == "the same without --dry; ./inv TASK --help says what a task does"
    own = [each for each in SlipwayError.__subclasses__() if each.__module__ == SlipwayError.__module__]
    assert set(messages.classes().values()) >= {SlipwayError, *own}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("./inv targets lists them", "`./inv targets` lists them"),
        ("--only 'pi & mlp*'; then", "`--only 'pi & mlp*'`; then"),
        ("--kleidiai off, or a|b", "`--kleidiai` off, or a\\|b"),
        ("in dist/<target>/<engine>/.", "in `dist/<target>/<engine>/`."),
        ("<b>*x*_y_", "\\<b\\>\\*x\\*\\_y\\_"),
        ("``a`` and `b`", "`a` and `b`"),
    ],
)
def test_words_of_the_code_become_markdown(text: str, shown: str) -> None:
    assert cell(text) == shown
