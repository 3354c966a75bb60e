"""Write the generated parts of the docs: ``python -m verify.docs``. A unit test says when that is due."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Mapping

from core import console
from core.console import shown
from core.errors import INTERRUPTED, SlipwayError
from core.files import write_atomic
from core.paths import ROOT, results_dir
from deploy.run import result
from toolchains import ran
from toolchains.bundle.report import compilers_of, engines_of, not_run
from toolchains.targets import load_targets
from verify.agree import kept
from verify.house import ROOMS
from verify.tables import Table, table_of


def errors_markdown() -> str:
    """``docs/troubleshooting.md`` with the exit codes of the error classes."""
    rows = [["0", "", "done; after a deploy: the outputs agree with the reference"]]
    for cls in sorted(_classes(SlipwayError), key=lambda found: found.exit_code):
        first = (cls.__doc__ or "").split("\n")[0]
        if cls is SlipwayError:
            first = "Any other failure; a failed test run (`tests-failed`)."
        rows.append([str(cls.exit_code), f"`{cls.kind}`", first])
    signals = "Ctrl-C, SIGTERM (a CI cancels the job) or SIGHUP (the terminal closes)"
    rows.append([str(INTERRUPTED), "", f"{signals}; what Slipway started ends, too."])
    return filled("docs/troubleshooting.md", "exit-codes", table_of(["code", "kind", "when"], rows))


def _classes(base: type[SlipwayError]) -> list[type[SlipwayError]]:
    own = [sub for sub in base.__subclasses__() if sub.__module__ == SlipwayError.__module__]
    return [base, *(found for sub in own for found in _classes(sub))]


def filled(page: str, name: str, table: str) -> str:
    """A page with a table between its markers, ``<!-- name -->`` and ``<!-- /name -->``.

    Raises:
        ConfigError: the page lacks a marker.
    """
    return Table(page, name).within((ROOT / page).read_text(encoding="utf-8"), table)


def targets_markdown() -> str:
    """The README's table of targets: what a user gets today, where it ran, and where the zoo agrees with upstream's."""
    heads = ["target", "ISA floor", "compilers", "engines that build today", "ran last"]
    runs = ran.last(ran.record())
    rows = [
        [
            target.name,
            target.isa_floor,
            compilers_of(target),
            engines_of(target),
            "; ".join(ran.said(target.name, runs)) or not_run(target),
            ", ".join(kept.agreeing(target)) or "not run",
        ]
        for target in load_targets().values()
    ]
    return table_of([*heads, "agrees with upstream's runtime on"], rows)


def readme() -> str:
    """``README.md`` with the table of targets as ``targets.toml`` and ``docs/proofs.md`` have it now."""
    return filled("README.md", "targets", targets_markdown())


def rooms_markdown() -> str:
    """The table of packages: each with the first line of its docstring."""
    rows = []
    for room in ROOMS:
        for file in sorted((ROOT / room).rglob("__init__.py"), key=lambda found: found.parent.parts):
            first, _, _ = (ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "").partition("\n")
            rows.append([f"`{file.parent.relative_to(ROOT).as_posix()}/`", first])
    return table_of(["package", "what is in it"], rows)


def keep_runs() -> None:
    """Add the runs whose results are here to the record of targets, and write the README's table anew."""
    found = result.runs()
    ran.keep(found)
    write_atomic(ROOT / "README.md", readme())
    console.note(f"{len(found)} runs of {shown(results_dir())} are kept in {shown(ran.RECORD)} and in README.md")


PAGES: Mapping[str, Callable[[], str]] = {
    "README.md": readme,
    "docs/architecture.md": lambda: filled("docs/architecture.md", "rooms", rooms_markdown()),
    "docs/troubleshooting.md": errors_markdown,
}
"""Files of the checkout that are made, or have parts that are."""


def main() -> None:
    """Write all files."""
    for name, made in PAGES.items():
        write_atomic(ROOT / name, made())


if __name__ == "__main__":
    keep_runs() if sys.argv[1:] == ["runs"] else main()
