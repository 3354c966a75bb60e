"""Files of Debian's archive over HTTP, and a suite's signed list of its files, ``InRelease``.

Of a file: its error, its digest, another try after a broken connection. Of the list: whose it is, how old it is, and
what it names.
"""

from __future__ import annotations

import hashlib
import http.client
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import mktime_tz, parsedate_tz
from pathlib import Path
from urllib.parse import unquote, urlsplit

from core.errors import HostError
from core.files import locked, sha256_file, write_atomic
from core.paths import cache_dir
from toolchains.debian import tree
from toolchains.debian.sources import KEYRING_VARIABLE, Mirror, apts_setting
from toolchains.debian.tree import need_reader
from toolchains.tools import table

FRESH_SECONDS = 7 * 24 * 3600
"""Lists older than this are read again before something is downloaded."""


class ArchiveError(HostError):
    """The archive could not be read.

    Args:
        retry: it may succeed when tried again.
        absent: the lists lack it, or are out of date.
    """

    def __init__(self, what: str, cause: str, hint: str, *, retry: bool = False, absent: bool = False) -> None:
        super().__init__(what, cause, hint)
        self.retry = retry
        self.absent = absent


@dataclass(frozen=True)
class Item:
    """One file of the archive that would be downloaded."""

    uri: str
    name: str
    size: int
    sha256: str

    @property
    def spec(self) -> str:
        """``package=version``, which names this file's package."""
        package, version, _ = self.name.removesuffix(".deb").split("_", 2)
        return f"{package}={unquote(version)}"


def retrying(action: Callable[[], object]) -> None:
    """Run ``action``; again, up to three times with growing pauses, when the network was at fault."""
    from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential

    transient = retry_if_exception(lambda error: isinstance(error, ArchiveError) and error.retry)
    Retrying(retry=transient, stop=stop_after_attempt(3), wait=wait_exponential(1, max=8), reraise=True)(action)


SECONDS = 60.0
"""A mirror that sends nothing for so long is given up."""

_CHUNK = 1 << 18
_NETWORK = "check the network and the proxy (http_proxy, https_proxy), then the same command again"
_OTHER_MIRROR = "the same command again in an hour, or set SLIPWAY_DEBIAN_MIRROR to another mirror"
_SCHEMES = ("http", "https", "file")


def get(
    uri: str, file: Path, *, size: int = 0, sha256: str = "", most: int = 0, watch: Callable[[], None] | None = None
) -> None:
    """Download ``uri`` into ``file``, whose folder exists.

    Args:
        size, sha256: of the file, if a signed list names them; another file is refused and removed.
        most: bytes, for a file whose size is not known.
        watch: called after each piece.

    Raises:
        ArchiveError: no such file, no network, or other bytes than expected.
    """
    if urlsplit(uri).scheme not in _SCHEMES:
        raise ArchiveError(
            f"{uri} cannot be read.",
            f"only addresses that begin with {', '.join(_SCHEMES)} can",
            "set SLIPWAY_DEBIAN_MIRROR to such an address",
        )
    digest, count, complete = hashlib.sha256(), 0, False
    try:
        request = urllib.request.Request(uri, headers={"User-Agent": "slipway"})  # noqa: S310 - checked above
        opener = urllib.request.build_opener(urllib.request.ProxyHandler(_proxies()))
        with opener.open(request, timeout=SECONDS) as source, file.open("wb") as out:
            while chunk := source.read(_CHUNK):
                count += len(chunk)
                if count > (size or most or count):
                    break
                digest.update(chunk)
                out.write(chunk)
                if watch is not None:
                    watch()
        _compare(uri, size or most, bool(size), count, sha256, digest.hexdigest())
        complete = True
    except urllib.error.HTTPError as error:
        error.close()
        raise _refused(uri, error) from error
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
        cause = str(error.reason if isinstance(error, urllib.error.URLError) else error) or type(error).__name__
        if proxy := _proxies().get(urlsplit(uri).scheme):
            cause += f"; the proxy is {proxy}"
        absent = urlsplit(uri).scheme == "file"
        raise ArchiveError(f"Downloading {uri} failed.", cause, _NETWORK, retry=not absent, absent=absent) from error
    finally:
        if not complete:
            file.unlink(missing_ok=True)


def _proxies() -> dict[str, str]:
    """Those of the environment, else those that this system's apt uses."""
    apts = {scheme: apts_setting(f"Acquire::{scheme}::Proxy") for scheme in ("http", "https")}
    own = {scheme: proxy for scheme, proxy in apts.items() if proxy not in ("", "DIRECT")}
    return {**own, **urllib.request.getproxies()}


def _compare(uri: str, allowed: int, exact: bool, count: int, wanted: str, got: str) -> None:
    """Refuse a file that is larger than ``allowed`` bytes, or is not the one that a signed list names."""
    why = ""
    if allowed and (count > allowed or (exact and count != allowed)):
        why = f"the mirror sent {f'more than {allowed}' if count > allowed else f'{count} of {allowed}'} bytes"
    elif wanted and got != wanted:
        why = f"SHA-256 is {got}, expected {wanted}"
    if why:
        raise ArchiveError(
            f"{uri} is not the file that was expected.",
            f"{why}: the mirror is being updated, or something between changes files",
            _OTHER_MIRROR,
            retry=True,
        )


def _refused(uri: str, error: urllib.error.HTTPError) -> ArchiveError:
    absent, retry = error.code in (404, 410), error.code == 429 or error.code >= 500
    hint = "the mirror lacks it: set SLIPWAY_DEBIAN_MIRROR to a complete Debian mirror" if absent else _OTHER_MIRROR
    cause = f"the mirror says {error.code} {error.reason}"
    return ArchiveError(f"Downloading {uri} failed.", cause, hint, retry=retry, absent=absent)


_MOST = 4 << 20
"""Bytes of the package of keys."""


def keyring(mirror: Mirror) -> Path:
    """The file of keys to check signatures of ``mirror`` with: this system's, else those of a pinned package.

    Raises:
        HostError: this machine has none, and the mirror has none of the pinned packages.
    """
    if mirror.keyring:
        return mirror.keyring
    pinned = table()["debian_keys"]
    kept = cache_dir("debian", "keys")
    file = kept / f"{pinned['sha256'][:16]}.gpg"
    if file.is_file() and sha256_file(file) == pinned["sha256"]:
        return file
    for name, digest in pinned["packages"].items():
        uri = f"{mirror.uri.rstrip('/')}/{pinned['folder']}/{name}"
        with locked("debian-keys"), tempfile.TemporaryDirectory(prefix=".keys.", dir=kept) as scratch:
            package = Path(scratch, "keys.deb")
            try:
                retrying(lambda: get(uri, package, sha256=digest, most=_MOST))  # noqa: B023 - called at once
            except ArchiveError as error:
                if error.absent:
                    continue
                raise
            tree.extract(package, Path(scratch))
            keys = Path(scratch, pinned["file"])
            if sha256_file(keys) != pinned["sha256"]:
                raise HostError(f"The keys in {name} are not those that were pinned.", "", "find out why first")
            write_atomic(file, keys.read_bytes())
            return file
    raise HostError(
        "There are no keys to check Debian's signatures with.",
        f"this machine has no debian-archive-keyring, and {mirror.uri} lacks {', '.join(pinned['packages'])}",
        f"install debian-archive-keyring, or set {KEYRING_VARIABLE} to a file with Debian's keys",
    )


_AHEAD = 3600.0
"""Seconds by which this machine's clock may be behind the archive's."""
_KEYS = "see whether something between changes files; else set SLIPWAY_DEBIAN_MIRROR to another mirror"


@dataclass(frozen=True)
class Release:
    """What a suite's signed list says."""

    date: float
    """Seconds since the epoch."""
    valid_until: float | None
    files: dict[str, tuple[int, str]]
    """Size and SHA-256 by path below ``dists/SUITE``."""


def shown(seconds: float) -> str:
    """A moment, for messages: ``2026-07-11 10:16 UTC``."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))


def read_release(raw: bytes, keyring: Path, suite: str) -> Release:
    """The list ``raw`` if one of the keys in ``keyring`` has signed it for ``suite``.

    Only the signed text counts: what stands before or behind it is not looked at.

    Raises:
        ArchiveError: no valid signature by these keys, or another suite's list.
    """
    text = _signed_text(raw, keyring, suite)
    from debian.deb822 import Release as Fields

    fields = Fields(text)
    names = (fields.get("Codename"), fields.get("Suite"))
    if suite not in names or fields.get("Origin") != "Debian" or fields.get("Label") != "Debian":
        said = ", ".join(f"{key} {fields.get(key)}" for key in ("Origin", "Label", "Suite", "Codename"))
        raise ArchiveError(f"The mirror's list is not Debian {suite}'s.", f"it is signed, and says: {said}", _KEYS)
    date = _moment(fields.get("Date"))
    files = {row["name"]: (int(row["size"]), str(row["sha256"]).lower()) for row in fields.get("SHA256", [])}
    if date is None or not files:
        raise ArchiveError(f"Debian {suite}'s list has no date or names no files.", "", _KEYS)
    return Release(date, _moment(fields.get("Valid-Until")), files)


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


def _checked() -> bool:
    """Whether this system's apt looks at the end of a list's validity."""
    return apts_setting("Acquire::Check-Valid-Until").lower() not in ("false", "no", "0", "off", "without", "disable")


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
    if new.valid_until is not None and now > new.valid_until and _checked():
        raise ArchiveError(
            f"The mirror's list of Debian {suite} was valid until {shown(new.valid_until)}.",
            "the mirror is no longer updated, or this machine's clock is wrong",
            "set SLIPWAY_DEBIAN_MIRROR to another mirror, or tell apt to accept it (Acquire::Check-Valid-Until)",
        )
