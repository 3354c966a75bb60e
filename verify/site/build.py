"""``./inv self.docs``: build the documentation's site in ``dist/site``, with a dead link as an error."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from core import console, environment
from core.errors import BuildError, HostError, NotSupportedError
from core.files import locked, new_folder
from core.paths import ROOT, dist_part
from core.processes.commands import run
from verify.site import pages

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
            pages.stage(staged)
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
    console.out().print(f"{len(pages.pages()) + 1} pages: {console.shown(first)}", soft_wrap=True)
