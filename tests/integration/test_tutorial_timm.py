"""The tutorial (docs/tutorials.md): its file is written and its commands are run, as they stand there."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from tests.conftest import Inv
from tests.support import consoles
from tests.support.builds import lend_bundle
from tests.support.warm import warm

pytestmark = [pytest.mark.build, pytest.mark.export, pytest.mark.virtual]

PAGE = consoles.section("tutorials.md", "From a network of timm to a checked result")


def test_the_tutorials_commands_do_what_it_says(inv: Inv, tmp_path: Path) -> None:
    (source,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    commands = [
        line[2:] for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()
    ]
    assert [shlex.split(command)[1] for command in commands] == ["models.add-package", "deploy", "compare"]
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
    assert (folder / "compare.html").is_file()
