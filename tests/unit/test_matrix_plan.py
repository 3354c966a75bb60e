"""Which cells a selection has, which are impossible and why, and what CI is given of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from commands.matrix import catalogue
from core.errors import ConfigError, NotSupportedError, UsageError
from deploy.devices.inventory import Device, get_device
from deploy.matrix import report as matrix_report
from deploy.matrix.matrix import MatrixRequest
from deploy.matrix.plan import Exportable, Plan, Selection, plan
from deploy.matrix.words import parse
from toolchains.targets import get_target

CATALOGUE = [
    Exportable(f"{model}-{scheme}" + ("-onnx" if kind == "onnx" else ""), model, scheme, kind)
    for model, schemes, kind in (
        ("mlp", ("fp32", "fp16", "qs8"), "pte"), ("matmul", ("fp32",), "pte"), ("mobilenet_v2", ("fp32", "qs8"), "pte"),
        ("mlp", ("fp32",), "onnx"),
    )
    for scheme in schemes
]  # fmt: skip
DEVICES = {
    device.name: device
    for device in (
        Device(name="local", transport="local", tags=("native",)),
        Device(name="pi", transport="ssh", host="a", target="linux-arm64", tags=("shelf",), fixtures=("camera",)),
        Device(name="pi-32", transport="ssh", host="b", target="linux-arm64", targets=("linux-armv7",)),
        Device(name="mac", transport="ssh", host="c", target="ios-arm64"),
    )
}

ENGINE = get_target("linux-arm64").working_engines[0]


def keys(only: str = "", **parts: tuple[str, ...]) -> list[str]:
    return [cell.key for cell in select(only, **parts).cells]


def select(only: str = "", **parts: tuple[str, ...]) -> Plan:
    return plan(DEVICES, CATALOGUE, Selection(parse(only), **parts))


def test_small_programs_with_the_default_engine_unless_more_is_asked_for() -> None:
    assert keys(devices=("pi",)) == [
        f"pi/linux-arm64/{ENGINE}/{name}" for name in ("mlp-fp32", "mlp-qs8", "matmul-fp32")
    ]


def test_emulated_cpus_are_in_a_matrix_when_they_are_asked_for() -> None:
    devices = {**DEVICES, **{name: get_device(name) for name in ("cpu:cortex-a53", "cpu:arm1176", "wine")}}

    def those(only: str = "", *named: str) -> set[str]:
        chosen = plan(devices, CATALOGUE, Selection(parse(only), devices=named, models=("mlp",)))
        return {f"{cell.device.name} {cell.target}" for cell in chosen.cells}

    a53 = {"cpu:cortex-a53 linux-arm64", "cpu:cortex-a53 android-arm64"}
    assert not any(name.startswith(("cpu:", "wine")) for name in those() | those("linux-arm64"))
    assert those("emulated | camera") == {"pi linux-arm64"}
    assert those("cpu:cortex-a53") == those("cortex-a53 & !pi") == those("", "cpu:cortex*") == a53
    assert those("cpu:* & linux-*") == {"cpu:cortex-a53 linux-arm64", "cpu:arm1176 linux-armv6"}
    assert those("wine") == {"wine windows-x86_64", "wine windows-x86"}
    assert those("", "*") > a53


@pytest.mark.parametrize(
    ("only", "programs"),
    [
        ("pi & mobilenet*", {"mobilenet_v2-fp32", "mobilenet_v2-qs8"}),
        ("pi & mlp", {"mlp-fp32", "mlp-qs8"}),
        ("pi & mlp*", {"mlp-fp32", "mlp-qs8"}),
        ("pi & fp16", {"mlp-fp16"}),
        ("pi & mlp-fp16", {"mlp-fp16"}),
        ("pi & program:m*-fp32", {"mlp-fp32", "matmul-fp32", "mobilenet_v2-fp32"}),
        ("camera & !mlp", {"matmul-fp32", "mobilenet_v2-fp32", "mobilenet_v2-qs8"}),
        ("fixture:camera & model:matmul", {"matmul-fp32"}),
    ],
)
def test_what_the_expression_speaks_of_is_taken_from_everything(only: str, programs: set[str]) -> None:
    found = select(only).cells
    assert {cell.program.name for cell in found} == programs
    assert {cell.device.name for cell in found} == {"pi"}


def test_a_device_may_have_several_targets() -> None:
    found = select("pi-32 & mlp-fp32*", engines=("onnxruntime",))
    assert [cell.key for cell in found.cells] == [
        "pi-32/linux-arm64/onnxruntime/mlp-fp32-onnx", "pi-32/linux-armv7/onnxruntime/mlp-fp32-onnx",
    ]  # fmt: skip
    assert [cell.device.target for cell in found.cells] == ["linux-arm64", "linux-armv7"]
    assert found.bundles == (("linux-arm64", "onnxruntime"), ("linux-armv7", "onnxruntime"))
    assert len(found.programs) == 1


def test_what_is_impossible_is_told_with_its_reason() -> None:
    found = select(devices=("pi", "mac"), models=("matmul",), engines=("default",))
    assert [cell.key for cell in found.cells] == [f"pi/linux-arm64/{ENGINE}/matmul-fp32"]
    reasons = {why: what for what, why, _count in found.reasons()}
    assert reasons["matmul has no scheme qs8 as .pte: it has fp32"] == f"pi · {ENGINE} on linux-arm64 · matmul-qs8"
    (mac,) = [why for why in reasons if "ios-arm64" in why]
    assert mac == "no engine runs on ios-arm64: lean is in libslipway alone, for apps"
    assert sum(count for _what, _why, count in found.reasons()) == len(found.impossible) == 3


def test_only_what_is_impossible_is_an_error() -> None:
    with pytest.raises(NotSupportedError, match="The selected cells cannot run") as caught:
        select("mac")
    assert "no engine runs on ios-arm64" in caught.value.cause
    with pytest.raises(UsageError, match="No cell"):
        select("pi & mac")


@pytest.mark.parametrize("part", ["devices", "engines", "models", "schemes"])
def test_names_are_checked(part: str) -> None:
    with pytest.raises(ConfigError, match=f"no {part[:-1]} 'nothing'"):
        plan(DEVICES, CATALOGUE, Selection(**cast("Any", {part: ("nothing",)})))


def test_jobs_for_ci_select_exactly_their_cells(capsys: pytest.CaptureFixture[str]) -> None:
    whole = select("pi | pi-32 | local", engines=("all",))
    matrix_report.print_matrix(whole)
    text = capsys.readouterr().out
    assert len(text.splitlines()) == 1
    jobs = json.loads(text)["include"]
    assert len({job["name"] for job in jobs}) == len(jobs)
    again = [key for job in jobs for key in keys(job["only"])]
    assert sorted(again) == sorted(cell.key for cell in whole.cells)
    assert sum(job["cells"] for job in jobs) == len(whole.cells)


def test_models_of_the_users_own_are_in_the_catalogue_by_their_names(tmp_path: Path) -> None:
    file = tmp_path / "nets.py"
    file.write_text("def make_model():\n    return None\n")
    source = f"{file}:make_model"
    asked, programs = catalogue(MatrixRequest(models=("mlp", source), schemes=("fp32", "fp16")))
    own = {each for each in programs if each.source}
    assert {(each.scheme, each.format) for each in own} == {("fp32", "pte"), ("fp32", "onnx"), ("fp16", "pte")}
    assert {each.source for each in own} == {source}
    (short,) = {each.model for each in own}
    assert asked.models == ("mlp", short)
    found = plan(DEVICES, programs, Selection(devices=("pi",), models=asked.models, schemes=("fp32",)))
    assert {cell.program.model for cell in found.cells} == {"mlp", short}
    assert {each.name for each in programs} >= {"mlp-fp32", "mlp-fp32-onnx", "mobilenet_v2-qs8"}


def test_variants_are_programs_of_their_own_where_they_make_sense() -> None:
    asked = MatrixRequest(models=("mlp",), schemes=("fp32", "qd8_qb4w"))
    asked, programs = catalogue(asked, "none group=64 group=32;per_op_mode=true")
    found = plan(DEVICES, programs, Selection(devices=("pi",), models=asked.models, schemes=asked.schemes))
    assert [cell.program.name for cell in found.cells] == [
        "mlp-fp32", "mlp-fp32-none", "mlp-qd8_qb4w", "mlp-qd8_qb4w-group_64", "mlp-qd8_qb4w-per_op_mode-group_32",
    ]  # fmt: skip
    (never,) = found.impossible
    assert never.program.name == "mlp-qd8_qb4w-none"
    assert "dynamic quantization needs a backend" in never.why_not
    with pytest.raises(ConfigError, match="group does not go with the scheme fp32"):
        catalogue(MatrixRequest(models=("mlp",), schemes=("fp32",)), "group=64")
    with pytest.raises(ConfigError, match="no partitioner 'nowhere'"):
        catalogue(MatrixRequest(models=("mlp",), schemes=("fp32",)), "nowhere")


def test_a_language_model_runs_on_lean_in_its_usual_scheme_unless_another_is_named() -> None:
    words = [Exportable(f"words-{scheme}", "words", scheme, "pte", text=True) for scheme in ("qd8_qb4w", "fp32")]

    def those(*models: str, **parts: Any) -> list[str]:
        chosen = plan(DEVICES, [*CATALOGUE, *words], Selection(devices=("pi",), models=models, **parts))
        return [cell.key for cell in (*chosen.cells, *chosen.impossible)]

    assert those("words") == ["pi/linux-arm64/lean/words-qd8_qb4w"]
    assert those("words", schemes=("fp32",)) == ["pi/linux-arm64/lean/words-fp32"]
    assert those("mlp", "words")[:2] == [f"pi/linux-arm64/{ENGINE}/mlp-fp32", f"pi/linux-arm64/{ENGINE}/mlp-qs8"]
    with pytest.raises(NotSupportedError, match="language models run on the engine lean"):
        those("words", engines=("executorch",))
