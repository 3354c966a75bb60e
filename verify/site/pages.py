"""The pages as MkDocs reads them: README.md is the first one, and no link leaves the site's folder.

On a forge the pages stay as they are. So README.md and CHANGELOG.md lie above ``docs/``, and pages
link to sources. The site has the three pages in one folder with the others, and a copy of each linked source.
"""

from __future__ import annotations

import posixpath
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from core.errors import BuildError
from core.paths import ROOT
from verify.site import tasks_page

DOCS = "docs"
OUTER = {"README.md": "index.md", "CHANGELOG.md": "changelog.md"}
"""Pages above ``docs/``, and their names in the site."""
COMMANDS = "commands.md"
"""A page that only the site has."""
SOURCES = "files"
"""The site's folder with copies of linked sources."""
_LINK = re.compile(r"(\]\()([^)\s#:]+)(#[^)\s]*)?(\))")
_FENCE = re.compile(r"^(```.*?^```[ ]*$|~~~.*?^~~~[ ]*$)", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"(`+)(?:(?!`).)+?\1(?!`)")


def pages() -> dict[str, Path]:
    """Name in the site -> the page's file, in the order of names."""
    found = {name: ROOT / page for page, name in OUTER.items()}
    return found | {file.name: file for file in sorted((ROOT / DOCS).glob("*.md"))}


def prose(text: str) -> list[tuple[bool, str]]:
    """``text`` in pieces, each with whether it is prose; the others are code, in blocks or in lines."""
    pieces: list[tuple[bool, str]] = []
    for index, part in enumerate(_FENCE.split(text)):
        if index % 2:
            pieces.append((False, part))
            continue
        at = 0
        for code in _INLINE.finditer(part):
            pieces += [(True, part[at : code.start()]), (False, code.group())]
            at = code.end()
        pieces.append((True, part[at:]))
    return pieces


def moved(text: str, page: Path) -> tuple[str, set[str]]:
    """A page with its links as the site has them, and the sources that it links to, relative to the checkout."""
    sources: set[str] = set()

    def link(found: re.Match[str]) -> str:
        before, path, anchor, after = found[1], found[2], found[3] or "", found[4]
        at = posixpath.normpath(posixpath.join(page.parent.relative_to(ROOT).as_posix(), path))
        if at in OUTER:
            to = OUTER[at]
        elif at.startswith(f"{DOCS}/"):
            to = at.removeprefix(f"{DOCS}/")
        else:
            sources.add(at)
            to = f"{SOURCES}/{hidden(at)}"
        return f"{before}{to}{anchor}{after}"

    # A link's text may hold code, so a link is looked for in the whole, and code is put back afterwards.
    kept: list[str] = []
    marked = ""
    for is_prose, piece in prose(text):
        if is_prose:
            marked += piece
        else:
            kept.append(piece)
            marked += f"\0{len(kept) - 1}\0"
    text = _LINK.sub(link, marked)
    return re.sub(r"\0(\d+)\0", lambda found: kept[int(found[1])], text), sources


_NAMED = re.compile(r"\[(?P<file>[\w-]+\.md)\]\((?P<to>(?P=file)(?:#[\w-]*)?)\)")
"""A link whose text is the file's name, as pages have them for a forge."""


def titled(text: str, titles: Mapping[str, str]) -> str:
    """The text with a page's title in place of its file's name, which a reader of the site never sees."""
    return _NAMED.sub(lambda found: f"[{titles.get(found['file'], found['file'])}]({found['to']})", text)


def _title(file: Path) -> str:
    """A page's first heading."""
    heading = re.search(r"^# (.+)$", file.read_text(encoding="utf-8"), re.MULTILINE)
    return heading[1] if heading else file.name


def hidden(path: str) -> str:
    """A path without names that begin with a dot: MkDocs leaves those out."""
    return "/".join(part.lstrip(".") for part in path.split("/"))


def stage(folder: Path) -> None:
    """Write all pages, pictures and linked sources into ``folder``, which is empty.

    Raises:
        BuildError: a page links to a folder. FileNotFoundError: a page links to a source that does not exist.
    """
    linked: set[str] = set()
    titles = {name: _title(file) for name, file in pages().items()}
    (folder / COMMANDS).write_text(tasks_page.markdown(), encoding="utf-8")
    for name, file in pages().items():
        text, sources = moved(file.read_text(encoding="utf-8"), file)
        for source in sorted(sources):
            if (ROOT / source).is_dir():
                raise BuildError(
                    f"{file.relative_to(ROOT).as_posix()} links to a folder: {source}.",
                    "the site has copies of linked files, not of folders",
                    "link to a file of the folder, or write its name without a link, then ./inv self.docs",
                )
        text = titled(text, titles)
        # MkDocs' Markdown reads what is inside of HTML only where that is said.
        text = text.replace("<details>", '<details markdown="1">')
        (folder / name).write_text(text, encoding="utf-8")
        linked |= sources
    for picture in (ROOT / DOCS).glob("*.svg"):
        shutil.copyfile(picture, folder / picture.name)
    shutil.copytree(ROOT / DOCS / "site", folder / "site", ignore=shutil.ignore_patterns("*.yml"))
    for source in linked:
        target = folder / SOURCES / hidden(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / source, target)
