"""Layers with 4-bit weights between tensors of bfloat16, which the pinned XNNPACK does not have: lean converts them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.formats.bundle import RUNNER
from core.formats.program import load_program
from models.export import export
from tests.support.graphs import Graph, call_of, changed, tensor
from tests.support.processes import ran
from toolchains.bundle import builder

pytestmark = [pytest.mark.build, pytest.mark.export, pytest.mark.filterwarnings("ignore")]

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
