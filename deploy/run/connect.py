"""From a device of the inventory to a connection: the only module that resolves one and starts a virtual one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from core.errors import ConfigError
from deploy.devices.inventory import Device, load_devices
from deploy.run.machine import machine_of
from deploy.transport.base import Transport
from deploy.transport.deadline import NEVER, Deadline

if TYPE_CHECKING:
    from deploy.transport.adb.transport import AdbTransport
    from deploy.transport.ssh.config import Address


def ready(device: Device, target: str = "") -> None:
    """Prepare the first connection, outside of every deadline: start a virtual device, fetch an emulator.

    Args:
        target: the bundle's; empty: the device's own.

    Raises:
        UnreachableError: it does not start. HostError, ConfigError
    """
    machine_of(device, target).prepare()
    if device.virtual:
        from deploy.virtual import machines as virtual

        virtual.ensure(device.virtual)
    if device.source == "labgrid":
        from core.environment import ensure

        ensure("labgrid")


def open_device(device: Device, deadline: Deadline = NEVER) -> Transport:
    """Connect to ``device``; a virtual one is started first, a lab's is `borrowed` first. Use it in a ``with`` block.

    Raises:
        UnreachableError, HostKeyError, AuthenticationError, ConfigError
    """
    if device.transport == "local":
        from deploy.transport.local import LocalTransport

        return LocalTransport(device.name)
    return open_adb(device, deadline) if device.transport == "adb" else _open_ssh(device, deadline)


def open_adb(device: Device, deadline: Deadline = NEVER) -> AdbTransport:
    """Attach to ``device`` over adb, starting it first when it is a virtual one.

    Raises: see `deploy.transport.adb.transport.attached`.
    """
    from deploy.transport.adb.server import users_server
    from deploy.transport.adb.transport import attached

    if device.virtual:
        from deploy.virtual import machines as virtual
        from deploy.virtual.machines import private_server

        end = virtual.ensure(device.virtual)
        return attached(private_server(), device.name, end.serial, virtual.toucher(device.virtual), deadline)
    server = users_server()
    assert server is not None  # noqa: S101 - started above
    return attached(server, device.name, device.serial, deadline=deadline)


def ssh_address(device: Device) -> Address:
    """The address of ``device``: a virtual device is started, ``~/.ssh/config`` is read for a real one.

    Raises:
        ConfigError: that file cannot be read, or its jumps go in circles.
    """
    from deploy.transport.ssh.config import Address, configured

    if device.virtual:
        from deploy.virtual import machines as virtual

        end = virtual.ensure(device.virtual)
        return Address(device.name, end.host, end.port, end.user, end.key, (end.known_hosts,), virtual=device.virtual)
    if device.source == "labgrid":
        from deploy.lab.labgrid import locate

        device = locate(device)
    found = configured(device.name, device.host, device.user, device.port, device.jump, listed=_listed(device))
    if device.key:
        found = replace(found, key=device.key, key_given=True, keys=())
    if device.known_hosts:
        found = replace(found, known_hosts=(device.known_hosts,))
    if device.compress is not None:
        found = replace(found, compress=device.compress)
    return found


def _listed(device: Device) -> bool:
    """Whether the inventory has it, or names the file of its host key: then its name may be typed."""
    try:
        return bool(device.known_hosts) or device.name in load_devices()
    except ConfigError:
        return True


def _open_ssh(device: Device, deadline: Deadline) -> Transport:
    from deploy.transport.base import MacTransport
    from deploy.transport.ssh.transport import open_ssh
    from deploy.transport.ssh.windows import VERSION, WindowsTransport

    found = open_ssh(ssh_address(device), deadline)
    if VERSION in found.server:
        return WindowsTransport(found)
    return MacTransport(found) if device.target.startswith("macos-") else found
