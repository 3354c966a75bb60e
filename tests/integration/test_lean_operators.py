"""The lean engine's kernels against ATen, through programs that upstream's exporter made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.formats.bundle import Bundle
from tests.support.builds import named

pytestmark = [pytest.mark.build, pytest.mark.export, pytest.mark.filterwarnings("ignore")]

# float64: the exporter makes constants of a module float32, so 0.1 is not the 0.1 that ATen has.
TOLERANCE = {"float16": 2e-3, "float32": 1e-5, "float64": 1e-7}
GROUPS = named("verify/operators/single.py", "GROUPS")
FAMILIES = named("verify/operators/draws.py", "FAMILIES")


SEED = 11


def _run(lean: Bundle, folder: Path, program: bytes, inputs: Any) -> list[Any]:
    from verify.agree.look import outputs_of

    (folder / "program.pte").write_bytes(program)
    names = []
    for i, value in enumerate(inputs):
        names.append(folder / f"in{i}.npy")
        np.save(names[-1], value.detach().contiguous().numpy())
    return outputs_of(lean, folder / "program.pte", names, folder)


def _compare(found: Any, expected: Any, where: str) -> None:
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape), where
    if expected.dtype.kind in "biu":
        np.testing.assert_array_equal(found, expected, where)
    else:
        tolerance = TOLERANCE[expected.dtype.name]
        np.testing.assert_allclose(found, expected, tolerance, tolerance, err_msg=where)


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_of_operators_computes_what_aten_does(lean: Bundle, tmp_path: Path, group: str) -> None:
    from verify.operators import single as operators

    program, inputs, wanted, names = operators.export(group, seed=0)
    missing = sorted(set(names) - set(lean.manifest.offers.operators))
    assert not missing, "operators without a kernel"
    for i, (found, result) in enumerate(zip(_run(lean, tmp_path, program, inputs), wanted, strict=True)):
        _compare(found, result.detach().numpy(), f"result {i} of {group}, of {', '.join(names)}")


@pytest.mark.parametrize("family", FAMILIES)
def test_every_kernel_computes_what_aten_does(lean: Bundle, tmp_path: Path, family: str) -> None:
    from verify.operators import draws

    batch = draws.export(draws.draw(family, SEED))
    assert {case.kernel for case in batch.cases} <= set(batch.operators), "cases that no longer exercise their kernel"
    found = iter(_run(lean, tmp_path, batch.program, batch.inputs))
    for case, results in zip(batch.cases, batch.results, strict=True):
        given = ", ".join(f"{one.dtype} {tuple(one.shape)}" for one in case.inputs)
        for i, result in enumerate(results):
            _compare(next(found), result.detach().contiguous().numpy(), f"{case.kernel}, result {i}, of {given}")
    assert next(found, None) is None


@pytest.mark.parametrize("which", ["numbers", "calls"])
def test_kernels_that_no_export_calls(lean: Bundle, tmp_path: Path, which: str) -> None:
    import torch

    from verify.operators import written

    torch.manual_seed(SEED)
    writer = getattr(written, which)()
    outputs = _run(lean, tmp_path, writer.program(), writer.inputs)
    assert len(outputs) == len(writer.results)
    for i, (found, result) in enumerate(zip(outputs, writer.results, strict=True)):
        _compare(found, result.contiguous().numpy(), f"output {i} of {which}")


def test_random_numbers_are_spread_as_they_should_be(lean: Bundle, tmp_path: Path) -> None:
    from verify.operators import written

    writer = written.chance()
    rand, randn, dropped, mask, kept, kept_mask, *empty = _run(lean, tmp_path, writer.program(), writer.inputs)
    assert 0 <= rand.min() < 0.01 and 0.99 < rand.max() < 1 and abs(rand.mean() - 0.5) < 0.02
    assert abs(randn.mean()) < 0.06 and abs(randn.std() - 1) < 0.05 and abs(randn).max() > 2.5
    assert len(np.unique(rand)) > 3900, "numbers come again"
    assert 0.72 < mask.mean() < 0.78
    np.testing.assert_array_equal(dropped, np.where(mask, np.float32(1 / 0.75), np.float32(0)))
    assert kept_mask.all() and (kept == 1).all()
    assert [one.shape for one in empty] == [(2, 3), (2, 3)]


def test_every_kernel_is_exercised_and_the_table_is_what_is_there(lean: Bundle) -> None:
    from verify.operators import coverage as operator_coverage

    found = operator_coverage.look(lean.manifest.offers.operators)
    assert [name for name, group in found["kernels"].items() if not group] == [], "kernels that no test exercises"
    assert set(operator_coverage.NOT_COVERED) == set(found["upstream"]) - set(found["kernels"])
    assert operator_coverage.rows(found) == operator_coverage.OPERATORS.rows(), "python -m verify.operators.coverage"
