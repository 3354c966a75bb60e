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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import paramiko

from core import console
from core.errors import AuthenticationError, ConfigError, HostKeyError, UnreachableError
from deploy.transport.deadline import Deadline, retrying
from deploy.transport.ssh import keys as ssh_keys
from deploy.transport.ssh.auth import AuthTransport
from deploy.transport.ssh.config import Address
from deploy.transport.ssh.keys import Known
from deploy.transport.ssh.sessions import LOST

# Without a handler, paramiko's own tracebacks would reach the terminal through logging's last resort.
logging.getLogger("paramiko").addHandler(logging.NullHandler())

SILENCE_MS = 30_000
"""Unanswered packets for so long mean a broken connection (Linux's TCP_USER_TIMEOUT)."""
WINDOW = 16 << 20
CIPHER = "aes128-gcm@openssh.com"
"""The preferred cipher: it authenticates as it encrypts. paramiko's own first choice needs an HMAC as well, which takes
a device longer."""
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
        """It was closed: nothing reads from it any more."""
        self.process.terminate()
        with self.process:  # closes the pipes and waits
            pass


class Connection(paramiko.SSHClient):
    """A client that also closes the jump hosts' connections and the proxy."""

    via: Connection | None = None
    proxy: _Proxy | None = None

    def close(self) -> None:
        """Close it, its jump host's connection and its proxy."""
        transport = self.get_transport()
        super().close()
        if self.proxy is not None:
            if transport is not None:
                transport.join(5)
            self.proxy.end()
        if self.via is not None:
            self.via.close()


def connect(address: Address, deadline: Deadline, retries: int = RETRIES) -> Connection:
    """An authenticated connection whose host key was verified.

    A connection that is refused or times out is tried again, with growing pauses; nothing else is.

    Raises:
        UnreachableError, HostKeyError, AuthenticationError, ConfigError
    """
    connection: Connection = retrying(retries, deadline.left)(_connect, address, deadline)
    return connection


def _connect(address: Address, deadline: Deadline) -> Connection:
    doing = f"connecting to {address.device}"
    deadline.check(doing)
    key, others = _own_keys(address)
    client = Connection()
    known = ssh_keys.read(address.known_hosts, address.record)
    client.set_missing_host_key_policy(_Verify(address, known))
    sock: Any = None
    try:
        sock = way(address, deadline, client)
        with _ended_with(deadline, known) as transport_of:
            _log_in(client, address, sock, key, others, deadline, transport_of)
    except BaseException as error:
        client.close()
        if sock is not None:
            sock.close()
        if isinstance(error, (*LOST, UnreachableError)) and deadline.over:
            raise deadline.error(doing) from error
        if isinstance(error, Exception):
            _translate(address, error)
        raise
    return client


@contextlib.contextmanager
def _ended_with(deadline: Deadline, known: Known) -> Iterator[Callable[..., AuthTransport]]:
    """The factory of the connection's transport, which is closed when the time is up, so that every wait ends.

    paramiko's own limits are each for one wait, and some waits have none. Of its host keys a server shows one: the
    types that are on record are requested first.
    """
    kinds = {name for kind in known.kinds for name in _ALGORITHMS.get(kind, (kind,))}
    timers: list[threading.Timer] = []

    def transport_of(sock: Any, **options: Any) -> AuthTransport:
        made = AuthTransport(sock, default_window_size=WINDOW, **options)
        offered = made.get_security_options()
        offered.ciphers = tuple(sorted(offered.ciphers, key=lambda cipher: cipher != CIPHER))
        offered.key_types = tuple(sorted(offered.key_types, key=lambda kind: kind not in kinds))
        timers.append(threading.Timer(deadline.left(threading.TIMEOUT_MAX), made.close))
        timers[-1].daemon = True
        timers[-1].start()
        return made

    try:
        yield transport_of
    finally:
        for timer in timers:
            timer.cancel()


def _own_keys(address: Address) -> tuple[paramiko.PKey | None, list[Path]]:
    """The configured key, and further files to offer; files that others may read are left out, with a note.

    Raises:
        ConfigError: the inventory names a key that cannot be used.
    """
    files = list(address.keys)
    key = None
    if address.key is not None:
        if address.key_given or address.virtual or not ssh_keys.exposed(address.key):
            key = ssh_keys.load(address.key, address.device)
        else:
            files.insert(0, address.key)
    if key is None and not address.virtual and not address.only_these:
        files += [file for file in ssh_keys.defaults() if file not in files and file != address.key]
    for file in files:
        if why := ssh_keys.exposed(file):
            console.note(f"{address.device}: the private key {file} is not used: {why}. Try: chmod 600 {file}")
    return key, [file for file in files if not ssh_keys.exposed(file) and not ssh_keys.is_locked(file)]


def _log_in(
    client: Connection,
    address: Address,
    sock: Any,
    key: paramiko.PKey | None,
    others: list[Path],
    deadline: Deadline,
    transport_of: Callable[..., AuthTransport],
) -> None:
    seconds = max(_LEAST, deadline.left(address.connect_seconds))
    try:
        client.connect(
            address.record if address.alias else address.host,
            22 if address.alias else address.port,
            address.user,
            sock=sock,
            pkey=key,
            key_filename=[str(file) for file in others] or None,  # type: ignore[arg-type] # a list is documented and taken
            timeout=seconds,
            banner_timeout=seconds,
            auth_timeout=max(seconds, deadline.left(_AUTH_SECONDS)),
            allow_agent=not address.virtual and not (address.only_these and key is not None),
            look_for_keys=False,  # paramiko ignores their permissions; `_own_keys` checks them
            compress=address.compress,
            transport_factory=transport_of,
        )
    except paramiko.SSHException as error:
        transport = client.get_transport()
        if address.virtual or not _is_refusal(error) or not isinstance(transport, AuthTransport):
            raise
        if not _ask(address, transport):
            raise


def _ask(address: Address, transport: AuthTransport) -> bool:
    """After all keys were refused: a locked key's passphrase, then the password, from a prompt.

    The host key has been verified by now, so only the device gets them.
    """
    try:
        transport.auth_none(address.user)
    except paramiko.BadAuthenticationType as refused:
        allowed = set(refused.allowed_types)
    except LOST:  # hung up, after too many keys perhaps
        return False
    else:
        return True
    for file in (address.key, *address.keys):
        if "publickey" in allowed and file is not None and not ssh_keys.exposed(file) and ssh_keys.is_locked(file):
            phrase = _secret(str(file), f"Passphrase of {file}:")
            with contextlib.suppress(paramiko.SSHException, ValueError, TypeError, OSError):
                if phrase is not None:
                    transport.auth_publickey(address.user, ssh_keys.unlocked(file, phrase))
                    return True
            _given.pop(str(file), None)
    if allowed & {"password", "keyboard-interactive"}:
        account = str(address)
        word = _secret(account, f"Password of {account}:")
        if word is not None:
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


def way(address: Address, deadline: Deadline, client: Connection) -> Any:
    """The byte stream to ``address``: a socket, a channel of a jump host (then kept in ``client``), or a program.

    Raises:
        UnreachableError: the stream cannot be opened.
    """
    seconds = max(_LEAST, deadline.left(address.connect_seconds))
    if address.jump is not None:
        client.via = _connect(address.jump, deadline)
        transport = client.via.get_transport()
        assert transport is not None  # noqa: S101 - it is connected
        try:
            return transport.open_channel(
                "direct-tcpip", (address.host, address.port), ("127.0.0.1", 0), timeout=seconds
            )  # fmt: skip
        except LOST as error:
            raise UnreachableError(
                f"{address.device} cannot be reached at {address.host} port {address.port} through {address.jump}.",
                str(error),
                _reach_hint(address),
            ) from error
    if address.proxy_command:
        try:
            client.proxy = _Proxy(address.proxy_command)
        except ValueError as error:  # shlex's
            raise ConfigError(
                f"{address.device}: its ProxyCommand cannot be read.",
                f"{error}: {address.proxy_command}",
                "close the quote in ~/.ssh/config",
            ) from error
        except LOST as error:
            raise UnreachableError(
                f"{address.device} cannot be reached: its ProxyCommand does not run.", str(error), _reach_hint(address)
            ) from error
        return client.proxy
    return _socket(address, seconds)


def _socket(address: Address, seconds: float) -> socket.socket:
    try:
        sock = socket.create_connection((address.host, address.port), seconds)
    except OSError as error:
        raise UnreachableError(
            f"{address.device} cannot be reached at {address.host} port {address.port}.",
            str(error),
            _reach_hint(address),
        ) from error
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENCE_MS)
    return sock


def _reach_hint(address: Address) -> str:
    if address.virtual:
        return f"./inv devices.stop {address.virtual} && ./inv devices.start {address.virtual}"
    return f"see that it is switched on and on the network: {address.command()}"


class _Verify(paramiko.MissingHostKeyPolicy):
    """Check the key that a host shows. paramiko itself gets no record: it knows neither patterns nor marks."""

    def __init__(self, address: Address, known: Known) -> None:
        self._address, self._known = address, known

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:  # noqa: ARG002
        """Called by paramiko for every host.

        Raises:
            HostKeyError: revoked, another than on record, or none on record.
        """
        address, known = self._address, self._known
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
    """Whether the server refused every key and password; no answer is not a refusal."""
    if "timeout" in str(error).lower():
        return False
    return isinstance(error, paramiko.AuthenticationException) or (
        isinstance(error, paramiko.SSHException)
        and any(word in str(error) for word in ("No authentication methods", "private key", "encountered RSA key"))
    )


def _translate(address: Address, error: Exception) -> None:
    """Raise our error for ``error`` of paramiko; return if it does not match."""
    if _is_refusal(error):
        key = str(address.key) if address.key else "the agent's keys and ~/.ssh/id_*"
        port = f"-p {address.port} " if address.port != 22 else ""
        copy = f"ssh-copy-id {f'-i {address.key} ' if address.key else ''}{port}"
        raise AuthenticationError(
            f"{address.device} refused to log in {address.user} with {key}.",
            f"its authorized_keys lacks that key, the user is another, or the key is locked ({error})",
            _reach_hint(address) if address.virtual else f"{copy}{address.user}@{address.host}   (locked key: ssh-add)",
        ) from error
    if isinstance(error, (paramiko.SSHException, OSError, EOFError)):
        raise UnreachableError(
            f"{address.device} at {address.host} port {address.port} does not speak SSH with us.",
            str(error) or type(error).__name__,
            _reach_hint(address),
        ) from error
