"""The lean engine's kernels against ATen, through programs that upstream's exporter made."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.bundle import Bundle

pytestmark = [pytest.mark.build, pytest.mark.export, pytest.mark.filterwarnings("ignore")]

# float64: the exporter makes constants of a module float32, so 0.1 is not the 0.1 that ATen has.
TOLERANCE = {"float16": 2e-3, "float32": 1e-5, "float64": 1e-7}
GROUPS = [
    "unary", "unary-half", "unary-double", "binary", "binary-broadcast", "binary-half", "binary-mixed", "integers",
    "integers-narrow", "reductions", "reductions-long", "movement", "movement-half", "lookups", "products", "images",
]  # fmt: skip


@pytest.fixture(scope="module")
def lean() -> Bundle:
    """This machine's own bundle of the lean engine."""
    from deploy.inventory import host_target
    from toolchains.builder import build

    return build(host_target(), "lean")


def _run(lean: Bundle, folder: Path, program: bytes, inputs: Any, count: int) -> list[Any]:
    (folder / "program.pte").write_bytes(program)
    for i, value in enumerate(inputs):
        np.save(folder / f"in{i}.npy", value.numpy())
    names = ",".join(str(folder / f"in{i}.npy") for i in range(len(inputs)))
    argv = [str(lean.path / "bin" / "pte_runner"), "--model_path", str(folder / "program.pte"), "--inputs", names]
    argv += ["--output_file", str(folder / "out"), "--num_executions", "1", "--warmup", "0"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return [np.load(folder / f"out{i}.npy") for i in range(count)]


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_of_operators_computes_what_aten_does(lean: Bundle, tmp_path: Path, group: str) -> None:
    from tests import operators

    program, inputs, wanted, names = operators.export(group, seed=0)
    missing = sorted(set(names) - set(lean.manifest.offers.operators))
    assert not missing, "operators without a kernel"
    for i, (found, result) in enumerate(zip(_run(lean, tmp_path, program, inputs, len(wanted)), wanted, strict=True)):
        expected = result.detach().numpy()
        where = f"result {i} of {group}, of {', '.join(names)}"
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape), where
        if expected.dtype.kind in "biu":
            np.testing.assert_array_equal(found, expected, where)
        else:
            tolerance = TOLERANCE[expected.dtype.name]
            np.testing.assert_allclose(found, expected, tolerance, tolerance, err_msg=where)


def test_the_groups_are_all_tested() -> None:
    from tests import operators

    assert list(operators.GROUPS) == GROUPS
