"""The virtual Pi 3: the least 64-bit Arm there is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from core.bundle import Bundle
from deploy.devices.identify import choose_target
from deploy.devices.inventory import FILE, get_device
from deploy.run.connect import open_device
from deploy.run.pipeline import deploy
from deploy.run.result import EMULATED
from deploy.run.settings import Settings
from tests.support.deploying import program
from tests.support.devices import facts_of, own_devices

__all__ = ["program"]

pytestmark = [pytest.mark.virtual, pytest.mark.build, pytest.mark.export]


@pytest.fixture(scope="module")
def arm() -> Bundle:
    from toolchains.build.builder import build

    return build("linux-arm64")


@pytest.fixture(scope="module", autouse=True)
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with own_devices(tmp_path_factory):
        yield


def test_it_has_the_processor() -> None:
    device = get_device("pi3", FILE)
    with open_device(device) as transport:
        facts = facts_of(device, transport)
    assert (facts.machine, facts.cpu) == ("aarch64", "Cortex-A53")
    assert {"asimd", "crc32"} <= set(facts.cpu_features)
    assert not {"asimddp", "fphp", "atomics", "sve"} & set(facts.cpu_features)
    assert choose_target(facts) == device.target


def test_outputs_agree_with_the_hosts(arm: Bundle, program: Path, dist: Path) -> None:
    settings = Settings(num_executions=1, warmup=0, timeout=400)
    result = deploy(get_device("pi3", FILE), arm, program, settings, listeners=[])
    assert result.verdict in {"identical", "agrees"}
    assert (result.emulated, result.latency_note) == (True, EMULATED)
    assert result.facts.cpu == "Cortex-A53"
