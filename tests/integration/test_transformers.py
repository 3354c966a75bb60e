"""A small Llama of transformers: the 64 tokens that its own ``generate`` gives, on every device."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

from core.formats.program import load_program
from core.paths import ROOT
from models.users import packages
from tests.conftest import Inv
from tests.support.builds import lend_bundle
from tests.support.devices import own_devices
from toolchains.targets import host_target

pytestmark = [pytest.mark.export, pytest.mark.build]

FOLDER = ROOT / "tests" / "fixtures" / "llama"
LENGTH = 64
PLACES = [
    pytest.param("local", host_target().name, "lean"),
    # ./inv test --all runs these: each engine and each kind of device once.
    pytest.param("pi", "linux-arm64", "executorch", marks=[pytest.mark.long, pytest.mark.virtual]),
    pytest.param("phone", "android-arm64", "lean", marks=[pytest.mark.long, pytest.mark.virtual]),
]
ITS_OWN = f"""import sys
sys.path[:0] = [{str(ROOT)!r}, {str(FOLDER)!r}]
from pathlib import Path
from models.users import packages
packages.enter(packages.wanted(Path({str(FOLDER / "llama.py")!r})))
import torch
from llama import PROMPT, _model
prompt = torch.tensor(PROMPT)
tokens = _model().generate(prompt, do_sample=False, max_new_tokens={LENGTH}, min_new_tokens={LENGTH}, eos_token_id=None)
print(*tokens[0, prompt.shape[1]:].tolist())
"""
"""Without Slipway's way of generating: another cache, a loop in Python."""


@pytest.fixture(scope="module")
def programs(inv: Inv, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ``dist/`` with the Llama as two methods; by commands, since its packages stay in their process."""
    dist = tmp_path_factory.mktemp("dist")
    done = inv("export", "--model", f"{FOLDER / 'llama.py'}:make_methods", env={"SLIPWAY_DIST": str(dist)})
    assert done.returncode == 0, done.stdout + done.stderr
    return dist


@pytest.fixture(scope="module")
def expected(programs: Path) -> list[int]:
    found = subprocess.run([sys.executable, "-c", ITS_OWN], capture_output=True, text=True, timeout=600, check=True)
    return [int(word) for word in found.stdout.splitlines()[-1].split()]


@pytest.mark.long  # of what ./inv test exports, test_answer.py has one family
def test_each_family_computes_what_transformers_computes() -> None:
    """The names of weights and the numbers of shapes, as `models.text` gives them to upstream's transformer."""
    packages.install(packages.wanted(FOLDER / "llama.py"))
    enter = ITS_OWN.partition("import torch")[0]
    code = f"{enter}import runpy\nrunpy.run_path({str(FOLDER / 'families.py')!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=True)
    found = [line.split() for line in done.stdout.splitlines()]
    assert len(found) == 8
    for name, far, unknown, lacks in found:
        assert float(far) < 1e-4, name
        assert (unknown, lacks) == ("0", "0"), name


@pytest.fixture(scope="module")
def devices(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with own_devices(tmp_path_factory):
        yield


@pytest.mark.parametrize(("device", "target", "engine"), PLACES)
def test_a_llama_generates_the_tokens_of_transformers(
    request: pytest.FixtureRequest, inv: Inv, programs: Path, expected: list[int], device: str, target: str, engine: str
) -> None:
    if device == "phone":  # the Pi is the one that other tests use, too
        request.getfixturevalue("devices")
    assert len(expected) == LENGTH
    assert len(set(expected)) > LENGTH // 4, "tokens that are all the same prove little"
    program = load_program(programs / "programs" / "llama-make_methods-fp32")
    assert (program.method, [one.name for one in program.before]) == ("decode", ["prefill"])
    lend_bundle(programs, target, engine)
    done = inv(
        "deploy", "--device", device, "--engine", engine, "--model", f"{FOLDER / 'llama.py'}:make_methods",
        "--generate", str(LENGTH), "--json", env={"SLIPWAY_DIST": str(programs)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    assert {one["verdict"] for one in result["outputs"]} == {"identical"}
    outputs = (programs / "results").glob(f"{device}-llama-*/output0.npy")
    tokens = numpy.load(max(outputs, key=lambda file: file.stat().st_mtime_ns))
    assert tokens[0].tolist() == expected
