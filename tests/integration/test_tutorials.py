"""The tutorials, typed as they stand there, with this machine in place of the reader's device.

The commands that add a device need one: tests/integration/test_virtual_machines.py and test_virtual_phone.py run them.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path

import pytest

from core.paths import ROOT
from tests.conftest import Inv
from tests.support import consoles
from tests.support.builds import lend_bundle, warm
from tests.support.processes import ran

pytestmark = [pytest.mark.build, pytest.mark.export]
ELSEWHERE = ("devices.add", "doctor")


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
            done = ran([str(ROOT / "inv"), *words], cwd=tmp_path, env={**env, **own})
            assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
    assert (tmp_path / "dist" / "programs" / "net-make_model-fp32" / "model.pte").is_file()
    assert (tmp_path / "baseline.json").is_file()
    assert "net-make_model-fp32/`" in text


@pytest.mark.virtual
def test_the_one_for_a_network_of_timm(inv: Inv, tmp_path: Path) -> None:
    page = consoles.section("tutorials.md", "From a network of timm to a checked result")
    (source,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    commands = [
        line[2:] for block in re.findall(r"```console\n(.*?)```", page, re.DOTALL) for line in block.splitlines()
    ]
    assert [shlex.split(command)[1] for command in commands] == ["models", "deploy", "compare"]
    (tmp_path / "my").mkdir()
    (tmp_path / "my" / "net.py").write_text(source)
    dist = tmp_path / "dist"
    dist.mkdir()
    lend_bundle(dist, "linux-arm64")
    env = {"SLIPWAY_DIST": str(dist)}  # the Pi is the one that other tests use, too: another boot would prove nothing
    with warm() as own:
        for command in commands:
            words = [word.replace("my/net.py", str(tmp_path / "my" / "net.py")) for word in shlex.split(command)]
            assert words[0] == "./inv"
            done = inv(*words[1:], env={**env, **own})
            assert done.returncode == 0, done.stdout + done.stderr
    requirements = (tmp_path / "my" / "requirements.txt").read_text(encoding="utf-8")
    assert re.fullmatch(r"timm==[0-9.]+\n", requirements)
    (result,) = (dist / "results").glob("pi-net-make_model-fp32-*.json")
    assert json.loads(result.read_text(encoding="utf-8"))["verdict"] in ("identical", "agrees")
    (folder,) = (dist / "matrix").glob("compare-*")
    found = json.loads((folder / "compare.json").read_text(encoding="utf-8"))
    assert {row["scheme"] for row in found["rows"]} == {"fp32", "qs8"}
