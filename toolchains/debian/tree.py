"""What is in Debian packages, read by python-debian, and unpacked into a folder that looks like a root file system."""

from __future__ import annotations

import contextlib
import fnmatch
import gzip
import lzma
import os
import shutil
import stat
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Sequence
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
        if (source := tar.extractfile(entry)) is None:
            raise _damaged(package, f"{entry.name} has no bytes")
        with path.open("wb") as out:
            shutil.copyfileobj(source, out, 1 << 18)
        path.chmod(stat.S_IMODE(entry.mode))
        os.utime(path, (entry.mtime, entry.mtime))


def control(package: Path, field: str) -> str:
    """A field of a package's description: ``control(file, "Depends")``; empty if it has none."""
    with contextlib.closing(_opened(package)) as deb:
        return str(deb.debcontrol().get(field, "")).strip()


def write_files_archive(package: Path, out: IO[bytes]) -> None:
    """Write the tar archive of the package's files, not compressed, to ``out``.

    Raises:
        HostError: it is damaged, or compressed in a way that Python does not read.
    """
    kinds: dict[str, Callable[[Any], Any]] = {".xz": lzma.open, ".gz": gzip.open, ".tar": lambda file: file}
    with contextlib.closing(_opened(package)) as deb:
        try:
            member = next(deb.getmember(name) for name in deb.getnames() if name.startswith("data.tar"))
            if (opened := kinds.get(Path(member.name).suffix)) is None:
                raise _damaged(package, f"its files are in {member.name}, which is neither xz nor gzip")
            shutil.copyfileobj(opened(member), out, 1 << 18)
        except (lzma.LZMAError, EOFError, gzip.BadGzipFile) as error:
            raise _damaged(package, str(error)) from error


_MERGED = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")


def unpack(packages: Iterable[Path], root: Path, keep: Sequence[str] = ()) -> None:
    """Unpack ``packages`` into ``root`` as files only: no maintainer script runs.

    With ``keep``, only files whose path in ``root`` matches one of these patterns stay.

    The result is merged-/usr, whichever of Debian's layouts the packages have; links inside it are relative, so
    that it works wherever it lies; programs lose set-user-id bits, for nothing here needs them.
    """
    for package in packages:
        extract(package, root)
    _merge_usr(root)
    if keep:
        _prune(root, keep)
    for folder, names, files in os.walk(root):
        for name in (*names, *files):
            _settle(Path(folder, name), root)


def _prune(root: Path, keep: Sequence[str]) -> None:
    for folder, names, files in os.walk(root, topdown=False):
        for name in (*files, *names):
            path = Path(folder, name)
            if path.is_dir() and not path.is_symlink():
                with contextlib.suppress(OSError):  # not empty: something in it stays
                    path.rmdir()
            elif not any(fnmatch.fnmatch(path.relative_to(root).as_posix(), pattern) for pattern in keep):
                path.unlink()


def _merge_usr(root: Path) -> None:
    for name in _MERGED:
        old, new = root / name, root / "usr" / name
        if old.is_symlink():
            continue
        if old.is_dir():
            _move_into(old, new)
        if new.is_dir():
            old.symlink_to(f"usr/{name}")


def _move_into(old: Path, new: Path) -> None:
    """Move everything of folder ``old`` into ``new``; ``old`` is gone then."""
    if not new.is_dir():
        new.parent.mkdir(parents=True, exist_ok=True)
        old.rename(new)
        return
    for entry in old.iterdir():
        target = new / entry.name
        if entry.is_dir() and not entry.is_symlink() and target.is_dir():
            _move_into(entry, target)
        else:
            entry.replace(target)
    old.rmdir()


def _settle(path: Path, root: Path) -> None:
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        target = str(path.readlink())
        inside = root / target.lstrip("/")
        if target.startswith("/") and os.path.lexists(inside):
            path.unlink()
            path.symlink_to(os.path.relpath(inside, path.parent.resolve()))
    elif mode & (stat.S_ISUID | stat.S_ISGID):
        path.chmod(stat.S_IMODE(mode) & ~(stat.S_ISUID | stat.S_ISGID))


def interpreter(program: Path) -> str:
    """The loader an ELF program asks for, ``/lib64/ld-linux-x86-64.so.2``; empty for a static one."""
    from elftools.elf.elffile import ELFFile

    with program.open("rb") as file:
        for segment in ELFFile(file).iter_segments("PT_INTERP"):
            return str(segment.get_interp_name())
    return ""


def library_folders(root: Path) -> list[Path]:
    """Folders of ``root`` that hold shared libraries: the multiarch ones and their private sub-folders."""
    found: list[Path] = []
    for base in sorted(root.glob("usr/lib/*-linux-gnu*")):
        found.append(base)
        found.extend(sorted(folder for folder in base.iterdir() if folder.is_dir() and any(folder.glob("lib*.so*"))))
    return found


def own_loader_argv(root: Path, program: str) -> list[str]:
    """Argv that runs ``program`` of the tree with the tree's own loader and libraries, whatever this system has.

    Raises:
        HostError: the tree does not hold it.
    """
    path = root / program
    if not path.is_file():
        raise HostError(f"{program} is not in the unpacked packages.", f"{path} is missing", "./inv clean --cache")
    if not (loader := interpreter(path)):
        return [str(path)]
    libraries = ":".join(str(folder) for folder in library_folders(root))
    return [str(root / loader.lstrip("/")), "--inhibit-cache", "--library-path", libraries, str(path)]
