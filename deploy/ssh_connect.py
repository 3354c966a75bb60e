"""Connecting to a device over SSH: where it is, whether it is the right one, and which key opens it.

Host keys are always verified: a virtual device's against the project's file of known hosts, a real one's
against the user's own. A key that is not on record is never accepted here; the error says how to do it.
"""

from __future__ import annotations

import contextlib
import getpass
import logging
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import paramiko
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential

from core.errors import AuthenticationError, ConfigError, HostKeyError, UnreachableError
from deploy.deadline import Deadline

if TYPE_CHECKING:
    from deploy.inventory import Device

# Without a handler, paramiko's own tracebacks would reach the terminal through logging's last resort.
logging.getLogger("paramiko").addHandler(logging.NullHandler())

CONNECT_SECONDS = 15.0
KEEPALIVE_SECONDS = 10
SILENCE_MS = 30_000
"""Unanswered packets for so long mean a broken connection (Linux's TCP_USER_TIMEOUT)."""
WINDOW = 16 << 20


@dataclass(frozen=True)
class Address:
    """Everything needed to log in."""

    device: str
    host: str
    port: int
    user: str
    key: Path | None
    known_hosts: tuple[Path, ...]
    virtual: str = ""

    def __str__(self) -> str:
        return f"{self.user}@{self.host}" + (f":{self.port}" if self.port != 22 else "")

    @property
    def record(self) -> str:
        """The name under which known_hosts files keep the key."""
        return self.host if self.port == 22 else f"[{self.host}]:{self.port}"

    def command(self) -> str:
        """The ssh command that goes the same way."""
        port = f" -p {self.port}" if self.port != 22 else ""
        return f"ssh{port} {self.user}@{self.host}"


def address(device: Device) -> Address:
    """Where ``device`` is: a virtual device is started, ``~/.ssh/config`` is asked for a real one."""
    if device.virtual:
        from deploy import virtual

        end = virtual.ensure(device.virtual)
        return Address(device.name, end.host, end.port, end.user, end.key, (end.known_hosts,), device.virtual)
    config = _user_config().lookup(device.host)
    files = (Path(file) for file in config.get("identityfile", []))
    key = device.key or next((file for file in files if file.is_file()), None)
    known = (
        (device.known_hosts,)
        if device.known_hosts
        else (Path("~/.ssh/known_hosts").expanduser(), Path("/etc/ssh/ssh_known_hosts"))
    )
    return Address(
        device.name,
        config.get("hostname", device.host),
        device.port or int(config.get("port", 22)),
        device.user or config.get("user", "") or getpass.getuser(),
        key,
        known,
    )


def _user_config() -> paramiko.SSHConfig:
    file = Path("~/.ssh/config").expanduser()
    try:
        return paramiko.SSHConfig.from_path(str(file)) if file.is_file() else paramiko.SSHConfig()
    except (OSError, paramiko.ConfigParseError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{file} cannot be read.", str(error), "correct it, or give host and user in devices.toml"
        ) from error


def connect(where: Address, deadline: Deadline) -> paramiko.SSHClient:
    """An authenticated connection whose host key was verified.

    A connection that is refused or times out is tried three times, with pauses of 0.5 and 1 s; nothing else is.

    Raises:
        UnreachableError, HostKeyError, AuthenticationError, ConfigError
    """
    attempts = Retrying(
        stop=stop_after_attempt(3),
        wait=wait_exponential(multiplier=0.5),
        reraise=True,
        retry=retry_if_exception(lambda error: isinstance(error, UnreachableError) and not deadline.over),
    )
    return attempts(_connect, where, deadline)


def _connect(where: Address, deadline: Deadline) -> paramiko.SSHClient:
    deadline.check(f"connecting to {where.device}")
    seconds = max(1.0, deadline.left(CONNECT_SECONDS))
    key = _load_key(where)
    client = paramiko.SSHClient()
    for file in where.known_hosts:
        with contextlib.suppress(OSError):
            client.load_system_host_keys(str(file))
    client.set_missing_host_key_policy(_Reject(where))
    sock = _socket(where, seconds)
    try:
        client.connect(
            where.host,
            where.port,
            where.user,
            sock=sock,
            pkey=key,
            timeout=seconds,
            banner_timeout=seconds,
            auth_timeout=seconds,
            allow_agent=not where.virtual,
            look_for_keys=not where.virtual and key is None,
            transport_factory=_transport,
        )
    except BaseException as error:
        client.close()
        sock.close()
        if isinstance(error, Exception):
            _translate(where, error)
        raise
    transport = client.get_transport()
    if transport is not None:
        transport.set_keepalive(KEEPALIVE_SECONDS)
    return client


def _transport(sock: Any, **options: Any) -> paramiko.Transport:
    return paramiko.Transport(sock, default_window_size=WINDOW, **options)


def _socket(where: Address, seconds: float) -> socket.socket:
    try:
        sock = socket.create_connection((where.host, where.port), seconds)
    except OSError as error:
        raise UnreachableError(
            f"{where.device} cannot be reached at {where.host} port {where.port}.",
            str(error),
            _reach_hint(where),
        ) from error
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENCE_MS)
    return sock


def _reach_hint(where: Address) -> str:
    if where.virtual:
        return f"./inv devices.stop {where.virtual} && ./inv devices.start {where.virtual}"
    return f"see that it is switched on and on the network: {where.command()}"


def _load_key(where: Address) -> paramiko.PKey | None:
    if where.key is None:
        return None
    try:
        return paramiko.PKey.from_path(where.key)
    except FileNotFoundError as error:
        raise ConfigError(
            f"{where.device}: there is no key file {where.key}.", "", "correct key = in devices.toml"
        ) from error
    except (OSError, ValueError, TypeError, paramiko.SSHException) as error:
        if isinstance(error, (TypeError, paramiko.PasswordRequiredException)) or "password" in str(error).lower():
            return None  # locked with a passphrase: the agent may hold it open
        raise ConfigError(
            f"{where.device}: {where.key} is not a private key.", str(error), "correct key = in devices.toml"
        ) from error


class _Reject(paramiko.RejectPolicy):
    """Refuse a host that is not on record, saying how to put it there."""

    def __init__(self, where: Address) -> None:
        self._where = where

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> NoReturn:  # noqa: ARG002
        """Called by paramiko for a host without a record."""
        where = self._where
        if where.virtual:
            hint = _reach_hint(where)
        elif "/etc/ssh/ssh_known_hosts" in {str(file) for file in where.known_hosts}:
            hint = f"{where.command()}    # once; compare the fingerprint, then answer yes"
        else:
            hint = f"{where.command()} -o UserKnownHostsFile={where.known_hosts[0]}    # once; compare, answer yes"
        raise HostKeyError(
            f"The host key of {where.device} ({where.record}) is not on record: {_print_of(key)}.",
            "this machine has never logged in there",
            hint,
            (key.fingerprint,),
        )


def _print_of(key: paramiko.PKey) -> str:
    return f"{key.get_name()} {key.fingerprint}"


def _translate(where: Address, error: Exception) -> None:
    """Raise the error of ours that ``error`` of paramiko's is; return when it is none."""
    if isinstance(error, paramiko.BadHostKeyException):
        files = " or ".join(str(file) for file in where.known_hosts)
        raise HostKeyError(
            f"The host key of {where.device} ({where.record}) has changed: on record {_print_of(error.expected_key)}, "
            f"now {_print_of(error.key)}.",
            f"the device was set up anew, another machine has its address, or someone listens in (record: {files})",
            _reach_hint(where)
            if where.virtual
            else "if you know why it changed: "
            f"ssh-keygen -f {where.known_hosts[0]} -R '{where.record}', then {where.command()}",
            (error.expected_key.fingerprint, error.key.fingerprint),
        ) from error
    refused = isinstance(error, paramiko.AuthenticationException) or (
        isinstance(error, paramiko.SSHException)
        and any(word in str(error) for word in ("No authentication methods", "private key", "encountered RSA key"))
    )
    if refused:
        key = str(where.key) if where.key else "the agent's keys and ~/.ssh/id_*"
        copy = f"ssh-copy-id {f'-i {where.key} ' if where.key else ''}{f'-p {where.port} ' if where.port != 22 else ''}"
        raise AuthenticationError(
            f"{where.device} refused to log in {where.user} with {key}.",
            f"its authorized_keys lacks that key, the user is another, or the key is locked ({error})",
            _reach_hint(where) if where.virtual else f"{copy}{where.user}@{where.host}   (locked key: ssh-add)",
        ) from error
    if isinstance(error, (paramiko.SSHException, OSError, EOFError)):
        raise UnreachableError(
            f"{where.device} at {where.host} port {where.port} does not speak SSH with us.",
            str(error) or type(error).__name__,
            _reach_hint(where),
        ) from error
