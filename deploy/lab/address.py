"""Where a place of a labgrid coordinator is, as its exporters say: the device as an ordinary one over SSH or adb."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from core.errors import ConfigError, NotSupportedError, UnreachableError
from core.plain import one_line
from deploy.transport.hearing import natural
from deploy.transport.ssh.spelled import Spelled

if TYPE_CHECKING:
    from deploy.devices.inventory import Device

PROXY = "LG_PROXY"
"""labgrid's own environment variable for the SSH host through which coordinator and devices are reached."""
# Classes of resources: the login's data (of an Android device, where its adbd listens), and Android devices on the
# network, whose adbd has a port of its own, and at USB.
_SERVICE, _FASTBOOT, _FASTBOOT_USB = "NetworkService", "RemoteAndroidNetFastboot", "RemoteAndroidUSBFastboot"
_ADB_PORT = 5555


class Service(NamedTuple):
    """How to reach a place."""

    host: str
    port: int
    user: str = ""
    jump: str = ""
    """The SSH host to go through; empty: none."""


def service(lab: Any, place: Any, device: Device) -> Service:
    """How to reach ``place``, as the exporters of ``lab`` (`deploy.lab.labgrid.Lab`) say.

    Raises:
        ConfigError: not exactly one resource says it. NotSupportedError: in a way that Slipway does not go.
    """
    classes = (_SERVICE, _FASTBOOT, _FASTBOOT_USB) if device.transport == "adb" else (_SERVICE,)
    rows = [
        (path, entry) for path, entry in lab.resources() if entry.data.get("cls") in classes and place.hasmatch(path)
    ]
    if len(rows) != 1:
        raise ConfigError(
            f"The place {place.name} of {lab.address} has {'several' if rows else 'no'} {' or '.join(classes)}.",
            "its exporter is down, or no match of the place takes one in" if not rows else "one must be the device",
            f"labgrid-client -x {lab.address} -p {place.name} show",
            ["/".join(path) for path, _ in rows],
        )
    (_, entry), proxy = rows[0], os.environ.get(PROXY, "")
    words, extra = entry.args, entry.extra
    host = str(words.get("address", ""))
    if entry.cls == _FASTBOOT_USB or "%" in host:
        usb, exporter = entry.cls == _FASTBOOT_USB, words.get("host") or extra.get("proxy", "")
        raise NotSupportedError(
            f"The place {place.name} can only be reached from its exporter {exporter}.",
            "the device hangs at its USB" if usb else f"{host} is behind a network interface of it",
            "run Slipway there" if usb else "export an address that the exporter's sshd reaches",
        )
    if extra.get("proxy_required"):  # exported with --isolated
        proxy = str(extra.get("proxy", ""))
    adb = device.transport == "adb"
    said = natural(str(words.get("port") or (_ADB_PORT if adb else 22)), 65535)
    port = device.port or (_ADB_PORT if entry.cls == _FASTBOOT else said) if adb else said
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


def at(device: Device, lab: Any, place: Any) -> Device:
    """The device where ``place`` is; adb's server knows no jump hosts, so labgrid's ssh forwards a port for it.

    Raises:
        ConfigError, NotSupportedError, UnreachableError: no way there.
    """
    found = service(lab, place, device)
    if device.transport == "adb" and found.jump:
        from labgrid.util.ssh import sshmanager

        try:
            found = Service("127.0.0.1", int(sshmanager.request_forward(found.jump, found.host, found.port)))
        except (lab.module.ExecutionError, OSError) as error:
            raise UnreachableError(
                f"{found.host} port {found.port} cannot be reached through {found.jump}.",
                one_line(str(error), 300),
                f"ssh {found.jump} true",
            ) from error
    return located(device.model_copy(update={"place": place.name}), found)
