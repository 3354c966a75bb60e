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


def test_what_is_expected_of_a_file_is_what_happens(tmp_path: Path) -> None:
    """``pte_runner --describe`` against what was seen, target by target."""
    ensure_onnx()
    from models.onnx.operators import CASES
    from toolchains.bundle.builder import build

    bundle = build("linux-x86_64", operators.ENGINE)

    remarks = {(row["operator"], row["form"]): row["what differs"] for row in operators.OPERATORS.rows()}
    assert set(remarks) == {(case.operator, case.title) for case in CASES}, "./inv self.operators --update is due"
    for target in TARGETS:
        known = operators.providers(target)
        for case in CASES:
            nodes = operators.expected(bundle, case.model(), tmp_path)
            provider, why = next(one[1:] for one in nodes if operators.is_own(case, one[0]))
            assert (provider == XNNPACK) is (known[case.name] == "xnnpack"), (target, case.name)
            dangerous = remarks[case.operator, case.title].startswith("the provider **")
            assert (operators.DANGER in why) is dangerous, case.name


def test_the_rules_hold_at_their_limits(tmp_path: Path) -> None:
    """What the runner expects of an operator against what becomes of it, guarded and trusted."""
    from tests.support.provider_forms import FORMS
    from toolchains.bundle.builder import build

    bundle = build("linux-x86_64", operators.ENGINE)
    for form in FORMS:
        model = form.model()
        nodes = operators.expected(bundle, model, tmp_path)
        cpu, guarded, bare = (
            operators.execute(bundle, model, tmp_path, *flags)
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
            assert any(operators.DANGER in one[2] for one in nodes), (form.name, nodes)


def _near(run: operators.Run, cpu: operators.Run, limit: float) -> bool:
    """Whether a model ran and gave what the CPU provider gave."""
    return not run.failure and all(
        operators.difference(*pair) <= limit for pair in zip(run.outputs, cpu.outputs, strict=True)
    )
