"""What all tests share and what stays between their runs: native packages, C++ programs, and programs of the zoo.

A program says what it was made from: the model's source, the exporter's and our own code, all options. Where any of it
has changed it is exported again, as for a user who has an older one in ``dist/programs``. test_export.py exports other
models in every run, and one of the zoo's in another process, whose bytes must be the kept ones.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

from core.errors import BuildError
from core.files import locked, new_folder
from core.formats.bundle import Native
from core.formats.program import DESCRIPTION
from core.paths import ROOT, cache_dir, dist_part, programs_dir
from core.processes.commands import run
from toolchains import tools
from toolchains.bundle import conan, conan_packages
from toolchains.targets import Target


def native(target: str) -> Native:
    """A target's native packages: built once for all tests that want them, not to be changed.

    Each target costs a minute of both cores the first time: linux-x86_64 and linux-arm64 are the ones that tests may
    build.
    """
    from toolchains.bundle.native import build_native

    with patch.dict(os.environ, SLIPWAY_DIST=os.fspath(cache_dir("tests", "dist"))):
        return build_native(target)


def compiled(target: Target, engine: str, *programs: str, **variables: str) -> list[Path]:
    """Configure runtime/ as the bundle's build does, with CMake's ``variables``, and compile programs; their paths.

    From a copy of the sources next to the build's folder, as in Conan's cache: by the same relative paths ccache finds
    what the bundle's build compiled.

    Raises:
        BuildError: it does not compile.
    """
    name = "-".join(["runtime", target.name, engine, *variables])
    folder, log = dist_part("tests") / name, cache_dir("logs") / f"test-{name}.log"
    with locked(name):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(ROOT / "runtime", folder / "runtime")
        shutil.copy2(ROOT / "conanfile.py", folder)
        with conan_packages.building():
            words = [*conan_packages.words(target, "", log), f"--options=slipway-runtime/*:engine={engine}"]
            confs = {"user_presets": "", "extra_variables": json.dumps(variables)}
            words += [f"--conf=tools.cmake.cmaketoolchain:{conf}={value}" for conf, value in confs.items()]
            conan.conan(["build", folder, *words, f"--output-folder={folder}", "--build=missing"], log=log)
        build = next(folder.rglob("CMakeCache.txt")).parent
        env = {**os.environ, "PATH": f"{Path(tools.program('ninja')).parent}{os.pathsep}{os.environ['PATH']}"}
        argv = [tools.program("cmake"), "--build", os.fspath(build), "--target", *programs]
        run(argv, env=env, error=BuildError, what=f"Compiling {programs[0]}", log=log, hint=f"less {log}")
    return [next(path for path in build.rglob(program) if path.is_file()) for program in programs]


def _names() -> list[str]:
    from models.zoo import everything

    return [f"{model}-{scheme}{suffix}" for model, scheme in everything() for suffix in ("", "-onnx")]


def _copy(source: Path, target: Path) -> None:
    with new_folder(target) as new:
        shutil.copytree(source, new, dirs_exist_ok=True)


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """``dist/programs`` begins with the programs that were kept and it lacks; what is there in the end is kept."""
    cache = cache_dir("tests", "programs")
    with locked("tests-programs"):
        for name in _names():
            if (cache / name).is_dir() and not (programs_dir() / name).exists():
                _copy(cache / name, programs_dir() / name)
    try:
        yield
    finally:
        with locked("tests-programs"):
            for name in _names():
                made, before = programs_dir() / name / DESCRIPTION, cache / name / DESCRIPTION
                if made.is_file() and not (before.is_file() and before.read_bytes() == made.read_bytes()):
                    _copy(made.parent, cache / name)
