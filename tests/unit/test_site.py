"""The pages of the documentation's site: links moved with the pages, and nothing else changed."""

from __future__ import annotations

from pathlib import Path

from core.paths import ROOT
from verify.site import pages


def test_every_page_is_staged_with_the_sources_that_it_links_to(tmp_path: Path) -> None:
    pages.stage(tmp_path)
    assert {file.name for file in tmp_path.glob("*.md")} == {*pages.pages(), pages.COMMANDS}
    assert {"index.md", "changelog.md", "deploy.md"} <= set(pages.pages())
    assert (tmp_path / "files" / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert (tmp_path / "site" / "site.css").is_file()
    text = (tmp_path / "troubleshooting.md").read_text(encoding="utf-8")
    assert "### host-key (exit code 22)" in text
    deploying = (tmp_path / "deploy.md").read_text(encoding="utf-8")
    assert "[Models](models.md" in deploying and "[models.md]" not in deploying
    assert text.count("\n| ") > 300
