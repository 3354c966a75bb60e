"""Programs of 16 bits on processors with and without such arithmetic; further architectures, beside upstream's."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.formats.bundle import RUNNER, Bundle
from core.formats.program import load_program
from deploy.run.compare import compare
from models.export import export
from models.zoo import load_compared
from tests.support.builds import lean
from tests.support.graphs import Graph, call_of, changed, tensor
from tests.support.processes import ran
from toolchains.bundle import builder
from toolchains.compilers.libstdcxx import sysroot
from toolchains.emulation import emulators
from toolchains.targets import get_target
from verify.agree.look import look, native
from verify.agree.programs import prepare, table

__all__ = ["lean"]

pytestmark = [pytest.mark.build, pytest.mark.export, pytest.mark.filterwarnings("ignore")]

MODELS = ("mlp", "conv", "matmul")
CPUS = [
    ("linux-arm64", "cortex-a53", True),
    ("linux-arm64", "cortex-a76", False),
    ("linux-x86_64", "Nehalem", True),
]
"""Target, processor, and whether half precision is computed in float32 there. On this machine: test_zoo.py."""


@pytest.mark.parametrize(("target_name", "cpu", "instead"), CPUS)
def test_half_precision_runs_everywhere(target_name: str, cpu: str, instead: bool, tmp_path: Path) -> None:
    target = get_target(target_name)
    bundle = builder.build(target_name, "lean")
    prefix = emulators.user_argv(target, cpu, None if emulators.is_native(target) else sysroot(target))
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


OUTSIDE = (1, 2)
"""Flags of a graph's inputs and outputs."""


def _in_bfloat16(graph: Graph, plan: Any) -> None:
    for index in range(len(graph["xvalues"])):
        value = tensor(graph, index)
        if value["flags"] in OUTSIDE:
            value["datatype"] = "xnn_datatype_bf16"
            argument = plan.values[call_of(plan).args[value["external_id"]]].val
            argument.scalar_type = type(argument.scalar_type).BFLOAT16


def _run(program: Path, given: Path, prefix: Path) -> Path:
    """Three times, with the same memory: the output."""
    runner = builder.build("linux-x86_64", "lean").path / RUNNER
    words = [f"--model_path={program}", f"--inputs={given}", f"--output_file={prefix}", "--num_executions=3"]
    done = ran([str(runner), *words], timeout=60)
    assert done.returncode == 0, done.stderr
    return prefix.with_name(f"{prefix.name}0.npy")


def test_a_layer_between_bfloat16_gives_the_rounded_numbers_of_float32(tmp_path: Path) -> None:
    """With 4-bit weights, which the pinned XNNPACK does not have: lean converts the tensors."""
    import torch

    from models.loading import reference

    folder = export("linear", "qd8_qb4w")
    manifest = load_program(folder)
    original = folder / manifest.file
    narrow = tmp_path / "narrow.pte"
    narrow.write_bytes(changed(original.read_bytes(), _in_bfloat16))
    given = torch.from_numpy(np.load(folder / manifest.inputs[0].file)).to(torch.bfloat16)
    reference.save(tmp_path, "narrow", given)
    reference.save(tmp_path, "wide", given.float())

    wide = np.load(_run(original, tmp_path / "wide.npy", tmp_path / "w"))
    wanted = torch.from_numpy(wide).to(torch.bfloat16).view(torch.int16).numpy()
    found = np.load(_run(narrow, tmp_path / "narrow.npy", tmp_path / "n"))
    assert found.dtype.itemsize == 2
    np.testing.assert_array_equal(found.view(np.int16), wanted)
    assert np.any(wanted)


TESTED = [f"{name} {scheme}" for name, one in load_compared().items() for scheme in one.tests]


@pytest.mark.parametrize("name", TESTED)
def test_an_architecture_agrees_with_upstreams_runtime(lean: Bundle, name: str) -> None:
    about = table()[name]
    (program,) = prepare([about])
    seen = look(native(lean), program)
    assert seen.good, seen
    assert seen.outcome == "exact" or not about.exact, seen
    delegates = load_program(program.file.parent).delegates
    assert delegates == 0 if about.scheme == "portable" else delegates > 0


def test_state_that_is_lost_between_executions_would_be_seen(lean: Bundle) -> None:
    (program,) = prepare([table()["llama portable"]])
    assert program.runs > 1
    assert look(native(lean), replace(program, runs=1)).outcome == "differs"
