"""Every operator of the XNNPACK provider, in every form, on three targets: against the CPU provider and the table.

The forms of one operator set are side by side in one model, for an emulated runner starts slowly.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from core.environment import ensure_onnx
from core.formats.bundle import Bundle
from verify.operators import onnx as operators

pytestmark = [pytest.mark.build, pytest.mark.export]

XNNPACK = "XnnpackExecutionProvider"
TARGETS = ["linux-x86_64", "linux-arm64", "linux-armv7"]


@pytest.fixture(scope="module", params=TARGETS)
def bundle(request: pytest.FixtureRequest) -> Bundle:
    from toolchains.bundle.builder import build

    ensure_onnx()
    return build(request.param, operators.ENGINE)


def test_every_form_agrees_with_the_cpu_provider(bundle: Bundle, tmp_path: Path) -> None:
    from models.onnx.operators import CASES

    found = operators.look_together(bundle, tmp_path)
    assert set(found) == {case.name for case in CASES}
    assert [name for name, seen in found.items() if not seen.agrees] == []
    known = operators.providers(bundle.manifest.target)
    assert {name: seen.provider for name, seen in found.items()} == known, "./inv self.operators --update is due"


@pytest.mark.parametrize(
    ("name", "does"),
    [("gemm-no-bias", "crash"), ("gemm-rows", "wrong"), ("qlinearconvtranspose-qdq-channels", "refuse")],
)
def test_what_is_kept_from_the_provider_would_go_wrong(name: str, does: str) -> None:
    from models.onnx.operators import CASES
    from toolchains.bundle.builder import build

    bundle = build("linux-x86_64", operators.ENGINE)
    case = next(case for case in CASES if case.name == name)
    seen = operators.look(bundle, case)
    assert (seen.provider, seen.agrees) == ("cpu", True)
    assert does in seen.trusted


def test_the_rules_hold_at_their_limits(tmp_path: Path) -> None:
    """What becomes of an operator, guarded and trusted."""
    from tests.support.provider_forms import FORMS
    from toolchains.bundle.builder import build

    bundle = build("linux-x86_64", operators.ENGINE)
    for form in FORMS:
        model = form.model()
        cpu, guarded, bare = (
            operators.execute(bundle, model, tmp_path, *flags)
            for flags in (["--provider=cpu"], ["--provider=xnnpack"], ["--provider=xnnpack", "--trust_provider"])
        )
        assert not cpu.failure, (form.name, cpu.failure)
        assert not guarded.failure, (form.name, guarded.failure)
        assert _near(guarded, cpu, form.near), form.name
        ran = {provider for operator, provider in guarded.placed if operator == form.operator}
        assert ran == {XNNPACK if form.taken else "CPUExecutionProvider"}, (form.name, guarded.placed)
        assert form.luck or _near(bare, cpu, form.near) is form.trusted, (form.name, bare.failure)
        assert form.trusted or guarded.kept, form.name


def _near(run: operators.Run, cpu: operators.Run, limit: float) -> bool:
    """Whether a model ran and gave what the CPU provider gave."""
    return not run.failure and all(
        operators.difference(*pair) <= limit for pair in zip(run.outputs, cpu.outputs, strict=True)
    )
