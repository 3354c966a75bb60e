"""``./inv inspect`` on runs of both engines: the operators of a program that everybody can read, and where they are."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

from core.cli import main
from models.inspection.origins import silent
from tests.support import consoles, graphs
from tests.support.builds import lend_bundle, lend_program
from toolchains.targets import host_target

pytestmark = [pytest.mark.build, pytest.mark.export]

ENGINES = ("lean", "executorch")
Inspect = Callable[..., Any]
CLEAN = (("mlp", "fp16"), ("mlp", "qd8_qb4w"), ("mobilenet_v2", "qs8"))
"""Programs whose operators all agree with PyTorch: what a layer rounds must not count as the next one's fault."""


def documented() -> list[str]:
    text = consoles.section("compare.md", consoles.INSPECT)
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


def call(line: str) -> int:
    """Run a documented command in this process: torch is loaded once."""
    words = shlex.split(line)
    assert words.pop(0) == "./inv"
    dist = f"{os.environ['SLIPWAY_DIST']}/"
    return main.run([word.replace("dist/", dist, 1) if word.startswith("dist/") else word for word in words])


@pytest.fixture(scope="module", autouse=True)
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A ``dist/`` with the results of the manual's deploys, and of a quantized program."""
    dist = tmp_path_factory.mktemp("dist")
    for engine in ENGINES:
        lend_bundle(dist, host_target().name, engine)
    for model, scheme in (("mixed", "fp32"), ("mlp", "qs8"), *CLEAN):
        lend_program(dist, model, scheme)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLIPWAY_DIST", str(dist))
        deploys = [line for line in documented() if line.startswith("./inv deploy") and "--values" not in line]
        others = ("mixed --engine executorch", "mlp --scheme qs8 --engine lean")
        for line in [*deploys, *(f"./inv deploy --device local --model {words} --etdump" for words in others)]:
            assert call(line) == 0
        yield dist


@pytest.fixture
def inspect(capsys: pytest.CaptureFixture[str]) -> Inspect:
    """Gives the JSON of ``./inv inspect``, or with ``fails`` its exit code and message."""

    def run(*words: str, fails: bool = False) -> Any:
        capsys.readouterr()
        code = main.run(["inspect", *words, *([] if fails else ["--json"])])
        out, err = capsys.readouterr()
        if fails:
            return code, err
        assert code == 0, err
        return json.loads(out)

    return run


@pytest.mark.parametrize(
    "line", [line for line in documented() if not line.startswith("./inv deploy") or "--values" in line]
)
def test_a_command_of_the_manual(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(line) == 0
    assert line.startswith("./inv deploy") or "Connected" in capsys.readouterr().out


@pytest.mark.parametrize("engine", ENGINES)
def test_every_operator_has_its_module_line_and_times(inspect: Inspect, engine: str) -> None:
    found = inspect(f"local-mixed-fp32-{engine}")
    assert found["executions"] == {"timed": 10, "warmup": 1} and found["notes"] == []
    rows = {row["name"]: row for row in found["rows"]}
    assert {row["count"] for row in rows.values()} == {10}
    assert {row["warmup"]["count"] for row in rows.values()} == {1}
    assert sum(row["share"] for row in rows.values()) == pytest.approx(1)
    expected = {
        "embedding.out @0": ("embedding (Embedding)", 37), "native_layer_norm.out @1": ("norm1 (LayerNorm)", 38),
        "Fully Connected (NC, F32) GEMM #1 @2": ("query (Linear)", 40),
        "Fully Connected (NC, F32) GEMM #2 @2": ("key (Linear)", 40),
        "Fully Connected (NC, F32) GEMM #3 @2": ("value (Linear)", 40),
        "Fully Connected (NC, F32) GEMM #4 @2": ("out (Linear)", 42),
        "Fully Connected (NC, F32) GEMM #3 @4": ("head (Linear)", 44),
    }  # fmt: skip
    for name, (module, line) in expected.items():
        origin = rows[name]["origin"]
        assert (origin["module"], origin["source"].rpartition("/")[2]) == (module, f"mixed.py:{line}"), name
        assert origin["sure"] and rows[name]["delegated"] == name.startswith("Fully")
    (gelu,) = [row for row in rows.values() if row["origin"] and row["origin"]["operators"] == ["aten.gelu.default"]]
    assert gelu["name"].endswith("@4")
    if engine == "lean":
        assert rows["Fully Connected (NC, F32) GEMM #1 @2"]["kernel"]["name"]


def test_an_etrecord_of_another_program_is_refused(inspect: Inspect, runs: Path, tmp_path: Path) -> None:
    other = runs / "programs" / "mlp-qs8" / "model.etrecord"
    code, message = inspect("local-mixed-fp32-lean", "--etrecord", str(other), fails=True)
    assert code == 10 and "ETRecord of another program" in message and "Try:" in message
    # Without its description, what ran decides.
    bare = shutil.copy(other, tmp_path / "bare.etrecord")
    code, message = inspect("local-mixed-fp32-lean", "--etrecord", str(bare), fails=True)
    assert code == 10 and "ETRecord of another program" in message and "instruction" in message
    (tmp_path / "broken.etrecord").write_bytes(other.read_bytes()[:-1000])
    code, message = inspect("local-mixed-fp32-lean", "--etrecord", str(tmp_path / "broken.etrecord"), fails=True)
    assert code == 10 and "damaged" in message and "Traceback" not in message


@pytest.mark.parametrize("engine", ENGINES)
def test_what_operators_give_agrees_with_pytorch(inspect: Inspect, engine: str) -> None:
    deploy(f"--model mixed --engine {engine}")
    found = inspect(f"local-mixed-fp32-{engine}", "--values")
    assert found["first"] is None
    operators = {each["name"]: each for each in found["operators"]}
    assert {each["ok"] for each in operators.values()} == {True}
    assert {"embedding.out @0", "native_layer_norm.out @1", "native_layer_norm.out @3"} <= set(operators)
    if engine == "lean":  # upstream's XNNPACK delegate logs no values of its own
        head = operators["FullyConnected #3 @4"]
        assert (head["origin"]["module"], head["delegated"], head["error"] < 1e-6) == ("head (Linear)", True, True)
        assert "Softmax #1 @2" in operators


def deploy(words: str) -> int:
    return main.run(["deploy", "--device", "local", "--values", *words.split()])


Plant = Callable[[str, str, int], Path]


@pytest.fixture
def plant(runs: Path) -> Iterator[Plant]:
    """Gives the folder of a quantized program after the weights of one of its layers became one per cent larger."""
    kept: dict[Path, bytes] = {}

    def planted(name: str, kind: str, number: int) -> Path:
        folder = runs / "programs" / name
        for file in (folder / "model.pte", folder / "program.json"):
            kept[file] = file.read_bytes()
        program = kept[folder / "model.pte"]
        with silent():  # upstream reads its schemas in a way that Python gives up
            from executorch.exir._serialize._program import deserialize_pte_binary

            file = deserialize_pte_binary(program)
            stored = file.program.execution_plan[0].delegates[0].processed.index
            graph = graphs.read(bytes(file.program.backend_delegate_data[stored].data))
        layer = [one["xnode_union"] for one in graph["xnodes"] if one["xnode_union_type"] == f"XNN{kind}"][number - 1]
        values = [one["xvalue_union"] for one in graph["xvalues"] if "tensor_value" in one["xvalue_union"]]
        (weights,) = [one for one in values if one["tensor_value"]["id_out"] == layer["filter_id"]]
        key = graph["constant_data"][weights["quant_params"]["scale_buffer_idx"]]["named_key"]
        scales = bytes(file.named_data.buffers[file.named_data.pte_data[key].buffer_index])
        assert program.count(scales) == 1
        larger = (numpy.frombuffer(scales, numpy.float32) * numpy.float32(1.01)).tobytes()
        program = program.replace(scales, larger)
        (folder / "model.pte").write_bytes(program)
        described = {**json.loads(kept[folder / "program.json"]), "sha256": hashlib.sha256(program).hexdigest()}
        (folder / "program.json").write_text(json.dumps(described), encoding="utf-8")
        return folder

    yield planted
    for file, data in kept.items():
        file.write_bytes(data)


def test_a_fault_in_one_layer_of_a_quantized_program_is_found_by_name(
    inspect: Inspect, plant: Plant, capsys: pytest.CaptureFixture[str]
) -> None:
    assert deploy(f"--model {plant('mlp-qs8', 'FullyConnected', 2)} --engine lean") in (0, 32), (
        "outputs may still be within the tolerance"
    )
    code, message = inspect("local-mlp-qs8-lean", "--values", fails=True)
    assert code == 32 and "FullyConnected #2 @0 is the first operator beyond its tolerance: 2 (Linear)" in message
    code = main.run(["inspect", "local-mlp-qs8-lean", "--values", "--json"])
    found = json.loads(capsys.readouterr().out)
    verdicts = [(each["name"], each["ok"]) for each in found["operators"]]
    assert (code, found["first"]) == (32, "FullyConnected #2 @0")
    assert verdicts[:3] == [("Convert #1 @0", True), ("FullyConnected #1 @0", True), ("FullyConnected #2 @0", False)]


@pytest.mark.parametrize(
    ("kind", "number", "module"), [("Conv2d", 17, "features.9.conv.0.0 (Conv2d)"), ("DepthwiseConv2d", 3, "")]
)
def test_a_fault_deep_in_a_net_is_the_only_one_that_is_named(
    inspect: Inspect, plant: Plant, capsys: pytest.CaptureFixture[str], kind: str, number: int, module: str
) -> None:
    assert deploy(f"--model {plant('mobilenet_v2-qs8', kind, number)} --engine lean") in (0, 32)
    capsys.readouterr()
    assert main.run(["inspect", "local-mobilenet_v2-qs8-lean", "--values", "--json"]) == 32
    found = json.loads(capsys.readouterr().out)
    assert len(found["operators"]) > 60
    wrong = [each for each in found["operators"] if not each["ok"]]
    assert [each["name"] for each in wrong] == [found["first"]] == [f"{kind} #{number} @0"]
    assert module in wrong[0]["origin"]["module"]


@pytest.mark.parametrize(
    ("model", "scheme", "engine"),
    [*((*clean, "lean") for clean in CLEAN), *((*clean, "executorch") for clean in CLEAN[:2])],
)
def test_what_is_right_raises_no_alarm(inspect: Inspect, model: str, scheme: str, engine: str) -> None:
    assert deploy(f"--model {model} --scheme {scheme} --engine {engine}") == 0
    if (scheme, engine) == ("fp16", "executorch"):
        code, message = inspect(f"local-{model}-{scheme}-{engine}", "--values", fails=True)
        assert code == 7 and "keeps no float16" in message and "--engine lean --values" in message
        return
    found = inspect(f"local-{model}-{scheme}-{engine}", "--values")
    assert found["operators"] and found["first"] is None


def test_a_run_without_values_says_the_command_that_keeps_them(inspect: Inspect) -> None:
    assert call("./inv deploy --device local --model mlp --scheme qs8 --engine lean --etdump") == 0
    code, message = inspect("local-mlp-qs8-lean", "--values", fails=True)
    assert code == 2 and "deploy --device local --model mlp --scheme qs8 --engine lean --values" in message
