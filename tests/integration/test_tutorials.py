"""The tutorials, with this machine as the reader's device, and the `console` blocks of docs/, typed as they stand."""

from __future__ import annotations

import json
import os
import re
import shlex
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
from tests.support.processes import ran, well
from toolchains import tools as pinned
from toolchains.bundle.sdk import build_sdk

pytestmark = [pytest.mark.build, pytest.mark.export]
ELSEWHERE = ("devices.add", "doctor")
"""For the first one: test_virtual_machines.py and test_virtual_phone.py."""


def commands(text: str, name: str) -> list[list[str]]:
    """The ``./inv`` commands of a text, each once, with this machine in place of the device ``name``."""
    found = [
        shlex.split(re.sub(rf"\b{name}\b", "local", line.removeprefix("$ ")))
        for line in re.findall(r"^\$ .*$", text, re.MULTILINE)
    ]
    kept = [words[1:] for words in found if words[0] == "./inv" and words[1] not in ELSEWHERE]
    return [words for index, words in enumerate(kept) if words not in kept[:index]]


def test_the_one_for_the_pi(tmp_path: Path) -> None:
    text = consoles.section("tutorials.md", "From a model to your own Raspberry Pi")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (tmp_path / "net.py").write_text(code, encoding="utf-8")
    lend_bundle(tmp_path / "dist", "linux-x86_64", "executorch")
    lend_bundle(tmp_path / "dist", "linux-x86_64", "lean")
    env = {**os.environ, "SLIPWAY_DIST": str(tmp_path / "dist")}
    typed = commands(text, "shelf")
    assert [words[0] for words in typed] == ["export", "deploy", "deploy", "compare", "deploy", "inspect", "matrix"]
    with warm() as own:
        for words in typed:
            well(ran([str(ROOT / "inv"), *words], cwd=tmp_path, env={**env, **own}))
    assert (tmp_path / "dist" / "programs" / "net-make_model-fp32" / "model.pte").is_file()
    assert (tmp_path / "baseline.json").is_file()
    assert "net-make_model-fp32/`" in text


@pytest.mark.virtual
def test_the_one_for_a_network_of_timm(tmp_path: Path) -> None:
    page = consoles.section("tutorials.md", "From a network of timm to a checked result")
    (source,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    blocks = re.findall(r"```console\n(.*?)```", page, re.DOTALL)
    commands = [line[2:] for block in blocks for line in block.splitlines()]
    assert [shlex.split(command)[1] for command in commands] == ["models", "deploy", "compare"]
    (tmp_path / "my").mkdir()
    (tmp_path / "my" / "net.py").write_text(source)
    dist = tmp_path / "dist"
    lend_bundle(dist, "linux-arm64")
    with warm() as own:  # the Pi is the one that other tests use, too: another boot would prove nothing
        _type(commands, tmp_path, {"SLIPWAY_DIST": str(dist), **own})
    requirements = (tmp_path / "my" / "requirements.txt").read_text(encoding="utf-8")
    assert re.fullmatch(r"timm==[0-9.]+\n", requirements)
    (result,) = (dist / "results").glob("pi-net-make_model-fp32-*.json")
    assert json.loads(result.read_text(encoding="utf-8"))["verdict"] in ("identical", "agrees")
    (folder,) = (dist / "matrix").glob("compare-*")
    found = json.loads((folder / "compare.json").read_text(encoding="utf-8"))
    assert {row["scheme"] for row in found["rows"]} == {"fp32", "qs8"}


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
    tools = os.pathsep.join(str(Path(pinned.program(name)).parent) for name in ("cmake", "ninja"))
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
    from tests.support.onnx_graph import Graph

    image = numpy.load(folder / "image.npy")
    net = Graph("twice", 17)
    given = net.input(*image.shape)
    (folder / "some.onnx").write_bytes(net.model(net.node("Add", given, given)).SerializeToString())
    numpy.save(folder / "a.npy", image)
    numpy.save(folder / "b.npy", image + image)


@pytest.mark.virtual
@pytest.mark.long  # test_readme.py's commands of the README are CI's sample
@pytest.mark.parametrize("page", [page for page in consoles.RUN if page != "embedding.md"])
def test_page(reader: tuple[Path, dict[str, str]], page: str) -> None:
    folder, env = reader
    _type(consoles.to_run(page), folder, env)
