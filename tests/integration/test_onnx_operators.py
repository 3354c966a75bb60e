"""What the engine keeps from ONNX Runtime's XNNPACK provider, and what the provider would do with it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from core.environment import ensure_onnx

if TYPE_CHECKING:
    from tests.support.provider_forms import Run

pytestmark = [pytest.mark.build, pytest.mark.export]

XNNPACK = "XnnpackExecutionProvider"
DANGER = ": the XNNPACK provider "
"""In a reason, before what would go wrong."""


def test_the_rules_hold_at_their_limits(tmp_path: Path) -> None:
    """What the runner expects of an operator against what becomes of it, guarded and trusted."""
    ensure_onnx()
    from tests.support.provider_forms import FORMS, execute, expected
    from toolchains.bundle.builder import build

    bundle = build("linux-x86_64", "onnxruntime")
    for form in FORMS:
        model = form.model()
        nodes = expected(bundle, model, tmp_path)
        cpu, guarded, bare = (
            execute(bundle, model, tmp_path, *flags)
            for flags in (["--provider=cpu"], ["--provider=xnnpack"], ["--provider=xnnpack", "--trust_provider"])
        )
        assert not cpu.failure, (form.name, cpu.failure)
        assert not guarded.failure, (form.name, guarded.failure)
        assert _near(guarded, cpu, form.near), form.name
        ran = {provider for operator, provider in guarded.placed if operator == form.operator}
        assert ran == {XNNPACK if form.taken else "CPUExecutionProvider"}, (form.name, guarded.placed)
        plain = form.operator.removeprefix("QLinear")
        names = ("MatMul", "Gemm") if plain == "Gemm" else (plain,)
        provider = next(one[1] for one in nodes if one[0].removeprefix("QLinear") in names)
        assert (provider == XNNPACK) is form.taken, (form.name, nodes)
        assert form.luck or _near(bare, cpu, form.near) is form.trusted, (form.name, bare.failure)
        if not form.trusted:
            assert any(DANGER in one[2] for one in nodes), (form.name, nodes)


def _near(run: Run, cpu: Run, limit: float) -> bool:
    """Whether a model ran and gave what the CPU provider gave."""
    return not run.failure and all(
        got.shape == want.shape and float(np.abs(got.astype(np.float64) - want.astype(np.float64)).max()) <= limit
        for got, want in zip(run.outputs, cpu.outputs, strict=True)
    )
