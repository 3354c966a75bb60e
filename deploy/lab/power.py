"""The power of a place: labgrid's own drivers for power switches, used when a device hangs."""

from __future__ import annotations

import argparse
import threading

from core.errors import UnreachableError
from deploy.lab.session import Lab

RESOURCES = frozenset({
    "NetworkPowerPort", "PDUDaemonPort", "TasmotaPowerPort", "NetworkUSBPowerPort", "NetworkSiSPMPowerPort",
    "NetworkYKUSHPowerPort", "NetworkSysfsGPIO",
})  # fmt: skip
"""The classes for which labgrid's client has a driver (`ClientSession.power`)."""

_SECONDS = 120.0
"""Seconds that a power switch may take: labgrid's drivers wait without a limit of their own."""
_one_at_a_time = threading.Lock()  # labgrid keeps the session for its drivers in one place for the whole process


def switched(lab: Lab, place: str) -> bool:
    """Whether ``place``, which is acquired, has a power switch."""
    return any(path[2] in RESOURCES for path in lab.place(place).acquired_resources)


def cycle(lab: Lab, place: str) -> None:
    """Switch ``place`` off and on again.

    Raises:
        UnreachableError: its power switch does not do it.
    """
    failed: list[BaseException] = []

    def work() -> None:
        try:
            lab.session.args = argparse.Namespace(
                place=place, action="cycle", delay=None, name=None, state=None, initial_state=None
            )
            lab.session.power()
        except BaseException as error:  # noqa: BLE001 - a driver may raise anything; it is reported below
            failed.append(error)

    with _one_at_a_time:
        thread = threading.Thread(target=work, name="labgrid-power", daemon=True)
        thread.start()
        thread.join(_SECONDS)
    if failed or thread.is_alive():
        why = f"{type(failed[0]).__name__}: {failed[0]}" if failed else f"it did not end within {_SECONDS:.0f} s"
        raise UnreachableError(
            f"The place {place} cannot be power-cycled.", why, f"labgrid-client -x {lab.address} -p {place} power cycle"
        ) from (failed[0] if failed else None)
