"""Every command of the README and the docs does what it says, typed as it stands there."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from core.paths import ROOT
from tests.conftest import Inv
from tests.support import consoles
from tests.support.builds import lend_bundle, lend_native, lend_program, warm
from tests.support.processes import well

RUNNING_NOW = "./inv test"
"""The one command not run here: it is the one that runs this test (.ci/run calls nothing else)."""


PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))


def _commands(pages: Sequence[Path] = PAGES) -> list[str]:
    found: list[str] = []
    for file in pages:
        if file.name == "runner.md":
            continue  # test_runner.py and test_inspect.py run commands where they have at hand what these take
        text = file.read_text(encoding="utf-8")
        if file.name == "compare.md":
            text = text.replace(consoles.section(file.name, consoles.INSPECT), "")
        for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL):
            for line in block.splitlines():
                command = line.split("#")[0].strip()
                if command and command not in found:
                    found.append(command)
    return found


README = frozenset(_commands(PAGES[:1]))


def test_there_are_two_commands_for_a_newcomer() -> None:
    assert _commands()[:2] == ["./inv deploy --device pi --model mobilenet_v2", RUNNING_NOW]
    assert (ROOT / ".ci" / "run").read_text(encoding="utf-8").rstrip().endswith(f"exec {RUNNING_NOW}")


@pytest.fixture(scope="module")
def own_folders(
    request: pytest.FixtureRequest, inv: Inv, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    """Devices and a ``dist/`` of this file's own, for commands that stop a device; with what takes longest to make."""
    dist = tmp_path_factory.mktemp("dist")
    lend_bundle(dist, "linux-arm64")
    here = (item for item in request.session.items if item.path == Path(__file__))
    if any(item.get_closest_marker("long") for item in here):  # commands of other pages than the README
        lend_bundle(dist, "linux-x86_64", "onnxruntime")
        lend_native(dist, "linux-x86_64")
    lend_program(dist, "mobilenet_v2", "fp32")
    env = {"SLIPWAY_DEVICES": str(tmp_path_factory.mktemp("devices")), "SLIPWAY_DIST": str(dist)}
    with warm() as own:
        yield {**env, **own}
    assert inv("devices.stop", "pi", env=env).returncode == 0


@pytest.mark.build
@pytest.mark.export
@pytest.mark.virtual
@pytest.mark.parametrize(
    "command",
    [
        # The README's are the sample of all pages' commands.
        command if command in README else pytest.param(command, marks=pytest.mark.long)
        for command in _commands()
        if command != RUNNING_NOW
    ],
)
def test_documented_command(inv: Inv, own_folders: dict[str, str], command: str) -> None:
    words = shlex.split(command)
    env = dict(own_folders)
    while "=" in words[0]:
        key, value = words.pop(0).split("=", 1)
        env[key] = value
    assert words[0] == "./inv", "only ./inv is documented: what else would a newcomer have?"
    done = well(inv(*words[1:], env=env))
    assert "Traceback" not in done.stderr
