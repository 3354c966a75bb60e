"""Programs in float16 on processors that compute in it and on others, under QEMU: upstream's numbers on all of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from core.formats.bundle import RUNNER
from core.formats.program import load_program
from deploy.run.compare import compare
from models.export import export
from tests.support.processes import ran
from toolchains.bundle import builder
from toolchains.compilers.sysroot import sysroot
from toolchains.emulation import emulators
from toolchains.targets import get_target

pytestmark = [pytest.mark.build, pytest.mark.export]

MODELS = ("mlp", "conv", "matmul")
CPUS = [
    ("linux-arm64", "cortex-a53", True),
    ("linux-arm64", "cortex-a76", False),
    ("linux-x86_64", "Nehalem", True),
    ("linux-x86_64", "", False),
]
"""Target, processor (none: this machine), and whether half precision is computed in float32 there."""


@pytest.mark.parametrize(("target_name", "cpu", "instead"), CPUS)
def test_half_precision_runs_everywhere(target_name: str, cpu: str, instead: bool, tmp_path: Path) -> None:
    target = get_target(target_name)
    bundle = builder.build(target_name, "lean")
    root = None if emulators.is_native(target) else sysroot(target)
    prefix = emulators.user_argv(target, cpu, root)
    for model in MODELS:
        folder = export(model, "fp16")
        program = load_program(folder)
        inputs = ",".join(str(folder / item.file) for item in program.inputs)
        argv = [*prefix, str(bundle.path / RUNNER), f"--model_path={folder / program.file}", f"--inputs={inputs}"]
        argv += ["--json", f"--output_file={tmp_path / model}", "--warmup=1", "--num_executions=1"]
        done = ran(argv, timeout=120)
        assert done.returncode == 0, done.stderr
        result: dict[str, Any] = json.loads(done.stdout)
        told = [(item["wanted"], item["used"]) for item in result.get("fallbacks", ())]
        assert told == ([("float16", "float32")] if instead else []), result.get("fallbacks")
        for index, item in enumerate(program.outputs):
            assert result["outputs"][index]["dtype"] == "float16"
            found = compare(
                item.file, tmp_path / f"{model}{index}.npy", folder / item.file, program.tolerance_of(index)
            )
            assert found.verdict in ("identical", "agrees"), found
