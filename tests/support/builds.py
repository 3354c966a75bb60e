"""What is built and exported already, put into another ``dist/``: a test then makes only what it is about.

A bundle comes with the digest of what it was made from, a program with its key: where they are out of date, the command
under test makes them again, as for a user.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from core.formats.bundle import Bundle
from models.export import export
from toolchains.bundle.builder import build
from verify.suite.shared_builds import native


def _copy(folder: Path, dist: Path) -> Path:
    """A bundle's or native packages' folder, and the digest that is kept next to it."""
    copy = dist / folder.parent.name / folder.name
    shutil.copytree(folder, copy, symlinks=True)
    stamp = f".{folder.name}.built.json"
    shutil.copy2(folder.with_name(stamp), copy.with_name(stamp))
    return copy


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
