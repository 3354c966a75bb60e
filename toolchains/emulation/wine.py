"""Wine: runs programs for Windows here, on the machine's own CPU.

Debian's Wine, unpacked from its packages, runs in a user and mount namespace with the tree as its root, so that it
needs neither root nor anything of this system's but the kernel. Of its 650 DLLs only those stay that console
programs and the making of a prefix need.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from core import console
from core.errors import HostError, NotSupportedError
from core.files import locked, new_folder, sealed, write_atomic
from core.paths import cache_dir
from core.processes.commands import run
from toolchains.debian import packages as debian
from toolchains.debian.sources import host_arch, known_arch
from toolchains.targets import Target

_SUITE = "bookworm"

_DLLS = (
    "advapi32.dll", "apisetschema.dll", "bcrypt.dll", "cfgmgr32.dll", "cmd.exe", "combase.dll", "comctl32.dll",
    "conhost.exe", "crypt32.dll", "dnsapi.dll", "explorer.exe", "gdi32.dll", "hal.dll", "imm32.dll", "iphlpapi.dll",
    "kernel32.dll", "kernelbase.dll", "msvcrt.dll", "newdev.dll", "nsi.dll", "ntdll.dll", "ntoskrnl.exe",
    "ole32.dll", "oleaut32.dll", "plugplay.exe", "rpcrt4.dll", "rpcss.exe", "rundll32.exe", "sechost.dll",
    "services.exe", "setupapi.dll", "shcore.dll", "shell32.dll", "shlwapi.dll", "start.exe", "svchost.exe",
    "taskkill.exe", "ucrtbase.dll", "user32.dll", "userenv.dll", "version.dll", "win32u.dll", "wineboot.exe",
    "winedevice.exe", "ws2_32.dll", "*.sys", "*.drv",
)  # fmt: skip
_LOCALE = "libc-bin"
"""The package with the locale C.UTF-8."""
_ZLIB = "zlib1.dll"
_LIBRARIES = ("libc", "libgcc_s", "liblzma", "libm", "libunwind")
SEEN_AS = "Z:/work"
"""What a program sees the folder as that it may change."""

_INSIDE = ("proc", "sys", "dev", "tmp", "prefix", "work")
"""Folders that are mounted into the tree."""

_MOUNT = """set -e
root=$1; prefix=$2; work=$3; shift 3
for name in proc sys dev; do mount --rbind /$name "$root/$name"; done
mount -t tmpfs tmpfs "$root/tmp"
mount --bind "$prefix" "$root/prefix"
mount --bind "$work" "$root/work"
"""
_RUN = _MOUNT + 'folder=$1; shift; exec unshare --root "$root" --wd "/$folder" "$@"\n'
# wineboot's exit code counts parts that are left out here (32-bit ones, drivers): whether there is a prefix is seen
# from its files. What still runs when a namespace ends is killed: the server is to write the registry out before.
_BOOT = _MOUNT + 'chroot "$root" "$1" wineboot.exe -i || true; exec chroot "$root" "$2" -w\n'


@dataclass(frozen=True)
class _Wine:
    """Debian's Wine for one architecture; ``cpu`` is how Wine's own folders name it."""

    arch: str
    cpu: str
    package: str
    loader: str
    server: str
    environment: Mapping[str, str]

    @property
    def lib(self) -> str:
        """The folder of its libraries."""
        return f"usr/lib/{self.cpu}-linux-gnu"

    @property
    def dlls(self) -> str:
        """The folder of Windows' own."""
        return f"{self.lib}/wine/{self.cpu}-windows"

    @property
    def mingw(self) -> str:
        """The folder of libraries for Windows."""
        return f"{'i686' if self.cpu == 'i386' else self.cpu}-w64-mingw32"

    def keep(self) -> list[str]:
        """Patterns of the tree's files that stay."""
        return [
            "lib",
            "lib64",
            "usr/lib/wine/*",
            "usr/lib64/*",
            "usr/lib/ld-linux*",
            f"{self.lib}/ld-linux*",
            "usr/share/wine/*",
            "usr/lib/locale/C.utf8/*",
            f"usr/{self.mingw}/lib/zlib1.dll",
            *(f"{self.lib}/{name}.so*" for name in _LIBRARIES),
            f"{self.lib}/wine/{self.cpu}-unix/*.so",
            *(f"{self.dlls}/{name}" for name in _DLLS),
        ]


_WINES = {
    "x86_64": _Wine("amd64", "x86_64", "wine64", "wine64", "wineserver64", {}),
    "i686": _Wine("i386", "i386", "wine32", "wine", "wineserver32", {"WINEARCH": "win32"}),
}
_PROGRAMS = "/usr/lib/wine"


def runs(target: Target) -> bool:
    """Whether Wine on this machine runs the target's programs."""
    return target.os == "windows" and target.machine in _WINES and known_arch() == "amd64"


def _wine(target: Target) -> _Wine:
    if target.os != "windows" or target.machine not in _WINES:
        raise NotSupportedError(
            f"Wine does not run programs for {target.name} here.", "it emulates no CPU", target.proof
        )
    if host_arch() != "amd64":
        raise HostError("Wine needs an x86 machine.", "it emulates no CPU", "run it on one")
    return _WINES[target.machine]


def _tree(wine: _Wine) -> Path:
    """Wine's files; what Debian keeps elsewhere is where Wine looks for it, and mount points are there."""
    root = debian.tree(_SUITE, wine.arch, [wine.package, _LOCALE], closure=True, keep=wine.keep())
    for name in _INSIDE:
        (root / name).mkdir(exist_ok=True)
    beside = root / wine.dlls / _ZLIB
    if not beside.exists():
        write_atomic(beside, (root / f"usr/{wine.mingw}/lib" / _ZLIB).read_bytes())
        sealed.seal(root)
    return root


def _namespace(script: str, *words: str | Path) -> list[str]:
    """Argv that runs a shell script with ``words`` where it may mount and chroot."""
    if (program := shutil.which("unshare")) is None:
        raise HostError("unshare is not installed.", "it is not on PATH", "install util-linux, which every Debian has")
    own = [program, "--map-root-user", "--mount", "--pid", "--fork", "--kill-child"]
    return [*own, "sh", "-c", script, "sh", *(os.fspath(word) for word in words)]


def environment(target: Target) -> dict[str, str]:
    """Everything the program sees of an environment."""
    wine = _wine(target)
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": "/prefix",
        "WINEPREFIX": "/prefix",
        "WINESERVER": f"{_PROGRAMS}/{wine.server}",
        "WINEDEBUG": "-all",
        # How Wine reads the words that it is given.
        "LC_ALL": "C.UTF-8",
        # No browser, no .NET, no menus: nothing is asked for or downloaded.
        "WINEDLLOVERRIDES": "mscoree,mshtml,winemenubuilder.exe=",
        **wine.environment,
    }


def system_has(target: Target, library: str) -> bool:
    """Whether Wine has a DLL of the system; names of the API sets, which it resolves by itself, are always there."""
    wine = _wine(target)
    return library.lower().startswith("api-ms-win-") or (_tree(wine) / wine.dlls / library.lower()).is_file()


def argv(
    target: Target, program: Path, words: Sequence[str] = (), *, above: Path | None = None, cwd: Path | None = None
) -> list[str]:
    """The command that runs ``program`` with the arguments ``words`` in `environment`.

    Args:
        above: the folder that the program sees as ``Z:\\work``, and nothing else; its own if there is none.
        cwd: a folder below ``above`` to run it in; without it the program's working folder is ``Z:\\``.

    Raises:
        NotSupportedError: Wine does not run the target's programs.
        HostError: no Wine to be had here, or no namespaces.
    """
    wine = _wine(target)
    root = _tree(wine)
    above = program.parent if above is None else above
    inside = "\\".join(["Z:\\work", *program.relative_to(above).parts])
    folder = "" if cwd is None else (Path("work") / cwd.relative_to(above)).as_posix()
    return _namespace(_RUN, root, prefix(target), above, folder, f"{_PROGRAMS}/{wine.loader}", inside, *words)


def prefix(target: Target) -> Path:
    """Wine's idea of a Windows disk, made once: every program starts with it; same errors as `argv`."""
    wine = _wine(target)
    root = _tree(wine)
    folder = cache_dir("wine") / f"{wine.arch}-{root.name}"
    if folder.is_dir():
        return folder
    with locked(f"wine-{wine.arch}"):
        if not folder.is_dir():
            console.note(f"making Wine's prefix for {target.name} (once)")
            with new_folder(folder) as new:
                run(
                    _namespace(_BOOT, root, new, new, f"{_PROGRAMS}/{wine.loader}", f"{_PROGRAMS}/{wine.server}"),
                    env=environment(target),
                    timeout=300,
                    what="Making Wine's prefix",
                    hint="allow unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone=1), then again",
                )
                system = new / "drive_c/windows/system32"
                if not (system / "kernel32.dll").is_file():
                    raise HostError(
                        "Wine did not finish its prefix.", f"kernel32.dll is missing in {new}", "./inv clean --cache"
                    )
                # user32.dll, which shell32.dll loads, wants it; Wine takes it for no part of its own and looks here.
                write_atomic(system / _ZLIB, (root / f"usr/{wine.mingw}/lib" / _ZLIB).read_bytes())
    return folder
