"""Write the generated parts of the docs: ``python -m verify.docs``. A unit test says when that is due."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from core.errors import INTERRUPTED, SlipwayError
from core.files import write_atomic
from core.paths import ROOT
from verify import house
from verify.tables import Table

ERRORS_HEAD = """# Exit codes

Scripts and CI jobs can tell failures apart by these codes. Each foreseen failure prints three lines to stderr: what
happened, the likely cause, and the next command to type. With `--json` it prints an object with the keys `error`,
`exit_code`, `what`, `cause`, `try` and `names`. If `build --all`, `prove` or `matrix` printed its report before, the
object is left out, so that standard output has only one document.

| code | kind | when |
|---|---|---|
| 0 | | done; after a deploy: the outputs agree with the reference |
"""
ERRORS_FOOT = """
An error quotes a device's words as the device's (`pi says: "..."`), with control characters as escapes. The next
command is always Slipway's own. The runner on the device has exit codes of its own: see
[runner.md](runner.md#failures).
"""


def errors_markdown() -> str:
    """``docs/errors.md``, from the error classes."""
    rows = []
    for cls in sorted(_classes(SlipwayError), key=lambda found: found.exit_code):
        first = (cls.__doc__ or "").split("\n")[0]
        if cls is SlipwayError:
            first = "Any other failure; a failed test run (`tests-failed`)."
        rows.append(f"| {cls.exit_code} | `{cls.kind}` | {first} |\n")
    signals = "Ctrl-C, SIGTERM (a CI cancels the job) or SIGHUP (the terminal closes)"
    rows.append(f"| {INTERRUPTED} | | {signals}; what Slipway started ends, too. |\n")
    return ERRORS_HEAD + "".join(rows) + ERRORS_FOOT


def _classes(base: type[SlipwayError]) -> list[type[SlipwayError]]:
    own = [sub for sub in base.__subclasses__() if sub.__module__ == SlipwayError.__module__]
    return [base, *(found for sub in own for found in _classes(sub))]


def filled(page: str, tables: Mapping[str, str]) -> str:
    """A page with each table between its markers, ``<!-- name -->`` and ``<!-- /name -->``.

    Raises:
        ConfigError: the page lacks a marker.
    """
    text = (ROOT / page).read_text(encoding="utf-8")
    for name, table in tables.items():
        text = Table(page, name).within(text, table)
    return text


def readme() -> str:
    """``README.md`` with the table of targets as ``targets.toml`` and ``docs/native.md`` have it now."""
    from verify.prove.table import targets_markdown

    return filled("README.md", {"targets": targets_markdown()})


def lean() -> str:
    """``docs/lean.md`` with its tables as they were seen last."""
    from verify.agree import kept as agree_kept

    tables = {
        "agreement": agree_kept.in_short(),
    }
    return filled("docs/lean.md", tables)


def agreement() -> str:
    """``docs/agreement.md`` with the sum of its tables."""
    from verify.upstream import kept as upstream_kept

    return filled("docs/agreement.md", {"corpus": upstream_kept.corpus()})


def architecture() -> str:
    """``docs/architecture.md`` with the packages that there are, and what their docstrings say."""
    return filled("docs/architecture.md", {"rooms": house.sentences()})


def hosts() -> str:
    """``docs/hosts.md`` with the table that the code and ``verify/hosts.toml`` make."""
    from verify import hosts as verify_hosts

    return filled("docs/hosts.md", {"hosts": verify_hosts.markdown()})


PAGES: Mapping[str, Callable[[], str]] = {
    "README.md": readme,
    "docs/agreement.md": agreement,
    "docs/architecture.md": architecture,
    "docs/architecture.svg": house.svg,
    "docs/errors.md": errors_markdown,
    "docs/hosts.md": hosts,
    "docs/lean.md": lean,
}
"""Files of the checkout that are made, or have parts that are."""


def main() -> None:
    """Write all files."""
    for name, made in PAGES.items():
        write_atomic(ROOT / name, made())


if __name__ == "__main__":
    main()
