"""``python -m verify.suite.shells``: shellcheck reads every shell script; the exit code is shellcheck's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from core.errors import HostError, SlipwayError
from core.paths import ROOT
from toolchains.debian import packages as debian
from toolchains.debian.sources import host_arch
from toolchains.debian.tree import own_loader_argv
from toolchains.tools import table

FOLDERS = ("core", "deploy", "recipes", "runtime", "tests", "toolchains", "verify")
"""Folders whose ``*.sh`` are read; the checkout may also hold what builds left."""

RULES = (
    *("--shell=sh", "--external-sources", "--source-path=SCRIPTDIR", "--source-path=SCRIPTDIR/.."),
    # -ef is not in POSIX, and dash, busybox, mksh and bash have it; A && B || C: C is meant to run when B fails, too.
    "--exclude=SC3013,SC2015",
)


def scripts(root: Path = ROOT) -> list[Path]:
    """Every shell script of the checkout."""
    named = [root / "inv", root / ".ci" / "job", root / ".ci" / "run"]
    return named + sorted(file for folder in FOLDERS for file in (root / folder).rglob("*.sh"))


def program() -> list[str]:
    """Argv of Debian's shellcheck, fetched if it is not in the cache; else of the system's own.

    Raises:
        HostError: this machine has neither.
    """
    pinned = table()["shellcheck"]
    reason = debian.runnable()
    if not reason:
        package = f"shellcheck={pinned['version']}"
        root = debian.tree(pinned["suite"], host_arch(), [package], closure=True, name="shellcheck")
        return own_loader_argv(root, "usr/bin/shellcheck")
    if installed := shutil.which("shellcheck"):
        return [installed]
    raise HostError("There is no shellcheck on this machine.", reason, "install your distribution's shellcheck")


def check(files: Sequence[Path], root: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Read ``files`` by `RULES`, and those of the nearest ``.shellcheckrc``; what shellcheck found is in ``stdout``."""
    argv = [*program(), "--format=gcc", *RULES, *(os.fspath(file.relative_to(root)) for file in files)]
    return subprocess.run(argv, cwd=root, stdout=subprocess.PIPE, text=True, check=False)


def main() -> int:
    """Read all scripts and print what is wrong with them."""
    try:
        done = check(scripts())
    except SlipwayError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    sys.stdout.write(done.stdout)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
