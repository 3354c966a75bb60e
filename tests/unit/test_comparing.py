"""``./inv compare``'s figures, samples and front; pictures as samples, and the classes that a deploy shows."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from PIL import Image

from commands import compare as command
from commands.requests import Compare
from core import environment
from core.errors import ConfigError, ProgramError, UsageError
from core.formats.program import Classes, Sample, TensorFile, Tolerance
from deploy.matrix import comparing as metrics
from deploy.matrix.comparing import Accuracy, Compared, Row, accuracy, fitted, marked, suggested
from deploy.run import collect
from deploy.run.compare import compare
from deploy.run.job import load_job
from deploy.run.settings import Settings
from models.request import key, options, resolve
from models.samples import reading
from models.samples.reading import Preparation, decode
from tests.support.matrices import TIMES, passed, problem
from tests.unit.test_core import _program


def test_cosine_of_known_angles() -> None:
    assert metrics.cosine(np.array([1.0, 0.0]), np.array([3.0, 0.0])) == 1.0
    assert metrics.cosine(np.array([1.0, 0.0]), np.array([0.0, 2.0])) == 0.0
    assert metrics.cosine(np.array([1.0, 1.0]), np.array([1.0, 0.0])) == pytest.approx(math.sqrt(0.5))
    assert metrics.cosine(np.array([1e300, 1e300]), np.array([-1e300, -1e300])) == pytest.approx(-1.0)
    assert metrics.cosine(np.zeros(3), np.zeros(3)) == 1.0
    assert metrics.cosine(np.zeros(3), np.ones(3)) == 0.0
    assert math.isnan(metrics.cosine(np.array([math.nan]), np.ones(1)))


def test_psnr_of_a_planted_difference() -> None:
    want = np.array([0.0, 1.0, 2.0, 10.0])
    assert metrics.psnr([want + 0.1], [want]) == pytest.approx(40.0)  # 10 dB * log10(10**2 / 0.01)
    assert metrics.psnr([want, want + 0.1], [want, want]) == pytest.approx(40.0 + 10 * math.log10(2))
    assert metrics.psnr([want], [want]) == math.inf
    assert math.isnan(metrics.psnr([np.array([math.inf])], [np.array([1.0])]))


def test_top_k_counts_rows_and_breaks_ties_as_argmax_does() -> None:
    scores = np.array([[0.1, 0.9, 0.0], [0.5, 0.5, 0.1], [0.5, 0.5, 0.1], [math.nan, 0.2, 0.1]])
    assert metrics.top(1, [scores], [np.array([1, 0, 1, 0])]) == 0.5  # tie: the first wins; NaN is never right
    assert metrics.top(2, [scores], [np.array([0, 0, 1, 1])]) == 1.0
    assert metrics.top(1, [np.array([0.1, 0.9])], [1]) == 1.0
    assert metrics.top(5, [scores], [np.array([1, 0, 1, 0])]) is None, "of three classes every answer would be right"
    assert metrics.top(1, [scores], ["cat"]) is None
    assert metrics.top(1, [scores], [np.array([1, 0, 1, 7])]) is None


def _row(program: str, top1: float, size: int, p50: float | None, **known: object) -> Row:
    latency = None if p50 is None else TIMES.model_copy(update={"p50": p50})
    values: dict[str, Any] = {"device": "board", "emulated": p50 is None, "program_bytes": size, **known}
    exact = Accuracy(cosine=1.0, psnr=50.0, top1=top1)
    run = passed(program=program, latency=latency, **values)
    return Row(**dict(run), samples=10, accuracy=exact, reference=Accuracy(top1=0.8))


def test_the_front_has_what_nothing_beats_on_its_device() -> None:
    rows = marked(
        [
            _row("float", 0.80, 400, 4.0),
            _row("half", 0.80, 200, 4.0),
            _row("int8", 0.795, 100, 1.0),
            _row("slow", 0.795, 100, 2.0),
            _row("int4", 0.70, 50, 1.0),
            _row("wrong", 0.99, 1, 0.1).model_copy(update={"outcome": "differs"}),
            _row("emulated", 0.1, 900, None, device="emu"),
        ],
        "top1",
    )
    assert [one.program for one in rows if one.front] == ["half", "int8", "int4", "emulated"]
    assert [(one.device, one.program) for one in suggested(rows, "top1")] == [("board", "int8")]
    assert "fastest that loses at most 1%" in suggested(rows, "top1")[0].why


def test_differences_that_are_only_rounding_count_as_equal() -> None:
    rows = [
        _row(name, 0.5, size, None).model_copy(update={"accuracy": Accuracy(cosine=1.0, psnr=psnr)})
        for name, psnr, size in (("a", 150.0, 20), ("b", 140.0, 10), ("c", math.inf, 30))
    ]
    assert [one.program for one in marked(rows, "psnr") if one.front] == ["b"]


def test_a_failure_is_one_line() -> None:
    why = problem(error="export", what="int8: Lowering failed.", cause="no kernel\nits <log>", **{"try": "x"})
    failed = Row(**dict(passed(device="board", program="int8", outcome="failed", problem=why)))
    found = Compared(
        model="net", data="a.npz", created="2026", samples=10, of=20, reference=Accuracy(top1=0.8), by="top1",
        rows=(failed, failed.model_copy(update={"engine": "executorch"})), impossible=("int4: needs a backend",),
    )  # fmt: skip
    columns, (_, first, _) = metrics.table(found)
    assert first[columns.index("top-1") + 1] == "failed"
    assert not any("Lowering" in cell for cell in first)
    assert metrics.troubles(found) == [
        "int8 failed: Lowering failed. no kernel (lean on board, executorch on board)",
        "compare.json has the whole of each message.",
        "impossible: int4: needs a backend",
    ]


def test_missing_data_are_missed_before_anything_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "ensure", lambda name: pytest.fail(f"{name} was installed"))
    (tmp_path / "a.txt").write_text("1")
    for data in ("nope.npz", str(tmp_path / "nope"), str(tmp_path / "a.txt"), f"{tmp_path / 'nope.py'}:samples"):
        with pytest.raises((UsageError, ConfigError), match="There is no"):
            command.run(Compare(model="mlp", samples=data))
    options.check(str(tmp_path))
    options.check("")


def _npz(folder: Path, **arrays: Any) -> str:
    np.savez(folder / "a.npz", **arrays)
    return str(folder / "a.npz")


EXAMPLE = [np.zeros((4, 3), np.float32)]


def test_rows_become_batches_and_the_last_one_is_filled_up(tmp_path: Path) -> None:
    rows = np.arange(30, dtype=np.float64).reshape(10, 3)
    found = reading.read(_npz(tmp_path, x=rows, labels=np.arange(10)), EXAMPLE, 99)
    assert [one.rows for one in found.each] == [0, 0, 2]
    assert [list(one.label) for one in found.each] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    last = found.each[2].inputs[0]
    assert last.dtype == np.float32
    assert (last == rows[[8, 9, 9, 9]]).all()
    assert found.of == 3


@pytest.mark.parametrize("arrays", [
    {"a": np.ones((5, 3)), "b": np.ones((5, 3))}, {"a": np.ones(3)}, {"a": np.ones((4, 3)), "labels": np.arange(3)},
    {"a": np.ones((4, 3), complex)}, {"a": np.ones((0, 3))},
])  # fmt: skip
def test_arrays_that_do_not_fit_are_refused(tmp_path: Path, arrays: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        reading.read(_npz(tmp_path, **arrays), EXAMPLE, 99)


def test_filled_rows_do_not_count(tmp_path: Path) -> None:
    want = np.array([[1.0, 0.0], [0.0, 1.0]], np.float32)
    np.save(tmp_path / "want.npy", want)
    sample = Sample((), (tmp_path / "want.npy",), np.array([0]), rows=1)
    spoilt = want.copy()
    spoilt[1] = 9.0
    assert accuracy([[spoilt]], [sample], labelled=True).psnr == math.inf
    spoilt[0] = [0.0, 1.0]
    found = accuracy([[spoilt]], [sample], labelled=True, metric=lambda outputs, labels: len(outputs) + len(labels[0]))
    assert (found.top1, found.cosine, found.metric) == (0.0, 0.0, 2.0)
    assert accuracy([[want[:1]]], [sample], labelled=True) == Accuracy(), "an output of another shape"


def test_inputs_are_converted_to_what_the_program_takes(tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    file = tmp_path / "a.npy"
    np.save(file, np.array([1.0, 1.00390625, 3.0e38], np.float32))
    assert fitted(file, "float32", tmp_path / "made") == file
    assert np.load(fitted(file, "float16", tmp_path / "made")).dtype == np.float16
    assert list(metrics.widened(fitted(file, "bfloat16", tmp_path / "made"))[:2]) == [1.0, 1.0], "halves go to even"
    with pytest.raises(UsageError):
        fitted(file, "int64", tmp_path / "made")


IMAGE = np.zeros((1, 3, 8, 8), np.float32)
PLAIN = Preparation(resize=8, mean=(0.0, 0.5, 0.0), std=(1.0, 0.5, 1.0))


def picture(file: Path, width: int = 24, height: int = 16) -> Path:
    """Red grows to the right, green is full, blue is nothing."""
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[..., 0] = np.linspace(0, 255, width)
    pixels[..., 1] = 255
    Image.fromarray(pixels).save(file)
    return file


def test_a_picture_is_resized_cut_and_normalized_or_refused(tmp_path: Path) -> None:
    file = picture(tmp_path / "a.png")
    got = decode(file, IMAGE, PLAIN)
    assert (got.shape, got.dtype) == ((1, 3, 8, 8), np.float32)
    red, green, blue = got[0]
    assert (green == 1).all(), "(1 - 0.5) / 0.5"
    assert (blue == 0).all()
    assert (np.diff(red[0]) > 0.05).all()
    assert abs(float(red.mean()) - 0.5) < 0.01, "the centre"
    wide = decode(file, IMAGE, Preparation(resize=16, mean=(0.0,), std=(1.0,)))
    assert np.ptp(wide[0, 0]) < 0.6 * np.ptp(red), "a larger shorter side shows less of the picture"
    last = decode(file, np.zeros((8, 8, 3), np.uint8), PLAIN)
    assert (last.shape, last.dtype, last[0, 0, 1]) == ((8, 8, 3), np.uint8, 255)
    grey = decode(picture(tmp_path / "b.jpg", 5, 40), np.zeros((1, 1, 8, 8), np.float16), PLAIN)
    assert grey.shape == (1, 1, 8, 8)
    with pytest.raises(UsageError, match="the model does not take one"):
        decode(picture(tmp_path / "a.png"), np.zeros((4, 32), np.float32), PLAIN)
    (tmp_path / "b.png").write_bytes((tmp_path / "a.png").read_bytes()[:60])
    with pytest.raises(UsageError, match="cannot be read as a picture"):
        decode(tmp_path / "b.png", IMAGE, PLAIN)


def test_the_model_says_how_its_pictures_are_prepared() -> None:
    class Net:
        pictures: ClassVar[dict[str, Any]] = {"resize": 10, "mean": [0.1, 0.2, 0.3]}

    class Timm:
        pretrained_cfg: ClassVar[dict[str, Any]] = {
            "mean": (0.5,) * 3, "std": (0.5,) * 3, "input_size": (3, 224, 224), "crop_pct": 0.875,
        }  # fmt: skip

    assert Preparation.of(Net()) == Preparation(10, (0.1, 0.2, 0.3), known=True)
    assert Preparation.of(Timm()) == Preparation(256, (0.5,) * 3, (0.5,) * 3, known=True)
    assert not Preparation.of(object()).known
    Net.pictures = {"mean": ["red"]}
    with pytest.raises(UsageError, match="how a picture becomes"):
        Preparation.of(Net())


def test_folders_of_pictures_with_classes(tmp_path: Path) -> None:
    for name in ("zebra", "cat"):
        (tmp_path / name).mkdir()
        picture(tmp_path / name / "1.png")
    np.save(tmp_path / "cat" / "2.npy", IMAGE[0])
    (tmp_path / "cat" / ".hidden.png").write_bytes(b"")
    found = reading.read(str(tmp_path), [IMAGE], 9)
    assert [one.label for one in found.each] == [0, 0, 1]
    assert [one.inputs[0].shape for one in found.each] == [IMAGE.shape] * 3
    named = reading.read(str(tmp_path), [IMAGE], 9, PLAIN, ("tench", "zebra", "dog", "cat"))
    assert [one.label for one in named.each] == [3, 3, 1], "the class's own name"
    twice = reading.read(str(tmp_path), [IMAGE], 9, PLAIN, ("cat", "zebra", "cat"))
    assert [one.label for one in twice.each] == [0, 0, 1], "a name that two classes have names neither"
    assert len(options.files(str(tmp_path), 2)) == 2


def test_samples_are_part_of_the_programs_key_and_name(tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    picture(folder / "a.png")
    plain = resolve("mlp", "qs8")
    request = resolve("mlp", "qs8", options={"samples": str(folder)})
    assert request.name == "mlp-qs8-samples_photos"
    before = key(request)
    assert before == key(resolve("mlp", "qs8", options={"samples": str(folder)})) != key(plain)
    picture(folder / "a.png", 30)
    assert key(request) != before
    with pytest.raises((UsageError, ConfigError), match="There is no data"):
        resolve("mlp", "qs8", options={"samples": str(tmp_path / "nope")})


def test_a_result_names_the_classes_of_the_picture(tmp_path: Path) -> None:
    scores = np.array([[0.0, 4.0, 2.0, 1.0, -1.0, 3.0, 0.5]], np.float32)
    for name, array in (("input0", IMAGE), ("output0", scores), ("float0", scores * 2)):
        np.save(tmp_path / f"{name}.npy", array)
    (tmp_path / "classes.json").write_text(json.dumps([f"class {number}" for number in range(7)]))

    def file(name: str, array: Any) -> TensorFile:
        return TensorFile(file=f"{name}.npy", dtype="float32", shape=array.shape, sha256="0" * 64)

    program = _program(tmp_path).model_copy(
        update={
            "inputs": (file("input0", IMAGE),), "outputs": (file("output0", scores),),
            "tolerance": Tolerance(atol=1, rtol=0, why=""),
            "classes": Classes(file="classes.json", picture="a.png, a cat", scores=file("float0", scores)),
        }
    )  # fmt: skip
    (tmp_path / "program.json").write_text(program.model_dump_json())
    got = tmp_path / "results"
    got.mkdir()
    np.save(got / "output0.npy", scores + np.array([[0, 0, 0.5, 0, 0, 0, 0]], np.float32))
    outputs = [compare("output0", got / "output0.npy", tmp_path / "output0.npy", program.tolerance)]
    found = collect.seen(load_job(tmp_path), got, outputs)
    assert found["picture"] == "a.png, a cat"
    assert [one.name for one in found["classes"]] == ["class 1", "class 5", "class 2", "class 3", "class 6"]
    first = found["classes"][0]
    assert first.device < first.host < first.model < 1
    assert abs(first.host - np.exp(4.0) / np.exp(scores.astype(float)).sum()) < 1e-9
    other = tmp_path / "other" / "a.npy"
    other.parent.mkdir()
    np.save(other, IMAGE)
    assert collect.seen(load_job(tmp_path, Settings(inputs=(other,))), got, outputs) == {}
    (tmp_path / "classes.json").write_text('["class 0"]')
    with pytest.raises(ProgramError, match="does not name the outputs"):
        collect.seen(load_job(tmp_path), got, outputs)
