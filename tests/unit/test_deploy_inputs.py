"""What a deploy refuses before it builds or uploads: slips of the hand, inputs and weights that do not fit."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.errors import ProgramError, UsageError
from core.formats.program import Dimension
from core.paths import ROOT
from deploy.run.inputs import Given, check_inputs, header_of
from deploy.run.job import Job, load_job
from deploy.run.needs import Method, Port, ProgramNeeds
from deploy.run.settings import CPU_FEATURES, Settings, check_limits, cpu_features
from tests.conftest import Inv
from tests.unit.test_core import _program

DYNAMIC = Port(dtype="float32", shape=(8, 24), ranges=((0, 8), (24, 24)))
FIXED = Port(dtype="int64", shape=(2,), ranges=((2, 2),))
NUMBER = Port(dtype="int64", kind="int")
FREE = Port(dtype="float32", shape=(1, 3), ranges=((0, None), (3, 3)))
UNDESCRIBED = ProgramNeeds(methods=(), unchecked="no emulator")
HUGE = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,), }"
HUGE_FILE = b"\x93NUMPY\x01\x00" + len(HUGE).to_bytes(2, "little") + HUGE


def needs(*ports: Port) -> ProgramNeeds:
    return ProgramNeeds(methods=(Method(name="forward", inputs=ports),))


@pytest.fixture
def program(tmp_path: Path) -> Path:
    file = tmp_path / "some.pte"
    file.write_bytes(b"program")
    return file


@pytest.mark.parametrize(("ports", "shapes", "says"), [
    ((DYNAMIC,), "5x8", "Input 0 does not fit: the method declares float32 0..8x24, --inputs has 5x8"),
    ((DYNAMIC,), "9x24", "has 9x24"),
    ((DYNAMIC,), "24", "has 24"),
    ((DYNAMIC,), "1x1x24", "has 1x1x24"),
    ((DYNAMIC, FIXED), "1x24,3", "Input 1 does not fit: the method declares int64 2"),
    ((FREE,), "2x4", "declares float32 0..x3"),
    ((NUMBER,), "1", "declares int64 scalar"),
    ((FIXED,), "2,2", "takes 1 inputs, 2 were given"),
    ((FIXED,), "twox2", "unreadable shape 'twox2'"),
    ((FIXED,), "99999999999999999999", "unreadable shape"),
    ((FIXED,), "", "takes 1 inputs"),
    ((Port(dtype="unknown", shape=(), kind="String"),), "scalar", "has a type that a file cannot hold"),
])  # fmt: skip
def test_shapes_that_do_not(program: Path, ports: tuple[Port, ...], shapes: str, says: str) -> None:
    job = load_job(program, settings=Settings(input_shapes=shapes or "1,1"))
    with pytest.raises(UsageError, match=re.escape(says)) as wrong:
        check_inputs(job, needs(*ports))
    assert wrong.value.hint


def test_files_are_checked_by_their_headers(program: Path, tmp_path: Path) -> None:
    good, narrow, double = tmp_path / "good.npy", tmp_path / "narrow.npy", tmp_path / "double.npy"
    np.save(good, np.ones((5, 24), np.float32))
    np.save(narrow, np.ones((5, 8), np.float32))
    np.save(double, np.ones((5, 24), np.float64))
    check_inputs(load_job(program, settings=Settings(inputs=(good,))), needs(DYNAMIC))
    both = load_job(program, settings=Settings(inputs=(good,), input_shapes="5x24"))
    given = [one.source for one in both.inputs.values()]
    assert (given, both.shapes) == ([good], "5x24"), "open sizes of an .onnx are fixed"
    check_inputs(both, needs(DYNAMIC))
    with pytest.raises(UsageError, match=r"have the shapes 5x24, not 5x23"):
        check_inputs(replace(both, shapes="5x23"), needs(DYNAMIC))
    with pytest.raises(UsageError, match=r"narrow.npy has float32 5x8"):
        check_inputs(load_job(program, settings=Settings(inputs=(narrow,))), needs(DYNAMIC))
    with pytest.raises(UsageError, match=r"has float64 5x24") as wrong:
        check_inputs(load_job(program, settings=Settings(inputs=(double,))), needs(DYNAMIC))
    assert wrong.value.hint == "convert it: array.astype('float32')"
    assert wrong.value.names == (str(double),)
    bits, big, order = tmp_path / "bits.npy", tmp_path / "big.npy", tmp_path / "order.npy"
    np.save(bits, np.zeros(3, "V2"))
    np.save(order, np.zeros(3, ">f4"))
    big.write_bytes(HUGE_FILE)
    assert header_of(bits) == Given(str(bits), (3,), "bfloat16")
    assert header_of(order).dtype == "float32"
    with pytest.raises(UsageError) as wrong:
        header_of(big)
    assert "1,000,000,000,000 elements of 4 bytes, 0 bytes follow" in wrong.value.cause


BATCH = Dimension(least=2, most=8, symbol="s0")
DOUBLE = Dimension(least=5, most=17, symbol="s0", times=2, plus=1)
WIDTH = Dimension(least=24, most=24)
ANY = Dimension(least=1, most=None)


def exported(folder: Path, *sizes: tuple[Dimension, ...]) -> Job:
    """A job of a program with a description."""
    described = _program(folder).model_copy(update={"sizes": sizes})
    (folder / "program.json").write_text(described.model_dump_json())
    return load_job(folder, Settings(input_shapes="1"))


@pytest.mark.parametrize(("sizes", "shapes", "says"), [
    (((BATCH, WIDTH),), "2x24", ""),
    (((BATCH, WIDTH),), "8x24", ""),
    (((BATCH, WIDTH),), "1x24", "Input 0 does not fit: dimension 0 must be 2..8, --inputs has 1x24"),
    (((BATCH, WIDTH),), "9x24", "dimension 0 must be 2..8"),
    (((BATCH, WIDTH),), "2x23", "dimension 1 must be 24"),
    (((BATCH, WIDTH),), "24", "the program was exported for 2..8x24"),
    (((ANY,),), "1000000", ""),
    (((ANY,),), "0", "dimension 0 must be 1..,"),
    (((BATCH,), (BATCH, WIDTH)), "3,3x24", ""),
    (((BATCH,), (BATCH, WIDTH)), "3,4x24", "dimension 0 must be 3, since dimension 0 of input 0 is 3"),
    (((BATCH,), (DOUBLE,)), "3,7", ""),
    (((BATCH,), (DOUBLE,)), "3,8", "Input 1 does not fit: dimension 0 must be 7"),
    (((DOUBLE,), (BATCH,)), "6,3", "Input 0 does not fit: dimension 0 must be 1 more than a multiple of 2"),
    ((), "5x5", ""),
])  # fmt: skip
def test_sizes_that_the_export_knows(
    tmp_path: Path, sizes: tuple[tuple[Dimension, ...], ...], shapes: str, says: str
) -> None:
    """A ``.pte`` says neither least sizes nor which are equal; programs of earlier exports have no sizes at all."""
    job = replace(exported(tmp_path, *sizes), shapes=shapes)
    if not says:
        check_inputs(job, UNDESCRIBED)
        return
    with pytest.raises(UsageError, match=re.escape(says)) as wrong:
        check_inputs(job, UNDESCRIBED)
    assert "nothing was uploaded" in wrong.value.cause
    check_inputs(replace(job, method="another"), UNDESCRIBED)  # the sizes are those of the method that was exported


def test_the_description_beside_a_program_counts_if_it_is_of_that_program(tmp_path: Path) -> None:
    described = exported(tmp_path, (BATCH, WIDTH)).program
    assert described is not None
    other = load_job(tmp_path / "model.pte", settings=Settings(input_shapes="1x24"))
    with pytest.raises(UsageError, match=r"dimension 0 must be 2\.\.8"):
        check_inputs(other, UNDESCRIBED)
    foreign = described.model_copy(update={"sha256": "0" * 64})
    (tmp_path / "program.json").write_text(foreign.model_dump_json(), encoding="utf-8")
    check_inputs(other, UNDESCRIBED)


@pytest.mark.parametrize("where", ["inputs", "expected"])
def test_every_file_is_looked_at_before_anything_else(program: Path, tmp_path: Path, where: str) -> None:
    """Also where the program could not be described, and without taking the memory that a header names."""
    good, huge = tmp_path / "good.npy", tmp_path / "huge.npy"
    np.save(good, np.zeros(3, np.float32))
    huge.write_bytes(HUGE_FILE + bytes(100))
    files: dict[str, Any] = {"inputs": [good], "expected": [good], where: [huge]}
    with pytest.raises(UsageError, match=r"huge\.npy is not a \.npy file") as wrong:
        check_inputs(load_job(program, settings=Settings(**files)), UNDESCRIBED)
    assert wrong.value.names == (str(huge),)
    pipe = tmp_path / "pipe.npy"
    os.mkfifo(pipe)
    with pytest.raises(UsageError, match="not an ordinary file"):  # and it does not wait for one either
        header_of(pipe)


def test_weights_beside_a_program(tmp_path: Path) -> None:
    net = tmp_path / "net.pte"
    net.write_bytes(b"")
    method = Method(name="forward", external_weights=("a", "b"))
    apart, whole = ProgramNeeds(methods=(method,)), ProgramNeeds(methods=(Method(name="forward"),))

    def taken(needs: ProgramNeeds, named: Path | None = None) -> list[Path]:
        return [blob.source for blob in load_job(net).with_weights(needs, named).data.values()]

    assert taken(whole) == []
    with pytest.raises(ProgramError, match=r"2 weights stored apart from it: a, b\.") as caught:
        taken(apart)
    assert "no net.ptd beside it" in caught.value.cause
    assert "--data" in caught.value.hint
    with pytest.raises(ProgramError, match="no file of weights"):
        taken(whole, tmp_path / "nowhere.ptd")
    one, two = tmp_path / "one.ptd", tmp_path / "two.ptd"
    one.write_bytes(b"1")
    assert (taken(apart), taken(whole)) == ([one], [])
    two.write_bytes(b"2")
    with pytest.raises(ProgramError, match="stored apart"):
        taken(apart)
    assert taken(apart, two) == [two]
    own = net.with_suffix(".ptd")
    own.write_bytes(b"3")
    assert (taken(apart), taken(whole)) == ([own], [own]), "a delegate may need it"


PTE_FILE = ROOT / "tests/fixtures/damaged/no-scales.pte"
PROMPTED = ("--prompt", "Hi")

Refused = Callable[..., tuple[int, str]]


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inv: Inv) -> Refused:
    """Gives the exit code and the first line of a deploy to this machine, which must not build, in an empty folder."""

    def call(*words: str) -> tuple[int, str]:
        done = inv("deploy", "--device", "local", *words)
        assert done.stdout == ""
        return done.returncode, done.stderr.splitlines()[0]

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("toolchains.bundle.builder.build", lambda *_: pytest.fail("it built"))
    return call


@pytest.mark.parametrize(("words", "code", "what"), [
    (("--model", "missing.pte"), 10, "There is no program missing.pte."),
    (("--model", str(PTE_FILE), "--inputs", "missing.npy"), 2, "There is no file missing.npy."),
    (("--model", "mobilnet"), 3, "There is no model 'mobilnet' in the zoo."),
    (("--model", "missing.py:make_model"), 3, "There is no file missing.py."),
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
    (("--model", str(PTE_FILE), "--prompt-file", "missing.txt"), 2, "missing.txt cannot be read."),
    (("--generate", "9"), 2, "--generate goes with --prompt."),
    (("--model", str(PTE_FILE), *PROMPTED, "--values"), 2, "--prompt cannot be used with --values."),
    (("--model", str(PTE_FILE), *PROMPTED, "--top-p", "2"), 2, "--top-p cannot be 2."),
    (("--model", str(PTE_FILE), *PROMPTED, "--tokenizer", "no.json"), 2, "There is no tokenizer no.json."),
])  # fmt: skip
def test_before_a_build(refused: Refused, words: tuple[str, ...], code: int, what: str) -> None:
    got, said = refused(*words)
    assert (got, what in said) == (code, True), said


SOURCE = ROOT / "runtime/engines/lean/xnnpack/cpu_features.cpp"


def test_the_runner_is_given_its_own_names_once_checked() -> None:
    table = SOURCE.read_text(encoding="utf-8").partition("kFeatures[] = {")[2].partition("};")[0]
    assert tuple(re.findall(r'\{"(\w+)", ', table)) == CPU_FEATURES
    assert cpu_features("-avx512skx,-FMA3,-neonfma") == "-avx512bw,-fma,-vfpv4"
    check_limits("lean", "-kleidiai,-sme2")
    check_limits("executorch", "")
    with pytest.raises(UsageError, match="cannot leave CPU features unused"):
        check_limits("executorch", "-sme2")
    found = Settings.parse({"cpu_threads": 0, "cpu_features": "-DotProd,-KleidiAI,-SME"})
    assert found.limits == ["--kleidiai=off", "--cpu_features=-dotprod,-sme"]
    assert Settings().limits == []


@pytest.mark.parametrize(
    ("text", "said"),
    [("-dotprodd", "-dotprod"), ("-avx513f", "-avx512f"), ("sme2", "a minus before it"), ("-", "a minus before it")],
)
def test_a_wrong_word_names_the_right_one(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        cpu_features(text)
