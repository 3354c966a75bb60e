"""The docs say what the tables and the code say; tables that are their own record; and where targets ran."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

import tasks
from core.environment import lock
from core.errors import ConfigError
from core.paths import ROOT
from deploy.run import result
from tests.conftest import Inv
from tests.support import consoles
from tests.unit.test_result import make
from toolchains import ran
from verify import docs, tables

ROOMS = {path.name for path in ROOT.iterdir() if not path.name.startswith(".") and path.name != "dist"}
"""What stands at the top of the checkout."""
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]


def _read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", docs.PAGES)
def test_generated_parts_are_up_to_date(name: str) -> None:
    assert docs.PAGES[name]() == _read(name), "python -m verify.docs writes it"


def test_the_readme_has_the_targets_and_contributors_are_sent_to_files_that_exist() -> None:
    assert docs.targets_markdown() in _read("README.md")
    text = _read("docs/architecture.md")
    named = {name for name in re.findall(r"`([\w./]+)`", text) if "/" in name or "." in name}
    ours = {name for name in named if name.partition("/")[0] in ROOMS and "NAME" not in name}
    assert len(ours) >= 15
    assert [name for name in sorted(ours) if not (ROOT / name).exists()] == []


def test_every_requirement_is_a_pin_and_explained() -> None:
    text = _read("docs/dependencies.md")
    for name in ("core", "export", "onnx", "labgrid", "test", "lock", "nets", "data"):
        for line in lock.requirements(name):
            package = line.partition("==")[0]
            assert re.search(rf"(?<![\w-]){re.escape(package)}(?![\w-])", text), package
            assert re.fullmatch(r"[A-Za-z0-9_.-]+==[0-9][0-9A-Za-z.]*(\+cpu)?( ; .+)?", line), line


def _anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    prose = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_inside_the_docs_lead_to_files_and_headings() -> None:
    for file in PAGES:
        for link, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", file.read_text(encoding="utf-8")):
            page = file.parent / link if link else file
            assert page.exists(), f"{file.name}: {link}"
            assert not anchor or anchor in _anchors(page), f"{file.name}: {link}#{anchor}"


def test_every_promise_about_security_names_tests_that_exist() -> None:
    """Each section of attackers has a promise, the tests of it, and what is not promised."""
    text = _read("docs/security.md")
    named = set(re.findall(r"`((?:tests|runtime)/[\w/.]+)`", text))
    assert len(named) >= 15
    assert [name for name in sorted(named) if not (ROOT / name).is_file()] == []
    sections = text.split("\n## ")[1:]
    assert len(sections) == 6
    assert [part.splitlines()[0] for part in sections if "Tests:" not in part or "Not promised:" not in part] == []


def test_every_line_of_a_console_is_tried_or_says_where() -> None:
    every = consoles.lines()
    typed = {(page, command) for page in consoles.RUN for command in consoles.to_run(page)}
    assert len(every) > 120
    assert typed < set(every)
    assert [line for line in every if line not in typed and not consoles.reason(line)] == []
    assert consoles.reason(("embedding.md", "make install")) == ""
    for page, start, why in consoles.ELSEWHERE:
        assert any(consoles.reason(line) == why for line in every), f"nothing begins so any more: {page}: {start}"
        assert all((ROOT / name).is_file() for name in re.findall(r"tests/[\w/.]+\.py", why)), why


def test_a_console_shows_its_prompt() -> None:
    """A command without it would be taken for output, and nobody would try it."""
    for page in PAGES:
        for block in re.findall(r"```console\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            assert not re.search(r"^(\./inv|cmake|conan|python) ", block, re.MULTILINE), f"{page.name}: {block}"


def _misspelt(command: str) -> list[str]:
    """Words of an ``./inv`` command that today's commands do not have."""
    found = []
    for part in re.split(r" (?:&&|\|\|) ", command):
        words = shlex.split(part)
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            words.pop(0)
        if not words or not words[0].endswith("/inv") or words[1].startswith("-"):
            continue
        if words[1] not in tasks.ns.task_names:
            found.append(words[1])
            continue
        options = {flag for one in tasks.ns[words[1]].get_arguments() for flag in one.names}
        options |= {"no-" + one.name for one in tasks.ns[words[1]].get_arguments() if one.kind is bool}
        known = {("--" if len(one) > 1 else "-") + one.replace("_", "-") for one in options}
        found += [one for one in words[2:] if one.startswith("--") and one.partition("=")[0] not in known]
    return found


def test_commands_on_the_pages_have_todays_options() -> None:
    every = [*consoles.lines(), *consoles.lines("sh")]
    assert len(every) > 170
    assert [(line, wrong) for line in every if (wrong := _misspelt(line[1]))] == []
    assert _misspelt("A=b ./inv deploy --device pi --modle mlp && ./inv depoly") == ["--modle", "depoly"]


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


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A record with nothing in it, a README of its own, and an empty ``dist/``."""
    monkeypatch.setattr(ran, "RECORD", tmp_path / "ran.json")
    ran.RECORD.write_text("[]", encoding="utf-8")
    (tmp_path / "README.md").write_text("<!-- targets -->\n<!-- /targets -->\n", encoding="utf-8")
    monkeypatch.setattr(docs, "ROOT", tmp_path)
    monkeypatch.setattr(docs, "readme", lambda: f"<!-- targets -->\n{docs.targets_markdown()}<!-- /targets -->\n")
    return tmp_path


def rows(inv: Inv) -> dict[str, list[dict[str, Any]]]:
    return {each["name"]: each["ran"] for each in json.loads(inv("targets", "--json").stdout)}


def test_the_last_run_on_each_device_is_kept_and_shown(inv: Inv, own: Path) -> None:
    assert not any(rows(inv).values())
    assert "on pi" not in inv("targets").stdout
    first = make(emulated=True)
    for created, program in (("2026-11-22T04:00:00.000Z", "conv"), ("2026-11-21T04:00:00.000Z", "mlp")):
        about = first.program.model_copy(update={"name": program})
        result.write(first.model_copy(update={"created": created, "program": about}))
    result.write(first.model_copy(update={"device": "alone", "verdict": "no reference"}))
    (own / "dist" / "results" / "history" / "other.json").write_text('{"schema_version": 0}', encoding="utf-8")
    found = {name: runs for name, runs in rows(inv).items() if runs}
    assert list(found) == ["linux-arm64"]
    (run,) = found["linux-arm64"]
    assert (run["program"], run["device"], run["emulated"]) == ("conv", "pi", True)
    assert ran.record() == (), "this machine's own results are kept only if asked for"
    docs.keep_runs()
    (kept,) = ran.record()
    assert kept.created.startswith("2026-11-22")
    line = next(line for line in (own / "README.md").read_text().splitlines() if line.startswith("| linux-arm64 "))
    assert "executorch on pi (emulated): conv, 2026-11-22" in line
    result.write(first.model_copy(update={"created": "2026-11-20T04:00:00.000Z"}))
    docs.keep_runs()
    assert ran.record() == (kept,), "an older run does not replace a later one"
