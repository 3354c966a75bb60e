"""One file over HTTP: an interrupted download goes on where it ended, and only the right SHA-256 is kept.

Runs before anything is installed, so it uses the standard library only.
"""

from __future__ import annotations

import contextlib
import http.client
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from core.files import sha256_file

SECONDS = 30.0
"""A server that sends nothing for so long is asked again."""
_TRIES = 3  # in a row that bring no byte
_PAUSE = 1.0  # seconds before the next try; twice as long after each that brought none
_CHUNK = 1 << 18
_MOST = 1 << 31  # bytes; no wheel is larger


class DownloadError(Exception):
    """The file could not be had; the text says why.

    Args:
        found: the SHA-256 of what came, if it was another file.
    """

    def __init__(self, why: str, found: str = "") -> None:
        super().__init__(why)
        self.found = found


@dataclass(frozen=True)
class Way:
    """How servers are reached: what the user told pip. What is empty is as the environment and the system say."""

    proxy: str = ""
    authorities: str = ""
    """A file of certificate authorities."""


def download(address: str, file: Path, sha256: str, *, way: Way, watch: Callable[[int], None]) -> None:
    """Download ``address`` into ``file``, whose folder exists. What came of an earlier try is beside it, as ``.part``.

    Args:
        watch: called with the bytes that are there, after each piece.

    Raises:
        DownloadError: no network, no such file, or other bytes than expected.
    """
    part = file.with_name(f"{file.name}.part")
    opener = _opener(way)
    failed = 0
    fresh = not part.exists()  # nothing in it is of an earlier try
    while True:
        before = _size(part)
        try:
            _more(opener, address, part, watch)
        except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError, ssl.SSLError) as error:
            failed = 0 if _size(part) > before else failed + 1
            if failed == _TRIES or _is_final(error):
                raise DownloadError(_why(error)) from error
            time.sleep(_PAUSE * 2**failed)
            continue
        found = sha256_file(part)
        if found == sha256:
            part.replace(file)
            return
        part.unlink()
        if fresh:
            raise DownloadError(f"it sends another file, whose SHA-256 is {found}", found)
        fresh = True  # the old part may have been of another file: once more from its first byte


def _opener(way: Way) -> urllib.request.OpenerDirector:
    trust = ssl.create_default_context(cafile=way.authorities or None)
    if not way.authorities:
        with contextlib.suppress(ImportError):  # a system without ca-certificates
            import certifi

            trust.load_verify_locations(certifi.where())
    # Without an argument the proxies are those of the environment: https_proxy, no_proxy.
    proxies = urllib.request.ProxyHandler({"http": way.proxy, "https": way.proxy} if way.proxy else None)
    return urllib.request.build_opener(proxies, urllib.request.HTTPSHandler(context=trust))


def _more(opener: urllib.request.OpenerDirector, address: str, part: Path, watch: Callable[[int], None]) -> None:
    """Add what is missing to ``part``; it is complete when this returns."""
    have = _size(part)
    if urlsplit(address).scheme not in ("http", "https"):
        raise DownloadError("only addresses that begin with http and https can be read")
    request = urllib.request.Request(address, headers={"User-Agent": "slipway"})  # noqa: S310 - checked above
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        source = opener.open(request, timeout=SECONDS)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416 and have:  # nothing is missing
            return
        raise
    with source:
        if source.status != 206:  # it sends the whole file
            have = 0
        with part.open("r+b" if have else "wb") as out:
            out.seek(have)
            out.truncate()
            while chunk := source.read1(_CHUNK):
                have += len(chunk)
                out.write(chunk)
                watch(have)
                if have > _MOST:
                    raise DownloadError("it sends more than a wheel can have")
        if source.length:
            raise http.client.IncompleteRead(b"", source.length)


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0


def _is_final(error: Exception) -> bool:
    """Whether the next try would end the same way."""
    if isinstance(error, urllib.error.HTTPError):
        return error.code < 500 and error.code not in (408, 429)
    return isinstance(getattr(error, "reason", error), ssl.SSLCertVerificationError)


def _why(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"the server says {error.code} {error.reason}"
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    return str(reason) or type(error).__name__
