"""What a deploy refuses before it builds: a build may take minutes, and a slip of the hand is seen at once."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core.cli import main
from core.errors import UsageError
from core.paths import ROOT
from deploy.pytest_plugin import settings_of
from deploy.run.engine_flags import CPU_FEATURES, check_limits, cpu_features, kleidiai_switch, why_no_limits
from deploy.run.settings import Settings

PTE_FILE = ROOT / "tests/fixtures/damaged/no-scales.pte"
PTE = PTE_FILE.read_bytes()
PROMPTED = ("--prompt", "Hi")

Refused = Callable[..., tuple[int, str]]


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Refused:
    """Gives the exit code and the first line of a deploy to this machine, which must not build, in an empty folder."""

    def call(*words: str) -> tuple[int, str]:
        code = main.run(["--search-root", str(ROOT), "deploy", "--device", "local", *words])
        said = capsys.readouterr()
        assert said.out == ""
        return code, said.err.splitlines()[0]

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("toolchains.bundle.builder.build", lambda *_: pytest.fail("it built"))
    return call


@pytest.mark.parametrize(
    ("words", "code", "what"),
    [
        (("--program", "missing.pte"), 10, "There is no program missing.pte."),
        (("--program", str(ROOT / "README.md"), "--inputs", "missing.npy"), 2, "There is no file missing.npy."),
        (("--model", "mobilnet"), 3, "There is no model 'mobilnet' in the zoo."),
        (("--model", "missing.py:make_model"), 3, "There is no file missing.py."),
        (("--model", "mlp", "--scheme", "qs9"), 3, "There is no quantization scheme 'qs9'."),
        (("--model", "matmul", "--scheme", "qs8"), 3, "Scheme qs8 does not suit matmul."),
        (("--model", "matmul", "--scheme", "fp16", "--engine", "onnxruntime"), 3, "An .onnx is exported as"),
        (("--model", "mlp", "--options", "gruop=64"), 3, "gruop"),
        (("--temperature", "1"), 2, "--temperature goes with --prompt."),
        (("--model", "mlp", *PROMPTED), 2, "--prompt does not go with mlp."),
        (("--model", "smollm2_135m"), 2, "smollm2_135m needs a prompt."),
        (
            ("--model", "smollm2_135m", *PROMPTED, "--partitioners", "none"), 2,
            "--partitioners does not go with smollm2_135m.",
        ),
        ((*PROMPTED, "--prompt-file", "x.txt"), 2, "--prompt cannot be used with --prompt-file."),
        (("--program", str(PTE_FILE), "--prompt-file", "missing.txt"), 2, "missing.txt cannot be read."),
        (("--generate", "9"), 2, "--generate goes with --prompt."),
        (("--program", str(PTE_FILE), *PROMPTED, "--values"), 2, "--prompt cannot be used with --values."),
        (("--program", str(PTE_FILE), *PROMPTED, "--top-p", "2"), 2, "--top-p cannot be 2."),
        (("--program", str(PTE_FILE), *PROMPTED, "--tokenizer", "no.json"), 2, "There is no tokenizer no.json."),
    ],
)  # fmt: skip
def test_before_a_build(refused: Refused, words: tuple[str, ...], code: int, what: str) -> None:
    got, said = refused(*words)
    assert (got, what in said) == (code, True), said


ONNX = b"\x08\x0a" + b"\x12\x04self" + b"\x3a\x80\x02" + bytes(256)
"""The IR's version, a producer, and a graph of 256 bytes."""

ORT = (
    b"\x14\0\0\0ORTM"
    b"\x0c\0\x10\0\x0c\0\x08\0\0\0\x04\0"  # where the table's fields are
    b"\x0c\0\0\0\x0e\0\0\0\x0c\0\0\0\x10\0\0\0" + bytes(12) + b"\x01\0\0\0006\0\0\0"
)
"""What ONNX Runtime's converter writes, its model left out: the version is the last."""


@pytest.mark.parametrize(
    ("name", "data", "what"),
    [
        ("cut.pte", PTE[:3910], "cut.pte is truncated: 3,910 of 5,512 bytes."),
        ("head.pte", PTE[:20], "head.pte is truncated: 20 of 40 bytes."),
        ("empty.pte", b"", "empty.pte is empty."),
        ("text.pte", b"This is text.", "text.pte is not a program: its identifier is missing."),
        ("cut.onnx", ONNX[:-1], "cut.onnx is cut short: 266 of 267 bytes or more."),
        ("cut.ort", ORT[:-8], "cut.ort is cut short: 48 of 52 bytes or more."),
        ("version.ort", ORT[:-4], "version.ort is cut short: 52 of 54 bytes or more."),
        ("head.ort", ORT[:22], "head.ort is cut short: 22 of 24 bytes or more."),
        ("text.ort", b"<html>", "text.ort is damaged, or no ONNX model: no field begins at byte 0."),
        ("text.onnx", b"<html>", "text.onnx is damaged, or no ONNX model: no field begins at byte 0."),
    ],
)
def test_a_damaged_program_before_a_build(refused: Refused, name: str, data: bytes, what: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(data)
    code, said = refused("--model", name)
    assert (code, what in said) == (10, True), said


@pytest.mark.parametrize(
    ("options", "what", "cause"),
    [
        (
            {"num_execution": 2},
            "slipway_deploy has no setting 'num_execution'.",
            "did you mean num_executions? it has ",
        ),
        ({"zzz": 2}, "slipway_deploy has no setting 'zzz'.", "it has "),
        ({"num_executions": "many"}, "slipway_deploy does not take num_executions='many'.", "Input should be"),
    ],
)
def test_a_wrong_setting(options: dict[str, Any], what: str, cause: str) -> None:
    with pytest.raises(UsageError) as caught:
        settings_of(options)
    assert caught.value.what == what
    assert caught.value.cause.startswith(cause)
    assert caught.value.hint


SOURCE = ROOT / "runtime/engines/lean/xnnpack/cpu_features.cpp"


def test_the_runner_is_given_its_own_names_once_checked() -> None:
    table = SOURCE.read_text(encoding="utf-8").partition("kFeatures[] = {")[2].partition("};")[0]
    rows = re.findall(r'\{"(\w+)", "([^"]*)"', table)
    assert tuple(name for name, _aliases in rows) == CPU_FEATURES
    for name, aliases in rows:
        for alias in aliases.split():
            assert cpu_features(f"-{alias}") == f"-{name}"
    assert [kleidiai_switch(word) for word in ("", "on", "off")] == ["", "on", "off"]
    with pytest.raises(UsageError, match="on or off"):
        kleidiai_switch("no")
    check_limits("lean", "off", "-sme2")
    check_limits("executorch", "", "")
    with pytest.raises(UsageError, match="cannot leave CPU features unused"):
        check_limits("executorch", "", "-sme2")
    with pytest.raises(UsageError, match="neither turn KleidiAI off nor"):
        check_limits("onnxruntime", "off", "-sme2")
    assert why_no_limits("executorch", "on", "") == "the engine executorch cannot turn KleidiAI on"
    found = Settings.parse({"cpu_threads": 0, "kleidiai": "off", "cpu_features": "-asimddp,-SME"})
    assert found.limits == ["--kleidiai=off", "--cpu_features=-dotprod,-sme"]
    assert Settings().limits == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("-dotprodd", "-dotprod"),
        ("-avx513f", "-avx512f"),
        ("sme2", "a minus before it"),
        ("-", "a minus before it"),
    ],
)
def test_a_wrong_word_names_the_right_one(text: str, said: str) -> None:
    with pytest.raises(UsageError) as raised:
        cpu_features(text)
    assert said in str(raised.value)
