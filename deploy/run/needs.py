"""What a program needs, as the bundle's own runner describes it on this machine, before connecting to a device.

The runner of another architecture runs under QEMU user mode. The answer depends on nothing but the two files,
so it is kept by their digests.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from core.errors import ConfigError, HostError, NotSupportedError, ProgramError
from core.files import sha256_bytes, write_json
from core.formats.bundle import RUNNER, Bundle
from core.formats.program import format_of
from core.paths import cache_dir
from core.processes.commands import LimitError, run
from core.strict_json import JsonError, parse_json, validated
from deploy.run.runner import RESULT_LIMIT, error_in, failure

_SECONDS = 120.0
_MEMORY = 2 << 30
_MEMORY_TIMES = 16
"""Multiples of the program's size: more than the limits in ``runtime/runner/crash_guard.h``, for emulators."""
_BEYOND = (9, 11)
"""The runner's exit codes for memory and for a limit."""
COMPLEX = ("aten::_conj_physical.out", "aten::_fft_c2r.out", "aten::_fft_r2c.out", "aten::view_as_real_copy.out")
"""Operators that only exist for complex numbers, all of which the engine executorch has and lean has not."""
LANGUAGE = (
    "llama::custom_quantized_sdpa.out", "llama::custom_sdpa.out", "llama::fallback.out",
    "llama::fast_hadamard_transform.out", "llama::sdpa_with_kv_cache.out", "llama::update_cache.out",
    "llama::update_cache_with_indices.out",
)  # fmt: skip
"""Upstream's operators for language models that the engine lean has; its SDK, so the engine executorch, has none."""
_STRANGE = "a program that an exporter wrote takes a fraction of what is allowed"


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Port(_Answer):
    """An input or output of a method."""

    dtype: str = ""
    shape: tuple[int, ...] = ()
    kind: str = "tensor"
    ranges: tuple[tuple[int, int | None], ...] = ()
    """Smallest and largest size of each dimension, if the file has them; ``None``: unbounded."""

    @property
    def sizes(self) -> tuple[tuple[int, int | None], ...]:
        """The ranges; if the runner does not report them, the shape itself."""
        return self.ranges if len(self.ranges) == len(self.shape) else tuple((size, size) for size in self.shape)


class Method(_Answer):
    """A method of the program, with the operators and backends that the bundle lacks for it."""

    name: str
    inputs: tuple[Port, ...] = ()
    outputs: tuple[Port, ...] = ()
    backends: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    kernel_types: tuple[str, ...] = ()
    """Types that its delegates' kernels compute with, from the engine ``lean``; empty: unknown, or none."""
    missing_backends: tuple[str, ...] = ()
    missing_operators: tuple[str, ...] = ()
    external_weights: tuple[str, ...] = ()
    """Names of weights that the program does not hold itself: they come from a ``.ptd`` file."""
    planned_bytes: int = 0
    """Bytes planned for values, state, inputs and outputs."""


class ProgramFacts(_Answer):
    """The runner's description of the file itself."""

    opsets: dict[str, int] = {}
    """Of an ``.onnx``: the version of each operator set by its domain."""
    data_files: tuple[str, ...] = ()
    """Files beside the program with its weights."""


class ProgramNeeds(_Answer):
    """A program as ``pte_runner --describe`` describes it."""

    methods: tuple[Method, ...]
    program: ProgramFacts = ProgramFacts()
    unchecked: str = ""
    """Why the program was not described; empty if it was."""

    def method(self, name: str) -> Method | None:
        """The method called ``name``."""
        return next((method for method in self.methods if method.name == name), None)


def lacking(needs: ProgramNeeds, method: str) -> tuple[str, ...]:
    """Backends and operators which the bundle lacks for a method."""
    described = needs.method(method)
    return (*described.missing_backends, *described.missing_operators) if described else ()


def complex_only(names: Collection[str]) -> bool:
    """Whether each of these operators, which the engine lean lacks, computes with complex numbers.

    The engine executorch has all of those, and no other that lean lacks.
    """
    return all(name in COMPLEX or name.endswith((" of complex64", " of complex128")) for name in names)


def bundle_digest(bundle: Bundle) -> str:
    """The name of a bundle on devices: SHA-256 over its files' paths, digests and run bits."""
    lines = sorted(f"{entry.sha256} {int(entry.executable)} {entry.path}\n" for entry in bundle.manifest.files)
    return sha256_bytes("".join(lines).encode())


def describe(bundle: Bundle, program: Path, sha256: str) -> ProgramNeeds:
    """The needs of ``program`` (whose digest is ``sha256``), and those that ``bundle`` does not meet.

    Raises:
        ProgramError: the engine cannot read it: truncated, damaged, another version.
    """
    kept = cache_dir("describe") / f"{sha256}-{bundle_digest(bundle)[:16]}.json"
    with contextlib.suppress(OSError, JsonError):  # not kept, or not readable any more: run the runner
        return validated(ProgramNeeds, parse_json(kept.read_bytes(), limit=RESULT_LIMIT))
    try:
        runner = runner_here(bundle)
    except (NotSupportedError, HostError, ConfigError) as error:
        return ProgramNeeds(methods=(), unchecked=f"{bundle.manifest.target} programs do not run here: {error.what}")
    argv = [*runner, f"--model_path={program}", "--describe", "--json"]
    try:
        done = run(argv, error=None, what=f"Reading {program.name}", **limits_for(program))
    except LimitError as beyond:
        raise ProgramError(beyond.what, _STRANGE, "export it again with --force") from beyond
    if done.returncode != 0:
        code = 128 - done.returncode if done.returncode < 0 else done.returncode
        problem = failure(code, done.stderr, error_in(done.stdout), "this machine", here=True)
        if code in _BEYOND:
            raise ProgramError(f"Reading {program.name} took more than it may: {problem.cause}", _STRANGE, problem.hint)
        if isinstance(problem, ProgramError):
            problem.what = f"{program} cannot be loaded by {bundle.manifest.engine}."
            problem.hint = problem.hint or "export it again with --force"
        raise problem
    try:
        needs = validated(ProgramNeeds, parse_json(done.stdout, limit=RESULT_LIMIT))
    except JsonError as strange:
        raise ProgramError(
            f"{program} was not described.",
            f"the runner's answer cannot be read: {strange}",
            f"./inv build --target {bundle.manifest.target} --force",
        ) from strange
    write_json(kept, needs.model_dump(mode="json"))
    return needs


def limits_for(program: Path) -> dict[str, Any]:
    """The limits, as `run` takes them, for describing ``program``, which is not trusted.

    By its size, and that of an ``.onnx`` with what is beside it: its weights may be there, under any name.
    """
    files = [program] if format_of(program) == "pte" else program.parent.iterdir()
    size = sum(file.stat().st_size for file in files if file.is_file())
    return {"timeout": _SECONDS, "memory": _MEMORY + _MEMORY_TIMES * size, "most": RESULT_LIMIT}


def runner_here(bundle: Bundle) -> list[str]:
    """Words that start the bundle's runner here: emulated unless it is native."""
    from toolchains.compilers.libstdcxx import sysroot
    from toolchains.emulation.emulators import user_argv
    from toolchains.targets import get_target

    target = get_target(bundle.manifest.target)
    if not user_argv(target):
        return [str(bundle.path / RUNNER)]
    alone = bundle.manifest.needs.own_loader or bundle.manifest.needs.libc == "static"
    return [*user_argv(target, sysroot=None if alone else sysroot(target)), *bundle.emulated_argv]
