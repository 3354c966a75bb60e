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
from typing import Any

import paramiko

from core.errors import ConfigError

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


def defaults() -> list[Path]:
    """The user's own key files, which are offered by default."""
    return [file for file in (Path(f"~/.ssh/id_{kind}").expanduser() for kind in _DEFAULTS) if file.is_file()]


def load(file: Path, device: str) -> paramiko.PKey | None:
    """The private key that ``device`` names; ``None`` when it needs a passphrase.

    Raises:
        ConfigError: missing, not a private key, or readable by others.
    """
    if why := exposed(file):
        raise ConfigError(f"{device}: the private key {file} is not used.", why, f"chmod 600 {file}")
    try:
        return paramiko.PKey.from_path(file)
    except FileNotFoundError as error:
        raise ConfigError(f"{device}: there is no key file {file}.", "", "correct key = in devices.toml") from error
    except (OSError, ValueError, TypeError, paramiko.SSHException) as error:
        if _means_locked(error):
            return None  # the agent may hold it unlocked; if not, the user is prompted for its passphrase
        raise ConfigError(
            f"{device}: {file} is not a private key.", str(error), "correct key = in devices.toml"
        ) from error


def is_locked(file: Path) -> bool:
    """Whether the private key needs a passphrase."""
    try:
        paramiko.PKey.from_path(file)
    except (OSError, ValueError, TypeError, paramiko.SSHException) as error:
        return _means_locked(error)
    return False


def unlocked(file: Path, phrase: str) -> paramiko.PKey:
    """The private key, opened.

    Raises:
        paramiko.SSHException, ValueError, TypeError, OSError: that is not its passphrase.
    """
    secret: Any = phrase.encode()  # paramiko passes it on and needs bytes, although its annotation says otherwise
    return paramiko.PKey.from_path(file, secret)


def _means_locked(error: Exception) -> bool:
    return isinstance(error, (TypeError, paramiko.PasswordRequiredException)) or "password" in str(error).lower()


def secret(prompt: str) -> str | None:
    """The user's answer, to the program that ``SSH_ASKPASS`` names or on the terminal; ``None`` if there is neither."""
    return _from_askpass(prompt) or _from_terminal(prompt)


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


def _from_terminal(prompt: str) -> str | None:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    import getpass

    return getpass.getpass(f"{prompt} ", stream=sys.stderr) or None


REVOKED = "@revoked"
_MARKERS = (REVOKED, "@cert-authority")


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
    rest: str = ""
    """A comment."""

    @classmethod
    def parse(cls, text: str) -> Line | None:
        """``None`` for a comment, an empty line, or what cannot be read."""
        words = text.split(None, 1)
        marker = ""
        if words and words[0].startswith("@"):
            marker, words = words[0], words[1].split(None, 1) if len(words) > 1 else []
            if marker not in _MARKERS:
                return None
        if len(words) < 2 or words[0].startswith("#"):
            return None
        parts = words[1].split(None, 2)
        if len(parts) < 2:
            return None
        return cls(marker, words[0], parts[0], parts[1], parts[2].strip() if len(parts) > 2 else "")

    @property
    def text(self) -> str:
        """As a file has it."""
        return " ".join(part for part in (self.marker, self.names, self.kind, self.blob, self.rest) if part)

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
        found = False
        for pattern in self.names.lower().split(","):
            if pattern.startswith("!"):
                if _fits(pattern[1:], host):
                    return False
            else:
                found = found or _fits(pattern, host)
        return found

    def without(self, record: str) -> Line | None:
        """The line as it is when it is not for ``record`` any more; ``None`` when nothing of it is left.

        A pattern that stands for other hosts too stays, with ``!record`` beside it.
        """
        if not self.fits(record):
            return self
        if self.names.startswith("|"):
            return None
        left = ",".join(name for name in self.names.split(",") if name.lower() != record.lower())
        if not left or all(name.startswith("!") for name in left.split(",")):
            return None
        line = Line(self.marker, left, self.kind, self.blob, self.rest)
        return Line(line.marker, f"{left},!{record}", self.kind, self.blob, self.rest) if line.fits(record) else line


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

    Marked lines always stay: a revoked key stays revoked.
    """
    kept: list[str] = []
    for text in lines:
        line = Line.parse(text)
        if line is None or line.marker or not line.fits(record):
            kept.append(text)
        elif (left := line.without(record)) is not None:
            kept.append(left.text)
    return [*kept, new]


def _lines(files: Iterable[Path]) -> Iterator[Line]:
    for file in files:
        with contextlib.suppress(OSError):
            for text in file.read_text(encoding="utf-8", errors="replace").split("\n"):
                if (line := Line.parse(text)) is not None:
                    yield line


def _fits(pattern: str, host: str) -> bool:
    """OpenSSH's patterns: ``*`` is any text, ``?`` any letter, everything else itself."""
    words = "".join(
        ".*" if letter == "*" else "." if letter == "?" else re.escape(letter) for letter in _one_star(pattern)
    )
    return re.fullmatch(words, host, re.DOTALL) is not None


def _one_star(pattern: str) -> str:
    """Several stars in a row become one: they would make matching exponentially slow."""
    return re.sub(r"\*+", "*", pattern)


def _is_hash_of(hashed: str, host: str) -> bool:
    """``|1|SALT|HMAC-SHA1``."""
    try:
        return hmac.compare_digest(paramiko.HostKeys.hash_host(host, hashed), hashed)
    except Exception:  # noqa: BLE001 - whatever a damaged line lets it raise
        return False
