"""The target's C and C++ run time from Debian: headers and symbols to build against, libraries to run with."""

from __future__ import annotations

from pathlib import Path

from core.errors import NotSupportedError
from toolchains.targets import Target
from toolchains.tools import table


def sysroot(target: Target) -> Path:
    """A Debian tree with the target's glibc, libstdc++ (library and headers) and libgcc, fetched once.

    It serves two ends: compiling against libstdc++ with zig, and ``qemu-user -L`` for running the result.

    Raises:
        NotSupportedError: the target has no glibc.
        HostError: Debian packages cannot be had on this machine.
    """
    if target.libc != "glibc":
        raise NotSupportedError(f"{target.name} has no sysroot.", f"its C library is {target.libc}", "./inv targets")
    from toolchains.debian import packages as debian

    pinned = table()["libstdcxx"]
    return debian.tree(pinned["suite"], target.debian_arch, tuple(pinned["packages"]))


def library(root: Path, target: Target, name: str) -> Path:
    """The shared library ``name`` in the tree, wherever Debian's merge of ``/lib`` and ``/usr/lib`` left it."""
    folders = (root / "usr/lib" / target.multiarch, root / "lib" / target.multiarch)
    return next((folder / name for folder in folders if (folder / name).exists()), folders[0] / name)
