"""The SDKs of the engines whose libraries come compiled, in a program of somebody else's."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import BundleError, NotSupportedError
from tests.support import examples
from toolchains.bundle.sdk import Sdk, build_sdk

pytestmark = [pytest.mark.build, pytest.mark.export]


@pytest.mark.parametrize(
    ("engine", "device"),
    [
        ("executorch", "local"),
        ("onnxruntime", "local"),
        # The sample that CI runs is this machine's, in the lines before.
        *(
            pytest.param(engine, device, marks=[pytest.mark.long, pytest.mark.virtual])
            for engine, device in (("executorch", "pi"), ("onnxruntime", "pi"), ("onnxruntime", "pi2"))
        ),
    ],
)
def test_the_examples_compute_what_the_engines_runner_computes(engine: str, device: str, tmp_path: Path) -> None:
    examples.run_installed(device, engine, tmp_path)


def test_what_is_missing_is_named_with_the_command_that_makes_it(tmp_path: Path) -> None:
    with pytest.raises(NotSupportedError, match="linux-armv7"):
        build_sdk("linux-armv7", engine="executorch")
    with pytest.raises(BundleError) as caught:
        Sdk.load(tmp_path / "linux-arm64/sdk-onnxruntime")
    assert caught.value.hint == "./inv build --target linux-arm64 --sdk --engine onnxruntime"
