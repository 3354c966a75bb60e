"""What ``./inv fuzz`` does: damaged programs against the engine lean, under Clang's sanitizers, guided by libFuzzer.

The corpus grows from run to run in the cache; what a bug was found with belongs in ``tests/fixtures/damaged``, which
every corpus begins with.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from core import console
from core.commands import run as run_command
from core.errors import BuildError, HostError, MismatchError
from core.files import locked
from core.paths import ROOT, cache_dir

KEPT = ROOT / "tests" / "fixtures" / "damaged"
"""Programs that something was found with."""
SEEDS = (
    ("mlp", "fp32"),
    ("mlp", "qs8"),
    ("linear", "qd8_qb4w"),
    ("conv", "qs8"),
    ("matmul", "fp32"),
    ("mixed", "fp32"),
)
"""Small programs of the zoo, model and scheme, that the first corpus is made of."""
_COMPILERS = ("clang++", *(f"clang++-{version}" for version in range(22, 13, -1)))
_LARGEST = 256 * 1024
"""Bytes of the largest program tried: larger ones hold only more weights."""


@dataclass(frozen=True)
class Outcome:
    """What a run came to."""

    seconds: float
    executions: int
    corpus: int
    features: int
    """What of the code the corpus reaches, in libFuzzer's count."""
    findings: tuple[str, ...]


def compiler() -> str:
    """A Clang with libFuzzer and the sanitizers' libraries.

    Raises:
        HostError: there is none on this machine.
    """
    for name in _COMPILERS:
        path = shutil.which(name)
        if path is None:
            continue
        said = subprocess.run([path, "-print-runtime-dir"], capture_output=True, text=True, check=False).stdout.strip()
        if any(Path(said).glob("*clang_rt.fuzzer*")):
            return path
    raise HostError(
        "There is no Clang with libFuzzer on this machine.",
        "zig, which builds everything else, brings no sanitizers' libraries",
        "apt-get install clang libclang-rt-dev (or clang-16 libclang-rt-16-dev)",
    )


def dependencies(log: Path) -> tuple[Path, dict[str, str], str]:
    """The native packages and schemas for this machine: CMake's files, variables, and where programs are."""
    from toolchains import conan

    folder = cache_dir("fuzz", "dependencies")
    target = conan.host_target()
    with locked(conan.LOCK):
        host, own = conan.profile(target), conan.build_profile()
        conan.conan(
            ["install", ROOT, f"--profile:host={host}", f"--profile:build={own}", f"--lockfile={conan.lockfile(log)}",
             "--lockfile-partial", f"--remote={conan.remote()}", "--build=missing", f"--output-folder={folder}",
             "--options=&:engine=lean", "--conf=tools.cmake.cmaketoolchain:user_presets="],
            log=log,
        )  # fmt: skip
    toolchain = next(folder.rglob("conan_toolchain.cmake"))
    presets = json.loads(toolchain.with_name("CMakePresets.json").read_text(encoding="utf-8"))
    variables = presets["configurePresets"][0]["cacheVariables"]
    found = re.search(r"CMAKE_PROGRAM_PATH ([^)]*)\)", toolchain.read_text(encoding="utf-8"))
    programs = ";".join(re.findall(r'"([^"]+)"', found[1])) if found else ""
    return toolchain.parent, {name: str(value) for name, value in variables.items()}, programs


def build(log: Path) -> Path:
    """Compile the target with sanitizers, as far as it has changed; its path."""
    from toolchains import conan

    clang = compiler()
    generators, variables, programs = dependencies(log)
    folder = cache_dir("fuzz", "build")
    own = {
        "CMAKE_BUILD_TYPE": "Release",
        "CMAKE_CXX_COMPILER": clang,
        "CMAKE_CXX_FLAGS_RELEASE": "-O1 -gline-tables-only -DNDEBUG",
        "CMAKE_CXX_FLAGS": "",
        "CMAKE_PREFIX_PATH": os.fspath(generators),
        "CMAKE_PROGRAM_PATH": programs,
        "SLIPWAY_SANITIZE": "ON",
        "SLIPWAY_FUZZ": "ON",
    }
    given = {name: value for name, value in variables.items() if name.startswith(("SLIPWAY_", "EXECUTORCH_"))}
    words = [f"-D{name}={value}" for name, value in {**given, **own}.items()]
    ninja = f"-DCMAKE_MAKE_PROGRAM={conan.program('ninja')}"
    cmake = conan.program("cmake")
    said = {"error": BuildError, "what": "Building the fuzzer", "log": log, "hint": f"less {log}"}
    run_command([cmake, "-G", "Ninja", "-S", ROOT / "runtime", "-B", folder, ninja, *words], **said)  # type: ignore[arg-type]
    run_command([cmake, "--build", folder, "--target", "fuzz_program"], **said)  # type: ignore[arg-type]
    return folder / "fuzz" / "fuzz_program"


def seeds(corpus: Path) -> None:
    """Programs of the zoo, small ones, and those that found something before, into the corpus."""
    from core.program import load_program
    from models.export import export
    from tests.fuzz_seeds import make

    make(corpus)
    for model, scheme in SEEDS:
        folder = export(model, scheme)
        program = folder / load_program(folder).file
        if program.stat().st_size <= _LARGEST:
            shutil.copy(program, corpus / f"{model}-{scheme}.pte")
    for file in sorted(KEPT.glob("*.pte")):
        shutil.copy(file, corpus / file.name)


def environment() -> Mapping[str, str]:
    """Sanitizers' options: numbers of a damaged file may ask for any amount of memory, and are to be refused it."""
    return {
        **os.environ,
        "ASAN_OPTIONS": "allocator_may_return_null=1:max_allocation_size_mb=256:detect_leaks=1:abort_on_error=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }


def fuzz(program: Path, corpus: Path, seconds: int, log: Path) -> Outcome:
    """Run the fuzzer; every finding is a file in the cache."""
    found = cache_dir("fuzz", "findings")
    before = {file.name for file in found.iterdir()}
    started = time.monotonic()
    argv: Sequence[str | Path] = [
        "nice", "-n", "19", program, corpus, f"-max_total_time={seconds}", "-timeout=25", "-rss_limit_mb=3000",
        "-malloc_limit_mb=4000", f"-max_len={_LARGEST}", f"-artifact_prefix={found}/", "-print_final_stats=1",
    ]  # fmt: skip
    done = run_command(argv, env=environment(), timeout=seconds + 600, error=None, log=log, what="Fuzzing")
    text = done.stdout + done.stderr
    executions = re.search(r"stat::number_of_executed_units:\s*(\d+)", text)
    features = re.findall(r" ft: (\d+)", text)
    return Outcome(
        round(time.monotonic() - started, 1),
        int(executions[1]) if executions else 0,
        len(list(corpus.iterdir())),
        int(features[-1]) if features else 0,
        tuple(sorted(str(found / file.name) for file in found.iterdir() if file.name not in before)),
    )


def run(minutes: float, as_json: bool) -> None:
    """Build, seed, fuzz, report.

    Raises:
        HostError: no Clang with libFuzzer.
        MismatchError: something was found.
    """
    log = cache_dir("logs") / "fuzz.log"
    log.write_text("", encoding="utf-8")
    program = build(log)
    corpus = cache_dir("fuzz", "corpus")
    seeds(corpus)
    outcome = fuzz(program, corpus, max(1, round(minutes * 60)), log)
    if as_json:
        console.print_json({**outcome.__dict__, "findings": list(outcome.findings)})
    else:
        console.table(
            "Fuzzing the engine lean",
            ["seconds", "executions", "corpus", "features", "findings"],
            [[f"{outcome.seconds:.0f}", str(outcome.executions), str(outcome.corpus), str(outcome.features),
              str(len(outcome.findings))]],
        )  # fmt: skip
    if outcome.findings:
        raise MismatchError(
            f"{len(outcome.findings)} programs crash, leak or hang the engine.",
            f"what the sanitizers said is in {log}",
            f"{program} {outcome.findings[0]}; once mended, keep the file in {KEPT.relative_to(ROOT)}",
            list(outcome.findings),
        )
