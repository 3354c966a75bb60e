"""The whole way to the virtual Raspberry Pi: real sshd, real arm64 bundle, and what goes wrong there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from core.errors import DeviceFullError
from core.formats.bundle import Bundle
from deploy.devices.inventory import FILE, Device, get_device
from deploy.run.connect import open_device
from deploy.run.pipeline import deploy
from deploy.run.result import EMULATED, Result
from deploy.run.settings import Settings
from deploy.store.lock import new_owner
from deploy.transport.base import Transport, run
from deploy.transport.deadline import Deadline
from tests.support import examples
from tests.support.deploying import Deploying
from tests.support.devices import ask
from tests.support.processes import ended

pytestmark = [pytest.mark.virtual, pytest.mark.build, pytest.mark.export]

Go = Callable[..., Result]
FOR_EVER = 1_000_000


@pytest.fixture(scope="module")
def pi() -> Iterator[Transport]:
    """A connection beside the one under test, to look at the device."""
    with open_device(get_device("pi", FILE)) as transport:
        yield transport


@pytest.fixture
def device(pi: Transport) -> Iterator[Device]:
    """The Pi with a store of the test's own."""
    root = f"/tmp/slipway test {new_owner()}"  # noqa: S108 - on the device, whose /tmp is this test's alone
    yield get_device("pi", FILE).model_copy(update={"root": root})
    run(pi, ["rm", "-rf", root], deadline=Deadline.after(60))


@pytest.fixture
def go(device: Device, arm: Bundle, dist: Path) -> Go:
    def call(where: Path, on: Device = device, **options: Any) -> Result:
        settings = Settings(**{"num_executions": 1, "warmup": 0, "timeout": 300, **options})
        return deploy(on, arm, where, settings, listeners=())

    return call


def left(pi: Transport, device: Device) -> list[str]:
    """Unfinished files and run folders in the device's store."""
    return ask(pi, 'cd "$1" 2>/dev/null && find incoming runs -mindepth 1; true', device.root).split()


def runners(pi: Transport, device: Device) -> list[str]:
    """Command lines of runners on the device, from the test's own store: other tests deploy there, too."""
    script = "for f in /proc/[0-9]*/cmdline; do tr '\\000' ' ' <$f 2>/dev/null; echo; done | grep /bin/pte_runner; true"
    return [line for line in ask(pi, script).splitlines() if line.startswith(("/", "setsid")) and device.root in line]


def gone(pi: Transport, device: Device, seconds: float = 20) -> bool:
    return ended(lambda: runners(pi, device), seconds)


def test_the_examples_of_libslipway_compute_what_the_runner_computes(pi: Transport, tmp_path: Path) -> None:
    examples.run_on("pi", tmp_path)


def test_outputs_agree_and_times_are_marked(go: Go, program: Path, pi: Transport, device: Device, dist: Path) -> None:
    result = go(program)
    assert result.verdict in {"identical", "agrees"}
    assert result.outputs[0].max_abs is not None
    assert result.outputs[0].max_abs <= 1e-5
    assert (result.emulated, result.latency_note) == (True, EMULATED)
    assert (result.facts.machine, result.facts.cpu) == ("aarch64", "Cortex-A72")
    assert result.facts.free is not None
    assert result.upload.bytes > 10_000_000
    assert left(pi, device) == []
    assert json.loads((dist / f"results/{result.key}.json").read_text())["emulated"] is True

    again = go(program)
    assert (again.upload.files, again.upload.bytes) == (0, 0)
    assert gone(pi, device)


def test_full_disk_is_foreseen(go: Go, program: Path, pi: Transport, device: Device) -> None:
    small = device.model_copy(update={"root": "/small/slipway"})
    with pytest.raises(DeviceFullError, match="has no space for the upload") as caught:
        go(program, on=small)
    assert caught.value.names == ("free space",)
    assert ask(pi, "ls /small") == ""


def test_interrupted_during_the_upload(
    go: Go, arm: Bundle, program: Path, pi: Transport, device: Device, dist: Path
) -> None:
    deploying = Deploying(device, arm, program)
    script = 'set -- "$1"/incoming/*.part; [ ! -e "$1" ] || stat -c %s "$1"'
    deploying.wait_for(lambda: int(ask(pi, script, device.root) or "0") > 100_000)
    deploying.interrupt()
    code, said = deploying.end()
    assert (code, said.splitlines()[-1]) == (130, "Interrupted.")
    assert left(pi, device) == []
    assert ask(pi, 'ls "$1/bundles"', device.root) == ""
    assert go(program).verdict in {"identical", "agrees"}


def test_interrupted_and_killed_during_the_run(
    go: Go, arm: Bundle, other_program: Path, pi: Transport, device: Device, dist: Path
) -> None:
    go(other_program)
    deploying = Deploying(device, arm, other_program, FOR_EVER)
    deploying.wait_for(lambda: bool(runners(pi, device)))
    deploying.interrupt()
    code, said = deploying.end()
    assert (code, said.splitlines()[-1]) == (130, "Interrupted.")
    assert gone(pi, device, 2)
    assert left(pi, device) == []
    deploying = Deploying(device, arm, other_program, FOR_EVER)
    deploying.wait_for(lambda: bool(runners(pi, device)))
    deploying.process.kill()
    deploying.end()
    assert gone(pi, device), "sshd closes the lifeline, the supervisor ends the run"
    assert ended(lambda: left(pi, device), 30), "the lock's holder on the device tidies up"
    assert go(other_program, wait=0).verdict in {"identical", "agrees"}
