"""Which cells a selection has and why others are impossible; expressions over them; matrices of several jobs merged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from commands.matrix import catalogue
from core.errors import ConfigError, NotSupportedError, UsageError
from core.files import write_atomic
from deploy.devices.inventory import Device, get_device
from deploy.matrix import matrix as room
from deploy.matrix import report as matrix_report
from deploy.matrix.matrix import MatrixRequest, planned
from deploy.matrix.model import Change, Matrix
from deploy.matrix.plan import Exportable, Plan, Selection, Words, parse, plan
from tests.conftest import Inv
from tests.support.matrices import matrix, passed, problem
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


def keys(only: str = "", **parts: Any) -> list[str]:
    return [cell.key for cell in select(only, **parts).cells]


def select(only: str = "", **parts: Any) -> Plan:
    return plan(DEVICES, CATALOGUE, Selection(only, **parts))


def test_small_programs_with_the_default_engine_unless_more_is_asked_for() -> None:
    small = ("mlp-fp32", "mlp-qs8", "matmul-fp32")
    assert keys(devices=("pi",)) == [f"pi/linux-arm64/{ENGINE}/{name}" for name in small]


def test_emulated_cpus_are_in_a_matrix_when_they_are_asked_for() -> None:
    devices = {**DEVICES, **{name: get_device(name) for name in ("cpu:cortex-a53", "cpu:arm1176", "wine")}}

    def those(only: str = "", *named: str) -> set[str]:
        chosen = plan(devices, CATALOGUE, Selection(only, devices=named, models=("mlp",)))
        return {f"{cell.device.name} {cell.target}" for cell in chosen.cells}

    a53 = {"cpu:cortex-a53 linux-arm64", "cpu:cortex-a53 android-arm64"}
    assert not any(name.startswith(("cpu:", "wine")) for name in those() | those("linux-arm64"))
    assert those("emulated | camera") == {"pi linux-arm64"}
    assert those("cpu:cortex-a53") == those("cortex-a53 & !pi") == those("", "cpu:cortex*") == a53
    assert those("cpu:* & linux-*") == {"cpu:cortex-a53 linux-arm64", "cpu:arm1176 linux-armv6"}
    assert those("wine") == {"wine windows-x86_64", "wine windows-x86"}
    assert those("", "*") > a53


@pytest.mark.parametrize(("only", "programs"), [
    ("pi & mobilenet*", {"mobilenet_v2-fp32", "mobilenet_v2-qs8"}), ("pi & mlp", {"mlp-fp32", "mlp-qs8"}),
    ("pi & mlp*", {"mlp-fp32", "mlp-qs8"}), ("pi & fp16", {"mlp-fp16"}), ("pi & mlp-fp16", {"mlp-fp16"}),
    ("pi & program:m*-fp32", {"mlp-fp32", "matmul-fp32", "mobilenet_v2-fp32"}),
    ("camera & !mlp", {"matmul-fp32", "mobilenet_v2-fp32", "mobilenet_v2-qs8"}),
    ("fixture:camera & model:matmul", {"matmul-fp32"}),
])  # fmt: skip
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
    reasons = found.reasons()
    assert reasons["matmul has no scheme qs8 as .pte: it has fp32"] == [f"pi/linux-arm64/{ENGINE}/matmul-qs8"]
    (mac,) = [why for why in reasons if "ios-arm64" in why]
    assert mac == "no engine runs on ios-arm64: lean is in libslipway alone, for apps"
    assert sum(map(len, reasons.values())) == len(found.impossible) == 3


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


@pytest.mark.parametrize(("words", "there"), [
    ({"models": ("smollm2_135m",)}, True), ({"models": ("smol*",)}, True), ({"only": "pi & smollm2_135m-fp32"}, True),
    ({"models": ("*",)}, False), ({"only": "*-fp32 | s*"}, False), ({}, False),
])  # fmt: skip
def test_a_language_model_is_in_a_matrix_that_names_it(words: dict[str, Any], there: bool) -> None:
    _, programs = catalogue(MatrixRequest(**words))
    assert any(one.text for one in programs) is there


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


PHONE: Words = {
    "device": ("phone",), "tag": ("emulated", "shelf"), "target": ("android-arm64",), "engine": ("lean",),
    "program": ("mlp-qs8",), "model": ("mlp",), "scheme": ("qs8",),
}  # fmt: skip


@pytest.mark.parametrize(("text", "fits"), [
    ("", True), ("  ", True), ("phone", True), ("phon", False), ("phone & mlp*", True), ("phone&!mlp", False),
    ("!!phone", True), ("linux-* | android-*", True), ("linux-* | android-* & conv", False),
    ("(linux-* | android-*) & mlp", True), ("!(linux-* | conv) & [em]mulated", True), ("device:lean", False),
    ("engine:lean", True), ("scheme:q?8", True), ("tag:shelf & program:mlp-qs8", True), ("PHONE", False),
])  # fmt: skip
def test_an_expression_means_what_it_says(text: str, fits: bool) -> None:
    assert parse(text).fits(PHONE) is fits


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("phone &", "at character 8 there is the end where a word"),
        ("(phone", "at character 7 there is the end where & or | or )"),
        ("phone)", "at character 6 there is ')'"),
        ("phone mlp", "at character 7 there is 'mlp' where & or |"),
        ("| phone", "at character 1 there is '|'"),
        ("!", "at character 2"),
        ("device:", "device:NAME"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_place(text: str, place: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert place in caught.value.cause


def test_fields_are_known_and_depth_is_bounded() -> None:
    with pytest.raises(UsageError, match="no field 'devise'") as caught:
        parse("devise:pi")
    assert "did you mean device" in caught.value.cause
    with pytest.raises(UsageError, match="deeper"):
        parse("(" * 100_000 + "a" + ")" * 100_000)
    with pytest.raises(UsageError, match="deeper"):
        parse("!" * 100_000 + "a")


def test_misspelt_words_are_told() -> None:
    parse("phone & !mlp").check([PHONE])
    with pytest.raises(UsageError, match="'phne'") as caught:
        parse("mlp | phne").check([PHONE])
    assert "did you mean phone?" in caught.value.cause


A, B, C = ("a/linux-arm64/lean/mlp", "b/linux-arm64/lean/mlp", "c/linux-arm64/lean/mlp")


def _job(*keys: str, outcome: str = "passed", **known: Any) -> Matrix:
    cells = [passed(key=key, device=key[0], outcome=outcome) for key in keys]
    return matrix(*cells, **known)


def test_all_cells_are_there_once_and_the_latest_counts() -> None:
    early = _job(A, B, outcome="failed", finished="2026-11-21T04:01:00.000Z", only="a | b", host="x", seconds=3.0)
    late = _job(B, C, finished="2026-11-21T05:00:00.000Z", only="b | c", host="y", seconds=4.0)
    for parts in ((early, late), (late, early)):
        found = room.merged(parts, "all", "./inv matrix --merge jobs")
        assert {cell.key: cell.outcome for cell in found.cells} == {A: "failed", B: "passed", C: "passed"}
        assert (found.name, found.seconds, found.host, found.only) == ("all", 7.0, "x, y", "(a | b) | (b | c)")
        assert (found.created, found.finished) == (early.created, late.finished)


def test_figures_are_those_of_the_cells_that_are_kept() -> None:
    worse = Change(key=A, what="latency p50", before="1 ms", now="2 ms", ratio=2.0, verdict="worse")
    same = worse.model_copy(update={"verdict": "same"})
    known: dict[str, Any] = {"baseline": "b.json", "threshold": 0.1}
    early = _job(A, finished="2026-11-21T04:01:00.000Z", changes=(worse,), **known)
    late = _job(A, finished="2026-11-21T05:00:00.000Z", changes=(same,), **known)
    assert room.merged([early, late], "all", "").regressions == []
    assert room.merged([late.model_copy(update={"cells": (), "changes": ()}), early], "all", "").threshold == 0.1
    with pytest.raises(ConfigError, match="different baselines"):
        room.merged([early, late.model_copy(update={"threshold": 0.2})], "all", "")


def test_the_command_writes_one_report_and_judges_it(inv: Inv, tmp_path: Path) -> None:
    jobs = tmp_path / "jobs"
    bad = passed(key=B, device="b", outcome="failed", latency=None, problem=problem(what="b is away."))
    write_atomic(jobs / "matrix-a" / "matrix.json", _job(A).model_dump_json(indent=1))
    write_atomic(jobs / "matrix-b" / "matrix.json", matrix(bad, finished="2026-11-21T09:00:00.000Z").model_dump_json())
    for words in (str(jobs), str(tmp_path)):  # its own result is no part of the next one
        done = inv("matrix", "--merge", words, "--name", "all")
        assert done.returncode == 33, done.stderr
        assert "1 of 2 cells failed" in done.stderr
    reports = tmp_path / "dist" / "matrix" / "all"
    assert {file.name for file in reports.iterdir()} == {"matrix.json", "junit.xml", "report.html", "summary.md"}
    cells = json.loads((reports / "matrix.json").read_bytes())["cells"]
    assert [cell["outcome"] for cell in cells] == ["passed", "failed"]
    assert "b is away." in (reports / "summary.md").read_text(encoding="utf-8")


def test_nothing_to_merge_is_an_error(inv: Inv, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no matrix\.json"):
        room.merge([str(tmp_path)], MatrixRequest())
    done = inv("matrix", "--merge", str(tmp_path), "--only", "pi")
    assert done.returncode == 2
    assert "--only does not go with --merge" in done.stderr


SMALL = [
    Exportable(f"{model}-{scheme}", model, scheme, "pte") for model in ("mlp", "conv") for scheme in ("fp32", "qs8")
]


def request(**given: Any) -> MatrixRequest:
    return MatrixRequest(devices=("local", "pi", "pi2"), engines=("lean",), **given)


@pytest.mark.parametrize("count", [1, 2, 5, 12])
def test_every_cell_is_in_one_part(count: int) -> None:
    whole = planned(request(), SMALL)
    parts = [planned(request(shard=f"{number}/{count}"), SMALL) for number in range(1, count + 1)]
    assert [cell.key for part in parts for cell in part.cells] == [cell.key for cell in whole.cells]
    sizes = [len(part.cells) for part in parts]
    assert max(sizes) - min(sizes) <= 1
    assert sum(len(part.bundles) for part in parts) <= len(whole.bundles) + count - 1, "neighbours stay together"


@pytest.mark.parametrize("wrong", ["0/2", "3/2", "2", "a/b", "1/0", "-1/2", "2/5x", "1/1000"])
def test_what_is_no_part_is_refused(wrong: str) -> None:
    with pytest.raises(UsageError, match=r"is not of the form PART/PARTS|there are .* cells"):
        planned(request(shard=wrong), SMALL)


def made(number: int, plan: str = "abc", commit: str = "c0ffee") -> Matrix:
    cells = passed(key=f"pi/linux-arm64/lean/mlp-{number}")
    return matrix(cells, name=f"part-{number}", commit=commit, shard=f"{number}/3", plan=plan)


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ([made(1), made(2), made(3)], ""),
        ([made(1), made(3)], "part 2 of 3 is missing"),
        ([made(1)], "part 2 of 3 is missing; part 3 of 3 is missing"),
        ([made(1), made(2), made(2), made(3)], "part 2 of 3 is there twice"),
        ([made(1), made(2), made(3, plan="abd")], "of different plans"),
        ([made(1), made(2), made(3, commit="c0ffee-dirty")], "of different commits: c0ffee, c0ffee-dirty"),
        ([made(1), made(2), made(3), matrix(passed(), name="other")], "other of .* is not a part"),
    ],
)
def test_only_the_whole_is_merged(parts: list[Matrix], words: str, tmp_path: Path) -> None:
    for place, part in enumerate(parts):
        write_atomic(tmp_path / f"job-{place}" / "matrix.json", part.model_dump_json())
    if words:
        with pytest.raises(ConfigError, match=words):
            room.merge([str(tmp_path)], request(name="all"))
        return
    whole, _ = room.merge([str(tmp_path)], request(name="all"))
    assert [cell.key[-5:] for cell in whole.cells] == ["mlp-1", "mlp-2", "mlp-3"]
    assert whole.shard == ""
