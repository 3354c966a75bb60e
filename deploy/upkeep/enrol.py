"""Getting to know a device: ``./inv devices.add`` chooses its target and writes it into the user's inventory.

``./inv devices.trust`` learns its host key, once, after a person compared its fingerprint.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paramiko
from pydantic import ValidationError

from core.errors import ConfigError, HostKeyError, UsageError
from core.files import disk_errors, locked, write_atomic
from deploy.devices.facts import DeviceFacts, choose_target
from deploy.devices.inventory import Device, get_device, load_devices, parse, user_file
from deploy.devices.probe import device_root, probe
from deploy.run.connect import open_device, ssh_address
from deploy.transport.base import Transport
from deploy.transport.deadline import Deadline
from deploy.transport.ssh import keys as ssh_known
from deploy.transport.ssh.config import Address, user_config
from deploy.transport.ssh.connect import LOST, greeted, not_ssh, verify
from deploy.transport.ssh.spelled import FORM, spelled

_SECONDS = 60.0
_ANY = "any"
"""Placeholder for the only device that adb sees."""


@dataclass(frozen=True)
class Added:
    """A device that was added to the inventory."""

    device: Device
    facts: DeviceFacts
    file: Path


def add(adb: str = "", ssh: str = "", name: str = "") -> Added:
    """Connect, probe, and write the device into the user's inventory.

    Args:
        adb: a serial, ``address:port``, or ``any`` for the only one attached.
        ssh: an address (`deploy.transport.ssh.spelled`), or a ``Host`` of ``~/.ssh/config``.
        name: its name; by default from its model or host.

    Raises:
        UsageError: neither or both of adb and ssh, or not an address. ConfigError: the name is taken.
        SlipwayError: what connecting and probing raise.
    """
    if bool(adb) == bool(ssh):
        raise UsageError("A device is added by --adb or by --ssh.", "", "./inv devices.add --ssh pi@raspberrypi.local")
    table = {"transport": "adb", "serial": "" if adb == _ANY else adb} if adb else _ssh_table(ssh)
    (shown,) = parse(_toml(name or "device", table), user_file()).values()
    with open_device(shown, Deadline.after(_SECONDS)) as transport:
        serial = getattr(transport, "serial", "")
        facts = _facts(transport, device_root(shown))
    if serial:
        table["serial"] = serial
    about = (facts.board or facts.hostname, f"Android {facts.android}" if facts.android else facts.cpu)
    table = {"title": ", ".join(filter(None, about)), **table, "target": choose_target(facts)}
    return Added(_write(name or _name(facts, table), table), facts, user_file())


def _facts(transport: Transport, root: str) -> DeviceFacts:
    if transport.posix:
        return probe(transport, root, None, Deadline.after(_SECONDS))
    from deploy.run.windows import facts_of
    from deploy.transport.ssh.windows import WindowsTransport

    assert isinstance(transport, WindowsTransport)  # noqa: S101 - all others have a POSIX shell
    with transport.opened((), Deadline.after(_SECONDS)) as said:
        return facts_of(said)


def _ssh_table(address: str) -> dict[str, Any]:
    try:
        at = spelled(address)
    except ValueError as error:
        raise UsageError(f"{address!r} is not an address.", str(error), f"./inv devices.add --ssh {FORM}") from None
    table = {"transport": "ssh", "host": at.host, "port": at.port, "user": at.user}
    return {key: value for key, value in table.items() if value}


def _name(facts: DeviceFacts, table: dict[str, Any]) -> str:
    """A name from the phone's model or the host's own name."""
    text = facts.board if facts.abis else str(table.get("host", "")).partition(".")[0]
    if not facts.abis and (not text or text.isdigit()):
        text = facts.hostname
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:63] or "device"


def _write(name: str, table: dict[str, Any]) -> Device:
    """Append the table to the user's file; its content stays, comments included."""
    file = user_file()
    with locked("inventory"):
        before = file.read_text(encoding="utf-8") if file.is_file() else ""
        if os.environ.get("SLIPWAY_DEVICES_FILE") and not file.is_file():
            write_atomic(file, "")
        if name in load_devices():
            raise ConfigError(
                f"There is a device {name} in the inventory already.",
                "each name may be used once",
                f"the same command with --name {name}-2, or remove the table [{name}] from {file}",
            )
        gap = "" if not before or before.endswith("\n\n") else "\n" if before.endswith("\n") else "\n\n"
        text = before + gap + _toml(name, table)
        devices = parse(text, file)  # a table that could not be read back is not written
        write_atomic(file, text)
    return devices[name]


def _toml(name: str, table: dict[str, Any]) -> str:
    lines = [f"[{name if re.fullmatch('[A-Za-z0-9_-]+', name) else json.dumps(name)}]"]
    # A JSON string is a TOML one, except for DEL, which the probe always removes.
    lines += [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in table.items() if value != ""]
    return "\n".join(lines) + "\n"


_ANSWER_SECONDS = 30.0


def _offered(address: Address) -> paramiko.PKey:
    """Get the host key of ``address`` without logging in. Jump hosts on the way must be trusted already.

    Raises:
        UnreachableError: it does not answer, or does not speak SSH.
    """
    try:
        connection = greeted(address, Deadline.after(_ANSWER_SECONDS))
    except LOST as error:
        raise not_ssh(address, error) from error
    with contextlib.closing(connection):
        return connection.transport.get_remote_server_key()


def device_of(name: str) -> Device:
    """The device called ``name``, or the one at that address or alias of ``~/.ssh/config``, which need not be listed.

    Raises:
        ConfigError: it is neither. UsageError: an address that cannot be read.
    """
    if name in load_devices():
        return get_device(name)
    try:
        at = spelled(name)
    except ValueError as error:
        if not set(name) & set("@:["):
            return get_device(name)  # raises: no such device
        raise UsageError(f"{name!r} is not an address.", str(error), f"./inv devices.trust {FORM}") from None
    if at.bare and name not in user_config().get_hostnames():
        return get_device(name)  # raises: no such device
    try:
        return Device(name=name, transport="ssh", host=at.host, user=at.user, port=at.port)
    except ValidationError as error:
        raise ConfigError(f"{name!r} is not a host.", str(error), "./inv devices.list") from error


def hosts(device: Device) -> list[Address]:
    """Every host whose key must be on record to reach ``device``: jump hosts first.

    Raises:
        ConfigError: it has no host key to learn.
    """
    if device.transport != "ssh" or device.virtual:
        raise ConfigError(
            f"{device.name} has no host key to learn.",
            "a virtual device's is made with it" if device.virtual else f"its transport is {device.transport}",
            f"./inv deploy --device {device.name}",
        )
    way_there: list[Address] = []
    here: Address | None = ssh_address(device)
    while here is not None:
        way_there.insert(0, here)
        here = here.jump
    return way_there


@dataclass(frozen=True)
class Trusted:
    """The outcome for one host."""

    host: str
    kind: str
    fingerprint: str
    file: str
    outcome: str
    """``was known``, ``stored`` or ``replaced``."""


def trust(device: Device, fingerprint: str = "", replace: bool = False) -> list[Trusted]:
    """Store the host keys of ``device`` and of its jump hosts that are not on record yet.

    Args:
        fingerprint: ``SHA256:…`` as the device itself shows it; without it the user is prompted.
        replace: replace another key on record.

    Raises:
        HostKeyError: another key is on record, or the fingerprint is another one. UsageError: nobody to ask.
    """
    return [_trust_one(address, fingerprint, replace) for address in hosts(device)]


def _trust_one(address: Address, fingerprint: str, replace: bool) -> Trusted:
    key, file = _offered(address), address.known_hosts[0]
    record = ssh_known.read(address.known_hosts, address.record)
    if record.trusts(key):
        return Trusted(address.record, key.get_name(), key.fingerprint, str(file), "was known")
    if record.revokes(key) or (record.keys and not replace):
        verify(address, record, key)  # raises
    _compare(address, key, fingerprint)
    _store(file, address.record, f"{address.record} {key.get_name()} {key.get_base64()}", replace)
    outcome = "replaced" if record.keys else "stored"
    return Trusted(address.record, key.get_name(), key.fingerprint, str(file), outcome)


def _compare(address: Address, key: paramiko.PKey, fingerprint: str) -> None:
    """Compare the key with the given fingerprint, or let the user compare it."""
    if fingerprint:
        if fingerprint.strip().rstrip("=") != key.fingerprint.rstrip("="):
            raise HostKeyError(
                f"{address.device} ({address.record}) shows {key.get_name()} {key.fingerprint}, not {fingerprint}.",
                "the fingerprint is of another key of the device, or another machine answers; nothing was stored",
                "on the device: ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub",
                (key.fingerprint,),
            )
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(
            f"{address.device} ({address.record}) shows {key.get_name()} {key.fingerprint}; nothing was stored.",
            "without a terminal nobody can confirm it",
            f"compare it, then ./inv devices.trust {address.device} --fingerprint {key.fingerprint}",
            (key.fingerprint,),
        )
    sys.stderr.write(
        f"{address.record} shows the key {key.get_name()}\n  {key.fingerprint}\n"
        "On the device itself, `ssh-keygen -lf /etc/ssh/ssh_host_*_key.pub` shows its keys.\n"
        "Is this one of them? (yes/no) "
    )
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() != "yes":
        raise HostKeyError(
            f"The host key of {address.device} was not accepted; nothing was stored.",
            "the answer was not yes",
            f"compare it with the device's own keys, then ./inv devices.trust {address.device}",
        )


def _store(file: Path, record: str, line: str, replace: bool) -> None:
    """Add ``line``; with ``replace`` in place of every key for ``record``. All else stays, what is marked too."""
    with locked("known-hosts"), disk_errors(f"writing {file}"):
        if not file.parent.is_dir():
            file.parent.mkdir(mode=0o700, parents=True)
        lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
        new = ssh_known.replaced(lines, record, line) if replace else [*lines, line]
        mode = (file.stat().st_mode & 0o777) if file.is_file() else 0o600
        write_atomic(file, "\n".join(new) + "\n", mode)
