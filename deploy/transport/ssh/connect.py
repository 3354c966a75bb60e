"""Connecting to a device over SSH: jump hosts, host keys, and the login.

Host keys are always verified, those of jump hosts too: a virtual device's against the project's file of known hosts,
a real one's against the user's own. A key that is not on record is never accepted here; the error says how to do it.
"""

from __future__ import annotations

import contextlib
import logging
import shlex
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import paramiko

from core.errors import AuthenticationError, ConfigError, HostKeyError, UnreachableError
from deploy.transport.deadline import Deadline, retrying
from deploy.transport.ssh import keys as ssh_keys
from deploy.transport.ssh.auth import AuthTransport
from deploy.transport.ssh.config import Address
from deploy.transport.ssh.keys import OwnKeys

# Without a handler, paramiko's own tracebacks would reach the terminal through logging's last resort.
logging.getLogger("paramiko").addHandler(logging.NullHandler())

LOST = (paramiko.SSHException, OSError, EOFError)
"""What paramiko raises when a connection is gone, or refuses."""
SILENCE_MS = 30_000
"""Unanswered packets for so long mean a broken connection (Linux's TCP_USER_TIMEOUT)."""
WINDOW = 16 << 20
CIPHER = "aes128-gcm@openssh.com"
"""The preferred cipher: it authenticates as it encrypts, so it spares a device the HMAC of paramiko's first choice."""
RETRIES = 2
_ALGORITHMS = {"ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256")}
"""Names of key types that differ from paramiko's."""
_AUTH_SECONDS = 60.0
"""Seconds for the server to check a key or password: a device may be slow."""
_LEAST = 0.1
"""Seconds that a wait lasts at least: 0 would mean no limit to some."""

_given: dict[str, str] = {}
"""Secrets that the user gave this process, so that a further connection does not ask again."""


class _Proxy(paramiko.ProxyCommand):
    """paramiko's ProxyCommand, which here can be closed twice and leaves no process and no pipe behind."""

    def close(self) -> None:
        """Called by paramiko, from its thread too."""
        self.process.terminate()

    def end(self) -> None:
        """Nothing reads from it any more."""
        with self.process:  # closes the pipes and waits
            self.process.terminate()


@dataclass
class Connection:
    """A connection, and what it goes through: the connection to a jump host, or a program."""

    transport: AuthTransport
    through: Connection | _Proxy | None = None

    def close(self) -> None:
        """Close all of it."""
        self.transport.close()
        _close(self.through, self.transport)


def _close(through: Connection | _Proxy | None, reader: AuthTransport | None = None) -> None:
    if isinstance(through, _Proxy):
        if reader is not None and reader.is_alive():
            reader.join(5)
        through.end()
    elif through is not None:
        through.close()


def connect(address: Address, deadline: Deadline, retries: int = RETRIES) -> Connection:
    """An authenticated connection whose host key was verified.

    A connection that is refused or times out is tried again, with growing pauses; nothing else is.

    Raises:
        UnreachableError, HostKeyError, AuthenticationError, ConfigError, DeadlineError
    """
    connection: Connection = retrying(retries, deadline.left)(_connect, address, deadline)
    return connection


def _connect(address: Address, deadline: Deadline) -> Connection:
    keys = ssh_keys.own_keys(address)
    known = ssh_keys.read(address.known_hosts, address.record)
    with _translated(address, deadline):
        connection = greeted(address, deadline, known.kinds)
        try:
            with closed_after(connection.transport, deadline.left(threading.TIMEOUT_MAX)):
                verify(address, known, connection.transport.get_remote_server_key())
                _log_in(address, connection.transport, keys)
        except BaseException:
            connection.close()
            raise
    return connection


def greeted(address: Address, deadline: Deadline, kinds: tuple[str, ...] = ()) -> Connection:
    """A connection on which nobody was verified and nobody logged in yet. Jump hosts on the way must be trusted.

    Key types of ``kinds`` are requested first: a server shows one of its keys.

    Raises:
        UnreachableError, or paramiko's errors (`LOST`): it does not speak SSH.
    """
    seconds = max(_LEAST, deadline.left(address.connect_seconds))
    stream, through = _way(address, deadline, seconds)
    transport: AuthTransport | None = None
    try:
        transport = AuthTransport(stream, default_window_size=WINDOW)
        first = {name for kind in kinds for name in _ALGORITHMS.get(kind, (kind,))}
        offered = transport.get_security_options()
        offered.ciphers = tuple(sorted(offered.ciphers, key=lambda cipher: cipher != CIPHER))
        offered.key_types = tuple(sorted(offered.key_types, key=lambda kind: kind not in first))
        transport.use_compression(address.compress)
        transport.banner_timeout = seconds
        transport.auth_timeout = max(seconds, deadline.left(_AUTH_SECONDS))
        with closed_after(transport, deadline.left(threading.TIMEOUT_MAX)):
            transport.start_client(timeout=seconds)
    except BaseException:
        if transport is not None:
            transport.close()
        stream.close()
        _close(through, transport)
        raise
    return Connection(transport, through)


@contextlib.contextmanager
def closed_after(what: AuthTransport | paramiko.Channel, seconds: float) -> Iterator[None]:
    """Close it when the time is up: some of paramiko's waits have no limit of their own."""
    timer = threading.Timer(seconds, what.close)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _log_in(address: Address, transport: AuthTransport, keys: OwnKeys) -> None:
    """Offer the user's keys; after all were refused a locked key's passphrase, then the password, from a prompt.

    The host key has been verified by now, so only the device gets them.

    Raises:
        paramiko.SSHException: refused, or the connection is gone.
    """
    agent = not address.virtual and not (address.only_these and keys.ready)
    refused: paramiko.SSHException | None = None
    for key in (*keys.ready, *(paramiko.Agent().get_keys() if agent else ())):
        try:
            if not transport.auth_publickey(address.user, key):
                return
            break  # that was the first of two factors
        except paramiko.SSHException as error:
            refused = error
    if address.virtual or (refused is not None and not _is_refusal(refused)) or not _ask(address, transport, keys):
        raise refused or paramiko.SSHException(_NOTHING)


_NOTHING = "No authentication methods available"


def _ask(address: Address, transport: AuthTransport, keys: OwnKeys) -> bool:
    """Whether a prompt's answer let this user in."""
    try:
        transport.auth_none(address.user)
    except paramiko.BadAuthenticationType as refused:
        allowed = set(refused.allowed_types)
    except LOST:  # hung up, after too many keys perhaps
        return False
    else:
        return True
    for file in keys.locked if "publickey" in allowed else ():
        phrase = _secret(str(file), f"Passphrase of {file}:")
        with contextlib.suppress(paramiko.SSHException, ValueError, TypeError, OSError):
            if phrase is not None:
                secret: Any = phrase.encode()  # paramiko needs bytes, although its annotation says otherwise
                transport.auth_publickey(address.user, paramiko.PKey.from_path(file, secret))
                return True
        _given.pop(str(file), None)
    account = str(address)
    if allowed & {"password", "keyboard-interactive"} and (word := _secret(account, f"Password of {account}:")):
        try:
            transport.auth_password(address.user, word)
        except paramiko.SSHException:
            _given.pop(account, None)
            raise
        return True
    return False


def _secret(account: str, prompt: str) -> str | None:
    if account not in _given and (found := ssh_keys.secret(prompt)) is not None:
        _given[account] = found
    return _given.get(account)


def _way(address: Address, deadline: Deadline, seconds: float) -> tuple[Any, Connection | _Proxy | None]:
    """The byte stream to ``address``, and what it goes through.

    Raises:
        UnreachableError: the stream cannot be opened. ConfigError: its ProxyCommand cannot be read.
    """
    there = f"{address.host} port {address.port}"
    if address.jump is not None:
        via = _connect(address.jump, deadline)
        try:
            place = (address.host, address.port)
            return via.transport.open_channel("direct-tcpip", place, ("127.0.0.1", 0), timeout=seconds), via
        except BaseException as error:
            via.close()
            if not isinstance(error, LOST):
                raise
            raise _unreachable(address, f" at {there} through {address.jump}", error) from error
    if address.proxy_command:
        try:
            proxy = _Proxy(address.proxy_command)
        except ValueError as error:  # shlex's
            raise ConfigError(
                f"{address.device}: its ProxyCommand cannot be read.",
                f"{error}: {address.proxy_command}",
                "close the quote in ~/.ssh/config",
            ) from error
        except LOST as error:
            raise _unreachable(address, ": its ProxyCommand does not run", error) from error
        return proxy, proxy
    try:
        sock = socket.create_connection((address.host, address.port), seconds)
    except OSError as error:
        raise _unreachable(address, f" at {there}", error) from error
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENCE_MS)
    return sock, None


def _unreachable(address: Address, how: str, error: BaseException) -> UnreachableError:
    return UnreachableError(f"{address.device} cannot be reached{how}.", str(error), _reach_hint(address))


def _reach_hint(address: Address) -> str:
    if address.virtual:
        return f"./inv devices.stop {address.virtual} && ./inv devices.start {address.virtual}"
    return f"see that it is switched on and on the network: {address.command()}"


def verify(address: Address, known: ssh_keys.Known, key: paramiko.PKey) -> None:
    """Check the key that a host shows.

    Raises:
        HostKeyError: revoked, another than on record, or none on record.
    """
    if known.trusts(key):
        return
    if known.revokes(key):
        raise HostKeyError(
            f"The host key of {address.device} ({address.record}) is revoked: {_print_of(key)}.",
            "a known_hosts file marks it as revoked: do not trust a host that shows it",
            "give the device a new key, then learn that one: " + trust_hint(address),
            (key.fingerprint,),
        )
    if known.keys:
        old = next((each for each in known.keys if each.get_name() == key.get_name()), known.keys[0])
        files = " or ".join(str(file) for file in address.known_hosts)
        raise HostKeyError(
            f"The host key of {address.device} ({address.record}) has changed: on record {_print_of(old)}, "
            f"now {_print_of(key)}.",
            f"the device was reinstalled, another machine has its address, or someone listens in (record: {files})",
            _reach_hint(address)
            if address.virtual
            else f"if you know why it changed: ./inv devices.trust {_typed(address)} --replace",
            (old.fingerprint, key.fingerprint),
        )
    raise HostKeyError(
        f"The host key of {address.device} ({address.record}) is not on record: {_print_of(key)}.",
        "this machine has never logged in there",
        _reach_hint(address) if address.virtual else trust_hint(address),
        (key.fingerprint,),
    )


def trust_hint(address: Address) -> str:
    """The command to type for a host that is not on record."""
    return f"./inv devices.trust {_typed(address)}    # shows the fingerprint to compare, and stores it"


def _typed(address: Address) -> str:
    """What `./inv devices.trust` knows it by."""
    return address.device if address.listed else shlex.quote(str(address))


def _print_of(key: paramiko.PKey) -> str:
    return f"{key.get_name()} {key.fingerprint}"


def _is_refusal(error: Exception) -> bool:
    """Whether the server refused a key or password; no answer is not a refusal."""
    if "timeout" in str(error).lower():
        return False
    return isinstance(error, paramiko.AuthenticationException) or str(error) == _NOTHING


@contextlib.contextmanager
def _translated(address: Address, deadline: Deadline) -> Iterator[None]:
    """Our errors for those of paramiko."""
    doing = f"connecting to {address.device}"
    deadline.check(doing)
    try:
        yield
    except (*LOST, UnreachableError) as error:
        if deadline.over:
            raise deadline.error(doing) from error
        if isinstance(error, UnreachableError):
            raise
        if not _is_refusal(error):
            raise not_ssh(address, error) from error
        key = str(address.key) if address.key else "the agent's keys and ~/.ssh/id_*"
        port = f"-p {address.port} " if address.port != 22 else ""
        copy = f"ssh-copy-id {f'-i {address.key} ' if address.key else ''}{port}"
        raise AuthenticationError(
            f"{address.device} refused to log in {address.user} with {key}.",
            f"its authorized_keys lacks that key, the user is another, or the key is locked ({error})",
            _reach_hint(address) if address.virtual else f"{copy}{address.user}@{address.host}   (locked key: ssh-add)",
        ) from error


def not_ssh(address: Address, error: Exception) -> UnreachableError:
    """The error for what does not speak SSH."""
    return UnreachableError(
        f"{address.device} at {address.host} port {address.port} does not speak SSH with us.",
        str(error) or type(error).__name__,
        _reach_hint(address),
    )
