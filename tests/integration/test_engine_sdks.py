"""The SDKs of the engines whose libraries come compiled, in a program of somebody else's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import examples

pytestmark = [pytest.mark.build, pytest.mark.export]


@pytest.mark.parametrize(
    ("engine", "device"),
    [
        ("executorch", "local"),
        ("onnxruntime", "local"),
        # The sample that CI runs is this machine's, in the lines before.
        *(
            pytest.param(engine, device, marks=[pytest.mark.long, pytest.mark.virtual])
            for engine, device in (("executorch", "pi"), ("onnxruntime", "pi2"))
        ),
    ],
)
def test_the_examples_compute_what_the_engines_runner_computes(engine: str, device: str, tmp_path: Path) -> None:
    examples.run_installed(device, engine, tmp_path)
