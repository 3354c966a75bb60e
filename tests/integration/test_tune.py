"""The kernels of layers: what could compute each, files that choose, and their measurement on a device."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from core.bundle import RUNNER, Bundle
from models.export import export
from toolchains.build import builder
from toolchains.targets import host_target

pytestmark = [pytest.mark.build, pytest.mark.export]

Answer = dict[str, Any]


@pytest.fixture(scope="module")
def lean() -> Bundle:
    """This machine's own bundle of the lean engine."""
    return builder.build(host_target().name, "lean")


@pytest.fixture(scope="module")
def mixed() -> Path:
    """A program with convolutions, a depthwise one, and a linear layer."""
    return export("mixed", "fp32") / "model.pte"


def ask(lean: Bundle, *words: str, code: int = 0) -> tuple[Answer, str]:
    """The runner's JSON and what it says on standard error."""
    argv = [str(lean.path / RUNNER), *words, "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout), done.stderr


def kernels(lean: Bundle, program: Path, *words: str) -> dict[str, Answer]:
    """The layers' kernels with what else could compute them, by the layers' names."""
    found, _ = ask(lean, f"--model_path={program}", "--describe", "--kernels", *words)
    return {use["layer"]: use for use in found["methods"][0]["kernels"]}


def test_describe_lists_what_could_compute_each_layer(lean: Bundle, mixed: Path) -> None:
    layers = kernels(lean, mixed)
    assert layers
    for name, use in layers.items():
        names = [candidate["choice"] for candidate in use["candidates"]]
        assert name.startswith("forward/")
        assert len(set(names)) == len(names)
        assert names[-1] == "xnnpack"
        assert use["choice"] == use["own_choice"]
        assert use["choice"] in names
        # A tile's name is a part of its kernel's.
        assert use["library"] == ("XNNPACK" if use["choice"] == "xnnpack" else "Slipway")
        assert use["choice"] in use["kernel"].replace("f32_gemm_", "") or use["choice"] == "xnnpack"
    if host_target().machine == "x86_64":
        assert any(len(use["candidates"]) > 2 for use in layers.values())
    plain, _ = ask(lean, f"--model_path={mixed}", "--describe")
    assert all("candidates" not in use for use in plain["methods"][0]["kernels"])
