"""The keys that Debian's archive signs with.

From a file that the user names, else the system's own, else Debian's package of them: the archive has it, and its
digest is pinned (``toolchains/tools.toml``), so that the mirror need not be trusted for it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from core.errors import HostError
from core.files import locked, sha256_file, write_atomic
from core.paths import cache_dir
from toolchains.debian import deb
from toolchains.debian.client import ArchiveError, retrying
from toolchains.debian.sources import KEYRING_VARIABLE, Mirror
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
    from toolchains.debian import http

    package, files = scratch / "keys.deb", scratch / "files"
    uri = f"{mirror.uris[0].rstrip('/')}/{path}"
    retrying(lambda: http.get(uri, package, sha256=sha256, most=_MOST))
    files.mkdir()
    deb.extract(package, files)
    return files
