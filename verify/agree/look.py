"""Run one program on a bundle's runner on one platform, or a virtual device, and compare its outputs with upstream's.

A device is a platform of comparisons for processors that no emulator of single programs has.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from core.errors import HostError, MismatchError
from core.files import sha256_file
from core.formats.bundle import Bundle
from toolchains.emulation import platforms
from toolchains.emulation.platforms import WINE, Platform
from toolchains.targets import get_target
from verify.agree.programs import INFINITE, About, Cell, Compared

SECONDS = 300.0
"""Seconds that one program may take on one platform; MobileNetV2 on the slowest takes a fifth of it."""
_REFUSED = ("missing-operator", "missing-backend")
"""Kinds of the runner's errors by which it refuses a program that is not damaged (docs/runner.md)."""
_HARDWARE = "(unsupported hardware)"
"""The end of an error's message if XNNPACK refuses the program because of the processor."""


@dataclass(frozen=True)
class Answer:
    """The outcome of one run of a program."""

    outputs: tuple[Path, ...]
    """In the folder of the run."""
    error: dict[str, Any]
    """The runner's, with ``kind`` and ``message``; empty: it ran."""
    features: tuple[str, ...] = ()
    """Of the CPU, as the runner sees it."""


@dataclass(frozen=True)
class Executor:
    """A platform with the bundle that runs on it."""

    bundle: Bundle
    platform: Platform
    key: str
    """Digest of the runner."""

    @classmethod
    def of(cls, bundle: Bundle, platform: Platform) -> Executor:
        """The executor of a bundle on a platform."""
        return cls(bundle, platform, sha256_file(Path(bundle.emulated_argv[-1]))[:16])


def execute(executor: Executor, program: Compared, folder: Path) -> Answer:
    """Run a program for its number of consecutive executions; ``folder``: an empty one, for all files of the run.

    Raises:
        HostError: it took longer than `SECONDS`, or nothing can run it.
    """
    first, *rest = executor.bundle.emulated_argv
    runner, files = Path(first), program.files
    wine = executor.platform.cpu == WINE
    if wine:  # it sees one folder
        for file in (runner, *files):
            shutil.copy(file, folder)
        runner = folder / runner.name

    def word(file: Path) -> str:
        return f"Z:\\work\\{file.name}" if wine else str(file)

    words = [*rest, f"--model_path={word(program.file)}", f"--output_file={word(folder / 'out')}", "--warmup=0"]
    words += [f"--json={word(folder / 'result.json')}", f"--num_executions={program.runs}"]
    words += [f"--inputs={','.join(word(file) for file in program.inputs)}"] if program.inputs else []
    words += [f"--method_name={program.method}", *(f"--data_path={word(file)}" for file in program.data)]
    words += [f"--run_first={name}={','.join(word(file) for file in given)}" for name, given in program.first]
    # Threads that wait for each other in an emulator cost minutes and change no sum.
    words += ["--cpu_threads=1"] if executor.platform.emulated else []
    done = executor.platform.run(runner, words, timeout=SECONDS)
    try:
        said = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        said = {"error": {"kind": "crash", "message": f"it ended with {done.returncode}: {done.stderr[-300:].strip()}"}}
    if "error" in said:
        return Answer((), said["error"])
    outputs = tuple(folder / f"out{index}.npy" for index in range(len(said["outputs"])))
    return Answer(outputs, {}, tuple(said.get("cpu", {}).get("features", ())))


def judge(program: Compared, outputs: Sequence[Path]) -> Cell:
    """Compare outputs with upstream's."""
    from deploy.run.compare import compare

    if len(outputs) != len(program.outputs):
        why = f"{len(outputs)} outputs instead of {len(program.outputs)}"
        return Cell(outcome="differs", max_abs=INFINITE, why=why)
    found = [
        compare(f"output{index}", got, want, limit)
        for index, (got, want, limit) in enumerate(zip(outputs, program.outputs, program.limits, strict=True))
    ]
    worst = max((INFINITE if one.max_abs is None else min(one.max_abs, INFINITE) for one in found), default=0.0)
    if wrong := [one for one in found if one.verdict == "differs"]:
        why = "; ".join(f"{one.name}: {one.why or f'{one.outside} of {one.elements} elements'}" for one in wrong)
        return Cell(outcome="differs", max_abs=worst, why=why)
    same = all(one.verdict == "identical" for one in found)
    return Cell(outcome="exact" if same else "agrees", max_abs=float(f"{worst:.2g}"))


def _how(executor: Executor, features: Sequence[str]) -> str:
    """How programs ran there; on this machine's own x86, with the highest feature level that kernels use."""
    platform = executor.platform
    if not features or platform.cpu != platforms.NATIVE or platform.target.machine not in ("x86_64", "i686"):
        return platform.how
    level = next((word for name, word in (("avx512f", "AVX512"), ("avx2", "AVX2")) if name in features), "SSE")
    return f"{platform.how} ({level})"


def look(executor: Executor, program: Compared) -> Cell:
    """Run one program on one executor and compare.

    Raises:
        HostError: nothing can run it here.
    """
    with tempfile.TemporaryDirectory(prefix="slipway-agree-") as folder:
        try:
            answer = execute(executor, program, Path(folder))
        except HostError as error:
            if not isinstance(error.__cause__, subprocess.TimeoutExpired):
                raise
            return Cell(outcome="too slow", why=f"over {SECONDS:.0f} s, {executor.platform.how}")
        if not answer.error:
            return judge(program, answer.outputs).model_copy(update={"how": _how(executor, answer.features)})
        why = " ".join(str(answer.error.get("message", "")).split())
        refused = answer.error.get("kind") in _REFUSED or _HARDWARE in why
        return Cell(outcome="refused" if refused else "failed", why=why)


def native(bundle: Bundle) -> Executor:
    """This machine's own CPU."""
    return Executor.of(bundle, platforms.platform_for(get_target(bundle.manifest.target), platforms.NATIVE))


def outputs_of(bundle: Bundle, program: Path, inputs: Sequence[Path], folder: Path) -> list[Any]:
    """The outputs of a program on this machine's own bundle.

    Raises:
        MismatchError: the runner failed; with what it said.
    """
    answer = execute(native(bundle), Compared(About(program.name), program, tuple(inputs), (), ()), folder)
    if answer.error:
        raise MismatchError(f"{program} does not run on {bundle.path}.", str(answer.error), "run it by hand")
    return [np.load(file) for file in answer.outputs]
