"""A program on an engine, measured process by process.

Whoever measures lets processes of all engines alternate, so that what else the machine does meets all of them alike.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from core.errors import BuildError
from core.processes.commands import run as run_command

_SECONDS = 600.0


@dataclass
class Case:
    """A program on an engine of this machine, and what was measured of it."""

    name: str
    engine: str
    runner: Sequence[str | Path]
    """Words that start `pte_runner`, or what takes its flags and answers as it does."""
    program: Path
    inputs: tuple[Path, ...]
    flags: tuple[str, ...] = ()
    load: list[float] = field(default_factory=list)
    """Milliseconds, as ``latency``."""
    latency: list[float] = field(default_factory=list)
    """Of all executions of all processes."""
    rss: list[int] = field(default_factory=list)
    library_bytes: int = 0
    """Of the libraries in its process; not of the runner's own."""

    def run(self, threads: int, executions: int, warmup: int = 3) -> list[float]:
        """One process; its figures are added. Returns the times of its executions in milliseconds."""
        done = run_command(
            [*self.runner, f"--model_path={self.program}", f"--inputs={','.join(map(str, self.inputs))}",
             f"--num_executions={executions}", f"--warmup={warmup}", f"--cpu_threads={threads}", "--json",
             *self.flags],
            timeout=_SECONDS, error=BuildError, what=f"Running {self.name} on {self.engine}",
        )  # fmt: skip
        answer = json.loads(done.stdout)
        times: list[float] = answer["latency_ms"]["all"]
        self.load.append(answer["load_ms"])
        self.latency += times
        self.rss.append(answer["peak_rss_bytes"])
        self.library_bytes = answer.get("library_bytes", 0)
        return times


def machine() -> str:
    """This machine's processor, what decides about kernels of x86, and how many there are."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    words = [line for line in lines if line.startswith(("model name", "flags"))]
    name = next((line.partition(":")[2].strip() for line in words if line.startswith("model")), platform.machine())
    flags = next((line for line in words if line.startswith("flags")), "")
    level = next((word for flag, word in (("avx512f", "AVX512"), ("avx2", "AVX2")) if flag in flags.split()), "")
    return ", ".join(filter(None, [name, level, f"{os.cpu_count()} processors"]))
