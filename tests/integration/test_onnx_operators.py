"""Which models the engine keeps from ONNX Runtime's XNNPACK provider, and what the provider would do with it."""

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


def test_the_rules_hold_at_their_limits(tmp_path: Path) -> None:
    """What becomes of an operator, guarded and trusted."""
    ensure_onnx()
    from tests.support.provider_forms import FORMS, execute
    from toolchains.bundle.builder import build

    bundle = build("linux-x86_64", "onnxruntime")
    for form in FORMS:
        model = form.model()
        cpu, guarded, bare = (
            execute(bundle, model, tmp_path, *flags)
            for flags in (["--provider=cpu"], ["--provider=xnnpack"], ["--provider=xnnpack", "--trust_provider"])
        )
        assert not cpu.failure, (form.name, cpu.failure)
        assert not guarded.failure, (form.name, guarded.failure)
        assert _near(guarded, cpu, form.near), form.name
        ran = {provider for operator, provider in guarded.placed if operator == form.operator}
        assert ran == {XNNPACK if form.taken else "CPUExecutionProvider"}, (form.name, guarded.placed)
        assert form.luck or _near(bare, cpu, form.near) is form.trusted, (form.name, bare.failure)
        assert form.trusted or guarded.kept, form.name


def _near(run: Run, cpu: Run, limit: float) -> bool:
    """Whether a model ran and gave what the CPU provider gave."""
    return not run.failure and all(
        got.shape == want.shape and float(np.abs(got.astype(np.float64) - want.astype(np.float64)).max()) <= limit
        for got, want in zip(run.outputs, cpu.outputs, strict=True)
    )
