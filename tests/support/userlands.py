"""Other devices' shells and tools on this machine: BusyBox alone, mksh with toybox as Android has them, and macOS's."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from deploy.transport.deadline import NEVER, Deadline
from deploy.transport.local import LocalChannel, LocalTransport
from tests.support.processes import executable
from toolchains.debian import packages as debian
from toolchains.debian.tree import own_loader_argv

USERLANDS = ("busybox", "toybox")

SHELLS = {"tcsh": "bin/tcsh", "zsh": "bin/zsh", "fish": "usr/bin/fish"}
"""Login shells, each in Debian's package of its name."""


def userland(name: str, folder: Path) -> Path:
    """A folder with nothing but ``name``'s programs, ``sh`` among them, to be all of a PATH."""
    folder.mkdir(parents=True)
    if name == "busybox":
        tree = debian.tree("bookworm", "amd64", ["busybox-static"], name="test-busybox")
        binary = next(tree.glob("**/bin/busybox"))
        for applet in _applets([str(binary), "--list"]):
            (folder / applet).symlink_to(binary)
        return folder
    tree = debian.tree("bookworm", "amd64", ["mksh", "toybox"], closure=True, name="test-toybox")
    # A script would be no program to exec for `env`; a loader's argv has no place in a link: hence wrappers.
    for applet in _applets(own_loader_argv(tree, "usr/bin/toybox")):
        _wrapper(folder / applet, [*own_loader_argv(tree, "usr/bin/toybox"), applet])
    (folder / "sh").unlink(missing_ok=True)
    _wrapper(folder / "sh", own_loader_argv(tree, "usr/bin/mksh"))
    return folder


def login_shell(name: str) -> list[str]:
    """The argv of ``name``, one of `SHELLS` or this machine's own."""
    if name not in SHELLS:
        return [name]
    return own_loader_argv(debian.tree("bookworm", "amd64", [name], closure=True, name=f"test-{name}"), SHELLS[name])


def _applets(argv: Sequence[str]) -> list[str]:
    words = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()
    return [word for word in words if "/" not in word]


def _wrapper(path: Path, argv: Sequence[str]) -> None:
    executable(path, f'#!{shutil.which("sh")}\nexec {shlex.join(argv)} "$@"\n')


class EnvTransport(LocalTransport):
    """This machine, its commands run by ``env`` with these words."""

    def __init__(self, *words: str) -> None:
        super().__init__("board")
        self._words = words

    def start(self, argv: Sequence[str], deadline: Deadline = NEVER, /) -> LocalChannel:
        return LocalChannel(["/usr/bin/env", *self._words, *argv])


class UserlandTransport(EnvTransport):
    """This machine, its commands found in one folder alone."""

    def __init__(self, folder: Path, environment: Sequence[str] = ()) -> None:
        super().__init__(*environment, f"PATH={folder}")
        self.folder = folder


# A userland like that of macOS: bash (as its sh), ps, lsof and the POSIX tools are real; ``stat -f``, ``shasum``,
# ``sysctl``, ``vm_stat``, ``mount`` and ``uname`` are programs that print what macOS's manual pages and Apple's
# documentation say. It has no /proc for the scripts, and neither setsid, sha256sum nor any of GNU's options of stat.
ENVIRONMENT = ("-i", "HOME=/var/empty")
"""Words of `env` for commands of the userland."""
_POSIX = (
    "awk", "cat", "chmod", "cp", "cut", "date", "df", "dirname", "du", "env", "getconf", "grep", "id", "ln", "mkdir",
    "mv", "readlink", "rm", "rmdir", "sed", "sleep", "sort", "sync", "tail", "tee", "touch", "tr", "wc",
)  # fmt: skip

SYSCTL = """\
machdep.cpu.brand_string: Apple M2
hw.memsize: 17179869184
vm.loadavg: { 1.52 1.67 1.80 }
hw.model: Mac14,2
kern.bootsessionuuid: 8C1A5F0E-3D0B-4A53-9E0F-6B7F8E2D1C00
kern.boottime: { sec = 1700000000, usec = 123456 } Wed Nov 15 00:13:20 2023
"""

_STAT = r"""
import os, re, sys
words = sys.argv[1:]
if len(words) < 2 or words[0] != "-f":
    sys.exit("stat: illegal option\nusage: stat [-FLnq] [-f format | -l | -r | -s | -x] [-t timefmt] [file ...]")
code = 0
for name in words[2:]:
    try:
        look = os.lstat(name)
    except OSError as error:
        print(f"stat: {name}: stat: {error.strerror}", file=sys.stderr)
        code = 1
        continue
    def value(match):
        how, what = match[1], match[2]
        if what == "N":
            return name
        number = {"z": look.st_size, "i": look.st_ino, "l": look.st_nlink, "u": look.st_uid, "g": look.st_gid,
                  "p": look.st_mode, "m": look.st_mtime_ns, "c": look.st_ctime_ns, "a": look.st_atime_ns}[what]
        if what in "mca":
            return f"{number // 10**9}.{number % 10**9:09d}" if how == "F" else str(number // 10**9)
        return {"": str, "D": str, "X": "{:x}".format, "O": "{:o}".format}[how](number)
    print(re.sub(r"%([DOUXFS]?)([a-zN])", value, words[1]))
sys.exit(code)
"""

_SYSCTL = r"""
import sys
words = sys.argv[1:]
only = "-n" in words
rows = [line.partition(": ") for line in ROWS.splitlines()]
code = 0
for word in (word for word in words if word != "-n"):
    found = [row for row in rows if row[0] == word or row[0].startswith(word + ".")]
    for key, _, text in found:
        print(text if only else f"{key}: {text}")
    if not found:
        print(f"sysctl: unknown oid '{word}'", file=sys.stderr)
        code = 1
sys.exit(code)
"""

_SHASUM = r"""
import hashlib, pathlib, sys
words = sys.argv[1:]
if words[:2] != ["-a", "256"]:
    sys.exit("shasum: unrecognized algorithm")
if words[2:3] == ["-c"]:
    code = 0
    for line in pathlib.Path(words[3]).read_text().splitlines():
        digest, name = line.split("  ", 1)
        try:
            good = hashlib.sha256(pathlib.Path(name).read_bytes()).hexdigest() == digest
        except OSError:
            print(f"shasum: {name}: No such file or directory", file=sys.stderr)
            print(f"{name}: FAILED open or read")
            code = 1
            continue
        print(f"{name}: {'OK' if good else 'FAILED'}")
        code = code if good else 1
    sys.exit(code)
print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest() + "  -")
"""

_VM_STAT = """\
Mach Virtual Memory Statistics: (page size of 16384 bytes)
Pages free:                               30000.
Pages active:                            250000.
Pages inactive:                          200000.
Pages speculative:                        10000.
Pages throttled:                              0.
Pages wired down:                        120000.
"""
AVAILABLE = (30000 + 200000 + 10000) * 16384

_MOUNT = """\
/dev/disk3s1s1 on / (apfs, sealed, local, read-only, journaled)
devfs on /dev (devfs, local, nobrowse)
/dev/disk3s5 on /System/Volumes/Data (apfs, local, journaled, nobrowse, protect, root data)
map auto_home on /System/Volumes/Data/home (autofs, automounted, nobrowse)
/dev/disk9s1 on {noexec} (apfs, local, nodev, nosuid, noexec, journaled)
"""


def bsd(folder: Path) -> Path:
    """Fill ``folder`` with the programs; it is to be all of a PATH. On ``stick`` beside it nothing may run."""
    folder.mkdir(parents=True)
    (stick := folder.parent / "stick").mkdir()
    for name in _POSIX:
        found = shutil.which(name)
        assert found, f"{name} is not here"
        (folder / name).symlink_to(found)
    bash = shutil.which("bash")
    assert bash
    (folder / "sh").symlink_to(bash)
    tree = debian.tree("bookworm", "amd64", ["lsof", "procps"], closure=True, name="test-bsd")
    for name, path in (("lsof", "usr/bin/lsof"), ("ps", "bin/ps")):
        _wrapper(folder / name, own_loader_argv(tree, path))
    _program(folder / "stat", _STAT)
    _program(folder / "shasum", _SHASUM)
    _program(folder / "sysctl", f"ROWS = {SYSCTL!r}\n{_SYSCTL}")
    _program(folder / "vm_stat", f"print({_VM_STAT!r}, end='')")
    _program(folder / "mount", f"print({_MOUNT.format(noexec=stick)!r}, end='')")
    names = {"-s": "Darwin", "-n": "macbook.local", "-r": "22.6.0", "-m": "arm64"}
    # macOS prints them in its own order, whatever the order of the options.
    _program(folder / "uname", f"import sys\nn = {names!r}\nprint(*[n[k] for k in n if k in (sys.argv[1:] or ['-s'])])")
    return folder


def _program(path: Path, text: str) -> None:
    executable(path, f"#!{sys.executable} -IS\n{text}\n")
