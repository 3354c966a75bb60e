"""Every operator of the XNNPACK provider, in every form, on three targets: against the CPU provider and the table.

The forms of one operator set are side by side in one model, for an emulated runner starts slowly.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from core.bundle import Bundle
from core.environment import ensure_onnx
from core.files import sha256_file
from verify.operators import onnx as operators

pytestmark = [pytest.mark.build, pytest.mark.export]

TARGETS = ["linux-x86_64", "linux-arm64", "linux-armv7"]


@pytest.fixture(scope="module", params=TARGETS)
def bundle(request: pytest.FixtureRequest) -> Bundle:
    from toolchains.build.builder import build

    ensure_onnx()
    return build(request.param, operators.ENGINE)


def test_every_form_agrees_with_the_cpu_provider(bundle: Bundle, tmp_path: Path) -> None:
    from models.onnx.operators import CASES

    found = operators.look_together(bundle, tmp_path)
    assert set(found) == {case.name for case in CASES}
    assert [name for name, seen in found.items() if not seen.agrees] == []
    kept = operators.kept()["targets"][bundle.manifest.target]["cases"]
    assert {name: seen.provider for name, seen in found.items()} == {
        name: seen["provider"] for name, seen in kept.items()
    }, "./inv operators --update is due"


@pytest.mark.parametrize(
    ("name", "does"),
    [("gemm-no-bias", "crash"), ("gemm-rows", "wrong"), ("qlinearconvtranspose-qdq-channels", "refuse")],
)
def test_what_is_kept_from_the_provider_would_go_wrong(name: str, does: str) -> None:
    from models.onnx.operators import CASES
    from toolchains.build.builder import build

    bundle = build("linux-x86_64", operators.ENGINE)
    case = next(case for case in CASES if case.name == name)
    seen = operators.look(bundle, case)
    assert (seen.provider, seen.agrees) == ("cpu", True)
    assert does in seen.trusted


def test_the_table_is_that_of_all_forms() -> None:
    ensure_onnx()
    assert operators.kept()["forms"] == json.loads(json.dumps(operators.forms())), "./inv operators --update is due"
    assert list(operators.kept()["targets"]) == TARGETS


def test_what_is_expected_of_a_file_is_what_happens() -> None:
    """`models.onnx.coverage` against what was seen, target by target."""
    from models.onnx.coverage import XNNPACK, placement
    from models.onnx.operators import CASES

    for target, seen in operators.kept()["targets"].items():
        for case in CASES:
            own = next(one for one in placement(case.model()) if operators.is_own(case, one.operator))
            assert (own.provider == XNNPACK) is (seen["cases"][case.name]["provider"] == "xnnpack"), (target, case.name)
            if target == operators.ALONE:
                assert bool(own.danger) is bool(seen["cases"][case.name]["trusted"]), case.name


def test_describing_a_file_foresees_it_too(tmp_path: Path) -> None:
    """``pte_runner --describe`` against `models.onnx.coverage`: two tellings of the same rules."""
    import onnx

    from deploy.run.needs import describe
    from models.onnx.coverage import placement
    from models.onnx.operators import CASES
    from toolchains.build.builder import build

    bundle = build("linux-x86_64", operators.ENGINE)
    for case in CASES:
        file = tmp_path / f"{case.name}.onnx"
        onnx.save(case.model(), file)
        (method,) = describe(bundle, file, sha256_file(file)).methods
        told = [(node.operator.rpartition(":")[2], node.provider, bool(node.why)) for node in method.nodes]
        expected = [(one.operator, one.provider, bool(one.why)) for one in placement(case.model())]
        assert told == expected, case.name
