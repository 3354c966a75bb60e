"""What is in a ``.deb``, read by python-debian."""

from __future__ import annotations

import gzip
import lzma
import os
import shutil
import stat
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import IO, Any

from core.errors import HostError

_HINT = "free some space when the disk is full; else ./inv clean --cache, then the same command again"


def need_reader() -> None:
    """Install python-debian and the OpenPGP library the first time."""
    from core.environment import ensure

    ensure("debian")


def _opened(package: Path) -> Any:
    need_reader()
    from debian.arfile import ArError
    from debian.debfile import DebError, DebFile

    try:
        return DebFile(str(package))
    except (ArError, DebError, ValueError, OSError, EOFError) as error:
        raise _damaged(package, str(error)) from error


def _damaged(package: Path, cause: str) -> HostError:
    return HostError(f"{package.name} is not a whole Debian package.", cause, _HINT)


def extract(package: Path, root: Path) -> None:
    """Unpack the package's files into ``root``; no maintainer script runs.

    Raises:
        HostError: it is damaged, has a file outside of ``root``, or the disk is full.
    """
    # Whole first: tarfile takes an archive that ends early for one that ends there.
    with tempfile.TemporaryFile() as plain:
        write_files_archive(package, plain)
        plain.seek(0)
        try:
            with tarfile.open(fileobj=plain, mode="r:") as tar:
                for entry in tar:
                    _extract_entry(tar, entry, root, package)
        except tarfile.TarError as error:
            raise _damaged(package, str(error)) from error


def _extract_entry(tar: tarfile.TarFile, entry: tarfile.TarInfo, root: Path, package: Path) -> None:
    parts = [part for part in PurePosixPath(entry.name).parts if part != "/"]
    path = root.joinpath(*parts)
    if not parts:
        return  # the folder itself
    if ".." in parts or not path.parent.resolve().is_relative_to(root.resolve()):
        raise _damaged(package, f"{entry.name} would be outside of the folder that it is unpacked into")
    if entry.isdir():
        if not path.is_dir():  # a link to a folder stays: /lib in the merged layout
            path.mkdir(parents=True)
            path.chmod(entry.mode & 0o7777)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    if entry.issym():
        path.symlink_to(entry.linkname)
    elif entry.islnk():
        linked = [part for part in PurePosixPath(entry.linkname).parts if part != "/"]
        if ".." in linked:
            raise _damaged(package, f"{entry.name} is a link to {entry.linkname}")
        path.hardlink_to(root.joinpath(*linked))
    elif entry.isfile():
        source = tar.extractfile(entry)
        if source is None:
            raise _damaged(package, f"{entry.name} has no bytes")
        with path.open("wb") as out:
            shutil.copyfileobj(source, out, 1 << 18)
        path.chmod(stat.S_IMODE(entry.mode))
        os.utime(path, (entry.mtime, entry.mtime))


def control(package: Path, field: str) -> str:
    """A field of a package's description: ``control(file, "Depends")``; empty if it has none."""
    deb = _opened(package)
    try:
        return str(deb.debcontrol().get(field, "")).strip()
    finally:
        deb.close()


def write_files_archive(package: Path, out: IO[bytes]) -> None:
    """Write the tar archive of the package's files, not compressed, to ``out``.

    Raises:
        HostError: it is damaged, or compressed in a way that Python does not read.
    """
    deb = _opened(package)
    try:
        member = next(deb.getmember(name) for name in deb.getnames() if name.startswith("data.tar"))
        kinds: dict[str, Callable[[Any], Any]] = {".xz": lzma.open, ".gz": gzip.open, ".tar": lambda file: file}
        opened = kinds.get(Path(member.name).suffix)
        if opened is None:
            raise _damaged(package, f"its files are in {member.name}, which is neither xz nor gzip")
        shutil.copyfileobj(opened(member), out, 1 << 18)
    except (lzma.LZMAError, EOFError, gzip.BadGzipFile) as error:
        raise _damaged(package, str(error)) from error
    finally:
        deb.close()
