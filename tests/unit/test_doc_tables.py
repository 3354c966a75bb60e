"""Tables of the docs that are their own record."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import ConfigError
from verify import tables

TABLE = tables.Table("docs/a.md", "one")
PAGE = """# A

<!-- one -->
| a | b |
| --- | --- |
| x | 1\\|2 |
| y | 3 |

Said below.
<!-- /one -->

<!-- two -->
| c |
<!-- /two -->
"""


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tables, "ROOT", tmp_path)
    monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "docs/a.md"
    file.parent.mkdir()
    file.write_text(PAGE)
    return file


def test_rows_replace_those_with_the_same_keys_and_others_stay(page: Path) -> None:
    assert TABLE.rows() == [{"a": "x", "b": "1|2"}, {"a": "y", "b": "3"}]
    TABLE.put([{"a": "z", "b": "4"}, {"a": "y", "b": "5|6"}], ("a",))
    assert [row["b"] for row in TABLE.rows()] == ["1|2", "5|6", "4"]
    TABLE.put([], ("a",), order=lambda row: row["b"], keep=lambda row: row["a"] != "x")
    assert [row["a"] for row in TABLE.rows()] == ["z", "y"]
    text = page.read_text()
    assert text.startswith("# A\n\n<!-- one -->\n") and text.endswith(PAGE[PAGE.index("<!-- /one") :])


def test_a_damaged_page_is_named_and_left_alone(page: Path) -> None:
    with pytest.raises(ConfigError, match="no room for its table three"):
        tables.Table("docs/a.md", "three").write("x")
    page.write_text(PAGE.replace("| y | 3 |", "| y |"))
    with pytest.raises(ConfigError, match="other columns"):
        TABLE.put([], ("a",))
    assert page.read_text() == PAGE.replace("| y | 3 |", "| y |")
