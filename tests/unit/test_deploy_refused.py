"""What ``./inv deploy`` refuses before it builds: a build may take minutes, and a slip of the hand is seen at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from commands import deploy, tune
from core import front
from core.paths import ROOT

INPUTS = ("--inputs", "missing.npy")


@pytest.mark.parametrize(
    ("words", "code", "what"),
    [
        (("--program", "missing.pte"), 10, "There is no program missing.pte."),
        (("--program", str(ROOT / "README.md"), *INPUTS), 2, "There is no file missing.npy."),
        (("--model", "mobilnet"), 3, "There is no model 'mobilnet' in the zoo."),
        (("--model", "missing.py:make_model"), 3, "There is no file missing.py."),
        (("--model", "mlp", "--scheme", "qs9"), 3, "There is no quantization scheme 'qs9'."),
        (("--model", "matmul", "--scheme", "qs8"), 3, "Scheme qs8 makes no sense for matmul."),
        (("--model", "matmul", "--scheme", "fp16", "--engine", "onnxruntime"), 3, "An .onnx is exported as"),
        (("--model", "mlp", "--options", "gruop=64"), 3, "gruop"),
    ],
)
def test_before_a_build(
    words: tuple[str, ...],
    code: int,
    what: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(deploy, "build_for", lambda *_: pytest.fail("it built"))
    assert front.run(["--search-root", str(ROOT), "deploy", "--device", "local", *words]) == code
    said = capsys.readouterr()
    assert said.out == ""
    assert what in said.err.splitlines()[0]


def test_before_a_build_for_tuning(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(tune, "build_for", lambda *_: pytest.fail("it built"))
    assert front.run(["--search-root", str(ROOT), "tune", "--device", "local", "--model", "mobilnet"]) == 3
    assert "did you mean mobilenet_v2?" in capsys.readouterr().err
