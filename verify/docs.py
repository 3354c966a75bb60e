"""Write the generated parts of the docs: ``python -m verify.docs``. A unit test says when that is due."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from core.errors import INTERRUPTED, ConfigError, SlipwayError
from core.files import write_atomic
from core.paths import ROOT
from verify import house

if TYPE_CHECKING:
    from verify.prove.proof import Row

PROOFS = ROOT / "docs" / "data" / "native.json"
"""What the proof programs said, kept with the sources."""

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


FAULTS_HEAD = """# Faults

This page shows how a deploy ends if something breaks on the way. It is for those who want to know what a cut
connection, a full disk or a restart leaves behind. A row of the table is a fault, and a column is a step of the deploy.

A cell has the number of points in that step at which the tests caused the fault, and how the deploy ended: `done` (it
overcame the fault), or the kind of its error ([errors.md](errors.md)).

After each fault the tests check four things:

- every file with a final name is complete;
- the next deploy succeeds;
- it leaves no process, lock or unfinished file behind;
- everything outside the store is unchanged.

The tests write this table (`tests/faults/test_cuts.py`, `tests/faults/test_steps.py`; the figures are in
`data/faults.json`). An outcome that is not on record fails them.

"""


def faults_markdown() -> str:
    """``docs/faults.md``, from ``docs/data/faults.json``."""
    rows = json.loads((ROOT / "docs" / "data" / "faults.json").read_text(encoding="utf-8"))
    phases = ["connect", "probe", "survey", "verify", "upload", "run", "settle", "fetch", "release"]
    cells = {(row["fault"], row["phase"]): f"{row['points']}: " + ", ".join(row["outcomes"]) for row in rows}
    lines = [f"| fault | {' | '.join(phases)} |\n", "|---|" + "---|" * len(phases) + "\n"]
    lines += [
        f"| {fault} | {' | '.join(cells.get((fault, phase), '') for phase in phases)} |\n"
        for fault in sorted({row["fault"] for row in rows})
    ]
    total = sum(row["points"] for row in rows)
    return FAULTS_HEAD + f"{total} points in all.\n\n" + "".join(lines)


def filled(page: str, tables: Mapping[str, str]) -> str:
    """A page with each table between its markers, ``<!-- name -->`` and ``<!-- /name -->``.

    Raises:
        ConfigError: the page lacks a marker.
    """
    text = (ROOT / page).read_text(encoding="utf-8")
    for name, table in tables.items():
        before, start, rest = text.partition(f"<!-- {name} -->\n")
        _, end, after = rest.partition(f"<!-- /{name} -->")
        if not end:
            raise ConfigError(f"{page} has no room for its table {name}.", f"<!-- {name} --> is gone", "git diff")
        text = before + start + table + end + after
    return text


def readme() -> str:
    """``README.md`` with the table of targets as ``targets.toml`` and ``docs/data/native.json`` have it now."""
    from verify.prove import proof
    from verify.prove.table import targets_markdown

    return filled("README.md", {"targets": targets_markdown(proof.load(PROOFS))})


def native() -> str:
    """``docs/native.md`` with the tables of ``docs/data/native.json``."""
    from verify.prove import proof
    from verify.prove.table import markdown

    return filled("docs/native.md", {"proofs": markdown(proof.load(PROOFS))})


def add_proofs(rows: Iterable[Row]) -> None:
    """Keep results of ``./inv prove`` in ``docs/data/native.json``, and write the tables anew."""
    from core.files import write_json
    from verify.prove import proof

    known = proof.load(PROOFS).updated(row for row in rows if row.outcome != "not built")
    write_json(PROOFS, known.model_dump(mode="json", exclude_defaults=True))
    write_atomic(ROOT / "docs" / "native.md", native())


def onnx() -> str:
    """``docs/onnx.md`` with its two tables as the data files have them now."""
    from verify.bench import engines as engines_bench
    from verify.operators import onnx as onnx_operators

    return filled("docs/onnx.md", {"operators": onnx_operators.markdown(), "engines": engines_bench.markdown()})


def lean() -> str:
    """``docs/lean.md`` with its tables as they were seen last."""
    from verify.agree import kept as agree_kept
    from verify.bench import lean as lean_bench
    from verify.bench import operators as operators_bench
    from verify.kernels import kernels

    agreed = agree_kept.in_short(agree_kept.load(agree_kept.KEPT))
    tables = {
        "agreement": agreed,
        "kernels": kernels.markdown(),
        "bench": lean_bench.markdown(),
        "operators": operators_bench.markdown(),
    }
    return filled("docs/lean.md", tables)


def nets() -> str:
    """``docs/nets.md`` with the tables of ``docs/data/nets.json`` and ``docs/data/nets-devices.json``."""
    from verify.nets import report, taken

    return filled("docs/nets.md", {**report.markdown(), "devices": taken.markdown()})


def lab() -> str:
    """``docs/kleidiai.md`` with the tables of ``docs/data/lab.json``."""
    from verify.lab import kept

    return filled("docs/kleidiai.md", {"lab": kept.markdown()})


def agreement() -> str:
    """``docs/agreement.md`` with the tables of ``docs/data/agreement.json`` and ``docs/data/sound-programs.json``."""
    from verify.agree import kept as agree_kept
    from verify.upstream import kept as upstream_kept

    columns, sound = agree_kept.load(agree_kept.KEPT), upstream_kept.kept()
    tables = {
        "agreement": agree_kept.markdown(columns),
        "sound-programs": upstream_kept.corpus(sound, columns),
        "upstream-tests": upstream_kept.markdown(sound),
    }
    return filled("docs/agreement.md", tables)


def architecture() -> str:
    """``docs/architecture.md`` with the packages that there are, and what their docstrings say."""
    return filled("docs/architecture.md", {"rooms": house.sentences()})


def hosts() -> str:
    """``docs/hosts.md`` with the table that the code and ``docs/data/hosts.toml`` make."""
    from verify import hosts as verify_hosts

    return filled("docs/hosts.md", {"hosts": verify_hosts.markdown()})


def operators() -> str:
    """``docs/operators.md``, from ``docs/data/operators.json``."""
    from verify.operators import coverage as operator_coverage

    return operator_coverage.markdown()


def transfers() -> str:
    """``docs/deploy.md`` with the figures that ``./inv bench --device NAME --update`` kept."""
    from verify.bench import transfer as bench_transfer

    return filled("docs/deploy.md", {"transfers": f"{bench_transfer.markdown()}\n"})


def development() -> str:
    """``docs/development.md`` with the times that ``./inv test --times --update`` kept."""
    from verify.suite import times

    return filled("docs/development.md", {"times": times.markdown()})


def embedding() -> str:
    """``docs/embedding.md`` with the figures that ``./inv bench --forward --update`` kept."""
    from verify.bench import forward

    return filled("docs/embedding.md", {"forward": forward.markdown()})


def commands() -> str:
    """``docs/commands.md``, from ``tasks.py``."""
    from verify.site import tasks_page

    return tasks_page.markdown()


def api() -> str:
    """``docs/api.md``, from the C and C++ headers, the Java sources and the Python package."""
    from verify.site import api_page

    return api_page.markdown()


PAGES: Mapping[str, Callable[[], str]] = {
    "README.md": readme,
    "docs/agreement.md": agreement,
    "docs/api.md": api,
    "docs/architecture.md": architecture,
    "docs/architecture.svg": house.svg,
    "docs/commands.md": commands,
    "docs/deploy.md": transfers,
    "docs/development.md": development,
    "docs/embedding.md": embedding,
    "docs/errors.md": errors_markdown,
    "docs/faults.md": faults_markdown,
    "docs/hosts.md": hosts,
    "docs/kleidiai.md": lab,
    "docs/lean.md": lean,
    "docs/native.md": native,
    "docs/nets.md": nets,
    "docs/onnx.md": onnx,
    "docs/operators.md": operators,
}
"""Files of the checkout that are made, or have parts that are."""


def main() -> None:
    """Write all files."""
    for name, made in PAGES.items():
        write_atomic(ROOT / name, made())


if __name__ == "__main__":
    main()
