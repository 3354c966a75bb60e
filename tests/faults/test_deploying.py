"""Faults of a whole deploy over SSH: each its own error and exit code, nothing partial, nobody left running."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from core.errors import MissingOperatorError, RunError, TransferError
from core.files import sha256_file
from core.formats.bundle import Bundle
from deploy.devices.conditions import Files
from deploy.devices.inventory import Device
from deploy.run.events import Event
from deploy.run.pipeline import deploy
from deploy.run.result import Result
from deploy.run.settings import Settings
from deploy.transport.ssh.transport import SshTransport
from models.export import export
from tests.faults import server
from tests.support.deploying import Deploying
from tests.support.processes import gone, runners

pytestmark = [pytest.mark.usefixtures("dist"), pytest.mark.build, pytest.mark.export]

FOR_EVER = 1_000_000
"""Executions: some twenty seconds of `other_program`, more than any of these tests waits."""


def go(device: Device, bundle: Bundle, where: Path, executions: int = 1, timeout: float = 60) -> Result:
    return deploy(device, bundle, where, Settings(num_executions=executions, warmup=0, timeout=timeout), listeners=[])


def left(board: server.Device, *folders: str) -> list[str]:
    root = board.home / ".slipway"
    return [str(path.relative_to(root)) for folder in folders for path in (root / folder).rglob("*") if path.is_file()]


def nothing_partial(board: server.Device) -> None:
    """Nothing unfinished, and every name in the store is the digest of what it names."""
    assert left(board, "incoming", "runs") == []
    for file in (board.home / ".slipway/store").glob("*"):
        assert sha256_file(file) == file.name


LACKING = """\
import torch


class Sorted(torch.nn.Module):
    def forward(self, x):
        values, _ = torch.sort(x + 1, dim=-1)
        return torch.cumprod(values, dim=-1)


def make_model():
    return Sorted(), (torch.randn(2, 8),)
"""


def test_operators_that_the_bundle_lacks(board: server.Device, device: Device, bundle: Bundle, tmp_path: Path) -> None:
    (tmp_path / "lacking.py").write_text(LACKING)
    where = export(f"{tmp_path / 'lacking.py'}:make_model", "fp32")
    with pytest.raises(MissingOperatorError, match="cannot run the program") as caught:
        go(device, bundle, where)
    assert caught.value.exit_code == 13
    assert set(caught.value.names) == {"aten::sort.values", "aten::cumprod.out"}
    assert not (board.home / ".slipway").exists()


def test_the_runner_is_killed(board: server.Device, device: Device, bundle: Bundle, other_program: Path) -> None:
    def kill(event: Event) -> None:
        if (event.step, event.kind) == ("run", "start"):

            def when_it_runs() -> None:
                while not (found := runners(str(board.home))):
                    time.sleep(0.02)
                os.kill(found[0], signal.SIGKILL)

            threading.Thread(target=when_it_runs, daemon=True).start()

    with pytest.raises(RunError, match="ended by SIGKILL") as caught:
        deploy(device, bundle, other_program, Settings(num_executions=FOR_EVER), listeners=[kill])
    assert caught.value.exit_code == 30
    assert "out of memory" in caught.value.cause
    nothing_partial(board)


def test_interrupted_three_times_during_the_run(
    board: server.Device, device: Device, bundle: Bundle, other_program: Path
) -> None:
    deploying = Deploying(device, bundle, other_program, FOR_EVER)
    deploying.wait_for(lambda: bool(runners(str(board.home))))
    for _ in range(3):
        deploying.interrupt()
        time.sleep(0.05)
    code, said = deploying.end()
    # One that comes when all is done ends Python itself by the signal: shells show 130 for both.
    assert code in {130, -signal.SIGINT}
    assert "Interrupted." in said
    assert "Traceback" not in said
    assert gone(str(board.home))
    nothing_partial(board)


@pytest.mark.parametrize("small", [True, False], ids=["with the run's end", "fetched"])
def test_an_output_that_changes_on_its_way_back(
    device: Device, bundle: Bundle, program: Path, monkeypatch: pytest.MonkeyPatch, small: bool
) -> None:
    """It comes with the run's end when it is small, else as a file."""
    brought, real = Files.brought, SshTransport.get

    def changed(data: bytes) -> bytes:
        return data[:-1] + bytes([data[-1] ^ 1])

    def bring(self: Files, stdout: bytes) -> dict[str, bytes]:
        whole = brought(self, stdout) if small else {}
        assert len(whole) == (2 if small else 0)
        return {name: changed(data) if name.endswith(".npy") else data for name, data in whole.items()}

    def get(self: SshTransport, remote: str, local: Path, *rest: object) -> None:
        assert not small, "it was there already"
        real(self, remote, local, *rest)  # type: ignore[arg-type]
        if local.suffix == ".npy":
            local.write_bytes(changed(local.read_bytes()))

    monkeypatch.setattr(Files, "brought", bring)
    monkeypatch.setattr(SshTransport, "get", get)
    with pytest.raises(TransferError, match="is not what the runner on board computed"):
        go(device, bundle, program)
