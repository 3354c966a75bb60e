"""Files of Debian's archive over HTTP: its error, their digests, another try after a broken connection."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from core.console import step
from core.errors import HostError
from toolchains.debian.sources import apts_setting

FRESH_SECONDS = 7 * 24 * 3600
"""Lists older than this are read again before something is downloaded."""


class ArchiveError(HostError):
    """The archive could not be read.

    Args:
        retry: it may succeed when tried again.
        absent: the lists lack it, or are out of date.
        half_updated: the mirror is in the middle of an update.
    """

    def __init__(
        self, what: str, cause: str, hint: str, *, retry: bool = False, absent: bool = False, half_updated: bool = False
    ) -> None:
        super().__init__(what, cause, hint)
        self.retry = retry
        self.absent = absent
        self.half_updated = half_updated


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


def downloading(suite: str, items: Sequence[Item], folder: Path, fetch: Callable[[Callable[[], None]], object]) -> None:
    """Show the step "downloading" while ``fetch`` fills ``folder``; it calls its argument now and then."""
    count = f"{len(items)} packages" if len(items) > 1 else items[0].name.split("_")[0]
    total = sum(item.size for item in items)
    with step(f"downloading {count} (Debian {suite})", announce=False) as shown:

        def watch() -> None:
            # A file may be renamed while we look.
            with contextlib.suppress(FileNotFoundError):
                shown.bytes(sum(file.stat().st_size for file in folder.rglob("*")), total)

        retrying(lambda: fetch(watch))


def retrying(action: Callable[[], object]) -> None:
    """Run ``action``; again, up to three times with growing pauses, when the network was at fault."""
    from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential

    transient = retry_if_exception(lambda error: isinstance(error, ArchiveError) and error.retry)
    policy = Retrying(retry=transient, stop=stop_after_attempt(3), wait=wait_exponential(1, max=8), reraise=True)
    policy(action)


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
    digest, count = hashlib.sha256(), 0
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
    except urllib.error.HTTPError as error:
        error.close()
        _remove(file)
        raise _refused(uri, error) from error
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
        _remove(file)
        cause = str(error.reason if isinstance(error, urllib.error.URLError) else error) or type(error).__name__
        if proxy := _proxies().get(urlsplit(uri).scheme):
            cause += f"; the proxy is {proxy}"
        absent = urlsplit(uri).scheme == "file"
        raise ArchiveError(f"Downloading {uri} failed.", cause, _NETWORK, retry=not absent, absent=absent) from error
    except BaseException:
        _remove(file)
        raise


def _proxies() -> dict[str, str]:
    """Those of the environment, else those that this system's apt uses."""
    apts = {scheme: apts_setting(f"Acquire::{scheme}::Proxy") for scheme in ("http", "https")}
    own = {scheme: proxy for scheme, proxy in apts.items() if proxy not in ("", "DIRECT")}
    return {**own, **urllib.request.getproxies()}


def _remove(file: Path) -> None:
    file.unlink(missing_ok=True)


def _compare(uri: str, allowed: int, exact: bool, count: int, wanted: str, got: str) -> None:
    """Refuse a file that is larger than ``allowed`` bytes, or is not the one that a signed list names."""
    if allowed and (count > allowed or (exact and count != allowed)):
        bytes_ = f"more than {allowed}" if count > allowed else f"{count} of {allowed}"
        raise ArchiveError(
            f"{uri} is not the file that was expected.",
            f"the mirror sent {bytes_} bytes: it is being updated, or something between changes files",
            _OTHER_MIRROR,
            retry=True,
            half_updated=True,
        )
    if wanted and got != wanted:
        raise ArchiveError(
            f"{uri} is not the file that was expected.",
            f"SHA-256 is {got}, expected {wanted}: the mirror is being updated, or something between changes files",
            _OTHER_MIRROR,
            retry=True,
            half_updated=True,
        )


def _refused(uri: str, error: urllib.error.HTTPError) -> ArchiveError:
    cause = f"the mirror says {error.code} {error.reason}"
    if error.code in (404, 410):
        hint = "the mirror lacks it: set SLIPWAY_DEBIAN_MIRROR to a complete Debian mirror"
        return ArchiveError(f"Downloading {uri} failed.", cause, hint, absent=True)
    retry = error.code == 429 or error.code >= 500
    return ArchiveError(f"Downloading {uri} failed.", cause, _OTHER_MIRROR, retry=retry)
