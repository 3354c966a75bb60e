"""Layers that KleidiAI has kernels for, run on a CPU model under QEMU."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.formats.bundle import RUNNER, Bundle
from toolchains.emulation.platforms import platform_for
from toolchains.targets import get_target

MAKER = Path(__file__).with_name("kleidiai_layers.py")
TARGET = "linux-arm64"

Use = tuple[str, str]
"""A kind of node ("Fully Connected (NC, PF16) GEMM") and the kernel that computed it."""


@dataclass(frozen=True)
class Looked:
    """What the runner said of a program on a CPU."""

    result: dict[str, Any]
    uses: tuple[Use, ...]
    """Of the run, in order."""
    described: tuple[Use, ...]
    """Of ``--describe``."""


def _uses(kernels: list[dict[str, str]]) -> tuple[Use, ...]:
    """Without the numbers that tell nodes of a kind apart."""
    return tuple((use["node"].rpartition(" #")[0], use["kernel"]) for use in kernels)


def look(bundle: Bundle, cpu: str, folder: Path, program: str, outputs: Path) -> Looked:
    """Run a program of ``folder`` and describe it; outputs are ``outputs`` followed by number and ``.npy``."""
    platform = platform_for(get_target(TARGET), cpu)
    inputs = sorted(folder.glob(f"{program}.in*.npy"))
    common = ["--json", f"--model_path={folder / program}.pte"]
    words = [f"--inputs={','.join(map(str, inputs))}", "--cpu_threads=2", "--num_executions=2", "--profile"]
    said = []
    for more in ([*words, f"--output_file={outputs}"], ["--describe"]):
        done = platform.run(bundle.path / RUNNER, [*common, *more], timeout=120)
        assert done.returncode == 0, f"{program} on {cpu}: {done.stderr}"
        said.append(json.loads(done.stdout))
    return Looked(said[0], _uses(said[0]["kernels"]), _uses(said[1]["methods"][0]["kernels"]))
