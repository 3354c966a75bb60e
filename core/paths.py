"""The folders that Slipway uses.

Everything that costs time to make again lives outside the checkout, in one cache folder that all
checkouts share: downloads, Debian packages, tools, Conan's home, ccache, virtual devices.
``SLIPWAY_CACHE`` moves it.
"""

from __future__ import annotations

import functools
import os
import shlex
import sys
from pathlib import Path

from core.errors import ConfigError, HostError

ROOT = Path(__file__).resolve().parent.parent
"""The checkout. Of an installed Slipway (`core.environment.wheel`) it is a folder that nobody writes to."""
INSTALLED = __name__.startswith("slipway.")
"""Whether this is an installed Slipway, whose packages are in one called ``slipway``."""
IMPORTS = ROOT.parent if INSTALLED else ROOT
"""The folder that Python imports our packages from."""
_PROJECT = ("invoke.yaml", "pyproject.toml", ".git")
"""What the topmost folder of a user's project has, one of them."""

CACHE_PARTS = {
    "ccache": "what was compiled already",
    "chat": "the lines of earlier talks",
    "conan": "Conan's home: packages and their sources",
    "conan-profiles": "profiles and lockfiles",
    "data": "trained weights and photographs of the zoo's models, by digest",
    "debian": "apt's state, packages and unpacked trees",
    "describe": "what programs need, by digest",
    "devices": "virtual devices' state, and the store of the device local",
    "env": "environments of installed copies of Slipway",
    "images": "virtual devices' images",
    "locks": "one file a lock",
    "logs": "whole outputs of builds and exports",
    "scans": "what the scans for instructions found, by the file's digest",
    "nets": "packages with nets to measure engines with",
    "packages": "packages that users' models import",
    "references": "what this machine's ONNX Runtime computes for a user's own files, by digest",
    "tests": "what the tests keep between runs",
    "times": "how long steps took, for the estimates on a terminal",
    "toolchains": "compiler wrappers and link stubs",
    "tools": "zig",
    "verified": "what was verified on devices and how it looked then, by the id of their root",
    "warm": "sockets of exporters that wait in memory",
    "wine": "the disks that Wine shows to programs",
    "wheels": "ExecuTorch's wheels",
    "zig": "zig's own cache",
}
"""The cache's folders. Only these are ever removed by ``./inv clean --cache``, whatever SLIPWAY_CACHE names."""


def cache_dir(*parts: str) -> Path:
    """A folder in the cache (made when missing): ``cache_dir("debian", "bookworm-arm64")``.

    The first part is one of `CACHE_PARTS`; without parts it is the cache itself.
    """
    if parts and parts[0] not in CACHE_PARTS:
        raise KeyError(f"{parts[0]} is not in CACHE_PARTS")
    if base := os.environ.get("SLIPWAY_CACHE"):
        try:
            root = Path(base).expanduser().absolute()
        except RuntimeError as error:  # ~name of an unknown user
            raise ConfigError(f"SLIPWAY_CACHE={base} is not a folder.", str(error), "an absolute path") from error
    else:
        import platformdirs

        root = Path(platformdirs.user_cache_dir("slipway", appauthor=False))
    path = root.joinpath(*parts)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HostError(
            f"The cache's folder {path} cannot be made.",
            str(error.strerror),
            "free some space or files, or set SLIPWAY_CACHE to a folder that you may write to",
        ) from error
    _check_own(root)
    return path


@functools.cache
def _check_own(root: Path) -> None:
    """Refuse a cache that others may write to: what Slipway runs comes from there.

    A group with its owner's number is the owner's own. root may use anyone's, as in a container with a mounted cache.
    """
    found = root.stat()
    group = found.st_mode & 0o020 and found.st_gid != found.st_uid
    open_to = "everyone" if found.st_mode & 0o002 else f"the group {found.st_gid}" if group else ""
    mine = found.st_uid == os.geteuid()
    if not open_to and (mine or os.geteuid() == 0 or found.st_uid == 0):
        return
    raise ConfigError(
        f"Others may write to the cache {root}: {open_to or f'the user {found.st_uid}, to whom it belongs'}.",
        "what Slipway runs comes from there, so they could run programs as you",
        f"chmod go-w {shlex.quote(os.fspath(root))} if nobody else wrote to it, or set SLIPWAY_CACHE to another folder"
        if mine
        else "set SLIPWAY_CACHE to a folder of your own",
    )


def portable(text: str) -> str:
    """``text`` without the cache's path, so that it is the same on every machine."""
    return text.replace(os.fspath(cache_dir()), "<cache>")


def dist_dir() -> Path:
    """The folder of bundles and programs for the user: ``dist/`` in the checkout or ``SLIPWAY_DIST``.

    Of an installed Slipway, ``dist/`` in the user's project.
    """
    return Path(os.environ.get("SLIPWAY_DIST") or (project_dir() if INSTALLED else ROOT) / "dist").absolute()


def project_dir() -> Path:
    """The nearest folder, from the current one upwards, that has one of `_PROJECT`; else the current folder."""
    here = Path.cwd()
    return next((each for each in (here, *here.parents) if any((each / name).exists() for name in _PROJECT)), here)


def folder_of_commands() -> Path:
    """The folder that `command` runs in: of a checkout its own, of an installed Slipway the user's project."""
    return project_dir() if INSTALLED else ROOT


def command() -> list[str]:
    """Argv that runs our tasks in a process of its own."""
    return [sys.executable, "-m", "slipway"] if INSTALLED else [os.fspath(ROOT / "inv")]


DIST_PARTS = ("android", "matrix", "nets", "programs", "results", "site", "sweeps", "tests", "wheels")
"""Every folder of ``dist/`` but the targets'; ``./inv clean`` removes them."""


def dist_part(name: str) -> Path:
    """``dist/<name>``, one of `DIST_PARTS`; it need not be there."""
    if name not in DIST_PARTS:
        raise ValueError(f"{name} is not in DIST_PARTS: ./inv clean would leave it")
    return dist_dir() / name


def build_dir(target: str, kind: str, variant: str = "") -> Path:
    """``dist/<target>/<kind>``: what a build leaves.

    Args:
        kind: a bundle's engine; ``native``: XNNPACK and what it needs, as libraries; ``sdk``: libslipway.
        variant: what makes it another one: the programs that it is for alone (``lean-mlp-fp32``); of an SDK also
            another C library (``sdk-glibc``) or another engine (``sdk-executorch``).
    """
    return dist_dir() / target / (f"{kind}-{variant}" if variant else kind)


def programs_dir() -> Path:
    """``dist/programs``: one folder for each program, ``<model>-<scheme>``."""
    return dist_part("programs")


def results_dir() -> Path:
    """``dist/results``: one JSON file for each run."""
    return dist_part("results")


def matrix_dir(name: str) -> Path:
    """``dist/matrix/<name>``: a matrix's cells and its reports."""
    return dist_part("matrix") / name
