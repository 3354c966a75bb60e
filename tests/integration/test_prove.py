"""XNNPACK and KleidiAI compute rightly: the proof program on CPU models from the least one on, natively, on Wine."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from core.formats.bundle import Native
from core.paths import cache_dir
from tests.conftest import Inv
from verify.prove import prove
from verify.prove import table as prove_table
from verify.prove.proof import Row

pytestmark = pytest.mark.build

Build = Callable[[str], Native]

QC4W, QB4W = "fc_qp8_qc4w_m13_k128_n50", "fc_qp8_qb4w_m17_k192_n50"


def refused(row: Row) -> set[str]:
    return {name for name, result in row.cases.items() if result.outcome == "unsupported"}


@pytest.mark.parametrize(
    ("target", "cpu", "half"),
    [
        ("linux-armv6", "arm1176", False),
        ("linux-arm64", "cortex-a53", False),
        ("linux-arm64", "max", True),
        ("linux-x86_64", "Nehalem", False),
        ("linux-x86_64", "native", True),
        ("windows-x86_64", "wine", True),
    ],
)
def test_every_case_passes(native_packages: Build, target: str, cpu: str, half: bool) -> None:
    row = prove.prove_one(native_packages(target), cpu, with_kernels=False)
    assert row.outcome == "passed", row.why
    assert len(row.cases) == 46
    # Half precision that nothing can compute is all that may be refused.
    machine_has_it = half and (cpu not in {"native", "wine"} or "avx2" in row.features)
    forced = {name for name in row.cases if "f16_force" in name}
    assert len(forced) == 6
    assert refused(row) == (set() if machine_has_it else forced)


@pytest.mark.parametrize(
    ("cpu", "wanted"), [("cortex-a53", ""), ("cortex-a76", "neon_dotprod"), ("max", "neon_i8mm"), ("sme2", "neon_i8mm")]
)
def test_kleidiai_runs_where_the_cpu_has_what_it_needs(native_packages: Build, cpu: str, wanted: str) -> None:
    row = prove.prove_one(native_packages("linux-arm64"), cpu, only=(QC4W, QB4W))
    assert row.outcome == "passed", row.why
    for name in (QC4W, QB4W):
        result = row.cases[name]
        matmul = [kernel for kernel in result.kernels if kernel.startswith("kai_run_matmul")]
        assert any(operator.startswith("Convert (NC, F32, QP8)") for operator in result.operators) is bool(wanted)
        assert all(wanted in kernel for kernel in matmul)
        assert bool(matmul) is bool(wanted)
        own = "xnn_qp8_" if wanted else "xnn_qd8_"
        assert any(kernel.startswith(own) for kernel in result.kernels), result.kernels


def test_sme2_multiplies_floats_with_kleidiai(native_packages: Build) -> None:
    row = prove.prove_one(native_packages("linux-arm64"), "sme2", only=("fc_f32_m13_k128_n50",))
    assert row.outcome == "passed", row.why
    assert "sme2" in row.features
    assert any("sme2" in kernel for kernel in prove_table.kleidiai(row)), row.cases


def test_the_command_tells_and_keeps_the_results(native_packages: Build, inv: Inv) -> None:
    native_packages("linux-x86_64")
    dist = cache_dir("tests", "dist")
    words = ("self.prove", "--target", "linux-x86_64", "--cpu", "native", "--quick", "--json")
    done = inv(*words, env={"SLIPWAY_DIST": str(dist)})
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)
    assert (row["target"], row["cpu"], row["outcome"]) == ("linux-x86_64", "native", "passed")
    again = inv(*words, env={"SLIPWAY_DIST": str(dist)})
    assert json.loads(again.stdout) == [row]
    assert "[1/1]" not in again.stderr, "it is kept, and not run again"
    assert "[1/1]" in inv(*words, "--again", env={"SLIPWAY_DIST": str(dist)}).stderr
