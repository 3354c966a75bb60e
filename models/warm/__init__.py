"""Exports in copies of a process that has loaded the exporter already: it waits for the next ``./inv export``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from core.errors import SlipwayError
    from models.request import Request


def attempt(outdated: Sequence[Request], force: bool, at_once: int) -> dict[str, SlipwayError]:
    """Export several at once: by the warm exporter, or in this process if there is none.

    Args:
        at_once: how many together.

    Returns:
        The failures by the requests' names. A failure does not stop the others.
    """
    from pathlib import Path

    from core.console import note, paused
    from core.errors import SlipwayError
    from models import export
    from models.warm import client

    keep = client.usable()
    outcome: dict[str, Path | SlipwayError | None] = {request.name: None for request in outdated}
    if keep or (at_once > 1 and len(outdated) > 1):
        outcome = client.export(outdated, force, at_once, keep)
    failures = {name: one for name, one in outcome.items() if isinstance(one, SlipwayError)}
    if len(outdated) > 1:
        for name, error in failures.items():
            note(export.failed(name, error))
    left = [request for request in outdated if outcome[request.name] is None]
    with paused():  # it shows itself what it does
        return {**failures, **export.attempt(left, force)}
