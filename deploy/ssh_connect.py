"""Connecting to a device over SSH: through which hosts, whether it is the right one, and what opens it.

Host keys are always verified, those of jump hosts too: a virtual device's against the project's file of known hosts,
a real one's against the user's own. A key that is not on record is never accepted here; the error says how to do it.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import paramiko

from core.errors import AuthenticationError, ConfigError, HostKeyError, UnreachableError
from deploy import ssh_known, ssh_secrets
from deploy.deadline import Deadline
from deploy.retry import retrying
from deploy.ssh_auth import AuthTransport
from deploy.ssh_config import SYSTEM_KNOWN_HOSTS, Address
from deploy.ssh_sessions import LOST

# Without a handler, paramiko's own tracebacks would reach the terminal through logging's last resort.
logging.getLogger("paramiko").addHandler(logging.NullHandler())

SILENCE_MS = 30_000
"""Unanswered packets for so long mean a broken connection (Linux's TCP_USER_TIMEOUT)."""
WINDOW = 16 << 20
CIPHER = "aes128-gcm@openssh.com"
"""Asked for first: it authenticates as it encrypts. paramiko's own first choice takes an HMAC beside its cipher, for
which a device computes longer."""
RETRIES = 2
_AUTH_SECONDS = 60.0
"""For the server to judge a key or password: a device may be slow at it."""
_LEAST = 0.1
"""Seconds that a wait lasts at least: 0 would mean no limit to some."""

_given: dict[str, str] = {}
"""Secrets that were given to this process, so that a further connection does not ask again."""


class _Proxy(paramiko.ProxyCommand):
    """paramiko's, but that it may be closed twice and leaves no process and no pipe behind."""

    def close(self) -> None:
        """Called by paramiko, from its thread too."""
        self.process.terminate()

    def end(self) -> None:
        """Nobody reads from it any more."""
        self.process.terminate()
        with self.process:  # closes the pipes and waits
            pass


class Connection(paramiko.SSHClient):
    """A client that closes the connections it came through."""

    via: Connection | None = None
    proxy: _Proxy | None = None

    def close(self) -> None:
        """Close it, and what it came through."""
        transport = self.get_transport()
        super().close()
        if self.proxy is not None:
            if transport is not None:
                transport.join(5)
            self.proxy.end()
        if self.via is not None:
            self.via.close()


def connect(where: Address, deadline: Deadline, retries: int = RETRIES) -> Connection:
    """An authenticated connection whose host key was verified.

    A connection that is refused or times out is tried again, with growing pauses; nothing else is.

    Raises:
        UnreachableError, HostKeyError, AuthenticationError, ConfigError
    """
    connection: Connection = retrying(retries, deadline.left)(_connect, where, deadline)
    return connection


def _connect(where: Address, deadline: Deadline) -> Connection:
    doing = f"connecting to {where.device}"
    deadline.check(doing)
    key = _load_key(where)
    client = Connection()
    revoked = _load_known(where, client)
    client.set_missing_host_key_policy(_Reject(where, revoked))
    sock: Any = None
    try:
        sock = way(where, deadline, client)
        with _ended_with(deadline) as transport_of:
            _log_in(client, where, sock, key, deadline, transport_of)
    except BaseException as error:
        client.close()
        if sock is not None:
            sock.close()
        if isinstance(error, (*LOST, UnreachableError)) and deadline.over:
            raise deadline.error(doing) from error
        if isinstance(error, Exception):
            _translate(where, error)
        raise
    return client


@contextlib.contextmanager
def _ended_with(deadline: Deadline) -> Iterator[Callable[..., AuthTransport]]:
    """What makes the connection's transport; it is closed under whatever waits for an answer when the time is up.

    paramiko's own limits are each for one wait, and some waits have none.
    """
    timers: list[threading.Timer] = []

    def transport_of(sock: Any, **options: Any) -> AuthTransport:
        made = AuthTransport(sock, default_window_size=WINDOW, **options)
        offered = made.get_security_options()
        offered.ciphers = tuple(sorted(offered.ciphers, key=lambda cipher: cipher != CIPHER))
        timers.append(threading.Timer(deadline.left(threading.TIMEOUT_MAX), made.close))
        timers[-1].daemon = True
        timers[-1].start()
        return made

    try:
        yield transport_of
    finally:
        for timer in timers:
            timer.cancel()


def _load_known(where: Address, client: Connection) -> set[str]:
    """Give ``client`` the host keys on record; the keys that a file marks as revoked are returned and left out."""
    known, revoked = ssh_known.read(where.known_hosts)
    for name, keys in known.items():
        for kind, key in keys.items():
            client.get_host_keys().add(name, kind, key)
    return revoked


def _log_in(
    client: Connection,
    where: Address,
    sock: Any,
    key: paramiko.PKey | None,
    deadline: Deadline,
    transport_of: Callable[..., AuthTransport],
) -> None:
    seconds = max(_LEAST, deadline.left(where.connect_seconds))
    others = [str(file) for file in where.keys if not _is_locked(file)]
    try:
        client.connect(
            where.record if where.alias else where.host,
            22 if where.alias else where.port,
            where.user,
            sock=sock,
            pkey=key,
            key_filename=others or None,  # type: ignore[arg-type] # a list is documented and taken
            timeout=seconds,
            banner_timeout=seconds,
            auth_timeout=max(seconds, deadline.left(_AUTH_SECONDS)),
            allow_agent=not where.virtual and not (where.only_these and key is not None),
            look_for_keys=not where.virtual and key is None and not where.only_these,
            compress=where.compress,
            transport_factory=transport_of,
        )
    except paramiko.SSHException as error:
        transport = client.get_transport()
        if where.virtual or not _is_refusal(error) or not isinstance(transport, AuthTransport):
            raise
        if not _ask(where, transport):
            raise


def _ask(where: Address, transport: AuthTransport) -> bool:
    """After all keys were refused: a locked key's passphrase, then the password, from the keyring or a prompt.

    The host key has been verified by now: nobody else is told.
    """
    try:
        transport.auth_none(where.user)
    except paramiko.BadAuthenticationType as refused:
        allowed = set(refused.allowed_types)
    except LOST:  # hung up, after too many keys perhaps
        return False
    else:
        return True
    for file in (where.key, *where.keys):
        if "publickey" in allowed and file is not None and _is_locked(file):
            phrase = _secret(str(file), f"Passphrase of {file}:")
            with contextlib.suppress(paramiko.SSHException, ValueError, TypeError, OSError):
                if phrase is not None:
                    transport.auth_publickey(where.user, _unlocked(file, phrase))
                    return True
            _given.pop(str(file), None)
    if allowed & {"password", "keyboard-interactive"}:
        account = f"{where.user}@{where.host}" + (f":{where.port}" if where.port != 22 else "")
        word = _secret(account, f"Password of {account}:")
        if word is not None:
            try:
                transport.auth_password(where.user, word)
            except paramiko.SSHException:
                _given.pop(account, None)
                raise
            return True
    return False


def _secret(account: str, prompt: str) -> str | None:
    if account not in _given and (found := ssh_secrets.secret(account, prompt)) is not None:
        _given[account] = found
    return _given.get(account)


def way(where: Address, deadline: Deadline, client: Connection) -> Any:
    """What bytes for ``where`` go through: a socket, a channel of a jump host (then kept in ``client``), a program.

    Raises:
        UnreachableError: there is no way.
    """
    seconds = max(_LEAST, deadline.left(where.connect_seconds))
    if where.jump is not None:
        client.via = _connect(where.jump, deadline)
        transport = client.via.get_transport()
        assert transport is not None  # noqa: S101 - it is connected
        try:
            return transport.open_channel(
                "direct-tcpip", (where.host, where.port), ("127.0.0.1", 0), timeout=seconds
            )  # fmt: skip
        except LOST as error:
            raise UnreachableError(
                f"{where.device} cannot be reached at {where.host} port {where.port} through {where.jump}.",
                str(error),
                _reach_hint(where),
            ) from error
    if where.proxy_command:
        try:
            client.proxy = _Proxy(where.proxy_command)
        except LOST as error:
            raise UnreachableError(
                f"{where.device} cannot be reached: its ProxyCommand does not run.", str(error), _reach_hint(where)
            ) from error
        return client.proxy
    return _socket(where, seconds)


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
        if _means_locked(error):
            return None  # the agent may hold it open; if not, its passphrase is asked for
        raise ConfigError(
            f"{where.device}: {where.key} is not a private key.", str(error), "correct key = in devices.toml"
        ) from error


def _is_locked(file: Path) -> bool:
    """Whether the private key needs a passphrase."""
    try:
        paramiko.PKey.from_path(file)
    except (OSError, ValueError, TypeError, paramiko.SSHException) as error:
        return _means_locked(error)
    return False


def _unlocked(file: Path, phrase: str) -> paramiko.PKey:
    secret: Any = phrase.encode()  # what paramiko hands on must be bytes, whatever its annotation says
    return paramiko.PKey.from_path(file, secret)


def _means_locked(error: Exception) -> bool:
    return isinstance(error, (TypeError, paramiko.PasswordRequiredException)) or "password" in str(error).lower()


class _Reject(paramiko.RejectPolicy):
    """Refuse a host that is not on record, saying how to put it there."""

    def __init__(self, where: Address, revoked: set[str]) -> None:
        self._where, self._revoked = where, revoked

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> NoReturn:  # noqa: ARG002
        """Called by paramiko for a host without a record."""
        where = self._where
        if key.get_base64() in self._revoked:
            raise HostKeyError(
                f"The host key of {where.device} ({where.record}) is revoked: {_print_of(key)}.",
                "a known_hosts file marks it so: whoever has it is not to be trusted",
                "give the device a new key, then remove nothing but learn the new one: " + trust_hint(where),
                (key.fingerprint,),
            )
        raise HostKeyError(
            f"The host key of {where.device} ({where.record}) is not on record: {_print_of(key)}.",
            "this machine has never logged in there",
            _reach_hint(where) if where.virtual else trust_hint(where),
            (key.fingerprint,),
        )


def trust_hint(where: Address) -> str:
    """What to type for a host that is not on record."""
    from deploy.inventory import load_devices

    name = where.device
    with contextlib.suppress(ConfigError):
        if name not in load_devices() and where.known_hosts[-1:] == (SYSTEM_KNOWN_HOSTS,):
            name = str(where)  # not in the inventory yet
    return f"./inv devices.trust {name}    # shows the fingerprint to compare, and stores it"


def _print_of(key: paramiko.PKey) -> str:
    return f"{key.get_name()} {key.fingerprint}"


def _is_refusal(error: Exception) -> bool:
    """Whether all that was offered to log in with was refused; no answer is no refusal."""
    if "timeout" in str(error).lower():
        return False
    return isinstance(error, paramiko.AuthenticationException) or (
        isinstance(error, paramiko.SSHException)
        and any(word in str(error) for word in ("No authentication methods", "private key", "encountered RSA key"))
    )


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
            else f"if you know why it changed: ./inv devices.trust {where.device} --replace",
            (error.expected_key.fingerprint, error.key.fingerprint),
        ) from error
    if _is_refusal(error):
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
