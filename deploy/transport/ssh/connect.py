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
from typing import Any

import paramiko

from core import console
from core.errors import AuthenticationError, ConfigError, HostKeyError, UnreachableError
from deploy.transport.deadline import Deadline
from deploy.transport.retry import retrying
from deploy.transport.ssh import keys as ssh_keys
from deploy.transport.ssh import known_hosts as ssh_known
from deploy.transport.ssh import secrets as ssh_secrets
from deploy.transport.ssh.auth import AuthTransport
from deploy.transport.ssh.config import Address
from deploy.transport.ssh.known_hosts import Known
from deploy.transport.ssh.sessions import LOST

# Without a handler, paramiko's own tracebacks would reach the terminal through logging's last resort.
logging.getLogger("paramiko").addHandler(logging.NullHandler())

SILENCE_MS = 30_000
"""Unanswered packets for so long mean a broken connection (Linux's TCP_USER_TIMEOUT)."""
WINDOW = 16 << 20
CIPHER = "aes128-gcm@openssh.com"
"""Asked for first: it authenticates as it encrypts. paramiko's own first choice takes an HMAC beside its cipher, for
which a device computes longer."""
RETRIES = 2
_ALGORITHMS = {"ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256")}
"""Of a kind of key, where its name is another."""
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
    key, others = _own_keys(where)
    client = Connection()
    known = ssh_known.read(where.known_hosts, where.record)
    client.set_missing_host_key_policy(_Verify(where, known))
    sock: Any = None
    try:
        sock = way(where, deadline, client)
        with _ended_with(deadline, known) as transport_of:
            _log_in(client, where, sock, key, others, deadline, transport_of)
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
def _ended_with(deadline: Deadline, known: Known) -> Iterator[Callable[..., AuthTransport]]:
    """What makes the connection's transport; it is closed under whatever waits for an answer when the time is up.

    paramiko's own limits are each for one wait, and some waits have none. Of its host keys a server shows one: the
    kinds that are on record are asked for first.
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


def _own_keys(where: Address) -> tuple[paramiko.PKey | None, list[Path]]:
    """The key that is named, and further files to offer; those that others may read are left out, with a line.

    Raises:
        ConfigError: the inventory names one that cannot be used.
    """
    files = list(where.keys)
    key = None
    if where.key is not None:
        if where.key_given or where.virtual or not ssh_keys.exposed(where.key):
            key = ssh_keys.load(where.key, where.device)
        else:
            files.insert(0, where.key)
    if key is None and not where.virtual and not where.only_these:
        files += [file for file in ssh_keys.defaults() if file not in files and file != where.key]
    for file in files:
        if why := ssh_keys.exposed(file):
            console.note(f"{where.device}: the private key {file} is not used: {why}. Try: chmod 600 {file}")
    return key, [file for file in files if not ssh_keys.exposed(file) and not ssh_keys.is_locked(file)]


def _log_in(
    client: Connection,
    where: Address,
    sock: Any,
    key: paramiko.PKey | None,
    others: list[Path],
    deadline: Deadline,
    transport_of: Callable[..., AuthTransport],
) -> None:
    seconds = max(_LEAST, deadline.left(where.connect_seconds))
    try:
        client.connect(
            where.record if where.alias else where.host,
            22 if where.alias else where.port,
            where.user,
            sock=sock,
            pkey=key,
            key_filename=[str(file) for file in others] or None,  # type: ignore[arg-type] # a list is documented and taken
            timeout=seconds,
            banner_timeout=seconds,
            auth_timeout=max(seconds, deadline.left(_AUTH_SECONDS)),
            allow_agent=not where.virtual and not (where.only_these and key is not None),
            look_for_keys=False,  # it does not look who may read them; `_own_keys` does
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
        if "publickey" in allowed and file is not None and not ssh_keys.exposed(file) and ssh_keys.is_locked(file):
            phrase = _secret(str(file), f"Passphrase of {file}:")
            with contextlib.suppress(paramiko.SSHException, ValueError, TypeError, OSError):
                if phrase is not None:
                    transport.auth_publickey(where.user, ssh_keys.unlocked(file, phrase))
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
        except ValueError as error:  # shlex's
            raise ConfigError(
                f"{where.device}: its ProxyCommand cannot be read.",
                f"{error}: {where.proxy_command}",
                "close the quote in ~/.ssh/config",
            ) from error
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


class _Verify(paramiko.MissingHostKeyPolicy):
    """Judge the key that a host shows. paramiko itself is given no record: it knows neither patterns nor marks."""

    def __init__(self, where: Address, known: Known) -> None:
        self._where, self._known = where, known

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:  # noqa: ARG002
        """Called by paramiko for every host.

        Raises:
            HostKeyError: revoked, another than on record, or none on record.
        """
        where, known = self._where, self._known
        if known.trusts(key):
            return
        if known.revokes(key):
            raise HostKeyError(
                f"The host key of {where.device} ({where.record}) is revoked: {_print_of(key)}.",
                "a known_hosts file marks it so: whoever has it is not to be trusted",
                "give the device a new key, then learn that one: " + trust_hint(where),
                (key.fingerprint,),
            )
        if known.keys:
            old = next((each for each in known.keys if each.get_name() == key.get_name()), known.keys[0])
            files = " or ".join(str(file) for file in where.known_hosts)
            raise HostKeyError(
                f"The host key of {where.device} ({where.record}) has changed: on record {_print_of(old)}, "
                f"now {_print_of(key)}.",
                f"the device was set up anew, another machine has its address, or someone listens in (record: {files})",
                _reach_hint(where)
                if where.virtual
                else f"if you know why it changed: ./inv devices.trust {where.device} --replace",
                (old.fingerprint, key.fingerprint),
            )
        raise HostKeyError(
            f"The host key of {where.device} ({where.record}) is not on record: {_print_of(key)}.",
            "this machine has never logged in there",
            _reach_hint(where) if where.virtual else trust_hint(where),
            (key.fingerprint,),
        )


def trust_hint(where: Address) -> str:
    """What to type for a host that is not on record."""
    name = where.device if where.listed else str(where)
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
