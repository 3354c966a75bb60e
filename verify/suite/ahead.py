"""What many tests need built, begun in the background as soon as a whole run of the tests begins.

Installing packages, checking types and waiting for devices leave the processor idle for minutes, while later, with
empty caches, tests wait for each other's builds: so these have the same priority as tests. Nothing depends on this: a
test builds what it does not find, and what fails here fails there again, where it is reported.

    python -m verify.suite.ahead libraries|products|ways

Native packages, and programs of the zoo, stay between the tests' runs. A program says what it was made from: the
model's source, the exporter's and our own code, all options. Where any of it has changed it is exported again, as for
a user who has an older one in ``dist/programs``. test_export.py exports other models in every run, and one of the
zoo's in another process, whose bytes must be the kept ones.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

from core.errors import SlipwayError
from core.files import locked, new_folder
from core.formats.bundle import Native
from core.formats.program import DESCRIPTION
from core.paths import ROOT, cache_dir, programs_dir
from core.processes.commands import process
from toolchains.compilers import families, zig
from toolchains.targets import Target, load_targets

PRODUCTS = (
    ("linux-x86_64", "executorch"),
    ("linux-arm64", "executorch"),
    ("linux-x86_64", "lean"),
    ("linux-x86_64", "native"),
    ("linux-arm64", "lean"),
    ("linux-arm64", "native"),
    ("linux-armv6", "lean"),
    ("windows-x86_64", "lean"),
    ("android-armv7", "lean"),
)
"""Bundles and native packages that tests use, in the order in which most tests wait for them."""

WAYS = 3
"""So many of them serve the tests that run on a machine where others never ran."""

LONG = frozenset({"android-x86", "android-x86_64", "macos-x86_64"})
"""Targets whose C++ library is not built ahead, a minute of both processors each: tests build those of another target
of their system, and of other targets of their instruction set. A test of `./inv test --all` needs that of macOS."""

_FIRST = ("linux-armv6", "windows-x86_64", "android-armv7")

_PROGRAM = """\
#include <iostream>
#include <thread>
int main() { std::thread([] { std::cout << 1; }).join(); }
"""


def libraries(target: Target) -> None:
    """Let zig build its C and C++ libraries for ``target``, unless its cache has them.

    It does so on one core less than there are, so on two cores it is better done outside of all locks.

    Raises:
        subprocess.CalledProcessError: the program could not be compiled or linked.
    """
    compilers, flags = zig.ensure(target), families.hardening(target)
    compiled, linked = [*flags.compile, *flags.optimized], [*flags.link, *flags.program]
    with tempfile.TemporaryDirectory(prefix="slipway-ahead-") as folder:
        Path(folder, "main.cpp").write_text(_PROGRAM, encoding="utf-8")
        # As CMake does: it tries the compiler with a source file alone, then links what it has compiled.
        for words in (
            [*flags.compile, "main.cpp", *linked, "-o", "first"],
            ["-O2", *compiled, "-c", "main.cpp", "-o", "main.o"],
            ["main.o", *linked, "-o", "second"],
        ):
            subprocess.run([compilers.cxx, *words], cwd=folder, check=True)


def _libraries() -> None:
    with_zig = [target for target in load_targets().values() if "zig" in target.toolchains and target.libc != "glibc"]
    with_zig = [target for target in with_zig if target.working_engines]  # for iOS zig links nothing
    for target in sorted(with_zig, key=lambda target: target.name not in _FIRST):
        if target.name not in LONG:
            libraries(target)


def _products(number: int) -> None:
    from toolchains.bundle.builder import build

    for target, engine in PRODUCTS[:number]:
        if engine == "native":
            native(target)
        else:
            build(target, engine)


@contextlib.contextmanager
def begun(*, whole: bool) -> Iterator[None]:
    """Products are built while the block runs, for a ``whole`` run all of them and libraries, too.

    What is unfinished in the end is ended.
    """
    with contextlib.ExitStack() as stack:
        for kind in ("libraries", "products") if whole else ("ways",):
            log = stack.enter_context((cache_dir("logs") / f"tests-ahead-{kind}.log").open("wb"))
            argv = [sys.executable, "-m", "verify.suite.ahead", kind]
            env = {**os.environ, "PYTHONPATH": os.fspath(ROOT)}
            stack.enter_context(process(argv, cwd=ROOT, env=env, stdout=log.fileno(), stderr=log.fileno()))
        yield


def native(target: str) -> Native:
    """A target's native packages: built once for all tests that want them, not to be changed.

    Each target costs a minute of both cores the first time: linux-x86_64 and linux-arm64 are the ones that tests may
    build.
    """
    from toolchains.bundle.native import build_native

    with patch.dict(os.environ, SLIPWAY_DIST=os.fspath(cache_dir("tests", "dist"))):
        return build_native(target)


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
        _keep(cache)


def _keep(cache: Path) -> None:
    with locked("tests-programs"):
        for name in _names():
            made, before = programs_dir() / name / DESCRIPTION, cache / name / DESCRIPTION
            if made.is_file() and not (before.is_file() and before.read_bytes() == made.read_bytes()):
                _copy(made.parent, cache / name)


def main(kind: str) -> int:
    """Build one kind, as far as that goes."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what runs for us is ended, too
    try:
        _libraries() if kind == "libraries" else _products(WAYS if kind == "ways" else len(PRODUCTS))
    except (SlipwayError, subprocess.CalledProcessError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
