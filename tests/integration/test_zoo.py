"""Every model of the zoo in every scheme: bit for bit upstream's on this machine, within its tolerance elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from models.zoo import everything
from tests.conftest import Inv
from toolchains.targets import host_target

pytestmark = [pytest.mark.build, pytest.mark.export]

FP32 = 1e-5
"""How far a float32 output on the Pi may be from the host's: sums are taken in another order, nothing else."""


SAMPLE = {
    ("linear", "fp32"), ("linear", "qd8_qb4w"), ("conv", "qs8"), ("matmul", "fp16"), ("mlp", "qd8_qc8w"),
    ("mixed", "qd8_qb4w"), ("mixed", "fp16"), ("mobilenet_v2", "qs8"),
}  # fmt: skip
"""What CI deploys to the Pi: every model and every scheme; ./inv test --all deploys every pair."""


@pytest.fixture(scope="module")
def exported(inv: Inv) -> None:
    """All of them, by one command; those that are current already cost nothing."""
    done = inv("export", "--model", "all", "--scheme", "all", timeout=1800)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def lean(inv: Inv) -> None:
    """The engine's bundle; with an empty cache XNNPACK is compiled for it, which takes longer than a deploy may."""
    done = inv("build", "--target", host_target().name, "--engine", "lean", timeout=3600)
    assert done.returncode == 0, done.stdout + done.stderr


def _deploy(inv: Inv, *words: str) -> dict[str, Any]:
    done = inv("deploy", *words, "--json", timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    assert result["outputs"]
    return result


@pytest.mark.parametrize(("model", "scheme"), everything())
def test_bit_identical_on_this_machine(inv: Inv, exported: None, model: str, scheme: str) -> None:
    result = _deploy(inv, "--device", "local", "--model", model, "--scheme", scheme)
    assert [output["verdict"] for output in result["outputs"]] == ["identical"] * len(result["outputs"])


@pytest.mark.parametrize(("model", "scheme"), everything())
def test_the_lean_engine_agrees_with_upstreams(inv: Inv, exported: None, lean: None, model: str, scheme: str) -> None:
    result = _deploy(inv, "--device", "local", "--engine", "lean", "--model", model, "--scheme", scheme)
    for output in result["outputs"]:
        assert output["verdict"] in ("identical", "agrees"), output
        if scheme == "qs8":
            assert output["verdict"] == "identical", "integer arithmetic is exact"


def test_the_sample_has_every_model_and_every_scheme() -> None:
    assert set(everything()) > SAMPLE
    for index in (0, 1):
        assert {pair[index] for pair in SAMPLE} == {pair[index] for pair in everything()}


@pytest.mark.virtual
@pytest.mark.parametrize(
    ("model", "scheme"),
    # The other pairs run on this machine (above, with both engines); the sample has each of their models and schemes.
    [pytest.param(*pair, marks=() if pair in SAMPLE else pytest.mark.long) for pair in everything()],
)
def test_agrees_on_the_virtual_pi(inv: Inv, exported: None, model: str, scheme: str) -> None:
    result = _deploy(inv, "--device", "pi", "--model", model, "--scheme", scheme)
    for output in result["outputs"]:
        assert output["verdict"] in ("identical", "agrees"), output
        if scheme in ("fp32", "qd8_qc8w", "qd8_qb4w"):
            assert output["max_abs"] <= FP32, output
        if scheme == "qs8":
            assert output["verdict"] == "identical", "integer arithmetic is exact"


def test_quantized_operators_outside_a_delegate_run_too(inv: Inv, tmp_path: Path) -> None:
    # Into a folder of its own: other tests deploy the program that has this name in dist/programs.
    words = ("export", "--model", "mlp", "--scheme", "qs8", "--partitioners", "none", "--json")
    whole = inv(*words, timeout=600, env={"SLIPWAY_DIST": str(tmp_path)})
    assert whole.returncode == 0, whole.stdout + whole.stderr
    program = json.loads(whole.stdout)
    outside = [one["name"] for one in program["undelegated"]]
    assert any(name.startswith("quantized_decomposed::") for name in outside), outside
    result = _deploy(inv, "--device", "local", "--program", program["path"])
    assert all(output["verdict"] in ("identical", "agrees") for output in result["outputs"])
