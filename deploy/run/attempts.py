"""Work over a connection to a device, and over another one after a transient error."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from core.errors import SlipwayError
from deploy.devices.inventory import Device
from deploy.run.connect import open_device, ready
from deploy.run.events import Event, Steps
from deploy.run.session import Session
from deploy.transport.base import Transport
from deploy.transport.deadline import NEVER, Deadline
from deploy.transport.retry import retrying

_Session = TypeVar("_Session", bound=Session)
_Found = TypeVar("_Found")


def connected(
    device: Device,
    seconds: float,
    retries: int,
    steps: Steps,
    session: Callable[[Deadline, Transport], _Session],
    work: Callable[[_Session, int], _Found],
    target: str = "",
) -> _Found:
    """Connect to ``device`` and do ``work``; again after transient errors.

    Args:
        seconds: for all attempts together. They count from the first connection: starting a virtual device is not
            among them, and a session may move its deadline while it waits for another one's end.
        retries: attempts after the first.
        session: makes the session of a connection.
        work: called with the session and the number of the attempt, from 1.
        target: the bundle's, which an emulated device is prepared for; empty: the device's own.

    Raises:
        SlipwayError: the last attempt's.
    """
    deadline = NEVER
    attempts = 0

    def attempt() -> _Found:
        nonlocal deadline, attempts
        attempts += 1
        with steps.step("connect", f"connecting to {device.name}"):
            if deadline is NEVER:
                ready(device, target)
                deadline = Deadline.after(seconds)
            transport = open_device(device, deadline)
        with transport:
            one = session(deadline, transport)
            try:
                return work(one, attempts)
            finally:
                deadline = one.deadline

    def on_retry(error: SlipwayError, pause: float) -> None:
        steps.tell(Event("connect", "note", f"{error.what} Trying again in {pause:.1f} s."))

    def left() -> float:
        return deadline.left()  # of this connection: an attempt may make another

    found: _Found = retrying(retries, left, on_retry)(attempt)
    return found
