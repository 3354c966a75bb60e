"""The `console` blocks of docs/, typed as they stand there (which, and where the others: tests/support/consoles.py)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy
import pytest

from core.formats.program import load_program
from core.paths import ROOT
from models.export import export
from tests.support import consoles
from tests.support.builds import lend_bundle, lend_program, warm
from tests.support.processes import ran
from toolchains.bundle import conan
from toolchains.bundle.sdk import build_sdk

pytestmark = [pytest.mark.build, pytest.mark.export]

NET = """\
import torch


def make_model():
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, stride=4), torch.nn.ReLU(), torch.nn.Flatten())
    return torch.nn.Sequential(net, torch.nn.Linear(8 * 16 * 16, 4)), (torch.rand(1, 3, 64, 64),)
"""
REFUSED = {"./inv deploy --device pi --model mlp --partitioners vgf": 13}
"""Commands that a page shows because they fail, and their exit codes."""


def _type(commands: list[str], folder: Path, env: dict[str, str]) -> None:
    for command in commands:
        argv = ["sh", "-c", command.replace("./inv ", f"'{ROOT}/inv' ")]
        done = ran(argv, cwd=folder, env={**os.environ, **env})
        assert done.returncode == REFUSED.get(command, 0), f"{command}\n{done.stdout}{done.stderr}"
        assert "Traceback" not in done.stderr


def test_embedding_from_the_checkout(tmp_path: Path) -> None:
    """The three lines by which C++ code of the reader's is built, in a folder like the checkout, with its files."""
    sdk = build_sdk("linux-x86_64")
    shutil.copytree(ROOT / "runtime/examples", tmp_path / "runtime/examples")
    (tmp_path / "dist" / "linux-x86_64").mkdir(parents=True)
    (tmp_path / "dist" / "linux-x86_64" / "sdk").symlink_to(sdk.path)
    folder = export("mlp", "fp32")
    program = load_program(folder)
    shutil.copy(folder / program.file, tmp_path / "model.pte")
    (tmp_path / "input.bin").write_bytes(numpy.load(folder / "input0.npy").tobytes())
    tools = os.pathsep.join(str(Path(conan.program(name)).parent) for name in ("cmake", "ninja"))
    env = {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}", "CMAKE_GENERATOR": "Ninja"}
    _type(consoles.to_run("embedding.md"), tmp_path, env)
    output = numpy.frombuffer((tmp_path / "output.bin").read_bytes(), numpy.float32)
    assert numpy.allclose(output, numpy.load(folder / "output0.npy").ravel(), atol=1e-4)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, str]]]:
    """A folder with the files that pages name, and the variables for commands there."""
    folder = tmp_path_factory.mktemp("reader")
    dist = folder / "dist"
    for target in ("linux-arm64", "linux-armv6", "linux-x86_64"):
        lend_bundle(dist, target, "lean")
    lend_bundle(dist, "linux-arm64", "executorch")
    mlp, other = lend_program(dist, "mlp", "fp32"), lend_program(dist, "mlp", "qs8")
    shutil.copy(mlp / "model.pte", folder / "model.pte")
    shutil.copy(other / "model.pte", folder / "other.pte")
    for name, kept in (("image", "input0"), ("scores", "output0")):
        shutil.copy(mlp / f"{kept}.npy", folder / f"{name}.npy")
    (folder / "net.py").write_text(NET, encoding="utf-8")
    _pictures(folder / "photos")
    _onnx(folder)
    with warm() as own:  # the devices are those that other tests use, too
        yield folder, {"SLIPWAY_DIST": str(dist), **own}


def _pictures(folder: Path) -> None:
    from PIL import Image

    folder.mkdir()
    draw = numpy.random.default_rng(0)
    for index in range(8):
        Image.fromarray(draw.integers(0, 256, (80, 80, 3), numpy.uint8)).save(folder / f"{index}.png")


def _onnx(folder: Path) -> None:
    """``some.onnx``: ``image.npy`` times two; ``a.npy`` and ``b.npy`` are an input of its and the output."""
    import onnx

    image = numpy.load(folder / "image.npy")
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Add", ["x", "x"], ["y"])], "twice",
        [value("x", onnx.TensorProto.FLOAT, image.shape)], [value("y", onnx.TensorProto.FLOAT, image.shape)],
    )  # fmt: skip
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8),
              folder / "some.onnx")  # fmt: skip
    numpy.save(folder / "a.npy", image)
    numpy.save(folder / "b.npy", image + image)


@pytest.mark.virtual
@pytest.mark.long  # test_readme.py's commands of the README are CI's sample
@pytest.mark.parametrize("page", [page for page in consoles.RUN if page != "embedding.md"])
def test_page(reader: tuple[Path, dict[str, str]], page: str) -> None:
    folder, env = reader
    _type(consoles.to_run(page), folder, env)
