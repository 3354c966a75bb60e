"""``./inv self.docs``: build the documentation's site in ``dist/site``, with a dead link as an error.

README.md is the first page, and no link leaves the site's folder: pages and the sources that they link to lie in the
site as they do in the checkout, so that every link is the same as on a forge.
"""

from __future__ import annotations

import inspect
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from core import console, environment
from core.errors import BuildError, HostError, NotSupportedError
from core.files import locked, new_folder
from core.paths import ROOT, dist_part
from core.processes.commands import run

_MARKUP = re.compile(r"``?([^`]+)``?|[\\*_<>\[\]|]")


def plain(text: str) -> str:
    """A help text or a docstring as Markdown that shows it, also in a table's cell."""
    return _MARKUP.sub(lambda found: f"`{found[1]}`" if found[1] else f"\\{found[0]}", text)


_HEAD = """# Commands

Defaults in brackets can be changed: in `invoke.yaml` of the current folder or of the checkout, or in the environment
(`INVOKE_SLIPWAY_DEVICE=pi`). A command that fails has one of the [exit codes](troubleshooting.md#exit-codes).

"""


def collection() -> Any:
    """The tasks, loaded as Invoke loads them: no package imports ``tasks.py``."""
    from invoke import Collection
    from invoke.loader import FilesystemLoader

    module, _ = FilesystemLoader(start=os.fspath(ROOT)).load("tasks")
    return Collection.from_module(module)


def commands_page() -> str:
    """The site's page of commands: every task with its options, as ``tasks.py`` declares them."""
    found = collection()
    names = sorted(found.task_names)
    lines = [_HEAD, "| command | what it does |\n", "|---|---|\n"]
    lines += [f"| [`{name}`](#{name.replace('.', '')}) | {plain(_first(found[name]))} |\n" for name in names]
    lines += [_section(name, found[name]) for name in names]
    return "".join(lines)


def _first(task: Any) -> str:
    return (inspect.getdoc(task) or "").split("\n", 1)[0]


def _section(name: str, task: Any) -> str:
    prose, _, example = (inspect.getdoc(task) or "").partition("\n\nExample: ")
    arguments = task.get_arguments()
    words = "".join(f" {argument.name.upper()}" for argument in arguments if argument.positional)
    parts = [f"\n## {name}\n\n", f"`./inv {name}{words}`\n\n" if words else "", f"{plain(prose)}\n"]
    if example:
        parts.append(f"\n```console\n$ {example.strip()}\n```\n")
    rows = [_row(argument) for argument in arguments if not argument.positional or argument.help]
    if rows:
        parts += ["\n| option | what it is |\n|---|---|\n", *rows]
    return "".join(parts)


def _row(argument: Any) -> str:
    name = argument.name.replace("_", "-")
    value = (" N" if argument.kind is int else " VALUE") if argument.takes_value else ""
    shown = name.upper() if argument.positional else f"--{name}{value}"
    return f"| `{shown}` | {plain(argument.help or '')} |\n"


COMMANDS = "docs/commands.md"
"""A page that only the site has."""
_LINK = re.compile(r"\]\(([^)\s#:]+)")


def pages() -> list[str]:
    """The pages by their paths in the checkout."""
    return ["README.md", "CHANGELOG.md", *sorted(f"docs/{file.name}" for file in (ROOT / "docs").glob("*.md"))]


def stage(folder: Path) -> None:
    """Put all pages into ``folder`` by their paths in the checkout, and the sources and pictures that they link to.

    Raises:
        BuildError: a page links to a folder.
    """
    shutil.copytree(ROOT / "docs" / "site", folder / "docs" / "site", ignore=shutil.ignore_patterns("*.yml"))
    for page in pages():
        text = (ROOT / page).read_text(encoding="utf-8")
        for link in _LINK.findall(text):
            source = (ROOT / page).parent / link
            if source.is_dir():
                raise BuildError(
                    f"{page} links to a folder: {link}.",
                    "the site has copies of linked files, not of folders",
                    "link to a file of the folder, or write its name without a link, then ./inv self.docs",
                )
            if source.is_file() and source.suffix != ".md":
                target = folder / os.path.relpath(source, ROOT)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)
        # MkDocs' Markdown reads what is inside of HTML only where that is said.
        text = text.replace("<details>", '<details markdown="1">')
        (folder / page).write_text(text, encoding="utf-8")
    (folder / COMMANDS).write_text(commands_page(), encoding="utf-8")


CONFIG = ROOT / "docs" / "site" / "mkdocs.yml"
_SECONDS = 600
_WORDS = ("WARNING", "ERROR")


def build() -> Path:
    """Build the site, and give the path of its first page.

    Raises:
        BuildError: a link leads nowhere, or a page is not in the navigation. NotSupportedError: Python 3.10
        HostError: the packages cannot be installed, or the disk is full.
    """
    if sys.version_info < (3, 11):
        raise NotSupportedError(
            "The site's packages do not install here.", "they need Python 3.11",
            "SLIPWAY_PYTHON=python3.11 SLIPWAY_VENV=.venv311 ./inv self.docs",
        )  # fmt: skip
    packages = environment.apart("docs")
    path = os.pathsep.join([os.fspath(packages), *filter(None, [os.environ.get("PYTHONPATH")])])
    # MkDocs 1.6.1 is what is pinned: the theme's note about a MkDocs 2 concerns nobody here.
    env = {**os.environ, "PYTHONPATH": path, "NO_MKDOCS_2_WARNING": "1"}
    site = dist_part("site")
    with locked("site", "waiting for another ./inv self.docs"), new_folder(site) as folder:
        with tempfile.TemporaryDirectory(prefix="slipway-docs-") as name:
            staged = Path(name) / "docs"
            staged.mkdir()
            stage(staged)
            config = Path(name) / "mkdocs.yml"
            lines = [f"INHERIT: {CONFIG}", f"docs_dir: {staged}", f"site_dir: {folder}"]
            config.write_text("\n".join(lines) + "\n", encoding="utf-8")
            words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--clean", "--config-file", os.fspath(config)]
            done = run(words, env=env, timeout=_SECONDS, error=None, what="Building the site")
        if done.returncode:
            found = [line for line in done.stderr.splitlines() if line.startswith(_WORDS)]
            if not found:
                raise HostError("MkDocs failed.", "\n".join(done.stderr.splitlines()[-12:]), "./inv self.docs")
            raise BuildError(
                f"The site has {len(found)} faults.", "\n".join(found),
                "correct the pages in docs/ (or docs/site/mkdocs.yml, which lists them), then ./inv self.docs", found,
            )  # fmt: skip
        folder.chmod(0o755)
    return site / "index.html"


def report() -> None:
    """Build the site, and say where it is.

    Raises:
        BuildError, HostError, NotSupportedError: those of `build`.
    """
    first = build()
    console.out().print(f"{len(pages()) + 1} pages: {console.shown(first)}", soft_wrap=True)
