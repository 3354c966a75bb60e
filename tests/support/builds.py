"""What is built and exported already, put into another ``dist/``: a test then makes only what it is about.

A bundle comes with the digest of what it was made from, a program with its key: where they are out of date, the command
under test makes them again, as for a user.
"""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from core.errors import ExportError
from core.files import locked, new_folder, sha256_bytes, sha256_file
from core.formats.bundle import RUNNER, Bundle
from core.paths import ROOT, cache_dir
from core.processes.commands import run
from models import warm as exporter
from models.export import export
from models.reference.host import Host
from models.request import versions
from toolchains.bundle.builder import build
from toolchains.emulation import emulators, platforms
from toolchains.targets import Target, host_target
from verify.suite.shared import native


def _copy(folder: Path, dist: Path) -> Path:
    """A bundle's or native packages' folder, and the digest that is kept next to it."""
    copy = dist / folder.parent.name / folder.name
    shutil.copytree(folder, copy, symlinks=True)
    stamp = f".{folder.name}.built.json"
    shutil.copy2(folder.with_name(stamp), copy.with_name(stamp))
    return copy


def checkout(folder: Path) -> Path:
    """A copy of this checkout in ``folder``: what git has, or would have."""
    listed = run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"], cwd=ROOT).stdout
    # One that was deleted and not committed is listed, too.
    for name in (name for name in listed.split("\0")[:-1] if (ROOT / name).is_file()):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)
    return folder


def lend_bundle(dist: Path, target: str, engine: str = "") -> Bundle:
    """This checkout's bundle, in the folder ``dist``; built first if it is not there or out of date."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SLIPWAY_DIST", raising=False)
        own = build(target, engine)
    return Bundle.load(_copy(own.path, dist))


def lend_native(dist: Path, target: str) -> Path:
    """A target's native packages, in the folder ``dist``."""
    return _copy(native(target).path, dist)


def lend_program(dist: Path, model: str, scheme: str) -> Path:
    """A program of the zoo, in the folder ``dist``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SLIPWAY_DIST", raising=False)
        own = export(model, scheme)
    return Path(shutil.copytree(own, dist / "programs" / own.name))


def made_by(script: Path) -> Path:
    """The folder that ``python SCRIPT FOLDER`` fills. It is kept in the cache, so do not change it.

    A script may import the exporter's packages and the standard library only: they and its own text decide what it
    makes.

    Raises:
        ExportError: the script failed.
    """
    parts = [sha256_file(script), sys.version, versions()]
    folder = cache_dir("tests", "made") / f"{script.stem}-{sha256_bytes(json.dumps(parts).encode())[:16]}"
    with locked(folder.name, f"waiting for another export of {script.name}"):
        if not folder.is_dir():
            with new_folder(folder) as new:
                # -I: a module of the script's folder or ours cannot become an input that nobody counts.
                done = subprocess.run([sys.executable, "-I", script, new], capture_output=True, text=True, check=False)
                if done.returncode:
                    raise ExportError(f"{script} failed.", done.stderr[-3000:], f"python {script} FOLDER")
    return folder


@pytest.fixture(scope="session")
def lean() -> Bundle:
    """This machine's, of the lean engine."""
    return build(host_target().name, "lean")


@pytest.fixture(scope="session")
def lean_runner(lean: Bundle) -> Path:
    return lean.path / RUNNER


@pytest.fixture(scope="session")
def arm() -> Bundle:
    """linux-arm64's, made before a test has a ``dist/`` of its own, where it would be linked again."""
    return build("linux-arm64", "executorch")


def least(target: Target) -> platforms.Platform:
    """What runs a target's programs with the least CPU of its table: this machine for its own, or an emulator."""
    cpu = target.qemu_cpu or platforms.WINE
    return platforms.platform_for(target, platforms.NATIVE if emulators.is_native(target) else cpu)


@contextmanager
def warm() -> Iterator[dict[str, str]]:
    """Variables for the commands of the block; each would take seconds to load the exporter by itself."""
    try:
        yield {"SLIPWAY_WARM": "yes"}
    finally:
        for socket in exporter.home().glob(f"*/{exporter.SOCKET}"):
            socket.unlink(missing_ok=True)  # without it an exporter ends, see test_warm.py


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    """One runtime for all tests: starting it costs more than a small export."""
    with Host(cache_dir("logs") / "export-tests.log") as one:
        yield one


def named(module: str, table: str) -> list[str]:
    """The keys of the dictionary, or the items of the tuple, that a module assigns to ``table``."""
    tree = ast.parse((ROOT / module).read_text(encoding="utf-8"))
    assigned: dict[str, Any] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            assigned[ast.unparse(target)] = node.value
    found = assigned[table]
    items: list[Any] = found.keys if isinstance(found, ast.Dict) else found.elts
    return [str(ast.literal_eval(one)) for one in items]
