"""The lab: its layers and ways, and reports that say no more than was measured."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pydantic import ValidationError

from commands.own import Lab as LabRequest
from core.errors import AnswerError, ConfigError, MatrixError, UsageError
from core.formats.bundle import Bundle
from deploy.devices.inventory import Device, get_device, load_devices
from deploy.run.runner import Instructions as Runner
from tests.conftest import Inv
from tests.support.layer_results import lab
from toolchains.targets import get_target
from verify.layers import command, html, report, running, words
from verify.layers.command import check, planned
from verify.layers.families import FAMILIES, FUNCTION, LLM, layers_of
from verify.layers.model import Instructions, Lab, Peak
from verify.layers.peaks import peaks, read
from verify.layers.ways import pair_for


def test_layers_have_their_shape_and_their_work(tmp_path: Path) -> None:
    (linear,) = layers_of(["linear"], ["1x256x512"])
    assert (linear.name, linear.operations) == ("linear_1x256x512", 2 * 256 * 512)
    assert linear.bytes_moved("fp32") == 4 * (256 + 256 * 512 + 512)
    assert linear.bytes_moved("qd8_qb4w") == 4 * (256 + 512) + 256 * 512 // 2
    (conv,) = layers_of(["conv-stride"], ["28x16x32"])
    assert conv.operations == 2 * 14 * 14 * 9 * 16 * 32
    assert len(layers_of(["all"], [])) == len(FAMILIES)
    assert [layer.name for layer in layers_of(["linear"], ["llm"])] == [f"linear_{shape}" for shape in LLM]


@pytest.mark.parametrize("name", FAMILIES)
def test_a_layers_file_is_python_and_stays_as_it_is(name: str, tmp_path: Path) -> None:
    (layer,) = layers_of([name], [])
    file = layer.write(tmp_path)
    functions = [one.name for one in ast.parse(file.read_text()).body if isinstance(one, ast.FunctionDef)]
    assert functions == [FUNCTION]
    before = file.stat().st_mtime_ns
    assert layer.write(tmp_path) == file
    assert file.stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("families", "shapes", "said"),
    [
        (["linar"], [], "--layers linear"),
        (["linear"], ["1x2"], "not a shape"),
        (["linear"], ["1x2x0"], "not a shape"),
        (["linear"], ["1x99999x9"], "not a shape"),
        (["linear"], ["1x16384x16384"], "more than"),
    ],
)
def test_senseless_layers_are_refused(families: list[str], shapes: list[str], said: str) -> None:
    with pytest.raises(UsageError) as raised:
        layers_of(families, shapes)
    assert said in str(raised.value)


def test_what_is_compared_follows_from_the_target() -> None:
    arm, here = get_target("linux-arm64"), get_target("linux-x86_64")
    assert [way.kleidiai for way in (pair_for(arm, "").first, pair_for(arm, "").second)] == ["on", "off"]
    assert pair_for(here, "").second.cpu_features == "-avx512f"
    assert pair_for(here, "-avx2,-fma").second.cpu_features == "-avx2,-fma"
    assert pair_for(arm, "executorch").second.engine == "executorch"
    assert pair_for(here, "same").first.engine == pair_for(here, "same").second.engine == "lean"
    for target, word in ((here, "kleidiai"), (here, "nonsense"), (arm, "-nonsense"), (arm, "onnxruntime")):
        with pytest.raises(UsageError):
            pair_for(target, word)


def test_the_plan_says_what_is_impossible(tmp_path: Path) -> None:
    plan = planned(LabRequest(layers="linear,bmm", types="pf32,qp8_f32_qc8w"), tmp_path)
    assert [(cell.key, cell.outcome, cell.type) for cell in plan.cells] == [
        ("local/linear_32x256x256-fp32", "not run", "pf32"),
        ("local/linear_32x256x256-qd8_qc8w", "not run", "qp8_f32_qc8w"),
        ("local/bmm_32x64x64-fp32", "not run", "pf32"),
        ("local/bmm_32x64x64-qd8_qc8w", "impossible", "qp8_f32_qc8w"),
    ]
    assert len(plan.possible) == 3
    with pytest.raises(ConfigError, match="write no batched matrix product"):
        planned(LabRequest(layers="bmm", types="qs8"), tmp_path)
    with pytest.raises(ConfigError, match="did you mean pf32"):
        planned(LabRequest(types="pf33"), tmp_path)
    with pytest.raises(UsageError, match="--model cannot be used with --layers"):
        LabRequest(model="mlp", shape="1x2x3")


def test_every_report_has_every_cell(tmp_path: Path) -> None:
    found = lab(emulated=False)
    report.write(found, tmp_path)
    assert Lab.model_validate(json.loads((tmp_path / report.JSON).read_text())) == found
    lines = (tmp_path / report.TSV).read_text().splitlines()
    assert len(lines) == 3
    assert {len(line.split("\t")) for line in lines} == {len(report.COLUMNS)}
    row = dict(zip(report.COLUMNS, lines[1].split("\t"), strict=True))
    assert (row["ratio"], row["first_p50_ms"], row["compared"], row["second_spread"]) == ("0.5", "0.5", "faster", "0.3")
    table = [line.split("\t") for line in (tmp_path / report.OPERATORS).read_text().splitlines()]
    first, clamp, copy = (dict(zip(table[0], line, strict=True)) for line in table[1:])
    assert [first[f"first_{what}"] for what in ("count", "p10_ms", "p50_ms", "p90_ms")] == ["50", "0.2", "0.3", "0.5"]
    assert [first[f"second_{what}"] for what in ("count", "p10_ms", "p50_ms", "p90_ms")] == ["50", "0.5", "0.6", "0.7"]
    assert (first["ratio"], first["by"]) == ("0.5", "instruction, kind and order")
    assert (clamp["first_name"], clamp["second_name"], clamp["ratio"]) == ("Clamp (NC) #1 @0", "", "")
    assert (copy["first_name"], copy["second_name"]) == ("", "Copy (NC) #1 @0")
    text = (tmp_path / report.MARKDOWN).read_text()
    assert "0.500 [0.400, 0.600]" in text
    assert "KleidiAI f32_x" in text
    assert "no such thing" in text
    assert "| Clamp (NC) #1 @0 | 50 | 0.1 | 0.1 | 0.1 | – |" in text
    page = (tmp_path / report.HTML).read_text()
    assert "<b>pi" not in page
    assert "&lt;b&gt;pi" in page
    for part in ("faster", "kai" not in page or "f32_x", "9 GFLOP/s", "measured in float32"):
        assert part is True or str(part) in page
    # The line is the peak of as many threads as the layers had.
    assert "1 thread 9 GFLOP/s (neon), 4 GB/s, measured in float32" in page
    assert "1 thread 9 GFLOP/s (neon), 4 GB/s; 4 threads 36 GFLOP/s (neon), 5 GB/s." in page
    assert "<br>3 GFLOP/s (33 % of the peak), 2 GB/s (50 % of the peak)" in page
    assert "4 threads 36 GFLOP/s (neon), 5 GB/s." in text
    assert (row["peak_gflops"], row["peak_gbytes_per_s"]) == ("9.0", "4.0")
    assert report.summary(found).startswith("1 measured: 1 faster, 0 slower, 0 without")


def test_an_emulators_time_is_nowhere(tmp_path: Path) -> None:
    found = lab(emulated=True)
    report.write(found, tmp_path)
    page, text = (tmp_path / report.HTML).read_text(), (tmp_path / report.MARKDOWN).read_text()
    assert "p50 ms" not in text
    assert "Latency" not in page
    assert "Operators" not in text
    assert "GFLOP/s" not in page
    assert words.answer(found.cells[0]) == "other kernels"
    assert "Interrupted" in html.text(found.model_copy(update={"interrupted": True}))


def counting() -> Lab:
    found = lab(emulated=True)
    cell = found.cells[0]
    counts = [(10_000, 10_000, 10_000), (41_250, 41_234, 41_300)]
    ways = [
        each.model_copy(update={"instructions": Instructions(median=median, least=least, most=most, executions=5)})
        for each, (median, least, most) in zip(cell.ways, counts, strict=True)
    ]
    counted = cell.model_copy(update={"first": ways[0], "second": ways[1], "instructions": 10_000 / 41_234})
    return found.model_copy(update={"cells": (counted, found.cells[1])})


def test_the_docs_keep_what_was_counted_and_nothing_with_a_hole(empty_tables: None) -> None:
    command.keep(counting())
    text = command.LAB.text()
    assert (
        "| <b>pi | linear | pf32 | KleidiAI `f32_x` | `f32_gemm_6x8__neon` | agrees | 10,000 | 41,234 | 0.24 |" in text
    )
    for holed in (lab(emulated=True), lab(emulated=False)):
        with pytest.raises(ConfigError, match="1 cells have no instructions: a/linear-fp32"):
            command.keep(holed)
    assert command.LAB.text() == text


def test_what_an_emulator_counted_is_in_every_report(tmp_path: Path) -> None:
    assert "instructions" not in report.markdown(lab(emulated=True))
    found = counting()
    report.write(found, tmp_path)
    assert Lab.model_validate(json.loads((tmp_path / report.JSON).read_text())) == found
    lines = (tmp_path / report.TSV).read_text().splitlines()
    assert {len(line.split("\t")) for line in lines} == {len(report.COLUMNS)}
    row = dict(zip(report.COLUMNS, lines[1].split("\t"), strict=True))
    assert (row["first_instructions"], row["second_instructions_most"]) == ("10000", "41300")
    assert row["instructions_ratio"].startswith("0.2425")
    text, page = (tmp_path / report.MARKDOWN).read_text(), (tmp_path / report.HTML).read_text()
    assert "| 10,000 | 41,234 | 0.243 |" in text
    assert "Instructions are not time" in text
    for part in ("their ratio", "10,000", "41,234", "0.243", "least of 5 executions; median 41,250, most 41,300"):
        assert part in page, part
    assert "p50 ms" not in text


def test_what_disturbs_an_execution_only_adds_instructions() -> None:
    ran = Runner.model_validate({"all": [105, 100, 100, 900, 100]})
    result = SimpleNamespace(runner=SimpleNamespace(instructions=ran))
    assert running.counted(cast("Any", result)) == Instructions(median=100, least=100, most=900, executions=5)
    nothing = SimpleNamespace(runner=SimpleNamespace(instructions=None))
    assert running.counted(cast("Any", nothing)) is None
    with pytest.raises(ValidationError):
        Runner.model_validate({"all": []})


def test_wrong_outputs_are_no_victory(tmp_path: Path) -> None:
    found = lab(emulated=False)
    check(found, tmp_path)  # nothing is wrong: it returns
    (cell, impossible) = found.cells
    assert cell.first is not None
    differs = cell.model_copy(update={"first": cell.first.model_copy(update={"verdict": "differs"})})
    wrong = found.model_copy(update={"cells": (differs, impossible)})
    report.write(wrong, tmp_path)
    page = (tmp_path / report.HTML).read_text()
    assert words.answer(differs) == "differs"
    assert "outputs of KleidiAI differ from the reference" in page
    assert "outputs of KleidiAI differ" in (tmp_path / report.TSV).read_text()
    assert "0 faster" in report.summary(wrong)
    assert "1 with outputs that differ" in report.summary(wrong)
    with pytest.raises(MatrixError, match="outputs of KleidiAI differ") as raised:
        check(wrong, tmp_path)
    assert (raised.value.exit_code, raised.value.names) == (33, (cell.key,))
    failed = cell.model_copy(update={"outcome": "failed", "first": None, "second": None})
    with pytest.raises(MatrixError, match="1 of 1 cells failed"):
        check(found.model_copy(update={"cells": (failed,)}), tmp_path)


def test_the_command_ends_with_the_code_of_wrong_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = lab(emulated=False)
    wrong = found.cells[0].model_copy(update={"outcome": "failed", "first": None, "second": None})
    printed: list[Lab] = []
    monkeypatch.setattr(command, "_fill", lambda *_: found.model_copy(update={"cells": (wrong,)}))
    monkeypatch.setattr(command, "planned", lambda *_: None)
    monkeypatch.setattr(report, "printed", lambda found, *_: printed.append(found))
    with pytest.raises(MatrixError):
        command.run(LabRequest(name="x"))
    assert printed, "the report comes first"


def test_a_runners_peak_is_checked() -> None:
    point = {"threads": 2, "feature": "avx2", "gflops": 1.5, "gbytes_per_s": 2.5, "bytes_read": 7}
    assert read(json.dumps({"roofline": [point]}).encode()) == (
        Peak(threads=2, feature="avx2", gflops=1.5, gbytes_per_s=2.5),
    )
    for raw in (b"", b"{}", b"[]", b'{"roofline": [{"threads": 1}]}', b'{"roofline": [1]}'):
        with pytest.raises(AnswerError):
            read(raw)


def test_a_peak_is_measured_on_real_devices_with_the_labs_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = json.dumps({"roofline": [{"threads": 1, "feature": "vfp", "gflops": 1.0, "gbytes_per_s": 0.5}]})
    called: list[list[str]] = []

    def execute(device: Device, executable: Path, arguments: list[str]) -> SimpleNamespace:
        assert executable.name == "pte_runner"
        called.append(arguments)
        return SimpleNamespace(stdout=answer.encode())

    monkeypatch.setattr("deploy.run.execute.execute", execute)
    bundle = cast("Bundle", SimpleNamespace(path=Path("bundle")))
    assert peaks(get_device("local"), bundle) == (Peak(threads=1, feature="vfp", gflops=1.0, gbytes_per_s=0.5),)
    peaks(get_device("local"), bundle, 3)
    assert called == [["--roofline", "--json"], ["--roofline", "--json", "--cpu_threads", "3"]]
    emulated = next(device for device in load_devices().values() if device.emulated)
    assert peaks(emulated, bundle) == ()
    assert len(called) == 2


def test_the_list_is_for_machines_too(inv: Inv) -> None:
    done = inv("self.lab", "--list", "--layers", "linear", "--types", "pf32", "--json")
    assert done.returncode == 0, done.stderr
    assert [cell["key"] for cell in json.loads(done.stdout)] == ["local/linear_32x256x256-fp32"]
