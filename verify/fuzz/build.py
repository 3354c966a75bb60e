"""Builds the programs that try damaged files: the fuzzer and the sweep, with sanitizers or between guarded pages.

Two forms of the same sources. *Sanitized*: Clang's address and undefined-behaviour sanitizers in all of ours and in
XNNPACK's layers (graphs, operators, packing, memory); its microkernels are the ordinary package's, which no sanitizer
sees. *Guarded*: compiled as bundles are, with every block of memory between pages that nobody may touch, so that a
microkernel that leaves its memory ends the process.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from core.errors import BuildError, HostError
from core.files import locked, sha256_bytes, sha256_file, write_json
from core.paths import ROOT, cache_dir
from core.processes.commands import run as run_command

SANITIZED = "sanitized"
GUARDED = "guarded"

_XNNPACK = "xnnpack_sources/cci.20241108"
_COMPILERS = ("clang++", *(f"clang++-{version}" for version in range(22, 13, -1)))
_SMALLEST = """#include <cstddef>
extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, std::size_t) { return 0; }
"""
_OPTIMIZED = "-O1 -gline-tables-only -DNDEBUG"
_LAYERS = (
    # Kernels are called through pointers of another type than their own: XNNPACK's way.
    "-O1", "-fsanitize=address,undefined", "-fno-sanitize=function", "-fno-sanitize-recover=all",
    "-fno-omit-frame-pointer", "-fsanitize=fuzzer-no-link",
)  # fmt: skip


@dataclass(frozen=True)
class Dependencies:
    """The native packages for this machine, as CMake finds them."""

    generators: str
    toolchain: str
    variables: Mapping[str, str]
    programs: str
    """CMAKE_PROGRAM_PATH."""
    xnnpack: str
    """Folder of XNNPACK's sources."""
    cpuinfo: str

    def complete(self) -> bool:
        """Whether all of it is still there."""
        paths = (self.toolchain, self.xnnpack, self.cpuinfo, self.variables["EXECUTORCH_SCHEMA_DIR"])
        flatc = any(Path(folder, "flatc").is_file() for folder in self.programs.split(";"))
        return flatc and all(Path(path).exists() for path in paths)


def compiler() -> str:
    """A Clang with libFuzzer and the sanitizers' libraries.

    Raises:
        HostError: there is none on this machine.
    """
    for name in _COMPILERS:
        path = shutil.which(name)
        if path is None:
            continue
        # Where its libraries are it does not say reliably: Debian's Clang 19 names a folder that is not there.
        with tempfile.TemporaryDirectory(prefix="slipway-clang-") as folder:
            argv = [path, "-x", "c++", "-fsanitize=fuzzer,address,undefined", "-o", f"{folder}/fuzzer", "-"]
            if subprocess.run(argv, input=_SMALLEST, text=True, capture_output=True, check=False).returncode == 0:
                return path
    raise HostError(
        "There is no Clang with libFuzzer on this machine.",
        "zig, which builds everything else, brings no sanitizers' libraries",
        "apt-get install clang libclang-rt-dev (or clang-16 libclang-rt-16-dev)",
    )


def dependencies(log: Path) -> Dependencies:
    """The native packages and schemas; Conan is called, and its lock waited for, only when a recipe has changed."""
    from toolchains.bundle import conan, conan_packages, inputs
    from toolchains.targets import host_target

    host, own = conan.profile(host_target()), conan.build_profile()
    # By their paths in the checkout, so that every checkout of the same recipes shares one folder.
    recipes = {name: file for name, file in inputs.files("lean") if name.startswith(("recipes/", "conanfile.py"))}
    files = {**recipes, host.name: host, own.name: own}
    key = sha256_bytes("\n".join(f"{name}\t{sha256_file(files[name])}" for name in sorted(files)).encode())[:16]
    folder = cache_dir("fuzz", f"dependencies-{key}")
    kept = folder / "dependencies.json"
    if kept.is_file():
        found = Dependencies(**json.loads(kept.read_text(encoding="utf-8")))
        if found.complete():
            return found
    with locked(conan.LOCK, "      waiting: Conan is building for another process"):
        words = [*conan_packages.words(host_target(), "", log), "--build=missing"]
        conan.conan(
            ["install", ROOT, *words, f"--output-folder={folder}", "--options=&:engine=lean",
             "--conf=tools.cmake.cmaketoolchain:user_presets="],
            log=log,
        )  # fmt: skip
        # Without a folder of its own Conan would write its scripts into the working folder.
        options = [f"--output-folder={folder / 'sources'}", "--envs-generation=false", "--format=json"]
        said = conan.conan(["install", f"--requires={_XNNPACK}", *words, *options], log=log)
    nodes = json.loads(said)["graph"]["nodes"].values()
    package = next(node["package_folder"] for node in nodes if str(node["ref"]).startswith(_XNNPACK))
    found = _found(folder, Path(package) / "res")
    write_json(kept, asdict(found))
    return found


def _found(folder: Path, xnnpack: Path) -> Dependencies:
    """Read what Conan wrote for CMake."""
    toolchain = next(folder.rglob("conan_toolchain.cmake"))
    presets = json.loads(toolchain.with_name("CMakePresets.json").read_text(encoding="utf-8"))
    variables = presets["configurePresets"][0]["cacheVariables"]
    text = toolchain.read_text(encoding="utf-8")
    programs = re.search(r"CMAKE_PROGRAM_PATH ([^)]*)\)", text)
    data = next(toolchain.parent.glob("cpuinfo-*-data.cmake")).read_text(encoding="utf-8")
    cpuinfo = re.search(r'set\(cpuinfo_PACKAGE_FOLDER_\w+ "([^"]+)"\)', data)
    return Dependencies(
        os.fspath(toolchain.parent),
        os.fspath(toolchain),
        {name: str(value) for name, value in variables.items() if name.startswith(("SLIPWAY_", "EXECUTORCH_"))},
        ";".join(re.findall(r'"([^"]+)"', programs[1])) if programs else "",
        os.fspath(xnnpack),
        cpuinfo[1] if cpuinfo else "",
    )


def _cmake(source: str | Path, folder: Path, variables: Mapping[str, str], target: str, what: str, log: Path) -> None:
    """Configure and compile one target."""
    from toolchains import tools

    words = [f"-D{name}={value}" for name, value in variables.items()]
    ninja = f"-DCMAKE_MAKE_PROGRAM={tools.program('ninja')}"
    cmake = tools.program("cmake")
    commands: Sequence[Sequence[str | Path]] = (
        [cmake, "-G", "Ninja", "-S", source, "-B", folder, ninja, *words],
        [cmake, "--build", folder, "--target", target],
    )
    for argv in commands:
        run_command(argv, error=BuildError, what=what, log=log, hint=f"less {log}")


def layers(clang: str, found: Dependencies, log: Path) -> Path:
    """Compile XNNPACK without its microkernels, with sanitizers; path of the library."""
    key = sha256_bytes(f"{clang} {found.xnnpack} {found.generators}".encode())[:16]
    folder = cache_dir("fuzz", f"layers-{key}")
    variables = {
        "CMAKE_BUILD_TYPE": "Release",
        "CMAKE_C_COMPILER": clang.replace("clang++", "clang"),
        "CMAKE_CXX_COMPILER": clang,
        "CMAKE_C_FLAGS_RELEASE": _OPTIMIZED,
        "CMAKE_CXX_FLAGS_RELEASE": _OPTIMIZED,
        "CMAKE_PREFIX_PATH": found.generators,
        "CMAKE_PROJECT_XNNPACK_INCLUDE": os.fspath(ROOT / "runtime" / "fuzz" / "xnnpack_layers.cmake"),
        "XNNPACK_LIBRARY_TYPE": "static",
        "XNNPACK_BUILD_TESTS": "OFF",
        "XNNPACK_BUILD_BENCHMARKS": "OFF",
        "XNNPACK_BUILD_ALL_MICROKERNELS": "OFF",
        "XNNPACK_ENABLE_KLEIDIAI": "OFF",
        "XNNPACK_USE_SYSTEM_LIBS": "ON",
        "CPUINFO_SOURCE_DIR": found.cpuinfo,
        "CCACHE_BINARY": "OFF",
        "Python_EXECUTABLE": sys.executable,
        "SLIPWAY_LAYERS_FLAGS": ";".join(_LAYERS),
    }
    with locked(f"fuzz-layers-{key}"):
        _cmake(found.xnnpack, folder, variables, "xnnpack_layers", "Building XNNPACK with sanitizers", log)
    return folder / "libxnnpack_layers.a"


def build(form: str, target: str, log: Path) -> Path:
    """Compile ``target`` (``fuzz_program``, ``sweep_program``) in one of the two forms, as far as it has changed.

    Raises:
        HostError: no Clang with libFuzzer, for the sanitized form. BuildError: it does not compile.
    """
    from toolchains.bundle import conan

    found = dependencies(log)
    with locked(conan.LOCK, "      waiting: Conan is building for another process", shared=True):
        return _build(form, target, found, log)


def _build(form: str, target: str, found: Dependencies, log: Path) -> Path:
    clang = compiler() if form == SANITIZED else ""
    key = sha256_bytes(f"{ROOT} {clang} {found.generators}".encode())[:16]
    folder = cache_dir("fuzz", f"{form}-{key}")
    sources, made = ROOT / "runtime", folder
    own = {**found.variables, "CMAKE_BUILD_TYPE": "Release", "SLIPWAY_FUZZ": "ON"}
    if form == SANITIZED:
        own |= {
            "CMAKE_CXX_COMPILER": clang,
            "CMAKE_CXX_FLAGS_RELEASE": _OPTIMIZED,
            "CMAKE_CXX_FLAGS": "",
            "CMAKE_PREFIX_PATH": found.generators,
            "CMAKE_PROGRAM_PATH": found.programs,
            "SLIPWAY_SANITIZE": "ON",
            "SLIPWAY_XNNPACK_LAYERS": os.fspath(layers(clang, found, log)),
        }
    else:
        own["CMAKE_TOOLCHAIN_FILE"] = found.toolchain
        # As a package's sources and build lie in Conan's cache: ccache then has what the bundle's build compiled.
        sources, made = folder / "runtime", folder / "build" / "runtime" / "Release"
    with locked(f"fuzz-{form}-{key}"):
        if sources != ROOT / "runtime":
            shutil.rmtree(sources, ignore_errors=True)
            shutil.copytree(ROOT / "runtime", sources)  # with the times of the files: what is unchanged stays built
        _cmake(sources, made, own, target, f"Building {target}", log)
    return made / "fuzz" / target
