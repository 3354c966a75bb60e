"""Debian packages without root: fetched once, kept, unpacked.

Serves sysroots, emulators, kernels and upstream tarballs. Every file is checked against the archive's signed
lists, then kept; the same request again is answered from the cache with no network.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, unquote

from core import console
from core.errors import HostError
from core.files import disk_errors, locked, sealed, sha256_bytes, sha256_file, write_json
from core.paths import cache_dir
from toolchains.debian.client import FRESH_SECONDS, ArchiveError, Item, get, retrying
from toolchains.debian.reader import Reader
from toolchains.debian.sources import find_mirror, host_arch
from toolchains.debian.tree import unpack

T = TypeVar("T")

_RECORD = 1
"""Raised when the shape of a record or of an unpacked tree changes."""

_STAMP = ".slipway-tree.json"


def _trouble(*parts: Callable[[], object]) -> HostError | None:
    """The error of the first of these functions that fails."""
    try:
        for part in parts:
            part()
    except HostError as error:
        return error
    return None


def available() -> str:
    """Why Debian packages are not available on this machine; empty if they are."""
    error = _trouble(find_mirror)
    return f"{error.what.rstrip('.')}: {error.cause}" if error else ""


def runnable() -> str:
    """Why programs of Debian's packages do not run on this machine; empty if they do."""
    error = _trouble(host_arch)
    return f"{error.what.rstrip('.')}: {error.cause}" if error else available()


def fix() -> str:
    """The next step where they are not `available`."""
    error = _trouble(find_mirror, host_arch)
    return error.hint if error else ""


def _key(suite: str, arch: str, packages: Sequence[str], closure: bool) -> str:
    return sha256_bytes(json.dumps([_RECORD, suite, arch, sorted(set(packages)), closure]).encode())[:16]


def _record_file(suite: str, arch: str, key: str) -> Path:
    return cache_dir("debian", f"{suite}-{arch}", "requests") / f"{key}.json"


def _pool(suite: str, arch: str) -> Path:
    return cache_dir("debian", f"{suite}-{arch}", "pool")


def _cached(suite: str, arch: str, key: str) -> list[Path] | None:
    """The files of an earlier identical request, if every one is there with the recorded digest."""
    pool = _pool(suite, arch)
    try:
        entries = json.loads(_record_file(suite, arch, key).read_text(encoding="utf-8"))["files"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    whole = all(_intact(pool / entry["name"], entry["size"], entry["sha256"]) for entry in entries)
    return [pool / entry["name"] for entry in entries] if whole else None


def _intact(file: Path, size: int, sha256: str) -> bool:
    return file.is_file() and file.stat().st_size == size and sha256_file(file) == sha256


def fetch(suite: str, arch: str, packages: Sequence[str], closure: bool = False) -> list[Path]:
    """The ``.deb`` files of ``packages`` (``name`` or ``name=version``), with all they depend on if ``closure``.

    Args:
        suite: ``bookworm``, ``trixie``, ``forky``.
        arch: Debian's name: ``amd64``, ``arm64``, ``armhf``, ``armel``, ``i386``.

    Raises:
        HostError: no mirror is named, no network, a full disk, or the mirror lacks a package.
    """
    key = _key(suite, arch, packages, closure)
    with locked(f"debian-{suite}-{arch}"):
        if (files := _cached(suite, arch, key)) is None:
            find_mirror()
            with disk_errors("downloading Debian packages"):
                files = _download(Reader(suite, arch), packages, closure, key)
    return files


def _download(archive: Reader, packages: Sequence[str], closure: bool, key: str) -> list[Path]:
    for left in archive.folder.glob(".download.*"):  # of a process that was killed; the caller holds the lock
        shutil.rmtree(left, ignore_errors=True)
    items = _with_lists(archive, lambda: _fill_pool(archive, packages, closure))
    entries = [{"name": item.name, "size": item.size, "sha256": item.sha256} for item in items]
    write_json(_record_file(archive.suite, archive.arch, key), {"packages": sorted(packages), "files": entries})
    return [_pool(archive.suite, archive.arch) / item.name for item in items]


def _with_lists(archive: Reader, action: Callable[[], T]) -> T:
    """``action``, with lists that are not old; again with new ones if they lack what it needs.

    The archive moves on: a file the lists name may be gone, a package they lack may have come.
    """
    fresh = archive.lists_age > FRESH_SECONDS and _refresh(archive)
    try:
        return action()
    except ArchiveError as error:
        if fresh or not error.absent:
            raise
        archive.refresh()
        return action()


def _refresh(archive: Reader) -> bool:
    """Read the lists again. Without a network the old lists are used: the files may be here already."""
    had = archive.lists_age != float("inf")
    try:
        archive.refresh()
    except ArchiveError as error:
        if not (had and error.retry):
            raise
        console.note(f"{error.what} What was read before serves on: {error.cause}")
        return False
    return True


def _fill_pool(archive: Reader, packages: Sequence[str], closure: bool) -> list[Item]:
    if not (items := archive.plan(packages, closure)):
        raise HostError(
            f"The archive has no files for {', '.join(packages)}.",
            f"suite {archive.suite}",
            "set SLIPWAY_DEBIAN_MIRROR to a complete Debian mirror",
        )
    pool = _pool(archive.suite, archive.arch)
    if missing := [item for item in items if not _intact(pool / item.name, item.size, item.sha256)]:
        with tempfile.TemporaryDirectory(prefix=".download.", dir=pool.parent) as name:
            folder = Path(name)
            archive.download(missing, folder)
            for item in missing:
                (folder / item.name).replace(pool / item.name)
    return items


def tree(
    suite: str, arch: str, packages: Sequence[str], closure: bool = False, name: str = "", keep: Sequence[str] = ()
) -> Path:
    """A folder with ``packages`` unpacked, merged-/usr, cached; arguments and errors as `fetch`.

    Args:
        name: how the folder's name begins; the first package's name by default.
        keep: patterns of the paths to keep (``usr/bin/qemu-arm``); everything by default.
    """
    root = tree_root(suite, arch, packages, closure, name, keep)

    def make(new: Path) -> None:
        files = fetch(suite, arch, packages, closure)
        unpack(files, new, keep)
        names = sorted(Item("", file.name, 0, "").spec.split("=", 1) for file in files)
        write_json(new / _STAMP, {"packages": dict(names)})

    return sealed.made(root, f"debian-tree-{suite}-{arch}-{root.name.rpartition('-')[2]}", make)


def tree_root(
    suite: str, arch: str, packages: Sequence[str], closure: bool = False, name: str = "", keep: Sequence[str] = ()
) -> Path:
    """Where `tree` puts the folder, whether it is there or not."""
    key = _key(suite, arch, packages, closure)
    if keep:
        key = sha256_bytes(json.dumps([key, sorted(keep)]).encode())[:16]
    return cache_dir("debian", f"{suite}-{arch}", "trees") / f"{name or packages[0].split('=')[0]}-{key}"


def versions(root: Path) -> dict[str, str]:
    """Package names and versions of a folder that `tree` made."""
    return dict(json.loads((root / _STAMP).read_text(encoding="utf-8"))["packages"])


def source(suite: str, package: str, filename: str, sha256: str) -> Path:
    """A file of a Debian source package, whatever the suite's version is now: its digest alone decides.

    Raises:
        HostError: as `fetch`; or the archive no longer has it, or has other bytes in its place.
    """
    file = cache_dir("debian", "sources", sha256[:16]) / filename
    letters = package[:4] if package.startswith("lib") else package[:1]
    with locked(f"debian-source-{sha256[:16]}"), disk_errors("downloading sources"):
        if not (file.is_file() and sha256_file(file) == sha256):
            try:
                _pinned(f"{find_mirror().uri.rstrip('/')}/pool/main/{letters}/{package}", file, filename, sha256)
            except ArchiveError as error:
                if not error.absent:
                    raise
                raise HostError(
                    f"Debian no longer has {filename}.",
                    f"{suite} has another version of it by now, and this mirror keeps no older one",
                    "set SLIPWAY_DEBIAN_MIRROR to a mirror that still has it, or INVOKE_SLIPWAY_SOURCES=git",
                ) from error
    return file


def _pinned(folder: str, file: Path, name: str, sha256: str) -> None:
    """Download what is called ``name`` in the archive's ``folder``, if its digest is right."""
    with (
        tempfile.TemporaryDirectory(prefix=".pinned.", dir=file.parent) as scratch,
        console.step(f"downloading {file.name}", announce=False),
    ):
        new = Path(scratch, "new")
        retrying(lambda: get(f"{folder}/{quote(name)}", new, sha256=sha256))
        new.replace(file)


def binary(suite: str, filename: str, sha256: str) -> Path:
    """The binary package ``filename`` (``libc6_2.41-12_amd64.deb``) as it was pinned, whatever the suite's is now.

    A point release removes files on the day that it comes. If it left a rebuild of the same version, which Debian's
    signed list vouches for, the file is that one; its name says so.

    Raises:
        HostError: as `fetch`; or the suite has another version of it by now (the message says which); or the
            digest differs.
    """
    package, version, arch = filename.removesuffix(".deb").split("_")
    file, version = _pool(suite, arch) / filename, unquote(version)
    if file.is_file() and sha256_file(file) == sha256:
        return file
    with locked(f"debian-{suite}-{arch}"), disk_errors("downloading Debian packages"):
        archive = Reader(suite, arch)
        newest = _with_lists(archive, lambda: archive.plan([package], closure=False)[0])
        try:
            # Names in the archive lack the version's epoch.
            _pinned(newest.uri.rpartition("/")[0], file, f"{package}_{version.rpartition(':')[2]}_{arch}.deb", sha256)
        except ArchiveError as error:
            if not error.absent:
                raise
            archive.refresh()
            now = archive.plan([package], closure=False)[0].spec.partition("=")[2]
            if _rebuilt(version) != _rebuilt(now):
                raise HostError(
                    f"Debian {suite} no longer has {package} {version} for {arch}.",
                    f"a point release replaced it: there is {now} now, and this mirror keeps no older one",
                    "set SLIPWAY_DEBIAN_MIRROR to a mirror that still has it; or pin the newer one, digest included: "
                    f"python -m toolchains.debian.fetch_source pins {suite} {arch} {package}",
                ) from error
        else:
            return file
    console.note(f"{package} {version} is gone from Debian {suite}: {now} took its place")
    return fetch(suite, arch, [f"{package}={now}"])[0]


def _rebuilt(version: str) -> str:
    """A version without what a rebuild or an update of a stable release appends: 2.41-12+deb13u4, 1.3-1+b1."""
    return re.sub(r"(?:\+(?:deb\d+u\d+|b\d+))+$", "", version)
