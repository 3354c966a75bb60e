"""A suite's signed list of its files, ``InRelease``: whose it is, how old it is, and what it names."""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass
from email.utils import mktime_tz, parsedate_tz
from pathlib import Path

from core.errors import ConfigError, HostError
from core.files import locked, sha256_file, write_atomic
from core.paths import cache_dir
from toolchains.debian import deb
from toolchains.debian.client import ArchiveError, retrying
from toolchains.debian.deb import need_reader
from toolchains.debian.sources import KEYRING_VARIABLE, Mirror, apts_setting
from toolchains.tools import table

_MOST = 4 << 20
"""Bytes of the package of keys."""


def keyring(mirror: Mirror) -> Path:
    """The file of keys to check signatures of ``mirror`` with.

    Raises:
        HostError: this machine has none, and the mirror has none of the pinned packages.
    """
    return mirror.keyring or _pinned(mirror)


def _pinned(mirror: Mirror) -> Path:
    pinned = table()["debian_keys"]
    kept = cache_dir("debian", "keys")
    file = kept / f"{pinned['sha256'][:16]}.gpg"
    if file.is_file() and sha256_file(file) == pinned["sha256"]:
        return file
    for name, digest in pinned["packages"].items():
        with locked("debian-keys"), tempfile.TemporaryDirectory(prefix=".keys.", dir=kept) as scratch:
            try:
                keys = _unpack(mirror, f"{pinned['folder']}/{name}", digest, Path(scratch)) / pinned["file"]
            except ArchiveError as error:
                if error.absent:
                    continue
                raise
            if sha256_file(keys) != pinned["sha256"]:
                raise HostError(f"The keys in {name} are not those that were pinned.", "", "find out why first")
            write_atomic(file, keys.read_bytes())
            return file
    raise HostError(
        "There are no keys to check Debian's signatures with.",
        f"this machine has no debian-archive-keyring, and {mirror.uris[0]} lacks {', '.join(pinned['packages'])}",
        f"install debian-archive-keyring, or set {KEYRING_VARIABLE} to a file with Debian's keys",
    )


def _unpack(mirror: Mirror, path: str, sha256: str, scratch: Path) -> Path:
    from toolchains.debian import client

    package, files = scratch / "keys.deb", scratch / "files"
    uri = f"{mirror.uris[0].rstrip('/')}/{path}"
    retrying(lambda: client.get(uri, package, sha256=sha256, most=_MOST))
    files.mkdir()
    deb.extract(package, files)
    return files


EXPIRED_VARIABLE = "SLIPWAY_DEBIAN_EXPIRED_DAYS"
"""Environment variable: days for which lists are still accepted after their own end of validity."""

_AHEAD = 3600.0
"""Seconds by which this machine's clock may be behind the archive's."""
_KEYS = "see whether something between changes files; else set SLIPWAY_DEBIAN_MIRROR to another mirror"
_DAY = 86400.0


@dataclass(frozen=True)
class Release:
    """What a suite's signed list says."""

    names: frozenset[str]
    """The suite's code name and its name of today: ``bookworm``, ``oldstable``."""
    date: float
    """Seconds since the epoch."""
    valid_until: float | None
    by_hash: bool
    files: dict[str, tuple[int, str]]
    """Size and SHA-256 by path below ``dists/SUITE``."""


def shown(seconds: float) -> str:
    """A moment, for messages: ``2026-07-11 10:16 UTC``."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))


def read(raw: bytes, keyring: Path, suite: str) -> Release:
    """The list ``raw`` if one of the keys in ``keyring`` has signed it for ``suite``.

    Only the signed text counts: what stands before or behind it is not looked at.

    Raises:
        ArchiveError: no valid signature by these keys, or another suite's list.
    """
    text = _signed_text(raw, keyring, suite)
    from debian.deb822 import Release as Fields

    fields = Fields(text)
    names = frozenset(name for name in (fields.get("Codename"), fields.get("Suite")) if name)
    if suite not in names or fields.get("Origin") != "Debian" or fields.get("Label") != "Debian":
        said = ", ".join(f"{key} {fields.get(key)}" for key in ("Origin", "Label", "Suite", "Codename"))
        raise ArchiveError(f"The mirror's list is not Debian {suite}'s.", f"it is signed, and says: {said}", _KEYS)
    date = _moment(fields.get("Date"))
    files = {row["name"]: (int(row["size"]), str(row["sha256"]).lower()) for row in fields.get("SHA256", [])}
    if date is None or not files:
        raise ArchiveError(f"Debian {suite}'s list has no date or names no files.", "", _KEYS)
    by_hash = fields.get("Acquire-By-Hash", "").lower() == "yes"
    return Release(names, date, _moment(fields.get("Valid-Until")), by_hash, files)


def _signed_text(raw: bytes, keyring: Path, suite: str) -> bytes:
    need_reader()
    import pysequoia

    keys = pysequoia.Cert.split_file(str(keyring)) if keyring.stat().st_size else []
    try:
        verified = pysequoia.verify(raw, lambda _: keys)
    except Exception as error:  # the library raises no class of its own
        raise ArchiveError(
            f"The signature of Debian {suite}'s list is not valid.",
            f"{str(error).strip() or type(error).__name__}; the keys are those in {keyring}",
            _KEYS,
        ) from error
    if not verified.valid_sigs or not verified.bytes:
        raise ArchiveError(f"Debian {suite}'s list is not signed.", f"the keys are those in {keyring}", _KEYS)
    return bytes(verified.bytes)


def _moment(text: str | None) -> float | None:
    parts = parsedate_tz(text or "")
    return None if parts is None else float(mktime_tz(parts))


def _days_after_end() -> float:
    text = os.environ.get(EXPIRED_VARIABLE, "")
    try:
        days = float(text) if text else 0.0
    except ValueError:
        days = -1.0
    if not 0 <= days < float("inf"):
        raise ConfigError(f"{EXPIRED_VARIABLE}={text} is not a number of days.", "", f"unset {EXPIRED_VARIABLE}")
    return days


def check_age(suite: str, new: Release, kept: Release | None, now: float) -> None:
    """Refuse a list that is older than the one that is kept, from the future, or past its end.

    Raises:
        ArchiveError: it is one of these; ``retry`` where the kept list may serve on.
    """
    if kept is not None and new.date < kept.date:
        raise ArchiveError(
            f"The mirror's list of Debian {suite} is older than the one that was read before.",
            f"it is of {shown(new.date)}, the other of {shown(kept.date)}: the mirror is behind, or somebody offers "
            "old packages with known holes",
            "the same command again in a day, or set SLIPWAY_DEBIAN_MIRROR to another mirror",
            retry=True,
        )
    if new.date > now + _AHEAD:
        raise ArchiveError(
            f"The mirror's list of Debian {suite} is of {shown(new.date)}, which is in the future.",
            f"this machine's clock says {shown(now)}",
            "set the clock, then the same command again",
        )
    checked = apts_setting("Acquire::Check-Valid-Until").lower() not in (
        "false",
        "no",
        "0",
        "off",
        "without",
        "disable",
    )
    if checked and new.valid_until is not None and now > new.valid_until + _days_after_end() * _DAY:
        raise ArchiveError(
            f"The mirror's list of Debian {suite} was valid until {shown(new.valid_until)}.",
            "the mirror is no longer updated, or this machine's clock is wrong",
            f"set SLIPWAY_DEBIAN_MIRROR to another mirror; {EXPIRED_VARIABLE}=30 accepts it for 30 days more",
        )
