"""Where each target's bundles ran, and when last: ``ran.json``, the kept record of deploys.

``python -m verify.docs runs`` adds the results of deploys on this machine to it (`deploy.run.result.runs`).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pydantic import TypeAdapter

from core.files import write_atomic
from core.strict_json import Frozen

RECORD = Path(__file__).with_name("ran.json")


class Ran(Frozen):
    """The last run of a target's bundle with an engine on a device."""

    target: str
    engine: str
    engine_version: str
    device: str
    title: str
    """The inventory's, of the device."""
    cpu: str
    """As the device names it; empty if it does not."""
    emulated: bool
    program: str
    verdict: str
    """Of the outputs against the reference: ``identical``, ``agrees``, ``differs`` or ``no reference``."""
    created: str
    """UTC, ISO 8601."""

    @property
    def where(self) -> str:
        """``pi (emulated)``, or the device with its processor."""
        return f"{self.device} ({'emulated' if self.emulated else self.cpu or self.title or 'real'})"


_RUNS = TypeAdapter(tuple[Ran, ...])


def record() -> tuple[Ran, ...]:
    """The kept runs."""
    return _RUNS.validate_json(RECORD.read_bytes())


def last(runs: Iterable[Ran]) -> tuple[Ran, ...]:
    """The last run of each target, engine and device, the latest first."""
    found: dict[tuple[str, str, str], Ran] = {}
    for run in sorted(runs, key=lambda one: one.created):
        found[run.target, run.engine, run.device] = run
    return tuple(sorted(found.values(), key=lambda one: one.created, reverse=True))


def keep(runs: Iterable[Ran]) -> None:
    """Add runs to the record."""
    rows = sorted(last([*record(), *runs]), key=lambda one: (one.target, one.engine, one.device))
    write_atomic(RECORD, "[\n" + ",\n".join(row.model_dump_json() for row in rows) + "\n]\n")


def said(target: str, runs: Iterable[Ran]) -> list[str]:
    """What ran last of a target with each engine, where and when: a text for engines that ran the same."""
    found: dict[str, list[str]] = {}
    engines = {run.engine: run for run in reversed(last(runs)) if run.target == target}
    for run in sorted(engines.values(), key=lambda one: one.created, reverse=True):
        differs = ", differs" if run.verdict == "differs" else ""
        text = f"on {run.where}: {run.program}{differs}, {run.created[:10]}"
        found.setdefault(text, []).append(run.engine)
    return [f"{', '.join(sorted(names))} {text}" for text, names in found.items()]
