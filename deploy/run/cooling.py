"""Wait until a device has cooled down, so that what ran before does not slow down what is measured next."""

from __future__ import annotations

import time

from deploy.devices import conditions
from deploy.run.events import Steps
from deploy.scripts import script
from deploy.transport.base import Transport, run
from deploy.transport.deadline import Deadline

_OFTEN = 2.0
"""Seconds between two looks at the temperature."""


def cool_down(transport: Transport, name: str, degrees: float, steps: Steps, deadline: Deadline) -> float:
    """Wait until the device's warmest zone has cooled down; return the seconds waited.

    Args:
        degrees: Celsius; 0 does not wait.

    Raises:
        DeadlineError: it does not cool down in time.
    """
    if not degrees:
        return 0.0
    begun = time.monotonic()
    with steps.step("cool down", f"waiting for {name} to cool down") as step:
        while True:
            words = ["sh", "-c", script("state"), "slipway", conditions.SYSFS]
            now = conditions.snapshot(run(transport, words, deadline=deadline).text).hottest_c
            if now is None:
                step.note(f"{name} does not report a temperature: not waiting")
            if now is None or now <= degrees:
                return time.monotonic() - begun
            deadline.check(f"{name} was at {now:.1f} °C, waiting for {degrees:g} °C")
            time.sleep(deadline.left(_OFTEN))
