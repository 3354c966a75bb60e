"""The virtual older phone: 32 bits all through, over adb."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.devices.identify import choose_target
from deploy.devices.inventory import FILE, get_device
from deploy.run.connect import open_device
from deploy.run.pipeline import deploy
from deploy.run.settings import Settings
from tests.support.deploying import program
from tests.support.devices import ask, facts_of, own_devices, refuses, runs_programs
from toolchains.build.builder import build

__all__ = ["program"]

pytestmark = [pytest.mark.virtual, pytest.mark.build, pytest.mark.export]


@pytest.fixture(scope="module", autouse=True)
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with own_devices(tmp_path_factory):
        yield


def test_it_is_a_32_bit_phone() -> None:
    device = get_device("phone-armv7", FILE)
    with open_device(device) as transport:
        facts = facts_of(device, transport)
        assert ask(transport, "getprop ro.product.cpu.abilist64; id -un") == "\nshell\n"
    assert (facts.machine, facts.cpu, facts.abis) == ("armv7l", "Cortex-A7", ("armeabi-v7a", "armeabi"))
    assert "neon" in facts.cpu_features
    assert choose_target(facts) == device.target


def test_static_programs_run(tmp_path: Path) -> None:
    runs_programs("phone-armv7", "android-armv7", tmp_path)


def test_a_whole_deploy(program: Path, dist: Path) -> None:
    device = get_device("phone-armv7", FILE)
    bundle = build(device.target)
    result = deploy(device, bundle, program, Settings(num_executions=1, warmup=0, timeout=300), listeners=[])
    assert (result.bundle.target, result.bundle.engine) == ("android-armv7", "lean")
    assert (result.verdict, result.emulated) == ("agrees", True)
    again = deploy(device, bundle, program, Settings(num_executions=1, warmup=0, timeout=300), listeners=[])
    assert again.upload.bytes == 0
    assert again.runner.outputs[0].sha256 == result.runner.outputs[0].sha256
    assert list((dist / "results").glob("phone-armv7-*.json"))


def test_64_bit_programs_are_refused() -> None:
    refuses("phone-armv7", "android-arm64")
