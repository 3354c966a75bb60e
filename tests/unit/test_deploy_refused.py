"""What ``./inv deploy`` refuses before it builds: a build may take minutes, and a slip of the hand is seen at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.cli import main
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
        (("--model", "matmul", "--scheme", "qs8"), 3, "Scheme qs8 does not suit matmul."),
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
    monkeypatch.setattr("toolchains.bundle.builder.build", lambda *_: pytest.fail("it built"))
    assert main.run(["--search-root", str(ROOT), "deploy", "--device", "local", *words]) == code
    said = capsys.readouterr()
    assert said.out == ""
    assert what in said.err.splitlines()[0]


PTE = (ROOT / "tests/fixtures/damaged/no-scales.pte").read_bytes()
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
def test_a_damaged_program_before_a_build(
    name: str,
    data: bytes,
    what: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_bytes(data)
    monkeypatch.setattr("toolchains.bundle.builder.build", lambda *_: pytest.fail("it built"))
    assert main.run(["--search-root", str(ROOT), "deploy", "--device", "local", "--model", name]) == 10
    assert what in capsys.readouterr().err.splitlines()[0]
