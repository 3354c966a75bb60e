"""Files of known hosts, read as OpenSSH reads them (sshd(8), "SSH_KNOWN_HOSTS FILE FORMAT").

A line is for a host when a pattern of its list fits (``*``, ``?``) or its hashed name does, and none that begins with
``!`` fits. A key that a line for the host marks as ``@revoked`` is refused, whatever other lines say. A line of a
certificate authority (``@cert-authority``) is not a host's own key: certificates of hosts are not checked here, so such
a host counts as unknown. A damaged line is skipped.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import hmac
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import paramiko

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
    parts = hashed.split("|")
    if len(parts) != 4 or parts[:2] != ["", "1"]:
        return False
    try:
        salt, want = (base64.b64decode(part, validate=True) for part in parts[2:])
    except (binascii.Error, ValueError):
        return False
    return len(want) == 20 and hmac.compare_digest(hmac.new(salt, host.encode(), hashlib.sha1).digest(), want)
