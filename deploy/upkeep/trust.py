"""Learning a device's host key once, after a person compared its fingerprint: ``./inv devices.trust NAME``."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import paramiko
from pydantic import ValidationError

from core.errors import ConfigError, HostKeyError, UnreachableError, UsageError
from core.files import disk_errors, locked, write_atomic
from deploy.devices.inventory import Device, get_device, load_devices
from deploy.run.connect import ssh_address
from deploy.transport.deadline import Deadline
from deploy.transport.ssh import known_hosts as ssh_known
from deploy.transport.ssh.auth import AuthTransport
from deploy.transport.ssh.config import Address
from deploy.transport.ssh.connect import Connection, way
from deploy.transport.ssh.sessions import LOST

_SECONDS = 30.0


@dataclass(frozen=True)
class Offered:
    """The host key that a device showed."""

    where: Address
    key: paramiko.PKey

    @property
    def line(self) -> str:
        """As a known_hosts file has it."""
        return f"{self.where.record} {self.key.get_name()} {self.key.get_base64()}"


def offered(where: Address) -> Offered:
    """Ask ``where`` for its host key; nobody logs in. Jump hosts on the way must be trusted already.

    Raises:
        UnreachableError: nothing there speaks SSH.
    """
    client = Connection()
    sock = way(where, Deadline.after(_SECONDS), client)
    try:
        transport = AuthTransport(sock)
        try:
            transport.start_client(timeout=_SECONDS)
            return Offered(where, transport.get_remote_server_key())
        finally:
            transport.close()
    except LOST as error:
        raise UnreachableError(
            f"{where.device} at {where.host} port {where.port} does not speak SSH with us.", str(error), where.command()
        ) from error
    finally:
        sock.close()
        client.close()


def known(where: Address) -> ssh_known.Known:
    """What is on record for ``where``."""
    return ssh_known.read(where.known_hosts, where.record)


def device_of(name: str) -> Device:
    """The device called ``name``; ``[user@]host[:port]`` is one that the inventory need not have.

    Raises:
        ConfigError: neither.
    """
    match = re.fullmatch(r"(?:(?P<user>[^@]+)@)?(?P<host>[^@:]+)(?::(?P<port>\d{1,5}))?", name)
    if name in load_devices() or match is None or not (match["user"] or match["port"] or "." in name):
        return get_device(name)
    try:
        return Device(
            name=name, transport="ssh", host=match["host"], user=match["user"] or "", port=int(match["port"] or 0)
        )
    except ValidationError as error:
        raise ConfigError(f"{name!r} is no host.", str(error), "./inv devices.list") from error


def hosts(device: Device) -> list[Address]:
    """Every host whose key must be on record to reach ``device``: jump hosts first.

    Raises:
        ConfigError: no key is ever learnt for it.
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
    """What became of one host."""

    host: str
    kind: str
    fingerprint: str
    file: str
    outcome: str
    """``was known``, ``stored`` or ``replaced``."""


def trust(device: Device, fingerprint: str = "", replace: bool = False) -> list[Trusted]:
    """Store the host keys of ``device`` and of the hosts before it, as far as they are not on record.

    Args:
        fingerprint: ``SHA256:…`` as the device itself shows it; without it the terminal is asked.
        replace: take the place of another key on record.

    Raises:
        HostKeyError: another key is on record, or the fingerprint is another one. UsageError: nobody to ask.
    """
    return [_trust_one(where, fingerprint, replace) for where in hosts(device)]


def _trust_one(where: Address, fingerprint: str, replace: bool) -> Trusted:
    found = offered(where)
    key, file = found.key, where.known_hosts[0]
    record = known(where)
    if record.revokes(key):
        raise HostKeyError(
            f"{where.device} ({where.record}) shows a key that is revoked: {key.get_name()} {key.fingerprint}.",
            "a known_hosts file marks it so: whoever has it is not to be trusted; nothing was stored",
            "give the device a new key: on it, ssh-keygen -A after removing the old one",
            (key.fingerprint,),
        )
    if record.trusts(key):
        return Trusted(where.record, key.get_name(), key.fingerprint, str(file), "was known")
    if record.keys and not replace:
        prints = ", ".join(f"{old.get_name()} {old.fingerprint}" for old in record.keys)
        raise HostKeyError(
            f"Another host key of {where.device} ({where.record}) is on record: {prints}; "
            f"it shows {key.get_name()} {key.fingerprint}.",
            "the device was set up anew, another machine has its address, or someone listens in",
            f"if you know why it changed: ./inv devices.trust {where.device} --replace",
            (key.fingerprint,),
        )
    _compare(where, key, fingerprint)
    _store(file, where.record, found.line, replace)
    outcome = "replaced" if record.keys else "stored"
    return Trusted(where.record, key.get_name(), key.fingerprint, str(file), outcome)


def _compare(where: Address, key: paramiko.PKey, fingerprint: str) -> None:
    """Against the fingerprint given, or by a person's eyes."""
    if fingerprint:
        if fingerprint.strip().rstrip("=") != key.fingerprint.rstrip("="):
            raise HostKeyError(
                f"{where.device} ({where.record}) shows {key.get_name()} {key.fingerprint}, not {fingerprint}.",
                "the fingerprint is of another key of the device, or another machine answers; nothing was stored",
                "on the device: ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub",
                (key.fingerprint,),
            )
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(
            f"{where.device} ({where.record}) shows {key.get_name()} {key.fingerprint}; nothing was stored.",
            "there is no terminal to ask whether that is its own",
            f"compare it, then ./inv devices.trust {where.device} --fingerprint {key.fingerprint}",
            (key.fingerprint,),
        )
    sys.stderr.write(
        f"{where.record} shows the key {key.get_name()}\n  {key.fingerprint}\n"
        "On the device itself, `ssh-keygen -lf /etc/ssh/ssh_host_*_key.pub` shows its keys.\n"
        "Is this one of them? (yes/no) "
    )
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() != "yes":
        raise HostKeyError(f"The host key of {where.device} was not accepted; nothing was stored.", "", "")


def _store(file: Path, record: str, line: str, replace: bool) -> None:
    """Add ``line``; with ``replace`` in place of every key for ``record``. All else stays, what is marked too."""
    with locked("known-hosts"), disk_errors(f"writing {file}"):
        if not file.parent.is_dir():
            file.parent.mkdir(mode=0o700, parents=True)
        lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
        new = ssh_known.replaced(lines, record, line) if replace else [*lines, line]
        mode = (file.stat().st_mode & 0o777) if file.is_file() else 0o600
        target = Path(os.path.realpath(file))  # where dotfiles are links, the link stays
        write_atomic(target, "\n".join(new) + "\n", mode)
