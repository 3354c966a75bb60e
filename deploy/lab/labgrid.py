"""Places of a labgrid coordinator as devices: acquired for a deploy, reached over SSH or adb, and always released.

labgrid's own client session is used, which names itself ``host/user``: labgrid's client and this project are the same
user to the lab. A place that this user has acquired already, or that allows it, is used and left as it is.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from core.errors import ConfigError, NotSupportedError, UnreachableError
from core.plain import one_line
from deploy.lab.places import Lease, Say, candidates, join, lease
from deploy.lab.session import PROXY, Lab
from deploy.transport.base import Transport, Wrapped
from deploy.transport.deadline import Deadline
from deploy.transport.hearing import natural
from deploy.transport.ssh.spelled import Spelled

if TYPE_CHECKING:
    from deploy.devices.inventory import Device

SERVICE = "NetworkService"
"""The class of the resource with the login's data; for an Android device, where its adbd listens."""
FASTBOOT = "RemoteAndroidNetFastboot"
"""The class of an Android device on the network: it gives the address, and adbd has a port of its own."""
FASTBOOT_USB = "RemoteAndroidUSBFastboot"
ADB_PORT = 5555
"""adbd's usual port."""


@dataclass(frozen=True)
class Service:
    """How to reach a place."""

    host: str
    port: int
    user: str = ""
    jump: str = ""
    """The SSH host to go through; empty: none."""


def service(lab: Lab, place: Any, device: Device) -> Service:
    """How to reach ``place``, as its exporters say.

    Raises:
        ConfigError: not exactly one resource says it. NotSupportedError: in a way that Slipway does not go.
    """
    classes = (SERVICE, FASTBOOT, FASTBOOT_USB) if device.transport == "adb" else (SERVICE,)
    rows = [
        (f"{exporter}/{group}/{name}", entry)
        for exporter, groups in sorted(lab.session.resources.items())
        for group, entries in sorted(groups.items())
        for name, entry in sorted(entries.items())
        if entry.data.get("cls") in classes and place.hasmatch((exporter, group, entry.cls, name))
    ]
    if len(rows) != 1:
        raise ConfigError(
            f"The place {place.name} of {lab.address} has {'several' if rows else 'no'} {' or '.join(classes)}.",
            "its exporter is down, or no match of the place takes one in" if not rows else "one must be the device",
            f"labgrid-client -x {lab.address} -p {place.name} show",
            [name for name, _ in rows],
        )
    (_, entry), proxy = rows[0], os.environ.get(PROXY, "")
    words, extra = entry.args, entry.extra
    host = str(words.get("address", ""))
    if entry.cls == FASTBOOT_USB or "%" in host:
        usb, exporter = entry.cls == FASTBOOT_USB, words.get("host") or extra.get("proxy", "")
        raise NotSupportedError(
            f"The place {place.name} can only be reached from its exporter {exporter}.",
            "the device hangs at its USB" if usb else f"{host} is behind a network interface of it",
            "run Slipway there" if usb else "export an address that the exporter's sshd reaches",
        )
    if extra.get("proxy_required"):  # exported with --isolated
        proxy = str(extra.get("proxy", ""))
    if device.transport == "adb":
        port = device.port or (
            ADB_PORT if entry.cls == FASTBOOT else natural(str(words.get("port") or ADB_PORT), 65535)
        )
    else:
        port = natural(str(words.get("port") or 22), 65535)
    return Service(host, port or -1, str(words.get("username", "")), proxy)  # `located` refuses an invalid port


def located(device: Device, found: Service) -> Device:
    """``device`` as an ordinary one over SSH or adb; a user and a jump host of the inventory's own come first.

    Raises:
        ConfigError: the lab's answer is not an address.
    """
    changes: dict[str, object] = {"source": "", "place": "", "place_tags": (), "coordinator": ""}
    if device.transport == "adb":
        changes |= {"port": 0, "serial": str(Spelled(found.host, port=found.port))}
    else:
        user, jump = device.user or found.user, device.jump or found.jump
        changes |= {"host": found.host, "port": found.port, "user": user, "jump": jump}
    try:
        return type(device).model_validate({**device.model_dump(), **changes})
    except ValueError as error:
        raise ConfigError(
            f"Slipway does not accept the address of the place {device.place}.",
            one_line(f"the lab says {found.user}@{found.host}:{found.port}", 300),
            f"labgrid-client -p {device.place} show",
        ) from error


def _at(device: Device, lab: Lab, place: Any) -> Device:
    """The device where ``place`` is.

    Raises:
        ConfigError, NotSupportedError, UnreachableError: no way there.
    """
    found = service(lab, place, device)
    if device.transport == "adb" and found.jump:
        found = Service(*_forwarded(lab, found))
    return located(device.model_copy(update={"place": place.name}), found)


def _forwarded(lab: Lab, found: Service) -> tuple[str, int]:
    """A port of this machine that labgrid's ssh forwards: adb's server knows no jump hosts."""
    from labgrid.util.ssh import sshmanager

    try:
        return "127.0.0.1", int(sshmanager.request_forward(found.jump, found.host, found.port))
    except (lab.module.ExecutionError, OSError) as error:
        raise UnreachableError(
            f"{found.host} port {found.port} cannot be reached through {found.jump}.",
            one_line(str(error), 300),
            f"ssh {found.jump} true",
        ) from error


class PlaceTransport(Wrapped):
    """A device's own transport, which ends the use of the place when it is closed."""

    def __init__(self, inner: Transport, held: Lease) -> None:
        super().__init__(inner)
        self._held = held

    def close(self) -> None:
        """Close the connection, then end the use of the place."""
        try:
            self.inner.close()
        finally:
            self._held.close()


def locate(device: Device, deadline: Deadline) -> Device:
    """The place's address, without acquiring it; for reading host keys.

    Raises:
        ConfigError, UnreachableError, NotSupportedError
    """
    lab = join(device, deadline)
    try:
        return _at(device, lab, candidates(lab, device)[0])
    finally:
        lab.leave()


def open_place(device: Device, deadline: Deadline, connect: Callable[[Device, Deadline], Transport]) -> Transport:
    """Acquire the place, unless this process has it, and ``connect`` to its address.

    Raises:
        ConfigError, DeviceBusyError, UnreachableError, NotSupportedError; and what ``connect`` raises.
    """
    held = lease(device, deadline=deadline)
    try:
        place = held.lab.place(held.place)
        return PlaceTransport(connect(_at(device, held.lab, place), deadline), held)
    except BaseException:
        held.close()
        raise


@dataclass(frozen=True)
class Borrowed:
    """A device for one piece of work, which may take several connections."""

    device: Device
    """Of a lab's: with the name of the place that was acquired."""
    held: Lease | None = None

    @property
    def switched(self) -> bool:
        """Whether its power can be cycled, and may be."""
        return self.held is not None and self.device.power_cycle and _switched(self.held.lab, self.held.place)

    def cycle(self) -> None:
        """Cycle its power.

        Raises:
            UnreachableError: the power switch does not do it.
        """
        assert self.held is not None  # noqa: S101 - `switched` was asked first
        _cycle(self.held.lab, self.held.place)


@contextlib.contextmanager
def borrowed(device: Device, wait: float, say: Say) -> Iterator[Borrowed]:
    """Hold the device's place for the block, after waiting for it; other devices need nothing.

    Raises:
        ConfigError, DeviceBusyError, UnreachableError: see `deploy.lab.places.lease`.
    """
    if device.source != "labgrid":
        yield Borrowed(device)
        return
    held = lease(device, wait, say)
    try:
        yield Borrowed(device.model_copy(update={"place": held.place, "place_tags": ()}), held)
    finally:
        held.close()


_SWITCHES = frozenset({
    "NetworkPowerPort", "PDUDaemonPort", "TasmotaPowerPort", "NetworkUSBPowerPort", "NetworkSiSPMPowerPort",
    "NetworkYKUSHPowerPort", "NetworkSysfsGPIO",
})  # fmt: skip
"""The classes for which labgrid's client has a driver (`ClientSession.power`)."""

_SECONDS = 120.0
"""Seconds that a power switch may take: labgrid's drivers wait without a limit of their own."""
_one_at_a_time = threading.Lock()  # labgrid keeps the session for its drivers in one place for the whole process


def _switched(lab: Lab, place: str) -> bool:
    """Whether ``place``, which is acquired, has a power switch."""
    return any(path[2] in _SWITCHES for path in lab.place(place).acquired_resources)


def _cycle(lab: Lab, place: str) -> None:
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
