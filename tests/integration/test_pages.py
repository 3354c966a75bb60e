"""The site of the docs: it loads nothing from elsewhere, looks as on a forge, and has no dead links."""

from __future__ import annotations

import re
from pathlib import Path

import markdown_it
import pytest

from core.errors import BuildError
from tests.conftest import Inv
from tests.support.processes import well
from verify import site as pages


@pytest.fixture(scope="module")
def site(inv: Inv, tmp_path_factory: pytest.TempPathFactory) -> Path:
    dist = tmp_path_factory.mktemp("dist")
    done = well(inv("self.docs", env={"SLIPWAY_DIST": str(dist)}))
    assert f"{len(pages.pages()) + 1} pages" in done.stdout
    return dist / "site"


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    for file in site.rglob("*.html"):
        text = file.read_text(encoding="utf-8")
        assert re.findall(r"<(?:script|img|iframe|source)[^>]+src=\"?(?:https?:)?//[^\" >]+", text) == [], file.name
        assert re.findall(r"<link[^>]+href=\"?(?:https?:)?//[^\" >]+", text) == [], file.name
    for file in site.rglob("*.css"):
        assert re.findall(r"url\([\"']?(?:https?:)?//", file.read_text(encoding="utf-8")) == [], file.name


def _tags(html: str) -> dict[str, int]:
    """How many lists, items, blocks, tables, rows and headings there are."""
    names = ("ul", "ol", "li", "pre", "table", "tr", "h1", "h2", "h3", "blockquote", "img")
    return {name: len(re.findall(rf"<{name}[ >]", html)) for name in names}


def test_pages_have_the_structure_that_forges_show(site: Path, tmp_path: Path) -> None:
    """MkDocs' Markdown is older than CommonMark: a list without an empty line before it would be a paragraph."""
    reader = markdown_it.MarkdownIt("commonmark").enable("table")
    different = {}
    pages.stage(tmp_path)
    for name in pages.pages():
        html = (site / name.replace("README", "index")).with_suffix(".html").read_text(encoding="utf-8")
        article = html[html.index("<article") : html.index("</article>")]
        here, there = _tags(article), _tags(reader.render((tmp_path / name).read_text(encoding="utf-8")))
        if here != there:
            different[name] = {tag: (here[tag], there[tag]) for tag in here if here[tag] != there[tag]}
    assert different == {}


def test_a_dead_link_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one to a heading that is gone; the site that was there stays."""

    def staged(folder: Path) -> None:
        whole(folder)
        page = folder / "docs" / "models.md"
        page.write_text(f"{page.read_text()}\n[a](deploy.md#no-such-heading) [b](nowhere.md)\n", encoding="utf-8")

    whole = pages.stage
    monkeypatch.setattr(pages, "stage", staged)
    monkeypatch.setenv("SLIPWAY_DIST", str(tmp_path))
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "before.txt").write_text("kept", encoding="utf-8")
    with pytest.raises(BuildError) as failed:
        pages.build()
    said = failed.value.cause
    assert "no-such-heading" in said
    assert "nowhere.md" in said
    assert len(said.splitlines()) == 2
    assert [file.name for file in (tmp_path / "site").iterdir()] == ["before.txt"]
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith(".site")] == []
