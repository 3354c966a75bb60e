"""Other devices' shells and tools on this machine: BusyBox alone, and mksh with toybox as Android has them."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from deploy.transport.deadline import NEVER, Deadline
from deploy.transport.local import LocalChannel, LocalTransport
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
        applets = _applets([str(binary), "--list"])
        for applet in applets:
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
    import subprocess

    words = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()
    return [word for word in words if "/" not in word]


def _wrapper(path: Path, argv: Sequence[str]) -> None:
    import shlex

    path.write_text(f'#!{shutil.which("sh")}\nexec {shlex.join(argv)} "$@"\n')
    path.chmod(0o755)


class UserlandTransport(LocalTransport):
    """This machine, its commands found in one folder alone."""

    def __init__(self, folder: Path, environment: Sequence[str] = ()) -> None:
        super().__init__("userland")
        self.folder, self._environment = folder, environment

    def start(self, argv: Sequence[str], deadline: Deadline = NEVER, /) -> LocalChannel:
        return LocalChannel(["/usr/bin/env", *self._environment, f"PATH={self.folder}", *argv])
