"""What tests of deploying share: the real bundle, a real program, and a deploy as a process of its own.

Run as a program (``python -m tests.support.deploying DEVICE BUNDLE WHERE EXECUTIONS``, a device as JSON) it deploys
and ends as the command line does, so that tests can send it a real SIGINT.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from core.cli.start import again, ended
from core.errors import SlipwayError
from core.formats.bundle import Bundle
from core.paths import ROOT
from deploy.devices.inventory import Device
from deploy.run.pipeline import deploy
from deploy.run.settings import Settings
from models.export import export
from toolchains.bundle.builder import build
from toolchains.targets import host_target


@pytest.fixture(scope="session")
def bundle() -> Bundle:
    return build(host_target().name)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The root of `bench`."""
    return tmp_path / "a device"


@pytest.fixture
def bench(root: Path) -> Device:
    """A device that is this machine, with a store of the test's own."""
    return Device(name="bench", transport="local", target=host_target().name, root=str(root), timeout=120)


@pytest.fixture(scope="session")
def program() -> Path:
    return export("mlp", "fp32")


@pytest.fixture(scope="session")
def other_program() -> Path:
    return export("linear", "fp32")


class Deploying:
    def __init__(self, device: Device, bundle: Bundle, where: Path, executions: int = 1) -> None:
        words = [device.model_dump_json(), str(bundle.path), str(where), str(executions)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.deploying", *words], cwd=ROOT, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip

    def wait_for(self, happened: Callable[[], bool], seconds: float = 60) -> None:
        """Wait until ``happened``; an end before that is a failure."""
        end = time.monotonic() + seconds
        while not happened():
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < end, "it never happened"
            time.sleep(0.02)

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def end(self, seconds: float = 60) -> tuple[int, str]:
        try:
            _, said = self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            raise
        return self.process.returncode, said


def main(device: str, bundle: str, where: str, executions: str) -> int:
    """Deploy; the exit code is the command line's."""
    try:
        chosen = Device.model_validate_json(device)
        settings = Settings(num_executions=int(executions), warmup=0)
        result = deploy(chosen, Bundle.load(Path(bundle)), Path(where), settings)
        result.check()
    except SlipwayError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.unraisablehook = again
    raise SystemExit(ended(lambda: main(*sys.argv[1:])))
