"""The virtual Pi Zero: the board itself, an Armv6 without NEON, and static programs on it."""

from __future__ import annotations

import time
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

__all__ = ["program"]

pytestmark = pytest.mark.virtual


@pytest.fixture(scope="module", autouse=True)
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with own_devices(tmp_path_factory):
        yield


def test_it_is_a_pi_zero() -> None:
    device = get_device("pi-zero", FILE)
    with open_device(device) as transport:
        facts = facts_of(device, transport)
    assert (facts.machine, facts.cpu, facts.cores) == ("armv6l", "ARM1176", 1)
    assert facts.board == "Raspberry Pi Zero"
    assert "vfp" in facts.cpu_features
    assert not {"neon", "vfpv3", "idiva"} & set(facts.cpu_features)
    assert facts.loaders == ("/lib/ld-linux.so.3",)  # soft float: Debian's armel
    assert set(facts.state.zones) == {"cpu-thermal"}
    assert 400 << 20 < facts.memory_total < 512 << 20
    assert choose_target(facts) == device.target


def test_its_clock_is_right() -> None:
    """The board has none: it is told the time when it starts."""
    with open_device(get_device("pi-zero", FILE)) as transport:
        assert abs(int(ask(transport, "date +%s")) - time.time()) < 600


def test_static_programs_run(tmp_path: Path) -> None:
    runs_programs("pi-zero", "linux-armv6", tmp_path)


def test_programs_of_later_processors_are_refused() -> None:
    refuses("pi-zero", "linux-armv7")
    refuses("pi-zero", "linux-arm64")


@pytest.mark.build
@pytest.mark.export
def test_the_lean_engine_agrees_with_the_host(program: Path, dist: Path) -> None:
    from toolchains.build.builder import build

    bundle = build("linux-armv6")
    assert (bundle.manifest.engine, bundle.manifest.needs.libc) == ("lean", "static")
    settings = Settings(num_executions=1, warmup=0, timeout=400)
    result = deploy(get_device("pi-zero", FILE), bundle, program, settings, listeners=[])
    assert result.verdict in {"identical", "agrees"}
    assert (result.facts.cpu, result.emulated) == ("ARM1176", True)
