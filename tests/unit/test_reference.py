"""The reference pages say what the code says: every task and option, name of the interfaces, error message."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest

from core.errors import ConfigError
from verify.site import api_page, tasks_page


@functools.cache
def _page(name: str) -> str:
    """What the site has on a page."""
    return tasks_page.markdown() if name == "commands.md" else api_page.markdown()


def test_every_name_of_the_python_and_the_java_package_is_there() -> None:
    text = _page("api.md")
    for name in ("Error", "InputError", "Method", "Pool", "Program", "Spec", "load"):
        assert f"\n### slipway_runtime.{name}\n" in text
    section = _section("Java")
    names = set()
    for path in api_page.JAVA.glob("*.java"):
        for line in path.read_text(encoding="utf-8").splitlines():
            if found := re.match(r"\s*public .*?(\w+)(?:\(.*| = .*|;| \{| extends .*| implements .*)$", line):
                names.add(found[1])
    assert len(names) > 40
    assert {name for name in names if not re.search(rf"\b{name}\b", section)} == {"toString"}  # Object's comment
    assert "### org.slipway.SlipwayException.Code\n" in section and "Native" not in section
    assert "`Method.forward` of the method" in section and "{@" not in section and "<p>" not in section
    assert '`androidResources { noCompress += "pte" }`' in section


def _section(title: str) -> str:
    return _page("api.md").split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_every_name_of_the_cpp_header_is_there() -> None:
    section = _section("C++")
    header = api_page.CPP.read_text(encoding="utf-8")
    for name in re.findall(r"^(?:class|struct|enum class) (?:\[\[nodiscard\]\] )?(\w+) [:{]", header, re.MULTILINE):
        assert f"\n### slipway::{name}\n" in section
    functions = set(re.findall(r"^(?:  )?(?:[\w:<>&*]+ )+[*&]?(\w+)\([^()]*\)(?: const)? \{", header, re.MULTILINE))
    assert len(functions) > 30
    assert {name for name in functions if not re.search(rf"\b{name}\(", section)} == {"run", "load_with", "spec"}
    assert "template <typename T> const T* const_data() const;" in section
    assert "T& get();\nconst T& get() const;" in section  # overloads under one comment
    assert "c_options" not in section and "error_" not in section  # bodies, and what is private


@pytest.mark.parametrize("path", [api_page.CPP, *sorted(api_page.JAVA.glob("[OPT]*.java"))], ids=lambda path: path.name)
def test_a_public_declaration_without_a_comment_is_an_error(path: Path) -> None:
    """Each comment of the real files is taken away once."""
    text = path.read_text(encoding="utf-8")
    java = path.suffix == ".java"
    api_page.commented(text, path.name, java=java)
    followed = r"(?=\s+public )" if java else r"(?!\s+#ifndef)"  # no comments of a file or of an enum's constants
    comments = list(re.finditer(rf"/\*\*(?:[^*]|\*(?!/))*\*/{followed}", text))
    assert len(comments) > 2
    for found in comments:
        line = text.count("\n", 0, found.start()) + 1
        with pytest.raises(ConfigError, match=rf"{re.escape(path.name)} has public declarations without a comment"):
            api_page.commented(text[: found.start()] + text[found.end() :], path.name, java=java)
            pytest.fail(f"{path.name}:{line}: {found.group()}")
