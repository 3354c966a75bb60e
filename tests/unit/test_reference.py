"""The reference pages say what the code says: every task and option, name of the interfaces, error message."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from core.errors import ConfigError
from verify.site import api_page


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
