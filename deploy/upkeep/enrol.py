"""``./inv devices.add``: look at a device, choose its target, and write it into the user's inventory."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.errors import ConfigError, UsageError
from core.files import locked, write_atomic
from deploy.devices.facts import DeviceFacts, choose_target
from deploy.devices.inventory import Device, load_devices, parse, user_file
from deploy.devices.probe import probe
from deploy.devices.roots import device_root
from deploy.run.connect import open_device
from deploy.transport.deadline import Deadline
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
    table = _adb_table(adb) if adb else _ssh_table(ssh)
    (shown,) = parse(_toml(name or "device", table), user_file()).values()
    with open_device(shown, Deadline.after(_SECONDS)) as transport:
        serial = getattr(transport, "serial", "")
        facts = probe(transport, device_root(shown), None, Deadline.after(_SECONDS))
    if serial:
        table["serial"] = serial
    table = {"title": _title(facts), **table, "target": choose_target(facts)}
    return Added(_write(name or _name(facts, table), table), facts, user_file())


def _adb_table(serial: str) -> dict[str, Any]:
    table: dict[str, Any] = {"transport": "adb"}
    return table if serial == _ANY else {**table, "serial": serial}


def _ssh_table(address: str) -> dict[str, Any]:
    try:
        at = spelled(address)
    except ValueError as error:
        raise UsageError(f"{address!r} is not an address.", str(error), f"./inv devices.add --ssh {FORM}") from None
    table = {"transport": "ssh", "host": at.host, "port": at.port, "user": at.user}
    return {key: value for key, value in table.items() if value}


def _title(facts: DeviceFacts) -> str:
    what = facts.board or facts.hostname
    return (
        f"{what}, Android {facts.android}" if facts.android else ", ".join(part for part in (what, facts.cpu) if part)
    )


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
