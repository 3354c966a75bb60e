"""Unpacked Debian packages: one folder that looks like a root file system."""

from __future__ import annotations

import contextlib
import fnmatch
import os
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

from core.errors import HostError
from toolchains.debian.deb import extract

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
    loader = interpreter(path)
    if not loader:
        return [str(path)]
    libraries = ":".join(str(folder) for folder in library_folders(root))
    return [str(root / loader.lstrip("/")), "--inhibit-cache", "--library-path", libraries, str(path)]
