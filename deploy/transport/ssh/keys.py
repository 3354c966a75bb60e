"""Keys in files: the user's private ones, and those of known hosts.

OpenSSH refuses a user's private key that others may read or write (sshkey_perm_ok in its authfile.c); so does this
module. Passwords and passphrases come from a prompt, never from a command line, a file or a variable. They are handed
to the SSH library and forgotten; no message, log or result ever holds one.

Files of known hosts are read as OpenSSH reads them (sshd(8), "SSH_KNOWN_HOSTS FILE FORMAT"). A line is for a host when
a pattern of its list fits (``*``, ``?``) or its hashed name does, and none that begins with ``!`` fits. A key that a
line for the host marks as ``@revoked`` is refused, whatever other lines say. A line of a certificate authority
(``@cert-authority``) is not a host's own key: certificates of hosts are not checked here, so such a host counts as
unknown. A damaged line is skipped.
"""

from __future__ import annotations

import base64
import contextlib
import hmac
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import paramiko

from core import console
from core.errors import ConfigError
from deploy.transport.ssh.config import Address

_DEFAULTS = ("rsa", "ecdsa", "ed25519")
"""``~/.ssh/id_…`` in the order in which paramiko offers them."""


def exposed(file: Path) -> str:
    """Why a private key must not be used; empty when it may be.

    As in OpenSSH, only the user's own files are checked: for files of others the system decides.
    """
    try:
        info = file.stat()
    except OSError:
        return ""
    if info.st_uid != os.getuid() or not info.st_mode & 0o077:
        return ""
    return f"its mode is {info.st_mode & 0o7777:04o}: others than its owner may read or write it"


@dataclass(frozen=True)
class OwnKeys:
    """The user's private keys for one host, in the order in which they are offered."""

    ready: tuple[paramiko.PKey, ...]
    locked: tuple[Path, ...]
    """Files that need a passphrase; the agent may hold these keys unlocked."""


def own_keys(address: Address) -> OwnKeys:
    """The keys that the inventory or the configuration names; without a usable one the user's ``~/.ssh/id_…``.

    Files that others may read are left out, with a note; what is not a key is left out.

    Raises:
        ConfigError: the inventory names a key that cannot be used.
    """
    ready: list[paramiko.PKey] = []
    locked: list[Path] = []

    def look(file: Path, needed: bool) -> None:
        if why := exposed(file):
            if needed:
                raise ConfigError(f"{address.device}: the private key {file} is not used.", why, f"chmod 600 {file}")
            console.note(f"{address.device}: the private key {file} is not used: {why}. Try: chmod 600 {file}")
            return
        try:
            ready.append(paramiko.PKey.from_path(file))
        except (OSError, ValueError, TypeError, paramiko.SSHException) as error:
            if isinstance(error, (TypeError, paramiko.PasswordRequiredException)) or "password" in str(error).lower():
                locked.append(file)
            elif needed:
                what = f"{file} is not a private key" if file.exists() else f"there is no key file {file}"
                raise ConfigError(f"{address.device}: {what}.", str(error), "correct key = in devices.toml") from error

    named = [file for file in (address.key, *address.keys) if file is not None]
    for file in named:
        look(file, needed=file == address.key and (address.key_given or bool(address.virtual)))
    if not (ready or address.virtual or address.only_these):
        for file in (Path(f"~/.ssh/id_{kind}").expanduser() for kind in _DEFAULTS):
            if file.is_file() and file not in named:
                look(file, needed=False)
    return OwnKeys(tuple(ready), tuple(locked))


def secret(prompt: str) -> str | None:
    """The user's answer, to the program that ``SSH_ASKPASS`` names or on the terminal; ``None`` if there is neither."""
    if (answer := _from_askpass(prompt)) or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return answer
    import getpass

    return getpass.getpass(f"{prompt} ", stream=sys.stderr) or None


def _from_askpass(prompt: str) -> str | None:
    """Prompt without a terminal as OpenSSH does: a program shows the prompt and prints the answer."""
    program = os.environ.get("SSH_ASKPASS")
    if not program or (sys.stdin.isatty() and os.environ.get("SSH_ASKPASS_REQUIRE") not in {"force", "prefer"}):
        return None
    try:
        done = subprocess.run([program, prompt], stdout=subprocess.PIPE, check=False, timeout=300)
    except (OSError, subprocess.SubprocessError):
        return None
    answer = done.stdout.decode(errors="replace").rstrip("\r\n")
    return answer if done.returncode == 0 and answer else None


REVOKED = "@revoked"
_LINE = re.compile(r"\s*(?:(@revoked|@cert-authority)\s+|(?!@))(?!#)(\S+)\s+(\S+)\s+(\S+)")
"""The marker, the names, the key's kind and the key; a comment may follow."""


@dataclass(frozen=True)
class Line:
    """A line that names a host and a key."""

    marker: str
    """``@revoked``, ``@cert-authority``, or nothing."""
    names: str
    """The list of patterns, or one hashed name."""
    kind: str
    blob: str
    """The key in base64."""

    @classmethod
    def parse(cls, text: str) -> Line | None:
        """``None`` for a comment, an empty line, or what cannot be read."""
        found = _LINE.match(text)
        return cls(found[1] or "", found[2], found[3], found[4]) if found else None

    @cached_property
    def key(self) -> paramiko.PKey | None:
        """``None`` when it cannot be read, or is of another kind than the line says."""
        try:
            found = paramiko.PKey.from_type_string(self.kind, base64.b64decode(self.blob, validate=True))
        except Exception:  # noqa: BLE001 - of paramiko's, cryptography's and base64's classes; it is no key either way
            return None
        return found if found.get_name() == self.kind else None

    def fits(self, record: str) -> bool:
        """Whether it is for the host that goes by ``record``: ``name``, or ``[name]:port`` for another port than 22."""
        host = record.lower()
        if self.names.startswith("|"):
            return _is_hash_of(self.names, host)
        patterns = self.names.lower().split(",")
        if any(each.startswith("!") and _fits(each[1:], host) for each in patterns):
            return False
        return any(_fits(each, host) for each in patterns if not each.startswith("!"))


@dataclass(frozen=True)
class Known:
    """What the files say about one host."""

    keys: tuple[paramiko.PKey, ...] = ()
    """Its keys on record; it may have several, also of one kind."""
    revoked: frozenset[str] = field(default_factory=frozenset)
    """Keys that it must not show, in base64."""

    def trusts(self, key: paramiko.PKey) -> bool:
        """Whether ``key`` is on record and not revoked."""
        return not self.revokes(key) and any(each == key for each in self.keys)

    def revokes(self, key: paramiko.PKey) -> bool:
        """Whether a line revokes this key: then do not trust its owner."""
        return key.get_base64() in self.revoked

    @property
    def kinds(self) -> tuple[str, ...]:
        """Of its keys, each once."""
        return tuple(dict.fromkeys(key.get_name() for key in self.keys))


def read(files: Iterable[Path], record: str) -> Known:
    """What ``files`` say about the host that goes by ``record``."""
    keys: list[paramiko.PKey] = []
    revoked: set[str] = set()
    for line in _lines(files):
        if line.marker not in {"", REVOKED} or not line.fits(record) or line.key is None:
            continue
        if line.marker == REVOKED:
            revoked.add(line.key.get_base64())
        else:
            keys.append(line.key)
    return Known(tuple(key for key in keys if key.get_base64() not in revoked), frozenset(revoked))


def replaced(lines: Iterable[str], record: str, new: str) -> list[str]:
    """The lines of a file with ``new`` instead of every key for ``record``; all other lines stay.

    A line for other hosts, too, or with patterns stays for those, with ``!record``. Marked lines always stay: a revoked
    key stays revoked.
    """
    kept: list[str] = []
    for text in lines:
        line = Line.parse(text)
        if line is None or line.marker or not line.fits(record):
            kept.append(text)
        elif not line.names.startswith("|") and line.names.lower() != record.lower():
            kept.append(text.replace(line.names, f"{line.names},!{record}", 1))
    return [*kept, new]


def _lines(files: Iterable[Path]) -> Iterator[Line]:
    for file in files:
        with contextlib.suppress(OSError):
            for text in file.read_text(encoding="utf-8", errors="replace").split("\n"):
                if (line := Line.parse(text)) is not None:
                    yield line


def _fits(pattern: str, host: str) -> bool:
    """OpenSSH's patterns: ``*`` is any text, ``?`` any letter, everything else itself."""
    one_star = re.sub(r"\*+", "*", pattern)  # several in a row would make matching exponentially slow
    return re.fullmatch(re.escape(one_star).replace(r"\*", ".*").replace(r"\?", "."), host, re.DOTALL) is not None


def _is_hash_of(hashed: str, host: str) -> bool:
    """``|1|SALT|HMAC-SHA1``."""
    try:
        return hmac.compare_digest(paramiko.HostKeys.hash_host(host, hashed), hashed)
    except Exception:  # noqa: BLE001 - whatever a damaged line lets it raise
        return False
