"""Pictures as samples, noise told from real numbers, and the classes that a deploy shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from PIL import Image

from core.errors import ConfigError, ProgramError, UsageError
from core.formats.program import Classes, Program, Quantization, TensorFile, Tolerance
from deploy.run import collect
from deploy.run.compare import compare
from deploy.run.job import load_job
from deploy.run.settings import Settings
from models.request import key, resolve, sample_files
from models.samples import reading
from models.samples.pictures import Preparation, decode

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
    assert len(sample_files.files(str(tmp_path), 2)) == 2


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
    (tmp_path / "model.pte").write_bytes(b"program")
    (tmp_path / "classes.json").write_text(json.dumps([f"class {number}" for number in range(7)]))

    def file(name: str, array: Any) -> TensorFile:
        return TensorFile(file=f"{name}.npy", dtype="float32", shape=array.shape, sha256="0" * 64)

    program = Program(
        name="net-qs8", model="net", scheme="qs8", file="model.pte", size=7, sha256="0" * 64,
        inputs=(file("input0", IMAGE),), outputs=(file("output0", scores),), reference_engine="executorch",
        tolerance=Tolerance(atol=1, rtol=0, why=""), delegates=0, delegated=(), undelegated=(),
        quantization=Quantization(scheme="qs8"), export_key="", versions={}, seconds=0,
        classes=Classes(file="classes.json", picture="a.png, a cat", scores=file("float0", scores)),
    )  # fmt: skip
    got = tmp_path / "results"
    got.mkdir()
    np.save(got / "output0.npy", scores + np.array([[0, 0, 0.5, 0, 0, 0, 0]], np.float32))
    outputs = [compare("output0", got / "output0.npy", tmp_path / "output0.npy", program.tolerance)]
    found = collect.seen(load_job(tmp_path, program), got, outputs)
    assert found["picture"] == "a.png, a cat"
    assert [one.name for one in found["classes"]] == ["class 1", "class 5", "class 2", "class 3", "class 6"]
    first = found["classes"][0]
    assert first.device < first.host < first.model < 1
    assert abs(first.host - np.exp(4.0) / np.exp(scores.astype(float)).sum()) < 1e-9
    other = tmp_path / "other" / "a.npy"
    other.parent.mkdir()
    np.save(other, IMAGE)
    assert collect.seen(load_job(tmp_path, program, Settings(inputs=(other,))), got, outputs) == {}
    (tmp_path / "classes.json").write_text('["class 0"]')
    with pytest.raises(ProgramError, match="does not name the outputs"):
        collect.seen(load_job(tmp_path, program), got, outputs)
