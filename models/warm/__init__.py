"""Exports in copies of a process that has loaded the exporter already: it waits for the next ``./inv export``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from models.request import Request


def export(requests: Sequence[Request], force: bool, at_once: int, keep: bool) -> None:
    """Export what is not current, several at once: by the warm exporter, or in this process if there is none.

    A failure does not stop the others.

    Args:
        at_once: how many together.
        keep: leave the exporter running for further commands. If not, it runs only where several are exported at once.

    Raises:
        SlipwayError: as `models.export.export_many`.
    """
    from pathlib import Path

    from core.console import note
    from core.errors import SlipwayError
    from models.current import current
    from models.export import export_many, raise_failures
    from models.warm import client

    outdated = [request for request in requests if force or not current(request)]
    keep = keep and client.usable()
    outcome: dict[str, Path | SlipwayError | None] = {request.name: None for request in outdated}
    if keep or (at_once > 1 and len(outdated) > 1):
        outcome = client.export(outdated, force, at_once, keep)
    failures = {name: one for name, one in outcome.items() if isinstance(one, SlipwayError)}
    if len(outdated) > 1:
        for name, error in failures.items():
            note(f"{name}: failed: {error.what}")
    left = [request for request in outdated if outcome[request.name] is None]
    try:
        export_many(left, force=force)
    except SlipwayError as error:
        if not failures:
            raise
        failures[left[0].name if len(left) == 1 else "others"] = error
    raise_failures(failures, len(outdated))
