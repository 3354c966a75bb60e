"""Steps reported as events: the console, the result's timings and the tests all listen to the same ones."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from deploy.run.preflight import Finding


@dataclass(frozen=True)
class Event:
    """An event of a step.

    ``progress`` carries ``done`` and ``total`` in bytes; ``end`` and ``fail`` the step's ``seconds``; ``findings``
    a preflight's; ``token`` the number of a token that a language model wrote, in ``done``.
    """

    step: str
    kind: Literal["start", "progress", "note", "findings", "token", "end", "fail"]
    text: str = ""
    seconds: float = 0.0
    done: int = 0
    total: int = 0
    findings: tuple[Finding, ...] = ()


Listener = Callable[[Event], None]


@dataclass
class Steps:
    """Runs steps one after another, notifies every listener, and keeps the time of each (seconds)."""

    listeners: list[Listener] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    def tell(self, event: Event) -> None:
        """Hand ``event`` to every listener."""
        for listener in self.listeners:
            listener(event)

    @contextlib.contextmanager
    def step(self, name: str, text: str = "") -> Iterator[Step]:
        """Report the block as step ``name``; a step done twice adds up."""
        begun = time.monotonic()
        self.tell(Event(name, "start", text))
        step = Step(self, name)
        kind: Literal["end", "fail"] = "fail"
        try:
            yield step
            kind = "end"
        finally:
            took = time.monotonic() - begun
            self.seconds[name] = round(self.seconds.get(name, 0.0) + took, 4)
            self.tell(Event(name, kind, step.outcome, took))


@dataclass
class Step:
    """Handle inside a `Steps.step` block."""

    steps: Steps
    name: str
    outcome: str = ""
    """Summary, shown at the step's end: ``3 files, 14.2 MB``."""

    def counter(self, total: int) -> Callable[[int], None]:
        """What is called with each further number of bytes of ``total``, and reports how far it is."""
        done = 0

        def more(count: int) -> None:
            nonlocal done
            done += count
            self.steps.tell(Event(self.name, "progress", done=done, total=total))

        return more

    def note(self, text: str) -> None:
        """Report one line for people."""
        self.steps.tell(Event(self.name, "note", text))

    def show(self, findings: Sequence[Finding]) -> None:
        """Report a preflight's findings, good or bad."""
        self.steps.tell(Event(self.name, "findings", findings=tuple(findings)))
